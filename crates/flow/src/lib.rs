//! Stages, credit, runs and the ledger. No protocols, no sockets, no files and no clock of its own: time is an
//! argument, storage is the store's `Media`, so that whole flows run under testkit from a seed. Only [`control`], with
//! which another process asks a running instrument, has a socket.

mod account;
mod books;
pub mod checked;
mod content;
mod contract;
pub mod control;
mod fault;
pub mod job;
pub mod limits;
pub mod mirror;
mod runner;
pub mod status;

pub use account::{hosts, ledger};
pub use books::{book, commits, records, runs};
pub use contract::edge;

// Inside the crate a module has a short path too.
pub(crate) use account::{cuts, numbers, origins, totals};
pub(crate) use books::{aside, beside, data, extent, statistics, tally};
pub(crate) use contract::{live, room, slot, worker};
pub(crate) use runner::merge;

pub use account::origins::{OriginAccounts, Resume, ResumeOrigin, device_of, name_of_life};
pub use books::book::{Book, BookDamage, Keeps, Record};
pub use books::commits::{commits_of, last_commit, reader_name};
pub use books::data::{
    Data, RUNS, aside_of, each_batch, loose_of, loose_stream, not_written, retry_of, slot_stream, stream_fault,
    tasks_of, view_of, yielded_of,
};
pub use books::runs::{RunKeeper, RunsView, StreamView};
pub use books::statistics::{Statistics, statistics_of};
pub use contract::live::{Confirmed, InFlight, LiveBatch, LiveSink, Refused};
pub use contract::room::Pushed;
pub use contract::sink::{Aside, Product, Sink};
pub use contract::slot::{Outputs, Slot, SlotOptions, Stepped};
pub use contract::source::{Outlet, Silence, Source, Step};
pub use contract::worker::{Ended, Made, Stop, Waiting, Worker};
pub use fault::{Fault, Interruption, Passes};
pub use job::{LoadJob, SlotJob, SourceJob, SourceLoadJob, WriterJob};
pub use limits::{OF_WORKER, SLOTS_MAX};
pub use runner::append::{Appender, Label};
pub use runner::feed::{BYTES, Feed, FeedStep, hold, until_now};
pub use runner::intake::{Intake, IntakeOptions};
pub use runner::merge::{INPUTS_MAX, Merge, MergeBy, MergeInput, MergeOptions, TimeSlices, UpstreamState};
pub use runner::native::{Native, misfit};
pub use runner::relay::{Relay, RelayOptions};
pub use runner::work::statistics::WorkerState;
pub use runner::work::{
    Boundary, CodeTraits, Overdue, Share, SlotEnd, SlotState, Work, WorkOptions, WorkerNow, inputs_of, kept,
};
pub use store::Identity;
