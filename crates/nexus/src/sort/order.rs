//! Whether the rows of a module stand in the order of their times, and what goes along when they are put into it.
//!
//! Rows are written as messages come; a message with an older time is late. That one was late stands in every commit, so
//! that whoever ends the file knows, and puts the rows in order (`sort`).

use crate::hdf::column::Column;
use crate::hdf::h5::Cell;
use serde_json::{Value, json};
use wire::DType;

/// The columns that move with the rows of a module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Column of the times.
    pub(crate) time: usize,
    /// Columns that say where the entries of a row begin, and the columns of these entries.
    pub(crate) lists: &'static [(usize, &'static [usize])],
    /// First of the two columns of cues. They count entries of the first list; without lists, rows.
    pub(crate) cues: Option<usize>,
}

impl Order {
    /// Rows without lists.
    pub(crate) const fn of_rows(time: usize, cues: Option<usize>) -> Self {
        Self { time, lists: &[], cues }
    }
}

/// Times as numbers that compare as the reader's do.
pub(crate) fn rank(cell: Cell, time: [u8; 8]) -> u64 {
    let sign = if cell == Cell::Number(DType::UInt64) { 0 } else { 1 << 63 };
    u64::from_le_bytes(time) ^ sign
}

/// The times of a module as they come.
pub(crate) struct Watch {
    pub(crate) order: Order,
    newest: u64,
    /// A row came whose time is older than that of one before it.
    is_late: bool,
    /// Rows of the last commit.
    committed: u64,
}

impl Watch {
    pub(crate) fn of(order: Order) -> Self {
        Self { order, newest: 0, is_late: false, committed: 0 }
    }

    /// Looks at the rows that came since there were `before`; none of them was written yet.
    pub(crate) fn see(&mut self, columns: &[Column], before: u64) {
        let column = &columns[self.order.time];
        for time in column.newest(column.rows() - before).as_chunks::<8>().0 {
            let time = rank(column.design.cell, *time);
            self.is_late |= time < self.newest;
            self.newest = self.newest.max(time);
        }
    }

    /// See [`Filling::fetch`](super::Filling::fetch).
    pub(crate) fn fetch(&self) -> u64 {
        self.newest
    }

    pub(crate) fn commit(&mut self, columns: &[Column]) {
        self.committed = columns[self.order.time].rows();
    }

    /// Whether rows can and must be moved. Those that no commit knows would be cut off after a kill, so they must stand
    /// behind all others: with them rows stay as they came.
    pub(crate) fn is_due(&self, columns: &[Column]) -> bool {
        let rows = columns[self.order.time].rows();
        if self.is_late && self.committed != rows && self.committed > 0 {
            let path = &columns[self.order.time].design.path;
            tracing::warn!("`{path}` stays in the order of arrival: its last rows were not committed");
            return false;
        }
        self.is_late
    }

    pub(crate) fn state(&self) -> Value {
        json!([self.newest, self.is_late])
    }

    /// A state of before there was this one says nothing: then any row may be late.
    pub(crate) fn resume(&mut self, state: &Value, columns: &[Column]) -> Option<()> {
        self.commit(columns);
        if state.is_null() {
            self.is_late = self.committed > 0;
            return Some(());
        }
        (self.newest, self.is_late) = (state[0].as_u64()?, state[1].as_bool()?);
        Some(())
    }
}
