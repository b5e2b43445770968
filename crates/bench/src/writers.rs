//! Writers of the streams that are measured, and what they append.

use super::place::wrong;
use flow::Fault;
use std::path::Path;
use std::time::Duration;
use store::{Error, Meta, Options, Os, SchemaId, Writer};

/// The metadata of every message of the measurements.
pub(crate) const META: Meta =
    Meta { source_time: 1_700_000_000_000_000_000, origin: 0, origin_seq: 0, schema: SchemaId(*b"ev44"), flags: 0 };
/// An ESS event message of 1 kB to 10 kB: the size of a jumbo frame's payload.
pub(crate) const JUMBO_BYTES: usize = 8800;
/// Messages that become visible together where a row says so.
pub(crate) const BATCH: u64 = 64;

/// A stream of one origin.
pub(crate) fn open(folder: &Path, options: &Options) -> Result<Writer, Fault> {
    named(folder, "bench", options)
}

/// The same of this name, and from an origin of this name.
pub(crate) fn named(folder: &Path, name: &str, options: &Options) -> Result<Writer, Fault> {
    let mut writer = Writer::open(&Os::shared(), folder, name, options).map_err(wrong("the stream cannot be made"))?;
    // That of row 0, as in every stream of a source.
    writer.origin(name).map_err(wrong("the origin"))?;
    Ok(writer)
}

/// Appends `count` messages of `piece`, publishing every `batch`; waits where there is no room.
pub(crate) fn append(writer: &mut Writer, piece: &[u8], count: u64, batch: u64) -> Result<(), Error> {
    let mut meta = META;
    for i in 1..=count {
        meta.origin_seq = i;
        while let Err(error) = writer.push(&meta, &[piece]) {
            match error {
                e if e.is_full() => writer.wait_room(Duration::from_millis(10)),
                other => return Err(other),
            }
        }
        if i % batch == 0 {
            writer.publish();
        }
    }
    writer.publish();
    Ok(())
}
