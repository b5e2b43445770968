//! The limit: a thread that takes datagrams from the sockets with `recvmmsg` into a ring of as much memory as the
//! streams have, and does nothing with them.

use super::super::place::wrong;
use super::{BUFFER, DRAIN, Load, RING_MIB, Taker, free_ports};
use flow::Fault;
use std::io::{Error, ErrorKind, Result};
use std::mem::zeroed;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::thread::JoinHandleExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

/// Datagrams of one call.
const BATCH: usize = 32;
/// Bytes of the largest datagram.
const DATAGRAM_BYTES: usize = 1 << 16;

/// The thread.
pub(super) struct Bare {
    ports: Vec<u16>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    count: AtomicU64,
    stop: AtomicBool,
}

impl Bare {
    /// Starts a thread that receives datagrams of a load at `ports` ports.
    pub(super) fn start(load: &Load, ports: usize) -> std::result::Result<Self, Fault> {
        // Several together: the kernel passes them at once.
        let (bytes, gro, together) = (load.bytes, load.together > 1, load.together);
        let ports = free_ports(ports)?;
        let sockets = ports.iter().map(|port| open(*port, gro)).collect::<Result<Vec<_>>>();
        let sockets = sockets.map_err(wrong("a socket of the limit cannot be made"))?;
        let shared = Arc::new(Shared::default());
        let (with, size) = (shared.clone(), bytes + wire::limits::HEADER_BYTES);
        let ring = (ports.len() * RING_MIB as usize) << 20;
        let thread = std::thread::Builder::new().name("bare".to_owned());
        let thread =
            thread.spawn(move || take(&sockets, (size, together, gro), ring, &with)).map_err(wrong("no thread"))?;
        Ok(Self { ports, shared, thread: Some(thread) })
    }
}

impl Taker for Bare {
    fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn count(&mut self) -> std::result::Result<u64, Fault> {
        Ok(self.shared.count.load(Ordering::Relaxed))
    }

    fn cpu_seconds(&self) -> std::result::Result<f64, Fault> {
        let thread = self.thread.as_ref().filter(|thread| !thread.is_finished());
        let Some(thread) = thread else { return Err(Fault::new("bench: the bare receiver failed", "")) };
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: the thread has not been joined; both calls write one value that we own.
        let failed = unsafe {
            libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut clock) != 0
                || libc::clock_gettime(clock, &mut time) != 0
        };
        if failed {
            return Err(Fault::new("bench: the bare receiver has no clock", Error::last_os_error()));
        }
        Ok(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn open(port: u16, gro: bool) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    let set = |level, option, value: i32| {
        // SAFETY: the value lives until the call returns, and has this length.
        let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4) };
        if set == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    };
    set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER)?;
    // Larger than the kernel allows, where we may.
    let _ = set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER);
    if gro {
        set(libc::SOL_UDP, libc::UDP_GRO, 1)?;
    }
    Ok(socket)
}

/// An epoll that says which of the sockets have something.
fn polled(sockets: &[UdpSocket]) -> Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let epoll = match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
        -1 => return Err(Error::last_os_error()),
        // SAFETY: the descriptor was just opened and belongs to nothing else.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    for (at, socket) in sockets.iter().enumerate() {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: at as u64 };
        // SAFETY: the event lives until the call returns.
        if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, socket.as_raw_fd(), &mut event) } != 0 {
            return Err(Error::last_os_error());
        }
    }
    Ok(epoll)
}

/// `size`: bytes of a datagram; `together`: how many come as one; `ring`: bytes of memory that they are stored in.
fn take(
    sockets: &[UdpSocket],
    (size, together, gro): (usize, usize, bool),
    ring: usize,
    shared: &Shared,
) -> Result<()> {
    let epoll = polled(sockets)?;
    let place = (size * together).min(DATAGRAM_BYTES);
    // One datagram more than there is room for at its end; its pages are there from the beginning.
    let mut bytes = vec![1_u8; ring + BATCH * DATAGRAM_BYTES];
    let mut at_byte = 0;
    let mut controls = [[0_u64; 4]; BATCH];
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut parts = [none; BATCH];
    // SAFETY: zero bytes are a valid header without buffers, and a valid event.
    let (mut headers, mut events): ([libc::mmsghdr; BATCH], [libc::epoll_event; 256]) = unsafe { zeroed() };
    while !shared.stop.load(Ordering::Relaxed) {
        // SAFETY: as many events as the call may fill.
        let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, 100) };
        let woken = Instant::now();
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            let at = event.u64;
            loop {
                let slots = bytes[at_byte..].chunks_exact_mut(place);
                for (part, slot) in parts.iter_mut().zip(slots) {
                    *part = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
                }
                for ((header, part), control) in headers.iter_mut().zip(&mut parts).zip(&mut controls) {
                    (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (part, 1);
                    if gro {
                        header.msg_hdr.msg_control = control.as_mut_ptr().cast();
                        header.msg_hdr.msg_controllen = size_of_val(control);
                    }
                }
                // SAFETY: the headers name buffers that live until the call returns, with their sizes.
                let count = unsafe {
                    let (socket, headers) = (sockets[at as usize].as_raw_fd(), headers.as_mut_ptr());
                    libc::recvmmsg(socket, headers, BATCH as u32, libc::MSG_DONTWAIT, std::ptr::null_mut())
                };
                let Ok(count) = usize::try_from(count) else {
                    match Error::last_os_error() {
                        error if error.kind() == ErrorKind::WouldBlock => break,
                        error => return Err(error),
                    }
                };
                let pieces = headers[..count].iter().map(|header| (header.msg_len as usize).div_ceil(size) as u64);
                shared.count.fetch_add(pieces.sum(), Ordering::Relaxed);
                at_byte += count * place;
                if at_byte >= ring {
                    at_byte = 0;
                }
                if count < BATCH {
                    break;
                }
            }
        }
        std::thread::sleep(DRAIN.saturating_sub(woken.elapsed()));
    }
    Ok(())
}
