//! A file descriptor that is readable while a reader has something to read: for `select`, `poll`, `epoll`.
//!
//! The writer wakes readers by a futex word in shared memory, on which any process can sleep but which `poll` cannot
//! watch; an eventfd can be polled, but other processes do not have it. So each watch has a thread that sleeps on the
//! word and raises the eventfd.
//!
//! Constraints: no message is missed. The descriptor is lowered before the thread gets its new position, and the thread
//! checks before it sleeps; so the descriptor may be raised without a message, and is never low with one. The data path
//! of a message is unchanged: a reader without a watch pays nothing.
//!
//! Failure behaviour: a fault of the thread raises the descriptor, and the next [`Watch::rest`] returns it. A forked
//! child has no thread, and its watch is never raised.

use crate::error::{Error, Result};
use crate::limits::WATCH_LOOK;
use crate::outside::media::{Map, Media};
use crate::outside::os::process_id;
use crate::read::reader::Reader;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Nothing is looked for: the descriptor is raised.
const RAISED: u64 = u64::MAX;

/// Tells by a descriptor that there is something to read; made by [`Reader::watch`].
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    process: u32,
    /// `Shared::moves` as the reader knows them.
    moves: u64,
}

struct Shared {
    media: Arc<dyn Media>,
    event: File,
    /// Looked for: a message from here on; or `RAISED`.
    from: AtomicU64,
    stop: AtomicBool,
    /// How often the thread found the stream elsewhere, or in trouble: then the reader must look as well.
    moves: AtomicU64,
    /// The control page at whose word the thread sleeps.
    place: Mutex<Option<Arc<Map>>>,
}

impl Reader {
    /// A descriptor that is readable while this reader has something to read, and a thread that takes care of it. It is
    /// readable at first; who has read all there is calls [`Watch::rest`].
    pub fn watch(&self) -> Result<Watch> {
        let failed = |e| Error::io("watch", self.folder())(e);
        let (media, lookout) = (self.media().clone(), self.lookout());
        let shared = Arc::new(Shared {
            event: File::from(media.event().map_err(failed)?),
            media,
            from: AtomicU64::new(RAISED),
            stop: AtomicBool::new(false),
            moves: AtomicU64::new(0),
            place: Mutex::new(lookout.place()),
        });
        shared.raise();
        let look = shared.clone();
        // Little is called there.
        let thread = std::thread::Builder::new().name("beamport-watch".into()).stack_size(256 << 10);
        let thread = thread.spawn(move || look.run(lookout)).map_err(failed)?;
        Ok(Watch { shared, thread: Some(thread), process: process_id(), moves: 0 })
    }
}

impl Watch {
    /// After all has been read: lowers the descriptor until there is something at the position of `reader`, the one that
    /// this watch was made by. Does nothing if there is something already. True if the reader was made to look for
    /// another writer before.
    pub fn rest(&mut self, reader: &mut Reader) -> Result<bool> {
        let moves = self.shared.moves.load(Ordering::Acquire);
        let moved = moves != self.moves;
        if moved {
            reader.reattach()?;
            self.moves = moves;
        }
        if reader.end() > reader.position() {
            self.shared.raise();
            return Ok(moved);
        }
        self.shared.lower();
        self.shared.from.store(reader.position().min(RAISED - 1), Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        Ok(moved)
    }

    /// Makes the descriptor readable, until [`Watch::rest`].
    pub fn raise(&self) {
        self.shared.raise();
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.process != process_id() {
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        while !thread.is_finished() {
            // It may be just about to sleep, so it is woken until it has ended. Others who sleep there look and go on.
            thread.thread().unpark();
            if let Some(map) = self.shared.place.lock().unwrap_or_else(|p| p.into_inner()).as_ref() {
                Reader::wake_all(self.shared.media.as_ref(), map);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        let _ = thread.join();
    }
}

impl Shared {
    fn raise(&self) {
        // Refused only with 2^64 - 2 raises in it.
        let _ = (&self.event).write(&1u64.to_ne_bytes());
    }

    fn lower(&self) {
        // Refused where it is low.
        let _ = (&self.event).read(&mut [0; 8]);
    }

    /// The thread.
    fn run(&self, mut lookout: Reader) {
        while !self.stop.load(Ordering::Acquire) {
            let from = self.from.load(Ordering::Acquire);
            if from == RAISED {
                std::thread::park();
                continue;
            }
            lookout.seek(from);
            let found = lookout.end() > from || self.sleep(&mut lookout);
            // A caller that rests meanwhile asks for something else.
            if found && self.from.compare_exchange(from, RAISED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.raise();
            }
        }
    }

    /// Sleeps for a while at most. True if the reader has to look.
    fn sleep(&self, lookout: &mut Reader) -> bool {
        let slept = lookout.nap(WATCH_LOOK);
        let place = lookout.place();
        let mut known = self.place.lock().unwrap_or_else(|p| p.into_inner());
        if slept.is_err() || known.as_ref().map(Arc::as_ptr) != place.as_ref().map(Arc::as_ptr) {
            *known = place;
            self.moves.fetch_add(1, Ordering::Release);
        }
        slept.is_err() || lookout.end() > lookout.position()
    }
}
