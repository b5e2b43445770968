//! `[sink.NAME]`: what takes the messages of runs out of the streams.

use super::keys::{self, Place};
use super::section::{Section, Setting, Shown, Word};
use super::template::{self, Wrong};
use crate::limits;
use crate::units::{Refused, duration_text, shortened};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One sink of kind `nexus`: a file for each run.
#[derive(Clone, Debug)]
pub struct SinkSection {
    /// Name of the section.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// The streams that go into the file.
    pub inputs: Setting<Vec<String>>,
    /// Structure of the file.
    pub template: Setting<PathBuf>,
    /// Name of each run's file, with its placeholders.
    pub file: Setting<String>,
    /// Where the files go.
    pub folder: Setting<PathBuf>,
    /// How streams become datasets.
    pub layout: Setting<Layout>,
    /// How often the file on disk is brought up to date.
    pub flush: Setting<Duration>,
    /// The streams that the template names, with their lines in it.
    pub(super) template_streams: BTreeMap<String, u32>,
    pub(super) shown: Vec<Shown>,
}

impl SinkSection {
    /// The path of a run's file.
    #[must_use]
    pub fn path_of(&self, instrument: &str, run: &str) -> PathBuf {
        self.folder.join(filled(&self.file, instrument, run, &self.name))
    }
}

/// How streams become datasets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// As scippnexus and Mantid read them.
    #[default]
    Nexus,
}

impl Word for Layout {
    const ALL: &'static [(&'static str, Self)] = &[("nexus", Self::Nexus)];
    const LATER: &'static [&'static str] = &["ess"];
}

#[derive(Clone, Copy, PartialEq)]
enum KindWord {
    Nexus,
}

impl Word for KindWord {
    const ALL: &'static [(&'static str, Self)] = &[("nexus", Self::Nexus)];
    const LATER: &'static [&'static str] = &["kafka", "pva", "ca", "link"];
}

const PLACEHOLDERS: [&str; 3] = ["{instrument}", "{run}", "{sink}"];

fn filled(pattern: &str, instrument: &str, run: &str, sink: &str) -> String {
    // One pass: a run named `{sink}` cannot exist, so what is filled in is never filled in again.
    pattern.replace("{instrument}", instrument).replace("{run}", run).replace("{sink}", sink)
}

/// Reads one section; what is wrong in it is noted. `data` is the data folder where it is known.
pub(super) fn read(
    name: &str,
    section: &mut Section<'_>,
    folder: &Path,
    data: &Path,
    template_check: &super::TemplateCheck<'_>,
) -> SinkSection {
    let _: Option<Setting<KindWord>> = section.get(&keys::SINK_KIND);
    section.refuse_unknown(&[Place::Nexus], &[]);
    let inputs = section.get(&keys::INPUTS).unwrap_or_default();
    let template = section
        .need::<String>(&keys::TEMPLATE)
        .map(|path| if path.is_empty() { PathBuf::new() } else { folder.join(path) });
    let mut template_streams = BTreeMap::new();
    if !template.as_os_str().is_empty() {
        match template::streams(&template) {
            Ok(streams) => {
                template_streams = streams;
                template_check(&template).into_iter().for_each(|mistake| section.mistakes.push(mistake));
            }
            Err(Wrong::Path(refused)) => section.refuse(&keys::TEMPLATE, refused),
            Err(Wrong::Content(mistake)) => section.mistakes.push(mistake),
        }
    }
    let file: Option<Setting<String>> = section.get(&keys::FILE);
    if let Some(file) = &file
        && let Err(refused) = check_pattern(file, name)
    {
        section.refuse(&keys::FILE, refused);
    }
    let target = match section.get::<String>(&keys::FOLDER) {
        Some(target) => target.map(|target| folder.join(target)),
        None => {
            let target = data.join("files");
            section.note(&keys::FOLDER, Setting::by_default(target.display().to_string()));
            Setting::by_default(target)
        }
    };
    let layout = section.need(&keys::LAYOUT);
    let flush = section.get::<Duration>(&keys::FLUSH);
    if let Some(flush) = &flush
        && flush.value < limits::FLUSH_MIN
    {
        section.refuse(
            &keys::FLUSH,
            Refused::new(
                format!("{} is too short", duration_text(flush.value)),
                format!("write at least \"{}\"", duration_text(limits::FLUSH_MIN)),
            ),
        );
    }
    SinkSection {
        name: name.to_owned(),
        line: section.line,
        inputs,
        template,
        file: file.unwrap_or_default(),
        folder: target,
        layout,
        flush: flush.unwrap_or_default(),
        template_streams,
        shown: std::mem::take(&mut section.shown),
    }
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
