//! Many histories from seeds, lived in processes that end.
//!
//! Constraints: what a killed process of the pretend machine held is forgotten and never dropped, so the real one grows with
//! each death. It lives some histories; those behind are lived by another. Processes, not threads: threads that map and
//! unmap much wait for each other.
//!
//! Failure behaviour: a history that panics ends its process. The others continue; then the output of each failed
//! process is reported, with how to repeat it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{AddAssign, Index};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};

/// Histories of one process: the largest leave some MB each.
const EACH: u64 = 500;
/// Begins the line in which a process says what its histories held.
const SAYS: &str = "histories: ";

/// Numbers of what histories contained, by name; `histories` is how many they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl<const N: usize> From<[(&str, u64); N]> for Counts {
    fn from(counts: [(&str, u64); N]) -> Self {
        Self(counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect())
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        other.0.into_iter().for_each(|(name, count)| *self.0.entry(name).or_default() += count);
    }
}

impl Index<&str> for Counts {
    type Output = u64;

    fn index(&self, name: &str) -> &u64 {
        self.0.get(name).unwrap_or(&0)
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Lives the histories of `seeds` seeds; all that they held. `test` is the whole name of the test that calls this, once.
/// `BEAMPORT_SEEDS=N` tries as many instead, `BEAMPORT_SEED=N` repeats one.
pub fn histories(test: &str, seeds: u64, history: impl Fn(u64) -> Counts) -> Counts {
    if let Some(seed) = number("BEAMPORT_SEED") {
        return lived([seed].into_iter(), history);
    }
    let seeds = number("BEAMPORT_SEEDS").unwrap_or(seeds);
    let at_once = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let parts = seeds.div_ceil(EACH).next_multiple_of(at_once);
    if let Some(part) = number("BEAMPORT_PART") {
        let counts = lived((part..seeds).step_by(parts as usize), history);
        let said: Vec<String> = counts.0.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("\n{SAYS}{}", said.join(","));
        // The rest of the test is for who started this.
        std::process::exit(0);
    }
    let start = |part: u64| {
        let program = std::env::current_exe().unwrap_or_else(|e| panic!("this program has no name: {e}"));
        let mut command = Command::new(program);
        command.args([test, "--exact", "--nocapture", "--include-ignored"]);
        command.env("BEAMPORT_PART", part.to_string()).env("BEAMPORT_SEEDS", seeds.to_string());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        child.unwrap_or_else(|e| panic!("a process for histories does not start: {e}"))
    };
    let mut running: VecDeque<_> = (0..at_once).map(start).collect();
    let mut rest = at_once..parts;
    let (mut sum, mut failures) = (Counts::default(), Vec::new());
    while let Some(part) = running.pop_front() {
        let done = part.wait_with_output().unwrap_or_else(|e| panic!("a process with histories is gone: {e}"));
        running.extend(rest.next().map(start));
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        match text.lines().find_map(|line| line.strip_prefix(SAYS)).filter(|_| done.status.success()) {
            Some(said) => sum += read(said),
            None => failures.push(format!("{}\n{text}{}", done.status, String::from_utf8_lossy(&done.stderr))),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    sum
}

/// Lives some histories here.
fn lived(seeds: impl Iterator<Item = u64>, history: impl Fn(u64) -> Counts) -> Counts {
    let mut sum = Counts::default();
    for seed in seeds {
        let counts = catch_unwind(AssertUnwindSafe(|| history(seed)));
        sum += counts.unwrap_or_else(|_| panic!("BEAMPORT_SEED={seed} repeats it"));
        sum += [("histories", 1)].into();
    }
    sum
}

fn read(said: &str) -> Counts {
    let count = |word: &str| word.rsplit_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    Counts(said.split(',').filter_map(count).collect())
}
