//! Builds a writer of what was found.

use crate::error::{Error, Result};
use crate::format::commit::{COMMIT_BYTES, Commit};
use crate::format::control_page::{HEAD_BYTES, HEAD_MAGIC, Head, STATE_FAILED, STATE_WRITING};
use crate::format::entry::{ENTRY_BYTES, salt_seed};
use crate::format::header::{Header, Identity, Level, Near};
use crate::format::names::{Names, ORIGINS};
use crate::format::recovery::Recovery;
use crate::format::segments::{segment_name, segment_numbers, table_bytes};
use crate::limits::{FORMAT, NEAR_GONE, TIME_BLOCK};
use crate::live::pins::Pins;
use crate::live::place::{give_up, home_of, remove_live, uuid_words};
use crate::live::segment::Segment;
use crate::open::found::Standing;
use crate::outside::media::{Map, Media, Open};
use crate::outside::steady::Steady;
use crate::read::entries::Entries;
use crate::write::chain::{Chain, KeptSegment};
use crate::write::cursor::{Cursor, IndexEnd, PayloadEnd};
use crate::write::drain::{Drainer, Ring, RingState};
use crate::write::options::Options;
use crate::write::view::View;
use crate::write::writer::Writer;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Makes the writer of what was found, step by step: the live place, its segments, the list of retention, the control
/// page, and at last what makes the stream exist.
pub(super) fn build(
    media: &Arc<dyn Media>,
    folder: &Path,
    header: Header,
    (options, recovery): (&Options, Recovery),
    (standing, commit): (Standing, Commit),
    lock: Box<dyn std::any::Any + Send + Sync>,
) -> Result<Writer> {
    let m = media.as_ref();
    let mut opening = Opening { m, folder, header, options, recovery, standing, commit };
    opening.assert_sound();
    opening.make_live_folder()?;
    let pins = opening.pins()?;
    let origins = Names::read(m, folder, ORIGINS)?;
    let page = LivePage::open(m, folder, &opening.header)?;
    let mut ring = opening.ring(&origins)?;
    let mut entries = Entries::new(m, folder, &opening.header);
    let head = Head::of(&page.map);
    let written = opening.payload_segments(head, &mut entries, &mut ring.payload)?;
    let index_number = opening.index_segments(head, &mut ring.index)?;
    let past = opening.past(&mut entries, &written)?;
    let block = opening.time_block(&mut entries)?;
    drop(entries);
    opening.fill_page(head, &ring);
    let (index, payload) = match (ring.index.back(), ring.payload.back()) {
        (Some(index), Some(payload)) => (index.1.clone(), payload.1.clone()),
        _ => return Err(Error::Failed("no segment to write".into())),
    };
    let ring = opening.shared(ring);
    let drainer = opening.drainer(media, &page.map, &pins, &ring);
    opening.exist(head, drainer.as_ref())?;
    debug_assert!(COMMIT_BYTES < 4096 && head.state.load(Ordering::Relaxed) != STATE_FAILED);
    let Opening { header, options, recovery, standing, .. } = opening;
    Ok(Writer {
        media: media.clone(),
        folder: folder.to_path_buf(),
        live: header.live.clone(),
        seed: salt_seed(&header.uuid, header.epoch()),
        options: options.clone(),
        head: page.map,
        pins,
        ring,
        origins,
        cursor: Cursor::new(standing.count, past.arrival),
        payload: PayloadEnd { segment: payload, number: written.number, used: written.used, first: past.payload_first },
        index: IndexEnd { segment: index, number: index_number, table_bytes: table_bytes(header.index_entries), block },
        chain: past.chain,
        credit: 0,
        steady: past.steady,
        look_at: i64::MIN,
        view: View::new(standing.count, standing.first),
        mirrored: past.mirrored,
        recovery,
        drainer: drainer.map(|drainer| Arc::new(Mutex::new(drainer))),
        job: None,
        header,
        _locks: [lock, page.lock],
    })
}

/// The state that every step of an opening uses.
struct Opening<'a> {
    m: &'a dyn Media,
    folder: &'a Path,
    header: Header,
    options: &'a Options,
    recovery: Recovery,
    standing: Standing,
    /// The record on the medium, or the one that comes first.
    commit: Commit,
}

/// The control page, mapped and locked.
struct LivePage {
    map: Arc<Map>,
    lock: Box<dyn std::any::Any + Send + Sync>,
}

impl LivePage {
    fn open(m: &dyn Media, folder: &Path, header: &Header) -> Result<Self> {
        let path = header.live.join("head");
        let file = m.open(&path, Open::Create).map_err(Error::io("create", &path))?;
        file.allocate(0, HEAD_BYTES as u64).map_err(Error::io("allocate", &path))?;
        let map = Arc::new(file.map(HEAD_BYTES, true).map_err(Error::io("map", &path))?);
        // A search for live places without a writer tries this lock: a process id means nothing in another namespace.
        let lock = m.lock(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::WouldBlock => Error::Locked(folder.to_path_buf()),
            _ => Error::io("lock", &path)(e),
        })?;
        Ok(Self { map, lock })
    }
}

/// The payload segment that is written on.
struct Written {
    number: u32,
    /// Bytes in it.
    used: u64,
    /// It was there before.
    goes_on: bool,
}

/// The messages from before, as retention sees them.
struct Past {
    chain: Chain,
    /// First message of the segment that is written.
    payload_first: u64,
    /// Arrival of the newest message.
    arrival: i64,
    /// Of a mirror: the newest message of each near stream.
    mirrored: Vec<Identity>,
    steady: Steady,
}

impl Opening<'_> {
    /// Asserts what recovery has validated when it read the files: a mistake there would assign a number twice.
    fn assert_sound(&self) {
        let Self { header, standing, .. } = self;
        assert!(standing.first <= standing.count, "a stream begins within its messages");
        assert!(header.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "epochs follow each other");
        let newest = header.epochs.last();
        assert!(newest.is_none_or(|epoch| epoch.1 <= standing.count), "an epoch begins within the stream");
    }

    fn make_live_folder(&mut self) -> Result<()> {
        let Self { m, folder, .. } = *self;
        self.header.boot = m.boot();
        let live = &self.header.live;
        if self.recovery != Recovery::Live && live != folder {
            give_up(m, &self.header, folder)?;
            remove_live(m, live, folder);
        }
        m.create_dir(live).map_err(Error::io("make", live))?;
        if live != folder {
            m.share_live(live, folder).map_err(Error::io("share", live))?;
        }
        self.header.format = upgraded(m, folder, self.header.format);
        Ok(())
    }

    fn pins(&self) -> Result<Pins> {
        let pins = Pins::open_for_writing(self.m, self.folder, self.header.format)?;
        if let Recovery::Cut { epoch, first, .. } | Recovery::Moved { epoch, first } = self.recovery {
            pins.rewind(first, epoch);
        }
        Ok(pins)
    }

    /// The segments in memory, none yet.
    fn ring(&self, origins: &Names) -> Result<RingState> {
        let Standing { first, first_segment, .. } = self.standing;
        let keep = (first, first_segment, (first / self.header.index_entries) as u32);
        let mut ring = RingState { keep, ..Default::default() };
        // The writer before us may have died between a new row and its sync, or of that sync: after a failed one the
        // kernel calls pages clean that are not on the medium, so the rows are written again before they are synced.
        if self.header.level == Level::Disk && !origins.names.is_empty() {
            origins.write_again(self.m, self.folder, ORIGINS)?;
            ring.origins_dirty = true;
        }
        Ok(ring)
    }

    /// The lowest segment of the live place that is not given up; a new live place has none.
    fn lowest(&self, low: &AtomicU32) -> u32 {
        if self.recovery == Recovery::Live { low.load(Ordering::Acquire) } else { 0 }
    }

    fn remove(&self, kind: char, number: u32) -> Result<()> {
        let path = self.header.live.join(segment_name(kind, number));
        self.m.unlink(&path).map_err(Error::io("remove", &path))
    }

    /// Adds the payload segments that are alive in the live place, with the one that is written on.
    fn payload_segments(
        &self,
        head: &Head,
        entries: &mut Entries<'_>,
        list: &mut VecDeque<(u32, Arc<Segment>)>,
    ) -> Result<Written> {
        let (m, live) = (self.m, &self.header.live);
        let Standing { count, first, segment: newest, used, .. } = self.standing;
        let low = self.lowest(&head.live_payload);
        for number in segment_numbers(m, live, 'p')? {
            if count == 0 || number < low || number > newest {
                self.remove('p', number)?;
                continue;
            }
            let path = live.join(segment_name('p', number));
            let bytes = m.open(&path, Open::Read).and_then(|f| f.len()).map_err(Error::io("read", &path))?;
            let segment = Segment::open(m, &path, bytes)?;
            if number < newest {
                let end = entries.first_of(number + 1, first, count)?;
                let last = if end > first { Some(entries.raw(end - 1)?) } else { None };
                let end = last.filter(|e| e.segment == number).map_or(0, |e| e.end());
                segment.closed_at.store(end, Ordering::Relaxed);
                segment.known(end);
            } else {
                segment.known(used);
            }
            list.push_back((number, Arc::new(segment)));
        }
        let goes_on = list.back().is_some_and(|last| last.0 == newest);
        let (number, used) = match (count, goes_on) {
            (0, _) if newest == 0 => (0, 0),
            (_, true) => (newest, used),
            (_, false) => (newest + 1, 0),
        };
        if !goes_on {
            let path = live.join(segment_name('p', number));
            list.push_back((number, Arc::new(Segment::open(m, &path, self.header.segment_bytes)?)));
        }
        Ok(Written { number, used, goes_on })
    }

    /// Adds the index segments that are alive in the live place, with the one that is written on; its number.
    fn index_segments(&self, head: &Head, list: &mut VecDeque<(u32, Arc<Segment>)>) -> Result<u32> {
        let Self { m, folder, ref header, .. } = *self;
        let (count, live) = (self.standing.count, &header.live);
        let newest = header.index_number(count)?;
        let low = self.lowest(&head.live_index);
        for number in segment_numbers(m, live, 'i')? {
            let has_entries = u64::from(number) < count.div_ceil(header.index_entries);
            if !has_entries || number < low {
                self.remove('i', number)?;
                continue;
            }
            let segment = Segment::open(m, &live.join(segment_name('i', number)), header.index_bytes())?;
            let entries = (count - u64::from(number) * header.index_entries).min(header.index_entries);
            segment.known(table_bytes(header.index_entries) + entries * ENTRY_BYTES as u64);
            list.push_back((number, Arc::new(segment)));
        }
        if list.back().is_none_or(|last| last.0 != newest) {
            let segment = Segment::open(m, &live.join(segment_name('i', newest)), header.index_bytes())?;
            if !count.is_multiple_of(header.index_entries) {
                let used = header.entry_at(count);
                segment.reserve(used)?;
                let file = Entries::only_in(m, folder, header).file('i', newest)?.clone();
                let mut bytes = vec![0; used as usize];
                let from = folder.join(segment_name('i', newest));
                let n = file.read_at(&mut bytes, 0).map_err(Error::io("read", &from))?;
                // SAFETY: a new segment that nobody else knows, reserved so far.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), segment.map.ptr(), n) };
            }
            list.push_back((newest, Arc::new(segment)));
        }
        Ok(newest)
    }

    /// The list of retention.
    fn past(&self, entries: &mut Entries<'_>, written: &Written) -> Result<Past> {
        let Standing { count, first, first_segment, .. } = self.standing;
        let payload_first =
            if written.goes_on && count > 0 { entries.first_of(written.number, first, count)? } else { count };
        let newest = if count > first { Some(entries.raw(count - 1)?) } else { None };
        let arrival = newest.map_or(i64::MIN, |entry| entry.arrival_time);
        let mirrored = self.mirrored(entries)?;
        assert!(payload_first <= count && first <= count, "a segment begins within the stream");
        let now = self.m.now();
        let steady = Steady::new(self.m, arrival != i64::MIN);
        // When a segment began: no later than now, also where the clock was ahead then or its entries are damaged.
        let began = |entries: &mut Entries<'_>, at: u64| entries.believed(at).map_or(now, |e| e.arrival_time.min(now));
        let mut kept = VecDeque::new();
        if self.header.level == Level::Memory || self.options.has_retention() {
            let mut from = first;
            for number in first_segment..written.number {
                let (first, arrived) = (from, began(entries, from));
                from = entries.first_of(number + 1, first, count)?;
                let mut bytes = 0;
                if from > first {
                    // One whose last entry is damaged is counted as full.
                    let end = entries.believed(from - 1).map_or(self.header.segment_bytes, |e| e.end());
                    bytes = end.next_multiple_of(4096);
                }
                kept.push_back(KeptSegment { number, first, arrived, bytes });
            }
        }
        let arrived = if payload_first < count { began(entries, payload_first) } else { now };
        kept.push_back(KeptSegment { number: written.number, first: payload_first, arrived, bytes: 0 });
        Ok(Past { chain: Chain::new(kept), payload_first, arrival, mirrored, steady })
    }

    /// Of a mirror: the newest message of each near stream. Of one whose messages are gone, all are done.
    fn mirrored(&self, entries: &mut Entries<'_>) -> Result<Vec<Identity>> {
        let Standing { count, first, .. } = self.standing;
        let near = &self.header.near;
        let mut newest: Vec<Identity> = Vec::new();
        for (at, &Near { from, uuid, epoch }) in near.iter().enumerate() {
            let next = near.get(at + 1).map_or(count, |next| next.from.min(count));
            // No message came of it.
            if from >= next {
                continue;
            }
            let sequence = if next > first { entries.raw(next - 1)?.parent_sequence } else { NEAR_GONE };
            newest.retain(|known| known.uuid != uuid);
            newest.push(Identity { uuid, epoch, sequence });
        }
        Ok(newest)
    }

    /// Least and greatest source time of the messages behind the last row of the time table.
    fn time_block(&self, entries: &mut Entries<'_>) -> Result<(i64, i64)> {
        let count = self.standing.count;
        let mut block = (i64::MAX, i64::MIN);
        for sequence in count / TIME_BLOCK * TIME_BLOCK..count {
            let time = entries.raw(sequence)?.source_time;
            block = (block.0.min(time), block.1.max(time));
        }
        Ok(block)
    }

    /// Writes the control page; without its magic number it does not count yet.
    fn fill_page(&self, head: &Head, ring: &RingState) {
        let Self { m, ref header, ref standing, ref commit, .. } = *self;
        head.format.store(header.format, Ordering::Relaxed);
        for (word, value) in head.uuid.iter().zip(uuid_words(&header.uuid)) {
            word.store(value, Ordering::Relaxed);
        }
        head.epoch.store(header.epoch(), Ordering::Relaxed);
        head.first.store(standing.first, Ordering::Relaxed);
        head.first_payload.store(standing.first_segment, Ordering::Relaxed);
        head.first_index.store(ring.keep.2, Ordering::Relaxed);
        head.live_payload.store(ring.payload.front().map_or(0, |s| s.0), Ordering::Relaxed);
        head.live_index.store(ring.index.front().map_or(0, |s| s.0), Ordering::Relaxed);
        let process = m.process();
        head.pid.store(process.pid, Ordering::Relaxed);
        head.pid_start.store(process.start, Ordering::Relaxed);
        head.dropped.store(0, Ordering::Relaxed);
        head.quota.store(self.options.pin_bytes.unwrap_or(self.options.live_bytes / 4), Ordering::Relaxed);
        head.opened.fetch_add(1, Ordering::SeqCst);
        head.disk.store(if header.level == Level::Disk { commit.count } else { 0 }, Ordering::Relaxed);
        head.state.store(STATE_WRITING, Ordering::Relaxed);
        head.count.store(standing.count, Ordering::Release);
    }

    /// The segments as writer and drainer share them.
    fn shared(&self, ring: RingState) -> Arc<Ring> {
        let shared = Arc::new(Ring::default());
        // Not the first message in memory: after a kill, retention may be ahead of the newest record.
        shared.kept.store(self.commit.first, Ordering::Relaxed);
        shared.drained_payload.store(self.commit.segment, Ordering::Relaxed);
        shared.drained_index.store((self.commit.count / self.header.index_entries) as u32, Ordering::Relaxed);
        *shared.lock() = ring;
        shared
    }

    /// The drainer of a disk stream.
    fn drainer(&self, media: &Arc<dyn Media>, head: &Arc<Map>, pins: &Pins, ring: &Arc<Ring>) -> Option<Drainer> {
        (self.header.level == Level::Disk).then(|| Drainer {
            media: media.clone(),
            folder: self.folder.to_path_buf(),
            head: head.clone(),
            pins: pins.clone(),
            ring: ring.clone(),
            index_entries: self.header.index_entries,
            seed: salt_seed(&self.header.uuid, 0),
            done: self.commit,
            recorded: self.commit.count,
            files: BTreeMap::new(),
            released: VecDeque::new(),
            lowest: [None; 2],
            names_dirty: false,
        })
    }

    /// Writes the record, the header and the magic number of the control page: from here on the stream, or its new
    /// epoch, exists. "Not clean" is on the medium before the first append (decision 0001).
    fn exist(&self, head: &Head, drainer: Option<&Drainer>) -> Result<()> {
        let Self { m, folder, ref header, .. } = *self;
        head.home.store(home_of(m, folder)?, Ordering::Relaxed);
        head.mounts.store(m.mounts(), Ordering::Relaxed);
        head.set_folder(&std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf()));
        let record = || drainer.map_or(Ok(()), |drainer| drainer.write_record(self.commit));
        // A header that says nothing new needs no room: a writer comes back on a full disk.
        let write_header = || match Header::read(m, folder) {
            Ok(known) if known == *header => Ok(()),
            _ => header.write(m, folder),
        };
        if matches!(self.recovery, Recovery::Clean | Recovery::Moved { .. }) {
            // The live place speaks for the stream before the record is not clean: whenever this process is killed, one
            // of them proves the tail.
            write_header()?;
            head.magic.store(HEAD_MAGIC, Ordering::Release);
            return record();
        }
        // A control page that counts before the new epoch is in the header would, after a kill in between, be taken for
        // a live place that was never cut: numbers would be given twice.
        record()?;
        if self.recovery == Recovery::Fresh && drainer.is_some() {
            // Names have no order either: a header without its commit records is a stream that does not open.
            m.sync_dir(folder).map_err(Error::io("sync", folder))?;
            // The folder's own name.
            let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            m.sync_dir(parent).map_err(Error::io("sync", parent))?;
        }
        write_header()?;
        head.magic.store(HEAD_MAGIC, Ordering::Release);
        Ok(())
    }
}

/// The format of a stream of format `format` once this program writes it: the newest. Where there is no room for
/// another header it stays what it is.
fn upgraded(m: &dyn Media, folder: &Path, format: u32) -> u32 {
    if format == FORMAT {
        return format;
    }
    let stored = || Header::read_stored(m, folder);
    // Everything else in it changes later, behind the record that speaks for the stream.
    let _ = stored().and_then(|header| Header { format: FORMAT, ..header }.write(m, folder));
    stored().map_or(format, |header| header.format)
}
