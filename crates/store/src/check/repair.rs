//! `verify --repair`: restores only what a checksum proves. Decision 0006 lists the cases.
//!
//! Order: the damaged file is copied beside itself (`NAME.damaged-K`) and synced, then changed in place and synced, so
//! at any time either the damaged or the repaired bytes exist, and always the evidence.
//!
//! Failure behaviour: it takes the writer's lock, so a stream with a running writer is refused.

use crate::check::verify::{Verified, verify};
use crate::error::{Error, Result};
use crate::format::bit_repair::mended;
use crate::format::commit::{COMMIT_BYTES, Commit};
use crate::format::entry::{ENTRY_BYTES, Entry, salt, salt_seed};
use crate::format::header::{Header, Level};
use crate::format::names::{Names, ORIGINS, PARENTS};
use crate::format::segments::{TIME_ROW_BYTES, segment_name, segment_numbers, time_row};
use crate::limits::TIME_BLOCK;
use crate::live::place::live_head;
use crate::outside::files::keep_copy;
use crate::outside::media::{Media, Open};
use crate::read::entries::Entries;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The header was repaired.
    pub header: bool,
    /// A commit record was made again from the other, or both from the index.
    pub commit: bool,
    /// Rows of the time table that were made again from their entries.
    pub rows: u64,
    /// Rows of `origins` and `parents` in which a wrong bit was turned.
    pub names: u64,
    /// Index entries that were repaired.
    pub entries: u64,
    /// Payloads that were repaired.
    pub payloads: u64,
    /// Copies of damaged files as they were, to be removed by hand.
    pub copies: Vec<PathBuf>,
    /// The state after the repair; its damage is what no checksum proves.
    pub left: Verified,
}

/// Repairs a stream without a writer.
pub fn repair(media: &Arc<dyn Media>, folder: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Repaired> {
    let m = media.as_ref();
    let lock_path = folder.join("lock");
    let _lock = m.lock(&lock_path).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked(folder.to_path_buf()),
        _ => Error::io("lock", &lock_path)(e),
    })?;
    let mut work = Work { m, folder, done: Repaired::default(), copied: BTreeSet::new() };
    let header = work.header()?;
    work.names()?;
    let live = header.boot == m.boot() && live_head(m, &header, folder)?.is_some();
    // A memory stream has one copy of everything, in its live place; a disk stream is repaired where it is kept, and
    // its live place is a second copy.
    if header.level == Level::Disk {
        let commit = work.commit(&header)?;
        let second = if live { Some(header.live.as_path()) } else { None };
        work.index(&header, commit, folder, second)?;
    }
    work.done.left = verify(media, folder, progress)?;
    Ok(work.done)
}

struct Work<'a> {
    m: &'a dyn Media,
    folder: &'a Path,
    done: Repaired,
    copied: BTreeSet<String>,
}

impl Work<'_> {
    /// Writes bytes into a file of the stream, after a copy of the file as it was.
    fn write(&mut self, name: &str, bytes: &[u8], at: u64) -> Result<()> {
        if self.copied.insert(name.to_string()) {
            self.done.copies.push(keep_copy(self.m, self.folder, name)?);
        }
        let path = self.folder.join(name);
        let file = self.m.open(&path, Open::Write).map_err(Error::io("open", &path))?;
        file.write_at(bytes, at).map_err(Error::io("write", &path))?;
        file.sync().map_err(Error::io("sync", &path))
    }

    /// The header, repaired if one or two of its bits are wrong: without it no checksum of the stream can be verified.
    fn header(&mut self) -> Result<Header> {
        let error = match Header::read(self.m, self.folder) {
            Err(e @ Error::Format { .. }) => e,
            answer => return answer,
        };
        let path = self.folder.join("stream");
        let file = self.m.open(&path, Open::Read).map_err(Error::io("open", &path))?;
        let mut bytes = vec![0; file.len().map_err(Error::io("read", &path))?.min(4096) as usize];
        let n = file.read_at(&mut bytes, 0).map_err(Error::io("read", &path))?;
        let Some(good) = Header::mended(&bytes[..n]) else { return Err(error) };
        good.write_over(self.m, self.folder).map(|copy| self.done.copies.push(copy))?;
        self.done.header = true;
        Ok(good)
    }

    /// Rows of the tables of names with one wrong bit, by their own checksums.
    fn names(&mut self) -> Result<()> {
        for table in [ORIGINS, PARENTS] {
            if !Names::read(self.m, self.folder, table)?.damaged {
                continue;
            }
            if let Some((good, rows)) = Names::mended(&Names::bytes_of(self.m, self.folder, table)?) {
                self.write(table, &good, 0)?;
                self.done.names += rows;
            }
        }
        Ok(())
    }

    /// The newest commit record. Where neither holds, one is made that promises what the index proves.
    fn commit(&mut self, header: &Header) -> Result<Commit> {
        let seed = salt_seed(&header.uuid, 0);
        if let (Some(commit), _) = Commit::read(self.m, self.folder, seed)? {
            if Commit::damaged(self.m, self.folder, seed)?.is_some() {
                // It may have been the newer one: what was added after the other proves itself, as it does at an opening.
                // Where the lost one said that the stream was opened again, numbers were given that left no trace.
                let mut again = Commit { generation: commit.generation + 1, clean: false, ..commit };
                let mut entries = Entries::only_in(self.m, self.folder, header);
                while let Ok(entry) = entries.believed(again.count)
                    && entry.segment >= again.segment
                    && entries.payload_holds(&entry, again.count)
                {
                    (again.count, again.segment, again.used) = (again.count + 1, entry.segment, entry.end());
                }
                // The whole block: a medium that does not give it takes it written over.
                let mut block = [0; 4096];
                block[..COMMIT_BYTES].copy_from_slice(&again.to_bytes(seed));
                self.write("commit", &block, Commit::place(again.generation))?;
                self.done.commit = true;
                return Ok(again);
            }
            return Ok(commit);
        }
        let mut entries = Entries::only_in(self.m, self.folder, header);
        let segments = segment_numbers(self.m, self.folder, 'i')?;
        if segments.is_empty() {
            return Err(Error::Format {
                path: self.folder.join("commit"),
                what: "no record is valid and there is no index".into(),
            });
        }
        let per = header.index_entries;
        let mut ends: Option<((u64, Entry), (u64, Entry))> = None;
        for sequence in segments.into_iter().map(u64::from).flat_map(|n| n * per..(n + 1) * per) {
            let Ok(entry) = entries.raw(sequence) else { continue };
            if entries.holds(&entry, sequence) && entries.payload_holds(&entry, sequence) {
                let first = ends.map_or((sequence, entry), |ends| ends.0);
                ends = Some((first, (sequence, entry)));
            }
        }
        let Some(((first, low), (last, high))) = ends else {
            return Err(Error::Format {
                path: self.folder.join("commit"),
                what: "no record and no entry holds".into(),
            });
        };
        let commit = Commit {
            generation: 1,
            count: last + 1,
            first,
            epoch: header.epoch_of(last),
            segment: high.segment,
            used: high.offset() + u64::from(high.length),
            first_segment: low.segment,
            clean: false,
        };
        let path = self.folder.join("commit");
        self.m.open(&path, Open::Create).map_err(Error::io("create", &path))?;
        let mut both = vec![0; 4096 + COMMIT_BYTES];
        both[4096..].copy_from_slice(&commit.to_bytes(seed));
        self.write("commit", &both, 0)?;
        self.done.commit = true;
        Ok(commit)
    }

    /// Entries and payloads below the commit record: from the second copy, or an entry from its own checksum.
    fn index(&mut self, header: &Header, commit: Commit, place: &Path, second: Option<&Path>) -> Result<()> {
        let mut here = Entries::only_in(self.m, place, header);
        let mut there = second.map(|second| Entries::only_in(self.m, second, header));
        let per = header.index_entries;
        let segments = segment_numbers(self.m, place, 'i')?.into_iter().map(u64::from);
        let kept = segments.flat_map(|n| (n * per).max(commit.first)..((n + 1) * per).min(commit.count));
        for sequence in kept {
            let raw = here.raw(sequence);
            let mut entry = raw.as_ref().ok().copied().filter(|e| here.holds(e, sequence));
            if entry.is_none() {
                let copy = there.as_mut().and_then(|t| t.believed(sequence).ok());
                let good = copy.or_else(|| self.mended_entry(&mut here, &raw.ok()?, sequence));
                let name = segment_name('i', header.index_number(sequence)?);
                if let Some(good) = good {
                    self.write(&name, bytemuck::bytes_of(&good), header.entry_at(sequence))?;
                    self.done.entries += 1;
                    entry = Some(good);
                    here.forget();
                }
            }
            let Some(entry) = entry.filter(|e| e.length > 0 && e.parent == 0) else { continue };
            if !here.payload_holds(&entry, sequence)
                && let Some(there) = &mut there
                && there.payload_holds(&entry, sequence)
            {
                let file = there.file('p', entry.segment)?;
                let mut bytes = vec![0; entry.length as usize];
                let name = segment_name('p', entry.segment);
                let n = file.read_at(&mut bytes, entry.offset()).map_err(Error::io("read", &place.join(&name)))?;
                if n == bytes.len() && self.m.open(&place.join(&name), Open::Write).is_ok() {
                    self.write(&name, &bytes, entry.offset())?;
                    self.done.payloads += 1;
                    here.forget();
                }
            }
        }
        self.rows(header, commit, &mut here)
    }

    /// Rows of the time table whose entries all hold.
    fn rows(&mut self, header: &Header, commit: Commit, here: &mut Entries<'_>) -> Result<()> {
        let seed = salt_seed(&header.uuid, 0);
        let per = header.index_entries;
        let blocks = segment_numbers(self.m, self.folder, 'i')?.into_iter().flat_map(|number| {
            let low = (u64::from(number) * per).max(commit.first.next_multiple_of(TIME_BLOCK));
            let high = ((u64::from(number) + 1) * per).min(commit.count / TIME_BLOCK * TIME_BLOCK);
            (low..high).step_by(TIME_BLOCK as usize).map(move |at| (number, at))
        });
        for (number, at) in blocks {
            let Ok(file) = here.file('i', number) else { continue };
            let (name, place) = (segment_name('i', number), at % per / TIME_BLOCK * TIME_ROW_BYTES);
            let mut row = [0; TIME_ROW_BYTES as usize];
            file.read_at(&mut row, place).map_err(Error::io("read", &self.folder.join(&name)))?;
            let times: Result<Vec<i64>> =
                (at..at + TIME_BLOCK).map(|sequence| here.believed(sequence).map(|e| e.source_time)).collect();
            let Ok(times) = times else { continue };
            let range = (times.iter().copied().min().unwrap_or(0), times.iter().copied().max().unwrap_or(0));
            let good = time_row(range, salt(seed, at));
            if row[..24] != good[..24] {
                self.write(&name, &good, place)?;
                self.done.rows += 1;
                here.forget();
            }
        }
        Ok(())
    }

    /// The entry with its wrong bits turned, if its payload and its neighbour before say the same.
    fn mended_entry(&self, here: &mut Entries<'_>, raw: &Entry, sequence: u64) -> Option<Entry> {
        let bytes: [u8; ENTRY_BYTES] = bytemuck::cast(*raw);
        let salt = here.salt(sequence);
        let (piece, crc) = mended(&bytes[..60], raw.crc ^ salt)?;
        let mut good = bytes;
        good[..60].copy_from_slice(&piece);
        good[60..].copy_from_slice(&(crc ^ salt).to_le_bytes());
        let entry: Entry = bytemuck::cast(good);
        // A message without bytes, and one whose bytes are another stream's, has nothing here that could confirm it but
        // its place: 60 bytes that a chance would have to make fit twice.
        let proven = entry.parent != 0 || here.payload_holds(&entry, sequence);
        let before = sequence.checked_sub(1).and_then(|at| here.believed(at).ok());
        let follows = before.is_none_or(|b| {
            b.arrival_time <= entry.arrival_time && (b.segment, b.offset8) <= (entry.segment, entry.offset8)
        });
        (here.holds(&entry, sequence) && proven && follows).then_some(entry)
    }
}
