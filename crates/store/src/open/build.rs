//! Builds a writer of what was found.

use crate::error::{Error, Result};
use crate::format::commit::{COMMIT_BYTES, Commit};
use crate::format::control_page::{HEAD_BYTES, HEAD_MAGIC, Head, STATE_FAILED, STATE_WRITING};
use crate::format::entry::{ENTRY_BYTES, salt_seed};
use crate::format::header::{Header, Level};
use crate::format::names::{Names, ORIGINS};
use crate::format::recovery::Recovery;
use crate::format::segments::{segment_name, segment_numbers, table_bytes};
use crate::limits::FORMAT;
use crate::limits::TIME_BLOCK;
use crate::live::pins::Pins;
use crate::live::place::{give_up, home_of, remove_live, uuid_words};
use crate::live::segment::Segment;
use crate::open::found::Standing;
use crate::outside::media::{Media, Open};
use crate::outside::steady::Steady;
use crate::read::entries::Entries;
use crate::write::drain::{Drainer, Ring};
use crate::write::view::View;
use crate::write::writer::{Kept, Options, Writer};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Makes the writer: live place, control page, current segments, drainer.
#[allow(clippy::too_many_arguments)]
pub(super) fn build(
    media: &Arc<dyn Media>,
    folder: &Path,
    mut header: Header,
    options: &Options,
    recovery: Recovery,
    standing: Standing,
    commit: Commit,
    lock: Box<dyn std::any::Any + Send + Sync>,
) -> Result<Writer> {
    let m = media.as_ref();
    header.boot = m.boot();
    let live = header.live.clone();
    if recovery != Recovery::Live && live != folder {
        give_up(m, &header, folder)?;
        remove_live(m, &live, folder);
    }
    m.create_dir(&live).map_err(Error::io("make", &live))?;
    header.format = upgraded(m, folder, header.format);
    let pins = Pins::open_for_writing(m, folder, header.format)?;
    if let Recovery::Cut { epoch, first, .. } | Recovery::Moved { epoch, first } = recovery {
        pins.rewind(first, epoch);
    }
    let origins = Names::read(m, folder, ORIGINS)?;
    let count = standing.count;
    let mut entries = Entries::new(m, folder, &header);

    let head_path = live.join("head");
    let head_file = m.open(&head_path, Open::Create).map_err(Error::io("create", &head_path))?;
    head_file.allocate(0, HEAD_BYTES as u64).map_err(Error::io("allocate", &head_path))?;
    let head_map = Arc::new(head_file.map(HEAD_BYTES, true).map_err(Error::io("map", &head_path))?);
    // Who looks for live places that are nobody's tries this lock: a process id says nothing in another namespace.
    let head_lock = m.lock(&head_path).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked(folder.to_path_buf()),
        _ => Error::io("lock", &head_path)(e),
    })?;

    let mut ring =
        crate::write::drain::RingState { keep: (standing.first, standing.first_segment, 0), ..Default::default() };
    ring.keep.2 = (standing.first / header.index_entries) as u32;
    // The writer before us may have died between a new row and its sync, or of that sync: after a failed one the kernel
    // calls pages clean that are not on the medium, so the rows are written again before they are synced.
    if header.level == Level::Disk && !origins.names.is_empty() {
        origins.write_again(m, folder, ORIGINS)?;
        ring.origins_dirty = true;
    }
    let index_number = header.index_number(count)?;
    let there = |kind: char| segment_numbers(m, &live, kind);
    let (low_payload, low_index) = if recovery == Recovery::Live {
        let head = Head::of(&head_map);
        (head.live_payload.load(Ordering::Acquire), head.live_index.load(Ordering::Acquire))
    } else {
        (0, 0)
    };
    // Payload segments that are alive in the live place; the last one is written on.
    for number in there('p')? {
        let path = live.join(segment_name('p', number));
        if count > 0 && number >= low_payload && number <= standing.segment {
            let bytes = m.open(&path, Open::Read).and_then(|f| f.len()).map_err(Error::io("read", &path))?;
            let segment = Segment::open(m, &path, bytes)?;
            if number < standing.segment {
                let end = entries.first_of(number + 1, standing.first, count)?;
                let last = if end > standing.first { Some(entries.raw(end - 1)?) } else { None };
                let last = last.filter(|e| e.segment == number);
                let end = last.map_or(0, |e| e.end());
                segment.closed_at.store(end, Ordering::Relaxed);
                segment.known(end);
            } else {
                segment.known(standing.used);
            }
            ring.payload.push_back((number, Arc::new(segment)));
        } else {
            m.unlink(&path).map_err(Error::io("remove", &path))?;
        }
    }
    let go_on = ring.payload.back().is_some_and(|s| s.0 == standing.segment);
    let (payload_number, used) = match (count, go_on) {
        (0, _) if standing.segment == 0 => (0, 0),
        (_, true) => (standing.segment, standing.used),
        (_, false) => (standing.segment + 1, 0),
    };
    if !go_on {
        let path = live.join(segment_name('p', payload_number));
        ring.payload.push_back((payload_number, Arc::new(Segment::open(m, &path, header.segment_bytes)?)));
    }
    for number in there('i')? {
        let path = live.join(segment_name('i', number));
        let full_before = u64::from(number) < count.div_ceil(header.index_entries);
        if full_before && number >= low_index {
            let segment = Segment::open(m, &path, header.index_bytes())?;
            let entries = (count - u64::from(number) * header.index_entries).min(header.index_entries);
            segment.known(table_bytes(header.index_entries) + entries * ENTRY_BYTES as u64);
            ring.index.push_back((number, Arc::new(segment)));
        } else {
            m.unlink(&path).map_err(Error::io("remove", &path))?;
        }
    }
    if ring.index.back().is_none_or(|s| s.0 != index_number) {
        let path = live.join(segment_name('i', index_number));
        let segment = Segment::open(m, &path, header.index_bytes())?;
        if !count.is_multiple_of(header.index_entries) {
            let used = header.entry_at(count);
            segment.reserve(used)?;
            let file = Entries::only_in(m, folder, &header).file('i', index_number)?.clone();
            let mut bytes = vec![0; used as usize];
            let from = folder.join(segment_name('i', index_number));
            let n = file.read_at(&mut bytes, 0).map_err(Error::io("read", &from))?;
            // SAFETY: a new segment that nobody else knows, reserved so far.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), segment.map.ptr(), n) };
        }
        ring.index.push_back((index_number, Arc::new(segment)));
    }

    let payload_first =
        if go_on && count > 0 { entries.first_of(payload_number, standing.first, count)? } else { count };
    let mut chain = VecDeque::new();
    let arrival = if count > standing.first { entries.raw(count - 1)?.arrival_time } else { i64::MIN };
    let now = m.now();
    let steady = Steady::new(m, arrival != i64::MIN);
    // When a segment began: no later than now, also where the clock was ahead then or its entries are damaged.
    let began = |entries: &mut Entries<'_>, at: u64| entries.believed(at).map_or(now, |e| e.arrival_time.min(now));
    if header.level == Level::Memory || options.has_retention() {
        let mut from = standing.first;
        for number in standing.first_segment..payload_number {
            let (first, arrived) = (from, began(&mut entries, from));
            from = entries.first_of(number + 1, first, count)?;
            // One whose last entry is damaged is counted as full.
            let end = |entries: &mut Entries<'_>| entries.believed(from - 1).map_or(header.segment_bytes, |e| e.end());
            let bytes = if from > first { end(&mut entries).next_multiple_of(4096) } else { 0 };
            chain.push_back(Kept { number, first, arrived, bytes });
        }
    }
    let arrived = if payload_first < count { began(&mut entries, payload_first) } else { now };
    let kept_bytes = chain.iter().map(|kept| kept.bytes).sum();
    chain.push_back(Kept { number: payload_number, first: payload_first, arrived, bytes: 0 });
    let mut block = (i64::MAX, i64::MIN);
    for sequence in count / TIME_BLOCK * TIME_BLOCK..count {
        let time = entries.raw(sequence)?.source_time;
        block = (block.0.min(time), block.1.max(time));
    }
    drop(entries);

    let head = Head::of(&head_map);
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
    head.quota.store(options.pin_bytes.unwrap_or(options.live_bytes / 4), Ordering::Relaxed);
    head.opened.fetch_add(1, Ordering::SeqCst);
    head.disk.store(if header.level == Level::Disk { commit.count } else { 0 }, Ordering::Relaxed);
    head.state.store(STATE_WRITING, Ordering::Relaxed);
    head.count.store(count, Ordering::Release);

    let shared = Arc::new(Ring::default());
    // Not the first message in memory: after a kill, retention may be ahead of the newest record.
    shared.kept.store(commit.first, Ordering::Relaxed);
    shared.drained_payload.store(commit.segment, Ordering::Relaxed);
    shared.drained_index.store((commit.count / header.index_entries) as u32, Ordering::Relaxed);
    let (index, payload) = match (ring.index.back(), ring.payload.back()) {
        (Some(index), Some(payload)) => (index.1.clone(), payload.1.clone()),
        _ => return Err(Error::Failed("no segment to write".into())),
    };
    *shared.lock() = ring;
    let drainer = (header.level == Level::Disk).then(|| Drainer {
        media: media.clone(),
        folder: folder.to_path_buf(),
        head: head_map.clone(),
        pins: pins.clone(),
        ring: shared.clone(),
        index_entries: header.index_entries,
        seed: salt_seed(&header.uuid, 0),
        done: commit,
        recorded: commit.count,
        files: BTreeMap::new(),
        released: VecDeque::new(),
        lowest: [None; 2],
        names_dirty: false,
    });
    head.home.store(home_of(m, folder)?, Ordering::Relaxed);
    head.mounts.store(m.mounts(), Ordering::Relaxed);
    head.set_folder(&std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf()));
    // "Not clean" stands on the medium before the first append: see decision 0001.
    let begin = || drainer.as_ref().map_or(Ok(()), |drainer| drainer.write_record(commit));
    // With the header the new epoch, or the stream itself, exists.
    // Nothing new to say needs no room: a writer comes back on a full disk.
    let exist =
        || if Header::read(m, folder).is_ok_and(|known| known == header) { Ok(()) } else { header.write(m, folder) };
    if matches!(recovery, Recovery::Clean | Recovery::Moved { .. }) {
        // The live place speaks for the stream before the record is not clean: whenever this process is killed, one of
        // them proves the tail.
        exist()?;
        head.magic.store(HEAD_MAGIC, Ordering::Release);
        begin()?;
    } else {
        // A control page that counts before the new epoch stands would, after a kill in between, be taken for a live
        // place that never was cut: numbers would be given twice.
        begin()?;
        if recovery == Recovery::Fresh && drainer.is_some() {
            // Names have no order either: a header without its commit records is a stream that does not open.
            m.sync_dir(folder).map_err(Error::io("sync", folder))?;
            // The folder's own name.
            let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            m.sync_dir(parent).map_err(Error::io("sync", parent))?;
        }
        exist()?;
        head.magic.store(HEAD_MAGIC, Ordering::Release);
    }
    debug_assert!(COMMIT_BYTES < 4096 && head.state.load(Ordering::Relaxed) != STATE_FAILED);
    Ok(Writer {
        media: media.clone(),
        folder: folder.to_path_buf(),
        live,
        seed: salt_seed(&header.uuid, header.epoch()),
        options: options.clone(),
        head: head_map,
        pins,
        ring: shared,
        origins,
        next: count,
        published: count,
        credit: 0,
        arrival,
        clock_flag: 0,
        steady,
        payload,
        payload_number,
        used,
        payload_first,
        index,
        index_number,
        table_bytes: table_bytes(header.index_entries),
        block,
        chain,
        kept_bytes,
        look_at: i64::MIN,
        view: View::new(count, standing.first),
        recovery,
        drainer: drainer.map(|drainer| Arc::new(Mutex::new(drainer))),
        job: None,
        header,
        _locks: [lock, head_lock],
    })
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
