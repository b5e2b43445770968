//! Values that belong to the process that made them, and the segments that messages share.
//!
//! Forks: a child inherits mapped memory but not the pins, which are its parent's. It must not take pins back that
//! the parent still needs, so nothing of [`Ours`] is dropped there; and it must not rely on them, so it is refused
//! new views, with an error that asks it to open the folder again.

use crate::fault;
use flow::Fault;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

/// A value that only the process that made it may drop.
pub(crate) struct Ours<T> {
    value: ManuallyDrop<T>,
    pid: u32,
}

impl<T> Ours<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), pid: store::process_id() }
    }

    /// False in a process that was forked from the maker.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == store::process_id()
    }

    /// Refuses use in a forked process.
    pub(crate) fn check(&self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_ours() {
            return Ok(());
        }
        let cause = format!("process {} opened it, and only that process maps its memory", self.pid);
        let fault = Fault::new(format!("{what} cannot be used after a fork"), cause);
        Err(fault::error(py, fault.hint("call `beamport.open` again in this process")))
    }
}

impl<T> Deref for Ours<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> std::ops::DerefMut for Ours<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Ours<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

/// Where the bytes of messages are.
pub(crate) enum MessageBytes {
    /// In a mapped segment.
    Segment(Arc<store::Mapped>),
    /// Here: a message that came from no stream.
    Bytes(Box<[u8]>),
}

/// A pinned segment, shared by all that looks at it; none behind messages without bytes.
pub(crate) type Pinned = Arc<Ours<Option<MessageBytes>>>;

/// A segment as messages share it.
pub(crate) fn pinned(segment: &Arc<store::Mapped>) -> Pinned {
    Arc::new(Ours::new(Some(MessageBytes::Segment(segment.clone()))))
}

/// A range of a pinned segment; nothing where it is not inside.
pub(crate) fn bytes_of(pinned: &Pinned, at: u64, len: u64) -> &[u8] {
    let bytes = match pinned.as_ref().as_ref() {
        None => None,
        Some(MessageBytes::Segment(mapped)) => mapped.bytes(at, len),
        Some(MessageBytes::Bytes(bytes)) => at.checked_add(len).and_then(|end| bytes.get(at as usize..end as usize)),
    };
    bytes.unwrap_or_default()
}
