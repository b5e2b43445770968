//! `beamport-bench hosts`: a stream of one host in its mirror on another, through Kafka. Beside it a bare producer and
//! a bare consumer of librdkafka (`bench/kafka_client.c`) that move the same bytes as records of 1 MB, and two
//! instruments that move them as a record for each message. Then a worker on three hosts beside the same worker on one
//! machine, and how long the others need for the blocks of a host that is killed. The rows of HTTPS are in `https.rs`.
//!
//! A rate counts from the first hundredth of the messages to the last of them. Processor time is that of whole
//! programs, starts included; with the broker's where a row says so.

mod https;
mod peer;

use super::broker::{Client, Node, ready, seconds};
use super::frames::stop;
use super::jobs::{Ears, Topic};
use super::kafka::{READ, SEND};
use super::measure::{Figure, Sample, Series, Spread, Unit, alternate, cpu_seconds_of, timed};
use super::place::{Folder, output, program, wrong};
use flow::{Appender, Data, Fault, Label};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::{Options, Reader, SchemaId};

/// Bytes of the messages of a round.
const BYTES: u64 = 1_000_000_000;
/// The same in a quick measurement.
const QUICK_BYTES: u64 = 50_000_000;
/// Bytes of a message, as a pulse of a detector has.
const SIZE: u64 = 9_000;
/// Bytes of a record of the bare pair: a block of a mirror has about as many.
const RECORD: u64 = 1_000_000;
/// Longest wait for the messages of a round.
const PATIENCE: Duration = Duration::from_secs(200);
/// Shared memory of a mirror, MiB: its pages are reused from the second lap on.
const RING_MIB: u64 = 256;
/// Messages whose way is timed, and those before them that are not.
const TIMED: (usize, usize) = (500, 50);
/// The same in a quick measurement.
const QUICK_TIMED: (usize, usize) = (20, 5);
/// From one of them to the next.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest wait for one of them.
const LATE: Duration = Duration::from_secs(60);
/// Hosts of a worker, with a slot on each.
const WORKERS: [&str; 3] = ["n1", "n2", "n3"];
/// The brokers give up a host of a worker that is silent for so long, s: `session.timeout.ms` of its group.
const SESSION_S: f64 = 6.0;
/// Pause between messages while a host is killed.
const STEADY: Duration = Duration::from_millis(5);
/// How long all hosts work before that.
const CALM: Duration = Duration::from_secs(8);
/// Messages after the kill that the output must have too: some of their blocks go to the host that is gone.
const AFTER: u64 = 200;

/// Runs all rows; `tell` reports each as it is done.
pub(super) fn run(
    brokers: Option<&str>,
    quick: bool,
    rounds: u32,
    tell: &mut dyn FnMut(&Figure),
) -> Result<Vec<Figure>, Fault> {
    let ours = program("beamport")?;
    let (node, client) = ready(brokers)?;
    let bytes = if quick { QUICK_BYTES } else { BYTES };
    let side = Side { ours, client, node, count: bytes / SIZE, timed: if quick { QUICK_TIMED } else { TIMED } };
    let mut figures = side.moved(rounds)?;
    figures.iter().for_each(&mut *tell);
    for figure in [side.latency(rounds)?, side.worked(rounds)?, side.takeover(rounds)?] {
        tell(&figure);
        figures.push(figure);
    }
    let of_https = https::run(&side, rounds)?;
    of_https.iter().for_each(tell);
    figures.extend(of_https);
    Ok(figures)
}

/// The programs, and how many messages are moved.
struct Side {
    ours: PathBuf,
    client: Client,
    /// None: the cluster was named, and its processor time cannot be measured.
    node: Option<Node>,
    count: u64,
    /// Messages whose way is timed, and those before them.
    timed: (usize, usize),
}

impl Side {
    /// The rows of throughput: the three ways alternate.
    fn moved(&self, rounds: u32) -> Result<Vec<Figure>, Fault> {
        let (mut mirror, mut bare, mut records) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            for turn in 0..3 {
                match (turn + round) % 3 {
                    0 => bare.push(self.bare(round)?),
                    1 => mirror.push(self.mirrored(round)?),
                    _ => records.push(self.by_record(round)?),
                }
            }
        }
        let samples = |of: &[Way]| of.iter().map(|way| way.sample).collect::<Vec<_>>();
        let whole = |of: &[Way]| of.iter().map(Way::with_broker).collect::<Vec<_>>();
        let conditions = format!(
            "{} messages of {SIZE} B a round, from a memory stream that is full, one partition, the log of the broker \
             in the page cache; the mirror is a memory stream of {RING_MIB} MiB",
            self.count
        );
        let figure = |name: &'static str, more: &str, unit, of: [(&'static str, Vec<Sample>); 2], goals: (f64, f64)| {
            let [ours, limit] = of.map(|(name, samples)| Series { name, samples });
            let conditions = format!("{conditions}; {more}");
            let (must, aim) = goals;
            Figure { name: name.into(), conditions, unit, ours, limits: vec![limit], must, aim }
        };
        let (hosts, pair) = ("beamport up --host a and --host b", "librdkafka, producer and consumer, 1 MB records");
        let without = "CPU of whole programs without the broker, in messages of this size";
        let mut figures = vec![
            figure(
                "stream -> topic -> mirror, a CPU s / bare pair",
                without,
                Unit::ThousandsPerCpu,
                [(hosts, samples(&mirror)), (pair, samples(&bare))],
                (0.5, 0.77),
            ),
            figure(
                "stream -> topic -> mirror, bytes / bare pair",
                "from the first hundredth in the mirror, and at the consumer, to the last",
                Unit::Gigabytes,
                [(hosts, samples(&mirror)), (pair, samples(&bare))],
                (0.7, 0.9),
            ),
        ];
        if self.node.is_some() {
            figures.push(figure(
                "mirror, a CPU s / a record for each message",
                "CPU of whole programs and of the broker; must 3 times, aim 6 times as many messages",
                Unit::ThousandsPerCpu,
                [(hosts, whole(&mirror)), ("sink kafka, source kafka of another instrument", whole(&records))],
                (3.0, 6.0),
            ));
        }
        Ok(figures)
    }

    /// Measures what moves all messages, and what the broker needs meanwhile.
    fn way(&self, work: impl FnOnce() -> Result<f64, Fault>) -> Result<Way, Fault> {
        let broker = || self.node.as_ref().map_or(Ok(0.0), |node| cpu_seconds_of(node.id()));
        let (before, mut seconds) = (broker()?, 0.0);
        let sample = timed(self.count * SIZE, self.count, || work().map(|found| seconds = found))?;
        Ok(Way { sample: Sample { seconds, ..sample }, broker: broker()? - before })
    }

    /// The bare pair, through a new topic.
    fn bare(&self, round: u32) -> Result<Way, Fault> {
        let topic = Topic::new(&self.client, self.name("bare", round))?;
        let count = (self.count * SIZE).div_ceil(RECORD).to_string();
        let mut consumer = self.client.command("consume", &topic.name);
        consumer.arg(&count).args(READ).stdout(Stdio::piped());
        let mut producer = self.client.command("produce", &topic.name);
        producer.arg(RECORD.to_string()).arg(&count).args(SEND);
        self.way(|| {
            let consumer = consumer.spawn().map_err(wrong("the bare consumer does not start"))?;
            let sent = output(&mut producer);
            let answer = consumer.wait_with_output().map_err(wrong("the bare consumer does not end"))?;
            sent.and_then(|_| seconds(&String::from_utf8_lossy(&answer.stdout)))
        })
    }

    /// From host `a` to host `b`.
    fn mirrored(&self, round: u32) -> Result<Way, Fault> {
        let instrument = self.name("hosts", round);
        let place = Place::new(&hosts_file(&instrument, &self.kafka(), ["", ""], (self.live_mib(), RING_MIB)))?;
        place.fill(&place.data("a"), self.live_mib(), self.count)?;
        let way = self.way(|| {
            let mut hosts = vec![self.up(&place, &["--host", "a"])?, self.up(&place, &["--host", "b"])?];
            place.ended(&mut hosts, |hosts| self.arrive(&place.data("b"), "history", hosts)).map(|all| all.seconds)
        });
        self.clear(&instrument, &["history", "runs", "hosts"]);
        way
    }

    /// The row of a worker on several hosts.
    fn worked(&self, rounds: u32) -> Result<Figure, Fault> {
        let round = std::cell::Cell::new(0);
        let next = || round.replace(round.get() + 1);
        let (ours, one) = alternate(rounds, || self.worked_on(&WORKERS, next()), || self.worked_on(&[], next()))?;
        Ok(Figure {
            name: "worker on 3 hosts, a CPU s / on one".into(),
            conditions: format!(
                "{} messages of {SIZE} B a round, from a memory stream that is full, through the ready-made worker \
                 `copy`, in 3 slots; CPU of whole programs without the broker",
                self.count
            ),
            unit: Unit::ThousandsPerCpu,
            ours: Series { name: "beamport up on a, n1, n2, n3", samples: ours },
            limits: vec![Series { name: "beamport up, one machine", samples: one }],
            must: 0.33,
            aim: 0.5,
        })
    }

    /// All messages through a worker on these hosts; without one on one machine.
    fn worked_on(&self, workers: &[&str], round: u32) -> Result<Sample, Fault> {
        let instrument = self.name("worked", round);
        let place = Place::new(&worker_file(&instrument, &self.client.brokers, self.live_mib(), workers))?;
        place.fill(&place.data("a"), self.live_mib(), self.count)?;
        let way = self.way(|| {
            let mut hosts = self.up_all(&place, workers)?;
            place.ended(&mut hosts, |hosts| self.arrive(&place.data("a"), "points", hosts)).map(|all| all.seconds)
        });
        self.clear(&instrument, &["points.in", "points.order", "points", "runs", "hosts"]);
        way.map(|way| way.sample)
    }

    fn up_all(&self, place: &Place, workers: &[&str]) -> Result<Vec<Child>, Fault> {
        if workers.is_empty() {
            return Ok(vec![self.up(place, &[])?]);
        }
        ["a"].iter().chain(workers).map(|host| self.up(place, &["--host", host])).collect()
    }

    /// The row of the time that the others need after a host of a worker is killed.
    fn takeover(&self, rounds: u32) -> Result<Figure, Fault> {
        let seconds = (0..rounds).map(|round| self.taken_over(round)).collect::<Result<Vec<f64>, _>>()?;
        let sample = |seconds: f64| Sample { seconds, cpu_seconds: 0.0, bytes: BYTES, messages: 1 };
        let median = Spread::of(&seconds).median;
        Ok(Figure {
            name: "takeover of a killed host of a worker / timeout of its session".into(),
            conditions: format!(
                "a message each {} ms; from kill -9 of one of 3 hosts until the output has all messages from before, \
                 and the {AFTER} behind them: {median:.1} s; the session of a host is {SESSION_S} s; as rates; must \
                 3 s more, aim 1 s",
                STEADY.as_millis(),
            ),
            unit: Unit::Times,
            ours: Series { name: "takeover", samples: seconds.iter().copied().map(sample).collect() },
            limits: vec![Series { name: "session", samples: vec![sample(SESSION_S); seconds.len()] }],
            must: 0.67,
            aim: 0.86,
        })
    }

    fn taken_over(&self, round: u32) -> Result<f64, Fault> {
        let instrument = self.name("takeover", round);
        let place = Place::new(&worker_file(&instrument, &self.client.brokers, 64, &WORKERS))?;
        let mut near = appender(&place.data("a"), 64)?;
        let mut hosts = self.up_all(&place, &WORKERS)?;
        let answer = place.ended(&mut hosts, |hosts| {
            let (mut sent, payload) = (0, vec![7; SIZE as usize]);
            let mut send = || {
                append(&mut near, &payload)?;
                near.publish();
                sent += 1;
                std::thread::sleep(STEADY);
                Ok(sent)
            };
            let made = || place.data("a").reader_early("points").map_or(0, |reader| reader.bounds().count);
            let (start, mut begun) = (Instant::now(), None);
            let late = || Fault::new("bench: the output of a worker on several hosts does not come", made());
            while begun.is_none_or(|begun: Instant| begun.elapsed() < CALM) {
                alive(hosts)?;
                send()?;
                if begun.is_none() && made() > AFTER {
                    begun = Some(Instant::now());
                }
                if start.elapsed() > PATIENCE {
                    return Err(late());
                }
            }
            hosts[2].kill().map_err(wrong("a host is not killed"))?;
            let (killed, all) = (Instant::now(), send()? + AFTER);
            loop {
                let sent: u64 = send()?;
                if sent >= all && made() >= all {
                    return Ok(killed.elapsed().as_secs_f64());
                }
                if killed.elapsed() > LATE {
                    return Err(late());
                }
            }
        });
        self.clear(&instrument, &["points.in", "points.order", "points", "runs", "hosts"]);
        answer
    }

    /// From one instrument to another, by a public topic.
    fn by_record(&self, round: u32) -> Result<Way, Fault> {
        let topic = Topic::new(&self.client, self.name("records", round))?;
        let (brokers, live) = (&self.client.brokers, self.live_mib());
        let from = Place::new(&format!(
            "instrument = \"near\"\ndata = \"a\"\n\n{}\n[sink.out]\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             inputs = [\"history\"]\ntopic = \"{}\"\n",
            history(live),
            topic.name
        ))?;
        let to = Place::new(&format!(
            "instrument = \"far\"\ndata = \"b\"\n\n[source.history]\nkind = \"kafka\"\nbrokers = \"{brokers}\"\n\
             topics = [\"{}\"]\nstart = \"begin\"\nlevel = \"memory\"\nlive = \"{RING_MIB} MiB\"\n",
            topic.name
        ))?;
        from.fill(&from.data("a"), live, self.count)?;
        self.way(|| {
            let mut both = vec![self.up(&from, &[])?, self.up(&to, &[])?];
            to.ended(&mut both, |both| self.arrive(&to.data("b"), "history", both))
                .map(|all| all.seconds)
                .map_err(|fault| fault.hint(std::fs::read_to_string(from.log()).unwrap_or_default()))
        })
    }

    /// Shared memory that holds all messages: 64 B of index for each; a segment, an eighth of the whole, is not used.
    fn live_mib(&self) -> u64 {
        (((SIZE + 64) * self.count) >> 20) * 5 / 4 + 64
    }

    /// The keys of the carrier.
    fn kafka(&self) -> String {
        format!("carrier = \"kafka\"\nbrokers = \"{}\"\nreplication = 1\n", self.client.brokers)
    }

    fn name(&self, what: &str, round: u32) -> String {
        format!("bench-{}-{what}-{round}", std::process::id())
    }

    fn up(&self, place: &Place, more: &[&str]) -> Result<Child, Fault> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(place.log());
        let log = log.map_err(wrong("the log cannot be written"))?;
        let mut command = Command::new(&self.ours);
        command.arg("up").arg(place.file()).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(wrong("beamport does not start"))
    }

    /// Removes the topics of an instrument; one that is not there is no fault.
    fn clear(&self, instrument: &str, streams: &[&str]) {
        for stream in streams {
            let _ = self.client.remove(&format!("{instrument}.{stream}"));
        }
    }

    /// Waits until all messages are in the stream; what it took from the first hundredth of them to the last, as if for
    /// all of them.
    fn arrive(&self, data: &Data, stream: &str, running: &mut [Child]) -> Result<Arrival, Fault> {
        let (start, mut reader, mut from) = (Instant::now(), None, None);
        let cpu = |running: &[Child]| running.iter().map(|one| cpu_seconds_of(one.id())).collect::<Result<Vec<_>, _>>();
        loop {
            alive(running)?;
            // A stream that is recreated before its first message has another reader.
            if from.is_none() {
                reader = data.reader_early(stream).ok();
            }
            let count = reader.as_ref().map_or(0, |reader: &Reader| reader.bounds().count);
            if from.is_none() && count * 100 >= self.count {
                from = Some((Instant::now(), count, cpu(running)?));
            }
            match &from {
                Some((begin, first, before)) if count >= self.count && *first < count => {
                    let (seconds, after) = (begin.elapsed().as_secs_f64(), cpu(running)?);
                    let of_all = count as f64 / (count - first) as f64;
                    let cpu_seconds = before.iter().zip(after).map(|(before, after)| (after - before) * of_all);
                    return Ok(Arrival { seconds: seconds * of_all, cpu_seconds: cpu_seconds.collect() });
                }
                _ if count >= self.count => {
                    return Err(Fault::new("bench: the messages cannot be timed", "all came at once"));
                }
                _ if start.elapsed() > PATIENCE => {
                    return Err(Fault::new("bench: messages do not come to the other side", count));
                }
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// How long one message takes from stream to mirror.
    fn latency(&self, rounds: u32) -> Result<Figure, Fault> {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            if round % 2 == 0 {
                bare.push(self.bare_delays(round)?);
            }
            ours.push(self.delays(round)?);
            if round % 2 == 1 {
                bare.push(self.bare_delays(round)?);
            }
        }
        let sample = |delays: &Delays| Sample { seconds: delays.p99, cpu_seconds: 0.0, bytes: BYTES, messages: 1 };
        let ms = |of: &[Delays], which: fn(&Delays) -> f64| {
            Spread::of(&of.iter().map(|delays| 1000.0 * which(delays)).collect::<Vec<_>>()).median
        };
        Ok(Figure {
            name: "append on a -> seen on b, p99 / bare pair".into(),
            conditions: format!(
                "{} messages of {SIZE} B a round, one in {} ms, each awaited before the next by a reader that sleeps; \
                 median and p99: ours {:.2} and {:.2} ms, a bare producer without linger and a bare consumer {:.2} and \
                 {:.2} ms; the p99 as rates",
                self.timed.0,
                PAUSE.as_millis(),
                ms(&ours, |delays| delays.median),
                ms(&ours, |delays| delays.p99),
                ms(&bare, |delays| delays.median),
                ms(&bare, |delays| delays.p99),
            ),
            unit: Unit::Times,
            ours: Series { name: "beamport up --host a and --host b", samples: ours.iter().map(sample).collect() },
            limits: vec![Series { name: "librdkafka pair", samples: bare.iter().map(sample).collect() }],
            must: 0.5,
            aim: 0.77,
        })
    }

    fn delays(&self, round: u32) -> Result<Delays, Fault> {
        let instrument = self.name("pulse", round);
        let place = Place::new(&hosts_file(&instrument, &self.kafka(), ["", ""], (64, 64)))?;
        let answer = self.pulses(&place);
        self.clear(&instrument, &["history", "runs", "hosts"]);
        answer
    }

    /// Appends messages on `a`, each when a reader on `b` has the one before.
    fn pulses(&self, place: &Place) -> Result<Delays, Fault> {
        let mut near = appender(&place.data("a"), 64)?;
        let mut hosts = vec![self.up(place, &["--host", "a"])?, self.up(place, &["--host", "b"])?];
        place.ended(&mut hosts, |hosts| {
            let (mut reader, payload) = (None, vec![7; SIZE as usize]);
            let late = |number| Fault::new("bench: a message does not come to the other host", number);
            Delays::measure(self.timed, |number| {
                let begin = Instant::now();
                append(&mut near, &payload)?;
                near.publish();
                let there = loop {
                    match reader.as_mut().filter(|reader: &&mut Reader| number > 0 || reader.bounds().count > 0) {
                        Some(there) => break there,
                        // A stream that is recreated before its first message has another reader.
                        None => reader = place.data("b").reader_early("history").ok(),
                    }
                    alive(hosts)?;
                    if begin.elapsed() > LATE {
                        return Err(late(number));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                };
                there.seek(number as u64);
                match there.wait(LATE) {
                    Ok(true) => Ok(begin.elapsed()),
                    Ok(false) => Err(late(number)),
                    Err(e) => Err(Fault::new("bench: the mirror cannot be read", e)),
                }
            })
        })
    }

    fn bare_delays(&self, round: u32) -> Result<Delays, Fault> {
        let topic = Topic::new(&self.client, self.name("bare-pulse", round))?;
        let ears = Ears::new(&[&topic])?;
        let mut sender = topic.sender()?;
        let payload = vec![7; SIZE as usize];
        let delays = Delays::measure(self.timed, |number| {
            let begin = Instant::now();
            sender.send_now(&payload)?;
            let heard = ears.heard.recv_timeout(LATE);
            let (when, _) =
                heard.map_err(|_| Fault::new("bench: a message does not come to the bare consumer", number))?;
            Ok(when.duration_since(begin))
        });
        sender.end()?;
        delays
    }
}

/// The cost of moving all messages.
struct Way {
    sample: Sample,
    /// Processor time of the broker, s.
    broker: f64,
}

impl Way {
    fn with_broker(&self) -> Sample {
        Sample { cpu_seconds: self.sample.cpu_seconds + self.broker, ..self.sample }
    }
}

/// How messages came: seconds, and processor seconds of each process.
struct Arrival {
    seconds: f64,
    cpu_seconds: Vec<f64>,
}

/// Seconds.
struct Delays {
    median: f64,
    p99: f64,
}

impl Delays {
    /// Times messages, one after the other; the first ones do not count.
    fn measure(
        (timed, before): (usize, usize),
        mut send: impl FnMut(usize) -> Result<Duration, Fault>,
    ) -> Result<Self, Fault> {
        let mut seconds = Vec::new();
        for number in 0..before + timed {
            let delay = send(number)?;
            if number >= before {
                seconds.push(delay.as_secs_f64());
            }
            std::thread::sleep(PAUSE);
        }
        seconds.sort_by(f64::total_cmp);
        let at = |part: usize| seconds.get((seconds.len() * part / 100).min(seconds.len() - 1)).copied();
        Ok(Self { median: at(50).unwrap_or(f64::NAN), p99: at(99).unwrap_or(f64::NAN) })
    }
}

/// An instrument file in a folder of its own, with the data of its hosts beside it.
struct Place {
    folder: Folder,
}

impl Place {
    fn new(text: &str) -> Result<Self, Fault> {
        let folder = Folder::in_memory()?;
        let place = Self { folder };
        let write = |path: PathBuf, text: &str| {
            std::fs::write(path, text).map_err(wrong("the instrument file cannot be written"))
        };
        write(place.file(), text)?;
        write(place.folder.path().join("file.json"), "{\"children\": []}")?;
        Ok(place)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("bench.toml")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn data(&self, host: &str) -> Data {
        Data::on_disk(self.folder.path().join(host))
    }

    /// Appends all messages to the stream, which must hold them.
    fn fill(&self, data: &Data, live_mib: u64, count: u64) -> Result<(), Fault> {
        let mut stream = appender(data, live_mib)?;
        let payload: Vec<u8> = (0..SIZE).map(|at| (at.wrapping_mul(2_654_435_761) >> 16) as u8).collect();
        (0..count).try_for_each(|_| append(&mut stream, &payload))?;
        stream.publish();
        drop(stream);
        let first = data.reader_early("history")?.bounds().first;
        if first == 0 { Ok(()) } else { Err(Fault::new("bench: the stream has lost its first messages", first)) }
    }

    /// Ends the processes after `work`; a fault has the log as its hint.
    fn ended<T>(&self, running: &mut [Child], work: impl FnOnce(&mut [Child]) -> Result<T, Fault>) -> Result<T, Fault> {
        let answer = work(running);
        let ended = running.iter_mut().try_for_each(stop);
        let answer = answer.and_then(|answer| ended.map(|()| answer));
        answer.map_err(|fault| fault.hint(std::fs::read_to_string(self.log()).unwrap_or_default()))
    }
}

fn alive(running: &mut [Child]) -> Result<(), Fault> {
    for child in running {
        if let Some(status) = child.try_wait().map_err(wrong("beamport is not there"))? {
            return Err(Fault::new("bench: `beamport up` ended", status));
        }
    }
    Ok(())
}

/// The stream of another process, which is this one.
fn history(live_mib: u64) -> String {
    format!("[source.history]\nkind = \"appended\"\nlevel = \"memory\"\nlive = \"{live_mib} MiB\"\n")
}

/// The stream on `a`, and a sink on `b`, so that it is mirrored there; without a run the sink does nothing. `carrier`
/// and `of_hosts`: keys of `[hosts]`, `[host.a]` and `[host.b]`; MiB of the stream and of its mirror.
fn hosts_file(instrument: &str, carrier: &str, of_hosts: [&str; 2], (live_mib, ring_mib): (u64, u64)) -> String {
    let [a, b] = of_hosts;
    format!(
        "instrument = \"{instrument}\"\n\n[hosts]\n{carrier}\n[host.a]\ndata = \"a\"\n{a}\n\
         [host.b]\ndata = \"b\"\n{b}\n{}\n[mirror.history]\nlive = \"{ring_mib} MiB\"\n\n\
         [sink.file]\nkind = \"nexus\"\ntemplate = \"file.json\"\ninputs = [\"history\"]\nhost = \"b\"\n",
        history(live_mib)
    )
}

/// The stream through a worker on these hosts; without one on one machine, with as many slots.
fn worker_file(instrument: &str, brokers: &str, live_mib: u64, workers: &[&str]) -> String {
    let worker = "[worker.points]\ncall = \"copy\"\ninputs = [\"history\"]\n\
                  level = \"memory\"\n";
    let history = history(live_mib);
    if workers.is_empty() {
        let slots = WORKERS.len();
        return format!("instrument = \"{instrument}\"\ndata = \"a\"\n\n{history}\n{worker}slots = {slots}\n");
    }
    let sections: String = workers.iter().map(|host| format!("[host.{host}]\ndata = \"{host}\"\n\n")).collect();
    let slots: Vec<String> = workers.iter().map(|host| format!("{host} = 1")).collect();
    format!(
        "instrument = \"{instrument}\"\n\n[hosts]\ncarrier = \"kafka\"\nbrokers = \"{brokers}\"\nreplication = 1\n\n\
         [host.a]\ndata = \"a\"\n\n{sections}{history}\n{worker}hosts = {{ {} }}\n",
        slots.join(", ")
    )
}

fn appender(data: &Data, live_mib: u64) -> Result<Appender, Fault> {
    Appender::open(data, "history", Some(Options::memory(live_mib << 20)))
}

fn append(stream: &mut Appender, payload: &[u8]) -> Result<(), Fault> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
    let label = Label { time, origin: "bench", number: None, schema: SchemaId(*b"none") };
    match stream.push(&label, &[payload])? {
        Some(_) => Ok(()),
        None => Err(Fault::new("bench: the stream is full", payload.len())),
    }
}
