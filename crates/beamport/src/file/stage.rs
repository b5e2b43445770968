//! The stages of an instrument, in one list: each runs in the mover, and all but live sinks fill the stream of their
//! name.

use super::{Instrument, LiveSection, MergeSection, SourceSection, StreamSection, WorkerSection};
use settings::Shown;
use std::collections::HashMap;

/// A section that runs in the mover.
#[derive(Clone, Debug)]
pub enum Stage {
    /// `[source.NAME]`.
    Source(SourceSection),
    /// `[merge.NAME]`.
    Merge(MergeSection),
    /// `[worker.NAME]`.
    Worker(Box<WorkerSection>),
    /// `[sink.NAME]` of a kind that sends messages as they come. It fills no stream.
    Live(LiveSection),
}

impl Stage {
    /// The kind of section, as in its header.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Merge(_) => "merge",
            Self::Worker(_) => "worker",
            Self::Live(_) => "sink",
        }
    }

    /// Name of the stage, and of its stream if it fills one.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Source(section) => &section.name,
            Self::Merge(section) => &section.name,
            Self::Worker(section) => &section.name,
            Self::Live(section) => &section.name,
        }
    }

    /// Line of its header.
    #[must_use]
    pub fn line(&self) -> u32 {
        match self {
            Self::Source(section) => section.line,
            Self::Merge(section) => section.line,
            Self::Worker(section) => section.line,
            Self::Live(section) => section.line,
        }
    }

    /// The streams that it reads and accounts for; none of a source.
    #[must_use]
    pub fn inputs(&self) -> &[String] {
        match self {
            Self::Source(_) => &[],
            Self::Merge(section) => &section.inputs.value,
            Self::Worker(section) => &section.inputs.value,
            Self::Live(section) => &section.inputs.value,
        }
    }

    /// The stream that it fills; none of a live sink.
    #[must_use]
    pub fn stream(&self) -> Option<&StreamSection> {
        match self {
            Self::Source(section) => Some(&section.stream),
            Self::Merge(section) => Some(&section.output),
            Self::Worker(section) => Some(&section.output),
            Self::Live(_) => None,
        }
    }

    /// Bytes of shared memory of its own streams, without those of its books.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        match self {
            Self::Source(section) => {
                let live = section.stream.live.0;
                live.saturating_add(section.plan.beside_bytes(live))
            }
            Self::Live(_) => 0,
            Self::Merge(section) => section.output.live.0,
            Self::Worker(section) => {
                let slots = section.slot_live.0.saturating_mul(section.slots.value);
                slots.saturating_add(section.output.live.0)
            }
        }
    }

    /// Its resolved settings, as `check --show` prints them.
    pub(super) fn shown(&self) -> &[Shown] {
        match self {
            Self::Source(section) => &section.shown,
            Self::Merge(section) => &section.shown,
            Self::Worker(section) => &section.shown,
            Self::Live(section) => &section.shown,
        }
    }

    /// Its section if it is a source.
    #[must_use]
    pub fn source(&self) -> Option<&SourceSection> {
        if let Self::Source(section) = self { Some(section) } else { None }
    }

    /// Its section if it is a merge.
    #[must_use]
    pub fn merge(&self) -> Option<&MergeSection> {
        if let Self::Merge(section) = self { Some(section) } else { None }
    }

    /// Its section if it is a worker.
    #[must_use]
    pub fn worker(&self) -> Option<&WorkerSection> {
        if let Self::Worker(section) = self { Some(section) } else { None }
    }
}

impl Stage {
    /// Whether it has a place on each host that reads its stream, and on no other: the output of a worker on several
    /// hosts, and a merge of all parts.
    #[must_use]
    pub fn is_on_each_reader(&self) -> bool {
        self.worker().is_some_and(|worker| worker.hosts.is_some())
            || self.merge().is_some_and(|merge| merge.is_on_each_reader)
    }

    /// Whether it fills the stream of its name.
    #[must_use]
    pub fn fills_stream(&self) -> bool {
        self.stream().is_some()
    }
}

impl Instrument {
    /// The stage that fills a stream.
    #[must_use]
    pub fn stage(&self, stream: &str) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name() == stream && stage.fills_stream())
    }

    /// The stages that fill streams, by name: for those who look up many.
    pub(crate) fn stages_by_stream(&self) -> HashMap<&str, &Stage> {
        // The first of two with one name, as `stage`.
        let filling = self.stages.iter().rev().filter(|stage| stage.fills_stream());
        filling.map(|stage| (stage.name(), stage)).collect()
    }

    /// Sources in the order of the file.
    pub fn sources(&self) -> impl Iterator<Item = &SourceSection> + Clone {
        self.stages.iter().filter_map(Stage::source)
    }

    /// Merges in the order of the file.
    pub fn merges(&self) -> impl Iterator<Item = &MergeSection> + Clone {
        self.stages.iter().filter_map(Stage::merge)
    }

    /// Workers in the order of the file.
    pub fn workers(&self) -> impl Iterator<Item = &WorkerSection> + Clone {
        self.stages.iter().filter_map(Stage::worker)
    }

    /// Live sinks in the order of the file.
    pub fn live_sinks(&self) -> impl Iterator<Item = &LiveSection> + Clone {
        self.stages.iter().filter_map(|stage| if let Stage::Live(section) = stage { Some(section) } else { None })
    }

    /// Keeps secrets of sources and live sinks from the processes that are started: they need none.
    pub(super) fn hide_secrets(&self) {
        let sources = self.sources().flat_map(|section| section.plan.secrets());
        store::printed::hide_variables(sources.chain(self.live_sinks().flat_map(|section| section.plan.secrets())));
    }

    /// Sorts the stages: sources first, since any stage may read them, then the others by their line, since a stage
    /// reads only stages above it; live sinks last, since none reads them and they may read any. The stages that one
    /// section makes keep their order: the copy of a merge comes after its view.
    pub(super) fn sort_stages(&mut self) {
        self.stages.sort_by_key(|stage| match stage {
            Stage::Source(_) => (0, 0),
            Stage::Merge(_) | Stage::Worker(_) => (1, stage.line()),
            Stage::Live(_) => (2, stage.line()),
        });
    }
}
