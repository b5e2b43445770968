//! `beamport-bench`: this machine against its own limits. `bench/README.md` says how figures are stated.
//!
//! Constraints: limit and product run in turn within each round, on destinations larger than the caches; what is
//! written is removed. A missed figure is an answer, not an error.

mod broker;
mod cli;
mod epics;
mod forwarder;
mod frames;
mod hosts;
mod jobs;
mod kafka;
mod limit;
mod marks;
mod measure;
mod merge;
mod nexus;
mod peers;
mod pixels;
mod place;
// The rule of tests, without the crate that helps tests.
#[path = "../../testkit/src/ports.rs"]
#[allow(unreachable_pub, reason = "it is public where the tests have it")]
mod ports;
mod reading;
mod served;
mod sizes;
mod store;
mod sweep;
mod udp;
mod view;
mod waiting;
mod web;
mod wire;
mod writers;

use clap::Parser as _;
use cli::Asked;
use flow::Fault;
use measure::Figure;
use place::Machine;
use serde_json::json;
use sizes::Sizes;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let asked = Asked::parse();
    match run(&asked, &mut io::stdout().lock(), &mut io::stderr()) {
        Ok(status) => status,
        // The reader of the report has seen enough (`beamport-bench | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let fault = Fault::new("the report cannot be printed", error).hint("look at what stdout leads to");
            let _ = writeln!(io::stderr(), "{fault}");
            ExitCode::from(2)
        }
    }
}

/// Runs what was asked for: figures to `out`, progress to `err`.
///
/// # Errors
/// Only those of writing; what goes wrong in a measurement is printed, with exit status 2. A missed must is status 1
/// with `--strict` and 0 without.
fn run(asked: &Asked, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    // The other process of a row is this program, started with a variable in its environment.
    let other = match (reading::asked(), waiting::asked()) {
        (Some(stream), _) => Some(reading::read(stream.as_ref())),
        (None, Some(folder)) => Some(waiting::serve(folder.as_ref())),
        (None, None) => None,
    };
    if let Some(done) = other {
        return match done {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(fault) => writeln!(err, "{fault}").map(|()| ExitCode::from(2)),
        };
    }
    match figures(asked, err) {
        Ok((machine, figures)) => report(asked, &machine, &figures, out, err),
        Err(fault) => writeln!(err, "{fault}").map(|()| ExitCode::from(2)),
    }
}

fn figures(asked: &Asked, err: &mut dyn Write) -> Result<(Machine, Vec<Figure>), Fault> {
    let sizes = if asked.quick { Sizes::quick() } else { Sizes::full() };
    let rounds = if asked.quick { asked.rounds.min(3) } else { asked.rounds };
    let wanted = |name: &str| asked.names.is_empty() || asked.names.iter().any(|n| n == name);
    let machine = Machine::detect();
    let mut figures = Vec::new();
    let mut tell = |figure: &Figure| drop(writeln!(err, "measured: {}", figure.name));
    if wanted("store") {
        figures.extend(store::run(&sizes, rounds, &mut tell)?);
    }
    if wanted("merge") {
        figures.extend(merge::run(&sizes, rounds, &mut tell)?);
    }
    if wanted("nexus") {
        figures.extend(nexus::run(&sizes, rounds, &mut tell)?);
    }
    // Needs the other package: by name alone.
    if asked.names.iter().any(|name| name == "wire") {
        figures.extend(wire::run(asked.quick, rounds, &mut tell)?);
    }
    // Its other side is large, and looks for its rate: by name alone.
    if asked.names.iter().any(|name| name == "frames") {
        figures.extend(frames::run(asked.quick, rounds, &mut tell)?);
    }
    // Needs Apache Kafka, Java and a C compiler: by name alone.
    if asked.names.iter().any(|name| name == "kafka") {
        let bytes = asked.bytes.unwrap_or(if asked.quick { kafka::QUICK_BYTES } else { kafka::BYTES });
        figures.extend(kafka::run(asked.brokers.as_deref(), bytes, rounds, &mut tell)?);
    }
    // The same, and minutes of a round each.
    if asked.names.iter().any(|name| name == "kafka-jobs") {
        figures.extend(jobs::run(asked.brokers.as_deref(), asked.quick, rounds, &mut tell)?);
    }
    // The same with two movers.
    if asked.names.iter().any(|name| name == "hosts") {
        figures.extend(hosts::run(asked.brokers.as_deref(), asked.quick, rounds, &mut tell)?);
    }
    // Needs the libraries of EPICS, a compiler of C++ and an IOC: by name alone.
    if asked.names.iter().any(|name| name == "epics") {
        figures.extend(epics::run(asked.quick, rounds, &mut tell)?);
    }
    // The same with Kafka and Python.
    if asked.names.iter().any(|name| name == "epics-kafka") {
        figures.extend(forwarder::run(asked.brokers.as_deref(), asked.quick, rounds, &mut tell)?);
    }
    // Some GiB of shared memory: by name alone.
    if asked.names.iter().any(|name| name == "udp") {
        figures.extend(udp::run(asked.quick, rounds, &mut tell)?);
    }
    // Starts Python, and fills a GiB of shared memory: by name alone.
    if asked.names.iter().any(|name| name == "web") {
        figures.extend(web::run(asked.quick, rounds, &mut tell)?);
    }
    // Many files of one after the other: by name alone too.
    if asked.names.iter().any(|name| name == "sweep") {
        figures.extend(sweep::run(asked.quick, rounds, asked.output.as_deref(), &mut tell)?);
    }
    Ok((machine, figures))
}

fn report(
    asked: &Asked,
    machine: &Machine,
    figures: &[Figure],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<ExitCode> {
    let rounds = figures.first().map_or(0, |f| f.values().len());
    let value = json!({
        "machine": machine.json(),
        "rounds": rounds,
        "quick": asked.quick,
        "version": env!("CARGO_PKG_VERSION"),
        "figures": figures.iter().map(Figure::json).collect::<Vec<_>>(),
    });
    if let Some(path) = &asked.output
        && let Err(error) = std::fs::write(path, format!("{value:#}\n"))
    {
        writeln!(err, "{}", Fault::new(format!("bench: cannot write {}", path.display()), error))?;
        return Ok(ExitCode::from(2));
    }
    if asked.json {
        writeln!(out, "{value:#}")?;
    } else {
        writeln!(out, "median of {rounds} alternating rounds (smallest..largest)\n{}\n", machine.text())?;
        for figure in figures {
            writeln!(out, "{}", figure.text())?;
        }
        if asked.quick {
            writeln!(out, "--quick: too short to mean anything")?;
        }
    }
    // With `--strict`, a ratio below its `must` is a failure.
    let missed = asked.strict && !figures.iter().all(Figure::reaches_must);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
