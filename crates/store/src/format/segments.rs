//! Segment files: their names, and the time table before the entries of an index segment.

use crate::error::{Error, Result};
use crate::format::crc::crc32c;
use crate::limits::TIME_BLOCK;
use crate::outside::media::Media;
use std::collections::BTreeSet;
use std::path::Path;

/// Name of a payload (`p`) or index (`i`) segment file.
pub(crate) fn segment_name(kind: char, number: u32) -> String {
    format!("{kind}-{number:08x}")
}

/// The number of a segment file of this kind, or none.
pub(crate) fn segment_number(kind: char, name: &str) -> Option<u32> {
    let digits = name.strip_prefix(kind)?.strip_prefix('-')?;
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// The numbers of the segment files of this kind in a folder. Who goes through a stream goes by them: a count or a number
/// that lies costs no more time than the files do.
pub(crate) fn segment_numbers(media: &dyn Media, folder: &Path, kind: char) -> Result<BTreeSet<u32>> {
    let names = media.list(folder).map_err(Error::io("list", folder))?;
    Ok(names.iter().filter_map(|name| segment_number(kind, name)).collect())
}

/// Bytes of a row of the time table: minimum i64, maximum i64, entries u32, CRC u32, zero u64.
pub(crate) const TIME_ROW_BYTES: u64 = 32;

/// Bytes of the time table of an index segment. It stands before the entries, so that a file that is allocated from its
/// start costs no more than its entries do.
pub(crate) fn table_bytes(index_entries: u64) -> u64 {
    (index_entries / TIME_BLOCK * TIME_ROW_BYTES).next_multiple_of(4096)
}

/// A row of the time table: smallest and largest source time of a block, proven for its place.
pub(crate) fn time_row(block: (i64, i64), salt: u32) -> [u8; TIME_ROW_BYTES as usize] {
    let mut row = [0; TIME_ROW_BYTES as usize];
    row[0..8].copy_from_slice(&block.0.to_le_bytes());
    row[8..16].copy_from_slice(&block.1.to_le_bytes());
    row[16..20].copy_from_slice(&(TIME_BLOCK as u32).to_le_bytes());
    let crc = crc32c(&row[..20]) ^ salt;
    row[20..24].copy_from_slice(&crc.to_le_bytes());
    row
}
