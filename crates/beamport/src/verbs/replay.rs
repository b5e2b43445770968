//! `beamport replay`: plays the streams of a sealed run into another data folder and records the run there.
//!
//! Messages keep their source times, numbers, origins and bytes. At the end both runs are read whole and compared by
//! one hash a stream ([`super::members::hash`]); the exit status is 1 where they differ. Streams without a clock of
//! their own belong to a run by arrival, and they arrive anew: they cannot hold the same members, and the report says so.
//! With `--through` it is another thing: [`super::through`].

use super::figures::{bytes, span, thousands};
use super::members::{self, Members};
use super::table::Table;
use super::verify::Progress;
use super::{Answer, Asked, Verb, ended, json_line, open, through};
use crate::arguments::{DataFolder, Form, values};
use crate::edges::{self, Registry, Speed};
use clap::Args;
use flow::records::Run;
use flow::{Data, Fault, Intake, IntakeOptions, RunKeeper, Source, Step, StreamView};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::{Clock, Level, Options};
use wire::bprn::State;

/// Longest pause between two looks at the streams.
const NAP: Duration = Duration::from_millis(20);
/// How long the seal may take: two messages of the stream of runs, each waited for on disk.
const SEAL: Duration = Duration::from_secs(60);
/// Least live end: room for several of the largest common messages (124 kB).
const LIVE_BYTES: u64 = 8 << 20;
/// A source time further ahead than this, ns, is flagged again: the default of the instrument file, 10 min.
pub(super) const AHEAD_MAX: i64 = 600_000_000_000;

/// One stream of the report.
#[derive(Debug, Serialize)]
struct Row {
    stream: String,
    messages: u64,
    bytes: u64,
    sha256: String,
    again_messages: u64,
    again_sha256: String,
    by_arrival: bool,
    same: bool,
}

/// `beamport replay`
#[derive(Debug, Args)]
#[command(
    about = "Replay the streams of a run into another data folder, or one stream through code",
    after_help = "Examples:\n\
                  \x20 beamport replay nickel-2 --into /tmp/again --speed max\n\
                  \x20 beamport replay nickel-2 --through mine.py:mean --speed max scale=2\n\
                  \x20 beamport replay nickel-2 --through mean --file amor.toml --into /tmp/means"
)]
pub struct Replay {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// Data folder for the streams, which it must not hold yet; with `--through` it keeps the output
    #[arg(long, value_name = "DIR", required_unless_present = "through")]
    pub into: Option<PathBuf>,
    /// Code to run: FILE.py:NAME, PACKAGE.MODULE:NAME, a ready-made worker, or a worker of `--file`
    #[arg(long, value_name = "CODE")]
    pub through: Option<String>,
    /// Input of the code [default: the worker's input, or the only stream]
    #[arg(long, value_name = "STREAM", requires = "through")]
    pub input: Option<String>,
    /// Instrument file with the worker that `--through` names
    #[arg(long, value_name = "FILE", requires = "through")]
    pub file: Option<PathBuf>,
    /// Number of slots [default: that of the instrument file, or 1]
    #[arg(long, value_name = "NUMBER", requires = "through")]
    pub slots: Option<u32>,
    /// Parameters of the code; a value is JSON, else text
    #[arg(value_name = "NAME=VALUE", value_parser = values::parameter, requires = "through")]
    pub parameters: Vec<(String, serde_json::Value)>,
    /// Speed: 1x as recorded, 10x ten times faster, max as fast as possible
    #[arg(long, value_name = "SPEED", default_value = "1x")]
    pub speed: Speed,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Replay {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(replay(self, registry, out, err), err)
    }
}

fn replay(asked: &Replay, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let from = open(&asked.data)?;
    let Some(folder) = asked.into.as_ref().filter(|_| asked.through.is_none()) else {
        return through::run(asked, registry, &from, out, err);
    };
    let run = members::sealed(&from, &asked.run, "replay")?;
    let all = members::all(&from, &run)?;
    members::refuse_missing(&from, &run, "replay")?;
    members::refuse_gone(&run.name, "replay", &all)?;
    members::refuse_cut(&run.name, "replay", &all)?;
    let into = Data::on_disk(folder);
    refuse_present(&into, &run)?;
    std::fs::create_dir_all(folder)
        .map_err(|e| Fault::new(format!("cannot create folder `{}`", folder.display()), e))?;
    let signals = Asked::to_end()?;
    let began = Instant::now();
    let again = play(asked, (&from, &into), &run, &all, &signals, err)?;
    let took = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let rows = compare((&from, &run), (&into, &again), &all, err)?;
    let same = rows.iter().all(|r| r.same);
    if asked.form.json {
        let report = serde_json::json!({"run": run.name, "into": folder.display().to_string(), "state": again.state.name(),
            "start": again.start, "stop": again.stop, "took_ns": took, "same": same, "streams": rows});
        json_line(out, &report)?;
    } else {
        write!(out, "{}", text(&rows))?;
        let verdict = if same { "both have the same members" } else { "their members DIFFER" };
        writeln!(
            out,
            "\nrun `{}` is {} in {} after {}: {verdict}",
            run.name,
            again.state.name(),
            folder.display(),
            span(took)
        )?;
    }
    Ok(ExitCode::from(u8::from(!same)))
}

/// A run or stream of the same name in the way is never added to.
fn refuse_present(into: &Data, run: &Run) -> Result<(), Fault> {
    let present = into.streams(true)?;
    let what = format!("cannot play run `{}` into {}", run.name, into.folder.display());
    if let Some(stream) = members::streams(run).into_iter().find(|s| present.contains(s)) {
        return Err(
            Fault::new(what, format!("stream `{stream}` already exists")).hint("name a new folder with `--into DIR`")
        );
    }
    if flow::runs::runs(into)?.iter().any(|r| r.name == run.name) {
        return Err(Fault::new(what, "a run of that name already exists").hint("name a new folder with `--into DIR`"));
    }
    Ok(())
}

/// How the new stream is kept: on disk, so that nothing of the run is ever taken away; in memory where the folder is.
fn options(from: &Data, into: &Data, members: &Members) -> Result<IntakeOptions, Fault> {
    let reader = from.reader_early(&members.stream)?;
    let header = reader.header();
    let (level, live_bytes) = if into.media.in_memory(&into.folder) {
        // Twice what the messages and their index need: segments are not filled to the last byte.
        (Level::Memory, LIVE_BYTES + 2 * (members.bytes + 128 * members.messages))
    } else {
        (Level::Disk, (header.segment_bytes * 8).max(LIVE_BYTES))
    };
    let stream = Options { level, clock: header.clock, ..Options::memory(live_bytes) };
    Ok(IntakeOptions { stream, ahead_max: AHEAD_MAX })
}

/// A recorded stream as a source.
pub(super) fn source(from: &Data, run: &str, stream: &str, speed: Speed) -> Box<dyn Source> {
    Box::new(edges::Replay::new(from.folder.clone(), run.to_owned(), stream.to_owned(), speed))
}

/// Plays all streams side by side until each has ended and is marked, then records the run and seals it.
fn play(
    asked: &Replay,
    (from, into): (&Data, &Data),
    run: &Run,
    all: &[Members],
    signals: &Asked,
    err: &mut dyn Write,
) -> Result<Run, Fault> {
    let now = || from.media.now();
    let mut intakes = Vec::new();
    for members in all {
        let source = source(from, &run.name, &members.stream, asked.speed);
        intakes.push(Intake::start(into, &members.stream, source, &options(from, into, members)?, now())?);
    }
    let of = all.iter().map(|m| m.messages).sum();
    let mut progress = Progress::new();
    loop {
        let mut pause = Duration::MAX;
        for intake in intakes.iter_mut().filter(|i| !(i.ended() && i.marked())) {
            pause = pause.min(match intake.step(now())? {
                Step::Again => Duration::ZERO,
                Step::At(when) => Duration::from_nanos(when.saturating_sub(now()).max(0) as u64),
                Step::Ended => Duration::from_millis(1),
            });
            if let Some(fault) = intake.trouble() {
                return Err(fault);
            }
        }
        progress.draw(err, &run.name, intakes.iter_mut().map(|i| i.writer().next_sequence()).sum(), of);
        if intakes.iter().all(|i| i.ended() && i.marked()) {
            break;
        }
        if signals.yes() {
            progress.clear(err);
            return Err(Fault::new(format!("run `{}` is not replayed", run.name), "interrupted")
                .hint(format!("remove {} before you try again", into.folder.display())));
        }
        std::thread::sleep(pause.min(NAP));
    }
    progress.clear(err);
    record(into, run, &intakes.iter().map(StreamView::from).collect::<Vec<_>>())
}

/// Writes the run down as it was. What was played arrived now, long behind its stop: it settles until now.
fn record(into: &Data, run: &Run, views: &[StreamView]) -> Result<Run, Fault> {
    let now = into.media.now().max(run.stop);
    let settle = now.saturating_sub(run.stop).max(run.settle).max(0) as u64;
    let mut keeper = RunKeeper::open(into)?;
    keeper.set_instrument(&run.instrument);
    keeper.begin(&run.name, run.start, run.stops(), Duration::from_nanos(settle), &run.metadata, now)?;
    keeper.end(&run.name, run.stops(), &run.reason, now)?;
    seal(&mut keeper, &run.name, views, now)
}

/// Seals a run that has ended, with what the streams have.
pub(super) fn seal(keeper: &mut RunKeeper, name: &str, views: &[StreamView], now: i64) -> Result<Run, Fault> {
    let deadline = Instant::now() + SEAL;
    loop {
        keeper.step(now, views)?;
        match keeper.runs().iter().find(|r| r.name == name) {
            Some(sealed) if sealed.state == State::Sealed => return Ok(sealed.clone()),
            _ if Instant::now() > deadline => {
                let why = format!("it is not sealed after {} s", SEAL.as_secs());
                return Err(Fault::new(format!("run `{name}` is not recorded"), why));
            }
            _ => std::thread::sleep(NAP),
        }
    }
}

fn compare(
    (from, run): (&Data, &Run),
    (into, again): (&Data, &Run),
    all: &[Members],
    err: &mut dyn Write,
) -> Result<Vec<Row>, Fault> {
    let mut progress = Progress::new();
    let mut rows = Vec::new();
    for members in all {
        let stream = members.stream.as_str();
        let mut seen = |done| progress.draw(err, stream, done, members.messages);
        let (messages, sha256) = members::hash(from, run, stream, &mut seen)?;
        let (again_messages, again_sha256) = members::hash(into, again, stream, &mut seen)?;
        let by_arrival = from.reader_early(stream)?.header().clock != Clock::Epoch;
        let same = sha256 == again_sha256;
        let (stream, bytes) = (stream.to_owned(), members.bytes);
        rows.push(Row { stream, messages, bytes, sha256, again_messages, again_sha256, by_arrival, same });
    }
    progress.clear(err);
    Ok(rows)
}

fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&["stream", ">messages", ">bytes", ">played", "same", "sha256"]);
    for row in rows {
        let same = match (row.same, row.by_arrival) {
            (true, _) => "yes",
            (false, true) => "no, by arrival",
            (false, false) => "no",
        };
        table.row([
            row.stream.clone(),
            thousands(row.messages),
            bytes(row.bytes),
            thousands(row.again_messages),
            same.to_owned(),
            row.sha256.get(..16).unwrap_or_default().to_owned(),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_says_so() {
        let row = |stream: &str, by_arrival, same| Row {
            stream: stream.into(),
            messages: 1200,
            bytes: 34_567,
            sha256: "0123456789abcdef0123".into(),
            again_messages: 1200,
            again_sha256: String::new(),
            by_arrival,
            same,
        };
        assert_eq!(
            text(&[row("a", false, true), row("b", true, false)]),
            "stream  messages    bytes  played  same            sha256\n\
             a          1,200  34.6 kB   1,200  yes             0123456789abcdef\n\
             b          1,200  34.6 kB   1,200  no, by arrival  0123456789abcdef\n"
        );
    }
}
