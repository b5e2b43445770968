//! Trees of chunks that a killed writer left with a half twice.
//!
//! When libhdf5 splits a node, the new node gets a part of its entries, and [`metadata`](crate::hdf::metadata) writes the
//! shorter node only after a while, for readers that know its parent from before. After a kill both nodes have those
//! entries. A reader finds each chunk all the same, since the parent names the node; a walk over all chunks finds some
//! twice. [`mend`] writes what the kill prevented.
//!
//! Source of the layouts: HDF5 File Format Specification 3.0, III.A.1 (version 1 B-trees), IV.A.1.b (object headers of
//! version 2), IV.A.2.i (data layout, version 3) and IV.A.2.q (continuation).

use crate::hdf::handle::FileHandle;
use crate::limits::{CHUNK_TREE_HALF, HEADER_PARTS_MAX, NODE_HEAD_BYTES, NODE_LEVELS_MAX};
use flow::Fault;

/// Level and entries of a node of a tree of chunks; none where the block is something else.
pub(crate) fn head(block: &[u8]) -> Option<(u8, usize)> {
    let is_node = block.len() >= NODE_HEAD_BYTES && block.starts_with(b"TREE") && block[4] == 1;
    is_node.then(|| (block[5], usize::from(u16::from_le_bytes([block[6], block[7]]))))
}

/// A node with the entries that it has now, and behind them those that went to another node, as they were; none where
/// it lost none. A root that was split lost none: it is a level higher.
pub(crate) fn with_tail(before: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    let ((level, had), (same, has)) = (head(before)?, head(now)?);
    // A node has room for all its entries and one key more. A key: bytes, mask, place in each dimension.
    let entries_max = 2 * CHUNK_TREE_HALF as usize;
    let key_bytes = now.len().checked_sub(NODE_HEAD_BYTES + entries_max * 8)? / (entries_max + 1);
    let entry = |block: &[u8], n: usize| {
        let at = NODE_HEAD_BYTES + n * (key_bytes + 8);
        block.get(at + 8..at + key_bytes).map(<[u8]>::to_vec)
    };
    let is_split = level == same && had > has && before.len() == now.len();
    if !is_split || (0..has).any(|n| entry(before, n) != entry(now, n)) {
        return None;
    }
    let used = NODE_HEAD_BYTES..NODE_HEAD_BYTES + has * (key_bytes + 8);
    let mut whole = before.to_vec();
    whole.get_mut(used.clone())?.copy_from_slice(now.get(used)?);
    Some(whole)
}

/// Shortens the nodes of the tree of a dataset, whose object header lies at `header`, that have entries of the next
/// node. How many; a block that is not as expected ends the work, and what reads the chunks then says what is wrong.
///
/// # Errors
/// The file cannot be read or written.
pub(crate) fn mend(handle: &mut FileHandle, header: u64) -> Result<usize, Fault> {
    let Some((root, dimensions)) = root(handle, header)? else { return Ok(0) };
    let key_bytes = 8 + 8 * dimensions;
    let (mut nodes, mut mended) = (vec![root], 0);
    for _ in 0..NODE_LEVELS_MAX {
        let mut children = Vec::new();
        for (at, place) in nodes.iter().enumerate() {
            let Some((level, mut count)) = read(handle, *place, NODE_HEAD_BYTES)?.as_deref().and_then(head) else {
                return Ok(mended);
            };
            let bytes = NODE_HEAD_BYTES + count * (key_bytes + 8) + key_bytes;
            let next = nodes.get(at + 1).copied();
            // Of a leaf the head is enough, as long as nothing is wrong.
            let wanted = if level > 0 { bytes } else { NODE_HEAD_BYTES };
            let Some(mut node) = read(handle, *place, wanted)? else { return Ok(mended) };
            if let Some(next) = next.filter(|next| number(&node, 16) != *next) {
                let first = read(handle, next, NODE_HEAD_BYTES + key_bytes)?;
                let (Some(first), Some(whole)) = (first, read(handle, *place, bytes)?) else { return Ok(mended) };
                node = whole;
                let key = |block: &[u8], n: usize| -> Vec<u64> {
                    (0..dimensions).map(|d| number(block, NODE_HEAD_BYTES + n * (key_bytes + 8) + 8 + 8 * d)).collect()
                };
                let moved = key(&first, 0);
                count = (0..count).take_while(|n| key(&node, *n) < moved).count();
                node[6..8].copy_from_slice(&(count as u16).to_le_bytes());
                node[16..24].copy_from_slice(&next.to_le_bytes());
                handle.put(*place, &node[..NODE_HEAD_BYTES])?;
                mended += 1;
            }
            if level > 0 {
                children.extend((0..count).map(|n| number(&node, NODE_HEAD_BYTES + n * (key_bytes + 8) + key_bytes)));
            }
        }
        if children.is_empty() {
            break;
        }
        nodes = children;
    }
    Ok(mended)
}

/// Root and dimensions of the tree that the object header names: one more than the dataset has.
fn root(handle: &FileHandle, header: u64) -> Result<Option<(u64, usize)>, Fault> {
    let Some(start) = read(handle, header, 64)? else { return Ok(None) };
    if !start.starts_with(b"OHDR") || start[4] != 2 {
        return Ok(None);
    }
    let flags = start[5];
    let times = if flags & 0x20 != 0 { 16 } else { 0 };
    let phases = if flags & 0x10 != 0 { 4 } else { 0 };
    let (at, width) = (6 + times + phases, 1 << (flags & 3));
    let length = start[at..at + width].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let mut parts = vec![(header + (at + width) as u64, length)];
    let message_head = if flags & 4 != 0 { 6 } else { 4 };
    let mut seen = 0;
    while let Some((at, length)) = parts.pop().filter(|_| seen < HEADER_PARTS_MAX) {
        seen += 1;
        let Some(part) = read(handle, at, length as usize)? else { return Ok(None) };
        let mut rest = &part[..];
        while rest.len() >= message_head {
            let (kind, bytes) = (rest[0], usize::from(u16::from_le_bytes([rest[1], rest[2]])));
            let Some(body) = rest.get(message_head..message_head + bytes) else { break };
            match kind {
                8 if body.len() >= 11 && body[..2] == [3, 2] => {
                    let root = number(body, 3);
                    return Ok((root != u64::MAX).then(|| (root, usize::from(body[2]))));
                }
                // A signature before its messages, and a checksum behind them.
                16 if body.len() >= 16 => parts.push((number(body, 0) + 4, number(body, 8).saturating_sub(8))),
                _ => (),
            }
            rest = &rest[message_head + bytes..];
        }
    }
    Ok(None)
}

/// Bytes of the file; none where the file is shorter.
fn read(handle: &FileHandle, at: u64, bytes: usize) -> Result<Option<Vec<u8>>, Fault> {
    let is_inside = at.checked_add(bytes as u64).is_some_and(|end| end <= handle.length().unwrap_or(0));
    if is_inside { handle.read(at, bytes).map(Some) } else { Ok(None) }
}

fn number(block: &[u8], at: usize) -> u64 {
    block.get(at..at + 8).map_or(u64::MAX, |bytes| u64::from_le_bytes(bytes.try_into().unwrap_or([0xff; 8])))
}
