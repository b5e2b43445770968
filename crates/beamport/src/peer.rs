//! Other processes: whether the other end of a descriptor is still open, dying with a parent, asking a child to end.

use flow::Fault;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// True once the other end of a pipe or socket is closed for good. Data that it sent before may still be read.
pub(crate) fn is_gone(descriptor: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one descriptor structure that outlives the call; no time-out.
    let answer = unsafe { libc::poll(&mut poll, 1, 0) };
    answer > 0 && poll.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0
}

/// User and process that opened the other end of a Unix socket.
pub(crate) fn credentials(descriptor: BorrowedFd<'_>) -> Option<(u32, i32)> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure and its size outlive the call, which writes at most that many bytes.
    let answer = unsafe {
        libc::getsockopt(
            descriptor.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut size,
        )
    };
    (answer == 0).then_some((who.uid, who.pid))
}

/// Ends the calls of `accept` that wait on a listening socket, in other threads too, and those to come.
pub(crate) fn stop_listening(listener: BorrowedFd<'_>) {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Sends SIGTERM to a child that was not waited for.
pub(crate) fn ask_to_end(child: u32) {
    // SAFETY: the call takes plain numbers. The child was not waited for, so its number is not that of another process.
    unsafe { libc::kill(child.cast_signed(), libc::SIGTERM) };
}

/// Has the kernel kill this process when the one that started it dies.
pub(crate) fn die_with(parent: u32) -> Result<(), Fault> {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if std::os::unix::process::parent_id() != parent {
        return Err(Fault::new("this process ends", "the one that started it has ended"));
    }
    Ok(())
}
