//! Buffers that mean harm: no panic, no unbounded work, always an error or a message.
//!
//! Seeded and the same on every machine; `BEAMPORT_SEED` and `BEAMPORT_ROUNDS` ask for others and more.

use std::path::Path;

use beamport_wire::limits::{LIST_LENGTH_MAX, MESSAGE_BYTES_MIN};
use beamport_wire::{Error, KNOWN, da00, ev44, fuzz::fuzz, read, schema_id};

/// Buffers made from each schema's vectors.
const ROUNDS: u64 = 20_000;

/// Marsaglia's xorshift64*: small, seeded, good enough to choose bytes.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() % end.max(1) as u64) as usize
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")),
        Err(_) => default,
    }
}

#[expect(clippy::disallowed_methods, reason = "vectors are files; the crate itself reads none")]
fn vectors() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for folder in ["../../tests/vectors/wire", "../../tests/vectors/wire/ours"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut paths: Vec<_> = std::fs::read_dir(folder)
            .expect("the vectors are in the repository")
            .map(|entry| entry.expect("a readable folder").path())
            .filter(|path| path.extension().is_some_and(|end| end == "bin"))
            .collect();
        paths.sort(); // the same order everywhere, or a seed means nothing
        all.extend(paths.iter().map(|path| std::fs::read(path).expect("a file")));
    }
    all
}

/// One to eight changes of the kinds that hurt parsers.
fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..1 + dice.below(8) {
        let length = bytes.len();
        if length < 16 {
            return;
        }
        // The identifier stays, or most rounds would end there.
        let at = if dice.below(10) == 0 { dice.below(4) } else { 8 + dice.below(length - 8) };
        // Lengths and offsets stand on multiples of four.
        let word = (at & !3).min(length - 4);
        let mut put = |value: u32| bytes[word..word + 4].copy_from_slice(&value.to_le_bytes());
        match dice.below(10) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = dice.roll() as u8,
            2 => put([u32::MAX, i32::MAX as u32, 1 << 31, 0x7FFF_FFF8, 0x4000_0000, 0][dice.below(6)]),
            3 => put(dice.below(2 * length) as u32),
            // An offset that points before, at or just after itself.
            4 => put((dice.below(9) as u32).wrapping_sub(4)),
            // A length or offset that is nearly right.
            5 => put((length - word) as u32 - dice.below(9).min(length - word) as u32),
            6 => bytes.truncate(at.max(8)),
            7 => {
                let half = (at & !1).min(length - 2);
                bytes[half..half + 2].copy_from_slice(&(dice.roll() as u16).to_le_bytes());
            }
            // A piece of the buffer over another one: tables within tables.
            8 => {
                let piece = 1 + dice.below((length - 8).min(64));
                let from = dice.below(length - piece + 1);
                let to = 8 + dice.below(length - 8 - piece + 1);
                bytes.copy_within(from..from + piece, to);
            }
            _ => bytes.extend_from_slice(&dice.roll().to_le_bytes()),
        }
    }
}

/// So many mutated messages of every schema; says how many were still accepted.
fn mutated(rounds: u64) {
    let seed = from_environment("BEAMPORT_SEED", 1);
    let all = vectors();
    let (mut accepted_of_all, mut refused_of_all) = (0, 0);
    for id in KNOWN {
        let vectors: Vec<_> = all.iter().filter(|bytes| schema_id(bytes) == Some(id)).collect();
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(u32::from_le_bytes(id)));
        let (mut accepted, mut refused) = (0, 0);
        let mut buffer = Vec::new();
        for round in 0..rounds {
            buffer.clear();
            buffer.extend_from_slice(vectors[dice.below(vectors.len())]);
            mutate(&mut dice, &mut buffer);
            let outcome = std::panic::catch_unwind(|| fuzz(&buffer));
            assert!(outcome.is_ok(), "seed {seed}, {}, round {round}: {buffer:02x?}", id.escape_ascii());
            match read(&buffer) {
                Ok(_) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
        eprintln!("{}: {accepted} accepted, {refused} refused", id.escape_ascii());
        // Changes that nothing notices, and changes that are: both must happen, or this tests nothing.
        assert!(accepted > rounds / 100 && refused > rounds / 10, "{}", id.escape_ascii());
        accepted_of_all += accepted;
        refused_of_all += refused;
    }
    println!(
        "mutated messages: {rounds} injected of each of {} schemas, {accepted_of_all} read, {refused_of_all} refused \
         with a name, 0 panics",
        KNOWN.len()
    );
}

#[test]
fn mutated_messages_of_every_schema_do_no_harm() {
    mutated(from_environment("BEAMPORT_ROUNDS", ROUNDS));
}

#[test]
#[ignore = "minutes"]
fn soak_a_million_mutated_messages_of_every_schema() {
    mutated(from_environment("BEAMPORT_ROUNDS", 1_000_000));
}

#[test]
fn every_prefix_of_every_message_is_an_error_or_a_message() {
    for bytes in vectors() {
        for end in 0..bytes.len() {
            fuzz(&bytes[..end]);
        }
        assert!(read(&bytes[..MESSAGE_BYTES_MIN - 1]).is_err());
    }
}

#[test]
fn noise_with_a_good_identifier_does_no_harm() {
    let mut dice = Dice(7);
    for round in 0..ROUNDS {
        let mut bytes: Vec<u8> = (0..8 + dice.below(256)).map(|_| dice.roll() as u8).collect();
        bytes[4..8].copy_from_slice(&KNOWN[round as usize % KNOWN.len()]);
        if dice.below(2) == 0 {
            bytes[..4].copy_from_slice(&(8 + dice.below(64) as u32).to_le_bytes());
        }
        fuzz(&bytes);
    }
}

/// A da00 whose vector of variables claims `count` entries, all pointing at one table with one huge text.
fn da00_of_one_table(count: u32, entries: usize, text: usize) -> Vec<u8> {
    let good = da00::Variable {
        name: &"n".repeat(text),
        unit: None,
        label: None,
        source: None,
        axes: (&[]).into(),
        shape: (&[1i64]).into(),
        data: (&[1.0f64]).into(),
    };
    let mut bytes = Vec::new();
    let variables = vec![good; 1];
    let parts = da00::Da00 { source_name: "m", timestamp: 0, data: (&variables).into() };
    da00::write(&mut bytes, &parts).expect("a good message");
    // A new vector of offsets before the message would need negative offsets, so a new root goes in front:
    // header, vtable, table, strings, vector; then the old message whose variable is pointed at.
    let mut out = Vec::new();
    out.extend_from_slice(&20u32.to_le_bytes());
    out.extend_from_slice(b"da00");
    for half in [10u16, 12, 4, 0, 8, 0] {
        out.extend_from_slice(&half.to_le_bytes()); // vtable at 8: bytes, table bytes, fields 0 1 2
    }
    out.extend_from_slice(&12i32.to_le_bytes()); // table at 20
    out.extend_from_slice(&8u32.to_le_bytes()); // source_name: at 24, points at 32
    out.extend_from_slice(&12u32.to_le_bytes()); // data: at 28, points at 40
    out.extend_from_slice(&[0; 8]); // an empty string at 32
    out.extend_from_slice(&count.to_le_bytes()); // vector at 40
    let first = out.len();
    let old = first + 4 * entries;
    let variable = old + variable_in(&bytes);
    for entry in 0..entries {
        out.extend_from_slice(&((variable - first - 4 * entry) as u32).to_le_bytes());
    }
    out.extend_from_slice(&bytes);
    out
}

/// Where the only variable of a da00 that we wrote lies.
fn variable_in(bytes: &[u8]) -> usize {
    let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside")) as usize;
    let half = |at: usize| u16::from_le_bytes(*bytes[at..].first_chunk().expect("inside")) as usize;
    let root = word(0);
    let vtable = root - word(root);
    let slot = root + half(vtable + 4 + 2 * 2);
    let first = slot + word(slot) + 4;
    first + word(first)
}

#[test]
fn one_table_referred_to_from_everywhere_is_refused() {
    let modest = da00_of_one_table(3, 3, 8);
    assert_eq!(read(&modest).map(|message| message.fields().len()), Ok(3), "sharing is allowed");
    // 60,000 variables, each of which would have 100 kB of text checked: 6 GB of work from 340 kB.
    let entangled = da00_of_one_table(60_000, 60_000, 100_000);
    // Only the number of variables: showing what a broken reader accepts here takes gigabytes.
    let found = da00::read(&entangled).map(|message| message.data.len());
    assert_eq!(found, Err(Error::Entangled));
}

#[test]
fn a_vector_that_claims_more_than_there_is_allocates_nothing() {
    for count in [4, 1000, LIST_LENGTH_MAX as u32] {
        assert!(da00::read(&da00_of_one_table(count, 3, 8)).is_err(), "{count}");
    }
    let claimed = LIST_LENGTH_MAX as u32 + 1;
    assert_eq!(
        da00::read(&da00_of_one_table(claimed, 3, 8)),
        Err(Error::TooMany { field: "data", count: claimed as usize })
    );
    assert_eq!(
        da00::read(&da00_of_one_table(u32::MAX, 3, 8)),
        Err(Error::TooMany { field: "data", count: u32::MAX as usize })
    );
}

#[test]
fn text_that_is_not_utf_8_is_named() {
    let mut out = Vec::new();
    let parts = ev44::Ev44 {
        source_name: "source",
        message_id: 0,
        reference_time: (&[]).into(),
        reference_time_index: (&[]).into(),
        time_of_flight: (&[]).into(),
        pixel_id: (&[]).into(),
    };
    ev44::write(&mut out, &parts).expect("written");
    let at = out.windows(6).position(|piece| piece == b"source").expect("the name");
    out[at] = 0xFF;
    assert_eq!(ev44::read(&out), Err(Error::NotText { field: "source_name" }));
}

#[test]
fn an_empty_buffer_and_a_foreign_one_are_named() {
    assert_eq!(read(&[]), Err(Error::TooShort { length: 0 }));
    assert_eq!(ev44::read(b"12345678"), Err(Error::TooShort { length: 8 }));
    assert_eq!(read(b"\0\0\0\0xyzw\0\0\0\0\0\0\0\0"), Err(Error::UnknownSchema { found: *b"xyzw" }));
    assert_eq!(schema_id(b"1234567"), None);
}
