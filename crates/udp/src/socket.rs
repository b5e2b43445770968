//! The sockets: many datagrams a system call, to and fro. All `unsafe` of the crate is here.

use crate::limits::{BATCH, DATAGRAM_BYTES, INTERFACE_BYTES, PIECE_BYTES, POLLED, SEGMENTS};
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, sockaddr_in6, sockaddr_storage, socklen_t};
use std::io::{Error, ErrorKind, Result};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

/// Room for one control message with a number.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 32]);

/// The memory that `recvmmsg` fills. It is made once: to clear all of it would cost more than a call for one datagram.
pub(crate) struct Batch {
    bytes: Box<[u8]>,
    headers: Box<[mmsghdr; BATCH]>,
    parts: Box<[iovec; BATCH]>,
    senders: Box<[sockaddr_in6; BATCH]>,
    controls: Box<[Control; BATCH]>,
    /// Several datagrams may have been passed at once.
    has_pieces: bool,
    asked: usize,
}

impl Batch {
    /// An empty batch: 2 MiB, of which only the pages are used that datagrams fill.
    pub(crate) fn new() -> Self {
        let bytes = vec![0; BATCH * DATAGRAM_BYTES].into_boxed_slice();
        // SAFETY: zero bytes are a valid header without buffers.
        let headers = Box::new(unsafe { zeroed::<[mmsghdr; BATCH]>() });
        // SAFETY: zero bytes are a vector of no bytes.
        let parts = Box::new(unsafe { zeroed::<[iovec; BATCH]>() });
        // SAFETY: zero bytes are a valid address of no family.
        let senders = Box::new(unsafe { zeroed::<[sockaddr_in6; BATCH]>() });
        let controls = Box::new([Control([0; 32]); BATCH]);
        Self { bytes, headers, parts, senders, controls, has_pieces: false, asked: 0 }
    }

    /// Bytes that were received in this place.
    pub(crate) fn length(&self, at: usize) -> usize {
        (self.headers[at].msg_len as usize).min(DATAGRAM_BYTES)
    }

    /// The datagram received in this place.
    pub(crate) fn bytes(&self, at: usize) -> &[u8] {
        let first = at * DATAGRAM_BYTES;
        &self.bytes[first..first + self.length(at)]
    }

    /// The datagrams in this place: one, or several of the same sender.
    pub(crate) fn datagrams(&self, at: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let length = self.length(at);
        let piece = if self.has_pieces { piece_of(&self.headers[at].msg_hdr) } else { 0 };
        let piece = if piece > 0 { piece } else { length.max(1) };
        // An empty datagram is one too.
        (0..length.max(1)).step_by(piece).map(move |first| first..(first + piece).min(length))
    }

    /// Whether the socket may have more than this number of datagrams.
    pub(crate) fn was_full(&self, count: usize) -> bool {
        count == self.asked
    }

    /// Its sender.
    pub(crate) fn sender(&self, at: usize) -> Option<IpAddr> {
        address_of(&self.senders[at])
    }

    /// Takes what the socket has, `asked` datagrams at most, without waiting; how many places that fills. Whether
    /// they are several at once is asked only if `has_pieces`.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, asked: usize, has_pieces: bool) -> Result<usize> {
        let asked = asked.min(BATCH);
        (self.asked, self.has_pieces) = (asked, has_pieces);
        for (at, slot) in self.bytes.chunks_exact_mut(DATAGRAM_BYTES).enumerate().take(asked) {
            self.parts[at] = iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            let header = &mut self.headers[at].msg_hdr;
            (header.msg_iov, header.msg_iovlen) = (&raw mut self.parts[at], 1);
            header.msg_name = (&raw mut self.senders[at]).cast();
            header.msg_namelen = size_of::<sockaddr_in6>() as socklen_t;
            (header.msg_control, header.msg_controllen) = match has_pieces {
                true => (self.controls[at].0.as_mut_ptr().cast(), size_of::<Control>()),
                false => (std::ptr::null_mut(), 0),
            };
        }
        loop {
            // SAFETY: the headers name buffers and addresses of this batch, with their sizes; nobody else uses them
            // before the call returns.
            let count = unsafe {
                let (headers, none) = (self.headers.as_mut_ptr(), std::ptr::null_mut());
                libc::recvmmsg(socket.as_raw_fd(), headers, asked as c_uint, libc::MSG_DONTWAIT, none)
            };
            let Ok(count) = usize::try_from(count) else {
                let error = Error::last_os_error();
                match error.kind() {
                    ErrorKind::WouldBlock => return Ok(0),
                    // What the network says about datagrams that were sent from here: what came is behind it.
                    ErrorKind::Interrupted
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable => continue,
                    _ => return Err(error),
                }
            };
            return Ok(count);
        }
    }
}

/// The size of the datagrams that were passed at once; 0: it is one.
fn piece_of(header: &libc::msghdr) -> usize {
    // SAFETY: the kernel has filled the header and the control messages that it points to, and both live.
    unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        if control.is_null() || (*control).cmsg_level != libc::SOL_UDP || (*control).cmsg_type != libc::UDP_GRO {
            return 0;
        }
        usize::try_from(libc::CMSG_DATA(control).cast::<c_int>().read_unaligned()).unwrap_or(0)
    }
}

fn address_of(address: &sockaddr_in6) -> Option<IpAddr> {
    match c_int::from(address.sin6_family) {
        libc::AF_INET => {
            // SAFETY: of this family the storage holds such an address, and is larger and aligned for it.
            let address = unsafe { &*std::ptr::from_ref(address).cast::<libc::sockaddr_in>() };
            Some(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => Some(IpAddr::from(address.sin6_addr.s6_addr).to_canonical()),
        _ => None,
    }
}

/// A socket that receives without waiting, from one network interface where one is named; `gro`: several datagrams at
/// once.
pub(crate) fn listen(address: SocketAddr, interface: Option<&str>, gro: bool) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    if let Some(name) = interface {
        set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes())?;
    }
    if gro {
        set(&socket, libc::SOL_UDP, libc::UDP_GRO, &[1 as c_int])?;
    }
    Ok(socket)
}

/// An error if the network interface that the socket is bound to is gone, or has another name now. The kernel says
/// nothing about that to those who read: a socket is bound to the number of an interface, and one that is made again
/// with the same name has another number.
pub(crate) fn has_interface(socket: &UdpSocket, name: &str) -> Result<()> {
    let mut bound = [0_u8; INTERFACE_BYTES];
    get(socket, libc::SO_BINDTODEVICE, &mut bound)?;
    let is_same = bound.split(|byte| *byte == 0).next() == Some(name.as_bytes());
    if is_same { Ok(()) } else { Err(Error::from_raw_os_error(libc::ENODEV)) }
}

/// Says which of many sockets have something.
pub(crate) struct Poll {
    epoll: OwnedFd,
    events: Box<[libc::epoll_event; POLLED]>,
}

impl Poll {
    /// Of no sockets yet.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: the call takes a plain number.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: it was made just now, and is nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { epoll, events: Box::new([libc::epoll_event { events: 0, u64: 0 }; POLLED]) })
    }

    /// Looks at one more socket, whose place is `at`. It is forgotten when the socket is closed.
    pub(crate) fn add(&self, socket: RawFd, at: usize) -> Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: at as u64 };
        // SAFETY: the kernel reads the event, which lives until the call returns.
        let answer = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, socket, &raw mut event) };
        if answer < 0 { Err(Error::last_os_error()) } else { Ok(()) }
    }

    /// Adds the places of sockets that have something, without waiting. Those that are not among them are among the
    /// next.
    pub(crate) fn ready(&mut self, places: &mut Vec<usize>) {
        // SAFETY: the kernel fills as many events as there are.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), POLLED as c_int, 0) };
        let found = self.events.iter().take(usize::try_from(count).unwrap_or(0));
        places.extend(found.map(|event| event.u64 as usize));
    }

    /// A descriptor that can be read while one of the sockets has something.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Begins a connection without waiting for it: what is written before it is made is refused with `WouldBlock`.
pub(crate) fn connect(to: SocketAddr) -> Result<TcpStream> {
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes plain numbers.
    let descriptor = unsafe { libc::socket(family, kind, 0) };
    if descriptor < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: it was made just now, and is nobody else's.
    let stream = unsafe { TcpStream::from_raw_fd(descriptor) };
    let target = Target::from(to);
    // SAFETY: the kernel reads the address, which lives until the call returns and has this length.
    let answer = unsafe { libc::connect(descriptor, (&raw const target.storage).cast(), target.length) };
    let error = Error::last_os_error();
    if answer < 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(error);
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Asks for a buffer of this many bytes; the answer is how large it is. The kernel counts its own bookkeeping in.
pub(crate) fn set_buffer(socket: &UdpSocket, bytes: u64) -> Result<u64> {
    let asked = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &[asked])?;
    let mut got: c_int = 0;
    get(socket, libc::SO_RCVBUF, std::slice::from_mut(&mut got))?;
    // It answers with twice what it was asked for: half is for its bookkeeping.
    if got / 2 < asked && set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &[asked]).is_ok() {
        get(socket, libc::SO_RCVBUF, std::slice::from_mut(&mut got))?;
    }
    Ok(u64::try_from(got / 2).unwrap_or(0))
}

/// Datagrams that the kernel has dropped at this socket because its buffer was full, modulo 2^32.
pub(crate) fn drops(socket: &UdpSocket) -> Result<u32> {
    // The last of these figures is `SK_MEMINFO_DROPS`.
    let mut figures = [0u32; 9];
    get(socket, libc::SO_MEMINFO, &mut figures)?;
    Ok(figures[8])
}

fn set<T: Copy>(socket: &UdpSocket, level: c_int, option: c_int, value: &[T]) -> Result<()> {
    let length = size_of_val(value) as socklen_t;
    // SAFETY: the kernel reads the value, which lives until the call returns and has this length.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast::<c_void>(), length) };
    if answer < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn get<T: Copy>(socket: &UdpSocket, option: c_int, values: &mut [T]) -> Result<()> {
    let mut length = size_of_val(values) as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, of numbers for which any bits are valid.
    let answer = unsafe {
        let values = values.as_mut_ptr().cast::<c_void>();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, values, &raw mut length)
    };
    if answer < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Datagrams to be sent in one call: each a head and a payload, and where it goes.
pub(crate) struct Outbox<'a> {
    parts: Vec<[iovec; 2]>,
    targets: Vec<Target>,
    has_pieces: bool,
    _bytes: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Outbox<'a> {
    /// Without datagrams. `has_pieces`: all go to the same target, and the kernel gets those of the same size as one
    /// piece, which it cuts (`UDP_SEGMENT`).
    pub(crate) fn new(has_pieces: bool) -> Self {
        let (parts, targets) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Self { parts, targets, has_pieces, _bytes: std::marker::PhantomData }
    }

    /// Adds a datagram.
    pub(crate) fn add(&mut self, head: &'a [u8], payload: &'a [u8], target: Target) {
        let part = |bytes: &[u8]| iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        self.parts.push([part(head), part(payload)]);
        self.targets.push(target);
    }

    /// How many datagrams from this one on go as one piece: all of one size, but the last may be shorter.
    fn piece(&self, from: usize) -> usize {
        let size_of = |parts: &[iovec; 2]| parts[0].iov_len + parts[1].iov_len;
        let size = size_of(&self.parts[from]);
        let most = if self.has_pieces { (PIECE_BYTES / size.max(1)).clamp(1, SEGMENTS) } else { 1 };
        let mut sizes = self.parts[from..].iter().map(size_of).take(most);
        let same = sizes.clone().take_while(|other| *other == size).count();
        same + usize::from(sizes.nth(same).is_some_and(|last| last < size))
    }

    /// Sends all of them, `BATCH` at most, and waits while the socket has no room.
    pub(crate) fn send(&mut self, socket: &UdpSocket) -> Result<()> {
        // SAFETY: zero bytes are a valid header without buffers.
        let mut headers: [mmsghdr; BATCH] = unsafe { zeroed() };
        let mut controls = [Control([0; 32]); BATCH];
        let (mut from, mut all) = (0, 0);
        while from < self.parts.len() && all < BATCH {
            let count = self.piece(from);
            let header = &mut headers[all].msg_hdr;
            header.msg_name = (&raw mut self.targets[from].storage).cast();
            header.msg_namelen = self.targets[from].length;
            let parts = &mut self.parts[from..from + count];
            let size = parts[0][0].iov_len + parts[0][1].iov_len;
            header.msg_iov = parts.as_mut_ptr().cast();
            header.msg_iovlen = 2 * count;
            if count > 1 {
                header.msg_control = controls[all].0.as_mut_ptr().cast();
                set_piece(header, size as u16);
            }
            (from, all) = (from + count, all + 1);
        }
        let mut sent = 0;
        while sent < all {
            // SAFETY: the headers name buffers, addresses and control messages that live until the call returns; the
            // kernel only reads.
            let count = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().add(sent), (all - sent) as c_uint, 0)
            };
            match usize::try_from(count) {
                Ok(count) => sent += count,
                Err(_) => {
                    let error = Error::last_os_error();
                    if error.kind() != ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        self.parts.clear();
        self.targets.clear();
        Ok(())
    }
}

/// Asks the kernel to cut a piece into datagrams of this size. The header has room for the control message.
fn set_piece(header: &mut libc::msghdr, size: u16) {
    // SAFETY: the room is larger than one control message with a number, aligned for it, and lives as the header does.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as c_uint) as usize;
        let control = libc::CMSG_FIRSTHDR(header);
        (*control).cmsg_level = libc::SOL_UDP;
        (*control).cmsg_type = libc::UDP_SEGMENT;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as c_uint) as usize;
        libc::CMSG_DATA(control).cast::<u16>().write_unaligned(size);
    }
}

/// An address as the kernel takes it.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    storage: sockaddr_storage,
    length: socklen_t,
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: zero bytes are a valid address of no family.
        let mut storage: sockaddr_storage = unsafe { zeroed() };
        let place = &raw mut storage;
        let length = match address {
            SocketAddr::V4(address) => {
                // SAFETY: the storage is larger than such an address and aligned for it.
                unsafe { place.cast::<libc::sockaddr_in>().write(v4(&address)) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(v6(&address)) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self { storage, length: length as socklen_t }
    }
}

fn v4(address: &SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

fn v6(address: &SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: address.flowinfo(),
        sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
        sin6_scope_id: address.scope_id(),
    }
}
