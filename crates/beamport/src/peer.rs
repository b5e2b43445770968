//! Other processes: whether the other end of a descriptor is still open, dying with a parent, asking a child to end.

use flow::Fault;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

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

/// As the first process of a container: starts the program again as a child, passes signals on to it, and reaps what
/// processes of user code leave behind, as every first process must. None in any other process.
pub(crate) fn serve_as_first() -> Option<io::Result<ExitCode>> {
    (std::process::id() == 1).then(|| {
        let mut signals = signal_hook::iterator::Signals::new([libc::SIGINT, libc::SIGTERM, libc::SIGHUP])?;
        let mut program = Command::new(std::env::current_exe()?);
        program.args(std::env::args_os().skip(1));
        // A terminal sends SIGINT to all processes that it shows.
        let has_terminal = io::stdin().is_terminal();
        if !has_terminal {
            // A signal to the group of this process then reaches the program once, from here.
            program.process_group(0);
        }
        let id = program.spawn()?.id().cast_signed();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever().filter(|signal| !(has_terminal && *signal == libc::SIGINT)) {
                // SAFETY: the call takes plain numbers. This process ends with the child: the number is its own.
                unsafe { libc::kill(id, signal) };
            }
        })?;
        loop {
            let mut status = 0;
            // SAFETY: the call writes one number.
            let ended = unsafe { libc::wait(&raw mut status) };
            if ended == id {
                let code =
                    if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
            }
            if ended < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(io::Error::last_os_error());
            }
        }
    })
}

/// SIGINT and SIGTERM.
fn stop_signals() -> libc::sigset_t {
    let mut signals = std::mem::MaybeUninit::uninit();
    // SAFETY: `sigemptyset` fills the set, and the others change it.
    unsafe {
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGINT);
        libc::sigaddset(signals.as_mut_ptr(), libc::SIGTERM);
        signals.assume_init()
    }
}

/// Has a child start with SIGINT and SIGTERM blocked: one that comes before the child catches them waits until
/// [`unblock_stop_signals`], and does not kill it.
pub(crate) fn block_stop_signals(command: &mut Command) {
    let block = || {
        // SAFETY: the set lives as long as the call. Both functions may be called between `fork` and `exec`.
        match unsafe { libc::sigprocmask(libc::SIG_BLOCK, &stop_signals(), std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: `block` allocates nothing and takes no lock.
    unsafe { command.pre_exec(block) };
}

/// Ends what [`block_stop_signals`] began, once this process catches them.
pub(crate) fn unblock_stop_signals() {
    // SAFETY: the set lives as long as the call.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &stop_signals(), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_does_not_catch_signals_yet_outlives_them() {
        let mut command = Command::new("sleep");
        block_stop_signals(command.arg("60"));
        let mut child = command.spawn().unwrap();
        ask_to_end(child.id());
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let waiting = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
        assert_eq!(u64::from_str_radix(waiting.trim(), 16), Ok(1 << (libc::SIGTERM - 1)));
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().and_then(|()| child.wait()).unwrap();
    }
}
