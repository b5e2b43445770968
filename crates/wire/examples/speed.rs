//! How fast writing and reading are, beside a bare copy of the same bytes: `cargo run --release -p beamport-wire
//! --example speed`. Seven alternating rounds, median and spread; everything lies in the caches' reach or not as
//! it does in use: one reused buffer.

use std::hint::black_box;
use std::time::Instant;

use beamport_wire::{ev44, f144};

/// Nanoseconds for one call of `work`, over enough calls to be worth a clock.
#[expect(clippy::disallowed_methods, reason = "a measurement is the one thing here that needs a clock")]
fn time(calls: u32, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        work();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn main() {
    // Two arrays, as in use: one for both would halve what has to be read.
    let events: Vec<i32> = (0..12_400).collect();
    let pixels = events.clone();
    let parts = ev44::Ev44 {
        source_name: "multiblade",
        message_id: 1,
        reference_time: (&[1i64]).into(),
        reference_time_index: (&[0i32]).into(),
        time_of_flight: (&events).into(),
        pixel_id: (&pixels).into(),
    };
    let value = f144::F144 { source_name: "AMOR:SE:TEMP01", timestamp: 1, value: 1.5.into() };
    let (mut message, mut small) = (Vec::new(), Vec::new());
    ev44::write(&mut message, &parts).expect("a good message");
    f144::write(&mut small, &value).expect("a good message");
    let (mut copy, mut out) = (Vec::new(), Vec::new());
    let sizes = [message.len(), small.len()];

    let mut rounds: [Vec<f64>; 5] = Default::default();
    for _ in 0..7 {
        rounds[0].push(time(5_000, || {
            copy.clear();
            copy.extend_from_slice(black_box(&message));
        }));
        rounds[1].push(time(5_000, || {
            ev44::write(&mut out, black_box(&parts)).expect("a good message");
        }));
        rounds[2].push(time(500_000, || {
            black_box(ev44::read(black_box(&message)).expect("a good message"));
        }));
        rounds[3].push(time(500_000, || {
            f144::write(&mut out, black_box(&value)).expect("a good message");
        }));
        rounds[4].push(time(500_000, || {
            black_box(f144::read(black_box(&small)).expect("a good message"));
        }));
    }
    let names = ["copy ev44", "write ev44", "read ev44", "write f144", "read f144"];
    for (name, mut times) in names.into_iter().zip(rounds) {
        times.sort_by(f64::total_cmp);
        println!("{name:10} {:9.1} ns  ({:.1} to {:.1})", times[3], times[0], times[6]);
    }
    println!("ev44 of {} events: {} bytes; f144: {} bytes", events.len(), sizes[0], sizes[1]);
}
