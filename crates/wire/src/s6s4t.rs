//! `6s4t`: stop of a run, as the ESS file writer is told. Absent strings read as empty.

use crate::Error;
use crate::flat::{Message, Writer};

/// The schema id.
pub const ID: [u8; 4] = *b"6s4t";

/// Stop of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunStop<'a> {
    /// Stop, **milliseconds** since 1970 UTC; 0 = now.
    pub stop_time: u64,
    /// Name of the run.
    pub run_name: &'a str,
    /// Id of the writing job that is to stop.
    pub job_id: &'a str,
    /// Which writer is meant; empty = any.
    pub service_id: &'a str,
    /// Id that the answer repeats.
    pub command_id: &'a str,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<RunStop<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    Ok(RunStop {
        stop_time: table.number(0, 0, "stop_time")?,
        run_name: table.text_or_empty(1, "run_name")?,
        job_id: table.text_or_empty(2, "job_id")?,
        service_id: table.text_or_empty(3, "service_id")?,
        command_id: table.text_or_empty(4, "command_id")?,
    })
}

/// Writes a message into `out`, replacing what was there. Every string is written: the Python library fails on
/// an absent `command_id`.
pub fn write(out: &mut Vec<u8>, parts: &RunStop<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [stop_time, run_name, job_id, service_id, command_id] = writer.root([8, 4, 4, 4, 4]);
    writer.put(stop_time, parts.stop_time);
    writer.text(run_name, parts.run_name);
    writer.text(job_id, parts.job_id);
    writer.text(service_id, parts.service_id);
    writer.text(command_id, parts.command_id);
    writer.finish()
}
