//! `beamport ls`: streams and runs as they stand, or the report of one run.

use super::figures::{absent, bytes, cut, known, moment, percent, span, thousands};
use super::table::Table;
use super::{Answer, Verb, ended, json_line, open};
use crate::arguments::{DataFolder, Form};
use crate::edges::Registry;
use crate::limits::RUNS_SHOWN;
use crate::report::{Report, StageReport, all_written, clock_line, dead_time_lines, missing_lines};
use clap::Args;
use flow::Fault;
use flow::ledger::{Row, total};
use flow::status::{Status, StreamStatus, Watch};
use settings::shortened;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use wire::bprn::State;

/// Parents of a view that are named, so that a line stays a line; `--json` has them all.
const PARENTS_NAMED: usize = 8;

/// `beamport ls`
#[derive(Debug, Args)]
#[command(
    about = "List streams and runs, or print the report of a run",
    after_help = "Examples:\n\
                  \x20 beamport ls\n\
                  \x20 beamport ls night\n\
                  \x20 beamport ls --pins\n\
                  \x20 beamport ls --data beamport-data/amor --json"
)]
pub struct Ls {
    /// Print the report of this sealed run instead, as `up` does at its end
    #[arg(conflicts_with = "pins")]
    pub run: Option<String>,
    /// List readers instead: the position of each, and the data it keeps
    #[arg(long)]
    pub pins: bool,
    /// List all runs, and not only the newest 50 and those that are not done
    #[arg(long, conflicts_with_all = ["run", "pins"])]
    pub all: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Ls {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        let answer = match &self.run {
            Some(run) => report(self, run, out, err),
            None if self.pins => super::pins::list(self, out, err),
            None => list(self, out, err),
        };
        ended(answer, err)
    }
}

/// The report of a sealed run. Stages know no runs: the list has their accounts.
fn report(asked: &Ls, run: &str, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let run = flow::runs::run(&data, run)?;
    if run.state != State::Sealed {
        let fault = Fault::new(format!("run `{}` has no report yet", run.name), format!("it is {}", run.state.name()));
        return Err(fault.hint("end it with `beamport end`; `beamport top` shows it meanwhile").into());
    }
    let sinks: Vec<String> =
        flow::commits::last_commits(&data)?.remove(&run.name).unwrap_or_default().into_keys().collect();
    let written = all_written(&data, &[], &sinks, &run.name)?;
    let report = Report::of(&data, &run, &sinks, &StageReport::default(), &written, &[])?;
    match asked.form.json {
        true => json_line(out, &report.json())?,
        false => write!(out, "{}", report.text())?,
    }
    for fault in &report.damaged {
        writeln!(err, "{fault}")?;
    }
    let fault = run.description_fault();
    if let Some(fault) = &fault {
        writeln!(err, "{fault}")?;
    }
    Ok(ExitCode::from(match report.damaged.is_empty() && fault.is_none() {
        true => u8::from(report.account.lost > 0),
        false => 2,
    }))
}

fn list(asked: &Ls, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let most = if asked.all { usize::MAX } else { RUNS_SHOWN };
    let status = Watch::new(&data).newest(most).status(data.media.now(), true)?;
    if asked.form.json {
        json_line(out, &status)?;
    } else {
        if !status.streams.is_empty() {
            let verdict = crate::mover::glance(&data.folder).verdict(&status);
            writeln!(out, "{}\n", flow::status::verdict::line(&verdict))?;
        }
        write!(out, "{}", text(&status))?;
    }
    for broken in &status.unreadable {
        writeln!(err, "error: cannot read stream `{}`\ncause: {}", shortened(&broken.name), broken.why)?;
    }
    for damage in &status.damaged {
        writeln!(err, "warning: {damage}")?;
    }
    let mut is_whole = status.unreadable.is_empty();
    for run in &status.runs {
        if let Some(why) = &run.trouble {
            let what = if run.closed.is_none() { "has no account" } else { "may be inaccurate" };
            writeln!(err, "error: run `{}` {what}\ncause: {why}", run.name)?;
            is_whole = false;
        }
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn text(status: &Status) -> String {
    let mut streams =
        Table::new(&["stream", "level", ">messages", ">bytes", ">stored", ">lost", ">lag", ">fill", ">late", "writer"]);
    for s in &status.streams {
        streams.row([
            s.name.clone(),
            s.level.to_owned(),
            thousands(s.messages),
            bytes(s.bytes),
            bytes(s.stored_bytes + s.live_bytes),
            thousands(s.lost),
            thousands(s.lag),
            percent(s.fill),
            thousands(s.late),
            match s.writer {
                Some(pid) => pid.to_string(),
                None if s.orphaned => "killed".into(),
                None if s.elsewhere => "elsewhere".into(),
                None => "-".into(),
            },
        ]);
    }
    let mut text = if streams.is_empty() { format!("no streams in {}\n", status.data) } else { streams.to_string() };
    for s in status.streams.iter().filter(|s| !s.parents.is_empty()) {
        let (named, more) = s.parents.split_at(s.parents.len().min(PARENTS_NAMED));
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        text.push_str(&format!("{} is a view of {}{more}\n", s.name, named.join(", ")));
    }
    for line in status.streams.iter().flat_map(gone_readers) {
        text.push_str(&format!("{line}\n"));
    }
    for gap in status.streams.iter().flat_map(|s| &s.cut) {
        text.push_str(&format!("{}\n", cut(gap)));
    }
    if !status.stages.is_empty() {
        text.push('\n');
        text.push_str(&stages("stage", &status.stages.iter().collect::<Vec<_>>()).to_string());
    }
    for line in missing_lines(&status.missing) {
        text.push_str(&format!("{line}\n"));
    }
    if !status.runs.is_empty() {
        text.push('\n');
        text.push_str(&runs(status).to_string());
    }
    if status.older_runs > 0 {
        text.push_str(&format!("and {} older runs, all done: `beamport ls --all`\n", thousands(status.older_runs)));
    }
    for run in &status.runs {
        for a in &run.absent {
            text.push_str(&format!("\nrun {}: {}", run.name, absent(a)));
        }
        for line in dead_time_lines(&run.dead_time) {
            text.push_str(&format!("\nrun {}: {line}", run.name));
        }
        if let Some(line) = clock_line(run.clock_step_ns) {
            text.push_str(&format!("\nrun {}: {line}", run.name));
        }
    }
    if status.runs.iter().any(|r| !r.absent.is_empty() || !r.dead_time.is_empty() || r.clock_step_ns != 0) {
        text.push('\n');
    }
    text
}

/// Readers from outside that a stream waits for although their process has ended, a line each.
pub(crate) fn gone_readers(stream: &StreamStatus) -> impl Iterator<Item = String> {
    stream.readers.iter().filter(|reader| reader.gone).map(|reader| {
        let (name, lag) = (&reader.name, thousands(reader.lag.unwrap_or(0)));
        let (of, forget) = (&stream.name, "`beamport forget");
        format!(
            "{of} waits for reader `{name}`, {lag} messages behind, whose process has ended: {forget} {of} '{name}'`"
        )
    })
}

/// The accounts of merges, workers and live sinks as a table; `title` is that of its first column.
pub(crate) fn stages(title: &str, rows: &[&Row]) -> Table {
    let mut table = Table::new(&[title, "input", ">read", ">done", ">aside", ">skipped", ">lost", ">held", "closed"]);
    let sum = |map: &BTreeMap<String, u64>| thousands(total(map.values()));
    for r in rows {
        table.row([
            r.stage.clone(),
            r.stream.clone(),
            thousands(r.read),
            thousands(r.done),
            sum(&r.aside),
            sum(&r.skipped),
            sum(&r.lost),
            thousands(r.held),
            if r.closed { "yes" } else { "no" }.into(),
        ]);
    }
    table
}

/// The runs of a data folder as a table.
pub(crate) fn runs(status: &Status) -> Table {
    let mut table =
        Table::new(&["run", "state", "start", ">length", ">messages", ">bytes", ">lost", ">late", "closed", "files"]);
    for r in &status.runs {
        // How long it has been: what is still to come is no length yet.
        let end = match r.stop {
            Some(stop) if r.state == "open" => stop.min(status.time),
            Some(stop) => stop,
            None => status.time,
        };
        let length = if end < r.start { "-".into() } else { span(end.saturating_sub(r.start)) };
        table.row([
            r.name.clone(),
            r.state.to_owned(),
            moment(r.start),
            length,
            known(r.messages),
            r.bytes.map_or_else(|| "-".into(), bytes),
            known(r.lost),
            thousands(r.late),
            match r.closed {
                Some(true) => "yes".into(),
                Some(false) => "no".into(),
                None => "-".into(),
            },
            if r.files.is_empty() { "-".into() } else { r.files.join(", ") },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::ledger::{self, DeadTime};
    use flow::records::Gap;
    use flow::status::{RunStatus, StreamStatus};

    #[test]
    fn streams_and_runs_are_two_tables() {
        let stream = StreamStatus {
            name: "detector".into(),
            level: "disk",
            clock: "epoch",
            first: 0,
            count: 140,
            disk: Some(140),
            messages: 140,
            bytes: 80_123_456,
            stored_bytes: 90_000_000,
            live_bytes: 4096,
            messages_per_s: None,
            bytes_per_s: None,
            lost: 0,
            lost_reason: None,
            losing: false,
            alarms: Vec::new(),
            lag: 3,
            fill: 0.25,
            late: 1,
            writer: Some(4711),
            orphaned: false,
            elsewhere: false,
            arrival_ahead_ns: None,
            cut: Vec::new(),
            parents: Vec::new(),
            readers: Vec::new(),
        };
        let run = RunStatus {
            name: "7".into(),
            state: "sealed",
            start: 1_772_366_400_000_000_000,
            stop: Some(1_772_366_410_000_000_000),
            messages: Some(140),
            bytes: Some(80_123_456),
            files: vec!["amor_7.nxs".into()],
            closed: Some(true),
            lost: Some(0),
            late: 1,
            absent: vec![Gap {
                stream: "detector".into(),
                origin: String::new(),
                first: 70,
                last: 69,
                from: 1_772_366_404_000_000_000,
                to: 1_772_366_405_500_000_000,
                reason: flow::records::ABSENT.into(),
                by_sequence: true,
                count: 0,
            }],
            dead_time: vec![DeadTime { stream: "detector".into(), intervals: 2, nanoseconds: 1_500_000_000 }],
            clock_step_ns: -30_000_000_000,
            reason: "asked".into(),
            trouble: None,
        };
        let parents = (0..10).map(|i| format!("bank{i}")).collect();
        let view = StreamStatus { name: "all".into(), level: "memory", parents, writer: None, ..stream.clone() };
        let mut status = Status {
            time: 0,
            data: "d".into(),
            streams: vec![stream],
            runs: vec![run],
            older_runs: 0,
            older_totals: flow::status::RunTotals::default(),
            stages: Vec::new(),
            missing: Vec::new(),
            unreadable: Vec::new(),
            damaged: Vec::new(),
            workers: Vec::new(),
        };
        assert_eq!(
            text(&status),
            "stream    level  messages    bytes   stored  lost  lag  fill  late  writer\n\
             detector  disk        140  80.1 MB  90.0 MB     0    3  25 %     1  4711\n\
             \n\
             run  state   start                     length  messages    bytes  lost  late  closed  files\n\
             7    sealed  2026-03-01T12:00:00.000Z  10.0 s       140  80.1 MB     0     1  yes     amor_7.nxs\n\
             \n\
             run 7: the source of `detector` was absent from 2026-03-01T12:00:04.000Z to 2026-03-01T12:00:05.500Z (1.5 s)\n\
             run 7: dead time of `detector`: 1.5 s in 2 intervals\n\
             run 7: the clock of the machine was set back by 30.0 s: source times before and after that do not agree\n"
        );
        let length_at = |state, start: i64, stop, time| {
            let mut run = RunStatus { state, start, stop, ..status.runs[0].clone() };
            (run.absent, run.dead_time) = Default::default();
            let table = runs(&Status { time, runs: vec![run], ..status.clone() }).to_string();
            table.lines().nth(1).unwrap().split_whitespace().nth(3).unwrap().to_owned()
        };
        // One that has not begun has no length, one that is open that of the time that has passed.
        assert_eq!(length_at("open", 10_000_000_000, None, 0), "-");
        assert_eq!(length_at("open", 10_000_000_000, Some(20_000_000_000), 0), "-");
        assert_eq!(length_at("open", 0, Some(90_000_000_000), 125_000_000), "125");
        assert_eq!(length_at("sealed", 0, Some(250_000_000), 0), "250");
        status.older_runs = 1200;
        assert!(text(&status).contains("\nand 1,200 older runs, all done: `beamport ls --all`\n"), "{}", text(&status));
        status.streams.push(view);
        let seen = text(&status);
        assert!(
            seen.contains("\nall is a view of bank0, bank1, bank2, bank3, bank4, bank5, bank6, bank7 and 2 more\n"),
            "{seen}"
        );
        let lost = BTreeMap::from([("full".to_owned(), 2), ("corrupt".to_owned(), 1)]);
        let (stage, stream) = ("all".into(), "bank0".into());
        let (aside, skipped) = (BTreeMap::from([("late".into(), 7)]), BTreeMap::new());
        let row = ledger::Row { stage, stream, read: 1015, done: 1000, aside, skipped, lost, held: 5, closed: true };
        status.stages.push(row);
        let seen = text(&status);
        assert!(
            seen.contains(
                "\nstage  input   read   done  aside  skipped  lost  held  closed\n\
                 all    bank0  1,015  1,000      7        0     3     5  yes\n"
            ),
            "{seen}"
        );
        status.stages.clear();
        (status.streams, status.runs, status.older_runs) = (Vec::new(), Vec::new(), 0);
        assert_eq!(text(&status), "no streams in d\n");
    }
}
