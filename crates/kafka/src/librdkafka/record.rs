//! Messages that librdkafka has handed out.

use super::{Kind, Wrong, c, text_of};
use std::ffi::CStr;
use std::ptr;

/// Messages that librdkafka has handed out, and how far they are used.
#[derive(Default)]
pub(crate) struct Batch {
    pub(super) messages: Vec<*mut c::rd_kafka_message_t>,
    next: usize,
}

// SAFETY: a message may be used and destroyed in any thread; the queue that it came from keeps the client alive.
unsafe impl Send for Batch {}

impl Batch {
    /// The next message.
    pub(crate) fn front(&self) -> Option<Record<'_>> {
        self.messages.get(self.next).map(|message| Record { message: *message, _batch: self })
    }

    /// Releases the next message.
    pub(crate) fn pop(&mut self) {
        if let Some(message) = self.messages.get(self.next) {
            // SAFETY: it is ours, and nobody has a reference into it: `front` borrows the batch.
            unsafe { c::rd_kafka_message_destroy(*message) };
            self.next += 1;
        }
    }

    /// Releases all messages.
    pub(crate) fn clear(&mut self) {
        while self.next < self.messages.len() {
            self.pop();
        }
        self.messages.clear();
        self.next = 0;
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A message, or the error in the place of one.
pub(crate) struct Record<'a> {
    message: *mut c::rd_kafka_message_t,
    _batch: &'a Batch,
}

impl Record<'_> {
    /// Its error; none where it is a message.
    pub(crate) fn error(&self) -> Option<Wrong> {
        // SAFETY: the message lives; the field is an integer of 32 bits whatever it holds.
        let code = unsafe { (&raw const (*self.message).err).cast::<i32>().read() };
        // SAFETY: the message is an error then; the text lives with it.
        let text = || unsafe { text_of(c::rd_kafka_message_errstr(self.message)) };
        (code != 0).then(|| Wrong { kind: Kind::of(code), text: text() })
    }

    /// The topic that it belongs to, as [`Topic::key`] names it, and its partition.
    pub(crate) fn place(&self) -> (usize, i32) {
        // SAFETY: the message lives.
        unsafe { ((*self.message).rkt.addr(), (*self.message).partition) }
    }

    pub(crate) fn offset(&self) -> u64 {
        // SAFETY: the message lives.
        u64::try_from(unsafe { (*self.message).offset }).unwrap_or(0)
    }

    pub(crate) fn payload(&self) -> &[u8] {
        // SAFETY: the message lives as long as the borrow of its batch; its payload is `len` bytes or null.
        unsafe {
            let (payload, len) = ((*self.message).payload, (*self.message).len);
            if payload.is_null() { &[] } else { std::slice::from_raw_parts(payload.cast::<u8>(), len) }
        }
    }

    /// Its key; none where it has none.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        // SAFETY: the message lives as long as the borrow of its batch; its key is `key_len` bytes or null.
        unsafe {
            let (key, len) = ((*self.message).key, (*self.message).key_len);
            if key.is_null() { None } else { Some(std::slice::from_raw_parts(key.cast::<u8>(), len)) }
        }
    }

    /// The last of its headers with this name.
    pub(crate) fn header(&self, name: &CStr) -> Option<&[u8]> {
        let (mut headers, mut value, mut len) = (ptr::null_mut(), ptr::null(), 0);
        // SAFETY: the message lives as long as the borrow of its batch, and its headers with it. A header that is
        // found has `len` bytes or is null; answers are not needed, because what is not found stays null.
        unsafe {
            c::rd_kafka_message_headers(self.message, &raw mut headers);
            if headers.is_null() {
                return None;
            }
            c::rd_kafka_header_get_last(headers, name.as_ptr(), &raw mut value, &raw mut len);
            if value.is_null() { None } else { Some(std::slice::from_raw_parts(value.cast::<u8>(), len)) }
        }
    }

    /// Kafka's time of it, ns since 1970 UTC.
    pub(crate) fn time(&self) -> Option<i64> {
        let mut kind = c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message lives; the kind is one of the three.
        let time = unsafe { c::rd_kafka_message_timestamp(self.message, &raw mut kind) };
        if time < 0 { None } else { time.checked_mul(1_000_000) }
    }
}
