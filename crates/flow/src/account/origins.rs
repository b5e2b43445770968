//! The accounts of a source's origins while its stream grows, and their part of the next commit.
//!
//! A number that falls by more than the reorder window (4,096) begins another life of its origin: `NAME#2`, `NAME#3`.
//! Otherwise a device that restarts its numbers would look like one that repeats messages, and hide losses.
//!
//! Constraints: an origin has one tally and at most [`GAP_ROWS_MAX`] gaps until they are committed; more are joined.

use crate::Fault;
use crate::limits::{GAP_ROWS_MAX, LIVES_MAX, SILENCES_MAX, TOTALS_BYTES_MAX, TOTALS_ROWS_MAX};
use crate::records::{Gap, REFUSED};
use crate::tally::{Missed, Tally, word_of};
use crate::totals::Entries;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use store::{Identity, Meta};

/// The position of a source at its start: the last numbers of each origin in its stream, so that numbers continue
/// without a gap after a restart.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// Origins that the stream knows.
    pub origins: Vec<ResumeOrigin>,
    /// The newest [`Source::state`](crate::Source::state) that is not ahead of the stream: all its messages exist. The
    /// stream may have later messages, which `origins` counts. Empty if the source has committed none.
    pub state: String,
    /// Of a mirror: the newest message that it repeats of each near stream, oldest stream first.
    pub mirrored: Vec<Identity>,
    /// By origin, the numbers of the messages that came after `state`, in the order of the stream. Only where
    /// [`Source::needs_tail`](crate::Source::needs_tail).
    pub tail: BTreeMap<String, Vec<u64>>,
}

/// One origin of a stream at a restart.
#[derive(Clone, Debug)]
pub struct ResumeOrigin {
    /// Its name.
    pub name: String,
    /// The number its next message should have: one past the highest in the stream or in a recorded gap.
    pub next_seq: u64,
    /// The source time of its newest message, ns since 1970 UTC.
    pub last_time: i64,
    /// Its newest life, from 1, to which `next_seq` and `last_time` belong.
    pub life: u32,
}

impl Resume {
    /// The number that the next message of `name` should have; 0 for an origin never seen.
    pub fn next_seq(&self, name: &str) -> u64 {
        self.origins.iter().find(|o| o.name == name).map_or(0, |o| o.next_seq)
    }
}

/// The accounts of the origins of a stream, into which a source puts what is missing or refused.
pub trait OriginAccounts {
    /// The row of an origin in the stream's origin table, made on first use.
    fn origin(&mut self, name: &str) -> Result<u32, Fault>;
    /// Counts messages of an origin as missing, on the word of the source: their own numbers, their times in ns since
    /// 1970 UTC, and the reason: `lost.WORD`, `skipped.WORD` if a setting of the user leaves them out, or a word alone,
    /// which is `lost`. A number that is named twice counts once; one that has arrived does not count. Numbers more
    /// than 4,096 below the highest one keep the reason that they have.
    fn missing(
        &mut self,
        origin: u32,
        numbers: RangeInclusive<u64>,
        times: RangeInclusive<i64>,
        reason: &str,
    ) -> Result<(), Fault>;
    /// Counts messages of an origin that never had a number, outside its account: `what` is `refused.REASON`.
    fn count(&mut self, origin: u32, what: &str, n: u64) -> Result<(), Fault>;
}

/// Numbers that are missing, until they are committed.
#[derive(Debug)]
struct Row {
    missed: Missed,
    from: i64,
    to: i64,
    reason: String,
}

/// One row of the origin table.
#[derive(Debug, Default)]
struct Origin {
    tally: Tally,
    /// Row of its newest life, where that is another.
    newest: Option<u32>,
    /// Lives so far, the first one not counted.
    lives: usize,
    is_changed: bool,
    gaps: Vec<Row>,
}

/// The accounts of all origins of a stream.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// By row of the origin table.
    rows: Vec<Origin>,
    /// Rows whose totals changed since the newest ones.
    changed: Vec<u32>,
    /// Rows with gaps to commit.
    with_gaps: Vec<u32>,
    /// Times to commit of which nothing is known.
    silences: Vec<Gap>,
    /// Some gaps to commit do not say any more which numbers are missing.
    is_joined: bool,
    /// Messages were refused since the newest totals.
    is_refused: bool,
    /// Bytes that were appended, with their index entries.
    pub(crate) bytes: u64,
    /// Source time of the newest message that is missing, as far as it is known.
    pub(crate) lost_to: Option<i64>,
}

/// The origin of which `name` is a later life, and which one.
fn life_of(name: &str) -> Option<(&str, usize)> {
    let (base, life) = name.rsplit_once('#')?;
    let life: usize = life.parse().ok()?;
    (life >= 2 && name.ends_with(&format!("#{life}"))).then_some((base, life))
}

/// The origin that is this life of a device, counted from 1: `board`, `board#2`.
pub fn name_of_life(device: &str, life: u32) -> String {
    match life {
        1 => device.to_owned(),
        life => format!("{device}#{life}"),
    }
}

/// The name of the device of which an origin is a life: `board` of `board#3`. Comparisons of names use it.
pub fn device_of(origin: &str) -> &str {
    life_of(origin).map_or(origin, |(base, _)| base)
}

/// The accounts that a source resumes from: of each origin the newest life.
pub(crate) fn resume_of(tallies: &BTreeMap<String, Tally>, state: String) -> Resume {
    let mut newest: BTreeMap<&str, (usize, &Tally)> = BTreeMap::new();
    for (name, tally) in tallies {
        let (base, life) = life_of(name).filter(|(base, _)| tallies.contains_key(*base)).unwrap_or((name, 1));
        let of_base = newest.entry(base).or_insert((life, tally));
        if life > of_base.0 {
            *of_base = (life, tally);
        }
    }
    let origin = |(name, (life, tally)): (&str, (usize, &Tally))| ResumeOrigin {
        name: name.to_owned(),
        next_seq: tally.next,
        last_time: tally.last_time,
        life: u32::try_from(life).unwrap_or(u32::MAX),
    };
    Resume { origins: newest.into_iter().map(origin).collect(), state, ..Resume::default() }
}

impl Origins {
    /// The accounts of a stream; `names`: its origin table.
    pub(crate) fn new(names: &[String], entries: &mut Entries) -> Self {
        let gaps = entries.commits.iter().flat_map(|commit| &commit.gaps).filter(|gap| !gap.by_sequence);
        let lost_to = gaps.map(|gap| gap.to).filter(|to| *to < i64::MAX).max();
        let mut origins = Self { lost_to, ..Self::default() };
        for (row, name) in names.iter().enumerate() {
            let tally = entries.tallies.remove(name).unwrap_or_default();
            origins.rows.push(Origin { tally, ..Origin::default() });
            if entries.changed.contains(name) {
                origins.change(row as u32);
            }
        }
        for (row, name) in names.iter().enumerate() {
            let Some((base, life)) = life_of(name) else { continue };
            let Some(base) = names.iter().position(|name| name == base) else { continue };
            let base = &mut origins.rows[base];
            if life > base.lives {
                (base.lives, base.newest) = (life, Some(row as u32));
            }
        }
        origins
    }

    /// Whether there is such a row.
    pub(crate) fn has(&self, row: u32) -> bool {
        (row as usize) < self.rows.len()
    }

    /// Refuses a row that the stream does not have.
    pub(crate) fn known(&self, stream: &str, row: u32) -> Result<(), Fault> {
        if self.has(row) {
            return Ok(());
        }
        Err(Fault::new(format!("stream `{stream}` has no origin {row}"), ""))
    }

    /// Counts numbers of an origin of a stream as missing, in its newest life.
    pub(crate) fn miss(
        &mut self,
        stream: &str,
        row: u32,
        numbers: RangeInclusive<u64>,
        times: RangeInclusive<i64>,
        reason: &str,
    ) -> Result<(), Fault> {
        self.known(stream, row)?;
        self.lose(self.newest(row), numbers, times, reason);
        Ok(())
    }

    /// Counts messages of an origin of a stream that never had a number: `what` is `refused.REASON`.
    pub(crate) fn refuse(&mut self, stream: &str, row: u32, what: &str, n: u64) -> Result<(), Fault> {
        self.known(stream, row)?;
        if !what.starts_with(REFUSED) {
            let what = format!("source `{stream}` counts messages without a number as `{what}`");
            return Err(Fault::new(what, "messages that are outside the account are `refused.REASON`"));
        }
        self.count(self.newest(row), what, n);
        Ok(())
    }

    /// Adds rows that the origin table has.
    pub(crate) fn grow(&mut self, rows: usize) {
        self.rows.resize_with(rows.max(self.rows.len()), Origin::default);
    }

    /// The row of the newest life of an origin.
    #[inline]
    pub(crate) fn newest(&self, row: u32) -> u32 {
        self.rows[row as usize].newest.unwrap_or(row)
    }

    /// The name of the life that this number begins, if it begins one.
    #[inline]
    pub(crate) fn begins(&self, row: u32, number: u64, names: &[String]) -> Option<String> {
        if !self.rows[self.newest(row) as usize].tally.falls(number) {
            return None;
        }
        let lives = self.rows[row as usize].lives.max(1) + 1;
        (lives <= LIVES_MAX).then(|| name_of_life(&names[row as usize], lives as u32))
    }

    /// From now on messages of `row` are counted in `newest`.
    pub(crate) fn begin(&mut self, row: u32, newest: u32) {
        self.grow(newest as usize + 1);
        let origin = &mut self.rows[row as usize];
        (origin.lives, origin.newest) = (origin.lives.max(1) + 1, Some(newest));
    }

    /// Counts a message that was appended, of `len` bytes.
    #[inline]
    pub(crate) fn see(&mut self, meta: &Meta, len: usize) {
        self.bytes += (len + store::ENTRY_BYTES) as u64;
        self.rows[meta.origin as usize].tally.see(meta.origin_seq, meta.source_time);
        self.change(meta.origin);
    }

    /// Counts a message that was dropped for want of room.
    pub(crate) fn drop_one(&mut self, meta: &Meta) {
        let (number, time) = (meta.origin_seq, meta.source_time);
        self.lose(meta.origin, number..=number, time..=time, "full");
    }

    /// Counts numbers as missing.
    pub(crate) fn lose(&mut self, row: u32, numbers: RangeInclusive<u64>, times: RangeInclusive<i64>, reason: &str) {
        let origin = &mut self.rows[row as usize];
        let tally = &mut origin.tally;
        let Some(missed) = tally.lose(numbers, reason) else { return };
        if tally.appended == 0 && *times.end() < i64::MAX {
            tally.last_time = tally.last_time.max(*times.end());
        }
        if origin.gaps.is_empty() {
            self.with_gaps.push(row);
        }
        let (from, to) = times.into_inner();
        self.lost_to = self.lost_to.max(Some(to).filter(|to| *to < i64::MAX));
        self.is_joined |= note(&mut origin.gaps, Row { missed, from, to, reason: reason.to_owned() });
        self.change(row);
    }

    /// Counts messages without a number.
    pub(crate) fn count(&mut self, row: u32, what: &str, n: u64) {
        self.rows[row as usize].tally.add(&word_of(what), n);
        self.is_refused = true;
        self.change(row);
    }

    /// Notes a time of which nothing is known.
    pub(crate) fn silence(&mut self, gap: Gap) {
        let is_full = self.silences.len() >= SILENCES_MAX;
        match self.silences.iter_mut().rev().find(|known| is_full && known.reason == gap.reason) {
            Some(known) => (known.from, known.to) = (known.from.min(gap.from), known.to.max(gap.to)),
            None => self.silences.push(gap),
        }
    }

    #[inline]
    fn change(&mut self, row: u32) {
        let origin = &mut self.rows[row as usize];
        if !origin.is_changed {
            origin.is_changed = true;
            self.changed.push(row);
        }
    }

    /// Whether there is a gap to commit.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.silences.is_empty() || !self.with_gaps.is_empty()
    }

    /// Whether totals changed since the newest ones.
    pub(crate) fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Whether messages were refused since the newest totals.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Whether gaps to commit count numbers without listing them: only totals in the same commit make them exact.
    pub(crate) fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// The gaps to commit.
    pub(crate) fn gaps(&self, stream: &str, names: &[String]) -> Vec<Gap> {
        let mut gaps = self.silences.clone();
        for &origin in &self.with_gaps {
            let name = &names[origin as usize];
            gaps.extend(self.rows[origin as usize].gaps.iter().map(|row| Gap {
                from: row.from,
                to: row.to,
                count: if row.missed.is_listed() { 0 } else { row.missed.count },
                ..Gap::numbers(stream, name, row.missed.first..=row.missed.last, &row.reason)
            }));
        }
        gaps
    }

    /// Forgets gaps that were committed.
    pub(crate) fn clear_gaps(&mut self) {
        self.silences.clear();
        for origin in self.with_gaps.drain(..) {
            self.rows[origin as usize].gaps = Vec::new();
        }
        self.is_joined = false;
    }

    /// Rows for totals: of all origins, or of those that changed.
    fn chosen(&self, is_table: bool) -> Box<dyn Iterator<Item = u32> + '_> {
        if is_table { Box::new(0..self.rows.len() as u32) } else { Box::new(self.changed.iter().copied()) }
    }

    /// About how many bytes the totals take.
    pub(crate) fn totals_bytes(&self, is_table: bool, names: &[String]) -> u64 {
        self.chosen(is_table).map(|row| self.row_bytes(row, names)).sum()
    }

    fn row_bytes(&self, row: u32, names: &[String]) -> u64 {
        self.rows[row as usize].tally.bytes() + names[row as usize].len() as u64
    }

    /// Totals in parts; at least one, perhaps without a row.
    pub(crate) fn totals(&self, is_table: bool, names: &[String]) -> Vec<Vec<(String, Tally)>> {
        let mut parts = vec![Vec::new()];
        let mut bytes = 0;
        for row in self.chosen(is_table) {
            let part = parts.len() - 1;
            bytes += self.row_bytes(row, names);
            if parts[part].len() >= TOTALS_ROWS_MAX || bytes > TOTALS_BYTES_MAX && !parts[part].is_empty() {
                parts.push(Vec::new());
                bytes = self.row_bytes(row, names);
            }
            let part = parts.len() - 1;
            parts[part].push((names[row as usize].clone(), self.rows[row as usize].tally.clone()));
        }
        parts
    }

    /// Totals of all that changed were committed.
    pub(crate) fn clear_changed(&mut self) {
        for row in self.changed.drain(..) {
            self.rows[row as usize].is_changed = false;
        }
        self.is_refused = false;
    }
}

/// Adds numbers to the gaps of an origin: to the newest of their reason where they continue it, or where there are
/// many. True if some gap does not list its numbers any more.
fn note(gaps: &mut Vec<Row>, row: Row) -> bool {
    let is_full = gaps.len() >= GAP_ROWS_MAX;
    let same = gaps.iter_mut().rev().find(|gap| gap.reason == row.reason);
    match same {
        Some(gap) if is_full || gap.missed.is_listed() && gap.missed.last.checked_add(1) == Some(row.missed.first) => {
            let (missed, new) = (&mut gap.missed, row.missed);
            missed.first = missed.first.min(new.first);
            missed.last = missed.last.max(new.last);
            missed.count = missed.count.saturating_add(new.count);
            (gap.from, gap.to) = (gap.from.min(row.from), gap.to.max(row.to));
            !gap.missed.is_listed()
        }
        // A reason has one gap at least; there are few reasons.
        _ => {
            let is_joined = !row.missed.is_listed();
            gaps.push(row);
            is_joined
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gaps_of_an_origin_are_bounded_and_count_each_number() {
        let mut gaps = Vec::new();
        let mut is_joined = false;
        for n in 0..1_000_000 {
            let missed = Missed { first: 2 * n, last: 2 * n, count: 1 };
            is_joined |= note(&mut gaps, Row { missed, from: n as i64, to: n as i64, reason: "network".into() });
        }
        assert_eq!((gaps.len(), is_joined), (GAP_ROWS_MAX, true));
        assert_eq!(gaps.iter().map(|gap| gap.missed.count).sum::<u64>(), 1_000_000);
    }

    #[test]
    fn a_later_life_has_a_number_behind_the_name() {
        assert_eq!(life_of("board#2"), Some(("board", 2)));
        assert_eq!(life_of("a#b#13"), Some(("a#b", 13)));
        assert_eq!((device_of("board#2"), device_of("a#b#13")), ("board", "a#b"));
        for name in ["board", "board#", "board#1", "board#02", "board#x", "board#+2"] {
            assert_eq!((life_of(name), device_of(name)), (None, name));
        }
    }
}
