//! Services that take the place of those of ESS: `beamport ess writer` is the file writer `kafka-to-nexus`, and
//! `beamport ess forwarder` the forwarder (`forward`).
//!
//! The dialect (`options`, `command`, `plan`, `reply`) is pure functions over bytes and texts: flags and the ini file
//! become [`WriterOptions`], a message of the job pool or of a control topic becomes a [`Command`] or a [`Refusal`], a
//! job becomes an instrument file for `beamport up`, and its course becomes `answ`, `x5f2` and `wrdn`.
//!
//! Constraints: no data passes through this crate. A job is a process of its own, so that one that fails touches no
//! other, and can be looked at and repeated by hand.
//!
//! Only with the feature `client` does the crate speak to brokers.
//!
//! Failure behaviour: whatever bytes arrive, reading them returns a command, a refusal that lists every mistake, or
//! nothing where the message is of another schema.

#![forbid(unsafe_code)]

mod command;
mod forward;
#[cfg(feature = "client")]
mod job;
#[cfg(feature = "client")]
mod journal;
mod limits;
#[cfg(feature = "client")]
mod mover;
mod options;
mod plan;
mod reply;
#[cfg(feature = "client")]
mod service;
#[cfg(feature = "client")]
mod signals;

pub use command::{Command, Mistake, Refusal, StartJob, StopJob, read};
pub use forward::{Change, Pattern, Protocol, Schema, Stream, Streams, read_change};
pub use options::{FORWARDER_OPTIONS, ForwarderOptions, Given, Level, OPTIONS, Opt, Place, WriterOptions};
pub use plan::{Checked, JOB_FILE, JobFiles, Pins, STREAMS_FOLDER, TEMPLATE_FILE, check, environment, files, output};
pub use reply::{
    Answer, Begin, Dismissed, Lost, Service, Topic, Writing, Written, answer, refused, status, without_metadata,
    written,
};
pub use wire::answ::ActionType;

use flow::Fault;
use std::path::PathBuf;
use std::process::ExitCode;

/// The programs that the service starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// `beamport`, whose verb `up` runs a job.
    pub beamport: PathBuf,
    /// `beamport-nexus`, which reads templates.
    pub nexus: PathBuf,
}

/// Runs the file writer until a signal ends it.
///
/// # Errors
/// The fault that prevents the start.
pub fn writer(options: &WriterOptions, programs: &Programs) -> Result<ExitCode, Fault> {
    #[cfg(feature = "client")]
    return service::run(options, programs);
    #[cfg(not(feature = "client"))]
    let _ = (options, programs);
    #[cfg(not(feature = "client"))]
    Err(unbuilt("the file writer"))
}

/// Runs the forwarder until a signal ends it.
///
/// # Errors
/// The fault that prevents the start.
pub fn forwarder(options: &ForwarderOptions, programs: &Programs) -> Result<ExitCode, Fault> {
    #[cfg(feature = "client")]
    return forward::run(options, programs);
    #[cfg(not(feature = "client"))]
    let _ = (options, programs);
    #[cfg(not(feature = "client"))]
    Err(unbuilt("the forwarder"))
}

#[cfg(not(feature = "client"))]
fn unbuilt(service: &str) -> Fault {
    Fault::new(format!("{service} cannot start"), "this beamport was built without Kafka")
        .hint("`pip install .` builds it with Kafka, as does `cargo build` with `--features kafka`")
}
