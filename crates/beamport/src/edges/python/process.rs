//! The process of a source's code: its start, its wakes and its end.

use super::{MODULE, Plan};
use crate::code;
use crate::limits::{SOURCE_CODE_END_PATIENCE, SOURCE_CODE_NAP};
use flow::job::SourceStart;
use flow::{Fault, SourceJob};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus, Stdio};
use std::time::Instant;

/// The process; it is ended when this is dropped.
pub(super) struct Process {
    child: Child,
    socket: UnixStream,
    /// Its end of the socket is closed: it has ended, or its code has closed its descriptors.
    is_closed: bool,
    /// Since when it has been asked to end.
    asked: Option<Instant>,
}

impl Process {
    /// Starts it, and writes to its socket where the code begins.
    pub(super) fn start(plan: &Plan, job: &SourceJob, begin: &SourceStart) -> Result<Self, Fault> {
        let what = format!("cannot start the code of {}", plan.whose());
        let python = plan.python();
        let fault = |e: std::io::Error| Fault::new(&what, e).hint(code::interpreted(&python));
        let (socket, theirs) = UnixStream::pair().map_err(fault)?;
        socket.set_nonblocking(true).map_err(fault)?;
        let mut command = code::command(&python, MODULE, &what, job)?;
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let mut line = serde_json::to_vec(begin).map_err(|e| Fault::new(&what, e))?;
        line.push(b'\n');
        let mut writer = socket.try_clone().map_err(fault)?;
        // Code prints for people; stdout is for the report.
        let child = store::printed::spawn(command, &plan.whose(), true).map_err(fault)?;
        let process = Self { child, socket, is_closed: false, asked: None };
        // Beside: more than the socket holds waits until the process reads it.
        let spawned = std::thread::Builder::new().name("python start".into()).spawn(move || {
            let mut rest = line.as_slice();
            while !rest.is_empty() {
                match writer.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(SOURCE_CODE_NAP),
                    Err(_) => return,
                }
            }
        });
        spawned.map_err(fault)?;
        Ok(process)
    }

    /// Readable when there is something new in the stream, or the process has ended.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        (!self.is_closed).then(|| self.socket.as_raw_fd())
    }

    /// Takes the wakes that have come.
    pub(super) fn clear_wakes(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return self.is_closed = true,
                Ok(read) if read == bytes.len() => {}
                Err(e) if e.kind() != ErrorKind::WouldBlock => return self.is_closed = true,
                _ => return,
            }
        }
    }

    /// How it has ended.
    pub(super) fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks it to end: its code ends where it waits.
    pub(super) fn ask_to_end(&mut self) {
        if self.asked.is_none() && matches!(self.child.try_wait(), Ok(None)) {
            self.asked = Some(Instant::now());
            // SAFETY: a system call with a number; the process is not reaped yet, so the number is its own.
            unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGTERM) };
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ask_to_end();
        let asked = self.asked.unwrap_or_else(Instant::now);
        while matches!(self.child.try_wait(), Ok(None)) {
            if asked.elapsed() > SOURCE_CODE_END_PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(SOURCE_CODE_NAP);
        }
    }
}
