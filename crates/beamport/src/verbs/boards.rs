//! `beamport boards`: simulated boards send what the UDP sources of an instrument file expect.

use super::{Answer, Asked, Verb, ended, json_line};
use crate::arguments::values;
use crate::edges::Registry;
use crate::file::{self, Instrument};
use crate::peer;
use clap::Args;
use flow::Data;
use std::any::Any;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// `beamport boards`
#[derive(Debug, Args)]
#[command(
    about = "Send what the boards of an instrument's UDP sources would send; prints what they did as JSON",
    after_help = "Examples:\n  beamport boards greta.toml --duration '10 s'"
)]
pub struct Boards {
    /// Instrument file; its sources with a table `boards` are simulated
    pub file: PathBuf,
    /// The boards of one host of the file [default: all]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// How long they send [default: their key `duration`, else until Ctrl-C]
    #[arg(long, value_parser = values::length)]
    pub duration: Option<Duration>,
    /// The process that started it: it dies with it
    #[arg(long, hide = true)]
    pub parent: Option<u32>,
}

impl Verb for Boards {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        match file::read(&self.file, registry, &file::unasked) {
            Ok(instrument) => ended(send(self, instrument, out), err),
            Err(mistakes) => {
                mistakes.iter().try_for_each(|mistake| writeln!(err, "{mistake}"))?;
                Ok(ExitCode::from(2))
            }
        }
    }
}

fn send(asked: &Boards, instrument: Instrument, out: &mut dyn Write) -> Answer {
    let instrument = match &asked.host {
        Some(host) => instrument.part(host)?,
        None => instrument,
    };
    let stop = match asked.parent {
        Some(parent) => peer::die_with(parent).and_then(|()| Asked::by_parent())?,
        None => Asked::to_end()?,
    };
    let data = Data::on_disk(&*instrument.data);
    let truth = udp::send(&plans(&instrument), &data, asked.duration, &|| stop.yes())?;
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
