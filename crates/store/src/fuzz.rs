//! Hostile files of a stream, for a reader and for a recovering writer, as one function: the seeded test and the
//! libFuzzer target both call it.
//!
//! ```text
//! u16 bytes of header, u16 of origins, header lines, origins, 128 B of commit, half of the rest index, half payload
//! ```
//! Header lines (none: a valid header) get a valid checksum and a live place of ours: the checksum refuses a hostile
//! one, and only the owner of the folder could have made it. A commit record is sealed if its first byte is odd.

mod blocks;
mod damaged;

pub use blocks::{BlockSeen, block};
pub use damaged::{Seen, damaged};

use crate::format::commit::Commit;
use crate::format::entry::{ENTRY_BYTES, Entry, salt, salt_seed};
use crate::format::names::{Names, ORIGINS};
use crate::{Check, Drain, Header, Level, Media, Options, Os, ReadOptions, Reader, Stretch, Writer, crc32c, verify};
use std::path::Path;
use std::sync::Arc;

/// Messages read from one hostile stream: an index that claims more repeats itself.
const MESSAGES_MAX: u64 = 10_000;

/// Where a search is not about the header: without one, what lies behind it is reached.
const HEADER: &str = "beamport-stream 1\nuuid 000102030405060708090a0b0c0d0e0f\nname hostile\nlevel disk\nclock epoch\n\
    index_entries 1024\nsegment_bytes 65536\ncreated 1\nboot 00000000000000000000000000000000\nepoch 1 0\nepoch 2 3\n";

/// Makes a stream of `bytes` in `folder` (which is emptied) and reads, verifies, repairs and recovers it.
///
/// # Panics
///
/// If files of a stream bring the store to a panic: a bug.
pub fn fuzz(bytes: &[u8], folder: &Path) {
    let media = Os::shared();
    let _ = std::fs::remove_dir_all(folder);
    let stream = folder.join("hostile");
    if std::fs::create_dir_all(&stream).is_err() || lay(bytes, &stream, &folder.join("live")).is_none() {
        return;
    }
    let _ = Header::read(media.as_ref(), &stream);
    examine(&media, &stream);
    let before = verify(&media, &stream, &mut |_, _| ());
    let after = crate::repair(&media, &stream, &mut |_, _| ());
    if let (Ok(before), Ok(after)) = (before, after) {
        assert!(after.left.wrong <= before.wrong, "a repair does no harm");
    }
    for level in [Level::Disk, Level::Memory] {
        let options = Options { level, drain: Drain::Caller, ..Options::memory(1 << 20) };
        if let Ok(mut writer) = Writer::open(&media, &stream, "hostile", &options) {
            let meta = crate::Meta {
                source_time: 1,
                origin: 0,
                origin_seq: writer.next_sequence(),
                schema: crate::SchemaId(*b"f144"),
                flags: 0,
            };
            if writer.origin("a").is_ok() && writer.append(&meta, b"what comes after a recovery").is_ok() {
                let at = writer.next_sequence() - 1;
                let _ = writer.drain();
                // Messages appended after a recovery can be read, whatever was there before.
                let early = ReadOptions { early: true, ..ReadOptions::default() };
                let mut reader = Reader::open(&media, &stream, early).expect("a stream that is written can be read");
                let (_, payload) = reader.get(at).expect("it can be read").expect("it is there");
                assert_eq!(payload, b"what comes after a recovery");
            }
        }
        examine(&media, &stream);
    }
}

/// Lays the files of a stream out. None where there are too few bytes.
fn lay(bytes: &[u8], stream: &Path, live: &Path) -> Option<()> {
    let (lengths, rest) = bytes.split_at_checked(4)?;
    let header = usize::from(u16::from_le_bytes([lengths[0], lengths[1]]));
    let origins = usize::from(u16::from_le_bytes([lengths[2], lengths[3]]));
    let (header, rest) = rest.split_at_checked(header)?;
    let (origins, rest) = rest.split_at_checked(origins)?;
    let (commit, rest) = rest.split_at_checked(128)?;
    let (index, payload) = rest.split_at(rest.len() / 2 / ENTRY_BYTES * ENTRY_BYTES);
    let lines = if header.is_empty() { HEADER.into() } else { String::from_utf8_lossy(header) };
    let kept = lines.lines().filter(|line| !line.starts_with("live ") && !line.starts_with("crc32c "));
    let mut text: String = kept.flat_map(|line| [line, "\n"]).collect();
    text += &format!("live {}\n", live.display());
    let crc = crc32c(text.as_bytes());
    std::fs::write(stream.join("stream"), format!("{text}crc32c {crc:08x}\n")).ok()?;
    let media = Os::shared();
    let known = Header::read(media.as_ref(), stream).ok();
    let mut records = vec![0; 8192];
    let mut entries = index.to_vec();
    for (place, record) in [0, 4096].into_iter().zip(commit.chunks(64)) {
        records[place..place + 64].copy_from_slice(record);
        if let (Some(header), 1) = (&known, record[0] & 1) {
            let sealed = Commit {
                generation: u64::from(record[0]),
                count: u64::from(record[8]) << (record[9] % 64),
                first: u64::from(record[16]) << (record[17] % 64),
                epoch: u32::from(record[24]),
                segment: u32::from(record[28]),
                used: u64::from(record[32]) << (record[33] % 64),
                first_segment: u32::from(record[40]),
                clean: record[44] & 1 == 1,
            };
            records[place..place + 64].copy_from_slice(&sealed.to_bytes(salt_seed(&header.uuid, 0)));
        }
    }
    if let Some(header) = &known {
        for (sequence, entry) in (0_u64..).zip(entries.chunks_exact_mut(ENTRY_BYTES)) {
            let mut sealed: Entry = bytemuck::pod_read_unaligned(entry);
            let salt = salt(salt_seed(&header.uuid, header.epoch_of(sequence)), sequence);
            // The last byte says whether the checksums hold: without them nothing behind them is reached.
            if entry[ENTRY_BYTES - 1] & 1 == 1 {
                let at = sealed.offset() as usize;
                let part = payload.get(at..).and_then(|p| p.get(..sealed.length as usize));
                sealed.payload_crc = part.map_or(0, crc32c) ^ salt;
                sealed.seal(salt);
                entry.copy_from_slice(bytemuck::bytes_of(&sealed));
            }
        }
    }
    std::fs::write(stream.join("origins"), origins).ok()?;
    std::fs::write(stream.join("commit"), records).ok()?;
    let table = known.as_ref().map_or(4096, |header| header.entry_at(0)) as usize;
    entries.splice(0..0, std::iter::repeat_n(0, table));
    std::fs::write(stream.join("i-00000000"), entries).ok()?;
    std::fs::write(stream.join("p-00000000"), payload).ok()?;
    let _ = Names::read(media.as_ref(), stream, ORIGINS);
    Some(())
}

/// Reads what there is, in every way.
fn examine(media: &Arc<dyn Media>, stream: &Path) {
    for check in [Check::Nothing, Check::Entries, Check::All] {
        let options = ReadOptions { early: true, check, ..ReadOptions::default() };
        let Ok(mut reader) = Reader::open(media, stream, options) else { continue };
        let _ = reader.origins();
        let _ = reader.time_range(i64::MIN, i64::MAX);
        let _ = reader.time_range(0, 1);
        let bounds = reader.bounds();
        for at in [bounds.first, bounds.count.saturating_sub(1), bounds.count, u64::MAX] {
            let _ = reader.get(at);
            let _ = reader.entries(at, 100).map(<[Entry]>::len);
        }
        reader.seek(bounds.first);
        let end = bounds.first.saturating_add(MESSAGES_MAX);
        while reader.position() < end {
            match reader.next(64) {
                Ok(Stretch::Messages(batch)) if batch.is_empty() => break,
                Ok(Stretch::Messages(batch)) => {
                    assert!(batch.iter().all(|m| m.payload.len() == m.entry.length as usize));
                }
                Ok(Stretch::Missing(missing)) => reader.seek(missing.next),
                Err(_) => reader.seek(reader.position().saturating_add(1)),
            }
        }
    }
}
