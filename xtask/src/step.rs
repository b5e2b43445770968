//! One command that xtask runs: shown before it starts, watched line by line where somebody counts.
//!
//! A step that fails is an error value with the command in it; nothing is ever retried.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::{Done, tree};

/// A command in the repository's root.
pub(crate) struct Step {
    command: Command,
    text: String,
}

impl Step {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.current_dir(tree::root());
        Self { command, text: short(program) }
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        for arg in args {
            self.text = format!("{} {}", self.text, short(arg.as_ref()));
            self.command.arg(arg);
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it; what it prints goes where xtask's own output goes.
    pub(crate) fn run(mut self) -> Done {
        eprintln!("$ {}", self.text);
        let status = self.command.status().map_err(|e| format!("`{}` did not start: {e}", self.text))?;
        self.judge(status.code())
    }

    /// Runs it and answers the lines that it prints; its errors go where those of xtask go.
    pub(crate) fn lines(mut self) -> Done<Vec<String>> {
        eprintln!("$ {}", self.text);
        let run = self.command.stderr(Stdio::inherit()).output();
        let run = run.map_err(|e| format!("`{}` did not start: {e}", self.text))?;
        self.judge(run.status.code())?;
        Ok(String::from_utf8_lossy(&run.stdout).lines().map(str::to_owned).collect())
    }

    /// Runs it, hands each line it prints to `watch`, and passes the line on. Returns the exit status.
    pub(crate) fn watch(&mut self, watch: impl FnMut(&str) + Send) -> Done<Option<i32>> {
        eprintln!("$ {}", self.text);
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|e| format!("`{}` did not start: {e}", self.text))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let watch = Mutex::new(watch);
        // Both pipes are drained at once: a full one would stop the child for ever.
        std::thread::scope(|scope| {
            scope.spawn(|| pass_on(out, std::io::stdout(), &watch));
            scope.spawn(|| pass_on(err, std::io::stderr(), &watch));
        });
        let status = child.wait().map_err(|e| format!("`{}` was lost: {e}", self.text))?;
        Ok(status.code())
    }

    /// Becomes the command: signals, terminal and exit status are its own.
    pub(crate) fn become_it(mut self) -> Done {
        eprintln!("$ {}", self.text);
        Err(format!("`{}` did not start: {}", self.text, self.command.exec()))
    }

    /// Done for status 0, else the error that names the command.
    pub(crate) fn judge(&self, status: Option<i32>) -> Done {
        match status {
            Some(0) => Ok(()),
            Some(status) => Err(format!("`{}` ended with status {status}", self.text)),
            None => Err(format!("`{}` was killed", self.text)),
        }
    }
}

fn pass_on(pipe: Option<impl Read>, mut to: impl Write, watch: &Mutex<impl FnMut(&str)>) {
    let Some(pipe) = pipe else { return };
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while matches!(pipe.read_until(b'\n', &mut line), Ok(n) if n > 0) {
        // Nobody may be reading our output any more; the tests go on and their status counts.
        let _ = to.write_all(&line);
        if let Ok(mut watch) = watch.lock() {
            watch(String::from_utf8_lossy(&line).trim_end());
        }
        line.clear();
    }
}

/// A word of a command as a person would type it in the repository's root.
fn short(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let root = format!("{}/", tree::root().display());
    word.strip_prefix(&root).unwrap_or(&word).to_owned()
}
