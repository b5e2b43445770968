//! Blocks from another host that somebody made up, or that changed on their way: seeded, on the stable toolchain. The
//! long search is `cargo xtask fuzz block`.

use beamport_store::fuzz::{BlockSeen, block};
use beamport_store::limits::{BLOCK_HEAD_BYTES, BLOCK_VERSION};
use beamport_store::{Block, ENTRY_BYTES};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use testkit::Dice;

thread_local! {
    /// Bytes that this thread has allocated.
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
struct Counting;

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|sum| sum.set(sum.get() + layout.size()));
        // SAFETY: the caller vouches for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn noise(dice: &mut Dice, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|_| dice.word() as u8).collect()
}

/// Bytes that look like a block: a head with small numbers or wild ones, entries and names of the same kind.
fn plausible(dice: &mut Dice) -> Vec<u8> {
    let is_wild = dice.one_in(3);
    let count = dice.below(6);
    let payloads = dice.below(20) * 8;
    let mut names = Vec::new();
    for _ in 0..dice.below(count + 2) {
        let len = if dice.one_in(20) { dice.below(70_000) } else { dice.below(12) };
        names.extend((len as u16).to_le_bytes());
        names.extend((0..len.min(12)).map(|_| b'a' + dice.below(26) as u8));
    }
    let mut bytes = vec![0; BLOCK_HEAD_BYTES];
    bytes[..4].copy_from_slice(b"BBLK");
    bytes[4..6].copy_from_slice(&BLOCK_VERSION.to_le_bytes());
    bytes[8..28].copy_from_slice(&noise(dice, 20));
    bytes[28..32].copy_from_slice(&(count as u32).to_le_bytes());
    let first = if is_wild { dice.word() } else { dice.below(1000) };
    bytes[32..40].copy_from_slice(&first.to_le_bytes());
    bytes[40..48].copy_from_slice(&dice.below(first.saturating_add(2)).to_le_bytes());
    bytes[56..60].copy_from_slice(&(names.len() as u32).to_le_bytes());
    bytes.extend(noise(dice, payloads));
    for _ in 0..count {
        let mut entry = noise(dice, ENTRY_BYTES as u64);
        if !is_wild {
            entry[32..36].copy_from_slice(&(dice.below(3) as u32).to_le_bytes());
            entry[44..48].copy_from_slice(&(dice.below(22) as u32).to_le_bytes());
            entry[48..52].copy_from_slice(&(dice.below(60) as u32).to_le_bytes());
            entry[58..60].fill(0);
        }
        bytes.extend(entry);
    }
    bytes.extend(names);
    if dice.one_in(4) {
        let place = dice.below(bytes.len() as u64) as usize;
        bytes[place] = dice.word() as u8;
    }
    bytes
}

/// A case of [`block`].
fn case(dice: &mut Dice) -> Vec<u8> {
    let kind = dice.below(8);
    match kind {
        0 => [vec![0], noise(dice, dice.clone().below(300))].concat(),
        1..=3 => [vec![kind as u8 - 1], plausible(dice)].concat(),
        _ => {
            let changes = if dice.one_in(3) { 1 + dice.below(8) } else { 1 };
            [vec![3], noise(dice, 1 + changes * 4)].concat()
        }
    }
}

fn hostile(cases: u64) {
    let one = std::env::var("BEAMPORT_SEED").ok().and_then(|seed| seed.parse().ok());
    let (mut changed, mut read, mut shown, mut missing) = (0_u64, 0_u64, 0, 0);
    for seed in one.map_or(0..cases, |seed| seed..seed + 1) {
        let bytes = case(&mut Dice::new(seed));
        let seen = std::panic::catch_unwind(|| block(&bytes));
        let seen: BlockSeen = seen.unwrap_or_else(|_| panic!("BEAMPORT_SEED={seed} repeats it: {bytes:02x?}"));
        changed += u64::from(seen.is_changed);
        read += u64::from(seen.is_read);
        (shown, missing) = (shown + seen.shown as u64, missing + seen.missing as u64);
    }
    println!(
        "blocks: {cases} hostile ones injected, {changed} of them valid ones with changes; {read} had a head that \
         verifies, {shown} messages shown, 0 wrong, {missing} missing"
    );
    let is_search = changed > cases / 4 && read > cases / 4 && shown > cases / 4 && missing > cases / 10;
    assert!(one.is_some() || is_search, "{changed} {read} {shown} {missing}");
}

#[test]
fn hostile_blocks_show_no_wrong_message() {
    hostile(100_000);
}

#[test]
#[ignore = "minutes"]
fn soak_hostile_blocks() {
    hostile(10_000_000);
}

#[test]
fn no_value_of_a_single_byte_shows_a_wrong_message() {
    // The block of three messages has fewer bytes than that.
    for place in 0..400_u16 {
        let [low, high] = place.to_le_bytes();
        let is_same = (0..=255).filter(|with| !block(&[3, 2, low, high, 4, *with]).is_changed).count();
        // One value is that of the valid block.
        assert_eq!(is_same, 1, "byte {place}");
    }
}

#[test]
fn a_block_that_lies_about_its_size_costs_no_memory() {
    let seal = |bytes: &mut Vec<u8>| {
        let names = u32::from_le_bytes([bytes[56], bytes[57], bytes[58], bytes[59]]) as usize;
        let at = bytes.len() - names;
        let sum = beamport_store::crc32c(&[&bytes[..60], &bytes[at..]].concat());
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    };
    // A megabyte of names without a byte, in a block of one message.
    let mut names = vec![0; BLOCK_HEAD_BYTES + ENTRY_BYTES + (1 << 20)];
    names[..4].copy_from_slice(b"BBLK");
    names[4..6].copy_from_slice(&BLOCK_VERSION.to_le_bytes());
    names[28] = 1;
    names[56..60].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    seal(&mut names);
    // Numbers of messages and bytes that are not there.
    let mut counts = names.clone();
    counts[28..32].fill(0xff);
    let mut bytes = names.clone();
    bytes[56..60].fill(0xff);
    for (block, error) in [
        (&names, "it has more origins than messages"),
        (&counts, "it is shorter than its head says"),
        (&bytes, "it is shorter than its head says"),
    ] {
        let before = ALLOCATED.get();
        let read = Block::read(block).map(|block| block.len());
        let allocated = ALLOCATED.get() - before;
        assert_eq!(read.unwrap_err(), error);
        assert!(allocated < 1000, "{allocated} bytes for {error}");
    }
}
