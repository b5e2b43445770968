//! Kinds of sources, of live sinks, of ready-made workers and of commands, as an edge declares them.
//!
//! A kind is one `static` in the crate of its edge. It names its keys and reads its section into a plan; the plan
//! builds the stage, and answers what checks and reports ask. The program registers the kinds that it knows; no other
//! code depends on which ones exist, so a new edge changes one line.

use crate::{Data, Fault, LiveSink, Source, Worker};
use serde_json::Value;
use settings::{Key, Mistake, Origin, Refused, Section};
use std::any::Any;
use std::fmt::Debug;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::Message;

/// A kind of source: the word behind `kind` in `[source.NAME]`.
#[derive(Debug)]
pub struct SourceKind {
    /// Its word.
    pub name: &'static str,
    /// Where the messages come from, in one sentence, for the reference page.
    pub about: &'static str,
    /// Keys of its own, beside those of every stream, in the order of the reference page. `read` asks all of them, whatever
    /// their values are.
    pub keys: &'static [&'static Key],
    /// Reads the section of the source with this name and notes every mistake; `None` where nothing can be built.
    pub read: fn(&str, &mut Section<'_>) -> Option<Arc<dyn SourcePlan>>,
    /// Keys that depend on the value of another key: the models of a simulation, for example.
    pub more: Option<&'static MoreKeys>,
}

/// Keys of a kind that are not in its table.
#[derive(Debug)]
pub struct MoreKeys {
    /// Tables of the reference page.
    pub reference: fn() -> String,
    /// The owner of a key of this name; `None` where there is no such key.
    pub owner: fn(&str) -> Option<String>,
}

/// A section of a source that was read without mistakes.
pub trait SourcePlan: Any + Debug + Send + Sync {
    /// Loads what the source takes from files. The program calls it once, before it builds the source.
    fn prepare(&self, host: &dyn Host) -> Result<(), Fault> {
        let _ = host;
        Ok(())
    }

    /// Builds the source, again after each failure of it.
    fn build(&self) -> Result<Box<dyn Source>, Fault>;

    /// Whether the program fills the stream. Otherwise another process does, and no source is built.
    fn fills_stream(&self) -> bool {
        true
    }

    /// Loads the code of the user that the source runs, in a process of its own, and waits for that no longer than
    /// `patience`: what is wrong with it.
    fn check_code(&self, patience: Duration) -> Result<(), Fault> {
        let _ = patience;
        Ok(())
    }

    /// Bytes of shared memory of streams that it needs beside the one that it fills, whose live end has `live` bytes.
    fn beside_bytes(&self, live: u64) -> u64 {
        let _ = live;
        0
    }

    /// Asks the other system whether it answers, for a few seconds at most: what there is, in a few words. `None` if
    /// there is nothing to ask.
    fn probe(&self) -> Option<Result<String, Fault>> {
        None
    }

    /// Reads recorded input from a file as the source would, and says what it makes of it. `None`: the kind has no
    /// such.
    fn inspect(&self, file: &Path) -> Option<Result<Inspected, Fault>> {
        let _ = file;
        None
    }

    /// Variables of the environment that hold secrets of the source: other programs do not get them.
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// The receiver whose thread the source shares where its section names none; `None`: it has a thread of its own.
    fn receiver(&self) -> Option<&'static str> {
        None
    }

    /// The contents of the messages, where the section alone determines them.
    fn sends(&self) -> Option<Sends> {
        None
    }

    /// Bytes of the largest message, where the section alone says so.
    fn message_bytes(&self) -> Option<u64> {
        None
    }

    /// Bytes that its stream takes on a disk each second, on average, where the section alone says so.
    fn bytes_per_second(&self) -> Option<f64> {
        None
    }

    /// Lists the conflicts with the rest of the instrument file. `name`: of the source.
    fn conflicts(&self, name: &str, outline: &Outline<'_>) -> Vec<Conflict> {
        let _ = (name, outline);
        Vec::new()
    }

    /// What is kept in the metadata of each run: a value under the name of the source, in a group that sources share.
    fn provenance(&self) -> Result<Option<Provenance>, Fault> {
        Ok(None)
    }
}

/// The report of a source on recorded input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// For people, line by line.
    pub text: String,
    /// Messages in it.
    pub messages: u64,
    /// There are some, and nothing is refused.
    pub is_clean: bool,
}

/// A kind of ready-made worker: the word behind `call` in `[worker.NAME]`.
#[derive(Debug)]
pub struct WorkerKind {
    /// Its word; without a colon.
    pub name: &'static str,
    /// How it processes the messages, in one sentence, for the reference page.
    pub about: &'static str,
    /// Its parameters, in the order of the reference page. `read` asks all of them, whatever their values are.
    pub keys: &'static [&'static Key],
    /// Reads `[worker.NAME.parameters]` and notes every mistake; `None` where nothing can be built.
    pub read: fn(&mut Section<'_>) -> Option<Arc<dyn WorkerPlan>>,
    /// Text of the reference page below the table of parameters, as Markdown.
    pub notes: &'static str,
}

impl WorkerKind {
    /// Reads parameters that stand in no file, a JSON object.
    pub fn plan(&self, parameters: &Value) -> Result<Arc<dyn WorkerPlan>, Vec<Mistake>> {
        settings::read_json(parameters, self.read)
    }
}

/// Parameters of a ready-made worker that were read without mistakes.
pub trait WorkerPlan: Debug + Send + Sync {
    /// The requirements of the worker on its runner.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// The contents of the messages of the stream `stage`, where the parameters alone determine them.
    fn sends(&self, stage: &str) -> Option<Sends> {
        let _ = stage;
        None
    }

    /// Builds the worker in the process of a slot.
    fn build(&self, place: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault>;
}

/// Where a ready-made worker runs.
#[derive(Clone)]
pub struct WorkerPlace {
    /// The streams of the instrument.
    pub data: Data,
    /// Name of the worker and of the stream that it fills.
    pub stage: String,
    /// Number of the slot, from 0.
    pub slot: u32,
    /// Names of its inputs.
    pub inputs: Vec<String>,
}

impl WorkerPlace {
    /// The first input: the only one of a worker that needs to be alone.
    #[must_use]
    pub fn input(&self) -> &str {
        self.inputs.first().map_or("", String::as_str)
    }
}

/// The requirements of a ready-made worker on its runner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Why it needs one slot and one input; `None` where any number will do.
    pub alone: Option<&'static str>,
    /// Retention keeps messages of its input, or of streams beside it, until it no longer needs them.
    pub holds_back: bool,
    /// Streams that it reads beside its inputs.
    pub streams: Vec<String>,
    /// Least size of the stream of a slot in shared memory, in bytes; 0: as large as its messages.
    pub bytes: u64,
    /// A message at which slots die is retried without end and never set aside: what the worker keeps would be incomplete.
    pub whole: bool,
    /// Code of the user that it calls, `FILE.py:NAME` or `PACKAGE.MODULE:NAME`: its slots are processes of Python.
    pub code: Option<String>,
    /// Messages within this time of a message decide what it makes of it, ns; 0: it does not go by time.
    pub around: i64,
}

/// A kind of live sink: the word behind `kind` in `[sink.NAME]`. The keys of every live sink, `inputs` and `early`,
/// are read by
/// the program.
#[derive(Debug)]
pub struct LiveKind {
    /// Its word.
    pub name: &'static str,
    /// Where the messages go, in one sentence, for the reference page.
    pub about: &'static str,
    /// Keys of its own, in the order of the reference page. `read` asks all of them, whatever their values are.
    pub keys: &'static [&'static Key],
    /// Reads the section of the sink with this name and notes every mistake; `None` where nothing can be built.
    pub read: fn(&str, &mut Section<'_>) -> Option<Arc<dyn LivePlan>>,
}

/// A section of a live sink that was read without mistakes.
pub trait LivePlan: Any + Debug + Send + Sync {
    /// Builds the sink, again after each failure of it. `inputs`: the streams, in the order of the numbers by which
    /// [`LiveSink::write`] knows them.
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault>;

    /// As [`SourcePlan::probe`]; `inputs` as for [`LivePlan::build`].
    fn probe(&self, inputs: &[String]) -> Option<Result<String, Fault>> {
        let _ = inputs;
        None
    }

    /// As [`SourcePlan::secrets`].
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Lists the conflicts with the sources whose streams the sink reads, given with their names. A kind recognizes
    /// plans of its own crate by their type.
    fn conflicts(&self, sources: &[(&str, &dyn SourcePlan)]) -> Vec<Conflict> {
        let _ = sources;
        Vec::new()
    }
}

/// A carrier of streams between the hosts of an instrument: the word behind `carrier` in `[hosts]`.
#[derive(Debug)]
pub struct CarrierKind {
    /// Its word.
    pub name: &'static str,
    /// The system that carries the messages, in one sentence, for the reference page.
    pub about: &'static str,
    /// Keys of its own, in the order of the reference page. `read` asks all of them, whatever their values are.
    pub keys: &'static [&'static Key],
    /// Reads `[hosts]` and notes every mistake; `None` where nothing can be built.
    pub read: fn(&mut Section<'_>) -> Option<Arc<dyn CarrierPlan>>,
    /// Keys of its own in `[host.NAME]`.
    pub host_keys: &'static [&'static Key],
    /// Reads them in the section of the host with this name, and notes every mistake; `None` where there are none. The
    /// plan gets them with [`CarrierPlan::joined`].
    pub read_host: fn(&str, &mut Section<'_>) -> Option<HostKeys>,
}

/// The keys of a carrier in `[host.NAME]`, of a type of its own.
pub type HostKeys = Arc<dyn Any + Send + Sync>;

/// A section `[hosts]` that was read without mistakes.
pub trait CarrierPlan: Debug + Send + Sync {
    /// The sink by which a host sends streams of the instrument to the others. `name`: of the sink.
    fn near(&self, name: &str, instrument: &str) -> Arc<dyn LivePlan>;

    /// The source that fills a mirror of a stream. It answers two requests: `{"absent": TIME}`, the stream has come to
    /// this time without its host, ns since 1970 UTC; and `{"is_at_end": true}`, whether the mirror has had, at some
    /// time since its start, all that the carrier had.
    fn far(&self, mirror: &Mirror, instrument: &str) -> Arc<dyn SourcePlan>;

    /// The sink by which a host hands out the inputs of a worker on several hosts, in blocks. `name`: of the sink; the
    /// inputs are those that this host has.
    fn deal(&self, name: &str, shared: &SharedWorker) -> Arc<dyn LivePlan>;

    /// The two ends of a worker on one of its hosts: the source that fills its input with blocks, and the sink that
    /// returns their results. The sink reads the commits of the worker, its output and its messages aside, in this
    /// order. Both keep nothing of record: a block whose results are not returned goes to another host.
    fn work(&self, shared: &SharedWorker, host: &str) -> (Arc<dyn SourcePlan>, Arc<dyn LivePlan>);

    /// The source that fills the output of a worker on several hosts with the results of all of them. It answers the
    /// requests of [`CarrierPlan::far`]; `{"absent": TIME, "inputs": [NAME]}` is of these inputs.
    fn gather(&self, shared: &SharedWorker) -> Arc<dyn SourcePlan>;

    /// The plan with the keys of the hosts, in the order of the file; `None`: it has none of its own.
    fn joined(&self, hosts: &[(String, Option<HostKeys>)]) -> Option<Arc<dyn CarrierPlan>> {
        let _ = hosts;
        None
    }

    /// The plan for the process of one host, with its data folder; `None`: it is the same for all.
    fn of_host(&self, host: &str, data: &Path) -> Option<Arc<dyn CarrierPlan>> {
        let _ = (host, data);
        None
    }

    /// The sink by which a host sends streams to one other host, `far`; `None`: that of [`CarrierPlan::near`] sends to
    /// all of them. `name`: of the sink.
    fn near_to(&self, name: &str, instrument: &str, far: &str) -> Option<Arc<dyn LivePlan>> {
        let _ = (name, instrument, far);
        None
    }

    /// Why the other hosts cannot reach a host whose streams they read, and what to write; `None` where they can.
    fn unreachable(&self, host: &str) -> Option<Refused> {
        let _ = host;
        None
    }

    /// Why a worker cannot run on several hosts; `None` where it can.
    fn refuses_workers(&self) -> Option<&'static str> {
        None
    }

    /// How long it holds messages, and in how many copies; none where the streams themselves hold them.
    fn holds(&self) -> (Duration, u32);

    /// The host whose clock gives posts their times; `None`: a broker does.
    fn clock_of(&self) -> Option<String> {
        None
    }

    /// Opens the bulletin of the instrument, which takes some seconds at most. `host`: the host that posts; a later
    /// process of it shuts out the earlier. `None`: only to read.
    fn bulletin(&self, instrument: &str, host: Option<&str>) -> Result<Box<dyn Bulletin>, Fault>;

    /// As [`SourcePlan::secrets`].
    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Texts that all hosts of an instrument read: the newest of each key is kept, and all read them in one order.
pub trait Bulletin: Send {
    /// Posts keys with their texts, and waits some seconds for the carrier to keep them. An empty text removes its key.
    /// Posts of a call that failed may be read all the same: the caller posts them again.
    fn post(&mut self, posts: &[(String, String)]) -> Result<Posted, Fault>;

    /// The next posts, own ones too; at first the newest of each key. Waits for one for up to `patience`.
    fn read(&mut self, patience: Duration) -> Result<Vec<Post>, Fault>;
}

/// The fate of posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The carrier keeps them.
    Kept,
    /// A newer process of this host has taken its place: nothing is kept, now or later.
    Fenced,
}

/// A text of a bulletin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Its key.
    pub key: String,
    /// Its text; empty where the key was removed.
    pub text: String,
    /// When the carrier got it, by its own clock: ns since 1970 UTC.
    pub time: i64,
}

/// A stream of another host that is mirrored on this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Name of the mirror on this host.
    pub name: String,
    /// Name of the stream on the other host.
    pub stream: String,
    /// The other host.
    pub host: String,
}

/// A worker on several hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWorker {
    /// Name of the worker and of its output.
    pub name: String,
    /// Name of the instrument.
    pub instrument: String,
    /// All its inputs, whichever hosts have them.
    pub inputs: Vec<String>,
    /// The number of parts into which blocks go in turn: as many slots can be busy at once.
    pub parts: u32,
}

/// A format of files that `beamport export` writes: the end of their names.
#[derive(Debug)]
pub struct ExportKind {
    /// The end of the name, without the dot.
    pub name: &'static str,
    /// The messages that it takes, for people.
    pub about: &'static str,
    /// The noun for the parts of a file, in the plural: "events".
    pub blocks: &'static str,
    /// Begins a file.
    pub begin: BeginExport,
}

/// Begins a file in `out`. The second argument: start and stop of the run, ns since 1970 UTC.
pub type BeginExport = for<'a> fn(Box<dyn Write + 'a>, (i64, i64)) -> Result<Box<dyn ExportFile + 'a>, Fault>;

/// A file that is being exported.
pub trait ExportFile {
    /// Appends a message. `time`: its source time, ns since 1970 UTC.
    fn push(&mut self, message: &Message<'_>, time: i64) -> Result<(), Fault>;

    /// Ends the file: messages, blocks and bytes.
    fn end(self: Box<Self>) -> Result<(u64, u64, u64), Fault>;
}

/// A command of an edge at the control socket of a running instrument: the word behind `command`. It concerns the other
/// system alone, not the stages of the instrument.
#[derive(Debug)]
pub struct CommandKind {
    /// Its word.
    pub name: &'static str,
    /// It may change something: the stream `control` records it with its answer.
    pub is_recorded: bool,
    /// Carries it out, in a thread of its own, with the request and the sources of the instrument. It may wait for the
    /// other system, for as long as `timeout` of the request says (ns).
    pub run: fn(&Value, &NamedSources<'_>) -> Result<Value, Fault>,
}

/// The plans of sources, with their names.
pub type NamedSources<'a> = [(&'a str, &'a dyn SourcePlan)];

/// The files that a plan may load through the program that runs it.
pub trait Host {
    /// The histogram in a NeXus file, in the form of the crate `sim`.
    fn histogram(&self, path: &Path) -> Result<Vec<u8>, Fault>;
    /// Maps a file, however large it is.
    fn map(&self, path: &Path) -> Result<store::Foreign, Fault>;
    /// The data folder of the instrument.
    fn folder(&self) -> &Path;
}

/// The contents of the messages of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sends {
    /// What makes them, as the subject of a sentence: "the model `amor`".
    pub maker: String,
    /// Schemas, four letters each; there are no others.
    pub schemas: Vec<String>,
    /// Names of the variables of labelled arrays.
    pub variables: Vec<String>,
    /// Names of the origins.
    pub origins: Vec<String>,
    /// Units of the values of origins, where they are known.
    pub units: Vec<(String, String)>,
}

/// The parts of the instrument that a source may compare itself with.
#[derive(Debug)]
pub struct Outline<'a> {
    /// The data folder of the instrument.
    pub data: &'a Path,
    /// The sources before this one in the file; a kind identifies plans of its own crate by their type.
    pub before: &'a NamedSources<'a>,
}

/// Values of a section that do not fit the rest of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Line of the value; for a default that of the section's header.
    pub origin: Origin,
    /// The conflict.
    pub what: String,
    /// Why.
    pub cause: String,
    /// The remedy, as a text to write.
    pub hint: String,
}

/// The metadata that a source adds to a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Provenance {
    /// Name of the group.
    pub group: &'static str,
    /// The value, under the name of the source.
    pub value: Value,
}
