//! The messages of a group, for code that asks for them.
//!
//! Constraints: they are views of the stream that the groups are of, which the runner holds until the group is
//! committed; nothing is copied.
//!
//! Failure behaviour: for a message that is no group, or one with members that are gone, the code is not called: an
//! exception sets it aside.

use crate::batch::Batch;
use crate::block::Block;
use crate::limits::{MEMBERS_LOOKS, MEMBERS_NAP};
use crate::results::Undone;
use flow::{Data, Fault, stream_fault};
use pyo3::exceptions::{PyLookupError, PyTypeError};
use std::collections::HashMap;
use std::sync::Arc;
use store::{ReadOptions, Reader};

/// Readers of the streams that groups are of, by the name of the worker that makes the groups.
pub(crate) struct Members {
    data: Data,
    readers: HashMap<String, (String, Reader)>,
}

impl Members {
    pub(crate) fn new(data: &Data) -> Self {
        Self { data: data.clone(), readers: HashMap::new() }
    }

    /// The messages of a group that worker `groups` has made.
    pub(crate) fn of(&mut self, groups: &str, message: &store::Message<'_>) -> Result<Batch, Undone> {
        if message.entry.schema.0 != wire::bpgr::ID {
            let schema = message.entry.schema.as_text();
            let text =
                format!("code with `of=\"all\"` is for groups (bpgr), and message {} is {schema}", message.sequence);
            return Err(Undone::Raised(PyTypeError::new_err(text)));
        }
        let group = wire::bpgr::read(message.payload);
        let group = group.map_err(|e| Undone::Raised(PyTypeError::new_err(format!("it cannot be read: {e}"))))?;
        let sequences: Vec<u64> = match group.members.is_empty() {
            true => (group.first..group.first + u64::from(group.count)).collect(),
            false => group.members.iter().collect(),
        };
        let (stream, reader) = self.reader(groups)?;
        let fault = |e| Undone::from(stream_fault(stream, e));
        let origins = reader.origins().map_err(fault)?.iter().map(|name| name.as_str().into()).collect();
        let mut block = Block::new(origins);
        let mut at = 0;
        while at < sequences.len() {
            let in_a_row = sequences[at..].windows(2).take_while(|pair| pair[1] == pair[0] + 1).count() + 1;
            reader.seek(sequences[at]);
            let read = match reader.read(in_a_row) {
                Ok(batch) if !batch.is_empty() => block.add(&batch),
                _ => 0,
            };
            if read == 0 {
                let text = format!(
                    "message {} of `{stream}` is in a group, and gone: give that stream a larger `live`, or `retain`",
                    sequences[at]
                );
                return Err(Undone::Raised(PyLookupError::new_err(text)));
            }
            at += read;
        }
        Ok(Batch::new(Arc::new(block)))
    }

    /// The stream of the members, and its reader.
    fn reader(&mut self, groups: &str) -> Result<&mut (String, Reader), Fault> {
        if !self.readers.contains_key(groups) {
            let what = || format!("cannot find the messages of the groups of `{groups}`");
            // Its first groups may be there before its first commit.
            let mut looks = MEMBERS_LOOKS;
            let input = loop {
                let input = flow::inputs_of(&self.data, groups)?.into_iter().next();
                match input {
                    Some(input) => break input,
                    None if looks == 0 => return Err(Fault::new(what(), "no worker has made them")),
                    None => std::thread::sleep(MEMBERS_NAP),
                }
                looks -= 1;
            };
            let reader = self.data.reader(&input.stream, ReadOptions { early: true, ..ReadOptions::default() })?;
            self.readers.insert(groups.to_owned(), (input.stream, reader));
        }
        self.readers.get_mut(groups).ok_or_else(|| Fault::new("the readers of members are gone", ""))
    }
}
