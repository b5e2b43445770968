//! The kinds of EPICS, sources `pva` and `ca` and the sink `pva-put`: their keys, and how a section is read.

use crate::entry::{Entry, Identity, Protocol, read_name};
use crate::library;
use crate::limits::{
    EVERY_MAX, EVERY_MIN, FAKE_PERIOD_MAX, FAKE_PERIOD_MIN, FILE_BYTES_MAX, PUT_PVS_MAX, QUEUE_MAX, REORDER_MAX,
    REPEAT_MIN,
};
use crate::plan::{FeedbackPlan, Network, Plan, Target, wrong_list};
use crate::put;
use crate::sink::Feedback;
use crate::source::Epics;
use flow::edge::{CommandKind, LiveKind, LivePlan, SourceKind, SourcePlan};
use flow::{Fault, LiveSink, Source};
use serde_json::{Map, Value as Json};
use settings::{Key, Refused, Section, Setting, Severity, Take, json_of, key, noun, required, shortened, units};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use toml_edit::{DocumentMut, Item};

static PVS: Key = key(
    "pvs",
    "list of names and tables",
    "",
    "The PVs. `pva:`, `ca:` or `fake:` before a name chooses the protocol; `{ pv = \"NAME\", schema = \"tdct\" }` also \
     the [schema](epics.md#what-the-values-become), a topic and what is sent beside the value.",
);
static PVS_FILE: Key =
    key("pvs_file", "path", "", "A file with more entries of `pvs`, one a line; `#` begins a comment.");
static QUEUE: Key =
    key("queue", "whole number, 1 to 100,000", "100", "Updates of a PV that client and server keep for the source.");
static PIPELINE: Key = key(
    "pipeline",
    "true or false",
    "false",
    "Asks pvAccess servers for flow control: they wait for the source. Servers of areaDetector may abort.",
);
static ADDRESSES: Key = key(
    "addresses",
    "addresses with spaces between",
    "",
    "Where PVs are searched for, like `EPICS_PVA_ADDR_LIST`, which it replaces with the automatic list; of PVs of the \
     section's protocol, `pva` for a sink.",
);
static NAME_SERVERS: Key = key(
    "name_servers",
    "addresses with spaces between",
    "",
    "Servers that are asked by TCP, like `EPICS_PVA_NAME_SERVERS`.",
);
static DECODE: Key = key(
    "decode",
    "true or false",
    "true",
    "Decodes the pixels of compressed frames (`lz4`, `bslz4`, `blosc`, `jpeg`).",
);
static REORDER: Key = key(
    "reorder",
    "duration, at most 60 s",
    "1 s",
    "How long frames of cameras may be late that come in another order. After this time missing ids are counted as \
     lost.",
);
static REPEAT: Key =
    key("repeat", "duration, at least 1 s", "", "Sends the last values again after this time without a new one.");
static ALARMS: Key = key(
    "alarms",
    "true or false",
    "true",
    "Sends `al00` when severity or text of an alarm changes. Of a camera only where this key says so, like the next \
     two: [the state of a camera](epics.md#the-state-of-a-camera).",
);
static CONNECTIONS: Key =
    key("connections", "true or false", "true", "Sends `ep01` when the connection of a PV changes.");
static UNITS: Key =
    key("units", "true or false", "true", "Sends `un00` when the units of a PV are first known or change.");

static FAKE_PERIOD: Key =
    key("fake_period", "duration, 1 ms to 1 d", "1 s", "Time between two values of a simulated PV, `fake:NAME`.");

static KEYS: [&Key; 13] = [
    &PVS,
    &PVS_FILE,
    &QUEUE,
    &PIPELINE,
    &ADDRESSES,
    &NAME_SERVERS,
    &DECODE,
    &REORDER,
    &REPEAT,
    &ALARMS,
    &CONNECTIONS,
    &UNITS,
    &FAKE_PERIOD,
];

/// The kind `pva`.
pub static PVA: SourceKind = SourceKind {
    name: "pva",
    about: "EPICS process variables, by pvAccess: [EPICS](epics.md).",
    keys: &KEYS,
    read: |name, section| read(Protocol::Pva, name, section),
    more: None,
};

/// The kind `ca`.
pub static CA: SourceKind = SourceKind {
    name: "ca",
    about: "EPICS process variables, by Channel Access: [EPICS](epics.md).",
    keys: &KEYS,
    read: |name, section| read(Protocol::Ca, name, section),
    more: None,
};

static TARGETS: Key = required(
    "pvs",
    "table of origins and PVs",
    "The PV to which the values of an origin are written: \
     `{ centroid_x = \"LAB:FB:X\", centroid_y = \"ca:LAB:FB:Y\" }`. The prefixes are those of sources; without one it \
     is `pva:`.",
);
static EVERY: Key = key(
    "every",
    "duration, 10 ms to 1 h",
    "100 ms",
    "Least time between two writes of a PV; of the values between them the newest is written.",
);

/// The kind `pva-put`.
pub static SINK: LiveKind = LiveKind {
    name: "pva-put",
    about: "The newest values of `f144` streams to PVs of EPICS: [EPICS](epics.md#feedback).",
    keys: &[&TARGETS, &EVERY, &ADDRESSES, &NAME_SERVERS],
    read: read_sink,
};

/// The command `put`.
pub static PUT: CommandKind = CommandKind { name: "put", is_recorded: true, run: put::put };

/// The command `get`.
pub static GET: CommandKind = CommandKind { name: "get", is_recorded: false, run: put::get };

impl SourcePlan for Plan {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(Epics::new(self.clone())))
    }
}

/// A list whose entries are read later, each with its place in the file.
#[derive(Clone, Debug, Default)]
struct Entries(Vec<(Json, Option<usize>)>);

impl Take for Entries {
    fn take(item: &Item) -> Result<Self, Refused> {
        let list = item.as_array().ok_or_else(|| {
            Refused::new(format!("expected a list, found {}", noun(item)), "write a list, like `[\"A:B\", \"ca:C:D\"]`")
        })?;
        let entry = |value: &toml_edit::Value| {
            let json = json_of(&Item::Value(value.clone())).unwrap_or(Json::Null);
            (json, value.span().map(|span| span.start))
        };
        Ok(Self(list.iter().map(entry).collect()))
    }

    fn default_of(_: &str) -> Option<Self> {
        None
    }

    fn show(&self) -> Json {
        self.0.iter().map(|(json, _)| json.clone()).collect()
    }
}

/// Reads a section.
fn read(protocol: Protocol, name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let listed: Option<Setting<Entries>> = section.get(&PVS);
    let file = section.path(&PVS_FILE);
    let is_given = section.has(&PVS) || section.has(&PVS_FILE);
    if !is_given {
        section.missing(&PVS, "add `pvs = [\"NAME\"]`, or `pvs_file = \"FILE\"`");
    }
    let mut entries = Vec::new();
    for (json, at) in listed.map(|listed| listed.value.0).unwrap_or_default() {
        match Entry::of_json(&json, protocol) {
            Ok(entry) => entries.push(entry),
            Err(refused) => {
                let line = at.map_or_else(|| section.line_of(PVS.name), |at| section.page.line(at));
                let what = format!("wrong entry of `pvs` in {}", section.title);
                section.mistake(line, what, refused.cause, refused.hint);
            }
        }
    }
    if let Some(file) = &file {
        match read_file(&file.value, protocol) {
            Ok(more) => entries.extend(more),
            Err(refused) => section.refuse(&PVS_FILE, refused),
        }
    }
    if let Some(refused) = wrong_list(&entries) {
        section.refuse(if section.table.contains_key(PVS.name) { &PVS } else { &PVS_FILE }, refused);
    }
    if let Some((one, other)) = same_origin(&entries) {
        let what = format!("two PVs of {} have one origin", section.title);
        let cause = format!("the messages of `{one}` and `{other}` are numbered and logged together");
        let mut mistake = section.page.mistake(section.line_of(PVS.name), what, cause, "give one of them a `topic`");
        mistake.level = Severity::Warning;
        section.mistakes.push(mistake);
    }
    let queue = section.within(&QUEUE, 1..=QUEUE_MAX);
    let repeat: Option<Setting<Duration>> = section.get(&REPEAT);
    if repeat.as_ref().is_some_and(|repeat| repeat.value < REPEAT_MIN) {
        let hint = format!("write at least `\"{}\"`", units::duration_text(REPEAT_MIN));
        section.refuse(&REPEAT, Refused::new("it is too short", hint));
    }
    let plan = Plan {
        name: name.to_owned(),
        network: read_network(protocol, section),
        entries,
        queue: queue.map_or(1, |queue| queue.value as u32),
        pipeline: *section.need::<bool>(&PIPELINE),
        decode: *section.need::<bool>(&DECODE),
        reorder: read_reorder(section),
        repeat: repeat.map(|repeat| repeat.value),
        alarms: read_choice(section, &ALARMS),
        connections: read_choice(section, &CONNECTIONS),
        units: read_choice(section, &UNITS),
        fake_period: read_fake_period(section),
    };
    if plan.entries.is_empty() || plan.entries.iter().any(|entry| entry.identity.protocol != Protocol::Fake) {
        note_unbuilt(settings::Word::word(protocol), section);
    }
    Some(Arc::new(plan))
}

impl LivePlan for FeedbackPlan {
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Ok(Box::new(Feedback::new(self.clone(), inputs.len())))
    }
}

/// Reads a section of a sink.
fn read_sink(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn LivePlan>> {
    note_unbuilt(SINK.name, section);
    let targets = section.read(&TARGETS, read_targets);
    let every: Option<Setting<Duration>> = section.get(&EVERY);
    if every.as_ref().is_some_and(|every| !(EVERY_MIN..=EVERY_MAX).contains(&every.value)) {
        let [least, most] = [EVERY_MIN, EVERY_MAX].map(units::duration_text);
        section.refuse(&EVERY, Refused::new("it is out of range", format!("write `\"{least}\"` to `\"{most}\"`")));
    }
    let network = read_network(Protocol::Pva, section);
    Some(Arc::new(FeedbackPlan { name: name.to_owned(), network, targets: targets?, every: every?.value }))
}

fn read_targets(table: &Map<String, Json>) -> Result<Vec<Target>, Refused> {
    let form = "write `pvs = { ORIGIN = \"PV\" }`";
    if table.is_empty() || table.len() > PUT_PVS_MAX {
        return Err(Refused::new(format!("it has {} PVs; a sink writes 1 to {PUT_PVS_MAX}", table.len()), form));
    }
    let mut targets: Vec<Target> = Vec::new();
    for (origin, pv) in table {
        let refused = |cause| Refused::new(cause, form);
        let pv = pv.as_str().ok_or_else(|| refused(format!("the PV of `{}` is not a text", shortened(origin))))?;
        let (prefix, pv) = read_name(pv)?;
        let protocol = prefix.unwrap_or_default();
        if protocol == Protocol::Fake {
            return Err(refused(format!("`fake:{}` is simulated and takes no values", shortened(pv))));
        }
        if targets.iter().any(|target| target.pv == pv && target.protocol == protocol) {
            return Err(Refused::new(format!("`{}` is the PV of two origins", shortened(pv)), "remove one of them"));
        }
        targets.push(Target { origin: origin.clone(), protocol, pv: pv.to_owned() });
    }
    Ok(targets)
}

/// A choice, if the section makes it.
fn read_choice(section: &mut Section<'_>, key: &'static Key) -> Option<bool> {
    let choice = *section.need::<bool>(key);
    section.has(key).then_some(choice)
}

fn read_reorder(section: &mut Section<'_>) -> i64 {
    let reorder = *section.need::<Duration>(&REORDER);
    if reorder > REORDER_MAX {
        let hint = format!("write at most `\"{}\"`", units::duration_text(REORDER_MAX));
        section.refuse(&REORDER, Refused::new("it is too long", hint));
    }
    // Longer than the range is never used.
    i64::try_from(reorder.as_nanos()).unwrap_or(i64::MAX)
}

fn read_fake_period(section: &mut Section<'_>) -> i64 {
    let period = *section.need::<Duration>(&FAKE_PERIOD);
    if !(FAKE_PERIOD_MIN..=FAKE_PERIOD_MAX).contains(&period) {
        section.refuse(&FAKE_PERIOD, Refused::new("it is out of range", "write 1 ms to 1 d"));
    }
    // Longer than the range is never used.
    i64::try_from(period.as_nanos()).unwrap_or(i64::MAX)
}

/// Where PVs of a section are searched for; `protocol`: of its kind.
fn read_network(protocol: Protocol, section: &mut Section<'_>) -> Network {
    let mut list = |key: &'static Key| {
        let text = section.get::<String>(key)?.value;
        if let Some(refused) = text.split_whitespace().find_map(wrong_address) {
            section.refuse(key, refused);
        }
        Some(text)
    };
    Network { protocol, addresses: list(&ADDRESSES), name_servers: list(&NAME_SERVERS) }
}

/// Why a word is no address. The libraries of EPICS pass over such words, and PVs are never found.
fn wrong_address(word: &str) -> Option<Refused> {
    let refused = |cause: &str| {
        let hint = "write hosts or addresses, each with a port if need be, with spaces between them";
        Some(Refused::new(format!("`{}` is no address: {cause}", shortened(word)), hint))
    };
    if word.starts_with('[') {
        // IPv6, which a library may take.
        return None;
    }
    // A group of pvAccess: `224.0.1.1:5076,1@10.0.0.1`, with its TTL and interface.
    let address = word.split_once('@').map_or(word, |(address, _)| address);
    let (address, ttl) = address.split_once(',').map_or((address, None), |(address, ttl)| (address, Some(ttl)));
    if ttl.is_some_and(|ttl| ttl.parse::<u8>().is_err()) {
        return refused("a comma does not separate addresses");
    }
    let (host, port) = address.rsplit_once(':').map_or((address, None), |(host, port)| (host, Some(port)));
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return refused("its port is not between 1 and 65535");
    }
    let is_host = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
    if is_host { None } else { refused("it is no name of a host, and no IPv4 address") }
}

/// A section that this program cannot use, because it has no EPICS libraries, is a mistake.
fn note_unbuilt(kind: &str, section: &mut Section<'_>) {
    if let Err(fault) = library::version() {
        let what = format!("`kind = \"{kind}\"` cannot be used in {}", section.title);
        section.mistake(section.line, what, format!("{}: {}", fault.what, fault.cause), fault.hint);
    }
}

fn read_file(path: &Path, protocol: Protocol) -> Result<Vec<Entry>, Refused> {
    let refused = |cause: String| Refused::new(cause, "name a text file with one PV a line");
    let bytes = std::fs::metadata(path).map_err(|e| refused(format!("cannot read `{}`: {e}", path.display())))?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(refused(format!("`{}` is larger than {FILE_BYTES_MAX} bytes", path.display())));
    }
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| refused(format!("cannot read `{}`: {e}", path.display())))?;
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = json_of_line(line).and_then(|json| Entry::of_json(&json, protocol));
        let place = |refused: Refused| {
            Refused::new(format!("line {} of `{}`: {}", number + 1, path.display(), refused.cause), refused.hint)
        };
        entries.push(entry.map_err(place)?);
    }
    Ok(entries)
}

/// A line of a list: a name, or a table as in the instrument file. A comment may follow.
fn json_of_line(line: &str) -> Result<Json, Refused> {
    if !line.starts_with('{') {
        return Ok(line.split_once(" #").map_or(line, |(name, _)| name).trim_end().into());
    }
    let page: Result<DocumentMut, _> = format!("entry = {line}\n").parse();
    let json = page.ok().and_then(|page| json_of(page.get("entry")?));
    json.ok_or_else(|| {
        Refused::new(format!("`{}` is not a table", shortened(line)), "write `{ pv = \"NAME\", schema = \"f144\" }`")
    })
}

/// The names of two entries of different protocols whose messages have the same origin.
fn same_origin(entries: &[Entry]) -> Option<(String, String)> {
    let mut known: HashMap<String, &Identity> = HashMap::new();
    entries.iter().find_map(|entry| {
        let first = *known.entry(entry.identity.origin()).or_insert(&entry.identity);
        (first.protocol != entry.identity.protocol).then(|| (first.name(), entry.identity.name()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use serde_json::json;

    fn mistakes(section: &Json) -> Vec<String> {
        let all = settings::read_json(section, |section| read(Protocol::Ca, "x", section));
        let all = all.map(|_| Vec::new()).unwrap_or_else(|all| all);
        let text = |m: &settings::Mistake| format!("{}; {}; {}", m.what, m.cause, m.hint);
        all.iter().map(text).filter(|text| !text.contains("cannot be used")).collect()
    }

    #[test]
    fn a_section_that_is_right_has_no_mistake() {
        let section = json!({"pvs": ["A:B", "pva:C", {"pv": "fake:D", "schema": "tdct"}], "queue": 1000,
            "pipeline": true, "addresses": "127.0.0.1 10.0.0.255:5076 224.0.1.1:5076,1@10.0.0.1 [::1]:5075 gate-way",
            "name_servers": "10.0.0.1:5075",
            "repeat": "10 s", "alarms": false, "connections": false, "units": false});
        assert_eq!(mistakes(&section), [""; 0]);
        assert_eq!(mistakes(&json!({"pvs": []})), [""; 0]);
    }

    #[test]
    fn each_mistake_is_named() {
        for (section, part) in [
            (json!({}), "`pvs` is missing"),
            (json!({"pvs": "A"}), "expected a list"),
            (json!({"pvs": ["A", ""]}), "is empty"),
            (json!({"pvs": ["A", "ca:A"]}), "`ca:A` is listed twice"),
            (json!({"pvs": ["A"], "queue": 0}), "out of range"),
            (json!({"pvs": ["A"], "addresses": "127.0.0.1 10.0.0.1,10.0.0.2"}), "`10.0.0.1,10.0.0.2` is no address"),
            (json!({"pvs": ["A"], "addresses": "127.0.0.1:99999"}), "between 1 and 65535"),
            (json!({"pvs": ["A"], "name_servers": "gate:way:5075 b"}), "no name of a host"),
            (json!({"pvs": ["A"], "repeat": "1 ms"}), "at least `\"1 s\"`"),
            (json!({"pvs": ["A"], "reorder": "2 min"}), "at most `\"1 min\"`"),
            (json!({"pvs": ["A"], "fake_period": "100 us"}), "1 ms to 1 d"),
            (json!({"pvs_file": "/nowhere/list.txt"}), "cannot read `/nowhere/list.txt`"),
        ] {
            let found = mistakes(&section);
            assert!(found.len() == 1 && found[0].contains(part), "{section}: {found:#?}");
        }
    }

    #[test]
    fn pvs_of_two_protocols_with_one_origin_are_a_warning() {
        let entries = |list: &[Json]| plan(list).entries;
        let same = |list: &[Json]| same_origin(&entries(list));
        assert_eq!(same(&[json!("A"), json!("ca:A")]), Some(("pva:A".into(), "ca:A".into())));
        assert_eq!(
            same(&[json!("A"), json!({"pv": "ca:A", "topic": "other"}), json!({"pv": "A", "schema": "none"})]),
            None
        );
    }

    #[test]
    fn a_file_has_names_tables_and_comments() {
        let path = std::env::temp_dir().join(format!("beamport-epics-{}.txt", std::process::id()));
        std::fs::write(&path, "# motors\nA:B\n\npva:C # why\n{ pv = \"D\", schema = \"none\" } # also\n").unwrap();
        let read = read_file(&path, Protocol::Ca);
        let names: Vec<String> = read.unwrap().iter().map(|entry| entry.identity.key()).collect();
        assert_eq!(names, ["ca:A:B auto ", "pva:C auto ", "ca:D none "]);
        std::fs::write(&path, "A:B\n{ pv = }\n").unwrap();
        let wrong = read_file(&path, Protocol::Ca).unwrap_err();
        assert!(wrong.cause.contains("line 2 of") && wrong.cause.contains("is not a table"), "{}", wrong.cause);
        std::fs::remove_file(path).unwrap();
    }

    fn mistakes_of_sink(section: &Json) -> Vec<String> {
        let all = settings::read_json(section, |section| read_sink("x", section));
        let all = all.map(|_| Vec::new()).unwrap_or_else(|all| all);
        let text = |m: &settings::Mistake| format!("{}; {}; {}", m.what, m.cause, m.hint);
        all.iter().map(text).filter(|text| !text.contains("cannot be used")).collect()
    }

    #[test]
    fn each_mistake_of_a_sink_is_named() {
        let good = json!({"pvs": {"a": "A", "b": "ca:A"}, "every": "1 s", "addresses": "10.0.0.1"});
        assert_eq!(mistakes_of_sink(&good), [""; 0]);
        let many: Map<String, Json> = (0..=PUT_PVS_MAX).map(|n| (n.to_string(), format!("A:{n}").into())).collect();
        for (section, part) in [
            (json!({}), "`pvs` is missing"),
            (json!({"pvs": ["A"]}), "expected a table"),
            (json!({"pvs": {}}), "it has 0 PVs"),
            (json!({"pvs": many}), "it has 101 PVs"),
            (json!({"pvs": {"a": 1}}), "the PV of `a` is not a text"),
            (json!({"pvs": {"a": "A B"}}), "a space"),
            (json!({"pvs": {"a": "fake:A"}}), "takes no values"),
            (json!({"pvs": {"a": "A", "b": "pva:A"}}), "`A` is the PV of two origins"),
            (json!({"pvs": {"a": "A"}, "every": "1 ms"}), "write `\"10 ms\"` to `\"1 h\"`"),
        ] {
            let found = mistakes_of_sink(&section);
            assert!(found.len() == 1 && found[0].contains(part), "{section}: {found:#?}");
        }
    }
}
