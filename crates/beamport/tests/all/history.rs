//! A run that begins in the past, and sources that bring its history as fast as their streams take it.

use beamport::Registry;
use beamport::file::{parse, unasked};
use beamport::mover::ask;
use beamport::up::{OnTerm, Started};
use flow::edge::{SourceKind, SourcePlan};
use flow::{Data, Fault, Outlet, Pushed, Resume, Source, Step};
use serde_json::json;
use settings::{Key, Section, Setting, required};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Meta, SchemaId};

/// A guard against hanging: nothing here takes ten seconds.
const GUARD: Duration = Duration::from_secs(120);
/// Messages of the history, and bytes of each: four times the live place of their stream.
const COUNT: u64 = 40;
const BYTES: usize = 100_000;

static START: Key = required("start", "a word", "Whether its start takes long.");
static HISTORY: SourceKind =
    SourceKind { name: "history", about: "A source of this test.", keys: &[&START], read, more: None };

fn read(_: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let start: Setting<String> = section.need(&START);
    Some(Arc::new(History { is_slow: start.value == "slow", next: 0 }))
}

#[derive(Clone, Debug)]
struct History {
    is_slow: bool,
    next: u64,
}

impl SourcePlan for History {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(self.clone()))
    }
}

impl Source for History {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        if self.is_slow {
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("it")?;
        while self.next < COUNT {
            let source_time = now - 60_000_000_000;
            let meta = Meta { source_time, origin, origin_seq: self.next, schema: SchemaId(*b"test"), flags: 0 };
            if out.push(&meta, &[0; BYTES])? == Pushed::Full {
                break;
            }
            self.next += 1;
        }
        Ok(Step::At(now + 1_000_000))
    }
}

struct Lab(PathBuf);

impl Lab {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// The instrument, whose writer reads nothing, and gives its file up as incomplete when it may go.
    fn instrument(&self) -> beamport::file::Instrument {
        let version = format!("beamport-nexus {} (a pretended one)", env!("CARGO_PKG_VERSION"));
        let go = self.0.join("go").display().to_string();
        let fault = "{\"fault\": {\"what\": \"a part\", \"cause\": \"\", \"hint\": \"\"}, \"incomplete\": true}";
        let script = [
            "#!/bin/sh".to_owned(),
            format!("[ \"$1\" = --version ] && {{ echo '{version}'; exit 0; }}"),
            format!("while [ ! -e '{go}' ]; do sleep 0.05; done"),
            format!("echo '{fault}'\nexit 3\n"),
        ]
        .join("\n");
        let writer = self.0.join("writer");
        std::fs::write(&writer, script).unwrap();
        std::fs::set_permissions(&writer, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(self.0.join("t.json"), "{\"children\": []}").unwrap();
        let source = |name: &str, start: &str| {
            format!("[source.{name}]\nkind = \"history\"\nstart = \"{start}\"\nlevel = \"memory\"\nlive = \"1 MiB\"\n")
        };
        let sink = "[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\nprogram = \"writer\"\nfile = \"one.nxs\"\n";
        let run = "[run.a]\nstart = 2026-01-01T00:00:00Z\n";
        let text = format!("instrument = \"past\"\n{}{}{sink}{run}", source("fast", "fast"), source("slow", "slow"));
        let registry = Registry::builtin().source(&HISTORY);
        parse(&text, &self.0.join("past.toml"), &registry, &unasked).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let data = Data::on_disk(self.0.join("beamport-data/past"));
        for name in data.streams(true).unwrap_or_default() {
            let _ = store::remove(&data.media, &data.stream(&name));
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn history_that_a_stream_could_not_keep_was_lost_before_its_run_began() {
    let lab = Lab::new();
    let instrument = lab.instrument();
    let data = Data::on_disk(&instrument.data.value);
    let started = Started::new(instrument, &Registry::builtin(), Some(OnTerm::EndRuns)).unwrap();
    let until = Instant::now() + GUARD;
    // Positions are held: a source stops when the live place is full.
    let bounds = |name: &str| data.reader_early(name).unwrap().bounds();
    while ["fast", "slow"].iter().any(|name| bounds(name).count < 5) {
        assert!(Instant::now() < until, "nothing comes");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    for name in ["fast", "slow"] {
        assert_eq!(bounds(name).first, 0, "stream `{name}` has released messages that its run needs");
        assert!(bounds(name).count < COUNT);
    }
    // The only file is that of the declared run.
    let folder = data.folder.clone();
    let mover = std::thread::spawn(move || started.to_report(true));
    let other = ask(&folder, &json!({"command": "begin", "run": "b"})).unwrap_err();
    assert!(other.cause.contains("sink `f` writes one file, `one.nxs`"), "{other}");
    // Without it there is nothing to do, although the run is open.
    std::fs::write(lab.0.join("go"), "").unwrap();
    let status = mover.join().unwrap().unwrap();
    assert_eq!(format!("{status:?}"), format!("{:?}", std::process::ExitCode::from(2)));
}
