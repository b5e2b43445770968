//! The numbers of an origin.
//!
//! The messages of a PV are numbered by us, values and what is sent beside them together; what the client's queue
//! overwrote and what was skipped has numbers too, which are gaps. Frames have numbers of their own, so what is sent
//! beside them has another origin, `NAME/state`; a number that falls begins another life, `NAME#2`.

use crate::limits::LIVES_MAX;
use flow::{Fault, Outlet, ResumeOrigin};

/// An origin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Its name in its first life.
    pub(crate) base: String,
    /// From 1.
    life: u32,
    row: Option<u32>,
    /// The number of the next message; of frames one past the highest.
    pub(crate) next: u64,
    /// Its numbers are those of a camera.
    pub(crate) is_frames: bool,
}

/// What the number of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It is the next, or the first, or it was there already.
    Next,
    /// This number of frames before it is missing.
    Jump(u64),
}

impl Origin {
    /// As the stream has it. `is_frames`: from the state of the source.
    pub(crate) fn new(base: String, known: Option<&ResumeOrigin>, is_frames: bool) -> Self {
        let (life, next) = known.map_or((1, 0), |known| (known.life, known.next_seq));
        Self { base, life, row: None, next, is_frames }
    }

    /// Its row in the table of the stream.
    pub(crate) fn row(&mut self, out: &mut dyn Outlet) -> Result<u32, Fault> {
        if let Some(row) = self.row {
            return Ok(row);
        }
        let row = match self.life {
            1 => out.origin(&self.base)?,
            life => out.origin(&format!("{}#{life}", self.base))?,
        };
        Ok(*self.row.insert(row))
    }

    fn begin_life(&mut self) {
        if self.life < LIVES_MAX {
            (self.life, self.row, self.next) = (self.life + 1, None, 0);
        }
    }

    /// The number of a message that we count.
    pub(crate) fn count(&mut self) -> u64 {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }

    /// Takes the number of a frame.
    pub(crate) fn frame(&mut self, number: u64) -> Sign {
        if !self.is_frames {
            // What was counted before has other numbers.
            if self.next > 0 {
                self.begin_life();
            }
            self.is_frames = true;
        } else if number.saturating_add(1) < self.next {
            self.begin_life();
        }
        let jump = if self.next > 0 { number.saturating_sub(self.next) } else { 0 };
        self.next = self.next.max(number.saturating_add(1));
        if jump > 0 { Sign::Jump(jump) } else { Sign::Next }
    }

    /// Counts numbers as missing, between two times.
    pub(crate) fn missing(
        &mut self,
        numbers: std::ops::RangeInclusive<u64>,
        times: (i64, i64),
        reason: &str,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let row = self.row(out)?;
        out.missing(row, numbers, times.0.min(times.1)..=times.0.max(times.1), reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin::new("cam".into(), None, false)
    }

    #[test]
    fn numbers_of_frames_jump_and_fall() {
        let mut cam = origin();
        assert_eq!(cam.frame(5000), Sign::Next);
        assert_eq!(cam.frame(5001), Sign::Next);
        assert_eq!(cam.frame(5005), Sign::Jump(3));
        // The same frame again, as at a reconnection.
        assert_eq!(cam.frame(5005), Sign::Next);
        assert_eq!((cam.next, cam.life), (5006, 1));
        assert_eq!(cam.frame(0), Sign::Next);
        assert_eq!((cam.next, cam.life), (1, 2));
        assert_eq!(cam.frame(2), Sign::Jump(1));
    }

    #[test]
    fn frames_of_a_pv_that_sent_counted_messages_begin_a_life() {
        let mut cam = origin();
        assert_eq!((cam.count(), cam.count()), (0, 1));
        assert_eq!(cam.frame(7000), Sign::Next);
        assert_eq!((cam.next, cam.life), (7001, 2));
        // The PV sends numbers again, and then frames.
        assert_eq!(cam.count(), 7001);
        assert_eq!(cam.frame(7001), Sign::Next);
    }

    #[test]
    fn a_camera_that_draws_its_numbers_does_not_fill_the_table() {
        let mut cam = origin();
        for number in (0..3000u64).rev() {
            cam.frame(2 * number);
        }
        assert_eq!(cam.life, LIVES_MAX);
    }
}
