//! The wire format of beamport: bytes to types and back.
//!
//! A message is one FlatBuffers buffer with a file identifier of four letters, the schema id. There is a module
//! for each schema, named as its id in small letters (`s6s4t` for `6s4t`), with `ID`, a struct, `read` and `write`:
//!
//! ```
//! use beamport_wire::f144::{self, F144, Value};
//!
//! let mut buffer = Vec::new(); // reused from message to message: no allocation once warm
//! f144::write(&mut buffer, &F144 { source_name: "AMOR:SE:TEMP01", timestamp: 7, value: Value::from(1.5) })?;
//! let message = f144::read(&buffer)?;
//! assert_eq!(message.value, Value::from(1.5));
//! # Ok::<(), beamport_wire::Error>(())
//! ```
//!
//! Constraints: no I/O, no clock, no `unsafe`. The schemas as text lie in `schemas/`; fields are only ever
//! appended to them.
//!
//! Reading verifies the whole message in one call and returns a struct that borrows from the buffer; arrays are
//! never copied and may be unaligned (see [`Array`]). Bytes after the message are ignored.
//!
//! `bitshuffle` is no schema: bytes of arrays are packed so in files and frames.
//!
//! Failure: whatever the bytes, reading returns an [`Error`] or a message; it does not panic, and its work and
//! memory are bounded by the size of the buffer (see [`limits`]).

#![forbid(unsafe_code)]

#[macro_use]
mod part;

mod array;
mod as_json;
mod error;
mod field;
mod fields;
mod flat;
#[doc(hidden)]
pub mod fuzz;
mod histogram;
pub mod limits;
mod message;

pub mod ad00;
pub mod adar;
pub mod al00;
pub mod an44;
pub mod answ;
pub mod ar51;
pub mod bitshuffle;
pub mod bpas;
pub mod bpcm;
pub mod bpct;
pub mod bpdn;
pub mod bpgp;
pub mod bpgr;
pub mod bppv;
pub mod bprn;
pub mod bpst;
pub mod bptk;
pub mod da00;
pub mod datagram;
pub mod df12;
pub mod ep00;
pub mod ep01;
pub mod ev42;
pub mod ev43;
pub mod ev44;
pub mod f142;
pub mod f144;
pub mod fc00;
pub mod hs00;
pub mod hs01;
pub mod json;
pub mod ndar;
pub mod ns10;
pub mod pl72;
pub mod pu00;
pub mod rf5k;
pub mod s6s4t;
pub mod se00;
pub mod senv;
pub mod tdct;
pub mod un00;
pub mod vc00;
pub mod wrdn;
pub mod x5f2;

pub use array::{Array, DType, List, Number, Numbers, Scalar};
pub use as_json::{JsonError, of_json, to_json, to_json_within};
pub use error::Error;
pub use field::{Field, Fields};
pub use fields::{columns, fields, message_of, range_in};
pub use message::{KNOWN, Message, read};
pub use part::{Column, Kind};

/// The schema id of a message: bytes 4..8, or `None` where the buffer is too short to have one.
///
/// Whether anything else about the buffer is right is for `read` to say.
pub fn schema_id(bytes: &[u8]) -> Option<[u8; 4]> {
    bytes.get(4..)?.first_chunk().copied()
}
