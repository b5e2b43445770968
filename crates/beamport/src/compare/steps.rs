//! How far a worker was in its inputs where its output stood, from its commits.

use flow::records::{BEYOND, Commit};
use flow::{Data, Fault, commits};
use std::collections::BTreeMap;

/// The next message of each input, by name and identity of the stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Position(BTreeMap<(String, [u8; 16]), u64>);

impl Position {
    /// All of it lies at another or behind.
    pub(super) fn reaches(&self, other: &Self) -> bool {
        other.0.iter().all(|(stream, next)| self.0.get(stream).is_none_or(|own| own >= next))
    }

    /// Both are of an input.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.0.keys().any(|stream| other.0.contains_key(stream))
    }

    /// The larger of both, input by input.
    pub(super) fn max(&self, other: &Self) -> Self {
        let mut all = self.0.clone();
        for (stream, next) in &other.0 {
            let known = all.entry(stream.clone()).or_default();
            *known = *next.max(known);
        }
        Self(all)
    }
}

/// The places of an output that lie between two messages of the inputs: what is before them was made of what is before.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    steps: Vec<(u64, Position)>,
    /// What it was too slow for: stream, first, one past the last.
    slow: Vec<(String, u64, u64)>,
}

impl Steps {
    /// Of a worker.
    pub(super) fn of(data: &Data, name: &str) -> Result<Self, Fault> {
        let header = store::Header::read(data.media.as_ref(), &data.stream(name));
        let header = header.map_err(|e| flow::stream_fault(name, e))?;
        let uuid = store::hex(&header.uuid);
        let (mut all, mut is_other) = (Self::default(), false);
        for bytes in data.book_messages(&commits::commits_of(name))? {
            // A worker's commits name the stream that they speak of; sources and merges have other states.
            is_other |= all.add(&Commit::read(&bytes)?, &uuid).is_none();
        }
        let book = store::Header::read(data.media.as_ref(), &data.stream(&commits::commits_of(name)));
        if is_other || book.is_err() {
            let what = format!("cannot compare stream `{name}`");
            return Err(Fault::new(what, "it is not the stream of a worker")
                .hint("name the streams of two workers with the same inputs"));
        }
        Ok(all)
    }

    /// Takes a commit; none where it is not that of a worker.
    fn add(&mut self, commit: &Commit, uuid: &str) -> Option<()> {
        let state: serde_json::Value = serde_json::from_str(&commit.state).unwrap_or_default();
        if state["output"].as_str()? != uuid {
            return Some(());
        }
        let of = |next: &dyn Fn(&flow::records::Input) -> u64| {
            Position(commit.inputs.iter().map(|input| ((input.stream.clone(), input.uuid), next(input))).collect())
        };
        if self.steps.is_empty() && commit.block == 0 {
            self.steps.push((commit.output_first, of(&|input| input.first)));
        }
        for gap in commit.gaps.iter().filter(|gap| gap.reason == "slow") {
            match self.slow.last_mut() {
                Some(last) if last.0 == gap.stream && last.2 == gap.first => last.2 = gap.last + 1,
                _ => self.slow.push((gap.stream.clone(), gap.first, gap.last.saturating_add(1))),
            }
        }
        // Where later messages are in the output already, it says nothing.
        if commit.inputs.iter().all(|input| input.count(BEYOND) == 0) {
            self.steps.push((commit.output_next, of(&|input| input.next)));
        }
        Some(())
    }

    /// Those from a place of the output on.
    pub(super) fn from(mut self, first: u64) -> Self {
        self.steps.retain(|step| step.0 >= first);
        self
    }

    /// All, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &Position)> {
        self.steps.iter().map(|(at, position)| (*at, position))
    }

    /// The first position.
    pub(super) fn begin(&self) -> Option<&Position> {
        self.steps.first().map(|step| &step.1)
    }

    /// The last.
    pub(super) fn end(&self) -> Option<&Position> {
        self.steps.last().map(|step| &step.1)
    }

    /// The first step at or behind a position.
    pub(super) fn first_at(&self, position: &Position) -> Option<(u64, &Position)> {
        // Positions rise from step to step.
        let at = self.steps.partition_point(|step| !step.1.reaches(position));
        self.steps.get(at).map(|(at, position)| (*at, position))
    }

    /// The last step at or before a position.
    pub(super) fn last_at(&self, position: &Position) -> Option<(u64, &Position)> {
        let at = self.steps.partition_point(|step| position.reaches(&step.1));
        self.steps.get(at.checked_sub(1)?).map(|(at, position)| (*at, position))
    }

    /// The positions before and behind a message of the output.
    pub(super) fn around(&self, at: u64) -> Option<(&Position, &Position)> {
        let behind = self.steps.partition_point(|step| step.0 <= at);
        Some((&self.steps.get(behind.checked_sub(1)?)?.1, &self.steps.get(behind)?.1))
    }

    /// True if it was too slow for any message between two positions.
    pub(super) fn was_slow(&self, between: Option<(&Position, &Position)>) -> bool {
        let Some((before, behind)) = between else { return false };
        let of = |position: &Position, stream: &str| {
            position.0.iter().find(|(key, _)| key.0 == stream).map(|found| *found.1)
        };
        self.slow.iter().any(|(stream, first, end)| {
            of(before, stream).is_some_and(|from| from < *end) && of(behind, stream).is_some_and(|to| to > *first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(next: u64) -> Position {
        Position([(("raw".to_owned(), [0; 16]), next)].into())
    }

    #[test]
    fn steps_are_found_before_and_behind_a_position() {
        let steps = Steps { steps: vec![(0, at(0)), (5, at(10)), (9, at(20))], slow: vec![("raw".into(), 12, 14)] };
        assert_eq!(steps.first_at(&at(10)), Some((5, &at(10))));
        assert_eq!(steps.first_at(&at(11)), Some((9, &at(20))));
        assert_eq!(steps.first_at(&at(21)), None);
        assert_eq!(steps.last_at(&at(19)), Some((5, &at(10))));
        assert_eq!(steps.last_at(&at(99)), Some((9, &at(20))));
        assert_eq!(steps.around(4), Some((&at(0), &at(10))));
        assert_eq!(steps.around(9), None);
        assert!(steps.was_slow(steps.around(5)) && !steps.was_slow(steps.around(0)) && !steps.was_slow(None));
        let rest = steps.from(5);
        assert_eq!((rest.begin(), rest.end()), (Some(&at(10)), Some(&at(20))));
        assert!(at(3).max(&at(5)).reaches(&at(5)));
    }
}
