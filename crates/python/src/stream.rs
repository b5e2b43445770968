//! A stream: what it is, what it holds, and the ways to read it.

use crate::cursor::{Cursor, Wanted, place_of, refused};
use crate::fault;
use crate::iteration::{Batches, Messages};
use crate::limits::ENTRIES;
use crate::memory::unpicklable;
use crate::message::Message;
use crate::position::From;
use crate::reader_pool::ReaderPool;
use crate::time::nanoseconds;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PySlice};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Bounds, Header, Level};

/// The part of a stream that a run is.
#[derive(Clone, Copy)]
struct Part {
    since: i64,
    until: i64,
    within: Option<(u64, u64)>,
}

/// A named, append-only, replayable sequence of messages.
///
/// Made by `beamport.open(...)["NAME"]`, or `run["NAME"]` for the members of a run alone. All properties are as of
/// the moment they are asked.
#[pyclass(frozen, module = "beamport")]
pub(crate) struct Stream {
    place: Arc<ReaderPool>,
    part: Option<Part>,
}

impl Stream {
    fn header(&self, py: Python<'_>) -> PyResult<Header> {
        self.place.header().map_err(|e| fault::of_store(py, "opened", self.place.path(), &e))
    }

    fn bounds(&self, py: Python<'_>) -> PyResult<Bounds> {
        let bounds = self.place.ask(false, |reader| Ok(reader.bounds()));
        bounds.map_err(|e| fault::of_store(py, "opened", self.place.path(), &e))
    }

    #[allow(clippy::too_many_arguments, reason = "the words of `read`")]
    fn wanted(
        &self,
        py: Python<'_>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<i64>,
        follow: bool,
        early: bool,
        origin: Option<String>,
        schema: Option<&str>,
        timeout: Option<f64>,
        name: Option<String>,
    ) -> PyResult<Wanted> {
        let now = self.place.now();
        let time = |asked: Option<&Bound<'_, PyAny>>, word: &str, default: i64| match asked {
            Some(asked) => nanoseconds(py, asked, word, now),
            None => Ok(default),
        };
        let start = match start {
            Some(asked) => Some(From::read(py, asked, |asked| nanoseconds(py, asked, "start", now))?),
            None => None,
        };
        if name.as_ref().is_some_and(|name| name.is_empty() || name.contains('\0')) {
            return Err(refused(py, "a reader's name is not empty", "give it one, like `name=\"analysis\"`"));
        }
        let schema = match schema.map(|id| <[u8; 4]>::try_from(id.as_bytes())) {
            None => None,
            Some(Ok(id)) => Some(id),
            Some(Err(_)) => {
                let cause = format!("`{}` is not a schema id", schema.unwrap_or_default());
                return Err(refused(py, cause, "write four letters, like `schema=\"ev44\"`"));
            }
        };
        if timeout.is_some() && !follow {
            return Err(refused(py, "`timeout` is for waiting, and this does not wait", "add `follow=True`"));
        }
        let timeout = match timeout.map(Duration::try_from_secs_f64) {
            None => None,
            Some(Ok(timeout)) => Some(timeout),
            Some(Err(e)) => return Err(refused(py, format!("`timeout`: {e}"), "write seconds, like `timeout=2.5`")),
        };
        let part = self.part.unwrap_or(Part { since: i64::MIN, until: i64::MAX, within: None });
        Ok(Wanted {
            since: time(since, "since", i64::MIN)?.max(part.since),
            until: time(until, "until", i64::MAX)?.min(part.until),
            start,
            name,
            stop,
            within: part.within,
            follow,
            early,
            origin,
            schema,
            timeout,
        })
    }
}

impl Stream {
    /// All of it.
    fn all(&self, py: Python<'_>) -> PyResult<Wanted> {
        self.wanted(py, None, None, None, None, false, false, None, None, None, None)
    }

    /// The first sequence that can be read, and one past the last.
    fn range(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let range = self.place.ask(false, |reader| Ok((reader.bounds().first, reader.end())));
        let (first, end) = range.map_err(|e| fault::of_store(py, "opened", self.place.path(), &e))?;
        let (low, high) = self.part.and_then(|part| part.within).unwrap_or((first, end));
        Ok((low.max(first), high.min(end)))
    }

    /// The messages with sequences in `start..stop`, oldest first; of a run its members.
    fn between(&self, py: Python<'_>, start: u64, stop: u64) -> PyResult<Vec<Message>> {
        let sequence = |sequence: u64| i64::try_from(sequence).unwrap_or(i64::MAX);
        let (start, stop) = (Some(From::Sequence(sequence(start))), Some(sequence(stop)));
        let wanted = Wanted { start, stop, ..self.all(py)? };
        let mut cursor = Cursor::open(py, &self.place, wanted)?;
        let mut messages = Vec::new();
        while let Some(block) = cursor.step(py)? {
            messages.extend((0..block.entries.len()).filter_map(|at| block.message(at)));
        }
        Ok(messages)
    }

    /// The newest messages, at most `count`, oldest first.
    fn newest(&self, py: Python<'_>, count: u64) -> PyResult<Vec<Message>> {
        let (low, high) = self.range(py)?;
        let mut width = count;
        loop {
            // Messages of a run lie between others.
            let start = high.saturating_sub(width).max(low);
            let mut messages = self.between(py, start, high)?;
            if messages.len() as u64 >= count || start == low {
                let rest = messages.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
                return Ok(messages.split_off(rest));
            }
            width = width.saturating_mul(2);
        }
    }

    /// The sequences of the newest message of each origin, by row.
    fn newest_of_origins(&self, py: Python<'_>) -> PyResult<BTreeMap<u32, u64>> {
        let (low, high) = self.range(py)?;
        let part = self.part;
        let found = py.detach(|| {
            self.place.ask(false, |reader| {
                let (origins, clock) = (reader.origins()?.len(), reader.header().clock);
                let (mut found, mut end) = (BTreeMap::new(), high);
                while end > low && found.len() < origins {
                    let start = end.saturating_sub(ENTRIES).max(low);
                    let (mut at, mut newest) = (start, BTreeMap::new());
                    while at < end {
                        let entries = match reader.entries(at, (end - at) as usize) {
                            Ok(entries) if !entries.is_empty() => entries,
                            // Retention was faster: nothing older is there.
                            Ok(_) | Err(store::Error::Gone { .. }) => break,
                            Err(e) => return Err(e),
                        };
                        for entry in entries {
                            let time = clock.time_of(entry);
                            if part.is_none_or(|part| time >= part.since && time < part.until) {
                                newest.insert(entry.origin, at);
                            }
                            at += 1;
                        }
                    }
                    for (origin, at) in newest {
                        found.entry(origin).or_insert(at);
                    }
                    end = start;
                }
                Ok(found)
            })
        });
        found.map_err(|e| fault::of_store(py, "read", self.place.path(), &e))
    }
}

/// The words of `read` that a table has.
struct Words<'a, 'py> {
    since: Option<Bound<'py, PyAny>>,
    until: Option<Bound<'py, PyAny>>,
    start: Option<Bound<'py, PyAny>>,
    stop: Option<i64>,
    origin: Option<&'a str>,
    schema: Option<&'a str>,
    early: bool,
}

/// Calls the maker of a table of a library.
fn table<'py>(
    stream: &Bound<'py, Stream>,
    library: &str,
    limit: Option<i64>,
    words: Words<'_, 'py>,
) -> PyResult<Bound<'py, PyAny>> {
    static OF_STREAM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = stream.py();
    let said = PyDict::new(py);
    for (name, word) in [("since", words.since), ("until", words.until), ("start", words.start)] {
        said.set_item(name, word)?;
    }
    for (name, word) in [("origin", words.origin), ("schema", words.schema)] {
        said.set_item(name, word)?;
    }
    said.set_item("stop", words.stop)?;
    said.set_item("early", words.early)?;
    OF_STREAM.import(py, "beamport._tables", "of_stream")?.call1((stream, library, limit, said))
}

#[pymethods]
impl Stream {
    /// The stream in a folder.
    #[new]
    fn open(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let stream = Self { place: Arc::new(ReaderPool::new(folder)), part: None };
        stream.header(py)?;
        Ok(stream)
    }

    /// The messages with source time in `[since, until)`, and of the sequences `[first, next)` if given: a run.
    #[pyo3(signature = (since, until, first=None, next=None))]
    fn _members(&self, since: i64, until: i64, first: Option<u64>, next: Option<u64>) -> Self {
        let within = first.zip(next);
        Self { place: self.place.clone(), part: Some(Part { since, until, within }) }
    }

    /// Its name.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.header(py)?.name)
    }

    /// The folder that it is.
    #[getter]
    fn folder(&self) -> PathBuf {
        self.place.folder.clone()
    }

    /// What its messages survive: `"memory"` the end of any process, `"disk"` a power cut too.
    #[getter]
    fn level(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.header(py)?.level.as_str())
    }

    /// What its source times are: `"epoch"` ns since 1970 UTC, `"ticks"` of its source, or `"none"`. Where it is not
    /// `"epoch"`, `since`, `until` and runs go by arrival.
    #[getter]
    fn clock(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.header(py)?.clock.as_str())
    }

    /// Sequence of the oldest message that is still there.
    #[getter]
    fn first(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.bounds(py)?.first)
    }

    /// One past the sequence of the newest message that can be read: of a disk stream, that survives a power cut.
    #[getter]
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        let end = self.place.ask(false, |reader| Ok(reader.end()));
        end.map_err(|e| fault::of_store(py, "opened", self.place.path(), &e))
    }

    /// The mark `disk`: messages below this sequence survive a power cut. `None` for a memory stream.
    #[getter]
    fn disk(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let level = self.header(py)?.level;
        Ok(if level == Level::Disk { Some(self.bounds(py)?.disk) } else { None })
    }

    /// Whether a process writes it now.
    #[getter]
    fn written(&self, py: Python<'_>) -> PyResult<bool> {
        let writer = self.place.ask(false, |reader| Ok(reader.writer()));
        Ok(writer.map_err(|e| fault::of_store(py, "opened", self.place.path(), &e))?.is_some())
    }

    /// Its identity, 32 hexadecimal digits: a stream that was created again has another.
    #[getter]
    fn uuid(&self, py: Python<'_>) -> PyResult<String> {
        Ok(store::hex(&self.header(py)?.uuid))
    }

    /// Grows when its end could not be proven (a power cut, damage), so that (uuid, epoch, sequence) names a message for
    /// ever.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.header(py)?.epoch())
    }

    /// Who made its messages: PVs, banks, boards.
    #[getter]
    fn origins(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let origins = self.place.ask(false, |reader| reader.origins().map(<[String]>::to_vec));
        origins.map_err(|e| fault::of_store(py, "opened", self.place.path(), &e))
    }

    /// Reads messages, oldest first: an iterator of `Message`.
    ///
    /// since, until: source times, `until` itself left out. Text (`"-10 s"` before now, `"now"`, or RFC 3339 like
    ///     `"2026-03-01T12:00:00Z"`), a `datetime` with a time zone, a `numpy.datetime64` (UTC), or `int` ns since
    ///     1970 UTC. Source times need not rise: every message inside is found.
    /// start, stop: sequences, `stop` itself left out; negative ones count from the end, as in a slice. `start` may also
    ///     be `"beginning"`, `"end"`, a source time (all but `int`): the first message that has it or a later one, or a
    ///     position `(uuid, epoch, sequence)`, which is refused where the stream no longer has it.
    /// follow: at the end, wait for more. Otherwise it ends where the stream ended when `read` was called.
    /// timeout: with `follow`, end after so many seconds without a message (`float`); `None` waits for ever. With
    ///     `until` it ends also when that time has passed. Ctrl-C ends it at any time.
    ///     What `follow` gives can be waited for elsewhere: it has `fileno()` for `select` and asyncio, and `poll()`.
    /// early: of a disk stream, read also what a power cut could still take back.
    /// origin, schema: only messages of this origin, of this schema id.
    /// name: keep the position under this name: the iteration has `commit()`, and the next one of the same name, in
    ///     this process or another, goes on there; `start` is then for a new name alone (but a position always counts).
    ///     Only one process reads under a name at a time. With `when_full = "wait"` the stream keeps uncommitted
    ///     messages; `forget` ends that.
    ///
    /// Raises `Error` where the stream or the origin is not there, the messages are gone (a source faster
    /// than this reader drops the oldest), or bytes do not verify.
    ///
    /// Example: `for m in data["detector"].read(since="-10 s"): print(m["pixel_id"].max())`
    #[allow(clippy::too_many_arguments, reason = "each is a word of its own for the user")]
    #[pyo3(signature = (since=None, until=None, start=None, stop=None, follow=false, early=false, origin=None, schema=None, timeout=None, name=None))]
    fn read(
        &self,
        py: Python<'_>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<i64>,
        follow: bool,
        early: bool,
        origin: Option<String>,
        schema: Option<&str>,
        timeout: Option<f64>,
        name: Option<String>,
    ) -> PyResult<Messages> {
        let wanted = self.wanted(py, since, until, start, stop, follow, early, origin, schema, timeout, name)?;
        Cursor::open(py, &self.place, wanted).map(Messages::new)
    }

    /// Reads like `read`, but gives an iterator of `Batch`: many messages at once, with columns.
    ///
    /// Example: `sum(batch.concat("pixel_id").size for batch in data["detector"].batches(since="-1 min"))`
    #[allow(clippy::too_many_arguments, reason = "each is a word of its own for the user")]
    #[pyo3(signature = (since=None, until=None, start=None, stop=None, follow=false, early=false, origin=None, schema=None, timeout=None, name=None))]
    fn batches(
        &self,
        py: Python<'_>,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<i64>,
        follow: bool,
        early: bool,
        origin: Option<String>,
        schema: Option<&str>,
        timeout: Option<f64>,
        name: Option<String>,
    ) -> PyResult<Batches> {
        let wanted = self.wanted(py, since, until, start, stop, follow, early, origin, schema, timeout, name)?;
        Cursor::open(py, &self.place, wanted).map(Batches::new)
    }

    /// The messages as a `pandas.DataFrame` with the index `time` (UTC): a row a message with its `origin` and the
    /// fields of its schema (`value`), of frames and data arrays their attributes; of events (`ev44`) a row an event,
    /// with `time_of_flight` in ns and `pixel_id`, at the time of its pulse.
    ///
    /// since, until, start, stop, origin, schema, early: as for `read`.
    /// limit: the largest number of messages. Default: all; above 1 GiB an `Error` asks for less.
    ///
    /// Slices have it too: `stream[-1000:].to_pandas()`. Raises `Error` where pandas is not installed.
    ///
    /// Example: `data["devices"].to_pandas(since="-1 h", origin="T")["value"].plot()`
    #[allow(clippy::too_many_arguments, reason = "each is a word of its own for the user")]
    #[pyo3(signature = (
        since=None, until=None, start=None, stop=None, origin=None, schema=None, early=false, limit=None
    ))]
    fn to_pandas<'py>(
        slf: &Bound<'py, Self>,
        since: Option<Bound<'py, PyAny>>,
        until: Option<Bound<'py, PyAny>>,
        start: Option<Bound<'py, PyAny>>,
        stop: Option<i64>,
        origin: Option<&str>,
        schema: Option<&str>,
        early: bool,
        limit: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let words = Words { since, until, start, stop, origin, schema, early };
        table(slf, "pandas", limit, words)
    }

    /// The values as an `xarray.DataArray` over `time` (UTC): numbers, or the arrays of frames and data arrays, with
    /// the names, units and coordinates of a data array (`da00`). Attributes that all messages have are coordinates.
    ///
    /// The words are those of `to_pandas`. Raises `Error` where messages differ in schema or shape, for events, and
    /// where xarray is not installed.
    ///
    /// Example: `data["camera"].to_xarray(start=-100).mean("time").plot()`
    #[allow(clippy::too_many_arguments, reason = "each is a word of its own for the user")]
    #[pyo3(signature = (
        since=None, until=None, start=None, stop=None, origin=None, schema=None, early=false, limit=None
    ))]
    fn to_xarray<'py>(
        slf: &Bound<'py, Self>,
        since: Option<Bound<'py, PyAny>>,
        until: Option<Bound<'py, PyAny>>,
        start: Option<Bound<'py, PyAny>>,
        stop: Option<i64>,
        origin: Option<&str>,
        schema: Option<&str>,
        early: bool,
        limit: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let words = Words { since, until, start, stop, origin, schema, early };
        table(slf, "xarray", limit, words)
    }

    /// The values as a `scipp.DataArray` over `time`, as `to_xarray` has them, with units and the errors of data arrays
    /// as variances; events (`ev44`) along `event`, with the coordinates that scippnexus reads from a file.
    ///
    /// The words are those of `to_pandas`. Raises `Error` as `to_xarray` does, and where scipp is not installed.
    ///
    /// Example: `data["detector"].to_scipp(since="-10 s").hist(event_time_offset=100)`
    #[allow(clippy::too_many_arguments, reason = "each is a word of its own for the user")]
    #[pyo3(signature = (
        since=None, until=None, start=None, stop=None, origin=None, schema=None, early=false, limit=None
    ))]
    fn to_scipp<'py>(
        slf: &Bound<'py, Self>,
        since: Option<Bound<'py, PyAny>>,
        until: Option<Bound<'py, PyAny>>,
        start: Option<Bound<'py, PyAny>>,
        stop: Option<i64>,
        origin: Option<&str>,
        schema: Option<&str>,
        early: bool,
        limit: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let words = Words { since, until, start, stop, origin, schema, early };
        table(slf, "scipp", limit, words)
    }

    /// Deletes the position of a name: nothing waits for it any more.
    ///
    /// Raises `Error` while a process reads under it. False if there is no such name.
    fn forget(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let forgotten = self.place.ask(false, |reader| reader.forget(name));
        forgotten.map_err(|e| fault::of_store(py, "let go of", self.place.path(), &e))
    }

    /// The newest message of each origin, whatever its age, by the name of the origin: the present state of many PVs.
    ///
    /// Example: `{name: m.value for name, m in data["devices"].latest().items()}`
    fn latest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let latest = PyDict::new(py);
        for sequence in self.newest_of_origins(py)?.into_values() {
            for message in self.between(py, sequence, sequence + 1)? {
                latest.set_item(message.origin_name().to_owned(), message)?;
            }
        }
        Ok(latest)
    }

    /// `stream[7]` is the message with sequence 7, `stream[-1]` the newest that can be read, `stream[-10:]` a list that
    /// has `to_pandas`, `to_xarray` and `to_scipp` too.
    ///
    /// Raises `IndexError` where there is no such message, `Error` where retention has deleted it.
    fn __getitem__<'py>(&self, py: Python<'py>, at: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (low, high) = self.range(py)?;
        if let Ok(slice) = at.cast::<PySlice>() {
            let word = |name: &str| slice.getattr(name)?.extract::<Option<i64>>();
            let (start, stop, step) = (word("start")?, word("stop")?, word("step")?);
            if step.is_some_and(|step| step != 1) {
                return Err(refused(py, "a slice of a stream has no step", "take it of the list: `stream[-10:][::2]`"));
            }
            let messages = match (start, stop) {
                (Some(start), None) if start < 0 => self.newest(py, start.unsigned_abs())?,
                _ => {
                    let place = |asked: Option<i64>, all: u64| asked.map_or(all, |asked| place_of(asked, low, high));
                    self.between(py, place(start, low), place(stop, high))?
                }
            };
            static LIST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            return LIST.import(py, "beamport._tables", "MessageList")?.call1((messages,));
        }
        let asked: i64 = at.extract()?;
        let messages = match u64::try_from(asked) {
            Ok(sequence) => self.between(py, sequence, sequence + 1)?,
            Err(_) => self.newest(py, asked.unsigned_abs())?,
        };
        let is_there = asked >= 0 || messages.len() as u64 == asked.unsigned_abs();
        match messages.into_iter().next().filter(|_| is_there) {
            Some(message) => Ok(message.into_pyobject(py)?.into_any()),
            None => {
                let name = self.name(py)?;
                let there = match high.checked_sub(1).filter(|last| *last >= low) {
                    Some(last) => format!("has messages {low} to {last}"),
                    None => "has no messages".to_owned(),
                };
                Err(PyIndexError::new_err(format!("`{name}` {there}, and no message {asked}")))
            }
        }
    }

    /// How many messages can be read now.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let (low, high) = self.range(py)?;
        if self.part.is_none() {
            return Ok(high.saturating_sub(low) as usize);
        }
        // Those of a run lie between others.
        let mut cursor = Cursor::open(py, &self.place, self.all(py)?)?;
        let mut count = 0;
        while let Some(block) = cursor.step(py)? {
            count += block.entries.len();
        }
        Ok(count)
    }

    /// A stream is there, however many messages it has.
    fn __bool__(&self) -> bool {
        true
    }

    /// As `read()`.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Messages> {
        Cursor::open(py, &self.place, self.all(py)?).map(Messages::new)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (header, first, count) = (self.header(py)?, self.first(py)?, self.count(py)?);
        let part = if self.part.is_some() { ", members of a run" } else { "" };
        Ok(format!(
            "<beamport.Stream `{}` ({}), messages {} to {}{part}>",
            header.name,
            header.level.as_str(),
            first,
            count
        ))
    }

    /// For notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("beamport._html")?.call_method1("stream", (slf,))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, "a stream"))
    }
}
