//! `kind = "python"`: code of the user that yields messages, in a process of its own (decision 0034).

mod account;
mod process;
mod source;

use crate::code::{
    Copied, Loading, Originals, Parameters, check_call, copy, find_files, hash_files, named_python, python,
};
use flow::edge::{Host, SourceKind, SourcePlan};
use flow::job::SlotCode;
use flow::{Fault, Source, SourceLoadJob};
use serde_json::Value;
use settings::{Key, Section, Setting, key, required};
use source::PythonSource;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

static CALL: Key = required(
    "call",
    "`FILE.py:NAME` or `PACKAGE.MODULE:NAME`",
    "The generator, asynchronous generator or class that yields messages. A FILE is relative to the instrument file.",
);
static PARAMETERS: Key = key(
    "parameters",
    "table",
    "{}",
    "Keyword arguments of the function or of the class; `{ file = \"PATH\" }` is a file.",
);
static PYTHON: Key =
    key("python", "path", "", "The interpreter. Default: the one that `beamport` is installed with, else `python3`.");

/// The kind `python`.
pub(super) static SOURCE: SourceKind = SourceKind {
    name: "python",
    about: "Python code of your own that yields messages: docs/how-to/write-a-source-in-python.md.",
    keys: &[&CALL, &PARAMETERS, &PYTHON],
    read,
    more: None,
};

/// The module of the package that runs the code.
static MODULE: &str = "beamport._source";

/// A section of kind `python`.
#[derive(Debug)]
struct Plan {
    name: String,
    call: String,
    folder: PathBuf,
    parameters: Value,
    python: Option<PathBuf>,
    /// The data folder.
    data: OnceLock<PathBuf>,
    code: Mutex<Option<Code>>,
}

/// The copy of the code that all processes load until the program ends.
#[derive(Debug)]
struct Code {
    copied: Option<Copied>,
    originals: Originals,
    /// With the hashes of files among them.
    parameters: Value,
}

fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let call: Setting<String> = section.need(&CALL);
    if !call.is_empty()
        && let Err(refused) = check_call(&call, section.folder)
    {
        section.refuse(&CALL, refused);
    }
    let mut parameters: Setting<Parameters> = section.need(&PARAMETERS);
    for refused in find_files(section.folder, &mut parameters.value.0) {
        section.refuse(&PARAMETERS, refused);
    }
    let python: Option<Setting<String>> = section.get(&PYTHON);
    Some(Arc::new(SharedPlan(Arc::new(Plan {
        name: name.to_owned(),
        call: call.value,
        folder: section.folder.to_owned(),
        parameters: parameters.value.0,
        python: python.map(|text| named_python(&text, section.folder)),
        data: OnceLock::new(),
        code: Mutex::new(None),
    }))))
}

/// A plan that its sources share.
#[derive(Debug)]
struct SharedPlan(Arc<Plan>);

impl SourcePlan for SharedPlan {
    fn prepare(&self, host: &dyn Host) -> Result<(), Fault> {
        let _ = self.0.data.set(host.folder().to_owned());
        Ok(())
    }

    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(PythonSource::new(self.0.clone())))
    }

    fn check_code(&self, patience: Duration) -> Result<(), Fault> {
        self.0.load(None, patience)
    }

    /// The stream `NAME.yielded` is as large as the one that the source fills.
    fn beside_bytes(&self, live: u64) -> u64 {
        live
    }
}

impl Plan {
    fn whose(&self) -> String {
        format!("source `{}`", self.name)
    }

    fn python(&self) -> PathBuf {
        self.python.clone().unwrap_or_else(python)
    }

    fn data(&self) -> &Path {
        self.data.get().map_or(Path::new(""), PathBuf::as_path)
    }

    /// The code as its process gets it; the copy of its files is made once.
    fn copied_code(&self) -> Result<SlotCode, Fault> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        if code.is_none() {
            let (copied, originals) = copy(self.data(), &self.whose(), &self.call, &self.folder)?.unzip();
            let mut parameters = self.parameters.clone();
            hash_files(&self.whose(), &mut parameters)?;
            *code = Some(Code { copied, originals: originals.unwrap_or_default(), parameters });
        }
        Ok(self.code_of(code.as_ref()))
    }

    /// Names of the files of the code that were edited since it was copied, once.
    fn edited(&self) -> Vec<String> {
        let mut code = self.code.lock().unwrap_or_else(PoisonError::into_inner);
        code.as_mut().map(|code| code.originals.changed()).unwrap_or_default()
    }

    fn code_of(&self, code: Option<&Code>) -> SlotCode {
        SlotCode {
            call: self.call.clone(),
            folder: self.folder.clone(),
            copied: code.and_then(|code| code.copied.as_ref()).map(|copied| copied.in_job(self.data())),
            parameters: code.map_or(&self.parameters, |code| &code.parameters).clone(),
        }
    }

    /// Loads the code in a process of its own: says what is wrong.
    fn load(&self, code: Option<SlotCode>, patience: Duration) -> Result<(), Fault> {
        let job = SourceLoadJob { parent: std::process::id(), code: code.unwrap_or_else(|| self.code_of(None)) };
        let (whose, python) = (self.whose(), self.python());
        let loading = Loading {
            whose: &whose,
            call: &self.call,
            python: &python,
            module: MODULE,
            environment: &BTreeMap::new(),
            patience,
            ends: &|| false,
        };
        loading.load(&job).map(drop)
    }
}
