//! The tests of the crate from outside, in one program: linking it takes longer than running it. Those that measure the
//! memory of their process are beside.

mod frames;
mod hostile;
mod messages;
mod modules;
mod outside;
mod reading;
mod static_file;
mod writing;
