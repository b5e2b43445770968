//! `beamport-bench web`: what the page costs. Frames through one Python slot with four clients that ask as the page
//! does, beside the same without a page; a look of eight panels beside a bare pass over the bytes that it shows; and
//! what a browser shows (`pixels`).

use super::frames::stop;
use super::measure::{Figure, Sample, Series, Unit, alternate, cpu_seconds_of};
use super::pixels::Browser;
use super::place::{Folder, program, python_with, wrong};
use super::served::{Served, append_image, refused};
use flow::{Data, Fault};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{Check, Meta, Options, ReadOptions, SchemaId};
use wire::f144::{self, F144};

/// Clients beside the frames, and how often each asks.
const CLIENTS: usize = 4;
const LOOK: Duration = Duration::from_millis(100);
/// How often each asks for the status and the time bar, and Prometheus for the metrics.
const STATUS: Duration = Duration::from_secs(1);
/// Frames before the clock starts: until then the interpreter does.
const FIRST: u64 = 500;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pixels of a side of the images of a look, and its trends.
const SIDE: usize = 2048;
const TRENDS: usize = 6;

/// Runs all rows; `tell` hears of each as it is done.
pub(super) fn run(quick: bool, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let browser = Browser::find()?;
    let seconds = if quick { 1.0 } else { 8.0 };
    let looks = AtomicU64::new(0);
    let with = || frames(seconds, Some(&looks));
    let (ours, without) = alternate(rounds, with, || frames(seconds, None))?;
    let asked = looks.load(Ordering::Relaxed) as f64 / (f64::from(rounds) * seconds);
    let mut figures = vec![Figure {
        name: "512 x 512, 1 Python slot, with a page and its clients / without".into(),
        conditions: format!(
            "frames/s over {seconds} s; {CLIENTS} clients beside the instrument, each a look of two panels at 10 Hz, \
              status and time bar at 1 Hz, and a scrape of /metrics at 1 Hz; {asked:.1} looks/s were answered"
        ),
        unit: Unit::Thousands,
        ours: Series { name: "beamport up with [web]", samples: ours },
        limits: vec![Series { name: "beamport up", samples: without }],
        must: 0.9,
        aim: 0.97,
    }];
    figures.last().into_iter().for_each(&mut *tell);
    figures.extend(panels(if quick { 20_000 } else { 1_000_000 }, rounds)?);
    figures.iter().skip(1).for_each(&mut *tell);
    let pixels = browser.row(quick, rounds)?;
    tell(&pixels);
    figures.push(pixels);
    Ok(figures)
}

/// Frames through a slot for some seconds; with a page and clients that count their looks.
fn frames(seconds: f64, looks: Option<&AtomicU64>) -> Result<Sample, Fault> {
    let folder = Folder::in_memory()?;
    let path = |name: &str| folder.path().join(name);
    let code = "import beamport\n\n\n@beamport.worker\ndef touch(frame):\n    frame.array.max()\n    return frame\n";
    std::fs::write(path("touch.py"), code).map_err(wrong("the code cannot be written"))?;
    let text = format!(
        "instrument = \"bench\"\ndata = \"data\"\n\n\
         [source.camera]\nkind = \"sim\"\nmodel = \"camera\"\nfps = 1000000\n\
         level = \"memory\"\nlive = \"256 MiB\"\n\n[worker.out]\ncall = \"touch.py:touch\"\ninputs = [\"camera\"]\n\
         level = \"memory\"\npython = {:?}\n{}",
        python_with("beamport", "pip install .")?,
        if looks.is_some() { "\n[web]\nlisten = \"127.0.0.1:0\"\n" } else { "" },
    );
    std::fs::write(path("bench.toml"), text).map_err(wrong("the instrument file cannot be written"))?;
    let mut command = Command::new(program("beamport")?);
    command.arg("up").arg(path("bench.toml"));
    let mut up = Served::start(command, looks.is_some())?;
    let done = up.follow(&Data::on_disk(path("data")), seconds, looks);
    let stopped = stop(&mut up.child);
    let sample = done?;
    stopped.map(|()| sample)
}

impl Served {
    /// Counts frames for some seconds.
    fn follow(&mut self, data: &Data, seconds: f64, looks: Option<&AtomicU64>) -> Result<Sample, Fault> {
        let begin = Instant::now();
        let reader = loop {
            if let Some(status) = self.child.try_wait().map_err(wrong("beamport is not there"))? {
                return Err(Fault::new("bench: `beamport up` ended", status));
            }
            match data.reader_early("out") {
                Ok(reader) if reader.bounds().count >= FIRST => break reader,
                _ if begin.elapsed() > PATIENCE => return Err(Fault::new("bench: no frames come", "timeout")),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut sample = None;
        std::thread::scope(|scope| {
            if let (Some(page), Some(looks)) = (&self.page, looks) {
                for at in 0..=CLIENTS {
                    let (stop, failed) = (&stop, &failed);
                    scope.spawn(move || {
                        let done = if at == CLIENTS { scrape(page, stop) } else { watch(page, stop, looks) };
                        failed.fetch_or(done.is_err(), Ordering::Relaxed);
                    });
                }
            }
            let count = || reader.bounds().count;
            let measure = || -> Result<Sample, Fault> {
                let (cpu, first, start) = (cpu_seconds_of(self.child.id())?, count(), Instant::now());
                std::thread::sleep(Duration::from_secs_f64(seconds));
                let (seconds, messages) = (start.elapsed().as_secs_f64(), count() - first);
                let cpu_seconds = cpu_seconds_of(self.child.id())? - cpu;
                Ok(Sample { seconds, cpu_seconds, bytes: messages * 512 * 512, messages })
            };
            sample = Some(measure());
            stop.store(true, Ordering::Relaxed);
        });
        match (sample, failed.into_inner()) {
            (Some(sample), false) => sample,
            _ => Err(Fault::new("bench: a client of the page got no answer", "")),
        }
    }
}

/// Asks as the page does, until it is stopped.
fn watch(page: &(String, String), stop: &AtomicBool, looks: &AtomicU64) -> Result<(), Fault> {
    let mut client = Client::new(page)?;
    let mut status = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        if begin >= status {
            client.get("/api/status")?;
            client
                .look(&json!([{"stream": "camera", "view": "times", "width": 1000, "window": 600_000_000_000_u64},
                                {"stream": "out", "view": "times", "width": 1000, "window": 600_000_000_000_u64}]))?;
            status = begin + STATUS;
        }
        client.look(&json!([{"stream": "camera"}, {"stream": "out"}]))?;
        looks.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(LOOK.saturating_sub(begin.elapsed()));
    }
    Ok(())
}

fn scrape(page: &(String, String), stop: &AtomicBool) -> Result<(), Fault> {
    let mut client = Client::new(page)?;
    while !stop.load(Ordering::Relaxed) {
        client.get("/metrics")?;
        std::thread::sleep(STATUS);
    }
    Ok(())
}

/// One connection to a page.
struct Client {
    stream: BufReader<TcpStream>,
    head: String,
}

impl Client {
    fn new((address, token): &(String, String)) -> Result<Self, Fault> {
        let stream = TcpStream::connect(address).map_err(wrong("the page cannot be reached"))?;
        let _ = stream.set_nodelay(true);
        stream.set_read_timeout(Some(PATIENCE)).map_err(wrong("the page cannot be reached"))?;
        let head = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\n");
        Ok(Self { stream: BufReader::with_capacity(1 << 20, stream), head })
    }

    fn get(&mut self, path: &str) -> Result<Vec<u8>, Fault> {
        self.ask(&format!("GET {path} HTTP/1.1\r\n{}\r\n", self.head))
    }

    fn look(&mut self, panels: &Value) -> Result<Vec<u8>, Fault> {
        let body = json!({"panels": panels}).to_string();
        let length = body.len();
        self.ask(&format!("POST /api/look HTTP/1.1\r\n{}Content-Length: {length}\r\n\r\n{body}", self.head))
    }

    fn ask(&mut self, request: &str) -> Result<Vec<u8>, Fault> {
        let broken = || wrong("the page does not answer");
        self.stream.get_mut().write_all(request.as_bytes()).map_err(broken())?;
        let (mut line, mut length, mut is_good) = (String::new(), 0, false);
        loop {
            line.clear();
            self.stream.read_line(&mut line).map_err(broken())?;
            is_good |= line.starts_with("HTTP/1.1 200");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(broken())?;
        match is_good {
            true => Ok(body),
            false => Err(Fault::new("bench: the page refuses a request", String::from_utf8_lossy(&body))),
        }
    }
}

/// A look of two images and six trends: the first one of a page, and later ones.
fn panels(values: u64, rounds: u32) -> Result<Vec<Figure>, Fault> {
    let folder = Folder::in_memory()?;
    let data = Data::on_disk(folder.path());
    let now = data.media.now();
    let bytes = fill(&data, values, now)?;
    let (mut first, mut later, mut pass_first, mut pass_later) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let pass = || bare(&data, bytes);
        if round % 2 == 0 {
            pass_first.push(pass()?);
            pass_later.push(pass()?);
        }
        let mut command = Command::new(program("beamport")?);
        command.arg("web").arg("--data").arg(folder.path()).args(["--listen", "127.0.0.1:0"]);
        let mut web = Served::start(command, true)?;
        let looked = web.page.as_ref().map(|page| looks(page, u64::from(round), bytes));
        let stopped = stop(&mut web.child);
        if let Some((one, other)) = looked.transpose()? {
            first.push(one);
            later.push(other);
        }
        stopped?;
        if round % 2 == 1 {
            pass_first.push(pass()?);
            pass_later.push(pass()?);
        }
    }
    let conditions = |which: &str| {
        format!(
            "{which} of a page: two images of {SIDE} x {SIDE} uint16 to about 512 x 512, {TRENDS} trends of {values} \
             f144 to 600 parts, by HTTP, {} MB in all; the pass adds up all payloads as 64-bit words, in one thread",
            bytes / 1_000_000
        )
    };
    let figure = |name: &'static str, which: &str, ours, limit| Figure {
        name: name.into(),
        conditions: conditions(which),
        unit: Unit::Times,
        ours: Series { name: "POST /api/look", samples: ours },
        limits: vec![Series { name: "a pass over the same bytes", samples: limit }],
        must: 0.333,
        aim: 0.667,
    };
    Ok(vec![
        figure("first look of 8 panels / a pass", "the first look", first, pass_first),
        figure("next looks of 8 panels / a pass", "ten later looks", later, pass_later),
    ])
}

/// Writes what is looked at; the bytes of it.
fn fill(data: &Data, values: u64, now: i64) -> Result<u64, Fault> {
    let (mut bytes, mut message) = (0, Vec::new());
    let pixels: Vec<u16> = (0..SIDE * SIDE).map(|i| (i as u16).wrapping_mul(31)).collect();
    for at in 0..2 {
        let mut writer = data.writer(&format!("camera{at}"), &Options::memory(64 << 20))?;
        bytes += append_image(&mut writer, now, 1, SIDE, &pixels)?;
    }
    for at in 0..TRENDS {
        let mut writer = data.writer(&format!("trend{at}"), &Options::memory(512 << 20))?;
        let origin = writer.origin("value").map_err(refused)?;
        for number in 0..values {
            let time = now - ((values - number) * 50_000_000_000 / values) as i64;
            let value = F144 { source_name: "value", timestamp: time, value: (number as f64).into() };
            f144::write(&mut message, &value).map_err(wrong("a value cannot be encoded"))?;
            let meta = Meta { source_time: time, origin, origin_seq: number, schema: SchemaId(f144::ID), flags: 0 };
            writer.push(&meta, &[&message]).map_err(refused)?;
            if number % 4096 == 4095 {
                writer.publish();
            }
            bytes += message.len() as u64;
        }
        writer.publish();
    }
    Ok(bytes)
}

/// The first look of a page, and the mean of ten later ones, each of another size: nothing comes from what was drawn.
fn looks(page: &(String, String), round: u64, bytes: u64) -> Result<(Sample, Sample), Fault> {
    let mut client = Client::new(page)?;
    client.get("/api/status")?;
    let mut look = |width: u64| -> Result<f64, Fault> {
        let images = (0..2).map(|at| json!({"stream": format!("camera{at}"), "width": width, "height": width}));
        let trends = (0..TRENDS).map(|at| json!({"stream": format!("trend{at}"), "width": 600}));
        let begin = Instant::now();
        let answer = client.look(&images.chain(trends).collect())?;
        let seconds = begin.elapsed().as_secs_f64();
        let is_whole = !answer.windows(7).any(|part| part == b"\"fault\"");
        is_whole.then_some(seconds).ok_or_else(|| Fault::new("bench: a panel has a fault", ""))
    };
    let sample = |seconds| Sample { seconds, cpu_seconds: seconds, bytes, messages: 1 };
    let first = look(500 + round % 7)?;
    let later = (0..10).map(|at| look(510 + at + round % 7)).sum::<Result<f64, Fault>>()? / 10.0;
    Ok((sample(first), sample(later)))
}

/// A pass over all payloads.
fn bare(data: &Data, bytes: u64) -> Result<Sample, Fault> {
    let names = (0..2).map(|at| format!("camera{at}")).chain((0..TRENDS).map(|at| format!("trend{at}")));
    let options = ReadOptions { early: true, check: Check::Nothing, ..ReadOptions::default() };
    let readers: Result<Vec<_>, Fault> = names.map(|name| data.reader(&name, options.clone())).collect();
    let begin = Instant::now();
    let (mut sum, mut seen) = (0_u64, 0);
    for mut reader in readers? {
        loop {
            let batch = reader.read(4096).map_err(|e| Fault::new("bench: a stream cannot be read", e))?;
            if batch.is_empty() {
                break;
            }
            for message in batch.iter() {
                let words = message.payload.chunks_exact(8);
                sum = words
                    .fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(word.try_into().unwrap_or_default())));
                seen += message.payload.len() as u64;
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    std::hint::black_box(sum);
    match seen == bytes {
        true => Ok(Sample { seconds, cpu_seconds: seconds, bytes, messages: 1 }),
        false => Err(Fault::new("bench: the pass has not seen all bytes", format!("{seen} of {bytes}"))),
    }
}
