//! A source of many ports: one stream, each port an origin with an account of its own.

use super::lab::{Lab, datagram, now, run, sum};
use flow::ledger;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::time::Duration;
use wire::datagram::Type;

/// Sends a datagram to a port of this machine.
fn send_to(port: u16, datagram: &[u8]) {
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(datagram, ("127.0.0.1", port)).unwrap();
}

#[test]
fn each_port_of_a_range_is_an_origin_of_one_stream_with_its_account() {
    let boards = json!({"rate": 2000, "size": "100 B", "loss": 0.05, "reorder": 0.05, "depth": 10, "seed": 3});
    let (lab, _) = Lab::of_ports(12, &json!({"boards": boards, "origins": ["d{01..12}"]}));
    let mut intake = lab.start();
    let truth = lab.send(Duration::from_millis(300));
    let sent = |name: &str| truth["boards"][name]["sent"].as_u64().unwrap();
    let lost = |name: &str| truth["boards"][name]["lost"].as_u64().unwrap();
    let datagrams = truth["datagrams"].as_u64().unwrap();
    // Ends are datagrams too.
    run(&mut intake, |intake| intake.status()["datagrams"].as_u64() >= Some(datagrams + 12));
    let until = std::time::Instant::now() + Duration::from_millis(300);
    run(&mut intake, |_| std::time::Instant::now() > until);
    assert_eq!(intake.status()["ports"], 12);
    lab.stop(&mut intake);
    let accounts = ledger::entries(&lab.data, "d001").unwrap().0;
    assert_eq!(accounts.len(), 12);
    for account in &accounts {
        let name = account.origin.as_str();
        assert!(account.closed && name.starts_with('d') && lost(name) > 5, "{account:#?}");
        assert_eq!((account.sent, sum(&account.lost)), (sent(name), lost(name)), "{account:#?}");
        assert_eq!(account.appended, sent(name) - lost(name));
    }
    // Switched off and on, each is in its second life.
    drop(intake);
    let mut intake = lab.start();
    lab.send(Duration::from_millis(100));
    run(&mut intake, |intake| intake.status()["restarts"] == 12);
    lab.stop(&mut intake);
    let accounts = ledger::entries(&lab.data, "d001").unwrap().0;
    assert!(accounts.len() == 24 && accounts.iter().any(|account| account.origin == "d07#2"), "{accounts:#?}");
}

#[test]
fn origins_of_a_range_are_the_name_of_the_source_and_the_port() {
    let (lab, first) = Lab::of_ports(3, &json!({}));
    let mut intake = lab.start();
    for port in first..first + 3 {
        (0..5).for_each(|number| send_to(port, &datagram(Type::Data, number)));
    }
    run(&mut intake, |intake| intake.status()["datagrams"] == 15);
    // A second sender is one of its port.
    let foreign = UdpSocket::bind("127.0.0.2:0").unwrap();
    foreign.send_to(&datagram(Type::Data, 900), ("127.0.0.1", first + 1)).unwrap();
    run(&mut intake, |intake| intake.status()["stranger"] == 1);
    run(&mut intake, |intake| intake.trouble().is_some());
    let trouble = intake.trouble().unwrap().to_string();
    assert!(trouble.contains(&format!("port {} of source `d001` has two senders", first + 1)), "{trouble}");
    lab.stop(&mut intake);
    let accounts = ledger::entries(&lab.data, "d001").unwrap().0;
    let mut found: Vec<_> = accounts.iter().map(|account| (account.origin.clone(), account.appended)).collect();
    found.sort();
    let wanted: Vec<_> = (first..first + 3).map(|port| (format!("d001.{port}"), 5)).collect();
    assert_eq!(found, wanted);
}

#[test]
fn a_taken_port_of_a_range_names_itself_and_ends_the_start_unless_it_may_be_missing() {
    let (lab, first) = Lab::of_ports(4, &json!({"require": "any"}));
    let taken = UdpSocket::bind(("127.0.0.1", first + 2)).unwrap();
    let mut intake = lab.start();
    let named = format!("127.0.0.1:{}", first + 2);
    assert!(intake.trouble().unwrap().to_string().contains(&named));
    assert!(intake.absent().unwrap().to_string().contains(&named));
    send_to(first, &datagram(Type::Data, 0));
    run(&mut intake, |intake| intake.status()["datagrams"] == 1);
    assert_eq!(intake.status()["ports"], 3);
    // Once it is free it is taken.
    drop(taken);
    run(&mut intake, |intake| intake.status()["ports"] == 4);
    send_to(first + 2, &datagram(Type::Data, 0));
    run(&mut intake, |intake| intake.status()["datagrams"] == 2);
    run(&mut intake, |intake| intake.trouble().is_none());
    drop((intake, lab));

    let (lab, first) = Lab::of_ports(4, &json!({}));
    let _taken = UdpSocket::bind(("127.0.0.1", first + 2)).unwrap();
    let options = flow::IntakeOptions { stream: store::Options::memory(1 << 20), ahead_max: i64::MAX };
    let fault = flow::Intake::start(&lab.data, "d001", lab.plan.build().unwrap(), &options, now()).err().unwrap();
    assert!(fault.to_string().contains(&format!("127.0.0.1:{}", first + 2)), "{fault}");
}

#[test]
fn mistakes_in_ranges_of_ports_are_reported() {
    let wrong = |keys: Value| -> Vec<String> {
        let mut section = json!({"framing": "beamport"});
        section.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let read = |section: &mut settings::Section<'_>| (beamport_udp::SOURCE.read)("d", section);
        let mistakes = settings::read_json(&section, read).err().unwrap();
        mistakes.into_iter().map(|mistake| format!("{}; {}", mistake.what, mistake.cause)).collect()
    };
    let of = |listen: &str, origins: Value| wrong(json!({"listen": listen, "origins": origins}));
    assert!(of("127.0.0.1:{9..1}", json!(["a"]))[0].contains("not a range"));
    assert!(of("127.0.0.1:{1..9000}", json!(["a"]))[0].contains("1024 are possible"));
    assert!(of("127.0.0.1:{0..3}", json!(["d{1..4}"]))[0].contains("not an IP address with a port"));
    assert!(of("127.0.0.1:{9001..9004}", json!(["d{1..3}"]))[0].contains("it has 3 names, `listen` has 4 ports"));
    assert!(of("127.0.0.1:{9001..9002}", json!(["a", "a"]))[0].contains("a name twice"));
    assert!(of("127.0.0.1:{9001..9002}", json!(["a", "b#2"]))[0].contains("not the name of an origin"));
    assert!(wrong(json!({"listen": "127.0.0.1:9001", "require": "some"}))[0].contains("require"));
}
