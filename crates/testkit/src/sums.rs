//! Adds up every account that a program prints, by the rules of docs/reference/ledger.md.
//!
//! A row is recognised by its keys, wherever it stands in a document, so that a new form of a report is checked without
//! a change here. `tests/sums.py` does the same for tests in Python; both judge `tests/vectors/sums.json`.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

type Object = Map<String, Value>;

/// Returns the sums in a JSON document that are wrong; empty where all are right.
#[must_use]
pub fn wrong_sums(said: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    walk(said, &mut wrong);
    wrong
}

/// Returns the wrong sums in the text of a report: `NAME N sent = ...` and `NAME N read = ...`.
fn wrong_lines(text: &str) -> Vec<String> {
    let is_wrong = |line: &&str| sides(line).is_some_and(|(left, right)| left != right);
    text.lines().filter(is_wrong).map(|line| format!("does not add up: {}", line.trim())).collect()
}

/// Returns the wrong sums in all that a program printed: lines of JSON, or of text.
#[must_use]
pub fn wrong_in(printed: &str) -> Vec<String> {
    let documents = printed.lines().filter_map(|line| serde_json::from_str(line).ok());
    documents.flat_map(|said: Value| wrong_sums(&said)).chain(wrong_lines(printed)).collect()
}

fn walk(value: &Value, wrong: &mut Vec<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|value| walk(value, wrong)),
        Value::Object(object) => {
            check(object, wrong);
            object.values().for_each(|value| walk(value, wrong));
        }
        _ => {}
    }
}

fn check(object: &Object, wrong: &mut Vec<String>) {
    let has = |keys: &[&str]| keys.iter().all(|key| object.contains_key(*key));
    let mut found = Vec::new();
    if has(&["sent", "appended", "duplicate", "skipped", "lost"]) {
        check_row(object, &["sent", "duplicate"], &["appended", "skipped", "lost"], &mut found);
    } else if has(&["read", "done", "aside", "skipped", "lost", "held"]) {
        check_row(object, &["read"], &["done", "aside", "skipped", "lost", "held"], &mut found);
    } else if has(&["ledger", "streams", "gaps"]) {
        check_report(object, &mut found);
    } else if has(&["entries", "rows", "gaps", "lost"]) {
        let rows: Vec<&Object> = list(object, "entries").chain(list(object, "rows")).collect();
        let lost: u64 = rows.iter().map(|row| number(row, "lost")).sum();
        equal("lost", number(object, "lost"), "of its rows", lost, &mut found);
        check_closed(object, &rows, &mut found);
    } else if has(&["streams", "runs", "stages"]) {
        check_status(object, &mut found);
    } else if has(&["missing", "incomplete", "without"]) {
        equal("incomplete", number(object, "incomplete"), "by parts", number(object, "without"), &mut found);
        check_listed(object, &mut found);
    } else if has(&["first", "last", "reason"]) {
        let (first, last) = (number(object, "first"), number(object, "last"));
        // A time that is unknown is null.
        let (from, to) = (object["from"].as_i64().unwrap_or(i64::MIN), object["to"].as_i64().unwrap_or(i64::MAX));
        if first > last.saturating_add(1) || from > to {
            found.push("begins behind its end".into());
        }
    } else if has(&["first", "count", "messages", "lag", "fill"]) {
        check_stream(object, &mut found);
    }
    let text = || Value::Object(object.clone()).to_string().chars().take(2000).collect::<String>();
    wrong.extend(found.into_iter().map(|what| format!("{what}: {}", text())));
}

/// Left and right of the equation of a row.
fn check_row(row: &Object, left: &[&str], right: &[&str], wrong: &mut Vec<String>) {
    let sum = |keys: &[&str]| keys.iter().map(|key| number(row, key)).sum::<u64>();
    equal(&left.join(" + "), sum(left), &right.join(" + "), sum(right), wrong);
}

/// The report of a run: a line of a stream says what the rows of that stream say.
fn check_report(report: &Object, wrong: &mut Vec<String>) {
    let rows: Vec<&Object> = list(report, "ledger").collect();
    let of = |kind: &str| rows.iter().copied().filter(|row| row["account"] == kind).collect::<Vec<_>>();
    let (entries, readers) = (of("entry"), of("reader"));
    check_closed(report, &[entries.clone(), readers.clone()].concat(), wrong);
    for line in list(report, "streams") {
        let name = &line["name"];
        let mine = |rows: &[&Object], key: &str| -> u64 {
            rows.iter().filter(|row| row["stream"] == *name).map(|row| number(row, key)).sum()
        };
        let lost = mine(&entries, "lost") + mine(&readers, "lost");
        equal(&format!("lost of stream {name}"), number(line, "lost"), "of its rows", lost, wrong);
        let messages = number(line, "messages");
        for row in readers.iter().filter(|row| row["stream"] == *name) {
            let (read, lost) = (number(row, "read"), number(row, "lost"));
            if messages > read || messages + lost < read {
                wrong.push(format!("{messages} messages of {name}, but {} read {read} with {lost} lost", row["stage"]));
            }
        }
        if entries.iter().any(|row| row["stream"] == *name) && mine(&entries, "appended") < messages {
            wrong.push(format!("{messages} messages of {name}, but fewer were appended"));
        }
    }
    check_gaps(report, &[entries, readers].concat(), wrong);
}

/// Lost messages are listed. A list that is full reaches on over messages that were not lost, so it may name more.
fn check_gaps(report: &Object, rows: &[&Object], wrong: &mut Vec<String>) {
    let mut listed: BTreeMap<(String, String), u64> = BTreeMap::new();
    for gap in list(report, "gaps") {
        // A reason is `lost.WORD` or the word alone.
        let reason = gap["reason"].as_str().unwrap_or_default();
        let key = (gap["stream"].to_string(), reason.strip_prefix("lost.").unwrap_or(reason).to_owned());
        *listed.entry(key).or_default() += count(gap);
    }
    for row in rows {
        for (reason, lost) in row["lost"].as_object().into_iter().flatten().filter(|lost| lost.0 != "cut") {
            let key = (row["stream"].to_string(), reason.clone());
            let named = listed.get(&key).copied().unwrap_or(0);
            if named < lost.as_u64().unwrap_or(0) {
                wrong.push(format!("{lost} of {} lost as {reason}, but gaps name {named}", key.0));
            }
        }
    }
}

/// A closed account has only closed rows that hold nothing, and no unknown losses.
fn check_closed(account: &Object, rows: &[&Object], wrong: &mut Vec<String>) {
    let is_open = |row: &&&Object| row["closed"] != true || number(row, "held") > 0;
    let unknown = list(account, "gaps").any(|gap| gap["reason"] == "unknown");
    let open: Vec<String> = rows.iter().filter(is_open).map(|row| row["stream"].to_string()).collect();
    if account["closed"] == true && (unknown || !open.is_empty()) {
        wrong.push(format!("closed, but {} are not", open.join(", ")));
    }
}

/// A data folder as `ls` and `top` show it.
fn check_status(status: &Object, wrong: &mut Vec<String>) {
    let streams: Vec<&Object> = list(status, "streams").collect();
    let mut lost: BTreeMap<&str, u64> = BTreeMap::new();
    for row in list(status, "stages") {
        *lost.entry(row["stage"].as_str().unwrap_or_default()).or_default() += number(row, "lost");
    }
    for (stage, lost) in lost {
        for stream in streams.iter().filter(|stream| stream["name"] == stage) {
            equal(&format!("lost of stage {stage}"), number(stream, "lost"), "of its inputs", lost, wrong);
        }
    }
    let runs: Vec<&Object> = list(status, "runs").collect();
    let late = |all: &[&Object]| all.iter().map(|one| number(one, "late")).sum::<u64>();
    if list(status, "unreadable").next().is_none() {
        equal("late of streams", late(&streams), "late of runs", late(&runs), wrong);
    }
    for run in runs.iter().filter(|run| run["closed"] == true && run["state"] != "sealed") {
        wrong.push(format!("run {} is closed and not sealed", run["name"]));
    }
    let names: BTreeSet<String> = streams.iter().map(|stream| stream["name"].to_string()).collect();
    if names.len() < streams.len() {
        wrong.push("a stream is listed twice".into());
    }
}

fn check_stream(stream: &Object, wrong: &mut Vec<String>) {
    let (first, count) = (number(stream, "first"), number(stream, "count"));
    equal("count - first", count.saturating_sub(first), "messages", number(stream, "messages"), wrong);
    let fill = stream["fill"].as_f64().unwrap_or(-1.0);
    if first > count || number(stream, "disk") > count || !(0.0..=1.0).contains(&fill) {
        wrong.push("beyond its bounds".into());
    }
}

/// The newest ids are listed, so there are at least as many.
fn check_listed(missing: &Object, wrong: &mut Vec<String>) {
    let listed = |wanted: bool| -> u64 {
        list(missing, "gaps").filter(|gap| (gap["reason"] == "missing") == wanted).map(count).sum()
    };
    if listed(true) > number(missing, "missing") || listed(false) > number(missing, "incomplete") {
        wrong.push("gaps name more ids than are counted".into());
    }
}

fn equal(what: &str, left: u64, other: &str, right: u64, wrong: &mut Vec<String>) {
    if left != right {
        wrong.push(format!("{what} {left} is not {other} {right}"));
    }
}

fn count(gap: &Object) -> u64 {
    number(gap, "last").saturating_add(1).saturating_sub(number(gap, "first"))
}

/// A number, or the sum of the numbers by reason; 0 where there is none.
fn number(object: &Object, key: &str) -> u64 {
    match object.get(key) {
        Some(Value::Object(reasons)) => reasons.values().filter_map(Value::as_u64).sum(),
        Some(value) => value.as_u64().unwrap_or(0),
        None => 0,
    }
}

fn list<'a>(object: &'a Object, key: &str) -> impl Iterator<Item = &'a Object> {
    object.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

/// The two sides of a printed equation; none of another line.
fn sides(line: &str) -> Option<(u64, u64)> {
    let (left, right) = line.trim().split_once(" = ")?;
    let (_, left) = left.split_once(' ')?;
    let is_account = |word: &str| left.split(" + ").any(|term| term.ends_with(word));
    if !is_account(" sent") && !is_account(" read") {
        return None;
    }
    let sum = |side: &str| side.split(" + ").map(amount).sum::<Option<u64>>();
    Some((sum(left)?, sum(right)?))
}

/// The number before the word of a term: 1583 of `1,583 lost (full)`.
fn amount(term: &str) -> Option<u64> {
    let digits: String = term.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{wrong_lines, wrong_sums};
    use serde_json::Value;

    #[test]
    fn each_wrong_account_of_the_examples_is_found_and_no_right_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/sums.json");
        let examples: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(examples.len() > 20);
        for example in examples {
            let wrong = example["said"].as_str().map_or_else(|| wrong_sums(&example["said"]), wrong_lines);
            assert_eq!(Some(wrong.len() as u64), example["wrong"].as_u64(), "{}: {wrong:#?}", example["about"]);
        }
    }
}
