//! Writing PVs: a value as the library takes it, and the command `put`.
//!
//! `{"command": "put", "pv": "ca:A:B", "value": 1.5, "timeout": 5000000000}` is answered with `{"pv", "seconds"}` once
//! the server has answered. A text is read as the type of the PV asks. Without a prefix the PV has the protocol of the
//! source that lists it, or else pvAccess; it is searched for where that source searches, or else where the first
//! source of its protocol does.

use crate::entry::{Protocol, read_name};
use crate::limits::{PUT_PATIENCE, PUT_PATIENCE_MAX};
use crate::links::Network;
use crate::section::Plan;
use crate::value::{Elements, Failed, Kind};
use flow::Fault;
use flow::edge::{CommandKind, NamedSources};
use serde_json::{Value, json};
use settings::{Refused, Word, shortened};
use std::any::Any;
use std::time::{Duration, Instant};
use wire::{DType, f144};

/// The command `put`.
pub static PUT: CommandKind = CommandKind { name: "put", run };

const KEYS: [&str; 4] = ["command", "pv", "value", "timeout"];

/// A value to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Put {
    kind: Kind,
    count: usize,
    bytes: Vec<u8>,
    pub(crate) is_array: bool,
}

/// Adds a text as the library takes it.
fn add_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

impl Put {
    pub(crate) fn elements(&self) -> Elements<'_> {
        Elements { kind: self.kind, count: self.count, bytes: &self.bytes }
    }

    /// A value of a message. Its bytes are in the order of this machine, which is little-endian.
    pub(crate) fn of_f144(value: &f144::Value<'_>) -> Self {
        match value {
            f144::Value::Array(numbers) => Self {
                kind: Kind::Number(numbers.dtype()),
                count: numbers.len(),
                bytes: numbers.bytes().to_vec(),
                is_array: true,
            },
            f144::Value::Scalar(scalar) => {
                let bytes = scalar.bytes()[..scalar.dtype().size()].to_vec();
                Self { kind: Kind::Number(scalar.dtype()), count: 1, bytes, is_array: false }
            }
        }
    }

    /// A value of a request: a number, a text, true or false, or a list of them.
    pub(crate) fn of_json(value: &Value) -> Result<Self, Refused> {
        match value {
            Value::Array(list) => Self::of_list(list, true),
            one => Self::of_list(std::slice::from_ref(one), false),
        }
    }

    fn of_list(list: &[Value], is_array: bool) -> Result<Self, Refused> {
        let mut bytes = Vec::new();
        let number = |value: &Value| match value {
            Value::Bool(value) => Some(json!(i32::from(*value))),
            Value::Number(_) => Some(value.clone()),
            _ => None,
        };
        let kind = if !list.is_empty() && list.iter().all(Value::is_string) {
            list.iter().filter_map(Value::as_str).for_each(|text| add_text(&mut bytes, text));
            Kind::Text
        } else if let Some(numbers) = list.iter().map(number).collect::<Option<Vec<_>>>() {
            if let Some(numbers) = numbers.iter().map(Value::as_i64).collect::<Option<Vec<_>>>()
                && !numbers.is_empty()
            {
                numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
                Kind::Number(DType::Int64)
            } else if let Some(numbers) = numbers.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()
                && !numbers.is_empty()
            {
                numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
                Kind::Number(DType::UInt64)
            } else {
                let numbers = numbers.iter().filter_map(Value::as_f64);
                numbers.for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
                Kind::Number(DType::Float64)
            }
        } else {
            return Err(Refused::new(
                "the value is not a number, a text, or a list of numbers or of texts",
                "write `5`, `open` or `[1, 2.5]`",
            ));
        };
        Ok(Self { kind, count: list.len(), bytes, is_array })
    }
}

/// What a request asks for.
struct Request<'a> {
    prefix: Option<Protocol>,
    pv: &'a str,
    value: Put,
    patience: Duration,
}

impl<'a> Request<'a> {
    fn read(request: &'a Value) -> Result<Self, Refused> {
        let form = "send `{\"command\": \"put\", \"pv\": \"NAME\", \"value\": VALUE}`";
        let keys = request.as_object().into_iter().flat_map(|table| table.keys());
        if let Some(key) = keys.into_iter().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(Refused::new(format!("unknown key `{}`", shortened(key)), form));
        }
        let name = request["pv"].as_str().ok_or_else(|| Refused::new("`pv` is not a text", form))?;
        let (prefix, pv) = read_name(name)?;
        if prefix == Some(Protocol::Fake) {
            return Err(Refused::new("a simulated PV takes no values", "write a PV that a server has"));
        }
        let patience = match &request["timeout"] {
            Value::Null => Some(PUT_PATIENCE),
            timeout => timeout.as_u64().map(Duration::from_nanos),
        };
        let is_possible = |patience: &Duration| (Duration::from_millis(1)..=PUT_PATIENCE_MAX).contains(patience);
        let patience = patience.filter(is_possible).ok_or_else(|| {
            Refused::new("`timeout` is not a number of ns from 1 ms to 1 h", "write a timeout such as `10 s`")
        })?;
        Ok(Self { prefix, pv, value: Put::of_json(&request["value"])?, patience })
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

fn run(request: &Value, sources: &NamedSources<'_>) -> Result<Value, Fault> {
    let name = shortened(request["pv"].as_str().unwrap_or_default());
    let asked = Request::read(request)
        .map_err(|refused| Fault::new(format!("cannot write `{name}`"), refused.cause).hint(refused.hint))?;
    let (protocol, network) = asked.network(sources);
    let name = format!("{}:{}", protocol.word(), asked.pv);
    let what = || format!("cannot write `{name}`");
    let client = network.open(protocol).map_err(|fault| fault.leads_to(what()))?;
    let Some(mut client) = client else { return Err(Fault::new(what(), "a simulated PV takes no values")) };
    let begin = Instant::now();
    let answer = client.put(asked.pv, &asked.value, asked.patience);
    answer.map_err(|(failed, why)| Fault::new(what(), why).hint(hint(failed, protocol)))?;
    Ok(json!({"pv": name, "seconds": (begin.elapsed().as_secs_f64() * 1e6).round() / 1e6}))
}

/// What may help.
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
    use crate::section::tests::plan;
    use flow::edge::SourcePlan;

    #[test]
    fn a_value_has_the_type_of_its_json() {
        for (value, kind, count, is_array) in [
            (json!(5), Kind::Number(DType::Int64), 1, false),
            (json!(u64::MAX), Kind::Number(DType::UInt64), 1, false),
            (json!(2.5), Kind::Number(DType::Float64), 1, false),
            (json!(true), Kind::Number(DType::Int64), 1, false),
            (json!("open"), Kind::Text, 1, false),
            (json!([1, 2]), Kind::Number(DType::Int64), 2, true),
            (json!([1, 2.5]), Kind::Number(DType::Float64), 2, true),
            (json!([1, u64::MAX]), Kind::Number(DType::UInt64), 2, true),
            (json!([-1, u64::MAX]), Kind::Number(DType::Float64), 2, true),
            (json!(["a", "bc"]), Kind::Text, 2, true),
            (json!([]), Kind::Number(DType::Float64), 0, true),
        ] {
            let put = Put::of_json(&value).unwrap();
            assert_eq!((put.kind, put.count, put.is_array), (kind, count, is_array), "{value}");
        }
        let texts = Put::of_json(&json!(["a", "bc"])).unwrap();
        assert_eq!(texts.elements().texts().collect::<Vec<_>>(), ["a", "bc"]);
        for wrong in [json!(null), json!({}), json!([1, "a"]), json!([[1]]), json!([null])] {
            assert!(Put::of_json(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_of_a_message_keeps_its_type() {
        let put = Put::of_f144(&f144::Value::from(-2_i16));
        assert_eq!((put.kind, put.bytes.as_slice()), (Kind::Number(DType::Int16), &(-2_i16).to_ne_bytes()[..]));
        let put = Put::of_f144(&f144::Value::from(&[1.5_f32, 2.5][..]));
        assert_eq!((put.kind, put.count, put.bytes.len()), (Kind::Number(DType::Float32), 2, 8));
    }

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
            let (found, network) = Request::read(&request).unwrap().network(&sources);
            assert_eq!((found, network.addresses.as_deref()), (protocol, Some(address)), "{name}");
        }
        let request = json!({"command": "put", "pv": "A", "value": 1});
        assert_eq!(Request::read(&request).unwrap().network(&[]), (Protocol::Pva, Network::default()));
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
            (json!({"command": "put", "pv": "A", "value": 1, "wait": true}), "unknown key `wait`"),
        ] {
            let fault = run(&request, &[]).unwrap_err();
            assert!(fault.cause.contains(part) && !fault.hint.is_empty(), "{request}: {fault}");
        }
    }
}
