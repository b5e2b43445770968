//! The process that writes a NeXus file. It alone links libhdf5; its end is its own.
//!
//! ```text
//! beamport-nexus write --data DIR --sink NAME --run RUN --input STREAM... --template FILE --output FILE
//!                      [--flush-ms N] [--detached]
//! ```
//! It reads the streams itself (`flow::Feed`), keeps its commits in `NAME.commits` (not with `--detached`), waits while
//! the run goes on, and ends when the sealed run is in the file. The last line on stdout is
//! `{"file","size","sha256","account"}`. Exit 0 done, 2 a fault on stderr. It dies with its parent.

use crate::file::SinkSection;
use flow::Fault;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The program, beside our own.
pub fn program() -> Result<PathBuf, Fault> {
    let me = std::env::current_exe().map_err(|e| Fault::new("our own program cannot be found", e))?;
    let beside = me.with_file_name("beamport-nexus");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Fault::new("`beamport-nexus` is not there", format!("it is not beside {}", me.display()))
        .hint("install with `pip install .`, or build both with `cargo xtask build`"))
}

/// What a writer is asked to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// Data folder.
    pub data: PathBuf,
    /// Name of the sink.
    pub sink: String,
    /// Run.
    pub run: String,
    /// Streams.
    pub inputs: Vec<String>,
    /// NeXus structure.
    pub template: PathBuf,
    /// The file to be written.
    pub output: PathBuf,
    /// Milliseconds between flushes.
    pub flush_ms: u128,
    /// No positions, no commits: a file beside the sink's own.
    pub detached: bool,
}

impl Job {
    /// The work of a sink on a run.
    pub fn of(sink: &SinkSection, data: &Path, instrument: &str, run: &str) -> Self {
        Self {
            data: data.to_path_buf(),
            sink: sink.name.clone(),
            run: run.to_string(),
            inputs: sink.inputs.value.clone(),
            template: sink.template.value.clone(),
            output: sink.folder.join(sink.file.replace("{instrument}", instrument).replace("{run}", run)),
            flush_ms: sink.flush.as_millis(),
            detached: false,
        }
    }

    /// Starts the process; its answer goes to the end of `output`.
    pub fn start_into(&self, output: &mut std::fs::File) -> Result<Child, Fault> {
        if let Some(folder) = self.output.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|e| Fault::new(format!("folder `{}` cannot be made", folder.display()), e))?;
        }
        let mut command = Command::new(program()?);
        command.arg("write").arg("--data").arg(&self.data).args(["--sink", &self.sink, "--run", &self.run]);
        for input in &self.inputs {
            command.args(["--input", input]);
        }
        command.arg("--template").arg(&self.template).arg("--output").arg(&self.output);
        command.args(["--flush-ms", &self.flush_ms.to_string()]);
        if self.detached {
            command.arg("--detached");
        }
        let out = output.try_clone().map_err(|e| Fault::new("the writer's answer cannot be kept", e))?;
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::inherit());
        command.spawn().map_err(|e| Fault::new(format!("the writer of sink `{}` cannot start", self.sink), e))
    }
}
