//! Commands of `control.sock`, and their record in the stream `control`.
//!
//! A command is one function and one line of [`COMMANDS`]. It is answered at once, or later by a stage or a cut-over
//! while the mover works on. A command of an edge ([`flow::edge::CommandKind`]) is carried out by the thread of its
//! client before it comes here, and is only recorded.

use super::asks::Request;
use super::control::{Command, number, stop};
use super::cutover::{Pair, Underway};
use super::stage::{Order, StageHandle, What};
use super::{Mover, sources};
use crate::file::{SinkSection, WorkerSection, nearest};
use crate::limits::RECORD_BYTES_MAX;
use flow::Fault;
use flow::records::Run;
use serde_json::{Value, json};
use settings::shortened;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use wire::bprn::State;

/// How long a run waits for what is under way where nobody says: as in the instrument file.
const SETTLE: Duration = Duration::from_secs(2);

/// The outcome of a command.
enum Reply {
    /// Its answer.
    Done(Value),
    /// A stage answers it.
    Stage(Request),
    /// A cut-over answers it.
    CutOver(Underway),
}

/// A command that the mover carries out.
struct MoverCommand {
    /// Its word.
    name: &'static str,
    /// It may change something: the stream `control` records it with its answer.
    is_recorded: bool,
    /// Carries it out, with the request and the time.
    run: fn(&mut Mover, &Value, i64) -> Result<Reply, Fault>,
}

impl MoverCommand {
    /// A command that is recorded.
    const fn new(name: &'static str, run: fn(&mut Mover, &Value, i64) -> Result<Reply, Fault>) -> Self {
        Self { name, is_recorded: true, run }
    }
}

/// The commands, sorted by word.
static COMMANDS: [MoverCommand; 7] = [
    MoverCommand::new("ask", |mover, request, _| mover.obey_ask(request).map(Reply::Stage)),
    MoverCommand::new("begin", |mover, request, now| mover.obey_begin(request, now).map(Reply::Done)),
    MoverCommand::new("configure", |mover, request, _| mover.obey_configure(request).map(Reply::Stage)),
    MoverCommand::new("cutover", |mover, request, _| mover.obey_cut_over(request).map(Reply::CutOver)),
    MoverCommand::new("end", |mover, request, now| mover.obey_end(request, now).map(Reply::Done)),
    MoverCommand { name: "status", is_recorded: false, run: |mover, _, _| Ok(Reply::Done(mover.obey_status())) },
    MoverCommand::new("worker", |mover, request, _| mover.obey_worker(request).map(Reply::Stage)),
];

impl Mover {
    /// Carries out a command, or begins one that is answered later; true where it may have changed a run.
    pub(super) fn begin_command(&mut self, command: Command, now: i64) -> bool {
        let Some(command) = self.forward(command, Instant::now(), now) else { return false };
        let answer = match self.obey(&command.request, now) {
            Ok(Reply::Stage(request)) => {
                self.asks.push(command, request);
                return false;
            }
            Ok(Reply::CutOver(underway)) => {
                self.underway = Some((command, underway));
                return false;
            }
            Ok(Reply::Done(answer)) => Ok(answer),
            Err(fault) => Err(fault),
        };
        self.answer(&command, answer, now);
        true
    }

    /// Answers commands that were begun before.
    pub(super) fn answer_commands(&mut self, now: i64) {
        for (command, answer) in self.asks.answered() {
            self.answer(&command, answer, now);
        }
        let Some(answer) = self.underway.as_mut().and_then(|(_, underway)| underway.result()) else { return };
        let Some((command, mut underway)) = self.underway.take() else { return };
        underway.join();
        self.answer(&command, answer, now);
    }

    /// Records a command, and answers it.
    pub(super) fn answer(&mut self, command: &Command, answer: Result<Value, Fault>, now: i64) {
        self.record(command, &answer, now);
        let _ = command.answer.send(answer);
    }

    fn obey(&mut self, request: &Value, now: i64) -> Result<Reply, Fault> {
        match COMMANDS.iter().find(|command| request["command"] == command.name) {
            Some(command) => (command.run)(self, request, now),
            None => {
                let names: Vec<&str> = self.commands().map(|(name, _)| name).collect();
                let what = format!("unknown command `{}`", request["command"].as_str().unwrap_or_default());
                Err(Fault::new(what, "").hint(format!("commands are {}", names.join(", "))))
            }
        }
    }

    /// The words of all commands, also of those that edges carry out, and whether a command is recorded.
    fn commands(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let of_edges = self.instrument.commands.iter().map(|kind| (kind.name, kind.is_recorded));
        COMMANDS.iter().map(|command| (command.name, command.is_recorded)).chain(of_edges)
    }

    /// `{"command": "ask", "source", "request"}`: what the source answers.
    fn obey_ask(&self, request: &Value) -> Result<Request, Fault> {
        let name = request["source"].as_str().unwrap_or_default();
        let asked = self.ask_source(name, request["request"].clone());
        asked.ok_or_else(|| sources::unknown(name, self.instrument.sources()))
    }

    /// Asks a source of this host that was started; none where there is no such source.
    pub(super) fn ask_source(&self, name: &str, request: Value) -> Option<Request> {
        let mut stages = self.instrument.stages.iter().zip(&self.threads);
        let (_, thread) = stages.find(|(stage, _)| stage.source().is_some() && stage.name() == name)?;
        Some(sources::ask(thread, name, request))
    }

    /// `{"command": "begin", "run", "start", "stop", "inclusive", "settle", "metadata", "slots"}`, each but the
    /// first optional.
    fn obey_begin(&mut self, request: &Value, now: i64) -> Result<Value, Fault> {
        let name = match &request["run"] {
            Value::Null => next_name(self.keeper.runs()),
            Value::String(name) if crate::file::is_run_name(name) => name.clone(),
            other => {
                // The name becomes part of a file name: the socket has the rule of the command line.
                let cut: String = other.to_string().chars().take(100).collect();
                return Err(Fault::new(format!("cannot begin run {cut}"), "invalid name")
                    .hint("write up to 64 letters, digits, `_` and `-`"));
            }
        };
        let is_declared = self.instrument.runs.iter().any(|run| run.name == name);
        let own = self.instrument.sinks.iter().filter(|sink| sink.is_of_one_run());
        let of_hosts = self.instrument.part.iter().flat_map(|part| &part.files_of_one_run);
        let one_file = own.map(|sink| (&sink.name, &sink.file.value)).chain(of_hosts).next();
        if let Some((sink, file)) = one_file.filter(|_| !is_declared) {
            let cause = format!("sink `{sink}` writes one file, `{file}`, of the declared run");
            return Err(Fault::new(format!("cannot begin run `{name}`"), cause)
                .hint("add `{run}` to its `file`, and restart `beamport up`"));
        }
        if let Some(path) = self.file_in_the_way(&name) {
            let cause = format!("its file `{}` exists already, and no file is overwritten", path.display());
            return Err(Fault::new(format!("cannot begin run `{name}`"), cause)
                .hint("move that file away, or begin a run of another name: `beamport begin NAME`"));
        }
        if self.ending {
            // Nobody would end it: the instrument would go on for ever.
            return Err(Fault::new(format!("cannot begin run `{name}`"), "the instrument is ending")
                .hint("restart it with `beamport up FILE` after it has ended"));
        }
        let slots = match &request["slots"] {
            Value::Null => serde_json::Map::new(),
            Value::Object(slots) => slots.clone(),
            _ => return Err(Fault::new(format!("cannot begin run `{name}`"), "`slots` is not a JSON object")),
        };
        let metadata = match &request["metadata"] {
            Value::Null if slots.is_empty() => "{}".into(),
            Value::Null => json!({"slots": slots}).to_string(),
            Value::Object(fields) => {
                let mut fields = fields.clone();
                if !slots.is_empty() {
                    fields.insert("slots".into(), slots.clone().into());
                }
                Value::Object(fields).to_string()
            }
            _ => return Err(Fault::new(format!("cannot begin run `{name}`"), "`metadata` is not a JSON object")),
        };
        let (start, stop) = (number(request, "start")?.unwrap_or(now), stop(request)?);
        let settle = number(request, "settle")?.unwrap_or(SETTLE.as_nanos() as i64);
        let settle = u64::try_from(settle)
            .map_err(|_| Fault::new(format!("cannot begin run `{name}`"), "`settle` is negative"))?;
        if self.keeper.runs().iter().all(|run| run.name != name) {
            // Before the run: what is wrong with them keeps it from beginning.
            for worker in slots.keys() {
                self.change(worker, serde_json::Map::new(), number(&request["slots"], worker)?)?;
            }
        }
        self.begin(&name, start, stop, Duration::from_nanos(settle), &metadata).map(|run| as_value(&run))
    }

    /// `{"command": "configure", "stage", "parameters", "slots"}`, the last two optional: a worker is changed, a source
    /// is asked the parameters. In place of `"stage"` there may be `"worker"`, or `"source"`, which is asked all else.
    fn obey_configure(&self, request: &Value) -> Result<Request, Fault> {
        if !request["source"].is_null() {
            let mut asked = request.clone();
            let source = asked.as_object_mut().and_then(|asked| {
                asked.remove("command");
                asked.remove("source")
            });
            return self.obey_ask(&json!({"source": source, "request": asked}));
        }
        let parameters = match &request["parameters"] {
            Value::Null => serde_json::Map::new(),
            Value::Object(parameters) => parameters.clone(),
            _ => return Err(Fault::new("the command was refused", "`parameters` is not a JSON object")),
        };
        let slots = number(request, "slots")?;
        let name = request["stage"].as_str().or_else(|| request["worker"].as_str()).unwrap_or_default();
        if !self.instrument.sources().any(|section| section.name == name) {
            return self.change(name, parameters, slots);
        }
        match slots {
            None => self.obey_ask(&json!({"source": name, "request": parameters})),
            Some(_) => Err(Fault::new(format!("cannot configure source `{name}`"), "a source has no slots")
                .hint("leave out `--slots`")),
        }
    }

    /// Changes a worker that runs; the answer is how it is now.
    fn change(
        &self,
        name: &str,
        parameters: serde_json::Map<String, Value>,
        slots: Option<i64>,
    ) -> Result<Request, Fault> {
        let what = || format!("cannot configure worker `{}`", shortened(name));
        let (section, handle) = self.running_worker("configure", name)?;
        let slots = slots.map(|slots| {
            valid_slots(slots).ok_or_else(|| {
                Fault::new(what(), format!("{slots} slots"))
                    .hint(format!("a worker has 1 to {} slots", flow::SLOTS_MAX))
            })
        });
        let slots = slots.transpose()?;
        let set = section.set.value;
        if slots.is_some_and(|slots| u64::from(slots) < set) {
            let cause = format!("`set` is {set}: that many slots get the same messages");
            return Err(Fault::new(what(), cause).hint(format!("give it {set} slots or more")));
        }
        let (answer, answered) = channel();
        handle.order(Order { what: What::Change { parameters, slots }, answer });
        Ok(Request { stage: format!("worker `{name}`"), handle: handle.clone(), answered, key: None })
    }

    /// The section and the handle of a worker that runs here. `verb`: what cannot be done with another.
    pub(super) fn running_worker(&self, verb: &str, name: &str) -> Result<(&WorkerSection, &StageHandle), Fault> {
        let part = self.instrument.part.as_ref();
        let elsewhere = part.and_then(|part| match part.stages.get(name) {
            Some(host) => (*host != part.name).then(|| format!("it runs on host `{host}`")),
            None => (part.workers.contains_key(name) && part.shared().all(|own| own != name))
                .then(|| "it runs on several hosts".to_owned()),
        });
        if let Some(cause) = elsewhere {
            let hint = format!("change it by itself, before the run: `beamport configure {name} --slots NUMBER`");
            let what = format!("cannot {verb} worker `{}`", shortened(name));
            return Err(Fault::new(what, cause).hint(hint));
        }
        self.running_workers().find(|(section, _)| section.name == name).ok_or_else(|| {
            let workers = self.instrument.workers().map(|section| section.name.as_str());
            let names: Vec<&str> =
                workers.chain(self.instrument.sources().map(|section| section.name.as_str())).collect();
            let hint = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("workers and sources are {}", shortened(&names.join(", "))),
            };
            let what = format!("cannot {verb} `{}`", shortened(name));
            Fault::new(what, "no such worker or source").hint(hint)
        })
    }

    /// `{"command": "cutover", "shadow"}`: answered when it is done, while all else goes on.
    fn obey_cut_over(&self, request: &Value) -> Result<Underway, Fault> {
        if self.underway.is_some() {
            return Err(Fault::new("the command was refused", "another cut-over is under way")
                .hint("try again after its answer"));
        }
        let workers: Vec<_> = self.running_workers().collect();
        let pair = Pair::of(&workers, request["shadow"].as_str().unwrap_or_default())?;
        Underway::begin(pair, &self.data, &self.asked.stop)
    }

    /// `{"command": "end", "run", "stop", "inclusive", "without"}`, each but the first optional.
    fn obey_end(&mut self, request: &Value, now: i64) -> Result<Value, Fault> {
        let open: Vec<&Run> = self.keeper.runs().iter().filter(|r| r.state == State::Open).collect();
        let name = match (request["run"].as_str(), open.as_slice()) {
            (Some(name), _) => name.to_string(),
            (None, [one]) => one.name.clone(),
            (None, []) => {
                return Err(Fault::new("cannot end a run", "no run is open").hint("begin one with `beamport begin`"));
            }
            (None, many) => {
                let names: Vec<&str> = many.iter().map(|r| r.name.as_str()).collect();
                return Err(Fault::new("the run to end is ambiguous", format!("open runs: {}", names.join(", ")))
                    .hint("name it: `beamport end RUN`"));
            }
        };
        let run = self.keeper.end(&name, stop(request)?, "asked", now)?;
        self.leave_out(&run, &request["without"])?;
        let mut answer = as_value(&run);
        let away = self.hosts_away(&request["without"]);
        if !away.is_empty() {
            answer["away"] = away.into();
        }
        if let Some(trouble) = self.hosts_trouble() {
            answer["trouble"] = trouble.what.into();
        }
        Ok(answer)
    }

    /// `{"command": "status"}`: the state of all stages.
    fn obey_status(&self) -> Value {
        let troubles: Vec<String> = self.troubles().iter().map(ToString::to_string).collect();
        let stages = self.stages().map(|(stage, handle)| (stage.name().to_owned(), handle.to_json(stage.kind())));
        let running: serde_json::Map<String, Value> = stages.collect();
        json!({
            "pid": std::process::id(),
            "instrument": *self.instrument.name,
            "file": std::path::absolute(&self.instrument.file).unwrap_or_default(),
            "troubles": troubles,
            "workers": self.worker_states(),
            "running": running,
            "hosts": self.host_states(),
        })
    }

    /// The newest numbers of the workers, and of their slots, by name.
    pub(super) fn worker_states(&self) -> serde_json::Map<String, Value> {
        let of_worker = |name: &String| {
            let state = flow::WorkerState::newest(&self.data, name).ok().flatten()?;
            Some((name.clone(), json!({"numbers": state.numbers, "statistics": state.slots})))
        };
        self.instrument.workers().filter_map(|section| of_worker(&section.name)).collect()
    }

    /// Records a command in the stream `control`, if it may change something.
    fn record(&mut self, Command { request, from, .. }: &Command, answer: &Result<Value, Fault>, now: i64) {
        let command = request["command"].as_str().unwrap_or_default();
        let is_recorded = self.commands().find(|(name, _)| *name == command).is_none_or(|(_, is_recorded)| is_recorded);
        if !is_recorded {
            return;
        }
        let mut arguments = request.to_string();
        if arguments.len() > RECORD_BYTES_MAX {
            let begin: String = arguments.chars().take(RECORD_BYTES_MAX / 4).collect();
            arguments = json!({"command": command, "bytes": arguments.len(), "begin": begin}).to_string();
        }
        let answer = match answer {
            Ok(value) => {
                let mut value = value.clone();
                // Long, and in the stream `runs`.
                value.as_object_mut().and_then(|answer| answer.remove("instrument"));
                value.to_string()
            }
            Err(fault) => fault.to_string(),
        };
        let message = wire::bpct::Control { command, arguments: &arguments, from, time: now, answer: &answer };
        if let Err(fault) = self.book.append(&message) {
            tracing::warn!("a command is not recorded: {}", fault.cause);
        }
    }

    /// A file, or a folder of files, that a new run of this name would write and that is there.
    fn file_in_the_way(&self, run: &str) -> Option<PathBuf> {
        let is_new = self.keeper.runs().iter().all(|known| known.name != run);
        let of = |sink: &SinkSection| {
            let path = sink.path_of(&self.instrument.name.value, run);
            // Files of frames have a folder of their own, and patterns for names.
            let is_file = sink.template().is_some();
            if is_file { path } else { path.parent().map(Path::to_path_buf).unwrap_or(path) }
        };
        let mut paths = self.instrument.sinks.iter().filter(|_| is_new).map(of);
        paths.find(|path| path.symlink_metadata().is_ok())
    }
}

/// A number of slots that a worker may have.
pub(super) fn valid_slots(slots: i64) -> Option<u32> {
    u32::try_from(slots).ok().filter(|slots| (1..=flow::SLOTS_MAX).contains(slots))
}

fn as_value(run: &Run) -> Value {
    serde_json::to_value(run).unwrap_or(Value::Null)
}

/// `1`, `2`, ...: the number after the highest that is there.
fn next_name(runs: &[Run]) -> String {
    let highest = runs.iter().filter_map(|r| r.name.parse::<u64>().ok()).max().unwrap_or(0);
    (highest + 1).to_string()
}
