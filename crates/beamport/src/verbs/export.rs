//! `beamport export`: the messages of a sealed run in one stream, as a file of a format that an edge writes.
//!
//! The file grows under another name beside its own, and is renamed when it is complete. The export is refused where
//! the file could not hold the complete run: not sealed, or messages gone.

use super::figures::{bytes, thousands};
use super::write::check_output;
use super::{Answer, Verb, ended, json_line, members, open};
use crate::arguments::{DataFolder, Form, values};
use crate::edges::Registry;
use crate::limits::{EXPORT_BYTES, EXPORT_MESSAGES};
use clap::Args;
use flow::edge::ExportKind;
use flow::records::Run;
use flow::status::members::{Places, places};
use flow::{Data, Fault, stream_fault};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `beamport export`
#[derive(Debug, Args)]
#[command(
    about = "Write a stream of a sealed run to a file of GRETA (`.geb`) or HADES (`.hld`)",
    after_help = "Examples:\n  beamport export first --stream d001 --output d001.geb"
)]
pub struct Export {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// Stream with messages of framing `geb` or `hadaq`
    #[arg(long, value_name = "NAME")]
    pub stream: String,
    /// The file, which must not exist: `NAME.geb` or `NAME.hld`
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Export {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(export(self, registry, out, err), err)
    }
}

fn export(asked: &Export, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    super::warn_of_damage(&data, err)?;
    let file = &asked.output;
    let end = file.extension().unwrap_or_default();
    let format = registry.exports().iter().find(|kind| end == kind.name).copied().ok_or_else(|| {
        let known: Vec<String> =
            registry.exports().iter().map(|kind| format!("`.{}` ({})", kind.name, kind.about)).collect();
        let cause = format!("its name ends in none of {}", known.join(", "));
        let first = registry.exports().first().map_or("", |kind| kind.name);
        Fault::new(format!("cannot write `{}`", file.display()), cause)
            .hint(format!("`--output {}.{first}`", asked.run))
    })?;
    check_output(&data, file)?;
    let run = members::sealed(&data, &asked.run, "export")?;
    let run = of_stream(&data, run, &asked.stream)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = file.with_file_name(name);
    let written = written(&data, &run, &asked.stream, format, &part).and_then(|counts| {
        let cannot = |e: io::Error| Fault::io(format!("cannot write {}", file.display()), &e);
        std::fs::rename(&part, file).map_err(cannot)?;
        Ok(counts)
    });
    if written.is_err() {
        // It may not be there. An incomplete file is of no use.
        let _ = std::fs::remove_file(&part);
    }
    let (messages, blocks, size) = written?;
    if asked.form.json {
        json_line(out, &json!({"file": file, "messages": messages, "blocks": blocks, "bytes": size}))?;
    } else {
        let what = format.blocks;
        writeln!(out, "file      {}", file.display())?;
        writeln!(out, "size      {}", bytes(size))?;
        writeln!(out, "messages  {}", thousands(messages))?;
        writeln!(out, "{what:<9} {}", thousands(blocks))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The run with the ranges of one stream alone; refused where its messages are not all there. The output of a merge or
/// a worker that no sink reads is not listed in a run: its members are those that the stream holds now.
fn of_stream(data: &Data, mut run: Run, stream: &str) -> Result<Run, Fault> {
    let mut streams = members::streams(&run);
    run.streams.retain(|range| range.stream == stream);
    if run.streams.is_empty() {
        streams.extend(data.streams(false)?);
        if !streams.iter().any(|name| name == stream) {
            let hint = match settings::nearest(stream, streams.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`beamport ls` lists the streams".into(),
            };
            let what = format!("cannot export stream `{}`", settings::shortened(stream));
            return Err(Fault::new(what, "no such stream").hint(hint));
        }
        run.streams = flow::until_now(data, &run, &[stream.to_owned()])?;
    }
    members::refuse_missing(data, &run, "export")?;
    let members = members::all(data, &run)?;
    members::refuse_gone(&run.name, "export", &members)?;
    members::refuse_cut(&run.name, "export", &members)?;
    Ok(run)
}

/// Writes the file: messages, units or events, bytes.
fn written(data: &Data, run: &Run, stream: &str, format: &ExportKind, part: &Path) -> Result<(u64, u64, u64), Fault> {
    let cannot = |e: io::Error| Fault::io(format!("cannot write {}", part.display()), &e);
    let fault = |e| stream_fault(stream, e);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(part).map_err(cannot)?;
    let out = Box::new(BufWriter::with_capacity(EXPORT_BYTES, &file));
    let mut export = (format.begin)(out, (run.start, run.stop))?;
    let mut reader = data.reader_early(stream)?;
    let clock = reader.header().clock;
    let Places { spans, .. } = places(run, &mut reader)?;
    for (at, next) in spans {
        reader.seek(at);
        while reader.position() < next {
            let batch = reader.read((next - reader.position()).min(EXPORT_MESSAGES) as usize).map_err(fault)?;
            if batch.is_empty() {
                break;
            }
            for message in batch.iter() {
                let time = clock.time_of(message.entry);
                if run.holds(time) {
                    export.push(&message, time)?;
                }
            }
        }
    }
    let counts = export.end()?;
    file.sync_all().map_err(cannot)?;
    Ok(counts)
}
