//! `beamport verify`: reads every byte of streams and names the first wrong one.
//!
//! Where one is found, the stream is read again past it, so that every range of messages that is lost is named too. A
//! stream that a sealed run has members in and that is not there is damage as well. Exit status 1 with damage; 2 where
//! a file cannot be read at all, or there is nothing to verify.

use super::damage::Damage;
use super::figures::{bytes, thousands};
use super::table::Table;
use super::{Answer, ended, json_line, open, status};
use crate::cli::Verify;
use crate::units::shortened;
use flow::records::{Range, Run};
use flow::{Data, Fault, stream_fault};
use serde_json::{Value, json};
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::{Error, Verified};
use wire::bprn::State;

/// How often the progress is drawn.
const DRAW: Duration = Duration::from_millis(100);
/// Messages read at once.
const BATCH: u64 = 4096;
/// Ranges named of one stream; all are counted.
const RANGES_MAX: usize = 100;

/// What a stream turned out to be.
enum Finding {
    Whole(Verified),
    /// Read to its end, and not all is there.
    Damaged {
        first: String,
        ranges: Vec<Damage>,
        lost: u64,
    },
}

/// Runs the verb.
pub fn run(asked: &Verify, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let answer = verify(asked, out, err);
    ended(answer, err)
}

fn verify(asked: &Verify, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
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
        if !names.contains(stream) {
            return Err(Fault::new(format!("there is no stream `{}`", shortened(stream)), none_in)
                .hint("`beamport ls` lists the streams")
                .into());
        }
        names.retain(|name| name == stream);
    }
    if names.is_empty() {
        return Err(Fault::new("there is no stream to verify", none_in)
            .hint("name the folder that holds the streams with `--data DIR`")
            .into());
    }
    let mut progress = Progress::new();
    let mut table = Table::new(&["stream", ">messages", ">bytes read", "schemas", "result"]);
    let (mut streams, mut told, mut wrong) = (Vec::new(), Vec::new(), false);
    for name in &names {
        let seen = look(&data, name, &mut |done, of| progress.draw(err, name, done, of));
        progress.clear(err);
        let seen = match seen.map_err(|e| stream_fault(name, e))? {
            Finding::Whole(seen) => match members().find_map(|range| cut(&data, range, name, &seen)) {
                Some(first) => Finding::Damaged { first, ranges: Vec::new(), lost: 0 },
                None => Finding::Whole(seen),
            },
            damaged => damaged,
        };
        match seen {
            Finding::Whole(seen) => {
                let messages = seen.schemas.iter().map(|s| s.1).sum();
                let schemas: Vec<String> = seen.schemas.iter().map(|s| s.0.as_text()).collect();
                table.row([name.clone(), thousands(messages), bytes(seen.bytes), schemas.join(" "), "ok".into()]);
                streams.push(json!({"stream": name, "ok": true, "first": seen.first, "messages": messages,
                    "bytes": seen.bytes, "schemas": schemas}));
            }
            Finding::Damaged { first, ranges, lost } => {
                wrong = true;
                table.row([shortened(name), "-".into(), "-".into(), String::new(), first.clone()]);
                told.extend(ranges.iter().map(|damage| format!("{}: {damage}", shortened(name))));
                streams.push(json!({"stream": name, "ok": false, "wrong": first, "lost": lost, "ranges": ranges}));
            }
        }
    }
    if asked.form.json {
        json_line(out, &json!({"ok": !wrong, "streams": Value::from(streams)}))?;
    } else {
        write!(out, "{table}")?;
        told.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    Ok(ExitCode::from(u8::from(wrong)))
}

/// Reads one stream whole, or past all its damage; an error is one that is no damage.
fn look(data: &Data, name: &str, seen: &mut dyn FnMut(u64, u64)) -> Result<Finding, Error> {
    let first = match store::verify(&data.media, &data.stream(name), seen) {
        Ok(verified) => return Ok(Finding::Whole(verified)),
        Err(e @ Error::Io { .. }) => return Err(e),
        Err(e) => e,
    };
    let mut found = (first.to_string(), Vec::new(), 0);
    let Ok(mut reader) = data.reader_early(name) else {
        let first = match first {
            Error::Missing(path) => format!("{} is missing", path.display()),
            other => other.to_string(),
        };
        return Ok(Finding::Damaged { first, ranges: Vec::new(), lost: 0 });
    };
    let end = reader.end();
    loop {
        let at = reader.position();
        let damage = match reader.read(BATCH.min(end.saturating_sub(at)) as usize) {
            Ok(batch) if batch.is_empty() => break,
            Ok(_) => continue,
            Err(Error::Gone { first }) => {
                reader.seek(first);
                continue;
            }
            Err(e) => match Damage::behind(&mut reader, &e, end) {
                Some(damage) => damage,
                None => break,
            },
        };
        reader.seek(damage.last + 1);
        found.2 += damage.last + 1 - damage.first;
        if found.1.is_empty() {
            found.0.clone_from(&damage.why);
        }
        if found.1.len() < RANGES_MAX {
            found.1.push(damage);
        }
    }
    Ok(Finding::Damaged { first: found.0, ranges: found.1, lost: found.2 })
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
        .then(|| format!("it ends at {}, and a run has members up to {}", seen.count, range.next.saturating_sub(1)))
}

/// A bar on stderr, on a terminal only.
pub(crate) struct Progress {
    shown: bool,
    drawn: Instant,
    dirty: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { shown: io::stderr().is_terminal(), drawn: Instant::now(), dirty: false }
    }

    /// Draws how far it is. That a terminal does not take it is no reason to stop.
    pub(crate) fn draw(&mut self, err: &mut dyn Write, what: &str, done: u64, of: u64) {
        if !self.shown || self.drawn.elapsed() < DRAW {
            return;
        }
        (self.drawn, self.dirty) = (Instant::now(), true);
        let _ = write!(err, "\r\x1b[K{} {}", shortened(what), bar(done, of)).and_then(|()| err.flush());
    }

    /// Takes the bar away.
    pub(crate) fn clear(&mut self, err: &mut dyn Write) {
        if std::mem::take(&mut self.dirty) {
            let _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
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
    fn bars_fill_from_left_to_right() {
        assert_eq!(bar(0, 0), format!("[{}] 0 %", ".".repeat(30)));
        assert_eq!(bar(1, 2), format!("[{}{}] 50 %", "#".repeat(15), ".".repeat(15)));
        assert_eq!(bar(u64::MAX, u64::MAX), format!("[{}] 100 %", "#".repeat(30)));
    }
}
