//! Sources that share a thread: what one of them does wrong is no matter of the others.

use beamport::Registry;
use beamport::file::{parse, unasked};
use beamport::mover::ask;
use beamport::up::{OnTerm, Started};
use flow::edge::{SourceKind, SourcePlan};
use flow::{Data, Fault, Outlet, Pushed, Resume, Source, Step};
use serde_json::{Value, json};
use settings::{Key, Section, Setting, required};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use store::{Kind, Meta, ReadOptions, SchemaId};

const MILLISECOND: i64 = 1_000_000;
/// A guard against hanging: nothing here takes a second.
const GUARD: Duration = Duration::from_secs(60);
/// Messages of the source without room, and bytes of each: four times the live end of its stream.
const LARGE: u64 = 40;
const LARGE_BYTES: usize = 100_000;

static DOES: Key = required("does", "a word", "What the source does in its steps.");
static TEST: SourceKind =
    SourceKind { name: "test", about: "A source of this test.", keys: &[&DOES], read, more: None };

/// The reports of the sources about themselves, by name.
static SEEN: Mutex<BTreeMap<String, Seen>> = Mutex::new(BTreeMap::new());
/// The reader of the stream `full` is there.
static HAS_READER: AtomicBool = AtomicBool::new(false);
/// The ends of the socket pairs of the source `socket`, one for each of its starts.
static SOCKETS: Mutex<Vec<UnixStream>> = Mutex::new(Vec::new());

#[derive(Clone, Debug, Default)]
struct Seen {
    starts: u64,
    pushed: u64,
    is_full: u64,
    threads: Vec<ThreadId>,
}

fn seen(name: &str) -> Seen {
    SEEN.lock().unwrap().get(name).cloned().unwrap_or_default()
}

#[derive(Debug)]
struct Plan {
    name: String,
    does: String,
}

fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let does: Setting<String> = section.need(&DOES);
    Some(Arc::new(Plan { name: name.into(), does: does.value }))
}

impl SourcePlan for Plan {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(Test { name: self.name.clone(), does: self.does.clone(), next: 0, steps: 0, socket: None }))
    }
}

struct Test {
    name: String,
    does: String,
    next: u64,
    steps: u64,
    socket: Option<UnixStream>,
}

impl Test {
    fn push(&mut self, now: i64, out: &mut dyn Outlet, bytes: &[u8]) -> Result<bool, Fault> {
        let origin = out.origin(&self.name)?;
        let meta = Meta { source_time: now, origin, origin_seq: self.next, schema: SchemaId(*b"test"), flags: 0 };
        let is_taken = out.push(&meta, bytes)? == Pushed::Taken;
        let mut seen = SEEN.lock().unwrap();
        let seen = seen.entry(self.name.clone()).or_default();
        self.next += u64::from(is_taken);
        seen.pushed += u64::from(is_taken);
        seen.is_full += u64::from(!is_taken);
        Ok(is_taken)
    }
}

impl Source for Test {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        self.next = resume.next_seq(&self.name);
        SEEN.lock().unwrap().entry(self.name.clone()).or_default().starts += 1;
        if self.does == "socket" {
            let (ours, theirs) = UnixStream::pair().map_err(|e| Fault::io("no socket", &e))?;
            theirs.set_nonblocking(true).map_err(|e| Fault::io("no socket", &e))?;
            self.socket = Some(theirs);
            SOCKETS.lock().unwrap().push(ours);
        }
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.steps += 1;
        let thread = std::thread::current().id();
        {
            let mut seen = SEEN.lock().unwrap();
            let seen = seen.entry(self.name.clone()).or_default();
            if !seen.threads.contains(&thread) {
                seen.threads.push(thread);
            }
        }
        let again = Step::At(now + MILLISECOND);
        match self.does.as_str() {
            "socket" => {
                let mut bytes = [0; 64];
                let count = self.socket.as_mut().map_or(0, |socket| socket.read(&mut bytes).unwrap_or(0));
                for byte in &bytes[..count] {
                    if *byte == b'!' {
                        return Err(Fault::new("the socket says so", ""));
                    }
                    let _ = self.push(now, out, &[*byte])?;
                }
                // Nothing but the socket wakes it.
                Ok(Step::At(now + 3600 * 1000 * MILLISECOND))
            }
            "fill" if !HAS_READER.load(Ordering::SeqCst) => Ok(again),
            "fill" => {
                while self.next < LARGE {
                    if !self.push(now, out, &[0; LARGE_BYTES])? {
                        break;
                    }
                }
                Ok(Step::At(now + 60_000 * MILLISECOND))
            }
            "panic" if self.steps == 5 => panic!("fifth step"),
            "fail" if self.steps == 5 => Err(Fault::new("this source fails", "it always does")),
            "stall" => {
                std::thread::sleep(Duration::from_millis(5));
                self.push(now, out, b"1").map(|_| again)
            }
            _ => self.push(now, out, b"1").map(|_| again),
        }
    }

    fn status(&self) -> Value {
        if self.does == "count" { json!({"pushed": self.next, "from": "here"}) } else { Value::Null }
    }

    fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        match request.as_i64() {
            Some(number) => Ok(json!(number + 1)),
            None => Err(Fault::new("it takes numbers", "")),
        }
    }

    fn trouble(&self) -> Option<Fault> {
        (self.does == "count").then(|| Fault::new("the outside speaks slowly", "1 line a minute"))
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.socket.as_ref().map(AsRawFd::as_raw_fd)
    }
}

struct Lab(PathBuf);

impl Drop for Lab {
    fn drop(&mut self) {
        let data = Data::on_disk(self.0.join("beamport-data/shared"));
        for name in data.streams(true).unwrap_or_default() {
            if let Ok(header) = store::Header::read(data.media.as_ref(), &data.stream(&name)) {
                let _ = std::fs::remove_dir_all(header.live);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < GUARD, "{what} does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The numbers that the stream of a source holds.
fn numbers(data: &Data, name: &str) -> Vec<u64> {
    let mut reader = data.reader_early(name).unwrap();
    let mut numbers = Vec::new();
    loop {
        let batch = reader.read(512).unwrap();
        if batch.is_empty() {
            return numbers;
        }
        numbers.extend(batch.iter().map(|message| message.entry.origin_seq));
    }
}

#[test]
fn a_source_that_fails_panics_stalls_or_has_no_room_takes_nothing_from_those_that_share_its_thread() {
    let lab = Lab(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("receiver-{}", std::process::id())));
    std::fs::create_dir_all(&lab.0).unwrap();
    let source = |name: &str, does: &str, more: &str| {
        format!("[source.{name}]\nkind = \"test\"\ndoes = \"{does}\"\nlevel = \"memory\"\n{more}")
    };
    let shared = "receiver = \"one\"\n";
    let small = "receiver = \"one\"\nlive = \"1 MiB\"\n";
    let text = [
        "instrument = \"shared\"\n".to_owned(),
        source("\\\"steady{1..3}\\\"", "count", shared).replace('\\', ""),
        source("panics", "panic", shared),
        source("fails", "fail", shared),
        source("stalls", "stall", shared),
        source("full", "fill", small),
        source("socket", "socket", shared),
        source("alone", "count", ""),
        "[run.first]\n".to_owned(),
    ]
    .concat();
    let registry = Registry::builtin().source(&TEST);
    let instrument = parse(&text, &lab.0.join("shared.toml"), &registry, &unasked).unwrap();
    let folder = instrument.data.value.clone();
    let data = Data::on_disk(&folder);
    let mover = std::thread::spawn(move || {
        Started::new(instrument, &Registry::builtin(), Some(OnTerm::EndRuns))
            .and_then(|started| started.to_report(true))
    });

    // A reader that keeps all of `full`.
    wait_for("the run", || ask(&folder, &json!({"command": "status"})).is_ok());
    let options = ReadOptions { name: "keeper".into(), kind: Kind::Counted, early: true, ..ReadOptions::default() };
    let mut keeper = data.reader("full", options).unwrap();
    HAS_READER.store(true, Ordering::SeqCst);

    // Its source has no room, others end again and again, and these go on.
    wait_for("a full stream", || seen("full").is_full > 0);
    let steady = ["steady1", "steady2", "steady3", "alone"];
    let before = steady.map(|name| seen(name).pushed);
    wait_for("messages of the others", || steady.iter().zip(before).all(|(name, n)| seen(name).pushed > n + 50));
    wait_for("restarts", || seen("panics").starts > 3 && seen("fails").starts > 3);
    assert!(seen("full").pushed < LARGE, "{:?}", seen("full"));
    wait_for("a report of the one that stalls", || {
        let status = ask(&folder, &json!({"command": "status"})).unwrap();
        let troubles = status["troubles"].to_string();
        assert!(!troubles.contains("`steady1` delays"), "{troubles}");
        troubles.contains("source `stalls` delays the others of receiver `one`")
    });
    let mut top = Command::new(env!("CARGO_BIN_EXE_beamport"));
    let top = top.arg("top").env("BEAMPORT_DATA", &folder).output().unwrap();
    let top = String::from_utf8(top.stdout).unwrap();
    assert!(top.contains("source `stalls` delays the others of receiver `one`"), "{top}");

    // A report of a source has the source's name.
    let running = |name: &str| ask(&folder, &json!({"command": "status"})).unwrap()["running"][name].clone();
    wait_for("the status of a source", || running("steady1")["status"]["pushed"].as_u64() > Some(0));
    assert_eq!(running("steady1")["trouble"]["what"], "source `steady1`: the outside speaks slowly");
    assert_eq!((&running("alone")["kind"], &running("socket")["status"]), (&json!("source"), &Value::Null));
    let line = top.lines().find(|line| line.starts_with("steady1") && line.contains("source")).unwrap_or(&top);
    assert!(line.contains("from=\"here\" pushed="), "{top}");
    assert!(top.contains("error: source `steady1`: the outside speaks slowly\ncause: 1 line a minute"), "{top}");

    // A source answers in its own thread: one that shares it, one that rests, one without room.
    for name in ["steady1", "alone", "socket", "full"] {
        let asked = |value: Value| ask(&folder, &json!({"command": "ask", "source": name, "request": value}));
        assert_eq!(asked(json!(41)).unwrap(), json!({"answer": 42}), "{name}");
        assert_eq!(asked(json!("x")).unwrap_err().what, format!("source `{name}`: it takes numbers"));
    }
    let fault = ask(&folder, &json!({"command": "ask", "source": "steady", "request": 1})).unwrap_err();
    assert_eq!(fault.hint, "did you mean `steady1`?");

    // The reader moves on: there is room, of which no time tells the source.
    let mut taken = 0;
    wait_for("the rest of the full stream", || {
        let batch = keeper.read(4).unwrap();
        let (count, next) = (batch.len() as u64, batch.next());
        taken += count;
        if count > 0 {
            keeper.seek(next);
            keeper.commit(next);
        }
        taken == LARGE
    });

    // A descriptor wakes its source, that of a source that was started again as well.
    let say = |bytes: &[u8]| SOCKETS.lock().unwrap().last().unwrap().write_all(bytes).unwrap();
    say(b"abc");
    wait_for("three bytes", || seen("socket").pushed == 3);
    say(b"!");
    wait_for("another socket", || SOCKETS.lock().unwrap().len() == 2);
    say(b"de");
    wait_for("two bytes", || seen("socket").pushed == 5);

    ask(&folder, &json!({"command": "end", "run": "first"})).unwrap();
    mover.join().unwrap().unwrap();

    let one = seen("steady1").threads;
    assert_eq!(one.len(), 1);
    for name in ["steady2", "steady3", "panics", "fails", "stalls", "full", "socket"] {
        assert_eq!(seen(name).threads, one, "{name}");
    }
    assert_ne!(seen("alone").threads, one);
    let all = ["steady1", "steady2", "steady3", "alone", "panics", "fails", "stalls", "full", "socket"];
    for name in all {
        let Seen { starts, pushed, .. } = seen(name);
        assert_eq!(starts > 1, ["panics", "fails", "socket"].contains(&name), "{name}");
        let numbers = numbers(&data, name);
        let first = numbers.first().copied().unwrap_or(pushed);
        assert!(numbers.iter().copied().eq(first..pushed), "{name}: {numbers:?} of {pushed}");
    }
    let account = flow::ledger::account(&data, "first", &[]).unwrap();
    assert!(account.closed && account.lost == 0, "{account:?}");
    assert_eq!(account.entries.iter().map(|entry| entry.origin.as_str()).filter(|o| !o.is_empty()).count(), all.len());
}
