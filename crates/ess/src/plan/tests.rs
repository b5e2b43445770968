use super::*;
use crate::options::Given;
use flow::checked;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

/// A folder of a test, with `data`, `out` and `templates`; removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("beamport-ess-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        for folder in ["out", "templates/loki", "templates/none", "outside"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        fs::write(path.join("templates/loki/loki.hdf"), "").unwrap();
        Self(path)
    }

    fn options(&self, more: &[(&str, &[&str])]) -> WriterOptions {
        let mut flags: Vec<(&str, &[&str])> = vec![
            ("brokers", &["one:9092"]),
            ("command-status-topic", &["status"]),
            ("job-pool-topic", &["pool"]),
            ("data", &["data"]),
            ("hdf-output-prefix", &["out"]),
            ("hdf-template-prefix", &["templates"]),
        ];
        flags.extend(more);
        let words = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let given: Given = flags.iter().map(|(name, values)| ((*name).to_owned(), words(values))).collect();
        WriterOptions::read(&given, &self.0).unwrap()
    }

    /// Stands in for `beamport-nexus`, whose checks have their own tests: it answers so if it can read the template.
    fn nexus(&self, answer: &Answer) -> PathBuf {
        let path = self.0.join("beamport-nexus");
        let answer = serde_json::to_string(answer).unwrap();
        let script = format!("#!/bin/sh\ngrep -q children \"$2\" && cat <<'END'\n{answer}\nEND\n");
        let text = self.0.join("script");
        fs::write(&text, script).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        // Not written by this process: a child of another test would have it open for writing ("text file busy").
        assert!(Command::new("cp").arg("-p").args([&text, &path]).status().unwrap().success());
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const ID: &str = "10edfd3c-84d3-11ef-b864-0242ac120002";

/// A start with a name for the file and the instrument.
fn fields<'a>(file_name: &'a str, instrument: &'a str) -> wire::pl72::Pl72<'a> {
    wire::pl72::Pl72 {
        start_time: 1_750_000_000_123,
        stop_time: 0,
        run_name: "",
        instrument_name: instrument,
        nexus_structure: "{\"children\": []}",
        job_id: ID,
        broker: "",
        service_id: "",
        filename: file_name,
        n_periods: 1,
        detector_spectrum_map: None,
        metadata: "",
        control_topic: "control",
    }
}

/// The job of a start that is right as far as its message alone shows.
fn taken(fields: &wire::pl72::Pl72<'_>) -> Option<StartJob> {
    let mut payload = Vec::new();
    wire::pl72::write(&mut payload, fields).unwrap();
    match crate::read(&payload, 1) {
        Ok(Some(crate::Command::Start(job))) => Some(*job),
        _ => None,
    }
}

fn job(file_name: &str, instrument: &str) -> StartJob {
    taken(&fields(file_name, instrument)).unwrap()
}

fn answer(topics: &[&str]) -> Answer {
    let module = checked::StreamModule {
        pointer: "/children/0/config".into(),
        key: "topic".into(),
        streams: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        ..checked::StreamModule::default()
    };
    Answer { mistakes: Vec::new(), modules: vec![module.clone(), module] }
}

#[test]
fn a_job_that_is_right_has_topics_and_no_mistake() {
    let place = Place::new("right");
    let nexus = place.nexus(&answer(&["b_detector", "a.motion"]));
    let checked = check(&job("sub/a.nxs", "loki"), &place.options(&[]), &nexus).unwrap();
    assert_eq!(checked.mistakes, []);
    assert_eq!(checked.topics, ["a.motion", "b_detector"]);
    // The template was a file only while it was read.
    assert_eq!(fs::read_dir(place.0.join("data")).unwrap().count(), 0);
}

#[test]
fn mistakes_of_template_topics_and_places_come_together() {
    let place = Place::new("wrong");
    fs::write(place.0.join("out/a.nxs"), "kept").unwrap();
    let wrong = checked::Mistake {
        pointer: "/children/0/config/dtype".into(),
        cause: "unknown word `dubble`".into(),
        hint: "did you mean `double`?".into(),
        ..checked::Mistake::default()
    };
    let warning = checked::Mistake { level: Level::Warning, ..wrong.clone() };
    let answer = Answer { mistakes: vec![wrong, warning], ..answer(&["a/b"]) };
    let checked = check(&job("a.nxs", "none"), &place.options(&[]), &place.nexus(&answer)).unwrap();
    let fields: Vec<String> = checked.mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(fields.len(), 5, "{fields:#?}");
    assert!(fields[0].starts_with("filename: `a.nxs` exists"), "{fields:#?}");
    assert!(fields[1].starts_with("instrument_name: no static file"), "{fields:#?}");
    assert_eq!(fields[2], "/children/0/config/dtype: unknown word `dubble`; did you mean `double`?");
    assert!(fields[3].starts_with("/children/0/config/topic: `a/b` is not a topic name"), "{fields:#?}");
    assert_eq!(checked.warnings.len(), 1);
}

#[test]
fn a_structure_without_a_topic_is_right() {
    let place = Place::new("empty");
    let options = place.options(&[]);
    let static_job = job("a", "");
    let checked = check(&static_job, &options, &place.nexus(&answer(&[]))).unwrap();
    assert_eq!((checked.mistakes, checked.topics), (vec![], vec![]));
    let files = files(&static_job, &options, &Pins::default(), None);
    let toml: toml_edit::DocumentMut = files.job_toml.parse().unwrap();
    assert!(
        toml.get("source").is_none() && toml["sink"]["file"]["inputs"].as_array().is_some_and(|all| all.is_empty())
    );
    // One that is not JSON has one mistake.
    let wrong = checked::Mistake { line: 7, cause: "it is not valid JSON".into(), ..checked::Mistake::default() };
    let answer = Answer { mistakes: vec![wrong], modules: Vec::new() };
    let checked = check(&job("a", ""), &place.options(&[]), &place.nexus(&answer)).unwrap();
    assert_eq!(checked.mistakes, [Mistake::new("nexus_structure", "line 7: it is not valid JSON", "")]);
}

#[test]
fn a_fault_of_the_writer_is_no_mistake_of_the_job() {
    let place = Place::new("fault");
    let (options, job) = (place.options(&[]), job("a", ""));
    let nexus = place.nexus(&answer(&["a"]));
    let fault = check(&job, &options, &place.0.join("no-such-program")).unwrap_err();
    assert!(fault.what.contains("does not run"), "{fault}");
    let many: Vec<String> = (0..65).map(|at| format!("topic{at}")).collect();
    let many = place.nexus(&answer(&many.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(check(&job, &options, &many).unwrap_err().cause.contains("--memory is 1 GiB"));
    fs::remove_dir_all(place.0.join("out")).unwrap();
    assert!(check(&job, &options, &nexus).unwrap_err().what.contains("cannot use the folder"));
}

#[test]
fn a_prefix_in_which_no_file_can_be_made_is_reported() {
    let place = Place::new("prefix");
    assert_eq!(check_prefix(&place.0.join("out")), Ok(()));
    assert_eq!(fs::read_dir(place.0.join("out")).unwrap().count(), 0);
    // A folder of the kernel, in which not even root makes a file.
    for (prefix, cause) in [("no", "No such file"), ("templates/loki/loki.hdf", "not a folder"), ("/proc/1", "no file")]
    {
        let fault = check_prefix(&place.0.join(prefix)).unwrap_err();
        assert!(fault.cause.contains(cause) && fault.hint.contains("--hdf-output-prefix"), "{fault}");
    }
}

#[test]
fn links_never_lead_out_of_a_prefix() {
    let place = Place::new("links");
    let (out, templates, outside) = (place.0.join("out"), place.0.join("templates"), place.0.join("outside"));
    fs::create_dir(out.join("real")).unwrap();
    symlink("real", out.join("inside")).unwrap();
    symlink(&outside, out.join("link")).unwrap();
    symlink("../../outside", out.join("real/up")).unwrap();
    symlink(outside.join("new.nxs"), out.join("dangling.nxs")).unwrap();
    symlink("loop", out.join("loop")).unwrap();
    fs::write(out.join("file"), "").unwrap();
    assert_eq!(wrong_place(&out, "inside/a.nxs").unwrap(), None);
    for name in ["link/a", "inside/up/a", "real/up/x/a", "dangling.nxs", "loop/a", "file/a", "link", "real"] {
        let mistake = wrong_place(&out, name).unwrap();
        assert!(mistake.is_some_and(|mistake| mistake.pointer == "filename"), "{name}");
    }
    fs::write(outside.join("evil.hdf"), "").unwrap();
    symlink(&outside, templates.join("evil")).unwrap();
    let mistake = static_file(&job("a", "evil"), &place.options(&[])).unwrap_err();
    assert!(mistake.what.contains("leaves the template prefix"), "{mistake}");
}

#[test]
fn hostile_names_stay_in_the_prefix() {
    hostile("hostile", 1000);
}

#[test]
#[ignore = "10,000 names"]
fn soak_hostile_names_stay_in_the_prefix() {
    hostile("hostile-soak", 10_000);
}

/// Names of files and instruments, put together from what leads elsewhere: each is refused, or its path is in the
/// prefix however the links in it are.
fn hostile(folder: &str, names: usize) {
    const PARTS: [&str; 20] = [
        "..", ".", "", "/", "//", "a", "link", "real", "up", "\0", "\n", "\\", "..\\", "%2e%2e", "{run}", "~", "ü",
        "-rf", "\u{202e}", "c:",
    ];
    let place = Place::new(folder);
    let (options, out, outside) = (place.options(&[]), place.0.join("out"), place.0.join("outside"));
    fs::create_dir(out.join("real")).unwrap();
    symlink(&outside, out.join("link")).unwrap();
    symlink("../../outside", out.join("real/up")).unwrap();
    let mut random = 7_u64;
    let mut dice = |sides: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % sides
    };
    let mut made = 0;
    for _ in 0..names {
        let between = ["/", "", "/../"][dice(3)];
        let name = (0..1 + dice(5)).map(|_| PARTS[dice(PARTS.len())]).collect::<Vec<_>>().join(between);
        let Some(job) = taken(&fields(&name, &name)) else { continue };
        assert!(static_path(&options.hdf_template_prefix, &job.instrument).starts_with(place.0.join("templates")));
        if wrong_place(&out, &job.file_name).unwrap().is_some() {
            continue;
        }
        // What the sink does: folders, then the file.
        let path = output(&job, &options);
        assert_eq!(path, place.0.join(answered_name(&job, &options)));
        let written = fs::create_dir_all(path.parent().unwrap()).and_then(|()| fs::write(&path, "x"));
        made += usize::from(written.is_ok());
    }
    assert!(made > 20, "{made}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    let beside: BTreeSet<_> = fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(beside.into_iter().collect::<Vec<_>>(), ["out", "outside", "templates"]);
    println!("injected {names} hostile names: {made} files made, 0 bytes outside of the prefix");
}

#[test]
fn the_job_file_has_pins_topics_and_no_secret() {
    let place = Place::new("files");
    let config: &[&str] = &[
        "security.protocol",
        "SASL_SSL",
        "sasl.password",
        "hunter2",
        "ssl.key.password",
        "env:KEY",
        "group.id",
        "mine",
        "ssl.ca.location",
        "file \"a\"",
    ];
    let options = place.options(&[("kafka-config", config), ("memory", &["100 MiB"]), ("time-after-stop", &["1.5s"])]);
    let pins = Pins(BTreeMap::from([("b_detector".into(), vec![5, 0]), ("a.motion".into(), vec![7])]));
    let job = job("sub/a \"b\".nxs", "loki");
    let past = files(&job, &options, &pins, Some(job.start_ms + 1)).job_toml;
    assert!(past.contains("\nstop = 2025-06-15T15:06:40.124Z\ninclusive = true\n"), "{past}");
    let files = files(&job, &options, &pins, Some(job.start_ms));
    assert!(!files.job_toml.contains("\nstop"), "{}", files.job_toml);
    let toml: toml_edit::DocumentMut = files.job_toml.parse().unwrap();
    let text = |section: &str, name: &str, key: &str| toml[section][name][key].to_string().trim().to_owned();
    assert_eq!(text("source", "t1", "topics"), "[\"a.motion\"]");
    assert_eq!(text("source", "t2", "start"), "{ \"b_detector/0\" = 5, \"b_detector/1\" = 0 }");
    assert_eq!(text("source", "t1", "live"), "\"48 MiB\"");
    assert_eq!(text("sink", "file", "topics"), "{ t1 = \"a.motion\", t2 = \"b_detector\" }");
    assert_eq!(text("sink", "file", "flush"), "\"1 s\"");
    assert_eq!(toml["sink"]["file"]["file"].as_str(), Some("a \"b\".nxs"));
    assert_eq!(toml["sink"]["file"]["folder"].as_str().map(Path::new), Some(place.0.join("out/sub").as_path()));
    let run = &toml["run"][job.job_id.as_str()];
    assert_eq!(run["start"].to_string().trim(), "2025-06-15T15:06:40.123Z");
    assert_eq!(run["settle"].as_str(), Some("0 s"));
    assert_eq!(text("source", "t1", "wait"), "\"1500 ms\"");
    let properties = &toml["source"]["t1"]["properties"];
    assert_eq!(properties["sasl.password"].as_str(), Some("env:BEAMPORT_KAFKA_1"));
    assert_eq!(properties["ssl.key.password"].as_str(), Some("env:KEY"));
    assert!(properties.get("group.id").is_none());
    assert!(!files.job_toml.contains("hunter2"), "{}", files.job_toml);
    assert_eq!(environment(&options), [("BEAMPORT_KAFKA_1".to_owned(), "hunter2".to_owned())]);
}
