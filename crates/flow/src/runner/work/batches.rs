//! Where runs begin and end, and batches: blocks of exactly as many messages as user code takes together, counted
//! from the last commit.
//!
//! A batch is shorter where a run begins or ends, where the input ends, and where the input has no room for more:
//! waiting would be for ever then. So code sees the same batches of a run live and in a replay. Messages that are too
//! few for a batch are held, and the output is not complete behind them.

use super::source::Source;
use crate::Fault;
use crate::data::Data;
use crate::runs::RunsView;

/// Times at which runs begin and end.
pub(super) struct RunEdges {
    runs: RunsView,
    steps: u64,
    /// ns since 1970 UTC, in order.
    times: Vec<i64>,
    /// Those of them at which runs end.
    stops: Vec<i64>,
}

impl RunEdges {
    pub(super) fn new(data: &Data) -> Self {
        // A step that a power cut takes back has cut a batch short, and nothing else.
        Self { runs: RunsView::early(data), steps: 0, times: Vec::new(), stops: Vec::new() }
    }

    /// Reads new steps of runs. `looks`: it also looks for the stream of runs, where that was not there.
    pub(super) fn refresh(&mut self, looks: bool) -> Result<(), Fault> {
        if !self.runs.is_open() && !looks {
            return Ok(());
        }
        self.runs.refresh()?;
        let steps = self.runs.steps();
        if steps != self.steps {
            self.steps = steps;
            let sorted = |edges: &mut dyn Iterator<Item = i64>| {
                let mut times: Vec<i64> = edges.filter(|edge| *edge < i64::MAX).collect();
                times.sort_unstable();
                times.dedup();
                times
            };
            self.times = sorted(&mut self.runs.runs().iter().flat_map(|run| [run.start, run.stop]));
            self.stops = sorted(&mut self.runs.runs().iter().map(|run| run.stop));
        }
        Ok(())
    }

    /// The last time up to `time` at which a run ends.
    pub(super) fn last_stop(&self, time: i64) -> Option<i64> {
        self.stops.partition_point(|stop| *stop <= time).checked_sub(1).map(|at| self.stops[at])
    }

    /// The first time behind `time` at which a run ends.
    pub(super) fn next_stop(&self, time: i64) -> Option<i64> {
        self.stops.get(self.stops.partition_point(|stop| *stop <= time)).copied()
    }

    /// How many edges lie before a time or at it.
    fn before(&self, time: i64) -> usize {
        self.times.partition_point(|edge| *edge <= time)
    }

    /// The first edge behind a time.
    fn behind(&self, time: i64) -> Option<i64> {
        self.times.get(self.before(time)).copied()
    }
}

impl Source {
    /// How many messages from `first` on are the next block. `most` messages at most are looked at, of `there`. None:
    /// they are too few for a batch, and wait for more.
    pub(super) fn batches(
        &mut self,
        first: u64,
        (most, there): (u64, u64),
        batch: u64,
        edges: &RunEdges,
    ) -> Option<u64> {
        let clock = self.reader.header().clock;
        let (mut at, mut last) = (first, None);
        while at < first + most {
            let entries = self.reader.entries(at, (first + most - at) as usize).ok().filter(|e| !e.is_empty());
            // Messages that retention has deleted: a slot counts them.
            let Some(entries) = entries else { return Some(most) };
            for entry in entries {
                let time = clock.time_of(entry);
                if last.is_some_and(|last| edges.before(last) != edges.before(time)) {
                    return Some(at - first);
                }
                (at, last) = (at + 1, Some(time));
            }
        }
        let full = most / batch * batch;
        if full > 0 {
            return Some(full);
        }
        let edge = last.and_then(|last| edges.behind(last));
        let is_complete = edge.is_some_and(|edge| self.complete.0 >= edge && first + there >= self.complete.1);
        // Readers behind this one may make room.
        let is_last = || self.reader.pins().lowest_committed().is_none_or(|lowest| lowest >= self.committed);
        let is_stuck = self.is_blocked && first + there >= self.published() && is_last();
        (self.ended || is_complete || is_stuck).then_some(there)
    }
}
