//! `beamport completion` and `beamport man`: what shells and `man` take of the command line, made from its definitions.

use super::Cli;
use crate::edges::Registry;
use crate::verbs::Verb;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use std::io::{self, Write};
use std::process::ExitCode;

/// `beamport completion`
#[derive(Debug, Args)]
#[command(
    about = "Print what a shell needs to complete commands with the Tab key",
    after_help = "Examples:\n\
                  \x20 beamport completion bash > ~/.local/share/bash-completion/completions/beamport\n\
                  \x20 beamport completion fish > ~/.config/fish/completions/beamport.fish"
)]
pub struct Completion {
    /// Shell: bash, elvish, fish, powershell or zsh
    #[arg(hide_possible_values = true)]
    pub shell: Shell,
}

impl Verb for Completion {
    fn run(&self, _: &Registry, out: &mut dyn Write, _: &mut dyn Write) -> io::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "beamport", &mut script);
        out.write_all(&script).map(|()| ExitCode::SUCCESS)
    }
}

/// `beamport man`
#[derive(Debug, Args)]
#[command(
    about = "Print the manual page of all commands",
    after_help = "Examples:\n\
                  \x20 beamport man | man -l -\n\
                  \x20 beamport man > ~/.local/share/man/man1/beamport.1"
)]
pub struct Man {}

impl Verb for Man {
    fn run(&self, _: &Registry, out: &mut dyn Write, _: &mut dyn Write) -> io::Result<ExitCode> {
        manual(out).map(|()| ExitCode::SUCCESS)
    }
}

/// One page: the program, then each verb with its arguments and examples.
fn manual(out: &mut dyn Write) -> io::Result<()> {
    let program = Cli::command();
    let page = |command: &Command| clap_mangen::Man::new(command.clone());
    let whole = page(&program);
    whole.render_title(&mut *out)?;
    whole.render_name_section(&mut *out)?;
    whole.render_synopsis_section(&mut *out)?;
    whole.render_options_section(&mut *out)?;
    whole.render_extra_section(&mut *out)?;
    for (name, verb) in super::leaves() {
        let verb = verb.bin_name(format!("beamport {name}")).display_name(format!("beamport {name}"));
        let page = page(&verb);
        writeln!(out, ".SH \"BEAMPORT {}\"", name.to_uppercase())?;
        // Sections of a verb are parts of one page.
        let mut part = Vec::new();
        page.render_description_section(&mut part)?;
        page.render_synopsis_section(&mut part)?;
        page.render_options_section(&mut part)?;
        page.render_extra_section(&mut part)?;
        let part = String::from_utf8_lossy(&part);
        out.write_all(part.replace(".SH ", ".SS ").as_bytes())?;
    }
    Ok(())
}
