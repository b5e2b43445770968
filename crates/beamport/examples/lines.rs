//! A program of its own: `beamport` with one more kind of source, which reads numbers, one a line, from a TCP server.

use beamport::Registry;
use flow::edge::{SourceKind, SourcePlan};
use flow::{Fault, Outlet, Pushed, Resume, Source, Step};
use settings::{Key, Refused, Section, Setting, key, required};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::{Meta, SchemaId};
use wire::f144::{self, F144};

static ADDRESS: Key = required("address", "IP address and port", "The server that sends the lines.");
static ORIGIN: Key = key("origin", "name", "lines", "Name of the values in the messages.");

static LINES: SourceKind = SourceKind {
    name: "lines",
    about: "Numbers from a TCP server, one per line, as f144.",
    keys: &[&ADDRESS, &ORIGIN],
    read,
    more: None,
};

/// The settings of a section.
#[derive(Debug)]
struct Plan {
    address: SocketAddr,
    origin: String,
}

fn read(_: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let address: Option<Setting<String>> = section.get(&ADDRESS);
    let origin: Setting<String> = section.need(&ORIGIN);
    let parsed = address?.parse();
    if parsed.is_err() {
        section.refuse(&ADDRESS, Refused::new("it is not an address", "write it like \"127.0.0.1:9000\""));
    }
    Some(Arc::new(Plan { address: parsed.ok()?, origin: origin.value }))
}

impl SourcePlan for Plan {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        let (address, origin) = (self.address, self.origin.clone());
        Ok(Box::new(Lines { address, origin, server: None, unread: Vec::new(), sequence: 0 }))
    }
}

struct Lines {
    address: SocketAddr,
    origin: String,
    server: Option<TcpStream>,
    /// Bytes that are not in the stream yet.
    unread: Vec<u8>,
    /// Number of the next message.
    sequence: u64,
}

/// Longest line, bytes: a server that sends no line end must not fill the memory.
const LINE_BYTES_MAX: usize = 4096;
/// The socket wakes the source; without it the source looks at it again after this time, ns.
const PAUSE: i64 = 1_000_000_000;
/// Pause before a line is offered again after the stream was full, ns.
const FULL_PAUSE: i64 = 1_000_000;

impl Source for Lines {
    fn start(&mut self, _now: i64, resume: &Resume) -> Result<(), Fault> {
        let connected = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        let server = connected.and_then(|server| server.set_nonblocking(true).map(|()| server));
        // A fault ends the source; it is rebuilt after a pause.
        self.server = Some(server.map_err(|e| Fault::io(format!("cannot connect to {}", self.address), &e))?);
        self.sequence = resume.next_seq(&self.origin);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let Some(server) = &mut self.server else { return Ok(Step::Ended) };
        let mut bytes = [0; 65536];
        let mut is_at_end = false;
        if self.unread.len() <= LINE_BYTES_MAX {
            match server.read(&mut bytes) {
                Ok(0) => is_at_end = true,
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(Fault::io(format!("cannot read from {}", self.address), &e)),
            }
        }
        let (mut used, mut is_full) = (0, false);
        let mut message = Vec::new();
        let origin = out.origin(&self.origin)?;
        while let Some(length) = self.unread[used..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.unread[used..used + length]);
            let wrong = |e| Fault::new(format!("{} sent a line that is not a number", self.address), e);
            let value: f64 = line.trim().parse().map_err(wrong)?;
            message.clear();
            f144::write(&mut message, &F144 { source_name: &self.origin, timestamp: now, value: value.into() })
                .map_err(|e| Fault::new("a value cannot be encoded", e))?;
            let meta =
                Meta { source_time: now, origin, origin_seq: self.sequence, schema: SchemaId(f144::ID), flags: 0 };
            if out.push(&meta, &message)? == Pushed::Full {
                // The same line is offered again in the next step.
                is_full = true;
                break;
            }
            self.sequence += 1;
            used += length + 1;
        }
        self.unread.drain(..used);
        if !is_full && self.unread.len() > LINE_BYTES_MAX {
            return Err(Fault::new(format!("{} sent a line of more than {LINE_BYTES_MAX} bytes", self.address), ""));
        }
        Ok(match (is_full, is_at_end) {
            (true, _) => Step::At(now + FULL_PAUSE),
            (false, true) => Step::Ended,
            (false, false) => Step::At(now + PAUSE),
        })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.server.as_ref().map(AsRawFd::as_raw_fd)
    }
}

fn main() -> ExitCode {
    beamport::run(&Registry::builtin().source(&LINES))
}
