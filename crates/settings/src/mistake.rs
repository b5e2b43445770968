//! A mistake in an instrument file or a template: where it stands, what it is, why, and what to write instead.

use crate::limits;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Whether a file can be used all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It cannot.
    #[default]
    Error,
    /// It can; the hint says what is made of it.
    Warning,
}

/// One mistake, told in the three lines that every error of beamport has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// Whether the file can be used all the same.
    pub level: Severity,
    /// The file as the user named it.
    pub file: String,
    /// Its line, from 1; 0 where the mistake is the whole file.
    pub line: u32,
    /// Its place in a template, a JSON pointer; empty elsewhere, and where it is the whole template.
    pub pointer: String,
    /// What is wrong, with its name: "unknown key `modle` in [source.detector]".
    pub what: String,
    /// The cause. Empty where `what` says all.
    pub cause: String,
    /// A hint: what to write or to run. Empty where nothing sensible can be proposed.
    pub hint: String,
}

impl fmt::Display for Mistake {
    /// `error:` or `warning:` with `file:line` and the place, then `cause:` and `hint:` where there are such; no line break at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        match self.line {
            0 => write!(f, "{level}: {}: {}", self.file, self.what)?,
            line => write!(f, "{level}: {}:{line}: {}", self.file, self.what)?,
        }
        if !self.pointer.is_empty() {
            write!(f, " (at {})", self.pointer)?;
        }
        if !self.cause.is_empty() {
            write!(f, "\ncause: {}", self.cause)?;
        }
        if !self.hint.is_empty() {
            write!(f, "\nhint:  {}", self.hint)?;
        }
        Ok(())
    }
}

/// The mistakes of a whole file, up to a limit.
#[derive(Default)]
pub struct Mistakes {
    /// Errors.
    pub list: Vec<Mistake>,
    /// Warnings.
    pub warnings: Vec<Mistake>,
    /// There were more errors than are listed.
    pub has_more: bool,
}

impl Mistakes {
    /// True if no further error is listed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.list.len() >= limits::MISTAKES_MAX
    }

    /// Adds an error or a warning, up to the limit.
    pub fn push(&mut self, mistake: Mistake) {
        if mistake.level == Severity::Warning {
            if self.warnings.len() < limits::MISTAKES_MAX {
                self.warnings.push(mistake);
            }
        } else if self.is_full() {
            self.has_more = true;
        } else {
            self.list.push(mistake);
        }
    }
}

/// The word of `words` that `wrong` was most likely meant to be: at most a third of its letters differ.
#[must_use]
pub fn nearest<'a>(wrong: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any of our words: nothing is near, and the table below stays small.
    let wrong: Vec<char> = wrong.chars().take(65).flat_map(char::to_lowercase).collect();
    if wrong.is_empty() || wrong.len() > 64 {
        return None;
    }
    let (steps, word) = words
        .into_iter()
        .map(|word| (distance(&wrong, &word.chars().collect::<Vec<_>>()), word))
        .min_by_key(|(steps, _)| *steps)?;
    let letters = wrong.len().max(word.chars().count());
    (steps <= (letters / 3).max(1) && steps < letters).then_some(word)
}

/// Letters to insert, remove, change or swap with a neighbour to make `b` of `a` (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_near_word_is_found_and_a_far_one_is_not() {
        let words = ["kind", "model", "rate", "seed", "when_full"];
        for (wrong, right) in
            [("modle", "model"), ("knd", "kind"), ("Rate", "rate"), ("whenfull", "when_full"), ("sede", "seed")]
        {
            assert_eq!(nearest(wrong, words), Some(right), "{wrong}");
        }
        for wrong in ["", "x", "pressure", &"m".repeat(100_000)] {
            assert_eq!(nearest(wrong, words), None, "{}", &wrong[..wrong.len().min(10)]);
        }
    }

    #[test]
    fn a_mistake_is_told_in_three_lines() {
        let mut mistake = Mistake {
            level: Severity::Error,
            file: "amor.toml".into(),
            line: 7,
            pointer: String::new(),
            what: "unknown key `modle`".into(),
            cause: "no such key".into(),
            hint: "write `model`".into(),
        };
        assert_eq!(
            mistake.to_string(),
            "error: amor.toml:7: unknown key `modle`\ncause: no such key\nhint:  write `model`"
        );
        mistake.line = 0;
        mistake.cause.clear();
        assert_eq!(mistake.to_string(), "error: amor.toml: unknown key `modle`\nhint:  write `model`");
        mistake.level = Severity::Warning;
        mistake.pointer = "/children/0".into();
        assert_eq!(
            mistake.to_string(),
            "warning: amor.toml: unknown key `modle` (at /children/0)\nhint:  write `model`"
        );
    }
}
