//! The instrument file of a job of `beamport ess writer`, as `beamport check` and `beamport up` read it.

use beamport::Registry;
use beamport::edges::TemplateAnswer;
use ess::{Pins, StartJob, WriterOptions};
use flow::checked::StreamModule;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A job with the names that are hardest to write.
fn job() -> StartJob {
    let told = wire::pl72::Pl72 {
        start_time: 1_750_000_000_123,
        stop_time: 0,
        run_name: "",
        instrument_name: "lo'ki",
        nexus_structure: "{\"children\": []}",
        job_id: "10EDFD3C-84d3-11ef-b864-0242ac120002",
        broker: "",
        service_id: "",
        filename: "proposal \"1\"/ü 'a' #2.nxs",
        n_periods: 1,
        detector_spectrum_map: None,
        metadata: "",
        control_topic: "control",
    };
    let mut payload = Vec::new();
    wire::pl72::write(&mut payload, &told).unwrap();
    match ess::read(&payload, 0) {
        Ok(Some(ess::Command::Start(job))) => *job,
        other => panic!("{other:?}"),
    }
}

fn options(folder: &Path) -> WriterOptions {
    let flags = [
        ("brokers", vec!["one:9092", "two:9092"]),
        ("command-status-topic", vec!["status"]),
        ("job-pool-topic", vec!["pool"]),
        ("kafka-config", vec!["security.protocol", "SASL_SSL", "sasl.password", "hunter2", "group.id", "mine"]),
        ("data-flush-interval", vec!["0"]),
        ("hdf-template-prefix", vec!["templates"]),
    ];
    let words = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let given = flags.iter().map(|(name, values)| ((*name).to_owned(), words(values))).collect();
    WriterOptions::read(&given, folder).unwrap()
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_file_of_a_job_has_no_mistake() {
    let folder = Folder(std::env::temp_dir().join(format!("beamport-ess-job-{}", std::process::id())));
    std::fs::create_dir_all(folder.0.join("templates/lo'ki")).unwrap();
    std::fs::write(folder.0.join("templates/lo'ki/lo'ki.hdf"), "").unwrap();
    let (job, options) = (job(), options(&folder.0));
    let topics = ["a.motion", "b_detector", "c"];
    let pins = Pins(topics.iter().map(|topic| ((*topic).to_owned(), vec![0, 1200])).collect::<BTreeMap<_, _>>());
    let files = ess::files(&job, &options, &pins, Some(job.start_ms + 60_000));
    let path = folder.0.join(ess::JOB_FILE);
    std::fs::write(&path, &files.job_toml).unwrap();
    std::fs::write(folder.0.join(ess::TEMPLATE_FILE), files.template_json).unwrap();
    let module = StreamModule {
        key: "topic".into(),
        streams: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        ..StreamModule::default()
    };
    let modules =
        |_: &Path, _: &flow::job::Writer| TemplateAnswer { modules: vec![module.clone()], ..TemplateAnswer::default() };
    let mistakes = match beamport::file::read(&path, &Registry::builtin(), &modules) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes,
    };
    // Plain tests are built without Kafka, and that is no matter of the file.
    let left: Vec<String> =
        mistakes.iter().filter(|one| !one.cause.contains("without Kafka")).map(ToString::to_string).collect();
    assert!(left.is_empty(), "{}\n{}", left.join("\n"), files.job_toml);
    assert!(mistakes.len() == topics.len() || cfg!(feature = "kafka"), "{mistakes:?}");
}
