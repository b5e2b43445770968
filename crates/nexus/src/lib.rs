//! The NeXus edge: streams to HDF5 files.
