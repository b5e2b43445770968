//! The part of FlatBuffers that our schemas need: tables, scalars, strings, numeric vectors, vectors of
//! tables and of strings, unions of tables. No structs, no nested buffers, no size prefix.
//!
//! Bytes (all little-endian, all positions from the start of the message):
//!
//! ```text
//! 0   u32      position of the root table
//! 4   [u8;4]   file identifier, the schema id
//!     vtable:  u16 its bytes, u16 bytes of the table, then per field id u16 place in the table (0 = absent)
//!     table:   i32 distance back to its vtable, then fields; scalars in place, all else u32 distance forward
//!     string:  u32 bytes, bytes, 0        vector: u32 elements, elements
//! ```
//!
//! Reading trusts nothing: every access is checked against the buffer, lists have limits, and a budget bounds
//! the total work, because offsets may point anywhere, also to what was read before. Bytes after the message
//! are ignored (some senders send their whole buffer).
//!
//! Writing goes forward, parents before children, into one reused `Vec` or into given room: offsets point forward, so a slot is
//! filled in when its target is placed. (The usual builders write backward to know the size of children first.)

mod read;
mod write;

pub(crate) use read::{Message, Table};
pub(crate) use write::{Count, Out, Room, Writer};
