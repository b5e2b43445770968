//! Checks across sections: names that must exist, files and folders that must differ.

use super::comes::{Missing, never_comes};
use super::{Instrument, MergeSection, Mistake, Severity, SinkSection, Stage, StreamSection, WorkerSection, nearest};
use crate::edges::{check_file_name, one_for_all};
use flow::edge::{Conflict, Outline, Sends};
use settings::Page;
use settings::{Mistakes, Refused, Setting, Shown};
use settings::{plain, shortened};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use store::{Clock, Level};

/// Notes what does not fit together, and fills in the inputs of sinks that name none. `streams` are the names of all sources.
pub(super) fn check(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    streams: &[String],
    instrument: &mut Instrument,
) {
    if !has_holes {
        check_sources(page, mistakes, streams, instrument);
    }
    // Sources that are wrong in themselves are not in the list of stages: a name is that of a source unless a stage has it.
    let stages = instrument.stages.iter().filter(|stage| stage.source().is_none() && stage.fills_stream());
    let kinds: HashMap<&str, &str> = stages.map(|stage| (stage.name(), stage.kind())).collect();
    let known: HashSet<&str> = streams.iter().map(String::as_str).chain(kinds.keys().copied()).collect();
    let plans: Vec<_> = instrument.sources().map(|source| (source.name.as_str(), &*source.plan)).collect();
    for (at, source) in instrument.sources().enumerate() {
        let outline = Outline { data: &instrument.data, before: &plans[..at] };
        note_conflicts(page, mistakes, source.line, source.plan.conflicts(&source.name, &outline));
        if let Some(receiver) = source.receiver.as_ref().filter(|name| kinds.get(name.as_str()) == Some(&"worker")) {
            let what = format!("receiver `{}` has the name of a worker", shortened(receiver));
            let line = receiver.line_or(source.line);
            mistakes.push(page.mistake(line, what, "both keep statistics under their name", "rename one of them"));
        }
    }
    for live in instrument.live_sinks() {
        check_name(page, mistakes, (&live.name, live.line), &known, &kinds);
        let title = format!("sink `{}`", shortened(&live.name));
        let line = live.inputs.line_or(live.line);
        if live.inputs.is_empty() && live.inputs.origin != super::Origin::Default {
            mistakes.push(page.mistake(line, format!("{title} has no inputs"), "the list is empty", "name a stream"));
        }
        check_streams(page, mistakes, has_holes, (&title, line, &live.inputs), streams, &known);
        let sources = instrument.sources().filter(|source| live.inputs.contains(&source.name));
        let sources: Vec<_> = sources.map(|source| (source.name.as_str(), &*source.plan)).collect();
        note_conflicts(page, mistakes, live.line, live.plan.conflicts(&sources));
    }
    let mut files: HashMap<(PathBuf, String), (String, u32)> = HashMap::new();
    let has_one_run = instrument.runs.len() == 1;
    let sends = sends_of(&instrument.stages);
    for sink in &mut instrument.sinks {
        check_name(page, mistakes, (&sink.name, sink.line), &known, &kinds);
        let before = mistakes.list.len();
        check_inputs(page, mistakes, has_holes, sink, streams, &known);
        if !has_holes {
            check_topics(page, mistakes, sink);
        }
        let is_clear = mistakes.list.len() == before;
        check_template(page, mistakes, has_holes, is_clear, sink, &known);
        check_modules(mistakes, sink, &sends);
        let line = sink.file.line_or(sink.line);
        check_runs(page, mistakes, sink, has_one_run);
        // Files of frames have a list beside them that is theirs alone.
        let file = sink.file.replace("{sink}", &sink.name);
        let target = (plain(&sink.folder), file.split('/').next().unwrap_or_default().to_owned());
        if let Some((other, other_line)) = files.insert(target, (sink.name.clone(), line)) {
            let what = format!("sinks `{}` and `{}` write the same file", shortened(&other), shortened(&sink.name));
            mistakes.push(page.mistake(
                line,
                what,
                format!("the other is at line {other_line}"),
                "add `{sink}` to one `file`, or give it another `folder`",
            ));
        }
    }
    let live = instrument.stages.iter().filter(|stage| !stage.fills_stream());
    let taken: HashSet<&str> = known.into_iter().chain(live.map(Stage::name)).collect();
    share_out(page, mistakes, &mut instrument.sinks, &taken);
}

/// An instrument has a source, unless its sinks have templates that read no stream.
fn check_sources(page: &Page, mistakes: &mut Mistakes, streams: &[String], instrument: &Instrument) {
    let is_static = !instrument.sinks.is_empty() && instrument.sinks.iter().all(SinkSection::reads_nothing);
    if streams.is_empty() && !is_static {
        let hint = "add a section:\n       [source.detector]\n       kind = \"sim\"\n       model = \"amor\"";
        mistakes.push(page.mistake(1, "no source is defined", "no section [source.NAME]", hint));
    }
}

/// Notes what a section has that does not fit the rest of the file. `line`: of its header.
fn note_conflicts(page: &Page, mistakes: &mut Mistakes, line: u32, conflicts: Vec<Conflict>) {
    for Conflict { origin, what, cause, hint } in conflicts {
        let line = match origin {
            super::Origin::Line(line) => line,
            super::Origin::Default => line,
        };
        mistakes.push(page.mistake(line, what, cause, hint));
    }
}

/// That a sink has a name of its own.
fn check_name(
    page: &Page,
    mistakes: &mut Mistakes,
    (name, line): (&str, u32),
    known: &HashSet<&str>,
    kinds: &HashMap<&str, &str>,
) {
    if known.contains(name) {
        let other = kinds.get(name).unwrap_or(&"source");
        let what = format!("sink `{}` has the name of a {other}", shortened(name));
        let (cause, hint) = ("each stage keeps its commits under its name", "rename one of them");
        mistakes.push(page.mistake(line, what, cause, hint));
    }
}

/// The known contents of the streams that stages fill, by stream.
fn sends_of(stages: &[Stage]) -> HashMap<&str, Sends> {
    let of = |stage: &Stage| match stage {
        // The content of a wrong section is unknown: one mistake is not reported again for each module.
        Stage::Source(source) => source.plan.sends().filter(|_| !source.is_wrong),
        Stage::Worker(worker) => worker.sends(),
        Stage::Merge(_) | Stage::Live(_) => None,
    };
    stages.iter().filter_map(|stage| Some((stage.name(), of(stage)?))).collect()
}

/// Sinks with several writers become as many.
fn share_out(page: &Page, mistakes: &mut Mistakes, sinks: &mut Vec<SinkSection>, taken: &HashSet<&str>) {
    let names: HashSet<String> = sinks.iter().map(|sink| sink.name.clone()).collect();
    *sinks = std::mem::take(sinks).into_iter().flat_map(SinkSection::shared_out).collect();
    for sink in sinks.iter().filter(|sink| !sink.is_first()) {
        let is_too_long = sink.name.len() > settings::limits::NAME_CHARS_MAX;
        if is_too_long || names.contains(&sink.name) || taken.contains(sink.name.as_str()) {
            let cause = if is_too_long { "it is too long" } else { "the name is in use" };
            let what = format!("a writer of this sink needs the name `{}`", shortened(&sink.name));
            mistakes.push(page.mistake(sink.line, what, cause, "give the sink another name, or `writers = 1`"));
        }
    }
}

/// A stage that fills a stream from others, as its section says.
struct Filling<'a> {
    kind: &'static str,
    name: &'a str,
    line: u32,
    inputs: &'a Setting<Vec<String>>,
    output: &'a mut StreamSection,
    shown: &'a mut Vec<Shown>,
    /// It points into its inputs, and so survives no more than they do.
    is_view: bool,
    /// Streams that its code looks at beside.
    side_inputs: &'a [String],
}

impl<'a> Filling<'a> {
    fn merge(merge: &'a mut MergeSection) -> Self {
        Self {
            kind: "merge",
            name: &merge.name,
            line: merge.line,
            inputs: &merge.inputs,
            output: &mut merge.output,
            shown: &mut merge.shown,
            is_view: merge.copied.is_none(),
            side_inputs: &[],
        }
    }

    fn worker(worker: &'a mut WorkerSection) -> Self {
        Self {
            kind: "worker",
            name: &worker.name,
            line: worker.line,
            inputs: &worker.inputs,
            output: &mut worker.output,
            shown: &mut worker.shown,
            is_view: false,
            side_inputs: &worker.side_inputs,
        }
    }
}

/// Notes what does not fit together in merges and workers, and fills in the level of those that say none. `streams` are
/// the names of all sources.
pub(super) fn check_stages(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    streams: &[String],
    instrument: &mut Instrument,
) {
    // What a stage above fills: with its level, and whether its times can be compared.
    let mut known: HashMap<String, (Level, bool)> = HashMap::new();
    let mut taken: HashSet<String> = streams.iter().cloned().collect();
    for stage in &mut instrument.stages {
        let stage = match stage {
            Stage::Source(source) => {
                known.insert(source.name.clone(), (source.stream.level(), source.clock.value == Clock::Epoch));
                continue;
            }
            Stage::Merge(merge) => Filling::merge(merge),
            Stage::Worker(worker) => Filling::worker(worker),
            // It fills none: see `check`.
            Stage::Live(_) => continue,
        };
        // Past the limit only the fact counts; looking for near words would take minutes on a hostile file.
        if mistakes.is_full() {
            mistakes.has_more = true;
            return;
        }
        let line = stage.inputs.line_or(stage.line);
        let title = format!("{} `{}`", stage.kind, shortened(stage.name));
        let mut say = |line, what: String, cause: &str, hint: String| {
            mistakes.push(page.mistake(line, what, cause, hint));
        };
        if !taken.insert(stage.name.to_owned()) {
            let other = if streams.iter().any(|name| name == stage.name) { "source" } else { "stage above" };
            say(
                stage.line,
                format!("{title} has the name of a {other}"),
                "a stream has one writer",
                "rename one of them".into(),
            );
        }
        if stage.inputs.is_empty() && stage.inputs.origin != super::Origin::Default {
            let hint = if stage.is_view { "name two streams or more" } else { "name a stream" };
            say(line, format!("{title} has no inputs"), "the list is empty", hint.into());
        }
        let (mut seen, mut all_disk) = (HashSet::new(), true);
        for input in stage.inputs.iter() {
            let shown = shortened(input);
            if !seen.insert(input.as_str()) {
                say(line, format!("{title} takes `{shown}` twice"), "", "remove one of them".into());
            }
            match known.get(input) {
                Some((level, is_epoch)) => {
                    all_disk &= *level == Level::Disk;
                    if !is_epoch {
                        say(
                            line,
                            format!("{title} takes `{shown}`"),
                            "its times are not in ns since 1970 UTC",
                            format!("a {} needs streams of sources with clock = \"epoch\"", stage.kind),
                        );
                    }
                    let wants_disk = stage.output.level.as_ref().is_some_and(|level| level.value == Level::Disk);
                    if stage.is_view && wants_disk && *level == Level::Memory {
                        say(
                            stage.output.level.as_ref().map_or(line, |level| level.line_or(line)),
                            format!("{title} cannot survive a power cut"),
                            &format!("it points into `{shown}`, which has level \"memory\""),
                            "remove `level`, or give that source level = \"disk\"".into(),
                        );
                    }
                }
                // One that is wrong in itself has been named.
                None if streams.contains(input) || has_holes => {}
                None => {
                    let hint = write_one_of(input, known.keys().map(String::as_str), &streams.join(", "));
                    say(line, format!("{title} takes `{shown}`"), "no source or stage above fills it", hint);
                }
            }
        }
        for beside in stage.side_inputs.iter().filter(|name| !known.contains_key(*name)) {
            if streams.contains(beside) || has_holes {
                continue;
            }
            let hint = write_one_of(beside, known.keys().map(String::as_str), &streams.join(", "));
            let what = format!("{title} reads `{}`", shortened(beside));
            say(stage.line, what, "no source or stage above fills it", hint);
        }
        if stage.output.level.is_none() {
            let level = if all_disk { Level::Disk } else { Level::Memory };
            stage.output.settle(level, stage.shown);
            for (key, setting, refused) in stage.output.misfits(level) {
                let what = format!("wrong value of `{}` in [{}.{}]", key.name, stage.kind, shortened(stage.name));
                say(setting.line_or(stage.line), what, &refused.cause, refused.hint);
            }
        }
        let level = stage.output.level();
        known.insert(stage.name.to_owned(), (level, true));
    }
}

fn check_inputs(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    sink: &mut SinkSection,
    streams: &[String],
    known: &HashSet<&str>,
) {
    if sink.inputs.origin == super::Origin::Default {
        sink.inputs = Setting::by_default(streams.to_vec());
        sink.shown.push(Shown { key: "inputs".into(), value: streams.into(), origin: super::Origin::Default });
        return;
    }
    let line = sink.inputs.line_or(sink.line);
    let title = format!("sink `{}`", shortened(&sink.name));
    if sink.inputs.is_empty() && !sink.reads_nothing() {
        mistakes.push(page.mistake(
            line,
            format!("{title} has no inputs"),
            "the list is empty",
            "name a stream, or remove `inputs` to take all",
        ));
    }
    check_streams(page, mistakes, has_holes, (&title, line, &sink.inputs), streams, known);
}

/// Checks that the file of a sink has another name for every run. A name that is wrong in itself was noted where it was
/// read.
fn check_runs(page: &Page, mistakes: &mut Mistakes, sink: &SinkSection, has_one_run: bool) {
    if !has_one_run && sink.is_of_one_run() && check_file_name(&sink.file, &sink.name).is_ok() {
        let Refused { cause, hint } = one_for_all(&sink.file);
        let what = format!("wrong value of `file` in [sink.{}]", shortened(&sink.name));
        mistakes.push(page.mistake(sink.file.line_or(sink.line), what, cause, hint));
    }
}

/// That each stream with another name in the template is an input, and that no other input has that name there.
fn check_topics(page: &Page, mistakes: &mut Mistakes, sink: &SinkSection) {
    let line = match sink.shown.iter().find(|shown| shown.key == "topics").map(|shown| shown.origin) {
        Some(super::Origin::Line(line)) => line,
        _ => sink.line,
    };
    let topics = &sink.writer.topics;
    let is_plain = |topic: &str| sink.inputs.iter().any(|input| input == topic) && !topics.contains_key(topic);
    for (stream, topic) in topics {
        let (cause, hint) = if !sink.inputs.contains(stream) {
            let cause = format!("`{}` is not one of its inputs", shortened(stream));
            (cause, write_one_of(stream, sink.inputs.iter().map(String::as_str), &sink.inputs.join(", ")))
        } else if is_plain(topic) {
            let cause = format!("`{0}` is the name of `{1}` and of stream `{0}`", shortened(topic), shortened(stream));
            (cause, format!("name `{}` in `topics` too", shortened(topic)))
        } else {
            continue;
        };
        let what = format!("wrong value of `topics` in [sink.{}]", shortened(&sink.name));
        mistakes.push(page.mistake(line, what, cause, hint));
    }
}

/// That each input of a sink is a stream, and named once.
fn check_streams(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    (title, line, inputs): (&str, u32, &[String]),
    streams: &[String],
    known: &HashSet<&str>,
) {
    let mut seen = HashSet::new();
    for input in inputs {
        if mistakes.is_full() {
            mistakes.has_more = true;
            return;
        }
        if !seen.insert(input.as_str()) {
            mistakes.push(page.mistake(
                line,
                format!("{title} takes `{}` twice", shortened(input)),
                "",
                "remove one of them",
            ));
        } else if !known.contains(input.as_str()) && !has_holes {
            let hint = write_one_of(input, streams.iter().map(String::as_str), &streams.join(", "));
            mistakes.push(page.mistake(
                line,
                format!("{title} takes `{}`", shortened(input)),
                "no source fills that stream",
                hint,
            ));
        }
    }
}

/// Checks that the sink reads every stream from which its template fills a group: messages of any other would never
/// come. Wrong inputs of the sink are not reported a second time (`is_clear`: none are wrong).
fn check_template(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    is_clear: bool,
    sink: &SinkSection,
    known: &HashSet<&str>,
) {
    let title = format!("sink `{}`", shortened(&sink.name));
    let at = format!("{}:{}", page.file, sink.inputs.line_or(sink.line));
    for (stream, asked) in sink.template_streams.iter().filter(|(stream, _)| !sink.inputs.contains(stream)) {
        let shown = shortened(stream);
        let (what, mut cause, hint) = if known.contains(stream.as_str()) {
            if !is_clear {
                continue;
            }
            let cause = format!("its `inputs` at {at} are {}", shortened(&sink.inputs.join(", ")));
            (format!("{title} does not take stream `{shown}`"), cause, format!("add `{shown}` to `inputs`"))
        } else if has_holes {
            continue;
        } else {
            let mut streams: Vec<&str> = known.iter().map(|stream| sink.writer.topic_of(stream)).collect();
            streams.sort_unstable();
            let hint = write_one_of(stream, streams.iter().copied(), &streams.join(", "));
            (format!("no source fills stream `{shown}`"), format!("{title} at {at} would wait for it"), hint)
        };
        let file = sink.template().unwrap_or(Path::new("")).display().to_string();
        if asked.places > 1 {
            cause += &format!("; {} places ask for it, this is the first", asked.places);
        }
        mistakes.push(Mistake {
            level: Severity::Error,
            file,
            line: 0,
            pointer: asked.pointer.clone(),
            what,
            cause,
            hint,
        });
    }
}

/// That what each module of the template wants is what the stages that fill its streams make, as far as that is known.
fn check_modules(mistakes: &mut Mistakes, sink: &SinkSection, sends: &HashMap<&str, Sends>) {
    let file = sink.template().unwrap_or(Path::new("")).display().to_string();
    for reads in &sink.template_modules {
        let sources: Vec<&Sends> = reads.streams.iter().filter_map(|stream| sends.get(stream.as_str())).collect();
        for missing in never_comes(reads, &sources) {
            let Missing { key, what, cause, hint } = missing;
            let pointer = format!("{}/{key}", reads.pointer);
            mistakes.push(Mistake { level: Severity::Error, file: file.clone(), line: 0, pointer, what, cause, hint });
        }
        if mistakes.is_full() {
            mistakes.has_more = true;
            return;
        }
    }
}

/// What to write instead of a stream that is none: the nearest of these words, else one of all streams.
fn write_one_of<'a>(wrong: &str, words: impl IntoIterator<Item = &'a str>, streams: &str) -> String {
    match nearest(wrong, words) {
        Some(near) => format!("did you mean `{near}`?"),
        None if streams.is_empty() => "add a source of that name".to_owned(),
        None => format!("streams are {}", shortened(streams)),
    }
}
