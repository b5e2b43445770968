//! Every bound of this crate that is not one of a single algorithm, each with its reason.

use std::time::Duration;

/// Shared memory of a book on disk: a few messages a second.
pub const BOOK_LIVE_BYTES: u64 = 1 << 20;

/// What a book keeps in memory alone, where nothing should be discarded: 60,000 runs.
pub(crate) const BOOK_MEMORY_BYTES: u64 = 64 << 20;

/// What a book keeps in which only the newest record counts: a few of the largest.
pub(crate) const BOOK_NEWEST_BYTES: u64 = 1 << 20;

/// What a book keeps whose oldest records matter least, gaps of sources and commands: half a million.
pub const BOOK_HISTORY_BYTES: u64 = 64 << 20;

/// A source to which nothing has happened for so long closes its book, ns: an open one costs a thread and ten files.
pub(crate) const BOOK_IDLE: i64 = 60_000_000_000;

/// How long the disk may take for all that a book holds when it is opened.
pub(crate) const BOOK_PATIENCE: Duration = Duration::from_secs(10);

/// A worker that has published no statistics for so long, ns, does nothing: three of their pauses.
pub(crate) const STATISTICS_STALE_NS: i64 = 3_000_000_000;

/// A stream loses for so long after the number of its lost messages rose, ns: nobody looks all the time.
pub(crate) const LOSES_NS: i64 = 60_000_000_000;
/// Messages of alarms that one look reads of a stream, the newest of those that came.
pub(crate) const ALARMS_MAX: usize = 4096;

/// Pause between two ledgers of a stream, as a multiple of the time that the last one took: 5 % of the time at most.
pub(crate) const LEDGER_PAUSE: i64 = 20;

/// With less free on its disk the output of a slot may stand still for want of room: no message is blamed for it.
pub(crate) const SLOT_ROOM_BYTES: u64 = 64 << 20;

/// Slots of one worker: each takes two of the 255 places for readers of an input.
pub const SLOTS_MAX: u32 = 32;

/// Between two moments of the statistics of a worker, ns: often enough for people, seldom enough to cost nothing.
pub(crate) const STATISTICS_PAUSE: i64 = 1_000_000_000;

/// Numbers of an origin that may come late, counted down from its highest one. Networks and brokers reorder tens of
/// messages. Which of them are missing fits in 512 bytes for each reason, so every total can say it. A number
/// further below begins a new life of the origin: its device counts from the beginning again.
pub const REORDER_WINDOW: u64 = 4096;

/// Lives of one origin. A device that restarts each hour has them for six weeks; after that its numbers that fall are
/// duplicates, so that numbers in no order do not fill the origin table.
pub const LIVES_MAX: usize = 1000;

/// Reasons of loss of one origin, words of its source: one byte says which, and sources have a handful. The words
/// beyond are counted as `lost.other`.
pub(crate) const REASONS_MAX: usize = 64;

/// Gaps that a commit lists for one origin. More are joined: their numbers are counted, no longer listed.
pub(crate) const GAP_ROWS_MAX: usize = 64;

/// Times of silence that a commit lists. More are joined to the last one.
pub(crate) const SILENCES_MAX: usize = 64;

/// Totals in one commit: a message of about one MB for ordinary names.
pub(crate) const TOTALS_ROWS_MAX: usize = 10_000;

/// Bytes of totals in one commit, as far as they can be told before: a segment of the book.
pub(crate) const TOTALS_BYTES_MAX: u64 = 1 << 20;

/// A table of all totals is committed at least so often, ns, and with each index segment that is full.
pub(crate) const TABLE_PAUSE: i64 = 600_000_000_000;

/// Totals may take one byte for this number of bytes of their stream.
pub(crate) const TOTALS_SHARE: u64 = 100;

/// Rate that totals may always take, bytes/s.
pub(crate) const TOTALS_RATE: u64 = 1000;

/// Unused room for totals is kept up to this limit, bytes: a table of 10,000 origins after a quiet hour.
pub(crate) const TOTALS_CREDIT_MAX: i64 = 4 << 20;

/// The state of a source, and what it refused, are committed at most so often, ns: each is a message of the book.
pub(crate) const STATE_PAUSE: i64 = 1_000_000_000;

/// A reader may stand still for so long, ns, before a source that waits for it reports that: sinks restart, and
/// analyses think.
pub(crate) const HELD_PATIENCE: i64 = 5_000_000_000;

/// Ranges of missing numbers of one origin that the account of a run holds at once. Those below are counted, no longer
/// held: about 4 MB.
pub(crate) const HOLES_MAX: usize = 100_000;

/// Messages before a run that its account reads to find numbers that came out of order: as many as one block of an
/// index has, 4 MB.
pub(crate) const MARGIN: u64 = 65_536;

/// Ranges of missing numbers without a reason that the account of a run lists for an origin, the newest: the counts say
/// how many there are.
pub(crate) const UNEXPLAINED_MAX: usize = 1000;

/// Source time of the message of `hosts.accounts` that names the hosts; no run starts then.
pub(crate) const LAYOUT_TIME: i64 = i64::MIN;

/// Gaps in the account of a run that a host sends to the others, the first: the counts say how many messages they are.
pub(crate) const HOST_GAPS_MAX: usize = 10_000;

/// How long a source may rest whose messages are not marked, or whose commit found no room, ns: soon after the mark it
/// shall learn which messages are safe.
pub(crate) const UNMARKED_PAUSE: i64 = 20_000_000;

/// Streams of one live sink: each has a row in each commit, and a thread that waits for its messages.
pub(crate) const RELAY_INPUTS_MAX: usize = 1024;

/// Time between two commits of a live sink, ns: each is a message of the book and a look at all positions. Messages
/// that the outside has acknowledged meanwhile are sent again after a kill.
pub(crate) const RELAY_COMMIT_PAUSE: i64 = 100_000_000;

/// Pause before the mark of a live sink's commit is looked for again, ns: a disk takes some milliseconds.
pub(crate) const RELAY_MARK_PAUSE: i64 = 1_000_000;

/// Pause before a live sink's runner looks again whether there is room, ns: in the book, or at a sink that has not
/// named a time. 50 looks a second cost less than a thousandth of a processor.
pub(crate) const RELAY_ROOM_PAUSE: i64 = 20_000_000;

/// Messages offered to a live sink at once: what is done once a batch costs nothing then, and inputs take turns.
pub(crate) const RELAY_BATCH_MESSAGES: usize = 1024;

/// Ranges missing of one input that wait for an acknowledgement of earlier messages: 100 kB. At this number no more is
/// read.
pub(crate) const RELAY_LOST_MAX: usize = 1 << 12;

/// Messages of one input to set aside that wait for an acknowledgement of earlier ones: 2 MB. At this number no more is
/// read.
pub(crate) const RELAY_ASIDES_MAX: usize = 1 << 16;

/// Gaps that a commit of a live sink lists, 100 kB. Beyond it the counts alone say how many are missing.
pub(crate) const RELAY_GAPS_MAX: usize = 1000;

/// Bytes kept of the messages that a worker or a live sink could not handle: enough to find the cause.
pub(crate) const ASIDE_BYTES: u64 = 64 << 20;

/// Messages aside that are copied to be retried between two looks at slots.
pub(crate) const RETRY_STEP: usize = 256;

/// The same of what a source refused: a MiB at each of its starts, and as much of the starts before.
pub(crate) const SOURCE_ASIDE_BYTES: u64 = 4 << 20;

/// As much of that, in messages, as waits until its stream is open.
pub(crate) const STRAYS_MAX: usize = 256;

/// The same of messages that a worker on other hosts has set aside: those of a few blocks, which the carrier bounds.
pub(crate) const STRAYS_OF_WORKER_MAX: usize = 1 << 16;

/// A wall clock that differs by more from where it would be was set, ns: less may lie between two looks at it, and NTP
/// corrects up to 128 ms by its rate.
pub(crate) const CLOCK_SET: i64 = 100_000_000;

/// Pause between two looks at a stream in which the first member of a run is awaited, ns: each opens the stream.
pub(crate) const FOLLOW_PAUSE: i64 = 1_000_000_000;

/// Interval between two looks for a writer of an input that started anew, ns: each reads a header.
pub(crate) const WRITER_LOOK: i64 = 20_000_000;

/// Blocks of which the least lag behind the frontier counts, so that one message with a wrong time does not.
pub(crate) const LAG_BLOCKS: u32 = 16;
/// Most that the frontier of a live source is behind the clock of the machine while its book waits for the disk, ns.
pub(crate) const FRONTIER_BEHIND_MAX: i64 = 10_000_000_000;
/// Error of Linux that has no [`std::io::ErrorKind`]: the device failed.
pub(crate) const EIO: i32 = 5;
/// The same: the system has no more descriptors.
pub(crate) const ENFILE: i32 = 23;
/// The same: the process has no more descriptors.
pub(crate) const EMFILE: i32 = 24;

/// Steps of runs behind which the metadata of their instrument are written again.
pub(crate) const DESCRIBED_STEPS: u64 = 256;

/// Runs that a hint names.
pub(crate) const NAMED_RUNS: usize = 10;

/// Bytes of an answer of a running instrument: its status, with all streams and runs.
pub(crate) const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a block: Kafka's batches of a megabyte cost least, and its brokers take them by default.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Least time from a block to the next that is not full, ns: so long messages wait for others at most.
pub(crate) const BLOCK_LINGER: i64 = 5_000_000;

/// Bytes of the largest block, which has one message: brokers take requests of 100 MiB (`socket.request.max.bytes`),
/// and clients answers of 100 MB (`receive.message.max.bytes`).
pub const CARRIED_BYTES_MAX: usize = 64 << 20;

/// Bytes of blocks that brokers have not acknowledged: 25 ms of a link of 10 Gbit/s. Then messages stay in their
/// streams.
pub const UNDER_WAY_MAX: usize = 32 << 20;

/// Blocks whose memory is kept for the next: as many as are under way at once, because new memory costs as much as the
/// copy into it.
pub(crate) const SPARE_BLOCKS_MAX: usize = UNDER_WAY_MAX / BLOCK_BYTES + 1;

/// Pause between two blocks that bring the frontier alone, ns: merges on other hosts wait for it.
pub(crate) const BEAT_PAUSE: i64 = 250_000_000;

/// The same where the frontier stands still: they say that the host is there.
pub(crate) const BEAT_REST: i64 = 1_000_000_000;

/// How long nothing comes of a host before it counts as away, ns: five beats.
pub const AWAY_PATIENCE: i64 = 5_000_000_000;

/// Ends of holes that no message follows yet, which the state of a mirror keeps, one a near stream: 5 kB.
pub(crate) const KEPT_HOLES_MAX: usize = 64;

/// Bits of the mark of a block that hold the number of an input: there are [`RELAY_INPUTS_MAX`].
pub(crate) const MARK_INPUT_BITS: u32 = RELAY_INPUTS_MAX.ilog2();

/// Interval between two looks for streams of loose results, ns: most workers have none.
pub(crate) const LOOSE_LOOK: i64 = 200_000_000;

/// Groups that are not committed of which the first members are looked for, so that they are held: they come in nearly
/// the order of these.
pub(crate) const GROUPS_LOOK: u64 = 1024;

/// How long a block of code should take that saves its state with each answer, and the least time between two such
/// blocks, ns: a latency that people hardly notice, and at most 20 states a second.
pub(crate) const STATE_BLOCK_NS: u64 = 50_000_000;

/// The same for a byte of the state, ns: at most 50 MB/s of states, which is little beside a disk.
pub(crate) const STATE_NS_A_BYTE: u64 = 20;

/// Row of the origin of an entry that is of no message: what is made of it has the worker as its origin.
pub const OF_WORKER: u32 = u32::MAX;

/// Rest of a near side that has nothing to send, ns: messages and acknowledgements wake it.
pub(crate) const NEAR_REST: i64 = 1_000_000_000;
