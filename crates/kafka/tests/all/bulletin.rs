//! Bulletins at mock brokers: all hosts read the same posts in one order, whoever starts late or is away meanwhile.
//!
//! The mock has no names of clients that shut out older ones, no broker time and no compaction: those are tested with
//! Apache Kafka.

use crate::cluster::Cluster;
use flow::edge::{Bulletin, Post, Posted};
use flow::{Fault, Passes};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A guard against hanging: nothing here takes ten seconds.
const GUARD: Duration = Duration::from_secs(120);
const NAP: Duration = Duration::from_millis(20);

fn bulletin(cluster: &Cluster, host: Option<&str>) -> Result<Box<dyn Bulletin>, Fault> {
    let section = json!({"brokers": cluster.brokers(), "properties": {"socket.timeout.ms": 60000}});
    let carrier = settings::read_json(&section, beamport_kafka::CARRIER.read);
    carrier.unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).bulletin("bench", host)
}

fn post(bulletin: &mut dyn Bulletin, posts: &[(&str, &str)]) -> Result<Posted, Fault> {
    let posts: Vec<_> = posts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    bulletin.post(&posts)
}

/// The next `count` posts, with their texts.
fn read(bulletin: &mut dyn Bulletin, count: usize) -> Vec<(String, String)> {
    let (mut all, until) = (Vec::new(), Instant::now() + GUARD);
    while all.len() < count {
        assert!(Instant::now() < until, "it hangs behind {all:?}");
        // Brokers that come back are away at first.
        let posts = bulletin.read(NAP).unwrap_or_default();
        all.extend(posts.into_iter().map(|Post { key, text, .. }| (key, text)));
    }
    assert_eq!(all.len(), count, "{all:?}");
    all
}

#[test]
fn all_hosts_read_all_posts_in_one_order_and_a_later_reader_gets_the_newest_of_each_key() {
    let cluster = Cluster::new(&[("bench.hosts", 1)]);
    let mut hosts = [bulletin(&cluster, Some("a")).unwrap(), bulletin(&cluster, Some("b")).unwrap()];
    assert_eq!(hosts[1].read(NAP), Ok(Vec::new()));
    assert_eq!(hosts[0].post(&[]), Ok(Posted::Kept));
    for number in 0..20 {
        for (host, key) in hosts.iter_mut().zip(["host.a", "host.b"]) {
            assert_eq!(post(host.as_mut(), &[(key, &number.to_string()), ("run", key)]), Ok(Posted::Kept));
        }
    }
    assert_eq!(post(hosts[0].as_mut(), &[("host.b", "")]), Ok(Posted::Kept));
    // Records of others are skipped, and one without a key too.
    cluster.send("bench.hosts", 0, [b"no key".as_slice()]);
    assert_eq!(post(hosts[1].as_mut(), &[("end", "ü")]), Ok(Posted::Kept));
    let all = hosts.each_mut().map(|host| read(host.as_mut(), 82));
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0][78..], [("host.b", "19"), ("run", "host.b"), ("host.b", ""), ("end", "ü")].map(owned));
    let mut late = bulletin(&cluster, None).unwrap();
    let newest: BTreeMap<String, String> = read(late.as_mut(), 82).into_iter().collect();
    assert_eq!(newest, BTreeMap::from([("host.a", "19"), ("host.b", ""), ("run", "host.b"), ("end", "ü")].map(owned)));
    let found = cluster.read("bench.hosts", 0);
    assert!(found.iter().any(|found| (found.key.as_slice(), found.payload.as_slice()) == (b"host.b", b"")));
    assert!(post(late.as_mut(), &[("host.c", "up")]).unwrap_err().what.contains("only read"));
}

fn owned((key, text): (&str, &str)) -> (String, String) {
    (key.to_owned(), text.to_owned())
}

#[test]
fn a_host_whose_name_another_process_has_posts_no_more_and_reads_on() {
    let cluster = Cluster::new(&[("bench.hosts", 1)]);
    let mut first = bulletin(&cluster, Some("a")).unwrap();
    assert_eq!(post(first.as_mut(), &[("host.a", "first")]), Ok(Posted::Kept));
    let mut second = bulletin(&cluster, Some("a")).unwrap();
    cluster.fence();
    for text in ["", "again"] {
        assert_eq!(post(first.as_mut(), &[("host.a", text)]), Ok(Posted::Fenced));
        assert_eq!(post(second.as_mut(), &[("host.a", "second")]), Ok(Posted::Kept));
    }
    assert_eq!(read(first.as_mut(), 3), ["first", "second", "second"].map(|text| owned(("host.a", text))));
}

#[test]
fn brokers_that_are_away_are_a_fault_that_passes_and_the_bulletin_goes_on() {
    let cluster = Cluster::new(&[("bench.hosts", 1)]);
    let mut host = bulletin(&cluster, Some("a")).unwrap();
    assert_eq!(post(host.as_mut(), &[("host.a", "before")]), Ok(Posted::Kept));
    assert_eq!(read(host.as_mut(), 1), [owned(("host.a", "before"))]);
    cluster.down();
    let fault = post(host.as_mut(), &[("host.a", "lost")]).unwrap_err();
    assert!(fault.passes == Passes::Soon && fault.what.contains("bulletin `bench` gets no answer"), "{fault}");
    let until = Instant::now() + GUARD;
    let fault = loop {
        match host.read(NAP) {
            Err(fault) => break fault,
            Ok(posts) => assert!(posts.is_empty() && Instant::now() < until, "{posts:?}"),
        }
    };
    assert!(fault.passes == Passes::Soon && fault.what.contains("bulletin `bench` gets no answer"), "{fault}");
    cluster.up();
    while post(host.as_mut(), &[("host.a", "after")]).is_err() {
        assert!(Instant::now() < until, "it does not come back");
    }
    let mut reader = bulletin(&cluster, None).unwrap();
    let texts: Vec<String> = read(reader.as_mut(), 2).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["before", "after"]);
    assert_eq!(read(host.as_mut(), 1), [owned(("host.a", "after"))]);
}
