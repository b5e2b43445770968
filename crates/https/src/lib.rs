//! HTTPS as the carrier of streams between the hosts of an instrument: `carrier = "https"`, for instruments without a
//! broker.
//!
//! A host whose streams others read is a server. A stream is the endless answer of a GET that begins at a position
//! (`uuid/epoch/sequence`); its blocks are made of the stream itself, so nothing is kept beside it. A PUT moves the
//! position of the far host, behind which the counted reader of the near host stands: then the stream may free
//! messages. The windows of TCP are the credit. The first host also is the hub of the bulletin.
//!
//! Constraints: TLS 1.3 alone, except on the loopback or where the file says `insecure`. All connections of a process
//! are tasks of one thread; async code is in `server.rs`, `client.rs` and the tasks of `far.rs`. Nothing from outside
//! may panic, hang or grow without bound: `limits.rs`.
//!
//! Failure behaviour: a connection that ends is opened again at the position of the mirror. A host that is away is the
//! trouble of those that read it, and its own streams keep what it has not read. There is no takeover.

mod bulletin;
mod client;
mod far;
mod framing;
mod hub;
mod kinds;
mod lane;
mod limits;
mod link;
mod near;
mod section;
mod server;
mod tls;

pub use kinds::CARRIER;
