//! `beamport replay RUN --through CODE`: the messages of one stream of a sealed run through user code, or a ready-made
//! worker, and a hash over its output.
//!
//! The runner and the slots are those of `beamport up` ([`mover::pass`]), in a data folder of their own: one beside,
//! which is removed at the end (by the next replay, where this one is killed), or that of `--into`, where the output
//! stays. The stream's source is that of every replay. The exit status is 1 where a message was set aside or lost.

use super::figures::{bytes, span, thousands};
use super::members::{self, Members};
use super::replay::Replay;
use super::table::Table;
use super::verify::Progress;
use super::{Answer, Asked, json_line};
use crate::edges::Registry;
use crate::file::{self, Order, WorkerSection, nearest};
use crate::mover::{self, Declared, Passing};
use crate::{limits, room};
use flow::ledger::Row;
use flow::records::Run;
use flow::{Data, Fault, IntakeOptions, Share, aside_of};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use store::{Clock, Level, Media as _, Options, Os, WhenFull};

/// Least live end of the input.
const LIVE_BYTES: u64 = 64 << 20;
/// Batches for which the live end of the input has room: one is waited for while others are worked on.
const BATCHES: u64 = 4;
/// Bytes of a message's entry in the index, and those lost at the end of a segment, beside the message itself.
const BESIDE: u64 = 256;

/// How a folder beside is called, before the number of the process.
// One name for all verbs: each removes what any of them left.
const BESIDE_NAME: &str = "beamport-replay-";
/// In it: locked while it is worked in.
const LOCK: &str = "lock";

/// Where input and output lie while it works.
pub(super) struct Workspace {
    pub(super) data: Data,
    /// The streams that go at the end; none: the whole folder.
    remove: Option<Vec<String>>,
    /// Of a folder that goes: says that somebody is at work there.
    _lock: Option<Box<dyn Any + Send + Sync>>,
}

impl Workspace {
    /// A data folder that is removed with all its streams when this is dropped, or by the next one where the process is
    /// killed.
    pub(super) fn beside() -> Result<Self, Fault> {
        let parent = std::env::temp_dir();
        Self::sweep(&parent);
        let folder = parent.join(format!("{BESIDE_NAME}{}", std::process::id()));
        let fault = |e| Fault::io(format!("cannot create folder `{}`", folder.display()), &e);
        std::fs::create_dir(&folder).map_err(fault)?;
        let lock = Os.lock(&folder.join(LOCK)).map_err(fault)?;
        Ok(Self { data: Data::on_disk(folder), remove: None, _lock: Some(lock) })
    }

    fn new(asked: &Replay, stage: &str, input: &str) -> Result<Self, Fault> {
        let Some(into) = &asked.into else { return Self::beside() };
        let data = Data::on_disk(into);
        let what = format!("cannot keep the output in {}", into.display());
        let fault = |e| Fault::io(&what, &e);
        std::fs::create_dir_all(into).map_err(fault)?;
        let present = data.streams(true)?;
        let (behind, beside) = (format!("{stage}."), format!("{input}."));
        let is_ours =
            |name: &&String| *name == stage || *name == input || name.starts_with(&behind) || name.starts_with(&beside);
        if let Some(name) = present.iter().find(is_ours) {
            return Err(
                Fault::new(what, format!("stream `{name}` already exists")).hint("name a new folder with `--into DIR`")
            );
        }
        let ours = [input.to_owned(), flow::commits_of(input), flow::tasks_of(stage), flow::statistics_of(stage)];
        Ok(Self { data, remove: Some(ours.into()), _lock: None })
    }

    /// Removes what killed processes left there: their lock is free.
    fn sweep(parent: &Path) {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let folder = entry.path();
            let is_one = entry.file_name().to_string_lossy().starts_with(BESIDE_NAME);
            // Of links and of what others left nothing is touched; who has just begun has no lock yet.
            // SAFETY: plain system call.
            let user = unsafe { libc::geteuid() };
            let is_ours = entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == user);
            if is_one
                && is_ours
                && folder.join(LOCK).exists()
                && let Ok(lock) = Os.lock(&folder.join(LOCK))
            {
                drop(Self { data: Data::on_disk(folder), remove: None, _lock: Some(lock) });
            }
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let all = self.data.streams(true).unwrap_or_default();
        for name in all.iter().filter(|name| self.remove.as_ref().is_none_or(|some| some.contains(name))) {
            // Nobody writes there any more; what cannot be removed is found by `beamport doctor`.
            let _ = store::remove(&self.data.media, &self.data.stream(name));
        }
        if self.remove.is_none() {
            let _ = std::fs::remove_dir_all(&self.data.folder);
        }
    }
}

/// The result of a replay.
struct Report<'a> {
    run: &'a str,
    stream: &'a str,
    through: &'a str,
    slots: u64,
    members: u64,
    row: Row,
    lost: BTreeMap<String, u64>,
    made: u64,
    sha256: String,
    is_pure: bool,
    took: i64,
}

/// Does it.
pub(super) fn run(
    asked: &Replay,
    registry: &Registry,
    from: &Data,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Answer {
    let run = members::sealed(from, &asked.run, "replay")?;
    let known = known(asked, registry)?;
    let input = input_of(asked, &run, known.as_ref())?;
    let signals = Asked::to_end()?;
    let section = section(asked, registry, known, &input)?;
    let members = members::count(from, &run, &input)?;
    members::refuse_missing(from, &run, "replay")?;
    members::refuse_gone(&run.name, "replay", std::slice::from_ref(&members))?;
    members::refuse_cut(&run.name, "replay", std::slice::from_ref(&members))?;
    if from.reader_early(&input)?.header().clock != Clock::Epoch {
        let what = format!("cannot replay stream `{input}` through a worker");
        return Err(Fault::new(what, "its times are not in ns since 1970 UTC").into());
    }
    let declared = Passing::declared(&section, &|| signals.yes())?;
    let source = super::replay::source(from, &run.name, &input, asked.speed);
    let options = kept(from, &run, &members, &section, &declared)?;
    let is_pure = declared.is_pure;
    let place = Workspace::new(asked, &section.name, &input)?;
    let began = Instant::now();
    let passing = Passing { data: &place.data, section: &section, run: &run, declared, source: (source, options) };
    let (sha256, made, row) = pass(passing, &members, &signals, err)?;
    let took = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let mut lost = row.lost.clone();
    // Those of the run that were not brought: none, but for a defect of the source.
    let absent = members.messages.saturating_sub(row.read);
    if absent > 0 {
        lost.insert("missing".into(), absent);
    }
    let report = Report {
        run: &run.name,
        stream: &input,
        through: &section.call.value,
        slots: section.slots.value,
        members: members.messages,
        lost,
        made,
        sha256,
        is_pure,
        took,
        row,
    };
    if asked.form.json {
        json_line(out, &report.json())?;
    } else {
        write!(out, "{}", report.text())?;
    }
    if let Some(said) = first_aside(&place.data, &section.name) {
        writeln!(err, "{said}")?;
    }
    Ok(ExitCode::from(u8::from(!report.is_whole())))
}

/// The worker of the instrument file that is named, if one is.
fn known(asked: &Replay, registry: &Registry) -> Result<Option<WorkerSection>, Fault> {
    let Some(path) = &asked.file else { return Ok(None) };
    let instrument = file::read(path, registry, &file::unasked).map_err(|mistakes| fault_of(&mistakes))?;
    let name = asked.through.as_deref().unwrap_or_default();
    let found = instrument.workers().find(|worker| worker.name == name);
    let names = || instrument.workers().map(|worker| worker.name.as_str());
    let missing = || {
        Fault::new(format!("no worker `{name}` in {}", path.display()), "").hint(match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
        })
    };
    found.cloned().map(Some).ok_or_else(missing)
}

fn fault_of(mistakes: &[file::Mistake]) -> Fault {
    match mistakes.first() {
        Some(m) if m.line > 0 => Fault::new(format!("{}:{}: {}", m.file, m.line, m.what), &m.cause).hint(&m.hint),
        Some(m) => Fault::new(&m.what, &m.cause).hint(&m.hint),
        None => Fault::new("cannot create the worker", ""),
    }
}

/// The stream that is meant.
fn input_of(asked: &Replay, run: &Run, known: Option<&WorkerSection>) -> Result<String, Fault> {
    let streams = members::streams(run);
    let what =
        || format!("cannot replay run `{}` through `{}`", run.name, asked.through.as_deref().unwrap_or_default());
    let named = asked.input.clone().or_else(|| match known.map(|worker| worker.inputs.value.as_slice()) {
        Some([input]) => Some(input.clone()),
        _ => None,
    });
    match (named, streams.as_slice()) {
        (Some(input), _) if streams.contains(&input) => Ok(input),
        (Some(input), _) => {
            let hint = nearest(&input, streams.iter().map(String::as_str))
                .map_or_else(|| format!("it has {}", streams.join(", ")), |near| format!("did you mean `{near}`?"));
            Err(Fault::new(what(), format!("it has no stream `{input}`")).hint(hint))
        }
        (None, [only]) => Ok(only.clone()),
        (None, []) => Err(Fault::new(what(), "it has no streams")),
        (None, _) => Err(Fault::new(what(), format!("it has several streams: {}", streams.join(", ")))
            .hint("name one with `--input STREAM`")),
    }
}

/// The code as a section of an instrument file, checked as one.
fn section(
    asked: &Replay,
    registry: &Registry,
    known: Option<WorkerSection>,
    input: &str,
) -> Result<WorkerSection, Fault> {
    let mut section = match known {
        Some(known) => changed(asked, known, input)?,
        None => written(asked, registry, input)?,
    };
    if let Some(beside) = section.side_inputs.first() {
        let what = format!("cannot replay `{}`", section.call.value);
        return Err(
            Fault::new(what, format!("it also reads stream `{beside}`")).hint("replay only code with one input stream")
        );
    }
    // The output is in the order of the input, complete, and stays where it is to stay.
    (section.share.value, section.set.value, section.order.value) = (Share::Balance, 1, Order::Keep);
    section.shadow = None;
    let output = &mut section.output;
    output.when_full.value = WhenFull::Wait;
    (output.retain, output.retain_age, output.keep_free) = (None, None, None);
    if let Some(level) = &mut output.level {
        level.value = if asked.into.is_some() { Level::Disk } else { Level::Memory };
    }
    Ok(section)
}

/// The section that an instrument file would have for the code.
fn written(asked: &Replay, registry: &Registry, input: &str) -> Result<WorkerSection, Fault> {
    let call = asked.through.as_deref().unwrap_or_default();
    // Named as the code is, where a stream can be.
    let name = call.rsplit([':', '.']).next().unwrap_or_default().to_ascii_lowercase();
    let is_name = file::is_run_name(&name) && name.starts_with(|c: char| c.is_ascii_lowercase());
    let fits = is_name && name != input && name.len() <= limits::MERGE_NAME_CHARS_MAX;
    let name = if fits { name.as_str() } else { "output" };
    let quoted = |text: &str| file::toml_text(&text.into());
    let mut text = format!(
        "instrument = \"replay\"\n[source.{0}]\nkind = \"sim\"\nmodel = \"amor-devices\"\n\
         [worker.{name}]\ncall = {1}\ninputs = [{0}]\nslots = {2}\n[worker.{name}.parameters]\n",
        quoted(input),
        quoted(call),
        asked.slots.unwrap_or(1)
    );
    for (key, value) in asked.parameters.iter().filter(|(_, value)| !value.is_null()) {
        let _ = writeln!(text, "{} = {}", quoted(key), file::toml_text(value));
    }
    let here = std::env::current_dir().map_err(|e| Fault::new("cannot find the current folder", e))?;
    let instrument = file::parse(&text, &here.join("replay.toml"), registry, &file::unasked).map_err(|mistakes| {
        let first = mistakes.into_iter().next();
        let told = |m: file::Mistake| Fault::new(format!("cannot run `{call}`: {}", m.what), m.cause).hint(m.hint);
        first.map_or_else(|| Fault::new(format!("cannot run `{call}`"), ""), told)
    })?;
    let made = instrument.workers().next().cloned();
    made.ok_or_else(|| Fault::new(format!("cannot run `{call}`"), "it has no section"))
}

/// The section of an instrument file, with what was asked for.
fn changed(asked: &Replay, mut section: WorkerSection, input: &str) -> Result<WorkerSection, Fault> {
    if section.name == *input {
        let what = format!("worker `{input}` cannot take its own output");
        return Err(Fault::new(what, "a stream has one writer").hint("name another stream with `--input STREAM`"));
    }
    section.slots.value = asked.slots.map_or(section.slots.value, u64::from);
    if let Some(known) = section.parameters.value.0.as_object_mut() {
        for (name, value) in &asked.parameters {
            match value {
                Value::Null => drop(known.remove(name)),
                value => drop(known.insert(name.clone(), value.clone())),
            }
        }
    }
    let slots = u32::try_from(section.slots.value).unwrap_or(u32::MAX);
    if !(1..=flow::SLOTS_MAX).contains(&slots) {
        let what = format!("worker `{}` cannot have {slots} slots", section.name);
        return Err(Fault::new(what, format!("it has 1 to {}", flow::SLOTS_MAX)));
    }
    section.check_change(&section.parameters.value.0, slots)?;
    section.inputs.value = vec![input.to_owned()];
    Ok(section)
}

/// How the input is kept: in memory, with room for some batches of its largest messages.
fn kept(
    from: &Data,
    run: &Run,
    members: &Members,
    section: &WorkerSection,
    declared: &Declared,
) -> Result<IntakeOptions, Fault> {
    let largest = members::largest(from, run, &members.stream)?;
    let live = (largest + BESIDE).saturating_mul(declared.traits.batch).saturating_mul(BATCHES).max(LIVE_BYTES);
    let slots = section.slot_live.0.saturating_mul(section.slots.value);
    let needed = live.saturating_add(slots).saturating_add(section.output.live.0);
    if let Some(free) = room::free().filter(|free| needed > *free) {
        let what = format!("cannot replay stream `{}` through `{}`", members.stream, section.call.value);
        let cause = format!("it needs {} of shared memory, and {} are free", bytes(needed), bytes(free));
        return Err(Fault::new(what, cause).hint("use smaller batches or fewer slots"));
    }
    // As the instrument file has it.
    let ahead_max = super::replay::AHEAD_MAX;
    Ok(IntakeOptions { stream: Options::memory(live), ahead_max })
}

/// Lets all of it pass; the hash, the number of messages that were made, and the account.
fn pass(
    passing: Passing<'_>,
    members: &Members,
    signals: &Asked,
    err: &mut dyn Write,
) -> Result<(String, u64, Row), Fault> {
    let (mut sha, mut made, mut progress) = (Sha256::new(), 0, Progress::new());
    let mut see = |message: &store::Message<'_>| {
        members::enter(&mut sha, message);
        made += 1;
    };
    let mut goes_on = |taken| {
        progress.draw(err, &members.stream, taken, members.messages);
        !signals.yes()
    };
    let passed = mover::pass(passing, &mut see, &mut goes_on);
    progress.clear(err);
    Ok((store::hex(&sha.finalize()), made, passed?))
}

/// The reason and the text of the first message that was set aside.
fn first_aside(data: &Data, stage: &str) -> Option<String> {
    let mut reader = data.reader_early(&aside_of(stage)).ok()?;
    reader.seek(reader.bounds().first);
    let batch = reader.read(1).ok()?;
    let first = batch.iter().next()?;
    let aside = wire::bpas::read(first.payload).ok()?;
    let text = aside.text.trim_end();
    Some(format!("the first message set aside, with reason `{}`:\n{text}", aside.reason))
}

impl Report<'_> {
    /// No message was set aside or lost.
    fn is_whole(&self) -> bool {
        self.row.aside.is_empty() && self.lost.is_empty()
    }

    /// Messages of the run a second.
    fn rate(&self) -> f64 {
        self.members as f64 * 1e9 / self.took.max(1) as f64
    }

    fn json(&self) -> Value {
        json!({
            "run": self.run,
            "stream": self.stream,
            "through": self.through,
            "slots": self.slots,
            "messages": self.members,
            "done": self.row.done,
            "made": self.made,
            "skipped": self.row.skipped,
            "aside": self.row.aside,
            "lost": self.lost,
            "took_ns": self.took,
            "messages_per_s": self.rate(),
            "pure": self.is_pure,
            "sha256": self.sha256,
        })
    }

    fn text(&self) -> String {
        let sum = |of: &BTreeMap<String, u64>| thousands(flow::ledger::total(of.values()));
        let mut table =
            Table::new(&["stream", ">messages", ">done", ">made", ">filtered", ">aside", ">lost", "sha256"]);
        table.row([
            self.stream.to_owned(),
            thousands(self.members),
            thousands(self.row.done),
            thousands(self.made),
            sum(&self.row.skipped),
            sum(&self.row.aside),
            sum(&self.lost),
            self.sha256.get(..16).unwrap_or_default().to_owned(),
        ]);
        let pure = match self.is_pure {
            true => "declared pure: the hash is reproducible",
            false => "not declared pure: the hash may differ next time",
        };
        let slots = if self.slots == 1 { "1 slot".to_owned() } else { format!("{} slots", self.slots) };
        format!(
            "{table}\nrun `{}` went through {} in {} ({:.0}/s, {slots}); {pure}\n",
            self.run,
            self.through,
            span(self.took),
            self.rate()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_aside_is_counted_and_told() {
        let row = Row {
            stage: "mean".into(),
            stream: "camera".into(),
            read: 1200,
            done: 1199,
            aside: BTreeMap::from([("error".into(), 1)]),
            skipped: BTreeMap::new(),
            lost: BTreeMap::new(),
            held: 0,
            closed: true,
        };
        let report = Report {
            run: "first",
            stream: "camera",
            through: "mine.py:mean",
            slots: 2,
            members: 1200,
            row,
            lost: BTreeMap::new(),
            made: 1199,
            sha256: "0123456789abcdef0123".into(),
            is_pure: false,
            took: 2_000_000_000,
        };
        assert!(!report.is_whole());
        assert_eq!(
            report.text(),
            "stream  messages   done   made  filtered  aside  lost  sha256\n\
             camera     1,200  1,199  1,199         0      1     0  0123456789abcdef\n\n\
             run `first` went through mine.py:mean in 2.0 s (600/s, 2 slots); not declared pure: the hash may differ next time\n"
        );
    }
}
