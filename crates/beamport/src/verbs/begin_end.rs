//! `beamport begin` and `beamport end`: asks the mover that runs the instrument; it alone changes runs.

use super::figures::{instant, span};
use super::{Answer, Verb, ended, json_line, nanoseconds, open};
use crate::arguments::{DataFolder, Form, values};
use crate::edges::Registry;
use crate::mover;
use clap::Args;
use serde_json::{Value, json};
use settings::When;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// `beamport begin`
#[derive(Debug, Args)]
#[command(
    about = "Begin a run",
    after_help = "Examples:\n\
                  \x20 beamport begin\n\
                  \x20 beamport begin nickel-2 --metadata '{\"title\": \"Ni on glass\"}' --duration '10 min'"
)]
pub struct Begin {
    /// Name of the run [default: the next number]
    #[arg(value_parser = values::run_name)]
    pub run: Option<String>,
    /// Metadata of the run for its file, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = values::json_object)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Start of the run: `now`, a time, or `-10 s` for 10 s ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = values::moment, allow_hyphen_values = true)]
    pub start: When,
    /// Length of the run [default: until `beamport end`]
    #[arg(long, value_name = "DURATION", value_parser = values::length)]
    pub duration: Option<Duration>,
    /// Include messages whose time is exactly the end of the run
    #[arg(long, requires = "duration")]
    pub inclusive: bool,
    /// New number of slots of a worker; once for each worker
    #[arg(long, value_name = "NAME=NUMBER", value_parser = values::slots)]
    pub slots: Vec<(String, u32)>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Begin {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(begun(self, out), err)
    }
}

fn begun(asked: &Begin, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let start = nanoseconds(asked.start, data.media.now());
    let mut request = json!({"command": "begin", "start": start, "start_ago": ago(asked.start)});
    if let Some(run) = &asked.run {
        request["run"] = run.as_str().into();
    }
    if let Some(metadata) = &asked.metadata {
        request["metadata"] = Value::Object(metadata.clone());
    }
    if !asked.slots.is_empty() {
        request["slots"] = asked.slots.iter().map(|(name, number)| (name.clone(), Value::from(*number))).collect();
    }
    if let Some(length) = asked.duration {
        request["stop"] = start.saturating_add(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)).into();
        request["inclusive"] = asked.inclusive.into();
    }
    told(&mover::ask(&data.folder, &request)?, asked.form.json, out)
}

/// `beamport end`
#[derive(Debug, Args)]
#[command(
    about = "End a run",
    after_help = "Examples:\n  beamport end\n  beamport end nickel-2 --stop 2026-03-01T12:00:00Z"
)]
pub struct End {
    /// Name of the run [default: the only open one]
    #[arg(value_parser = values::run_name)]
    pub run: Option<String>,
    /// End of the run: `now`, a time, or `-10 s` for 10 s ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = values::moment, allow_hyphen_values = true)]
    pub stop: When,
    /// Include messages whose time is exactly `--stop`
    #[arg(long)]
    pub inclusive: bool,
    /// Seal the run without a host that is away; once for each host
    #[arg(long, value_name = "HOST")]
    pub without: Vec<String>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for End {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(finished(self, out), err)
    }
}

fn finished(asked: &End, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let mut request = json!({"command": "end", "inclusive": asked.inclusive});
    // No time is not this time: asked again, the answer is the run as it ended.
    if asked.stop != When::Now {
        request["stop"] = nanoseconds(asked.stop, data.media.now()).into();
        request["stop_ago"] = ago(asked.stop).into();
    }
    if let Some(run) = &asked.run {
        request["run"] = run.as_str().into();
    }
    if !asked.without.is_empty() {
        request["without"] = asked.without.clone().into();
    }
    told(&mover::ask(&data.folder, &request)?, asked.form.json, out)
}

/// How long before now a time is, ns, for the host that leads, which has a clock of its own. None for a time of the
/// calendar.
fn ago(when: When) -> Option<u64> {
    match when {
        When::Now => Some(0),
        When::At(_) => None,
        When::Ago(length) => Some(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)),
    }
}

fn told(run: &Value, json: bool, out: &mut dyn Write) -> Answer {
    if json {
        json_line(out, run)?;
    } else {
        writeln!(out, "{}", text(run))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The run in one line; it stands in the stream `runs` when this is printed.
fn text(run: &Value) -> String {
    let name = run["name"].as_str().unwrap_or_default();
    let state = run["state"].as_str().unwrap_or_default();
    let start = run["start"].as_i64().unwrap_or_default();
    let begins = format!("run `{name}` is {state}: from {}", instant(start));
    match run["stop"].as_i64() {
        Some(stop) if stop != wire::bprn::STOP_UNKNOWN => {
            let inclusive = run["inclusive"] == true;
            let (stop, word) = if inclusive { (stop - 1, ", inclusive") } else { (stop, "") };
            let away = run["away"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut waits = away.map(|host| format!("; it waits for host `{host}`, which is away")).collect::<String>();
            waits.extend(run["trouble"].as_str().map(|what| format!("; {what}")));
            format!("{begins} to {}{word} ({}){waits}", instant(stop), span(stop.saturating_sub(start)))
        }
        _ => format!("{begins} until `beamport end {name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_in_a_line() {
        let run = json!({"name": "7", "state": "open", "start": 0, "stop": i64::MAX});
        assert_eq!(text(&run), "run `7` is open: from 1970-01-01T00:00:00.000000000Z until `beamport end 7`");
        let run = json!({"name": "7", "state": "settling", "start": 0, "stop": 12_300_000_000_i64});
        assert_eq!(
            text(&run),
            "run `7` is settling: from 1970-01-01T00:00:00.000000000Z to 1970-01-01T00:00:12.300000000Z (12.3 s)"
        );
        let run = json!({"name": "7", "state": "settling", "start": 0, "stop": 12_300_000_001_i64, "inclusive": true});
        assert_eq!(
            text(&run),
            "run `7` is settling: from 1970-01-01T00:00:00.000000000Z to 1970-01-01T00:00:12.300000000Z, inclusive (12.3 s)"
        );
    }
}
