//! What boards hear from throttles: which of them are to pause.
//!
//! A frame names the board by its number in the header of framing `beamport`. Other framings have none: a frame without
//! a number means the boards of these framings at the address where it came.
//!
//! Failure behaviour: a board of which nothing was heard for a second sends again; its receiver may have ended.

use super::board::Board;
use crate::limits::{FRAME_BYTES, HOLD_MAX, LINES_MAX, LISTEN_NAP};
use crate::throttle::{self, To};
use flow::Fault;
use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Until when each board is to pause, ns since the start; 0: it sends.
#[derive(Default)]
pub(super) struct Holds(Vec<AtomicU64>);

impl Holds {
    /// Of this number of boards.
    pub(super) fn new(boards: usize) -> Self {
        Self((0..boards).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether the board in this place is to pause.
    pub(super) fn holds(&self, place: usize, elapsed: u64) -> bool {
        self.0.get(place).is_some_and(|until| elapsed < until.load(Ordering::Relaxed))
    }
}

/// A connection, with the bytes of a frame that is not complete.
struct Connection {
    /// The place of the address.
    at: usize,
    stream: TcpStream,
    bytes: [u8; FRAME_BYTES],
    length: usize,
}

/// Listens where the throttles of the boards send to.
#[derive(Default)]
pub(super) struct Listener {
    /// With the place of the address.
    udp: Vec<(usize, UdpSocket)>,
    tcp: Vec<(usize, TcpListener)>,
    connections: Vec<Connection>,
    /// Of each address the places of the boards whose framing has no number.
    unnamed: Vec<Vec<usize>>,
    /// Of the boards by their places: since when one pauses, and how long others did, ns.
    since: Vec<Option<u64>>,
    dead: Vec<u64>,
}

impl Listener {
    /// Of these boards, which are all.
    pub(super) fn open<'a>(boards: impl Iterator<Item = &'a Board>) -> Result<Self, Fault> {
        let (mut listener, mut known) = (Self::default(), Vec::new());
        for board in boards {
            listener.since.push(None);
            listener.dead.push(0);
            let Some(to) = board.throttle else { continue };
            let place = known.iter().position(|known| *known == to);
            let at = place.unwrap_or(known.len());
            if place.is_none() {
                known.push(to);
                listener.unnamed.push(Vec::new());
            }
            if !board.signs() {
                listener.unnamed[at].push(board.place);
            }
            if place.is_some() {
                continue;
            }
            let cannot = |e: std::io::Error| {
                Fault::io(format!("simulated boards cannot listen at {to}"), &e)
                    .hint("it is the key `to` of `throttle`: an address of this machine on which no program listens")
            };
            match to {
                To::Udp(address) => {
                    let socket = UdpSocket::bind(address).map_err(cannot)?;
                    socket.set_nonblocking(true).map_err(cannot)?;
                    listener.udp.push((at, socket));
                }
                To::Tcp(address) => {
                    let socket = TcpListener::bind(address).map_err(cannot)?;
                    socket.set_nonblocking(true).map_err(cannot)?;
                    listener.tcp.push((at, socket));
                }
            }
        }
        Ok(listener)
    }

    /// Whether there is a throttle.
    fn hears(&self) -> bool {
        !(self.udp.is_empty() && self.tcp.is_empty())
    }

    /// Listens until the boards have `ended`; how long each was to pause, ns.
    pub(super) fn run(mut self, holds: &Holds, started: Instant, ended: &AtomicBool) -> Vec<u64> {
        while self.hears() && !ended.load(Ordering::Relaxed) {
            self.step(holds, started.elapsed().as_nanos() as u64);
            std::thread::sleep(LISTEN_NAP);
        }
        let elapsed = started.elapsed().as_nanos() as u64;
        (0..self.dead.len()).for_each(|place| self.release(place, holds, elapsed));
        self.dead
    }

    fn step(&mut self, holds: &Holds, elapsed: u64) {
        let mut frames = Vec::new();
        let mut bytes = [0; FRAME_BYTES];
        for (at, socket) in &self.udp {
            while let Ok(n) = socket.recv(&mut bytes) {
                frames.extend(throttle::read(&bytes[..n]).map(|frame| (*at, frame)));
            }
        }
        for (at, socket) in &self.tcp {
            while let Ok((stream, _)) = socket.accept() {
                if self.connections.len() < LINES_MAX && stream.set_nonblocking(true).is_ok() {
                    self.connections.push(Connection { at: *at, stream, bytes: [0; FRAME_BYTES], length: 0 });
                }
            }
        }
        self.connections.retain_mut(|connection| connection.read(&mut frames));
        for (at, (stream, fill)) in frames {
            match usize::from(stream).checked_sub(1) {
                Some(place) if place < self.dead.len() => self.hear(place, fill, holds, elapsed),
                Some(_) => {}
                None => {
                    for place in self.unnamed[at].clone() {
                        self.hear(place, fill, holds, elapsed);
                    }
                }
            }
        }
        for place in 0..self.dead.len() {
            let until = holds.0[place].load(Ordering::Relaxed);
            if until > 0 && until <= elapsed {
                self.release(place, holds, until);
            }
        }
    }

    /// The board in this place is to pause, or with 0 to send again.
    fn hear(&mut self, place: usize, fill: u32, holds: &Holds, elapsed: u64) {
        if fill == 0 {
            self.release(place, holds, elapsed);
        } else {
            self.since[place].get_or_insert(elapsed);
            holds.0[place].store(elapsed + HOLD_MAX, Ordering::Relaxed);
        }
    }

    /// The board in this place sends again, from this time on.
    fn release(&mut self, place: usize, holds: &Holds, elapsed: u64) {
        if let Some(since) = self.since[place].take() {
            self.dead[place] += elapsed.saturating_sub(since);
        }
        holds.0[place].store(0, Ordering::Relaxed);
    }
}

impl Connection {
    /// Reads frames; false if it is closed or brings something else.
    fn read(&mut self, frames: &mut Vec<(usize, (u16, u32))>) -> bool {
        loop {
            match self.stream.read(&mut self.bytes[self.length..]) {
                Ok(0) => return false,
                Ok(n) => self.length += n,
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
            if self.length == FRAME_BYTES {
                let Some(frame) = throttle::read(&self.bytes) else { return false };
                frames.push((self.at, frame));
                self.length = 0;
            }
        }
    }
}
