//! The few calls of libhdf5 that a writer needs. All `unsafe` of this crate is here, in `metadata`,
//! `handle`, `search`, `static_file` and `filter`.
//!
//! libhdf5 is one library with one lock: every call takes it, and the text of an error is read before it is given back.
//! Errors are [`Fault`]s with libhdf5's own words; nothing is printed.
//!
//! A file is closed only by [`File::close`]. Dropped, it is left open: after a failed write libhdf5's close handlers are
//! known to end the process (SIGSEGV after ENOSPC), and what they would still write, nobody asked for.

use crate::hdf::filter::Filter;
use crate::hdf::metadata::{self, Held, Metadata};
use crate::hdf::value::{Data, DataType, Values};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNK_TREE_HALF, HEADER_BYTES, NAMES_IN_HEADER, PACK_THREADS};
use flow::Fault;
use hdf5_metno_sys::{h5, h5a, h5d, h5e, h5f, h5g, h5i, h5l, h5o, h5p, h5s, h5t};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Once;
use wire::DType;

pub(crate) type Hid = h5i::hid_t;

/// What an HDF5 function returns: negative where it failed.
pub(crate) trait Answer: Copy {
    fn failed(self) -> bool;
}
impl Answer for c_int {
    fn failed(self) -> bool {
        self < 0
    }
}
impl Answer for i64 {
    fn failed(self) -> bool {
        self < 0
    }
}

/// Calls libhdf5 under its lock.
pub(crate) fn call<T: Answer>(what: impl FnOnce() -> String, f: impl FnOnce() -> T) -> Result<T, Fault> {
    static BEGIN: Once = Once::new();
    let _guard = hdf5_metno_sys::LOCK.lock();
    BEGIN.call_once(|| {
        // SAFETY: the first calls into the library, under its lock. No exit handlers: they would close files behind our
        // back; no printing of errors: they become faults; no plugins: a file must not load code.
        unsafe {
            h5::H5dont_atexit();
            h5::H5open();
            // The binding says pointer where C says `unsigned`: null is the mask 0.
            hdf5_metno_sys::h5pl::H5PLset_loading_state(std::ptr::null_mut());
        }
    });
    // SAFETY: setting and clearing the error stack of this thread.
    unsafe {
        h5e::H5Eset_auto2(h5e::H5E_DEFAULT, None, std::ptr::null_mut());
        h5e::H5Eclear2(h5e::H5E_DEFAULT);
    }
    let answer = f();
    if answer.failed() {
        return Err(Fault::new(what(), error_text()));
    }
    Ok(answer)
}

/// Calls libhdf5 under its lock, for calls that report no error.
pub(crate) fn locked<T>(f: impl FnOnce() -> T) -> T {
    let _guard = hdf5_metno_sys::LOCK.lock();
    f()
}

/// The error stack in one line, outermost first; called under the lock.
fn error_text() -> String {
    extern "C" fn gather(_: c_uint, error: *const h5e::H5E_error2_t, out: *mut c_void) -> c_int {
        // SAFETY: libhdf5 gives a valid record, and `out` is the vector below.
        unsafe {
            let (out, desc) = (&mut *out.cast::<Vec<String>>(), (*error).desc);
            if !desc.is_null() {
                out.push(CStr::from_ptr(desc).to_string_lossy().into_owned());
            }
        }
        0
    }
    let mut lines: Vec<String> = Vec::new();
    // SAFETY: the callback is called during the call only.
    unsafe {
        h5e::H5Ewalk2(h5e::H5E_DEFAULT, h5e::H5E_WALK_DOWNWARD, Some(gather), std::ptr::from_mut(&mut lines).cast());
    }
    lines.dedup();
    // The ends say most: what was asked, and what the system answered.
    match &lines[..] {
        [] => "HDF5 does not say why".into(),
        [first] => first.clone(),
        [first, .., last] => format!("{first}: {last}"),
    }
}

/// Something of libhdf5 that is given back when dropped.
#[derive(Debug)]
pub(crate) struct Id(pub(crate) Hid);

impl Drop for Id {
    fn drop(&mut self) {
        let id = self.0;
        // SAFETY: the only owner of this reference. A failure leaks it.
        let _ = call(String::new, || unsafe { h5i::H5Idec_ref(id) });
    }
}

pub(crate) fn new_id(what: impl FnOnce() -> String, f: impl FnOnce() -> Hid) -> Result<Id, Fault> {
    call(what, f).map(Id)
}

/// The library's version.
pub fn version() -> String {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: three places to write to.
    let _ = call(String::new, || unsafe { h5::H5get_libversion(&raw mut major, &raw mut minor, &raw mut release) });
    format!("{major}.{minor}.{release}")
}

pub(crate) fn c_name(name: &str) -> Result<CString, Fault> {
    CString::new(name).map_err(|e| Fault::new(format!("`{}` is not a name", name.escape_debug()), e))
}

/// Type of a growing dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A number; never `DType::Text`.
    Number(DType),
    /// UTF-8 text of this many bytes, filled up with NUL.
    Chars(usize),
}

impl Cell {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Cell::Number(dtype) => dtype.size(),
            Cell::Chars(bytes) => bytes,
        }
    }

    fn id(self) -> Result<Id, Fault> {
        match self {
            Cell::Number(dtype) => number_type(dtype),
            Cell::Chars(bytes) => text_type(Some(bytes)),
        }
    }
}

pub(crate) fn number_type(dtype: DType) -> Result<Id, Fault> {
    new_id(
        || "an HDF5 type".into(),
        // SAFETY: library constants, read after the library was opened.
        || unsafe {
            h5t::H5Tcopy(match dtype {
                DType::Int8 => *h5t::H5T_STD_I8LE,
                DType::UInt8 | DType::Text => *h5t::H5T_STD_U8LE,
                DType::Int16 => *h5t::H5T_STD_I16LE,
                DType::UInt16 => *h5t::H5T_STD_U16LE,
                DType::Int32 => *h5t::H5T_STD_I32LE,
                DType::UInt32 => *h5t::H5T_STD_U32LE,
                DType::Int64 => *h5t::H5T_STD_I64LE,
                DType::UInt64 => *h5t::H5T_STD_U64LE,
                DType::Float32 => *h5t::H5T_IEEE_F32LE,
                DType::Float64 => *h5t::H5T_IEEE_F64LE,
            })
        },
    )
}

/// UTF-8 text, of variable length where no length is given.
fn text_type(bytes: Option<usize>) -> Result<Id, Fault> {
    let what = || "an HDF5 text type".to_owned();
    // SAFETY: a library constant.
    let id = new_id(what, || unsafe { h5t::H5Tcopy(*h5t::H5T_C_S1) })?;
    let size = bytes.unwrap_or(h5t::H5T_VARIABLE);
    // SAFETY: a type of our own.
    call(what, || unsafe { h5t::H5Tset_size(id.0, size) })?;
    // SAFETY: as above.
    call(what, || unsafe { h5t::H5Tset_cset(id.0, h5t::H5T_cset_t::H5T_CSET_UTF8) })?;
    if bytes.is_some() {
        // SAFETY: as above.
        call(what, || unsafe { h5t::H5Tset_strpad(id.0, h5t::H5T_str_t::H5T_STR_NULLPAD) })?;
    }
    Ok(id)
}

fn space(shape: &[u64], max: Option<&[u64]>) -> Result<Id, Fault> {
    new_id(
        || "an HDF5 shape".into(),
        // SAFETY: both pointers are to as many numbers as there are dimensions.
        || unsafe {
            if shape.is_empty() {
                h5s::H5Screate(h5s::H5S_class_t::H5S_SCALAR)
            } else {
                h5s::H5Screate_simple(
                    shape.len() as c_int,
                    shape.as_ptr(),
                    max.map_or(std::ptr::null(), <[u64]>::as_ptr),
                )
            }
        },
    )
}

fn property_list(class: fn() -> Hid) -> Result<Id, Fault> {
    // SAFETY: a class of the library.
    new_id(|| "an HDF5 property list".into(), || unsafe { h5p::H5Pcreate(class()) })
}

/// Keeps the names and attributes of a group in its header: as a tree and a heap, which more than eight would be, they could
/// not be added to in writes of which each leaves them whole.
fn keep_in_header(list: &Id) -> Result<(), Fault> {
    let what = || "an HDF5 property list".to_owned();
    // SAFETY: our list.
    call(what, || unsafe { h5p::H5Pset_link_phase_change(list.0, NAMES_IN_HEADER, 0) })?;
    // SAFETY: our list.
    call(what, || unsafe { h5p::H5Pset_attr_phase_change(list.0, NAMES_IN_HEADER, 0) })?;
    Ok(())
}

/// An open file.
pub(crate) struct File {
    id: Hid,
    /// Metadata that libhdf5 wrote and the file does not have yet; none where a file is only read.
    held: Option<Held>,
}

impl File {
    /// Makes a new file; what stood there is gone.
    pub(crate) fn create(path: &Path) -> Result<Self, Fault> {
        let (name, access) = (c_path(path)?, access_list(true)?);
        let what = || format!("the file {} cannot be made", path.display());
        // SAFETY: a class of the library.
        let create = property_list(|| *h5p::H5P_CLS_FILE_CREATE)?;
        let strategy = h5f::H5F_fspace_strategy_t::H5F_FSPACE_STRATEGY_NONE;
        // What was given back is not used again: see `metadata`.
        // SAFETY: our list.
        call(what, || unsafe { h5p::H5Pset_file_space_strategy(create.0, strategy, 0, 1) })?;
        // SAFETY: our list.
        call(what, || unsafe { h5p::H5Pset_istore_k(create.0, CHUNK_TREE_HALF) })?;
        keep_in_header(&create)?;
        // SAFETY: valid name and lists.
        let id = call(what, || unsafe { h5f::H5Fcreate(name.as_ptr(), h5f::H5F_ACC_TRUNC, create.0, access.0) })?;
        Ok(Self { id, held: Some(metadata::of_file(id)?) })
    }

    /// Opens an existing file.
    pub(crate) fn open(path: &Path, writable: bool) -> Result<Self, Fault> {
        let (name, access) = (c_path(path)?, access_list(writable)?);
        let flags = if writable { h5f::H5F_ACC_RDWR } else { h5f::H5F_ACC_RDONLY };
        let what = || format!("the file {} cannot be opened", path.display());
        // SAFETY: valid name and list.
        let id = call(what, || unsafe { h5f::H5Fopen(name.as_ptr(), flags, access.0) })?;
        let held = if writable { Some(metadata::of_file(id)?) } else { None };
        Ok(Self { id, held })
    }

    pub(crate) fn id(&self) -> Hid {
        self.id
    }

    /// Has libhdf5 write everything, which then is held ([`File::held`]).
    pub(crate) fn flush(&self) -> Result<(), Fault> {
        // SAFETY: an open file.
        call(|| "HDF5 cannot flush".into(), || unsafe { h5f::H5Fflush(self.id, h5f::H5F_scope_t::H5F_SCOPE_GLOBAL) })?;
        Ok(())
    }

    /// Closes the file and everything in it. What libhdf5 still wrote is held: see [`File::held`], before.
    pub(crate) fn close(self) -> Result<(), Fault> {
        // SAFETY: an open file; closing is strong, so datasets go with it.
        call(|| "HDF5 cannot close the file".into(), || unsafe { h5f::H5Fclose(self.id) })?;
        Ok(())
    }

    /// Returns the metadata that libhdf5 wrote and the file does not have yet; none where it is only read.
    pub(crate) fn held(&self) -> Option<Held> {
        self.held.clone()
    }

    /// The headers of the next growing datasets, so many, lie in one page.
    pub(crate) fn headers_together(&self, datasets: usize) {
        self.with_metadata(|metadata| metadata.together(datasets as u64 * HEADER_BYTES));
    }

    fn with_metadata<T>(&self, f: impl FnOnce(&mut Metadata) -> T) -> Option<T> {
        self.held.as_ref().map(|held| f(&mut metadata::lock(held)))
    }

    pub(crate) fn make_group(&self, path: &str) -> Result<(), Fault> {
        let name = c_name(path)?;
        let list = property_list(|| *h5p::H5P_CLS_GROUP_CREATE)?;
        keep_in_header(&list)?;
        new_id(
            || format!("the group `{path}` cannot be made"),
            // SAFETY: an open file and list, and a valid name.
            || unsafe { h5g::H5Gcreate2(self.id, name.as_ptr(), h5p::H5P_DEFAULT, list.0, h5p::H5P_DEFAULT) },
        )?;
        Ok(())
    }

    pub(crate) fn exists(&self, path: &str) -> Result<bool, Fault> {
        let name = c_name(path)?;
        // SAFETY: an open file and a valid name.
        let found = call(
            || format!("`{path}` cannot be looked up"),
            || unsafe { h5l::H5Lexists(self.id, name.as_ptr(), h5p::H5P_DEFAULT) },
        )?;
        Ok(found > 0)
    }

    /// Removes a link. libhdf5 then renames every open dataset that the link was a name of, and compares the names of all
    /// open datasets to find them: with thousands of logs that takes longer than everything else (`H5G_name_replace`). A
    /// group that was opened by its token has no name, and then nothing is compared.
    pub(crate) fn unlink(&self, path: &str) -> Result<(), Fault> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let (parent, name) = (c_name(if parent.is_empty() { "/" } else { parent })?, c_name(name)?);
        let what = || format!("`{path}` cannot be removed");
        let mut info = MaybeUninit::<h5o::H5O_info2_t>::uninit();
        let (id, fields, list) = (self.id, h5o::H5O_INFO_BASIC, h5p::H5P_DEFAULT);
        // SAFETY: an open file, a valid name, and a place for the answer.
        call(what, || unsafe { h5o::H5Oget_info_by_name3(id, parent.as_ptr(), info.as_mut_ptr(), fields, list) })?;
        // SAFETY: the call above has filled it in.
        let token = unsafe { info.assume_init() }.token;
        // SAFETY: an open file and a token of its own.
        let group = new_id(what, || unsafe { h5o::H5Oopen_by_token(id, token) })?;
        // SAFETY: an open group and a valid name.
        call(what, || unsafe { h5l::H5Ldelete(group.0, name.as_ptr(), list) })?;
        Ok(())
    }

    pub(crate) fn link(&self, to: To<'_>, path: &str) -> Result<(), Fault> {
        let (To::Thing(target) | To::Path(target) | To::File(_, target)) = to;
        let other = if let To::File(file, _) = to { c_name(file)? } else { CString::default() };
        let (target_name, name) = (c_name(target)?, c_name(path)?);
        let (target_name, name, list) = (target_name.as_ptr(), name.as_ptr(), h5p::H5P_DEFAULT);
        call(
            || format!("the link `{path}` to `{target}` cannot be made"),
            // SAFETY: an open file and valid names.
            || unsafe {
                match to {
                    To::Thing(_) => h5l::H5Lcreate_hard(self.id, target_name, self.id, name, list, list),
                    To::Path(_) => h5l::H5Lcreate_soft(target_name, self.id, name, list, list),
                    To::File(..) => h5l::H5Lcreate_external(other.as_ptr(), target_name, self.id, name, list, list),
                }
            },
        )?;
        Ok(())
    }

    /// Opens a group or dataset, and removes an attribute of it if it is there.
    fn without_attribute(&self, object: &str, attribute: &CStr, what: impl Fn() -> String) -> Result<Id, Fault> {
        let path = c_name(if object.is_empty() { "/" } else { object })?;
        // SAFETY: an open file and a valid name.
        let at = new_id(&what, || unsafe { hdf5_metno_sys::h5o::H5Oopen(self.id, path.as_ptr(), h5p::H5P_DEFAULT) })?;
        // SAFETY: an open object and a valid name.
        if call(&what, || unsafe { h5a::H5Aexists(at.0, attribute.as_ptr()) })? > 0 {
            // SAFETY: as above.
            call(&what, || unsafe { h5a::H5Adelete(at.0, attribute.as_ptr()) })?;
        }
        Ok(at)
    }

    /// Removes an attribute of a group or dataset, if it is there.
    pub(crate) fn remove_attribute(&self, object: &str, name: &str) -> Result<(), Fault> {
        let what = || format!("the attribute `{name}` of `{object}` cannot be removed");
        self.without_attribute(object, &c_name(name)?, what).map(drop)
    }

    /// Sets an attribute of a group or dataset; one that was there is replaced.
    pub(crate) fn set_attribute(&self, object: &str, name: &str, value: &Data) -> Result<(), Fault> {
        let attribute = c_name(name)?;
        let what = || format!("the attribute `{name}` of `{object}` cannot be written");
        let at = self.without_attribute(object, &attribute, what)?;
        let (cell, shape) = (data_type(value)?, space(&value.shape, None)?);
        let id = new_id(
            what,
            // SAFETY: open object, type and shape.
            || unsafe {
                h5a::H5Acreate2(at.0, attribute.as_ptr(), cell.0, shape.0, h5p::H5P_DEFAULT, h5p::H5P_DEFAULT)
            },
        )?;
        // SAFETY: `with_memory` gives as many values as the shape has, of the type.
        with_memory(value, |memory| call(what, || unsafe { h5a::H5Awrite(id.0, cell.0, memory) }))?;
        Ok(())
    }

    /// Makes a file that is in memory only, and is gone when it is closed.
    pub(crate) fn in_memory() -> Result<Self, Fault> {
        let access = access_list(false)?;
        let what = || "a file in memory cannot be made".to_owned();
        // SAFETY: our list.
        call(what, || unsafe { h5p::H5Pset_fapl_core(access.0, CHUNK_BYTES_MAX, 0) })?;
        let (name, list) = (c"beamport", h5p::H5P_DEFAULT);
        // SAFETY: valid name and lists; nothing is written to a file of that name.
        let id = call(what, || unsafe { h5f::H5Fcreate(name.as_ptr(), h5f::H5F_ACC_TRUNC, list, access.0) })?;
        Ok(Self { id, held: None })
    }

    /// Whether the root has an attribute.
    pub(crate) fn has_attribute(&self, name: &str) -> bool {
        let Ok(name) = c_name(name) else { return false };
        // SAFETY: an open file and a valid name.
        call(String::new, || unsafe { h5a::H5Aexists(self.id, name.as_ptr()) }).is_ok_and(|found| found > 0)
    }

    /// A text attribute of the root.
    pub(crate) fn text_attribute(&self, name: &str) -> Option<String> {
        let attribute = c_name(name).ok()?;
        let what = || format!("the attribute `{name}`");
        // SAFETY: an open file and a valid name.
        let id = new_id(what, || unsafe { h5a::H5Aopen(self.id, attribute.as_ptr(), h5p::H5P_DEFAULT) }).ok()?;
        read_text_attribute(&id)
    }

    /// Writes a fixed dataset; one that was there is replaced.
    pub(crate) fn write_dataset(&self, path: &str, value: &Data) -> Result<(), Fault> {
        let (cell, id) = self.make_dataset(path, value, h5p::H5P_DEFAULT)?;
        if value.count() == 0 {
            return Ok(());
        }
        let what = || format!("the dataset `{path}` cannot be written");
        with_memory(value, |memory| {
            // SAFETY: `with_memory` gives as many values as the shape has, of the type.
            call(what, || unsafe { h5d::H5Dwrite(id.0, cell.0, h5s::H5S_ALL, h5s::H5S_ALL, h5p::H5P_DEFAULT, memory) })
        })?;
        Ok(())
    }

    /// Writes a dataset of numbers in packed chunks; what is smaller than a page as it is.
    pub(crate) fn write_packed(&self, path: &str, value: &Data, filter: Filter) -> Result<(), Fault> {
        let (Some(bytes), Some((&first, row))) = (value.bytes(), value.shape.split_first()) else {
            return self.write_dataset(path, value);
        };
        if bytes.len() < CHUNK_BYTES_MIN {
            return self.write_dataset(path, value);
        }
        let what = || format!("the dataset `{path}` cannot be written");
        let row_bytes = bytes.len() / first as usize;
        let rows = (CHUNK_BYTES_MAX / row_bytes).clamp(1, first as usize);
        let chunk: Vec<u64> = std::iter::once(rows as u64).chain(row.iter().copied()).collect();
        let element = bytes.len() / value.count() as usize;
        let list = packed_chunks(what, &chunk, filter, element)?;
        let (_, id) = self.make_dataset(path, value, list.0)?;
        let each = rows * row_bytes;
        let mut at = vec![0; chunk.len()];
        let (mut whole, mut out) = (Vec::new(), vec![0; each * PACK_THREADS]);
        for share in bytes.chunks(each * PACK_THREADS) {
            whole.clear();
            whole.extend_from_slice(share);
            // The last chunk has its full size in the file, too.
            whole.resize(share.len().next_multiple_of(each), 0);
            let lengths = filter.pack_all(&whole, each, element, &mut out[..whole.len()], each);
            for (chunk, length) in out.chunks(each).zip(lengths) {
                let mask = if length == each { filter.skipped() } else { 0 };
                // SAFETY: as many coordinates as dimensions, and so many bytes.
                call(what, || unsafe {
                    let memory = chunk.as_ptr().cast();
                    h5d::H5Dwrite_chunk(id.0, h5p::H5P_DEFAULT, mask, at.as_ptr(), length, memory)
                })?;
                at[0] += rows as u64;
            }
        }
        Ok(())
    }

    /// Makes a dataset for values, in the place of one that is there.
    fn make_dataset(&self, path: &str, value: &Data, list: h5i::hid_t) -> Result<(Id, Id), Fault> {
        if self.exists(path)? {
            self.unlink(path)?;
        }
        let name = c_name(path)?;
        let (cell, shape) = (data_type(value)?, space(&value.shape, None)?);
        let id = new_id(
            || format!("the dataset `{path}` cannot be written"),
            // SAFETY: open file, type, shape and list, valid name.
            || unsafe {
                h5d::H5Dcreate2(self.id, name.as_ptr(), cell.0, shape.0, h5p::H5P_DEFAULT, list, h5p::H5P_DEFAULT)
            },
        )?;
        Ok((cell, id))
    }

    /// Makes an empty dataset whose first dimension grows; libhdf5 allots chunks, by [`Growing::put_chunk`], and never
    /// writes them.
    pub(crate) fn make_growing(
        &self,
        path: &str,
        cell: Cell,
        row: &[u64],
        chunk_rows: u64,
        filter: Option<Filter>,
    ) -> Result<Growing, Fault> {
        let name = c_name(path)?;
        let what = || format!("the dataset `{path}` cannot be made");
        let with = |first: u64| -> Vec<u64> { std::iter::once(first).chain(row.iter().copied()).collect() };
        let (zero, most, chunk) = (with(0), with(h5s::H5S_UNLIMITED), with(chunk_rows));
        let (kind, shape) = (cell.id()?, space(&zero, Some(&most))?);
        // SAFETY: a class of the library.
        let list = property_list(|| *h5p::H5P_CLS_DATASET_CREATE)?;
        // SAFETY: our list, and as many lengths as dimensions.
        call(what, || unsafe { h5p::H5Pset_chunk(list.0, chunk.len() as c_int, chunk.as_ptr()) })?;
        // SAFETY: our list.
        call(what, || unsafe { h5p::H5Pset_alloc_time(list.0, h5d::H5D_alloc_time_t::H5D_ALLOC_TIME_INCR) })?;
        filter.map_or(Ok(()), |filter| set_filter(what, &list, filter, cell.bytes()))?;
        // SAFETY: our list.
        call(what, || unsafe { h5p::H5Pset_fill_time(list.0, h5d::H5D_fill_time_t::H5D_FILL_TIME_NEVER) })?;
        let access = uncached()?;
        let id = new_id(
            what,
            // SAFETY: open file, type, shape and lists, valid name.
            || unsafe { h5d::H5Dcreate2(self.id, name.as_ptr(), kind.0, shape.0, h5p::H5P_DEFAULT, list.0, access.0) },
        )?;
        Ok(Growing { id, row: row.to_vec(), held: self.held() })
    }

    /// Opens a growing dataset again: it, its rows, the shape of a row, rows of a chunk.
    pub(crate) fn open_growing(&self, path: &str) -> Result<(Growing, Vec<u64>, u64), Fault> {
        let name = c_name(path)?;
        let what = || format!("the dataset `{path}` cannot be opened");
        let access = uncached()?;
        // SAFETY: open file and list, valid name.
        let id = new_id(what, || unsafe { h5d::H5Dopen2(self.id, name.as_ptr(), access.0) })?;
        // SAFETY: an open dataset.
        let shape = new_id(what, || unsafe { h5d::H5Dget_space(id.0) })?;
        let shape = lengths(&shape)?;
        // SAFETY: an open dataset.
        let list = new_id(what, || unsafe { h5d::H5Dget_create_plist(id.0) })?;
        let mut chunk = vec![0; shape.len()];
        // SAFETY: as many places as dimensions.
        let rank = call(what, || unsafe { h5p::H5Pget_chunk(list.0, chunk.len() as c_int, chunk.as_mut_ptr()) })?;
        if rank as usize != shape.len() || shape.is_empty() || chunk[1..] != shape[1..] || chunk[0] == 0 {
            return Err(Fault::new(what(), "it is not one of ours"));
        }
        Ok((Growing { id, row: shape[1..].to_vec(), held: self.held() }, shape, chunk[0]))
    }
}

/// The target of a link.
#[derive(Clone, Copy)]
pub(crate) enum To<'a> {
    /// The object at this path now: a hard link, which keeps it.
    Thing(&'a str),
    /// A path, where an object may appear later: a soft link.
    Path(&'a str),
    /// A path in another file: an external link.
    File(&'a str, &'a str),
}

/// A dataset whose first dimension grows.
pub(crate) struct Growing {
    id: Id,
    /// Shape of a row.
    row: Vec<u64>,
    held: Option<Held>,
}

/// A chunk as libhdf5 knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    /// In the file.
    pub(crate) place: u64,
    pub(crate) bytes: u64,
    /// Filters that it did not go through, a bit each.
    pub(crate) mask: u32,
}

impl Growing {
    /// Sets the number of rows.
    pub(crate) fn set_rows(&self, rows: u64) -> Result<(), Fault> {
        let shape: Vec<u64> = std::iter::once(rows).chain(self.row.iter().copied()).collect();
        // SAFETY: as many lengths as dimensions.
        call(|| "a dataset cannot grow".into(), || unsafe { h5d::H5Dset_extent(self.id.0, shape.as_ptr()) })?;
        Ok(())
    }

    /// Gives the chunk that begins at a row room for `bytes`, and returns the place to write them: `place`, if given,
    /// unless the chunk already has as many. Its old bytes stay in the file as long as the file refers to them.
    pub(crate) fn put_chunk(&self, row: u64, bytes: u64, mask: u32, place: Option<u64>) -> Result<u64, Fault> {
        let mut at = vec![0; self.row.len() + 1];
        at[0] = row;
        let what = || format!("the chunk at row {row} cannot be placed");
        let held = self.held.as_ref().ok_or_else(|| Fault::new(what(), "the file is only read"))?;
        metadata::lock(held).begin_past(place, bytes);
        let none = 0_u8;
        // SAFETY: as many coordinates as dimensions. The driver takes no byte of a chunk now.
        let answer = call(what, || unsafe {
            let memory = (&raw const none).cast();
            h5d::H5Dwrite_chunk(self.id.0, h5p::H5P_DEFAULT, mask, at.as_ptr(), bytes as usize, memory)
        });
        let place = metadata::lock(held).end_past();
        answer?;
        place.ok_or_else(|| Fault::new(what(), "libhdf5 did not say where it lies"))
    }

    /// How often all that libhdf5 knew came into the file.
    pub(crate) fn applied(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| metadata::lock(held).applied())
    }

    /// All chunks, by the rows at which they begin. libhdf5 walks all of them also to find one, so a writer keeps what
    /// [`Growing::put_chunk`] says, and a reader asks once.
    pub(crate) fn chunks(&self) -> Result<BTreeMap<u64, Chunk>, Fault> {
        unsafe extern "C" fn take(at: *const u64, mask: c_uint, place: u64, bytes: u64, out: *mut c_void) -> c_int {
            // SAFETY: at least one coordinate, and the map below, which nobody else uses now.
            let (row, chunks) = unsafe { (*at, &mut *out.cast::<BTreeMap<u64, Chunk>>()) };
            // HADDR_UNDEF: the chunk was never allotted.
            if place != u64::MAX && bytes > 0 {
                chunks.insert(row, Chunk { place, bytes, mask });
            }
            0
        }
        let mut chunks = BTreeMap::new();
        let out = (&raw mut chunks).cast();
        let what = || "the chunks of a dataset cannot be listed".into();
        // SAFETY: the call ends before the map does, and `take` does not unwind.
        call(what, || unsafe { h5d::H5Dchunk_iter(self.id.0, h5p::H5P_DEFAULT, Some(take), out) })?;
        Ok(chunks)
    }
}

/// The chunk that begins at a row, of those that a dataset has.
pub(crate) fn chunk_at(chunks: &BTreeMap<u64, Chunk>, row: u64) -> Result<Chunk, Fault> {
    let none = || Fault::new(format!("the chunk at row {row} has no place"), "it was never allotted");
    chunks.get(&row).copied().ok_or_else(none)
}

/// One text of an attribute, of fixed (up to a page) or variable length.
pub(crate) fn read_text_attribute(id: &Id) -> Option<String> {
    let what = || "an attribute cannot be read".to_owned();
    // SAFETY: an open attribute, here and below.
    let kind = new_id(what, || unsafe { h5a::H5Aget_type(id.0) }).ok()?;
    // SAFETY: as above.
    let shape = new_id(what, || unsafe { h5a::H5Aget_space(id.0) }).ok()?;
    if lengths(&shape).ok()?.iter().product::<u64>() != 1 {
        return None;
    }
    // SAFETY: an open type, here and below.
    if locked(|| unsafe { h5t::H5Tget_class(kind.0) }) != h5t::H5T_class_t::H5T_STRING {
        return None;
    }
    // SAFETY: as above.
    if call(what, || unsafe { h5t::H5Tis_variable_str(kind.0) }).ok()? == 0 {
        // SAFETY: as above.
        let size = locked(|| unsafe { h5t::H5Tget_size(kind.0) });
        if !(1..=4096).contains(&size) {
            return None;
        }
        let mut text = vec![0_u8; size];
        // SAFETY: as many bytes as the type has.
        call(what, || unsafe { h5a::H5Aread(id.0, kind.0, text.as_mut_ptr().cast()) }).ok()?;
        let end = text.iter().position(|b| *b == 0).unwrap_or(size);
        return Some(String::from_utf8_lossy(&text[..end]).trim_end().to_owned());
    }
    let mut text = std::ptr::null_mut::<c_char>();
    // SAFETY: one text of variable length: libhdf5 gives a pointer to memory of its own.
    call(what, || unsafe { h5a::H5Aread(id.0, kind.0, (&raw mut text).cast()) }).ok()?;
    if text.is_null() {
        return None;
    }
    // SAFETY: a C string of libhdf5, given back to it after it was copied.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        let _ = call(what, || h5::H5free_memory(text.cast()));
        Some(copy)
    }
}

/// Lengths of the dimensions of a shape.
pub(crate) fn lengths(shape: &Id) -> Result<Vec<u64>, Fault> {
    let what = || "a shape cannot be read".to_owned();
    // SAFETY: an open shape.
    let rank = call(what, || unsafe { h5s::H5Sget_simple_extent_ndims(shape.0) })?;
    let mut out = vec![0; rank as usize];
    if rank > 0 {
        // SAFETY: as many places as dimensions.
        call(what, || unsafe { h5s::H5Sget_simple_extent_dims(shape.0, out.as_mut_ptr(), std::ptr::null_mut()) })?;
    }
    Ok(out)
}

fn c_path(path: &Path) -> Result<CString, Fault> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|e| Fault::new(format!("{} is not a path", path.display()), e))
}

/// Access to a dataset whose chunks libhdf5 must not keep: they are written past it.
fn uncached() -> Result<Id, Fault> {
    let list = property_list(|| *h5p::H5P_CLS_DATASET_ACCESS)?;
    // SAFETY: our list.
    call(|| "an HDF5 property list".into(), || unsafe { h5p::H5Pset_chunk_cache(list.0, 0, 0, 1.0) })?;
    Ok(list)
}

/// How files are opened: to be written through our own driver (`metadata`), without locks, since a file that is being
/// written can be looked at; who writes is the mover's business.
fn access_list(writable: bool) -> Result<Id, Fault> {
    let what = || "an HDF5 property list".to_owned();
    let list = property_list(|| *h5p::H5P_CLS_FILE_ACCESS)?;
    // SAFETY: our list, here and below.
    call(what, || unsafe { h5p::H5Pset_fclose_degree(list.0, h5f::H5F_close_degree_t::H5F_CLOSE_STRONG) })?;
    // SAFETY: as above.
    call(what, || unsafe { h5p::H5Pset_file_locking(list.0, 0, 1) })?;
    if writable {
        let driver = metadata::driver()?;
        // SAFETY: as above, and a driver that needs no settings.
        call(what, || unsafe { h5p::H5Pset_driver(list.0, driver, std::ptr::null()) })?;
    }
    Ok(list)
}

fn data_type(value: &Data) -> Result<Id, Fault> {
    match value.dtype {
        DataType::Number(dtype) => number_type(dtype),
        DataType::Text => text_type(None),
    }
}

/// The values as libhdf5 wants them: numbers in a row, or pointers to texts.
/// Says how the chunks of a dataset are packed.
fn set_filter(what: impl Fn() -> String + Copy, list: &Id, filter: Filter, element: usize) -> Result<(), Fault> {
    for (number, settings) in filter.stages(element) {
        let count = settings.len();
        // Optional: this libhdf5 packs nothing itself, and may not know it.
        // SAFETY: our list, and as many settings.
        call(what, || unsafe {
            h5p::H5Pset_filter(list.0, number, hdf5_metno_sys::h5z::H5Z_FLAG_OPTIONAL, count, settings.as_ptr())
        })?;
    }
    Ok(())
}

/// The creation properties of a dataset of packed chunks, each of which is written as a whole.
fn packed_chunks(what: impl Fn() -> String + Copy, chunk: &[u64], filter: Filter, element: usize) -> Result<Id, Fault> {
    // SAFETY: a class of the library.
    let list = property_list(|| *h5p::H5P_CLS_DATASET_CREATE)?;
    // SAFETY: our list, and as many lengths as dimensions.
    call(what, || unsafe { h5p::H5Pset_chunk(list.0, chunk.len() as c_int, chunk.as_ptr()) })?;
    // SAFETY: our list.
    call(what, || unsafe { h5p::H5Pset_fill_time(list.0, h5d::H5D_fill_time_t::H5D_FILL_TIME_NEVER) })?;
    set_filter(what, &list, filter, element)?;
    Ok(list)
}

fn with_memory<T>(value: &Data, f: impl FnOnce(*const c_void) -> Result<T, Fault>) -> Result<T, Fault> {
    if let Values::Texts(texts) = &value.values {
        let texts = texts.iter().map(|t| c_name(t)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = texts.iter().map(|t| t.as_ptr()).collect();
        return f(pointers.as_ptr().cast());
    }
    match value.bytes() {
        Some(bytes) => f(bytes.as_ptr().cast()),
        None => Err(Fault::new("a value cannot be written", "it has no type")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_dataset_compared_the_names_of_all_open_ones() {
        let folder = crate::tests::whole::folder("h5-unlink");
        let file = File::create(&folder.join("file.nxs")).unwrap();
        file.make_group("log").unwrap();
        for path in ["log/value", "value"] {
            let open = file.make_growing(path, Cell::Number(DType::Float64), &[], 256, None).unwrap();
            file.unlink(path).unwrap();
            assert!(!file.exists(path).unwrap());
            // libhdf5 takes the name of an open dataset away when it has compared it.
            // SAFETY: an open dataset, and no place for the name.
            let length = locked(|| unsafe { h5i::H5Iget_name(open.id.0, std::ptr::null_mut(), 0) });
            assert!(length > 0, "{path}");
        }
        file.unlink("nothing").unwrap_err();
        file.close().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
