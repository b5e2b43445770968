//! A program of a user with one more kind of source: that of the how-to page.

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

    fn run(&self, verb: &str, text: &str) -> Output {
        let file = self.0.join("own.toml");
        std::fs::write(&file, text).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_beamport")).with_file_name("examples").join("lines");
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
    let output = lab.run("up", &instrument(&address));
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
    let output = lab.run("check", &(instrument("nowhere") + "[source.y]\nkind = \"line\"\n"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.contains("own.toml:4: wrong value of `address` in [source.numbers]"), "{told}");
    assert!(told.contains("write it like \"127.0.0.1:9000\"") && told.contains("write \"lines\""), "{told}");
}

/// The program of the page is this example.
#[test]
fn the_page_on_sources_is_the_example_that_is_built() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/how-to/add-a-source.md")).unwrap();
    let shown = page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    let example = std::fs::read_to_string(Path::new(ROOT).join("crates/beamport/examples/lines.rs")).unwrap();
    assert!(example.ends_with(shown), "the page shows another program than crates/beamport/examples/lines.rs");
}
