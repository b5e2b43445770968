//! The part that all stages of one process share: the thread of all connections, and the server of the host.

use crate::client::Peer;
use crate::limits::BACKLOG;
use crate::section::{HostPlan, Url};
use crate::server::{Server, accept};
use flow::{Data, Fault, Passes};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The thread of all connections of a process; it ends when this is dropped.
pub(crate) struct Thread {
    pub(crate) handle: Handle,
    stop: Option<oneshot::Sender<()>>,
}

impl Thread {
    pub(crate) fn start() -> Result<Self, Fault> {
        let cannot = |e: io::Error| Fault::io("the connections to other hosts cannot start", &e);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let work = move || runtime.block_on(async { drop(stopped.await) });
        std::thread::Builder::new().name("https".into()).spawn(work).map_err(cannot)?;
        Ok(Self { handle, stop: Some(stop) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

/// One host of an instrument, in its process.
pub(crate) struct Link {
    /// The hosts, in the order of the file.
    pub(crate) hosts: Vec<Arc<HostPlan>>,
    /// This one.
    pub(crate) own: Arc<HostPlan>,
    pub(crate) data: Data,
    pub(crate) keep: Duration,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    thread: Option<Thread>,
    server: Option<Arc<Server>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(hosts: &[Arc<HostPlan>], own: &Arc<HostPlan>, data: Data, keep: Duration) -> Self {
        Self { hosts: hosts.to_vec(), own: own.clone(), data, keep, running: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first host of the file.
    pub(crate) fn lead(&self) -> &Arc<HostPlan> {
        self.hosts.first().unwrap_or(&self.own)
    }

    /// Another host, as this one reaches it.
    pub(crate) fn peer(&self, near: &str, instrument: &str) -> Result<Peer, Fault> {
        let found = self.hosts.iter().find(|host| host.name == near);
        let near = found.cloned().ok_or_else(|| Fault::new(format!("there is no host `{near}`"), ""))?;
        let own = Some(self.own.clone());
        Ok(Peer { instrument: instrument.to_owned(), near, own: own.clone(), shows: own })
    }

    /// Where tasks run.
    pub(crate) fn handle(&self) -> Result<Handle, Fault> {
        let mut running = self.lock();
        let thread = match running.thread.take() {
            Some(thread) => thread,
            None => Thread::start()?,
        };
        Ok(running.thread.insert(thread).handle.clone())
    }

    /// The server of the host, which listens from the first call on.
    pub(crate) fn server(&self, instrument: &str) -> Result<Arc<Server>, Fault> {
        let handle = self.handle()?;
        let mut running = self.lock();
        if let Some(server) = &running.server {
            return Ok(server.clone());
        }
        let names = self.hosts.iter().map(|host| host.name.clone()).collect();
        let server = Server::new(instrument, self.own.clone(), names, &self.data, self.keep)?;
        let listener = listen(&self.own)?;
        let _within = handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|e| unheard(&self.own, &e))?;
        let server = Arc::new(server);
        handle.spawn(accept(server.clone(), listener));
        Ok(running.server.insert(server).clone())
    }
}

fn unheard(own: &HostPlan, e: &io::Error) -> Fault {
    let hint = format!("free the port of `url` of host `{}`, or write another one", own.name);
    Fault { passes: Passes::Soon, ..Fault::io(format!("host `{}` cannot listen", own.name), e).hint(hint) }
}

fn listen(own: &HostPlan) -> Result<TcpListener, Fault> {
    let bound = match (own.listen, &own.url) {
        (Some(address), _) => bind(address),
        (None, Some(url)) if url.is_loopback() => loopback(url).and_then(bind),
        (None, Some(url)) => {
            bind((Ipv6Addr::UNSPECIFIED, url.port).into()).or_else(|_| bind((Ipv4Addr::UNSPECIFIED, url.port).into()))
        }
        (None, None) => Err(io::Error::other("it has no `url`")),
    };
    bound.map_err(|e| unheard(own, &e))
}

fn loopback(url: &Url) -> io::Result<SocketAddr> {
    let found = (url.host.as_str(), url.port).to_socket_addrs()?.next();
    found.ok_or_else(|| io::Error::other("its name has no address"))
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A process that was killed leaves connections behind.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
