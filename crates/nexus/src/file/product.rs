//! Size and hash of a finished file.

use crate::hdf::hash_tree::{Tree, root};
use flow::{Fault, Product};
use std::path::Path;

/// Size and BLAKE3 of a file; what is not known of its tree is read.
pub(crate) fn product(path: &Path, tree: Tree) -> Result<Product, Fault> {
    let (size, hash) = root(path, tree).map_err(|e| Fault::new(format!("cannot read {} again", path.display()), e))?;
    Ok(Product { file: path.display().to_string(), size, blake3: hash.to_hex().to_string(), files: 1, bytes: size })
}
