//! Shared memory: what an instrument asks for, and what is there.
//!
//! A live end that runs out of it makes its source wait, so what cannot fit is refused before anything starts. The sum is
//! what `live` of all sources says, and a little for each book; `check`, `up` and `doctor` all ask here.

use crate::figures::bytes;
use crate::file::{Instrument, MIRROR, Mistake, Stage, is_hosts_sink};
use crate::limits::{FILES_EACH, FILES_EACH_MIRROR, FILES_EACH_SENT, MAPS_EACH};
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
    let Some(limit) = open_files().filter(|limit| limit.rlim_cur < limit.rlim_max) else { return };
    let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
    // SAFETY: the structure outlives the call.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
}

/// The soft and the hard limit of open files.
fn open_files() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    (unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0).then_some(limit)
}

/// Says how many `what` the streams of an instrument need, each stage as `of` says, where that is above `limit`. Of one
/// on several hosts: of the host that needs most.
fn beyond(instrument: &Instrument, of: fn(&Stage) -> u64, limit: u64, what: &str) -> Option<String> {
    let of_part = |part: &Instrument| 100 + part.stages.iter().map(of).sum::<u64>();
    let hosts = instrument.hosts.iter().filter(|_| instrument.part.is_none()).flat_map(|hosts| &hosts.all);
    let of_host = |name: &str| instrument.clone().part(name).map(|part| of_part(&part)).unwrap_or(0);
    let needed = hosts.map(|host| of_host(&host.name)).max().unwrap_or_else(|| of_part(instrument));
    (needed > limit).then(|| format!("the streams need about {needed} {what}; at most {limit} are allowed"))
}

/// Open files of a stage, of a mirror with its connections.
fn files_of(stage: &Stage) -> u64 {
    match stage {
        Stage::Source(section) if section.kind == MIRROR => FILES_EACH_MIRROR,
        Stage::Live(section) if is_hosts_sink(&section.name) => FILES_EACH_SENT * section.inputs.len() as u64,
        _ => FILES_EACH,
    }
}

/// The open files that an instrument needs, where it may not have as many.
#[must_use]
pub fn lacking_files(instrument: &Instrument) -> Option<String> {
    beyond(instrument, files_of, open_files()?.rlim_max, "open files")
}

/// The maps of memory that an instrument needs, where the kernel allows fewer.
#[must_use]
pub fn lacking_maps(instrument: &Instrument) -> Option<String> {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()?;
    beyond(instrument, |_| MAPS_EACH, limit, "maps of memory (vm.max_map_count)")
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

/// The memory limit of this process's control group, if there is one: pages of shared memory count.
#[must_use]
pub fn group_limit() -> Option<u64> {
    limit_of(&std::fs::read_to_string("/proc/self/cgroup").ok()?, Path::new("/sys/fs/cgroup"))
}

/// The same of the groups in the form of `/proc/self/cgroup`, whose folders lie below `root`.
fn limit_of(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let is_first_version = controllers.split(',').any(|one| one == "memory");
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if is_first_version => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        // A container may see its own group as the root, and the path of the whole machine.
        let path = root.join(group.trim_start_matches('/'));
        let limit = |path: &Path| std::fs::read_to_string(path.join(file)).ok()?.trim().parse::<u64>().ok();
        path.ancestors().take_while(|path| path.starts_with(&root)).filter_map(limit).min()
    });
    // Version 1 says "no limit" by the largest number of whole pages.
    limits.min().filter(|limit| *limit < 1 << 60)
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
    // A merge has a book, and a stream of messages set aside; a worker its tasks, too.
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
    let found = match (group_limit().filter(|limit| asked > *limit), shared()) {
        (Some(limit), _) => {
            format!("the control group may use {}: beyond it processes are killed", bytes(limit))
        }
        (None, Some((free, _))) if free + held(&Data::on_disk(&*instrument.data)) >= asked => return None,
        (None, Some((free, size))) => format!("{PLACE} has {} free of {}", bytes(free), bytes(size)),
        (None, None) => format!("there is no {PLACE}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_limit_of_the_groups_counts() {
        let root = std::env::temp_dir().join(format!("beamport-groups-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("memory.max", "max\n");
        write("a.slice/memory.max", "100000000\n");
        write("a.slice/b.scope/memory.max", "200000000\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/docker/x/memory.limit_in_bytes", "96000000\n");
        assert_eq!(limit_of("0::/a.slice/b.scope\n", &root), Some(100_000_000));
        // The path of the whole machine, in a container that sees its own group as the root.
        assert_eq!(limit_of("0::/../elsewhere\n", &root), None);
        assert_eq!(limit_of("5:cpu:/\n4:memory:/docker/x\n0::/\n", &root), Some(96_000_000));
        assert_eq!(limit_of("4:memory:/\n", &root), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
