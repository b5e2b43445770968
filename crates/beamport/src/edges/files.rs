//! `kind = "files"`: frames of each run in as many HDF5 files as they need.

use super::sink::{Around, FileKind, FilePlan, flush, pattern, target};
use crate::limits;
use flow::job::{Compression, Work, Writer};
use settings::units::{Refused, shortened};
use settings::{Key, Section, Setting, key, required};
use std::time::Duration;

static INPUTS: Key = required("inputs", "list of streams", "The streams of frames; each gets its own files.");
static FRAMES: Key = key("frames", "whole number, 1 to 1000000", "1000", "Frames per file.");
static COMPRESSION: Key = key(
    "compression",
    "`none`, `bitshuffle-lz4` or `deflate`",
    "none",
    "Compression of all chunks. `bitshuffle-lz4` is fast, but readers need `hdf5plugin`; every HDF5 reads `deflate`.",
);
static FILE: Key = key(
    "file",
    "folder with `{run}`, `/`, file name with `{number}`",
    "{instrument}_{run}_{sink}/{stream}_{number}.h5",
    "Folder of each run and name of its files, with `{instrument}`, `{run}`, `{sink}`, and in the name `{stream}` and `{number}`. `B3SUMS` beside the files lists them.",
);
static FOLDER: Key =
    key("folder", "folder", "", "Folder for the folders of the runs. Default: `files` in the data folder.");
static FLUSH: Key = key(
    "flush",
    "duration, 10 ms or more",
    "1 s",
    "How often the files on disk are updated; less often if that takes over a tenth of the time, sooner if a memory stream would fill.",
);

/// The kind `files`.
pub(super) static SINK: FileKind = FileKind {
    name: "files",
    about: "The frames of each run in HDF5 files of a limited length, without a template.",
    keys: &[&INPUTS, &FRAMES, &COMPRESSION, &FILE, &FOLDER, &FLUSH],
    read,
};

/// The list of hashes beside the files of kind `files`.
const SUMS: &str = "B3SUMS";
/// Filled in by the writer.
const OF_FILES: [&str; 2] = ["{stream}", "{number}"];

fn read(name: &str, section: &mut Section<'_>, around: &Around<'_>) -> FilePlan {
    let frames: Option<Setting<u64>> = section.get(&FRAMES);
    if let Some(frames) = &frames
        && !(1..=limits::FRAMES_MAX).contains(&frames.value)
    {
        let cause = format!("files of {} frames", frames.value);
        section.refuse(&FRAMES, Refused::new(cause, format!("write 1 to {}", limits::FRAMES_MAX)));
    }
    let compression: Setting<Compression> = section.need(&COMPRESSION);
    let inputs: Setting<Vec<String>> = section.get(&INPUTS).unwrap_or_default();
    let count = inputs.len();
    FilePlan {
        inputs,
        work: Work::Frames { max: frames.map_or(0, |frames| frames.value), compression: compression.value },
        writer: Writer::default(),
        file: pattern(section, &FILE, |file| check_pattern(file, name, count)),
        folder: target(section, &FOLDER, around),
        flush: flush(section, &FLUSH),
        hold: Duration::ZERO,
        whole: false,
        writers: 1,
        modules: Vec::new(),
    }
}

/// A pattern of kind `files` must name a folder for every run, and in it a plain file with its number.
pub(crate) fn check_pattern(pattern: &str, sink: &str, inputs: usize) -> Result<(), Refused> {
    let like = "write it like \"{instrument}_{run}/{stream}_{number}.h5\"";
    let parts: Vec<&str> = pattern.split('/').collect();
    let [folder, file] = parts[..] else {
        let cause = format!("`{}` is not a folder and a file in it", shortened(pattern));
        return Err(Refused::new(cause, like));
    };
    super::sink::check_pattern(folder, sink)?;
    let mut plain = file.to_owned();
    OF_FILES.iter().for_each(|word| plain = plain.replace(word, ""));
    // What is the same for every run is fine here: the folder is not.
    super::sink::check_pattern(&format!("x{{run}}{plain}"), sink)?;
    if file.is_empty() || file.starts_with('.') || file == SUMS {
        return Err(Refused::new(format!("`{}` is not a name for files", shortened(file)), like));
    }
    if !file.contains("{number}") {
        return Err(Refused::new(format!("`{}` is the same for every file", shortened(file)), "add `{number}`"));
    }
    if inputs > 1 && !file.contains("{stream}") {
        return Err(Refused::new(format!("`{}` is the same for every stream", shortened(file)), "add `{stream}`"));
    }
    Ok(())
}
