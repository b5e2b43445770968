//! HTTP: connections, requests and answers, in one thread. Whatever reads streams is done by a [`Desk`].

use crate::books::Question;
use crate::desk::Desk;
use crate::doors::{Doors, Refusal};
use crate::limits::{
    ANSWER_PATIENCE, ANSWERS_BYTES_MAX, CONNECTIONS_MAX, REQUEST_BYTES_MAX, REQUEST_PATIENCE, RUNS_SHOWN, STATUS_AGE,
};
use crate::look::{Looker, Request as Look};
use crate::tokens::{Role, Tokens};
use crate::{Instrument, Plan, doors, metrics, page};
use bytes::Bytes;
use flow::status::verdict::{self, Part, Report};
use flow::status::{Status, Watch};
use flow::{Data, Fault};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// The policy of the page: its own files, and nothing else.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The commands that the page can give.
const COMMANDS: [&str; 4] = ["begin", "end", "configure", "cutover"];

/// The page that is served.
pub struct Served {
    /// The data folder.
    pub data: Data,
    /// Where it listens already.
    pub listener: TcpListener,
    /// The plan of the section.
    pub plan: Plan,
    /// The tokens of each role.
    pub tokens: Tokens,
    /// The running instrument.
    pub instrument: Arc<dyn Instrument>,
    /// SIGINT ends it too.
    pub by_interrupt: bool,
}

/// Serves until SIGTERM, or SIGINT.
pub fn serve(served: Served) -> Result<(), Fault> {
    let cannot = |e: std::io::Error| Fault::io("the page cannot be served", &e);
    let house = Rc::new(House::new(&served)?);
    served.listener.set_nonblocking(true).map_err(cannot)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let listener = tokio::net::TcpListener::from_std(served.listener).map_err(cannot)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut sweep = tokio::time::interval(Duration::from_secs(5));
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => House::welcome(&house, stream),
                    // There are no descriptors left: the connection that was used longest ago makes room.
                    Err(e) => {
                        tracing::debug!("a connection was not accepted: {e}");
                        house.connections.borrow_mut().make_room();
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                },
                _ = sweep.tick() => house.connections.borrow_mut().close_slow(),
                _ = interrupt.recv(), if served.by_interrupt => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
        }
    })
}

/// All that requests need.
struct House {
    doors: Doors,
    looks: Desk<Look, Result<Vec<u8>, Fault>>,
    states: Desk<(), Result<Arc<State>, Fault>>,
    books: Desk<Question, Result<Value, Fault>>,
    commands: Desk<Value, Result<Value, Fault>>,
    /// Bytes of answers that may still be sent at once.
    room: Arc<Semaphore>,
    connections: RefCell<Connections>,
    connections_max: usize,
}

/// The state of the data folder and of its instrument at one moment.
struct State {
    status: Status,
    glance: Map<String, Value>,
    /// The parts of the first line of the page.
    verdict: Vec<Part>,
    /// Free bytes by place.
    free: Vec<(&'static str, u64)>,
}

/// The verdict on a state, with what the running instrument reports.
fn verdict_of(status: &Status, glance: &Map<String, Value>) -> Vec<Part> {
    let none = Map::new();
    let map = |key: &str| glance.get(key).and_then(Value::as_object).unwrap_or(&none);
    let faults = glance.get("troubles").and_then(Value::as_array).map_or(0, Vec::len);
    verdict::verdict(status, Report { running: map("running"), faults, hosts: map("hosts") })
}

impl House {
    fn new(served: &Served) -> Result<Self, Fault> {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let names = doors::names(&text("/proc/sys/kernel/hostname"), &text("/etc/resolv.conf"));
        let descriptors = descriptors(&text("/proc/self/limits"));
        let mut looker = Looker::new(&served.data, descriptors / 8);
        let (data, instrument) = (served.data.clone(), served.instrument.clone());
        let (books, commander) = (served.data.clone(), served.instrument.clone());
        let (mut watch, mut last) = (Watch::new(&data).newest(RUNS_SHOWN), None::<(Instant, Arc<State>)>);
        let states = move |()| {
            if let Some((_, state)) = last.as_ref().filter(|(made, _)| made.elapsed() < STATUS_AGE) {
                return Ok(state.clone());
            }
            if !data.folder.is_dir() {
                let what = format!("cannot read data folder `{}`", data.folder.display());
                return Err(Fault::new(what, "it is not there").hint("restore it, or start `beamport up` again"));
            }
            let status = watch.status(data.media.now(), false)?;
            let places = [("data", data.folder.as_path()), ("memory", Path::new("/dev/shm"))];
            let free = |(name, path)| Some((name, data.media.free(path).ok()?));
            let free = places.into_iter().filter_map(free).collect();
            let glance = instrument.glance();
            let verdict = verdict_of(&status, &glance);
            let state = Arc::new(State { status, glance, verdict, free });
            last = Some((Instant::now(), state.clone()));
            Ok(state)
        };
        Ok(Self {
            doors: Doors { tokens: served.tokens.clone(), open: served.plan.open, names },
            looks: Desk::open("look", move |request| looker.look(&request))?,
            states: Desk::open("status", states)?,
            books: Desk::open("books", move |question: Question| question.answer(&books))?,
            commands: Desk::open("commands", move |request| commander.command(&request))?,
            room: Arc::new(Semaphore::new(ANSWERS_BYTES_MAX)),
            connections: RefCell::default(),
            connections_max: CONNECTIONS_MAX.min(descriptors / 2),
        })
    }

    /// Serves a connection in a task of its own.
    fn welcome(house: &Rc<Self>, stream: tokio::net::TcpStream) {
        let _ = stream.set_nodelay(true);
        let id = {
            let mut connections = house.connections.borrow_mut();
            if connections.tasks.len() >= house.connections_max {
                connections.make_room();
            }
            connections.newest += 1;
            connections.newest
        };
        let here = house.clone();
        let task = spawn_local(async move {
            let service = service_fn(|request| {
                here.connections.borrow_mut().used(id);
                let here = here.clone();
                async move {
                    let answer = here.answer(request).await;
                    here.connections.borrow_mut().used(id);
                    Ok::<_, Infallible>(answer)
                }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(REQUEST_PATIENCE).max_buf_size(64 << 10);
            if let Err(e) = http.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!("a connection ended: {e}");
            }
            here.connections.borrow_mut().ended(id);
        });
        house.connections.borrow_mut().begun(id, task);
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let answer = match self.doors.guard(request.method(), request.headers()) {
            Ok(()) => self.route(request).await,
            Err(refusal) => Err(refusal),
        };
        let mut response = answer.unwrap_or_else(|(status, fault)| {
            let body = json!({"fault": fault.to_json()}).to_string();
            let mut response = reply("application/json", body.into());
            *response.status_mut() = status;
            if status == StatusCode::SERVICE_UNAVAILABLE {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            response
        });
        let headers: [(HeaderName, &str); 4] = [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
        ];
        for (name, value) in headers {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn route(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Refusal> {
        let path = request.uri().path().to_owned();
        match (request.method().as_str(), path.as_str()) {
            ("GET", "/api/status") => {
                let role = self.doors.admit(request.headers(), Role::View)?;
                let state = self.state().await?;
                let mut value = serde_json::to_value(&state.status).unwrap_or_default();
                if let Some(object) = value.as_object_mut() {
                    object.extend(state.glance.clone());
                    object.insert("verdict".into(), serde_json::to_value(&state.verdict).unwrap_or_default());
                    object.insert("web".into(), json!({"pid": std::process::id(), "role": role.word()}));
                }
                self.sent("application/json", value.to_string().into()).await
            }
            ("GET", "/metrics") => {
                self.doors.admit(request.headers(), Role::View)?;
                let state = self.state().await?;
                let text = metrics::text(&state.status, &state.glance, &state.verdict, &state.free);
                self.sent("text/plain; version=0.0.4; charset=utf-8", text.into()).await
            }
            ("POST", "/api/look") => {
                self.doors.admit(request.headers(), Role::View)?;
                let look = body(request)
                    .await
                    .and_then(|bytes| Look::read(&bytes).map_err(|fault| (StatusCode::BAD_REQUEST, fault)))?;
                let answer = self.looks.ask(look).await.ok_or_else(busy)?;
                self.sent("application/octet-stream", answer.map_err(unreadable)?).await
            }
            ("POST", "/api/command") => {
                self.doors.admit(request.headers(), Role::Control)?;
                let command = body(request).await.and_then(|bytes| command(&bytes))?;
                // The instrument refuses what it cannot do: that is the answer.
                let answer = match self.commands.ask(command).await.ok_or_else(busy)? {
                    Ok(value) => json!({"ok": value}),
                    Err(fault) => json!({"fault": fault.to_json()}),
                };
                self.sent("application/json", answer.to_string().into()).await
            }
            ("GET", path) if path.starts_with("/api/") => {
                self.doors.admit(request.headers(), Role::View)?;
                let question = path.strip_prefix("/api/").and_then(Question::of).ok_or_else(nothing)?;
                let answer = self.books.ask(question).await.ok_or_else(busy)?;
                // A stream that is absent, or cannot be read, is a fault for the user.
                let answer = answer.map_err(|fault| (StatusCode::UNPROCESSABLE_ENTITY, fault))?;
                self.sent("application/json", answer.to_string().into()).await
            }
            ("GET", path) => match page::at(path) {
                Some((mime, bytes)) => Ok(reply(mime, Bytes::from_static(bytes))),
                None => Err(nothing()),
            },
            (_, "/api/status" | "/api/look" | "/api/command" | "/metrics") => {
                Err(refused(StatusCode::METHOD_NOT_ALLOWED, "this path has another method", "see the reference page"))
            }
            _ => Err(nothing()),
        }
    }

    async fn state(&self) -> Result<Arc<State>, Refusal> {
        self.states.ask(()).await.ok_or_else(busy)?.map_err(unreadable)
    }

    /// An answer that counts for as long as it is being sent.
    async fn sent(&self, mime: &'static str, bytes: Vec<u8>) -> Result<Response<Full<Bytes>>, Refusal> {
        let permits = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let room = self.room.clone().try_acquire_many_owned(permits).map_err(|_| busy())?;
        Ok(reply(mime, Bytes::from_owner(Sent { bytes, _room: room })))
    }
}

/// Bytes of an answer, and the room that they take until they are sent.
struct Sent {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Descriptors that the system allows this process. A connection needs one, an open stream up to three: half of them
/// are for connections, three eighths for streams, and the others for the files of a moment.
fn descriptors(limits: &str) -> usize {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1024).max(64)
}

fn reply(mime: &'static str, bytes: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(mime));
    response
}

fn refused(status: StatusCode, what: &str, hint: &str) -> Refusal {
    (status, Fault::new(what, "").hint(hint))
}

fn nothing() -> Refusal {
    refused(StatusCode::NOT_FOUND, "there is nothing at this path", "docs/reference/web.md lists the paths")
}

/// The command in a request, with who gave it.
fn command(bytes: &[u8]) -> Result<Value, Refusal> {
    let wrong = |cause: String| {
        let fault = Fault::new("the command is wrong", cause);
        Err((StatusCode::BAD_REQUEST, fault.hint(format!("commands are {}", COMMANDS.join(", ")))))
    };
    let mut command: Value = match serde_json::from_slice(bytes) {
        Ok(command) => command,
        Err(e) => return wrong(e.to_string()),
    };
    let is_known = command["command"].as_str().is_some_and(|word| COMMANDS.contains(&word));
    match command.as_object_mut().filter(|_| is_known) {
        Some(object) => {
            object.insert("from".into(), "page, control token".into());
            Ok(command)
        }
        None => wrong("it has no `command`, or another one".into()),
    }
}

fn busy() -> Refusal {
    let fault = Fault::new("the request was not answered", "too many others wait").hint("ask again in a second");
    (StatusCode::SERVICE_UNAVAILABLE, fault)
}

fn unreadable(fault: Fault) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, fault)
}

/// The body of a request, whole and in time.
async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let body = Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect();
    match tokio::time::timeout(REQUEST_PATIENCE, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(e)) => Err((StatusCode::BAD_REQUEST, Fault::new("the body of the request was not read", e))),
        Err(_) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the body of the request did not arrive", "")),
    }
}

/// The open connections, in the order of their last use.
#[derive(Default)]
struct Connections {
    /// Number of the newest.
    newest: u64,
    /// Uses so far.
    uses: u64,
    /// By use: number and time.
    order: BTreeMap<u64, (u64, Instant)>,
    /// By number: the last use, and its task.
    tasks: BTreeMap<u64, (u64, JoinHandle<()>)>,
}

impl Connections {
    fn begun(&mut self, id: u64, task: JoinHandle<()>) {
        self.uses += 1;
        self.order.insert(self.uses, (id, Instant::now()));
        self.tasks.insert(id, (self.uses, task));
    }

    /// A request came in, or its answer is ready.
    fn used(&mut self, id: u64) {
        if let Some((use_, _)) = self.tasks.get_mut(&id) {
            self.order.remove(use_);
            self.uses += 1;
            *use_ = self.uses;
            self.order.insert(self.uses, (id, Instant::now()));
        }
    }

    fn ended(&mut self, id: u64) {
        if let Some((use_, _)) = self.tasks.remove(&id) {
            self.order.remove(&use_);
        }
    }

    /// Closes the one that was used longest ago.
    fn make_room(&mut self) {
        if let Some((_, (id, _))) = self.order.pop_first()
            && let Some((_, task)) = self.tasks.remove(&id)
        {
            task.abort();
        }
    }

    /// Closes those that have had no use for so long that their answer is stuck.
    fn close_slow(&mut self) {
        while self.order.first_key_value().is_some_and(|(_, (_, since))| since.elapsed() > ANSWER_PATIENCE) {
            self.make_room();
        }
    }
}
