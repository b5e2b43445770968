//! What the books of a data folder say, one question at a time: the account of a run or of a stream, messages aside,
//! the commands that were given, and the settings of the instrument.

use crate::limits::{ASIDE_MAX, COMMANDS_MAX, GAPS_MAX, TEXT_BYTES_MAX};
use flow::records::Gap;
use flow::{Data, Fault, aside_of, commits, ledger, runs};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use store::Reader;
use wire::{bpas, bpct};

/// Name of the file in the data folder to which `up` writes the resolved instrument file, without secrets.
pub const SETTINGS: &str = "instrument.toml";

/// The file in the data folder to which `up` copies the template of a sink: the name of the sink is between these.
pub const TEMPLATE_START: &str = "instrument.";
/// The end of its name.
pub const TEMPLATE_END: &str = ".nexus.json";

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The account of a run, and its files.
    Run(String),
    /// The accounts of the origins of a stream, and its gaps.
    Stream(String),
    /// The newest messages that a stage set aside.
    Aside(String),
    /// The newest commands, with their answers.
    Control,
    /// The instrument file.
    Settings,
}

impl Question {
    /// The one of a path behind `/api/`.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let name = |name: &str| {
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            (is_name && !name.is_empty()).then(|| name.to_owned())
        };
        match path.split_once('/') {
            None if path == "control" => Some(Self::Control),
            None if path == "settings" => Some(Self::Settings),
            Some(("runs", run)) => name(run).map(Self::Run),
            Some(("streams", stream)) => name(stream).map(Self::Stream),
            Some(("aside", stage)) => name(stage).map(Self::Aside),
            _ => None,
        }
    }

    /// Its answer.
    pub(crate) fn answer(&self, data: &Data) -> Result<Value, Fault> {
        match self {
            Self::Run(name) => run(data, name),
            Self::Stream(name) => stream(data, name),
            Self::Aside(stage) => aside(data, stage),
            Self::Control => control(data),
            Self::Settings => settings(data),
        }
    }
}

fn run(data: &Data, name: &str) -> Result<Value, Fault> {
    let run = runs::run(data, name)?;
    let commits = commits::last_commits(data)?.remove(name).unwrap_or_default();
    let mut sinks = run.sinks();
    sinks.extend(commits.keys().cloned());
    sinks.sort();
    sinks.dedup();
    let mut account = ledger::account_of_commits(data, &run, &commits, &sinks)?;
    let more = shorten(&mut account.gaps);
    // A sink's last commit says what it made.
    let files: Vec<Value> = commits
        .values()
        .map(|commit| {
            let product: Value = serde_json::from_str(&commit.state).unwrap_or_default();
            json!({"sink": commit.stage, "finished": commit.finished, "product": product})
        })
        .collect();
    Ok(json!({"account": account, "more": more, "files": files}))
}

fn stream(data: &Data, name: &str) -> Result<Value, Fault> {
    let stages = ledger::stage(data, name)?;
    // Messages of a stream that a stage fills entered elsewhere: a number that is not in it was moved aside or dropped.
    let entries = if stages.is_empty() { ledger::entries(data, name)?.0 } else { Vec::new() };
    let mut gaps = ledger::gaps(data, name)?;
    let more = shorten(&mut gaps);
    Ok(json!({"entries": entries, "stages": stages, "gaps": gaps, "more": more}))
}

/// Keeps the newest; how many it left out.
fn shorten(gaps: &mut Vec<Gap>) -> usize {
    let more = gaps.len().saturating_sub(GAPS_MAX);
    gaps.drain(..more);
    more
}

fn aside(data: &Data, stage: &str) -> Result<Value, Fault> {
    newest(data, &aside_of(stage), ASIDE_MAX, &|bytes| {
        let aside = bpas::read(bytes).ok()?;
        Some(json!({
            "stage": aside.stage,
            "reason": aside.reason,
            "text": aside.text,
            "stream": aside.stream,
            "epoch": aside.epoch,
            "sequence": aside.sequence,
            "schema": aside.kind,
            "time": aside.time,
            "bytes": aside.payload.len(),
        }))
    })
}

fn control(data: &Data) -> Result<Value, Fault> {
    newest(data, "control", COMMANDS_MAX, &|bytes| {
        let command = bpct::read(bytes).ok()?;
        let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        Some(json!({
            "time": command.time,
            "command": command.command,
            "arguments": json(command.arguments),
            "from": command.from,
            "answer": json(command.answer),
        }))
    })
}

/// The newest messages of a book, newest first; none where there is no such book.
fn newest(data: &Data, book: &str, most: u64, see: &dyn Fn(&[u8]) -> Option<Value>) -> Result<Value, Fault> {
    if !data.streams(true)?.iter().any(|name| name == book) {
        return Ok(json!([]));
    }
    let mut reader: Reader = data.reader_early(book)?;
    let bounds = reader.bounds();
    let from = bounds.first.max(bounds.count.saturating_sub(most));
    // One that does not verify is passed over.
    let read = |sequence| reader.get(sequence).ok().flatten().and_then(|(_, bytes)| see(&bytes));
    Ok((from..bounds.count).rev().filter_map(read).collect())
}

fn settings(data: &Data) -> Result<Value, Fault> {
    let path = data.folder.join(SETTINGS);
    match text(&path) {
        Ok(text) => Ok(json!({"file": text})),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(json!({"file": null})),
        Err(e) => Err(Fault::io(format!("cannot read `{}`", path.display()), &e)),
    }
}

/// A text file of limited size. A pipe or a device could block its reader without end.
pub(crate) fn text(path: &Path) -> std::io::Result<String> {
    let invalid = |why: &str| std::io::Error::new(ErrorKind::InvalidData, why);
    if !std::fs::metadata(path)?.is_file() {
        return Err(invalid("it is not a file"));
    }
    let mut text = String::new();
    let size = File::open(path)?.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text)?;
    if size as u64 > TEXT_BYTES_MAX {
        return Err(invalid("it is larger than 16 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_question_or_none() {
        assert_eq!(Question::of("runs/2026-0042"), Some(Question::Run("2026-0042".into())));
        assert_eq!(Question::of("aside/peaks"), Some(Question::Aside("peaks".into())));
        assert_eq!(Question::of("control"), Some(Question::Control));
        for path in ["", "runs", "runs/", "runs/..", "aside/../x", "streams/a/b", "streams/a.b", "streams/%2e"] {
            assert_eq!(Question::of(path), None, "{path}");
        }
    }
    #[test]
    fn a_pipe_in_place_of_a_file_is_refused() {
        assert!(text(Path::new("/dev/zero")).unwrap_err().to_string().contains("not a file"));
        assert_eq!(text(Path::new("/nowhere/x")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
