//! Members of a consumer group.

use super::{Client, Event, Kind, Queue, Wake, Wrong, c, c_string, text_of};
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Any partition of a topic (`RD_KAFKA_PARTITION_UA`).
pub(super) fn any_partition() -> i32 {
    -1
}

/// Functions whose answer is an error code, as a number.
mod codes {
    use super::{c, c_int};

    #[allow(clashing_extern_declarations, reason = "the bindings answer with an enum that lacks codes")]
    unsafe extern "C" {
        pub(super) fn rd_kafka_subscribe(
            client: *mut c::rd_kafka_t,
            topics: *const c::rd_kafka_topic_partition_list_t,
        ) -> i32;
        pub(super) fn rd_kafka_assign(
            client: *mut c::rd_kafka_t,
            partitions: *const c::rd_kafka_topic_partition_list_t,
        ) -> i32;
        pub(super) fn rd_kafka_committed(
            client: *mut c::rd_kafka_t,
            partitions: *mut c::rd_kafka_topic_partition_list_t,
            timeout_ms: c_int,
        ) -> i32;
        pub(super) fn rd_kafka_commit(
            client: *mut c::rd_kafka_t,
            offsets: *const c::rd_kafka_topic_partition_list_t,
            is_async: c_int,
        ) -> i32;
        pub(super) fn rd_kafka_consumer_close(client: *mut c::rd_kafka_t) -> i32;
        pub(super) fn rd_kafka_pause_partitions(
            client: *mut c::rd_kafka_t,
            partitions: *mut c::rd_kafka_topic_partition_list_t,
        ) -> i32;
        pub(super) fn rd_kafka_resume_partitions(
            client: *mut c::rd_kafka_t,
            partitions: *mut c::rd_kafka_topic_partition_list_t,
        ) -> i32;
    }
}

/// The answer of a call as a value.
fn answered(code: i32) -> Result<(), Wrong> {
    if code == 0 { Ok(()) } else { Err(Wrong::of(code)) }
}

/// Partitions of one topic with an offset each.
struct List(NonNull<c::rd_kafka_topic_partition_list_t>);

/// The offset that a group has committed of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) partition: i32,
    /// None where it has committed nothing.
    pub(crate) offset: Option<u64>,
    /// The text that was committed with it.
    pub(crate) note: String,
}

impl List {
    fn new(topic: &str, partitions: &[(i32, Option<u64>)]) -> Result<Self, Wrong> {
        let name = c_string(topic)?;
        // SAFETY: the list is ours; the name is copied; elements live in the list.
        unsafe {
            let list = c::rd_kafka_topic_partition_list_new(c_int::try_from(partitions.len()).unwrap_or(0));
            let list = Self(NonNull::new(list).unwrap_or_else(|| std::process::abort()));
            for (partition, offset) in partitions {
                let element = c::rd_kafka_topic_partition_list_add(list.0.as_ptr(), name.as_ptr(), *partition);
                if let Some(offset) = offset {
                    (*element).offset = i64::try_from(*offset).unwrap_or(i64::MAX);
                }
            }
            Ok(list)
        }
    }

    /// Puts a text beside the offset of every partition. librdkafka frees it with the list.
    fn note(&self, text: &str) -> Result<(), Wrong> {
        let text = c_string(text)?;
        for element in self.elements() {
            // SAFETY: the element lives with the list and has no text yet; librdkafka frees the text with `free`, which
            // belongs to `strdup`.
            unsafe {
                (*element).metadata = libc::strdup(text.as_ptr()).cast::<c_void>();
                (*element).metadata_size = if (*element).metadata.is_null() { 0 } else { text.as_bytes().len() };
            }
        }
        Ok(())
    }

    fn elements(&self) -> Vec<*mut c::rd_kafka_topic_partition_t> {
        elements(self.0.as_ptr())
    }

    fn committed(&self) -> Vec<Committed> {
        let read = |element: *mut c::rd_kafka_topic_partition_t| {
            // SAFETY: the element lives with the list; its text has that many bytes.
            unsafe {
                let (text, len) = ((*element).metadata.cast::<u8>(), (*element).metadata_size);
                let note = if text.is_null() { &[] } else { std::slice::from_raw_parts(text, len) };
                Committed {
                    partition: (*element).partition,
                    offset: u64::try_from((*element).offset).ok(),
                    note: String::from_utf8_lossy(note).into_owned(),
                }
            }
        };
        self.elements().into_iter().map(read).collect()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { c::rd_kafka_topic_partition_list_destroy(self.0.as_ptr()) }
    }
}

/// The elements of a list that lives.
fn elements(list: *mut c::rd_kafka_topic_partition_list_t) -> Vec<*mut c::rd_kafka_topic_partition_t> {
    if list.is_null() {
        return Vec::new();
    }
    // SAFETY: the list lives and has `cnt` elements.
    unsafe { (0..usize::try_from((*list).cnt).unwrap_or(0)).map(|at| (*list).elems.add(at)).collect() }
}

/// A member of a group that reads one topic. Fields are dropped from above: the queue before the client.
pub(crate) struct Group {
    queue: Queue,
    client: Arc<Client>,
    topic: String,
    /// Partitions come and go one by one (`partition.assignment.strategy`), and not all at once.
    is_cooperative: bool,
}

/// An event of a member.
#[derive(Debug)]
pub(crate) enum GroupEvent {
    /// These partitions are its own from now on; [`Group::assign`] or [`Group::add`] begins to read them.
    Assigned(Vec<i32>),
    /// These partitions are to go to others: all that it has, which it has released, or those that a cooperative member
    /// releases with [`Group::release`].
    Revoked(Vec<i32>),
    /// A message.
    Message(Taken),
    /// An error.
    Wrong(Wrong),
}

/// A message. It is dropped before its group.
pub(crate) struct Taken {
    pub(crate) partition: i32,
    pub(crate) offset: u64,
    pub(crate) time_ms: i64,
    payload: (*const u8, usize),
    key: (*const u8, usize),
    _event: Event,
}

// SAFETY: librdkafka's events belong to no thread, and nobody writes to the bytes.
unsafe impl Send for Taken {}

impl std::fmt::Debug for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken")
            .field("partition", &self.partition)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

impl Taken {
    /// Its bytes.
    pub(crate) fn payload(&self) -> &[u8] {
        self.bytes(self.payload)
    }

    /// Its key; empty where it has none.
    pub(crate) fn key(&self) -> &[u8] {
        self.bytes(self.key)
    }

    fn bytes(&self, (at, len): (*const u8, usize)) -> &[u8] {
        if at.is_null() {
            return &[];
        }
        // SAFETY: the bytes belong to the event, which lives.
        unsafe { std::slice::from_raw_parts(at, len) }
    }
}

impl Group {
    /// Somebody who asks for the offsets of the group of the property `group.id`, and is no member until it joins.
    pub(crate) fn new(properties: &[(String, String)], topic: &str) -> Result<Self, (String, String)> {
        let client = Client::with_events(
            c::rd_kafka_type_t::RD_KAFKA_CONSUMER,
            properties,
            c::RD_KAFKA_EVENT_ERROR | c::RD_KAFKA_EVENT_REBALANCE,
        )?;
        // SAFETY: the client lives; the queue of a consumer is a reference that `Queue` gives back.
        let queue = unsafe {
            c::rd_kafka_poll_set_consumer(client.0.as_ptr());
            c::rd_kafka_queue_get_consumer(client.0.as_ptr())
        };
        let raw = NonNull::new(queue).ok_or_else(|| (String::new(), "the client has no group".to_owned()))?;
        let queue = Queue { raw, wakes: None, _client: client.clone() };
        let is_cooperative = properties
            .iter()
            .any(|(name, value)| name == "partition.assignment.strategy" && value == "cooperative-sticky");
        Ok(Self { queue, client, topic: topic.to_owned(), is_cooperative })
    }

    /// Raises `wakes` when an event comes while there is none.
    pub(crate) fn wake_by(&mut self, wakes: &Arc<Wake>) {
        self.queue.wake_by(wakes);
    }

    /// Its client, for [`Client::send_offsets`].
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Becomes a member.
    pub(crate) fn join(&self) -> Result<(), Wrong> {
        let list = List::new(&self.topic, &[(any_partition(), None)])?;
        // SAFETY: the client lives; the list is copied.
        answered(unsafe { codes::rd_kafka_subscribe(self.client.0.as_ptr(), list.0.as_ptr()) })
    }

    /// The next event; waits for it for so long.
    pub(crate) fn poll(&self, timeout_ms: i32) -> Option<GroupEvent> {
        let event = self.queue.event(timeout_ms)?;
        // SAFETY: the event lives until the end of the function.
        match unsafe { c::rd_kafka_event_type(event.0.as_ptr()) } {
            c::RD_KAFKA_EVENT_FETCH => message(event),
            c::RD_KAFKA_EVENT_REBALANCE => Some(self.rebalance(&event)),
            c::RD_KAFKA_EVENT_ERROR => match event.content() {
                super::Content::Error(wrong) => Some(GroupEvent::Wrong(wrong)),
                _ => None,
            },
            _ => None,
        }
    }

    fn rebalance(&self, event: &Event) -> GroupEvent {
        // SAFETY: the event lives, and its list with it.
        let (code, partitions) = unsafe {
            let list = c::rd_kafka_event_topic_partition_list(event.0.as_ptr());
            let partitions = elements(list).into_iter().map(|element| (*element).partition).collect();
            (super::codes::rd_kafka_event_error(event.0.as_ptr()), partitions)
        };
        if code == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS as i32 {
            return GroupEvent::Assigned(partitions);
        }
        if !self.is_cooperative {
            // SAFETY: the client lives; no list means no partitions.
            unsafe { codes::rd_kafka_assign(self.client.0.as_ptr(), ptr::null()) };
        }
        GroupEvent::Revoked(partitions)
    }

    /// Reads these partitions too, from where the group has committed: a cooperative member.
    pub(crate) fn add(&self, partitions: &[i32]) -> Result<(), Wrong> {
        self.change(partitions, c::rd_kafka_incremental_assign)
    }

    /// Reads these partitions no longer: a cooperative member, whose partitions then go to others.
    pub(crate) fn release(&self, partitions: &[i32]) -> Result<(), Wrong> {
        self.change(partitions, c::rd_kafka_incremental_unassign)
    }

    fn change(
        &self,
        partitions: &[i32],
        call: unsafe extern "C" fn(
            *mut c::rd_kafka_t,
            *const c::rd_kafka_topic_partition_list_t,
        ) -> *mut c::rd_kafka_error_t,
    ) -> Result<(), Wrong> {
        let all: Vec<_> = partitions.iter().map(|partition| (*partition, None)).collect();
        let list = List::new(&self.topic, &all)?;
        // SAFETY: the client lives; the list is copied; the error is ours and destroyed here.
        unsafe {
            let error = call(self.client.0.as_ptr(), list.0.as_ptr());
            if error.is_null() {
                return Ok(());
            }
            let text = text_of(c::rd_kafka_error_string(error));
            c::rd_kafka_error_destroy(error);
            Err(Wrong { kind: Kind::Other, text })
        }
    }

    /// Fetches nothing of these partitions for now, or does again. Messages that were fetched and not polled are
    /// fetched once more.
    pub(crate) fn pause(&self, partitions: &[i32], is_paused: bool) -> Result<(), Wrong> {
        let all: Vec<_> = partitions.iter().map(|partition| (*partition, None)).collect();
        let list = List::new(&self.topic, &all)?;
        // SAFETY: the client lives; the call writes errors into the list.
        answered(unsafe {
            match is_paused {
                true => codes::rd_kafka_pause_partitions(self.client.0.as_ptr(), list.0.as_ptr()),
                false => codes::rd_kafka_resume_partitions(self.client.0.as_ptr(), list.0.as_ptr()),
            }
        })
    }

    /// Reads these partitions of its own from these offsets on.
    pub(crate) fn assign(&self, partitions: &[(i32, Option<u64>)]) -> Result<(), Wrong> {
        let list = List::new(&self.topic, partitions)?;
        // SAFETY: the client lives; the list is copied.
        answered(unsafe { codes::rd_kafka_assign(self.client.0.as_ptr(), list.0.as_ptr()) })
    }

    /// The offsets that the group has committed of partitions.
    pub(crate) fn committed(&self, partitions: &[i32], timeout_ms: i32) -> Result<Vec<Committed>, Wrong> {
        let all: Vec<_> = partitions.iter().map(|partition| (*partition, None)).collect();
        let list = List::new(&self.topic, &all)?;
        // SAFETY: the client lives; the call writes into the list.
        answered(unsafe { codes::rd_kafka_committed(self.client.0.as_ptr(), list.0.as_ptr(), timeout_ms) })?;
        Ok(list.committed())
    }

    /// Commits offsets with a text, and waits for the answer.
    pub(crate) fn commit(&self, offsets: &[(i32, Option<u64>)], note: &str) -> Result<(), Wrong> {
        let list = List::new(&self.topic, offsets)?;
        list.note(note)?;
        // SAFETY: the client lives; the list is copied.
        answered(unsafe { codes::rd_kafka_commit(self.client.0.as_ptr(), list.0.as_ptr(), 0) })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: the client lives; it leaves the group, which does not wait for its session to end.
        unsafe { codes::rd_kafka_consumer_close(self.client.0.as_ptr()) };
    }
}

/// The message of an event, which has one.
fn message(event: Event) -> Option<GroupEvent> {
    // SAFETY: the event lives, and its message with it; the error of a message is read as a number.
    unsafe {
        let message = c::rd_kafka_event_message_next(event.0.as_ptr());
        if message.is_null() {
            return None;
        }
        let code = (&raw const (*message).err).cast::<i32>().read();
        if code != 0 {
            return Some(GroupEvent::Wrong(Wrong {
                kind: Kind::of(code),
                text: text_of(c::rd_kafka_message_errstr(message)),
            }));
        }
        let mut kind = c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        let time_ms = c::rd_kafka_message_timestamp(message, &raw mut kind);
        let payload = ((*message).payload.cast::<u8>().cast_const(), (*message).len);
        let key = ((*message).key.cast::<u8>().cast_const(), (*message).key_len);
        let (partition, offset) = ((*message).partition, u64::try_from((*message).offset).unwrap_or(0));
        Some(GroupEvent::Message(Taken { partition, offset, time_ms, payload, key, _event: event }))
    }
}

impl Client {
    /// Adds the offsets behind these to the transaction of this client: the group of `member` commits them with it. It
    /// waits for the brokers.
    pub(crate) fn send_offsets(
        &self,
        member: &Self,
        topic: &str,
        offsets: &[(i32, Option<u64>)],
        timeout_ms: i32,
    ) -> Result<(), super::Failed> {
        let list = List::new(topic, offsets).map_err(super::Failed::Ended)?;
        // SAFETY: the client lives; the answer is ours, or null where it has left its group.
        let group = unsafe { c::rd_kafka_consumer_group_metadata(member.0.as_ptr()) };
        if group.is_null() {
            let text = "this host has left its group".to_owned();
            return Err(super::Failed::NeedsAbort(Wrong { kind: Kind::Other, text }));
        }
        // SAFETY: both clients live; the list is copied, and the group's metadata is destroyed here.
        self.step(unsafe {
            let error = c::rd_kafka_send_offsets_to_transaction(self.0.as_ptr(), list.0.as_ptr(), group, timeout_ms);
            c::rd_kafka_consumer_group_metadata_destroy(group);
            error
        })
    }
}
