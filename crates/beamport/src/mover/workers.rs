//! The processes of the slots of workers, and what their code declares.
//!
//! A slot is `python -m beamport._slot JSON`, or `beamport slot JSON` for a ready-made worker without code of the user.
//! Its job is a [`SlotJob`]. It opens the streams itself, dies with the mover, and takes no part in Ctrl-C. One that ends
//! is started again, at once where it has answered since its start, else after a pause that doubles. One that is at a
//! message for longer than `time_max` is killed.

use super::code::Copies;
use super::stage::{self, NAP, StageHandle, StageThread, ns};
use super::worker_loop::{self, changed_parameters};
use crate::code::{Loading, ended, file_of, hash_files, python};
use crate::file::{Code, Order, WorkerSection};
use crate::limits;
use flow::job::SlotCode;
use flow::{CodeTraits, Data, Fault, LoadJob, Overdue, SlotEnd, SlotJob, Work, WorkOptions};
use serde::Serialize;
use serde_json::{Value, json};
use settings::units::duration_text;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// First pause before a slot is started again that has answered nothing.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause between two looks at whether its files were edited.
const CODE_PAUSE: Duration = Duration::from_millis(500);
/// The module of the package that runs code of the user in a slot.
const SLOT_MODULE: &str = "beamport._slot";

/// How a section's worker works.
pub(super) fn options(section: &WorkerSection) -> WorkOptions {
    let slots = u32::try_from(section.slots.value).unwrap_or(1);
    WorkOptions {
        output: section.output.options(),
        share: section.share.value,
        set: u32::try_from(section.set.value).unwrap_or(1),
        turn: section.turn.value,
        // Code of the user says it.
        code_traits: CodeTraits { batch: u64::from(!section.is_python()), ..CodeTraits::default() },
        keep_order: section.order.value == Order::Keep,
        time_max: ns(section.time_max.value),
        first_time_max: section.first_time_max.as_ref().map_or(0, |first| ns(first.value)),
        parameters: section.parameters.0.to_string(),
        code: section.code().to_json().to_string(),
        shadow: section.shadow.as_ref().map(|old| old.value.clone()),
        blames: !section.is_whole(),
        by_blocks: section.by_blocks,
        ..WorkOptions::memory(slots, section.slot_live.0)
    }
}

/// Starts the thread of a section in a data folder. `inputs`: the handles of the stages that fill them, in the section's order,
/// and of those that fill the streams that its code looks at beside.
pub(super) fn start(
    data: &Data,
    section: &WorkerSection,
    options: WorkOptions,
    (inputs, side_inputs): (Vec<StageHandle>, Vec<StageHandle>),
    stop: &Arc<AtomicBool>,
) -> Result<StageThread, Fault> {
    let (data, mut section, flag) = (data.clone(), section.clone(), stop.clone());
    hash_files(&format!("worker `{}`", section.name), &mut section.parameters.value.0)?;
    let options = WorkOptions { parameters: section.parameters.0.to_string(), ..options };
    let mut copies = Copies::default();
    StageThread::start("worker", &section.name.clone(), stop, move |handle| {
        if !stage::wait_for(&side_inputs, &flag) {
            return Ok(());
        }
        worker_loop::run(&data, (&section, &options), &mut copies, &inputs, &flag, handle)
    })
}

/// One slot's process, or the pause before the next.
struct Running {
    child: Option<Child>,
    again: Instant,
    pause: Duration,
    /// Messages that the slot had answered when the process was started.
    answered: u64,
    /// Why it answers nothing.
    trouble: Option<Fault>,
}

impl Running {
    fn new() -> Self {
        Self { child: None, again: Instant::now(), pause: PAUSE, answered: 0, trouble: None }
    }

    /// It has no process now, for this reason. Each pause is twice the one before.
    fn suffer(&mut self, fault: Fault) {
        self.trouble = Some(fault);
        self.again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// The processes of a worker's slots.
pub(super) struct Slots<'a> {
    data: &'a Data,
    /// As its code is now.
    pub(super) section: WorkerSection,
    options: &'a WorkOptions,
    copies: &'a mut Copies,
    running: Vec<Running>,
    looked: Instant,
    /// When it was looked whether files of the code were edited.
    compared: Instant,
    /// The parameters of now.
    parameters: Value,
    /// Why its code needs one slot, if it does.
    alone: Option<String>,
    /// Why its code gets no message.
    refused: Option<Fault>,
}

impl<'a> Slots<'a> {
    pub(super) fn new(
        data: &'a Data,
        section: WorkerSection,
        options: &'a WorkOptions,
        copies: &'a mut Copies,
    ) -> Self {
        let parameters = section.parameters.0.clone();
        let now = Instant::now();
        let (running, looked, compared) = (Vec::new(), now - NAP, now);
        Self { data, section, options, copies, running, looked, compared, parameters, alone: None, refused: None }
    }

    /// Takes code and parameters of now, and copies the files of that code: all slots load the copy.
    pub(super) fn begin(&mut self, work: &mut Work) -> Result<(), Fault> {
        self.take(work)?;
        self.section.copied = self.copies.of(&self.data.folder, &self.section)?;
        work.set_code(&self.section.code().to_json().to_string());
        Ok(())
    }

    /// The code of now, with the files among its parameters.
    pub(super) fn running_code(&self) -> Value {
        let mut code = self.section.code().to_json();
        let parameters = self.parameters.as_object().into_iter().flatten();
        let files: serde_json::Map<String, Value> = parameters
            .filter(|(_, value)| file_of(value).is_some())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !files.is_empty() {
            code["files"] = files.into();
        }
        code
    }

    /// Takes the code, its copy and the parameters of a shadow: slots that start from now on have them.
    pub(super) fn take_over(&mut self, work: &Work) -> Result<(), Fault> {
        self.take(work)?;
        self.copies.take(&self.section);
        Ok(())
    }

    fn take(&mut self, work: &Work) -> Result<(), Fault> {
        self.parameters = serde_json::from_str(work.parameters()).unwrap_or_default();
        if let Some(code) = Code::from_json(work.code()) {
            self.section.take_code(&code);
        }
        // Messages that earlier code held would be held for ever. Slots of user code do that themselves.
        match self.section.alone(&self.parameters) {
            Some(_) => Ok(()),
            None if !self.section.is_native() => Ok(()),
            None => work.release_earlier(&self.section.side_inputs),
        }
    }

    /// Warns where files of the code were edited: its slots keep running the copy.
    fn compare(&mut self) {
        if self.compared.elapsed() < CODE_PAUSE {
            return;
        }
        self.compared = Instant::now();
        let changed = self.copies.changed();
        if !changed.is_empty() {
            let (names, name) = (changed.join("`, `"), &self.section.name);
            tracing::warn!(
                "`{names}` has changed since worker `{name}` started, which goes on with what it loaded: end \
                 `beamport up` and start it again to use it, or cut over to a shadow"
            );
        }
    }

    /// Tells all slots to end; one that was about to start does so at once.
    pub(super) fn stop_all(&mut self, work: &mut Work) -> Result<(), Fault> {
        self.running.iter_mut().for_each(|running| {
            (running.again, running.pause, running.trouble) = (Instant::now(), PAUSE, None);
        });
        (0..).zip(&self.running).filter(|(_, r)| r.child.is_some()).try_for_each(|(slot, _)| work.stop(slot))
    }

    /// Ends what has not ended.
    pub(super) fn kill_all(&mut self) {
        self.running.iter_mut().filter_map(|running| running.child.as_mut()).for_each(|child| drop(child.kill()));
    }

    /// True where one died, or could not start, that had answered nothing.
    pub(super) fn fail(&self) -> bool {
        self.trouble().is_some()
    }

    /// Why slots answer nothing.
    pub(super) fn trouble(&self) -> Option<Fault> {
        self.refused.clone().or_else(|| self.running.iter().find_map(|running| running.trouble.clone()))
    }

    /// True while any lives.
    pub(super) fn live(&self) -> bool {
        self.running.iter().any(|running| running.child.is_some())
    }

    /// Asks code of the user whether it accepts a change, in a thread: a slot that rejects it would end, and the next
    /// as well.
    pub(super) fn ask(
        &self,
        work: &Work,
        changed: &serde_json::Map<String, Value>,
        stop: &Arc<AtomicBool>,
    ) -> Receiver<Result<(), Fault>> {
        let (tell, said) = channel();
        if changed.is_empty() || !self.section.is_python() {
            let _ = tell.send(Ok(()));
            return said;
        }
        let (mut section, stop, data) = (self.section.clone(), stop.clone(), self.data.folder.clone());
        section.parameters.value.0 = changed_parameters(work, changed);
        std::thread::spawn(move || {
            let said = declared(&data, &section, true, &|| stop.load(Ordering::Relaxed)).map(drop);
            let what = || format!("cannot configure worker `{}`", section.name);
            // Nobody hears it when the instrument ends.
            let _ = tell.send(said.map_err(|fault| fault.leads_to(what())));
        });
        said
    }

    /// Asks the code what it declares, in a thread.
    pub(super) fn ask_code(&self, stop: &Arc<AtomicBool>) -> Receiver<Result<Declared, Fault>> {
        let (tell, said) = channel();
        let (mut section, stop, data) = (self.section.clone(), stop.clone(), self.data.folder.clone());
        section.parameters.value.0 = self.parameters.clone();
        std::thread::spawn(move || {
            let _ = tell.send(declared(&data, &section, false, &|| stop.load(Ordering::Relaxed)));
        });
        said
    }

    /// Passes on what the code declares. For code that cannot be loaded that is nothing: its slots say why.
    pub(super) fn learn(&mut self, work: &mut Work, said: Result<Declared, Fault>) -> Result<(), Fault> {
        let declared = said.unwrap_or_default();
        self.refused = misplaced(&self.section, work.slots(), &declared);
        self.alone = declared.alone;
        if self.refused.is_none() {
            work.declare(declared.traits)?;
        }
        Ok(())
    }

    /// Changes parameters and the number of slots; the answer is how they are now.
    pub(super) fn change(
        &mut self,
        work: &mut Work,
        changed: &serde_json::Map<String, Value>,
        count: Option<u32>,
    ) -> Result<Value, Fault> {
        let parameters = changed_parameters(work, changed);
        let slots = count.unwrap_or(work.slots());
        self.section.check_change(&parameters, slots)?;
        if let Some(why) = self.alone.as_ref().filter(|_| slots > 1) {
            let what = format!("cannot configure worker `{}`", self.section.name);
            return Err(Fault::new(what, why).hint("keep one slot"));
        }
        if let Some(slots) = count.filter(|slots| *slots != work.slots()) {
            let before = work.slots();
            work.set_slots(slots)?;
            (slots..before).try_for_each(|slot| work.stop(slot))?;
        }
        if !changed.is_empty() {
            let text = parameters.to_string();
            self.parameters = parameters.clone();
            work.configure(&text)?;
            // A slot that waits because it rejected the old parameters need not wait any longer.
            self.running.iter_mut().for_each(|running| (running.again, running.pause) = (Instant::now(), PAUSE));
        }
        let code = self.section.code().to_json();
        let mut now = json!({"worker": self.section.name, "slots": slots, "parameters": parameters, "code": code});
        if work.is_paused() {
            now["paused"] = true.into();
        }
        Ok(now)
    }

    /// Reaps, kills what is overdue, and starts what is due. How many are there.
    pub(super) fn supervise(&mut self, work: &mut Work, starts: bool) -> Result<usize, Fault> {
        if self.looked.elapsed() < Duration::from_millis(2) {
            return Ok(self.running.iter().filter(|r| r.child.is_some()).count());
        }
        self.compare();
        self.looked = Instant::now();
        let overdue = work.overdue();
        while self.running.len() < work.slots() as usize {
            self.running.push(Running::new());
        }
        let mut due = Vec::new();
        for (number, running) in (0..).zip(&mut self.running) {
            let answered = work.states().get(number as usize).map_or(0, |state| state.messages);
            if let Some(child) = &mut running.child {
                let late = overdue.iter().find(|late| late.0 == number).map(|late| late.1);
                let is_late = late.is_some();
                if is_late {
                    let _ = child.kill();
                }
                let status = match if is_late { child.wait().map(Some) } else { child.try_wait() } {
                    Ok(Some(status)) => Ok(status),
                    Ok(None) => {
                        if answered > running.answered {
                            (running.pause, running.trouble) = (PAUSE, None);
                        }
                        continue;
                    }
                    // Its end cannot be seen: two must not write the same stream.
                    Err(e) => child.kill().and(Err(e)),
                };
                running.child = None;
                let text = end_text(&self.section, (late, answered == running.answered), &status);
                work.died(number, late.map_or_else(|| slot_end(&status), SlotEnd::Overdue), &text)?;
                if !starts || number >= work.slots() {
                    continue;
                }
                tracing::warn!("slot {number} of worker `{}`: {text}", self.section.name);
                if answered > running.answered {
                    (running.pause, running.trouble) = (PAUSE, None);
                } else {
                    let what = format!("slot {number} of worker `{}` fails", self.section.name);
                    let hint = end_hint(late, status.ok().and_then(|status| status.code()));
                    running.suffer(Fault::new(what, text).hint(hint));
                }
            }
            if running.child.is_none() && starts && number < work.slots() && Instant::now() >= running.again {
                running.answered = answered;
                due.push(number);
            }
        }
        due.into_iter().try_for_each(|number| self.start(work, number))?;
        Ok(self.running.iter().filter(|r| r.child.is_some()).count())
    }

    /// Starts the process of a slot that has none.
    fn start(&mut self, work: &mut Work, number: u32) -> Result<(), Fault> {
        let from = work.ready(number, 0);
        let kept = if self.section.is_native() { Vec::new() } else { work.kept() };
        let job = SlotJob { kept, slots: work.slots(), ..self.job(number, from) };
        let running = &mut self.running[number as usize];
        match spawn(&self.section, &job, work.slots()) {
            Ok(child) => {
                work.started(number, child.id());
                running.child = Some(child);
                work.send_parameters(number)?;
            }
            // Too few processes, or an interpreter that is missing now, concern this slot alone.
            Err(fault) => running.suffer(fault),
        }
        Ok(())
    }

    /// The inputs, by their numbers in tasks.
    fn inputs(&self) -> Vec<String> {
        let retried = self.options.retries.then(|| flow::retry_of(&self.section.name));
        self.section.inputs.value.iter().cloned().chain(retried).collect()
    }

    /// Why messages cannot be retried out of their order, if they cannot.
    pub(super) fn keeps_order(&self, traits: CodeTraits) -> Option<Fault> {
        let section = &self.section;
        let why = match (&self.alone, traits) {
            (Some(why), _) => why.as_str(),
            (None, CodeTraits { follows_runs: true, .. }) => "its code follows runs, which are in order",
            (None, CodeTraits { saves_state: true, .. }) => "its code keeps state from one message to the next",
            (None, CodeTraits { takes_members: true, .. }) => "its code is given the messages of groups",
            _ if section.hosts.is_some() => "it runs on several hosts",
            _ if section.shadow.is_some() => "it is a shadow",
            _ => return None,
        };
        let what = format!("worker `{}` cannot retry messages", section.name);
        Some(Fault::new(what, why).hint("`beamport replay RUN --through` processes a run in order"))
    }

    /// The job of a slot, whose first task is `from`.
    fn job(&self, number: u32, from: u64) -> SlotJob {
        SlotJob {
            parent: std::process::id(),
            data: self.data.folder.clone(),
            stage: self.section.name.clone(),
            maker: self.section.maker.clone(),
            number,
            inputs: self.inputs(),
            level: self.options.output.level,
            live_bytes: self.options.slot_live_bytes,
            from,
            by_key: self.options.share == flow::Share::Key,
            slots: 1,
            kept: Vec::new(),
            cpu: pick(&self.section.cpus.0, number),
            code: code_of(&self.section, &self.data.folder, &self.section.call.value, self.parameters.clone()),
        }
    }
}

/// The entry of a list of `cpus` or `gpus` for a slot.
fn pick(numbers: &[u64], slot: u32) -> Option<u64> {
    numbers.get(slot as usize % numbers.len().max(1)).copied()
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        for child in self.running.iter_mut().filter_map(|running| running.child.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How the process of a slot ended that nobody here has killed. Code does not send itself these signals.
fn slot_end(status: &std::io::Result<ExitStatus>) -> SlotEnd {
    match status.as_ref().map(ExitStatus::signal) {
        Ok(Some(libc::SIGKILL | libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT)) | Err(_) => {
            SlotEnd::Killed
        }
        Ok(_) => SlotEnd::Exited,
    }
}

/// The interpreter of a section.
fn interpreter(section: &WorkerSection) -> PathBuf {
    section.python.as_ref().map_or_else(python, |python| python.value.clone())
}

fn spawn(section: &WorkerSection, job: &SlotJob, slots: u32) -> Result<Child, Fault> {
    let number = job.number;
    let what = format!("cannot start slot {number} of worker `{}`", section.name);
    let mut command = program(section, &what, job)?;
    if let Some(gpu) = pick(&section.gpus.0, number) {
        // Of NVIDIA and of AMD.
        command.env("CUDA_VISIBLE_DEVICES", gpu.to_string()).env("HIP_VISIBLE_DEVICES", gpu.to_string());
        let sharing = (0..slots).filter(|slot| pick(&section.gpus.0, *slot) == Some(gpu)).count();
        if sharing > 1 {
            // XLA takes most of the memory at its start, TensorFlow all of it; PyTorch and CuPy what they need.
            let share = format!("{:.3}", limits::GPU_SHARE / sharing as f64);
            command.env("XLA_PYTHON_CLIENT_MEM_FRACTION", share).env("TF_FORCE_GPU_ALLOW_GROWTH", "true");
        }
    }
    command.envs(&section.environment.0);
    // User code prints for people; stdout is for the report.
    let child = store::printed::spawn(command, &format!("worker `{}` slot {number}", section.name), true);
    child.map_err(|e| Fault::new(what, e).hint(interpreted(section)))
}

/// The program of a section's slots, with its job. `what`: what fails where the job cannot be written.
fn program(section: &WorkerSection, what: &str, job: &impl Serialize) -> Result<Command, Fault> {
    if section.is_python() {
        return crate::code::command(&interpreter(section), SLOT_MODULE, what, job);
    }
    let job = serde_json::to_string(job)
        .map_err(|e| Fault::new(what, e).hint("rename the folder or file that is not valid UTF-8"))?;
    let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into()));
    command.arg("slot").arg(job).stdin(Stdio::null()).process_group(0);
    Ok(command)
}

/// The code that a process of a section loads.
fn code_of(section: &WorkerSection, data: &Path, call: &str, parameters: Value) -> SlotCode {
    let copied = section.copied.as_ref().map(|copied| copied.in_job(data));
    SlotCode { call: call.to_owned(), folder: section.folder.clone(), copied, parameters }
}

/// How the process of a slot ended. `late`: why it was killed, and whether at its first message.
fn end_text(
    section: &WorkerSection,
    (late, is_first): (Option<Overdue>, bool),
    status: &std::io::Result<ExitStatus>,
) -> String {
    let time_max = duration_text(section.time_max.value);
    let first = || section.first_time_max.as_ref().map_or(time_max.clone(), |first| duration_text(first.value));
    match (late, status) {
        (Some(Overdue::Code), _) if is_first => format!("its first call took longer than {}", first()),
        (Some(Overdue::Code), _) => format!("it took longer than {time_max}"),
        (Some(Overdue::Output), _) => format!("its output did not reach the disk for {time_max}; it was killed"),
        (None, Ok(status)) => ended(*status),
        (None, Err(e)) => format!("it is lost: {e}"),
    }
}

/// The hint for a slot that ended before it answered anything. `late`: why it was killed; `code`: its exit status.
fn end_hint(late: Option<Overdue>, code: Option<i32>) -> &'static str {
    match (late, code) {
        (Some(Overdue::Code), _) => "raise `time_max`, or `first_time_max` if its first call alone takes so long",
        (Some(Overdue::Output), _) => {
            "remove code that closes descriptors (`os.closerange`) or limits files (`RLIMIT_FSIZE`)"
        }
        (None, Some(1)) => "see its output above; without a module `beamport`, name an interpreter with `python`",
        (None, Some(_)) => "see its output above; fix the code",
        (None, None) => "check `dmesg`: the kernel may have killed it for memory",
    }
}

/// Where a program does not start: which it is.
fn interpreted(section: &WorkerSection) -> String {
    match section.is_python() {
        false => String::new(),
        true => crate::code::interpreted(&interpreter(section)),
    }
}

/// The declaration of a worker's code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Of interest to the runner.
    pub traits: CodeTraits,
    /// Its output follows from the message and the parameters alone.
    pub is_pure: bool,
    /// Why it needs one slot and one input, if it does.
    pub alone: Option<String>,
}

/// The fault of user code that needs one slot or one input, and has more.
fn misplaced(section: &WorkerSection, slots: u32, declared: &Declared) -> Option<Fault> {
    let why = declared.alone.as_ref()?;
    let hint = match (slots, section.inputs.len(), &section.hosts) {
        (_, _, Some(_)) => "write `host` instead of `hosts`, and `slots = 1`",
        (2.., _, _) => "write `slots = 1`, or remove `slots`",
        (_, 2.., _) => "merge the streams first: `[merge.NAME]`",
        _ => return None,
    };
    Some(Fault::new(format!("worker `{}` needs one slot and one input", section.name), why).hint(hint))
}

/// Asks a section's code what it declares, which says also whether it can be loaded and takes the parameters: when it is
/// made, and for `changes` also while it runs. `ends` is looked at meanwhile.
pub(super) fn declared(
    data: &Path,
    section: &WorkerSection,
    changes: bool,
    ends: &dyn Fn() -> bool,
) -> Result<Declared, Fault> {
    if section.is_native() {
        // One that keeps something between messages says so by being alone.
        let plan = section.ready_made().and_then(|kind| kind.plan(&section.parameters.0).ok());
        let traits = CodeTraits { batch: 1, ..CodeTraits::default() };
        let is_pure = plan.is_some_and(|plan| plan.needs().alone.is_none());
        return Ok(Declared { traits, is_pure, alone: None });
    }
    declared_of(section, &load((data, section), changes, (limits::CODE_LOAD, ends))?)
}

/// The declaration of Python code, from its answer.
fn declared_of(section: &WorkerSection, said: &Value) -> Result<Declared, Fault> {
    let flag = |name: &str| said[name].as_bool();
    let traits = || {
        let (follows_runs, saves_state) = (flag("follows_runs")?, flag("saves_state")?);
        Some(CodeTraits { batch: said["batch"].as_u64()?, follows_runs, saves_state, takes_members: flag("members")? })
    };
    match (traits(), flag("pure")) {
        (Some(traits), Some(is_pure)) => {
            Ok(Declared { traits, is_pure, alone: said["alone"].as_str().map(str::to_owned) })
        }
        _ => Err(Fault::new(cannot_load(section), "its interpreter has another version of beamport")
            .hint("install both from the same source: `pip install .`")),
    }
}

/// Loads the Python code of a section in a process of its own, as a slot does, with its parameters: says what is wrong.
/// The fault is [`Passes::Soon`] where loading takes longer than `patience`.
pub fn check_code(section: &WorkerSection, patience: Duration) -> Result<(), Fault> {
    match section.is_python() {
        true => {
            let said = load((Path::new(""), section), false, (patience, &|| false))?;
            if section.is_native() {
                return Ok(());
            }
            let slots = u32::try_from(section.slots.value).unwrap_or(1);
            misplaced(section, slots, &declared_of(section, &said)?).map_or(Ok(()), Err)
        }
        false => Ok(()),
    }
}

fn cannot_load(section: &WorkerSection) -> String {
    format!("cannot load `{}`", section.python_call())
}

/// Loads Python code; the answer is what it declares.
fn load(
    (data, section): (&Path, &WorkerSection),
    changes: bool,
    (patience, ends): (Duration, &dyn Fn() -> bool),
) -> Result<Value, Fault> {
    // The code of a ready-made worker finds groups, and has parameters of its own.
    let is_finder = section.is_native();
    let parameters = &section.parameters.0;
    let parameters =
        if is_finder { parameters.get("arguments").cloned().unwrap_or(json!({})) } else { parameters.clone() };
    let (whose, call) = (format!("worker `{}`", section.name), section.python_call());
    let code = code_of(section, data, &call, parameters);
    let job = LoadJob { parent: std::process::id(), code, finds: is_finder, changes };
    let (python, module) = (&*interpreter(section), SLOT_MODULE);
    let environment = &section.environment.0;
    Loading { whose: &whose, call: &call, python, module, environment, patience, ends }.load(&job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::edges::TemplateAnswer;
    use crate::file::parse;
    use flow::Passes;
    use std::os::unix::fs::PermissionsExt as _;

    /// Checks the code of a worker whose interpreter is this script.
    fn checked(name: &str, script: &str) -> Result<(), Fault> {
        let folder = std::env::temp_dir().join(format!("beamport-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("mine.py"), "").unwrap();
        let python = folder.join("python");
        std::fs::write(&python, script).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = "instrument = \"x\"\n[source.c]\nkind = \"sim\"\nmodel = \"camera\"\n\
                    [worker.w]\ncall = \"mine.py:one\"\ninputs = [\"c\"]\npython = \"./python\"\n";
        let (file, registry) = (folder.join("a.toml"), Registry::builtin());
        let instrument = parse(text, &file, &registry, &|_, _| TemplateAnswer::default()).unwrap();
        let answer = check_code(instrument.workers().next().unwrap(), Duration::from_millis(200));
        std::fs::remove_dir_all(&folder).unwrap();
        answer
    }

    #[test]
    fn code_that_is_never_loaded_is_waited_for_no_longer_than_asked() {
        let fault = checked("hangs", "#!/bin/sh\nexec sleep 1000\n").unwrap_err();
        assert_eq!(fault.passes, Passes::Soon);
        assert!(fault.cause.contains("200 ms"), "{fault}");
    }

    #[test]
    fn an_interpreter_without_the_package_has_a_hint_of_its_own() {
        let fault = checked("bare", "#!/bin/sh\nexit 1\n").unwrap_err();
        assert!(fault.cause.ends_with("/python has no module `beamport`"), "{fault}");
        assert!(fault.hint.contains("`python`"), "{fault}");
        let fault = checked("dies", "#!/bin/sh\n[ \"$1\" = -c ] && exit 0\nexit 3\n").unwrap_err();
        assert!(fault.cause.contains("status 3") && fault.hint.contains("fix the code"), "{fault}");
    }
}
