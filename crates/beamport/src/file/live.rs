//! `[sink.NAME]` of a kind that sends messages as they come: a live sink, which is a stage of the mover.

use super::keys;
use flow::edge::{LiveKind, LivePlan};
use settings::{Section, Setting, Shown};
use std::sync::Arc;

/// One live sink.
#[derive(Clone, Debug)]
pub struct LiveSection {
    /// Name of the section.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// The streams that it sends.
    pub inputs: Setting<Vec<String>>,
    /// Messages of disk streams are sent before they are safe there.
    pub early: Setting<bool>,
    /// The plan that its kind makes of the section.
    pub plan: Arc<dyn LivePlan>,
    pub(super) shown: Vec<Shown>,
}

/// Reads one section; what is wrong in it is noted.
pub(super) fn read(name: &str, section: &mut Section<'_>, kind: &LiveKind) -> Option<LiveSection> {
    let plan = (kind.read)(name, section);
    let inputs = section.get(&keys::LIVE_INPUTS);
    let early = section.need(&keys::EARLY);
    let shown = section.end();
    let (plan, inputs) = (plan?, inputs.unwrap_or_default());
    Some(LiveSection { name: name.to_owned(), line: section.line, inputs, early, plan, shown })
}
