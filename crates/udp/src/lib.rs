//! Detectors that send UDP, as sources: `kind = "udp"`; and simulated boards that send what a detector would.
//!
//! Constraints: a source owns no thread. Its socket wakes it; the thread sleeps between two wakes, so that each
//! takes many datagrams. The kernel writes datagrams of about one size into stream memory; others are copied once.
//! Nothing is allocated and no lock is taken for a message.
//!
//! Failure behaviour: a board cannot wait. Datagrams that the kernel delivers are stored or counted; what it does not
//! deliver is counted with its cause, from the numbers of the board (`numbers.rs`). Bytes that are no datagram of a
//! board are
//! counted as `refused.REASON`.

mod account;
mod boards;
mod boards_plan;
mod capture;
mod files;
pub mod framing;
pub mod fuzz;
mod inspect;
mod kinds;
mod limits;
mod network;
mod numbers;
mod owner;
mod plan;
mod port;
mod socket;
mod source;
mod stamped;
mod throttle;
mod zero;

pub use boards::send;
pub use files::{FILE, GEB, HLD};
pub use kinds::{SOURCE, read, source};
pub use plan::Plan;
