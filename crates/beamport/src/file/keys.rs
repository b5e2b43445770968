//! Every key of the instrument file: where it may stand, what it takes, its default and its meaning.
//!
//! The one table from which the parser takes defaults and near words, and from which the tables of
//! `docs/reference/instrument-file.md` are made; a test compares the page with it.

use settings::{Key, Table, key, required};

/// `instrument`
pub static INSTRUMENT: Key = required("instrument", "name", "Name of the instrument.");
/// `data`
pub static DATA: Key = key(
    "data",
    "folder",
    "",
    "Folder of the streams. Default: `beamport-data/` and the instrument's name, beside the instrument file.",
);

/// `group`
pub static GROUP: Key = key(
    "group",
    "name of a group",
    "",
    "Users of this group may read the streams, keep positions in them by name, and give commands. Default: the files \
     have the group of the owner, who alone may do more than read them.",
);
/// `reader_timeout`
pub static READER_TIMEOUT: Key = key(
    "reader_timeout",
    "duration",
    "10 min",
    "How long streams wait for a reader with a name whose process has ended: then it holds back nothing until it comes \
     back. Readers of stages are always waited for.",
);
/// `readers`
pub static READERS: Key = key(
    "readers",
    "list of names",
    "",
    "Names of readers outside the instrument that streams wait for, however long they are away.",
);

/// `[source] kind`
pub static SOURCE_KIND: Key = required("kind", "a kind of source", "Kind of the source: the table below.");
/// `level`
pub static LEVEL: Key = key(
    "level",
    "`disk` or `memory`",
    "disk",
    "What its messages survive: a power cut (`disk`), or only a killed process (`memory`).",
);
/// `when_full`
pub static WHEN_FULL: Key = key(
    "when_full",
    "`wait`, `drop-oldest` or `drop-newest`",
    "wait",
    "What happens when the stream is full: the source waits for readers, drops the oldest messages, or drops new ones. Dropped messages are counted.",
);
/// `live`
pub static LIVE: Key = key(
    "live",
    "size, 1 MiB to 1 TiB",
    "64 MiB",
    "Shared memory for the newest messages. Default for a simulated camera with larger frames: room for four.",
);
/// `retain`
pub static RETAIN: Key = key(
    "retain",
    "size",
    "",
    "The stream keeps at most this many bytes. Default: no limit for `disk`, `live` for `memory`. \
     Slow readers: see above.",
);
/// `retain_age`
pub static RETAIN_AGE: Key = key(
    "retain_age",
    "duration",
    "",
    "Messages older than this are deleted, a segment at a time, unless a counted reader still needs them. Default: no limit.",
);
/// `keep_free`
pub static KEEP_FREE: Key = key(
    "keep_free",
    "size",
    "",
    "Free space that the stream leaves on its disk: it deletes its oldest messages; if a reader still needs them, `when_full` applies. Default: 0.",
);
/// `clock`
pub static CLOCK: Key = key(
    "clock",
    "`epoch`, `ticks` or `none`",
    "epoch",
    "Unit of source times: ns since 1970 UTC, ticks of the source, or no times. Unless it is `epoch`, messages belong to runs by arrival time.",
);
/// `ahead_max`
pub static AHEAD_MAX: Key =
    key("ahead_max", "duration", "10 min", "A source time later than arrival by more than this is flagged `ahead`.");
/// `receiver`
pub static RECEIVER: Key = key(
    "receiver",
    "name",
    "",
    "Sources with the same name here share one thread: for many sources with low rates. Each step takes at most 1 ms. Default: its own thread; sources `udp` share one.",
);

/// `[merge] kind`
pub static MERGE_KIND: Key = required(
    "kind",
    "`time` or `number`",
    "Order of the messages: by source time, or by the numbers that their sources gave them.",
);
/// `inputs` of a merge
pub static MERGE_INPUTS: Key = required(
    "inputs",
    "list of streams",
    "The streams to merge: of sources, or of merges and workers defined above. Messages with equal time or number follow the order of this list.",
);
/// `wait`
pub static WAIT: Key = key(
    "wait",
    "duration",
    "2 s",
    "How long to wait for missing messages. By time: for messages older than the newest of their input, and by the clock for a silent input. By number: for an id that is missing or incomplete after a larger one has arrived. Later messages go to `NAME.aside`.",
);
/// `waits`
pub static WAITS: Key = key("waits", "table of durations", "", "`wait` of single inputs: `{ monitor = \"10 s\" }`.");
/// `slice`
pub static SLICE: Key = key(
    "slice",
    "duration, 1 ms to 1 s",
    "10 ms",
    "Shortest interval of messages that are sorted and committed together; with `hosts` also the interval that goes to \
     one host.",
);
/// `hosts` of a merge
pub static MERGE_HOSTS: Key = key(
    "hosts",
    "list of hosts",
    "",
    "Event builders, in the place of `host`: each host merges the slices of time whose number mod the number of hosts \
     is its place in this list, counted from 0. Workers with the same `hosts` run on each part. Elsewhere the name \
     means all parts, merged by time.",
);
/// `overlap`
pub static OVERLAP: Key = key(
    "overlap",
    "duration, at most half of `slice`",
    "0 s",
    "The time around its slices that each part has for its workers: at least as long as a group. A result counts with \
     the part in whose slices its time lies.",
);
/// `ahead_max` of a merge
pub static MERGE_AHEAD_MAX: Key = key(
    "ahead_max",
    "duration",
    "10 min",
    "A message whose source time is later than arrival by more than this goes to `NAME.aside`.",
);
/// `parts`
pub static PARTS: Key = key(
    "parts",
    "number, 1 to 1024",
    "1",
    "Number of messages per id, for example tiles of a frame. Further ones go to `NAME.aside`.",
);
/// `cache`
pub static CACHE: Key = key(
    "cache",
    "number, 1 to 1048576",
    "65536",
    "Most ids that may wait; beyond it the smallest is completed without its missing messages.",
);
/// `output`
pub static MERGE_OUTPUT: Key = key(
    "output",
    "`view`, `copy`",
    "view",
    "`view`: the stream points into its inputs and stores no payloads. `copy`: it stores them, so it may have a higher `level` and a longer retention than its inputs; it is then a copy of the view `NAME.view`, whose late messages are in `NAME.view.aside`.",
);

/// `call`
pub static CALL: Key = required(
    "call",
    "`FILE.py:NAME`, `PACKAGE.MODULE:NAME`, or the name of a ready-made one",
    "The function, or class, that is called with each message. A FILE is relative to the instrument file. Ready-made workers: docs/reference/workers.md.",
);
/// `inputs` of a worker
pub static WORKER_INPUTS: Key = required(
    "inputs",
    "list of streams",
    "Input streams: of sources, or of merges and workers defined above. A shadow has no `inputs`.",
);
/// `shadow`
pub static SHADOW: Key = key(
    "shadow",
    "name of a worker defined above",
    "",
    "Runs beside that worker on the same inputs. Nothing waits for it: messages for which it is too slow are skipped. `slots`, `share`, `set`, `turn`, `order`, `time_max` and `python` default to that worker's.",
);
/// `slots`
pub static SLOTS: Key = key("slots", "number, 1 to 32", "1", "Number of parallel processes that run the code.");
/// `share`
pub static SHARE: Key = key(
    "share",
    "`balance`, `round-robin`, `all` or `key`",
    "balance",
    "Which slot gets a message: the least busy, each in turn, all of them, or always the same for an origin.",
);
/// `set`
pub static SET: Key = key(
    "set",
    "number",
    "1",
    "Number of slots that get the same messages; `balance` and `round-robin` then choose among sets of slots.",
);
/// `turn`
pub static TURN: Key =
    key("turn", "number", "0", "Consecutive messages per slot; 0: as many as take a few milliseconds.");
/// `order`
pub static ORDER: Key =
    key("order", "`keep` or `any`", "keep", "Order of the output: as in the input, or as completed.");
/// `time_max`
pub static TIME_MAX: Key = key(
    "time_max",
    "duration",
    "30 s",
    "A slot that needs longer for one message is killed; the second time the message goes to `NAME.aside`.",
);
/// `first_time_max`
pub static FIRST_TIME_MAX: Key = key(
    "first_time_max",
    "duration",
    "",
    "The same for the first message (or batch) of a process, whose code may compile or load. Default: `time_max`.",
);
/// `parameters`
pub static PARAMETERS: Key = key(
    "parameters",
    "table",
    "{}",
    "Keyword arguments of the function or of the class; parameters of a ready-made worker.",
);
/// `python`
pub static PYTHON: Key =
    key("python", "path", "", "The interpreter. Default: the one that `beamport` is installed with, else `python3`.");
/// `cpus`
pub static CPUS: Key =
    key("cpus", "list of numbers", "[]", "CPUs to which slots are bound, the first slot to the first.");
/// `gpus`
pub static GPUS: Key = key(
    "gpus",
    "list of numbers",
    "[]",
    "GPUs of NVIDIA or AMD: each slot sees one, the first slot the first. Slots on one GPU share its memory.",
);
/// `environment`
pub static ENVIRONMENT: Key = key(
    "environment",
    "table of texts",
    "{}",
    "Variables of the environment of the slots: `{ OMP_NUM_THREADS = \"1\" }`.",
);
/// `slot_live`
pub static SLOT_LIVE: Key = key(
    "slot_live",
    "size, 1 MiB to 1 TiB",
    "64 MiB",
    "Shared memory of each slot; it holds the slot's output until the readers have read it.",
);

/// `level` of an output
pub static OUTPUT_LEVEL: Key = key(
    "level",
    "`disk` or `memory`",
    "",
    "What its messages survive. Default: `disk` if all inputs have it, else `memory`.",
);
/// `when_full` of an output
pub static OUTPUT_WHEN_FULL: Key = key(
    "when_full",
    "`wait` or `drop-oldest`",
    "wait",
    "What happens when the stream is full: the stage, and then its inputs, wait for readers, or the stage drops the oldest messages.",
);
/// `live` of an output
pub static OUTPUT_LIVE: Key = key("live", "size, 1 MiB to 1 TiB", "16 MiB", "Shared memory for the newest messages.");
/// `[sink] kind`
pub static SINK_KIND: Key = required("kind", "a kind of sink", "Kind of the sink: the table below.");

/// `inputs` of a live sink
pub static LIVE_INPUTS: Key = required("inputs", "list of streams", "The streams to send, each in its order.");
/// `early`
pub static EARLY: Key = key(
    "early",
    "`true` or `false`",
    "false",
    "Whether to send messages before they are safe on disk: a power cut may remove them from the stream.",
);

/// `start`
pub static START: Key = key(
    "start",
    "`now` or a time",
    "now",
    "Start of the run, in source time. A start in the past includes recorded messages.",
);
/// `stop`
pub static STOP: Key = key(
    "stop",
    "time",
    "",
    "End of the run, in source time; excludes `duration`. Default: until `beamport end` or Ctrl-C.",
);
/// `duration` of a run
pub static RUN_DURATION: Key = key("duration", "duration", "", "Length of the run; excludes `stop`.");
/// `stop_when`
pub static STOP_WHEN: Key = key(
    "stop_when",
    "condition",
    "",
    "Ends the run once values are inside bounds: `error < 0.03`, with `<`, `<=`, `>` or `>=`, and `and` between \
     several. A name is the origin of a value (`f144`) of any stream, such as a PV or a worker; only values with a \
     time in the run count. Messages that have arrived by then belong to the run; its account has the reason.",
);
/// `inclusive`
pub static INCLUSIVE: Key = key(
    "inclusive",
    "`true` or `false`",
    "false",
    "Whether messages at exactly the end of the run belong to it, as at ESS.",
);
/// `settle`
pub static SETTLE: Key = key("settle", "duration", "2 s", "How long after its end a run waits for late messages.");

/// `carrier`
pub static CARRIER: Key =
    required("carrier", "a kind of carrier", "What carries streams between the hosts: the table below.");
/// `host`
pub static HOST: Key =
    key("host", "name of a host", "", "The host on which it runs. Default: the first `[host.NAME]` of the file.");
/// `hosts` of a worker
pub static WORKER_HOSTS: Key = key(
    "hosts",
    "table, host = number of slots, or list of hosts",
    "",
    "The hosts that share its work, in the place of `host` and `slots`: `{ n1 = 8, \"n{2..9}\" = 16 }`. They do \
     nothing else. A block goes to one of them; one that dies is replaced by the others. With the hosts of a merge \
     that is an input, each runs the worker on its part, and `[\"b1\", \"b2\"]` is one slot on each.",
);
/// `data` of a host
pub static HOST_DATA: Key =
    key("data", "folder", "", "Folder of the streams of this host. Default: that of the instrument.");

/// `level` of a mirror
pub static MIRROR_LEVEL: Key =
    key("level", "`disk` or `memory`", "", "Level of the mirror. Default: that of the stream.");
/// `when_full` of a mirror
pub static MIRROR_WHEN_FULL: Key = key(
    "when_full",
    "`wait` or `drop-oldest`",
    "wait",
    "Policy of a full mirror: it waits for its readers, while the topic keeps the messages, or drops the oldest.",
);
/// `live` of a mirror
pub static MIRROR_LIVE: Key = key(
    "live",
    "size, 1 MiB to 1 TiB",
    "",
    "Shared memory for the newest messages. Default: that of the stream, at least 64 MiB.",
);

/// Above the sections
pub static TOP: Table =
    Table { title: "Above the sections", keys: &[&INSTRUMENT, &DATA, &GROUP, &READER_TIMEOUT, &READERS] };
/// [source.NAME], every kind
pub static SOURCE: Table = Table {
    title: "[source.NAME], every kind",
    keys: &[&SOURCE_KIND, &LEVEL, &WHEN_FULL, &LIVE, &RETAIN, &RETAIN_AGE, &KEEP_FREE, &CLOCK, &AHEAD_MAX, &RECEIVER],
};
/// [merge.NAME], every kind
pub static MERGE: Table =
    Table { title: "[merge.NAME], every kind", keys: &[&MERGE_KIND, &MERGE_INPUTS, &WAIT, &MERGE_OUTPUT] };
/// [merge.NAME], kind = "time"
pub static MERGE_TIME: Table =
    Table { title: "[merge.NAME], kind = \"time\"", keys: &[&WAITS, &SLICE, &MERGE_AHEAD_MAX] };
/// [merge.NAME], kind = "number"
pub static MERGE_NUMBER: Table = Table { title: "[merge.NAME], kind = \"number\"", keys: &[&PARTS, &CACHE] };
/// [worker.NAME]
pub static WORKER: Table = Table {
    title: "[worker.NAME]",
    keys: &[
        &CALL,
        &WORKER_INPUTS,
        &SHADOW,
        &SLOTS,
        &SHARE,
        &SET,
        &TURN,
        &ORDER,
        &TIME_MAX,
        &FIRST_TIME_MAX,
        &PARAMETERS,
        &PYTHON,
        &CPUS,
        &GPUS,
        &ENVIRONMENT,
        &SLOT_LIVE,
    ],
};
/// [merge.NAME] and [worker.NAME], the stream they fill
pub static OUTPUT: Table = Table {
    title: "[merge.NAME] and [worker.NAME], the stream they fill",
    keys: &[&OUTPUT_LEVEL, &OUTPUT_WHEN_FULL, &OUTPUT_LIVE, &RETAIN, &RETAIN_AGE, &KEEP_FREE],
};
/// [sink.NAME], every kind
pub static SINK: Table = Table { title: "[sink.NAME], every kind", keys: &[&SINK_KIND] };
/// [sink.NAME], every live sink
pub static LIVE_SINK: Table = Table { title: "[sink.NAME], every live sink", keys: &[&LIVE_INPUTS, &EARLY] };
/// [run.NAME]
pub static RUN: Table =
    Table { title: "[run.NAME]", keys: &[&START, &STOP, &RUN_DURATION, &STOP_WHEN, &INCLUSIVE, &SETTLE] };

/// [hosts]
pub static HOSTS: Table = Table { title: "[hosts]", keys: &[&CARRIER] };
/// [host.NAME]
pub static HOST_NAME: Table = Table { title: "[host.NAME]", keys: &[&HOST_DATA] };
/// [mirror.NAME]
pub static MIRROR: Table = Table {
    title: "[mirror.NAME], a stream where other hosts read it",
    keys: &[&MIRROR_LEVEL, &MIRROR_WHEN_FULL, &MIRROR_LIVE, &RETAIN, &RETAIN_AGE, &KEEP_FREE],
};
/// Sections that run on a host
pub static ON_HOST: Table =
    Table { title: "[source.NAME], [merge.NAME], [worker.NAME] and [sink.NAME], with [hosts]", keys: &[&HOST] };
/// [merge.NAME] on several hosts
pub static BUILDERS: Table =
    Table { title: "[merge.NAME], kind = \"time\", with [hosts]", keys: &[&MERGE_HOSTS, &OVERLAP] };
/// [worker.NAME] on several hosts
pub static ON_HOSTS: Table = Table { title: "[worker.NAME], with [hosts]", keys: &[&WORKER_HOSTS] };

/// The tables of keys that belong to no kind of source or sink, in the order of the reference page.
pub static TABLES: [&Table; 16] = [
    &TOP,
    &SOURCE,
    &MERGE,
    &MERGE_TIME,
    &MERGE_NUMBER,
    &WORKER,
    &OUTPUT,
    &SINK,
    &LIVE_SINK,
    &RUN,
    &HOSTS,
    &HOST_NAME,
    &MIRROR,
    &ON_HOST,
    &BUILDERS,
    &ON_HOSTS,
];
