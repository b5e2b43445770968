//! Views: streams whose entries point into other streams. Decision 0005 has the reasons.
//!
//! Constraints: an entry of a view has no bytes of its own, so locations, marks, recovery and retention work as in any
//! stream. One push costs the check of the parent's entry and 64 bytes of index: no lock, no system call, no
//! allocation, until a parent's mark is reached or a new origin or epoch appears.
//!
//! Bytes: `entry` (parent, parent sequence), and the table `parents`: a line a row like `origins`, row 1 first, `UUID
//! EPOCH NAME` with the name of a folder beside the view's. A row is on the medium before an entry names it. In a full
//! table a row that no entry names any more gets another text.
//!
//! Failure behaviour: an unfit message (level, mark, retired, another message) is refused with the parent's name before
//! any change. To a reader a missing, rewound or recreated parent is `Error::Parent`, messages it retired are
//! `Error::Gone`.

use crate::error::{Error, Result};
use crate::format::entry::{Entry, salt, salt_seed};
use crate::format::header::Level;
use crate::format::names::{Names, PARENTS};
use crate::format::parents::{ParentRow, beside, is_beside, rows_of, sync_rows};
use crate::limits::{PARENTS_MAX, READER_NAME_MAX, VIEW_DEPTH_MAX};
use crate::live::pins::{Kind, Pins};
use crate::outside::media::Media;
use crate::read::options::{Check, ReadOptions};
use crate::read::reader::Reader;
use crate::write::options::WhenFull;
use crate::write::writer::Writer;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;

/// No row yet for an origin of a parent.
const UNKNOWN: u32 = u32::MAX;

// ---- writing ---------------------------------------------------------------------------------------------------------

/// A stream that a writer's view points into, from [`Writer::parent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent(usize);

/// One parent, as the view's writer knows it.
struct Source {
    /// The counted reader by whose position the parent keeps what the view keeps.
    reader: Reader,
    /// Row of the table for messages in `may`, counted from 1.
    row: u16,
    /// Salt seed of their epoch.
    seed: u64,
    /// Sequences that may be pointed to without another check: of one epoch, safe, and not retired.
    may: Range<u64>,
    /// Sequences below are not held in the parent.
    floor: u64,
    /// Sequences below will not be pointed to any more.
    passed: u64,
    /// The view's rows of the parent's origins.
    origins: Vec<u32>,
}

/// The streams that a writer points into. "Lowest" is always a parent sequence, by row of the table.
#[derive(Default)]
pub(crate) struct View {
    sources: Vec<Source>,
    table: Names,
    rows: Vec<ParentRow>,
    /// By row: which of `sources` has its stream.
    source_of: Vec<Option<usize>>,
    /// Lowest of the entries of the written index segment, from `low_from` on.
    low: Vec<u64>,
    low_from: u64,
    /// Lowest of the index segments before, as (row from 0, lowest). One that is not here was written before this writer
    /// opened, and is looked through when that is needed.
    lows: BTreeMap<u32, Vec<(u16, u64)>>,
    /// Lowest of all of `lows`; none where one of them is missing.
    lowest: Option<Vec<u64>>,
    /// Where the view began when `lows` were made.
    first: u64,
    /// Reads the view's own index.
    own: Option<Reader>,
}

impl View {
    pub(crate) fn new(count: u64, first: u64) -> Self {
        Self { low_from: count, first, ..Self::default() }
    }

    /// An index segment is full.
    pub(crate) fn index_closed(&mut self, number: u32, next: u64, index_entries: u64) {
        if self.rows.is_empty() {
            return;
        }
        if self.low_from <= self.first.max(u64::from(number) * index_entries) {
            self.lows.insert(number, pairs(&self.low));
            if let Some(lowest) = &mut self.lowest {
                lowest.iter_mut().zip(&self.low).for_each(|(lowest, low)| *lowest = *low.min(lowest));
            }
        } else {
            self.lowest = None;
        }
        self.low.fill(u64::MAX);
        self.low_from = next;
    }
}

fn pairs(low: &[u64]) -> Vec<(u16, u64)> {
    low.iter().enumerate().filter(|l| *l.1 != u64::MAX).map(|(row, &low)| (row as u16, low)).collect()
}

impl Writer {
    /// Makes this stream a view of the stream in the folder `name` beside its own: the parent keeps what the view keeps.
    /// Call it again after each opening, before pointing to the parent.
    pub fn parent(&mut self, name: &str) -> Result<Parent> {
        let folder = beside(&self.folder, name);
        let refused = |what: String| Error::Parent { folder: folder.clone(), what };
        if !is_beside(name) {
            return Err(refused("is not a folder beside it".into()));
        }
        let reads_as = format!("view {}", self.header.name);
        if reads_as.len() > READER_NAME_MAX {
            let most = READER_NAME_MAX - "view ".len();
            return Err(Error::Limit(format!("the name of a view has at most {most} bytes: `{}`", self.header.name)));
        }
        let m = self.media.as_ref();
        check_depth(m, &folder, &self.header.uuid, VIEW_DEPTH_MAX - 1).map_err(refused)?;
        if self.view.rows.is_empty() {
            self.view.table = Names::read(m, &self.folder, PARENTS)?;
            self.view.rows = rows_of(m, &self.folder)?;
            self.view.low = vec![u64::MAX; self.view.rows.len()];
            self.view.source_of = vec![None; self.view.rows.len()];
            // A writer that died before its sync leaves rows that a power cut takes, and entries would name them. They
            // are written again: after a sync that failed the kernel calls pages clean that are not there.
            if self.header.level == Level::Disk && !self.view.rows.is_empty() {
                self.view.table.write_again(m, &self.folder, PARENTS)?;
                sync_rows(m, &self.folder)?;
            }
        }
        // The level decides which mark the reader ends at: that is as far as the view may point.
        let early = self.header.level == Level::Memory;
        let options = ReadOptions { name: reads_as, kind: Kind::Counted, early, ..ReadOptions::default() };
        let reader = Reader::open(&self.media, &folder, options).map_err(|e| e.of_parent(&folder))?;
        if self.header.level == Level::Disk && reader.header().level == Level::Memory {
            // A place of a reader that will never be.
            drop(reader);
            Pins::open(m, &folder)?.remove(m, &format!("view {}", self.header.name));
            return Err(refused("has level memory: a view that survives a power cut cannot point into it".into()));
        }
        if let Some(at) = self.view.sources.iter().position(|s| s.reader.header().uuid == reader.header().uuid) {
            return Ok(Parent(at));
        }
        let floor = reader.committed();
        let source = Source { reader, row: 0, seed: 0, may: 0..0, floor, passed: floor, origins: Vec::new() };
        let (at, uuid) = (self.view.sources.len(), source.reader.header().uuid);
        let View { rows, source_of, .. } = &mut self.view;
        rows.iter().zip(source_of).filter(|(row, _)| row.uuid == uuid).for_each(|(_, source)| *source = Some(at));
        self.view.sources.push(source);
        Ok(Parent(at))
    }

    /// Appends an entry that points to message `sequence` of a parent without publishing it; returns its sequence here.
    /// `entry` is that message's, as a reader of the parent shows it. Its origin is known here by the same name.
    #[inline]
    pub fn push_view(&mut self, parent: Parent, sequence: u64, entry: &Entry) -> Result<u64> {
        let (row, origin) = match self.admitted(parent, sequence, entry) {
            Some(known) => known,
            None => self.admit(parent, sequence, entry)?,
        };
        debug_assert!(self.view.sources[parent.0].may.contains(&sequence), "a view points at marked messages");
        let start = self.place_for(0, 8)?;
        let slot = self.slot()?;
        let low = &mut self.view.low[usize::from(row) - 1];
        *low = sequence.min(*low);
        let entry = Entry {
            arrival_time: self.cursor.arrival,
            parent_sequence: sequence,
            origin,
            segment: self.payload.number,
            offset8: (start / 8) as u32,
            parent: row,
            ..*entry
        };
        Ok(self.put(slot, entry))
    }

    #[inline]
    fn admitted(&self, parent: Parent, sequence: u64, entry: &Entry) -> Option<(u16, u32)> {
        let source = self.view.sources.get(parent.0)?;
        let origin = *source.origins.get(entry.origin as usize)?;
        let known = source.may.contains(&sequence) && origin != UNKNOWN && entry.holds(salt(source.seed, sequence));
        known.then_some((source.row, origin))
    }

    /// Looks at the parent again: its mark, its epoch, its origins.
    #[cold]
    fn admit(&mut self, parent: Parent, sequence: u64, entry: &Entry) -> Result<(u16, u32)> {
        let Some(source) = self.view.sources.get_mut(parent.0) else {
            return Err(Error::Limit("a parent of another writer".into()));
        };
        let mut looked = false;
        let known;
        let row = loop {
            let folder = source.reader.folder().to_path_buf();
            let refused = |what: String| Error::Parent { folder: folder.clone(), what };
            let (header, end) = (source.reader.header(), source.reader.end());
            let epoch = header.epoch_of(sequence);
            let seed = salt_seed(&header.uuid, epoch);
            if sequence >= end || !entry.holds(salt(seed, sequence)) {
                if !looked {
                    // A writer that started anew has another live place, and perhaps another epoch.
                    source.reader.reattach().map_err(|e| e.of_parent(&folder))?;
                    looked = true;
                    continue;
                }
                let level = if self.header.level == Level::Disk { "disk" } else { "memory" };
                return Err(refused(if sequence >= end {
                    format!("cannot be pointed to at message {sequence}: its mark `{level}` is {end}")
                } else {
                    format!("has another message {sequence} than the entry that was given")
                }));
            }
            if sequence < source.floor {
                let floor = source.floor;
                return Err(refused(format!("is not held below message {floor}: {sequence} cannot be pointed to")));
            }
            let began = header.epochs.iter().rev().find(|e| e.1 <= sequence).map_or(0, |e| e.1);
            let ended = header.epochs.iter().find(|e| e.1 > sequence).map_or(u64::MAX, |e| e.1);
            known = (seed, began.max(source.floor)..ended.min(end));
            break ParentRow {
                uuid: header.uuid,
                epoch,
                name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            };
        };
        let name = source.reader.origin(entry.origin).to_owned();
        let number = match self.view.rows.iter().position(|known| *known == row) {
            Some(at) => at + 1,
            None => self.add_row(&row, parent.0)?,
        };
        let origin = self.origin(&name)?;
        let source = &mut self.view.sources[parent.0];
        let at = entry.origin as usize;
        if source.origins.len() <= at {
            source.origins.resize(at + 1, UNKNOWN);
        }
        (source.row, source.origins[at]) = (number as u16, origin);
        (source.seed, source.may) = known;
        // A look for a row may have moved it.
        source.may.start = source.may.start.max(source.floor);
        Ok((source.row, origin))
    }

    /// A row of the table for another parent or epoch, on the medium before any entry names it. `source`: which of the
    /// sources has its stream.
    fn add_row(&mut self, row: &ParentRow, source: usize) -> Result<usize> {
        let free = if self.view.rows.len() < PARENTS_MAX { None } else { Some(self.free_row()?) };
        let (m, view) = (self.media.as_ref(), &mut self.view);
        match free {
            Some(at) => {
                view.table.replace(m, &self.folder, PARENTS, at, &row.to_text())?;
                view.rows[at] = row.clone();
                view.source_of[at] = Some(source);
                view.sources.iter_mut().filter(|s| usize::from(s.row) == at + 1).for_each(|s| s.may = 0..0);
            }
            None => {
                let mut table = view.table.clone();
                table.add(m, &self.folder, PARENTS, &row.to_text())?;
                if self.header.level == Level::Disk {
                    sync_rows(m, &self.folder)?;
                }
                view.table = table;
                view.rows.push(row.clone());
                view.source_of.push(Some(source));
                view.low.push(u64::MAX);
                view.lowest.iter_mut().for_each(|lowest| lowest.push(u64::MAX));
            }
        }
        Ok(free.map_or(view.rows.len(), |at| at + 1))
    }

    /// A row of a full table that no entry names, neither now nor after a power cut.
    fn free_row(&mut self) -> Result<usize> {
        let first = self.first_sequence();
        while !self.look_on(first)? {}
        let is_known = self.move_positions()?;
        let View { sources, low, lowest, .. } = &self.view;
        let lowest = lowest.as_deref().filter(|_| is_known).unwrap_or_default();
        let mut free = (0..lowest.len()).filter(|&row| lowest[row] == u64::MAX && low[row] == u64::MAX);
        // A parent that has sent nothing for long keeps its row as long as there are others.
        let is_current = |row: usize| sources.iter().any(|source| usize::from(source.row) == row + 1);
        free.clone().find(|&row| !is_current(row)).or_else(|| free.next()).ok_or_else(|| {
            Error::Limit(format!(
                "its messages name {PARENTS_MAX} parents and epochs of theirs, and a view has no more: keep less of it \
                 (`retain`), or move its folder away"
            ))
        })
    }

    /// Says that no message of a parent below `sequence` will be pointed to any more: the parent keeps what the view
    /// keeps, and what lies between is free to go. To be called when the commit that says so is safe.
    pub fn passed(&mut self, parent: Parent, sequence: u64) -> Result<()> {
        match self.view.sources.get_mut(parent.0) {
            Some(source) if sequence > source.passed => source.passed = sequence,
            _ => return Ok(()),
        }
        self.move_positions().map(drop)
    }

    /// True if a parent waits for room that the view holds: [`Writer::relieve`] is to be called soon.
    pub fn is_pressed(&self) -> bool {
        let pressed = |source: &Source| source.reader.pins().wanted().load(Ordering::Acquire) > source.floor;
        self.view.sources.iter().any(pressed)
    }

    /// Releases the view's oldest entries where a parent that waits for room needs it and the view's own counted
    /// readers have moved on, and moves the positions in the parents; views of this view are asked to do the same. For a
    /// runner to call at each step.
    pub fn relieve(&mut self) -> Result<()> {
        if !self.move_positions()? || !self.is_pressed() {
            return Ok(());
        }
        let mut end = self.publish();
        if self.header.level == Level::Disk {
            end = end.min(self.mark(Level::Disk));
        }
        let waits = self.options.when_full != WhenFull::DropOldest;
        let held = self.pins.lowest_committed().filter(|_| waits).unwrap_or(u64::MAX);
        let free = self.free_end(end.min(held))?;
        if free == self.first_sequence() && held < end && self.pins.wanted().load(Ordering::Acquire) <= held {
            // Views of this view keep what is wanted: they are asked in turn.
            let wanted = self.free_end(end)?;
            self.pins.wanted().fetch_max(wanted, Ordering::AcqRel);
        }
        if free > self.first_sequence() {
            let in_segment = self.chain.segment_of(free);
            let number = in_segment.unwrap_or_else(|| self.head().first_payload.load(Ordering::Relaxed));
            self.retire_below(free, number);
            self.release_live_payload();
            self.release_live_index();
            self.ring.hurry();
            self.move_positions()?;
        }
        Ok(())
    }

    /// One past the last entry before `end` that points to a message that a parent would retire.
    fn free_end(&mut self, end: u64) -> Result<u64> {
        let per = self.header.index_entries;
        let wanted = |source: &Source| source.reader.pins().wanted().load(Ordering::Acquire);
        let wanted: Vec<u64> = self.view.sources.iter().map(wanted).collect();
        let wanted: Vec<u64> = self.view.source_of.iter().map(|at| at.map_or(0, |at| wanted[at])).collect();
        let mut at = self.first_sequence();
        let mut free = at;
        while at < end {
            let to = ((at / per + 1) * per).min(end);
            let lows = self.view.lows.get(&((at / per) as u32));
            if lows.is_none_or(|lows| lows.iter().any(|&(row, low)| low < wanted[usize::from(row)])) {
                self.look_through(at, to, |entries| {
                    for entry in entries {
                        at += 1;
                        let wanted = wanted.get(usize::from(entry.parent).wrapping_sub(1));
                        if wanted.is_some_and(|wanted| entry.parent_sequence < *wanted) {
                            free = at;
                        }
                    }
                })?;
            }
            at = to;
        }
        Ok(free)
    }

    /// Moves the positions in the parents to the lower of what the view keeps and what it may still point to. False as
    /// long as that is not known: index segments from before this writer opened are looked through one a call.
    fn move_positions(&mut self) -> Result<bool> {
        let first = self.first_sequence();
        if self.header.level == Level::Disk && self.ring.kept.load(Ordering::Acquire) != first {
            // A released entry comes back in a power cut until a record says that it is gone.
            return Ok(false);
        }
        if self.view.lowest.is_none() || first != self.view.first {
            if !self.look_on(first)? {
                return Ok(false);
            }
            let mut lowest = vec![u64::MAX; self.view.rows.len()];
            for &(row, low) in self.view.lows.values().flatten() {
                lowest[usize::from(row)] = low.min(lowest[usize::from(row)]);
            }
            self.view.lowest = Some(lowest);
        }
        let View { sources, source_of, low, lowest, .. } = &mut self.view;
        let lowest = lowest.as_deref().unwrap_or_default();
        let mut kept = vec![u64::MAX; sources.len()];
        for (at, (written, last)) in source_of.iter().zip(lowest.iter().zip(&*low)) {
            if let Some(at) = *at {
                kept[at] = kept[at].min(*written).min(*last);
            }
        }
        for (source, kept) in sources.iter_mut().zip(kept) {
            let floor = kept.min(source.passed);
            if floor > source.floor {
                source.floor = floor;
                source.may.start = source.may.start.max(floor);
                source.reader.commit(floor);
            }
        }
        Ok(true)
    }

    /// Learns what the entries from `first` on point to at least, a segment at a time. True when all is known.
    fn look_on(&mut self, first: u64) -> Result<bool> {
        let per = self.header.index_entries;
        if first != self.view.first {
            // The segment in which the view begins now has lost some.
            self.view.lows = self.view.lows.split_off(&((first / per) as u32));
            if !first.is_multiple_of(per) {
                self.view.lows.remove(&((first / per) as u32));
            }
            (self.view.first, self.view.lowest) = (first, None);
        }
        let written = first.max(u64::from(self.index.number) * per);
        if self.view.low_from != written {
            self.publish();
            let low = self.lowest_of(written, self.cursor.next())?;
            (self.view.low, self.view.low_from) = (low, written);
        }
        let unknown = ((first / per) as u32..self.index.number).find(|number| !self.view.lows.contains_key(number));
        let Some(number) = unknown else { return Ok(true) };
        let from = first.max(u64::from(number) * per);
        let low = self.lowest_of(from, (u64::from(number) + 1) * per)?;
        self.view.lows.insert(number, pairs(&low));
        Ok((number + 1..self.index.number).all(|number| self.view.lows.contains_key(&number)))
    }

    /// The lowest sequences that the entries of a range point to.
    fn lowest_of(&mut self, from: u64, to: u64) -> Result<Vec<u64>> {
        let mut low = vec![u64::MAX; self.view.rows.len()];
        self.look_through(from, to, |entries| {
            for entry in entries {
                if let Some(low) = low.get_mut(usize::from(entry.parent).wrapping_sub(1)) {
                    *low = entry.parent_sequence.min(*low);
                }
            }
        })?;
        Ok(low)
    }

    /// Shows the view's own entries of `from..to`, which are published.
    fn look_through(&mut self, from: u64, to: u64, mut see: impl FnMut(&[Entry])) -> Result<()> {
        if self.view.own.is_none() {
            let options = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
            self.view.own = Some(Reader::open(&self.media, &self.folder, options)?);
        }
        if let Some(own) = &mut self.view.own {
            own.walk(from, to, &mut see)?;
        }
        Ok(())
    }
}

/// Refuses what is too deep to be followed, or leads back to the view itself.
fn check_depth(m: &dyn Media, folder: &Path, view: &[u8; 16], left: u32) -> std::result::Result<(), String> {
    let header = crate::Header::read(m, folder).map_err(|e| format!("cannot be read: {e}"))?;
    if header.uuid == *view {
        return Err("is the view itself, or a view of it".into());
    }
    let rows = rows_of(m, folder).map_err(|e| format!("cannot be read: {e}"))?;
    if left == 0 && !rows.is_empty() {
        return Err(format!("is a view: views of views are followed {VIEW_DEPTH_MAX} deep and no further"));
    }
    let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let above = beside(folder, name);
        if m.open(&above.join("stream"), crate::outside::media::Open::Read).is_ok() {
            check_depth(m, &above, view, left.saturating_sub(1))?;
        }
    }
    Ok(())
}

// ---- reading ---------------------------------------------------------------------------------------------------------
