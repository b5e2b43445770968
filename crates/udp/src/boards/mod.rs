//! Simulated boards: they send what the boards of an instrument file would send, with faults from a seed, and say what
//! they did.
//!
//! Constraints: one thread. How many messages a board sends, which of them are lost, repeated, late or damaged, and
//! what is in them follow from the keys and the seed alone; only the times are those of the clock.

mod dice;

use crate::limits::{
    BATCH, BEAT, COVERED, DEPTH_MAX, END_PAUSE, ENDS, EVENTS_FRAME, NAP, PAYLOAD_BYTES_MAX, POOL, RATE_MAX,
};
use crate::section::Plan;
use crate::socket::{Outbox, Target};
use dice::Dice;
use flow::Fault;
use serde_json::{Map, Value};
use settings::units::{Refused, Size};
use settings::{Key, Section, Setting, Word, key, required};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};
use store::crc32c;
use wire::datagram::{Flag, Header, Type};
use wire::ev44::{self, Ev44};
use wire::limits::HEADER_BYTES;

static RATE: Key = required("rate", "number, messages/s", "Messages a second.");
static SIZE: Key = key("size", "size, at most 65443 B", "528 B", "Bytes of a payload; of `hits` about this many.");
static PAYLOAD: Key = key(
    "payload",
    "`random` or `hits`",
    "random",
    "What is sent: random bytes with the schema id `rand`, or neutron events (`ev44`).",
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
static CORRUPT: Key = key("corrupt", "number, 0 to 1", "0", "Share of the messages in which one bit is flipped.");
static SEED: Key = key("seed", "whole number", "1", "Repeats the faults and the payloads.");

const KEYS: [&Key; 9] = [&RATE, &SIZE, &PAYLOAD, &LOSS, &DUPLICATE, &REORDER, &DEPTH, &CORRUPT, &SEED];

/// Schema id of random bytes.
const RANDOM: [u8; 4] = *b"rand";

/// The table of the reference page.
pub(crate) fn reference() -> String {
    let about = "The table `boards` of a source `udp`: what [`beamport boards`](udp.md#simulated-boards) sends.";
    format!("## Simulated boards\n\n{about}\n\n{}", settings::reference(&KEYS))
}

/// What a board puts into its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Content {
    #[default]
    Random,
    Hits,
}

impl Word for Content {
    const ALL: &'static [(&'static str, Self)] = &[("random", Self::Random), ("hits", Self::Hits)];
}

/// The table `boards`.
#[derive(Clone, Debug)]
pub(crate) struct Boards {
    rate: f64,
    size: usize,
    content: Content,
    loss: f64,
    duplicate: f64,
    reorder: f64,
    depth: u64,
    corrupt: f64,
    seed: u64,
}

impl Boards {
    /// Reads the table.
    pub(crate) fn read(section: &mut Section<'_>) -> Option<Self> {
        let rate: Option<Setting<f64>> = section.get(&RATE);
        if rate.as_ref().is_some_and(|rate| rate.value <= 0.0 || rate.value > RATE_MAX) {
            section
                .refuse(&RATE, Refused::new("it is out of range", format!("write more than 0 and at most {RATE_MAX}")));
        }
        let size = section.need::<Size>(&SIZE);
        if size.0 > PAYLOAD_BYTES_MAX {
            section.refuse(&SIZE, Refused::new("it does not fit a datagram", ""));
        }
        let content = section.need::<Content>(&PAYLOAD);
        let mut share = |key: &'static Key| {
            let share = section.need::<f64>(key);
            if !(0.0..=1.0).contains(&share.value) {
                section.refuse(key, Refused::new("it is out of range", "write 0 to 1"));
            }
            share.value
        };
        let (loss, duplicate, reorder) = (share(&LOSS), share(&DUPLICATE), share(&REORDER));
        let corrupt = share(&CORRUPT);
        let depth = section.within(&DEPTH, 1..=DEPTH_MAX).map_or(1, |depth| depth.value.unsigned_abs());
        let seed = section.need::<u64>(&SEED);
        let (size, content) = (size.0 as usize, content.value);
        Some(Self { rate: rate?.value, size, content, loss, duplicate, reorder, depth, corrupt, seed: seed.value })
    }
}

/// What a board did.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// Numbers that were given.
    sent: u64,
    lost: u64,
    duplicate: u64,
    reordered: u64,
    corrupt: u64,
    /// Datagrams that left, signs of life not counted.
    datagrams: u64,
}

impl Truth {
    fn to_json(&self) -> Map<String, Value> {
        let counts = [
            ("sent", self.sent),
            ("lost", self.lost),
            ("duplicate", self.duplicate),
            ("reordered", self.reordered),
            ("corrupt", self.corrupt),
            ("datagrams", self.datagrams),
        ];
        counts.into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect()
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.duplicate += other.duplicate;
        self.reordered += other.reordered;
        self.corrupt += other.corrupt;
        self.datagrams += other.datagrams;
    }
}

/// Sends for `duration` what the boards of these sources would send, or until `stop` says so. The answer is what they
/// did, of all and of each.
pub fn send(plans: &[&Plan], duration: Option<Duration>, stop: &dyn Fn() -> bool) -> Result<Value, Fault> {
    let mut boards: Vec<Board> =
        plans.iter().enumerate().filter_map(|(at, plan)| Board::new(at, plan, duration)).collect();
    if boards.is_empty() {
        let fault = Fault::new("there is no board to simulate", "no source of kind `udp` has a table `boards`");
        return Err(fault.hint("add `boards = { rate = 1000 }` to one"));
    }
    let mut sockets = Sockets::open(&boards)?;
    for board in &mut boards {
        sockets.send(board.target, &[board.sign(Type::Beat)])?;
    }
    let mut slots = Vec::new();
    let mut beat = BEAT;
    let started = Instant::now();
    while !stop() && boards.iter().any(|board| !board.is_done()) {
        let elapsed = started.elapsed();
        let mut is_ahead = true;
        for board in &mut boards {
            board.make(elapsed, &mut slots);
            is_ahead &= slots.len() < BATCH;
            sockets.send(board.target, &slots)?;
            board.truth.datagrams += slots.len() as u64;
            board.take_back(&mut slots);
        }
        if elapsed >= beat {
            beat = elapsed + BEAT;
            for board in &mut boards {
                sockets.send(board.target, &[board.sign(Type::Beat)])?;
            }
        }
        if is_ahead {
            std::thread::sleep(NAP);
        }
    }
    for board in &mut boards {
        board.release(u64::MAX, &mut slots);
        sockets.send(board.target, &slots)?;
        board.truth.datagrams += slots.len() as u64;
        slots.clear();
    }
    for again in 0..ENDS {
        if again > 0 {
            std::thread::sleep(END_PAUSE);
        }
        for board in &mut boards {
            sockets.send(board.target, &[board.sign(Type::End)])?;
        }
    }
    let mut all = Truth::default();
    boards.iter().for_each(|board| all.add(&board.truth));
    let each: Map<String, Value> =
        boards.iter().map(|board| (board.name.clone(), board.truth.to_json().into())).collect();
    let mut answer = all.to_json();
    answer.insert("boards".into(), each.into());
    Ok(answer.into())
}

/// The sockets that all boards send from, one for each family of addresses. They are not connected: a board does not
/// notice that nobody listens.
struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    fn open(boards: &[Board]) -> Result<Self, Fault> {
        let open = |is_v6: bool, any: IpAddr| match boards.iter().any(|board| board.target.is_ipv6() == is_v6) {
            true => UdpSocket::bind((any, 0)).map(Some).map_err(|e| Fault::io("cannot open a socket", &e)),
            false => Ok(None),
        };
        Ok(Self { v4: open(false, Ipv4Addr::UNSPECIFIED.into())?, v6: open(true, Ipv6Addr::UNSPECIFIED.into())? })
    }

    fn send(&mut self, to: SocketAddr, slots: &[Slot]) -> Result<(), Fault> {
        let Some(socket) = (if to.is_ipv6() { &self.v6 } else { &self.v4 }) else { return Ok(()) };
        let cannot = |e: std::io::Error| Fault::io(format!("cannot send to {to}"), &e);
        let target = Target::from(to);
        for slots in slots.chunks(BATCH) {
            let mut outbox = Outbox::new();
            slots.iter().for_each(|slot| outbox.add(&slot.head, &slot.payload, target));
            outbox.send(socket).map_err(cannot)?;
        }
        Ok(())
    }
}

/// A datagram to be sent.
#[derive(Clone)]
struct Slot {
    head: [u8; HEADER_BYTES],
    payload: Vec<u8>,
}

/// One board.
struct Board {
    name: String,
    target: SocketAddr,
    keys: Boards,
    stream: u16,
    dice: Dice,
    /// Random payloads, with their checksums.
    pool: Vec<(Vec<u8>, u32)>,
    /// Messages in all.
    total: u64,
    /// Datagrams that are sent late, by the number before which they are sent and the order in which they were made.
    held: BTreeMap<(u64, u64), Slot>,
    truth: Truth,
    /// When the first message is due, ns since 1970 UTC.
    begin: u64,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

impl Board {
    fn new(at: usize, plan: &Plan, duration: Option<Duration>) -> Option<Self> {
        let keys = plan.boards.clone()?;
        let mut dice = Dice::new(keys.seed, at as u64);
        let pool = match keys.content {
            Content::Random => (0..POOL).map(|_| random(&mut dice, keys.size)).collect(),
            Content::Hits => Vec::new(),
        };
        let total = duration.map_or(u64::MAX, |duration| (keys.rate * duration.as_secs_f64()).round() as u64);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(Self {
            name: plan.name.clone(),
            target: reachable(plan.listen),
            stream: u16::try_from(at + 1).unwrap_or(u16::MAX),
            dice,
            pool,
            total,
            held: BTreeMap::new(),
            truth: Truth::default(),
            begin: now.as_nanos() as u64,
            spare: Vec::new(),
            keys,
        })
    }

    /// All messages are made.
    fn is_done(&self) -> bool {
        self.truth.sent >= self.total
    }

    /// The time of a message, ns since 1970 UTC.
    fn time(&self, number: u64) -> u64 {
        self.begin + (number as f64 * 1e9 / self.keys.rate) as u64
    }

    /// Makes the datagrams that are due, a batch at most, and adds held ones whose turn it is.
    fn make(&mut self, elapsed: Duration, slots: &mut Vec<Slot>) {
        let due = ((elapsed.as_secs_f64() * self.keys.rate) as u64).saturating_add(1).min(self.total);
        while self.truth.sent < due && slots.len() < BATCH {
            let number = self.truth.sent;
            self.release(number, slots);
            self.truth.sent += 1;
            self.message(number, slots);
        }
    }

    /// Adds held datagrams that are sent before this number.
    fn release(&mut self, number: u64, slots: &mut Vec<Slot>) {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= number) {
            slots.push(first.remove());
        }
    }

    /// Makes the message of a number, with its faults.
    fn message(&mut self, number: u64, slots: &mut Vec<Slot>) {
        // All are drawn for each message: one fault does not move those behind it.
        let Boards { loss, duplicate, reorder, corrupt, depth, .. } = self.keys;
        let [is_lost, is_double, is_late, is_corrupt] =
            [loss, duplicate, reorder, corrupt].map(|share| self.dice.chance(share));
        let (later, bit, payload) = (self.dice.below(depth), self.dice.word(), self.dice.word());
        if is_lost {
            self.truth.lost += 1;
            return;
        }
        let mut slot = self.slot(number, payload);
        if is_corrupt {
            self.truth.corrupt += 1;
            flip(&mut slot, bit);
        } else if is_double {
            self.truth.duplicate += 1;
            slots.push(slot.clone());
        }
        if is_late {
            self.truth.reordered += 1;
            self.held.insert((number.saturating_add(2 + later), number), slot);
        } else {
            slots.push(slot);
        }
    }

    fn slot(&mut self, number: u64, word: u64) -> Slot {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        let (schema, crc) = match self.keys.content {
            Content::Random => {
                let (bytes, crc) = &self.pool[word as usize % POOL];
                payload.extend_from_slice(bytes);
                (RANDOM, *crc)
            }
            Content::Hits => {
                self.hits(number, word, &mut payload);
                (ev44::ID, crc32c(&payload))
            }
        };
        let head = Header {
            kind: Type::Data,
            payload_bytes: payload.len() as u32,
            payload_crc: crc,
            schema,
            ..self.header(number)
        };
        Slot { head: head.to_bytes(crc32c), payload }
    }

    /// Neutron events: what the size of the payload has room for.
    fn hits(&self, number: u64, word: u64, payload: &mut Vec<u8>) {
        let count = (self.keys.size.saturating_sub(EVENTS_FRAME) / 8).max(1);
        let mut dice = Dice::new(word, number);
        let times: Vec<i32> = (0..count).map(|_| dice.below(71_000_000) as i32).collect();
        let pixels: Vec<i32> = (0..count).map(|_| dice.below(1024) as i32 + 1).collect();
        let (time, index) = ([self.time(number) as i64], [0_i32]);
        let parts = Ev44 {
            source_name: &self.name,
            message_id: number as i64,
            reference_time: (&time).into(),
            reference_time_index: (&index).into(),
            time_of_flight: times.as_slice().into(),
            pixel_id: pixels.as_slice().into(),
        };
        // It fails on messages of more than a datagram alone.
        let _ = ev44::write(payload, &parts);
    }

    /// A datagram without payload, which names the number of the next message.
    fn sign(&self, kind: Type) -> Slot {
        let header = Header { kind, ..self.header(self.truth.sent) };
        Slot { head: header.to_bytes(crc32c), payload: Vec::new() }
    }

    fn header(&self, number: u64) -> Header {
        Header {
            stream: self.stream,
            flags: Flag::Epoch as u32,
            timestamp: self.time(number),
            sequence: number,
            ..Header::default()
        }
    }

    /// Keeps the buffers of datagrams that were sent.
    fn take_back(&mut self, slots: &mut Vec<Slot>) {
        self.spare.extend(slots.drain(..).map(|slot| slot.payload).take(BATCH));
        self.spare.truncate(2 * BATCH);
    }
}

/// Where a board sends to that a receiver listens at.
fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listen.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, listen.port()).into(),
        _ => listen,
    }
}

/// Flips a bit that a checksum covers.
fn flip(slot: &mut Slot, word: u64) {
    let bit = word as usize % (8 * (COVERED + slot.payload.len()));
    let byte = match bit / 8 {
        at if at < COVERED => &mut slot.head[at],
        at => &mut slot.payload[at - COVERED],
    };
    *byte ^= 1 << (bit % 8);
}

/// Random bytes, with their checksum.
fn random(dice: &mut Dice, size: usize) -> (Vec<u8>, u32) {
    let words = std::iter::repeat_with(|| dice.word().to_le_bytes());
    let bytes: Vec<u8> = words.flatten().take(size).collect();
    let crc = crc32c(&bytes);
    (bytes, crc)
}
