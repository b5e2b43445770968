//! Every bound of this crate, each with its reason.

/// Messages that one call to librdkafka hands out at most: enough that the call costs nothing beside them.
#[cfg(feature = "client")]
pub(crate) const BATCH_MESSAGES: usize = 1024;

/// Bytes after which a step ends: copying and checking them takes less than a millisecond, so that a source can share
/// its thread.
#[cfg(feature = "client")]
pub(crate) const STEP_BYTES: usize = 2 << 20;

/// Messages after which a step ends, for the same reason: those of 200 bytes take about 0.3 us each.
#[cfg(feature = "client")]
pub(crate) const STEP_MESSAGES: usize = 2048;

/// Properties that every client has, before those of the section.
///
/// Memory: librdkafka stops to fetch a partition of which it holds `queued.max.messages.kbytes`, so it holds at most
/// that, one answer more, and a batch that the source has taken.
#[cfg(feature = "client")]
pub(crate) const PROPERTIES: [(&str, &str); 7] = [
    ("client.id", "beamport"),
    ("queued.max.messages.kbytes", "32768"),
    // Of one partition in one answer; larger messages come alone.
    ("max.partition.fetch.bytes", "8388608"),
    // After its queue was full a partition is fetched again so soon, ms: 32 MiB are drained in about 30 ms.
    ("fetch.queue.backoff.ms", "5"),
    // A broker answers the requests of a connection in their order: behind a fetch that waits for messages, the
    // question where the partitions end waits for so long, ms, and the frontier with it.
    ("fetch.wait.max.ms", "50"),
    // A broker that comes back is found within two seconds.
    ("reconnect.backoff.max.ms", "2000"),
    ("fetch.error.backoff.ms", "100"),
];

/// Bytes of a name of an origin, as streams have them.
#[cfg(feature = "client")]
pub(crate) const ORIGIN_BYTES_MAX: usize = 1024;

/// Streams of sinks whose newest messages a source remembers, of each partition: 5 kB of its state. Instruments that
/// share a topic are fewer, and a stream in memory is another one after a restart of its machine.
#[cfg(feature = "client")]
pub(crate) const SEEN_STREAMS_MAX: usize = 64;

/// Origins of such a stream whose newest messages are remembered. They matter where partitions are added to a topic
/// while messages are on their way.
#[cfg(feature = "client")]
pub(crate) const SEEN_ORIGINS_MAX: usize = 64;

/// Origins that a source repeats (`mirror`): each has a row in its stream. Messages of others belong to their
/// partition.
#[cfg(feature = "client")]
pub(crate) const REPEATED_ORIGINS_MAX: usize = 1 << 16;

/// How long a start waits for the answers of the brokers, ms: other sources start meanwhile.
#[cfg(feature = "client")]
pub(crate) const START_PATIENCE_MS: i32 = 8000;

/// Pause between two questions where the partitions end, ns. The frontier lags by this, and by `fetch.wait.max.ms`.
#[cfg(feature = "client")]
pub(crate) const ENDS_PAUSE: i64 = 100_000_000;

/// Pause between two questions which partitions there are, ns: each is one small request.
#[cfg(feature = "client")]
pub(crate) const TOPICS_PAUSE: i64 = 1_000_000_000;

/// How long an answer may take before the brokers count as away, ns.
#[cfg(feature = "client")]
pub(crate) const ANSWER_PATIENCE: i64 = 3_000_000_000;

/// How long librdkafka tries to have a question answered, ms. Then it is asked again.
#[cfg(feature = "client")]
pub(crate) const ANSWER_TIMEOUT_MS: i32 = 5000;

/// The longest time between a message's source time and its arrival in the topic that moves the frontier of its
/// partition, ns. A forwarder that repeats values of PVs at rest sends times of hours ago: they are not late.
#[cfg(feature = "client")]
pub(crate) const LAG_MAX: i64 = 120_000_000_000;

/// Pause between two answers of the brokers after which they count as having been away, ns: producers still retry.
#[cfg(feature = "client")]
pub(crate) const OUTAGE_MIN: i64 = 2_000_000_000;

/// Rest of a source to which nothing comes, ns: librdkafka wakes it.
#[cfg(feature = "client")]
pub(crate) const REST: i64 = 1_000_000_000;

/// Rest of a source for whose message the stream has no room, ns: a reader that moves on wakes it.
#[cfg(feature = "client")]
pub(crate) const FULL_REST: i64 = 1_000_000;

/// Room for the text of an error of librdkafka, which has fewer characters.
#[cfg(feature = "client")]
pub(crate) const TEXT_BYTES: usize = 512;

/// Characters of a topic's name, as Kafka has it.
pub(crate) const TOPIC_CHARS_MAX: usize = 249;

/// Partitions of one source: each has a queue of 32 MiB at most.
#[cfg(feature = "client")]
pub(crate) const PARTITIONS_MAX: usize = 4096;

/// Properties of members of a group and readers of commands, before those of the user. A command is read whole: one
/// above `receive.message.max.bytes`, the most that librdkafka takes, is refused by it. Beside it librdkafka holds one
/// answer and one queue of 8 MiB.
#[cfg(feature = "client")]
pub(crate) const COMMAND_PROPERTIES: [(&str, &str); 10] = [
    ("client.id", "beamport"),
    ("queued.min.messages", "1"),
    ("queued.max.messages.kbytes", "8192"),
    ("fetch.max.bytes", "8388608"),
    ("receive.message.max.bytes", "2147483647"),
    ("reconnect.backoff.max.ms", "2000"),
    ("fetch.error.backoff.ms", "100"),
    ("fetch.wait.max.ms", "100"),
    // The command of a member that was killed goes to another one after so long, ms.
    ("session.timeout.ms", "6000"),
    ("heartbeat.interval.ms", "1500"),
];

/// Messages of a topic of commands that one call hands out at most.
#[cfg(feature = "client")]
pub(crate) const COMMANDS_BATCH: usize = 16;

/// Properties that every client that sends has, before those of the section.
///
/// Memory: librdkafka holds copies of what is not acknowledged yet, at most `queue.buffering.max.kbytes`.
#[cfg(feature = "client")]
pub(crate) const SEND_PROPERTIES: [(&str, &str); 11] = [
    ("client.id", "beamport"),
    ("queue.buffering.max.kbytes", "131072"),
    ("queue.buffering.max.messages", "100000"),
    // The largest that librdkafka knows: the queue and the brokers say which message is too large.
    ("message.max.bytes", "1000000000"),
    // A request is filled for so long, ms: many small messages then cost one request.
    ("linger.ms", "5"),
    ("socket.nagle.disable", "true"),
    // As Kafka's own clients choose a partition by the key.
    ("partitioner", "murmur2_random"),
    // A topic that is deleted while messages for it are on their way is given up after so long, ms. One that is new is
    // asked for before anything is sent to it.
    ("topic.metadata.propagation.max.ms", "10000"),
    // A broker that comes back is found within two seconds.
    ("reconnect.backoff.max.ms", "2000"),
    ("retry.backoff.ms", "100"),
    ("retry.backoff.max.ms", "1000"),
];

/// Properties that no section changes: a message reaches its partition once, and in order, however long it takes.
#[cfg(feature = "client")]
pub(crate) const SEND_ALWAYS: [(&str, &str); 3] =
    [("enable.idempotence", "true"), ("acks", "all"), ("message.timeout.ms", "0")];

/// Headers of one message.
#[cfg(feature = "client")]
pub(crate) const HEADERS_MAX: usize = 8;

/// Lists of headers that a producer keeps to send them again: those of the requests that are under way. 4 MiB.
#[cfg(feature = "client")]
pub(crate) const SPARE_HEADERS_MAX: usize = 1 << 14;

/// How long a question about the cluster waits for its answer, ms: a person waits.
#[cfg(feature = "client")]
pub(crate) const PROBE_PATIENCE_MS: i32 = 5000;

/// How long brokers say that a topic is missing before messages for it are set aside, ns.
#[cfg(feature = "client")]
pub(crate) const GONE_PATIENCE: u64 = 5_000_000_000;

/// How long messages are sent one by one after one was refused, ns: others of its kind may follow, and finding each
/// costs a restart.
#[cfg(feature = "client")]
pub(crate) const CAREFUL_TIME: i64 = 60_000_000_000;

/// Bits of a mark that hold the number of an input: there are 1,024 at most.
#[cfg(feature = "client")]
pub(crate) const INPUT_BITS: u32 = 10;

/// Acknowledged messages that no commit counts yet: the sink takes no more meanwhile. 32 MiB.
#[cfg(feature = "client")]
pub(crate) const HELD_MAX: usize = 1 << 20;

/// Topics and origins of one sink.
#[cfg(feature = "client")]
pub(crate) const ROUTES_MAX: usize = 1 << 16;

/// Rest of a sink that opens topics, ns: answers wake it before.
#[cfg(feature = "client")]
pub(crate) const OPEN_REST: i64 = 50_000_000;

/// No message of a sink must arrive for this time before it assumes that none is on the way, ns. A broker completes
/// requests that it has received in milliseconds.
#[cfg(feature = "client")]
pub(crate) const LOOK_PATIENCE: i64 = 1_000_000_000;

/// How long the results of a block are waited for before its topic is asked whether it is still there, ns: longer than
/// the session of a host that has it, and the transaction with its results.
#[cfg(feature = "client")]
pub(crate) const BLOCK_PATIENCE: i64 = 60_000_000_000;

/// Between two such questions, ns: what is on its way comes meanwhile.
#[cfg(feature = "client")]
pub(crate) const BLOCK_PAUSE: i64 = 10_000_000_000;

/// How long one waits for its answer.
#[cfg(feature = "client")]
pub(crate) const BLOCK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

/// Answers in turn that the block is not there, after which it counts as lost.
#[cfg(feature = "client")]
pub(crate) const BLOCK_ANSWERS: u32 = 2;

/// Pause before a topic that was made is asked for again.
#[cfg(feature = "client")]
pub(crate) const TOPIC_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Settings of the topic of a bulletin. Brokers compact all but the segment that is written, so that a reader which
/// starts gets one hour of posts beside the newest of each key. A host that was cut off for longer than
/// `delete.retention.ms` may keep a key that was removed meanwhile: a day, which costs nothing, because removals are
/// few and small.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_TOPIC: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.ms", "3600000"),
    ("min.cleanable.dirty.ratio", "0.1"),
    ("delete.retention.ms", "86400000"),
];

/// How long a host waits for the answers to its posts, ms.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_PATIENCE_MS: i32 = 6000;

/// Brokers end a transaction of this age, ms.
#[cfg(feature = "client")]
pub(crate) const TRANSACTION_TIMEOUT_MS: i32 = 10_000;

/// Properties of the client that posts, which no section changes. Posts that brokers do not acknowledge fail before the
/// patience ends, so that they are aborted in the same call.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_ALWAYS: [(&str, &str); 2] = [("message.timeout.ms", "4000"), ("socket.timeout.ms", "4000")];

/// Properties of the client that reads a bulletin: no section changes them. It does not wait for transactions to end:
/// one that a killed host has left open would hide the beats of all hosts for up to 20 s, and a post that is read
/// although its call failed is posted again with the same key.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_READ_ALWAYS: [(&str, &str); 2] =
    [("isolation.level", "read_uncommitted"), ("auto.offset.reset", "error")];

/// Posts that one call reads at most.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_POSTS_MAX: usize = 1024;

/// Bytes of the key of a post: names of hosts and streams have fewer.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_KEY_BYTES_MAX: usize = 4096;

/// Bytes of the text of a post. A topic takes records of [`flow::limits::CARRIED_BYTES_MAX`], with their keys and
/// Kafka's own heads.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_TEXT_BYTES_MAX: usize = flow::limits::CARRIED_BYTES_MAX - (64 << 10);

/// How long a wait for posts lasts before the answers of the brokers are looked at.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_SLICE: std::time::Duration = std::time::Duration::from_millis(200);

/// The longest wait for posts of one call.
#[cfg(feature = "client")]
pub(crate) const BULLETIN_READ_PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Properties of a host of a worker as a member of its group, before those of the user. librdkafka holds one answer
/// beside its queue.
#[cfg(feature = "client")]
pub(crate) const MEMBER_PROPERTIES: [(&str, &str); 12] = [
    ("client.id", "beamport"),
    // Blocks that a host has fetched are its own until it dies: others could have worked on them.
    ("queued.min.messages", "1"),
    ("queued.max.messages.kbytes", "4096"),
    // One block is above the least number already: without this, the next one would be fetched after a second.
    ("fetch.queue.backoff.ms", "5"),
    ("fetch.max.bytes", "4194304"),
    ("receive.message.max.bytes", "2147483647"),
    ("reconnect.backoff.max.ms", "2000"),
    ("fetch.error.backoff.ms", "100"),
    ("fetch.wait.max.ms", "100"),
    // The blocks of a host that was killed go to others after so long, ms: the least that brokers allow by default.
    ("session.timeout.ms", "6000"),
    ("heartbeat.interval.ms", "1500"),
    // A member that does not answer the group holds up all others for so long, ms. It answers while it works, too.
    ("max.poll.interval.ms", "60000"),
];

/// Properties of such a member that no section changes.
#[cfg(feature = "client")]
pub(crate) const MEMBER_ALWAYS: [(&str, &str); 6] = [
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // A group that has committed nothing has everything to do.
    ("auto.offset.reset", "earliest"),
    ("enable.partition.eof", "false"),
    ("isolation.level", "read_committed"),
    ("partition.assignment.strategy", "cooperative-sticky"),
];

/// Blocks that a host of a worker holds while its input has no room, before it asks for no more.
#[cfg(feature = "client")]
pub(crate) const WAITING_BLOCKS_MAX: usize = 16;

/// Blocks of results of one transaction, and their bytes.
#[cfg(feature = "client")]
pub(crate) const TRANSACTION_BLOCKS_MAX: usize = 256;
#[cfg(feature = "client")]
pub(crate) const TRANSACTION_BYTES_MAX: usize = 16 << 20;

/// Least time from one transaction to the next: one costs the brokers some writes and all readers of the results some
/// milliseconds.
#[cfg(feature = "client")]
pub(crate) const TRANSACTION_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// How long brokers may take to take the offsets of a transaction, ms, and how long librdkafka may take to say so: a
/// group that has just changed answers late.
#[cfg(feature = "client")]
pub(crate) const OFFSETS_PATIENCE_MS: i32 = 3000;
#[cfg(feature = "client")]
pub(crate) const OFFSETS_PATIENCE: std::time::Duration = std::time::Duration::from_millis(4000);

/// How long any other step of a transaction may take: then the brokers have ended it.
#[cfg(feature = "client")]
pub(crate) const TRANSACTION_PATIENCE: std::time::Duration = std::time::Duration::from_millis(12_000);

/// Bytes of results that wait for their transaction: then the output of the worker waits.
#[cfg(feature = "client")]
pub(crate) const RESULTS_BYTES_MAX: usize = 64 << 20;

/// Blocks whose results wait for their transaction: empty ones have few bytes.
#[cfg(feature = "client")]
pub(crate) const RESULTS_BLOCKS_MAX: usize = 4096;

/// Bits of the number of a result among those of its block, in the sequence that its entry has: 16 million.
#[cfg(any(feature = "client", test))]
pub(crate) const RESULT_BITS: u32 = 24;

/// Kilobytes that a reader of results holds, over all partitions, and the least of one.
#[cfg(feature = "client")]
pub(crate) const GATHER_KBYTES: usize = 65_536;
#[cfg(feature = "client")]
pub(crate) const GATHER_KBYTES_MIN: usize = 256;

/// First bytes and version of the records of an order; other versions are not read.
#[cfg(any(feature = "client", test))]
pub(crate) const ORDER_MAGIC: ([u8; 4], u16) = (*b"BORD", 1);
/// Bytes of such a record.
#[cfg(any(feature = "client", test))]
pub(crate) const ORDER_BYTES: usize = 80;

/// First bytes and version of the keys of results; other versions are not read.
#[cfg(any(feature = "client", test))]
pub(crate) const RESULT_MAGIC: ([u8; 4], u16) = (*b"BRES", 1);
/// Bytes of such a key, before its counts.
#[cfg(any(feature = "client", test))]
pub(crate) const RESULT_HEAD_BYTES: usize = 32;

/// Records of results that a reader holds of each partition at once: each is about a megabyte.
#[cfg(feature = "client")]
pub(crate) const RESULTS_BATCH: usize = 8;

/// Processes that handed out blocks and were replaced, which a reader remembers: blocks of theirs come for some
/// seconds.
#[cfg(any(feature = "client", test))]
pub(crate) const REPLACED_MAX: usize = 64;
