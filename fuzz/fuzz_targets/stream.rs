//! Any bytes as the files of a stream: header, origins, commit records, index, payload. Read, verified, recovered.
#![no_main]

use std::path::PathBuf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = PathBuf::from(format!("/dev/shm/beamport-fuzz-{}", std::process::id()));
    store::fuzz::fuzz(bytes, &folder);
    let _ = std::fs::remove_dir_all(folder);
});
