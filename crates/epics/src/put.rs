//! Reading and writing PVs: the commands `put` and `get`.
//!
//! `{"command": "put", "pv": "ca:A:B", "value": 1.5, "wait": true, "read": false, "timeout": 5000000000}` is answered
//! with `{"pv", "seconds"}` once the record has processed, with `read` also with what `get` answers. A text is read as
//! the type of the PV asks. `{"command": "get", "pv": "A:B"}` is answered with `{"pv", "value", "text", "time",
//! "severity", "alarm", "units"}`.
//!
//! Without a prefix the PV has the protocol of the source that lists it, or else pvAccess; it is searched for where
//! that source searches, or else where the first source of its protocol does.
//!
//! Constraint: clients are kept for the next command, so that a PV that was used before is connected already.

use crate::entry::{Protocol, read_name};
use crate::get;
use crate::library::{Client, at_exit};
use crate::limits::{IDLE_CLIENTS, PUT_PATIENCE, PUT_PATIENCE_MAX, READ_PATIENCE};
use crate::links;
use crate::plan::{Network, Plan};
use crate::put_value::PutValue;
use crate::value::Failed;
use flow::Fault;
use flow::edge::NamedSources;
use serde_json::{Value, json};
use settings::{Refused, Word, shortened};
use std::any::Any;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

/// Clients that no command uses, each with its network.
static IDLE: Mutex<Vec<(Network, Protocol, Client)>> = Mutex::new(Vec::new());

/// The content of a request.
struct Request<'a> {
    prefix: Option<Protocol>,
    pv: &'a str,
    patience: Duration,
}

impl<'a> Request<'a> {
    /// `more`: keys beside those of each request.
    fn read(request: &'a Value, more: &[&str]) -> Result<Self, Refused> {
        let form = match more {
            [] => "send `{\"command\": \"get\", \"pv\": \"NAME\"}`",
            _ => "send `{\"command\": \"put\", \"pv\": \"NAME\", \"value\": VALUE}`",
        };
        let keys = request.as_object().into_iter().flat_map(|table| table.keys());
        let is_known = |key: &str| ["command", "pv", "timeout"].contains(&key) || more.contains(&key);
        if let Some(key) = keys.into_iter().find(|key| !is_known(key)) {
            return Err(Refused::new(format!("unknown key `{}`", shortened(key)), form));
        }
        let name = request["pv"].as_str().ok_or_else(|| Refused::new("`pv` is not a text", form))?;
        let (prefix, pv) = read_name(name)?;
        if prefix == Some(Protocol::Fake) {
            return Err(Refused::new("a simulated PV has no server", "name a PV that a server has"));
        }
        let patience = match &request["timeout"] {
            Value::Null => Some(PUT_PATIENCE),
            timeout => timeout.as_u64().map(Duration::from_nanos),
        };
        let is_possible = |patience: &Duration| (Duration::from_millis(1)..=PUT_PATIENCE_MAX).contains(patience);
        let patience = patience.filter(is_possible).ok_or_else(|| {
            Refused::new("`timeout` is not a number of ns from 1 ms to 1 h", "write a timeout such as `10 s`")
        })?;
        Ok(Self { prefix, pv, patience })
    }

    /// A key that is true or false.
    fn choice(request: &Value, key: &str, otherwise: bool) -> Result<bool, Refused> {
        match &request[key] {
            Value::Null => Ok(otherwise),
            Value::Bool(choice) => Ok(*choice),
            _ => Err(Refused::new(format!("`{key}` is not true or false"), "write `true` or `false`")),
        }
    }

    /// The protocol of the PV, and where it is searched for.
    fn network(&self, sources: &NamedSources<'_>) -> (Protocol, Network) {
        let plans: Vec<&Plan> = sources.iter().filter_map(|(_, plan)| (*plan as &dyn Any).downcast_ref()).collect();
        let entries = |plan: &'_ &Plan| {
            let known = plan.entries.iter().map(|entry| &entry.identity);
            let mut known = known.filter(|identity| identity.pv == self.pv && identity.protocol != Protocol::Fake);
            known.find(|identity| self.prefix.is_none_or(|prefix| identity.protocol == prefix)).map(|one| one.protocol)
        };
        let listed = plans.iter().find_map(|plan| Some((entries(plan)?, *plan)));
        let protocol = self.prefix.or(listed.map(|listed| listed.0)).unwrap_or_default();
        let first = || plans.iter().copied().find(|plan| plan.network.protocol == protocol);
        let plan = listed.map(|listed| listed.1).or_else(first);
        (protocol, plan.map(|plan| plan.network.clone()).unwrap_or_default())
    }
}

/// Closes the clients that are kept: their threads must not outlive the libraries.
extern "C" fn close_idle() {
    IDLE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
}

/// Has a client do something with a PV. `verb`: what, for a fault; the PV's name with its prefix and the answer.
fn with_client<T>(
    asked: &Request<'_>,
    sources: &NamedSources<'_>,
    verb: &str,
    work: impl FnOnce(&mut Client) -> Result<T, (Failed, String)>,
) -> Result<(String, T), Fault> {
    let (protocol, network) = asked.network(sources);
    let name = format!("{}:{}", protocol.word(), asked.pv);
    let what = || format!("cannot {verb} `{name}`");
    let idle = || IDLE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let found = {
        let mut idle = idle();
        let at = idle.iter().position(|(of, speaks, _)| *of == network && *speaks == protocol);
        at.map(|at| idle.swap_remove(at).2)
    };
    let client = match found {
        Some(client) => Some(client),
        None => links::open(&network, protocol).map_err(|fault| fault.leads_to(what()))?,
    };
    let Some(mut client) = client else { return Err(Fault::new(what(), "a simulated PV has no server")) };
    let answer = work(&mut client);
    let mut idle = idle();
    if idle.len() < IDLE_CLIENTS {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| at_exit(close_idle));
        idle.push((network, protocol, client));
    }
    drop(idle);
    answer
        .map(|answer| (name.clone(), answer))
        .map_err(|(failed, why)| Fault::new(what(), why).hint(hint(failed, protocol)))
}

/// The fault of a request that cannot be read.
fn unread(verb: &str, request: &Value, refused: Refused) -> Fault {
    let name = shortened(request["pv"].as_str().unwrap_or_default());
    Fault::new(format!("cannot {verb} `{name}`"), refused.cause).hint(refused.hint)
}

pub(crate) fn put(request: &Value, sources: &NamedSources<'_>) -> Result<Value, Fault> {
    let read = || {
        let asked = Request::read(request, &["value", "wait", "read"])?;
        let (waits, reads) = (Request::choice(request, "wait", true)?, Request::choice(request, "read", false)?);
        Ok((asked, PutValue::of_json(&request["value"])?, waits, reads))
    };
    let (asked, value, waits, reads) = read().map_err(|refused| unread("write", request, refused))?;
    let begin = Instant::now();
    let (name, answer) = with_client(&asked, sources, "write", |client| {
        client.put(asked.pv, &value, waits, asked.patience)?;
        let seconds = begin.elapsed().as_secs_f64();
        let left = asked.patience.saturating_sub(begin.elapsed()).max(READ_PATIENCE);
        let read = if reads { get::read(client, asked.pv, left)? } else { json!({}) };
        Ok((seconds, read))
    })?;
    let (seconds, mut answer) = answer;
    answer["pv"] = name.into();
    answer["seconds"] = ((seconds * 1e6).round() / 1e6).into();
    Ok(answer)
}

pub(crate) fn get(request: &Value, sources: &NamedSources<'_>) -> Result<Value, Fault> {
    let asked = Request::read(request, &[]).map_err(|refused| unread("read", request, refused))?;
    let (name, mut answer) =
        with_client(&asked, sources, "read", |client| get::read(client, asked.pv, asked.patience))?;
    answer["pv"] = name.into();
    Ok(answer)
}

/// The hint.
pub(crate) fn hint(failed: Failed, protocol: Protocol) -> &'static str {
    match (failed, protocol) {
        (Failed::NoServer, Protocol::Ca) => {
            "check its name, its server, and `EPICS_CA_ADDR_LIST` of `beamport up` or `addresses` of the section"
        }
        (Failed::NoServer, _) => {
            "check its name, its server, and `EPICS_PVA_ADDR_LIST` of `beamport up` or `addresses` of the section"
        }
        (Failed::NoAnswer, _) => {
            "read the PV before you write again, or give the server more time with a longer timeout"
        }
        (Failed::Refused, _) => "check the type of the value and the access rules of the server",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use flow::edge::SourcePlan;

    #[test]
    fn a_pv_is_searched_for_where_its_source_does() {
        let mut one = plan(&[json!("A"), json!("ca:B")]);
        one.network.addresses = Some("10.0.0.1".into());
        let mut two = plan(&[json!("ca:C"), json!("fake:D")]);
        two.network.protocol = Protocol::Ca;
        two.network.addresses = Some("10.0.0.2".into());
        let sources: [(&str, &dyn SourcePlan); 2] = [("one", &one), ("two", &two)];
        for (name, protocol, address) in [
            ("A", Protocol::Pva, "10.0.0.1"),
            // The client of another protocol has the addresses of the environment: `Network::open`.
            ("B", Protocol::Ca, "10.0.0.1"),
            ("pva:B", Protocol::Pva, "10.0.0.1"),
            ("C", Protocol::Ca, "10.0.0.2"),
            ("D", Protocol::Pva, "10.0.0.1"),
            ("E", Protocol::Pva, "10.0.0.1"),
            ("ca:E", Protocol::Ca, "10.0.0.2"),
        ] {
            let request = json!({"command": "put", "pv": name, "value": 1});
            let (found, network) = Request::read(&request, &["value"]).unwrap().network(&sources);
            assert_eq!((found, network.addresses.as_deref()), (protocol, Some(address)), "{name}");
        }
        let request = json!({"command": "put", "pv": "A", "value": 1});
        assert_eq!(Request::read(&request, &["value"]).unwrap().network(&[]), (Protocol::Pva, Network::default()));
    }

    #[test]
    fn a_request_to_read_has_no_value() {
        let fault = get(&json!({"command": "get", "pv": "A", "value": 1}), &[]).unwrap_err();
        assert!(fault.cause.contains("unknown key `value`"), "{fault}");
    }

    #[test]
    fn each_mistake_of_a_request_is_named() {
        for (request, part) in [
            (json!({"command": "put"}), "`pv` is not a text"),
            (json!({"command": "put", "pv": "a b", "value": 1}), "a space"),
            (json!({"command": "put", "pv": "fake:A", "value": 1}), "simulated"),
            (json!({"command": "put", "pv": "A"}), "the value is not a number"),
            (json!({"command": "put", "pv": "A", "value": 1, "timeout": 0}), "`timeout`"),
            (json!({"command": "put", "pv": "A", "value": 1, "timeout": u64::MAX}), "`timeout`"),
            (json!({"command": "put", "pv": "A", "value": 1, "wait": 1}), "`wait` is not true or false"),
            (json!({"command": "put", "pv": "A", "value": 1, "wat": true}), "unknown key `wat`"),
        ] {
            let fault = put(&request, &[]).unwrap_err();
            assert!(fault.cause.contains(part) && !fault.hint.is_empty(), "{request}: {fault}");
        }
    }
}
