//! `[source.NAME]`: what brings messages into the stream NAME.

use super::keys;
use crate::edges::Registry;
use crate::limits;
use flow::edge::SourcePlan;
use settings::units::{Refused, Size, size_text};
use settings::{Section, Setting, Shown, Take as _, Word, is_stream_name, wrong_name};
use std::sync::Arc;
use std::time::Duration;

/// One source and the stream it fills.
#[derive(Clone, Debug)]
pub struct SourceSection {
    /// Name of the section and of its stream.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// Name of its kind.
    pub kind: &'static str,
    /// What brings the messages.
    pub plan: Arc<dyn SourcePlan>,
    /// What a message of the stream survives.
    pub level: Setting<Level>,
    /// What happens when the stream has no room.
    pub when_full: Setting<WhenFull>,
    /// Bytes of the live end in shared memory.
    pub live: Setting<Size>,
    /// The most bytes that the stream keeps; `None`: no limit.
    pub retain: Option<Setting<Size>>,
    /// The oldest that a message may become; `None`: any age.
    pub retain_age: Option<Setting<Duration>>,
    /// Bytes that are left free on the disk; `None`: none.
    pub keep_free: Option<Setting<Size>>,
    /// What the source's times count.
    pub clock: Setting<Clock>,
    /// How far beyond arrival a source time is believed.
    pub ahead_max: Setting<Duration>,
    /// The thread that it shares with other sources; `None`: it has one of its own.
    pub receiver: Option<Setting<String>>,
    pub(super) shown: Vec<Shown>,
    /// Something in its section is wrong: what it would send is not known.
    pub(super) is_wrong: bool,
}

/// What a message survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// A power cut.
    #[default]
    Disk,
    /// The end of any process.
    Memory,
}

impl Word for Level {
    const ALL: &'static [(&'static str, Self)] = &[("disk", Self::Disk), ("memory", Self::Memory)];
}

/// What happens when a stream has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The source waits for the readers.
    #[default]
    Wait,
    /// The oldest messages go.
    DropOldest,
    /// The new message is refused.
    DropNewest,
}

impl Word for WhenFull {
    const ALL: &'static [(&'static str, Self)] =
        &[("wait", Self::Wait), ("drop-oldest", Self::DropOldest), ("drop-newest", Self::DropNewest)];
}

/// What the times of a source count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// ns since 1970 UTC.
    #[default]
    Epoch,
    /// Ticks of its own.
    Ticks,
    /// Nothing.
    None,
}

impl Word for Clock {
    const ALL: &'static [(&'static str, Self)] =
        &[("epoch", Self::Epoch), ("ticks", Self::Ticks), ("none", Self::None)];
}

/// Reads one section; what is wrong in it is noted, and without a kind there is no source.
pub(super) fn read(name: &str, section: &mut Section<'_>, registry: &Registry) -> Option<SourceSection> {
    let before = section.mistakes.list.len();
    let kind = super::kind_of(section, &keys::SOURCE_KIND, registry.sources(), |kind| kind.name);
    // Without a kind the keys that belong here are not known: the kind comes first.
    let plan = kind.and_then(|kind| (kind.read)(name, section));
    let level: Setting<Level> = section.need(&keys::LEVEL);
    let when_full = section.need(&keys::WHEN_FULL);
    let message_bytes = plan.as_ref().and_then(|plan| plan.message_bytes());
    let live = live_of(section, message_bytes.unwrap_or(0));
    if let Some(live) = &live
        && !(limits::LIVE_BYTES_MIN..=limits::LIVE_BYTES_MAX).contains(&live.0)
    {
        let hint =
            format!("write {} to {}", size_text(Size(limits::LIVE_BYTES_MIN)), size_text(Size(limits::LIVE_BYTES_MAX)));
        section
            .refuse(&keys::LIVE, Refused::new(format!("{} of live memory cannot be had", size_text(live.value)), hint));
    }
    let mut retain = section.get::<Size>(&keys::RETAIN);
    if let (Some(live), Some(retain)) = (&live, &retain) {
        if *level == Level::Memory && retain.value > live.value {
            let hint = format!("write `live = \"{}\"` too, or take level = \"disk\"", size_text(retain.value));
            section.refuse(
                &keys::RETAIN,
                Refused::new(
                    format!("a memory stream keeps no more than its live end, {}", size_text(live.value)),
                    hint,
                ),
            );
        } else if *level == Level::Disk && retain.value < live.value {
            let hint = format!("write at least {}, or a smaller `live`", size_text(live.value));
            section.refuse(
                &keys::RETAIN,
                Refused::new(format!("less than the live end, {}", size_text(live.value)), hint),
            );
        }
    }
    let live = live.unwrap_or_default();
    if retain.is_none() && *level == Level::Memory {
        retain = Some(section.note(&keys::RETAIN, Setting::by_default(live.value)));
    }
    let retain_age = section.get::<Duration>(&keys::RETAIN_AGE);
    let keep_free = section.get::<Size>(&keys::KEEP_FREE);
    if keep_free.is_some() && *level == Level::Memory {
        let hint = "leave it out, or take level = \"disk\"";
        section.refuse(&keys::KEEP_FREE, Refused::new("a memory stream takes no room on a disk", hint));
    }
    let clock = section.need(&keys::CLOCK);
    let ahead_max = section.need(&keys::AHEAD_MAX);
    let receiver: Option<Setting<String>> = section.get(&keys::RECEIVER);
    if let Some(receiver) = receiver.as_ref().filter(|receiver| !is_stream_name(receiver)) {
        section.refuse(&keys::RECEIVER, wrong_name(receiver));
    }
    let kind = kind?.name;
    let shown = section.end();
    let plan = plan?;
    Some(SourceSection {
        name: name.to_owned(),
        line: section.line,
        kind,
        plan,
        level,
        when_full,
        live,
        retain,
        retain_age,
        keep_free,
        clock,
        ahead_max,
        receiver,
        shown,
        is_wrong: section.mistakes.list.len() > before,
    })
}

/// The live end of a stream with messages of this size (bytes; 0: not known), and whether the size is allowed.
fn live_of(section: &mut Section<'_>, message_bytes: u64) -> Option<Setting<Size>> {
    let proposed = Size((limits::LIVE_MESSAGES * message_bytes).next_multiple_of(1 << 20));
    let is_written = section.has(&keys::LIVE);
    if !is_written && Size::default_of(keys::LIVE.default).is_some_and(|usual| usual.0 < proposed.0) {
        return Some(section.note(&keys::LIVE, Setting::by_default(proposed)));
    }
    let live = section.get::<Size>(&keys::LIVE)?;
    if live.0 < limits::LIVE_MESSAGES_MIN * message_bytes {
        let cause = format!("{} of live memory have no room for two frames of {message_bytes} B", size_text(*live));
        section.refuse(&keys::LIVE, Refused::new(cause, format!("write `live = \"{}\"`", size_text(proposed))));
        return None;
    }
    Some(live)
}
