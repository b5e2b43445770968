//! What stands at the end: per stream messages, events, bytes and lost; the ledger; the files. One function for the
//! screen, `--json` and the tests.

use crate::figures::{absent, span, thousands};
use crate::file::writer_name;
use crate::limits::{DEAD_NAMED, WRITERS_MAX};
use crate::mover::{Failed, Written};
use flow::hosts::{HostAccount, HostState, Mirrored};
use flow::ledger::{Account, DeadTime, Entry, Row, total};
use flow::records::{Commit, Gap, Run};
use flow::status::Missing;
use flow::status::members;
use flow::{Data, Fault};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use store::{Check, ReadOptions};

/// One stream's part in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamLine {
    /// Name.
    pub name: String,
    /// Members of the run.
    pub messages: u64,
    /// Events inside them.
    pub events: u64,
    /// Their payload.
    pub bytes: u64,
    /// Lost at the entry or at a sink.
    pub lost: u64,
    /// Messages of its interval that came after the seal, so far: they are in the stream and in no account of the run.
    pub late: u64,
}

/// The state of sources, merges, workers and live sinks over all runs and starts.
#[derive(Clone, Debug, Default)]
pub struct StageReport {
    /// The accounts of merges, workers and live sinks: over all that they were given.
    pub rows: Vec<Row>,
    /// The ids that merges by number did not have, or not whole.
    pub missing: Vec<Missing>,
    /// Why code of workers never started.
    pub silent: Vec<Fault>,
    /// Faults of sources that have received nothing of what they were to read.
    pub absent: Vec<Fault>,
    /// Counts by the code of workers, by worker and slot, each slot since it started.
    pub statistics: Map<String, Value>,
}

impl StageReport {
    /// All code of the instrument has started, and all that it was to read has come.
    fn is_whole(&self) -> bool {
        self.silent.is_empty() && self.absent.is_empty()
    }

    fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.missing.iter().flat_map(|merge| &merge.gaps)
    }

    /// The keys of the form for programs that need no run.
    fn json(&self) -> Value {
        json!({
            "silent": self.silent.iter().map(Fault::to_json).collect::<Vec<_>>(),
            "absent": self.absent.iter().map(Fault::to_json).collect::<Vec<_>>(),
            "statistics": self.statistics,
        })
    }

    /// Counts by the code of workers, a line for each slot: `frames         groups 1,000, incomplete 3   (slot 0)`.
    fn statistics_lines(&self) -> Vec<String> {
        let slots = |slots: &Value| slots.as_object().cloned().unwrap_or_default();
        let all = self.statistics.iter().flat_map(|(name, of)| slots(of).into_iter().map(move |slot| (name, slot)));
        let number = |value: &Value| value.as_u64().map_or_else(|| value.to_string(), thousands);
        let line = |(name, (slot, numbers)): (&String, (String, Value))| {
            let numbers = numbers.as_object()?.iter().filter(|(_, value)| value.as_f64() != Some(0.0));
            let words: Vec<String> = numbers.map(|(word, value)| format!("{word} {}", number(value))).collect();
            (!words.is_empty()).then(|| format!("{name:<14} {}   (slot {slot})", words.join(", ")))
        };
        all.filter_map(line).collect()
    }
}

/// The report of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Run.
    pub run: String,
    /// Files, with size and checksum.
    pub written: Vec<Written>,
    /// Files that were given up.
    pub failed: Vec<Failed>,
    /// Streams.
    pub streams: Vec<StreamLine>,
    /// The ledger.
    pub account: Account,
    /// The state of the stages, which know no runs.
    pub stages: StageReport,
    /// Messages whose payloads are missing: they are counted, their events are not.
    pub damaged: Vec<Fault>,
}

impl Report {
    /// Counts a sealed run.
    pub fn of(
        data: &Data,
        record: &Run,
        sinks: &[String],
        stages: &StageReport,
        written: &[Written],
        failed: &[Failed],
    ) -> Result<Self, Fault> {
        let run = record.name.as_str();
        let account = flow::ledger::account_of(data, record, sinks)?;
        let commits: Vec<Option<Commit>> =
            sinks.iter().map(|sink| flow::last_commit(data, sink, run)).collect::<Result<_, _>>()?;
        let inputs = || commits.iter().flatten().flat_map(|commit| &commit.inputs);
        let (mut streams, mut damaged) = (Vec::new(), Vec::new());
        let mut names: Vec<String> = record.streams.iter().map(|r| r.stream.clone()).collect();
        names.dedup();
        for name in names {
            let (mut line, without) = count(data, record, &name)?;
            damaged.extend(without.iter().map(|lost| {
                let what = format!("cannot read messages {} to {} of `{name}`", lost.start, lost.end - 1);
                Fault::new(what, format!("the report of run `{run}` counts them, without their events"))
                    .hint(format!("`beamport verify --data {}` lists the damage", data.folder.display()))
            }));
            let entries = account.entries.iter().filter(|e| e.stream == name);
            let entry = total(entries.flat_map(|e| e.lost.values()));
            let sink = total(account.rows.iter().filter(|r| r.stream == name).flat_map(|r| r.lost.values()));
            line.lost = entry + sink;
            // Where retention has taken some since, a sink's commits still know how many there were.
            let known =
                account.rows.iter().filter(|r| r.stream == name).map(|r| r.read.saturating_sub(total(r.lost.values())));
            line.messages = line.messages.max(known.max().unwrap_or(0));
            let known = inputs().filter(|input| input.stream == name).map(|input| input.count(flow::BYTES));
            line.bytes = line.bytes.max(known.max().unwrap_or(0));
            streams.push(line);
        }
        let written = written.iter().filter(|w| w.run == run).cloned().collect();
        let failed = failed.iter().filter(|f| f.run == run).cloned().collect();
        Ok(Self { run: run.to_string(), written, failed, streams, account, stages: stages.clone(), damaged })
    }

    /// The form for programs.
    pub fn json(&self) -> Value {
        let first = self.written.first();
        let of = |key: &str| first.map_or(Value::Null, |w| w.product[key].clone());
        let mut report = json!({
            "run": self.run,
            "reason": self.account.reason,
            "file": of("file"),
            "size": of("size"),
            "blake3": of("blake3"),
            "content": self.content(),
            "written": self.written.iter().map(written_row).collect::<Vec<_>>(),
            "closed": self.is_closed(),
            "streams": self.streams,
            "ledger": ledger_rows("run", &self.account.entries, &self.account.rows, &self.stages.rows),
            "gaps": self.account.gaps.iter().chain(self.stages.gaps()).collect::<Vec<_>>(),
            "dead_time": self.account.dead_time,
            "clock_step_ns": self.account.clock_step_ns,
            "failed": self.failed.iter().map(failed_row).collect::<Vec<_>>(),
        });
        add(&mut report, self.stages.json());
        if !self.account.hosts.is_empty() {
            add(&mut report, json!({"mirrors": self.account.mirrors, "hosts": self.account.hosts}));
        }
        report
    }

    /// The content of the first file: that of several writers of a sink is the sum over their files.
    fn content(&self) -> Option<String> {
        let first = self.written.first()?;
        let names: Vec<String> = (0..WRITERS_MAX as usize).map(|number| writer_name(&first.sink, number)).collect();
        let parts = self.written.iter().filter(|written| names.contains(&written.sink));
        let mut sums = parts.map(|part| u64::from_str_radix(part.product["content"].as_str()?, 16).ok());
        let sum = sums.try_fold(0, |sum: u64, part| Some(sum.wrapping_add(part?)))?;
        Some(format!("{sum:016x}"))
    }

    /// The form for programs where there is no run: the accounts of sources and stages, over all runs and starts.
    pub fn without_run(entries: &[Entry], stages: &StageReport) -> Value {
        let are_closed = stages.rows.iter().all(|row| row.closed) && entries.iter().all(|entry| entry.closed);
        let mut report = json!({
            "run": null,
            "written": [],
            "closed": stages.is_whole() && are_closed,
            "streams": [],
            "ledger": ledger_rows("all", entries, &[], &stages.rows),
            "gaps": stages.gaps().collect::<Vec<_>>(),
            "dead_time": [],
            "failed": [],
        });
        add(&mut report, stages.json());
        report
    }

    /// The form for people where there is no run.
    pub fn text_without_run(entries: &[Entry], stages: &StageReport) -> String {
        let lines: Vec<String> = entry_lines(entries).into_iter().chain(stages.rows.iter().map(row_line)).collect();
        let mut out = String::new();
        if !lines.is_empty() {
            out += "ledger\n";
            block(&mut out, "of all runs and starts", &lines);
        }
        block(&mut out, OF_SLOTS, &stages.statistics_lines());
        out
    }

    /// The form for people: one screen.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "run {}: {}\n", self.run, self.account.state);
        let _ = writeln!(out, "{:<14} {:>12} {:>15} {:>15} {:>8}", "stream", "messages", "events", "bytes", "lost");
        for s in &self.streams {
            let _ = writeln!(
                out,
                "{:<14} {:>12} {:>15} {:>15} {:>8}",
                s.name,
                thousands(s.messages),
                if s.events > 0 { thousands(s.events) } else { "-".into() },
                thousands(s.bytes),
                thousands(s.lost)
            );
        }
        for s in self.streams.iter().filter(|stream| stream.late > 0) {
            let _ =
                writeln!(out, "late: {} messages of `{}` came after the seal of the run", thousands(s.late), s.name);
        }
        self.ledger_text(&mut out);
        for f in &self.failed {
            let _ = writeln!(out, "\n{}", f.fault);
        }
        for w in &self.written {
            let text = |key: &str| w.product[key].as_str().unwrap_or("-").to_string();
            let size = w.product["size"].as_u64().unwrap_or(0);
            let _ = writeln!(out, "\nfile    {}  ({} bytes)", text("file"), thousands(size));
            let _ = writeln!(out, "blake3  {}", text("blake3"));
            let _ = writeln!(out, "content {}", text("content"));
            let file = text("file");
            if let Some((folder, "B3SUMS")) = file.rsplit_once('/') {
                let of = |key: &str| thousands(w.product[key].as_u64().unwrap_or(0));
                let _ = writeln!(out, "lists   {} files beside it, {} bytes", of("files"), of("bytes"));
                let _ = writeln!(out, "look    (cd '{}' && b3sum --check B3SUMS)", folder.replace('\'', "'\\''"));
                continue;
            }
            let _ = writeln!(
                out,
                "look    python -c \"import h5py; h5py.File('{}').visit(print)\"",
                text("file").replace('\'', "\\'")
            );
        }
        out
    }
}

impl Report {
    /// The account of the run closes, all code of the instrument has started, and all that it was to read has come.
    fn is_closed(&self) -> bool {
        self.account.closed && self.stages.is_whole()
    }

    /// The ledger, under a heading for each scope: the figures of a stage are larger than those of one run.
    fn ledger_text(&self, out: &mut String) {
        let _ = writeln!(out, "\nledger ({})", if self.is_closed() { "closed" } else { "NOT closed" });
        let mut entries = entry_lines(&self.account.entries);
        let absent = self.account.absences().map(|gap| format!("{}: data from this interval is unknown", absent(gap)));
        entries.extend(absent);
        entries.extend(dead_time_lines(&self.account.dead_time));
        entries.extend(clock_line(self.account.clock_step_ns));
        entries.extend(self.account.unknown().map(|stream| {
            format!("what `{stream}` lost is not known: messages of `{stream}.commits` do not verify or were released")
        }));
        entries.extend(self.account.mirrors.iter().map(mirror_line));
        entries.extend(self.account.rows.iter().map(row_line));
        block(out, "of this run", &entries);
        for host in &self.account.hosts {
            block(out, &format!("of this run on host {}", host.host), &host_lines(host));
        }
        let stage = |row: &Row| format!("{}{}", row_line(row), if row.closed { "" } else { "   NOT closed" });
        let stages = self.stages.rows.iter().map(stage).chain(missing_lines(&self.stages.missing));
        let silent = self.stages.silent.iter().map(|fault| format!("{}; its code has not started", fault.what));
        let absent = self.stages.absent.iter().map(|fault| format!("{}: {}", fault.what, fault.cause));
        let stages: Vec<String> = stages.chain(silent).chain(absent).collect();
        block(out, "of all runs and starts", &stages);
        block(out, OF_SLOTS, &self.stages.statistics_lines());
    }
}

/// Heading of what the code of workers counted.
const OF_SLOTS: &str = "of workers, since their slots started";

/// A part of the report under its heading.
fn block(out: &mut String, scope: &str, lines: &[String]) {
    if !lines.is_empty() {
        let _ = writeln!(out, "  -- {scope}");
    }
    for line in lines {
        let _ = writeln!(out, "  {line}");
    }
}

/// Adds the keys of one JSON object to another.
fn add(to: &mut Value, from: Value) {
    if let (Some(to), Value::Object(from)) = (to.as_object_mut(), from) {
        to.extend(from);
    }
}

/// The files of a run that sinks have finished, of `written` and, where it does not name them, of their last commits.
pub fn all_written(data: &Data, written: &[Written], sinks: &[String], run: &str) -> Result<Vec<Written>, Fault> {
    let mut all: Vec<Written> = written.iter().filter(|w| w.run == run && w.product.is_object()).cloned().collect();
    for sink in sinks {
        if !all.iter().any(|w| w.sink == *sink)
            && let Some(commit) = flow::last_commit(data, sink, run)?.filter(|c| c.finished)
        {
            let product = serde_json::from_str(&commit.state).unwrap_or_default();
            all.push(Written { sink: sink.clone(), run: run.into(), product });
        }
    }
    // In the order of the instrument file, whichever was finished first.
    all.sort_by_key(|written| sinks.iter().position(|sink| *sink == written.sink));
    Ok(all)
}

/// The files that a sink made of the run, as JSON.
fn written_row(written: &Written) -> Value {
    let Written { sink, product: made, .. } = written;
    json!({"sink": sink, "file": made["file"], "size": made["size"], "blake3": made["blake3"], "files": made["files"],
           "bytes": made["bytes"], "content": made["content"]})
}

fn failed_row(failed: &Failed) -> Value {
    let Failed { sink, fault, is_incomplete, .. } = failed;
    json!({"sink": sink, "what": fault.what, "cause": fault.cause, "hint": fault.hint, "incomplete": is_incomplete})
}

/// The ledger as one list: entries, then readers, then merges and workers.
fn ledger_rows(scope: &str, entries: &[Entry], readers: &[Row], stages: &[Row]) -> Vec<Value> {
    let entries = entries.iter().map(|e| {
        json!({"account": "entry", "scope": scope, "stream": e.stream, "origin": e.origin, "sent": e.sent,
               "appended": e.appended, "duplicate": e.duplicate, "skipped": e.skipped, "lost": e.lost, "refused": e.refused,
               "closed": e.closed})
    });
    let row = |kind: &str, scope: &str, r: &Row| {
        json!({"account": kind, "scope": scope, "stage": r.stage, "stream": r.stream, "read": r.read, "done": r.done,
               "aside": r.aside, "skipped": r.skipped, "lost": r.lost, "held": r.held, "closed": r.closed})
    };
    let readers = readers.iter().map(|r| row("reader", "run", r));
    entries.chain(readers).chain(stages.iter().map(|r| row("stage", "all", r))).collect()
}

/// The ledger as lines; origins of a stream are summed up where there are many.
pub fn ledger_lines(account: &Account) -> Vec<String> {
    let mut lines = entry_lines(&account.entries);
    lines.extend(account.mirrors.iter().map(mirror_line));
    lines.extend(account.rows.iter().map(row_line));
    lines.extend(account.hosts.iter().flat_map(|host| {
        let of = move |line| format!("{}: {line}", host.host);
        host_lines(host).into_iter().map(of)
    }));
    lines
}

/// The account of a run on another host.
fn host_lines(host: &HostAccount) -> Vec<String> {
    match (&host.account, host.state) {
        (Some(account), _) => {
            let mut lines = ledger_lines(account);
            let absent = account.absences().map(|gap| format!("{}: data from this interval is unknown", absent(gap)));
            lines.extend(absent);
            if lines.is_empty() {
                lines.push("nothing entered there".to_owned());
            }
            lines
        }
        (None, HostState::Absent) => vec![format!("absent: the run was sealed without {}", host.host)],
        (None, _) => vec!["its account is missing".to_owned()],
    }
}

/// The account of a mirror as a line.
fn mirror_line(mirror: &Mirrored) -> String {
    let Mirrored { stream, host, sent, received, missing, .. } = mirror;
    let sent = sent.map_or_else(|| "an unknown number".to_owned(), thousands);
    let (received, missing) = (thousands(*received), thousands(*missing));
    format!("{stream:<14} {sent} sent = {received} received + {missing} missing   (mirror of host {host})")
}

/// Those of the entries.
fn entry_lines(entries: &[Entry]) -> Vec<String> {
    let mut streams: BTreeMap<&str, EntrySum> = BTreeMap::new();
    for e in entries {
        streams.entry(&e.stream).or_default().add(e);
    }
    streams.iter().map(|(stream, sum)| sum.line(stream)).collect()
}

/// The entry accounts of a stream, origins summed up.
#[derive(Default)]
struct EntrySum {
    sent: u64,
    appended: u64,
    duplicate: u64,
    skipped: BTreeMap<String, u64>,
    lost: u64,
    refused: BTreeMap<String, u64>,
    origins: usize,
}

impl EntrySum {
    fn add(&mut self, entry: &Entry) {
        self.sent = self.sent.saturating_add(entry.sent);
        self.appended += entry.appended;
        self.duplicate += entry.duplicate;
        self.lost = self.lost.saturating_add(total(entry.lost.values()));
        for (sum, of) in [(&mut self.skipped, &entry.skipped), (&mut self.refused, &entry.refused)] {
            for (word, n) in of {
                let sum = sum.entry(word.clone()).or_default();
                *sum = sum.saturating_add(*n);
            }
        }
        self.origins += 1;
    }

    /// Duplicate, skipped and refused messages are left out where there are none; lost ones are always shown.
    fn line(&self, stream: &str) -> String {
        let twice =
            if self.duplicate > 0 { format!(" + {} duplicate", thousands(self.duplicate)) } else { String::new() };
        let some = |kind, by: &BTreeMap<String, u64>, before| match by.is_empty() {
            true => String::new(),
            false => format!("{before}{}", by_reason(kind, by)),
        };
        format!(
            "{stream:<14} {} sent{twice} = {} appended{} + {} lost{}   ({} origin{})",
            thousands(self.sent),
            thousands(self.appended),
            some("skipped", &self.skipped, " + "),
            thousands(self.lost),
            some("refused", &self.refused, ", "),
            self.origins,
            if self.origins == 1 { "" } else { "s" }
        )
    }
}

/// The newest ids that are named for each merge and reason.
const NAMED: usize = 5;

/// Ids that merges by number lack, a line for each merge and reason: `frames         6 ids missing (40-44, 61)`.
pub fn missing_lines(missing: &[Missing]) -> Vec<String> {
    let mut lines = Vec::new();
    for merge in missing {
        let mut by: BTreeMap<&str, Vec<&Gap>> = BTreeMap::new();
        for gap in &merge.gaps {
            by.entry(&gap.reason).or_default().push(gap);
        }
        let incomplete = merge
            .without
            .iter()
            .map(|(parts, count)| (format!("incomplete.{parts}"), format!("without {parts} of their parts"), *count));
        let missing = ("missing".to_owned(), "missing".to_owned(), merge.missing);
        for (reason, what, count) in incomplete.chain([missing]).filter(|(_, _, count)| *count > 0) {
            // The counts are of all, the list of the newest: of one reason it may have none any more.
            let gaps = by.get(reason.as_str()).map_or(&[][..], Vec::as_slice);
            let newest = &gaps[gaps.len().saturating_sub(NAMED)..];
            let is_all = newest.iter().map(|gap| gap.count()).sum::<u64>() == count;
            let more = (!is_all).then(|| "...".to_owned());
            let name = |gap: &&Gap| match gap.first == gap.last {
                true => gap.first.to_string(),
                false => format!("{}-{}", gap.first, gap.last),
            };
            let named: Vec<String> = more.into_iter().chain(newest.iter().map(name)).collect();
            let ids = if count == 1 { "id" } else { "ids" };
            lines.push(format!("{:<14} {} {ids} {what} ({})", merge.stage, thousands(count), named.join(", ")));
        }
    }
    lines
}

/// The dead times of sources, longest first, a line each; of those beyond [`DEAD_NAMED`] the sum.
pub(crate) fn dead_time_lines(all: &[DeadTime]) -> Vec<String> {
    let mut all: Vec<&DeadTime> = all.iter().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.nanoseconds));
    let (named, rest) = all.split_at(all.len().min(DEAD_NAMED));
    let text = |who: &str, ns: i64, intervals: u64| {
        let plural = if intervals == 1 { "" } else { "s" };
        format!("dead time of {who}: {} in {} interval{plural}", span(ns), thousands(intervals))
    };
    let mut lines: Vec<String> =
        named.iter().map(|one| text(&format!("`{}`", one.stream), one.nanoseconds, one.intervals)).collect();
    if !rest.is_empty() {
        let sum = rest.iter().fold(0, |sum: i64, one| sum.saturating_add(one.nanoseconds));
        lines.push(text(&format!("{} more", rest.len()), sum, rest.iter().map(|one| one.intervals).sum()));
    }
    lines
}

/// How far the wall clock was set in a run, where it was.
pub(crate) fn clock_line(step_ns: i64) -> Option<String> {
    let (way, ns) = if step_ns < 0 { ("back", step_ns.saturating_neg()) } else { ("forward", step_ns) };
    let line = || {
        let by = span(ns);
        format!("the clock of the machine was set {way} by {by}: source times before and after that do not agree")
    };
    (step_ns != 0).then(line)
}

/// The account of one input of a stage as a line.
fn row_line(r: &Row) -> String {
    format!(
        "{:<14} {} read = {} done + {} + {} + {} + {} held   ({})",
        r.stream,
        thousands(r.read),
        thousands(r.done),
        by_reason("aside", &r.aside),
        by_reason("skipped", &r.skipped),
        by_reason("lost", &r.lost),
        thousands(r.held),
        r.stage
    )
}

/// `0 aside`, `7 aside (unmatched)`, `9 aside (2 schema, 7 unmatched)`.
fn by_reason(word: &str, counts: &BTreeMap<String, u64>) -> String {
    let total = thousands(total(counts.values()));
    let reasons: Vec<String> = match counts.len() {
        1 => counts.keys().cloned().collect(),
        _ => counts.iter().map(|(reason, n)| format!("{} {reason}", thousands(*n))).collect(),
    };
    if reasons.is_empty() { format!("{total} {word}") } else { format!("{total} {word} ({})", reasons.join(", ")) }
}

/// Members are counted from the index. Events need the payloads: those of the ranges of the answer are missing.
fn count(data: &Data, run: &flow::records::Run, name: &str) -> Result<(StreamLine, Vec<Range<u64>>), Fault> {
    let members = members::count(data, run, name)?;
    let (messages, bytes) = (members.messages, members.bytes);
    let mut line = StreamLine { name: name.into(), messages, bytes, ..StreamLine::default() };
    let options = ReadOptions { early: true, check: Check::Nothing, ..ReadOptions::default() };
    let mut reader = data.reader(name, options)?;
    let clock = reader.header().clock;
    let begins = run.streams.iter().filter(|r| r.stream == name).map(|r| r.first).min().unwrap_or(0);
    let (spans, _) = run.spans(reader.header(), begins.max(reader.bounds().first), u64::MAX);
    let mut lost = Vec::new();
    for (first, end) in spans {
        reader.seek(first);
        lost.extend(flow::each_batch(&mut reader, end, &mut |batch| {
            let members = batch.iter().filter(|message| run.holds(clock.time_of(message.entry)));
            line.events += members.map(|message| events_of(message.payload)).sum::<u64>();
            Ok(true)
        })?);
    }
    if clock == store::Clock::Epoch {
        let sealed = run.streams.iter().filter(|r| r.stream == name).map(|r| r.next).max().unwrap_or(0);
        let (from, to) = reader.time_range(run.start, run.stop).map_err(|e| flow::stream_fault(name, e))?;
        let mut see = |entries: &[store::Entry]| {
            line.late += entries.iter().filter(|entry| run.holds(entry.source_time)).count() as u64;
        };
        reader.walk(from.max(sealed), to.max(sealed), &mut see).map_err(|e| flow::stream_fault(name, e))?;
    }
    Ok((line, lost))
}

/// Events inside a message; 0 for what is not made of events.
pub fn events_of(payload: &[u8]) -> u64 {
    if wire::schema_id(payload) != Some(wire::ev44::ID) {
        return 0;
    }
    wire::ev44::read(payload).map_or(0, |m| m.time_of_flight.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::{Report, StageReport, by_reason, missing_lines};
    use flow::Fault;
    use flow::ledger::{Account, Entry, Row};
    use flow::records::Gap;
    use flow::status::Missing;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// The report of a run whose worker and input balance.
    fn report() -> Report {
        let of = |stage: &str, read| Row {
            stage: stage.into(),
            stream: "camera".into(),
            read,
            done: read,
            aside: BTreeMap::new(),
            skipped: BTreeMap::new(),
            lost: BTreeMap::new(),
            held: 0,
            closed: true,
        };
        let entry = Entry {
            stream: "camera".into(),
            origin: "camera".into(),
            sent: 251,
            appended: 251,
            duplicate: 0,
            skipped: BTreeMap::new(),
            lost: BTreeMap::new(),
            refused: BTreeMap::new(),
            closed: true,
        };
        let account = Account {
            run: "first".into(),
            state: "sealed".into(),
            reason: String::new(),
            entries: vec![entry],
            rows: vec![of("file", 200)],
            gaps: Vec::new(),
            dead_time: Vec::new(),
            mirrors: Vec::new(),
            hosts: Vec::new(),
            clock_step_ns: 0,
            lost: 0,
            closed: true,
        };
        Report {
            run: "first".into(),
            written: Vec::new(),
            failed: Vec::new(),
            streams: Vec::new(),
            account,
            stages: StageReport { rows: vec![of("brightest", 548)], ..StageReport::default() },
            damaged: Vec::new(),
        }
    }

    #[test]
    fn each_figure_has_its_scope() {
        let report = report();
        let text = report.text();
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("ledger")).collect();
        let words: Vec<&str> = lines.iter().map(|line| line.split(" = ").next().unwrap_or_default()).collect();
        assert_eq!(
            words,
            [
                "ledger (closed)",
                "  -- of this run",
                "  camera         251 sent",
                "  camera         200 read",
                "  -- of all runs and starts",
                "  camera         548 read",
            ]
        );
        let with = |stages: StageReport| Report { stages, ..report.clone() };
        let silent = vec![Fault::new("slot 0 of worker `w` fails", "x")];
        let silent = with(StageReport { silent, ..report.stages.clone() });
        let (text, json) = (silent.text(), silent.json());
        assert!(text.contains("ledger (NOT closed)") && text.contains("worker `w` fails; its code has not started"));
        assert!(json["closed"] == false && json["silent"][0]["cause"] == "x", "{json}");
        let absent = vec![Fault::new("source `pvs`: 1 PV has no value", "`A`")];
        let absent = with(StageReport { absent, ..report.stages.clone() });
        assert!(absent.text().contains("NOT closed") && absent.text().contains("1 PV has no value: `A`"));
        assert!(absent.json()["closed"] == false && absent.json()["absent"][0]["cause"] == "`A`");
        let frames = json!({"0": {"groups": 1000, "few": 0}, "1": {"share": 0.5}});
        let counted = json!({"frames": frames, "idle": {"0": {"n": 0}}});
        let statistics = counted.as_object().cloned().unwrap();
        let counted = with(StageReport { statistics, ..report.stages.clone() });
        let text = counted.text();
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains("since their slots")).take(3).collect();
        assert_eq!(lines[1..], ["  frames         groups 1,000   (slot 0)", "  frames         share 0.5   (slot 1)"]);
        assert!(!text.contains("idle") && counted.json()["statistics"]["frames"]["1"]["share"] == 0.5);
        let json = report.json();
        let scopes: Vec<&str> =
            json["ledger"].as_array().unwrap().iter().filter_map(|row| row["scope"].as_str()).collect();
        assert_eq!(scopes, ["run", "run", "all"]);
    }

    #[test]
    fn ids_that_are_missing_are_named() {
        let gap = |first, last, reason: &str| Gap {
            stream: "frames".into(),
            origin: String::new(),
            first,
            last,
            from: i64::MIN,
            to: i64::MAX,
            reason: reason.into(),
            by_sequence: false,
            count: 0,
        };
        let of = |missing, gaps: &[Gap]| {
            let without = BTreeMap::from([(2, 1)]);
            let gaps = gaps.to_vec().into();
            missing_lines(&[Missing { stage: "frames".into(), missing, incomplete: 1, without, gaps }])
        };
        let mut missing = vec![gap(40, 44, "missing"), gap(10, 10, "incomplete.2"), gap(61, 61, "missing")];
        assert_eq!(
            of(6, &missing),
            ["frames         1 id without 2 of their parts (10)", "frames         6 ids missing (40-44, 61)"]
        );
        missing.extend((0..4).map(|n| gap(1000 + 2 * n, 1000 + 2 * n, "missing")));
        assert!(of(10, &missing)[1].ends_with("10 ids missing (..., 61, 1000, 1002, 1004, 1006)"));
        // The oldest are not listed any more.
        assert_eq!(
            of(10, &missing[3..]),
            [
                "frames         1 id without 2 of their parts (...)",
                "frames         10 ids missing (..., 1000, 1002, 1004, 1006)"
            ]
        );
    }

    #[test]
    fn what_is_not_in_the_file_is_told_with_its_reason() {
        let told = |list: &[(&str, u64)]| {
            let counts: BTreeMap<String, u64> = list.iter().map(|(reason, n)| (reason.to_string(), *n)).collect();
            by_reason("aside", &counts)
        };
        assert_eq!(told(&[]), "0 aside");
        assert_eq!(told(&[("unmatched", 28_000)]), "28,000 aside (unmatched)");
        assert_eq!(told(&[("schema", 2), ("unmatched", 7)]), "9 aside (2 schema, 7 unmatched)");
    }
}
