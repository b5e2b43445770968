//! The static file: an HDF5 file with what every file of an instrument has, geometry mostly. A template adds to it.
//!
//! [`StaticFile::read`] reads its structure, and `template` joins that to the JSON, so that names, links and classes
//! are checked as one tree. The layout then copies the values, object by object, before the first message. Groups are
//! recreated, not copied: to a group of another writer nothing could be added in writes that each leave it valid.
//!
//! The file is from outside. Everything that leads out of it is refused: datasets whose bytes lie elsewhere, links to
//! other files out of the folder, references (which name places of that file), groups in themselves. libhdf5 has a time
//! for each thing ([`Source::guarded`]), after which the process reports which thing it was and ends; `check` reads
//! every attribute, unpacks every chunk and copies every dataset once, in a process with a limit of memory, so that a
//! damaged file does its harm there ([`StaticFile::try_copies`]).

use crate::hdf::filter::Filter;
use crate::hdf::h5::{self, File, Hid, Id, call, new_id};
use crate::hdf::hash_tree::{self, Tree};
use crate::hdf::names::{bad_name, file_beside};
use crate::limits::{
    ATTRIBUTE_BYTES_MAX, DEPTH_MAX, MISTAKES_MAX, NODES_MAX, STATIC_BYTES_A_SECOND, STATIC_BYTES_MAX,
    STATIC_CHUNKS_MAX, STATIC_SECONDS,
};
use crate::node::{Group, Node, StaticGroup};
use crate::read::cat::know_bitshuffle;
use crate::read::search::Found;
use crate::read::watch;
use flow::Fault;
use flow::checked::Mistake;
use hdf5_metno_sys::{h5 as sys, h5a, h5d, h5i, h5l, h5o, h5p, h5s, h5t, h5z};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Root attributes that say which static file and which template belong together.
pub(crate) const TEMPLATE_VERSION: &str = "template_version";

/// A static file whose structure is known.
#[derive(Clone, Debug, PartialEq)]
pub struct StaticFile {
    path: PathBuf,
    /// When it was written last, and its bytes.
    stamp: (SystemTime, u64),
}

/// The content of a static file.
pub(crate) struct Content {
    pub(crate) file: StaticFile,
    /// All of it, without values.
    pub(crate) root: Group,
    /// The kind of object at a path, as a word.
    pub(crate) things: HashMap<String, &'static str>,
    /// Its `template_version`; the inner none: it is no text.
    pub(crate) version: Option<Option<String>>,
    /// BLAKE3 of the file, hexadecimal.
    pub(crate) digest: String,
}

impl StaticFile {
    /// Reads the structure of a file, or says all that is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Content, Vec<Mistake>> {
        let alone = |cause: String, hint: &str| {
            let cause = format!("the static file {}: {cause}", path.display());
            vec![Mistake { cause, hint: hint.into(), ..Mistake::default() }]
        };
        let stamp = stamp(path).map_err(|e| alone(e.to_string(), "write its path relative to the instrument file"))?;
        if stamp.1 > STATIC_BYTES_MAX {
            let cause = format!("it has {} bytes; the limit is {STATIC_BYTES_MAX}", stamp.1);
            return Err(alone(cause, "put large data in other files, and link to them"));
        }
        let damaged = "use a complete HDF5 file: check it with `h5dump -H`";
        let (_, hash) = hash_tree::root(path, Tree::default())
            .map_err(|e| alone(e.to_string(), "it must stay as it is while it is read"))?;
        let source = Source::open(path, stamp.1).map_err(|fault| alone(fault.cause, damaged))?;
        let mut walk = Walk::new(&source);
        let root = walk.group("", "", 0);
        let version = source
            .guarded("", |file| file.has_attribute(TEMPLATE_VERSION).then(|| file.text_attribute(TEMPLATE_VERSION)));
        let (things, mistakes) = (std::mem::take(&mut walk.things), std::mem::take(&mut walk.mistakes));
        source.close();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let file = StaticFile { path: path.to_path_buf(), stamp };
        Ok(Content { file, root, things, version, digest: hash.to_hex().to_string() })
    }

    /// Opens the file again, to copy from it; it must be as it was when it was read.
    pub(crate) fn open(&self) -> Result<Source, Fault> {
        if !self.is_unchanged() {
            let what = format!("cannot copy the static file {}", self.path.display());
            return Err(Fault::new(what, "it was changed meanwhile"));
        }
        Source::open(&self.path, self.stamp.1)
    }

    /// Whether it is unchanged since it was read.
    pub(crate) fn is_unchanged(&self) -> bool {
        stamp(&self.path).is_ok_and(|stamp| stamp == self.stamp)
    }

    /// Reads and copies all that a tree has of the file, to nowhere: a mistake for each thing that cannot be.
    pub(crate) fn try_copies(&self, root: &Group) -> Vec<Mistake> {
        let mistake = |fault: Fault| Mistake {
            cause: format!("the static file {}: {}: {}", self.path.display(), fault.what, fault.cause),
            hint: "run `h5repack`: it is damaged, or HDF5 has no filter for it".into(),
            ..Mistake::default()
        };
        let source = match self.open() {
            Ok(source) => source,
            Err(fault) => return vec![mistake(fault)],
        };
        // Where it cannot be, chunks packed so are copied as they are.
        let _ = know_bitshuffle();
        let mut out = Vec::new();
        let mut failed = |fault| {
            if out.len() < MISTAKES_MAX {
                out.push(mistake(fault));
            }
        };
        try_in(&source, root, "", &mut failed);
        source.close();
        out
    }
}

/// A static file that is open.
pub(crate) struct Source {
    file: File,
    path: PathBuf,
    /// Time of the processor for each thing in it.
    time: Duration,
}

impl Source {
    fn open(path: &Path, bytes: u64) -> Result<Self, Fault> {
        let time = Duration::from_secs(STATIC_SECONDS + bytes / STATIC_BYTES_A_SECOND);
        let file = watch::within(time, || stuck(path, "", time), || File::open(path, false))?;
        Ok(Self { file, path: path.to_path_buf(), time })
    }

    /// Ends this process, and says at which thing, if libhdf5 does not come back.
    fn guarded<T>(&self, at: &str, work: impl FnOnce(&File) -> T) -> T {
        watch::within(self.time, || stuck(&self.path, at, self.time), || work(&self.file))
    }

    fn object(&self, path: &str) -> Result<Id, Fault> {
        self.guarded(path, |file| object(file, path))
    }

    /// The fault of a copy, from a fault in the static file.
    pub(crate) fn said(&self, fault: Fault) -> Fault {
        let what = format!("cannot copy the static file {}", self.path.display());
        fault.leads_to(what).hint("run `beamport check`: it may be damaged")
    }

    /// Read only: closing writes nothing.
    pub(crate) fn close(self) {
        let Self { file, path, time } = self;
        let _ = watch::within(time, || stuck(&path, "", time), || file.close());
    }
}

fn stuck(path: &Path, at: &str, time: Duration) -> Fault {
    let what = format!("cannot read the static file {}", path.display());
    let at = shown(at);
    let cause = format!("HDF5 does not finish reading `{at}` in {} s: it is damaged", time.as_secs());
    Fault::new(what, cause).hint("replace it with a complete copy")
}

/// A path as it is reported.
fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

fn try_in(from: &Source, group: &Group, path: &str, failed: &mut dyn FnMut(Fault)) {
    if group.from_static.is_some() {
        read_attributes(from, path).unwrap_or_else(&mut *failed);
    }
    for node in &group.children {
        match node {
            Node::Group(inner) => try_in(from, inner, &format!("{path}/{}", inner.name), failed),
            Node::Static { name } => {
                let path = format!("{path}/{name}");
                let read = read_attributes(from, &path).and_then(|()| unpack(from, &path));
                let copied = read.and_then(|()| File::in_memory()).and_then(|memory| {
                    let copied = copy_object(from, &path, &memory, "/x").and_then(|()| memory.flush());
                    memory.close().and(copied)
                });
                copied.unwrap_or_else(&mut *failed);
            }
            _ => (),
        }
    }
}

/// Has libhdf5 unpack every chunk of a dataset, where it has the filters: a copy takes chunks as they are. All other bytes
/// are read when they are copied.
fn unpack(from: &Source, path: &str) -> Result<(), Fault> {
    let what = || format!("cannot read `{path}`");
    let object = from.object(path)?;
    // SAFETY: an open object, here and below.
    if h5::locked(|| unsafe { h5i::H5Iget_type(object.0) }) != h5i::H5I_type_t::H5I_DATASET {
        return Ok(());
    }
    // SAFETY: as above.
    let list = new_id(what, || unsafe { h5d::H5Dget_create_plist(object.0) })?;
    if !is_packed_as_known(&list)? {
        return Ok(());
    }
    // SAFETY: as above.
    let kind = new_id(what, || unsafe { h5d::H5Dget_type(object.0) })?;
    // SAFETY: as above.
    let space = new_id(what, || unsafe { h5d::H5Dget_space(object.0) })?;
    let shape = h5::lengths(&space)?;
    if shape.is_empty() {
        return Ok(());
    }
    let chunks = from.guarded(path, |_| chunks(&object, shape.len())).map_err(|fault| fault.leads_to(what()))?;
    // SAFETY: an open type.
    let bytes = h5::locked(|| unsafe { h5t::H5Tget_size(kind.0) });
    // Of eight bytes each: texts are pointers.
    let mut value = Vec::<u64>::new();
    let handle = value.try_reserve_exact(bytes.div_ceil(8));
    handle.map_err(|_| Fault::new(what(), format!("it has a value of {bytes} bytes")))?;
    value.resize(bytes.div_ceil(8), 0);
    let (ones, set, none, list) = (vec![1; shape.len()], h5s::H5S_SELECT_SET, std::ptr::null(), h5p::H5P_DEFAULT);
    // SAFETY: one length.
    let one = new_id(what, || unsafe { h5s::H5Screate_simple(1, ones.as_ptr(), none) })?;
    let to = value.as_mut_ptr().cast::<c_void>();
    for at in chunks.chunks(shape.len()) {
        // A chunk that lies outside the shape was cut off.
        if at.iter().zip(&shape).any(|(at, length)| at >= length) {
            continue;
        }
        from.guarded(path, |_| {
            // SAFETY: an open shape, and as many numbers as it has dimensions.
            call(what, || unsafe { h5s::H5Sselect_hyperslab(space.0, set, at.as_ptr(), none, ones.as_ptr(), none) })?;
            // One value: libhdf5 unpacks the whole chunk for it.
            // SAFETY: room for a value of the type.
            let read = call(what, || unsafe { h5d::H5Dread(object.0, kind.0, one.0, space.0, list, to) });
            read.map_err(|fault| Fault::new(format!("`{path}`: cannot unpack the chunk at {at:?}"), fault.cause))?;
            // SAFETY: what libhdf5 allotted for texts and lists goes back to it; the memory itself is ours.
            call(what, || unsafe { h5t::H5Treclaim(kind.0, one.0, list, to) })
        })?;
    }
    Ok(())
}

/// Whether a dataset has packed chunks, and libhdf5 all that unpacks them.
fn is_packed_as_known(list: &Id) -> Result<bool, Fault> {
    let what = || "the filters of a dataset".to_owned();
    // SAFETY: an open list, here and below.
    let layout = call(what, || unsafe { h5p::H5Pget_layout(list.0) } as c_int)?;
    if layout != h5d::H5D_layout_t::H5D_CHUNKED as c_int {
        return Ok(false);
    }
    // SAFETY: as above.
    let filters = call(what, || unsafe { h5p::H5Pget_nfilters(list.0) })?;
    for at in 0..filters {
        let mut settings: [c_uint; 8] = [0; 8];
        let (mut flags, mut config, mut count, none) = (0, 0, settings.len(), std::ptr::null_mut());
        let to = settings.as_mut_ptr();
        // SAFETY: as above, as many places as said, and none for a name.
        let number = call(what, || unsafe {
            h5p::H5Pget_filter2(list.0, at as c_uint, &raw mut flags, &raw mut count, to, 0, none, &raw mut config)
        })?;
        // Of the ways of bitshuffle we know one.
        let is_other = number == Filter::BitshuffleLz4.stages(1)[0].0 && (count < 5 || settings[4] != 2);
        // SAFETY: any number may be asked for.
        if is_other || call(what, || unsafe { h5z::H5Zfilter_avail(number) })? == 0 {
            return Ok(false);
        }
    }
    Ok(filters > 0)
}

/// Where the chunks that a dataset has begin, so many numbers each.
fn chunks(dataset: &Id, rank: usize) -> Result<Vec<u64>, Fault> {
    struct Seen(Vec<u64>, usize);
    unsafe extern "C" fn take(at: *const u64, _: c_uint, _: u64, _: u64, seen: *mut c_void) -> c_int {
        // SAFETY: a number for each dimension, and the record below, which nobody else uses now.
        let (at, seen) = unsafe {
            let seen = &mut *seen.cast::<Seen>();
            (std::slice::from_raw_parts(at, seen.1), seen)
        };
        seen.0.extend_from_slice(at);
        c_int::from(seen.0.len() > STATIC_CHUNKS_MAX * seen.1)
    }
    let mut seen = Seen(Vec::new(), rank);
    let to = (&raw mut seen).cast();
    let what = || "cannot list its chunks".to_owned();
    // SAFETY: the call ends before the record does, and `take` does not unwind.
    call(what, || unsafe { h5d::H5Dchunk_iter(dataset.0, h5p::H5P_DEFAULT, Some(take), to) })?;
    if seen.0.len() > STATIC_CHUNKS_MAX * rank {
        return Err(Fault::new(what(), format!("there are more than {STATIC_CHUNKS_MAX}")));
    }
    Ok(seen.0)
}

fn stamp(path: &Path) -> std::io::Result<(SystemTime, u64)> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(std::io::Error::other("it is not a plain file"));
    }
    Ok((about.modified()?, about.len()))
}

/// Copies a dataset or a type with its attributes; chunks stay packed as they are.
pub(crate) fn copy_object(from: &Source, path: &str, to: &File, name: &str) -> Result<(), Fault> {
    let (source, target, list) = (h5::c_name(path)?, h5::c_name(name)?, h5p::H5P_DEFAULT);
    from.guarded(path, |file| {
        call(
            || format!("cannot copy `{path}`"),
            // SAFETY: open files and valid names.
            || unsafe { h5o::H5Ocopy(file.id(), source.as_ptr(), to.id(), target.as_ptr(), list, list) },
        )
    })?;
    Ok(())
}

/// Copies the attributes of a group to the group at the same path.
pub(crate) fn copy_attributes(from: &Source, path: &str, to: &File) -> Result<(), Fault> {
    let target = object(to, path)?;
    each_value(from, path, &mut |name, kind, shape, value| {
        let what = || format!("cannot copy the attribute `{name}` of `{}`", shown(path));
        let (c_name, list) = (h5::c_name(name)?, h5p::H5P_DEFAULT);
        let made = new_id(
            what,
            // SAFETY: open object, type and shape, and a valid name.
            || unsafe { h5a::H5Acreate2(target.0, c_name.as_ptr(), kind.0, shape.0, list, list) },
        )?;
        if let Some(value) = value {
            // SAFETY: as many values as the shape has, of the type.
            call(what, || unsafe { h5a::H5Awrite(made.0, kind.0, value) })?;
        }
        Ok(())
    })
}

/// Reads the attributes of an object, for nothing.
fn read_attributes(from: &Source, path: &str) -> Result<(), Fault> {
    each_value(from, path, &mut |_, _, _, _| Ok(()))
}

/// What takes an attribute: its name, its type, its shape, and its values, where it has any.
type Take<'a> = dyn FnMut(&str, &Id, &Id, Option<*const c_void>) -> Result<(), Fault> + 'a;

/// Goes through the attributes of an object with their values.
fn each_value(from: &Source, path: &str, take: &mut Take<'_>) -> Result<(), Fault> {
    let source = from.object(path)?;
    each_attribute(from, &source, path, &mut |attribute, name| {
        let what = || format!("cannot read the attribute `{name}` of `{}`", shown(path));
        let list = h5p::H5P_DEFAULT;
        // SAFETY: an open attribute, here and below.
        let kind = new_id(what, || unsafe { h5a::H5Aget_type(attribute.0) })?;
        // A type that has a name belongs to its file.
        // SAFETY: an open type.
        let kind = new_id(what, || unsafe { h5t::H5Tcopy(kind.0) })?;
        // SAFETY: as above.
        let shape = new_id(what, || unsafe { h5a::H5Aget_space(attribute.0) })?;
        // SAFETY: as above.
        let count = call(what, || unsafe { h5s::H5Sget_simple_extent_npoints(shape.0) })?;
        // SAFETY: an open type.
        let size = h5::locked(|| unsafe { h5t::H5Tget_size(kind.0) });
        let bytes = (count as usize).checked_mul(size).filter(|bytes| *bytes <= ATTRIBUTE_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| Fault::new(what(), "it is too large"))?;
        if bytes == 0 {
            return take(name, &kind, &shape, None);
        }
        // Of eight bytes each: texts are pointers.
        let mut memory = vec![0_u64; bytes.div_ceil(8)];
        let at = memory.as_mut_ptr().cast::<c_void>();
        // SAFETY: room for all values of the type.
        call(what, || unsafe { h5a::H5Aread(attribute.0, kind.0, at) })?;
        let taken = take(name, &kind, &shape, Some(at));
        // SAFETY: what libhdf5 allotted for texts and lists goes back to it; the memory itself is ours.
        let _ = call(what, || unsafe { h5t::H5Treclaim(kind.0, shape.0, list, at) });
        taken
    })
}

fn object(file: &File, path: &str) -> Result<Id, Fault> {
    let path = shown(path);
    let name = h5::c_name(path)?;
    let what = || format!("cannot open `{path}`");
    // SAFETY: an open file and a valid name.
    new_id(what, || unsafe { h5o::H5Oopen(file.id(), name.as_ptr(), h5p::H5P_DEFAULT) })
}

/// Goes through the attributes of an object.
fn each_attribute(
    from: &Source,
    object: &Id,
    path: &str,
    take: &mut dyn FnMut(&Id, &str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let what = || format!("cannot read the attributes of `{}`", shown(path));
    let count = from.guarded(path, |_| info(object, path))?.num_attrs;
    let (index, order) = (sys::H5_index_t::H5_INDEX_NAME, sys::H5_iter_order_t::H5_ITER_INC);
    for at in 0..count {
        from.guarded(path, |_| {
            let attribute = new_id(
                what,
                // SAFETY: an open object, and a number of one of its attributes.
                || unsafe {
                    h5a::H5Aopen_by_idx(object.0, c".".as_ptr(), index, order, at, h5p::H5P_DEFAULT, h5p::H5P_DEFAULT)
                },
            )?;
            // SAFETY: an open attribute; without a place to write to the answer is the length.
            let length = call(what, || unsafe { h5a::H5Aget_name(attribute.0, 0, std::ptr::null_mut()) } as i64)?;
            if length as usize > ATTRIBUTE_BYTES_MAX {
                return Err(Fault::new(what(), "a name is too long"));
            }
            let mut name = vec![0_u8; length as usize + 1];
            let to = name.as_mut_ptr().cast::<c_char>();
            // SAFETY: as many bytes as the name has, and its end.
            call(what, || unsafe { h5a::H5Aget_name(attribute.0, name.len(), to) } as i64)?;
            name.pop();
            let name = String::from_utf8(name).map_err(|_| Fault::new(what(), "a name is not UTF-8"))?;
            take(&attribute, &name)
        })?;
    }
    Ok(())
}

fn info(object: &Id, path: &str) -> Result<h5o::H5O_info2_t, Fault> {
    let mut info = std::mem::MaybeUninit::<h5o::H5O_info2_t>::uninit();
    let fields = h5o::H5O_INFO_BASIC | h5o::H5O_INFO_NUM_ATTRS;
    let what = || format!("cannot read `{path}`");
    // SAFETY: an open object, and a place for the answer.
    call(what, || unsafe { h5o::H5Oget_info3(object.0, info.as_mut_ptr(), fields) })?;
    // SAFETY: libhdf5 said that it filled it.
    Ok(unsafe { info.assume_init() })
}

/// A look at all objects.
struct Walk<'a> {
    from: &'a Source,
    things: HashMap<String, &'static str>,
    /// Path of each object that was seen, by its place in the file.
    seen: HashMap<[u8; h5o::H5O_MAX_TOKEN_SIZE], String>,
    /// Of all datasets.
    bytes: u64,
    /// Told: there are too many objects, or bytes.
    full: bool,
    mistakes: Vec<Mistake>,
}

impl<'a> Walk<'a> {
    fn new(from: &'a Source) -> Self {
        let (things, seen) = (HashMap::new(), HashMap::new());
        Self { from, things, seen, bytes: 0, full: false, mistakes: Vec::new() }
    }

    fn wrong(&mut self, at: &str, cause: impl std::fmt::Display, hint: &str) {
        if self.mistakes.len() < MISTAKES_MAX {
            let cause = format!("the static file {}: `{}`: {cause}", self.from.path.display(), shown(at));
            self.mistakes.push(Mistake { cause, hint: hint.to_owned(), ..Mistake::default() });
        }
    }

    /// The group at a path, with all that is in it.
    fn group(&mut self, name: &str, path: &str, depth: usize) -> Group {
        let mut group = Group { name: name.to_owned(), ..Group::default() };
        let said = self.from.object(path).and_then(|object| {
            self.note(path, &object)?;
            self.attributes(path, &object)
        });
        let names = said.and_then(|said| {
            group.from_static = Some(said);
            self.from.guarded(path, |file| links(file, path))
        });
        match names {
            _ if depth > DEPTH_MAX => {
                self.wrong(path, format!("groups nest deeper than {DEPTH_MAX}"), "nest fewer groups")
            }
            Err(fault) => self.wrong(path, fault.cause, "check whether it is damaged"),
            Ok(names) => {
                for (name, link) in names {
                    if self.full {
                        break;
                    }
                    let inside = format!("{path}/{name}");
                    match self.node(&name, &inside, link, depth) {
                        Ok(Some((thing, node))) => {
                            self.things.insert(inside, thing);
                            group.children.push(node);
                        }
                        Ok(None) => (),
                        Err(fault) => self.wrong(&inside, fault.cause, "check whether it is damaged"),
                    }
                }
            }
        }
        group
    }

    fn node(
        &mut self,
        name: &str,
        path: &str,
        link: h5l::H5L_type_t,
        depth: usize,
    ) -> Result<Option<(&'static str, Node)>, Fault> {
        let own = name.to_owned();
        if let Some(cause) = bad_name(name) {
            self.wrong(path, cause, "rename it");
            return Ok(None);
        }
        if depth <= 1 && name == "beamport" {
            self.wrong(path, "the name is reserved", "rename or remove it: beamport writes its account there");
            return Ok(None);
        }
        if self.things.len() >= NODES_MAX {
            self.full = true;
            self.wrong(path, format!("more than {NODES_MAX} objects"), "write large arrays as datasets");
            return Ok(None);
        }
        match link {
            h5l::H5L_type_t::H5L_TYPE_SOFT => {
                let value = self.from.guarded(path, |file| link_value(file, path))?;
                let text = CStr::from_bytes_until_nul(&value).ok().and_then(|text| text.to_str().ok());
                let target = text.ok_or_else(|| Fault::new("", "its target is not text"))?.to_owned();
                return Ok(Some(("link", Node::Soft { name: own, target })));
            }
            h5l::H5L_type_t::H5L_TYPE_EXTERNAL => {
                let (file, target) = outside(&self.from.guarded(path, |file| link_value(file, path))?)?;
                let wrong = file_beside(Some(&file), Some(&target));
                let is_beside = wrong.is_empty();
                wrong.into_iter().for_each(|(_, cause, hint)| self.wrong(path, cause, hint));
                return Ok(is_beside.then_some(("link", Node::Outside { name: own, file, target })));
            }
            h5l::H5L_type_t::H5L_TYPE_HARD => (),
            _ => {
                self.wrong(path, "an unknown kind of link", "make it a soft link");
                return Ok(None);
            }
        }
        let object = self.from.object(path)?;
        if let Some(first) = self.seen.get(&place(&object, path)?) {
            if path.strip_prefix(first.as_str()).is_some_and(|rest| rest.starts_with('/')) {
                let first = if first.is_empty() { "/" } else { first };
                let cause = format!("a hard link to `{first}` from inside it: the group would contain itself");
                self.wrong(path, cause, "remove it, or make it a soft link");
                return Ok(None);
            }
            let target = vec![if first.is_empty() { "/".to_owned() } else { first.clone() }];
            return Ok(Some(("link", Node::Link { name: own, target, pointer: String::new() })));
        }
        match info(&object, path)?.type_ {
            h5o::H5O_type_t::H5O_TYPE_GROUP => {
                // In front of what is in it.
                self.things.insert(path.to_owned(), "group");
                drop(object);
                Ok(Some(("group", Node::Group(self.group(name, path, depth + 1)))))
            }
            kind @ (h5o::H5O_type_t::H5O_TYPE_DATASET | h5o::H5O_type_t::H5O_TYPE_NAMED_DATATYPE) => {
                self.note(path, &object)?;
                let is_dataset = kind == h5o::H5O_type_t::H5O_TYPE_DATASET;
                if is_dataset && !self.dataset(path, &object)? {
                    return Ok(None);
                }
                self.attributes(path, &object)?;
                Ok(Some((if is_dataset { "dataset" } else { "type" }, Node::Static { name: own })))
            }
            _ => {
                self.wrong(path, "neither a group nor a dataset", "remove it");
                Ok(None)
            }
        }
    }

    fn note(&mut self, path: &str, object: &Id) -> Result<(), Fault> {
        self.seen.insert(place(object, path)?, path.to_owned());
        Ok(())
    }

    /// Whether a dataset can be copied: its bytes are in the file, and mean the same in another.
    fn dataset(&mut self, path: &str, object: &Id) -> Result<bool, Fault> {
        if self.from.guarded(path, |file| Found::open(file, path))?.is_none() {
            let hint = "copy it into this file with `h5py`; `h5repack` does not";
            self.wrong(path, "its data are in other files", hint);
            return Ok(false);
        }
        let what = || format!("cannot read `{path}`");
        // SAFETY: an open dataset.
        let kind = new_id(what, || unsafe { h5d::H5Dget_type(object.0) })?;
        if has_references(&kind) {
            self.wrong(path, REFERENCES.0, REFERENCES.1);
            return Ok(false);
        }
        // SAFETY: an open dataset.
        let bytes = self.from.guarded(path, |_| h5::locked(|| unsafe { h5d::H5Dget_storage_size(object.0) }));
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > STATIC_BYTES_MAX {
            self.full = true;
            let cause = format!("up to here {} bytes; the limit is {STATIC_BYTES_MAX}", self.bytes);
            self.wrong(path, cause, "put large data in other files, and link to them");
            return Ok(false);
        }
        Ok(true)
    }

    /// Looks at the attributes of an object: their names, and its class, where it says one.
    fn attributes(&mut self, path: &str, object: &Id) -> Result<StaticGroup, Fault> {
        let (mut said, mut wrong) = (StaticGroup::default(), Vec::new());
        each_attribute(self.from, object, path, &mut |attribute, name| {
            let what = || format!("the attribute `{name}`");
            // SAFETY: an open attribute.
            let kind = new_id(what, || unsafe { h5a::H5Aget_type(attribute.0) })?;
            // SAFETY: as above.
            let bytes = h5::locked(|| unsafe { h5a::H5Aget_storage_size(attribute.0) });
            if has_references(&kind) {
                wrong.push((format!("the attribute `{name}`: {}", REFERENCES.0), REFERENCES.1));
            } else if bytes > ATTRIBUTE_BYTES_MAX as u64 {
                let cause = format!("the attribute `{name}` has {bytes} bytes; the limit is {ATTRIBUTE_BYTES_MAX}");
                wrong.push((cause, "make it a dataset"));
            } else if name == "NX_class" {
                said.class = h5::read_text_attribute(attribute);
            }
            said.attributes.push(name.to_owned());
            Ok(())
        })?;
        wrong.into_iter().for_each(|(cause, hint)| self.wrong(path, cause, hint));
        Ok(said)
    }
}

const REFERENCES: (&str, &str) = (
    "references name places of that file, and mean nothing in another",
    "remove them; links and paths (`depends_on`) can stay",
);

fn has_references(kind: &Id) -> bool {
    // SAFETY: an open type.
    call(String::new, || unsafe { h5t::H5Tdetect_class(kind.0, h5t::H5T_class_t::H5T_REFERENCE) })
        .is_ok_and(|found| found > 0)
}

/// Where an object lies in its file.
fn place(object: &Id, path: &str) -> Result<[u8; h5o::H5O_MAX_TOKEN_SIZE], Fault> {
    let token = info(object, path)?.token;
    // SAFETY: the token is so many bytes, without a gap.
    Ok(unsafe { std::mem::transmute::<h5o::H5O_token_t, [u8; h5o::H5O_MAX_TOKEN_SIZE]>(token) })
}

/// Names and kinds of the links of a group, by name.
fn links(file: &File, path: &str) -> Result<Vec<(String, h5l::H5L_type_t)>, Fault> {
    struct Seen(Vec<(String, h5l::H5L_type_t)>, bool);
    extern "C" fn see(_: Hid, name: *const c_char, info: *const h5l::H5L_info2_t, seen: *mut c_void) -> c_int {
        // SAFETY: libhdf5 gives a valid name and record, and `seen` is ours.
        let (name, kind, seen) = unsafe { (CStr::from_ptr(name), (*info).type_, &mut *seen.cast::<Seen>()) };
        match name.to_str() {
            Ok(name) => seen.0.push((name.to_owned(), kind)),
            Err(_) => seen.1 = true,
        }
        // One more than there may be is refused.
        c_int::from(seen.1 || seen.0.len() > NODES_MAX)
    }
    let group = object(file, path)?;
    let (index, order) = (sys::H5_index_t::H5_INDEX_NAME, sys::H5_iter_order_t::H5_ITER_INC);
    let mut seen = Seen(Vec::new(), false);
    let to = std::ptr::from_mut(&mut seen).cast();
    call(
        || format!("cannot read the group `{path}`"),
        // SAFETY: an open group; the callback is called during the call only.
        || unsafe { h5l::H5Literate2(group.0, index, order, std::ptr::null_mut(), Some(see), to) },
    )?;
    if seen.1 {
        return Err(Fault::new("", "a name in it is not UTF-8"));
    }
    Ok(seen.0)
}

/// Reads the value of a link.
fn link_value(file: &File, path: &str) -> Result<Vec<u8>, Fault> {
    let name = h5::c_name(path)?;
    let what = || format!("cannot read the link `{path}`");
    // Longer ones are cut, and then refused as what they are not.
    let mut value = vec![0_u8; ATTRIBUTE_BYTES_MAX];
    let to = value.as_mut_ptr().cast();
    // SAFETY: an open file, a valid name, and as many bytes as said.
    call(what, || unsafe { h5l::H5Lget_val(file.id(), name.as_ptr(), to, value.len(), h5p::H5P_DEFAULT) })?;
    Ok(value)
}

/// File and path of a link to another file.
fn outside(value: &[u8]) -> Result<(String, String), Fault> {
    let (mut flags, mut file, mut target) = (0 as c_uint, std::ptr::null(), std::ptr::null());
    let what = || "a link to another file".to_owned();
    call(
        what,
        // SAFETY: so many bytes, and places for three answers, which point into them.
        || unsafe {
            h5l::H5Lunpack_elink_val(value.as_ptr().cast(), value.len(), &raw mut flags, &raw mut file, &raw mut target)
        },
    )?;
    // SAFETY: libhdf5 says that both are texts with an end within the bytes.
    let text = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_str().map(str::to_owned);
    match (text(file), text(target)) {
        (Ok(file), Ok(target)) => Ok((file, target)),
        _ => Err(Fault::new(what(), "its target is not text")),
    }
}
