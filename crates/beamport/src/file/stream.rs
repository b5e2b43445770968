//! The keys of a stream: the same for sources, merges and workers, with defaults of their own.

use super::keys;
use crate::limits;
use serde_json::Value as Json;
use settings::units::{Refused, Size, size_text};
use settings::{Key, Origin, Section, Setting, Shown, Take as _};
use std::time::Duration;
use store::{Level, Options, WhenFull};

/// The stream that a section fills.
#[derive(Clone, Debug)]
pub struct StreamSection {
    /// The level, which says what a message survives; `None` until it is known of the inputs, whose least is the
    /// default.
    pub level: Option<Setting<Level>>,
    /// The policy when the stream has no room.
    pub when_full: Setting<WhenFull>,
    /// Bytes of the live end in shared memory.
    pub live: Setting<Size>,
    /// The most bytes that the stream keeps; `None`: no limit.
    pub retain: Option<Setting<Size>>,
    /// The oldest that a message may become; `None`: any age.
    pub retain_age: Option<Setting<Duration>>,
    /// Bytes that are left free on the disk; `None`: none.
    pub keep_free: Option<Setting<Size>>,
}

/// The keys that differ between sections in their default or their words.
pub(super) struct StreamKeys {
    level: &'static Key,
    when_full: &'static Key,
    live: &'static Key,
    full: &'static [(&'static str, WhenFull)],
}

static LEVELS: [(&str, Level); 2] = [("disk", Level::Disk), ("memory", Level::Memory)];
static WHEN_FULL: [(&str, WhenFull); 3] =
    [("wait", WhenFull::Wait), ("drop-oldest", WhenFull::DropOldest), ("drop-newest", WhenFull::DropNewest)];

/// Of a source.
pub(super) static SOURCE: StreamKeys =
    StreamKeys { level: &keys::LEVEL, when_full: &keys::WHEN_FULL, live: &keys::LIVE, full: &WHEN_FULL };
/// Of a merge or a worker. What a stage made once is never refused: it waits in the inputs of the stage.
pub(super) static STAGE: StreamKeys = StreamKeys {
    level: &keys::OUTPUT_LEVEL,
    when_full: &keys::OUTPUT_WHEN_FULL,
    live: &keys::OUTPUT_LIVE,
    full: WHEN_FULL.first_chunk::<2>().unwrap(),
};

impl StreamSection {
    /// Returns the level, which says what a message of the stream survives.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level.as_ref().map_or(Level::Disk, |level| level.value)
    }

    /// As the store takes them; times count ns since 1970 UTC.
    #[must_use]
    pub fn options(&self) -> Options {
        Options {
            level: self.level(),
            when_full: self.when_full.value,
            retain_bytes: self.retain.as_ref().map(|bytes| bytes.0),
            retain_age_ns: self.retain_age.as_ref().map(|age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)),
            keep_free_bytes: self.keep_free.as_ref().map(|bytes| bytes.0),
            ..Options::memory(self.live.0)
        }
    }

    /// Fills in the level that follows from the inputs, and what follows from it.
    pub(super) fn settle(&mut self, level: Level, shown: &mut Vec<Shown>) {
        let mut show = |key: &'static Key, value: Json| {
            shown.push(Shown { key: key.name.into(), value, origin: Origin::Default });
        };
        show(&keys::OUTPUT_LEVEL, level.as_str().into());
        self.level = Some(Setting::by_default(level));
        if level == Level::Memory && self.retain.is_none() {
            show(&keys::RETAIN, self.live.show());
            self.retain = Some(Setting::by_default(self.live.value));
        }
    }

    /// Values that do not fit a level.
    pub(super) fn misfits(&self, level: Level) -> Vec<(&'static Key, &Setting<Size>, Refused)> {
        let (mut misfits, live) = (Vec::new(), size_text(self.live.value));
        match &self.retain {
            // After a mistake in `live` its size is not known.
            Some(_) if self.live.0 == 0 => {}
            Some(retain) if level == Level::Memory && retain.value > self.live.value => {
                let cause = format!("a memory stream keeps at most `live`, {live}");
                let hint = format!("write `live = \"{}\"` too, or level = \"disk\"", size_text(retain.value));
                misfits.push((&keys::RETAIN, retain, Refused::new(cause, hint)));
            }
            Some(retain) if level == Level::Disk && retain.value < self.live.value => {
                let hint = format!("write at least {live}, or a smaller `live`");
                misfits.push((&keys::RETAIN, retain, Refused::new(format!("less than `live`, {live}"), hint)));
            }
            _ => {}
        }
        if let Some(keep_free) = self.keep_free.as_ref().filter(|_| level == Level::Memory) {
            let hint = "remove it, or write level = \"disk\"";
            let refused = Refused::new("a memory stream needs no disk", hint);
            misfits.push((&keys::KEEP_FREE, keep_free, refused));
        }
        misfits
    }
}

/// Reads the keys of a stream whose messages have this size (bytes; 0: not known); what is wrong is noted.
pub(super) fn read(section: &mut Section<'_>, of: &StreamKeys, message_bytes: u64) -> StreamSection {
    let level = section.word(of.level, &LEVELS);
    let when_full = section.word(of.when_full, of.full).unwrap_or(Setting::by_default(WhenFull::Wait));
    let live = live_of(section, of.live, message_bytes).unwrap_or_default();
    let mut retain = section.get(&keys::RETAIN);
    if retain.is_none() && level.as_ref().is_some_and(|level| level.value == Level::Memory) {
        retain = Some(section.note(&keys::RETAIN, Setting::by_default(live.value)));
    }
    let stream = StreamSection {
        level,
        when_full,
        live,
        retain,
        retain_age: section.get(&keys::RETAIN_AGE),
        keep_free: section.get(&keys::KEEP_FREE),
    };
    if let Some(level) = &stream.level {
        stream.misfits(level.value).into_iter().for_each(|(key, _, refused)| section.refuse(key, refused));
    }
    stream
}

/// The keys of a mirror: where one is not written, it is that of the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct MirrorKeys {
    level: Option<Setting<Level>>,
    when_full: Option<Setting<WhenFull>>,
    live: Option<Setting<Size>>,
    retain: Option<Setting<Size>>,
    retain_age: Option<Setting<Duration>>,
    keep_free: Option<Setting<Size>>,
}

impl MirrorKeys {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let is_written = section.has(&keys::MIRROR_LIVE);
        Self {
            level: section.word(&keys::MIRROR_LEVEL, &LEVELS),
            when_full: section.word(&keys::MIRROR_WHEN_FULL, STAGE.full),
            live: if is_written { live_of(section, &keys::MIRROR_LIVE, 0) } else { section.get(&keys::MIRROR_LIVE) },
            retain: section.get(&keys::RETAIN),
            retain_age: section.get(&keys::RETAIN_AGE),
            keep_free: section.get(&keys::KEEP_FREE),
        }
    }
}

impl StreamSection {
    /// The stream as a mirror of it is kept; also the values that do not fit its level.
    pub(super) fn mirrored(&self, of: &MirrorKeys) -> (Self, Vec<(&'static Key, Refused)>) {
        let level = of.level.clone().unwrap_or_else(|| Setting::by_default(self.level()));
        // A view has no payloads of its own, and its mirror has.
        let least = || Setting::by_default(Size(self.live.0.max(limits::LIVE_BYTES_MIRROR)));
        let live = of.live.clone().unwrap_or_else(least);
        let is_memory = level.value == Level::Memory;
        let same = |retain: &Setting<Size>| retain.value.0.max(live.0);
        let kept = self.retain.as_ref().filter(|_| level.value == self.level()).map(same);
        let retain = of.retain.clone().or_else(|| kept.map(|bytes| Setting::by_default(Size(bytes))));
        let retain = if is_memory { retain.filter(|_| of.retain.is_some()).or(Some(live.clone())) } else { retain };
        let keep_free = of.keep_free.clone().or_else(|| self.keep_free.clone().filter(|_| !is_memory));
        let mirror = Self {
            level: Some(level.clone()),
            // The near side keeps what does not fit: nothing is dropped here.
            when_full: of.when_full.clone().unwrap_or(Setting::by_default(WhenFull::Wait)),
            live,
            retain,
            retain_age: of.retain_age.clone().or_else(|| self.retain_age.clone()),
            keep_free,
        };
        let misfits = mirror.misfits(level.value).into_iter().map(|(key, _, refused)| (key, refused)).collect();
        (mirror, misfits)
    }
}

/// Of a stream between the two ends of a worker on one of its hosts.
pub(super) fn in_memory(live: Size) -> StreamSection {
    StreamSection {
        level: Some(Setting::by_default(Level::Memory)),
        when_full: Setting::by_default(WhenFull::Wait),
        live: Setting::by_default(live),
        retain: Some(Setting::by_default(live)),
        retain_age: None,
        keep_free: None,
    }
}

/// Of a mirror of a book: it is small, and kept whole.
pub(super) fn of_book() -> StreamSection {
    StreamSection {
        level: Some(Setting::by_default(Level::Disk)),
        when_full: Setting::by_default(WhenFull::Wait),
        live: Setting::by_default(Size(limits::LIVE_BYTES_BOOK)),
        retain: None,
        retain_age: None,
        keep_free: None,
    }
}

/// The live end, where its size is allowed.
fn live_of(section: &mut Section<'_>, key: &'static Key, message_bytes: u64) -> Option<Setting<Size>> {
    let proposed = Size((limits::LIVE_MESSAGES * message_bytes).next_multiple_of(1 << 20));
    let is_written = section.has(key);
    let live = if !is_written && Size::default_of(key.default).is_some_and(|usual| usual.0 < proposed.0) {
        section.note(key, Setting::by_default(proposed))
    } else {
        section.get::<Size>(key)?
    };
    if is_written && live.0 < limits::LIVE_MESSAGES_MIN * message_bytes {
        let cause = format!("{} of live memory cannot hold two frames of {message_bytes} B", size_text(*live));
        section.refuse(key, Refused::new(cause, format!("write `live = \"{}\"`", size_text(proposed))));
        return None;
    }
    if !(limits::LIVE_BYTES_MIN..=limits::LIVE_BYTES_MAX).contains(&live.0) {
        let (least, most) = (Size(limits::LIVE_BYTES_MIN), Size(limits::LIVE_BYTES_MAX));
        let hint = format!("write {} to {}", size_text(least), size_text(most));
        section.refuse(key, Refused::new(format!("{} of live memory is out of range", size_text(*live)), hint));
    }
    Some(live)
}
