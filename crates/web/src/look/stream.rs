//! The streams of panels, kept open, and the message that a panel shows.

use super::Panel;
use crate::limits::{COMPARE, READERS_MAX, SEARCH_MAX};
use flow::{Data, Fault, stream_fault};
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Instant;
use store::{Clock, Entry, ReadOptions, Reader};

/// What is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum View {
    /// By the schema of the message.
    #[default]
    Auto,
    /// Numbers in two dimensions.
    Image,
    /// Numbers over time.
    Trend,
    /// The fields of one message.
    Message,
}

impl View {
    /// The view of a schema.
    pub(super) fn of(schema: [u8; 4]) -> Self {
        match &schema {
            b"ad00" => View::Image,
            b"f144" | b"f142" | b"se00" | b"senv" | b"tdct" => View::Trend,
            _ => View::Message,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            View::Auto => "auto",
            View::Image => "image",
            View::Trend => "trend",
            View::Message => "message",
        }
    }
}

/// The message of a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) sequence: u64,
    pub(super) epoch: u32,
    pub(super) entry: Entry,
}

/// Streams by name.
#[derive(Default)]
pub(super) struct Streams {
    open: HashMap<String, Stream>,
}

/// A stream that is read.
pub(super) struct Stream {
    name: String,
    pub(super) reader: Reader,
    used: Instant,
    /// When its header was compared last.
    compared: Instant,
}

impl Streams {
    /// Opens a stream, or takes it from the last time.
    pub(super) fn open(&mut self, data: &Data, name: &str) -> Result<&mut Stream, Fault> {
        if Data::is_book(name) {
            return Err(Fault::new(
                format!("`{name}` is no stream of an instrument"),
                "beamport keeps its books there",
            )
            .hint("the status has runs, stages and readers"));
        }
        if let Some(stream) = self.open.get_mut(name)
            && stream.compared.elapsed() >= COMPARE
        {
            stream.compared = Instant::now();
            // Another stream, or none, is there now.
            if stream.reader.reattach().is_err() {
                self.open.remove(name);
            }
        }
        if !self.open.contains_key(name) {
            let oldest = self.open.iter().min_by_key(|(_, stream)| stream.used).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest.filter(|_| self.open.len() >= READERS_MAX) {
                self.open.remove(&oldest);
            }
            let reader = data.reader(name, ReadOptions { early: true, ..ReadOptions::default() })?;
            let now = Instant::now();
            self.open.insert(name.to_owned(), Stream { name: name.to_owned(), reader, used: now, compared: now });
        }
        match self.open.get_mut(name) {
            Some(stream) => {
                stream.used = Instant::now();
                Ok(stream)
            }
            None => Err(Fault::new(format!("stream `{name}` cannot be read"), "")),
        }
    }
}

impl Stream {
    pub(super) fn uuid(&self) -> [u8; 16] {
        self.reader.header().uuid
    }

    pub(super) fn fault(&self, error: store::Error) -> Fault {
        stream_fault(&self.name, error)
    }

    pub(super) fn origin(&mut self, row: u32) -> String {
        self.reader.origin(row).to_owned()
    }

    /// The epoch of a message.
    pub(super) fn epoch(&self, sequence: u64) -> u32 {
        self.reader.header().epochs.iter().rev().find(|(_, first)| *first <= sequence).map_or(0, |(epoch, _)| *epoch)
    }

    /// The message that a panel shows: its number, or the newest one up to a moment.
    pub(super) fn find(&mut self, panel: &Panel, at: Option<i64>) -> Result<Found, Fault> {
        let bounds = self.reader.bounds();
        let what = format!("stream `{}` has no such message", self.name);
        let none = |cause: &str, hint: &str| Err(Fault::new(what.as_str(), cause).hint(hint));
        if let Some(sequence) = panel.sequence {
            if sequence < bounds.first {
                return none("retention has deleted it", "a larger `retain` keeps more");
            }
            return match self.entry(sequence)? {
                Some(entry) => Ok(self.found(sequence, entry)),
                None => none(&format!("the newest is {}", bounds.count.saturating_sub(1)), ""),
            };
        }
        if bounds.count == bounds.first {
            return none("it is empty", "");
        }
        let end = match at {
            None => self.reader.end(),
            Some(at) => self.end_at(at)?,
        };
        let low = bounds.first.max(end.saturating_sub(SEARCH_MAX));
        let mut newest = None;
        let mut sequence = end;
        while sequence > low {
            sequence -= 1;
            let entry = match self.entry(sequence) {
                Ok(Some(entry)) => entry,
                Ok(None) => continue,
                // A damaged entry hides only itself.
                Err(_) if newest.is_some() => continue,
                Err(fault) => return Err(fault),
            };
            if let Some(origin) = &panel.origin
                && self.reader.origin(entry.origin) != origin
            {
                continue;
            }
            let view = View::of(entry.schema.0);
            let fits = match panel.view {
                View::Auto => view != View::Message,
                View::Message => true,
                asked => asked == view,
            };
            if fits {
                return Ok(self.found(sequence, entry));
            }
            // Values come with alarms and units between them.
            newest = newest.or(Some((sequence, entry)));
            if panel.view == View::Auto && end - sequence >= 64 {
                break;
            }
        }
        match newest.filter(|_| panel.view == View::Auto) {
            Some((sequence, entry)) => Ok(self.found(sequence, entry)),
            None if panel.view == View::Auto => none("there is none of this origin, or before this moment", ""),
            None => none(&format!("none can be shown as `{}`", panel.view.word()), "ask for the view `auto`"),
        }
    }

    fn found(&self, sequence: u64, entry: Entry) -> Found {
        Found { sequence, epoch: self.epoch(sequence), entry }
    }

    fn entry(&mut self, sequence: u64) -> Result<Option<Entry>, Fault> {
        match self.reader.entries(sequence, 1) {
            Ok(entries) => Ok(entries.first().copied()),
            Err(e) => Err(self.fault(e)),
        }
    }

    /// One past the newest message up to a moment, by its source time; by its arrival where source times are ticks.
    fn end_at(&mut self, at: i64) -> Result<u64, Fault> {
        if self.reader.header().clock == Clock::Epoch {
            let range = self.reader.time_range(i64::MIN, at.saturating_add(1));
            return range.map(|(_, end)| end).map_err(|e| self.fault(e));
        }
        let (mut low, mut high) = (self.reader.bounds().first, self.reader.end());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? {
                Some(entry) if entry.arrival_time <= at => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// Shows the bytes of a message.
    pub(super) fn payload(
        &mut self,
        sequence: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.reader.seek(sequence);
        match self.reader.read(1) {
            Ok(batch) => match batch.iter().next() {
                Some(message) => see(message.payload),
                None => Err(Fault::new(format!("message {sequence} is not there any more"), "")),
            },
            Err(e) => Err(stream_fault(&self.name, e)),
        }
    }
}
