//! `beamport-bench epics-kafka`: PVs to Kafka by `beamport ess forwarder`. Its processor time beside a forwarder of
//! p4p, ess-streaming-data-types and confluent-kafka (`bench/forwarder_p4p.py`); how long a change takes until a
//! consumer has it, beside a bare program of PVXS and librdkafka (`bench/epics_relay.cpp`).

use super::broker::{Client, ready};
use super::epics::{STILL, Taker, settled, taken, thousandth};
use super::frames::stop;
use super::jobs::{Ears, Topic, now_ms};
use super::kafka::SEND;
use super::measure::{Figure, Sample, Series, Spread, Unit, alternate};
use super::peers::{Peers, Talk, compile};
use super::place::{Folder, program, python_with, wrong};
use flow::Fault;
use std::cell::Cell;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::f144::{self, F144};
use wire::fc00::{self, ConfigUpdate, Protocol, Stream, UpdateType};

/// The other forwarder.
const PEER: &str = include_str!("../../../bench/forwarder_p4p.py");
/// The bare program.
const RELAY: &str = include_str!("../../../bench/epics_relay.cpp");
/// PVs of the first row, and their updates a second: 20,000 in all.
const PVS: u64 = 1000;
const HZ: u64 = 20;
/// Updates a second of the second row.
const FAST_HZ: u64 = 1000;
/// Of a round, and of a quick one.
const SECONDS: f64 = 4.0;
const QUICK_SECONDS: f64 = 1.0;
/// Part of the changes that are not looked at: the producers begin.
const FIRST: f64 = 0.1;

/// Runs all rows; `tell` hears of each as it is done.
pub(super) fn run(
    brokers: Option<&str>,
    quick: bool,
    rounds: u32,
    tell: &mut dyn FnMut(&Figure),
) -> Result<Vec<Figure>, Fault> {
    let ours = program("beamport")?;
    let hint = "pip install p4p ess-streaming-data-types confluent-kafka";
    let python = python_with("p4p, streaming_data_types, confluent_kafka", hint)?;
    let peers = Peers::build()?;
    let relay = compile(peers.folder(), "epics_relay", RELAY, &["librdkafka"])?;
    let script = peers.folder().join("forwarder_p4p.py");
    std::fs::write(&script, PEER).map_err(wrong("the script cannot be written"))?;
    let (_node, client) = ready(brokers)?;
    let seconds = if quick { QUICK_SECONDS } else { SECONDS };
    let side = Side { ours, python, script, relay, peers, client, seconds, number: Cell::new(0) };
    let cost = side.cost(rounds)?;
    tell(&cost);
    let latency = side.latency(rounds)?;
    tell(&latency);
    Ok(vec![cost, latency])
}

/// The programs and settings for all rows.
struct Side {
    ours: PathBuf,
    /// Has the packages of the other forwarder.
    python: PathBuf,
    script: PathBuf,
    relay: PathBuf,
    peers: Peers,
    client: Client,
    seconds: f64,
    number: Cell<u32>,
}

impl Side {
    fn topic(&self, name: &str) -> Result<Topic<'_>, Fault> {
        let number = self.number.get() + 1;
        self.number.set(number);
        Topic::new(&self.client, format!("beamport-bench-{}-{name}-{number}", std::process::id()))
    }

    fn cost(&self, rounds: u32) -> Result<Figure, Fault> {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        let ours = || {
            let (server, topic) = (self.peers.serve("numbers", &[PVS, HZ])?, self.topic("values")?);
            let forwarder = Forwarder::start(self, &topic, PVS)?;
            self.count(server, forwarder.child.id(), &topic, &mut here)
        };
        let limit = || {
            let (server, topic) = (self.peers.serve("numbers", &[PVS, HZ])?, self.topic("values")?);
            let mut command = Command::new(&self.python);
            command.arg(&self.script).args([&self.client.brokers, &topic.name, &PVS.to_string()]);
            let peer = Talk::start(self.peers.meet(&mut command))?;
            self.count(server, peer.pid(), &topic, &mut there)
        };
        let (ours, limit) = alternate(rounds, ours, limit)?;
        let (here, there): (u64, u64) = (here.iter().sum(), there.iter().sum());
        Ok(Figure {
            name: "forwarder, 20 k updates/s: updates a CPU s / p4p".into(),
            conditions: format!(
                "{PVS} PVs x {HZ} Hz for {} s by PVA, f144 to one partition; ours with its stream on the disk, \
                 synced; CPU of all processes of the forwarder from the start of the updates to the last in the topic, \
                 without server and broker; in all rounds {here} updates are missing of ours, {there} of the other",
                self.seconds
            ),
            unit: Unit::ThousandsPerCpu,
            ours: Series { name: "beamport ess forwarder", samples: ours },
            limits: vec![Series { name: "p4p, streaming_data_types, confluent_kafka", samples: limit }],
            must: 5.0,
            aim: 10.0,
        })
    }

    /// Counts a forwarder's messages in a topic; adds what is missing.
    fn count(&self, mut server: Talk, pid: u32, topic: &Topic<'_>, missing: &mut Vec<u64>) -> Result<Sample, Fault> {
        let counter = Talk::start(&mut self.client.command("count", &topic.name))?;
        let mut taker = ToTopic { pid, counter };
        settled(&mut taker, PVS, 2 * STILL)?;
        let (sample, sent) = taken(&mut taker, 8, || server.ask(&self.seconds.to_string()).map(Some))?;
        missing.push(sent.unwrap_or(0).saturating_sub(sample.messages));
        Ok(sample)
    }

    fn latency(&self, rounds: u32) -> Result<Figure, Fault> {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let mut bare = || -> Result<(), Fault> {
                let (server, topic) = (self.peers.serve("numbers", &[1, FAST_HZ])?, self.topic("bare")?);
                let mut command = Command::new(&self.relay);
                command.args([&self.client.brokers, &topic.name]).args(SEND);
                let _relay = Talk::start(self.peers.meet(&mut command))?;
                there.push(self.delays(server, &topic, |payload| Some(i64::from_ne_bytes(payload.try_into().ok()?)))?);
                Ok(())
            };
            if round % 2 == 0 {
                bare()?;
            }
            let (server, topic) = (self.peers.serve("numbers", &[1, FAST_HZ])?, self.topic("values")?);
            let _forwarder = Forwarder::start(self, &topic, 1)?;
            let time = |payload: &[u8]| f144::read(payload).ok().map(|value: F144<'_>| value.timestamp);
            here.push(self.delays(server, &topic, time)?);
            if round % 2 == 1 {
                bare()?;
            }
        }
        let samples = here.iter().zip(&there).map(|(ours, bare)| Sample {
            seconds: (ours.p99 - bare.p99).max(1e-4),
            cpu_seconds: 0.0,
            bytes: 1_000_000_000,
            messages: 1,
        });
        let ms = |of: &[Delays], which: fn(&Delays) -> f64| {
            Spread::of(&of.iter().map(|delays| 1000.0 * which(delays)).collect::<Vec<_>>()).median
        };
        Ok(Figure {
            name: "change -> message at a consumer, p99 beyond the bare program".into(),
            conditions: format!(
                "one PV x {FAST_HZ} Hz for {} s by PVA; from the time stamp until this program has the message of a \
                 consumer, median and p99: ours {:.2} and {:.2} ms, the bare program with the same properties of \
                 librdkafka {:.2} and {:.2} ms; the difference of the p99 as a rate: must 10 ms, aim 3 ms, at least \
                 0.1 ms is taken",
                self.seconds,
                ms(&here, |delays| delays.median),
                ms(&here, |delays| delays.p99),
                ms(&there, |delays| delays.median),
                ms(&there, |delays| delays.p99),
            ),
            unit: Unit::Times,
            ours: Series { name: "beamport ess forwarder", samples: samples.collect() },
            limits: Vec::new(),
            must: 100.0,
            aim: thousandth(1000.0 / 3.0),
        })
    }

    /// How long changes take to a consumer of a topic; `time`: of a message, ns since 1970.
    fn delays(
        &self,
        mut server: Talk,
        topic: &Topic<'_>,
        time: impl Fn(&[u8]) -> Option<i64>,
    ) -> Result<Delays, Fault> {
        let ears = Ears::new(&[topic])?;
        let lost = |_| Fault::new("bench: changes do not reach the consumer", &topic.name);
        // The first value: all are connected.
        while time(&ears.heard.recv_timeout(Duration::from_secs(60)).map_err(lost)?.1).is_none() {}
        std::thread::sleep(STILL);
        let (now, clock) = (Instant::now(), SystemTime::now());
        let begin = clock.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
        let sent = server.ask(&self.seconds.to_string())?;
        let mut seconds = Vec::new();
        while (seconds.len() as u64) < sent {
            let (when, payload) = ears.heard.recv_timeout(Duration::from_secs(10)).map_err(lost)?;
            if let Some(time) = time(&payload)
                && time >= begin
            {
                seconds.push(when.duration_since(now).as_secs_f64() - (time - begin) as f64 * 1e-9);
            }
        }
        let mut counted = seconds.split_off((seconds.len() as f64 * FIRST) as usize);
        counted.sort_by(f64::total_cmp);
        let at = |part: usize| counted[(counted.len() * part / 100).min(counted.len() - 1)];
        Ok(Delays { median: at(50), p99: at(99) })
    }
}

/// Seconds.
struct Delays {
    median: f64,
    p99: f64,
}

/// A program that sends updates to a topic.
struct ToTopic {
    pid: u32,
    counter: Talk,
}

impl Taker for ToTopic {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn count(&mut self) -> Result<u64, Fault> {
        self.counter.ask("")
    }

    /// Its connection, its alarm and its value.
    fn first(&self) -> u64 {
        3
    }
}

/// `beamport ess forwarder`; it ends with this value.
struct Forwarder<'a> {
    child: Child,
    _folder: Folder,
    _topics: [Topic<'a>; 3],
}

impl<'a> Forwarder<'a> {
    /// Starts one that sends `pvs` PVs to a topic, as its storage topic says.
    fn start(side: &'a Side, to: &Topic<'_>, pvs: u64) -> Result<Self, Fault> {
        let topics = [side.topic("commands")?, side.topic("status")?, side.topic("storage")?];
        let names: Vec<String> = (0..pvs).map(|number| format!("bench:{number}")).collect();
        let stream =
            |name| Stream { channel: name, schema: "f144", topic: &to.name, protocol: Protocol::Pva, periodic: 0 };
        let streams: Vec<Stream<'_>> = names.iter().map(|name| stream(name.as_str())).collect();
        let mut stored = Vec::new();
        let update = ConfigUpdate { config_change: UpdateType::Replace, streams: (&streams).into() };
        fc00::write(&mut stored, &update).map_err(wrong("a command cannot be made"))?;
        let mut storage = topics[2].sender()?;
        storage.put(&stored, now_ms())?;
        storage.end()?;
        let folder = Folder::on_disk()?;
        let brokers = &side.client.brokers;
        let mut command = Command::new(&side.ours);
        command.args(["ess", "forwarder", "--output-broker", brokers, "-v", "Error", "--data"]);
        command.arg(folder.path().join("data")).stdin(Stdio::null()).stdout(Stdio::null());
        for (flag, topic) in ["--config-topic", "--status-topic", "--storage-topic"].iter().zip(&topics) {
            command.arg(flag).arg(format!("{brokers}/{}", topic.name));
        }
        let child = side.peers.meet(&mut command).spawn().map_err(wrong("beamport does not start"))?;
        Ok(Self { child, _folder: folder, _topics: topics })
    }
}

impl Drop for Forwarder<'_> {
    fn drop(&mut self) {
        let _ = stop(&mut self.child);
    }
}
