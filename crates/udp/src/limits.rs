//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Numbers of a board by which a datagram that comes twice is recognised: at 20,000 messages a second, three seconds.
pub(crate) const NUMBERS: usize = 65_536;

/// Numbers that the account of a stream takes late.
pub(crate) const WINDOW: u64 = flow::limits::REORDER_WINDOW;

/// A number this far ahead of the highest one needs a second one near it: at 20,000 messages a second, 14 minutes
/// without contact.
pub(crate) const AHEAD: u64 = 1 << 24;
/// The same where no checksum covers numbers: a flipped bit must not move them. Where it moves one by less, the numbers
/// between come and are taken, as they are late by no more than `WINDOW`.
pub(crate) const AHEAD_UNCHECKED: u64 = WINDOW / 4;
/// A port is that of another sender when the one before has sent nothing for so long, ns: a board was replaced.
pub(crate) const OWNER_PATIENCE: i64 = 10_000_000_000;
/// A source reports a trouble once it has refused this number of datagrams in a row, for this time, ns.
pub(crate) const DEAF: (u64, i64) = (16, 5_000_000_000);

/// Lives of one board, as of every origin. The messages of later ones are refused: a sender whose numbers have no order
/// must not fill the table of origins.
pub(crate) const LIVES_MAX: u32 = flow::limits::LIVES_MAX as u32;

/// Bytes of the largest datagram: 65,535 less the header of IP and UDP, and room to see that one is larger.
pub(crate) const DATAGRAM_BYTES: usize = 65_536;

/// Datagrams of one `recvmmsg`: the call costs 0.6 us, and their bytes fit in the cache of a core.
pub(crate) const BATCH: usize = 32;

/// Datagrams after which a step ends: at 1 to 5 us each it takes less than a millisecond, so that a source can share
/// its thread.
pub(crate) const STEP_DATAGRAMS: usize = 128;

/// Ports of one source: as many as a process may open files, by default.
pub(crate) const PORTS_MAX: usize = 1024;

/// Bytes of the name of an origin: a file has them in full.
pub(crate) const ORIGIN_BYTES_MAX: usize = 200;

/// Ports that a step looks at: the others that have something come with the next.
pub(crate) const POLLED: usize = 128;

/// Numberings of one port: the numbers by which repeated messages are recognised take 512 KiB of each.
pub(crate) const NUMBERINGS_MAX: usize = 256;

/// Foreign datagrams of each reason that are set aside: enough to see what they are.
pub(crate) const FOREIGN_DATAGRAMS: usize = 16;

/// Bytes of all of them.
pub(crate) const FOREIGN_BYTES: usize = 1 << 20;

/// Holes are filed, and the counter of the kernel is read, at most so often, ns: each time is a commit in the book of
/// the stream.
pub(crate) const FILE_PAUSE: i64 = 50_000_000;

/// Pause of a source to which nothing comes, ns; a datagram wakes it. 120 of them then cost nothing.
pub(crate) const IDLE_PAUSE: i64 = 1_000_000_000;

/// Size of the socket's buffer that is asked for: 50 ms of a detector of 20,000 messages of 8.8 kB a second.
pub(crate) const BUFFER: &str = "8 MiB";

/// Sizes of the socket's buffer that can be asked for, bytes.
pub(crate) const BUFFER_MAX: u64 = 1 << 30;

/// Payload of simulated boards, bytes: what a datagram holds beside the header.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = 65_507 - wire::limits::HEADER_BYTES as u64;

/// Messages of a simulated board a second, at most.
pub(crate) const RATE_MAX: f64 = 1e7;

/// Datagrams that a simulated board holds back at once.
pub(crate) const DEPTH_MAX: i64 = 100_000;

/// The file in the data folder that holds when timestamps of sources with `zero = "first"` are zero.
pub(crate) const ZERO_FILE: &str = "udp-zero";

/// Bytes of that file which are read: a time has at most 30.
pub(crate) const ZERO_BYTES_MAX: u64 = 64;

/// Bits of the counters of timestamps, from and to which they can be set. A shorter counter begins again too often to
/// be continued by the time of arrival.
pub(crate) const BITS: std::ops::RangeInclusive<i64> = 24..=64;

/// Bits of the counter of framing `geb`: digitizers of GRETINA count so far.
pub(crate) const GEB_BITS: u32 = 48;

/// Bytes of the largest unit or event of a file; ten times the largest event of HADES.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Bytes of a file that are read at once.
pub(crate) const FILE_PIECE: usize = 1 << 20;

/// Messages and bytes of a step of a source of kind `file`: about a millisecond.
pub(crate) const FILE_STEP_MESSAGES: usize = 512;
pub(crate) const FILE_STEP_BYTES: usize = 4 << 20;

/// Pause of a source whose stream is full, ns: what comes from a socket has to be read and counted.
pub(crate) const FULL_PAUSE: i64 = 1_000_000;

/// Bytes of the name of a network interface, with a zero at its end (`IFNAMSIZ`).
pub(crate) const INTERFACE_BYTES: usize = 16;

/// Different random payloads of a simulated board: more would be made in vain.
pub(crate) const POOL: usize = 64;

/// Bytes of an `ev44` of a simulated board beside its events.
pub(crate) const EVENTS_FRAME: usize = 120;

/// Pause of simulated boards that are ahead of their time.
pub(crate) const NAP: Duration = Duration::from_micros(200);

/// The same where the kernel cuts datagrams from one piece, which pays where several are due.
pub(crate) const GSO_NAP: Duration = Duration::from_millis(2);

/// Datagrams that the kernel cuts from one piece (`UDP_MAX_SEGMENTS`).
pub(crate) const SEGMENTS: usize = 64;

/// Bytes of such a piece: what a datagram holds.
pub(crate) const PIECE_BYTES: usize = 65_507;

/// Coincidences that are drawn at once.
pub(crate) const EVENTS_ROUND: usize = 256;

/// How much later than the first a member of a coincidence sends at most, ns.
pub(crate) const JITTER: u64 = 50;

/// How wrong a time of a simulated board is at most, ns.
pub(crate) const FAULT_MAX: u64 = 1_000_000_000;

/// Messages of a stream that a simulated board sends again and again: with 8.8 kB each, 36 MB.
pub(crate) const STREAM_POOL: u64 = 4096;

/// Between two signs of life of a simulated board.
pub(crate) const BEAT: Duration = Duration::from_secs(1);

/// How often a simulated board says its end, because each of these datagrams may be lost.
pub(crate) const ENDS: u32 = 3;

/// Pause between two of them.
pub(crate) const END_PAUSE: Duration = Duration::from_millis(20);

/// Bytes of a header that checksums cover, with the checksum itself.
pub(crate) const COVERED: usize = wire::limits::HEADER_CHECKED_BYTES + 4;

/// Ticks of GRETINA and GRETA, ns.
pub(crate) const GEB_TICK: i64 = 10;

/// Bytes of a header of a unit of GRETINA and GRETA.
pub(crate) const GEB_HEADER: usize = 16;

/// Bytes of the header of a unit of framing `hadaq`.
pub(crate) const HADAQ_UNIT: usize = 8;

/// Units and sub-events of framing `hadaq` are padded to a multiple of this, bytes.
pub(crate) const HADAQ_ALIGN: usize = 8;

/// Bytes of a unit that stand again behind it.
pub(crate) const HADAQ_TRAILER: usize = 32;

/// Bytes of a sub-event by which a copy of it is recognised: the header, which is the same whenever a board begins
/// again, and enough of its times, which are not.
pub(crate) const HADAQ_MARK_BYTES: usize = 256;

/// Bytes of the header of framing `ess`, by its version.
pub(crate) const ESS_HEADERS: [usize; 2] = [30, 32];

/// Output queues of framing `ess`.
pub(crate) const ESS_QUEUES: usize = 12;

/// Ticks a second of framing `ess`.
pub(crate) const ESS_TICKS: u64 = 88_052_500;

/// Bytes of the header of a sub-event of framing `hadaq`.
pub(crate) const HADAQ_HEADER: usize = 16;

/// Numbers of triggers of framing `hadaq` begin again here.
pub(crate) const HADAQ_WRAP: u64 = 1 << 24;

/// Bit of the id of a sub-event of framing `hadaq` by which its sender says that its data have errors.
pub(crate) const HADAQ_ERROR: u32 = 1 << 31;

/// Numbers of framing `ess` begin again here.
pub(crate) const ESS_WRAP: u64 = 1 << 32;

/// Between two frames of a throttle that holds, ns.
pub(crate) const THROTTLE_REPEAT: i64 = 100_000_000;

/// How often a throttle that holds looks at the memory, ns.
pub(crate) const THROTTLE_LOOK: i64 = 5_000_000;

/// Pause after a frame that could not be sent, ns.
pub(crate) const THROTTLE_RETRY: i64 = 10_000_000;

/// Dead time is filed in parts of this length, ns.
pub(crate) const THROTTLE_PART: i64 = 1_000_000_000;

/// Frames that release a board, because each of them may be lost.
pub(crate) const RELEASES: u32 = 3;

/// Pause between two of them, ns.
pub(crate) const RELEASE_PAUSE: i64 = 20_000_000;

/// A simulated board that hears nothing for this time sends again, ns: ten frames are then missing.
pub(crate) const HOLD_MAX: u64 = 1_000_000_000;

/// How often simulated boards look for frames of throttles.
pub(crate) const LISTEN_NAP: Duration = Duration::from_micros(500);

/// Connections of throttles to simulated boards: more than the largest arrays have boards.
pub(crate) const LINES_MAX: usize = 4096;

/// Bytes of a frame of a throttle: a header, the fill in thousandths (u32), and zero (u32).
pub(crate) const FRAME_BYTES: usize = wire::limits::HEADER_BYTES + 8;

/// Bytes of the header of an event of format `hld`.
pub(crate) const HLD_HEADER: usize = 32;

/// Id of the event of format `hld` that starts a run.
pub(crate) const HLD_START: u32 = 0x0001_0002;

/// Id of the event of format `hld` that stops a run.
pub(crate) const HLD_STOP: u32 = 0x0001_0003;

/// Id of an event of format `hld` with data; the type of its trigger is in the lowest bits.
pub(crate) const HLD_DATA: u32 = 0x2001;

/// The word `decoding` of events of format `hld` that beamport writes.
pub(crate) const HLD_DECODING: u32 = 0x0003_0001;

/// Numbers of runs of format `hld` are seconds from here on, s since 1970 UTC.
pub(crate) const HLD_RUNS_BEGIN: i64 = 1_200_000_000;

/// Bytes from the beginning or the end of a unit at which a field of a table may lie: a datagram has no more.
pub(crate) const FIELD_AT_MAX: i64 = 65_535;

/// Bytes of a unit by which a copy of it is recognised, where a table describes it: its header, as a rule.
pub(crate) const MARK_BYTES: usize = 64;

/// Bytes of a capture that are read at once: the largest packet, with its options.
pub(crate) const CAPTURE_BLOCK_BYTES: usize = 1 << 20;

/// Bytes of a line of hexadecimal digits: four for each byte of the largest datagram, with blanks.
pub(crate) const HEX_LINE_BYTES: u64 = 1 << 18;

/// Recorded datagrams that are shown field by field: as they should be, and refused for each reason.
pub(crate) const INSPECTED: u64 = 2;

/// Bytes that are shown of a recorded datagram that is refused.
pub(crate) const INSPECTED_BYTES: usize = 32;

/// Messages of one datagram that a library may find: of 65,507 bytes 255 bytes each.
pub(crate) const LIBRARY_CUTS: usize = 256;

/// The version of `include/beamport_framing.h`.
pub(crate) const FRAMING_VERSION: i32 = 1;
