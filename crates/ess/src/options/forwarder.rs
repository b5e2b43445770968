//! Options of the forwarder: those of the ESS forwarder, by flag, environment and ini file, and `--data`.
//!
//! A flag wins over the environment, and that over the file. Passwords are never printed.

use super::{CONFIG_FILE, Given, Level, Opt, Reading, ini, opt, unused};
use crate::limits::{DURATION_MAX, FAKE_PERIOD_MIN, REPEAT_MIN};
use flow::Fault;
use kafka::{wrong_brokers, wrong_topic};
use settings::shortened;
use settings::units::{Refused, duration_text};
use std::path::{Path, PathBuf};
use std::time::Duration;

const fn flag(name: &'static str, short: char, about: &'static str) -> Opt {
    Opt { short: Some(short), ..opt(name, "", "", about) }
}

const PASSWORD: &str = "Its password; `env:NAME` and `file:PATH` name its place";

/// Every option of the forwarder.
pub static FORWARDER_OPTIONS: [Opt; 20] = [
    opt("config-topic", "URI", "", "Topic of commands: [PROTOCOL+MECHANISM\\USER@]HOST[:PORT],.../TOPIC (required)"),
    opt("config-topic-sasl-password", "TEXT", "", PASSWORD),
    opt("status-topic", "URI", "", "Topic of the status, in the same form (required)"),
    opt("status-topic-sasl-password", "TEXT", "", PASSWORD),
    opt("output-broker", "URI", "", "Brokers that get the values, in the same form without a topic (required)"),
    opt("output-broker-sasl-password", "TEXT", "", PASSWORD),
    opt("storage-topic", "URI", "", "Topic that keeps the streams, in the same form"),
    opt("storage-topic-sasl-password", "TEXT", "", PASSWORD),
    opt("ssl-ca-cert-file", "FILE", "", "Certificates of the authority that signs those of the brokers"),
    flag("skip-retrieval", 's', "Begin without streams, and behind the newest command"),
    opt(
        "pv-update-period",
        "MS",
        "",
        "Time after which the last value of a periodic stream is sent again, at least 1000",
    ),
    opt("service-id", "NAME", "", "Id in the status [default: the number of the process]"),
    Opt {
        short: Some('v'),
        ..opt("verbosity", "LEVEL", "Warning", "Log level: Critical, Error, Warning, Info, Debug, Trace, or 0 to 6")
    },
    opt("log-file", "FILE", "", "File to which the log is appended [default: stderr]"),
    Opt {
        short: Some('c'),
        ..opt(CONFIG_FILE, "FILE", "", "ini file with any of these options; flags and environment win")
    },
    opt("data", "DIR", "", "Folder of the streams [default: BEAMPORT_DATA, else ./beamport-data/forwarder]"),
    opt("fake-pv-period", "MS", "1000", "Time between two values of a simulated PV"),
    unused("grafana-carbon-address", "HOST:PORT", "metrics are in the status messages and in `beamport top`"),
    unused("statistics-update-interval", "SECONDS", "metrics are in the status messages and in `beamport top`"),
    unused("graylog-logger-address", "HOST:PORT", "the log is written to stderr, or to `--log-file`"),
];

/// Brokers, and a topic there.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The brokers, with commas between.
    pub brokers: String,
    /// The topic; empty where there is none.
    pub topic: String,
    /// Properties of librdkafka, a password among them.
    pub properties: Vec<(String, String)>,
}

impl std::fmt::Debug for Place {
    /// Without the values of properties.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("brokers", &self.brokers).field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// The plan of the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwarderOptions {
    /// Topic of commands.
    pub config: Place,
    /// Topic of the status.
    pub status: Place,
    /// Brokers that get the values.
    pub output: Place,
    /// Topic that keeps the streams.
    pub storage: Option<Place>,
    /// Whether it begins without streams.
    pub skip_retrieval: bool,
    /// When the last value of a periodic stream is sent again.
    pub repeat: Option<Duration>,
    /// Time between two values of a simulated PV; `None`: that of the source.
    pub fake_period: Option<Duration>,
    /// Id in the status; empty: the number of the process.
    pub service_id: String,
    /// How much is logged; `None`: what the environment says.
    pub level: Option<Level>,
    /// Where to.
    pub log_file: Option<PathBuf>,
    /// Folder of the streams.
    pub data: PathBuf,
    /// Options without effect that were given.
    pub warnings: Vec<String>,
}

impl ForwarderOptions {
    /// Reads what was typed, the environment, and the ini file that they name. Relative paths are those of the folder
    /// `here`.
    ///
    /// # Errors
    /// Every mistake.
    pub fn read(flags: &Given, environment: &dyn Fn(&str) -> Option<String>, here: &Path) -> Result<Self, Fault> {
        let mut given = Given::new();
        for option in FORWARDER_OPTIONS.iter().filter(|option| option.name != "data") {
            let variable = option.name.replace('-', "_").to_ascii_uppercase();
            if let Some(value) = environment(&variable).filter(|value| !value.is_empty()) {
                given.insert(option.name.to_owned(), vec![value]);
            }
        }
        given.extend(flags.iter().map(|(name, values)| (name.clone(), values.clone())));
        let mut read = Reading::new(&FORWARDER_OPTIONS, "forwarder");
        if let Some(file) = given.get(CONFIG_FILE).and_then(|values| values.last()) {
            read.file(&here.join(file), ini::read_loose)?;
        }
        read.given.extend(given);
        read.warn_of_unused();
        let output = read.place("output-broker", false, here);
        let options = Self {
            config: read.place("config-topic", true, here),
            status: read.place("status-topic", true, here),
            output,
            storage: read.text("storage-topic").is_some().then(|| read.place("storage-topic", true, here)),
            skip_retrieval: read.flag("skip-retrieval"),
            repeat: read.repeat(),
            fake_period: read.fake_period(),
            service_id: read.text("service-id").unwrap_or_default(),
            level: read.level(),
            log_file: read.text("log-file").map(|file| here.join(file)),
            data: read.data(here),
            warnings: std::mem::take(&mut read.warnings),
        };
        read.checked(options)
    }
}

impl Reading {
    fn flag(&mut self, name: &str) -> bool {
        match self.text(name).as_deref().map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "no" | "off" | "0") => false,
            Some("true" | "yes" | "on" | "1") => true,
            Some(_) => {
                self.mistakes.push(format!("--{name} is neither true nor false; write the flag alone"));
                false
            }
        }
    }

    fn place(&mut self, name: &str, has_topic: bool, here: &Path) -> Place {
        let certificates = self.text("ssl-ca-cert-file").map(|file| here.join(file).display().to_string());
        let password =
            self.text(&format!("{name}-sasl-password")).map(|password| match password.strip_prefix("file:") {
                Some(path) => format!("file:{}", here.join(path).display()),
                None => password,
            });
        let place = self.value(name, |uri| place(uri, has_topic, password.as_deref()));
        let mut place = place.unwrap_or_default();
        place.properties.extend(certificates.map(|file| ("ssl.ca.location".to_owned(), file)));
        place
    }

    fn fake_period(&mut self) -> Option<Duration> {
        self.text("fake-pv-period")?;
        let period = self.value("fake-pv-period", milliseconds)?;
        if period < FAKE_PERIOD_MIN {
            let least = duration_text(FAKE_PERIOD_MIN);
            self.warnings.push(format!("`--fake-pv-period`: simulated PVs change once in {least}, not more often"));
        }
        Some(period.max(FAKE_PERIOD_MIN))
    }

    fn repeat(&mut self) -> Option<Duration> {
        self.text("pv-update-period")?;
        let period = self.value("pv-update-period", milliseconds)?;
        if period.is_zero() {
            return None;
        }
        if period < REPEAT_MIN {
            let least = duration_text(REPEAT_MIN);
            self.warnings.push(format!("`--pv-update-period`: values are sent again after {least}, not sooner"));
        }
        Some(period.max(REPEAT_MIN))
    }
}

fn milliseconds(text: &str) -> Result<Duration, Refused> {
    let refused = || Refused::new(format!("`{}` is not a number of milliseconds", shortened(text)), "write `10000`");
    let time = text.trim().parse().map(Duration::from_millis).map_err(|_| refused())?;
    if time > DURATION_MAX {
        return Err(Refused::new(format!("`{}` ms are longer than a day", shortened(text)), "give it in milliseconds"));
    }
    Ok(time)
}

const FORM: &str =
    "write `[PROTOCOL+MECHANISM\\USER@]HOST:PORT/TOPIC`, like `SASL_SSL+SCRAM-SHA-512\\user@kafka:9092/topic`";

/// Reads `PROTOCOL+MECHANISM\user@host:port,host:port/topic`. No text of an error has a password.
fn place(uri: &str, has_topic: bool, password: Option<&str>) -> Result<Place, Refused> {
    let (security, rest) = uri.split_once('\\').map_or((None, uri), |(security, rest)| (Some(security), rest));
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (brokers, topic) = rest.split_once('/').map_or((rest, ""), |(brokers, topic)| (brokers, topic));
    if brokers.is_empty() {
        return Err(Refused::new(format!("`{}` names no broker", shortened(uri)), FORM));
    }
    if let Some(refused) = wrong_brokers(brokers) {
        return Err(Refused::new(refused.cause, FORM));
    }
    match (has_topic, topic) {
        (true, "") => return Err(Refused::new(format!("`{}` names no topic", shortened(uri)), FORM)),
        (true, topic) => wrong_topic(topic).map_or(Ok(()), Err)?,
        // Values go to the topics of their streams.
        (false, _) => {}
    }
    let properties = match (security, user) {
        (None, None) => Vec::new(),
        (None, Some(_)) => {
            return Err(Refused::new(format!("`{}` has a user and no mechanism", shortened(uri)), FORM));
        }
        (Some(security), user) => security_of(security, user.unwrap_or_default(), password)?,
    };
    let topic = if has_topic { topic } else { "" };
    Ok(Place { brokers: brokers.to_owned(), topic: topic.to_owned(), properties })
}

/// The properties of `PROTOCOL+MECHANISM`, or of a mechanism alone.
fn security_of(text: &str, user: &str, password: Option<&str>) -> Result<Vec<(String, String)>, Refused> {
    const PROTOCOLS: [&str; 2] = ["SASL_PLAINTEXT", "SASL_SSL"];
    const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
    let (protocol, mechanism) = text.split_once('+').unwrap_or((PROTOCOLS[0], text));
    for (word, known) in [(protocol, &PROTOCOLS[..]), (mechanism, &MECHANISMS[..])] {
        if !known.contains(&word) {
            return Err(settings::unknown_word(word, known.iter().copied()));
        }
    }
    let Some(password) = password.filter(|_| !user.is_empty()) else {
        let hint = "name a user in the address, and give the password by the option of that name";
        return Err(Refused::new(format!("{mechanism} needs a user and a password"), hint));
    };
    let properties = [
        ("security.protocol", protocol),
        ("sasl.mechanism", mechanism),
        ("sasl.username", user),
        ("sasl.password", password),
    ];
    Ok(properties.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flags: &[(&str, &str)], environment: &[(&str, &str)]) -> Result<ForwarderOptions, Fault> {
        let given = flags.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect();
        let variable = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        ForwarderOptions::read(&given, &variable, &std::env::temp_dir())
    }

    const NEEDED: [(&str, &str); 3] = [
        ("config-topic", "one:9092/commands"),
        ("status-topic", "one:9092/status"),
        ("output-broker", "two,three:9093"),
    ];

    fn with(more: &[(&str, &str)]) -> Result<ForwarderOptions, Fault> {
        read(&[&NEEDED[..], more].concat(), &[])
    }

    #[test]
    fn what_is_needed_is_enough() {
        let options = with(&[]).unwrap();
        assert_eq!((options.config.brokers.as_str(), options.config.topic.as_str()), ("one:9092", "commands"));
        assert_eq!((options.output.brokers.as_str(), options.output.topic.as_str()), ("two,three:9093", ""));
        assert_eq!((options.storage, options.skip_retrieval, options.repeat), (None, false, None));
        assert_eq!((options.warnings.len(), options.level), (0, None));
    }

    #[test]
    fn an_address_has_protocol_mechanism_and_user() {
        let uri = r"SASL_SSL+SCRAM-SHA-512\ad@min@one:9092,two:9092/commands";
        let more = [("config-topic", uri), ("config-topic-sasl-password", "hunter2"), ("ssl-ca-cert-file", "/ca.pem")];
        let options = with(&more).unwrap();
        assert_eq!((options.config.brokers.as_str(), options.config.topic.as_str()), ("one:9092,two:9092", "commands"));
        let pairs: Vec<_> =
            options.config.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "ad@min"),
            ("sasl.password", "hunter2"),
            ("ssl.ca.location", "/ca.pem"),
        ];
        assert_eq!(pairs, expected);
        assert!(!format!("{options:?}").contains("hunter2"));
        // As older versions have it.
        let options = with(&[("output-broker", r"PLAIN\me@one"), ("output-broker-sasl-password", "env:P")]).unwrap();
        assert_eq!(options.output.properties[0].1, "SASL_PLAINTEXT");
    }

    #[test]
    fn each_mistake_of_an_address_is_named_without_the_password() {
        for (uri, part) in [
            ("/commands", "names no broker"),
            ("one:9092", "names no topic"),
            ("one:port/commands", "is not an address"),
            ("one:9092/a/b", "is not a topic name"),
            ("me@one:9092/commands", "has a user and no mechanism"),
            (r"SASL_SSL+PLAIN\one:9092/commands", "needs a user and a password"),
            (r"SASL_SSL+MD5\me@one:9092/commands", "unknown word `MD5`"),
            (r"SSL+PLAIN\me@one:9092/commands", "unknown word `SSL`"),
        ] {
            let fault = with(&[("config-topic", uri), ("config-topic-sasl-password", "hunter2")]).unwrap_err();
            let text = fault.to_string();
            assert!(
                text.contains(part) && text.contains("--config-topic") && !text.contains("hunter2"),
                "{uri}: {text}"
            );
        }
        let text = read(&[("verbosity", "Loud"), ("pv-update-period", "soon")], &[]).unwrap_err().to_string();
        let parts = ["--config-topic is missing", "--status-topic is", "--output-broker is", "Loud", "`soon`"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let path = std::env::temp_dir().join(format!("beamport-forwarder-{}.ini", std::process::id()));
        let text = "[default]\n# all\nconfig-topic = \"file:9092/commands\"\nstatus-topic: file:9092/status ; here\n\
                    output-broker file:9092\nskip-retrieval\n--service-id = 'a b'\npv-update-period=5000\n";
        std::fs::write(&path, text).unwrap();
        let file = path.display().to_string();
        let environment = [("CONFIG_FILE", file.as_str()), ("STATUS_TOPIC", "env:9092/status"), ("SERVICE_ID", "env")];
        let options = read(&[("service-id", "flag")], &environment).unwrap();
        assert_eq!((options.config.brokers.as_str(), options.status.brokers.as_str()), ("file:9092", "env:9092"));
        assert_eq!((options.service_id.as_str(), options.skip_retrieval), ("flag", true));
        assert_eq!(options.repeat, Some(Duration::from_secs(5)));
        assert_eq!(read(&[], &environment[..2]).unwrap().service_id, "a b");
        std::fs::write(&path, format!("{text}storage-topics=x\n")).unwrap();
        let fault = read(&[], &environment).unwrap_err().to_string();
        assert!(fault.contains(":9: unknown option `storage-topics`; did you mean `storage-topic`?"), "{fault}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_option_without_effect_is_one_warning() {
        let more = [("grafana-carbon-address", "a:2003"), ("graylog-logger-address", "a:1")];
        assert_eq!(with(&more).unwrap().warnings.len(), 2);
        let options = with(&[("pv-update-period", "100")]).unwrap();
        assert_eq!((options.repeat, options.warnings.len()), (Some(REPEAT_MIN), 1));
        assert_eq!(with(&[("pv-update-period", "0")]).unwrap().repeat, None);
        let options = with(&[("fake-pv-period", "0")]).unwrap();
        assert_eq!((options.fake_period, options.warnings.len()), (Some(FAKE_PERIOD_MIN), 1));
        let options = with(&[("fake-pv-period", "250")]).unwrap();
        assert_eq!((options.fake_period, options.warnings.len()), (Some(Duration::from_millis(250)), 0));
    }
}
