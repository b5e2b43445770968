//! Clients, which sources of one mover share: those with the same brokers and properties. A client reads a partition
//! once, so a second source of the same topic gets a client of its own.

use crate::librdkafka::{Client, Queue, Wrong};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Names and values, secrets among them: never shown.
pub(crate) type Pairs = Vec<(String, String)>;

/// Names and values of ours.
pub(crate) fn owned<'a>(pairs: &'a [(&str, &str)]) -> impl Iterator<Item = (String, String)> + 'a {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
}

/// Each name once, with its last value.
pub(crate) fn merged(all: impl Iterator<Item = (String, String)>) -> Pairs {
    let mut merged = Pairs::new();
    for (name, value) in all {
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => merged.push((name, value)),
        }
    }
    merged
}

static CLIENTS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// A client, and what its sources have in common.
struct Shared {
    // Its queue goes before it.
    errors: Queue,
    client: Arc<Client>,
    properties: Pairs,
    topics: Mutex<BTreeSet<String>>,
    said: Mutex<Option<Wrong>>,
}

/// The share of one source in a client: its topics.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    topics: Vec<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claim {
    /// A client with these properties that reads none of these topics; a new one where there is none. The error is as
    /// that of [`Client::new`].
    pub(crate) fn new(properties: Pairs, topics: &[String]) -> Result<Self, (String, String)> {
        let mut clients = lock(&CLIENTS);
        clients.retain(|client| client.strong_count() > 0);
        let is_free = |shared: &Arc<Shared>| {
            let used = lock(&shared.topics);
            shared.properties == properties && !topics.iter().any(|topic| used.contains(topic))
        };
        let known = clients.iter().filter_map(Weak::upgrade).find(is_free);
        let shared = match known {
            Some(shared) => shared,
            None => {
                let client = Client::new(&properties)?;
                let errors = Queue::main(&client);
                let (topics, said) = Default::default();
                let shared = Arc::new(Shared { errors, client, properties, topics, said });
                clients.push(Arc::downgrade(&shared));
                shared
            }
        };
        lock(&shared.topics).extend(topics.iter().cloned());
        Ok(Self { shared, topics: topics.to_vec() })
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.shared.client
    }

    /// Whether messages of transactions that were given up are left out.
    pub(crate) fn is_committed(&self) -> bool {
        !self.shared.properties.iter().any(|(name, value)| name == "isolation.level" && value == "read_uncommitted")
    }

    /// Takes what the client has said of its connections.
    pub(crate) fn take_errors(&self) {
        if let Some(wrong) = self.shared.errors.newest_error() {
            *lock(&self.shared.said) = Some(wrong);
        }
    }

    /// The newest error of its connections since the brokers last answered.
    pub(crate) fn said(&self) -> Option<Wrong> {
        lock(&self.shared.said).clone()
    }

    /// The brokers have answered.
    pub(crate) fn answered(&self) {
        *lock(&self.shared.said) = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut used = lock(&self.shared.topics);
        used.retain(|topic| !self.topics.contains(topic));
    }
}
