//! `beamport web`: the page of a data folder, whether an instrument runs in it or not.

use super::{Process, exit_status, open};
use crate::arguments::DataFolder;
use crate::edges::Registry;
use crate::log;
use crate::mover;
use crate::peer;
use clap::Args;
use flow::Fault;
use serde_json::{Map, Value};
use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tracing::level_filters::LevelFilter;

/// `beamport web`
#[derive(Debug, Args)]
#[command(
    about = "Serve the page of a data folder: streams, runs, images and trends, also metrics; prints its URL",
    after_help = "Examples:\n  beamport web\n  beamport web --data beamport-data/amor --listen 127.0.0.1:0"
)]
pub struct Web {
    /// Address and port; with port 0 the system chooses one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8642")]
    pub listen: String,
    /// Allow an address that other machines reach, unencrypted
    #[arg(long)]
    pub insecure: bool,
    /// Let everybody view without a token
    #[arg(long)]
    pub open: bool,
    /// The process that started it: it dies with it, listens at stdin, and takes no SIGINT
    #[arg(long, hide = true)]
    pub parent: Option<u32>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
}

impl Process for Web {
    fn execute(&self, _: &Registry) -> ExitCode {
        log::begin(LevelFilter::WARN, None);
        exit_status(serve(self))
    }
}

fn serve(asked: &Web) -> Result<ExitCode, Fault> {
    if let Some(parent) = asked.parent {
        peer::die_with(parent)?;
    }
    let data = open(&asked.data)?;
    let plan = web::Plan::new(&asked.listen, asked.insecure, asked.open)?;
    let listener = match asked.parent {
        Some(_) => {
            let stdin = std::io::stdin().as_fd().try_clone_to_owned();
            TcpListener::from(stdin.map_err(|e| Fault::io("there is no socket at stdin", &e))?)
        }
        None => plan.bind()?,
    };
    let tokens = web::Tokens::of(&data.folder)?;
    if asked.parent.is_none() {
        let address = listener.local_addr().map_err(|e| Fault::io("the page has no address", &e))?;
        log::print_notice(web::location(address, &tokens, &data.folder, std::io::stderr().is_terminal()));
    }
    let instrument = Arc::new(Running { folder: data.folder.clone() });
    web::serve(web::Served { data, listener, plan, tokens, instrument, by_interrupt: asked.parent.is_none() })?;
    Ok(ExitCode::SUCCESS)
}

/// The instrument that runs in a data folder, by its socket.
struct Running {
    folder: PathBuf,
}

impl web::Instrument for Running {
    fn glance(&self) -> Map<String, Value> {
        match serde_json::to_value(mover::glance(&self.folder)) {
            Ok(Value::Object(glance)) => glance,
            _ => Map::new(),
        }
    }

    fn command(&self, request: &Value) -> Result<Value, Fault> {
        mover::ask(&self.folder, request)
    }
}
