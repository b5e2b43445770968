//! How many tests passed: read from what the runners say about themselves.

use std::fmt;
use std::ops::AddAssign;

/// Tests of one runner or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Of those that passed: they failed beside others, and passed alone.
    pub(crate) unsteady: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.unsteady += other.unsteady;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(f, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

/// The closing line of one Rust test program: `test result: ok. 5 passed; 0 failed; 1 ignored; ...`.
pub(crate) fn of_cargo_line(line: &str) -> Option<Count> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        let part = counts.split("; ").find(|part| part.ends_with(word))?;
        part.split_whitespace().next()?.parse().ok()
    };
    Some(Count { passed: number(" passed")?, failed: number(" failed")?, skipped: number(" ignored")?, unsteady: 0 })
}

/// The totals in pytest's JUnit report, whose text does not change with pytest's options.
pub(crate) fn of_junit(report: &str) -> Option<Count> {
    let (_, suite) = report.split_once("<testsuite ")?;
    let (head, _) = suite.split_once('>')?;
    let number = |name: &str| -> Option<u64> {
        let (_, value) = head.split_once(&format!("{name}=\""))?;
        value.split_once('"')?.0.parse().ok()
    };
    let failed = number("failures")? + number("errors")?;
    let skipped = number("skipped")?;
    Some(Count { passed: number("tests")?.saturating_sub(failed + skipped), failed, skipped, unsteady: 0 })
}

/// The tests that the report names as failed, as pytest takes them: `tests/system/test_udp.py::test_one[disk]`.
pub(crate) fn failed_of_junit(report: &str) -> Vec<String> {
    let case = |text: &str| {
        let (head, body) = text.split_once('>')?;
        let attribute = |name: &str| Some(head.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0);
        let has_failed = !head.ends_with('/') && ["<failure", "<error"].iter().any(|word| body.contains(word));
        let (class, name) = (attribute("classname")?, attribute("name")?);
        let plain = [("&quot;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
        let name = plain.iter().fold(name.to_owned(), |name, (code, sign)| name.replace(code, sign));
        has_failed.then(|| format!("{}.py::{name}", class.replace('.', "/")))
    };
    report.split("<testcase").skip(1).filter_map(case).collect()
}

/// Whether cargo's line is a warning of the compiler, with or without colour.
pub(crate) fn is_warning(line: &str) -> bool {
    plain(line).starts_with("warning")
}

/// The name and version of the dependency that cargo's line says it compiles; none for crates of ours, which have a
/// path.
pub(crate) fn compiled(line: &str) -> Option<&str> {
    let (word, rest) = plain(line).trim_start().split_once(' ')?;
    let is_compiled = word.trim_end_matches("\u{1b}[0m") == "Compiling";
    (is_compiled && !rest.contains("(/")).then_some(rest)
}

/// A line of cargo from its first word on.
fn plain(line: &str) -> &str {
    let mut plain = line;
    while let Some(rest) = plain.strip_prefix("\u{1b}[") {
        plain = rest.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_rust_test_program_are_read() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(of_cargo_line(line), Some(Count { passed: 5, failed: 2, skipped: 1, unsteady: 0 }));
        assert_eq!(of_cargo_line("test crc::known_values ... ok"), None);
    }

    #[test]
    fn pytest_errors_are_failures() {
        let report = "<?xml version=\"1.0\"?><testsuites name=\"pytest tests\"><testsuite name=\"pytest\" errors=\"1\" \
                      failures=\"2\" skipped=\"3\" tests=\"10\" time=\"0.1\"></testsuite></testsuites>";
        assert_eq!(of_junit(report), Some(Count { passed: 4, failed: 3, skipped: 3, unsteady: 0 }));
        assert_eq!(of_junit("<testsuites/>"), None);
    }

    #[test]
    fn failed_tests_are_named_as_pytest_takes_them() {
        let case = |file: &str, name: &str, body: &str| {
            format!("<testcase classname=\"tests.{file}\" name=\"{name}\" time=\"1\">{body}</testcase>")
        };
        let report = [
            "<testsuite><testcase classname=\"tests.system.test_a\" name=\"test_good\" time=\"1\" />".to_owned(),
            case("system.test_a", "test_bad[&quot;x&quot;-1]", "<failure message=\"2 &gt; 3\">text</failure>"),
            case("python.test_b", "test_none", "<skipped type=\"x\">no</skipped>"),
            case("python.test_b", "test_setup", "<error>text</error>"),
        ];
        let failed = ["tests/system/test_a.py::test_bad[\"x\"-1]", "tests/python/test_b.py::test_setup"];
        assert_eq!(failed_of_junit(&report.concat()), failed);
    }

    #[test]
    fn a_coloured_warning_is_a_warning() {
        assert!(is_warning("warning: unused variable: `x`"));
        assert!(is_warning("\u{1b}[1m\u{1b}[33mwarning\u{1b}[0m: unused"));
        assert!(!is_warning("   Compiling beamport-wire v0.1.0"));
    }

    #[test]
    fn a_dependency_that_is_compiled_is_named() {
        assert_eq!(compiled("   Compiling smallvec v1.16.5"), Some("smallvec v1.16.5"));
        assert_eq!(compiled("\u{1b}[1m\u{1b}[32m   Compiling\u{1b}[0m smallvec v1.16.5"), Some("smallvec v1.16.5"));
        assert_eq!(compiled("   Compiling beamport-wire v0.1.0 (/x/crates/wire)"), None);
        assert_eq!(compiled("    Finished `release` profile"), None);
    }

    #[test]
    fn skipped_tests_are_named_only_where_there_are_some() {
        let mut sum = Count { passed: 1, ..Count::default() };
        assert_eq!(sum.to_string(), "1 passed, 0 failed");
        sum += Count { passed: 2, failed: 1, skipped: 4, unsteady: 0 };
        assert_eq!(sum.to_string(), "3 passed, 1 failed, 4 skipped");
    }
}
