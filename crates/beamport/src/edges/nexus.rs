//! `kind = "nexus"`: a NeXus file of each run, as a template says.

use super::sink::{Around, FileKind, FilePlan, TemplateAnswer, check_name, flush, pattern, target};
use crate::limits;
use flow::checked::StreamModule;
use flow::job::{Layout, Work, Writer};
use serde_json::{Map, Value as Json};
use settings::units::{Refused, duration_text, shortened};
use settings::{Key, Mistake, Section, Setting, key, required};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

static INPUTS: Key =
    key("inputs", "list of streams", "", "The streams to write. Default: all sources of the instrument file.");
static TEMPLATE: Key =
    required("template", "path of a JSON file", "Structure of the file: docs/reference/nexus-template.md.");
static STATIC: Key = key(
    "static",
    "path of an HDF5 file",
    "",
    "Initial content of each file, for example geometry; the template adds to it: docs/reference/nexus-template.md.",
);
static TOPICS: Key = key(
    "topics",
    "table of texts",
    "",
    "Names of streams in the template, where they differ: `topics = { t1 = \"loki_detector\" }`. \
     Attributes in the file have these names.",
);
static MODULES: Key = key(
    "modules",
    "list of classes",
    "",
    "Python modules for the template: `FILE.py:CLASS`, relative to the instrument file, or `PACKAGE.MODULE:CLASS`.",
);
static PYTHON: Key = key(
    "python",
    "path",
    "",
    "The interpreter of `modules`. Default: the one that `beamport` is installed with, else `python3`.",
);
static TIME_MAX: Key = key(
    "time_max",
    "duration, 10 ms or more",
    "30 s",
    "Code of `modules` that needs longer for one message is killed; the second time the message is set aside (`time`).",
);
static PROGRAM: Key = key(
    "program",
    "path",
    "",
    "The program that writes the files, for your own modules in Rust: docs/how-to/add-a-writer-module.md. Default: `beamport-nexus`.",
);
static FILE: Key = key(
    "file",
    "file name",
    "{instrument}_{run}.nxs",
    "Name of each run's file, with `{instrument}`, `{run}` and `{sink}`. \
     A name without `{run}` is allowed if the instrument file has exactly one `[run.NAME]`: \
     no other run can begin then.",
);
static FOLDER: Key = key("folder", "folder", "", "Folder of the files. Default: `files` in the data folder.");
static LAYOUT: Key = key(
    "layout",
    "`nexus` or `ess`",
    "nexus",
    "Names and types of datasets: as scippnexus and Mantid read them, or as the ESS file writer writes them.",
);
static WRITERS: Key = key(
    "writers",
    "whole number, 1 to 16",
    "1",
    "Processes that write a run in parallel; they share its streams of events, frames and arrays. The run's file links to their files: `NAME.2.nxs` beside `NAME.nxs`.",
);
static FLUSH: Key = key(
    "flush",
    "duration, 10 ms or more",
    "1 s",
    "How often the file on disk is updated; less often if that takes over a tenth of the time, sooner if a memory stream would fill.",
);

static HOLD: Key = key(
    "hold",
    "duration, 0 s to 1 min",
    "0 s",
    "While a run is open, messages that are newer (by source time and by arrival) are not written yet: \
     a stop that is this far in the past does not cause the file to be written again. \
     A file that is written again has what its streams still hold.",
);

static WHOLE: Key = key(
    "whole",
    "`true` or `false`",
    "false",
    "Give a file up where the streams no longer hold all that it needs, instead of writing the rest: \
     it is under `failed` of the report with `\"incomplete\": true`, and `beamport up` ends if no other file is left.",
);

/// The kind `nexus`.
pub(super) static SINK: FileKind = FileKind {
    name: "nexus",
    about: "A NeXus file of each run, from a template.",
    keys: &[
        &INPUTS, &TEMPLATE, &TOPICS, &STATIC, &MODULES, &PYTHON, &TIME_MAX, &PROGRAM, &FILE, &FOLDER, &LAYOUT,
        &WRITERS, &FLUSH, &HOLD, &WHOLE,
    ],
    read,
};

fn read(name: &str, section: &mut Section<'_>, around: &Around<'_>) -> FilePlan {
    let writer = writer(section);
    let mut modules = Vec::new();
    let template = template(section, &|path| (around.template_check)(path, &writer), &mut modules);
    let modules = by_stream(section, &template, &writer.topics, modules);
    FilePlan {
        file: pattern(section, &FILE, |pattern| check_name(pattern, name)),
        writers: writers(section),
        inputs: section.get(&INPUTS).unwrap_or_default(),
        folder: target(section, &FOLDER, around),
        flush: flush(section, &FLUSH),
        hold: hold(section),
        whole: section.need::<bool>(&WHOLE).value,
        work: Work::Template(template),
        writer,
        modules,
    }
}

/// Names of streams in the template.
fn topics(section: &mut Section<'_>) -> BTreeMap<String, String> {
    let given: Option<Setting<Map<String, Json>>> = section.get(&TOPICS);
    let Some(given) = given else { return BTreeMap::new() };
    let (mut topics, mut known) = (BTreeMap::new(), BTreeSet::new());
    for (stream, topic) in given.value {
        let wrong = match topic.as_str() {
            None => format!("the name of `{}` is not a text", shortened(&stream)),
            Some("") => format!("the name of `{}` is empty", shortened(&stream)),
            Some(topic) if !known.insert(topic.to_owned()) => format!("`{}` appears twice", shortened(topic)),
            Some(topic) => {
                topics.insert(stream, topic.to_owned());
                continue;
            }
        };
        section.refuse(&TOPICS, Refused::new(wrong, "write it like `topics = { t1 = \"loki_detector\" }`"));
    }
    topics
}

/// The modules, in which stream names replace the names of the template. A stream that has another name in the template
/// is a mistake.
fn by_stream(
    section: &mut Section<'_>,
    template: &Path,
    topics: &BTreeMap<String, String>,
    mut modules: Vec<StreamModule>,
) -> Vec<StreamModule> {
    let streams: BTreeMap<&str, &str> =
        topics.iter().map(|(stream, topic)| (topic.as_str(), stream.as_str())).collect();
    for module in &mut modules {
        for name in &mut module.streams {
            match (streams.get(name.as_str()), topics.get(name)) {
                (Some(stream), _) => *name = (*stream).to_owned(),
                (None, Some(topic)) => section.mistakes.push(Mistake {
                    file: template.display().to_string(),
                    pointer: format!("{}/{}", module.pointer, module.key),
                    what: format!("no stream has the name `{}` in the template", shortened(name)),
                    cause: format!("`topics` gives that stream the name `{}`", shortened(topic)),
                    hint: format!("write \"{}\"", shortened(topic)),
                    ..Mistake::default()
                }),
                (None, None) => {}
            }
        }
    }
    modules
}

fn hold(section: &mut Section<'_>) -> Duration {
    let hold: Setting<Duration> = section.need(&HOLD);
    if hold.value > limits::HOLD_MAX {
        let hint = format!("write at most \"{}\"", duration_text(limits::HOLD_MAX));
        section.refuse(&HOLD, Refused::new(format!("{} is too long", duration_text(hold.value)), hint));
    }
    hold.value
}

fn writers(section: &mut Section<'_>) -> u64 {
    let writers: Setting<u64> = section.need(&WRITERS);
    if !(1..=limits::WRITERS_MAX).contains(&writers.value) {
        let hint = format!("write 1 to {}", limits::WRITERS_MAX);
        section.refuse(&WRITERS, Refused::new(format!("{} writers", writers.value), hint));
    }
    writers.value
}

/// The program and the modules that write the files. The instrument file alone names code, never a template.
fn writer(section: &mut Section<'_>) -> Writer {
    let program = section.path(&PROGRAM).map(|program| program.value);
    if let Some(program) = program.as_ref().filter(|program| !program.is_file()) {
        let cause = format!("no file `{}`", shortened(&program.display().to_string()));
        section.refuse(&PROGRAM, Refused::new(cause, "write a path relative to the instrument file"));
    }
    let modules: Setting<Vec<String>> = section.get(&MODULES).unwrap_or_default();
    let fits =
        |name: &&String| name.rsplit_once(':').is_some_and(|(file, class)| !file.is_empty() && !class.is_empty());
    if let Some(wrong) = modules.iter().find(|name| !fits(name)) {
        let cause = format!("`{}` is not a class", shortened(wrong));
        section.refuse(&MODULES, Refused::new(cause, "write it like \"mine.py:Counters\""));
    }
    let python: Option<Setting<String>> = section.get(&PYTHON);
    let time_max: Setting<Duration> = section.need(&TIME_MAX);
    if time_max.value < limits::FLUSH_MIN {
        let hint = format!("write at least \"{}\"", duration_text(limits::FLUSH_MIN));
        let cause = format!("{} is too short", duration_text(time_max.value));
        section.refuse(&TIME_MAX, Refused::new(cause, hint));
    }
    let layout: Setting<Layout> = section.need(&LAYOUT);
    let topics = topics(section);
    let static_file = section.path(&STATIC).map(|path| path.value);
    // `beamport-nexus check` reports errors inside it, with those of the template.
    if let Some(path) = static_file.as_ref().filter(|path| !path.is_file()) {
        let cause = format!("no file `{}`", shortened(&path.display().to_string()));
        section.refuse(&STATIC, Refused::new(cause, "write a path relative to the instrument file"));
    }
    Writer {
        static_file: static_file.filter(|path| path.is_file()),
        layout: layout.value,
        topics,
        program,
        // The whole file is read first.
        modules: modules.value,
        folder: section.folder.to_path_buf(),
        python: python.map(|python| match python.contains('/') {
            true => section.folder.join(python.value),
            false => python.value.into(),
        }),
        time_max: time_max.value,
    }
}

fn template(
    section: &mut Section<'_>,
    template_check: &dyn Fn(&Path) -> TemplateAnswer,
    modules: &mut Vec<StreamModule>,
) -> PathBuf {
    let template = section.path(&TEMPLATE).unwrap_or_default();
    if !template.as_os_str().is_empty() {
        match readable(&template) {
            Ok(()) => {
                let answer = template_check(&template);
                *modules = answer.modules;
                answer.mistakes.into_iter().for_each(|mistake| section.mistakes.push(mistake));
            }
            Err(cause) => {
                let hint = "write a path relative to the instrument file; an example is examples/amor.nexus.json";
                section.refuse(&TEMPLATE, Refused::new(cause, hint));
            }
        }
    }
    template.value
}

/// Says why a template cannot be read: it is a plain file, and not too large.
pub(crate) fn readable(template: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", template.display());
    let about = std::fs::metadata(template).map_err(failed)?;
    let most = limits::TEMPLATE_BYTES_MAX;
    if !about.is_file() || about.len() > most {
        return Err(format!("{} is not a plain file of at most {most} bytes", template.display()));
    }
    std::fs::File::open(template).map(drop).map_err(failed)
}
