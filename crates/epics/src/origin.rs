//! The numbers of an origin.
//!
//! The messages of a PV are numbered by us, values and what is sent beside them together; what the client's queue
//! overwrote and what was skipped has numbers too, which are gaps. Frames have numbers of their own, so what is sent
//! beside them has another origin, `NAME/state`; a camera that counts again from below begins another life, `NAME#2`.

use crate::frames::{Arrival, Frames, Sign};
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
    /// The number of the next message that we count.
    pub(crate) next: u64,
    /// Of a camera: the numbers of its frames.
    pub(crate) frames: Option<Frames>,
}

impl Origin {
    /// As the stream has it. `reorder`: of an origin with frames, known from the state of the source.
    pub(crate) fn new(base: String, known: Option<&ResumeOrigin>, reorder: Option<i64>) -> Self {
        let (life, next, time) = known.map_or((1, 0, 0), |known| (known.life, known.next_seq, known.last_time));
        let frames = reorder.map(|reorder| Frames::resume(next, time, reorder));
        Self { base, life, row: None, next, frames }
    }

    /// Its row in the table of the stream.
    pub(crate) fn row(&mut self, out: &mut dyn Outlet) -> Result<u32, Fault> {
        if let Some(row) = self.row {
            return Ok(row);
        }
        let row = out.origin(&flow::name_of_life(&self.base, self.life))?;
        Ok(*self.row.insert(row))
    }

    /// Begins another life, of frames. False if it has had too many.
    pub(crate) fn begin_life(&mut self, reorder: i64) -> bool {
        if self.life >= LIVES_MAX {
            return false;
        }
        (self.life, self.row, self.next) = (self.life + 1, None, 0);
        self.frames = Some(Frames::new(reorder));
        true
    }

    /// The number of a message that we count.
    pub(crate) fn count(&mut self) -> u64 {
        if let Some(frames) = self.frames.take() {
            // What was a camera sends other values: they have the numbers behind those of its frames.
            self.next = self.next.max(frames.next);
        }
        let number = self.next;
        self.next = self.next.saturating_add(1);
        number
    }

    /// Receives the number of a frame.
    pub(crate) fn receive(&mut self, arrival: &Arrival, reorder: i64) -> Sign {
        match &mut self.frames {
            Some(frames) => frames.receive(arrival),
            // Earlier counts have other numbers.
            None if self.next > 0 => Sign::Restart,
            None => self.frames.insert(Frames::new(reorder)).receive(arrival),
        }
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

    const REORDER: i64 = 50;

    fn origin() -> Origin {
        Origin::new("cam".into(), None, None)
    }

    /// Receives a frame as a source does.
    fn receive(cam: &mut Origin, number: u64) -> Sign {
        let arrival = Arrival { number, own: None, time: 0, now: 0, is_cut: false };
        let sign = cam.receive(&arrival, REORDER);
        match sign == Sign::Restart && cam.begin_life(REORDER) {
            true => cam.receive(&arrival, REORDER),
            false => sign,
        }
    }

    #[test]
    fn frames_of_a_pv_that_sent_counted_messages_begin_a_life() {
        let mut cam = origin();
        assert_eq!((cam.count(), cam.count()), (0, 1));
        assert_eq!((receive(&mut cam, 7000), cam.life), (Sign::New, 2));
        // The PV sends numbers again, and then frames.
        assert_eq!((cam.count(), cam.count()), (7001, 7002));
        assert_eq!((receive(&mut cam, 7001), cam.life), (Sign::New, 3));
    }

    #[test]
    fn a_camera_that_draws_its_numbers_does_not_fill_the_table() {
        let mut cam = origin();
        for number in (0..3000u64).rev() {
            receive(&mut cam, 5000 * number);
        }
        assert_eq!(cam.life, LIVES_MAX);
    }
}
