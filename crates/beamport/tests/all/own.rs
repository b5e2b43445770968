//! Programs of a user with one more kind of source, sink or ready-made worker: those of the how-to pages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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

    /// A verb of one of the example programs on an instrument file.
    fn command(&self, example: &str, verb: &str, text: &str) -> Command {
        let file = self.0.join("own.toml");
        std::fs::write(&file, text).unwrap();
        let mut command =
            Command::new(Path::new(env!("CARGO_BIN_EXE_beamport")).with_file_name("examples").join(example));
        command.arg(verb).arg(file);
        command
    }

    fn run(&self, program: &str, verb: &str, text: &str) -> Output {
        self.command(program, verb, text).output().unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits while a program runs.
fn wait(program: &mut Child, is_so: &dyn Fn() -> bool) {
    let guard = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < guard && program.try_wait().unwrap().is_none(), "it hangs, or has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the instrument of a data folder answers.
fn answers(folder: &Path) -> bool {
    beamport::mover::ask(folder, &serde_json::json!({"command": "status"})).is_ok()
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
fn ctrl_c_said_nothing_while_a_source_without_its_server_kept_a_run_open() {
    let lab = Lab::new("ending");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = instrument(&listener.local_addr().unwrap().to_string());
    let mut program = lab.command("lines", "up", &text).stderr(Stdio::piped()).spawn().unwrap();
    let folder = lab.0.join("beamport-data/own");
    let (mut client, _) = listener.accept().unwrap();
    wait(&mut program, &|| answers(&folder));
    drop(listener);
    client.write_all(b"no number\n").unwrap();
    wait(&mut program, &|| !beamport::mover::glance(&folder).troubles.is_empty());
    // SAFETY: signals to a child that has not been waited for.
    let interrupt = |program: &Child| unsafe { libc::kill(program.id() as i32, libc::SIGINT) };
    interrupt(&program);
    let lines = BufReader::new(program.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut told = lines.skip_while(|line| !line.contains("press Ctrl-C again to stop at once"));
    let waits = told.next().expect("it ended, or said nothing");
    assert!(waits.contains("waiting until run `first` is sealed"), "{waits}");
    let trouble = told.next().unwrap();
    assert!(trouble.contains("cannot connect to 127.0.0.1"), "{trouble}");
    interrupt(&program);
    assert!(told.any(|line| line.contains("stopped at once")));
    assert_eq!(program.wait().unwrap().code(), Some(2));
}

#[test]
fn the_keys_of_a_kind_of_the_user_are_checked_as_all_others() {
    let lab = Lab::new("check");
    let output = lab.run("lines", "check", &(instrument("nowhere") + "[source.y]\nkind = \"line\"\n"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(told.contains("own.toml:4: wrong value of `address` in [source.numbers]"), "{told}");
    assert!(told.contains("write it like \"127.0.0.1:9000\"") && told.contains("did you mean `lines`?"), "{told}");
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
    // The last messages may still be in a slot when the instrument ends.
    assert!(!scaled.is_empty(), "{told}");
    assert_eq!(scaled, expected[..scaled.len()], "{told}");
    let output = lab.run("scale", "check", &text.replace("factor = 2", "factr = 2"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("own.toml:9: unknown key `factr` in [worker.scaled.parameters]"), "{told}");
}

/// The lines that a server has received, and its connections.
#[derive(Default)]
struct Heard {
    /// Sequence of each line, in the order in which they came.
    lines: Vec<u64>,
    connections: u64,
}

/// A server that answers each line with a line, but for the first connection: that one it closes in the middle, with
/// lines that have no answer.
fn server(listener: TcpListener, heard: Arc<Mutex<Heard>>) {
    for client in listener.incoming() {
        let Ok(client) = client else { return };
        let is_first = {
            let mut heard = heard.lock().unwrap();
            heard.connections += 1;
            heard.connections == 1
        };
        let mut answers = client.try_clone().unwrap();
        for (at, line) in BufReader::new(client).lines().enumerate() {
            let Ok(line) = line else { break };
            let mut words = line.split(' ');
            let origin = words.next().unwrap();
            assert!(!origin.is_empty());
            heard.lock().unwrap().lines.push(words.next().unwrap().parse().unwrap());
            words.next().unwrap().parse::<f64>().unwrap();
            if is_first && at == 20 {
                break;
            }
            // The last ones stay without an answer.
            if (!is_first || at < 15) && answers.write_all(b"\n").is_err() {
                break;
            }
        }
    }
}

/// Waits until so many lines came, while the program runs.
fn wait_for(heard: &Mutex<Heard>, count: usize, program: &mut Child) {
    let guard = Instant::now() + Duration::from_secs(60);
    while heard.lock().unwrap().lines.len() < count {
        let status = program.try_wait().unwrap();
        assert!(status.is_none() && Instant::now() < guard, "{status:?}, {} lines", heard.lock().unwrap().lines.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_live_sink_of_the_user_sends_each_message_though_the_server_hangs_up_and_the_program_is_killed() {
    let lab = Lab::new("send");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(Mutex::new(Heard::default()));
    let of_server = heard.clone();
    std::thread::spawn(move || server(listener, of_server));
    let text = format!(
        "instrument = \"own\"\n[source.values]\nkind = \"sim\"\nmodel = \"camera-metadata\"\n\
         fps = 200\nduration = \"5 s\"\n\
         [sink.out]\nkind = \"lines\"\ninputs = [\"values\"]\naddress = \"{address}\"\n[run.first]\n"
    );
    let data = flow::Data::on_disk(lab.0.join("beamport-data/own"));
    let start = || lab.command("send", "up", &text).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    let mut program = start();
    wait_for(&heard, 100, &mut program);
    let guard = Instant::now() + Duration::from_secs(60);
    let status = || beamport::mover::glance(&data.folder).running.get("out").map(|out| out["status"].clone());
    while !status().is_some_and(|status| status["unanswered"].is_u64()) {
        assert!(Instant::now() < guard && program.try_wait().unwrap().is_none(), "{:?}", status());
        std::thread::sleep(Duration::from_millis(5));
    }
    program.kill().unwrap();
    program.wait().unwrap();
    // A line that was sent may have no answer; the stream keeps all that have none.
    let before = heard.lock().unwrap().lines.len();
    let mut program = start();
    wait_for(&heard, before + 1, &mut program);
    let output = program.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");

    let all = data.reader_early("values").unwrap().bounds().count;
    let heard = heard.lock().unwrap();
    let mut first_times: Vec<u64> = Vec::new();
    for line in &heard.lines {
        if !first_times.contains(line) {
            first_times.push(*line);
        }
    }
    assert_eq!(first_times, (0..all).collect::<Vec<_>>(), "{told}");
    assert!(heard.connections >= 3 && heard.lines.len() as u64 > all, "{} lines of {all}", heard.lines.len());
    let row = flow::ledger::stage(&data, "out").unwrap().remove(0);
    assert_eq!((row.read, row.done, row.held, row.closed), (all, all, 0, true), "{row:?}");
    assert!(told.contains("out") && told.contains("values"), "the report names it: {told}");
}

/// The programs of the pages are these examples.
#[test]
fn the_pages_on_sources_and_sinks_are_the_examples_that_are_built() {
    for (page, example) in
        [("add-a-source.md", "lines.rs"), ("add-a-sink.md", "send.rs"), ("add-a-framing.md", "framing.rs")]
    {
        let page = std::fs::read_to_string(Path::new(ROOT).join("docs/how-to").join(page)).unwrap();
        let shown = page.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
        let built = std::fs::read_to_string(Path::new(ROOT).join("crates/beamport/examples").join(example)).unwrap();
        assert!(built.ends_with(shown), "a page shows another program than crates/beamport/examples/{example}");
    }
}

#[test]
fn a_framing_of_the_user_has_the_account_of_all_others() {
    let lab = Lab::new("framing");
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = format!(
        "instrument = \"own\"\n[source.board]\nkind = \"udp\"\nlisten = \"{port}\"\n\
         framing = \"short\"\nleast = 4\n[run.first]\n"
    );
    let wrong = lab.run("framing", "check", &text.replace("\"short\"", "\"shor\"").replace("least", "leest"));
    let told = String::from_utf8_lossy(&wrong.stderr);
    assert!(told.contains("did you mean `short`?") && told.contains("unknown key `leest`"), "{told}");

    let mut program = lab.command("framing", "up", &text).stdout(Stdio::piped()).spawn().unwrap();
    let folder = lab.0.join("beamport-data/own");
    wait(&mut program, &|| answers(&folder));
    let board = UdpSocket::bind("127.0.0.1:0").unwrap();
    // 3 and 4 are missing; the last datagram is too short.
    for number in (65_530..=65_535_u16).chain(0..3).chain(5..10) {
        board.send_to(&[&number.to_be_bytes()[..], b"payload"].concat(), port).unwrap();
    }
    board.send_to(b"abc", port).unwrap();
    let count = || {
        let reader = flow::Data::on_disk(&folder).reader_early("board");
        reader.map_or(0, |reader| reader.bounds().count)
    };
    wait(&mut program, &|| count() == 14);
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(program.id() as i32, libc::SIGINT) };
    let output = program.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let told = String::from_utf8_lossy(&output.stdout);
    let account = flow::ledger::entries(&flow::Data::on_disk(&folder), "board").unwrap().0;
    let [account] = account.as_slice() else { panic!("{account:#?} {told} {report}") };
    assert_eq!((account.sent, account.appended, account.lost["network"]), (16, 14, 2), "{account:#?}");
    assert_eq!((account.refused["size"], account.closed), (1, true));
    assert_eq!(output.status.code(), Some(1), "{told}");
}
