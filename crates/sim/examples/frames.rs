//! How many frames a second the camera puts into a stream, beside bare copies of the same bytes into as much memory:
//! `cargo run --release -p beamport-sim --example frames`. Seven alternating rounds, median and spread, for
//! each second of processor time, so that a machine that is not idle says nearly the same. The stream lies in
//! `/dev/shm`, is larger than the caches, drops its oldest frames, and every frame is checksummed.

use beamport_sim as sim;
use flow::{Data, Intake, IntakeOptions};
use serde_json::json;
use std::hint::black_box;
use std::time::Instant;
use store::{Media as _, Options, Os, WhenFull};

const LIVE_BYTES: u64 = 256 << 20;

fn main() -> Result<(), flow::Fault> {
    let folder = std::path::PathBuf::from(format!("/dev/shm/beamport-frames-{}", std::process::id()));
    for (side, seconds) in [(128, 0.2), (512, 0.4), (4096, 1.0)] {
        measure(&folder, side, seconds)?;
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(())
}

/// Seconds that this thread has worked.
fn worked() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

fn measure(folder: &std::path::Path, side: usize, seconds: f64) -> Result<(), flow::Fault> {
    let mut config = sim::Config::new("camera")?;
    // Always more than can be had: each step has frames to make up for.
    config.set("fps", &json!(1e6))?;
    config.set("shape", &json!([side, side]))?;
    config.set("frames", &json!(4))?;
    let data = Data::on_disk(folder);
    let stream = Options { when_full: WhenFull::DropOldest, ..Options::memory(LIVE_BYTES) };
    let options = IntakeOptions { stream, ahead_max: i64::MAX };
    let mut intake = Intake::start(&data, "camera", sim::build(&config)?, &options, Os.now())?;
    let frames: Vec<Vec<u8>> = (0..4u8).map(|n| vec![n; side * side]).collect();
    let mut memory = vec![0u8; LIVE_BYTES as usize];
    let (mut copies, mut steps) = (Vec::new(), Vec::new());
    let (size, mut at) = (side * side, 0);
    for round in 0..8 {
        let mut copied = 0;
        let (began, before) = (Instant::now(), worked());
        while began.elapsed().as_secs_f64() < seconds {
            for _ in 0..16 {
                memory[at..at + size].copy_from_slice(black_box(&frames[copied % 4]));
                (at, copied) = (if at + 2 * size <= memory.len() { at + size } else { 0 }, copied + 1);
            }
            black_box(&mut memory);
        }
        let copy = copied as f64 / (worked() - before);
        let first = intake.writer().next_sequence();
        let (began, before) = (Instant::now(), worked());
        while began.elapsed().as_secs_f64() < seconds {
            intake.step(Os.now())?;
        }
        let step = (intake.writer().next_sequence() - first) as f64 / (worked() - before);
        // The first round touches memory for the first time.
        if round > 0 {
            copies.push(copy);
            steps.push(step);
        }
    }
    let middle = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        (rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
    };
    let ((copy, low, high), (step, least, most)) = (middle(&mut copies), middle(&mut steps));
    let part = step / copy;
    println!("{side:4} x {side:4} uint8: {step:7.0} frames/s ({least:.0} to {most:.0})");
    println!("     bare copies: {copy:7.0} frames/s ({low:.0} to {high:.0}); the camera has {part:.2} of them");
    Ok(())
}
