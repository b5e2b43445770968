//! The pretend machine as the store sees it: [`Media`] and [`File`] of one process of a [`Machine`].

use crate::memory::{FILE_BYTES_MAX, Memory, PAGE};
use crate::world::{Ignore, World};
use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::media::{File, LOCKS_FROM, Locks, Map, Media, Open, Process};

/// A pretend machine with a disk under `/disk` and shared memory under `/live`. One thread runs everything on it.
pub struct Machine {
    shared: Shared,
}

type Shared = Arc<Mutex<World>>;

fn lock(shared: &Shared) -> MutexGuard<'_, World> {
    shared.lock().unwrap_or_else(|p| p.into_inner())
}

impl Machine {
    /// A machine whose faults follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self { shared: Arc::new(Mutex::new(World::new(seed))) }
    }

    /// Starts a process.
    pub fn start(&self) -> Arc<PretendMedia> {
        let mut world = lock(&self.shared);
        let pid = world.key() as u32;
        world.alive.insert(pid);
        Arc::new(PretendMedia { shared: self.shared.clone(), pid, elsewhere: None, memory: 0 })
    }

    /// Starts a process with a shared memory of its own, as in another container.
    pub fn start_with_own_memory(&self) -> Arc<PretendMedia> {
        let pid = self.start().pid;
        Arc::new(PretendMedia { shared: self.shared.clone(), pid, elsewhere: None, memory: pid })
    }

    /// Starts a process in another pid namespace, where it has the number and the start time of another process: none
    /// sees the other.
    pub fn start_elsewhere(&self, like: &PretendMedia) -> Arc<PretendMedia> {
        let started = self.start();
        let elsewhere = Some(like.process());
        Arc::new(PretendMedia { shared: self.shared.clone(), pid: started.pid, elsewhere, memory: 0 })
    }

    /// SIGKILL: `objects` are forgotten, not dropped; the locks of the process fall; memory stays as it is.
    ///
    /// # Safety
    /// `objects` must be everything that holds a map of this process (writers, readers, batches): their memory may be
    /// gone after this.
    pub unsafe fn kill<T>(&self, process: &PretendMedia, objects: T) {
        std::mem::forget(objects);
        let mut world = lock(&self.shared);
        world.kill(process.pid);
        world.stops_after = None;
    }

    /// Runs `act` in a process, which is killed before step `steps` of it: a call that locks or unlocks a byte, or asks
    /// which process it is. `None` if it was; pins files are then what they were at that moment.
    ///
    /// # Safety
    /// As for [`Machine::kill`], where the answer is `None`, of what `act` leaves behind.
    pub unsafe fn kill_within<T>(&self, process: &PretendMedia, steps: u64, act: impl FnOnce() -> T) -> Option<T> {
        lock(&self.shared).killed_after = Some((process.pid, steps));
        let answer = catch_unwind(AssertUnwindSafe(act));
        lock(&self.shared).restore_killed();
        match answer {
            Ok(value) => Some(value),
            Err(what) if what.is::<Killed>() => None,
            Err(what) => resume_unwind(what),
        }
    }

    /// The power goes and comes back: all processes are dead, the disk holds what was synced and a random part of what
    /// was not, memory is empty, the boot id is another.
    ///
    /// # Safety
    /// As for [`Machine::kill`], of every process.
    pub unsafe fn power_cut<T>(&self, objects: T) {
        std::mem::forget(objects);
        lock(&self.shared).power_cut();
    }

    /// From now on the disk has room for `disk_bytes`, shared memory for `live_bytes`.
    pub fn room(&self, disk_bytes: u64, live_bytes: u64) {
        let mut world = lock(&self.shared);
        (world.disk_bytes, world.live_bytes) = (disk_bytes, live_bytes);
    }

    /// Bytes in use: (disk, shared memory).
    pub fn used(&self) -> (u64, u64) {
        let world = lock(&self.shared);
        (world.disk_used, world.live_used)
    }

    /// Syncs of which `ignore(name, is a folder)` is true do nothing and claim success: a test that the test can fail.
    pub fn ignore_sync(&self, ignore: Option<Ignore>) {
        lock(&self.shared).ignore = ignore;
    }

    /// One sync fails with EIO after `good` more; its pages count as clean although not all are on the medium.
    pub fn fail_sync_after(&self, good: Option<u64>) {
        lock(&self.shared).sync_fails_after = good;
    }

    /// One write fails with EIO after `good` more, with nothing written.
    pub fn fail_write_after(&self, good: Option<u64>) {
        lock(&self.shared).write_fails_after = good;
    }

    /// One look (opening, reading, mapping, listing, asking for a length) fails with EIO after `good` more.
    pub fn fail_look_after(&self, good: Option<u64>) {
        lock(&self.shared).look_fails_after = good;
    }

    /// Runs `act` before the next file whose name begins with `prefix` is opened: what another process does inside a call.
    pub fn before_open(&self, prefix: &'static str, act: impl FnOnce() + Send + 'static) {
        lock(&self.shared).before_open = Some((prefix, Box::new(act)));
    }

    /// From now on the page of a file in which byte `at` lies cannot be read: EIO, whoever reads.
    pub fn bad_sector(&self, path: &Path, at: u64) -> io::Result<()> {
        let mut world = lock(&self.shared);
        let number = world.find(path)?;
        world.bad.insert((number, (at / PAGE as u64) as u32));
        Ok(())
    }

    /// All pages can be read again.
    pub fn good_sectors(&self) {
        lock(&self.shared).bad.clear();
    }

    /// After `changes` more changes of files every further one fails: the moment of a kill or cut inside a call.
    pub fn stop_after(&self, changes: Option<u64>) {
        lock(&self.shared).stops_after = changes;
    }

    /// True if the moment set by [`Machine::stop_after`] has come.
    pub fn stopped(&self) -> bool {
        lock(&self.shared).stops_after == Some(0)
    }

    /// The clock, ns since 1970 UTC.
    pub fn now(&self) -> i64 {
        lock(&self.shared).now
    }

    /// The clock that is never set, ns.
    pub fn clock(&self) -> i64 {
        lock(&self.shared).clock
    }

    /// Lets time pass.
    pub fn advance(&self, ns: i64) {
        let mut world = lock(&self.shared);
        world.now += ns;
        world.clock += ns;
    }

    /// Sets the wall clock by so much, also back, while no time passes.
    pub fn set_wall_clock(&self, by_ns: i64) {
        lock(&self.shared).now += by_ns;
    }

    /// A page written through a map that had not been allocated (a SIGBUS waiting for a full disk): file and byte.
    pub fn unallocated_write(&self) -> Option<(PathBuf, u64)> {
        lock(&self.shared).unallocated_write()
    }

    /// Names under a path.
    pub fn names(&self, under: &str) -> Vec<PathBuf> {
        lock(&self.shared).names.keys().filter(|p| p.starts_with(under)).cloned().collect()
    }

    /// Changes one byte of a file, in memory and on the medium.
    pub fn flip(&self, path: &Path, at: u64) -> io::Result<()> {
        let mut world = lock(&self.shared);
        let number = world.find(path)?;
        let mut byte = [0];
        world.inode(number)?.memory.read(at as usize, &mut byte);
        world.write(number, &[byte[0] ^ 4], at)?;
        world.sync(number, "")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Forgotten writers hold the world for ever; what it holds goes.
        lock(&self.shared).end();
    }
}

/// One process on a [`Machine`]. `wait` returns at once: who waits runs on the thread that would wake him.
pub struct PretendMedia {
    shared: Shared,
    pid: u32,
    /// In another pid namespace: what it is there.
    elsewhere: Option<Process>,
    /// Which shared memory it has: 0 for the one that most have.
    memory: u32,
}

impl PretendMedia {
    /// Where a path of this process leads to.
    fn place(&self, path: &Path) -> PathBuf {
        let root = lock(&self.shared).live_root.clone();
        match path.strip_prefix(&root) {
            Ok(rest) if self.memory > 0 => root.with_file_name(format!("memory-{}", self.memory)).join(rest),
            _ => path.to_path_buf(),
        }
    }
}

/// The panic payload of a process that is killed in a step.
struct Killed;

/// A step of a process.
fn step(shared: &Shared, process: u32) {
    // Not while the world is locked: what unwinds needs it.
    let is_killed = lock(shared).step(process);
    if is_killed {
        resume_unwind(Box::new(Killed));
    }
}

struct PretendFile {
    shared: Shared,
    pid: u32,
    number: u64,
    /// Name under which it was opened.
    name: String,
}

impl Drop for PretendFile {
    fn drop(&mut self) {
        lock(&self.shared).closed(self.number, self.pid);
    }
}

struct MapKey(Shared, u64);

impl Drop for MapKey {
    fn drop(&mut self) {
        let memory: Option<(u32, Arc<Memory>)> = lock(&self.0).maps.remove(&self.1);
        drop(memory);
    }
}

struct LockKey(Shared, PathBuf, u64);

impl Drop for LockKey {
    fn drop(&mut self) {
        let mut world = lock(&self.0);
        if world.locks.get(&self.1).is_some_and(|l| l.1 == self.2) {
            world.locks.remove(&self.1);
        }
    }
}

/// The locks of bytes of a file.
struct PretendLocks {
    shared: Shared,
    pid: u32,
    number: u64,
    path: PathBuf,
    key: u64,
}

impl Drop for PretendLocks {
    fn drop(&mut self) {
        lock(&self.shared).byte_locks.retain(|_, holder| holder.1 != self.key);
    }
}

impl Locks for PretendLocks {
    fn lock(&self, at: u64) -> io::Result<bool> {
        step(&self.shared, self.pid);
        let mut world = lock(&self.shared);
        let holder = world.byte_locks.entry((self.number, at)).or_insert((self.pid, self.key));
        Ok(holder.1 == self.key)
    }

    fn unlock(&self, at: u64) {
        step(&self.shared, self.pid);
        let mut world = lock(&self.shared);
        if world.byte_locks.get(&(self.number, at)).is_some_and(|holder| holder.1 == self.key) {
            world.byte_locks.remove(&(self.number, at));
        }
    }

    fn is_locked(&self, at: u64) -> io::Result<bool> {
        let world = lock(&self.shared);
        let of_byte = world.byte_locks.get(&(self.number, at)).is_some_and(|holder| holder.1 != self.key);
        Ok(of_byte || at < LOCKS_FROM && world.locks.contains_key(&self.path))
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = lock(&self.shared);
        world.change()?;
        world.sync(self.number, "pins")
    }
}

impl File for PretendFile {
    fn len(&self) -> io::Result<u64> {
        let mut world = lock(&self.shared);
        world.check()?;
        Ok(world.inode(self.number)?.len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut world = lock(&self.shared);
        world.change()?;
        world.set_len(self.number, len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut world = lock(&self.shared);
        world.change()?;
        world.allocate(self.number, offset, len)?;
        let inode = world.inode(self.number)?;
        inode.len = inode.len.max(offset + len);
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = lock(&self.shared);
        world.check()?;
        world.readable(self.number, offset, buf.len() as u64)?;
        let inode = world.inode(self.number)?;
        let n = inode.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        inode.memory.read(offset.min(FILE_BYTES_MAX) as usize, &mut buf[..n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut world = lock(&self.shared);
        world.change()?;
        world.write(self.number, buf, offset)
    }

    fn write_blocks(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        // What O_DIRECT asks for: here a violation is a mistake of the store, on some file systems only a slow write.
        assert!(
            offset.is_multiple_of(PAGE as u64) && buf.len().is_multiple_of(PAGE),
            "{}: {} B at {offset}",
            self.name,
            buf.len()
        );
        self.write_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let mut world = lock(&self.shared);
        world.change()?;
        world.sync(self.number, &self.name)
    }

    fn map(&self, len: usize, write: bool) -> io::Result<Map> {
        let mut world = lock(&self.shared);
        world.check()?;
        if len as u64 > FILE_BYTES_MAX {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        let inode = world.inode(self.number)?;
        let memory = inode.memory.clone();
        if write && inode.on_disk && inode.base.is_none() {
            let mut bytes = vec![0; inode.len as usize];
            memory.read(0, &mut bytes);
            inode.base = Some(bytes);
        }
        let ptr = memory.ptr();
        let key = world.key();
        world.maps.insert(key, (self.pid, memory));
        // SAFETY: the entry in `maps` keeps the memory until the key is dropped or its process killed; the memory
        // never moves and has room for `len`.
        Ok(unsafe { Map::new(ptr, len, Box::new(MapKey(self.shared.clone(), key))) })
    }

    fn bring(&self, _map: &Map, at: u64, len: u64) -> io::Result<()> {
        let mut world = lock(&self.shared);
        world.check()?;
        world.readable(self.number, at, len)
    }

    fn identity(&self) -> u64 {
        self.number
    }

    fn linked(&self) -> bool {
        lock(&self.shared).names.values().any(|&n| n == self.number)
    }
}

impl Media for PretendMedia {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let act = lock(&self.shared).before_open.take_if(|(prefix, _)| name.starts_with(*prefix));
        if let Some((_, act)) = act {
            act();
        }
        let path = &self.place(path);
        let mut world = lock(&self.shared);
        world.check()?;
        let number = match world.find(path) {
            Ok(number) => number,
            Err(e) if how != Open::Create => return Err(e),
            Err(_) => {
                world.change()?;
                world.make(path)
            }
        };
        world.opened(number, self.pid);
        Ok(Arc::new(PretendFile { shared: self.shared.clone(), pid: self.pid, number, name }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.place(from), self.place(to));
        let mut world = lock(&self.shared);
        world.change()?;
        world.rename(&from, &to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let path = self.place(path);
        let mut world = lock(&self.shared);
        world.change()?;
        world.unlink(&path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = self.place(dir);
        let mut world = lock(&self.shared);
        world.check()?;
        let inside = world.names.keys().filter_map(|path| path.strip_prefix(&dir).ok()?.iter().next());
        let names: BTreeSet<String> = inside.map(|name| name.to_string_lossy().into_owned()).collect();
        Ok(names.into_iter().collect())
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut world = lock(&self.shared);
        world.change()?;
        world.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut world = lock(&self.shared);
        if world.locks.contains_key(path) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if world.find(path).is_err() {
            world.change()?;
            world.make(path);
        }
        let key = world.key();
        world.locks.insert(path.to_path_buf(), (self.pid, key));
        Ok(Box::new(LockKey(self.shared.clone(), path.to_path_buf(), key)))
    }

    fn locks(&self, path: &Path, _write: bool) -> io::Result<Arc<dyn Locks>> {
        let path = self.place(path);
        let mut world = lock(&self.shared);
        let (number, key) = (world.find(&path)?, world.key());
        Ok(Arc::new(PretendLocks { shared: self.shared.clone(), pid: self.pid, number, path, key }))
    }

    fn wait(&self, _word: &AtomicU32, _expected: u32, _timeout: Option<Duration>) {}

    fn wake(&self, _word: &AtomicU32) {}

    fn event(&self) -> io::Result<OwnedFd> {
        // Whatever waits for one is another thread, and here there is one alone.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn now(&self) -> i64 {
        lock(&self.shared).now
    }

    fn clock(&self) -> i64 {
        lock(&self.shared).clock
    }

    fn process(&self) -> Process {
        step(&self.shared, self.pid);
        self.elsewhere.unwrap_or(Process { pid: self.pid, start: u64::from(self.pid) })
    }

    fn alive(&self, process: Process) -> bool {
        match self.elsewhere {
            Some(me) => process == me,
            None => process.start == u64::from(process.pid) && lock(&self.shared).alive.contains(&process.pid),
        }
    }

    fn pid_space(&self) -> u64 {
        u64::from(self.elsewhere.map_or(0, |_| self.pid))
    }

    fn boot(&self) -> [u8; 16] {
        u128::from(lock(&self.shared).boot).to_le_bytes()
    }

    fn machine(&self) -> String {
        "pretend".into()
    }

    fn random(&self) -> [u8; 16] {
        let mut world = lock(&self.shared);
        let (a, b) = (world.dice.word(), world.dice.word());
        (u128::from(a) << 64 | u128::from(b)).to_le_bytes()
    }

    fn mounts(&self) -> u64 {
        0
    }

    fn shared_memory(&self) -> u64 {
        u64::from(self.memory)
    }

    fn live_root(&self) -> PathBuf {
        lock(&self.shared).live_root.clone()
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        let world = lock(&self.shared);
        let (room, used) = if dir.starts_with(&world.live_root) {
            (world.live_bytes, world.live_used)
        } else {
            (world.disk_bytes, world.disk_used)
        };
        Ok(room.saturating_sub(used))
    }

    fn occupied(&self, dir: &Path) -> io::Result<u64> {
        let world = lock(&self.shared);
        let inside = world.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        let pages = inside.filter_map(|(_, number)| world.inodes.get(number)).map(|inode| inode.pages.len() as u64);
        Ok(pages.sum::<u64>() * PAGE as u64)
    }

    fn in_memory(&self, dir: &Path) -> bool {
        dir.starts_with(&lock(&self.shared).live_root)
    }
}
