//! `beamport append`: messages as JSON, into a stream and out again.

use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A data folder that is gone at the end, live places and all.
struct Place(flow::Data);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("append-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(flow::Data::on_disk(path))
    }

    /// Runs a verb with this stdin: exit status, stdout, stderr.
    fn run(&self, words: &[&str], stdin: &str) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_beamport"));
        command.args(words).arg("--data").arg(&self.0.folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A verb that refuses its words reads nothing.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        let wrong = testkit::wrong_in(&out);
        assert!(wrong.is_empty(), "{words:?}: {wrong:#?}");
        (output.status.code().unwrap(), out, err)
    }

    fn append(&self, stream: &str, text: &str) -> (i32, String, String) {
        self.run(&["append", stream, "-"], text)
    }

    /// The messages of a stream as `cat --json` prints them.
    fn cat(&self, stream: &str) -> String {
        let (status, out, err) = self.run(&["cat", stream, "--json", "--arrays"], "");
        assert_eq!(status, 0, "{err}");
        out
    }

    fn rows(&self, stream: &str) -> Vec<Value> {
        self.cat(stream).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in self.0.streams(true).unwrap_or_default() {
            let _ = store::remove(&self.0.media, &self.0.stream(&name));
        }
        let _ = std::fs::remove_dir_all(&self.0.folder);
    }
}

fn f144(name: &str, time: i64, value: f64) -> Value {
    json!({"schema": "f144", "source_name": name, "timestamp": time, "value": value})
}

#[test]
fn what_cat_prints_append_takes() {
    let place = Place::new("again");
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/wire");
    let data = &place.0;
    let mut wanted = flow::Appender::open(data, "vectors", None).unwrap();
    let mut files: Vec<PathBuf> = std::fs::read_dir(vectors).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for (number, file) in files.iter().filter(|file| file.extension().is_some_and(|end| end == "bin")).enumerate() {
        let bytes = std::fs::read(file).unwrap();
        let schema = wire::schema_id(&bytes).unwrap();
        // Books are not for appending.
        if schema.starts_with(b"bp") {
            continue;
        }
        // As we write it: other libraries lay the same message out differently.
        let mut ours = Vec::new();
        wire::read(&bytes).unwrap().write(&mut ours).unwrap();
        let origin = format!("maker \"{}\"", number % 3);
        let time = 1_772_366_400_000_000_000 + number as i64;
        let label = flow::Label {
            time,
            origin: &origin,
            number: Some(1000 + 2 * number as u64),
            schema: store::SchemaId(schema),
        };
        wanted.push(&label, &[&ours]).unwrap().unwrap();
    }
    // Bytes of a schema that is not known.
    let label = flow::Label { time: 7, origin: "x", number: None, schema: store::SchemaId(*b"mine") };
    wanted.push(&label, &[b"\x01\x02mine\x03"]).unwrap().unwrap();
    wanted.publish();
    let level = wanted.writer().header().level;
    assert!(wanted.wait(wanted.next_sequence(), level, std::time::Duration::from_secs(60)).unwrap());
    drop(wanted);

    let printed = place.cat("vectors");
    let (status, out, err) = place.append("again", &printed);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("messages appended to `again`: 0 to"), "{out}");
    let read = |stream| {
        let mut reader = data.reader_early(stream).unwrap();
        let names = reader.origins().unwrap().to_vec();
        let batch = reader.read(10_000).unwrap();
        let of = |message: store::Message<'_>| {
            let entry = message.entry;
            let origin = names[entry.origin as usize].clone();
            (entry.source_time, origin, entry.origin_seq, entry.schema, message.payload.to_vec())
        };
        batch.iter().map(of).collect::<Vec<_>>()
    };
    let (before, after) = (read("vectors"), read("again"));
    assert!(before.len() > 30, "{}", before.len());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn messages_as_people_write_them_get_time_origin_and_number() {
    let place = Place::new("people");
    let lines = format!("{}\n{}\n", f144("T", 7, 1.5), f144("P", 8, 2.5));
    assert_eq!(place.append("devices", &lines).0, 0);
    // An array, over several lines, with more said beside the content; numbers go on.
    let array = json!([f144("T", 9, 3.0), {"content": f144("T", 10, 4.0), "time": "1970-01-01T00:00:01.5Z"},
        {"content": f144("T", 11, 5.0), "source_time": 12, "origin": "other", "origin_seq": 40},
        {"content": {"source_name": "other", "timestamp": 1, "value": 1.0}, "schema": "f144"}]);
    let (status, out, err) = place.append("devices", &serde_json::to_string_pretty(&array).unwrap());
    assert_eq!((status, out.as_str()), (0, "4 messages appended to `devices`: 2 to 5\n"), "{err}");
    let rows = place.rows("devices");
    let of = |row: &Value| {
        (
            row["source_time"].as_i64().unwrap(),
            row["origin"].as_str().unwrap().to_owned(),
            row["origin_seq"].as_u64().unwrap(),
        )
    };
    let wanted = [(7, "T", 0), (8, "P", 0), (9, "T", 1), (1_500_000_000, "T", 2), (12, "other", 40), (1, "other", 41)];
    let wanted = wanted.map(|(time, origin, number)| (time, origin.to_owned(), number));
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), wanted);
    let (status, out, _) = place.run(&["append", "devices", "-", "--json"], "[]");
    assert_eq!(status, 0);
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap(),
        json!({"stream": "devices", "first": 6, "next": 6, "level": "disk"})
    );
}

#[test]
fn a_wrong_message_appends_nothing_and_is_named_with_its_line() {
    let place = Place::new("wrong");
    let good = f144("T", 7, 1.5);
    assert_eq!(place.append("s", &good.to_string()).0, 0);
    let with = |key: &str, value: Value| {
        let mut message = good.clone();
        message[key] = value;
        message.to_string()
    };
    let wrapped = |key: &str, value: Value| {
        let mut message = json!({"content": good});
        message[key] = value;
        message.to_string()
    };
    let cases = [
        (with("valve", 1.into()), "unknown field `valve`"),
        (with("timestamp", "soon".into()), "`timestamp` is not a number of type int64"),
        (with("stream", "other".into()), "it is for stream `other`"),
        (wrapped("source_time", "soon".into()), "`soon`"),
        (wrapped("source_time", 1.5.into()), "1.5 is not a time in ns since 1970"),
        (wrapped("origin_seq", (-1).into()), "`origin_seq` is not a whole number"),
        (wrapped("orign", "x".into()), "unknown key `orign`"),
        (wrapped("schema", "ev44".into()), "`schema` is \"ev44\""),
        (json!({"hex": "0102", "bytes": 33, "schema": "mine"}).to_string(), "`hex` was shortened"),
        (json!({"hex": "010", "schema": "mine"}).to_string(), "two hexadecimal digits"),
        (json!({"hex": "01"}).to_string(), "no `schema`"),
        ("{\"schema\":}".into(), "it is not valid JSON"),
        ("7".into(), "a message is a JSON object"),
    ];
    for (wrong, why) in cases {
        let (status, out, err) = place.append("s", &format!("{good}\n\n{wrong}\n{good}\n"));
        assert_eq!((status, out.as_str()), (2, ""), "{wrong}: {err}");
        assert!(err.contains("error: cannot read the message at line 3 of stdin\ncause: "), "{err}");
        assert!(err.contains(why), "{wrong}: {err}");
        assert_eq!(place.rows("s").len(), 1);
    }
    let (status, _, err) = place.run(&["append", "s", "/nowhere.json"], "");
    assert!(status == 2 && err.contains("cannot read /nowhere.json"), "{err}");
    for name in ["runs", "x.commits", "../s", ""] {
        let (status, _, err) = place.append(name, &good.to_string());
        assert!(status == 2 && err.contains("cannot append to `"), "{name}: {err}");
    }
}

#[test]
fn a_stream_that_another_process_writes_is_refused_with_the_process() {
    let place = Place::new("held");
    let held = flow::Appender::open(&place.0, "devices", None).unwrap();
    let (status, _, err) = place.append("devices", &f144("T", 7, 1.5).to_string());
    assert_eq!(status, 2);
    let cause = format!("cause: process {} writes it in {}", std::process::id(), place.0.folder.display());
    assert!(err.contains("error: cannot append to stream `devices`\n") && err.contains(&cause), "{err}");
    assert!(err.contains("hint:  append to another stream") && err.contains("[source.NAME]"), "{err}");
    drop(held);
    assert_eq!(place.append("devices", &f144("T", 7, 1.5).to_string()).0, 0);
}
