//! Stream memory that a source fills itself ([`Outlet::room`](crate::Outlet::room)), and the fate of a message without
//! room: it waits, or it is dropped and counted.
//!
//! Failure behaviour: a full stream is the ordinary course and not a fault; a full device is reported as one, and the
//! source continues when there is room again.

use crate::data::stream_fault;
use crate::origins::Origins;
use crate::{Fault, OriginAccounts};
use std::ops::{Range, RangeInclusive};
use store::{Error, Meta, Received, Reserved, Writer, flags};

/// The fate of a message after `Outlet::push`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the stream, or counted as lost by the stream's declared policy: continue with the next.
    Taken,
    /// No room (`when_full = "wait"`): return `Step::At(now)` soon and offer the same message again.
    Full,
}

/// Why messages could not be appended in this step.
#[derive(Default)]
pub(crate) struct Blocked {
    /// A message was refused and is to be offered again.
    pub(crate) is_blocked: bool,
    /// A device without room.
    pub(crate) no_room: Option<Fault>,
    /// A reader that is waited for.
    pub(crate) behind: Option<Error>,
}

impl Blocked {
    /// What becomes of a message for which there was no room. `drops`: by the policy of the stream it is lost.
    pub(crate) fn answer(&mut self, stream: &str, drops: bool, error: Error) -> Result<Refusal, Fault> {
        match error {
            Error::Dropped => Ok(Refusal::Dropped),
            // Shared memory is full, and the oldest segment gave none.
            error if error.is_full() && drops => {
                self.no_room = Some(stream_fault(stream, error));
                Ok(Refusal::Dropped)
            }
            error if error.is_full() => {
                self.is_blocked = true;
                // A full stream is the ordinary course; a device without room for what was promised is not.
                match error {
                    Error::Io { .. } => self.no_room = Some(stream_fault(stream, error)),
                    Error::Behind { .. } => self.behind = Some(error),
                    _ => {}
                }
                Ok(Refusal::Waits)
            }
            error => Err(stream_fault(stream, error)),
        }
    }

    /// Begins a life of an origin in the row that was made for it. False where there is no room for a row now.
    pub(crate) fn begin(
        &mut self,
        stream: &str,
        origins: &mut Origins,
        origin: u32,
        row: store::Result<u32>,
    ) -> Result<bool, Fault> {
        match row {
            Ok(row) => origins.begin(origin, row),
            Err(e) => return self.answer(stream, false, e).map(|_| false),
        }
        Ok(true)
    }
}

/// Why a message was not appended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is lost by the policy of the stream.
    Dropped,
    /// It is offered again.
    Waits,
}

/// Where the bytes go.
enum Memory<'a> {
    /// Into the stream.
    Stream(Reserved<'a>),
    /// Nowhere: there is no room, and what comes is lost. Its bytes are still read from the outside.
    Nowhere { writer: &'a mut Writer, bytes: &'a mut [u8], taken: usize, dropped: u64 },
}

/// Reserved stream memory: the outside writes into it, and each commit makes a message of a part of it.
///
/// Messages rise and begin on multiples of 8 bytes. What no commit takes is used again. Where the stream drops messages
/// for want of room, the bytes go nowhere and the messages are counted as lost (`full`); the source need not know.
pub struct Room<'a> {
    memory: Memory<'a>,
    stream: &'a str,
    origins: &'a mut Origins,
    blocked: &'a mut Blocked,
    /// Source times beyond it are flagged `ahead`.
    latest: i64,
}

/// What a room needs to count its messages.
pub(crate) struct Around<'a> {
    pub(crate) stream: &'a str,
    pub(crate) origins: &'a mut Origins,
    pub(crate) blocked: &'a mut Blocked,
    pub(crate) latest: i64,
}

impl<'a> Room<'a> {
    /// Room for `len` bytes, or `None` where there is none now and messages wait for it.
    pub(crate) fn reserve(
        writer: &'a mut Writer,
        len: usize,
        nowhere: &'a mut Vec<u8>,
        around: Around<'a>,
    ) -> Result<Option<Self>, Fault> {
        let Around { stream, origins, blocked, latest } = around;
        // The first attempt only asks: a room cannot be returned and the writer be used else.
        let refusal = match writer.reserve(len).map(drop) {
            Ok(()) => None,
            Err(e) => Some(blocked.answer(stream, writer.drops(), e)?),
        };
        let memory = match refusal {
            None => Memory::Stream(writer.reserve(len).map_err(|e| stream_fault(stream, e))?),
            Some(Refusal::Waits) => return Ok(None),
            Some(Refusal::Dropped) => {
                nowhere.resize(len, 0);
                Memory::Nowhere { writer, bytes: nowhere, taken: 0, dropped: 0 }
            }
        };
        Ok(Some(Self { memory, stream, origins, blocked, latest }))
    }

    /// The bytes that no message has taken yet, and where in the room they begin. What they hold is unknown.
    pub fn rest(&mut self) -> (usize, &mut [u8]) {
        match &mut self.memory {
            Memory::Stream(reserved) => reserved.rest(),
            Memory::Nowhere { bytes, taken, .. } => (*taken, &mut bytes[*taken..]),
        }
    }

    /// Makes a message of a range of the room. With [`Pushed::Full`] its bytes stay where they are, but only as long as
    /// the room lives: a source that cannot ask for them again copies them.
    pub fn commit(&mut self, meta: &Meta, range: Range<usize>, received: Received) -> Result<Pushed, Fault> {
        let Self { memory, stream, origins, blocked, latest } = self;
        let mut meta = *meta;
        if meta.source_time > *latest {
            meta.flags |= flags::AHEAD;
        }
        origins.known(stream, meta.origin)?;
        let names = match memory {
            Memory::Stream(reserved) => reserved.origins(),
            Memory::Nowhere { writer, .. } => writer.origins(),
        };
        if let Some(name) = origins.begins(meta.origin, meta.origin_seq, names) {
            let row = match memory {
                Memory::Stream(reserved) => reserved.origin(&name),
                Memory::Nowhere { writer, .. } => writer.origin(&name),
            };
            if !blocked.begin(stream, origins, meta.origin, row)? {
                return Ok(Pushed::Full);
            }
        }
        meta.origin = origins.newest(meta.origin);
        let len = range.len();
        match memory {
            Memory::Stream(reserved) => match reserved.commit_received(&meta, range, received) {
                Ok(_) => origins.see(&meta, len),
                Err(e) => match blocked.answer(stream, reserved.drops(), e)? {
                    Refusal::Dropped => origins.drop_one(&meta),
                    Refusal::Waits => return Ok(Pushed::Full),
                },
            },
            Memory::Nowhere { writer, bytes, taken, dropped } => {
                if range.start < *taken || range.end > bytes.len() || !range.start.is_multiple_of(8) {
                    let cause = format!("bytes {} to {} are outside it", range.start, range.end);
                    return Err(Fault::new(
                        format!("a message of stream `{stream}` does not fit its reserved memory"),
                        cause,
                    ));
                }
                *taken = range.end.next_multiple_of(8).min(bytes.len());
                if *dropped > 0 {
                    writer.drop_another();
                }
                *dropped += 1;
                origins.drop_one(&meta);
            }
        }
        Ok(Pushed::Taken)
    }
}

impl OriginAccounts for Room<'_> {
    fn origin(&mut self, name: &str) -> Result<u32, Fault> {
        let row = match &mut self.memory {
            Memory::Stream(reserved) => reserved.origin(name),
            Memory::Nowhere { writer, .. } => writer.origin(name),
        };
        let row = row.map_err(|e| stream_fault(self.stream, e))?;
        self.origins.grow(row as usize + 1);
        Ok(row)
    }

    fn missing(
        &mut self,
        origin: u32,
        numbers: RangeInclusive<u64>,
        times: RangeInclusive<i64>,
        reason: &str,
    ) -> Result<(), Fault> {
        self.origins.miss(self.stream, origin, numbers, times, reason)
    }

    fn count(&mut self, origin: u32, what: &str, n: u64) -> Result<(), Fault> {
        self.origins.refuse(self.stream, origin, what, n)
    }
}
