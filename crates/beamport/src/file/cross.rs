//! Checks across sections: names that must exist, files and folders that must differ.

use super::page::Page;
use super::section::{Mistakes, Setting, Shown, Take as _};
use super::{Clock, Instrument, Level, Mistake, SourceKind, nearest};
use crate::units::shortened;
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

/// Notes what does not fit together, and fills in the inputs of sinks that name none. `streams` are the names of all sources.
pub(super) fn check(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    streams: &[String],
    instrument: &mut Instrument,
) {
    if streams.is_empty() && !has_holes {
        let hint = "add a section:\n       [source.detector]\n       kind = \"sim\"\n       model = \"amor\"";
        mistakes.push(page.mistake(1, "there is no source", "no section [source.NAME]", hint));
    }
    let merges: Vec<String> = instrument.merges.iter().map(|merge| merge.name.clone()).collect();
    let known: HashSet<&str> = streams.iter().chain(&merges).map(String::as_str).collect();
    let data = plain(&instrument.data);
    for source in &instrument.sources {
        // A stream has one writer, and a replay into the stream it reads would never come to its end.
        if let SourceKind::Replay(replay) = &source.kind
            && plain(&replay.from_data) == data
            && *replay.stream == source.name
        {
            let line = replay.from_data.line_or(source.line);
            let what = format!("source `{}` plays a stream into itself", shortened(&source.name));
            mistakes.push(page.mistake(
                line,
                what,
                "`from_data` is this instrument's own data folder",
                "give `data` another folder, or the section another name",
            ));
        }
    }
    let mut files: HashMap<(PathBuf, String), (String, u32)> = HashMap::new();
    for sink in &mut instrument.sinks {
        if known.contains(sink.name.as_str()) {
            let other = if merges.contains(&sink.name) { "merge" } else { "source" };
            let what = format!("sink `{}` has the name of a {other}", shortened(&sink.name));
            mistakes.push(page.mistake(
                sink.line,
                what,
                "each stage keeps its commits under its name",
                "give one of the two another name",
            ));
        }
        let before = mistakes.list.len();
        check_inputs(page, mistakes, has_holes, sink, streams, &known);
        // What is wrong with the inputs is not said a second time for the template.
        if mistakes.list.len() == before {
            check_template(page, mistakes, has_holes, sink, &known);
        }
        let line = sink.file.line_or(sink.line);
        let target = (plain(&sink.folder), sink.file.replace("{sink}", &sink.name));
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
}

/// Notes what does not fit together in merges, and fills in the level of those that say none. `streams` are the names of
/// all sources.
pub(super) fn check_merges(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    streams: &[String],
    instrument: &mut Instrument,
) {
    // What a source, or a merge further up, fills: with its level, and whether its times can be compared.
    let mut known: HashMap<String, (Level, bool)> = HashMap::new();
    for source in &instrument.sources {
        known.insert(source.name.clone(), (source.level.value, source.clock.value == Clock::Epoch));
    }
    for merge in &mut instrument.merges {
        let line = merge.inputs.line_or(merge.line);
        let title = format!("merge `{}`", shortened(&merge.name));
        let mut say = |line, what: String, cause: &str, hint: String| {
            mistakes.push(page.mistake(line, what, cause, hint));
        };
        if streams.contains(&merge.name) {
            say(
                merge.line,
                format!("{title} has the name of a source"),
                "a stream has one writer",
                "give one of the two another name".into(),
            );
        }
        if merge.inputs.is_empty() && merge.inputs.origin != super::Origin::Default {
            say(line, format!("{title} has no inputs"), "the list is empty", "name two streams or more".into());
        }
        let (mut seen, mut all_disk) = (HashSet::new(), true);
        for input in merge.inputs.iter() {
            let shown = shortened(input);
            if !seen.insert(input.as_str()) {
                say(line, format!("{title} takes `{shown}` twice"), "", "remove one of the two".into());
            }
            match known.get(input) {
                Some((level, is_epoch)) => {
                    all_disk &= *level == Level::Disk;
                    if !is_epoch {
                        say(
                            line,
                            format!("{title} takes `{shown}`"),
                            "its times do not count ns since 1970 UTC",
                            "merge streams of sources with clock = \"epoch\"".into(),
                        );
                    }
                    let wants_disk = merge.output.level.as_ref().is_some_and(|level| level.value == Level::Disk);
                    if wants_disk && *level == Level::Memory {
                        say(
                            merge.output.level.as_ref().map_or(line, |level| level.line_or(line)),
                            format!("{title} cannot survive a power cut"),
                            &format!("it points into `{shown}`, which has level \"memory\""),
                            "remove `level`, or give that source level = \"disk\"".into(),
                        );
                    }
                }
                // One that is wrong in itself has been named.
                None if streams.contains(input) || has_holes => {}
                None => {
                    let hint = match nearest(input, known.keys().map(String::as_str)) {
                        Some(near) => format!("write `{near}`"),
                        None => format!("streams are {}", shortened(&streams.join(", "))),
                    };
                    say(line, format!("{title} takes `{shown}`"), "no source, nor a merge further up, fills it", hint);
                }
            }
        }
        let level = match &merge.output.level {
            Some(level) => level.value,
            None => {
                let level = if all_disk { Level::Disk } else { Level::Memory };
                merge.shown.push(Shown {
                    key: super::keys::OUTPUT_LEVEL.name,
                    value: level.show(),
                    origin: super::Origin::Default,
                });
                merge.output.level = Some(Setting::by_default(level));
                level
            }
        };
        known.insert(merge.name.clone(), (level, true));
    }
}

fn check_inputs(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    sink: &mut super::SinkSection,
    streams: &[String],
    known: &HashSet<&str>,
) {
    if sink.inputs.origin == super::Origin::Default {
        sink.inputs = Setting::by_default(streams.to_vec());
        sink.shown.push(Shown { key: super::keys::INPUTS.name, value: streams.into(), origin: super::Origin::Default });
        return;
    }
    let line = sink.inputs.line_or(sink.line);
    let title = format!("sink `{}`", shortened(&sink.name));
    if sink.inputs.is_empty() {
        mistakes.push(page.mistake(
            line,
            format!("{title} has no inputs"),
            "the list is empty",
            "name a stream, or remove `inputs` to take all",
        ));
    }
    let mut seen = HashSet::new();
    for input in sink.inputs.iter() {
        if mistakes.is_full() {
            mistakes.has_more = true;
            return;
        }
        if !seen.insert(input.as_str()) {
            mistakes.push(page.mistake(
                line,
                format!("{title} takes `{}` twice", shortened(input)),
                "",
                "remove one of the two",
            ));
        } else if !known.contains(input.as_str()) && !has_holes {
            let hint = match nearest(input, streams.iter().map(String::as_str)) {
                Some(near) => format!("write `{near}`"),
                None => format!("streams are {}", shortened(&streams.join(", "))),
            };
            mistakes.push(page.mistake(
                line,
                format!("{title} takes `{}`", shortened(input)),
                "no source fills that stream",
                hint,
            ));
        }
    }
}

/// That the sink takes every stream from which its template fills a group: what it does not take would never come.
fn check_template(
    page: &Page,
    mistakes: &mut Mistakes,
    has_holes: bool,
    sink: &super::SinkSection,
    known: &HashSet<&str>,
) {
    let title = format!("sink `{}`", shortened(&sink.name));
    let at = format!("{}:{}", page.file, sink.inputs.line_or(sink.line));
    for (stream, line) in sink.template_streams.iter().filter(|(stream, _)| !sink.inputs.contains(stream)) {
        let shown = shortened(stream);
        let (what, cause, hint) = if known.contains(stream.as_str()) {
            let cause = format!("its `inputs` at {at} are {}", shortened(&sink.inputs.join(", ")));
            (format!("{title} does not take stream `{shown}`"), cause, format!("add `{shown}` to `inputs`"))
        } else if has_holes {
            continue;
        } else {
            let hint = match nearest(stream, sink.inputs.iter().map(String::as_str)) {
                Some(near) => format!("write `{near}`"),
                None => format!("streams are {}", shortened(&sink.inputs.join(", "))),
            };
            (format!("no source fills stream `{shown}`"), format!("{title} at {at} would wait for it"), hint)
        };
        let file = sink.template.display().to_string();
        mistakes.push(Mistake { file, line: *line, what, cause, hint });
    }
}

/// A path without `.` and `x/..`, for comparing; links are not followed.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}
