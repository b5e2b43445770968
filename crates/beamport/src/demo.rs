//! `beamport demo`: an instrument that does not exist, in a folder of its own, from events to a report.
//!
//! The folder is locked from before it is cleared until the report is printed: of two demonstrations that begin at once,
//! one is refused. A demonstration that cannot begin leaves nothing behind, and its fault names options of the command
//! line.
//!
//! On a terminal the page stays until Ctrl-C. A script, a pipe and `--json` get the report, and no process stays.

use crate::arguments::{Form, values};
use crate::edges::Registry;
use crate::log::print_notice;
use crate::mover::template_check;
use crate::page::Page;
use crate::room;
use crate::up::{OnTerm, Signals, Started};
use crate::verbs::{Process, exit_status};
use crate::{file, log};
use clap::Args;
use flow::{Data, Fault};
use settings::units::{self, Size};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

/// Largest whole number of a TOML file, into which the seed is written.
const TOML_MAX: u64 = i64::MAX as u64;
/// The template of the demonstration and of `examples/amor.toml`.
const AMOR_TEMPLATE: &str = include_str!("../../../examples/amor.nexus.json");
/// Says that a folder was made by `beamport demo`, which may then remove it.
const DEMO_FILE: &str = "demo.toml";
/// How that file begins: a file of the same name that somebody else wrote does not.
const DEMO_MARK: &str = "# Made by `beamport demo`";
/// Live end of the events: a second of the fastest profile; less where shared memory is small.
const LIVE_BYTES: u64 = 256 << 20;
/// Least live end of the events that is proposed: below, the disk would have to answer within milliseconds.
const LIVE_BYTES_LEAST: u64 = 16 << 20;
/// Keys of the instrument file, and the option from which each comes.
const FLAGS: [(&str, &str); 5] =
    [("model", "--profile"), ("rate", "--rate"), ("scale", "--scale"), ("from", "--from"), ("duration", "--duration")];

/// `beamport demo`
#[derive(Debug, Args)]
#[command(
    about = "Run a demonstration: a simulated measurement, from events to a NeXus file",
    after_help = "Examples:\n\
                  \x20 beamport demo\n\
                  \x20 beamport demo --rate 5e6 --duration '30 s'\n\
                  \x20 beamport demo --from measured.nxs --json"
)]
pub struct Demo {
    /// Events per second [default: the profile's own, 1e6 for amor]
    #[arg(long, value_name = "NUMBER", value_parser = values::rate)]
    pub rate: Option<f64>,
    /// Length of the run
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = values::length)]
    pub duration: Duration,
    /// Seed of the random numbers: equal seeds give equal events
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=TOML_MAX))]
    pub seed: u64,
    /// Draw the events from the histogram measured in this NeXus file
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub from: Option<PathBuf>,
    /// Instrument to simulate: amor, or one of ESS like loki, estia, cspec
    #[arg(long, value_name = "NAME", default_value = "amor", value_parser = values::profile)]
    pub profile: String,
    /// Factor on the profile's event rate
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = values::factor)]
    pub scale: f64,
    /// Folder for streams and file; removes an earlier demonstration there [default: ./beamport-data/demo]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// End with the report. Else the page stays until Ctrl-C, on a terminal and without `--json`
    #[arg(long)]
    pub no_page: bool,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Process for Demo {
    fn execute(&self, registry: &Registry) -> ExitCode {
        log::begin(LevelFilter::WARN, None);
        exit_status(demo(self, registry))
    }
}

/// Makes a data folder with an instrument file in it and runs that.
fn demo(asked: &Demo, registry: &Registry) -> Result<ExitCode, Fault> {
    let folder = asked.data.clone().unwrap_or_else(|| PathBuf::from("beamport-data/demo"));
    let was_there = folder.exists();
    let _lock = lock(&folder)?;
    clear(&folder)?;
    match start(asked, registry, &folder) {
        Ok(mut started) => {
            let (signals, mut page) = (started.signals(), started.page.take());
            let status = started.work_and_report(&mut page, asked.form.json)?;
            let stays = !asked.no_page && !asked.form.json && is_read_by_a_person() && !signals.came();
            match page.filter(|_| stays) {
                Some(mut page) => show(&mut page, &signals),
                None => print_notice(format_args!("its page: `beamport web --data {}`", folder.display())),
            }
            Ok(status)
        }
        Err(fault) => {
            // Nothing of record was made: the next one would have to remove it.
            let cleared = clear(&folder);
            if cleared.is_ok() && !was_there {
                let _ = fs::remove_dir(&folder);
            }
            Err(fault)
        }
    }
}

/// Whether a person waits for the report, and can press Ctrl-C.
fn is_read_by_a_person() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Keeps the page until a signal comes.
fn show(page: &mut Page, signals: &Signals) {
    let location = page.location().unwrap_or_default();
    print_notice(format_args!("\n{location}\nit stays until you press Ctrl-C"));
    signals.until_one_comes(|| page.look());
}

fn start(asked: &Demo, registry: &Registry, folder: &Path) -> Result<Started, Fault> {
    let fault = |e: std::io::Error| Fault::io(format!("cannot create data folder `{}`", folder.display()), &e);
    let file = folder.join(DEMO_FILE);
    let (text, template) = instrument_text(asked)?;
    // First of all the file that says whose folder this is.
    fs::write(&file, &text).map_err(fault)?;
    fs::write(folder.join("demo.nexus.json"), template).map_err(fault)?;
    let instrument = file::read(&file, registry, &template_check).map_err(|mistakes| in_flags(&text, &mistakes))?;
    Started::new(instrument, registry, Some(OnTerm::EndRuns))
}

/// A mistake of the file that we wrote, told for the flag from which it comes.
fn in_flags(text: &str, mistakes: &[file::Mistake]) -> Fault {
    let flag = |mistake: &file::Mistake| {
        let key = text.lines().nth((mistake.line as usize).checked_sub(1)?)?.split(" =").next()?;
        FLAGS.iter().find(|(word, _)| *word == key).map(|(_, flag)| *flag)
    };
    let told = |mistake: &file::Mistake, what: String| Fault::new(what, &mistake.cause);
    match mistakes.iter().find_map(|mistake| Some((mistake, flag(mistake)?))) {
        Some((mistake, flag)) => told(mistake, format!("`{flag}` is invalid")).hint("see `beamport demo --help`"),
        None => match mistakes.first() {
            Some(mistake) => told(mistake, mistake.what.clone()).hint(&mistake.hint),
            None => Fault::new("cannot create the demonstration", ""),
        },
    }
}

/// Makes the folder and locks it, for as long as the file lives.
fn lock(folder: &Path) -> Result<File, Fault> {
    let fault = |e: std::io::Error| Fault::io(format!("cannot create data folder `{}`", folder.display()), &e);
    if folder.is_symlink() {
        return Err(in_use(folder, "it is a link"));
    }
    fs::create_dir_all(folder).map_err(|e| fault(e).hint("choose another one with `--data DIR`"))?;
    let file = File::open(folder).map_err(fault)?;
    let same = || -> std::io::Result<bool> {
        let (ours, there) = (file.metadata()?, fs::metadata(folder)?);
        Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    };
    // One that failed to begin may have removed the folder between our making and our locking it.
    if file.try_lock().is_err() || !same().unwrap_or(false) {
        return Err(in_use(folder, "another `beamport demo` works there"));
    }
    Ok(file)
}

fn in_use(folder: &Path, cause: impl std::fmt::Display) -> Fault {
    Fault::new(format!("folder `{}` is in use", folder.display()), cause).hint("choose another one with `--data DIR`")
}

/// Names of the files that demonstrations in this folder wrote, finished or not; `text` is their instrument file.
fn files_of(data: &Data, text: &str) -> Vec<String> {
    let of = |line: &str| Some(line.strip_prefix("instrument = \"")?.strip_suffix('"')?.to_owned());
    let instrument = text.lines().find_map(of).unwrap_or_default();
    // Where the runs cannot be read, the one that each demonstration has.
    let mut runs: Vec<String> = flow::runs::runs(data).unwrap_or_default().into_iter().map(|run| run.name).collect();
    runs.push("demo".into());
    let names = |run: &String| [format!("{instrument}_{run}.nxs"), format!(".{instrument}_{run}.nxs.new")];
    runs.iter().flat_map(names).collect()
}

/// Removes what an earlier demonstration left; anything else is not ours to remove.
fn clear(folder: &Path) -> Result<(), Fault> {
    let list = || -> std::io::Result<Vec<fs::DirEntry>> { fs::read_dir(folder)?.collect() };
    let entries = list().map_err(|e| in_use(folder, e))?;
    if entries.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(folder.join(DEMO_FILE)).unwrap_or_default();
    if !text.starts_with(DEMO_MARK) {
        return Err(in_use(folder, "it holds something that `beamport demo` did not make"));
    }
    let ours =
        ["detector", "monitor", "devices", "control", "runs", "files", DEMO_FILE, "demo.nexus.json", web::SETTINGS];
    let ours = |name: &str| {
        ours.contains(&name)
            || name.starts_with("control.sock")
            || name.starts_with("web.") && name.ends_with(".token")
            || name.starts_with(web::TEMPLATE_START) && name.ends_with(web::TEMPLATE_END)
            || name.ends_with(".commits")
    };
    for entry in &entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !ours(&name) {
            return Err(in_use(folder, format!("it holds `{name}`, which `beamport demo` did not make")));
        }
    }
    let data = Data::on_disk(folder);
    let files = files_of(&data, &text);
    for entry in fs::read_dir(folder.join("files")).into_iter().flatten() {
        let name = entry.map_err(|e| in_use(folder, e))?.file_name().to_string_lossy().into_owned();
        if !files.contains(&name) {
            return Err(in_use(folder, format!("it holds `files/{name}`, which `beamport demo` did not make")));
        }
    }
    for name in data.streams(true)? {
        // One mover at a time: a writer that lives means that a demonstration is running here.
        let reader = data.reader_early(&name)?;
        if let Some(process) = reader.writer() {
            return Err(in_use(folder, format!("process {} writes stream `{name}`", process.pid)));
        }
        if let Some(live) = reader.live_place().filter(|live| *live != reader.folder()) {
            let _ = fs::remove_dir_all(live);
        }
    }
    // The file that says whose folder this is goes last: what is cleared half way can be cleared again.
    let (mark, rest): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.file_name() == DEMO_FILE);
    for entry in rest.into_iter().chain(mark) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        removed.map_err(|e| Fault::new(format!("cannot clear folder `{}`", folder.display()), e))?;
    }
    Ok(())
}

/// The largest live end of the events that leaves half of the shared memory to others.
fn live_end() -> Size {
    let room = room::free().unwrap_or(u64::MAX) / 2;
    let halves = std::iter::successors(Some(LIVE_BYTES), |bytes| Some(bytes / 2));
    Size(halves.take_while(|bytes| *bytes >= LIVE_BYTES_LEAST).find(|bytes| *bytes <= room).unwrap_or(LIVE_BYTES_LEAST))
}

/// The instrument file of a demonstration, and its template.
fn instrument_text(asked: &Demo) -> Result<(String, String), Fault> {
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
    let _ = writeln!(text, "live = \"{}\"", units::size_text(live_end()));
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
    // Another one may have the usual port.
    text += "\n[web]\nlisten = \"127.0.0.1:0\"\n";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persons_file_among_those_of_a_demonstration_is_not_removed() {
        let folder = std::env::temp_dir().join(format!("beamport-clear-{}", std::process::id()));
        let files = folder.join("files");
        fs::create_dir_all(&files).unwrap();
        let text = format!("{DEMO_MARK}: an instrument.\n\ninstrument = \"amor\"\ndata = \".\"\n");
        fs::write(folder.join(DEMO_FILE), text).unwrap();
        fs::write(files.join("amor_demo.nxs"), "").unwrap();
        for name in ["notes.txt", "amor_copy.nxs"] {
            fs::write(files.join(name), "mine").unwrap();
            let fault = clear(&folder).unwrap_err();
            assert!(fault.cause.contains(&format!("`files/{name}`")), "{fault}");
            // A refused folder is left unchanged.
            assert!(files.join("amor_demo.nxs").exists());
            fs::remove_file(files.join(name)).unwrap();
        }
        clear(&folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_file_in_place_of_the_folder_is_told_with_what_to_do() {
        let file = std::env::temp_dir().join(format!("beamport-no-folder-{}", std::process::id()));
        fs::write(&file, "").unwrap();
        assert_eq!(lock(&file).unwrap_err().hint, "choose another one with `--data DIR`");
        fs::remove_file(&file).unwrap();
    }
}
