//! Files of a stream that somebody made up: seeded, on the stable toolchain. The long search is `cargo xtask fuzz stream`.

use std::path::PathBuf;

/// splitmix64: the same numbers everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        beamport_store::splitmix64(&mut self.0)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

const LINES: [&str; 12] = [
    "beamport-stream 1",
    "uuid 000102030405060708090a0b0c0d0e0f",
    "name hostile",
    "level disk",
    "level memory",
    "clock epoch",
    "index_entries 1024",
    "segment_bytes 65536",
    "created 1",
    "boot 00000000000000000000000000000000",
    "epoch 1 0",
    "epoch 2 3",
];
const WORDS: [&str; 8] = [
    "18446744073709551615",
    "0",
    "-1",
    "1",
    "index_entries 18446744073709551615",
    "segment_bytes 0",
    "epoch 4294967295 18446744073709551615",
    "\0",
];

/// A few entries that hold, one after another, with small and then wild values.
fn entries(dice: &mut Dice, wild: bool) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = 0_u32;
    for number in 0..dice.below(12) {
        let mut entry = [0_u8; 64];
        let length = dice.below(40) as u32;
        entry[0..8].copy_from_slice(&dice.next().to_le_bytes());
        entry[16..24].copy_from_slice(&number.to_le_bytes());
        entry[36..40].copy_from_slice(b"f144");
        entry[44..48].copy_from_slice(&(at / 8).to_le_bytes());
        entry[48..52].copy_from_slice(&length.to_le_bytes());
        at = (at + length).next_multiple_of(8);
        // Odd: the checksums are made to hold.
        entry[63] = 1;
        if wild {
            for _ in 0..dice.below(3) {
                entry[dice.below(63) as usize] = dice.next() as u8;
            }
        }
        all.extend(entry);
    }
    all
}

fn hostile(dice: &mut Dice) -> Vec<u8> {
    let mut header = String::new();
    if dice.below(3) == 0 {
        for line in LINES {
            match dice.below(12) {
                0 => {}
                1 => header += WORDS[dice.below(8) as usize],
                2 => {
                    let (key, _) = line.split_once(' ').unwrap_or((line, ""));
                    header += &format!("{key} {}", WORDS[dice.below(8) as usize]);
                }
                _ => header += line,
            }
            header.push('\n');
        }
    }
    let origins = if dice.below(2) == 0 { "c1d04330 a\n".into() } else { format!("{:08x} b\n\0\n", dice.next()) };
    let mut bytes = Vec::new();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend((origins.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(origins.as_bytes());
    for _ in 0..2 {
        let mut record = [0_u8; 64];
        record[0] = dice.next() as u8;
        for place in [8, 16, 24, 28, 32, 40, 44] {
            record[place] = dice.below(9) as u8;
        }
        if dice.below(4) == 0 {
            record[9] = dice.next() as u8;
            record[33] = dice.next() as u8;
        }
        bytes.extend(record);
    }
    let wild = dice.below(2) == 0;
    let index = entries(dice, wild);
    let payload: Vec<u8> = (0..index.len() + 63).map(|_| dice.next() as u8).collect();
    bytes.extend(index);
    bytes.extend(payload);
    bytes
}

#[test]
fn hostile_files_of_a_stream_are_refused_or_read() {
    let folder = PathBuf::from(format!("/dev/shm/beamport-hostile-{}", std::process::id()));
    let mut dice = Dice(7);
    for _ in 0..150 {
        let bytes = hostile(&mut dice);
        beamport_store::fuzz::fuzz(&bytes, &folder);
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Real streams with a few of their files changed: pins, control pages and tables of parents among them.
fn damages(cases: u64) {
    let folder = PathBuf::from(format!("/dev/shm/beamport-damaged-{}-{cases}", std::process::id()));
    let mut sum = [0_u64; 4];
    let one = std::env::var("BEAMPORT_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..cases, |seed| seed..seed + 1) {
        let mut dice = Dice(seed);
        let changes = if dice.below(3) == 0 { 1 + dice.below(8) } else { 1 };
        let bytes: Vec<u8> = (0..1 + 6 * changes).map(|_| dice.next() as u8).collect();
        let seen = std::panic::catch_unwind(|| beamport_store::fuzz::damaged(&bytes, &folder));
        let seen = seen.unwrap_or_else(|_| panic!("BEAMPORT_SEED={seed} repeats it"));
        let counts = [seen.changes, seen.shown, seen.refused, seen.opened];
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let _ = std::fs::remove_dir_all(folder);
    let [changes, shown, refused, opened] = sum;
    println!(
        "files of streams at rest and after a kill, damaged: {changes} changes injected into {cases} cases of 3 streams, \
         {shown} messages shown, 0 wrong, {refused} refused with a name, {opened} taken up again"
    );
    assert!(one.is_some() || (changes > cases / 2 && opened > cases), "{sum:?}");
}

#[test]
fn damaged_files_show_no_wrong_message_and_stop_nobody() {
    damages(120);
}

#[test]
#[ignore = "minutes"]
fn soak_damaged_files() {
    damages(4_000);
}
