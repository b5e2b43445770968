//! A writer of streams for the tests of this package: views, and any flags. Programs have `append::Writer`.

use crate::fault;
use crate::owned::Ours;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use store::{Clock, Level, Meta, Options, Os, Parent, ReadOptions, Reader, SchemaId, WhenFull};

/// Writes a stream, for tests alone: it may change with any version.
#[pyclass(module = "beamport._core", name = "_Writer")]
pub(crate) struct Writer {
    folder: PathBuf,
    writer: Option<Ours<store::Writer>>,
    numbers: u64,
    parents: HashMap<String, Parent>,
}

#[pymethods]
impl Writer {
    /// Creates the stream in `folder`, or opens it to append, with `live` bytes of shared memory.
    #[new]
    #[pyo3(signature = (folder, level="memory", live=1 << 20, when_full="wait", clock="epoch"))]
    fn open(py: Python<'_>, folder: PathBuf, level: &str, live: u64, when_full: &str, clock: &str) -> PyResult<Self> {
        let mut options = if level == "disk" { Options::disk(live) } else { Options::memory(live) };
        options.when_full = match when_full {
            "drop-oldest" => WhenFull::DropOldest,
            "drop-newest" => WhenFull::DropNewest,
            _ => WhenFull::Wait,
        };
        options.clock = match clock {
            "ticks" => Clock::Ticks,
            "none" => Clock::None,
            _ => Clock::Epoch,
        };
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let writer = store::Writer::open(&Os::shared(), &folder, &name, &options);
        let writer = writer.map_err(|e| fault::of_store(py, "written", &folder, &e))?;
        let numbers = writer.next_sequence();
        Ok(Self { folder, writer: Some(Ours::new(writer)), numbers, parents: HashMap::new() })
    }

    /// Appends one message and returns its sequence. The schema is that of the payload, the number the next.
    #[pyo3(signature = (payload, source_time, origin="", origin_seq=None, schema=None, flags=0))]
    #[allow(clippy::too_many_arguments, reason = "all that an entry says")]
    fn append(
        &mut self,
        py: Python<'_>,
        payload: &[u8],
        source_time: i64,
        origin: &str,
        origin_seq: Option<u64>,
        schema: Option<&str>,
        flags: u16,
    ) -> PyResult<u64> {
        let Some(writer) = &mut self.writer else {
            return Err(fault::error(py, flow::Fault::new("cannot append", "the writer is closed")));
        };
        writer.check(py, "a writer")?;
        let id = schema.map_or(wire::schema_id(payload), |id| id.as_bytes().try_into().ok()).unwrap_or(*b"none");
        let result = writer.origin(origin).and_then(|origin| {
            let origin_seq = origin_seq.unwrap_or(self.numbers);
            writer.append(&Meta { source_time, origin, origin_seq, schema: SchemaId(id), flags }, payload)
        });
        self.numbers += 1;
        result.map_err(|e| fault::of_store(py, "written", &self.folder, &e))
    }

    /// Points to a message of the stream in the folder `parent` beside this one; returns its sequence here.
    fn point(&mut self, py: Python<'_>, parent: &str, sequence: u64) -> PyResult<u64> {
        let Some(writer) = &mut self.writer else {
            return Err(fault::error(py, flow::Fault::new("cannot append", "the writer is closed")));
        };
        writer.check(py, "a writer")?;
        let above = self.folder.parent().map(|data| data.join(parent)).unwrap_or_default();
        let mut pointed = || {
            let known = match self.parents.get(parent) {
                Some(known) => *known,
                None => *self.parents.entry(parent.to_owned()).or_insert(writer.parent(parent)?),
            };
            let options = ReadOptions { early: true, ..ReadOptions::default() };
            let mut reader = Reader::open(&Os::shared(), &above, options)?;
            let entry = reader.entries(sequence, 1)?.first().copied();
            let entry = entry.ok_or(store::Error::Gone { first: sequence })?;
            let sequence = writer.push_view(known, sequence, &entry)?;
            writer.publish();
            Ok(sequence)
        };
        pointed().map_err(|e| fault::of_store(py, "written", &self.folder, &e))
    }

    /// Waits until all that was appended is safe at the stream's level; false after `timeout` seconds.
    #[pyo3(signature = (timeout=60.0))]
    fn flush(&mut self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let Some(writer) = &mut self.writer else { return Ok(true) };
        writer.check(py, "a writer")?;
        if writer.header().level == Level::Memory {
            return Ok(true);
        }
        let (next, timeout) = (writer.next_sequence(), Duration::from_secs_f64(timeout.clamp(0.0, 3600.0)));
        let writer = &mut **writer;
        let waited = py.detach(|| writer.wait(next, Level::Disk, timeout));
        waited.map_err(|e| fault::of_store(py, "written", &self.folder, &e))
    }

    /// Ends the stream for now.
    fn close(&mut self, py: Python<'_>) {
        let writer = self.writer.take();
        py.detach(|| drop(writer));
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&mut self, py: Python<'_>, _why: &Bound<'_, PyAny>) {
        self.close(py);
    }
}
