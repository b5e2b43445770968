//! A value that several Python threads use in turn.
//!
//! Constraints: a thread waits for its turn without the GIL, and whoever has the turn may give up the GIL and take it
//! back. A turn lasts one look at a stream, [`WAIT_STEP`](crate::limits::WAIT_STEP) at most where nothing is there.
//!
//! Failure behaviour: the thread that has the turn and asks for another (a signal handler does) is refused, and so is a
//! forked process, where the thread that had the turn does not exist.

use crate::fault;
use crate::limits::HANDOVER;
use flow::Fault;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value and its lock.
pub(crate) struct Exclusive<T> {
    value: Mutex<T>,
    pid: u32,
    /// The thread that has the turn, 0 for none.
    owner: AtomicUsize,
    /// Threads that wait for their turn.
    waiting: AtomicUsize,
}

/// The turn of one thread.
pub(crate) struct Turn<'a, T> {
    value: MutexGuard<'a, T>,
    owner: &'a AtomicUsize,
}

/// A number that no two living threads share.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place) as usize)
}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        let (owner, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { value: Mutex::new(value), pid: store::process_id(), owner, waiting }
    }

    /// False in a process that was forked from the maker.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == store::process_id()
    }

    /// Waits for the turn of this thread. `what` names the value in errors.
    pub(crate) fn enter(&self, py: Python<'_>, what: &str) -> PyResult<Turn<'_, T>> {
        if !self.is_ours() {
            let cause = format!("process {} opened it, and only that process maps its memory", self.pid);
            let fault = Fault::new(format!("{what} cannot be used after a fork"), cause);
            return Err(fault::error(py, fault.hint("call `beamport.open` again in this process")));
        }
        if self.owner.load(Ordering::Relaxed) == this_thread() {
            let fault = Fault::new(format!("{what} cannot be used now"), "this thread is reading with it");
            return Err(fault::error(py, fault.hint("set a flag in the signal handler, and act on it in the loop")));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let value = self.value.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.owner.store(this_thread(), Ordering::Relaxed);
        Ok(Turn { value, owner: &self.owner })
    }

    /// Between two turns of one thread: lets others have theirs.
    pub(crate) fn hand_over(&self, py: Python<'_>) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            py.detach(|| std::thread::sleep(HANDOVER));
        }
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}
