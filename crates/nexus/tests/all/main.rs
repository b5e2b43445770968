//! All tests of the crate from outside, in one program: linking it takes longer than running it.

mod frames;
mod hostile;
mod large;
mod messages;
mod modules;
mod outside;
mod reading;
mod static_file;
mod writing;
