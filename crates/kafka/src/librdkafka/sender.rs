//! A producer of few messages, each of which is copied.

use super::{Client, Outgoing, Queue, Topic, Unsent, Wrong};
use std::sync::Arc;

/// A producer. Fields are dropped from above: the queue before the client.
pub(crate) struct Sending {
    events: Queue,
    client: Arc<Client>,
}

impl Sending {
    /// The error is as that of [`Client::new`].
    pub(crate) fn new(properties: &[(String, String)]) -> Result<Self, (String, String)> {
        let client = Client::sends(properties)?;
        Ok(Self { events: Queue::main(&client), client })
    }

    /// Hands over a message, which is copied. Whether it arrives is said by [`Sending::failed`].
    pub(crate) fn send(&self, topic: &str, payload: &[u8]) -> Result<(), Wrong> {
        let topic = Topic::new(&self.client, topic)?;
        topic.send(&Outgoing { payload, ..Outgoing::default() }).map_err(|unsent| match unsent {
            Unsent::Full => Wrong::full(),
            Unsent::Wrong(wrong) => wrong,
        })
    }

    /// Messages that are not delivered yet.
    pub(crate) fn pending(&self) -> usize {
        self.client.waiting()
    }

    /// Takes reports for so long; what could not be delivered.
    pub(crate) fn failed(&self, timeout_ms: i32) -> Vec<Wrong> {
        let mut failed = Vec::new();
        let mut patience = timeout_ms;
        while let Some(event) = self.events.event(patience) {
            patience = 0;
            event.reports(&mut |report| failed.extend(report.offset.err()));
        }
        failed
    }
}
