//! A growing dataset: rows are gathered in memory and written by whole chunks.
//!
//! libhdf5 says where a chunk lies and keeps the tree of chunks; the bytes go past it (`Room::write`). The number of
//! rows in the file never runs ahead of the bytes: it is set to whole chunks just before they are written and to the
//! exact count at a flush, and libhdf5's metadata reach the disk at a flush only.
//!
//! The size of the chunks is chosen when the first rows are written, from how many came until then: a log of a value a
//! second costs a page, a detector gets chunks of 1 MiB. Until then the dataset is empty and can be made anew.
//!
//! Failure: a write that finds no room leaves the rows in memory; the same call again goes on where it was.

use crate::h5::{Cell, File, Growing};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, GATHER_BYTES, METADATA_ROOM_BYTES};
use crate::room::Room;
use crate::template::Data;
use flow::Fault;

const PAGE: usize = 4096;

/// A page of memory on a page: what direct writes want.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Bytes that begin on a page; memory is kept and used again.
#[derive(Default)]
struct Pages {
    pages: Vec<Page>,
    len: usize,
}

impl Pages {
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.len]
    }

    fn extend(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end > self.pages.len() * PAGE {
            let pages = end.div_ceil(PAGE).max(self.pages.len() * 2);
            self.pages.resize(pages, Page([0; PAGE]));
        }
        bytemuck::cast_slice_mut::<Page, u8>(&mut self.pages)[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }

    /// Takes bytes off the front; what is left is less than a chunk.
    fn drop_front(&mut self, bytes: usize) {
        let len = self.len;
        bytemuck::cast_slice_mut::<Page, u8>(&mut self.pages).copy_within(bytes..len, 0);
        self.len -= bytes;
    }
}

/// What a column is, before it holds anything.
#[derive(Clone, Debug)]
pub(crate) struct Design {
    /// Path of the dataset.
    pub(crate) path: String,
    pub(crate) cell: Cell,
    /// Shape of one row; empty for one value.
    pub(crate) row: Vec<u64>,
    pub(crate) attributes: Vec<(&'static str, Data)>,
    /// Smallest chunk, bytes.
    pub(crate) least: usize,
}

/// A growing dataset with the rows that are not in the file yet.
pub(crate) struct Column {
    pub(crate) design: Design,
    dataset: Growing,
    /// Bytes of one row.
    row_bytes: usize,
    chunk_rows: u64,
    /// Rows, those in memory counted.
    rows: u64,
    /// Row at which the memory begins: always the first of a chunk.
    base: u64,
    gathered: Pages,
    /// Bytes at the beginning of the memory that are in the file already.
    written: usize,
    /// The dataset in the file is as the design says, with chunks that fit.
    fitted: bool,
}

impl Column {
    /// Makes the dataset, empty.
    pub(crate) fn make(file: &File, design: Design) -> Result<Self, Fault> {
        let row_bytes = row_bytes(&design);
        let chunk_rows = (design.least / row_bytes).max(1) as u64;
        let dataset = make_dataset(file, &design, chunk_rows)?;
        Ok(Self {
            dataset,
            row_bytes,
            chunk_rows,
            rows: 0,
            base: 0,
            gathered: Pages::default(),
            written: 0,
            fitted: false,
            design,
        })
    }

    /// Takes up a dataset of an earlier process that has `rows` rows of the design or more; more are cut off later by
    /// [`Column::cut`].
    pub(crate) fn take_up(file: &File, room: &Room, design: Design, rows: u64) -> Result<Self, Fault> {
        let other =
            |cause: String| Err(Fault::new(format!("the dataset `{}` is not as it was left", design.path), cause));
        let (dataset, shape, chunk_rows) = file.open_growing(&design.path)?;
        if shape[1..] != design.row || shape[0] < rows {
            return other(format!("its shape is {shape:?}, and {rows} rows of {:?} were written", design.row));
        }
        let row_bytes = row_bytes(&design);
        let chunk_bytes = chunk_rows * row_bytes as u64;
        let base = rows - rows % chunk_rows;
        // Every chunk has its place, or the tree of chunks is torn.
        let mut row = 0;
        while row < rows {
            let (_, size) = dataset.chunk(row)?;
            if size != chunk_bytes {
                return other(format!("the chunk at row {row} has {size} bytes"));
            }
            row += chunk_rows;
        }
        let mut gathered = Pages::default();
        if base < rows {
            let bytes = (rows - base) as usize * row_bytes;
            let (place, _) = dataset.chunk(base)?;
            gathered.extend(&room.read(place, bytes)?);
        }
        let written = gathered.len;
        Ok(Self { dataset, row_bytes, chunk_rows, rows, base, gathered, written, fitted: rows > 0, design })
    }

    /// Sets the dataset in the file to the rows that count.
    pub(crate) fn cut(&self) -> Result<(), Fault> {
        self.dataset.set_rows(self.rows, &self.design.row)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Gives an empty dataset another type or another shape of its rows; false where it has rows of another shape.
    pub(crate) fn become_rows_of(&mut self, cell: Cell, row: &[u64]) -> bool {
        if self.design.cell == cell && self.design.row == row {
            return true;
        }
        if self.rows > 0 {
            return false;
        }
        self.design.cell = cell;
        self.design.row = row.to_vec();
        self.row_bytes = row_bytes(&self.design);
        // Not what the file has: `fit` makes it anew.
        self.chunk_rows = 0;
        true
    }

    /// Sets attributes of an empty dataset.
    pub(crate) fn describe(&mut self, attributes: Vec<(&'static str, Data)>) {
        if self.rows == 0 {
            self.design.attributes = attributes;
            self.chunk_rows = 0;
        }
    }

    /// Adds whole rows, in memory.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(self.row_bytes));
        self.gathered.extend(bytes);
        self.rows += (bytes.len() / self.row_bytes) as u64;
    }

    /// Whether enough was gathered to be written.
    pub(crate) fn is_due(&self) -> bool {
        self.gathered.len >= GATHER_BYTES.max(self.chunk_rows as usize * self.row_bytes)
    }

    /// Chooses the chunks, once. True if the dataset was made anew and links to it must be set again.
    pub(crate) fn fit(&mut self, file: &File) -> Result<bool, Fault> {
        if self.fitted || self.rows == 0 {
            return Ok(false);
        }
        let quarter = self.gathered.len / 4;
        let bytes = 1_usize << quarter.max(1).ilog2();
        let bytes = bytes.clamp(self.design.least.max(CHUNK_BYTES_MIN), CHUNK_BYTES_MAX);
        let rows = (bytes / self.row_bytes).max(1) as u64;
        let anew = rows != self.chunk_rows;
        if anew {
            if file.exists(&self.design.path)? {
                file.unlink(&self.design.path)?;
            }
            self.dataset = make_dataset(file, &self.design, rows)?;
            self.chunk_rows = rows;
        }
        self.fitted = true;
        Ok(anew)
    }

    /// Writes whole chunks, and at a flush (`all`) also the begun one.
    pub(crate) fn write_out(&mut self, file: &File, room: &mut Room, all: bool) -> Result<(), Fault> {
        debug_assert!(self.rows == 0 || self.fitted);
        let chunk_bytes = self.chunk_rows as usize * self.row_bytes;
        if self.rows == 0 || (!all && self.gathered.len < chunk_bytes) {
            return Ok(());
        }
        let whole = self.gathered.len / chunk_bytes;
        let begun = all && !self.gathered.len.is_multiple_of(chunk_bytes);
        if whole == 0 && self.written == self.gathered.len {
            return Ok(());
        }
        // libhdf5 allots chunks and perhaps a node of its tree; it writes them at the next flush.
        let chunks = whole + usize::from(begun);
        room.reserve(file.end()? + (chunks * chunk_bytes) as u64 + METADATA_ROOM_BYTES)?;
        let rows = if all { self.rows } else { self.base + whole as u64 * self.chunk_rows };
        self.dataset.set_rows(rows, &self.design.row)?;

        // Chunks that lie side by side are one write.
        let mut piece: Option<(u64, usize, usize)> = None;
        for at in 0..chunks {
            let (place, _) = self.dataset.chunk(self.base + at as u64 * self.chunk_rows)?;
            let (from, to) = (at * chunk_bytes, ((at + 1) * chunk_bytes).min(self.gathered.len));
            piece = match piece {
                Some((begin, first, last)) if begin + (last - first) as u64 == place => Some((begin, first, to)),
                before => {
                    self.write_piece(room, before)?;
                    Some((place, from, to))
                }
            };
        }
        self.write_piece(room, piece)?;
        self.gathered.drop_front(whole * chunk_bytes);
        self.base += whole as u64 * self.chunk_rows;
        self.written = if all { self.gathered.len } else { 0 };
        Ok(())
    }

    /// Writes what lies from `first` to `last` in memory, less the whole pages that the file has already.
    fn write_piece(&self, room: &mut Room, piece: Option<(u64, usize, usize)>) -> Result<(), Fault> {
        let Some((place, first, last)) = piece else { return Ok(()) };
        let known = (self.written / PAGE * PAGE).clamp(first, last);
        room.write(place + (known - first) as u64, &self.gathered.bytes()[known..last])
    }
}

fn row_bytes(design: &Design) -> usize {
    design.row.iter().product::<u64>() as usize * design.cell.bytes()
}

fn make_dataset(file: &File, design: &Design, chunk_rows: u64) -> Result<Growing, Fault> {
    let dataset = file.make_growing(&design.path, design.cell, &design.row, chunk_rows)?;
    for (name, value) in &design.attributes {
        file.set_attribute(&design.path, name, value)?;
    }
    Ok(dataset)
}
