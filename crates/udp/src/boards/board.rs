//! One board: its messages, their faults, and the account of them.

use super::dice::Dice;
use crate::boards_plan::{Boards, Content};
use crate::framing::{Outgoing, sign};
use crate::limits::{BATCH, COVERED, EVENTS_FRAME, FAULT_MAX, PAYLOAD_BYTES_MAX, POOL, STREAM_POOL};
use crate::plan::{Address, FramingPlan, Plan};
use crate::throttle::To;
use crate::zero::ZeroWord;
use flow::{Data, Fault};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use store::crc32c;
use wire::datagram::Type;
use wire::ev44::{self, Ev44};
use wire::limits::HEADER_BYTES;

/// Schema id of random bytes.
const RANDOM: [u8; 4] = *b"rand";

/// The true counts of a board.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    /// Numbers that were given.
    pub(super) sent: u64,
    lost: u64,
    duplicate: u64,
    reordered: u64,
    corrupt: u64,
    clock_fault: u64,
    /// Messages that were due while it paused: they have no number.
    inhibited: u64,
    /// How long it paused, ns.
    pub(super) dead: u64,
    /// Datagrams that left, signs of life not counted.
    pub(super) datagrams: u64,
}

impl Truth {
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let counts = [
            ("sent", self.sent),
            ("lost", self.lost),
            ("duplicate", self.duplicate),
            ("reordered", self.reordered),
            ("corrupt", self.corrupt),
            ("clock_fault", self.clock_fault),
            ("inhibited", self.inhibited),
            ("datagrams", self.datagrams),
        ];
        let counts = counts.into_iter().map(|(name, n)| (name.to_owned(), json!(n)));
        counts.chain([("dead_time".to_owned(), json!(self.dead as f64 / 1e9))]).collect()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.lost += other.lost;
        self.duplicate += other.duplicate;
        self.reordered += other.reordered;
        self.corrupt += other.corrupt;
        self.clock_fault += other.clock_fault;
        self.inhibited += other.inhibited;
        self.dead += other.dead;
        self.datagrams += other.datagrams;
    }
}

/// A datagram to be sent.
#[derive(Clone)]
pub(super) struct Slot {
    head: [u8; HEADER_BYTES],
    /// Of `head`.
    head_bytes: usize,
    pub(super) payload: Vec<u8>,
}

impl Slot {
    /// The header before the payload.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }
}

/// A payload that is made before, with its checksum and its schema id.
#[derive(Clone)]
struct Made {
    bytes: Vec<u8>,
    crc: u32,
    schema: [u8; 4],
}

impl Made {
    fn new(bytes: Vec<u8>, schema: [u8; 4]) -> Self {
        Self { crc: crc32c(&bytes), bytes, schema }
    }
}

/// When the messages of a board are due.
enum Due {
    /// At equal distances; how many there are in all.
    Steady { total: u64 },
    /// In coincidences: those that are known, ns since the start. No more come after `until`.
    Array { times: VecDeque<u64>, until: u64, is_done: bool },
}

/// One board.
pub(super) struct Board {
    pub(super) name: String,
    pub(super) target: SocketAddr,
    /// Among all of the file.
    pub(super) place: usize,
    pub(super) keys: Boards,
    /// Where the throttle of its source sends to.
    pub(super) throttle: Option<To>,
    /// Messages a second.
    rate: f64,
    due: Due,
    dice: Dice,
    /// None: the payload is made for each message.
    pool: Arc<[Made]>,
    framing: FramingPlan,
    /// Unit and beginning of its times, ns; ns since 1970 UTC.
    tick: i64,
    zero: i64,
    /// Datagrams that are sent late, by the number before which they are sent and the order in which they were made.
    held: BTreeMap<(u64, u64), Slot>,
    pub(super) truth: Truth,
    /// When all boards start, ns since 1970 UTC.
    begin: u64,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

impl Board {
    /// `rate`: messages a second; `duration`: how long it sends; `begin`: when the boards start, ns since 1970 UTC.
    pub(super) fn new(
        (place, plan, address, keys): (usize, &Plan, &Address, &Boards),
        rate: f64,
        duration: Option<Duration>,
        begin: u64,
        data: &Data,
    ) -> Result<Self, Fault> {
        let mut dice = Dice::new(keys.seed, place as u64);
        let pool = match &keys.content {
            Content::Random => (0..POOL).map(|_| Made::new(random(&mut dice, keys.size), RANDOM)).collect(),
            Content::Hits => Arc::default(),
            Content::Stream(name) => messages_of(data, name)?.into(),
        };
        let due = match (keys.multiplicity, duration) {
            (1, None) => Due::Steady { total: u64::MAX },
            (1, Some(duration)) => Due::Steady { total: (rate * duration.as_secs_f64()).round() as u64 },
            (_, duration) => {
                let until = duration.map_or(u64::MAX, |duration| duration.as_nanos() as u64);
                Due::Array { times: VecDeque::new(), until, is_done: false }
            }
        };
        Ok(Self {
            name: address.origin.clone(),
            target: reachable(address.at),
            place,
            keys: keys.clone(),
            throttle: plan.throttle.map(|throttle| throttle.to),
            rate,
            due,
            dice,
            pool,
            framing: plan.framing.clone(),
            tick: plan.tick.unwrap_or(1),
            zero: match plan.zero {
                ZeroWord::At(time) => time.0,
                ZeroWord::First => i64::try_from(begin).unwrap_or(i64::MAX),
            },
            held: BTreeMap::new(),
            truth: Truth::default(),
            begin,
            spare: Vec::new(),
        })
    }

    /// All messages are made.
    pub(super) fn is_done(&self) -> bool {
        match &self.due {
            Due::Steady { total } => self.truth.sent + self.truth.inhibited >= *total,
            Due::Array { times, is_done, .. } => *is_done && times.is_empty(),
        }
    }

    /// All coincidences that are known to it are sent but for a batch.
    pub(super) fn has_room(&self) -> bool {
        !matches!(&self.due, Due::Array { times, .. } if times.len() >= BATCH)
    }

    /// It is a member of a coincidence at this time, ns since the start.
    pub(super) fn fires(&mut self, time: u64) {
        if let Due::Array { times, until, .. } = &mut self.due
            && time < *until
        {
            times.push_back(time);
        }
    }

    /// The coincidences up to this time, ns since the start, are known.
    pub(super) fn knows(&mut self, time: u64) {
        if let Due::Array { until, is_done, .. } = &mut self.due {
            *is_done = time >= *until;
        }
    }

    /// Takes the time of the next message, ns since the start, if it is due.
    fn next(&mut self, elapsed: u64) -> Option<u64> {
        let lag = self.keys.lag;
        match &mut self.due {
            Due::Steady { total } => {
                let number = self.truth.sent + self.truth.inhibited;
                let time = (number as f64 * 1e9 / self.rate) as u64;
                (number < *total && time.saturating_add(lag) <= elapsed).then_some(time)
            }
            Due::Array { times, .. } => {
                let is_due = times.front().is_some_and(|time| time.saturating_add(lag) <= elapsed);
                if is_due { times.pop_front() } else { None }
            }
        }
    }

    /// Makes the datagrams that are due, a batch at most, and adds held ones whose turn it is. `elapsed`: ns since the
    /// start. While it pauses, what is due is not made.
    pub(super) fn make(&mut self, elapsed: u64, pauses: bool, slots: &mut Vec<Slot>) {
        while slots.len() < BATCH
            && let Some(time) = self.next(elapsed)
        {
            if pauses {
                self.truth.inhibited += 1;
                continue;
            }
            let number = self.truth.sent;
            self.release(number, slots);
            self.truth.sent += 1;
            self.message(number, time, slots);
        }
    }

    /// Adds held datagrams that are sent before this number.
    pub(super) fn release(&mut self, number: u64, slots: &mut Vec<Slot>) {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= number) {
            slots.push(first.remove());
        }
    }

    /// Makes the message of a number, with its faults. `time`: ns since the start.
    fn message(&mut self, number: u64, time: u64, slots: &mut Vec<Slot>) {
        // All are drawn for each message: one fault does not move those behind it.
        let Boards { loss, duplicate, reorder, corrupt, clock_fault, depth, .. } = self.keys;
        let [is_lost, is_double, is_late, is_corrupt, is_wrong] =
            [loss, duplicate, reorder, corrupt, clock_fault].map(|share| self.dice.chance(share));
        let (later, bit, payload) = (self.dice.below(depth), self.dice.word(), self.dice.word());
        let wrong = self.dice.below(2 * FAULT_MAX + 1);
        if is_lost {
            self.truth.lost += 1;
            return;
        }
        let mut stamp = self.begin.saturating_add(time);
        if is_wrong {
            self.truth.clock_fault += 1;
            stamp = stamp.saturating_add(wrong).saturating_sub(FAULT_MAX);
        }
        let mut slot = self.slot(number, stamp, payload);
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

    fn slot(&mut self, number: u64, stamp: u64, word: u64) -> Slot {
        let mut payload = self.spare.pop().unwrap_or_default();
        payload.clear();
        let (schema, crc) = match &self.pool[..] {
            [] => {
                self.hits(number, stamp, word, &mut payload);
                (ev44::ID, crc32c(&payload))
            }
            pool => {
                // Messages of a stream keep their order.
                let at = if self.keys.content == Content::Random { word } else { number };
                let made = &pool[(at % pool.len() as u64) as usize];
                payload.extend_from_slice(&made.bytes);
                (made.schema, made.crc)
            }
        };
        let mut head = [0; HEADER_BYTES];
        let ticks = (i64::try_from(stamp).unwrap_or(i64::MAX) - self.zero) / self.tick.max(1);
        let write = match &self.framing {
            FramingPlan::Kind(kind, _) => kind.head,
            // `boards_of` refuses it.
            FramingPlan::Library(..) => None,
            FramingPlan::Table(table) => {
                let times = (i64::try_from(stamp).unwrap_or(i64::MAX), ticks as u64);
                return Slot { head, head_bytes: 0, payload: table.datagram(number, times, schema, &payload) };
            }
        };
        let (place, time) = (self.place, stamp);
        let mut message = Outgoing { number, time, ticks, schema, crc, place, head: &mut head, payload: &mut payload };
        let head_bytes = write.map_or(0, |write| write(&mut message));
        Slot { head, head_bytes, payload }
    }

    /// Neutron events: what the size of the payload has room for.
    fn hits(&self, number: u64, stamp: u64, word: u64, payload: &mut Vec<u8>) {
        let count = (self.keys.size.saturating_sub(EVENTS_FRAME) / 8).max(1);
        let mut dice = Dice::new(word, number);
        let times: Vec<i32> = (0..count).map(|_| dice.below(71_000_000) as i32).collect();
        let pixels: Vec<i32> = (0..count).map(|_| dice.below(1024) as i32 + 1).collect();
        let (time, index) = ([stamp as i64], [0_i32]);
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

    /// Whether it sends signs of life, and its number: its framing has such.
    pub(super) fn signs(&self) -> bool {
        self.framing.has_signs()
    }

    /// A datagram without payload, which names the number of the next message. `elapsed`: ns since the start.
    pub(super) fn sign(&self, kind: Type, elapsed: u64) -> Slot {
        let head = sign(kind, self.place, self.truth.sent, self.begin.saturating_add(elapsed));
        Slot { head, head_bytes: HEADER_BYTES, payload: Vec::new() }
    }

    /// Keeps the buffers of datagrams that were sent.
    pub(super) fn take_back(&mut self, slots: &mut Vec<Slot>) {
        self.spare.extend(slots.drain(..).map(|slot| slot.payload).take(BATCH));
        self.spare.truncate(2 * BATCH);
    }
}

/// The newest messages of a stream.
fn messages_of(data: &Data, name: &str) -> Result<Vec<Made>, Fault> {
    let cannot = |e: store::Error| Fault::new(format!("cannot send the messages of stream `{name}`"), e);
    let mut reader = data.reader_early(name)?;
    let bounds = reader.bounds();
    reader.seek(bounds.first.max(bounds.count.saturating_sub(STREAM_POOL)));
    let mut all = Vec::new();
    while (all.len() as u64) < STREAM_POOL {
        let batch = reader.read(STREAM_POOL as usize - all.len()).map_err(cannot)?;
        if batch.is_empty() {
            break;
        }
        let fits = batch.iter().filter(|message| message.payload.len() as u64 <= PAYLOAD_BYTES_MAX);
        all.extend(fits.map(|message| Made::new(message.payload.to_vec(), message.entry.schema.0)));
    }
    if all.is_empty() {
        let what = format!("cannot send the messages of stream `{name}`");
        return Err(Fault::new(what, "it has none that fit a datagram"));
    }
    Ok(all)
}

/// Where a board sends to that a receiver listens at.
fn reachable(listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listen.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, listen.port()).into(),
        _ => listen,
    }
}

/// Flips a bit that a checksum covers; of a unit one with which its length is wrong.
fn flip(slot: &mut Slot, word: u64) {
    match slot.head_bytes {
        HEADER_BYTES => {}
        0 => return slot.payload.iter_mut().take(1).for_each(|byte| *byte ^= 1),
        _ => return slot.head[7] ^= 0x80,
    }
    // With another beginning it would be a datagram of somebody else.
    let bit = 48 + word as usize % (8 * (COVERED + slot.payload.len()) - 48);
    let byte = match bit / 8 {
        at if at < COVERED => &mut slot.head[at],
        at => &mut slot.payload[at - COVERED],
    };
    *byte ^= 1 << (bit % 8);
}

/// Random bytes.
fn random(dice: &mut Dice, size: usize) -> Vec<u8> {
    let words = std::iter::repeat_with(|| dice.word().to_le_bytes());
    words.flatten().take(size).collect()
}
