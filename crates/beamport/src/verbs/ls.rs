//! `beamport ls`: streams and runs as they stand.

use super::figures::{bytes, known, moment, percent, span, thousands};
use super::status::{Status, Watch};
use super::table::Table;
use super::{Answer, ended, json_line, open};
use crate::cli::Ls;
use crate::units::shortened;
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs the verb.
pub fn run(asked: &Ls, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let answer = list(asked, out, err);
    ended(answer, err)
}

fn list(asked: &Ls, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let status = Watch::new(&data).look(true)?;
    if asked.form.json {
        json_line(out, &status)?;
    } else {
        write!(out, "{}", text(&status))?;
    }
    for broken in &status.unreadable {
        writeln!(err, "error: stream `{}` cannot be read\ncause: {}", shortened(&broken.name), broken.why)?;
    }
    let mut is_whole = status.unreadable.is_empty();
    for run in &status.runs {
        if let Some(why) = &run.trouble {
            writeln!(err, "error: run `{}` has no account\ncause: {why}", run.name)?;
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
                None => "-".into(),
            },
        ]);
    }
    let mut text = if streams.is_empty() { format!("no streams in {}\n", status.data) } else { streams.to_string() };
    if !status.runs.is_empty() {
        text.push('\n');
        text.push_str(&runs(status).to_string());
    }
    text
}

/// The runs of a data folder as a table.
pub(crate) fn runs(status: &Status) -> Table {
    let mut table =
        Table::new(&["run", "state", "start", ">length", ">messages", ">bytes", ">lost", ">late", "closed", "files"]);
    for r in &status.runs {
        let length = match r.stop {
            Some(stop) => span(stop.saturating_sub(r.start)),
            None => span(status.time.saturating_sub(r.start)),
        };
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
    use crate::verbs::status::{RunStatus, StreamStatus};

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
            lag: 3,
            fill: 0.25,
            late: 1,
            writer: Some(4711),
            orphaned: false,
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
            reason: "asked".into(),
            trouble: None,
        };
        let mut status =
            Status { time: 0, data: "d".into(), streams: vec![stream], runs: vec![run], unreadable: Vec::new() };
        assert_eq!(
            text(&status),
            "stream    level  messages    bytes   stored  lost  lag  fill  late  writer\n\
             detector  disk        140  80.1 MB  90.0 MB     0    3  25 %     1  4711\n\
             \n\
             run  state   start                     length  messages    bytes  lost  late  closed  files\n\
             7    sealed  2026-03-01T12:00:00.000Z  10.0 s       140  80.1 MB     0     1  yes     amor_7.nxs\n"
        );
        (status.streams, status.runs) = (Vec::new(), Vec::new());
        assert_eq!(text(&status), "no streams in d\n");
    }
}
