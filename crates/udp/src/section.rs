//! `[source.NAME] kind = "udp"`: the keys, and the plan that they make.

use crate::boards::{self, Boards};
use crate::limits::{BITS, BUFFER, BUFFER_MAX, GEB_BITS, GEB_TICK, INTERFACE_BYTES};
use crate::network::Network;
use crate::source::Udp;
use crate::throttle::{self, Throttle};
use crate::zero::{First, ZeroWord};
use flow::edge::{Conflict, Host, MoreKeys, Outline, SourceKind, SourcePlan};
use flow::{Fault, Source};
use serde_json::{Map, Value as Json};
use settings::units::{Refused, Size};
use settings::{Key, Origin, Section, Setting, Word, key, required, shortened};
use std::any::Any;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::SchemaId;

static LISTEN: Key = required("listen", "IP address and port", "Where datagrams arrive: one port for each board.");
static FRAMING: Key = required(
    "framing",
    "`beamport`, `ess`, `geb`, `hadaq` or `raw`",
    "How a datagram is read: [framings](udp.md#framings).",
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
pub static SOURCE: SourceKind = SourceKind {
    name: "udp",
    about: "A board that sends UDP datagrams: [UDP](udp.md).",
    keys: &[
        &LISTEN,
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
    read,
    more: Some(&MoreKeys { reference, owner: |_| None }),
};

/// The tables of the reference page.
fn reference() -> String {
    format!("{}\n{}", throttle::reference(), boards::reference())
}

/// How datagrams are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FramingWord {
    /// A header of 64 bytes and a payload.
    #[default]
    Beamport,
    /// Readouts of ESS.
    Ess,
    /// Units of GRETINA and GRETA.
    Geb,
    /// Sub-events of HADES.
    Hadaq,
    /// A datagram is a message.
    Raw,
}

impl Word for FramingWord {
    const ALL: &'static [(&'static str, Self)] = &[
        ("beamport", Self::Beamport),
        ("ess", Self::Ess),
        ("geb", Self::Geb),
        ("hadaq", Self::Hadaq),
        ("raw", Self::Raw),
    ];
}

/// What a section says.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the source, and of the origin of its messages.
    pub(crate) name: String,
    pub(crate) listen: SocketAddr,
    /// Line of `listen`.
    pub(crate) listen_at: Origin,
    pub(crate) framing: FramingWord,
    /// Of the messages of framing `raw`.
    pub(crate) schema: SchemaId,
    /// Networks of the senders; none: everybody may send.
    pub(crate) allow: Vec<Network>,
    /// ns
    pub(crate) reorder: i64,
    /// ns
    pub(crate) drain: i64,
    /// Bytes of the socket's buffer.
    pub(crate) buffer: u64,
    /// The kernel may pass several datagrams at once.
    pub(crate) gro: bool,
    /// Name of a network interface.
    pub(crate) interface: Option<String>,
    /// ns
    pub(crate) tick: Option<i64>,
    pub(crate) zero: ZeroWord,
    /// The zero that sources share, once the data folder is known.
    pub(crate) first: OnceLock<Arc<First>>,
    /// After this many ticks timestamps begin again.
    pub(crate) wrap: Option<u64>,
    pub(crate) throttle: Option<Throttle>,
    pub(crate) boards: Option<Boards>,
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

    fn conflicts(&self, name: &str, outline: &Outline<'_>) -> Vec<Conflict> {
        let plan = |source: &dyn SourcePlan| (source as &dyn Any).downcast_ref::<Self>().cloned();
        let mut others = outline.before.iter().filter_map(|(other, source)| Some((other, plan(*source)?)));
        let other = others.find(|(_, other)| self.shares_address(other));
        let conflict = other.map(|(other, plan)| Conflict {
            origin: self.listen_at,
            what: format!("source `{}` cannot listen at {}", shortened(name), self.listen),
            cause: format!("source `{}` listens at {}", shortened(other), plan.listen),
            hint: "write another port: a source has an address of its own".into(),
        });
        conflict.into_iter().collect()
    }

    fn receiver(&self) -> Option<&'static str> {
        // Hundreds of ports do not need hundreds of threads.
        Some("udp")
    }
}

impl Plan {
    /// True if both cannot listen at once: 0.0.0.0 is every address of its family.
    fn shares_address(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.listen.ip(), other.listen.ip());
        let is_any = ours.is_unspecified() || theirs.is_unspecified();
        let is_apart = self.interface.is_some() && other.interface.is_some() && self.interface != other.interface;
        let is_same = ours == theirs || is_any && ours.is_ipv4() == theirs.is_ipv4();
        self.listen.port() != 0 && self.listen.port() == other.listen.port() && is_same && !is_apart
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

/// Reads a section.
fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let listen: Option<Setting<String>> = section.get(&LISTEN);
    let address = listen.as_ref().and_then(|listen| listen.parse::<SocketAddr>().ok());
    let framing = section.get::<FramingWord>(&FRAMING).map_or(FramingWord::Beamport, |framing| framing.value);
    let schema: Setting<String> = section.need(&SCHEMA);
    let schema_id = <[u8; 4]>::try_from(schema.as_bytes()).ok().filter(|id| id.iter().all(u8::is_ascii_alphanumeric));
    if schema_id.is_none() {
        section.refuse(&SCHEMA, Refused::new("it is no schema id", "write four letters or digits, like `\"raw0\"`"));
    }
    if listen.is_some() && address.is_none_or(|address| address.port() == 0) {
        let hint = "write it like `\"127.0.0.1:9001\"` or `\"0.0.0.0:9001\"`";
        section.refuse(&LISTEN, Refused::new("it is not an IP address with a port", hint));
    }
    let allowed: Option<Setting<Vec<String>>> = section.get(&ALLOW);
    let mut allow = Vec::new();
    for text in allowed.map(|allowed| allowed.value).unwrap_or_default() {
        match text.parse() {
            Ok(network) => allow.push(network),
            Err(refused) => section.refuse(&ALLOW, refused),
        }
    }
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
    let tick: Option<Setting<Duration>> = section.get(&TICK);
    if tick.as_ref().is_some_and(|tick| tick.is_zero()) {
        section.refuse(&TICK, Refused::new("it is 0", "write a duration, like `\"10 ns\"`"));
    }
    let zero = section.need::<ZeroWord>(&ZERO);
    let own_bits = if framing == FramingWord::Geb { GEB_BITS } else { u64::BITS };
    let bits = section.within(&BITS_OF_TICKS, BITS).map_or(own_bits, |bits| bits.value as u32);
    let throttle = table(section, &THROTTLE, Throttle::read);
    let boards = table(section, &BOARDS, Boards::read);
    let nanoseconds = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    Some(Arc::new(Plan {
        name: name.to_owned(),
        listen_at: listen.as_ref().map_or(Origin::Default, |listen| listen.origin),
        listen: address.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into()),
        framing,
        schema: SchemaId(schema_id.unwrap_or_default()),
        allow,
        reorder: nanoseconds(reorder.value),
        drain: nanoseconds(drain.value),
        buffer: buffer.value.0,
        gro: gro.value,
        interface: interface.map(|interface| interface.value),
        tick: tick.map(|tick| nanoseconds(tick.value)).or((framing == FramingWord::Geb).then_some(GEB_TICK)),
        zero: zero.value,
        first: OnceLock::new(),
        wrap: 1_u64.checked_shl(bits),
        throttle,
        boards,
    }))
}
