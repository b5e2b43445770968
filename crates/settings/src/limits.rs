//! Limits of what is read, each with its reason.

use std::time::Duration;

/// Bytes of an instrument file. The largest real beamline has a few hundred sections of 100 bytes; more is a wrong file given by mistake.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Mistakes reported at once. Nobody reads more, and a wrong file must not cost minutes of looking for near words.
pub const MISTAKES_MAX: usize = 200;
/// Characters of foreign text repeated in a message, so that a hostile name cannot fill the screen.
pub const QUOTE_CHARS_MAX: usize = 64;
/// Bytes of a text value. Paths end at 4096 on Linux, nothing else comes near.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Longest duration: keeps every sum of a time and two durations within 64 bits of nanoseconds.
pub const DURATION_MAX: Duration = Duration::from_secs(50 * 365 * 86_400);
/// Characters of a name: a stream's becomes a folder, and with `.commits` must stay a legal file name everywhere.
pub const NAME_CHARS_MAX: usize = 64;
