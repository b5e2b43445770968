//! `beamport-bench epics`: updates of EPICS into a stream by `beamport up`, beside a bare client of the same library
//! that takes each update and does nothing with it, one after the other with a server of the same pace.
//!
//! Rates and processor time count from the moment at which all PVs are connected and still to the last update: a start
//! is no rate. Processor time is that of the taking program alone, without the server's.

use super::frames::stop;
use super::measure::{Figure, Sample, Series, Unit, alternate, cpu_seconds_of};
use super::peers::{Peers, Talk};
use super::place::{Folder, output, program, python_with, wrong};
use flow::{Data, Fault};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use store::Reader;

/// The camera and both sides, run by a Python that has `pvapy`.
const CAMERA: &str = include_str!("../../../bench/camera_pvapy.py");
/// Longest wait for PVs that connect.
const PATIENCE: Duration = Duration::from_secs(60);
/// Without a message for so long, nothing more comes.
pub(crate) const STILL: Duration = Duration::from_millis(500);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// The sender.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// Doubles, by a server of PVXS.
    Numbers,
    /// Square frames with this number of pixels a side, by a server of PVXS.
    Frames(u64),
    /// Records of an IOC that count, by Channel Access. They do not wait until all are connected.
    Records,
}

/// One kind of updates.
struct Job {
    from: From,
    what: &'static str,
    pvs: u64,
    /// Updates of each PV in a second.
    hz: u64,
    /// Of a round.
    seconds: f64,
    quick_seconds: f64,
    /// Seconds before the counted ones: the server sends, and nothing is counted.
    first_seconds: f64,
    /// Shared memory of the stream, MiB: its pages are reused from the second lap on, which begins before it counts.
    ring_mib: u64,
    /// Processor time of ours over that of the bare client: must and aim.
    cpu: (f64, f64),
    /// Whether the rate is compared too.
    has_rate: bool,
}

const JOBS: [Job; 3] = [
    Job {
        from: From::Numbers,
        what: "1,000 PVs x 100 Hz, PVA",
        pvs: 1000,
        hz: 100,
        seconds: 3.0,
        quick_seconds: 0.5,
        first_seconds: 1.0,
        ring_mib: 8,
        cpu: (1.6, 1.2),
        has_rate: true,
    },
    Job {
        from: From::Records,
        what: "1,000 PVs x 10 Hz, CA",
        pvs: 1000,
        hz: 10,
        seconds: 4.0,
        quick_seconds: 0.5,
        first_seconds: 2.0,
        ring_mib: 2,
        cpu: (1.6, 1.2),
        has_rate: false,
    },
    Job {
        from: From::Frames(512),
        what: "NTNDArray 512 x 512 uint8 x 1,500 Hz",
        pvs: 1,
        hz: 1500,
        seconds: 10.0,
        quick_seconds: 0.5,
        first_seconds: 1.0,
        ring_mib: 256,
        cpu: (1.5, 1.2),
        has_rate: false,
    },
];

/// Runs all rows; `tell` hears of each as it is done.
pub(super) fn run(quick: bool, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let side = Side {
        ours: program("beamport")?,
        python: python_with("pvxslibs", "pip install pvxslibs==1.5.3")?,
        peers: Peers::build()?,
    };
    let mut figures = Vec::new();
    for job in &JOBS {
        let first = figures.len();
        let seconds = if quick { (0.0, job.quick_seconds) } else { (job.first_seconds, job.seconds) };
        figures.extend(side.rows(job, seconds, rounds)?);
        figures[first..].iter().for_each(&mut *tell);
    }
    let first = figures.len();
    figures.extend(cameras(quick, rounds)?);
    figures[first..].iter().for_each(&mut *tell);
    Ok(figures)
}

/// A camera of PvaPy, taken by PvaPy's consumers and by ours.
fn cameras(quick: bool, rounds: u32) -> Result<Vec<Figure>, Fault> {
    let folder = Folder::in_memory()?;
    for (name, text) in [("camera_pvapy.py", CAMERA), ("frames_pvapy.py", super::frames::PEER)] {
        std::fs::write(folder.path().join(name), text).map_err(wrong("a script cannot be written"))?;
    }
    let python = python_with("pvapy", "pip install pvapy==5.6.0")?;
    let ours = program("beamport")?;
    let seconds = if quick { 5 } else { 10 };
    let mut figures = Vec::new();
    for rate in [500_u64, 1000, 1500] {
        let (mut missed_ours, mut missed_theirs) = (0, 0);
        let run = |who: &str, missed: &mut u64| {
            let mut command = Command::new(&python);
            command.arg(folder.path().join("camera_pvapy.py")).args([who, "512"]);
            let answer = output(command.args([rate.to_string(), seconds.to_string()]).arg(&ours))?;
            let numbers: Vec<f64> = answer.split_whitespace().map_while(|word| word.parse().ok()).collect();
            let &[frames, elapsed, cpu_seconds, lost] = numbers.as_slice() else {
                return Err(Fault::new("bench: the script with the camera does not answer", answer));
            };
            *missed += lost as u64;
            Ok(Sample { seconds: elapsed, cpu_seconds, bytes: frames as u64 * 512 * 512, messages: frames as u64 })
        };
        let us = || run("beamport", &mut missed_ours);
        let them = || run("pvapy", &mut missed_theirs);
        let (us, them) = alternate(rounds, us, them)?;
        figures.push(Figure {
            name: format!("camera 512 x 512 x {rate} Hz -> 4 slots: frames a CPU s / PvaPy").into(),
            conditions: format!(
                "rounds of {seconds} s of pvapy-ad-sim-server, 16 frames of uint8 in turn, a queue of 1,000; four \
                 slots, or consumers, touch each byte in one call of Python and publish the frame; CPU of all \
                 processes behind the camera from its fourth second on, memory of 256 MiB; missed in all rounds: \
                 {missed_ours} here, {missed_theirs} by PvaPy"
            ),
            unit: Unit::ThousandsPerCpu,
            ours: Series { name: "beamport up", samples: us },
            limits: vec![Series { name: "PvaPy", samples: them }],
            must: 1.0,
            aim: 1.5,
        });
    }
    Ok(figures)
}

/// The programs for all rows.
struct Side {
    ours: PathBuf,
    /// Has `pvxslibs`.
    python: PathBuf,
    peers: Peers,
}

impl Side {
    /// The rows of a job: seconds that are not counted and those that are.
    fn rows(&self, job: &Job, seconds: (f64, f64), rounds: u32) -> Result<Vec<Figure>, Fault> {
        let (mut sent, mut lost) = (Vec::new(), 0);
        let ours = || {
            let (sample, of_server) = self.round(job, seconds, || Ok(Box::new(Up::new(self, job)?)))?;
            sent.push(Sample { messages: of_server, cpu_seconds: 0.0, ..sample });
            Ok(sample)
        };
        let limit = || {
            let verb = if job.from == From::Records { "ca" } else { "pva" };
            let (sample, sent) = self.round(job, seconds, || Ok(Box::new(Bare(self.peers.client(verb, job.pvs)?))))?;
            lost += sent.saturating_sub(sample.messages);
            Ok(sample)
        };
        let (ours, limit) = alternate(rounds, ours, limit)?;
        let missing: u64 = sent.iter().zip(&ours).map(|(sent, ours)| sent.messages.saturating_sub(ours.messages)).sum();
        let sender = match job.from {
            From::Numbers => "a server of PVXS, spread evenly",
            From::Frames(_) => "a server of PVXS that shows 16 frames in turn",
            From::Records => "an IOC of PVXS, all records in turn ten times a second",
        };
        let conditions = format!(
            "rounds of {} s after {} s that are not counted, updates of {sender}; ours with `queue = 100` into a \
             memory stream of {} MiB, pages recycled, CRC and index in; the bare client takes each update, a queue of \
             100 too; CPU of the taking program from the start of the updates to the last",
            seconds.1, seconds.0, job.ring_mib
        );
        let series = |name, samples: &[Sample]| Series { name, samples: samples.to_vec() };
        let us = "beamport up";
        let bare = if job.from == From::Records { "bare libca client" } else { "bare PVXS client" };
        let mut figures = vec![Figure {
            name: format!("{}: updates a CPU s / {bare}", job.what).into(),
            conditions: format!("{conditions}; must {} and aim {} times its CPU time", job.cpu.0, job.cpu.1),
            unit: Unit::ThousandsPerCpu,
            ours: series(us, &ours),
            limits: vec![series(bare, &limit)],
            must: thousandth(1.0 / job.cpu.0),
            aim: thousandth(1.0 / job.cpu.1),
        }];
        if job.has_rate {
            figures.push(Figure {
                name: format!("{}: updates/s / {bare}", job.what).into(),
                conditions: conditions.clone(),
                unit: Unit::Thousands,
                ours: series(us, &ours),
                limits: vec![series(bare, &limit)],
                must: 0.95,
                aim: 1.0,
            });
        }
        if job.from != From::Records {
            figures.push(Figure {
                name: format!("{}: taken / sent", job.what).into(),
                conditions: format!(
                    "{conditions}; in all rounds {missing} updates are missing here, {lost} in the bare client"
                ),
                unit: Unit::Thousands,
                ours: series(us, &ours),
                limits: vec![series("sent by the server in the same time", &sent)],
                must: 1.0,
                aim: 1.0,
            });
        }
        Ok(figures)
    }

    /// What is taken in one round, and how many updates the server sent (of an IOC: as many).
    fn round(
        &self,
        job: &Job,
        (first, seconds): (f64, f64),
        taker: impl FnOnce() -> Result<Box<dyn Taker>, Fault>,
    ) -> Result<(Sample, u64), Fault> {
        let mut server = match job.from {
            From::Numbers => Some(self.peers.serve("numbers", &[job.pvs, job.hz])?),
            From::Frames(side) => Some(self.peers.serve("frames", &[side, job.hz])?),
            From::Records => None,
        };
        let _ioc = match job.from {
            From::Records => Some(self.peers.ioc(&self.python, &records(job))?),
            _ => None,
        };
        let mut taker = taker()?;
        match job.from {
            From::Records => settled(&mut *taker, 10 * job.pvs, Duration::ZERO)?,
            _ => settled(&mut *taker, job.pvs, STILL)?,
        }
        let bytes = if let From::Frames(side) = job.from { side * side } else { 8 };
        let mut send = |seconds: f64| match &mut server {
            Some(server) => server.ask(&seconds.to_string()).map(Some),
            None => {
                std::thread::sleep(Duration::from_secs_f64(seconds));
                Ok(None)
            }
        };
        if first > 0.0 {
            taken(&mut *taker, bytes, || send(first))?;
        }
        let (sample, sent) = taken(&mut *taker, bytes, || send(seconds))?;
        Ok((sample, sent.unwrap_or(sample.messages)))
    }
}

/// Counts the updates that a taker receives while `send` runs and after it. Also returns how many `send` sent, where it
/// knows; `bytes`: of each.
pub(crate) fn taken(
    taker: &mut dyn Taker,
    bytes: u64,
    send: impl FnOnce() -> Result<Option<u64>, Fault>,
) -> Result<(Sample, Option<u64>), Fault> {
    let (before, cpu, begin) = (taker.count()?, cpu_seconds_of(taker.pid())?, Instant::now());
    let sent = send()?;
    let (mut count, mut end) = (taker.count()? - before, Instant::now());
    while sent.is_some_and(|sent| count < sent) && end.elapsed() < STILL {
        std::thread::sleep(PAUSE);
        let now = taker.count()? - before;
        if now > count {
            (count, end) = (now, Instant::now());
        }
    }
    if sent.is_some_and(|sent| count > sent) || count == 0 {
        return Err(Fault::new(format!("bench: {count} updates came"), format!("{sent:?} were sent")));
    }
    let sample = Sample {
        seconds: (end - begin).as_secs_f64(),
        cpu_seconds: cpu_seconds_of(taker.pid())? - cpu,
        bytes: count * bytes,
        messages: count,
    };
    Ok((sample, sent))
}

/// Waits until `pvs` PVs are connected: the taker has the first updates of each, and receives nothing more for `still`.
pub(crate) fn settled(taker: &mut dyn Taker, pvs: u64, still: Duration) -> Result<(), Fault> {
    let (least, begin) = (taker.first() * pvs, Instant::now());
    let (mut count, mut since) = (0, begin);
    while count < least || since.elapsed() < still {
        if begin.elapsed() > PATIENCE {
            return Err(Fault::new("bench: PVs do not connect", format!("{count} of {least} messages came")));
        }
        std::thread::sleep(10 * PAUSE);
        let now = taker.count()?;
        if now != count {
            (count, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// A receiver of updates.
pub(crate) trait Taker {
    fn pid(&self) -> u32;
    /// Updates or messages until now.
    fn count(&mut self) -> Result<u64, Fault>;
    /// How many a PV has when it is connected.
    fn first(&self) -> u64;
}

struct Bare(Talk);

impl Taker for Bare {
    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn count(&mut self) -> Result<u64, Fault> {
        self.0.ask("")
    }

    fn first(&self) -> u64 {
        1
    }
}

/// `beamport up` of an instrument with the PVs.
struct Up {
    child: Child,
    folder: Folder,
    data: Data,
    reader: Option<Reader>,
    /// Messages of a PV once it is connected: its connection, its alarm and its value; of a camera a frame alone.
    first: u64,
}

impl Up {
    fn new(side: &Side, job: &Job) -> Result<Self, Fault> {
        let folder = Folder::in_memory()?;
        let path = |name: &str| folder.path().join(name);
        let kind = if job.from == From::Records { "ca" } else { "pva" };
        let text = format!(
            "instrument = \"bench\"\ndata = \"data\"\n\n[source.pvs]\nkind = \"{kind}\"\npvs_file = \"pvs.txt\"\n\
             level = \"memory\"\nlive = \"{} MiB\"\n",
            job.ring_mib
        );
        let names: String = (0..job.pvs).map(|number| format!("bench:{number}\n")).collect();
        std::fs::write(path("bench.toml"), text).map_err(wrong("the instrument file cannot be written"))?;
        std::fs::write(path("pvs.txt"), names).map_err(wrong("the list of PVs cannot be written"))?;
        let log = std::fs::File::create(path("log")).map_err(wrong("the log cannot be written"))?;
        let mut command = Command::new(&side.ours);
        command.arg("up").arg(path("bench.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = side.peers.meet(&mut command).spawn().map_err(wrong("beamport does not start"))?;
        let data = Data::on_disk(path("data"));
        let first = if matches!(job.from, From::Frames(_)) { 1 } else { 3 };
        Ok(Self { child, folder, data, reader: None, first })
    }
}

impl Taker for Up {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn count(&mut self) -> Result<u64, Fault> {
        if let Some(status) = self.child.try_wait().map_err(wrong("beamport is not there"))? {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            return Err(Fault::new("bench: `beamport up` ended", status).hint(log));
        }
        if self.reader.is_none() {
            self.reader = self.data.reader_early("pvs").ok();
        }
        Ok(self.reader.as_ref().map_or(0, |reader| reader.bounds().count))
    }

    fn first(&self) -> u64 {
        self.first
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = stop(&mut self.child);
    }
}

/// Records that count.
fn records(job: &Job) -> String {
    let record =
        |number| format!("record(calc, \"bench:{number}\") {{ field(CALC, \"VAL+1\") field(SCAN, \".1 second\") }}\n");
    (0..job.pvs).map(record).collect()
}

pub(crate) fn thousandth(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
