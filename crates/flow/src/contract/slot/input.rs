//! An input of a slot: its readers, and the names of its origins.

use crate::Fault;
use crate::data::{Data, slot_stream, stream_fault};
use std::sync::Arc;
use store::{Batch, Check, Error, Kind, ReadOptions, Reader};

/// Position of a slot that is not in user code.
pub(super) const NOWHERE: u64 = u64::MAX;

/// The input of the code.
pub(super) enum CodeInput<'b> {
    Batch(Batch<'b>),
    /// The state that it keeps leaves no room for this message.
    Refused(Batch<'b>, Error),
    /// The input is complete up to this time.
    Time(i64),
}

/// One input of a slot.
pub(super) struct Source {
    name: String,
    pub(super) reader: Reader,
    check: Check,
    /// Says how far the user code is: what the runner looks at when the slot dies.
    pub(super) stand: Reader,
    /// Rows of the slot's stream for origins of the input.
    pub(super) origins: Vec<u32>,
    /// Names of the origins of the input.
    names: Arc<[String]>,
}

impl Source {
    pub(super) fn open(data: &Data, stage: &str, number: u32, name: &str) -> Result<Self, Fault> {
        let stand =
            ReadOptions { name: slot_stream(stage, number), kind: Kind::Live, early: true, ..ReadOptions::default() };
        let options = ReadOptions { early: true, check: Check::All, ..ReadOptions::default() };
        let check = options.check;
        let stand = data.reader(name, stand)?;
        // The place may be that of a slot that died.
        stand.commit(NOWHERE);
        Ok(Self {
            name: name.to_owned(),
            reader: data.reader(name, options)?,
            check,
            stand,
            origins: Vec::new(),
            names: Arc::new([]),
        })
    }

    /// A message for which the state that the code keeps leaves no room: another reader, which keeps nothing, gives its
    /// bytes.
    pub(super) fn refused<'b>(
        &self,
        data: &Data,
        sequence: u64,
        beside: &'b mut Option<Reader>,
        cause: Error,
    ) -> Result<CodeInput<'b>, Fault> {
        let options = ReadOptions { early: true, check: self.check, ..ReadOptions::default() };
        let reader = beside.insert(data.reader(&self.name, options)?);
        reader.seek(sequence);
        match reader.read(1) {
            Ok(batch) if !batch.is_empty() => Ok(CodeInput::Refused(batch, cause)),
            _ => Err(stream_fault(&self.name, cause)),
        }
    }

    /// Finds the live place of a writer that has started again. Returns the end of the stream.
    pub(super) fn reattach(&mut self) -> Result<u64, Fault> {
        self.reader.reattach().map_err(|e| stream_fault(&self.name, e))?;
        Ok(self.reader.end())
    }

    /// Sets how much of each later message is verified.
    pub(super) fn verify(&mut self, data: &Data, check: Check) -> Result<(), Fault> {
        if self.check != check {
            self.reader = data.reader(&self.name, ReadOptions { early: true, check, ..ReadOptions::default() })?;
            self.check = check;
        }
        Ok(())
    }

    /// Names of origins by row: read again where one of the messages has a row that is not known.
    pub(super) fn names(&mut self, from: u64, max: usize) -> Result<Arc<[String]>, Fault> {
        let highest = match self.reader.entries(from, max) {
            Ok(entries) => entries.iter().map(|e| e.origin).max(),
            // Reading says what is wrong.
            Err(_) => None,
        };
        if highest.is_some_and(|row| row as usize >= self.names.len()) {
            self.names = self.reader.origins().map_err(|e| stream_fault(&self.name, e))?.into();
        }
        Ok(self.names.clone())
    }
}
