//! `beamport-bench kafka`: topics into streams and streams into topics by `beamport up`, beside a bare consumer and a
//! bare producer of librdkafka (`bench/kafka_client.c`) with the same properties, on the same broker.
//!
//! One partition. A rate counts from the first hundredth of the messages to the last of them: a start is no rate.
//! Processor time is that of whole programs, starts included, without the broker's.

use super::broker::{Client, open, seconds};
use super::frames::stop;
use super::measure::{Figure, Sample, Series, Unit, alternate, timed};
use super::place::{Folder, output, program, wrong};
use flow::{Data, Fault};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the messages of one size.
pub(crate) const BYTES: u64 = 2_000_000_000;
/// The same in a quick measurement.
pub(crate) const QUICK_BYTES: u64 = 50_000_000;
/// Longest wait for the messages of a round.
const PATIENCE: Duration = Duration::from_secs(200);
/// Shared memory of the stream that takes a topic, MiB: its pages are reused from the second lap on.
const RING_MIB: u64 = 256;
/// Properties of the client of a source, which the bare consumer gets too.
pub(crate) const READ: [&str; 6] = [
    "client.id=bench",
    "queued.max.messages.kbytes=32768",
    "max.partition.fetch.bytes=8388608",
    "fetch.queue.backoff.ms=5",
    "reconnect.backoff.max.ms=2000",
    "fetch.error.backoff.ms=100",
];
/// Properties of the client of a sink, which the bare producer gets too.
pub(crate) const SEND: [&str; 12] = [
    "client.id=bench",
    "enable.idempotence=true",
    "acks=all",
    "message.timeout.ms=0",
    "queue.buffering.max.kbytes=131072",
    "queue.buffering.max.messages=100000",
    "message.max.bytes=1000000000",
    "linger.ms=5",
    "socket.nagle.disable=true",
    "reconnect.backoff.max.ms=2000",
    "retry.backoff.ms=100",
    "retry.backoff.max.ms=1000",
];

/// Messages of one size.
struct Job {
    size: u64,
    text: &'static str,
    unit: Unit,
    /// Must and aim of both directions.
    read: (f64, f64),
    send: (f64, f64),
}

const JOBS: [Job; 3] = [
    Job { size: 200, text: "200 B", unit: Unit::Millions, read: (0.5, 0.8), send: (0.6, 0.8) },
    Job { size: 100_000, text: "100 kB", unit: Unit::Gigabytes, read: (0.8, 0.95), send: (0.9, 1.0) },
    Job { size: 1_000_000, text: "1 MB", unit: Unit::Gigabytes, read: (0.8, 0.95), send: (0.9, 1.0) },
];

/// Runs all rows; `tell` hears of each as it is done.
pub(super) fn run(
    brokers: Option<&str>,
    bytes: u64,
    rounds: u32,
    tell: &mut dyn FnMut(&Figure),
) -> Result<Vec<Figure>, Fault> {
    let ours = program("beamport")?;
    let (mut node, client) = open(brokers)?;
    let mut figures = Vec::new();
    for job in &JOBS {
        // Less than a hundred would all come at once.
        let count = (bytes / job.size).max(100);
        let history = format!("beamport-bench-{}-{}", std::process::id(), job.size);
        client.make(&history, node.as_mut())?;
        let side = Side { ours: &ours, client: &client, history: &history, size: job.size, count };
        let answer = side.rows(job, rounds, tell, &mut figures);
        // Removes the topic even after a failure: the cluster may be somebody's.
        let removed = client.remove(&history);
        answer.and(removed)?;
    }
    Ok(figures)
}

/// The messages of one size, and who moves them.
struct Side<'a> {
    ours: &'a Path,
    client: &'a Client,
    /// The topic that has the messages.
    history: &'a str,
    size: u64,
    count: u64,
}

impl Side<'_> {
    fn rows(
        &self,
        job: &Job,
        rounds: u32,
        tell: &mut dyn FnMut(&Figure),
        figures: &mut Vec<Figure>,
    ) -> Result<(), Fault> {
        output(&mut self.producer(self.history))?;
        let (ours, limit) = alternate(rounds, || self.take(), || self.consume())?;
        let (count, bytes) = (self.count, self.count * self.size);
        let all =
            format!("{count} messages a round, {bytes} B, one partition, the log of the broker in the page cache");
        let figure = Figure {
            name: format!("topic -> stream, {} / bare consumer", job.text).into(),
            conditions: format!(
                "{all}; a memory stream of {RING_MIB} MiB, pages new in the first lap, CRC and index in; the bare \
                 consumer takes batches and reads each byte once; CPU of whole programs without the broker"
            ),
            unit: job.unit,
            ours: Series { name: "beamport up, source kafka", samples: ours },
            limits: vec![Series { name: "librdkafka, same properties", samples: limit }],
            must: job.read.0,
            aim: job.read.1,
        };
        tell(&figure);
        figures.push(figure);
        let stream = self.filled()?;
        let mut round = 0;
        let ours = || {
            round += 1;
            self.send(&stream, round)
        };
        let (ours, limit) = alternate(rounds, ours, || self.produce())?;
        let figure = Figure {
            name: format!("stream -> topic, {} / bare producer", job.text).into(),
            conditions: format!(
                "{all}; from a memory stream that is full, each payload checked, with key and identity (40 B of \
                 header); the bare producer copies one payload, with a key; acknowledged by the broker, \
                 which does not sync; \
                 counted by the end offset of the topic; CPU of whole programs without the broker"
            ),
            unit: job.unit,
            ours: Series { name: "beamport up, sink kafka", samples: ours },
            limits: vec![Series { name: "librdkafka, idempotent, same properties", samples: limit }],
            must: job.send.0,
            aim: job.send.1,
        };
        tell(&figure);
        figures.push(figure);
        Ok(())
    }

    /// The bare producer, into a topic.
    fn producer(&self, topic: &str) -> Command {
        let mut command = self.client.command("produce", topic);
        command.args([self.size, self.count].map(|number| number.to_string())).args(SEND);
        command
    }

    /// The bare consumer.
    fn consume(&self) -> Result<Sample, Fault> {
        self.sample(|| {
            let mut command = self.client.command("consume", self.history);
            seconds(&output(command.arg(self.count.to_string()).args(READ))?)
        })
    }

    /// The bare producer, into a new topic.
    fn produce(&self) -> Result<Sample, Fault> {
        self.sent("bare", |topic| {
            let mut command = self.producer(topic);
            let mut child = command.spawn().map_err(wrong("the bare producer does not start"))?;
            let answer = self.watch(topic, &mut child);
            let ended = child.wait().map_err(wrong("the bare producer does not end"))?;
            if !ended.success() {
                return Err(Fault::new("bench: the bare producer failed", ended));
            }
            answer
        })
    }

    /// Topic into stream.
    fn take(&self) -> Result<Sample, Fault> {
        self.sample(|| self.up(RING_MIB)?.take())
    }

    /// A memory stream that holds all messages.
    fn filled(&self) -> Result<Up, Fault> {
        // 64 B of index for each message; a segment, an eighth of the whole, is not for use.
        let up = self.up((((self.size + 64) * self.count) >> 20) * 5 / 4 + 64)?;
        up.fill()?;
        Ok(up)
    }

    fn up(&self, live_mib: u64) -> Result<Up, Fault> {
        Up::new(self.ours, self.client, self.history, self.count, live_mib)
    }

    /// Stream into a new topic.
    fn send(&self, stream: &Up, round: u32) -> Result<Sample, Fault> {
        self.sent(&format!("stream-{round}"), |topic| {
            // Each round is a sink that has sent nothing yet.
            let brokers = &self.client.brokers;
            let sink = format!(
                "[sink.out{round}]\nkind = \"kafka\"\nbrokers = \"{brokers}\"\ninputs = [\"history\"]\n\
                 topic = \"{topic}\"\n"
            );
            stream.run(&sink, |child| self.watch(topic, child))
        })
    }

    /// Makes a topic for a round, and removes it.
    fn sent(&self, name: &str, work: impl FnOnce(&str) -> Result<f64, Fault>) -> Result<Sample, Fault> {
        let topic = format!("{}-{name}", self.history);
        self.client.make(&topic, None)?;
        let sample = self.sample(|| work(&topic));
        let removed = self.client.remove(&topic);
        sample.and_then(|sample| removed.map(|()| sample))
    }

    /// Seconds until all messages are in a topic, as long as who sends them lives or has ended well.
    fn watch(&self, topic: &str, sender: &mut Child) -> Result<f64, Fault> {
        let mut command = self.client.command("watch", topic);
        command.arg(self.count.to_string()).stdout(Stdio::piped());
        let mut watch = command.spawn().map_err(wrong("the client of librdkafka does not start"))?;
        let begin = Instant::now();
        let answer = loop {
            if watch.try_wait().map_err(wrong("the client of librdkafka is not there"))?.is_some() {
                break Ok(());
            }
            match sender.try_wait().map_err(wrong("who sends is not there"))? {
                Some(status) if !status.success() => break Err(Fault::new("bench: who sends has ended", status)),
                _ if begin.elapsed() > PATIENCE => {
                    break Err(Fault::new("bench: messages do not reach the topic", topic));
                }
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let _ = watch.kill();
        let said = watch.wait_with_output().map_err(wrong("the client of librdkafka does not answer"))?;
        answer.and_then(|()| seconds(&String::from_utf8_lossy(&said.stdout)))
    }

    fn sample(&self, work: impl FnOnce() -> Result<f64, Fault>) -> Result<Sample, Fault> {
        let mut seconds = 0.0;
        let sample = timed(self.count * self.size, self.count, || work().map(|found| seconds = found))?;
        Ok(Sample { seconds, ..sample })
    }
}

/// `beamport up` of an instrument that reads the history into one stream.
pub(crate) struct Up {
    folder: Folder,
    pub(crate) data: Data,
    program: PathBuf,
    text: String,
    count: u64,
}

impl Up {
    /// A stream of the given MiB that takes `count` messages of a topic.
    pub(crate) fn new(ours: &Path, client: &Client, topic: &str, count: u64, live_mib: u64) -> Result<Self, Fault> {
        let folder = Folder::in_memory()?;
        let data = Data::on_disk(folder.path().join("data"));
        let text = format!(
            "instrument = \"bench\"\ndata = \"data\"\n\n[source.history]\nkind = \"kafka\"\nbrokers = \"{}\"\n\
             topics = [\"{}\"]\nstart = \"begin\"\nlevel = \"memory\"\nlive = \"{live_mib} MiB\"\n\n",
            client.brokers, topic
        );
        Ok(Self { folder, data, program: ours.to_path_buf(), text, count })
    }

    /// Starts it with a sink, or none; ends it after `work`.
    fn run(&self, sink: &str, work: impl FnOnce(&mut Child) -> Result<f64, Fault>) -> Result<f64, Fault> {
        let path = |name: &str| self.folder.path().join(name);
        std::fs::write(path("bench.toml"), format!("{}{sink}", self.text))
            .map_err(wrong("the instrument file cannot be written"))?;
        let log = std::fs::File::create(path("log")).map_err(wrong("the log cannot be written"))?;
        let mut command = Command::new(&self.program);
        command.arg("up").arg(path("bench.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().map_err(wrong("beamport does not start"))?;
        let answer = work(&mut child);
        let ended = stop(&mut child);
        let answer = answer.and_then(|seconds| ended.map(|()| seconds));
        answer.map_err(|fault| fault.hint(std::fs::read_to_string(path("log")).unwrap_or_default()))
    }

    /// Takes all messages of the topic into a stream that must hold them.
    pub(crate) fn fill(&self) -> Result<(), Fault> {
        self.take()?;
        let first = self.data.reader_early("history")?.bounds().first;
        if first == 0 { Ok(()) } else { Err(Fault::new("bench: the stream has lost its first messages", first)) }
    }

    /// Seconds until all messages of the topic are in the stream.
    fn take(&self) -> Result<f64, Fault> {
        self.run("", |child| {
            let (start, mut reader, mut from) = (Instant::now(), None, None);
            loop {
                if let Some(status) = child.try_wait().map_err(wrong("beamport is not there"))? {
                    return Err(Fault::new("bench: `beamport up` ended", status));
                }
                // A source that starts once more, before it has a message, makes its stream anew.
                if from.is_none() {
                    reader = self.data.reader_early("history").ok();
                }
                let count = reader.as_ref().map_or(0, |r: &store::Reader| r.bounds().count);
                if from.is_none() && count * 100 >= self.count {
                    from = Some((Instant::now(), count));
                }
                match from {
                    Some((begin, first)) if count == self.count && first < count => {
                        return Ok(begin.elapsed().as_secs_f64() * count as f64 / (count - first) as f64);
                    }
                    _ if count >= self.count => {
                        let found = format!("{count} of {} at once", self.count);
                        return Err(Fault::new("bench: the messages cannot be timed", found).hint("use more --bytes"));
                    }
                    _ if start.elapsed() > PATIENCE => {
                        return Err(Fault::new("bench: the topic does not come to its end", count));
                    }
                    _ => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        })
    }
}
