//! Any bytes as a block of messages from another host; valid blocks with changes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    store::fuzz::block(bytes);
});
