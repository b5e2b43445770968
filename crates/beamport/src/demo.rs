//! `beamport demo` and `beamport up`: an instrument from its file to its report.

use crate::cli;
use crate::file::{self, Instrument, SourceKind};
use crate::mover::{Mover, Written, program};
use crate::report::{Report, events_of, grouped};
use crate::units;
use flow::{Data, Fault};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::{Check, Kind, ReadOptions, Reader};

/// The template of the demonstration and of `examples/amor.toml`.
const AMOR_TEMPLATE: &str = include_str!("../../../examples/amor.nexus.json");
/// Says that a folder was made by `beamport demo`, which may then remove it.
const DEMO_FILE: &str = "demo.toml";
/// How that file begins: a file of the same name that somebody else wrote does not.
const DEMO_MARK: &str = "# Made by `beamport demo`";

/// Either a report to print, or mistakes in a file, already printed.
pub type Ended = Result<ExitCode, Fault>;

/// `beamport demo`: makes a data folder with an instrument file in it and runs that.
pub fn demo(asked: &cli::Demo) -> Ended {
    let folder = asked.data.clone().unwrap_or_else(|| PathBuf::from("beamport-data/demo"));
    clear(&folder)?;
    let fault = |e: std::io::Error| Fault::new(format!("data folder `{}` cannot be made", folder.display()), e);
    std::fs::create_dir_all(&folder).map_err(fault)?;
    let file = folder.join(DEMO_FILE);
    let (text, template) = instrument_text(asked)?;
    std::fs::write(&file, text).map_err(fault)?;
    std::fs::write(folder.join("demo.nexus.json"), template).map_err(fault)?;
    run_file(&file, asked.form.json)
}

/// Removes what an earlier demonstration left; anything else is not ours to remove.
fn clear(folder: &Path) -> Result<(), Fault> {
    let Ok(mut entries) = std::fs::read_dir(folder) else { return Ok(()) };
    if entries.next().is_none() {
        return Ok(());
    }
    let refuse = |cause: String| {
        Fault::new(format!("folder `{}` is in use", folder.display()), cause)
            .hint("choose another one with `--data DIR`")
    };
    if folder.is_symlink() {
        return Err(refuse("it is a link".into()));
    }
    let marked = std::fs::read_to_string(folder.join(DEMO_FILE)).is_ok_and(|text| text.starts_with(DEMO_MARK));
    if !marked {
        return Err(refuse("it holds something that `beamport demo` did not make".into()));
    }
    let ours =
        ["detector", "monitor", "devices", "control", "runs", "file.commits", "files", DEMO_FILE, "demo.nexus.json"];
    let ours = |name: &str| ours.contains(&name) || name == "control.sock" || name.ends_with(".commits");
    let entries = std::fs::read_dir(folder).map_err(|e| refuse(e.to_string()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !ours(&name) {
            return Err(refuse(format!("it holds `{name}`, which `beamport demo` did not make")));
        }
    }
    let data = Data::on_disk(folder);
    for name in data.streams(true)? {
        // One mover at a time: a writer that lives means that a demonstration is running here.
        let reader = data.reader_early(&name)?;
        if let Some(process) = reader.writer() {
            return Err(Fault::new(
                format!("folder `{}` is in use", folder.display()),
                format!("process {} writes stream `{name}`", process.pid),
            )
            .hint("wait for it, or choose another folder with `--data DIR`"));
        }
        if let Some(live) = reader.live_place().filter(|live| *live != reader.folder()) {
            let _ = std::fs::remove_dir_all(live);
        }
    }
    std::fs::remove_dir_all(folder)
        .map_err(|e| Fault::new(format!("folder `{}` cannot be cleared", folder.display()), e))
}

/// The instrument file of a demonstration, and its template.
fn instrument_text(asked: &cli::Demo) -> Result<(String, String), Fault> {
    let duration = units::duration_text(asked.duration);
    let mut text = format!(
        "{DEMO_MARK}: an instrument that does not exist, for {duration}.\n\ninstrument = \"{}\"\ndata = \".\"\n",
        asked.profile
    );
    let seed = asked.seed;
    let amor = asked.profile == "amor";
    let (model, from) = match &asked.from {
        Some(path) => {
            let path = std::path::absolute(path)
                .map_err(|e| Fault::new(format!("file `{}` is not there", path.display()), e))?;
            let text = path.to_str().ok_or_else(|| Fault::new("the file's name is not text", path.display()))?;
            ("histogram", format!("from = {}\n", toml_text(text)))
        }
        None => (asked.profile.as_str(), String::new()),
    };
    let _ = write!(text, "\n[source.detector]\nkind = \"sim\"\nmodel = \"{model}\"\nseed = {seed}\n{from}");
    let default_rate = amor.then_some(1e6);
    if let Some(rate) = asked.rate.or(default_rate) {
        let _ = writeln!(text, "rate = {rate:e}");
    }
    if (asked.scale - 1.0).abs() > f64::EPSILON {
        let _ = writeln!(text, "scale = {:e}", asked.scale);
    }
    let _ = writeln!(text, "live = \"256 MiB\"");
    let mut inputs = vec!["detector"];
    if amor {
        for (name, model) in [("monitor", "amor-monitor"), ("devices", "amor-devices")] {
            let _ = write!(
                text,
                "\n[source.{name}]\nkind = \"sim\"\nmodel = \"{model}\"\nseed = {seed}\nlive = \"4 MiB\"\n"
            );
            inputs.push(name);
        }
    }
    let _ = write!(
        text,
        "\n[sink.file]\nkind = \"nexus\"\ntemplate = \"demo.nexus.json\"\nfile = \"{{instrument}}_{{run}}.nxs\"\n\n[run.demo]\nstart = \"now\"\nduration = \"{duration}\"\nsettle = \"1 s\"\n"
    );
    let template = if amor { AMOR_TEMPLATE.to_string() } else { events_template(&asked.profile) };
    Ok((text, template))
}

fn toml_text(text: &str) -> String {
    toml_edit::Value::from(text).to_string().trim().to_string()
}

/// A template of one bank of events, for instruments of which no more is known.
fn events_template(profile: &str) -> String {
    let group = |name: &str, class: &str, children: serde_json::Value| serde_json::json!({"type": "group", "name": name, "attributes": {"NX_class": class}, "children": children});
    let events = serde_json::json!([{"module": "ev44", "config": {"stream": "detector", "source": format!("{profile}_detector")}}]);
    let detector = group("detector", "NXdetector", serde_json::json!([group("events", "NXevent_data", events)]));
    let name =
        serde_json::json!({"module": "dataset", "config": {"name": "name", "dtype": "string", "values": profile}});
    let instrument = group("instrument", "NXinstrument", serde_json::json!([name, detector]));
    let times = serde_json::json!({"module": "mdat", "config": {"items": ["start_time", "end_time"]}});
    let entry = group("entry", "NXentry", serde_json::json!([times, instrument]));
    serde_json::to_string_pretty(&serde_json::json!({"children": [entry]})).unwrap_or_default()
}

/// `beamport up FILE`, to its report.
pub fn run_file(path: &Path, json: bool) -> Ended {
    let instrument = match file::read(path, &template_check) {
        Ok(instrument) => instrument,
        Err(mistakes) => {
            let mut err = std::io::stderr().lock();
            for mistake in mistakes {
                let _ = writeln!(err, "{mistake}");
            }
            return Ok(ExitCode::from(2));
        }
    };
    up(instrument, json)
}

/// Asks the writer what it thinks of a template: it knows the modules.
pub fn template_check(path: &Path) -> Vec<file::Mistake> {
    let shown = path.display().to_string();
    let mistake =
        |what: String, cause: String, hint: String| file::Mistake { file: shown.clone(), line: 0, what, cause, hint };
    let program = match program() {
        Ok(program) => program,
        Err(fault) => return vec![mistake(fault.what, fault.cause, fault.hint)],
    };
    let answer = Command::new(program)
        .arg("check")
        .arg(path)
        .arg("--json")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let list = answer
        .map_err(|e| e.to_string())
        .and_then(|a| serde_json::from_slice::<serde_json::Value>(&a.stdout).map_err(|e| e.to_string()));
    match list {
        Ok(value) => {
            let text = |v: &serde_json::Value, key: &str| v[key].as_str().unwrap_or_default().to_string();
            let all = value.as_array().or_else(|| value["mistakes"].as_array()).cloned().unwrap_or_default();
            all.iter()
                .map(|v| {
                    let pointer = text(v, "pointer");
                    let what = if pointer.is_empty() {
                        text(v, "what")
                    } else {
                        format!("{} (at {pointer})", text(v, "what"))
                    };
                    mistake(what, text(v, "cause"), text(v, "hint"))
                })
                .collect()
        }
        Err(e) => vec![mistake("the template cannot be checked".into(), e, String::new())],
    }
}

fn up(mut instrument: Instrument, json: bool) -> Ended {
    let signals = Arc::new(AtomicUsize::new(0));
    listen_to_signals(&signals)?;
    // Into the configuration itself: the source draws from it, and the run's metadata says what it was.
    for section in &mut instrument.sources {
        if let SourceKind::Sim(sim) = &mut section.kind
            && let Some(from) = &sim.from
        {
            sim.config.histogram = Some(load_histogram(from)?);
        }
    }
    let mut mover = Mover::start(instrument, &HashMap::new())?;
    let mut line = LiveLine::new(json);
    let written = mover.work(&signals, &mut |mover| line.look(mover))?;
    line.end();
    let (data, sinks) = (mover.data().clone(), mover.sinks());
    let names: Vec<String> = mover.runs().iter().map(|r| r.name.clone()).collect();
    drop(mover);
    let mut lost = 0;
    let mut reports = Vec::new();
    for name in names {
        let report = Report::of(&data, &name, &sinks, &fill_in(&data, &written, &sinks, &name)?)?;
        lost += report.account.lost;
        reports.push(report);
    }
    let mut out = std::io::stdout().lock();
    let text = match (json, reports.as_slice()) {
        (true, [one]) => format!("{}\n", one.json()),
        (true, many) => format!("{}\n", serde_json::Value::from(many.iter().map(Report::json).collect::<Vec<_>>())),
        (false, all) => all.iter().map(Report::text).collect::<Vec<_>>().join("\n"),
    };
    let _ = out.write_all(text.as_bytes());
    Ok(ExitCode::from(u8::from(lost > 0)))
}

/// Files of runs that were finished before this start: their last commits name them.
fn fill_in(data: &Data, written: &[Written], sinks: &[String], run: &str) -> Result<Vec<Written>, Fault> {
    let mut all: Vec<Written> = written.iter().filter(|w| w.run == run && w.product.is_object()).cloned().collect();
    for sink in sinks {
        if !all.iter().any(|w| w.sink == *sink)
            && let Some(commit) = flow::last_commit(data, sink, run)?.filter(|c| c.finished)
        {
            let product = serde_json::from_str(&commit.state).unwrap_or_default();
            all.push(Written { sink: sink.clone(), run: run.into(), product });
        }
    }
    Ok(all)
}

/// Counts SIGINT and SIGTERM.
fn listen_to_signals(signals: &Arc<AtomicUsize>) -> Result<(), Fault> {
    let signals = signals.clone();
    // A file that may not grow (`ulimit -f`, quota) is an error of the write, as a full disk is, and not the end of us.
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default())
        .map_err(|e| Fault::new("signals cannot be caught", e))?;
    let mut caught = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])
        .map_err(|e| Fault::new("signals cannot be caught", e))?;
    let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in caught.forever() {
            if signals.fetch_add(1, Ordering::Relaxed) == 0 && std::io::stderr().is_terminal() {
                eprintln!("\nending the open runs; once more stops at once");
            }
        }
    });
    thread.map(|_| ()).map_err(|e| Fault::new("signals cannot be caught", e))
}

/// The measured histogram of a NeXus file, read by the process that has libhdf5.
fn load_histogram(path: &Path) -> Result<Vec<u8>, Fault> {
    let fault = |cause: String| Fault::new(format!("no histogram in `{}`", path.display()), cause);
    let answer = Command::new(program()?)
        .arg("histogram")
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| fault(e.to_string()))?;
    if !answer.status.success() {
        let text = String::from_utf8_lossy(&answer.stderr);
        let cause =
            text.lines().find_map(|l| l.strip_prefix("cause: ")).or(text.lines().next()).unwrap_or("it cannot be read");
        return Err(fault(cause.to_string()).hint("it needs a dataset of counts by pixel and time of flight"));
    }
    Ok(answer.stdout)
}

/// The line that moves while an instrument works. On a terminal only.
struct LiveLine {
    shown: bool,
    next: Instant,
    streams: Vec<Followed>,
    rates: Vec<(Instant, u64, u64)>,
}

struct Followed {
    reader: Reader,
    events: u64,
    bytes: u64,
}

impl LiveLine {
    fn new(json: bool) -> Self {
        let shown = !json && std::io::stderr().is_terminal();
        Self { shown, next: Instant::now(), streams: Vec::new(), rates: Vec::new() }
    }

    fn look(&mut self, mover: &Mover) {
        if !self.shown || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + Duration::from_millis(200);
        if self.streams.is_empty() {
            let options =
                ReadOptions { early: true, check: Check::Nothing, kind: Kind::Anonymous, ..ReadOptions::default() };
            for name in mover.data().streams(false).unwrap_or_default() {
                if let Ok(mut reader) = mover.data().reader(&name, options.clone()) {
                    reader.seek(reader.bounds().count);
                    self.streams.push(Followed { reader, events: 0, bytes: 0 });
                }
            }
        }
        let (mut events, mut bytes, mut dropped, mut unsynced) = (0, 0, 0, 0);
        for followed in &mut self.streams {
            while let Ok(batch) = followed.reader.read(4096) {
                if batch.is_empty() {
                    break;
                }
                for message in batch.iter() {
                    followed.bytes += message.payload.len() as u64;
                    followed.events += events_of(message.payload);
                }
            }
            let bounds = followed.reader.bounds();
            // Behind by more than a ring: look at the newest again.
            if followed.reader.position() < bounds.first {
                followed.reader.seek(bounds.count);
            }
            events += followed.events;
            bytes += followed.bytes;
            dropped += bounds.dropped;
            unsynced += bounds.count.saturating_sub(bounds.disk.max(if bounds.disk == 0 { bounds.count } else { 0 }));
        }
        let now = Instant::now();
        self.rates.push((now, events, bytes));
        if self.rates.len() > 10 {
            self.rates.remove(0);
        }
        let (then, e0, b0) = self.rates[0];
        let seconds = now.duration_since(then).as_secs_f64().max(0.1);
        let runs: Vec<String> = mover.runs().iter().map(|r| format!("{} {}", r.name, r.state.name())).collect();
        let trouble = mover.troubles().first().map_or(String::new(), |f| format!("  ! {}", f.what));
        eprint!(
            "\r\x1b[K{}  {:.2} Mevents/s  {:.1} MB/s  {} events  {unsynced} unsynced  {} lost{trouble}",
            runs.join(", "),
            (events - e0) as f64 / seconds / 1e6,
            (bytes - b0) as f64 / seconds / 1e6,
            grouped(events),
            grouped(dropped),
        );
    }

    fn end(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
