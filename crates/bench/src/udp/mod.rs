//! `beamport-bench udp`: datagrams of 120 boards into streams by `beamport up`, beside a bare program that takes the
//! same datagrams from sockets of the same options with `recvmmsg` into a ring of as much memory as the streams have,
//! one after the other, with a sender of the same pace.
//!
//! Processor time is that of the receiving program alone: on two cores the sender sets the pace. After each round of
//! ours the account of each stream must be what the sender sent, or the measurement fails.
//!
//! Another row has the chain of which this is the first part, beside the sum of its parts, each alone. The last ones
//! have the latency of a shorter chain.

mod bare;
mod chain;
mod latency;
mod sender;

use super::epics::thousandth;
use super::frames::stop;
use super::measure::{Figure, Sample, Series, Unit, alternate, cpu_seconds_of};
use super::place::{Folder, program, wrong};
use bare::Bare;
use chain::Chain;
use flow::{Data, Fault, ledger};
use sender::Sender;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use store::Reader;

/// Boards, each with a port.
const PORTS: usize = 120;
/// The same to see that it works.
const QUICK_PORTS: usize = 12;
/// Buffer of each socket, bytes: the default of the instrument file.
const BUFFER: i32 = 8 << 20;
/// While data come, sockets are read at this interval: the default of the instrument file.
const DRAIN: Duration = Duration::from_micros(200);
/// Shared memory of a stream, MiB: its pages are used again after a lap.
const RING_MIB: u64 = 8;
/// Longest wait for a program that starts, or for datagrams that are in the sockets.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing has come for so long: the sockets are empty.
const STILL: Duration = Duration::from_millis(500);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// The load that is sent.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Of a payload.
    bytes: usize,
    /// Datagrams that leave in one call, and arrive so.
    together: usize,
    /// Messages a second of all boards; none: as fast as the sender can.
    rate: Option<f64>,
    sources: Sources,
}

/// The sources that receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sources {
    /// A source for each board, with a stream in memory.
    Each,
    /// One for all of them.
    One,
    /// The same, whose header is described by a table.
    Table,
    /// One for all of them, with a stream on the disk.
    Disk,
}

/// One row.
struct Job {
    what: &'static str,
    load: Load,
    must: f64,
    aim: f64,
}

const JOBS: [Job; 5] = [
    Job {
        what: "8.8 kB plain, one source: messages a CPU s",
        load: Load { bytes: 8800, together: 1, rate: Some(60e3), sources: Sources::One },
        must: 0.75,
        aim: 0.85,
    },
    Job {
        what: "8.8 kB plain, a stream each: messages a CPU s",
        load: Load { bytes: 8800, together: 1, rate: Some(60e3), sources: Sources::Each },
        must: 0.6,
        aim: 0.7,
    },
    Job {
        what: "528 B with GRO, one source: messages a CPU s",
        load: Load { bytes: 528, together: 64, rate: Some(400e3), sources: Sources::One },
        must: 0.4,
        aim: 0.5,
    },
    Job {
        what: "8.8 kB as fast as the sender can, one source: messages/s",
        load: Load { bytes: 8800, together: 1, rate: None, sources: Sources::One },
        must: 0.95,
        aim: 1.0,
    },
    Job {
        what: "2 kB to disk, one source: messages a CPU s",
        load: Load { bytes: 2000, together: 1, rate: Some(20e3), sources: Sources::Disk },
        // About 10 and 5 us a message.
        must: 0.1,
        aim: 0.2,
    },
];

/// The header of the boards by a table, beside the code that reads it.
const TABLE: Job = Job {
    what: "528 B with GRO, one source: header by a table, messages a CPU s",
    load: Load { bytes: 528, together: 64, rate: Some(400e3), sources: Sources::Table },
    must: 0.97,
    aim: 1.0,
};

/// The chain, with the load of the third row.
const CHAIN: Job = Job {
    what: "528 B to streams, merge, groups, reader: messages a CPU s",
    load: Load { bytes: 528, together: 64, rate: Some(400e3), sources: Sources::Each },
    must: 0.7,
    aim: 0.9,
};

/// Runs all rows; `tell` hears of each as it is done.
pub(super) fn run(quick: bool, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let ours = program("beamport")?;
    let ports = if quick { QUICK_PORTS } else { PORTS };
    let times = if quick { (0, 0.3) } else { (2, 3.0) };
    let mut figures = Vec::new();
    for job in &JOBS {
        let figure = job.row(&ours, ports, times, rounds)?;
        tell(&figure);
        figures.push(figure);
    }
    let figure = TABLE.table(&ours, ports, times, rounds)?;
    tell(&figure);
    figures.push(figure);
    let figure = CHAIN.chain(&ours, ports, times, rounds)?;
    tell(&figure);
    figures.push(figure);
    // The default of the instrument file, and the shortest.
    for slice in [10, 1] {
        let figure = latency::row(&ours, slice, if quick { 1.5 } else { 10.0 }, rounds)?;
        tell(&figure);
        figures.push(figure);
    }
    Ok(figures)
}

impl Job {
    /// The row: laps of the rings that are not counted, and seconds that are.
    fn row(&self, program: &Path, ports: usize, (laps, seconds): (u64, f64), rounds: u32) -> Result<Figure, Fault> {
        let (mut idle, mut lost, mut sent) = (Vec::new(), 0, 0);
        let ours = || {
            let mut up = Up::start(program, &self.load, ports, "")?;
            idle.push(up.idle(seconds)?);
            let (sample, truth) = self.round(&mut up, laps, seconds)?;
            lost += up.end(&truth)?;
            sent += truth.iter().sum::<u64>();
            Ok(sample)
        };
        let limit = || {
            let mut bare = Bare::start(&self.load, ports)?;
            Ok(self.round(&mut bare, laps, seconds)?.0)
        };
        let (ours, limit) = alternate(rounds, ours, limit)?;
        let idle = idle.iter().sum::<f64>() / idle.len().max(1) as f64 * 100.0;
        let rate = match self.load.rate {
            Some(rate) => format!("{} messages/s", rate as u64),
            None => "as many as it can".to_owned(),
        };
        let together = self.load.together;
        let gro = if together > 1 { "on" } else { "off" };
        Ok(Figure {
            name: format!("{ports} ports, {} / bare recvmmsg", self.what).into(),
            conditions: format!(
                "rounds of {seconds} s after {laps} laps of the rings; a thread of this program sends {rate} of {} B and \
                 a header of 64 B by loopback, {together} a call; `gro` {gro}; ours into streams with {RING_MIB} MiB \
                 of memory for each board, pages recycled, CRC and index in, the bare program into as much memory, \
                 `drain` and pause of the bare program {} us, buffers of 8 MiB; CPU of the receiving program; \
                 each account is what was sent: {lost} of {sent} lost in all rounds of ours; before the data, {ports} \
                 idle ports take {idle:.2} % of a core",
                self.load.bytes,
                DRAIN.as_micros(),
            ),
            unit: if self.load.rate.is_some() { Unit::ThousandsPerCpu } else { Unit::Thousands },
            ours: Series { name: "beamport up", samples: ours },
            limits: vec![Series { name: "bare recvmmsg", samples: limit }],
            must: thousandth(self.must),
            aim: thousandth(self.aim),
        })
    }

    /// The row of the table: the limit is the code that reads the same header.
    fn table(&self, program: &Path, ports: usize, (laps, seconds): (u64, f64), rounds: u32) -> Result<Figure, Fault> {
        let by_hand = Load { sources: Sources::One, ..self.load };
        let round = |load: &Load| {
            let mut up = Up::start(program, load, ports, "")?;
            let (sample, truth) = self.round(&mut up, laps, seconds)?;
            up.end(&truth)?;
            Ok(sample)
        };
        let (ours, limit) = alternate(rounds, || round(&self.load), || round(&by_hand))?;
        Ok(Figure {
            name: format!("{ports} ports, {} / by code", self.what).into(),
            conditions: "load, streams and rounds as in the row of this size; the table has the same fields; the code \
                         checks a CRC-32C of header and payload, of which the stream takes the second, and the table \
                         has none, so that the stream makes its own"
                .into(),
            unit: Unit::ThousandsPerCpu,
            ours: Series { name: "beamport up, a table", samples: ours },
            limits: vec![Series { name: "beamport up, framing `beamport`", samples: limit }],
            must: thousandth(self.must),
            aim: thousandth(self.aim),
        })
    }

    /// The row of the chain: the limit of a round takes for a message what receiving, merging and grouping take.
    fn chain(&self, program: &Path, ports: usize, (laps, seconds): (u64, f64), rounds: u32) -> Result<Figure, Fault> {
        let (mut lost, mut late, mut sent, mut parts) = (0, 0, 0, Vec::new());
        let ours = || {
            let mut chain = Chain::start(program, &self.load, ports)?;
            let (sample, truth) = self.round(&mut chain, laps, seconds)?;
            let end = chain.end(&truth)?;
            (lost, late) = (lost + end[0], late + end[1]);
            sent += truth.iter().sum::<u64>();
            Ok(sample)
        };
        let limit = || {
            let mut up = Up::start(program, &self.load, ports, "")?;
            let (received, truth) = self.round(&mut up, laps, seconds)?;
            up.end(&truth)?;
            let merged = chain::merge(&up.data, ports, self.load.bytes)?;
            let grouped = chain::groups(&up.data, self.load.bytes)?;
            let part = [received, merged, grouped].map(|part| part.cpu_seconds / part.messages as f64);
            parts.push(part);
            Ok(Sample { cpu_seconds: part.iter().sum::<f64>() * received.messages as f64, ..received })
        };
        let (ours, limit) = alternate(rounds, ours, limit)?;
        let mean = |at: usize| parts.iter().map(|part| part[at]).sum::<f64>() / parts.len() as f64 * 1e6;
        Ok(Figure {
            name: format!("{ports} ports, {} / sum of its parts alone", self.what).into(),
            conditions: format!(
                "load, streams and rounds as in the row of this size; merge by time, groups of `window`, rows, and a \
                 counted reader of them, which messages are counted by; CPU of `beamport up` with the slot; each \
                 account is what was sent: {lost} of {sent} lost, {late} not in the merged stream; alone: receiving \
                 {:.2} us CPU a message with the same sender, merging {:.2} us and grouping {:.2} us of what the \
                 streams then hold, in one thread of this program",
                mean(0),
                mean(1),
                mean(2),
            ),
            unit: Unit::ThousandsPerCpu,
            ours: Series { name: "beamport up, all of it", samples: ours },
            limits: vec![Series { name: "sum of the parts alone", samples: limit }],
            must: thousandth(self.must),
            aim: thousandth(self.aim),
        })
    }

    /// Measures the messages received in the counted seconds. Also returns how many each board has sent in all.
    fn round(&self, taker: &mut dyn Taker, laps: u64, seconds: f64) -> Result<(Sample, Vec<u64>), Fault> {
        let (sender, begin) = (Sender::start(self.load, taker.ports())?, Instant::now());
        let first = laps * taker.ports().len() as u64 * (RING_MIB << 20) / self.load.bytes as u64;
        while taker.count()? < first.max(1) {
            if begin.elapsed() > PATIENCE {
                return Err(Fault::new("bench: too few datagrams come", format!("{} of {first}", taker.count()?)));
            }
            std::thread::sleep(PAUSE);
        }
        let (count, cpu, begin) = (taker.count()?, taker.cpu_seconds()?, Instant::now());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let messages = taker.count()? - count;
        let cpu_seconds = taker.cpu_seconds()? - cpu;
        let seconds = begin.elapsed().as_secs_f64();
        let truth = sender.stop()?;
        Ok((Sample { seconds, cpu_seconds, bytes: messages * self.load.bytes as u64, messages }, truth))
    }
}

/// A program, or a thread, that takes datagrams.
trait Taker {
    fn ports(&self) -> &[u16];
    /// Messages so far.
    fn count(&mut self) -> Result<u64, Fault>;
    fn cpu_seconds(&self) -> Result<f64, Fault>;
}

/// Ports of this process one behind the other: the same for all programs, which run one after the other.
fn free_ports(count: usize) -> Result<Vec<u16>, Fault> {
    static FIRST: OnceLock<u16> = OnceLock::new();
    let first = match FIRST.get() {
        Some(first) => *first,
        None => {
            let found = crate::ports::free_ports(PORTS as u16).map_err(wrong("no ports are free"))?;
            *FIRST.get_or_init(|| found)
        }
    };
    Ok((first..).take(count).collect())
}

/// Whether a program receives at the port. The kernel's table says so: a socket that tries the port would take it from
/// the program that opens it at this moment.
fn is_open(port: u16) -> Result<bool, Fault> {
    let table = std::fs::read_to_string("/proc/net/udp").map_err(wrong("the ports of the kernel cannot be read"))?;
    let end = format!(":{port:04X}");
    Ok(table.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&end))))
}

/// `beamport up` of an instrument with the boards.
struct Up {
    child: Child,
    folder: Folder,
    data: Data,
    ports: Vec<u16>,
    streams: Vec<String>,
    readers: Vec<Reader>,
    is_ended: bool,
}

/// The source of all boards.
const ARRAY: &str = "array";

/// The section of one source of many ports.
fn one(load: &Load, first: u16, last: u16) -> String {
    let count = usize::from(last - first) + 1;
    let origins = format!("d{{000..{:03}}}", count - 1);
    let level = if load.sources == Sources::Disk { "disk\"\nretain = \"1 GiB" } else { "memory" };
    let framing = match load.sources {
        Sources::Table => "",
        _ => "framing = \"beamport\"\n",
    };
    // The fields of `wire::datagram::Header`.
    let table = match load.sources {
        Sources::Table => {
            "\n[source.array.framing]\nheader = 64\nconstants = { \"u32be at 0\" = 0x42505254, \"u16 at 6\" = 1 }\n\
             number = \"u64 at 24\"\ntime = \"u64 at 16\"\nstream = \"u16 at 10\"\n"
        }
        _ => "",
    };
    format!(
        "\n[source.{ARRAY}]\nkind = \"udp\"\nlisten = \"127.0.0.1:{{{first}..{last}}}\"\norigins = [\"{origins}\"]\n\
         {framing}gro = {}\nlevel = \"{level}\"\nlive = \"{} MiB\"\n{table}",
        load.together > 1,
        RING_MIB * count as u64,
    )
}

/// Name of the source of a board.
fn name(board: usize) -> String {
    format!("d{board:03}")
}

impl Up {
    /// `stages`: sections behind those of the boards.
    fn start(program: &Path, load: &Load, ports: usize, stages: &str) -> Result<Self, Fault> {
        let is_one = load.sources != Sources::Each;
        let folder = if load.sources == Sources::Disk { Folder::on_disk()? } else { Folder::in_memory()? };
        let ports = free_ports(ports)?;
        let path = |name: &str| folder.path().join(name);
        let mut text = String::from("instrument = \"bench\"\ndata = \"data\"\n");
        if let (true, [first, .., last]) = (is_one, ports.as_slice()) {
            text += &one(load, *first, *last);
        } else {
            for (board, port) in ports.iter().enumerate() {
                text += &format!(
                    "\n[source.{}]\nkind = \"udp\"\nlisten = \"127.0.0.1:{port}\"\nframing = \"beamport\"\ngro = {}\n\
                     level = \"memory\"\nlive = \"{RING_MIB} MiB\"\n",
                    name(board),
                    load.together > 1
                );
            }
        }
        text += stages;
        std::fs::write(path("bench.toml"), text).map_err(wrong("the instrument file cannot be written"))?;
        let log = std::fs::File::create(path("log")).map_err(wrong("the log cannot be written"))?;
        let mut command = Command::new(program);
        command.arg("up").arg(path("bench.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(wrong("beamport does not start"))?;
        let data = Data::on_disk(path("data"));
        let streams: Vec<String> = if is_one { vec![ARRAY.into()] } else { (0..ports.len()).map(name).collect() };
        let mut up = Self { child, folder, data, ports, streams, readers: Vec::new(), is_ended: false };
        let begin = Instant::now();
        // A source has its port before it has an origin; of several the last one last.
        while up.readers.len() < up.streams.len() {
            let at = if is_one { up.ports.len() - 1 } else { up.readers.len() };
            let (stream, port) = (&up.streams[up.readers.len()], up.ports[at]);
            match up.data.reader_early(stream) {
                Ok(reader) if is_open(port)? => up.readers.push(reader),
                _ if begin.elapsed() > PATIENCE => return Err(up.fault("does not open its ports", port)),
                _ => {
                    up.is_alive()?;
                    std::thread::sleep(PAUSE);
                }
            }
        }
        Ok(up)
    }

    fn fault(&self, what: &str, cause: impl std::fmt::Display) -> Fault {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        Fault::new(format!("bench: `beamport up` {what}"), cause).hint(log)
    }

    fn is_alive(&mut self) -> Result<(), Fault> {
        match self.child.try_wait().map_err(wrong("beamport is not there"))? {
            Some(status) => Err(self.fault("ended", status)),
            None => Ok(()),
        }
    }

    /// The share of a core that the program uses while no data arrive, measured over `seconds`.
    fn idle(&self, seconds: f64) -> Result<f64, Fault> {
        // Its start is no rest.
        std::thread::sleep(STILL);
        let (cpu, begin) = (self.cpu_seconds()?, Instant::now());
        std::thread::sleep(Duration::from_secs_f64(seconds));
        Ok((self.cpu_seconds()? - cpu) / begin.elapsed().as_secs_f64())
    }

    /// Ends it, and compares its accounts with what was sent; the answer is how many messages were lost.
    fn end(&mut self, truth: &[u64]) -> Result<u64, Fault> {
        let begin = Instant::now();
        let (mut known, mut since) = (self.count()?, begin);
        while since.elapsed() < STILL && begin.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
            let count = self.count()?;
            if count != known {
                (known, since) = (count, Instant::now());
            }
        }
        sender::ends(&self.ports, truth)?;
        // The reorder time, and a look at the socket behind it.
        std::thread::sleep(STILL);
        stop(&mut self.child)?;
        self.is_ended = true;
        let mut lost = 0;
        let mut accounts = Vec::new();
        for stream in &self.streams {
            accounts.extend(ledger::entries(&self.data, stream)?.0);
        }
        for (board, sent) in truth.iter().enumerate() {
            let of: Vec<_> = accounts.iter().filter(|account| account.origin == name(board)).collect();
            let is_right = matches!(&of[..], [one] if one.sent == *sent && one.closed
                && !one.lost.contains_key("unexplained"));
            if !is_right {
                return Err(self.fault("has a wrong account", format!("{sent} were sent: {of:?}")));
            }
            lost += of[0].lost.values().sum::<u64>();
        }
        Ok(lost)
    }
}

impl Taker for Up {
    fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn count(&mut self) -> Result<u64, Fault> {
        self.is_alive()?;
        Ok(self.readers.iter().map(|reader| reader.bounds().count).sum())
    }

    fn cpu_seconds(&self) -> Result<f64, Fault> {
        cpu_seconds_of(self.child.id())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if !self.is_ended {
            let _ = stop(&mut self.child);
        }
    }
}
