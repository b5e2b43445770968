//! A reader in another process: this program started once more, told what to do by an environment variable.
//!
//! Each line on its standard input is work: `lap` over the whole stream, or `follow N` messages that are to come (it says
//! `ready` when it stands at the end). It answers with a line of seconds, processor seconds, messages and bytes, and
//! ends with its standard input.

use super::measure::{Sample, timed};
use super::place::wrong;
use flow::Fault;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use store::{Kind, Os, ReadOptions, Reader};

/// How long a reader that follows sleeps at most before it looks again.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long it looks without sleeping before: longer than a batch of [`super::writers::BATCH`] takes to write, so that the
/// writer need not wake it at each.
pub(crate) const SPIN: Duration = Duration::from_micros(200);
/// Names the stream that a reader process reads.
const VARIABLE: &str = "BEAMPORT_BENCH_READ";

/// The other process, seen from the measuring one.
pub(crate) struct Reading {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Reading {
    pub(crate) fn start(stream: &Path) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(wrong("the own program"))?;
        let mut command = Command::new(program);
        command.arg("store").env(VARIABLE, stream).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(wrong("the reader process does not start"))?;
        let to = child.stdin.take();
        match child.stdout.take() {
            Some(from) => Ok(Self { child, to, from: BufReader::new(from) }),
            None => Err(Fault::new("bench: the reader process has no output", "")),
        }
    }

    /// One lap. An error unless it saw exactly these messages and bytes.
    pub(crate) fn lap(&mut self, bytes: u64, messages: u64) -> Result<Sample, Fault> {
        self.tell("lap")?;
        self.done(bytes, messages)
    }

    /// Lets it stand at the end and wait there for so many messages; [`Reading::done`] says when it has read them.
    pub(crate) fn follow(&mut self, messages: u64) -> Result<(), Fault> {
        self.tell(&format!("follow {messages}"))?;
        let mut ready = String::new();
        self.from.read_line(&mut ready).map_err(wrong("the reader process has ended"))?;
        if ready.trim() == "ready" {
            Ok(())
        } else {
            Err(Fault::new("bench: the reader process did not read", ready.trim()))
        }
    }

    fn tell(&mut self, what: &str) -> Result<(), Fault> {
        match &mut self.to {
            Some(to) => writeln!(to, "{what}").map_err(wrong("the reader process has ended")),
            None => Ok(()),
        }
    }

    /// Waits for the end of what it was told. An error unless it saw exactly these messages and bytes.
    pub(crate) fn done(&mut self, bytes: u64, messages: u64) -> Result<Sample, Fault> {
        let mut answer = String::new();
        self.from.read_line(&mut answer).map_err(wrong("the reader process has ended"))?;
        let sample =
            parse(&answer).ok_or_else(|| Fault::new("bench: the reader process did not read", answer.trim()))?;
        if (sample.bytes, sample.messages) == (bytes, messages) {
            return Ok(sample);
        }
        let saw = format!("{} messages of {messages}, {} bytes of {bytes}", sample.messages, sample.bytes);
        Err(Fault::new("bench: the reader process did not see all", saw))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Option<Sample> {
    let mut words = line.split_whitespace();
    let sample = Sample {
        seconds: words.next()?.parse().ok()?,
        cpu_seconds: words.next()?.parse().ok()?,
        messages: words.next()?.parse().ok()?,
        bytes: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(sample)
}

/// The stream to read, if this is the other process.
pub(crate) fn asked() -> Option<std::ffi::OsString> {
    std::env::var_os(VARIABLE)
}

/// The other process itself.
pub(crate) fn read(stream: &Path) -> Result<(), Fault> {
    // Counted: the writer waits for it where it follows.
    let options = ReadOptions { name: "bench".into(), kind: Kind::Counted, spin: SPIN, ..ReadOptions::default() };
    let mut reader = Reader::open(&Os::shared(), stream, options).map_err(wrong("the stream cannot be read"))?;
    for line in std::io::stdin().lines() {
        let line = line.map_err(wrong("the reader's input"))?;
        let follow = line.strip_prefix("follow ").and_then(|n| n.parse::<u64>().ok());
        let (mut messages, mut bytes) = (0, 0);
        if follow.is_some() {
            reader.seek(reader.end());
            reader.commit(reader.position());
            println!("ready");
        } else {
            reader.seek(reader.bounds().first);
        }
        let work = || {
            while follow.is_none_or(|all| messages < all) {
                let batch = reader.read(usize::MAX)?;
                let next = batch.next();
                if batch.is_empty() {
                    match follow {
                        Some(_) => reader.wait(PATIENCE)?,
                        None => return Ok(()),
                    };
                    continue;
                }
                messages += batch.len() as u64;
                bytes += batch.iter().map(|m| m.payload.len() as u64).sum::<u64>();
                if follow.is_some() {
                    reader.commit(next);
                }
            }
            Ok(())
        };
        let sample = timed(0, 0, work).map_err(wrong::<store::Error>("reading"))?;
        println!("{} {} {messages} {bytes}", sample.seconds, sample.cpu_seconds);
    }
    Ok(())
}
