//! Members of groups, for code that is given the messages of each group.
//!
//! The runner is a named reader of the stream that the groups are of, and holds there the first member of all groups
//! that are not committed.
//!
//! Failure behaviour: members that were deleted before the reader was there are missing, and the code's slot sets their
//! group aside.

use super::inputs_of;
use super::source::Source;
use crate::Fault;
use crate::data::Data;
use crate::limits::GROUPS_LOOK;
use store::{Kind, ReadOptions, Reader};

/// Readers that hold members, one an input.
pub(super) struct Members {
    data: Data,
    stage: String,
    holds: Vec<Option<Reader>>,
}

impl Members {
    pub(super) fn new(data: &Data, stage: &str, inputs: usize) -> Self {
        Self { data: data.clone(), stage: stage.to_owned(), holds: (0..inputs).map(|_| None).collect() }
    }

    /// Holds the members of groups that are not committed, and of those that the worker before may still make.
    pub(super) fn hold(&mut self, sources: &mut [Source]) -> Result<(), Fault> {
        for (hold, source) in self.holds.iter_mut().zip(sources) {
            let groups = source.account.stream.as_str();
            let reader = match hold {
                Some(reader) => reader,
                None => {
                    // Before its first commit the worker before has given nothing up.
                    let Some(input) = inputs_of(&self.data, groups)?.into_iter().next() else { continue };
                    let name = format!("keeps {}", self.stage);
                    let options = ReadOptions { name, kind: Kind::Counted, early: true, ..ReadOptions::default() };
                    hold.insert(self.data.reader(&input.stream, options)?)
                }
            };
            // In this order: a group that comes meanwhile has no member before these positions.
            let keeps = format!("keeps {groups}");
            let of_groups = |name: &str| name == groups || name == keeps;
            let held = reader.pins().readers().into_iter().filter(|r| of_groups(&r.name)).map(|r| r.committed).min();
            let mut first = held.unwrap_or(0);
            for sequence in source.committed..source.committed.saturating_add(GROUPS_LOOK) {
                let Ok(Some((_, bytes))) = source.reader.get(sequence) else { break };
                first = wire::bpgr::read(&bytes).map_or(first, |group| first.min(group.first));
            }
            if first > reader.committed() {
                reader.commit(first);
            }
        }
        Ok(())
    }

    /// Releases what earlier code of a worker held.
    pub(super) fn release(data: &Data, stage: &str, sources: &[Source]) -> Result<(), Fault> {
        for source in sources {
            if let Some(input) = inputs_of(data, &source.account.stream)?.into_iter().next() {
                data.release(&input.stream, &format!("keeps {stage}"))?;
            }
        }
        Ok(())
    }
}
