//! Files of a stream's folder and of its live place, byte for byte; `docs/reference/stream-format.md` has the same for
//! a second implementation. Change both together.
//!
//! ```text
//! STREAM/   stream   header: text, one `key value` a line, last line `crc32c HEX` over all before it
//!           origins  origin table: a line a row, `HEX name` (CRC-32C of the name), row = line number
//!           parents  the same for the streams that a view points into: `UUID EPOCH NAME`, row = line number from 1
//!           pins     readers: 256 B of words, then places of 256 B (mapped by readers for writing)
//!           lock     held by the one writer
//!           commit   two commit records of 64 B at 0 and 4096 (disk streams)
//!           p-XXXXXXXX i-XXXXXXXX   payload and index segments (hexadecimal number)
//! live/     head     control page of 4096 B (mapped by readers read-only)
//!           p-XXXXXXXX i-XXXXXXXX   the same segments while they are in shared memory
//! ```

pub(crate) mod bit_repair;
pub(crate) mod block;
pub(crate) mod commit;
pub(crate) mod control_page;
pub(crate) mod crc;
pub(crate) mod entry;
pub(crate) mod header;
pub(crate) mod names;
pub(crate) mod parents;
pub(crate) mod recovery;
pub(crate) mod segments;
