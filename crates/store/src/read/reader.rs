//! Readers: any number of processes that map the same pages and copy nothing.
//!
//! Constraints: a reader pins each segment that it maps (decision 0002), so the bytes of a batch stay unchanged until
//! its owner drops it, whatever the writer does. It keeps maps of recycled files, by file identity, so a reader in step
//! with the writer maps each page once. For entries of a view it has one reader per parent (`view`). It never waits for
//! other readers.
//!
//! Failure behaviour: bytes that do not verify are `Error::Corrupt` with file and position and are never returned as
//! data; messages that retention deleted are `Error::Gone` with the oldest available sequence; pinned bytes above the
//! quota fail the next mapping of this reader with `Error::Quota`.

use crate::Message;
use crate::error::{Error, Result};
use crate::format::commit::Commit;
use crate::format::control_page::{Head, STATE_CLOSED, STATE_WRITING};
use crate::format::crc::crc32c_from_memory;
use crate::format::entry::{ENTRY_BYTES, Entry, salt, salt_seed};
use crate::format::header::{Header, Level};
use crate::format::names::{Names, ORIGINS};
use crate::format::parents::{ParentRow, rows_of};
use crate::format::segments::{TIME_ROW_BYTES, segment_name, segment_numbers, time_row};
use crate::limits::SPIN_LOOKS;
use crate::limits::{BATCH_SEGMENTS_MAX, READER_MAPS_MAX, SPIN_MAX, TIME_BLOCK};
use crate::live::pins::{Held, Kind, Pins};
use crate::live::place::live_head;
use crate::live::protocol::{Bell, is_kept, marked};
use crate::outside::media::{File, Locks, Map, Media, Open, Process};
use crate::read::entries::{Entries, tail};
use crate::read::stretch::{Missing, Why};
use crate::read::view::{Found, Parents, PayloadPlace, Shown, not_there};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Checks before a reader returns a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// None: for times and counts only.
    Nothing,
    /// Index entries.
    Entries,
    /// Index entries and payloads.
    All,
}

/// First position of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Where it committed last; without a position, at the oldest message.
    #[default]
    Committed,
    /// Where it committed last; a new name here.
    New(u64),
    /// Here, which is then committed in any case.
    Here(u64),
}

/// How a stream is read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Name under which the position is kept; empty = anonymous.
    pub name: String,
    /// The role of the reader.
    pub kind: Kind,
    /// Where it begins.
    pub start: Start,
    /// The name is this reader's alone, in this process too, and a position that a recovery cut is an error. Without it,
    /// readers of one process share a position, which is set back to where the epoch ended.
    pub strict: bool,
    /// Read past the mark `disk` of a disk stream.
    pub early: bool,
    /// The checks.
    pub check: Check,
    /// Bytes of payload in one batch at most (a single message may be larger).
    pub batch_bytes: u64,
    /// How long [`Reader::wait`] looks without sleeping, at most [`SPIN_MAX`]. A wake-up is saved if the message comes
    /// meanwhile; a processor is used up while it does not.
    pub spin: Duration,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: Kind::Anonymous,
            start: Start::Committed,
            strict: false,
            early: false,
            check: Check::All,
            batch_bytes: 4 << 20,
            spin: Duration::ZERO,
        }
    }
}

/// The bounds of a stream now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Oldest sequence that is there.
    pub first: u64,
    /// One past the newest published.
    pub count: u64,
    /// One past the newest that is safe on disk (0 for memory streams).
    pub disk: u64,
    /// A writer lives.
    pub written: bool,
    /// The last writer ended in order: of a disk stream, everything is on the medium.
    pub closed: bool,
    /// Messages dropped by `drop-newest` since the writer opened.
    pub dropped: u64,
}

/// A mapped segment: pinned for as long as this lives.
pub struct Mapped {
    map: Arc<Map>,
    /// The file.
    pub path: PathBuf,
    number: u32,
    payload: bool,
    /// How often the stream had been opened for writing when it was mapped.
    opened: u64,
    hold: Hold,
    /// How much of what lies in the folder is in memory; none for the live place and for copies.
    brought: Option<Brought>,
}

/// Pieces of a file that were brought into memory: one that cannot be read is found before it is touched.
struct Brought {
    file: Arc<dyn File>,
    /// A bit a piece.
    pieces: Box<[AtomicU64]>,
}

/// Bytes of such a piece: what the kernel reads around a page that is touched.
const PIECE_BYTES: u64 = 128 << 10;

impl Brought {
    fn new(file: Arc<dyn File>, len: usize) -> Self {
        let words = (len as u64).div_ceil(PIECE_BYTES).div_ceil(64);
        Self { file, pieces: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn is_in(&self, piece: u64) -> bool {
        let word = self.pieces.get((piece / 64) as usize);
        word.is_none_or(|word| word.load(Ordering::Relaxed) >> (piece % 64) & 1 == 1)
    }

    /// False where a byte of a range, which is inside the map, cannot be read.
    #[inline]
    fn has(&self, map: &Map, at: u64, len: u64) -> bool {
        len == 0
            || (at / PIECE_BYTES..=(at + len - 1) / PIECE_BYTES).all(|piece| self.is_in(piece))
            || self.bring(map, at, len)
    }

    #[cold]
    fn bring(&self, map: &Map, at: u64, len: u64) -> bool {
        for piece in at / PIECE_BYTES..=(at + len - 1) / PIECE_BYTES {
            let from = piece * PIECE_BYTES;
            let whole = PIECE_BYTES.min(map.len() as u64 - from);
            if self.is_in(piece) {
                continue;
            }
            if self.file.bring(map, from, whole).is_ok() {
                if let Some(word) = self.pieces.get((piece / 64) as usize) {
                    word.fetch_or(1 << (piece % 64), Ordering::Relaxed);
                }
                continue;
            }
            // The data around the place that cannot be read are there.
            let (low, high) = (at.max(from), (at + len).min(from + whole));
            if self.file.bring(map, low, high - low).is_err() {
                return false;
            }
        }
        true
    }
}

/// The reason why the bytes of a segment do not change.
enum Hold {
    /// A pin.
    Pin(Arc<Held>),
    /// They are a copy, for a reader that may not write `pins`.
    Copy(Copied),
}

/// A segment that is copied as far as it is needed.
struct Copied {
    file: Arc<dyn File>,
    filled: Mutex<u64>,
    /// Data that were read before the writer gave it up are valid.
    kept_by: KeptBy,
}

/// Where it stands which segments a stream keeps.
enum KeptBy {
    /// On the control page; whether the file lies in the live place.
    Page(Arc<Map>, bool),
    /// In the commit record: there is no live place, or it is in the shared memory of another container.
    Record(Record),
}

/// The commit record of a stream.
struct Record {
    media: Arc<dyn Media>,
    folder: PathBuf,
    uuid: [u8; 16],
    index_entries: u64,
}

impl Record {
    /// An error where the stream keeps a segment no more. The drainer writes the record before it looks at pins: who
    /// pins a segment and then finds it kept has it.
    fn must_keep(&self, payload: bool, number: u32) -> Result<()> {
        let seed = salt_seed(&self.uuid, 0);
        // Pairs with the fence of the drainer between its record and its look at pins.
        fence(Ordering::SeqCst);
        let Some(commit) = Commit::read(self.media.as_ref(), &self.folder, seed)?.0 else { return Ok(()) };
        let index = commit.first / self.index_entries;
        let low = if payload { u64::from(commit.first_segment) } else { index };
        if u64::from(number) < low { Err(Error::Gone { first: commit.first }) } else { Ok(()) }
    }
}

impl Mapped {
    /// A range of its bytes, or none if the file is shorter.
    pub fn bytes(&self, at: u64, len: u64) -> Option<&[u8]> {
        let end = at.checked_add(len)?;
        if end > self.map.len() as u64 || !self.fill(end) {
            return None;
        }
        // SAFETY: inside the map; published bytes of a pinned segment are never written again, nor are copied ones.
        Some(unsafe { std::slice::from_raw_parts(self.map.ptr().add(at as usize), len as usize) })
    }

    /// The same for bytes that are read here and now: none also where the medium does not give them.
    #[inline]
    pub(crate) fn read(&self, at: u64, len: u64) -> Option<&[u8]> {
        let bytes = self.bytes(at, len)?;
        self.brought.as_ref().is_none_or(|brought| brought.has(&self.map, at, len)).then_some(bytes)
    }

    /// Has the first `end` bytes copied, where this is a copy. False if they are no longer to be had.
    fn fill(&self, end: u64) -> bool {
        let Hold::Copy(copied) = &self.hold else { return true };
        let mut filled = copied.filled.lock().unwrap_or_else(|p| p.into_inner());
        if end <= *filled {
            return true;
        }
        let (from, len) = (*filled, (end - *filled) as usize);
        // SAFETY: inside our own memory; `bytes` shows nothing beyond `filled`.
        let to = unsafe { std::slice::from_raw_parts_mut(self.map.ptr().add(from as usize), len) };
        if copied.file.read_at(to, from).is_ok_and(|n| n == len) && self.is_kept() {
            *filled = end;
        }
        end <= *filled
    }

    /// False for a copy of what the writer has given up meanwhile.
    fn is_kept(&self) -> bool {
        let Hold::Copy(Copied { kept_by, .. }) = &self.hold else { return true };
        let (page, live) = match kept_by {
            KeptBy::Page(page, live) => (page, live),
            KeptBy::Record(record) => return record.must_keep(self.payload, self.number).is_ok(),
        };
        let head = Head::of(page);
        let low = match (live, self.payload) {
            (true, true) => &head.live_payload,
            (true, false) => &head.live_index,
            (false, true) => &head.first_payload,
            (false, false) => &head.first_index,
        };
        is_kept(low, self.number)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Hold::Pin(held) = &self.hold {
            held.unpin(self.payload, self.number);
        }
    }
}

/// Some messages in a row, pointing into stream memory.
pub struct Batch<'a> {
    /// Sequence of the first.
    pub first: u64,
    /// Index entries, one a message.
    pub entries: &'a [Entry],
    segments: &'a [Arc<Mapped>],
    /// Of a batch with view entries, one a message; else all lie in the one segment where their entries say.
    places: &'a [PayloadPlace],
}

impl<'a> Batch<'a> {
    /// Number of messages.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none now.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One past the last sequence.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The messages.
    pub fn iter(&self) -> impl Iterator<Item = Message<'a>> + '_ {
        self.entries.iter().enumerate().map(|(at, entry)| self.message(at, entry))
    }

    /// The message of a sequence, if it is in the batch.
    pub fn get(&self, sequence: u64) -> Option<Message<'a>> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        Some(self.message(at, self.entries.get(at)?))
    }

    #[inline]
    fn message(&self, i: usize, entry: &'a Entry) -> Message<'a> {
        let (segment, at) = match self.places.get(i) {
            None => (self.segments.first(), entry.offset()),
            Some(place) => (self.segments.get(place.segment as usize), place.at),
        };
        let payload = segment.and_then(|s| s.bytes(at, u64::from(entry.length)));
        Message { sequence: self.first + i as u64, entry, payload: payload.unwrap_or_default() }
    }

    /// The segments that the payloads lie in: holding one keeps what is in it as it is.
    pub fn segments(&self) -> &'a [Arc<Mapped>] {
        self.segments
    }

    /// Where the payload of a message of the batch lies: which of the segments (none where there are no bytes), and its
    /// first byte there.
    pub fn place(&self, at: usize) -> (usize, u64) {
        match (self.places.get(at), self.entries.get(at)) {
            (Some(place), _) => (place.segment as usize, place.at),
            (None, Some(entry)) => (0, entry.offset()),
            (None, None) => (usize::MAX, 0),
        }
    }

    /// No messages.
    fn none(first: u64) -> Self {
        Self { first, entries: &[], segments: &[], places: &[] }
    }
}

/// A map, and its file to see whether a name still leads to it.
type KeptMap = (Arc<Map>, Arc<dyn File>);

enum Control {
    /// The control page of the live place.
    Live(Arc<Map>),
    /// No live place: the commit record, the end of what proves itself behind it, and how much of that is safe. Within one
    /// start of the machine that is what the record says: the rest may be in caches alone.
    Cold { commit: Commit, count: u64, disk: u64 },
}

/// A reader's place in a stream.
pub struct Reader {
    media: Arc<dyn Media>,
    folder: PathBuf,
    header: Header,
    control: Control,
    pins: Pins,
    /// None where `pins` may not be written, or has no place left: segments are copied instead of pinned.
    held: Option<Arc<Held>>,
    options: ReadOptions,
    next: u64,
    /// (first sequence, epoch, salt seed), rising.
    seeds: Vec<(u64, u32, u64)>,
    index: Option<Arc<Mapped>>,
    payload: Option<Arc<Mapped>>,
    /// Entries below have been seen in `index`: it need not be looked at again for them.
    seen: u64,
    /// The streams that this one points into, and what the last batch showed of them.
    parents: Parents,
    shown: Shown,
    /// How many views led here.
    depth: u32,
    /// In which batch of a view, and where in it, `payload` was shown last.
    placed: (u64, u32),
    /// Stream memory that this batch shows of it.
    placed_bytes: u64,
    /// Maps by file identity, also of files that no batch needs now.
    maps: Mutex<HashMap<u64, KeptMap>>,
    origins: Names,
    looked: Instant,
}

impl Reader {
    /// Opens a stream for reading. A named reader begins where it committed last; others at the oldest message.
    pub fn open(media: &Arc<dyn Media>, folder: &Path, options: ReadOptions) -> Result<Self> {
        let m = media.as_ref();
        let (header, control) = attach(m, folder, None)?;
        let named = options.kind != Kind::Anonymous;
        let pins = if named { Pins::open(m, folder)? } else { Pins::open_for_reading(m, folder)? };
        let bounds = bounds_of(&control);
        let mut at = match options.start {
            Start::Committed => bounds.first,
            Start::New(at) | Start::Here(at) => at,
        };
        let (mut epoch, mut held) = (header.epoch_of(at.saturating_sub(1)), None);
        if let Some(taken) = place_of(m, folder, &pins, &options, (at, epoch))? {
            // Not under the lock of the file: a disk may take long.
            if taken.new && options.kind == Kind::Counted && header.level == Level::Disk {
                pins.sync(m, folder)?;
            }
            match options.start {
                Start::Here(_) => taken.commit(m, at, epoch),
                _ if options.strict && taken.cut() > 0 => {
                    let end = taken.committed().0;
                    let epoch = header.epoch_of(end.saturating_sub(1));
                    let first = header.epochs.iter().find(|e| e.0 == epoch).map_or(0, |e| e.1);
                    return Err(Error::Rewound { epoch, first, end });
                }
                _ => (at, epoch) = taken.committed(),
            }
            held = Some(Arc::new(taken));
        }
        let mut next = if named || options.start != Start::Committed { at } else { bounds.first };
        match header.check_identity(epoch, next) {
            Err(e) if options.strict => return Err(e),
            Err(_) => {
                // What it had read was cut by a recovery: it goes on where its epoch ended.
                let row = header.epochs.iter().position(|e| e.0 == epoch);
                next = row.and_then(|r| header.epochs.get(r + 1)).map_or(bounds.first, |e| e.1);
            }
            Ok(()) => {}
        }
        let mut reader = Self {
            media: media.clone(),
            folder: folder.to_path_buf(),
            seeds: Vec::new(),
            header,
            control,
            pins,
            held,
            options,
            next,
            index: None,
            payload: None,
            seen: 0,
            parents: Parents::default(),
            shown: Shown::default(),
            depth: 0,
            placed: (0, 0),
            placed_bytes: 0,
            maps: Mutex::new(HashMap::new()),
            origins: Names::default(),
            looked: Instant::now(),
        };
        reader.learn_epochs();
        Ok(reader)
    }

    fn learn_epochs(&mut self) {
        self.seeds = self.header.epochs.iter().map(|e| (e.1, e.0, salt_seed(&self.header.uuid, e.0))).collect();
    }

    /// True if the name existed: the reader resumes where it committed.
    pub fn resumed(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_named() && !held.new)
    }

    /// The header of the stream.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The stream's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The live place, if it is there and belongs to this folder.
    pub fn live_place(&self) -> Option<&Path> {
        matches!(self.control, Control::Live(_)).then_some(self.header.live.as_path())
    }

    /// An error where the messages of a memory stream lie in the shared memory of another container: this reader sees
    /// none of them.
    pub fn is_here(&self) -> Result<()> {
        let is_elsewhere = |number| number != self.media.shared_memory();
        let is_cold = matches!(self.control, Control::Cold { .. }) && self.header.boot == self.media.boot();
        match is_cold && self.header.level == Level::Memory && self.header.shared_memory.is_some_and(is_elsewhere) {
            true => Err(Error::Elsewhere(self.header.live.clone())),
            false => Ok(()),
        }
    }

    /// The process that writes, if it lives.
    pub fn writer(&self) -> Option<Process> {
        let Control::Live(map) = &self.control else { return None };
        let head = Head::of(map);
        let process = Process { pid: head.pid.load(Ordering::Relaxed), start: head.pid_start.load(Ordering::Relaxed) };
        // In another pid namespace it has another number; the lock is seen everywhere.
        let has_lock = |locks: Arc<dyn Locks>| locks.is_locked(0).unwrap_or(false);
        let lives = || self.media.locks(&self.header.live.join("head"), false).is_ok_and(has_lock);
        (head.state.load(Ordering::Acquire) != STATE_CLOSED && lives()).then_some(process)
    }

    /// Other readers of the stream.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Removes a name for good, with its position; refused while a process reads under it. False if there is none.
    pub fn forget(&self, name: &str) -> Result<bool> {
        let m = self.media.as_ref();
        let pins = Pins::open(m, &self.folder)?;
        let alone = pins.lock(m, &self.folder)?;
        if let Some(reader) = pins.readers().into_iter().find(|r| r.name == name && pins.lives(m, r)) {
            return Err(Error::Taken { name: name.to_owned(), pid: reader.process.pid });
        }
        let found = !name.is_empty() && pins.free(m, name);
        drop(alone);
        if found {
            // Or a power cut brings back a place that nobody moves on any more. Where that fails it is no worse.
            let _ = pins.sync(m, &self.folder);
        }
        pins.moved(m);
        Ok(found)
    }

    /// The bounds of the stream now.
    pub fn bounds(&self) -> Bounds {
        bounds_of(&self.control)
    }

    /// Bytes of stream memory that one reader may keep by holding on to what it has read, as the writer was told (large
    /// messages raise it); 0 where the stream is not live.
    pub fn quota(&self) -> u64 {
        match &self.control {
            Control::Live(head) => Head::of(head).quota.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// One past the last message that this reader may see now.
    pub fn end(&self) -> u64 {
        let bounds = self.bounds();
        if self.waits_for_disk() { bounds.disk } else { bounds.count }
    }

    /// Next sequence to be read.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Stands at another sequence.
    pub fn seek(&mut self, sequence: u64) {
        self.next = sequence;
    }

    /// Keeps the position of a named reader: nothing below `next` is needed again.
    pub fn commit(&self, next: u64) {
        if let Some(held) = &self.held {
            held.commit(self.media.as_ref(), next, self.header.epoch_of(next.saturating_sub(1)));
        }
    }

    /// Keeps a position by its identity, which must be of the stream as it is now.
    pub fn commit_identity(&mut self, epoch: u32, next: u64) -> Result<()> {
        self.reattach()?;
        self.header.check_identity(epoch, next)?;
        if let Some(held) = &self.held {
            held.commit(self.media.as_ref(), next, epoch);
        }
        Ok(())
    }

    /// Position that was committed last.
    pub fn committed(&self) -> u64 {
        self.held.as_ref().map_or(self.next, |held| held.committed().0)
    }

    /// The name of an origin.
    pub fn origin(&mut self, row: u32) -> &str {
        if row as usize >= self.origins.names.len()
            && let Ok(table) = Names::read(self.media.as_ref(), &self.folder, ORIGINS)
        {
            self.origins = table;
        }
        self.origins.names.get(row as usize).map_or("", String::as_str)
    }

    /// Names of all origins.
    pub fn origins(&mut self) -> Result<&[String]> {
        self.origins = Names::read(self.media.as_ref(), &self.folder, ORIGINS)?;
        Ok(&self.origins.names)
    }

    /// Why the table of origins, as it was read last, has no name for a row; none where it has one. A stream without a
    /// table has only messages of row 0, which has no name.
    pub fn origin_damage(&self, row: u32) -> Option<Error> {
        let (known, damaged) = (self.origins.names.len(), self.origins.damaged);
        if (row as usize) < known || (known == 0 && row == 0 && !damaged && !self.origins.torn) {
            return None;
        }
        let state = if damaged || self.origins.torn { "does not verify" } else { "is missing" };
        let what = format!("row {known} {state}: the origins of its messages and of all later rows are unknown");
        Some(Error::Format { path: self.folder.join(ORIGINS), what })
    }

    /// The same for the table as a whole: a row of it was damaged.
    pub fn origins_damage(&self) -> Option<Error> {
        self.origins.damaged.then(|| self.origin_damage(self.origins.names.len() as u32)).flatten()
    }

    /// The streams that this one points into, in all their epochs; none for a stream that is no view.
    pub fn parents(&self) -> Result<Vec<ParentRow>> {
        rows_of(self.media.as_ref(), &self.folder)
    }

    pub(crate) fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    #[inline]
    fn salt(&self, sequence: u64) -> u32 {
        let seed = self.seeds.iter().rev().find(|s| s.0 <= sequence).map_or(0, |s| s.2);
        salt(seed, sequence)
    }

    /// Index entries from `from` on, as many as lie in a row (at most `max`), not beyond what may be seen, nor beyond one
    /// that does not verify: that is an error when it is the first.
    pub fn entries(&mut self, from: u64, max: usize) -> Result<&[Entry]> {
        let mapped = self.entry_range(from, max)?;
        let Some((count, at)) = mapped else { return Ok(&[]) };
        let Some(index) = &self.index else { return Ok(&[]) };
        let bytes = index.read(at, count as u64 * ENTRY_BYTES as u64).ok_or_else(|| no_entry(index, at, from))?;
        let entries: &[Entry] = bytemuck::cast_slice(bytes);
        if self.options.check < Check::Entries {
            return Ok(entries);
        }
        match entries.iter().zip(from..).position(|(entry, sequence)| !entry.holds(self.salt(sequence))) {
            None => Ok(entries),
            Some(0) => Err(Error::Corrupt { path: index.path.clone(), at, sequence: from, what: "the entry" }),
            Some(good) => Ok(&entries[..good]),
        }
    }

    /// Maps the index segment of `from`; (number of entries, byte of the first) or none at the end.
    fn entry_range(&mut self, from: u64, max: usize) -> Result<Option<(usize, u64)>> {
        if from >= self.end() && self.is_unwritten() {
            self.refresh()?;
        }
        let bounds = self.bounds();
        let end = self.end();
        if from < bounds.first {
            return Err(Error::Gone { first: bounds.first });
        }
        if from >= end || max == 0 {
            return Ok(None);
        }
        let per = self.header.index_entries;
        let Ok(number) = u32::try_from(from / per) else {
            return Err(Error::Lost { path: self.folder.clone(), first: from, end });
        };
        if self.index.as_ref().is_none_or(|i| i.number != number || self.outlived(i)) {
            self.index = None;
            self.index = Some(match self.map_segment(false, number) {
                Err(Error::Missing(path)) => {
                    let next = self.next_index(number)?.map_or(u64::MAX, |next| u64::from(next) * per);
                    return Err(Error::Lost { path, first: from, end: end.min(next) });
                }
                answer => answer?,
            });
        }
        let mut count = ((per - from % per).min(end - from)).min(max as u64) as usize;
        let at = self.header.entry_at(from);
        if self.held.is_none() {
            // What is to be copied is copied now: what the writer has given up meanwhile is elsewhere, or gone.
            let whole = self.index.as_ref().is_some_and(|index| index.fill(at + (count * ENTRY_BYTES) as u64));
            if !whole && self.drop_given_up() {
                return self.entry_range(from, max);
            }
        }
        if self.index.as_ref().is_some_and(|index| index.read(at, (count * ENTRY_BYTES) as u64).is_none()) {
            // Messages before a place that cannot be read, or before the end of a file that was cut, are shown.
            count = count.min((4096 - at % 4096) as usize / ENTRY_BYTES);
        }
        Ok(Some((count, at)))
    }

    /// The first index segment behind a missing one: what the files say, so that damage costs no more time than they do.
    fn next_index(&self, missing: u32) -> Result<Option<u32>> {
        let mut numbers = segment_numbers(self.media.as_ref(), &self.folder, 'i')?;
        if let Some(live) = self.live_place() {
            numbers.append(&mut segment_numbers(self.media.as_ref(), live, 'i')?);
        }
        Ok(numbers.into_iter().find(|number| *number > missing))
    }

    /// The next messages, at most `max`; empty if there are none now. Moves on behind them. One that does not verify ends
    /// the batch before it, and is an error when it is the first.
    pub fn read(&mut self, max: usize) -> Result<Batch<'_>> {
        let max = if self.held.is_some() { max } else { self.copy_ahead(max)? };
        self.read_mapped(max)
    }

    /// Copies what `read_mapped` will show; how many messages that is.
    fn copy_ahead(&mut self, max: usize) -> Result<usize> {
        loop {
            let from = self.next;
            let answer = self.read_mapped(max).map(|batch| batch.len());
            self.next = from;
            match answer {
                // Bytes that a writer gave up while they were copied are elsewhere now, or gone.
                Err(Error::Corrupt { .. }) if self.drop_given_up() => {}
                answer => return answer,
            }
        }
    }

    fn read_mapped(&mut self, max: usize) -> Result<Batch<'_>> {
        let from = self.next;
        let Some((mut count, at)) = self.entry_range(from, max)? else {
            return Ok(Batch::none(from));
        };
        let Some(index) = self.index.clone() else { return Ok(Batch::none(from)) };
        let bytes = index.read(at, (count * ENTRY_BYTES) as u64).ok_or_else(|| no_entry(&index, at, from))?;
        let entries: &[Entry] = bytemuck::cast_slice(bytes);
        let segment = entries[0].segment;
        if !entries[0].holds(self.salt(from)) {
            return Err(Error::Corrupt { path: index.path.clone(), at, sequence: from, what: "the entry" });
        }
        if entries[0].parent != 0 {
            return self.read_view(from, entries, at);
        }
        if self.payload.as_ref().is_none_or(|p| p.number != segment) {
            self.payload = None;
            match self.map_segment(true, segment) {
                Ok(mapped) => self.payload = Some(mapped),
                // Messages without bytes need no file, and a segment of such alone has none on the medium.
                Err(Error::Missing(_)) if entries[0].length == 0 => return self.empties(from, count, at),
                Err(Error::Missing(path)) => {
                    let lost = |(i, e): &(usize, &Entry)| e.segment == segment && e.holds(self.salt(from + *i as u64));
                    let lost = entries.iter().enumerate().take_while(lost).count().max(1);
                    return Err(Error::Lost { path, first: from, end: from + lost as u64 });
                }
                Err(e) => return Err(e),
            }
        }
        let Some(payload) = &self.payload else { return Ok(Batch::none(from)) };
        let mut total = 0;
        for (i, entry) in entries.iter().enumerate() {
            let sequence = from + i as u64;
            total += u64::from(entry.length);
            let salt = self.salt(sequence);
            let is_apart = entry.segment != segment || entry.parent != 0;
            let is_full = i > 0 && total > self.options.batch_bytes;
            // The first was proven above.
            if is_apart || is_full || (self.options.check >= Check::Entries && !entry.holds(salt)) {
                count = i;
                break;
            }
            // Whatever is checked, a payload is all there or it is none.
            let (place, length) = (entry.offset(), u64::from(entry.length));
            let good = match self.options.check {
                Check::All => payload.read(place, length).is_some_and(|bytes| {
                    crc32c_from_memory(bytes, bytes.as_ptr_range().end) ^ salt == entry.payload_crc
                }),
                Check::Nothing | Check::Entries => payload.bytes(place, length).is_some(),
            };
            if !good && i > 0 {
                count = i;
                break;
            }
            if !good {
                let path = payload.path.clone();
                return Err(Error::Corrupt { path, at: place, sequence, what: "the payload" });
            }
        }
        self.next = from + count as u64;
        let entries = self.entries_at(at, count);
        Ok(Batch { first: from, entries, segments: self.payload.as_slice(), places: &[] })
    }

    /// The `count` entries from byte `at` of the mapped index segment on.
    fn entries_at(&self, at: u64, count: usize) -> &[Entry] {
        let bytes = self.index.as_ref().and_then(|index| index.bytes(at, (count * ENTRY_BYTES) as u64));
        let entries: &[Entry] = bytemuck::cast_slice(bytes.unwrap_or_default());
        debug_assert_eq!(entries.len(), count, "a batch has an entry for each message that the reader passed");
        entries
    }

    /// A batch of messages without bytes.
    fn empties(&mut self, from: u64, count: usize, at: u64) -> Result<Batch<'_>> {
        let entries = self.entries_at(at, count);
        let good = |(i, e): &(usize, &Entry)| {
            let salt = self.salt(from + *i as u64);
            e.length == 0 && e.parent == 0 && e.holds(salt) && e.payload_holds(&[], salt)
        };
        let count = entries.iter().enumerate().take_while(good).count();
        if count == 0 {
            let path = self.index.as_ref().map_or_else(|| self.folder.clone(), |i| i.path.clone());
            return Err(Error::Corrupt { path, at, sequence: from, what: "the entry" });
        }
        self.next = from + count as u64;
        Ok(Batch { first: from, entries: self.entries_at(at, count), segments: &[], places: &[] })
    }

    /// A batch that begins with a view entry: what it shows lies in several segments, of this stream and of others.
    fn read_view(&mut self, from: u64, entries: &[Entry], at: u64) -> Result<Batch<'_>> {
        let mut shown = std::mem::take(&mut self.shown);
        shown.begin();
        let (mut total, mut trouble) = (0, None);
        // All places first: while one payload is checked, the next one, which lies elsewhere, is on its way.
        for (entry, sequence) in entries.iter().zip(from..) {
            total += u64::from(entry.length);
            let full = total > self.options.batch_bytes || shown.segments.len() >= BATCH_SEGMENTS_MAX;
            if sequence > from && full {
                break;
            }
            match self.found(entry, sequence, &mut shown) {
                Ok(found) => shown.found.push(found),
                Err(e) => {
                    trouble = Some(e);
                    break;
                }
            }
        }
        let good = shown.check(self.options.check == Check::All);
        if let Some(found) = shown.found.get(good) {
            let (place, what) = (shown.places[good], "the payload");
            let path =
                shown.segments.get(place.segment as usize).map_or_else(|| self.folder.clone(), |s| s.path.clone());
            trouble = Some(Error::Corrupt { path, at: found.place.at, sequence: from, what });
        }
        shown.places.truncate(good);
        let count = good;
        self.shown = shown;
        // Messages before the wrong one are good; it is named when it is the first.
        if let (0, Some(error)) = (count, trouble) {
            return Err(match error {
                Error::Gone { first } => Error::Gone { first: from + self.parents.gone(entries, first).max(1) as u64 },
                // A caller can only continue behind a message of this stream.
                Error::Corrupt { path, at, what, .. } => Error::Corrupt { path, at, sequence: from, what },
                Error::Lost { path, .. } => Error::Lost { path, first: from, end: from + 1 },
                other => other,
            });
        }
        self.next = from + count as u64;
        let Shown { segments, places, .. } = &self.shown;
        debug_assert_eq!(places.len(), count, "a batch over several segments has a place for each message");
        Ok(Batch { first: from, entries: self.entries_at(at, count), segments, places })
    }

    /// Where the payload of an entry lies, in this stream or in one that it points into.
    #[inline]
    fn found(&mut self, entry: &Entry, sequence: u64, shown: &mut Shown) -> Result<Found> {
        let salt = self.salt(sequence);
        if self.options.check >= Check::Entries && !entry.holds(salt) {
            let at = self.header.entry_at(sequence);
            let path = self.index.as_ref().map_or_else(|| self.folder.clone(), |i| i.path.clone());
            return Err(Error::Corrupt { path, at, sequence, what: "the entry" });
        }
        if entry.parent != 0 {
            let how = (self.options.check, self.depth);
            return self.parents.follow(&self.media, &self.folder, how, entry, shown);
        }
        let segment = if entry.length == 0 { u32::MAX } else { self.placed_in(entry.segment, shown)? };
        let place = PayloadPlace { segment, at: entry.offset() };
        Ok(Found { place, salt, length: entry.length, crc: entry.payload_crc })
    }

    /// Where a payload segment of this stream is among those of a batch; put there if it is not.
    #[inline]
    fn placed_in(&mut self, number: u32, shown: &mut Shown) -> Result<u32> {
        if self.placed.0 == shown.round && self.payload.as_ref().is_some_and(|p| p.number == number) {
            return Ok(self.placed.1);
        }
        if self.placed.0 != shown.round {
            self.placed_bytes = 0;
        }
        if let Control::Live(head) = &self.control
            && is_kept(&Head::of(head).live_payload, number)
        {
            let quota = Head::of(head).quota.load(Ordering::Relaxed);
            // Who keeps one batch while the next is read is within the quota: this one ends here.
            if self.placed_bytes > 0 && self.placed_bytes + self.header.segment_bytes > quota {
                return Err(Error::Limit("a batch of a view shows more than the quota of one stream".into()));
            }
            self.placed_bytes += self.header.segment_bytes;
        }
        if self.payload.as_ref().is_none_or(|p| p.number != number) {
            self.payload = None;
            self.payload = Some(self.map_segment(true, number).map_err(|e| match e {
                Error::Missing(path) => Error::Lost { path, first: 0, end: 0 },
                other => other,
            })?);
        }
        shown.segments.extend(self.payload.clone());
        self.placed = (shown.round, shown.segments.len() as u32 - 1);
        Ok(self.placed.1)
    }

    /// The payload of a message of this stream, for a view that points to it.
    #[inline]
    pub(crate) fn locate(&mut self, epoch: u32, sequence: u64, shown: &mut Shown) -> Result<Found> {
        let per = self.header.index_entries;
        let number = (sequence >> per.trailing_zeros()) as u32;
        if sequence >= self.seen || self.index.as_ref().is_none_or(|i| i.number != number) {
            self.reach(sequence).map_err(|e| not_there(&self.folder, e))?;
        }
        let of = self.seeds.iter().rev().find(|s| s.0 <= sequence).map_or(0, |s| s.1);
        if of != epoch {
            let what =
                format!("was rewound: its message {sequence} is of epoch {of}, the view points to epoch {epoch}");
            return Err(Error::Parent { folder: self.folder.clone(), what });
        }
        let at = self.header.entry_at(sequence);
        let bytes = self.index.as_ref().and_then(|i| i.read(at, ENTRY_BYTES as u64));
        let Some(&[entry]) = bytes.map(bytemuck::cast_slice::<u8, Entry>) else {
            let path = self.index.as_ref().map_or_else(|| self.folder.clone(), |i| i.path.clone());
            return Err(Error::Corrupt { path, at, sequence, what: "the end of the index before the entry" });
        };
        // What a parent that is a view itself has lost is one message here: its own numbers say nothing above.
        self.found(&entry, sequence, shown).map_err(|e| match e {
            Error::Gone { .. } if entry.parent != 0 => Error::Gone { first: sequence + 1 },
            other => other,
        })
    }

    /// Maps the index segment of a message that a view points to.
    #[cold]
    fn reach(&mut self, sequence: u64) -> Result<()> {
        if sequence >= self.bounds().count {
            self.reattach()?;
        }
        let count = self.bounds().count;
        if sequence >= count {
            let what = format!("was rewound: it ends at {count}, the view points to message {sequence}");
            return Err(Error::Parent { folder: self.folder.clone(), what });
        }
        self.entry_range(sequence, 1)?;
        self.seen = count;
        Ok(())
    }

    /// One message by sequence (does not move the position).
    pub fn get(&mut self, sequence: u64) -> Result<Option<(Entry, Vec<u8>)>> {
        let stand = self.next;
        self.next = sequence;
        let answer = self.read(1).map(|batch| batch.iter().next().map(|m| (*m.entry, m.payload.to_vec())));
        self.next = stand;
        answer
    }

    /// How often the stream was opened for writing.
    fn opened(&self) -> u64 {
        match &self.control {
            Control::Live(map) => Head::of(map).opened.load(Ordering::SeqCst),
            Control::Cold { .. } => 0,
        }
    }

    /// True if the stream that this reader sees has no writer: a new writer has another control page.
    fn is_unwritten(&self) -> bool {
        match &self.control {
            Control::Live(map) => Head::of(map).state.load(Ordering::Acquire) == STATE_CLOSED,
            Control::Cold { .. } => true,
        }
    }

    /// The control page of who writes now: of a writer that came meanwhile, where nobody wrote what this reader sees.
    fn control_now(&self) -> Result<Option<Arc<Map>>> {
        let came = if self.is_unwritten() { seen_head(self.media.as_ref(), &self.header, &self.folder)? } else { None };
        Ok(match (came, &self.control) {
            (Some(head), _) => Some(Arc::new(head)),
            (None, Control::Live(head)) => Some(head.clone()),
            (None, Control::Cold { .. }) => None,
        })
    }

    /// An error where the stream keeps a segment no more, by its control page or, where there is none, by its record.
    fn must_keep(&self, page: Option<&Map>, payload: bool, number: u32) -> Result<()> {
        let Some(head) = page.map(Head::of) else { return self.record().must_keep(payload, number) };
        let low = if payload { &head.first_payload } else { &head.first_index };
        if is_kept(low, number) { Ok(()) } else { Err(Error::Gone { first: head.first.load(Ordering::Acquire) }) }
    }

    fn record(&self) -> Record {
        Record {
            media: self.media.clone(),
            folder: self.folder.clone(),
            uuid: self.header.uuid,
            index_entries: self.header.index_entries,
        }
    }

    /// True for an index segment mapped before a writer took the stream up again: its new entries are in another file.
    fn outlived(&self, index: &Mapped) -> bool {
        index.opened != self.opened()
    }

    fn map_segment(&mut self, payload: bool, number: u32) -> Result<Arc<Mapped>> {
        let name = segment_name(if payload { 'p' } else { 'i' }, number);
        let opened = self.opened();
        let Some(held) = &mut self.held else {
            let (map, path, copied) = self.copied(payload, number, &name)?;
            let hold = Hold::Copy(copied);
            return Ok(Arc::new(Mapped { map, path, number, payload, opened, hold, brought: None }));
        };
        if !held.mine() {
            let (at, epoch) = held.committed();
            *held = Arc::new(self.pins.take(self.media.as_ref(), ("", Kind::Anonymous, false), at, epoch)?);
        }
        let held = held.clone();
        held.pin(payload, number)?;
        let answer = self.map_pinned(payload, number, &name).and_then(|((map, file), path, live)| {
            if let (true, true, Control::Live(head)) = (payload, live, &self.control) {
                held.weigh(number, map.len() as u64, Head::of(head).keeps())?;
            }
            let brought = (!live).then(|| Brought::new(file, map.len()));
            Ok((map, path, brought))
        });
        match answer {
            Ok((map, path, brought)) => {
                let hold = Hold::Pin(held);
                Ok(Arc::new(Mapped { map, path, number, payload, opened, hold, brought }))
            }
            Err(e) => {
                held.unpin(payload, number);
                Err(e)
            }
        }
    }

    /// Finds a segment that is to be copied: in the live place, else in the folder.
    fn copied(&self, payload: bool, number: u32, name: &str) -> Result<(Arc<Map>, PathBuf, Copied)> {
        let open = |path: &Path| match self.media.open(path, Open::Read) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("open", path)(e)),
        };
        let control = self.control_now()?;
        let mut found = (self.header.live.join(name), None, true);
        if let Some(head) = &control {
            let low = if payload { &Head::of(head).live_payload } else { &Head::of(head).live_index };
            found.1 = if is_kept(low, number) { open(&found.0)? } else { None };
        }
        if found.1.is_none() && self.header.level == Level::Disk {
            found = (self.folder.join(name), open(&self.folder.join(name))?, false);
        }
        self.must_keep(control.as_deref(), payload, number)?;
        let (path, Some(file), live) = found else { return Err(Error::Missing(found.0)) };
        let len = file.len().map_err(Error::io("read", &path))?;
        let kept_by = control.map_or_else(|| KeptBy::Record(self.record()), |head| KeptBy::Page(head, live));
        Ok((Arc::new(Map::zeroed(len as usize)), path, Copied { file, filled: Mutex::new(0), kept_by }))
    }

    /// Releases copies of segments that the writer has given up, where nothing more can be copied. True if there was
    /// one.
    fn drop_given_up(&mut self) -> bool {
        let given_up = |mapped: &Option<Arc<Mapped>>| mapped.as_ref().is_some_and(|m| !m.is_kept());
        let any = given_up(&self.index) || given_up(&self.payload);
        if any {
            (self.index, self.payload, self.seen) = (None, None, 0);
        }
        any
    }

    /// Maps a segment whose pin stands: from the live place (true), else from the folder; then looks whether it is still
    /// there.
    fn map_pinned(&self, payload: bool, number: u32, name: &str) -> Result<(KeptMap, PathBuf, bool)> {
        if let Control::Live(head) = &self.control {
            let head = Head::of(head);
            let low = if payload { &head.live_payload } else { &head.live_index };
            if is_kept(low, number) {
                let path = self.header.live.join(name);
                if let Some(map) = self.map_file(&path)?
                    && is_kept(low, number)
                {
                    return Ok((map, path, true));
                }
            }
        }
        let path = self.folder.join(name);
        let map = if self.header.level == Level::Disk { self.map_file(&path)? } else { None };
        let control = self.control_now()?;
        self.must_keep(control.as_deref(), payload, number)?;
        map.map(|map| (map, path.clone(), false)).ok_or(Error::Missing(path))
    }

    fn map_file(&self, path: &Path) -> Result<Option<KeptMap>> {
        let file = match self.media.open(path, Open::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", path)(e)),
        };
        let len = file.len().map_err(Error::io("read", path))? as usize;
        let identity = file.identity();
        let mut maps = self.maps.lock().unwrap_or_else(|p| p.into_inner());
        if let Some(known) = maps.get(&identity)
            && known.0.len() == len
        {
            return Ok(Some(known.clone()));
        }
        if len == 0 {
            return Ok(None);
        }
        let map = Arc::new(file.map(len, false).map_err(Error::io("map", path))?);
        // Memory of an unlinked file is held by our map alone.
        let crowded = maps.len() >= READER_MAPS_MAX;
        maps.retain(|_, (map, file)| Arc::strong_count(map) > 1 || (!crowded && file.linked()));
        // Kept by identity: if the writer renames the file and writes it again, the pages are mapped already.
        maps.insert(identity, (map.clone(), file.clone()));
        Ok(Some((map, file)))
    }

    /// Waits until there is something to read. False if the time was over first.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        if !self.options.spin.is_zero() && self.spin(timeout) {
            return Ok(true);
        }
        loop {
            if self.end() > self.next {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.nap(left)?;
        }
    }

    /// Looks at the mark again and again, as long as asked for. True if there is something to read.
    fn spin(&self, timeout: Duration) -> bool {
        let Control::Live(map) = &self.control else { return false };
        let (_, mark) = self.awaited(map);
        let until = Instant::now() + self.options.spin.min(SPIN_MAX).min(timeout);
        loop {
            for _ in 0..SPIN_LOOKS {
                if marked(mark) > self.next {
                    return true;
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }

    /// The bell of this reader, and the mark that it waits for.
    fn awaited<'a>(&self, map: &'a Map) -> (&'a AtomicU32, &'a AtomicU64) {
        let head = Head::of(map);
        if self.waits_for_disk() { (&head.disk_word, &head.disk) } else { (&head.count_word, &head.count) }
    }

    /// True if it sees only what is safe on disk.
    fn waits_for_disk(&self) -> bool {
        self.header.level == Level::Disk && !self.options.early
    }

    /// Sleeps until there is something to read, or for no reason, or for `most`. Then looks for a new writer.
    pub(crate) fn nap(&mut self, most: Duration) -> Result<()> {
        if let Control::Live(map) = &self.control {
            let (word, _) = self.awaited(map);
            // A reader that cannot announce its sleep is not woken.
            let (seen, longest) = if self.pins.writable() {
                let asleep = self.pins.asleep(self.waits_for_disk());
                (Bell { word, asleep }.listen(), Duration::from_millis(250))
            } else {
                (word.load(Ordering::Acquire), Duration::from_millis(10))
            };
            if self.end() <= self.next {
                self.media.wait(word, seen, Some(most.min(longest)));
            }
        } else {
            // Not `sleep`: the thread of a watch can be told to end.
            std::thread::park_timeout(most.min(Duration::from_millis(50)));
        }
        self.refresh()
    }

    /// Wakes all who sleep on a control page: they look and go on sleeping.
    pub(crate) fn wake_all(media: &dyn Media, map: &Map) {
        let head = Head::of(map);
        media.wake(&head.count_word);
        media.wake(&head.disk_word);
    }

    pub(crate) fn media(&self) -> &Arc<dyn Media> {
        &self.media
    }

    /// The control page that it looks at.
    pub(crate) fn place(&self) -> Option<Arc<Map>> {
        if let Control::Live(map) = &self.control { Some(map.clone()) } else { None }
    }

    /// Another reader that sees what this one sees. It holds no place in `pins`: it is for waiting alone.
    pub(crate) fn lookout(&self) -> Self {
        let control = match &self.control {
            Control::Live(map) => Control::Live(map.clone()),
            &Control::Cold { commit, count, disk } => Control::Cold { commit, count, disk },
        };
        Self {
            media: self.media.clone(),
            folder: self.folder.clone(),
            header: self.header.clone(),
            control,
            pins: self.pins.clone(),
            held: None,
            options: ReadOptions { spin: Duration::ZERO, ..self.options.clone() },
            next: self.next,
            seeds: self.seeds.clone(),
            index: None,
            payload: None,
            seen: 0,
            parents: Parents::default(),
            shown: Shown::default(),
            depth: self.depth,
            placed: (0, 0),
            placed_bytes: 0,
            maps: Mutex::new(HashMap::new()),
            origins: Names::default(),
            looked: self.looked,
        }
    }

    /// Releases the segments that were read last: until the next call they are not pinned, and a writer can use their
    /// memory again. For a reader that looks at a message now and then.
    pub fn release(&mut self) {
        (self.index, self.payload, self.seen) = (None, None, 0);
        self.shown.release();
        self.parents.release();
    }

    /// Looks for a writer that started anew: another live place, another epoch. Cheap; at most every 200 ms.
    pub fn refresh(&mut self) -> Result<()> {
        if self.end() > self.next || self.looked.elapsed() < Duration::from_millis(200) {
            return Ok(());
        }
        self.reattach()
    }

    /// Looks for a writer that started anew: one read of the header.
    pub fn reattach(&mut self) -> Result<()> {
        self.looked = Instant::now();
        let header = Header::read(self.media.as_ref(), &self.folder)?;
        if header.uuid != self.header.uuid {
            let what = "another stream is here now: reopen it".into();
            return Err(Error::Format { path: self.folder.clone(), what });
        }
        let moved = header.live != self.header.live || header.boot != self.header.boot;
        if moved || header.epochs != self.header.epochs || self.is_unwritten() {
            let (header, control) = attach(self.media.as_ref(), &self.folder, Some(&self.control))?;
            (self.header, self.control) = (header, control);
            self.learn_epochs();
            (self.index, self.payload, self.seen) = (None, None, 0);
        }
        Ok(())
    }

    /// The smallest range of sequences outside of which no message has a source time in `[start, stop)`.
    /// Inside it, times are in any order: look at each entry.
    pub fn time_range(&mut self, start: i64, stop: i64) -> Result<(u64, u64)> {
        let bounds = self.bounds();
        let end = self.end();
        let mut range: Option<(u64, u64)> = None;
        // A block that cannot be read and touches the range may belong to it.
        let mut unread: Option<u64> = None;
        let mut at = bounds.first;
        while at < end {
            let block_end = ((at / TIME_BLOCK + 1) * TIME_BLOCK).min(end);
            let full =
                block_end.is_multiple_of(TIME_BLOCK) && block_end - at == TIME_BLOCK && block_end <= self.rows_end();
            let row = if full { self.time_row(at) } else { Ok(None) };
            let entries = match row {
                Ok(Some((min, max))) if max < start || min >= stop => {
                    (at, unread) = (block_end, None);
                    continue;
                }
                Ok(_) => self.entries(at, (block_end - at) as usize),
                Err(e) => Err(e),
            };
            match entries {
                Ok([]) => break,
                Ok(entries) => {
                    let inside = |e: &&Entry| e.source_time >= start && e.source_time < stop;
                    let first = entries.iter().position(|e| inside(&e)).map(|i| at + i as u64);
                    let last = entries.iter().rposition(|e| inside(&e)).map(|i| at + i as u64);
                    if let (Some(first), Some(last)) = (first, last) {
                        range = Some((range.map_or(unread.unwrap_or(first), |r| r.0), last + 1));
                    }
                    unread = None;
                    at += entries.len() as u64;
                }
                Err(e) => {
                    let missing = Missing::of(e, at)?;
                    // Behind retention that moved on meanwhile nothing is unread.
                    if missing.why != Why::Retention {
                        unread = unread.or(Some(at));
                        range = range.map(|r| if r.1 == at { (r.0, missing.next) } else { r });
                    }
                    at = missing.next;
                }
            }
        }
        Ok(range.unwrap_or((end, end)))
    }

    /// Rows of blocks that end above this say nothing: behind the record of a stream that nobody recovered stand those of
    /// what a recovery cut before.
    pub(crate) fn rows_end(&self) -> u64 {
        if let Control::Cold { commit, .. } = &self.control { commit.count } else { u64::MAX }
    }

    /// The proven row of the time table for the full block that begins at `at`, or none: then its entries must be seen.
    pub(crate) fn time_row(&mut self, at: u64) -> Result<Option<(i64, i64)>> {
        if self.entry_range(at, 1)?.is_none() {
            return Ok(None);
        }
        let per = self.header.index_entries;
        let place = at % per / TIME_BLOCK * TIME_ROW_BYTES;
        let seed = salt_seed(&self.header.uuid, 0);
        let Some(row) = self.index.as_ref().and_then(|i| i.read(place, TIME_ROW_BYTES)) else { return Ok(None) };
        let i64_at = |at: usize| i64::from_le_bytes(row[at..at + 8].try_into().unwrap_or_default());
        let range = (i64_at(0), i64_at(8));
        Ok((row[..24] == time_row(range, salt(seed, at))[..24]).then_some(range))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        (self.index, self.payload, self.shown) = (None, None, Shown::default());
        // Views may keep the place for long; the name is free for the next reader.
        if let Some(held) = self.held.take_if(|held| Arc::strong_count(held) > 1) {
            held.leave();
        }
    }
}

/// There is no entry where one should be: the file was cut off there, or cannot be read.
fn no_entry(index: &Mapped, at: u64, sequence: u64) -> Error {
    Error::Corrupt { path: index.path.clone(), at, sequence, what: "the end of the index before the entry" }
}

/// The control page as a reader may see it: one without access to the live place reads from the folder.
fn seen_head(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<Map>> {
    match live_head(m, header, folder) {
        Err(e) if e.is_denied() => Ok(None),
        answer => answer,
    }
}

/// `seen` is what was there before: what proved itself then is not looked at again.
fn attach(m: &dyn Media, folder: &Path, seen: Option<&Control>) -> Result<(Header, Control)> {
    let header = Header::read(m, folder)?;
    if header.boot == m.boot()
        && let Some(map) = seen_head(m, &header, folder)?
    {
        return Ok((header, Control::Live(Arc::new(map))));
    }
    if header.level == Level::Memory {
        return Ok((header, Control::Cold { commit: Commit::default(), count: 0, disk: 0 }));
    }
    let seed = salt_seed(&header.uuid, 0);
    let commit = match Commit::read(m, folder, seed)? {
        (Some(commit), _) => commit,
        _ => Commit::must_read(m, folder, seed)?,
    };
    let count = match seen {
        Some(Control::Cold { commit: known, count, .. }) if *known == commit => *count,
        _ if commit.clean => commit.count,
        _ => {
            let from = (commit.count, commit.segment, commit.used);
            tail(&mut Entries::to_read(m, folder, &header), folder, from, |_, _| {})?.0
        }
    };
    let disk = if header.boot == m.boot() { commit.count } else { count };
    Ok((header, Control::Cold { commit, count, disk }))
}

/// Takes the place of a reader. None where it reads by copying: `pins` may not be written, or the reader is anonymous and
/// only places for named readers are free.
fn place_of(
    m: &dyn Media,
    folder: &Path,
    pins: &Pins,
    options: &ReadOptions,
    (at, epoch): (u64, u32),
) -> Result<Option<Held>> {
    if !pins.writable() {
        return Ok(None);
    }
    let named = options.kind != Kind::Anonymous;
    let _alone = if named { Some(pins.lock(m, folder)?) } else { None };
    match pins.take(m, (&options.name, options.kind, options.strict), at, epoch) {
        Err(Error::ReadersFull) if !named => Ok(None),
        answer => answer.map(Some),
    }
}

fn bounds_of(control: &Control) -> Bounds {
    match control {
        Control::Live(map) => {
            let head = Head::of(map);
            Bounds {
                first: head.first.load(Ordering::Acquire),
                disk: marked(&head.disk),
                count: marked(&head.count),
                written: head.state.load(Ordering::Acquire) == STATE_WRITING,
                closed: head.state.load(Ordering::Acquire) == STATE_CLOSED,
                dropped: head.dropped.load(Ordering::Relaxed),
            }
        }
        &Control::Cold { commit: Commit { first, clean, .. }, count, disk } => {
            Bounds { first, count, disk, written: false, closed: clean, dropped: 0 }
        }
    }
}
