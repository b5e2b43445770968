//! The bulletin of an instrument: posts to the hub of the first host, and reads from it.
//!
//! The host that leads has the hub in its own process. Each host keeps the newest of its own posts, and posts them
//! again when the hub is another one: a hub that was started again knows nothing.
//!
//! Failure behaviour: a hub that cannot be reached is a fault of each call, and the same bulletin resumes when it is
//! back. A later process of a host shuts out the earlier: the hub has the newest claim.

use crate::client::{Ask, Connection, Peer};
use crate::hub::Claim;
use crate::limits::{ANSWER_PATIENCE, LAST_POSTS_PATIENCE, OWN_BYTES_MAX, POLL_MAX, STOP_PAUSE};
use crate::link::Link;
use crate::server::Server;
use bytes::Bytes;
use flow::edge::{Bulletin, Post, Posted};
use flow::{Fault, Passes};
use hyper::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// A key and a text.
type KeyText = (String, String);

/// Where the hub is.
enum Hub {
    /// In this process.
    Here(Arc<Server>),
    /// At another one.
    There(Peer),
}

/// The bulletin.
pub(crate) struct HttpsBulletin {
    hub: Hub,
    handle: Handle,
    /// The host that posts; none where this bulletin is only read.
    host: Option<String>,
    claim: Claim,
    /// The hub that has the claim and the own posts.
    posted_to: String,
    is_fenced: bool,
    own: Own,
    /// The host that leads, where another process has its port still.
    unserved: Option<(Arc<Link>, String)>,
    posting: Option<Connection>,
    reading: Option<Connection>,
    /// The hub that was read, and the number of the next post there.
    read_from: (String, u64),
    /// The connections of a bulletin without a host.
    _thread: Option<crate::link::Thread>,
}

/// The newest own posts.
#[derive(Default)]
struct Own {
    texts: BTreeMap<String, String>,
    /// Keys in the order in which they were posted first.
    order: VecDeque<String>,
    bytes: usize,
}

impl Own {
    fn keep(&mut self, key: &str, text: &str) {
        match self.texts.insert(key.to_owned(), text.to_owned()) {
            Some(old) => self.bytes = self.bytes.saturating_sub(old.len()),
            None => {
                self.order.push_back(key.to_owned());
                self.bytes += key.len();
            }
        }
        self.bytes += text.len();
        if text.is_empty() {
            self.forget(key);
        }
        while self.bytes > OWN_BYTES_MAX
            && let Some(oldest) = self.order.front().cloned()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &str) {
        if let Some(text) = self.texts.remove(key) {
            self.bytes = self.bytes.saturating_sub(key.len() + text.len());
            self.order.retain(|known| known != key);
        }
    }

    fn all(&self) -> Vec<KeyText> {
        self.order.iter().filter_map(|key| Some((key.clone(), self.texts.get(key)?.clone()))).collect()
    }
}

impl HttpsBulletin {
    /// Opens the bulletin for a host, which takes the host over from an earlier process.
    pub(crate) fn open(link: &Arc<Link>, instrument: &str) -> Result<Self, Fault> {
        let handle = link.handle()?;
        let is_lead = link.lead().name == link.own.name;
        let served = is_lead.then(|| link.server(instrument)).transpose();
        let (hub, unserved) = match served {
            Ok(Some(server)) => (Hub::Here(server), None),
            Ok(None) => (Hub::There(link.peer(&link.lead().name, instrument)?), None),
            // Another process may run this host: it learns of this one by its claim and its beat, and ends.
            Err(fault) => (Hub::There(link.peer(&link.own.name, instrument)?), Some(fault)),
        };
        let claim = Claim { boot: store::hex(&link.data.media.random()), since: link.data.media.now() };
        let mut bulletin = Self::new(hub, handle, Some(link.own.name.clone()), claim);
        match (bulletin.claim(true), unserved) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => bulletin.unserved = Some((link.clone(), instrument.to_owned())),
            (Err(fault), unserved) => return Err(unserved.unwrap_or(fault)),
        }
        Ok(bulletin)
    }

    /// Serves the bulletin once the other process has freed the port.
    fn serve(&mut self) {
        if let Some((link, instrument)) = &self.unserved
            && let Ok(server) = link.server(instrument)
        {
            self.hub = Hub::Here(server);
            (self.unserved, self.read_from) = (None, Default::default());
        }
    }

    /// Opens it only to read.
    pub(crate) fn reading(peer: Peer, thread: crate::link::Thread) -> Self {
        let handle = thread.handle.clone();
        let mut bulletin = Self::new(Hub::There(peer), handle, None, Claim::default());
        bulletin._thread = Some(thread);
        bulletin
    }

    fn new(hub: Hub, handle: Handle, host: Option<String>, claim: Claim) -> Self {
        Self {
            hub,
            handle,
            host,
            claim,
            posted_to: String::new(),
            is_fenced: false,
            own: Own::default(),
            unserved: None,
            posting: None,
            reading: None,
            read_from: Default::default(),
            _thread: None,
        }
    }

    /// Claims the host at the hub. False: another process has it.
    fn claim(&mut self, is_new: bool) -> Result<bool, Fault> {
        let host = self.host.clone().unwrap_or_default();
        if let Hub::Here(server) = &self.hub {
            let Some(desk) = &server.hub else { return Ok(false) };
            let mut hub = desk.hub();
            self.posted_to.clone_from(&hub.id);
            return Ok(hub.claim(&host, &self.claim, is_new));
        }
        let answer = self.ask_to_post("", is_new, &[])?;
        self.posted_to = answer["hub"].as_str().unwrap_or_default().to_owned();
        Ok(answer["posted"] == "kept")
    }

    fn ask_to_post(&mut self, hub: &str, is_new: bool, posts: &[KeyText]) -> Result<Value, Fault> {
        let Claim { boot, since } = &self.claim;
        let body = json!({"hub": hub, "boot": boot, "since": since, "new": is_new, "posts": posts}).to_string();
        let ask = Ask { method: Method::POST, path: "/bulletin".into(), body: body.into() };
        let Hub::There(peer) = &self.hub else { return Ok(Value::Null) };
        let posting = &mut self.posting;
        self.handle.block_on(peer.answer(posting, ask, ANSWER_PATIENCE))
    }

    fn post_once(&mut self, posts: &[KeyText]) -> Result<Option<Posted>, Fault> {
        if let (Hub::Here(server), Some(host)) = (&self.hub, &self.host) {
            let Some(desk) = server.hub.as_ref().filter(|desk| desk.hub().id == self.posted_to) else {
                return Ok(None);
            };
            let posted = desk.hub().post((host, &self.claim.boot), posts, server.data.media.now());
            desk.wake_readers();
            return posted.map(Some).map_err(|text| Fault::new("a post was not kept", text));
        }
        let answer = self.ask_to_post(&self.posted_to.clone(), false, posts)?;
        Ok(match answer["posted"].as_str() {
            Some("kept") => Some(Posted::Kept),
            Some("fenced") => Some(Posted::Fenced),
            _ => None,
        })
    }
}

impl Bulletin for HttpsBulletin {
    fn post(&mut self, posts: &[KeyText]) -> Result<Posted, Fault> {
        if self.host.is_none() {
            return Err(Fault::new("the bulletin is only read", "no host was named"));
        }
        if self.is_fenced {
            return Ok(Posted::Fenced);
        }
        if posts.is_empty() {
            return Ok(Posted::Kept);
        }
        self.serve();
        let mut posted = self.post_once(posts)?;
        if posted.is_none() {
            // The hub is a new one.
            if self.claim(false)? {
                let mut all = self.own.all();
                all.extend_from_slice(posts);
                posted = self.post_once(&all)?;
            } else {
                posted = Some(Posted::Fenced);
            }
        }
        let again = || Fault::new("a post was not kept", "the host that leads has just started again");
        let posted = posted.ok_or_else(|| Fault { passes: Passes::Soon, ..again() })?;
        self.is_fenced = posted == Posted::Fenced;
        if posted == Posted::Kept {
            posts.iter().for_each(|(key, text)| self.own.keep(key, text));
        }
        Ok(posted)
    }

    fn read(&mut self, patience: Duration) -> Result<Vec<Post>, Fault> {
        let patience = patience.min(POLL_MAX);
        if let Hub::Here(server) = &self.hub {
            let Some(desk) = &server.hub else { return Ok(Vec::new()) };
            let mut news = desk.news();
            let from = self.read_from.1;
            if desk.hub().end() <= from {
                let _ = self.handle.block_on(async { timeout(patience, news.changed()).await });
            }
            let hub = desk.hub();
            let (posts, next) = hub.read(from);
            self.read_from.1 = next;
            return Ok(posts.into_iter().cloned().collect());
        }
        let (hub, from) = &self.read_from;
        let path = format!("/bulletin?hub={hub}&from={from}&wait={}", patience.as_millis());
        let ask = Ask { method: Method::GET, path, body: Bytes::new() };
        let Hub::There(peer) = &self.hub else { return Ok(Vec::new()) };
        let reading = &mut self.reading;
        let answer = self.handle.block_on(peer.answer(reading, ask, patience + ANSWER_PATIENCE))?;
        let post = |post: &Value| {
            let text = |key: &str| post[key].as_str().map(str::to_owned);
            Some(Post { key: text("key")?, text: text("text")?, time: post["time"].as_i64()? })
        };
        let posts: Option<Vec<Post>> = answer["posts"].as_array().and_then(|posts| posts.iter().map(post).collect());
        let read_from = answer["hub"].as_str().zip(answer["next"].as_u64());
        let (Some(posts), Some((hub, next))) = (posts, read_from) else {
            return Err(Fault::new("the bulletin cannot be read", "the answer of the host that leads is none"));
        };
        self.read_from = (hub.to_owned(), next);
        Ok(posts)
    }
}

impl Drop for HttpsBulletin {
    fn drop(&mut self) {
        // The hub ends with this process: the others are to have its last posts.
        if let Hub::Here(server) = &self.hub {
            let until = Instant::now() + LAST_POSTS_PATIENCE;
            while server.hub.as_ref().is_some_and(|desk| !desk.is_read()) && Instant::now() < until {
                std::thread::sleep(STOP_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_posts_are_kept_newest_text_first_key_and_within_a_bound() {
        let mut own = Own::default();
        for (key, text) in [("a", "1"), ("b", "2"), ("a", "3"), ("b", "")] {
            own.keep(key, text);
        }
        assert_eq!((own.all(), own.bytes), (vec![("a".to_owned(), "3".to_owned())], 2));
        let large = "x".repeat(OWN_BYTES_MAX / 2);
        for key in ["c", "d", "e"] {
            own.keep(key, &large);
        }
        assert_eq!(own.order, ["e"]);
        own.keep("e", "");
        assert_eq!((own.all().len(), own.bytes), (0, 0));
    }
}
