//! Options of the file writer: those of `kafka-to-nexus`, by flag and by ini file, and two of our own; and what they
//! share with those of the forwarder (`forwarder`).
//!
//! A flag wins over the file, and every mistake is listed at once. A value of `-X` is never printed: some are secrets.

mod forwarder;
mod ini;

pub use forwarder::{FORWARDER_OPTIONS, ForwarderOptions, Place};

use crate::limits::{DURATION_MAX, MEMORY_MIN, VERBOSITY_MAX};
use flow::Fault;
use settings::units::{self, Refused};
use settings::{Size, nearest, shortened};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An option, as the command line and the reference page show it.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its long name, which is its key in the ini file too.
    pub name: &'static str,
    /// Its letter.
    pub short: Option<char>,
    /// The name of its value; empty: it takes none.
    pub value: &'static str,
    /// Its default; empty: none.
    pub default: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// It takes more than one value.
    pub many: bool,
    /// It has a meaning in the program of ESS and none here: why.
    unused: Option<&'static str>,
}

const fn opt(name: &'static str, value: &'static str, default: &'static str, about: &'static str) -> Opt {
    Opt { name, short: None, value, default, about, many: false, unused: None }
}

const fn unused(name: &'static str, value: &'static str, why: &'static str) -> Opt {
    Opt { unused: Some(why), ..opt(name, value, "", "Accepted for compatibility, without effect") }
}

/// Name of the option that names the ini file.
const CONFIG_FILE: &str = "config-file";

/// Every option of the file writer.
pub static OPTIONS: [Opt; 21] = [
    Opt { many: true, ..opt("brokers", "HOST:PORT,...", "", "Some brokers of the Kafka cluster (required)") },
    opt("command-status-topic", "TOPIC", "", "Topic of the status while idle, and of commands (required)"),
    opt("job-pool-topic", "TOPIC", "", "Topic from which the writers of a pool take jobs (required)"),
    opt("hdf-output-prefix", "DIR", "", "Folder of the files [default: the current folder]"),
    opt("hdf-template-prefix", "DIR", "", "Folder of the static files INSTR/INSTR.hdf [default: the current folder]"),
    opt("service-name", "NAME", "", "First part of the service id [default: the name of the host]"),
    opt("status-master-interval", "DURATION", "2s", "Time between two status messages; units are h, m, s and ms"),
    opt("time-before-start", "DURATION", "10s", "How long before the start of a job its last values are looked for"),
    opt(
        "time-after-stop",
        "DURATION",
        "10s",
        "How long a job waits after its stop for partitions that show no later message",
    ),
    opt("data-flush-interval", "DURATION", "1s", "How often a file on disk is updated"),
    opt("kafka-metadata-max-timeout", "DURATION", "10s", "How long an answer of the brokers about topics may take"),
    Opt {
        short: Some('X'),
        many: true,
        ..opt(
            "kafka-config",
            "KEY VALUE",
            "",
            "Properties of librdkafka; `env:NAME` and `file:PATH` name a secret's place",
        )
    },
    Opt {
        short: Some('v'),
        ..opt("verbosity", "LEVEL", "Warning", "Log level: Critical, Error, Warning, Info, Debug, Trace, or 0 to 6")
    },
    Opt { short: Some('c'), ..opt(CONFIG_FILE, "FILE", "", "ini file with any of these options; flags win over it") },
    opt("data", "DIR", "", "Folder of jobs and their streams [default: BEAMPORT_DATA, else ./beamport-data/writer]"),
    opt("memory", "SIZE", "1GiB", "Shared memory for the messages of each job"),
    unused("kafka-error-timeout", "DURATION", "brokers that are away are waited for, and the status says so"),
    unused("max-queued-writes", "NUMBER", "`--memory` bounds what a job keeps"),
    unused("kafka-poll-timeout", "DURATION", "messages are taken as they come"),
    unused("grafana-carbon-address", "HOST:PORT", "metrics stand in the status messages and in `beamport top`"),
    unused("metric-server-port", "PORT", "metrics stand in the status messages and in `beamport top`"),
];

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Errors.
    Error,
    /// And warnings.
    Warn,
    /// And what the writer does.
    Info,
    /// And how.
    Debug,
    /// And everything else.
    Trace,
}

/// Values of options as they were typed, by name.
pub type Given = BTreeMap<String, Vec<String>>;

/// The plan of the options.
#[derive(Clone, PartialEq, Eq)]
pub struct WriterOptions {
    /// The brokers, with commas between.
    pub brokers: String,
    /// Topic of the status while idle.
    pub command_status_topic: String,
    /// Topic of the jobs.
    pub job_pool_topic: String,
    /// Folder of the files.
    pub hdf_output_prefix: PathBuf,
    /// The same as it was typed: names of files in answers begin with it.
    pub answered_prefix: PathBuf,
    /// Folder of the static files.
    pub hdf_template_prefix: PathBuf,
    /// First part of the service id; empty: the name of the host.
    pub service_name: String,
    /// Time between two status messages.
    pub status_interval: Duration,
    /// How long before the start of a job its topics are read.
    pub time_before_start: Duration,
    /// How long a job waits for late messages.
    pub time_after_stop: Duration,
    /// How often a file on disk is updated.
    pub data_flush_interval: Duration,
    /// How long an answer of the brokers may take.
    pub metadata_timeout: Duration,
    /// Properties of librdkafka, in the order in which they were given; secrets among them.
    pub kafka_config: Vec<(String, String)>,
    /// How much is logged; `None`: what the environment says.
    pub level: Option<Level>,
    /// Folder of jobs and their streams.
    pub data: PathBuf,
    /// Bytes of shared memory of each job.
    pub memory: u64,
    /// Options without effect that were given.
    pub warnings: Vec<String>,
}

impl std::fmt::Debug for WriterOptions {
    /// Without the values of properties.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.kafka_config.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("WriterOptions").field("data", &self.data).field("kafka_config", &names).finish_non_exhaustive()
    }
}

impl WriterOptions {
    /// Reads what was typed, and the ini file that it names. Relative paths are those of the folder `here`.
    ///
    /// # Errors
    /// Every mistake.
    pub fn read(flags: &Given, here: &Path) -> Result<Self, Fault> {
        let mut read = Reading::new(&OPTIONS, "writer");
        if let Some(file) = flags.get(CONFIG_FILE).and_then(|values| values.last()) {
            read.file(&here.join(file), ini::read)?;
        }
        read.given.extend(flags.iter().map(|(name, values)| (name.clone(), values.clone())));
        read.options(here)
    }
}

/// Options while they are read.
struct Reading {
    table: &'static [Opt],
    /// The service, as it is typed behind `beamport ess`.
    verb: &'static str,
    given: Given,
    mistakes: Vec<String>,
    warnings: Vec<String>,
}

/// Entries of an ini file, and its mistakes.
type IniText = (Vec<ini::Entry>, Vec<String>);

impl Reading {
    fn new(table: &'static [Opt], verb: &'static str) -> Self {
        Self { table, verb, given: Given::new(), mistakes: Vec::new(), warnings: Vec::new() }
    }

    /// Reads an ini file.
    fn file(&mut self, path: &Path, read: fn(&str) -> IniText) -> Result<(), Fault> {
        let cannot = |cause| Fault::new(format!("cannot read {}", path.display()), cause).hint("name an ini file");
        let (entries, mistakes) = read(&ini::text_of(path).map_err(cannot)?);
        self.mistakes.extend(mistakes.into_iter().map(|mistake| format!("{}: {mistake}", path.display())));
        for (line, name, values) in entries {
            self.of_file(path, line, name, values);
        }
        Ok(())
    }

    /// An entry of the ini file. The last one of a name wins, as flags do; those of `-X` are joined.
    fn of_file(&mut self, path: &Path, line: usize, name: String, values: Vec<String>) {
        let place = format!("{}:{line}", path.display());
        let names = || self.table.iter().map(|option| option.name).filter(|name| *name != CONFIG_FILE);
        match self
            .table
            .iter()
            .find(|option| option.name == name || option.short.is_some_and(|s| name == s.to_string()))
        {
            Some(option) if option.name == CONFIG_FILE => {
                self.mistakes.push(format!("{place}: `{CONFIG_FILE}` cannot stand in an ini file; remove it"));
            }
            Some(option) if option.short == Some('X') => {
                self.given.entry(option.name.to_owned()).or_default().extend(values);
            }
            Some(option) if !option.many && values.len() > 1 => {
                self.mistakes.push(format!("{place}: `{name}` takes one value; put one with blanks in quotes"));
            }
            // Without a value it is as if it were not there.
            Some(_) if values.is_empty() => {}
            Some(option) => drop(self.given.insert(option.name.to_owned(), values)),
            None => {
                let hint = nearest(&name, names()).map_or_else(
                    || format!("`beamport ess {} --help` lists the options", self.verb),
                    |near| format!("did you mean `{near}`?"),
                );
                self.mistakes.push(format!("{place}: unknown option `{}`; {hint}", shortened(&name)));
            }
        }
    }

    /// The last value of an option; its default.
    fn text(&self, name: &str) -> Option<String> {
        let option = self.table.iter().find(|option| option.name == name)?;
        let default = Some(option.default).filter(|text| !text.is_empty()).map(str::to_owned);
        self.given.get(name).and_then(|values| values.last()).cloned().or(default)
    }

    fn refuse(&mut self, name: &str, refused: &Refused) {
        self.mistakes.push(format!("--{name}: {refused}"));
    }

    /// A value that must be there, and of a form.
    fn value<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, Refused>) -> Option<T> {
        let Some(text) = self.text(name) else {
            self.mistakes.push(format!("--{name} is missing; add it, or a line `{name}=...` in the ini file"));
            return None;
        };
        read(&text).map_err(|refused| self.refuse(name, &refused)).ok()
    }

    fn duration(&mut self, name: &str) -> Duration {
        self.value(name, duration).unwrap_or_default()
    }

    fn topic(&mut self, name: &str) -> String {
        self.value(name, |text| kafka::wrong_topic(text).map_or_else(|| Ok(text.to_owned()), Err)).unwrap_or_default()
    }

    fn folder(&mut self, name: &str, here: &Path, default: impl FnOnce() -> PathBuf) -> PathBuf {
        let folder = here.join(self.text(name).filter(|text| !text.is_empty()).map_or_else(default, PathBuf::from));
        // It comes into an instrument file and into answers.
        if folder.to_str().is_none() {
            self.mistakes.push(format!("--{name}: {} is not UTF-8; name another folder", folder.display()));
        }
        folder
    }

    fn brokers(&mut self) -> String {
        let all = self.given.get("brokers").map(|values| values.join(",")).unwrap_or_default();
        let brokers: Vec<&str> = all.split(',').map(str::trim).filter(|broker| !broker.is_empty()).collect();
        if brokers.is_empty() {
            self.mistakes.push("--brokers is missing; add `--brokers HOST:9092`".into());
        }
        let brokers = brokers.join(",");
        if let Some(refused) = kafka::wrong_brokers(&brokers) {
            let hint = "write `--brokers HOST:9092`, with a comma between two";
            self.refuse("brokers", &Refused::new(refused.cause, hint));
        }
        brokers
    }

    fn kafka_config(&mut self, here: &Path) -> Vec<(String, String)> {
        let words = self.given.remove("kafka-config").unwrap_or_default();
        if words.len() % 2 == 1 {
            self.mistakes.push("--kafka-config: the last key has no value; write `-X KEY VALUE KEY VALUE`".into());
        }
        let place = |value: &str| match value.strip_prefix("file:") {
            Some(path) => format!("file:{}", here.join(path).display()),
            None => value.to_owned(),
        };
        if words.chunks_exact(2).any(|pair| pair[0] == "transactional.id") {
            self.mistakes.push("--kafka-config: `transactional.id` cannot be used: answers are no transactions".into());
        }
        for name in words.chunks_exact(2).map(|pair| &pair[0]).filter(|name| kafka::is_reserved(name)) {
            let instead = match name.as_str() {
                "bootstrap.servers" | "metadata.broker.list" => "the brokers are those of `--brokers`",
                _ => "beamport sets this property itself",
            };
            self.warnings.push(format!("`-X {name}` has no effect: {instead}"));
        }
        words.chunks_exact(2).map(|pair| (pair[0].clone(), place(&pair[1]))).collect()
    }

    /// Warns of options without effect.
    fn warn_of_unused(&mut self) {
        for option in self.table.iter().filter(|option| self.given.contains_key(option.name)) {
            if let Some(why) = option.unused {
                self.warnings.push(format!("`--{}` has no effect: {why}", option.name));
            }
        }
    }

    fn level(&mut self) -> Option<Level> {
        if self.given.contains_key("verbosity") { self.value("verbosity", level) } else { None }
    }

    /// The data folder.
    fn data(&mut self, here: &Path) -> PathBuf {
        let default = Path::new("beamport-data").join(self.verb);
        self.folder("data", here, || {
            std::env::var_os("BEAMPORT_DATA").filter(|value| !value.is_empty()).map_or(default, Into::into)
        })
    }

    /// The options, unless there was a mistake.
    fn checked<T>(self, options: T) -> Result<T, Fault> {
        if self.mistakes.is_empty() {
            return Ok(options);
        }
        let verb = self.verb;
        Err(Fault::new(format!("wrong options of `beamport ess {verb}`"), self.mistakes.join("\n  "))
            .hint(format!("`beamport ess {verb} --help` lists the options")))
    }

    fn options(mut self, here: &Path) -> Result<WriterOptions, Fault> {
        self.warn_of_unused();
        let level = self.level();
        let options = WriterOptions {
            brokers: self.brokers(),
            command_status_topic: self.topic("command-status-topic"),
            job_pool_topic: self.topic("job-pool-topic"),
            hdf_output_prefix: self.folder("hdf-output-prefix", here, PathBuf::new),
            answered_prefix: self.text("hdf-output-prefix").unwrap_or_default().into(),
            hdf_template_prefix: self.folder("hdf-template-prefix", here, PathBuf::new),
            service_name: self.text("service-name").unwrap_or_default(),
            status_interval: self.duration("status-master-interval"),
            time_before_start: self.duration("time-before-start"),
            time_after_stop: self.duration("time-after-stop"),
            data_flush_interval: self.duration("data-flush-interval"),
            metadata_timeout: self.duration("kafka-metadata-max-timeout"),
            kafka_config: self.kafka_config(here),
            level,
            data: self.data(here),
            memory: self.value("memory", memory).unwrap_or(MEMORY_MIN),
            warnings: std::mem::take(&mut self.warnings),
        };
        self.checked(options)
    }
}

/// A duration as `kafka-to-nexus` takes it: `10s`, `1.5 min`, `500ms`; seconds without a unit.
fn duration(text: &str) -> Result<Duration, Refused> {
    const UNITS: [(&str, f64); 7] =
        [("ms", 1e-3), ("sec", 1.0), ("s", 1.0), ("", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0)];
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let refuse = |cause: &str| Refused::new(format!("`{}` {cause}", shortened(text)), "write a duration like `10s`");
    let factor = UNITS.iter().find(|(known, _)| *known == unit).map(|(_, factor)| factor);
    let seconds = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    match seconds.map(Duration::try_from_secs_f64) {
        Some(Ok(duration)) if duration <= DURATION_MAX => Ok(duration),
        Some(_) => Err(refuse("is longer than a day")),
        None => Err(refuse("is not a duration; units are h, m, s and ms")),
    }
}

fn memory(text: &str) -> Result<u64, Refused> {
    let size = units::size(text)?;
    match size.0 >= MEMORY_MIN {
        true => Ok(size.0),
        false => Err(Refused::new("it is too little", format!("at least {}", units::size_text(Size(MEMORY_MIN))))),
    }
}

fn level(text: &str) -> Result<Level, Refused> {
    const WORDS: [(&str, Level); 6] = [
        ("critical", Level::Error),
        ("error", Level::Error),
        ("warning", Level::Warn),
        ("info", Level::Info),
        ("debug", Level::Debug),
        ("trace", Level::Trace),
    ];
    let word = text.to_ascii_lowercase();
    if let Some((_, level)) = WORDS.iter().find(|(known, _)| *known == word) {
        return Ok(*level);
    }
    match word.parse::<u8>() {
        Ok(digit) if digit <= VERBOSITY_MAX => Ok(WORDS[usize::from(digit).min(WORDS.len() - 1)].1),
        _ => Err(settings::unknown_word(text, WORDS.iter().map(|(word, _)| *word))),
    }
}

#[cfg(test)]
mod tests;
