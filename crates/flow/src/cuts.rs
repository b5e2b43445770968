//! What recoveries cut of the streams of stages: messages that were marked, on a medium that is damaged.
//!
//! A source commits such a gap once. A merge or a worker, whose book lets its oldest commits go, repeats the newest in each
//! commit, so that `beamport ls` lists them as long as the stream is there.

use crate::records::{CUT, Commit, Gap};
use store::{Recovery, Writer};

/// Cuts that are repeated: each is a damaged medium.
const CUTS_MAX: usize = 100;

/// The messages below `end` that were marked and that the opening of the stream has cut.
pub(crate) fn cut(writer: &Writer, end: u64) -> Option<Gap> {
    let Recovery::Cut { first, marked, .. } = *writer.recovery() else { return None };
    let next = marked.min(end);
    (first < next).then(|| Gap {
        stream: writer.header().name.clone(),
        origin: String::new(),
        first,
        last: next - 1,
        from: i64::MIN,
        to: i64::MAX,
        reason: CUT.into(),
        by_sequence: true,
    })
}

/// The cuts of the output of a merge or a worker that its commits repeat.
#[derive(Default)]
pub(crate) struct Cuts {
    gaps: Vec<Gap>,
    /// One of them is in no commit.
    is_new: bool,
}

impl Cuts {
    /// Those of the newest commit, and what the opening of the output has cut. What was shown behind `end`, the place up to
    /// which the output is committed, is shown again.
    pub(crate) fn open(commit: &Commit, output: &Writer, end: u64) -> Self {
        let is_cut = |gap: &&Gap| gap.by_sequence && gap.reason == CUT && gap.stream == output.header().name;
        let mut gaps: Vec<Gap> = commit.gaps.iter().filter(is_cut).cloned().collect();
        let new = cut(output, end);
        let is_new = new.is_some();
        gaps.extend(new);
        gaps.drain(..gaps.len().saturating_sub(CUTS_MAX));
        Self { gaps, is_new }
    }

    /// A commit is to be written although nothing else has changed.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// For the next commit.
    pub(crate) fn commit(&mut self) -> Vec<Gap> {
        self.is_new = false;
        self.gaps.clone()
    }
}
