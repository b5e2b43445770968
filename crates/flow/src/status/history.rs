//! The results of a watch's earlier looks at a stream, so that each look reads only new entries.
//!
//! Constraints: bytes are summed in blocks of entries, and a block that retention took in part is summed again. The
//! ledger is asked at most 5 % of the time.

use super::alarms::Alarms;
use crate::limits::{LEDGER_PAUSE, LOSES_NS};
use crate::records::{Gap, Run};
use crate::{Data, Fault, ledger};
use std::collections::{BTreeMap, HashMap, VecDeque};
use store::{Clock, Entry, Reader};
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
    /// When the number of lost messages rose last, ns of `Media::clock`.
    rose: Option<i64>,
    pub(super) alarms: Alarms,
}

/// The lost messages of a stream, from the ledger.
#[derive(Clone)]
pub(super) struct LossCount {
    /// When it was asked, ns of `Media::clock`.
    asked: i64,
    /// How long the answer took, ns.
    took: i64,
    /// Messages.
    pub(super) count: u64,
    /// The reason of most of them.
    pub(super) reason: Option<String>,
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
                let Some(bytes) =
                    present(sum(reader, bounds.first, end.min(self.next.max(bounds.first)), &mut |_, _| {}))?
                else {
                    continue;
                };
                if let Some(front) = self.blocks.front_mut() {
                    *front = (bounds.first, bytes);
                }
            }
            while at < bounds.count {
                let end = ((at / BLOCK + 1) * BLOCK).min(bounds.count);
                let mut note = |sequence, entry: &Entry| self.alarms.note(sequence, entry);
                let Some(bytes) = present(sum(reader, at, end, &mut note))? else { break };
                match self.blocks.back_mut() {
                    Some(back) if back.0 / BLOCK == at / BLOCK => back.1 += bytes,
                    _ => self.blocks.push_back((at, bytes)),
                }
                self.came = (self.came.0 + end - at, self.came.1 + bytes);
                (at, self.next) = (end, end);
            }
            if at >= bounds.count {
                self.alarms.catch_up(reader);
                return Ok(());
            }
        }
    }

    /// Asks the ledger what is lost and cut of a stream, where that is due.
    pub(super) fn ask_ledger(&mut self, data: &Data, name: &str, filled: &[ledger::Row]) -> Result<(), Fault> {
        let clock = || data.media.clock();
        let is_due = |lost: &LossCount| clock().saturating_sub(lost.asked) >= lost.took.saturating_mul(LEDGER_PAUSE);
        let before = self.lost.as_ref().map(|lost| lost.count);
        if self.lost.as_ref().is_none_or(is_due) {
            let began = clock();
            // Of one that a stage fills the messages entered elsewhere: what is lost of them, that stage says.
            let entries = if filled.is_empty() { ledger::entries(data, name)?.0 } else { Vec::new() };
            let count = ledger::total(entries.iter().flat_map(|e| e.lost.values()));
            let reason = most(entries.iter().flat_map(|e| &e.lost));
            self.cut = ledger::cuts(data, name)?;
            let asked = clock();
            self.lost = Some(LossCount { asked, took: asked.saturating_sub(began), count, reason });
        }
        if let Some(lost) = self.lost.as_mut().filter(|_| !filled.is_empty()) {
            lost.count = ledger::lost(filled);
            lost.reason = most(filled.iter().flat_map(|row| &row.lost));
        }
        if before.zip(self.lost.as_ref()).is_some_and(|(before, lost)| lost.count > before) {
            self.rose = Some(clock());
        }
        Ok(())
    }

    /// Whether messages were lost a short time before `clock`.
    pub(super) fn loses(&self, clock: i64) -> bool {
        self.rose.is_some_and(|rose| clock.saturating_sub(rose) < LOSES_NS)
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

/// The reason of most messages.
fn most<'a>(lost: impl Iterator<Item = (&'a String, &'a u64)>) -> Option<String> {
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    lost.for_each(|(reason, count)| *all.entry(reason).or_default() += count);
    let (reason, count) = all.into_iter().max_by_key(|(_, count)| *count)?;
    (count > 0).then(|| reason.to_owned())
}

/// Bytes of payload of a range that is in one index segment; `see` sees its entries.
fn sum(reader: &mut Reader, from: u64, to: u64, see: &mut dyn FnMut(u64, &Entry)) -> store::Result<u64> {
    let (mut at, mut bytes) = (from, 0);
    while at < to {
        let entries = reader.entries(at, (to - at) as usize)?;
        if entries.is_empty() {
            break;
        }
        entries.iter().zip(at..).for_each(|(entry, sequence)| see(sequence, entry));
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
