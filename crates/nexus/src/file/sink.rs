//! The sink: messages of one run to one NeXus file.
//!
//! Constraints: the file is valid from the moment it has its name. It is laid out as `.NAME.new`, an empty file of the
//! run, and renamed when the layout is complete; from then on it grows in place.
//!
//! * [`Nexus::begin`] lays the file out. [`Nexus::resume`] resumes one that an earlier process left: rows past the last
//!   commit are cut off. A file that cannot be resumed is recreated, so a small valid file takes its place at once.
//! * `flush` writes what was gathered, then libhdf5's metadata, then syncs, and returns the rows of every dataset.
//! * Rows appear at a flush, those of a module at once; a writer killed at any moment leaves the file of one flush or the
//!   next, module by module (`metadata` has the order of the writes).
//!
//! Failure: no room is a [`Fault`]; nothing is lost by it, the same call works when there is room again. A failure of
//! libhdf5 itself is final ([`Nexus::is_broken`]): every later call answers with it. The process should then end without
//! destructors; the next one resumes.

use super::account;
use super::job::Job;
use super::layout::{FileLayout, Links, end_times, write_end, write_fixed};
use super::product::product;
use super::resumed::{self, Resumed};
use crate::hdf::h5::{File, To};
use crate::hdf::handle::FileHandle;
use crate::hdf::hash_tree::Tree;
use crate::hdf::metadata::{Apply, lock};
use crate::hdf::place::{beside, cleared, sync_folder};
use crate::hdf::write_metadata;
use crate::module::user::Given;
use crate::module::{BROKEN, Filling, Fixed, Late, SCHEMA, indices_of, kind_of_schema, origin};
use crate::sort;
use crate::static_file::StaticFile;
use crate::template::Data;
use flow::{Aside, Fault, Product, Sink};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use store::Message;

/// A message that no module wants.
const UNMATCHED: &str = "unmatched";

/// Messages whose fillings are fetched from memory at the same time: more than a core has loads under way.
const TOGETHER: usize = 32;

/// A NeXus file that is being written.
pub struct Nexus {
    job: Job,
    /// `None` once finished.
    file: Option<File>,
    handle: FileHandle,
    fillings: Vec<Filling>,
    /// Of each, the newest message from before the run, until its first of the run.
    before: Vec<Before>,
    routes: Vec<Route>,
    queue: Queue,
    /// To growing datasets.
    links: Links,
    /// Something was made that is not on disk yet.
    laid: bool,
    /// The file is being sorted: rows may stand in it twice, or not at all.
    sorting: bool,
    /// End of the run, ns since 1970 UTC, where it is known.
    stop: Option<i64>,
    /// The file is not the whole run but what there was then, ns since 1970 UTC.
    snapshot: Option<i64>,
    broken: Option<Fault>,
    /// The last call failed for want of room.
    lacks_room: bool,
    /// Code from outside cannot work on.
    refused: bool,
    /// The schemas of modules from outside.
    outside: HashSet<[u8; 4]>,
}

/// Why a file was not laid out.
pub(crate) enum NotMade {
    /// For lack of room: a retry may succeed.
    NoRoom(Fault),
    /// For a permanent reason.
    Never(Fault),
    /// For another reason.
    Other(Fault),
}

impl From<Fault> for NotMade {
    fn from(fault: Fault) -> Self {
        NotMade::Other(fault)
    }
}

impl NotMade {
    pub(crate) fn fault(self) -> Fault {
        match self {
            NotMade::NoRoom(fault) | NotMade::Never(fault) | NotMade::Other(fault) => fault,
        }
    }
}

/// The last message before the run, of one filling.
#[derive(Default)]
enum Before {
    /// It wants none.
    #[default]
    Unwanted,
    /// None was found.
    Unknown,
    /// A message.
    Known(store::Entry, Vec<u8>),
}

/// Which fillings want the messages of one input: by schema and origin.
#[derive(Default)]
struct Route {
    any: HashMap<[u8; 4], Vec<usize>>,
    by_source: HashMap<[u8; 4], HashMap<String, Vec<usize>>>,
    /// All of them.
    all: Vec<usize>,
    /// Those of `all` before this place are not [`Before::Unknown`]: no filling becomes so again.
    known: Cell<usize>,
    /// Those of `all` before this place are [`Before::Unwanted`]: no filling stops being so.
    unwanted: Cell<usize>,
}

/// Fillings with rows in memory. The cost of a message must not depend on the number of fillings, so no message scans
/// them.
#[derive(Default)]
struct Queue {
    /// Fillings with rows that the next flush writes, each once.
    touched: Vec<usize>,
    /// Of these, the fillings with enough rows to be written before the next flush, each once.
    due: Vec<usize>,
}

impl Queue {
    /// Notes that a filling got rows.
    fn note(&mut self, at: usize, filling: &mut Filling) {
        if !std::mem::replace(&mut filling.touched, true) {
            self.touched.push(at);
        }
        if !filling.due && filling.is_due() {
            filling.due = true;
            self.due.push(at);
        }
    }

    /// Notes that the due rows were written, or all rows.
    fn written(&mut self, fillings: &mut [Filling], all: bool) {
        self.due.drain(..).for_each(|at| fillings[at].due = false);
        if all {
            self.touched.drain(..).for_each(|at| fillings[at].touched = false);
        }
    }
}

impl Nexus {
    /// Lays out a new file. A file of the same run that stands there is replaced, any other only with `replace`.
    pub fn begin(job: Job, replace: bool) -> Result<Self, Fault> {
        Self::lay_out(job, replace).map_err(NotMade::fault)
    }

    /// As [`Nexus::begin`]; the error says whether the same may work later.
    pub(crate) fn lay_out(job: Job, replace: bool) -> Result<Self, NotMade> {
        job.check(replace)?;
        let beside = beside(&job.file)?;
        cleared(&beside)?;
        sort::forget(&job.file)?;
        let file = File::create(&beside)?;
        let mut handle = FileHandle::open(&beside)?;
        match laid_out(&job, &file, &mut handle) {
            Ok((fillings, links)) => Ok(Self::with(job, file, handle, fillings, links)),
            Err(why) => {
                // Tried again and again while there is no room: what it opened must not add up. Nothing can fail to be
                // written: what libhdf5 still has, the driver holds.
                let _ = file.close();
                // Perhaps nobody tries again.
                let _ = cleared(&beside);
                Err(match why {
                    NotMade::Other(fault) if handle.was_short() => NotMade::NoRoom(fault),
                    why => why,
                })
            }
        }
    }

    /// Resumes a file from `state` (of the last commit). An error says why it cannot be resumed; then call
    /// [`Nexus::begin`] with `replace`, and write from the first message on.
    pub fn resume(job: Job, state: &str) -> Result<Self, Fault> {
        let Resumed { file, handle, fillings, links } = Resumed::open(&job, state)?;
        Ok(Self::with(job, file, handle, fillings, links))
    }

    fn with(job: Job, file: File, handle: FileHandle, fillings: Vec<Filling>, links: Links) -> Self {
        let mut routes: Vec<Route> = job.inputs.iter().map(|_| Route::default()).collect();
        let mut outside = HashSet::new();
        for (at, (_, module)) in job.template.modules().into_iter().enumerate() {
            let wanting = job.inputs.iter().zip(&mut routes).filter(|(input, _)| module.streams.contains(input));
            for (_, route) in wanting {
                route.all.push(at);
                for &schema in module.kind.schemas {
                    if module.kind.user.is_some() {
                        outside.insert(schema);
                    }
                    match &module.source {
                        None => route.any.entry(schema).or_default().push(at),
                        Some(source) => {
                            let sources = route.by_source.entry(schema).or_default();
                            sources.entry(source.clone()).or_default().push(at);
                        }
                    }
                }
            }
        }
        let modules = job.template.modules().into_iter().zip(&fillings);
        // Where there are rows, they began with it.
        let before = modules.map(|((_, module), filling)| {
            let wants = module.holds_on() && filling.messages == 0;
            if wants { Before::Unknown } else { Before::Unwanted }
        });
        let before = before.collect();
        Self {
            job,
            file: Some(file),
            handle,
            fillings,
            before,
            routes,
            queue: Queue::default(),
            links,
            laid: false,
            sorting: false,
            stop: None,
            snapshot: None,
            broken: None,
            lacks_room: false,
            refused: false,
            outside,
        }
    }

    /// Limits the file to `max` frames. Each further one is set aside as [`ANOTHER`](crate::module::ANOTHER), and so is
    /// one that the file cannot hold beside the others.
    pub(crate) fn set_frames_max(&mut self, max: u64) {
        self.fillings.iter_mut().for_each(|filling| filling.set_frames_max(max));
    }

    /// Says when the run ended, ns since 1970 UTC: `end_time` of the file.
    pub fn set_stop(&mut self, stop: i64) {
        self.stop = Some(stop);
    }

    /// Says that the file is not the whole run but what there was at a time, ns since 1970 UTC.
    pub fn set_snapshot(&mut self, time: i64) {
        self.snapshot = Some(time);
    }

    /// Whether libhdf5 itself failed: the process should end at once, without closing anything.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether the last call failed for code from outside that cannot work on: trying again does not mend it.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Whether the last call failed for want of room: the same call works when there is room.
    pub fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// Runs `f` with the open file, and remembers a failure that cannot heal.
    fn with_file<T>(&mut self, f: impl FnOnce(&mut Self, &File) -> Result<T, Fault>) -> Result<T, Fault> {
        if let Some(fault) = &self.broken {
            return Err(fault.clone());
        }
        let Some(file) = self.file.take() else {
            return Err(Fault::new(format!("{} is finished", self.job.file.display()), ""));
        };
        self.handle.was_short();
        let answer = f(self, &file);
        self.file = Some(file);
        self.lacks_room = answer.is_err() && self.handle.was_short();
        if let (Err(fault), false) = (&answer, self.lacks_room) {
            self.broken = Some(fault.clone());
        }
        answer
    }

    /// Writes what is due; everything, where `all`.
    fn drain(&mut self, file: &File, all: bool) -> Result<(), Fault> {
        if self.sorting {
            sort::redo(&self.job.file, file, &mut self.handle)?;
            self.sorting = false;
        }
        let due = if all { self.queue.touched.clone() } else { self.queue.due.clone() };
        for &at in &due {
            self.lay(file, at)?;
        }
        if self.laid {
            // New datasets are on disk, empty, before any has rows.
            write_metadata(file, &mut self.handle, Apply::Laid)?;
            self.laid = false;
        }
        for &at in &due {
            let columns = &mut self.fillings[at].columns;
            columns.iter_mut().filter(|c| all || c.is_due()).try_for_each(|c| c.write_out(&mut self.handle, all))?;
        }
        self.queue.written(&mut self.fillings, all);
        Ok(())
    }

    /// Makes what only the first messages could tell.
    fn lay(&mut self, file: &File, at: usize) -> Result<(), Fault> {
        let filling = &mut self.fillings[at];
        while let Some(late) = filling.late.last() {
            match late {
                Late::Attribute(object, name, value) => file.set_attribute(object, name, value)?,
                Late::Dataset((path, value, attributes)) => write_fixed(file, path, value, attributes)?,
                Late::Absent(group, name) => {
                    file.remove_attribute(group, &indices_of(name))?;
                    let path = format!("{group}/{name}");
                    if file.exists(&path)? {
                        file.unlink(&path)?;
                    }
                }
            }
            self.laid = true;
            filling.late.pop();
        }
        if filling.fit(file)? {
            self.laid = true;
            for column in &filling.columns {
                for (_, link) in self.links.iter().filter(|(target, _)| *target == column.design.path) {
                    if file.exists(link)? {
                        file.unlink(link)?;
                    }
                    file.link(To::Thing(&column.design.path), link)?;
                }
            }
        }
        Ok(())
    }

    /// Everything to the disk.
    fn settle(&mut self, file: &File) -> Result<(), Fault> {
        self.drain(file, true)?;
        self.handle.settle()?;
        write_metadata(file, &mut self.handle, Apply::Grown)
    }

    /// Puts late rows into their places, all being in the file.
    fn sort(&mut self, file: &File) -> Result<(), Fault> {
        let tables: Vec<_> = self.fillings.iter().filter_map(Filling::unsorted).collect();
        if tables.is_empty() {
            return Ok(());
        }
        self.settle(file)?;
        self.sorting = true;
        let chunks = sort::sort(&self.job.file, file, &mut self.handle, &tables)?;
        self.sorting = false;
        tracing::info!("{}: late rows are in their places, {chunks} chunks changed", self.job.file.display());
        Ok(())
    }

    /// Decodes a message and finds its origin; no message where only a module from outside reads the schema.
    fn decode<'m>(&self, message: &Message<'m>) -> Result<(Option<wire::Message<'m>>, &'m str), &'static str> {
        let schema = message.entry.schema.0;
        if wire::schema_id(message.payload) != Some(schema) {
            return Err(if message.payload.len() < 8 { BROKEN } else { SCHEMA });
        }
        let is_outside = self.outside.contains(&schema);
        if !is_outside && kind_of_schema(schema).is_none() {
            return Err(SCHEMA);
        }
        if is_outside && !wire::KNOWN.contains(&schema) {
            return Ok((None, ""));
        }
        let read = wire::read(message.payload).map_err(|_| BROKEN)?;
        let source = origin(schema, &read).or(is_outside.then_some("")).ok_or(SCHEMA)?;
        Ok((Some(read), source))
    }

    /// Gives messages to the modules from outside that want them, many at once to each. [`Nexus::take`] asks for the
    /// result of each message.
    fn take_outside(&mut self, input: usize, messages: &[Message<'_>]) -> Result<(), Fault> {
        if self.outside.is_empty() {
            return Ok(());
        }
        let (Some(route), Some(stream)) = (self.routes.get(input), self.job.inputs.get(input).cloned()) else {
            return Ok(());
        };
        let mut given: BTreeMap<usize, Vec<Given<'_>>> = BTreeMap::new();
        for message in messages.iter().filter(|message| self.outside.contains(&message.entry.schema.0)) {
            let Ok((_, origin)) = self.decode(message) else { continue };
            let one = Given {
                stream: &stream,
                sequence: message.sequence,
                origin,
                entry: message.entry,
                bytes: message.payload,
            };
            for at in route.wanting(message.entry.schema.0, origin).filter(|at| self.fillings[*at].is_outside()) {
                given.entry(at).or_default().push(one);
            }
        }
        for (at, all) in given {
            let mut rest = all.as_slice();
            while !rest.is_empty() {
                let taken = self.fillings[at].take_all(rest);
                // Some have taken what others have not: nobody may give it again.
                let taken = taken.inspect_err(|_| (self.refused, self.lacks_room) = (true, false))?;
                rest = &rest[taken..];
                self.queue.note(at, &mut self.fillings[at]);
                self.drain_due();
            }
        }
        Ok(())
    }

    /// Writes what is due before memory is touched for more. Without room messages are taken all the same; the next call says
    /// so.
    fn drain_due(&mut self) {
        if !self.queue.due.is_empty() && self.broken.is_none() && !self.lacks_room {
            let _ = self.with_file(|me, file| me.drain(file, false));
        }
    }

    /// Gives messages to the fillings that want them, [`TOGETHER`] at a time: with thousands of fillings their memory is in
    /// no near cache, and what several messages need is fetched at the same time.
    fn take_all(&mut self, input: usize, messages: &[Message<'_>], aside: &mut Vec<Aside>) {
        let mut looked = Vec::with_capacity(TOGETHER.min(messages.len()));
        let (mut wanting, mut ends) = (Vec::new(), Vec::with_capacity(looked.capacity()));
        for messages in messages.chunks(TOGETHER) {
            looked.extend(messages.iter().map(|message| self.decode(message)));
            let route = self.routes.get(input);
            for (message, looked) in messages.iter().zip(&looked) {
                if let (Some(route), Ok((_, source))) = (route, looked) {
                    wanting.extend(route.wanting(message.entry.schema.0, source));
                }
                // Where those of this message end.
                ends.push(wanting.len());
            }
            wanting.iter().for_each(|at| self.fillings[*at].fetch());
            wanting.iter().for_each(|at| self.fillings[*at].fetch_columns());
            let mut first = 0;
            for (message, (looked, end)) in messages.iter().zip(looked.drain(..).zip(ends.drain(..))) {
                let taken = looked
                    .and_then(|(read, source)| self.take(&wanting[first..end], source, read.as_ref(), message.entry));
                if let Err(reason) = taken {
                    aside.push(Aside { sequence: message.sequence, reason });
                }
                first = end;
                self.drain_due();
            }
            wanting.clear();
        }
    }

    fn take(
        &mut self,
        wanting: &[usize],
        source: &str,
        read: Option<&wire::Message<'_>>,
        entry: &store::Entry,
    ) -> Result<(), &'static str> {
        // Done if a filling took it; aside with the first reason if none could.
        let (mut answer, mut beside) = (Err(UNMATCHED), false);
        for &at in wanting {
            let filling = &mut self.fillings[at];
            if begin_with(&mut self.before[at], filling) {
                self.queue.note(at, filling);
            }
            match filling.take(source, read, entry) {
                Ok(()) => {
                    self.queue.note(at, filling);
                    // A module that takes only the alarm of a value does not answer for the value.
                    if read.is_some_and(|read| filling.is_beside(read)) {
                        beside = true;
                    } else {
                        answer = Ok(());
                    }
                }
                Err(reason) if answer.is_err() => answer = Err(reason),
                Err(_) => (),
            }
        }
        if beside && answer == Err(UNMATCHED) { Ok(()) } else { answer }
    }

    /// Fillings without a message of the run begin with what was said before.
    fn begin_all(&mut self) {
        for (at, (filling, before)) in self.fillings.iter_mut().zip(&mut self.before).enumerate() {
            if begin_with(before, filling) {
                self.queue.note(at, filling);
            }
        }
    }

    fn last_words(&mut self, file: &File, account: Option<&str>) -> Result<(), Fault> {
        let mut words: Vec<Fixed> = self.fillings.iter().flat_map(Filling::last_words).collect();
        if let Some(stop) = self.stop {
            for path in end_times(&self.job.template) {
                words.push((path, Data::text(self.job.template.time_text(stop)), Vec::new()));
            }
        }
        let entry = self.job.template.entry();
        let tables = account.map(|account| account::tables(&format!("{entry}/beamport"), account));
        for (group, columns) in tables.unwrap_or_default() {
            if !file.exists(&group)? {
                file.make_group(&group)?;
                file.set_attribute(&group, "NX_class", &Data::text("NXcollection"))?;
            }
            words.extend(columns.into_iter().map(|(name, value)| (format!("{group}/{name}"), value, Vec::new())));
        }
        for (path, value, attributes) in words {
            write_fixed(file, &path, &value, &attributes)?;
        }
        Ok(())
    }
}

impl Sink for Nexus {
    fn write(&mut self, input: usize, messages: &[Message<'_>], aside: &mut Vec<Aside>) -> Result<(), Fault> {
        // What found no room last time goes first: until then nothing more is taken, and nothing is taken twice.
        self.with_file(|me, file| me.drain(file, false))?;
        self.take_outside(input, messages)?;
        self.take_all(input, messages, aside);
        match self.with_file(|me, file| me.drain(file, false)) {
            // The messages are taken; the next call says that there is no room.
            Err(_) if self.broken.is_none() => Ok(()),
            answer => answer,
        }
    }

    fn wants_before(&self, input: usize) -> bool {
        let Some(route) = self.routes.get(input) else { return false };
        route.any_behind(&route.known, |at| matches!(self.before[at], Before::Unknown))
    }

    fn before(&mut self, input: usize, message: &Message<'_>, is_newest: bool) {
        let schema = message.entry.schema.0;
        let Some(route) = self.routes.get(input) else { return };
        let wants = |at: usize| match &self.before[at] {
            Before::Unwanted => false,
            Before::Unknown => true,
            Before::Known(..) => is_newest,
        };
        // Read only where somebody may want it.
        let behind = if is_newest { &route.unwanted } else { &route.known };
        if wire::schema_id(message.payload) != Some(schema) || !route.any_behind(behind, wants) {
            return;
        }
        let Ok(read) = wire::read(message.payload) else { return };
        let Some(source) = origin(schema, &read) else { return };
        let wanting: Vec<usize> = route.wanting(schema, source).filter(|at| wants(*at)).collect();
        for at in wanting {
            self.before[at] = Before::Known(*message.entry, message.payload.to_vec());
        }
    }

    fn flush(&mut self) -> Result<String, Fault> {
        self.with_file(Self::settle)?;
        self.fillings.iter_mut().for_each(Filling::commit);
        Ok(resumed::state(&self.job, &self.fillings))
    }

    fn finish(&mut self, account: &str) -> Result<Product, Fault> {
        self.close(Some(account))?;
        product(&self.job.file, self.take_tree())
    }
}

impl Nexus {
    /// Writes what is known only at the end, with the account of the run where this file has it, and closes the file,
    /// which is then complete and on disk.
    pub(crate) fn close(&mut self, account: Option<&str>) -> Result<(), Fault> {
        self.begin_all();
        self.with_file(|me, file| {
            me.drain(file, true)?;
            me.sort(file)?;
            me.last_words(file, account)?;
            me.settle(file)?;
            // Now all that it shows is on disk.
            write_end(file, &me.job.template, me.snapshot)?;
            me.settle(file)
        })?;
        if let Some(file) = self.file.take() {
            // All its dataset handles go before the file.
            self.fillings.clear();
            let held = file.held();
            if let Err(fault) = file.close() {
                self.broken = Some(fault.clone());
                return Err(fault);
            }
            if let Some(held) = held {
                let mut held = lock(&held);
                held.apply(&mut self.handle, Apply::Closed)?;
                held.trim(&mut self.handle)?;
            }
        }
        self.handle.sync()
    }

    /// Returns the known hashes of the file, which is closed.
    pub(crate) fn take_tree(&self) -> Tree {
        self.handle.take_tree()
    }
}

impl Route {
    /// The fillings that want a message.
    fn wanting(&self, schema: [u8; 4], source: &str) -> impl Iterator<Item = usize> {
        let named = self.by_source.get(&schema).and_then(|sources| sources.get(source));
        named.into_iter().chain(self.any.get(&schema)).flatten().copied()
    }

    /// Whether one of all fillings wants something, which no filling starts to do again: `place` moves on to the first.
    fn any_behind(&self, place: &Cell<usize>, wants: impl Fn(usize) -> bool) -> bool {
        let rest = &self.all[place.get()..];
        let first = rest.iter().position(|at| wants(*at));
        place.set(place.get() + first.unwrap_or(rest.len()));
        first.is_some()
    }
}

/// Gives a filling the message from before the run, if it has not had it; true where that made rows. A message that the
/// filling refuses is left out: it is no member of the run.
fn begin_with(before: &mut Before, filling: &mut Filling) -> bool {
    if let Before::Known(entry, payload) = std::mem::take(before)
        && let Ok(read) = wire::read(&payload)
        && let Some(source) = origin(entry.schema.0, &read)
    {
        return filling.take(source, Some(&read), &entry).is_ok();
    }
    false
}

/// Makes the file beside its name, and gives it its name.
fn laid_out(job: &Job, file: &File, handle: &mut FileHandle) -> Result<(Vec<Filling>, Links), NotMade> {
    let of_static = job.template.static_file.as_ref().map(StaticFile::open).transpose()?;
    let (fillings, links) = (Vec::new(), Vec::new());
    let mut layout =
        FileLayout { file, handle, fillings, links, job, of_static: of_static.as_ref(), is_damaged: false };
    let made = layout.root();
    let (fillings, links, is_damaged) = (layout.fillings, layout.links, layout.is_damaged);
    if let Some(source) = of_static {
        source.close();
    }
    // One that was replaced meanwhile is another the next time.
    let is_same = || job.template.static_file.as_ref().is_some_and(StaticFile::is_unchanged);
    made.map_err(|fault| if is_damaged && is_same() { NotMade::Never(fault) } else { fault.into() })?;
    write_metadata(file, handle, Apply::Grown)?;
    let moved = beside(&job.file).map(|from| std::fs::rename(from, &job.file).and_then(|()| sync_folder(&job.file)))?;
    moved.map_err(|e| Fault::new(format!("{} cannot be made", job.file.display()), e))?;
    handle.renamed(&job.file);
    Ok((fillings, links))
}
