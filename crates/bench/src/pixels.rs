//! The last row of `beamport-bench web`: how long an image takes from its append to the pixels of the canvas on which a
//! browser shows it, beside the period in which the page asks.

use super::measure::{Figure, Sample, Series, Unit};
use super::place::{Folder, output, program, python_with, wrong};
use super::served::{Served, append_image};
use flow::{Data, Fault};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{Options, Writer};

/// Drives the browser.
const BROWSER: &str = include_str!("../../../bench/page_pixels.py");
/// In which period the page asks (`LOOK_MS` of `crates/web/page/app.js`).
const ASKS: Duration = Duration::from_millis(100);
/// From one image to the next: each can be shown, and they come at all times of the page's period.
const PAUSE: Duration = Duration::from_millis(131);
/// Pixels of a side of the image, and rows and columns of the blocks that it is divided into.
const SIDE: usize = 512;
const BLOCKS: [usize; 2] = [3, 6];

/// The Python and the folder of the browser.
pub(super) struct Browser {
    python: PathBuf,
    folder: Folder,
}

/// The results of one round: ms from append to pixels, sorted.
struct Round {
    latencies: Vec<f64>,
    /// Images that were appended meanwhile.
    appended: usize,
}

impl Browser {
    pub(super) fn find() -> Result<Self, Fault> {
        let python = python_with("playwright", "pip install playwright")?;
        let folder = Folder::in_memory()?;
        std::fs::write(folder.path().join("page_pixels.py"), BROWSER).map_err(wrong("the script cannot be written"))?;
        Ok(Self { python, folder })
    }

    /// The row.
    pub(super) fn row(&self, quick: bool, rounds: u32) -> Result<Figure, Fault> {
        let seconds = if quick { 2.0 } else { 40.0 };
        let all = (0..rounds).map(|_| self.round(seconds)).collect::<Result<Vec<_>, Fault>>()?;
        let mut latencies: Vec<f64> = all.iter().flat_map(|round| round.latencies.iter().copied()).collect();
        latencies.sort_by(f64::total_cmp);
        let appended: usize = all.iter().map(|round| round.appended).sum();
        let sample = |seconds| Sample { seconds, cpu_seconds: 0.0, bytes: (2 * SIDE * SIDE) as u64, messages: 1 };
        let ours = all.iter().map(|round| sample(part(&round.latencies, 0.99) * 1e-3)).collect();
        Ok(Figure {
            name: "append to pixels on the canvas, p99 / period of asking".into(),
            conditions: format!(
                "an image of {SIDE} x {SIDE} uint16 each {} ms, shown by one Chromium for {seconds} s a round; from \
                 before the append to the first animation frame at which the canvas has its pixels: p50 {:.0} ms, p99 \
                 {:.0} ms, most {:.0} ms; {:.1} % of {appended} images were displayed, and only those count",
                PAUSE.as_millis(),
                part(&latencies, 0.5),
                part(&latencies, 0.99),
                part(&latencies, 1.0),
                latencies.len() as f64 * 100.0 / appended as f64,
            ),
            unit: Unit::Times,
            ours: Series { name: "append to pixels, p99", samples: ours },
            limits: vec![Series {
                name: "the period in which the page asks",
                samples: vec![sample(ASKS.as_secs_f64()); all.len()],
            }],
            must: 0.333,
            aim: 0.667,
        })
    }

    /// One browser, for some seconds.
    fn round(&self, seconds: f64) -> Result<Round, Fault> {
        let folder = Folder::in_memory()?;
        let data = Data::on_disk(folder.path());
        // The stream is there before the page.
        let mut writer = data.writer("image", &Options::memory(64 << 20))?;
        let first = append(&data, &mut writer, 0)?;
        let mut command = Command::new(program("beamport")?);
        command.arg("web").arg("--data").arg(folder.path()).args(["--listen", "127.0.0.1:0"]);
        let mut web = Served::start(command, true)?;
        let mut browser = Command::new(&self.python);
        browser.arg(self.folder.path().join("page_pixels.py")).args([web.url(), seconds.to_string()]);
        let stop = AtomicBool::new(false);
        let (seen, appended) = std::thread::scope(|scope| {
            let images = scope.spawn(|| {
                let mut appended = vec![first];
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(PAUSE);
                    appended.push(append(&data, &mut writer, appended.len())?);
                }
                Ok(appended)
            });
            let seen = output(&mut browser);
            stop.store(true, Ordering::Relaxed);
            (seen, images.join().unwrap_or_else(|_| Err(Fault::new("bench: the writer of images panicked", ""))))
        });
        super::frames::stop(&mut web.child)?;
        let seen: Vec<(usize, f64)> =
            serde_json::from_str(&seen?).map_err(wrong("the answer of the browser cannot be read"))?;
        compare(&seen, &appended?)
    }
}

/// Appends an image that shows its number; when, ms since 1970.
fn append(data: &Data, writer: &mut Writer, number: usize) -> Result<f64, Fault> {
    let block = |at: usize| match at {
        0 => true,
        1 => false,
        bit => number >> (bit - 2) & 1 == 1,
    };
    let [rows, columns] = BLOCKS;
    let of = |pixel: usize| block(pixel / SIDE * rows / SIDE * columns + pixel % SIDE * columns / SIDE);
    let pixels: Vec<u16> = (0..SIDE * SIDE).map(|pixel| if of(pixel) { 1000 } else { 0 }).collect();
    let now = data.media.now();
    append_image(writer, now, number as u64, SIDE, &pixels)?;
    Ok(now as f64 * 1e-6)
}

/// The latencies of the images that were displayed. The first one may have been there before the browser watched.
fn compare(seen: &[(usize, f64)], appended: &[f64]) -> Result<Round, Fault> {
    let (Some((first, _)), Some((last, _))) = (seen.first(), seen.last()) else {
        return Err(Fault::new("bench: the browser has seen no image", ""));
    };
    let latency = |(number, time): &(usize, f64)| Some(time - appended.get(*number)?);
    let latencies: Option<Vec<f64>> = seen.iter().skip(1).map(latency).collect();
    let wrong = || Fault::new("bench: the browser has seen an image that was not appended", format!("{seen:?}"));
    let mut latencies = latencies.ok_or_else(wrong)?;
    let is_rising = seen.windows(2).all(|pair| pair[0].0 < pair[1].0);
    // The clock of the browser counts whole milliseconds.
    if !is_rising || latencies.is_empty() || latencies.iter().any(|latency| *latency < -1.0) {
        return Err(wrong());
    }
    latencies.sort_by(f64::total_cmp);
    Ok(Round { latencies, appended: last - first })
}

/// The latency that a share of all does not exceed.
fn part(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
