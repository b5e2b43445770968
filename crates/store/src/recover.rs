//! Opening a stream for writing: creates, resumes or recovers it. Decision 0001 gives the rules and their reasons.
//!
//! Order of a recovery from the medium: find the tail that checksums prove, sync the files it is in, write a commit
//! record (not clean), write the header with the new epoch and live place, and only then append. So a second power cut
//! at any point finds either the old or the new state.
//!
//! Failure behaviour: messages past the proven tail are cut, and [`Recovery::Cut`] names them; their sequences are used
//! again only in a new epoch, so no identity ever names two messages. A refusal of the system (EIO on a commit record,
//! too many open files) is an error, never a reason to cut.

use crate::drain::{Drainer, Ring};
use crate::entries::Entries;
use crate::entry::{ENTRY_BYTES, Entry, salt, salt_seed};
use crate::error::{Error, Result};
use crate::layout::{
    COMMIT_BYTES, Commit, HEAD_BYTES, HEAD_MAGIC, Head, Header, Level, REMOVED, STATE_FAILED, STATE_WRITING,
    TIME_ROW_BYTES, segment_name, segment_number, segment_numbers, table_bytes,
};
use crate::limits::{FORMAT, FORMAT_OLDEST, STREAM_NAME_MAX, TAIL_PIECE, TAIL_THREADS, TIME_BLOCK};
use crate::media::{File, Map, Media, Open, read_again};
use crate::names::{Names, ORIGINS, PARENTS};
use crate::pins::Pins;
use crate::protocol::marked;
use crate::segment::Segment;
use crate::steady::Steady;
use crate::view::View;
use crate::writer::{Kept, Options, Writer, time_row};
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Result of opening for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// A new stream.
    Fresh,
    /// The live place was intact: nothing can be missing.
    Live,
    /// Closed cleanly and recovered from the medium: nothing can be missing.
    Clean,
    /// As `Clean`, and the folder is not where it was written: possibly a copy of one that continues elsewhere. Its
    /// messages are of another epoch from here on, so that no number is given twice.
    Moved {
        /// The epoch that ended.
        epoch: u32,
        /// First sequence of the new epoch.
        first: u64,
    },
    /// Recovered from the medium alone: from `first` on, messages of `epoch` may have been cut.
    Cut {
        /// The epoch that ended.
        epoch: u32,
        /// Where it ends: first sequence of the new epoch.
        first: u64,
        /// One past the last message of which there is a trace. `first` if there is none: what was in memory alone
        /// leaves none.
        end: u64,
        /// One past the last message that was marked on the medium.
        marked: u64,
    },
}

impl std::fmt::Display for Recovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fresh => f.write_str("new"),
            Self::Live => f.write_str("resumed, nothing lost"),
            Self::Clean => f.write_str("recovered from disk, nothing lost"),
            Self::Moved { epoch, first } => {
                write!(f, "moved or copied, nothing lost; epoch {epoch} ended at message {first}")
            }
            Self::Cut { epoch, first, end, .. } if first == end => {
                write!(
                    f,
                    "epoch {epoch} ended at message {first}; messages only in memory are lost; no others were found"
                )
            }
            Self::Cut { epoch, first, end, .. } => {
                write!(
                    f,
                    "messages {first} to {end} (exclusive) of epoch {epoch} were cut; the next epoch begins at {first}"
                )
            }
        }
    }
}

/// The state of a stream: everything that a writer needs to continue.
struct Standing {
    count: u64,
    first: u64,
    first_segment: u32,
    segment: u32,
    used: u64,
}

pub(crate) fn open(media: &Arc<dyn Media>, folder: &Path, name: &str, options: &Options) -> Result<Writer> {
    if name.is_empty() || name.len() > STREAM_NAME_MAX || name.contains(['\n', '/']) {
        return Err(Error::Limit(format!("`{}` is not a stream name", name.escape_default())));
    }
    media.create_dir(folder).map_err(Error::io("make", folder))?;
    let lock_path = folder.join("lock");
    let lock = media.lock(&lock_path).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked(folder.to_path_buf()),
        _ => Error::io("lock", &lock_path)(e),
    })?;
    let m = media.as_ref();
    let known = match Header::read(m, folder) {
        Ok(header) => Some(header),
        Err(Error::Missing(_)) => None,
        Err(e) => return Err(e),
    };
    let boot = media.boot();
    let here = format!("{:016x} {}", home_of(m, folder)?, m.machine());
    let live_there = |h: &Header| Ok::<_, Error>(h.boot == boot && live_head(m, h, folder)?.is_some());
    let (mut header, recovery, standing, commit) = match known {
        Some(mut header) if header.level == Level::Disk => {
            let commit = Commit::must_read(m, folder, salt_seed(&header.uuid, 0))?;
            if commit.clean && live_head(m, &header, folder).is_err_and(|e| e.is_denied()) {
                // It is another user's, who ended in order: all is on the medium.
                header.live = m.live_root().join(crate::layout::hex(&m.random()));
            }
            let live = if live_there(&header)? { from_live(m, folder, &header, Some(commit)) } else { Ok(None) };
            let live = match live {
                Err(Error::Missing(_) | Error::Corrupt { .. }) => None,
                answer => answer?,
            };
            if let Some(standing) = live {
                let commit = up_to_mark(m, folder, &header, commit)?;
                (header, Recovery::Live, standing, Some(commit))
            } else {
                // What is left of the live place still says how far it went.
                let head = if header.boot == boot { live_head(m, &header, folder)? } else { None };
                let published = head.map_or(0, |map| marked(&Head::of(&map).count));
                let (standing, end) = from_disk(m, folder, &header, commit, header.boot == boot)?;
                // The newer of two records may be the one that does not hold: what came after it cannot be told.
                let is_doubtful = Commit::damaged(m, folder, salt_seed(&header.uuid, 0))?.is_some();
                let end = end.or(is_doubtful.then_some(standing.count));
                let (epoch, first, marked) = (header.epoch(), standing.count, commit.count);
                let recovery = match end {
                    Some(end) => Recovery::Cut { epoch, first, end: end.max(published), marked },
                    None if header.home.as_ref().is_some_and(|home| *home != here) => Recovery::Moved { epoch, first },
                    None => Recovery::Clean,
                };
                (header, recovery, standing, Some(commit))
            }
        }
        Some(header) if live_there(&header)? => {
            let standing = from_live(m, folder, &header, None)?.ok_or_else(|| Error::Missing(header.live.clone()))?;
            (header, Recovery::Live, standing, None)
        }
        // New, or a memory stream whose memory is gone: what it held cannot be told, so it is another stream.
        other => {
            if let Some(old) = other
                && !is_foreign(m, &old, folder)?
            {
                remove_live(m, &old.live, folder);
            }
            let header = fresh_header(m, folder, name, options)?;
            let standing = Standing { count: 0, first: 0, first_segment: 0, segment: 0, used: 0 };
            (header, Recovery::Fresh, standing, None)
        }
    };
    if header.level != options.level && recovery != Recovery::Fresh {
        return Err(Error::Limit(format!(
            "the stream {} has level {}, not {}",
            folder.display(),
            header.level.as_str(),
            options.level.as_str()
        )));
    }
    header.name = name.to_string();
    header.home = Some(here);
    if recovery != Recovery::Live && is_foreign(m, &header, folder)? {
        // The folder is a copy: the live place is that of its original.
        header.live = m.live_root().join(crate::layout::hex(&m.random()));
    }
    header.shared_memory = (header.live != folder).then(|| m.shared_memory());
    if let Recovery::Cut { epoch, first, .. } | Recovery::Moved { epoch, first } = recovery {
        let next = epoch.checked_add(1).ok_or_else(|| Error::Limit("the stream has used up its epochs".into()))?;
        // Where commit records are gone too, less may be believed than an earlier epoch began with: nothing of it is left.
        header.epochs.retain(|e| e.1 <= first);
        header.epochs.push((next, first));
    }
    let commit = Commit {
        generation: commit.map_or(0, |c| c.generation) + 1,
        count: if recovery == Recovery::Live { commit.map_or(0, |c| c.count) } else { standing.count },
        // What the medium keeps: after a kill retention may have been ahead of it.
        first: if recovery == Recovery::Live { commit.map_or(0, |c| c.first) } else { standing.first },
        epoch: header.epoch(),
        segment: if recovery == Recovery::Live { commit.map_or(0, |c| c.segment) } else { standing.segment },
        used: if recovery == Recovery::Live { commit.map_or(0, |c| c.used) } else { standing.used },
        first_segment: if recovery == Recovery::Live {
            commit.map_or(0, |c| c.first_segment)
        } else {
            standing.first_segment
        },
        clean: false,
    };
    let made = (recovery != Recovery::Live).then(|| header.clone());
    let writer = build(media, folder, header, options, recovery, standing, commit, lock);
    if let (Err(e), Some(header)) = (&writer, made)
        && !matches!(e, Error::Locked(_))
        && matches!(any_head(m, &header, folder), Ok(None))
    {
        // It never came to speak for the stream.
        remove_live(m, &header.live, folder);
    }
    writer
}

fn fresh_header(m: &dyn Media, folder: &Path, name: &str, options: &Options) -> Result<Header> {
    let uuid = m.random();
    let live = if m.in_memory(folder) && options.level == Level::Memory {
        folder.to_path_buf()
    } else {
        m.live_root().join(crate::layout::hex(&uuid))
    };
    let (segment_bytes, index_entries) = options.sizes();
    // What an interrupted first opening or removal left behind would be taken for this stream's. `head` and the name of a
    // removed header go last: without them what is left would be taken for messages.
    let mut stale = m.list(folder).map_err(Error::io("list", folder))?;
    stale.sort_by_key(|name| (name == REMOVED, name == "head"));
    for stale in stale {
        if ["commit", ORIGINS, PARENTS, "pins", "head", REMOVED].contains(&stale.as_str())
            || segment_number('p', &stale).is_some()
            || segment_number('i', &stale).is_some()
        {
            let path = folder.join(stale);
            m.unlink(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(Header {
        format: FORMAT,
        uuid,
        name: name.to_string(),
        level: options.level,
        clock: options.clock,
        index_entries,
        segment_bytes,
        created: m.now(),
        boot: m.boot(),
        live,
        home: None,
        shared_memory: None,
        epochs: vec![(1, 0)],
    })
}

/// The control page of a header's live place, if it is there and belongs to this stream. An error says that it could not
/// be looked at (too many open files, say): that is no proof that it is gone, and what is in memory alone would go.
pub(crate) fn live_head(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<Map>> {
    Ok(live_page(m, header, folder)?.map(|(_, map)| map))
}

/// The same with its file.
pub(crate) fn live_page(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<(Arc<dyn File>, Map)>> {
    let Some((file, map)) = any_head(m, header, folder)? else { return Ok(None) };
    let is_ours = Head::of(&map).home.load(Ordering::Relaxed) == home_of(m, folder)?;
    Ok(is_ours.then_some((file, map)))
}

/// What tells a folder from its copies: its lock file.
pub(crate) fn home_of(m: &dyn Media, folder: &Path) -> Result<u64> {
    Ok(open_if_there(m, &folder.join("lock"), Open::Read)?.map_or(0, |file| file.identity()))
}

/// Opens a file; none if there is no such file, an error if that cannot be told.
pub(crate) fn open_if_there(m: &dyn Media, path: &Path, how: Open) -> Result<Option<Arc<dyn File>>> {
    match m.open(path, how) {
        Ok(file) => Ok(Some(file)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(Error::io("open", path)(e)),
    }
}

/// True if a header may name this live place: the folder itself, or one of a user's. The header of a folder from elsewhere
/// must not lead to other files, which an opening would replace.
fn may_be_live(m: &dyn Media, live: &Path, folder: &Path) -> bool {
    let root = m.live_root();
    let of_a_user = |parent: &Path| {
        let prefix = root.file_name().and_then(|name| name.to_str()?.rsplit_once('-')).map(|(prefix, _)| prefix);
        let name = parent.file_name().and_then(|name| name.to_str());
        parent.parent() == root.parent() && prefix.zip(name).is_some_and(|(prefix, name)| name.starts_with(prefix))
    };
    live == folder || live.parent().is_some_and(|parent| parent == root || of_a_user(parent))
}

/// True if the live place that a header names belongs to another folder, or is no place for one.
fn is_foreign(m: &dyn Media, header: &Header, folder: &Path) -> Result<bool> {
    if !may_be_live(m, &header.live, folder) {
        return Ok(true);
    }
    let Some((_, map)) = any_head(m, header, folder)? else { return Ok(false) };
    Ok(Head::of(&map).home.load(Ordering::Relaxed) != home_of(m, folder)?)
}

/// The control page of a stream of this identity, whoever's it is.
fn any_head(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<(Arc<dyn File>, Map)>> {
    let path = header.live.join("head");
    if !may_be_live(m, &header.live, folder) {
        return Ok(None);
    }
    let Some(file) = open_if_there(m, &path, Open::Read)? else { return Ok(None) };
    if file.len().map_err(Error::io("read", &path))? < HEAD_BYTES as u64 {
        return Ok(None);
    }
    let map = file.map(HEAD_BYTES, false).map_err(Error::io("map", &path))?;
    let head = Head::of(&map);
    let ours = head.magic.load(Ordering::Acquire) == HEAD_MAGIC
        && (FORMAT_OLDEST..=FORMAT).contains(&head.format.load(Ordering::Relaxed))
        && uuid_words(&header.uuid) == [head.uuid[0].load(Ordering::Relaxed), head.uuid[1].load(Ordering::Relaxed)];
    Ok(ours.then_some((file, map)))
}

fn uuid_words(uuid: &[u8; 16]) -> [u64; 2] {
    let [a, b] = uuid.as_chunks::<8>().0 else { return [0; 2] };
    [u64::from_le_bytes(*a), u64::from_le_bytes(*b)]
}

/// After the death of a process: all that was published is there. None if the live place is not whole: somebody removed
/// files that the medium does not have yet.
fn from_live(m: &dyn Media, folder: &Path, header: &Header, commit: Option<Commit>) -> Result<Option<Standing>> {
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
        // Nothing is kept, not even the last entry: the next segment begins anew.
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
fn up_to_mark(m: &dyn Media, folder: &Path, header: &Header, commit: Commit) -> Result<Commit> {
    let marked = live_head(m, header, folder)?.map_or(0, |map| marked(&Head::of(&map).disk));
    if marked <= commit.count {
        return Ok(commit);
    }
    match Entries::new(m, folder, header).believed(marked - 1) {
        Ok(last) => Ok(Commit { count: marked, segment: last.segment, used: last.end(), ..commit }),
        // What came since the record goes to the medium once more.
        Err(Error::Corrupt { .. } | Error::Missing(_)) => Ok(commit),
        Err(e) => Err(e),
    }
}

/// From the medium alone: what the commit record says, and past it what proves itself.
/// Also one past the last message of which there is a trace, or none if nothing can have come after.
fn from_disk(
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
        // What this start of the machine wrote is perhaps in the page cache alone; after a power cut it came from the
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
    // What lies beyond belongs to the epoch that ended. What was promised and is damaged stays beside, to be looked at.
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

/// What the commit record promises, as far as the index still says it: where its end was cut off or written over, the
/// last entry before that is the end.
fn promised(entries: &mut Entries<'_>, commit: Commit) -> Result<Standing> {
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

/// Copies a damaged file beside itself before anything is changed in it: `NAME.damaged-K`, which nobody reads.
pub(crate) fn keep_copy(m: &dyn Media, folder: &Path, name: &str) -> Result<PathBuf> {
    let names = m.list(folder).map_err(Error::io("list", folder))?;
    let free = (1..).map(|k: u32| format!("{name}.damaged-{k}")).find(|n| !names.contains(n)).unwrap_or_default();
    let (from, to) = (folder.join(name), folder.join(free));
    let source = m.open(&from, Open::Read).map_err(Error::io("open", &from))?;
    let copy = m.open(&to, Open::Create).map_err(Error::io("create", &to))?;
    let (mut bytes, mut at) = (vec![0; 1 << 20], 0);
    let len = source.len().map_err(Error::io("read", &from))?;
    while at < len {
        let n = match read_again(source.as_ref(), &mut bytes, at) {
            Ok(0) => break,
            Ok(n) => n,
            Err(_) => {
                // Block by block: what the medium does not give is zero in the copy.
                let piece = &mut bytes[..(1 << 20).min(len - at) as usize];
                for (i, block) in piece.chunks_mut(4096).enumerate() {
                    if read_again(source.as_ref(), block, at + (i * 4096) as u64).is_err() {
                        block.fill(0);
                    }
                }
                piece.len()
            }
        };
        copy.write_at(&bytes[..n], at).map_err(Error::io("write", &to))?;
        at += n as u64;
    }
    copy.sync().map_err(Error::io("sync", &to))?;
    m.sync_dir(folder).map_err(Error::io("sync", folder))?;
    Ok(to)
}

/// Writes a file over itself from a byte on: after a failed sync the kernel calls pages clean that are not on the medium.
fn write_again(file: &dyn File, from: u64) -> std::io::Result<()> {
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
fn write_time_rows(entries: &mut Entries<'_>, from: u64, rows: &[(i64, i64)]) -> Result<()> {
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

/// Removes what a stream has in its live place, and the place where that is not its folder. What stays costs memory only.
pub(crate) fn remove_live(m: &dyn Media, live: &Path, folder: &Path) {
    for name in m.list(live).unwrap_or_default() {
        if name == "head" || segment_number('p', &name).is_some() || segment_number('i', &name).is_some() {
            let _ = m.unlink(&live.join(name));
        }
    }
    if live != folder {
        let _ = m.remove_dir(live);
    }
}

/// Removes a stream without a writer; a missing one is no error. Readers keep what they have mapped. Cut short at any
/// point, the stream is whole or not there; called again, it removes what is left of its files.
pub fn remove(media: &Arc<dyn Media>, folder: &Path) -> Result<()> {
    let m = media.as_ref();
    let names = m.list(folder).map_err(Error::io("list", folder))?;
    if names.is_empty() {
        let _ = m.remove_dir(folder);
        return Ok(());
    }
    let lock = folder.join("lock");
    let _lock = m.lock(&lock).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked(folder.to_path_buf()),
        _ => Error::io("lock", &lock)(e),
    })?;
    match Header::read(m, folder) {
        Ok(header) => {
            if header.live != folder && !is_foreign(m, &header, folder)? {
                remove_live(m, &header.live, folder);
            }
            // Its files without a header would be damage.
            m.rename(&folder.join("stream"), &folder.join(REMOVED)).map_err(Error::io("rename", folder))?;
            m.sync_dir(folder).map_err(Error::io("sync", folder))?;
        }
        Err(Error::Missing(_) | Error::Headless(_)) => {}
        Err(e) => return Err(e),
    }
    for name in names.iter().filter(|name| !["stream", "lock", REMOVED].contains(&name.as_str())) {
        m.unlink(&folder.join(name)).map_err(Error::io("remove", folder))?;
    }
    // Only now, durably: a power cut must not bring files back without this name.
    m.sync_dir(folder).map_err(Error::io("sync", folder))?;
    match m.unlink(&folder.join(REMOVED)) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("remove", folder)(e)),
        _ => {}
    }
    // The lock goes last: until then nobody makes a stream here.
    m.unlink(&lock).map_err(Error::io("remove", folder))?;
    // A reader that came at this moment may have left its pins.
    let _ = m.remove_dir(folder);
    Ok(())
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

/// Makes the writer: live place, control page, current segments, drainer.
#[allow(clippy::too_many_arguments)]
fn build(
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
        crate::live::give_up(m, &header, folder)?;
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

    let mut ring = crate::drain::RingState { keep: (standing.first, standing.first_segment, 0), ..Default::default() };
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
