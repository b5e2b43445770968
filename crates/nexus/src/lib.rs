//! The NeXus edge: streams to HDF5 files.
//!
//! [`template`] says what a file holds, [`Nexus`] writes it as a [`flow::Sink`]. This crate alone links libhdf5, and the
//! program `beamport-nexus` is the process in which it runs: what libhdf5 may do to a process, it does to that one.
//! [`Module`] is how schemas of others become datasets: docs/how-to/add-a-writer-module.md.

pub mod clock;
mod file;
mod hdf;
pub mod limits;
mod module;
mod node;
pub mod pace;
mod program;
mod read;
mod sort;
mod static_file;
pub mod template;

pub use file::files::{self, Files};
pub use file::job::Job;
pub use file::sink::Nexus;
pub use hdf::filter;
pub use hdf::h5::version;
pub use module::user::{self, Dataset, Filler, Given, Last, Module, Rows, Wrong};
pub use program::{program, serve};
pub use read::{cat, search};

#[cfg(test)]
extern crate self as beamport_nexus;
#[cfg(test)]
mod tests;
