//! `make = "frames"`: the payloads of a group, each at its place, are one frame (`ad00`).
//!
//! Constraints: a payload is copied once, from the memory of the input into that of the output.
//!
//! Failure behaviour: a place whose payload is missing, cannot be read, or has another length than the place, is zero
//! and is marked in the attribute `missing`; the frame has the flag `suspect`. With `complete` such a frame is not made.

use crate::limits::{DIMENSIONS_MAX, FRAME_MAX};
use flow::Fault;
use settings::{Key, Refused, Section, key};
use std::ops::Range;
use wire::ad00::{self, Ad00, Attribute};
use wire::{DType, Numbers};

pub(super) static SHAPE: Key = key(
    "shape",
    "list of numbers",
    "",
    "Of `frames`, required: lengths of the dimensions, slowest first. Each member has an equal part of the frame, one behind \
     the other in the order of `members`, and its `pieces` divide that part.",
);
pub(super) static DTYPE: Key = key(
    "dtype",
    "`uint8`, `uint16`, `uint32`, `int16`, `int32`, `float32`, ...",
    "uint16",
    "Of `frames`: type of the pixels, which are little endian.",
);

/// Which bytes of a frame each piece has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// Lengths of the dimensions, slowest first.
    pub(super) shape: Vec<i64>,
    pub(super) dtype: DType,
    /// Bytes of the part of a member, and of each of its pieces; the last piece may be shorter.
    member: usize,
    piece: usize,
    pieces: usize,
}

impl Layout {
    /// From the section of a worker. `pieces`: of each member of a frame.
    pub(super) fn read(section: &mut Section<'_>, members: usize, pieces: usize) -> Option<Self> {
        let dtypes: Vec<(&'static str, DType)> =
            DType::ALL.iter().filter(|dtype| **dtype != DType::Text).map(|dtype| (dtype.name(), *dtype)).collect();
        let dtype = section.word(&DTYPE, &dtypes);
        if !section.has(&SHAPE) {
            section.missing(&SHAPE, "write the rows and columns of a frame, like `shape = [512, 1024]`");
            return None;
        }
        let (shape, dtype): (Vec<u64>, DType) = (section.get(&SHAPE)?.value, dtype?.value);
        let bytes = shape.iter().try_fold(dtype.size() as u64, |bytes, length| bytes.checked_mul(*length));
        let Some(bytes) = bytes.filter(|n| (1..=FRAME_MAX).contains(n) && (1..=DIMENSIONS_MAX).contains(&shape.len()))
        else {
            let cause = format!("a frame has 1 to {FRAME_MAX} bytes and 1 to {DIMENSIONS_MAX} dimensions");
            section.refuse(&SHAPE, Refused::new(cause, "write the rows and columns of a frame"));
            return None;
        };
        let member = bytes as usize / members.max(1);
        let piece = member.div_ceil(pieces).next_multiple_of(dtype.size());
        if members == 0 || member * members != bytes as usize || piece * (pieces - 1) >= member {
            let cause = format!("{bytes} bytes are not divided into {members} members with {pieces} pieces each");
            section.refuse(&SHAPE, Refused::new(cause, "check `members` and `pieces`"));
            return None;
        }
        Some(Self { shape: shape.iter().map(|length| *length as i64).collect(), dtype, member, piece, pieces })
    }

    /// Bytes of a frame.
    pub(super) fn bytes(&self) -> usize {
        self.shape.iter().product::<i64>() as usize * self.dtype.size()
    }

    /// Pieces of all members.
    fn parts(&self) -> usize {
        self.bytes() / self.member * self.pieces
    }

    /// The bytes of a part: of a piece of a member, counted over all members.
    pub(super) fn place(&self, part: usize) -> Range<usize> {
        let (member, piece) = (part / self.pieces, part % self.pieces);
        let start = member * self.member + piece * self.piece;
        start..(start + self.piece).min((member + 1) * self.member)
    }
}

/// The parts of a message around the pixels of a frame.
#[derive(Default)]
pub(super) struct Head {
    head: ad00::Head,
    /// Zeros in place of the pixels: of these the number counts, and they are not touched.
    blank: Vec<u8>,
    /// 1 for each missing part.
    missing: Vec<u8>,
}

impl Head {
    /// Of a frame of the worker `maker`. `missing`: parts that the frame has no payload of.
    pub(super) fn write(
        &mut self,
        maker: &str,
        number: u64,
        timestamp: i64,
        (layout, missing): (&Layout, &[u32]),
    ) -> Result<(), Fault> {
        if self.blank.len() != layout.bytes() {
            self.blank = vec![0; layout.bytes()];
        }
        // As long in each frame, and in whole ones too: in a file it is one dataset.
        self.missing.clear();
        self.missing.resize(layout.parts(), 0);
        missing.iter().for_each(|part| self.missing[*part as usize] = 1);
        let attributes = [Attribute {
            name: "missing",
            description: Some("1 for each piece without a payload, in the order of members and their pieces"),
            source: Some(maker),
            data: (&self.missing).into(),
        }];
        let refused = |cause: String| Fault::new("cannot encode a frame", cause);
        let data = Numbers::new(layout.dtype, &self.blank).ok_or_else(|| refused("its pixels are not whole".into()))?;
        let frame = Ad00 {
            source_name: maker,
            // The format has 32 bits.
            id: number as i32,
            timestamp,
            dimensions: layout.shape.as_slice().into(),
            data,
            attributes: (&attributes[..]).into(),
        };
        self.head.write(&frame).map_err(|e| refused(e.to_string()))
    }

    /// The message: what is before the pixels, as many bytes as these, and what is behind them.
    pub(super) fn parts(&self) -> Option<[&[u8]; 3]> {
        self.head.parts(&self.blank)
    }
}
