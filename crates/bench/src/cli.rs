//! The command line of `beamport-bench`. `bench/README.md` quotes its help; a test compares.

use clap::Parser;
use std::path::PathBuf;

/// The measurements.
const NAMES: [&str; 13] = [
    "store",
    "merge",
    "nexus",
    "wire",
    "frames",
    "kafka",
    "kafka-jobs",
    "hosts",
    "epics",
    "epics-kafka",
    "udp",
    "web",
    "sweep",
];

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "beamport-bench",
    version,
    about = "Measure beamport against the limits of this machine",
    after_help = "Examples:\n  beamport-bench\n  beamport-bench store --quick",
    max_term_width = 100
)]
pub(crate) struct Asked {
    /// What to measure: store, merge, nexus, wire, frames, kafka, kafka-jobs, hosts, epics, epics-kafka,
    /// udp, web, sweep
    /// [default: the first three]
    #[arg(value_parser = NAMES, hide_possible_values = true)]
    pub(crate) names: Vec<String>,
    /// Alternating rounds of each measurement, at most 3 of a sweep
    #[arg(long, value_name = "NUMBER", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Use small amounts to test the program; its figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
    /// kafka: bytes of the messages of one size [default: 2000000000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1_000_000..))]
    pub(crate) bytes: Option<u64>,
    /// kafka: use this cluster [default: a node of Apache Kafka, which is started]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) brokers: Option<String>,
    /// Exit with status 1 if a figure is below its `must`
    #[arg(long)]
    pub(crate) strict: bool,
    /// Also write the figures to this JSON file; a sweep is also plotted in FILE.png
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Asked::command().debug_assert();
    }

    #[test]
    fn the_readme_holds_the_help() {
        let readme = include_str!("../../../bench/README.md");
        let help = Asked::command().term_width(100).render_help().to_string();
        assert!(readme.contains(&format!("```text\n{help}```\n")), "bench/README.md lacks this block:\n{help}");
    }
}
