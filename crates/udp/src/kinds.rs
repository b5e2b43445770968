//! The kind `udp`: its keys, and how a section is read.

use crate::boards_plan::{self, Boards};
use crate::framing::{self, BEAMPORT, FRAMINGS, FramingKind, Table};
use crate::inspect::inspect;
use crate::limits::{BITS, BUFFER, BUFFER_MAX, INTERFACE_BYTES, ORIGIN_BYTES_MAX, PORTS_MAX};
use crate::network::Network;
use crate::plan::{Address, FramingPlan, Plan};
use crate::source::Udp;
use crate::throttle::{self, Throttle};
use crate::zero::{First, ZeroWord};
use flow::edge::{Conflict, Host, Inspected, MoreKeys, Outline, SourceKind, SourcePlan};
use flow::{Fault, Source};
use serde_json::{Map, Value as Json};
use settings::units::{Refused, Size};
use settings::{Key, Origin, Section, Setting, key, required, shortened};
use std::any::Any;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::SchemaId;

static LISTEN: Key = required(
    "listen",
    "IP address and port, or a range of ports",
    "Where datagrams arrive: one port for each board. Of a range like `\"0.0.0.0:{9001..9120}\"` each port is an \
     origin of the stream.",
);
static ORIGINS: Key = key(
    "origins",
    "list of names",
    "",
    "The origins of a range of ports in their order, like `[\"d{001..120}\"]`. Default: the name of the source, a dot \
     and the port; of one port the name of the source.",
);
static REQUIRE: Key = key(
    "require",
    "`all` or `any`",
    "all",
    "`any`: of a range of ports those at which another program listens are left out, reported and tried again each \
     second. `all`: they end the start.",
);
static FRAMING: Key = required(
    "framing",
    "`beamport`, `ess`, `geb`, `hadaq` or `raw`, a table, or the path of a library (`.so`)",
    "How a datagram is read: [framings](udp.md#framings). The table describes [a header of your own](#framing); a \
     [library](../how-to/add-a-framing.md) reads what no table can say.",
);
static SCHEMA: Key = key("schema", "four letters or digits", "raw0", "Schema id of the messages of framing `raw`.");
static ALLOW: Key = key(
    "allow",
    "list of networks",
    "",
    "Who may send, like `[\"10.1.0.0/16\"]`. Datagrams of others are counted as `refused.sender`. Default: everybody.",
);
static REORDER: Key = key(
    "reorder",
    "duration",
    "50 ms",
    "How long datagrams may be late. After this time missing numbers are counted as lost.",
);
static DRAIN: Key = key(
    "drain",
    "duration, at least 10 us",
    "200 us",
    "While data come, sockets are read at this interval, many datagrams at once; the shortest of the sources of a \
     thread.",
);
static BUFFER_SIZE: Key = key(
    "buffer",
    "size",
    BUFFER,
    "Size of the socket's buffer, which holds datagrams until they are read. If the kernel gives less, `up` warns and \
     prints the setting to raise.",
);
static GRO: Key = key(
    "gro",
    "true or false",
    "false",
    "The kernel passes several datagrams at once, if they have the same size: less time for each, but `lost.kernel` is \
     then a lower bound, the rest is `lost.network`.",
);
static INTERFACE: Key =
    key("interface", "name", "", "The network interface that datagrams are taken from. Default: any.");
static TICK: Key =
    key("tick", "duration", "", "Unit of timestamps that are not ns since 1970 UTC. Default of framing `geb`: 10 ns.");
static ZERO: Key = key(
    "zero",
    "time or `first`",
    "1970-01-01T00:00:00Z",
    "The time at which such timestamps are 0. `first`: when the first of them came, of all sources that say so.",
);
static BITS_OF_TICKS: Key = key(
    "bits",
    "whole number, 24 to 64",
    "",
    "Bits of the counter of such timestamps, which continue where it begins again. Default: 64, of framing `geb` 48.",
);
static THROTTLE: Key = key(
    "throttle",
    "table",
    "",
    "Who is asked to pause before the memory of the stream is full: [throttle](#throttle). Default: nobody.",
);
static BOARDS: Key = key(
    "boards",
    "table",
    "",
    "What is sent in the place of the board, by `up` or by `beamport boards`: [simulated boards](#simulated-boards).",
);

/// The kind `udp`.
pub static SOURCE: SourceKind = source(|name, section| read(name, section, &[]));

/// The kind `udp` with a function of its own that reads a section: [`read`] with framings of a program.
#[must_use]
pub const fn source(read: fn(&str, &mut Section<'_>) -> Option<Arc<dyn SourcePlan>>) -> SourceKind {
    SourceKind { read, ..KIND }
}

const KIND: SourceKind = SourceKind {
    name: "udp",
    about: "A board that sends UDP datagrams: [UDP](udp.md).",
    keys: &[
        &LISTEN,
        &ORIGINS,
        &REQUIRE,
        &FRAMING,
        &SCHEMA,
        &ALLOW,
        &INTERFACE,
        &REORDER,
        &DRAIN,
        &BUFFER_SIZE,
        &GRO,
        &TICK,
        &ZERO,
        &BITS_OF_TICKS,
        &THROTTLE,
        &BOARDS,
    ],
    read: |_, _| None,
    more: Some(&MoreKeys { reference, owner: |_| None }),
};

/// The tables of the reference page.
fn reference() -> String {
    format!("{}\n{}\n{}", framing::reference(), throttle::reference(), boards_plan::reference())
}

impl SourcePlan for Plan {
    fn prepare(&self, host: &dyn Host) -> Result<(), Fault> {
        if self.zero == ZeroWord::First {
            self.first.get_or_init(|| First::of(host.folder()));
        }
        Ok(())
    }

    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(Udp::new(self.clone())))
    }

    fn inspect(&self, file: &Path) -> Option<Result<Inspected, Fault>> {
        Some(inspect(self, file))
    }

    fn conflicts(&self, name: &str, outline: &Outline<'_>) -> Vec<Conflict> {
        let plan = |source: &dyn SourcePlan| (source as &dyn Any).downcast_ref::<Self>().cloned();
        let mut others = outline.before.iter().filter_map(|(other, source)| Some((other, plan(*source)?)));
        let conflict = others.find_map(|(other, plan)| Some((other, self.shared_address(&plan)?)));
        let conflict = conflict.map(|(other, (ours, theirs))| Conflict {
            origin: self.listen_at,
            what: format!("source `{}` cannot listen at {ours}", shortened(name)),
            cause: format!("source `{}` listens at {theirs}", shortened(other)),
            hint: "write another port: a source has an address of its own".into(),
        });
        conflict.into_iter().collect()
    }

    fn receiver(&self) -> Option<&'static str> {
        // Hundreds of ports do not need hundreds of threads.
        Some("udp")
    }
}

/// The line of `listen`, where a source listens, and the origins of what comes there.
fn addresses(name: &str, section: &mut Section<'_>) -> (Origin, Vec<Address>) {
    let listen: Option<Setting<String>> = section.get(&LISTEN);
    let origins: Option<Setting<Vec<String>>> = section.get(&ORIGINS);
    let Some(listen) = listen else { return (Origin::Default, Vec::new()) };
    let texts = settings::expanded(&listen.value, PORTS_MAX).unwrap_or_else(|refused| {
        section.refuse(&LISTEN, refused);
        Vec::new()
    });
    let parsed: Vec<Option<SocketAddr>> = texts.iter().map(|text| text.parse().ok()).collect();
    if parsed.iter().any(|at| at.is_none_or(|at: SocketAddr| at.port() == 0)) {
        let hint = "write it like `\"127.0.0.1:9001\"`, `\"0.0.0.0:9001\"` or `\"0.0.0.0:{9001..9120}\"`";
        section.refuse(&LISTEN, Refused::new("it is not an IP address with a port", hint));
        return (listen.origin, Vec::new());
    }
    let ports: Vec<SocketAddr> = parsed.into_iter().flatten().collect();
    let names = match origins {
        Some(origins) => names_of(&origins.value, ports.len()).unwrap_or_else(|refused| {
            section.refuse(&ORIGINS, refused);
            Vec::new()
        }),
        None if ports.len() == 1 => vec![name.to_owned()],
        None => ports.iter().map(|at| format!("{name}.{}", at.port())).collect(),
    };
    (listen.origin, ports.into_iter().zip(names).map(|(at, origin)| Address { at, origin }).collect())
}

/// The names of a list with ranges, of which there are to be `count`.
fn names_of(texts: &[String], count: usize) -> Result<Vec<String>, Refused> {
    let mut names = Vec::new();
    for text in texts {
        names.extend(settings::expanded(text, PORTS_MAX)?);
    }
    let hint = "write as many names as ports, like `[\"d{001..120}\"]`";
    if names.len() != count {
        return Err(Refused::new(format!("it has {} names, `listen` has {count} ports", names.len()), hint));
    }
    let is_wrong = |name: &&String| name.is_empty() || name.len() > ORIGIN_BYTES_MAX || name.contains(['#', '\0']);
    if let Some(wrong) = names.iter().find(is_wrong) {
        let cause = format!("`{}` is not the name of an origin", shortened(wrong));
        return Err(Refused::new(cause, "write 1 to 200 bytes without `#`"));
    }
    let different: BTreeSet<&String> = names.iter().collect();
    match different.len() == names.len() {
        true => Ok(names),
        false => Err(Refused::new("it has a name twice", "each port needs an origin of its own")),
    }
}

/// Reads the table of a key, if there is one.
fn table<T>(
    section: &mut Section<'_>,
    key: &'static Key,
    read: impl FnOnce(&mut Section<'_>) -> Option<T>,
) -> Option<T> {
    let _: Setting<Map<String, Json>> = section.get(key)?;
    section.table(key.name, |table| {
        let value = read(table);
        table.end();
        value
    })
}

/// How datagrams are read: a word, a table, or the path of a library. `schema`: of messages that have none of their
/// own; `has_ticks`: the section has the key `tick`.
fn framing_of(
    section: &mut Section<'_>,
    (schema, has_ticks): (SchemaId, bool),
    own: &[&'static FramingKind],
) -> FramingPlan {
    let default = |section: &mut Section<'_>| FramingPlan::Kind(&BEAMPORT, (BEAMPORT.build)(section, schema));
    if section.table.get(FRAMING.name).is_some_and(|item| item.as_table_like().is_some()) {
        let read = |section: &mut Section<'_>| Table::read(section, (schema, has_ticks));
        return match table(section, &FRAMING, read) {
            Some(table) => FramingPlan::Table(Arc::new(table)),
            None => default(section),
        };
    }
    let text = section.table.get(FRAMING.name).and_then(|item| item.as_str()).unwrap_or_default();
    if text.ends_with(".so") {
        let path = section.path(&FRAMING).map(|path| path.value).unwrap_or_default();
        if !path.is_file() {
            let cause = format!("there is no file {}", path.display());
            section.refuse(&FRAMING, Refused::new(cause, "a library lies beside the instrument file, or has its path"));
        }
        return FramingPlan::Library(path, OnceLock::new());
    }
    let words: Vec<_> = FRAMINGS.iter().chain(own).map(|kind| (kind.word, *kind)).collect();
    match section.word(&FRAMING, &words) {
        Some(kind) => FramingPlan::Kind(kind.value, (kind.build)(section, schema)),
        None => default(section),
    }
}

/// The schema id of messages whose framing has none.
fn schema(section: &mut Section<'_>) -> SchemaId {
    let text: Setting<String> = section.need(&SCHEMA);
    framing::schema_of(&text).unwrap_or_else(|| {
        section.refuse(&SCHEMA, Refused::new("it is no schema id", "write four letters or digits, like `\"raw0\"`"));
        SchemaId([0; 4])
    })
}

/// The networks of the senders.
fn networks(section: &mut Section<'_>) -> Vec<Network> {
    let allowed: Option<Setting<Vec<String>>> = section.get(&ALLOW);
    let mut allow = Vec::new();
    for text in allowed.map(|allowed| allowed.value).unwrap_or_default() {
        match text.parse() {
            Ok(network) => allow.push(network),
            Err(refused) => section.refuse(&ALLOW, refused),
        }
    }
    allow
}

/// Reads a section. `own`: framings that the program adds to those of beamport.
pub fn read(name: &str, section: &mut Section<'_>, own: &[&'static FramingKind]) -> Option<Arc<dyn SourcePlan>> {
    let (listen_at, ports) = addresses(name, section);
    let require = section.word(&REQUIRE, &[("all", true), ("any", false)]);
    let schema = schema(section);
    let tick: Option<Setting<Duration>> = section.get(&TICK);
    if tick.as_ref().is_some_and(|tick| tick.is_zero()) {
        section.refuse(&TICK, Refused::new("it is 0", "write a duration, like `\"10 ns\"`"));
    }
    let framing = framing_of(section, (schema, tick.is_some()), own);
    let allow = networks(section);
    let reorder = section.need::<Duration>(&REORDER);
    let drain = section.need::<Duration>(&DRAIN);
    if drain.value < Duration::from_micros(10) {
        section.refuse(&DRAIN, Refused::new("it is too short", "write at least `\"10 us\"`"));
    }
    let buffer = section.need::<Size>(&BUFFER_SIZE);
    if buffer.value.0 > BUFFER_MAX {
        section.refuse(&BUFFER_SIZE, Refused::new("it is too large", "write at most `\"1 GiB\"`"));
    }
    let gro = section.need::<bool>(&GRO);
    let interface: Option<Setting<String>> = section.get(&INTERFACE);
    if interface.as_ref().is_some_and(|name| name.len() >= INTERFACE_BYTES) {
        section.refuse(&INTERFACE, Refused::new("it is too long", "`ip link` lists the interfaces"));
    }
    let zero = section.need::<ZeroWord>(&ZERO);
    let bits = section.within(&BITS_OF_TICKS, BITS).map_or_else(|| framing.tick_bits(), |bits| bits.value as u32);
    let framing_ticks = framing.ticks();
    let throttle = table(section, &THROTTLE, Throttle::read);
    let boards = table(section, &BOARDS, Boards::read);
    let nanoseconds = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    Some(Arc::new(Plan {
        name: name.to_owned(),
        ports,
        needs_all: require.is_none_or(|require| require.value),
        listen_at,
        framing,
        allow,
        reorder: nanoseconds(reorder.value),
        drain: nanoseconds(drain.value),
        buffer: buffer.value.0,
        gro: gro.value,
        interface: interface.map(|interface| interface.value),
        tick: tick.map(|tick| nanoseconds(tick.value)).or_else(|| framing_ticks.map(|ticks| ticks.unit)),
        zero: zero.value,
        first: OnceLock::new(),
        wrap: 1_u64.checked_shl(bits),
        throttle,
        boards,
    }))
}
