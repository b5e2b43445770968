//! Positions: where reading begins, and the identity (uuid, epoch, sequence) of a place between two messages.
//!
//! A position is good for as long as the stream has it. One of another stream, of messages that a recovery cut or that
//! are gone is refused with the range that there is: nothing is passed over in silence.

use crate::fault;
use flow::Fault;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use std::path::Path;
use store::Header;

/// The next message to be read, named for ever: what Python has as `(uuid, epoch, sequence)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) uuid: [u8; 16],
    pub(crate) epoch: u32,
    pub(crate) sequence: u64,
}

/// Where reading begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The oldest message.
    Beginning,
    /// The next message to come.
    End,
    /// A sequence; negative = from the end.
    Sequence(i64),
    /// The first message with this source time or a later one.
    Time(i64),
    /// Where a reader was.
    Position(Position),
}

impl Position {
    /// As Python has it.
    pub(crate) fn tuple(&self) -> (String, u32, u64) {
        (store::hex(&self.uuid), self.epoch, self.sequence)
    }

    /// Of a tuple, or of a list as JSON makes it; none if it is something else.
    pub(crate) fn read(asked: &Bound<'_, PyAny>) -> Option<Self> {
        if !asked.is_instance_of::<PyTuple>() && !asked.is_instance_of::<PyList>() {
            return None;
        }
        let (uuid, epoch, sequence) = (asked.get_item(0).ok()?, asked.get_item(1).ok()?, asked.get_item(2).ok()?);
        if asked.len().ok()? != 3 {
            return None;
        }
        let (text, mut bytes) = (uuid.extract::<String>().ok()?, [0; 16]);
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Self { uuid: bytes, epoch: epoch.extract().ok()?, sequence: sequence.extract().ok()? })
    }

    /// Refuses a position that the stream does not have.
    pub(crate) fn check(&self, py: Python<'_>, folder: &Path, header: &Header, first: u64, end: u64) -> PyResult<()> {
        if self.uuid != header.uuid {
            let what = format!("stream `{}` has no such position", header.name);
            let cause = format!("it is of another stream: this one is {}", store::hex(&header.uuid));
            return Err(fault::error(py, Fault::new(what, cause).hint("begin with `start=\"beginning\"`")));
        }
        let within = header.check_identity(self.epoch, self.sequence);
        within.map_err(|e| fault::of_store(py, "read", folder, &e))?;
        if self.sequence < first {
            return Err(gone(py, header, self.sequence, first));
        }
        if self.sequence > end {
            let what = format!("stream `{}` has no such position", header.name);
            return Err(fault::error(py, Fault::new(what, format!("it ends at {end}, before {}", self.sequence))));
        }
        Ok(())
    }
}

impl From {
    /// Reads `start`; `time` reads a time as Python writes it.
    pub(crate) fn read(
        py: Python<'_>,
        asked: &Bound<'_, PyAny>,
        time: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<i64>,
    ) -> PyResult<Self> {
        if let Ok(sequence) = asked.extract::<i64>() {
            return Ok(Self::Sequence(sequence));
        }
        if asked.is_instance_of::<PyTuple>() || asked.is_instance_of::<PyList>() {
            return Position::read(asked).map(Self::Position).ok_or_else(|| no_position(py));
        }
        match asked.cast::<PyString>().map(|text| text.to_string()) {
            Ok(text) if text == "beginning" => Ok(Self::Beginning),
            Ok(text) if text == "end" => Ok(Self::End),
            _ => time(asked).map(Self::Time),
        }
    }
}

/// The error for something that is no position.
pub(crate) fn no_position(py: Python<'_>) -> PyErr {
    let cause = "a position is `(uuid, epoch, sequence)`, as `.position` of an iteration gives it";
    fault::error(py, Fault::new("invalid position", cause))
}

/// The error for messages from `wanted` on of which those below `first` are gone.
pub(crate) fn gone(py: Python<'_>, header: &Header, wanted: u64, first: u64) -> PyErr {
    let cause = format!("messages {wanted} to {first} (exclusive) are gone");
    let go_on = format!("to skip them: `start=(stream.uuid, {}, {first})`", header.epoch_of(first));
    let what = format!("cannot read stream `{}` from {wanted} on", header.name);
    fault::error(py, Fault::new(what, cause).hint(go_on))
}
