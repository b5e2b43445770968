//! The NeXus edge: streams to HDF5 files.

pub mod limits;
pub mod template;
