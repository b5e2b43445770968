//! The command `configure`: PVs come and go while the source runs.
//!
//! `{"verb": "configure", "add": [entry...], "remove": [pattern...], "replace": true}` is answered with
//! `{"added", "removed", "pvs"}`. With `replace` all PVs are removed that are not in `add`.

use crate::entry::{Entry, Pattern, Protocol};
use flow::Fault;
use serde_json::Value;
use settings::{Refused, shortened};

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) add: Vec<Entry>,
    pub(crate) remove: Vec<Pattern>,
    pub(crate) replace: bool,
}

const WHAT: &str = "the list of PVs cannot be changed";
const KEYS: [&str; 6] = ["verb", "command", "source", "add", "remove", "replace"];

fn fault(refused: Refused) -> Fault {
    Fault::new(WHAT, refused.cause).hint(refused.hint)
}

impl Change {
    /// Reads a request. `protocol`: of names without a prefix.
    pub(crate) fn of_json(request: &Value, protocol: Protocol) -> Result<Self, Fault> {
        let hint = "send `{\"verb\": \"configure\", \"add\": [...], \"remove\": [...]}`";
        let wrong = |cause: String| Fault::new(WHAT, cause).hint(hint);
        let table = request.as_object().ok_or_else(|| wrong("the request is not an object".into()))?;
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(wrong(format!("unknown key `{}`", shortened(key))));
        }
        let verb = request["verb"].as_str().or_else(|| request["command"].as_str());
        if verb != Some("configure") {
            return Err(wrong(format!("unknown verb `{}`", shortened(verb.unwrap_or_default()))));
        }
        let list = |key: &str| match table.get(key) {
            None | Some(Value::Null) => Ok(&[][..]),
            Some(Value::Array(list)) => Ok(list.as_slice()),
            Some(_) => Err(wrong(format!("`{key}` is not a list"))),
        };
        let replace = match table.get("replace") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(replace)) => *replace,
            Some(_) => return Err(wrong("`replace` is not true or false".into())),
        };
        let add = list("add")?.iter().map(|value| Entry::of_json(value, protocol).map_err(fault));
        let remove = list("remove")?.iter().map(|value| Pattern::of_json(value).map_err(fault));
        Ok(Self { add: add.collect::<Result<_, _>>()?, remove: remove.collect::<Result<_, _>>()?, replace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_is_read() {
        let request = json!({"verb": "configure", "add": ["A", {"pv": "ca:B"}], "remove": ["C*"], "replace": true});
        let change = Change::of_json(&request, Protocol::Pva).unwrap();
        let names: Vec<String> = change.add.iter().map(|entry| entry.identity.name()).collect();
        assert_eq!(names, ["pva:A", "ca:B"]);
        assert_eq!((change.remove.len(), change.replace), (1, true));
        let nothing = Change::of_json(&json!({"command": "configure", "source": "x"}), Protocol::Pva).unwrap();
        assert_eq!(nothing, Change::default());
        for (wrong, part) in [
            (json!([]), "not an object"),
            (json!({}), "unknown verb"),
            (json!({"verb": "stop"}), "unknown verb `stop`"),
            (json!({"verb": "configure", "added": []}), "unknown key `added`"),
            (json!({"verb": "configure", "add": "A"}), "`add` is not a list"),
            (json!({"verb": "configure", "add": [""]}), "is empty"),
            (json!({"verb": "configure", "remove": [1]}), "a pattern is not"),
            (json!({"verb": "configure", "replace": 1}), "`replace` is not"),
        ] {
            let fault = Change::of_json(&wrong, Protocol::Pva).unwrap_err();
            assert!(fault.cause.contains(part), "{wrong}: {}", fault.cause);
        }
    }
}
