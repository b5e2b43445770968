//! Python's iterators over a stream: they wait by `next`, or are waited for by their descriptor and asked by `poll`.
//!
//! Constraints: several threads may share one; each message goes to exactly one of them. Signal handlers run between
//! two turns, never within one.
//!
//! Failure behaviour: what a thread reads and cannot hand out is raised by the next call, after all that was read.

use crate::batch::Batch;
use crate::block::Block;
use crate::cursor::{Cursor, Look};
use crate::exclusive::Exclusive;
use crate::fault;
use crate::memory::unpicklable;
use crate::message::Message;
use crate::owned::Ours;
use crate::position::Position;
use flow::Fault;
use pyo3::PyClass;
use pyo3::exceptions::{PyEOFError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use store::Watch;

/// How errors name it.
const ITERATION: &str = "an iteration";

/// A cursor as Python's iterators have it: they wait by `next`, or are waited for by their descriptor and asked by
/// `poll`.
struct Shared {
    /// None once it has come to its end.
    cursor: Option<Cursor>,
    /// One with a name that has come to its end: what it read last can still be committed.
    ended: Option<Cursor>,
    /// Made when it is asked for first; at the end it is raised for good, as that of a file is.
    watch: Option<Ours<Watch>>,
    /// What went wrong while something was handed out: raised when there is nothing more to hand out.
    trouble: Option<PyErr>,
}

impl Shared {
    fn new(cursor: Cursor) -> Self {
        Self { cursor: Some(cursor), ended: None, watch: None, trouble: None }
    }

    /// Looks for the next messages, and waits a little for them.
    fn step(&mut self, py: Python<'_>) -> PyResult<Look> {
        self.trouble.take().map_or(Ok(()), Err)?;
        let Some(cursor) = &mut self.cursor else { return Ok(Look::End) };
        let look = match cursor.look(py)? {
            Look::Nothing if cursor.wait(py)? => Look::Passed,
            Look::Nothing => Look::End,
            look => look,
        };
        if matches!(look, Look::End) {
            self.end();
        }
        Ok(look)
    }

    /// Looks for the next messages without waiting.
    fn poll(&mut self, py: Python<'_>) -> PyResult<Look> {
        self.trouble.take().map_or(Ok(()), Err)?;
        let look = match &mut self.cursor {
            Some(cursor) => cursor.look(py)?,
            None => Look::End,
        };
        match look {
            Look::Nothing => self.rest(py)?,
            Look::End => self.end(),
            Look::Block(_) | Look::Passed => {}
        }
        Ok(look)
    }

    /// Ends if it has waited long enough; else seconds for which to wait.
    fn patience(&mut self) -> Option<f64> {
        let patience = self.cursor.as_ref().map(Cursor::patience)?;
        if patience.is_some_and(|left| left.is_zero()) {
            self.end();
            return None;
        }
        Some(patience.map_or(f64::INFINITY, |left| left.as_secs_f64()))
    }

    /// Nothing that was read is left to be handed out: the descriptor is readable if there is more in the stream.
    fn rest(&mut self, py: Python<'_>) -> PyResult<()> {
        match (&mut self.cursor, &mut self.watch) {
            // A forked process has the parent's descriptor, too.
            (Some(cursor), Some(watch)) if watch.is_ours() => cursor.rest(py, watch),
            _ => Ok(()),
        }
    }

    /// The same while the last of it is handed out: that is not taken back for an error.
    fn rest_later(&mut self, py: Python<'_>) {
        self.trouble = self.rest(py).err();
        if let (Some(_), Some(watch)) = (&self.trouble, &self.watch) {
            watch.raise();
        }
    }

    /// Releases the stream. The descriptor stays, raised: a waiting program learns of the end.
    fn end(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            self.ended = Some(cursor).filter(Cursor::is_named);
        }
        if let Some(watch) = self.watch.as_ref().filter(|watch| watch.is_ours()) {
            watch.raise();
        }
    }

    fn fileno(&mut self, py: Python<'_>) -> PyResult<i32> {
        if self.watch.is_none() {
            let Some(cursor) = &self.cursor else {
                return Err(PyValueError::new_err("the iteration has ended: it has no descriptor"));
            };
            self.watch = Some(Ours::new(cursor.watch(py)?));
        }
        let Some(watch) = &self.watch else { return Ok(-1) };
        watch.check(py, "the descriptor of an iteration")?;
        Ok(watch.as_fd().as_raw_fd())
    }

    fn close(&mut self) {
        // Wakes who waits for a copy of the descriptor.
        if let Some(watch) = self.watch.as_ref().filter(|watch| watch.is_ours()) {
            watch.raise();
        }
        (self.cursor, self.ended, self.watch) = (None, None, None);
    }

    /// Behind all that was read.
    fn position(&self, py: Python<'_>) -> PyResult<Position> {
        self.cursor.as_ref().or(self.ended.as_ref()).map(Cursor::position).ok_or_else(|| ended(py))
    }

    fn kept(&mut self, py: Python<'_>) -> PyResult<&mut Cursor> {
        self.cursor.as_mut().or(self.ended.as_mut()).ok_or_else(|| ended(py))
    }
}

/// A fault of who asks an iteration that is no more.
fn ended(py: Python<'_>) -> PyErr {
    let hint = "read it before the end, or use a name: `read(name=\"analysis\")`";
    fault::error(py, Fault::new("no position is available", "the iteration has ended").hint(hint))
}

/// The answer of a look without waiting, for Python.
#[derive(IntoPyObject)]
enum Said<T> {
    Item(T),
    /// Seconds for which to wait.
    Wait(f64),
}

/// The end of an iteration, for `poll`.
fn at_end() -> PyErr {
    PyEOFError::new_err("the iteration has ended")
}

/// What `__anext__` returns: an awaitable of the next item.
fn awaited<'py, T: PyClass>(slf: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    static NEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    NEXT.import(slf.py(), "beamport._following", "next_of")?.call1((slf,))
}

/// The messages that were read, and how many of them were handed out.
struct Reading {
    stand: Shared,
    block: Option<Arc<Block>>,
    at: usize,
}

impl Reading {
    /// Behind the last message that was handed out; behind those that were not wanted where the block is used up.
    fn position(&self, py: Python<'_>) -> PyResult<Position> {
        let behind = self.stand.position(py)?;
        match self.block.as_ref().filter(|block| (1..block.sequences.len()).contains(&self.at)) {
            Some(block) => Ok(Position { sequence: block.sequences[self.at - 1] + 1, ..behind }),
            None => Ok(behind),
        }
    }

    /// The next message of what was read.
    fn hand_out(&mut self, py: Python<'_>) -> Option<Message> {
        let block = self.block.as_ref()?;
        let message = block.message(self.at)?;
        self.at += 1;
        if self.at == block.entries.len() {
            self.stand.rest_later(py);
        }
        Some(message)
    }

    /// The next message, of what was read or by a look.
    fn next(
        &mut self,
        py: Python<'_>,
        look: impl FnOnce(&mut Shared, Python<'_>) -> PyResult<Look>,
    ) -> PyResult<Step<Message>> {
        if let Some(message) = self.hand_out(py) {
            return Ok(Step::Item(message));
        }
        // A block of which all was handed out would count against the quota of the next one.
        (self.block, self.at) = (None, 0);
        Ok(match look(&mut self.stand, py)? {
            Look::Block(block) => {
                self.block = Some(block);
                self.hand_out(py).map_or(Step::Passed, Step::Item)
            }
            Look::Passed => Step::Passed,
            Look::Nothing => Step::Nothing,
            Look::End => Step::End,
        })
    }
}

impl Shared {
    /// The next batch, by a look.
    fn next(
        &mut self,
        py: Python<'_>,
        look: impl FnOnce(&mut Shared, Python<'_>) -> PyResult<Look>,
    ) -> PyResult<Step<Batch>> {
        Ok(match look(self, py)? {
            Look::Block(block) => {
                self.rest_later(py);
                Step::Item(Batch::new(block))
            }
            Look::Passed => Step::Passed,
            Look::Nothing => Step::Nothing,
            Look::End => Step::End,
        })
    }
}

/// As [`Look`], of one item.
enum Step<T> {
    Item(T),
    Passed,
    Nothing,
    End,
}

impl Messages {
    pub(crate) fn new(cursor: Cursor) -> Self {
        Self { state: Exclusive::new(Reading { stand: Shared::new(cursor), block: None, at: 0 }) }
    }
}

/// Iterator over messages; made by `Stream.read`.
#[pyclass(frozen, module = "beamport._core", name = "_Messages")]
pub(crate) struct Messages {
    state: Exclusive<Reading>,
}

#[pymethods]
impl Messages {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            match self.state.enter(py, ITERATION)?.next(py, Shared::step)? {
                Step::Item(item) => return Ok(Some(item)),
                Step::End => return Ok(None),
                Step::Passed | Step::Nothing => {}
            }
            py.check_signals()?;
            self.state.hand_over(py);
        }
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        awaited(slf)
    }

    /// The next message if it is there, `None` if one may come later. Does not wait, so `timeout` does not matter.
    ///
    /// Raises `EOFError` once there will be none: `stop` or `until` is reached, or it was closed.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        loop {
            match self.state.enter(py, ITERATION)?.next(py, Shared::poll)? {
                Step::Item(item) => return Ok(Some(item)),
                Step::Nothing => return Ok(None),
                Step::End => return Err(at_end()),
                Step::Passed => {}
            }
            py.check_signals()?;
        }
    }

    /// Looks once: the next message, the seconds for which to wait for one (0 = look again), or `None` at the end.
    fn _look(&self, py: Python<'_>) -> PyResult<Option<Said<Message>>> {
        let mut state = self.state.enter(py, ITERATION)?;
        Ok(match state.next(py, Shared::poll)? {
            Step::Item(item) => Some(Said::Item(item)),
            Step::Passed => Some(Said::Wait(0.0)),
            Step::Nothing => state.stand.patience().map(Said::Wait),
            Step::End => None,
        })
    }

    /// A file descriptor that is readable while `poll` has something to say: for `select`, `selectors`, and
    /// `loop.add_reader` of asyncio. Only with `follow=True`. It belongs to the iteration: `close` closes it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.state.enter(py, ITERATION)?.stand.fileno(py)
    }

    /// The position behind the messages that were handed out: `(uuid, epoch, sequence)` of the next one. Keep it
    /// together with the results of the messages, and resume with `start=position`: then nothing is done twice.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<(String, u32, u64)> {
        self.state.enter(py, ITERATION)?.position(py).map(|at| at.tuple())
    }

    /// Sequence behind the last message that is committed; of a named iteration.
    #[getter]
    fn committed(&self, py: Python<'_>) -> PyResult<u64> {
        self.state.enter(py, ITERATION)?.stand.kept(py)?.committed(py).map(|answer| answer.0)
    }

    /// Messages of the stream that are not committed yet; of a named iteration.
    #[getter]
    fn lag(&self, py: Python<'_>) -> PyResult<u64> {
        self.state.enter(py, ITERATION)?.stand.kept(py)?.committed(py).map(|answer| answer.1)
    }

    /// Commits all messages handed out, to any thread, or those before a position: the next reader of this name begins
    /// behind them. A commit outlives any process; after a power cut it may be an earlier one.
    #[pyo3(signature = (position=None))]
    fn commit(&self, py: Python<'_>, position: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mut state = self.state.enter(py, ITERATION)?;
        let at = state.position(py)?;
        state.stand.kept(py)?.commit(py, position, at)
    }

    /// Ends the iteration and releases the stream and its name; views and messages stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A forked process has nothing of it to release.
        if !self.state.is_ours() {
            return Ok(());
        }
        let mut state = self.state.enter(py, ITERATION)?;
        state.stand.close();
        state.block = None;
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, ITERATION))
    }
}

impl Batches {
    pub(crate) fn new(cursor: Cursor) -> Self {
        Self { state: Exclusive::new(Shared::new(cursor)) }
    }
}

/// Iterator over batches; made by `Stream.batches`.
#[pyclass(frozen, module = "beamport._core", name = "_Batches")]
pub(crate) struct Batches {
    state: Exclusive<Shared>,
}

#[pymethods]
impl Batches {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            match self.state.enter(py, ITERATION)?.next(py, Shared::step)? {
                Step::Item(item) => return Ok(Some(item)),
                Step::End => return Ok(None),
                Step::Passed | Step::Nothing => {}
            }
            py.check_signals()?;
            self.state.hand_over(py);
        }
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        awaited(slf)
    }

    /// The next batch if it is there, `None` if one may come later. Does not wait, so `timeout` does not matter.
    ///
    /// Raises `EOFError` once there will be none: `stop` or `until` is reached, or it was closed.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        loop {
            match self.state.enter(py, ITERATION)?.next(py, Shared::poll)? {
                Step::Item(item) => return Ok(Some(item)),
                Step::Nothing => return Ok(None),
                Step::End => return Err(at_end()),
                Step::Passed => {}
            }
            py.check_signals()?;
        }
    }

    /// Looks once: the next batch, the seconds for which to wait for one (0 = look again), or `None` at the end.
    fn _look(&self, py: Python<'_>) -> PyResult<Option<Said<Batch>>> {
        let mut state = self.state.enter(py, ITERATION)?;
        Ok(match state.next(py, Shared::poll)? {
            Step::Item(item) => Some(Said::Item(item)),
            Step::Passed => Some(Said::Wait(0.0)),
            Step::Nothing => state.patience().map(Said::Wait),
            Step::End => None,
        })
    }

    /// A file descriptor that is readable while `poll` has something to say: for `select`, `selectors`, and
    /// `loop.add_reader` of asyncio. Only with `follow=True`. It belongs to the iteration: `close` closes it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.state.enter(py, ITERATION)?.fileno(py)
    }

    /// The position behind the messages that were handed out: `(uuid, epoch, sequence)` of the next one. Keep it
    /// together with the results of the messages, and resume with `start=position`: then nothing is done twice.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<(String, u32, u64)> {
        self.state.enter(py, ITERATION)?.position(py).map(|at| at.tuple())
    }

    /// Sequence behind the last message that is committed; of a named iteration.
    #[getter]
    fn committed(&self, py: Python<'_>) -> PyResult<u64> {
        self.state.enter(py, ITERATION)?.kept(py)?.committed(py).map(|answer| answer.0)
    }

    /// Messages of the stream that are not committed yet; of a named iteration.
    #[getter]
    fn lag(&self, py: Python<'_>) -> PyResult<u64> {
        self.state.enter(py, ITERATION)?.kept(py)?.committed(py).map(|answer| answer.1)
    }

    /// Commits all messages handed out, to any thread, or those before a position: the next reader of this name begins
    /// behind them. A commit outlives any process; after a power cut it may be an earlier one.
    #[pyo3(signature = (position=None))]
    fn commit(&self, py: Python<'_>, position: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mut state = self.state.enter(py, ITERATION)?;
        let at = state.position(py)?;
        state.kept(py)?.commit(py, position, at)
    }

    /// Ends the iteration and releases the stream and its name; views and batches stay.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // A forked process has nothing of it to release.
        if !self.state.is_ours() {
            return Ok(());
        }
        let mut state = self.state.enter(py, ITERATION)?;
        state.close();
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&self, py: Python<'_>, _why: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, ITERATION))
    }
}
