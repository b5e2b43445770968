//! `beamport verify`: reads every byte of streams, names what is wrong, and with `--repair` makes good what can be proven.
//!
//! Every range of messages that is lost is named. A stream that a sealed run has members in and that is not there, or not
//! all there, is damage as well. Exit status 1 with damage; 2 where a file cannot be read at all, or there is nothing to
//! verify. What is named may be a file that was made: `verify_file`.

use super::figures::{bytes, si, span, thousands};
use super::table::Table;
use super::{Answer, Verb, ended, json_line, open, verify_file};
use crate::arguments::{DataFolder, Form};
use crate::edges::Registry;
use clap::Args;
use flow::records::{Range, Run};
use flow::status;
use flow::{Data, Fault, stream_fault};
use serde_json::{Value, json};
use settings::shortened;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::{Error, Repaired, Verified};
use wire::bprn::State;

/// How often the progress is drawn.
const DRAW: Duration = Duration::from_millis(100);
/// How often a line says it where there is no terminal: a log of an hour stays short.
const LINE: Duration = Duration::from_secs(10);

/// `beamport verify`
#[derive(Debug, Args)]
#[command(
    about = "Read every byte of streams or of a file, and report damage",
    after_help = "Examples:\n\
                  \x20 beamport verify\n\
                  \x20 beamport verify detector --json\n\
                  \x20 beamport verify detector --repair\n\
                  \x20 beamport verify ./amor_1.nxs"
)]
pub struct Verify {
    /// Name of a stream, or path of a sink's file or of its B3SUMS [default: all streams]
    #[arg(value_name = "STREAM|FILE")]
    pub stream: Option<String>,
    /// Repair what checksums can prove; keeps a copy of each damaged file
    #[arg(long)]
    pub repair: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Verify {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(verify(self, out, err), err)
    }
}

fn verify(asked: &Verify, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    // Names of streams have no `/`.
    let path = asked.stream.as_deref().map(Path::new);
    if let Some(file) = path.filter(|path| path.components().count() > 1) {
        return verify_file::verify(asked, file, out, err);
    }
    let data = open(&asked.data)?;
    // A stream of runs that does not verify is in the table like any other.
    let runs: Vec<Run> = flow::runs::runs(&data).unwrap_or_default();
    let members = || runs.iter().filter(|run| run.state == State::Sealed).flat_map(|run| &run.streams);
    let mut names = data.streams(true)?;
    names.extend(status::unreadable(&data)?.into_iter().map(|b| b.name));
    names.extend(members().map(|range| range.stream.clone()));
    names.sort();
    names.dedup();
    let none_in = format!("there is none in {}", data.folder.display());
    if let Some(stream) = &asked.stream {
        if !names.contains(stream) && Path::new(stream).exists() {
            return verify_file::verify(asked, Path::new(stream), out, err);
        }
        if !names.contains(stream) {
            return Err(Fault::new(format!("no stream `{}`", shortened(stream)), none_in)
                .hint("`beamport ls` lists the streams")
                .into());
        }
        names.retain(|name| name == stream);
    }
    if names.is_empty() {
        return Err(Fault::new("no stream to verify", none_in)
            .hint("name the folder that holds the streams with `--data DIR`")
            .into());
    }
    let mut progress = Progress::new();
    let mut table = Table::new(&["stream", ">messages", ">bytes read", "schemas", "result"]);
    let (mut streams, mut told, mut wrong) = (Vec::new(), Vec::new(), false);
    let mut mendable = false;
    for name in &names {
        let folder = data.stream(name);
        let mut draw = |done, of| progress.draw(err, name, done, of);
        let mut seen = store::verify(&data.media, &folder, &mut draw);
        let mut repaired = None;
        if asked.repair && seen.as_ref().map_or(true, |seen| seen.wrong > 0 || !seen.flaws.is_empty()) {
            match store::repair(&data.media, &folder, &mut draw) {
                Ok(done) => {
                    seen = Ok(done.left.clone());
                    repaired = Some(done);
                }
                // A stream that cannot be read at all keeps its first error: it says more than that of the repair.
                Err(why) => seen = seen.and(Err(why)),
            }
        }
        progress.clear(err);
        let made_good = repaired.as_ref().map(made_good);
        let short = shortened(name);
        let seen = match seen {
            Ok(seen) => seen,
            Err(e @ Error::Io { .. }) => return Err(stream_fault(name, e).into()),
            Err(why) => {
                wrong = true;
                mendable |= matches!(why, Error::Format { .. });
                let why = if let Error::Missing(path) = &why {
                    match path.is_dir() {
                        true => format!("its header {} is missing", path.join("stream").display()),
                        false => format!("{} is missing", path.display()),
                    }
                } else {
                    why.to_string()
                };
                streams.push(json!({"stream": name, "ok": false, "wrong": why, "lost": 0, "ranges": []}));
                table.row([short, "-".into(), "-".into(), String::new(), why]);
                continue;
            }
        };
        let first = seen.damage.first().map(|damage| damage.why.clone());
        let first = first.or_else(|| members().find_map(|range| cut(&data, range, name, &seen)));
        // Most books have no origins, and no table of them.
        let is_book = name == flow::RUNS || name == "control" || name == "status" || name.contains('.');
        let path = folder.join("origins");
        let has_table = std::fs::metadata(&path).is_ok_and(|table| table.len() > 0);
        let nameless = (seen.nameless > 0 && (!is_book || has_table)).then(|| {
            format!("the origin of {} messages is unknown: {} is damaged", thousands(seen.nameless), path.display())
        });
        let first = first.or_else(|| seen.flaws.first().cloned()).or_else(|| nameless.clone());
        mendable |= seen.wrong > 0 || !seen.flaws.is_empty();
        told.extend(seen.flaws.iter().chain(&nameless).map(|flaw| format!("{short}: {flaw}")));
        wrong |= first.is_some();
        told.extend(seen.damage.iter().map(|damage| format!("{short}: {damage}")));
        let messages: u64 = seen.schemas.iter().map(|s| s.1).sum();
        let schemas: Vec<String> = seen.schemas.iter().map(|s| s.0.as_text()).collect();
        // Messages that retention deleted from the parents of a view are no damage.
        let gone =
            (seen.gone > 0).then(|| format!("{} are no longer in the parents of this view", thousands(seen.gone)));
        let result = made_good.iter().cloned().chain([first.clone().unwrap_or("ok".into())]).chain(gone);
        let result: Vec<String> = result.collect();
        table.row([short, thousands(messages), bytes(seen.bytes), schemas.join(" "), result.join("; ")]);
        let ranges: Vec<_> =
            seen.damage.iter().map(|d| json!({"first": d.first, "last": d.end - 1, "why": d.why})).collect();
        let copies: Vec<_> = repaired.iter().flat_map(|r| &r.copies).map(|p| p.display().to_string()).collect();
        streams.push(json!({"stream": name, "ok": first.is_none(), "first": seen.first, "messages": messages,
            "gone": seen.gone, "bytes": seen.bytes, "schemas": schemas, "wrong": first, "lost": seen.wrong, "ranges": ranges,
            "flaws": seen.flaws, "nameless": nameless.map_or(0, |_| seen.nameless),
            "repaired": made_good, "copies": copies}));
    }
    if asked.form.json {
        json_line(out, &json!({"ok": !wrong, "streams": Value::from(streams)}))?;
    } else {
        write!(out, "{table}")?;
        told.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    if mendable && !asked.repair {
        writeln!(err, "hint:  run `beamport verify --repair` to repair what can be proven")?;
    }
    Ok(ExitCode::from(u8::from(wrong)))
}

/// Why a stream that verifies is not all that a sealed run has members in; none if it is.
fn cut(data: &Data, range: &Range, name: &str, seen: &Verified) -> Option<String> {
    if range.stream != name {
        return None;
    }
    let header = store::Header::read(data.media.as_ref(), &data.stream(name)).ok()?;
    if header.uuid != range.uuid {
        return Some(format!(
            "another stream than the one that holds messages {} to {} of a run",
            range.first,
            range.next.saturating_sub(1)
        ));
    }
    (seen.count < range.next)
        .then(|| format!("it ends at {}, but a run has members up to {}", seen.count, range.next.saturating_sub(1)))
}

/// Returns what a repair did, as text.
fn made_good(done: &Repaired) -> String {
    let mut parts = Vec::new();
    if done.header {
        parts.push("the header".to_string());
    }
    if done.commit {
        parts.push("commit records".to_string());
    }
    let counts = [
        (done.entries, "index entry", "index entries"),
        (done.payloads, "payload", "payloads"),
        (done.rows, "time row", "time rows"),
        (done.names, "name", "names"),
    ];
    for (count, one, many) in counts {
        if count > 0 {
            parts.push(format!("{} {}", thousands(count), if count == 1 { one } else { many }));
        }
    }
    if parts.is_empty() {
        return "nothing could be repaired".into();
    }
    format!("repaired: {}; originals: *.damaged-*", parts.join(", "))
}

/// A bar on stderr, on a terminal only.
pub(crate) struct Progress {
    shown: bool,
    begun: Instant,
    drawn: Instant,
    dirty: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { shown: io::stderr().is_terminal(), begun: now, drawn: now, dirty: false }
    }

    /// Draws how far it is. That a terminal does not take it is no reason to stop.
    pub(crate) fn draw(&mut self, err: &mut dyn Write, what: &str, done: u64, of: u64) {
        if !self.shown || self.drawn.elapsed() < DRAW {
            return;
        }
        (self.drawn, self.dirty) = (Instant::now(), true);
        let _ = write!(err, "\r\x1b[K{} {}", shortened(what), bar(done, of)).and_then(|()| err.flush());
    }

    /// The same for bytes that are written, with their rate and the time that is left; without a terminal now and then a line.
    pub(crate) fn draw_bytes(&mut self, err: &mut dyn Write, what: &str, done: u64, of: u64) {
        if self.drawn.elapsed() < if self.shown { DRAW } else { LINE } {
            return;
        }
        self.drawn = Instant::now();
        let (what, pace) = (shortened(what), pace(done, of, self.begun.elapsed()));
        let told = if self.shown {
            self.dirty = true;
            write!(err, "\r\x1b[K{what} {} {pace}", bar(done, of))
        } else {
            writeln!(err, "{what}: {pace}")
        };
        let _ = told.and_then(|()| err.flush());
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self, err: &mut dyn Write) {
        if std::mem::take(&mut self.dirty) {
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}

/// How much of it is done, how fast it was until now, and how long the rest takes at that.
fn pace(done: u64, of: u64, since: Duration) -> String {
    // How large it will be is a guess: more bytes than that do not mean that all messages were read.
    if done >= of {
        return format!("{} written", bytes(done));
    }
    let seconds = since.as_secs_f64();
    let rate = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
    let told = format!("{} of {}, {}", bytes(done), bytes(of), si(rate, "B/s"));
    if rate < 1.0 {
        return told;
    }
    let left = of.saturating_sub(done) as f64 / rate;
    // Longer than a float can say is longer than anybody waits.
    format!("{told}, {} left", span((left * 1e9).min(i64::MAX as f64) as i64))
}

fn bar(done: u64, of: u64) -> String {
    const WIDTH: u64 = 30;
    let share = |of_what: u64| (u128::from(done.min(of)) * u128::from(of_what) / u128::from(of.max(1))) as u64;
    let full = share(WIDTH) as usize;
    format!("[{}{}] {} %", "#".repeat(full), ".".repeat(WIDTH as usize - full), share(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_has_bytes_rate_and_what_is_left() {
        let second = Duration::from_secs(1);
        assert_eq!(pace(1_000_000_000, 4_000_000_000, 2 * second), "1.00 GB of 4.00 GB, 500 MB/s, 6.0 s left");
        assert_eq!(pace(0, 4_000_000, second), "0 B of 4.00 MB, 0 B/s");
        assert_eq!(pace(5_000, 5_000, Duration::ZERO), "5.00 kB written");
        assert_eq!(pace(9_000, 5_000, second), "9.00 kB written");
        assert!(pace(2, u64::MAX, second).ends_with(" left"));
    }

    #[test]
    fn without_a_terminal_the_progress_is_a_line_now_and_then() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        let mut told = Vec::new();
        let mut progress = Progress { shown: false, begun: ago(20), drawn: ago(20), dirty: false };
        for _ in 0..3 {
            progress.draw_bytes(&mut told, "one", 2_000_000, 4_000_000);
        }
        progress.clear(&mut told);
        let line = String::from_utf8(told).unwrap();
        assert!(line.starts_with("one: 2.00 MB of 4.00 MB, ") && line.ends_with(" left\n"), "{line:?}");
        assert_eq!(line.lines().count(), 1, "each line is far from the next");
        let (mut told, mut progress) =
            (Vec::new(), Progress { shown: true, begun: ago(2), drawn: ago(2), dirty: false });
        progress.draw_bytes(&mut told, "one", 2_000_000, 4_000_000);
        progress.clear(&mut told);
        let bar = String::from_utf8(told).unwrap();
        assert!(bar.starts_with("\r\x1b[Kone [###############...............] 50 % 2.00 MB of 4.00 MB, "), "{bar:?}");
        assert!(bar.ends_with(" left\r\x1b[K"), "{bar:?}");
    }

    #[test]
    fn bars_fill_from_left_to_right() {
        assert_eq!(bar(0, 0), format!("[{}] 0 %", ".".repeat(30)));
        assert_eq!(bar(1, 2), format!("[{}{}] 50 %", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(u64::MAX, u64::MAX), format!("[{}] 100 %", "#".repeat(30)));
    }
}
