//! `beamport reference`: tables of the reference pages. That of the command line is made from its definitions.

use super::Cli;
use crate::edges::Registry;
use crate::file;
use crate::verbs::Verb;
use clap::{Args, Command, CommandFactory as _};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

/// `beamport reference`
#[derive(Debug, Args)]
#[command(about = "Print the tables of the reference pages", hide = true)]
pub struct Reference {
    /// Which page: cli, instrument-file or workers
    #[arg(value_parser = ["cli", "instrument-file", "workers"], hide_possible_values = true)]
    pub page: String,
}

impl Verb for Reference {
    fn run(&self, registry: &Registry, out: &mut dyn Write, _: &mut dyn Write) -> io::Result<ExitCode> {
        let page = match self.page.as_str() {
            "cli" => reference(),
            "workers" => file::workers_reference(registry),
            _ => file::reference(registry),
        };
        out.write_all(page.as_bytes()).map(|()| ExitCode::SUCCESS)
    }
}

/// Every verb that does something, with its words: `ls`, `ess writer`.
#[must_use]
pub fn leaves() -> Vec<(String, Command)> {
    let mut leaves = Vec::new();
    for verb in Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name().to_owned();
        match verb.has_subcommands() {
            true => {
                leaves.extend(verb.get_subcommands().map(|one| (format!("{name} {}", one.get_name()), one.clone())))
            }
            false => leaves.push((name, verb.clone())),
        }
    }
    leaves
}

/// The page `docs/reference/cli.md` below its introduction: every verb with its arguments, defaults and examples.
#[must_use]
pub fn reference() -> String {
    let mut page = String::new();
    for (name, verb) in leaves() {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        let usage = verb.clone().bin_name(format!("beamport {name}")).render_usage().to_string();
        // Writing to a String cannot fail.
        let _ = write!(page, "## {name}\n\n{about}.\n\n```\n{}\n```\n\n", usage.trim_start_matches("Usage: "));
        let _ = writeln!(page, "| argument | default | meaning |\n|---|---|---|");
        for arg in verb.get_arguments().filter(|arg| arg.get_id() != "help" && !arg.is_hide_set()) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            // A default that depends on something stands in the help as `[default: ...]`.
            let (meaning, spoken) = help.split_once(" [default: ").unwrap_or((&help, ""));
            let set = arg
                .get_default_values()
                .iter()
                .map(|value| format!("`{}`", value.to_string_lossy()))
                .collect::<Vec<_>>()
                .join(" ");
            let takes_value = arg.get_action().takes_values();
            let default = match (spoken.trim_end_matches(']'), set.as_str()) {
                ("", "") if arg.is_required_set() => "required",
                ("", set) if takes_value && !set.is_empty() => set,
                ("", _) => "-",
                (spoken, _) => spoken,
            };
            let _ = writeln!(page, "| {} | {default} | {meaning} |", written(arg));
        }
        let examples = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = examples.lines().skip(1).map(str::trim).collect();
        let _ = write!(page, "\n```sh\n{}\n```\n\n", lines.join("\n"));
    }
    page.trim_end().to_owned() + "\n"
}

/// An argument as it is written: `FILE`, `--json`, `-o`, `--output FILE`.
fn written(arg: &clap::Arg) -> String {
    let value = arg
        .get_value_names()
        .and_then(|names| names.first())
        .map_or_else(|| arg.get_id().as_str().to_uppercase(), ToString::to_string);
    match arg.get_long() {
        None => format!("`{value}`"),
        Some(long) => {
            let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
            if arg.get_action().takes_values() {
                format!("{short}`--{long} {value}`")
            } else {
                format!("{short}`--{long}`")
            }
        }
    }
}
