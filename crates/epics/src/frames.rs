//! The numbers of a camera's frames: which have come, which are missing, and whether the camera counts again from
//! below.
//!
//! Plugins of areaDetector with several threads send frames in another order than the camera took them. A number that
//! is skipped opens a hole; a late frame fills it. Without one the hole is filed as lost after the reorder time. A
//! number that has come before, with another time stamp, or one below all others, is that of a camera that has
//! restarted.
//!
//! Constraints: memory is bounded: 8 bytes for each of the last 4,096 numbers, the window in which the account of the
//! stream (`flow`) accepts late numbers. Holes below it are filed at once. No clock: the caller passes the time.

use crate::limits::{ABSENT, FRAMES_WINDOW, UNTIMED};
use std::collections::VecDeque;
use std::ops::Range;

/// The meaning of the number of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The next frame, one beyond a hole, or one that fills a hole.
    New,
    /// The same frame came before.
    Duplicate,
    /// The camera counts again from below.
    Restart,
}

/// Numbers that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) numbers: Range<u64>,
    /// Times of the frames before and behind it, ns since 1970 UTC.
    pub(crate) times: (i64, i64),
    /// When it was seen, ns since 1970 UTC.
    since: i64,
    /// The camera was not connected between these frames.
    pub(crate) is_absent: bool,
}

/// A frame, as far as its place is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) number: u64,
    /// Its time stamp, if that can be, ns since 1970 UTC.
    pub(crate) own: Option<i64>,
    /// Its time in the stream, ns since 1970 UTC.
    pub(crate) time: i64,
    /// When it came, ns since 1970 UTC.
    pub(crate) now: i64,
    /// The camera was disconnected since the frame before.
    pub(crate) is_cut: bool,
}

/// The numbers of the frames of one life of a camera.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frames {
    /// A frame has come.
    is_begun: bool,
    /// Lowest number that has come; lower ones are of another life.
    first: u64,
    /// One past the highest.
    pub(crate) next: u64,
    /// Time of the frame with the lowest and with the highest number, ns since 1970 UTC.
    times: (i64, i64),
    /// Of each of the last numbers, in the place of its remainder: its own time, [`UNTIMED`] or [`ABSENT`].
    stamps: Box<[i64]>,
    /// In the order of the numbers.
    holes: VecDeque<Hole>,
    /// How long a frame may be late, ns.
    reorder: i64,
}

impl Frames {
    /// Of a camera without frames.
    pub(crate) fn new(reorder: i64) -> Self {
        Self {
            is_begun: false,
            first: 0,
            next: 0,
            times: (0, 0),
            stamps: vec![ABSENT; FRAMES_WINDOW as usize].into(),
            holes: VecDeque::new(),
            reorder,
        }
    }

    /// Of a camera whose frames below `next` are in the stream, the newest of this time.
    pub(crate) fn resume(next: u64, time: i64, reorder: i64) -> Self {
        let mut frames = Self::new(reorder);
        if let Some(newest) = next.checked_sub(1) {
            (frames.is_begun, frames.first, frames.next, frames.times) = (true, newest, next, (time, time));
            frames.stamps[place(newest)] = time;
        }
        frames
    }

    /// Receives the number of a frame. A restart changes nothing: the caller begins another life, which receives it.
    pub(crate) fn receive(&mut self, arrival: &Arrival) -> Sign {
        let sign = self.judge(arrival);
        if sign == Sign::New {
            self.stamps[place(arrival.number)] = arrival.own.unwrap_or(UNTIMED);
        }
        sign
    }

    /// The meaning of a number; its place in the numbers is noted, its stamp not yet.
    fn judge(&mut self, arrival: &Arrival) -> Sign {
        let Arrival { number, own, time, now, is_cut } = *arrival;
        if !self.is_begun {
            (self.is_begun, self.first, self.next) = (true, number, number.saturating_add(1));
            self.times = (time, time);
            return Sign::New;
        }
        if number >= self.next {
            self.open(number, time, now, is_cut);
            (self.next, self.times.1) = (number.saturating_add(1), time);
            return Sign::New;
        }
        let is_older = |than: i64| own.is_some_and(|own| own < than);
        let is_new = if self.next - number > FRAMES_WINDOW {
            false
        } else if number < self.first {
            let is_older = is_older(self.times.0);
            if is_older {
                (self.first, self.times.0) = (number, time);
            }
            is_older
        } else {
            match self.stamps[place(number)] {
                ABSENT => self.fill(number, time, now) || is_older(self.times.1),
                stamp if own == Some(stamp) => return Sign::Duplicate,
                // A camera that does not count would begin a life with each frame.
                _ => number + 1 == self.next,
            }
        };
        if is_new { Sign::New } else { Sign::Restart }
    }

    /// Opens the hole below a number above the highest one.
    fn open(&mut self, number: u64, time: i64, now: i64, is_absent: bool) {
        let numbers = self.next..number;
        for missing in numbers.start.max(number.saturating_sub(FRAMES_WINDOW))..number {
            self.stamps[place(missing)] = ABSENT;
        }
        if !numbers.is_empty() {
            self.holes.push_back(Hole { numbers, times: (self.times.1, time), since: now, is_absent });
        }
    }

    /// Takes a number from the open hole that it lies in. False where there is none, or the hole is too old.
    fn fill(&mut self, number: u64, time: i64, now: i64) -> bool {
        let Some(at) = self.holes.iter().position(|hole| hole.numbers.contains(&number)) else { return false };
        let hole = &mut self.holes[at];
        if now.saturating_sub(hole.since) > self.reorder {
            return false;
        }
        let above = Hole { numbers: number + 1..hole.numbers.end, times: (time, hole.times.1), ..hole.clone() };
        (hole.numbers.end, hole.times.1) = (number, time);
        if !above.numbers.is_empty() {
            self.holes.insert(at + 1, above);
        }
        if self.holes[at].numbers.is_empty() {
            self.holes.remove(at);
        }
        true
    }

    /// The first hole that is to be filed: the reorder time is over, or the account fills it no more. The caller asks
    /// until there is none.
    pub(crate) fn due(&mut self, now: i64) -> Option<Hole> {
        let lowest = self.next.saturating_sub(FRAMES_WINDOW);
        let front = self.holes.front_mut()?;
        if now.saturating_sub(front.since) > self.reorder || front.numbers.end <= lowest {
            return self.holes.pop_front();
        }
        if front.numbers.start >= lowest {
            return None;
        }
        let below = Hole { numbers: front.numbers.start..lowest, ..front.clone() };
        front.numbers.start = lowest;
        Some(below)
    }

    /// Time of the frame before the first hole, ns since 1970 UTC: later ones may still come.
    pub(crate) fn complete_to(&self) -> Option<i64> {
        self.holes.front().map(|hole| hole.times.0)
    }

    /// Takes the first hole, at the end of this life.
    pub(crate) fn close(&mut self) -> Option<Hole> {
        self.holes.pop_front()
    }
}

fn place(number: u64) -> usize {
    (number % FRAMES_WINDOW) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const REORDER: i64 = 50;

    /// Receives frames that come at their own times, except those whose time is given.
    struct Camera(Frames);

    impl Camera {
        fn new() -> Self {
            Self(Frames::new(REORDER))
        }

        fn receive(&mut self, number: u64, own: Option<i64>, now: i64) -> Sign {
            self.0.receive(&Arrival { number, own, time: own.unwrap_or(now), now, is_cut: false })
        }

        /// Frames whose time is their number times ten.
        fn all(&mut self, numbers: &[u64]) -> Vec<Sign> {
            let times = numbers.iter().map(|number| (*number, *number as i64 * 10));
            times.map(|(number, time)| self.receive(number, Some(time), time)).collect()
        }

        fn holes(&mut self, now: i64) -> Vec<(u64, u64)> {
            std::iter::from_fn(|| self.0.due(now)).map(|hole| (hole.numbers.start, hole.numbers.end)).collect()
        }
    }

    #[test]
    fn frames_in_another_order_are_one_life_without_a_loss() {
        let mut camera = Camera::new();
        let signs = camera.all(&[2, 1, 4, 3, 6, 7, 8, 5, 10, 9]);
        assert_eq!(signs, [Sign::New; 10]);
        assert_eq!((camera.holes(i64::MAX), camera.0.next), (vec![], 11));
    }

    #[test]
    fn a_hole_is_filed_after_the_reorder_time_with_its_times() {
        let mut camera = Camera::new();
        camera.all(&[1, 5]);
        assert_eq!(camera.all(&[3]), [Sign::New]);
        assert_eq!((camera.holes(50 + REORDER), camera.0.complete_to()), (vec![], Some(10)));
        let filed: Vec<Hole> = std::iter::from_fn(|| camera.0.due(51 + REORDER)).collect();
        let filed: Vec<_> = filed.into_iter().map(|hole| (hole.numbers, hole.times)).collect();
        assert_eq!(filed, [(2..3, (10, 30)), (4..5, (30, 50))]);
        // A frame whose time says that it is late is no restart.
        assert_eq!(camera.receive(4, Some(40), 500), Sign::New);
        assert_eq!(camera.receive(2, Some(510), 510), Sign::Restart);
    }

    #[test]
    fn a_number_that_came_before_is_a_duplicate_or_a_restart() {
        let mut camera = Camera::new();
        camera.all(&[0, 1, 2, 3]);
        assert_eq!(camera.all(&[3, 1]), [Sign::Duplicate; 2]);
        assert_eq!(camera.receive(1, Some(31), 31), Sign::Restart);
        assert_eq!(camera.receive(0, None, 31), Sign::Restart);
        // One that sends the same number with each frame does not restart.
        assert_eq!([camera.receive(3, Some(31), 31), camera.receive(3, None, 32)], [Sign::New; 2]);
        let mut far = Camera::new();
        far.all(&[FRAMES_WINDOW + 10]);
        assert_eq!(far.receive(9, Some(0), 0), Sign::Restart);
    }

    #[test]
    fn frames_without_a_time_are_late_within_the_reorder_time_alone() {
        let mut camera = Camera::new();
        for (number, now, sign) in [(1, 0, Sign::New), (4, 10, Sign::New), (3, 20, Sign::New), (2, 90, Sign::Restart)] {
            assert_eq!(camera.receive(number, None, now), sign, "{number}");
        }
    }

    #[test]
    fn a_hole_below_the_window_is_filed_at_once() {
        let mut camera = Camera::new();
        camera.all(&[0, FRAMES_WINDOW + 100]);
        assert_eq!(camera.holes(FRAMES_WINDOW as i64 * 10 + 1000), [(1, 101)]);
        assert_eq!(camera.holes(i64::MAX), [(101, FRAMES_WINDOW + 100)]);
        camera.all(&[u64::from(u32::MAX)]);
        assert_eq!(camera.holes(0).len(), 1);
    }

    #[test]
    fn numbers_continue_where_the_stream_stands() {
        let mut frames = Frames::resume(8, 70, REORDER);
        let mut receive = |number, own| frames.receive(&Arrival { number, own, time: 80, now: 80, is_cut: true });
        assert_eq!(receive(7, Some(70)), Sign::Duplicate);
        assert_eq!(receive(6, Some(60)), Sign::New);
        assert_eq!(receive(0, Some(80)), Sign::Restart);
        assert_eq!(receive(10, Some(100)), Sign::New);
        assert_eq!(frames.due(i64::MAX).map(|hole| (hole.numbers, hole.is_absent)), Some((8..10, true)));
    }

    /// Windows of 2 to 1,000, shuffled; doubled frames; restarts at any place.
    #[test]
    fn shuffled_windows_lose_nothing_and_restarts_are_lives() {
        let mut dice = 7_u64;
        let mut draw = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % below
        };
        for window in [2, 3, 10, 100, 1000] {
            let (mut camera, mut restarts, mut now) = (Camera(Frames::new(1_000_000)), 0, 0);
            for _ in 0..5 {
                let count = window * 3 + draw(500);
                let mut numbers: Vec<u64> = (0..count).collect();
                for part in numbers.chunks_mut(window as usize) {
                    (1..part.len()).rev().for_each(|at| part.swap(at, draw(at as u64 + 1) as usize));
                }
                let mut new = 0;
                for (at, number) in numbers.iter().enumerate() {
                    let own = now + *number as i64 * 10;
                    let mut sign = camera.receive(*number, Some(own), now + at as i64 * 10);
                    if sign == Sign::Restart {
                        assert_eq!(camera.holes(i64::MAX), []);
                        camera = Camera(Frames::new(1_000_000));
                        restarts += 1;
                        sign = camera.receive(*number, Some(own), now + at as i64 * 10);
                    }
                    new += u64::from(sign == Sign::New);
                    if draw(10) == 0 {
                        assert_eq!(camera.receive(*number, Some(own), now), Sign::Duplicate);
                    }
                }
                assert_eq!(new, count);
                now += count as i64 * 10 + 5;
            }
            assert_eq!(restarts, 4, "{window}");
        }
    }
}
