//! Limits of the server, with their reasons.

use std::time::Duration;

/// Connections at once; the one that was used longest ago is closed for a new one. A browser keeps six. Of the usual
/// 1,024 descriptors half are left to the streams.
pub(crate) const CONNECTIONS_MAX: usize = 512;
/// Connections that the kernel keeps until the server accepts them; it allows 4,096 by default. A client that finds no
/// room tries again after a second.
pub(crate) const BACKLOG: i32 = 4096;
/// Bytes of a request's body: 64 panels are a few KiB.
pub(crate) const REQUEST_BYTES_MAX: usize = 256 << 10;
/// Time for a request to arrive whole, and for a connection without one.
pub(crate) const REQUEST_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the arrays of one answer: an image of 4096 x 4096 as float32.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of all answers that are being sent: slow clients cost no more.
pub(crate) const ANSWERS_BYTES_MAX: usize = 256 << 20;
/// How long a client may take for an answer, before its connection is closed.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// Requests that wait for a thread.
pub(crate) const QUEUE_MAX: usize = 32;
/// The server reads the status again once it is older than this.
pub(crate) const STATUS_AGE: Duration = Duration::from_millis(500);

/// Panels of a request.
pub(crate) const PANELS_MAX: usize = 64;
/// Pixels of a panel in each direction: more than a large screen has.
pub(crate) const PIXELS_MAX: u32 = 4096;
/// Origins of a trend.
pub(crate) const SERIES_MAX: usize = 16;
/// Messages that are looked at for the newest one of a kind.
pub(crate) const SEARCH_MAX: u64 = 65_536;
/// The same where the view is to be found: a stream that has none to draw costs a millisecond.
pub(crate) const AUTO_MAX: u64 = 4096;
/// Entries that are read at once on the way back from the newest.
pub(crate) const SLICE: u64 = 256;
/// Length of a trend where the panel does not say, ns: what just happened, with its cause.
pub(crate) const TREND_TIME: i64 = 60_000_000_000;
/// The same for events, ns: what an eye takes for now, and 14 pulses of ESS.
pub(crate) const EVENTS_TIME: i64 = 1_000_000_000;
/// Bytes of the messages whose events one panel counts: four million events.
pub(crate) const EVENTS_BYTES_MAX: u64 = 32 << 20;
/// Streams and origins whose lowest and highest pixel is kept.
pub(crate) const RANGES_MAX: usize = 1024;
/// Pixels of a detector: 64 MiB of counts.
pub(crate) const DETECTOR_PIXELS_MAX: i64 = 16 << 20;
/// The mark of a masked pixel in frames of photon-counting cameras.
pub(crate) const MASKED: u32 = u32::MAX;
/// Messages of which a trend keeps the values together: they are read and removed as one.
pub(crate) const BLOCK: u64 = 1024;
/// Blocks before the time of a trend that are searched for units, alarms and connections: some 65,000 messages. A
/// look for the next alarm searches as many.
pub(crate) const LOOK_BACK: u64 = 64;
/// A page shows a moment at most this long after what it was sent to, ns (`NEXT` in `app.js`, and what a number and its
/// text are rounded by): the step back from there is to what began before.
pub(crate) const ROUNDED: i64 = 512;
/// Alarms of a series, and losses of its connection, in one answer.
pub(crate) const INTERVALS_MAX: usize = 256;
/// A larger message that a trend does not show is skipped, bytes; a smaller one is read faster than it is skipped.
pub(crate) const SKIPPED: u32 = 4096;
/// Values that are kept of the streams of trends, 20 bytes each.
pub(crate) const POINTS_MAX: usize = 8 << 20;
/// Messages that are read at once.
pub(crate) const BATCH: usize = 4096;
/// Messages of a group that are distinguished; larger groups count as this.
pub(crate) const MULTIPLICITY_MAX: usize = 1024;
/// Members of groups that are named in one answer.
pub(crate) const MEMBERS_MAX: usize = 64;
/// Bytes of a text of a message that are shown.
pub(crate) const TEXT_MAX: usize = 4096;
/// Entries of a list of a message that are shown.
pub(crate) const LIST_MAX: usize = 64;
/// Bytes of a message that are shown in hexadecimal.
pub(crate) const HEX_BYTES: usize = 256;
/// Bytes of panels that were drawn and are kept: those of some pages.
pub(crate) const CACHE_BYTES_MAX: usize = 64 << 20;
/// Streams that are kept open.
pub(crate) const READERS_MAX: usize = 256;
/// Between two looks at the header of a stream: another stream of its name may be there.
pub(crate) const COMPARE: Duration = Duration::from_millis(500);
/// Spans of the map of a stream's times, 32 bytes each.
pub(crate) const SPANS_MAX: usize = 65_536;
/// Entries of 64 bytes that a lane reads for one answer: those of a stream of 200 messages per second in 10 minutes.
pub(crate) const LANE_MAX: u64 = 131_072;
/// Gaps of a stream that are listed: the newest.
pub(crate) const GAPS_MAX: usize = 1000;
/// Gaps of a stream are asked for after this time, ...
pub(crate) const GAPS_AGE: Duration = Duration::from_secs(2);
/// ... and after this many times the time that the last answer took: at most 5 % of a processor.
pub(crate) const GAPS_PAUSE: u32 = 20;
/// Messages aside that are listed: the newest.
pub(crate) const ASIDE_MAX: u64 = 100;
/// Commands that are listed: the newest.
pub(crate) const COMMANDS_MAX: u64 = 200;
/// Bytes of a template, or of the resolved instrument file, that is read.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Runs in a status of the page, beside those that are not done: its list has fifty, its time bar may show older ones.
pub(crate) const RUNS_SHOWN: usize = 500;
