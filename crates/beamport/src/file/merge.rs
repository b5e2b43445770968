//! `[merge.NAME]`: several streams become the stream NAME, in the order of source time.

use super::keys::{self, Place};
use super::output::{self, OutputSection};
use super::section::{Section, Setting, Shown, Take, Word, noun};
use crate::limits;
use crate::units::{self, Refused, shortened};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::Duration;
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
    /// How long each input is waited for.
    pub wait: Setting<Duration>,
    /// The same for single inputs.
    pub waits: Setting<Waits>,
    /// Least length of a slice.
    pub slice: Setting<Duration>,
    /// How far beyond arrival a source time is believed.
    pub ahead_max: Setting<Duration>,
    /// The stream it fills.
    pub output: OutputSection,
    pub(super) shown: Vec<Shown>,
}

impl MergeSection {
    /// How long an input is waited for.
    #[must_use]
    pub fn wait_of(&self, input: &str) -> Duration {
        self.waits.0.get(input).copied().unwrap_or(self.wait.value)
    }
}

/// Durations by stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits(pub BTreeMap<String, Duration>);

impl Take for Waits {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint = "write a table, like `{ monitor = \"10 s\" }`";
        let table =
            item.as_table_like().ok_or_else(|| Refused::new(format!("it is {}, not a table", noun(item)), hint))?;
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

#[derive(Clone, Copy, PartialEq)]
enum KindWord {
    Time,
}

impl Word for KindWord {
    const ALL: &'static [(&'static str, Self)] = &[("time", Self::Time)];
    const LATER: &'static [&'static str] = &["number", "attach"];
}

#[derive(Clone, Copy, Default, PartialEq)]
enum OutputWord {
    #[default]
    View,
}

impl Word for OutputWord {
    const ALL: &'static [(&'static str, Self)] = &[("view", Self::View)];
    const LATER: &'static [&'static str] = &["copy"];
}

/// Reads one section; what is wrong in it is noted.
pub(super) fn read(name: &str, section: &mut Section<'_>) -> MergeSection {
    let [output_place] = output::PLACES;
    section.refuse_unknown(&[Place::Merge, output_place], &[]);
    let _: Option<Setting<KindWord>> = section.get(&keys::MERGE_KIND);
    let _: Option<Setting<OutputWord>> = section.get(&keys::MERGE_OUTPUT);
    if name.len() > limits::MERGE_NAME_CHARS_MAX {
        let line = section.line;
        section.mistake(
            line,
            format!("the name of {} is too long", section.title),
            format!("its views read under it, and have room for {} characters", limits::MERGE_NAME_CHARS_MAX),
            "write a shorter name",
        );
    }
    let inputs: Setting<Vec<String>> = section.get(&keys::MERGE_INPUTS).unwrap_or_default();
    if inputs.len() > flow::INPUTS_MAX {
        let cause = format!("{} inputs, {} are possible", inputs.len(), flow::INPUTS_MAX);
        section.refuse(&keys::MERGE_INPUTS, Refused::new(cause, "merge in two steps"));
    }
    let wait = section.need(&keys::WAIT);
    let waits = section.get::<Waits>(&keys::WAITS).unwrap_or_default();
    for name in waits.0.keys().filter(|name| !inputs.contains(name)) {
        let hint = match super::nearest(name, inputs.iter().map(String::as_str)) {
            Some(near) => format!("write `{near}`"),
            None => "name an input, or remove it".to_owned(),
        };
        section.refuse(&keys::WAITS, Refused::new(format!("`{}` is no input", shortened(name)), hint));
    }
    let slice: Setting<Duration> = section.need(&keys::SLICE);
    if !(limits::SLICE_MIN..=limits::SLICE_MAX).contains(&slice.value) && !slice.is_zero() {
        let cause = format!("{} is no length for a slice", units::duration_text(slice.value));
        let (least, most) = (units::duration_text(limits::SLICE_MIN), units::duration_text(limits::SLICE_MAX));
        section.refuse(&keys::SLICE, Refused::new(cause, format!("write \"{least}\" to \"{most}\"")));
    }
    let ahead_max = section.need(&keys::MERGE_AHEAD_MAX);
    let output = output::read(section);
    MergeSection {
        name: name.to_owned(),
        line: section.line,
        inputs,
        wait,
        waits,
        slice,
        ahead_max,
        output,
        shown: std::mem::take(&mut section.shown),
    }
}
