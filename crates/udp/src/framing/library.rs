//! A framing in a shared library with the C interface of `include/beamport_framing.h`.
//!
//! Constraints: the library is loaded when a source is built, not when the file is read. It is called by one thread.
//!
//! Failure behaviour: what it answers is checked; what is not inside of the datagram is refused as `framing`. A
//! library that crashes takes the process with it.

use super::{Counter, Cut, Framing, Number, Read, Stamp, damaged, foreign};
use crate::limits::{FRAMING_VERSION, LIBRARY_CUTS};
use flow::Fault;
use std::path::Path;
use std::sync::Arc;
use store::{SchemaId, flags};

/// A message, as the library says it: `struct beamport_cut`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Said {
    number: u64,
    time: u64,
    first: u32,
    length: u32,
    origin: u32,
    schema: [u8; 4],
    has_number: u8,
    time_kind: u8,
    is_suspect: u8,
    tag: u8,
}

type CutCall = unsafe extern "C" fn(*const u8, usize, *mut Said, usize) -> i32;
type NumberCall = unsafe extern "C" fn() -> u64;
type VersionCall = unsafe extern "C" fn() -> i32;

/// A library that is loaded.
pub(crate) struct Library {
    cut: CutCall,
    wrap: u64,
    /// The calls are valid as long as it is there.
    _library: libloading::Library,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("wrap", &self.wrap).finish_non_exhaustive()
    }
}

impl Library {
    /// Loads it.
    pub(crate) fn load(path: &Path) -> Result<Self, Fault> {
        let what = || format!("cannot load the framing {}", path.display());
        let hint = "build it with the header include/beamport_framing.h: `cc -shared -fPIC -o libmine.so mine.c`";
        let cannot = |error: libloading::Error| Fault::new(what(), error).hint(hint);
        // SAFETY: the user names a library that is made for this; what it does when it is loaded is its own matter.
        let library = unsafe { libloading::Library::new(path) }.map_err(cannot)?;
        // SAFETY: the header declares the functions of these names with these types.
        let (version, cut, wrap) = unsafe {
            let version = *library.get::<VersionCall>(b"beamport_framing_version\0").map_err(cannot)?;
            let cut = *library.get::<CutCall>(b"beamport_framing_cut\0").map_err(cannot)?;
            let wrap = library.get::<NumberCall>(b"beamport_framing_wrap\0").map(|wrap| *wrap).ok();
            (version, cut, wrap)
        };
        // SAFETY: the functions take nothing, and the library is loaded.
        let (version, wrap) = unsafe { (version(), wrap.map_or(0, |wrap| wrap())) };
        if version != FRAMING_VERSION {
            let cause = format!("it has version {version} of the interface, this program has {FRAMING_VERSION}");
            return Err(Fault::new(what(), cause).hint("build it again with the header of this version"));
        }
        Ok(Self { cut, wrap: if wrap < 2 { 0 } else { wrap }, _library: library })
    }
}

/// The framing of one port.
pub(crate) struct ByLibrary {
    library: Arc<Library>,
    said: Box<[Said; LIBRARY_CUTS]>,
}

impl ByLibrary {
    pub(crate) fn new(library: Arc<Library>) -> Self {
        Self { library, said: Box::new([Said::default(); LIBRARY_CUTS]) }
    }
}

impl Framing for ByLibrary {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        // SAFETY: the library reads `datagram` and writes at most as many messages as there is room for.
        let count =
            unsafe { (self.library.cut)(datagram.as_ptr(), datagram.len(), self.said.as_mut_ptr(), LIBRARY_CUTS) };
        let Ok(count) = usize::try_from(count) else {
            return if count == -1 { foreign("foreign") } else { damaged("damaged") };
        };
        let Some(said) = self.said.get(..count) else { return foreign("framing") };
        for one in said {
            let (first, length) = (one.first as usize, one.length as usize);
            let end = first.checked_add(length).filter(|end| *end <= datagram.len());
            let stamp = match one.time_kind {
                1 => i64::try_from(one.time).map_or(Stamp::Ticks(one.time), Stamp::Epoch),
                2 => Stamp::Ticks(one.time),
                _ => Stamp::Arrival,
            };
            let (Some(end), true) = (end, one.schema.iter().all(u8::is_ascii_alphanumeric)) else {
                cuts.clear();
                return foreign("framing");
            };
            let head = &datagram[..first.max(1).min(datagram.len())];
            let number = match one.has_number {
                0 => Number::Arrival,
                _ => Number::Board { shown: one.number, mark: store::crc32c(head) },
            };
            let suspect = if one.is_suspect > 0 { flags::SUSPECT } else { 0 };
            cuts.push(Cut {
                number,
                numbering: one.origin,
                stamp,
                schema: SchemaId(one.schema),
                flags: suspect | flags::of_source(one.tag),
                crc: None,
                payload: first..end,
            });
        }
        Read::Whole
    }

    fn counter(&self) -> Counter {
        Counter { wrap: Some(self.library.wrap).filter(|wrap| *wrap > 0), is_checked: false }
    }
}
