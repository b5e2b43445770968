//! `beamport-bench kafka-jobs`: jobs of `beamport ess writer`, from the command to the outcome. A job in the past is
//! compared with the slower of a bare consumer and `beamport write` of the same messages; live jobs end in a time.
//!
//! Commands are sent and answers received by the bare client (`bench/kafka_client.c`). An outcome with an error, loss,
//! or messages set aside fails the measurement.

use super::broker::{Client, open};
use super::frames::stop;
use super::kafka::{READ, Up};
use super::measure::{Figure, Sample, Series, Spread, Unit, alternate, timed};
use super::nexus::seal;
use super::place::{Folder, output, program, wrong};
use flow::Fault;
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::{BufReader, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::answ::{self, ActionOutcome};
use wire::ev44::{self, Ev44};
use wire::f144::{self, F144};
use wire::pl72::{self, Pl72};
use wire::s6s4t::{self, RunStop};
use wire::{wrdn, x5f2};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a job waits for messages after its stop: the writer's default.
const SETTLE_SECONDS: f64 = 0.5;
/// Pulses of 14 Hz.
const PULSE: Duration = Duration::from_nanos(71_428_571);
/// How long live jobs run before the first is stopped: 28 pulses.
const LIVE: Duration = Duration::from_secs(2);
/// Events of a message of a live job.
const LIVE_EVENTS: usize = 1000;
/// Properties of what sends commands and live messages: each at once.
const AT_ONCE: [&str; 2] = ["linger.ms=0", "socket.nagle.disable=true"];

/// Messages of a job in the past.
struct Past {
    text: &'static str,
    module: &'static str,
    /// Events of a message; none: values.
    events: usize,
    count: u64,
    quick_count: u64,
    /// Time from one message to the next.
    period_ns: i64,
    unit: Unit,
}

const PAST: [Past; 2] = [
    Past {
        text: "ev44 of 12,400 events",
        module: "ev44",
        events: 12_400,
        count: 20_000,
        quick_count: 200,
        period_ns: 71_428_571,
        unit: Unit::Gigabytes,
    },
    Past {
        text: "f144",
        module: "f144",
        events: 0,
        count: 2_000_000,
        quick_count: 20_000,
        period_ns: 1_000_000,
        unit: Unit::Millions,
    },
];

/// Runs all rows; `tell` hears of each as it is done.
pub(super) fn run(
    brokers: Option<&str>,
    quick: bool,
    rounds: u32,
    tell: &mut dyn FnMut(&Figure),
) -> Result<Vec<Figure>, Fault> {
    let ours = program("beamport")?;
    program("beamport-nexus")?;
    let (mut node, client) = open(brokers)?;
    let name = format!("beamport-bench-{}", std::process::id());
    client.make(&format!("{name}-pool"), node.as_mut())?;
    let pool = Topic { client: &client, name: format!("{name}-pool") };
    let status = Topic::new(&client, format!("{name}-status"))?;
    let control = Topic::new(&client, format!("{name}-control"))?;
    let history = Topic::new(&client, format!("{name}-history"))?;
    let folder = Folder::on_disk()?;
    let side = Side { ours: &ours, client: &client, pool, status, control, history, folder, jobs: Cell::new(0) };
    let mut figures = Vec::new();
    for past in &PAST {
        figures.push(side.past(past, if quick { past.quick_count } else { past.count }, rounds)?);
        figures.last().into_iter().for_each(&mut *tell);
    }
    figures.push(side.live(if quick { 3 } else { 20 }, rounds)?);
    figures.last().into_iter().for_each(tell);
    Ok(figures)
}

/// A topic of one partition that is removed again.
pub(crate) struct Topic<'a> {
    client: &'a Client,
    pub(crate) name: String,
}

impl<'a> Topic<'a> {
    pub(crate) fn new(client: &'a Client, name: String) -> Result<Self, Fault> {
        client.make(&name, None)?;
        Ok(Self { client, name })
    }

    pub(crate) fn sender(&self) -> Result<Sender, Fault> {
        let mut command = self.client.command("send", &self.name);
        let mut child =
            command.args(AT_ONCE).stdin(Stdio::piped()).spawn().map_err(wrong("the bare client does not start"))?;
        let stdin = child.stdin.take().map(BufWriter::new);
        Ok(Sender { child, stdin })
    }
}

impl Drop for Topic<'_> {
    fn drop(&mut self) {
        let _ = self.client.remove(&self.name);
    }
}

/// Sends to a topic.
pub(crate) struct Sender {
    child: Child,
    stdin: Option<BufWriter<ChildStdin>>,
}

impl Sender {
    pub(crate) fn put(&mut self, payload: &[u8], time_ms: i64) -> Result<(), Fault> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        let mut put = || {
            stdin.write_all(&(payload.len() as u32).to_ne_bytes())?;
            stdin.write_all(&time_ms.to_ne_bytes())?;
            stdin.write_all(payload)
        };
        put().map_err(wrong("the bare client does not take a message"))
    }

    /// A message that is sent at once, with the time of now.
    pub(crate) fn send_now(&mut self, payload: &[u8]) -> Result<(), Fault> {
        self.put(payload, now_ms())?;
        let flushed = self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.flush());
        flushed.map_err(wrong("the bare client does not take a message"))
    }

    /// All is acknowledged.
    pub(crate) fn end(mut self) -> Result<(), Fault> {
        let flushed = self.stdin.take().map_or(Ok(()), |mut stdin| stdin.flush());
        let status = flushed.and_then(|()| self.child.wait()).map_err(wrong("the bare client does not end"))?;
        if status.success() { Ok(()) } else { Err(Fault::new("bench: the bare client failed", status)) }
    }
}

/// Hears what comes on topics, from their first message on.
pub(crate) struct Ears {
    children: Vec<Child>,
    pub(crate) heard: Receiver<(Instant, Vec<u8>)>,
}

impl Ears {
    pub(crate) fn new(topics: &[&Topic<'_>]) -> Result<Self, Fault> {
        let (sender, heard) = channel();
        let mut children = Vec::new();
        for topic in topics {
            let mut command = topic.client.command("receive", &topic.name);
            let mut child = command.stdout(Stdio::piped()).spawn().map_err(wrong("the bare client does not start"))?;
            let Some(stdout) = child.stdout.take() else { continue };
            children.push(child);
            let sender = sender.clone();
            // It ends with the client.
            std::thread::spawn(move || {
                let mut stdout = BufReader::new(stdout);
                let mut len = [0; 4];
                while stdout.read_exact(&mut len).is_ok() {
                    let mut payload = vec![0; u32::from_ne_bytes(len) as usize];
                    let whole = stdout.read_exact(&mut payload);
                    if whole.is_err() || sender.send((Instant::now(), payload)).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Self { children, heard })
    }

    /// When the message came that `is_it` waits for; `what`: its name.
    fn wait(&self, what: &str, mut is_it: impl FnMut(&[u8]) -> Result<bool, Fault>) -> Result<Instant, Fault> {
        let begin = Instant::now();
        loop {
            match self.heard.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
                Ok((when, payload)) if is_it(&payload)? => return Ok(when),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err(Fault::new("bench: the writer does not answer", what)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Fault::new("bench: the client that receives has ended", what));
                }
            }
        }
    }

    /// Writers with these processes have told that they are idle.
    fn idle(&self, mut pids: Vec<u32>) -> Result<(), Fault> {
        let what = "status of an idle writer";
        self.wait(what, |payload| {
            if let Ok(status) = x5f2::read(payload)
                && status.status_json.contains("\"idle\"")
            {
                pids.retain(|pid| *pid != status.process_id);
            }
            Ok(pids.is_empty())
        })
        .map(drop)
    }

    /// These jobs are accepted.
    fn accepted(&self, mut jobs: Vec<String>) -> Result<(), Fault> {
        self.wait("answer to a start", |payload| {
            let Ok(answer) = answ::read(payload) else { return Ok(false) };
            if answer.outcome != ActionOutcome::Success {
                return Err(Fault::new("bench: a command is refused", answer.message));
            }
            jobs.retain(|job| job != answer.job_id);
            Ok(jobs.is_empty())
        })
        .map(drop)
    }

    /// When a job had its outcome, which must be whole and have `count` messages, where that is known.
    fn finished(&self, job: &str, count: Option<u64>) -> Result<Instant, Fault> {
        self.wait("outcome of a job", |payload| {
            let outcome = match wrdn::read(payload) {
                Ok(outcome) if outcome.job_id == job => outcome,
                _ => return Ok(false),
            };
            let message = outcome.message.unwrap_or_default();
            let account: Value = serde_json::from_str(message).map_err(wrong("an outcome cannot be read"))?;
            let topics = account["topics"].as_object().into_iter().flatten();
            let messages: u64 = topics.filter_map(|(_, counts)| counts["messages"].as_u64()).sum();
            let is_whole = !outcome.error_encountered
                && account["aside"].as_object().is_some_and(|aside| aside.is_empty())
                && count.is_none_or(|count| messages == count);
            if is_whole { Ok(true) } else { Err(Fault::new("bench: a job is not whole", message)) }
        })
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A writer that ends with this value.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = stop(&mut self.0);
    }
}

/// Topics, programs and folders of all rows.
struct Side<'a> {
    ours: &'a Path,
    client: &'a Client,
    pool: Topic<'a>,
    status: Topic<'a>,
    control: Topic<'a>,
    history: Topic<'a>,
    folder: Folder,
    jobs: Cell<u32>,
}

impl Side<'_> {
    fn past(&self, past: &Past, count: u64, rounds: u32) -> Result<Figure, Fault> {
        let topic = Topic::new(self.client, format!("{}-{}", self.history.name, past.module))?;
        let span = past.period_ns * count as i64;
        let start_ns = (now_ms() - 60_000) * 1_000_000 - span;
        let mut sender = topic.sender()?;
        let mut payload = Vec::new();
        let mut bytes = 0;
        for at in 0..count {
            let time = start_ns + at as i64 * past.period_ns;
            message(&mut payload, past.events, at, time)?;
            bytes += payload.len() as u64;
            sender.put(&payload, time / 1_000_000)?;
        }
        sender.end()?;
        // The start is that of the first message, the stop behind the last.
        let times = (start_ns / 1_000_000, start_ns.saturating_add(span) / 1_000_000);
        // 64 B of index for each message, 8 B to align it, and a segment that is not for use.
        let stream = Up::new(self.ours, self.client, &topic.name, count, ((bytes + 72 * count) >> 20) * 5 / 4 + 64)?;
        stream.fill()?;
        seal(&stream.data, "history", (start_ns, start_ns + span))?;
        let structure = self.folder.path().join(format!("{}.json", past.module));
        std::fs::write(&structure, template(past.module, "stream", "history"))
            .map_err(wrong("the template cannot be written"))?;
        let ears = Ears::new(&[&self.status, &self.control])?;
        let mut pool = self.pool.sender()?;
        let job = || {
            sample((bytes, count), || {
                let writer = self.writer("past", "1 GiB")?;
                ears.idle(vec![writer.0.id()])?;
                let start = self.start(past.module, &topic.name, times.0, Some(times.1));
                let begin = Instant::now();
                pool.send_now(&start.command)?;
                let end = ears.finished(&start.id, Some(count))?;
                std::fs::remove_file(&start.file).map_err(wrong("the file of a job is not there"))?;
                Ok(end.duration_since(begin).as_secs_f64())
            })
        };
        let (mut consumer, mut write) = (Vec::new(), Vec::new());
        let limit = || {
            let bare = sample((bytes, count), || {
                let mut command = self.client.command("consume", &topic.name);
                let begin = Instant::now();
                output(command.arg(count.to_string()).args(READ))?;
                Ok(begin.elapsed().as_secs_f64())
            })?;
            let written = sample((bytes, count), || self.write(&stream, &structure))?;
            consumer.push(bare.seconds);
            write.push(written.seconds);
            Ok(if bare.seconds > written.seconds { bare } else { written })
        };
        let (ours, limit) = alternate(rounds, job, limit)?;
        let median = |seconds: &[f64]| Spread::of(seconds).median;
        Ok(Figure {
            name: format!("job in the past, {} / the slower part", past.text).into(),
            conditions: format!(
                "{count} messages, {bytes} B, one partition, the log of the broker in the page cache; pl72 sent to \
                 wrdn by a writer that was idle: check of the job, start of its processes, file on the disk with \
                 BLAKE3 and fsync; the slower of the bare consumer, {:.2} s, and `beamport write` of a memory stream \
                 with the same messages, {:.2} s, both whole programs; CPU of whole programs without the broker",
                median(&consumer),
                median(&write)
            ),
            unit: past.unit,
            ours: Series { name: "beamport ess writer", samples: ours },
            limits: vec![Series { name: "bare consumer or `beamport write`, the slower", samples: limit }],
            must: 0.6,
            aim: 0.8,
        })
    }

    fn live(&self, count: usize, rounds: u32) -> Result<Figure, Fault> {
        let topic = Topic::new(self.client, format!("{}-live", self.history.name))?;
        let ears = Ears::new(&[&self.status, &self.control])?;
        let mut pool = self.pool.sender()?;
        let mut control = self.control.sender()?;
        let mut writers = Vec::new();
        for _ in 0..count {
            writers.push(self.writer("live", "32 MiB")?);
        }
        ears.idle(writers.iter().map(|writer| writer.0.id()).collect())?;
        let (mut samples, mut all) = (Vec::new(), Vec::new());
        let is_over = AtomicBool::new(false);
        let source = topic.sender()?;
        std::thread::scope(|scope| {
            let feed = scope.spawn(|| feed(source, &is_over));
            let mut work = || {
                for _ in 0..rounds {
                    let seconds = self.live_round(count, &topic.name, &ears, &mut pool, &mut control)?;
                    samples.push(p95(&seconds));
                    all.extend(seconds);
                }
                Ok(())
            };
            let answer = work();
            is_over.store(true, Ordering::Relaxed);
            let fed = feed.join().unwrap_or_else(|_| Err(Fault::new("bench: a thread broke", "the feed")));
            answer.and(fed)
        })?;
        let sample = |seconds: f64| Sample {
            seconds: (seconds - SETTLE_SECONDS).max(1e-3),
            cpu_seconds: 0.0,
            bytes: 1_000_000_000,
            messages: count as u64,
        };
        let Spread { median, min, max } = Spread::of(&all);
        Ok(Figure {
            name: format!("{count} live jobs at 14 Hz end so often a second").into(),
            conditions: format!(
                "each round: {count} jobs of one topic with an ev44 of {LIVE_EVENTS} events and an f144 at 14 Hz, \
                 stopped one after the other; 6s4t sent to wrdn, p95 of the jobs, less the {SETTLE_SECONDS} s in which \
                 messages settle: must 1.5 s, aim 0.5 s; with the settling {median:.2} s ({min:.2}..{max:.2}) of all \
                 jobs; CPU not measured"
            ),
            unit: Unit::Times,
            ours: Series { name: "beamport ess writer", samples: samples.into_iter().map(sample).collect() },
            limits: Vec::new(),
            must: 0.667,
            aim: 2.0,
        })
    }

    /// Seconds of each job from its stop to its outcome.
    fn live_round(
        &self,
        count: usize,
        topic: &str,
        ears: &Ears,
        pool: &mut Sender,
        control: &mut Sender,
    ) -> Result<Vec<f64>, Fault> {
        let jobs: Vec<Start> = (0..count).map(|_| self.start("both", topic, now_ms(), None)).collect();
        for job in &jobs {
            pool.send_now(&job.command)?;
        }
        ears.accepted(jobs.iter().map(|job| job.id.clone()).collect())?;
        std::thread::sleep(LIVE);
        let mut all = Vec::new();
        for job in &jobs {
            let mut command = Vec::new();
            let parts = RunStop { stop_time: 0, run_name: "", job_id: &job.id, service_id: "", command_id: &job.id };
            s6s4t::write(&mut command, &parts).map_err(wrong("a command cannot be made"))?;
            let begin = Instant::now();
            control.send_now(&command)?;
            all.push(ears.finished(&job.id, None)?.duration_since(begin).as_secs_f64());
            std::fs::remove_file(&job.file).map_err(wrong("the file of a job is not there"))?;
        }
        Ok(all)
    }

    /// Seconds in which `beamport write` writes the file of the run.
    fn write(&self, stream: &Up, structure: &Path) -> Result<f64, Fault> {
        let file = self.folder.path().join("written.nxs");
        let mut command = Command::new(self.ours);
        command.args(["write", "bench", "--output"]).arg(&file).arg("--template").arg(structure);
        command.arg("--data").arg(&stream.data.folder);
        let begin = Instant::now();
        output(&mut command)?;
        let seconds = begin.elapsed().as_secs_f64();
        std::fs::remove_file(&file).map_err(wrong("a file of the measurement cannot be removed"))?;
        Ok(seconds)
    }

    /// A writer whose jobs lie in a folder.
    fn writer(&self, data: &str, memory: &str) -> Result<Writer, Fault> {
        let mut command = Command::new(self.ours);
        command.args(["ess", "writer", "--brokers", &self.client.brokers, "--job-pool-topic", &self.pool.name]);
        command.args(["--command-status-topic", &self.status.name, "--memory", memory, "-v", "Error"]);
        command.arg("--hdf-output-prefix").arg(self.folder.path()).arg("--data").arg(self.folder.path().join(data));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().map(Writer).map_err(wrong("beamport does not start"))
    }

    fn start(&self, module: &str, topic: &str, start_ms: i64, stop_ms: Option<i64>) -> Start {
        let number = self.jobs.get() + 1;
        self.jobs.set(number);
        let id = format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id());
        let name = format!("{number}.nxs");
        let mut command = Vec::new();
        let parts = Pl72 {
            start_time: start_ms.unsigned_abs(),
            stop_time: stop_ms.unwrap_or(0).unsigned_abs(),
            run_name: "",
            instrument_name: "",
            nexus_structure: &template(module, "topic", topic),
            job_id: &id,
            broker: "",
            service_id: "",
            filename: &name,
            n_periods: 1,
            detector_spectrum_map: None,
            metadata: "{}",
            control_topic: &self.control.name,
        };
        // Writing to memory does not fail but for texts that are too long.
        let _ = pl72::write(&mut command, &parts);
        Start { command, id, file: self.folder.path().join(name) }
    }
}

/// A command that starts a job.
struct Start {
    command: Vec<u8>,
    id: String,
    file: PathBuf,
}

/// Sends messages at 14 Hz until it is over.
fn feed(mut sender: Sender, is_over: &AtomicBool) -> Result<(), Fault> {
    let (mut payload, begin) = (Vec::new(), Instant::now());
    for at in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        for events in [LIVE_EVENTS, 0] {
            message(&mut payload, events, at, now_ms() * 1_000_000)?;
            sender.send_now(&payload)?;
        }
        std::thread::sleep((PULSE * (at as u32 + 1)).saturating_sub(begin.elapsed()));
    }
    sender.end()
}

/// The message with a number: events, or a value where there are none.
fn message(out: &mut Vec<u8>, events: usize, number: u64, time: i64) -> Result<(), Fault> {
    let made = if events == 0 {
        f144::write(out, &F144 { source_name: "value", timestamp: time, value: (number as f64).into() })
    } else {
        let times: Vec<i32> = (0..events as i32).map(|k| 1000 + 31 * k).collect();
        let pixels: Vec<i32> = (0..events as u64).map(|k| ((7 * (number % 64) + 13 * k) % 32_768 + 1) as i32).collect();
        let (pulse, begin) = ([time], [0]);
        ev44::write(
            out,
            &Ev44 {
                source_name: "bank",
                message_id: number as i64,
                reference_time: (&pulse).into(),
                reference_time_index: (&begin).into(),
                time_of_flight: (&times).into(),
                pixel_id: (&pixels).into(),
            },
        )
    };
    made.map_err(wrong("a message cannot be made"))
}

/// The structure of a file with events, values or both; `key` says where they come from.
fn template(module: &str, key: &str, from: &str) -> String {
    let group = |name: &str, class: &str, children: Value| {
        json!({"type": "group", "name": name, "children": children,
               "attributes": [{"name": "NX_class", "dtype": "string", "values": class}]})
    };
    let mut children = Vec::new();
    for (id, name, class) in [("ev44", "bank", "NXevent_data"), ("f144", "value", "NXlog")] {
        if module == id || module == "both" {
            let mut config = json!({"source": name, key: from});
            if id == "f144" {
                config["dtype"] = "double".into();
            }
            children.push(group(name, class, json!([{"module": id, "config": config}])));
        }
    }
    json!({"children": [group("entry", "NXentry", json!(children))]}).to_string()
}

/// The value that 95 of 100 do not exceed.
fn p95(seconds: &[f64]) -> f64 {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * 95).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// A sample whose seconds are those that the work tells.
fn sample((bytes, messages): (u64, u64), work: impl FnOnce() -> Result<f64, Fault>) -> Result<Sample, Fault> {
    let mut seconds = 0.0;
    let sample = timed(bytes, messages, || work().map(|found| seconds = found))?;
    Ok(Sample { seconds, ..sample })
}

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::p95;

    #[test]
    fn p95_of_twenty_is_the_second_largest() {
        let seconds: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(p95(&seconds), 19.0);
        assert_eq!(p95(&[3.0]), 3.0);
        assert!(p95(&[]).is_nan());
    }
}
