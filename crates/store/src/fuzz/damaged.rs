//! Files of real streams with random changes: two streams and a view of both, as a kill or a clean end left them, are
//! damaged by the input bytes, then read, verified, repaired and opened for writing.
//!
//! All files that the store reads are covered: header, origins, parents, pins, commit records, index with its time
//! table, payloads, control page. A damaged message may be refused or missing, but never wrong: its content follows
//! from schema and number, so each returned message is checked.
//!
//! ```text
//! u8 how the streams were left, then changes of 6 B: u8 which file, u8 what, u16 where, u16 with what
//! ```

use crate::error::Error;
use crate::format::control_page::Head;
use crate::format::entry::{Entry, Meta, SchemaId};
use crate::format::header::{Header, Level};
use crate::live::place::home_of;
use crate::outside::media::{Media, Open};
use crate::{Check, Drain, Kind, Os, ReadOptions, Reader, Stretch, WhenFull, Writer, repair, verify};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Changes of one case: more of them leave nothing to be reached.
const CHANGES_MAX: usize = 8;
/// Messages of each parent.
const MESSAGES: u64 = 300;
/// Of a file that is changed by place: so many bytes from its start hold all that is read first.
const NEAR: u64 = 24 << 10;

const DISK: SchemaId = SchemaId(*b"disk");
const MEMORY: SchemaId = SchemaId(*b"memo");
/// A message appended after a recovery.
const AFTER: SchemaId = SchemaId(*b"next");

/// The outcome of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Changes of files.
    pub changes: u64,
    /// Messages that were shown, each of them right.
    pub shown: u64,
    /// Errors of reading.
    pub refused: u64,
    /// Streams that were taken up again by a writer.
    pub opened: u64,
}

/// A stream as it lies there: its header, and the files of its folder and of its live place.
struct Laid {
    header: Header,
    files: Vec<(String, Vec<u8>)>,
    live: Vec<(String, Vec<u8>)>,
}

fn payload(schema: SchemaId, number: u64) -> Vec<u8> {
    let mix = (number + u64::from(schema.0[0])).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len = if number.is_multiple_of(50) { mix >> 52 } else { mix >> 58 };
    (0..len).map(|i| (mix >> (i % 7 * 8)) as u8 ^ i as u8).collect()
}

/// Which message of which parent stands in the view at a sequence.
fn viewed(sequence: u64) -> (SchemaId, u64) {
    (if sequence.is_multiple_of(2) { DISK } else { MEMORY }, sequence / 2)
}

fn right(name: &str, sequence: u64, entry: &Entry, bytes: &[u8]) -> bool {
    let (schema, number) = match name {
        "d" => (DISK, sequence),
        "m" => (MEMORY, sequence),
        _ => viewed(sequence),
    };
    let known = (entry.schema, entry.origin_seq, entry.source_time) == (schema, number, number as i64 * 1000);
    (known || (entry.schema == AFTER && entry.origin_seq == sequence))
        && bytes == payload(entry.schema, entry.origin_seq)
}

fn meta(schema: SchemaId, number: u64) -> Meta {
    Meta { source_time: number as i64 * 1000, origin: 0, origin_seq: number, schema, flags: 0 }
}

fn options(name: &str) -> crate::Options {
    let level = if name == "d" { Level::Disk } else { Level::Memory };
    let when_full = WhenFull::DropOldest;
    crate::Options { level, when_full, drain: Drain::Caller, ..crate::Options::memory(1 << 20) }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if let (Ok(name), Ok(bytes)) = (entry.file_name().into_string(), std::fs::read(entry.path())) {
            all.push((name, bytes));
        }
    }
    // The order in which a folder lists them is not the same twice.
    all.sort();
    all
}

/// The streams `d`, `m` and their view `v`, as a writer that lives leaves them (false) and as a clean end does (true).
fn streams() -> crate::Result<[Vec<Laid>; 2]> {
    let media = Os::shared();
    let place = media.live_root().join(format!("fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    media.create_dir(&place).map_err(Error::io("make", &place))?;
    let open = |name: &str| Writer::open(&media, &place.join(name), name, &options(name));
    let (mut disk, mut memory, mut view) = (open("d")?, open("m")?, open("v")?);
    disk.origin("a detector")?;
    memory.origin("a motor")?;
    for number in 0..MESSAGES {
        disk.push(&meta(DISK, number), &[&payload(DISK, number)])?;
        memory.push(&meta(MEMORY, number), &[&payload(MEMORY, number)])?;
        if number.is_multiple_of(130) {
            disk.drain()?;
        }
    }
    disk.publish();
    memory.publish();
    let parents = [view.parent("d")?, view.parent("m")?];
    let mut readers = Vec::new();
    for name in ["d", "m"] {
        let options = ReadOptions { early: true, name: "sink".into(), kind: Kind::Counted, ..ReadOptions::default() };
        readers.push(Reader::open(&media, &place.join(name), options)?);
    }
    for sequence in 0..2 * MESSAGES {
        let at = (sequence % 2) as usize;
        let Some((entry, _)) = readers[at].get(sequence / 2)? else { continue };
        view.push_view(parents[at], sequence / 2, &entry)?;
    }
    view.publish();
    readers.iter().for_each(|reader| reader.commit(100));
    let laid = || {
        ["d", "m", "v"].map(|name| place.join(name)).map(|folder| {
            let header = Header::read(&Os, &folder)?;
            let live = if header.live == folder { Vec::new() } else { files(&header.live) };
            Ok(Laid { files: files(&folder), live, header })
        })
    };
    let killed = laid().into_iter().collect::<crate::Result<_>>()?;
    drop((readers, view, memory, disk));
    let ended = laid().into_iter().collect::<crate::Result<_>>()?;
    let _ = std::fs::remove_dir_all(&place);
    Ok([killed, ended])
}

/// Lays the streams into `folder`, changes their files as `bytes` say, and does with them what can be done.
///
/// # Panics
///
/// If a damaged file brings the store to a panic, or to show what was never written: a bug.
pub fn damaged(bytes: &[u8], folder: &Path) -> Seen {
    static STREAMS: OnceLock<[Vec<Laid>; 2]> = OnceLock::new();
    let media = Os::shared();
    let mut seen = Seen::default();
    let Some((&left, changes)) = bytes.split_first() else { return seen };
    let known = STREAMS.get_or_init(|| streams().expect("streams can be made in shared memory"));
    let _ = std::fs::remove_dir_all(folder);
    let mut paths = Vec::new();
    for stream in &known[usize::from(left & 1)] {
        paths.extend(lay(&media, stream, folder, left & 2 != 0).expect("shared memory takes files"));
    }
    for change in changes.chunks_exact(6).take(CHANGES_MAX) {
        seen.changes += u64::from(damage(&paths, change));
    }
    // As they lie there, as a repair leaves them, and as a writer that takes them up does.
    examine(&media, folder, &mut seen);
    for name in ["d", "m", "v"] {
        let stream = folder.join(name);
        let before = verify(&media, &stream, &mut |_, _| ());
        let after = repair(&media, &stream, &mut |_, _| ());
        if let (Ok(before), Ok(after)) = (before, after) {
            assert!(after.left.wrong <= before.wrong, "a repair does no harm");
        }
    }
    examine(&media, folder, &mut seen);
    for name in ["d", "m", "v"] {
        append(&media, folder, name, &mut seen);
    }
    examine(&media, folder, &mut seen);
    seen
}

/// Takes a stream up, appends to it, and reads that back.
fn append(media: &Arc<dyn Media>, folder: &Path, name: &str, seen: &mut Seen) {
    let stream = folder.join(name);
    let Ok(mut writer) = Writer::open(media, &stream, name, &options(name)) else { return };
    seen.opened += 1;
    if name == "v" {
        // It searches its own index, which may be damaged.
        let parent = writer.parent("d");
        let _ = parent.and_then(|parent| writer.passed(parent, MESSAGES));
        let _ = writer.relieve();
    }
    for _ in 0..3 {
        let at = writer.next_sequence();
        let _ = writer.origin("what comes after");
        if writer.append(&meta(AFTER, at), &payload(AFTER, at)).is_err() {
            return;
        }
        let _ = writer.drain();
        let options = ReadOptions { early: true, ..ReadOptions::default() };
        // No place is left for it where the pins are full of names.
        let Ok(mut reader) = Reader::open(media, &stream, options) else { return };
        let shown = reader.get(at).expect("what was appended can be read").expect("it is there");
        assert!(right(name, at, &shown.0, &shown.1), "{name} {at}: {:?}", shown.0);
    }
}

/// Lays one stream out; the files that may be damaged. `gone`: without its live place.
fn lay(media: &Arc<dyn Media>, laid: &Laid, folder: &Path, gone: bool) -> crate::Result<Vec<PathBuf>> {
    let stream = folder.join(&laid.header.name);
    let own = laid.header.live.file_name() == stream.file_name();
    let live = if own { stream.clone() } else { folder.join("live").join(&laid.header.name) };
    let write = |to: &Path, files: &[(String, Vec<u8>)]| -> crate::Result<Vec<PathBuf>> {
        std::fs::create_dir_all(to).map_err(Error::io("make", to))?;
        let paths = files.iter().filter(|(name, _)| name != "lock").map(|(name, bytes)| {
            let path = to.join(name);
            // A segment is mostly room for what was not written.
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let file =
                std::fs::write(&path, &bytes[..used]).and_then(|()| std::fs::File::options().write(true).open(&path));
            let file = file.and_then(|file| file.set_len(bytes.len() as u64));
            file.map(|()| path.clone()).map_err(Error::io("write", &path))
        });
        paths.collect()
    };
    let mut paths = write(&stream, &laid.files)?;
    std::fs::write(stream.join("lock"), "").map_err(Error::io("write", &stream))?;
    Header { live: live.clone(), ..laid.header.clone() }.write(media.as_ref(), &stream)?;
    if !gone && !own {
        paths.extend(write(&live, &laid.live)?);
    }
    if let Ok(file) = media.open(&live.join("head"), Open::Write) {
        let map = file.map(crate::format::control_page::HEAD_BYTES, true).map_err(Error::io("map", &live))?;
        // Its folder is this one now: else it would be taken for that of another.
        Head::of(&map).home.store(home_of(media.as_ref(), &stream)?, Ordering::Relaxed);
    }
    Ok(paths)
}

/// Changes one file as six bytes say. False if there was nothing to change.
fn damage(paths: &[PathBuf], change: &[u8]) -> bool {
    let Some(path) = paths.get(usize::from(change[0]) % paths.len().max(1)) else { return false };
    let (place, with) = (u16::from_le_bytes([change[2], change[3]]), u16::from_le_bytes([change[4], change[5]]));
    let Ok(file) = std::fs::File::options().read(true).write(true).open(path) else { return false };
    let len = file.metadata().map_or(0, |m| m.len());
    if len == 0 {
        return false;
    }
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    // The words of a control page and of pins are where little is; the rest of the pages is empty.
    let near = match name {
        "head" => 320,
        "pins" => 1024,
        _ => NEAR,
    };
    let at = u64::from(place) % near.min(len);
    let (from, mut bytes) = match change[1] % 8 {
        0..=2 => (at, vec![0; 1]),
        3 | 4 => (at & !7, vec![0; 8]),
        5 => return file.set_len(at).is_ok(),
        6 => (at & !4095, vec![0; 4096]),
        _ => return std::fs::remove_file(path).is_ok(),
    };
    let Ok(n) = file.read_at(&mut bytes, from) else { return false };
    bytes.truncate(n);
    let before = bytes.clone();
    match change[1] % 8 {
        0 | 1 => bytes[0] ^= with.to_le_bytes()[0],
        2 => bytes[0] ^= 1 << (with % 8),
        // A word, of the kind that hurts.
        3 | 4 => {
            let small = u64::from(with >> 4);
            let word = match with % 6 {
                0 => u64::MAX,
                1 => small,
                2 => small << 32,
                3 => u64::MAX - small,
                4 => u64::from(u32::MAX),
                _ => small << 44,
            };
            bytes.iter_mut().zip(word.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        }
        _ => bytes.fill(0),
    }
    bytes != before && file.write_all_at(&bytes, from).is_ok()
}

/// Reads all streams in every way, and judges what is shown.
fn examine(media: &Arc<dyn Media>, folder: &Path, seen: &mut Seen) {
    for (name, early, kind) in [
        ("d", true, Kind::Anonymous),
        ("d", false, Kind::Counted),
        ("m", true, Kind::Counted),
        ("v", true, Kind::Anonymous),
    ] {
        let named = if kind == Kind::Counted { "sink" } else { "" };
        let options = ReadOptions { early, name: named.into(), kind, ..ReadOptions::default() };
        let Ok(mut reader) = Reader::open(media, &folder.join(name), options) else {
            seen.refused += 1;
            continue;
        };
        let _ = reader.origins().map(<[String]>::len);
        let _ = reader.parents();
        let _ = reader.pins().readers();
        let _ = reader.writer();
        let _ = reader.time_range(5000, 90_000);
        let bounds = reader.bounds();
        for at in [bounds.first, bounds.count.saturating_sub(1), bounds.count, u64::MAX] {
            if let Ok(Some((entry, bytes))) = reader.get(at) {
                assert!(right(name, at, &entry, &bytes), "{name} {at}: {entry:?}");
            }
        }
        let _ = reader.walk(bounds.first, bounds.count.min(3 * MESSAGES), &mut |_| ());
        if kind == Kind::Anonymous {
            reader.seek(bounds.first);
        }
        // A count that lies repeats itself; one that is right ends here.
        for _ in 0..4 * MESSAGES {
            let at = reader.position();
            match reader.next(usize::MAX) {
                Ok(Stretch::Messages(batch)) if batch.is_empty() => break,
                Ok(Stretch::Messages(batch)) => {
                    for m in batch.iter() {
                        assert!(right(name, m.sequence, m.entry, m.payload), "{name} {}: {:?}", m.sequence, m.entry);
                        seen.shown += 1;
                    }
                }
                Ok(Stretch::Missing(missing)) => {
                    assert!(missing.first == at && missing.next > at, "{missing:?}");
                    seen.refused += 1;
                    reader.seek(missing.next);
                }
                Err(_) => {
                    seen.refused += 1;
                    reader.seek(at.saturating_add(1));
                }
            }
        }
        // Entries are looked at without their payloads too.
        let entries = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
        if let Ok(mut reader) = Reader::open(media, &folder.join(name), entries) {
            let _ = reader.read(10).map(|batch| batch.len());
        }
    }
}
