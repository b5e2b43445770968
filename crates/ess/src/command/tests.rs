use super::*;
use wire::pl72::Pl72;
use wire::s6s4t::RunStop;

const ID: &str = "10edfd3c-84d3-11ef-b864-0242ac120002";
const NOW: i64 = 1_760_000_000_000;

fn good() -> Pl72<'static> {
    Pl72 {
        start_time: 1_750_000_000_000,
        stop_time: 1_750_000_060_000,
        run_name: "",
        instrument_name: "loki",
        nexus_structure: "{\"children\": []}",
        job_id: ID,
        broker: "ignored:9092",
        service_id: "",
        filename: "/sub//a.nxs",
        n_periods: 1,
        detector_spectrum_map: None,
        metadata: "{ \"a\": 1}",
        control_topic: "loki_control",
    }
}

fn bytes(fields: &Pl72<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    pl72::write(&mut out, fields).unwrap();
    out
}

fn started(fields: &Pl72<'_>) -> Result<StartJob, Refusal> {
    match read(&bytes(fields), NOW)? {
        Some(Command::Start(job)) => Ok(*job),
        other => panic!("{other:?}"),
    }
}

/// The only mistake of a start.
fn mistake(fields: &Pl72<'_>) -> Mistake {
    let refusal = started(fields).unwrap_err();
    assert_eq!((refusal.code, refusal.mistakes.len()), (400, 1), "{refusal:?}");
    refusal.mistakes.into_iter().next().unwrap()
}

fn stopped(fields: &RunStop<'_>) -> Result<StopJob, Refusal> {
    let mut out = Vec::new();
    s6s4t::write(&mut out, fields).unwrap();
    match read(&out, NOW)? {
        Some(Command::Stop(stop)) => Ok(stop),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_has_what_its_message_says() {
    let job = started(&good()).unwrap();
    assert_eq!((job.job_id.as_str(), job.file_name.as_str(), job.instrument.as_str()), (ID, "sub/a.nxs", "loki"));
    assert_eq!((job.start_ms, job.stop_ms), (1_750_000_000_000, Some(1_750_000_060_000)));
    assert_eq!((job.metadata.as_str(), job.control_topic.as_str()), ("{ \"a\": 1}", "loki_control"));
    assert_eq!((job.given_name(), job.structure()), ("/sub//a.nxs", "{\"children\": []}"));
    assert_eq!(job.raw, bytes(&good()));
}

#[test]
fn a_start_of_zero_is_the_time_of_the_message_and_a_stop_of_zero_an_open_end() {
    let job = started(&Pl72 { start_time: 0, stop_time: 0, ..good() }).unwrap();
    assert_eq!((job.start_ms, job.stop_ms), (NOW, None));
    // Ten years ahead, as NICOS says it, is a time; later than any clock is not.
    let far = NOW as u64 + 10 * 365 * 86_400_000;
    assert_eq!(started(&Pl72 { stop_time: far, ..good() }).unwrap().stop_ms, Some(far as i64));
    assert_eq!(started(&Pl72 { stop_time: i64::MAX as u64, ..good() }).unwrap().stop_ms, None);
    let fields = bytes(&Pl72 { start_time: 0, ..good() });
    assert!(read(&fields, -1).unwrap_err().mistakes[0].what.contains("neither it nor"));
}

#[test]
fn times_that_no_clock_has_are_mistakes() {
    assert_eq!(mistake(&Pl72 { start_time: u64::MAX, ..good() }).pointer, "start_time");
    assert_eq!(mistake(&Pl72 { stop_time: u64::MAX, ..good() }).pointer, "stop_time");
    assert!(mistake(&Pl72 { stop_time: 5, ..good() }).what.contains("before the start"));
    let stop = RunStop { stop_time: u64::MAX, run_name: "", job_id: ID, service_id: "", command_id: ID };
    assert_eq!(stopped(&stop).unwrap_err().mistakes[0].pointer, "stop_time");
}

#[test]
fn an_id_is_a_uuid_of_the_rfc_with_a_version() {
    for id in ["C0FFEE00-84d3-41ef-8864-0242ac120002", "019a0000-0000-7000-bfff-ffffffffffff"] {
        assert_eq!(wrong_id("job_id", id), None, "{id}");
    }
    let nil = "00000000-0000-0000-0000-000000000000";
    let variant = "10edfd3c-84d3-11ef-c864-0242ac120002";
    let long = "a".repeat(100_000);
    for id in ["", "1", nil, variant, "10edfd3c84d311efb8640242ac120002", "10edfd3c-84d3-11ef-b864-0242ac12000g", &long]
    {
        assert!(wrong_id("job_id", id).is_some_and(|mistake| mistake.to_string().len() < 500), "{id}");
    }
}

#[test]
fn every_mistake_of_a_start_is_listed_at_once() {
    let fields = Pl72 {
        start_time: u64::MAX,
        job_id: "7",
        filename: "../a",
        control_topic: "a b",
        instrument_name: "../loki",
        nexus_structure: " ",
        ..good()
    };
    let refusal = started(&fields).unwrap_err();
    let pointers: Vec<&str> = refusal.mistakes.iter().map(|mistake| mistake.pointer.as_str()).collect();
    assert_eq!(pointers, ["job_id", "filename", "control_topic", "instrument_name", "start_time", "nexus_structure"]);
    assert_eq!((refusal.job_id.as_str(), refusal.control_topic.as_str()), ("7", ""));
    assert_eq!(started(&Pl72 { job_id: "7", ..good() }).unwrap_err().control_topic, "loki_control");
}

#[test]
fn a_stop_without_a_command_id_is_refused() {
    let stop = RunStop { stop_time: 0, run_name: "", job_id: ID, service_id: "", command_id: ID };
    assert_eq!(stopped(&stop).unwrap().stop_ms, None);
    assert_eq!(stopped(&RunStop { stop_time: 7, ..stop }).unwrap().stop_ms, Some(7));
    let refusal = stopped(&RunStop { command_id: "", ..stop }).unwrap_err();
    assert_eq!((refusal.action, refusal.job_id.as_str()), (ActionType::SetStopTime, ID));
    assert_eq!(
        refusal.mistakes[0].to_string(),
        "command_id: it is missing; write a UUID, like that of Python's `uuid.uuid4()`"
    );
}

#[test]
fn a_message_of_another_schema_is_not_for_the_writer() {
    for payload in [&b""[..], b"pl72", &[0; 16], b"\x08\0\0\0f144\x04\0\x04\0\x04\0\0\0"] {
        assert_eq!(read(payload, NOW), Ok(None));
    }
    let refusal = read(b"\x08\0\0\0pl72", NOW).unwrap_err();
    assert!(refusal.mistakes[0].what.contains("damaged"), "{refusal:?}");
}

#[test]
fn a_table_without_fields_is_refused() {
    // A root table with an empty vtable: every field is missing.
    for id in [b"pl72", b"6s4t"] {
        let mut empty = vec![12, 0, 0, 0];
        empty.extend(id);
        empty.extend([4, 0, 4, 0, 4, 0, 0, 0]);
        let refusal = read(&empty, 0).unwrap_err();
        assert!(refusal.mistakes.len() >= 2, "{refusal:?}");
    }
}

#[test]
fn names_never_leave_the_prefix() {
    for (name, kept) in
        [("a", "a"), ("/a/b", "a/b"), ("./a/./b.nxs", "a/b.nxs"), ("//x", "x"), ("a b/ü.hdf", "a b/ü.hdf")]
    {
        assert_eq!(file_name(name).as_deref(), Ok(kept));
    }
    let long = format!("a/{}", "x".repeat(201));
    let deep = "d/".repeat(2000) + "x";
    for name in [
        "",
        "/",
        ".",
        "..",
        "a/",
        "a/.",
        "a/..",
        "../a",
        "a/../../b",
        "a\0b",
        "a\nb",
        ".a",
        "{run}",
        "a\\b",
        &long,
        &deep,
    ] {
        let mistake = file_name(name).unwrap_err();
        assert!(mistake.pointer == "filename" && mistake.to_string().len() < 500, "{name}: {mistake}");
    }
}

#[test]
fn malformed_commands_never_panic() {
    malformed(20_000);
}

#[test]
#[ignore = "1,000,000 commands"]
fn soak_malformed_commands_never_panic() {
    malformed(1_000_000);
}

/// Good messages with bytes changed, cut off or put in, and random ones. Each is a command, a refusal with a mistake,
/// or of another schema.
fn malformed(rounds: usize) {
    let seeds = [bytes(&good()), stop_bytes()];
    for seed in &seeds {
        assert!((0..seed.len()).filter(|end| judge(&seed[..*end])).count() > 0);
    }
    let mut random = 1_u64;
    let mut dice = |sides: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % sides
    };
    let mut refused = 0;
    for round in 0..rounds {
        let mut payload = match round % 10 {
            0 => (0..dice(300)).map(|_| dice(256) as u8).collect(),
            other => seeds[other % 2].clone(),
        };
        for _ in 0..dice(4) {
            let at = dice(payload.len().max(1));
            match dice(3) {
                0 if at < payload.len() => payload[at] = dice(256) as u8,
                1 => payload.truncate(at),
                _ => payload.insert(at.min(payload.len()), dice(256) as u8),
            }
        }
        if payload.len() >= 8 && round % 10 == 0 {
            payload[4..8].copy_from_slice(if dice(2) == 0 { b"pl72" } else { b"6s4t" });
        }
        refused += usize::from(judge(&payload));
    }
    println!("injected {rounds} malformed commands: {refused} refused, none panicked");
}

/// Every field missing, and every field in the place of every other, so that it has a wrong type.
#[test]
fn fields_that_are_missing_or_of_another_type_are_judged() {
    for seed in [bytes(&good()), stop_bytes()] {
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([seed[at], seed[at + 1]]));
        let u32_at = |at: usize| u32::from_le_bytes(seed[at..at + 4].try_into().unwrap()) as usize;
        let root = u32_at(0);
        // The distance to the vtable is signed: here the vtable comes first.
        let vtable = root.wrapping_sub(u32_at(root) as u32 as i32 as isize as usize);
        let slots: Vec<usize> = (vtable + 4..vtable + u16_at(vtable)).step_by(2).collect();
        assert!(slots.len() >= 5, "{slots:?}");
        let mut refused = 0;
        for slot in &slots {
            let places = slots.iter().map(|other| u16_at(*other)).chain([0, 4, 5, 0xffff]);
            for place in places {
                let mut payload = seed.clone();
                payload[*slot..slot + 2].copy_from_slice(&(place as u16).to_le_bytes());
                refused += usize::from(judge(&payload));
            }
        }
        assert!(refused > slots.len(), "{refused}");
    }
}

#[test]
fn commands_of_the_library_of_ess_are_read() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/wire");
    let start = std::fs::read(folder.join("pl72.bin")).unwrap();
    let fields = pl72::read(&start).unwrap();
    let refusal = read(&start, NOW).unwrap_err();
    // Its ids are words, and nothing else is wrong.
    assert_eq!((refusal.job_id.as_str(), refusal.mistakes[0].pointer.as_str()), (fields.job_id, "job_id"));
    let stop = std::fs::read(folder.join("6s4t.bin")).unwrap();
    let pointers: Vec<String> = read(&stop, NOW).unwrap_err().mistakes.into_iter().map(|one| one.pointer).collect();
    assert_eq!(pointers, ["job_id", "command_id", "stop_time"]);
}

fn stop_bytes() -> Vec<u8> {
    let mut out = Vec::new();
    let fields = RunStop { stop_time: 1, run_name: "r", job_id: ID, service_id: "s", command_id: ID };
    s6s4t::write(&mut out, &fields).unwrap();
    out
}

/// True if a message is refused.
fn judge(payload: &[u8]) -> bool {
    let Err(refusal) = read(payload, NOW) else { return false };
    assert!(!refusal.mistakes.is_empty());
    assert!(refusal.mistakes.iter().all(|mistake| mistake.to_string().len() < 1000), "{refusal:?}");
    true
}

#[test]
fn a_structure_of_100_mb_is_kept_as_it_is() {
    let structure = "[".repeat(100_000_000);
    let job = started(&Pl72 { nexus_structure: &structure, ..good() }).unwrap();
    assert_eq!(job.structure().len(), 100_000_000);
}
