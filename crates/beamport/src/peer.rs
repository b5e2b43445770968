//! Whether the other end of a descriptor is still open.

use std::os::fd::{AsRawFd as _, BorrowedFd};

/// True once the other end of a pipe or socket is closed for good. Data that it sent before may still be read.
pub(crate) fn is_gone(descriptor: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one descriptor structure that outlives the call; no time-out.
    let answer = unsafe { libc::poll(&mut poll, 1, 0) };
    answer > 0 && poll.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0
}
