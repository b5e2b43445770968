//! Chunks on their way to the disk: four threads write and hash while the caller gathers the next ones.
//!
//! A direct write waits for the device; with one under way in two or three threads it is never idle while another hashes.
//! Few buffers wait at a time ([`LANES_WAITING`]), and their memory is used again.
//!
//! Failure: a load that could not be written stays first in the queue, and the next [`Lanes::give`] or
//! [`Lanes::settle`] reports the error once; from then on the write is retried. Nothing given is lost while the process
//! lives.

use crate::hdf::hash_tree::{Tree, Values};
use crate::hdf::pages::{PAGE, Pages};
use crate::limits::{DIRECT_WRITE_BYTES, LANES_WAITING, SPARE_BYTES_MAX};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Error;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

const LANES: usize = 4;

/// Whole chunks in memory, and where they go.
pub(crate) struct Load {
    pub(crate) pages: Pages,
    pub(crate) pieces: Vec<Span>,
}

/// From here to there in memory, and the place in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) place: u64,
}

/// A file twice open: through the page cache, and past it where the file system can. Every byte of the file is written
/// here, and its hash is made of what is.
pub(crate) struct Handles {
    pub(crate) cached: File,
    direct: Option<File>,
    tree: Mutex<Tree>,
}

impl Handles {
    pub(crate) fn new(cached: File, direct: Option<File>) -> Self {
        Self { cached, direct, tree: Mutex::default() }
    }

    /// Writes through the page cache.
    pub(crate) fn put(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.known(at, bytes, |_| self.cached.write_all_at(bytes, at))
    }

    /// Writes whole chunks; past the page cache what lies on pages.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.known(at, bytes, |values| {
            self.write_past(at, bytes)?;
            let end = at + bytes.len() as u64;
            let last = end / PAGE as u64 * PAGE as u64;
            // Nothing else comes into the last page of a packed chunk: read now, it is still in the cache.
            if last < end && at < last {
                let mut page = [0; PAGE];
                if self.cached.read_exact_at(&mut page, last).is_ok() {
                    values.add(last, &page);
                }
            }
            Ok(())
        })
    }

    /// Writes, with the hashes of what is written.
    fn known(&self, at: u64, bytes: &[u8], write: impl FnOnce(&mut Values) -> Result<(), Error>) -> Result<(), Error> {
        let ticket = self.tree().begin(at, bytes.len());
        let mut values = Values::default();
        let done = write(&mut values);
        if done.is_ok() {
            values.add(at, bytes);
        }
        // Of a write that failed nobody knows what the file has.
        self.tree().end(&ticket, if done.is_ok() { values } else { Values::default() });
        done
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the known hashes of the file, and keeps none.
    pub(crate) fn take_tree(&self) -> Tree {
        std::mem::take(&mut self.tree())
    }

    fn write_past(&self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut rest = (at, bytes);
        if let Some(direct) = &self.direct
            && at.is_multiple_of(PAGE as u64)
            && bytes.as_ptr().addr().is_multiple_of(PAGE)
        {
            let (whole, tail) = bytes.split_at(bytes.len() - bytes.len() % PAGE);
            match direct.write_all_at(whole, at) {
                Ok(()) => rest = (at + whole.len() as u64, tail),
                // Some file systems open so and write not.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (),
                Err(e) => return Err(e),
            }
        }
        self.cached.write_all_at(rest.1, rest.0)
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Load>,
    /// Loads that a thread has in its hands.
    under_way: usize,
    trouble: Option<Error>,
    spare: Vec<Pages>,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    file: Arc<Handles>,
}

pub(crate) struct Lanes {
    shared: Arc<Shared>,
    /// Started with the first load: a small file needs none.
    threads: Vec<JoinHandle<()>>,
}

impl Lanes {
    pub(crate) fn new(file: Arc<Handles>) -> Self {
        let shared = Shared { state: Mutex::default(), changed: Condvar::new(), file };
        Self { shared: Arc::new(shared), threads: Vec::new() }
    }

    /// An empty buffer, with memory if one was used before.
    pub(crate) fn buffer(&self) -> Pages {
        self.shared.state().spare.pop().unwrap_or_default()
    }

    /// Takes the load in any case; an error is of an earlier one.
    pub(crate) fn give(&mut self, load: Load) -> Result<(), Error> {
        while self.threads.len() < LANES {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("chunks".into()).spawn(move || shared.run());
            match thread {
                Ok(thread) => self.threads.push(thread),
                // One is enough.
                Err(_) if !self.threads.is_empty() => break,
                Err(e) => {
                    self.shared.state().waiting.push_back(load);
                    return Err(e);
                }
            }
        }
        let mut state = self.shared.state();
        state.waiting.push_back(load);
        self.shared.changed.notify_all();
        while state.waiting.len() > LANES_WAITING && state.trouble.is_none() {
            state = self.shared.wait(state);
        }
        self.shared.answer(state)
    }

    /// Waits until everything given is in the file.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let mut state = self.shared.state();
        while state.waiting.len() + state.under_way > 0 && state.trouble.is_none() {
            state = self.shared.wait(state);
        }
        self.shared.answer(state)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended = true;
        state.trouble = None;
        drop(state);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the trouble and lets the threads try again.
    fn answer(&self, mut state: MutexGuard<'_, State>) -> Result<(), Error> {
        let Some(trouble) = state.trouble.take() else { return Ok(()) };
        self.changed.notify_all();
        Err(trouble)
    }

    fn run(&self) {
        let mut state = self.state();
        loop {
            if state.ended {
                return;
            }
            let load = if state.trouble.is_none() { state.waiting.pop_front() } else { None };
            let Some(mut load) = load else {
                state = self.wait(state);
                continue;
            };
            state.under_way += 1;
            drop(state);
            let mut write = |span: &Span| {
                let pieces = load.pages.bytes()[span.first..span.last].chunks(DIRECT_WRITE_BYTES);
                let mut places = (span.place..).step_by(DIRECT_WRITE_BYTES).zip(pieces);
                places.try_for_each(|(place, piece)| self.file.write(place, piece))
            };
            let answer = load.pieces.iter().try_for_each(&mut write);
            state = self.state();
            state.under_way -= 1;
            match answer {
                Ok(()) if load.pages.capacity() <= SPARE_BYTES_MAX && state.spare.len() <= LANES_WAITING + LANES => {
                    load.pages.clear();
                    state.spare.push(load.pages);
                }
                Ok(()) => (),
                Err(e) => {
                    state.waiting.push_front(load);
                    state.trouble = Some(e);
                }
            }
            self.changed.notify_all();
        }
    }
}
