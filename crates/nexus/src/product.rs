//! Size and hash of a finished file.
//!
//! The file is read back past the page cache, which does not hold it (the rows were written past it), and one thread reads
//! while the other hashes. It cannot be hashed as it is written: its first page changes until the last moment.

use crate::limits::HASH_BYTES;
use crate::pages::Pages;
use flow::{Fault, Product};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::sync_channel;

/// Size and SHA-256 of a file.
pub(crate) fn product(path: &Path) -> Result<Product, Fault> {
    let (size, sha256) = hashed(path).map_err(|e| Fault::new(format!("{} cannot be read again", path.display()), e))?;
    Ok(Product { file: path.display().to_string(), size, sha256, files: 1, bytes: size })
}

fn hashed(path: &Path) -> Result<(u64, String), Error> {
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let mut file = direct.or_else(|_| File::open(path))?;
    let (mut hash, mut size) = (Sha256::new(), 0);
    let (to_fill, empty) = sync_channel::<Pages>(2);
    let (to_hash, full) = sync_channel::<Result<(Pages, usize), Error>>(2);
    for _ in 0..2 {
        // There is a place for each.
        let _ = to_fill.send(Pages::of_bytes(HASH_BYTES));
    }
    std::thread::scope(|threads| {
        threads.spawn(move || {
            for mut buffer in empty {
                let read = fill(&mut file, path, buffer.bytes_mut());
                let end = !read.as_ref().is_ok_and(|bytes| *bytes == HASH_BYTES);
                if to_hash.send(read.map(|bytes| (buffer, bytes))).is_err() || end {
                    return;
                }
            }
        });
        for piece in full {
            let (buffer, bytes) = piece?;
            hash.update(&buffer.bytes()[..bytes]);
            size += bytes as u64;
            // Nobody fills it after the end.
            let _ = to_fill.send(buffer);
        }
        Ok(())
    })
    .map(|()| (size, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Fills the buffer; less only at the end of the file. What cannot be read directly is read through the page cache.
fn fill(file: &mut File, path: &Path, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                use std::io::{Seek, SeekFrom};
                let at = file.stream_position()?;
                let mut cached = File::open(path)?;
                cached.seek(SeekFrom::Start(at))?;
                *file = cached;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
