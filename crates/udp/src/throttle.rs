//! The throttle: asks a board to pause before the memory of its stream is full.
//!
//! Above `high` of what counted readers hold, a frame goes out, and again every 100 ms; below `low` three frames that
//! release the board. The time between is the dead time of the source: a gap `throttled`, which counts nothing, filed
//! in parts of a second, so that a kill loses no more.
//!
//! Constraints: nothing waits. Over TCP the connection is made while the source runs, and again after a failure.
//!
//! Failure behaviour: a frame that cannot be sent is the trouble of the source, and is tried again.

use crate::limits::{
    FRAME_BYTES, RELEASE_PAUSE, RELEASES, THROTTLE_LOOK, THROTTLE_PART, THROTTLE_REPEAT, THROTTLE_RETRY,
};
use crate::socket;
use flow::{Fault, Outlet, Silence};
use settings::units::Refused;
use settings::{Key, Section, Setting, key, required};
use std::collections::BTreeSet;
use std::fmt;
use std::io::{ErrorKind, Result, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::str::FromStr;
use store::crc32c;
use wire::datagram::{Flag, Header, Type};
use wire::limits::HEADER_BYTES;

static TO: Key = required("to", "`udp://ADDRESS:PORT` or `tcp://ADDRESS:PORT`", "Where the frames go.");
static HIGH: Key = key("high", "number, 0 to 1", "0.6", "Above this share of the memory the board is to pause.");
static LOW: Key = key("low", "number, 0 to 1", "0.3", "Below this share it is to send again.");

/// The table of the reference page.
pub(crate) fn reference() -> String {
    let about = "The table `throttle` of a source `udp`: [throttle](udp.md#throttle).";
    format!("## Throttle\n\n{about}\n\n{}", settings::reference(&[&TO, &HIGH, &LOW]))
}

/// Where frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Datagrams to this address.
    Udp(SocketAddr),
    /// A connection to this address.
    Tcp(SocketAddr),
}

impl FromStr for To {
    type Err = Refused;

    fn from_str(text: &str) -> std::result::Result<Self, Refused> {
        let hint = "write it like `\"udp://127.0.0.1:7000\"` or `\"tcp://10.1.0.5:7000\"`";
        let refused = || Refused::new("it is not `udp://` or `tcp://` with an IP address and a port", hint);
        let address = |text: &str| text.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
        match text.split_once("://") {
            Some(("udp", rest)) => address(rest).map(Self::Udp).ok_or_else(refused),
            Some(("tcp", rest)) => address(rest).map(Self::Tcp).ok_or_else(refused),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// The table `throttle`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttle {
    pub(crate) to: To,
    high: f64,
    low: f64,
}

impl Throttle {
    /// Reads the table.
    pub(crate) fn read(section: &mut Section<'_>) -> Option<Self> {
        let to: Option<Setting<String>> = section.get(&TO);
        let to = match to.as_deref().map(|to| to.parse::<To>()) {
            Some(Err(refused)) => {
                section.refuse(&TO, refused);
                None
            }
            Some(Ok(to)) => Some(to),
            None => None,
        };
        let (high, low) = (section.need::<f64>(&HIGH).value, section.need::<f64>(&LOW).value);
        if !(0.0..=1.0).contains(&high) {
            section.refuse(&HIGH, Refused::new("it is out of range", "write 0 to 1"));
        }
        if !(0.0..=high).contains(&low) {
            section.refuse(&LOW, Refused::new("it is out of range", "write 0 to 1, and less than `high`"));
        }
        Some(Self { to: to?, high, low })
    }
}

/// The throttle of a running source.
pub(crate) struct Control {
    plan: Throttle,
    line: Line,
    /// While the board is to pause: since when, and up to when that is filed, ns.
    held: Option<(i64, i64)>,
    /// Frames of a release that are still to be sent.
    releases: u32,
    /// When the next frame is due, ns.
    due: i64,
    /// Frames that were sent.
    frames: u64,
    /// Dead time before the present one, ns.
    dead: i64,
    /// When it looked last, ns.
    seen: i64,
    fault: Option<Fault>,
}

impl Control {
    pub(crate) fn open(name: &str, plan: Throttle) -> std::result::Result<Self, Fault> {
        let line = Line::open(plan.to).map_err(|e| Fault::io(format!("source `{name}` cannot throttle"), &e))?;
        Ok(Self { plan, line, held: None, releases: 0, due: 0, frames: 0, dead: 0, seen: 0, fault: None })
    }

    /// Looks at the memory and sends a frame for each board where one is due. `streams`: the numbers of the detectors
    /// in the frames; `now` in ns since 1970 UTC. The answer is in how many ns to look again, if not with the next
    /// data.
    pub(crate) fn step(&mut self, streams: impl Iterator<Item = u16>, now: i64, out: &mut dyn Outlet) -> Option<i64> {
        let fill = out.fill();
        self.seen = now;
        match &mut self.held {
            None if fill > self.plan.high => (self.held, self.releases, self.due) = (Some((now, now)), 0, now),
            None => {}
            Some((since, filed)) if fill < self.plan.low => {
                out.silent(*filed..=now.max(*filed), Silence::Throttled);
                self.dead = self.dead.saturating_add(now.saturating_sub(*since).max(0));
                (self.held, self.releases, self.due) = (None, RELEASES, now);
            }
            Some((_, filed)) if !(0..THROTTLE_PART).contains(&now.saturating_sub(*filed)) => {
                self.report_dead_time(now, out)
            }
            Some(_) => {}
        }
        let is_held = self.held.is_some();
        if !is_held && self.releases == 0 {
            return None;
        }
        // The clock of the machine may have been set back.
        if now >= self.due || self.due - now > THROTTLE_REPEAT {
            self.send(if is_held { fill.max(0.001) } else { 0.0 }, streams.collect(), now);
        }
        let wait = (self.due - now).max(0);
        Some(if is_held { wait.min(THROTTLE_LOOK) } else { wait })
    }

    /// Files the dead time up to now, if the board is to pause.
    pub(crate) fn report_dead_time(&mut self, now: i64, out: &mut dyn Outlet) {
        if let Some((_, filed)) = &mut self.held {
            out.silent(*filed..=now.max(*filed), Silence::Throttled);
            *filed = now;
        }
    }

    fn send(&mut self, fill: f64, streams: BTreeSet<u16>, now: i64) {
        let sent = streams.into_iter().try_fold(true, |all, stream| {
            let frame = self.frame(fill, stream, now);
            let sent = self.line.send(&frame)?;
            self.frames += u64::from(sent);
            Ok(all && sent)
        });
        match sent {
            Ok(true) => {
                self.fault = None;
                self.releases = self.releases.saturating_sub(1);
                self.due = now.saturating_add(if self.held.is_some() { THROTTLE_REPEAT } else { RELEASE_PAUSE });
            }
            Ok(false) => self.due = now.saturating_add(THROTTLE_RETRY),
            Err(error) => {
                self.due = now.saturating_add(THROTTLE_RETRY);
                self.fault = Some(Fault::io(format!("cannot throttle by {}", self.plan.to), &error));
            }
        }
    }

    fn frame(&self, fill: f64, stream: u16, now: i64) -> [u8; FRAME_BYTES] {
        let payload = (((fill * 1000.0) as u32).to_le_bytes(), [0; 4]);
        let payload = [payload.0, payload.1].concat();
        let header = Header {
            kind: Type::Throttle,
            stream,
            flags: Flag::Epoch as u32,
            timestamp: now.max(0) as u64,
            sequence: self.frames,
            payload_bytes: payload.len() as u32,
            payload_crc: crc32c(&payload),
            ..Header::default()
        };
        let mut frame = [0; FRAME_BYTES];
        frame[..HEADER_BYTES].copy_from_slice(&header.to_bytes(crc32c));
        frame[HEADER_BYTES..].copy_from_slice(&payload);
        frame
    }

    /// Frames that were sent.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// The dead time up to the last step, ns.
    pub(crate) fn dead(&self) -> i64 {
        let present = self.held.map_or(0, |(since, _)| self.seen.saturating_sub(since).max(0));
        self.dead.saturating_add(present)
    }

    /// Why no frame can be sent.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

/// The socket that sends frames.
enum Line {
    Udp(UdpSocket, SocketAddr),
    Tcp(SocketAddr, Option<TcpStream>),
}

impl Line {
    fn open(to: To) -> Result<Self> {
        match to {
            To::Udp(address) => {
                let any = if address.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
                let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
                socket.set_nonblocking(true)?;
                Ok(Self::Udp(socket, address))
            }
            // One that is refused now is tried again with the first frame.
            To::Tcp(address) => Ok(Self::Tcp(address, socket::connect(address).ok())),
        }
    }

    /// Sends a frame; false if that is not possible yet.
    fn send(&mut self, frame: &[u8]) -> Result<bool> {
        let sent = match self {
            Self::Udp(socket, address) => socket.send_to(frame, *address),
            Self::Tcp(address, stream) => {
                let open = match stream.take() {
                    Some(open) => open,
                    None => socket::connect(*address)?,
                };
                let sent = (&open).write(frame);
                let is_well = match &sent {
                    Ok(n) => *n == frame.len(),
                    Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected),
                };
                // A frame of which a part was sent cannot be completed: the next connection begins with a whole one.
                *stream = is_well.then_some(open);
                sent
            }
        };
        match sent {
            Ok(n) => Ok(n == frame.len()),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted => Ok(false),
                _ => Err(error),
            },
        }
    }
}

/// The fill in a frame, in thousandths, with the number of the detector; `None` where it is none. 0: send again.
pub(crate) fn read(frame: &[u8]) -> Option<(u16, u32)> {
    let header = Header::read(frame, crc32c).ok()?;
    let payload = frame.get(HEADER_BYTES..FRAME_BYTES)?;
    let is_frame = header.kind == Type::Throttle && header.payload_crc == crc32c(payload);
    let fill = u32::from_le_bytes(*payload.first_chunk()?);
    is_frame.then_some((header.stream, fill))
}
