//! Groups that end in time: by a gap, or by a window. A message whose time is before that of others is late, and belongs to
//! the group that is open.

use super::finder::{Finder, Found, Pending};
use flow::{Fault, Waiting};

/// A group ends where the next message is later by more than a gap, or the group would be longer than it may.
pub(super) struct Gap {
    gap: i64,
    longest: i64,
    /// The newest time in the open group.
    newest: i64,
}

impl Gap {
    pub(super) fn new(gap: i64, longest: i64) -> Self {
        Self { gap, longest, newest: i64::MIN }
    }
}

impl Finder for Gap {
    fn find(&mut self, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        let (Some(first), Some(last)) = (pending.times.first(), pending.times.last()) else { return Ok(0) };
        let before = pending.len() - 1;
        if before == 0 {
            self.newest = *last;
            return Ok(0);
        }
        if last.saturating_sub(self.newest) > self.gap || last.saturating_sub(*first) > self.longest {
            self.newest = *last;
            found.row(0, before);
            return Ok(before);
        }
        self.newest = self.newest.max(*last);
        Ok(0)
    }

    fn pass_time(&mut self, time: i64, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        close_at(self.waiting(pending).due, time, pending, found)
    }

    fn waiting(&self, pending: Pending<'_>) -> Waiting {
        let (first, newest) = (pending.times.first().copied().unwrap_or(i64::MAX), self.newest);
        let ends = newest.saturating_add(self.gap).min(first.saturating_add(self.longest));
        let oldest = pending.oldest();
        Waiting { messages: pending.len() as u64, oldest, due: ends.saturating_add(1) }
    }
}

/// Closes what is pending, if that is due.
fn close_at(due: i64, time: i64, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
    if time < due {
        return Ok(0);
    }
    found.row(0, pending.len());
    Ok(pending.len())
}

/// A group begins at a message that is in none, and has those that are later by less than the window; or on a grid, those
/// between two multiples of the window.
pub(super) struct Window {
    window: i64,
    on_grid: bool,
}

impl Window {
    pub(super) fn new(window: i64, on_grid: bool) -> Self {
        Self { window: window.max(1), on_grid }
    }
}

impl Finder for Window {
    fn find(&mut self, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        let (Some(first), Some(last)) = (pending.times.first(), pending.times.last()) else { return Ok(0) };
        let is_behind = match self.on_grid {
            true => last.div_euclid(self.window) > first.div_euclid(self.window),
            false => last.saturating_sub(*first) >= self.window,
        };
        if !is_behind {
            return Ok(0);
        }
        found.row(0, pending.len() - 1);
        Ok(pending.len() - 1)
    }

    fn pass_time(&mut self, time: i64, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        close_at(self.waiting(pending).due, time, pending, found)
    }

    fn waiting(&self, pending: Pending<'_>) -> Waiting {
        let first = pending.times.first().copied().unwrap_or(i64::MAX);
        let due = match self.on_grid {
            true => first.div_euclid(self.window).saturating_add(1).saturating_mul(self.window),
            false => first.saturating_add(self.window),
        };
        let oldest = pending.oldest();
        Waiting { messages: pending.len() as u64, oldest, due }
    }
}
