//! The rows of hosts that HTTPS joins: processor time of a mirror beside bare TLS, and how soon a message is seen on
//! the other host beside a round trip of TCP.
//!
//! Processor time counts from the first hundredth of the messages in the mirror to the last of them: it is that of
//! messages, without the starts of the programs.

use super::super::measure::{Figure, Sample, Series, Spread, Unit};
use super::super::place::{free_ports, wrong};
use super::peer::{self, Moved};
use super::{Arrival, BYTES, Delays, PAUSE, Place, RING_MIB, SIZE, Side, hosts_file};
use flow::Fault;

const OURS: &str = "beamport up --host a and --host b";
const BARE: &str = "rustls over TCP, and CRC-32C at the receiver";

/// Runs the rows.
pub(super) fn run(side: &Side, rounds: u32) -> Result<Vec<Figure>, Fault> {
    let mut figures = moved(side, rounds)?;
    figures.push(latency(side, rounds)?);
    Ok(figures)
}

/// Two hosts with certificates, and MiB of the stream and of its mirror.
fn place(side: &Side, what: &str, round: u32, mib: (u64, u64)) -> Result<Place, Fault> {
    let [port] = free_ports().map_err(wrong("a port"))?;
    let tls = |host: &str| {
        format!("tls = {{ certificate = \"{host}.pem\", key = \"{host}.key\", authority = \"lab.pem\" }}\n")
    };
    let a = format!("url = \"https://127.0.0.1:{port}\"\n{}", tls("a"));
    let text = hosts_file(&side.name(what, round), "carrier = \"https\"\n", [&a, &tls("b")], mib);
    let place = Place::new(&text)?;
    peer::certify(place.folder.path())?;
    Ok(place)
}

/// One round of each way, in turns.
fn moved(side: &Side, rounds: u32) -> Result<Vec<Figure>, Fault> {
    let (mut ours, mut bare): (Vec<Arrival>, Vec<Moved>) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let place = place(side, "https", round, (side.live_mib(), RING_MIB))?;
        for turn in 0..2 {
            if (turn + round) % 2 == 0 {
                bare.push(peer::moved(place.folder.path(), side.count)?);
                continue;
            }
            place.fill(&place.data("a"), side.live_mib(), side.count)?;
            let mut hosts = vec![side.up(&place, &["--host", "a"])?, side.up(&place, &["--host", "b"])?];
            ours.push(place.ended(&mut hosts, |hosts| side.arrive(&place.data("b"), "history", hosts))?);
        }
    }
    let rate = |seconds: Vec<f64>| (side.count * SIZE) as f64 * 1e-9 / Spread::of(&seconds).median;
    let conditions = format!(
        "{} messages of {SIZE} B a round, from a memory stream that is full, over the loopback, {}; the mirror is a \
         memory stream of {RING_MIB} MiB; CPU from the first hundredth in the mirror to the last, without starts; ours \
         {:.2} GB/s, the bare pair {:.2} GB/s",
        side.count,
        bare.first().map_or("", |bare| &bare.cipher),
        rate(ours.iter().map(|one| one.seconds).collect()),
        rate(bare.iter().map(|one| one.seconds).collect()),
    );
    let sample = |seconds, cpu_seconds| Sample { seconds, cpu_seconds, bytes: side.count * SIZE, messages: side.count };
    let figure = |name: &'static str, of_ours: fn(&[f64]) -> f64, of_bare: fn(&Moved) -> f64| {
        let ours = ours.iter().map(|one| sample(one.seconds, of_ours(&one.cpu_seconds))).collect();
        let bare = bare.iter().map(|one| sample(one.seconds, of_bare(one))).collect();
        Figure {
            name: name.into(),
            conditions: conditions.clone(),
            unit: Unit::ThousandsPerCpu,
            ours: Series { name: OURS, samples: ours },
            limits: vec![Series { name: BARE, samples: bare }],
            must: 0.5,
            aim: 0.71,
        }
    };
    Ok(vec![
        figure("HTTPS, stream -> mirror, a CPU s / bare TLS", |cpu| cpu.iter().sum(), |bare| bare.off + bare.on),
        figure("HTTPS off, a CPU s / its half of bare TLS", |cpu| cpu[0], |bare| bare.off),
        figure("HTTPS on, a CPU s / its half of bare TLS", |cpu| cpu[1], |bare| bare.on),
    ])
}

/// How long one message takes from stream to mirror.
fn latency(side: &Side, rounds: u32) -> Result<Figure, Fault> {
    let (mut ours, mut bare): (Vec<Delays>, Vec<Delays>) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for turn in 0..2 {
            if (turn + round) % 2 == 0 {
                bare.push(peer::round_trips(side.timed)?);
            } else {
                ours.push(side.pulses(&place(side, "https-pulse", round, (64, 64))?)?);
            }
        }
    }
    let sample = |delays: &Delays| Sample { seconds: delays.p99, cpu_seconds: 0.0, bytes: BYTES, messages: 1 };
    let us = |of: &[Delays], which: fn(&Delays) -> f64| {
        Spread::of(&of.iter().map(|delays| 1e6 * which(delays)).collect::<Vec<_>>()).median
    };
    Ok(Figure {
        name: "append on a -> seen on b over HTTPS, p99 / TCP round trip".into(),
        conditions: format!(
            "{} messages of {SIZE} B a round, one in {} ms, each awaited before the next by a reader that sleeps; \
             median and p99: ours {:.0} and {:.0} us, a round trip of as many bytes to another thread {:.0} and \
             {:.0} us; the p99 as rates; must 8 times, aim 3 times as long",
            side.timed.0,
            PAUSE.as_millis(),
            us(&ours, |delays| delays.median),
            us(&ours, |delays| delays.p99),
            us(&bare, |delays| delays.median),
            us(&bare, |delays| delays.p99),
        ),
        unit: Unit::Times,
        ours: Series { name: OURS, samples: ours.iter().map(sample).collect() },
        limits: vec![Series { name: "TCP round trip", samples: bare.iter().map(sample).collect() }],
        must: 0.125,
        aim: 0.333,
    })
}
