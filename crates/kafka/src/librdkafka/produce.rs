//! What sends: messages into librdkafka's queue, and reports of what became of them.

use super::{Client, Event, Kind, Mark, Options, Queue, Topic, Wrong, array, c, c_string, codes, text_of};
use crate::limits::{HEADERS_MAX, SPARE_HEADERS_MAX, TEXT_BYTES};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A message to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outgoing<'a> {
    /// `None`: by the key, as the property `partitioner` says.
    pub(crate) partition: Option<i32>,
    pub(crate) key: Option<&'a [u8]>,
    /// `None`: the message has no value, which removes its key from a compacted topic.
    pub(crate) payload: Option<&'a [u8]>,
    /// Milliseconds since 1970 UTC; `None`: now.
    pub(crate) time_ms: Option<i64>,
    pub(crate) headers: &'a [(&'a CStr, &'a [u8])],
    /// The token of its report.
    pub(crate) mark: usize,
}

/// Why a message is not in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The queue is full: reports make room.
    Full,
    /// It cannot be sent.
    Wrong(Wrong),
}

/// The fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// That of [`Outgoing::mark`].
    pub(crate) mark: usize,
    /// As [`Topic::key`].
    pub(crate) topic: usize,
    pub(crate) partition: i32,
    /// Its offset; otherwise why the brokers do not have it.
    pub(crate) offset: Result<u64, Wrong>,
}

/// Lists of headers that came back with reports, and are sent again with other values: making one costs librdkafka two
/// allocations, and one more for each header.
#[derive(Default)]
pub(crate) struct Spare(Vec<NonNull<c::rd_kafka_headers_t>>);

// SAFETY: nobody else has the lists.
unsafe impl Send for Spare {}

impl Spare {
    /// A list of these headers.
    fn take(&mut self, headers: &[(&CStr, &[u8])]) -> NonNull<c::rd_kafka_headers_t> {
        if let Some(list) = self.0.pop() {
            if refill(list, headers) {
                return list;
            }
            // SAFETY: the list is ours.
            unsafe { c::rd_kafka_headers_destroy(list.as_ptr()) };
        }
        // SAFETY: it answers a new list, never null.
        let list = unsafe { c::rd_kafka_headers_new(headers.len()) };
        let list = NonNull::new(list).unwrap_or_else(|| std::process::abort());
        headers.iter().for_each(|(name, value)| add_header(list, name, value));
        list
    }

    /// Keeps the list of a message that was delivered, or not.
    ///
    /// # Safety
    /// The message lives, is of a report, and nobody has a reference to its headers.
    unsafe fn keep(&mut self, message: *const c::rd_kafka_message_t) {
        if self.0.len() < SPARE_HEADERS_MAX {
            let mut list = ptr::null_mut();
            // SAFETY: the caller's; a list that is detached is ours.
            unsafe { c::rd_kafka_message_detach_headers(message.cast_mut(), &raw mut list) };
            self.0.extend(NonNull::new(list));
        }
    }
}

/// Puts other values into a list. False if its headers have other names.
fn refill(list: NonNull<c::rd_kafka_headers_t>, headers: &[(&CStr, &[u8])]) -> bool {
    let raw = list.as_ptr();
    // SAFETY: the list is ours.
    let is_alike = unsafe { c::rd_kafka_header_cnt(raw) } == headers.len();
    let refill = |at: usize, name: &CStr, value: &[u8]| {
        let (mut known, mut place, mut room) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the list is ours. Its header has a name that is a C string, and `room` bytes in memory of its own
        // that nobody refers to. Answers are not needed, because what is not found stays null.
        unsafe {
            c::rd_kafka_header_get_all(raw, at, &raw mut known, &raw mut place, &raw mut room);
            if known.is_null() || place.is_null() || CStr::from_ptr(known) != name {
                return false;
            }
            if room == value.len() {
                ptr::copy_nonoverlapping(value.as_ptr(), place.cast_mut().cast(), room);
                return true;
            }
            // The last one can be replaced: names of origins have different lengths.
            let is_last = at + 1 == headers.len();
            if is_last {
                c::rd_kafka_header_remove(raw, name.as_ptr());
                add_header(list, name, value);
            }
            is_last
        }
    };
    is_alike && headers.iter().enumerate().all(|(at, (name, value))| refill(at, name, value))
}

/// Adds a header to a list of ours.
fn add_header(list: NonNull<c::rd_kafka_headers_t>, name: &CStr, value: &[u8]) {
    let size = isize::try_from(value.len()).unwrap_or(0);
    // SAFETY: the list is ours; name and value are copied.
    unsafe { c::rd_kafka_header_add(list.as_ptr(), name.as_ptr(), -1, value.as_ptr().cast(), size) };
}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: the lists are ours.
        self.0.drain(..).for_each(|list| unsafe { c::rd_kafka_headers_destroy(list.as_ptr()) });
    }
}

/// Opens a socket that is reset when it closes: unsent bytes of a killed process are discarded, and do not reach a
/// broker after the process has restarted.
pub(super) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int, _: *mut c_void) -> c_int {
    // SAFETY: it answers a new descriptor or -1, as librdkafka expects.
    let socket = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    if socket >= 0 {
        let reset = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = libc::socklen_t::try_from(size_of::<libc::linger>()).unwrap_or(0);
        // SAFETY: the descriptor is ours; the option is copied. Without it a kill is as with other programs.
        unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const reset).cast(), size) };
    }
    socket
}

/// One argument of `rd_kafka_produceva`.
type Argument = MaybeUninit<c::rd_kafka_vu_t>;

fn argument(kind: c::rd_kafka_vtype_t, fill: impl FnOnce(&mut c::rd_kafka_vu_s__bindgen_ty_1)) -> Argument {
    // SAFETY: zeroes are a value of every member of the union.
    let mut value = unsafe { MaybeUninit::<c::rd_kafka_vu_s__bindgen_ty_1>::zeroed().assume_init() };
    fill(&mut value);
    MaybeUninit::new(c::rd_kafka_vu_t { vtype: kind, u: value })
}

fn bytes(bytes: &[u8]) -> c::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    c::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: bytes.as_ptr().cast_mut().cast(), size: bytes.len() }
}

impl Topic {
    /// Puts a message into the queue that sends these bytes where they are; they come back with
    /// [`Client::returned`] once there is a report with their mark, which nothing else under way has. The key is
    /// copied; an empty one is none. Never waits.
    pub(crate) fn lend(
        &self,
        partition: i32,
        key: &[u8],
        payload: Vec<u8>,
        mark: usize,
    ) -> Result<(), (Vec<u8>, Unsent)> {
        use c::rd_kafka_vtype_t as V;
        let all = [
            argument(V::RD_KAFKA_VTYPE_RKT, |value| value.rkt = self.raw.as_ptr()),
            argument(V::RD_KAFKA_VTYPE_PARTITION, |value| value.i32_ = partition),
            // Neither a copy nor a free: the bytes stay ours.
            argument(V::RD_KAFKA_VTYPE_MSGFLAGS, |value| value.i = 0),
            argument(V::RD_KAFKA_VTYPE_VALUE, |value| value.mem = bytes(&payload)),
            argument(V::RD_KAFKA_VTYPE_OPAQUE, |value| value.ptr = ptr::without_provenance_mut(mark)),
            argument(V::RD_KAFKA_VTYPE_KEY, |value| value.mem = bytes(key)),
        ];
        let count = if key.is_empty() { all.len() - 1 } else { all.len() };
        // The memory of the bytes stays where it is when the vector moves.
        self.client.lent().insert(mark, payload);
        // SAFETY: topic and client live; the arguments are filled. The payload lives until its report is taken or the
        // client is destroyed, since the client keeps it. The answer is null or an error that is ours.
        unsafe {
            let error = c::rd_kafka_produceva(self.client.0.as_ptr(), all.as_ptr().cast(), count);
            if error.is_null() {
                return Ok(());
            }
            let wrong = Wrong::of(codes::rd_kafka_error_code(error));
            c::rd_kafka_error_destroy(error);
            let payload = self.client.returned(mark).unwrap_or_default();
            Err((payload, if wrong.kind == Kind::QueueFull { Unsent::Full } else { Unsent::Wrong(wrong) }))
        }
    }

    /// Puts a message into the queue, which copies it. Never waits.
    pub(crate) fn send(&self, message: &Outgoing<'_>, spare: &mut Spare) -> Result<(), Unsent> {
        use c::rd_kafka_vtype_t as V;
        let mut all = [const { Argument::uninit() }; 8];
        let mut count = 0;
        let mut add = |one: Argument| {
            all[count] = one;
            count += 1;
        };
        add(argument(V::RD_KAFKA_VTYPE_RKT, |value| value.rkt = self.raw.as_ptr()));
        add(argument(V::RD_KAFKA_VTYPE_PARTITION, |value| value.i32_ = message.partition.unwrap_or(-1)));
        add(argument(V::RD_KAFKA_VTYPE_MSGFLAGS, |value| value.i = c::RD_KAFKA_MSG_F_COPY));
        // Without this argument there is no value.
        if let Some(payload) = message.payload {
            add(argument(V::RD_KAFKA_VTYPE_VALUE, |value| value.mem = bytes(payload)));
        }
        add(argument(V::RD_KAFKA_VTYPE_OPAQUE, |value| value.ptr = ptr::without_provenance_mut(message.mark)));
        if let Some(key) = message.key {
            add(argument(V::RD_KAFKA_VTYPE_KEY, |value| value.mem = bytes(key)));
        }
        if let Some(time) = message.time_ms {
            add(argument(V::RD_KAFKA_VTYPE_TIMESTAMP, |value| value.i64_ = time));
        }
        let headers = message.headers.get(..HEADERS_MAX).unwrap_or(message.headers);
        let list = (!headers.is_empty()).then(|| spare.take(headers));
        if let Some(list) = list {
            add(argument(V::RD_KAFKA_VTYPE_HEADERS, |value| value.headers = list.as_ptr()));
        }
        // SAFETY: topic and client live; the first `count` arguments are filled, and all they point to lives through
        // the call, which copies it. Without an error the list of headers belongs to the message, otherwise it is ours
        // again. The answer is null or an error that is ours.
        unsafe {
            let error = c::rd_kafka_produceva(self.client.0.as_ptr(), all.as_ptr().cast(), count);
            if error.is_null() {
                return Ok(());
            }
            spare.0.extend(list);
            let wrong = Wrong::of(codes::rd_kafka_error_code(error));
            c::rd_kafka_error_destroy(error);
            Err(if wrong.kind == Kind::QueueFull { Unsent::Full } else { Unsent::Wrong(wrong) })
        }
    }
}

impl Client {
    /// A client that sends, and gets a report for each message. The error is as that of [`Client::new`].
    pub(crate) fn sends(properties: &[(String, String)]) -> Result<Arc<Self>, (String, String)> {
        let events = c::RD_KAFKA_EVENT_ERROR | c::RD_KAFKA_EVENT_DR;
        Self::with_events(c::rd_kafka_type_t::RD_KAFKA_PRODUCER, properties, events)
    }

    /// The bytes that were lent for a message with this mark. Only once it has a report, or was not put into the queue.
    pub(crate) fn returned(&self, mark: usize) -> Option<Vec<u8>> {
        self.lent().remove(&mark)
    }

    /// How many brokers the cluster has; waits for the answer.
    pub(crate) fn brokers(&self, timeout_ms: i32) -> Result<usize, Wrong> {
        let mut metadata = ptr::null();
        // SAFETY: the client lives; an answer of 0 fills the pointer with what is ours and destroyed below.
        unsafe {
            let code = codes::rd_kafka_metadata(self.0.as_ptr(), 0, ptr::null_mut(), &raw mut metadata, timeout_ms);
            if code != 0 || metadata.is_null() {
                return Err(Wrong::of(code));
            }
            let count = usize::try_from((*metadata).broker_cnt).unwrap_or(0);
            c::rd_kafka_metadata_destroy(metadata);
            Ok(count)
        }
    }

    /// Messages in its queue or on their way, and reports that nobody has taken.
    pub(crate) fn waiting(&self) -> usize {
        // SAFETY: the client lives.
        usize::try_from(unsafe { c::rd_kafka_outq_len(self.0.as_ptr()) }).unwrap_or(0)
    }

    /// Discards unsent messages, so that destroying the client does not wait for them.
    pub(crate) fn give_up(&self) {
        let what = c::RD_KAFKA_PURGE_F_QUEUE | c::RD_KAFKA_PURGE_F_INFLIGHT | c::RD_KAFKA_PURGE_F_NON_BLOCKING;
        // SAFETY: the client lives.
        unsafe { c::rd_kafka_purge(self.0.as_ptr(), what) };
    }

    /// The fatal error of the client, if there is one: it sends nothing any more.
    pub(crate) fn end(&self) -> Option<Wrong> {
        let mut text = vec![0 as c_char; TEXT_BYTES];
        // SAFETY: the client lives; the buffer has the given length.
        let code = unsafe { codes::rd_kafka_fatal_error(self.0.as_ptr(), text.as_mut_ptr(), text.len()) };
        (code != 0).then(|| Wrong { kind: Kind::of(code), text: super::written(&text) })
    }

    /// Asks for topics to be made, with `partitions`, `replication` and settings of theirs; the answer comes to the
    /// queue with [`Mark::Create`].
    pub(crate) fn ask_create(
        &self,
        topics: &[String],
        (partitions, replication): (i32, i32),
        settings: &[(&str, String)],
        timeout_ms: i32,
        answers: &Queue,
    ) -> Result<(), Wrong> {
        let options = Options::new(self, c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout_ms);
        let names = topics.iter().map(|topic| c_string(topic)).collect::<Result<Vec<_>, _>>()?;
        let set = |(name, value): &(&str, String)| Ok((c_string(name)?, c_string(value)?));
        let settings = settings.iter().map(set).collect::<Result<Vec<_>, Wrong>>()?;
        let mut text = vec![0 as c_char; TEXT_BYTES];
        let mut made = Vec::new();
        // SAFETY: names, settings and text live through the calls, which copy them; what was made is destroyed here.
        unsafe {
            for name in &names {
                let (text, room) = (text.as_mut_ptr(), text.len());
                made.push(c::rd_kafka_NewTopic_new(name.as_ptr(), partitions, replication, text, room));
            }
            let is_wrong = made.iter().any(|topic| topic.is_null());
            made.retain(|topic| !topic.is_null());
            for (topic, (name, value)) in made.iter().flat_map(|topic| settings.iter().map(move |one| (*topic, one))) {
                c::rd_kafka_NewTopic_set_config(topic, name.as_ptr(), value.as_ptr());
            }
            if !is_wrong {
                c::rd_kafka_AdminOptions_set_opaque(options.0, ptr::without_provenance_mut(Mark::Create as usize));
                c::rd_kafka_CreateTopics(
                    self.0.as_ptr(),
                    made.as_mut_ptr(),
                    made.len(),
                    options.0,
                    answers.raw.as_ptr(),
                );
            }
            c::rd_kafka_NewTopic_destroy_array(made.as_mut_ptr(), made.len());
            if is_wrong { Err(Wrong { kind: Kind::Other, text: super::written(&text) }) } else { Ok(()) }
        }
    }
}

impl Event {
    /// Calls `each` with the reports that it holds. False if it is no event of reports.
    pub(crate) fn reports(&self, spare: &mut Spare, each: &mut dyn FnMut(Delivered)) -> bool {
        let event = self.0.as_ptr();
        // SAFETY: the event lives.
        if unsafe { c::rd_kafka_event_type(event) } != c::RD_KAFKA_EVENT_DR {
            return false;
        }
        let mut some = [ptr::null(); 256];
        loop {
            // SAFETY: the event lives; the buffer has room for the given count. Messages live with the event; codes are
            // read as numbers.
            unsafe {
                let count = c::rd_kafka_event_message_array(event, some.as_mut_ptr(), some.len());
                for message in &some[..count] {
                    let message: *const c::rd_kafka_message_t = *message;
                    let code = (&raw const (*message).err).cast::<i32>().read();
                    each(Delivered {
                        mark: (*message)._private.addr(),
                        topic: (*message).rkt.addr(),
                        partition: (*message).partition,
                        offset: match code {
                            0 => Ok(u64::try_from((*message).offset).unwrap_or(0)),
                            code => Err(Wrong::of(code)),
                        },
                    });
                    spare.keep(message);
                }
                if count == 0 {
                    return true;
                }
            }
        }
    }

    /// The results of the topics that were to be made.
    pub(super) fn created(&self) -> Vec<Option<Wrong>> {
        let mut count = 0;
        // SAFETY: the event lives and is of this type; the answer is an array of `count` pointers into it.
        unsafe {
            let result = c::rd_kafka_event_CreateTopics_result(self.0.as_ptr());
            let all = array(c::rd_kafka_CreateTopics_result_topics(result, &raw mut count), count);
            all.iter()
                .map(|topic| {
                    let code = codes::rd_kafka_topic_result_error(*topic);
                    let text = || text_of(c::rd_kafka_topic_result_error_string(*topic));
                    (code != 0).then(|| Wrong { kind: Kind::of(code), text: text() })
                })
                .collect()
        }
    }
}
