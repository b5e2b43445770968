//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Bytes of a configuration file: the longest in use has a few kilobytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Longest duration of an option. A job that takes longer to settle is a mistake of units.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// Streams of a forwarder: four times those of the largest instrument of ESS, and as many as a source reports.
pub(crate) const STREAMS_MAX: usize = 20_000;

/// Bytes of the name of a PV: those that the source takes.
pub(crate) const CHANNEL_BYTES_MAX: usize = 500;

/// How long the forwarder keeps what Kafka has taken, to look at it.
#[cfg(any(feature = "client", test))]
pub(crate) const TAKEN_AGE: Duration = Duration::from_secs(3600);

/// Free space that the stream of a forwarder leaves on its disk.
#[cfg(any(feature = "client", test))]
pub(crate) const TAKEN_FREE: u64 = 1 << 30;

/// Least time after which the forwarder sends a value again: that of the source.
pub(crate) const REPEAT_MIN: Duration = Duration::from_secs(1);

/// Least time between two values of a simulated PV: that of the source.
pub(crate) const FAKE_PERIOD_MIN: Duration = Duration::from_millis(1);

/// Least memory of the writer: one job with the smallest stream that keeps up with a topic.
pub(crate) const MEMORY_MIN: u64 = 16 << 20;

/// Largest verbosity in digits.
pub(crate) const VERBOSITY_MAX: u8 = 6;

/// Mistakes of a configuration file that are listed.
pub(crate) const CONFIG_MISTAKES_MAX: usize = 100;

/// Bytes of a job's file name: a sink has files beside it whose names are a little longer, and a file system 255.
pub(crate) const FILE_NAME_BYTES_MAX: usize = 200;

/// Bytes of a folder's name: those of a file system.
pub(crate) const FOLDER_NAME_BYTES_MAX: usize = 255;

/// Bytes of a job's file name with its folders: with the prefix it stays below the 4096 of Linux.
pub(crate) const PATH_BYTES_MAX: usize = 2048;

/// Bytes of a `nexus_structure`: those that `beamport-nexus` reads.
pub(crate) const STRUCTURE_BYTES_MAX: usize = 1 << 30;

/// Latest time of a command, ms since 1970 UTC: the end of the year 2199, as everywhere in beamport.
pub(crate) const TIME_MS_MAX: i64 = 7_258_118_399_999;

/// Least shared memory of a topic's stream. Kafka's messages have 1 MB at most unless its limits are raised.
pub(crate) const LIVE_MIN: u64 = 16 << 20;

/// Most shared memory of a topic's stream: seconds of the fastest topic.
pub(crate) const LIVE_MAX: u64 = 256 << 20;

/// Least time between two updates of a file, as the sink has it.
pub(crate) const FLUSH_MIN: Duration = Duration::from_millis(10);

/// How old a message must be before it is written while the stop is not known: a stop of `now` is at most this old when
/// it arrives, so that the file need not be written again.
pub(crate) const HOLD: Duration = Duration::from_secs(1);

/// Nanoseconds of a millisecond.
pub(crate) const NS_PER_MS: i64 = 1_000_000;

/// Bytes of the text of an answer: every mistake of a large structure, and far below the messages of any broker.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Ranges of lost offsets that a `wrdn` lists; the report of the job has all.
pub(crate) const LOST_MAX: usize = 256;

/// Room for the line of a refusal that counts the mistakes that it does not list.
pub(crate) const REST_LINE_BYTES: usize = 64;

/// Bytes of a command on disk: the most that librdkafka hands out.
#[cfg(feature = "client")]
pub(crate) const COMMAND_BYTES_MAX: u64 = 2 << 30;

/// Bytes of the record of a job: offsets of 100,000 partitions have about a megabyte.
#[cfg(feature = "client")]
pub(crate) const RECORD_BYTES_MAX: u64 = 64 << 20;

/// How long a folder of a job without a lock is left alone: it may just be made.
#[cfg(feature = "client")]
pub(crate) const SWEEP_AGE: Duration = Duration::from_secs(60);

/// Bytes of a report: it lists every gap.
#[cfg(feature = "client")]
pub(crate) const REPORT_BYTES_MAX: u64 = 256 << 20;

/// Bytes of the end of what `beamport up` said: a fault has a few lines.
#[cfg(feature = "client")]
pub(crate) const SAID_BYTES: u64 = 4 << 10;

/// How long the figures of a job are waited for: its status must not come late.
#[cfg(feature = "client")]
pub(crate) const ASK_PATIENCE: Duration = Duration::from_millis(500);

/// How long a mover may take to note the stop. It is asked again.
#[cfg(feature = "client")]
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// How much later than its interval a status may come: NICOS takes a job for lost 5 s after the interval.
#[cfg(feature = "client")]
pub(crate) const STATUS_DELAY_MAX: Duration = Duration::from_secs(4);

/// How long one turn of a loop waits for a message.
#[cfg(feature = "client")]
pub(crate) const TURN: Duration = Duration::from_millis(20);

/// Commands of a control topic that one turn takes, so that the job is looked after beside them.
#[cfg(feature = "client")]
pub(crate) const COMMANDS_A_TURN: usize = 256;

/// Before a mover that was killed is started again.
#[cfg(feature = "client")]
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Longest pause before something is tried again.
#[cfg(feature = "client")]
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Before the pool is joined again after a fault.
#[cfg(feature = "client")]
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Between two looks for jobs that others have left.
#[cfg(feature = "client")]
pub(crate) const SCAN_PAUSE: Duration = Duration::from_secs(1);

/// Starts of a mover in a row that may fail before the job restarts from its pins.
#[cfg(feature = "client")]
pub(crate) const FAILED_STARTS_MAX: u32 = 3;

/// How often a job restarts from its pinned offsets.
#[cfg(feature = "client")]
pub(crate) const RESTARTS_MAX: u32 = 3;

/// How long a refusal may take to be delivered.
#[cfg(feature = "client")]
pub(crate) const DELIVERY_PATIENCE: Duration = Duration::from_secs(5);

/// How far clocks of producers may differ, ms: stops of a job are looked for from so long before its start command.
#[cfg(feature = "client")]
pub(crate) const COMMAND_SLACK_MS: i64 = 60_000;

/// The group of the pool: that of today's writers, with which a pool can be shared.
#[cfg(feature = "client")]
pub(crate) const GROUP: &str = "kafka-to-nexus-worker-pool";

/// How long a topic of a job may be unknown to the brokers: one that was just made is known to all within this time.
#[cfg(feature = "client")]
pub(crate) const NEW_TOPIC_PATIENCE: Duration = Duration::from_secs(1);

/// Jobs of other writers on a control topic that a job keeps in mind: those of a day, each half a minute.
#[cfg(feature = "client")]
pub(crate) const OTHERS_MAX: usize = 4096;

/// How long a topic of a job whose stop has passed may be missing before the job is given up: the brokers may just
/// be starting, and a topic that is made again is read.
#[cfg(feature = "client")]
pub(crate) const GONE_PATIENCE: Duration = Duration::from_secs(10);

/// Between two questions whether the topics of such a job are there.
#[cfg(feature = "client")]
pub(crate) const GONE_PAUSE: Duration = Duration::from_secs(2);

/// How long stops of a job that has ended are answered: those that were sent before its end was known.
#[cfg(feature = "client")]
pub(crate) const LATE_PATIENCE: Duration = Duration::from_secs(10);

/// Undelivered messages above which no status is sent: an old one is of no use when the brokers are back.
#[cfg(feature = "client")]
pub(crate) const PENDING_MAX: usize = 16;

/// Time between two status messages of the forwarder: that of today's, which clients expect.
#[cfg(feature = "client")]
pub(crate) const STATUS_PAUSE: Duration = Duration::from_secs(4);

/// A mover that has run for so long is started again at once when it ends.
#[cfg(feature = "client")]
pub(crate) const STEADY: Duration = Duration::from_secs(10);

/// Pause before a missing topic of a stream is asked for again: who creates it waits no longer.
#[cfg(feature = "client")]
pub(crate) const TOPICS_PAUSE: Duration = Duration::from_secs(5);

/// Streams of a command that are skipped and logged one by one.
#[cfg(feature = "client")]
pub(crate) const SKIPPED_MAX: usize = 20;

/// Messages of the storage topic that are read back for a valid one, at first; then so many times more.
#[cfg(feature = "client")]
pub(crate) const STORED_BACK: u64 = 16;

/// How long the next message of the storage topic is waited for.
#[cfg(feature = "client")]
pub(crate) const STORED_PATIENCE: Duration = Duration::from_secs(3);
