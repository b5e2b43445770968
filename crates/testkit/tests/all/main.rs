//! The tests of the crate from outside, in one program: linking it takes longer than running it. One that measures the
//! memory of its process is beside.

mod book;
mod clock;
mod content;
mod flows;
mod hosts;
mod intervals;
mod loss;
mod merge;
mod mirror;
mod receive;
mod relay;
mod runs;
mod status;
mod totals;
mod work;
