//! `[merge.NAME]`: several streams become the stream NAME, in the order of source times or of numbers.

use super::keys;
use super::stream::{self, StreamSection};
use super::{Instrument, Stage, WorkerSection};
use crate::limits;
use flow::TimeSlices;
use serde_json::Value as Json;
use settings::Key;
use settings::units::{self, Refused, Size, shortened};
use settings::{Section, Setting, Shown, Take, noun};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Level, WhenFull};
use toml_edit::Item;

/// One merge and the stream it fills.
#[derive(Clone, Debug)]
pub struct MergeSection {
    /// Name of the section and of its stream.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// The streams that become one.
    pub inputs: Setting<Vec<String>>,
    /// The hosts that have a part each, where there are several.
    pub hosts: Option<Setting<Vec<String>>>,
    /// Its inputs that are, or have, parts on several hosts.
    pub part_inputs: BTreeMap<String, PartInput>,
    /// It is a merge of all parts of a stage, on each host that reads it.
    pub is_on_each_reader: bool,
    /// How long each input, or an id, is waited for.
    pub wait: Setting<Duration>,
    /// By what it orders.
    pub kind: MergeKind,
    /// The stream it fills.
    pub output: StreamSection,
    /// The name in the file where the output is a copy: a worker of that name fills the stream.
    pub copied: Option<String>,
    pub(super) shown: Vec<Shown>,
}

/// An input of a merge that has parts, or of which the merge is a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartInput {
    /// The messages that are merged; none: all of them.
    pub slices: Option<TimeSlices>,
    /// See [`flow::MergeInput::by_frontier`].
    pub by_frontier: bool,
    /// See [`flow::MergeInput::is_made_again`].
    pub is_made_again: bool,
}

/// By what a merge orders.
#[derive(Clone, Debug)]
pub enum MergeKind {
    /// Source time.
    Time {
        /// How long single inputs are waited for.
        waits: Setting<Waits>,
        /// Least length of a slice, and that of the slices of its parts.
        slice: Setting<Duration>,
        /// The time around its slices that a part also has.
        overlap: Setting<Duration>,
        /// How far beyond arrival a source time is believed.
        ahead_max: Setting<Duration>,
    },
    /// The number of a message.
    Number {
        /// Messages that make an id whole.
        parts: Setting<u64>,
        /// Ids that may wait.
        cache: Setting<u64>,
    },
}

impl MergeSection {
    /// How long an input is waited for.
    #[must_use]
    pub fn wait_of(&self, input: &str) -> Duration {
        let own = match &self.kind {
            MergeKind::Time { waits, .. } => waits.0.get(input).copied(),
            MergeKind::Number { .. } => None,
        };
        own.unwrap_or(self.wait.value)
    }
}

/// Durations by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits(pub BTreeMap<String, Duration>);

impl Take for Waits {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint = "write a table, like `{ monitor = \"10 s\" }`";
        let table = item
            .as_table_like()
            .ok_or_else(|| Refused::new(format!("expected a table, found {}", noun(item)), hint))?;
        let one = |(name, item): (&str, &Item)| {
            let wait = Duration::take(item)
                .map_err(|refused| Refused::new(format!("`{}`: {}", shortened(name), refused.cause), refused.hint))?;
            Ok((name.to_owned(), wait))
        };
        table.iter().map(one).collect::<Result<_, _>>().map(Self)
    }
    fn default_of(_: &str) -> Option<Self> {
        None
    }
    fn show(&self) -> Json {
        Json::Object(self.0.iter().map(|(name, wait)| (name.clone(), wait.show())).collect())
    }
}

/// Reads one section; what is wrong in it is noted.
pub(super) fn read(name: &str, section: &mut Section<'_>, hosts: Option<Setting<Vec<String>>>) -> MergeSection {
    let by_number = section.word(&keys::MERGE_KIND, &[("time", false), ("number", true)]);
    if by_number.is_none() {
        // Whatever kind was meant.
        section.allow(keys::MERGE_NUMBER.keys.iter().map(|key| key.name));
    }
    let output = section.word(&keys::MERGE_OUTPUT, &[("view", false), ("copy", true)]);
    let is_copy = output.is_some_and(|is_copy| is_copy.value);
    let longest = if is_copy { limits::COPY_NAME_CHARS_MAX } else { limits::MERGE_NAME_CHARS_MAX };
    if name.len() > longest {
        let line = section.line;
        section.mistake(
            line,
            format!("the name of {} is too long", section.title),
            format!("its views need it as a reader name of at most {longest} characters"),
            "write a shorter name",
        );
    }
    let inputs: Setting<Vec<String>> = section.get(&keys::MERGE_INPUTS).unwrap_or_default();
    if inputs.len() > flow::INPUTS_MAX {
        let cause = format!("{} inputs, the limit is {}", inputs.len(), flow::INPUTS_MAX);
        section.refuse(&keys::MERGE_INPUTS, Refused::new(cause, "merge in two steps"));
    }
    let wait = section.need(&keys::WAIT);
    let kind = match by_number.is_some_and(|kind| kind.value) {
        true => MergeKind::Number {
            parts: number(section, &keys::PARTS, limits::PARTS_MAX),
            cache: number(section, &keys::CACHE, limits::CACHE_MAX),
        },
        false => by_time(section, &inputs, hosts.is_some()),
    };
    let output = stream::read(section, &stream::STAGE, 0);
    MergeSection {
        name: name.to_owned(),
        line: section.line,
        inputs,
        hosts,
        part_inputs: BTreeMap::new(),
        is_on_each_reader: false,
        wait,
        kind,
        output,
        copied: is_copy.then(|| name.to_owned()),
        shown: section.end(),
    }
}

impl Instrument {
    /// Makes of each merge whose output is a copy what runs: the merge fills the view `NAME.view`, and a worker behind it
    /// copies that into NAME.
    pub(super) fn split_copies(&mut self) {
        let level = |stage: &Stage| Some((stage.name().to_owned(), stage.stream()?.level()));
        let levels: BTreeMap<String, Level> = self.stages.iter().filter_map(level).collect();
        let mut stages = Vec::with_capacity(self.stages.len());
        for mut stage in std::mem::take(&mut self.stages) {
            let Stage::Merge(merge) = &mut stage else {
                stages.push(stage);
                continue;
            };
            if merge.copied.is_none() {
                stages.push(stage);
                continue;
            }
            let is_disk = |input: &String| levels.get(input).is_some_and(|level| *level == Level::Disk);
            let level = if merge.inputs.iter().all(is_disk) { Level::Disk } else { Level::Memory };
            let view = StreamSection {
                level: Some(Setting::by_default(level)),
                when_full: Setting::by_default(WhenFull::Wait),
                live: merge.output.live.clone(),
                retain: (level == Level::Disk).then(|| Setting::by_default(Size(limits::COPIED_VIEW_BYTES))),
                retain_age: None,
                keep_free: None,
            };
            let output = std::mem::replace(&mut merge.output, view);
            let view = flow::view_of(&merge.name);
            let name = std::mem::replace(&mut merge.name, view);
            let copy = WorkerSection::copying(name, merge, output);
            stages.extend([stage, Stage::Worker(Box::new(copy))]);
        }
        self.stages = stages;
    }
}

/// Reads what only a merge by time has. `has_parts`: it is on several hosts.
fn by_time(section: &mut Section<'_>, inputs: &[String], has_parts: bool) -> MergeKind {
    let waits = section.get::<Waits>(&keys::WAITS).unwrap_or_default();
    for name in waits.0.keys().filter(|name| !inputs.contains(name)) {
        let hint = match super::nearest(name, inputs.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "name an input, or remove it".to_owned(),
        };
        section.refuse(&keys::WAITS, Refused::new(format!("`{}` is not an input", shortened(name)), hint));
    }
    let slice: Setting<Duration> = section.need(&keys::SLICE);
    if !(limits::SLICE_MIN..=limits::SLICE_MAX).contains(&slice.value) && !slice.is_zero() {
        let cause = format!("{} is not a valid slice", units::duration_text(slice.value));
        let (least, most) = (units::duration_text(limits::SLICE_MIN), units::duration_text(limits::SLICE_MAX));
        section.refuse(&keys::SLICE, Refused::new(cause, format!("write \"{least}\" to \"{most}\"")));
    }
    let overlap = if has_parts { section.need(&keys::OVERLAP) } else { Setting::by_default(Duration::ZERO) };
    MergeKind::Time { waits, slice, overlap, ahead_max: section.need(&keys::MERGE_AHEAD_MAX) }
}

/// Reads a number from 1 to `most`.
fn number(section: &mut Section<'_>, key: &'static Key, most: u64) -> Setting<u64> {
    let number: Setting<u64> = section.need(key);
    if !(1..=most).contains(&number.value) {
        section.refuse(key, Refused::new(format!("{} is out of range", number.value), format!("write 1 to {most}")));
    }
    number
}
