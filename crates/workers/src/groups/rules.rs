//! What is made of groups that were found: which of them go on, and as what.

use crate::parameters::Parameters;
use serde_json::Value;

/// Members at most.
const MEMBERS_MAX: usize = 65_536;
/// Messages that are pending, where nobody says.
const PENDING: i64 = 65_536;
/// The most that may be said: 32 MiB of what is kept of each.
const PENDING_MAX: i64 = 1 << 20;

/// The parameters that all finders share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rules {
    /// Names of the origins that belong; none: all do.
    pub(super) members: Vec<String>,
    /// Different members that a group has at least.
    pub(super) multiplicity: u32,
    /// Of the groups that pass, one in so many goes on.
    pub(super) prescale: u64,
    /// Only groups that miss no member go on.
    pub(super) complete: bool,
    /// The messages go on, not rows.
    pub(super) messages: bool,
    /// Messages that are pending at most.
    pub(super) most: usize,
}

impl Rules {
    pub(super) fn read(given: &mut Parameters<'_>) -> Self {
        let members = members(given);
        let multiplicity = given.number("multiplicity", 1..=MEMBERS_MAX as i64).unwrap_or(1) as u32;
        if !members.is_empty() && multiplicity as usize > members.len() {
            let cause = format!("it is {multiplicity}, and there are {} members", members.len());
            given.mistake("multiplicity", cause, "write how many different members a group has at least");
        }
        let prescale = given.number("prescale", 1..=1 << 40).unwrap_or(1) as u64;
        let complete = match given.value("complete") {
            None => false,
            Some(Value::Bool(complete)) => *complete,
            Some(other) => {
                given.mistake("complete", format!("it is {other}"), "write true or false");
                false
            }
        };
        if complete && members.is_empty() {
            let hint = "name the origins that a group should have: `members = [\"a\", \"b\"]`";
            given.mistake("complete", "without `members` nothing is missing", hint);
        }
        let messages = given.word("make", &["rows", "messages"]) == "messages";
        let most = given.number("pending", 2..=PENDING_MAX).unwrap_or(PENDING) as usize;
        Self { members, multiplicity, prescale, complete, messages, most }
    }
}

/// The parameter `members`: names, and `name{001..120}` for many of them.
fn members(given: &mut Parameters<'_>) -> Vec<String> {
    let Some(value) = given.value("members") else { return Vec::new() };
    let hint = "write names of origins, like `[\"left\", \"right\"]`, or `[\"d{001..120}\"]` for d001 to d120";
    let texts: Option<Vec<&str>> = value.as_array().and_then(|all| all.iter().map(Value::as_str).collect());
    let Some(texts) = texts.filter(|texts| !texts.is_empty()) else {
        given.mistake("members", format!("it is {value}"), hint);
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for text in texts {
        match settings::expanded(text, MEMBERS_MAX) {
            Ok(more) if !text.is_empty() && names.len() + more.len() <= MEMBERS_MAX => names.extend(more),
            _ => given.mistake("members", format!("`{text}` is no name, and no row of names"), hint),
        }
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()) {
        given.mistake("members", format!("`{twice}` is there twice"), "name each once");
    }
    names
}
