//! An error from outside as a value: what failed, the cause, and a hint that can be typed; and whether a retry may help
//! ([`Passes`]).

use crate::limits::{EIO, EMFILE, ENFILE};
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, ErrorKind};

/// Whether a retry without any change may succeed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passes {
    /// Not as far as is known: permanent.
    #[default]
    Never,
    /// Soon: another process holds a name, a place or a lock, possibly one that is ending.
    Soon,
    /// When a device has free space again.
    WithRoom,
    /// It is not known yet whether it was done, and it will be: the same request again says the result.
    Pending,
}

/// An error from outside as users see it: what failed, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What failed, with its name: "source `bank0` cannot listen on 0.0.0.0:9001".
    pub what: String,
    /// The cause: "address already in use". Empty where `what` says all.
    pub cause: String,
    /// One hint that is a command or a line to edit. Empty where there is none.
    pub hint: String,
    /// Whether trying again may help. It stays in this process, except [`Passes::Pending`]: it is no part of the text.
    pub passes: Passes,
}

impl Fault {
    /// A fault with its cause and no hint yet.
    pub fn new(what: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self { what: what.into(), cause: cause.to_string(), hint: String::new(), passes: Passes::Never }
    }

    /// `{"what", "cause", "hint"}`, as programs exchange it, and `"pending": true` for [`Passes::Pending`].
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = json!({"what": self.what, "cause": self.cause, "hint": self.hint});
        if self.passes == Passes::Pending {
            object["pending"] = true.into();
        }
        object
    }

    /// The fault that [`Fault::to_json`] made; missing texts are empty.
    #[must_use]
    pub fn of_json(object: &Value) -> Self {
        let text = |key: &str| object[key].as_str().unwrap_or_default();
        let passes = if object["pending"] == true { Passes::Pending } else { Passes::Never };
        Self { passes, ..Self::new(text("what"), text("cause")).hint(text("hint")) }
    }

    /// The remedy for a refusal of the operating system; empty where none is known.
    pub fn remedy(error: &io::Error) -> &'static str {
        match error.kind() {
            // Linux has no kinds for these.
            _ if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) => {
                "raise the limit of open files: `ulimit -n`, or `LimitNOFILE=` of a systemd unit"
            }
            _ if error.raw_os_error() == Some(EIO) => "check the device: `dmesg` says what is wrong with it",
            ErrorKind::Unsupported if error.raw_os_error().is_some() => {
                "use a file system that reserves room for files: ext4, xfs, btrfs, tmpfs, NFS 4.2"
            }
            ErrorKind::PermissionDenied => "run it as the owner of the folder: see `ls -ld DIR`",
            ErrorKind::ReadOnlyFilesystem => "choose a folder on a writable device",
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on the device",
            _ => "",
        }
    }

    /// A refusal of the operating system, with what can be done about it where that is known.
    pub fn io(what: impl Into<String>, error: &io::Error) -> Self {
        let passes = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Passes::WithRoom,
            ErrorKind::WouldBlock => Passes::Soon,
            _ => Passes::Never,
        };
        Self { passes, ..Self::new(what, error).hint(Self::remedy(error)) }
    }

    /// The fault that this one is the cause of; the hint stays.
    #[must_use]
    pub fn leads_to(self, what: impl Into<String>) -> Self {
        let cause = if self.cause.is_empty() { self.what } else { format!("{}: {}", self.what, self.cause) };
        Self { passes: self.passes, ..Self::new(what, cause).hint(self.hint) }
    }

    /// The same fault as that of a stage. The text of a source or a live sink need not name it.
    #[must_use]
    pub fn of_stage(mut self, kind: &str, name: &str) -> Self {
        if !self.what.contains(&format!("`{name}`")) {
            self.what = format!("{kind} `{name}`: {}", self.what);
        }
        self
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Fault {
    /// Three lines at most, aligned as `error:`, `cause:`, `hint:`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if !self.cause.is_empty() {
            write!(f, "\ncause: {}", self.cause)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\nhint:  {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// Why a command that prints ends before its work is done.
#[derive(Debug)]
pub enum Interruption {
    /// An error from outside.
    Fault(Fault),
    /// The output cannot be written; a closed pipe is no fault.
    Output(io::Error),
}

impl From<Fault> for Interruption {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<io::Error> for Interruption {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_follow_the_number_of_the_error() {
        let hint = |number| Fault::io("x", &io::Error::from_raw_os_error(number)).hint;
        assert!(hint(EMFILE).contains("`ulimit -n`") && hint(ENFILE).contains("LimitNOFILE"));
        assert!(hint(EIO).contains("dmesg"));
        // EOPNOTSUPP, of `fallocate`.
        assert!(hint(95).contains("file system"), "{}", hint(95));
        assert!(hint(28).contains("free space") && hint(13).contains("owner"));
    }
}
