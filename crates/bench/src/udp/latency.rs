//! The latency: from the time in the header of a datagram until a reader of groups has the group of its trigger.

use super::super::measure::{Figure, Sample, Series, Unit};
use super::super::place::wrong;
use super::sender::Sender;
use super::{Load, PATIENCE, PAUSE, Sources, Up};
use flow::Fault;
use std::path::Path;
use std::time::{Duration, Instant};
use store::ReadOptions;

/// Boards, whose messages of one number are a group.
const BOARDS: usize = 4;
/// Triggers a second.
const RATE: f64 = 200.0;
/// How long the merge waits for a board.
const WAIT: Duration = Duration::from_millis(20);
/// Groups before those that count: the start.
const WARM: usize = 100;

/// The row: the p99 beside the wait alone, as rates. `slice`: of the merge, ms.
pub(super) fn row(program: &Path, slice: u32, seconds: f64, rounds: u32) -> Result<Figure, Fault> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.push(round(program, slice, seconds)?);
    }
    let at = |delays: &[f64], part: f64| delays[((delays.len() - 1) as f64 * part) as usize];
    let mean = |part: f64| all.iter().map(|delays| at(delays, part)).sum::<f64>() / all.len() as f64 * 1e3;
    let sample = |seconds: f64| Sample { seconds, cpu_seconds: 0.0, bytes: 1_000_000_000, messages: 1 };
    Ok(Figure {
        name: format!("datagram -> group seen, `slice` {slice} ms: wait of the merge / p99").into(),
        conditions: format!(
            "{BOARDS} boards at one source in memory, {RATE} triggers/s, 500 B; a merge by time with `wait` {} ms, \
             groups by trigger, a reader; {seconds} s: median {:.1} ms, p99 {:.1} ms; must: wait + 20 ms, aim: \
             wait + 5 ms",
            WAIT.as_millis(),
            mean(0.5),
            mean(0.99),
        ),
        unit: Unit::Times,
        ours: Series { name: "p99", samples: all.iter().map(|delays| sample(at(delays, 0.99))).collect() },
        limits: vec![Series { name: "the wait alone", samples: vec![sample(WAIT.as_secs_f64()); rounds as usize] }],
        must: 0.5,
        aim: 0.8,
    })
}

/// Measures for `seconds`; the delay of each group, s, ascending.
fn round(program: &Path, slice: u32, seconds: f64) -> Result<Vec<f64>, Fault> {
    let load = Load { bytes: 500, together: 1, rate: Some(BOARDS as f64 * RATE), sources: Sources::One };
    let stages = format!(
        "\n[merge.all]\nkind = \"time\"\ninputs = [\"array\"]\nwait = \"{0} ms\"\nslice = \"{slice} ms\"\n\n\
         [worker.groups]\ncall = \"groups\"\ninputs = [\"all\"]\n\n[worker.groups.parameters]\nfind = \"trigger\"\n\
         wait = \"{0} ms\"\nmembers = [\"d{{000..{1:03}}}\"]\n",
        WAIT.as_millis(),
        BOARDS - 1,
    );
    let mut up = Up::start(program, &load, BOARDS, &stages)?;
    let (sender, begin) = (Sender::start(load, &up.ports)?, Instant::now());
    let mut reader = loop {
        match up.data.reader("groups", ReadOptions::default()) {
            Err(fault) if begin.elapsed() > PATIENCE => return Err(fault),
            Err(_) => std::thread::sleep(PAUSE),
            Ok(reader) => break reader,
        }
    };
    let (mut delays, end) = (Vec::new(), begin + Duration::from_secs_f64(seconds + WARM as f64 / RATE));
    while Instant::now() < end {
        reader.wait(PAUSE).map_err(wrong("the rows cannot be read"))?;
        let batch = reader.read(usize::MAX).map_err(wrong("the rows cannot be read"))?;
        let now = up.data.media.now();
        delays.extend(batch.iter().map(|message| (now - message.entry.source_time) as f64 / 1e9));
    }
    up.end(&sender.stop()?)?;
    if delays.len() < WARM + RATE as usize {
        return Err(Fault::new("bench: too few groups", format!("{} in {seconds} s", delays.len())));
    }
    let mut delays = delays.split_off(WARM);
    delays.sort_by(f64::total_cmp);
    Ok(delays)
}
