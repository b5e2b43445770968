//! Transactions of a client that sends: its messages reach readers all together or not at all, and a newer client of
//! the same name shuts out the older.

use super::{Client, Code, Kind, Wrong, c, codes, text_of, written};
use crate::limits::TEXT_BYTES;
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// Codes by which brokers and librdkafka refuse a client whose name another one has.
const FENCED: [Code; 3] = [
    Code::RD_KAFKA_RESP_ERR__FENCED,
    Code::RD_KAFKA_RESP_ERR_PRODUCER_FENCED,
    Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
];

thread_local! {
    /// The newest error of a message, 0 where there is none.
    static UNDELIVERED: Cell<i32> = const { Cell::new(0) };
}

/// Receives the fate of a message. librdkafka calls it in the thread that commits or aborts.
pub(super) unsafe extern "C" fn delivered(
    _: *mut c::rd_kafka_t,
    message: *const c::rd_kafka_message_t,
    _: *mut c_void,
) {
    // SAFETY: the message lives through the call; the field is an integer of 32 bits whatever it holds.
    let code = unsafe { (&raw const (*message).err).cast::<i32>().read() };
    if code != 0 {
        UNDELIVERED.set(code);
    }
}

/// Why a step of a transaction failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The name of the client belongs to another one, or the brokers have ended its transaction because of its age. The
    /// client is of no use any more.
    Fenced(Wrong),
    /// The transaction cannot be committed: it has to be aborted, and the next one may succeed.
    NeedsAbort(Wrong),
    /// It was not done in time: the same step again resumes it.
    Unfinished(Wrong),
    /// The client is of no use any more.
    Ended(Wrong),
}

/// The answer of a step. `is_*`: as librdkafka judges the error.
fn judged(codes: [i32; 2], is_fatal: bool, needs_abort: bool, is_retriable: bool, wrong: Wrong) -> Failed {
    let is_fenced = |code: &i32| FENCED.iter().any(|known| *known as i32 == *code);
    match () {
        () if codes.iter().any(is_fenced) => Failed::Fenced(wrong),
        () if is_fatal => Failed::Ended(wrong),
        () if needs_abort => Failed::NeedsAbort(wrong),
        () if is_retriable => Failed::Unfinished(wrong),
        // librdkafka advises to treat all others as fatal.
        () => Failed::Ended(wrong),
    }
}

impl Client {
    /// A client that sends in transactions, which say what became of its messages: there are no reports. The error is
    /// as that of [`Client::new`].
    pub(crate) fn transacts(properties: &[(String, String)]) -> Result<Arc<Self>, (String, String)> {
        // Reports as events would have to be received by another thread while a commit waits.
        Self::with_events(c::rd_kafka_type_t::RD_KAFKA_PRODUCER, properties, c::RD_KAFKA_EVENT_ERROR)
    }

    /// Gets the name of the property `transactional.id` for this client, before its first transaction: older clients of
    /// the name are shut out, and what they have not committed is aborted.
    pub(crate) fn claim_name(&self, timeout_ms: i32) -> Result<(), Failed> {
        // SAFETY: the client lives.
        self.step(unsafe { c::rd_kafka_init_transactions(self.0.as_ptr(), timeout_ms) })
    }

    /// Begins a transaction; does not wait.
    pub(crate) fn begin(&self) -> Result<(), Failed> {
        // SAFETY: the client lives.
        self.step(unsafe { c::rd_kafka_begin_transaction(self.0.as_ptr()) })
    }

    /// Waits until the brokers have all messages of the transaction, and commits it.
    pub(crate) fn commit(&self, timeout_ms: i32) -> Result<(), Failed> {
        UNDELIVERED.set(0);
        // SAFETY: the client lives.
        let step = self.step(unsafe { c::rd_kafka_commit_transaction(self.0.as_ptr(), timeout_ms) });
        match (step, UNDELIVERED.get()) {
            // Without a cause: the messages have it.
            (Err(Failed::NeedsAbort(wrong)), code) if code != 0 && wrong.kind == Kind::Other => {
                Err(Failed::NeedsAbort(Wrong::of(code)))
            }
            (step, _) => step,
        }
    }

    /// Discards the messages of the transaction that were not sent, and aborts it.
    pub(crate) fn abort(&self, timeout_ms: i32) -> Result<(), Failed> {
        // SAFETY: the client lives.
        self.step(unsafe { c::rd_kafka_abort_transaction(self.0.as_ptr(), timeout_ms) })
    }

    /// The answer of a step as a value.
    pub(super) fn step(&self, error: *mut c::rd_kafka_error_t) -> Result<(), Failed> {
        if error.is_null() {
            return Ok(());
        }
        let mut buffer = vec![0 as c_char; TEXT_BYTES];
        // SAFETY: the client lives, and the buffer has the given length; the error is ours and destroyed here, after
        // its text was copied.
        unsafe {
            let code = codes::rd_kafka_error_code(error);
            let fatal = codes::rd_kafka_fatal_error(self.0.as_ptr(), buffer.as_mut_ptr(), buffer.len());
            let is_fatal = fatal != 0 || c::rd_kafka_error_is_fatal(error) != 0;
            let needs_abort = c::rd_kafka_error_txn_requires_abort(error) != 0;
            let is_retriable = c::rd_kafka_error_is_retriable(error) != 0;
            // The fatal error is the cause of the one that this step has met.
            let text = if fatal == 0 { text_of(c::rd_kafka_error_string(error)) } else { written(&buffer) };
            let kind = Kind::of(if fatal == 0 { code } else { fatal });
            let wrong = Wrong { kind, text };
            c::rd_kafka_error_destroy(error);
            Err(judged([code, fatal], is_fatal, needs_abort, is_retriable, wrong))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_was_fenced_is_recognized_by_any_of_its_codes() {
        let wrong = || Wrong { kind: Kind::Other, text: "x".into() };
        let fatal = Code::RD_KAFKA_RESP_ERR__FATAL as i32;
        for code in FENCED {
            assert_eq!(judged([code as i32, 0], false, true, false, wrong()), Failed::Fenced(wrong()));
            assert_eq!(judged([fatal, code as i32], true, false, false, wrong()), Failed::Fenced(wrong()));
        }
        assert_eq!(judged([fatal, 53], true, false, true, wrong()), Failed::Ended(wrong()));
        assert_eq!(judged([10, 0], false, true, true, wrong()), Failed::NeedsAbort(wrong()));
        assert_eq!(judged([-185, 0], false, false, true, wrong()), Failed::Unfinished(wrong()));
        assert_eq!(judged([-172, 0], false, false, false, wrong()), Failed::Ended(wrong()));
    }
}
