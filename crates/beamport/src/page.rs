//! The page of an instrument that `up` starts: `beamport web` as a child, which is started again when it ends.
//!
//! `up` listens, and the child serves at this socket, its stdin: the address stays the same, and a browser that
//! connects while there is no child waits for the next one. A page that cannot be served is a warning and stops
//! nothing.

use crate::limits::PAGE_AGAIN;
use crate::log::{print_notice, print_warning};
use flow::Fault;
use std::io::{self, IsTerminal as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The page; its child is killed when this is dropped.
pub(crate) struct Page {
    plan: web::Plan,
    data: PathBuf,
    listener: Option<TcpListener>,
    /// Where it is, as it was printed.
    location: String,
    child: Option<Child>,
    /// When it is tried again.
    next: Instant,
    is_warned: bool,
}

impl Page {
    /// Starts the page of a data folder.
    pub(crate) fn start(plan: web::Plan, data: &Path) -> Self {
        let mut page = Self {
            plan,
            data: data.to_owned(),
            listener: None,
            location: String::new(),
            child: None,
            next: Instant::now(),
            is_warned: false,
        };
        page.look();
        page
    }

    /// Where it is: none where it could not be served yet.
    pub(crate) fn location(&self) -> Option<&str> {
        self.listener.as_ref().map(|_| self.location.as_str())
    }

    /// Starts it again where it has ended.
    pub(crate) fn look(&mut self) {
        let lives = self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(Some(_))));
        if lives || Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + PAGE_AGAIN;
        if let Some(child) = self.child.take() {
            tracing::warn!("the page is started again: process {} has ended", child.id());
        }
        match self.open() {
            Ok(child) => (self.child, self.is_warned) = (Some(child), false),
            Err(fault) if self.is_warned => tracing::debug!("{fault}"),
            Err(fault) => {
                self.is_warned = true;
                print_warning(format_args!("warning: there is no page yet\n{fault}"));
            }
        }
    }

    fn open(&mut self) -> Result<Child, Fault> {
        let cannot = |e: io::Error| Fault::io("cannot start the page", &e);
        if self.listener.is_none() {
            let tokens = web::Tokens::of(&self.data)?;
            let listener = self.plan.bind()?;
            let address = listener.local_addr().map_err(cannot)?;
            self.location = web::location(address, &tokens, &self.data, io::stderr().is_terminal()).to_string();
            print_notice(&self.location);
            self.listener = Some(listener);
        }
        let Some(listener) = &self.listener else { return Err(Fault::new("cannot start the page", "")) };
        let socket = OwnedFd::from(listener.try_clone().map_err(cannot)?);
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.arg("web").arg("--data").arg(&self.data).arg("--parent").arg(std::process::id().to_string());
        if self.plan.open {
            command.arg("--open");
        }
        command.stdin(Stdio::from(socket)).stdout(Stdio::null());
        store::printed::spawn(command, "web", false).map_err(cannot)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}
