//! The results of a watch's earlier looks at a stream, so that each look reads only new entries.
//!
//! Constraints: bytes are summed in blocks of entries, and a block that retention took in part is summed again. The
//! ledger is asked at most 5 % of the time.

use crate::limits::LEDGER_PAUSE;
use crate::records::{Gap, Run};
use crate::{Data, Fault, ledger};
use std::collections::{HashMap, VecDeque};
use store::{Clock, Reader};
use wire::bprn::State;

/// Entries of one sum: retention moves in steps of segments, and a partly taken sum is made again from its rest.
const BLOCK: u64 = 4096;

/// The results of earlier looks at a stream.
#[derive(Default)]
pub(super) struct History {
    pub(super) uuid: [u8; 16],
    /// Entries below were looked at.
    pub(super) next: u64,
    /// (first sequence, bytes of payload) of blocks, oldest first; the last one may grow.
    blocks: VecDeque<(u64, u64)>,
    /// Messages and bytes that came since the last look.
    pub(super) came: (u64, u64),
    /// Late messages by run: (looked at below this sequence, count).
    pub(super) late: HashMap<String, (u64, u64)>,
    pub(super) lost: Option<LossCount>,
    /// Marked messages that recoveries have cut.
    pub(super) cut: Vec<Gap>,
}

/// The lost messages of a stream, from the ledger.
#[derive(Clone, Copy)]
pub(super) struct LossCount {
    /// When it was asked, ns of `Media::clock`.
    asked: i64,
    /// How long the answer took, ns.
    took: i64,
    /// Messages.
    pub(super) count: u64,
}

impl History {
    /// Nothing yet, of the stream of this identity.
    pub(super) fn new(uuid: [u8; 16]) -> Self {
        Self { uuid, ..Self::default() }
    }

    /// Looks at the entries that came since the last time and forgets those that went.
    pub(super) fn catch_up(&mut self, reader: &mut Reader) -> store::Result<()> {
        self.came = (0, 0);
        loop {
            let bounds = reader.bounds();
            while self.blocks.front().is_some_and(|b| b.0 / BLOCK < bounds.first / BLOCK) {
                self.blocks.pop_front();
            }
            let mut at = self.next.max(bounds.first);
            if self.blocks.front().is_some_and(|b| b.0 < bounds.first) {
                // The oldest block was taken in part: its rest is looked at again.
                let end = (bounds.first / BLOCK + 1) * BLOCK;
                let Some(bytes) = present(sum(reader, bounds.first, end.min(self.next.max(bounds.first))))? else {
                    continue;
                };
                if let Some(front) = self.blocks.front_mut() {
                    *front = (bounds.first, bytes);
                }
            }
            while at < bounds.count {
                let end = ((at / BLOCK + 1) * BLOCK).min(bounds.count);
                let Some(bytes) = present(sum(reader, at, end))? else { break };
                match self.blocks.back_mut() {
                    Some(back) if back.0 / BLOCK == at / BLOCK => back.1 += bytes,
                    _ => self.blocks.push_back((at, bytes)),
                }
                self.came = (self.came.0 + end - at, self.came.1 + bytes);
                (at, self.next) = (end, end);
            }
            if at >= bounds.count {
                return Ok(());
            }
        }
    }

    /// Asks the ledger what is lost and cut of a stream, where that is due.
    pub(super) fn ask_ledger(&mut self, data: &Data, name: &str, filled: &[ledger::Row]) -> Result<(), Fault> {
        let clock = || data.media.clock();
        let is_due = |lost: LossCount| clock().saturating_sub(lost.asked) >= lost.took.saturating_mul(LEDGER_PAUSE);
        if self.lost.is_none_or(is_due) {
            let began = clock();
            let count = match filled.is_empty() {
                true => ledger::total(ledger::entries(data, name)?.0.iter().flat_map(|e| e.lost.values())),
                // Its messages entered elsewhere: what is lost of them, the stage that fills it says.
                false => 0,
            };
            self.cut = ledger::cuts(data, name)?;
            let asked = clock();
            self.lost = Some(LossCount { asked, took: asked.saturating_sub(began), count });
        }
        if let Some(lost) = self.lost.as_mut().filter(|_| !filled.is_empty()) {
            lost.count = ledger::lost(filled);
        }
        Ok(())
    }

    /// Bytes of payload from a sequence on; a block that it lies in is counted in proportion.
    pub(super) fn bytes_from(&self, from: u64) -> u64 {
        let ends = self.blocks.iter().skip(1).map(|b| b.0).chain([self.next]);
        self.blocks
            .iter()
            .zip(ends)
            .map(|(&(first, bytes), end)| match from {
                _ if from <= first => bytes,
                _ if from >= end => 0,
                _ => (u128::from(bytes) * u128::from(end - from) / u128::from(end - first)) as u64,
            })
            .sum()
    }

    /// Counts messages of sealed runs that came behind their seal.
    pub(super) fn count_late(&mut self, reader: &mut Reader, runs: &[Run]) -> store::Result<()> {
        let header = reader.header().clone();
        // By arrival nothing can be late: what comes behind the seal arrives behind the run.
        if header.clock != Clock::Epoch {
            return Ok(());
        }
        let mut from = u64::MAX;
        let mut open: Vec<(&Run, u64, u64)> = Vec::new();
        for run in runs.iter().filter(|r| r.state == State::Sealed) {
            let ranges = run.streams.iter().filter(|r| r.stream == header.name && r.uuid == header.uuid);
            let Some(sealed) = ranges.map(|r| r.next).max() else { continue };
            let (at, late) = self.late.get(&run.name).copied().unwrap_or((sealed, 0));
            from = from.min(at);
            open.push((run, at, late));
        }
        let bounds = reader.bounds();
        let mut at = from.max(bounds.first);
        while at < bounds.count && !open.is_empty() {
            let entries = match reader.entries(at, BLOCK.min(bounds.count - at) as usize) {
                Ok(entries) => entries,
                Err(store::Error::Gone { first }) => {
                    at = first;
                    continue;
                }
                Err(e) => return Err(e),
            };
            if entries.is_empty() {
                break;
            }
            let low = entries.iter().map(|e| e.source_time).min().unwrap_or(i64::MAX);
            let high = entries.iter().map(|e| e.source_time).max().unwrap_or(i64::MIN);
            for (run, sealed, late) in open.iter_mut().filter(|(run, ..)| run.start <= high && run.stop > low) {
                let behind = entries.iter().zip(at..).filter(|(_, sequence)| sequence >= sealed);
                *late += behind.filter(|(entry, _)| run.holds(entry.source_time)).count() as u64;
            }
            at += entries.len() as u64;
        }
        for (run, sealed, late) in open {
            self.late.insert(run.name.clone(), (at.max(sealed), late));
        }
        Ok(())
    }
}

/// Bytes of payload of a range that is in one index segment.
fn sum(reader: &mut Reader, from: u64, to: u64) -> store::Result<u64> {
    let (mut at, mut bytes) = (from, 0);
    while at < to {
        let entries = reader.entries(at, (to - at) as usize)?;
        if entries.is_empty() {
            break;
        }
        bytes += entries.iter().map(|e| u64::from(e.length)).sum::<u64>();
        at += entries.len() as u64;
    }
    Ok(bytes)
}

/// None where retention was faster than the look.
fn present<T>(answer: store::Result<T>) -> store::Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(store::Error::Gone { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}
