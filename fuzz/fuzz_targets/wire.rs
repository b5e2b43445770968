//! Any bytes as a message of any schema.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzz::fuzz(bytes));
