//! The store against a `Vec`: random appends, batches, reservations, views, kills, power cuts and faults from a seed, on a
//! machine that forgets what was not synced.
//!
//! What is checked: all below the mark `memory` survives a kill, all below `disk` a power cut; no reader is ever shown a byte
//! that was not appended; an identity (epoch, sequence) names one payload for ever; a counted reader under `wait` misses
//! nothing; a view shows what it points to, and its parent keeps it; a file that could not be looked at costs nothing; the mark `disk` falls only with a new epoch and never below what was promised; nothing is written through a
//! map without being allocated.

use beamport_store::*;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Counts, Dice, Ignore, Machine, PretendMedia, histories};

const SEEDS: u64 = 2000;
const STEPS: u64 = 80;

/// What a check answers: nothing to say, or what is wrong and how to see it again.
type Checked<T = ()> = std::result::Result<T, String>;

/// One message that was accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sent {
    id: u64,
    len: usize,
    time: i64,
    origin: u32,
}

fn payload(id: u64, len: usize) -> Vec<u8> {
    let mut dice = Dice::new(id);
    let word = dice.word().to_le_bytes();
    let mut bytes = vec![0; len];
    for (i, piece) in bytes.chunks_mut(8).enumerate() {
        piece.copy_from_slice(&word.map(|byte| byte.wrapping_add(i as u8))[..piece.len()]);
    }
    bytes
}

/// The injected fault, and the state at that time.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    kills: u64,
    cuts: u64,
    cleaned: u64,
    failed_syncs: u64,
    failed_writes: u64,
    full: u64,
    clocks: u64,
    looks: u64,
    abandoned: u64,
    viewed: u64,
    marked: u64,
    read: u64,
}

impl From<Tally> for Counts {
    fn from(tally: Tally) -> Self {
        [
            ("kills", tally.kills),
            ("cuts", tally.cuts),
            ("cleaned", tally.cleaned),
            ("failed syncs", tally.failed_syncs),
            ("failed writes", tally.failed_writes),
            ("full", tally.full),
            ("clocks", tally.clocks),
            ("looks", tally.looks),
            ("abandoned", tally.abandoned),
            ("viewed", tally.viewed),
            ("marked", tally.marked),
            ("read", tally.read),
        ]
        .into()
    }
}

/// The batches that a reader keeps while everything else continues.
struct Holding {
    segment: Arc<Mapped>,
    messages: Vec<(Entry, Sent)>,
}

/// A view of the stream: what it points to, by its own sequence.
#[derive(Default)]
struct Pointing {
    writer: Option<(Writer, Parent)>,
    uuid: [u8; 16],
    log: Vec<u64>,
    published: u64,
    promised: u64,
    /// The events since it was open last.
    after: After,
}

struct Test {
    seed: u64,
    tally: Tally,
    holding: Option<Holding>,
    /// A write was made to fail: its error is no mistake.
    write_fails: bool,
    machine: Machine,
    dice: Dice,
    folder: PathBuf,
    options: Options,
    process: Arc<PretendMedia>,
    media: Arc<dyn Media>,
    writer: Option<Writer>,
    /// The messages of the stream by sequence, pushed but unpublished ones too.
    log: Vec<Sent>,
    published: u64,
    /// The highest mark `disk` that was shown.
    promised: u64,
    uuid: [u8; 16],
    origins: Vec<String>,
    next_id: u64,
    /// A process that reads, with a reader that outlives kills of the writer.
    onlooker: Arc<PretendMedia>,
    early: Option<Reader>,
    /// The messages that the early reader saw, by identity.
    seen: HashMap<([u8; 16], u32, u64), u64>,
    /// Where the counted reader committed; none until it exists.
    counted: Option<u64>,
    /// In some tests.
    view: Option<Pointing>,
    small: bool,
    story: Vec<String>,
    failed: bool,
}

fn reading(early: bool) -> ReadOptions {
    ReadOptions { early, ..ReadOptions::default() }
}

impl Test {
    fn new(seed: u64, ignore: Option<Ignore>) -> Self {
        let machine = Machine::new(seed);
        machine.ignore_sync(ignore);
        let mut dice = Dice::new(seed.wrapping_mul(7919));
        let level = dice.pick(&[Level::Disk, Level::Disk, Level::Disk, Level::Memory]);
        let when_full = dice.pick(&[WhenFull::Wait, WhenFull::Wait, WhenFull::DropOldest, WhenFull::DropNewest]);
        let retain_bytes = dice.pick(&[None, Some(600_000), Some(2 << 20)]);
        // The test may hold more than a reader usually may.
        let pin_bytes = Some(u64::MAX);
        let how = Options::memory(1 << 20);
        let options = Options { when_full, retain_bytes, pin_bytes, level, drain: Drain::Caller, ..how };
        let place = dice.pick(&["/disk/s", "/live/s"]);
        let folder = PathBuf::from(if level == Level::Disk { "/disk/s" } else { place });
        let process = machine.start();
        let onlooker = machine.start();
        let story = vec![format!("{options:?} in {}", folder.display())];
        let small = dice.one_in(2);
        let view = dice.one_in(3).then(Pointing::default);
        Self {
            view,
            seed,
            tally: Tally::default(),
            holding: None,
            write_fails: false,
            dice,
            folder,
            options,
            media: process.clone(),
            process,
            writer: None,
            log: Vec::new(),
            published: 0,
            promised: 0,
            uuid: [0; 16],
            origins: Vec::new(),
            next_id: 1,
            onlooker,
            machine,
            early: None,
            seen: HashMap::new(),
            counted: None,
            small,
            story,
            failed: false,
        }
    }

    fn say(&mut self, what: String) {
        if std::env::var_os("BEAMPORT_SEED").is_some() {
            eprintln!("{what}");
        }
        self.story.push(what);
    }

    fn fail(&self, what: String) -> String {
        let last = self.story.len().saturating_sub(12);
        let story = format!("{}\n  ...\n  {}", self.story[0], self.story[last..].join("\n  "));
        format!(
            "seed {}: {what}\n  {story}\nreplay: BEAMPORT_SEED={} cargo test -p beamport-store --test model",
            self.seed, self.seed
        )
    }

    fn disk(&self) -> bool {
        self.options.level == Level::Disk
    }

    /// Opens the writer; `after` says what happened before.
    fn open(&mut self, after: After) -> Checked<bool> {
        let writer = match Writer::open(&self.media, &self.folder, "s", &self.options) {
            Ok(writer) => writer,
            Err(e) if self.machine.stopped() || e.is_full() => {
                self.say(format!("open: {e}"));
                return Ok(false);
            }
            Err(e) => return Err(self.fail(format!("open: {e}"))),
        };
        let recovery = writer.recovery().clone();
        self.say(format!("opened: {recovery:?} at {}, first {}", writer.next_sequence(), writer.first_sequence()));
        let count = writer.next_sequence();
        let fresh = self.uuid != writer.header().uuid;
        match after {
            _ if self.uuid == [0; 16] => {}
            After::Clean | After::Kill => {
                if fresh || count != self.published {
                    return Err(self.fail(format!("{} were published, {count} are there", self.published)));
                }
                if !matches!(recovery, Recovery::Live | Recovery::Clean) {
                    return Err(self.fail(format!("{recovery:?} though nothing can be missing")));
                }
            }
            After::Cut | After::CutThenKill | After::Cleaned if self.disk() => {
                if fresh || count < self.promised || count > self.log.len() as u64 {
                    return Err(self.fail(format!("{} were promised, {count} are there", self.promised)));
                }
                if (recovery == Recovery::Live && after == After::Cut)
                    || (recovery == Recovery::Clean && count < self.published)
                {
                    return Err(self.fail(format!("{recovery:?} at {count} of {}", self.published)));
                }
            }
            // Somebody removed a memory stream's memory: it is refused, or another stream.
            After::Cleaned => {}
            After::Cut | After::CutThenKill => {
                if !fresh {
                    return Err(self.fail("a memory stream survived a power cut".into()));
                }
            }
        }
        if fresh {
            self.log.clear();
            self.origins.clear();
            self.counted = None;
            self.early = None;
            self.promised = 0;
        }
        self.log.truncate(count as usize);
        self.published = count;
        self.uuid = writer.header().uuid;
        // Rows that no surviving message uses may be gone after a cut.
        let known = writer.origins().to_vec();
        let used =
            self.log[writer.first_sequence() as usize..].iter().map(|m| m.origin as usize + 1).max().unwrap_or(0);
        if known.len() < used || known[..used.min(self.origins.len())] != self.origins[..used.min(self.origins.len())] {
            return Err(self.fail(format!("origins {known:?} were {:?}", self.origins)));
        }
        self.origins = known;
        self.writer = Some(writer);
        self.failed = false;
        self.promise()?;
        Ok(true)
    }

    /// Looks at the mark: it may not fall.
    fn promise(&mut self) -> Checked {
        if let Some(writer) = &self.writer
            && self.disk()
        {
            let mark = writer.mark(Level::Disk);
            if self.failed && mark > self.promised {
                return Err(self.fail(format!("the mark rose from {} to {mark} after a failed sync", self.promised)));
            }
            if mark < self.promised {
                return Err(self.fail(format!("the mark fell from {} to {mark}", self.promised)));
            }
            self.promised = mark;
        }
        Ok(())
    }

    fn message(&mut self) -> (Meta, Sent) {
        let len = match self.dice.below(if self.small { 300 } else { 12 }) {
            0 => self.dice.below(20_000),
            1 => 0,
            2 if self.dice.one_in(6) => self.dice.range(200_000, 400_000),
            3 | 4 => self.dice.below(3000),
            _ => self.dice.below(100),
        } as usize;
        let time = match self.dice.below(20) {
            0 => self.dice.word() as i64,
            1..4 => self.next_id as i64 * 1000 - self.dice.below(1 << 20) as i64,
            _ => self.next_id as i64 * 1000,
        };
        let origin = self.dice.below(self.origins.len() as u64) as u32;
        let sent = Sent { id: self.next_id, len, time, origin };
        self.next_id += 1;
        let meta = Meta { source_time: time, origin, origin_seq: sent.id, schema: SchemaId(*b"test"), flags: 0 };
        (meta, sent)
    }

    fn append(&mut self) -> Checked {
        if self.origins.is_empty() || self.dice.one_in(30) {
            let name = format!("o{}-{}", self.dice.below(8), "x".repeat(self.dice.below(300) as usize));
            let Some(writer) = &mut self.writer else { return Ok(()) };
            match writer.origin(&name) {
                Ok(row) if row as usize == self.origins.len() => self.origins.push(name),
                Ok(row) if self.origins.get(row as usize) == Some(&name) => {}
                Ok(row) => return Err(self.fail(format!("row {row} for {name}"))),
                Err(e) if self.excused(&e) => return Ok(()),
                Err(e) => return Err(self.fail(format!("origin: {e}"))),
            }
        }
        let many = match self.dice.below(8) {
            0 if self.small => self.dice.range(1, 2500),
            0 => self.dice.range(1, 600),
            1 | 2 => self.dice.range(1, 60),
            _ => self.dice.range(1, 6),
        };
        let (room, batch) = (self.dice.one_in(4), self.dice.one_in(2));
        let mut refused = String::new();
        for _ in 0..many {
            let (meta, sent) = self.message();
            let bytes = payload(sent.id, sent.len);
            let Some(writer) = &mut self.writer else { return Ok(()) };
            let (a, b) = bytes.split_at(self.dice.below(bytes.len() as u64 + 1) as usize);
            let answer = match (room, batch) {
                (true, _) => {
                    self.tally.abandoned += 1;
                    reserved(writer, &mut self.dice, &meta, &bytes)
                }
                (false, true) => writer.push(&meta, &[a, b]),
                (false, false) => writer.append(&meta, &bytes),
            };
            match answer {
                Ok(sequence) if sequence == self.log.len() as u64 => {
                    self.log.push(sent);
                    if !batch && !room {
                        self.published = self.log.len() as u64;
                    }
                }
                Ok(sequence) => return Err(self.fail(format!("sequence {sequence}, not {}", self.log.len()))),
                Err(Error::Failed(_)) if self.failed => break,
                Err(e) => {
                    let allowed = match &e {
                        Error::Dropped => self.options.when_full != WhenFull::Wait,
                        Error::Full(_) | Error::Behind { .. } => self.options.when_full == WhenFull::Wait,
                        e => self.excused(e),
                    };
                    if !allowed {
                        return Err(self.fail(format!("append: {e}")));
                    }
                    if matches!(e, Error::Dropped | Error::Full(_) | Error::Behind { .. }) {
                        self.published = self.log.len() as u64;
                    }
                    refused = format!(", refused: {e}");
                    break;
                }
            }
        }
        if let Some(writer) = &mut self.writer
            && (self.dice.below(4) > 0 || self.machine.stopped())
        {
            self.published = writer.publish();
        } else if let Some(writer) = &self.writer {
            self.published = self.published.max(writer.mark(Level::Memory));
        }
        self.say(format!(
            "append {many} (batch {batch}, reserved {room}): {} of {} published{refused}",
            self.published,
            self.log.len()
        ));
        Ok(())
    }

    /// Opens the view, if it is not, and judges what it kept.
    fn open_view(&mut self) -> Checked<bool> {
        let Some(view) = &self.view else { return Ok(false) };
        if view.writer.is_some() {
            return Ok(true);
        }
        let how = Options::memory(1 << 20);
        let (level, drain) = (self.options.level, Drain::Caller);
        let options = Options { level, drain, when_full: WhenFull::DropOldest, pin_bytes: Some(u64::MAX), ..how };
        let folder = self.folder.with_file_name("v");
        let opened = Writer::open(&self.media, &folder, "v", &options);
        let opened = opened.and_then(|mut writer| writer.parent("s").map(|parent| (writer, parent)));
        let (writer, parent) = match opened {
            Ok(opened) => opened,
            Err(e) if self.excused(&e) => return Ok(false),
            Err(e) => return Err(self.fail(format!("open the view: {e}"))),
        };
        let (count, uuid) = (writer.next_sequence(), writer.header().uuid);
        self.say(format!("opened the view: {:?} at {count}", writer.recovery()));
        let Some(view) = &mut self.view else { return Ok(false) };
        let (after, low, high) = (view.after, view.promised, view.log.len() as u64);
        let whole = count == view.published && uuid == view.uuid;
        let kept = match (after, self.options.level) {
            _ if view.uuid == [0; 16] => true,
            (After::Clean | After::Kill, _) => whole,
            (_, Level::Disk) => uuid == view.uuid && (low..=high).contains(&count),
            (_, Level::Memory) => uuid != view.uuid && count == 0,
        };
        view.log.truncate(count as usize);
        if uuid != view.uuid {
            view.promised = 0;
        }
        (view.uuid, view.published, view.after) = (uuid, count, After::Clean);
        view.writer = Some((writer, parent));
        if !kept {
            return Err(self.fail(format!("after {after:?} the view of {low} to {high} messages has {count}")));
        }
        Ok(true)
    }

    /// Points to some messages, makes that safe, releases others, reads.
    fn point(&mut self) -> Checked {
        if self.writer.is_none() || !self.open_view()? {
            return Ok(());
        }
        let answer = match self.dice.below(4) {
            0 | 1 => self.point_to(),
            2 => self.settle(),
            _ => return self.read_view(),
        };
        match answer {
            Ok(()) => Ok(()),
            Err(Error::Dropped) => Ok(()),
            Err(e) if self.excused(&e) => Ok(()),
            Err(e) => Err(self.fail(format!("the view: {e}"))),
        }
    }

    fn point_to(&mut self) -> Result<()> {
        let (Some(view), Some(s)) = (&mut self.view, &self.writer) else { return Ok(()) };
        let Some((writer, parent)) = &mut view.writer else { return Ok(()) };
        let options = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
        let mut reader = Reader::open(&self.media, &self.folder, options)?;
        let end = if self.options.level == Level::Disk { s.mark(Level::Disk) } else { reader.end() };
        let mut at = view.log.last().map_or(0, |last| last + 1).max(reader.bounds().first);
        let first = at;
        for _ in 0..self.dice.range(1, 600) {
            at += u64::from(self.dice.one_in(5));
            if at >= end {
                break;
            }
            let entry = match reader.entries(at, 1) {
                Ok([entry]) => *entry,
                Err(Error::Gone { first }) => {
                    at = first;
                    continue;
                }
                Ok(_) => break,
                Err(e) => return Err(e),
            };
            match writer.push_view(*parent, at, &entry) {
                // The view no longer holds in the parent what it has released itself.
                Err(Error::Parent { what, .. }) if what.contains("not held") => at += 1,
                answer => {
                    answer?;
                    view.log.push(at);
                    at += 1;
                }
            }
        }
        view.published = writer.publish();
        self.tally.viewed += at - first;
        self.story.push(format!("pointed to {first} to {at}"));
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        let Some(Pointing { writer: Some((writer, parent)), log, published, promised, .. }) = &mut self.view else {
            return Ok(());
        };
        let drained = writer.drain();
        (*published, *promised) = (writer.publish(), (*promised).max(writer.mark(Level::Disk)));
        drained?;
        if let Some(last) = log.get((*promised).max(1) as usize - 1) {
            writer.passed(*parent, last + 1)?;
        }
        writer.relieve()
    }

    /// Reads the view from where it begins: all that it keeps is what it points to.
    fn read_view(&mut self) -> Checked {
        let Some(Pointing { writer: Some(_), log, .. }) = &self.view else { return Ok(()) };
        let (log, media) = (log.clone(), self.onlooker.clone() as Arc<dyn Media>);
        let folder = self.folder.with_file_name("v");
        let mut reader = Reader::open(&media, &folder, reading(true)).map_err(|e| self.fail(format!("view: {e}")))?;
        reader.seek(reader.bounds().first);
        let names = reader.origins().map_err(|e| self.fail(format!("origins: {e}")))?.to_vec();
        loop {
            match reader.read(300) {
                Ok(batch) if batch.is_empty() => break,
                Ok(batch) => {
                    self.tally.read += batch.len() as u64;
                    for m in batch.iter() {
                        let name = names.get(m.entry.origin as usize).map_or("", String::as_str);
                        self.compare(&Message { sequence: log[m.sequence as usize], ..m }, name)?;
                    }
                }
                Err(Error::Gone { first }) if self.options.when_full == WhenFull::DropOldest => {
                    reader.seek(first.max(reader.position() + 1));
                }
                Err(e) => return Err(self.fail(format!("the view at {}: {e}", reader.position()))),
            }
        }
        Ok(())
    }

    /// Reads while one look at a file fails: that is named, and nothing wrong is shown.
    fn glance(&mut self) -> Checked {
        if self.uuid == [0; 16] || self.writer.is_none() {
            return Ok(());
        }
        self.tally.looks += 1;
        let looks = self.dice.below(25);
        self.machine.fail_look_after(Some(looks));
        let media: Arc<dyn Media> = self.onlooker.clone();
        let answer = Reader::open(&media, &self.folder, reading(true)).and_then(|mut reader| {
            let names = reader.origins()?.to_vec();
            let mut wrong = Ok(());
            while wrong.is_ok() {
                let batch = reader.read(300)?;
                if batch.is_empty() {
                    break;
                }
                let name = |m: &Message<'_>| names.get(m.entry.origin as usize).map_or("", String::as_str);
                wrong = batch.iter().try_for_each(|m| self.compare(&m, name(&m)));
            }
            Ok((wrong, reader.position() == reader.end()))
        });
        self.machine.fail_look_after(None);
        match answer {
            Ok((wrong, true)) => wrong,
            Ok((_, false)) => Err(self.fail("a look that failed made a stream shorter".into())),
            Err(Error::Corrupt { .. }) => Ok(()),
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(5) => Ok(()),
            Err(e) => Err(self.fail(format!("a look that failed: {e}"))),
        }
    }

    /// True for errors that follow from what was injected.
    fn excused(&self, error: &Error) -> bool {
        let injected =
            matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(5)) && self.write_fails;
        injected || self.machine.stopped() || error.is_full()
    }

    /// Takes a batch into its hands, or looks whether the one it has is what it was.
    fn hold(&mut self) -> Checked {
        if let Some(holding) = &self.holding {
            for (entry, sent) in &holding.messages {
                let bytes = holding.segment.bytes(entry.offset(), u64::from(entry.length));
                if bytes.is_none_or(|bytes| bytes != payload(sent.id, sent.len)) {
                    return Err(self.fail(format!("message {} changed in the hands of its reader", sent.id)));
                }
            }
            if self.dice.one_in(3) {
                self.holding = None;
            }
            return Ok(());
        }
        let Some(reader) = &mut self.early else { return Ok(()) };
        let (from, log) = (reader.bounds().first, &self.log);
        let stand = reader.position();
        reader.seek(from);
        if let Ok(batch) = reader.read(50)
            && let Some(segment) = batch.segments().first()
        {
            let messages = batch.iter().map(|m| (*m.entry, log[m.sequence as usize])).collect();
            self.holding = Some(Holding { segment: segment.clone(), messages });
        }
        reader.seek(stand);
        Ok(())
    }

    fn drain(&mut self) -> Checked {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        // A waiting writer commits little without a record of its own.
        let waits = self.options.level == Level::Disk && self.dice.one_in(2);
        let end = writer.next_sequence();
        let answer = if waits { writer.wait(end, Level::Disk, Duration::ZERO) } else { writer.drain() };
        self.published = writer.mark(Level::Memory);
        let mark = writer.mark(Level::Disk);
        self.say(format!("drain: {answer:?}, mark {mark}"));
        match answer {
            Ok(_) => {
                if self.disk() && self.failed {
                    return Err(self.fail("a drain succeeded after a failed sync".into()));
                }
                if self.disk() && mark != self.published {
                    return Err(self.fail(format!("drained to {mark}, not {}", self.published)));
                }
            }
            Err(Error::Failed(_)) => {
                self.tally.failed_syncs += u64::from(!self.failed);
                self.promise()?;
                self.failed = true;
            }
            Err(e) if self.excused(&e) => {}
            Err(e) => return Err(self.fail(format!("drain: {e}"))),
        }
        self.promise()
    }

    /// One message against the model.
    fn compare(&self, message: &Message<'_>, origin: &str) -> Checked {
        let Some(sent) = self.log.get(message.sequence as usize) else {
            return Err(self.fail(format!("message {} of {}", message.sequence, self.log.len())));
        };
        let same = message.entry.origin_seq == sent.id
            && message.entry.source_time == sent.time
            && message.payload == payload(sent.id, sent.len)
            && self.origins.get(sent.origin as usize).is_some_and(|o| o == origin);
        if !same {
            return Err(self.fail(format!("message {} is {:?}, not {sent:?}", message.sequence, message.entry)));
        }
        Ok(())
    }

    /// Promised messages are there after a power cut for a plain reader, before a writer comes.
    fn read_cold(&mut self) -> Checked {
        let media: Arc<dyn Media> = self.onlooker.clone();
        let mut reader = match Reader::open(&media, &self.folder, reading(false)) {
            Ok(reader) => reader,
            Err(e) => return Err(self.fail(format!("reader after a power cut: {e}"))),
        };
        if reader.end() < self.promised {
            return Err(self.fail(format!("{} were promised, a reader sees {}", self.promised, reader.end())));
        }
        self.read_on(&mut reader, u64::MAX, false)
    }

    /// Reads what a reader may see, from a random place.
    fn read(&mut self, early: bool) -> Checked {
        if self.uuid == [0; 16] {
            return Ok(());
        }
        let media: Arc<dyn Media> = self.onlooker.clone();
        let mut reader = match Reader::open(&media, &self.folder, reading(early)) {
            Ok(reader) => reader,
            Err(e) if e.is_full() => return Ok(()),
            Err(e) => return Err(self.fail(format!("reader: {e}"))),
        };
        let (bounds, end) = (reader.bounds(), reader.end());
        let all = early || !self.disk();
        if self.writer.is_some() && (all && end != self.published || !all && end != self.promised) {
            return Err(
                self.fail(format!("a reader ends at {end}, {} published, {} safe", self.published, self.promised))
            );
        }
        if self.dice.one_in(2) {
            reader.seek(bounds.first + self.dice.below(end - bounds.first + 1));
        }
        self.read_on(&mut reader, u64::MAX, false)?;
        if reader.position() != end {
            return Err(self.fail(format!("a reader stopped at {} of {end}", reader.position())));
        }
        // Times: the same range as by looking at each.
        let (a, b) = (self.next_id as i64 * 500, self.next_id as i64 * 1000 - self.dice.below(200_000) as i64);
        let range = reader.time_range(a, b).map_err(|e| self.fail(format!("time_range: {e}")))?;
        let inside = |i: &u64| (a..b).contains(&self.log[*i as usize].time);
        let want = match (bounds.first..end).find(inside) {
            Some(first) => (first, (first..end).rev().find(inside).unwrap_or(first) + 1),
            None => (end, end),
        };
        if range != want {
            return Err(self.fail(format!("times {a}..{b} are in {range:?}, not {want:?}")));
        }
        Ok(())
    }

    fn read_on(&mut self, reader: &mut Reader, mut most: u64, note: bool) -> Checked {
        while most > 0 {
            let max = self.dice.range(1, 400).min(most) as usize;
            let header = reader.header().clone();
            let names: Vec<String> = reader.origins().map_err(|e| self.fail(format!("origins: {e}")))?.to_vec();
            match reader.read(max) {
                Ok(batch) if batch.is_empty() => break,
                Ok(batch) => {
                    most -= batch.len() as u64;
                    self.tally.read += batch.len() as u64;
                    for message in batch.iter() {
                        let name = names.get(message.entry.origin as usize).map_or("", String::as_str);
                        self.compare(&message, name)?;
                        if note {
                            let key = (header.uuid, header.epoch_of(message.sequence), message.sequence);
                            let id = message.entry.origin_seq;
                            if let Some(other) = self.seen.insert(key, id)
                                && other != id
                            {
                                return Err(self.fail(format!("{key:?} was {other} and is {id}")));
                            }
                        }
                    }
                }
                Err(Error::Gone { first }) => {
                    if first <= reader.position() {
                        return Err(self.fail(format!("{} is gone, the oldest is {first}", reader.position())));
                    }
                    reader.seek(first);
                }
                Err(e) => return Err(self.fail(format!("read {}: {e}", reader.position()))),
            }
        }
        Ok(())
    }

    /// The reader that follows the live end through kills.
    fn follow(&mut self) -> Checked {
        if self.writer.is_none() {
            return Ok(());
        }
        let mut reader = match self.early.take() {
            Some(reader) => reader,
            None => {
                let media: Arc<dyn Media> = self.onlooker.clone();
                Reader::open(&media, &self.folder, reading(true)).map_err(|e| self.fail(format!("early: {e}")))?
            }
        };
        let most = self.dice.range(1, 2000);
        self.read_on(&mut reader, most, true)?;
        self.early = Some(reader);
        Ok(())
    }

    /// The counted reader: opens, reads on, commits some of it.
    fn count(&mut self) -> Checked {
        if self.writer.is_none() {
            return Ok(());
        }
        let media: Arc<dyn Media> = self.onlooker.clone();
        let options = ReadOptions { name: "counted".into(), kind: Kind::Counted, ..reading(false) };
        let mut reader = match Reader::open(&media, &self.folder, options) {
            Ok(reader) => reader,
            Err(e) if e.is_full() || self.machine.stopped() => return Ok(()),
            Err(e) => return Err(self.fail(format!("counted: {e}"))),
        };
        if let Some(counted) = self.counted {
            let (at, first) = (reader.position(), reader.bounds().first);
            if at > counted {
                return Err(self.fail(format!("the counted reader stands at {at}, not {counted}")));
            }
            if first > counted && self.options.when_full != WhenFull::DropOldest {
                return Err(self.fail(format!("the counted reader at {counted} lost all below {first}")));
            }
        }
        let before = reader.position();
        let most = self.dice.range(1, 1500);
        self.read_on(&mut reader, most, false)?;
        let next = before.max(reader.position() - self.dice.below(reader.position() + 1 - before).min(20));
        reader.commit(next);
        self.counted = Some(self.counted.unwrap_or(0).max(next));
        self.say(format!("counted: {before} to {}, committed {next}", reader.position()));
        Ok(())
    }

    fn kill(&mut self) {
        self.say("kill".into());
        self.tally.kills += 1;
        let view = self.forget_view(After::Kill);
        // SAFETY: the writers are all that map in this process.
        unsafe { self.machine.kill(&self.process, (self.writer.take(), view)) };
        self.process = self.machine.start();
        self.media = self.process.clone();
    }

    /// The view's writer, which dies with its process.
    fn forget_view(&mut self, how: After) -> Option<(Writer, Parent)> {
        let view = self.view.as_mut()?;
        if view.after < how {
            view.after = how;
        }
        view.writer.take()
    }

    fn cut(&mut self) {
        self.say("power cut".into());
        self.tally.cuts += 1;
        let view = self.forget_view(After::Cut);
        // SAFETY: these are all objects of all processes.
        unsafe { self.machine.power_cut((self.writer.take(), self.early.take(), self.holding.take(), view)) };
        (self.process, self.onlooker) = (self.machine.start(), self.machine.start());
        self.media = self.process.clone();
    }

    fn reopen(&mut self, mut after: After) -> Checked {
        self.machine.room(u64::MAX, u64::MAX);
        self.machine.fail_sync_after(None);
        if after == After::Cut && self.disk() && self.uuid != [0; 16] {
            self.read_cold()?;
        }
        // A file that cannot be looked at is not one that is gone.
        while self.dice.one_in(3) {
            let looks = self.dice.below(60);
            self.machine.fail_look_after(Some(looks));
            self.tally.looks += 1;
            let opened = Writer::open(&self.media, &self.folder, "s", &self.options);
            self.machine.fail_look_after(None);
            self.say(format!("look {looks} fails while opening: {:?}", opened.as_ref().err()));
            match opened {
                // Nothing may have been taken for gone: what is there now is judged like after a kill.
                Ok(writer) => {
                    let writers = (writer, self.forget_view(After::Kill));
                    // SAFETY: the writers are all that map in this process.
                    unsafe { self.machine.kill(&self.process, writers) };
                    self.process = self.machine.start();
                    self.media = self.process.clone();
                }
                Err(Error::Io { source, .. }) if source.raw_os_error() == Some(5) => {}
                Err(e) => return Err(self.fail(format!("a look that failed: {e}"))),
            }
            if after == After::Cut {
                after = After::CutThenKill;
            }
        }
        // A death while it recovers is a death like any other.
        while self.dice.one_in(4) {
            let changes = self.dice.below(25);
            self.machine.stop_after(Some(changes));
            let opened = self.open(after)?;
            self.say(format!("stopped after {changes} changes while opening (opened: {opened})"));
            after = match (self.dice.one_in(2), opened) {
                (true, _) => After::Cut,
                (false, true) => After::Kill,
                (false, false) if after == After::Cut => After::CutThenKill,
                (false, false) => after,
            };
            if after == After::Cut {
                self.cut()
            } else {
                self.kill()
            }
            self.machine.stop_after(None);
        }
        self.must_open(after)
    }

    fn must_open(&mut self, after: After) -> Checked {
        if !self.open(after)? {
            return Err(self.fail("does not open".into()));
        }
        if self.dice.one_in(3) {
            self.read(true)?;
            let media: Arc<dyn Media> = self.onlooker.clone();
            let seen = verify(&media, &self.folder, &mut |_, _| {}).map_err(|e| self.fail(format!("verify: {e}")))?;
            if seen.count != self.published {
                return Err(self.fail(format!("verify: {} of {}", seen.count, self.published)));
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Checked {
        if self.writer.is_none() {
            return self.reopen(After::Clean);
        }
        match self.dice.below(100) {
            0..40 => {
                self.append()?;
                self.point()?;
            }
            40..55 => {
                self.drain()?;
                self.point()?;
            }
            55..62 => self.read(false)?,
            62..66 => self.read(true)?,
            66..69 => self.follow()?,
            69..71 => self.glance()?,
            71 => self.point()?,
            72..74 => self.hold()?,
            74..80 => self.count()?,
            80..84 => {
                let jump = self.dice.pick(&[1_000, 1_000_000_000, 3_600_000_000_000, -3_600_000_000_000, -1]);
                self.tally.clocks += 1;
                self.machine.set_wall_clock(jump);
            }
            84..88 => {
                // A death in the midst of something.
                self.machine.stop_after(Some(self.dice.below(30)));
                self.append()?;
                self.drain()?;
                if self.dice.one_in(3) {
                    self.append()?;
                    self.drain()?;
                }
                self.point()?;
                let writer = self.writer.take();
                if self.dice.one_in(4) && self.machine.stopped() {
                    // Dropped while nothing works any more: as good as a kill.
                    drop(writer);
                } else {
                    self.writer = writer;
                }
                if self.dice.one_in(2) {
                    self.kill();
                    self.reopen(After::Kill)?;
                } else {
                    self.cut();
                    self.reopen(After::Cut)?;
                }
            }
            88..90 => {
                self.kill();
                self.reopen(After::Kill)?;
            }
            90 if self.disk() => {
                self.kill();
                self.tally.cleaned += 1;
                drop(self.forget_view(After::Cleaned));
                let names = self.machine.names("/live");
                for name in names {
                    if self.dice.one_in(4) {
                        self.say(format!("somebody removes {}", name.display()));
                        self.media.unlink(&name).map_err(|e| self.fail(e.to_string()))?;
                    }
                }
                // Who mapped what is gone now may go on to see what the recovery cuts: a new reader is another matter.
                self.early = None;
                self.reopen(After::Cleaned)?;
            }
            90 => {}
            91..93 => {
                self.cut();
                self.reopen(After::Cut)?;
            }
            93..95 => {
                let (disk, live) = self.machine.used();
                let room = self.dice.below(300_000);
                let which = self.dice.below(3);
                self.machine.room(
                    if which != 1 { disk + room } else { u64::MAX },
                    if which != 0 { live + room } else { u64::MAX },
                );
                self.tally.full += 1;
                self.say(format!("little room: {room} ({which})"));
            }
            95 => self.machine.room(u64::MAX, u64::MAX),
            96 => {
                let after = self.dice.below(6);
                self.say(format!("a sync fails after {after}"));
                self.machine.fail_sync_after(Some(after));
                if self.dice.one_in(2) {
                    self.machine.fail_sync_after(None);
                    self.machine.fail_write_after(Some(after));
                    (self.write_fails, self.tally.failed_writes) = (true, self.tally.failed_writes + 1);
                }
                self.drain()?;
                self.append()?;
                self.drain()?;
                self.machine.fail_sync_after(None);
                self.machine.fail_write_after(None);
                self.write_fails = false;
                if self.failed && self.dice.one_in(2) {
                    self.kill();
                    self.reopen(After::Kill)?;
                }
            }
            _ => {
                self.say("close".into());
                self.published = self.log.len() as u64;
                drop(self.writer.take());
                if self.dice.one_in(3) {
                    self.read(self.dice.clone().one_in(2))?;
                }
                if self.dice.one_in(3) {
                    self.cut();
                    self.reopen(After::Cut)?;
                } else {
                    self.reopen(After::Clean)?;
                }
            }
        }
        if let Some((path, at)) = self.machine.unallocated_write() {
            return Err(self.fail(format!("{} was written at {at} without being allocated", path.display())));
        }
        Ok(())
    }

    fn run(mut self) -> Checked<Tally> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.read(true)?;
        self.tally.marked = if self.disk() { self.promised } else { self.published };
        Ok(self.tally)
    }
}

/// Appends a message into a room that is larger than it, and abandons the rest.
fn reserved(writer: &mut Writer, dice: &mut Dice, meta: &Meta, bytes: &[u8]) -> Result<u64> {
    let skip = 8 * dice.below(4) as usize;
    let mut room = writer.reserve(skip + bytes.len() + dice.below(200) as usize)?;
    let (at, rest) = room.rest();
    rest.fill(0xee);
    rest[skip..skip + bytes.len()].copy_from_slice(bytes);
    room.commit(meta, at + skip..at + skip + bytes.len())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
enum After {
    #[default]
    Clean,
    Kill,
    /// Somebody cleaned shared memory while nobody wrote.
    Cleaned,
    Cut,
    /// A cut, then a kill while the stream was opened.
    CutThenKill,
}

/// Lives the histories of `test`.
fn agrees(test: &str, seeds: u64) {
    let sum = histories(test, seeds, |seed| Test::new(seed, None).run().unwrap_or_else(|e| panic!("{e}")).into());
    println!(
        "the store against a Vec: {} seeds, injected {} kills, {} power cuts, {} times memory cleaned, {} failed syncs, {} \
         failed writes, {} failed looks, {} full places, {} clocks set, {} rooms half used; {} messages marked, {} pointed to \
         by views, {} read, 0 lost, 0 wrong",
        sum["histories"],
        sum["kills"],
        sum["cuts"],
        sum["cleaned"],
        sum["failed syncs"],
        sum["failed writes"],
        sum["looks"],
        sum["full"],
        sum["clocks"],
        sum["abandoned"],
        sum["marked"],
        sum["viewed"],
        sum["read"]
    );
}

#[test]
fn the_store_agrees_with_a_vec() {
    agrees("the_store_agrees_with_a_vec", SEEDS);
}

#[test]
#[ignore = "an hour"]
fn soak_the_store_agrees_with_a_vec() {
    agrees("soak_the_store_agrees_with_a_vec", 100_000);
}

/// A check that cannot fail checks nothing: each sync that is left out must be seen as a loss.
#[test]
fn each_sync_that_is_left_out_is_seen() {
    let left_out: [(&str, Ignore); 4] = [
        ("payload segments", |name, _| name.starts_with("p-")),
        ("index segments", |name, _| name.starts_with("i-")),
        ("names", |_, folder| folder),
        ("all", |_, _| true),
    ];
    for (what, ignore) in left_out {
        let seen = (0..200).any(|seed| Test::new(seed, Some(ignore)).run().is_err());
        assert!(seen, "200 seeds do not see that the sync of {what} is left out");
    }
}
