//! Properties of librdkafka in a section: their names, and values that stand elsewhere (`env:NAME`, `file:PATH`).
//!
//! Constraint: what stands elsewhere, or is a secret, never comes into an error, a log or what `check --show` prints. A
//! secret in the instrument file itself is refused, because the file is copied and kept.

use settings::{Refused, Section, noun, shortened};
use std::path::PathBuf;
use toml_edit::Item;

/// Names that a section does not set, and what stands in their place.
pub(crate) type Ours = [(&'static str, &'static str)];

/// What the section of a source or beamport itself says: `brokers`, `start`, and that offsets are kept beside the
/// stream.
pub(crate) const SOURCE: [(&str, &str); 10] = [
    ("bootstrap.servers", "write `brokers`"),
    ("metadata.broker.list", "write `brokers`"),
    ("auto.offset.reset", "write `start`"),
    ("enable.partition.eof", "the source needs it"),
    ("group.id", "offsets are kept beside the stream, without a group"),
    ("group.instance.id", "offsets are kept beside the stream, without a group"),
    ("enable.auto.commit", "offsets are kept beside the stream"),
    ("enable.auto.offset.store", "offsets are kept beside the stream"),
    ("statistics.interval.ms", "`beamport top` shows the source"),
    ("plugin.library.paths", "no code is loaded into the mover"),
];

/// The same of a sink: each message reaches its partition once and in order, however long that takes.
pub(crate) const SINK: [(&str, &str); 14] = [
    ("bootstrap.servers", "write `brokers`"),
    ("metadata.broker.list", "write `brokers`"),
    ("enable.idempotence", "the sink is idempotent"),
    ("acks", "all replicas acknowledge"),
    ("request.required.acks", "all replicas acknowledge"),
    ("message.timeout.ms", "the sink sends until it is acknowledged"),
    ("delivery.timeout.ms", "the sink sends until it is acknowledged"),
    ("retries", "the sink sends until it is acknowledged"),
    ("message.send.max.retries", "the sink sends until it is acknowledged"),
    ("transactional.id", "the sink has no transactions"),
    ("delivery.report.only.error", "the sink needs all reports"),
    ("enable.partition.eof", "the sink needs it"),
    ("statistics.interval.ms", "`beamport top` shows the sink"),
    ("plugin.library.paths", "no code is loaded into the mover"),
];

/// The same of `[hosts]`, whose properties are those of clients that send and of clients that read.
pub(crate) const CARRIER: [(&str, &str); 12] = [
    ("bootstrap.servers", "write `brokers`"),
    ("metadata.broker.list", "write `brokers`"),
    ("enable.idempotence", "hosts send each message once"),
    ("acks", "all replicas acknowledge"),
    ("request.required.acks", "all replicas acknowledge"),
    ("message.timeout.ms", "hosts send until it is acknowledged"),
    ("delivery.timeout.ms", "hosts send until it is acknowledged"),
    ("transactional.id", "it is made of the names of the instrument and the host"),
    ("group.id", "offsets are kept beside the mirror, without a group"),
    ("enable.partition.eof", "hosts need it"),
    ("statistics.interval.ms", "`beamport top` shows the hosts"),
    ("plugin.library.paths", "no code is loaded into the mover"),
];

/// Parts of the names of properties whose values are secrets, those of later versions too.
const SECRETS: [&str; 6] = ["password", "passphrase", "secret", "key.pem", "oauthbearer.config", "jaas"];

/// In the place of a text that may hold a secret.
#[cfg(feature = "client")]
pub(crate) const NOT_TAKEN: &str = "librdkafka does not take its value";
/// Where names and values of properties are found.
#[cfg(feature = "client")]
pub(crate) const NAMES: &str = "the properties are those of librdkafka: its CONFIGURATION.md lists them";

/// Whether beamport sets a property of a source itself.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    SOURCE.iter().any(|(ours, _)| *ours == name)
}

/// Whether the value of a property is a secret, which must stand elsewhere.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    SECRETS.iter().any(|part| name.contains(part))
}

/// One property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    /// Its name in librdkafka.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: Value,
    /// Its line in the instrument file.
    pub(crate) line: u32,
}

/// Where the value of a property stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// In the instrument file.
    Text(String),
    /// In a variable of the environment.
    Env(String),
    /// In a file, whose last line end does not count.
    File(PathBuf),
}

#[cfg(feature = "client")]
impl Value {
    fn resolve(&self) -> Result<String, String> {
        let plain = match self {
            Self::Text(text) => return Ok(text.clone()),
            Self::Env(name) => std::env::var(name).map_err(|e| format!("environment variable `{name}`: {e}"))?,
            Self::File(path) => std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?,
        };
        let value = plain.strip_suffix('\n').map_or(plain.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
        if value.contains('\0') {
            return Err("the value holds a zero byte".into());
        }
        Ok(value.to_owned())
    }
}

/// The value that a text names: what `env:NAME` or `file:PATH` holds, otherwise itself.
#[cfg(feature = "client")]
pub(crate) fn resolve(text: &str) -> Result<String, String> {
    let value = match (text.strip_prefix("env:"), text.strip_prefix("file:")) {
        (Some(name), _) if name.is_empty() || name.contains(['=', '\0']) => {
            return Err("`env:` names no variable".into());
        }
        (Some(name), _) => Value::Env(name.to_owned()),
        (None, Some(path)) => Value::File(path.into()),
        (None, None) => Value::Text(text.to_owned()),
    };
    value.resolve()
}

impl Property {
    /// The value; otherwise why it cannot be read.
    #[cfg(feature = "client")]
    pub(crate) fn resolve(&self) -> Result<String, String> {
        self.value.resolve()
    }

    /// The value may stand in an error.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.value, Value::Text(_)) && !is_secret(&self.name)
    }
}

/// Variables of the environment that properties name.
pub(crate) fn variables(properties: &[Property]) -> Vec<String> {
    let name = |property: &Property| match &property.value {
        Value::Env(name) => Some(name.clone()),
        _ => None,
    };
    properties.iter().filter_map(name).collect()
}

/// Reads the entries of the table `properties` and notes every mistake.
pub(crate) fn read(section: &mut Section<'_>, ours: &Ours) -> Vec<Property> {
    let mut properties = Vec::new();
    let rows: Vec<(String, u32, Item)> =
        section.table.iter().map(|(name, item)| (name.to_owned(), section.line_of(name), item.clone())).collect();
    for (name, line, item) in rows {
        let read = one(section, ours, &name, &item).and_then(|value| {
            let property = Property { name: name.clone(), value, line };
            is_known(&property).map(|()| property)
        });
        match read {
            Ok(property) => properties.push(property),
            Err(refused) => {
                let what = format!("wrong property `{}` in {}", shortened(&name), section.title);
                section.mistake(line, what, refused.cause, refused.hint);
            }
        }
    }
    properties
}

fn one(section: &Section<'_>, ours: &Ours, name: &str, item: &Item) -> Result<Value, Refused> {
    if let Some((_, instead)) = ours.iter().find(|(known, _)| *known == name) {
        return Err(Refused::new("beamport sets it itself", *instead));
    }
    let number = item.as_integer().map(|n| n.to_string()).or_else(|| item.as_float().map(|n| n.to_string()));
    let text = match (item.as_str(), item.as_bool()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(word)) => word.to_string(),
        (None, None) => {
            let refused = || Refused::new(format!("it is {}, not a text", noun(item)), "write it in quotes");
            number.ok_or_else(refused)?
        }
    };
    if text.contains('\0') {
        return Err(Refused::new("it holds a zero byte", "write printable characters only"));
    }
    let empty =
        |what: &str| Refused::new(format!("no {what} stands behind the colon"), "write \"env:NAME\" or \"file:PATH\"");
    match (text.strip_prefix("env:"), text.strip_prefix("file:")) {
        (Some(""), _) => Err(empty("name")),
        (Some(variable), _) if variable.contains('=') => Err(Refused::new("a name of a variable holds no `=`", "")),
        (Some(variable), _) => Ok(Value::Env(variable.to_owned())),
        (None, Some("")) => Err(empty("path")),
        (None, Some(path)) => Ok(Value::File(section.folder.join(path))),
        (None, None) if is_secret(name) => Err(Refused::new(
            "it is a secret, and instrument files are shown and kept",
            format!("write `\"{name}\" = \"env:NAME\"`, or \"file:PATH\" with a file that only you can read"),
        )),
        (None, None) => Ok(Value::Text(text)),
    }
}

/// Whether librdkafka knows the property, and its value where that stands in the instrument file.
#[cfg(feature = "client")]
fn is_known(property: &Property) -> Result<(), Refused> {
    let text = match &property.value {
        Value::Text(text) => Some(text.as_str()),
        _ => None,
    };
    crate::librdkafka::is_property(&property.name, text).map_err(|cause| Refused::new(cause, NAMES))
}

#[cfg(not(feature = "client"))]
fn is_known(property: &Property) -> Result<(), Refused> {
    let _ = property.is_open();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of librdkafka that are secret, and some beside them that are not.
    #[test]
    fn the_second_name_of_a_secret_was_none() {
        for name in [
            "sasl.password",
            "sasl.jaas.config",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl.keystore.password",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "sasl.username",
            "ssl.key.location",
            "ssl.ca.pem",
            "ssl.certificate.pem",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.oauthbearer.assertion.private.key.file",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
