//! A program of its own: `beamport` with one more kind of sink, which sends values, one a line, to a TCP server. The
//! server
//! acknowledges each line with a line.

use beamport::Registry;
use flow::edge::{LiveKind, LivePlan};
use flow::{Aside, Confirmed, Fault, InFlight, LiveBatch, LiveSink};
use settings::{Key, Refused, Section, Setting, required};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use wire::f144::{self, Value};

static ADDRESS: Key = required("address", "IP address and port", "The server that takes the lines.");

static SEND: LiveKind = LiveKind {
    name: "lines",
    about: "Values of f144 to a TCP server, one per line: ORIGIN NUMBER VALUE. The server answers each with a line.",
    keys: &[&ADDRESS],
    read,
};

/// The settings of a section.
#[derive(Debug)]
struct Plan {
    address: SocketAddr,
}

fn read(_: &str, section: &mut Section<'_>) -> Option<Arc<dyn LivePlan>> {
    let address: Setting<String> = section.get(&ADDRESS)?;
    let parsed = address.parse();
    if parsed.is_err() {
        section.refuse(&ADDRESS, Refused::new("it is not an address", "write it like \"127.0.0.1:9000\""));
    }
    Some(Arc::new(Plan { address: parsed.ok()? }))
}

impl LivePlan for Plan {
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        let flights = vec![InFlight::default(); inputs.len()];
        Ok(Box::new(Lines { address: self.address, server: None, unsent: Vec::new(), sent: VecDeque::new(), flights }))
    }
}

struct Lines {
    address: SocketAddr,
    server: Option<TcpStream>,
    /// Bytes of lines that the socket has not taken yet.
    unsent: Vec<u8>,
    /// Lines without an answer, oldest first: number of the input and sequence.
    sent: VecDeque<(usize, u64)>,
    /// By input: how far it is acknowledged.
    flights: Vec<InFlight>,
}

/// Most lines without an answer: a server that does not answer must not fill the memory.
const LINES_MAX: usize = 10_000;
/// An answer wakes the sink. Lines that the socket has not taken are offered to it again after this time, ns.
const PAUSE: i64 = 10_000_000;

impl Lines {
    /// Writes as much as the socket takes now.
    fn flush(&mut self) -> Result<(), Fault> {
        let Some(server) = &mut self.server else { return Ok(()) };
        match server.write(&self.unsent) {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // A fault ends the sink; it is rebuilt after a pause, and unanswered lines are sent again.
            Err(e) => return Err(Fault::io(format!("cannot write to {}", self.address), &e)),
        }
        Ok(())
    }
}

impl LiveSink for Lines {
    fn start(&mut self, _now: i64, _state: &str) -> Result<(), Fault> {
        let connected = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        let server = connected.and_then(|server| server.set_nonblocking(true).map(|()| server));
        self.server = Some(server.map_err(|e| Fault::io(format!("cannot connect to {}", self.address), &e))?);
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        let room = LINES_MAX - self.sent.len();
        for message in batch.iter().take(room) {
            let sequence = message.sequence;
            match f144::read(message.payload).map(|f144| f144.value) {
                Ok(Value::Scalar(value)) => {
                    let line = format!("{} {sequence} {}\n", batch.origin(&message), value.to_f64());
                    self.unsent.extend_from_slice(line.as_bytes());
                    self.sent.push_back((input, sequence));
                    self.flights[input].send(sequence);
                }
                // It cannot be sent: it goes to the stream `SINK.aside`.
                _ => {
                    self.flights[input].pass(sequence);
                    aside.push(Aside { sequence, reason: "schema" });
                }
            }
        }
        self.flush()?;
        Ok(batch.len().min(room))
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.flush()?;
        let mut answers = [0; 4096];
        let Some(server) = &mut self.server else { return Ok(i64::MAX) };
        match server.read(&mut answers) {
            Ok(0) => return Err(Fault::new(format!("{} has closed the connection", self.address), "")),
            Ok(count) => {
                for _ in answers[..count].iter().filter(|byte| **byte == b'\n') {
                    if let Some((input, sequence)) = self.sent.pop_front() {
                        self.flights[input].confirm(sequence);
                    }
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(Fault::io(format!("cannot read from {}", self.address), &e)),
        }
        Ok(if self.unsent.is_empty() { i64::MAX } else { now + PAUSE })
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        Ok(Confirmed { below: self.flights.iter().map(InFlight::below).collect(), ..Confirmed::default() })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.server.as_ref().map(AsRawFd::as_raw_fd)
    }

    fn status(&self) -> serde_json::Value {
        serde_json::json!({"unanswered": self.sent.len()})
    }
}

fn main() -> ExitCode {
    beamport::run(&Registry::builtin().sink(&SEND))
}
