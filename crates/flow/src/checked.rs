//! The answer of `beamport-nexus check --json`: the mistakes of a template, and its modules that read streams.
//!
//! Both programs use these types, so that only one of them parses templates. The modules are listed even if the
//! template has mistakes, as far as it is valid JSON.

use serde::{Deserialize, Serialize};
pub use settings::Severity as Level;

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Mistakes and warnings.
    pub mistakes: Vec<Mistake>,
    /// Modules in the order of the text.
    pub modules: Vec<StreamModule>,
}

/// One mistake in a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mistake {
    /// Whether a file can be written all the same.
    pub level: Level,
    /// Line, from 1, of text that is not valid JSON; 0 elsewhere.
    pub line: u32,
    /// Place: a JSON pointer (RFC 6901), empty for the whole text.
    pub pointer: String,
    /// The mistake.
    pub cause: String,
    /// The remedy; of a warning, how the program proceeds: "the last one is used".
    pub hint: String,
}

impl Mistake {
    /// Place and cause, in one line.
    pub fn told(&self) -> String {
        if self.pointer.is_empty() { self.cause.clone() } else { format!("{}: {}", self.pointer, self.cause) }
    }
}

/// A module that reads streams, as its text says it: what has another form than it should is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamModule {
    /// Place of its `config`, a JSON pointer.
    pub pointer: String,
    /// Its word.
    pub module: String,
    /// The key that names its streams: `stream` or `topic`.
    pub key: String,
    /// Names of its streams.
    pub streams: Vec<String>,
    /// The origin whose messages it takes; of all origins where `None`.
    pub source: Option<String>,
    /// The unit of its values.
    pub units: Option<ConfigText>,
    /// Variables and constants that it takes out of messages.
    pub variables: Vec<ConfigText>,
}

/// A text in the `config` of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigText {
    /// Place below the `config`, a JSON pointer without its first `/`.
    pub key: String,
    /// The text.
    pub text: String,
}
