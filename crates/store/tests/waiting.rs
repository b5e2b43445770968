//! The three ways of waiting for a message: asleep, looking before sleeping, and by a descriptor.

use beamport_store::*;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A guard against hanging, far more than ten times of what is expected.
const HANG: Duration = Duration::from_secs(60);

/// A folder of one test; one test at a time, because some count the threads of this process.
struct Place(PathBuf, #[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Place {
    fn new() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(|p| p.into_inner());
        let folder = std::env::temp_dir().join(format!("beamport-waiting-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder, one)
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

fn writer(folder: &Path, level: Level) -> Writer {
    let options = if level == Level::Disk { Options::disk(4 << 20) } else { Options::memory(4 << 20) };
    let options = Options { when_full: WhenFull::DropOldest, ..options };
    let mut writer = Writer::open(&Os::shared(), folder, "s", &options).unwrap();
    writer.origin("o").unwrap();
    writer
}

fn reader(folder: &Path, spin: Duration) -> Reader {
    Reader::open(&Os::shared(), folder, ReadOptions { spin, ..ReadOptions::default() }).unwrap()
}

fn append(writer: &mut Writer, n: u64) {
    let meta = Meta { source_time: n as i64, origin: 0, origin_seq: n, schema: SchemaId(*b"none"), flags: 0 };
    writer.append(&meta, &n.to_le_bytes()).unwrap();
}

/// Whether the descriptor becomes readable.
fn readable(watch: &Watch, within: Duration) -> bool {
    let mut asked = libc::pollfd { fd: watch.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure that we own.
    unsafe { libc::poll(&mut asked, 1, within.as_millis() as libc::c_int) == 1 }
}

/// Reads all there is, in order.
fn read_all(reader: &mut Reader) -> u64 {
    loop {
        let batch = reader.read(usize::MAX).unwrap();
        if batch.is_empty() {
            return reader.position();
        }
        for message in batch.iter() {
            assert_eq!(message.payload, message.sequence.to_le_bytes());
        }
    }
}

fn watching_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.trim() == "beamport-watch").count()
}

fn eventfds() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let target = |descriptor: std::fs::DirEntry| std::fs::read_link(descriptor.path()).unwrap_or_default();
    descriptors.map(target).filter(|target| target.to_string_lossy().contains("eventfd")).count()
}

/// Writer and reader, each waiting for the other: every message meets a reader that is about to sleep.
fn in_turns(level: Level, messages: u64, mut wait: impl FnMut(&mut Reader), spin: Duration) {
    let place = Place::new();
    let folder = place.stream(level);
    let mut writer = writer(&folder, level);
    let mut reader = reader(&folder, spin);
    let seen = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let seen = &seen;
        scope.spawn(move || {
            for n in 0..messages {
                let began = Instant::now();
                while seen.load(Ordering::Acquire) < n {
                    assert!(began.elapsed() < 2 * HANG, "message {n} of {level:?} was slept through");
                    std::thread::yield_now();
                }
                // Now the reader goes to sleep, and this is a little before or after.
                for _ in 0..n * 37 % 500 {
                    std::hint::spin_loop();
                }
                append(&mut writer, n);
                if level == Level::Disk {
                    assert!(writer.wait(n + 1, Level::Disk, HANG).unwrap());
                }
            }
        });
        while seen.load(Ordering::Acquire) < messages {
            wait(&mut reader);
            seen.store(read_all(&mut reader), Ordering::Release);
        }
    });
}

#[test]
fn a_sleeping_reader_and_a_spinning_one_see_each_message() {
    for spin in [Duration::ZERO, Duration::from_micros(20), Duration::MAX] {
        in_turns(Level::Memory, 1000, |reader| assert!(reader.wait(HANG).unwrap()), spin);
        in_turns(Level::Disk, 10, |reader| assert!(reader.wait(HANG).unwrap()), spin);
    }
}

#[test]
fn a_reader_that_spins_without_end_ends_at_its_time_and_at_the_limit() {
    let place = Place::new();
    let folder = place.stream(Level::Memory);
    let _writer = writer(&folder, Level::Memory);
    let mut reader = reader(&folder, Duration::MAX);
    let (began, cpu) = (Instant::now(), cpu_of_this_thread());
    assert!(!reader.wait(Duration::from_micros(300)).unwrap());
    assert!(!reader.wait(Duration::from_secs(1)).unwrap());
    assert!(began.elapsed() < HANG);
    assert!(cpu_of_this_thread() - cpu < Duration::from_millis(500), "it did not sleep");
}

fn cpu_of_this_thread() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that we own.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_descriptor_loses_no_wake_up() {
    for (level, messages) in [(Level::Memory, 2000), (Level::Disk, 20)] {
        let mut watch = None;
        let wait = |reader: &mut Reader| {
            let watch = watch.get_or_insert_with(|| reader.watch().unwrap());
            watch.rest(reader).unwrap();
            assert!(readable(watch, HANG), "{level:?}: slept through message {}", reader.position());
        };
        in_turns(level, messages, wait, Duration::ZERO);
    }
}

#[test]
fn a_descriptor_is_readable_while_there_is_something_to_read() {
    let place = Place::new();
    let folder = place.stream(Level::Memory);
    let mut writer = writer(&folder, Level::Memory);
    append(&mut writer, 0);
    let mut reader = reader(&folder, Duration::ZERO);
    let mut watch = reader.watch().unwrap();
    assert!(readable(&watch, Duration::ZERO));
    watch.rest(&mut reader).unwrap();
    assert!(readable(&watch, Duration::ZERO), "there is a message");
    assert_eq!(read_all(&mut reader), 1);
    watch.rest(&mut reader).unwrap();
    assert!(!readable(&watch, Duration::from_millis(30)));
    append(&mut writer, 1);
    append(&mut writer, 2);
    assert!(readable(&watch, HANG));
    assert_eq!(reader.read(1).unwrap().len(), 1);
    watch.rest(&mut reader).unwrap();
    assert!(readable(&watch, Duration::ZERO), "one is left");
    assert_eq!(read_all(&mut reader), 3);
    watch.rest(&mut reader).unwrap();
    assert!(!readable(&watch, Duration::from_millis(30)));
    reader.seek(1);
    watch.rest(&mut reader).unwrap();
    assert!(readable(&watch, Duration::ZERO), "it went back");
}

#[test]
fn a_descriptor_tells_of_a_writer_that_comes_later() {
    for level in [Level::Memory, Level::Disk] {
        let place = Place::new();
        let folder = place.stream(level);
        let mut first = writer(&folder, level);
        append(&mut first, 0);
        drop(first);
        // Of a disk stream whose live place is gone there is no word to sleep on.
        let live = Header::read(&Os, &folder).unwrap().live;
        if level == Level::Disk {
            let _ = std::fs::remove_dir_all(live);
        }
        let mut reader = reader(&folder, Duration::ZERO);
        let mut watch = reader.watch().unwrap();
        assert_eq!(read_all(&mut reader), 1);
        watch.rest(&mut reader).unwrap();
        let mut second = writer(&folder, level);
        append(&mut second, 1);
        let began = Instant::now();
        while reader.position() < 2 {
            assert!(readable(&watch, HANG) && began.elapsed() < HANG, "{level:?}: the second writer was not seen");
            read_all(&mut reader);
            watch.rest(&mut reader).unwrap();
        }
    }
}

#[test]
fn what_goes_wrong_raises_the_descriptor_and_is_told() {
    let place = Place::new();
    let folder = place.stream(Level::Memory);
    drop(writer(&folder, Level::Memory));
    let mut reader = reader(&folder, Duration::ZERO);
    let mut watch = reader.watch().unwrap();
    watch.rest(&mut reader).unwrap();
    std::fs::remove_file(folder.join("stream")).unwrap();
    let began = Instant::now();
    let error = loop {
        assert!(readable(&watch, HANG) && began.elapsed() < HANG, "nobody was told");
        if let Err(error) = watch.rest(&mut reader) {
            break error;
        }
    };
    assert!(error.to_string().contains("stream"), "{error}");
}

/// A thread gives itself its name, and stands in `/proc` for a moment after it was joined.
fn until(wanted: (usize, usize), what: &str) {
    let began = Instant::now();
    while (watching_threads(), eventfds()) != wanted {
        assert!(began.elapsed() < HANG, "{what}: {:?}, not {wanted:?}", (watching_threads(), eventfds()));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_watch_that_is_dropped_leaves_no_thread_and_no_descriptor_behind() {
    let place = Place::new();
    let folder = place.stream(Level::Memory);
    let mut writer = writer(&folder, Level::Memory);
    let mut reader = reader(&folder, Duration::ZERO);
    for n in 0..200 {
        let mut watch = reader.watch().unwrap();
        if n % 4 > 0 {
            watch.rest(&mut reader).unwrap();
        }
        if n % 4 > 1 {
            append(&mut writer, n / 4 * 2 + n % 4 - 2);
            assert!(readable(&watch, HANG));
            read_all(&mut reader);
        }
        drop(watch);
        until((0, 0), &format!("after drop {n}"));
    }
    // Without a writer, and asleep until one comes.
    drop(writer);
    let mut watch = reader.watch().unwrap();
    watch.rest(&mut reader).unwrap();
    until((1, 1), "nobody watches");
    drop(watch);
    until((0, 0), "after the last drop");
}
