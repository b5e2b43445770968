//! `beamport up`: an instrument from its file to its report.

use crate::arguments::Form;
use crate::edges::Registry;
use crate::figures::{bytes, thousands};
use crate::file::{self, Instrument, Mistake, SinkSection};
use crate::limits::{END_PATIENCE, LEAVE_RUNS, PAGE_LOOK};
use crate::log::{self, print_notice, print_warning};
use crate::mover::{Mover, program, template_check};
use crate::page::Page;
use crate::peer;
use crate::report::{Report, StageReport, all_written, events_of};
use crate::retention;
use crate::room;
use crate::simulated::{self, Simulated};
use crate::verbs;
use crate::verbs::{Process, exit_status, unprinted};
use clap::Args;
use flow::edge::Host;
use flow::ledger::{Entry, Row, total};
use flow::records::Run;
use flow::{Data, Fault, Passes};
use serde_json::{Value, json};
use settings::shortened;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::{Check, Kind, ReadOptions, Reader};
use wire::bprn::State;

/// `beamport up`
#[derive(Debug, Args)]
#[command(
    about = "Run an instrument until its runs are sealed or Ctrl-C is pressed (twice: stop at once); \
             SIGTERM leaves runs open",
    after_help = "Examples:\n  beamport up amor.toml"
)]
pub struct Up {
    /// The instrument file
    pub file: PathBuf,
    /// Run the part of one host of the file
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Start no simulated boards: for those that `beamport boards` starts
    #[arg(long)]
    pub no_boards: bool,
    /// Delete what a changed `retain`, `retain_age` or `keep_free` deletes, without asking
    #[arg(long)]
    pub yes: bool,
    /// Have SIGTERM end the open runs, as Ctrl-C does; else they stay open, and the next start resumes them
    #[arg(long)]
    pub end_runs: bool,
    /// The process that started it, if that alone ends it: it dies with it, and takes no signals
    #[arg(long, hide = true)]
    pub parent: Option<u32>,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Process for Up {
    fn execute(&self, registry: &Registry) -> ExitCode {
        // An instrument is a service.
        log::begin(log::level_of_service(), None);
        exit_status(up(self, registry))
    }
}

/// `beamport up FILE`, to its report; mistakes in the file are printed here.
fn up(asked: &Up, registry: &Registry) -> Result<ExitCode, Fault> {
    if let Some(parent) = asked.parent {
        peer::die_with(parent)?;
    }
    let instrument = match file::read(&asked.file, registry, &template_check) {
        Ok(instrument) => instrument,
        Err(mistakes) => {
            mistakes.iter().for_each(print_warning);
            return Ok(ExitCode::from(2));
        }
    };
    let instrument = match (&asked.host, &instrument.hosts) {
        (Some(host), _) => instrument.part(host)?,
        (None, Some(hosts)) => {
            let names: Vec<&str> = hosts.all.iter().map(|host| host.name.as_str()).collect();
            let what = format!("{} is the file of several hosts", asked.file.display());
            let hint = format!("write which of them this is: `--host {}`", shortened(&names.join("`, `--host ")));
            return Err(Fault::new(what, "it has a section `[hosts]`").hint(hint));
        }
        (None, None) => instrument,
    };
    if let Some(why) = verbs::doctor::unfit(&instrument.data) {
        print_warning(format_args!("warning: {why}\n  hint:  put it on ext4, xfs or tmpfs: `data = \"DIR\"`"));
    }
    let has_boards = !asked.no_boards && verbs::boards::plans(&instrument).iter().any(|(_, plan)| plan.is_simulated());
    let on_term = if asked.end_runs { OnTerm::EndRuns } else { OnTerm::LeaveRuns };
    let by_signals = asked.parent.is_none().then_some(on_term);
    let mut started = may_delete(&instrument, asked.yes).and_then(|()| Started::new(instrument, registry, by_signals));
    if has_boards {
        started = started.and_then(|started| started.with_boards(&asked.file, asked.host.as_deref()));
    }
    let answer = started.and_then(|started| started.to_report(asked.form.json));
    if let (Err(fault), true) = (&answer, asked.form.json) {
        let line = json!({"fault": fault.to_json(), "is_full": fault.passes == Passes::WithRoom});
        // It goes to stderr as well.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
    answer
}

/// Says what a changed rule of retention deletes of what is kept, and asks where that is much. Without a terminal there
/// is nobody to ask.
fn may_delete(instrument: &Instrument, is_agreed: bool) -> Result<(), Fault> {
    if let Some(Mistake { file, line, what, cause, hint, .. }) = retention::beyond_disk(instrument) {
        return Err(Fault::new(format!("{file}:{line}: {what}"), cause).hint(hint));
    }
    let before = std::fs::read_to_string(instrument.data.join(web::SETTINGS)).ok();
    let deletions = retention::deletions(instrument, before.as_deref());
    let mut ask = || {
        if !(std::io::stdin().is_terminal() && stderr().is_terminal()) {
            return None;
        }
        let _ = write!(stderr(), "delete them? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).ok()?;
        Some(matches!(answer.trim(), "y" | "Y" | "yes"))
    };
    retention::agree(&deletions, &instrument.file, is_agreed, &mut |line| print_notice(line), &mut ask)
}

/// An instrument whose sources run and whose declared runs are open.
pub struct Started {
    mover: Mover,
    signals: Arc<AtomicUsize>,
    boards: Option<Simulated>,
    /// The page, until somebody takes it.
    pub(crate) page: Option<Page>,
    /// Names of the sources, and what they had lost before this start.
    sources: Vec<String>,
    lost_before: u64,
}

/// SIGINT and SIGTERM, as an instrument that was started hears them.
pub(crate) struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Whether one came.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Does something again and again until one comes. Nothing is open any more: a signal is not said to end runs.
    pub(crate) fn until_one_comes(&self, mut again: impl FnMut()) {
        let quiet = usize::MAX;
        if self.0.compare_exchange(0, quiet, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        while self.0.load(Ordering::Relaxed) == quiet {
            again();
            std::thread::sleep(PAGE_LOOK);
        }
    }
}

/// Writes the resolved instrument file for the page, or removes it: part of one, or an old one, would mislead.
fn keep_settings(path: &Path, settings: &str) {
    let part = path.with_extension("toml.part");
    if let Err(e) = std::fs::write(&part, settings).and_then(|()| std::fs::rename(&part, path)) {
        let _ = (std::fs::remove_file(&part), std::fs::remove_file(path));
        tracing::warn!("the page does not show the instrument file: `{}` is not written: {e}", path.display());
    }
}

/// Copies the template of each sink into the data folder: from there the page has the shapes of detectors, wherever the
/// folder lies later and whatever the template becomes. Returns what is copied, with the names of the copies.
fn templates(instrument: &Instrument) -> Vec<(PathBuf, String)> {
    let of = |sink: &SinkSection| Some((sink.template()?.to_owned(), sink.name.clone()));
    let sinks = instrument.sinks.iter().filter(|sink| sink.is_first());
    let named = |(path, sink)| (path, format!("{}{sink}{}", web::TEMPLATE_START, web::TEMPLATE_END));
    sinks.filter_map(of).map(named).collect()
}

/// Writes such a copy; an old one would mislead.
fn keep_template(from: &Path, to: &Path) {
    let part = to.with_extension("json.part");
    let has_room = std::fs::metadata(from).and_then(|about| match about.len() <= web::TEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(std::io::Error::other("the template is larger than 16 MiB")),
    });
    if let Err(e) = has_room.and_then(|()| std::fs::copy(from, &part)).and_then(|_| std::fs::rename(&part, to)) {
        let _ = (std::fs::remove_file(&part), std::fs::remove_file(to));
        tracing::warn!("the page does not show the shapes of detectors: `{}` is not written: {e}", to.display());
    }
}

impl Started {
    /// Starts it, where this machine has the room. `by_signals`: SIGINT and SIGTERM end it, and what the second does;
    /// none: they do not.
    pub fn new(instrument: Instrument, registry: &Registry, by_signals: Option<OnTerm>) -> Result<Self, Fault> {
        let signals = Arc::new(AtomicUsize::new(0));
        let heard = if by_signals.is_some() { signals.clone() } else { Arc::default() };
        listen_to_signals(&heard, by_signals.unwrap_or(OnTerm::EndRuns))?;
        room::for_instrument(&instrument)?;
        for section in instrument.sources() {
            section.plan.prepare(&Files { folder: &instrument.data })?;
        }
        let (plan, settings, templates) = (instrument.page, instrument.show(), templates(&instrument));
        log_start(&instrument);
        // A stream that is gathered of other hosts is the output of a worker.
        let is_source = |name: &str| !Data::is_book(name) && !instrument.is_gathered_here(name);
        let sources = instrument.sources().filter(|source| is_source(&source.name));
        let sources: Vec<String> = sources.map(|source| source.name.to_string()).collect();
        // The report of a run has its own losses.
        let is_asked = instrument.runs.is_empty();
        let before = if is_asked { entries_of(&Data::on_disk(&*instrument.data), &sources) } else { Ok(Vec::new()) };
        let lost_before = lost_of(&before.unwrap_or_default());
        let mover = Mover::start(instrument, registry, &signals)?;
        say_missing(&mover);
        let folder = &mover.data().folder;
        // First these: the page reads them when the settings have changed.
        templates.iter().for_each(|(from, name)| keep_template(from, &folder.join(name)));
        keep_settings(&folder.join(web::SETTINGS), &settings);
        let page = plan.map(|plan| Page::start(plan, folder));
        tracing::info!(streams = sources.len(), "the instrument is ready");
        Ok(Self { mover, signals, boards: None, page, sources, lost_before })
    }

    /// The signals that it has heard, for who goes on after its report.
    pub(crate) fn signals(&self) -> Signals {
        Signals(self.signals.clone())
    }

    /// The same with the simulated boards of its file, which send from now on.
    fn with_boards(mut self, file: &Path, host: Option<&str>) -> Result<Self, Fault> {
        self.boards = Some(Simulated::start(file, host, &self.mover.data().folder)?);
        Ok(self)
    }

    /// [`Self::work_and_report`] of its own page.
    pub fn to_report(mut self, json: bool) -> Result<ExitCode, Fault> {
        let mut page = self.page.take();
        self.work_and_report(&mut page, json)
    }

    /// Works until it is done and prints a report of each run that was not finished before this start: with `json` one
    /// object a line. Exit status 1 where something was lost, 2 where a file was given up or a run cannot be told. The
    /// page is kept alive meanwhile.
    pub(crate) fn work_and_report(self, page: &mut Option<Page>, json: bool) -> Result<ExitCode, Fault> {
        let Self { mut mover, signals, mut boards, sources, lost_before: sources_before, .. } = self;
        // What the mover knows of them: boards end before the runs.
        let passed = AtomicUsize::new(0);
        let mut line = LiveLine::new(json);
        let mut ending = Ending::default();
        let look = &mut |mover: &Mover| {
            line.refresh(mover);
            ending.look(mover, &signals, &line);
            page.iter_mut().for_each(Page::look);
            let asked = signals.load(Ordering::Relaxed);
            if asked != 1 || boards.as_mut().is_none_or(Simulated::end) {
                // Runs are those of the host that leads.
                let leaves = asked == 1 && mover.follows_lead();
                passed.store(if leaves { LEAVE_RUNS } else { asked }, Ordering::Relaxed);
            }
        };
        let written = mover.work(&passed, look)?;
        line.end();
        let (data, sinks, failed) = (mover.data().clone(), mover.sinks(), mover.failed().to_vec());
        let why = match passed.load(Ordering::Relaxed) {
            0 => "its runs are done",
            LEAVE_RUNS if mover.follows_lead() => "SIGINT or SIGTERM: runs are those of the host that leads",
            LEAVE_RUNS => "SIGTERM: runs stay open",
            _ => "SIGINT or SIGTERM: runs have ended",
        };
        tracing::info!(why, "the instrument stops");
        let (left, runs) = left_open(mover.runs_at_work().cloned().collect(), passed.load(Ordering::Relaxed));
        let (is_listed, (earlier, lost_earlier, unknown_earlier)) = (!mover.runs().is_empty(), mover.earlier_runs());
        let done: Vec<String> = mover.declared_runs();
        let (names_of_stages, lost_before, late) = (mover.fed_stages(), mover.lost_before(), mover.late_accounts());
        let (cuts, silent, absent, statistics) = (mover.cuts(), mover.silent(), mover.absent(), mover.statistics());
        let (is_missing, parts) = (say_missing(&mover), mover.parts());
        // Their last messages still have a receiver.
        let truth = boards.map(Simulated::truth).transpose();
        drop(mover);
        let folder = data.folder.display();
        let (mut texts, mut unknown_outcome) = (Vec::new(), unknown_earlier);
        let (absent, statistics) = (absent(), statistics());
        let mut stages = StageReport { silent, absent, statistics, ..StageReport::default() };
        let truth = truth.unwrap_or_else(|fault| {
            unknown_outcome += 1;
            print_warning(fault);
            None
        });
        let with_boards = |mut report: Value| {
            if let (Some(truth), Some(report)) = (&truth, report.as_object_mut()) {
                report.insert("boards".into(), truth.clone());
            }
            report
        };
        for stage in &names_of_stages {
            match flow::ledger::stage(&data, stage).and_then(|rows| Ok((rows, flow::status::missing(&data, stage)?))) {
                Ok((rows, ids)) => {
                    stages.rows.extend(rows);
                    stages.missing.extend(ids);
                }
                Err(fault) => {
                    unknown_outcome += 1;
                    print_warning(fault.leads_to(format!("cannot report the account of `{stage}`")));
                }
            }
        }
        say_waiting(&data, &stages.rows, &late, &parts);
        // Losses of stages before this start were reported then.
        let mut lost = flow::ledger::lost(&stages.rows).saturating_sub(lost_before) + lost_earlier;
        for gap in &cuts {
            lost += gap.count();
            print_warning(crate::figures::cut(gap));
        }
        unknown_outcome += stages.silent.len();
        for fault in stages.silent.iter().chain(&stages.absent) {
            print_warning(fault);
        }
        for run in &runs {
            let report = all_written(&data, &written, &sinks, &run.name)
                .and_then(|written| Report::of(&data, run, &sinks, &stages, &written, &failed));
            match report {
                Ok(report) => {
                    lost += report.account.lost;
                    unknown_outcome += usize::from(!report.damaged.is_empty());
                    for fault in &report.damaged {
                        print_warning(fault);
                    }
                    texts.push(if json { format!("{}\n", with_boards(report.json())) } else { report.text() });
                }
                // Damage in one run does not prevent the reports of the others.
                Err(fault) => {
                    unknown_outcome += 1;
                    let fault = fault
                        .leads_to(format!("cannot report run `{}`", run.name))
                        .hint(format!("`beamport verify --data {folder}` lists the damage"));
                    print_warning(fault);
                }
            }
        }
        say_kept(&data);
        if !left.is_empty() {
            print_notice(goes_on(&left, &folder.to_string()));
        }
        match earlier.last() {
            Some(_) => print_notice(reported_by_ls(&earlier, &folder.to_string())),
            None if runs.is_empty() && left.is_empty() && is_listed => {
                print_notice(nothing_to_do(&done, &folder.to_string()));
            }
            None => {}
        }
        if runs.is_empty() && left.is_empty() {
            let entries = entries_of(&data, &sources).unwrap_or_else(|fault| {
                unknown_outcome += 1;
                print_warning(fault);
                Vec::new()
            });
            if !is_listed {
                lost += lost_of(&entries).saturating_sub(sources_before);
            }
            texts.push(match json {
                true => {
                    format!("{}\n", with_boards(Report::without_run(&entries, &stages)))
                }
                false => Report::text_without_run(&entries, &stages),
            });
        }
        if let (Some(truth), false) = (&truth, json) {
            texts.push(format!("{}\n", simulated::line(truth)));
        }
        let text = texts.join(if json { "" } else { "\n" });
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever read the report has seen enough.
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(unprinted(&e).hint(format!("the runs are complete: `beamport ls --data {folder}`")))
            }
            // A file that was given up is an error, whatever else there is to say.
            _ if !failed.is_empty() || is_missing || unknown_outcome > 0 => Ok(ExitCode::from(2)),
            _ => Ok(ExitCode::from(u8::from(lost > 0 || !stages.absent.is_empty()))),
        }
    }
}

/// Logs what is started: a file of these bytes, by a program of this version.
fn log_start(instrument: &Instrument) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        instrument = *instrument.name,
        file = %Path::new(&instrument.file).display(),
        sha256 = instrument.sha256,
        data = %instrument.data.display(),
        "the instrument starts"
    );
}

/// The entry accounts of sources, over all runs and starts.
fn entries_of(data: &Data, sources: &[String]) -> Result<Vec<Entry>, Fault> {
    let mut all = Vec::new();
    for source in sources {
        if data.has(source)? {
            all.extend(flow::ledger::entries(data, source)?.0);
        }
    }
    Ok(all)
}

fn lost_of(entries: &[Entry]) -> u64 {
    total(entries.iter().flat_map(|entry| entry.lost.values()))
}

/// The notice where `up` had no run to measure: what to type. `done`: runs of the instrument file, all of which are
/// over.
fn nothing_to_do(done: &[String], folder: &str) -> String {
    match done {
        [] => format!("no run was open: `beamport begin NAME --data {folder}` begins one while `beamport up` works"),
        [name, ..] => format!(
            "nothing was measured: run `{}` is done (`beamport ls --data {folder}`); to measure again, give \
             `[run.{name}]` of the instrument file another name, or remove it and type `beamport begin NAME --data \
             {folder}` while `beamport up` works",
            shortened(&done.join("`, `"))
        ),
    }
}

/// Runs that go on at the next start, and those that have ended. `asked`: how the end was asked for.
fn left_open(runs: Vec<Run>, asked: usize) -> (Vec<Run>, Vec<Run>) {
    runs.into_iter().partition(|run| asked == LEAVE_RUNS && run.state != State::Sealed)
}

/// The notice about runs that a stop left open.
fn goes_on(left: &[Run], folder: &str) -> String {
    let names: Vec<&str> = left.iter().map(|run| run.name.as_str()).collect();
    let (runs, go) = if names.len() == 1 {
        ("run", "stays open: the next `beamport up` resumes it")
    } else {
        ("runs", "stay open: the next `beamport up` resumes them")
    };
    let names = shortened(&names.join("`, `"));
    format!("{runs} `{names}` {go}; `beamport end NAME --data {folder}` ends one while it works")
}

/// Where the reports of runs are that were done before the stop.
fn reported_by_ls(earlier: &[String], folder: &str) -> String {
    let (first, count) = (&earlier[0], thousands(earlier.len() as u64));
    let runs = if earlier.len() == 1 { "run was" } else { "runs were" };
    format!("{count} {runs} done before this stop: `beamport ls {first} --data {folder}` reports one")
}

/// Says what stages have not processed. `late`: workers and live sinks with their inputs, with or without an account;
/// `parts`: the stages in the file of which a stage is a part.
fn say_waiting(data: &Data, stages: &[Row], late: &[(String, Vec<String>)], parts: &BTreeMap<String, String>) {
    // Each part has all messages of its inputs, of which it takes its own.
    let mut held: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for row in stages.iter().filter(|row| row.held > 0) {
        let stage = parts.get(&row.stage).unwrap_or(&row.stage);
        let most = held.entry((stage, &row.stream)).or_default();
        *most = row.held.max(*most);
    }
    for ((stage, stream), held) in held {
        let what = format!("`{stage}` has {} unprocessed messages from `{stream}`", thousands(held));
        print_notice(format_args!("{what}; the next `up` will process them"));
    }
    for (stage, inputs) in late.iter().filter(|(stage, _)| stages.iter().all(|row| row.stage != *stage)) {
        for input in inputs {
            let there = data.reader_early(input).map_or(0, |reader| reader.bounds().count - reader.bounds().first);
            print_notice(format_args!(
                "`{stage}` has processed nothing from `{input}` yet: {} messages wait",
                thousands(there)
            ));
        }
    }
}

/// Names stages that a run still needs and the instrument file no longer has. True where a file stays a part.
fn say_missing(mover: &Mover) -> bool {
    let missing = mover.missing().unwrap_or_else(|fault| {
        print_warning(fault);
        Vec::new()
    });
    for stage in &missing {
        print_warning(stage.fault(&mover.file()));
    }
    missing.iter().any(|stage| stage.kind == "sink")
}

/// Says what memory streams keep in shared memory after the end, and how it comes free.
fn say_kept(data: &Data) {
    let kept = room::kept(data);
    if kept.is_empty() {
        return;
    }
    let names: Vec<String> = kept.iter().map(|(name, _)| format!("`{name}`")).collect();
    let total = bytes(kept.iter().map(|(_, bytes)| bytes).sum());
    let (first, folder) = (&kept[0].0, data.folder.display());
    print_notice(format_args!(
        "memory streams keep {total} of shared memory until the machine restarts: {}; to free it, remove what nobody \
         needs (`rm -r {folder}/{first}`), then run `beamport doctor --clean`",
        shortened(&names.join(", "))
    ));
}

/// Whether SIGTERM ends the open runs, as SIGINT does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum OnTerm {
    /// It ends them.
    EndRuns,
    /// They stay open: it comes with a restart of the service or the machine.
    LeaveRuns,
}

/// Catches SIGINT and SIGTERM: the first says how to end, a second one of either that it is to be at once.
fn listen_to_signals(signals: &Arc<AtomicUsize>, on_term: OnTerm) -> Result<(), Fault> {
    let signals = signals.clone();
    // A file that may not grow (`ulimit -f`, quota) is an error of the write, as a full disk is, and not the end of us.
    signal_hook::flag::register(libc::SIGXFSZ, Arc::default()).map_err(|e| Fault::new("cannot catch signals", e))?;
    let mut caught = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])
        .map_err(|e| Fault::new("cannot catch signals", e))?;
    let thread = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in caught.forever() {
            let leaves = signal == signal_hook::consts::SIGTERM && on_term == OnTerm::LeaveRuns;
            let first = if leaves { LEAVE_RUNS } else { 1 };
            let is_first = signals.compare_exchange(0, first, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if !is_first {
                signals.store(2, Ordering::Relaxed);
            } else if !leaves && stderr().is_terminal() {
                let _ = writeln!(stderr(), "\nending the open runs; press Ctrl-C again to stop at once");
            }
        }
    });
    thread.map(|_| ()).map_err(|e| Fault::new("cannot catch signals", e))
}

/// The files that sources load before they start.
struct Files<'a> {
    /// The data folder.
    folder: &'a Path,
}

impl Host for Files<'_> {
    fn folder(&self) -> &Path {
        self.folder
    }

    /// The measured histogram of a NeXus file, read by the process that has libhdf5.
    fn histogram(&self, path: &Path) -> Result<Vec<u8>, Fault> {
        let fault = |cause: String| Fault::new(format!("no histogram in `{}`", path.display()), cause);
        let answer = Command::new(program()?)
            .arg("histogram")
            .arg(path)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| fault(e.to_string()))?;
        if !answer.status.success() {
            let text = String::from_utf8_lossy(&answer.stderr);
            let cause = text
                .lines()
                .find_map(|l| l.strip_prefix("cause: "))
                .or(text.lines().next())
                .unwrap_or("it cannot be read");
            return Err(
                fault(cause.to_string()).hint("use a file with a dataset of counts by pixel and time of flight")
            );
        }
        Ok(answer.stdout)
    }

    /// A file with the frames of a camera: mapped, however large it is.
    fn map(&self, path: &Path) -> Result<store::Foreign, Fault> {
        let fault = |cause: String| Fault::new(format!("no frames in `{}`", path.display()), cause);
        // A stream's own files are no links; those of others may be.
        let real = path.canonicalize().map_err(|e| fault(e.to_string()))?;
        store::Foreign::open(&store::Os, &real).map_err(|e| fault(e.to_string()))
    }
}

/// The notice, printed once, that an instrument which ends by a signal has to wait.
#[derive(Default)]
struct Ending {
    since: Option<Instant>,
    is_told: bool,
}

impl Ending {
    fn look(&mut self, mover: &Mover, signals: &AtomicUsize, line: &LiveLine) {
        if self.is_told || signals.load(Ordering::Relaxed) == 0 {
            return;
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() < END_PATIENCE {
            return;
        }
        self.is_told = true;
        line.end();
        let unsealed = mover.runs_at_work().filter(|run| run.state != State::Sealed);
        let names: Vec<String> = unsealed.map(|run| format!("`{}`", run.name)).collect();
        let until = match &names[..] {
            [] => "the files are finished".to_owned(),
            [name] => format!("run {name} is sealed"),
            names => format!("runs {} are sealed", shortened(&names.join(", "))),
        };
        let next = "press Ctrl-C again to stop at once; the next `up` resumes";
        print_notice(format_args!("waiting until {until}; {next}"));
        for trouble in mover.troubles().iter().take(1) {
            print_warning(trouble);
        }
    }
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
        let shown = !json && stderr().is_terminal();
        Self { shown, next: Instant::now(), streams: Vec::new(), rates: Vec::new() }
    }

    fn refresh(&mut self, mover: &Mover) {
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
        let runs: Vec<String> = mover.runs_at_work().map(|r| format!("{} {}", r.name, r.state.name())).collect();
        let trouble = mover.troubles().first().map_or(String::new(), |f| format!("  ! {}", f.what));
        let _ = write!(
            stderr(),
            "\r\x1b[K{}  {:.2} Mevents/s  {:.1} MB/s  {} events  {unsynced} unsynced  {} lost{trouble}",
            runs.join(", "),
            (events - e0) as f64 / seconds / 1e6,
            (bytes - b0) as f64 / seconds / 1e6,
            thousands(events),
            thousands(dropped),
        );
    }

    fn end(&self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::nothing_to_do;

    #[test]
    fn a_start_with_nothing_to_measure_says_what_to_type() {
        let text = nothing_to_do(&["first".into()], "d");
        assert!(text.contains("run `first` is done") && text.contains("`[run.first]`"), "{text}");
        assert!(text.contains("`beamport begin NAME --data d`"), "{text}");
        assert!(nothing_to_do(&[], "d").contains("`beamport begin NAME --data d`"));
    }
}
