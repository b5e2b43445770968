//! `beamport verify`: reads every byte of streams, names what is wrong, and with `--repair` makes good what can be proven.

use super::figures::{bytes, thousands};
use super::table::Table;
use super::{Answer, ended, json_line, open, status};
use crate::cli::Verify;
use crate::units::shortened;
use flow::Fault;
use serde_json::json;
use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often the progress is drawn.
const DRAW: Duration = Duration::from_millis(100);

/// Runs the verb.
pub fn run(asked: &Verify, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let answer = verify(asked, out, err);
    ended(answer, err)
}

fn verify(asked: &Verify, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let broken = status::unreadable(&data)?;
    let mut names = data.streams(true)?;
    names.extend(broken.into_iter().map(|b| b.name));
    names.sort();
    if let Some(stream) = &asked.stream {
        if !names.contains(stream) {
            let cause = format!("there is none in {}", data.folder.display());
            return Err(Fault::new(format!("there is no stream `{}`", shortened(stream)), cause)
                .hint("`beamport ls` lists the streams")
                .into());
        }
        names.retain(|name| name == stream);
    }
    let mut progress = Progress::new();
    let mut table = Table::new(&["stream", ">messages", ">bytes read", "schemas", "result"]);
    let (mut streams, mut wrong) = (Vec::new(), 0);
    for name in &names {
        let folder = data.stream(name);
        let mut draw = |done, of| progress.draw(err, name, done, of);
        let mut seen = store::verify(&data.media, &folder, &mut draw);
        let mut repaired = None;
        if asked.repair && seen.as_ref().map_or(true, |seen| seen.wrong > 0) {
            match store::repair(&data.media, &folder, &mut draw) {
                Ok(done) => {
                    seen = Ok(done.left.clone());
                    repaired = Some(done);
                }
                // What cannot be read at all says more than what could not be repaired of it.
                Err(why) => seen = seen.and(Err(why)),
            }
        }
        progress.clear(err);
        let made_good = repaired.as_ref().map(made_good);
        match seen {
            Ok(seen) => {
                wrong += usize::from(seen.wrong > 0);
                let messages: u64 = seen.schemas.iter().map(|s| s.1).sum();
                let schemas: Vec<String> = seen.schemas.iter().map(|s| s.0.as_text()).collect();
                let result: Vec<String> = made_good.iter().cloned().chain([result(&seen)]).collect();
                let line = [name.clone(), thousands(messages), bytes(seen.bytes), schemas.join(" "), result.join("; ")];
                table.row(line);
                let damage: Vec<_> =
                    seen.damage.iter().map(|d| json!({"first": d.first, "end": d.end, "why": d.why})).collect();
                let aside: Vec<_> = repaired.iter().flat_map(|r| &r.aside).map(|p| p.display().to_string()).collect();
                streams.push(json!({"stream": name, "ok": seen.wrong == 0, "first": seen.first, "messages": messages,
                    "bytes": seen.bytes, "schemas": schemas, "wrong": seen.wrong, "damage": damage,
                    "repaired": made_good, "aside": aside}));
            }
            Err(why) => {
                wrong += 1;
                table.row([shortened(name), "-".into(), "-".into(), String::new(), why.to_string()]);
                streams.push(json!({"stream": name, "ok": false, "why": why.to_string()}));
            }
        }
    }
    if asked.form.json {
        json_line(out, &json!({"ok": wrong == 0, "streams": streams}))?;
    } else if names.is_empty() {
        writeln!(out, "no streams in {}", data.folder.display())?;
    } else {
        write!(out, "{table}")?;
    }
    Ok(ExitCode::from(u8::from(wrong > 0)))
}

/// What stands there, in words.
fn result(seen: &store::Verified) -> String {
    match seen.damage.as_slice() {
        [] => "ok".into(),
        [one] => format!("{} cannot be read: {}", messages(seen.wrong), one.why),
        [first, ..] => format!("{} cannot be read; the first: {}", messages(seen.wrong), first.why),
    }
}

/// What a repair did, in words.
fn made_good(done: &store::Repaired) -> String {
    let mut parts = Vec::new();
    if done.header {
        parts.push("the header".to_string());
    }
    if done.commit {
        parts.push("the commit records".to_string());
    }
    for (count, one, many) in [(done.entries, "index entry", "index entries"), (done.payloads, "payload", "payloads")] {
        if count > 0 {
            parts.push(format!("{} {}", thousands(count), if count == 1 { one } else { many }));
        }
    }
    if parts.is_empty() {
        return "nothing could be made good".into();
    }
    format!("made good: {}; as it was: *.damaged-*", parts.join(", "))
}

fn messages(count: u64) -> String {
    if count == 1 { "1 message".into() } else { format!("{} messages", thousands(count)) }
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
