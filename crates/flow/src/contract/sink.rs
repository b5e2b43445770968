//! Sinks: stages that write the members of one run to the outside.
//!
//! The runner ([`crate::Feed`]) decides membership, reads, commits and resumes; a sink owns no position and no clock. A
//! message that it cannot handle never stops the run; an error stops the whole sink.

use crate::Fault;
use store::Message;

/// A message that a sink could not handle; it is counted as `aside.REASON` and never stops the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Its sequence in the input.
    pub sequence: u64,
    /// One word, for example `schema`, `broken`, `unmatched`.
    pub reason: &'static str,
}

/// The result of a finished sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Path of the file, or of the list of files.
    pub file: String,
    /// Its bytes.
    pub size: u64,
    /// BLAKE3 of the file, hexadecimal.
    pub blake3: String,
    /// Number of files: 1, or that of the list.
    pub files: u64,
    /// Bytes of all files, without the list.
    pub bytes: u64,
}

impl Product {
    /// As commits and reports have it.
    pub fn json(&self) -> serde_json::Value {
        let Self { file, size, blake3, files, bytes } = self;
        serde_json::json!({"file": file, "size": size, "blake3": blake3, "files": files, "bytes": bytes})
    }
}

/// Takes the members of one run out of the streams. The runner decides what is a member, reads, commits and resumes.
pub trait Sink {
    /// Takes messages of input number `input` in order of sequence. Messages that it cannot handle are pushed to
    /// `aside`; an error stops the whole sink (disk full, file gone).
    fn write(&mut self, input: usize, messages: &[Message<'_>], aside: &mut Vec<Aside>) -> Result<(), Fault>;
    /// Whether it needs the newest values of this input from before the run, and has not got one of each: then earlier
    /// messages are searched, backwards.
    fn wants_before(&self, _input: usize) -> bool {
        false
    }
    /// Takes a message from before the run. `is_newest`: it is later than those taken so far; otherwise earlier.
    fn before(&mut self, _input: usize, _message: &Message<'_>, _is_newest: bool) {}
    /// Makes everything written so far durable and returns the state from which a new sink of the same kind resumes
    /// (JSON).
    fn flush(&mut self) -> Result<String, Fault>;
    /// Writes the data known only at the end (`account`: the closed account of the run as JSON), makes it durable and
    /// closes. It follows a commit of the state of the last `flush`: rows written since may stay unsorted.
    fn finish(&mut self, account: &str) -> Result<Product, Fault>;
}
