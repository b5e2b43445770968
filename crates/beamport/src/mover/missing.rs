//! Stages that an unfinished run still needs and that the instrument file no longer has: renamed or removed between two
//! starts. Nobody else would say so: a file stays a part, and positions hold back sources for ever.

use crate::file::Instrument;
use flow::records::Run;
use flow::{Data, Fault, commits, reader_name};
use serde_json::Value;
use std::collections::BTreeSet;
use wire::bprn::State;

/// A stage that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingStage {
    /// `sink` or `worker`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// The run that needs it.
    pub run: String,
    /// Streams in which its position is held.
    pub held: Vec<String>,
}

impl MissingStage {
    /// As an error, with what to do.
    #[must_use]
    pub fn fault(&self, instrument_file: &str) -> Fault {
        let Self { kind, name, run, held } = self;
        let what = format!("run `{run}` needs {kind} `{name}`, which `{instrument_file}` no longer has");
        let bring_back = format!("bring `[{kind}.{name}]` back for one `beamport up`");
        match held.first() {
            Some(stream) => {
                let reader = reader_name(name, run);
                let cause = format!("its file is a part, and its positions in {} hold messages", listed(held));
                let give_up =
                    format!("`beamport write {run}` and, for each stream, `beamport forget {stream} {reader}`");
                Fault::new(what, cause).hint(format!("{bring_back}; or, to give it up, {give_up}"))
            }
            None => Fault::new(what, "its stream gets no more messages in this run").hint(bring_back),
        }
    }
}

fn listed(streams: &[String]) -> String {
    let names: Vec<String> = streams.iter().map(|stream| format!("`{stream}`")).collect();
    names.join(", ")
}

/// The stages that runs still need and the instrument does not have. A file that was given up holds no position any
/// more: nobody waits for it.
pub(super) fn missing(data: &Data, instrument: &Instrument, runs: &[Run]) -> Result<Vec<MissingStage>, Fault> {
    let commits = commits::last_commits(data)?;
    let mut missing = Vec::new();
    for run in runs {
        if run.state != State::Sealed {
            let metadata: Value = serde_json::from_str(run.description()).unwrap_or_default();
            let begun = metadata["workers"].as_object().into_iter().flat_map(serde_json::Map::keys);
            let gone = begun.filter(|name| instrument.workers().all(|section| section.name != **name));
            missing.extend(gone.map(|name| MissingStage {
                kind: "worker",
                name: name.clone(),
                run: run.name.clone(),
                held: Vec::new(),
            }));
        }
        let of_run = commits.get(&run.name);
        let mut sinks: BTreeSet<String> = run.sinks().into_iter().collect();
        sinks.extend(of_run.into_iter().flat_map(|of_run| of_run.keys().cloned()));
        for name in sinks {
            let has_it = instrument.sinks.iter().any(|sink| sink.name == name);
            let is_finished = of_run.and_then(|of_run| of_run.get(&name)).is_some_and(|commit| commit.finished);
            if has_it || is_finished {
                continue;
            }
            let held = held(data, &reader_name(&name, &run.name))?;
            if !held.is_empty() {
                missing.push(MissingStage { kind: "sink", name, run: run.name.clone(), held });
            }
        }
    }
    Ok(missing)
}

/// Streams in which a reader has a position.
fn held(data: &Data, reader: &str) -> Result<Vec<String>, Fault> {
    let mut streams = data.streams(false)?;
    // Unreadable streams are reported elsewhere.
    streams.retain(|stream| {
        data.reader_early(stream).is_ok_and(|open| open.pins().readers().iter().any(|known| known.name == reader))
    });
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::file::{parse, unasked};
    use flow::RunKeeper;
    use std::path::Path;
    use std::time::Duration;
    use store::Options;

    #[test]
    fn a_sink_and_a_worker_that_an_unfinished_run_needs_and_the_file_no_longer_has_are_named() {
        let folder = std::env::temp_dir().join(format!("beamport-missing-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let data = Data::on_disk(&folder);
        drop(data.writer("c", &Options::disk(1 << 20)).unwrap());
        let mut keeper = RunKeeper::open(&data).unwrap();
        let metadata = r#"{"sinks": {"file": {}}, "workers": {"mean": {}}}"#;
        let run = keeper.begin("r", 10, None, Duration::ZERO, metadata, 10).unwrap();
        flow::hold(&data, "file", &run, &["c".to_owned()]).unwrap();

        let text = format!(
            "instrument = \"a\"\ndata = \"{}\"\nsource.c = {{ kind = \"sim\", model = \"amor-devices\" }}\n",
            folder.display()
        );
        let instrument = parse(&text, Path::new("a.toml"), &Registry::builtin(), &unasked).unwrap();
        let found = missing(&data, &instrument, keeper.runs()).unwrap();
        let names: Vec<_> = found.iter().map(|one| (one.kind, one.name.as_str(), one.held.as_slice())).collect();
        assert_eq!(names, [("worker", "mean", &[][..]), ("sink", "file", &["c".to_owned()][..])]);
        let said = found[1].fault("a.toml");
        assert!(said.what.contains("sink `file`") && said.hint.contains("beamport forget c file:r"), "{said}");

        // With a sink of its name nothing is missing; what was given up holds nothing.
        let sink = "sink.file = { kind = \"files\", inputs = [\"c\"] }\n";
        let whole = parse(&format!("{text}{sink}"), Path::new("a.toml"), &Registry::builtin(), &unasked).unwrap();
        assert_eq!(missing(&data, &whole, keeper.runs()).unwrap().len(), 1);
        data.release("c", &reader_name("file", "r")).unwrap();
        assert_eq!(missing(&data, &instrument, keeper.runs()).unwrap().len(), 1);
        drop(keeper);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
