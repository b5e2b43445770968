//! The meeting of writer and readers on weakly ordered processors: loom runs the very lines of `src/protocol.rs`
//! through the orders that the memory model allows.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[path = "../src/live/protocol.rs"]
mod protocol;

use atomic::{AtomicU32, AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use protocol::*;

/// A futex: the kernel compares the word and goes to sleep in one step, under a lock that wakers take too.
struct Futex(Mutex<()>, Condvar);

impl Futex {
    fn new() -> Self {
        Self(Mutex::new(()), Condvar::new())
    }

    fn wait(&self, word: &AtomicU32, seen: u32) {
        let guard = self.0.lock().unwrap();
        if word.load(Ordering::Relaxed) == seen {
            // A sleeper that nobody wakes is a deadlock, and loom says so.
            drop(self.1.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.0.lock().unwrap());
        self.1.notify_all();
    }
}

/// All orders of a model; `BEAMPORT_SOAK` looks further.
fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        f();
    });
    runs.load(std::sync::atomic::Ordering::Relaxed)
}

struct Stream {
    count: AtomicU64,
    word: AtomicU32,
    asleep: AtomicU32,
    futex: Futex,
    slots: [UnsafeCell<u64>; 2],
}

impl Stream {
    fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            word: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
            futex: Futex::new(),
            slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }
    }

    fn bell(&self) -> Bell<'_> {
        Bell { word: &self.word, asleep: &self.asleep }
    }

    fn append(&self, n: usize) {
        // SAFETY: one writer; loom proves that no reader looks before the mark.
        self.slots[n].with_mut(|slot| unsafe { *slot = n as u64 + 7 });
        mark(&self.count, n as u64 + 1);
        if self.bell().ring() {
            self.futex.wake();
        }
    }

    fn read_to(&self, end: u64) {
        let mut next = 0;
        while next < end {
            if marked(&self.count) <= next {
                let seen = self.bell().listen();
                if marked(&self.count) <= next {
                    self.futex.wait(&self.word, seen);
                }
                continue;
            }
            // SAFETY: below the mark nobody writes.
            assert_eq!(self.slots[next as usize].with(|slot| unsafe { *slot }), next + 7);
            next += 1;
        }
    }
}

fn sleepers_are_woken(readers: usize, preemptions: usize) -> usize {
    model(preemptions, move || {
        let stream = Arc::new(Stream::new());
        let threads: Vec<_> = (0..readers)
            .map(|_| {
                let stream = stream.clone();
                loom::thread::spawn(move || stream.read_to(2))
            })
            .collect();
        stream.append(0);
        stream.append(1);
        threads.into_iter().for_each(|t| t.join().unwrap());
    })
}

fn late_is_woken(preemptions: usize) -> usize {
    model(preemptions, || {
        let stream = Arc::new(Stream::new());
        let reader = stream.clone();
        let thread = loom::thread::spawn(move || {
            // As who waits for a mark: the first message is not enough.
            while marked(&reader.count) < 2 {
                let seen = reader.bell().listen();
                if marked(&reader.count) < 2 {
                    reader.futex.wait(&reader.word, seen);
                }
            }
        });
        stream.append(0);
        stream.append(1);
        thread.join().unwrap();
    })
}

fn no_segment_is_written_under_a_claim(readers: usize, preemptions: usize) -> usize {
    const NOTHING: u32 = u32::MAX;
    struct Ring {
        low: AtomicU32,
        pins: [AtomicU32; 2],
        /// The bytes of segment 0, which become those of a later one.
        bytes: UnsafeCell<u64>,
    }
    model(preemptions, move || {
        let ring = Arc::new(Ring {
            low: AtomicU32::new(0),
            pins: [AtomicU32::new(NOTHING), AtomicU32::new(NOTHING)],
            bytes: UnsafeCell::new(7),
        });
        let threads: Vec<_> = (0..readers)
            .map(|row| {
                let ring = ring.clone();
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        claim(&ring.pins[row], 0);
                        if is_kept(&ring.low, 0) {
                            // SAFETY: what is claimed and stands is not written; loom proves it.
                            assert_eq!(ring.bytes.with(|b| unsafe { *b }), 7);
                        }
                        unclaim(&ring.pins[row], NOTHING);
                    }
                })
            })
            .collect();
        give_up(&ring.low, 1);
        if (0..readers).all(|row| claimed(&ring.pins[row]) == NOTHING) {
            // SAFETY: given up and claimed by nobody; loom proves it.
            ring.bytes.with_mut(|b| unsafe { *b = 8 });
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
    })
}

#[test]
fn a_reader_that_falls_asleep_while_something_is_published_is_woken() {
    println!("{} orders", sleepers_are_woken(1, 3));
}

#[test]
fn a_sleeper_for_whom_the_first_message_is_not_enough_is_woken_by_the_second() {
    println!("{} orders", late_is_woken(3));
}

#[test]
fn two_sleepers_and_one_flag() {
    println!("{} orders", sleepers_are_woken(2, 2));
}

#[test]
fn a_segment_that_a_reader_claims_is_not_written_again() {
    println!("{} orders", no_segment_is_written_under_a_claim(2, 2));
}

#[test]
#[ignore = "minutes"]
fn soak_protocol() {
    let (one, two) = (sleepers_are_woken(1, 6) + late_is_woken(6), sleepers_are_woken(2, 3));
    let pins = no_segment_is_written_under_a_claim(2, 4);
    println!(
        "publish, sleep and pin on a weakly ordered machine: {} orders injected, 0 lost wakes, 0 segments written under a reader",
        one + two + pins
    );
}
