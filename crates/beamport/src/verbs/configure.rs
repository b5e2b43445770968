//! `beamport configure`: changes a worker or a source that runs, by way of the mover; without a change it says how the
//! worker is.

use super::{Answer, ended, json_line, open};
use crate::cli::Configure;
use crate::figures::thousands;
use crate::mover;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Runs the verb.
pub fn run(asked: &Configure, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let answer = changed(asked, out);
    ended(answer, err)
}

fn changed(asked: &Configure, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    if !asked.add.is_empty() || !asked.remove.is_empty() {
        return pvs(asked, &data.folder, out);
    }
    let parameters: Map<String, Value> = asked.parameters.iter().cloned().collect();
    let mut request = json!({"command": "configure", "worker": asked.stage, "parameters": parameters});
    if let Some(slots) = asked.slots {
        request["slots"] = slots.into();
    }
    let answer = mover::ask(&data.folder, &request)?;
    if asked.form.json {
        json_line(out, &answer)?;
    } else {
        writeln!(out, "{}", text(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Changes the PVs of a source.
fn pvs(asked: &Configure, folder: &Path, out: &mut dyn Write) -> Answer {
    // A table is a JSON object; a name is not.
    let entry = |text: &String| serde_json::from_str(text).ok().filter(Value::is_object).unwrap_or(json!(text));
    let add: Vec<Value> = asked.add.iter().map(entry).collect();
    let request = json!({"command": "configure", "source": asked.stage, "add": add, "remove": asked.remove});
    let answer = mover::ask(folder, &request)?["answer"].take();
    if asked.form.json {
        json_line(out, &answer)?;
    } else {
        let [pvs, added, removed] = ["pvs", "added", "removed"].map(|key| answer[key].as_u64().unwrap_or(0));
        let figures = [pvs, added, removed].map(thousands);
        writeln!(out, "source `{}` has {} PVs: {} added, {} removed", asked.stage, figures[0], figures[1], figures[2])?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How the worker is, in one line.
fn text(answer: &Value) -> String {
    let slots = match answer["slots"].as_u64() {
        Some(1) => "1 slot".to_owned(),
        slots => format!("{} slots", slots.unwrap_or_default()),
    };
    let parameters: Vec<String> =
        answer["parameters"].as_object().into_iter().flatten().map(|(name, value)| format!("{name}={value}")).collect();
    let with = if parameters.is_empty() { "no parameters".to_owned() } else { parameters.join(" ") };
    format!("worker `{}` has {slots}: {with}", answer["worker"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_told_in_a_line() {
        let answer = json!({"worker": "mean", "slots": 1, "parameters": {}});
        assert_eq!(text(&answer), "worker `mean` has 1 slot: no parameters");
        let answer = json!({"worker": "mean", "slots": 4, "parameters": {"mode": "fast", "threshold": 3}});
        assert_eq!(text(&answer), "worker `mean` has 4 slots: mode=\"fast\" threshold=3");
    }
}
