//! The alarms that last in a stream, from its messages al00, f142 and ep01.
//!
//! Constraints: a look reads at most [`ALARMS_MAX`] messages of what came, the newest; it reads nothing of streams that
//! have no such messages.

use crate::limits::ALARMS_MAX;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use store::{Entry, Reader};
use wire::Message;
use wire::f142::AlarmSeverity;

/// An alarm that lasts, or a connection that is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alarm {
    /// The name in its message.
    pub origin: String,
    /// How bad it is, or the state of the connection.
    pub severity: String,
}

/// The alarms of a stream, as far as they were read.
#[derive(Default)]
pub(super) struct Alarms {
    /// Messages that are to be read.
    wanted: VecDeque<u64>,
    /// By name: severity, and state of the connection; none where it is good.
    states: BTreeMap<String, [Option<String>; 2]>,
}

impl Alarms {
    /// Notes a message that may tell of an alarm.
    pub(super) fn note(&mut self, sequence: u64, entry: &Entry) {
        if matches!(&entry.schema.0, b"al00" | b"f142" | b"ep01") {
            if self.wanted.len() == ALARMS_MAX {
                self.wanted.pop_front();
            }
            self.wanted.push_back(sequence);
        }
    }

    /// Reads what was noted.
    pub(super) fn catch_up(&mut self, reader: &mut Reader) {
        for sequence in std::mem::take(&mut self.wanted) {
            // One that is gone or damaged tells nothing.
            if let Ok(Some((_, bytes))) = reader.get(sequence) {
                self.take(&bytes);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let (name, place, state) = match wire::read(bytes) {
            Ok(Message::Al00(m)) => (m.source_name, 0, m.severity.name()),
            Ok(Message::F142(m)) => match m.severity {
                AlarmSeverity::NoChange => return,
                AlarmSeverity::NoAlarm => (m.source_name, 0, "OK"),
                severity => (m.source_name, 0, severity.name()),
            },
            Ok(Message::Ep01(m)) => (m.source_name, 1, m.status.name()),
            _ => return,
        };
        let is_good = matches!(state, "OK" | "CONNECTED");
        if is_good && !self.states.contains_key(name) {
            return;
        }
        self.states.entry(name.to_owned()).or_default()[place] = (!is_good).then(|| state.to_owned());
    }

    /// Those that last.
    pub(super) fn lasting(&self) -> Vec<Alarm> {
        let of = |(origin, states): (&String, &[Option<String>; 2])| {
            let severity = states.iter().flatten().next()?.clone();
            Some(Alarm { origin: origin.clone(), severity })
        };
        self.states.iter().filter_map(of).collect()
    }
}
