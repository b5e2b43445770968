//! `[worker.NAME]`: code on each message of some streams, in slots, of the user or ready-made; what it makes is the
//! stream NAME.

use super::keys;
use super::stream::{self, StreamSection};
use super::{MergeSection, nearest};
use crate::code::{Copied, Parameters, check_call, find_files, named_python};
use crate::edges::Registry;
use crate::limits;
use flow::edge::{Needs, Sends, WorkerKind};
use flow::{Fault, Share};
use serde_json::Value as Json;
use settings::units::{Refused, Size, shortened};
use settings::{Section, Setting, Shown, Take, Word, noun};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use toml_edit::{Item, Value};

/// One worker and the stream it fills.
#[derive(Clone, Debug)]
pub struct WorkerSection {
    /// Name of the section and of its stream; of a part on one of several hosts, of that part.
    pub name: String,
    /// Name of the section, by which its messages name their source.
    pub maker: String,
    /// Line of its header.
    pub line: u32,
    /// `FILE.py:NAME`, `PACKAGE.MODULE:NAME`, or the name of a ready-made worker.
    pub call: Setting<String>,
    /// The ready-made workers of this program: a cut-over may change to any of them.
    pub known: Vec<&'static WorkerKind>,
    /// Where a FILE is: the folder of the instrument file.
    pub folder: PathBuf,
    /// The streams whose messages it is given.
    pub inputs: Setting<Vec<String>>,
    /// The hosts that share its work, where there are several.
    pub hosts: Option<Setting<HostSlots>>,
    /// Its input has blocks of another host: see [`flow::WorkOptions::by_blocks`].
    pub by_blocks: bool,
    /// How many slots.
    pub slots: Setting<u64>,
    /// The slots that get a block.
    pub share: Setting<Share>,
    /// Slots that see the same block.
    pub set: Setting<u64>,
    /// Messages of one turn; 0 = as they come.
    pub turn: Setting<u64>,
    /// In which order the output is.
    pub order: Setting<Order>,
    /// Longest time on a message.
    pub time_max: Setting<Duration>,
    /// Longest time on the first message of a process; `None`: the same.
    pub first_time_max: Option<Setting<Duration>>,
    /// Parameters of the code.
    pub parameters: Setting<Parameters>,
    /// The interpreter; `None`: the one beside `beamport`, else `python3`.
    pub python: Option<Setting<PathBuf>>,
    /// Processors that slots are bound to, one each; none: any.
    pub cpus: Setting<Numbers>,
    /// Graphics processors that slots see, one each; none: all.
    pub gpus: Setting<Numbers>,
    /// Variables of the environment of its slots.
    pub environment: Setting<Environment>,
    /// Shared memory of each slot's stream.
    pub slot_live: Setting<Size>,
    /// The copy of its code that its slots load, once it runs.
    pub copied: Option<Copied>,
    /// Streams that a ready-made worker looks at beside its inputs.
    pub side_inputs: Vec<String>,
    /// See [`flow::edge::Needs::around`].
    pub around: i64,
    /// The worker beside which it runs.
    pub shadow: Option<Setting<String>>,
    /// The stream it fills.
    pub output: StreamSection,
    pub(super) shown: Vec<Shown>,
}

/// Which code a worker runs: what a cut-over changes, beside parameters and the number of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `FILE.py:NAME`, `PACKAGE.MODULE:NAME`, or the name of a ready-made one.
    pub call: String,
    /// Where a FILE is.
    pub folder: PathBuf,
    /// The interpreter, where one is named.
    pub python: Option<PathBuf>,
    /// The copy of its files that slots load; none of what is installed, of what is ready-made, or before it runs.
    pub copied: Option<Copied>,
}

impl Code {
    /// As it stands in commits.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let python = self.python.as_ref().map(|python| python.to_string_lossy());
        let mut json =
            serde_json::json!({"call": self.call, "folder": self.folder.to_string_lossy(), "python": python});
        if let Some(Copied { hash, root }) = &self.copied {
            (json["hash"], json["root"]) = (hash.as_str().into(), root.to_string_lossy().into());
        }
        json
    }

    /// From there.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let said: Json = serde_json::from_str(text).ok()?;
        Some(Self {
            call: said["call"].as_str()?.to_owned(),
            folder: said["folder"].as_str()?.into(),
            python: said["python"].as_str().map(PathBuf::from),
            copied: said["hash"]
                .as_str()
                .zip(said["root"].as_str())
                .map(|(hash, root)| Copied { hash: hash.to_owned(), root: root.into() }),
        })
    }
}

impl WorkerSection {
    /// Its code.
    #[must_use]
    pub fn code(&self) -> Code {
        let python = self.python.as_ref().map(|python| python.value.clone());
        Code { call: self.call.value.clone(), folder: self.folder.clone(), python, copied: self.copied.clone() }
    }

    /// Which function of which module its slots load, where they are processes of Python.
    #[must_use]
    pub fn python_call(&self) -> String {
        self.needs().code.unwrap_or_else(|| self.call.value.clone())
    }

    /// Takes the code of another.
    pub fn take_code(&mut self, code: &Code) {
        (self.call.value, self.folder) = (code.call.clone(), code.folder.clone());
        self.python = code.python.clone().map(Setting::by_default);
        self.copied = code.copied.clone();
    }

    /// Why its code, where it is ready-made, needs one slot and one input; none where it does not.
    #[must_use]
    pub fn alone(&self, parameters: &Json) -> Option<&'static str> {
        self.ready_made()?.plan(parameters).ok()?.needs().alone
    }

    /// Its code, where that is ready-made.
    #[must_use]
    pub fn ready_made(&self) -> Option<&'static WorkerKind> {
        kind_of(&self.known, &self.call)
    }

    /// True if its code is ready-made.
    #[must_use]
    pub fn is_native(&self) -> bool {
        !self.call.contains(':')
    }

    /// The worker that copies the view of a merge into the stream that the merge is to fill.
    pub(super) fn copying(name: String, merge: &MergeSection, output: StreamSection) -> Self {
        Self {
            maker: name.clone(),
            name,
            line: merge.line,
            known: vec![&workers::COPY],
            call: Setting::by_default(workers::COPY.name.to_owned()),
            folder: PathBuf::new(),
            hosts: None,
            by_blocks: false,
            inputs: Setting::by_default(vec![merge.name.clone()]),
            slots: Setting::by_default(1),
            share: Setting::by_default(Share::Balance),
            set: Setting::by_default(1),
            turn: Setting::default(),
            order: Setting::default(),
            time_max: Setting::by_default(limits::COPY_TIME_MAX),
            first_time_max: None,
            parameters: Setting::default(),
            python: None,
            cpus: Setting::default(),
            gpus: Setting::default(),
            environment: Setting::default(),
            // Here the bytes are; the output points to them.
            slot_live: output.live.clone(),
            copied: None,
            side_inputs: Vec::new(),
            around: 0,
            shadow: None,
            output,
            shown: Vec::new(),
        }
    }

    /// The needs of its code, if that is ready-made.
    fn needs(&self) -> Needs {
        let plan = self.ready_made().and_then(|kind| kind.plan(&self.parameters.0).ok());
        plan.map(|plan| plan.needs()).unwrap_or_default()
    }

    /// The content of its messages, if its code is ready-made and that is known.
    pub(super) fn sends(&self) -> Option<Sends> {
        self.ready_made()?.plan(&self.parameters.0).ok()?.sends(&self.name)
    }

    /// True if no message may be left out of what its code keeps.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.needs().whole
    }

    /// True if its slots are processes of Python.
    #[must_use]
    pub fn is_python(&self) -> bool {
        !self.is_native() || self.needs().code.is_some()
    }

    /// Whether a worker that runs can have these parameters, and so many slots.
    pub fn check_change(&self, parameters: &Json, slots: u32) -> Result<(), Fault> {
        let Some(kind) = self.ready_made() else { return Ok(()) };
        let what = || format!("cannot configure worker `{}`", self.name);
        let needs = kind.plan(parameters).map_err(|mistakes| flow::misfit(what(), mistakes))?.needs();
        if let Some(why) = needs.alone.filter(|_| slots > 1) {
            return Err(Fault::new(what(), why).hint("keep one slot"));
        }
        let strange = needs.streams.iter().find(|stream| !self.side_inputs.contains(stream));
        if let Some(stream) = strange {
            return Err(Fault::new(what(), format!("it does not read stream `{stream}` yet"))
                .hint("change the instrument file, and restart `beamport up`"));
        }
        if needs.code.is_some() != self.needs().code.is_some() {
            let cause = "your own finder needs slots of another kind";
            return Err(Fault::new(what(), cause).hint("change the instrument file, and restart `beamport up`"));
        }
        if needs.bytes > self.slot_live.0 {
            let cause = format!("it needs {} B of each slot's stream", needs.bytes);
            return Err(Fault::new(what(), cause).hint("raise `slot_live` in the instrument file"));
        }
        Ok(())
    }
}

/// The words of [`keys::SHARE`].
pub(super) static SHARES: [(&str, Share); 4] =
    [("balance", Share::Balance), ("round-robin", Share::RoundRobin), ("all", Share::All), ("key", Share::Key)];

/// In which order the output is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Of the input.
    #[default]
    Keep,
    /// As it comes.
    Any,
}

impl Word for Order {
    const ALL: &'static [(&'static str, Self)] = &[("keep", Self::Keep), ("any", Self::Any)];
}

/// Slots on each of some hosts, by name of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSlots(pub Vec<(String, u64)>);

impl WorkerSection {
    /// Partitions of the topics of a worker on several hosts: one for each slot, up to a bound; 0 on one host.
    #[must_use]
    pub fn partitions(&self) -> u64 {
        self.hosts.as_ref().map_or(0, |hosts| hosts.total()).min(limits::SHARED_PARTS_MAX)
    }
}

impl HostSlots {
    /// The slots on all of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, slots)| slots).sum()
    }
}

impl Take for HostSlots {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint = "write the hosts with their slots, like `{ n1 = 8, \"n{2..9}\" = 16 }`";
        let mut all = Vec::new();
        if let Some(Value::Array(_)) = item.as_value() {
            let names = Vec::<String>::take(item)?;
            return match names.is_empty() {
                true => Err(Refused::new("it names no host", hint)),
                false => Ok(Self(names.into_iter().map(|name| (name, 1)).collect())),
            };
        }
        if let Some(host) = item.as_str() {
            let host = shortened(host);
            let hint = format!("write `[\"{host}\"]`, or the number of slots: `{{ \"{host}\" = 8 }}`");
            return Err(Refused::new(format!("expected a table or a list, found {}", noun(item)), hint));
        }
        let Some(table) = item.as_table_like() else {
            return Err(Refused::new(format!("expected a table or a list, found {}", noun(item)), hint));
        };
        for (name, slots) in table.iter() {
            let slots = slots.as_integer().and_then(|n| u64::try_from(n).ok());
            let slots = slots.filter(|n| (1..=u64::from(flow::SLOTS_MAX)).contains(n));
            let Some(slots) = slots else {
                let cause = format!("host `{}` has no number of slots", shortened(name));
                return Err(Refused::new(cause, format!("write 1 to {}", flow::SLOTS_MAX)));
            };
            for name in super::family::names(name)? {
                if all.iter().any(|(known, _)| *known == name) {
                    return Err(Refused::new(format!("host `{}` is given twice", shortened(&name)), hint));
                }
                all.push((name, slots));
            }
        }
        if all.is_empty() { Err(Refused::new("it names no host", hint)) } else { Ok(Self(all)) }
    }
    fn default_of(_: &str) -> Option<Self> {
        None
    }
    fn show(&self) -> Json {
        self.0.iter().map(|(name, slots)| (name.clone(), Json::from(*slots))).collect::<serde_json::Map<_, _>>().into()
    }
}

/// Numbers of processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<u64>);

impl Take for Numbers {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint = "write a list, like `[0, 1]`";
        let list =
            item.as_array().ok_or_else(|| Refused::new(format!("expected a list, found {}", noun(item)), hint))?;
        let number = |value: &toml_edit::Value| value.as_integer().and_then(|n| u64::try_from(n).ok());
        let all: Option<Vec<u64>> = list.iter().map(number).collect();
        all.map(Self).ok_or_else(|| Refused::new("not every entry is a CPU number", hint))
    }
    fn default_of(text: &str) -> Option<Self> {
        (text == "[]").then(Self::default)
    }
    fn show(&self) -> Json {
        self.0.as_slice().into()
    }
}

/// Variables of an environment, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(pub BTreeMap<String, String>);

impl Take for Environment {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint = "write names with texts, like `{ OMP_NUM_THREADS = \"1\" }`";
        let Some(table) = item.as_table_like() else {
            return Err(Refused::new(format!("expected a table, found {}", noun(item)), hint));
        };
        let mut all = BTreeMap::new();
        for (name, value) in table.iter() {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Refused::new(format!("`{}` cannot be the name of a variable", shortened(name)), hint));
            }
            let Some(text) = value.as_str().filter(|text| !text.contains('\0')) else {
                return Err(Refused::new(format!("`{}` is {}, not a text", shortened(name), noun(value)), hint));
            };
            all.insert(name.to_owned(), text.to_owned());
        }
        Ok(Self(all))
    }
    fn default_of(text: &str) -> Option<Self> {
        (text == "{}").then(Self::default)
    }
    fn show(&self) -> Json {
        self.0
            .iter()
            .map(|(name, text)| (name.clone(), Json::from(text.as_str())))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// The ready-made worker of a name.
fn kind_of(known: &[&'static WorkerKind], call: &str) -> Option<&'static WorkerKind> {
    known.iter().copied().find(|kind| kind.name == call)
}

/// Reads what the worker runs.
fn call(section: &mut Section<'_>, known: &[&'static WorkerKind]) -> Setting<String> {
    let Some(call) = section.get::<String>(&keys::CALL) else { return Setting::default() };
    if kind_of(known, &call).is_some() {
        return call;
    }
    let result = match call.contains(':') {
        true => check_call(&call, section.folder),
        false => {
            let names = || known.iter().map(|kind| kind.name);
            let hint = match nearest(&call, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let names = names().collect::<Vec<_>>().join(", ");
                    format!("write `call = \"mine.py:function\"`, or one of {names}")
                }
            };
            Err(Refused::new("it is neither a ready-made worker nor a function", hint))
        }
    };
    if let Err(refused) = result {
        section.refuse(&keys::CALL, refused);
    }
    call
}

/// Reads the number of slots, and how many of them see the same.
fn slots(section: &mut Section<'_>, is_shadow: bool) -> (Setting<u64>, Setting<u64>) {
    let slots: Setting<u64> = section.need(&keys::SLOTS);
    let is_written = slots.origin != super::Origin::Default;
    if !(1..=u64::from(flow::SLOTS_MAX)).contains(&slots.value) && is_written {
        let cause = format!("{} slots", slots.value);
        section.refuse(&keys::SLOTS, Refused::new(cause, format!("write 1 to {}", flow::SLOTS_MAX)));
    }
    let set: Setting<u64> = section.need(&keys::SET);
    // Of a shadow that gives no number of slots it is known later.
    let divides = is_shadow && !is_written || set.value != 0 && slots.value.is_multiple_of(set.value);
    if (set.value == 0 || !divides) && set.origin != super::Origin::Default {
        let cause = format!("{} slots cannot get the same messages: `slots` is {}", set.value, slots.value);
        section.refuse(&keys::SET, Refused::new(cause, "write 1, or a number that divides `slots`"));
    }
    (slots, set)
}

/// Reads the inputs; a shadow uses those of the worker that it runs beside.
fn inputs(section: &mut Section<'_>, shadow: Option<&Setting<String>>) -> Setting<Vec<String>> {
    let Some(old) = shadow else { return section.get(&keys::WORKER_INPUTS).unwrap_or_default() };
    if section.has(&keys::WORKER_INPUTS) {
        let (line, hint) = (section.line_of(keys::WORKER_INPUTS.name), "remove `inputs`, or `shadow`");
        let what = format!("{} has its own inputs", section.title);
        section.mistake(line, what, format!("a shadow uses those of `{}`", shortened(old)), hint);
    }
    Setting::default()
}

/// Reads the parameters, and those of a ready-made worker as its kind does: what it needs, where there is no mistake.
fn parameters(section: &mut Section<'_>, kind: Option<&'static WorkerKind>) -> (Setting<Parameters>, Option<Needs>) {
    let Some(mut parameters) = section.get::<Parameters>(&keys::PARAMETERS) else { return Default::default() };
    let Some(kind) = kind else {
        for refused in find_files(section.folder, &mut parameters.value.0) {
            section.refuse(&keys::PARAMETERS, refused);
        }
        return (parameters, None);
    };
    let before = section.mistakes.list.len();
    let (plan, shown) = section.table(keys::PARAMETERS.name, |own| ((kind.read)(own), own.end()));
    // Each parameter by itself, with its default.
    section.shown.retain(|shown| shown.key != keys::PARAMETERS.name);
    section.shown.extend(shown.into_iter().map(|shown| {
        let key = format!("{}.{}", keys::PARAMETERS.name, shown.key).into();
        Shown { key, ..shown }
    }));
    let is_right = section.mistakes.list.len() == before;
    (parameters, plan.filter(|_| is_right).map(|plan| plan.needs()))
}

impl WorkerSection {
    /// Notes where the section does not give what a ready-made worker needs.
    fn check_needs(&self, section: &mut Section<'_>, needs: &Needs) {
        if let Some(Err(refused)) = needs.code.as_ref().map(|code| check_call(code, section.folder)) {
            section.refuse(&keys::PARAMETERS, refused);
        }
        if let (true, Some(shadow)) = (needs.holds_back, &self.shadow) {
            let (line, hint) = (shadow.line_or(section.line), "remove `shadow`, and write `inputs`");
            let what = format!("{} cannot run as a shadow", section.title);
            section.mistake(line, what, "it holds messages that it still needs, so sources would wait for it", hint);
        }
        if let Some(why) = needs.alone {
            if self.slots.value > 1 {
                section.refuse(&keys::SLOTS, Refused::new(why, "write `slots = 1`, or remove it"));
            }
            if self.inputs.len() > 1 {
                section.refuse(&keys::WORKER_INPUTS, Refused::new(why, "merge the streams first: `[merge.NAME]`"));
            }
        }
        if needs.bytes > self.slot_live.0 {
            let cause = format!("its output needs {} B", needs.bytes);
            let hint = format!("write `slot_live = \"{} MiB\"`", needs.bytes.div_ceil(1 << 20));
            section.refuse(&keys::SLOT_LIVE, Refused::new(cause, hint));
        }
    }
}

/// Reads one section; what is wrong in it is noted.
pub(super) fn read(
    name: &str,
    section: &mut Section<'_>,
    registry: &Registry,
    hosts: Option<Setting<HostSlots>>,
) -> WorkerSection {
    if name.len() > limits::MERGE_NAME_CHARS_MAX {
        let line = section.line;
        section.mistake(
            line,
            format!("the name of {} is too long", section.title),
            format!("its slots need it as a reader name of at most {} characters", limits::MERGE_NAME_CHARS_MAX),
            "write a shorter name",
        );
    }
    let known = registry.workers().to_vec();
    let call = call(section, &known);
    let shadow: Option<Setting<String>> = section.get(&keys::SHADOW);
    let (slots, set) = slots(section, shadow.is_some());
    if hosts.is_some() && slots.origin == super::Origin::Default {
        // Those of each host stand in its place.
        section.shown.retain(|shown| shown.key != keys::SLOTS.name);
    }
    let inputs = inputs(section, shadow.as_ref());
    let share = section.word(&keys::SHARE, &SHARES).unwrap_or(Setting::by_default(Share::Balance));
    let (turn, order) = (section.need(&keys::TURN), section.need(&keys::ORDER));
    let time_max = section.need(&keys::TIME_MAX);
    let first_time_max = section.get(&keys::FIRST_TIME_MAX);
    let (parameters, needs) = parameters(section, kind_of(&known, &call));
    let python: Option<Setting<String>> = section.get(&keys::PYTHON);
    let folder = section.folder;
    let mut worker = WorkerSection {
        name: name.to_owned(),
        maker: name.to_owned(),
        line: section.line,
        call,
        known,
        folder: folder.to_owned(),
        inputs,
        hosts,
        by_blocks: false,
        slots,
        share,
        set,
        turn,
        order,
        time_max,
        first_time_max,
        parameters,
        python: python.map(|p| p.map(|text| named_python(&text, folder))),
        cpus: section.need(&keys::CPUS),
        gpus: section.need(&keys::GPUS),
        environment: section.need(&keys::ENVIRONMENT),
        slot_live: section.need(&keys::SLOT_LIVE),
        copied: None,
        side_inputs: needs.as_ref().map_or_else(Vec::new, |needs| needs.streams.clone()),
        around: needs.as_ref().map_or(0, |needs| needs.around),
        shadow,
        output: stream::read(section, &stream::STAGE, 0),
        shown: Vec::new(),
    };
    if let Some(needs) = needs {
        worker.check_needs(section, &needs);
    }
    worker.shown = section.end();
    worker
}
