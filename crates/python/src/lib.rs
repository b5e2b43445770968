//! The Python module `beamport._core`: streams as numpy sees them. The package around it is in `python/beamport`.

use pyo3::prelude::*;

/// Version of the compiled module; the package refuses a module of another version.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The compiled half of the package `beamport`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(version, module)?)
}
