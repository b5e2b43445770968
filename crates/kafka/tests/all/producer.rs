//! A producer at mock brokers: every message once and in order, whoever is away meanwhile.

use crate::cluster::Cluster;
use beamport_kafka::{Message, Producer, Report, Unsent};
use std::time::Duration;

/// A guard against hanging: nothing here takes ten seconds.
const GUARD: Duration = Duration::from_secs(120);

fn with(brokers: &str, pairs: &[(&str, &str)]) -> Result<Producer, flow::Fault> {
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Producer::new(brokers, &pairs)
}

fn producer(cluster: &Cluster, pairs: &[(&str, &str)]) -> Producer {
    with(&cluster.brokers(), pairs).unwrap()
}

#[test]
fn every_message_is_sent_once_and_in_order_though_the_broker_was_away() {
    let cluster = Cluster::new(&[("out", 3)]);
    let mut producer = producer(&cluster, &[]);
    let topic = producer.topic("out").unwrap();
    let mut reports: Vec<Report> = Vec::new();
    let keys = [b"bank0".as_slice(), b"bank1", b"bank2", b"temperature"];
    for number in 0..1000usize {
        match number {
            300 => cluster.down(),
            600 => cluster.up(),
            _ => {}
        }
        let (payload, key) = (number.to_le_bytes(), keys[number % keys.len()]);
        let headers = [(c"beamport", payload.as_slice())];
        let (time_ms, partition) = (Some(1_000_000 + number as i64), (number % 4 == 3).then_some(2));
        let message =
            Message { partition, key: Some(key), payload: &payload, time_ms, headers: &headers, mark: number };
        producer.send(topic, &message).unwrap();
        producer.reports(&mut |report| reports.push(report)).unwrap();
    }
    assert!(producer.flush(GUARD, &mut |report| reports.push(report)).unwrap());
    let mut marks: Vec<usize> = reports.iter().map(|report| report.mark).collect();
    marks.sort_unstable();
    assert_eq!(marks, (0..1000).collect::<Vec<_>>());
    let mut seen = 0;
    for partition in 0..3 {
        let found = cluster.read("out", partition);
        seen += found.len();
        let numbers: Vec<usize> =
            found.iter().map(|found| usize::from_le_bytes(found.payload.as_slice().try_into().unwrap())).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        for (offset, (found, number)) in found.iter().zip(&numbers).enumerate() {
            assert_eq!((found.key.as_slice(), &found.header), (keys[number % 4], &found.payload));
            assert_eq!(found.time, 1_000_000 + *number as i64);
            let report = reports.iter().find(|report| report.mark == *number).unwrap();
            assert_eq!((report.topic, report.partition, report.offset.clone()), (topic, partition, Ok(offset as u64)));
        }
        // One key is in one partition.
        assert!(numbers.iter().all(|number| number % 4 != 3 || partition == 2));
    }
    assert_eq!(seen, 1000);
}

#[test]
fn a_full_queue_says_so_and_reports_make_room() {
    let cluster = Cluster::new(&[("out", 1)]);
    let mut producer = producer(&cluster, &[("queue.buffering.max.messages", "10")]);
    let topic = producer.topic("out").unwrap();
    cluster.down();
    let message = Message { payload: b"x", ..Message::default() };
    assert!((0..10).all(|_| producer.send(topic, &message).is_ok()));
    assert_eq!(producer.send(topic, &message), Err(Unsent::Full));
    cluster.up();
    let mut count = 0;
    assert!(producer.flush(GUARD, &mut |report| count += usize::from(report.offset.is_ok())).unwrap());
    assert_eq!((count, producer.send(topic, &message)), (10, Ok(())));
}

#[test]
fn a_property_that_is_wrong_is_named_and_no_secret_is_shown() {
    let wrong = |name, value| with("localhost:1", &[(name, value)]).err().expect("it was taken").to_string();
    for property in ["linger.msec", "linger.ms"] {
        let text = wrong(property, "hunter2");
        assert!(text.contains(&format!("`{property}`")) && !text.contains("hunter2"), "{text}");
    }
    assert!(wrong("sasl.password", "env:BEAMPORT_NOT_SET").contains("BEAMPORT_NOT_SET"));
}
