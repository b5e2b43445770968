//! `[sink.NAME] kind = "kafka"`: streams into topics, each message once and in the order of its origin.

#[cfg(feature = "client")]
mod look;
mod section;
#[cfg(feature = "client")]
mod send;
#[cfg(feature = "client")]
mod state;
#[cfg(feature = "client")]
mod topics;

pub use section::SINK;
