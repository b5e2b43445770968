//! Errors as Python sees them: `beamport.Error` with what failed, its cause and a hint.

use flow::Fault;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::path::Path;

/// The exception of a fault.
pub(crate) fn error(py: Python<'_>, fault: Fault) -> PyErr {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(py, "beamport._errors", "Error");
    match class.and_then(|class| class.call1((fault.what, fault.cause, fault.hint))) {
        Ok(value) => PyErr::from_value(value),
        Err(broken) => broken,
    }
}

/// The exception for a name that is not there; it says which ones are, the nearest first.
pub(crate) fn missing(py: Python<'_>, what: &str, name: &str, there: Vec<String>) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "beamport._errors", "missing");
    match make.and_then(|make| make.call1((what, name, there))) {
        Ok(value) => PyErr::from_value(value),
        Err(broken) => broken,
    }
}

/// The exception for a file that this user may not use; it says whose it is.
fn denied(py: Python<'_>, what: &str, path: &Path) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "beamport._errors", "_denied");
    match make.and_then(|make| make.call1((what, path.as_os_str()))) {
        Ok(value) => PyErr::from_value(value),
        Err(broken) => broken,
    }
}

/// The exception of an error of the store.
pub(crate) fn of_store(py: Python<'_>, doing: &str, folder: &Path, cause: &store::Error) -> PyErr {
    let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let parent = folder.parent().unwrap_or(Path::new(".")).display();
    if let store::Error::Io { path, source, .. } = cause
        && source.kind() == std::io::ErrorKind::PermissionDenied
    {
        return denied(py, &format!("stream `{name}` cannot be {doing}"), path);
    }
    let hint = match cause {
        store::Error::Missing(_) => format!("list the streams with `beamport ls --data {parent}`"),
        store::Error::Headless(_) => "restore the file `stream` from a copy".to_owned(),
        store::Error::Elsewhere(_) => {
            "run this where its instrument runs, or give both containers one /dev/shm".to_owned()
        }
        store::Error::Corrupt { .. } | store::Error::Lost { .. } => {
            format!("list all damage with `beamport verify {name} --data {parent}`")
        }
        store::Error::Gone { first } => {
            format!("go on with the oldest message that is left: `start={first}`; to be waited for, run as a sink")
        }
        store::Error::Rewound { .. } => rewound(cause),
        store::Error::Taken { pid, .. } if *pid == std::process::id() => {
            "end the earlier reading with its `.close()`, or take another name".to_owned()
        }
        store::Error::Taken { .. } => "end that process, or use another name".to_owned(),
        store::Error::Behind { name: reader, pid: None, .. } => {
            format!("if this reader will not return: `beamport forget {name} '{reader}' --data {parent}`")
        }
        store::Error::Behind { .. } => format!("list the readers with `beamport ls --pins --data {parent}`"),
        store::Error::Quota { .. } => "release messages and views, or keep copies: `m[\"pixel_id\"].copy()`".to_owned(),
        store::Error::Parent { .. } => {
            format!("restore the parent: a view shows only what its parents have; see `beamport ls --data {parent}`")
        }
        store::Error::Locked(_) => "read it with `beamport.open`: a stream has one writer".to_owned(),
        store::Error::Format { path, .. } if path.ends_with("commit") => {
            format!("restore the record with `beamport verify {name} --repair --data {parent}`")
        }
        store::Error::ReadersFull => format!("list the readers with `beamport ls --pins --data {parent}`"),
        store::Error::Format { .. } => "read it with the version of beamport that wrote it, or a newer one".to_owned(),
        _ if cause.is_full() => "raise `live` of the stream in the instrument file".to_owned(),
        _ => String::new(),
    };
    error(py, Fault::new(format!("stream `{name}` cannot be {doing}"), cause).hint(hint))
}

/// The hint for what a recovery cut.
fn rewound(error: &store::Error) -> String {
    match error {
        store::Error::Rewound { epoch, end, .. } if *end != u64::MAX && *end > 0 => {
            format!("undo the results of the cut messages, then resume with `start=(stream.uuid, {epoch}, {end})`")
        }
        _ => "begin with `start=\"beginning\"`".to_owned(),
    }
}
