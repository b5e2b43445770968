//! `beamport slot`: a process that works for a ready-made worker. `beamport up` starts it.

use super::{Process, exit_status};
use crate::edges::Registry;
use crate::log;
use crate::mover::slot;
use clap::Args;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

/// `beamport slot`
#[derive(Debug, Args)]
#[command(about = "A slot of a ready-made worker, started by `up`", hide = true)]
pub struct Slot {
    /// The mover's request, as JSON
    pub asked: String,
}

impl Process for Slot {
    fn execute(&self, registry: &Registry) -> ExitCode {
        log::begin(LevelFilter::WARN, None);
        exit_status(slot::run(&self.asked, registry).map(|()| ExitCode::SUCCESS))
    }
}
