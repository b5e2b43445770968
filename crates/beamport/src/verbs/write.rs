//! `beamport write`: the file of a sealed run, made again from the streams.
//!
//! The work is done by `beamport-nexus` without positions and commits: nothing in the data folder changes. Refused
//! where the answer could not be the whole run: not sealed, messages gone, or a file in the way.

use super::figures::bytes;
use super::verify::Progress;
use super::{Answer, Asked, ended, json_line, members, open};
use crate::cli::Write as Verb;
use crate::mover::Job;
use flow::Fault;
use serde_json::{Value, json};
use std::io::{self, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How often the child is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Milliseconds between flushes: nobody watches this file grow, and each flush costs a sync.
const FLUSH_MS: u128 = 10_000;

/// Runs the verb.
pub fn run(asked: &Verb, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let answer = write(asked, out, err);
    ended(answer, err)
}

fn write(asked: &Verb, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let run = members::sealed(&data, &asked.run, "written")?;
    check_output(&asked.output)?;
    let template = match &asked.template {
        Some(template) if template.is_file() => template.clone(),
        Some(template) => {
            let what = format!("template `{}` cannot be read", template.display());
            return Err(Fault::new(what, "there is no such file").into());
        }
        None => match recorded_template(&run.metadata) {
            Some(template) => template,
            None => only_template(&data.folder)?,
        },
    };
    let members = members::all(&data, &run)?;
    members::refuse_missing(&data, &run, "written")?;
    members::refuse_gone(&run.name, "written", &members)?;
    let job = Job {
        data: data.folder.clone(),
        sink: "write".into(),
        run: run.name.clone(),
        inputs: members::streams(&run),
        template,
        output: asked.output.clone(),
        flush_ms: FLUSH_MS,
        detached: true,
    };
    let product = made(&job, members.iter().map(|m| m.bytes).sum(), err)?;
    let account = &product["account"];
    let (closed, lost) = (account["closed"].as_bool(), account["lost"].as_u64());
    if asked.form.json {
        json_line(out, &product)?;
    } else {
        let size = product["size"].as_u64().unwrap_or_default();
        let messages: u64 = members.iter().map(|m| m.messages).sum();
        writeln!(out, "file      {}", product["file"].as_str().unwrap_or_default())?;
        writeln!(out, "size      {}", bytes(size))?;
        writeln!(out, "sha256    {}", product["sha256"].as_str().unwrap_or_default())?;
        writeln!(out, "messages  {}", super::figures::thousands(messages))?;
        writeln!(out, "lost      {}", super::figures::known(lost))?;
        writeln!(out, "closed    {}", if closed == Some(true) { "yes" } else { "no" })?;
    }
    // An account that is not there proves nothing.
    Ok(ExitCode::from(u8::from(lost != Some(0) || closed != Some(true))))
}

/// Refuses a name that is taken, if only by a link that leads nowhere, and a folder that is not there: a folder is made by
/// who knows where it belongs.
fn check_output(file: &Path) -> Result<(), Fault> {
    let refused = |cause: &str| Fault::new(format!("`{}` is not written", file.display()), cause);
    if let Ok(there) = std::fs::symlink_metadata(file) {
        let cause = if there.is_symlink() { "there is a link of that name" } else { "there is a file of that name" };
        return Err(refused(cause).hint("choose another name, or move it away"));
    }
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => Err(refused(&format!("there is no folder `{}`", folder.display()))
            .hint(format!("`mkdir -p {}`", folder.display()))),
        _ => Ok(()),
    }
}

/// The template of the run's first sink, as the run itself recorded it, if it is still there.
fn recorded_template(metadata: &str) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
    let sinks = metadata["sinks"].as_object()?;
    sinks.values().filter_map(|s| s["template"].as_str().map(PathBuf::from)).find(|t| t.is_file())
}

/// The one template of a data folder.
fn only_template(folder: &Path) -> Result<PathBuf, Fault> {
    let mut templates: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|e| Fault::new(format!("data folder `{}` cannot be read", folder.display()), e))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(".nexus.json")))
        .collect();
    match (templates.pop(), templates.len()) {
        (Some(template), 0) => Ok(template),
        (found, others) => {
            let number = if found.is_some() { others + 1 } else { 0 };
            let cause = format!("{number} files `*.nexus.json` are in {}", folder.display());
            Err(Fault::new("it is not clear which structure the file has", cause)
                .hint("add `--template FILE`: the `template` of the sink in the instrument file"))
        }
    }
}

/// Lets the child write; its answer.
fn made(job: &Job, of: u64, err: &mut dyn Write) -> Result<Value, super::Stop> {
    let mut answer = nameless().map_err(|e| Fault::new("the writer's answer cannot be kept", e))?;
    let signals = Asked::to_end()?;
    let mut child = job.start_into(&mut answer)?;
    let mut progress = Progress::new();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) => return Err(Fault::new("the writer is lost", e).into()),
        }
        // Close to what it will be: arrays are most of a file and stand in it as they are in the messages.
        let size = std::fs::metadata(&job.output).map_or(0, |m| m.len());
        progress.draw(err, &job.run, size.min(of), of);
        if signals.yes() {
            // Ctrl-C is left to us: the child would go on.
            let ended = child.kill().and_then(|()| child.wait());
            progress.clear(err);
            discard(&job.output);
            let cause = ended.map_or_else(|e| e.to_string(), |_| "interrupted".into());
            return Err(Fault::new(format!("`{}` is not written", job.output.display()), cause).into());
        }
        std::thread::sleep(LOOK);
    };
    progress.clear(err);
    if !status.success() {
        discard(&job.output);
        // What it had to say stands on stderr above.
        return Err(Fault::new(
            format!("`{}` is not written", job.output.display()),
            format!("the writer ended: {status}"),
        )
        .into());
    }
    let mut text = String::new();
    answer
        .rewind()
        .and_then(|()| answer.read_to_string(&mut text))
        .map_err(|e| Fault::new("the writer's answer cannot be read", e))?;
    let line = text.lines().next_back().unwrap_or_default();
    let mut product: Value =
        serde_json::from_str(line).map_err(|e| Fault::new("the writer's answer is not JSON", e))?;
    if let Some(object) = product.as_object_mut() {
        object.insert("run".into(), json!(job.run));
    }
    // The account may come as JSON text, as it stands in the file.
    if let Some(account) = product["account"].as_str().and_then(|text| serde_json::from_str(text).ok()) {
        product["account"] = account;
    }
    Ok(product)
}

/// A file that is not the whole run is not left in its place. There was none of that name when we began.
fn discard(file: &Path) {
    let _ = std::fs::remove_file(file);
    // Where the writer lays a file out before it has its name.
    if let Some(name) = file.file_name() {
        let _ = std::fs::remove_file(file.with_file_name(format!(".{}.new", name.to_string_lossy())));
    }
}

/// A file without a name.
fn nameless() -> io::Result<std::fs::File> {
    let path = std::env::temp_dir().join(format!("beamport-write-{}", std::process::id()));
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_and_a_folder_that_is_not_there_are_refused() {
        let folder = std::env::temp_dir().join(format!("beamport-output-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(folder.join("nowhere.nxs"), folder.join("link.nxs")).unwrap();
        assert!(check_output(&folder.join("link.nxs")).unwrap_err().cause.contains("a link"));
        let fault = check_output(&folder.join("no/such/x.nxs")).unwrap_err();
        assert!(fault.cause.contains("no folder") && fault.hint.contains("mkdir"), "{fault}");
        assert!(check_output(&folder.join("x.nxs")).is_ok() && check_output(Path::new("x.nxs")).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_only_template_of_a_data_folder_is_taken() {
        let folder = std::env::temp_dir().join(format!("beamport-template-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(only_template(&folder).unwrap_err().cause.starts_with("0 files"));
        std::fs::write(folder.join("amor.nexus.json"), "{}").unwrap();
        assert_eq!(only_template(&folder).unwrap(), folder.join("amor.nexus.json"));
        std::fs::write(folder.join("loki.nexus.json"), "{}").unwrap();
        assert!(only_template(&folder).unwrap_err().cause.starts_with("2 files"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
