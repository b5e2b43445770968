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

/// `[source] kind`
pub static SOURCE_KIND: Key = required("kind", "a kind of source", "What brings the messages: the table below.");
/// `level`
pub static LEVEL: Key = key(
    "level",
    "`disk` or `memory`",
    "disk",
    "What a message of the stream survives: a power cut (`disk`), or the end of any process (`memory`).",
);
/// `when_full`
pub static WHEN_FULL: Key = key(
    "when_full",
    "`wait`, `drop-oldest` or `drop-newest`",
    "wait",
    "What happens when the stream has no room: the source waits for its readers, the oldest messages go, or the new one is refused. What is dropped is counted.",
);
/// `live`
pub static LIVE: Key = key(
    "live",
    "size, 1 MiB to 1 TiB",
    "64 MiB",
    "Shared memory of the stream's live end. Without the line a simulated camera with larger frames has room for four.",
);
/// `retain`
pub static RETAIN: Key = key(
    "retain",
    "size",
    "",
    "The stream keeps at most this many bytes. Default: no limit for `disk`, `live` for `memory`.",
);
/// `retain_age`
pub static RETAIN_AGE: Key = key(
    "retain_age",
    "duration",
    "",
    "Messages older than this go, in steps of segments, unless an open run or a named reader still wants them. Default: age is no reason.",
);
/// `keep_free`
pub static KEEP_FREE: Key = key(
    "keep_free",
    "size",
    "",
    "Room that the stream leaves on its disk: its oldest messages go first, and what no reader may lose makes the source or stage wait, or drop, as `when_full` says. Default: until the disk is full.",
);
/// `clock`
pub static CLOCK: Key = key(
    "clock",
    "`epoch`, `ticks` or `none`",
    "epoch",
    "What the source's times count: ns since 1970 UTC, ticks of its own, or nothing. Where it is not `epoch`, messages belong to runs by their arrival.",
);
/// `ahead_max`
pub static AHEAD_MAX: Key =
    key("ahead_max", "duration", "10 min", "A source time further than this beyond arrival is marked as `ahead`.");
/// `receiver`
pub static RECEIVER: Key = key(
    "receiver",
    "name",
    "",
    "Sources with the same word share one thread: for many that bring little. Each takes at most 1 ms at a time. Default: a thread of its own.",
);

/// `[merge] kind`
pub static MERGE_KIND: Key = required(
    "kind",
    "`time` or `number`",
    "In what order the messages stand: that of their source times, or of the numbers that their makers gave them.",
);
/// `inputs` of a merge
pub static MERGE_INPUTS: Key = required(
    "inputs",
    "list of streams",
    "The streams that become one: of sources, or of merges and workers further up. Messages of one time or number stand in the order of this list.",
);
/// `wait`
pub static WAIT: Key = key(
    "wait",
    "duration",
    "2 s",
    "How long is waited for what is missing. By time: for messages older than the newest of their input, and by the clock for a silent input. By number: for an id that is not there, or not whole, once a larger one is. What comes later goes to `NAME.aside`.",
);
/// `waits`
pub static WAITS: Key = key("waits", "table of durations", "", "The same for single inputs: `{ monitor = \"10 s\" }`.");
/// `slice`
pub static SLICE: Key = key(
    "slice",
    "duration, 1 ms to 1 s",
    "10 ms",
    "Messages of so long a time, or more, are sorted and committed at once.",
);
/// `ahead_max` of a merge
pub static MERGE_AHEAD_MAX: Key = key(
    "ahead_max",
    "duration",
    "10 min",
    "A source time further than this beyond arrival is not believed: the message goes to `NAME.aside`.",
);
/// `parts`
pub static PARTS: Key = key(
    "parts",
    "number, 1 to 1024",
    "1",
    "An id is whole with so many messages: the tiles of a frame. More of them go to `NAME.aside`.",
);
/// `cache`
pub static CACHE: Key = key(
    "cache",
    "number, 1 to 1048576",
    "65536",
    "So many ids may wait at most; beyond it what is missing of the smallest is waited for no longer.",
);
/// `output`
pub static MERGE_OUTPUT: Key = key(
    "output",
    "`view`, `copy`",
    "view",
    "`view`: the stream points into its inputs and holds no bytes of its own. `copy`: it holds the bytes, so that it may survive what its inputs do not, and keep what they let go; it is then a copy of the view `NAME.view`, beside which late messages stand (`NAME.view.aside`).",
);

/// `call`
pub static CALL: Key = required(
    "call",
    "`FILE.py:NAME`, `PACKAGE.MODULE:NAME`, or the name of a ready-made one",
    "The function that is given each message, or the class whose instance is. A FILE is looked for beside the instrument file. Ready-made ones: docs/reference/workers.md.",
);
/// `inputs` of a worker
pub static WORKER_INPUTS: Key = required(
    "inputs",
    "list of streams",
    "The streams whose messages it is given: of sources, or of merges and workers further up. Of a shadow: not written.",
);
/// `shadow`
pub static SHADOW: Key = key(
    "shadow",
    "name of a worker further up",
    "",
    "It runs beside that worker on the same inputs, and nothing waits for it: what it is too slow for is skipped. `slots`, `share`, `set`, `turn`, `order`, `time_max` and `python` are that worker's where they are not written.",
);
/// `slots`
pub static SLOTS: Key = key("slots", "number, 1 to 32", "1", "How many processes run the code side by side.");
/// `share`
pub static SHARE: Key = key(
    "share",
    "`balance`, `round-robin`, `all` or `key`",
    "balance",
    "Which slot gets a message: the one that has least to do, each in turn, all of them, or always the same for one origin.",
);
/// `set`
pub static SET: Key = key(
    "set",
    "number",
    "1",
    "So many slots see the same messages, and sets of them share what comes (`balance` and `round-robin`).",
);
/// `turn`
pub static TURN: Key =
    key("turn", "number", "0", "So many messages in a row for one slot; 0: as many as take a few milliseconds.");
/// `order`
pub static ORDER: Key =
    key("order", "`keep` or `any`", "keep", "The output stands in the order of the input, or as it is done.");
/// `time_max`
pub static TIME_MAX: Key = key(
    "time_max",
    "duration",
    "30 s",
    "A slot that is at one message for longer is killed; the second time the message goes to `NAME.aside`.",
);
/// `parameters`
pub static PARAMETERS: Key = key(
    "parameters",
    "table",
    "{}",
    "Keyword arguments of the function, or of the class when it is made; what a ready-made worker is to do.",
);
/// `python`
pub static PYTHON: Key =
    key("python", "path", "", "The interpreter. Default: the one that `beamport` is installed with, else `python3`.");
/// `cpus`
pub static CPUS: Key =
    key("cpus", "list of numbers", "[]", "Processors that slots are bound to, the first slot to the first.");
/// `gpus`
pub static GPUS: Key = key(
    "gpus",
    "list of numbers",
    "[]",
    "Graphics processors: each slot sees one (`CUDA_VISIBLE_DEVICES`), the first slot the first.",
);
/// `slot_live`
pub static SLOT_LIVE: Key = key(
    "slot_live",
    "size, 1 MiB to 1 TiB",
    "64 MiB",
    "Shared memory of each slot, in which what it makes stays until the readers of the output have moved on.",
);

/// `level` of an output
pub static OUTPUT_LEVEL: Key = key(
    "level",
    "`disk` or `memory`",
    "",
    "What a message of the stream survives. Default: `disk` where all inputs are, else `memory`.",
);
/// `when_full` of an output
pub static OUTPUT_WHEN_FULL: Key = key(
    "when_full",
    "`wait` or `drop-oldest`",
    "wait",
    "What happens when the stream has no room: the stage, and then its inputs, wait for its readers, or the oldest messages go.",
);
/// `live` of an output
pub static OUTPUT_LIVE: Key = key("live", "size, 1 MiB to 1 TiB", "16 MiB", "Shared memory of the stream's live end.");
/// `[sink] kind`
pub static SINK_KIND: Key = required("kind", "a kind of sink", "What takes the messages: the table below.");

/// `inputs` of a live sink
pub static LIVE_INPUTS: Key = required("inputs", "list of streams", "The streams that are sent, each in its order.");
/// `early`
pub static EARLY: Key = key(
    "early",
    "`true` or `false`",
    "false",
    "Whether messages are sent before they are safe on disk: a power cut may take them from the stream.",
);

/// `start`
pub static START: Key = key(
    "start",
    "`now` or a time",
    "now",
    "Begin of the run, in source time. It may be past: the run then takes what was recorded.",
);
/// `stop`
pub static STOP: Key = key(
    "stop",
    "time",
    "",
    "End of the run, in source time; not together with `duration`. Default: until `beamport end` or Ctrl-C.",
);
/// `duration` of a run
pub static RUN_DURATION: Key = key("duration", "duration", "", "Length of the run; not together with `stop`.");
/// `inclusive`
pub static INCLUSIVE: Key = key(
    "inclusive",
    "`true` or `false`",
    "false",
    "Whether messages of the very time of its end belong to the run, as they do at ESS.",
);
/// `settle`
pub static SETTLE: Key =
    key("settle", "duration", "2 s", "How long after its end a run waits for messages that are under way.");

/// Above the sections
pub static TOP: Table = Table { title: "Above the sections", keys: &[&INSTRUMENT, &DATA] };
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
        &PARAMETERS,
        &PYTHON,
        &CPUS,
        &GPUS,
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
/// [sink.NAME], every kind that sends messages as they come
pub static LIVE_SINK: Table =
    Table { title: "[sink.NAME], every kind that sends messages as they come", keys: &[&LIVE_INPUTS, &EARLY] };
/// [run.NAME]
pub static RUN: Table = Table { title: "[run.NAME]", keys: &[&START, &STOP, &RUN_DURATION, &INCLUSIVE, &SETTLE] };

/// The tables of keys that belong to no kind of source or sink, in the order of the reference page.
pub static TABLES: [&Table; 10] =
    [&TOP, &SOURCE, &MERGE, &MERGE_TIME, &MERGE_NUMBER, &WORKER, &OUTPUT, &SINK, &LIVE_SINK, &RUN];
