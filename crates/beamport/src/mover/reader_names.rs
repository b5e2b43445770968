//! Names of readers whose process has ended: a counted reader holds back what its stream may delete, until it commits.
//!
//! Names of stages that the instrument file no longer has are removed at the start. A name from outside holds back
//! nothing once its process has been gone for `reader_timeout`, unless `readers` of the file lists it; it keeps its
//! position, and counts again when it comes back.

use crate::file::Instrument;
use crate::limits::{READERS_LOOK_MAX, READERS_LOOK_MIN};
use flow::{Data, Fault, commits};
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;
use store::{Kind, Pins, ReaderInfo};

/// Observations of reader names without a process.
#[derive(Default)]
pub(super) struct ReaderNames {
    /// Since when, by stream and name: the time in a place is that of a clock which may be set.
    gone: HashMap<(String, String), Instant>,
    looked: Option<Instant>,
}

fn is_stage(instrument: &Instrument, name: &str) -> bool {
    instrument.stages.iter().any(|stage| stage.name() == name) || instrument.sinks.iter().any(|sink| sink.name == name)
}

impl ReaderNames {
    /// Before the stages start: removes the names of stages that are no more, and ends the waiting for names from
    /// outside whose process has been gone since long before.
    pub(super) fn begin(data: &Data, instrument: &Instrument) -> Result<(), Fault> {
        let streams = data.streams(true)?;
        let now = data.media.now();
        for stream in &streams {
            let Some(pins) = pins_of(data, stream) else { continue };
            for reader in &gone_readers(data, instrument, &pins) {
                let stage = commits::stage_of_reader(&reader.name);
                if commits::has_books(stage, &streams) {
                    pins.remove(data.media.as_ref(), &reader.name);
                    if reader.kind == Kind::Counted {
                        tracing::warn!(
                            "stream `{stream}` no longer waits for `{}`: the instrument file has no stage `{stage}`",
                            reader.name
                        );
                    }
                    continue;
                }
                pins.see_gone(reader, now);
                let gone_ns = reader.gone_since.map_or(0, |since| now.saturating_sub(since));
                let is_old =
                    u128::try_from(gone_ns).is_ok_and(|gone| gone >= instrument.reader_timeout.value.as_nanos());
                if is_old && reader.kind == Kind::Counted {
                    stop_waiting(data, instrument, (stream, &pins), &reader.name);
                }
            }
        }
        Ok(())
    }

    /// Ends the waiting for names from outside whose process has been gone for long, if it is time to look at them.
    pub(super) fn refresh(&mut self, data: &Data, instrument: &Instrument) {
        let timeout = instrument.reader_timeout.value;
        let pause = (timeout / 10).clamp(READERS_LOOK_MIN, READERS_LOOK_MAX);
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + pause) {
            return;
        }
        self.looked = Some(now);
        let mut seen = BTreeSet::new();
        // By name alone: no header is read for that.
        let names = data.media.list(&data.folder).unwrap_or_default();
        for stream in names.into_iter().filter(|name| !Data::is_book(name)) {
            let Some(pins) = pins_of(data, &stream) else { continue };
            for reader in gone_readers(data, instrument, &pins).iter().filter(|r| r.kind == Kind::Counted) {
                let key = (stream.clone(), reader.name.clone());
                pins.see_gone(reader, data.media.now());
                let since = *self.gone.entry(key.clone()).or_insert(now);
                if now - since >= timeout {
                    stop_waiting(data, instrument, (&stream, &pins), &reader.name);
                }
                seen.insert(key);
            }
        }
        self.gone.retain(|key, _| seen.contains(key));
    }
}

/// Readers with a name whose process has ended, and that no stage of the instrument file has.
fn gone_readers(data: &Data, instrument: &Instrument, pins: &Pins) -> Vec<ReaderInfo> {
    let is_gone = |reader: &ReaderInfo| {
        reader.kind != Kind::Anonymous
            && !is_stage(instrument, commits::stage_of_reader(&reader.name))
            && !pins.lives(data.media.as_ref(), reader)
    };
    pins.readers().into_iter().filter(is_gone).collect()
}

/// None where the stream has no readers, or they cannot be seen: whoever needs them says why.
fn pins_of(data: &Data, stream: &str) -> Option<Pins> {
    let folder = data.stream(stream);
    folder.join("pins").is_file().then(|| Pins::open(data.media.as_ref(), &folder).ok()).flatten()
}

fn stop_waiting(data: &Data, instrument: &Instrument, (stream, pins): (&str, &Pins), name: &str) {
    if instrument.readers.iter().any(|listed| listed == name) {
        return;
    }
    match pins.stop_waiting(data.media.as_ref(), name) {
        Ok(true) => tracing::warn!(
            "stream `{stream}` no longer waits for reader `{name}`: its process has been gone for {} s; it keeps its \
             position (key `readers` of the instrument file: names that are waited for)",
            instrument.reader_timeout.value.as_secs()
        ),
        Ok(false) => {}
        Err(e) => tracing::warn!("the reader `{name}` of stream `{stream}` cannot be looked at: {e}"),
    }
}
