//! `beamport verify FILE`: whether a file is what a sink made, by its BLAKE3. `beamport-nexus hash` reads it.
//!
//! The expected hash is in the commits of the sink that made the file, and for files of frames in the list `B3SUMS`
//! beside them. A file that was moved or renamed is known by its hash. Of the list each file is looked at, and the list
//! itself; of a run by several writers the run's file and those beside it that it leads to.

use super::figures::{bytes, thousands};
use super::table::Table;
use super::verify::{Progress, Verify};
use super::{Answer, json_line, open};
use crate::file::{writer_file, writer_name};
use crate::limits::WRITERS_MAX;
use crate::mover::program;
use flow::{Data, Fault, Interruption};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Name of the list of hashes beside files of frames.
const SUMS: &str = "B3SUMS";

/// A finished file of a sink for a run.
struct Made {
    sink: String,
    run: String,
    file: PathBuf,
    blake3: String,
}

/// The files in the commits of a data folder.
#[derive(Default)]
struct Known {
    made: Vec<Made>,
    /// Sinks and runs of which a file is not finished.
    unfinished: Vec<(String, String)>,
}

/// An expected hash of a file.
struct Expected {
    /// The sink and run, or the list, that has the hash.
    by: String,
    blake3: String,
}

/// One file that was looked at.
struct Seen {
    file: PathBuf,
    size: u64,
    blake3: String,
    by: String,
    wrong: Option<String>,
}

/// Reads the file, or those of a list, and compares.
pub(super) fn verify(asked: &Verify, file: &Path, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    if asked.repair {
        let fault = Fault::new(format!("{} is not repaired", file.display()), "`--repair` is for streams");
        return Err(fault.hint("write the file again: `beamport write RUN --output FILE`").into());
    }
    // Without a data folder a list still says what its files are.
    let has_runs = |folder: &Path| store::Header::read(&store::Os, &folder.join(flow::RUNS)).is_ok();
    let folder = asked.data.or_above(file, &has_runs);
    let known = open(&folder).ok().map(|data| known(&data)).transpose()?.unwrap_or_default();
    let made = &known.made;
    let list = if file.is_dir() { file.join(SUMS) } else { file.to_path_buf() };
    let mut seen = Vec::new();
    if list.file_name().is_some_and(|name| name == SUMS) {
        let named = listed(&list)?;
        let mut progress = Progress::new();
        for (at, (name, blake3)) in named.iter().enumerate() {
            progress.draw(err, SUMS, at as u64, named.len() as u64);
            let by = format!("in {SUMS}");
            seen.push(one_of_many(&list.with_file_name(name), Expected { by, blake3: blake3.clone() })?);
        }
        progress.clear(err);
    }
    let expected = expected(&list, made);
    // A list of which no sink says anything is only as good as itself.
    if seen.is_empty() || !expected.is_empty() {
        let whole = one(&list, expected, made)?;
        let others = others(&list, &whole, &known)?;
        seen.push(whole);
        seen.extend(others);
    }
    let wrong = seen.iter().any(|one| one.wrong.is_some());
    if asked.form.json {
        let files: Vec<Value> = seen.iter().map(told).collect();
        json_line(out, &json!({"ok": !wrong, "files": files}))?;
        return Ok(ExitCode::from(u8::from(wrong)));
    }
    if let [one] = &seen[..] {
        writeln!(out, "file      {}", one.file.display())?;
        writeln!(out, "size      {}", bytes(one.size))?;
        writeln!(out, "blake3    {}", one.blake3)?;
        writeln!(out, "known     {}", one.by)?;
        writeln!(out, "result    {}", one.wrong.as_deref().unwrap_or("ok"))?;
    } else {
        let mut table = Table::new(&["file", ">bytes", "result"]);
        for one in seen.iter().filter(|one| one.wrong.is_some()) {
            let name = one.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            table.row([name, bytes(one.size), one.wrong.clone().unwrap_or_default()]);
        }
        if !table.is_empty() {
            write!(out, "{table}")?;
        }
        let good = seen.iter().filter(|one| one.wrong.is_none()).count();
        writeln!(out, "{} of {} files are ok", thousands(good as u64), thousands(seen.len() as u64))?;
    }
    Ok(ExitCode::from(u8::from(wrong)))
}

fn told(one: &Seen) -> Value {
    json!({"file": one.file.display().to_string(), "size": one.size, "blake3": one.blake3, "known": one.by,
           "ok": one.wrong.is_none(), "wrong": one.wrong})
}

/// Reads the files of a data folder's sinks from their last commits.
fn known(data: &Data) -> Result<Known, Fault> {
    let mut known = Known::default();
    for (run, sinks) in flow::commits::last_commits(data)? {
        for (sink, commit) in sinks {
            if !commit.finished {
                known.unfinished.push((sink, run.clone()));
                continue;
            }
            let product: Value = serde_json::from_str(&commit.state).unwrap_or_default();
            if let (Some(file), Some(blake3)) = (product["file"].as_str(), product["blake3"].as_str()) {
                known.made.push(Made { sink, run: run.clone(), file: file.into(), blake3: blake3.into() });
            }
        }
    }
    Ok(known)
}

/// Looks at the files beside a run's file that other writers of its sink made: it leads to them.
fn others(file: &Path, whole: &Seen, known: &Known) -> Result<Vec<Seen>, Interruption> {
    // It was found by its place, its name or its bytes.
    let Some(of) = known.made.iter().find(|one| one.by() == whole.by) else { return Ok(Vec::new()) };
    let Some(name) = of.file.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let mut seen = Vec::new();
    for number in 1..WRITERS_MAX as usize {
        let (sink, name) = (writer_name(&of.sink, number), writer_file(name, number));
        let beside = file.with_file_name(&name);
        let is_it =
            |made: &&Made| made.sink == sink && made.run == of.run && made.file == of.file.with_file_name(&name);
        if let Some(made) = known.made.iter().find(is_it) {
            seen.push(one_of_many(&beside, Expected { by: made.by(), blake3: made.blake3.clone() })?);
        } else if beside.is_file() && known.unfinished.contains(&(sink.clone(), of.run.clone())) {
            let wrong = Some("its writer has not finished it".to_owned());
            let by = format!("sink `{sink}` of run `{}`", of.run);
            seen.push(Seen { file: beside, size: 0, blake3: String::new(), by, wrong });
        }
    }
    Ok(seen)
}

/// The hashes that are expected of a file at its place.
fn expected(file: &Path, made: &[Made]) -> Vec<Expected> {
    let whole = file.canonicalize().ok();
    let is_it = |one: &&Made| whole.is_some() && one.file.canonicalize().ok() == whole;
    let by_sink = |one: &Made| Expected { by: one.by(), blake3: one.blake3.clone() };
    let mut all: Vec<Expected> = made.iter().filter(is_it).map(by_sink).collect();
    let sums = file.with_file_name(SUMS);
    if sums != file
        && let Ok(named) = listed(&sums)
    {
        let of_it = named.into_iter().filter(|(name, _)| file.file_name().is_some_and(|own| own == name.as_str()));
        all.extend(of_it.map(|(_, blake3)| Expected { by: format!("in {}", sums.display()), blake3 }));
    }
    // Every list has the same name.
    if all.is_empty() && sums != file {
        // Moved, or copied from where it was made.
        let of_name = made.iter().filter(|one| one.file.file_name() == file.file_name());
        all.extend(of_name.map(by_sink));
    }
    all
}

impl Made {
    fn by(&self) -> String {
        format!("made by sink `{}` of run `{}`", self.sink, self.run)
    }
}

/// Looks at one of several files: what cannot be read is wrong, and the others are looked at all the same.
fn one_of_many(file: &Path, expected: Expected) -> Result<Seen, Interruption> {
    let by = expected.by.clone();
    match one(file, vec![expected], &[]) {
        Err(Interruption::Fault(fault)) => {
            let wrong = Some(fault.cause);
            Ok(Seen { file: file.to_path_buf(), size: 0, blake3: String::new(), by, wrong })
        }
        answer => answer,
    }
}

/// Looks at a file of which some is expected, or which is something that was made.
fn one(file: &Path, expected: Vec<Expected>, made: &[Made]) -> Result<Seen, Interruption> {
    let refused = |cause: String| Fault::new(format!("cannot verify {}", file.display()), cause);
    match std::fs::metadata(file) {
        // A pipe or a device might be waited for without end.
        Ok(found) if !found.is_file() => return Err(refused("it is not a plain file".into()).into()),
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !expected.is_empty() => {
            let by = expected.into_iter().next().map(|one| one.by).unwrap_or_default();
            let wrong = Some("it is not there".to_owned());
            return Ok(Seen { file: file.to_path_buf(), size: 0, blake3: String::new(), by, wrong });
        }
        Err(e) => return Err(Fault::io(format!("cannot verify {}", file.display()), &e).into()),
    }
    let output = Command::new(program()?).arg("hash").arg("--").arg(file).stdin(Stdio::null()).output();
    let output = output.map_err(|e| Fault::new("`beamport-nexus` does not start", e))?;
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let (Some(blake3), Some(size)) = (said["blake3"].as_str(), said["size"].as_u64()) else {
        return Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()).into());
    };
    let same = expected.iter().find(|one| one.blake3 == blake3).map(|one| one.by.clone());
    let same = same.or_else(|| made.iter().find(|one| one.blake3 == blake3).map(Made::by));
    let (by, wrong) = match (same, expected.into_iter().next()) {
        (Some(by), _) => (by, None),
        (None, Some(Expected { by, blake3 })) => (by, Some(format!("it is not that file, of BLAKE3 {blake3}"))),
        (None, None) => {
            let cause = format!("no sink of the data folder wrote it; its BLAKE3 is {blake3}");
            let hint = "name the data folder of its run with `--data DIR`; for a file of `beamport write`, compare the printed BLAKE3";
            return Err(refused(cause).hint(hint).into());
        }
    };
    Ok(Seen { file: file.to_path_buf(), size, blake3: blake3.to_owned(), by, wrong })
}

/// Names and hashes of a list.
fn listed(list: &Path) -> Result<Vec<(String, String)>, Fault> {
    let what = || format!("cannot read {}", list.display());
    let text = std::fs::read_to_string(list).map_err(|e| Fault::io(what(), &e))?;
    let entry = |line: &str| {
        let (blake3, name) = line.split_once("  ")?;
        // The files lie beside the list, and nowhere else.
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        is_name.then(|| (name.to_owned(), blake3.to_owned()))
    };
    let all: Option<Vec<_>> = text.lines().map(entry).collect();
    all.ok_or_else(|| Fault::new(what(), "a line is not a hash, two spaces and a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_names_files_elsewhere_is_refused() {
        let folder = std::env::temp_dir().join(format!("beamport-sums-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let list = folder.join(SUMS);
        std::fs::write(&list, "00  a.h5\n11  b.h5\n").unwrap();
        assert_eq!(listed(&list).unwrap(), [("a.h5".into(), "00".into()), ("b.h5".into(), "11".into())]);
        for wrong in ["00  ../a.h5\n", "00  /etc/passwd\n", "00  ..\n", "00 a.h5\n", "00  \n"] {
            std::fs::write(&list, wrong).unwrap();
            assert!(listed(&list).is_err(), "{wrong}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
