//! Every bound of this crate, each with its reason.

/// PVs of one source: ten times the largest instrument; by pvAccess 3.4 GB of memory, of which PVXS takes 2.5.
pub(crate) const PVS_MAX: usize = 100_000;

/// Bytes of a PV's name; EPICS records have 60 characters, pvAccess has no bound. An origin has 1,024 bytes.
pub(crate) const PV_BYTES_MAX: usize = 500;

/// Bytes of a topic's name, as Kafka has it.
pub(crate) const TOPIC_BYTES_MAX: usize = 249;

/// Bytes of a list of PVs.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// Updates that a client keeps of one PV, at most.
pub(crate) const QUEUE_MAX: i64 = 100_000;

/// Bytes of updates of a client that wait for the source: half a second of the fastest cameras.
pub(crate) const QUEUE_BYTES: u64 = 256 << 20;

/// Updates that one call takes from a client.
pub(crate) const BATCH_UPDATES: usize = 512;

/// Updates after which a step ends: each takes about 1 us, so that a source can share its thread.
pub(crate) const STEP_UPDATES: usize = 1024;

/// Subscriptions that one step makes or ends: each takes 20 us.
pub(crate) const CHANGES_A_STEP: usize = 200;

/// Bytes of values after which a step ends: copying and checking them takes less than a millisecond.
pub(crate) const STEP_BYTES: usize = 2 << 20;

/// Pause between two looks at connections and repeats, ns; updates wake the source before.
pub(crate) const LOOK_PAUSE: i64 = 1_000_000_000;

/// Rest of a source for whose message the stream has no room, ns: a reader that moves on wakes it.
pub(crate) const FULL_REST: i64 = 1_000_000;

/// How long a connection waits for a value before it is reported without one, ns: most connect within a second.
pub(crate) const CONNECT_PATIENCE: i64 = 2_000_000_000;

/// Pause before a subscription is made again that a pvAccess server refused or ended, ns: PVXS does not try again.
pub(crate) const RETRY_PAUSE: i64 = 5_000_000_000;

/// Updates with an older time are skipped: 365.25 days, as the ESS forwarder has it, ns.
pub(crate) const AGE_MAX: i64 = 31_557_600_000_000_000;

/// Updates with a time further after now are skipped: ten minutes, ns.
pub(crate) const AHEAD_MAX: i64 = 600_000_000_000;

/// Shortest pause of repeats.
pub(crate) const REPEAT_MIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Shortest and longest time between two values of a simulated PV.
pub(crate) const FAKE_PERIOD_MIN: std::time::Duration = std::time::Duration::from_millis(1);
/// The same.
pub(crate) const FAKE_PERIOD_MAX: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Bytes of a message that is kept to be sent again: an array of 8,000 numbers.
pub(crate) const REPEAT_BYTES_MAX: usize = 64 << 10;

/// Streams in the status: as many as the ESS forwarder takes, 3 MB.
pub(crate) const STATUS_STREAMS_MAX: usize = 20_000;

/// How long a PV may be without a value before it is reported, ns: a search of pvAccess takes up to ten seconds.
pub(crate) const ABSENT_PATIENCE: i64 = 10_000_000_000;

/// PVs without a value that are named for each reason.
pub(crate) const ABSENT_NAMES: usize = 5;

/// PVs that have been disconnected for longest, in the status.
pub(crate) const STATUS_DISCONNECTED: usize = 10;

/// Bytes of state that a source gives to its book each second on average: a list of 100,000 PVs is 10 MB.
pub(crate) const STATE_BYTES_PER_SECOND: i64 = 200_000;

/// Lives of a camera whose numbers fall: a device that draws its numbers would fill the table of origins.
pub(crate) const LIVES_MAX: u32 = 1000;

/// Numbers of frames that may come late, counted down from the highest one: as many as the account of a stream accepts.
pub(crate) const FRAMES_WINDOW: u64 = flow::limits::REORDER_WINDOW;

/// In the place of the time of a frame that has not come: no frame has this time.
pub(crate) const ABSENT: i64 = i64::MIN;

/// In the place of the time of a frame without one of its own that can be.
pub(crate) const UNTIMED: i64 = i64::MAX;

/// Longest time that a frame may be late.
pub(crate) const REORDER_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Room for the text of an error of the library.
pub(crate) const ERROR_BYTES: usize = 512;

/// Bytes of a frame behind its codec: ten times the largest cameras.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 30;

/// Bytes that a byte of LZ4 becomes at most, by its format.
pub(crate) const LZ4_RATIO: usize = 255;

/// Attributes of a frame, and columns of a table, that are read.
pub(crate) const NAMED_MAX: usize = 1000;

/// Memory for messages that wait, which is kept once they are gone.
pub(crate) const PENDING_BYTES_KEPT: usize = 1 << 20;

/// PVs that one step looks at: their connections and repeats take a millisecond.
pub(crate) const LOOK_PVS: usize = 10_000;

/// Messages for removed PVs that wait for a step; more are not sent.
pub(crate) const REMOVED_MAX: usize = 100_000;

/// The library with the C++ part of this crate.
pub(crate) const FILE: &str = "libbeamport_epics.so";

/// Environment variable with its path, for development.
pub(crate) const VARIABLE: &str = "BEAMPORT_EPICS";

/// The version of its interface that this crate calls: `BP_ABI` in its header.
pub(crate) const ABI: u32 = 3;

/// PVs that one sink writes: ten times what feedback needs. The state of each is in each of its commits.
pub(crate) const PUT_PVS_MAX: usize = 100;

/// Bytes of a value that a sink writes: an array of 1,000 numbers. It is in the commits of the sink.
pub(crate) const PUT_BYTES_MAX: usize = 8 << 10;

/// Shortest and longest pause between two writes of a PV by a sink.
pub(crate) const EVERY_MIN: std::time::Duration = std::time::Duration::from_millis(10);
/// The same.
pub(crate) const EVERY_MAX: std::time::Duration = std::time::Duration::from_secs(3600);

/// How long a sink waits for the answer to a write, ns: records that complete later would hold up newer values.
pub(crate) const ANSWER_PATIENCE: i64 = 5_000_000_000;

/// How long a value that is not written yet keeps the position of its sink, ns; afterwards it is in its state alone. A
/// server that is away does not hold back a stream.
pub(crate) const PUT_HOLD: i64 = 1_000_000_000;

/// Clients that are kept for the next `put` or `get`: each has threads and sockets.
pub(crate) const IDLE_CLIENTS: usize = 4;

/// Least time to read a PV after it was written.
pub(crate) const READ_PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// Longest wait for an update without a look whether the time is over.
pub(crate) const READ_NAP: std::time::Duration = std::time::Duration::from_millis(100);

/// Elements of the answer to `get`: 20 MB of JSON.
pub(crate) const GET_ELEMENTS_MAX: usize = 1_000_000;

/// Time for a put that a person asks for, unless the request says another.
pub(crate) const PUT_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// The longest such time: motors move for minutes.
pub(crate) const PUT_PATIENCE_MAX: std::time::Duration = std::time::Duration::from_secs(3600);
