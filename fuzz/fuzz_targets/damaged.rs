//! Real streams with their files changed as the bytes say: read, judged, verified, repaired, taken up again.
#![no_main]

use std::path::PathBuf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = PathBuf::from(format!("/dev/shm/beamport-damage-{}", std::process::id()));
    store::fuzz::damaged(bytes, &folder);
    let _ = std::fs::remove_dir_all(folder);
});
