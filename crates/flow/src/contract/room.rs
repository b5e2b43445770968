//! The fate of a message without room: it waits, or it is dropped and counted.
//!
//! Failure behaviour: a full stream is the ordinary course and not a fault; a full device is reported as one, and the
//! source continues when there is room again.

use crate::Fault;
use crate::data::stream_fault;
use crate::origins::Origins;
use store::Error;

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
    /// Returns whether a message without room is dropped or waits. `drops`: the policy of the stream drops it.
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
