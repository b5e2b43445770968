//! The ids that a merge by number lacks, or has in part.

use crate::ledger::filled;
use crate::records::{Commit, Gap};
use crate::{Data, Fault, commits_of};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// The ids that a merge by number lacks, or has in part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Merge.
    pub stage: String,
    /// Ids of which nothing came, since ever.
    pub missing: u64,
    /// Ids of which not all came, since ever.
    pub incomplete: u64,
    /// Of these, by how many parts did not come.
    pub without: BTreeMap<u32, u64>,
    /// The newest of both that its book still lists, oldest first.
    pub gaps: VecDeque<Gap>,
}

/// Gaps of one merge that are listed: the counts say how many there are.
const MISSING_MAX: usize = 1000;

/// The ids that a merge by number did not have; none for another stage, and where all are there.
pub fn missing(data: &Data, name: &str) -> Result<Option<Missing>, Fault> {
    let Some((missing, without)) = filled(data, name)?.and_then(|commit| crate::merge::missing(&commit)) else {
        return Ok(None);
    };
    let incomplete = without.values().sum();
    let mut all = Missing { stage: name.to_owned(), missing, incomplete, without, gaps: VecDeque::new() };
    for message in data.book_messages(&commits_of(name))? {
        for gap in Commit::read(&message)?.gaps.into_iter().filter(|g| g.stream == name && !g.by_sequence) {
            match all.gaps.back_mut() {
                Some(last) if last.reason == gap.reason && last.last.checked_add(1) == Some(gap.first) => {
                    last.last = gap.last;
                }
                _ => all.gaps.push_back(gap),
            }
            if all.gaps.len() > MISSING_MAX {
                all.gaps.pop_front();
            }
        }
    }
    Ok((missing + incomplete > 0).then_some(all))
}
