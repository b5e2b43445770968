//! Runs and the ledger, as `flow` derives them from the streams: for `beamport.Run`.

use crate::fault;
use flow::{Data, Fault};
use pyo3::prelude::*;
use std::path::PathBuf;

fn json<T>(py: Python<'_>, result: Result<T, Fault>) -> PyResult<String>
where
    T: serde::Serialize,
{
    let text = result
        .and_then(|value| serde_json::to_string(&value).map_err(|e| Fault::new("this cannot be written as JSON", e)));
    text.map_err(|fault| fault::error(py, fault))
}

/// All runs of a folder, oldest first, as JSON.
#[pyfunction]
pub(crate) fn _runs(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let runs = py.detach(|| flow::runs::runs(&Data::on_disk(folder)));
    json(py, runs)
}

/// The newest commit of a stage for a run: its state (JSON text) and whether it is the last.
#[pyfunction]
pub(crate) fn _commit(py: Python<'_>, folder: PathBuf, stage: &str, run: &str) -> PyResult<Option<(String, bool)>> {
    let commit = py.detach(|| flow::last_commit(&Data::on_disk(folder), stage, run));
    let commit = commit.map_err(|fault| fault::error(py, fault))?;
    Ok(commit.map(|commit| (commit.state, commit.finished)))
}

/// The account of a run over these sinks, as JSON.
#[pyfunction]
pub(crate) fn _account(py: Python<'_>, folder: PathBuf, run: &str, sinks: Vec<String>) -> PyResult<String> {
    let account = py.detach(|| flow::ledger::account(&Data::on_disk(folder), run, &sinks));
    json(py, account)
}
