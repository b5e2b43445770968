//! One line that says how an instrument is: what it measures, and what is wrong. The page, `top`, `ls` and `/metrics`
//! have it from here.

use super::{Status, StreamStatus};
use serde::Serialize;
use serde_json::{Map, Value};

/// Kinds of parts, in the order of the line; the first one is always there.
pub const KINDS: [&str; 9] = ["state", "fault", "loss", "restart", "aside", "alarm", "paused", "host", "account"];

/// A part of the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// One of [`KINDS`].
    pub kind: &'static str,
    /// Its text, for people.
    pub text: String,
    /// How many subjects it has: streams, workers, alarms; of `state` 1 while an instrument runs.
    pub count: u64,
    /// The worst of them, by name: a stream, worker, host or run; the stream of an alarm.
    pub subject: Option<String>,
    /// Of an alarm: the name in its message.
    pub origin: Option<String>,
    /// Something is wrong.
    pub bad: bool,
}

/// The report of a running instrument of itself; empty where none runs.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// Its stages by name.
    pub running: &'a Map<String, Value>,
    /// How many faults they have.
    pub faults: usize,
    /// Its hosts by name.
    pub hosts: &'a Map<String, Value>,
}

/// The parts of the line, what is measured first.
#[must_use]
pub fn verdict(status: &Status, report: Report<'_>) -> Vec<Part> {
    let is_running = !report.running.is_empty();
    let mut parts = vec![state(status, is_running)];
    let faults = report.faults + status.unreadable.len();
    let gone = status.streams.iter().filter(|s| s.readers.iter().any(|reader| reader.gone)).count();
    if faults + gone > 0 {
        let first = status.unreadable.first().map(|stream| stream.name.clone());
        parts.push(part("fault", faults + gone, "fault", "", ("", ""), first));
    }
    parts.extend(loss(status));
    if is_running {
        let restarts = |w: &&super::WorkerStatus| w.restarts > 0 || w.away > 0;
        let mut all: Vec<_> = status.workers.iter().filter(restarts).collect();
        all.sort_by_key(|w| std::cmp::Reverse((w.away > 0, w.restarts)));
        if let Some(worst) = all.first() {
            let verb = if worst.away > 0 { ("restarts", "restart") } else { ("was restarted", "were restarted") };
            let often = format!("{} times", worst.restarts);
            parts.push(part("restart", all.len(), "worker", &often, verb, Some(worst.name.clone())));
        }
    }
    let mut aside: Vec<_> = status.workers.iter().filter(|w| w.aside > 0).collect();
    aside.sort_by_key(|w| std::cmp::Reverse(w.aside));
    if let Some(worst) = aside.first() {
        let messages = if worst.aside == 1 { "1 message".into() } else { format!("{} messages", worst.aside) };
        let verb = ("moved messages aside", "moved messages aside");
        parts.push(part("aside", aside.len(), "worker", &messages, verb, Some(worst.name.clone())));
    }
    parts.extend(alarms(status));
    let is_paused = |stage: &(&String, &Value)| stage.1["paused"] == true;
    let paused: Vec<_> = report.running.iter().filter(is_paused).map(|(name, _)| name).collect();
    if let Some(first) = paused.first() {
        let text = part("paused", paused.len(), "worker", "", ("is paused", "are paused"), Some((*first).clone()));
        parts.push(Part { bad: false, ..text });
    }
    let away: Vec<_> = report.hosts.iter().filter(|(_, host)| host["state"] == "away").map(|(name, _)| name).collect();
    if let Some(first) = away.first() {
        parts.push(part("host", away.len(), "host", "", ("is away", "are away"), Some((*first).clone())));
    }
    let is_wrong =
        |run: &&super::RunStatus| run.trouble.is_some() || run.state == "sealed" && run.closed == Some(false);
    let wrong: Vec<_> = status.runs.iter().filter(is_wrong).collect();
    if let Some(newest) = wrong.last() {
        let verb = ("has no closed account", "have no closed account");
        parts.push(part("account", wrong.len(), "run", "", verb, Some(newest.name.clone())));
    }
    parts
}

/// The line.
#[must_use]
pub fn line(parts: &[Part]) -> String {
    parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(" \u{b7} ")
}

/// `2 streams lose (d017, kernel, and 1 more)`: of the count, the noun, the detail of the worst one, and its name.
fn part(
    kind: &'static str,
    count: usize,
    noun: &str,
    about: &str,
    verb: (&str, &str),
    subject: Option<String>,
) -> Part {
    let (noun, verb) = if count == 1 { (noun.to_owned(), verb.0) } else { (format!("{noun}s"), verb.1) };
    let mut inside: Vec<String> =
        subject.iter().cloned().chain((!about.is_empty()).then(|| about.to_owned())).collect();
    if count > 1 && !inside.is_empty() {
        inside.push(format!("and {} more", count - 1));
    }
    let mut text = format!("{count} {noun}");
    if !verb.is_empty() {
        text += &format!(" {verb}");
    }
    if !inside.is_empty() {
        text += &format!(" ({})", inside.join(", "));
    }
    Part { kind, text, count: count as u64, subject, origin: None, bad: true }
}

fn state(status: &Status, is_running: bool) -> Part {
    let of = |state| status.runs.iter().rev().filter(move |run| run.state == state);
    let open: Vec<_> = of("open").collect();
    let (text, subject) = match (is_running, open.as_slice(), of("settling").next()) {
        (true, [run], _) => (format!("measuring run {}", run.name), Some(&run.name)),
        (true, [newest, ..], _) => {
            (format!("measuring {} runs (newest {})", open.len(), newest.name), Some(&newest.name))
        }
        (true, [], Some(run)) => (format!("sealing run {}", run.name), Some(&run.name)),
        (true, [], None) => ("the instrument runs, no run is open".to_owned(), None),
        (false, [newest, ..], _) => {
            (format!("no instrument runs, and run {} is open", newest.name), Some(&newest.name))
        }
        (false, [], _) => ("no instrument runs".to_owned(), status.runs.last().map(|run| &run.name)),
    };
    Part { kind: "state", text, count: u64::from(is_running), subject: subject.cloned(), origin: None, bad: false }
}

/// The streams that lose, or that have lost messages and lose none now: the worst by the loss.
fn loss(status: &Status) -> Option<Part> {
    let mut all: Vec<&StreamStatus> = status.streams.iter().filter(|s| s.lost > 0).collect();
    all.sort_by_key(|s| std::cmp::Reverse((s.losing, s.lost)));
    let worst = all.first()?;
    let is_now = worst.losing;
    let count = all.iter().filter(|s| s.losing == is_now).count();
    let verb = if is_now { ("loses", "lose") } else { ("has lost messages", "have lost messages") };
    let why = worst.lost_reason.clone().unwrap_or_default();
    Some(part("loss", count, "stream", &why, verb, Some(worst.name.clone())))
}

/// The alarms that last, of streams that are written: those of a recording are past.
fn alarms(status: &Status) -> Option<Part> {
    let all = || status.streams.iter().flat_map(|s| s.alarms.iter().map(|alarm| (&s.name, alarm)));
    let (stream, alarm) = all().next()?;
    let words = format!("{}, {}", alarm.origin, alarm.severity);
    let mut part = part("alarm", all().count(), "alarm", &words, ("", ""), None);
    (part.subject, part.origin) = (Some(stream.clone()), Some(alarm.origin.clone()));
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Alarm, RunStatus, RunTotals, WorkerStatus};
    use serde_json::json;

    fn status() -> Status {
        let none = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (streams, workers, runs, stages, missing, unreadable) = none;
        let (older_totals, damaged, data) = (RunTotals::default(), Vec::new(), "d".into());
        Status {
            time: 0,
            data,
            streams,
            workers,
            runs,
            older_runs: 0,
            older_totals,
            stages,
            missing,
            unreadable,
            damaged,
        }
    }

    fn run(name: &str, state: &'static str) -> RunStatus {
        RunStatus { name: name.into(), state, closed: Some(state == "sealed"), ..RunStatus::default() }
    }

    fn stream(name: &str, lost: u64, losing: bool, alarms: Vec<Alarm>) -> StreamStatus {
        let lost_reason = (lost > 0).then(|| "kernel".into());
        StreamStatus {
            name: name.into(),
            lost,
            lost_reason,
            losing,
            alarms,
            writer: Some(1),
            ..StreamStatus::default()
        }
    }

    fn worker(name: &str, away: u64, restarts: u64) -> WorkerStatus {
        WorkerStatus { name: name.into(), slots: 1, living: 1 - away, away, restarts, ..WorkerStatus::default() }
    }

    fn said(status: &Status, running: &Value, faults: usize) -> (String, Vec<&'static str>) {
        let (running, none) = (running.as_object().unwrap(), Map::new());
        let parts = verdict(status, Report { running, faults, hosts: &none });
        let bad = parts.iter().filter(|part| part.bad).map(|part| part.kind).collect();
        assert!(parts.iter().all(|part| KINDS.contains(&part.kind)));
        (line(&parts), bad)
    }

    #[test]
    fn one_line_says_what_is_measured_and_what_is_wrong() {
        let alarm = Alarm { origin: "LAB:T1".into(), severity: "MAJOR".into() };
        let streams = vec![
            stream("a", 900, false, Vec::new()),
            stream("d017", 3, true, vec![alarm.clone()]),
            stream("d018", 2, true, vec![alarm]),
        ];
        let workers = vec![worker("fit", 0, 0), worker("peaks", 1, 5)];
        let status = Status { streams, workers, runs: vec![run("11", "sealed"), run("12", "open")], ..status() };
        let (line, bad) = said(&status, &json!({"peaks": {"paused": false}, "fit": {"paused": true}}), 1);
        assert_eq!(
            line,
            "measuring run 12 · 1 fault · 2 streams lose (d017, kernel, and 1 more) \
             · 1 worker restarts (peaks, 5 times) · 2 alarms (LAB:T1, MAJOR, and 1 more) · 1 worker is paused (fit)"
        );
        assert_eq!(bad, ["fault", "loss", "restart", "alarm"]);
    }

    #[test]
    fn a_recording_without_an_instrument_is_nothing_wrong() {
        let status = Status { runs: vec![run("12", "sealed")], workers: vec![worker("peaks", 1, 5)], ..status() };
        assert_eq!(said(&status, &json!({}), 0), ("no instrument runs".to_owned(), vec![]));
        let lost = Status { streams: vec![stream("a", 7, false, Vec::new())], ..status };
        let line = "no instrument runs · 1 stream has lost messages (a, kernel)";
        assert_eq!(said(&lost, &json!({}), 0), (line.to_owned(), vec!["loss"]));
    }
}
