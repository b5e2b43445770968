//! `beamport doctor`: looks at this machine and says what would go wrong.
//!
//! It changes nothing but one file without a name, made and gone, to see whether the disk takes direct writes; with
//! `--clean` it removes live places whose folders are gone. Each
//! finding is `ok`, `note` (works, but know it) or `wrong` (something will fail; exit status 1).

mod systemd;

use super::figures::{bytes, span, thousands};
use super::forecast::{self, Forecast};
use super::{Answer, Verb, ended, json_line};
use crate::arguments::{DataFolder, Form};
use crate::edges::Registry;
use crate::file::{self, Instrument, Mistake};
use crate::limits::{self, INODES_NOTE, INODES_WRONG};
use crate::mover;
use crate::room;
use clap::Args;
use flow::status;
use flow::{Data, Fault};
use serde::Serialize;
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::Level;

/// Least free disk: the demonstration of 10 s takes about 150 MB in streams and file.
const DISK_WRONG: u64 = 256 << 20;
/// Below this a measurement of an hour at common rates does not fit.
const DISK_NOTE: u64 = 10 << 30;
/// Open files of one mover: each stream and reader holds about ten, and a reader keeps up to 96 maps open.
const FILES_NOTE: u64 = 1024;
/// Below this a demonstration with its five streams may run out of them.
const FILES_WRONG: u64 = 256;
/// Largest payload segment: a smaller limit on file sizes makes appends fail.
const SEGMENT: u64 = store::limits::SEGMENT_BYTES_MAX;
/// Below this the demonstration is aborted: maps of its streams, stacks of its threads.
const ADDRESS_SPACE: u64 = 4 << 30;
/// Least free shared memory where no stream asks yet: the live ends of the demonstration.
const SHARED_WRONG: u64 = 64 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Note,
    Wrong,
}

#[derive(Clone, Debug, Serialize)]
struct Finding {
    name: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
}

impl Finding {
    fn new(name: &'static str, verdict: Verdict, found: impl Into<String>) -> Self {
        Self { name, verdict, found: found.into(), hint: String::new() }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

/// `beamport doctor`
#[derive(Debug, Args)]
#[command(
    about = "Report problems of this machine that would affect an instrument",
    after_help = "Examples:\n  beamport doctor\n  beamport doctor amor.toml"
)]
pub struct Doctor {
    /// Instrument file to check against this machine
    #[arg(conflicts_with = "data")]
    pub file: Option<PathBuf>,
    /// Data folder to check as well
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Remove live places of removed folders from shared memory: first bring back folders that were moved
    #[arg(long)]
    pub clean: bool,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Doctor {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(examine(self, registry, out), err)
    }
}

fn examine(asked: &Doctor, registry: &Registry, out: &mut dyn Write) -> Answer {
    // Without a data folder the machine is looked at all the same: streams would then be made here.
    let (instrument, mistakes) =
        match asked.file.as_deref().map(|path| file::read(path, registry, &mover::template_check)) {
            Some(Ok(instrument)) => (Some(instrument), Vec::new()),
            Some(Err(mistakes)) => (None, mistakes),
            None => (None, Vec::new()),
        };
    let named = match &instrument {
        Some(instrument) => Some(instrument.data.value.clone()),
        None => DataFolder { data: asked.data.clone() }.resolve().ok(),
    };
    let folder = named.clone().unwrap_or_else(|| PathBuf::from("."));
    let data = named.filter(|folder| folder.is_dir()).map(Data::on_disk);
    let place = existing(&folder);
    let mut findings =
        vec![processor(), kernel(), futex(), file_system(&folder, &place), direct(&place), free_disk(&place)];
    findings.extend(inodes(&place));
    let forecast = data.as_ref().and_then(|data| forecast::forecast_of(data, instrument.as_ref()));
    findings.extend(forecast.as_ref().map(when_full));
    // A folder that a person named is meant to be there; that of an instrument is made when it first runs.
    if let (None, Some(named), None) = (&asked.file, &asked.data, &data) {
        let found = format!("no folder `{}`", named.display());
        let hint = "run `beamport doctor FILE` to check the folder of an instrument file";
        findings.push(Finding::new("data folder", Verdict::Wrong, found).hint(hint));
    }
    findings.push(shared_memory(data.as_ref(), instrument.as_ref()));
    findings.extend(instrument.as_ref().map(pinned).unwrap_or_default());
    findings.extend(mistakes.first().map(|first| instrument_file(first, mistakes.len())));
    findings.push(open_files(instrument.as_ref()));
    findings.extend(
        instrument
            .as_ref()
            .and_then(room::lacking_maps)
            .map(|found| Finding::new("maps", Verdict::Wrong, found).hint("`sysctl vm.max_map_count=1048576`")),
    );
    findings.push(file_size());
    findings.extend(address_space());
    findings.extend(memory_of_group(instrument.as_ref()));
    findings.extend(systemd::at_logout());
    findings.extend(systemd::services());
    findings.push(clock());
    findings.push(nexus());
    findings.push(kafka());
    findings.push(epics());
    findings.extend(instrument.as_ref().map(others).unwrap_or_default());
    findings.extend(left_over(asked.clean));
    findings.extend(data.as_ref().map(streams).unwrap_or_default());
    let wrong = findings.iter().any(|f| f.verdict == Verdict::Wrong);
    if asked.form.json {
        let folder = folder.display().to_string();
        let all = serde_json::json!({"ok": !wrong, "data": folder, "forecast": forecast, "findings": findings});
        json_line(out, &all)?;
    } else {
        write!(out, "{}", text(&findings))?;
    }
    Ok(ExitCode::from(u8::from(wrong)))
}

fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    let wide = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Wrong => "WRONG",
        };
        text += &format!("{verdict:<5}  {:<wide$}  {}\n", finding.name, finding.found);
        if !finding.hint.is_empty() {
            text += &format!("{:5}  {:<wide$}  -> {}\n", "", "", finding.hint);
        }
    }
    let count = |verdict| findings.iter().filter(|f| f.verdict == verdict).count();
    let (wrong, notes) = (count(Verdict::Wrong), count(Verdict::Note));
    text + &match (wrong, notes) {
        (0, 0) => "\nno problems\n".to_owned(),
        (0, notes) => format!("\nno problems; notes: {notes}\n"),
        (wrong, _) => format!("\nproblems: {wrong}\n"),
    }
}

/// The folder, or the nearest one above it that is there.
fn existing(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    absolute.ancestors().find(|p| p.is_dir()).map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}

fn processor() -> Finding {
    #[cfg(target_arch = "x86_64")]
    {
        let has = [
            ("SSE4.2", is_x86_feature_detected!("sse4.2")),
            ("PCLMULQDQ", is_x86_feature_detected!("pclmulqdq")),
            ("AVX2", is_x86_feature_detected!("avx2")),
            ("AVX-512", is_x86_feature_detected!("avx512f")),
        ];
        let words = |there| has.iter().filter(|h| h.1 == there).map(|h| h.0).collect::<Vec<_>>().join(", ");
        let found = if has[3].1 {
            format!("x86-64 with {}", words(true))
        } else {
            format!("x86-64 with {}, without {}", words(true), words(false))
        };
        if has[0].1 && has[1].1 {
            return Finding::new("processor", Verdict::Ok, found);
        }
        Finding::new("processor", Verdict::Note, found).hint("checksums are made in tables, several times slower")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let found = format!("{}: compiles by design, not tested", std::env::consts::ARCH);
        Finding::new("processor", Verdict::Note, found)
    }
}

fn kernel() -> Finding {
    // SAFETY: zero is a valid value of this plain structure.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    unsafe { libc::uname(&mut names) };
    let release: String = names.release.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect();
    kernel_of(&release)
}

fn kernel_of(release: &str) -> Finding {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let found = format!("Linux {release}");
    if version >= (5, 14) {
        return Finding::new("kernel", Verdict::Ok, found);
    }
    // MADV_POPULATE_WRITE came with 5.14.
    Finding::new("kernel", Verdict::Note, found)
        .hint("before 5.14 pages cannot be touched ahead: first appends are slower")
}

fn futex() -> Finding {
    let word = std::sync::atomic::AtomicU32::new(0);
    // SAFETY: waking uses the address of a word that we own.
    let answer = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1, 0, 0, 0) };
    if answer >= 0 {
        return Finding::new("futex", Verdict::Ok, "readers can sleep on a stream");
    }
    Finding::new("futex", Verdict::Wrong, format!("refused: {}", io::Error::last_os_error()))
        .hint("a sandbox forbids the system call: allow `futex`")
}

fn file_system(folder: &Path, place: &Path) -> Finding {
    const NAME: &str = "file system";
    let Some(stat) = room::statfs(place) else {
        return Finding::new(NAME, Verdict::Wrong, format!("{}: {}", place.display(), io::Error::last_os_error()));
    };
    let (name, why) = file_system_of(stat.f_type);
    let found = format!("{name} for {}", folder.display());
    if why.is_empty() && !allocates(place) {
        let found = format!("{found}, without fallocate: files are filled with zeroes before they are used");
        return Finding::new(NAME, Verdict::Note, found).hint("ext4 or xfs write half as much");
    }
    if why.is_empty() {
        return Finding::new(NAME, Verdict::Ok, found);
    }
    Finding::new(NAME, Verdict::Wrong, format!("{found}: {why}"))
        .hint("put the data folder on ext4, xfs or tmpfs: `data = \"DIR\"`")
}

/// Why the file system of a data folder cannot keep the promises, where it cannot.
pub(crate) fn unfit(folder: &Path) -> Option<String> {
    let (name, why) = file_system_of(room::statfs(&existing(folder))?.f_type);
    (!why.is_empty()).then(|| format!("the data folder {} is on {name}: {why}", folder.display()))
}

/// A file without a name in a folder.
fn unnamed(place: &Path, flags: i32) -> io::Result<std::fs::File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).read(true).custom_flags(flags | libc::O_TMPFILE | libc::O_CLOEXEC).mode(0o600).open(place)
}

/// False where the file system is known to allocate nothing in advance: ext2 and ext3 have the number of ext4.
fn allocates(place: &Path) -> bool {
    let Ok(file) = unnamed(place, 0) else { return true };
    // SAFETY: a plain system call on a descriptor that we own.
    let answer = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 4096) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EOPNOTSUPP)
}

/// Name of a file system by its magic number (statfs(2)), and why it is refused; empty if it is not.
fn file_system_of(magic: i64) -> (String, &'static str) {
    let network = "another machine can change mapped files, and its sync does not reach the disk";
    let (name, why) = match magic & 0xffff_ffff {
        // The same number for ext2 to ext4.
        0xef53 => ("ext4", ""),
        0x5846_5342 => ("xfs", ""),
        0x0102_1994 => ("tmpfs", ""),
        0x9123_683e => ("btrfs", "it copies on write: allocated space can still run out"),
        0x2fc1_2fc1 => ("zfs", "it copies on write: allocated space can still run out"),
        0x794c_7630 => ("overlayfs", "a map from before the first write shows another file"),
        0x6969 => ("nfs", network),
        0xff53_4d42 | 0xfe53_4d42 => ("smb", network),
        0x0bd0_0bd0 => ("lustre", network),
        0x4750_4653 => ("gpfs", network),
        0x00c3_6400 => ("ceph", network),
        0x6573_5546 => ("fuse", "the effect of sync depends on an unknown program"),
        other => return (format!("unknown ({other:#x})"), "its sync and maps are untested"),
    };
    (name.to_owned(), why)
}

fn direct(place: &Path) -> Finding {
    const NAME: &str = "direct writes";
    match (unnamed(place, libc::O_DIRECT), unnamed(place, 0)) {
        (Ok(_), _) => Finding::new(NAME, Verdict::Ok, "O_DIRECT works"),
        (Err(e), Ok(_)) => {
            Finding::new(NAME, Verdict::Note, format!("no O_DIRECT ({e}): streams go through the page cache, slower"))
        }
        (_, Err(e)) => Finding::new(NAME, Verdict::Wrong, format!("cannot create a file in {}: {e}", place.display()))
            .hint("choose a writable folder"),
    }
}

fn free_disk(place: &Path) -> Finding {
    const NAME: &str = "free disk";
    let Some(stat) = room::statfs(place) else { return Finding::new(NAME, Verdict::Note, "not known") };
    let free = stat.f_bavail * stat.f_bsize as u64;
    let found = format!("{} at {}", bytes(free), place.display());
    match free {
        0..DISK_WRONG => {
            Finding::new(NAME, Verdict::Wrong, found).hint("free some space, or choose another data folder")
        }
        DISK_WRONG..DISK_NOTE => {
            Finding::new(NAME, Verdict::Note, found).hint("an hour of data may not fit: set `retain`")
        }
        _ => Finding::new(NAME, Verdict::Ok, found),
    }
}

/// Each stream takes about ten files; a disk without inodes takes no message, however much is free.
fn inodes(place: &Path) -> Option<Finding> {
    const NAME: &str = "inodes";
    let stat = room::statfs(place)?;
    // File systems that make them as they are needed have none.
    let verdict = match stat.f_ffree {
        _ if stat.f_files == 0 => return None,
        0..INODES_WRONG => Verdict::Wrong,
        INODES_WRONG..INODES_NOTE => Verdict::Note,
        _ => return None,
    };
    let found = format!("{} free at {}", thousands(stat.f_ffree), place.display());
    Some(Finding::new(NAME, verdict, found).hint("remove files there, or choose another data folder"))
}

/// When the disk is full at the present rate. With `keep_free` the oldest messages are deleted and nothing fails.
fn when_full(forecast: &Forecast) -> Finding {
    const NAME: &str = "disk full";
    let found = forecast.text();
    let verdict = match forecast.full_in_s {
        None => return Finding::new(NAME, Verdict::Ok, found),
        Some(_) if forecast.keep_free_bytes > 0 => Verdict::Note,
        Some(s) if s < forecast::SOON_S => Verdict::Wrong,
        Some(s) if s < forecast::DAY_S => Verdict::Note,
        Some(_) => Verdict::Ok,
    };
    let hint = match forecast.largest() {
        Some(_) if verdict == Verdict::Ok => String::new(),
        Some(largest) => format!(
            "`{}` grows by {}: give it a `retain` in the instrument file",
            largest.stream,
            super::figures::si(largest.bytes_per_s, "B/s")
        ),
        None => "free some space, or lower `retain`".to_owned(),
    };
    Finding::new(NAME, verdict, found).hint(hint)
}

/// What the instrument asks for, or what the streams that are there are known to: a segment is an eighth of a live end, up
/// to the largest segment.
fn shared_memory(data: Option<&Data>, instrument: Option<&Instrument>) -> Finding {
    const NAME: &str = "shared memory";
    let Some((free, size)) = room::shared() else {
        return Finding::new(NAME, Verdict::Wrong, "there is no /dev/shm").hint("mount a tmpfs there");
    };
    let there = format!("{} free of {} in /dev/shm", bytes(free), bytes(size));
    if let Some(instrument) = instrument {
        let found = format!("{there}; the streams need {}", bytes(room::asked(instrument)));
        return match room::lacking(instrument) {
            Some(mistake) => {
                let at = format!("{}:{}: {}", mistake.file, mistake.line, mistake.hint);
                Finding::new(NAME, Verdict::Wrong, found).hint(at)
            }
            None => Finding::new(NAME, Verdict::Ok, found),
        };
    }
    let names = data.and_then(|d| d.streams(true).ok()).unwrap_or_default();
    let headers =
        names.iter().filter_map(|n| data.and_then(|d| store::Header::read(d.media.as_ref(), &d.stream(n)).ok()));
    let asked: u64 = headers.map(|header| (header.segment_bytes * 8).max(room::taken(&header.live))).sum();
    let found = format!("{there}; the streams need {}", bytes(asked));
    if free + data.map_or(0, room::held) < asked.max(SHARED_WRONG) {
        return Finding::new(NAME, Verdict::Wrong, found)
            .hint("lower `live` of the largest streams, or enlarge it: `mount -o remount,size=4G /dev/shm`");
    }
    if size <= limits::CONTAINER_SHARED_BYTES {
        return Finding::new(
            NAME,
            Verdict::Note,
            format!("{found}; containers have this little unless told otherwise"),
        )
        .hint("start the container with `--shm-size 4g`");
    }
    Finding::new(NAME, Verdict::Ok, found)
}

fn instrument_file(first: &Mistake, count: usize) -> Finding {
    let found = if count == 1 { first.what.clone() } else { format!("{count} mistakes; the first: {}", first.what) };
    Finding::new("instrument file", Verdict::Wrong, found).hint(format!("`beamport check {}`", first.file))
}

/// Processors that slots are to run on, and this process may not.
fn pinned(instrument: &Instrument) -> Vec<Finding> {
    // SAFETY: a set of bits, which the kernel fills; this process always is.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        set
    };
    let bits = 8 * size_of::<libc::cpu_set_t>();
    // SAFETY: below the number of bits of the set.
    let may = |cpu: u64| usize::try_from(cpu).is_ok_and(|cpu| cpu < bits && unsafe { libc::CPU_ISSET(cpu, &set) });
    let here: Vec<String> = (0..bits as u64).filter(|cpu| may(*cpu)).map(|cpu| cpu.to_string()).collect();
    let strange = |worker: &crate::file::WorkerSection| {
        let cpu = worker.cpus.0.iter().find(|cpu| !may(**cpu))?;
        let found = format!("worker `{}` needs CPU {cpu} for a slot, which would not start", worker.name);
        Some(Finding::new("pinning", Verdict::Wrong, found).hint(format!("`cpus` has of {}", here.join(", "))))
    };
    instrument.workers().filter_map(strange).collect()
}

fn limit(which: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the call.
    (unsafe { libc::getrlimit(which, &mut limit) } == 0).then_some(limit.rlim_cur)
}

fn open_files(instrument: Option<&Instrument>) -> Finding {
    const NAME: &str = "open files";
    if let Some(found) = instrument.and_then(room::lacking_files) {
        return Finding::new(NAME, Verdict::Wrong, found).hint("raise the hard limit: `ulimit -Hn`, `LimitNOFILE=`");
    }
    match limit(libc::RLIMIT_NOFILE) {
        Some(n @ 0..FILES_WRONG) => Finding::new(NAME, Verdict::Wrong, format!("at most {n}")).hint("`ulimit -n 4096`"),
        Some(n @ FILES_WRONG..FILES_NOTE) => Finding::new(NAME, Verdict::Note, format!("at most {n}"))
            .hint("for more than a few streams: `ulimit -n 4096`"),
        Some(libc::RLIM_INFINITY) => Finding::new(NAME, Verdict::Ok, "no limit"),
        Some(n) => Finding::new(NAME, Verdict::Ok, format!("at most {}", thousands(n))),
        None => Finding::new(NAME, Verdict::Note, "not known"),
    }
}

fn file_size() -> Finding {
    const NAME: &str = "file size";
    match limit(libc::RLIMIT_FSIZE) {
        Some(libc::RLIM_INFINITY) => Finding::new(NAME, Verdict::Ok, "no limit"),
        Some(n @ 0..SEGMENT) => Finding::new(
            NAME,
            Verdict::Wrong,
            format!("at most {}: streams grow in segments of up to {}", bytes(n), bytes(SEGMENT)),
        )
        .hint("`ulimit -f unlimited`"),
        Some(n) => Finding::new(NAME, Verdict::Note, format!("at most {}", bytes(n)))
            .hint("a NeXus file may be larger: `ulimit -f unlimited`"),
        None => Finding::new(NAME, Verdict::Note, "not known"),
    }
}

/// A limit on memory that aborts a process: an allocation beyond it is refused, and the process ends.
fn address_space() -> Vec<Finding> {
    const NAME: &str = "address space";
    let limits = [("v", limit(libc::RLIMIT_AS)), ("d", limit(libc::RLIMIT_DATA))];
    let limited =
        limits.into_iter().filter_map(|(flag, limit)| Some((flag, limit.filter(|n| *n != libc::RLIM_INFINITY)?)));
    let finding = |(flag, n): (&str, u64)| {
        let verdict = if n < ADDRESS_SPACE { Verdict::Wrong } else { Verdict::Note };
        let found = format!("at most {}: a process that needs more is aborted", bytes(n));
        Finding::new(NAME, verdict, found).hint(format!("`ulimit -{flag} unlimited`"))
    };
    limited.map(finding).collect()
}

/// The memory limit of this process's control group: pages of /dev/shm count, and who goes beyond it is killed.
fn memory_of_group(instrument: Option<&Instrument>) -> Option<Finding> {
    group_finding(room::group_limit()?, instrument.map_or(SHARED_WRONG, room::asked))
}

fn group_finding(limit: u64, asked: u64) -> Option<Finding> {
    // Half of it for everything that is not a live end.
    let found = format!("the control group may use {}; the streams need {}", bytes(limit), bytes(asked));
    let hint = "raise its memory limit (`MemoryMax`), or lower `live`: beyond it processes are killed";
    (asked > limit / 2).then(|| Finding::new("memory limit", Verdict::Wrong, found).hint(hint))
}

fn clock() -> Finding {
    // SAFETY: zero is a valid value of this plain structure; with `modes` 0 nothing is set.
    let mut time: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let state = unsafe { libc::adjtimex(&mut time) };
    if state < 0 {
        return Finding::new("clock", Verdict::Note, format!("its state is unknown: {}", io::Error::last_os_error()));
    }
    if state == libc::TIME_ERROR || time.status & libc::STA_UNSYNC != 0 {
        return Finding::new("clock", Verdict::Note, "the kernel reports it as not synchronised")
            .hint("run chrony or another time service if sources have their own clocks");
    }
    Finding::new(
        "clock",
        Verdict::Ok,
        format!("synchronised to {} us", thousands(u64::try_from(time.esterror).unwrap_or(0))),
    )
}

/// The client of Kafka that is linked.
fn kafka() -> Finding {
    let found = match kafka::library() {
        Some((version, features)) => format!("librdkafka {version}: {features}"),
        None => "not in this program, which refuses `kind = \"kafka\"`".to_owned(),
    };
    Finding::new("Kafka", Verdict::Ok, found)
}

/// The libraries of EPICS that are loaded.
fn epics() -> Finding {
    match epics::version() {
        Ok(version) => Finding::new("EPICS", Verdict::Ok, version),
        Err(fault) => {
            let found =
                format!("not in this program, which refuses `kind = \"pva\"` and `kind = \"ca\"`: {}", fault.cause);
            Finding::new("EPICS", Verdict::Ok, found)
        }
    }
}

/// Whether the systems answer that sources read from and live sinks send to.
fn others(instrument: &Instrument) -> Vec<Finding> {
    let sources = instrument.sources().map(|source| ("source", &source.name, source.plan.probe()));
    let sinks = instrument.live_sinks().map(|sink| ("sink", &sink.name, sink.plan.probe(&sink.inputs)));
    let finding = |(kind, name, answer): (_, &String, Option<Result<String, Fault>>)| {
        Some(match answer? {
            Ok(found) => Finding::new(kind, Verdict::Ok, format!("`{name}`: {found}")),
            Err(Fault { what, cause, hint, .. }) => {
                Finding::new(kind, Verdict::Wrong, format!("{what}: {cause}")).hint(hint)
            }
        })
    };
    sources.chain(sinks).filter_map(finding).collect()
}

fn nexus() -> Finding {
    const NAME: &str = "beamport-nexus";
    match mover::version() {
        Ok(version) => Finding::new(NAME, Verdict::Ok, version),
        Err(fault) => Finding::new(NAME, Verdict::Wrong, fault.cause).hint(fault.hint),
    }
}

/// Live places in shared memory whose streams are gone. `removes`: they go.
fn left_over(removes: bool) -> Vec<Finding> {
    const NAME: &str = "left over";
    let media = store::Os::shared();
    let root = media.live_root();
    let size = |places: &[PathBuf]| bytes(places.iter().map(|place| room::taken(place)).sum());
    let left = store::abandoned(media.as_ref());
    if left.is_empty() {
        return vec![Finding::new(NAME, Verdict::Ok, format!("nothing in {}", root.display()))];
    }
    if !removes {
        let found = format!("{} live places of removed folders, {}, in {}", left.len(), size(&left), root.display());
        let mut names: Vec<String> = left.iter().take(5).map(|place| place.display().to_string()).collect();
        if left.len() > 5 {
            names.push(format!("and {} more", left.len() - 5));
        }
        let names = names.join(", ");
        let hint = format!("unless a folder was only moved: `beamport doctor --clean` removes them ({names})");
        return vec![Finding::new(NAME, Verdict::Note, found).hint(hint)];
    }
    let (mut removed, mut freed, mut findings) = (0, 0, Vec::new());
    for place in &left {
        let taken = room::taken(place);
        match store::remove_abandoned(media.as_ref(), place) {
            Ok(true) => (removed, freed) = (removed + 1, freed + taken),
            Ok(false) => {}
            Err(error) => {
                let found = format!("cannot remove {}: {error}", place.display());
                findings.push(Finding::new(NAME, Verdict::Wrong, found));
            }
        }
    }
    let found =
        format!("removed {removed} of {} live places of removed folders: {} are free", left.len(), bytes(freed));
    findings.push(Finding::new(NAME, Verdict::Ok, found));
    findings
}

/// Streams of the data folder that a killed writer left, that cannot be read, or that lost their memory.
fn streams(data: &Data) -> Vec<Finding> {
    const NAME: &str = "streams";
    let mut findings = Vec::new();
    for broken in status::unreadable(data).unwrap_or_default() {
        findings.push(Finding::new(NAME, Verdict::Wrong, format!("cannot read `{}`: {}", broken.name, broken.why)));
    }
    for damage in data.damage().unwrap_or_default() {
        findings.push(Finding::new(NAME, Verdict::Wrong, damage.to_string()).hint("run `beamport verify --repair`"));
    }
    let names = data.streams(true).unwrap_or_default();
    for name in &names {
        let mut reader = match data.reader_early(name) {
            Ok(reader) => reader,
            Err(fault) => {
                findings.push(Finding::new(NAME, Verdict::Wrong, format!("cannot open `{name}`: {}", fault.cause)));
                continue;
            }
        };
        if reader.bounds().written && reader.writer().is_none() {
            findings.push(
                Finding::new(NAME, Verdict::Note, format!("the writer of `{name}` was killed"))
                    .hint("`beamport up` resumes it"),
            );
        }
        for gone in status::gone_readers(data, &reader, &names) {
            findings.push(
                Finding::new(NAME, Verdict::Note, format!("`{name}` waits for `{gone}`, whose process has ended"))
                    .hint(format!("`beamport forget {name} '{gone}'`, or `reader_timeout` of the instrument file")),
            );
        }
        if reader.is_here().is_err() {
            let found = format!("the messages of `{name}` are in the /dev/shm of another container");
            findings.push(Finding::new(NAME, Verdict::Note, found).hint("run this where its instrument runs"));
        }
        if let Some(ahead) = status::arrival_ahead(&mut reader, data.media.now()) {
            let found = format!("the newest arrival of `{name}` is {} ahead of the machine's clock", span(ahead));
            findings.push(Finding::new(NAME, Verdict::Note, found).hint(
                "the clock was ahead; until it catches up, members of streams without `epoch` times are unknown to runs",
            ));
        }
        if reader.header().level == Level::Memory && reader.header().boot != data.media.boot() {
            findings.push(Finding::new(
                NAME,
                Verdict::Note,
                format!("`{name}` was in memory when the machine restarted: it is empty"),
            ));
        }
    }
    if findings.is_empty() {
        let found = format!("{} in {}", names.len(), data.folder.display());
        findings.push(Finding::new(NAME, Verdict::Ok, found));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_cannot_keep_the_promises_are_refused() {
        for magic in [0xef53, 0x5846_5342, 0x0102_1994] {
            assert_eq!(file_system_of(magic).1, "");
        }
        // The same number may come with its sign spread over 64 bits.
        for magic in [0x6969, 0x794c_7630, 0x9123_683e, 0x9123_683e_u32 as i32 as i64, 0x1234_5678] {
            assert_ne!(file_system_of(magic).1, "", "{magic:x}");
        }
        assert_eq!(file_system_of(0x9123_683e_u32 as i32 as i64).0, "btrfs");
    }

    #[test]
    fn old_kernels_are_noted() {
        let verdicts =
            ["6.1.0-18-amd64", "5.14.0", "5.10.0", "4.18.0-513.el8", "strange"].map(|r| kernel_of(r).verdict);
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Ok, Verdict::Note, Verdict::Note, Verdict::Note]);
    }

    #[test]
    fn a_memory_limit_below_the_live_ends_was_no_finding() {
        assert!(group_finding(1 << 30, 600 << 20).is_some_and(|f| f.verdict == Verdict::Wrong));
        assert!(group_finding(2 << 30, 600 << 20).is_none());
    }

    #[test]
    fn findings_end_with_a_verdict() {
        let ok = Finding::new("clock", Verdict::Ok, "fine");
        let wrong = Finding::new("free disk", Verdict::Wrong, "none").hint("free some");
        assert_eq!(text(std::slice::from_ref(&ok)), "ok     clock  fine\n\nno problems\n");
        assert_eq!(
            text(&[ok, wrong]),
            "ok     clock      fine\nWRONG  free disk  none\n                  -> free some\n\nproblems: 1\n"
        );
    }
}
