//! `beamport write`: the file of a sealed run, or its files of frames, made again from the streams; or a snapshot of a run
//! that goes on.
//!
//! The work is done by `beamport-nexus` without positions and commits: nothing in the data folder changes, and nothing
//! waits for it. The file gets its name when it is complete: until then it grows in the folder `NAME.part` beside. The
//! request is refused where the file could not hold the complete run: not sealed, messages gone, or a file in the way.
//! A run that is not sealed is written as it is now only where the file's name says so ([`SNAPSHOT`]).

use super::figures::{bytes, moment};
use super::verify::Progress;
use super::{Answer, Asked, Verb, ended, json_line, members, open};
use crate::arguments::{DataFolder, Form, values};
use crate::edges::{Registry, check_files_pattern};
use crate::file::{self, SinkSection, Word as _};
use crate::mover::{start_writer, writer};
use clap::Args;
use flow::job::{Compression, Elsewhere, Layout, Snapshot, Work, Writer};
use flow::records::Run;
use flow::{Data, Fault, WriterJob};
use serde_json::{Value, json};
use settings::shortened;
use std::collections::BTreeMap;
use std::io::{self, Read as _, Seek as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use wire::bprn::State;

/// How often the child is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// In the name of a file: the moment up to which it has a run that goes on.
const SNAPSHOT: &str = "{snapshot}";
/// Time between flushes: nobody watches this file grow, and each flush costs a sync.
pub(super) const FLUSH: Duration = Duration::from_secs(10);

/// `beamport write`
#[derive(Debug, Args)]
#[command(
    about = "Write the file of a sealed run again, or a snapshot of an open run",
    after_help = "Examples:\n\
                  \x20 beamport write nickel-2 --output nickel-2.nxs\n\
                  \x20 beamport write nickel-3 --output 'nickel-3-{snapshot}.nxs'"
)]
pub struct WriteFile {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// The file, or the folder of files of frames; must not exist. `{snapshot}` in the name stands for the time and allows an open run
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Template of the file [default: that of the run's first file]
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// HDF5 file to copy into the new file first [default: that of the run's first file; with `--template` none]
    #[arg(long = "static", value_name = "FILE", requires = "template")]
    pub static_file: Option<PathBuf>,
    /// Sink whose file to write [default: the first with a template, else the first of files of frames]
    #[arg(long, value_name = "NAME", conflicts_with = "template")]
    pub sink: Option<String>,
    /// Instrument file whose sink gives the program, the modules and the template
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for WriteFile {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(write(self, registry, out, err), err)
    }
}

fn write(asked: &WriteFile, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    super::warn_of_damage(&data, err)?;
    let (run, snapshot) = of_run(&data, asked)?;
    let output = named(&asked.output, snapshot);
    check_output(&data, &output)?;
    let of_sink = of_file(asked, registry)?;
    let mut writer = of_sink.as_ref().map_or_else(Writer::default, |sink| sink.writer.clone());
    let named = of_sink.as_ref().and_then(|sink| sink.template().map(Path::to_path_buf));
    let known = match (asked.template.as_ref().or(named.as_ref()), &asked.sink) {
        (Some(template), _) if template.is_file() => {
            let (static_file, inputs) = match asked.template {
                Some(_) => (asked.static_file.clone(), None),
                None => (writer.static_file.clone(), of_sink.map(|sink| sink.all_inputs().to_vec())),
            };
            let topics = writer.topics.clone();
            Known::One { template: template.clone(), static_file, layout: writer.layout, topics, inputs }
        }
        (Some(template), _) => return Err(not_there(template).into()),
        (None, sink) => match recorded_of(&run, sink.as_deref(), &data.folder)? {
            Some(known) => known,
            None => {
                let (template, topics) = (only_template(&data.folder)?, BTreeMap::new());
                Known::One { template, static_file: None, layout: writer.layout, topics, inputs: None }
            }
        },
    };
    let (work, inputs, output) = match known {
        Known::One { template, static_file, layout, topics, inputs } => {
            (writer.static_file, writer.layout, writer.topics) = (static_file, layout, topics);
            let mut streams = members::streams(&run);
            streams.retain(|stream| inputs.as_ref().is_none_or(|inputs| inputs.contains(stream)));
            (Work::Template(template), streams, output)
        }
        Known::Many { .. } if snapshot.is_some() => {
            let cause = "complete files of frames are listed already, and the growing one can be read";
            let fault = Fault::new(format!("run `{}` has no snapshot", asked.run), cause);
            return Err(fault.hint("with `--template FILE` its frames become one file").into());
        }
        Known::Many { frames: max, compression, name, inputs } => {
            // The run may be of another machine and have any name.
            let of = if crate::file::is_run_name(&run.name) { run.name.as_str() } else { "run" };
            (Work::Frames { max, compression }, inputs, output.join(name.replace("{run}", of)))
        }
    };
    let mut members = members::all(&data, &run)?;
    members::refuse_missing(&data, &run, "write")?;
    members.retain(|members| inputs.contains(&members.stream));
    members::refuse_gone(&run.name, "write", &members)?;
    let end = |input: &String| run.streams.iter().filter(|r| r.stream == *input).map(|r| r.next).max().unwrap_or(0);
    let ends: Vec<u64> = inputs.iter().map(end).collect();
    let job = WriterJob {
        data: data.folder.clone(),
        sink: "write".into(),
        run: run.name.clone(),
        inputs,
        work,
        output,
        flush: FLUSH,
        hold: Duration::ZERO,
        whole: false,
        detached: true,
        snapshot: snapshot.map(|time| Snapshot { time, ends }),
        elsewhere: Elsewhere::default(),
        writer,
    };
    let product = made(&job, members.iter().map(|m| m.bytes).sum(), err)?;
    tell(&product, members.iter().map(|m| m.messages).sum(), snapshot, asked.form.json, out)?;
    Ok(ExitCode::from(u8::from(!is_whole(&product))))
}

/// Whether nothing is lost, by the account. One that is not there proves nothing.
pub(super) fn is_whole(product: &Value) -> bool {
    let account = &product["account"];
    account["closed"].as_bool() == Some(true) && account["lost"].as_u64() == Some(0)
}

/// Prints what was written, with the number of messages.
pub(super) fn tell(
    product: &Value,
    messages: u64,
    snapshot: Option<i64>,
    json: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    if json {
        return json_line(out, product);
    }
    let account = &product["account"];
    // Of files of frames the product is their list.
    let of_all = if product["files"].is_null() { &product["size"] } else { &product["bytes"] };
    writeln!(out, "file      {}", product["file"].as_str().unwrap_or_default())?;
    if let Some(files) = product["files"].as_u64() {
        writeln!(out, "files     {}", super::figures::thousands(files))?;
    }
    writeln!(out, "size      {}", bytes(of_all.as_u64().unwrap_or_default()))?;
    writeln!(out, "blake3    {}", product["blake3"].as_str().unwrap_or_default())?;
    if let Some(content) = product["content"].as_str() {
        writeln!(out, "content   {content}")?;
    }
    if let Some(time) = snapshot {
        writeln!(out, "snapshot  {} of an open run", moment(time))?;
    }
    writeln!(out, "messages  {}", super::figures::thousands(messages))?;
    writeln!(out, "lost      {}", super::figures::known(account["lost"].as_u64()))?;
    for line in aside(account) {
        writeln!(out, "aside     {line}")?;
    }
    let closed = if account["closed"].as_bool() == Some(true) { "yes" } else { "no" };
    writeln!(out, "closed    {closed}")
}

/// The run, and where it goes on the moment up to which it is written.
fn of_run(data: &Data, asked: &WriteFile) -> Result<(Run, Option<i64>), Fault> {
    let run = flow::runs::run(data, &asked.run)?;
    let is_named = asked.output.to_string_lossy().contains(SNAPSHOT);
    match (run.state, is_named) {
        (State::Sealed, true) => {
            Err(Fault::new(format!("run `{}` has no snapshot", asked.run), "it is sealed, so it is complete")
                .hint(format!("choose a name without `{SNAPSHOT}`")))
        }
        (State::Sealed, false) => Ok((run, None)),
        (_, true) => {
            let now = data.media.now();
            members::until_now(data, run, now).map(|run| (run, Some(now)))
        }
        (state, false) => Err(Fault::new(
            format!("cannot write run `{}`", asked.run),
            format!("it is {}", state.name()),
        )
        .hint(format!(
            "wait until it is sealed (`beamport ls`, `beamport end`); `--output '{}-{SNAPSHOT}.nxs'` writes a snapshot",
            shortened(&asked.run)
        ))),
    }
}

/// The file of a snapshot, which has its moment in its name, as `20260301T120000.120Z`.
fn named(output: &Path, snapshot: Option<i64>) -> PathBuf {
    let Some(time) = snapshot else { return output.to_path_buf() };
    let time = moment(time).replace(['-', ':'], "");
    output.to_string_lossy().replace(SNAPSHOT, &time).into()
}

/// The sink of `--file` that says what writes the file, its template and its streams: what a run says of itself is data, and
/// names no code.
fn of_file(asked: &WriteFile, registry: &Registry) -> Result<Option<SinkSection>, Fault> {
    let Some(path) = &asked.file else { return Ok(None) };
    let what = || format!("`{}` does not define how to write the file", path.display());
    let instrument = file::read(path, registry, &file::unasked).map_err(|mistakes| {
        let first = mistakes.first().map(|mistake| mistake.to_string()).unwrap_or_default();
        Fault::new(what(), first).hint(format!("`beamport check {}` lists all mistakes", path.display()))
    })?;
    let mut sinks = instrument.sinks.into_iter().filter(|sink| sink.template().is_some());
    let sink = sinks.find(|sink| asked.sink.as_ref().is_none_or(|name| *name == sink.name));
    sink.map(Some).ok_or_else(|| Fault::new(what(), "it has no such sink of kind `nexus`"))
}

/// What is not in the file: how many of which stream, and why.
fn aside(account: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |row: &Value| {
        let reasons = row["aside"].as_object().into_iter().flatten();
        let line = |(reason, count): (&String, &Value)| {
            let count = super::figures::thousands(count.as_u64().unwrap_or_default());
            format!("{count} of {} ({reason})", text(&row["stream"]))
        };
        reasons.map(line).collect::<Vec<_>>()
    };
    account["rows"].as_array().into_iter().flatten().flat_map(of).collect()
}

fn refused(file: &Path, cause: impl std::fmt::Display) -> Fault {
    Fault::new(format!("cannot write `{}`", file.display()), cause)
}

/// Refuses a name that is taken, if only by a link that leads nowhere, a folder that is not there (it is made by who knows
/// where it belongs), and the folder of a stream, where each name means something.
pub(super) fn check_output(data: &Data, file: &Path) -> Result<(), Fault> {
    if let Ok(there) = std::fs::symlink_metadata(file) {
        let kind = match there.file_type() {
            kind if kind.is_symlink() => "link",
            kind if kind.is_dir() => "folder",
            _ => "file",
        };
        let cause = format!("a {kind} of that name exists");
        return Err(refused(file, cause).hint("choose another name, or move it away"));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let cause = format!("no folder `{}`", folder.display());
        return Err(refused(file, cause).hint(format!("`mkdir -p {}`", folder.display())));
    }
    let whole = folder.canonicalize().map_err(|e| refused(file, e))?;
    match whole.ancestors().find(|folder| store::Header::read(data.media.as_ref(), folder).is_ok()) {
        Some(stream) => {
            let cause = format!("`{}` is the folder of a stream", stream.display());
            Err(refused(file, cause).hint("choose a folder that holds no stream"))
        }
        None => Ok(()),
    }
}

/// What a job takes for itself: its file, or the folder of its files.
fn taken(job: &WriterJob) -> &Path {
    match (&job.work, job.output.parent()) {
        (Work::Frames { .. }, Some(folder)) => folder,
        _ => &job.output,
    }
}

/// The folder in which a file, or a folder of files, grows until it is complete. A killed writer leaves it, and the
/// next one empties it: the kernel frees the lock.
struct Part {
    folder: PathBuf,
    _lock: std::fs::File,
}

impl Part {
    /// Locks the folder beside `name`, so that of two writers of a name one is refused and neither removes the other's
    /// files.
    fn take(name: &Path) -> Result<Self, Fault> {
        let mut hidden = name.file_name().unwrap_or_default().to_owned();
        hidden.push(".part");
        let folder = name.with_file_name(hidden);
        match std::fs::create_dir(&folder) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(refused(name, e)),
            _ => {}
        }
        let in_the_way = || {
            let cause = format!("`{}` is not a folder of an unfinished file", folder.display());
            refused(name, cause).hint("move it away, or choose another name")
        };
        if !std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
            return Err(in_the_way());
        }
        let lock = std::fs::File::open(&folder).map_err(|e| refused(name, e))?;
        let is_ours = lock.try_lock().is_ok() && is_at(&lock, &folder);
        if !is_ours {
            return Err(refused(name, "another process writes it").hint("choose another name, or wait for it"));
        }
        // Only what a dead process has left: the name may be of somebody's folder.
        for left in std::fs::read_dir(&folder).map_err(|e| refused(name, e))?.flatten() {
            if !is_part_of(&left.file_name(), name) {
                return Err(in_the_way());
            }
            let is_folder = left.file_type().is_ok_and(|kind| kind.is_dir());
            let removed =
                if is_folder { std::fs::remove_dir_all(left.path()) } else { std::fs::remove_file(left.path()) };
            removed.map_err(|e| refused(name, e))?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// Gives a complete file or folder its name, unless that is in use by now.
    fn name(&self, name: &Path) -> Result<(), Fault> {
        let whole = self.folder.join(name.file_name().unwrap_or_default());
        let named = if whole.is_dir() {
            // Refused by the system, but for an empty folder.
            std::fs::rename(&whole, name)
        } else {
            match std::fs::hard_link(&whole, name) {
                // A file system without such links.
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists && std::fs::symlink_metadata(name).is_err() => {
                    std::fs::rename(&whole, name)
                }
                answer => answer,
            }
        };
        let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let sync = || std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        named.and_then(|()| sync()).map_err(|e| refused(name, e))
    }

    fn remove(&self) {
        // We made it, and nobody else was told of it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Whether an open folder is the one of that name: another may have been made after ours was removed.
fn is_at(open: &std::fs::File, folder: &Path) -> bool {
    let of = |found: std::fs::Metadata| (found.dev(), found.ino());
    open.metadata().map(of).ok() == std::fs::symlink_metadata(folder).map(of).ok()
}

/// Whether a name in the folder is one that a writer of the file makes: itself, and hidden ones beside it.
fn is_part_of(left: &std::ffi::OsStr, name: &Path) -> bool {
    let (left, name) = (left.to_string_lossy(), name.file_name().unwrap_or_default().to_string_lossy());
    left == name || left.strip_prefix('.').is_some_and(|rest| rest.starts_with(&*name))
}

/// The record in a run of what one of its sinks made.
#[derive(Debug, PartialEq)]
enum Known {
    /// A file, of this template and this static file, in this layout, of these streams of the run or of all. `topics`:
    /// their names in the template.
    One {
        template: PathBuf,
        static_file: Option<PathBuf>,
        layout: Layout,
        topics: BTreeMap<String, String>,
        inputs: Option<Vec<String>>,
    },
    /// Files of so many frames of these streams, packed so.
    Many { frames: u64, compression: Compression, name: String, inputs: Vec<String> },
}

fn not_there(template: &Path) -> Fault {
    Fault::new(format!("cannot read template `{}`", template.display()), "no such file")
}

/// Where a file of an instrument is: at its path or, where instrument and data folder were moved together, at the same
/// place seen from the data folder.
fn found_again(path: &str, data_then: Option<&str>, data: &Path) -> PathBuf {
    let path = Path::new(path);
    let moved = |now: PathBuf| {
        let (then, path) = (without_dots(Path::new(data_then?)), without_dots(path));
        let shared = path.ancestors().find(|folder| then.starts_with(folder))?;
        let up = then.strip_prefix(shared).ok()?.components().count();
        let file = without_dots(&now).ancestors().nth(up)?.join(path.strip_prefix(shared).ok()?);
        file.is_file().then_some(file)
    };
    if path.is_file() {
        return path.to_path_buf();
    }
    // As it is named, and where links lead.
    let places = [std::path::absolute(data), data.canonicalize()].into_iter().flatten();
    places.filter_map(moved).next().unwrap_or_else(|| path.to_path_buf())
}

/// A path whose `..` have taken away the name before them.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            std::path::Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

fn recorded_of(run: &Run, sink: Option<&str>, data: &Path) -> Result<Option<Known>, Fault> {
    match run.description_fault() {
        Some(fault) => Err(fault.hint("name a template with `--template FILE`")),
        None => recorded(run.description(), sink, data),
    }
}

/// Reads the run's own record of a sink or, without a name, of the first that can be made again. It may be from another
/// machine, or written by anybody. `data`: the data folder.
fn recorded(description: &str, sink: Option<&str>, data: &Path) -> Result<Option<Known>, Fault> {
    let metadata: Value = serde_json::from_str(description).unwrap_or_default();
    let none = serde_json::Map::new();
    let sinks = metadata["sinks"].as_object().unwrap_or(&none);
    let path = |made: &Value, key: &str| Some(found_again(made[key].as_str()?, made["data"].as_str(), data));
    let template = |made: &Value| path(made, "template");
    let one = |(made, template): (&Value, PathBuf)| Known::One {
        template,
        static_file: path(made, "static"),
        layout: made["layout"].as_str().and_then(Layout::of).unwrap_or_default(),
        topics: serde_json::from_value(made["topics"].clone()).unwrap_or_default(),
        // Runs of earlier versions say nothing.
        inputs: streams(made),
    };
    let Some(name) = sink else {
        let all = sinks.values().filter_map(|made| template(made).map(|path| (made, path)));
        let found = all.filter(|(_, path)| path.is_file()).map(one).next();
        let first = || sinks.iter().find_map(|(_, made)| many(made));
        return Ok(found.or_else(first));
    };
    let what = || format!("cannot write the file of sink `{}`", shortened(name));
    let Some(made) = sinks.get(name) else {
        let names: Vec<&str> = sinks.keys().map(String::as_str).collect();
        let hint = match names.as_slice() {
            [] => "name a template with `--template FILE`".to_owned(),
            names => format!("sinks of this run are {}", shortened(&names.join(", "))),
        };
        return Err(Fault::new(what(), "the run has no such sink").hint(hint));
    };
    match (template(made), many(made)) {
        (Some(path), _) if path.is_file() => Ok(Some(one((made, path)))),
        (Some(template), _) => Err(not_there(&template).hint("name another with `--template FILE`")),
        (None, Some(known)) => Ok(Some(known)),
        (None, None) => Err(Fault::new(what(), "the run has no record of its files")),
    }
}

/// The streams of a sink, as a run says it.
fn streams(made: &Value) -> Option<Vec<String>> {
    made["inputs"].as_array()?.iter().map(|input| input.as_str().map(str::to_owned)).collect()
}

/// Files of frames, as a run says it, if that can be.
fn many(made: &Value) -> Option<Known> {
    let frames = made["frames"].as_u64().filter(|frames| *frames > 0)?;
    let inputs = streams(made)?;
    let name = made["name"].as_str()?.to_owned();
    // Runs of earlier versions say nothing.
    let compression = made["compression"].as_str().map_or(Some(Compression::None), Compression::of)?;
    // The rule of the instrument file, where the folder of the run comes before it.
    let fits = check_files_pattern(&format!("{{run}}/{name}"), "write", inputs.len()).is_ok();
    fits.then_some(Known::Many { frames, compression, name, inputs })
}

/// The one template of a data folder.
fn only_template(folder: &Path) -> Result<PathBuf, Fault> {
    let mut templates: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|e| Fault::new(format!("cannot read data folder `{}`", folder.display()), e))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".nexus.json")))
        .collect();
    match (templates.pop(), templates.len()) {
        (Some(template), 0) => Ok(template),
        (found, others) => {
            let number = if found.is_some() { others + 1 } else { 0 };
            let cause = format!("{number} files `*.nexus.json` are in {}", folder.display());
            Err(Fault::new("the template is ambiguous", cause)
                .hint("add `--template FILE`: the `template` of the sink in the instrument file"))
        }
    }
}

/// Lets the child write; its answer. A file that is not the whole run is not left.
pub(super) fn made(job: &WriterJob, of: u64, err: &mut dyn Write) -> Result<Value, flow::Interruption> {
    let signals = Asked::to_end()?;
    let name = taken(job);
    let part = Part::take(name)?;
    let below = name.parent().map_or(Ok(job.output.as_path()), |above| job.output.strip_prefix(above));
    let output = part.folder.join(below.map_err(|e| refused(name, e))?);
    let answer = written(&WriterJob { output, ..job.clone() }, name, of, &signals, err).and_then(|mut product| {
        part.name(name)?;
        let list = product["file"].as_str().and_then(|file| Path::new(file).file_name());
        let file = if name.is_dir() { name.join(list.unwrap_or_default()) } else { name.to_owned() };
        if let Some(object) = product.as_object_mut() {
            object.insert("file".into(), json!(file.display().to_string()));
        }
        Ok(product)
    });
    part.remove();
    answer
}

fn written(
    job: &WriterJob,
    name: &Path,
    of: u64,
    signals: &Asked,
    err: &mut dyn Write,
) -> Result<Value, flow::Interruption> {
    let mut answer = nameless().map_err(|e| Fault::new("cannot keep the writer's answer", e))?;
    writer(&job.writer)?;
    let mut child = start_writer(job, &answer)??;
    let mut progress = Progress::new();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) => return Err(Fault::new("the writer disappeared", e).into()),
        }
        // Close to what it will be: arrays are most of a file and stand in it as they are in the messages.
        let size = size_of(taken(job));
        progress.draw_bytes(err, &job.run, size, of);
        if signals.yes() {
            // Ctrl-C is left to us: the child would go on.
            let ended = child.kill().and_then(|()| child.wait());
            progress.clear(err);
            let cause = ended.map_or_else(|e| e.to_string(), |_| "interrupted".into());
            return Err(refused(name, cause).into());
        }
        std::thread::sleep(LOOK);
    };
    progress.clear(err);
    if !status.success() {
        // Its fault is on stderr above.
        return Err(refused(name, format!("the writer ended: {status}")).into());
    }
    let mut text = String::new();
    answer
        .rewind()
        .and_then(|()| answer.read_to_string(&mut text))
        .map_err(|e| Fault::new("cannot read the writer's answer", e))?;
    let line = text.lines().next_back().unwrap_or_default();
    let mut product: Value =
        serde_json::from_str(line).map_err(|e| Fault::new("the writer's answer is not JSON", e))?;
    if let Some(object) = product.as_object_mut() {
        object.insert("run".into(), json!(job.run));
    }
    // The account may come as JSON text, as it stands in the file.
    if let Some(account) = product["account"].as_str().and_then(|text| serde_json::from_str(text).ok()) {
        product["account"] = account;
    }
    Ok(product)
}

/// Bytes of a file, or of those of a folder.
fn size_of(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|m| m.len()).sum(),
        Err(_) => std::fs::metadata(path).map_or(0, |m| m.len()),
    }
}

/// A file without a name.
fn nameless() -> io::Result<std::fs::File> {
    let path = std::env::temp_dir().join(format!("beamport-write-{}", std::process::id()));
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_and_a_folder_that_is_not_there_are_refused() {
        let folder = std::env::temp_dir().join(format!("beamport-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let data = Data::on_disk(&folder);
        let check_output = |file: &Path| check_output(&data, file);
        std::os::unix::fs::symlink(folder.join("nowhere.nxs"), folder.join("link.nxs")).unwrap();
        assert!(check_output(&folder.join("link.nxs")).unwrap_err().cause.contains("a link"));
        let fault = check_output(&folder.join("no/such/x.nxs")).unwrap_err();
        assert!(fault.cause.contains("no folder") && fault.hint.contains("mkdir"), "{fault}");
        assert!(check_output(&folder.join("x.nxs")).is_ok() && check_output(Path::new("x.nxs")).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_among_those_of_a_stream_is_refused() {
        let folder = std::env::temp_dir().join(format!("beamport-inside-{}", std::process::id()));
        let data = Data::on_disk(&folder);
        let stream = data.stream("detector");
        std::fs::create_dir_all(&stream).unwrap();
        let options = store::Options::memory(1 << 20);
        let writer = store::Writer::open(&data.media, &stream, "detector", &options).unwrap();
        let live = writer.header().live.clone();
        std::fs::create_dir(stream.join("below")).unwrap();
        for name in ["p-00000009", "below/x.nxs"] {
            let fault = check_output(&data, &stream.join(name)).unwrap_err();
            assert!(fault.cause.ends_with("is the folder of a stream"), "{fault}");
        }
        assert!(check_output(&data, &folder.join("x.nxs")).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
        let _ = std::fs::remove_dir_all(live);
    }

    #[test]
    fn of_two_that_write_one_file_the_second_is_refused_and_removes_nothing() {
        let folder = std::env::temp_dir().join(format!("beamport-same-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let output = folder.join("same.nxs");
        let job = WriterJob {
            data: folder.clone(),
            sink: "write".into(),
            run: "r".into(),
            inputs: Vec::new(),
            work: Work::Template(folder.join("t.json")),
            output: output.clone(),
            flush: FLUSH,
            hold: Duration::ZERO,
            whole: false,
            detached: true,
            snapshot: None,
            elsewhere: Elsewhere::default(),
            writer: Writer::default(),
        };
        let frames = WriterJob {
            work: Work::Frames { max: 1, compression: Compression::None },
            output: folder.join("some/{stream}_{number}.h5"),
            ..job.clone()
        };
        for job in [job, frames] {
            let part = Part::take(taken(&job)).unwrap();
            match made(&job, 0, &mut Vec::new()) {
                Err(flow::Interruption::Fault(fault)) => assert_eq!(fault.cause, "another process writes it"),
                _ => panic!("both write it"),
            }
            assert!(part.folder.exists());
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_had_the_name_of_a_whole_file() {
        let folder = std::env::temp_dir().join(format!("beamport-part-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("r.nxs.part")).unwrap();
        let name = folder.join("r.nxs");
        for left in ["r.nxs", ".r.nxs.new"] {
            std::fs::write(folder.join("r.nxs.part").join(left), "half").unwrap();
        }
        let part = Part::take(&name).unwrap();
        assert_eq!(std::fs::read_dir(&part.folder).unwrap().count(), 0);
        std::fs::write(part.folder.join("r.nxs"), "whole").unwrap();
        part.name(&name).unwrap();
        // A file that appeared meanwhile is not replaced, and neither is a folder with the name of ours.
        std::fs::remove_file(part.folder.join("r.nxs")).unwrap();
        std::fs::write(part.folder.join("r.nxs"), "other").unwrap();
        assert!(part.name(&name).is_err());
        assert_eq!(std::fs::read(&name).unwrap(), b"whole");
        part.remove();
        drop(part);
        std::fs::create_dir(folder.join("r.nxs.part")).unwrap();
        std::fs::write(folder.join("r.nxs.part/mine"), "mine").unwrap();
        assert!(Part::take(&name).is_err());
        assert_eq!(std::fs::read(folder.join("r.nxs.part/mine")).unwrap(), b"mine");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_run_says_of_its_files_of_frames_never_leads_out_of_their_folder() {
        let of = |name: &str, frames: u64, sink: Option<&str>| {
            let made = json!({"frames": frames, "name": name, "inputs": ["camera"]});
            let of_run = json!({"sinks": {"a": {"template": "/no/such"}, "images": made}});
            recorded(&of_run.to_string(), sink, Path::new("/no"))
        };
        let compression = Compression::None;
        let known =
            Known::Many { frames: 5, compression, name: "{stream}_{number}.h5".into(), inputs: vec!["camera".into()] };
        assert_eq!(of("{stream}_{number}.h5", 5, None).unwrap().as_ref(), Some(&known));
        assert_eq!(of("{stream}_{number}.h5", 5, Some("images")).unwrap(), Some(known));
        for wrong in ["../{number}.h5", "/{number}", "a/{number}.h5", ".{number}", "x.h5", ""] {
            assert_eq!(of(wrong, 5, None).unwrap(), None, "{wrong}");
            assert!(of(wrong, 5, Some("images")).is_err(), "{wrong}");
        }
        assert_eq!(of("{number}.h5", 0, None).unwrap(), None);
        let packed = |word: &str| {
            let made = json!({"frames": 5, "name": "{number}", "inputs": ["camera"], "compression": word});
            match recorded(&json!({"sinks": {"images": made}}).to_string(), None, Path::new("/no")).unwrap() {
                Some(Known::Many { compression, .. }) => Some(compression),
                _ => None,
            }
        };
        assert_eq!((packed("deflate"), packed("none")), (Some(Compression::Deflate), Some(Compression::None)));
        assert_eq!(packed("--detached"), None);
        assert!(of("{number}.h5", 5, Some("a")).unwrap_err().to_string().contains("/no/such"));
        let fault = of("{number}.h5", 5, Some("b")).unwrap_err();
        assert_eq!(fault.hint, "sinks of this run are a, images");
        assert_eq!(recorded("", None, Path::new("/no")).unwrap(), None);
    }

    #[test]
    fn a_template_is_found_where_instrument_and_data_folder_were_moved_together() {
        let folder = std::env::temp_dir().join(format!("beamport-moved-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("there/beamport-data/amor")).unwrap();
        std::fs::create_dir_all(folder.join("alone/amor")).unwrap();
        std::fs::write(folder.join("there/amor.nexus.json"), "{}").unwrap();
        let text = |path: &str| folder.join(path).display().to_string();
        let (then, template) = (text("here/beamport-data/amor"), text("here/amor.nexus.json"));
        let found = |data: &str| found_again(&template, Some(&then), &folder.join(data));
        assert_eq!(found("there/beamport-data/amor"), folder.join("there/amor.nexus.json"));
        let beside = text("here/x/../beamport-data/amor");
        let again = found_again(&template, Some(&beside), &folder.join("there/beamport-data/amor"));
        assert_eq!(again, folder.join("there/amor.nexus.json"));
        // The data folder alone was moved, and the template is gone.
        assert_eq!(found("alone/amor"), Path::new(&template));
        // It stands where it stood.
        std::fs::create_dir_all(folder.join("here")).unwrap();
        std::fs::write(folder.join("here/amor.nexus.json"), "{}").unwrap();
        assert_eq!(found("there/beamport-data/amor"), Path::new(&template));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_not_in_the_file_is_told_with_its_reason() {
        let account = json!({"rows": [{"stream": "detector", "aside": {}},
                                      {"stream": "devices", "aside": {"schema": 2, "unmatched": 28000}}]});
        assert_eq!(aside(&account), ["2 of devices (schema)", "28,000 of devices (unmatched)"]);
    }

    #[test]
    fn the_only_template_of_a_data_folder_is_taken() {
        let folder = std::env::temp_dir().join(format!("beamport-template-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(only_template(&folder).unwrap_err().cause.starts_with("0 files"));
        std::fs::write(folder.join("amor.nexus.json"), "{}").unwrap();
        assert_eq!(only_template(&folder).unwrap(), folder.join("amor.nexus.json"));
        std::fs::write(folder.join("loki.nexus.json"), "{}").unwrap();
        assert!(only_template(&folder).unwrap_err().cause.starts_with("2 files"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
