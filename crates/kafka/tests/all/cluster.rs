//! A cluster that is not there: the mock brokers of librdkafka, in this process, and a producer.

#![allow(dead_code, reason = "each test uses a part")]

use rdkafka_sys::bindings as c;
use std::ffi::{CStr, CString};
use std::ptr;

/// A client, which is silent, with these properties.
fn client(kind: c::rd_kafka_type_t, properties: &[(&str, String)]) -> *mut c::rd_kafka_t {
    let mut text = [0; 512];
    // SAFETY: texts live through the calls, and the buffer has the given length; the client takes the configuration.
    let client = unsafe {
        let conf = c::rd_kafka_conf_new();
        c::rd_kafka_conf_set_log_cb(conf, None);
        for (name, value) in properties {
            let (name, value) = (CString::new(*name).unwrap(), CString::new(value.as_str()).unwrap());
            c::rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), text.as_mut_ptr(), text.len());
        }
        c::rd_kafka_new(kind, conf, text.as_mut_ptr(), text.len())
    };
    assert!(!client.is_null());
    client
}

/// Brokers, which keep 5 MiB of each partition.
pub(crate) struct Cluster {
    client: *mut c::rd_kafka_t,
    mock: *mut c::rd_kafka_mock_cluster_t,
}

impl Cluster {
    /// Two brokers with topics of so many partitions.
    pub(crate) fn new(topics: &[(&str, i32)]) -> Self {
        // SAFETY: the client lives as long as its mock cluster, and both until `drop`.
        unsafe {
            let client = client(c::rd_kafka_type_t::RD_KAFKA_PRODUCER, &[]);
            let mock = c::rd_kafka_mock_cluster_new(client, 1);
            assert!(!mock.is_null());
            // The mock calls broker 0 its controller, and has none of that number.
            assert_eq!(c::rd_kafka_mock_broker_add(mock, 0), c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
            let cluster = Self { client, mock };
            topics.iter().for_each(|(name, partitions)| cluster.make(name, *partitions));
            cluster
        }
    }

    pub(crate) fn make(&self, topic: &str, partitions: i32) {
        let name = CString::new(topic).unwrap();
        // SAFETY: the cluster lives.
        unsafe { c::rd_kafka_mock_topic_create(self.mock, name.as_ptr(), partitions, 1) };
    }

    /// The `brokers` that lead here.
    pub(crate) fn brokers(&self) -> String {
        // SAFETY: the cluster lives, and the text with it.
        unsafe { CStr::from_ptr(c::rd_kafka_mock_cluster_bootstraps(self.mock)) }.to_str().unwrap().to_owned()
    }

    pub(crate) fn down(&self) {
        for broker in [0, 1] {
            // SAFETY: the cluster lives.
            unsafe { c::rd_kafka_mock_broker_set_down(self.mock, broker) };
        }
    }

    pub(crate) fn up(&self) {
        for broker in [0, 1] {
            // SAFETY: the cluster lives.
            unsafe { c::rd_kafka_mock_broker_set_up(self.mock, broker) };
        }
    }

    /// Sends messages and waits until the broker has them.
    pub(crate) fn send<'a>(&self, topic: &str, partition: i32, messages: impl IntoIterator<Item = &'a [u8]>) {
        let conf = [("bootstrap.servers", self.brokers()), ("enable.idempotence", "true".into())];
        // SAFETY: the producer lives in this block; payloads are copied by the call.
        unsafe {
            let producer = client(c::rd_kafka_type_t::RD_KAFKA_PRODUCER, &conf);
            let name = CString::new(topic).unwrap();
            let topic = c::rd_kafka_topic_new(producer, name.as_ptr(), ptr::null_mut());
            for message in messages {
                let (payload, copy) = (message.as_ptr().cast_mut().cast(), c::RD_KAFKA_MSG_F_COPY);
                let (none, nothing) = (ptr::null(), ptr::null_mut());
                let sent = c::rd_kafka_produce(topic, partition, copy, payload, message.len(), none, 0, nothing);
                assert_eq!(sent, 0);
            }
            c::rd_kafka_flush(producer, 60_000);
            assert_eq!(c::rd_kafka_outq_len(producer), 0, "the broker has not taken all");
            c::rd_kafka_topic_destroy(topic);
            c::rd_kafka_destroy(producer);
        }
    }
}

/// A message of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) key: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// ms since 1970 UTC.
    pub(crate) time: i64,
    /// The header `beamport`.
    pub(crate) header: Vec<u8>,
    /// The header `beamport-origin`.
    pub(crate) origin: Vec<u8>,
}

impl Cluster {
    /// Refuses the next `count` requests that send messages.
    pub(crate) fn refuse_as_too_large(&self, count: usize) {
        let wrong = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
        let all = vec![wrong; count];
        // SAFETY: the cluster lives; 0 is the number of the request, and the errors are copied.
        unsafe { c::rd_kafka_mock_push_request_errors_array(self.mock, 0, all.len(), all.as_ptr()) };
    }

    /// Refuses the next request that adds a partition to a transaction, as if a newer client had its name.
    pub(crate) fn fence(&self) {
        let wrong = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_PRODUCER_FENCED;
        // SAFETY: the cluster lives; 24 is the number of the request, and the error is copied.
        unsafe { c::rd_kafka_mock_push_request_errors_array(self.mock, 24, 1, &raw const wrong) };
    }

    /// Questions about a topic are answered as if there were none.
    pub(crate) fn hide(&self, topic: &str) {
        let topic = CString::new(topic).unwrap();
        let wrong = c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        // SAFETY: the cluster lives; the name is copied.
        unsafe { c::rd_kafka_mock_topic_set_error(self.mock, topic.as_ptr(), wrong) };
    }

    /// All messages of a partition, in order.
    pub(crate) fn read(&self, topic: &str, partition: i32) -> Vec<Found> {
        let conf = [("bootstrap.servers", self.brokers()), ("enable.partition.eof", "true".into())];
        let mut all = Vec::new();
        // SAFETY: the consumer lives in this block; messages are read before they are destroyed.
        unsafe {
            let consumer = client(c::rd_kafka_type_t::RD_KAFKA_CONSUMER, &conf);
            let name = CString::new(topic).unwrap();
            let topic = c::rd_kafka_topic_new(consumer, name.as_ptr(), ptr::null_mut());
            assert_eq!(c::rd_kafka_consume_start(topic, partition, i64::from(c::RD_KAFKA_OFFSET_BEGINNING)), 0);
            loop {
                let message = c::rd_kafka_consume(topic, partition, 60_000);
                assert!(!message.is_null(), "the broker does not answer");
                let code = (&raw const (*message).err).cast::<i32>().read();
                if code == 0 {
                    all.push(found(message));
                }
                c::rd_kafka_message_destroy(message);
                if code != 0 {
                    assert_eq!(code, c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF as i32);
                    break;
                }
            }
            c::rd_kafka_consume_stop(topic, partition);
            c::rd_kafka_topic_destroy(topic);
            c::rd_kafka_destroy(consumer);
        }
        all
    }
}

/// # Safety
/// The message lives.
unsafe fn found(message: *const c::rd_kafka_message_t) -> Found {
    // SAFETY: what it points to lives with it.
    unsafe {
        let copy = |first: *const u8, len| if len == 0 { &[] } else { std::slice::from_raw_parts(first, len) }.to_vec();
        let mut kind = c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        let mut headers = ptr::null_mut();
        c::rd_kafka_message_headers(message, &raw mut headers);
        let header = |name: &CStr| {
            let (mut value, mut len) = (ptr::null(), 0);
            if !headers.is_null() {
                c::rd_kafka_header_get_last(headers, name.as_ptr(), &raw mut value, &raw mut len);
            }
            copy(value.cast(), len)
        };
        Found {
            key: copy((*message).key.cast(), (*message).key_len),
            payload: copy((*message).payload.cast(), (*message).len),
            time: c::rd_kafka_message_timestamp(message, &raw mut kind),
            header: header(c"beamport"),
            origin: header(c"beamport-origin"),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: nobody uses them any more.
        unsafe {
            c::rd_kafka_mock_cluster_destroy(self.mock);
            c::rd_kafka_destroy(self.client);
        }
    }
}
