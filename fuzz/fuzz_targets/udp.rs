//! Any bytes as a datagram of each framing, and as a file of units.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| udp::fuzz::fuzz(bytes));
