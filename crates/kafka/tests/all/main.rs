//! All tests of the crate from outside, in one program: linking it takes longer than running it.
#![cfg(feature = "client")]
#![allow(missing_docs)]

mod bulletin;
mod cluster;
mod group;
mod mock;
mod ours;
mod producer;
mod sink;
