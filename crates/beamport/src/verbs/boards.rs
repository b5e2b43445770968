//! `beamport boards`: simulated boards send what the UDP sources of an instrument file expect.

use super::{Answer, Asked, ended, json_line};
use crate::cli::Boards;
use crate::edges::Registry;
use crate::file::{self, Instrument};
use std::any::Any;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs the verb.
pub fn run(asked: &Boards, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    match file::read(&asked.file, registry, &file::unasked) {
        Ok(instrument) => ended(send(asked, &instrument, out), err),
        Err(mistakes) => {
            mistakes.iter().try_for_each(|mistake| writeln!(err, "{mistake}"))?;
            Ok(ExitCode::from(2))
        }
    }
}

fn send(asked: &Boards, instrument: &Instrument, out: &mut dyn Write) -> Answer {
    let plans: Vec<&udp::Plan> =
        instrument.sources().filter_map(|source| (&*source.plan as &dyn Any).downcast_ref()).collect();
    let stop = Asked::to_end()?;
    let truth = udp::send(&plans, asked.duration, &|| stop.yes())?;
    json_line(out, &truth)?;
    Ok(ExitCode::SUCCESS)
}
