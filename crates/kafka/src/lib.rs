//! Kafka topics as sources and as a live sink: `kind = "kafka"`; a producer; topics of commands for services (`group`).
//!
//! Constraints: a source has no consumer group, and commits nothing to a broker: where it stands is its state beside
//! its stream. Groups are for services that share a topic of commands (`group`). No
//! thread of its own: librdkafka's threads fetch, and wake the source by an eventfd. A payload is copied once, from the
//! buffer in which librdkafka received it into stream memory.
//!
//! Only with the feature `client` does the crate link librdkafka; without it a section is read and refused.
//!
//! Failure behaviour: brokers that are away and a topic that is not there are the source's trouble, and it goes on when
//! they are. A topic that was deleted or must not be read, and offsets that are not there any more are a fault: the
//! source starts again and says at its start what is lost. A message of a sink of ours that comes twice is dropped and
//! counted.

#[cfg(feature = "client")]
mod asking;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
pub mod group;
#[cfg(feature = "client")]
mod header;
mod kinds;
#[cfg(feature = "client")]
mod librdkafka;
mod limits;
mod mirror;
#[cfg(feature = "client")]
mod origins;
#[cfg(feature = "client")]
mod partition;
mod plan;
#[cfg(feature = "client")]
mod probe;
#[cfg(feature = "client")]
mod producer;
mod property;
#[cfg(feature = "client")]
mod seen;
mod sink;
#[cfg(feature = "client")]
mod source;
#[cfg(feature = "client")]
mod state;
#[cfg(feature = "client")]
mod trouble;

pub use kinds::{SINK, SOURCE};
#[cfg(feature = "client")]
pub use librdkafka::{Kind, Unsent, Wrong};
pub use mirror::kinds::CARRIER;
pub use plan::{wrong_brokers, wrong_topic};
#[cfg(feature = "client")]
pub use producer::{Message, Producer, Report};
pub use property::{is_reserved, is_secret};

/// Version of librdkafka, and what it was built with; `None` where this program was built without it.
#[must_use]
pub fn library() -> Option<(String, String)> {
    #[cfg(feature = "client")]
    return Some(librdkafka::version());
    #[cfg(not(feature = "client"))]
    None
}
