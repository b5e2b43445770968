//! `beamport-bench store`, third part: waiting. How long it takes from an append until another process has the message,
//! asleep and spinning, against the same game with bare words in shared memory; and what 64 readers that look now and then
//! cost the writer.
//!
//! The other process is this program started once more, told by an environment variable where the streams are. Each line
//! on its standard input is work: `GAME HOW COUNT` sends a ball back so many times, `look` looks ten times a second. It
//! says `ready` when it begins, and ends with its standard input.

use super::limit::Pages;
use super::measure::{Figure, Sample, Series, Spread, Unit, alternate, timed};
use super::place::{Folder, wrong};
use super::sizes::Sizes;
use super::writers::{BATCH, JUMBO_BYTES, append, open};
use flow::Fault;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use store::media::{Map, Open};
use store::{Error, Media as _, Options, Os, ReadOptions, Reader, Writer};

/// Names the folder of the streams in the other process.
const VARIABLE: &str = "BEAMPORT_BENCH_WAIT";
/// Bytes of a ball.
const BALL: [u8; 8] = [0x5a; 8];
/// Longest wait for a ball: then the other side is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Readers that look now and then.
const READERS: usize = 64;
/// How often.
const LOOK_MS: libc::c_int = 100;
/// Bytes of the rings.
const RING_BYTES: u64 = 64 << 20;

/// The other process, seen from the measuring one.
struct Other {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(folder: &Path) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(wrong("the own program"))?;
        let mut command = Command::new(program);
        command.arg("store").env(VARIABLE, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(wrong("the other process does not start"))?;
        let to = child.stdin.take();
        match child.stdout.take() {
            Some(from) => Ok(Self { child, to, from: BufReader::new(from) }),
            None => Err(Fault::new("bench: the other process has no output", "")),
        }
    }

    fn tell(&mut self, what: &str) -> Result<(), Fault> {
        match &mut self.to {
            Some(to) => writeln!(to, "{what}").map_err(wrong("the other process has ended")),
            None => Ok(()),
        }
    }

    /// Waits until it has begun.
    fn begun(&mut self) -> Result<(), Fault> {
        let mut line = String::new();
        self.from.read_line(&mut line).map_err(wrong("the other process has ended"))?;
        if line.trim() == "ready" {
            Ok(())
        } else {
            Err(Fault::new("bench: the other process did not begin", line.trim()))
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}

/// How a side waits for the ball.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Asleep,
    Spinning,
}

impl How {
    fn word(self) -> &'static str {
        if self == Self::Asleep { "asleep" } else { "spinning" }
    }
}

/// A side of a game: it throws a ball with a number that rises, and waits for one with a number.
trait Side {
    fn throw(&mut self, number: u32) -> Result<(), Fault>;
    fn catch(&mut self, number: u32) -> Result<(), Fault>;
}

/// The limit: two words in shared memory.
struct Bare {
    page: Map,
    /// The word that this side throws at: the first or the second.
    mine: usize,
    how: How,
}

impl Bare {
    fn new(folder: &Path, mine: usize, how: How) -> Result<Self, Fault> {
        let path = folder.join("page");
        let page = Os.open(&path, Open::Create).and_then(|file| {
            file.set_len(4096)?;
            file.map(4096, true)
        });
        Ok(Self { page: page.map_err(wrong("the page of the limit"))?, mine, how })
    }

    fn word(&self, number: usize) -> &AtomicU32 {
        // SAFETY: inside the page, aligned, and only ever used as an atomic; the words are two cache lines apart.
        unsafe { &*self.page.ptr().add(number * 128).cast::<AtomicU32>() }
    }
}

impl Side for Bare {
    fn throw(&mut self, number: u32) -> Result<(), Fault> {
        let word = self.word(self.mine);
        word.store(number, Ordering::Release);
        if self.how == How::Asleep {
            Os.wake(word);
        }
        Ok(())
    }

    fn catch(&mut self, number: u32) -> Result<(), Fault> {
        let word = self.word(1 - self.mine);
        let mut looks = 0u32;
        let began = Instant::now();
        loop {
            let seen = word.load(Ordering::Acquire);
            if seen == number {
                return Ok(());
            }
            if self.how == How::Asleep {
                Os.wait(word, seen, Some(PATIENCE));
            } else {
                std::hint::spin_loop();
            }
            looks = looks.wrapping_add(1);
            if (self.how == How::Asleep || looks.is_multiple_of(1 << 16)) && began.elapsed() > PATIENCE {
                return Err(Fault::new("bench: the ball does not come back", "the other process has ended"));
            }
        }
    }
}

/// The product: a stream for each direction.
struct Streams<'a> {
    writer: &'a mut Writer,
    reader: Reader,
}

impl Side for Streams<'_> {
    fn throw(&mut self, _number: u32) -> Result<(), Fault> {
        append(self.writer, &BALL, 1, 1).map_err(wrong("append"))
    }

    fn catch(&mut self, _number: u32) -> Result<(), Fault> {
        loop {
            if self.reader.read(1).map_err(wrong("reading"))?.len() == 1 {
                return Ok(());
            }
            if !self.reader.wait(PATIENCE).map_err(wrong("waiting"))? {
                return Err(Fault::new("bench: the ball does not come back", "the other process has ended"));
            }
        }
    }
}

fn reader(folder: &Path, how: How) -> Result<Reader, Fault> {
    let spin = if how == How::Spinning { Duration::MAX } else { Duration::ZERO };
    let options = ReadOptions { spin, ..ReadOptions::default() };
    let mut reader = Reader::open(&Os::shared(), folder, options).map_err(wrong("the stream cannot be read"))?;
    reader.seek(reader.end());
    Ok(reader)
}

/// The folder of the streams, if this is the other process.
pub(crate) fn asked() -> Option<std::ffi::OsString> {
    std::env::var_os(VARIABLE)
}

/// The other process itself.
pub(crate) fn serve(folder: &Path) -> Result<(), Fault> {
    for line in std::io::stdin().lines() {
        let line = line.map_err(wrong("the input"))?;
        let words: Vec<&str> = line.split(' ').collect();
        let (game, how, count) = match words[..] {
            ["look"] => return probe(&folder.join("there")),
            [game, how, count] => (game, how, count.parse::<u32>().unwrap_or(0)),
            _ => return Err(Fault::new("bench: the other process was told nonsense", line)),
        };
        let how = if how == How::Asleep.word() { How::Asleep } else { How::Spinning };
        if game == "bare" {
            send_back(&mut Bare::new(folder, 1, how)?, count)?;
        } else {
            let mut writer = open(&folder.join("back"), &Options::memory(RING_BYTES))?;
            let reader = reader(&folder.join("there"), how)?;
            send_back(&mut Streams { writer: &mut writer, reader }, count)?;
        }
    }
    Ok(())
}

fn send_back(side: &mut dyn Side, count: u32) -> Result<(), Fault> {
    println!("ready");
    (1..=count).try_for_each(|number| {
        side.catch(number)?;
        side.throw(number)
    })
}

/// Looks at the newest messages now and then, until the standard input ends.
fn probe(stream: &Path) -> Result<(), Fault> {
    let mut reader = reader(stream, How::Asleep)?;
    println!("ready");
    loop {
        let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure that we own.
        if unsafe { libc::poll(&mut input, 1, LOOK_MS) } != 0 {
            return Ok(());
        }
        reader.seek(reader.end().saturating_sub(BATCH));
        match reader.read(BATCH as usize) {
            // The writer has gone round meanwhile.
            Ok(_) | Err(Error::Gone { .. }) => {}
            Err(error) => return Err(wrong("reading")(error)),
        }
    }
}

/// One round of a game.
struct Game {
    /// Half of each round trip, s, rising.
    hops: Vec<f64>,
    cpu_seconds: f64,
}

impl Game {
    fn play(side: &mut dyn Side, count: u32) -> Result<Self, Fault> {
        let mut hops = Vec::with_capacity(count as usize);
        let sample = timed(0, 0, || -> Result<(), Fault> {
            for number in 1..=count {
                let began = Instant::now();
                side.throw(number)?;
                side.catch(number)?;
                hops.push(began.elapsed().as_secs_f64() / 2.0);
            }
            Ok(())
        })?;
        hops.sort_by(f64::total_cmp);
        Ok(Self { hops, cpu_seconds: sample.cpu_seconds })
    }

    /// The hop that this part of all are not slower than, s.
    fn quantile(&self, part: f64) -> f64 {
        let at = (self.hops.len() as f64 * part) as usize;
        self.hops.get(at.min(self.hops.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    /// As if every hop had taken so long.
    fn sample(&self, hop_seconds: f64) -> Sample {
        let messages = self.hops.len() as u64;
        let bytes = messages * BALL.len() as u64;
        Sample { seconds: hop_seconds * messages as f64, cpu_seconds: self.cpu_seconds, bytes, messages }
    }
}

/// Rounds of both games in turn: with streams, with bare words.
fn games(sizes: &Sizes, rounds: u32, how: How) -> Result<(Vec<Game>, Vec<Game>), Fault> {
    let folder = Folder::in_memory()?;
    let mut other = Other::start(folder.path())?;
    let mut writer = open(&folder.path().join("there"), &Options::memory(RING_BYTES))?;
    let mut play = |streams: bool| -> Result<Game, Fault> {
        let (game, count) = (if streams { "streams" } else { "bare" }, sizes.hops as u32);
        let mut bare = Bare::new(folder.path(), 0, how)?;
        for word in [0, 1] {
            bare.word(word).store(0, Ordering::Release);
        }
        other.tell(&format!("{game} {} {count}", how.word()))?;
        other.begun()?;
        if streams {
            let reader = reader(&folder.path().join("back"), how)?;
            Game::play(&mut Streams { writer: &mut writer, reader }, count)
        } else {
            Game::play(&mut bare, count)
        }
    };
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        for streams in [round % 2 == 0, round % 2 != 0] {
            let game = play(streams)?;
            // The first round makes pages and maps.
            if round > 0 {
                if streams { ours.push(game) } else { bare.push(game) }
            }
        }
    }
    Ok((ours, bare))
}

/// Our time against `factor` times that of the bare game and `more` seconds; a factor of 0: against those seconds alone.
fn figure(
    name: &'static str,
    (ours, bare): &(Vec<Game>, Vec<Game>),
    part: f64,
    (factor, more): (f64, f64),
    sides: [&'static str; 2],
) -> Figure {
    let stated = |games: &[Game]| {
        let of = |part: f64| Spread::of(&games.iter().map(|g| g.quantile(part) * 1e6).collect::<Vec<_>>()).median;
        format!("median {:.2} us, p99 {:.2} us", of(0.5), of(0.99))
    };
    let conditions = format!(
        "{} round trips of {} B a round between two processes, half of each counted; append, publish, CRC, index, wake and check in; one way: {}; bare: {}",
        ours.first().map_or(0, |game| game.hops.len()),
        BALL.len(),
        stated(ours),
        stated(bare),
    );
    Figure {
        name: name.into(),
        conditions,
        unit: Unit::Millions,
        ours: Series { name: sides[0], samples: ours.iter().map(|g| g.sample(g.quantile(part))).collect() },
        limits: vec![Series {
            name: sides[1],
            samples: bare
                .iter()
                .map(|g| {
                    let sample = g.sample(g.quantile(part) * factor + more);
                    if factor > 0.0 { sample } else { Sample { cpu_seconds: 0.0, ..sample } }
                })
                .collect(),
        }],
        must: 1.0,
        aim: 1.5,
    }
}

/// A reader that sleeps, and one that spins.
pub(crate) fn hops(sizes: &Sizes, rounds: u32) -> Result<Vec<Figure>, Fault> {
    let asleep = games(sizes, rounds, How::Asleep)?;
    let spinning = games(sizes, rounds, How::Spinning)?;
    Ok(vec![
        figure(
            "sleeping reader / 1.5 futex + 5 us",
            &asleep,
            0.5,
            (1.5, 5e-6),
            ["append to seen, median", "bare futex, 1.5 times its median + 5 us"],
        ),
        figure("spinning reader / 2 us", &spinning, 0.5, (0.0, 2e-6), ["append to seen, median", "2 us"]),
        figure("spinning reader / 10 us, p99", &spinning, 0.99, (0.0, 10e-6), ["append to seen, p99", "10 us"]),
    ])
}

/// A writer alone, and with readers that look now and then.
pub(crate) fn company(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let piece = Pages::filled(JUMBO_BYTES).map_err(wrong("no memory for the message"))?;
    let writer = open(&folder.path().join("there"), &Options::memory(sizes.ring_bytes))?;
    let writer = std::cell::RefCell::new(writer);
    let count = sizes.round_bytes / JUMBO_BYTES as u64;
    let bytes = count * JUMBO_BYTES as u64;
    let lap = || {
        let mut writer = writer.borrow_mut();
        timed(bytes, count, || append(&mut writer, piece.bytes(), count, BATCH)).map_err(wrong("append"))
    };
    // Two laps: pages of the ring are touched.
    for _ in 0..(2 * sizes.ring_bytes).div_ceil(bytes) {
        lap()?;
    }
    let accompanied = || {
        let mut others = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let mut other = Other::start(folder.path())?;
            other.tell("look")?;
            others.push(other);
        }
        others.iter_mut().try_for_each(Other::begun)?;
        // A lap in which all of them look for the first time: what a start costs is not what a reader costs.
        lap()?;
        let sample = lap();
        for other in &mut others {
            other.to = None;
        }
        sample
    };
    let (ours, alone) = alternate(rounds, accompanied, lap)?;
    Ok(Figure {
        name: "append beside 64 readers / alone".into(),
        conditions: format!(
            "{count} messages of {JUMBO_BYTES} B a round through a ring of {} MiB in /dev/shm, publish every {BATCH}; {READERS} processes check the newest {BATCH} messages 10 times a second, since a lap before; no fdatasync",
            sizes.ring_bytes >> 20,
        ),
        unit: Unit::Gigabytes,
        ours: Series { name: "append, 64 readers", samples: ours },
        limits: vec![Series { name: "append, no reader", samples: alone }],
        must: 0.95,
        aim: 0.98,
    })
}
