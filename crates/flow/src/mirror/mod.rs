//! Streams between the hosts of an instrument, as state machines that every carrier of blocks uses: [`Packer`] makes
//! blocks ([`store::Block`]) of the messages of streams, [`Unpacker`] makes of them the messages of a mirror.
//!
//! Exactly once: a message has (uuid, epoch, sequence), never used twice. Blocks are carried in rising order; the far
//! side drops what its mirror has, which its entries say, and a block whose predecessor it has not is a hole.

mod follow;
mod packer;
mod request;
mod unpacker;

pub use follow::{Admission, Follow};
pub use packer::{Packer, Post, Sizes, add_message, payload_sum};
pub use request::MirrorRequest;
pub use unpacker::{BlockOrigins, Place, Unpacker};
