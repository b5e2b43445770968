//! Modules from outside in Rust: rows, state over kills, what a module does wrong, and the program of the how-to page.

use crate::messages::{Made, START, give, job, made, value};
use beamport_nexus::template::{Data, Mistake, Template};
use beamport_nexus::{Dataset, Filler, Given, Job, Last, Module, Nexus, Rows, Wrong};
use flow::{Aside, Sink};
use serde_json::{Map, Value, json};
use std::path::Path;
use wire::DType;

/// Takes anything, and does what the message says.
struct Any;

impl Module for Any {
    fn word(&self) -> &str {
        "any"
    }
    fn schemas(&self) -> &[[u8; 4]] {
        const { &[*b"any0", wire::f144::ID] }
    }
    fn class(&self) -> &str {
        "NXlog"
    }
    fn keys(&self) -> &[&str] {
        &["first"]
    }
    fn filler(&self, settings: &Map<String, Value>) -> Result<Box<dyn Filler>, Vec<Wrong>> {
        match settings.get("first").map_or(Some(0), Value::as_u64) {
            Some(first) => Ok(Box::new(Counting { first, next: first })),
            None => Err(vec![Wrong::new("first", "it is no whole number", "write one")]),
        }
    }
}

struct Counting {
    first: u64,
    next: u64,
}

impl Filler for Counting {
    fn datasets(&self) -> Vec<Dataset> {
        vec![
            Dataset::numbers("number", DType::UInt64),
            Dataset::texts("text", 4).with("long_name", "a text"),
            Dataset::numbers("pair", DType::Int16).row(&[2]),
        ]
    }

    fn take(&mut self, message: &Given<'_>, rows: &mut Rows<'_>) -> Result<(), &'static str> {
        rows.push(0, &[self.next]);
        rows.push_text(1, "aaaä");
        assert_eq!(message.stream, "s");
        match message.bytes.get(8) {
            _ if message.entry.schema.0 == wire::f144::ID => assert_eq!(message.origin, "T"),
            Some(1) => return Err("refused"),
            Some(2) => panic!("injected"),
            Some(3) => rows.push(2, &[1_i16]),
            Some(4) => rows.push(2, &[1_i32, 2]),
            Some(5) => rows.push(7, &[1_u8]),
            Some(6) => rows.push_text(0, "no text"),
            Some(7) => rows.push(2, &[1_i16, 2, 3, 4]),
            _ => (),
        }
        assert!(rows.count(0) > 0 && rows.count(9) == 0);
        self.next += 1;
        Ok(())
    }

    fn state(&self) -> Value {
        json!(self.next)
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.next = state.as_u64()?;
        Some(())
    }

    fn last(&self) -> Vec<Last> {
        let last =
            |name: &str| Last { name: name.into(), value: Data::text(self.next.to_string()), attributes: vec![] };
        // A dataset that is named only at the end is not written.
        if self.next == self.first { vec![last("count")] } else { vec![last("count"), last("number")] }
    }
}

fn parse(config: &Value) -> Result<Template, Vec<Mistake>> {
    let group = |name: &str, children: Value| json!({"type": "group", "name": name, "children": children});
    let module = json!({"module": "any", "config": config});
    let text = json!({"children": [group("entry", json!([group("data", json!([module]))]))]});
    Template::parse_with(text.to_string().as_bytes(), &[&Any], beamport_nexus::template::Layout::Nexus)
}

fn job_of(name: &str) -> Job {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("outside-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let template = parse(&json!({"stream": "s"})).unwrap();
    Job { template, inputs: vec!["s".into()], ..job(&folder.join("any.nxs")) }
}

fn any(kind: u8) -> Made {
    made([b"\0\0\0\0any0".as_slice(), &[kind]].concat(), START)
}

fn told(aside: &[Aside]) -> Vec<(u64, &str)> {
    aside.iter().map(|one| (one.sequence, one.reason)).collect()
}

#[test]
fn a_message_is_taken_whole_or_not_at_all_whatever_a_module_does() {
    let job = job_of("whole");
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let mut all: Vec<Made> = [0, 1, 0, 2, 3, 4, 5, 6, 7].map(any).into();
    all.extend([value(0), value(1), made(b"\0\0\0\0no00".to_vec(), START)]);
    let aside = give(&mut sink, 0, 0, &all).unwrap();
    let unfit = [(4, "unfit"), (5, "unfit"), (6, "unfit"), (7, "unfit")];
    assert_eq!(told(&aside), [&[(1, "refused"), (3, "error")], &unfit[..], &[(11, "schema")]].concat());
    sink.finish("{}").unwrap();
    let file = hdf5_metno::File::open(&job.file).unwrap();
    let group = file.group("entry/data").unwrap();
    let numbers: Vec<u64> = group.dataset("number").unwrap().read_raw().unwrap();
    assert_eq!(numbers, [0, 1, 6, 7, 8], "the module counted what did not fit, and that is its affair");
    let pairs: Vec<i16> = group.dataset("pair").unwrap().read_raw().unwrap();
    assert_eq!(pairs, [1, 2, 3, 4]);
    let texts: Vec<hdf5_metno::types::FixedUnicode<4>> = group.dataset("text").unwrap().read_raw().unwrap();
    assert!(texts.len() == 5 && texts.iter().all(|text| text.as_str() == "aaa"), "{texts:?}");
    let of = |name: &str| group.attr(name).unwrap().read_scalar::<hdf5_metno::types::VarLenUnicode>().unwrap();
    assert_eq!((of("NX_class").as_str(), of("writer_module").as_str()), ("NXlog", "any"));
    let count = group.dataset("count").unwrap().read_scalar::<hdf5_metno::types::VarLenUnicode>().unwrap();
    assert_eq!(count.as_str(), "9");
}

#[test]
fn a_resumed_module_goes_on_as_if_nothing_had_been() {
    let all: Vec<Made> = (0..60).map(|n| if n % 7 == 3 { any(1) } else { value(n) }).collect();
    let whole = job_of("undisturbed");
    let mut sink = Nexus::begin(whole.clone(), false).unwrap();
    let wanted = give(&mut sink, 0, 0, &all).unwrap().len();
    sink.finish("{}").unwrap();
    let job = job_of("resumed");
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let (mut state, mut at, mut aside) = (sink.flush().unwrap(), 0, 0);
    for killed in 0..12 {
        let next = at + 5;
        let told = give(&mut sink, 0, at as u64, &all[at..next]).unwrap();
        if killed % 3 == 1 {
            drop(sink);
            sink = Nexus::resume(job.clone(), &state).unwrap();
            aside += give(&mut sink, 0, at as u64, &all[at..next]).unwrap().len();
        } else {
            aside += told.len();
        }
        (state, at) = (sink.flush().unwrap(), next);
    }
    sink.finish("{}").unwrap();
    let numbers = |job: &Job| -> Vec<u64> {
        hdf5_metno::File::open(&job.file).unwrap().dataset("entry/data/number").unwrap().read_raw().unwrap()
    };
    assert_eq!((numbers(&job), aside), (numbers(&whole), wanted));
    assert_eq!(numbers(&job), (0..numbers(&job).len() as u64).collect::<Vec<_>>());
}

#[test]
fn settings_are_checked_with_the_template() {
    assert_eq!(parse(&json!({"stream": "s", "first": 3})).unwrap().streams()[0], "s");
    for (config, pointer, cause) in [
        (json!({"stream": "s", "first": "x"}), "/first", "no whole number"),
        (json!({"stream": "s", "frist": 1}), "/frist", "unknown key"),
        (json!({"stream": "s", "source": "T"}), "/source", "no origin"),
        (json!({"first": 1}), "", "`stream` is missing"),
    ] {
        let mistakes = parse(&config).unwrap_err();
        assert_eq!(mistakes[0].pointer, format!("/children/0/children/0/children/0/config{pointer}"));
        assert!(mistakes[0].cause.contains(cause), "{mistakes:?}");
    }
    let text = r#"{"children": [{"module": "any", "config": {"stream": "s"}}]}"#;
    let mistakes = Template::parse(text.as_bytes()).unwrap_err();
    assert!(
        mistakes[0].cause.contains("unknown module `any`") && mistakes[0].hint.contains("`program`"),
        "{mistakes:?}"
    );
}

/// The program of the page is this example, and its template is right for it.
#[test]
fn the_page_on_modules_is_the_example_that_is_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/how-to/add-a-writer-module.md")).unwrap();
    let of = |kind: &str| page.split(&format!("```{kind}\n")).nth(1).unwrap().split("```").next().unwrap();
    let example = std::fs::read_to_string(root.join("crates/nexus/examples/counters.rs")).unwrap();
    assert!(example.ends_with(of("rust")), "the page shows another program than crates/nexus/examples/counters.rs");
    let program = Path::new(env!("CARGO_BIN_EXE_beamport-nexus")).with_file_name("examples").join("counters");
    let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.json");
    for (text, good) in [(of("json").to_owned(), true), (of("json").replace("2.5", "\"x\""), false)] {
        std::fs::write(&template, text).unwrap();
        let output = std::process::Command::new(&program).arg("check").arg(&template).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), good, "{told}");
        assert!(good || told.contains("/config/scale"), "{told}");
    }
}

/// Names its datasets as others name theirs.
struct Named;

impl Module for Named {
    fn word(&self) -> &str {
        "named"
    }
    fn schemas(&self) -> &[[u8; 4]] {
        const { &[*b"any0"] }
    }
    fn filler(&self, _: &Map<String, Value>) -> Result<Box<dyn Filler>, Vec<Wrong>> {
        Ok(Box::new(Names))
    }
}

struct Names;

impl Filler for Names {
    fn datasets(&self) -> Vec<Dataset> {
        vec![
            Dataset::times("time"),
            Dataset::times("seen"),
            Dataset::numbers("arrival_time", DType::Float64),
            Dataset::numbers("event_id", DType::UInt32),
            Dataset::texts("alarm_message", 300),
        ]
    }

    fn take(&mut self, message: &Given<'_>, rows: &mut Rows<'_>) -> Result<(), &'static str> {
        rows.push(0, &[message.entry.source_time]);
        rows.push(1, &[message.entry.source_time + 1]);
        rows.push(2, &[0.5_f64]);
        rows.push(3, &[u32::MAX]);
        rows.push_text(4, &"x".repeat(299));
        Ok(())
    }
}

#[test]
fn with_the_layout_of_ess_no_row_of_a_module_was_taken() {
    use beamport_nexus::template::Layout;
    let text = r#"{"children": [{"type": "group", "name": "entry", "children": [
        {"type": "group", "name": "data", "children": [{"module": "named", "config": {"stream": "s"}}]}]}]}"#;
    for (layout, times) in [(Layout::Nexus, "int64"), (Layout::Ess, "uint64")] {
        let template = Template::parse_with(text.as_bytes(), &[&Named], layout).unwrap();
        let job = Job { template, ..job_of(times) };
        let mut sink = Nexus::begin(job.clone(), false).unwrap();
        assert_eq!(told(&give(&mut sink, 0, 0, &[any(0), any(0)]).unwrap()), [], "{layout:?}");
        let state = sink.flush().unwrap();
        drop(sink);
        let mut sink = Nexus::resume(job.clone(), &state).unwrap();
        assert_eq!(told(&give(&mut sink, 0, 2, &[any(0)]).unwrap()), [], "{layout:?}");
        sink.finish("{}").unwrap();
        let file = hdf5_metno::File::open(&job.file).unwrap();
        let of = |name: &str| {
            let dataset = file.dataset(&format!("entry/data/{name}")).unwrap();
            (dataset.dtype().unwrap().to_descriptor().unwrap().to_string(), dataset.shape()[0])
        };
        let wanted = [("time", times), ("seen", times), ("arrival_time", "float64"), ("event_id", "uint32")];
        for (name, dtype) in wanted {
            assert_eq!(of(name), (dtype.to_owned(), 3), "{layout:?} {name}");
        }
        assert_eq!(of("alarm_message"), ("unicode (len 300)".to_owned(), 3), "what a module names is its own");
        let seen: Vec<i64> = file.dataset("entry/data/seen").unwrap().read_raw().unwrap();
        assert_eq!(seen, [START + 1; 3]);
    }
}
