//! Runs and the ledger, as `flow` derives them from the streams: for `beamport.Run`.

use crate::fault;
use flow::{Data, Fault};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn json<T>(py: Python<'_>, result: Result<T, Fault>) -> PyResult<String>
where
    T: serde::Serialize,
{
    let text =
        result.and_then(|value| serde_json::to_string(&value).map_err(|e| Fault::new("cannot write this as JSON", e)));
    text.map_err(|fault| fault::error(py, fault))
}

/// All runs of a folder, oldest first, as JSON.
#[pyfunction]
pub(crate) fn _runs(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let runs = py.detach(|| flow::runs::runs(&Data::on_disk(folder)));
    json(py, runs)
}

/// The newest commit of each sink for a run, by name: its state (JSON text) and whether it is the last.
#[pyfunction]
pub(crate) fn _commits(py: Python<'_>, folder: PathBuf, run: &str) -> PyResult<BTreeMap<String, (String, bool)>> {
    let all = py.detach(|| flow::commits::last_commits(&Data::on_disk(folder)));
    let of_run = all.map_err(|fault| fault::error(py, fault))?.remove(run).unwrap_or_default();
    Ok(of_run.into_iter().map(|(sink, commit)| (sink, (commit.state, commit.finished))).collect())
}

/// The accounts of all merges and workers of a folder, as JSON.
#[pyfunction]
pub(crate) fn _stages(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let rows = py.detach(|| flow::ledger::stages(&Data::on_disk(folder)));
    json(py, rows)
}

/// The account of a run over these sinks, as JSON.
#[pyfunction]
pub(crate) fn _account(py: Python<'_>, folder: PathBuf, run: &str, sinks: Vec<String>) -> PyResult<String> {
    let account = py.detach(|| flow::ledger::account(&Data::on_disk(folder), run, &sinks));
    json(py, account)
}
