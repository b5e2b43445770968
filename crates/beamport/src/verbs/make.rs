//! `beamport make`: a NeXus file of a template and messages, without an instrument and its data folder.
//!
//! The ordinary path in small: the messages are appended to streams in memory, in a data folder that is removed at the
//! end, a run over them is recorded and sealed, and `beamport-nexus` writes its file as for `beamport write`. The exit
//! status is 1 where a message of the run is lost or set aside; one that repeats a value of a log (`repeated`) does not
//! count.

use super::append::fill;
use super::given::{self, Given};
use super::through::Workspace;
use super::write::{self, FLUSH};
use super::{Answer, Asked, Verb, ended, members, nanoseconds};
use crate::arguments::{Form, values};
use crate::edges::Registry;
use crate::file::{Severity, checked_template};
use crate::mover::template_check;
use clap::Args;
use flow::job::{Elsewhere, Layout, Work, Writer};
use flow::records::Stop;
use flow::{Appender, Data, Fault, RunKeeper, StreamView, WriterJob};
use serde_json::Value;
use settings::When;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use store::Options;

/// Name of the run, and of the sink in its account.
const NAME: &str = "make";
/// The stream of messages for which neither they nor the template name one.
const UNNAMED: &str = "messages";
/// Least shared memory of a stream.
const LIVE_BYTES: u64 = 1 << 20;
/// What a message takes beside its bytes: an entry of the index, and what is left free at the end of a segment.
const BESIDE_BYTES: u64 = 128;

/// `beamport make`
#[derive(Debug, Args)]
#[command(
    about = "Make a NeXus file from a template and messages, without an instrument",
    after_help = "Examples:\n\
                  \x20 beamport make first.nexus.json messages.json --output first.nxs\n\
                  \x20 beamport make nexus_structure.json messages.json --output ess.nxs --layout ess --start 2026-03-01T12:00:00Z"
)]
pub struct Make {
    /// Template: structure of the file
    pub template: PathBuf,
    /// Messages in the form of `beamport append`, each with its `stream`; `-` for stdin
    pub data: PathBuf,
    /// The file to write; must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Names and types of datasets: nexus, or ess as the ESS file writer makes them
    #[arg(long, value_name = "LAYOUT", default_value = "nexus", value_parser = values::layout)]
    pub layout: Layout,
    /// Start of the run [default: at the first message]
    #[arg(long, value_name = "TIME", value_parser = values::moment, allow_hyphen_values = true)]
    pub start: Option<When>,
    /// End of the run (exclusive) [default: after the last message]
    #[arg(long, value_name = "TIME", value_parser = values::moment, allow_hyphen_values = true)]
    pub stop: Option<When>,
    /// Include messages whose time is exactly `--stop`
    #[arg(long, requires = "stop")]
    pub inclusive: bool,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Make {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(make(self, out, err), err)
    }
}

fn make(asked: &Make, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let place = Workspace::beside()?;
    let data = &place.data;
    let now = data.media.now();
    write::check_output(data, &asked.output)?;
    let writer = Writer { layout: asked.layout, ..Writer::default() };
    let named = named_streams(asked, &writer, err)?;
    let messages = given::read(&asked.data, now, |message| match (&message.stream, named.as_slice()) {
        (None, [_, _, ..]) => Err(format!("it has no `stream`, and the template reads {}", named.join(", "))),
        _ => Ok(()),
    })?;
    let (start, stop) = interval(asked, &messages, now)?;
    let mut streams: BTreeMap<&str, Vec<&Given>> = named.iter().map(|name| (name.as_str(), Vec::new())).collect();
    let only = named.first().map_or(UNNAMED, String::as_str);
    for message in &messages {
        streams.entry(message.stream.as_deref().unwrap_or(only)).or_default().push(message);
    }
    // A writer reads at least one stream.
    if streams.is_empty() {
        streams.insert(UNNAMED, Vec::new());
    }
    let signals = Asked::to_end()?;
    // The streams are there for as long as they are written: no source may come in between.
    let mut appenders = Vec::new();
    for (name, messages) in &streams {
        let bytes: u64 = messages.iter().map(|message| message.payload.len() as u64 + BESIDE_BYTES).sum();
        // Segments are not filled to the last byte.
        let mut stream = Appender::open(data, name, Some(Options::memory(LIVE_BYTES + 2 * bytes)))?;
        fill(&mut stream, messages.iter().copied(), &signals)?;
        appenders.push(stream);
    }
    record(data, streams.keys(), start, stop)?;
    let run = flow::runs::run(data, NAME)?;
    let members = members::all(data, &run)?;
    let job = WriterJob {
        data: data.folder.clone(),
        sink: NAME.into(),
        run: NAME.into(),
        inputs: streams.keys().map(|name| (*name).to_owned()).collect(),
        work: Work::Template(asked.template.clone()),
        output: asked.output.clone(),
        flush: FLUSH,
        hold: Duration::ZERO,
        whole: false,
        detached: true,
        snapshot: None,
        elsewhere: Elsewhere::default(),
        writer,
    };
    let product = write::made(&job, members.iter().map(|m| m.bytes).sum(), err)?;
    write::tell(&product, members.iter().map(|m| m.messages).sum(), None, asked.form.json, out)?;
    Ok(ExitCode::from(u8::from(!write::is_whole(&product) || is_aside(&product["account"]))))
}

/// The names of the streams that the template reads; each of its mistakes goes to `err`.
fn named_streams(asked: &Make, writer: &Writer, err: &mut dyn Write) -> Result<Vec<String>, Fault> {
    let answer = checked_template(&asked.template, writer, &template_check)
        .map_err(|cause| Fault::new(format!("cannot read template `{}`", asked.template.display()), cause))?;
    let wrong = || answer.mistakes.iter().filter(|mistake| mistake.level == Severity::Error);
    if wrong().next().is_some() {
        // The fault says it too, where nobody reads this.
        let _ = wrong().try_for_each(|mistake| writeln!(err, "{mistake}\n"));
        let cause = format!("mistakes in template `{}`: {}", asked.template.display(), wrong().count());
        return Err(Fault::new(format!("cannot make `{}`", asked.output.display()), cause));
    }
    let names: BTreeSet<String> = answer.modules.into_iter().flat_map(|module| module.streams).collect();
    Ok(names.into_iter().collect())
}

/// Whether messages are not in the file that should be: what a log says again is left out by its rule.
fn is_aside(account: &Value) -> bool {
    let rows = account["rows"].as_array().into_iter().flatten();
    rows.filter_map(|row| row["aside"].as_object()).any(|reasons| reasons.keys().any(|reason| reason != "repeated"))
}

/// Start and stop of the run: as asked for, else from the first message to behind the last.
fn interval(asked: &Make, messages: &[Given], now: i64) -> Result<(i64, Stop), Fault> {
    let given = |when: Option<When>| when.map(|when| nanoseconds(when, now));
    let times = || messages.iter().map(|message| message.time);
    let (start, stop) = (given(asked.start), given(asked.stop));
    let start = start.or_else(|| times().min()).unwrap_or_else(|| stop.map_or(now, |stop| stop.saturating_sub(1)));
    let behind = || times().max().map_or(start, |last| last.max(start)).saturating_add(1);
    let stop = Stop::at(stop.unwrap_or_else(behind), asked.inclusive);
    if stop.first_outside <= start {
        let cause = "the stop is not after the start, which is the first message where `--start` is not given";
        return Err(Fault::new(format!("cannot make `{}`", asked.output.display()), cause)
            .hint("give a later `--stop`, or an earlier `--start`"));
    }
    Ok((start, stop))
}

/// Writes down a sealed run over all that the streams have.
fn record<'s>(data: &Data, streams: impl Iterator<Item = &'s &'s str>, start: i64, stop: Stop) -> Result<(), Fault> {
    let ended = |name: &&str| StreamView {
        name: (*name).to_owned(),
        frontier: stop.first_outside,
        ended: true,
        marked: true,
        ..StreamView::default()
    };
    let views: Vec<StreamView> = streams.map(ended).collect();
    let now = data.media.now().max(stop.first_outside);
    let mut keeper = RunKeeper::open(data)?;
    keeper.begin(NAME, start, stop, Duration::ZERO, "{}", now)?;
    super::replay::seal(&mut keeper, NAME, &views, now).map(drop)
}
