//! Rows of a growing dataset, read back from the file.

use crate::hdf::column::Design;
use crate::hdf::filter::Filter;
use crate::hdf::h5::{Chunk, File, chunk_at};
use crate::hdf::handle::FileHandle;
use crate::limits::SORT_READ_BYTES;
use flow::Fault;
use std::collections::{BTreeMap, VecDeque};

/// A dataset that nobody writes to as long as this lives.
pub(super) struct Rows {
    pub(super) path: String,
    pub(super) filter: Option<Filter>,
    /// Bytes of a number.
    pub(super) element: usize,
    pub(super) row_bytes: usize,
    pub(super) chunk_rows: u64,
    pub(super) rows: u64,
    chunks: BTreeMap<u64, Chunk>,
    /// Chunks that were unpacked, by their first row.
    unpacked: VecDeque<(u64, Vec<u8>)>,
}

impl Rows {
    pub(super) fn open(file: &File, design: &Design) -> Result<Self, Fault> {
        let (dataset, shape, chunk_rows) = file.open_growing(&design.path)?;
        let element = design.cell.bytes();
        Ok(Self {
            path: design.path.clone(),
            chunks: dataset.chunks()?,
            filter: design.filter,
            element,
            row_bytes: shape[1..].iter().product::<u64>() as usize * element,
            chunk_rows,
            rows: shape[0],
            unpacked: VecDeque::new(),
        })
    }

    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk_rows as usize * self.row_bytes
    }

    /// The chunk that begins at a row, as the file knows it.
    pub(super) fn chunk(&self, base: u64) -> Result<Chunk, Fault> {
        chunk_at(&self.chunks, base)
    }

    /// Fills `out` with rows from `row` on.
    pub(super) fn read(&mut self, handle: &FileHandle, row: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (mut row, mut rest) = (row, out);
        while !rest.is_empty() {
            let base = row - row % self.chunk_rows;
            let skip = (row - base) as usize * self.row_bytes;
            let (now, later) = rest.split_at_mut((self.chunk_bytes() - skip).min(rest.len()));
            self.read_chunk(handle, base, skip, now)?;
            (row, rest) = (base + self.chunk_rows, later);
        }
        Ok(())
    }

    /// The rows of a chunk that count; of a packed one all.
    pub(super) fn whole(&mut self, handle: &FileHandle, base: u64) -> Result<Vec<u8>, Fault> {
        let rows = (self.rows - base).min(self.chunk_rows) as usize;
        let mut out = vec![0; rows * self.row_bytes];
        self.read_chunk(handle, base, 0, &mut out)?;
        Ok(out)
    }

    /// The number in a row of a dataset of numbers of 8 bytes.
    pub(super) fn number(&mut self, handle: &FileHandle, row: u64) -> Result<[u8; 8], Fault> {
        let mut out = [0; 8];
        self.read(handle, row, &mut out)?;
        Ok(out)
    }

    fn read_chunk(&mut self, handle: &FileHandle, base: u64, skip: usize, out: &mut [u8]) -> Result<(), Fault> {
        let Some(filter) = self.filter else {
            return handle.read_into(self.chunk(base)?.place + skip as u64, out);
        };
        let known = self.unpacked.iter().position(|(known, _)| *known == base);
        let at = match known {
            Some(at) => at,
            None => {
                let bytes = self.unpack(handle, filter, base)?;
                let most = (SORT_READ_BYTES / self.chunk_bytes()).max(1);
                self.unpacked.truncate(most - 1);
                self.unpacked.push_front((base, bytes));
                0
            }
        };
        out.copy_from_slice(&self.unpacked[at].1[skip..skip + out.len()]);
        Ok(())
    }

    fn unpack(&self, handle: &FileHandle, filter: Filter, base: u64) -> Result<Vec<u8>, Fault> {
        let chunk = self.chunk(base)?;
        let whole = self.chunk_bytes();
        if chunk.mask == filter.skipped() {
            // Of a begun one only the rows that count were written.
            let mut bytes = vec![0; whole];
            let rows = (self.rows - base).min(self.chunk_rows) as usize;
            handle.read_into(chunk.place, &mut bytes[..rows * self.row_bytes])?;
            return Ok(bytes);
        }
        let packed = handle.read(chunk.place, chunk.bytes as usize)?;
        filter.unpack(&packed, self.element, whole).ok_or_else(|| {
            Fault::new(format!("a chunk of `{}` is not valid compressed data", self.path), format!("row {base}"))
        })
    }
}
