//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// How long a connection may take until it is open, with its TLS, and until the head of a request is there: a slow line
/// takes a second.
pub(crate) const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// How long the answer to a request may take: the other side has nothing to wait for.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Connections that have not shown who they are: beyond it the oldest is closed. Of the usual 1,024 descriptors most
/// are left to the streams.
pub(crate) const PENDING_MAX: usize = 128;

/// Connections that have: two of each stream of a host, and some monitors.
pub(crate) const CONNECTIONS_MAX: usize = 2048;

/// Connections that the kernel keeps until the server accepts them.
pub(crate) const BACKLOG: i32 = 1024;

/// Bytes of the head of a request.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Bytes before a block, which have its length.
pub(crate) const LENGTH_BYTES: usize = 8;

/// Bytes of a position.
pub(crate) const POSITION_BYTES_MAX: usize = 256;

/// Bytes of the posts of one request: one account of the largest run has a few megabytes.
pub(crate) const POST_BYTES_MAX: usize = 64 << 20;

/// Bytes of an answer that is read whole. Posts of one answer are fewer: see [`READ_BYTES`].
pub(crate) const ANSWER_BYTES_MAX: usize = 96 << 20;

/// Bytes of posts that one answer has, beside one post more.
pub(crate) const READ_BYTES: usize = 4 << 20;

/// Bytes of all texts and keys of a bulletin: accounts of some ten thousand runs.
pub(crate) const HUB_BYTES_MAX: usize = 256 << 20;

/// Removed keys that a bulletin remembers, so that its readers learn of them: they read within seconds.
pub(crate) const REMOVED_MAX: usize = 10_000;

/// Bytes of the own posts that a host keeps to post them again: beyond it the oldest are forgotten.
pub(crate) const OWN_BYTES_MAX: usize = 64 << 20;

/// The longest wait for posts of one request: less than proxies allow.
pub(crate) const POLL_MAX: Duration = Duration::from_secs(10);

/// How long a host that ends waits until those that read its bulletin have its last posts.
pub(crate) const LAST_POSTS_PATIENCE: Duration = Duration::from_secs(2);

/// A reader of a bulletin that does not ask again so long after its wait has ended is none.
pub(crate) const READER_PAUSE: Duration = Duration::from_secs(1);

/// Least time from a block that is not full to the next: messages that come meanwhile go together.
pub(crate) const BLOCK_PAUSE: Duration = Duration::from_millis(1);

/// Least time between two beats that bring a frontier alone: merges on other hosts wait for it.
pub(crate) const BEAT_PAUSE: Duration = Duration::from_millis(100);

/// The same where nothing has changed: they say that the host is there.
pub(crate) const BEAT_REST: Duration = Duration::from_secs(1);

/// Nothing comes for so long, though beats are due, before a connection counts as cut.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Bytes of a payload, as with Kafka: the far side holds one block in memory. Longer ones are set aside.
pub(crate) const PAYLOAD_MAX: usize = flow::limits::CARRIED_BYTES_MAX - 2 * flow::limits::BLOCK_BYTES;

/// Messages that are read at once.
pub(crate) const BATCH_MESSAGES: usize = 1024;

/// Bytes of blocks that have come and that the mirror has not taken: then nothing more is read, and the window of TCP
/// closes.
pub(crate) const ARRIVED_BYTES: usize = 16 << 20;

/// Blocks of that kind: beats are small.
pub(crate) const ARRIVED_BLOCKS: usize = 64;

/// Bytes after which a step of a mirror ends, so that others can share its thread.
pub(crate) const STEP_BYTES: usize = 2 << 20;

/// Rest of a mirror to which nothing comes, ns: a block wakes it.
pub(crate) const REST: i64 = 1_000_000_000;

/// Rest of a mirror without room, ns: a reader that moves on wakes it.
pub(crate) const FULL_REST: i64 = 1_000_000;

/// Positions that wait until messages are safe: then the oldest are joined.
pub(crate) const UNSAFE_MAX: usize = 4096;

/// Pause before a connection is opened again, doubled up to the longest.
pub(crate) const RETRY_MIN: Duration = Duration::from_millis(100);
/// The longest such pause.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(3);

/// Least time between two positions of a stream: each costs a request, and the near stream can free messages so often.
pub(crate) const POSITION_PAUSE: Duration = Duration::from_millis(20);

/// A position is sent again after so long, with the frontier: the near side waits for it at its end.
pub(crate) const POSITION_REST: Duration = Duration::from_secs(1);

/// How long a refused connection is the trouble of the sinks that nobody reads.
pub(crate) const REFUSAL_AGE: Duration = Duration::from_secs(30);

/// Certificates are read again after so long: they are renewed while the program runs.
pub(crate) const CERTIFICATE_AGE: Duration = Duration::from_secs(5);

/// Pause of a sink that waits for acknowledgements at its end.
pub(crate) const STOP_PAUSE: Duration = Duration::from_millis(10);
