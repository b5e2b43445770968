//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Bytes of a configuration file: the longest in use has a few kilobytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Longest duration of an option. A job that takes longer to settle is a mistake of units.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// Least memory of the writer: one job with the smallest stream that keeps up with a topic.
pub(crate) const MEMORY_MIN: u64 = 16 << 20;

/// Largest verbosity in digits.
pub(crate) const VERBOSITY_MAX: u8 = 6;

/// Mistakes of a configuration file that are listed.
pub(crate) const CONFIG_MISTAKES_MAX: usize = 100;

/// Characters of a topic's name, as Kafka has it.
pub(crate) const TOPIC_CHARS_MAX: usize = 249;
