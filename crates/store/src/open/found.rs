//! What an opening writer finds of a stream: in memory, or on the medium.

use crate::error::{Error, Result};
use crate::format::commit::Commit;
use crate::format::control_page::Head;
use crate::format::entry::{salt, salt_seed};
use crate::format::header::Header;
use crate::format::segments::{TIME_ROW_BYTES, segment_name, segment_number, segment_numbers, time_row};
use crate::limits::TIME_BLOCK;
use crate::live::place::live_head;
use crate::live::protocol::marked;
use crate::outside::files::{keep_copy, open_if_there};
use crate::outside::media::{File, Media, Open};
use crate::read::entries::{Entries, tail};
use std::path::Path;
use std::sync::atomic::Ordering;

/// The state of a stream: everything that a writer needs to continue.
pub(super) struct Standing {
    pub(super) count: u64,
    pub(super) first: u64,
    pub(super) first_segment: u32,
    pub(super) segment: u32,
    pub(super) used: u64,
}

/// After the death of a process: all that was published is there. None if the live place is not whole: somebody removed
/// files that the medium does not have yet.
pub(super) fn from_live(
    m: &dyn Media,
    folder: &Path,
    header: &Header,
    commit: Option<Commit>,
) -> Result<Option<Standing>> {
    let Some(map) = live_head(m, header, folder)? else { return Ok(None) };
    let head = Head::of(&map);
    let count = head.count.load(Ordering::Acquire);
    let first = head.first.load(Ordering::Acquire).min(count);
    let first_segment = head.first_payload.load(Ordering::Acquire);
    let safe = commit.map_or(first, |c| c.count);
    if safe > count || count < header.epochs.last().map_or(0, |e| e.1) {
        return Ok(None);
    }
    if count == 0 {
        return Ok(Some(Standing { count, first, first_segment, segment: 0, used: 0 }));
    }
    let mut entries = Entries::new(m, folder, header);
    let entry = match entries.believed(count - 1) {
        Ok(entry) => entry,
        // Nothing is kept, not even the last entry: the next segment is a new one.
        Err(Error::Missing(_)) if first == count && safe == count => {
            let segment = first_segment.saturating_sub(1);
            return Ok(Some(Standing { count, first, first_segment, segment, used: 0 }));
        }
        Err(e) => return Err(e),
    };
    if safe < count {
        let there = |kind: char, number: u32, bytes: u64| {
            let path = header.live.join(segment_name(kind, number));
            let Some(file) = open_if_there(m, &path, Open::Read)? else { return Ok(false) };
            Ok(file.len().map_err(Error::io("read", &path))? >= bytes)
        };
        let low = entries.believed(safe)?.segment;
        let (from, to) = (safe / header.index_entries, (count - 1) / header.index_entries);
        let payload = (low..=entry.segment).map(|n| ('p', n, header.segment_bytes));
        let index = (from..=to).map(|n| ('i', n as u32, header.index_bytes()));
        for (kind, number, bytes) in payload.chain(index) {
            if !there(kind, number, bytes)? {
                return Ok(None);
            }
        }
    }
    let used = entry.end();
    Ok(Some(Standing { count, first, first_segment, segment: entry.segment, used }))
}

/// The record of the newest mark of a live place: a commit of little is marked before its record is written.
pub(super) fn up_to_mark(m: &dyn Media, folder: &Path, header: &Header, commit: Commit) -> Result<Commit> {
    let marked = live_head(m, header, folder)?.map_or(0, |map| marked(&Head::of(&map).disk));
    if marked <= commit.count {
        return Ok(commit);
    }
    match Entries::new(m, folder, header).believed(marked - 1) {
        Ok(last) => Ok(Commit { count: marked, segment: last.segment, used: last.end(), ..commit }),
        // Messages since the record are written to the medium once more.
        Err(Error::Corrupt { .. } | Error::Missing(_)) => Ok(commit),
        Err(e) => Err(e),
    }
}

/// From the medium alone: what the commit record says, and past it what proves itself.
/// Also one past the last message of which there is a trace, or none if nothing can have come after.
pub(super) fn from_disk(
    m: &dyn Media,
    folder: &Path,
    header: &Header,
    commit: Commit,
    same_boot: bool,
) -> Result<(Standing, Option<u64>)> {
    let of = if same_boot { Entries::only_in } else { Entries::on_medium };
    let mut entries = of(m, folder, header);
    let promised = promised(&mut entries, commit)?;
    let count = promised.count;
    // Rows of the time table that come anew are made as their entries are looked at, which is once.
    let (mut times, mut rows) = ((i64::MAX, i64::MIN), Vec::new());
    let from_block = count / TIME_BLOCK;
    let begun = (from_block * TIME_BLOCK..count).try_for_each(|sequence| {
        let time = entries.raw(sequence)?.source_time;
        times = (times.0.min(time), times.1.max(time));
        Ok(())
    });
    let (count, segment, used) = tail(&mut entries, folder, (count, promised.segment, promised.used), |at, entry| {
        times = (times.0.min(entry.source_time), times.1.max(entry.source_time));
        if (at + 1).is_multiple_of(TIME_BLOCK) {
            rows.push(std::mem::replace(&mut times, (i64::MAX, i64::MIN)));
        }
    })?;
    let (mut end, mut at) = (count.max(commit.count), count);
    while let Ok(entry) = entries.raw(at) {
        at += 1;
        end = if entries.holds(&entry, at - 1) { at } else { end };
    }
    // A count below where the epoch began is of another life of the stream.
    let began = header.epochs.last().map_or(0, |e| e.1);
    let proven = commit.clean && commit.count == count && count >= began;
    if count > commit.count {
        begun?;
        write_time_rows(&mut entries, from_block, &rows)?;
        // Data written since the machine started may be in the page cache alone; after a power cut they came from the
        // medium. It counts from now on, so it goes to the medium first.
        let index = entries.index_number(commit.count)?..=entries.index_number(count - 1)?;
        let files = index.map(|n| ('i', n)).chain((commit.segment..=segment).map(|n| ('p', n)));
        for (kind, number) in files {
            let file = match entries.file(kind, number) {
                Ok(file) => file,
                // Messages without bytes need no payload segment.
                Err(Error::Missing(_)) => continue,
                Err(e) => return Err(e),
            };
            let path = folder.join(segment_name(kind, number));
            let from = if (kind, number) == ('p', commit.segment) { commit.used } else { 0 };
            if same_boot {
                write_again(file.as_ref(), from).map_err(Error::io("write", &path))?;
            }
            file.sync().map_err(Error::io("sync", &path))?;
        }
        let path = folder.join("origins");
        m.open(&path, Open::Write).and_then(|file| file.sync()).map_err(Error::io("sync", &path))?;
        m.sync_dir(folder).map_err(Error::io("sync", folder))?;
    }
    // Data beyond belong to the epoch that ended. Promised data that are damaged stay beside, for inspection.
    let last_index = (count / header.index_entries) as u32;
    for name in m.list(folder).map_err(Error::io("list", folder))? {
        let beyond = segment_number('p', &name).is_some_and(|n| n > segment)
            || segment_number('i', &name).is_some_and(|n| n > last_index);
        let path = folder.join(&name);
        if count < commit.count && (beyond || segment_number('i', &name) == Some(last_index)) {
            keep_copy(m, folder, &name)?;
        }
        if beyond {
            m.unlink(&path).map_err(Error::io("remove", &path))?;
        }
    }
    let standing = Standing { count, first: commit.first.min(count), segment, used, ..promised };
    Ok((standing, (!proven).then_some(end)))
}

/// What the commit record promises, as far as the index still says it: where its end was cut off or written over, the
/// last entry before that is the end.
pub(super) fn promised(entries: &mut Entries<'_>, commit: Commit) -> Result<Standing> {
    let Commit { first, first_segment, segment, used, .. } = commit;
    let there = segment_numbers(entries.m, &entries.places[0], 'i')?;
    let mut count = commit.count;
    while count > first {
        match entries.believed(count - 1) {
            Ok(_) if count == commit.count => break,
            Ok(entry) => {
                let (segment, used) = (entry.segment, entry.end());
                return Ok(Standing { count, first, first_segment, segment, used });
            }
            Err(Error::Corrupt { .. }) => count -= 1,
            // Nothing of it is left: on with the file before, so that a wrong count costs no more than the files.
            Err(Error::Missing(_)) => {
                let per = entries.header.index_entries;
                let before = there.range(..entries.index_number(count - 1)?).next_back();
                count = before.map_or(first, |n| ((u64::from(*n) + 1) * per).max(first));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(Standing { count, first, first_segment, segment, used })
}

/// Writes a file over itself from a byte on: after a failed sync the kernel calls pages clean that are not on the medium.
pub(super) fn write_again(file: &dyn File, from: u64) -> std::io::Result<()> {
    let mut bytes = vec![0; 1 << 20];
    let mut at = from;
    loop {
        let n = file.read_at(&mut bytes, at)?;
        if n == 0 {
            return Ok(());
        }
        file.write_at(&bytes[..n], at)?;
        at += n as u64;
    }
}

/// Writes rows of the time table, from that of a block on: those of a segment at once, if they are not there already.
pub(super) fn write_time_rows(entries: &mut Entries<'_>, from: u64, rows: &[(i64, i64)]) -> Result<()> {
    let per_segment = entries.header.index_entries / TIME_BLOCK;
    let seed = salt_seed(&entries.header.uuid, 0);
    let (mut block, mut rows) = (from, rows);
    while !rows.is_empty() {
        let (these, later) = rows.split_at(rows.len().min((per_segment - block % per_segment) as usize));
        let made: Vec<u8> =
            (block..).zip(these).flat_map(|(at, &range)| time_row(range, salt(seed, at * TIME_BLOCK))).collect();
        let (number, place) = ((block / per_segment) as u32, block % per_segment * TIME_ROW_BYTES);
        let file = entries.file('i', number)?;
        let mut there = vec![0; made.len()];
        if !matches!(file.read_at(&mut there, place), Ok(n) if there[..n] == made) {
            let path = entries.places[0].join(segment_name('i', number));
            file.write_at(&made, place).map_err(Error::io("write", &path))?;
        }
        (block, rows) = (block + these.len() as u64, later);
    }
    Ok(())
}
