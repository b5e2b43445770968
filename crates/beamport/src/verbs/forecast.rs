//! When a disk will be full at the present rate.
//!
//! The rate of a stream is that of its newest minute: bytes of its entries over the time since they arrived, so that a
//! source that has gone quiet counts less by the second. Nothing is kept in memory: each look reads it again from the
//! index. A stream that `retain` or `retain_age` of the instrument file bounds grows to that bound and no further;
//! without an instrument file, a stream that has deleted messages is assumed to have reached its bound. Finished files
//! are not counted.

use super::figures::{bytes, families, si, span};
use crate::file::{Instrument, Stage};
use crate::room;
use flow::Data;
use serde::Serialize;
use settings::units::duration_text;
use std::collections::{BTreeSet, HashMap};
use store::{Check, ENTRY_BYTES, Level, ReadOptions, Reader};

/// The newest part of a stream, by arrival.
const WINDOW_NS: i64 = 60_000_000_000;
/// Entries that are looked at, at most: 16 MiB of index.
const WINDOW_ENTRIES: u64 = 1 << 18;
/// Sooner than this is too soon.
pub(super) const SOON_S: f64 = 3600.0;
/// Sooner than this is noted: a user who works by day wants to know in the evening.
pub(super) const DAY_S: f64 = 86_400.0;

/// How a stream grows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Growth {
    pub(super) stream: String,
    pub(super) bytes_per_s: f64,
    /// Bytes that it occupies on the disk now.
    pub(super) stored_bytes: u64,
    /// Bytes that it will occupy at most; none where nothing bounds it.
    pub(super) bound_bytes: Option<u64>,
    /// Bytes that it leaves free.
    pub(super) keep_free_bytes: u64,
}

/// The forecast of the room on a disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Forecast {
    pub(super) free_bytes: u64,
    pub(super) bytes_per_s: f64,
    /// Seconds until there is no room at the present rate; none where that does not come.
    pub(super) full_in_s: Option<f64>,
    /// Bytes that are then left free, because streams delete their oldest messages (or wait).
    pub(super) keep_free_bytes: u64,
    pub(super) streams: Vec<Growth>,
}

impl Forecast {
    /// Of the streams on a disk with so much free.
    pub(super) fn of(free_bytes: u64, streams: Vec<Growth>) -> Self {
        let growing = || streams.iter().filter(|s| s.bytes_per_s > 0.0 && s.left() > 0.0);
        let keep_free_bytes = growing().map(|s| s.keep_free_bytes).max().unwrap_or(0);
        let mut room = free_bytes.saturating_sub(keep_free_bytes) as f64;
        let mut rate: f64 = growing().map(|s| s.bytes_per_s).sum();
        let bytes_per_s = rate;
        // Each that finds its bound leaves the room to the others.
        let mut ends: Vec<(f64, f64)> = growing().map(|s| (s.left() / s.bytes_per_s, s.bytes_per_s)).collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut now, mut full_in_s) = (0.0, None);
        for (end, own) in ends {
            if now + room / rate <= end {
                full_in_s = Some(now + room / rate);
                break;
            }
            room -= rate * (end - now);
            (now, rate) = (end, rate - own);
        }
        // Beyond what a clock can say is never.
        full_in_s = full_in_s.filter(|s| *s < 1e9);
        Self { free_bytes, bytes_per_s, full_in_s, keep_free_bytes, streams }
    }

    /// As a sentence.
    pub(super) fn text(&self) -> String {
        if self.bytes_per_s <= 0.0 {
            return "nothing grows now".into();
        }
        let rate = format!("{} into {} free", si(self.bytes_per_s, "B/s"), bytes(self.free_bytes));
        match self.full_in_s {
            None => format!("{rate}: the retained data fit in"),
            Some(s) if self.keep_free_bytes > 0 => {
                format!("{rate}: at the present rate down to `keep_free` in {}", span((s * 1e9) as i64))
            }
            Some(s) => format!("{rate}: at the present rate full in {}", span((s * 1e9) as i64)),
        }
    }

    /// The stream that grows most without a bound.
    pub(super) fn largest(&self) -> Option<&Growth> {
        let unbounded = self.streams.iter().filter(|s| s.bytes_per_s > 0.0 && s.bound_bytes.is_none());
        unbounded.max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
    }
}

impl Growth {
    /// Bytes by which it may still grow.
    fn left(&self) -> f64 {
        self.bound_bytes.map_or(f64::INFINITY, |bound| bound.saturating_sub(self.stored_bytes) as f64)
    }
}

/// The rate at which an instrument will write to its disk, as a sentence; none where it writes nothing there. Sources
/// declare theirs; those of workers are known from the last time that they ran in the data folder.
pub(crate) fn declared(instrument: &Instrument) -> Option<String> {
    let data = Data::on_disk(&*instrument.data);
    let (mut streams, mut unknown, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for (stage, section) in instrument.stages.iter().filter_map(|stage| Some((stage, stage.stream()?))) {
        let (name, declared) = match stage {
            Stage::Source(source) => (source.name.as_str(), source.plan.bytes_per_second()),
            // A merge writes 64 B a message.
            Stage::Worker(worker) => (worker.name.as_str(), None),
            _ => continue,
        };
        if section.level() != Level::Disk {
            continue;
        }
        let known = || measured_rate(&data, name).inspect(|_| measured.push(name));
        let Some(bytes_per_s) = declared.or_else(known) else {
            unknown.push(name);
            continue;
        };
        let retain = section.retain.as_ref().map(|retain| retain.value.0);
        let aged = section.retain_age.as_ref().map(|age| (age.value.as_secs_f64() * bytes_per_s) as u64);
        streams.push(Growth {
            stream: name.to_owned(),
            bytes_per_s,
            stored_bytes: room::taken(&data.stream(name)),
            bound_bytes: [retain, aged].into_iter().flatten().min(),
            keep_free_bytes: section.keep_free.as_ref().map_or(0, |keep| keep.value.0),
        });
    }
    let written: f64 = streams.iter().map(|s| s.bytes_per_s).sum();
    let mut text = Vec::new();
    if written > 0.0 {
        text.push(format!("writes {} to disk", si(written, "B/s")));
        let place = data.folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(&data.folder);
        let forecast = data.media.free(place).ok().map(|free| Forecast::of(free, streams));
        text.extend(forecast.map(|forecast| match forecast.full_in_s {
            None => "the retained data fit in".to_owned(),
            Some(s) if forecast.keep_free_bytes > 0 => format!("down to `keep_free` in {}", span((s * 1e9) as i64)),
            Some(s) => format!("full in {}", span((s * 1e9) as i64)),
        }));
    }
    if !measured.is_empty() {
        text.push(format!("{} as when it ran last", families(&measured).join(", ")));
    }
    if !unknown.is_empty() {
        text.push(format!("unknown disk usage of {}", families(&unknown).join(", ")));
    }
    (!text.is_empty()).then(|| text.join("; "))
}

/// Looks at the streams of a data folder; none where the disk cannot be asked.
pub(super) fn forecast_of(data: &Data, instrument: Option<&Instrument>) -> Option<Forecast> {
    let free = data.media.free(&data.folder).ok()?;
    let mut streams = Vec::new();
    for name in data.streams(true).unwrap_or_default() {
        let options = ReadOptions { early: true, check: Check::Nothing, ..ReadOptions::default() };
        // Unreadable streams are reported elsewhere.
        let Ok(mut reader) = data.reader(&name, options) else { continue };
        if reader.header().level != Level::Disk {
            continue;
        }
        let stored_bytes = room::taken(reader.folder());
        let bytes_per_s = rate(&mut reader, data.media.now());
        let section = instrument.and_then(|i| i.stage(&name)).and_then(Stage::stream);
        let retain = section.and_then(|s| s.retain.as_ref()).map(|retain| retain.value.0);
        let age = section.and_then(|s| s.retain_age.as_ref());
        let aged = age.map(|age| (age.value.as_secs_f64() * bytes_per_s) as u64);
        let found = (section.is_none() && reader.bounds().first > 0).then_some(stored_bytes);
        streams.push(Growth {
            stream: name,
            bytes_per_s,
            stored_bytes,
            bound_bytes: [retain, aged, found].into_iter().flatten().min(),
            keep_free_bytes: section.and_then(|s| s.keep_free.as_ref()).map_or(0, |keep| keep.value.0),
        });
    }
    Some(Forecast::of(free, streams))
}

/// Bytes a second that a stream takes on the disk, by its newest minute.
pub(super) fn rate(reader: &mut Reader, now: i64) -> f64 {
    let bounds = reader.bounds();
    let lowest = bounds.first.max(bounds.count.saturating_sub(WINDOW_ENTRIES));
    let mut arrival = |sequence: u64| Some(reader.entries(sequence, 1).ok()?.first()?.arrival_time);
    if lowest >= bounds.count {
        return 0.0;
    }
    let Some(newest) = arrival(bounds.count - 1) else { return 0.0 };
    // Nobody writes it, or has nothing to write, for ten times what is looked at: it rests.
    if now.saturating_sub(newest) > 10 * WINDOW_NS {
        return 0.0;
    }
    let (mut low, mut high) = (lowest, bounds.count - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        match arrival(middle) {
            Some(time) if time < newest.saturating_sub(WINDOW_NS) => low = middle + 1,
            _ => high = middle,
        }
    }
    let Some(oldest) = arrival(low) else { return 0.0 };
    let (mut at, mut sum) = (low, 0u64);
    while at < bounds.count {
        let Ok(entries) = reader.entries(at, (bounds.count - at) as usize) else { return 0.0 };
        if entries.is_empty() {
            break;
        }
        // A view has its payloads elsewhere.
        let own = entries.iter().filter(|e| e.parent == 0);
        sum += own.map(|e| u64::from(e.length).next_multiple_of(8)).sum::<u64>();
        sum += (entries.len() * ENTRY_BYTES) as u64;
        at += entries.len() as u64;
    }
    let span = now.max(newest).saturating_sub(oldest);
    // A handful of messages at once are no rate.
    if span < 1_000_000_000 { 0.0 } else { sum as f64 * 1e9 / span as f64 }
}

/// Bytes a second that a stream took on the disk in the newest minute in which it was written, with the messages that
/// it shows; none where there is too little of it.
fn measured_rate(data: &Data, name: &str) -> Option<f64> {
    let options = ReadOptions { early: true, check: Check::Nothing, ..ReadOptions::default() };
    let mut reader = data.reader(name, options).ok()?;
    let bounds = reader.bounds();
    let (mut at, mut times, mut sum) = (bounds.count, None, 0);
    while at > bounds.first && bounds.count - at < WINDOW_ENTRIES {
        let first = bounds.first.max(at.saturating_sub(1024));
        for entry in reader.entries(first, (at - first) as usize).ok()?.iter().rev() {
            let (oldest, newest) = times.get_or_insert((entry.arrival_time, entry.arrival_time));
            if newest.saturating_sub(entry.arrival_time) > WINDOW_NS {
                return rate_of(sum, *oldest, *newest);
            }
            *oldest = entry.arrival_time;
            // The message lies in the stream of a slot, with an entry there.
            let entries = if entry.parent == 0 { 1 } else { 2 };
            sum += u64::from(entry.length).next_multiple_of(8) + entries * ENTRY_BYTES as u64;
        }
        at = first;
    }
    let (oldest, newest) = times?;
    rate_of(sum, oldest, newest)
}

/// A rate over a time; a handful of messages at once are none.
fn rate_of(bytes: u64, oldest: i64, newest: i64) -> Option<f64> {
    let span = newest.saturating_sub(oldest);
    (span >= 1_000_000_000).then(|| bytes as f64 * 1e9 / span as f64)
}

/// The load of the carrier of an instrument, as a sentence: topics, the rate into them as sources declare it, and what
/// is held of that; none on one machine. Nobody knows the size of what workers make.
pub(crate) fn carried(instrument: &Instrument) -> Option<String> {
    let (keep, copies) = instrument.hosts.as_ref()?.carrier.holds();
    if copies == 0 {
        return None;
    }
    let crossings = instrument.crossings();
    let whole: BTreeSet<&str> = crossings.iter().map(|crossing| crossing.stream).collect();
    // Runs and posts have a topic each; a worker has three: blocks, their order, results.
    let (mut topics, mut partitions) = (whole.len() as u64 + 2, whole.len() as u64 + 2);
    let mut sent: Vec<&str> = whole.into_iter().collect();
    for worker in instrument.shared_workers() {
        (topics, partitions) = (topics + 3, partitions + 2 * worker.partitions() + 1);
        sent.extend(worker.inputs.iter().map(String::as_str).chain([worker.name.as_str()]));
    }
    let (mut rate, mut unknown) = (0.0, BTreeSet::new());
    let mut rates = Rates::new(instrument);
    for stream in sent {
        match rates.of(stream) {
            Some(bytes_per_s) => rate += bytes_per_s,
            None => drop(unknown.insert(stream)),
        }
    }
    let mut text = vec![format!("{topics} topics with {partitions} partitions")];
    if rate > 0.0 {
        let held = bytes((rate * keep.as_secs_f64()) as u64 * u64::from(copies));
        let times = if copies > 1 { format!(" in {copies} copies") } else { String::new() };
        text.push(format!("{} into them, {held} held for {}{times}", si(rate, "B/s"), duration_text(keep)));
    }
    if !unknown.is_empty() {
        let unknown: Vec<&str> = unknown.into_iter().collect();
        text.push(format!("unknown rate of {}", families(&unknown).join(", ")));
    }
    Some(text.join("; "))
}

/// Bytes a second of streams, as the sources behind them declare it; none where one does not, or a worker makes it.
struct Rates<'a> {
    stages: HashMap<&'a str, &'a Stage>,
    /// The rates that are known: many views have the same inputs.
    known: HashMap<&'a str, Option<f64>>,
}

impl<'a> Rates<'a> {
    fn new(instrument: &'a Instrument) -> Self {
        Self { stages: instrument.stages_by_stream(), known: HashMap::new() }
    }

    fn of(&mut self, stream: &str) -> Option<f64> {
        let (name, stage) = self.stages.get_key_value(stream).map(|(name, stage)| (*name, *stage))?;
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let rate = match stage {
            Stage::Source(source) => source.plan.bytes_per_second(),
            Stage::Merge(merge) => {
                let share = |input: &String| {
                    merge.part_inputs.get(input).and_then(|part| part.slices).map_or(1.0, |slices| slices.share())
                };
                merge.inputs.iter().map(|input| Some(self.of(input)? * share(input))).sum()
            }
            _ => None,
        };
        self.known.insert(name, rate);
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{parse, unasked};

    fn growth(bytes_per_s: f64, stored_bytes: u64, bound_bytes: Option<u64>) -> Growth {
        Growth { stream: "detector".into(), bytes_per_s, stored_bytes, bound_bytes, keep_free_bytes: 0 }
    }

    #[test]
    fn a_disk_is_full_when_the_streams_have_filled_it() {
        let full_in = |free, streams: &[Growth]| Forecast::of(free, streams.to_vec()).full_in_s;
        assert_eq!(full_in(1000, &[]), None);
        assert_eq!(full_in(1000, &[growth(0.0, 7, None)]), None);
        assert_eq!(full_in(1000, &[growth(10.0, 7, None)]), Some(100.0));
        assert_eq!(full_in(1000, &[growth(10.0, 7, None), growth(15.0, 0, None)]), Some(40.0));
        // What is bounded takes room up to its bound: 500 in 50 s beside 500, and then 1000 alone.
        assert_eq!(full_in(2000, &[growth(10.0, 100, Some(600)), growth(10.0, 0, None)]), Some(150.0));
        assert_eq!(full_in(1000, &[growth(10.0, 100, Some(600)), growth(5.0, 0, Some(400))]), None);
        assert_eq!(full_in(1000, &[growth(10.0, 100, Some(600)), growth(5.0, 0, Some(4000))]), Some(100.0));
        // It is there already.
        assert_eq!(full_in(1000, &[growth(10.0, 600, Some(600))]), None);
    }

    #[test]
    fn what_is_to_be_left_free_is_not_there() {
        let keeps = Growth { keep_free_bytes: 400, ..growth(10.0, 7, None) };
        let forecast = Forecast::of(1000, vec![keeps]);
        assert_eq!((forecast.full_in_s, forecast.keep_free_bytes), (Some(60.0), 400));
        assert_eq!(forecast.text(), "10 B/s into 1.00 kB free: at the present rate down to `keep_free` in 60.0 s");
        let rests = Growth { keep_free_bytes: 400, ..growth(0.0, 7, None) };
        assert_eq!(Forecast::of(1000, vec![rests, growth(10.0, 0, None)]).full_in_s, Some(100.0));
    }

    #[test]
    fn the_readme_filled_a_disk_in_minutes_and_check_said_nothing() {
        let said = |keys: &str| {
            let text = format!(
                "instrument = \"a\"\nsource.c = {{ kind = \"sim\", model = \"camera\", fps = 1000{keys} }}\n\
                 source.d = {{ kind = \"udp\", listen = \"127.0.0.1:9001\", framing = \"raw\" }}\n"
            );
            let path = std::env::temp_dir().join("nothing-there/a.toml");
            declared(&parse(&text, &path, &crate::Registry::builtin(), &unasked).unwrap()).unwrap_or_default()
        };
        let unknown = "unknown disk usage of `d`";
        let text = said("");
        assert!(text.starts_with("writes 262 MB/s to disk; full in ") && text.ends_with(unknown), "{text}");
        assert_eq!(
            said(", live = \"16 MiB\", retain = \"16 MiB\""),
            format!("writes 262 MB/s to disk; the retained data fit in; {unknown}")
        );
        assert!(said(", keep_free = \"1 MiB\"").contains("down to `keep_free` in "));
        assert_eq!(said(", level = \"memory\""), unknown);
    }

    #[test]
    fn the_rate_is_that_of_the_newest_minute() {
        let machine = testkit::Machine::new(1);
        machine.room(1 << 30, 1 << 30);
        let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: store::Drain::Caller };
        let options = store::Options { retain_bytes: Some(1 << 30), ..store::Options::disk(4 << 20) };
        let mut writer = data.writer("detector", &options).unwrap();
        let origin = writer.origin("o").unwrap();
        let mut append = |bytes: usize| {
            let schema = store::SchemaId(*b"test");
            let meta = store::Meta { source_time: 0, origin, origin_seq: 0, schema, flags: 0 };
            writer.append(&meta, &vec![1; bytes]).unwrap();
            writer.drain().unwrap();
            machine.advance(1_000_000_000);
        };
        assert_eq!(forecast_of(&data, None).unwrap().bytes_per_s, 0.0);
        // Faster, a while ago: it counts no more.
        (0..30).for_each(|_| append(9_936));
        (0..90).for_each(|_| append(931));
        let forecast = forecast_of(&data, None).unwrap();
        // 936 B with what packs them, and 64 B of index, each second.
        assert_eq!((forecast.bytes_per_s, forecast.streams.len()), (1000.0, 1));
        let full_in = forecast.full_in_s.unwrap();
        assert!((full_in - forecast.free_bytes as f64 / 1000.0).abs() < 1.0, "{full_in}");
        // One that has gone quiet says less with each look, and then nothing.
        machine.advance(61_000_000_000);
        assert_eq!(forecast_of(&data, None).unwrap().bytes_per_s, 500.0);
        machine.advance(600_000_000_000);
        assert_eq!(forecast_of(&data, None).unwrap().text(), "nothing grows now");
    }

    #[test]
    fn a_forecast_is_a_sentence() {
        let text = |free, streams| Forecast::of(free, streams).text();
        assert_eq!(text(10, Vec::new()), "nothing grows now");
        let grows = growth(12_000_000.0, 0, None);
        assert_eq!(
            text(144_000_000_000, vec![grows.clone()]),
            "12.0 MB/s into 144 GB free: at the present rate full in 3 h 20 min"
        );
        let bounded = Growth { bound_bytes: Some(1_000_000_000), ..grows };
        assert_eq!(text(144_000_000_000, vec![bounded]), "12.0 MB/s into 144 GB free: the retained data fit in");
    }
}
