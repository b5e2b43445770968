//! `beamport cat`: the messages of a stream, a line each.
//!
//! Reads as an anonymous reader: nothing waits for it. With `--follow` it continues until Ctrl-C, until its output is
//! closed, or until the time of `--to` has passed. Messages that retention deleted before they were printed are
//! reported on stderr. So are those that do not verify: the rest is printed, and the exit status is 1.

use super::figures::instant;
use super::{Answer, Asked, Verb, ended, nanoseconds, open};
use crate::arguments::{self, DataFolder};
use crate::edges::Registry;
use crate::peer::is_gone;
use clap::Args;
use flow::{Fault, stream_fault};
use serde_json::{Value, json};
use settings::{When, shortened};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;
use store::{Clock, Damage, Message, ReadOptions, Stretch, flags};

/// Messages taken at once: output comes at least this often.
const BATCH: u64 = 256;
/// How often a follower looks whether its output was closed.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of a payload shown where its schema is unknown: a line of a terminal.
const HEX_BYTES: usize = 32;
/// Characters of content in a line.
const CONTENT_CHARS: usize = 160;
/// Values of a list shown in a line.
const LIST_VALUES: usize = 4;

/// `beamport cat`
#[derive(Debug, Args)]
#[command(
    about = "Print messages of a stream, or rows of a NeXus file, by time",
    after_help = "Examples:\n\
                  \x20 beamport cat detector --from '-10 s'\n\
                  \x20 beamport cat devices --follow --json\n\
                  \x20 beamport cat first.nxs --path /entry/sample --from 2026-03-01T12:00:00Z --to 2026-03-01T12:00:10Z"
)]
pub struct Cat {
    /// Name of a stream, or path of a file; with `--data` always a stream
    #[arg(value_name = "STREAM|FILE")]
    pub stream: String,
    /// Wait for new messages and print them
    #[arg(long)]
    pub follow: bool,
    /// First source time: a time, or `-10 s` for 10 s ago
    #[arg(long, value_name = "TIME", value_parser = arguments::values::moment, allow_hyphen_values = true)]
    pub from: Option<When>,
    /// End of the source times (exclusive)
    #[arg(long, value_name = "TIME", value_parser = arguments::values::moment, allow_hyphen_values = true)]
    pub to: Option<When>,
    /// Print at most this many messages or rows
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u64>,
    /// For a file: only this group and its members; once for each group
    #[arg(long = "path", value_name = "GROUP")]
    pub paths: Vec<String>,
    /// For a file: print each event, not only the number of events of each pulse
    #[arg(long)]
    pub events: bool,
    /// Also print messages that a power cut could still remove
    #[arg(long)]
    pub early: bool,
    /// With `--json`: print all values of arrays, not only the first 8 of long ones
    #[arg(long, requires = "json")]
    pub arrays: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: arguments::Form,
}

impl Verb for Cat {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        if super::cat_file::is_meant(self) {
            return ended(super::cat_file::print(self, out), err);
        }
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let answer = print(self, &mut out, err);
        // Flushed before the fault is printed, so that messages before it appear before it.
        let flushed = out.flush();
        let status = ended(answer, err)?;
        flushed.map(|()| status)
    }
}

fn print(asked: &Cat, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    if asked.events || !asked.paths.is_empty() {
        let fault = Fault::new("`--path` and `--events` are for files", format!("{} is not a file", asked.stream));
        return Err(fault.hint("name a file, like `beamport cat ./first.nxs`").into());
    }
    let data = open(&asked.data)?;
    let name = asked.stream.as_str();
    let fault = |e| stream_fault(name, e);
    let mut reader = data.reader(name, ReadOptions { early: asked.early, ..ReadOptions::default() })?;
    reader.is_here().map_err(fault)?;
    let signals = if asked.follow { Some(Asked::to_end()?) } else { None };
    let clock = reader.header().clock;
    let now = data.media.now();
    let from = asked.from.map_or(i64::MIN, |when| nanoseconds(when, now));
    let to = asked.to.map_or(i64::MAX, |when| nanoseconds(when, now));
    let mut end = reader.end();
    if clock == Clock::Epoch && (asked.from.is_some() || asked.to.is_some()) {
        let (first, next) = reader.time_range(from, to).map_err(fault)?;
        reader.seek(first);
        end = next;
    }
    let mut status = ExitCode::SUCCESS;
    let mut left = asked.count.unwrap_or(u64::MAX);
    let mut names: Vec<Option<String>> = Vec::new();
    while left > 0 && !signals.as_ref().is_some_and(Asked::yes) {
        let at = reader.position();
        if !asked.follow && at >= end {
            break;
        }
        let most = if asked.follow { BATCH } else { BATCH.min(end - at) };
        let batch = match reader.next(most as usize).map_err(fault)? {
            Stretch::Messages(batch) => batch,
            Stretch::Missing(missing) => {
                reader.seek(missing.next);
                let Some(mut damage) = Damage::of(&missing) else {
                    writeln!(err, "messages {at} to {} are skipped: retention took them", missing.next - 1)?;
                    continue;
                };
                let end = reader.end();
                while damage.end < end
                    && let Ok(Stretch::Missing(next)) = reader.next(BATCH as usize)
                    && Damage::of(&next).is_some_and(|next| damage.join(&next))
                {
                    reader.seek(damage.end);
                }
                // Flushed first, so that the messages before the damage appear before it.
                out.flush()?;
                writeln!(err, "{damage}")?;
                status = ExitCode::from(1);
                reader.seek(damage.end);
                continue;
            }
        };
        if batch.is_empty() {
            out.flush()?;
            if !asked.follow || (to != i64::MAX && data.media.now() > to) || is_gone(std::io::stdout().as_fd()) {
                break;
            }
            reader.wait(LOOK).map_err(fault)?;
            continue;
        }
        let rows = batch.entries.iter().map(|e| e.origin as usize + 1).max().unwrap_or(0);
        if rows > names.len() {
            names = reader.origins().map_err(fault)?.iter().cloned().map(Some).collect();
            while names.len() < rows {
                let damage = reader.origin_damage(names.len() as u32);
                if let Some(damage) = damage.as_ref().filter(|_| names.last() != Some(&None)) {
                    out.flush()?;
                    writeln!(err, "{damage}")?;
                    status = ExitCode::from(1);
                }
                names.push(damage.is_none().then(String::new));
            }
            reader.seek(at);
            continue;
        }
        left -= lines(out, &batch, (&asked.stream, &names), clock, (from, to), left, Form::of(asked))?;
    }
    Ok(status)
}

/// How messages are printed.
#[derive(Clone, Copy)]
enum Form {
    Lines,
    /// `values`: of an array that is printed whole, at most.
    Json {
        values: usize,
    },
}

impl Form {
    fn of(asked: &Cat) -> Self {
        let values = if asked.arrays { usize::MAX } else { wire::limits::JSON_VALUES_MAX };
        if asked.form.json { Self::Json { values } } else { Self::Lines }
    }
}

/// Prints those of a batch that are meant; returns how many.
fn lines(
    out: &mut dyn Write,
    batch: &store::Batch<'_>,
    (stream, names): (&str, &[Option<String>]),
    clock: Clock,
    (from, to): (i64, i64),
    most: u64,
    form: Form,
) -> io::Result<u64> {
    let mut printed = 0;
    for message in batch.iter() {
        let time = if clock == Clock::Epoch { message.entry.source_time } else { message.entry.arrival_time };
        if time < from || time >= to || printed == most {
            continue;
        }
        let origin = names.get(message.entry.origin as usize).and_then(Option::as_deref);
        match form {
            Form::Json { values } => super::json_line(out, &object(&message, origin, clock, values))?,
            Form::Lines => writeln!(out, "{}", line(&message, (stream, origin), clock))?,
        }
        printed += 1;
    }
    Ok(printed)
}

fn line(message: &Message<'_>, (stream, origin): (&str, Option<&str>), clock: Clock) -> String {
    let entry = message.entry;
    let time = match clock {
        Clock::Epoch => instant(entry.source_time),
        Clock::Ticks => format!("{} ticks", entry.source_time),
        Clock::None => format!("arrived {}", instant(entry.arrival_time)),
    };
    let content = content(message.payload, &[stream, origin.unwrap_or_default()]);
    let origin = match origin {
        Some("") => "-".into(),
        Some(origin) => shortened(origin),
        None => "?".into(),
    };
    let mut flagged = String::new();
    for word in flags::words(entry.flags) {
        flagged += word;
        flagged.push(' ');
    }
    format!("{:>8}  {time}  {origin}  {}  {flagged}{content}", message.sequence, entry.schema)
}

/// What a message says in one line: fields without its time, and without its source name where that is one of the names
/// that are known already (of its stream and its maker); a hex head where its bytes are no message we know.
fn content(payload: &[u8], known: &[&str]) -> String {
    let text = match wire::to_json(payload) {
        Ok(Value::Object(object)) => {
            // The type of a value stands beside it for programs.
            let is_type = |key: &str| key.strip_suffix("_type").is_some_and(|name| object.contains_key(name));
            let is_known = |key: &str, value: &Value| match key {
                "schema" | "timestamp" => true,
                "source_name" => value.as_str().is_none_or(|name| name.is_empty() || known.contains(&name)),
                _ => value.is_null() || is_type(key),
            };
            let fields = object.iter().filter(|(key, value)| !is_known(key, value));
            fields.map(|(key, value)| format!("{key}={}", brief(value))).collect::<Vec<_>>().join(" ")
        }
        _ => hex_head(payload),
    };
    match text.char_indices().nth(CONTENT_CHARS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// A value in few characters: long lists by their length.
fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", shortened(text)),
        Value::Array(values) => {
            let first: Vec<String> = values.iter().take(LIST_VALUES).map(brief).collect();
            let rest = if values.len() > LIST_VALUES { format!(", ...] of {}", values.len()) } else { "]".into() };
            format!("[{}{rest}", first.join(", "))
        }
        Value::Object(object) => match (&object.get("dtype"), object.get("shape").and_then(Value::as_array)) {
            // The form that wire gives to long arrays.
            (Some(Value::String(dtype)), Some(shape)) => {
                let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
                format!("{dtype}[{}]", shape.join(", "))
            }
            _ => {
                let fields: Vec<String> =
                    object.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| format!("{k}={}", brief(v))).collect();
                format!("({})", fields.join(" "))
            }
        },
        other => other.to_string(),
    }
}

fn hex_head(payload: &[u8]) -> String {
    let head = store::hex(&payload[..payload.len().min(HEX_BYTES)]);
    let rest = if payload.len() > HEX_BYTES { "..." } else { "" };
    format!("{} B: {head}{rest}", payload.len())
}

fn object(message: &Message<'_>, origin: Option<&str>, clock: Clock, values: usize) -> Value {
    let entry = message.entry;
    let mut object = json!({
        "sequence": message.sequence,
        "source_time": entry.source_time,
        "arrival_time": entry.arrival_time,
        "origin": origin,
        "origin_seq": entry.origin_seq,
        "schema": entry.schema.as_text(),
        "flags": flags::words(entry.flags),
        "bytes": message.payload.len(),
    });
    if clock == Clock::Epoch {
        object["time"] = instant(entry.source_time).into();
    }
    match wire::to_json_within(message.payload, values) {
        Ok(content) => object["content"] = content,
        Err(why) => {
            object["hex"] = store::hex(&message.payload[..message.payload.len().min(HEX_BYTES)]).into();
            object["unread"] = why.to_string().into();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f144(value: impl Into<f64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let value = wire::f144::Value::from(value.into());
        wire::f144::write(&mut bytes, &wire::f144::F144 { source_name: "T", timestamp: 7, value }).unwrap();
        bytes
    }

    #[test]
    fn content_is_what_stands_nowhere_else() {
        assert_eq!(content(&f144(1.5), &["temperatures", "T"]), "value=1.5");
    }

    #[test]
    fn numbers_of_one_origin_were_shown_without_their_names() {
        assert_eq!(content(&f144(3.0), &["mean.statistics", "slot0"]), "source_name=\"T\" value=3.0");
    }

    #[test]
    fn long_arrays_are_told_by_their_length() {
        let (times, pixels) = (vec![1_i32; 12_400], vec![2_i32; 12_400]);
        let message = wire::ev44::Ev44 {
            source_name: "bank",
            message_id: 3,
            reference_time: [5_i64].as_slice().into(),
            reference_time_index: [0_i32].as_slice().into(),
            time_of_flight: times.as_slice().into(),
            pixel_id: pixels.as_slice().into(),
        };
        let mut bytes = Vec::new();
        wire::ev44::write(&mut bytes, &message).unwrap();
        let told = content(&bytes, &["bank"]);
        for part in ["message_id=3", "reference_time=[5]", "time_of_flight=int32[12400]", "pixel_id=int32[12400]"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn unknown_bytes_are_hexadecimal() {
        assert_eq!(content(b"", &[]), "0 B: ");
        assert_eq!(content(&[0xab; 3], &[]), "3 B: ababab");
        assert!(content(&[1; 33], &[]).ends_with("01..."));
    }

    #[test]
    fn text_of_a_message_cannot_steer_a_terminal() {
        assert_eq!(brief(&json!("\u{1b}[2J")), "\"\\u{1b}[2J\"");
        assert_eq!(brief(&json!([1, 2, 3, 4, 5])), "[1, 2, 3, 4, ...] of 5");
        assert_eq!(brief(&json!({"a": null, "b": {"c": 1}})), "(b=(c=1))");
    }
}
