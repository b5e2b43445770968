//! `beamport-bench sweep`: NeXus files by writers beside each other, chunk, message and filter, from streams in memory.
//!
//! As the reports of PSI and ESS swept theirs. A figure is a filter and a size of message; what stands for its rounds are the
//! numbers of writers; its limits are the sizes of chunks, of which the best of each number counts, and ours is the chunk that
//! the writer computes. So each figure says how much of the sweep's best the computed defaults reach.
//! With `--output FILE` a plot comes beside it, `FILE` with the ending `png`.
//!
//! A writer is a process with a stream and a file of its own. All have their streams filled before the first begins, and the
//! rate of a load is all their bytes over the time of the slowest. Of several rounds the best one counts for each chunk:
//! what is compared are ways to write, not moments of a disk.

use super::measure::{Figure, Sample, Series, Unit};
use super::place::{Folder, output, program, python_with, wrong};
use flow::Fault;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Draws the plot, run by a Python that has matplotlib.
const PLOT: &str = include_str!("../../../bench/plot_sweep.py");
const WRITERS: [u64; 4] = [1, 2, 3, 4];
const CHUNKS: [(&str, u64); 5] = [
    ("chunks of 64 KiB", 64 << 10),
    ("chunks of 256 KiB", 256 << 10),
    ("chunks of 1 MiB", 1 << 20),
    ("chunks of 4 MiB", 4 << 20),
    ("chunks of 16 MiB", 16 << 20),
];
/// Events of a message, 8 bytes each: 1 KiB to 16 MiB. Powers of two, so that every chunk becomes whole: a begun one is not
/// packed, and large ones would look better than they are.
const EVENTS: [u64; 5] = [1 << 7, 1 << 11, 1 << 14, 1 << 17, 1 << 21];
const FILTERS: [(&str, Option<&str>); 3] =
    [("unfiltered", None), ("bitshuffle-lz4", Some("bitshuffle-lz4")), ("deflate", Some("deflate"))];
/// Bytes of events that each writer has: two chunks of the largest for each of its two datasets.
const BYTES: u64 = 64 << 20;
/// Rounds of a load at most; the whole has 360 of them.
const ROUNDS_MAX: u32 = 3;

pub(crate) fn run(
    quick: bool,
    rounds: u32,
    answer: Option<&Path>,
    tell: &mut dyn FnMut(&Figure),
) -> Result<Vec<Figure>, Fault> {
    let program = program("beamport-nexus")?;
    let python = answer.map(|_| python_with("matplotlib", "pip install matplotlib")).transpose()?;
    let (writers, events, bytes) =
        if quick { (&WRITERS[..2], &EVENTS[2..3], BYTES / 2) } else { (&WRITERS[..], &EVENTS[..], BYTES) };
    let rounds = if quick { 1 } else { rounds.min(ROUNDS_MAX) };
    let folder = Folder::on_disk()?;
    let (mut figures, mut panels) = (Vec::new(), Vec::new());
    for (word, filter) in FILTERS {
        let mut ours = Series::new("computed");
        let mut limits: Vec<Series> = CHUNKS.iter().map(|(name, _)| Series::new(name)).collect();
        for (&events, &writers) in events.iter().flat_map(|events| writers.iter().map(move |writers| (events, writers)))
        {
            let load = Load { program: &program, folder: folder.path(), writers, events, bytes, filter };
            let ways = 1 + CHUNKS.len();
            let mut best: Vec<Option<Sample>> = vec![None; ways];
            for round in 0..rounds as usize {
                // Each comes first once in a while.
                for at in (0..ways).map(|at| (at + round) % ways) {
                    let sample = load.write(at.checked_sub(1).map(|at| CHUNKS[at].1))?;
                    if best[at].is_none_or(|known| sample.seconds < known.seconds) {
                        best[at] = Some(sample);
                    }
                }
            }
            let mut best = best.into_iter().flatten();
            ours.samples.extend(best.next());
            limits.iter_mut().zip(best).for_each(|(series, sample)| series.samples.push(sample));
        }
        panels.push(
            json!({"filter": word, "computed": rates(&ours), "chunks": limits.iter().map(rates).collect::<Vec<_>>()}),
        );
        for (at, events) in events.iter().enumerate() {
            let of = |series: &Series| {
                let first = at * writers.len();
                Series { name: series.name, samples: series.samples[first..first + writers.len()].to_vec() }
            };
            let counts: Vec<String> = writers.iter().map(u64::to_string).collect();
            let figure = Figure {
                name: format!("computed chunks / the best, {} KiB, {word}", (events * 8) >> 10).into(),
                conditions: format!(
                    "messages of {events} events; for each \"round\" another number of writers beside each other: {}; {} MiB of events for each from streams in memory to new files on the disk, CRC, BLAKE3, flush and fsync in; best of {rounds}",
                    counts.join(", "),
                    bytes >> 20
                ),
                unit: Unit::Gigabytes,
                ours: of(&ours),
                limits: limits.iter().map(of).collect(),
                must: 0.95,
                aim: 1.0,
            };
            tell(&figure);
            figures.push(figure);
        }
    }
    if let (Some(python), Some(answer)) = (python, answer) {
        let chunks: Vec<&str> = CHUNKS.iter().map(|(name, _)| *name).collect();
        let told = json!({"events": events, "writers": writers, "chunks": chunks, "panels": panels});
        plot(&python, &folder, &told, &answer.with_extension("png"))?;
    }
    Ok(figures)
}

/// 1e9 bytes a second of each load, those of one size of message together.
fn rates(series: &Series) -> Vec<f64> {
    series.samples.iter().map(|sample| sample.bytes as f64 * 1e-9 / sample.seconds).collect()
}

fn plot(python: &Path, folder: &Folder, told: &Value, to: &Path) -> Result<(), Fault> {
    let (script, sweep) = (folder.path().join("plot_sweep.py"), folder.path().join("sweep.json"));
    std::fs::write(&script, PLOT).map_err(wrong("the script cannot be written"))?;
    std::fs::write(&sweep, told.to_string()).map_err(wrong("the sweep cannot be written"))?;
    output(Command::new(python).arg(&script).arg(&sweep).arg(to)).map(drop)
}

/// A size of message, a number of writers, a filter.
struct Load<'a> {
    program: &'a Path,
    folder: &'a Path,
    writers: u64,
    events: u64,
    /// Of each writer.
    bytes: u64,
    filter: Option<&'a str>,
}

/// A writer whose stream is filled.
struct Writer {
    child: Child,
    begin: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Load<'_> {
    /// Writes once, with chunks of so many bytes or the computed ones.
    fn write(&self, chunk: Option<u64>) -> Result<Sample, Fault> {
        let messages = self.bytes / self.events / 8;
        let streams = Folder::in_memory()?;
        let mut writers = Vec::new();
        let answer = self.started(&streams, messages, chunk, &mut writers).and_then(|()| together(&mut writers));
        for writer in &mut writers {
            // Ended already, but where something went wrong.
            let _ = writer.child.kill();
            let _ = writer.child.wait();
        }
        let all = answer?;
        let sum = |name: &str| all.iter().filter_map(|one| one[name].as_f64()).sum::<f64>();
        let slowest = all.iter().filter_map(|one| one["seconds"].as_f64()).fold(0.0, f64::max);
        Ok(Sample {
            seconds: slowest,
            cpu_seconds: sum("cpu_seconds"),
            bytes: sum("bytes") as u64,
            messages: messages * self.writers,
        })
    }

    fn started(
        &self,
        streams: &Folder,
        messages: u64,
        chunk: Option<u64>,
        into: &mut Vec<Writer>,
    ) -> Result<(), Fault> {
        for number in 0..self.writers {
            let mut command = Command::new(self.program);
            command.arg("bench").arg("--data").arg(streams.path().join(number.to_string()));
            command.arg("--output").arg(self.folder.join(format!("sweep-{number}.nxs"))).arg("--together");
            command.args(["--messages", &messages.to_string(), "--events", &self.events.to_string()]);
            command.args(self.filter.map(|word| format!("--compression={word}")));
            command.args(chunk.map(|bytes| format!("--chunk={bytes}")));
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().map_err(wrong("a writer does not start"))?;
            let (Some(begin), Some(says)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(Fault::new("bench: a writer has no pipes", ""));
            };
            into.push(Writer { child, begin, says: BufReader::new(says) });
        }
        Ok(())
    }
}

/// Lets all begin once all are ready; what each says.
fn together(writers: &mut [Writer]) -> Result<Vec<Value>, Fault> {
    let line = |writer: &mut Writer| {
        let mut line = String::new();
        writer.says.read_line(&mut line).map_err(wrong("a writer does not answer")).map(|_| line)
    };
    for writer in writers.iter_mut() {
        let said = line(writer)?;
        if said.trim() != "ready" {
            return Err(Fault::new("bench: a writer is not ready", said).hint("what it had to say stands above"));
        }
    }
    for writer in writers.iter_mut() {
        writer.begin.write_all(b"\n").map_err(wrong("a writer does not listen"))?;
    }
    let answers = writers
        .iter_mut()
        .map(|writer| serde_json::from_str(&line(writer)?).map_err(wrong("beamport-nexus does not answer")));
    answers.collect()
}
