//! What is known of one numbering of a board: its numbers, its life, and what is missing.

use crate::framing::{Cut, Framing, Number};
use crate::limits::LIVES_MAX;
use crate::numbers::{Lost, Numbers, Sign};
use flow::{Fault, Outlet, Resume};
use std::collections::BTreeMap;

/// The account of the messages of the board.
pub(crate) struct NumberAccount {
    /// Of the origin in its first life.
    pub(crate) name: String,
    /// Which numbering of the board.
    pub(crate) numbering: u32,
    pub(crate) numbers: Numbers,
    /// From 1.
    life: u32,
    /// The origin of this life in the stream.
    row: Option<u32>,
    /// There are no more lives: the receiver counts.
    pub(crate) is_counted_here: bool,
    /// The message whose number is not believed yet.
    pub(crate) held: Option<HeldMessage>,
    /// One of which the next has said whether it is.
    pub(crate) settled: Option<(HeldMessage, bool)>,
    /// Numbers that are lost and not in the account yet: empty between two messages.
    pub(crate) lost: Vec<Lost>,
    pub(crate) datagrams: u64,
    pub(crate) bytes: u64,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

/// The fate of a message.
pub(crate) enum Fate {
    /// It has this number in the stream.
    Number(u64),
    /// Its number is not believed yet.
    Held,
    /// It is refused for this reason.
    Refused(&'static str),
}

/// A message whose number is not believed yet, and its datagram.
pub(crate) struct HeldMessage {
    pub(crate) cut: Cut,
    pub(crate) time: i64,
    pub(crate) datagram: Vec<u8>,
}

/// The numberings of a board that a stream has origins of, and always the first. `name`: the origin of the first;
/// those of others have the framing's word and the number behind it.
pub(crate) fn known_numberings(name: &str, word: &str, resume: &Resume) -> Vec<u32> {
    let number_of = |origin: &str| origin.strip_prefix(name)?.strip_prefix('.')?.strip_prefix(word)?.parse().ok();
    let mut all: Vec<u32> = resume.origins.iter().filter_map(|origin| number_of(&origin.name)).collect();
    all.push(0);
    all.sort_unstable();
    all.dedup();
    all
}

impl NumberAccount {
    /// Of a numbering of the board.
    pub(crate) fn new(
        (origin, reorder, framing): (&str, i64, &dyn Framing),
        numbering: u32,
        now: i64,
        resume: &Resume,
    ) -> Self {
        let name = match numbering {
            0 => origin.to_owned(),
            _ => format!("{origin}.{}{numbering}", framing.numbering_word()),
        };
        let known = resume.origins.iter().find(|origin| origin.name == name);
        let (next, time) = known.map_or((None, now), |known| (Some(known.next_seq), known.last_time));
        Self {
            name,
            numbering,
            numbers: Numbers::new(next, time, reorder, framing.counter()),
            life: known.map_or(1, |known| known.life),
            row: None,
            is_counted_here: false,
            held: None,
            settled: None,
            lost: Vec::new(),
            datagrams: 0,
            bytes: 0,
            counts: BTreeMap::new(),
        }
    }

    /// The row of the origin.
    pub(crate) fn row(&mut self, out: &mut dyn Outlet) -> Result<u32, Fault> {
        if let Some(row) = self.row {
            return Ok(row);
        }
        let row = out.origin(&flow::name_of_life(&self.name, self.life))?;
        Ok(*self.row.insert(row))
    }

    /// The fate of a message, by its number. `times`: its source time, and now.
    pub(crate) fn fate(
        &mut self,
        number: Number,
        framing: &dyn Framing,
        (time, now): (i64, i64),
        out: &mut dyn Outlet,
    ) -> Result<Fate, Fault> {
        let (shown, mark) = match number {
            Number::Board { shown, mark } if !self.is_counted_here => (shown, mark),
            _ => return Ok(Fate::Number(self.numbers.count())),
        };
        let Some(mut number) = framing.number(self.numbers.last(), shown) else { return Ok(Fate::Refused("late")) };
        let mut sign = self.numbers.take(number, mark, time, now);
        self.settle();
        if sign == Sign::Restart {
            if !self.restart(out)? {
                // The data is worth more than the account.
                self.is_counted_here = true;
                return Ok(Fate::Number(self.numbers.count()));
            }
            number = shown;
            sign = self.numbers.take(number, mark, time, now);
        }
        Ok(match sign {
            Sign::New => Fate::Number(number),
            Sign::Doubt => Fate::Held,
            Sign::Duplicate => Fate::Refused("duplicate"),
            Sign::Late => Fate::Refused("late"),
            Sign::Restart => Fate::Refused("restart"),
        })
    }

    /// The number before, if it was not believed, is or is not: its message can be taken or refused.
    pub(crate) fn settle(&mut self) {
        if let Some(is_believed) = self.numbers.verdict() {
            self.settled = self.held.take().map(|held| (held, is_believed));
        }
    }

    /// Begins another life, whose numbers have another origin. False if there were too many.
    pub(crate) fn restart(&mut self, out: &mut dyn Outlet) -> Result<bool, Fault> {
        if self.life >= LIVES_MAX {
            return Ok(false);
        }
        // Nothing of the ended life comes any more.
        self.numbers.find_lost(i64::MAX, false, &mut self.lost);
        self.report_lost(out)?;
        self.numbers.restart();
        (self.life, self.row) = (self.life + 1, None);
        self.count("restarts", 1);
        Ok(true)
    }

    /// Puts lost numbers into the account.
    pub(crate) fn report_lost(&mut self, out: &mut dyn Outlet) -> Result<(), Fault> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let row = self.row(out)?;
        for Lost { numbers, times: (from, to), cause } in std::mem::take(&mut self.lost) {
            self.count(cause.word(), numbers.end - numbers.start);
            out.missing(row, numbers.start..=numbers.end - 1, from.min(to)..=from.max(to), cause.word())?;
        }
        Ok(())
    }

    /// Counts a datagram that becomes no message.
    pub(crate) fn refuse(&mut self, reason: &'static str, out: &mut dyn Outlet) -> Result<(), Fault> {
        let row = self.row(out)?;
        self.count(reason, 1);
        out.count(row, &format!("refused.{reason}"), 1)
    }

    pub(crate) fn count(&mut self, word: &'static str, n: u64) {
        let count = self.counts.entry(word).or_default();
        *count = count.saturating_add(n);
    }
}
