//! The parts of a long word (`test`, `check`, `soak`): each goes on after another failed, and the end says it all.

use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::Done;
use crate::count::Count;

/// The time and the result of each part. Threads may share it.
#[derive(Default)]
pub(crate) struct Parts {
    rows: Mutex<Vec<Row>>,
}

pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
    pub(crate) count: Count,
    /// Why the part failed although no test of it did: it did not build, it warned, it was killed.
    pub(crate) broken: Option<String>,
}

impl Parts {
    /// Runs one part. True if it went well.
    pub(crate) fn run(&self, name: &'static str, part: impl FnOnce(&mut Count) -> Done) -> bool {
        eprintln!("\n== {name}");
        let (begin, mut count) = (Instant::now(), Count::default());
        let broken = part(&mut count).err();
        if let Some(text) = &broken {
            eprintln!("error: {name}: {text}");
        }
        let good = broken.is_none() && count.failed == 0;
        self.rows().push(Row { name, seconds: begin.elapsed().as_secs_f64(), count, broken });
        good
    }

    /// Names a part that was left out, and why.
    pub(crate) fn leave_out(&self, name: &'static str, why: &str) {
        eprintln!("\n== {name}: not run: {why}");
    }

    pub(crate) fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// The sum over all parts; a part that broke without a failed test counts as one.
    pub(crate) fn sum(&self) -> Count {
        let mut sum = Count::default();
        for row in &*self.rows() {
            sum += row.count;
            sum.failed += u64::from(row.broken.is_some() && row.count.failed == 0);
        }
        sum
    }

    /// Prints what each part took, what broke, and the one line with the counts.
    pub(crate) fn finish(self, word: &str) -> Done {
        eprintln!("\n== what `{word}` took");
        for row in &*self.rows() {
            let end = if row.broken.is_some() || row.count.failed > 0 { "FAILED" } else { "ok" };
            eprintln!("{:>8.1} s  {end:<6}  {}", row.seconds, row.name);
        }
        for row in &*self.rows() {
            if let Some(text) = &row.broken {
                eprintln!("error: {}: {text}", row.name);
            }
        }
        let sum = self.sum();
        if sum.unsteady > 0 {
            eprintln!("{} tests are unsteady: they failed beside others, and passed alone", sum.unsteady);
        }
        println!("{sum}");
        // All is printed already, and the counts stay the last line.
        if sum.failed == 0 { Ok(()) } else { Err(String::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_does_not_build_is_one_failure() {
        let parts = Parts::default();
        assert!(parts.run("good", |count| {
            count.passed = 3;
            Ok(())
        }));
        assert!(!parts.run("broken", |_| Err("no compiler".into())));
        assert_eq!(parts.sum(), Count { passed: 3, failed: 1, ..Count::default() });
        assert!(parts.finish("test").is_err());
    }

    #[test]
    fn failed_tests_are_not_counted_twice() {
        let parts = Parts::default();
        assert!(!parts.run("tests", |count| {
            *count = Count { passed: 1, failed: 2, ..Count::default() };
            Err("status 101".into())
        }));
        assert_eq!(parts.sum().failed, 2);
    }
}
