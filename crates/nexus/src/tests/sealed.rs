//! The hash that was made while a file was written is that of the finished file.

use crate::hdf::hash_tree::root;
use crate::tests::whole::messages::{job, packed, second};
use crate::{Job, Nexus};
use flow::Sink;
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("beamport-sealed-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Closes the file and compares; its bytes, and how many of them had to be read for the hash.
fn sealed(job: &Job, mut sink: Nexus) -> (u64, u64) {
    sink.set_stop(crate::tests::whole::messages::START);
    sink.close(Some(r#"{"closed": true, "lost": 0, "gaps": []}"#)).unwrap();
    let tree = sink.take_tree();
    let bytes = std::fs::read(&job.file).unwrap();
    let length = bytes.len() as u64;
    let read = tree.missing_bytes(length);
    assert_eq!(root(&job.file, tree).unwrap(), (length, blake3::hash(&bytes)));
    (length, read)
}

/// Files of every way to write them: how often is flushed, how many events a second, how they are packed.
fn ways(job: &Job) -> Vec<(Job, u64, usize)> {
    let mut ways = Vec::new();
    for job in [job.clone(), packed(job.clone(), "deflate"), packed(job.clone(), "bitshuffle-lz4")] {
        for (flushed, events) in [(1, 10), (1, 3_000), (3, 20_000), (100, 20_000), (7, 0)] {
            ways.push((job.clone(), flushed, events));
        }
    }
    ways
}

#[test]
fn the_hash_made_while_writing_is_that_of_the_file() {
    let folder = folder("ways");
    for (job, flushed, events) in ways(&job(&folder.join("ways.nxs"))) {
        let mut sink = Nexus::begin(job.clone(), true).unwrap();
        for n in 0..40 {
            second(&mut sink, n, events).unwrap();
            if n % flushed == 0 {
                sink.flush().unwrap();
            }
        }
        let (length, read) = sealed(&job, sink);
        println!("{flushed} {events}: {read} of {length} bytes read");
        // Only metadata and the block at the end are read; of a large file almost nothing.
        assert!(length < 50 << 20 || read < length / 10, "{read} of {length} bytes are unknown");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_hash_of_a_file_that_was_gone_on_with_is_that_of_the_file() {
    let folder = folder("resumed");
    for (job, flushed, events) in ways(&job(&folder.join("resumed.nxs"))) {
        let mut sink = Nexus::begin(job.clone(), true).unwrap();
        let mut state = sink.flush().unwrap();
        let mut next = 0;
        for n in 0..20 {
            second(&mut sink, n, events).unwrap();
            if n % flushed == 0 {
                let told = sink.flush().unwrap();
                // Of the last flushes no commit knows.
                if n < 15 {
                    (state, next) = (told, n + 1);
                }
            }
        }
        drop(sink);
        let mut sink = Nexus::resume(job.clone(), &state).unwrap();
        for n in next..30 {
            second(&mut sink, n, events).unwrap();
            sink.flush().unwrap();
        }
        sealed(&job, sink);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
