//! `[sink.NAME]`: what takes the messages of runs out of the streams.

use super::writers;
use crate::edges::{Around, FileKind, FilePlan, filled};
use flow::WriterJob;
use flow::checked::StreamModule;
use flow::job::{Elsewhere, Work, Writer};
use serde_json::{Value as Json, json};
use settings::{Section, Setting, Shown, Word as _};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One sink: a file for each run, or files.
#[derive(Clone, Debug)]
pub struct SinkSection {
    /// Name of the section.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// The streams that go into the file.
    pub inputs: Setting<Vec<String>>,
    /// The files that it makes of a run.
    pub work: Work,
    /// The program that writes its files.
    pub writer: Writer,
    /// Name of each run's file, with its placeholders; of kind `files` the run's folder comes before it.
    pub file: Setting<String>,
    /// Where the files go.
    pub folder: Setting<PathBuf>,
    /// How often the file on disk is brought up to date.
    pub flush: Setting<Duration>,
    /// While a run is open, messages that are newer than this are not written yet.
    pub hold: Duration,
    /// Write no file of a part.
    pub whole: bool,
    /// The streams of each writer, where several writers share those of the run.
    pub share: Option<Share>,
    /// Writers that are asked for.
    pub(super) writers: u64,
    /// The streams that the template names, with their places in it.
    pub(super) template_streams: BTreeMap<String, Asked>,
    /// The modules that read them.
    pub(super) template_modules: Vec<StreamModule>,
    pub(super) shown: Vec<Shown>,
}

/// Where a template asks for a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The first place, a JSON pointer.
    pub(super) pointer: String,
    /// How many places there are.
    pub(super) places: usize,
}

/// One of several writers of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The sink that they share.
    pub of: String,
    /// All its inputs.
    pub inputs: Vec<String>,
    /// Which one this is; 0 writes the run's file.
    pub number: usize,
    /// The streams of each.
    pub streams: Vec<Vec<String>>,
}

impl SinkSection {
    /// Whether its template reads a stream.
    #[must_use]
    pub fn has_place_for(&self, stream: &str) -> bool {
        self.template_streams.contains_key(stream)
    }

    /// Whether it has a template that reads no stream: its file is complete without a message.
    #[must_use]
    pub fn reads_nothing(&self) -> bool {
        self.template().is_some() && self.template_streams.is_empty()
    }

    /// The template, where it has one.
    #[must_use]
    pub fn template(&self) -> Option<&Path> {
        match &self.work {
            Work::Template(template) => Some(template),
            Work::Frames { .. } => None,
        }
    }

    /// What the metadata of a run says of the file, the same for each run: in its name, `{run}` stands for the run.
    /// `data`: the data folder, from which paths are found again when both were moved.
    #[must_use]
    pub fn provenance(&self, instrument: &str, data: &Path) -> Json {
        match &self.work {
            Work::Template(template) => {
                let Writer { static_file, layout, topics, .. } = &self.writer;
                let inputs = self.all_inputs();
                let mut made =
                    json!({"template": template, "static": static_file, "layout": layout.word(), "inputs": inputs});
                made["data"] = json!(data);
                if !topics.is_empty() {
                    made["topics"] = json!(topics);
                }
                made
            }
            Work::Frames { max, compression } => {
                let path = self.path_of(instrument, "{run}");
                let name = path.file_name().map(|name| name.to_string_lossy());
                let compression = compression.word();
                json!({"frames": max, "compression": compression, "name": name, "inputs": self.inputs.value})
            }
        }
    }

    /// True if its file has the same name for every run.
    #[must_use]
    pub fn is_of_one_run(&self) -> bool {
        self.template().is_some() && !self.file.contains("{run}")
    }

    /// The path of a run's file; of kind `files` with `{stream}` and `{number}` in the file's name.
    #[must_use]
    pub fn path_of(&self, instrument: &str, run: &str) -> PathBuf {
        let share = self.share.as_ref();
        let name = filled(&self.file, instrument, run, share.map_or(&self.name, |share| &share.of));
        self.folder.join(share.map_or(name.clone(), |share| writer_file(&name, share.number)))
    }

    /// The job of its writer on a run.
    #[must_use]
    pub fn job(&self, data: &Path, instrument: &str, run: &str) -> WriterJob {
        WriterJob {
            data: data.to_path_buf(),
            sink: self.name.clone(),
            run: run.to_owned(),
            inputs: self.inputs.value.clone(),
            work: self.work.clone(),
            output: self.path_of(instrument, run),
            flush: self.flush.value,
            hold: self.hold,
            whole: self.whole,
            detached: false,
            snapshot: None,
            elsewhere: self.elsewhere(instrument, run),
            writer: self.writer.clone(),
        }
    }

    /// Returns the files to which the other writers of a run write, by topic, and the run's file unless this writer
    /// makes it.
    fn elsewhere(&self, instrument: &str, run: &str) -> Elsewhere {
        let Some(share) = &self.share else { return Elsewhere::default() };
        let name = filled(&self.file, instrument, run, &share.of);
        let others = share.streams.iter().enumerate().filter(|(number, _)| *number != share.number);
        let of = |(number, streams): (usize, &Vec<String>)| {
            let file = writer_file(&name, number);
            streams.iter().map(|stream| (self.writer.topic_of(stream).to_owned(), file.clone())).collect::<Vec<_>>()
        };
        Elsewhere { streams: others.flat_map(of).collect(), run_file: (!self.is_first()).then_some(name.clone()) }
    }

    /// All inputs of the sink, whichever of its writers this is.
    #[must_use]
    pub fn all_inputs(&self) -> &[String] {
        self.share.as_ref().map_or(&self.inputs.value, |share| &share.inputs)
    }

    /// True unless it is the second or a later writer of a sink.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.number == 0)
    }

    /// The sink as several writers share it; as it is where one has it all.
    pub(super) fn shared_out(self) -> Vec<Self> {
        let wanted = usize::try_from(self.writers).unwrap_or(1);
        let streams = writers::shared_out(&self.inputs.value, &self.template_modules, wanted);
        if streams.len() < 2 {
            return vec![self];
        }
        let of = |number: usize| {
            let mut sink = self.clone();
            if number > 0 {
                (sink.name, sink.shown) = (writer_name(&self.name, number), Vec::new());
            }
            sink.inputs.value = streams[number].clone();
            let (of, inputs) = (self.name.clone(), self.inputs.value.clone());
            sink.share = Some(Share { of, inputs, number, streams: streams.clone() });
            sink
        };
        (0..streams.len()).map(of).collect()
    }
}

/// Name of a writer as a sink: the first has that of the sink.
pub(crate) fn writer_name(sink: &str, number: usize) -> String {
    if number == 0 { sink.to_owned() } else { format!("{sink}-{}", number + 1) }
}

/// Name of a writer's file: that of the run, with the writer's number before its ending.
pub(crate) fn writer_file(name: &str, number: usize) -> String {
    match (number, name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty())) {
        (0, _) => name.to_owned(),
        (_, Some((stem, ending))) => format!("{stem}.{}.{ending}", number + 1),
        (_, None) => format!("{name}.{}", number + 1),
    }
}

/// Reads one section; what is wrong in it is noted.
pub(super) fn read(name: &str, section: &mut Section<'_>, kind: &FileKind, around: &Around<'_>) -> SinkSection {
    let FilePlan { inputs, work, writer, file, folder, flush, hold, whole, writers, modules } =
        (kind.read)(name, section, around);
    SinkSection {
        name: name.to_owned(),
        line: section.line,
        inputs,
        work,
        writer,
        file,
        folder,
        flush,
        hold,
        whole,
        share: None,
        writers,
        template_streams: streams_of(&modules),
        template_modules: modules,
        shown: section.end(),
    }
}

/// The streams that modules read.
fn streams_of(modules: &[StreamModule]) -> BTreeMap<String, Asked> {
    let mut streams = BTreeMap::<String, Asked>::new();
    for module in modules {
        for stream in &module.streams {
            let asked = streams.entry(stream.clone()).or_default();
            if asked.places == 0 {
                asked.pointer = format!("{}/{}", module.pointer, module.key);
            }
            asked.places += 1;
        }
    }
    streams
}
