//! The server of a host: the clients that may ask, the endless answers of streams, positions, and the bulletin of the
//! first host.
//!
//! Constraints: it runs in the thread of the carrier. Clients that are slow or silent cost a bounded number of
//! connections; bodies have limits; a far host has one connection a stream, the newest.
//!
//! Failure behaviour: a client that is refused gets a fault with its cause, and the newest refusal is kept for the
//! sinks, because a person looks there.

use crate::client::{HOST_HEAD, INSTRUMENT_HEAD, keep_alive};
use crate::framing::Position;
use crate::hub::{Claim, HubDesk};
use crate::lane::{Feeder, From, Lane, Wake};
use crate::limits::{
    ANSWER_PATIENCE, BEAT_PAUSE, BEAT_REST, BLOCK_PAUSE, CERTIFICATE_AGE, CONNECTIONS_MAX, HEAD_BYTES_MAX,
    LENGTH_BYTES, OPEN_PATIENCE, PENDING_MAX, POLL_MAX, POSITION_BYTES_MAX, POST_BYTES_MAX, REFUSAL_AGE,
};
use crate::section::HostPlan;
use crate::tls;
use bytes::Bytes;
use flow::edge::{Post, Posted};
use flow::{Data, Fault};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use settings::shortened;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, sleep_until, timeout};

/// A refusal: the status and its reason.
type Refusal = (StatusCode, Fault);
/// The body of an answer.
type Answer = Either<Full<Bytes>, StreamBody>;

/// A stream and the far host that reads it, in this order: far host, stream.
type LaneKey = (String, String);
/// A lane, and what wakes its sink.
type Offered = (Arc<Lane>, Arc<Wake>);

/// The server of a host.
pub(crate) struct Server {
    pub(crate) instrument: String,
    pub(crate) own: Arc<HostPlan>,
    /// Names of all hosts.
    pub(crate) hosts: Vec<String>,
    pub(crate) data: Data,
    /// How far back a host without a mirror begins.
    pub(crate) keep: Duration,
    /// The bulletin, on the first host.
    pub(crate) hub: Option<HubDesk>,
    lanes: Mutex<BTreeMap<LaneKey, Offered>>,
    refused: Mutex<Option<(Instant, String)>>,
    config: Mutex<Option<(Instant, Arc<ServerConfig>)>>,
    gate: Mutex<Gate>,
}

/// The connections.
#[derive(Default)]
struct Gate {
    newest: u64,
    /// Those that have not shown who they are, oldest first.
    pending: VecDeque<(u64, AbortHandle)>,
    known: usize,
}

/// The client of a request.
enum Client {
    Host(String),
    Monitor,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(crate) fn new(
        instrument: &str,
        own: Arc<HostPlan>,
        hosts: Vec<String>,
        data: &Data,
        keep: Duration,
    ) -> Result<Self, Fault> {
        let is_lead = hosts.first().is_some_and(|lead| *lead == own.name);
        let hub = is_lead.then(|| HubDesk::new(store::hex(&data.media.random())));
        let (lanes, refused, config, gate) = Default::default();
        let (instrument, data) = (instrument.to_owned(), data.clone());
        let server = Self { instrument, own, hosts, data, keep, hub, lanes, refused, config, gate };
        if server.is_secure() {
            server.config()?;
        }
        if let Some(token) = &server.own.token {
            token.resolve(&server.own.name)?;
        }
        Ok(server)
    }

    fn is_secure(&self) -> bool {
        self.own.url.as_ref().is_none_or(|url| url.is_secure)
    }

    /// Offers streams to a far host.
    pub(crate) fn offer(&self, far: &str, streams: &[String], wake: &Arc<Wake>) -> Vec<Arc<Lane>> {
        let mut lanes = lock(&self.lanes);
        lanes.iter().filter(|((known, _), _)| known == far).for_each(|(_, (lane, _))| lane.end());
        lanes.retain(|(known, _), _| known != far);
        let offer = |stream: &String| {
            let lane = Arc::new(Lane::new(stream));
            lanes.insert((far.to_owned(), stream.clone()), (lane.clone(), wake.clone()));
            lane
        };
        streams.iter().map(offer).collect()
    }

    /// Withdraws them.
    pub(crate) fn withdraw(&self, far: &str, lanes: &[Arc<Lane>]) {
        lanes.iter().for_each(|lane| lane.end());
        let is_one = |lane: &Arc<Lane>| lanes.iter().any(|one| Arc::ptr_eq(one, lane));
        lock(&self.lanes).retain(|(known, _), (lane, _)| known != far || !is_one(lane));
    }

    /// The newest refusal of a connection, while it is news.
    pub(crate) fn refusal(&self) -> Option<String> {
        let refused = lock(&self.refused);
        refused.as_ref().filter(|(at, _)| at.elapsed() < REFUSAL_AGE).map(|(_, text)| text.clone())
    }

    fn note_refusal(&self, address: SocketAddr, cause: &str) {
        tracing::debug!("a connection from {address} was refused: {cause}");
        *lock(&self.refused) = Some((Instant::now(), format!("a connection from {}: {cause}", address.ip())));
    }

    fn config(&self) -> Result<Arc<ServerConfig>, Fault> {
        let mut known = lock(&self.config);
        if let Some((_, config)) = known.as_ref().filter(|(at, _)| at.elapsed() < CERTIFICATE_AGE) {
            return Ok(config.clone());
        }
        let config = Arc::new(tls::server(&self.own)?);
        *known = Some((Instant::now(), config.clone()));
        Ok(config)
    }
}

/// Accepts connections until it is dropped.
pub(crate) async fn accept(server: Arc<Server>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => welcome(&server, stream, address),
            Err(e) => {
                // There are no descriptors left: the oldest connection of nobody makes room.
                tracing::debug!("a connection was not accepted: {e}");
                lock(&server.gate).make_room();
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

impl Gate {
    fn make_room(&mut self) {
        if let Some((_, oldest)) = self.pending.pop_front() {
            oldest.abort();
        }
    }
}

/// Serves a connection in a task of its own.
fn welcome(server: &Arc<Server>, stream: TcpStream, address: SocketAddr) {
    let mut gate = lock(&server.gate);
    while gate.pending.len() >= PENDING_MAX {
        gate.make_room();
    }
    gate.newest += 1;
    let guest = Arc::new(Guest { server: server.clone(), id: gate.newest, address, is_known: Mutex::new(false) });
    let id = gate.newest;
    let task = tokio::spawn(async move { guest.open(stream).await });
    gate.pending.push_back((id, task.abort_handle()));
}

/// The other side of a connection.
struct Guest {
    server: Arc<Server>,
    id: u64,
    address: SocketAddr,
    /// It has shown who it is.
    is_known: Mutex<bool>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut gate = lock(&self.server.gate);
        gate.pending.retain(|(id, _)| *id != self.id);
        gate.known -= usize::from(*lock(&self.is_known));
    }
}

impl Guest {
    async fn open(self: Arc<Self>, stream: TcpStream) {
        let _ = keep_alive(&stream);
        if !self.server.is_secure() {
            return self.serve(stream, None).await;
        }
        let config = match self.server.config() {
            Ok(config) => config,
            Err(fault) => return self.server.note_refusal(self.address, &format!("{}: {}", fault.what, fault.cause)),
        };
        let opened = timeout(OPEN_PATIENCE, tokio_rustls::TlsAcceptor::from(config).accept(stream)).await;
        match opened {
            Ok(Ok(stream)) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let certificate = certificate.map(|certificate| certificate.clone().into_owned());
                self.serve(stream, certificate).await;
            }
            Ok(Err(e)) => self.server.note_refusal(self.address, &tls::cause(&e, "the client")),
            Err(_) => tracing::debug!("a client at {} has not opened TLS in time", self.address),
        }
    }

    async fn serve<S>(self: Arc<Self>, stream: S, certificate: Option<CertificateDer<'static>>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let (guest, certificate) = (self.clone(), certificate.clone());
            async move { Ok::<_, Infallible>(guest.answer(request, certificate.as_ref()).await) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(OPEN_PATIENCE).max_buf_size(HEAD_BYTES_MAX * 4);
        if let Err(e) = http.serve_connection(TokioIo::new(stream), service).await {
            // Of a client that does not take the certificate of this server, among others.
            if std::error::Error::source(&e).is_some_and(tls::is_alert) {
                self.server.note_refusal(self.address, &tls::cause(&e, "the client"));
            }
            tracing::debug!("a connection from {} ended: {e}", self.address);
        }
    }

    /// The client has shown who it is: its connection does not make room for others. False where there are too many.
    fn be_known(&self) -> bool {
        let mut is_known = lock(&self.is_known);
        let mut gate = lock(&self.server.gate);
        if !*is_known && gate.known >= CONNECTIONS_MAX {
            return false;
        }
        gate.pending.retain(|(id, _)| *id != self.id);
        gate.known += usize::from(!std::mem::replace(&mut *is_known, true));
        true
    }

    async fn answer(&self, request: Request<Incoming>, certificate: Option<&CertificateDer<'_>>) -> Response<Answer> {
        let answer = match self.server.admit(request.headers(), certificate) {
            Ok(_) if !self.be_known() => {
                Err(refusal(StatusCode::SERVICE_UNAVAILABLE, "there are too many connections", ""))
            }
            Ok(who) => self.server.route(request, &who, self.address).await,
            Err((status, fault)) => {
                self.server.note_refusal(self.address, &format!("{}: {}", fault.what, fault.cause));
                Err((status, fault))
            }
        };
        answer.unwrap_or_else(|(status, fault)| {
            let mut response = reply(&json!({"fault": fault.to_json()}));
            *response.status_mut() = status;
            response
        })
    }
}

fn refusal(status: StatusCode, what: &str, cause: &str) -> Refusal {
    (status, Fault::new(what, cause))
}

fn reply(value: &Value) -> Response<Answer> {
    let mut response = Response::new(Either::Left(Full::new(value.to_string().into())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Compares secrets in a time that does not tell how much of them is equal.
fn is_same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

impl Server {
    /// The client, by the certificate of the connection or by the token.
    fn admit(&self, heads: &HeaderMap, certificate: Option<&CertificateDer<'_>>) -> Result<Client, Refusal> {
        let head = |name| heads.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        if let Some(other) = head(INSTRUMENT_HEAD).filter(|other| *other != self.instrument) {
            let cause = format!("it asks for `{}`", shortened(other));
            let what = format!("this is a host of instrument `{}`", self.instrument);
            return Err((StatusCode::CONFLICT, Fault::new(what, cause).hint("check `url` of the hosts")));
        }
        if let (Some(token), None) = (&self.own.token, certificate) {
            let token = token.resolve(&self.own.name).map_err(|fault| (StatusCode::INTERNAL_SERVER_ERROR, fault))?;
            let shown = heads.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
            if !shown.is_some_and(|shown| is_same(shown, &token)) {
                let cause = if shown.is_some() { "it has shown another one" } else { "it has shown none" };
                let what = format!("the client needs a certificate, or the token of host `{}`", self.own.name);
                return Err((StatusCode::UNAUTHORIZED, Fault::new(what, cause).hint("check `token` of that host")));
            }
        }
        let Some(name) = head(HOST_HEAD) else { return Ok(Client::Monitor) };
        let forbidden = |cause: String| {
            let fault = Fault::new(format!("the client is not host `{}`", shortened(name)), cause);
            (StatusCode::FORBIDDEN, fault.hint("its certificate needs the name of the host as `subjectAltName`"))
        };
        if !self.hosts.iter().any(|host| host == name) {
            return Err(forbidden(format!("the hosts are {}", shortened(&self.hosts.join(", ")))));
        }
        if let Some(certificate) = certificate {
            let own = [name.to_owned()];
            if tls::host_of(certificate, &own).is_none() {
                let other = tls::host_of(certificate, &self.hosts);
                let other = other.map_or("of none of the hosts".to_owned(), |other| format!("that of `{other}`"));
                return Err(forbidden(format!("its certificate is {other}")));
            }
        }
        Ok(Client::Host(name.to_owned()))
    }

    async fn route(
        self: &Arc<Self>,
        request: Request<Incoming>,
        who: &Client,
        address: SocketAddr,
    ) -> Result<Response<Answer>, Refusal> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (request.method().as_str(), parts.as_slice()) {
            ("GET", ["streams"]) => {
                let mut names: Vec<String> = lock(&self.lanes).keys().map(|(_, stream)| stream.clone()).collect();
                names.sort_unstable();
                names.dedup();
                Ok(reply(&json!({"instrument": self.instrument, "host": self.own.name, "streams": names})))
            }
            ("GET", ["streams", stream]) => self.stream(stream, request.uri().query(), who, address),
            ("PUT", ["streams", stream, "position"]) => {
                let Client::Host(far) = who else { return Err(of_hosts()) };
                let body = body(request, POSITION_BYTES_MAX).await?;
                self.position(far, stream, &body)
            }
            ("GET", ["bulletin"]) => self.read_posts(request.uri().query().unwrap_or_default(), who, address).await,
            ("POST", ["bulletin"]) => {
                let Client::Host(host) = who else { return Err(of_hosts()) };
                let body = body(request, POST_BYTES_MAX).await?;
                self.post(host, &body)
            }
            (_, ["streams" | "bulletin", ..]) => {
                Err(refusal(StatusCode::METHOD_NOT_ALLOWED, "this path has another method", "see the reference page"))
            }
            _ => Err(refusal(StatusCode::NOT_FOUND, "there is nothing at this path", "see the reference page")),
        }
    }

    /// The endless answer of a stream.
    fn stream(
        self: &Arc<Self>,
        stream: &str,
        query: Option<&str>,
        who: &Client,
        address: SocketAddr,
    ) -> Result<Response<Answer>, Refusal> {
        let from = parameter(query.unwrap_or_default(), "from").unwrap_or("begin");
        let at = match from {
            "begin" => Some(From::Begin),
            "end" => Some(From::End),
            text => Position::read(text).map(From::At),
        };
        let Some(mut at) = at else {
            let what = "the position cannot be read";
            return Err(refusal(StatusCode::BAD_REQUEST, what, "it is `begin`, `end` or UUID/EPOCH/SEQUENCE"));
        };
        let lane = self.lane(who, stream)?;
        if matches!(who, Client::Host(_)) && at == From::Begin && !Data::is_book(stream) {
            let keep = i64::try_from(self.keep.as_nanos()).unwrap_or(i64::MAX);
            at = From::Since(self.data.media.now().saturating_sub(keep));
        }
        let sink = if let Client::Host(far) = who { format!("hosts.{far}") } else { String::new() };
        let feeder = Feeder::open(&self.data, stream, &sink, at);
        let feeder = feeder.map_err(|fault| (StatusCode::INTERNAL_SERVER_ERROR, fault))?;
        let connection = matches!(who, Client::Host(_)).then(|| lane.open(&feeder));
        tracing::debug!("stream {stream} is read from {address} at {from}");
        let (blocks, body) = mpsc::channel(2);
        tokio::spawn(async move {
            feed(&lane, feeder, connection, &blocks).await;
            if let Some(connection) = connection {
                lane.close(connection);
            }
        });
        let mut response = Response::new(Either::Right(StreamBody(body)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Ok(response)
    }

    /// The lane of a stream: of the far host that asks, or of any for a monitor.
    fn lane(&self, who: &Client, stream: &str) -> Result<Arc<Lane>, Refusal> {
        let lanes = lock(&self.lanes);
        let mut of_stream = lanes.iter().filter(|((_, name), _)| name == stream);
        let found = match who {
            Client::Host(far) => of_stream.find(|((host, _), _)| host == far),
            Client::Monitor => of_stream.next(),
        };
        found.map(|(_, (lane, _))| lane.clone()).ok_or_else(|| {
            let to = if let Client::Host(far) = who { format!("host `{far}`") } else { "other hosts".to_owned() };
            let cause = format!("host `{}` does not send it to {to}, or starts just now", self.own.name);
            let fault = Fault::new(format!("there is no stream `{}`", shortened(stream)), cause);
            (StatusCode::NOT_FOUND, fault.hint("start all hosts with the same file"))
        })
    }

    /// A far host has the messages before a position.
    fn position(&self, far: &str, stream: &str, body: &[u8]) -> Result<Response<Answer>, Refusal> {
        let text = std::str::from_utf8(body).unwrap_or_default();
        let (position, frontier) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let frontier = if frontier.is_empty() { Some(i64::MIN) } else { frontier.parse().ok() };
        let (Some(position), Some(frontier)) = (Position::read(position), frontier) else {
            let what = "the position cannot be read";
            return Err(refusal(StatusCode::BAD_REQUEST, what, "it is UUID/EPOCH/SEQUENCE, and perhaps a time in ns"));
        };
        let lane = self.lane(&Client::Host(far.to_owned()), stream)?;
        if !lane.acknowledge(position, frontier) {
            let what = format!("the position is none of stream `{}`", shortened(stream));
            return Err(refusal(StatusCode::CONFLICT, &what, "it is of another stream, or of messages that were cut"));
        }
        if let Some((_, wake)) = lock(&self.lanes).get(&(far.to_owned(), stream.to_owned())) {
            wake.raise();
        }
        Ok(reply(&json!({})))
    }

    fn hub(&self) -> Result<&HubDesk, Refusal> {
        self.hub.as_ref().ok_or_else(|| {
            let lead = self.hosts.first().map_or("", String::as_str);
            let what = format!("the bulletin is at host `{lead}`, not at `{}`", self.own.name);
            refusal(StatusCode::NOT_FOUND, &what, "the first host of the file has it")
        })
    }

    async fn read_posts(&self, query: &str, who: &Client, address: SocketAddr) -> Result<Response<Answer>, Refusal> {
        let desk = self.hub()?;
        let is_same_hub = parameter(query, "hub") == Some(desk.hub().id.as_str());
        let from = parameter(query, "from").and_then(|from| from.parse().ok()).filter(|_| is_same_hub).unwrap_or(0);
        let wait = parameter(query, "wait").and_then(|wait| wait.parse().ok()).unwrap_or(0);
        let wait = Duration::from_millis(wait).min(POLL_MAX);
        let until = tokio::time::Instant::now() + wait;
        if let Client::Host(host) = who {
            desk.see_reader(&format!("{host} {}", address.ip()), from, wait);
        }
        let mut news = desk.news();
        loop {
            news.borrow_and_update();
            {
                let hub = desk.hub();
                let (posts, next) = hub.read(from);
                if !posts.is_empty() || tokio::time::Instant::now() >= until {
                    let posts: Vec<Value> = posts.into_iter().map(value_of).collect();
                    return Ok(reply(&json!({"hub": hub.id, "next": next, "posts": posts})));
                }
            }
            tokio::select! {
                _ = news.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    fn post(&self, host: &str, body: &[u8]) -> Result<Response<Answer>, Refusal> {
        let desk = self.hub()?;
        let wrong = || refusal(StatusCode::BAD_REQUEST, "the posts cannot be read", "see the reference page");
        let value: Value = serde_json::from_slice(body).map_err(|_| wrong())?;
        let (boot, since) = (value["boot"].as_str().ok_or_else(wrong)?, value["since"].as_i64().ok_or_else(wrong)?);
        let claim = Claim { boot: boot.to_owned(), since };
        let posts = value["posts"].as_array().ok_or_else(wrong)?;
        let pair = |post: &Value| Some((post[0].as_str()?.to_owned(), post[1].as_str()?.to_owned()));
        let posts: Vec<(String, String)> = posts.iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)?;
        let mut hub = desk.hub();
        let is_known = value["hub"] == *hub.id;
        if !is_known && !posts.is_empty() {
            // It has lost what this host has posted before.
            return Ok(reply(&json!({"hub": hub.id, "posted": "nothing"})));
        }
        if !is_known && !hub.claim(host, &claim, value["new"] == true) {
            return Ok(reply(&json!({"hub": hub.id, "posted": "fenced"})));
        }
        let posted = hub.post((host, boot), &posts, self.data.media.now());
        let posted = posted.map_err(|text| refusal(StatusCode::INSUFFICIENT_STORAGE, text, ""))?;
        let answer = json!({"hub": hub.id, "posted": if posted == Posted::Kept { "kept" } else { "fenced" }});
        drop(hub);
        desk.wake_readers();
        Ok(reply(&answer))
    }
}

fn of_hosts() -> Refusal {
    let cause = format!("the head `{HOST_HEAD}` is missing");
    refusal(StatusCode::FORBIDDEN, "only a host of the instrument may do that", &cause)
}

/// A post as answers have it.
fn value_of(post: &Post) -> Value {
    json!({"key": post.key, "text": post.text, "time": post.time})
}

/// The value of a parameter. None of them has characters that are coded.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// The body of a request, whole and in time.
async fn body(request: Request<Incoming>, most: usize) -> Result<Bytes, Refusal> {
    let body = timeout(ANSWER_PATIENCE, Limited::new(request.into_body(), most).collect()).await;
    let body = body.map_err(|_| refusal(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time", ""))?;
    let cause = format!("it has more than {most} bytes, or its connection was cut");
    let read = body.map_err(|_| refusal(StatusCode::PAYLOAD_TOO_LARGE, "the request cannot be read", &cause))?;
    Ok(read.to_bytes())
}

/// The body of the answer of a stream.
pub(crate) struct StreamBody(mpsc::Receiver<Bytes>);

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Sends the blocks of a stream until its reader is gone, or a newer connection takes its place.
async fn feed(lane: &Lane, mut feeder: Feeder, connection: Option<u64>, out: &mpsc::Sender<Bytes>) {
    let mut news = lane.news();
    let (mut sent, mut is_begun) = (Instant::now(), false);
    while lane.is_valid(connection) {
        news.borrow_and_update();
        let frontier = lane.frontier();
        match feeder.block(&lane.stream, frontier) {
            Err(fault) => return tracing::warn!("stream {} is not sent: {fault}", lane.stream),
            Ok(Some((block, is_full))) => {
                if send(out, block).await.is_none() {
                    return;
                }
                sent = Instant::now();
                if !is_full {
                    sleep(BLOCK_PAUSE).await;
                }
                continue;
            }
            Ok(None) => {}
        }
        // The first one says that all is read that was there.
        let pause = match is_begun {
            false => Duration::ZERO,
            true if feeder.has_news(frontier) => BEAT_PAUSE,
            true => BEAT_REST,
        };
        let due = sent + pause;
        if due <= Instant::now() {
            let beat = feeder.beat(frontier);
            if send(out, beat).await.is_none() {
                return;
            }
            (sent, is_begun) = (Instant::now(), true);
            continue;
        }
        tokio::select! {
            _ = news.changed() => {}
            () = sleep_until(due.into()) => {}
            () = out.closed() => return,
        }
    }
}

/// Sends a block behind its length; none where nobody reads.
async fn send(out: &mpsc::Sender<Bytes>, block: Vec<u8>) -> Option<()> {
    let length: [u8; LENGTH_BYTES] = (block.len() as u64).to_le_bytes();
    out.send(Bytes::copy_from_slice(&length)).await.ok()?;
    out.send(block.into()).await.ok()
}
