//! `beamport cutover`: switches a worker to the code of its shadow, through the mover.

use super::{Answer, Verb, compare, ended, json_line, open};
use crate::arguments::{DataFolder, Form};
use crate::compare::Comparison;
use crate::edges::Registry;
use crate::mover;
use clap::Args;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// `beamport cutover`
#[derive(Debug, Args)]
#[command(
    about = "Switch a worker to its shadow's code; prints the first message affected",
    after_help = "Examples:\n  beamport cutover mean-new"
)]
pub struct Cutover {
    /// Name of the shadow
    pub shadow: String,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Cutover {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(cut_over(self, out), err)
    }
}

fn cut_over(asked: &Cutover, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let answer = mover::ask(&data.folder, &json!({"command": "cutover", "shadow": asked.shadow}))?;
    if asked.form.json {
        json_line(out, &answer)?;
    } else {
        write!(out, "{}", text(&answer))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer for people.
fn text(answer: &Value) -> String {
    let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let worker = said(&answer["worker"]);
    let mut lines = Vec::new();
    if let Ok(before) = serde_json::from_value::<Comparison>(answer["compared"].clone()) {
        lines.push(format!("before: {}", compare::text(&before).trim_end()));
    } else if let Some(fault) = answer["compared"]["fault"].as_str() {
        lines.push(format!("before: {fault}"));
    }
    lines.push(format!("worker `{worker}` now runs {}", said(&answer["code"]["call"])));
    for from in answer["from"].as_array().into_iter().flatten() {
        let (stream, epoch, sequence) = (said(&from["stream"]), &from["epoch"], &from["sequence"]);
        lines.push(format!("  from message {sequence} of `{stream}` on (epoch {epoch})"));
    }
    lines.push(format!("  which is from message {} of `{worker}` on", answer["output"]));
    lines.push(format!("it stays so until [worker.{worker}] in the instrument file is changed"));
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_said_from_which_on_other_code_works() {
        let answer = json!({
            "worker": "mean", "code": {"call": "new.py:mean"}, "slots": 1, "parameters": {}, "output": 38,
            "from": [{"stream": "camera", "epoch": 0, "sequence": 40}],
            "compared": Comparison { old: "mean".into(), new: "trial".into(), same: 40, ..Comparison::default() },
        });
        assert_eq!(
            text(&answer),
            "before: `mean` and `trial`: 40 same, 0 different, 0 only in `mean`, 0 only in `trial`\n\
             worker `mean` now runs new.py:mean\n  \
               from message 40 of `camera` on (epoch 0)\n  \
               which is from message 38 of `mean` on\n\
             it stays so until [worker.mean] in the instrument file is changed\n"
        );
    }
}
