//! All tests of the crate from outside, in one program: linking it takes longer than running it.

mod append;
mod cli;
mod compare;
mod ess_job;
mod history;
mod own;
mod receiver;
mod verbs;
