//! Entries and payloads of a stream by position, read from its files without a map: for recovery and repair.
//!
//! Constraints: no map, because a bad sector or a file cut by another process is an error value here and a signal
//! there. In sequence order a message costs no system call: both kinds of segment are read in windows, so 1 GB of small
//! messages is recovered in about a second. Threads verify pieces of a long tail in parallel, each with windows of its
//! own. Each reader has at most one file of each kind open, whatever the number of segments.

use crate::error::{Error, Result};
use crate::format::entry::{ENTRY_BYTES, Entry, salt, salt_seed};
use crate::format::header::Header;
use crate::format::names::{Names, ORIGINS};
use crate::format::segments::segment_name;
use crate::limits::{TAIL_PIECE, TAIL_THREADS};
use crate::outside::files::open_if_there;
use crate::outside::media::{Block, File, Media, Open, read_again};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of an index that are read at once: a search by halves touches sixteen of them.
const INDEX_WINDOW: usize = 64 << 10;
/// Bytes of payload that are read at once.
const PAYLOAD_WINDOW: usize = 1 << 20;
/// The same of both where piece follows piece: the medium is as fast as it gets.
const WINDOW_MAX: usize = 4 << 20;

/// Entries and payloads by position, from the live place or the folder.
pub(crate) struct Entries<'a> {
    pub(crate) m: &'a dyn Media,
    pub(crate) places: Vec<PathBuf>,
    pub(crate) header: &'a Header,
    /// A reader may look where it must not write.
    how: Open,
    /// Data that the page cache may have and the medium not are not read.
    past_cache: bool,
    /// The index and the payload segment that were looked at last.
    files: [Option<Looked>; 2],
    index: Window,
    payloads: Window,
    /// (first sequence, salt seed) of the epochs, rising.
    seeds: Vec<(u64, u64)>,
}

/// The number of a segment, and its file if there is one.
type Looked = (u32, Option<Arc<dyn File>>);

/// A piece of a file.
#[derive(Default)]
struct Window {
    number: u32,
    at: u64,
    blocks: Vec<Block>,
    /// How many bytes of them were read, and were asked for.
    len: usize,
    asked: usize,
    /// The medium does not give them: they are lost, where a file that cannot be looked at is not.
    lost: bool,
}

impl Window {
    /// True if it has these bytes: then no file is looked at.
    #[inline]
    fn has(&self, number: u32, at: u64, len: usize) -> bool {
        self.number == number && self.at <= at && at + len as u64 <= self.at + self.len as u64
    }

    /// Reads `len` bytes of a file with those around them, if there are so many. Where the medium does not give them all,
    /// those alone.
    fn load(
        &mut self,
        file: &dyn File,
        (number, at, len): (u32, u64, usize),
        size: usize,
        past_cache: bool,
    ) -> std::io::Result<()> {
        // A hostile length would have that much memory filled with zeroes first.
        if file.len()? < at.saturating_add(len as u64) {
            (self.len, self.lost) = (0, false);
            return Ok(());
        }
        let from = at - at % 4096;
        // More each time where one piece follows the other, in this file or the next.
        let follows = match number.checked_sub(self.number) {
            Some(0) => (self.at + 1..=self.at + self.len as u64).contains(&from),
            later => later == Some(1),
        };
        let size = if follows { (2 * self.asked).clamp(size, WINDOW_MAX) } else { size };
        let size = size.max((at - from) as usize + len).next_multiple_of(4096);
        (self.len, self.lost, self.asked) = (0, false, size);
        // What is read over is not filled with zeroes first: that would cost as much as the reading.
        if self.blocks.len() * 4096 < size {
            self.blocks.resize(size / 4096, Block([0; 4096]));
        }
        let own = (at - from) as usize + len;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.blocks);
        let piece = &mut bytes[..size];
        let answer = if past_cache { file.read_blocks(piece, from) } else { file.read_at(piece, from) };
        let answer = answer.or_else(|_| read_again(file, &mut bytes[..own], from));
        self.lost = answer.is_err();
        self.len = answer?;
        (self.number, self.at) = (number, from);
        Ok(())
    }

    #[inline]
    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let from = (at - self.at) as usize;
        &bytemuck::cast_slice(&self.blocks)[from..from + len]
    }
}

impl<'a> Entries<'a> {
    pub(crate) fn new(m: &'a dyn Media, folder: &Path, header: &'a Header) -> Self {
        let mut places = vec![header.live.clone()];
        if header.live != folder {
            places.push(folder.to_path_buf());
        }
        let seeds = header.epochs.iter().map(|e| (e.1, salt_seed(&header.uuid, e.0))).collect();
        let (index, payloads) = (Window::default(), Window::default());
        Self { m, places, header, how: Open::Write, past_cache: false, files: [None, None], index, payloads, seeds }
    }

    /// In one place only.
    pub(crate) fn only_in(m: &'a dyn Media, place: &Path, header: &'a Header) -> Self {
        Self { places: vec![place.to_path_buf()], ..Self::new(m, place, header) }
    }

    /// In one place only, and as the medium has it: after a start of the machine.
    pub(crate) fn on_medium(m: &'a dyn Media, place: &Path, header: &'a Header) -> Self {
        Self { past_cache: true, ..Self::only_in(m, place, header) }
    }

    /// In one place only, for somebody who changes nothing.
    pub(crate) fn to_read(m: &'a dyn Media, place: &Path, header: &'a Header) -> Self {
        Self { how: Open::Read, ..Self::only_in(m, place, header) }
    }

    /// The same for another thread, with windows of its own.
    pub(crate) fn twin(&self) -> Self {
        let (places, seeds) = (self.places.clone(), self.seeds.clone());
        let (index, payloads) = (Window::default(), Window::default());
        Self { places, seeds, index, payloads, files: [None, None], ..*self }
    }

    /// Entries from a message on whose messages prove themselves, in a row.
    pub(crate) fn prove(&mut self, from: u64, count: u64) -> Result<Vec<Entry>> {
        let mut proven = Vec::new();
        for sequence in from..from.saturating_add(count) {
            let Some(entry) = self.proven(sequence)? else { break };
            proven.push(entry);
        }
        Ok(proven)
    }

    pub(crate) fn file(&mut self, kind: char, number: u32) -> Result<Arc<dyn File>> {
        let name = segment_name(kind, number);
        let last = &mut self.files[usize::from(kind == 'p')];
        let file = match last {
            Some((known, file)) if *known == number => file.clone(),
            _ => {
                let mut found = None;
                for place in &self.places {
                    found = open_if_there(self.m, &place.join(&name), self.how)?;
                    if found.is_some() {
                        break;
                    }
                }
                last.insert((number, found)).1.clone()
            }
        };
        file.ok_or_else(|| Error::Missing(self.places[0].join(name)))
    }

    /// Where the file of an error lies.
    fn path(&self, kind: char, number: u32) -> PathBuf {
        let name = segment_name(kind, number);
        let there =
            self.places.iter().map(|place| place.join(&name)).find(|path| self.m.open(path, Open::Read).is_ok());
        there.unwrap_or_else(|| self.places[0].join(&name))
    }

    /// Files may be others now: they are opened and read anew.
    pub(crate) fn forget(&mut self) {
        self.files = [None, None];
        (self.index, self.payloads) = (Window::default(), Window::default());
    }

    /// The number of the index segment of a sequence.
    pub(crate) fn index_number(&self, sequence: u64) -> Result<u32> {
        self.header.index_number(sequence)
    }

    /// The entry at a position, whatever it holds.
    pub(crate) fn raw(&mut self, sequence: u64) -> Result<Entry> {
        let number = self.index_number(sequence)?;
        let at = self.header.entry_at(sequence);
        if !self.index.has(number, at, ENTRY_BYTES) {
            let file = self.file('i', number)?;
            if let Err(e) = self.index.load(file.as_ref(), (number, at, ENTRY_BYTES), INDEX_WINDOW, self.past_cache) {
                return Err(Error::io("read", &self.path('i', number))(e));
            }
            if !self.index.has(number, at, ENTRY_BYTES) {
                let (path, what) = (self.path('i', number), "the end of the index before the entry");
                return Err(Error::Corrupt { path, at, sequence, what });
            }
        }
        Ok(bytemuck::pod_read_unaligned(self.index.bytes(at, ENTRY_BYTES)))
    }

    pub(crate) fn salt(&self, sequence: u64) -> u32 {
        let seed = self.seeds.iter().rev().find(|s| s.0 <= sequence).map(|s| s.1);
        salt(seed.unwrap_or_else(|| salt_seed(&self.header.uuid, 0)), sequence)
    }

    pub(crate) fn holds(&self, entry: &Entry, sequence: u64) -> bool {
        entry.holds(self.salt(sequence))
    }

    pub(crate) fn believed(&mut self, sequence: u64) -> Result<Entry> {
        let entry = self.raw(sequence)?;
        if self.holds(&entry, sequence) {
            return Ok(entry);
        }
        let path = self.path('i', self.index_number(sequence)?);
        let at = self.header.entry_at(sequence);
        Err(Error::Corrupt { path, at, sequence, what: "the entry" })
    }

    /// The entry at a position, if its message proves itself. A payload that cannot be read disproves nothing: its
    /// readers get the error. An error here means that a file could not be accessed.
    pub(crate) fn proven(&mut self, sequence: u64) -> Result<Option<Entry>> {
        self.index.lost = false;
        let entry = match self.raw(sequence) {
            Ok(entry) => entry,
            Err(Error::Io { .. }) if self.index.lost => return Ok(None),
            Err(e @ Error::Io { .. }) => return Err(e),
            Err(_) => return Ok(None),
        };
        let holds = self.holds(&entry, sequence) && self.payload(&entry, sequence)?.unwrap_or(true);
        Ok(holds.then_some(entry))
    }

    pub(crate) fn payload_holds(&mut self, entry: &Entry, sequence: u64) -> bool {
        matches!(self.payload(entry, sequence), Ok(Some(true)))
    }

    /// True if a payload verifies, none if the medium does not give it.
    fn payload(&mut self, entry: &Entry, sequence: u64) -> Result<Option<bool>> {
        let salt = self.salt(sequence);
        // The bytes of a view entry were safe in its parent before it was appended: its own checksum is proof enough.
        if entry.parent != 0 {
            return Ok(Some(true));
        }
        let (number, at, len) = (entry.segment, entry.offset(), entry.length as usize);
        // Messages without bytes need no file.
        if len == 0 {
            return Ok(Some(entry.payload_holds(&[], salt)));
        }
        if !self.payloads.has(number, at, len) {
            let file = match self.file('p', number) {
                Err(Error::Missing(_)) => return Ok(Some(false)),
                file => file?,
            };
            match self.payloads.load(file.as_ref(), (number, at, len), PAYLOAD_WINDOW, self.past_cache) {
                Err(_) if self.payloads.lost => return Ok(None),
                Err(e) => return Err(Error::io("read", &self.path('p', number))(e)),
                Ok(()) if !self.payloads.has(number, at, len) => return Ok(Some(false)),
                Ok(()) => {}
            }
        }
        Ok(Some(entry.payload_holds(self.payloads.bytes(at, len), salt)))
    }

    /// First sequence in `low..high` whose payload segment is at least `segment`: segment numbers rise with sequence.
    pub(crate) fn first_of(&mut self, segment: u32, mut low: u64, mut high: u64) -> Result<u64> {
        while low < high {
            let middle = low + (high - low) / 2;
            if self.raw(middle)?.segment < segment { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

/// What proves itself on the medium from a message on: where it ends, as (count, payload segment, bytes used in it). A
/// commit of little is marked before its record is written, so this is where marked messages may end.
///
/// The first piece is proven alone, as most tails end in it; those behind it side by side.
pub(crate) fn tail(
    entries: &mut Entries<'_>,
    folder: &Path,
    (mut count, mut segment, mut used): (u64, u32, u64),
    mut found: impl FnMut(u64, &Entry),
) -> Result<(u64, u32, u64)> {
    let origins = Names::read(entries.m, folder, ORIGINS)?.names.len();
    let mut twins: Vec<Entries<'_>> = Vec::new();
    loop {
        let from = count;
        let pieces: Vec<Result<Vec<Entry>>> = if twins.is_empty() {
            vec![entries.prove(from, TAIL_PIECE)]
        } else {
            std::thread::scope(|scope| {
                let prove = |(twin, at): (_, u64)| move || Entries::prove(twin, from + at * TAIL_PIECE, TAIL_PIECE);
                let threads: Vec<_> = twins.iter_mut().zip(0..).map(|piece| scope.spawn(prove(piece))).collect();
                threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
            })
        };
        for piece in pieces {
            let piece = piece?;
            let is_whole = piece.len() as u64 == TAIL_PIECE;
            for entry in piece {
                // Room that was reserved and abandoned may lie between messages.
                let follows = (entry.segment == segment && entry.offset() >= used)
                    || segment.checked_add(1) == Some(entry.segment);
                // A row that is not on the medium will be given to another origin.
                let nameless = entry.origin as usize >= origins;
                if nameless || !follows {
                    return Ok((count, segment, used));
                }
                found(count, &entry);
                (count, segment, used) = (count + 1, entry.segment, entry.end());
            }
            if !is_whole {
                return Ok((count, segment, used));
            }
        }
        if twins.is_empty() {
            twins = (0..TAIL_THREADS).map(|_| entries.twin()).collect();
        }
    }
}
