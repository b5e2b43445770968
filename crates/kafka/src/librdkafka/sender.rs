//! A producer of few messages, each of which is copied.

use super::{Client, Kind, Queue, Topic, Wrong, c, last, text_of};
use std::ptr;
use std::sync::Arc;

/// A producer. Fields are dropped from above: the queue before the client.
pub(crate) struct Sending {
    events: Queue,
    client: Arc<Client>,
}

impl Sending {
    /// The error is as that of [`Client::new`].
    pub(crate) fn new(properties: &[(String, String)]) -> Result<Self, (String, String)> {
        let kind = c::rd_kafka_type_t::RD_KAFKA_PRODUCER;
        let client = Client::with_events(kind, properties, c::RD_KAFKA_EVENT_ERROR | c::RD_KAFKA_EVENT_DR)?;
        Ok(Self { events: Queue::main(&client), client })
    }

    /// Hands over a message, which is copied. Whether it arrives is said by [`Sending::failed`].
    pub(crate) fn send(&self, topic: &str, payload: &[u8]) -> Result<(), Wrong> {
        let topic = Topic::new(&self.client, topic)?;
        // SAFETY: the topic lives, and librdkafka keeps one of its own for the message; the payload is copied; there is
        // no key and nothing to come back with the report.
        let sent = unsafe {
            c::rd_kafka_produce(
                topic.raw.as_ptr(),
                super::group::any_partition(),
                c::RD_KAFKA_MSG_F_COPY,
                payload.as_ptr().cast_mut().cast(),
                payload.len(),
                ptr::null(),
                0,
                ptr::null_mut(),
            )
        };
        if sent == 0 { Ok(()) } else { Err(last()) }
    }

    /// Messages that are not delivered yet.
    pub(crate) fn pending(&self) -> usize {
        // SAFETY: the client lives.
        usize::try_from(unsafe { c::rd_kafka_outq_len(self.client.0.as_ptr()) }).unwrap_or(0)
    }

    /// Takes reports for so long; what could not be delivered.
    pub(crate) fn failed(&self, timeout_ms: i32) -> Vec<Wrong> {
        let mut failed = Vec::new();
        let mut patience = timeout_ms;
        while let Some(event) = self.events.event(patience) {
            patience = 0;
            let event = event.0.as_ptr();
            // SAFETY: the event lives until the end of the turn, and its messages with it; errors are read as numbers.
            unsafe {
                if c::rd_kafka_event_type(event) != c::RD_KAFKA_EVENT_DR {
                    continue;
                }
                loop {
                    let message = c::rd_kafka_event_message_next(event);
                    if message.is_null() {
                        break;
                    }
                    let code = (&raw const (*message).err).cast::<i32>().read();
                    if code != 0 {
                        let text = text_of(c::rd_kafka_message_errstr(message));
                        failed.push(Wrong { kind: Kind::of(code), text });
                    }
                }
            }
        }
        failed
    }
}
