//! The place of a file: the name under which it is laid out, and its folder.

use flow::Fault;
use std::path::{Path, PathBuf};

/// Where a file is laid out before it has its name.
pub(crate) fn beside(file: &Path) -> Result<PathBuf, Fault> {
    let name = file.file_name().ok_or_else(|| Fault::new(format!("{} is not a file's name", file.display()), ""))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    Ok(file.with_file_name(hidden))
}

/// Nothing is at this name from here on: what a link there leads to is not ours to write on.
pub(crate) fn cleared(path: &Path) -> Result<(), Fault> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            let hint = "look whether the folder can be written to, and whether a folder has this name";
            Err(Fault::new(format!("cannot remove {}", path.display()), e).hint(hint))
        }
        _ => Ok(()),
    }
}

pub(crate) fn sync_folder(file: &Path) -> std::io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::File::open(folder)?.sync_all()
}
