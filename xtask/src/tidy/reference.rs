//! The program against its reference pages: every flag of every verb, every key of the instrument file and every metric
//! stands in backquotes on its page, and the pages name no verb that is gone.
//!
//! Flags are read from `beamport --help` and `beamport VERB --help`. Keys and metrics come from the hidden verb
//! `beamport reference`, which prints one line each: `key SECTION.KEY` (`key source.sim.rate`) or `metric NAME`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::verdict;
use crate::{Done, tree};

const CLI: &str = "docs/reference/cli.md";
const KEYS: &str = "docs/reference/instrument-file.md";
const METRICS: &str = "docs/reference/metrics.md";

/// Checks the program at `beamport` against the pages.
pub(crate) fn check(beamport: &Path) -> Done {
    let mut complaints = Vec::new();
    let help = ask(beamport, &["--help"])
        .ok_or_else(|| format!("`{} --help` does not work", beamport.display()))?;
    let cli = page(CLI, &mut complaints);
    let verbs = verbs(&help);
    if verbs.is_empty() {
        complaints.push("`beamport --help` lists no verbs under `Commands:`".into());
    }
    missing(&flags(&help), &cli, CLI, "flag", &mut complaints);
    for verb in &verbs {
        if !documents(&cli, verb) && !documents(&cli, &format!("beamport {verb}")) {
            complaints.push(format!("{CLI}: verb `{verb}` is not documented"));
        }
        match ask(beamport, &[verb, "--help"]) {
            Some(help) => missing(
                &flags(&help),
                section(&cli, verb),
                CLI,
                &format!("{verb}: flag"),
                &mut complaints,
            ),
            None => complaints.push(format!("`beamport {verb} --help` does not work")),
        }
    }

    match ask(beamport, &["reference"]) {
        Some(text) => {
            let of = |kind: &str| {
                text.lines()
                    .filter_map(|line| line.strip_prefix(kind))
                    .map(str::to_owned)
                    .collect()
            };
            let (keys, metrics): (BTreeSet<String>, BTreeSet<String>) = (of("key "), of("metric "));
            let keys = keys
                .iter()
                .map(|key| key.rsplit('.').next().unwrap_or(key).to_owned())
                .collect();
            missing(
                &keys,
                &page(KEYS, &mut complaints),
                KEYS,
                "key",
                &mut complaints,
            );
            if !metrics.is_empty() {
                missing(
                    &metrics,
                    &page(METRICS, &mut complaints),
                    METRICS,
                    "metric",
                    &mut complaints,
                );
            }
        }
        None => complaints
            .push("`beamport reference` does not work: keys and metrics cannot be checked".into()),
    }
    verdict(complaints)
}

fn ask(beamport: &Path, args: &[&str]) -> Option<String> {
    let answer = Command::new(beamport)
        .args(args)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "200")
        .output()
        .ok()?;
    answer
        .status
        .success()
        .then(|| String::from_utf8_lossy(&answer.stdout).into_owned())
}

fn page(path: &str, complaints: &mut Vec<String>) -> String {
    fs::read_to_string(tree::root().join(path)).unwrap_or_else(|e| {
        complaints.push(format!("{path}: {e}"));
        String::new()
    })
}

fn missing(
    names: &BTreeSet<String>,
    page: &str,
    path: &str,
    kind: &str,
    complaints: &mut Vec<String>,
) {
    for name in names.iter().filter(|name| !documents(page, name)) {
        complaints.push(format!("{path}: {kind} `{name}` is not documented"));
    }
}

/// Whether a page has `name` at the beginning of a text in backquotes (`--rate RATE` documents `--rate`), or at the
/// beginning of a line of a code block.
fn documents(page: &str, name: &str) -> bool {
    let begins = |text: &str| {
        let rest = text.trim_start().strip_prefix(name);
        rest.is_some_and(|rest| {
            !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_')
        })
    };
    page.lines()
        .any(|line| begins(line) || line.split('`').skip(1).step_by(2).any(begins))
}

/// The part of the page under the heading that ends with the verb; the whole page if there is none.
fn section<'a>(page: &'a str, verb: &str) -> &'a str {
    let mut begin = None;
    let mut at = 0;
    for line in page.split_inclusive('\n') {
        if line.starts_with('#') {
            if let Some(begin) = begin {
                return &page[begin..at];
            }
            let title = line.trim_start_matches('#').replace('`', "");
            if title.split_whitespace().take(2).any(|word| word == verb) {
                begin = Some(at);
            }
        }
        at += line.len();
    }
    begin.map_or(page, |begin| &page[begin..])
}

/// Verbs in the block `Commands:` of a help text.
fn verbs(help: &str) -> Vec<String> {
    let block = help
        .lines()
        .skip_while(|line| line.trim() != "Commands:")
        .skip(1);
    let lines = block.take_while(|line| line.starts_with("  "));
    // A verb stands two spaces in; what stands further in is text about it.
    let verbs = lines
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    verbs
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

/// Long flags of a help text, without those every verb has.
fn flags(help: &str) -> BTreeSet<String> {
    let mut flags = BTreeSet::new();
    for line in help.lines().map(str::trim_start) {
        let Some(word) = line
            .split([' ', '=', ',', '[', '<'])
            .find(|word| word.starts_with("--"))
        else {
            continue;
        };
        if line.starts_with('-') && !["--help", "--version"].contains(&word) {
            flags.insert(word.to_owned());
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Moves data\n\nUsage: beamport [OPTIONS] <COMMAND>\n\nCommands:\n  demo    A run of ten seconds\n  \
        check   Reads an instrument file\n          and says what is wrong\n  help    Print this\n\nOptions:\n      \
        --json         Print one object\n  -o, --output <FILE>  Where, not --here\n  -h, --help         Print help\n";

    #[test]
    fn verbs_and_flags_are_read_from_the_help() {
        assert_eq!(verbs(HELP), ["demo", "check"]);
        assert_eq!(
            flags(HELP).into_iter().collect::<Vec<_>>(),
            ["--json", "--output"]
        );
    }

    #[test]
    fn a_longer_flag_does_not_document_a_shorter_one() {
        assert!(documents("* `--rate RATE`: events a second", "--rate"));
        assert!(!documents("* `--rate-limit N`", "--rate"));
        assert!(!documents("text about --rate alone", "--rate"));
    }

    #[test]
    fn a_flag_is_looked_for_under_its_verb() {
        let page = "# Command line\n## demo\n`--rate`\n## `beamport check`\n`--show`\n";
        assert!(section(page, "check").contains("--show"));
        assert!(!section(page, "check").contains("--rate"));
        assert!(!section(page, "demo").contains("--show"));
    }
}
