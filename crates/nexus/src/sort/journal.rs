//! Chunks on their way into the file, in a file beside it, so that a kill between two of them loses none.
//!
//! ```text
//! .NAME.sorting    is being written; nobody reads it
//! .NAME.sorted     whole and on disk: its chunks are to be put into NAME, again after a kill, then it goes
//! ```
//!
//! Format: 8 bytes [`MAGIC`]; of each chunk the lengths of path and bytes, first row, how it is put ([`IN_PLACE`] or the mask
//! of its filters), CRC-32C of its bytes and, in the upper half, of these four numbers and the path: five numbers of 8 bytes,
//! little endian; path; bytes. Five zeros end it.

use crate::hdf::h5::{Chunk, File, Growing, chunk_at};
use crate::hdf::handle::{FileHandle, PAGE};
use crate::hdf::metadata::{Apply, lock};
use crate::hdf::place::{cleared, sync_folder};
use crate::hdf::write_metadata;
use crate::limits::{CHUNK_BYTES_MAX, NAME_BYTES_MAX, ROW_BYTES_MAX, SORT_APPLY_BYTES};
use flow::Fault;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufReader, BufWriter, Error, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"bpsort 1";

/// The chunk keeps its place: nothing is packed.
const IN_PLACE: u64 = u64::MAX;

/// Bytes of a path in a file: a name for each group, and some to spare.
const PATH_BYTES_MAX: u64 = 64 * NAME_BYTES_MAX as u64;

fn beside(file: &Path, ending: &str) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    file.with_file_name(format!(".{name}.{ending}"))
}

/// Whether chunks are still to be put into the file.
pub(crate) fn is_begun(file: &Path) -> bool {
    beside(file, "sorted").symlink_metadata().is_ok()
}

/// Removes what an earlier writer left of another file of that name.
pub(crate) fn forget(file: &Path) -> Result<(), Fault> {
    cleared(&beside(file, "sorting"))?;
    cleared(&beside(file, "sorted"))
}

/// A list of chunks that grows.
pub(super) struct Journal {
    target: PathBuf,
    file: BufWriter<std::fs::File>,
    /// Bytes of chunks that get a new place, at most.
    placed: u64,
    pub(super) bytes: u64,
}

impl Journal {
    pub(super) fn begin(target: &Path, handle: &FileHandle) -> Result<Self, Fault> {
        let path = beside(target, "sorting");
        cleared(&path)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = BufWriter::with_capacity(1 << 20, file.map_err(|e| handle.refused(&path, &e))?);
        file.write_all(MAGIC).map_err(|e| handle.refused(&path, &e))?;
        Ok(Self { target: target.to_path_buf(), file, placed: 0, bytes: 0 })
    }

    /// Adds a chunk; `mask` is of one that gets a new place.
    pub(super) fn add(
        &mut self,
        handle: &FileHandle,
        path: &str,
        row: u64,
        mask: Option<u32>,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let how = mask.map_or(IN_PLACE, u64::from);
        let head = [path.len() as u64, bytes.len() as u64, row, how];
        let head = [head[0], head[1], head[2], head[3], sums(head, path.as_bytes(), bytes)].map(u64::to_le_bytes);
        let parts = [head.as_flattened(), path.as_bytes(), bytes];
        let written = parts.into_iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(|e| handle.refused(&beside(&self.target, "sorting"), &e))?;
        #[cfg(test)]
        crate::hdf::look::look_between(&self.target);
        self.bytes += bytes.len() as u64;
        self.placed += mask.map_or(0, |_| (bytes.len() + PAGE).next_multiple_of(PAGE) as u64);
        Ok(())
    }

    /// Ends the list: on disk, with the room that its chunks need, under its name.
    pub(super) fn end(mut self, file: &File, handle: &mut FileHandle) -> Result<(), Fault> {
        let (begun, whole) = (beside(&self.target, "sorting"), beside(&self.target, "sorted"));
        let end = file.held().map_or(0, |held| lock(&held).end());
        if self.placed > 0 {
            handle.reserve(end + self.placed)?;
        }
        let ended = self.file.write_all(&[0; 40]).and_then(|()| self.file.flush());
        let synced = ended.and_then(|()| self.file.get_ref().sync_data());
        synced.map_err(|e| handle.refused(&begun, &e))?;
        let moved = std::fs::rename(&begun, &whole).and_then(|()| sync_folder(&whole));
        moved.map_err(|e| handle.refused(&whole, &e))?;
        #[cfg(test)]
        crate::hdf::look::look_between(&self.target);
        Ok(())
    }
}

/// Puts the chunks of a whole list into the file and removes it; nothing where there is none. The answer is how many chunks
/// there were. Whatever of it was done before is done again, or seen to be done.
pub(super) fn apply(target: &Path, file: &File, handle: &mut FileHandle) -> Result<u64, Fault> {
    let path = beside(target, "sorted");
    let failed = |e: Error| Fault::new(format!("cannot read {}", path.display()), e);
    let list = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(0),
        list => list.map_err(failed)?,
    };
    let mut list = BufReader::with_capacity(1 << 20, list);
    let mut magic = [0; 8];
    list.read_exact(&mut magic).map_err(failed)?;
    if magic != *MAGIC {
        return Err(failed(Error::other("beamport did not create it")));
    }
    let mut put = Put { file, handle, dataset: None, free: Vec::new(), left: Vec::new(), waiting: 0, count: 0 };
    while let Some(chunk) = next(&mut list).map_err(failed)? {
        put.put(&chunk)?;
    }
    put.tell()?;
    let count = put.count;
    cleared(&path)?;
    sync_folder(&path).map_err(failed)?;
    #[cfg(test)]
    crate::hdf::look::look_between(target);
    Ok(count)
}

/// A chunk as the list has it.
struct Listed {
    path: String,
    row: u64,
    /// Of one that gets a new place.
    mask: Option<u32>,
    bytes: Vec<u8>,
}

/// Checksums of what stands before the bytes of a chunk, and of these.
fn sums(head: [u64; 4], path: &[u8], bytes: &[u8]) -> u64 {
    let before = [head.map(u64::to_le_bytes).as_flattened(), path].concat();
    u64::from(store::crc32c(&before)) << 32 | u64::from(store::crc32c(bytes))
}

/// The next chunk; none at the end.
fn next(list: &mut impl Read) -> Result<Option<Listed>, Error> {
    let mut head = [[0; 8]; 5];
    list.read_exact(head.as_flattened_mut())?;
    let [path, bytes, row, how, known] = head.map(u64::from_le_bytes);
    let numbers = [path, bytes, row, how];
    if head == [[0; 8]; 5] {
        return Ok(None);
    }
    if path > PATH_BYTES_MAX || bytes > ROW_BYTES_MAX.max(CHUNK_BYTES_MAX as u64) {
        return Err(Error::other("a chunk has an impossible length"));
    }
    let (mut path, mut bytes) = (vec![0; path as usize], vec![0; bytes as usize]);
    list.read_exact(&mut path)?;
    list.read_exact(&mut bytes)?;
    if sums(numbers, &path, &bytes) != known {
        return Err(Error::other("a chunk does not verify"));
    }
    let path = String::from_utf8(path).map_err(Error::other)?;
    Ok(Some(Listed { path, row, mask: u32::try_from(how).ok(), bytes }))
}

/// Chunks that go into a file.
struct Put<'a> {
    file: &'a File,
    handle: &'a mut FileHandle,
    /// That of the last chunk, with its path and its chunks.
    dataset: Option<(String, Growing, BTreeMap<u64, Chunk>)>,
    /// Places, with their bytes, that the file on disk does not name any more.
    free: Vec<(u64, u64)>,
    /// The same, but that it still does.
    left: Vec<(u64, u64)>,
    /// Bytes since the file was told last.
    waiting: u64,
    count: u64,
}

impl Put<'_> {
    fn put(&mut self, Listed { path, row, mask, bytes }: &Listed) -> Result<(), Fault> {
        let row = *row;
        let (_, dataset, chunks) = match &mut self.dataset {
            Some(last) if last.0 == *path => last,
            other => {
                let dataset = self.file.open_growing(path)?.0;
                let chunks = dataset.chunks()?;
                other.insert((path.clone(), dataset, chunks))
            }
        };
        let length = bytes.len() as u64;
        let chunk = chunk_at(chunks, row)?;
        self.count += 1;
        let Some(mask) = *mask else {
            if length > chunk.bytes {
                return Err(Fault::new(format!("a chunk of `{path}` has changed"), format!("row {row}")));
            }
            return self.handle.put(chunk.place, bytes);
        };
        if (chunk.mask, chunk.bytes) == (mask, length) {
            // After a kill it may be done; the place of one that is only allotted may lie behind the end.
            let mut known = vec![0; bytes.len()];
            if self.handle.read_into(chunk.place, &mut known).is_ok() && known == *bytes {
                return Ok(());
            }
            // A reader must not meet half of it, so it does not stay where it is, as one of as many bytes would.
            dataset.put_chunk(row, length + 1, mask, Some(chunk.place))?;
        }
        let fitting = self.free.iter().enumerate().filter(|(_, (_, handle))| *handle >= length);
        let place = fitting.min_by_key(|(_, (_, handle))| *handle).map(|(at, _)| at);
        let place = place.map(|at| self.free.swap_remove(at).0);
        let place = dataset.put_chunk(row, length, mask, place)?;
        chunks.insert(row, Chunk { place, bytes: length, mask });
        self.handle.put(place, bytes)?;
        self.left.push((chunk.place, chunk.bytes));
        self.waiting += length;
        if self.waiting >= SORT_APPLY_BYTES { self.tell() } else { Ok(()) }
    }

    /// Has the file name the places of all chunks.
    fn tell(&mut self) -> Result<(), Fault> {
        write_metadata(self.file, self.handle, Apply::Grown)?;
        self.free.append(&mut self.left);
        self.waiting = 0;
        Ok(())
    }
}
