//! The sink: messages of one run to one NeXus file.
//!
//! Constraints: the file at its name is valid from the first moment on. It is laid out beside (`.NAME.new`) and renamed
//! when it is whole, as an empty file of the run; from then on it grows in place.
//!
//! * [`Nexus::begin`] lays the file out. [`Nexus::resume`] goes on with one that an earlier process left: rows past the
//!   last commit are cut off. What cannot be resumed is begun anew, so a small valid file takes its place at once.
//! * `flush` writes what was gathered, then libhdf5's metadata, then syncs, and returns the rows of every dataset.
//! * libhdf5 writes nothing between two flushes, so a killed writer leaves the file of the last one.
//!
//! Failure: no room is a [`Fault`]; nothing is lost by it, the same call works when there is room again. A failure of
//! libhdf5 itself is final ([`Nexus::is_broken`]): every later call answers with it, and the file is never closed, since
//! closing would crash. The process should then end without destructors; the next one resumes.

use crate::column::Column;
use crate::h5::{self, File};
use crate::limits::METADATA_ROOM_BYTES;
use crate::module::{Filling, Fixed, Late, fixed_constants};
use crate::room::Room;
use crate::template::{Data, Group, Kind, Node, Template};
use crate::{account, clock};
use flow::{Aside, Fault, Product, Sink};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use store::Message;

/// Version of the state that `flush` returns.
const STATE_VERSION: u64 = 1;

/// What a file is about.
#[derive(Clone, Debug)]
pub struct Job {
    /// The file.
    pub file: PathBuf,
    /// What stands in it.
    pub template: Template,
    /// Names of the streams; their places are the input numbers of [`Sink::write`].
    pub inputs: Vec<String>,
    /// Name of the run.
    pub run: String,
    /// Its identity, hexadecimal.
    pub run_id: String,
    /// Begin of the run, ns since 1970 UTC.
    pub start: i64,
    /// What the user says about it, JSON text; perhaps empty.
    pub metadata: String,
}

/// A NeXus file that is being written.
pub struct Nexus {
    job: Job,
    /// `None` once finished.
    file: Option<File>,
    room: Room,
    fillings: Vec<Filling>,
    routes: Vec<Route>,
    /// Fillings with rows in memory.
    touched: Vec<usize>,
    /// Links to growing datasets: target, link.
    links: Vec<(String, String)>,
    /// End of the run, ns since 1970 UTC, where it is known.
    stop: Option<i64>,
    broken: Option<Fault>,
    /// The last call failed for want of room.
    lacks_room: bool,
}

/// Which fillings want the messages of one input: by schema and origin.
#[derive(Default)]
struct Route {
    any: HashMap<[u8; 4], Vec<usize>>,
    by_source: HashMap<[u8; 4], HashMap<String, Vec<usize>>>,
}

impl Nexus {
    /// Lays out a new file. A file of the same run that stands there is replaced, any other only with `replace`.
    pub fn begin(job: Job, replace: bool) -> Result<Self, Fault> {
        check_inputs(&job)?;
        if !replace && job.file.exists() && !is_of_run(&job) {
            return Err(Fault::new(format!("{} exists", job.file.display()), "it is not a file of this run")
                .hint("remove it, or choose another name"));
        }
        let beside = beside(&job.file)?;
        let file = File::create(&beside)?;
        let mut room = Room::open(&beside)?;
        // Up to here nothing was reserved: libhdf5 has written at most a superblock.
        room.reserve(file.end()? + METADATA_ROOM_BYTES)?;
        let mut layout = Layout { file: &file, room: &mut room, fillings: Vec::new(), links: Vec::new(), job: &job };
        layout.root()?;
        let (fillings, links) = (layout.fillings, layout.links);
        room.reserve(file.end()? + METADATA_ROOM_BYTES)?;
        file.flush()?;
        room.forget(file.end()?);
        room.sync()?;
        let moved = std::fs::rename(&beside, &job.file).and_then(|()| sync_folder(&job.file));
        moved.map_err(|e| Fault::new(format!("{} cannot be made", job.file.display()), e))?;
        room.renamed(&job.file);
        Ok(Self::with(job, file, room, fillings, links))
    }

    /// Goes on with a file as `state` (of the last commit) says. An error says why it cannot be resumed; then
    /// [`Nexus::begin`] with `replace` and from the first message on.
    pub fn resume(job: Job, state: &str) -> Result<Self, Fault> {
        check_inputs(&job)?;
        let other = |cause: &str| Fault::new(format!("{} cannot be gone on with", job.file.display()), cause);
        let state: Value = serde_json::from_str(state).map_err(|e| other(&e.to_string()))?;
        if state["version"] != STATE_VERSION {
            return Err(other("its state is of another version"));
        }
        if state["template"] != job.template.digest.as_str() {
            return Err(other("the template is not the one it began with"));
        }
        // Cutting moves rows that libhdf5 then holds in its caches, and the writer works past these: once more, fresh.
        let file = File::open(&job.file, true)?;
        let mut room = Room::open(&job.file)?;
        room.reserve(file.end()? + METADATA_ROOM_BYTES)?;
        for filling in &take_up(&job, &file, &room, &state)? {
            filling.columns.iter().try_for_each(Column::cut)?;
        }
        room.reserve(file.end()? + METADATA_ROOM_BYTES)?;
        file.close()?;
        let file = File::open(&job.file, true)?;
        let room = Room::open(&job.file)?;
        let fillings = take_up(&job, &file, &room, &state)?;
        let links = growing_links(&job.template, &fillings);
        Ok(Self::with(job, file, room, fillings, links))
    }

    fn with(job: Job, file: File, room: Room, fillings: Vec<Filling>, links: Vec<(String, String)>) -> Self {
        let mut routes: Vec<Route> = job.inputs.iter().map(|_| Route::default()).collect();
        for (at, (_, module)) in job.template.modules().into_iter().enumerate() {
            let schema = schema(&module.kind);
            for (input, route) in job.inputs.iter().zip(&mut routes) {
                if *input != module.stream {
                    continue;
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
        Self {
            job,
            file: Some(file),
            room,
            fillings,
            routes,
            touched: Vec::new(),
            links,
            stop: None,
            broken: None,
            lacks_room: false,
        }
    }

    /// Says when the run ended, ns since 1970 UTC: `end_time` of the file.
    pub fn set_stop(&mut self, stop: i64) {
        self.stop = Some(stop);
    }

    /// Whether libhdf5 itself failed: the process should end at once, without closing anything.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
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
        self.room.was_short();
        let answer = f(self, &file);
        self.file = Some(file);
        self.lacks_room = answer.is_err() && self.room.was_short();
        if let (Err(fault), false) = (&answer, self.lacks_room) {
            self.broken = Some(fault.clone());
        }
        answer
    }

    /// Writes what is due; everything, where `all`.
    fn drain(&mut self, file: &File, all: bool) -> Result<(), Fault> {
        for at in std::mem::take(&mut self.touched) {
            let answer = self.drain_one(file, at, all);
            // What is still in memory stays on the list.
            if answer.is_err() || !all {
                self.touched.push(at);
            } else {
                self.fillings[at].touched = false;
            }
            if let Err(fault) = answer {
                self.touched = (0..self.fillings.len()).filter(|i| self.fillings[*i].touched).collect();
                return Err(fault);
            }
        }
        Ok(())
    }

    fn drain_one(&mut self, file: &File, at: usize, all: bool) -> Result<(), Fault> {
        let Self { fillings, room, links, .. } = self;
        let filling = &mut fillings[at];
        while let Some(late) = filling.late.last() {
            room.reserve(file.end()? + METADATA_ROOM_BYTES + late_bytes(late))?;
            match late {
                Late::Attribute(object, name, value) => file.set_attribute(object, name, value)?,
                Late::Dataset((path, value, attributes)) => write_fixed(file, path, value, attributes)?,
            }
            filling.late.pop();
        }
        for column in &mut filling.columns {
            if !all && !column.is_due() {
                continue;
            }
            room.reserve(file.end()? + METADATA_ROOM_BYTES)?;
            if column.fit(file)? {
                for (_, link) in links.iter().filter(|(target, _)| *target == column.design.path) {
                    if file.exists(link)? {
                        file.unlink(link)?;
                    }
                    file.link(&column.design.path, link)?;
                }
            }
            column.write_out(file, room, all)?;
        }
        Ok(())
    }

    /// Everything to the disk.
    fn settle(&mut self, file: &File) -> Result<(), Fault> {
        self.drain(file, true)?;
        self.room.reserve(file.end()? + METADATA_ROOM_BYTES)?;
        file.flush()?;
        self.room.forget(file.end()?);
        self.room.sync()
    }

    fn state(&self) -> String {
        let modules: Vec<Value> = self.fillings.iter().map(Filling::state).collect();
        json!({"version": STATE_VERSION, "template": self.job.template.digest, "modules": modules}).to_string()
    }

    fn take(&mut self, input: usize, message: &Message<'_>) -> Result<(), &'static str> {
        let schema = message.entry.schema.0;
        if wire::schema_id(message.payload) != Some(schema) {
            return Err(if message.payload.len() < 8 { "broken" } else { "schema" });
        }
        if ![wire::ev44::ID, wire::f144::ID, wire::al00::ID, wire::se00::ID, wire::da00::ID].contains(&schema) {
            return Err("schema");
        }
        let read = wire::read(message.payload).map_err(|_| "broken")?;
        let source = match &read {
            wire::Message::Ev44(m) => m.source_name,
            wire::Message::F144(m) => m.source_name,
            wire::Message::Al00(m) => m.source_name,
            wire::Message::Se00(m) => m.name,
            wire::Message::Da00(m) => m.source_name,
            _ => return Err("schema"),
        };
        let Self { routes, fillings, touched, .. } = self;
        let route = routes.get(input).ok_or("unmatched")?;
        let named = route.by_source.get(&schema).and_then(|sources| sources.get(source));
        let wanted = named.into_iter().chain(route.any.get(&schema)).flatten();
        // Done if somebody took it; aside with the last reason if nobody could.
        let mut answer = Err("unmatched");
        for &at in wanted {
            let was_touched = fillings[at].touched;
            match fillings[at].take(&read) {
                Ok(()) => {
                    if !was_touched {
                        touched.push(at);
                    }
                    answer = Ok(());
                }
                Err(reason) if answer.is_err() => answer = Err(reason),
                Err(_) => (),
            }
        }
        answer
    }

    fn last_words(&mut self, file: &File, account: &str) -> Result<(), Fault> {
        let mut words: Vec<Fixed> = self.fillings.iter().flat_map(Filling::last_words).collect();
        if let Some(stop) = self.stop {
            for path in end_times(&self.job.template) {
                words.push((path, Data::text(clock::iso8601(stop)), Vec::new()));
            }
        }
        let entry = self.job.template.entry();
        let tables = account::tables(&format!("{entry}/beamport"), account);
        for (group, columns) in tables {
            self.room.reserve(file.end()? + METADATA_ROOM_BYTES)?;
            if !file.exists(&group)? {
                file.make_group(&group)?;
                file.set_attribute(&group, "NX_class", &Data::text("NXcollection"))?;
            }
            words.extend(columns.into_iter().map(|(name, value)| (format!("{group}/{name}"), value, Vec::new())));
        }
        for (path, value, attributes) in words {
            self.room.reserve(file.end()? + METADATA_ROOM_BYTES + data_bytes(&value))?;
            write_fixed(file, &path, &value, &attributes)?;
        }
        Ok(())
    }
}

impl Sink for Nexus {
    fn write(&mut self, input: usize, messages: &[Message<'_>], aside: &mut Vec<Aside>) -> Result<(), Fault> {
        // What found no room last time goes first: until then nothing more is taken, and nothing is taken twice.
        self.with_file(|me, file| me.drain(file, false))?;
        for message in messages {
            if let Err(reason) = self.take(input, message) {
                aside.push(Aside { sequence: message.sequence, reason });
            }
        }
        match self.with_file(|me, file| me.drain(file, false)) {
            // The messages are taken; the next call says that there is no room.
            Err(_) if self.broken.is_none() => Ok(()),
            answer => answer,
        }
    }

    fn flush(&mut self) -> Result<String, Fault> {
        self.with_file(Self::settle)?;
        Ok(self.state())
    }

    fn finish(&mut self, account: &str) -> Result<Product, Fault> {
        self.with_file(|me, file| {
            me.drain(file, true)?;
            me.last_words(file, account)?;
            me.settle(file)
        })?;
        if let Some(file) = self.file.take() {
            // All its dataset handles go before the file.
            self.fillings.clear();
            if let Err(fault) = file.close() {
                self.broken = Some(fault.clone());
                return Err(fault);
            }
        }
        self.room.trim()?;
        self.room.sync()?;
        product(&self.job.file)
    }
}

/// Size and hash of a finished file.
pub fn product(path: &Path) -> Result<Product, Fault> {
    use std::io::Read;
    let unreadable = |e: std::io::Error| Fault::new(format!("{} cannot be read again", path.display()), e);
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    let (mut hash, mut size, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let bytes = file.read(&mut buffer).map_err(unreadable)?;
        if bytes == 0 {
            break;
        }
        hash.update(&buffer[..bytes]);
        size += bytes as u64;
    }
    let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Product { file: path.display().to_string(), size, sha256 })
}

/// What is written once, from the template.
struct Layout<'a> {
    file: &'a File,
    room: &'a mut Room,
    fillings: Vec<Filling>,
    links: Vec<(String, String)>,
    job: &'a Job,
}

impl Layout<'_> {
    fn root(&mut self) -> Result<(), Fault> {
        let job = self.job;
        let name = job.file.file_name().unwrap_or_default().to_string_lossy().replace('\0', "");
        let entry = job.template.entry();
        let mut attributes = vec![
            ("NX_class", "NXroot".to_owned()),
            ("file_name", name),
            ("file_time", clock::iso8601(clock::now())),
            ("creator", format!("beamport {}", env!("CARGO_PKG_VERSION"))),
            ("HDF5_Version", h5::version()),
            ("beamport_run", job.run_id.clone()),
            ("beamport_template", job.template.digest.clone()),
        ];
        if let Some(entry) = entry.strip_prefix('/') {
            attributes.push(("default", entry.to_owned()));
        }
        for (name, value) in attributes {
            self.file.set_attribute("", name, &Data::text(value))?;
        }
        self.inside(&job.template.root, "")?;
        let collection = format!("{entry}/beamport");
        self.file.make_group(&collection)?;
        self.file.set_attribute(&collection, "NX_class", &Data::text("NXcollection"))?;
        let metadata = job.metadata.replace('\0', "");
        for (name, value) in [("run", job.run.as_str()), ("run_id", &job.run_id), ("metadata", &metadata)] {
            let value = Data::text(value.replace('\0', ""));
            self.room.reserve(self.file.end()? + METADATA_ROOM_BYTES + data_bytes(&value))?;
            self.file.write_dataset(&format!("{collection}/{name}"), &value)?;
        }
        // Links last: everything they name is there.
        self.links(&job.template.root, "")?;
        self.links = growing_links(&job.template, &self.fillings);
        Ok(())
    }

    fn inside(&mut self, group: &Group, path: &str) -> Result<(), Fault> {
        for attribute in &group.attributes {
            self.file.set_attribute(path, &attribute.name, &attribute.value)?;
        }
        for node in &group.children {
            self.room.reserve(self.file.end()? + METADATA_ROOM_BYTES)?;
            match node {
                Node::Group(inner) => {
                    let inner_path = format!("{path}/{}", inner.name);
                    self.file.make_group(&inner_path)?;
                    self.inside(inner, &inner_path)?;
                }
                Node::Dataset { name, value, attributes } => {
                    let path = format!("{path}/{name}");
                    self.room.reserve(self.file.end()? + METADATA_ROOM_BYTES + data_bytes(value))?;
                    self.file.write_dataset(&path, value)?;
                    for attribute in attributes {
                        self.file.set_attribute(&path, &attribute.name, &attribute.value)?;
                    }
                }
                Node::Times { start: true, .. } => {
                    let start = Data::text(clock::iso8601(self.job.start));
                    self.file.write_dataset(&format!("{path}/start_time"), &start)?;
                }
                Node::Module(module) => {
                    if let Kind::Da00 { constants, .. } = &module.kind {
                        for (path, value, attributes) in fixed_constants(path, constants) {
                            self.room.reserve(self.file.end()? + METADATA_ROOM_BYTES + data_bytes(&value))?;
                            write_fixed(self.file, &path, &value, &attributes)?;
                        }
                    }
                    self.fillings.push(Filling::make(self.file, path, module)?);
                }
                Node::Times { .. } | Node::Link { .. } => (),
            }
        }
        Ok(())
    }

    fn links(&mut self, group: &Group, path: &str) -> Result<(), Fault> {
        for node in &group.children {
            match node {
                Node::Group(inner) => self.links(inner, &format!("{path}/{}", inner.name))?,
                Node::Link { name, target } => {
                    let target: String = target.iter().map(|s| format!("/{s}")).collect();
                    // What is written at the end only (`end_time`, `minimum_value`) cannot be named before.
                    if self.file.exists(&target)? {
                        self.file.link(&target, &format!("{path}/{name}"))?;
                    }
                }
                _ => (),
            }
        }
        Ok(())
    }
}

fn write_fixed(file: &File, path: &str, value: &Data, attributes: &[(&'static str, Data)]) -> Result<(), Fault> {
    file.write_dataset(path, value)?;
    attributes.iter().try_for_each(|(name, value)| file.set_attribute(path, name, value))
}

/// Bytes that a fixed dataset may need, generously.
fn data_bytes(value: &Data) -> u64 {
    use crate::template::Values;
    match &value.values {
        Values::Texts(texts) => texts.iter().map(|t| t.len() as u64 * 2 + 4096 + 64).sum(),
        _ => value.count() * 8,
    }
}

fn late_bytes(late: &Late) -> u64 {
    match late {
        Late::Attribute(..) => 0,
        Late::Dataset((_, value, _)) => data_bytes(value),
    }
}

/// Links whose target is a dataset that grows: it may be made anew once.
fn growing_links(template: &Template, fillings: &[Filling]) -> Vec<(String, String)> {
    fn walk(group: &Group, path: &str, out: &mut Vec<(String, String)>) {
        for node in &group.children {
            match node {
                Node::Group(inner) => walk(inner, &format!("{path}/{}", inner.name), out),
                Node::Link { name, target } => {
                    out.push((target.iter().map(|s| format!("/{s}")).collect(), format!("{path}/{name}")));
                }
                _ => (),
            }
        }
    }
    let mut out = Vec::new();
    walk(&template.root, "", &mut out);
    let growing: std::collections::HashSet<&str> =
        fillings.iter().flat_map(|f| &f.columns).map(|c| c.design.path.as_str()).collect();
    out.retain(|(target, _)| growing.contains(target.as_str()));
    out
}

/// Paths of the `end_time`s.
fn end_times(template: &Template) -> Vec<String> {
    fn walk(group: &Group, path: &str, out: &mut Vec<String>) {
        for node in &group.children {
            match node {
                Node::Group(inner) => walk(inner, &format!("{path}/{}", inner.name), out),
                Node::Times { end: true, .. } => out.push(format!("{path}/end_time")),
                _ => (),
            }
        }
    }
    let mut out = Vec::new();
    walk(&template.root, "", &mut out);
    out
}

fn schema(kind: &Kind) -> [u8; 4] {
    match kind {
        Kind::Ev44 => wire::ev44::ID,
        Kind::F144 { .. } => wire::f144::ID,
        Kind::Al00 => wire::al00::ID,
        Kind::Se00 { .. } => wire::se00::ID,
        Kind::Da00 { .. } => wire::da00::ID,
    }
}

fn take_up(job: &Job, file: &File, room: &Room, state: &Value) -> Result<Vec<Filling>, Fault> {
    let modules = job.template.modules();
    let states = state["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
    if states.len() != modules.len() {
        return Err(Fault::new(
            format!("{} cannot be gone on with", job.file.display()),
            "its state is of another template",
        ));
    }
    let one = |((path, module), state): ((String, _), _)| Filling::take_up(file, room, &path, module, state);
    modules.into_iter().zip(states).map(one).collect()
}

/// Every stream of the template must be an input.
fn check_inputs(job: &Job) -> Result<(), Fault> {
    for (_, module) in job.template.modules() {
        if !job.inputs.contains(&module.stream) {
            return Err(Fault::new(
                format!("the template wants the stream `{}`", module.stream),
                format!("the inputs are: {}", job.inputs.join(", ")),
            )
            .hint(format!("add it to `inputs` of the sink, or change `stream` at {}", module.pointer)));
        }
    }
    Ok(())
}

/// Where a file is laid out before it has its name.
fn beside(file: &Path) -> Result<PathBuf, Fault> {
    let name = file.file_name().ok_or_else(|| Fault::new(format!("{} is not a file's name", file.display()), ""))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    Ok(file.with_file_name(hidden))
}

fn sync_folder(file: &Path) -> std::io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::File::open(folder)?.sync_all()
}

/// Whether the file that stands there was begun for this run; one that does not open was not.
fn is_of_run(job: &Job) -> bool {
    let Ok(file) = File::open(&job.file, false) else { return false };
    let run = file.text_attribute("beamport_run");
    // Read only: closing writes nothing.
    let _ = file.close();
    run.is_some_and(|run| run == job.run_id)
}
