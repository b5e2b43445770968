//! `beamport append`: messages given as JSON, at the end of a stream.
//!
//! All messages are read before the first is appended, so that a wrong one leaves the stream unchanged. A full disk or
//! Ctrl-C leaves the messages that were appended until then, and the verb reports it. The answer comes when everything
//! is safe at the level of the stream.

use super::given::{self, Given};
use super::{Answer, Asked, Verb, ended, json_line};
use crate::arguments::{DataFolder, Form};
use crate::edges::Registry;
use clap::Args;
use flow::{Appender, Data, Fault, Label};
use serde_json::json;
use settings::shortened;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use store::SchemaId;

/// How often Ctrl-C is looked for while there is no room, or the disk is waited for.
const LOOK: Duration = Duration::from_millis(200);

/// `beamport append`
#[derive(Debug, Args)]
#[command(
    about = "Append messages in the form of `cat --json` to a stream; appends none if one is invalid",
    after_help = "Examples:\n\
                  \x20 beamport append devices messages.json --data beamport-data/amor\n\
                  \x20 beamport cat devices --json | beamport append devices - --data /tmp/copy"
)]
pub struct Append {
    /// Name of the stream, created if missing
    pub stream: String,
    /// JSON file, an array of messages or one message after another; `-` for stdin
    pub file: PathBuf,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Append {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(append(self, out), err)
    }
}

fn append(asked: &Append, out: &mut dyn Write) -> Answer {
    let data = Data::on_disk(asked.data.resolve()?);
    let is_for_it = |message: &Given| match &message.stream {
        Some(stream) if *stream != asked.stream => Err(format!("it is for stream `{}`", shortened(stream))),
        _ => Ok(()),
    };
    let messages = given::read(&asked.file, data.media.now(), is_for_it)?;
    std::fs::create_dir_all(&data.folder)
        .map_err(|e| Fault::io(format!("cannot make data folder `{}`", data.folder.display()), &e))?;
    let signals = Asked::to_end()?;
    let mut stream = Appender::open(&data, &asked.stream, None)?;
    let first = stream.next_sequence();
    fill(&mut stream, &messages, &signals).and_then(|()| safe(&mut stream, &signals)).map_err(|fault| {
        let done = stream.next_sequence() - first;
        let of_all = format!("{done} of {} messages are appended", messages.len());
        let hint = if fault.hint.is_empty() { of_all } else { format!("{}; {of_all}", fault.hint) };
        fault.hint(hint)
    })?;
    let (next, level) = (stream.next_sequence(), stream.writer().header().level.as_str());
    if asked.form.json {
        let answer = json!({"stream": asked.stream, "first": first, "next": next, "level": level});
        json_line(out, &answer)?;
    } else {
        let last = if next > first { format!(": {first} to {}", next - 1) } else { String::new() };
        writeln!(out, "{} messages appended to `{}`{last}", next - first, asked.stream)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Appends and publishes all messages.
pub(super) fn fill<'g>(
    stream: &mut Appender,
    messages: impl IntoIterator<Item = &'g Given>,
    signals: &Asked,
) -> Result<(), Fault> {
    for message in messages {
        let label = Label {
            time: message.time,
            origin: &message.origin,
            number: message.number,
            schema: SchemaId(message.schema),
        };
        while stream.push(&label, &[&message.payload])?.is_none() {
            check(signals)?;
            stream.wait_room(LOOK);
        }
    }
    stream.publish();
    Ok(())
}

/// Waits until everything is as safe as the level of the stream promises.
fn safe(stream: &mut Appender, signals: &Asked) -> Result<(), Fault> {
    let (next, level) = (stream.next_sequence(), stream.writer().header().level);
    while !stream.wait(next, level, LOOK)? {
        if let Some(why) = stream.writer().trouble() {
            return Err(flow::not_written("cannot write the messages to disk", Some(why)));
        }
        check(signals)?;
    }
    Ok(())
}

fn check(signals: &Asked) -> Result<(), Fault> {
    if signals.yes() { Err(Fault::new("cannot append all messages", "interrupted")) } else { Ok(()) }
}
