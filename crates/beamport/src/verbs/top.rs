//! `beamport top`: streams, readers and runs, looked at each second.
//!
//! On a terminal it takes the alternate screen and gives it back at Ctrl-C. Otherwise it looks twice, a second apart, so
//! that there are rates, prints once and ends; with `--json` it prints an object a second for as long as somebody
//! reads, but with `--once` only one.

use super::figures::{bytes, known, percent, si, span, thousands};
use super::table::Table;
use super::{Answer, Asked, Verb, ended, json_line, ls, open};
use crate::arguments::{DataFolder, Form};
use crate::edges::Registry;
use crate::limits::{RUNS_SHOWN, SHOWN};
use crate::mover::{self, Glance};
use clap::Args;
use flow::status::verdict::{Part, line};
use flow::status::{Status, StreamStatus, Watch, WorkerStatus};
use flow::{Data, Fault};
use serde::Serialize;
use serde_json::Value;
use settings::shortened;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks.
const PERIOD: Duration = Duration::from_secs(1);
/// How often it looks whether it is to end.
const NAP: Duration = Duration::from_millis(50);
/// Runs shown: the newest.
const RUNS: usize = 5;

/// `beamport top`
#[derive(Debug, Args)]
#[command(
    about = "Show streams, readers and runs, refreshed each second",
    after_help = "Examples:\n  beamport top\n  beamport top --all\n  beamport top --once --json"
)]
pub struct Top {
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Show all streams, readers and sources, not only the twenty worst of each by loss, lag and fill
    #[arg(long)]
    pub all: bool,
    /// Print once and end, with the rates of one second; without it `--json` prints an object a second
    #[arg(long)]
    pub once: bool,
    /// Output format: JSON is one object a second.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Top {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(watch(self, out), err)
    }
}

fn watch(asked: &Top, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let mut watch = Watch::new(&data).newest(RUNS_SHOWN);
    let signals = Asked::to_end()?;
    let mut status = Shown::read(&mut watch, &data)?;
    if asked.form.json && asked.once {
        pause(&signals);
        json_line(out, &Shown::read(&mut watch, &data)?)?;
    } else if asked.form.json {
        while !signals.yes() {
            json_line(out, &status)?;
            out.flush()?;
            pause(&signals);
            status = Shown::read(&mut watch, &data)?;
        }
    } else if io::stdout().is_terminal() && !asked.once {
        // Alternate screen, cursor hidden; both undone whatever happens below.
        write!(out, "\x1b[?1049h\x1b[?25l")?;
        let answer = redraw(&data, &mut watch, status, (asked.all, &signals), out);
        write!(out, "\x1b[?25h\x1b[?1049l")?;
        out.flush()?;
        answer?;
    } else {
        pause(&signals);
        write!(out, "{}", Shown::read(&mut watch, &data)?.text(asked.all))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn redraw(
    data: &Data,
    watch: &mut Watch,
    mut status: Shown,
    (all, signals): (bool, &Asked),
    out: &mut dyn Write,
) -> Result<(), flow::Interruption> {
    while !signals.yes() {
        let (columns, rows) = terminal_size();
        let mut screen = String::from("\x1b[H");
        for line in status.text(all).lines().take(rows.saturating_sub(1)) {
            screen += &cut(line, columns);
            screen.push_str("\x1b[K\n");
        }
        screen.push_str("\x1b[J");
        out.write_all(screen.as_bytes())?;
        out.flush()?;
        pause(signals);
        status = Shown::read(watch, data)?;
    }
    Ok(())
}

/// A line as wide as the terminal; a `>` at its end says that there is more, so that half a number is not taken for one.
fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns.saturating_sub(1)).chain(['>']).collect()
}

fn pause(signals: &Asked) {
    let end = Instant::now() + PERIOD;
    while Instant::now() < end && !signals.yes() {
        std::thread::sleep(NAP);
    }
}

/// Columns and rows of the terminal; 80 x 24 where it does not say.
fn terminal_size() -> (usize, usize) {
    // SAFETY: zero is a valid value of this plain structure.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let told = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) } == 0;
    match (told, size.ws_col, size.ws_row) {
        (true, 1.., 1..) => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// What is shown at once: what the data folder holds, and what the running instrument says of itself.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: Status,
    #[serde(flatten)]
    glance: Glance,
    /// The parts of the first line.
    verdict: Vec<Part>,
}

impl Shown {
    fn read(watch: &mut Watch, data: &Data) -> Result<Self, Fault> {
        Ok(Self::of(watch.status(data.media.now(), false)?, mover::glance(&data.folder)))
    }

    fn of(status: Status, glance: Glance) -> Self {
        let verdict = glance.verdict(&status);
        Self { status, glance, verdict }
    }

    /// `all`: not only the worst.
    fn text(&self, all: bool) -> String {
        let most = if all { usize::MAX } else { SHOWN };
        let (shown, others) = worst(&self.status, most);
        let is_left_out = |name: &str| others.iter().any(|stream| stream.name == name);
        let troubles = self.glance.troubles.iter().take(most).map(|trouble| format!("\n{trouble}\n"));
        let is_paused = |name: &str| self.glance.running.get(name).is_some_and(|stage| stage["paused"] == true);
        let mut text = text(&self.status, &line(&self.verdict), (&shown, &others), most, &is_paused);
        text += &on_hosts(&self.glance, most);
        text += &running(&self.glance, &is_left_out);
        text.extend(troubles);
        text + &more("troubles", self.glance.troubles.len(), most)
    }
}

/// The status that sources and live sinks report.
fn running(glance: &Glance, is_left_out: &dyn Fn(&str) -> bool) -> String {
    let mut table = Table::new(&["stage", "kind", "status"]);
    let shown = glance.running.iter().filter(|(name, _)| !is_left_out(name));
    for (name, stage) in shown.filter(|(_, stage)| !stage["status"].is_null()) {
        let status = match &stage["status"] {
            Value::Object(figures) => pairs(figures.iter()),
            other => shortened(&other.to_string()),
        };
        table.row([name.clone(), shortened(stage["kind"].as_str().unwrap_or_default()), status]);
    }
    if table.is_empty() { String::new() } else { format!("\n{table}") }
}

/// All hosts with what they wait for; the workers of other hosts, as these have said last, and what their slots say of
/// themselves.
fn on_hosts(glance: &Glance, most: usize) -> String {
    let mut workers = Table::new(&[
        "host",
        "state",
        "worker",
        ">slots",
        ">living",
        ">starting",
        ">away",
        ">restarts",
        ">messages",
        ">aside",
        ">filtered",
    ]);
    let mut own = Table::new(&["host", "worker", ">slot", "statistics"]);
    let mut hosts = Table::new(&["host", "state", ">mirrors", ">behind", ">lost", "waits most for"]);
    for (host, of) in glance.hosts.iter().take(most) {
        let mirrors = of["mirrors"].as_array().map_or(&[][..], Vec::as_slice);
        let lag = |mirror: &Value| mirror["lag"].as_u64().unwrap_or(0);
        let worst = mirrors.iter().max_by_key(|mirror| lag(mirror)).filter(|mirror| lag(mirror) > 0);
        let name = |mirror: &Value, key: &str| shortened(mirror[key].as_str().unwrap_or_default());
        hosts.row([
            host.clone(),
            of["state"].as_str().unwrap_or_default().to_owned(),
            thousands(mirrors.len() as u64),
            match mirrors.iter().any(|mirror| mirror["lag"].is_null()) {
                true => "-".to_owned(),
                false => thousands(mirrors.iter().map(lag).fold(0, u64::saturating_add)),
            },
            of["lost"].as_u64().map_or_else(|| "-".to_owned(), thousands),
            worst.map_or_else(
                || "-".to_owned(),
                |mirror| format!("{} of {}", name(mirror, "stream"), name(mirror, "of")),
            ),
        ]);
    }
    let others = glance.hosts.iter().filter(|(_, of)| of["is_here"] != true);
    let rows = others.flat_map(|(host, of)| {
        let workers = of["workers"].as_object().into_iter().flatten();
        workers.map(move |(worker, state)| (host, of["state"].as_str().unwrap_or_default(), worker, state))
    });
    let all = rows.clone().count();
    for (host, up, worker, state) in rows.take(most) {
        let number = |name: &str| thousands(state["numbers"][name].as_u64().unwrap_or(0));
        let names = [host.clone(), up.to_owned(), shortened(worker)];
        let numbers = ["slots", "living", "starting", "away", "restarts", "messages", "aside", "filtered"].map(number);
        workers.row(names.into_iter().chain(numbers));
        for (slot, of_slot) in state["statistics"].as_object().into_iter().flatten() {
            let said = pairs(of_slot.as_object().into_iter().flatten());
            own.row([host.clone(), shortened(worker), shortened(slot), said]);
        }
    }
    tables(&[hosts, workers, own]) + &more("hosts", glance.hosts.len(), most) + &more("workers of hosts", all, most)
}

/// The tables that have rows, each behind an empty line.
fn tables(all: &[Table]) -> String {
    all.iter().filter(|table| !table.is_empty()).map(|table| format!("\n{table}")).collect()
}

/// Figures by name, in one line. `streams`, a row for each origin, is for programs.
fn pairs<'a>(figures: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    let figures = figures.filter(|(name, _)| *name != "streams");
    let pairs: Vec<String> = figures.map(|(name, value)| shortened(&format!("{name}={}", short(value)))).collect();
    pairs.join(" ")
}

/// A value; of a list of objects only what they hold.
fn short(value: &Value) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |row: &Value| match row {
        Value::Object(cells) => cells.values().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    match value {
        Value::Array(rows) => format!("[{}]", rows.iter().map(row).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// The streams to be shown, in the order of their names, and the others: of those that no merge or worker fills the
/// `most` worst by loss, lag and fill.
fn worst(status: &Status, most: usize) -> (Vec<&StreamStatus>, Vec<&StreamStatus>) {
    let is_filled = |stream: &StreamStatus| status.stages.iter().any(|row| row.stage == stream.name);
    let (mut shown, mut sources): (Vec<_>, Vec<_>) = status.streams.iter().partition(|stream| is_filled(stream));
    sources.sort_by(|a, b| (b.lost, b.lag).cmp(&(a.lost, a.lag)).then(b.fill.total_cmp(&a.fill)));
    let others = sources.split_off(sources.len().min(most));
    shown.extend(sources);
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    (shown, others)
}

/// How many there are beyond those that are shown.
fn more(what: &str, all: usize, most: usize) -> String {
    let left = all.saturating_sub(most);
    if left > 0 { format!("{} more {what}: `beamport top --all`\n", thousands(left as u64)) } else { String::new() }
}

fn text(
    status: &Status,
    verdict: &str,
    (shown, others): (&[&StreamStatus], &[&StreamStatus]),
    most: usize,
    is_paused: &dyn Fn(&str) -> bool,
) -> String {
    let mut text = format!("{}  {}\n{verdict}\n\n", super::figures::moment(status.time), status.data);
    text += &streams(shown, others).to_string();
    text += &readers(shown.iter().chain(others), most);
    text += &workers(&status.workers, is_paused);
    let is_stream = |name: &str| status.streams.iter().any(|stream| stream.name == name);
    let live: Vec<_> = status.stages.iter().filter(|row| !is_stream(&row.stage)).collect();
    if !live.is_empty() {
        text += &format!("\n{}", ls::stages("sink", &live));
    }
    if !status.runs.is_empty() {
        let newest = status.runs.len().saturating_sub(RUNS);
        let shown = Status { runs: status.runs[newest..].to_vec(), ..status.clone() };
        text += &format!("\n{}", ls::runs(&shown));
        let others = newest as u64 + status.older_runs;
        if others > 0 {
            text += &format!("and {} more runs: `beamport ls --all`\n", thousands(others));
        }
    }
    for line in status.streams.iter().flat_map(ls::gone_readers) {
        text += &format!("\n{line}\n");
    }
    for s in &status.streams {
        if let Some(ahead) = s.arrival_ahead_ns {
            let name = shortened(&s.name);
            text += &format!("\nstream `{name}`: its newest arrival is {} ahead of the machine's clock\n", span(ahead));
        }
    }
    for broken in &status.unreadable {
        text += &format!("\nstream `{}` cannot be read: {}\n", shortened(&broken.name), broken.why);
    }
    text
}

/// Streams, and the sums of the others.
fn streams(shown: &[&StreamStatus], others: &[&StreamStatus]) -> Table {
    let rate = |rate: Option<f64>, unit: &str| rate.map_or_else(|| "-".into(), |r| si(r, unit));
    let mut streams =
        Table::new(&["stream", ">messages", ">messages/s", ">bytes", ">bytes/s", ">lost", ">lag", ">fill", ">late"]);
    for s in shown {
        streams.row([
            s.name.clone(),
            thousands(s.messages),
            rate(s.messages_per_s, "/s"),
            bytes(s.bytes),
            rate(s.bytes_per_s, "B/s"),
            thousands(s.lost),
            thousands(s.lag),
            percent(s.fill),
            thousands(s.late),
        ]);
    }
    if !others.is_empty() {
        let sum = |of: &dyn Fn(&StreamStatus) -> u64| others.iter().fold(0_u64, |sum, s| sum.saturating_add(of(s)));
        let rates = |of: &dyn Fn(&StreamStatus) -> Option<f64>| others.iter().map(|s| of(s)).sum::<Option<f64>>();
        streams.row([
            format!("({} more)", others.len()),
            thousands(sum(&|s| s.messages)),
            rate(rates(&|s| s.messages_per_s), "/s"),
            bytes(sum(&|s| s.bytes)),
            rate(rates(&|s| s.bytes_per_s), "B/s"),
            thousands(sum(&|s| s.lost)),
            thousands(others.iter().map(|s| s.lag).max().unwrap_or(0)),
            percent(others.iter().map(|s| s.fill).fold(0.0, f64::max)),
            thousands(sum(&|s| s.late)),
        ]);
    }
    streams
}

/// The readers of streams: where there are more than `most`, those with the longest lag.
fn readers<'a>(streams: impl Iterator<Item = &'a &'a StreamStatus>, most: usize) -> String {
    let mut held: Vec<_> = streams.flat_map(|s| s.readers.iter().map(|reader| (*s, reader))).collect();
    let left = held.len();
    if left > most {
        held.sort_by_key(|(_, reader)| std::cmp::Reverse(reader.lag));
        held.truncate(most);
    }
    let mut readers = Table::new(&["reader", "stream", "kind", ">lag", ">process"]);
    for (s, r) in held {
        let name = if r.name.is_empty() { "-".into() } else { shortened(&r.name) };
        let pid = r.pid.map_or_else(|| "-".into(), |pid| pid.to_string());
        readers.row([name, s.name.clone(), r.kind.to_owned(), known(r.lag), pid]);
    }
    if readers.is_empty() { String::new() } else { format!("\n{readers}") + &more("readers", left, most) }
}

/// Workers, and what their slots say of themselves.
fn workers(all: &[WorkerStatus], is_paused: &dyn Fn(&str) -> bool) -> String {
    let mut workers = Table::new(&[
        "worker",
        ">slots",
        ">living",
        ">starting",
        ">away",
        ">restarts",
        ">messages",
        ">messages/s",
        ">lag",
        ">aside",
        ">filtered",
        ">lost",
        "code",
    ]);
    let mut own = Table::new(&["worker", ">slot", "statistics"]);
    for w in all {
        workers.row([
            w.name.clone(),
            thousands(w.slots),
            thousands(w.living),
            thousands(w.starting),
            thousands(w.away),
            thousands(w.restarts),
            thousands(w.messages),
            w.messages_per_s.map_or_else(|| "-".into(), |r| si(r, "/s")),
            thousands(w.lag),
            thousands(w.aside),
            thousands(w.filtered),
            thousands(w.lost),
            code(w) + if is_paused(&w.name) { " (paused)" } else { "" },
        ]);
        for (slot, numbers) in &w.statistics {
            own.row([w.name.clone(), slot.to_string(), pairs(numbers.iter())]);
        }
    }
    tables(&[workers, own])
}

/// Digits of a hash that are shown: two versions of one file differ in them.
const HASH_DIGITS: usize = 8;

/// Which code a worker runs: since when, or beside whom.
fn code(w: &WorkerStatus) -> String {
    let mut text = shortened(&w.call);
    if let Some(hash) = &w.hash {
        text += &format!("@{}", hash.get(..HASH_DIGITS).unwrap_or(hash));
    }
    for from in w.since.as_array().into_iter().flatten() {
        text += &format!(" (since {} {})", shortened(from["stream"].as_str().unwrap_or_default()), from["sequence"]);
    }
    if let Some(old) = &w.shadow {
        let slow = if w.slow > 0 { format!(", skipped {}", thousands(w.slow)) } else { String::new() };
        text += &format!(" (shadow of {}{slow})", shortened(old));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::status::ReaderStatus;
    use serde_json::json;

    #[test]
    fn half_a_number_on_a_narrow_terminal_is_not_taken_for_one() {
        assert_eq!(cut("detector  12,345", 20), "detector  12,345");
        assert_eq!(cut("detector  12,345", 16), "detector  12,345");
        assert_eq!(cut("detector  12,345", 13), "detector  12>");
        assert_eq!(cut("detector", 1), ">");
    }

    /// All of it.
    fn whole(status: &Status) -> String {
        Shown::of(status.clone(), Glance::default()).text(true)
    }

    #[test]
    fn hosts_are_shown_with_what_they_wait_for_and_workers_of_others_with_their_slots() {
        let of = |messages: u64| {
            let numbers = json!({"slots": 2, "living": 1, "away": 1, "restarts": 3, "messages": messages});
            json!({"points": {"numbers": numbers, "statistics": {"0": {"share": 0.5}}}})
        };
        let mirrors = json!([{"stream": "x", "of": "b", "lag": 2}, {"stream": "y", "of": "b", "lag": 1500}]);
        let hosts = json!({
            "a": {"state": "up", "is_here": true, "mirrors": mirrors, "workers": of(7), "lost": 5},
            "n1": {"state": "up", "workers": of(1200)},
            "n2": {"state": "away", "workers": null},
        });
        let glance = Glance { hosts: hosts.as_object().cloned().unwrap(), ..Glance::default() };
        let text = on_hosts(&glance, 20);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let head = "host state worker slots living starting away restarts messages aside filtered";
        let row = "n1 up points 2 1 0 1 3 1,200 0 0";
        let hosts = ["host state mirrors behind lost waits most for", "a up 2 1,502 5 y of b", "n1 up 0 0 - -"];
        assert_eq!(lines[1..4], hosts);
        assert_eq!(lines[5..], ["", head, row, "", "host worker slot statistics", "n1 points 0 share=0.5"]);
        assert_eq!(on_hosts(&Glance::default(), 20), "");
    }

    #[test]
    fn of_many_streams_the_worst_are_shown() {
        let stream = |at: u64| StreamStatus {
            lost: if at == 50 { 7 } else { 0 },
            lag: at,
            fill: 0.25,
            ..stream(&format!("d{at:03}"), Vec::new())
        };
        let row = flow::ledger::Row {
            stage: "all".into(),
            stream: "d000".into(),
            read: 0,
            done: 0,
            aside: [].into(),
            skipped: [].into(),
            lost: [].into(),
            held: 0,
            closed: true,
        };
        let mut streams: Vec<_> = (0..120).map(stream).collect();
        streams.push(StreamStatus { lag: 0, ..super::tests::stream("all", Vec::new()) });
        let status = Status { streams, stages: vec![row], ..none() };
        let (shown, others) = worst(&status, 20);
        let names: Vec<_> = shown.iter().map(|stream| stream.name.as_str()).collect();
        assert_eq!((names.len(), others.len()), (21, 100));
        assert_eq!((names[0], names[1], names[2], names[20]), ("all", "d050", "d101", "d119"));
        let seen = Shown::of(status, Glance::default()).text(false);
        assert!(seen.contains("(100 more)") && seen.contains("1,400"), "{seen}");
    }

    /// Nothing.
    fn none() -> Status {
        Status {
            time: 0,
            data: "d".into(),
            streams: Vec::new(),
            workers: Vec::new(),
            runs: Vec::new(),
            unreadable: Vec::new(),
            stages: Vec::new(),
            missing: Vec::new(),
            damaged: Vec::new(),
            older_runs: 0,
            older_totals: flow::status::RunTotals::default(),
        }
    }

    /// A stream of 14 messages.
    fn stream(name: &str, readers: Vec<ReaderStatus>) -> StreamStatus {
        StreamStatus {
            name: name.into(),
            level: "memory",
            clock: "epoch",
            first: 10,
            count: 24,
            disk: None,
            messages: 14,
            bytes: 1400,
            stored_bytes: 4096,
            live_bytes: 0,
            messages_per_s: Some(14.0),
            bytes_per_s: None,
            lost: 0,
            lost_reason: None,
            losing: false,
            alarms: Vec::new(),
            lag: 12,
            fill: 0.0,
            late: 0,
            writer: None,
            orphaned: false,
            elsewhere: false,
            arrival_ahead_ns: Some(7_200_000_000_000),
            cut: Vec::new(),
            parents: Vec::new(),
            readers,
        }
    }

    #[test]
    fn readers_stand_below_streams() {
        let reader = ReaderStatus { name: "nexus:7".into(), kind: "counted", lag: Some(12), pid: None, gone: false };
        let stream = stream("detector", vec![reader]);
        let numbers = [("spots".to_owned(), 3.into()), ("mean".to_owned(), 0.5.into())].into();
        let worker = WorkerStatus {
            name: "peaks".into(),
            slots: 4,
            living: 2,
            starting: 1,
            away: 1,
            restarts: 5,
            messages: 1234,
            messages_per_s: Some(12.0),
            lag: 7,
            aside: 1,
            filtered: 2,
            lost: 0,
            slow: 0,
            call: "mine.py:peaks".into(),
            hash: Some("1a2b3c4d".repeat(8)),
            since: serde_json::json!([{"stream": "detector", "epoch": 0, "sequence": 40}]),
            shadow: None,
            statistics: [(0, numbers)].into(),
        };
        let shadow = WorkerStatus { shadow: Some("peaks".into()), slow: 1200, since: ().into(), ..worker.clone() };
        assert_eq!(code(&shadow), "mine.py:peaks@1a2b3c4d (shadow of peaks, skipped 1,200)");
        let status = Status { streams: vec![stream], workers: vec![worker], ..none() };
        assert_eq!(
            whole(&status),
            "1970-01-01T00:00:00.000Z  d\n\
             no instrument runs \u{b7} 1 worker moved messages aside (peaks, 1 message)\n\n\
             stream    messages  messages/s    bytes  bytes/s  lost  lag  fill  late\n\
             detector        14       14 /s  1.40 kB        -     0   12   0 %     0\n\
             \n\
             reader   stream    kind     lag  process\n\
             nexus:7  detector  counted   12        -\n\
             \n\
             worker  slots  living  starting  away  restarts  messages  messages/s  lag  aside  filtered  lost  code\n\
             peaks       4       2         1     1         5     1,234       12 /s    7      1         2     0  mine.py:peaks@1a2b3c4d (since detector 40)\n\
             \n\
             worker  slot  statistics\n\
             peaks      0  mean=0.5 spots=3\n\
             \n\
             stream `detector`: its newest arrival is 2 h 00 min ahead of the machine's clock\n"
        );
    }
}
