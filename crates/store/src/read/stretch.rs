//! [`Reader::next`]: messages, or a missing range with its cause. The one rule of loss for all stages.
//!
//! | in the stream | result |
//! |---|---|
//! | retention deleted messages, here or in the parent of a view | missing up to the oldest available |
//! | an entry or a payload does not verify | the messages before it, then this one missing |
//! | a file of the stream is absent | its messages, according to the index, are missing |
//! | the parent of a view entry is removed, rewound or created again | this message is missing |
//!
//! Failure behaviour: everything else is an error and loses nothing: a refusal of the system, an exhausted quota,
//! another stream under the same name.

use crate::error::Result;
use crate::format::entry::Entry;
use crate::limits::TIME_BLOCK;
use crate::read::batch::Batch;
use crate::read::missing::{Missing, Why};
use crate::read::reader::Reader;

/// The next part of a stream.
pub enum Stretch<T> {
    /// Messages, or their entries; none where there are none now.
    Messages(T),
    /// Messages that can no longer be read.
    Missing(Missing),
}

/// What [`Reader::walk`] could not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Range that retention has taken.
    pub gone: Option<(u64, u64)>,
    /// Ranges whose entries are damaged or whose file is missing.
    pub lost: Vec<(u64, u64)>,
}

impl Walked {
    /// Messages in the ranges that are lost.
    pub fn lost(&self) -> u64 {
        self.lost.iter().map(|(first, end)| end - first).sum()
    }

    fn miss(&mut self, first: u64, next: u64, why: Why) {
        match (why, self.lost.last_mut()) {
            (Why::Retention, _) => self.gone = Some((self.gone.map_or(first, |gone| gone.0), next)),
            (_, Some(last)) if last.1 == first => last.1 = next,
            _ => self.lost.push((first, next)),
        }
    }
}

/// Source times of some messages in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// Sequence of the first.
    pub first: u64,
    /// One past that of the last.
    pub next: u64,
    /// Earliest source time.
    pub earliest: i64,
    /// Latest source time.
    pub latest: i64,
}

impl Reader {
    /// The next messages, at most `max`, or those that are missing before them. Moves on behind messages; behind what is
    /// missing the caller moves on ([`Reader::seek`]) once it is counted.
    pub fn next(&mut self, max: usize) -> Result<Stretch<Batch<'_>>> {
        let at = self.position();
        self.read(max).map(Stretch::Messages).or_else(|e| Missing::of(e, at).map(Stretch::Missing))
    }

    /// The index entries from `from` on, as [`Reader::entries`] gives them, or the messages that are missing before them:
    /// here those whose entries are.
    pub fn next_entries(&mut self, from: u64, max: usize) -> Result<Stretch<&[Entry]>> {
        self.entries(from, max).map(Stretch::Messages).or_else(|e| Missing::of(e, from).map(Stretch::Missing))
    }

    /// Shows all index entries of `from..to` that there are, in order, slice by slice. Messages that retention deleted,
    /// or deletes meanwhile, and what is damaged or missing is left out and named.
    pub fn walk(&mut self, from: u64, to: u64, see: &mut dyn FnMut(&[Entry])) -> Result<Walked> {
        let mut walked = Walked::default();
        let mut at = from;
        while at < to {
            match self.next_entries(at, usize::try_from(to - at).unwrap_or(usize::MAX))? {
                Stretch::Messages([]) => break,
                Stretch::Messages(entries) => {
                    see(entries);
                    at += entries.len() as u64;
                }
                Stretch::Missing(missing) => {
                    let next = missing.next.min(to);
                    walked.miss(at, next, missing.why);
                    at = next;
                }
            }
        }
        Ok(walked)
    }

    /// Shows the source times of the messages from `from` on, in blocks of at most 256 (less where one ends early): of
    /// a full block by its row of the time table, so that the pass reads 24 bytes for 256 messages. A block that cannot
    /// be read is left out and named.
    pub fn walk_times(&mut self, from: u64, see: &mut dyn FnMut(TimeSpan)) -> Result<Walked> {
        let mut walked = Walked::default();
        let (mut at, end) = (from.max(self.bounds().first), self.end());
        while at < end {
            let block_end = ((at / TIME_BLOCK + 1) * TIME_BLOCK).min(end);
            let is_full = block_end - at == TIME_BLOCK && block_end <= self.rows_end();
            if is_full && let Ok(Some((earliest, latest))) = self.time_row(at) {
                see(TimeSpan { first: at, next: block_end, earliest, latest });
                at = block_end;
                continue;
            }
            match self.next_entries(at, (block_end - at) as usize)? {
                Stretch::Messages([]) => break,
                Stretch::Messages(entries) => {
                    let times = || entries.iter().map(|entry| entry.source_time);
                    let next = at + entries.len() as u64;
                    if let (Some(earliest), Some(latest)) = (times().min(), times().max()) {
                        see(TimeSpan { first: at, next, earliest, latest });
                    }
                    at = next;
                }
                Stretch::Missing(missing) => {
                    let next = missing.next.min(end).max(at + 1);
                    walked.miss(at, next, missing.why);
                    at = next;
                }
            }
        }
        Ok(walked)
    }
}
