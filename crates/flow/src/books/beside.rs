//! A stream that a receiver has open beside its own thread: to create one, or to close it, waits for the disk several
//! times, and a receiver must not.
//!
//! Failure behaviour: the next call returns the error of the thread; the call after it retries.

use crate::Fault;
use crate::data::Data;
use std::thread::{Builder, JoinHandle};
use store::Drain;

/// A stream that is open, or is being opened or closed. Drop waits for both, so that nothing else opens it earlier.
pub(crate) struct Beside<T> {
    open: Option<T>,
    opening: Option<JoinHandle<Result<T, Fault>>>,
    closing: Option<JoinHandle<()>>,
}

impl<T> Default for Beside<T> {
    fn default() -> Self {
        Self { open: None, opening: None, closing: None }
    }
}

impl<T: Send + 'static> Beside<T> {
    /// Returns the stream if it is open.
    pub(crate) fn get(&mut self) -> Option<&mut T> {
        self.open.as_mut()
    }

    /// Opens it with `make`, once; `waits`: until that is done. `None`: it is not open yet.
    pub(crate) fn open(
        &mut self,
        data: &Data,
        waits: bool,
        make: impl FnOnce(&Data) -> Result<T, Fault> + Send + 'static,
    ) -> Result<Option<&mut T>, Fault> {
        if self.open.is_none() {
            // One thread does everything: then this one.
            if data.drain == Drain::Caller {
                self.open = Some(make(data)?);
            } else {
                self.begin(data, make)?;
                if let Some(thread) = self.opening.take_if(|thread| waits || thread.is_finished()) {
                    self.open = Some(thread.join().map_err(|_| Fault::new("cannot open a stream", "a panic"))??);
                }
            }
        }
        Ok(self.open.as_mut())
    }

    fn begin(
        &mut self,
        data: &Data,
        make: impl FnOnce(&Data) -> Result<T, Fault> + Send + 'static,
    ) -> Result<(), Fault> {
        if self.opening.is_some() {
            return Ok(());
        }
        let (data, closing) = (data.clone(), self.closing.take());
        let work = move || {
            // Two must not write it.
            let _ = closing.map(JoinHandle::join);
            make(&data)
        };
        let thread = Builder::new().name("opens".into()).spawn(work);
        self.opening = Some(thread.map_err(|e| Fault::io("cannot start a thread that opens a stream", &e))?);
        Ok(())
    }

    /// Closes what is open.
    pub(crate) fn close(&mut self, data: &Data) {
        let Some(open) = self.open.take() else { return };
        if data.drain == Drain::Caller {
            return;
        }
        let before = self.closing.take();
        let work = move || {
            let _ = before.map(JoinHandle::join);
            drop(open);
        };
        // Without a thread it was closed here.
        self.closing = Builder::new().name("closes".into()).spawn(work).ok();
    }
}

impl<T> Drop for Beside<T> {
    fn drop(&mut self) {
        drop(self.opening.take().map(JoinHandle::join));
        drop(self.closing.take().map(JoinHandle::join));
    }
}
