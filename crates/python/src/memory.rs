//! Stream memory as Python's buffer protocol shows it: read-only bytes that stay as they are while anybody looks.
//!
//! A [`View`] owns a share of its mapped segment, and a numpy array made from it owns the view. So the pin of the
//! segment falls with the last array, wherever that went.

use crate::block::Block;
use crate::fault;
use crate::owned::{Pinned, bytes_of};
use flow::Fault;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::os::raw::c_int;
use std::sync::Arc;

/// Whose bytes a view shows.
enum Owner {
    /// A range of a payload segment.
    Segment(Pinned, u64, u64),
    /// The index entries of a block.
    Entries(Arc<Block>),
    /// Its sequence numbers.
    Sequences(Arc<Block>),
}

/// Bytes of a stream, for the buffer protocol: read-only, and unchanged for as long as this object lives.
#[pyclass(frozen, module = "beamport._core", name = "_View")]
pub(crate) struct View {
    owner: Owner,
}

impl View {
    /// A range of a segment. The range was verified to be inside.
    pub(crate) fn of_segment(pinned: &Pinned, at: u64, len: u64) -> Self {
        Self { owner: Owner::Segment(pinned.clone(), at, len) }
    }

    pub(crate) fn of_entries(block: &Arc<Block>) -> Self {
        Self { owner: Owner::Entries(block.clone()) }
    }

    pub(crate) fn of_sequences(block: &Arc<Block>) -> Self {
        Self { owner: Owner::Sequences(block.clone()) }
    }

    fn bytes(&self) -> &[u8] {
        match &self.owner {
            Owner::Segment(pinned, at, len) => bytes_of(pinned, *at, *len),
            Owner::Entries(block) => bytemuck::cast_slice(&block.entries),
            Owner::Sequences(block) => bytemuck::cast_slice(&block.sequences),
        }
    }
}

#[pymethods]
impl View {
    fn __len__(&self) -> usize {
        self.bytes().len()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no place for the view"));
        }
        let bytes = slf.get().bytes();
        let (start, len) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is a place for a Py_buffer; the bytes live as long as `slf`, of which the view takes a
        // reference; read-only = 1 makes Python refuse whoever asks to write.
        if unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) } != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, "a view of stream memory"))
    }
}

/// The bytes of an array in C order, as they are while nobody else writes it.
pub(crate) fn bytes_of_buffer<'a>(array: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    let exported = Exported::of(array)?;
    let bytes: *const [u8] = exported.bytes();
    // SAFETY: the bytes live as long as the array: numpy does not move an array that somebody has a reference to, and
    // the interpreter is held for as long as the slice is looked at, so that no other Python code runs meanwhile.
    Ok(unsafe { &*bytes })
}

/// An array in C order that its owner neither moves nor makes shorter while this lives, whatever Python code runs.
pub(crate) struct Exported {
    buffer: PyUntypedBuffer,
}

impl Exported {
    /// Refuses what is no buffer or not in C order.
    pub(crate) fn of(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(array)?;
        match buffer.is_c_contiguous() {
            true => Ok(Self { buffer }),
            false => Err(PyBufferError::new_err("the array is not in C order")),
        }
    }

    /// Type and shape, as the exporter says them.
    pub(crate) fn buffer(&self) -> &PyUntypedBuffer {
        &self.buffer
    }

    /// The bytes, as they are while the interpreter is held.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, len) = (self.buffer.buf_ptr().cast::<u8>(), self.buffer.len_bytes());
        if len == 0 {
            return &[];
        }
        // SAFETY: `len` bytes in a row from `start`, which stay there until the buffer is given back, and that is when
        // `self` is dropped. The interpreter is held, so that nobody writes them meanwhile.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}

/// Why beamport's objects are not pickled, and what to do instead.
pub(crate) fn unpicklable(py: Python<'_>, what: &str) -> PyErr {
    let cause = "it is memory of this machine";
    let hint = "send the folder's path and call `beamport.open` there, or send arrays: `m[\"pixel_id\"].copy()`";
    fault::error(py, Fault::new(format!("cannot pickle {what}"), cause).hint(hint))
}
