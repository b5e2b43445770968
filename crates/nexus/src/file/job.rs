//! The description of a NeXus file.

use crate::hdf::h5::File;
use crate::template::Template;
use flow::Fault;
use std::path::PathBuf;

/// A NeXus file to write: its template, its inputs and its run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Path of the file.
    pub file: PathBuf,
    /// Groups, datasets and modules of the file.
    pub template: Template,
    /// Names of the streams; their places are the input numbers of [`Sink::write`].
    pub inputs: Vec<String>,
    /// Name of the run.
    pub run: String,
    /// Its identity, hexadecimal.
    pub run_id: String,
    /// Begin of the run, ns since 1970 UTC.
    pub start: i64,
    /// The user's metadata of the run, JSON text; may be empty.
    pub metadata: String,
}

impl Job {
    /// Checks for what [`Nexus::begin`](super::sink::Nexus::begin) refuses permanently: a stream that is no input, a
    /// name that another file has.
    pub fn check(&self, replace: bool) -> Result<(), Fault> {
        self.check_inputs()?;
        if !replace && self.file.exists() && !is_of_run(self) {
            return Err(Fault::new(format!("{} exists", self.file.display()), "it is not a file of this run")
                .hint("remove it, or choose another name"));
        }
        Ok(())
    }

    /// Every stream of the template must be an input.
    pub(super) fn check_inputs(&self) -> Result<(), Fault> {
        for (_, module) in self.template.modules() {
            if let Some(stream) = module.streams.iter().find(|stream| !self.inputs.contains(stream)) {
                return Err(Fault::new(
                    format!("the template wants the stream `{stream}`"),
                    format!("the inputs are: {}", self.inputs.join(", ")),
                )
                .hint(format!("add it to `inputs` of the sink, or change `stream` at {}", module.pointer)));
            }
        }
        Ok(())
    }
}

/// Whether the file that stands there was begun for this run; one that does not open was not.
pub(crate) fn is_of_run(job: &Job) -> bool {
    let Ok(file) = File::open(&job.file, false) else { return false };
    let run = file.text_attribute("beamport_run");
    // Read only: closing writes nothing.
    let _ = file.close();
    run.is_some_and(|run| run == job.run_id)
}
