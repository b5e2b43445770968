//! The sender: a thread that sends what boards would, to each port in turn.

use super::super::place::wrong;
use super::{Load, PAUSE};
use flow::Fault;
use std::io::{Error, ErrorKind, Result};
use std::mem::zeroed;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use store::crc32c;
use wire::datagram::{Flag, Header, Type};

/// Calls that one `sendmmsg` takes the place of.
const CALLS: usize = 32;
/// Rest of a sender that is ahead of its time.
const NAP: Duration = Duration::from_micros(100);
/// How often an end is sent: it may be lost.
const ENDS: u32 = 3;

/// A thread that sends.
pub(super) struct Sender {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<u64>>>,
}

impl Sender {
    /// Sends until it is stopped.
    pub(super) fn start(load: Load, ports: &[u16]) -> std::result::Result<Self, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, ports) = (stop.clone(), ports.to_vec());
        let thread = std::thread::Builder::new().name("boards".to_owned());
        let thread = thread.spawn(move || send(load, &ports, &asked)).map_err(wrong("the sender does not start"))?;
        Ok(Self { stop, thread })
    }

    /// How many messages each board has sent.
    pub(super) fn stop(self) -> std::result::Result<Vec<u64>, Fault> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.thread.join().map_err(|_| Fault::new("bench: the sender failed", "it panicked"))?;
        sent.map_err(wrong("the sender failed"))
    }
}

/// Says the end of all boards.
pub(super) fn ends(ports: &[u16], sent: &[u64]) -> std::result::Result<(), Fault> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(wrong("no socket"))?;
    for _ in 0..ENDS {
        for (port, sent) in ports.iter().zip(sent) {
            let end = header(Type::End, *sent, 0, 0).to_bytes(crc32c);
            socket.send_to(&end, (Ipv4Addr::LOCALHOST, *port)).map_err(wrong("the sender failed"))?;
        }
        std::thread::sleep(10 * PAUSE);
    }
    Ok(())
}

fn header(kind: Type, sequence: u64, payload_bytes: u32, payload_crc: u32) -> Header {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let timestamp = now.as_nanos() as u64;
    let flags = Flag::Epoch as u32;
    Header { kind, flags, timestamp, sequence, payload_bytes, payload_crc, schema: *b"rand", ..Header::default() }
}

fn send(load: Load, ports: &[u16], stop: &AtomicBool) -> Result<Vec<u64>> {
    let Load { bytes, together, rate, .. } = load;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    if together > 1 {
        let size = (bytes + wire::limits::HEADER_BYTES) as libc::c_int;
        let (place, length) = ((&raw const size).cast(), size_of_val(&size) as libc::socklen_t);
        // SAFETY: the value lives until the call returns, and has this length.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, place, length) };
        if set != 0 {
            return Err(Error::last_os_error());
        }
    }
    let payload = vec![0x5a; bytes];
    let crc = crc32c(&payload);
    let mut sent = vec![0; ports.len()];
    let begin = Instant::now();
    let mut all = 0;
    while !stop.load(Ordering::Relaxed) {
        if rate.is_some_and(|rate| all as f64 >= begin.elapsed().as_secs_f64() * rate) {
            std::thread::sleep(NAP);
            continue;
        }
        for (ports, sent) in ports.chunks(CALLS).zip(sent.chunks_mut(CALLS)) {
            let mut heads = Vec::with_capacity(ports.len() * together);
            for sent in sent.iter_mut() {
                for _ in 0..together {
                    heads.push(header(Type::Data, *sent, bytes as u32, crc).to_bytes(crc32c));
                    *sent += 1;
                }
            }
            send_all(&socket, ports, together, &heads, &payload)?;
            all += ports.len() * together;
        }
    }
    Ok(sent)
}

/// Sends `together` datagrams to each port, each a head and the payload.
fn send_all(
    socket: &UdpSocket,
    ports: &[u16],
    together: usize,
    heads: &[[u8; wire::limits::HEADER_BYTES]],
    payload: &[u8],
) -> Result<()> {
    let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut parts: Vec<libc::iovec> = heads.iter().flat_map(|head| [part(head), part(payload)]).collect();
    let address = |port: &u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()) },
        sin_zero: [0; 8],
    };
    let mut targets: Vec<libc::sockaddr_in> = ports.iter().map(address).collect();
    let headers = parts.chunks_mut(2 * together).zip(&mut targets).map(|(parts, target)| {
        // SAFETY: zero bytes are a valid header without buffers.
        let mut header: libc::mmsghdr = unsafe { zeroed() };
        header.msg_hdr.msg_iov = parts.as_mut_ptr();
        header.msg_hdr.msg_iovlen = parts.len();
        header.msg_hdr.msg_name = std::ptr::from_mut(target).cast();
        header.msg_hdr.msg_namelen = size_of_val(target) as libc::socklen_t;
        header
    });
    let mut headers: Vec<libc::mmsghdr> = headers.collect();
    let mut left = headers.as_mut_slice();
    while !left.is_empty() {
        // SAFETY: the headers name buffers and addresses that live until the call returns; the kernel only reads.
        let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), left.as_mut_ptr(), left.len() as u32, 0) };
        match usize::try_from(count) {
            Ok(count) => left = &mut left[count..],
            Err(_) => {
                let error = Error::last_os_error();
                // The port of a program that has just ended refuses datagrams.
                if !matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
