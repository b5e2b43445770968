//! A growing dataset: rows are gathered in memory and written by whole chunks.
//!
//! libhdf5 places chunks and keeps their tree; the bytes bypass it (`FileHandle::give`). The number of rows in the file
//! never runs ahead of the bytes: libhdf5 hears of whole chunks as they are written and of the exact count at a flush,
//! and what it knows reaches the disk at a flush only, after the bytes (`metadata`).
//!
//! The size of the chunks is chosen when the first rows are written, from the bytes gathered until then: a log of a
//! value a second costs a page, a detector gets chunks of 1 MiB. Until then the dataset is empty and can be recreated.
//!
//! With a filter, complete chunks are packed in several threads and then given a place. The begun chunk is stored
//! unpacked, with the mask of its filters, so that a flush adds to it in place: packed again each second it would cost
//! room each second. When it is complete, another begun chunk reuses its place, once the file's metadata is written and
//! [`LEFT_REST`] has passed: a reader that opened the file before, and a writer that resumes it after a kill, still
//! find there the rows that the file listed.
//!
//! Failure: a write that finds no room leaves the rows in memory; the same call then resumes where it stopped.

use crate::hdf::filter::Filter;
use crate::hdf::h5::{Cell, File, Growing, chunk_at};
use crate::hdf::handle::FileHandle;
use crate::hdf::lanes::{Load, Span};
use crate::hdf::pages::{PAGE, Pages};
use crate::hdf::value::Data;
use crate::limits::{
    CHUNK_BYTES_BLIND, CHUNK_BYTES_MAX_DEFLATE, CHUNK_BYTES_MIN, GATHER_BYTES, GROWN_GATHER_BYTES, LANE_BYTES_MIN,
    LEFT_REST, PACK_THREADS,
};
use flow::Fault;
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

/// Bytes of chunks that are not computed: for measurements of what is computed.
static FORCED: OnceLock<usize> = OnceLock::new();

/// From now on columns with more than little have chunks of so many bytes.
pub(crate) fn force_chunks(bytes: usize) {
    let _ = FORCED.set(bytes);
}

#[cfg(test)]
thread_local! {
    /// How often [`Column::is_due`] was asked.
    pub(crate) static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The description of a column, before it holds rows.
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
    /// Largest chunk, bytes; a row that is larger is a chunk.
    pub(crate) most: usize,
    pub(crate) filter: Option<Filter>,
}

/// A growing dataset with the rows that are not in the file yet.
pub(crate) struct Column {
    pub(crate) design: Design,
    /// None until it is made for the first rows.
    dataset: Option<Growing>,
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
    /// Where the begun chunk lies, if it has a place.
    home: Option<u64>,
    /// Places of begun chunks that became whole, how often the file was told all before, and since when.
    left: Vec<(u64, u64, Instant)>,
}

impl Column {
    /// Makes the dataset, empty; its attributes come with [`Column::label`].
    pub(crate) fn make(file: &File, design: Design) -> Result<Self, Fault> {
        let row_bytes = row_bytes(&design);
        let chunk_rows = (design.least / row_bytes).max(1) as u64;
        let dataset = Some(make_dataset(file, &design, chunk_rows)?);
        Ok(Self { dataset, chunk_rows, ..Self::empty(design) })
    }

    /// A dataset that comes later than those beside it: the file has it from its first flush on, and until now it has
    /// `rows` times `row`.
    pub(crate) fn late(design: Design, row: &[u8], rows: u64) -> Self {
        let mut column = Self::empty(design);
        (0..rows).for_each(|_| column.extend(row));
        column
    }

    fn empty(design: Design) -> Self {
        Self {
            dataset: None,
            row_bytes: row_bytes(&design),
            design,
            chunk_rows: 0,
            rows: 0,
            base: 0,
            gathered: Pages::default(),
            written: 0,
            home: None,
            left: Vec::new(),
        }
    }

    /// The dataset as the file has it.
    fn dataset(&self) -> Result<&Growing, Fault> {
        let none = || Fault::new(format!("the dataset `{}` is not there yet", self.design.path), "");
        self.dataset.as_ref().ok_or_else(none)
    }

    /// Takes up a dataset of an earlier process that has `rows` rows of the design or more; more are cut off later by
    /// [`Column::cut`]. Without rows any shape will do: rows that no commit knows may have given it theirs, and it is made
    /// anew for the first ([`Column::make_anew`]).
    pub(crate) fn resume(file: &File, handle: &FileHandle, design: Design, rows: u64) -> Result<Self, Fault> {
        let other = |cause: String| Err(Fault::new(format!("the dataset `{}` has changed", design.path), cause));
        let (dataset, shape, chunk_rows) = file.open_growing(&design.path)?;
        if shape[0] < rows || (rows > 0 && shape[1..] != design.row) {
            return other(format!("its shape is {shape:?}, and {rows} rows of {:?} were written", design.row));
        }
        let row_bytes = row_bytes(&design);
        let chunk_bytes = chunk_rows * row_bytes as u64;
        let base = rows - rows % chunk_rows;
        // Every chunk has its place, or the tree of chunks is torn.
        let chunks = if rows > 0 { dataset.chunks()? } else { BTreeMap::new() };
        let mut row = 0;
        while row < rows {
            let chunk = chunk_at(&chunks, row)?;
            let is_packed = chunk.mask == 0 && design.filter.is_some();
            if chunk.bytes > chunk_bytes || (chunk.bytes < chunk_bytes && !is_packed) {
                return other(format!("the chunk at row {row} has {} bytes", chunk.bytes));
            }
            row += chunk_rows;
        }
        let mut column = Self { chunk_rows, rows, base, ..Self::empty(design) };
        if base < rows {
            let bytes = (rows - base) as usize * row_bytes;
            let chunk = chunk_at(&chunks, base)?;
            match column.design.filter {
                // It was whole: rows that do not count are in it as well.
                Some(filter) if chunk.mask == 0 => {
                    let packed = handle.read(chunk.place, chunk.bytes as usize)?;
                    let raw = filter.unpack(&packed, column.design.cell.bytes(), chunk_bytes as usize);
                    let Some(raw) = raw else {
                        let name = &column.design.path;
                        return Err(Fault::new(
                            format!("a chunk of `{name}` is not valid compressed data"),
                            format!("row {base}"),
                        ));
                    };
                    column.gathered.extend(&raw[..bytes]);
                }
                _ => {
                    column.gathered.extend(&handle.read(chunk.place, bytes)?);
                    column.written = bytes;
                    column.home = Some(chunk.place);
                }
            }
        }
        column.dataset = Some(dataset);
        Ok(column)
    }

    /// Sets the dataset in the file to the rows that count.
    pub(crate) fn cut(&mut self, handle: &mut FileHandle) -> Result<(), Fault> {
        let dataset = self.dataset()?;
        if self.design.filter.is_none() || self.rows == 0 {
            return dataset.set_rows(self.rows);
        }
        // Between two chunks, where libhdf5 changes none of them; the begun one anew.
        dataset.set_rows(self.base)?;
        (self.home, self.written) = (None, 0);
        self.write_out(handle, true)
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
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
        // The dataset in the file differs: it will be recreated.
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

    /// Marks an empty dataset to be recreated for its first rows, whatever the file has there.
    pub(crate) fn make_anew(&mut self) {
        debug_assert!(self.rows == 0);
        self.chunk_rows = 0;
    }

    /// Adds whole rows, in memory.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(self.row_bytes));
        self.gathered.extend(bytes);
        self.rows += (bytes.len() / self.row_bytes) as u64;
    }

    /// The last rows, all of them in memory.
    pub(crate) fn newest(&self, rows: u64) -> &[u8] {
        let bytes = self.gathered.bytes();
        &bytes[bytes.len() - rows as usize * self.row_bytes..]
    }

    /// Loads what [`Column::extend`] and [`Column::is_due`] will read and write; nothing waits for it.
    pub(crate) fn fetch(&self) {
        black_box((self.rows, self.base, self.design.cell, self.design.filter, self.gathered.bytes().last()));
    }

    /// Whether enough was gathered to be written.
    pub(crate) fn is_due(&self) -> bool {
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + 1);
        let least = match self.design.filter {
            // A chunk for each thread that packs.
            Some(_) => GATHER_BYTES.max(PACK_THREADS * self.chunk_rows as usize * self.row_bytes),
            None if self.base == 0 => GATHER_BYTES.max(self.chunk_rows as usize * self.row_bytes),
            None => GROWN_GATHER_BYTES.max(self.chunk_rows as usize * self.row_bytes),
        };
        self.gathered.len() >= least
    }

    /// Sets the attributes, once the headers of all datasets of the module have their places.
    pub(crate) fn label(&self, file: &File) -> Result<(), Fault> {
        let mut attributes = self.design.attributes.iter();
        attributes.try_for_each(|(name, value)| file.set_attribute(&self.design.path, name, value))
    }

    /// Rows of a chunk that suit what came until now; blindly where nothing came yet.
    pub(crate) fn suiting(&self) -> u64 {
        let quarter = self.gathered.len() / 4;
        let bytes = if self.rows == 0 { CHUNK_BYTES_BLIND } else { 1_usize << quarter.max(1).ilog2() };
        let bytes = match FORCED.get() {
            Some(forced) if bytes > self.design.least => *forced,
            _ => {
                // Another chunk is another dataset, which takes longer than the rows of a small log.
                let is_small = quarter < CHUNK_BYTES_MIN;
                let least = if is_small { self.design.least } else { self.design.least.max(CHUNK_BYTES_MIN) };
                let most = match self.design.filter {
                    Some(Filter::Deflate) => self.design.most.min(CHUNK_BYTES_MAX_DEFLATE),
                    _ => self.design.most,
                };
                bytes.clamp(least, most.max(least))
            }
        };
        (bytes / self.row_bytes).max(1) as u64
    }

    /// Rows of a chunk as the file has it; 0 where the dataset there is not as the design says.
    pub(crate) fn chunk_rows(&self) -> u64 {
        self.chunk_rows
    }

    /// Makes the dataset anew, empty.
    pub(crate) fn remake(&mut self, file: &File, chunk_rows: u64) -> Result<(), Fault> {
        if file.exists(&self.design.path)? {
            file.unlink(&self.design.path)?;
        }
        self.dataset = Some(make_dataset(file, &self.design, chunk_rows)?);
        self.chunk_rows = chunk_rows;
        Ok(())
    }

    /// Writes whole chunks, and at a flush (`all`) also the begun one.
    pub(crate) fn write_out(&mut self, handle: &mut FileHandle, all: bool) -> Result<(), Fault> {
        debug_assert!(self.rows == 0 || self.chunk_rows > 0);
        let chunk_bytes = self.chunk_rows as usize * self.row_bytes;
        let length = self.gathered.len();
        if self.rows == 0 || (!all && length < chunk_bytes) {
            return Ok(());
        }
        let whole = length / chunk_bytes;
        if whole == 0 && self.written == length {
            return Ok(());
        }
        let rows = if all { self.rows } else { self.base + whole as u64 * self.chunk_rows };
        let dataset = self.dataset()?;
        dataset.set_rows(rows)?;
        let begun = whole * chunk_bytes;
        let known = self.written / PAGE * PAGE;

        if let Some(filter) = self.design.filter {
            return self.write_packed(filter, handle, all, whole);
        }
        // Chunks that lie side by side are one write.
        let mut pieces: Vec<Span> = Vec::new();
        let place_of = |at: usize| match self.home {
            Some(home) if at == 0 => Ok(home),
            _ => dataset.put_chunk(self.base + at as u64 * self.chunk_rows, chunk_bytes as u64, 0, None),
        };
        for at in 0..whole {
            let place = place_of(at)?;
            let (first, last) = (at * chunk_bytes, (at + 1) * chunk_bytes);
            match pieces.last_mut() {
                Some(piece) if piece.place + (piece.last - piece.first) as u64 == place => piece.last = last,
                _ => pieces.push(Span { first, last, place }),
            }
        }
        let place = if all && begun < length { Some(place_of(whole)?) } else { None };
        let end =
            pieces.iter().map(|p| p.place + (p.last - p.first) as u64).chain(place.map(|p| p + chunk_bytes as u64));
        handle.reserve(end.max().unwrap_or(0))?;
        if let Some(place) = place {
            // Of what the file already has, only the last page is written again.
            let from = known.max(begun);
            handle.put(place + (from - begun) as u64, &self.gathered.bytes()[from..])?;
        }
        self.home = place;
        if whole > 0 {
            if let Some(first) = pieces.first_mut() {
                let known = known.min(first.last);
                (first.first, first.place) = (known, first.place + known as u64);
            }
            if begun < LANE_BYTES_MIN {
                let bytes = self.gathered.bytes();
                pieces.iter().try_for_each(|piece| handle.put_rows(piece.place, &bytes[piece.first..piece.last]))?;
                self.gathered.cut_front(begun);
                self.base += whole as u64 * self.chunk_rows;
                self.written = if all { self.gathered.len() } else { 0 };
                return Ok(());
            }
            let mut next = handle.buffer();
            next.extend(&self.gathered.bytes()[begun..]);
            let pages = std::mem::replace(&mut self.gathered, next);
            self.base += whole as u64 * self.chunk_rows;
            self.written = if all { self.gathered.len() } else { 0 };
            return handle.give(Load { pages, pieces });
        }
        self.written = length;
        Ok(())
    }

    /// The same through a filter, when the dataset has its number of rows. Until a chunk leaves memory, the whole call
    /// can be repeated: a chunk that has as many bytes as before stays where it is.
    fn write_packed(&mut self, filter: Filter, handle: &mut FileHandle, all: bool, whole: usize) -> Result<(), Fault> {
        let chunk_bytes = self.chunk_rows as usize * self.row_bytes;
        let (begun, length) = (whole * chunk_bytes, self.gathered.len());
        let stride = chunk_bytes.next_multiple_of(PAGE);
        let mut pages = handle.buffer();
        pages.resize(whole * stride);
        let (raw, element) = (&self.gathered.bytes()[..begun], self.design.cell.bytes());
        let lengths = filter.pack_all(raw, chunk_bytes, element, pages.bytes_mut(), stride);
        let dataset = self.dataset()?;
        let (mut pieces, mut end) = (Vec::with_capacity(whole), 0);
        for (at, bytes) in lengths.into_iter().enumerate() {
            let mask = if bytes == chunk_bytes { filter.skipped() } else { 0 };
            let row = self.base + at as u64 * self.chunk_rows;
            let place = dataset.put_chunk(row, bytes as u64, mask, None)?;
            pieces.push(Span { first: at * stride, last: at * stride + bytes, place });
            end = end.max(place + bytes as u64);
        }
        let applied = dataset.applied();
        let mut home = None;
        if all && begun < length {
            let row = self.base + whole as u64 * self.chunk_rows;
            // A reader who opened the file before looks for rows there, and would take others for them.
            let rested = |(_, told, since): &&(u64, u64, Instant)| *told < applied && since.elapsed() >= LEFT_REST;
            let free = self.left.iter().find(rested).map(|(place, ..)| *place);
            home = match self.home {
                Some(place) if whole == 0 => Some(place),
                _ => Some(dataset.put_chunk(row, chunk_bytes as u64, filter.skipped(), free)?),
            };
        }
        handle.reserve(end.max(home.map_or(0, |place| place + chunk_bytes as u64)))?;
        if let Some(place) = home {
            // Of what the file already has, only the last page is written again.
            let from = if whole == 0 { self.written / PAGE * PAGE } else { begun };
            handle.put(place + (from - begun) as u64, &self.gathered.bytes()[from..])?;
            self.left.retain(|(other, ..)| *other != place);
        }
        self.written = if home.is_some() { length - begun } else { 0 };
        let before = std::mem::replace(&mut self.home, home);
        if whole == 0 {
            return Ok(());
        }
        // A chunk that did not become smaller stays where it was begun.
        self.left
            .extend(before.filter(|place| pieces[0].place != *place).map(|place| (place, applied, Instant::now())));
        self.gathered.cut_front(begun);
        self.base += whole as u64 * self.chunk_rows;
        handle.give(Load { pages, pieces })
    }
}

fn row_bytes(design: &Design) -> usize {
    design.row.iter().product::<u64>() as usize * design.cell.bytes()
}

fn make_dataset(file: &File, design: &Design, chunk_rows: u64) -> Result<Growing, Fault> {
    file.make_growing(&design.path, design.cell, &design.row, chunk_rows, design.filter)
}
