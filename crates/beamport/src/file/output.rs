//! The stream that a stage fills from other streams: the same keys for every kind of stage that has one.

use super::keys;
use super::{Level, WhenFull};
use crate::limits;
use settings::units::{Refused, Size, size_text};
use settings::{Section, Setting, Word};
use std::time::Duration;

/// The stream that a stage fills.
#[derive(Clone, Debug)]
pub struct OutputSection {
    /// What a message of the stream survives; none: the least of its inputs.
    pub level: Option<Setting<Level>>,
    /// What happens when the stream has no room.
    pub when_full: Setting<OutputFull>,
    /// Bytes of the live end in shared memory.
    pub live: Setting<Size>,
    /// The most bytes that the stream keeps; `None`: no limit.
    pub retain: Option<Setting<Size>>,
    /// The oldest that a message may become; `None`: any age.
    pub retain_age: Option<Setting<Duration>>,
}

/// What happens when the stream of a stage has no room. What a stage made once is refused never: it waits in its inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFull {
    /// The stage waits for the readers.
    #[default]
    Wait,
    /// The oldest messages go.
    DropOldest,
}

impl Word for OutputFull {
    const ALL: &'static [(&'static str, Self)] = &[("wait", Self::Wait), ("drop-oldest", Self::DropOldest)];
}

impl From<OutputFull> for WhenFull {
    fn from(full: OutputFull) -> Self {
        match full {
            OutputFull::Wait => Self::Wait,
            OutputFull::DropOldest => Self::DropOldest,
        }
    }
}

/// Reads the keys of the output; what is wrong is noted.
pub(super) fn read(section: &mut Section<'_>) -> OutputSection {
    let level = section.get(&keys::OUTPUT_LEVEL);
    let when_full = section.need(&keys::OUTPUT_WHEN_FULL);
    let live = section.get::<Size>(&keys::OUTPUT_LIVE);
    if let Some(live) = &live
        && !(limits::LIVE_BYTES_MIN..=limits::LIVE_BYTES_MAX).contains(&live.0)
    {
        let hint =
            format!("write {} to {}", size_text(Size(limits::LIVE_BYTES_MIN)), size_text(Size(limits::LIVE_BYTES_MAX)));
        let cause = format!("{} of live memory cannot be had", size_text(live.value));
        section.refuse(&keys::OUTPUT_LIVE, Refused::new(cause, hint));
    }
    let retain = section.get(&keys::OUTPUT_RETAIN);
    let retain_age = section.get(&keys::OUTPUT_RETAIN_AGE);
    OutputSection { level, when_full, live: live.unwrap_or_default(), retain, retain_age }
}
