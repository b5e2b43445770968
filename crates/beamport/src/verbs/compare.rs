//! `beamport compare`: what a worker and its shadow made of the same messages.

use super::figures::thousands;
use super::{Answer, Asked, Verb, ended, json_line, open};
use crate::arguments::{DataFolder, Form};
use crate::compare::{Comparison, Difference, compare};
use crate::edges::Registry;
use clap::Args;
use settings::shortened;
use std::io::{self, Write};
use std::process::ExitCode;

/// `beamport compare`
#[derive(Debug, Args)]
#[command(
    about = "Compare the outputs of a worker and its shadow, by message (status 1 if they differ)",
    after_help = "Examples:\n  beamport compare mean mean-new\n  beamport compare mean mean-new --last 10000 --json"
)]
pub struct Compare {
    /// Name of the worker
    pub old: String,
    /// Name of its shadow, or of another worker with the same inputs
    pub new: String,
    /// Compare only the newest N messages of the first worker
    #[arg(long, value_name = "NUMBER")]
    pub last: Option<u64>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Compare {
    fn run(&self, _: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(compared(self, out), err)
    }
}

fn compared(asked: &Compare, out: &mut dyn Write) -> Answer {
    let data = open(&asked.data)?;
    let signals = Asked::to_end()?;
    let answer = compare(&data, (&asked.old, &asked.new), asked.last, &|| !signals.yes())?;
    if asked.form.json {
        json_line(out, &answer)?;
    } else {
        write!(out, "{}", text(&answer))?;
    }
    Ok(ExitCode::from(u8::from(!answer.is_same())))
}

/// The answer for people.
pub(crate) fn text(all: &Comparison) -> String {
    let (old, new) = (shortened(&all.old), shortened(&all.new));
    let mut lines = vec![format!(
        "`{old}` and `{new}`: {} same, {} different, {} only in `{old}`, {} only in `{new}`",
        thousands(all.same),
        thousands(all.different),
        thousands(all.only_old),
        thousands(all.only_new)
    )];
    if let Some(most) = all.difference_max {
        lines.push(format!("values differ by {most} at most"));
    }
    if all.skipped > 0 {
        lines.push(format!("not judged: {} of what `{new}` was too slow for", thousands(all.skipped)));
    }
    if all.waiting > 0 {
        lines.push(format!("not compared: {} that not both have reached", thousands(all.waiting)));
    }
    lines.extend(all.first.iter().map(|difference| line(difference, (&old, &new))));
    let told = all.first.len() as u64;
    let rest = (all.different + all.only_old + all.only_new).saturating_sub(told);
    if rest > 0 {
        lines.push(format!("  and {} more", thousands(rest)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn line(difference: &Difference, (old, new): (&str, &str)) -> String {
    let Difference { origin, number, old: first, new: second, what, by } = difference;
    let origin = shortened(origin);
    let said = match (first, second, by) {
        (Some(at), None, _) => format!("only in `{old}` ({at})"),
        (None, Some(at), _) => format!("only in `{new}` ({at})"),
        (_, _, Some(by)) => format!("{what} differ by {by} at most"),
        _ => format!("{what}: not the same"),
    };
    format!("  {origin} {number}: {said}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named_by_what_both_were_given() {
        let of = |number, old, new, what: &str, by| Difference {
            origin: "camera".into(),
            number,
            old,
            new,
            what: String::from(what),
            by,
        };
        let all = Comparison {
            old: "mean".into(),
            new: "mean-new".into(),
            same: 1234,
            different: 11,
            only_old: 1,
            waiting: 3,
            difference_max: Some(2.5),
            first: vec![
                of(40, Some(38), Some(37), "values", Some(2.5)),
                of(43, Some(41), None, "only", None),
                of(44, Some(42), Some(40), "shape", None),
            ],
            ..Comparison::default()
        };
        assert_eq!(
            text(&all),
            "`mean` and `mean-new`: 1,234 same, 11 different, 1 only in `mean`, 0 only in `mean-new`\n\
             values differ by 2.5 at most\n\
             not compared: 3 that not both have reached\n  \
               camera 40: values differ by 2.5 at most\n  \
               camera 43: only in `mean` (41)\n  \
               camera 44: shape: not the same\n  \
               and 9 more\n"
        );
        assert!(!all.is_same());
    }
}
