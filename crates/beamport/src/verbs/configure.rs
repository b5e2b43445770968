//! `beamport configure`: changes a worker that runs, or asks a source, by way of the mover; without a change it says
//! how the worker is.

use super::{Answer, Verb, ended, json_line, open};
use crate::arguments::{DataFolder, Form, values};
use crate::edges::Registry;
use crate::figures::thousands;
use crate::mover;
use clap::Args;
use flow::Fault;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// `beamport configure`
#[derive(Debug, Args)]
#[command(
    about = "Show a running worker, change its parameters and slots, or ask a source to change",
    after_help = "Examples:\n\
                  \x20 beamport configure mean\n\
                  \x20 beamport configure mean threshold=3 mode=fast\n\
                  \x20 beamport configure mean --slots 4\n\
                  \x20 beamport configure motors add=LAB:MOT:1.RBV remove='LAB:OLD:*'\n\
                  \x20 beamport configure motors add='[\"LAB:MOT:1.RBV\", \"ca:LAB:SE:T1\"]'"
)]
pub struct Configure {
    /// Name of the worker or of the source
    pub stage: String,
    /// Parameters to change, or to ask a source; a value is JSON, else text; `null` removes a parameter
    #[arg(value_name = "NAME=VALUE", value_parser = values::parameter)]
    pub parameters: Vec<(String, serde_json::Value)>,
    /// New number of slots of a worker
    #[arg(long, value_name = "NUMBER")]
    pub slots: Option<u32>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Configure {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(changed(self, out), err)
    }
}

fn changed(asked: &Configure, out: &mut dyn Write) -> Answer {
    let parameters = once(&asked.parameters)?;
    let data = open(&asked.data)?;
    let mut request = json!({"command": "configure", "stage": asked.stage, "parameters": parameters});
    if let Some(slots) = asked.slots {
        request["slots"] = slots.into();
    }
    let mut answer = mover::ask(&data.folder, &request)?;
    // A source answers in words of its kind.
    let of_source = answer.get_mut("answer").map(Value::take);
    match &of_source {
        answered if asked.form.json => json_line(out, answered.as_ref().unwrap_or(&answer))?,
        Some(answered) => writeln!(out, "source `{}`: {}", asked.stage, line(answered))?,
        None => write!(out, "{}", lines(&answer))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The parameters by name: of two values for one, neither may be lost in silence.
fn once(parameters: &[(String, Value)]) -> Result<Map<String, Value>, Fault> {
    let mut named = Map::new();
    for (name, value) in parameters {
        if named.insert(name.clone(), value.clone()).is_some() {
            return Err(Fault::new(format!("`{name}` is given twice"), "a parameter has one value")
                .hint(format!("several are a list: `{name}='[\"A\", \"B\"]'`")));
        }
    }
    Ok(named)
}

/// The answer of a source, in one line.
fn line(answer: &Value) -> String {
    let word = |(name, value): (&String, &Value)| match value {
        Value::String(value) => format!("{name} {value}"),
        value => format!("{name} {}", value.as_u64().map_or_else(|| value.to_string(), thousands)),
    };
    match answer.as_object() {
        Some(answer) => answer.iter().map(word).collect::<Vec<_>>().join(", "),
        None => answer.to_string(),
    }
}

/// How the worker is: one line, or one for each of its hosts.
fn lines(answer: &Value) -> String {
    let Some(hosts) = answer["hosts"].as_object() else { return text(answer) + "\n" };
    let up = hosts.iter().map(|(host, answer)| format!("host `{host}`: {}\n", text(answer)));
    let away = answer["away"].as_array().into_iter().flatten().filter_map(Value::as_str);
    up.chain(away.map(|host| format!("host `{host}` is away, and follows when it starts\n"))).collect()
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
    let paused = if answer["paused"] == true { ", paused" } else { "" };
    format!("worker `{}` has {slots}{paused}: {with}", answer["worker"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_given_once() {
        let given = |names: [&str; 2]| once(&names.map(|name| (name.to_owned(), json!(1))));
        assert_eq!(Value::Object(given(["a", "b"]).unwrap()), json!({"a": 1, "b": 1}));
        assert_eq!(given(["a", "a"]).unwrap_err().what, "`a` is given twice");
    }

    #[test]
    fn an_answer_of_a_source_is_told_in_a_line() {
        let answer = json!({"added": 12_000, "state": "open", "share": 0.5, "names": ["a"]});
        assert_eq!(line(&answer), "added 12,000, names [\"a\"], share 0.5, state open");
        assert_eq!(line(&json!(null)), "null");
    }

    #[test]
    fn a_worker_is_told_in_a_line() {
        let answer = json!({"worker": "mean", "slots": 1, "parameters": {}});
        assert_eq!(text(&answer), "worker `mean` has 1 slot: no parameters");
        let answer = json!({"worker": "mean", "slots": 4, "parameters": {"mode": "fast", "threshold": 3}});
        assert_eq!(lines(&answer), "worker `mean` has 4 slots: mode=\"fast\" threshold=3\n");
        let answer = json!({"worker": "mean", "hosts": {"n1": answer}, "away": ["n2"]});
        let said = "host `n1`: worker `mean` has 4 slots: mode=\"fast\" threshold=3\n\
                    host `n2` is away, and follows when it starts\n";
        assert_eq!(lines(&answer), said);
    }
}
