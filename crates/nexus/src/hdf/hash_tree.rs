//! The BLAKE3 of a file, made while it is written.
//!
//! BLAKE3 is the root of a tree: each aligned piece of 2^n KiB has a value that depends on its bytes and its place
//! only, and two neighbours make that of both. So a writer of whole pages computes their values while it has them in
//! memory, in whatever order they come; at the end only pages without a value are read back ([`root`]): those of
//! metadata, and those that an earlier process wrote. The root is what `b3sum FILE` prints.
//!
//! Constraint: a value is kept only while it is certain to be that of the file. Every write to the file goes through
//! [`Handles`](crate::hdf::lanes::Handles): it forgets the values of all pages that it touches before it begins
//! ([`Tree::begin`]), and of two simultaneous writes to one page neither leaves a value of any of its pages. A page
//! that was never written, or never as a whole, has no value.
//!
//! Values are joined up to [`BLOCK_BYTES`]: a page that is written again costs at most as much to read again, and a file
//! of 1 TB takes some 70 MB of memory.

use crate::hdf::pages::{PAGE, Pages};
use crate::limits::{DIRECT_READ_BYTES_MIN, HASH_BYTES};
use blake3::hazmat::{self, ChainingValue, HasherExt, Mode};
use blake3::{Hash, Hasher};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::sync_channel;

const PAGE_BYTES: u64 = PAGE as u64;
/// Level of the largest pieces with a value of their own; those of level 0 are pages.
const TOP: u32 = 8;
/// Bytes of such a piece.
const BLOCK_BYTES: u64 = PAGE_BYTES << TOP;

/// The value of a piece of `1 << level` pages that begins at a multiple of as many.
#[derive(Clone, Copy, Debug)]
struct Node {
    level: u32,
    value: ChainingValue,
}

/// Values of whole pages, in no order.
#[derive(Default)]
pub(crate) struct Values(Vec<(u64, Node)>);

impl Values {
    /// Those of the whole pages of bytes that lie in the file at `at`.
    pub(crate) fn of(at: u64, bytes: &[u8]) -> Self {
        let mut values = Self::default();
        values.add(at, bytes);
        values
    }

    /// And those of these.
    pub(crate) fn add(&mut self, at: u64, bytes: &[u8]) {
        let (mut page, end) = (at.div_ceil(PAGE_BYTES), (at + bytes.len() as u64) / PAGE_BYTES);
        while page < end {
            // The largest piece that begins here and fits.
            let level = page.trailing_zeros().min((end - page).ilog2()).min(TOP);
            let first = (page * PAGE_BYTES - at) as usize;
            let piece = &bytes[first..first + (PAGE << level)];
            self.0.push((page, Node { level, value: value_of(page * PAGE_BYTES, piece) }));
            page += 1 << level;
        }
    }
}

/// A write that is under way.
#[derive(Debug)]
pub(crate) struct Ticket(u64);

struct UnderWay {
    ticket: u64,
    pages: Range<u64>,
    /// No other touched one of its pages meanwhile.
    alone: bool,
}

/// The known part of the tree of a file. An empty one is right for any file.
#[derive(Default)]
pub(crate) struct Tree {
    /// By first page; none overlaps another.
    known: BTreeMap<u64, Node>,
    under_way: Vec<UnderWay>,
    tickets: u64,
}

impl Tree {
    /// Before bytes are written at `at`: whatever becomes of it, what was known of their pages is known no more.
    pub(crate) fn begin(&mut self, at: u64, bytes: usize) -> Ticket {
        let pages = at / PAGE_BYTES..(at + bytes as u64).div_ceil(PAGE_BYTES);
        let from = pages.start >> TOP << TOP;
        let touched = self.known.range(from..pages.end).filter(|(page, node)| *page + (1 << node.level) > pages.start);
        let touched: Vec<u64> = touched.map(|(page, _)| *page).collect();
        for page in touched {
            self.known.remove(&page);
        }
        let mut alone = true;
        for other in &mut self.under_way {
            if other.pages.start < pages.end && pages.start < other.pages.end {
                (other.alone, alone) = (false, false);
            }
        }
        self.tickets += 1;
        self.under_way.push(UnderWay { ticket: self.tickets, pages, alone });
        Ticket(self.tickets)
    }

    /// After that: the values of its pages, where the write was done; none where it is not known what the file has.
    pub(crate) fn end(&mut self, ticket: &Ticket, values: Values) {
        let Some(at) = self.under_way.iter().position(|one| one.ticket == ticket.0) else { return };
        if self.under_way.swap_remove(at).alone {
            values.0.into_iter().for_each(|(page, node)| self.add(page, node));
        }
    }

    fn add(&mut self, mut page: u64, mut node: Node) {
        while node.level < TOP {
            let beside = page ^ (1 << node.level);
            let Some(other) = self.known.get(&beside).filter(|other| other.level == node.level) else { break };
            let (left, right) = if beside < page { (other, &node) } else { (&node, other) };
            node.value = hazmat::merge_subtrees_non_root(&left.value, &right.value, Mode::Hash);
            self.known.remove(&beside);
            page = page.min(beside);
            node.level += 1;
        }
        self.known.insert(page, node);
    }

    /// Bytes that [`root`] would read of a file of that length.
    #[cfg(test)]
    pub(crate) fn missing_bytes(&self, length: u64) -> u64 {
        let last = length.saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
        length - last + self.missing(last).iter().map(|piece| piece.end - piece.start).sum::<u64>()
    }

    /// Pieces below `end`, a multiple of [`BLOCK_BYTES`], of which nothing is known: each as long as is read at a time.
    fn missing(&self, end: u64) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = 0;
        let whole = Node { level: 0, value: [0; 32] };
        for (page, node) in self.known.iter().chain([(&(end / PAGE_BYTES), &whole)]) {
            let next = (page * PAGE_BYTES).min(end);
            while at < next {
                let until = next.min((at + 1).next_multiple_of(HASH_BYTES as u64));
                missing.push(at..until);
                at = until;
            }
            at = at.max((page + (1 << node.level)) * PAGE_BYTES);
        }
        missing
    }
}

/// Bytes and BLAKE3 of a file that nobody writes now, of which the tree is known.
pub(crate) fn root(path: &Path, mut tree: Tree) -> Result<(u64, Hash), Error> {
    let cached = File::open(path)?;
    let length = cached.metadata()?.len();
    if length <= BLOCK_BYTES {
        let mut bytes = vec![0; length as usize];
        cached.read_exact_at(&mut bytes, 0)?;
        return Ok((length, blake3::hash(&bytes)));
    }
    // The last block may end in a page that is not whole, and is read in any case.
    let last = (length - 1) / BLOCK_BYTES * BLOCK_BYTES;
    let mut pieces = tree.missing(last);
    pieces.push(last..length);
    let mut end = None;
    read_all(path, &cached, pieces, |at, bytes| {
        if at == last {
            end = Some(value_of(at, bytes));
        } else {
            Values::of(at, bytes).0.into_iter().for_each(|(page, node)| tree.add(page, node));
        }
    })?;
    let whole = tree.known.range(..last / PAGE_BYTES).map(|(_, node)| node.value);
    let blocks: Vec<ChainingValue> = whole.chain(end).collect();
    if blocks.len() as u64 != length.div_ceil(BLOCK_BYTES) {
        return Err(Error::other("its hash is incomplete"));
    }
    let (left, right) = blocks.split_at((hazmat::left_subtree_len(length) / BLOCK_BYTES) as usize);
    let (left, right) = (joined(left), joined(right));
    Ok((length, hazmat::merge_subtrees_root(&left, &right, Mode::Hash)))
}

/// The value of a piece; of the last of a file also where it is shorter than its place would allow.
fn value_of(at: u64, bytes: &[u8]) -> ChainingValue {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(at);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The value of blocks side by side, one or more, of which only the last may be short: on the left are as many as a power
/// of two can be.
fn joined(blocks: &[ChainingValue]) -> ChainingValue {
    match blocks {
        [one] => *one,
        many => {
            let (left, right) = many.split_at(many.len().div_ceil(2).next_power_of_two());
            hazmat::merge_subtrees_non_root(&joined(left), &joined(right), Mode::Hash)
        }
    }
}

/// Reads pieces, each at most [`HASH_BYTES`], and gives them to `take`: the next is read meanwhile.
fn read_all(
    path: &Path,
    cached: &File,
    pieces: Vec<Range<u64>>,
    mut take: impl FnMut(u64, &[u8]),
) -> Result<(), Error> {
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok();
    let (to_fill, empty) = sync_channel::<Pages>(2);
    let (to_take, full) = sync_channel::<Result<(u64, Pages), Error>>(2);
    for _ in 0..2 {
        // There is a place for each.
        let _ = to_fill.send(Pages::default());
    }
    std::thread::scope(|threads| {
        threads.spawn(move || {
            for (piece, mut pages) in pieces.into_iter().zip(empty) {
                let read = read_piece(cached, direct.as_ref(), &piece, &mut pages);
                let failed = read.is_err();
                if to_take.send(read.map(|()| (piece.start, pages))).is_err() || failed {
                    return;
                }
            }
        });
        for piece in full {
            let (at, pages) = piece?;
            take(at, pages.bytes());
            // Nobody fills it after the end.
            let _ = to_fill.send(pages);
        }
        Ok(())
    })
}

/// Large pieces are read past the page cache, which does not hold them, where the file system can.
fn read_piece(cached: &File, direct: Option<&File>, piece: &Range<u64>, pages: &mut Pages) -> Result<(), Error> {
    let bytes = (piece.end - piece.start) as usize;
    let mut direct = direct.filter(|_| bytes >= DIRECT_READ_BYTES_MIN);
    pages.resize(bytes.next_multiple_of(PAGE));
    let mut done = 0;
    while done < bytes {
        match direct.unwrap_or(cached).read_at(&mut pages.bytes_mut()[done..], piece.start + done as u64) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => done += read,
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) if direct.is_some() && e.raw_os_error() == Some(libc::EINVAL) => direct = None,
            Err(e) => return Err(e),
        }
    }
    pages.resize(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Written {
        path: std::path::PathBuf,
        bytes: Vec<u8>,
        tree: Tree,
    }

    impl Written {
        fn new(name: &str, length: usize) -> Self {
            let path = std::env::temp_dir().join(format!("beamport-tree-{name}-{}", std::process::id()));
            let mut next = 1_u32;
            let any = |_| {
                next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (next >> 24) as u8
            };
            Self { path, bytes: (0..length).map(any).collect(), tree: Tree::default() }
        }

        /// As a write that puts these bytes there.
        fn note(&mut self, range: Range<usize>) {
            let at = range.start as u64;
            let ticket = self.tree.begin(at, range.len());
            self.tree.end(&ticket, Values::of(at, &self.bytes[range]));
        }

        fn check(self) {
            std::fs::write(&self.path, &self.bytes).unwrap();
            let (length, hash) = root(&self.path, self.tree).unwrap();
            std::fs::remove_file(&self.path).unwrap();
            assert_eq!((length, hash), (self.bytes.len() as u64, blake3::hash(&self.bytes)));
        }
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn nothing_known_is_read_whatever_the_length() {
        for length in [
            0,
            1,
            1024,
            1025,
            4096,
            5000,
            MIB - 1,
            MIB,
            MIB + 1,
            2 * MIB,
            3 * MIB,
            3 * MIB + 17,
            4 * MIB,
            5 * MIB - 1,
            7 * MIB + 4096,
            9 * MIB + 1,
        ] {
            Written::new(&format!("scratch-{length}"), length).check();
        }
    }

    #[test]
    fn what_was_known_is_the_same_as_what_is_read() {
        let mut file = Written::new("known", 6 * MIB + 100);
        // Out of order, across blocks, on no page, and not all of it.
        for range in [
            (3 * MIB + 8192)..(5 * MIB),
            0..4096,
            4096..(2 * MIB + 4096),
            (2 * MIB + 5000)..(3 * MIB),
            (5 * MIB)..(6 * MIB + 100),
        ] {
            file.note(range);
        }
        assert!(file.tree.known.len() > 4);
        file.check();
    }

    #[test]
    fn known_blocks_are_not_read() {
        let mut file = Written::new("unread", 3 * MIB + 5);
        file.note(0..3 * MIB);
        assert_eq!(file.tree.missing(3 * MIB as u64), []);
        // Of the file only the last block is looked at.
        let hash = blake3::hash(&file.bytes);
        std::fs::write(&file.path, [vec![0; 3 * MIB], file.bytes[3 * MIB..].to_vec()].concat()).unwrap();
        assert_eq!(root(&file.path, file.tree).unwrap(), (3 * MIB as u64 + 5, hash));
        std::fs::remove_file(&file.path).unwrap();
    }

    #[test]
    fn a_byte_written_later_makes_its_page_unknown() {
        let mut file = Written::new("again", 4 * MIB);
        file.note(0..4 * MIB);
        for at in [0, MIB + 4095, 3 * MIB - 1, 3 * MIB] {
            file.bytes[at] ^= 1;
            let ticket = file.tree.begin(at as u64, 1);
            file.tree.end(&ticket, Values::default());
        }
        file.check();
    }

    #[test]
    fn of_two_writes_to_a_page_at_once_neither_is_believed() {
        let mut file = Written::new("at-once", 2 * MIB);
        let first = file.tree.begin(0, MIB);
        let second = file.tree.begin(MIB as u64 - 1, MIB);
        // They hold other bytes than what the file has in the end.
        file.tree.end(&first, Values::of(0, &vec![1; MIB]));
        file.tree.end(&second, Values::of(MIB as u64 - 1, &vec![2; MIB]));
        assert!(file.tree.known.is_empty());
        file.note(0..MIB);
        file.check();
    }

    #[test]
    fn what_was_cut_off_does_not_count() {
        let mut file = Written::new("cut", 5 * MIB);
        file.note(0..5 * MIB);
        file.bytes.truncate(2 * MIB + 8192 + 3);
        file.check();
    }
}
