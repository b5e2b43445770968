//! Kafka as what carries streams between the hosts of an instrument.
//!
//! Each stream that another host reads has a topic `INSTRUMENT.STREAM` of one partition, whose records are blocks of
//! messages ([`store::Block`]). The near side, a live sink, puts them there; the far side, a source, fills a mirror.
//! Nothing else is exchanged but the posts of the bulletin (`bulletin`): order, durability, replication and access are
//! Kafka's.
//!
//! Exactly once: a message has (uuid, epoch, sequence), never used twice. The near side puts blocks into the partition
//! in rising order, and after any death reads the newest block there and goes on behind it. The far side drops what its
//! mirror has, which its entries say, and a block whose predecessor it has not is a hole.
//!
//! Failure behaviour: brokers that are away are the trouble of both sides, and streams keep the messages. Holes are in
//! the account of the mirror, with the sequences of the near stream.

#[cfg(feature = "client")]
mod bulletin;
#[cfg(feature = "client")]
mod far;
pub(crate) mod kinds;
#[cfg(feature = "client")]
mod near;
mod plan;
mod shared;
#[cfg(feature = "client")]
mod topics;
