//! Where rows go: pieces that stay together, and the place of each.
//!
//! A row is late if one before it has a greater time. All others stand in order already, so that the order of all is a merge
//! of them, in one reading, with the late ones, sorted. Memory is for late rows only.

use super::order::rank;
use super::rows::Rows;
use crate::hdf::h5::Cell;
use crate::hdf::handle::FileHandle;
use crate::limits::{LATE_ROWS_MAX, SORT_SCAN_ROWS};
use flow::Fault;
use std::ops::ControlFlow;

/// Rows that stay together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
}

/// The pieces, in the order in which they come to stand, from row 0 on; and whether late rows are left behind them, that
/// were too many for one time. None where all rows stand in order.
pub(super) fn runs(times: &mut Rows, handle: &FileHandle, cell: Cell) -> Result<Option<(Vec<Span>, bool)>, Fault> {
    let (mut late, mut newest, mut end) = (Vec::new(), 0, times.rows);
    scan(times, handle, cell, end, |row, time| {
        if time < newest {
            late.push((time, row));
            if late.len() == LATE_ROWS_MAX {
                end = row + 1;
                return ControlFlow::Break(());
            }
        }
        newest = newest.max(time);
        ControlFlow::Continue(())
    })?;
    if late.is_empty() {
        return Ok(None);
    }
    // Those of one time stay as they came.
    late.sort_unstable();
    let mut late = late.into_iter().peekable();
    let (mut runs, mut newest) = (Vec::new(), 0);
    scan(times, handle, cell, end, |row, time| {
        if time >= newest {
            newest = time;
            // Not those of the same time: had they come before, they would not be late.
            while let Some((_, late)) = late.next_if(|(late, _)| *late < time) {
                push(&mut runs, late);
            }
            push(&mut runs, row);
        }
        ControlFlow::Continue(())
    })?;
    late.for_each(|(_, row)| push(&mut runs, row));
    Ok(Some((runs, end < times.rows)))
}

/// Adds a row behind the others.
fn push(runs: &mut Vec<Span>, row: u64) {
    let to = runs.last().map_or(0, |run| run.to + run.count);
    match runs.last_mut() {
        Some(run) if run.from + run.count == row => run.count += 1,
        _ => runs.push(Span { from: row, to, count: 1 }),
    }
}

/// Where the entries of the rows go, whose first ones the numbers of `index` say; of the last row up to `entries`.
pub(super) fn entries(index: &mut Rows, handle: &FileHandle, runs: &[Span], entries: u64) -> Result<Vec<Span>, Fault> {
    let mut out: Vec<Span> = Vec::with_capacity(runs.len());
    let mut to = u64::from_le_bytes(index.number(handle, 0)?);
    for run in runs {
        let from = u64::from_le_bytes(index.number(handle, run.from)?);
        let behind = run.from + run.count;
        let end = if behind < index.rows { u64::from_le_bytes(index.number(handle, behind)?) } else { entries };
        let count = end
            .checked_sub(from)
            .filter(|_| end <= entries)
            .ok_or_else(|| Fault::new(format!("`{}` has changed", index.path), format!("row {}", run.from)))?;
        out.push(Span { from, to, count });
        to += count;
    }
    Ok(out)
}

/// Reads the times of the rows before `end`, some at a time.
fn scan(
    times: &mut Rows,
    handle: &FileHandle,
    cell: Cell,
    end: u64,
    mut each: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<(), Fault> {
    let mut buffer = vec![0; SORT_SCAN_ROWS.min(end as usize) * 8];
    let mut row = 0;
    while row < end {
        let count = (end - row).min(SORT_SCAN_ROWS as u64);
        let bytes = &mut buffer[..count as usize * 8];
        times.read(handle, row, bytes)?;
        for (time, row) in bytes.as_chunks::<8>().0.iter().zip(row..) {
            if each(row, rank(cell, *time)).is_break() {
                return Ok(());
            }
        }
        row += count;
    }
    Ok(())
}

/// The first row from `low` on whose time is not before `time`.
pub(super) fn first_at(times: &mut Rows, handle: &FileHandle, cell: Cell, low: u64, time: u64) -> Result<u64, Fault> {
    let (mut low, mut high) = (low, times.rows);
    while low < high {
        let middle = low + (high - low) / 2;
        if rank(cell, times.number(handle, middle)?) < time { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}
