//! The table `boards` of a source.

use crate::limits::{DEPTH_MAX, PAYLOAD_BYTES_MAX, RATE_MAX};
use settings::units::{Refused, Size};
use settings::{Key, Section, Setting, is_stream_name, key, required, wrong_name};
use std::time::Duration;

static RATE: Key = required("rate", "number, messages/s", "Messages a second, without `imbalance` and `multiplicity`.");
static IMBALANCE: Key = key(
    "imbalance",
    "number, 1 to 1000",
    "1",
    "The last board of the file sends this many times as much as the first, those between by even steps of the ratio; \
     the mean is `rate`.",
);
static MULTIPLICITY: Key = key(
    "multiplicity",
    "whole number, 1 to 64",
    "1",
    "From 2 on the messages are those of coincidences: each time this many boards send, within 50 ns. Which ones, and \
     when, follows from the seed of the first such board.",
);
static SIZE: Key = key("size", "size, at most 65443 B", "528 B", "Bytes of a payload; of `hits` about this many.");
static PAYLOAD: Key = key(
    "payload",
    "`random`, `hits` or the name of a stream",
    "random",
    "What is sent: random bytes with the schema id `rand`, neutron events (`ev44`), or again and again the newest \
     4,096 messages of a stream of the data folder, with their schema ids.",
);
static LOSS: Key =
    key("loss", "number, 0 to 1", "0", "Share of the messages that are not sent, although they have a number.");
static DUPLICATE: Key = key("duplicate", "number, 0 to 1", "0", "Share of the messages that are sent twice.");
static REORDER: Key = key("reorder", "number, 0 to 1", "0", "Share of the messages that are sent late.");
static DEPTH: Key = key(
    "depth",
    "whole number, 1 to 100,000",
    "10",
    "A late message is sent after 1 to this many of the following ones.",
);
static LAG: Key = key("lag", "duration", "0 s", "How long after its time a message is sent.");
static CORRUPT: Key = key("corrupt", "number, 0 to 1", "0", "Share of the messages in which one bit is flipped.");
static CLOCK_FAULT: Key =
    key("clock_fault", "number, 0 to 1", "0", "Share of the messages whose time is wrong by up to 1 s either way.");
static SEED: Key = key("seed", "whole number", "1", "Repeats the faults and the payloads.");
static DURATION: Key = key("duration", "duration", "", "How long the board sends. Default: until it is stopped.");
static GSO: Key = key(
    "gso",
    "true or false",
    "false",
    "The kernel cuts datagrams of the same size from one large piece: less time for each, and they leave in bursts \
     of 2 ms.",
);

const KEYS: [&Key; 15] = [
    &RATE,
    &IMBALANCE,
    &MULTIPLICITY,
    &SIZE,
    &PAYLOAD,
    &LOSS,
    &DUPLICATE,
    &REORDER,
    &DEPTH,
    &LAG,
    &CORRUPT,
    &CLOCK_FAULT,
    &SEED,
    &DURATION,
    &GSO,
];

/// The table of the reference page.
pub(crate) fn reference() -> String {
    let about = "The table `boards` of a source `udp`: what [simulated boards](udp.md#simulated-boards) send.";
    format!("## Simulated boards\n\n{about}\n\n{}", settings::reference(&KEYS))
}

/// The content of a board's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Random,
    Hits,
    /// The messages of a stream of this name.
    Stream(String),
}

/// The table `boards`.
#[derive(Clone, Debug)]
pub(crate) struct Boards {
    /// Messages a second.
    pub(super) rate: f64,
    pub(super) imbalance: f64,
    /// Boards that send at once; 1: each for itself.
    pub(super) multiplicity: usize,
    pub(super) size: usize,
    pub(super) content: Content,
    pub(super) loss: f64,
    pub(super) duplicate: f64,
    pub(super) reorder: f64,
    pub(super) depth: u64,
    /// ns
    pub(super) lag: u64,
    pub(super) corrupt: f64,
    pub(super) clock_fault: f64,
    pub(super) seed: u64,
    pub(super) duration: Option<Duration>,
    pub(super) gso: bool,
}

impl Boards {
    /// Reads the table.
    pub(crate) fn read(section: &mut Section<'_>) -> Option<Self> {
        let rate: Option<Setting<f64>> = section.get(&RATE);
        if rate.as_ref().is_some_and(|rate| rate.value <= 0.0 || rate.value > RATE_MAX) {
            section
                .refuse(&RATE, Refused::new("it is out of range", format!("write more than 0 and at most {RATE_MAX}")));
        }
        let imbalance = section.need::<f64>(&IMBALANCE);
        if !(1.0..=1000.0).contains(&imbalance.value) {
            section.refuse(&IMBALANCE, Refused::new("it is out of range", "write 1 to 1000"));
        }
        let multiplicity = section.within(&MULTIPLICITY, 1..=64).map_or(1, |many| many.value as usize);
        let size = section.need::<Size>(&SIZE);
        if size.0 > PAYLOAD_BYTES_MAX {
            section.refuse(&SIZE, Refused::new("it does not fit a datagram", ""));
        }
        let payload: Setting<String> = section.need(&PAYLOAD);
        let content = match payload.as_str() {
            "random" => Content::Random,
            "hits" => Content::Hits,
            name => {
                if !is_stream_name(name) {
                    section.refuse(&PAYLOAD, wrong_name(name));
                }
                Content::Stream(name.to_owned())
            }
        };
        let mut share = |key: &'static Key| {
            let share = section.need::<f64>(key);
            if !(0.0..=1.0).contains(&share.value) {
                section.refuse(key, Refused::new("it is out of range", "write 0 to 1"));
            }
            share.value
        };
        let (loss, duplicate, reorder) = (share(&LOSS), share(&DUPLICATE), share(&REORDER));
        let (corrupt, clock_fault) = (share(&CORRUPT), share(&CLOCK_FAULT));
        let depth = section.within(&DEPTH, 1..=DEPTH_MAX).map_or(1, |depth| depth.value.unsigned_abs());
        let lag = section.need::<Duration>(&LAG).value.as_nanos();
        let seed = section.need::<u64>(&SEED);
        let duration: Option<Setting<Duration>> = section.get(&DURATION);
        let gso = section.need::<bool>(&GSO);
        Some(Self {
            rate: rate?.value,
            imbalance: imbalance.value,
            multiplicity,
            size: size.0 as usize,
            content,
            loss,
            duplicate,
            reorder,
            depth,
            lag: u64::try_from(lag).unwrap_or(u64::MAX),
            corrupt,
            clock_fault,
            seed: seed.value,
            duration: duration.map(|duration| duration.value),
            gso: gso.value,
        })
    }
}
