//! Python code of the user: which interpreter runs it, whether it can be loaded, and the copy of its files.

mod copied;
mod files;

pub use copied::Copied;
pub(crate) use copied::{Originals, copy};
pub use files::file_of;
pub(crate) use files::{find_files, hash_files};

use crate::limits::{DECLARED_BYTES_MAX, LOAD_NAP};
use flow::{Fault, Passes};
use serde::Serialize;
use serde_json::Value;
use settings::units::{Refused, duration_text, shortened};
use settings::{Take, noun};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use toml_edit::Item;

/// A JSON object.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters(pub Value);

impl Default for Parameters {
    fn default() -> Self {
        Self(Value::Object(serde_json::Map::new()))
    }
}

impl Take for Parameters {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint =
            "write `[worker.NAME.parameters]` or `[source.NAME.parameters]`, and below it lines like `threshold = 3`";
        if item.as_table_like().is_none() {
            return Err(Refused::new(format!("expected a table, found {}", noun(item)), hint));
        }
        settings::json_of(item)
            .map(Self)
            .ok_or_else(|| Refused::new("a value is not a number, text, list or table", hint))
    }
    fn default_of(text: &str) -> Option<Self> {
        (text == "{}").then(Self::default)
    }
    fn show(&self) -> Value {
        self.0.clone()
    }
}

/// The interpreter in which the package is: the one beside our own program, where it was installed with it.
pub(crate) fn python() -> PathBuf {
    let beside = std::env::current_exe().map(|me| me.with_file_name("python3"));
    beside.ok().filter(|path| path.exists()).unwrap_or_else(|| "python3".into())
}

/// The interpreter that a file names: a name is looked for in PATH, a path from the folder of the file.
pub(crate) fn named_python(text: &str, folder: &Path) -> PathBuf {
    if text.contains('/') { folder.join(text) } else { text.into() }
}

/// Says why code of the user is not there: a FILE in the folder, or a module, and a name in it.
pub(crate) fn check_call(call: &str, folder: &Path) -> Result<(), Refused> {
    match call.rsplit_once(':') {
        Some((file, name)) if !name.is_empty() && file.ends_with(".py") && !folder.join(file).is_file() => {
            let cause = format!("no file {}", folder.join(file).display());
            Err(Refused::new(cause, "name a file beside the instrument file"))
        }
        Some((file, name)) if !file.is_empty() && !name.is_empty() => Ok(()),
        _ => {
            let cause = format!("`{}` names no function", shortened(call));
            Err(Refused::new(cause, "write it like \"mine.py:function\""))
        }
    }
}

/// A process of Python that runs a module of the package `beamport` with a job. `what`: what fails where the job cannot
/// be written.
pub(crate) fn command(python: &Path, module: &str, what: &str, job: &impl Serialize) -> Result<Command, Fault> {
    let job = serde_json::to_string(job)
        .map_err(|e| Fault::new(what, e).hint("rename the folder or file that is not valid UTF-8"))?;
    let mut command = Command::new(python);
    command.args(["-m", module]).arg(job).stdin(Stdio::null()).process_group(0);
    Ok(command)
}

/// Where a program does not start: which it is.
pub(crate) fn interpreted(python: &Path) -> String {
    format!("its interpreter is {}; `python` sets another", python.display())
}

/// How a process ended, for people.
pub(crate) fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    }
}

/// A process that only loads code, and says what is wrong with it.
pub(crate) struct Loading<'a> {
    /// The stage, for people.
    pub(crate) whose: &'a str,
    /// The code.
    pub(crate) call: &'a str,
    /// The interpreter.
    pub(crate) python: &'a Path,
    /// The module of the package.
    pub(crate) module: &'a str,
    /// Variables of its environment.
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// How long it may take.
    pub(crate) patience: Duration,
    /// Looked at meanwhile: true ends it.
    pub(crate) ends: &'a dyn Fn() -> bool,
}

impl Loading<'_> {
    /// Loads the code; the answer is what it declares. The fault is [`Passes::Soon`] where that takes longer than the
    /// patience.
    pub(crate) fn load(&self, job: &impl Serialize) -> Result<Value, Fault> {
        let what = format!("cannot load `{}`", self.call);
        let fault = |e: std::io::Error| Fault::new(&what, e).hint(interpreted(self.python));
        let mut command = command(self.python, self.module, &what, job)?;
        command.envs(self.environment).stdout(Stdio::piped());
        let mut child = store::printed::spawn(command, self.whose, false).map_err(fault)?;
        let Some(status) = self.end_of(&mut child).map_err(fault)? else {
            let late = || format!("it takes longer than {}", duration_text(self.patience));
            let why = if (self.ends)() { "interrupted".to_owned() } else { late() };
            return Err(Fault { passes: Passes::Soon, ..Fault::new(what, why) });
        };
        if !status.success() {
            if !self.has_package() {
                let hint = "install beamport for it, or name another interpreter with `python`";
                let cause = format!("{} has no module `beamport`", self.python.display());
                return Err(Fault::new(what, cause).hint(hint));
            }
            return Err(Fault::new(what, ended(status)).hint("see its output above; fix the code or the parameters"));
        }
        let mut line = String::new();
        if let Some(said) = child.stdout.take() {
            BufReader::new(said.take(DECLARED_BYTES_MAX)).read_line(&mut line).map_err(fault)?;
        }
        self.answer(what, serde_json::from_str(&line).unwrap_or_default())
    }

    /// The answer of the process, or what is wrong with the code.
    fn answer(&self, what: String, said: Value) -> Result<Value, Fault> {
        if let Some(wrong) = said["wrong"].as_str() {
            return Err(Fault::new(what, wrong).hint(said["hint"].as_str().unwrap_or("fix the code")));
        }
        if let Some(misfit) = said["misfit"].as_str() {
            let what = format!("`{}` rejects its parameters", self.call);
            let takes: Vec<&str> = said["takes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let hint = match takes.as_slice() {
                [] => "remove them: it takes no parameters".to_owned(),
                names => format!("it takes `{}`", names.join("`, `")),
            };
            return Err(Fault::new(what, misfit).hint(hint));
        }
        Ok(said)
    }

    /// How a process ends; none where it does not end in time, and is killed.
    fn end_of(&self, child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
        let began = Instant::now();
        loop {
            match child.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if (self.ends)() || began.elapsed() > self.patience => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Ok(None);
                }
                None => std::thread::sleep(LOAD_NAP),
            }
        }
    }

    /// True if the interpreter has the package, or that is not known.
    fn has_package(&self) -> bool {
        let mut command = Command::new(self.python);
        command.args(["-c", "import beamport"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.spawn().and_then(|mut child| self.end_of(&mut child));
        status.ok().flatten().is_none_or(|status| status.success())
    }
}
