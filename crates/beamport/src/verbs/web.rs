//! `beamport web`: the page of a data folder, whether an instrument runs in it or not.

use super::open;
use crate::cli::Web;
use crate::log;
use crate::mover;
use crate::peer;
use flow::Fault;
use serde_json::{Map, Value};
use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the verb.
pub fn run(asked: &Web) -> Result<ExitCode, Fault> {
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
