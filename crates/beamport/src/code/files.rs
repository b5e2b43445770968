//! Files among the parameters of code: `{ file = "PATH" }`, relative to the instrument file.

use flow::Fault;
use serde_json::{Value, json};
use settings::units::{Refused, shortened};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The file that a parameter names, `{ file = "PATH" }`.
#[must_use]
pub fn file_of(parameter: &Value) -> Option<&str> {
    let object = parameter.as_object()?;
    let is_file = object.keys().all(|key| key == "file" || key == "sha256");
    object.get("file")?.as_str().filter(|_| is_file)
}

/// Gives the files among parameters their whole paths, from the folder of the instrument file; the answer names those
/// that are not there.
pub(crate) fn find_files(folder: &Path, parameters: &mut Value) -> Vec<Refused> {
    let mut refused = Vec::new();
    for (name, value) in parameters.as_object_mut().into_iter().flatten() {
        let Some(path) = file_of(value).map(|file| folder.join(file)) else { continue };
        match std::path::absolute(&path) {
            Ok(path) if path.is_file() => *value = json!({"file": path.to_string_lossy()}),
            _ => {
                let cause = format!("`{}` has no file {}", shortened(name), path.display());
                refused.push(Refused::new(cause, "correct the path: it is relative to the instrument file"));
            }
        }
    }
    refused
}

/// Adds their SHA-256 to the files among parameters: code refuses a file that has changed since.
pub(crate) fn hash_files(whose: &str, parameters: &mut Value) -> Result<(), Fault> {
    for (name, value) in parameters.as_object_mut().into_iter().flatten() {
        let Some(path) = file_of(value).map(PathBuf::from) else { continue };
        let what = || format!("cannot read `{name}` of {whose}, {}", path.display());
        let mut sha = Sha256::new();
        let copied = std::fs::File::open(&path).and_then(|mut file| std::io::copy(&mut file, &mut sha));
        copied.map_err(|e| Fault::io(what(), &e))?;
        *value = json!({"file": path.to_string_lossy(), "sha256": store::hex(&sha.finalize())});
    }
    Ok(())
}
