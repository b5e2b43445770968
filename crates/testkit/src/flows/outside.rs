//! What is outside the flow: a world that makes numbered messages, and a file that a sink writes. Both outlive the
//! processes of the flow; the file loses what was not flushed.

use crate::Dice;
use flow::{Aside, Fault, Outlet, Product, Pushed, Resume, Sink, Source, Step};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use store::{Message, Meta, SchemaId};

/// One message as its maker knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) time: i64,
    pub(crate) len: usize,
}

/// The makers of the messages of one stream.
pub(crate) struct Outside {
    dice: Dice,
    /// Messages by origin, by number.
    pub(crate) made: Vec<(String, Vec<Made>)>,
    /// A maker that can say everything again; others go on where they are, and what nobody took is lost.
    pub(crate) patient: bool,
    pub(crate) ended: bool,
    /// Makes larger messages, so that rings turn.
    large: bool,
}

pub(crate) type Shared<T> = Arc<Mutex<T>>;

pub(crate) fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|p| p.into_inner())
}

/// The bytes of a message: whoever has them knows which it is.
pub(crate) fn payload(stream: &str, origin: &str, number: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice::new(number ^ u64::from(store::crc32c(format!("{stream}/{origin}").as_bytes())) << 32);
    let word = dice.word().to_le_bytes();
    (0..len).map(|i| word[i % 8] ^ (i / 8) as u8).collect()
}

impl Outside {
    pub(crate) fn new(seed: u64, origins: u64, patient: bool) -> Self {
        let made = (0..origins).map(|i| (format!("maker{i}"), Vec::new())).collect();
        let mut dice = Dice::new(seed);
        Self { large: dice.one_in(3), dice, made, patient, ended: false }
    }

    /// Makes what is due at `now`, with clocks as wrong as clocks get.
    fn make(&mut self, now: i64) {
        if self.ended {
            return;
        }
        for _ in 0..self.dice.below(12) {
            let time = match self.dice.below(60) {
                0 => now + 400 * 24 * 3_600_000_000_000,
                1 => self.dice.word() as i64,
                2..8 => now - self.dice.below(5_000_000_000) as i64,
                8..12 => now / 1_000_000_000 * 1_000_000_000,
                _ => now - self.dice.below(20_000_000) as i64,
            };
            let len = self.dice.below(if self.large { 20_000 } else { 300 }) as usize;
            let origin = self.dice.below(self.made.len() as u64) as usize;
            self.made[origin].1.push(Made { time, len });
        }
    }
}

/// A source: says what the makers made, from where the stream ends.
pub(crate) struct Numbered {
    pub(crate) stream: String,
    pub(crate) outside: Shared<Outside>,
    /// Next number to be said, by origin.
    next: Vec<u64>,
}

impl Numbered {
    pub(crate) fn new(stream: &str, outside: &Shared<Outside>) -> Self {
        Self { stream: stream.into(), outside: outside.clone(), next: Vec::new() }
    }
}

impl Source for Numbered {
    fn start(&mut self, _now: i64, resume: &Resume) -> Result<(), Fault> {
        let outside = lock(&self.outside);
        self.next = outside
            .made
            .iter()
            .map(|(name, made)| if outside.patient { resume.next_seq(name) } else { made.len() as u64 })
            .collect();
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let mut outside = lock(&self.outside);
        outside.make(now);
        for (at, (name, made)) in outside.made.iter().enumerate() {
            while let Some(message) = made.get(self.next[at] as usize) {
                let origin = out.origin(name)?;
                let number = self.next[at];
                let meta = Meta {
                    source_time: message.time,
                    origin,
                    origin_seq: number,
                    schema: SchemaId(*b"test"),
                    flags: 0,
                };
                match out.push(&meta, &payload(&self.stream, name, number, message.len))? {
                    Pushed::Taken => self.next[at] += 1,
                    Pushed::Full => return Ok(Step::At(now)),
                }
            }
        }
        Ok(if outside.ended { Step::Ended } else { Step::At(now + 10_000_000) })
    }
}

/// A row of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) input: usize,
    pub(crate) sequence: u64,
    pub(crate) number: u64,
    pub(crate) crc: u32,
    /// It was put aside, not written.
    pub(crate) aside: bool,
}

/// A file as the machine sees it.
#[derive(Default)]
pub(crate) struct Paper {
    pub(crate) rows: Vec<Row>,
    /// Rows that a power cut cannot take.
    pub(crate) durable: usize,
    /// Flushes that still work before one fails.
    pub(crate) fails_after: Option<u64>,
}

impl Paper {
    /// A power cut: what was not flushed is there or not.
    pub(crate) fn cut(&mut self, dice: &mut Dice) {
        let kept = dice.range(self.durable as u64, self.rows.len() as u64);
        self.rows.truncate(kept as usize);
    }
}

/// A sink that writes rows.
pub(crate) struct Writing {
    paper: Shared<Paper>,
    /// Numbers divisible by this are put aside.
    aside_every: u64,
}

impl Writing {
    /// An empty file.
    pub(crate) fn anew(paper: &Shared<Paper>, aside_every: u64) -> Self {
        let mut held = lock(paper);
        held.rows.clear();
        held.durable = 0;
        drop(held);
        Self { paper: paper.clone(), aside_every }
    }

    /// Goes on from a state: rows that no commit speaks of are set back.
    pub(crate) fn resume(paper: &Shared<Paper>, state: &str, aside_every: u64) -> Result<Self, String> {
        let state: BTreeMap<String, u64> = serde_json::from_str(state).map_err(|e| format!("{state}: {e}"))?;
        let rows = state.get("rows").copied().unwrap_or(0) as usize;
        let mut held = lock(paper);
        if rows > held.rows.len() {
            return Err(format!("the commit speaks of {rows} rows, the file has {}", held.rows.len()));
        }
        held.rows.truncate(rows);
        held.durable = held.durable.min(rows);
        drop(held);
        Ok(Self { paper: paper.clone(), aside_every })
    }
}

impl Sink for Writing {
    fn write(&mut self, input: usize, messages: &[Message<'_>], aside: &mut Vec<Aside>) -> Result<(), Fault> {
        let mut paper = lock(&self.paper);
        for m in messages {
            let number = m.entry.origin_seq;
            let unmatched = number % self.aside_every == self.aside_every - 1;
            if unmatched {
                aside.push(Aside { sequence: m.sequence, reason: "unmatched" });
            }
            let crc = store::crc32c(m.payload);
            paper.rows.push(Row { input, sequence: m.sequence, number, crc, aside: unmatched });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<String, Fault> {
        let mut paper = lock(&self.paper);
        match &mut paper.fails_after {
            Some(0) => {
                paper.fails_after = None;
                return Err(Fault::new("the file cannot be flushed", "no space left on device"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        paper.durable = paper.rows.len();
        Ok(format!("{{\"rows\": {}}}", paper.rows.len()))
    }

    fn finish(&mut self, _account: &str) -> Result<Product, Fault> {
        self.flush()?;
        Ok(Product { file: "rows".into(), size: 0, blake3: String::new(), files: 1, bytes: 0 })
    }
}
