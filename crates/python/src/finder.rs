//! A finder of groups in Python: a function that is shown what is pending and says which of it are groups.
//!
//! Constraints: the arrays that it sees are copies, and read-only: it may keep them. Its answers are checked.
//!
//! Failure behaviour: an exception of it, or an invalid answer, ends the slot with that exception; the worker's
//! supervisor starts another, until the code is fixed. No message is left out: the groups behind would be others.

use crate::fault;
use flow::{Data, Fault, Outputs, Stop, Waiting};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyBytes};
use std::sync::{Arc, Mutex, PoisonError};
use workers::{Finder, Found, Grouping, Pending};

/// The last exception of user code.
type Raised = Arc<Mutex<Option<PyErr>>>;

/// Groups that user code finds.
pub(crate) struct Finding {
    data: Data,
    stage: String,
    input: String,
    make: Py<PyAny>,
    known: Option<String>,
    grouping: Option<Grouping>,
    raised: Raised,
}

impl Finding {
    pub(crate) fn new(data: &Data, stage: &str, input: &str, make: Py<PyAny>) -> Self {
        let (stage, input) = (stage.to_owned(), input.to_owned());
        Self { data: data.clone(), stage, input, make, known: None, grouping: None, raised: Raised::default() }
    }

    /// The exception that ends the slot, for the caller.
    pub(crate) fn raised(&mut self, py: Python<'_>, fault: Fault) -> PyErr {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        raised.unwrap_or_else(|| fault::error(py, fault))
    }
}

impl flow::Worker for Finding {
    fn work(&mut self, batch: &store::Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        match &mut self.grouping {
            Some(grouping) => grouping.work(batch, out),
            None => Err(Fault::new(format!("worker `{}` got no parameters", self.stage), "").into()),
        }
    }

    fn pass_time(&mut self, time: i64, out: &mut Outputs<'_>) -> Result<(), Stop> {
        self.grouping.as_mut().map_or(Ok(()), |grouping| grouping.pass_time(time, out))
    }

    fn configure(&mut self, parameters: &str) -> Result<(), Fault> {
        if self.known.as_deref() == Some(parameters) {
            return Ok(());
        }
        let made =
            Python::attach(|py| self.make.call1(py, (parameters,))?.extract::<(Py<PyAny>, u64, Option<i64>)>(py));
        let (call, every, wait) = made.map_err(|raised| {
            let fault = Fault::new(format!("worker `{}` rejects its parameters", self.stage), &raised);
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
            fault
        })?;
        let finder = Box::new(Calling { stage: self.stage.clone(), call, every, wait, raised: self.raised.clone() });
        let parsed: serde_json::Value = serde_json::from_str(parameters).unwrap_or_default();
        self.grouping = Some(Grouping::with(&self.data, &self.stage, &self.input, &parsed, finder)?);
        self.known = Some(parameters.to_owned());
        Ok(())
    }

    fn keeps(&self) -> bool {
        true
    }

    fn rest(&mut self) {
        if let Some(grouping) = &mut self.grouping {
            grouping.rest();
        }
    }

    fn looks_at_payloads(&self) -> bool {
        self.grouping.as_ref().is_none_or(flow::Worker::looks_at_payloads)
    }

    fn statistics(&mut self) -> String {
        self.grouping.as_mut().map_or_else(String::new, flow::Worker::statistics)
    }
}

/// A function as a finder.
struct Calling {
    stage: String,
    call: Py<PyAny>,
    every: u64,
    /// How long after the oldest message it is called without one, ns.
    wait: Option<i64>,
    raised: Raised,
}

impl Calling {
    /// Calls it, at a message or at the time up to which the input is complete. The result is checked, and entered.
    fn call(&self, complete_to: Option<i64>, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        Python::attach(|py| self.called(py, complete_to, pending, found)).map_err(|raised| {
            let fault = Fault::new(format!("the finder of worker `{}` fails", self.stage), &raised);
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(raised);
            fault
        })
    }

    fn called(
        &self,
        py: Python<'_>,
        complete_to: Option<i64>,
        pending: Pending<'_>,
        found: &mut Found,
    ) -> PyResult<usize> {
        let frombuffer = py.import("numpy")?.getattr("frombuffer")?;
        let array = |bytes: &[u8], dtype: &str| frombuffer.call1((PyBytes::new(py, bytes), dtype));
        let times = array(bytemuck::cast_slice(pending.times), "int64")?;
        let members = array(bytemuck::cast_slice(pending.members), "uint32")?;
        let numbers = array(bytemuck::cast_slice(pending.numbers), "uint64")?;
        let words = complete_to.map(|time| [("complete_to", time)].into_py_dict(py)).transpose()?;
        let answer = self.call.bind(py).call((times, members, numbers), words.as_ref());
        store::end_if_forked();
        let answer = answer?;
        let (groups, done): (Vec<(usize, usize)>, usize) = answer.extract().map_err(|_| {
            let text = answer.repr().map(|text| text.to_string()).unwrap_or_default();
            let text: String = text.chars().take(200).collect();
            PyTypeError::new_err(format!(
                "a finder answered {text}; it returns `(groups, done)`: a list of (first, count), and how many of the \
                 oldest pending messages are done with"
            ))
        })?;
        if done > pending.len() {
            let told = format!("a finder is done with {done} messages of {}", pending.len());
            return Err(PyValueError::new_err(told));
        }
        for (first, count) in groups {
            // What is pending is shown again: a group of it would be found again.
            if count == 0 || first.checked_add(count).is_none_or(|end| end > done) {
                let told = format!(
                    "a finder found a group of {count} messages from {first} on, and is done with {done}: a group has \
                     messages, and they are done with it"
                );
                return Err(PyValueError::new_err(told));
            }
            found.row(first, count);
        }
        Ok(done)
    }
}

impl Finder for Calling {
    fn find(&mut self, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        self.call(None, pending, found)
    }

    fn pass_time(&mut self, time: i64, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        match self.wait {
            _ if time == i64::MAX => Ok(self.cut(pending, found)),
            Some(_) => self.call(Some(time), pending, found),
            None => Ok(0),
        }
    }

    fn waiting(&self, pending: Pending<'_>) -> Waiting {
        let oldest = pending.oldest();
        let due = self.wait.map_or(i64::MAX, |wait| oldest.saturating_add(wait).saturating_add(1));
        Waiting { messages: pending.len() as u64, oldest, due }
    }

    fn every(&self) -> u64 {
        self.every
    }
}
