//! `[worker.NAME]`: code on each message of some streams, in slots, of the user or ready-made; what it makes is the stream
//! NAME.

use super::keys;
use super::output::{self, OutputSection};
use super::{MergeSection, nearest};
use crate::limits;
use flow::Fault;
use serde_json::Value as Json;
use settings::units::{Refused, Size, shortened};
use settings::{Section, Setting, Shown, Take, Word, noun};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::Item;

/// One worker and the stream it fills.
#[derive(Clone, Debug)]
pub struct WorkerSection {
    /// Name of the section and of its stream.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// `FILE.py:NAME`, or `PACKAGE.MODULE:NAME`.
    pub call: Setting<String>,
    /// Where a FILE is: the folder of the instrument file.
    pub folder: PathBuf,
    /// The streams whose messages it is given.
    pub inputs: Setting<Vec<String>>,
    /// How many slots.
    pub slots: Setting<u64>,
    /// Who gets a block.
    pub share: Setting<Share>,
    /// Slots that see the same block.
    pub set: Setting<u64>,
    /// Messages of one turn; 0 = as they come.
    pub turn: Setting<u64>,
    /// In which order the output is.
    pub order: Setting<Order>,
    /// Longest time on a message.
    pub time_max: Setting<Duration>,
    /// What the code is told.
    pub parameters: Setting<Parameters>,
    /// The interpreter; `None`: the one beside `beamport`, else `python3`.
    pub python: Option<Setting<PathBuf>>,
    /// Processors that slots are bound to, one each; none: any.
    pub cpus: Setting<Numbers>,
    /// Graphics processors that slots see, one each; none: all.
    pub gpus: Setting<Numbers>,
    /// Shared memory of each slot's stream.
    pub slot_live: Setting<Size>,
    /// The copy of its code that its slots load, once it runs.
    pub copied: Option<Copied>,
    /// Streams that a ready-made worker looks at beside its inputs.
    pub besides: Vec<String>,
    /// The worker beside which it runs.
    pub shadow: Option<Setting<String>>,
    /// The stream it fills.
    pub output: OutputSection,
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

/// Files of Python code as they were when the worker started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// SHA-256 of what `sha256sum` says of them, in hexadecimal digits: the name of the folder with the copy.
    pub hash: String,
    /// The folder in which they were.
    pub root: PathBuf,
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
        self.needs().code.map_or_else(|| self.call.value.clone(), |(find, _)| find)
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
        workers::check_native(&self.call, parameters).ok().filter(|_| self.is_native()).and_then(|needs| needs.alone)
    }

    /// True if its code is ready-made.
    #[must_use]
    pub fn is_native(&self) -> bool {
        !self.call.contains(':')
    }

    /// The worker that copies the view of a merge into the stream that the merge is to fill.
    pub(super) fn copying(name: String, merge: &MergeSection, output: OutputSection) -> Self {
        Self {
            name,
            line: merge.line,
            call: Setting::by_default("copy".to_owned()),
            folder: PathBuf::new(),
            inputs: Setting::by_default(vec![merge.name.clone()]),
            slots: Setting::by_default(1),
            share: Setting::default(),
            set: Setting::by_default(1),
            turn: Setting::default(),
            order: Setting::default(),
            time_max: Setting::by_default(limits::COPY_TIME_MAX),
            parameters: Setting::default(),
            python: None,
            cpus: Setting::default(),
            gpus: Setting::default(),
            // Here the bytes are; the output points to them.
            slot_live: output.live.clone(),
            copied: None,
            besides: Vec::new(),
            shadow: None,
            output,
            shown: Vec::new(),
        }
    }

    /// What its code asks for, if that is ready-made.
    fn needs(&self) -> workers::Needs {
        let needs = self.is_native().then(|| workers::check_native(&self.call, &self.parameters.0).ok());
        needs.flatten().unwrap_or_default()
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
        if !self.is_native() {
            return Ok(());
        }
        let what = || format!("worker `{}` cannot be configured", self.name);
        let needs = workers::check_native(&self.call, parameters).map_err(|mistakes| {
            let first = mistakes.into_iter().next();
            first.map_or_else(
                || Fault::new(what(), ""),
                |misfit| Fault::new(what(), format!("`{}`: {}", misfit.key, misfit.cause)).hint(misfit.hint),
            )
        })?;
        if let Some(why) = needs.alone.filter(|_| slots > 1) {
            return Err(Fault::new(what(), why).hint("leave it one slot"));
        }
        let strange = needs.streams.iter().map(|(_, stream)| stream).find(|stream| !self.besides.contains(stream));
        if let Some(stream) = strange {
            return Err(Fault::new(what(), format!("it does not look at stream `{stream}` yet"))
                .hint("change the instrument file, and start it again"));
        }
        if needs.code.is_some() != self.needs().code.is_some() {
            let cause = "a finder of your own runs in slots of another kind";
            return Err(Fault::new(what(), cause).hint("change the instrument file, and start it again"));
        }
        if needs.bytes > self.slot_live.0 {
            let cause = format!("it needs {} B of each slot's stream", needs.bytes);
            return Err(Fault::new(what(), cause).hint("raise `slot_live` in the instrument file"));
        }
        Ok(())
    }
}

/// Who gets a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// The slot that has least to do.
    #[default]
    Balance,
    /// Each in turn.
    RoundRobin,
    /// All of them.
    All,
    /// Each the messages of its origins.
    Key,
}

impl Word for Share {
    const ALL: &'static [(&'static str, Self)] =
        &[("balance", Self::Balance), ("round-robin", Self::RoundRobin), ("all", Self::All), ("key", Self::Key)];
}

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

/// A JSON object.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters(pub Json);

impl Default for Parameters {
    fn default() -> Self {
        Self(Json::Object(serde_json::Map::new()))
    }
}

fn json_of(item: &Item) -> Option<Json> {
    if let Some(table) = item.as_table_like() {
        let rows = table.iter().map(|(name, item)| json_of(item).map(|value| (name.to_owned(), value)));
        return rows.collect::<Option<serde_json::Map<_, _>>>().map(Json::Object);
    }
    if let Some(array) = item.as_array() {
        let all = array.iter().map(|value| json_of(&Item::Value(value.clone())));
        return all.collect::<Option<Vec<_>>>().map(Json::Array);
    }
    let number = || item.as_float().and_then(serde_json::Number::from_f64).map(Json::Number);
    let text = item.as_str().map(Json::from);
    text.or_else(|| item.as_bool().map(Json::from)).or_else(|| item.as_integer().map(Json::from)).or_else(number)
}

impl Take for Parameters {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint = "write `[worker.NAME.parameters]`, and below it lines like `threshold = 3`";
        if item.as_table_like().is_none() {
            return Err(Refused::new(format!("it is {}, not a table", noun(item)), hint));
        }
        json_of(item).map(Self).ok_or_else(|| Refused::new("a value is no number, text, list or table", hint))
    }
    fn default_of(text: &str) -> Option<Self> {
        (text == "{}").then(Self::default)
    }
    fn show(&self) -> Json {
        self.0.clone()
    }
}

/// Numbers of processors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub Vec<u64>);

impl Take for Numbers {
    fn take(item: &Item) -> Result<Self, Refused> {
        let hint = "write a list, like `[0, 1]`";
        let list = item.as_array().ok_or_else(|| Refused::new(format!("it is {}, not a list", noun(item)), hint))?;
        let number = |value: &toml_edit::Value| value.as_integer().and_then(|n| u64::try_from(n).ok());
        let all: Option<Vec<u64>> = list.iter().map(number).collect();
        all.map(Self).ok_or_else(|| Refused::new("not every entry is a number of a processor", hint))
    }
    fn default_of(text: &str) -> Option<Self> {
        (text == "[]").then(Self::default)
    }
    fn show(&self) -> Json {
        self.0.as_slice().into()
    }
}

/// Reads one section; what is wrong in it is noted.
pub(super) fn read(name: &str, section: &mut Section<'_>, folder: &Path) -> WorkerSection {
    if name.len() > limits::MERGE_NAME_CHARS_MAX {
        let line = section.line;
        section.mistake(
            line,
            format!("the name of {} is too long", section.title),
            format!("its slots read under it, and have room for {} characters", limits::MERGE_NAME_CHARS_MAX),
            "write a shorter name",
        );
    }
    let call: Setting<String> = section.get(&keys::CALL).unwrap_or_default();
    let is_written = call.origin != super::Origin::Default;
    match call.rsplit_once(':') {
        Some((file, name)) if !name.is_empty() && file.ends_with(".py") && !folder.join(file).is_file() => {
            let cause = format!("there is no file {}", folder.join(file).display());
            section.refuse(&keys::CALL, Refused::new(cause, "name a file beside the instrument file"));
        }
        Some((file, name)) if !file.is_empty() && !name.is_empty() => {}
        None if workers::NATIVE.contains(&call.as_str()) => {}
        _ if is_written => {
            let cause = "it is no ready-made worker, and does not say which function of which file";
            let hint = match nearest(&call, workers::NATIVE) {
                Some(near) => format!("write `{near}`"),
                None => format!("write `call = \"mine.py:function\"`, or one of {}", workers::NATIVE.join(", ")),
            };
            section.refuse(&keys::CALL, Refused::new(cause, hint));
        }
        _ => {}
    }
    let shadow: Option<Setting<String>> = section.get(&keys::SHADOW);
    let slots: Setting<u64> = section.need(&keys::SLOTS);
    if !(1..=u64::from(flow::SLOTS_MAX)).contains(&slots.value) && slots.origin != super::Origin::Default {
        let cause = format!("{} slots", slots.value);
        section.refuse(&keys::SLOTS, Refused::new(cause, format!("write 1 to {}", flow::SLOTS_MAX)));
    }
    let set: Setting<u64> = section.need(&keys::SET);
    // Of a shadow that says nothing of slots it is known later.
    let has_slots = shadow.is_none() || slots.origin != super::Origin::Default;
    let divides = set.value != 0 && slots.value.is_multiple_of(set.value);
    if (set.value == 0 || has_slots && !divides) && set.origin != super::Origin::Default {
        let cause = format!("{} slots cannot see the same of {}", set.value, slots.value);
        section.refuse(&keys::SET, Refused::new(cause, "write 1, or a number that divides `slots`"));
    }
    let inputs: Option<Setting<Vec<String>>> = match &shadow {
        None => section.get(&keys::WORKER_INPUTS),
        Some(old) => {
            if section.has(&keys::WORKER_INPUTS) {
                let (line, hint) = (section.line_of(keys::WORKER_INPUTS.name), "remove `inputs`, or `shadow`");
                let what = format!("{} has inputs of its own", section.title);
                section.mistake(line, what, format!("a shadow has those of `{}`", shortened(old)), hint);
            }
            None
        }
    };
    let inputs = inputs.unwrap_or_default();
    let (share, turn, order) = (section.need(&keys::SHARE), section.need(&keys::TURN), section.need(&keys::ORDER));
    let time_max = section.need(&keys::TIME_MAX);
    let parameters: Setting<Parameters> = section.need(&keys::PARAMETERS);
    let python: Option<Setting<String>> = section.get(&keys::PYTHON);
    let (cpus, gpus, slot_live) =
        (section.need(&keys::CPUS), section.need(&keys::GPUS), section.need::<Size>(&keys::SLOT_LIVE));
    let output = output::read(section);
    let mut besides = Vec::new();
    if workers::NATIVE.contains(&call.as_str()) {
        match workers::check_native(&call, &parameters.0) {
            Err(misfits) => misfits.into_iter().for_each(|misfit| {
                let cause = format!("`{}`: {}", misfit.key, misfit.cause);
                section.refuse(&keys::PARAMETERS, Refused::new(cause, misfit.hint));
            }),
            Ok(needs) => {
                if let Some((code, _)) = &needs.code {
                    match code.rsplit_once(':') {
                        Some((file, _)) if file.ends_with(".py") && !folder.join(file).is_file() => {
                            let cause = format!("`find`: there is no file {}", folder.join(file).display());
                            let refused = Refused::new(cause, "name a file beside the instrument file");
                            section.refuse(&keys::PARAMETERS, refused);
                        }
                        Some((file, name)) if !file.is_empty() && !name.is_empty() => {}
                        _ => {
                            let cause = format!("`find`: `{code}` does not say which function of which file");
                            section.refuse(&keys::PARAMETERS, Refused::new(cause, "write `find = \"mine.py:pairs\"`"));
                        }
                    }
                }
                besides = needs.streams.into_iter().map(|(_, stream)| stream).collect();
                if let (true, Some(shadow)) = (needs.holds_back, &shadow) {
                    let (line, hint) = (shadow.line_or(section.line), "remove `shadow`, and write `inputs`");
                    let what = format!("{} cannot run as a shadow", section.title);
                    section.mistake(line, what, "sources would wait for it: it holds back what it still needs", hint);
                }
                if let Some(why) = needs.alone {
                    if slots.value > 1 {
                        section.refuse(&keys::SLOTS, Refused::new(why, "write `slots = 1`, or remove it"));
                    }
                    if inputs.len() > 1 {
                        section
                            .refuse(&keys::WORKER_INPUTS, Refused::new(why, "merge the streams first: `[merge.NAME]`"));
                    }
                }
                if needs.bytes > slot_live.0 {
                    let cause = format!("what it makes needs {} B of it", needs.bytes);
                    let hint = format!("write `slot_live = \"{} MiB\"`", needs.bytes.div_ceil(1 << 20));
                    section.refuse(&keys::SLOT_LIVE, Refused::new(cause, hint));
                }
            }
        }
    }
    WorkerSection {
        name: name.to_owned(),
        line: section.line,
        call,
        folder: folder.to_owned(),
        inputs,
        slots,
        share,
        set,
        turn,
        order,
        time_max,
        parameters,
        // A name is looked for in PATH, a path from the instrument file.
        python: python.map(|p| p.map(|text| if text.contains('/') { folder.join(text) } else { text.into() })),
        cpus,
        gpus,
        slot_live,
        copied: None,
        besides,
        shadow,
        output,
        shown: section.end(),
    }
}
