//! The account of a run on two hosts: each has its own, and both say the same of all.

use super::loss::{appended, sealed};
use beamport_testkit::Machine;
use flow::hosts::{self, AccountBook, HostAccount, HostState, HostsLayout};
use flow::{Data, RunKeeper, ledger, runs};
use std::collections::BTreeMap;
use store::{Drain, Options, Writer};

/// A process on a machine of its own, with what it has open.
type Process = (Machine, RunKeeper, Writer);

/// A host with a stream `x` that holds these numbers.
fn host(name: &str, mirrors: &[(&str, &str)], numbers: &[std::ops::Range<u64>]) -> (Process, Data, AccountBook) {
    host_of(&["a", "b"], name, mirrors, numbers)
}

/// The same of an instrument with these hosts.
fn host_of(
    hosts: &[&str],
    name: &str,
    mirrors: &[(&str, &str)],
    numbers: &[std::ops::Range<u64>],
) -> (Process, Data, AccountBook) {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut keeper = RunKeeper::open(&data).unwrap();
    let layout = HostsLayout {
        host: name.to_owned(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        mirrors: mirrors.iter().map(|(stream, host)| ((*stream).to_owned(), (*host).to_owned())).collect(),
        ..HostsLayout::default()
    };
    let book = AccountBook::open(&data, &layout).unwrap();
    let mut writer = data.writer("x", &Options::disk(1 << 20)).unwrap();
    numbers.iter().for_each(|numbers| appended(&mut writer, numbers.clone(), "payload"));
    sealed(&data, &mut keeper, machine.now(), &["x"]);
    ((machine, keeper, writer), data, book)
}

fn own(data: &Data, state: HostState) -> HostAccount {
    hosts::own(data, &runs::run(data, "r").unwrap(), &[], state).unwrap()
}

fn behind(data: &Data, state: HostState) -> Vec<String> {
    hosts::waits_for(data, &runs::run(data, "r").unwrap(), state).unwrap()
}

#[test]
fn both_hosts_count_what_either_has_lost() {
    // Number 5 never came to `a`; of the others `b` has lost 8 and 9.
    let (_a, a, mut of_a) = host("a", &[], &[0..5, 6..10]);
    let (_b, b, mut of_b) = host("b", &[("x", "a")], &[0..5, 6..8]);
    let alone = ledger::account(&a, "r", &[]).unwrap();
    assert!(!alone.closed && alone.lost == 1, "{alone:?}");
    assert_eq!(alone.hosts_missing().map(|host| host.host.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!((behind(&a, HostState::Sealed), behind(&b, HostState::Sealed)), (vec!["b".into()], vec!["a".into()]));

    assert!(of_b.keep(&own(&a, HostState::Sealed)).unwrap());
    assert!(of_a.keep(&own(&b, HostState::Sealed)).unwrap());
    assert_eq!((behind(&a, HostState::Sealed), behind(&a, HostState::Done)), (vec![], vec!["b".to_owned()]));
    // The other host may still count until its sinks have ended; then the account closes.
    for (state, closed) in [(HostState::Sealed, false), (HostState::Done, true)] {
        of_b.keep(&own(&a, state)).unwrap();
        of_a.keep(&own(&b, state)).unwrap();
        for data in [&a, &b] {
            let account = ledger::account(data, "r", &[]).unwrap();
            assert_eq!((account.closed, account.lost), (closed, 3), "{account:?}");
        }
    }
    let mirror = ledger::account(&b, "r", &[]).unwrap().mirrors.remove(0);
    assert_eq!((mirror.sent, mirror.received, mirror.missing), (Some(9), 7, 2));
    // It is read back as it was sent.
    let text = serde_json::to_string(&own(&a, HostState::Done)).unwrap();
    assert_eq!(serde_json::from_str::<HostAccount>(&text).unwrap(), own(&a, HostState::Done));
}

#[test]
fn an_account_is_kept_once_and_a_later_state_of_the_host_replaces_it() {
    let (_a, a, _) = host("a", &[], &[0..5, 5..10]);
    let (_b, b, mut book) = host("b", &[("x", "a")], &[0..5, 5..10]);
    let absent =
        HostAccount { state: HostState::Absent, streams: BTreeMap::new(), account: None, ..own(&a, HostState::Done) };
    assert!(book.keep(&absent).unwrap());
    assert!(behind(&b, HostState::Done).is_empty(), "the run was sealed without it");
    let account = ledger::account(&b, "r", &[]).unwrap();
    assert!(!account.closed && account.hosts[0].state == HostState::Absent);
    for (state, is_new) in [
        (HostState::Sealed, true),
        (HostState::Sealed, false),
        (HostState::Done, true),
        (HostState::Sealed, false),
        (HostState::Done, false),
    ] {
        assert_eq!(book.keep(&own(&a, state)).unwrap(), is_new, "{state:?}");
    }
    assert!(!book.keep(&absent).unwrap());
    let account = ledger::account(&b, "r", &[]).unwrap();
    assert!(account.closed && account.hosts[0].state == HostState::Done);
    // Opened again with the same hosts, the book says no more than before.
    let layout = hosts::layout(&b).unwrap().unwrap();
    drop(book);
    let length = |data: &Data| data.reader_early("hosts.accounts").unwrap().bounds().count;
    let before = length(&b);
    drop(AccountBook::open(&b, &layout).unwrap());
    assert_eq!(length(&b), before);
}

#[test]
fn a_host_that_is_added_later_has_no_part_in_the_runs_of_before() {
    let (_a, a, mut of_a) = host("a", &[], &[0..5, 5..10]);
    let (_b, b, mut of_b) = host("b", &[("x", "a")], &[0..5, 5..10]);
    let run = |data: &Data| runs::run(data, "r").unwrap();
    of_a.seal(&run(&a)).unwrap();
    let with_c = |data: &Data, mirrors: &[(&str, &str)]| {
        let of = hosts::layout(data).unwrap().unwrap();
        let mirrors = mirrors.iter().map(|(stream, host)| ((*stream).to_owned(), (*host).to_owned())).collect();
        HostsLayout { hosts: ["a", "b", "c"].map(str::to_owned).to_vec(), mirrors, ..of }
    };
    // `b` is killed before it has recorded the hosts of the run. In the other file, `c` reads `x` in its place.
    drop(of_b);
    of_b = AccountBook::open(&b, &with_c(&b, &[])).unwrap();
    assert!(of_b.keep(&own(&a, HostState::Done)).unwrap());
    assert!(of_a.keep(&own(&b, HostState::Done)).unwrap());
    drop(of_a);
    drop(AccountBook::open(&a, &with_c(&a, &[])).unwrap());
    // The hosts of a run are recorded once.
    of_b.seal(&run(&b)).unwrap();
    for data in [&a, &b] {
        let account = ledger::account(data, "r", &[]).unwrap();
        assert!(account.closed, "{account:?}");
        assert_eq!(account.hosts.len(), 1);
        assert!(account.hosts[0].layout.is_none() && behind(data, HostState::Done).is_empty());
    }
    assert_eq!(ledger::account(&b, "r", &[]).unwrap().mirrors.len(), 1);
}

#[test]
fn the_hosts_of_a_run_are_those_of_the_host_that_leads() {
    let (_a, a, mut of_a) = host("a", &[], &[0..5, 5..10]);
    of_a.seal(&runs::run(&a, "r").unwrap()).unwrap();
    // `b` has a file with `c` already, and seals with that.
    let (_b, b, mut of_b) = host_of(&["a", "b", "c"], "b", &[("x", "a")], &[0..5, 5..10]);
    of_b.seal(&runs::run(&b, "r").unwrap()).unwrap();
    assert_eq!(behind(&b, HostState::Sealed), ["a", "c"]);
    of_b.keep(&own(&a, HostState::Done)).unwrap();
    assert!(ledger::account(&b, "r", &[]).unwrap().closed && behind(&b, HostState::Done).is_empty());
}

#[test]
fn a_run_of_one_machine_stays_closed_where_the_instrument_gets_hosts() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut keeper = RunKeeper::open(&data).unwrap();
    let mut writer = data.writer("x", &Options::disk(1 << 20)).unwrap();
    appended(&mut writer, 0..5, "payload");
    appended(&mut writer, 5..10, "payload");
    sealed(&data, &mut keeper, machine.now(), &["x"]);
    let before = ledger::account(&data, "r", &[]).unwrap();
    let layout =
        HostsLayout { host: "a".into(), hosts: ["a", "b"].map(str::to_owned).to_vec(), ..HostsLayout::default() };
    drop(AccountBook::open(&data, &layout).unwrap());
    let account = ledger::account(&data, "r", &[]).unwrap();
    assert!(before.closed && account == before, "{account:?}");
}
