//! The readers that hold messages of streams: `beamport ls --pins`, and `beamport forget`, which removes a reader that
//! has ended.
//!
//! All is in the `pins` file of each stream: no reader is asked. A reader of another container may seem dead where
//! process numbers differ; `forget` does not ask it either, so look before.

use super::figures::{bytes, span, thousands};
use super::ls::Ls;
use super::table::Table;
use super::{Answer, Verb, ended, json_line, open};
use crate::arguments::{DataFolder, Form};
use crate::edges::Registry;
use clap::Args;
use flow::{Data, Fault, stream_fault};
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;
use store::{Clock, Kind, Reader, ReaderInfo};

/// One reader of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pin {
    stream: String,
    /// Empty for an anonymous one.
    reader: String,
    kind: &'static str,
    /// Its process, or that which it had last.
    pid: Option<u32>,
    /// The program of that process; none where it does not live.
    program: Option<String>,
    alive: bool,
    /// Payload segments that it keeps as they are, and their bytes of stream memory.
    segments: usize,
    bytes: u64,
    /// Next sequence that it wants; none for one that keeps no position.
    committed: Option<u64>,
    /// Messages from there on.
    lag: Option<u64>,
    /// From the time of the last message that it committed to that of the newest, ns.
    lag_ns: Option<i64>,
    /// Messages that it had committed and a recovery cut.
    cut: u32,
}

/// All readers of a data folder, but for the one that looks.
pub(crate) fn pins_of(data: &Data) -> Result<(Vec<Pin>, Vec<Fault>), Fault> {
    let (mut all, mut faults) = (Vec::new(), Vec::new());
    for stream in data.streams(true)? {
        match data.reader_early(&stream) {
            Ok(mut reader) => all.extend(of_stream(data, &stream, &mut reader)),
            Err(fault) => faults.push(fault),
        }
    }
    Ok((all, faults))
}

fn of_stream(data: &Data, stream: &str, reader: &mut Reader) -> Vec<Pin> {
    let me = data.media.process();
    let count = reader.bounds().count;
    let readers = reader.pins().readers();
    let mut pins: Vec<Pin> = Vec::new();
    for info in readers {
        let alive = reader.pins().lives(data.media.as_ref(), &info);
        let ReaderInfo { name, kind, process, committed, segments, kept, cut, space, .. } = info;
        // A number of another pid namespace is another process here.
        let is_here = space == 0 || space == data.media.pid_space();
        let named = kind != Kind::Anonymous;
        // An anonymous reader that is dead holds nothing: its place is the next one's.
        if !named && (!alive || process == me) {
            continue;
        }
        // A slot without work wants no message: it keeps no position.
        let committed = (named && committed != u64::MAX).then_some(committed);
        let lag = committed.map(|at| count.saturating_sub(at));
        pins.push(Pin {
            stream: stream.to_owned(),
            reader: name,
            kind: kind_name(kind),
            pid: (process.pid != 0).then_some(process.pid),
            program: if alive && is_here { program(process.pid) } else { None },
            alive,
            segments,
            bytes: kept,
            committed,
            lag,
            lag_ns: committed.zip(lag).and_then(|(at, lag)| behind(reader, at, lag)),
            cut,
        });
    }
    pins.sort_by(|a, b| a.reader.cmp(&b.reader).then(a.pid.cmp(&b.pid)));
    pins
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Anonymous => "anonymous",
        Kind::Counted => "counted",
        Kind::Live => "live",
    }
}

/// Time from the last message that was committed to the newest; none where one of them cannot be seen.
fn behind(reader: &mut Reader, committed: u64, lag: u64) -> Option<i64> {
    if lag == 0 {
        return Some(0);
    }
    let by_arrival = reader.header().clock != Clock::Epoch;
    let mut time = |sequence: u64| {
        let entry = *reader.entries(sequence, 1).ok()?.first()?;
        Some(if by_arrival { entry.arrival_time } else { entry.source_time })
    };
    let first = committed.saturating_sub(1);
    let from = time(first).or_else(|| time(committed))?;
    Some(time(committed + lag - 1)?.saturating_sub(from))
}

/// The name of the program of a process, as the kernel has it.
fn program(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

/// Prints them for `ls --pins`.
pub(crate) fn list(asked: &Ls, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let (pins, faults) = pins_of(&data)?;
    if asked.form.json {
        let folder = data.folder.display().to_string();
        json_line(out, &serde_json::json!({"time": data.media.now(), "data": folder, "pins": pins}))?;
    } else {
        write!(out, "{}", text(&pins, &data.folder.display().to_string()))?;
    }
    for fault in &faults {
        writeln!(err, "{fault}")?;
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn text(pins: &[Pin], folder: &str) -> String {
    if pins.is_empty() {
        return format!("no readers in {folder}\n");
    }
    let dash = || "-".to_owned();
    let mut table =
        Table::new(&["stream", "reader", "kind", "process", ">segments", ">bytes", ">committed", ">lag", ">behind"]);
    for pin in pins {
        let process = match (pin.alive, pin.pid, &pin.program) {
            (true, Some(pid), Some(program)) => format!("{pid} {program}"),
            (true, Some(pid), None) => pid.to_string(),
            _ => "gone".to_owned(),
        };
        table.row([
            pin.stream.clone(),
            if pin.reader.is_empty() { dash() } else { pin.reader.clone() },
            pin.kind.to_owned(),
            process,
            pin.segments.to_string(),
            bytes(pin.bytes),
            pin.committed.map_or_else(dash, thousands),
            pin.lag.map_or_else(dash, thousands),
            pin.lag_ns.map_or_else(dash, span),
        ]);
    }
    let mut text = table.to_string();
    for pin in pins.iter().filter(|pin| pin.cut > 0) {
        let Pin { stream, reader, cut, .. } = pin;
        text += &format!("{stream}: {} messages that `{reader}` had read were cut\n", thousands(u64::from(*cut)));
    }
    if let Some(Pin { stream, reader, .. }) = pins.iter().find(|pin| !pin.alive && pin.lag.is_some_and(|lag| lag > 0)) {
        text += &format!(
            "\nto delete the position of a reader that will not return: beamport forget {stream} '{reader}'\n"
        );
    }
    text
}

/// `beamport forget`
#[derive(Debug, Args)]
#[command(
    about = "Delete a reader's saved position, so that sources stop waiting for it",
    after_help = "Examples:\n  beamport forget detector analysis"
)]
pub struct Forget {
    /// Name of the stream
    pub stream: String,
    /// Name of the reader, as `beamport ls --pins` prints it
    pub reader: String,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Forget {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(delete_position(self, out), err)
    }
}

fn delete_position(asked: &Forget, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let (stream, reader) = (&asked.stream, &asked.reader);
    let found = data.reader_early(stream)?.forget(reader).map_err(|e| {
        let hint = "end that process first; then its unread messages may be deleted";
        Fault { hint: hint.into(), ..stream_fault(stream, e) }
    })?;
    if found {
        if asked.form.json {
            json_line(out, &serde_json::json!({"stream": stream, "reader": reader}))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let names = data.reader_early(stream)?.pins().readers();
    let names: Vec<String> =
        names.into_iter().filter(|r| !r.name.is_empty()).map(|r| format!("`{}`", r.name)).collect();
    let there =
        if names.is_empty() { "it has none with a name".into() } else { format!("it has {}", names.join(", ")) };
    Err(Fault::new(format!("stream `{stream}` has no reader `{reader}`"), there)
        .hint("`beamport ls --pins` lists the readers")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Level, Options, ReadOptions};

    #[test]
    fn a_reader_that_wants_no_message_shows_no_position() {
        let folder = std::env::temp_dir().join(format!("beamport-no-position-{}", std::process::id()));
        let data = Data::on_disk(&folder);
        let mut writer = store::Writer::open(&data.media, &data.stream("a"), "a", &Options::memory(1 << 20)).unwrap();
        assert_eq!(writer.header().level, Level::Memory);
        writer.publish();
        let options = ReadOptions { name: "slot".into(), kind: Kind::Counted, ..ReadOptions::default() };
        let reader = Reader::open(&data.media, &data.stream("a"), options).unwrap();
        reader.commit(u64::MAX);
        let (pins, faults) = pins_of(&data).unwrap();
        assert!(faults.is_empty(), "{faults:?}");
        let pin = pins.iter().find(|pin| pin.reader == "slot").unwrap();
        assert_eq!((pin.committed, pin.lag, pin.lag_ns), (None, None, None));
        drop((reader, writer));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_row_says_who_holds_what() {
        let pin = Pin {
            stream: "detector".into(),
            reader: "analysis".into(),
            kind: "counted",
            pid: Some(4711),
            program: Some("python3".into()),
            alive: true,
            segments: 2,
            bytes: 8_388_608,
            committed: Some(1200),
            lag: Some(3400),
            lag_ns: Some(12_300_000_000),
            cut: 0,
        };
        let anonymous = Pin {
            reader: String::new(),
            kind: "anonymous",
            committed: None,
            lag: None,
            lag_ns: None,
            program: None,
            ..pin.clone()
        };
        let dead = Pin { reader: "old".into(), pid: None, alive: false, segments: 0, bytes: 0, cut: 3, ..pin.clone() };
        assert_eq!(
            text(&[anonymous, pin, dead], "d"),
            "stream    reader    kind       process       segments    bytes  committed    lag  behind\n\
             detector  -         anonymous  4711                 2  8.39 MB          -      -       -\n\
             detector  analysis  counted    4711 python3         2  8.39 MB      1,200  3,400  12.3 s\n\
             detector  old       counted    gone                 0      0 B      1,200  3,400  12.3 s\n\
             detector: 3 messages that `old` had read were cut\n\
             \n\
             to delete the position of a reader that will not return: beamport forget detector 'old'\n"
        );
        assert_eq!(text(&[], "d"), "no readers in d\n");
    }
}
