//! Every bound of this crate, each with its reason.

/// Events in one message. 1 Mi events are 8 MiB: more makes a message that other transports refuse, and a step that is no longer short.
pub const EVENTS_PER_MESSAGE_MAX: u32 = 1 << 20;

/// Events in one message that is built by size. The ESS event formation units begin a new message there (99 kB).
pub const EVENTS_PER_MESSAGE_ESS: u32 = 12_400;

/// Events made in one step before the runner is asked for another: about 10 ms at 20 ns each.
pub const EVENTS_PER_STEP: usize = 1 << 19;

/// Payload bytes made in one step, for sources that copy more than they compute: about 10 ms at 1 GB/s.
pub const BYTES_PER_STEP: usize = 8 << 20;

/// Messages made in one step, for sources of many small ones: about 10 ms at 500 ns each.
pub const MESSAGES_PER_STEP: usize = 20_000;

/// A source whose first step comes later than this does not make up for the pulses before it, ns.
pub const LATE_AT_START_NS: i64 = 2_000_000_000;

/// How soon a message is offered again after the stream had no room, ns.
pub const OFFER_AGAIN_NS: i64 = 1_000_000;

/// Events a second of any model: ten times the fastest ESS instrument. Above it a pulse no longer fits counters of 32 bits.
pub const RATE_MAX: f64 = 5e9;
/// Factor on the rate of a model: from 2 MW to a source that nobody has planned.
pub const SCALE_MAX: f64 = 100.0;

/// Sample angles in one program. Each has a table of 1 MiB that is computed at start in some 20 ms.
pub const ANGLES_MAX: usize = 32;

/// Cells of a measured histogram (pixels times time bins): 2 GiB of counts, sixteen times what AMOR has per pixel.
pub const HISTOGRAM_CELLS_MAX: usize = 1 << 29;

/// Samples a second of the alternating field: what the fastest digitisers of sample environment give.
pub const FIELD_SAMPLES_MAX: u32 = 10_000_000;

/// Bytes of an origin's name: names of process variables have at most 60.
pub const ORIGIN_BYTES_MAX: usize = 255;

/// Frames a second, at least: one in a quarter of an hour.
pub const FPS_MIN: f64 = 0.001;
/// Frames a second, at most: a frame each microsecond is more than memory takes, whatever its size.
pub const FPS_MAX: f64 = 1e6;

/// Bytes of one frame: half of what a message can have. 4096 x 4096 pixels of 8 bytes are an eighth of it.
pub const FRAME_BYTES_MAX: u64 = 1 << 30;

/// Dimensions of a frame: what areaDetector has.
pub const FRAME_DIMENSIONS_MAX: usize = 10;

/// Pixels of all frames that are made ahead: some 4 s at 30 ns each, and at most 1 GiB.
pub const FRAMES_PIXELS_MAX: u64 = 1 << 27;

/// Counts of a pixel: beyond it the distance between neighbours in float32 is more than the noise.
pub const COUNTS_MAX: f64 = 1e12;

/// Files of one camera: each takes a descriptor, of which a process has 1024.
pub const FILES_MAX: usize = 256;

/// Process variables of the metadata of a camera: twice what a large beam line records.
pub const FRAME_VALUES_MAX: u32 = 10_000;

/// Detectors of one instrument: beyond it they are no streams any more.
pub const DETECTORS_MAX: u32 = 4096;
/// Coincidences a second: each detector draws all of them, in some 100 ns.
pub const COINCIDENCES_MAX: f64 = 1e6;
/// Detectors that take part in a coincidence: they are drawn one by one.
pub const MULTIPLICITY_MAX: u32 = 256;

/// Messages that say how much a source writes: a Poisson rate to 3 %.
pub(crate) const WRITTEN_MESSAGES: u64 = 1000;
/// Pretended time that says enough, with that many messages: a second has 14 pulses.
pub(crate) const WRITTEN_SPAN_NS: i64 = 1_000_000_000;
/// Pretended time at most, for sources that are nearly silent.
pub(crate) const WRITTEN_SPAN_MAX_NS: i64 = 60_000_000_000;
/// Bytes at most: some 30 ms.
pub(crate) const WRITTEN_BYTES_MAX: u64 = 32 << 20;
/// Larger frames are not made for this: beside their pixels the rest of a message is nothing.
pub(crate) const WRITTEN_FRAME_BYTES_MAX: u64 = 64 << 10;
/// When the pretended time begins, ns since 1970 UTC.
pub(crate) const WRITTEN_FROM: i64 = 1_790_000_000_000_000_000;
