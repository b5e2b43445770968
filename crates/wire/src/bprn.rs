//! `bprn`: a step in the life of a run. Messages of the stream `runs`, appended by the mover alone.

use crate::flat::{Message, Writer};
use crate::{Array, Error, List};

/// The schema id.
pub const ID: [u8; 4] = *b"bprn";

/// Value of `stop` while it is not known.
pub const STOP_UNKNOWN: i64 = i64::MAX;

/// Where a run is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Begun, not ended.
    Open,
    /// Ended; late messages are still waited for.
    Settling,
    /// Complete: from here on a pure function of the streams.
    Sealed,
}

impl State {
    /// The word users see.
    pub fn name(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Settling => "settling",
            State::Sealed => "sealed",
        }
    }
}

/// A run as it is after one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Run<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uuid.
    pub id: [u8; 16],
    /// Where it is in its life.
    pub state: State,
    /// First source time that belongs to it, ns since 1970 UTC.
    pub start: i64,
    /// First source time that belongs no more, ns since 1970 UTC; [`STOP_UNKNOWN`] while not known.
    pub stop: i64,
    /// How long late messages are waited for, ns.
    pub settle: i64,
    /// When this state began, ns since 1970 UTC.
    pub time: i64,
    /// Metadata of this run, JSON.
    pub metadata: &'a str,
    /// The ranges in which its messages are; complete when sealed.
    pub streams: List<'a, RunStream<'a>>,
    /// The person or the condition that ended it.
    pub reason: &'a str,
    /// It ends with the messages of the time `stop - 1` ns, which was asked for as its last; no other field depends on it.
    pub inclusive: bool,
    /// How far the wall clock was set in the run or before, ns: negative = back, 0 = not.
    pub clock_step: i64,
    /// Metadata of the instrument, JSON: the runs of an instrument share it.
    pub instrument: &'a str,
    /// Distance to the earlier message that has `instrument`; 0: this message has it, or the instrument has none.
    pub instrument_back: u32,
}

/// The range of one stream in which the messages of a run are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunStream<'a> {
    /// Name of the stream.
    pub name: &'a str,
    /// Its uuid.
    pub uuid: [u8; 16],
    /// Its epoch.
    pub epoch: u32,
    /// First sequence of the range.
    pub first: u64,
    /// Sequence after the last of the range.
    pub next: u64,
    /// What its source times are: `epoch`, `ticks` or `none`.
    pub clock: &'a str,
    /// Whether its source had ended.
    pub ended: bool,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Run<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let state = match table.number(2, 0u8, "state")? {
        0 => State::Open,
        1 => State::Settling,
        2 => State::Sealed,
        value => {
            return Err(Error::UnknownKind { field: "state", value: value.into() });
        }
    };
    let streams = table.tables(8, "streams", |stream| {
        Ok(RunStream {
            name: stream.text_or_empty(0, "streams.name")?,
            uuid: stream.uuid(1, "streams.uuid")?,
            epoch: stream.number(2, 0, "streams.epoch")?,
            first: stream.number(3, 0, "streams.first")?,
            next: stream.number(4, 0, "streams.next")?,
            clock: stream.text_or_empty(5, "streams.clock")?,
            ended: stream.flag(6, "streams.ended")?,
        })
    })?;
    Ok(Run {
        name: table.text_required(0, "name")?,
        id: table.uuid(1, "id")?,
        state,
        start: table.number(3, 0, "start")?,
        stop: table.number(4, STOP_UNKNOWN, "stop")?,
        settle: table.number(5, 0, "settle")?,
        time: table.number(6, 0, "time")?,
        metadata: table.text_or_empty(7, "metadata")?,
        streams: streams.unwrap_or_default().into(),
        reason: table.text_or_empty(9, "reason")?,
        inclusive: table.flag(10, "inclusive")?,
        clock_step: table.number(11, 0, "clock_step")?,
        instrument: table.text_or_empty(12, "instrument")?,
        instrument_back: table.number(13, 0, "instrument_back")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Run<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [name, id, state, start, stop, settle, time, metadata, streams, reason, inclusive, clock_step, of_all, back] =
        writer.root([4, 4, 1, 8, 8, 8, 8, 4, 4, 4, 1, 8, 4, 4]);
    writer.put(state, parts.state as u8);
    writer.put(start, parts.start);
    writer.put(stop, parts.stop);
    writer.put(settle, parts.settle);
    writer.put(time, parts.time);
    writer.put(inclusive, u8::from(parts.inclusive));
    writer.put(clock_step, parts.clock_step);
    writer.put(back, parts.instrument_back);
    writer.text(name, parts.name);
    writer.array(id, Array::from(&parts.id));
    writer.text(metadata, parts.metadata);
    let slots = writer.list(streams, parts.streams.len(), "streams");
    for (at, stream) in parts.streams.iter().enumerate() {
        let [name, uuid, epoch, first, next, clock, ended] = writer.table(slots + 4 * at, [4, 4, 4, 8, 8, 4, 1]);
        writer.put(epoch, stream.epoch);
        writer.put(first, stream.first);
        writer.put(next, stream.next);
        writer.put(ended, u8::from(stream.ended));
        writer.text(name, stream.name);
        writer.array(uuid, Array::from(&stream.uuid));
        writer.text(clock, stream.clock);
    }
    writer.text(reason, parts.reason);
    writer.text(of_all, parts.instrument);
    writer.finish()
}
