//! `[source.NAME]`: what brings messages into the stream NAME.

use super::keys;
use super::models;
use crate::limits;
use settings::units::{Refused, Size, shortened, size_text};
use settings::{Section, Setting, Shown, Take, Word};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::Item;

/// One source and the stream it fills.
#[derive(Clone, Debug)]
pub struct SourceSection {
    /// Name of the section and of its stream.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// What brings the messages.
    pub kind: SourceKind,
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
    pub(super) shown: Vec<Shown>,
    /// Something in its section is wrong: what it would send is not known.
    pub(super) is_wrong: bool,
}

/// The kinds of sources.
#[derive(Clone, Debug)]
pub enum SourceKind {
    /// A simulated instrument.
    Sim(Box<SimSection>),
    /// A recorded stream played again.
    Replay(ReplaySection),
}

/// A source of kind `sim`.
#[derive(Clone, Debug)]
pub struct SimSection {
    /// Name of the model.
    pub model: Setting<String>,
    /// The model with its keys set, as the crate `sim` takes it; a histogram is still to be loaded from `from`,
    /// and `files` are still to be mapped.
    pub config: sim::Config,
    /// NeXus file with the histogram to draw from.
    pub from: Option<Setting<PathBuf>>,
    /// Files with the frames of a camera.
    pub files: Option<Setting<Vec<PathBuf>>>,
}

/// A source of kind `replay`.
#[derive(Clone, Debug, Default)]
pub struct ReplaySection {
    /// The recorded run.
    pub run: Setting<String>,
    /// The data folder in which it was recorded.
    pub from_data: Setting<PathBuf>,
    /// The recorded stream.
    pub stream: Setting<String>,
    /// How fast.
    pub speed: Setting<Speed>,
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
    const LATER: &'static [&'static str] = &["replicated"];
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

/// How fast something recorded is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it was.
    Times(f64),
    /// As fast as the machine can.
    Max,
}

impl Default for Speed {
    fn default() -> Self {
        Self::Times(1.0)
    }
}

impl std::str::FromStr for Speed {
    type Err = Refused;

    /// `1x`, `0.5x`, `10x` or `max`.
    fn from_str(text: &str) -> Result<Self, Refused> {
        let refused = || Refused::new(format!("`{}` is no speed", shortened(text)), "write `1x`, `10x` or `max`");
        if text == "max" {
            return Ok(Self::Max);
        }
        let times: f64 = text.strip_suffix('x').ok_or_else(refused)?.parse().map_err(|_| refused())?;
        // Slower than 1:1000 or faster than 1e6 is a slip of the finger; `max` is there for the latter.
        if (1e-3..=1e6).contains(&times) { Ok(Self::Times(times)) } else { Err(refused()) }
    }
}

impl Take for Speed {
    fn take(item: &Item) -> Result<Self, Refused> {
        String::take(item).map_err(|refused| Refused::new(refused.cause, "write \"1x\", \"10x\" or \"max\""))?.parse()
    }
    fn default_of(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> serde_json::Value {
        match self {
            Self::Times(times) => format!("{times}x").into(),
            Self::Max => "max".into(),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum KindWord {
    Sim,
    Replay,
}

impl Word for KindWord {
    const ALL: &'static [(&'static str, Self)] = &[("sim", Self::Sim), ("replay", Self::Replay)];
    const LATER: &'static [&'static str] = &["udp", "tcp", "kafka", "pva", "ca", "link"];
}

/// Reads one section; what is wrong in it is noted, and without a kind there is no source.
pub(super) fn read(name: &str, section: &mut Section<'_>, folder: &Path) -> Option<SourceSection> {
    let kind: Option<Setting<KindWord>> = section.get(&keys::SOURCE_KIND);
    let kind = match kind.map(|kind| kind.value) {
        Some(KindWord::Sim) => sim(section, folder).map(|sim| SourceKind::Sim(Box::new(sim))),
        Some(KindWord::Replay) => {
            section.refuse_unknown(&[&keys::SOURCE, &keys::REPLAY], &[]);
            Some(SourceKind::Replay(replay(name, section, folder)))
        }
        // Which keys belong here is not known, so only a name that belongs nowhere could be reported; the kind comes first.
        None => None,
    };
    let level: Setting<Level> = section.need(&keys::LEVEL);
    let when_full = section.need(&keys::WHEN_FULL);
    let message_bytes = match &kind {
        Some(SourceKind::Sim(sim)) if sim.files.is_none() => sim::message_bytes(&sim.config).unwrap_or(0),
        _ => 0,
    };
    let live = live_of(section, message_bytes);
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
    let kind = kind?;
    let shown = std::mem::take(&mut section.shown);
    Some(SourceSection {
        name: name.to_owned(),
        line: section.line,
        kind,
        level,
        when_full,
        live,
        retain,
        retain_age,
        keep_free,
        clock,
        ahead_max,
        shown,
        is_wrong: false,
    })
}

/// The live end of a stream with messages of this size (bytes; 0: not known), and whether the size is allowed.
fn live_of(section: &mut Section<'_>, message_bytes: u64) -> Option<Setting<Size>> {
    let proposed = Size((limits::LIVE_MESSAGES * message_bytes).next_multiple_of(1 << 20));
    let is_written = section.table.contains_key(keys::LIVE.name);
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

/// The model and its keys; `None` with an unknown model, which is noted.
fn sim(section: &mut Section<'_>, folder: &Path) -> Option<SimSection> {
    let model: Setting<String> = section.need(&keys::MODEL);
    let own: Vec<&'static str> = models::keys_of(&model).iter().map(|key| key.name).collect();
    let config = models::configure(section, &model);
    if config.is_none() {
        if !model.is_empty() {
            section.refuse(&keys::MODEL, models::wrong_model(&model));
        }
        // Which keys belong to the model is not known, so those of any model are let pass.
        let mut any: Vec<&'static str> =
            models::models().iter().flat_map(|model| models::keys_of(model)).map(|key| key.name).collect();
        any.sort_unstable();
        any.dedup();
        section.refuse_unknown(&[&keys::SOURCE, &keys::SIM], &any);
        return None;
    }
    section.refuse_unknown(&[&keys::SOURCE, &keys::SIM], &own);
    let from = section.get::<String>(&keys::FROM).map(|from| from.map(|from| folder.join(from)));
    let needs_from = *model == "histogram";
    match &from {
        Some(from) if !from.is_file() => section.refuse(
            &keys::FROM,
            Refused::new(format!("no file {}", from.display()), "paths are relative to the instrument file"),
        ),
        Some(_) if !needs_from => section.refuse(
            &keys::FROM,
            Refused::new(
                format!("model `{}` draws from no file", *model),
                "write model = \"histogram\", or remove `from`",
            ),
        ),
        None if needs_from && section.table.get("from").is_none() => {
            let line = section.line;
            section.mistake(
                line,
                format!("`from` is missing in {}", section.title),
                "model `histogram` draws events from a measured file",
                "add `from = \"FILE.nxs\"`",
            );
        }
        _ => {}
    }
    let files = frames(section, folder, &model);
    config.map(|config| SimSection { model, config, from, files })
}

/// The files of a camera; what is in them is looked at when they are mapped.
fn frames(section: &mut Section<'_>, folder: &Path, model: &str) -> Option<Setting<Vec<PathBuf>>> {
    let files = section.get::<Vec<String>>(&keys::FILES)?;
    let files = files.map(|files| files.iter().map(|file| folder.join(file)).collect::<Vec<_>>());
    let missing = files.iter().find(|file| !file.is_file()).map(|file| file.display().to_string());
    let refused = if model != "camera" {
        Refused::new(format!("model `{model}` shows no frames"), "write model = \"camera\", or remove `files`")
    } else if files.is_empty() {
        Refused::new("the list is empty", "without the line the frames are made")
    } else if let Some(missing) = missing {
        Refused::new(format!("no file {missing}"), "paths are relative to the instrument file")
    } else {
        return Some(files);
    };
    section.refuse(&keys::FILES, refused);
    Some(files)
}

fn replay(name: &str, section: &mut Section<'_>, folder: &Path) -> ReplaySection {
    let run: Setting<String> = section.need(&keys::REPLAY_RUN);
    if !run.is_empty() && !super::is_run_name(&run) {
        section.refuse(&keys::REPLAY_RUN, super::wrong_run_name(&run));
    }
    let from_data = section
        .need::<String>(&keys::FROM_DATA)
        .map(|from| if from.is_empty() { PathBuf::new() } else { folder.join(from) });
    if !from_data.as_os_str().is_empty() && !from_data.is_dir() {
        let hint = "record a run first with `beamport up`, or correct the path: it is relative to the instrument file";
        section.refuse(&keys::FROM_DATA, Refused::new(format!("no folder {}", from_data.display()), hint));
    }
    let stream = match section.get::<String>(&keys::STREAM) {
        Some(stream) => stream,
        None => section.note(&keys::STREAM, Setting::by_default(name.to_owned())),
    };
    let speed = section.need(&keys::SPEED);
    ReplaySection { run, from_data, stream, speed }
}
