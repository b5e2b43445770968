//! All tests of the crate from outside, in one program: linking it takes longer than running it.

mod camera;
mod configuration;
mod devices;
mod sources;
mod tape;
