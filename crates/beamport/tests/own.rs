//! Programs of a user with one more kind of source, or one more ready-made worker: those of the how-to page.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The text of an instrument whose source reads from this server.
fn instrument(address: &str) -> String {
    format!(
        "instrument = \"own\"\n[source.numbers]\nkind = \"lines\"\naddress = \"{address}\"\n[run.first]\nduration = \"2 s\"\n"
    )
}

struct Lab(PathBuf);

impl Lab {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("own-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn run(&self, program: &str, verb: &str, text: &str) -> Output {
        let file = self.0.join("own.toml");
        std::fs::write(&file, text).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_beamport")).with_file_name("examples").join(program);
        Command::new(program).arg(verb).arg(file).output().unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_source_of_the_user_fills_a_stream_and_its_account_closes() {
    let lab = Lab::new("up");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        // A line may come in pieces, and several at once.
        client.write_all(b"0\n1.").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        client.write_all(b"5\n").unwrap();
        let rest: String = (2..1000).map(|n| format!("{n}\n")).collect();
        client.write_all(rest.as_bytes()).unwrap();
        client
    });
    let output = lab.run("lines", "up", &instrument(&address));
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    drop(server.join().unwrap());
    assert!(output.status.success(), "{told}");

    let data = flow::Data::on_disk(lab.0.join("beamport-data/own"));
    let mut reader = data.reader_early("numbers").unwrap();
    let mut values = Vec::new();
    loop {
        let batch = reader.read(512).unwrap();
        if batch.is_empty() {
            break;
        }
        for message in batch.iter() {
            assert_eq!(message.entry.origin_seq, values.len() as u64);
            let wire::f144::Value::Scalar(value) = wire::f144::read(message.payload).unwrap().value else { panic!() };
            values.push(value.to_f64());
        }
    }
    let expected: Vec<f64> = (0..1000).map(|n| if n == 1 { 1.5 } else { f64::from(n) }).collect();
    assert_eq!(values, expected, "{told}");
}

#[test]
fn the_keys_of_a_kind_of_the_user_are_checked_as_all_others() {
    let lab = Lab::new("check");
    let output = lab.run("lines", "check", &(instrument("nowhere") + "[source.y]\nkind = \"line\"\n"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.contains("own.toml:4: wrong value of `address` in [source.numbers]"), "{told}");
    assert!(told.contains("write it like \"127.0.0.1:9000\"") && told.contains("write \"lines\""), "{told}");
}

#[test]
fn a_worker_of_the_user_runs_in_slots_of_the_user_s_program() {
    let lab = Lab::new("scale");
    let text = "instrument = \"own\"\n[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\n[worker.scaled]\n\
                call = \"scale\"\ninputs = [\"devices\"]\nslots = 2\n\
                parameters.factor = 2\n[run.first]\nduration = \"2 s\"\n";
    let output = lab.run("scale", "up", text);
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    let data = flow::Data::on_disk(lab.0.join("beamport-data/own"));
    let values = |stream: &str| {
        let mut reader = data.reader_early(stream).unwrap();
        let mut values = Vec::new();
        loop {
            let batch = reader.read(512).unwrap();
            if batch.is_empty() {
                return values;
            }
            // The devices also send alarms, which the worker sets aside.
            for message in batch.iter().filter(|message| message.entry.schema.0 == wire::f144::ID) {
                let read = wire::f144::read(message.payload).unwrap();
                let wire::f144::Value::Scalar(value) = read.value else { panic!() };
                values.push((read.source_name.to_owned(), read.timestamp, value.to_f64()));
            }
        }
    };
    let (given, scaled) = (values("devices"), values("scaled"));
    let expected: Vec<_> = given.into_iter().map(|(name, time, value)| (name, time, value * 2.0)).collect();
    // What came last may still be in a slot when the instrument ends.
    assert!(!scaled.is_empty(), "{told}");
    assert_eq!(scaled, expected[..scaled.len()], "{told}");
    let output = lab.run("scale", "check", &text.replace("factor = 2", "factr = 2"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("own.toml:9: unknown key `factr` in [worker.scaled.parameters]"), "{told}");
}

/// The program of the page is this example.
#[test]
fn the_page_on_sources_is_the_example_that_is_built() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/how-to/add-a-source.md")).unwrap();
    let shown = page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let example = std::fs::read_to_string(Path::new(ROOT).join("crates/beamport/examples/lines.rs")).unwrap();
    assert!(example.ends_with(shown), "the page shows another program than crates/beamport/examples/lines.rs");
}
