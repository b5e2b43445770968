//! `beamport check FILE`: every mistake at once, or the resolved file.
//!
//! Python code of workers and sources is imported, each in a process of its own with the interpreter of its section;
//! nothing else runs code. A note is not a mistake: it reports the effect of a setting that may not be meant.

use super::figures::{bytes, families};
use super::{Verb, forecast};
use crate::arguments::Form;
use crate::edges::Registry;
use crate::file::{Crossing, Instrument, Mistake, SinkSection, SourceSection, WorkerSection, read};
use crate::limits::CHECK_CODE_PATIENCE;
use crate::mover;
use crate::{retention, room};
use clap::Args;
use flow::{Fault, Passes};
use serde_json::json;
use settings::{Severity, shortened};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `beamport check`
#[derive(Debug, Args)]
#[command(
    about = "Report all mistakes (status 2) and warnings (status 0) of an instrument file",
    after_help = "Examples:\n  beamport check amor.toml\n  beamport check amor.toml --show"
)]
pub struct Check {
    /// The instrument file
    pub file: PathBuf,
    /// Print the resolved file, each value with the line that sets it
    #[arg(long)]
    pub show: bool,
    /// Print what a source reads in recorded datagrams: a capture (pcap, pcapng), or a text with hexadecimal digits, a
    /// datagram in each line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["show", "json"])]
    pub datagram: Option<PathBuf>,
    /// Source that reads the datagrams [default: all that can]
    #[arg(long, value_name = "NAME", requires = "datagram")]
    pub source: Option<String>,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Check {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        check(self, registry, out, err)
    }
}

/// Checks a file: prints its resolved values or counts to `out` and mistakes to `err` (with `--json` all to `out`).
/// Exit status 0, or 2 with mistakes; too little shared memory or disk on this machine is one.
fn check(asked: &Check, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    let result = read(&asked.file, registry, &mover::template_check);
    let result = result.and_then(|instrument| {
        let lacking: Vec<Mistake> =
            [room::lacking(&instrument), retention::beyond_disk(&instrument)].into_iter().flatten().collect();
        if lacking.is_empty() { Ok(instrument) } else { Err(lacking) }
    });
    let result = result.and_then(with_code);
    let file = asked.file.display();
    let notes = result.as_ref().map(notes).unwrap_or_default();
    if asked.form.json {
        let (instrument, mistakes) = match &result {
            Ok(instrument) => (instrument.show_json(), instrument.warnings.as_slice()),
            Err(mistakes) => (serde_json::Value::Null, mistakes.as_slice()),
        };
        let mut answer =
            json!({"file": file.to_string(), "good": result.is_ok(), "mistakes": mistakes, "notes": notes});
        if asked.show
            && let Some(answer) = answer.as_object_mut()
        {
            answer.insert("resolved".into(), instrument);
        }
        writeln!(out, "{answer}")?;
        return Ok(ExitCode::from(if result.is_ok() { 0 } else { 2 }));
    }
    if let (Some(recorded), Ok(instrument)) = (&asked.datagram, &result) {
        return inspect(instrument, recorded, asked.source.as_deref(), out, err);
    }
    let warnings = result.as_ref().map(|instrument| instrument.warnings.as_slice()).unwrap_or_default();
    let _ = warnings.iter().try_for_each(|warning| writeln!(err, "{warning}\n"));
    let _ = notes.iter().try_for_each(|note| writeln!(err, "note: {note}"));
    match result {
        Ok(instrument) if asked.show => write!(out, "{}", instrument.show())?,
        Ok(instrument) => {
            let sinks =
                instrument.sinks.iter().filter(|sink| sink.is_first()).count() + instrument.live_sinks().count();
            let mut counts = vec![
                counted(instrument.sources().count(), "source"),
                counted(sinks, "sink"),
                counted(instrument.runs.len(), "run"),
            ];
            let stages = [("worker", instrument.workers().count()), ("merge", instrument.merges().count())];
            for (kind, count) in stages.into_iter().filter(|(_, count)| *count > 0) {
                counts.insert(1, counted(count, kind));
            }
            let memory = bytes(room::asked(&instrument));
            writeln!(out, "{file}: good: {}; {memory} of shared memory", counts.join(", "))?;
            if let Some(disk) = forecast::declared(&instrument) {
                writeln!(out, "{file}: {disk}")?;
            }
            write_hosts(&instrument.divide(), out)?;
        }
        Err(mistakes) => {
            // The exit status says it too, where nobody reads this.
            let _ = mistakes.iter().try_for_each(|mistake: &Mistake| writeln!(err, "{mistake}\n"));
            let _ = writeln!(
                err,
                "{file}: {}",
                counted(mistakes.iter().filter(|one| one.level == Severity::Error).count(), "mistake")
            );
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints which streams go from host to host, and what that asks of the carrier.
fn write_hosts(instrument: &Instrument, out: &mut dyn Write) -> io::Result<()> {
    let file = instrument.file.display();
    for Crossing { stream, near, far } in instrument.crossings() {
        writeln!(out, "{file}: `{stream}` goes from `{near}` to `{far}`")?;
    }
    for worker in instrument.shared_workers() {
        let list = |names: &[&str]| families(names).join(", ");
        let inputs: Vec<&str> = worker.inputs.iter().map(String::as_str).collect();
        let on = worker.hosts.iter().flat_map(|hosts| &hosts.0).map(|(host, _)| host.as_str());
        let (name, on) = (&worker.name, on.collect::<Vec<_>>());
        let (inputs, on, to) = (list(&inputs), list(&on), list(&instrument.gathered_on(name)));
        writeln!(out, "{file}: blocks of {inputs} go to {on}, and `{name}` from there to {to}")?;
    }
    forecast::carried(instrument).map_or(Ok(()), |carried| writeln!(out, "{file}: {carried}"))
}

/// Prints what sources make of recorded input. Exit status 0 if one makes messages of it and refuses nothing, else 1.
fn inspect(
    instrument: &Instrument,
    recorded: &Path,
    name: Option<&str>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> std::io::Result<ExitCode> {
    let asked = instrument.sources().filter(|source| name.is_none_or(|name| *source.name == *name));
    let (mut any, mut status) = (false, 0);
    for said in asked.filter_map(|source| source.plan.inspect(recorded)) {
        any = true;
        match said {
            Ok(said) => {
                write!(out, "{}", said.text)?;
                status |= u8::from(!said.is_clean);
            }
            Err(fault) => {
                writeln!(err, "{fault}")?;
                return Ok(ExitCode::from(2));
            }
        }
    }
    if !any {
        let named = name.map_or(String::new(), |name| format!(" `{}`", shortened(name)));
        writeln!(err, "error: no source{named} of {} reads datagrams", instrument.file.display())?;
        return Ok(ExitCode::from(2));
    }
    Ok(ExitCode::from(status))
}

/// The instrument, if the Python code of its workers and sources can be loaded and accepts its parameters. Code that is
/// still being loaded after [`CHECK_CODE_PATIENCE`] is a warning.
fn with_code(mut instrument: Instrument) -> Result<Instrument, Vec<Mistake>> {
    let mistake = |line: u32, stage: String, fault: Fault| Mistake {
        level: if fault.passes == Passes::Soon { Severity::Warning } else { Severity::Error },
        file: instrument.file.display().to_string(),
        line,
        pointer: String::new(),
        what: format!("{stage}: {}", fault.what),
        cause: fault.cause,
        hint: fault.hint,
    };
    let of_worker = |worker: &WorkerSection| {
        let fault = mover::check_code(worker, CHECK_CODE_PATIENCE).err()?;
        Some(mistake(worker.call.line_or(worker.line), format!("worker `{}`", shortened(&worker.name)), fault))
    };
    let of_source = |source: &SourceSection| {
        let fault = source.plan.check_code(CHECK_CODE_PATIENCE).err()?;
        Some(mistake(source.line, format!("source `{}`", shortened(&source.name)), fault))
    };
    let workers = instrument.workers().filter_map(of_worker);
    let found: Vec<Mistake> = instrument.sources().filter_map(of_source).chain(workers).collect();
    if found.iter().any(|mistake| mistake.level == Severity::Error) {
        return Err(found);
    }
    instrument.warnings.extend(found);
    Ok(instrument)
}

/// Inputs of sinks for which the template has no place.
fn notes(instrument: &Instrument) -> Vec<String> {
    let file = instrument.file.display();
    let of = |sink: &SinkSection| {
        let Some(template) = sink.template() else { return Vec::new() };
        let unplaced = sink.inputs.iter().filter(|input| !sink.has_place_for(input));
        let told = unplaced.map(|input| {
            format!(
                "{file}:{}: sink `{}` takes `{}`, but {} does not use it: its messages will not be written (counted as `aside.unmatched`)",
                sink.inputs.line_or(sink.line),
                shortened(&sink.name),
                shortened(input),
                shortened(&template.display().to_string()),
            )
        });
        told.collect::<Vec<_>>()
    };
    let lacking = [room::lacking_files(instrument), room::lacking_maps(instrument)];
    let lacking = lacking.into_iter().flatten().map(|lacking| format!("{file}: {lacking}"));
    instrument.sinks.iter().flat_map(of).chain(lacking).collect()
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::TemplateAnswer;
    use crate::file::parse;
    use flow::checked::StreamModule;

    #[test]
    fn an_input_without_a_place_in_the_template_is_noted() {
        let folder = std::env::temp_dir().join(format!("beamport-notes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("t.json"), "").unwrap();
        let module = StreamModule { streams: vec!["detector".into()], ..StreamModule::default() };
        let answer = TemplateAnswer { modules: vec![module], ..TemplateAnswer::default() };
        let source = |name: &str| format!("source.{name} = {{ kind = \"sim\", model = \"amor\" }}\n");
        let text = format!(
            "instrument = \"a\"\n{}{}[sink.file]\nkind = \"nexus\"\ntemplate = \"t.json\"\n",
            source("detector"),
            source("monitor")
        );
        let told = |text: &str| {
            notes(&parse(text, &folder.join("a.toml"), &Registry::builtin(), &|_, _| answer.clone()).unwrap())
        };
        let all = told(&text);
        assert!(all.len() == 1 && all[0].contains("a.toml:4: sink `file` takes `monitor`"), "{all:?}");
        assert!(told(&format!("{text}inputs = [\"detector\"]\n")).is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
