//! Every limit of the store, each with its reason.

use std::time::Duration;

/// The version of the format. A reader accepts this and the one before; a writer makes this one of them.
pub const FORMAT: u32 = 2;
/// The oldest version that is read: a year of data stays.
pub(crate) const FORMAT_OLDEST: u32 = 1;
/// Bytes of one payload: offsets are 32 bits of 8 bytes, and a reader maps a message whole.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 30;
/// Largest ordinary payload segment: fresh pages of more than this stall the writer when they are first touched.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Smallest payload segment: sixteen pages, so that an idle stream costs no more.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Entries of one index segment: 4 MiB, twice the L2 of the machines we know.
pub const INDEX_ENTRIES_MAX: u64 = 1 << 16;
/// Entries of the smallest index segment: one time block.
pub const INDEX_ENTRIES_MIN: u64 = TIME_BLOCK;
/// Entries that share one (minimum, maximum) of source time: a search touches 16 B instead of 16 KiB.
pub const TIME_BLOCK: u64 = 256;
/// Bytes of the live place of a stream: below, the ring has no room to turn.
pub const LIVE_BYTES_MIN: u64 = 1 << 20;
/// Payloads from this size on start on 64 bytes (numpy, AVX-512); smaller ones are packed on 8.
pub const ALIGN_FROM: usize = 256;
/// Payloads whose checksum is known are written past the caches from this size on: the copy alone is what they cost,
/// and one into a cache fetches the lines first.
pub(crate) const PAST_CACHES_CHECKED: usize = 512;
/// Payloads from this size on are copied and checksummed in blocks that stay in L1.
pub const FUSE_BLOCK: usize = 8192;
/// Readers of one stream: a pins file of 64 KiB.
pub const READERS_MAX: usize = 255;
/// The same in format 1, whose writers look at no further places: 32 KiB.
pub(crate) const READERS_MAX_1: usize = 127;
/// Places of these that anonymous readers leave to readers with a name: sinks of a run, views and slots come at any time,
/// and an anonymous reader can read by copying instead.
pub const READERS_NAMED: usize = 32;
/// Segments that one reader may keep mapped at once: its place of 256 B lists them.
pub const PINNED_MAX: usize = 32;
/// Messages that one reader may keep whatever their size: the last one, the one it takes, and two to compare them with.
pub const KEPT_MIN: u64 = 4;
/// Bytes of a reader's name.
pub const READER_NAME_MAX: usize = 64;
/// Bytes of a stream's name: two names of 64 and what a book adds, and still a legal name of a folder.
pub const STREAM_NAME_MAX: usize = 160;
/// Rows of the origin table: a row costs a line read at open.
pub const ORIGINS_MAX: usize = 1 << 20;
/// Bytes of an origin's name.
pub const ORIGIN_NAME_MAX: usize = 1024;
/// A table of names: a million of ordinary ones. A reader loads the whole table.
pub const TABLE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the header file that we are ready to read.
pub const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Least step in which a segment file grows; it doubles from there.
pub const GROW_BYTES_MIN: u64 = 16 << 10;
/// Largest step in which a segment file grows: bounds the stall of one append.
pub const GROW_BYTES_MAX: u64 = 8 << 20;
/// Smallest pause between two group commits of a stream while no process waits for the mark.
pub const COMMIT_PAUSE: Duration = Duration::from_millis(50);
/// Pause behind a commit that failed.
pub const COMMIT_RETRY: Duration = Duration::from_millis(500);
/// Threads that commit the streams of one disk: while some wait for its flushes, another copies.
pub const COMMIT_THREADS_MAX: usize = 8;
/// A wall clock that differs by more from what it was and the time that passed was set, ns: NTP slews by less.
pub const CLOCK_STEP_NS: i64 = 1_000_000_000;
/// How long a wall clock that was set has to hold before retention follows it, ns: a wrong time server is replaced sooner.
pub const CLOCK_HOLDS_NS: i64 = 60_000_000_000;
/// Maps that a reader keeps of files that will be written again: a ring of 64 MiB segments of 4 GiB.
pub const READER_MAPS_MAX: usize = 96;
/// Rows of a view's table of parents: an entry has 16 bits for them, and 0 is none.
pub const PARENTS_MAX: usize = 65_535;
/// Lines `near` of a mirror's header: with the rest it stays below [`HEADER_BYTES_MAX`].
pub const NEAR_MAX: usize = 8192;
/// The sequence of the newest message of a near stream whose messages retention has taken from a mirror: no message has
/// it.
pub const NEAR_GONE: u64 = u64::MAX - 1;
/// Bytes of the head of a block: one line of a cache.
pub const BLOCK_HEAD_BYTES: usize = 64;
/// Changes of a valid block in one case of a search: more of them leave nothing to be reached.
pub(crate) const FUZZ_CHANGES_MAX: usize = 8;
/// Version of blocks; a reader refuses any other.
pub const BLOCK_VERSION: u16 = 1;
/// Messages of a block: their entries are a quarter of what Kafka takes as one record by default.
pub const BLOCK_MESSAGES_MAX: usize = 4096;
/// Views of views that are followed: each costs a look into another index for each message.
pub const VIEW_DEPTH_MAX: u32 = 4;
/// Places of damage that `verify` names: further ones are only counted.
pub const DAMAGE_NAMED_MAX: usize = 100;
/// Segments of one batch of a view: each is a map of up to 64 MiB, and a system has 65,530 maps for a process.
pub const BATCH_SEGMENTS_MAX: usize = 1024;
/// Longest look for a message without sleeping: some hundred times what a wake-up costs, and a processor is free again.
pub const SPIN_MAX: Duration = Duration::from_millis(2);
/// Looks at a mark between two looks at the clock: a microsecond or so.
pub const SPIN_LOOKS: u32 = 16;
/// Longest sleep of a watch's thread: its delay in noticing the successor of a killed writer.
pub const WATCH_LOOK: Duration = Duration::from_millis(250);
/// Payload segments of a memory stream from which on views of it are asked for room a segment early: no more than a
/// quarter of it is then empty.
pub const ASK_EARLY: usize = 4;
/// Messages of a tail that one thread proves in a row: what it reads twice where pieces meet is a tenth of small ones.
pub const TAIL_PIECE: u64 = 1 << 16;
/// Threads that prove a long tail: while one waits for the medium, another has work.
pub const TAIL_THREADS: usize = 4;
/// Reads of a medium before what it does not give is lost: one that fails once may give the bytes then.
pub const READ_TRIES: u32 = 3;
/// Bytes of a line that a child process prints: longer ones are broken. A line of a log is shorter.
pub const LINE_BYTES_MAX: u64 = 8192;
/// Lines of one child in a second: a traceback has tens, and a person reads fewer.
pub const LINES_MAX: u64 = 1000;
/// How long a process that ends waits for the last lines of its children: they are in the pipes already.
pub const PRINTED_PATIENCE: Duration = Duration::from_secs(1);
/// Where the locks of single bytes of a file begin, behind any file of ours: [`crate::Media::lock`] locks all below.
pub const LOCKS_FROM: u64 = 1 << 40;
/// Locked files of a process that its children close: a few for each stream, and one for each reader.
pub(crate) const LOCKED_MAX: usize = 1 << 14;
/// One write to the medium at most: from 4 MiB on, size no longer matters to its speed.
pub(crate) const WRITE_BYTES_MAX: usize = 4 << 20;
