//! Accounts of runs over streams that delete messages sooner than a run ends, on the simulated machine.
//!
//! A board sends a message every 10 ms, some are lost, and a ring holds a tenth of a run to ten runs. The account of
//! each run equals what the board did in its interval, whatever the ring still has.

use beamport_testkit::{Dice, Machine};
use flow::{Data, Fault, Intake, IntakeOptions, Outlet, Resume, RunKeeper, Source, Step, StreamView, ledger};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Drain, Meta, Options, SchemaId, WhenFull};

const MS: i64 = 1_000_000;
const PAUSE: i64 = 10 * MS;

/// What the board did: time, and whether the message was lost.
type Sent = Arc<Mutex<Vec<(i64, bool)>>>;

struct Board {
    dice: Dice,
    bytes: usize,
    /// One in this many messages is lost.
    lost_in: u64,
    number: u64,
    sent: Sent,
}

impl Source for Board {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        self.number = resume.next_seq("board");
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let (origin, number) = (out.origin("board")?, self.number);
        let is_lost = self.dice.one_in(self.lost_in);
        if is_lost {
            out.missing(origin, number..=number, now..=now, "lost.network")?;
        } else {
            let meta = Meta { source_time: now, origin, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
            let _ = out.push(&meta, &vec![0; self.bytes])?;
        }
        // A message of a stranger, beside each of its own.
        out.count(origin, "refused.sender", 1)?;
        self.sent.lock().unwrap().push((now, is_lost));
        self.number += 1;
        Ok(Step::At(now + PAUSE))
    }
}

/// Appended and lost messages in the account of a run.
fn counted(account: &ledger::Account) -> (u64, u64) {
    let appended = account.entries.iter().map(|entry| entry.appended).sum();
    (appended, account.entries.iter().flat_map(|entry| entry.lost.values()).sum())
}

/// Rejected messages in the account of a run.
fn refused(account: &ledger::Account) -> u64 {
    account.entries.iter().flat_map(|entry| entry.refused.values()).sum()
}

/// Runs back to back, and their accounts at the seal and long after it.
fn history(seed: u64, kills: bool, on_disk: bool) {
    let mut dice = Dice::new(seed);
    let machine = Machine::new(seed);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let ring = match on_disk {
        true => Options { retain_bytes: Some(1 << 20), ..Options::disk(1 << 20) },
        false => Options { when_full: WhenFull::DropOldest, ..Options::memory(1 << 20) },
    };
    let options = IntakeOptions { stream: ring, ahead_max: 600_000 * MS };
    // The ring holds 1 MiB: 50 messages of 20 kB, or 500 of 2 kB.
    let (bytes, lost_in) = (dice.pick(&[2_000, 8_000, 20_000]), dice.range(2, 50));
    let sent = Sent::default();
    let board = Board { dice: Dice::new(seed ^ 1), bytes, lost_in, number: 0, sent: sent.clone() };
    let mut intake = Intake::start(&data, "s", Box::new(board), &options, machine.now()).unwrap();
    let mut keeper = RunKeeper::open(&data).unwrap();
    let mut since = 0;
    let mut step = |keeper: &mut RunKeeper, messages: u64| {
        for _ in 0..messages {
            machine.advance(PAUSE);
            intake.step(machine.now()).unwrap();
            if on_disk {
                intake.writer().drain().unwrap();
            }
            since += 1;
            if since % 10 == 0 {
                keeper.step(machine.now(), &[StreamView::from(&intake)]).unwrap();
            }
        }
    };
    step(&mut keeper, dice.below(700));
    let mut expected = BTreeMap::new();
    for run in 0..3 {
        let name = format!("r{run}");
        let start = machine.now();
        keeper.begin(&name, start, None, Duration::from_secs(2), "{}", start).unwrap();
        step(&mut keeper, dice.range(20, 700));
        if kills {
            drop(keeper);
            keeper = RunKeeper::open(&data).unwrap();
            step(&mut keeper, dice.range(1, 100));
        }
        let stop = keeper.end(&name, None, "asked", machine.now()).unwrap().stop;
        step(&mut keeper, 220);
        let sent = sent.lock().unwrap();
        let mine: Vec<bool> = sent.iter().filter(|(t, _)| *t >= start && *t < stop).map(|(_, lost)| *lost).collect();
        let lost = mine.iter().filter(|lost| **lost).count() as u64;
        expected.insert(name.clone(), (mine.len() as u64 - lost, lost));
        let account = ledger::account(&data, &name, &[]).unwrap();
        assert_eq!((account.state.as_str(), account.closed), ("sealed", true), "seed {seed}: {account:#?}");
        assert_eq!(counted(&account), expected[&name], "seed {seed}, run {run}, at its seal: {account:#?}");
        // A stranger sent as often as the board. A source commits what it rejects about once a second: 100 messages.
        let strange = mine.len() as u64;
        assert!(refused(&account).abs_diff(strange) <= 150, "seed {seed}, run {run}: {strange}, {account:#?}");
    }
    step(&mut keeper, 1000);
    for (name, expected) in expected {
        let account = ledger::account(&data, &name, &[]).unwrap();
        assert_eq!(counted(&account), expected, "seed {seed}, run {name}, long after: {account:#?}");
    }
}

#[test]
fn the_account_of_a_run_is_that_of_its_interval_however_small_the_ring() {
    (0..40).for_each(|seed| history(seed, false, false));
    println!("injected: rings of 0.1 to 10 runs, with losses: 120 runs of 40 histories, 0 miscounted");
}

#[test]
fn a_run_longer_than_what_its_stream_retains_has_an_account() {
    (0..5).for_each(|seed| history(seed, false, true));
}

#[test]
fn the_account_of_a_run_survives_a_restart_of_the_mover() {
    (0..10).for_each(|seed| history(seed, true, false));
}

#[test]
#[ignore = "many histories, for soak"]
fn soak_accounts_of_runs_in_rings() {
    (0..800).for_each(|seed| history(seed, false, false));
    (800..1000).for_each(|seed| history(seed, true, false));
    println!("injected: rings of 0.1 to 10 runs, with losses: 3000 runs of 1000 histories, 0 miscounted");
}
