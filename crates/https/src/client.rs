//! The client side of a connection: opens it, asks, and follows the endless answer of a stream.
//!
//! Failure behaviour: every error names the other host and the cause; the caller opens the connection again.

use crate::framing::{Frames, Position};
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_PATIENCE, OPEN_PATIENCE, SILENCE_MAX};
use crate::section::{HostPlan, Url};
use crate::tls;
use bytes::Bytes;
use flow::{Fault, Passes};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use socket2::{SockRef, TcpKeepalive};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// The head with the name of the host that asks.
pub(crate) const HOST_HEAD: &str = "beamport-host";
/// The head with the name of the instrument.
pub(crate) const INSTRUMENT_HEAD: &str = "beamport-instrument";

/// Another host, as this one reaches it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Name of the instrument.
    pub(crate) instrument: String,
    /// The other host.
    pub(crate) near: Arc<HostPlan>,
    /// This host; none for a monitor.
    pub(crate) own: Option<Arc<HostPlan>>,
    /// The host of the certificate that is shown.
    pub(crate) shows: Option<Arc<HostPlan>>,
}

/// An open connection; it ends when this is dropped.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: AbortHandle,
    token: Option<String>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

impl Peer {
    fn url(&self) -> Result<&Url, Fault> {
        let what = || Fault::new(format!("host `{}` cannot be reached", self.near.name), "it has no `url`");
        self.near.url.as_ref().ok_or_else(what)
    }

    /// The other side, as a noun.
    fn noun(&self) -> String {
        format!("host `{}`", self.near.name)
    }

    fn fault(&self, cause: impl std::fmt::Display) -> Fault {
        let url = self.near.url.as_ref().map(Url::text).unwrap_or_default();
        let hint = format!("look whether `beamport up FILE --host {}` runs there, and at its `url`", self.near.name);
        let fault = Fault::new(format!("{} does not answer at {url}", self.noun()), cause).hint(hint);
        Fault { passes: Passes::Soon, ..fault }
    }

    fn ended(&self, error: &(dyn Error + 'static)) -> Fault {
        self.fault(tls::cause(error, &self.noun()))
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Connection, Fault> {
        let url = self.url()?;
        let late = |_| self.fault(format!("no connection within {} s", OPEN_PATIENCE.as_secs()));
        let stream = timeout(OPEN_PATIENCE, TcpStream::connect((url.host.as_str(), url.port))).await;
        let stream = stream.map_err(late)?.map_err(|e| self.ended(&e))?;
        keep_alive(&stream).map_err(|e| self.ended(&e))?;
        let token = self.near.token.as_ref().map(|token| token.resolve(&self.near.name)).transpose()?;
        if !url.is_secure {
            return self.speak(stream, token).await;
        }
        let config = tls::client(self.shows.as_deref(), &self.near)?;
        let name = ServerName::try_from(url.host.clone()).map_err(|e| self.fault(e))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = timeout(OPEN_PATIENCE, connector.connect(name, stream)).await;
        let stream = stream.map_err(late)?.map_err(|e| self.ended(&e))?;
        self.speak(stream, token).await
    }

    async fn speak<S>(&self, stream: S, token: Option<String>) -> Result<Connection, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let opened = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|e| self.ended(&e))?;
        let task = tokio::spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!("a connection ended: {e}");
            }
        });
        Ok(Connection { sender, task: task.abort_handle(), token })
    }

    /// Asks on a connection.
    pub(crate) async fn ask(
        &self,
        connection: &mut Connection,
        ask: Ask,
        patience: Duration,
    ) -> Result<Response<Incoming>, Fault> {
        let url = self.url()?;
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.path)
            .header(HOST, url.authority())
            .header(INSTRUMENT_HEAD, &self.instrument);
        if let Some(own) = &self.own {
            request = request.header(HOST_HEAD, &own.name);
        }
        if let Some(token) = &connection.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(ask.body)).map_err(|e| self.fault(e))?;
        let answered = timeout(patience, async {
            connection.sender.ready().await?;
            connection.sender.send_request(request).await
        });
        let late = |_| self.fault(format!("no answer within {} s", patience.as_secs()));
        answered.await.map_err(late)?.map_err(|e| self.ended(&e))
    }

    /// The body of an answer, whole, and whether it is one of success.
    pub(crate) async fn whole(&self, response: Response<Incoming>) -> Result<(StatusCode, Value), Fault> {
        let status = response.status();
        let body = timeout(ANSWER_PATIENCE, Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect()).await;
        let body = body.map_err(|_| self.fault("its answer does not end"))?;
        let body = body.map_err(|e| self.fault(tls::cause(e.as_ref(), &self.noun())))?.to_bytes();
        let value = serde_json::from_slice(&body);
        Ok((status, value.map_err(|_| self.fault(format!("its answer of status {status} cannot be read")))?))
    }

    /// The fault in an answer.
    pub(crate) fn refused(&self, status: StatusCode, answer: &Value) -> Fault {
        match &answer["fault"] {
            Value::Object(_) => {
                let fault = Fault::of_json(&answer["fault"]);
                let (what, hint) = (format!("{} refuses: {}", self.noun(), fault.what), fault.hint);
                Fault { passes: Passes::Soon, ..Fault::new(what, fault.cause).hint(hint) }
            }
            _ => self.fault(format!("it answers with status {status}")),
        }
    }

    /// Asks on a connection, which is opened where there is none, and dropped where the question fails. Returns the
    /// answer, which is one of success.
    pub(crate) async fn answer(
        &self,
        connection: &mut Option<Connection>,
        ask: Ask,
        patience: Duration,
    ) -> Result<Value, Fault> {
        let mut open = match connection.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        let response = self.ask(&mut open, ask, patience).await?;
        match self.whole(response).await? {
            (status, value) if status.is_success() => {
                *connection = Some(open);
                Ok(value)
            }
            (status, value) => Err(self.refused(status, &value)),
        }
    }

    /// Follows a stream from a position on, `begin` where there is none, until the connection ends: every block goes to
    /// `take`, which may wait.
    pub(crate) async fn follow<T: Future<Output = ()>>(
        &self,
        stream: &str,
        from: Option<Position>,
        mut take: impl FnMut(Vec<u8>) -> T,
    ) -> Result<(), Fault> {
        let mut connection = self.connect().await?;
        let from = from.map_or_else(|| "begin".to_owned(), |from| from.text());
        let ask = Ask { method: Method::GET, path: format!("/streams/{stream}?from={from}"), body: Bytes::new() };
        let response = self.ask(&mut connection, ask, ANSWER_PATIENCE).await?;
        if !response.status().is_success() {
            let (status, value) = self.whole(response).await?;
            return Err(self.refused(status, &value));
        }
        let (mut body, mut frames) = (response.into_body(), Frames::default());
        loop {
            let piece = timeout(SILENCE_MAX, body.frame()).await;
            let piece = piece.map_err(|_| self.fault(format!("nothing has come for {} s", SILENCE_MAX.as_secs())))?;
            let Some(piece) = piece else { return Err(self.fault("it has ended the stream")) };
            let Ok(piece) = piece.map_err(|e| self.ended(&e))?.into_data() else { continue };
            let mut piece = &piece[..];
            while let Some(block) = frames.next(&mut piece).map_err(|text| self.fault(text))? {
                if !block.is_empty() {
                    take(block).await;
                }
            }
        }
    }
}

/// Sends at once, and notices a machine that is gone.
pub(crate) fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (time, interval) = (Duration::from_secs(10), Duration::from_secs(5));
    SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval))
}
