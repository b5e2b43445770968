//! How fast a stream becomes a file, for `beamport-bench nexus`: the real path, from stream memory to synced rows.
//!
//! Counted are reading with both checksums, verifying, gathering, writing, libhdf5's flush and fsync. The stream is in
//! shared memory and was filled before.

use crate::template::Template;
use crate::{Job, Nexus, clock};
use flow::{Data, Fault, Sink, stream_fault};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use store::{Meta, Options, ReadOptions, SchemaId};

/// The result of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Pace {
    /// Messages.
    pub messages: u64,
    /// Bytes of `event_id` and `event_time_offset`, or of `value` and `time`.
    pub bytes: u64,
    /// Wall time, s.
    pub seconds: f64,
    /// Time of all cores, s.
    pub cpu_seconds: f64,
    /// Bytes of the file.
    pub file: u64,
    /// From then on until the file is sealed: its last words, its hash, the sync, s.
    pub seal_seconds: f64,
    /// Time of all cores for that, s.
    pub seal_cpu_seconds: f64,
}

/// The messages of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `ev44` with so many events a message. Pixels are any of 32,768, times any of a pulse of 14 Hz in ns: what events have
    /// in common, they have in their high bits.
    Events(u32),
    /// `f144`, a number a message, in turn over so many logs: one log has a thousand a second, of several each has ten.
    Logs(u32),
}

impl Load {
    fn module(self) -> &'static str {
        match self {
            Self::Events(_) => "ev44",
            Self::Logs(_) => "f144",
        }
    }

    /// A group for the events or for each log.
    fn template(self, compression: Option<&str>) -> Result<Template, Fault> {
        let name = self.module();
        let group = |group: &str, source: Option<&str>| {
            let mut config = json!({"stream": name, "compression": compression});
            if let Some(source) = source {
                config["source"] = source.into();
            }
            json!({"type": "group", "name": group, "children": [{"module": name, "config": config}]})
        };
        let groups: Vec<Value> = match self {
            Self::Events(_) => vec![group("bench", None)],
            Self::Logs(logs) => {
                (0..logs.into()).map(source_of).map(|source| group(&source, Some(source.as_str()))).collect()
            }
        };
        let text = json!({"children": [{
            "type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": groups}]});
        Template::parse(text.to_string().as_bytes())
            .map_err(|m| Fault::new("the template", m.first().map(|m| m.told()).unwrap_or_default()))
    }

    /// Bytes of a message that come into the file.
    fn bytes(self) -> u64 {
        match self {
            Self::Events(events) => u64::from(events) * 8,
            Self::Logs(_) => 16,
        }
    }

    /// Writes message `n`; its time.
    fn write(self, payload: &mut Vec<u8>, n: u64) -> Result<i64, Fault> {
        let wrong = |e| Fault::new("cannot create a message", e);
        let events = match self {
            Self::Events(events) => events,
            Self::Logs(logs) => {
                let (log, turn) = (n % u64::from(logs), n / u64::from(logs));
                let timestamp = turn as i64 * if logs == 1 { 1_000_000 } else { 100_000_000 };
                let value = wire::f144::Value::from(280.0 + (turn % 1000) as f64 * 0.01);
                let message = wire::f144::F144 { source_name: &source_of(log), timestamp, value };
                return wire::f144::write(payload, &message).map(|()| timestamp).map_err(wrong);
            }
        };
        let any = |i: u32, most: u64| {
            // The mixing steps of splitmix64.
            let mut z = (n << 32 | u64::from(i)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % most) as i32
        };
        let pixels: Vec<i32> = (0..events).map(|i| 1 + any(i, 32_768)).collect();
        let times: Vec<i32> = (0..events).map(|i| any(i + events, 71_428_571)).collect();
        let time = n as i64 * 71_428_571;
        let (pulse, index) = ([time], [0]);
        let message = wire::ev44::Ev44 {
            source_name: "bank0",
            message_id: n as i64,
            reference_time: (&pulse).into(),
            reference_time_index: (&index).into(),
            time_of_flight: (&times).into(),
            pixel_id: (&pixels).into(),
        };
        wire::ev44::write(payload, &message).map(|()| time).map_err(wrong)
    }
}

/// Name of a log in the file, and of its source.
fn source_of(log: u64) -> String {
    format!("PV{log:05}")
}

/// How it is written.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// How chunks are packed.
    pub compression: Option<String>,
    /// Bytes of a chunk; computed where none is given.
    pub chunk: Option<usize>,
    /// Say `ready` when the stream is filled, and begin when a line comes: several begin together.
    pub together: bool,
}

/// Fills a stream in `folder` with so many messages and writes it to `file`, once a round.
pub fn run(folder: &Path, file: &Path, load: Load, messages: u64, rounds: u32, way: &Way) -> Result<Vec<Pace>, Fault> {
    let compression = &way.compression;
    if let Some(bytes) = way.chunk {
        crate::hdf::column::force_chunks(bytes);
    }
    let data = Data::on_disk(folder);
    let name = load.module();
    let total = messages * (load.bytes() + 1024);
    let fault = |e| stream_fault(name, e);
    let mut writer = data.writer(name, &Options::memory(total * 2 + (64 << 20)))?;
    let origin = writer.origin("bench").map_err(fault)?;
    let mut payload = Vec::new();
    for n in 0..messages {
        let source_time = load.write(&mut payload, n)?;
        let schema = SchemaId(wire::schema_id(&payload).unwrap_or_default());
        writer.append(&Meta { source_time, origin, origin_seq: n, schema, flags: 0 }, &payload).map_err(fault)?;
    }
    writer.publish();
    let template = load.template(compression.as_deref())?;
    if way.together {
        println!("ready");
        let _ = std::io::stdin().read_line(&mut String::new());
    }
    let mut out = Vec::new();
    for round in 0..rounds {
        let job = Job {
            file: file.to_path_buf(),
            template: template.clone(),
            inputs: vec![name.into()],
            run: "bench".into(),
            run_id: format!("bench-{round}-{}", clock::now()),
            start: 0,
            metadata: String::new(),
        };
        let mut sink = Nexus::begin(job, true)?;
        let mut reader = data.reader(name, ReadOptions::default())?;
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let (mut taken, mut aside) = (0, Vec::new());
        loop {
            let batch = reader.read(1024).map_err(fault)?;
            if batch.is_empty() {
                break;
            }
            let all: Vec<_> = batch.iter().collect();
            taken += all.len() as u64;
            sink.write(0, &all, &mut aside)?;
        }
        sink.flush()?;
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        if taken != messages || !aside.is_empty() {
            return Err(Fault::new(
                "the measurement is void",
                format!("{taken} of {messages} messages, {} aside", aside.len()),
            ));
        }
        let (sealing, seal_cpu) = (Instant::now(), cpu_seconds());
        let file_bytes = sink.finish("{}")?.size;
        out.push(Pace {
            messages,
            bytes: messages * load.bytes(),
            seconds,
            cpu_seconds: cpu,
            file: file_bytes,
            seal_seconds: sealing.elapsed().as_secs_f64(),
            seal_cpu_seconds: cpu_seconds() - seal_cpu,
        });
        std::fs::remove_file(file).map_err(|e| Fault::new(format!("cannot remove {}", file.display()), e))?;
    }
    Ok(out)
}

/// Time that this process has used on all cores.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
