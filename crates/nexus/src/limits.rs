//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Bytes of a writer's job, as JSON: an instrument of 1000 sources has less than one MiB.
pub const JOB_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a template's text. The largest known (DREAM, every pixel written out) has 700 MB; with `range` and
/// `linspace` it has less than one.
pub const TEMPLATE_BYTES_MAX: u64 = 1 << 30;

/// Bytes that a template takes while it is read: 700 MB of text are some 400 MB of numbers, and of a million nodes the names
/// and values take less than one GB.
pub const PARSED_BYTES_MAX: u64 = 2 << 30;

/// Groups, datasets, links, modules and attributes of a template: ten times the largest ESS instrument.
pub const NODES_MAX: usize = 1_000_000;

/// Groups inside groups. NeXus needs about eight; recursion over more would need a stack that somebody else chooses.
pub const DEPTH_MAX: usize = 32;

/// Bytes of a name: what file systems and HDF5 tools agree on.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of one fixed dataset, made in memory before it is written: 32 million pixels of 8 bytes.
pub const DATASET_BYTES_MAX: u64 = 256 << 20;

/// Bytes of all fixed datasets of a template: a file must exist within seconds of the beginning of its run.
pub const FIXED_BYTES_MAX: u64 = 1 << 30;

/// Bytes of a static file, and of what is copied out of it: it is copied before the first message, and its largest dataset
/// waits in memory meanwhile. 12 million pixels with a number and a place each have 340 MB.
pub const STATIC_BYTES_MAX: u64 = 1 << 30;

/// Time of the processor that libhdf5 has for one thing of a static file, s, and bytes of the file for which it has another
/// second: it takes milliseconds for most, and a damaged file may send it round in circles. A GiB of short texts, which
/// are the slowest to copy, takes one minute.
pub const STATIC_SECONDS: u64 = 3;
/// See [`STATIC_SECONDS`].
pub const STATIC_BYTES_A_SECOND: u64 = 10 << 20;

/// Chunks of a packed dataset of a static file: their places wait in memory. A GiB has as many of 256 bytes.
pub const STATIC_CHUNKS_MAX: usize = 4 << 20;

/// Bytes of one attribute: HDF5 keeps attributes in object headers, which end at 64 KiB.
pub const ATTRIBUTE_BYTES_MAX: usize = 60 << 10;

/// Dimensions of a dataset: HDF5 allows 32, one is taken for time.
pub const RANK_MAX: usize = 31;

/// Numbers of a dataset that are written as texts where the template gives them the type of texts.
pub const TEXTS_MAX: usize = 1000;

/// Mistakes that are reported; more is a sign of one cause that repeats.
pub const MISTAKES_MAX: usize = 100;

/// Streams modules of one template: each has up to six open datasets and their buffers.
pub const MODULES_MAX: usize = 20_000;

/// Datasets of a module from outside: each has a buffer.
pub const DATASETS_MAX: usize = 64;

/// Bytes of a text in a dataset of a module from outside: texts are kept in rows of one size.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Bytes of messages that a module in Python is given at once: each question costs 50 us, and these are copied twice.
pub const ASKED_BYTES: usize = 8 << 20;

/// Bytes of rows that a module in Python may make of one message, and at which it is asked anew: they are kept until the
/// state behind them is known.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Bytes of the state of a module in Python: it stands in every commit.
pub const STATE_BYTES_MAX: u64 = 1 << 20;

/// Streams of one module: their names stand in an attribute of its group, and a facility has some tens.
pub const STREAMS_MAX: usize = 128;

/// Bytes of one row of a growing dataset (one histogram or array value): a message has at most 2 GiB, but a row is
/// kept in memory whole, for each dataset.
pub const ROW_BYTES_MAX: u64 = 256 << 20;

/// Smallest chunk of a growing dataset: a page, so that a log of one value costs a page.
pub const CHUNK_BYTES_MIN: usize = 4 << 10;

/// Smallest chunk of a column of a log: with 4 KiB a beam line of a thousand slow values had files of mostly empty chunks.
/// A column with four [`CHUNK_BYTES_MIN`] of rows or more when it is first written has larger chunks: for fewer rows the
/// second dataset takes longer than the rows.
pub const LOG_CHUNK_BYTES_MIN: usize = 2 << 10;

/// Smallest chunk of the cues of a log: five minutes of them.
pub const CUE_CHUNK_BYTES_MIN: usize = 256;

/// Half of the entries of a node in the tree of the chunks of a dataset (HDF5 File Format Specification, III.A.1). Each
/// dataset has a node at least, of 560 bytes, where the 2 KiB of libhdf5's default are four pages for each log. A dataset
/// of a million chunks has a tree of five levels, where it had four (decision 0018).
pub const CHUNK_TREE_HALF: u32 = 8;

/// Bytes of a node before its first key: signature, type, level, entries, left and right sibling.
pub const NODE_HEAD_BYTES: usize = 24;

/// Levels of a tree of chunks that are followed: none has more.
pub const NODE_LEVELS_MAX: usize = 16;

/// Parts of the object header of a dataset that are read: none of ours has more.
pub const HEADER_PARTS_MAX: usize = 64;

/// Largest chunk: above it readers that want a few rows read too much.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The same where zlib packs it: it takes a fifth more time for each byte of larger ones (`beamport-bench sweep`), and makes them 5 %
/// smaller.
pub const CHUNK_BYTES_MAX_DEFLATE: usize = 64 << 10;

/// Rows that wait in memory before the first are written, bytes per dataset: the size of its chunks follows from them. And
/// before they are packed: chunks for each thread that packs.
pub const GATHER_BYTES: usize = 4 << 20;

/// Rows that wait in memory before they are written, bytes per dataset: what is under way stays in the caches of the
/// processor, and larger writes gain nothing.
pub const GROWN_GATHER_BYTES: usize = 1 << 20;

/// Bytes of one write past the page cache: of larger ones the kernel takes twice the time for each.
pub const DIRECT_WRITE_BYTES: usize = 1 << 20;

/// Chunk of a dataset that is still empty when those beside it get their rows: events that come after a beam was off.
pub const CHUNK_BYTES_BLIND: usize = 256 << 10;

/// How long the place of a begun chunk that was packed elsewhere keeps its rows: readers who opened the file before find
/// them there, and libhdf5 would show them what comes next as theirs. A dataset has at most one such chunk a flush.
pub const LEFT_REST: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(60) };

/// How long a node of a tree of chunks that was split keeps the entries that moved, on disk: a reader who knew its
/// parent from before finds them there. Without them it would show zeros for the rows of those chunks.
pub const SPLIT_REST: Duration = Duration::from_secs(60);

/// Nodes that are held back for that; beyond, the oldest are written.
pub const SPLIT_NODES_MAX: usize = 4_096;

/// The pause after a flush is at least this many times as long as the flush: it takes at most a tenth of the time.
pub const FLUSH_PART: u32 = 9;

/// Longest pause that follows from [`FLUSH_PART`]: with it a flush may take as long again, and rows are in the file 60 s
/// after they came.
pub const FLUSH_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Threads that pack the chunks of one write, the caller among them.
pub const PACK_THREADS: usize = 2;

/// Whole chunks of fewer bytes are written at once through the page cache: handing them to a thread takes longer.
pub const LANE_BYTES_MIN: usize = 64 << 10;

/// Buffers that wait for the disk: few, and yet enough that a thread that is done finds the next.
pub const LANES_WAITING: usize = 2;

/// A buffer larger than this is not kept: one long message must not hold memory for the rest of a run.
pub const SPARE_BYTES_MAX: usize = 4 * GATHER_BYTES;

/// Room that small metadata take at a time, bytes: few pages, so that a small file stays small.
pub const METADATA_BLOCK_BYTES: u64 = 4 * 4096;

/// Metadata and small datasets that wait in memory while a file is laid out, bytes.
pub const HELD_BYTES_MAX: u64 = 64 << 20;

/// What the object header of a growing dataset takes, bytes, without attributes: 272, and some to spare. Those of a module
/// lie in one page.
pub const HEADER_BYTES: u64 = 320;

/// Names of a group that stand in its header, and as many attributes: each is looked for from the first on, so that more
/// would be slow. Groups to which something is added while a file grows have fewer.
pub const NAMES_IN_HEADER: u32 = 256;

/// Bytes read at a time for the hash of a finished file.
pub const HASH_BYTES: usize = 4 << 20;

/// Bytes from which on a piece of a finished file is read past the page cache: metadata were just written and are in it.
pub const DIRECT_READ_BYTES_MIN: usize = 64 << 10;

/// Room that is asked for at a time, bytes: first, and at most. It grows with the file, so that small files stay small. The
/// file system lets all writes to a file end before it gives room, so large files ask rarely.
pub const ROOM_STEP_BYTES: (u64, u64) = (1 << 20, 64 << 20);

/// How far behind what is written a file that grows says that it ends: this part of it, and at least so many bytes. A
/// reader who opens it needs milliseconds until it has read all headers; who takes it up after a kill leaves so much empty.
pub const AHEAD_PART: u64 = 16;
/// See [`AHEAD_PART`].
pub const AHEAD_BYTES_MIN: u64 = 1 << 20;

/// Bytes of rows that are made up where an attribute of frames comes late, for the frames before it; they wait in memory.
pub const BACKFILL_BYTES_MAX: u64 = 64 << 20;

/// Datasets for the attributes of frames: areaDetector has some ten, and each costs a dataset and a buffer.
pub const METADATA_MAX: usize = 256;

/// Bytes of a text that comes with messages (of an alarm, of a frame) in the file; longer ones are cut at a letter. ESS
/// has 200 for alarms.
pub const TEXT_BYTES: usize = 256;

/// Origins of one log whose last time is remembered: a log of its own each is the rule, and what is remembered stands in
/// every commit.
pub const ORIGINS_MAX: usize = 1024;

/// Time between two cues of a dataset where the template does not say, ns of source time: a reader that wants an interval
/// reads at most this much more.
pub const CUE_EVERY_NS: u64 = 10_000_000_000;

/// Longest time between two cues, seconds: a year. Whoever wants none has one.
pub const CUE_SECONDS_MAX: f64 = 31_557_600.0;

/// Late rows that are sorted at a time: 64 MiB of times, places and pieces. More are sorted in several goes; tests have few.
pub const LATE_ROWS_MAX: usize = if cfg!(test) { 50 } else { 1 << 20 };

/// Times that are read at a time to find late rows.
pub const SORT_SCAN_ROWS: usize = 64 << 10;

/// Unpacked chunks that are kept while rows are moved, bytes of a column: late rows are near each other, mostly.
pub const SORT_READ_BYTES: usize = 16 << 20;

/// Bytes of sorted chunks after which the file's metadata is written: until then the room of the packed chunks that
/// they replace is not used again.
pub const SORT_APPLY_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 64 << 20 };

/// Objects that are looked at when something is searched in a file: as many as a template may make.
pub const SEARCH_OBJECTS_MAX: usize = NODES_MAX;

/// Groups inside groups that such a search follows.
pub const SEARCH_DEPTH_MAX: usize = 32;

/// Links to other files that `cat` looks at: many more than a run has groups that other writers wrote.
pub const READ_LINKS_MAX: usize = 10_000;

/// Other files that `cat` follows such links to: as many as a sink has writers.
pub const READ_FILES_MAX: usize = 16;

/// How often `cat` opens a file again that goes on being written and of which it could show no row more: a writer may come
/// between two of its reads each time, but not for ever.
pub const READ_TRIES_MAX: u32 = 20;

/// Bytes of one piece of rows that `cat` reads of all datasets of a group together.
pub const READ_BYTES: usize = 16 << 20;

/// Rows of such a piece: little is read for nothing where few are asked for.
pub const READ_ROWS: usize = 16 << 10;

/// Datasets of a group that are shown side by side: those of a frame with its attributes, and some to spare.
pub const READ_COLUMNS_MAX: usize = 2 * METADATA_MAX;

/// Bytes of a text that is shown.
pub const TEXT_WIDTH_MAX: usize = 64 << 10;

/// Cues that are used; more than a century of them is no cue but a dataset of its own.
pub const READ_CUES_MAX: u64 = 1 << 20;

/// How much smaller than its rows a dataset can be: twice what deflate reaches at best.
pub const READ_PACKED_MAX: u64 = 2048;

/// Time that libhdf5 has for one piece, s: it takes milliseconds, and a damaged file may send it round in circles.
pub const READ_SECONDS_MAX: u32 = 60;

/// Memory of a process that reads a file from outside: libhdf5 takes what the file says.
pub const READ_MEMORY_MAX: u64 = 4 << 30;

/// Cells of a measured histogram; the same bound as the simulation's.
pub const HISTOGRAM_CELLS_MAX: u64 = 1 << 29;

/// Rows of a table in the account; a day with more gaps than this has its count and the JSON.
pub const TABLE_ROWS_MAX: usize = 1 << 20;
/// Pause before the accounts of other hosts are looked for again: they come within a second of the seal.
pub(crate) const PAUSE_WITHOUT_ACCOUNTS: std::time::Duration = std::time::Duration::from_millis(100);
