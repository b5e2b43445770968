//! `beamport-bench wire`: `beamport.wire` against the package whose place it takes, call for call.

use super::measure::{Figure, Sample, Series, Unit};
use super::place::{Folder, output, python_with, wrong};
use flow::Fault;
use std::process::Command;

/// Both sides, run by a Python that has `beamport` and `streaming_data_types`.
const SIDES: &str = include_str!("../../../bench/wire_package.py");

struct Job {
    name: &'static str,
    schema: &'static str,
    /// Of a round: long enough for the clock, short enough for the patience; the slower side takes some tenths of a second.
    calls: u64,
    must: f64,
    aim: f64,
}

const JOBS: [Job; 2] = [
    Job { name: "wire f144 / streaming_data_types", schema: "f144", calls: 5_000, must: 10.0, aim: 50.0 },
    Job { name: "wire ev44 / streaming_data_types", schema: "ev44", calls: 100, must: 3.0, aim: 8.0 },
];

pub(crate) fn run(quick: bool, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let both = "streaming_data_types, beamport.wire";
    let python = python_with(both, "pip install . ess-streaming-data-types")?;
    let folder = Folder::in_memory()?;
    let script = folder.path().join("wire_package.py");
    std::fs::write(&script, SIDES).map_err(wrong("the script cannot be written"))?;
    let mut figures = Vec::new();
    for job in &JOBS {
        let calls = if quick { job.calls / 10 } else { job.calls };
        let mut command = Command::new(&python);
        command.arg(&script).arg(job.schema).args([rounds.to_string(), calls.to_string()]);
        let answer = output(&mut command)?;
        let (ours, theirs) = samples(&answer, rounds, calls)
            .ok_or_else(|| Fault::new("bench: the script of both packages does not answer", &answer))?;
        let bytes = ours.first().map_or(0, |sample| sample.bytes / calls);
        let figure = Figure {
            name: job.name.into(),
            conditions: format!(
                "{calls} calls of `serialise_{}` a round, messages of {bytes} B, the same arguments for both",
                job.schema
            ),
            unit: Unit::Thousands,
            ours: Series { name: "beamport.wire", samples: ours },
            limits: vec![Series { name: "streaming_data_types", samples: theirs }],
            must: job.must,
            aim: job.aim,
        };
        tell(&figure);
        figures.push(figure);
    }
    Ok(figures)
}

/// What the script says: bytes of a message, then of each round a line with seconds and processor seconds of ours and theirs.
fn samples(answer: &str, rounds: u32, calls: u64) -> Option<(Vec<Sample>, Vec<Sample>)> {
    let mut lines = answer.lines();
    let bytes = calls * lines.next()?.parse::<u64>().ok()?;
    let round = |line: &str| {
        let numbers: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let &[ours, ours_cpu, theirs, theirs_cpu] = numbers.as_slice() else { return None };
        let sample = |seconds, cpu_seconds| Sample { seconds, cpu_seconds, bytes, messages: calls };
        Some((sample(ours, ours_cpu), sample(theirs, theirs_cpu)))
    };
    let all: (Vec<_>, Vec<_>) = lines.map(round).collect::<Option<_>>()?;
    (all.0.len() == rounds as usize).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_says_is_taken_whole_or_not_at_all() {
        let (ours, theirs) = samples("96\n0.1 0.2 3.0 4.0\n0.5 0.6 7.0 8.0\n", 2, 10).unwrap();
        assert_eq!((ours[1].seconds, ours[1].bytes, ours[1].messages), (0.5, 960, 10));
        assert_eq!((theirs[0].seconds, theirs[0].cpu_seconds), (3.0, 4.0));
        for wrong in ["", "96", "96\n1 2 3\n1 2 3 4", "x\n1 2 3 4\n1 2 3 4"] {
            assert!(samples(wrong, 2, 10).is_none(), "{wrong}");
        }
    }
}
