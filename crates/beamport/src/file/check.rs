//! `beamport check FILE`: every mistake at once, or the resolved file.

use super::{Mistake, TemplateCheck, read};
use crate::cli;
use crate::room;
use crate::verbs::figures::bytes;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

/// Runs `check`: what is good goes to `out`, mistakes go to `err` (with `--json` all to `out`). Exit status 0, or 2 with
/// mistakes; that this machine has too little shared memory for the file is one.
pub fn check(
    asked: &cli::Check,
    template_check: &TemplateCheck<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> std::io::Result<ExitCode> {
    let result = read(&asked.file, template_check);
    let result = result.and_then(|instrument| match room::lacking(&instrument) {
        Some(mistake) => Err(vec![mistake]),
        None => Ok(instrument),
    });
    let file = asked.file.display();
    if asked.form.json {
        let (instrument, mistakes) = match &result {
            Ok(instrument) => (instrument.show_json(), &[][..]),
            Err(mistakes) => (serde_json::Value::Null, mistakes.as_slice()),
        };
        let mut answer = json!({"file": file.to_string(), "good": mistakes.is_empty(), "mistakes": mistakes});
        if asked.show
            && let Some(answer) = answer.as_object_mut()
        {
            answer.insert("resolved".into(), instrument);
        }
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::from(if mistakes.is_empty() { 0 } else { 2 }));
    }
    match result {
        Ok(instrument) if asked.show => write!(out, "{}", instrument.show())?,
        Ok(instrument) => {
            let counts = [
                counted(instrument.sources.len(), "source"),
                counted(instrument.sinks.len(), "sink"),
                counted(instrument.runs.len(), "run"),
            ];
            let memory = bytes(room::asked(&instrument));
            writeln!(out, "{file}: good: {}; {memory} of shared memory", counts.join(", "))?;
        }
        Err(mistakes) => {
            // The exit status says it too, where nobody reads this.
            let _ = mistakes.iter().try_for_each(|mistake: &Mistake| writeln!(err, "{mistake}\n"));
            let _ = writeln!(err, "{file}: {}", counted(mistakes.len(), "mistake"));
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
