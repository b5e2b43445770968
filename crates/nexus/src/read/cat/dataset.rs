//! A dataset of a file from outside, read in pieces by rows.
//!
//! libhdf5 reads and unpacks; bitshuffle with LZ4, which it does not know, is registered here. Nothing that lies in
//! other files is opened, no piece is larger than the caller allows, and a dataset that claims more rows than its bytes
//! can be is refused: a few bytes of a damaged file must not keep a reader busy for years.

use crate::hdf::filter::Filter;
use crate::hdf::h5::{self, File, Hid, Id, call, new_id, number_type};
use crate::limits::{CHUNK_BYTES_MIN, READ_PACKED_MAX, READ_SECONDS_MAX, ROW_BYTES_MAX, TEXT_WIDTH_MAX};
use crate::read::search::{Found, scale};
use flow::Fault;
use hdf5_metno_sys::{h5 as sys, h5d, h5g, h5l, h5p, h5s, h5t, h5z};
use serde_json::{Value, json};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Once;
use wire::DType;

/// Values of a row that are shown.
const SHOWN: u64 = 8;

/// The type of the values of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Signed,
    Unsigned,
    Real,
    /// Texts of this many bytes.
    Text,
}

/// A dataset whose first dimension is rows.
pub(super) struct Dataset {
    found: Found,
    class: Class,
    /// Bytes of a value in the file.
    width: usize,
    /// Lengths that are read of each row, of as many dimensions as it has.
    part: Vec<u64>,
    pub(super) rows: u64,
    /// Whether it can get more.
    pub(super) grows: bool,
}

impl Dataset {
    /// None where it holds nothing that could be shown in rows.
    pub(super) fn open(file: &File, path: &str) -> Result<Option<Self>, Fault> {
        know_bitshuffle()?;
        let Some(found) = Found::open(file, path)? else { return Ok(None) };
        let Some((rows, row)) = found.shape.split_first() else { return Ok(None) };
        let cells = row.iter().try_fold(1_u64, |all, length| all.checked_mul(*length)).unwrap_or(u64::MAX);
        let (width, sign, variable) = found.kind()?;
        let class = match found.class {
            h5t::H5T_class_t::H5T_INTEGER if sign => Class::Signed,
            h5t::H5T_class_t::H5T_INTEGER => Class::Unsigned,
            h5t::H5T_class_t::H5T_FLOAT => Class::Real,
            h5t::H5T_class_t::H5T_STRING if !variable && (1..=TEXT_WIDTH_MAX).contains(&width) => Class::Text,
            _ => return Ok(None),
        };
        if cells == 0 || cells.saturating_mul(width as u64) > ROW_BYTES_MAX {
            return Ok(None);
        }
        // SAFETY: an open dataset.
        let stored = h5::locked(|| unsafe { h5d::H5Dget_storage_size(found.id.0) });
        let most = stored.saturating_add(CHUNK_BYTES_MIN as u64).saturating_mul(READ_PACKED_MAX);
        if rows.saturating_mul(cells).saturating_mul(width as u64) > most {
            let cause = format!("`{path}` has {rows} rows in {stored} bytes");
            return Err(Fault::new("cannot read a dataset", cause).hint("write the file again: it is damaged or empty"));
        }
        let mut part = vec![1; row.len()];
        if cells <= SHOWN {
            part.clone_from_slice(row);
        } else if let Some(last) = part.last_mut() {
            *last = row.last().map_or(1, |length| (*length).min(SHOWN));
        }
        let (rows, grows) = (*rows, found.grows()?);
        Ok(Some(Self { found, class, width, part, rows, grows }))
    }

    pub(super) fn is_scalar(&self) -> bool {
        self.found.shape.len() == 1 && self.class != Class::Text
    }

    /// Bytes that a row takes in memory.
    pub(super) fn row_bytes(&self) -> usize {
        let bytes = if self.class == Class::Text { self.width } else { 8 };
        self.part.iter().product::<u64>() as usize * bytes
    }

    /// What a time in it is: ns of one, and ns since 1970 of zero. `None` where it cannot be known.
    pub(super) fn clock(&self) -> Option<(f64, i64)> {
        let unit = self.found.text(c"units").unwrap_or_default();
        let scale = if unit.is_empty() { 1.0 } else { scale(&unit)? };
        let zero = self.found.text(c"offset").or_else(|| self.found.text(c"start"));
        Some((scale, zero.map_or(Some(0), |text| crate::clock::of_iso8601(&text))?))
    }

    /// How far cues are from each other at most, ns, where they say it.
    pub(super) fn cue_every(&self) -> Option<i64> {
        let seconds: f64 = self.found.text(c"cue_seconds")?.parse().ok()?;
        (seconds.is_finite() && seconds > 0.0).then_some((seconds * 1e9) as i64)
    }

    /// The times of rows, ns since 1970.
    pub(super) fn times(&self, clock: (f64, i64), first: u64, count: usize) -> Result<Vec<i64>, Fault> {
        let (scale, zero) = clock;
        // Whole ns stay exact.
        let whole = |value: i64| {
            if scale == 1.0 { value.saturating_add(zero) } else { (value as f64 * scale) as i64 + zero }
        };
        Ok(match self.read(first, count)? {
            Cells::Signed(all) => all.into_iter().map(whole).collect(),
            Cells::Unsigned(all) => all.into_iter().map(|v| whole(i64::try_from(v).unwrap_or(i64::MAX))).collect(),
            Cells::Real(all) => all.into_iter().map(|v| ((v * scale) as i64).saturating_add(zero)).collect(),
            Cells::Text(_) => Vec::new(),
        })
    }

    /// Rows of whole numbers that say where something is.
    pub(super) fn places(&self, first: u64, count: usize) -> Result<Vec<u64>, Fault> {
        Ok(match self.read(first, count)? {
            Cells::Signed(all) => all.into_iter().map(|v| u64::try_from(v).unwrap_or(0)).collect(),
            Cells::Unsigned(all) => all,
            _ => vec![0; count],
        })
    }

    /// Rows, each as JSON: a value, a list, or the first values of an array.
    pub(super) fn values(&self, first: u64, count: usize) -> Result<Vec<Value>, Fault> {
        let each = self.part.iter().product::<u64>() as usize;
        let cells = self.read(first, count)?;
        let value = |at: usize| match &cells {
            Cells::Signed(all) => json!(all[at]),
            Cells::Unsigned(all) => json!(all[at]),
            // As the shortest text that means it, not as the double that it becomes.
            Cells::Real(all) if self.width == 4 => json!((all[at] as f32).to_string().parse::<f64>().ok()),
            Cells::Real(all) => json!(all[at]),
            Cells::Text(bytes) => {
                let text = &bytes[at * self.width..][..self.width];
                let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
                json!(String::from_utf8_lossy(&text[..end]))
            }
        };
        let row = &self.found.shape[1..];
        let row_of = |at: usize| {
            if row.is_empty() {
                return value(at);
            }
            let first: Vec<Value> = (at * each..(at + 1) * each).map(value).collect();
            if row == self.part { json!(first) } else { json!({"dtype": self.dtype(), "shape": row, "first": first}) }
        };
        Ok((0..count).map(row_of).collect())
    }

    fn dtype(&self) -> String {
        let word = match self.class {
            Class::Signed => "int",
            Class::Unsigned => "uint",
            Class::Real => "float",
            Class::Text => return "text".into(),
        };
        format!("{word}{}", self.width * 8)
    }

    /// The shown part of rows.
    fn read(&self, first: u64, count: usize) -> Result<Cells, Fault> {
        let end = first.checked_add(count as u64).filter(|end| *end <= self.rows);
        if end.is_none() || count == 0 {
            return Err(Fault::new("cannot read a dataset", "it does not have these rows"));
        }
        let cells = count * self.part.iter().product::<u64>() as usize;
        Ok(match self.class {
            Class::Signed => Cells::Signed(self.fill(first, count, vec![0; cells], number_type(DType::Int64)?)?),
            Class::Unsigned => Cells::Unsigned(self.fill(first, count, vec![0; cells], number_type(DType::UInt64)?)?),
            Class::Real => Cells::Real(self.fill(first, count, vec![0.0; cells], number_type(DType::Float64)?)?),
            Class::Text => {
                let what = || "cannot read a dataset".to_owned();
                // SAFETY: an open dataset.
                let kind = new_id(what, || unsafe { h5d::H5Dget_type(self.found.id.0) })?;
                Cells::Text(self.fill(first, count, vec![0; cells * self.width], kind)?)
            }
        })
    }

    /// Fills `out`, which has room for the shown part of so many rows as `memory`.
    fn fill<T: bytemuck::Pod>(&self, first: u64, count: usize, mut out: Vec<T>, memory: Id) -> Result<Vec<T>, Fault> {
        let what = || "cannot read a dataset".to_owned();
        let rank = self.found.shape.len();
        let (mut start, mut size) = (vec![0; rank], vec![count as u64; 1]);
        start[0] = first;
        size.extend(&self.part);
        // SAFETY: an open dataset.
        let space = new_id(what, || unsafe { h5d::H5Dget_space(self.found.id.0) })?;
        let (set, none) = (h5s::H5S_SELECT_SET, std::ptr::null());
        // SAFETY: an open shape, and as many numbers as it has dimensions.
        call(what, || unsafe { h5s::H5Sselect_hyperslab(space.0, set, start.as_ptr(), none, size.as_ptr(), none) })?;
        // SAFETY: as many numbers as dimensions.
        let shape = new_id(what, || unsafe { h5s::H5Screate_simple(rank as c_int, size.as_ptr(), none) })?;
        let to = out.as_mut_ptr().cast();
        guarded(|| {
            // SAFETY: `out` has room for all values that are selected.
            call(what, || unsafe { h5d::H5Dread(self.found.id.0, memory.0, shape.0, space.0, h5p::H5P_DEFAULT, to) })
        })?;
        Ok(out)
    }
}

enum Cells {
    Signed(Vec<i64>),
    Unsigned(Vec<u64>),
    Real(Vec<f64>),
    Text(Vec<u8>),
}

/// Ends this process if libhdf5 does not come back: a damaged file can send it round in circles.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: sets and clears a timer of this process.
    unsafe { libc::alarm(READ_SECONDS_MAX) };
    let answer = work();
    // SAFETY: as above.
    unsafe { libc::alarm(0) };
    answer
}

/// Names that a group has itself, in order: links to elsewhere are left out.
pub(super) fn names(file: &File, group: &str) -> Result<Vec<String>, Fault> {
    extern "C" fn see(_: Hid, name: *const c_char, info: *const h5l::H5L_info2_t, names: *mut c_void) -> c_int {
        // SAFETY: libhdf5 gives a valid name and record, and `names` is ours.
        let (name, kind, names) = unsafe { (CStr::from_ptr(name), (*info).type_, &mut *names.cast::<Vec<String>>()) };
        if let (h5l::H5L_type_t::H5L_TYPE_HARD, Ok(name)) = (kind, name.to_str()) {
            names.push(name.to_owned());
        }
        c_int::from(names.len() >= crate::limits::SEARCH_OBJECTS_MAX)
    }
    let what = || format!("cannot read the group `{group}`");
    let name = h5::c_name(group)?;
    // SAFETY: an open file and a valid name.
    let id = new_id(what, || unsafe { h5g::H5Gopen2(file.id(), name.as_ptr(), h5p::H5P_DEFAULT) })?;
    let (index, order) = (sys::H5_index_t::H5_INDEX_NAME, sys::H5_iter_order_t::H5_ITER_INC);
    let mut names: Vec<String> = Vec::new();
    let to = std::ptr::from_mut(&mut names).cast();
    // SAFETY: an open group; the callback is called during the call only.
    call(what, || unsafe { h5l::H5Literate2(id.0, index, order, std::ptr::null_mut(), Some(see), to) })?;
    Ok(names)
}

/// Teaches libhdf5 to unpack bitshuffle with LZ4.
pub(crate) fn know_bitshuffle() -> Result<(), Fault> {
    static ONCE: Once = Once::new();
    let mut answer = Ok(0);
    ONCE.call_once(|| {
        let class = h5z::H5Z_class2_t {
            version: 1,
            id: Filter::BitshuffleLz4.stages(1)[0].0,
            // A writer asks for it; what is not packed stays as it is.
            encoder_present: 1,
            decoder_present: 1,
            name: c"bitshuffle with LZ4".as_ptr(),
            can_apply: None,
            set_local: None,
            filter: Some(unpack),
        };
        // SAFETY: a record that libhdf5 copies; its name and its function stay.
        answer = call(|| "a filter".into(), || unsafe { h5z::H5Zregister((&raw const class).cast()) });
    });
    answer.map(drop)
}

/// What libhdf5 calls for a chunk: 0 where it is not what the filter makes.
extern "C" fn unpack(
    flags: c_uint,
    count: usize,
    settings: *const c_uint,
    bytes: usize,
    handle: *mut usize,
    buffer: *mut *mut c_void,
) -> usize {
    if flags & h5z::H5Z_FLAG_REVERSE == 0 || count < 3 {
        return 0;
    }
    // SAFETY: libhdf5 gives as many settings as it says, and a buffer of so many bytes.
    let (element, packed) =
        unsafe { (*settings.add(2) as usize, std::slice::from_raw_parts((*buffer).cast::<u8>(), bytes)) };
    let says = packed.first_chunk().map_or(0, |head| u64::from_be_bytes(*head));
    // Not LZ4 but something else of the same library.
    // SAFETY: as above.
    let other = count >= 5 && unsafe { *settings.add(4) } != 2;
    if element == 0 || says == 0 || says > ROW_BYTES_MAX || other {
        return 0;
    }
    let Some(raw) = Filter::BitshuffleLz4.unpack(packed, element, says as usize) else { return 0 };
    // SAFETY: memory of libhdf5, with room for all, in place of what it gave.
    unsafe {
        let new = sys::H5allocate_memory(raw.len(), 0);
        if new.is_null() {
            return 0;
        }
        std::ptr::copy_nonoverlapping(raw.as_ptr(), new.cast(), raw.len());
        sys::H5free_memory(*buffer);
        (*buffer, *handle) = (new, raw.len());
    }
    raw.len()
}
