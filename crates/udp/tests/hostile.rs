//! Datagrams and files that mean harm: no panic, no memory that grows, always messages or a reason.
//!
//! Seeded and the same on every machine; `BEAMPORT_SEED` and `BEAMPORT_ROUNDS` ask for others and more.
#![allow(missing_docs)]

use beamport_udp::fuzz::Fuzz;
use serde_json::Value;
use testkit::Dice;

/// Inputs of a test, and of a soak.
const ROUNDS: u64 = 1_000_000;
const SOAK: u64 = 100_000_000;

/// Memory that the allocator may keep, pages of 4 KiB.
const SLACK: u64 = 4096;

fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default,
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// Datagrams that plain Python made, with the number of their framing.
fn vectors() -> Vec<(usize, Vec<u8>)> {
    let read = |name: &str| -> Vec<Value> {
        let path = format!("{}/../../tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    let place = |name: &str| ["beamport", "ess", "geb", "hadaq", "raw"].iter().position(|known| *known == name);
    let bytes = |one: &Value| unhex(one["hex"].as_str().unwrap());
    let mut all: Vec<_> = read("datagrams.json").iter().map(|one| (0, bytes(one))).collect();
    all.extend(read("framings.json").iter().map(|one| (place(one["framing"].as_str().unwrap()).unwrap(), bytes(one))));
    all
}

/// Changes bytes as hurts parsers: single ones, lengths, both ends.
fn change(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..dice.below(5) {
        if bytes.is_empty() {
            return;
        }
        // Headers are at the beginning.
        let end = if dice.one_in(2) { bytes.len().min(40) } else { bytes.len() };
        let at = dice.below(end as u64) as usize;
        match dice.below(6) {
            0 => bytes[at] = dice.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            1 => bytes[at] ^= 1 << dice.below(8),
            2 => bytes[at] = dice.word() as u8,
            3 => bytes.truncate(at),
            4 => bytes.resize(bytes.len() + dice.below(40) as usize, dice.word() as u8),
            _ => {
                let word = dice.pick(&[0_u32, 7, 15, 16, 31, 32, 0x7fff_ffff, 0x8000_0000, u32::MAX, u32::MAX - 7]);
                let at = at / 4 * 4;
                let room = (bytes.len() - at).min(4);
                bytes[at..at + room].copy_from_slice(&word.to_le_bytes()[..room]);
            }
        }
    }
}

/// Resident memory, pages.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn search(rounds: u64) {
    let seed = from_environment("BEAMPORT_SEED", 1);
    let rounds = from_environment("BEAMPORT_ROUNDS", rounds);
    let (vectors, mut dice, mut all) = (vectors(), Dice::new(seed), Fuzz::default());
    let mut bytes = Vec::new();
    let mut before = 0;
    for round in 0..rounds {
        let (which, vector) = &vectors[dice.below(vectors.len() as u64) as usize];
        bytes.clear();
        bytes.extend_from_slice(vector);
        change(&mut dice, &mut bytes);
        match dice.below(8) {
            0 => all.block(&bytes),
            1 => {
                let which = dice.below(all.framings() as u64) as usize;
                all.datagram(which, &bytes);
            }
            _ => all.datagram(*which, &bytes),
        }
        if round == rounds / 10 {
            before = resident();
        }
    }
    let after = resident();
    // Of each framing many are good: the search reaches what is behind the first checks.
    assert!(all.cut.iter().all(|cut| cut * 200 > rounds), "seed {seed}: {:?}", all.cut);
    println!("{rounds} inputs injected, seed {seed}: {:?} cut by framing, {before} to {after} pages", all.cut);
    assert!(after < before + SLACK, "seed {seed}: memory grew from {before} to {after} pages");
}

#[test]
fn any_bytes_are_messages_or_refused() {
    search(ROUNDS);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_any_bytes_are_messages_or_refused() {
    search(SOAK);
}
