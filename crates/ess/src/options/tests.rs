use super::*;

/// Reads flags as the command line gives them on.
fn read(flags: &[(&str, &[&str])]) -> Result<WriterOptions, Fault> {
    let words = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let given = flags.iter().map(|(name, values)| ((*name).to_owned(), words(values))).collect();
    WriterOptions::read(&given, &std::env::temp_dir())
}

/// Those without which nothing runs, and others.
fn with(more: &[(&str, &[&str])]) -> Result<WriterOptions, Fault> {
    let mut flags: Vec<(&str, &[&str])> =
        vec![("brokers", &["one:9092,two:9092"]), ("command-status-topic", &["status"]), ("job-pool-topic", &["pool"])];
    flags.extend(more);
    read(&flags)
}

#[test]
fn defaults_are_those_of_the_table() {
    let options = with(&[]).unwrap();
    let seconds = Duration::from_secs;
    assert_eq!((options.brokers.as_str(), options.memory), ("one:9092,two:9092", 1 << 30));
    assert_eq!((options.status_interval, options.time_before_start), (seconds(2), seconds(10)));
    assert_eq!((options.metadata_timeout, options.time_after_stop), (seconds(10), seconds(10)));
    assert_eq!(options.hdf_output_prefix, std::env::temp_dir().join(""));
    assert_eq!((options.level, options.warnings.len()), (None, 0));
}

#[test]
fn names_of_files_in_answers_begin_with_the_prefix_as_it_was_typed() {
    for typed in ["", "out", "./out/", "/out"] {
        let options = with(&[("hdf-output-prefix", &[typed])]).unwrap();
        assert_eq!(options.answered_prefix.as_os_str(), typed);
        assert_eq!(options.hdf_output_prefix, std::env::temp_dir().join(typed));
    }
}

#[test]
fn durations_have_the_units_of_kafka_to_nexus() {
    let ms = |text| duration(text).map(|duration| duration.as_millis());
    let read = ["10s", "10 sec", "500ms", "1.5m", "2min", "1h", "7", "0"].map(|text| ms(text).unwrap());
    assert_eq!(read, [10_000, 10_000, 500, 90_000, 120_000, 3_600_000, 7000, 0]);
    for wrong in ["", "s", "-1s", "1d", "1.2.3s", "999999h", "1e9s", "ten"] {
        assert!(ms(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_mistake_is_listed_at_once() {
    let flags: [(&str, &[&str]); 6] = [
        ("brokers", &["one two"]),
        ("job-pool-topic", &["a/b"]),
        ("time-after-stop", &["soon"]),
        ("verbosity", &["Debgu"]),
        ("memory", &["1 MiB"]),
        ("kafka-config", &["sasl.password", "hunter2", "odd"]),
    ];
    let fault = read(&flags).unwrap_err().to_string();
    for part in [
        "--brokers: `one two` is not an address",
        "--command-status-topic is missing",
        "`a/b` is not a topic name",
        "`soon` is not a duration",
        "did you mean `debug`",
        "it is too little",
        "the last key has no value",
    ] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
    assert!(!fault.contains("hunter2"), "{fault}");
}

#[test]
fn an_option_without_effect_is_a_warning_and_no_mistake() {
    let options = with(&[("max-queued-writes", &["500"]), ("grafana-carbon-address", &["host:2003"])]).unwrap();
    assert_eq!(options.warnings.len(), 2, "{:?}", options.warnings);
}

#[test]
fn a_property_that_beamport_sets_itself_was_ignored_silently() {
    let config = ["bootstrap.servers", "other:9092", "group.id", "mine", "client.id", "me"];
    let warnings = with(&[("kafka-config", &config)]).unwrap().warnings;
    let expected = [
        "`-X bootstrap.servers` has no effect: the brokers are those of `--brokers`",
        "`-X group.id` has no effect: beamport sets this property itself",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn a_folder_that_is_not_utf_8_is_a_mistake() {
    use std::os::unix::ffi::OsStrExt as _;
    let here = Path::new(std::ffi::OsStr::from_bytes(b"/tmp/\xff"));
    let fault = WriterOptions::read(&Given::new(), here).unwrap_err().to_string();
    assert!(fault.contains("--hdf-output-prefix") && fault.contains("not UTF-8"), "{fault}");
}

#[test]
fn levels_are_words_or_digits() {
    let read = ["Critical", "error", "WARNING", "3", "4", "6"].map(|text| level(text).unwrap());
    assert_eq!(read, [Level::Error, Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace]);
    assert!(level("7").is_err() && level("-1").is_err());
}

#[test]
fn a_flag_wins_over_the_ini_file() {
    let path = std::env::temp_dir().join(format!("beamport-ess-{}.ini", std::process::id()));
    let text = "# comment\n; another\nbrokers=\"old:9092\"\nverbosity = 'Trace'\nstatus-master-interval=2000ms\n\
                kafka-config=security.protocol SASL_SSL \"sasl.password\" \"a b\"\nX=[client.id, me]\n\
                hdf-output-prefix=/data # the disk\ngraylog-logger-address=1\n\
                service-name=my writer\nhdf-template-prefix=\n";
    std::fs::write(&path, text).unwrap();
    let file = path.display().to_string();
    let fault = with(&[("config-file", &[&file])]).unwrap_err().to_string();
    assert!(fault.contains(":10: `service-name` takes one value"), "{fault}");
    assert!(fault.contains(":9: unknown option `graylog-logger-address`"), "{fault}");
    std::fs::write(&path, text.replace("graylog-logger-address=1\n", "").replace("my writer", "'my writer'")).unwrap();
    let options = with(&[("config-file", &[&file])]).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((options.brokers.as_str(), options.level), ("one:9092,two:9092", Some(Level::Trace)));
    assert_eq!((options.hdf_output_prefix.as_path(), options.service_name.as_str()), (Path::new("/data"), "my writer"));
    assert_eq!(options.hdf_template_prefix, std::env::temp_dir().join(""));
    let pairs: Vec<_> = options.kafka_config.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("security.protocol", "SASL_SSL"), ("sasl.password", "a b"), ("client.id", "me")]);
    assert!(!format!("{options:?}").contains("a b"));
}

#[test]
fn an_ini_file_that_is_wrong_names_the_line() {
    let (entries, mistakes) = ini::read("a=1\n[section]\nb\nc=\"open\nd='x' # y\n");
    assert_eq!(entries.iter().map(|(line, ..)| *line).collect::<Vec<_>>(), [1, 5]);
    assert_eq!(mistakes.len(), 3, "{mistakes:?}");
    assert!(mistakes[0].starts_with("line 2") && mistakes[2].contains("not closed"), "{mistakes:?}");
}
