//! `[sink.NAME]`: what takes the messages of runs out of the streams.

use super::TemplateAnswer;
use super::keys;
use super::writers;
use crate::limits;
use flow::checked::StreamModule;
use settings::Key;
use settings::units::{Refused, duration_text, shortened};
use settings::{Section, Setting, Shown, Word};
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
    /// What it makes of a run.
    pub kind: SinkKind,
    /// Name of each run's file, with its placeholders; of kind `files` the run's folder comes before it.
    pub file: Setting<String>,
    /// Where the files go.
    pub folder: Setting<PathBuf>,
    /// How often the file on disk is brought up to date.
    pub flush: Setting<Duration>,
    /// What of the run's streams is whose, where several writers share them.
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

/// The kinds of sinks.
#[derive(Clone, Debug)]
pub enum SinkKind {
    /// One file from a template.
    Nexus {
        /// Structure of the file.
        template: Setting<PathBuf>,
        /// What writes the files.
        writer: Writer,
    },
    /// Frames in as many files as they need.
    Files {
        /// Frames of a file, at most.
        frames: Setting<u64>,
        /// How their chunks are packed.
        compression: Compression,
    },
}

/// The program that writes files from templates, and the code of the user that it is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Writer {
    /// What each file begins with a copy of.
    pub static_file: Option<PathBuf>,
    /// How streams become datasets.
    pub layout: Layout,
    /// The program; `None`: `beamport-nexus` beside our own.
    pub program: Option<PathBuf>,
    /// Modules in Python, `FILE.py:CLASS` or `PACKAGE.MODULE:CLASS`.
    pub modules: Vec<String>,
    /// Where a FILE is: the folder of the instrument file.
    pub folder: PathBuf,
    /// The interpreter; `None`: the one beside `beamport`, else `python3`.
    pub python: Option<PathBuf>,
    /// Longest time of a module in Python on a message.
    pub time_max: Duration,
}

impl SinkSection {
    /// What writes its files.
    #[must_use]
    pub fn writer(&self) -> Writer {
        match &self.kind {
            SinkKind::Nexus { writer, .. } => writer.clone(),
            SinkKind::Files { .. } => Writer::default(),
        }
    }

    /// The template, where it has one.
    #[must_use]
    pub fn template(&self) -> Option<&Path> {
        match &self.kind {
            SinkKind::Nexus { template, .. } => Some(template),
            SinkKind::Files { .. } => None,
        }
    }

    /// The path of a run's file; of kind `files` with `{stream}` and `{number}` in the file's name.
    #[must_use]
    pub fn path_of(&self, instrument: &str, run: &str) -> PathBuf {
        let share = self.share.as_ref();
        let name = filled(&self.file, instrument, run, share.map_or(&self.name, |share| &share.of));
        self.folder.join(share.map_or(name.clone(), |share| writer_file(&name, share.number)))
    }

    /// Streams that other writers of the run have, each with the name of its file; and the name of the run's file, where this
    /// is that of another.
    #[must_use]
    pub fn elsewhere(&self, instrument: &str, run: &str) -> (Vec<(String, String)>, Option<String>) {
        let Some(share) = &self.share else { return (Vec::new(), None) };
        let name = filled(&self.file, instrument, run, &share.of);
        let others = share.streams.iter().enumerate().filter(|(number, _)| *number != share.number);
        let of = |(number, streams): (usize, &Vec<String>)| {
            let file = writer_file(&name, number);
            streams.iter().map(|stream| (stream.clone(), file.clone())).collect::<Vec<_>>()
        };
        (others.flat_map(of).collect(), (!self.is_first()).then_some(name.clone()))
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

/// How streams become datasets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// As scippnexus and Mantid read them.
    #[default]
    Nexus,
    /// As the ESS file writer names and types them.
    Ess,
}

impl Word for Layout {
    const ALL: &'static [(&'static str, Self)] = &[("nexus", Self::Nexus), ("ess", Self::Ess)];
}

/// How chunks are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not.
    #[default]
    None,
    /// Bit planes and LZ4.
    BitshuffleLz4,
    /// Byte planes and zlib.
    Deflate,
}

impl Word for Compression {
    const ALL: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("bitshuffle-lz4", Self::BitshuffleLz4), ("deflate", Self::Deflate)];
}

#[derive(Clone, Copy, PartialEq)]
enum KindWord {
    Nexus,
    Files,
}

impl Word for KindWord {
    const ALL: &'static [(&'static str, Self)] = &[("nexus", Self::Nexus), ("files", Self::Files)];
    const LATER: &'static [&'static str] = &["kafka", "pva", "ca", "link"];
}

const PLACEHOLDERS: [&str; 3] = ["{instrument}", "{run}", "{sink}"];
/// The list of hashes beside the files of kind `files`.
const SUMS: &str = "B3SUMS";
/// Filled in by the writer.
const OF_FILES: [&str; 2] = ["{stream}", "{number}"];

fn filled(pattern: &str, instrument: &str, run: &str, sink: &str) -> String {
    // One pass: a run named `{sink}` cannot exist, so what is filled in is never filled in again.
    pattern.replace("{instrument}", instrument).replace("{run}", run).replace("{sink}", sink)
}

/// Reads one section; what is wrong in it is noted, and without a kind there is no sink. `data` is the data folder where it
/// is known.
pub(super) fn read(
    name: &str,
    section: &mut Section<'_>,
    folder: &Path,
    data: &Path,
    template_check: &super::TemplateCheck<'_>,
) -> Option<SinkSection> {
    let kind: Option<Setting<KindWord>> = section.get(&keys::SINK_KIND);
    let (mut modules, mut writers) = (Vec::new(), 1);
    // Which keys belong here is not known without a kind: the kind comes first.
    let (inputs, file, target, flush, kind) = match kind?.value {
        KindWord::Nexus => {
            section.refuse_unknown(&[&keys::NEXUS], &[]);
            let writer = writer(section, folder);
            let template = template(section, folder, &|path| template_check(path, &writer), &mut modules);
            let file = pattern(section, &keys::FILE, |pattern| check_pattern(pattern, name));
            writers = self::writers(section);
            let (inputs, target) = (section.get(&keys::INPUTS), target(section, &keys::FOLDER, folder, data));
            (inputs, file, target, flush(section, &keys::FLUSH), SinkKind::Nexus { template, writer })
        }
        KindWord::Files => {
            section.refuse_unknown(&[&keys::FILES_SINK], &[]);
            let frames: Option<Setting<u64>> = section.get(&keys::FILES_FRAMES);
            if let Some(frames) = &frames
                && !(1..=limits::FRAMES_MAX).contains(&frames.value)
            {
                let cause = format!("files of {} frames", frames.value);
                section.refuse(&keys::FILES_FRAMES, Refused::new(cause, format!("write 1 to {}", limits::FRAMES_MAX)));
            }
            let compression: Option<Setting<Compression>> = section.get(&keys::FILES_COMPRESSION);
            let inputs: Option<Setting<Vec<String>>> = section.get(&keys::FILES_INPUTS);
            let count = inputs.as_ref().map_or(0, |inputs| inputs.len());
            let file = pattern(section, &keys::FILES_FILE, |pattern| check_files_pattern(pattern, name, count));
            let target = target(section, &keys::FILES_FOLDER, folder, data);
            (
                inputs,
                file,
                target,
                flush(section, &keys::FILES_FLUSH),
                SinkKind::Files {
                    frames: frames.unwrap_or_default(),
                    compression: compression.map(|c| c.value).unwrap_or_default(),
                },
            )
        }
    };
    Some(SinkSection {
        name: name.to_owned(),
        line: section.line,
        inputs: inputs.unwrap_or_default(),
        kind,
        file,
        folder: target,
        flush,
        share: None,
        writers,
        template_streams: streams_of(&modules),
        template_modules: modules,
        shown: std::mem::take(&mut section.shown),
    })
}

fn writers(section: &mut Section<'_>) -> u64 {
    let writers: Setting<u64> = section.need(&keys::WRITERS);
    if !(1..=limits::WRITERS_MAX).contains(&writers.value) {
        let hint = format!("write 1 to {}", limits::WRITERS_MAX);
        section.refuse(&keys::WRITERS, Refused::new(format!("{} writers", writers.value), hint));
    }
    writers.value
}

/// What writes the files; code that a file names is that of who wrote the instrument file, never that of a template.
fn writer(section: &mut Section<'_>, folder: &Path) -> Writer {
    let program: Option<Setting<String>> = section.get(&keys::SINK_PROGRAM);
    let program = program.map(|program| folder.join(program.value));
    if let Some(program) = program.as_ref().filter(|program| !program.is_file()) {
        let cause = format!("there is no file `{}`", shortened(&program.display().to_string()));
        section.refuse(&keys::SINK_PROGRAM, Refused::new(cause, "the path is relative to the instrument file"));
    }
    let modules: Setting<Vec<String>> = section.get(&keys::SINK_MODULES).unwrap_or_default();
    let fits =
        |name: &&String| name.rsplit_once(':').is_some_and(|(file, class)| !file.is_empty() && !class.is_empty());
    if let Some(wrong) = modules.iter().find(|name| !fits(name)) {
        let cause = format!("`{}` names no class", shortened(wrong));
        section.refuse(&keys::SINK_MODULES, Refused::new(cause, "write it like \"mine.py:Counters\""));
    }
    let python: Option<Setting<String>> = section.get(&keys::SINK_PYTHON);
    let time_max: Setting<Duration> = section.need(&keys::SINK_TIME_MAX);
    if time_max.value < limits::FLUSH_MIN {
        let hint = format!("write at least \"{}\"", duration_text(limits::FLUSH_MIN));
        let cause = format!("{} is too short", duration_text(time_max.value));
        section.refuse(&keys::SINK_TIME_MAX, Refused::new(cause, hint));
    }
    let layout: Setting<Layout> = section.need(&keys::LAYOUT);
    let static_file: Option<Setting<String>> = section.get(&keys::STATIC);
    let static_file = static_file.map(|path| folder.join(path.value));
    // `beamport-nexus check` reports errors inside it, with those of the template.
    if let Some(path) = static_file.as_ref().filter(|path| !path.is_file()) {
        let cause = format!("there is no file `{}`", shortened(&path.display().to_string()));
        section.refuse(&keys::STATIC, Refused::new(cause, "the path is relative to the instrument file"));
    }
    Writer {
        static_file: static_file.filter(|path| path.is_file()),
        layout: layout.value,
        program,
        modules: modules.value,
        folder: folder.to_path_buf(),
        python: python.map(|python| match python.contains('/') {
            true => folder.join(python.value),
            false => python.value.into(),
        }),
        time_max: time_max.value,
    }
}

fn template(
    section: &mut Section<'_>,
    folder: &Path,
    template_check: &dyn Fn(&Path) -> TemplateAnswer,
    modules: &mut Vec<StreamModule>,
) -> Setting<PathBuf> {
    let template = section
        .need::<String>(&keys::TEMPLATE)
        .map(|path| if path.is_empty() { PathBuf::new() } else { folder.join(path) });
    if !template.as_os_str().is_empty() {
        match readable(&template) {
            Ok(()) => {
                let answer = template_check(&template);
                *modules = answer.modules;
                answer.mistakes.into_iter().for_each(|mistake| section.mistakes.push(mistake));
            }
            Err(cause) => {
                let hint = "paths are relative to the instrument file; an example is examples/amor.nexus.json";
                section.refuse(&keys::TEMPLATE, Refused::new(cause, hint));
            }
        }
    }
    template
}

/// Says why a template cannot be read: it is a plain file, and not too large.
pub(super) fn readable(template: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", template.display());
    let about = std::fs::metadata(template).map_err(failed)?;
    let most = limits::TEMPLATE_BYTES_MAX;
    if !about.is_file() || about.len() > most {
        return Err(format!("{} is not a plain file of at most {most} bytes", template.display()));
    }
    std::fs::File::open(template).map(drop).map_err(failed)
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

fn pattern(
    section: &mut Section<'_>,
    key: &'static Key,
    check: impl FnOnce(&str) -> Result<(), Refused>,
) -> Setting<String> {
    let file: Option<Setting<String>> = section.get(key);
    if let Some(Err(refused)) = file.as_ref().map(|file| check(file)) {
        section.refuse(key, refused);
    }
    file.unwrap_or_default()
}

fn target(section: &mut Section<'_>, key: &'static Key, folder: &Path, data: &Path) -> Setting<PathBuf> {
    match section.get::<String>(key) {
        Some(target) => target.map(|target| folder.join(target)),
        None => {
            let target = data.join("files");
            section.note(key, Setting::by_default(target.display().to_string()));
            Setting::by_default(target)
        }
    }
}

fn flush(section: &mut Section<'_>, key: &'static Key) -> Setting<Duration> {
    let flush: Option<Setting<Duration>> = section.get(key);
    if let Some(flush) = &flush
        && flush.value < limits::FLUSH_MIN
    {
        let hint = format!("write at least \"{}\"", duration_text(limits::FLUSH_MIN));
        section.refuse(key, Refused::new(format!("{} is too short", duration_text(flush.value)), hint));
    }
    flush.unwrap_or_default()
}

/// A pattern of kind `files` must name a folder for every run, and in it a plain file with its number.
pub(crate) fn check_files_pattern(pattern: &str, sink: &str, inputs: usize) -> Result<(), Refused> {
    let like = "write it like \"{instrument}_{run}/{stream}_{number}.h5\"";
    let parts: Vec<&str> = pattern.split('/').collect();
    let [folder, file] = parts[..] else {
        let cause = format!("`{}` is not a folder and a file in it", shortened(pattern));
        return Err(Refused::new(cause, like));
    };
    check_pattern(folder, sink)?;
    let mut plain = file.to_owned();
    OF_FILES.iter().for_each(|word| plain = plain.replace(word, ""));
    // What is the same for every run is fine here: the folder is not.
    check_pattern(&format!("x{{run}}{plain}"), sink)?;
    if file.is_empty() || file.starts_with('.') || file == SUMS {
        return Err(Refused::new(format!("`{}` is no name for files", shortened(file)), like));
    }
    if !file.contains("{number}") {
        return Err(Refused::new(format!("`{}` is the same for every file", shortened(file)), "add `{number}`"));
    }
    if inputs > 1 && !file.contains("{stream}") {
        return Err(Refused::new(format!("`{}` is the same for every stream", shortened(file)), "add `{stream}`"));
    }
    Ok(())
}

/// A pattern must name a plain file in its folder, and another one for every run.
fn check_pattern(pattern: &str, sink: &str) -> Result<(), Refused> {
    let mut rest = pattern.to_owned();
    PLACEHOLDERS.iter().for_each(|word| rest = rest.replace(word, ""));
    if pattern.contains(['/', '\\']) {
        return Err(Refused::new(
            format!("`{}` leaves its folder", shortened(pattern)),
            "write a plain file name; `folder` says where it goes",
        ));
    }
    if pattern.starts_with('.') {
        return Err(Refused::new(
            format!("`{}` begins with a dot", shortened(pattern)),
            "write a plain file name like \"{instrument}_{run}.nxs\"",
        ));
    }
    if pattern.contains(char::is_control) {
        return Err(Refused::new(format!("`{}` holds a control character", shortened(pattern)), "remove it"));
    }
    if rest.contains(['{', '}']) {
        return Err(Refused::new(
            format!("`{}` holds an unknown placeholder", shortened(pattern)),
            format!("there are {}", PLACEHOLDERS.join(", ")),
        ));
    }
    if !pattern.contains("{run}") {
        return Err(Refused::new(
            format!("`{}` is the same for every run", shortened(pattern)),
            "add `{run}`, like \"{instrument}_{run}.nxs\"",
        ));
    }
    let longest = "x".repeat(limits::NAME_CHARS_MAX);
    if rest.len() > limits::FILE_NAME_BYTES_MAX
        || filled(pattern, &longest, &longest, sink).len() > limits::FILE_NAME_BYTES_MAX
    {
        return Err(Refused::new(
            format!("more than {} bytes with long names filled in", limits::FILE_NAME_BYTES_MAX),
            "write a shorter name",
        ));
    }
    Ok(())
}
