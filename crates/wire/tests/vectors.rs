//! Messages made by other implementations (`make_vectors.py`), and ours made from them.
//!
//! `tests/vectors/wire/*.bin` were written by ess-streaming-data-types and by the official FlatBuffers runtime,
//! `*.json` says what is in them. `ours/*.bin` are the same messages as we write them: this test asserts that we
//! still do, `tests/python/test_wire_vectors.py` that the others read them. After a wanted change of the writer
//! run this test with `BLESS=1` and look at the difference.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use beamport_wire::{
    DType, Error, Field, Fields, KNOWN, Numbers, Scalar, da00, ev44, f142, f144, fields, fuzz, message_of, of_json,
    range_in, read, schema_id, senv, to_json,
};
use serde_json::Value as Json;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[expect(clippy::disallowed_methods, reason = "vectors are files; the crate itself reads none")]
fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

/// Names, bytes and expected content of all vectors.
fn vectors() -> Vec<(String, Vec<u8>, Json)> {
    let folder = root().join("tests/vectors/wire");
    let mut names: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the vectors are in the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|end| end == "bin"))
        .collect();
    names.sort();
    assert!(names.len() >= 160, "vectors are missing: {}", names.len());
    names
        .iter()
        .map(|path| {
            let json = serde_json::from_slice(&bytes_of(&path.with_extension("json")));
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, bytes_of(path), json.expect("JSON"))
        })
        .collect()
}

fn compare_fields(place: &str, found: &Fields<'_>, expected: &Json) {
    let expected = expected.as_object().unwrap_or_else(|| panic!("{place}: {expected}"));
    let names: BTreeSet<&str> = found.iter().map(|(name, _)| *name).collect();
    let wanted: BTreeSet<&str> = expected.keys().map(String::as_str).collect();
    assert_eq!(names, wanted, "{place}: names");
    for (name, field) in found {
        compare(&format!("{place}.{name}"), field, &expected[*name]);
    }
}

fn compare(place: &str, found: &Field<'_>, expected: &Json) {
    match found {
        Field::None => assert!(expected.is_null(), "{place}: {expected}"),
        Field::Bool(value) => assert_eq!(Some(*value), expected.as_bool(), "{place}"),
        Field::Int(value) => assert_eq!(Some(*value), expected.as_i64(), "{place}"),
        Field::UInt(value) => assert_eq!(Some(*value), expected.as_u64(), "{place}"),
        Field::Float(value) => compare_float(place, *value, expected),
        Field::Text(text) => assert_eq!(Some(*text), expected.as_str(), "{place}"),
        Field::Uuid(uuid) => {
            let text: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(Some(text.as_str()), expected.as_str(), "{place}");
        }
        Field::Texts(texts) => assert_eq!(Json::from(texts.clone()), *expected, "{place}"),
        Field::List(tables) => {
            let expected = expected.as_array().unwrap_or_else(|| panic!("{place}: no list"));
            assert_eq!(tables.len(), expected.len(), "{place}: length");
            for (at, (table, expected)) in tables.iter().zip(expected).enumerate() {
                compare_fields(&format!("{place}[{at}]"), table, expected);
            }
        }
        Field::Table(fields) => compare_fields(place, fields, expected),
        Field::Array { dtype, bytes, shape } => {
            assert_eq!(Some(dtype.name()), expected["dtype"].as_str(), "{place}: dtype");
            let values = expected["values"].as_array().unwrap_or_else(|| panic!("{place}: no values"));
            let numbers = Numbers::new(*dtype, bytes).expect("whole elements");
            assert_eq!(numbers.len(), values.len(), "{place}: length");
            assert_eq!(shape.iter().product::<usize>(), values.len(), "{place}: shape");
            if let Some(wanted) = expected.get("shape") {
                assert_eq!(Json::from(shape.clone()), *wanted, "{place}: shape");
            }
            for (at, (number, expected)) in numbers.iter().zip(values).enumerate() {
                compare(&format!("{place}[{at}]"), &number.into(), expected);
            }
        }
    }
}

fn compare_float(place: &str, found: f64, expected: &Json) {
    match expected.as_str() {
        Some("NaN") => assert!(found.is_nan(), "{place}: {found}"),
        Some(text) => assert_eq!(found.to_string(), text, "{place}"),
        None => assert_eq!(Some(found), expected.as_f64(), "{place}"),
    }
}

#[test]
fn every_field_of_every_vector_is_read() {
    let mut seen = BTreeSet::new();
    for (name, bytes, expected) in vectors() {
        let found = fields(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        compare_fields(&name, &found, &expected["fields"]);
        let json = to_json(&bytes).expect("what can be read is JSON");
        assert_eq!(json["schema"], expected["schema"], "{name}");
        let named = json.as_object().expect("an object").keys().filter(|key| found.iter().any(|(name, _)| name == key));
        assert_eq!(named.count(), found.len(), "{name}");
        seen.extend(schema_id(&bytes));
    }
    assert_eq!(seen, KNOWN.into_iter().collect(), "a vector for each schema");
}

#[test]
fn the_values_of_a_message_make_it_again() {
    let (mut wanted, mut made) = (Vec::new(), Vec::new());
    let mut schemas = BTreeSet::new();
    for (name, bytes, _) in vectors() {
        let message = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        message.write(&mut wanted).expect("written");
        let id = schema_id(&bytes).expect("an id");
        let values = message.fields().into_iter().map(|(_, value)| value).collect();
        if id.starts_with(b"bp") {
            let found = message_of(id, values).map(|_| ());
            assert_eq!(found, Err(Error::UnknownSchema { found: id }), "{name}");
            continue;
        }
        let again = match (id, message_of(id, values)) {
            // A plain number without its type is not enough here.
            (f144::ID | f142::ID, Err(Error::Unfit { field: "value" })) => continue,
            (_, again) => again.unwrap_or_else(|error| panic!("{name}: {error}")),
        };
        again.write(&mut made).expect("written");
        assert_eq!(made, wanted, "{name}");
        // Into room that is there already: the same bytes, whatever the room held.
        let mut room = vec![0xff; again.written_len().expect("it can be written")];
        assert_eq!(again.write_into(&mut room), Ok(wanted.len()), "{name}");
        assert_eq!(room, wanted, "{name}");
        room.pop();
        assert_eq!(again.write_into(&mut room), Err(Error::TooLong { length: wanted.len() }), "{name}");
        schemas.insert(id);
    }
    assert_eq!(schemas.len(), KNOWN.iter().filter(|id| !id.starts_with(b"bp")).count());
    let values =
        vec![Field::Text("x"), Field::Int(1 << 40), Field::Array { dtype: DType::Int64, bytes: &[], shape: vec![0] }];
    assert!(message_of(ev44::ID, values).is_err(), "`reference_time_index` is required");
    let values = vec![Field::Int(1), Field::Int(99), Field::Text("x")];
    assert_eq!(message_of(*b"ep01", values), Err(Error::Unfit { field: "status" }));
    let values = vec![Field::Int(1), Field::Int(2), Field::Text("x"), Field::None];
    assert!(message_of(*b"ep01", values).is_ok(), "`service_id` may be left out");
    let values = vec![Field::Int(1), Field::Int(2), Field::None];
    assert_eq!(message_of(*b"ep01", values), Err(Error::Unfit { field: "source_name" }), "a name was forgotten");
    let values = vec![Field::None, Field::Int(2), Field::Text("x")];
    assert_eq!(message_of(*b"ep01", values), Err(Error::Unfit { field: "timestamp" }), "a number was forgotten");
    let values = vec![Field::Bool(true), Field::Bool(true), Field::Text("x")];
    assert!(message_of(*b"ep01", values).is_ok(), "yes is 1");
}

/// Whether JSON shows only the first values of an array.
fn is_cut(json: &Json) -> bool {
    match json {
        Json::Object(object) => {
            object.contains_key("first") && object.contains_key("dtype") || object.values().any(is_cut)
        }
        Json::Array(entries) => entries.iter().any(is_cut),
        _ => false,
    }
}

#[test]
fn what_json_shows_whole_makes_the_message_again() {
    let (mut wanted, mut made) = (Vec::new(), Vec::new());
    let mut schemas = BTreeSet::new();
    for (name, bytes, _) in vectors() {
        let json = to_json(&bytes).expect("JSON");
        // By way of the text, as a user has it.
        let json: Json = serde_json::from_str(&json.to_string()).expect("JSON");
        let again = of_json(&json, &mut made);
        let id = schema_id(&bytes).expect("an id");
        if id.starts_with(b"bp") {
            assert!(again.expect_err(&name).to_string().contains("reserved schema"), "{name}");
            continue;
        }
        if is_cut(&json) {
            assert!(again.expect_err(&name).to_string().contains("was cut"), "{name}");
            continue;
        }
        again.unwrap_or_else(|error| panic!("{name}: {error}\n{json}"));
        read(&bytes).expect("a message").write(&mut wanted).expect("written");
        assert_eq!(made, wanted, "{name}: {json}");
        schemas.insert(id);
    }
    let missing: Vec<String> = KNOWN
        .iter()
        .filter(|id| !id.starts_with(b"bp") && !schemas.contains(*id))
        .map(|id| id.escape_ascii().to_string())
        .collect();
    assert_eq!(missing, [""; 0], "a vector that JSON shows whole, of each schema");
}

#[test]
fn json_as_people_write_it_is_a_message() {
    let made = |json: Json| {
        let mut out = Vec::new();
        of_json(&json, &mut out).map(|()| to_json(&out).expect("JSON")).map_err(|error| error.to_string())
    };
    let f144 = |value: Json| serde_json::json!({"schema": "f144", "source_name": "T", "timestamp": 7, "value": value});
    for value in [Json::from(3), 3.5.into(), vec![1.5, 2.0].into(), vec![1, -2].into(), u64::MAX.into()] {
        assert_eq!(made(f144(value.clone())), Ok(f144(value)));
    }
    let mut small = f144(3.into());
    small["value_type"] = "int8".into();
    assert_eq!(made(small.clone()), Ok(small));
    let mut nan = f144("NaN".into());
    nan["value_type"] = "float32".into();
    assert_eq!(made(nan.clone()), Ok(nan));
    // Nested lists have the shape.
    let frame = made(serde_json::json!({"schema": "ad00", "source_name": "cam", "id": 1, "timestamp": 7,
        "data": [[1, 2, 3], [4, 5, 6]], "data_type": "uint16"}));
    let frame = frame.expect("a frame");
    assert_eq!((&frame["dimensions"], &frame["data"]["dtype"]), (&Json::from(vec![2, 3]), &Json::from("uint16")));
    let data = made(serde_json::json!({"schema": "da00", "source_name": "m", "timestamp": 7,
        "data": [{"name": "signal", "data": [1, 2]}, {"name": "about", "data": "text"}]}));
    assert_eq!(data.expect("data")["data"][1]["shape"], Json::from(vec![4]));

    let refused = |json: Json, why: &str| {
        let error = made(json).expect_err(why);
        assert!(error.contains(why), "{error}");
    };
    let ev44 = |key: &str, value: Json| {
        let mut json = serde_json::json!({"schema": "ev44", "source_name": "bank", "message_id": 1,
            "reference_time": [7], "reference_time_index": [0], "time_of_flight": [1, 2], "pixel_id": [3, 4]});
        json[key] = value;
        json
    };
    refused(ev44("pixel_ids", vec![1].into()), "unknown field `pixel_ids`; known fields: source_name, message_id,");
    refused(ev44("message_id", Json::Null), "required field `message_id` is missing");
    refused(ev44("pixel_id", vec![1.5].into()), "`pixel_id` holds 1.5, which does not fit type int32");
    refused(ev44("pixel_id", vec![1_i64 << 40].into()), "does not fit type int32");
    refused(ev44("pixel_id", serde_json::json!([[1, 2]])), "`pixel_id` is not an array of one dimension");
    refused(ev44("pixel_id", "3".into()), "something that is not a number");
    refused(ev44("source_name", 3.into()), "`source_name` is not text");
    refused(ev44("schema", "ev99".into()), "unknown schema `ev99`");
    refused(ev44("schema", 1.into()), "not an id of four letters");
    refused(f144("NaN".into()), "`value` cannot hold the value given");
    refused(f144(serde_json::json!([[1, 2], [3]])), "lists of different length");
    refused(f144(serde_json::json!([1, [3]])), "lists of different depth");
    refused(f144(serde_json::json!([[3], 1])), "lists of different depth");
    refused(f144(serde_json::json!({"dtype": "int8", "shape": [3], "values": [1]})), "`value.shape` does not fit");
    refused(f144(serde_json::json!({"dtype": "int12", "values": [1]})), "`value.dtype` is not one of int8,");
    refused(
        serde_json::json!({"schema": "al00", "source_name": "x", "timestamp": 1, "severity": "BAD", "message": ""}),
        "`severity` is not one of OK, MINOR, MAJOR, INVALID",
    );
    refused(Json::Null, "a message is a JSON object");
}

/// The Python library writes and reads these, and people send them.
#[test]
fn a_variable_that_names_other_axes_than_it_has_is_read_as_sent() {
    for axes in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        let variable = da00::Variable {
            name: "x",
            unit: None,
            label: None,
            source: None,
            axes: axes.into(),
            shape: (&[2i64, 3]).into(),
            data: (&[1.0f64; 6]).into(),
        };
        let data = [variable];
        let message = da00::Da00 { source_name: "m", timestamp: 0, data: (&data).into() };
        let mut bytes = Vec::new();
        da00::write(&mut bytes, &message).expect("written");
        let found = da00::read(&bytes).expect("read");
        assert_eq!(found, message);
        assert_eq!(found.data[0].extent(), [2, 3]);
    }
}

#[test]
fn a_message_at_an_odd_address_reads_the_same() {
    for (name, bytes, expected) in vectors() {
        for shift in [1, 2, 4] {
            let mut moved = vec![0xEE; shift];
            moved.extend_from_slice(&bytes);
            let found = fields(&moved[shift..]).unwrap_or_else(|error| panic!("{name}: {error}"));
            compare_fields(&name, &found, &expected["fields"]);
        }
    }
}

#[test]
fn slack_after_a_message_is_accepted() {
    for (name, mut bytes, expected) in vectors() {
        bytes.extend_from_slice(&[0xA5; 777]);
        let found = fields(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        compare_fields(&name, &found, &expected["fields"]);
    }
}

#[test]
fn we_write_the_same_messages_as_ever() {
    let folder = root().join("tests/vectors/wire/ours");
    let bless = std::env::var_os("BLESS").is_some();
    let mut out = Vec::new();
    let mut made = BTreeSet::new();
    for (name, bytes, expected) in vectors() {
        let message = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        message.write(&mut out).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = fields(&out).unwrap_or_else(|error| panic!("{name}: ours: {error}"));
        compare_fields(&name, &found, &expected["fields"]);
        arrays_are_aligned(&name, &out, &found);
        let path = folder.join(format!("{name}.bin"));
        if bless {
            write_file(&folder, &path, &out);
        }
        assert_eq!(out, bytes_of(&path), "{name}: the writer changed");
        made.insert(path.file_name().map(ToOwned::to_owned));
    }
    let there: BTreeSet<_> = std::fs::read_dir(&folder)
        .expect("ours are in the repository")
        .map(|entry| Some(entry.expect("a readable folder").file_name()))
        .collect();
    assert_eq!(there, made, "files without a vector");
}

#[expect(clippy::disallowed_methods, reason = "vectors are files; the crate itself writes none")]
fn write_file(folder: &Path, path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(path, bytes).expect("a file");
}

/// numpy and slices want each array on a multiple of its element size; we put all on 8.
fn arrays_are_aligned(name: &str, whole: &[u8], found: &Fields<'_>) {
    for (field, value) in found {
        match value {
            Field::Array { bytes, .. } => {
                let range = range_in(whole, bytes).expect("an array lies in its message");
                assert_eq!(range.start % 8, 0, "{name}: {field}");
                assert_eq!(&whole[range], *bytes);
            }
            Field::List(tables) => tables.iter().for_each(|table| arrays_are_aligned(name, whole, table)),
            Field::Table(table) => arrays_are_aligned(name, whole, table),
            _ => {}
        }
    }
}

#[test]
fn recorded_messages_of_a_facility() {
    let folder = root().join("../shared/data/vectors");
    if !folder.is_dir() {
        eprintln!("skipped: no recorded messages beside the repository (../shared/data/vectors)");
        return;
    }
    let bytes = bytes_of(&folder.join("f144.bin"));
    let value = f144::read(&bytes).expect("a good f144");
    assert_eq!(value.source_name, "t_julabo");
    assert_eq!(value.value, f144::Value::Scalar(Scalar::Float64(19.0)));
    assert_eq!(value.timestamp, i64::from_le_bytes(*b"\x00\x84\x1e\x18\x32\xd6\x1e\x17"));

    let bytes = bytes_of(&folder.join("al00.bin"));
    let alarm = beamport_wire::al00::read(&bytes).expect("a good al00");
    assert_eq!(alarm.source_name, "det_image2");
    assert_eq!(alarm.severity, beamport_wire::al00::Severity::Ok);
    assert_eq!(alarm.message, "");

    let bytes = bytes_of(&folder.join("ev42.bin"));
    let events = beamport_wire::ev42::read(&bytes).expect("a good ev42");
    assert_eq!(events.source_name, "grace");
    assert_eq!((events.time_of_flight.len(), events.detector_id.len()), (1629, 1629));
    assert_eq!(events.time_of_flight.first(), Some(0x272b4));
    assert_eq!((events.message_id, events.pulse_time), (0x172a_8308_38f4_1780, 0x172a_8308_38f4_1780));
    assert_eq!(ev44::read(&bytes), Err(Error::WrongSchema { wanted: ev44::ID, found: *b"ev42" }));

    let bytes = bytes_of(&folder.join("hs01.bin"));
    let counts = beamport_wire::hs01::read(&bytes).expect("a good hs01");
    let data = counts.data.expect("counts");
    assert_eq!((data.dtype(), data.len()), (DType::Float64, 12_800));
    assert_eq!(counts.extent(data).iter().product::<usize>(), 12_800);
    assert_eq!(counts.timestamp, 0x1728_13e0_474d_5448);
}

#[test]
fn a_schema_that_nobody_knows_is_named() {
    let mut out = Vec::new();
    f144::write(&mut out, &f144::F144 { source_name: "x", timestamp: 0, value: 1i32.into() }).expect("written");
    out[4..8].copy_from_slice(b"xy99");
    assert_eq!(read(&out), Err(Error::UnknownSchema { found: *b"xy99" }));
    assert_eq!(read(&out).unwrap_err().to_string(), "unknown schema `xy99`");
}

#[test]
fn histograms_have_their_shape_where_it_fits() {
    use beamport_wire::hs00::{self, Histogram};
    let counts = [1u32, 2, 3, 4, 5, 6];
    // Too small, a little too large by one axis or by one more, and far too large.
    let misfits = [vec![2u32, 2], vec![5], vec![2, 4], vec![7], vec![2, 3, 2], vec![u32::MAX; 5]];
    let cases = misfits.into_iter().map(|sent| (sent, vec![6])).chain([(vec![2, 3], vec![2, 3])]);
    for (sent, wanted) in cases {
        let parts = Histogram {
            source: "m",
            timestamp: 1,
            dim_metadata: Default::default(),
            last_metadata_timestamp: 0,
            current_shape: (&sent).into(),
            offset: Default::default(),
            data: Some((&counts).into()),
            errors: None,
            info: "",
        };
        let mut out = Vec::new();
        hs00::write(&mut out, &parts).expect("written");
        let found = fields(&out).expect("read");
        let data = found.iter().find(|(name, _)| *name == "data").map(|(_, field)| field);
        assert!(matches!(data, Some(Field::Array { shape, .. }) if *shape == wanted), "{sent:?}: {data:?}");
    }
}

#[test]
fn json_abbreviates_long_arrays() {
    let (_, bytes, _) = vectors().into_iter().find(|(name, ..)| name == "ev44_slack").expect("ev44_slack");
    let json = to_json(&bytes).expect("a good message");
    let pixels = &json["pixel_id"];
    assert_eq!(pixels["shape"][0], 40);
    assert_eq!(pixels["dtype"], "int32");
    assert_eq!(pixels["first"], Json::from(vec![100, 101, 102, 103, 104, 105, 106, 107]));
    assert_eq!(json["reference_time_index"], Json::from(vec![0]));
}

#[test]
fn pulses_name_the_events_of_each_reference_time() {
    let mut out = Vec::new();
    let parts = ev44::Ev44 {
        source_name: "bank0",
        message_id: 1,
        reference_time: (&[10i64, 20, 30]).into(),
        reference_time_index: (&[0i32, 2, 2]).into(),
        time_of_flight: (&[1i32, 2, 3]).into(),
        pixel_id: (&[4i32, 5, 6]).into(),
    };
    ev44::write(&mut out, &parts).expect("written");
    let message = ev44::read(&out).expect("read");
    assert_eq!(message, parts);
    message.check().expect("arrays that fit");
    let pulses: Vec<_> = message.pulses().collect();
    assert_eq!(pulses, vec![(10, 0..2), (20, 2..2), (30, 2..3)]);
    assert_eq!(message.pixel_id.as_slice(), Some(&[4, 5, 6][..]));

    // Each way not to fit is named, and pulses stay within the events.
    for (index, pixels) in [
        (vec![0, 2, 1], vec![4, 5, 6]),
        (vec![-1, 0, 0], vec![4, 5, 6]),
        (vec![0, 2, 4], vec![4, 5, 6]),
        (vec![0, 2], vec![4, 5, 6]),
        (vec![0, 2, 2], vec![4, 5]),
    ] {
        let parts = ev44::Ev44 { reference_time_index: (&index).into(), pixel_id: (&pixels).into(), ..parts };
        assert!(matches!(parts.check(), Err(Error::Inconsistent { .. })), "{index:?}");
        assert!(parts.pulses().all(|(_, range)| range.start <= range.end && range.end <= 3));
    }
}

#[test]
fn a_warm_buffer_is_not_allocated_again() {
    let mut out = Vec::new();
    for (_, bytes, _) in vectors() {
        let message = read(&bytes).expect("a vector");
        message.write(&mut out).expect("written");
        let (place, capacity) = (out.as_ptr(), out.capacity());
        message.write(&mut out).expect("written");
        assert_eq!((place, capacity), (out.as_ptr(), out.capacity()));
    }
}

#[test]
fn what_cannot_be_written_is_refused_and_leaves_nothing_behind() {
    use beamport_wire::da00::{self, Da00, Variable};
    let mut out = vec![1, 2, 3];
    let text = f144::F144 { source_name: "x", timestamp: 0, value: f144::Value::Array(Numbers::text("no")) };
    assert!(f144::write(&mut out, &text).is_err());
    assert!(out.is_empty());

    let floats = senv::Senv {
        name: "x",
        channel: 0,
        packet_timestamp: 0,
        time_delta: 0.0,
        timestamp_location: senv::Location::Unknown,
        values: (&[1.5f64]).into(),
        timestamps: None,
        message_counter: 0,
    };
    assert!(matches!(senv::write(&mut out, &floats), Err(Error::Inconsistent { .. })));
    assert!(out.is_empty());

    let variables = [Variable {
        name: "signal",
        unit: None,
        label: None,
        source: None,
        axes: (&["x", "y"]).into(),
        shape: (&[2i64, 2]).into(),
        data: (&[1.0f64, 2.0, 3.0]).into(),
    }];
    let parts = Da00 { source_name: "m", timestamp: 0, data: (&variables).into() };
    assert!(matches!(da00::write(&mut out, &parts), Err(Error::Inconsistent { .. })));
    assert!(out.is_empty());
}

#[test]
fn every_vector_passes_what_the_fuzzer_does() {
    for (_, bytes, _) in vectors() {
        fuzz::fuzz(&bytes);
    }
}
