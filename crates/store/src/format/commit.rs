//! The commit records of a stream on disk.

use crate::error::{Error, Result};
use crate::format::crc::crc32c;
use crate::format::entry::salt;
use crate::outside::media::{Media, Open, read_again};
use std::path::Path;

/// One commit record: what is on the medium.
///
/// ```text
///  0 u64 generation   8 u64 count   16 u64 first   24 u32 epoch   28 u32 payload segment
/// 32 u64 bytes used in it   40 u32 first payload segment   44 u32 1 = closed cleanly
/// 48 [u8;12] zero   60 u32 CRC-32C of 0..60 xor salt(uuid, epoch 0, generation)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Grows by one with each record.
    pub generation: u64,
    /// Messages below this sequence are on the medium.
    pub count: u64,
    /// Lowest sequence kept.
    pub first: u64,
    /// Epoch of the newest message.
    pub epoch: u32,
    /// Payload segment written last.
    pub segment: u32,
    /// Bytes used in it.
    pub used: u64,
    /// Lowest payload segment kept.
    pub first_segment: u32,
    /// The writer ended here on purpose: nothing came after.
    pub clean: bool,
}

/// Bytes of a commit record.
pub(crate) const COMMIT_BYTES: usize = 64;

impl Commit {
    /// Where a record of this generation stands: alternating, a block apart.
    pub(crate) fn place(generation: u64) -> u64 {
        (generation % 2) * 4096
    }

    /// Its bytes. `seed` is the stream's salt seed of epoch 0.
    pub(crate) fn to_bytes(self, seed: u64) -> [u8; COMMIT_BYTES] {
        let mut b = [0; COMMIT_BYTES];
        b[0..8].copy_from_slice(&self.generation.to_le_bytes());
        b[8..16].copy_from_slice(&self.count.to_le_bytes());
        b[16..24].copy_from_slice(&self.first.to_le_bytes());
        b[24..28].copy_from_slice(&self.epoch.to_le_bytes());
        b[28..32].copy_from_slice(&self.segment.to_le_bytes());
        b[32..40].copy_from_slice(&self.used.to_le_bytes());
        b[40..44].copy_from_slice(&self.first_segment.to_le_bytes());
        b[44..48].copy_from_slice(&u32::from(self.clean).to_le_bytes());
        let crc = crc32c(&b[..60]) ^ salt(seed, self.generation);
        b[60..64].copy_from_slice(&crc.to_le_bytes());
        b
    }

    fn from_bytes(b: &[u8; COMMIT_BYTES], seed: u64) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let commit = Self {
            generation: u64_at(0),
            count: u64_at(8),
            first: u64_at(16),
            epoch: u32_at(24),
            segment: u32_at(28),
            used: u64_at(32),
            first_segment: u32_at(40),
            clean: u32_at(44) == 1,
        };
        let holds = crc32c(&b[..60]) ^ salt(seed, commit.generation) == u32_at(60);
        (holds && commit.first <= commit.count).then_some(commit)
    }

    /// The newest valid record, for a writer: a record that cannot be read is an error, since nothing may be cut for it.
    /// A stream with a header and no record is damaged: to read on from its first message would cut it.
    pub(crate) fn must_read(media: &dyn Media, folder: &Path, seed: u64) -> Result<Self> {
        match Self::read(media, folder, seed)? {
            (_, Some(e)) => Err(e),
            (newest, None) => newest.ok_or_else(|| Error::Format {
                path: folder.join("commit"),
                what: "neither of its two records is valid, so the mark is unknown; nothing was changed".into(),
            }),
        }
    }

    /// The place of a record that was written and does not verify. The first record of a stream is the one at 4096: a
    /// shorter file was cut off.
    pub(crate) fn damaged(media: &dyn Media, folder: &Path, seed: u64) -> Result<Option<u64>> {
        let path = folder.join("commit");
        let file = media.open(&path, Open::Read).map_err(Error::io("open", &path))?;
        if file.len().map_err(Error::io("read", &path))? < 4096 + COMMIT_BYTES as u64 {
            return Ok(Some(4096));
        }
        let (mut newest, mut empty) = (0, None);
        for place in [0, 4096] {
            let mut bytes = [0; COMMIT_BYTES];
            let lost = read_again(file.as_ref(), &mut bytes, place).is_err();
            match Self::from_bytes(&bytes, seed) {
                Some(commit) => newest = newest.max(commit.generation),
                None if lost || bytes != [0; COMMIT_BYTES] => return Ok(Some(place)),
                None => empty = Some(place),
            }
        }
        // Only the first record of a stream stands alone: each later one is written beside the one before it.
        Ok(empty.filter(|_| newest > 1))
    }

    /// The newest record that holds, or none, and why the medium does not give one. A reader or a repair continues with
    /// the other: what was marked since then proves itself.
    pub(crate) fn read(media: &dyn Media, folder: &Path, seed: u64) -> Result<(Option<Self>, Option<Error>)> {
        let path = folder.join("commit");
        let file = match media.open(&path, Open::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((None, None)),
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        let (mut newest, mut lost): (Option<Self>, _) = (None, None);
        for place in [0, 4096] {
            let mut bytes = [0; COMMIT_BYTES];
            let n = read_again(file.as_ref(), &mut bytes, place).unwrap_or_else(|e| {
                lost = Some(Error::io("read", &path)(e));
                0
            });
            if n == COMMIT_BYTES
                && let Some(commit) = Self::from_bytes(&bytes, seed)
                && newest.is_none_or(|known| known.generation < commit.generation)
            {
                newest = Some(commit);
            }
        }
        Ok((newest, lost))
    }
}
