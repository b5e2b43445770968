//! The bulletin as its hub keeps it: the newest text of each key, numbered in the order in which they came.
//!
//! Constraints: no socket. Memory is bounded: a post beyond it is refused.
//!
//! Failure behaviour: it ends with its process. The next hub has another identity, by which hosts see that it lacks
//! their posts, and post them again.

use crate::limits::{HUB_BYTES_MAX, READ_BYTES, READER_PAUSE, REMOVED_MAX};
use flow::edge::{Post, Posted};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The process that posts for a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Names the process.
    pub(crate) boot: String,
    /// When it started, ns since 1970 UTC, by its own clock.
    pub(crate) since: i64,
}

/// The hub.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    /// Its identity.
    pub(crate) id: String,
    /// The number of the next post.
    next: u64,
    posts: BTreeMap<u64, Post>,
    /// The newest post of each key.
    numbers: HashMap<String, u64>,
    /// Posts that remove their keys.
    removed: BTreeSet<u64>,
    bytes: usize,
    claims: HashMap<String, Claim>,
}

impl Hub {
    pub(crate) fn new(id: String) -> Self {
        Self { id, ..Self::default() }
    }

    /// Gives a host to a process. `is_new`: the process starts, and replaces any other; else the hub is new, and the
    /// process that started last keeps the host. False: another process has it.
    pub(crate) fn claim(&mut self, host: &str, claim: &Claim, is_new: bool) -> bool {
        match self.claims.get(host) {
            Some(known) if known.boot == claim.boot => true,
            Some(known) if !is_new && known.since > claim.since => false,
            _ => {
                self.claims.insert(host.to_owned(), claim.clone());
                true
            }
        }
    }

    /// Keeps posts of a host, whose claim was made before. An error says why they cannot be kept. `now` in ns since
    /// 1970 UTC.
    pub(crate) fn post(
        &mut self,
        (host, boot): (&str, &str),
        posts: &[(String, String)],
        now: i64,
    ) -> Result<Posted, &'static str> {
        if self.claims.get(host).is_none_or(|known| known.boot != boot) {
            return Ok(Posted::Fenced);
        }
        let more: usize = posts.iter().map(|(key, text)| key.len() + text.len()).sum();
        if self.bytes + more > HUB_BYTES_MAX {
            return Err("the bulletin of the hosts has no room for more");
        }
        if posts.iter().any(|(key, _)| key.is_empty()) {
            return Err("a post has no key");
        }
        posts.iter().for_each(|(key, text)| self.keep(key, text, now));
        Ok(Posted::Kept)
    }

    fn keep(&mut self, key: &str, text: &str, time: i64) {
        let number = self.next;
        self.next += 1;
        if let Some(old) = self.numbers.insert(key.to_owned(), number) {
            self.forget(old);
        }
        self.bytes += key.len() + text.len();
        self.posts.insert(number, Post { key: key.to_owned(), text: text.to_owned(), time });
        if text.is_empty() {
            self.removed.insert(number);
        }
        while self.removed.len() > REMOVED_MAX {
            let Some(oldest) = self.removed.first().copied() else { break };
            if let Some(key) = self.forget(oldest) {
                self.numbers.remove(&key);
            }
        }
    }

    fn forget(&mut self, number: u64) -> Option<String> {
        self.removed.remove(&number);
        let post = self.posts.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(post.key.len() + post.text.len());
        Some(post.key)
    }

    /// One past the newest post.
    pub(crate) fn end(&self) -> u64 {
        self.next
    }

    /// The first posts from a number on, and the number behind them.
    pub(crate) fn read(&self, from: u64) -> (Vec<&Post>, u64) {
        let (mut posts, mut bytes, mut next) = (Vec::new(), 0, self.next);
        for (number, post) in self.posts.range(from.min(self.next)..) {
            if bytes > READ_BYTES {
                next = *number;
                break;
            }
            bytes += post.key.len() + post.text.len();
            posts.push(post);
        }
        (posts, next)
    }
}

/// The hub as the tasks of a server and the host itself use it.
#[derive(Debug)]
pub(crate) struct HubDesk {
    hub: Mutex<Hub>,
    news: watch::Sender<u64>,
    /// Until when each reader asks again, and from which number on it has asked: it has those before.
    readers: Mutex<HashMap<String, (Instant, u64)>>,
}

impl HubDesk {
    pub(crate) fn new(id: String) -> Self {
        Self { hub: Mutex::new(Hub::new(id)), news: watch::Sender::new(0), readers: Mutex::default() }
    }

    /// The hub, for a moment.
    pub(crate) fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those that wait for posts.
    pub(crate) fn wake_readers(&self) {
        self.news.send_replace(self.hub().end());
    }

    /// The number behind the newest post, as it changes.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// A reader asks from a number on, and waits for so long.
    pub(crate) fn see_reader(&self, name: &str, from: u64, wait: Duration) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        readers.retain(|_, (until, _)| *until > now);
        readers.insert(name.to_owned(), (now + wait + READER_PAUSE, from));
    }

    /// Whether every reader that has asked lately has all posts.
    pub(crate) fn is_read(&self) -> bool {
        let end = self.hub().end();
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.values().all(|(until, from)| *from >= end || *until < Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(boot: &str, since: i64) -> Claim {
        Claim { boot: boot.to_owned(), since }
    }

    fn post(hub: &mut Hub, boot: &str, key: &str, text: &str) -> Posted {
        hub.post(("daq", boot), &[(key.to_owned(), text.to_owned())], 7).unwrap()
    }

    fn keys(hub: &Hub, from: u64) -> Vec<String> {
        hub.read(from).0.iter().map(|post| format!("{}={}", post.key, post.text)).collect()
    }

    #[test]
    fn the_newest_text_of_each_key_is_read_in_order_and_once() {
        let mut hub = Hub::new("h".into());
        assert!(hub.claim("daq", &claim("a", 1), true));
        for (key, text) in [("x", "1"), ("y", "2"), ("x", "3"), ("z", "4"), ("y", "")] {
            assert_eq!(post(&mut hub, "a", key, text), Posted::Kept);
        }
        assert_eq!(keys(&hub, 0), ["x=3", "z=4", "y="]);
        let (_, next) = hub.read(0);
        assert_eq!((keys(&hub, next).len(), next), (0, 5));
        post(&mut hub, "a", "z", "5");
        assert_eq!(keys(&hub, next), ["z=5"]);
        // A reader of an earlier hub asks for more than there is.
        assert_eq!(hub.read(100), (Vec::new(), 6));
    }

    #[test]
    fn a_later_process_shuts_out_the_earlier_also_where_the_hub_is_new() {
        let mut hub = Hub::new("h".into());
        assert_eq!(post(&mut hub, "a", "x", "0"), Posted::Fenced);
        assert!(hub.claim("daq", &claim("a", 5), true));
        // The clock of its machine was set back.
        assert!(hub.claim("daq", &claim("b", 3), true));
        assert_eq!(post(&mut hub, "a", "x", "1"), Posted::Fenced);
        assert_eq!(post(&mut hub, "b", "x", "2"), Posted::Kept);
        assert_eq!(keys(&hub, 0), ["x=2"]);
        let mut hub = Hub::new("i".into());
        assert!(hub.claim("daq", &claim("b", 9), false));
        assert!(!hub.claim("daq", &claim("a", 5), false));
        assert!(hub.claim("daq", &claim("c", 10), false));
        assert_eq!(post(&mut hub, "b", "x", "3"), Posted::Fenced);
    }

    #[test]
    fn memory_is_bounded() {
        let mut hub = Hub::new("h".into());
        hub.claim("daq", &claim("a", 1), true);
        for n in 0..REMOVED_MAX + 10 {
            post(&mut hub, "a", &format!("key {n}"), "");
        }
        assert_eq!((hub.posts.len(), hub.numbers.len(), hub.removed.len()), (REMOVED_MAX, REMOVED_MAX, REMOVED_MAX));
        let large = "x".repeat(HUB_BYTES_MAX / 3);
        post(&mut hub, "a", "one", &large);
        post(&mut hub, "a", "two", &large);
        assert!(hub.post(("daq", "a"), &[("three".into(), large.clone())], 7).is_err());
        post(&mut hub, "a", "one", "");
        assert_eq!(post(&mut hub, "a", "three", &large), Posted::Kept);
        // An answer has a bound, too.
        assert_eq!(hub.read(0).0.iter().filter(|post| post.text.len() > READ_BYTES).count(), 1);
    }
}
