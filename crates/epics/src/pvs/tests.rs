use super::*;
use crate::entry::Protocol;
use crate::plan::tests::plan;
use crate::value::{Elements, Form, Frame, Kind};
use flow::{OriginAccounts, Pushed, Silence};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use wire::DType;

const NOW: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;

/// Records what a stream would get: origin, number, schema, time, flags.
#[derive(Default)]
struct Recorder {
    names: Vec<String>,
    messages: Vec<(String, u64, String, i64, u16)>,
    payloads: Vec<Vec<u8>>,
    missing: Vec<(String, RangeInclusive<u64>, String)>,
    /// Times of what is missing.
    times: Vec<RangeInclusive<i64>>,
    refused: u64,
    duplicate: u64,
    is_full: bool,
}

impl OriginAccounts for Recorder {
    fn origin(&mut self, name: &str) -> Result<u32, Fault> {
        let at = self.names.iter().position(|known| known == name).unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        Ok(at as u32)
    }
    fn missing(
        &mut self,
        origin: u32,
        numbers: RangeInclusive<u64>,
        times: RangeInclusive<i64>,
        reason: &str,
    ) -> Result<(), Fault> {
        assert!(!times.is_empty());
        self.times.push(times);
        self.missing.push((self.names[origin as usize].clone(), numbers, reason.to_owned()));
        Ok(())
    }
    fn count(&mut self, _: u32, what: &str, n: u64) -> Result<(), Fault> {
        match what {
            "refused.type" => self.refused += n,
            "refused.duplicate" => self.duplicate += n,
            _ => panic!("{what}"),
        }
        Ok(())
    }
}

impl Outlet for Recorder {
    fn push_parts(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<Pushed, Fault> {
        if self.is_full {
            return Ok(Pushed::Full);
        }
        let name = self.names[meta.origin as usize].clone();
        self.messages.push((name, meta.origin_seq, meta.schema.as_text(), meta.source_time, meta.flags));
        self.payloads.push(parts.concat());
        Ok(Pushed::Taken)
    }
    fn next_sequence(&self) -> u64 {
        0
    }
    fn silent(&mut self, _: RangeInclusive<i64>, _: Silence) {}
    fn fill(&self) -> f64 {
        0.0
    }
}

impl Recorder {
    /// Origin, number and schema of what came since the last call.
    fn take(&mut self) -> Vec<(String, u64, String)> {
        self.messages.drain(..).map(|(origin, number, schema, ..)| (origin, number, schema)).collect()
    }
}

/// PVs with these entries; the ids are those of their subscriptions.
fn pvs(entries: &[Value], plan: &Plan) -> (Pvs, Vec<u64>) {
    let mut pvs = Pvs::new(&Resume::default(), State::default(), plan, NOW);
    let entries = entries.iter().map(|entry| Entry::of_json(entry, Protocol::Pva).unwrap());
    let ids = entries.map(|entry| pvs.add(entry, plan, NOW)).collect();
    (pvs, ids)
}

/// Only values.
fn quiet() -> Plan {
    Plan { alarms: Some(false), connections: Some(false), units: Some(false), ..plan(&[]) }
}

fn number(id: u64, time: i64, bytes: &[u8; 8]) -> Update<'_> {
    Update {
        time: Some(time),
        has_value: true,
        has_alarm: true,
        has_units: true,
        value: Elements { kind: Kind::Number(DType::Float64), count: 1, bytes },
        ..Update::of(id, What::Value)
    }
}

fn row(origin: &str, number: u64, schema: &str) -> (String, u64, String) {
    (origin.to_owned(), number, schema.to_owned())
}

#[test]
fn a_value_and_what_stands_beside_it_share_a_count() {
    let (mut pvs, ids) = pvs(&[json!({"pv": "T", "topic": "loki_se"})], &plan(&[]));
    let (mut out, value) = (Recorder::default(), 1.5f64.to_le_bytes());
    pvs.take(&Update::of(ids[0], What::Connected), NOW, &mut out).unwrap();
    assert_eq!(out.take(), []);
    let first = Update { units: b"K", ..number(ids[0], NOW, &value) };
    pvs.take(&first, NOW, &mut out).unwrap();
    let origin = "loki_se/T";
    let expected = [row(origin, 0, "ep01"), row(origin, 1, "un00"), row(origin, 2, "al00"), row(origin, 3, "f144")];
    assert_eq!(out.take(), expected);
    let read = wire::f144::read(&out.payloads[3]).unwrap();
    assert_eq!((read.source_name, read.timestamp, read.value), ("T", NOW, 1.5.into()));
    pvs.take(&first, NOW, &mut out).unwrap();
    assert_eq!(out.take(), [row(origin, 4, "f144")]);
    // The alarm alone, then nothing at all.
    let alarm = Update { has_value: false, alarm: b"HIGH", severity: 2, ..first };
    pvs.take(&alarm, NOW, &mut out).unwrap();
    pvs.take(&Update { has_value: false, has_alarm: false, has_units: false, ..first }, NOW, &mut out).unwrap();
    assert_eq!(out.take(), [row(origin, 5, "al00")]);
    for _ in 0..2 {
        pvs.take(&Update::of(ids[0], What::Disconnected), NOW, &mut out).unwrap();
    }
    assert_eq!(out.take(), [row(origin, 6, "ep01")]);
    // The server returns with the value that it had: it is in the stream.
    pvs.take(&Update::of(ids[0], What::Connected), NOW, &mut out).unwrap();
    pvs.take(&Update { alarm: b"HIGH", severity: 2, ..first }, NOW, &mut out).unwrap();
    assert_eq!(out.take(), [row(origin, 7, "ep01")]);
}

#[test]
fn overwritten_and_skipped_updates_are_gaps_of_exactly_so_many() {
    let (mut pvs, ids) = pvs(&[json!("A")], &quiet());
    let (mut out, value) = (Recorder::default(), 1f64.to_le_bytes());
    pvs.take(&number(ids[0], NOW, &value), NOW, &mut out).unwrap();
    pvs.take(&Update { count: 7, ..Update::of(ids[0], What::Squashed) }, NOW, &mut out).unwrap();
    for time in [NOW + 1, NOW, NOW - 400 * 86_400 * SECOND, NOW + 3600 * SECOND, NOW + 2] {
        pvs.take(&number(ids[0], time, &value), NOW, &mut out).unwrap();
    }
    assert_eq!(out.take(), [row("A", 0, "f144"), row("A", 8, "f144"), row("A", 12, "f144")]);
    let missing = |numbers: RangeInclusive<u64>, reason: &str| ("A".to_owned(), numbers, reason.to_owned());
    let expected = [
        missing(1..=7, "lost.squashed"),
        missing(9..=9, "skipped.backward"),
        missing(10..=10, "skipped.old"),
        missing(11..=11, "skipped.ahead"),
    ];
    assert_eq!(out.missing, expected);
    assert_eq!(pvs.channels().next().unwrap().squashed, 7);
}

#[test]
fn what_finds_no_room_is_given_once_and_in_order() {
    let (mut pvs, ids) = pvs(&[json!("A")], &plan(&[]));
    let (mut out, value) = (Recorder { is_full: true, ..Recorder::default() }, 1f64.to_le_bytes());
    pvs.take(&number(ids[0], NOW, &value), NOW, &mut out).unwrap();
    assert!(!pvs.pending.is_empty() && !pvs.pending.drain(&mut out).unwrap());
    out.is_full = false;
    assert!(pvs.pending.drain(&mut out).unwrap());
    assert_eq!(out.take(), [row("A", 0, "ep01"), row("A", 1, "al00"), row("A", 2, "f144")]);
    assert!(pvs.pending.is_empty());
}

fn frame<'a>(id: u64, unique: i32, pixels: &'a [u8; 6], dims: &'a [u64; 2]) -> Update<'a> {
    Update {
        form: Form::Image,
        time: Some(NOW + i64::from(unique.max(0))),
        has_value: true,
        value: Elements { kind: Kind::Number(DType::UInt8), count: 6, bytes: pixels },
        frame: Frame { dims, unique_id: Some(unique), data_time: NOW - 1, ..Frame::default() },
        ..Update::of(id, What::Value)
    }
}

#[test]
fn a_frame_of_a_clock_that_is_wrong_has_its_arrival_a_flag_and_its_own_time() {
    let (mut pvs, ids) = pvs(&[json!("cam")], &quiet());
    let (mut out, pixels, dims) = (Recorder::default(), [1, 2, 3, 4, 5, 6], [3, 2]);
    let times = [NOW, 0, NOW + 3600 * SECOND, NOW - 3600 * SECOND];
    for (unique, time) in (1..).zip(times) {
        pvs.take(&Update { time: Some(time), ..frame(ids[0], unique, &pixels, &dims) }, NOW, &mut out).unwrap();
    }
    let rows: Vec<(u64, i64, u16)> = out.messages.iter().map(|row| (row.1, row.3, row.4)).collect();
    let suspect = flags::SUSPECT;
    assert_eq!(rows, [(1, NOW, 0), (2, NOW, suspect), (3, NOW, suspect), (4, NOW - 3600 * SECOND, 0)]);
    for (payload, time) in out.payloads.iter().zip(times) {
        let read = wire::ad00::read(payload).unwrap();
        let own = read.attributes.iter().find(|attribute| attribute.name == "timeStamp");
        let is_wrong = time != NOW && time != NOW - 3600 * SECOND;
        assert_eq!(own.map(|own| own.data.get(0)), is_wrong.then_some(Some(wire::Scalar::Int64(time))));
    }
    assert_eq!(out.missing, []);
    // The server returns with the frame that it had; its number is in the stream.
    let last = Update { time: Some(0), ..frame(ids[0], 5, &pixels, &dims) };
    pvs.take(&last, NOW, &mut out).unwrap();
    pvs.take(&Update::of(ids[0], What::Disconnected), NOW, &mut out).unwrap();
    pvs.take(&Update::of(ids[0], What::Connected), NOW, &mut out).unwrap();
    pvs.take(&last, NOW + SECOND, &mut out).unwrap();
    assert_eq!(out.messages.last().map(|row| row.1), Some(5));
    assert_eq!(out.messages.iter().filter(|row| row.1 == 5).count(), 1);
    // A frame without a time of its own.
    pvs.take(&last, NOW, &mut out).unwrap();
    pvs.take(&Update { time: None, ..frame(ids[0], 6, &pixels, &dims) }, NOW, &mut out).unwrap();
    assert_eq!(out.messages.last().map(|row| (row.1, row.3, row.4)), Some((6, NOW, suspect)));
}

#[test]
fn frames_have_their_own_numbers_and_the_rest_an_origin_beside_them() {
    let (mut pvs, ids) = pvs(&[json!("cam")], &Plan { connections: Some(true), ..plan(&[]) });
    let (mut out, pixels, dims) = (Recorder::default(), [1, 2, 3, 4, 5, 6], [3, 2]);
    pvs.look(NOW + 3 * SECOND, &mut out).unwrap();
    pvs.take(&Update::of(ids[0], What::Connected), NOW, &mut out).unwrap();
    // It has taken no frame yet, and its clock was never set.
    let empty = Update { time: Some(0), value: Elements::default(), ..frame(ids[0], 0, &pixels, &dims) };
    pvs.take(&empty, NOW, &mut out).unwrap();
    for unique in [70, 71] {
        pvs.take(&frame(ids[0], unique, &pixels, &dims), NOW, &mut out).unwrap();
    }
    assert_eq!(out.take(), [row("cam/state", 0, "ep01"), row("cam", 70, "ad00"), row("cam", 71, "ad00")]);
    let read = wire::ad00::read(&out.payloads[1]).unwrap();
    assert_eq!((read.id, read.shape(), read.data.bytes()), (70, vec![2, 3], &pixels[..]));
    assert_eq!(read.attributes[0].name, "dataTimeStamp");
    // ess-streaming-data-types reads no attribute without its texts.
    assert_eq!((read.attributes[0].description, read.attributes[0].source), (Some(""), Some("")));
    // Two of three missing frames were overwritten here.
    pvs.take(&Update { count: 2, ..Update::of(ids[0], What::Squashed) }, NOW, &mut out).unwrap();
    pvs.take(&frame(ids[0], 75, &pixels, &dims), NOW, &mut out).unwrap();
    assert_eq!((&out.missing[..], pvs.complete_to(NOW + SECOND)), (&[][..], NOW + 71), "they may be late");
    // The camera starts again.
    pvs.take(&Update { time: Some(NOW + 100), ..frame(ids[0], 0, &pixels, &dims) }, NOW, &mut out).unwrap();
    let squashed = ("cam".to_owned(), 72..=73, "lost.squashed".to_owned());
    assert_eq!(out.missing, [squashed, ("cam".to_owned(), 74..=74, "lost.unsent".to_owned())]);
    assert_eq!(out.times, [NOW + 71..=NOW + 75, NOW + 71..=NOW + 75]);
    assert_eq!(pvs.channels().next().unwrap().lost, 3);
    assert_eq!(out.take(), [row("cam", 75, "ad00"), row("cam#2", 0, "ad00")]);
    assert_eq!(pvs.frames().collect::<Vec<_>>(), ["cam"]);
}

#[test]
fn what_stands_beside_frames_is_sent_where_it_is_asked_for() {
    let asked = json!({"pv": "three", "alarms": true, "units": false});
    let (mut pvs, ids) = pvs(&[json!("one"), json!({"pv": "two", "schema": "ad00"}), asked], &plan(&[]));
    let (mut out, pixels, dims) = (Recorder::default(), [1, 2, 3, 4, 5, 6], [3, 2]);
    for id in ids {
        pvs.take(&Update::of(id, What::Connected), NOW, &mut out).unwrap();
        pvs.take(&Update { has_alarm: true, ..frame(id, 1, &pixels, &dims) }, NOW, &mut out).unwrap();
        pvs.take(&Update::of(id, What::Disconnected), NOW, &mut out).unwrap();
    }
    let expected =
        [row("one", 1, "ad00"), row("two", 1, "ad00"), row("three/state", 0, "al00"), row("three", 1, "ad00")];
    assert_eq!(out.take(), expected);
}

#[test]
fn missing_frames_have_a_reason_once_they_cannot_come() {
    let (mut pvs, ids) = pvs(&[json!("cam")], &quiet());
    let (mut out, pixels, dims) = (Recorder::default(), [1, 2, 3, 4, 5, 6], [3, 2]);
    let of = |unique, count| Update { count, ..frame(ids[0], unique, &pixels, &dims) };
    // Its server overwrote once before, and once between 4 and 6; 7 and 8 change places; 8 comes twice.
    for (unique, count) in [(0, 1), (2, 1), (4, 1), (6, 2), (8, 2), (7, 2), (8, 2), (1, 2)] {
        pvs.take(&of(unique, count), NOW, &mut out).unwrap();
    }
    while !pvs.look(NOW + SECOND, &mut out).unwrap() {}
    assert_eq!((&out.missing[..], out.duplicate), (&[][..], 1));
    while !pvs.look(NOW + 2 * SECOND, &mut out).unwrap() {}
    pvs.take(&Update::of(ids[0], What::Disconnected), NOW, &mut out).unwrap();
    pvs.take(&Update::of(ids[0], What::Connected), NOW, &mut out).unwrap();
    pvs.take(&of(12, 2), NOW, &mut out).unwrap();
    assert_eq!(pvs.complete_to(NOW + SECOND), NOW + 8);
    pvs.close(&mut out).unwrap();
    let lost: Vec<_> = out.missing.iter().map(|(_, numbers, reason)| (numbers.clone(), reason.as_str())).collect();
    assert_eq!(lost, [(3..=3, "lost.squashed"), (5..=5, "lost.squashed"), (9..=11, "lost.absent")]);
}

#[test]
fn a_type_that_changes_goes_on_with_the_new_one() {
    let (mut pvs, ids) = pvs(&[json!("A"), json!({"pv": "B", "schema": "f144"})], &quiet());
    let (mut out, value) = (Recorder::default(), 1f64.to_le_bytes());
    let mut words = Vec::new();
    for word in ["ON", "OFF"] {
        words.extend_from_slice(&(word.len() as u32).to_ne_bytes());
        words.extend_from_slice(word.as_bytes());
    }
    let text = Elements { kind: Kind::Text, count: 2, bytes: &words };
    for id in &ids {
        pvs.take(&number(*id, NOW, &value), NOW, &mut out).unwrap();
        let texts = Update { form: Form::Array, value: text, ..number(*id, NOW, &value) };
        pvs.take(&texts, NOW, &mut out).unwrap();
        pvs.take(&number(*id, NOW, &value), NOW, &mut out).unwrap();
    }
    let expected =
        [row("A", 0, "f144"), row("A", 1, "f142"), row("A", 2, "f144"), row("B", 0, "f144"), row("B", 1, "f144")];
    assert_eq!(out.take(), expected);
    assert_eq!(out.refused, 1);
    match wire::f142::read(&out.payloads[1]).unwrap().value {
        wire::f142::Value::Texts(texts) => assert_eq!(texts[..], ["ON", "OFF"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_are_sent_again_while_the_pv_is_connected() {
    let repeat = Some(std::time::Duration::from_secs(10));
    let (mut pvs, ids) = pvs(&[json!("A"), json!({"pv": "B", "repeat": false})], &Plan { repeat, ..plan(&[]) });
    let (mut out, value) = (Recorder::default(), 1f64.to_le_bytes());
    ids.iter().for_each(|id| pvs.take(&number(*id, NOW, &value), NOW, &mut out).unwrap());
    assert_eq!(out.take().len(), 6);
    assert!(pvs.look(NOW + 9 * SECOND, &mut out).unwrap());
    assert_eq!(out.take(), []);
    for time in [10, 20] {
        assert!(pvs.look(NOW + time * SECOND, &mut out).unwrap());
        assert!(out.messages.iter().all(|message| message.3 == NOW && message.4 == flags::REPEAT));
        let first = if time == 10 { 3 } else { 6 };
        let expected = [row("A", first, "ep01"), row("A", first + 1, "al00"), row("A", first + 2, "f144")];
        assert_eq!(out.take(), expected);
    }
    pvs.take(&Update::of(ids[0], What::Disconnected), NOW + 20 * SECOND, &mut out).unwrap();
    pvs.look(NOW + 40 * SECOND, &mut out).unwrap();
    assert_eq!(out.take(), [row("A", 9, "ep01"), row("A", 10, "ep01")]);
}

#[test]
fn a_pv_that_nobody_serves_is_reported_and_a_removed_one_too() {
    let one = json!({"pv": "A", "schema": "f144"});
    // It is not known yet whether C is a camera.
    let (mut pvs, ids) = pvs(&[one, json!({"pv": "B", "schema": "none"}), json!("C")], &plan(&[]));
    let mut out = Recorder::default();
    pvs.look(NOW + SECOND, &mut out).unwrap();
    assert_eq!(out.take(), []);
    pvs.look(NOW + 3 * SECOND, &mut out).unwrap();
    assert_eq!(out.take(), [row("A", 0, "ep01"), row("B", 0, "ep01")]);
    let status = |payload: &Vec<u8>| wire::ep01::read(payload).unwrap().status;
    assert_eq!(status(&out.payloads[0]), ConnectionInfo::NeverConnected);
    let removed = pvs.remove_matching(&[Pattern::of_json(&json!("A*")).unwrap()]);
    assert_eq!((removed[0].1, pvs.len()), (ids[0], 2));
    pvs.look(NOW + 4 * SECOND, &mut out).unwrap();
    assert_eq!(out.take(), [row("A", 1, "ep01")]);
    assert_eq!(status(out.payloads.last().unwrap()), ConnectionInfo::Cancelled);
    // Updates that were on the way to it are nobody's, also when its place is taken again.
    let id = pvs.add(Entry::of_json(&json!("D"), Protocol::Pva).unwrap(), &plan(&[]), NOW);
    assert_ne!(id, ids[0]);
    let value = 1f64.to_le_bytes();
    pvs.take(&number(ids[0], NOW, &value), NOW, &mut out).unwrap();
    assert_eq!(out.take(), []);
}

#[test]
fn tables_and_choppers_become_samples_and_times() {
    let (mut pvs, ids) = pvs(&[json!("T"), json!({"pv": "C", "schema": "tdct"})], &quiet());
    let mut out = Recorder::default();
    let values: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let times: Vec<u8> = [NOW - 10, NOW - 8].iter().flat_map(|time| time.to_le_bytes()).collect();
    let column = |name, dtype, bytes| crate::value::Named {
        name,
        description: &[],
        source: &[],
        values: Elements { kind: Kind::Number(dtype), count: 2, bytes },
    };
    let columns = [column(b"value", DType::Float32, &values[..]), column(b"timestamp", DType::UInt64, &times)];
    let mut table = Update { form: Form::Table, time: None, has_value: true, ..Update::of(ids[0], What::Value) };
    table.columns = crate::value::Columns::of(&columns);
    pvs.take(&table, NOW, &mut out).unwrap();
    let after: Vec<u8> = [5i64, 7].iter().flat_map(|time| time.to_le_bytes()).collect();
    let ticks = Update {
        form: Form::Array,
        time: Some(NOW),
        has_value: true,
        value: Elements { kind: Kind::Number(DType::Int64), count: 2, bytes: &after },
        ..Update::of(ids[1], What::Value)
    };
    pvs.take(&ticks, NOW, &mut out).unwrap();
    assert_eq!((out.messages[0].3, out.messages[1].3), (NOW - 10, NOW));
    assert_eq!(out.take(), [row("T", 0, "se00"), row("C", 0, "tdct")]);
    let samples = wire::se00::read(&out.payloads[0]).unwrap();
    assert_eq!((samples.time_delta, samples.values.len()), (2.0, 2));
    let ticked = wire::tdct::read(&out.payloads[1]).unwrap();
    assert_eq!(ticked.timestamps.to_vec(), [NOW as u64 + 5, NOW as u64 + 7]);
}

#[test]
fn a_subscription_that_its_server_ended_is_made_again() {
    let (mut pvs, ids) = pvs(&[json!("A"), json!("ca:B")], &plan(&[]));
    let mut out = Recorder::default();
    for (id, what) in ids.iter().zip([What::Finished, What::Refused]) {
        pvs.take(&Update { text: b"no", ..Update::of(*id, what) }, NOW, &mut out).unwrap();
    }
    pvs.look(NOW + 4 * SECOND, &mut out).unwrap();
    assert_eq!(pvs.ended, []);
    for _ in 0..2 {
        pvs.look(NOW + 5 * SECOND, &mut out).unwrap();
        // libca tries again by itself.
        assert_eq!(pvs.ended, [("A".to_owned(), ids[0], false)]);
    }
}

#[test]
fn structures_are_kept_as_they_came() {
    let (mut pvs, ids) = pvs(&[json!("A")], &quiet());
    let mut out = Recorder::default();
    let bytes = Elements { kind: Kind::Number(DType::UInt8), count: 3, bytes: &[128, 1, 2] };
    let thing = Update {
        form: Form::Other,
        has_value: true,
        type_id: b"facility:thing/1.0",
        value: bytes,
        ..Update::of(ids[0], What::Value)
    };
    pvs.take(&thing, NOW, &mut out).unwrap();
    assert_eq!(out.take(), [row("A", 0, "bppv")]);
    let read = wire::bppv::read(&out.payloads[0]).unwrap();
    assert_eq!((read.timestamp, read.type_id, read.data.bytes()), (NOW, "facility:thing/1.0", &[128, 1, 2][..]));
}

#[test]
fn thousands_of_names_are_removed_in_one_pass_and_wildcards_too() {
    let names: Vec<Value> = (0..5000).map(|n| json!(format!("A:{n}"))).collect();
    let (mut pvs, _) = pvs(&names, &quiet());
    let patterns =
        |names: &[Value]| -> Vec<Pattern> { names.iter().map(|name| Pattern::of_json(name).unwrap()).collect() };
    assert_eq!(pvs.remove_matching(&patterns(&names[..4000])).len(), 4000);
    assert_eq!(
        pvs.remove_matching(&patterns(&[json!("ca:A:4001"), json!("A:400?"), json!({"pv": "A:4001"})])).len(),
        10
    );
    assert_eq!(pvs.remove_matching(&patterns(&[json!({})])).len(), 990);
}

#[test]
fn choices_change_in_place() {
    let (mut pvs, ids) = pvs(&[json!({"pv": "A", "alarms": false})], &quiet());
    let (mut out, value) = (Recorder::default(), 1f64.to_le_bytes());
    pvs.take(&number(ids[0], NOW, &value), NOW, &mut out).unwrap();
    let entry = |json: Value| vec![Entry::of_json(&json, Protocol::Pva).unwrap()];
    assert_eq!(pvs.choose(entry(json!({"pv": "A", "alarms": true})), &quiet(), NOW), 1);
    assert_eq!(pvs.choose(entry(json!({"pv": "A", "alarms": true})), &quiet(), NOW), 0);
    assert_eq!(pvs.choose(entry(json!("other")), &quiet(), NOW), 0);
    pvs.take(&number(ids[0], NOW + 1, &value), NOW, &mut out).unwrap();
    // The same subscription, and the next numbers.
    assert_eq!(out.take(), [row("A", 0, "f144"), row("A", 1, "al00"), row("A", 2, "f144")]);
}

#[test]
fn a_long_text_is_a_text_by_both_protocols_and_bytes_with_f144() {
    let entries =
        [json!("A.DESC$"), json!({"pv": "ca:B.DESC$"}), json!({"pv": "C.DESC$", "schema": "f144"}), json!("D")];
    let (mut pvs, ids) = pvs(&entries, &quiet());
    let (mut out, bytes) = (Recorder::default(), b"a word\0\0");
    for (id, dtype) in ids.iter().zip([DType::Int8, DType::UInt8, DType::Int8, DType::Int8]) {
        let value = Elements { kind: Kind::Number(dtype), count: 8, bytes };
        let update = Update { form: Form::Array, value, ..number(*id, NOW, &[0; 8]) };
        pvs.take(&update, NOW, &mut out).unwrap();
    }
    let schemas: Vec<String> = out.take().into_iter().map(|row| row.2).collect();
    assert_eq!(schemas, ["f142", "f142", "f144", "f144"]);
    for payload in &out.payloads[..2] {
        assert!(matches!(wire::f142::read(payload).unwrap().value, wire::f142::Value::Text("a word")));
    }
}
