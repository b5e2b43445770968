//! The sink `files`: the frames of each stream in HDF5 files of at most N frames each, in a folder of the run.
//!
//! ```text
//! FOLDER/run_camera_000001.h5    complete; never changed after the commit that says so
//! FOLDER/run_camera_000002.h5    grows
//! FOLDER/B3SUMS                  a line for each complete file, as `b3sum --check` reads it
//! ```
//!
//! * Each file is a NeXus file of its own ([`Nexus`], with a template made here). A frame that a file cannot hold, because
//!   it is full or has frames of another shape, type or too many other attributes, begins the next one.
//! * The state of a commit is the number of the file that grows, the state of that file, and the length of `B3SUMS`: it
//!   does not grow with the run. A restarted writer resumes in that file, even if an earlier one had got further: files
//!   with higher numbers are deleted, `B3SUMS` is cut, and the frames are delivered again.
//! * A thread reads the parts of a file that were not hashed while it was written (`hash_tree`), while the next file
//!   grows; one at a time for each stream, so a faster writer waits.
//! * The account of the run stands in the last file of each stream.
//!
//! Failure: no room, here too, loses nothing: the same call works when there is room, and skips the messages of that
//! call that were accepted before. A file of that name that does not belong to the run is not replaced, and where the
//! folder's name is that of a link or a file, nothing is written: the work is refused.

use super::job::{Job, is_of_run};
use super::product::product;
use super::sink::{Nexus, NotMade};
use crate::hdf::hash_tree::Tree;
use crate::hdf::place::{beside, cleared, sync_folder};
use crate::module::ANOTHER;
use crate::template::Template;
use flow::job::{Compression, Word as _};
use flow::{Aside, Fault, Product, Sink};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use store::Message;

/// Version of the state that `flush` returns.
const STATE_VERSION: u64 = 2;

/// Name of the list of files with their hashes.
pub const SUMS: &str = "B3SUMS";

/// The files to write, and their run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Folder of the run; it is made in a folder that is there.
    pub folder: PathBuf,
    /// Names of the files, with `{stream}` and `{number}` to be filled in.
    pub name: String,
    /// Frames of a file, at most; 1 or more.
    pub frames: u64,
    /// How their chunks are packed.
    pub compression: Compression,
    /// Names of the streams; their places are the input numbers of [`Sink::write`].
    pub inputs: Vec<String>,
    /// Name of the run.
    pub run: String,
    /// Its identity, hexadecimal.
    pub run_id: String,
    /// Begin of the run, ns since 1970 UTC.
    pub start: i64,
    /// The user's metadata of the run, JSON text; may be empty.
    pub metadata: String,
}

impl Plan {
    /// A file of a stream.
    fn job(&self, stream: &str, number: u64) -> Result<Job, Fault> {
        let name = self.name.replace("{stream}", stream).replace("{number}", &format!("{number:06}"));
        Ok(Job {
            file: self.folder.join(name),
            template: template(stream, self.compression)?,
            inputs: vec![stream.to_owned()],
            run: self.run.clone(),
            run_id: self.run_id.clone(),
            start: self.start,
            metadata: self.metadata.clone(),
        })
    }

    /// What [`Files::begin`] refuses, now and later: names that belong to something else.
    pub fn check(&self, replace: bool) -> Result<(), Fault> {
        self.check_folder()?;
        let sums = self.folder.join(SUMS);
        let mut is_ours = replace || !sums.exists();
        for stream in &self.inputs {
            let job = self.job(stream, 1)?;
            job.check(replace)?;
            is_ours |= job.file.exists();
        }
        if is_ours {
            return Ok(());
        }
        Err(Fault::new(format!("{} exists", sums.display()), "its folder has no files of this run")
            .hint("remove it, or choose another folder"))
    }

    /// What has the folder's name must be a folder: a link, whoever left it, would lead the files out of that of the sink.
    fn check_folder(&self) -> Result<(), Fault> {
        match std::fs::symlink_metadata(&self.folder) {
            Ok(there) if !there.is_dir() => {
                let cause = if there.is_symlink() { "it is a link" } else { "it is not a folder" };
                Err(Fault::new(format!("{} exists", self.folder.display()), cause)
                    .hint("remove it, or choose another name"))
            }
            _ => Ok(()),
        }
    }

    /// Makes the folder, where it is not there.
    fn make_folder(&self) -> Result<(), Fault> {
        match std::fs::create_dir(&self.folder) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Fault::new(format!("cannot create folder `{}`", self.folder.display()), e))
            }
            _ => self.check_folder(),
        }
    }
}

/// A file that holds nothing but the frames of a stream.
fn template(stream: &str, compression: Compression) -> Result<Template, Fault> {
    let mut frames = json!({"stream": stream});
    if compression != Compression::None {
        frames["compression"] = compression.word().into();
    }
    let text = json!({"children": [{
        "type": "group", "name": "entry", "attributes": {"NX_class": "NXentry", "default": "data"},
        "children": [
            {"module": "mdat", "config": {"items": ["start_time", "end_time"]}},
            {"type": "group", "name": "data", "children": [{"module": "ad00", "config": frames}]}]}]});
    Template::parse(text.to_string().as_bytes()).map_err(|mistakes| {
        let first = mistakes.first().map(|m| m.told()).unwrap_or_default();
        Fault::new(format!("cannot write stream `{stream}` to files of frames"), first)
    })
}

/// Whether a file had no frames when it was in this state.
fn is_empty(state: &str) -> bool {
    let state: Value = serde_json::from_str(state).unwrap_or_default();
    state["modules"][0]["messages"] == 0
}

/// Why a step was not done.
enum Stop {
    /// For lack of room: a retry may succeed.
    Room(Fault),
    /// For a permanent reason.
    Refused(Fault),
    Other(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Other(fault)
    }
}

/// Whether the last call of a file failed for want of room.
fn of_sink(sink: &Nexus) -> impl FnOnce(Fault) -> Stop {
    let short = sink.lacks_room();
    move |fault| if short { Stop::Room(fault) } else { Stop::Other(fault) }
}

/// The files of a run that are being written.
pub struct Files {
    plan: Plan,
    series: Vec<Series>,
    sums: Sums,
    /// End of the run, ns since 1970 UTC, where it is known.
    stop: Option<i64>,
    /// How the last call failed.
    lacks_room: bool,
    is_refused: bool,
}

/// The files of one stream.
struct Series {
    stream: String,
    /// The file that grows or, without `sink`, that comes next.
    number: u64,
    sink: Option<Nexus>,
    /// The file is the last, and whole.
    ended: bool,
    /// Of the file, at the last flush.
    state: String,
    hashing: VecDeque<Hashing>,
    /// Messages below were accepted, though the call that brought them may have failed.
    taken: u64,
    /// Those of them that were set aside and are not reported yet.
    aside: Vec<Aside>,
}

struct Hashing {
    number: u64,
    thread: JoinHandle<Result<Product, Fault>>,
}

impl Files {
    /// Begins with the first file of each stream. Files of the same run that stand there are replaced, any others only with
    /// `replace`.
    pub fn begin(plan: Plan, replace: bool) -> Result<Self, Fault> {
        plan.check(replace)?;
        plan.make_folder()?;
        let mut series = Vec::new();
        for stream in &plan.inputs {
            let mut one = Series::of(stream, 1);
            one.begin(&plan, replace).map_err(Stop::fault)?;
            series.push(one);
        }
        let sums = Sums::create(&plan.folder)?;
        Ok(Self { plan, series, sums, stop: None, lacks_room: false, is_refused: false })
    }

    /// Goes on as `state` (of the last commit) says. An error says why that cannot be; then [`Files::begin`] with `replace`
    /// and from the first message on.
    pub fn resume(plan: Plan, state: &str) -> Result<Self, Fault> {
        let other = |cause: String| Fault::new(format!("cannot resume the files in {}", plan.folder.display()), cause);
        let state: Value = serde_json::from_str(state).map_err(|e| other(e.to_string()))?;
        if state["version"] != STATE_VERSION || state["name"] != plan.name.as_str() {
            return Err(other("the state is of another version, or of files with other names".into()));
        }
        plan.make_folder()?;
        let mut series = Vec::new();
        for stream in &plan.inputs {
            let known = &state["series"][stream];
            let (Some(number), Some(file)) = (known["number"].as_u64(), known["file"].as_str()) else {
                return Err(other(format!("the state does not know stream `{stream}`")));
            };
            let mut one = Series::of(stream, number);
            one.state = file.to_owned();
            if is_empty(file) {
                // It may have rows by now, of whatever shape came first: none that a commit knows.
                one.begin(&plan, true).map_err(Stop::fault)?;
            } else {
                // First: who is killed between must not leave frames behind a gap.
                one.remove_later(&plan)?;
                let mut sink = Nexus::resume(plan.job(stream, number)?, file)?;
                sink.set_frames_max(plan.frames);
                one.sink = Some(sink);
            }
            for number in known["hashing"].as_array().into_iter().flatten().filter_map(Value::as_u64) {
                one.hash(&plan, number, Tree::default())?;
            }
            series.push(one);
        }
        let sums = Sums::resume(&plan.folder, &state["sums"])?;
        Ok(Self { plan, series, sums, stop: None, lacks_room: false, is_refused: false })
    }

    /// Says when the run ended, ns since 1970 UTC: `end_time` of the last file of each stream.
    pub fn set_stop(&mut self, stop: i64) {
        self.stop = Some(stop);
    }

    /// Whether libhdf5 itself failed: the process should end at once, without closing anything.
    pub fn is_broken(&self) -> bool {
        self.series.iter().filter_map(|series| series.sink.as_ref()).any(Nexus::is_broken)
    }

    /// Whether the last call failed for want of room: the same call works when there is room.
    pub fn lacks_room(&self) -> bool {
        self.lacks_room
    }

    /// Whether the last call failed for what will be the same the next time.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    fn told<T>(&mut self, answer: Result<T, Stop>) -> Result<T, Fault> {
        self.lacks_room = matches!(answer, Err(Stop::Room(_)));
        self.is_refused = matches!(answer, Err(Stop::Refused(_)));
        answer.map_err(Stop::fault)
    }

    fn flush_all(&mut self) -> Result<String, Stop> {
        let mut series = serde_json::Map::new();
        for one in &mut self.series {
            if !one.ended {
                let sink = one.open(&self.plan)?;
                match sink.flush() {
                    Ok(state) => one.state = state,
                    Err(fault) => return Err(of_sink(sink)(fault)),
                }
            }
            one.gather(&mut self.sums, false)?;
            let hashing: Vec<u64> = one.hashing.iter().map(|h| h.number).collect();
            series.insert(one.stream.clone(), json!({"number": one.number, "file": one.state, "hashing": hashing}));
        }
        self.sums.write()?;
        let sums = self.sums.state();
        Ok(json!({"version": STATE_VERSION, "name": self.plan.name, "series": series, "sums": sums}).to_string())
    }

    fn finish_all(&mut self, account: &str) -> Result<Product, Stop> {
        for one in &mut self.series {
            if !one.ended {
                let sink = one.open(&self.plan)?;
                if let Some(stop) = self.stop {
                    sink.set_stop(stop);
                }
                sink.close(Some(account)).map_err(|fault| of_sink(sink)(fault))?;
                let tree = sink.take_tree();
                one.ended = true;
                one.sink = None;
                one.hash(&self.plan, one.number, tree)?;
            }
        }
        for one in &mut self.series {
            one.gather(&mut self.sums, true)?;
            one.remove_later(&self.plan)?;
        }
        self.sums.write()?;
        let Product { file, size, blake3, .. } = product(&self.sums.path, Tree::default())?;
        Ok(Product { file, size, blake3, files: self.sums.files, bytes: self.sums.bytes })
    }
}

impl Stop {
    fn fault(self) -> Fault {
        match self {
            Stop::Room(fault) | Stop::Refused(fault) | Stop::Other(fault) => fault,
        }
    }
}

impl Series {
    fn of(stream: &str, number: u64) -> Self {
        Self {
            stream: stream.to_owned(),
            number,
            sink: None,
            ended: false,
            state: String::new(),
            hashing: VecDeque::new(),
            taken: 0,
            aside: Vec::new(),
        }
    }

    /// Lays out the file that comes next.
    fn begin(&mut self, plan: &Plan, replace: bool) -> Result<(), Stop> {
        let job = plan.job(&self.stream, self.number)?;
        plan.check_folder().and_then(|()| job.check(replace)).map_err(Stop::Refused)?;
        self.remove_later(plan)?;
        let made = Nexus::lay_out(job, replace);
        let mut sink = made.map_err(|why| match why {
            NotMade::NoRoom(fault) => Stop::Room(fault),
            NotMade::Never(fault) => Stop::Refused(fault),
            NotMade::Other(fault) => Stop::Other(fault),
        })?;
        sink.set_frames_max(plan.frames);
        self.sink = Some(sink);
        Ok(())
    }

    /// The file that grows.
    fn open(&mut self, plan: &Plan) -> Result<&mut Nexus, Stop> {
        if self.sink.is_none() {
            self.begin(plan, false)?;
        }
        self.sink.as_mut().ok_or_else(|| Stop::Other(Fault::new("no file is open", "")))
    }

    /// Takes the messages, in as many files as they need.
    fn write(&mut self, plan: &Plan, sums: &mut Sums, messages: &[Message<'_>]) -> Result<(), Stop> {
        for message in messages {
            if message.sequence < self.taken {
                continue;
            }
            loop {
                let mut aside = Vec::new();
                let sink = self.open(plan)?;
                sink.write(0, std::slice::from_ref(message), &mut aside).map_err(|fault| of_sink(sink)(fault))?;
                if aside.iter().all(|one| one.reason != ANOTHER) {
                    self.aside.append(&mut aside);
                    break;
                }
                self.roll(plan, sums)?;
            }
            self.taken = message.sequence + 1;
        }
        Ok(())
    }

    /// Ends the file that grows; the next one is laid out with the next frame.
    fn roll(&mut self, plan: &Plan, sums: &mut Sums) -> Result<(), Stop> {
        let sink = self.open(plan)?;
        sink.close(None).map_err(|fault| of_sink(sink)(fault))?;
        let tree = sink.take_tree();
        self.sink = None;
        // One at a time.
        self.gather(sums, true)?;
        self.hash(plan, self.number, tree)?;
        self.number += 1;
        Ok(())
    }

    /// Starts a thread that hashes a complete file.
    fn hash(&mut self, plan: &Plan, number: u64, tree: Tree) -> Result<(), Fault> {
        let file = plan.job(&self.stream, number)?.file;
        let thread = std::thread::Builder::new().name("hash".into()).spawn(move || product(&file, tree));
        let thread = thread.map_err(|e| Fault::new("cannot start a thread", e))?;
        self.hashing.push_back(Hashing { number, thread });
        Ok(())
    }

    /// Notes the hashes that are known; all of them, where `all`.
    fn gather(&mut self, sums: &mut Sums, all: bool) -> Result<(), Fault> {
        while self.hashing.front().is_some_and(|h| all || h.thread.is_finished()) {
            let Some(Hashing { thread, .. }) = self.hashing.pop_front() else { break };
            let known = thread.join().map_err(|_| Fault::new("a file was not hashed", "its thread panicked"))??;
            sums.add(&known);
        }
        Ok(())
    }

    /// Removes files of this run with higher numbers, which an earlier writer had begun: the last first, so that none is
    /// left behind a gap.
    fn remove_later(&self, plan: &Plan) -> Result<(), Fault> {
        let failed = |path: &Path, e| Fault::new(format!("cannot remove {}", path.display()), e);
        let mut later = Vec::new();
        loop {
            let job = plan.job(&self.stream, self.number + 1 + later.len() as u64)?;
            let begun = beside(&job.file)?;
            if begun.exists() {
                std::fs::remove_file(&begun).map_err(|e| failed(&begun, e))?;
            }
            if !job.file.exists() {
                break;
            }
            later.push(job);
        }
        for job in later.iter().rev().filter(|job| is_of_run(job)) {
            std::fs::remove_file(&job.file).map_err(|e| failed(&job.file, e))?;
        }
        Ok(())
    }
}

impl Sink for Files {
    fn write(&mut self, input: usize, messages: &[Message<'_>], aside: &mut Vec<Aside>) -> Result<(), Fault> {
        let Self { plan, series, sums, .. } = self;
        let answer = match series.get_mut(input) {
            Some(series) => series.write(plan, sums, messages),
            None => Err(Stop::Other(Fault::new("a stream without a file", ""))),
        };
        self.told(answer)?;
        // What a failed call had taken may reach beyond these messages: the rest of it comes with the next ones.
        let (Some(series), Some(last)) = (self.series.get_mut(input), messages.last()) else { return Ok(()) };
        aside.extend(series.aside.extract_if(.., |one| one.sequence <= last.sequence));
        Ok(())
    }

    fn flush(&mut self) -> Result<String, Fault> {
        let answer = self.flush_all();
        self.told(answer)
    }

    fn finish(&mut self, account: &str) -> Result<Product, Fault> {
        let answer = self.finish_all(account);
        self.told(answer)
    }
}

/// The list of hashes, and what is not in the file yet.
struct Sums {
    path: PathBuf,
    file: File,
    /// Bytes of the file that count.
    length: u64,
    waiting: String,
    /// Files in the list, the waiting ones too.
    files: u64,
    /// Their bytes.
    bytes: u64,
}

impl Sums {
    fn create(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join(SUMS);
        let failed = |e| Fault::new(format!("cannot create {}", path.display()), e);
        cleared(&path)?;
        let file = File::create(&path).and_then(|file| sync_folder(&path).map(|()| file)).map_err(failed)?;
        Ok(Self { path, file, length: 0, waiting: String::new(), files: 0, bytes: 0 })
    }

    fn resume(folder: &Path, state: &Value) -> Result<Self, Fault> {
        let path = folder.join(SUMS);
        let other = |e: &dyn std::fmt::Display| Fault::new(format!("cannot resume {}", path.display()), e);
        let number = |at: usize| state[at].as_u64().ok_or_else(|| other(&"it is not in the state"));
        let (length, files, bytes) = (number(0)?, number(1)?, number(2)?);
        let file = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&path).map_err(|e| other(&e))?;
        if file.metadata().map_err(|e| other(&e))?.len() < length {
            return Err(other(&"it has become shorter"));
        }
        file.set_len(length).map_err(|e| other(&e))?;
        Ok(Self { path, file, length, waiting: String::new(), files, bytes })
    }

    fn state(&self) -> Value {
        json!([self.length, self.files, self.bytes])
    }

    /// Adds a complete file to the lines and totals of `B3SUMS`.
    fn add(&mut self, known: &Product) {
        let name = Path::new(&known.file).file_name().unwrap_or_default().to_string_lossy();
        self.waiting += &format!("{}  {name}\n", known.blake3);
        self.files += 1;
        self.bytes += known.size;
    }

    /// Makes what was noted durable.
    fn write(&mut self) -> Result<(), Stop> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let done = self.file.write_all_at(self.waiting.as_bytes(), self.length).and_then(|()| self.file.sync_data());
        if let Err(e) = done {
            let full = matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
            let what = if full { "there is no room for" } else { "the hashes are not written to" };
            let fault = Fault::new(format!("{what} {}", self.path.display()), e)
                .hint("free some space: writing then resumes; until then the streams keep the data");
            return Err(if full { Stop::Room(fault) } else { Stop::Other(fault) });
        }
        self.length += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}
