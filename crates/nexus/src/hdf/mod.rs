//! HDF5: files, datasets and attributes, without what a template or a schema says of them.

pub(crate) mod chunk_tree;
pub(crate) mod column;
pub mod filter;
pub(crate) mod h5;
pub(crate) mod handle;
pub(crate) mod hash_tree;
pub(crate) mod lanes;
#[cfg(test)]
pub(crate) mod look;
pub(crate) mod metadata;
pub(crate) mod names;
pub(crate) mod pages;
pub(crate) mod place;
pub(crate) mod value;

use flow::Fault;
use h5::File;
use handle::FileHandle;
use metadata::{Apply, lock};

/// Has libhdf5 write its metadata, and writes that.
pub(crate) fn write_metadata(file: &File, handle: &mut FileHandle, what: Apply) -> Result<(), Fault> {
    file.flush()?;
    if let Some(held) = file.held() {
        lock(&held).apply(handle, what)?;
    }
    handle.sync()
}
