//! The copies of the code of workers: see `crate::code`.

use crate::code::{Copied, Originals, copy};
use crate::file::{Code, WorkerSection};
use flow::Fault;
use std::path::Path;

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
