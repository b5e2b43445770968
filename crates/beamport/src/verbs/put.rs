//! `beamport put`: writes a value to a PV, by way of the mover, which records it with the answer.

use super::{Answer, ended, json_line, open};
use crate::cli::Put;
use crate::mover;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs the verb.
pub fn run(asked: &Put, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    ended(written(asked, out), err)
}

fn written(asked: &Put, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let timeout = u64::try_from(asked.timeout.as_nanos()).unwrap_or(u64::MAX);
    let request = json!({"command": "put", "pv": asked.pv, "value": value(&asked.value), "timeout": timeout});
    let answer = mover::ask(&data.folder, &request)?;
    if asked.form.json {
        json_line(out, &answer)?;
    } else {
        let pv = answer["pv"].as_str().unwrap_or_default();
        let ms = answer["seconds"].as_f64().unwrap_or_default() * 1e3;
        writeln!(out, "{pv} has taken the value; it answered after {ms:.1} ms")?;
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
    fn a_value_is_text_unless_it_is_a_list() {
        assert_eq!(value("5"), json!("5"));
        assert_eq!(value("[1, 2.5]"), json!([1, 2.5]));
        assert_eq!(value("[\"a\"]"), json!(["a"]));
        assert_eq!(value("[open"), json!("[open"));
    }
}
