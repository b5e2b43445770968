//! Names of streams and runs, and paths that are compared.

use crate::limits;
use crate::units::{Refused, shortened};
use std::path::{Component, Path, PathBuf};

/// Whether a text can name a stream, a stage or an instrument: `[a-z][a-z0-9_-]{0,63}`.
#[must_use]
pub fn is_stream_name(name: &str) -> bool {
    name.len() <= limits::NAME_CHARS_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

/// Whether a text can name a run: `[A-Za-z0-9][A-Za-z0-9_-]{0,63}`; facilities number their runs.
#[must_use]
pub fn is_run_name(name: &str) -> bool {
    name.len() <= limits::NAME_CHARS_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The answer to a name that is not one of a stream.
#[must_use]
pub fn wrong_name(name: &str) -> Refused {
    let mut proposal: String = name
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-' { c } else { '-' })
        .collect();
    proposal.truncate(limits::NAME_CHARS_MAX);
    let proposal = proposal.trim_start_matches(|c: char| !c.is_ascii_lowercase()).trim_end_matches('-');
    let hint =
        if proposal.len() < 2 { "write a name like `detector`".to_owned() } else { format!("write `{proposal}`") };
    let cause = if name.contains('.') {
        "names with a dot are reserved"
    } else {
        "a name is a lowercase letter and up to 63 lowercase letters, digits, `_` and `-`"
    };
    Refused::new(format!("`{}`: {cause}", shortened(name)), hint)
}

/// The answer to a name that is not one of a run.
#[must_use]
pub fn wrong_run_name(name: &str) -> Refused {
    Refused::new(
        format!("`{}`: a run's name has up to 64 letters, digits, `_` and `-`", shortened(name)),
        "write a name like `first` or `2026-0042`",
    )
}

/// A path without `.` and `x/..`, for comparing; links are not followed.
#[must_use]
pub fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
