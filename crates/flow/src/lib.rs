//! Stages, credit, runs and the ledger. No protocols, no sockets, no files, no clock of its own: time comes in as an
//! argument, storage through the store's `Media`, so that whole flows run under testkit from a seed.

mod append;
pub mod book;
pub mod checked;
pub mod commits;
mod cuts;
mod data;
pub mod edge;
mod fault;
mod feed;
mod intake;
pub mod ledger;
pub mod limits;
mod live;
mod merge;
mod native;
pub mod records;
mod relay;
pub mod runs;
mod sink;
mod slot;
mod source;
pub mod status;
mod work;

pub use append::{Appender, Label};
pub use book::{Book, BookDamage, Keeps, Record};
pub use commits::{commits_of, last_commit, reader_name};
pub use data::{Data, RUNS, aside_of, each_batch, slot_stream, stream_fault, tasks_of, view_of};
pub use fault::{Fault, Passes};
pub use feed::{Fed, Feed, hold, until_now};
pub use intake::{Intake, IntakeOptions};
pub use limits::SLOTS_MAX;
pub use live::{Confirmed, Identity, InFlight, LiveBatch, LiveSink, Refused};
pub use merge::{Heard, INPUTS_MAX, Merge, MergeBy, MergeInput, MergeOptions};
pub use native::{Native, misfit};
pub use relay::{Relay, RelayOptions};
pub use runs::{RunKeeper, RunsView, StreamView};
pub use sink::{Aside, Product, Sink};
pub use slot::{Made, Outputs, Slot, SlotOptions, Stepped, Stop, Worker};
pub use source::{Outlet, Pushed, Resume, ResumeOrigin, Source, Step};
pub use work::statistics::{WorkerState, statistics_of};
pub use work::{Boundary, Overdue, Share, SlotState, Work, WorkOptions, WorkerNow, kept};
