//! Stages, credit, runs and the ledger. No protocols, no sockets, no files, no clock of its own.
mod fault;
mod sink;
mod source;
pub use fault::Fault;
pub use sink::{Aside, Product, Sink};
pub use source::{Outlet, Pushed, Resume, ResumeOrigin, Source, Step};
