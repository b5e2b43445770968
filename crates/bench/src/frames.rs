//! `beamport-bench frames`: frames from a simulated camera through Python code, against PvaPy's own programs that do the
//! same, as its documentation starts them.
//!
//! Both sides: one call a frame, every byte of every frame touched, the frame passed on, nothing lost. Ours is held back
//! by its own credit, so it runs as fast as it goes; the other side has none, so the highest rate is looked for at which
//! nothing goes missing. Processor time is that of all processes from their start to their end.

use super::measure::{Figure, Sample, Series, Unit, timed};
use super::place::{Folder, output, program, python_with, wrong};
use flow::{Data, Fault};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The other side, run by a Python that has `pvapy`.
pub(super) const PEER: &str = include_str!("../../../bench/frames_pvapy.py");
/// The same as user code of ours; `joined` also looks at what was joined to the frame.
const CODE: &str = "import beamport


@beamport.worker
def touch(frame):
    frame.array.max()
    return frame


@beamport.worker
def joined(frame):
    frame.array.max()
    frame.metadata.get(\"value6\")
    return frame


@beamport.worker
def one(frame):
    return float(frame.array.max())


@beamport.worker(batch=8, gather=True)
def gathered(images):
    return [float(image.max()) for image in images]
";
/// Six process variables, each with a value at the time of a frame, joined once and before the frames are dealt out.
const JOIN: &str = "[source.values]
kind = \"sim\"
model = \"camera-metadata\"
fps = {fps}
duration = \"{longer}\"
values = 6
level = \"memory\"
live = \"64 MiB\"

[worker.whole]
call = \"attach\"
inputs = [\"camera\"]
level = \"memory\"
slot_live = \"256 MiB\"

[worker.whole.parameters]
take = \"nearest\"
tolerance = \"1 us\"
wait = \"10 s\"
values.value1 = { stream = \"values\", source = \"camera:PV001\" }
values.value2 = { stream = \"values\", source = \"camera:PV002\" }
values.value3 = { stream = \"values\", source = \"camera:PV003\" }
values.value4 = { stream = \"values\", source = \"camera:PV004\" }
values.value5 = { stream = \"values\", source = \"camera:PV005\" }
values.value6 = { stream = \"values\", source = \"camera:PV006\" }

";
/// Part of the frames that may have come before the values did, when both begin.
const UNMATCHED: f64 = 0.05;
/// Longest wait for frames of ours.
const PATIENCE: Duration = Duration::from_secs(120);
/// Part of the frames that come before the clock starts.
const FIRST: f64 = 0.01;
/// Shared memory of the camera's stream.
const RING: &str = "1 GiB";
/// Steps in which the other side's rate is looked for.
const STEP: f64 = 1.12;
/// Rates that are tried in a round, at most.
const TRIES: u32 = 8;

/// One job, for both sides.
struct Job {
    name: &'static str,
    /// Its name in the other side's script.
    scenario: &'static str,
    /// Pixels of a side.
    side: u64,
    /// Where the search for the other side's rate begins, frames/s.
    rate: f64,
    /// Frames of one round of ours.
    frames: u64,
    /// Messages of the last stream for each frame.
    copies: u64,
    /// Frames a second of the camera's grid: more than anybody can take.
    fps: u64,
    /// The instrument file before the worker, its section, and the file behind it; the last stage is called `out`.
    before: &'static str,
    worker: &'static str,
    behind: &'static str,
    must: f64,
    aim: f64,
}

/// Frames in batches of eight, gathered in one array, and the same frames one by one.
const GATHER: [Job; 2] = [
    gather("[worker.out]\nslots = 1\ncall = \"touch.py:gathered\"\ninputs = [\"camera\"]\n"),
    gather("[worker.out]\nslots = 1\ncall = \"touch.py:one\"\ninputs = [\"camera\"]\n"),
];

const fn gather(worker: &'static str) -> Job {
    Job {
        name: "512 x 512 gathered in batches of 8 / one by one, CPU a frame",
        scenario: "",
        side: 512,
        rate: 0.0,
        frames: 100_000,
        copies: 1,
        fps: 1_000_000,
        before: "",
        worker,
        behind: "",
        must: 0.9,
        aim: 1.0,
    }
}

const JOBS: [Job; 7] = [
    Job {
        name: "512 x 512, 1 Python slot / PvaPy",
        scenario: "consumers1",
        side: 512,
        rate: 7000.0,
        frames: 100_000,
        copies: 1,
        fps: 1_000_000,
        before: "",
        worker: "[worker.out]\nslots = 1\ncall = \"touch.py:touch\"\ninputs = [\"camera\"]\n",
        behind: "",
        must: 3.0,
        aim: 5.0,
    },
    Job {
        name: "4096 x 4096, 1 Python slot / PvaPy",
        scenario: "consumers1",
        side: 4096,
        rate: 130.0,
        frames: 2000,
        copies: 1,
        fps: 1_000_000,
        before: "",
        worker: "[worker.out]\nslots = 1\ncall = \"touch.py:touch\"\ninputs = [\"camera\"]\n",
        behind: "",
        must: 3.0,
        aim: 6.0,
    },
    Job {
        name: "512 x 512, 4 slots balanced / PvaPy",
        scenario: "consumers4",
        side: 512,
        rate: 5500.0,
        frames: 80_000,
        copies: 1,
        fps: 1_000_000,
        before: "",
        worker: "[worker.out]\nslots = 4\ncall = \"touch.py:touch\"\ninputs = [\"camera\"]\n",
        behind: "",
        must: 4.0,
        aim: 8.0,
    },
    Job {
        name: "512 x 512, fan-out to 4 / PvaPy",
        scenario: "fan4",
        side: 512,
        rate: 2000.0,
        frames: 60_000,
        copies: 4,
        fps: 1_000_000,
        before: "",
        worker: "[worker.out]\nslots = 4\nshare = \"all\"\ncall = \"touch.py:touch\"\ninputs = [\"camera\"]\n",
        behind: "",
        must: 10.0,
        aim: 20.0,
    },
    Job {
        name: "512 x 512 with six values joined, 1 Python slot / PvaPy",
        scenario: "join1",
        side: 512,
        rate: 1500.0,
        frames: 60_000,
        copies: 1,
        fps: 50_000,
        before: JOIN,
        worker: "[worker.out]\nslots = 1\ncall = \"touch.py:joined\"\ninputs = [\"whole\"]\n",
        behind: "",
        must: 8.0,
        aim: 15.0,
    },
    Job {
        name: "512 x 512 with six values joined, 4 slots / PvaPy",
        scenario: "join4",
        side: 512,
        rate: 500.0,
        frames: 60_000,
        copies: 1,
        fps: 50_000,
        before: JOIN,
        worker: "[worker.out]\nslots = 4\ncall = \"touch.py:joined\"\ninputs = [\"whole\"]\n",
        behind: "",
        must: 20.0,
        aim: 40.0,
    },
    Job {
        name: "512 x 512, 4 slots and an ordered collector / PvaPy",
        scenario: "collector4",
        side: 512,
        rate: 1500.0,
        frames: 60_000,
        copies: 1,
        fps: 1_000_000,
        before: "",
        worker: "[worker.done]\nslots = 4\norder = \"any\"\ncall = \"touch.py:touch\"\ninputs = [\"camera\"]\n",
        behind: "[merge.out]\nkind = \"number\"\ninputs = [\"done\"]\n",
        must: 8.0,
        aim: 15.0,
    },
];

/// The programs that are needed beside this one.
struct Programs {
    ours: PathBuf,
    /// Has `beamport`.
    python: PathBuf,
    /// Has `pvapy`.
    peer: PathBuf,
    script: PathBuf,
}

/// Runs all rows; `tell` hears of each as it is done.
pub(super) fn run(quick: bool, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let folder = Folder::in_memory()?;
    let script = folder.path().join("frames_pvapy.py");
    std::fs::write(&script, PEER).map_err(wrong("the script cannot be written"))?;
    let programs = Programs {
        ours: program("beamport")?,
        python: python_with("beamport", "pip install .")?,
        peer: python_with("pvapy", "pip install pvapy==5.6.0")?,
        script,
    };
    let seconds = if quick { 2.0 } else { 6.0 };
    let mut figures = Vec::new();
    for job in &JOBS {
        let frames = if quick { job.frames / 20 } else { job.frames };
        let (mut ours, mut peers, mut rate) = (Vec::new(), Vec::new(), job.rate);
        for round in 0..rounds {
            let mut us = || ours_of(&programs, job, frames).map(|sample| ours.push(sample));
            if round % 2 == 1 {
                us()?;
            }
            let (sample, found) = peer_of(&programs, job, rate, seconds)?;
            rate = found;
            peers.push(sample);
            if round % 2 == 0 {
                us()?;
            }
        }
        let figure = Figure {
            name: job.name.into(),
            conditions: format!(
                "{frames} frames a round of {side} x {side} uint8 from the simulated camera, streams in memory; one call of Python a frame, which touches each byte and passes the frame on; ours from the first hundredth to the last frame, a ring of {RING}, the other side the highest rate of {seconds} s at which nothing was missing (steps of {STEP}); CPU of whole runs, starts included",
                side = job.side,
            ),
            unit: Unit::Thousands,
            ours: Series { name: "beamport up", samples: ours },
            limits: vec![Series { name: "PvaPy 5.6.0, its own programs", samples: peers }],
            must: job.must,
            aim: job.aim,
        };
        tell(&figure);
        figures.push(figure);
    }
    let figure = gathered(&programs, rounds, quick)?;
    tell(&figure);
    figures.push(figure);
    Ok(figures)
}

/// The processor time of a frame in a gathered batch, beside that of one alone.
fn gathered(programs: &Programs, rounds: u32, quick: bool) -> Result<Figure, Fault> {
    let [batches, singles] = GATHER;
    let frames = if quick { batches.frames / 20 } else { batches.frames };
    let cpu = |job: &Job| {
        // Batches are of the whole input: their last one is as large as the others.
        ours_of(programs, job, frames).map(|sample| Sample { seconds: sample.cpu_seconds, ..sample })
    };
    let (mut ours, mut limits) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let sides = [(&batches, &mut ours), (&singles, &mut limits)];
        let mut sides = sides.into_iter().collect::<Vec<_>>();
        if round % 2 == 1 {
            sides.reverse();
        }
        for (job, samples) in sides {
            samples.push(cpu(job)?);
        }
    }
    Ok(Figure {
        name: batches.name.into(),
        conditions: format!(
            "{frames} frames a round of 512 x 512 uint8 from the simulated camera, streams in memory; code that \
             returns the largest value of each frame, called with arrays of 8 frames, or with each frame; processor \
             time of all processes from their start to their end, as rates"
        ),
        unit: Unit::Thousands,
        ours: Series { name: "batch = 8, gather", samples: ours },
        limits: vec![Series { name: "one by one", samples: limits }],
        must: batches.must,
        aim: batches.aim,
    })
}

/// The highest rate of the other side at which nothing is missing, and the rate in frames/s.
fn peer_of(programs: &Programs, job: &Job, from: f64, seconds: f64) -> Result<(Sample, f64), Fault> {
    let (mut rate, mut best) = (from, None);
    for _ in 0..TRIES {
        let mut command = Command::new(&programs.peer);
        command.arg(&programs.script).arg(job.scenario).args([job.side.to_string(), rate.to_string()]);
        let answer = output(command.arg(seconds.to_string()))?;
        let numbers: Vec<f64> = answer.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[frames, _, cpu_seconds, missing, _] = numbers.as_slice() else {
            return Err(Fault::new("bench: the script with PvaPy does not answer", answer));
        };
        // The simulator may publish less than it is asked for: what came counts.
        let (frames, came) = (frames / job.copies as f64, frames / job.copies as f64 / seconds);
        if missing > 0.0 {
            rate = match best {
                Some(_) => break,
                None => rate / STEP,
            };
            continue;
        }
        let is_better = best.as_ref().is_none_or(|(_, before)| came > *before);
        if is_better {
            let (bytes, messages) = (frames as u64 * job.side * job.side, frames as u64);
            best = Some((Sample { seconds: frames / came.min(rate), cpu_seconds, bytes, messages }, came.min(rate)));
        }
        if came < 0.97 * rate || !is_better {
            break;
        }
        rate *= STEP;
    }
    best.ok_or_else(|| {
        Fault::new(format!("bench: PvaPy loses frames at every rate that was tried ({})", job.scenario), rate)
    })
}

/// Frames of ours as fast as they go, from the first hundredth on: until then the interpreter starts.
fn ours_of(programs: &Programs, job: &Job, frames: u64) -> Result<Sample, Fault> {
    let folder = Folder::in_memory()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("touch.py"), CODE).map_err(wrong("the code cannot be written"))?;
    // Due within an instant: what holds it back is the room behind it.
    let micros = frames * 1_000_000 / job.fps;
    // Values go on behind the last frame: it is not waited for what cannot come.
    let (duration, longer) = (format!("{micros} us"), format!("{} us", micros + 1_000_000));
    let text = format!(
        "instrument = \"bench\"
data = \"data\"

[source.camera]
kind = \"sim\"
model = \"camera\"
fps = {fps}
duration = \"{duration}\"
shape = [{side}, {side}]
frames = {distinct}
level = \"memory\"
live = \"{RING}\"

{before}{worker}level = \"memory\"
python = {python:?}

{behind}",
        fps = job.fps,
        side = job.side,
        // As many as the other side shows in turn.
        distinct = if job.side > 1024 { 4 } else { 16 },
        before = job.before.replace("{fps}", &job.fps.to_string()).replace("{longer}", &longer),
        worker = job.worker,
        python = programs.python,
        behind = job.behind,
    );
    std::fs::write(path("bench.toml"), text).map_err(wrong("the instrument file cannot be written"))?;
    let data = Data::on_disk(path("data"));
    let (mut seconds, mut unmatched) = (0.0, 0.0);
    let mut sample = timed(frames * job.side * job.side, frames, || {
        let log = std::fs::File::create(path("log")).map_err(wrong("the log cannot be written"))?;
        let mut command = Command::new(&programs.ours);
        command.arg("up").arg(path("bench.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().map_err(wrong("beamport does not start"))?;
        let answer = follow(&data, &mut child, frames * job.copies);
        // Where nothing is joined, nobody says so.
        let joined = flow::WorkerState::newest(&data, "whole").ok().flatten();
        let said = joined.and_then(|state| state.slots.get(&0)?.get("unmatched")?.as_f64());
        unmatched = said.unwrap_or(0.0);
        stop(&mut child)?;
        let said = |fault: Fault| fault.hint(std::fs::read_to_string(path("log")).unwrap_or_default());
        seconds = answer.map_err(said)?;
        Ok::<(), Fault>(())
    })?;
    // The seconds exclude the frames from before the clock was started.
    sample.seconds = seconds / (1.0 - FIRST);
    let done = done_of(&data)?;
    if unmatched > UNMATCHED * frames as f64 {
        return Err(Fault::new(format!("bench: {unmatched} of {frames} frames miss a value"), job.name));
    }
    if done == frames {
        return Ok(sample);
    }
    Err(Fault::new(format!("bench: {done} frames are done, {frames} were sent"), job.name))
}

/// Seconds from the first hundredth of `wanted` messages of the last stream to the last of them.
fn follow(data: &Data, child: &mut Child, wanted: u64) -> Result<f64, Fault> {
    let (start, mut reader, mut from) = (Instant::now(), None, None);
    loop {
        if let Some(status) = child.try_wait().map_err(wrong("beamport is not there"))? {
            return Err(Fault::new("bench: `beamport up` ended", status));
        }
        if reader.is_none() {
            reader = data.reader_early("out").ok();
        }
        let count = reader.as_ref().map_or(0, |r: &store::Reader| r.bounds().count);
        if from.is_none() && count as f64 >= FIRST * wanted as f64 {
            from = Some((Instant::now(), count));
        }
        if let Some((begin, first)) = from
            && count >= wanted
        {
            let part = (wanted - first) as f64 / (wanted as f64 * (1.0 - FIRST));
            return Ok(begin.elapsed().as_secs_f64() / part);
        }
        if start.elapsed() > PATIENCE {
            return Err(Fault::new("bench: frames do not come to their end", format!("{count} of {wanted} did")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends a program with SIGINT, as a person would. One that has not ended after [`PATIENCE`] is killed, and is an error.
pub(super) fn stop(child: &mut Child) -> Result<(), Fault> {
    // SAFETY: a signal to a child that has not been waited for, so its number is its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let begin = Instant::now();
    while child.try_wait().map_err(wrong("beamport does not end"))?.is_none() {
        if begin.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Fault::new("bench: beamport did not end after SIGINT", format!("{PATIENCE:?} is the limit")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Messages that the worker's account says are done, from its last commit.
fn done_of(data: &Data) -> Result<u64, Fault> {
    let last = data.book_messages(&flow::commits_of("out"))?.pop();
    let commit = last.map(|bytes| flow::records::Commit::read(&bytes)).transpose()?;
    Ok(commit.map_or(0, |c| c.inputs.iter().map(|i| i.done).sum()))
}
