//! Places of readers: of an earlier format, and through kills in each step in which one is taken or left.

use beamport_store::media::{File, Media, Open};
use beamport_store::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use testkit::{Counts, Dice, Machine, PretendMedia, histories};

const FOLDER: &str = "/disk/s";
const BYTES: usize = 8000;
/// Bytes of `pins` of format 1, and of now.
const PINS: [u64; 2] = [32 << 10, 64 << 10];

fn options() -> Options {
    Options {
        drain: Drain::Caller,
        retain_bytes: Some(2 << 20),
        when_full: WhenFull::DropOldest,
        ..Options::disk(1 << 20)
    }
}

fn writer(process: &Arc<PretendMedia>) -> Writer {
    let media: Arc<dyn Media> = process.clone();
    let mut writer = Writer::open(&media, Path::new(FOLDER), "s", &options()).unwrap();
    writer.origin("o").unwrap();
    writer
}

fn payload(number: u64) -> Vec<u8> {
    (0..BYTES).map(|at| (number * 7 + at as u64) as u8).collect()
}

fn append(writer: &mut Writer, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let meta = Meta { source_time: n as i64, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &payload(n)).unwrap();
    }
    writer.drain().unwrap();
}

fn open(process: &Arc<PretendMedia>, name: &str, kind: Kind) -> Result<Reader> {
    let media: Arc<dyn Media> = process.clone();
    let options =
        ReadOptions { name: name.into(), kind, strict: kind != Kind::Anonymous, early: true, ..ReadOptions::default() };
    Reader::open(&media, Path::new(FOLDER), options)
}

fn open_file(process: &Arc<PretendMedia>, name: &str) -> Arc<dyn File> {
    process.open(&Path::new(FOLDER).join(name), Open::Write).unwrap()
}

fn format_of(process: &Arc<PretendMedia>) -> u32 {
    Header::read(process.as_ref(), Path::new(FOLDER)).unwrap().format
}

/// Makes of the folder what a program of format 1 would have made.
fn make_old(process: &Arc<PretendMedia>) {
    let media: &dyn Media = process.as_ref();
    let header = Header::read(media, Path::new(FOLDER)).unwrap();
    Header { format: 1, ..header.clone() }.write(media, Path::new(FOLDER)).unwrap();
    open_file(process, "pins").set_len(PINS[0]).unwrap();
    if let Ok(head) = media.open(&header.live.join("head"), Open::Write) {
        head.write_at(&1_u32.to_le_bytes(), 8).unwrap();
    }
}

/// Clean, killed in this boot of the machine, or after a power cut: with what stands in `pins`.
#[test]
fn a_stream_of_format_1_is_upgraded_by_its_next_writer() {
    for end in ["clean", "killed", "cut"] {
        let machine = Machine::new(1);
        let process = machine.start();
        let mut stream = writer(&process);
        append(&mut stream, 0..40);
        let sink = open(&process, "sink", Kind::Counted).unwrap();
        sink.commit(25);
        match end {
            "clean" => drop((sink, stream)),
            // SAFETY: this is all that has maps.
            "killed" => unsafe { machine.kill(&process, (sink, stream)) },
            // SAFETY: as above.
            _ => unsafe { machine.power_cut((sink, stream)) },
        }
        let process = machine.start();
        make_old(&process);
        // A reader does not upgrade, and takes no place that the writer of format 1 would not look at.
        let many: Vec<Reader> = (0..300).map(|_| open(&process, "", Kind::Anonymous).unwrap()).collect();
        assert_eq!((format_of(&process), open_file(&process, "pins").len().unwrap()), (1, PINS[0]), "{end}");
        assert!(many[0].pins().readers().len() < 127, "{end}");

        let mut stream = writer(&process);
        assert_eq!((format_of(&process), open_file(&process, "pins").len().unwrap()), (2, PINS[1]), "{end}");
        let sink = open(&process, "sink", Kind::Counted).unwrap();
        // A position may be old after a power cut.
        assert!(sink.position() == 25 || end == "cut", "{end}");
        append(&mut stream, 40..80);
        let more: Vec<Reader> = (0..300).map(|_| open(&process, "", Kind::Anonymous).unwrap()).collect();
        assert!(stream.pins().readers().len() > 200, "{end}");
        drop((many, more, sink, stream));
        let stream = writer(&process);
        assert_eq!(stream.next_sequence(), 80, "{end}");
    }
}

/// Its data can still be read and written: places are no reason not to come back.
#[test]
fn a_stream_of_format_1_on_a_full_disk_stays_what_it_is() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process);
    append(&mut stream, 0..40);
    drop(stream);
    make_old(&process);
    let used = machine.used();
    machine.room(used.0, u64::MAX);
    let stream = writer(&process);
    assert_eq!((stream.next_sequence(), format_of(&process)), (40, 1));
    drop(stream);
    machine.room(u64::MAX, u64::MAX);
    drop(writer(&process));
    assert_eq!(format_of(&process), 2);
}

/// Messages that a process keeps after their batch: numbers of their origin, and where their payloads are.
struct View {
    messages: Vec<(u64, usize, u64)>,
    segments: Vec<Arc<Mapped>>,
}

impl View {
    fn of(batch: &Batch<'_>) -> Self {
        let place = |(at, message): (usize, Message<'_>)| {
            let (segment, offset) = batch.place(at);
            (message.entry.origin_seq, segment, offset)
        };
        Self { messages: batch.iter().enumerate().map(place).collect(), segments: batch.segments().to_vec() }
    }

    fn check(&self) {
        for &(number, segment, offset) in &self.messages {
            let shown = self.segments[segment].bytes(offset, BYTES as u64).unwrap();
            assert!(shown == payload(number), "message {number} has changed in its view");
        }
    }
}

/// One process of a history, and what it has.
struct Host {
    media: Arc<PretendMedia>,
    readers: Vec<(String, Reader)>,
    views: Vec<View>,
}

impl Host {
    fn start(machine: &Machine) -> Self {
        Self { media: machine.start(), readers: Vec::new(), views: Vec::new() }
    }

    fn kill(&mut self, machine: &Machine) {
        let all = (std::mem::take(&mut self.readers), std::mem::take(&mut self.views));
        // SAFETY: this is all that it has mapped; what a call was about to make has unwound.
        unsafe { machine.kill(&self.media, all) };
        self.media = machine.start();
    }
}

/// A machine with the writer of a stream and three processes that read it.
struct History {
    machine: Machine,
    stream: Writer,
    dice: Dice,
    hosts: Vec<Host>,
    /// The positions that the readers of these names have committed, as far as they are known.
    committed: BTreeMap<String, u64>,
    next: u64,
    kills: u64,
    read: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let machine = Machine::new(seed);
        let mut stream = writer(&machine.start());
        append(&mut stream, 0..40);
        let hosts = (0..3).map(|_| Host::start(&machine)).collect();
        let (dice, committed) = (Dice::new(seed), BTreeMap::new());
        Self { machine, stream, dice, hosts, committed, next: 40, kills: 0, read: 0 }
    }

    /// The result of a call in a process that may be killed meanwhile; `None`: it was.
    fn attempt<T>(&mut self, at: usize, act: impl FnOnce(&mut Host) -> T) -> Option<T> {
        let steps = if self.dice.one_in(2) { self.dice.below(12) } else { u64::MAX };
        let host = &mut self.hosts[at];
        let media = host.media.clone();
        // SAFETY: what the process had is forgotten by `Host::kill`.
        let answer = unsafe { self.machine.kill_within(&media, steps, || act(host)) };
        if answer.is_none() {
            self.hosts[at].kill(&self.machine);
            self.kills += 1;
        }
        answer
    }

    fn open(&mut self, at: usize) {
        let (name, kind) =
            self.dice.pick(&[("", Kind::Anonymous), ("a", Kind::Counted), ("b", Kind::Counted), ("c", Kind::Live)]);
        match self.attempt(at, |host| open(&host.media, name, kind)) {
            Some(Ok(reader)) => {
                if let Some(committed) = self.committed.get(name) {
                    assert_eq!(reader.committed(), *committed, "{name}");
                }
                if !name.is_empty() {
                    self.committed.insert(name.to_owned(), reader.committed());
                }
                self.hosts[at].readers.push((name.to_owned(), reader));
            }
            Some(Err(Error::Taken { .. })) => {
                let has_it = |host: &Host| host.readers.iter().any(|(of, _)| of == name);
                assert!(self.hosts.iter().any(has_it), "`{name}` is taken by nobody");
            }
            Some(Err(other)) => panic!("{other}"),
            None => {}
        }
    }

    fn read(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if host.readers.is_empty() {
            return;
        }
        let which = self.dice.below(host.readers.len() as u64) as usize;
        let (name, reader) = &mut host.readers[which];
        match reader.read(5) {
            Ok(batch) if batch.is_empty() => {}
            Ok(batch) => {
                self.read += batch.len() as u64;
                host.views.push(View::of(&batch));
                reader.commit(reader.position());
                if !name.is_empty() {
                    self.committed.insert(name.clone(), reader.position());
                }
            }
            // It keeps too much, or what it wanted is no more.
            Err(Error::Limit(_) | Error::Quota { .. }) => host.views.clear(),
            Err(Error::Gone { first }) => reader.seek(first),
            Err(other) => panic!("{other}"),
        }
    }

    fn leave(&mut self, at: usize) {
        let (readers, views) = (self.hosts[at].readers.len() as u64, self.hosts[at].views.len() as u64);
        if views > 0 && self.dice.one_in(2) {
            let which = self.dice.below(views) as usize;
            self.attempt(at, |host| drop(host.views.swap_remove(which)));
        } else if readers > 0 {
            let which = self.dice.below(readers) as usize;
            self.attempt(at, |host| drop(host.readers.swap_remove(which)));
        }
    }

    fn forget(&mut self, at: usize) {
        let name = self.dice.pick(&["a", "b", "c"]);
        let lives = self.hosts.iter().any(|host| host.readers.iter().any(|(of, _)| of == name));
        match self.attempt(at, |host| open(&host.media, "", Kind::Anonymous)?.forget(name)) {
            Some(Ok(_)) => {
                assert!(!lives, "`{name}` was read");
                self.committed.remove(name);
            }
            Some(Err(Error::Taken { .. })) => assert!(lives, "`{name}` is read by nobody"),
            Some(Err(other)) => panic!("{other}"),
            // Before or after.
            None if !lives => drop(self.committed.remove(name)),
            None => {}
        }
    }

    fn check(&self, seed: u64) {
        let pins = self.stream.pins();
        for host in &self.hosts {
            host.views.iter().for_each(View::check);
            for (name, reader) in host.readers.iter().filter(|(name, _)| !name.is_empty()) {
                let of: Vec<ReaderInfo> = pins.readers().into_iter().filter(|info| info.name == *name).collect();
                assert_eq!(of.len(), 1, "seed {seed}: `{name}`: {of:?}");
                assert!(pins.lives(self.machine.start().as_ref(), &of[0]), "seed {seed}: `{name}`");
                assert_eq!(of[0].committed, reader.committed(), "seed {seed}: `{name}`");
            }
        }
        for (name, committed) in &self.committed {
            let of = pins.readers().into_iter().find(|info| info.name == *name);
            assert_eq!(of.map(|info| info.committed), Some(*committed), "seed {seed}: `{name}` is lost");
        }
    }
}

fn history(seed: u64) -> Counts {
    let mut history = History::new(seed);
    for _ in 0..80 {
        let at = history.dice.below(3) as usize;
        match history.dice.below(9) {
            0 => {
                for _ in 0..history.dice.range(1, 3) {
                    append(&mut history.stream, history.next..history.next + 50);
                    history.next += 50;
                }
            }
            1 | 2 => history.open(at),
            3 | 4 => history.read(at),
            5 | 6 => history.leave(at),
            7 if history.dice.one_in(3) => {
                history.hosts[at].kill(&history.machine);
                history.kills += 1;
            }
            _ => history.forget(at),
        }
        history.check(seed);
    }
    for host in &mut history.hosts {
        host.kill(&history.machine);
    }
    // No place is lost: what the dead had is given again.
    let last = history.machine.start();
    let many: Vec<Reader> = (0..300).map(|_| open(&last, "", Kind::Anonymous).unwrap()).collect();
    let readers = history.stream.pins().readers();
    let named = readers.iter().filter(|reader| reader.kind != Kind::Anonymous).count();
    let places = limits::READERS_MAX - limits::READERS_NAMED;
    assert!(readers.len() >= places && readers.len() - named >= places - named, "seed {seed}: {readers:?}");
    drop(many);
    Counts::from([("kills", history.kills), ("read", history.read)])
}

#[test]
fn kills_in_each_step_of_a_place_take_no_position_and_no_message() {
    let counts = histories("kills_in_each_step_of_a_place_take_no_position_and_no_message", 100, history);
    assert!(counts["kills"] >= 300 && counts["read"] > 1000, "{counts:?}");
    println!("places: {} processes killed, {} messages read by others, 0 changed", counts["kills"], counts["read"]);
}

#[test]
#[ignore = "long"]
fn soak_kills_in_each_step_of_a_place() {
    let counts = histories("soak_kills_in_each_step_of_a_place", 10_000, history);
    println!("places: {} processes killed, {} messages read by others, 0 changed", counts["kills"], counts["read"]);
}
