//! `[source.NAME]`: what brings messages into the stream NAME.

use super::keys;
use super::stream::{self, StreamSection};
use crate::edges::Registry;
use flow::edge::SourcePlan;
use settings::{Section, Setting, Shown, is_stream_name, wrong_name};
use std::sync::Arc;
use std::time::Duration;
use store::Clock;

/// One source and the stream it fills.
#[derive(Clone, Debug)]
pub struct SourceSection {
    /// Name of the section and of its stream.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// Name of its kind.
    pub kind: &'static str,
    /// The plan of the source itself.
    pub plan: Arc<dyn SourcePlan>,
    /// The stream that it fills.
    pub stream: StreamSection,
    /// The clock that the source's times count.
    pub clock: Setting<Clock>,
    /// How far beyond arrival a source time is believed.
    pub ahead_max: Setting<Duration>,
    /// The thread that it shares with other sources; `None`: it has one of its own.
    pub receiver: Option<Setting<String>>,
    pub(super) shown: Vec<Shown>,
    /// Something in its section is wrong: what it would send is not known.
    pub(super) is_wrong: bool,
}

static CLOCKS: [(&str, Clock); 3] = [("epoch", Clock::Epoch), ("ticks", Clock::Ticks), ("none", Clock::None)];

/// Reads one section; what is wrong in it is noted, and without a kind there is no source.
pub(super) fn read(name: &str, section: &mut Section<'_>, registry: &Registry) -> Option<SourceSection> {
    let before = section.mistakes.list.len();
    let kind = super::kind_of(section, &keys::SOURCE_KIND, registry.sources(), |kind| kind.name);
    // Without a kind the keys that belong here are not known: the kind comes first.
    let plan = kind.and_then(|kind| (kind.read)(name, section));
    let message_bytes = plan.as_ref().and_then(|plan| plan.message_bytes());
    let stream = stream::read(section, &stream::SOURCE, message_bytes.unwrap_or(0));
    let clock = section.word(&keys::CLOCK, &CLOCKS).unwrap_or(Setting::by_default(Clock::Epoch));
    let ahead_max = section.need(&keys::AHEAD_MAX);
    let receiver: Option<Setting<String>> = section.get(&keys::RECEIVER);
    if let Some(receiver) = receiver.as_ref().filter(|receiver| !is_stream_name(receiver)) {
        section.refuse(&keys::RECEIVER, wrong_name(receiver));
    }
    let kind = kind?.name;
    let shown = section.end();
    let plan = plan?;
    let receiver = receiver.or_else(|| Some(Setting::by_default(plan.receiver()?.to_owned())));
    Some(SourceSection {
        name: name.to_owned(),
        line: section.line,
        kind,
        plan,
        stream,
        clock,
        ahead_max,
        receiver,
        shown,
        is_wrong: section.mistakes.list.len() > before,
    })
}
