//! `[sink.NAME] kind = "kafka"`: streams into topics, each message once and in the order of its origin.

#[cfg(feature = "client")]
mod look;
#[cfg(feature = "client")]
mod send;
#[cfg(feature = "client")]
mod state;
#[cfg(feature = "client")]
mod topics;

#[cfg(feature = "client")]
pub(crate) use send::Kafka;
