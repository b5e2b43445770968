//! `beamport worker` and `beamport retry`, by way of the mover: workers of a running instrument are paused, resumed,
//! added and removed, their statistics reset, and their messages aside retried.

use super::{Answer, Verb, ended, json_line, open};
use crate::arguments::{DataFolder, Form};
use crate::edges::{Registry, TemplateAnswer};
use crate::figures::thousands;
use crate::file;
use crate::limits::CODE_LOAD;
use crate::mover;
use clap::{Args, ValueEnum};
use flow::{Data, Fault};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// An action on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Start it, as the instrument file has it now
    Add,
    /// Begin no message until it is resumed; sources may lose what memory streams do not hold
    Pause,
    /// End it; its stream stays, and it resumes where it stopped when it is added once more
    Remove,
    /// Set its statistics to zero, not its account
    Reset,
    /// Go on where it was paused
    Resume,
}

/// `beamport worker`
#[derive(Debug, Args)]
#[command(
    about = "Add, pause, resume, remove or reset a worker of a running instrument",
    after_help = "Examples:\n\
                  \x20 beamport worker add mean\n\
                  \x20 beamport worker pause mean\n\
                  \x20 beamport worker resume mean"
)]
pub struct Worker {
    /// Action on it
    pub action: Action,
    /// Name of the worker
    pub name: String,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport retry`
#[derive(Debug, Args)]
#[command(
    about = "Have a worker process once more what it has set aside, each message once",
    after_help = "Examples:\n  beamport configure mean scale=2\n  beamport retry mean.aside"
)]
pub struct Retry {
    /// The stream of the messages aside: NAME.aside
    pub stream: String,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Worker {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(managed(self, registry, out), err)
    }
}

impl Verb for Retry {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(retried(self, out), err)
    }
}

fn managed(asked: &Worker, registry: &Registry, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let (action, past) = match asked.action {
        Action::Add => ("add", "runs"),
        Action::Pause => ("pause", "is paused"),
        Action::Remove => ("remove", "has ended; the next `beamport up` starts it where the file has it"),
        Action::Reset => ("reset", "counts from zero"),
        Action::Resume => ("resume", "goes on"),
    };
    if asked.action == Action::Add {
        check_code(&data, &asked.name, registry)?;
    }
    let request = json!({"command": "worker", "action": action, "worker": asked.name});
    let answer = mover::ask(&data.folder, &request)?;
    match asked.form.json {
        true => json_line(out, &answer)?,
        false => writeln!(out, "worker `{}` {past}", asked.name)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads the code of a worker of the file that runs: the mover would start it and fail for ever. The mover itself
/// reports mistakes of the file.
fn check_code(data: &Data, name: &str, registry: &Registry) -> Result<(), Fault> {
    let status = mover::ask(&data.folder, &json!({"command": "status"}))?;
    let Some(path) = status["file"].as_str() else { return Ok(()) };
    let Ok(instrument) = file::read(Path::new(path), registry, &|_, _| TemplateAnswer::default()) else {
        return Ok(());
    };
    match instrument.workers().find(|section| section.name == name) {
        Some(section) => {
            mover::check_code(section, CODE_LOAD).map_err(|fault| fault.leads_to(format!("cannot add worker `{name}`")))
        }
        None => Ok(()),
    }
}

fn retried(asked: &Retry, out: &mut dyn Write) -> Answer {
    let Some(worker) = asked.stream.strip_suffix(".aside") else {
        return Err(Fault::new(format!("cannot retry `{}`", asked.stream), "it is no stream of messages aside")
            .hint(format!("write `{}.aside`", asked.stream))
            .into());
    };
    let data = open(&asked.data)?;
    let answer = mover::ask(&data.folder, &json!({"command": "worker", "action": "retry", "worker": worker}))?;
    match asked.form.json {
        true => json_line(out, &answer)?,
        false => writeln!(out, "{}", text(worker, &answer))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer for people.
fn text(worker: &str, answer: &Value) -> String {
    match answer["retried"].as_u64().unwrap_or_default() {
        0 => format!("worker `{worker}` has nothing to retry: all of `{worker}.aside` was retried, or has no bytes"),
        1 => format!("worker `{worker}` retries 1 message"),
        many => format!("worker `{worker}` retries {} messages", thousands(many)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_retried_messages_is_reported() {
        assert_eq!(text("mean", &json!({"retried": 1})), "worker `mean` retries 1 message");
        assert_eq!(text("mean", &json!({"retried": 1_681})), "worker `mean` retries 1,681 messages");
        assert!(text("mean", &json!({"retried": 0})).contains("nothing to retry"));
    }
}
