//! Files of units: `geb`, units of GRETINA and GRETA one behind the other, and `hld`, events of HADES.
//!
//! A file consists of blocks: a unit of `geb`, an event of `hld`. Constraints: a block and a piece of the file are in
//! memory, however long the file is. Failure behaviour: a file that is not of its format is an error with the place;
//! what is before it has been read.

mod export;
mod hld;
mod source;

pub use export::{GEB, HLD};
pub use source::FILE;

use crate::framing::{Stamp, geb, hadaq};
use crate::limits::{BLOCK_BYTES_MAX, FILE_PIECE, HLD_HEADER};
use flow::Fault;
use settings::Word;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use store::SchemaId;

/// A format of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Units of GRETINA and GRETA.
    #[default]
    Geb,
    /// Events of HADES.
    Hld,
}

impl Word for Format {
    const ALL: &'static [(&'static str, Self)] = &[("geb", Self::Geb), ("hld", Self::Hld)];
}

impl Format {
    /// Schema id of the messages.
    pub(crate) fn schema(self) -> SchemaId {
        match self {
            Self::Geb => geb::UNIT,
            Self::Hld => hadaq::SUB_EVENT,
        }
    }

    /// Bytes of the block that begins here: what it has, and what it takes. `None`: the head is not whole.
    pub(crate) fn size(self, bytes: &[u8]) -> Option<Result<(usize, usize), &'static str>> {
        match self {
            Self::Geb => {
                geb::size(bytes).map(|size| size.map(|size| (size, size)).ok_or("a unit has a negative length"))
            }
            Self::Hld => hld::size(bytes),
        }
    }

    /// Adds the messages of a block to `pieces`.
    pub(crate) fn cut(self, block: &[u8], pieces: &mut Vec<Piece>) -> Result<(), &'static str> {
        match self {
            Self::Geb => {
                let stamp = Stamp::Ticks(geb::ticks(block));
                pieces.push(Piece { payload: 0..block.len(), hub: 0, trigger: None, flags: 0, stamp });
                Ok(())
            }
            Self::Hld => hld::cut(block, pieces),
        }
    }
}

/// A message in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its bytes in the block.
    payload: Range<usize>,
    /// Its sender.
    hub: u16,
    /// The number of its trigger, 24 bits.
    trigger: Option<u64>,
    flags: u16,
    stamp: Stamp,
}

impl Piece {
    /// Whether all of it is in this block.
    pub(crate) fn is_in(&self, block: &[u8]) -> bool {
        self.payload.start <= self.payload.end && self.payload.end <= block.len()
    }
}

/// The blocks of a file.
struct Blocks {
    path: PathBuf,
    file: File,
    format: Format,
    /// A piece of the file, and where it begins.
    bytes: Vec<u8>,
    from: u64,
}

impl Blocks {
    fn open(path: &Path, format: Format) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|e| Fault::io(format!("cannot open {}", path.display()), &e))?;
        Ok(Self { path: path.to_path_buf(), file, format, bytes: Vec::new(), from: 0 })
    }

    /// The block that begins at this byte, and where the next one does. `None` at the end of the file.
    fn get(&mut self, at: u64) -> Result<Option<(&[u8], u64)>, Fault> {
        let mut needed = 1;
        loop {
            let there =
                self.fill(at, needed).map_err(|e| Fault::io(format!("cannot read {}", self.path.display()), &e))?;
            if there == 0 {
                return Ok(None);
            }
            let begin = (at - self.from) as usize;
            let bytes = &self.bytes[begin..begin + there];
            match self.format.size(bytes) {
                Some(Err(why)) => return Err(self.wrong(&format!("{why}, at byte {at}"), "check `format`")),
                Some(Ok((size, _))) if size > BLOCK_BYTES_MAX => {
                    return Err(self.wrong(&format!("a block of {size} bytes begins at byte {at}"), "check `format`"));
                }
                Some(Ok((size, takes))) if size <= there => {
                    return Ok(Some((&self.bytes[begin..begin + size], at.saturating_add(takes as u64))));
                }
                Some(Ok((size, _))) if needed < size => needed = size,
                None if needed < HLD_HEADER => needed = HLD_HEADER,
                _ => {
                    let hint = format!("if its writer was killed, `truncate -s {at} FILE` removes the incomplete part");
                    return Err(self.wrong(&format!("it ends within what begins at byte {at}"), &hint));
                }
            }
        }
    }

    fn wrong(&self, cause: &str, hint: &str) -> Fault {
        let what = format!("{} is not a file of format `{}`", self.path.display(), self.format.word());
        Fault::new(what, cause).hint(hint)
    }

    /// Reads what begins at this byte, until `needed` bytes of it are there or the file ends; how many are there.
    fn fill(&mut self, at: u64, needed: usize) -> io::Result<usize> {
        let there = |bytes: &Vec<u8>, from: u64| {
            at.checked_sub(from).and_then(|before| bytes.len().checked_sub(usize::try_from(before).ok()?)).unwrap_or(0)
        };
        if there(&self.bytes, self.from) >= needed {
            return Ok(there(&self.bytes, self.from));
        }
        self.bytes.resize(needed.max(FILE_PIECE), 0);
        self.from = at;
        let mut read = 0;
        while read < self.bytes.len() {
            match self.file.read_at(&mut self.bytes[read..], at + read as u64) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    self.bytes.clear();
                    return Err(e);
                }
            }
        }
        self.bytes.truncate(read);
        Ok(read)
    }
}
