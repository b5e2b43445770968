//! `/metrics`: the state of a data folder in the text format of Prometheus.
//!
//! `docs/reference/metrics.md` lists the names; a test compares it with [`NAMES`].

use flow::status::verdict::{KINDS, Part};
use flow::status::{Status, WorkerStatus};
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// A metric: name, type, labels, meaning.
pub(crate) struct Name {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) labels: &'static str,
    pub(crate) about: &'static str,
}

macro_rules! names {
    ($($id:ident = $name:literal $kind:ident [$labels:literal] $about:literal;)*) => {
        #[derive(Clone, Copy)]
        enum Id { $($id),* }
        /// Every metric, in the order of the page.
        pub(crate) static NAMES: &[Name] = &[$( Name {
            name: concat!("beamport_", $name),
            kind: stringify!($kind),
            labels: $labels,
            about: $about,
        } ),*];
    };
}

names! {
    Running = "instrument_running" gauge [""] "1 while an instrument runs in the data folder and answers.";
    Faults = "faults" gauge [""] "Current faults of stages.";
    Verdict = "verdict" gauge ["kind"] "Subjects of each part of the verdict; of `state` 1 while one runs.";
    Messages = "stream_messages" gauge ["stream"] "Messages in the stream now.";
    Bytes = "stream_payload_bytes" gauge ["stream"] "Bytes of their payloads.";
    Appended = "stream_appended_total" counter ["stream"] "Messages appended since the stream was created.";
    Stored = "stream_stored_bytes" gauge ["stream"] "Bytes that the folder of the stream takes.";
    Live = "stream_live_bytes" gauge ["stream"] "Bytes that the live place of the stream takes in shared memory.";
    Lost = "stream_lost_total" counter ["stream"] "Known missing messages of the stream.";
    Lag = "stream_lag_messages" gauge ["stream"] "Messages that the slowest counted reader has not committed.";
    Fill = "stream_fill_ratio" gauge ["stream"] "Share of the live place that cannot be freed.";
    Late = "stream_late_total" counter ["stream"] "Messages of sealed runs that arrived after the seal.";
    Written = "stream_written" gauge ["stream"] "1 while a process writes the stream.";
    Reader = "reader_lag_messages" gauge ["stream, reader, kind"] "Messages that the reader has not committed.";
    Gone = "stream_readers_gone" gauge ["stream"] "Readers that the stream waits for although their process has ended.";
    Blocked = "stream_blocked" gauge ["stream"] "1 while its source waits for room: for a reader, or for the disk.";
    Slots = "worker_slots" gauge ["worker, state"] "Slots of the worker: configured, living, starting, away.";
    Restarts = "worker_restarts_total" counter ["worker"] "Slots that died since the instrument started.";
    Done = "worker_messages_total" counter ["worker"] "Messages that the worker has finished.";
    Aside = "worker_aside_total" counter ["worker"] "Messages that the worker moved aside.";
    Filtered = "worker_filtered_total" counter ["worker"] "Messages that the worker filtered out.";
    WorkerLost = "worker_lost_total" counter ["worker"] "Messages that the worker lost.";
    Slow = "worker_skipped_total" counter ["worker"] "Messages that a shadow was too slow for.";
    WorkerLag = "worker_lag_messages" gauge ["worker"] "Messages of its inputs that the worker has not committed.";
    StageLost = "stage_lost_total" counter ["stage, stream"] "Messages of the input that the stage lost.";
    StageFault = "stage_fault" gauge ["stage, kind"] "1 while the stage has a fault.";
    Runs = "runs" gauge ["state"] "Runs: open, settling, sealed.";
    RunsOpen = "runs_not_closed" gauge [""] "Runs whose account does not close, of those that the page has shown.";
    RunsLost = "runs_lost_total" counter [""] "Messages lost in the runs that the page has shown.";
    RunsLate = "runs_late_total" counter [""] "Messages after the seal of a run, of the runs that the page has shown.";
    Unreadable = "streams_unreadable" gauge [""] "Streams that cannot be read.";
    HostUp = "host_up" gauge ["host"] "1 while the host gives signs of life.";
    HostLag = "host_mirror_lag_messages" gauge ["host, stream, of"] "Messages of the stream of `of` that it lacks.";
    HostLost = "host_lost_total" counter ["host"] "Messages lost at the entries of the host.";
    HostClock = "host_clock_seconds" gauge ["host"] "How far the clock of the host is ahead of that of the carrier.";
    HostSlots = "host_worker_slots" gauge ["host, worker"] "Living slots of the worker on the host.";
    HostDone = "host_worker_messages_total" counter ["host, worker"] "Messages that the worker has finished there.";
    Free = "free_bytes" gauge ["place"] "Free space where the data folder is, and of shared memory.";
}

/// Lines by metric.
struct Text(Vec<String>);

impl Text {
    fn put(&mut self, id: Id, labels: &[&str], value: impl std::fmt::Display) {
        let at = id as usize;
        let names = NAMES[at].labels.split(", ").filter(|name| !name.is_empty());
        let pairs: Vec<String> =
            names.zip(labels).map(|(name, label)| format!("{name}=\"{}\"", escaped(label))).collect();
        let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        let _ = writeln!(self.0[at], "{}{labels} {value}", NAMES[at].name);
    }
}

impl Text {
    /// The lines of a worker of this host.
    fn worker(&mut self, w: &WorkerStatus) {
        let of = [w.name.as_str()];
        for (state, slots) in
            [("configured", w.slots), ("living", w.living), ("starting", w.starting), ("away", w.away)]
        {
            self.put(Id::Slots, &[&w.name, state], slots);
        }
        self.put(Id::Restarts, &of, w.restarts);
        self.put(Id::Done, &of, w.messages);
        self.put(Id::Aside, &of, w.aside);
        self.put(Id::Filtered, &of, w.filtered);
        self.put(Id::WorkerLost, &of, w.lost);
        self.put(Id::Slow, &of, w.slow);
        self.put(Id::WorkerLag, &of, w.lag);
    }

    /// The lines of a host of the instrument, of what it has said last.
    fn host(&mut self, host: &str, state: &Value) {
        self.put(Id::HostUp, &[host], u8::from(state["state"] == "up"));
        for mirror in state["mirrors"].as_array().into_iter().flatten() {
            let word = |key: &str| mirror[key].as_str().unwrap_or_default();
            if let Some(lag) = mirror["lag"].as_u64() {
                self.put(Id::HostLag, &[host, word("stream"), word("of")], lag);
            }
        }
        if let Some(lost) = state["lost"].as_u64() {
            self.put(Id::HostLost, &[host], lost);
        }
        if let Some(ahead) = state["clock_ns"].as_i64() {
            self.put(Id::HostClock, &[host], ahead as f64 / 1e9);
        }
        for (worker, state) in state["workers"].as_object().into_iter().flatten() {
            let number = |name: &str| state["numbers"][name].as_u64().unwrap_or(0);
            self.put(Id::HostSlots, &[host, worker], number("living"));
            self.put(Id::HostDone, &[host, worker], number("messages"));
        }
    }
}

/// A label as the format wants it.
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The metrics of a state. `free`: bytes by place. `glance`: what the running instrument reports; `running` is empty
/// where none runs.
pub(crate) fn text(status: &Status, glance: &Map<String, Value>, verdict: &[Part], free: &[(&str, u64)]) -> String {
    let mut text = Text(vec![String::new(); NAMES.len()]);
    let running = glance.get("running").and_then(Value::as_object);
    let troubles = glance.get("troubles").and_then(Value::as_array).map_or(0, Vec::len);
    text.put(Id::Running, &[], u8::from(running.is_some_and(|stages| !stages.is_empty())));
    text.put(Id::Faults, &[], troubles);
    for kind in KINDS {
        let count: u64 = verdict.iter().filter(|part| part.kind == kind).map(|part| part.count).sum();
        text.put(Id::Verdict, &[kind], count);
    }
    for s in &status.streams {
        let of = [s.name.as_str()];
        text.put(Id::Messages, &of, s.messages);
        text.put(Id::Bytes, &of, s.bytes);
        text.put(Id::Appended, &of, s.count);
        text.put(Id::Stored, &of, s.stored_bytes);
        text.put(Id::Live, &of, s.live_bytes);
        text.put(Id::Lost, &of, s.lost);
        text.put(Id::Lag, &of, s.lag);
        text.put(Id::Fill, &of, s.fill);
        text.put(Id::Late, &of, s.late);
        text.put(Id::Written, &of, u8::from(s.writer.is_some()));
        for (reader, lag) in s.readers.iter().filter_map(|reader| Some((reader, reader.lag?))) {
            text.put(Id::Reader, &[&s.name, &reader.name, reader.kind], lag);
        }
        text.put(Id::Gone, &of, s.readers.iter().filter(|reader| reader.gone).count());
    }
    status.workers.iter().for_each(|worker| text.worker(worker));
    for row in &status.stages {
        let lost: u64 = row.lost.values().sum();
        text.put(Id::StageLost, &[&row.stage, &row.stream], lost);
    }
    for (name, stage) in running.into_iter().flatten() {
        let kind = stage["kind"].as_str().unwrap_or_default();
        text.put(Id::StageFault, &[name, kind], u8::from(!stage["trouble"].is_null()));
        if kind == "source" {
            text.put(Id::Blocked, &[name], u8::from(stage["blocked"] == true));
        }
    }
    for state in ["open", "settling", "sealed"] {
        let older = if state == "sealed" { status.older_runs } else { 0 };
        text.put(Id::Runs, &[state], older + status.runs.iter().filter(|run| run.state == state).count() as u64);
    }
    let mut totals = status.older_totals;
    status.runs.iter().for_each(|run| totals.add(run));
    text.put(Id::RunsOpen, &[], totals.not_closed);
    text.put(Id::RunsLost, &[], totals.lost);
    text.put(Id::RunsLate, &[], totals.late);
    text.put(Id::Unreadable, &[], status.unreadable.len());
    for (place, bytes) in free {
        text.put(Id::Free, &[place], bytes);
    }
    glance
        .get("hosts")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .for_each(|(host, state)| text.host(host, state));
    let with_lines = NAMES.iter().zip(&text.0).filter(|(_, lines)| !lines.is_empty());
    with_lines.fold(String::new(), |whole, (name, lines)| {
        whole + &format!("# HELP {0} {1}\n# TYPE {0} {2}\n{lines}", name.name, name.about, name.kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_on_the_metrics_page() {
        let page = include_str!("../../../docs/reference/metrics.md");
        for name in NAMES {
            let labels = if name.labels.is_empty() { String::new() } else { name.labels.replace(", ", "`, `") };
            let labels = if labels.is_empty() { String::new() } else { format!("`{labels}`") };
            let row = format!("| `{}` | {} | {labels} | {} |", name.name, name.kind, name.about);
            assert!(page.contains(&row), "docs/reference/metrics.md has no row\n{row}");
        }
    }

    #[test]
    fn a_host_has_its_lines_and_one_that_said_nothing_is_not_up() {
        let mirrors =
            serde_json::json!([{"stream": "x", "of": "a", "lag": 3}, {"stream": "y", "of": "a", "lag": null}]);
        let numbers = serde_json::json!({"living": 2, "messages": 70});
        let b = serde_json::json!({"state": "up", "mirrors": mirrors, "lost": 4, "clock_ns": -1_500_000_000i64,
                                   "workers": {"w": {"numbers": numbers}}});
        let mut text = Text(vec![String::new(); NAMES.len()]);
        text.host("b", &b);
        text.host("c", &serde_json::json!({"state": "away", "mirrors": [], "workers": null, "lost": null}));
        let lines: Vec<&str> = text.0.iter().flat_map(|lines| lines.lines()).collect();
        assert_eq!(
            lines,
            [
                "beamport_host_up{host=\"b\"} 1",
                "beamport_host_up{host=\"c\"} 0",
                "beamport_host_mirror_lag_messages{host=\"b\",stream=\"x\",of=\"a\"} 3",
                "beamport_host_lost_total{host=\"b\"} 4",
                "beamport_host_clock_seconds{host=\"b\"} -1.5",
                "beamport_host_worker_slots{host=\"b\",worker=\"w\"} 2",
                "beamport_host_worker_messages_total{host=\"b\",worker=\"w\"} 70",
            ]
        );
    }

    #[test]
    fn a_label_with_quotes_is_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
