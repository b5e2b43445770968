//! What is measured and how it is stated: samples, series of alternating rounds, figures with must and aim.

use flow::Fault;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::time::Instant;

/// One timed piece of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Wall time.
    pub(crate) seconds: f64,
    /// Processor time of all threads that took part.
    pub(crate) cpu_seconds: f64,
    /// Payload bytes moved.
    pub(crate) bytes: u64,
    /// Messages moved.
    pub(crate) messages: u64,
}

/// Times `work` with the processor time of this process.
pub(crate) fn timed<E>(bytes: u64, messages: u64, work: impl FnOnce() -> Result<(), E>) -> Result<Sample, E> {
    let (cpu, begin) = (cpu_seconds(), Instant::now());
    work()?;
    Ok(Sample { seconds: begin.elapsed().as_secs_f64(), cpu_seconds: cpu_seconds() - cpu, bytes, messages })
}

/// User and system time of all threads of this process and of the processes that it started and that have ended.
fn cpu_seconds() -> f64 {
    let of = |who| {
        // SAFETY: zero is a valid value of this plain structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: writes one structure that we own.
        unsafe { libc::getrusage(who, &mut usage) };
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

/// User and system time of this thread.
pub(crate) fn thread_cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one value that we own.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The same as [`cpu_seconds`] of a process that runs and of the processes that it has started and that run.
pub(crate) fn cpu_seconds_of(pid: u32) -> Result<f64, Fault> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write one value that we own; a number without a process is an error.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) != 0 || libc::clock_gettime(clock, &mut time) != 0
    };
    if failed {
        return Err(Fault::new("bench: a process has ended", pid));
    }
    let mut seconds = time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            seconds += cpu_seconds_of(child)?;
        }
    }
    Ok(seconds)
}

/// The unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// 1e9 bytes a second.
    Gigabytes,
    /// 1e6 messages a second.
    Millions,
    /// 1e3 messages a second.
    Thousands,
    /// 1e3 messages a second of processor time.
    ThousandsPerCpu,
    /// Of one thing, how often it could be done in a second.
    Times,
}

impl Unit {
    fn text(self) -> &'static str {
        match self {
            Self::Gigabytes => " GB/s",
            Self::Millions => " M/s",
            Self::Thousands => " k/s",
            Self::ThousandsPerCpu => " k/CPU s",
            Self::Times => " /s",
        }
    }
}

/// All rounds of one side: the product, or a limit.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) samples: Vec<Sample>,
}

impl Series {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, samples: Vec::new() }
    }

    fn rates(&self, unit: Unit) -> Vec<f64> {
        self.samples.iter().map(|s| rate(s, unit)).collect()
    }

    /// Processor seconds per 1e9 payload bytes.
    fn cpu_seconds_per_gb(&self) -> f64 {
        let of: Vec<f64> = self.samples.iter().map(|s| s.cpu_seconds / (s.bytes as f64 * 1e-9)).collect();
        Spread::of(&of).median
    }
}

fn rate(sample: &Sample, unit: Unit) -> f64 {
    match unit {
        Unit::Gigabytes => sample.bytes as f64 * 1e-9 / sample.seconds,
        Unit::Millions => sample.messages as f64 * 1e-6 / sample.seconds,
        Unit::Thousands => sample.messages as f64 * 1e-3 / sample.seconds,
        Unit::ThousandsPerCpu => sample.messages as f64 * 1e-3 / sample.cpu_seconds,
        Unit::Times => sample.seconds.recip(),
    }
}

/// Median, smallest and largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Self {
            median,
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max: sorted.last().copied().unwrap_or(f64::NAN),
        }
    }

    fn json(self) -> Value {
        json!({ "median": round(self.median), "min": round(self.min), "max": round(self.max) })
    }
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() * 1e-4
}

/// One row of the report.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// What is compared: `append 1 MiB / memcpy`.
    pub(crate) name: Cow<'static, str>,
    /// State of pages, sizes, what is in and what is out.
    pub(crate) conditions: String,
    pub(crate) unit: Unit,
    pub(crate) ours: Series,
    /// None: the figure is our rate itself. More than one: the better of each round counts.
    pub(crate) limits: Vec<Series>,
    pub(crate) must: f64,
    pub(crate) aim: f64,
}

impl Figure {
    /// The figure of each round: our rate over the best limit of the same round, or our rate.
    pub(crate) fn values(&self) -> Vec<f64> {
        let ours = self.ours.rates(self.unit);
        if self.limits.is_empty() {
            return ours;
        }
        let limits: Vec<Vec<f64>> = self.limits.iter().map(|l| l.rates(self.unit)).collect();
        let best = |round: usize| limits.iter().filter_map(|l| l.get(round)).copied().fold(0.0, f64::max);
        ours.iter().enumerate().map(|(round, rate)| rate / best(round)).collect()
    }

    pub(crate) fn spread(&self) -> Spread {
        Spread::of(&self.values())
    }

    pub(crate) fn reaches_must(&self) -> bool {
        self.spread().median >= self.must
    }

    fn suffix(&self) -> &'static str {
        if self.limits.is_empty() { self.unit.text() } else { "" }
    }

    /// The row as text: the figure, then a line for each side, then the conditions.
    pub(crate) fn text(&self) -> String {
        let Spread { median, min, max } = self.spread();
        let word = |reached: bool| if reached { "reached" } else { "missed" };
        let mut text = format!(
            "{:<44} {:>18}   must {:>5} {:<7}   aim {:>5} {}\n",
            self.name,
            format!("{median:.2} ({min:.2}..{max:.2}){}", self.suffix()),
            self.must,
            word(median >= self.must),
            self.aim,
            word(median >= self.aim),
        );
        for side in std::iter::once(&self.ours).chain(&self.limits) {
            let s = Spread::of(&side.rates(self.unit));
            text += &format!(
                "  {:<42} {:>8.digits$} ({:.digits$}..{:.digits$}){}, {:.3} CPU s/GB\n",
                side.name,
                s.median,
                s.min,
                s.max,
                self.unit.text(),
                side.cpu_seconds_per_gb(),
                digits = if s.median < 0.1 { 5 } else { 2 },
            );
        }
        text + &format!("  {}\n", self.conditions)
    }

    pub(crate) fn json(&self) -> Value {
        let unit = match self.unit {
            Unit::Gigabytes => "1e9 B/s",
            Unit::Millions => "1e6 messages/s",
            Unit::Thousands => "1e3 messages/s",
            Unit::ThousandsPerCpu => "1e3 messages/CPU s",
            Unit::Times => "1/s",
        };
        let side = |s: &Series| {
            json!({
                "name": s.name,
                "rate": Spread::of(&s.rates(self.unit)).json(),
                "rounds": s.rates(self.unit).iter().map(|&r| round(r)).collect::<Vec<_>>(),
                "cpu_seconds_per_gb": round(s.cpu_seconds_per_gb()),
            })
        };
        let median = self.spread().median;
        json!({
            "name": self.name,
            "figure": self.spread().json(),
            "must": self.must, "must_reached": median >= self.must,
            "aim": self.aim, "aim_reached": median >= self.aim,
            "unit_of_rates": unit,
            "ours": side(&self.ours),
            "limits": self.limits.iter().map(side).collect::<Vec<_>>(),
            "conditions": self.conditions,
        })
    }
}

/// Limit and product in turn, the other one first in every second round: a machine that slows down hurts both.
pub(crate) fn alternate(
    rounds: u32,
    mut ours: impl FnMut() -> Result<Sample, Fault>,
    mut limit: impl FnMut() -> Result<Sample, Fault>,
) -> Result<(Vec<Sample>, Vec<Sample>), Fault> {
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            them.push(limit()?);
            us.push(ours()?);
        } else {
            us.push(ours()?);
            them.push(limit()?);
        }
    }
    Ok((us, them))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &'static str, seconds: &[f64]) -> Series {
        let sample = |&seconds: &f64| Sample { seconds, cpu_seconds: seconds, bytes: 1_000_000_000, messages: 1000 };
        Series { name, samples: seconds.iter().map(sample).collect() }
    }

    #[test]
    fn the_better_limit_of_each_round_counts() {
        let figure = Figure {
            name: "a / b".into(),
            conditions: String::new(),
            unit: Unit::Gigabytes,
            ours: series("ours", &[1.0, 1.0, 1.0]),
            limits: vec![series("b", &[1.0, 0.5, 4.0]), series("c", &[2.0, 1.0, 2.0])],
            must: 0.9,
            aim: 1.5,
        };
        assert_eq!(figure.values(), [1.0, 0.5, 2.0]);
        assert_eq!(figure.spread(), Spread { median: 1.0, min: 0.5, max: 2.0 });
        assert!(figure.reaches_must() && figure.text().contains("missed"), "{}", figure.text());
        assert_eq!(figure.json()["aim_reached"], false);
    }

    #[test]
    fn an_even_number_of_rounds_has_a_median_between() {
        assert_eq!(Spread::of(&[4.0, 1.0, 3.0, 2.0]).median, 2.5);
        assert!(Spread::of(&[]).median.is_nan());
    }
}
