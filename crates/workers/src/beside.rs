//! Values of streams beside the input, by time: what a filter asks for, and what is attached to frames.
//!
//! Values are the numbers and arrays of `f144`, these and the texts of `f142`, and the numbers of `se00`, each with its own
//! time. What is known of a stream says how far it has come: a value that may still be on its way is waited for, for a
//! bounded time.
//!
//! Constraints: of each value the newest 65,536 are known, and of texts and arrays as many as take 64 MiB. Streams are read
//! as they come; what is gone, damaged or no such value is passed over.
//!
//! Failure behaviour: with a name the worker is a counted reader: what was needed at the last commit stays, so that a slot
//! that is killed finds the same values again.

use super::limits::{KNOWN_BYTES_MAX, KNOWN_MAX, NAP, WAIT_MAX};
use super::span::Span;
use flow::Fault;
use flow::{Data, each_batch, stream_fault};
use serde_json::{Map, Value};
use settings::{Key, Refused, Section, key, noun, required};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::{Kind, Message, ReadOptions, Reader};
use toml_edit::Item;
use wire::{DType, Numbers, Scalar, f142, f144, se00};

/// The parameter `wait`: how long after a message's arrival a value may be on its way, ns.
pub(super) fn wait_of(section: &mut Section<'_>, key: &'static Key) -> i64 {
    let wait = Span::ns(section, key).unwrap_or(0);
    if !(0..=WAIT_MAX).contains(&wait) {
        section.refuse(key, Refused::new("it is too long, or negative", "write a time up to `\"10 s\"`"));
    }
    wait
}

/// The part of `wait` that is left for a message that arrived at `arrival`, ns. The time waited counts it down, not the
/// clock, which may be set back.
pub(super) fn left(data: &Data, wait: i64, arrival: i64) -> i64 {
    arrival.saturating_add(wait).saturating_sub(data.media.now()).clamp(0, wait)
}

/// A value that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named {
    /// Its name.
    pub(super) name: String,
    /// Where it is found.
    pub(super) stream: String,
    /// Whose values there; none: all of them.
    pub(super) source: Option<String>,
    /// Added to its times, ns.
    pub(super) offset: i64,
    /// Which one of several.
    pub(super) how: How,
    /// How far from the time that is asked for, ns; `i64::MAX`: any.
    pub(super) tolerance: i64,
}

/// Which value counts at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum How {
    /// The newest that is not later.
    #[default]
    Hold,
    /// The one whose time is nearest; of two the earlier one.
    Nearest,
    /// On the straight line between the one before and the one behind.
    Interpolate,
}

impl How {
    /// As they are written.
    pub(super) const WORDS: [(&'static str, Self); 3] =
        [("hold", Self::Hold), ("nearest", Self::Nearest), ("interpolate", Self::Interpolate)];
}

static STREAM: Key = required("stream", "name of a stream", "The stream of the values.");
static SOURCE: Key = key("source", "text", "", "The origin of the values.");
static TAKE: Key = key("take", "`hold`, `nearest` or `interpolate`", "", "Which value is used.");
static OFFSET: Key = key("offset", "time", "", "Added to the times of the values.");
static TOLERANCE: Key = key("tolerance", "time", "", "Largest difference between the times of value and message.");

impl Named {
    /// The table `values`: a name for each, and a stream, or a table that gives more. `usual`: what counts where the table
    /// gives nothing. Mistakes are noted.
    pub(super) fn read_all(section: &mut Section<'_>, key: &'static Key, usual: &Named) -> Vec<Self> {
        if section.get::<Map<String, Value>>(key).is_none() {
            return Vec::new();
        }
        section.table(key.name, |values| {
            let table = values.table;
            table.iter().filter_map(|(name, item)| Self::read(values, name, item, usual)).collect()
        })
    }

    fn read(values: &mut Section<'_>, name: &str, item: &Item, usual: &Named) -> Option<Self> {
        let named = Self { name: name.to_owned(), ..usual.clone() };
        if let Some(stream) = item.as_str() {
            return Some(Self { stream: stream.to_owned(), ..named });
        }
        if item.as_table_like().is_none() {
            let hint = "write the name of a stream, or `{ stream = \"devices\", source = \"PHASE\" }`";
            values.refuse_named(name, "", Refused::new(format!("it is {}", noun(item)), hint));
            return None;
        }
        values.table(name, |one| {
            let stream = one.get::<String>(&STREAM);
            let source = one.get::<String>(&SOURCE).map(|source| source.value);
            let how = one.word(&TAKE, &How::WORDS).map_or(usual.how, |how| how.value);
            let offset = Span::ns(one, &OFFSET).unwrap_or(usual.offset);
            let tolerance = tolerance(one, &TOLERANCE).unwrap_or(usual.tolerance);
            one.end();
            stream.map(|stream| Self { stream: stream.value, source, how, offset, tolerance, ..named })
        })
    }
}

/// How far the time of a value may be from the one that is asked for, ns.
pub(super) fn tolerance(section: &mut Section<'_>, key: &'static Key) -> Option<i64> {
    let tolerance = Span::ns(section, key)?;
    if tolerance < 0 {
        let hint = "write how far apart the times may be, like `\"1 ms\"`";
        section.refuse(key, Refused::new("it is negative", hint));
    }
    Some(tolerance)
}

/// A value of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sample {
    Number(Scalar),
    Text(Arc<str>),
    Array(DType, Arc<[u8]>),
}

impl Sample {
    fn of_f144(value: &f144::Value<'_>) -> Self {
        match value {
            f144::Value::Scalar(number) => Self::Number(*number),
            f144::Value::Array(numbers) => Self::Array(numbers.dtype(), numbers.bytes().into()),
        }
    }

    /// Bytes beside those of the object itself.
    fn bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Text(text) => text.len(),
            Self::Array(_, bytes) => bytes.len(),
        }
    }

    /// As an attribute has it. `room`: for the bytes of a number.
    pub(super) fn data<'a>(&'a self, room: &'a mut [u8; 8]) -> Option<Numbers<'a>> {
        match self {
            Self::Number(number) => {
                *room = number.bytes();
                Numbers::new(number.dtype(), &room[..number.dtype().size()])
            }
            Self::Text(text) => Some(Numbers::text(text)),
            Self::Array(dtype, bytes) => Numbers::new(*dtype, bytes),
        }
    }
}

/// One value that is known.
struct Known {
    /// With the offset, ns.
    time: i64,
    /// The message that said it.
    sequence: u64,
    value: Sample,
}

/// The known values of one name.
struct Track {
    named: Named,
    /// By time.
    known: VecDeque<Known>,
    /// Bytes of their values.
    bytes: usize,
}

/// A stream, as far as it was read.
struct Stream {
    name: String,
    reader: Reader,
    tracks: Vec<Track>,
    /// Time of its newest message, without offset.
    newest: i64,
    is_placed: bool,
}

/// Streams beside the input of a worker.
pub(super) struct Beside {
    streams: Vec<Stream>,
    /// Of each name: its stream, and its place there.
    places: Vec<(usize, usize)>,
}

impl Beside {
    /// Opens the streams. `keeps`: the name of the counted reader that holds what is needed; none: their writers may
    /// free it.
    pub(super) fn open(data: &Data, keeps: Option<&str>, values: &[Named]) -> Result<Self, Fault> {
        let (mut streams, mut places): (Vec<Stream>, Vec<_>) = (Vec::new(), Vec::new());
        for named in values {
            let at = match streams.iter().position(|s| s.name == named.stream) {
                Some(at) => at,
                None => {
                    let early = ReadOptions { early: true, ..ReadOptions::default() };
                    let options = match keeps {
                        Some(name) => ReadOptions { name: name.to_owned(), kind: Kind::Counted, ..early },
                        None => early,
                    };
                    streams.push(Stream {
                        name: named.stream.clone(),
                        reader: data.reader(&named.stream, options)?,
                        tracks: Vec::new(),
                        newest: i64::MIN,
                        is_placed: false,
                    });
                    streams.len() - 1
                }
            };
            places.push((at, streams[at].tracks.len()));
            streams[at].tracks.push(Track { named: named.clone(), known: VecDeque::new(), bytes: 0 });
        }
        Ok(Self { streams, places })
    }

    /// Value `which` at a time. `left`: ns that may be waited for it; what was waited is taken off.
    pub(super) fn at(&mut self, which: usize, time: i64, left: &mut i64) -> Result<Option<Sample>, Fault> {
        let Some(&(stream, track)) = self.places.get(which) else { return Ok(None) };
        let stream = &mut self.streams[stream];
        let fault = |stream: &Stream, e| stream_fault(&stream.name, e);
        if !stream.is_placed {
            stream.place(time).map_err(|e| fault(stream, e))?;
        }
        loop {
            let is_known = stream.read(track, time)?;
            if is_known || *left <= 0 {
                return Ok(stream.tracks[track].value(time));
            }
            let nap = NAP.min(*left);
            *left -= nap;
            let waited = stream.reader.wait(Duration::from_nanos(nap as u64));
            waited.and_then(|_| stream.reader.reattach().map(drop)).map_err(|e| fault(stream, e))?;
        }
    }

    /// The first message of each stream that is needed for times from here on.
    pub(super) fn needed(&self, time: i64) -> Vec<u64> {
        // A value of a later time may have an earlier sequence.
        let of_track = |track: &Track| {
            let before = track.known.partition_point(|k| k.time <= time).saturating_sub(1);
            track.known.range(before..).map(|k| k.sequence).min()
        };
        let of_stream = |s: &Stream| s.tracks.iter().filter_map(of_track).min().unwrap_or_else(|| s.reader.committed());
        self.streams.iter().map(of_stream).collect()
    }

    /// Releases the messages before those that are needed.
    pub(super) fn release(&self, needed: &[u64]) {
        for (stream, sequence) in self.streams.iter().zip(needed) {
            if *sequence > stream.reader.committed() {
                stream.reader.commit(*sequence);
            }
        }
    }
}

impl Stream {
    /// Seeks back, because the value that counts at the first time may be old.
    fn place(&mut self, time: i64) -> store::Result<()> {
        let earliest = self.tracks.iter().map(|t| time.saturating_sub(t.named.offset.max(0))).min().unwrap_or(time);
        let (_, next) = self.reader.time_range(i64::MIN, earliest.saturating_add(1))?;
        let from = next.saturating_sub(KNOWN_MAX as u64).max(self.reader.bounds().first);
        self.reader.seek(if self.reader.resumed() { from.max(self.reader.committed()) } else { from });
        self.is_placed = true;
        Ok(())
    }

    /// Reads on until what counts at a time is known, or there is nothing more. True if it is known.
    fn read(&mut self, track: usize, time: i64) -> Result<bool, Fault> {
        let Self { reader, tracks, newest, .. } = self;
        let mut is_known = tracks[track].is_known(time, *newest);
        if !is_known {
            each_batch(reader, u64::MAX, &mut |batch| {
                for message in batch.iter() {
                    *newest = (*newest).max(message.entry.source_time);
                    take(tracks, &message);
                }
                is_known = tracks[track].is_known(time, *newest);
                Ok(!is_known)
            })?;
        }
        Ok(is_known)
    }
}

/// Enters what a message says.
fn take(tracks: &mut [Track], message: &Message<'_>) {
    let (at, sequence) = (message.entry.source_time, message.sequence);
    match message.entry.schema.0 {
        f144::ID => {
            let Ok(f144::F144 { source_name, value, .. }) = f144::read(message.payload) else { return };
            let of = tracks.iter_mut().filter(|t| t.is_of(source_name));
            of.for_each(|t| t.enter(at, sequence, Sample::of_f144(&value)));
        }
        f142::ID => {
            let Ok(f142::F142 { source_name, value, .. }) = f142::read(message.payload) else { return };
            let value = match &value {
                f142::Value::Number(value) => Sample::of_f144(value),
                f142::Value::Text(text) => Sample::Text((*text).into()),
                // A frame has no attributes of several texts.
                f142::Value::Texts(_) => return,
            };
            let of = tracks.iter_mut().filter(|t| t.is_of(source_name));
            of.for_each(|t| t.enter(at, sequence, value.clone()));
        }
        se00::ID => {
            let Ok(samples) = se00::read(message.payload) else { return };
            for track in tracks.iter_mut().filter(|t| t.is_of(samples.name)) {
                for i in 0..samples.values.len() {
                    let time = match &samples.timestamps {
                        Some(times) => times.get(i),
                        None => Some(samples.packet_timestamp.saturating_add((samples.time_delta * i as f64) as i64)),
                    };
                    if let (Some(time), Some(value)) = (time, samples.values.get(i)) {
                        track.enter(time, sequence, Sample::Number(value));
                    }
                }
            }
        }
        _ => {}
    }
}

impl Track {
    fn is_of(&self, source: &str) -> bool {
        self.named.source.as_ref().is_none_or(|named| named == source)
    }

    fn enter(&mut self, time: i64, sequence: u64, value: Sample) {
        let time = time.saturating_add(self.named.offset);
        let place = self.known.partition_point(|known| known.time <= time);
        self.bytes += value.bytes();
        self.known.insert(place, Known { time, sequence, value });
        while self.known.len() > 1 && (self.known.len() > KNOWN_MAX || self.bytes > KNOWN_BYTES_MAX) {
            let oldest = self.known.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.value.bytes());
        }
    }

    /// True if nothing can come any more that would count at a time; `newest` is how far its stream is. Others of the stream
    /// say it too: this one may be silent.
    fn is_known(&self, time: i64, newest: i64) -> bool {
        let (newest, after) = (newest.saturating_add(self.named.offset), self.known.back().map(|k| k.time));
        match self.named.how {
            How::Hold => newest > time,
            How::Nearest | How::Interpolate => {
                after.is_some_and(|after| after >= time) || newest > time.saturating_add(self.named.tolerance)
            }
        }
    }

    /// The known value that counts at a time.
    fn value(&self, time: i64) -> Option<Sample> {
        let next = self.known.partition_point(|known| known.time <= time);
        let is_near = |known: &&Known| known.time.abs_diff(time) <= self.named.tolerance.unsigned_abs();
        let before = next.checked_sub(1).and_then(|at| self.known.get(at)).filter(is_near);
        let after = self.known.get(next).filter(is_near);
        let copy = |known: &Known| known.value.clone();
        match (self.named.how, before, after) {
            (How::Hold, before, _) => before.map(copy),
            (How::Nearest, Some(before), Some(after)) => {
                let is_before = before.time.abs_diff(time) <= after.time.abs_diff(time);
                Some(copy(if is_before { before } else { after }))
            }
            (How::Nearest, one, other) => one.or(other).map(copy),
            (How::Interpolate, Some(before), _) if before.time == time => Some(copy(before)),
            (How::Interpolate, Some(before), Some(after)) => {
                let (Sample::Number(from), Sample::Number(to)) = (&before.value, &after.value) else {
                    // Between texts and arrays there is nothing.
                    return Some(copy(before));
                };
                let (from, to) = (from.to_f64(), to.to_f64());
                let part = before.time.abs_diff(time) as f64 / before.time.abs_diff(after.time) as f64;
                Some(Sample::Number(Scalar::Float64(from + (to - from) * part)))
            }
            (How::Interpolate, ..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(how: How, tolerance: i64, times: &[i64]) -> Track {
        let (name, stream, source) = ("x".into(), "s".into(), None);
        let named = Named { name, stream, source, offset: 5, how, tolerance };
        let mut track = Track { named, known: VecDeque::new(), bytes: 0 };
        // In any order of arrival.
        for (sequence, time) in times.iter().enumerate().rev() {
            track.enter(*time, sequence as u64, Sample::Number(Scalar::Int32(*time as i32 * 10)));
        }
        track
    }

    #[test]
    fn the_value_at_a_time_is_the_one_that_was_asked_for() {
        let number = |sample| match sample {
            Sample::Number(number) => number.to_f64(),
            other => panic!("{other:?}"),
        };
        let value = |how, tolerance, time| track(how, tolerance, &[100, 200]).value(time).map(number);
        // With the offset the times are 105 and 205.
        assert_eq!(value(How::Hold, i64::MAX, 104), None);
        assert_eq!(value(How::Hold, i64::MAX, 105), Some(1000.0));
        assert_eq!(value(How::Hold, i64::MAX, 204), Some(1000.0));
        assert_eq!(value(How::Hold, 50, 204), None);
        assert_eq!(value(How::Nearest, i64::MAX, 155), Some(1000.0));
        assert_eq!(value(How::Nearest, i64::MAX, 156), Some(2000.0));
        assert_eq!(value(How::Nearest, 10, 120), None);
        assert_eq!(value(How::Nearest, 10, 196), Some(2000.0));
        assert_eq!(value(How::Interpolate, i64::MAX, 130), Some(1250.0));
        assert_eq!(value(How::Interpolate, i64::MAX, 205), Some(2000.0));
        assert_eq!(value(How::Interpolate, i64::MAX, 206), None);
        assert_eq!(value(How::Interpolate, 30, 130), None);
        // A kept type: what is not computed stays as it was.
        assert_eq!(track(How::Hold, i64::MAX, &[7]).value(12), Some(Sample::Number(Scalar::Int32(70))));
    }

    #[test]
    fn texts_and_arrays_are_held_and_bounded_by_their_bytes() {
        let mut one = track(How::Interpolate, i64::MAX, &[]);
        one.enter(100, 0, Sample::Text("open".into()));
        one.enter(200, 1, Sample::Array(DType::UInt8, [1, 2, 3].into()));
        assert_eq!((one.value(150), one.bytes), (Some(Sample::Text("open".into())), 7));
        for time in 0..5 {
            one.enter(300 + time, 2, Sample::Array(DType::UInt8, vec![0; KNOWN_BYTES_MAX / 2].into()));
        }
        assert_eq!((one.known.len(), one.bytes), (2, KNOWN_BYTES_MAX));
        one.enter(400, 3, Sample::Array(DType::UInt8, vec![0; KNOWN_BYTES_MAX + 1].into()));
        assert_eq!(one.known.len(), 1);
    }

    #[test]
    fn a_value_is_known_when_nothing_that_counts_can_come() {
        let known = |how, tolerance, time, newest| track(how, tolerance, &[100]).is_known(time, newest);
        assert!(!known(How::Hold, i64::MAX, 105, 100) && known(How::Hold, i64::MAX, 105, 101));
        assert!(known(How::Nearest, 10, 105, 100) && !known(How::Nearest, 10, 106, 100));
        assert!(!known(How::Nearest, 10, 106, 111) && known(How::Nearest, 10, 106, 112));
        assert!(!known(How::Nearest, i64::MAX, 106, 1 << 60));
        assert!(known(How::Interpolate, 10, 106, 112));
    }
}
