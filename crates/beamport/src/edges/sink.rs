//! Kinds of sinks, and what those that write files have in common.

use crate::limits;
use flow::checked::StreamModule;
use flow::edge::LiveKind;
use flow::job::{Work, Writer};
use settings::units::{Refused, duration_text, shortened};
use settings::{Key, Mistake, Section, Setting};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A kind of sink: the word behind `kind` in `[sink.NAME]`.
#[derive(Clone, Copy, Debug)]
pub enum SinkKind {
    /// One that makes files of runs.
    Files(&'static FileKind),
    /// One that sends messages as they come.
    Live(&'static LiveKind),
}

impl From<&'static FileKind> for SinkKind {
    fn from(kind: &'static FileKind) -> Self {
        Self::Files(kind)
    }
}

impl From<&'static LiveKind> for SinkKind {
    fn from(kind: &'static LiveKind) -> Self {
        Self::Live(kind)
    }
}

impl SinkKind {
    /// Its word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Files(kind) => kind.name,
            Self::Live(kind) => kind.name,
        }
    }

    /// Its effect on the messages, in one sentence, for the reference page.
    #[must_use]
    pub fn about(&self) -> &'static str {
        match self {
            Self::Files(kind) => kind.about,
            Self::Live(kind) => kind.about,
        }
    }

    /// Keys of its own, in the order of the reference page.
    #[must_use]
    pub fn keys(&self) -> &'static [&'static Key] {
        match self {
            Self::Files(kind) => kind.keys,
            Self::Live(kind) => kind.keys,
        }
    }
}

/// A kind of sink that makes files of runs.
#[derive(Debug)]
pub struct FileKind {
    /// Its word.
    pub name: &'static str,
    /// The files that it makes of the messages, in one sentence, for the reference page.
    pub about: &'static str,
    /// Its keys, in the order of the reference page. `read` asks all of them, whatever their values are.
    pub keys: &'static [&'static Key],
    /// Reads the section of the sink with this name and notes every mistake.
    pub read: fn(&str, &mut Section<'_>, &Around<'_>) -> FilePlan,
}

/// The context that a kind of sink may use beside its section.
pub struct Around<'a> {
    /// The data folder, where it is known.
    pub data: &'a Path,
    /// Checks a template.
    pub template_check: &'a TemplateCheck<'a>,
}

/// Checks a template, given its path and its writer.
pub type TemplateCheck<'a> = dyn Fn(&Path, &Writer) -> TemplateAnswer + 'a;

/// The result of checking a template.
#[derive(Clone, Debug, Default)]
pub struct TemplateAnswer {
    /// Its mistakes and warnings.
    pub mistakes: Vec<Mistake>,
    /// Its modules that read streams; none where it is not valid JSON.
    pub modules: Vec<StreamModule>,
}

/// A sink that makes files of each run.
#[derive(Clone, Debug)]
pub struct FilePlan {
    /// The streams that go into the files; none: all sources of the instrument.
    pub inputs: Setting<Vec<String>>,
    /// The files that are made of a run.
    pub work: Work,
    /// The program that writes the files.
    pub writer: Writer,
    /// Name of each run's file, with its placeholders; with [`Work::Frames`] the run's folder comes before it.
    pub file: Setting<String>,
    /// Where the files go.
    pub folder: Setting<PathBuf>,
    /// How often the file on disk is brought up to date.
    pub flush: Setting<Duration>,
    /// While a run is open, messages that are newer than this are not written yet.
    pub hold: Duration,
    /// Write no file of a part.
    pub whole: bool,
    /// Writers that are asked for.
    pub writers: u64,
    /// The modules of the template that read streams, with the names of the streams, not those in the template.
    pub modules: Vec<StreamModule>,
}

const PLACEHOLDERS: [&str; 3] = ["{instrument}", "{run}", "{sink}"];

/// A pattern with its placeholders filled in.
pub(crate) fn filled(pattern: &str, instrument: &str, run: &str, sink: &str) -> String {
    // One pass: a run named `{sink}` cannot exist, so what is filled in is never filled in again.
    pattern.replace("{instrument}", instrument).replace("{run}", run).replace("{sink}", sink)
}

/// A name of files: `check` says what is wrong with it.
pub(super) fn pattern(
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

/// Where the files go: `files` in the data folder without the key.
pub(super) fn target(section: &mut Section<'_>, key: &'static Key, around: &Around<'_>) -> Setting<PathBuf> {
    match section.path(key) {
        Some(target) => target,
        None => {
            let target = around.data.join("files");
            section.note(key, Setting::by_default(target.display().to_string()));
            Setting::by_default(target)
        }
    }
}

/// Time between flushes.
pub(super) fn flush(section: &mut Section<'_>, key: &'static Key) -> Setting<Duration> {
    let flush: Option<Setting<Duration>> = section.get(key);
    if let Some(flush) = &flush
        && flush.value < limits::FLUSH_MIN
    {
        let hint = format!("write at least \"{}\"", duration_text(limits::FLUSH_MIN));
        section.refuse(key, Refused::new(format!("{} is too short", duration_text(flush.value)), hint));
    }
    flush.unwrap_or_default()
}

/// A pattern must name a plain file in its folder, and another one for every run.
pub(super) fn check_pattern(pattern: &str, sink: &str) -> Result<(), Refused> {
    check_name(pattern, sink)?;
    if pattern.contains("{run}") { Ok(()) } else { Err(one_for_all(pattern)) }
}

/// The refusal of a pattern that names the same plain file for every run.
pub(crate) fn one_for_all(pattern: &str) -> Refused {
    Refused::new(
        format!("`{}` is the same for every run", shortened(pattern)),
        "add `{run}`, like \"{instrument}_{run}.nxs\"",
    )
}

/// A pattern must name a plain file in its folder.
pub(crate) fn check_name(pattern: &str, sink: &str) -> Result<(), Refused> {
    let mut rest = pattern.to_owned();
    PLACEHOLDERS.iter().for_each(|word| rest = rest.replace(word, ""));
    if pattern.contains(['/', '\\']) {
        return Err(Refused::new(
            format!("`{}` leaves its folder", shortened(pattern)),
            "write a plain file name; `folder` sets its folder",
        ));
    }
    if pattern.starts_with('.') {
        return Err(Refused::new(
            format!("`{}` begins with a dot", shortened(pattern)),
            "write a plain file name like \"{instrument}_{run}.nxs\"",
        ));
    }
    if pattern.contains(char::is_control) {
        return Err(Refused::new(format!("`{}` contains a control character", shortened(pattern)), "remove it"));
    }
    if rest.contains(['{', '}']) {
        return Err(Refused::new(
            format!("`{}` contains an unknown placeholder", shortened(pattern)),
            format!("use {}", PLACEHOLDERS.join(", ")),
        ));
    }
    let longest = "x".repeat(settings::limits::NAME_CHARS_MAX);
    if rest.len() > limits::FILE_NAME_BYTES_MAX
        || filled(pattern, &longest, &longest, sink).len() > limits::FILE_NAME_BYTES_MAX
    {
        return Err(Refused::new(
            format!("can exceed {} bytes with long names", limits::FILE_NAME_BYTES_MAX),
            "write a shorter name",
        ));
    }
    Ok(())
}
