//! The library `libbeamport_epics.so`: loaded at run time, and its C interface as safe types. Numbers of kinds and bits
//! are those of `shim/beamport_epics.h`.
//!
//! All `unsafe` of the crate is here. What makes it sound: the library is never unloaded; it keeps no pointer that it
//! was given; what an update points to lives until the next `bp_poll` or `bp_close` of its client, which both borrow
//! the client mutably while updates borrow it.

use crate::limits::{ABI, ERROR_BYTES, FILE, QUEUE_BYTES, VARIABLE};
use crate::plan::Subscription;
use crate::put_value::PutValue;
use crate::value::{Columns, Elements, Failed, Form, Frame, Kind, Named, NamedList, Update, What};
use flow::Fault;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;
use wire::DType;

#[repr(C)]
struct RawSettings {
    protocol: u32,
    addresses: *const c_char,
    name_servers: *const c_char,
    queue_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawElements {
    kind: u32,
    reserved: u32,
    count: u64,
    data: *const c_void,
    bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawText {
    data: *const c_char,
    bytes: u64,
}

/// A column of a table or an attribute of an image, as the library gives it.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawNamed {
    name: RawText,
    description: RawText,
    source: RawText,
    values: RawElements,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawUpdate {
    id: u64,
    what: u32,
    form: u32,
    count: u64,
    seconds: i64,
    nanoseconds: u32,
    user_tag: i32,
    changed: u32,
    severity: i16,
    status: i16,
    text: RawText,
    alarm: RawText,
    units: RawText,
    type_id: RawText,
    value: RawElements,
    columns_count: u64,
    columns: *const RawNamed,
    dims_count: u64,
    dims: *const u64,
    unique_id: i32,
    has_unique_id: i32,
    data_seconds: i64,
    data_nanoseconds: u32,
    reserved: u32,
    codec: RawText,
    uncompressed: u64,
    codec_type: u32,
    dropped: u32,
}

#[repr(C)]
#[derive(Default)]
struct RawCounts {
    updates: u64,
    client_squash: u64,
    server_squash: u64,
    waiting: u64,
}

type RawClient = c_void;

/// The functions of the library.
struct Functions {
    version: unsafe extern "C" fn() -> *const c_char,
    open: unsafe extern "C" fn(*const RawSettings, *mut c_char, usize) -> *mut RawClient,
    close: unsafe extern "C" fn(*mut RawClient),
    descriptor: unsafe extern "C" fn(*const RawClient) -> c_int,
    add: unsafe extern "C" fn(*mut RawClient, u64, *const c_char, u32, u32, *mut c_char, usize) -> c_int,
    remove: unsafe extern "C" fn(*mut RawClient, u64),
    poll: unsafe extern "C" fn(*mut RawClient, *mut RawUpdate, usize) -> usize,
    counted: unsafe extern "C" fn(*const RawClient, u64, *mut RawCounts) -> c_int,
    put: unsafe extern "C" fn(*mut RawClient, *const c_char, *const RawElements, u32, u32, *mut c_char, usize) -> c_int,
    put_start: unsafe extern "C" fn(*mut RawClient, u64, *const RawElements, c_int, i32, *mut c_char, usize) -> c_int,
}

static LIBRARY: OnceLock<Result<Functions, String>> = OnceLock::new();

/// Where the library is looked for: where the variable says, else beside the folder of the program, as librdkafka is.
fn path() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    let program = std::env::current_exe().map_err(|e| format!("the path of the program is unknown: {e}"))?;
    let folder = program.parent().and_then(|bin| bin.parent()).map(|folder| folder.join("lib/beamport").join(FILE));
    folder.ok_or_else(|| "the program has no folder above its own".to_owned())
}

/// The newest failure of the loader.
fn loader_error() -> String {
    // SAFETY: it returns null or a text that ends with NUL and stays until the next call of the loader in this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn load() -> Result<Functions, String> {
    let path = path()?;
    if !path.exists() {
        return Err(format!("no file `{}`", path.display()));
    }
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: loads the library that belongs to this program; its initialisers are those of PVXS and libca.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(loader_error());
    }
    let symbol = |name: &CStr| {
        // SAFETY: the handle is open and stays so, the name ends with NUL.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if address.is_null() { Err(loader_error()) } else { Ok(address) }
    };
    // SAFETY: the function of this name has this type in the header, in each version of the interface.
    let abi = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(symbol(c"bp_abi")?)() };
    if abi != ABI {
        return Err(format!("`{}` has version {abi} of the interface, this program {ABI}", path.display()));
    }
    // SAFETY: with this version of the interface the functions of these names have the types of the fields.
    unsafe {
        Ok(Functions {
            version: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(symbol(
                c"bp_version",
            )?),
            open: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const RawSettings, *mut c_char, usize) -> *mut RawClient,
            >(symbol(c"bp_open")?),
            close: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut RawClient)>(symbol(c"bp_close")?),
            descriptor: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const RawClient) -> c_int>(symbol(
                c"bp_descriptor",
            )?),
            add: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut RawClient, u64, *const c_char, u32, u32, *mut c_char, usize) -> c_int,
            >(symbol(c"bp_add")?),
            remove: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut RawClient, u64)>(symbol(
                c"bp_remove",
            )?),
            poll: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut RawClient, *mut RawUpdate, usize) -> usize,
            >(symbol(c"bp_poll")?),
            counted: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const RawClient, u64, *mut RawCounts) -> c_int,
            >(symbol(c"bp_counted")?),
            put: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(
                    *mut RawClient,
                    *const c_char,
                    *const RawElements,
                    u32,
                    u32,
                    *mut c_char,
                    usize,
                ) -> c_int,
            >(symbol(c"bp_put")?),
            put_start: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut RawClient, u64, *const RawElements, c_int, i32, *mut c_char, usize) -> c_int,
            >(symbol(c"bp_put_start")?),
        })
    }
}

fn library() -> Result<&'static Functions, Fault> {
    LIBRARY.get_or_init(load).as_ref().map_err(|cause| {
        Fault::new("the EPICS libraries cannot be loaded", cause)
            .hint("`pip install .` builds them where there are wheels of `pvxslibs`; `fake:` PVs need none")
    })
}

/// The version of the EPICS libraries; a fault where they cannot be loaded.
pub fn version() -> Result<String, Fault> {
    let library = library()?;
    // SAFETY: the function returns a text that ends with NUL and stays.
    Ok(unsafe { CStr::from_ptr((library.version)()) }.to_string_lossy().into_owned())
}

/// Has a function called when the process ends, before the libraries that are loaded now end theirs.
pub(crate) fn at_exit(close: extern "C" fn()) {
    // SAFETY: the function lives as long as the process.
    unsafe { libc::atexit(close) };
}

impl NamedList for RawUpdate {
    fn get(&self, at: usize) -> Option<Named<'_>> {
        columns(self).get(at).map(named)
    }
}

fn named(raw: &RawNamed) -> Named<'_> {
    Named {
        name: text(&raw.name),
        description: text(&raw.description),
        source: text(&raw.source),
        values: elements(&raw.values),
    }
}

/// A slice of what an update points to.
fn slice<T>(owner: &T, data: *const c_void, bytes: u64) -> &[u8] {
    let _ = owner;
    if data.is_null() || bytes == 0 {
        return &[];
    }
    // SAFETY: the library gives `bytes` readable bytes at `data`, which live as long as the update that `owner` is part
    // of: until the next poll, for which the client must not be borrowed.
    unsafe { std::slice::from_raw_parts(data.cast(), bytes as usize) }
}

fn text(raw: &RawText) -> &[u8] {
    slice(raw, raw.data.cast(), raw.bytes)
}

/// The types of numbers: the first has the number 1.
const NUMBERS: [DType; 10] = [
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float32,
    DType::Float64,
];

fn kind(raw: u32) -> Kind {
    match raw {
        1..=10 => Kind::Number(NUMBERS[raw as usize - 1]),
        11 => Kind::Text,
        _ => Kind::None,
    }
}

/// The number of a kind.
fn number_of(kind: Kind) -> u32 {
    match kind {
        Kind::Number(dtype) => NUMBERS.iter().position(|one| *one == dtype).map_or(0, |at| at as u32 + 1),
        Kind::Text => 11,
        Kind::None => 0,
    }
}

/// How a write has failed; `None` where it has not.
fn failure(raw: c_int) -> Option<Failed> {
    match raw {
        0 => None,
        2 => Some(Failed::NoServer),
        3 => Some(Failed::NoAnswer),
        _ => Some(Failed::Refused),
    }
}

fn raw_elements(of: &Elements<'_>) -> RawElements {
    RawElements {
        kind: number_of(of.kind),
        reserved: 0,
        count: of.count as u64,
        data: of.bytes.as_ptr().cast(),
        bytes: of.bytes.len() as u64,
    }
}

fn elements(raw: &RawElements) -> Elements<'_> {
    Elements { kind: kind(raw.kind), count: raw.count as usize, bytes: slice(raw, raw.data, raw.bytes) }
}

/// Nanoseconds since 1970 of a time from outside.
fn nanoseconds(seconds: i64, nanoseconds: u32) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.into())
}

fn columns(raw: &RawUpdate) -> &[RawNamed] {
    match raw.columns.is_null() || raw.columns_count == 0 {
        true => &[],
        // SAFETY: as in `slice`: `columns_count` structures live as long as the update.
        false => unsafe { std::slice::from_raw_parts(raw.columns, raw.columns_count as usize) },
    }
}

/// `is_ca`: it came by Channel Access.
fn update(raw: &RawUpdate, is_ca: bool) -> Update<'_> {
    // A structure of no normative type may have no time stamp; one at 0 of others was never set.
    let is_stamped = is_ca || text(&raw.type_id).starts_with(b"epics:nt/");
    let has_time = raw.seconds != 0 || raw.nanoseconds != 0 || is_stamped;
    let dims = match raw.dims.is_null() || raw.dims_count == 0 {
        true => &[][..],
        // SAFETY: as in `slice`: `dims_count` numbers live as long as the update.
        false => unsafe { std::slice::from_raw_parts(raw.dims, raw.dims_count as usize) },
    };
    Update {
        id: raw.id,
        what: match raw.what {
            0 => What::Connected,
            1 => What::Disconnected,
            2 => What::Value,
            4 => What::Squashed,
            5 => What::Finished,
            6 => What::Written { tag: raw.user_tag, failed: failure(raw.status.into()) },
            _ => What::Refused,
        },
        form: match raw.form {
            0 => Form::Scalar,
            1 => Form::Array,
            2 => Form::Enum,
            3 => Form::Table,
            4 => Form::Image,
            _ => Form::Other,
        },
        count: raw.count,
        time: has_time.then(|| nanoseconds(raw.seconds, raw.nanoseconds)),
        has_value: raw.changed & 1 != 0,
        has_alarm: raw.changed & 2 != 0,
        has_units: raw.changed & 8 != 0,
        severity: raw.severity,
        text: text(&raw.text),
        alarm: text(&raw.alarm),
        units: text(&raw.units),
        type_id: text(&raw.type_id),
        value: elements(&raw.value),
        columns: Columns::of(raw),
        frame: Frame {
            dims,
            unique_id: (raw.has_unique_id != 0).then_some(raw.unique_id),
            data_time: nanoseconds(raw.data_seconds, raw.data_nanoseconds),
            codec: text(&raw.codec),
            uncompressed: raw.uncompressed,
            dropped: raw.dropped,
            codec_type: match kind(raw.codec_type) {
                Kind::Number(dtype) => Some(dtype),
                _ => None,
            },
        },
    }
}

/// Which protocol a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Pva = 0,
    Ca = 1,
}

/// A client of one protocol, with the updates that it has given.
pub(crate) struct Client {
    functions: &'static Functions,
    raw: *mut RawClient,
    is_ca: bool,
    updates: Vec<RawUpdate>,
    /// The first that was not taken.
    at: usize,
}

// SAFETY: the interface asks that its functions are called from one thread at a time, which `&mut self` and a client
// without `Sync` see to; it ties no client to a thread.
unsafe impl Send for Client {}

fn message(error: &[c_char; ERROR_BYTES]) -> String {
    let bytes: Vec<u8> = error.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "it contains a NUL".to_owned())
}

impl Client {
    /// Opens a client; without addresses and name servers it has those of the EPICS environment.
    pub(crate) fn open(speaks: Speaks, addresses: Option<&str>, servers: Option<&str>) -> Result<Self, Fault> {
        let functions = library()?;
        let fault = |cause: String| Fault::new("an EPICS client cannot be opened", cause);
        let addresses = addresses.map(c_string).transpose().map_err(fault)?;
        let servers = servers.map(c_string).transpose().map_err(fault)?;
        let settings = RawSettings {
            protocol: speaks as u32,
            addresses: addresses.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
            name_servers: servers.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
            queue_bytes: QUEUE_BYTES,
        };
        let mut error = [0; ERROR_BYTES];
        // SAFETY: settings and its texts outlive the call, `error` has room for as many bytes as are named.
        let raw = unsafe { (functions.open)(&settings, error.as_mut_ptr(), error.len()) };
        if raw.is_null() {
            return Err(fault(message(&error)));
        }
        Ok(Self { functions, raw, is_ca: speaks == Speaks::Ca, updates: Vec::new(), at: 0 })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        // SAFETY: the client is open.
        unsafe { (self.functions.descriptor)(self.raw) }
    }

    /// Subscribes to a PV.
    pub(crate) fn add(&mut self, id: u64, pv: &str, how: Subscription) -> Result<(), String> {
        let pv = c_string(pv)?;
        let options = u32::from(how.pipeline) | u32::from(how.is_beside) << 1;
        let mut error = [0; ERROR_BYTES];
        // SAFETY: the client is open, the text ends with NUL, `error` has room for as many bytes as are named.
        let failed = unsafe {
            (self.functions.add)(self.raw, id, pv.as_ptr(), how.queue, options, error.as_mut_ptr(), error.len())
        };
        if failed == 0 { Ok(()) } else { Err(message(&error)) }
    }

    /// Ends a subscription. Updates of it that were polled already are still there.
    pub(crate) fn remove(&mut self, id: u64) {
        // SAFETY: the client is open.
        unsafe { (self.functions.remove)(self.raw, id) }
    }

    /// Takes at most `most` updates from the queue; only after all of the last ones were taken.
    pub(crate) fn poll(&mut self, most: usize) -> usize {
        self.at = 0;
        self.updates.clear();
        self.updates.reserve(most);
        // SAFETY: the client is open, and there is room for `most` updates.
        let count = unsafe { (self.functions.poll)(self.raw, self.updates.as_mut_ptr(), most) };
        // SAFETY: the library has written `count` updates, and there is room for `most`.
        unsafe { self.updates.set_len(count.min(most)) };
        self.updates.len()
    }

    /// Waits until there are updates, for so long at most.
    pub(crate) fn wait(&self, patience: Duration) {
        let mut poll = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
        let milliseconds = c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX).max(1);
        // SAFETY: one structure, which outlives the call.
        unsafe { libc::poll(&mut poll, 1, milliseconds) };
    }

    /// The first update that was not taken.
    pub(crate) fn front(&self) -> Option<Update<'_>> {
        self.updates.get(self.at).map(|raw| update(raw, self.is_ca))
    }

    /// Takes it.
    pub(crate) fn pop(&mut self) {
        self.at += 1;
    }

    /// Writes a value to a PV and waits for the answer; with `waits` until its record has processed.
    pub(crate) fn put(
        &mut self,
        pv: &str,
        value: &PutValue,
        waits: bool,
        patience: Duration,
    ) -> Result<(), (Failed, String)> {
        let pv = c_string(pv).map_err(|why| (Failed::Refused, why))?;
        let (elements, mut error) = (raw_elements(&value.elements()), [0; ERROR_BYTES]);
        let options = u32::from(value.is_array) | u32::from(!waits) << 1;
        let patience_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
        // SAFETY: the client is open, the text ends with NUL, the elements point into `value`, `error` has room for as
        // many bytes as are named; all outlive the call, which keeps none of them.
        let answer = unsafe {
            let (error, room) = (error.as_mut_ptr(), error.len());
            (self.functions.put)(self.raw, pv.as_ptr(), &elements, options, patience_ms, error, room)
        };
        failure(answer).map_or(Ok(()), |failed| Err((failed, message(&error))))
    }

    /// Begins to write a value to the PV of a subscription; the answer is the update `What::Written` with this `tag`.
    pub(crate) fn put_start(&mut self, id: u64, value: &PutValue, tag: i32) -> Result<(), (Failed, String)> {
        let (elements, mut error) = (raw_elements(&value.elements()), [0; ERROR_BYTES]);
        // SAFETY: as in `put`.
        let answer = unsafe {
            let (error, room) = (error.as_mut_ptr(), error.len());
            (self.functions.put_start)(self.raw, id, &elements, value.is_array.into(), tag, error, room)
        };
        failure(answer).map_or(Ok(()), |failed| Err((failed, message(&error))))
    }

    /// How often the server has reported that it overwrote updates of a PV.
    pub(crate) fn server_squash(&self, id: u64) -> u64 {
        let mut counts = RawCounts::default();
        // SAFETY: the client is open, and `counts` outlives the call.
        let known = unsafe { (self.functions.counted)(self.raw, id, &mut counts) };
        if known == 0 { 0 } else { counts.server_squash }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the client is open, and nothing uses it afterwards.
        unsafe { (self.functions.close)(self.raw) }
    }
}

/// One descriptor for several: readable when one of them is.
pub(crate) struct Several(OwnedFd);

impl Several {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a system call without pointers.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is open, and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(epoll) }))
    }

    /// Adds a descriptor, which leaves by being closed.
    pub(crate) fn add(&self, descriptor: RawFd) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both are open, and the event outlives the call.
        let failed = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor, &mut event) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
