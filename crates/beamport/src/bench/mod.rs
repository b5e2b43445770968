//! `beamport bench`: this machine against its own limits. `bench/README.md` says how figures are stated.
//!
//! Constraints: limit and product run in turn within each round, on destinations larger than the caches; what is
//! written is removed. A missed figure is an answer, not an error.

mod frames;
mod limit;
mod marks;
mod measure;
mod merge;
mod nexus;
mod place;
mod reading;
mod store;
mod sweep;
mod view;
mod waiting;
mod wire;

use crate::cli;
use flow::Fault;
use measure::Figure;
use place::{Machine, free_memory_bytes, last_cache_bytes};
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;

/// How much each row moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Memory streams and the rings of their limits.
    pub(crate) ring_bytes: u64,
    /// Bytes of one round of the append rows.
    pub(crate) round_bytes: u64,
    /// Messages of one round of 100 B.
    pub(crate) small_messages: u64,
    /// Bytes of files that the disk stream and each of its limits turn in.
    pub(crate) disk_bytes: u64,
    /// Bytes of one round on the disk.
    pub(crate) disk_round_bytes: u64,
    /// Live ring of the disk stream.
    pub(crate) live_bytes: u64,
    /// Messages that the other process reads.
    pub(crate) read_messages: u64,
    /// Messages of a round that are committed one by one.
    pub(crate) commits: u64,
    /// Round trips of a round between two processes.
    pub(crate) hops: u64,
    /// Events of one file.
    pub(crate) nexus_events: u64,
}

impl Sizes {
    /// Figures that count: rounds of a tenth of a second at least, everything larger than the caches.
    fn full() -> Self {
        let cache = last_cache_bytes();
        // An index a fifth larger than the last cache, if the payloads take no more than half of the memory.
        let index_larger = cache / 64 * 6 / 5;
        let fits = free_memory_bytes() / 2 / 8960;
        Self {
            ring_bytes: (8 * cache).next_multiple_of(512 << 20).max(1 << 30),
            round_bytes: 3 << 30,
            small_messages: 20_000_000,
            disk_bytes: 2 << 30,
            disk_round_bytes: 2 << 30,
            live_bytes: 512 << 20,
            read_messages: index_larger.min(fits).max(10_000),
            commits: 500,
            hops: 20_000,
            nexus_events: 60_000_000,
        }
    }

    /// To see that it works.
    fn quick() -> Self {
        Self {
            ring_bytes: 512 << 20,
            round_bytes: 256 << 20,
            small_messages: 1_000_000,
            disk_bytes: 256 << 20,
            disk_round_bytes: 128 << 20,
            live_bytes: 128 << 20,
            read_messages: 20_000,
            commits: 50,
            hops: 500,
            nexus_events: 1_000_000,
        }
    }
}

/// Runs what was asked for: figures to `out`, progress to `err`.
///
/// # Errors
/// Only those of writing; what goes wrong in a measurement is printed, with exit status 2. A missed must is status 1
/// with `--strict` and 0 without.
pub fn run(asked: &cli::Bench, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    if let Some(stream) = reading::asked() {
        return match reading::read(stream.as_ref()) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(fault) => writeln!(err, "{fault}").map(|()| ExitCode::from(2)),
        };
    }
    if let Some(folder) = waiting::asked() {
        return match waiting::serve(folder.as_ref()) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(fault) => writeln!(err, "{fault}").map(|()| ExitCode::from(2)),
        };
    }
    match figures(asked, err) {
        Ok((machine, figures)) => report(asked, &machine, &figures, out, err),
        Err(fault) => writeln!(err, "{fault}").map(|()| ExitCode::from(2)),
    }
}

fn figures(asked: &cli::Bench, err: &mut dyn Write) -> Result<(Machine, Vec<Figure>), Fault> {
    let sizes = if asked.quick { Sizes::quick() } else { Sizes::full() };
    let rounds = if asked.quick { asked.rounds.min(3) } else { asked.rounds };
    let wanted = |name: &str| asked.names.is_empty() || asked.names.iter().any(|n| n == name);
    let machine = Machine::look();
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
    // Many files of one after the other: by name alone too.
    if asked.names.iter().any(|name| name == "sweep") {
        figures.extend(sweep::run(asked.quick, rounds, asked.output.as_deref(), &mut tell)?);
    }
    Ok((machine, figures))
}

fn report(
    asked: &cli::Bench,
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
    if asked.form.json {
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
    // Asked, and the answer is no.
    let missed = asked.strict && !figures.iter().all(Figure::reaches_must);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
