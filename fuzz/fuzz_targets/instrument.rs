//! Any text as an instrument file: read, or refused with mistakes that can be printed.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|text: &str| {
    // Templates are other files; what is in them is for the writer to judge.
    match beamport::file::parse(text, Path::new("fuzz.toml"), &|_| Vec::new()) {
        Ok(instrument) => assert!(!instrument.name.is_empty()),
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "refused without a reason");
            let lines = text.lines().count().max(1);
            for mistake in mistakes {
                assert!(mistake.line as usize <= lines + 1, "a line that is not there: {mistake}");
                assert!(!mistake.to_string().is_empty());
            }
        }
    }
});
