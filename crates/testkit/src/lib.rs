//! Pretend clock and disk, fault injection; development only.
//!
//! [`Machine`] is a computer that forgets what was not synced; [`PretendMedia`] is one process on it. Everything that goes
//! wrong follows from a seed, so that a failure can be seen again.

mod dice;
mod flows;
mod histories;
mod media;
mod memory;
mod ports;
mod slots;
mod sums;
mod world;

pub use dice::Dice;
pub use flows::{Flow, Tally};
pub use histories::{Counts, histories};
pub use media::{Machine, PretendMedia};
pub use ports::{free_port, free_ports};
pub use slots::Slots;
pub use sums::{wrong_in, wrong_sums};
pub use world::Ignore;
