//! The beamport command.
fn main() {}
