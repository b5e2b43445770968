//! `beamport get` and `beamport put`: read a PV, and write one. The mover of a running instrument does so, and records
//! what is written; where none runs and no data folder is named, this process does.

use super::{Answer, Verb, ended, json_line, open};
use crate::arguments::{DataFolder, Form, values};
use crate::edges::Registry;
use crate::mover;
use clap::Args;
use flow::Fault;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// `beamport get`
#[derive(Debug, Args)]
#[command(
    about = "Read an EPICS PV, through the running instrument or without one",
    after_help = "Examples:\n  beamport get LAB:SE:T1\n  beamport get ca:LAB:MOT:1.RBV --json"
)]
pub struct Get {
    /// Name of the PV; a prefix `pva:` or `ca:` chooses the protocol, otherwise that of the source that lists it
    pub pv: String,
    /// How long to wait for the value
    #[arg(long, value_name = "DURATION", default_value = "5 s", value_parser = values::length)]
    pub timeout: Duration,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Get {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(shown(self, registry, out), err)
    }
}

/// `beamport put`
#[derive(Debug, Args)]
#[command(
    about = "Write a value to an EPICS PV, through the running instrument, which records it, or without one",
    after_help = "Examples:\n\
                  \x20 beamport put LAB:SE:T1:SETPOINT 4.2\n\
                  \x20 beamport put ca:LAB:SHUTTER open\n\
                  \x20 beamport put LAB:MOT:1.VAL -5 --timeout '2 min'\n\
                  \x20 beamport put LAB:CURVE '[1, 2, 3.5]'"
)]
pub struct Put {
    /// Name of the PV; a prefix `pva:` or `ca:` chooses the protocol, otherwise that of the source that lists it
    pub pv: String,
    /// The value, read as the type of the PV asks; name or index of a choice; a list is JSON
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// How long to wait until the record has processed; that of a motor takes as long as its motion
    #[arg(long, value_name = "DURATION", default_value = "5 s", value_parser = values::length)]
    pub timeout: Duration,
    /// Do not wait until the record has processed
    #[arg(long)]
    pub no_wait: bool,
    /// Print the value that the PV has then
    #[arg(long)]
    pub read: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Put {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(written(self, registry, out), err)
    }
}

/// Has the running instrument carry out a command of an edge, or this process.
fn carry_out(request: &Value, data: &DataFolder, registry: &Registry) -> Result<(Value, bool), Fault> {
    let is_running = data.resolve().is_ok_and(|folder| mover::is_running(&folder));
    if is_running || data.data.is_some() {
        let folder = open(data)?.folder;
        return mover::ask(&folder, request).map(|answer| (answer, true));
    }
    let kind = registry.commands().iter().find(|kind| request["command"] == kind.name);
    let kind = kind.ok_or_else(|| Fault::new("this program has no EPICS", "it was made without"))?;
    (kind.run)(request, &[]).map(|answer| (answer, false))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A value as people read it, with units, choice and alarm.
fn text(answer: &Value) -> String {
    let mut text = match &answer["value"] {
        Value::String(value) => value.clone(),
        value => value.to_string(),
    };
    let word = |key: &str| answer[key].as_str().filter(|word| !word.is_empty());
    for more in [word("units").map(str::to_owned), word("text").map(|choice| format!("({choice})"))] {
        text.extend(more.into_iter().flat_map(|more| [" ".to_owned(), more]));
    }
    if let Some(severity @ 1..) = answer["severity"].as_i64() {
        let severity = ["", "MINOR", "MAJOR", "INVALID"].get(severity as usize).unwrap_or(&"INVALID");
        text += &format!("   {severity} {}", word("alarm").unwrap_or_default());
    }
    text.trim_end().to_owned()
}

fn shown(asked: &Get, registry: &Registry, out: &mut dyn Write) -> Answer {
    let request = json!({"command": "get", "pv": asked.pv, "timeout": nanoseconds(asked.timeout)});
    let (answer, _) = carry_out(&request, &asked.data, registry)?;
    if asked.form.json {
        json_line(out, &answer)?;
    } else {
        writeln!(out, "{}", text(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn written(asked: &Put, registry: &Registry, out: &mut dyn Write) -> Answer {
    let request = json!({
        "command": "put",
        "pv": asked.pv,
        "value": value(&asked.value),
        "wait": !asked.no_wait,
        "read": asked.read,
        "timeout": nanoseconds(asked.timeout),
    });
    let (answer, is_recorded) = carry_out(&request, &asked.data, registry)?;
    if asked.form.json {
        json_line(out, &answer)?;
    } else {
        let pv = answer["pv"].as_str().unwrap_or_default();
        let ms = answer["seconds"].as_f64().unwrap_or_default() * 1e3;
        let end = if is_recorded { "" } else { "; no instrument runs, and nothing records it" };
        writeln!(out, "{pv} has taken the value; it answered after {ms:.1} ms{end}")?;
        if asked.read {
            writeln!(out, "{}", text(&answer))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A list is JSON; all else is text, which is read as the type of the PV asks.
fn value(text: &str) -> Value {
    serde_json::from_str(text).ok().filter(Value::is_array).unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_line() {
        let of = |value: Value, units: &str, severity: i64| {
            text(&json!({"value": value, "units": units, "severity": severity, "alarm": "HIHI"}))
        };
        assert_eq!(of(json!(4.5), "K", 0), "4.5 K");
        assert_eq!(of(json!("word"), "", 2), "word   MAJOR HIHI");
        assert_eq!(of(json!([1, 2.5]), "", 0), "[1,2.5]");
        assert_eq!(text(&json!({"value": 1, "text": "open"})), "1 (open)");
    }

    #[test]
    fn a_value_is_text_unless_it_is_a_list() {
        assert_eq!(value("5"), json!("5"));
        assert_eq!(value("[1, 2.5]"), json!([1, 2.5]));
        assert_eq!(value("[\"a\"]"), json!(["a"]));
        assert_eq!(value("[open"), json!("[open"));
    }
}
