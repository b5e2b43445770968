//! What a source may be asked: PVs come and go while it runs.
//!
//! `{"add": [entry...], "remove": [pattern...], "replace": true}` is answered with `{"added", "removed", "pvs"}`.
//! One entry or pattern needs no list. With `replace` all PVs are removed that are not in `add`.

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
const HINT: &str = "`add` and `remove` take a name or a list, `replace` takes true or false";
const KEYS: [&str; 3] = ["add", "remove", "replace"];

fn fault(refused: Refused) -> Fault {
    Fault::new(WHAT, refused.cause).hint(refused.hint)
}

impl Change {
    /// Reads a request. `protocol`: of names without a prefix.
    pub(crate) fn of_json(request: &Value, protocol: Protocol) -> Result<Self, Fault> {
        let wrong = |cause: String| Fault::new(WHAT, cause).hint(HINT);
        let table = request.as_object().ok_or_else(|| wrong("the request is not an object".into()))?;
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(wrong(format!("unknown key `{}`", shortened(key))));
        }
        let list = |key: &str| match table.get(key) {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(list)) => list.as_slice(),
            Some(one) => std::slice::from_ref(one),
        };
        let replace = match table.get("replace") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(replace)) => *replace,
            Some(_) => return Err(wrong("`replace` is not true or false".into())),
        };
        let add = list("add").iter().map(|value| Entry::of_json(value, protocol).map_err(fault));
        let remove = list("remove").iter().map(|value| Pattern::of_json(value).map_err(fault));
        Ok(Self { add: add.collect::<Result<_, _>>()?, remove: remove.collect::<Result<_, _>>()?, replace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_request_is_read() {
        let request = json!({"add": ["A", {"pv": "ca:B"}], "remove": ["C*"], "replace": true});
        let change = Change::of_json(&request, Protocol::Pva).unwrap();
        let names = |change: &Change| -> Vec<String> { change.add.iter().map(|entry| entry.identity.name()).collect() };
        assert_eq!(names(&change), ["pva:A", "ca:B"]);
        assert_eq!((change.remove.len(), change.replace), (1, true));
        // One of them needs no list.
        let change = Change::of_json(&json!({"add": "A", "remove": "C*"}), Protocol::Pva).unwrap();
        assert_eq!((names(&change), change.remove.len()), (vec!["pva:A".to_owned()], 1));
        let change = Change::of_json(&json!({"add": {"pv": "ca:B", "topic": "t"}}), Protocol::Pva).unwrap();
        assert_eq!(names(&change), ["ca:B"]);
        let nothing = Change::of_json(&json!({"add": null}), Protocol::Pva).unwrap();
        assert_eq!(nothing, Change::default());
        for (wrong, part) in [
            (json!([]), "not an object"),
            (json!({"added": []}), "unknown key `added`"),
            (json!({"add": 1}), "an entry is not"),
            (json!({"add": [""]}), "is empty"),
            (json!({"remove": [1]}), "a pattern is not"),
            (json!({"replace": 1}), "`replace` is not"),
        ] {
            let fault = Change::of_json(&wrong, Protocol::Pva).unwrap_err();
            assert!(fault.cause.contains(part), "{wrong}: {}", fault.cause);
        }
    }
}
