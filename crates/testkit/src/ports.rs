//! Ports of this machine for tests and measurements: each is one program's until the process that asked for it ends.
//!
//! `tests/ports.py` follows the same rule, so programs in Rust and in Python that run at once agree. The kernel gives
//! ports of the ephemeral range to any connection, so these lie below. A socket with an abstract name holds each: such
//! a name belongs to the network namespace, as the port does, and ends with its process.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Error, Result};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

const LOWEST: u16 = 10_000;
const HIGHEST: u16 = 32_000;
const TRIES: u16 = 1000;

/// Names that hold the ports of this process.
static HELD: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// A port of TCP and UDP that is this process's until it ends: for programs that it starts, and starts again.
///
/// # Errors
/// There is no such port in a thousand tries, or the kernel does not say which ports are ephemeral.
pub fn free_port() -> Result<u16> {
    free_ports(1)
}

/// The first of `many` consecutive ports.
///
/// # Errors
/// As of [`free_port`].
pub fn free_ports(many: u16) -> Result<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let ephemeral = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(HIGHEST);
    let count = HIGHEST.min(ephemeral).max(LOWEST + TRIES) - LOWEST;
    for _ in 0..TRIES {
        // The hasher of the standard library begins with random keys.
        let random = RandomState::new().build_hasher().finish();
        let port = LOWEST + (random % u64::from(count)) as u16;
        if let Ok(names) = (port..port.saturating_add(many)).map(hold).collect::<Result<Vec<_>>>() {
            HELD.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
            return Ok(port);
        }
    }
    Err(Error::other(format!("no free port was found in {TRIES} tries")))
}

/// The name that holds a port which no program uses now.
fn hold(port: u16) -> Result<UnixDatagram> {
    let name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(format!("beamport-port-{port}"))?)?;
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_stays_with_the_process_that_asked_for_it() {
        let ports: Vec<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        for port in &ports {
            // Nobody uses it, and still nobody else is given it.
            assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
            assert!(hold(*port).is_err());
        }
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let ephemeral: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        assert!(ports.iter().all(|port| *port < ephemeral.max(LOWEST + TRIES)));
    }
}
