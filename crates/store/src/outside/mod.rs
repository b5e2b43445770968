//! The system, behind traits: media, clocks, files of others.

pub(crate) mod files;
pub(crate) mod foreign;
pub(crate) mod group;
pub mod media;
pub(crate) mod os;
pub(crate) mod steady;
