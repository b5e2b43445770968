//! The copies of the code of workers: see `crate::code`.

use crate::code::{Copied, Originals, copy};
use crate::file::{Code, WorkerSection, file_of};
use flow::Fault;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The copies that a worker has made since `beamport up` began: one that is started again takes up no edited file.
#[derive(Default)]
pub(super) struct Copies {
    known: Vec<(Code, Option<Copied>)>,
    originals: Originals,
}

impl Copies {
    /// The copy of a section's code, which is made if there is none.
    pub(super) fn of(&mut self, data: &Path, section: &WorkerSection) -> Result<Option<Copied>, Fault> {
        let code = key(section);
        if let Some((_, copied)) = self.known.iter().rev().find(|(known, _)| *known == code) {
            return Ok(copied.clone());
        }
        let whose = format!("worker `{}`", section.name);
        let made = match section.is_python() {
            true => copy(data, &whose, &section.python_call(), &section.folder)?,
            false => None,
        };
        let (copied, originals) = made.unzip();
        self.originals = originals.unwrap_or_default();
        self.known.push((code, copied.clone()));
        Ok(copied)
    }

    /// Records that a section continues with the code of a shadow, and with its copy.
    pub(super) fn take(&mut self, section: &WorkerSection) {
        self.originals = Originals::default();
        self.known.push((key(section), section.copied.clone()));
    }

    /// The files that have other bytes than the copy, the first time that there are any.
    pub(super) fn changed(&mut self) -> Vec<String> {
        self.originals.changed()
    }
}

fn key(section: &WorkerSection) -> Code {
    Code { call: section.python_call(), copied: None, ..section.code() }
}

/// Adds their SHA-256 to the files among parameters: commits and runs say which content the code had.
pub(super) fn hash_files(worker: &str, parameters: &mut Value) -> Result<(), Fault> {
    for (name, value) in parameters.as_object_mut().into_iter().flatten() {
        let Some(path) = file_of(value).map(PathBuf::from) else { continue };
        let what = || format!("cannot read `{name}` of worker `{worker}`, {}", path.display());
        let mut sha = Sha256::new();
        let copied = std::fs::File::open(&path).and_then(|mut file| std::io::copy(&mut file, &mut sha));
        copied.map_err(|e| Fault::io(what(), &e))?;
        *value = json!({"file": path.to_string_lossy(), "sha256": store::hex(&sha.finalize())});
    }
    Ok(())
}
