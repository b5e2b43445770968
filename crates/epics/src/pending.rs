//! Messages for which the stream has no room: they wait here, and nothing is taken meanwhile.

use crate::limits::PENDING_BYTES_KEPT;
use flow::{Fault, Outlet, Pushed};
use std::ops::Range;
use store::Meta;

/// Messages that wait, in the order of their numbers.
#[derive(Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    messages: Vec<(Meta, Range<usize>)>,
    /// The first that waits.
    at: usize,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.messages.len()
    }

    /// Gives a message to the stream, after those that wait.
    pub(crate) fn give(&mut self, meta: &Meta, parts: &[&[u8]], out: &mut dyn Outlet) -> Result<(), Fault> {
        if self.is_empty() && out.push_parts(meta, parts)? == Pushed::Taken {
            return Ok(());
        }
        let first = self.bytes.len();
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.messages.push((*meta, first..self.bytes.len()));
        Ok(())
    }

    /// Gives the messages that wait. False if there is no room for all of them.
    pub(crate) fn drain(&mut self, out: &mut dyn Outlet) -> Result<bool, Fault> {
        while let Some((meta, range)) = self.messages.get(self.at) {
            if out.push(meta, &self.bytes[range.clone()])? == Pushed::Full {
                return Ok(false);
            }
            self.at += 1;
        }
        if !self.messages.is_empty() {
            self.messages.clear();
            self.bytes.clear();
            self.bytes.shrink_to(PENDING_BYTES_KEPT);
            self.at = 0;
        }
        Ok(true)
    }
}
