use super::*;
use serde_json::Value;

const ID: &str = "10edfd3c-84d3-11ef-b864-0242ac120002";

fn dismissed() -> Dismissed {
    Dismissed { refused: 3, ignored: 4 }
}

fn service() -> Service {
    Service { id: "writer-pid:7-ab12".into(), host: "host".into(), pid: 7, interval: Duration::from_secs(2) }
}

fn writing() -> Writing {
    let topic = Topic { messages: 5, bytes: 700, rate: 1.5, lag: 2, aside: 1, lost: 0 };
    Writing {
        job_id: ID.into(),
        file_name: "sub/a.nxs".into(),
        start_ms: 1_750_000_000_000,
        stop_ms: None,
        trouble: Some("the disk is full".into()),
        topics: BTreeMap::from([("loki_detector".into(), topic)]),
    }
}

fn finished() -> Written {
    Written {
        job_id: ID.into(),
        file_name: "/data/sub/a.nxs".into(),
        metadata: "{ \"a\": 1}".into(),
        error: None,
        topics: BTreeMap::from([("loki_detector".into(), (5, 700))]),
        aside: BTreeMap::from([("unfit".into(), 1)]),
        late: BTreeMap::new(),
        lost: Vec::new(),
        begins: Vec::new(),
        blake3: Some("af13".into()),
        content: Some("c0de".into()),
    }
}

fn lost(first: u64, last: u64) -> Lost {
    Lost { topic: "loki_detector".into(), partition: 1, first, last, reason: "lost.retention".into() }
}

fn refusal(mistakes: Vec<Mistake>) -> Refusal {
    Refusal {
        code: 400,
        action: ActionType::StartJob,
        job_id: ID.into(),
        command_id: ID.into(),
        control_topic: String::new(),
        mistakes,
    }
}

/// Every kind of message, by name: Python reads these bytes too (`tests/python/test_ess_replies.py`).
fn all() -> Vec<(&'static str, Vec<u8>)> {
    let started = Answer {
        service_id: "writer-pid:7-ab12",
        action: ActionType::StartJob,
        code: 201,
        job_id: ID,
        command_id: ID,
        stop_ms: Some(1_750_000_060_000),
        message: "",
    };
    let mistakes = vec![
        Mistake::new("filename", "`a` exists", "name a new file"),
        Mistake::new("/children/0/config/dtype", "unknown word `dubble`", ""),
    ];
    vec![
        ("answ-started", answer(&started)),
        ("answ-refused", refused("writer-pid:7-ab12", &refusal(mistakes))),
        ("x5f2-idle", status(&service(), dismissed(), None)),
        ("x5f2-writing", status(&service(), dismissed(), Some(&writing()))),
        ("wrdn-done", written("writer-pid:7-ab12", &finished())),
        ("wrdn-lost", written("writer-pid:7-ab12", &Written { lost: vec![lost(3, 14)], ..finished() })),
    ]
}

#[test]
fn messages_are_those_that_python_reads() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/ess");
    for (name, bytes) in all() {
        let path = folder.join(name);
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(kept == bytes, "{name} differs; if that is right: BLESS=1 cargo test -p beamport-ess");
    }
}

#[test]
fn an_idle_service_has_all_five_keys() {
    let bytes = status(&service(), dismissed(), None);
    let fields = x5f2::read(&bytes).unwrap();
    assert_eq!((fields.software_name, fields.update_interval), ("kafka-to-nexus", 2000));
    let json: Value = serde_json::from_str(fields.status_json).unwrap();
    let expected = json!({"state": "idle", "job_id": "", "file_being_written": "", "start_time": 0, "stop_time": 0,
                          "refused": 3, "ignored": 4});
    assert_eq!(json, expected);
}

#[test]
fn a_writing_service_tells_how_its_topics_go() {
    let bytes = status(&service(), dismissed(), Some(&writing()));
    let json: Value = serde_json::from_str(x5f2::read(&bytes).unwrap().status_json).unwrap();
    assert_eq!((&json["state"], &json["job_id"], &json["stop_time"]), (&json!("writing"), &json!(ID), &json!(0)));
    let topic = json!({"messages": 5, "bytes": 700, "rate": 1.5, "lag": 2, "aside": 1, "lost": 0});
    assert_eq!((&json["topics"]["loki_detector"], &json["trouble"]), (&topic, &json!("the disk is full")));
}

#[test]
fn a_refusal_lists_every_mistake_within_its_bound() {
    let few: Vec<Mistake> = (0..3).map(|n| Mistake::new(format!("/{n}"), "it is wrong", "")).collect();
    let bytes = refused("id", &refusal(few));
    let fields = answ::read(&bytes).unwrap();
    assert_eq!(fields.message, "/0: it is wrong\n/1: it is wrong\n/2: it is wrong");
    assert_eq!((fields.outcome, fields.status_code, fields.command_id), (ActionOutcome::Failure, 400, ID));
    let many: Vec<Mistake> = (0..10_000).map(|n| Mistake::new(format!("/{n}"), "it is wrong", "")).collect();
    let bytes = refused("id", &refusal(many));
    let fields = answ::read(&bytes).unwrap();
    let listed = fields.message.lines().count() - 1;
    assert!(
        fields.message.len() <= MESSAGE_BYTES_MAX
            && fields.message.ends_with(&format!("and {} more mistakes", 10_000 - listed))
    );
}

#[test]
fn loss_is_an_error_with_its_offsets() {
    let bytes = written("id", &Written { lost: vec![lost(3, 14), lost(20, 20)], ..finished() });
    let fields = wrdn::read(&bytes).unwrap();
    let json: Value = serde_json::from_str(fields.message.unwrap()).unwrap();
    assert!(fields.error_encountered && fields.message.unwrap().starts_with("{\"error\":\"13 messages are lost\""));
    assert_eq!((&json["lost"][0]["first"], &json["lost"][0]["last"]), (&json!(3), &json!(14)));
    assert_eq!((fields.metadata, fields.file_name), (Some("{ \"a\": 1}"), "/data/sub/a.nxs"));
    let begins = vec![Begin { topic: "t".into(), partition: 2, offset: 7 }];
    let warned = written("id", &Written { begins, ..finished() });
    let fields = wrdn::read(&warned).unwrap();
    assert!(!fields.error_encountered && fields.message.unwrap().contains("`t/2` began at offset 7"));
    let whole = written("id", &finished());
    assert!(!wrdn::read(&whole).unwrap().error_encountered);
    let many =
        written("id", &Written { lost: vec![lost(u64::MAX, 0); 1000], error: Some("ü".repeat(99_999)), ..finished() });
    let fields = wrdn::read(&many).unwrap();
    let json: Value = serde_json::from_str(fields.message.unwrap()).unwrap();
    assert_eq!((&json["more_lost"], json["lost"].as_array().map(Vec::len)), (&json!(744), Some(256)));
}
