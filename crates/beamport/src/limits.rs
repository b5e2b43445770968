//! Limits of the program, each with its reason.

use std::time::Duration;

/// Sections of one file. Each becomes a thread, a folder or a file; no machine runs more.
pub const SECTIONS_MAX: usize = 10_000;
/// Entries that all ranges in lists of one file stand for: each of the most sections may read ten streams.
pub const ENTRIES_MAX: usize = 10 * SECTIONS_MAX;
/// Bytes of a file name with its placeholders filled: 255 on Linux, less what a file in the making adds to its name.
pub const FILE_NAME_BYTES_MAX: usize = 200;
/// Bytes of a template. A structure of 700 MB is known from an instrument of 12 million pixels written out; templates here use `range`.
pub const TEMPLATE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a file of messages in JSON, which is held whole: ten million values. More is for a source.
pub const MESSAGES_BYTES_MAX: u64 = 1 << 30;
/// Smallest live end of a stream: two segments that hold the largest common message (124 kB) several times.
pub const LIVE_BYTES_MIN: u64 = 1 << 20;
/// Messages that the live end of a stream has room for, at least: one that is written while one is read.
pub const LIVE_MESSAGES_MIN: u64 = 2;
/// The same where nobody writes `live`, and in what `check` proposes: a reader may be two messages late.
pub const LIVE_MESSAGES: u64 = 4;
/// Largest live end of a stream: shared memory of the largest machines in use.
pub const LIVE_BYTES_MAX: u64 = 1 << 40;
/// Shortest flush of a file: each flush syncs the file and writes a commit, a few milliseconds on common disks.
pub const FLUSH_MIN: Duration = Duration::from_millis(10);
/// Longest time for which a sink holds messages of an open run: the stream keeps them meanwhile.
pub const HOLD_MAX: Duration = Duration::from_secs(60);
/// Shortest slice of a merge: each is a commit with a row for each input.
pub const SLICE_MIN: Duration = Duration::from_millis(1);
/// Longest slice of a merge: what is in one is sorted in memory.
pub const SLICE_MAX: Duration = Duration::from_secs(1);
/// Characters of the name of a merge: the name under which `NAME.aside` reads its inputs has 64 bytes.
pub const MERGE_NAME_CHARS_MAX: usize = 53;
/// The same where the output is a copy: what merges is `NAME.view`.
pub const COPY_NAME_CHARS_MAX: usize = MERGE_NAME_CHARS_MAX - ".view".len();
/// How long such a copy may take with one message.
pub const COPY_TIME_MAX: Duration = Duration::from_secs(30);
/// What is kept of the view of a merge that is copied: what is copied is of no more use.
pub const COPIED_VIEW_BYTES: u64 = 64 << 20;
/// Messages of one id: as many as a merge has inputs.
pub const PARTS_MAX: u64 = 1024;
/// Ids that wait for others in a merge by number: 50 MB of memory.
pub const CACHE_MAX: u64 = 1 << 20;
/// Longest step of a source in a thread that it shares, on average: a thousand sources have each a turn within a second.
pub const STEP_MAX: Duration = Duration::from_millis(1);
/// Looks of the mover at its streams take at most one part in this many of its time: one at 1,000 streams takes 25 ms.
pub const WATCH_RATIO: u32 = 200;
/// How long `top`, which looks again soon, waits for what a running instrument says of itself.
pub const GLANCE_MAX: Duration = Duration::from_secs(1);
/// Sources of one receiver that start or close at once, a thread each: starting may wait for the outside.
pub const STARTS_MAX: usize = 16;
/// Frames of a file: a million small ones are a file as large as others that are called large.
pub const FRAMES_MAX: u64 = 1_000_000;
/// How long `check` waits for Python code to be loaded: libraries are large, and code that waits for a device must not
/// hold it up.
pub const CHECK_CODE_PATIENCE: Duration = Duration::from_secs(30);
/// How long `up` ends after Ctrl-C before it says what it waits for: runs settle and files are finished meanwhile.
pub const END_PATIENCE: Duration = Duration::from_secs(5);
/// How long a live sink goes on when the program ends, if the outside takes what there is.
pub const SINK_STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Least shared memory of a mirror: it has payloads, which the view that it may repeat has not.
pub const LIVE_BYTES_MIRROR: u64 = 64 << 20;
/// Parts into which the input of a worker on several hosts is divided: Kafka's brokers have files for each.
pub const SHARED_PARTS_MAX: u64 = 1000;
/// Views of a merge on several hosts, of all hosts to all builders: each is a stream and a thread on its host.
pub const MERGE_PARTS_MAX: usize = 1024;
/// Shared memory of a mirror of a book.
pub const LIVE_BYTES_BOOK: u64 = 1 << 20;
/// Pause between two looks of a sink at how far the stages of its inputs have come: it adds to the latency of merges on
/// other hosts.
pub const FRONTIER_PAUSE: Duration = Duration::from_millis(20);
/// Pause before a live sink that ends looks again for the mark of its last commit: disks take about as long.
pub const SINK_CLOSE_PAUSE: Duration = Duration::from_millis(5);
/// How long a source or a worker may take to answer a request: less than a client of the control socket waits.
pub const ASK_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two readings of the status of a source or a live sink: it is for people.
pub const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// Statistics of a receiver that are kept: of 120 sources with five numbers that change, about four minutes.
pub(crate) const STATISTICS_BYTES: u64 = 16 << 20;
/// Writers of a sink.
pub const WRITERS_MAX: u64 = 16;
/// Files of the code of a worker that are copied: ten times a large package of a user.
pub const CODE_FILES_MAX: usize = 1000;
/// Bytes of them: each slot reads them all.
pub const CODE_BYTES_MAX: usize = 16 << 20;
/// Folders below each other in which they are.
pub const CODE_DEPTH_MAX: usize = 8;
/// Entries of such a folder that are looked at: one with more has data, not code.
pub const CODE_FOLDER_MAX: usize = 10_000;

/// First id of a user that is no system user (login.defs(5)).
pub const FIRST_USER_ID: u32 = 1000;
/// Shared memory of a container that is not told how much.
pub const CONTAINER_SHARED_BYTES: u64 = 64 << 20;

/// The longest time that a command of an edge may wait for the other system: motors move for minutes.
pub(crate) const EDGE_MAX: Duration = Duration::from_secs(3600);

/// Bytes of a command that is recorded whole: the book of commands has room for several such.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 10;

/// How long simulated boards may take to end: they send their last datagrams within a tenth of a second.
pub(crate) const BOARDS_END_MAX: Duration = Duration::from_secs(10);

/// How often `up` looks whether they have.
pub(crate) const BOARDS_NAP: Duration = Duration::from_millis(5);

/// Sources whose dead time is named in a report, those with the longest: a screen has about as many lines.
pub(crate) const DEAD_NAMED: usize = 20;

/// Streams of sources, readers, sources and troubles that `top` shows unless all are asked for, for the same reason.
pub(crate) const SHOWN: usize = 20;

/// Messages that `export` reads at once: little memory, and the cost of a read is spread over many.
pub const EXPORT_MESSAGES: u64 = 1024;

/// Bytes that `export` writes at once.
pub const EXPORT_BYTES: usize = 1 << 20;

/// Pause before a page that ended, or cannot be served, is started again.
pub(crate) const PAGE_AGAIN: Duration = Duration::from_secs(1);
/// Pause between two looks at whether the page of a demonstration lives, and whether Ctrl-C was pressed.
pub(crate) const PAGE_LOOK: Duration = Duration::from_millis(100);

/// Letters of the name that a client of the control socket gives itself: it stands in the record of its command.
pub(crate) const FROM_CHARS_MAX: usize = 64;

/// Messages of a stream that another process fills which are not safe for so long are those of a process that has died.
pub(crate) const APPENDED_PATIENCE: Duration = Duration::from_secs(1);

/// Times between two looks at readers whose process has ended.
pub(crate) const READERS_LOOK_MIN: Duration = Duration::from_millis(100);
pub(crate) const READERS_LOOK_MAX: Duration = Duration::from_secs(10);

/// What asks an instrument to end and to leave its runs as they are: the next start resumes them.
pub const LEAVE_RUNS: usize = 3;

/// Open files and maps of a stage with its stream and book: with turned rings 10 and 16 were counted.
pub(crate) const FILES_EACH: u64 = 10;
pub(crate) const MAPS_EACH: u64 = 16;
/// Open files of a mirror with its clients, and of a stream that is sent to other hosts: 28 and 14 were counted.
pub(crate) const FILES_EACH_MIRROR: u64 = 28;
pub(crate) const FILES_EACH_SENT: u64 = 14;

/// Free inodes below which no instrument starts, and below which a few streams more take the last ones.
pub(crate) const INODES_WRONG: u64 = 1_000;
pub(crate) const INODES_NOTE: u64 = 20_000;

/// Messages that wait for the disk for so long are logged; times between two looks at that.
pub(crate) const STALL: Duration = Duration::from_secs(5);
pub(crate) const STALLS_LOOK: Duration = Duration::from_secs(1);

/// Time between two looks at the values that end a run, and index entries of a stream that one look reads.
pub(crate) const STOP_LOOK: Duration = Duration::from_millis(100);
pub(crate) const STOP_ENTRIES: u64 = 1 << 20;

/// Step of the wall clock that is logged, ns.
pub(crate) const CLOCK_STEP_LOGGED: u64 = 500_000_000;

/// Lines that one place in the code logs in a time: a thousand streams with one fault are a number and not a full disk.
pub(crate) const LOG_LINES_MAX: u64 = 30;
pub(crate) const LOG_WINDOW: Duration = Duration::from_secs(10);

/// Runs that `ls` and `top` list, beside those that are not done: a page of a terminal.
pub(crate) const RUNS_SHOWN: usize = 50;
/// Pause between two beats of a host.
pub const BEAT_PAUSE: Duration = Duration::from_secs(1);
/// A clock that differs by more from that of the bulletin is wrong. A beat of a busy host is posted a second late.
pub const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(5);
/// Silence after which a host is away: five beats.
pub const AWAY: Duration = Duration::from_secs(5);
/// How long a host that ends tries to post what it has to say.
pub const BULLETIN_PATIENCE: Duration = Duration::from_secs(3);
/// How long a host that is shut out by another process of its name reads on, to name that process.
pub const FENCED_READ: Duration = Duration::from_secs(3);
/// Posts sent at once.
pub const POSTS_MAX: usize = 100;
/// Posts that the mover has not looked at: those of a thousand hosts in ten seconds.
pub const INBOX_MAX: usize = 10_000;
/// Commands of other hosts that were carried out and are remembered, so that one that comes twice is carried out once.
pub const OBEYED_MAX: usize = 10_000;
/// Troubles in a beat: the first ones, for people.
pub const BEAT_TROUBLES_MAX: usize = 5;
/// Bytes of a beat with what slots say of themselves; beyond, it has only the numbers of their workers.
pub const BEAT_WORKERS_BYTES_MAX: usize = 64 << 10;
/// Pause between two looks at the accounts that are to be posted.
pub const ACCOUNTS_PAUSE: Duration = Duration::from_millis(100);
/// How long the Python code of a source may take to be loaded: libraries are large.
pub(crate) const SOURCE_CODE_LOAD_PATIENCE: Duration = Duration::from_secs(120);
/// First pause before code of a source is started again, ns; it doubles.
pub(crate) const SOURCE_CODE_PAUSE_NS: i64 = 100_000_000;
/// Longest such pause, ns: a device that is back is seen soon.
pub(crate) const SOURCE_CODE_PAUSE_MAX_NS: i64 = 30_000_000_000;
/// Pause between two looks at a silent process and at the files of its code, ns: a change is for people.
pub(crate) const SOURCE_CODE_REST_NS: i64 = 500_000_000;
/// Pause between two looks at a process that has closed its socket, ns: in most cases it has ended.
pub(crate) const SOURCE_CODE_CLOSED_REST_NS: i64 = 10_000_000;
/// Code that runs for so long is no longer in trouble, ns.
pub(crate) const SOURCE_CODE_RECOVERED_NS: i64 = 5_000_000_000;
/// Messages of a source of Python that are read together: 32 KiB of index.
pub(crate) const SOURCE_CODE_BATCH: usize = 512;
/// Time of a step of such a source: half of a source's share.
pub(crate) const SOURCE_CODE_STEP: Duration = Duration::from_millis(5);
/// How long a process of an earlier start may hold the stream: it is killed with its program.
pub(crate) const SOURCE_CODE_HELD_MAX: Duration = Duration::from_secs(5);
/// How long code of a source may take to end when it is asked to: as slots.
pub(crate) const SOURCE_CODE_END_PATIENCE: Duration = Duration::from_secs(5);
/// Longest sleep while it ends, and while its socket takes nothing.
pub(crate) const SOURCE_CODE_NAP: Duration = Duration::from_millis(2);
/// Longest sleep while the end of a process that loads code is waited for.
pub(crate) const LOAD_NAP: Duration = Duration::from_millis(5);
/// Bytes of what code says of itself: a line with a few names.
pub(crate) const DECLARED_BYTES_MAX: u64 = 4096;

/// The part of the memory of a GPU that its slots share; the rest is for the driver.
pub(crate) const GPU_SHARE: f64 = 0.9;

/// How long code of a worker may take to be loaded: libraries are large.
pub(crate) const CODE_LOAD: Duration = Duration::from_secs(120);

/// A day, ns.
pub(crate) const DAY: i64 = 86_400_000_000_000;
