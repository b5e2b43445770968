//! Everything that hostile bytes could reach in framings and file formats, as one function: the seeded tests and the
//! libFuzzer target call the same.

use crate::files::{Format, Piece};
use crate::framing::{Cut, FRAMINGS, Framing, Number, Read};
use crate::numbers::{Lost, Numbers};
use store::SchemaId;

/// Framings and formats with what they keep from datagram to datagram.
pub struct Fuzz {
    framings: Vec<(Box<dyn Framing>, Numbers)>,
    cuts: Vec<Cut>,
    pieces: Vec<Piece>,
    lost: Vec<Lost>,
    now: i64,
    /// Datagrams that were cut, by framing.
    pub cut: Vec<u64>,
}

impl Default for Fuzz {
    fn default() -> Self {
        let framings = FRAMINGS.iter().filter_map(|kind| {
            let framing = kind.plain("d001", SchemaId(*b"raw0"))?;
            let numbers = Numbers::new(None, 0, 50, framing.counter());
            Some((framing, numbers))
        });
        let framings: Vec<_> = framings.collect();
        let cut = vec![0; framings.len()];
        Self { framings, cuts: Vec::new(), pieces: Vec::new(), lost: Vec::new(), now: 0, cut }
    }
}

impl Fuzz {
    /// How many framings it has.
    pub fn framings(&self) -> usize {
        self.framings.len()
    }

    /// Reads `bytes` as a datagram of the framing of this number, and follows its numbers.
    ///
    /// # Panics
    ///
    /// If a message is not inside of its datagram, or a refused datagram has messages: a bug.
    pub fn datagram(&mut self, which: usize, bytes: &[u8]) {
        self.cuts.clear();
        self.now += 1;
        let (framing, numbers) = &mut self.framings[which];
        let read = framing.cut(bytes, &mut self.cuts);
        let is_damaged = matches!(read, Read::Refused { is_damaged: true, .. });
        assert!(!is_damaged || self.cuts.is_empty(), "a damaged datagram has messages");
        self.cut[which] += u64::from(!self.cuts.is_empty());
        let mut end = 0;
        for cut in &self.cuts {
            assert!(end <= cut.payload.start && cut.payload.end <= bytes.len(), "messages overlap, or are longer");
            end = cut.payload.end;
            match cut.number {
                Number::Board { shown, mark } => {
                    let number = framing.number(numbers.last(), shown);
                    number.map(|number| numbers.take(number, mark, self.now, self.now));
                }
                Number::Arrival => drop(numbers.count()),
            }
            if numbers.closes() {
                numbers.close(&mut self.lost);
            }
        }
        match read {
            Read::Next(number, _) => drop(numbers.announce(number, self.now, self.now)),
            Read::Refused { .. } => numbers.damage(),
            Read::Whole => {}
        }
        numbers.find_lost(self.now, true, &mut self.lost);
        self.lost.clear();
    }

    /// Reads `bytes` as the block of a file of each format.
    ///
    /// # Panics
    ///
    /// If a message is not inside of its block: a bug.
    pub fn block(&mut self, bytes: &[u8]) {
        for format in [Format::Geb, Format::Hld] {
            self.pieces.clear();
            let Some(Ok((size, takes))) = format.size(bytes) else { continue };
            assert!(takes >= size && size > 0, "a block of {size} bytes takes {takes}");
            let Some(block) = bytes.get(..size) else { continue };
            if format.cut(block, &mut self.pieces).is_ok() {
                assert!(self.pieces.iter().all(|piece| piece.is_in(block)), "a message is longer than its block");
            }
        }
    }
}

/// Reads `bytes` in every way.
pub fn fuzz(bytes: &[u8]) {
    let mut all = Fuzz::default();
    for which in 0..all.framings() {
        // Twice, as numbers depend on those before.
        all.datagram(which, bytes);
        all.datagram(which, bytes);
    }
    all.block(bytes);
}
