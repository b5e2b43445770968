//! A measured histogram out of a NeXus or HDF5 file, for `sim --from`.
//!
//! The file is from outside: libhdf5 reads it in this process only, without plugins, and what would make it read other
//! files (external storage, virtual datasets, links to files) is refused. Searched is the largest dataset of whole
//! numbers with two pixel axes and a time axis, one with the attribute `signal` first; its time axis is the 1-D dataset
//! beside it of the same length or one longer.

use crate::hdf::h5::{self, File, Hid, Id, call, lengths, new_id, number_type};
use crate::limits::{HISTOGRAM_CELLS_MAX, READ_LINKS_MAX, SEARCH_DEPTH_MAX, SEARCH_OBJECTS_MAX};
use flow::Fault;
use hdf5_metno_sys::{h5a, h5d, h5l, h5o, h5p, h5s, h5t};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use wire::DType;

/// A time of flight is an `i32` of ns; a longer one is a label that lies.
const NS_MAX: f64 = i32::MAX as f64;

/// Counts over two pixel axes and time.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Path of the counts in the file.
    pub path: String,
    /// Lengths of the axes, time last.
    pub shape: [u32; 3],
    /// Edges of the time bins, ns, one more than there are bins.
    pub edges_ns: Vec<f64>,
    /// Counts in C order.
    pub counts: Vec<u32>,
    /// Assumptions to report.
    pub remarks: Vec<String>,
}

impl Measured {
    /// The bytes that the crate `sim` reads: see its module `histogram`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.edges_ns.len() * 8 + self.counts.len() * 4);
        out.extend_from_slice(b"bphg");
        for word in [1, self.shape[0], self.shape[1], self.shape[2], 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend(self.edges_ns.iter().flat_map(|e| e.to_le_bytes()));
        out.extend(self.counts.iter().flat_map(|c| c.to_le_bytes()));
        out
    }
}

/// Finds and reads a histogram; `path` names the dataset, else it is searched.
pub fn histogram(file_path: &Path, path: Option<&str>) -> Result<Measured, Fault> {
    let file = File::open(file_path, false)?;
    let answer = read(&file, file_path, path);
    // Read only: closing writes nothing.
    let _ = file.close();
    answer
}

fn read(file: &File, file_path: &Path, wanted: Option<&str>) -> Result<Measured, Fault> {
    let refused = |cause: String| Fault::new(format!("no histogram in {}", file_path.display()), cause);
    let path = match wanted {
        Some(path) => path.to_owned(),
        None => search(file)?.ok_or_else(|| {
            refused("no integer dataset has two pixel axes and a time axis".into())
                .hint("name one with --path, such as /entry/instrument/detector/data")
        })?,
    };
    let counts = Found::open(file, &path)?.ok_or_else(|| refused(format!("`{path}` is not a plain dataset")))?;
    let [slow, fast, bins] = counts.shape[..] else {
        return Err(refused(format!("`{path}` has the shape {:?}, not two pixel axes and a time axis", counts.shape)));
    };
    let whole = counts.class == h5t::H5T_class_t::H5T_INTEGER;
    let cells =
        slow.checked_mul(fast).and_then(|n| n.checked_mul(bins)).filter(|n| (1..=HISTOGRAM_CELLS_MAX).contains(n));
    let Some(cells) = cells.filter(|_| whole) else {
        return Err(refused(format!("`{path}` is not an array of 1 to {HISTOGRAM_CELLS_MAX} whole numbers")));
    };
    let mut remarks = Vec::new();
    let edges_ns = time_edges(file, &path, bins, &mut remarks).map_err(|e| refused(e.what).hint(e.cause))?;
    let values: Vec<i64> = counts.read(cells, DType::Int64)?;
    let counts: Option<Vec<u32>> = values.iter().map(|v| u32::try_from(*v).ok()).collect();
    let counts = counts.ok_or_else(|| refused(format!("`{path}` has counts below 0 or beyond 32 bits")))?;
    if counts.iter().all(|c| *c == 0) {
        return Err(refused(format!("nothing was counted in `{path}`")));
    }
    // Each fits: their product is within the limit.
    let shape = [slow as u32, fast as u32, bins as u32];
    Ok(Measured { path, shape, edges_ns, counts, remarks })
}

/// Path of the best candidate.
fn search(file: &File) -> Result<Option<String>, Fault> {
    let mut best: Option<((bool, u64), String)> = None;
    for path in datasets(file)? {
        // A dataset that cannot be opened is no candidate.
        let Ok(Some(found)) = Found::open(file, &path) else { continue };
        let cells = found.shape.iter().try_fold(1_u64, |n, l| n.checked_mul(*l)).unwrap_or(0);
        let fits = found.class == h5t::H5T_class_t::H5T_INTEGER
            && found.shape.len() == 3
            && (1..=HISTOGRAM_CELLS_MAX).contains(&cells);
        let rank = (found.has_attribute(c"signal"), cells);
        if fits && best.as_ref().is_none_or(|(known, _)| rank > *known) {
            best = Some((rank, path));
        }
    }
    Ok(best.map(|(_, path)| path))
}

/// Edges of the time bins in ns, from the axis beside the counts.
fn time_edges(file: &File, path: &str, bins: u64, remarks: &mut Vec<String>) -> Result<Vec<f64>, Fault> {
    let folder = path.rfind('/').map_or("", |cut| &path[..cut]);
    let is_sibling = |other: &String| other.rfind('/').map_or("", |cut| &other[..cut]) == folder && other != path;
    let mut best: Option<(u32, String, Found)> = None;
    for other in datasets(file)?.into_iter().filter(is_sibling) {
        let Ok(Some(found)) = Found::open(file, &other) else { continue };
        if found.shape.len() != 1 || !(bins..=bins + 1).contains(&found.shape[0]) {
            continue;
        }
        let name = other[folder.len()..].to_lowercase();
        let is_time = name.contains("time") || name.contains("tof");
        let unit = found.text(c"units").unwrap_or_default();
        let rank =
            u32::from(is_time) * 4 + u32::from(scale(&unit).is_some()) * 2 + u32::from(found.shape[0] == bins + 1);
        if (is_time || scale(&unit).is_some()) && best.as_ref().is_none_or(|(known, ..)| rank > *known) {
            best = Some((rank, other, found));
        }
    }
    let Some((_, axis, found)) = best else {
        return Err(Fault::new(
            format!("`{path}` has no time axis"),
            format!("add a 1-D dataset of {bins} or {} times to the same group", bins + 1),
        ));
    };
    let mut edges: Vec<f64> = found.read(found.shape[0], DType::Float64)?;
    let unit = found.text(c"units").unwrap_or_default();
    let greatest = edges.last().copied().unwrap_or_default();
    let factor = match scale(&unit) {
        Some(factor) if greatest * factor <= NS_MAX => factor,
        // The histogram memory of SINQ counts ticks of 100 ns, and its files label them ms.
        known => {
            let labelled =
                if known.is_some() { format!("labelled {unit}, far beyond a frame") } else { "without a unit".into() };
            remarks.push(format!("the time axis `{axis}` is {labelled}: taken as ticks of 100 ns"));
            100.0
        }
    };
    edges.iter_mut().for_each(|edge| *edge *= factor);
    if edges.len() as u64 == bins {
        let width = match edges[..] {
            [.., before, last] => last - before,
            _ => return Err(Fault::new(format!("the time axis `{axis}` has one value"), "two or more are needed")),
        };
        remarks.push(format!("the time axis `{axis}` has as many values as bins: taken as their lower edges"));
        edges.push(greatest * factor + width);
    }
    let rising = |e: &[f64]| 0.0 <= e[0] && e[0] < e[1] && e[1] <= NS_MAX;
    if !edges.windows(2).all(rising) {
        return Err(Fault::new(
            format!("the time axis `{axis}` does not rise from 0 to 2^31 ns"),
            "times rise from bin to bin",
        ));
    }
    Ok(edges)
}

/// Nanoseconds of a unit.
pub(crate) fn scale(unit: &str) -> Option<f64> {
    Some(match unit.trim() {
        "ns" | "nanosecond" | "nanoseconds" => 1.0,
        "us" | "µs" | "μs" | "microsecond" | "microseconds" => 1e3,
        "ms" | "millisecond" | "milliseconds" => 1e6,
        "s" | "second" | "seconds" => 1e9,
        _ => return None,
    })
}

/// Paths of all datasets of the file itself, each once.
fn datasets(file: &File) -> Result<Vec<String>, Fault> {
    objects(file, h5o::H5O_type_t::H5O_TYPE_DATASET)
}

/// Paths of all groups of the file itself, each once; the root is `/`.
pub(crate) fn groups(file: &File) -> Result<Vec<String>, Fault> {
    objects(file, h5o::H5O_type_t::H5O_TYPE_GROUP)
}

fn objects(file: &File, wanted: h5o::H5O_type_t) -> Result<Vec<String>, Fault> {
    let (mut seen, mut paths) = (0, Vec::new());
    visit(file, &mut |name, info| {
        seen += 1;
        if let Ok(name) = name.to_str()
            && seen <= SEARCH_OBJECTS_MAX
            && info.type_ == wanted
            && name.split('/').count() <= SEARCH_DEPTH_MAX
        {
            paths.push(if name == "." { "/".into() } else { format!("/{name}") });
        }
        seen <= SEARCH_OBJECTS_MAX
    })?;
    Ok(paths)
}

/// Where the object headers of all datasets of the file itself lie.
pub(crate) fn headers(file: &File) -> Result<Vec<u64>, Fault> {
    let mut places = Vec::new();
    visit(file, &mut |_, info| {
        if info.type_ == h5o::H5O_type_t::H5O_TYPE_DATASET {
            // SAFETY: the token is an array of `H5O_MAX_TOKEN_SIZE` bytes without padding.
            let token = unsafe { std::mem::transmute::<h5o::H5O_token_t, [u8; h5o::H5O_MAX_TOKEN_SIZE]>(info.token) };
            // In files of HDF5 itself a token is an address.
            places.push(token[..8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)));
        }
        true
    })?;
    Ok(places)
}

type Visitor<'a> = &'a mut dyn FnMut(&CStr, &h5o::H5O_info2_t) -> bool;

/// Shows the objects of the file itself, each once, with its path below the root; until the visitor says false.
fn visit(file: &File, visitor: Visitor<'_>) -> Result<(), Fault> {
    extern "C" fn show(_: Hid, name: *const c_char, info: *const h5o::H5O_info2_t, visitor: *mut c_void) -> c_int {
        // SAFETY: libhdf5 gives a valid name and record, and `visitor` is ours.
        let (name, info, visitor) = unsafe { (CStr::from_ptr(name), &*info, &mut *visitor.cast::<Visitor<'_>>()) };
        c_int::from(!visitor(name, info))
    }
    let mut visitor = visitor;
    let (index, order) =
        (hdf5_metno_sys::h5::H5_index_t::H5_INDEX_NAME, hdf5_metno_sys::h5::H5_iter_order_t::H5_ITER_INC);
    let to = std::ptr::from_mut(&mut visitor).cast();
    call(
        || "cannot search the file".into(),
        // SAFETY: an open file; the callback is called during the call only.
        || unsafe { h5o::H5Ovisit3(file.id(), index, order, Some(show), to, h5o::H5O_INFO_BASIC) },
    )?;
    Ok(())
}

/// A link to a thing in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where it stands.
    pub(crate) path: String,
    /// The other file, as the link names it.
    pub(crate) file: String,
    /// The path in that file.
    pub(crate) target: String,
}

/// The links of a file to other files; none is followed here.
pub(crate) fn links(file: &File) -> Result<Vec<Link>, Fault> {
    struct Walk {
        seen: usize,
        links: Vec<(String, usize)>,
    }
    extern "C" fn visit(_: Hid, name: *const c_char, info: *const h5l::H5L_info2_t, walk: *mut c_void) -> c_int {
        // SAFETY: libhdf5 gives a valid name and record, and `walk` is ours. Of a link that is not hard the record has the
        // size of its value.
        let (name, info, walk) = unsafe { (CStr::from_ptr(name), &*info, &mut *walk.cast::<Walk>()) };
        walk.seen += 1;
        if let (h5l::H5L_type_t::H5L_TYPE_EXTERNAL, Ok(name)) = (info.type_, name.to_str()) {
            // SAFETY: as above.
            walk.links.push((format!("/{name}"), unsafe { *(&raw const info.u).cast::<usize>() }));
        }
        c_int::from(walk.seen > SEARCH_OBJECTS_MAX || walk.links.len() >= READ_LINKS_MAX)
    }
    let mut walk = Walk { seen: 0, links: Vec::new() };
    let (index, order) =
        (hdf5_metno_sys::h5::H5_index_t::H5_INDEX_NAME, hdf5_metno_sys::h5::H5_iter_order_t::H5_ITER_INC);
    let to = std::ptr::from_mut(&mut walk).cast();
    call(
        || "cannot read the links of the file".into(),
        // SAFETY: an open file; the callback is called during the call only.
        || unsafe { h5l::H5Lvisit2(file.id(), index, order, Some(visit), to) },
    )?;
    let read = |(path, size): (String, usize)| {
        let name = h5::c_name(&path)?;
        let what = || format!("cannot read the link `{path}`");
        // A name of a file and one of a thing, each as long as a path may be, at most.
        let mut value = vec![0_u8; size.min(2 * libc::PATH_MAX as usize + 3)];
        let to = value.as_mut_ptr().cast();
        // SAFETY: an open file, a valid name, and as many bytes of room as the length says.
        call(what, || unsafe { h5l::H5Lget_val(file.id(), name.as_ptr(), to, value.len(), h5p::H5P_DEFAULT) })?;
        // A byte of version and flags, then both with a NUL behind: as `H5Lunpack_elink_val` takes it apart.
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut parts = value.get(1..).unwrap_or_default().split(|byte| *byte == 0);
        let (file, target) = (text(parts.next().unwrap_or_default()), text(parts.next().unwrap_or_default()));
        Ok(Link { path, file, target })
    };
    walk.links.into_iter().map(read).collect()
}

/// An open dataset whose bytes are in the file.
pub(crate) struct Found {
    pub(crate) id: Id,
    pub(crate) shape: Vec<u64>,
    pub(crate) class: h5t::H5T_class_t,
}

impl Found {
    /// None where the bytes are elsewhere.
    pub(crate) fn open(file: &File, path: &str) -> Result<Option<Self>, Fault> {
        let name = h5::c_name(path)?;
        let what = || format!("cannot open the dataset `{path}`");
        // SAFETY: an open file and a valid name.
        let id = new_id(what, || unsafe { h5d::H5Dopen2(file.id(), name.as_ptr(), h5p::H5P_DEFAULT) })?;
        // SAFETY: an open dataset.
        let list = new_id(what, || unsafe { h5d::H5Dget_create_plist(id.0) })?;
        // SAFETY: an open list; the answer is a plain number.
        let layout = call(what, || unsafe { h5p::H5Pget_layout(list.0) } as c_int)?;
        if layout == h5d::H5D_layout_t::H5D_VIRTUAL as c_int {
            return Ok(None);
        }
        if layout == h5d::H5D_layout_t::H5D_CONTIGUOUS as c_int {
            // SAFETY: an open list.
            if call(what, || unsafe { h5p::H5Pget_external_count(list.0) })? > 0 {
                return Ok(None);
            }
        }
        // SAFETY: an open dataset.
        let shape = new_id(what, || unsafe { h5d::H5Dget_space(id.0) })?;
        // SAFETY: an open dataset.
        let kind = new_id(what, || unsafe { h5d::H5Dget_type(id.0) })?;
        // SAFETY: an open type.
        let class = h5::locked(|| unsafe { h5t::H5Tget_class(kind.0) });
        Ok(Some(Self { shape: lengths(&shape)?, id, class }))
    }

    /// All values as a type; `cells` was checked against a limit.
    fn read<T: bytemuck::Pod>(&self, cells: u64, to: DType) -> Result<Vec<T>, Fault> {
        let number = matches!(self.class, h5t::H5T_class_t::H5T_INTEGER | h5t::H5T_class_t::H5T_FLOAT);
        if !number || self.shape.iter().product::<u64>() != cells || size_of::<T>() != to.size() {
            return Err(Fault::new("cannot read a dataset", "it has no numbers"));
        }
        let mut out = vec![T::zeroed(); cells as usize];
        let memory = number_type(to)?;
        let to = out.as_mut_ptr().cast();
        call(
            || "cannot read a dataset".into(),
            // SAFETY: as many values as the dataset has, of the type asked for.
            || unsafe { h5d::H5Dread(self.id.0, memory.0, h5s::H5S_ALL, h5s::H5S_ALL, h5p::H5P_DEFAULT, to) },
        )?;
        Ok(out)
    }

    /// Bytes of a value, whether it has a sign, whether it is a text of any length.
    pub(crate) fn kind(&self) -> Result<(usize, bool, bool), Fault> {
        let what = || "the type of a dataset".to_owned();
        // SAFETY: an open dataset, and then its open type.
        let kind = new_id(what, || unsafe { h5d::H5Dget_type(self.id.0) })?;
        let is_text = self.class == h5t::H5T_class_t::H5T_STRING;
        // SAFETY: as above.
        let variable = is_text && call(what, || unsafe { h5t::H5Tis_variable_str(kind.0) })? > 0;
        // SAFETY: as above.
        let bytes = call(what, || unsafe { h5t::H5Tget_size(kind.0) } as i64)?;
        // SAFETY: as above. A type that has no sign to ask for is no integer.
        let sign = call(what, || unsafe { h5t::H5Tget_sign(kind.0) } as c_int).unwrap_or_default();
        Ok((bytes as usize, sign == h5t::H5T_sign_t::H5T_SGN_2 as c_int, variable))
    }

    /// Whether its first dimension has no end.
    pub(crate) fn grows(&self) -> Result<bool, Fault> {
        let what = || "cannot read a shape".to_owned();
        // SAFETY: an open dataset.
        let space = new_id(what, || unsafe { h5d::H5Dget_space(self.id.0) })?;
        let mut most = vec![0; self.shape.len().max(1)];
        let none = std::ptr::null_mut();
        // SAFETY: as many places as dimensions.
        call(what, || unsafe { h5s::H5Sget_simple_extent_dims(space.0, none, most.as_mut_ptr()) })?;
        Ok(most[0] == h5s::H5S_UNLIMITED)
    }

    fn has_attribute(&self, name: &CStr) -> bool {
        // SAFETY: an open dataset and a valid name.
        call(String::new, || unsafe { h5a::H5Aexists(self.id.0, name.as_ptr()) }).is_ok_and(|found| found > 0)
    }

    /// A short text attribute of fixed or variable length.
    pub(crate) fn text(&self, name: &CStr) -> Option<String> {
        if !self.has_attribute(name) {
            return None;
        }
        let what = String::new;
        // SAFETY: an open dataset and a valid name.
        let id = new_id(what, || unsafe { h5a::H5Aopen(self.id.0, name.as_ptr(), h5p::H5P_DEFAULT) }).ok()?;
        h5::read_text_attribute(&id)
    }
}
