//! `beamport boards`: simulated boards send what the UDP sources of an instrument file expect.

use super::{Answer, Asked, ended, json_line};
use crate::cli::Boards;
use crate::edges::Registry;
use crate::file::{self, Instrument};
use crate::peer;
use flow::Data;
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
    let stop = match asked.parent {
        Some(parent) => peer::die_with(parent).and_then(|()| Asked::by_parent())?,
        None => Asked::to_end()?,
    };
    let data = Data::on_disk(&*instrument.data);
    let truth = udp::send(&plans(instrument), &data, asked.duration, &|| stop.yes())?;
    json_line(out, &truth)?;
    Ok(ExitCode::SUCCESS)
}

/// The plans of UDP sources, with their receivers.
pub(crate) fn plans(instrument: &Instrument) -> Vec<(&str, &udp::Plan)> {
    instrument
        .sources()
        .filter_map(|source| {
            let plan = (&*source.plan as &dyn Any).downcast_ref()?;
            Some((source.receiver.as_ref().map_or(&*source.name, |receiver| &*receiver.value), plan))
        })
        .collect()
}
