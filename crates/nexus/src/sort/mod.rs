//! Late rows sorted into place, when the file is ended: times of a module then never go backwards.
//!
//! * Only chunks change in which a row moves, with those of the columns beside it, of its entries (the events of a pulse) and
//!   of the cues. Rows of one time stay in the order in which they came.
//! * The new chunks are first written to a file beside ([`journal`]), which is complete and on disk before the first
//!   chunk changes; after a kill the next writer applies them again before anything else ([`redo`]). Meanwhile the file
//!   opens; rows of such a chunk may be in it twice, or not yet.
//! * Constraint: all rows are in the file, and a commit knows them (`module::order`).
//! * Cues keep their times, in order; each is then of the first row of its time.
//! * Memory: 16 bytes for each of [`LATE_ROWS_MAX`](crate::limits::LATE_ROWS_MAX) late rows and 48 for each two pieces they
//!   cut the others in (where there are more, it is done in several goes), a few chunks, and the cues. Room: beside the file
//!   as many bytes as the chunks have that change.
//!
//! Failure: no room is a [`Fault`] before anything has changed; the same call works when there is room.

mod journal;
pub(crate) mod order;
mod plan;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use journal::{forget, is_begun};

use crate::hdf::column::Design;
use crate::hdf::h5::File;
use crate::hdf::handle::FileHandle;
use crate::limits::SORT_APPLY_BYTES;
use flow::Fault;
use journal::Journal;
use order::{Order, rank};
use plan::Span;
use rows::Rows;
use std::path::Path;

/// The columns of a module with late rows.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) order: Order,
    pub(crate) designs: Vec<Design>,
}

impl Table {
    /// Columns with an entry for each row, those of the cues and of lists left out.
    fn beside(&self) -> impl Iterator<Item = &Design> {
        let cues = self.order.cues.map_or(0..0, |at| at..at + 2);
        let is_of_list = |at: &usize| self.order.lists.iter().any(|(index, list)| index == at || list.contains(at));
        self.designs.iter().enumerate().filter(move |(at, _)| !cues.contains(at) && !is_of_list(at)).map(|(_, d)| d)
    }
}

/// Sorts; the answer is how many chunks changed.
pub(crate) fn sort(target: &Path, file: &File, handle: &mut FileHandle, tables: &[Table]) -> Result<u64, Fault> {
    let mut work = Work { target, file, handle, journal: None, chunks: 0 };
    for table in tables {
        while work.rows(table)? {
            work.apply()?;
        }
        work.apply_much()?;
    }
    work.apply()?;
    // They are looked for in times that stand in order.
    for table in tables {
        work.cues(table)?;
        work.apply_much()?;
    }
    work.apply()?;
    Ok(work.chunks)
}

/// Does what an earlier call, perhaps of a killed process, had still to do.
pub(crate) fn redo(target: &Path, file: &File, handle: &mut FileHandle) -> Result<(), Fault> {
    journal::apply(target, file, handle).map(|_| ())
}

struct Work<'a> {
    target: &'a Path,
    file: &'a File,
    handle: &'a mut FileHandle,
    journal: Option<Journal>,
    chunks: u64,
}

impl Work<'_> {
    /// Plans the rows of a table; true where some late ones are left for another time.
    fn rows(&mut self, table: &Table) -> Result<bool, Fault> {
        let Order { time, lists, .. } = table.order;
        let time = &table.designs[time];
        let mut times = Rows::open(self.file, time)?;
        let Some((runs, more)) = plan::runs(&mut times, self.handle, time.cell)? else { return Ok(false) };
        for (at, columns) in lists {
            let index = &table.designs[*at];
            let mut first = Rows::open(self.file, index)?;
            let mut entries = None;
            for column in *columns {
                let count = Rows::open(self.file, &table.designs[*column])?.rows;
                if *entries.get_or_insert(count) != count {
                    return Err(uneven(&table.designs[*column]));
                }
            }
            let entries = plan::entries(&mut first, self.handle, &runs, entries.unwrap_or(0))?;
            let changes = runs.iter().zip(&entries).map(|(run, list)| (*run, list.to.wrapping_sub(list.from)));
            self.rewrite(index, times.rows, changes)?;
            for column in *columns {
                self.rewrite(&table.designs[*column], 0, entries.iter().map(|run| (*run, 0)))?;
            }
        }
        for design in table.beside() {
            self.rewrite(design, times.rows, runs.iter().map(|run| (*run, 0)))?;
        }
        Ok(more)
    }

    /// Moves rows of a column, and adds to the numbers of each piece. It has `rows` rows at least.
    fn rewrite(&mut self, design: &Design, rows: u64, moves: impl Iterator<Item = (Span, u64)>) -> Result<(), Fault> {
        let (mut source, mut target) = (Rows::open(self.file, design)?, Rows::open(self.file, design)?);
        if target.rows < rows {
            return Err(uneven(design));
        }
        let mut open: Option<Changed> = None;
        for (Span { mut from, mut to, count }, add) in moves.filter(|(run, add)| run.from != run.to || *add != 0) {
            let end = to + count;
            while to < end {
                let base = to - to % target.chunk_rows;
                let chunk = match open.take_if(|chunk| chunk.base == base) {
                    Some(chunk) => chunk,
                    None => {
                        self.put(&target, open.take())?;
                        let old = target.whole(self.handle, base)?;
                        Changed { base, new: old.clone(), old }
                    }
                };
                let chunk = open.insert(chunk);
                let count = (base + target.chunk_rows).min(end) - to;
                let first = (to - base) as usize * target.row_bytes;
                let bytes = &mut chunk.new[first..first + count as usize * target.row_bytes];
                source.read(self.handle, from, bytes)?;
                for number in bytes.as_chunks_mut::<8>().0.iter_mut().filter(|_| add != 0) {
                    *number = u64::from_le_bytes(*number).wrapping_add(add).to_le_bytes();
                }
                (from, to) = (from + count, to + count);
            }
        }
        self.put(&target, open)
    }

    /// Cues of a table whose rows stand in order.
    fn cues(&mut self, table: &Table) -> Result<(), Fault> {
        let Some(at) = table.order.cues else { return Ok(()) };
        let time = &table.designs[table.order.time];
        // The bytes of cues are those of times, whatever sign the layout gives them.
        let (mut times, cell) = (Rows::open(self.file, time)?, time.cell);
        let mut first = match table.order.lists.first() {
            Some((index, columns)) => {
                let entries = Rows::open(self.file, &table.designs[columns[0]])?.rows;
                Some((Rows::open(self.file, &table.designs[*index])?, entries))
            }
            None => None,
        };
        let mut cues = Rows::open(self.file, &table.designs[at + 1])?;
        let mut told = vec![[0; 8]; cues.rows as usize];
        cues.read(self.handle, 0, told.as_flattened_mut())?;
        told.sort_unstable_by_key(|time| rank(cell, *time));
        let (mut places, mut row) = (Vec::with_capacity(told.len()), 0);
        for cue in &told {
            row = plan::first_at(&mut times, self.handle, cell, row, rank(cell, *cue))?;
            places.push(match &mut first {
                None => row.to_le_bytes(),
                Some((_, entries)) if row == times.rows => entries.to_le_bytes(),
                Some((first, _)) => first.number(self.handle, row)?,
            });
        }
        self.overwrite(&table.designs[at], places.as_flattened())?;
        self.overwrite(&table.designs[at + 1], told.as_flattened())
    }

    /// Gives a column other numbers.
    fn overwrite(&mut self, design: &Design, bytes: &[u8]) -> Result<(), Fault> {
        let mut target = Rows::open(self.file, design)?;
        if target.rows as usize * target.row_bytes != bytes.len() {
            return Err(uneven(design));
        }
        for (base, new) in (0..).step_by(target.chunk_rows as usize).zip(bytes.chunks(target.chunk_bytes())) {
            let changed = Changed { base, old: target.whole(self.handle, base)?, new: new.to_vec() };
            self.put(&target, Some(changed))?;
        }
        Ok(())
    }

    /// Lists a chunk, if it changed, packed as it shall be in the file.
    fn put(&mut self, target: &Rows, chunk: Option<Changed>) -> Result<(), Fault> {
        let Some(Changed { base, new, .. }) = chunk.filter(|chunk| chunk.old != chunk.new) else { return Ok(()) };
        let (mut mask, mut packed) = (None, Vec::new());
        if let Some(filter) = target.filter {
            let lies = target.chunk(base)?;
            // The begun one stays unpacked, as the writer left it.
            let is_begun = new.len() < target.chunk_bytes();
            if !is_begun || lies.mask != filter.skipped() {
                let mut whole = new.clone();
                whole.resize(target.chunk_bytes(), 0);
                packed.resize(whole.len(), 0);
                let length = filter.pack_all(&whole, whole.len(), target.element, &mut packed, whole.len())[0];
                packed.truncate(length);
                let how = if length == whole.len() { filter.skipped() } else { 0 };
                mask = Some(how).filter(|how| *how != lies.mask || *how == 0);
            }
        }
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(Journal::begin(self.target, self.handle)?),
        };
        let added = journal.add(self.handle, &target.path, base, mask, if packed.is_empty() { &new } else { &packed });
        if added.is_err() {
            // The unfinished journal on disk takes up room.
            self.journal = None;
            forget(self.target)?;
        }
        added
    }

    /// Puts what is listed into the file, where it is much.
    fn apply_much(&mut self) -> Result<(), Fault> {
        if self.journal.as_ref().is_some_and(|journal| journal.bytes > SORT_APPLY_BYTES) {
            self.apply()
        } else {
            Ok(())
        }
    }

    fn apply(&mut self) -> Result<(), Fault> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        if let Err(fault) = journal.end(self.file, self.handle) {
            forget(self.target)?;
            return Err(fault);
        }
        self.chunks += journal::apply(self.target, self.file, self.handle)?;
        Ok(())
    }
}

/// A chunk in memory.
struct Changed {
    base: u64,
    old: Vec<u8>,
    new: Vec<u8>,
}

fn uneven(design: &Design) -> Fault {
    Fault::new(format!("`{}` differs in rows from the columns beside it", design.path), "")
}
