//! The NeXus edge: streams to HDF5 files.
//!
//! [`template`] says what a file holds, [`Nexus`] writes it as a [`flow::Sink`]. This crate alone links libhdf5, and the
//! program `beamport-nexus` is the process in which it runs: what libhdf5 may do to a process, it does to that one.
//! [`Module`] is how schemas of others become datasets: docs/how-to/add-a-writer-module.md.

mod account;
pub mod cat;
mod chunk_tree;
pub mod clock;
mod column;
pub mod files;
pub mod filter;
mod h5;
mod handle;
mod lanes;
mod layout;
pub mod limits;
mod metadata;
mod module;
pub mod outside;
pub mod pace;
mod pages;
mod product;
mod program;
pub mod search;
pub mod serve;
mod sink;
mod sort;
mod static_file;
pub mod template;
mod tree;
mod watch;

pub use files::Files;
pub use h5::version;
pub use outside::{Dataset, Filler, Given, Last, Module, Rows, Wrong};
pub use program::program;
pub use sink::{Job, Nexus};

#[cfg(test)]
extern crate self as beamport_nexus;
#[cfg(test)]
mod many;
#[cfg(test)]
mod sealed;
#[cfg(test)]
mod whole;
