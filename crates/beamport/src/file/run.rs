//! `[run.NAME]`: a named interval of source time.

use super::keys;
use super::stop_when::StopWhen;
use settings::units::{Refused, Time, duration_text, time_text};
use settings::{Section, Setting, Shown, Take};
use std::time::Duration;
use toml_edit::Item;

/// One declared run.
#[derive(Clone, Debug)]
pub struct RunSection {
    /// Its name.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// Its begin.
    pub start: Setting<Start>,
    /// Its end; never together with `duration`.
    pub stop: Option<Setting<Time>>,
    /// Its length.
    pub duration: Option<Setting<Duration>>,
    /// Values that end it before.
    pub stop_when: Option<Setting<StopWhen>>,
    /// Messages of the very time of its stop belong to it.
    pub inclusive: Setting<bool>,
    /// How long it waits after its end for messages that are under way.
    pub settle: Setting<Duration>,
    pub(super) shown: Vec<Shown>,
}

/// When a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// When `up` is ready.
    #[default]
    Now,
    /// At this source time.
    At(Time),
}

impl Take for Start {
    fn take(item: &Item) -> Result<Self, Refused> {
        match item.as_str() {
            Some("now") => Ok(Self::Now),
            _ => Time::take(item).map(Self::At).map_err(|refused| match refused.hint.as_str() {
                "" => refused,
                hint => Refused::new(refused.cause, format!("{hint}, or \"now\"")),
            }),
        }
    }
    fn default_of(text: &str) -> Option<Self> {
        (text == "now").then_some(Self::Now)
    }
    fn show(&self) -> serde_json::Value {
        match self {
            Self::Now => "now".into(),
            Self::At(time) => time_text(*time).into(),
        }
    }
}

/// Reads one section; what is wrong in it is noted.
pub(super) fn read(name: &str, section: &mut Section<'_>) -> RunSection {
    let start: Setting<Start> = section.need(&keys::START);
    let stop: Option<Setting<Time>> = section.get(&keys::STOP);
    let duration: Option<Setting<Duration>> = section.get(&keys::RUN_DURATION);
    let stop_when: Option<Setting<StopWhen>> = section.get(&keys::STOP_WHEN);
    let inclusive: Setting<bool> = section.need(&keys::INCLUSIVE);
    let settle = section.need(&keys::SETTLE);
    if inclusive.value && stop.is_none() && duration.is_none() {
        section.mistake(
            inclusive.line_or(section.line),
            format!("run `{name}` is inclusive but has no stop"),
            "`beamport end` sets its stop, and whether it is inclusive",
            "add `stop` or `duration`, or remove `inclusive`",
        );
    }
    if let (Some(_), Some(duration)) = (&stop, &duration) {
        let line = duration.line_or(section.line);
        section.mistake(
            line,
            format!("run `{name}` has a stop and a duration"),
            "they exclude each other",
            "remove `stop` or `duration`",
        );
    }
    if let (Start::At(start), Some(stop)) = (start.value, &stop)
        && stop.value <= start
    {
        let cause = format!("stop {} is not after start {}", time_text(stop.value), time_text(start));
        section.mistake(
            stop.line_or(section.line),
            format!("run `{name}` ends before it starts"),
            cause,
            "write a later `stop`, or a `duration` instead",
        );
    }
    if let Some(duration) = &duration
        && duration.is_zero()
    {
        let cause = format!("its duration is {}", duration_text(duration.value));
        section.mistake(
            duration.line_or(section.line),
            format!("run `{name}` ends before it starts"),
            cause,
            "write a length like \"10 s\"",
        );
    }
    RunSection {
        name: name.to_owned(),
        line: section.line,
        start,
        stop,
        duration,
        stop_when,
        inclusive,
        settle,
        shown: section.end(),
    }
}
