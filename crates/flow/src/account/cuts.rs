//! Marked messages that recoveries cut from the streams of stages, because the medium was damaged.
//!
//! A source repeats such gaps in each table of totals, a merge or a worker the newest in each commit, so that `beamport
//! ls` lists them as long as the stream exists, even after the book has discarded the commit that found them.

use crate::Fault;
use crate::book::Book;
use crate::records::{CUT, Commit, Gap};
use store::{Recovery, Writer};

/// Cuts that are repeated: each is a damaged medium.
pub(crate) const CUTS_MAX: usize = 100;

/// The messages below `end` that were marked and that the opening of the stream has cut.
pub(crate) fn cut(writer: &Writer, end: u64) -> Option<Gap> {
    let Recovery::Cut { first, marked, .. } = *writer.recovery() else { return None };
    let next = marked.min(end);
    (first < next).then(|| Gap::sequences(&writer.header().name, first..=next - 1, CUT))
}

/// The cuts of the output of a merge or a worker that its commits repeat.
#[derive(Default)]
pub(crate) struct Cuts {
    gaps: Vec<Gap>,
}

impl Cuts {
    /// Those of the newest commit, and what the opening of the output has cut of what that commit speaks of. Its newest
    /// `again` messages are shown again.
    ///
    /// A new cut is committed at once, as a repetition of that commit: the process may end before there is another. The
    /// repetition says where the output ends now, so that what comes there is not taken for what was cut.
    pub(crate) fn open(
        book: &mut Book,
        commit: &mut Commit,
        output: &Writer,
        again: u64,
        now: i64,
    ) -> Result<Self, Fault> {
        let is_cut = |gap: &&Gap| gap.by_sequence && gap.reason == CUT && gap.stream == output.header().name;
        let mut gaps: Vec<Gap> = commit.gaps.iter().filter(is_cut).cloned().collect();
        let Some(new) = cut(output, commit.output_next - again) else { return Ok(Self { gaps }) };
        gaps.push(new);
        gaps.drain(..gaps.len().saturating_sub(CUTS_MAX));
        let ends = output.next_sequence();
        *commit = Commit {
            block: commit.block + 1,
            time: now,
            gaps: gaps.clone(),
            output_first: commit.output_first.min(ends),
            output_next: ends + again,
            ..commit.clone()
        };
        book.append(commit)?;
        book.settle()?;
        Ok(Self { gaps })
    }

    /// For the next commit.
    pub(crate) fn repeated(&self) -> Vec<Gap> {
        self.gaps.clone()
    }
}
