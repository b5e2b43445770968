//! Numpy arrays over views, made by numpy itself.

use crate::memory::View;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use wire::DType;

/// A read-only array over the bytes of a view; no copy.
pub(crate) fn array<'py>(
    py: Python<'py>,
    view: View,
    shape: &[usize],
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let ndarray = NDARRAY.import(py, "numpy", "ndarray")?;
    ndarray.call1((PyTuple::new(py, shape)?, dtype, Bound::new(py, view)?))
}

/// The numpy type of a wire type; text is bytes.
pub(crate) fn dtype(py: Python<'_>, dtype: DType) -> PyResult<&Bound<'_, PyAny>> {
    static KNOWN: [PyOnceLock<Py<PyAny>>; DType::ALL.len()] = [const { PyOnceLock::new() }; DType::ALL.len()];
    let name = if dtype == DType::Text { "uint8" } else { dtype.name() };
    let known = KNOWN[dtype as usize].get_or_try_init(py, || -> PyResult<_> {
        Ok(py.import("numpy")?.getattr("dtype")?.call1((name,))?.unbind())
    })?;
    Ok(known.bind(py))
}

/// The numpy type of an index entry: 64 bytes, as in `docs/reference/stream-format.md`.
pub(crate) fn entry_dtype(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static KNOWN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let known = KNOWN.get_or_try_init(py, || -> PyResult<_> {
        let columns = [
            ("source_time", "<i8", 0),
            ("arrival_time", "<i8", 8),
            ("origin_seq", "<u8", 16),
            ("origin", "<u4", 32),
            ("schema", "S4", 36),
            ("length", "<u4", 48),
            ("flags", "<u2", 56),
        ];
        let fields = PyDict::new(py);
        fields.set_item("names", columns.map(|c| c.0))?;
        fields.set_item("formats", columns.map(|c| c.1))?;
        fields.set_item("offsets", columns.map(|c| c.2))?;
        fields.set_item("itemsize", store::ENTRY_BYTES)?;
        Ok(py.import("numpy")?.getattr("dtype")?.call1((fields,))?.unbind())
    })?;
    Ok(known.bind(py))
}
