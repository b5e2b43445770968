//! `split` and `stitch`: a frame (`ad00`) becomes tiles, and tiles of a frame become one again.
//!
//! ```toml
//! [worker.tiles]                                      [worker.whole]
//! call = "split"                                      call = "stitch"
//! inputs = ["camera"]                                 inputs = ["processed"]
//! parameters = { rows = 2, columns = 3 }              parameters = { frames = 32 }
//! ```
//! The last two dimensions of a frame are cut: row i of n begins at i * height / n, so that any frame fits with at least so
//! many pixels. A tile has id, time and attributes of its frame, and where it belongs: `tile_row`, `tile_column`,
//! `tile_rows`, `tile_columns`. A processed tile may have another type and size, as long as all tiles of a row have one
//! height, and all of a column one width.
//!
//! `stitch` keeps tiles, in any order of arrival, of at most `frames` frames. The oldest is given up for another, and
//! counted as `incomplete`; a tile that comes behind its frame is set aside as `late`, a second one of a place as
//! `duplicate`, one that does not fit as `misfit`.
//!
//! **The state of `stitch`**, the tiles of incomplete frames, is read from its input again (`again.rs`). So it has one
//! slot and one input.

use super::again::{self, Again};
use super::{said, unreadable};
use flow::edge::{Needs, WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Data, Fault, Made, Outputs, Stop, Waiting, Worker};
use settings::{Key, key, required};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::{Batch, Check, Message};
use wire::ad00::{Ad00, Attribute};
use wire::{DType, Numbers};

/// Tiles along one side of a frame.
const SIDE_MAX: i64 = 64;
/// Bytes of tiles that are kept: a slot is a process among others.
const BYTES_MAX: usize = 1 << 30;
/// Frames that are remembered as done, for each that is put together.
const DONE: usize = 4;

/// Where a tile belongs: its attributes.
const PLACE: [&str; 4] = ["tile_row", "tile_column", "tile_rows", "tile_columns"];

/// A reason of one word, and a text.
pub(super) type Refused = (&'static str, String);

/// The frame that a message is.
pub(super) fn frame_of<'m>(message: &Message<'m>) -> Result<Ad00<'m>, Refused> {
    if message.entry.schema.0 != wire::ad00::ID {
        return Err(("schema", format!("it is {}, and frames are ad00", message.entry.schema.as_text())));
    }
    wire::ad00::read(message.payload).map_err(|e| ("unreadable", unreadable(e)))
}

static ROWS: Key = required("rows", "number, 1 to 64", "Rows of tiles.");
static COLUMNS: Key = required("columns", "number, 1 to 64", "Columns of tiles.");
static FRAMES: Key = key(
    "frames",
    "number, 1 to 4096",
    "32",
    "Most frames that wait for tiles, together at most 1 GiB; beyond it the oldest is dropped and counted as `incomplete` in the statistics.",
);

/// `split`
pub static SPLIT: WorkerKind = WorkerKind {
    name: "split",
    about: "Cuts the last two dimensions of a frame (`ad00`, any type) into `rows` x `columns` tiles.",
    keys: &[&ROWS, &COLUMNS],
    read: |section| {
        let (rows, columns) = (section.within(&ROWS, 1..=SIDE_MAX), section.within(&COLUMNS, 1..=SIDE_MAX));
        Some(Arc::new(SplitPlan { rows: rows?.value as usize, columns: columns?.value as usize }))
    },
    notes: include_str!("../pages/split.md"),
};

/// `stitch`
pub static STITCH: WorkerKind = WorkerKind {
    name: "stitch",
    about: "Joins tiles into frames.",
    keys: &[&FRAMES],
    read: |section| {
        let frames = section.within(&FRAMES, 1..=4096)?.value as usize;
        Some(Arc::new(StitchPlan { frames }))
    },
    notes: include_str!("../pages/stitch.md"),
};

#[derive(Debug)]
struct SplitPlan {
    rows: usize,
    columns: usize,
}

impl WorkerPlan for SplitPlan {
    fn build(&self, _: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        let Self { rows, columns } = *self;
        Ok(Box::new(Split { rows, columns, pixels: Vec::new(), bytes: Vec::new(), tiles: 0 }))
    }
}

#[derive(Debug)]
struct StitchPlan {
    frames: usize,
}

impl WorkerPlan for StitchPlan {
    fn needs(&self) -> Needs {
        Needs { alone: Some("it keeps tiles until their frame is complete"), holds_back: true, ..Needs::default() }
    }

    fn build(&self, place: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        Ok(Box::new(Stitching::new(&place.data, &place.stage, place.input(), self.frames)))
    }
}

/// A split at work.
struct Split {
    rows: usize,
    columns: usize,
    pixels: Vec<u8>,
    bytes: Vec<u8>,
    tiles: u64,
}

impl Split {
    /// Height and width of a frame that can be cut, and how many such planes it has.
    fn sides(&self, shape: &[usize]) -> Result<(usize, usize, usize), Refused> {
        match shape {
            [planes @ .., height, width] if *height >= self.rows && *width >= self.columns => {
                Ok((*height, *width, planes.iter().product()))
            }
            _ => Err(("misfit", format!("a frame of {shape:?} has no {} x {} tiles", self.rows, self.columns))),
        }
    }
}

impl Worker for Split {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            let frame = frame_of(&message).and_then(|frame| {
                let shape = frame.shape();
                let sides = self.sides(&shape)?;
                Ok((frame, shape, sides))
            });
            let (frame, shape, (height, width, planes)) = match frame {
                Ok(frame) => frame,
                Err((reason, text)) => {
                    out.aside(&message, reason, &text)?;
                    continue;
                }
            };
            let size = frame.data.dtype().size();
            let known: Vec<Attribute<'_>> =
                frame.attributes.iter().filter(|a| !PLACE.contains(&a.name)).cloned().collect();
            for row in 0..self.rows {
                let (top, bottom) = (row * height / self.rows, (row + 1) * height / self.rows);
                for column in 0..self.columns {
                    let (left, right) = (column * width / self.columns, (column + 1) * width / self.columns);
                    self.pixels.clear();
                    for line in (0..planes).flat_map(|plane| (top..bottom).map(move |y| plane * height + y)) {
                        let from = (line * width + left) * size;
                        self.pixels.extend_from_slice(&frame.data.bytes()[from..from + (right - left) * size]);
                    }
                    let mut lengths: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
                    let at = lengths.len() - 2;
                    (lengths[at], lengths[at + 1]) = ((bottom - top) as i64, (right - left) as i64);
                    let place = [row, column, self.rows, self.columns].map(|n| [n as i64]);
                    let mut attributes = known.clone();
                    attributes.extend(PLACE.iter().zip(&place).map(|(name, value)| Attribute {
                        name,
                        description: Some(""),
                        source: Some(""),
                        data: value.into(),
                    }));
                    let Some(data) = Numbers::new(frame.data.dtype(), &self.pixels) else { continue };
                    let (dimensions, attributes) = (lengths.as_slice().into(), attributes.as_slice().into());
                    let tile = Ad00 { dimensions, data, attributes, ..frame.clone() };
                    wire::ad00::write(&mut self.bytes, &tile).map_err(|e| Fault::new("cannot encode a tile", e))?;
                    let made = Made::of(message.entry, wire::ad00::ID);
                    out.push(message.entry, &made, &[&self.bytes])?;
                    self.tiles += 1;
                }
            }
            out.done(&message);
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }

    fn statistics(&mut self) -> String {
        said(&[("tiles", self.tiles)].into())
    }
}

/// Which frame: its origin, id and time. An id alone repeats when a camera restarts.
type Id = (u32, i32, i64);

/// A tile that waits for the others.
struct Tile {
    shape: Vec<usize>,
    pixels: Vec<u8>,
}

/// An incomplete frame.
struct Partial {
    key: Id,
    /// Sequence of its first tile.
    first: u64,
    rows: usize,
    columns: usize,
    dtype: DType,
    tiles: Vec<Option<Tile>>,
    missing: usize,
    bytes: usize,
}

/// Tiles that are being put together.
struct Stitching {
    data: Data,
    input: String,
    frames: usize,
    partials: VecDeque<Partial>,
    done: VecDeque<Id>,
    kept_bytes: usize,
    again: Again,
    next: Option<u64>,
    pixels: Vec<u8>,
    bytes: Vec<u8>,
    said: BTreeMap<&'static str, u64>,
}

/// The result of keeping a tile.
enum Put {
    Kept,
    /// Its frame is complete.
    Whole(Partial),
}

impl Stitching {
    fn new(data: &Data, stage: &str, input: &str, frames: usize) -> Self {
        Self {
            data: data.clone(),
            input: input.to_owned(),
            frames,
            partials: VecDeque::new(),
            done: VecDeque::new(),
            kept_bytes: 0,
            again: Again::new(data, stage, input),
            next: None,
            pixels: Vec::new(),
            bytes: Vec::new(),
            said: [("frames", 0), ("incomplete", 0)].into(),
        }
    }

    /// Keeps a tile with the others of its frame.
    fn put(&mut self, message: &Message<'_>) -> Result<Put, Refused> {
        let tile = frame_of(message)?;
        let number = |name: &str| {
            let found = tile.attributes.iter().find(|a| a.name == name)?;
            found.data.get(0).map(wire::Scalar::to_f64).filter(|n| n.fract() == 0.0 && (0.0..=64.0).contains(n))
        };
        let [row, column, rows, columns] = PLACE.map(|name| number(name).map(|n| n as usize));
        let (Some(row), Some(column), Some(rows), Some(columns)) = (row, column, rows, columns) else {
            return Err(("misfit", format!("it is not a tile: it has no {}", PLACE.join(", "))));
        };
        let shape = tile.shape();
        if row >= rows || column >= columns || shape.len() < 2 {
            return Err(("misfit", format!("row {row}, column {column} of {rows} x {columns}, shape {shape:?}")));
        }
        let key = (message.entry.origin, tile.id, message.entry.source_time);
        if self.done.contains(&key) {
            return Err(("late", format!("frame {} is done, or was given up", tile.id)));
        }
        let at = match self.partials.iter().position(|partial| partial.key == key) {
            Some(at) => at,
            None => {
                self.partials.push_back(Partial {
                    key,
                    first: message.sequence,
                    rows,
                    columns,
                    dtype: tile.data.dtype(),
                    tiles: (0..rows * columns).map(|_| None).collect(),
                    missing: rows * columns,
                    bytes: 0,
                });
                self.partials.len() - 1
            }
        };
        let partial = &mut self.partials[at];
        partial.fits(&tile, (row, column, rows, columns), &shape)?;
        let bytes = tile.data.bytes();
        partial.tiles[row * columns + column] = Some(Tile { shape, pixels: bytes.to_vec() });
        partial.missing -= 1;
        partial.bytes += bytes.len();
        self.kept_bytes += bytes.len();
        if partial.missing == 0
            && let Some(whole) = self.partials.remove(at)
        {
            self.remember(&whole);
            return Ok(Put::Whole(whole));
        }
        while self.partials.len() > self.frames || self.kept_bytes > BYTES_MAX && self.partials.len() > 1 {
            let Some(given_up) = self.partials.pop_front() else { break };
            self.remember(&given_up);
            *self.said.entry("incomplete").or_default() += 1;
        }
        Ok(Put::Kept)
    }

    fn remember(&mut self, partial: &Partial) {
        self.kept_bytes -= partial.bytes;
        self.done.push_back(partial.key);
        if self.done.len() > self.frames * DONE {
            self.done.pop_front();
        }
    }

    /// Reads again the tiles of frames that were incomplete before a message.
    fn find(&mut self, before: u64) -> Result<(), Fault> {
        let from = self.again.begin(before)?;
        (self.partials, self.done, self.kept_bytes) = (VecDeque::new(), VecDeque::new(), 0);
        let counted = self.said.clone();
        // Complete frames were output already, and misfits are set aside: both are ignored.
        again::read(&self.data.clone(), &self.input.clone(), from..before, Check::All, &mut |_, message| {
            drop(self.put(message));
            Ok(())
        })?;
        // They were counted when they came.
        self.said = counted;
        self.next = Some(before);
        Ok(())
    }

    /// Says which tiles before `next` wait for others, whatever the time is.
    fn keep(&self, next: u64, out: &mut Outputs<'_>) {
        let tiles = self.partials.iter().map(|partial| (partial.tiles.len() - partial.missing) as u64).sum();
        let oldest = self.partials.iter().map(|partial| partial.key.2).min().unwrap_or(i64::MAX);
        // The tiles themselves are found in the input again.
        out.keep(&[next]);
        out.wait(Waiting { messages: tiles, oldest, due: i64::MAX });
    }

    /// Releases tiles that nobody will ask for: those before what was needed at the last commit.
    fn release(&mut self, from: u64) {
        let oldest = self.partials.iter().map(|partial| partial.first).min();
        self.again.need(from, oldest.unwrap_or(from));
    }

    /// Appends a complete frame.
    fn give(&mut self, message: &Message<'_>, whole: &Partial, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let tile = frame_of(message).map_err(|(_, text)| Fault::new("cannot read a tile again", text))?;
        let shape = whole.join(&mut self.pixels);
        let Some(data) = Numbers::new(whole.dtype, &self.pixels) else {
            return Err(Fault::new("a frame cannot be put together", "its tiles are not whole pixels").into());
        };
        let attributes: Vec<Attribute<'_>> =
            tile.attributes.iter().filter(|a| !PLACE.contains(&a.name)).cloned().collect();
        let dimensions: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        let (dimensions, attributes) = (dimensions.as_slice().into(), attributes.as_slice().into());
        let frame = Ad00 { dimensions, data, attributes, ..tile };
        wire::ad00::write(&mut self.bytes, &frame).map_err(|e| Fault::new("cannot encode a frame", e))?;
        out.push(message.entry, &Made::of(message.entry, wire::ad00::ID), &[&self.bytes])
    }
}

impl Partial {
    /// Whether a tile fits to those that are there.
    fn fits(
        &self,
        tile: &Ad00<'_>,
        (row, column, rows, columns): (usize, usize, usize, usize),
        shape: &[usize],
    ) -> Result<(), Refused> {
        if (rows, columns) != (self.rows, self.columns) || tile.data.dtype() != self.dtype {
            let cause = format!("it is of {rows} x {columns} tiles of {}, others are not", tile.data.dtype().name());
            return Err(("misfit", cause));
        }
        if self.tiles[row * columns + column].is_some() {
            return Err(("duplicate", format!("row {row}, column {column} of frame {} is there", tile.id)));
        }
        let at = shape.len() - 2;
        for (place, other) in self.tiles.iter().enumerate().filter_map(|(n, t)| t.as_ref().map(|t| (n, t))) {
            let planes_fit = other.shape.len() == shape.len() && other.shape[..at] == shape[..at];
            let fits = planes_fit
                && (place / columns != row || other.shape[at] == shape[at])
                && (place % columns != column || other.shape[at + 1] == shape[at + 1]);
            if !fits {
                return Err(("misfit", format!("a tile of {shape:?} beside one of {:?}", other.shape)));
            }
        }
        Ok(())
    }

    /// The pixels of the frame, in order, and its shape.
    fn join(&self, into: &mut Vec<u8>) -> Vec<usize> {
        into.clear();
        let size = self.dtype.size();
        let tile = |row: usize, column: usize| self.tiles.get(row * self.columns + column).and_then(Option::as_ref);
        let Some(first) = tile(0, 0) else { return vec![0] };
        let at = first.shape.len() - 2;
        let side = |row, column, axis: usize| tile(row, column).map_or(0, |t| t.shape[at + axis]);
        let planes: usize = first.shape[..at].iter().product();
        for plane in 0..planes {
            for row in 0..self.rows {
                let height = side(row, 0, 0);
                for y in 0..height {
                    for column in 0..self.columns {
                        let line = side(0, column, 1) * size;
                        let from = (plane * height + y) * line;
                        let pixels = tile(row, column).and_then(|tile| tile.pixels.get(from..from + line));
                        into.extend_from_slice(pixels.unwrap_or_default());
                    }
                }
            }
        }
        let mut shape = first.shape.clone();
        shape[at] = (0..self.rows).map(|row| side(row, 0, 0)).sum();
        shape[at + 1] = (0..self.columns).map(|column| side(0, column, 1)).sum();
        shape
    }
}

impl Worker for Stitching {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let from = out.next().max(batch.first);
        if self.next.is_none_or(|next| next > from) {
            self.find(from)?;
        }
        self.release(from);
        for message in batch.iter().filter(|message| message.sequence >= from) {
            out.begin(&message);
            // Until the message has its end, it is not known whether it stays.
            self.next = None;
            match self.put(&message) {
                Ok(Put::Kept) => out.done(&message),
                Ok(Put::Whole(whole)) => {
                    self.give(&message, &whole, out)?;
                    *self.said.entry("frames").or_default() += 1;
                    out.done(&message);
                }
                Err((reason, text)) => out.aside(&message, reason, &text)?,
            }
            self.next = Some(message.sequence + 1);
        }
        self.next = Some(batch.next());
        self.keep(batch.next(), out);
        Ok(())
    }

    fn pass_time(&mut self, time: i64, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let next = out.next();
        if self.next.is_none_or(|known| known > next) {
            self.find(next)?;
        }
        if time == i64::MAX {
            // The input has ended: no tile comes that they wait for.
            *self.said.entry("incomplete").or_default() += self.partials.len() as u64;
            (self.partials, self.kept_bytes) = (VecDeque::new(), 0);
        }
        self.keep(next, out);
        Ok(())
    }

    fn rest(&mut self) {
        if let Some(next) = self.next {
            self.release(next);
        }
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        true
    }

    fn statistics(&mut self) -> String {
        said(&self.said)
    }
}
