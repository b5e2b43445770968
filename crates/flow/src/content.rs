//! The hash of what a sink wrote of a run, which does not depend on order.
//!
//! Two files of one run or interval have different bytes: the name of the run is in them, messages of several origins
//! arrive in another order, chunks have other places. Their content is equal if the same messages were given to the
//! sink (decision 0026): the sum, modulo 2^64, over all messages of H(origin) × M(schema, number, source time, length,
//! CRC-32C of the payload). Sums of inputs add up to that of the sink, and a commit keeps them.

use store::{Entry, Message, Reader, mix};

/// The messages of one input.
#[derive(Default)]
pub(crate) struct Content {
    /// H of each row of the table of origins, 0 where it was not asked for.
    origins: Vec<u64>,
    /// The messages of a batch.
    batch: Vec<Added>,
}

/// A message whose checksum may still have the salt of its place.
struct Added {
    /// Row of its origin.
    origin: u32,
    /// Hash of all but the payload.
    hash: u64,
    payload: Payload,
}

enum Payload {
    /// The salted checksum, of this entry and sequence.
    Salted(Entry, u64),
    /// The checksum.
    Sum(u32),
}

impl Content {
    /// Adds a message that was given to the sink to those of the batch.
    #[inline]
    pub(crate) fn add(&mut self, message: &Message<'_>) {
        let entry = message.entry;
        let schema = u64::from(u32::from_le_bytes(entry.schema.0)) << 32;
        let fields = [entry.origin_seq, entry.source_time as u64, schema | u64::from(entry.length)];
        let hash = fields.into_iter().fold(0, and);
        // The checksum of a view entry has the salt of another stream.
        let payload = match entry.parent {
            0 => Payload::Salted(*entry, message.sequence),
            _ => Payload::Sum(store::crc32c(message.payload)),
        };
        self.batch.push(Added { origin: entry.origin, hash, payload });
    }

    /// The sum over the messages added since the last call, which `reader` has read: it knows all their epochs now.
    pub(crate) fn sum(&mut self, reader: &mut Reader) -> u64 {
        let Self { origins, batch } = self;
        batch.drain(..).fold(0, |total, Added { origin, hash, payload }| {
            let sum = match payload {
                Payload::Sum(sum) => sum,
                Payload::Salted(entry, sequence) => {
                    let header = reader.header();
                    entry.payload_sum(&header.uuid, header.epoch_of(sequence), sequence)
                }
            };
            let (at, hash) = (origin as usize, and(hash, sum.into()));
            if origins.len() <= at {
                origins.resize(at + 1, 0);
            }
            if origins[at] == 0 {
                origins[at] = hash_of(reader.origin(origin));
            }
            total.wrapping_add(origins[at].wrapping_mul(hash))
        })
    }
}

/// A hash and one field more.
fn and(hash: u64, field: u64) -> u64 {
    mix(hash ^ field)
}

/// H of an origin, which is odd: no message of it is multiplied away.
fn hash_of(origin: &str) -> u64 {
    // FNV-1a of 64 bits (Fowler, Noll, Vo).
    let of_byte = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    mix(origin.bytes().fold(0xCBF2_9CE4_8422_2325, of_byte)) | 1
}
