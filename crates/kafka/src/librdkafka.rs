//! librdkafka as far as it is needed here, behind types that cannot be misused. All `unsafe` of the crate is here.
//!
//! Soundness: a client is thread-safe, and lives as long as any queue, topic or batch of it, which hold it by `Arc`.
//! Pointers that a message or an event has handed out are used only while that lives. Error codes are read as numbers:
//! brokers and later libraries have codes that the bindings do not list.

use crate::limits::TEXT_BYTES;
use rdkafka_sys::bindings as c;
use rdkafka_sys::bindings::rd_kafka_resp_err_t as Code;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod group;
mod produce;
mod record;
mod transact;

pub(crate) use group::{Committed, Group, GroupEvent, Taken};
pub use produce::Unsent;
pub(crate) use produce::{Delivered, Outgoing, Spare};
pub(crate) use record::{Batch, Record};
pub(crate) use transact::Failed;

/// Functions whose answer is an error code, as a number.
mod codes {
    use super::c;
    use std::ffi::{c_char, c_int};

    #[allow(clashing_extern_declarations, reason = "the bindings answer with an enum that lacks codes")]
    unsafe extern "C" {
        pub(super) fn rd_kafka_event_error(event: *mut c::rd_kafka_event_t) -> i32;
        pub(super) fn rd_kafka_error_code(error: *const c::rd_kafka_error_t) -> i32;
        pub(super) fn rd_kafka_last_error() -> i32;
        pub(super) fn rd_kafka_metadata(
            client: *mut c::rd_kafka_t,
            all: c_int,
            only: *mut c::rd_kafka_topic_t,
            metadata: *mut *const c::rd_kafka_metadata,
            timeout_ms: c_int,
        ) -> i32;
        pub(super) fn rd_kafka_topic_result_error(topic: *const c::rd_kafka_topic_result_t) -> i32;
        pub(super) fn rd_kafka_fatal_error(client: *mut c::rd_kafka_t, text: *mut c_char, room: usize) -> i32;
        pub(super) fn rd_kafka_err2str(code: i32) -> *const c_char;
    }
}

/// An error of librdkafka or of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its subject.
    pub kind: Kind,
    /// Its text.
    pub text: String,
}

/// The subject of an error, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No error: all messages of a partition have been handed out.
    PartitionEnd,
    /// An offset is not in the partition any more, or not yet.
    OffsetGone,
    /// There is no such topic or partition.
    NoTopic,
    /// The user may not read it.
    Forbidden,
    /// The user or the password is wrong.
    UnknownUser,
    /// TLS failed.
    NoTls,
    /// A message is above a limit.
    TooLarge,
    /// A message is damaged.
    Damaged,
    /// There was no answer in time.
    TimedOut,
    /// The queue of messages to send has no room.
    QueueFull,
    /// The topic is there already.
    Exists,
    /// There are fewer brokers than a topic is to have replicas.
    Replication,
    /// The topic does not take the message, because of its time for example.
    NotTaken,
    /// A batch was refused, and the client has ended: nothing that follows may arrive before what is sent again.
    BatchRefused,
    /// No broker is connected: reported beside the cause, which has an event of its own.
    AllDown,
    /// The brokers are too old for the question.
    Unsupported,
    /// Something else, of which librdkafka tries to get rid itself.
    Other,
}

/// The codes of the kinds.
const KINDS: [(Kind, &[Code]); 16] = [
    (Kind::PartitionEnd, &[Code::RD_KAFKA_RESP_ERR__PARTITION_EOF]),
    (Kind::OffsetGone, &[Code::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET, Code::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE]),
    (
        Kind::NoTopic,
        &[
            Code::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
            Code::RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
            Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART,
            Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_ID,
        ],
    ),
    (
        Kind::Forbidden,
        &[
            Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            Code::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            Code::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ],
    ),
    (Kind::UnknownUser, &[Code::RD_KAFKA_RESP_ERR__AUTHENTICATION, Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED]),
    (Kind::NoTls, &[Code::RD_KAFKA_RESP_ERR__SSL]),
    (Kind::TooLarge, &[Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, Code::RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE]),
    (
        Kind::Damaged,
        &[
            Code::RD_KAFKA_RESP_ERR__BAD_MSG,
            Code::RD_KAFKA_RESP_ERR__BAD_COMPRESSION,
            Code::RD_KAFKA_RESP_ERR_INVALID_MSG,
        ],
    ),
    (Kind::TimedOut, &[Code::RD_KAFKA_RESP_ERR__TIMED_OUT, Code::RD_KAFKA_RESP_ERR__MSG_TIMED_OUT]),
    (Kind::QueueFull, &[Code::RD_KAFKA_RESP_ERR__QUEUE_FULL]),
    (Kind::Replication, &[Code::RD_KAFKA_RESP_ERR_INVALID_REPLICATION_FACTOR]),
    (Kind::Exists, &[Code::RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS]),
    (Kind::NotTaken, &[Code::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, Code::RD_KAFKA_RESP_ERR_INVALID_RECORD]),
    (Kind::BatchRefused, &[Code::RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE]),
    (Kind::AllDown, &[Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN]),
    (Kind::Unsupported, &[Code::RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, Code::RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION]),
];

impl Kind {
    /// The subject of a code.
    fn of(code: i32) -> Self {
        let has = |codes: &&[Code]| codes.iter().any(|known| *known as i32 == code);
        KINDS.iter().find(|(_, codes)| has(codes)).map_or(Self::Other, |(kind, _)| *kind)
    }
}

impl Wrong {
    /// With librdkafka's words for the code.
    fn of(code: i32) -> Self {
        // SAFETY: the answer is a static text, or one of this thread, for any number.
        Self { kind: Kind::of(code), text: unsafe { text_of(codes::rd_kafka_err2str(code)) } }
    }

    /// The queue of a client that sends has no room.
    pub(crate) fn full() -> Self {
        Self::of(Code::RD_KAFKA_RESP_ERR__QUEUE_FULL as i32)
    }

    /// Nobody has answered.
    pub(crate) fn timed_out() -> Self {
        Self::of(Code::RD_KAFKA_RESP_ERR__TIMED_OUT as i32)
    }
}

/// Which question an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// One of a start.
    Start,
    /// Which topics there are.
    Topics,
    /// Where partitions end.
    Ends,
    /// Where the source ends.
    Stop,
    /// Topics that are to be made.
    Create,
}

impl Mark {
    fn of(number: usize) -> Self {
        let all = [Self::Topics, Self::Ends, Self::Stop, Self::Create];
        all.into_iter().find(|mark| *mark as usize == number).unwrap_or(Self::Start)
    }
}

/// A text of librdkafka.
///
/// # Safety
/// `text` is null or a C string that lives until the call returns.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The text that a call has written into its buffer.
fn written(buffer: &[c_char]) -> String {
    // SAFETY: librdkafka ends what it writes with a zero byte, and the buffer began as zeroes.
    unsafe { text_of(buffer.as_ptr()) }
}

fn c_string(text: &str) -> Result<CString, Wrong> {
    CString::new(text).map_err(|_| Wrong { kind: Kind::Other, text: "a text holds a zero byte".into() })
}

/// Version of the library, and what it was built with.
pub(crate) fn version() -> (String, String) {
    // SAFETY: a static text.
    let version = unsafe { text_of(c::rd_kafka_version_str()) };
    let mut features = vec![0 as c_char; TEXT_BYTES];
    let mut len = features.len();
    // SAFETY: the configuration is made and destroyed here; the text goes into a buffer of `len` bytes.
    unsafe {
        let conf = c::rd_kafka_conf_new();
        c::rd_kafka_conf_get(conf, c"builtin.features".as_ptr(), features.as_mut_ptr(), &raw mut len);
        c::rd_kafka_conf_destroy(conf);
    }
    (version, written(&features))
}

/// A configuration that no client has taken yet.
struct Conf(NonNull<c::rd_kafka_conf_t>);

impl Conf {
    fn new() -> Self {
        // SAFETY: it answers a new configuration, never null.
        Self(NonNull::new(unsafe { c::rd_kafka_conf_new() }).unwrap_or_else(|| std::process::abort()))
    }

    /// The error is the text of librdkafka, which may hold the value; empty where there is no such property.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let (Ok(c_name), Ok(c_value)) = (CString::new(name), CString::new(value)) else {
            return Err("it holds a zero byte".into());
        };
        let mut text = vec![0 as c_char; TEXT_BYTES];
        // SAFETY: the configuration is ours; texts end with zero; the buffer has the given length.
        let set = unsafe {
            c::rd_kafka_conf_set(self.0.as_ptr(), c_name.as_ptr(), c_value.as_ptr(), text.as_mut_ptr(), text.len())
        };
        match set {
            c::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK => Ok(()),
            c::rd_kafka_conf_res_t::RD_KAFKA_CONF_UNKNOWN => Err(String::new()),
            c::rd_kafka_conf_res_t::RD_KAFKA_CONF_INVALID => Err(written(&text)),
        }
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        // SAFETY: it is ours: a client that takes one forgets this value.
        unsafe { c::rd_kafka_conf_destroy(self.0.as_ptr()) }
    }
}

/// Whether librdkafka has a property, and takes this value of it.
pub(crate) fn is_property(name: &str, value: Option<&str>) -> Result<(), String> {
    let mut conf = Conf::new();
    // A property that is known answers with a text why the empty value is wrong, or takes it.
    match conf.set(name, value.unwrap_or("")) {
        Err(text) if text.is_empty() => Err(format!("librdkafka {} has no such property", version().0)),
        Err(text) if value.is_some() => Err(text),
        _ => Ok(()),
    }
}

/// A client of a cluster, and by their marks the bytes of messages that it sends where they are. These are freed after
/// it: fields go behind `drop`.
pub(crate) struct Client(NonNull<c::rd_kafka_t>, Mutex<HashMap<usize, Vec<u8>>>);

// SAFETY: librdkafka's clients are thread-safe.
unsafe impl Send for Client {}
// SAFETY: the same.
unsafe impl Sync for Client {}

impl Client {
    /// A client with these properties. The error names the property that it is about, where that is known.
    /// It reads.
    pub(crate) fn new(properties: &[(String, String)]) -> Result<Arc<Self>, (String, String)> {
        Self::with_events(c::rd_kafka_type_t::RD_KAFKA_CONSUMER, properties, c::RD_KAFKA_EVENT_ERROR)
    }

    /// One of a kind, with the events that come to its queue.
    fn with_events(
        kind: c::rd_kafka_type_t,
        properties: &[(String, String)],
        events: i32,
    ) -> Result<Arc<Self>, (String, String)> {
        let mut conf = Conf::new();
        for (name, value) in properties {
            conf.set(name, value).map_err(|text| (name.clone(), text))?;
        }
        let mut text = vec![0 as c_char; TEXT_BYTES];
        // SAFETY: errors go to a queue, logs nowhere. A client that is made has taken the configuration; else it is
        // still ours.
        let client = unsafe {
            c::rd_kafka_conf_set_events(conf.0.as_ptr(), events);
            c::rd_kafka_conf_set_log_cb(conf.0.as_ptr(), None);
            if kind == c::rd_kafka_type_t::RD_KAFKA_PRODUCER {
                c::rd_kafka_conf_set_socket_cb(conf.0.as_ptr(), Some(produce::socket));
                if events & c::RD_KAFKA_EVENT_DR == 0 {
                    c::rd_kafka_conf_set_dr_msg_cb(conf.0.as_ptr(), Some(transact::delivered));
                }
            }
            c::rd_kafka_new(kind, conf.0.as_ptr(), text.as_mut_ptr(), text.len())
        };
        let client = NonNull::new(client).ok_or_else(|| (String::new(), written(&text)))?;
        std::mem::forget(conf);
        Ok(Arc::new(Self(client, Mutex::default())))
    }

    fn lent(&self) -> MutexGuard<'_, HashMap<usize, Vec<u8>>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks which partitions topics have, and their ids; the answer comes to the queue with
    /// `mark`. `with_rights`: and what this user may do with them.
    pub(crate) fn ask_topics(
        &self,
        topics: &[String],
        with_rights: bool,
        timeout_ms: i32,
        mark: Mark,
        answers: &Queue,
    ) -> Result<(), Wrong> {
        let names = topics.iter().map(|topic| c_string(topic)).collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let options = Options::new(self, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout_ms);
        // SAFETY: the names live through the call, which copies them; the collection is destroyed here. The answer to
        // the option is null or an error that is ours.
        unsafe {
            let error = c::rd_kafka_AdminOptions_set_include_authorized_operations(options.0, c_int::from(with_rights));
            if !error.is_null() {
                c::rd_kafka_error_destroy(error);
            }
            let all = c::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
            c::rd_kafka_AdminOptions_set_opaque(options.0, ptr::without_provenance_mut(mark as usize));
            c::rd_kafka_DescribeTopics(self.0.as_ptr(), all, options.0, answers.raw.as_ptr());
            c::rd_kafka_TopicCollection_destroy(all);
        }
        Ok(())
    }

    /// Asks for offsets of partitions; the answer comes to the queue with `mark`.
    pub(crate) fn ask_offsets(
        &self,
        asked: &[(&str, i32, Spec)],
        is_committed: bool,
        timeout_ms: i32,
        mark: Mark,
        answers: &Queue,
    ) -> Result<(), Wrong> {
        let options = Options::new(self, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTOFFSETS, timeout_ms);
        let names = asked.iter().map(|(topic, ..)| c_string(topic)).collect::<Result<Vec<_>, _>>()?;
        let level = match is_committed {
            true => c::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED,
            false => c::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_UNCOMMITTED,
        };
        // SAFETY: the list is made, filled, copied by the call and destroyed here; each element that is added lives in
        // it. The answer to the level is null or an error that is ours.
        unsafe {
            let list = c::rd_kafka_topic_partition_list_new(i32::try_from(asked.len()).unwrap_or(0));
            for ((_, partition, spec), name) in asked.iter().zip(&names) {
                let element = c::rd_kafka_topic_partition_list_add(list, name.as_ptr(), *partition);
                (*element).offset = spec.number();
            }
            let error = c::rd_kafka_AdminOptions_set_isolation_level(options.0, level);
            if !error.is_null() {
                c::rd_kafka_error_destroy(error);
            }
            c::rd_kafka_AdminOptions_set_opaque(options.0, ptr::without_provenance_mut(mark as usize));
            c::rd_kafka_ListOffsets(self.0.as_ptr(), list, options.0, answers.raw.as_ptr());
            c::rd_kafka_topic_partition_list_destroy(list);
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: nothing of it lives any more: queues, topics and messages hold it.
        unsafe { c::rd_kafka_destroy(self.0.as_ptr()) }
    }
}

/// Which offset of a partition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    /// That of the oldest message.
    First,
    /// The one behind the newest message.
    End,
    /// That of the first message from this time on, ms since 1970 UTC.
    Time(i64),
    /// That of the message with the latest time.
    Latest,
}

impl Spec {
    fn number(self) -> i64 {
        match self {
            Self::First => c::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_EARLIEST as i64,
            Self::End => c::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_LATEST as i64,
            Self::Time(time) => time.max(0),
            Self::Latest => c::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_MAX_TIMESTAMP as i64,
        }
    }
}

/// Options of a question.
struct Options(*mut c::rd_kafka_AdminOptions_t);

impl Options {
    fn new(client: &Client, question: c::rd_kafka_admin_op_t, timeout_ms: i32) -> Self {
        let mut text = vec![0 as c_char; TEXT_BYTES];
        // SAFETY: the client lives; the options are destroyed with this value. A timeout in range is taken.
        unsafe {
            let options = c::rd_kafka_AdminOptions_new(client.0.as_ptr(), question);
            c::rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, text.as_mut_ptr(), text.len());
            Self(options)
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: they are ours; a question has copied them.
        unsafe { c::rd_kafka_AdminOptions_destroy(self.0) }
    }
}

/// What wakes a source: an eventfd that librdkafka's threads write to.
pub(crate) struct Wake(File);

impl Wake {
    pub(crate) fn new() -> std::io::Result<Self> {
        // SAFETY: it answers a new descriptor that nobody else has, or -1.
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if raw < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: as above.
        Ok(Self(unsafe { File::from_raw_fd(raw) }))
    }

    /// Makes it unreadable until something comes.
    pub(crate) fn drain(&self) {
        // Nothing to read is no error here.
        let _ = (&self.0).read(&mut [0; 8]);
    }

    /// Makes it readable.
    pub(crate) fn raise(&self) {
        // A counter that is full is readable.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A queue of messages or of events.
pub(crate) struct Queue {
    raw: NonNull<c::rd_kafka_queue_t>,
    wakes: Option<Arc<Wake>>,
    _client: Arc<Client>,
}

// SAFETY: librdkafka's queues are thread-safe.
unsafe impl Send for Queue {}
// SAFETY: the same.
unsafe impl Sync for Queue {}

impl Queue {
    /// A new one, which raises `wakes` when something comes to it while it is empty.
    pub(crate) fn new(client: &Arc<Client>, wakes: &Arc<Wake>) -> Self {
        // SAFETY: the client lives; it answers a new queue, never null.
        let raw = unsafe { c::rd_kafka_queue_new(client.0.as_ptr()) };
        let raw = NonNull::new(raw).unwrap_or_else(|| std::process::abort());
        let mut queue = Self { raw, wakes: None, _client: client.clone() };
        queue.wake_by(wakes);
        queue
    }

    /// The queue of the client's errors.
    pub(crate) fn main(client: &Arc<Client>) -> Self {
        // SAFETY: the client lives; it answers a reference that `drop` gives back.
        let raw = unsafe { c::rd_kafka_queue_get_main(client.0.as_ptr()) };
        Self { raw: NonNull::new(raw).unwrap_or_else(|| std::process::abort()), wakes: None, _client: client.clone() }
    }

    /// Empties the queue; the newest error of a connection that it held.
    pub(crate) fn newest_error(&self) -> Option<Wrong> {
        let mut newest = None;
        while let Some(event) = self.event(0) {
            if let Content::Error(wrong) = event.content()
                && wrong.kind != Kind::AllDown
            {
                newest = Some(wrong);
            }
        }
        newest
    }

    /// A new one that nobody is woken by: it is polled.
    pub(crate) fn polled(client: &Arc<Client>) -> Self {
        // SAFETY: the client lives; it answers a new queue, never null.
        let raw = unsafe { c::rd_kafka_queue_new(client.0.as_ptr()) };
        Self { raw: NonNull::new(raw).unwrap_or_else(|| std::process::abort()), wakes: None, _client: client.clone() }
    }

    /// The same, which raises `wakes` too.
    pub(crate) fn main_with(client: &Arc<Client>, wakes: &Arc<Wake>) -> Self {
        let mut queue = Self::main(client);
        queue.wake_by(wakes);
        queue
    }

    /// Something that comes while it is empty raises `wakes`.
    fn wake_by(&mut self, wakes: &Arc<Wake>) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the payload is copied; the descriptor is closed after `drop` has disabled the event.
        unsafe {
            c::rd_kafka_queue_io_event_enable(self.raw.as_ptr(), wakes.descriptor(), one.as_ptr().cast(), one.len());
        }
        self.wakes = Some(wakes.clone());
    }

    /// The next event; waits for one for so long.
    pub(crate) fn event(&self, timeout_ms: i32) -> Option<Event> {
        // SAFETY: the queue lives; the event is ours.
        let raw = unsafe { c::rd_kafka_queue_poll(self.raw.as_ptr(), timeout_ms) };
        NonNull::new(raw).map(Event)
    }

    /// Fills an empty batch with what is there. How many messages that is.
    pub(crate) fn take(&self, batch: &mut Batch, most: usize) -> usize {
        self.take_within(batch, most, 0)
    }

    /// The same; waits for so long for the first.
    pub(crate) fn take_within(&self, batch: &mut Batch, most: usize, timeout_ms: i32) -> usize {
        batch.clear();
        batch.messages.resize(most, ptr::null_mut());
        // SAFETY: the buffer has room for `most` pointers; the messages are ours.
        let count = unsafe {
            c::rd_kafka_consume_batch_queue(
                self.raw.as_ptr(),
                timeout_ms,
                batch.messages.as_mut_ptr(),
                batch.messages.len(),
            )
        };
        let count = usize::try_from(count).unwrap_or(0);
        batch.messages.truncate(count);
        count
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the reference is ours; after the event is disabled nobody writes to the descriptor.
        unsafe {
            if self.wakes.is_some() {
                c::rd_kafka_queue_io_event_enable(self.raw.as_ptr(), -1, ptr::null(), 0);
            }
            c::rd_kafka_queue_destroy(self.raw.as_ptr());
        }
    }
}

/// A topic of which partitions are read.
pub(crate) struct Topic {
    raw: NonNull<c::rd_kafka_topic_t>,
    client: Arc<Client>,
}

// SAFETY: librdkafka's topics are thread-safe.
unsafe impl Send for Topic {}

impl Topic {
    pub(crate) fn new(client: &Arc<Client>, name: &str) -> Result<Self, Wrong> {
        let name = c_string(name)?;
        // SAFETY: the client lives; a null configuration means that of the client.
        let raw = unsafe { c::rd_kafka_topic_new(client.0.as_ptr(), name.as_ptr(), ptr::null_mut()) };
        NonNull::new(raw).map(|raw| Self { raw, client: client.clone() }).ok_or_else(last)
    }

    /// The topic of its messages.
    pub(crate) fn key(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// Reads a partition from an offset on into a queue.
    pub(crate) fn read(&self, partition: i32, from: u64, queue: &Queue) -> Result<(), Wrong> {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        // SAFETY: topic and queue live and belong to one client.
        let begun = unsafe { c::rd_kafka_consume_start_queue(self.raw.as_ptr(), partition, from, queue.raw.as_ptr()) };
        debug_assert!(Arc::ptr_eq(&self.client, &queue._client));
        if begun == 0 { Ok(()) } else { Err(last()) }
    }

    /// Reads a partition no longer; waits until librdkafka does not.
    pub(crate) fn leave(&self, partition: i32) {
        // SAFETY: the topic lives. A partition that is not read is refused.
        unsafe { c::rd_kafka_consume_stop(self.raw.as_ptr(), partition) };
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: the reference is ours.
        unsafe { c::rd_kafka_topic_destroy(self.raw.as_ptr()) }
    }
}

/// The error of the last call in this thread.
fn last() -> Wrong {
    // SAFETY: it reads a number of this thread.
    Wrong::of(unsafe { codes::rd_kafka_last_error() })
}

/// An event of a queue.
pub(crate) struct Event(NonNull<c::rd_kafka_event_t>);

// SAFETY: an event may be read and destroyed in any thread, one at a time.
unsafe impl Send for Event {}

/// The content of an event.
#[derive(Debug)]
pub(crate) enum Content {
    /// An error of the client.
    Error(Wrong),
    /// The question with this mark could not be answered.
    Unanswered(Mark, Wrong),
    /// The topics that were asked for.
    Topics(Vec<TopicAnswer>),
    /// Offsets that were asked for with a mark.
    Offsets(Mark, Vec<OffsetAnswer>),
    /// Topics that were to be made, each with what was wrong.
    Created(Vec<Option<Wrong>>),
    /// Something else.
    Nothing,
}

/// A topic as a broker tells of it.
#[derive(Debug)]
pub(crate) struct TopicAnswer {
    pub(crate) name: String,
    /// The identity that Kafka gave it when it was made; empty where the broker gives none.
    pub(crate) id: String,
    pub(crate) partitions: usize,
    /// The broker was asked what this user may do with it, and says that reading is not allowed.
    pub(crate) is_unreadable: bool,
    pub(crate) wrong: Option<Wrong>,
}

/// The offset of a partition.
#[derive(Debug)]
pub(crate) struct OffsetAnswer {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    /// The offset; none where no message is so late.
    pub(crate) offset: Result<Option<u64>, Wrong>,
    /// Kafka's time of the message at the offset, ms since 1970 UTC, where a time was asked for; -1 else.
    pub(crate) time_ms: i64,
}

impl Event {
    /// Its content.
    pub(crate) fn content(&self) -> Content {
        let event = self.0.as_ptr();
        // SAFETY: the event lives; its texts live with it.
        let (kind, mark, wrong) = unsafe {
            let code = codes::rd_kafka_event_error(event);
            let text = || text_of(c::rd_kafka_event_error_string(event));
            let wrong = (code != 0).then(|| Wrong { kind: Kind::of(code), text: text() });
            (c::rd_kafka_event_type(event), Mark::of(c::rd_kafka_event_opaque(event).addr()), wrong)
        };
        match (kind, wrong) {
            (c::RD_KAFKA_EVENT_ERROR, Some(wrong)) => Content::Error(wrong),
            (
                c::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT
                | c::RD_KAFKA_EVENT_LISTOFFSETS_RESULT
                | c::RD_KAFKA_EVENT_CREATETOPICS_RESULT,
                Some(wrong),
            ) => Content::Unanswered(mark, wrong),
            (c::RD_KAFKA_EVENT_CREATETOPICS_RESULT, None) => Content::Created(self.created()),
            (c::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT, None) => Content::Topics(self.topics()),
            (c::RD_KAFKA_EVENT_LISTOFFSETS_RESULT, None) => Content::Offsets(mark, self.offsets()),
            _ => Content::Nothing,
        }
    }

    fn topics(&self) -> Vec<TopicAnswer> {
        let mut count = 0;
        // SAFETY: the event lives and is of this type; the answer is an array of `count` pointers into it.
        let all = unsafe {
            let result = c::rd_kafka_event_DescribeTopics_result(self.0.as_ptr());
            array(c::rd_kafka_DescribeTopics_result_topics(result, &raw mut count), count)
        };
        all.iter()
            .map(|topic| {
                let mut partitions = 0;
                let mut rights = 0;
                let read = c::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ as i32;
                // SAFETY: the topic lives with the event, and all that it answers with the topic. The text of the id is
                // one of its own. Rights are `rights` numbers of 32 bits, or null where the broker says none.
                unsafe {
                    c::rd_kafka_TopicDescription_partitions(*topic, &raw mut partitions);
                    let id = c::rd_kafka_TopicDescription_topic_id(*topic);
                    let is_none = id.is_null()
                        || c::rd_kafka_Uuid_most_significant_bits(id) == 0
                            && c::rd_kafka_Uuid_least_significant_bits(id) == 0;
                    let error = c::rd_kafka_TopicDescription_error(*topic);
                    let code = if error.is_null() { 0 } else { codes::rd_kafka_error_code(error) };
                    let allowed = c::rd_kafka_TopicDescription_authorized_operations(*topic, &raw mut rights);
                    let allowed: &[i32] =
                        if allowed.is_null() { &[] } else { std::slice::from_raw_parts(allowed.cast(), rights) };
                    TopicAnswer {
                        is_unreadable: !allowed.is_empty() && !allowed.contains(&read),
                        name: text_of(c::rd_kafka_TopicDescription_name(*topic)),
                        id: if is_none { String::new() } else { text_of(c::rd_kafka_Uuid_base64str(id)) },
                        partitions,
                        wrong: (code != 0).then(|| Wrong::of(code)),
                    }
                }
            })
            .collect()
    }

    fn offsets(&self) -> Vec<OffsetAnswer> {
        let mut count = 0;
        // SAFETY: as in `topics`.
        let all = unsafe {
            let result = c::rd_kafka_event_ListOffsets_result(self.0.as_ptr());
            array(c::rd_kafka_ListOffsets_result_infos(result, &raw mut count), count)
        };
        all.iter()
            .map(|info| {
                // SAFETY: the row lives with the event; its error is read as a number.
                unsafe {
                    let row = c::rd_kafka_ListOffsetsResultInfo_topic_partition(*info);
                    let code = (&raw const (*row).err).cast::<i32>().read();
                    OffsetAnswer {
                        topic: text_of((*row).topic),
                        partition: (*row).partition,
                        offset: match code {
                            0 => Ok(u64::try_from((*row).offset).ok()),
                            code => Err(Wrong::of(code)),
                        },
                        time_ms: c::rd_kafka_ListOffsetsResultInfo_timestamp(*info),
                    }
                }
            })
            .collect()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing of it is used any more.
        unsafe { c::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

/// An array that an event holds.
///
/// # Safety
/// `first` is null, or points to `count` values that live as long as `'a`.
unsafe fn array<'a, T>(first: *mut *const T, count: usize) -> &'a [*const T] {
    // SAFETY: the caller's.
    if first.is_null() { &[] } else { unsafe { std::slice::from_raw_parts(first, count) } }
}
