//! What a stream costs and what it leaves behind, on the real file system.

use beamport_store::*;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder of one test, removed with the live places of the streams in it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("keep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn stream(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for stream in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if let Ok(header) = Header::read(Os::shared().as_ref(), &stream.path()) {
                let _ = std::fs::remove_dir_all(header.live);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn meta(n: u64) -> Meta {
    Meta { source_time: n as i64 * 1000, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 }
}

/// Bytes that the files in a folder occupy.
fn occupied(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn an_idle_stream_took_megabytes_for_its_time_table() {
    let media = Os::shared();
    let place = Place::new("idle");
    let folder = place.stream("s");
    let mut writer = Writer::open(&media, &folder, "s", &Options::disk(1 << 30)).unwrap();
    for n in 0..300 {
        writer.append(&meta(n), &n.to_le_bytes()).unwrap();
    }
    assert!(writer.wait(300, Level::Disk, Duration::from_secs(60)).unwrap());
    let live = occupied(&writer.header().live);
    assert!(live <= 64 << 10, "{live} B of shared memory");
    let index = std::fs::metadata(folder.join("i-00000000")).unwrap().blocks() * 512;
    assert!(index <= 64 << 10, "{index} B on the disk");
    // The table is there and finds what it is for.
    let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
    assert_eq!(reader.time_range(5000, 7000).unwrap(), (5, 7));
}
