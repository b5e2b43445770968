//! [`Media`] on Linux: files, shared maps, futexes, OFD locks.
//!
//! Failure behaviour: every refusal of the system is an `io::Error`. A map of a fully allocated range cannot fault for
//! lack of space, which is why segments are allocated before they are written. The kernel frees a lock with the last
//! process that has its file open.

use crate::limits::{LOCKED_MAX, LOCKS_FROM};
use crate::outside::group;
use crate::outside::media::{File, Locks, Map, Media, Open, Process};
use std::any::Any;
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

/// The operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct Os;

impl Os {
    /// The media to give to everything that asks for one.
    pub fn shared() -> Arc<dyn Media> {
        Arc::new(Self)
    }
}

struct OsFile {
    file: fs::File,
    path: PathBuf,
    /// A second descriptor with O_DIRECT; `None` where the file system has none.
    direct: OnceLock<Option<fs::File>>,
}

struct Unmap {
    ptr: usize,
    len: usize,
}

impl Drop for Unmap {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `map` and nothing refers to it any more.
        unsafe { libc::munmap(self.ptr as *mut libc::c_void, self.len) };
    }
}

impl OsFile {
    fn direct(&self) -> Option<&fs::File> {
        let open = || {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_DIRECT | libc::O_CLOEXEC);
            options.open(&self.path).and_then(not_low).ok()
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Writes zeroes over that part of a range which lies behind the end of the file.
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        let (mut at, end) = (self.len()?.max(offset), offset + len);
        let zeroes = vec![0; 1 << 20];
        while at < end {
            let piece = (end - at).min(zeroes.len() as u64);
            self.file.write_all_at(&zeroes[..piece as usize], at)?;
            at += piece;
        }
        Ok(())
    }
}

impl File for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        loop {
            // SAFETY: plain system call on a descriptor that we own.
            let answer = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, offset as i64, len as i64) };
            if answer == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // ext2, ext3, NFS before 4.2: a block is there once something is written to it.
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return self.write_zeroes(offset, len),
                _ => return Err(error),
            }
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn read_blocks(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        // It returns less at the end of the file, and where the system gave up in between.
        match self.direct().map(|direct| direct.read_at(buf, offset)) {
            Some(Ok(n)) if n == buf.len() => Ok(n),
            Some(Ok(n)) => Ok(n + self.read_at(&mut buf[n..], offset + n as u64)?),
            Some(Err(e)) if e.raw_os_error() != Some(libc::EINVAL) => Err(e),
            _ => self.read_at(buf, offset),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn write_blocks(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = self.direct() {
            match direct.write_all_at(buf, offset) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                answer => return answer,
            }
        }
        self.file.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn map(&self, len: usize, write: bool) -> io::Result<Map> {
        let protection = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new shared map of a descriptor that we own; the kernel picks the place.
        let ptr =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, self.file.as_raw_fd(), 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: mapped for `len` bytes until `Unmap` is dropped.
        Ok(unsafe { Map::new(ptr.cast(), len, Box::new(Unmap { ptr: ptr as usize, len })) })
    }

    fn bring(&self, map: &Map, at: u64, len: u64) -> io::Result<()> {
        let from = at & !4095;
        let len = (at + len).min(map.len() as u64).saturating_sub(from) as usize;
        // SAFETY: a range of a map that lives; its pages are read and nothing else.
        let answer = unsafe { libc::madvise(map.ptr().add(from as usize).cast(), len, libc::MADV_POPULATE_READ) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Where the kernel knows no such call (before 5.14) or has no time, the touch itself brings it.
            _ if answer == 0 => Ok(()),
            Some(libc::EFAULT | libc::EHWPOISON) => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }

    fn identity(&self) -> u64 {
        self.file.metadata().map_or(0, |m| m.ino() ^ m.dev().rotate_left(48))
    }

    fn linked(&self) -> bool {
        self.file.metadata().is_ok_and(|m| m.nlink() > 0)
    }
}

impl Media for Os {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(how != Open::Read).create(how == Open::Create).mode(0o640);
        let file = open_plain(&mut options, path)?;
        if how == Open::Create {
            group::share_pins(&file, path)?;
        }
        Ok(Arc::new(OsFile { file, path: path.to_path_buf(), direct: OnceLock::new() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        match fs::read_dir(dir) {
            Ok(entries) => {
                let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name().into_string())).collect();
                let mut names: Vec<String> = names?.into_iter().flatten().collect();
                names.sort();
                Ok(names)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let make = |dir: &Path| fs::DirBuilder::new().recursive(true).mode(0o750).create(dir);
        let root = self.live_root();
        if dir.starts_with(&root) {
            make(&root)?;
            owned(&root)?;
        }
        make(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut options = fs::OpenOptions::new();
        let file = open_plain(options.read(true).write(true).create(true).truncate(false).mode(0o640), path)?;
        set_lock(file.as_raw_fd(), libc::F_WRLCK, ALL)?;
        Ok(Box::new(Locked::new(file)))
    }

    fn locks(&self, path: &Path, write: bool) -> io::Result<Arc<dyn Locks>> {
        let descriptor = OsLocks::open(path, write)?;
        let process = AtomicU32::new(process_id());
        Ok(Arc::new(OsLocks { path: path.to_owned(), write, descriptor: AtomicI32::new(descriptor), process }))
    }

    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let time = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the word and the time outlive the call; waiting only reads the word. Not PRIVATE: other processes wake it.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, time, 0, 0) };
    }

    fn wake(&self, word: &AtomicU32) {
        // SAFETY: waking uses the address only.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0) };
    }

    fn event(&self) -> io::Result<OwnedFd> {
        // SAFETY: a plain system call.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is new, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn now(&self) -> i64 {
        read_clock(libc::CLOCK_REALTIME)
    }

    fn clock(&self) -> i64 {
        read_clock(libc::CLOCK_MONOTONIC)
    }

    fn process(&self) -> Process {
        static SELF: OnceLock<(u32, u64)> = OnceLock::new();
        let pid = process_id();
        let &(known, start) = SELF.get_or_init(|| (pid, start_time(pid).unwrap_or(0)));
        if known == pid { Process { pid, start } } else { Process { pid, start: start_time(pid).unwrap_or(0) } }
    }

    fn alive(&self, process: Process) -> bool {
        process.pid != 0 && start_time(process.pid) == Some(process.start)
    }

    fn pid_space(&self) -> u64 {
        static SPACE: OnceLock<u64> = OnceLock::new();
        // No process changes its own.
        *SPACE.get_or_init(|| fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()))
    }

    fn boot(&self) -> [u8; 16] {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut id = [0; 16];
        let digits: Vec<u8> = text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        id
    }

    fn machine(&self) -> String {
        // A machine without an id is distinguished from others by its files alone.
        let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        id.chars().filter(char::is_ascii_hexdigit).take(32).collect()
    }

    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        // SAFETY: sixteen bytes that we own; up to 256 are always given whole once the pool is ready.
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        bytes
    }

    fn mounts(&self) -> u64 {
        fs::metadata("/proc/self/ns/mnt").map_or(0, |m| m.ino())
    }

    fn shared_memory(&self) -> u64 {
        fs::metadata("/dev/shm").map_or(0, |m| m.dev())
    }

    fn live_root(&self) -> PathBuf {
        // SAFETY: cannot fail.
        let user = unsafe { libc::geteuid() };
        PathBuf::from(format!("/dev/shm/beamport-{user}"))
    }

    fn share_live(&self, live: &Path, folder: &Path) -> io::Result<()> {
        group::share_live(live, folder, &self.live_root())
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        let name = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: zero is a valid value of this plain structure.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: name and structure outlive the call.
        if unsafe { libc::statvfs(name.as_ptr(), &mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stat.f_bavail * stat.f_frsize)
    }

    fn occupied(&self, dir: &Path) -> io::Result<u64> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(e) => return Err(e),
        };
        // A file that goes away meanwhile takes nothing. `blocks` counts in 512 B whatever the file system (stat(2)).
        let files = entries.flatten().filter_map(|e| e.metadata().ok()).filter(|m| m.is_file());
        Ok(files.map(|m| m.blocks() * 512).sum())
    }

    fn in_memory(&self, dir: &Path) -> bool {
        let Some(name) = dir.to_str().and_then(|d| CString::new(d).ok()) else { return false };
        // SAFETY: zero is a valid value of this plain structure.
        let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: name and structure outlive the call.
        unsafe { libc::statfs(name.as_ptr(), &mut stat) == 0 && stat.f_type == libc::TMPFS_MAGIC }
    }
}

/// A file that is locked for as long as this lives. Closing it would not do: a child that a thread of ours has just forked has
/// the same open file until it executes its program, and the lock with it.
///
/// A child that goes on without a program (code of the user that calls `fork`) closes it at once, before that code runs: it
/// would keep the lock of a process that died, and must not end that of one that lives.
struct Locked {
    file: ManuallyDrop<fs::File>,
    /// Where its number stands for [`let_go_in_child`].
    row: Option<&'static AtomicI32>,
}

/// Descriptors of locked files, each + 1; 0 is a free row. One without a row is not closed in a child.
static LOCKED: [AtomicI32; LOCKED_MAX] = [const { AtomicI32::new(0) }; LOCKED_MAX];
/// Where a free row may be: each reader has one, and there are thousands.
static NEXT_ROW: AtomicUsize = AtomicUsize::new(0);
/// Number of this process, once it was asked for.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Number of this process, without a call of the kernel each time: each message asks whether its memory is this process's.
#[inline]
pub fn process_id() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => ask_process_id(),
        known => known,
    }
}

#[cold]
fn ask_process_id() -> u32 {
    extern "C" fn forget_in_child() {
        PROCESS.store(0, Ordering::Relaxed);
    }
    static CHILDREN_FORGET: OnceLock<bool> = OnceLock::new();
    // SAFETY: the handler is a function of this program. Without memory for it, nothing is remembered.
    let forget =
        *CHILDREN_FORGET.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) == 0 });
    let id = std::process::id();
    if forget {
        PROCESS.store(id, Ordering::Relaxed);
    }
    id
}

/// This process is a child of one that had locks, and has executed no program.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Ends a child of a process that wrote streams and goes on without a program of its own: it shares their memory, and must
/// write nothing. For who calls code of the user, behind each call.
#[inline]
pub fn end_if_forked() {
    if FORKED.load(Ordering::Relaxed) {
        // SAFETY: ends the process without destructors: what they would clean up is the parent's.
        unsafe { libc::_exit(0) }
    }
}

/// Runs in a child between its fork and anything else: only calls that a signal handler may make.
extern "C" fn let_go_in_child() {
    FORKED.store(true, Ordering::Relaxed);
    for row in &LOCKED {
        let descriptor = row.swap(0, Ordering::Relaxed) - 1;
        if descriptor >= 0 {
            // SAFETY: our descriptor, which its owner does not close in a child.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Has children close this descriptor. The answer is where its number stands.
fn close_in_child(descriptor: RawFd) -> Option<&'static AtomicI32> {
    static ONCE: Once = Once::new();
    // SAFETY: the handler is a function of this program. Without memory for it children keep locks, as they did.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(let_go_in_child));
    });
    let from = NEXT_ROW.load(Ordering::Relaxed) % LOCKED_MAX;
    let take =
        |at: &usize| LOCKED[*at].compare_exchange(0, descriptor + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    let at = (from..LOCKED_MAX).chain(0..from).find(take)?;
    NEXT_ROW.store(at + 1, Ordering::Relaxed);
    Some(&LOCKED[at])
}

impl Locked {
    fn new(file: fs::File) -> Self {
        let row = close_in_child(file.as_raw_fd());
        Self { file: ManuallyDrop::new(file), row }
    }
}

/// [`Locks`] of a file that this process opened for them. A child finds the descriptor closed, and opens its own.
struct OsLocks {
    path: PathBuf,
    write: bool,
    descriptor: AtomicI32,
    /// The process that opened it.
    process: AtomicU32,
}

impl OsLocks {
    fn open(path: &Path, write: bool) -> io::Result<RawFd> {
        let descriptor = open_plain(fs::OpenOptions::new().read(true).write(write), path)?.into_raw_fd();
        close_in_child(descriptor);
        Ok(descriptor)
    }

    fn descriptor(&self) -> io::Result<RawFd> {
        if self.process.load(Ordering::Acquire) == process_id() {
            return Ok(self.descriptor.load(Ordering::Relaxed));
        }
        // Two threads of a child may both come here: then one descriptor stays open for nothing.
        let descriptor = Self::open(&self.path, self.write)?;
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.process.store(process_id(), Ordering::Release);
        Ok(descriptor)
    }
}

impl Locks for OsLocks {
    fn lock(&self, at: u64) -> io::Result<bool> {
        match set_lock(self.descriptor()?, libc::F_WRLCK, (at, 1)) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    fn unlock(&self, at: u64) {
        if self.process.load(Ordering::Acquire) == process_id() {
            let _ = set_lock(self.descriptor.load(Ordering::Relaxed), libc::F_UNLCK, (at, 1));
        }
    }

    fn is_locked(&self, at: u64) -> io::Result<bool> {
        let mut lock = lock_of(libc::F_WRLCK, (at, 1));
        // SAFETY: the structure is initialised and outlives the call.
        match unsafe { libc::fcntl(self.descriptor()?, libc::F_OFD_GETLK, &mut lock) } {
            0 => Ok(lock.l_type != libc::F_UNLCK as i16),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        // SAFETY: a plain system call.
        match unsafe { libc::fdatasync(self.descriptor()?) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for OsLocks {
    fn drop(&mut self) {
        // In a child the number may be another file's by now.
        if self.process.load(Ordering::Acquire) != process_id() {
            return;
        }
        let descriptor = self.descriptor.load(Ordering::Relaxed);
        let is_it = |row: &&AtomicI32| row.load(Ordering::Relaxed) == descriptor + 1;
        if let Some(row) = LOCKED.iter().find(is_it) {
            row.store(0, Ordering::Relaxed);
        }
        // A child that a thread has just forked has the same open file until it executes its program.
        let _ = set_lock(descriptor, libc::F_UNLCK, (LOCKS_FROM, 0));
        // SAFETY: ours, and closed here and nowhere else.
        drop(unsafe { fs::File::from_raw_fd(descriptor) });
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // In a child the number may be another file's by now.
        if FORKED.load(Ordering::Relaxed) {
            return;
        }
        if let Some(row) = self.row {
            row.store(0, Ordering::Relaxed);
        }
        let _ = set_lock(self.file.as_raw_fd(), libc::F_UNLCK, ALL);
        // SAFETY: it is dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.file) };
    }
}

/// Opens a regular file and nothing else: a named pipe would make its reader wait for ever.
fn open_plain(options: &mut fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    // The flag changes nothing for a regular file; a pipe opens at once.
    let file = options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    not_low(file)
}

/// A file whose number is none of 0, 1 and 2: code of the user closes those, and a C library prints into them.
fn not_low(file: fs::File) -> io::Result<fs::File> {
    if file.as_raw_fd() > 2 {
        return Ok(file);
    }
    // SAFETY: an open descriptor; the new one is ours.
    let descriptor = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: an open descriptor that nobody else owns.
    Ok(unsafe { fs::File::from_raw_fd(descriptor) })
}

/// First byte and number of bytes of a lock of a whole file.
const ALL: (u64, u64) = (0, LOCKS_FROM);

/// `bytes`: the first, and how many; 0: all behind it.
fn lock_of(kind: libc::c_int, bytes: (u64, u64)) -> libc::flock {
    // SAFETY: zero is a valid value of this plain structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (bytes.0 as i64, bytes.1 as i64);
    lock
}

fn set_lock(descriptor: RawFd, kind: libc::c_int, bytes: (u64, u64)) -> io::Result<()> {
    let lock = lock_of(kind, bytes);
    // SAFETY: the structure is initialised and outlives the call.
    if unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &lock) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => io::ErrorKind::WouldBlock.into(),
        _ => error,
    })
}

/// Everybody may make folders in `/dev/shm`: one that another user made there under our name is not written into.
fn owned(dir: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    // SAFETY: cannot fail.
    let user = unsafe { libc::geteuid() };
    if meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let what = format!("{} is not a folder that belongs to user {user} alone; have it removed", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// A clock of the system, ns.
fn read_clock(which: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec that we own.
    unsafe { libc::clock_gettime(which, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Field 22 of `/proc/PID/stat`: start time in clock ticks since boot. `None` if there is no such process or it is a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets and may hold anything, brackets too.
    let mut fields = text[text.rfind(')')? + 2..].split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
