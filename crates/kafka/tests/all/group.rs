//! Topics of commands at mock brokers: each command once, whoever joins and leaves.

use crate::cluster::Cluster;
use beamport_kafka::group::{At, Cluster as Asked, Pool, PoolEvent, Sender, Unreadable};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A guard against hanging: nothing here takes ten seconds.
const GUARD: Duration = Duration::from_secs(120);
const NAP: Duration = Duration::from_millis(20);

fn join(cluster: &Cluster, begin: &[u64]) -> Pool {
    let pool = Pool::new(&cluster.brokers(), &[], "writers", "pool", begin).unwrap();
    pool.join().unwrap();
    pool
}

/// The next command of a member.
fn next(pool: &mut Pool) -> (u64, Vec<u8>) {
    let until = Instant::now() + GUARD;
    loop {
        if let PoolEvent::Message(message) = pool.next(NAP).unwrap() {
            return (message.offset, message.payload);
        }
        assert!(Instant::now() < until, "no command came: {:?}", pool.trouble());
    }
}

#[test]
fn a_new_group_takes_what_was_sent_after_its_start_though_it_joins_later() {
    let cluster = Cluster::new(&[("pool", 1)]);
    cluster.send("pool", 0, [b"old".as_slice()]);
    let asked = Asked::new(&cluster.brokers(), &[]).unwrap();
    let pool = BTreeMap::from([("pool".to_owned(), 1)]);
    let begin = asked.offsets(&pool, At::End).unwrap()["pool"].clone();
    assert_eq!(begin, [1]);
    cluster.send("pool", 0, [b"first".as_slice(), b"second"]);
    let mut member = join(&cluster, &begin);
    assert_eq!(next(&mut member), (1, b"first".to_vec()));
    // It dies before it commits: the next one, which began later, takes the command.
    drop(member);
    let mut member = join(&cluster, &[3]);
    assert_eq!(next(&mut member), (1, b"first".to_vec()));
    member.commit(0, 1, "mine").unwrap();
    assert_eq!(member.committed(0).unwrap(), (Some(2), "mine".to_owned()));
    drop(member);
    assert_eq!(next(&mut join(&cluster, &[3])), (2, b"second".to_vec()));
}

#[test]
fn a_service_that_never_joined_still_says_where_the_group_began() {
    let cluster = Cluster::new(&[("pool", 1)]);
    let pool = Pool::new(&cluster.brokers(), &[], "writers", "pool", &[0]).unwrap();
    assert_eq!(pool.committed(0).unwrap().0, Some(0));
    drop(pool);
    cluster.send("pool", 0, [b"between".as_slice()]);
    assert_eq!(next(&mut join(&cluster, &[1])), (0, b"between".to_vec()));
}

#[test]
fn a_topic_is_read_from_offsets_and_one_that_is_missing_is_a_value() {
    let cluster = Cluster::new(&[("control", 2)]);
    cluster.send("control", 0, [b"a".as_slice(), b"b"]);
    cluster.send("control", 1, [b"c".as_slice()]);
    let asked = Asked::new(&cluster.brokers(), &[]).unwrap();
    let state = asked.topics(&["control".into(), "nowhere".into()], true).unwrap();
    assert_eq!(state["control"], Ok(2));
    assert_eq!(state["nowhere"], Err(Unreadable::Missing));
    let partitions = BTreeMap::from([("control".to_owned(), 2)]);
    assert_eq!(asked.offsets(&partitions, At::End).unwrap()["control"], [2, 1]);
    assert_eq!(asked.offsets(&partitions, At::First).unwrap()["control"], [0, 0]);
    let mut reader = asked.read("control", &[1, 0]).unwrap();
    let until = Instant::now() + GUARD;
    let sender = Sender::new(&cluster.brokers(), &[]).unwrap();
    sender.send("control", b"answer").unwrap();
    assert!(sender.flush(GUARD).unwrap());
    let mut answers = Vec::new();
    while answers.len() < 3 {
        answers.extend(reader.next(NAP).map(|message| message.payload));
        assert!(Instant::now() < until, "{answers:?}");
    }
    answers.sort();
    assert_eq!(answers, [b"answer".as_slice(), b"b", b"c"]);
}

#[test]
fn an_answer_to_a_topic_that_is_missing_held_up_others_for_half_a_minute() {
    let cluster = Cluster::new(&[("control", 1)]);
    cluster.hide("control");
    let sender = Sender::new(&cluster.brokers(), &[]).unwrap();
    sender.send("control", b"answer").unwrap();
    let refused = sender.flush(Duration::from_secs(20)).unwrap_err();
    assert!(refused.cause.contains("Unknown topic"), "{refused}");
}

#[test]
fn a_property_that_librdkafka_does_not_take_is_refused_without_its_value() {
    let wrong = [("security.protocol".to_owned(), "hunter2".to_owned())];
    for user in [wrong.as_slice(), &[("no.such.property".to_owned(), "hunter2".to_owned())]] {
        let text = Asked::new("localhost:1", user).err().map(|fault| fault.to_string()).unwrap_or_default();
        assert!(text.contains(&user[0].0) && !text.contains("hunter2"), "{text}");
    }
}
