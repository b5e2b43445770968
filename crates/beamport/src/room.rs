//! Shared memory: what an instrument asks for, and what is there.
//!
//! A live end that runs out of it makes its source wait, so what cannot fit is refused before anything starts. The sum is
//! what `live` of all sources says, and a little for each book; `check`, `up` and `doctor` all ask here.

use crate::figures::bytes;
use crate::file::{Instrument, Mistake, Stage};
use flow::limits::BOOK_LIVE_BYTES;
use flow::{Data, Fault, Passes};
use settings::units::{Size, size_text};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use store::Level;

/// Where live ends are made.
const PLACE: &str = "/dev/shm";
/// Streams that beamport keeps for itself, beside one a source and one a sink: `runs` and `control`.
const BOOKS: usize = 2;

/// The file system of a path; none if it cannot be asked.
pub fn statfs(place: &Path) -> Option<libc::statfs> {
    let name = CString::new(place.as_os_str().as_bytes()).ok()?;
    // SAFETY: zero is a valid value of this plain structure.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: name and structure outlive the call.
    (unsafe { libc::statfs(name.as_ptr(), &mut stat) } == 0).then_some(stat)
}

/// Raises the soft limit of open files to the hard one, for this program and those that it starts: a stream takes about
/// ten files, and shells and systemd allow 1,024 softly. A limit that cannot be raised stays.
pub fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Bytes of shared memory that are free, and that there are.
#[must_use]
pub fn shared() -> Option<(u64, u64)> {
    statfs(Path::new(PLACE)).map(|s| (s.f_bavail * s.f_bsize as u64, s.f_blocks * s.f_bsize as u64))
}

/// Bytes of shared memory that are free.
#[must_use]
pub fn free() -> Option<u64> {
    shared().map(|s| s.0)
}

/// Bytes that the files of a folder take.
#[must_use]
pub fn taken(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.blocks() * 512).sum()
}

/// Bytes that live ends of a data folder take already.
#[must_use]
pub fn held(data: &Data) -> u64 {
    let names = data.streams(true).unwrap_or_default();
    let headers = names.iter().filter_map(|name| store::Header::read(data.media.as_ref(), &data.stream(name)).ok());
    headers.map(|header| taken(&header.live)).sum()
}

/// Memory streams of a data folder and the bytes of shared memory that each keeps.
#[must_use]
pub fn kept(data: &Data) -> Vec<(String, u64)> {
    let of = |name: String| {
        let header = store::Header::read(data.media.as_ref(), &data.stream(&name)).ok()?;
        let bytes = taken(&header.live);
        (header.level == Level::Memory && header.live.starts_with(PLACE) && bytes > 0).then_some((name, bytes))
    };
    data.streams(false).unwrap_or_default().into_iter().filter_map(of).collect()
}

/// Bytes that an instrument asks for.
#[must_use]
pub fn asked(instrument: &Instrument) -> u64 {
    // A merge has a book, and a stream of what goes aside; a worker its tasks, too.
    let books_of = |stage: &Stage| match stage {
        Stage::Source(_) => 1,
        // A live sink has the same.
        Stage::Merge(_) | Stage::Live(_) => 2,
        Stage::Worker(_) => 3,
    };
    let books = BOOKS + instrument.sinks.len() + instrument.stages.iter().map(books_of).sum::<usize>();
    let live = instrument.stages.iter().map(Stage::live_bytes);
    live.fold(books as u64 * BOOK_LIVE_BYTES, u64::saturating_add)
}

/// Why an instrument does not fit into shared memory, if it does not: at the line of its largest live end.
#[must_use]
pub fn lacking(instrument: &Instrument) -> Option<Mistake> {
    let asked = asked(instrument);
    let found = match shared() {
        Some((free, _)) if free + held(&Data::on_disk(&*instrument.data)) >= asked => return None,
        Some((free, size)) => format!("{PLACE} has {} free of {}", bytes(free), bytes(size)),
        None => format!("there is no {PLACE}"),
    };
    let left: u64 = store::abandoned(store::Os::shared().as_ref()).iter().map(|place| taken(place)).sum();
    let clean = match left {
        0 => String::new(),
        left => format!("; or free {} of removed folders: `beamport doctor --clean`", bytes(left)),
    };
    let largest = instrument.sources().max_by_key(|source| source.stream.live.0)?;
    Some(Mistake {
        level: crate::file::Severity::Error,
        file: instrument.file.display().to_string(),
        line: largest.stream.live.line_or(largest.line),
        pointer: String::new(),
        what: format!("the streams need {} of shared memory", bytes(asked)),
        cause: found,
        hint: format!(
            "lower `live` of `{}`, which is {}, or enlarge it: `mount -o remount,size={} {PLACE}`{clean}",
            largest.name,
            size_text(Size(largest.stream.live.0)),
            asked.saturating_mul(2)
        ),
    })
}

/// Refuses an instrument that does not fit.
pub fn for_instrument(instrument: &Instrument) -> Result<(), Fault> {
    match lacking(instrument) {
        None => Ok(()),
        Some(Mistake { file, line, what, cause, hint, .. }) => {
            let fault = Fault::new(format!("{file}:{line}: {what}"), cause).hint(hint);
            Err(Fault { passes: Passes::WithRoom, ..fault })
        }
    }
}
