//! The check of a job before it is accepted, and the instrument file that `beamport up` runs for it.
//!
//! Brokers are not asked here. The template is read by `beamport-nexus check` alone, which names its topics too.
//!
//! Constraint: the value of a property that may be a secret never comes into the instrument file; it travels in the
//! environment of `beamport up` ([`environment`]).

use crate::command::{Mistake, StartJob};
use crate::limits::{FLUSH_MIN, HOLD, LIVE_MAX, LIVE_MIN, NS_PER_MS};
use crate::options::WriterOptions;
use flow::Fault;
use flow::checked::{Checked as Answer, Level};
use kafka::wrong_topic;
use settings::units::{duration_text, size_text, time_text};
use settings::{Size, Time, shortened};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name of a job's instrument file.
pub const JOB_FILE: &str = "job.toml";
/// Name of its template.
pub const TEMPLATE_FILE: &str = "template.json";
/// Data folder of its streams, beside the instrument file.
pub const STREAMS_FOLDER: &str = "streams";

/// The result of a check of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Topics of the structure, each once, in the order of their names.
    pub topics: Vec<String>,
    /// Every mistake; a job with one is refused.
    pub mistakes: Vec<Mistake>,
    /// The parts of the structure that the file will not have exactly.
    pub warnings: Vec<Mistake>,
}

/// First offsets of a job, by topic and partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(pub BTreeMap<String, Vec<i64>>);

/// The texts of a job's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFiles<'a> {
    /// Of [`JOB_FILE`].
    pub job_toml: String,
    /// Of [`TEMPLATE_FILE`].
    pub template_json: &'a str,
}

/// Checks a job without a broker: the place of its file, its static file, its template by the program `nexus`.
///
/// # Errors
/// What keeps the writer from checking: its own fault, not that of the job.
pub fn check(job: &StartJob, options: &WriterOptions, nexus: &Path) -> Result<Checked, Fault> {
    let mut checked = Checked::default();
    checked.mistakes.extend(wrong_place(&options.hdf_output_prefix, &job.file_name)?);
    let static_file = match static_file(job, options) {
        Ok(path) => path,
        Err(mistake) => {
            checked.mistakes.push(mistake);
            None
        }
    };
    let answer = template(job.structure(), options, static_file.as_deref(), nexus)?;
    for one in answer.mistakes {
        let line = if one.line == 0 { String::new() } else { format!("line {}: ", one.line) };
        let pointer = if one.pointer.is_empty() { "nexus_structure".to_owned() } else { one.pointer };
        let mistake = Mistake::new(pointer, line + &one.cause, one.hint);
        match one.level {
            Level::Error => checked.mistakes.push(mistake),
            Level::Warning => checked.warnings.push(mistake),
        }
    }
    let mut topics = BTreeSet::new();
    for module in answer.modules {
        for topic in module.streams {
            match wrong_topic(&topic) {
                None => drop(topics.insert(topic)),
                Some(refused) => {
                    let pointer = format!("{}/{}", module.pointer, module.key);
                    checked.mistakes.push(Mistake::new(pointer, refused.cause, refused.hint));
                }
            }
        }
    }
    checked.topics = topics.into_iter().collect();
    let needed = LIVE_MIN * checked.topics.len() as u64;
    if needed > options.memory {
        let what = format!("the job needs {} of memory for its topics", size_text(Size(needed)));
        return Err(Fault::new(what, format!("--memory is {}", size_text(Size(options.memory)))).hint("raise --memory"));
    }
    Ok(checked)
}

/// Where the file of a job goes.
#[must_use]
pub fn output(job: &StartJob, options: &WriterOptions) -> PathBuf {
    options.hdf_output_prefix.join(&job.file_name)
}

/// Its name in answers, which has the prefix as it was typed; empty where the job names none.
#[cfg(any(feature = "client", test))]
pub(crate) fn answered_name(job: &StartJob, options: &WriterOptions) -> String {
    let path = options.answered_prefix.join(&job.file_name);
    if job.file_name.is_empty() { String::new() } else { path.display().to_string() }
}

/// A file must be new, in the prefix whatever links there are, and its folder must be writable.
pub(crate) fn wrong_place(prefix: &Path, name: &str) -> Result<Option<Mistake>, Fault> {
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|error| Fault::io(format!("cannot use the folder {}", path.display()), &error))
    };
    let prefix = real(prefix)?;
    let mut path = prefix.clone();
    let mut parts = name.split('/').peekable();
    while let Some(part) = parts.next() {
        path.push(part);
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(path.parent().and_then(read_only)),
            Err(error) => return Err(Fault::io(format!("cannot look at {}", path.display()), &error)),
        };
        let quoted = shortened(name);
        if parts.peek().is_none() {
            let hint = "name a new file: no file is ever written over";
            return Ok(Some(Mistake::new("filename", format!("`{quoted}` exists"), hint)));
        }
        if about.is_symlink() && !fs::canonicalize(&path).is_ok_and(|real| real.starts_with(&prefix)) {
            let cause = format!("`{quoted}` leaves the output prefix by a link");
            return Ok(Some(Mistake::new("filename", cause, "name a file in the output prefix")));
        }
        if !path.is_dir() {
            let cause = format!("`{quoted}` leads through a file");
            return Ok(Some(Mistake::new("filename", cause, "name a file in a folder")));
        }
    }
    Ok(None)
}

/// That files can be made in the output prefix: a writer that can make none takes no job from others.
#[cfg(any(feature = "client", test))]
pub(crate) fn check_prefix(prefix: &Path) -> Result<(), Fault> {
    let cause = match fs::metadata(prefix) {
        Err(error) => Some(error.to_string()),
        Ok(about) if !about.is_dir() => Some("it is not a folder".into()),
        Ok(_) => read_only(prefix).map(|mistake| mistake.what),
    };
    let fault = |cause| Fault::new(format!("cannot write files below {}", prefix.display()), cause);
    cause.map_or(Ok(()), |cause| {
        Err(fault(cause).hint("make the folder, writable for the user of the writer, or change --hdf-output-prefix"))
    })
}

/// Why no file can be made in a folder that is there. A job waits for room on its disk.
fn read_only(folder: &Path) -> Option<Mistake> {
    let probe = folder.join(format!(".beamport-{}", std::process::id()));
    let made = File::create_new(&probe);
    if made.is_ok() {
        let _ = fs::remove_file(&probe);
    }
    let error = made.err()?;
    let is_passing = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::AlreadyExists];
    (!is_passing.contains(&error.kind())).then(|| {
        let cause = format!("no file can be made in `{}`: {error}", folder.display());
        Mistake::new("filename", cause, "make the folder writable for the user of the writer")
    })
}

/// The static file of the job's instrument, if it names one.
fn static_file(job: &StartJob, options: &WriterOptions) -> Result<Option<PathBuf>, Mistake> {
    let name = &job.instrument;
    if name.is_empty() {
        return Ok(None);
    }
    let prefix = &options.hdf_template_prefix;
    let path = static_path(prefix, name);
    let wrong = |cause: String| Mistake::new("instrument_name", cause, "put the file there, or leave the name empty");
    let real = fs::canonicalize(&path).map_err(|error| wrong(format!("no static file {}: {error}", path.display())))?;
    let is_inside = fs::canonicalize(prefix).is_ok_and(|prefix| real.starts_with(prefix));
    if !is_inside {
        return Err(wrong(format!("{} leaves the template prefix by a link", path.display())));
    }
    match real.is_file() {
        true => Ok(Some(path)),
        false => Err(wrong(format!("{} is not a file", path.display()))),
    }
}

fn static_path(prefix: &Path, instrument: &str) -> PathBuf {
    prefix.join(instrument).join(format!("{instrument}.hdf"))
}

/// The answer of the program that reads templates.
fn template(
    structure: &str,
    options: &WriterOptions,
    static_file: Option<&Path>,
    nexus: &Path,
) -> Result<Answer, Fault> {
    const WHAT: &str = "cannot check the nexus_structure";
    // The program reads a file that has no name any more: a killed process leaves nothing behind.
    let path = options.data.join(format!(".check-{}-{:?}", std::process::id(), std::thread::current().id()));
    let stdin =
        fs::create_dir_all(&options.data).and_then(|()| fs::write(&path, structure)).and_then(|()| File::open(&path));
    let removed = fs::remove_file(&path);
    let stdin = stdin.and_then(|file| removed.map(|()| file)).map_err(|error| Fault::io(WHAT, &error))?;
    let mut command = Command::new(nexus);
    command.args(["check", "/dev/stdin", "--json", "--layout", "ess"]);
    if let Some(path) = static_file {
        command.arg("--static").arg(path);
    }
    // It has no use for them.
    for variable in options.kafka_config.iter().filter_map(|(_, value)| value.strip_prefix("env:")) {
        command.env_remove(variable);
    }
    let output = command.stdin(Stdio::from(stdin)).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Fault::io(format!("{WHAT}: {} does not run", nexus.display()), &error))?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let cause = format!("{} ended with {}: {error}", nexus.display(), output.status);
        Fault::new(WHAT, cause).hint("check whether the static file is damaged")
    })
}

/// The files of a job. Its topics are those of the pins. `passed_ms`: its stop, where that has passed and so cannot
/// move: a run without it would take history from behind the stop into the file until `end` comes.
#[must_use]
pub fn files<'a>(job: &'a StartJob, options: &WriterOptions, pins: &Pins, passed_ms: Option<i64>) -> JobFiles<'a> {
    let mut text = String::from("# Made by `beamport ess writer`. `beamport up` runs it, also by hand.\n\n");
    let count = pins.0.len().max(1) as u64;
    let live = size_text(Size((options.memory / count).clamp(LIVE_MIN, LIVE_MAX) & !(LIVE_MIN - 1)));
    let properties = properties(&options.kafka_config);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "instrument = \"job\"\ndata = {}\n", quoted(STREAMS_FOLDER));
    for (at, (topic, offsets)) in pins.0.iter().enumerate() {
        let start = offsets
            .iter()
            .enumerate()
            .map(|(partition, offset)| format!("{} = {offset}", quoted(&format!("{topic}/{partition}"))));
        let _ = writeln!(text, "[source.{}]\nkind = \"kafka\"\nlevel = \"memory\"", stream(at));
        let _ = writeln!(text, "when_full = \"wait\"\nlive = {}", quoted(&live));
        let _ = writeln!(text, "brokers = {}\ntopics = [{}]", quoted(&options.brokers), quoted(topic));
        let _ = writeln!(text, "start = {{ {} }}", start.collect::<Vec<_>>().join(", "));
        let _ = writeln!(text, "wait = {}", quoted(&duration_text(options.time_after_stop)));
        if !properties.is_empty() {
            let _ = writeln!(text, "properties = {{ {} }}", properties.join(", "));
        }
        text.push('\n');
    }
    text.push_str(&sink(job, options, pins));
    let start = time_text(Time(job.start_ms.saturating_mul(NS_PER_MS)));
    // The sources wait for late messages, and only as long as their partitions show no later ones.
    let _ = writeln!(text, "[run.{}]\nstart = {start}\nsettle = \"0 s\"", quoted(&job.job_id));
    // One of the very start is left to `end`: a section with it would be refused.
    if let Some(stop) = passed_ms.filter(|stop| *stop > job.start_ms) {
        let stop = time_text(Time(stop.saturating_mul(NS_PER_MS)));
        let _ = writeln!(text, "stop = {stop}\ninclusive = true");
    }
    JobFiles { job_toml: text, template_json: job.structure() }
}

fn sink(job: &StartJob, options: &WriterOptions, pins: &Pins) -> String {
    let output = output(job, options);
    let folder = output.parent().unwrap_or(&options.hdf_output_prefix).display().to_string();
    let file = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let inputs: Vec<String> = (0..pins.0.len()).map(|at| quoted(&stream(at))).collect();
    let names = pins.0.keys().enumerate().map(|(at, topic)| format!("{} = {}", stream(at), quoted(topic)));
    let topics = names.collect::<Vec<_>>().join(", ");
    let flush = duration_text(options.data_flush_interval.max(FLUSH_MIN));
    let mut text = String::from("[sink.file]\nkind = \"nexus\"\nlayout = \"ess\"\nwhole = true\n");
    let _ = writeln!(text, "inputs = [{}]\ntopics = {{ {topics} }}", inputs.join(", "));
    let _ = writeln!(text, "template = {}", quoted(TEMPLATE_FILE));
    if !job.instrument.is_empty() {
        let path = static_path(&options.hdf_template_prefix, &job.instrument);
        let _ = writeln!(text, "static = {}", quoted(&path.display().to_string()));
    }
    let _ = writeln!(text, "folder = {}\nfile = {}", quoted(&folder), quoted(&file));
    let _ = writeln!(text, "flush = {}\nhold = {}\n", quoted(&flush), quoted(&duration_text(HOLD)));
    text
}

/// Name of the stream of a topic.
fn stream(at: usize) -> String {
    format!("t{}", at + 1)
}

/// A text as TOML has it.
pub(crate) fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// Properties of the jobs' clients: the last value of each, without those that beamport sets itself.
fn given(config: &[(String, String)]) -> BTreeMap<&str, (usize, &str)> {
    let all = config.iter().enumerate();
    let ours = |name: &str| kafka::is_reserved(name);
    all.filter(|(_, (name, _))| !ours(name)).map(|(at, (name, value))| (name.as_str(), (at, value.as_str()))).collect()
}

/// The lines of a table `properties`.
pub(crate) fn properties(config: &[(String, String)]) -> Vec<String> {
    let one = |(name, (at, value)): (&str, (usize, &str))| {
        let value = match is_hidden(name, value) {
            true => format!("env:{}", variable(at)),
            false => value.to_owned(),
        };
        format!("{} = {}", quoted(name), quoted(&value))
    };
    given(config).into_iter().map(one).collect()
}

/// Variables of the environment that `beamport up` of a job needs: values of properties that may be secrets.
#[must_use]
pub fn environment(options: &WriterOptions) -> Vec<(String, String)> {
    environment_of(&options.kafka_config)
}

/// The same of any properties.
pub(crate) fn environment_of(config: &[(String, String)]) -> Vec<(String, String)> {
    let hidden = given(config).into_iter().filter(|(name, (_, value))| is_hidden(name, value));
    hidden.map(|(_, (at, value))| (variable(at), value.to_owned())).collect()
}

fn variable(at: usize) -> String {
    format!("BEAMPORT_KAFKA_{at}")
}

/// Whether a value must not be written down. One that names its place may.
fn is_hidden(name: &str, value: &str) -> bool {
    !value.starts_with("env:") && !value.starts_with("file:") && kafka::is_secret(name)
}

#[cfg(test)]
mod tests;
