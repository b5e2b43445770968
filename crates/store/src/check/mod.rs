//! Checking every byte of a stream, and mending what can be mended.

pub(crate) mod repair;
pub(crate) mod verify;
