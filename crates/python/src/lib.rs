//! The Python module `beamport._core`: streams as numpy sees them. The package around it is in `python/beamport`.
//!
//! Constraints: nothing is copied on the way from stream memory to a numpy array, except where a name says so
//! (`concat`). Numpy is used through Python, so the module works with any numpy of its time. Waiting and searching
//! let other Python threads run.
//!
//! Failure behaviour: every error from outside is a `beamport.Error` with cause and hint. The bytes of a view never
//! change: the view pins its segment, and a pinned segment is never written again (decision 0002).

mod append;
mod batch;
mod block;
mod books;
mod codec;
mod cursor;
mod exclusive;
mod fault;
mod finder;
mod hooks;
mod iteration;
mod limits;
mod members;
mod memory;
mod message;
mod named;
mod numpy;
mod owned;
mod position;
mod reader_pool;
mod results;
mod stream;
mod time;
mod trial;
mod worker;
mod writer;
mod yielded;

use pyo3::prelude::*;

/// Version of the compiled module, and so of the package.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The compiled half of the package `beamport`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(version, module)?)?;
    module.add_function(wrap_pyfunction!(books::_runs, module)?)?;
    module.add_function(wrap_pyfunction!(books::_commits, module)?)?;
    module.add_function(wrap_pyfunction!(books::_account, module)?)?;
    module.add_function(wrap_pyfunction!(books::_stages, module)?)?;
    module.add_function(wrap_pyfunction!(codec::_wire_read, module)?)?;
    module.add_function(wrap_pyfunction!(codec::_wire_write, module)?)?;
    module.add_function(wrap_pyfunction!(codec::serialise_f144, module)?)?;
    module.add_function(wrap_pyfunction!(codec::serialise_ev44, module)?)?;
    module.add_function(wrap_pyfunction!(message::_message, module)?)?;
    module.add_function(wrap_pyfunction!(append::message, module)?)?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<iteration::Messages>()?;
    module.add_class::<iteration::Batches>()?;
    module.add_class::<memory::View>()?;
    module.add_class::<worker::PySlot>()?;
    module.add_class::<worker::PresentRun>()?;
    module.add_class::<trial::Trial>()?;
    module.add_class::<yielded::Yielded>()?;
    module.add_class::<append::Writer>()?;
    module.add_class::<writer::Writer>()
}
