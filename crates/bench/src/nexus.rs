//! `beamport-bench nexus`: a sealed run to its NeXus file, against plain h5py that appends the same batches; and what the
//! writer does with a stream in memory, against the disk itself.
//!
//! Beside h5py ours is the whole process that writes files, from its start to its end: reading and checking the stream, the
//! file, its checksum, the sync. The other side is only the loop, the close and the sync; its interpreter is not counted.
//! Beside the disk ours is what a run has while it is measured: all from the first message read to the rows synced, without
//! start and end of the file; how long that end takes is a row of its own.

use super::limit::{Pages, SEGMENT_BYTES, write_new};
use super::measure::{Figure, Sample, Series, Unit, timed};
use super::place::{Folder, output, program, python_with, wrong};
use super::sizes::Sizes;
use super::store::TwoWrites;
use flow::job::{Elsewhere, Work, Writer};
use flow::{Data, Fault, RunKeeper, StreamView, WriterJob};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use store::{Error, Meta, Options, SchemaId};
use wire::ev44::{self, Ev44};

/// The other side, run by a Python that has h5py.
const PEER: &str = include_str!("../../../bench/append_h5py.py");
/// One detector in one file: as the other side writes it.
const TEMPLATE: &str = r#"{"children": [{"type": "group", "name": "entry",
  "attributes": [{"name": "NX_class", "dtype": "string", "values": "NXentry"}],
  "children": [{"type": "group", "name": "detector",
    "attributes": [{"name": "NX_class", "dtype": "string", "values": "NXevent_data"}],
    "children": [{"module": "ev44", "config": {"stream": "detector", "source": "bench"}}]}]}]}"#;
const START_NS: i64 = 1_700_000_000_000_000_000;
/// The file that is sealed has so many times the events: nearly 4 GB.
const SEALED: u64 = 8;
/// Pulses of 14 Hz.
const PULSE_NS: i64 = 71_428_571;

/// The programs that are needed beside this one.
struct Programs {
    nexus: PathBuf,
    python: PathBuf,
}

/// Runs both rows; `tell` hears of each as it is done.
pub(crate) fn run(sizes: &Sizes, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let programs = Programs { nexus: program("beamport-nexus")?, python: python_with("h5py", "pip install h5py")? };
    let rows = [
        ("12,400 events a message / h5py", 12_400, Folder::on_disk()?, "the disk", (4.0, 10.0)),
        ("1,000 events a message in memory / h5py", 1_000, Folder::in_memory()?, "/dev/shm", (10.0, 25.0)),
    ];
    let mut figures = Vec::new();
    for (name, events, folder, place, (must, aim)) in rows {
        // h5py takes its time by the batch, not by the byte: small ones get a sixth of the events.
        let messages = if events < 10_000 { sizes.nexus_events / events / 6 } else { sizes.nexus_events / events };
        let (ours, limit) = row(&programs, &folder, messages, events as usize, rounds)?;
        let figure = Figure {
            name: name.into(),
            conditions: format!(
                "{messages} messages ({} MiB of events) a round, a sealed run in a memory stream to a new file on {place}; ours: whole process with CRC, BLAKE3 and fsync; h5py: appending, close and fsync, chunks of 1 MiB",
                (messages * events * 8) >> 20
            ),
            unit: Unit::Gigabytes,
            ours: Series { name: "beamport-nexus", samples: ours },
            limits: vec![Series { name: "h5py appending the same batches", samples: limit }],
            must,
            aim,
        };
        tell(&figure);
        figures.push(figure);
    }
    for pace in PACES {
        let figure = paced(&programs, &pace, sizes, rounds)?;
        tell(&figure);
        figures.push(figure);
    }
    for of in [logged, many_logs, sealed] {
        let figure = of(&programs, sizes, rounds)?;
        tell(&figure);
        figures.push(figure);
    }
    Ok(figures)
}

/// Events from a stream in memory to synced rows on the disk.
struct Paced {
    name: &'static str,
    events: u64,
    compression: Option<&'static str>,
    must: f64,
    aim: f64,
}

const PACES: [Paced; 3] = [
    Paced { name: "ev44 of 1 MB / the better of two writes", events: 125_000, compression: None, must: 0.6, aim: 0.9 },
    Paced {
        name: "ev44 of 12,400 events / the better of two writes",
        events: 12_400,
        compression: None,
        must: 0.5,
        aim: 0.85,
    },
    // Of what the unfiltered path has to reach: once, and one and a half times.
    Paced {
        name: "the same through bitshuffle-lz4 / the better of two writes",
        events: 12_400,
        compression: Some("bitshuffle-lz4"),
        must: 0.5,
        aim: 0.75,
    },
];

fn paced(programs: &Programs, pace: &Paced, sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::on_disk()?;
    let piece = Pages::filled(1 << 20).map_err(wrong("no memory for the limit"))?;
    let piece = piece.bytes();
    let messages = sizes.nexus_events / pace.events;
    let bytes = (messages * pace.events * 8) / piece.len() as u64 * piece.len() as u64;
    let mut limits = TwoWrites::new(folder.path(), bytes.div_ceil(SEGMENT_BYTES as u64) as usize)?;
    let mut ours = Series::new("beamport-nexus");
    // Not the best that the disk can do, but what it does with a file such as ours.
    let mut new = Series::new("O_DIRECT + fdatasync, a new file by two threads");
    let path = folder.path().join("new");
    let mut ratio = 0.0;
    for round in 0..rounds {
        limits.round(round, piece, (bytes, messages), || {
            let sample =
                timed(bytes, messages, || write_new(&path, piece, bytes).map_err(wrong("the limit on the disk")))?;
            new.samples.push(sample);
            std::fs::remove_file(&path).map_err(wrong("a file of the measurement cannot be removed"))?;
            let (sample, file) = pace_of(programs, folder.path(), messages, pace.events, pace.compression)?;
            ratio = sample.bytes as f64 / file as f64;
            ours.samples.push(sample);
            Ok(())
        })?;
    }
    Ok(Figure {
        name: pace.name.into(),
        conditions: format!(
            "{messages} messages ({} MiB of events: pixels of 32,768, times of 71 ms, at random) a round, from a memory stream to a new file on the disk, CRC, BLAKE3, flush and fsync in; the file is {ratio:.2} times smaller than the events; the limit writes as many bytes to recycled files of 64 MiB in pieces of 1 MiB, and for comparison to a new file",
            bytes >> 20
        ),
        unit: Unit::Gigabytes,
        ours,
        limits: limits.series.into_iter().chain([new]).collect(),
        must: pace.must,
        aim: pace.aim,
    })
}

fn logged(programs: &Programs, sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let messages = sizes.nexus_events / 30;
    let mut ours = Series::new("beamport-nexus");
    for _ in 0..rounds {
        let (sample, _) = pace_of(programs, folder.path(), messages, 0, None)?;
        // On one core, whoever else had one.
        ours.samples.push(Sample { seconds: sample.seconds.max(sample.cpu_seconds), ..sample });
    }
    Ok(Figure {
        name: "f144, stream -> NeXus, one core".into(),
        conditions: format!(
            "{messages} messages a round, a number each, from a memory stream to a new file in /dev/shm; the time of all threads together where that is longer"
        ),
        unit: Unit::Millions,
        ours,
        limits: Vec::new(),
        must: 0.5,
        aim: 2.0,
    })
}

/// Measures the cost of a message with many logs.
fn many_logs(programs: &Programs, sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let messages = sizes.nexus_events / 30;
    let [mut many, mut few] = [Series::new("5,000 logs"), Series::new("10 logs")];
    for _ in 0..rounds {
        for (series, logs) in [(&mut many, "5000"), (&mut few, "10")] {
            let arguments = ["--events", "0", "--logs", logs];
            let sample = round_of(programs, folder.path(), messages, &arguments)?.rows;
            series.samples.push(Sample { seconds: sample.cpu_seconds, ..sample });
        }
    }
    Ok(Figure {
        name: "f144 over 5,000 logs / over 10, by CPU".into(),
        conditions: format!(
            "{messages} messages a round, a number each, to the logs in turn, from a memory stream to a new file in /dev/shm, with one flush; messages by the time of all threads together: must 1/1.5, aim 1/1.1"
        ),
        unit: Unit::Millions,
        ours: many,
        limits: vec![few],
        must: 0.67,
        aim: 0.91,
    })
}

/// How long a run's file takes from its last rows to its hash, which is made while it is written.
fn sealed(programs: &Programs, sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::on_disk()?;
    let messages = sizes.nexus_events * SEALED / 12_400;
    let (mut ours, mut size) = (Series::new("beamport-nexus"), 0);
    for _ in 0..rounds {
        let round = round_of(programs, folder.path(), messages, &["--events", "12400"])?;
        ours.samples.push(round.seal);
        size = round.file;
    }
    Ok(Figure {
        name: "seal: a file is whole so often a second".into(),
        conditions: format!(
            "a new file of {} MiB on the disk, whose rows were flushed; counted are its last words, its BLAKE3, the sync; must: within a second",
            size >> 20
        ),
        unit: Unit::Times,
        ours,
        limits: Vec::new(),
        must: 1.0,
        aim: 10.0,
    })
}

/// One round of `beamport-nexus bench`.
struct Round {
    rows: Sample,
    seal: Sample,
    /// Bytes of the file.
    file: u64,
}

/// One round of `beamport-nexus bench`, its file in `folder`; and the bytes of the file. 0 events are logs.
fn pace_of(
    programs: &Programs,
    folder: &Path,
    messages: u64,
    events: u64,
    compression: Option<&str>,
) -> Result<(Sample, u64), Fault> {
    let events = events.to_string();
    let packed = compression.into_iter().flat_map(|word| ["--compression", word]);
    let arguments: Vec<&str> = ["--events", &events].into_iter().chain(packed).collect();
    round_of(programs, folder, messages, &arguments).map(|round| (round.rows, round.file))
}

/// The same; `arguments` say which messages.
fn round_of(programs: &Programs, folder: &Path, messages: u64, arguments: &[&str]) -> Result<Round, Fault> {
    let stream = Folder::in_memory()?;
    let mut command = Command::new(&programs.nexus);
    command.arg("bench").arg("--data").arg(stream.path().join("data")).arg("--output").arg(folder.join("paced.nxs"));
    command.args(["--messages", &messages.to_string()]).args(arguments);
    let answer = output(&mut command)?;
    let said: serde_json::Value = serde_json::from_str(&answer).map_err(wrong("beamport-nexus does not answer"))?;
    let number = |name: &str| said[name].as_f64().ok_or_else(|| Fault::new("bench: an answer without a number", name));
    let file = number("file")? as u64;
    let sample = |bytes, seconds: &str, cpu_seconds: &str| -> Result<Sample, Fault> {
        Ok(Sample { seconds: number(seconds)?, cpu_seconds: number(cpu_seconds)?, bytes, messages })
    };
    Ok(Round {
        rows: sample(number("bytes")? as u64, "seconds", "cpu_seconds")?,
        seal: sample(file, "seal_seconds", "seal_cpu_seconds")?,
        file,
    })
}

/// A file in `folder` with the job that writes the sealed run to `output`.
fn job(data: &Data, template: PathBuf, output: &Path, folder: &Path) -> Result<PathBuf, Fault> {
    let job = WriterJob {
        data: data.folder.clone(),
        sink: "bench".into(),
        run: "bench".into(),
        inputs: vec!["detector".into()],
        work: Work::Template(template),
        output: output.to_path_buf(),
        flush: Duration::from_secs(1),
        hold: Duration::ZERO,
        whole: false,
        detached: true,
        snapshot: None,
        elsewhere: Elsewhere::default(),
        writer: Writer::default(),
    };
    let (text, file) = (serde_json::json!(job).to_string(), folder.join("job.json"));
    std::fs::write(&file, text).map_err(wrong("the job cannot be written"))?;
    Ok(file)
}

fn row(
    programs: &Programs,
    folder: &Folder,
    messages: u64,
    events: usize,
    rounds: u32,
) -> Result<(Vec<Sample>, Vec<Sample>), Fault> {
    let data = Data::on_disk(folder.path().join("data"));
    let template = folder.path().join("template.json");
    let peer = folder.path().join("append_h5py.py");
    std::fs::write(&template, TEMPLATE).map_err(wrong("the template cannot be written"))?;
    std::fs::write(&peer, PEER).map_err(wrong("the script cannot be written"))?;
    sealed_run(&data, messages, events)?;
    let bytes = messages * events as u64 * 8;
    let (file, other) = (folder.path().join("ours.nxs"), folder.path().join("h5py.h5"));
    let job = job(&data, template, &file, folder.path())?;
    let ours = || {
        let mut command = Command::new(&programs.nexus);
        command.arg("write").stdin(std::fs::File::open(&job).map_err(wrong("the job cannot be read"))?);
        timed(bytes, messages, || output(&mut command).map(drop))
    };
    let limit = || {
        let mut command = Command::new(&programs.python);
        command.arg(&peer).arg("write").arg(&other).args([messages.to_string(), events.to_string()]);
        let answer = output(&mut command)?;
        let numbers: Vec<&str> = answer.split_whitespace().collect();
        let number = |at: usize| numbers.get(at).and_then(|n| n.parse::<f64>().ok());
        let (Some(seconds), Some(cpu_seconds)) = (number(0), number(1)) else {
            return Err(Fault::new("bench: the h5py script does not answer", answer));
        };
        Ok(Sample { seconds, cpu_seconds, bytes, messages })
    };
    let mut samples = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (us, them) = if round % 2 == 0 {
            let them = limit()?;
            (ours()?, them)
        } else {
            let us = ours()?;
            (us, limit()?)
        };
        if round == 0 {
            // The first one warms both sides and shows that both files hold the same.
            same(programs, &peer, &file, &other)?;
        } else {
            samples.0.push(us);
            samples.1.push(them);
        }
        for path in [&file, &other] {
            std::fs::remove_file(path).map_err(wrong("a file of the measurement cannot be removed"))?;
        }
    }
    Ok(samples)
}

fn same(programs: &Programs, peer: &Path, ours: &Path, other: &Path) -> Result<(), Fault> {
    let sums = |file: &Path| output(Command::new(&programs.python).arg(peer).arg("sums").arg(file));
    let (us, them) = (sums(ours)?, sums(other)?);
    if us == them { Ok(()) } else { Err(Fault::new("bench: the two files differ", format!("{us} and {them}"))) }
}

/// A sealed run over a memory stream of `messages` batches.
fn sealed_run(data: &Data, messages: u64, events: usize) -> Result<(), Fault> {
    let mut payload = Vec::new();
    let times: Vec<i32> = (0..events as i32).map(|k| 1000 + 31 * k).collect();
    let mut pixels = vec![0; events];
    // Payload, header, entry, and a quarter for segments that are not full.
    let live_bytes = (messages * (events as u64 * 8 + 512)).next_multiple_of(64 << 20) * 5 / 4;
    let mut writer = data.writer("detector", &Options::memory(live_bytes))?;
    let origin = writer.origin("bench").map_err(wrong("the origin"))?;
    for i in 0..messages {
        let time = START_NS + i as i64 * PULSE_NS;
        let (pulse, begin) = ([time], [0]);
        for (k, pixel) in pixels.iter_mut().enumerate() {
            *pixel = ((7 * (i % 64) as usize + 13 * k) % 32_768 + 1) as i32;
        }
        let parts = Ev44 {
            source_name: "bench",
            message_id: i as i64,
            reference_time: (&pulse).into(),
            reference_time_index: (&begin).into(),
            time_of_flight: (&times).into(),
            pixel_id: (&pixels).into(),
        };
        ev44::write(&mut payload, &parts).map_err(wrong("the message cannot be made"))?;
        let meta = Meta { source_time: time, origin, origin_seq: i, schema: SchemaId(ev44::ID), flags: 0 };
        writer.append(&meta, &payload).map_err(wrong::<Error>("append"))?;
    }
    seal(data, "detector", (START_NS, START_NS + messages as i64 * PULSE_NS))
}

/// A sealed run `bench` over a stream that has ended.
pub(crate) fn seal(data: &Data, stream: &str, (start, stop): (i64, i64)) -> Result<(), Fault> {
    let view =
        StreamView { name: stream.into(), frontier: i64::MAX, ended: true, marked: true, ..StreamView::default() };
    let mut keeper = RunKeeper::open(data)?;
    let now = data.media.now();
    // The messages arrived today: until now they still belong to the run.
    let settle = Duration::from_nanos(now.abs_diff(start));
    keeper.begin("bench", start, Some(stop), settle, "{}", now)?;
    keeper.end("bench", stop, "asked", now)?;
    for _ in 0..1000 {
        keeper.step(now, std::slice::from_ref(&view))?;
        if keeper.unsealed().next().is_none() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Fault::new("bench: the run does not seal", keeper.trouble().map(|f| f.cause).unwrap_or_default()))
}
