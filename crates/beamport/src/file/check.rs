//! `beamport check FILE`: every mistake at once, or the resolved file.

use super::{Mistake, TemplateCheck, read};
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs `check`: what is good goes to `out`, mistakes go to `err` (with `as_json` all to `out`). Exit status 0, or 2 with mistakes.
pub fn check(
    path: &Path,
    is_shown: bool,
    as_json: bool,
    template_check: &TemplateCheck<'_>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> std::io::Result<ExitCode> {
    let result = read(path, template_check);
    let file = path.display();
    if as_json {
        let (instrument, mistakes) = match &result {
            Ok(instrument) => (instrument.show_json(), &[][..]),
            Err(mistakes) => (serde_json::Value::Null, mistakes.as_slice()),
        };
        let mut answer = json!({"file": file.to_string(), "good": mistakes.is_empty(), "mistakes": mistakes});
        if is_shown && let Some(answer) = answer.as_object_mut() {
            answer.insert("resolved".into(), instrument);
        }
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::from(if mistakes.is_empty() { 0 } else { 2 }));
    }
    match result {
        Ok(instrument) if is_shown => write!(out, "{}", instrument.show())?,
        Ok(instrument) => {
            let counts = [
                counted(instrument.sources.len(), "source"),
                counted(instrument.sinks.len(), "sink"),
                counted(instrument.runs.len(), "run"),
            ];
            writeln!(out, "{file}: good: {}", counts.join(", "))?;
        }
        Err(mistakes) => {
            mistakes.iter().try_for_each(|mistake: &Mistake| writeln!(err, "{mistake}\n"))?;
            writeln!(err, "{file}: {}", counted(mistakes.len(), "mistake"))?;
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
