//! Times as people write them, by `beamport._when`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// A time as Python writes it, in ns since 1970 UTC.
pub(crate) fn nanoseconds(py: Python<'_>, asked: &Bound<'_, PyAny>, word: &str, now: i64) -> PyResult<i64> {
    static READ: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    READ.import(py, "beamport._when", "nanoseconds")?.call1((asked, word, now))?.extract()
}
