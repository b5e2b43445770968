//! Descriptors of many sources in one wait: epoll, with one shot for each arming, or until it is removed.
//!
//! Constraints: a descriptor of one shot is armed again after each step of its source, so a source may close it and
//! open another of the same number, and one that is not armed costs nothing while it stays readable. One that is kept
//! costs no system call for a step, and is reported once for what comes: its source takes all, or says that it has
//! more. A timeout is exact to the clock of the machine, not to a millisecond: the wait itself is that of `ppoll` on
//! the epoll descriptor.
//!
//! Failure behaviour: what cannot be polled, such as a regular file, is never ready; its source is stepped at its times.

use std::fs::File;
use std::io::{Error, Read as _, Result, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// Events taken at once; those that are left come with the next wait.
const EVENTS: usize = 256;
/// The number of the descriptor that wakes the wait.
const WAKE: u64 = u64::MAX;

/// Wakes the wait that has this descriptor.
pub(super) fn raise(mut wake: &File) {
    // Refused only with 2^64 - 2 raises in it.
    let _ = wake.write(&1u64.to_ne_bytes());
}

/// A descriptor that is ready.
pub(super) struct Ready {
    /// The number that it was armed with.
    pub at: usize,
    /// It is in an error state, which would be reported again at once.
    pub is_broken: bool,
}

/// A set of descriptors.
pub(super) struct Poller {
    epoll: OwnedFd,
    wake: Arc<File>,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    /// An empty set. `wake`, an eventfd, ends a wait.
    pub(super) fn new(wake: &Arc<File>) -> Result<Self> {
        // SAFETY: the call takes no pointer, and its result is checked.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and belongs to nothing else.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let poller = Self { epoll, wake: wake.clone(), events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS] };
        poller.control(libc::EPOLL_CTL_ADD, wake.as_raw_fd(), libc::EPOLLIN as u32, WAKE)?;
        Ok(poller)
    }

    fn control(&self, operation: i32, fd: RawFd, events: u32, number: u64) -> Result<()> {
        let mut event = libc::epoll_event { events, u64: number };
        // SAFETY: the event outlives the call, which copies it.
        let answer = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) };
        if answer < 0 { Err(Error::last_os_error()) } else { Ok(()) }
    }

    /// Arms a descriptor: it is reported when it is readable, once or, if `is_kept`, each time that more comes until it
    /// is removed.
    pub(super) fn arm(&self, at: usize, fd: RawFd, is_kept: bool) {
        let events = (libc::EPOLLIN | if is_kept { libc::EPOLLET } else { libc::EPOLLONESHOT }) as u32;
        // It is not in the set where it is new, or another file has its number now.
        if self.control(libc::EPOLL_CTL_MOD, fd, events, at as u64).is_err() {
            let _ = self.control(libc::EPOLL_CTL_ADD, fd, events, at as u64);
        }
    }

    /// Takes a descriptor out of the set. One that was closed is out already.
    pub(super) fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// Waits until a descriptor is ready, somebody writes to `wake`, or the time is over; `None`: however long that
    /// takes. True if somebody wrote to `wake`.
    pub(super) fn wait(&mut self, left: Option<Duration>, ready: &mut Vec<Ready>) -> bool {
        let mut count = self.take();
        if count == 0 && left != Some(Duration::ZERO) {
            let timeout = left.map(|left| libc::timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let mut epoll = libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, and a timeout or none, that live until the call returns.
            if unsafe { libc::ppoll(&raw mut epoll, 1, timeout, std::ptr::null()) } > 0 {
                count = self.take();
            }
        }
        let mut is_raised = false;
        for event in self.events.iter().take(count) {
            // The fields of a packed structure are copied before they are used.
            let (number, events) = (event.u64, event.events);
            if number == WAKE {
                let _ = (&*self.wake).read(&mut [0; 8]);
                is_raised = true;
            } else if let Ok(at) = usize::try_from(number) {
                ready.push(Ready { at, is_broken: events & libc::EPOLLERR as u32 != 0 });
            }
        }
        is_raised
    }

    /// How many events there are now, each a descriptor that is ready.
    fn take(&mut self) -> usize {
        // SAFETY: as many events as the call may fill, which live until it returns.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), EVENTS as i32, 0) };
        usize::try_from(count).unwrap_or(0)
    }
}
