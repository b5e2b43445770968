//! Real processes on a real machine: writers killed with -9 at random moments, stopped readers and writers, two writers
//! at once. This program starts itself again as the other process (the tests `as_*`, which do nothing without their folder).
//!
//! What a message holds follows from its epoch and sequence, so that each one read anywhere can be judged: the mark
//! `memory` survives a kill, the mark `disk` survives the loss of all memory, and no byte of another life is ever shown.

use beamport_store::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::Dice;

const FOLDER: &str = "BEAMPORT_TEST_STREAM";
/// A guard against hanging, far more than ten times of what is expected.
const HANG: Duration = Duration::from_secs(60);

fn payload(epoch: u32, sequence: u64) -> Vec<u8> {
    let mut dice = Dice::new(u64::from(epoch) << 48 ^ sequence);
    let len = match dice.below(40) {
        0 => dice.below(60_000),
        1 => 0,
        2..8 => dice.below(4000),
        _ => dice.below(200),
    };
    let word = dice.word();
    (0..len).map(|i| (word >> (i % 8 * 8)) as u8 ^ (i / 8) as u8).collect()
}

fn options(level: Level) -> Options {
    Options {
        when_full: WhenFull::DropOldest,
        retain_bytes: Some(24 << 20),
        ..if level == Level::Disk { Options::disk(4 << 20) } else { Options::memory(8 << 20) }
    }
}

fn level_of(folder: &Path) -> Level {
    if folder.ends_with("memory") { Level::Memory } else { Level::Disk }
}

/// A folder of one test; what it holds goes with it, shared memory too.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(std::env::temp_dir().join(format!("beamport-{name}-{}", std::process::id())));
        std::fs::create_dir_all(&place.0).unwrap();
        place
    }

    fn stream(&self, level: Level) -> PathBuf {
        self.0.join(level.as_str())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for level in [Level::Memory, Level::Disk] {
            if let Ok(header) = Header::read(&Os, &self.stream(level)) {
                let _ = std::fs::remove_dir_all(header.live);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// This program as another process.
struct Other(Child, BufReader<ChildStdout>);

impl Other {
    fn start(role: &str, folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--ignored", "--nocapture"]).env(FOLDER, folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(child, out)
    }

    /// The next line that is for us.
    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "the other process said nothing more");
            if let Some(at) = line.find("says ") {
                return line[at + 5..].trim().to_string();
            }
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a signal to a child that was not yet waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as libc::pid_t, signal) }, 0);
    }

    /// SIGSTOP, and the stop of every thread awaited: a busy machine may run them for long after the signal.
    fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.0.id());
        let stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['T', 'Z', 'X']))
        };
        let began = Instant::now();
        while !std::fs::read_dir(&tasks).unwrap().flatten().all(stopped) {
            assert!(began.elapsed() < HANG, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn role() -> Option<(Arc<dyn Media>, PathBuf)> {
    Some((Os::shared(), std::env::var_os(FOLDER)?.into()))
}

/// Appends without end, as fast as it can.
#[test]
#[ignore = "the other process"]
fn as_writer() {
    let Some((media, folder)) = role() else { return };
    let began = Instant::now();
    let mut writer = match Writer::open(&media, &folder, "s", &options(level_of(&folder))) {
        Ok(writer) => writer,
        Err(Error::Locked(_)) => {
            println!("says locked");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    println!("says opened {} {:?}", began.elapsed().as_secs_f64(), writer.recovery());
    let origin = writer.origin("o").unwrap();
    let epoch = writer.header().epoch();
    let mut dice = Dice::new(u64::from(std::process::id()));
    loop {
        for _ in 0..dice.range(1, 40) {
            let sequence = writer.next_sequence();
            let meta = Meta {
                source_time: sequence as i64,
                origin,
                origin_seq: sequence,
                schema: SchemaId(*b"test"),
                flags: 0,
            };
            match writer.push(&meta, &[&payload(epoch, sequence)]) {
                Ok(_) => {}
                Err(Error::Dropped) => writer.wait_room(Duration::from_millis(1)),
                Err(e) => panic!("{e}"),
            }
        }
        writer.publish();
        if dice.one_in(50) {
            std::thread::sleep(Duration::from_micros(dice.below(2000)));
        }
    }
}

/// Holds a batch until a message asks for another look.
#[test]
#[ignore = "the other process"]
fn as_holder() {
    let Some((media, folder)) = role() else { return };
    let mut reader = Reader::open(&media, &folder, ReadOptions { early: true, ..ReadOptions::default() }).unwrap();
    reader.seek(reader.end());
    assert!(reader.wait(HANG).unwrap());
    let header = reader.header().clone();
    let batch = reader.read(200).unwrap();
    let good = || batch.iter().all(|m| m.payload == payload(header.epoch_of(m.sequence), m.sequence));
    assert!(good());
    println!("says held {}", batch.first);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("says {}", if good() { "same" } else { "changed" });
}

/// Reads `from..`, judges each message, and returns where it ended.
fn judge(folder: &Path, early: bool, from: u64) -> u64 {
    let mut reader = Reader::open(&Os::shared(), folder, ReadOptions { early, ..ReadOptions::default() })
        .expect("a dead stream opens");
    let header = reader.header().clone();
    reader.seek(from.max(reader.bounds().first));
    loop {
        let batch = match reader.read(1000) {
            Ok(batch) => batch,
            Err(e) => panic!("{e}"),
        };
        if batch.is_empty() {
            return reader.position();
        }
        for m in batch.iter() {
            assert_eq!(m.entry.origin_seq, m.sequence);
            assert!(m.payload == payload(header.epoch_of(m.sequence), m.sequence), "message {} is wrong", m.sequence);
        }
    }
}

fn kills(count: u32) {
    let place = Place::new("kills");
    let mut dice = Dice::new(u64::from(std::process::id()));
    let (mut marked, mut cuts, mut slowest, mut opening) = (0, 0, 0.0_f64, 0);
    for level in [Level::Disk, Level::Memory] {
        let folder = place.stream(level);
        let (mut judged, mut floor, mut uuid) = (0, 0, None);
        for kill in 0..count {
            let mut other = Other::start("as_writer", &folder);
            if kill > 0 && dice.one_in(4) {
                // While it recovers.
                opening += 1;
                std::thread::sleep(Duration::from_micros(dice.below(8000)));
                other.kill();
            } else {
                let line = other.says();
                let seconds: f64 = line.split(' ').nth(1).and_then(|s| s.parse().ok()).expect(&line);
                slowest = slowest.max(seconds);
                let early = ReadOptions { early: true, ..ReadOptions::default() };
                let reader = Reader::open(&Os::shared(), &folder, early).unwrap();
                assert_eq!(*uuid.get_or_insert(reader.header().uuid), reader.header().uuid, "another stream");
                assert!(reader.bounds().count >= floor, "{floor} were marked, {} are there", reader.bounds().count);
                std::thread::sleep(Duration::from_micros(dice.below(60_000)));
                let forget = level == Level::Disk && dice.one_in(5);
                let bounds = reader.bounds();
                floor = if forget { bounds.disk } else { bounds.count };
                let live = reader.header().live.clone();
                drop(reader);
                other.kill();
                if forget {
                    // All of the memory goes, as at a power cut.
                    std::fs::remove_dir_all(live).unwrap();
                    cuts += 1;
                    judged = judged.min(floor);
                }
            }
            let end = judge(&folder, true, judged);
            assert!(end >= floor, "{floor} were marked, {end} are there");
            judged = end.saturating_sub(20_000);
        }
        marked += floor;
        judge(&folder, true, 0);
        verify(&Os::shared(), &folder, &mut |_, _| ()).unwrap();
    }
    println!(
        "writer killed: {} injected ({opening} while it opened, {cuts} with its memory gone), {marked} messages marked, \
         0 lost, 0 wrong, slowest recovery {:.0} ms",
        2 * count,
        slowest * 1e3
    );
}

#[test]
fn a_writer_killed_at_random_moments_loses_nothing_marked() {
    kills(25);
}

#[test]
#[ignore = "minutes"]
fn soak_writer_killed() {
    kills(500);
}

/// A file system of its own: an image in shared memory, mounted.
struct Disk {
    image: PathBuf,
    folder: PathBuf,
}

impl Disk {
    fn mount(image: PathBuf, folder: PathBuf) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        run("mount", &[Path::new("-o"), Path::new("loop"), &image, &folder]);
        Self { image, folder }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: what still lies open there closes with its process.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        let _ = std::fs::remove_file(&self.image);
    }
}

fn run(program: &str, args: &[&Path]) {
    assert!(Command::new(program).args(args).status().unwrap().success(), "{program} {args:?}");
}

/// The power goes: the writer stands still, what the disk holds at that moment is copied and mounted elsewhere, so
/// nothing of the machine's memory belongs to it.
fn power_cuts(count: u32) {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("power cuts need root to mount: left out");
        return;
    }
    let place = Place::new("cuts");
    let image = PathBuf::from(format!("/dev/shm/beamport-cuts-{}", std::process::id()));
    std::fs::File::create(&image).unwrap().set_len(200 << 20).unwrap();
    run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &image]);
    let disk = Disk::mount(image.clone(), place.0.join("mounted"));
    let folder = disk.folder.join("disk");
    let mut writer = Other::start("as_writer", &folder);
    writer.says();
    let media = Os::shared();
    let reader = Reader::open(&media, &folder, ReadOptions { early: true, ..ReadOptions::default() }).unwrap();
    let mut dice = Dice::new(u64::from(std::process::id()));
    let (mut marked, mut taken, mut slowest) = (0, 0, 0.0_f64);
    for _ in 0..count {
        std::thread::sleep(Duration::from_micros(dice.below(150_000)));
        writer.stop();
        let bounds = reader.bounds();
        let copy = image.with_extension("copy");
        // The kernel may still write: a copy of a disk that moves is one that no power cut leaves.
        loop {
            run("cp", &[Path::new("--sparse=always"), &image, &copy]);
            if Command::new("cmp").arg("-s").args([&image, &copy]).status().unwrap().success() {
                break;
            }
        }
        writer.signal(libc::SIGCONT);
        let after = Disk::mount(copy, place.0.join("after"));
        let stream = after.folder.join("disk");
        assert!(judge(&stream, false, 0) >= bounds.disk, "as it lies there");
        let began = Instant::now();
        let opened = Writer::open(&media, &stream, "s", &options(Level::Disk)).unwrap();
        slowest = slowest.max(began.elapsed().as_secs_f64());
        assert!(opened.next_sequence() >= bounds.disk, "{} were marked, {:?}", bounds.disk, opened.recovery());
        marked += bounds.disk - bounds.first;
        taken += bounds.count.saturating_sub(opened.next_sequence());
        drop(opened);
        judge(&stream, false, 0);
        let _ = std::fs::remove_dir_all(Header::read(&Os, &stream).unwrap().live);
    }
    drop(reader);
    writer.kill();
    let _ = std::fs::remove_dir_all(Header::read(&Os, &folder).unwrap().live);
    println!(
        "power cut by a copy of the disk: {count} injected, {marked} messages marked `disk`, 0 lost, 0 wrong \
         ({taken} that were marked `memory` alone went), slowest recovery {:.0} ms",
        slowest * 1e3
    );
}

#[test]
fn power_cuts_take_nothing_that_was_marked() {
    power_cuts(20);
}

#[test]
#[ignore = "minutes"]
fn soak_power_cuts() {
    power_cuts(200);
}

/// A file system of so many bytes, in memory.
struct Small(PathBuf);

impl Small {
    fn mount(folder: PathBuf, mebibytes: u32) -> Self {
        std::fs::create_dir_all(&folder).unwrap();
        let size = format!("size={mebibytes}m");
        run(
            "mount",
            &["-t", "tmpfs", "-o", &size, "tmpfs"].map(Path::new).into_iter().chain([&*folder]).collect::<Vec<_>>(),
        );
        Self(folder)
    }

    /// Takes every byte that is left, in a file that gives them back when it goes.
    fn fill(&self) -> PathBuf {
        let ballast = self.0.join("ballast");
        let file = (Os.open(&ballast, media::Open::Create)).unwrap();
        let (mut piece, mut len) = (1 << 20, 0);
        while piece >= 4096 {
            match file.allocate(len, piece) {
                Ok(()) => len += piece,
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) => piece /= 2,
                Err(e) => panic!("{e}"),
            }
        }
        ballast
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A place that is really full: appends are refused with a reason, reading goes on, and with room all goes on where it
/// was, also of a writer that came while it was full.
fn full(count: u32) {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("a full tmpfs needs root to mount: left out");
        return;
    }
    let place = Place::new("full");
    let small = Small::mount(place.0.join("small"), 24);
    let media = Os::shared();
    let (mut marked, mut refused, mut reopened, mut slowest) = (0, 0, 0, Duration::ZERO);
    for turn in 0..count {
        // Memory of its own on the full place, or its disk is the full place and its memory is not.
        let level = if turn.is_multiple_of(2) { Level::Memory } else { Level::Disk };
        let folder = small.0.join(level.as_str());
        let options = Options { level, ..Options::memory(if level == Level::Memory { 32 << 20 } else { 2 << 20 }) };
        let open = || Writer::open(&media, &folder, "s", &options);
        let mut writer = open().unwrap();
        let origin = writer.origin("o").unwrap();
        let append = |writer: &mut Writer| {
            let (sequence, epoch) = (writer.next_sequence(), writer.header().epoch());
            let origin_seq = sequence;
            let meta = Meta { source_time: 0, origin, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
            writer.append(&meta, &payload(epoch, sequence))
        };
        for _ in 0..500 {
            while let Err(e) = append(&mut writer) {
                assert!(e.is_full(), "{e}");
                writer.wait_room(Duration::from_millis(5));
            }
        }
        let ballast = small.fill();
        // A drainer that finds no room says so in half a second at latest; until then the memory takes what there is.
        let began = Instant::now();
        let why = loop {
            match append(&mut writer) {
                Ok(_) => {}
                Err(e) if level == Level::Memory || writer.trouble().is_some() => break e,
                Err(e) => assert!(e.is_full(), "{e}"),
            }
            assert!(began.elapsed() < HANG, "it does not become full");
        };
        assert!(why.is_full(), "{why}");
        refused += 1;
        let published = writer.publish();
        assert_eq!(judge(&folder, true, 0), published);
        if turn % 4 >= 2 {
            drop(writer);
            reopened += 1;
            writer = match open() {
                Ok(writer) => writer,
                Err(e) => {
                    assert!(e.is_full(), "{e}");
                    assert_eq!(judge(&folder, true, 0), published);
                    std::fs::remove_file(&ballast).unwrap();
                    open().unwrap()
                }
            };
            assert_eq!((writer.recovery(), writer.next_sequence()), (&Recovery::Live, published));
        }
        let _ = std::fs::remove_file(&ballast);
        let began = Instant::now();
        while let Err(e) = append(&mut writer) {
            assert!(e.is_full() && began.elapsed() < HANG, "{e}");
            writer.wait_room(Duration::from_millis(5));
        }
        slowest = slowest.max(began.elapsed());
        if level == Level::Disk {
            assert!(writer.wait(published, Level::Disk, HANG).unwrap());
        }
        assert_eq!((writer.first_sequence(), judge(&folder, true, 0)), (0, published + 1));
        marked += published;
        drop(writer);
        let live = Header::read(&Os, &folder).unwrap().live;
        remove(&media, &folder).unwrap();
        let _ = std::fs::remove_dir_all(live);
    }
    println!(
        "a tmpfs that is really full: {count} injected ({reopened} with a writer that came then), {refused} refused with \
         a reason, {marked} messages marked, 0 lost, 0 wrong, went on at latest {} ms after there was room",
        slowest.as_millis()
    );
}

#[test]
fn a_full_place_refuses_and_heals() {
    full(10);
}

#[test]
#[ignore = "a minute"]
fn soak_full_tmpfs() {
    full(50);
}

fn pairs(count: u32) {
    let place = Place::new("pairs");
    let folder = place.stream(Level::Disk);
    for _ in 0..count {
        let mut both = [Other::start("as_writer", &folder), Other::start("as_writer", &folder)];
        let said = both.each_mut().map(Other::says);
        assert_eq!(said.iter().filter(|s| *s == "locked").count(), 1, "{said:?}");
        both.into_iter().for_each(Other::kill);
    }
    judge(&folder, true, 0);
    println!("two writers at once: {count} pairs injected, {count} refused, 0 lost, 0 wrong");
}

#[test]
fn of_two_writers_at_once_one_is_refused() {
    pairs(10);
}

#[test]
#[ignore = "a minute"]
fn soak_two_writers() {
    pairs(100);
}

/// A child between fork and exec has every descriptor of its parent, locks with them, for as long as it takes.
#[test]
fn a_child_that_was_just_forked_does_not_keep_the_lock_of_a_writer_that_went() {
    let place = Place::new("forked");
    let folder = place.stream(Level::Memory);
    let media = Os::shared();
    let open = || Writer::open(&media, &folder, "s", &options(Level::Memory));
    let writer = open().unwrap();
    // SAFETY: the child makes system calls alone.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: in the child, until it is killed.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::pause();
            libc::_exit(0);
        }
    }
    assert!(child > 0);
    let meanwhile = open().map(drop);
    drop(writer);
    let after = open().map(drop);
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    assert!(matches!(meanwhile, Err(Error::Locked(_))), "{meanwhile:?}");
    assert!(after.is_ok(), "{after:?}");
}

fn stops(count: u32) {
    let place = Place::new("stops");
    let folder = place.stream(Level::Memory);
    let mut writer = Other::start("as_writer", &folder);
    writer.says();
    let reader = Reader::open(&Os::shared(), &folder, ReadOptions::default()).unwrap();
    let until = |what: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !what() {
            assert!(began.elapsed() < HANG, "nothing moves");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut killed = 0;
    for stop in 0..count {
        // A reader that is stopped with a batch in its hands: the writer laps it, its bytes stay.
        let mut holder = Other::start("as_holder", &folder);
        let held: u64 = holder.says().split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap();
        holder.stop();
        let lap = reader.bounds().first;
        until(&|| reader.bounds().first > held && reader.bounds().first > lap + 20_000);
        if stop % 3 == 2 {
            killed += 1;
            holder.kill();
        } else {
            holder.signal(libc::SIGCONT);
            holder.0.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert_eq!(holder.says(), "same");
            holder.0.wait().unwrap();
        }
        // A writer that is stopped: what is there can be read, and nobody else may write.
        writer.signal(libc::SIGSTOP);
        until(&|| {
            let count = reader.bounds().count;
            std::thread::sleep(Duration::from_millis(5));
            reader.bounds().count == count
        });
        judge(&folder, true, 0);
        assert_eq!(Other::start("as_writer", &folder).says(), "locked");
        let count = reader.bounds().count;
        writer.signal(libc::SIGCONT);
        until(&|| reader.bounds().count > count);
    }
    writer.kill();
    judge(&folder, true, 0);
    println!(
        "stopped: {count} readers with a batch in their hands ({killed} then killed) and {count} writers injected, \
         0 bytes changed, 0 lost, 0 wrong"
    );
}

#[test]
fn a_stopped_reader_and_a_stopped_writer_harm_nobody() {
    stops(3);
}

#[test]
#[ignore = "a minute"]
fn soak_stops() {
    stops(50);
}
