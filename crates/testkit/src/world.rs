//! The pretend machine: what is in memory, what is on the medium, and what a power cut leaves.
//!
//! A file on the disk has its current content, which every process sees, and the image on the medium. Writes make pages
//! dirty (pages written through a map are found by comparing); `sync` brings them to the medium. A power cut leaves the
//! medium and a random part of the dirty pages. Names are a journal: operations since the folder's last sync survive a cut
//! as a random prefix or, in half of the cuts, as a random subset. Files in memory survive the death of processes and
//! nothing else.

use crate::dice::Dice;
use crate::memory::{FILE_BYTES_MAX, Memory, PAGE};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which syncs do nothing: told by (file name, is a folder).
pub type Ignore = fn(&str, bool) -> bool;

pub(crate) struct Inode {
    pub(crate) memory: Arc<Memory>,
    pub(crate) len: u64,
    /// Pages that are allocated.
    pub(crate) pages: BTreeSet<u32>,
    pub(crate) on_disk: bool,
    /// Content on the medium.
    image: Vec<u8>,
    /// Pages written since they were clean last.
    dirty: BTreeSet<u32>,
    /// Content when it was clean last, if it is mapped for writing: what differs is dirty too.
    pub(crate) base: Option<Vec<u8>>,
    /// Open descriptors, by process.
    opens: HashMap<u32, u32>,
    /// Bytes that a cut takes or leaves whole.
    grain: usize,
}

impl Inode {
    fn new(on_disk: bool, grain: usize) -> Self {
        Self {
            memory: Arc::new(Memory::new()),
            len: 0,
            pages: BTreeSet::new(),
            on_disk,
            image: Vec::new(),
            dirty: BTreeSet::new(),
            base: None,
            opens: HashMap::new(),
            grain,
        }
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.memory.read(0, &mut bytes);
        bytes
    }

    /// Adds pages that were written through a map.
    fn find_dirty(&mut self) {
        let Some(base) = &self.base else { return };
        for page in 0..(self.len as usize).div_ceil(PAGE) {
            let old = base.get(page * PAGE..).unwrap_or_default();
            if !self.memory.page_is(page, &old[..old.len().min(PAGE)]) {
                self.dirty.insert(page as u32);
            }
        }
    }

    /// Brings pieces of `grain` bytes to the medium where `take` says so; then all counts as clean.
    fn write_out(&mut self, mut take: impl FnMut() -> bool) {
        self.find_dirty();
        for page in std::mem::take(&mut self.dirty) {
            for piece in (0..PAGE).step_by(self.grain) {
                let at = page as usize * PAGE + piece;
                let end = (at + self.grain).min(self.len as usize);
                if at < end && take() {
                    if self.image.len() < end {
                        self.image.resize(end, 0);
                    }
                    self.memory.read(at, &mut self.image[at..end]);
                }
            }
        }
        if self.base.is_some() {
            self.base = Some(self.content());
        }
    }
}

#[derive(Clone)]
enum Naming {
    Link(PathBuf, u64),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Naming {
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Link(path, _) | Self::Unlink(path) | Self::Rename(_, path) => path.parent(),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            Self::Link(path, inode) => drop(names.insert(path.clone(), *inode)),
            Self::Unlink(path) => drop(names.remove(path)),
            Self::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

/// An action of another process within a call of one.
pub(crate) type Meanwhile = Box<dyn FnOnce() + Send>;

pub(crate) struct World {
    pub(crate) disk_root: PathBuf,
    pub(crate) live_root: PathBuf,
    pub(crate) inodes: HashMap<u64, Inode>,
    pub(crate) names: BTreeMap<PathBuf, u64>,
    /// Names on the medium.
    durable: BTreeMap<PathBuf, u64>,
    journal: Vec<Naming>,
    /// Maps that processes hold, by key: (process, memory).
    pub(crate) maps: HashMap<u64, (u32, Arc<Memory>)>,
    pub(crate) locks: HashMap<PathBuf, (u32, u64)>,
    /// Of a byte of a file: the process that holds its lock, and by which key.
    pub(crate) byte_locks: HashMap<(u64, u64), (u32, u64)>,
    pub(crate) alive: BTreeSet<u32>,
    pub(crate) dice: Dice,
    pub(crate) now: i64,
    /// ns of a clock that is never set.
    pub(crate) clock: i64,
    pub(crate) boot: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) disk_used: u64,
    pub(crate) live_used: u64,
    pub(crate) ignore: Option<Ignore>,
    /// Syncs that still succeed before one fails.
    pub(crate) sync_fails_after: Option<u64>,
    /// Writes that still succeed before one fails.
    pub(crate) write_fails_after: Option<u64>,
    /// Looks (opening, reading, mapping, listing, asking for a length) that still succeed before one fails.
    pub(crate) look_fails_after: Option<u64>,
    /// Pages of the medium that cannot be read.
    pub(crate) bad: BTreeSet<(u64, u32)>,
    /// Changes that are still made before every call fails: the moment at which a process is stopped.
    pub(crate) stops_after: Option<u64>,
    /// A process that is killed before one of its next steps, and how many come before.
    pub(crate) killed_after: Option<(u32, u64)>,
    /// Files that its unwinding still changes, with their bytes before that.
    killed_files: Vec<(Arc<Memory>, Vec<u8>)>,
    /// Runs before the next file of which the name begins so is opened.
    pub(crate) before_open: Option<(&'static str, Meanwhile)>,
    keys: u64,
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Counts a call down; true for the one that fails.
fn fails(after: &mut Option<u64>) -> bool {
    let now = *after == Some(0);
    *after = after.and_then(|left| left.checked_sub(1));
    now
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            disk_root: "/disk".into(),
            live_root: "/live".into(),
            inodes: HashMap::new(),
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
            journal: Vec::new(),
            maps: HashMap::new(),
            locks: HashMap::new(),
            byte_locks: HashMap::new(),
            alive: BTreeSet::new(),
            dice: Dice::new(seed),
            now: 1_700_000_000_000_000_000,
            clock: 0,
            boot: 1,
            disk_bytes: u64::MAX,
            live_bytes: u64::MAX,
            disk_used: 0,
            live_used: 0,
            ignore: None,
            before_open: None,
            sync_fails_after: None,
            write_fails_after: None,
            look_fails_after: None,
            bad: BTreeSet::new(),
            stops_after: None,
            killed_after: None,
            killed_files: Vec::new(),
            keys: 0,
        }
    }

    pub(crate) fn key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    /// Counts a change; fails if the process is stopped by now.
    pub(crate) fn change(&mut self) -> io::Result<()> {
        match &mut self.stops_after {
            Some(0) => Err(error(libc::EIO)),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts a look; one fails as it does where there are too many open files, or the medium gives an error once.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        if fails(&mut self.look_fails_after) { Err(error(libc::EIO)) } else { Ok(()) }
    }

    /// Fails where a range holds a page that cannot be read.
    pub(crate) fn readable(&self, number: u64, at: u64, len: u64) -> io::Result<()> {
        let pages = (at / PAGE as u64) as u32..at.saturating_add(len).div_ceil(PAGE as u64).min(u32::MAX.into()) as u32;
        let bad = self.bad.range((number, pages.start)..(number, pages.end.max(pages.start))).next();
        if bad.is_some() { Err(error(libc::EIO)) } else { Ok(()) }
    }

    pub(crate) fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or_else(|| error(libc::ESTALE))
    }

    pub(crate) fn find(&self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| error(libc::ENOENT))
    }

    pub(crate) fn make(&mut self, path: &Path) -> u64 {
        let number = self.key();
        let on_disk = path.starts_with(&self.disk_root);
        // A disk writes sectors of 512 B whole; the file of commit records counts on no more than that.
        let grain = if path.file_name().is_some_and(|n| n == "commit") { 512 } else { PAGE };
        self.inodes.insert(number, Inode::new(on_disk, grain));
        self.name(Naming::Link(path.to_path_buf(), number), on_disk);
        number
    }

    fn name(&mut self, naming: Naming, on_disk: bool) {
        naming.apply(&mut self.names);
        if on_disk {
            self.journal.push(naming);
        }
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.find(from)?;
        let on_disk = from.starts_with(&self.disk_root);
        let replaced = self.names.get(to).copied();
        self.name(Naming::Rename(from.to_path_buf(), to.to_path_buf()), on_disk);
        replaced.into_iter().for_each(|number| self.release(number));
        Ok(())
    }

    pub(crate) fn unlink(&mut self, path: &Path) -> io::Result<()> {
        let number = self.find(path)?;
        self.name(Naming::Unlink(path.to_path_buf()), path.starts_with(&self.disk_root));
        self.release(number);
        Ok(())
    }

    pub(crate) fn opened(&mut self, number: u64, process: u32) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            *inode.opens.entry(process).or_default() += 1;
        }
    }

    pub(crate) fn closed(&mut self, number: u64, process: u32) {
        if let Some(inode) = self.inodes.get_mut(&number)
            && let Some(count) = inode.opens.get_mut(&process)
        {
            *count -= 1;
            if *count == 0 {
                inode.opens.remove(&process);
            }
            self.release(number);
        }
    }

    /// Removes a file that no name, no descriptor and no cut can bring back.
    fn release(&mut self, number: u64) {
        let in_journal = |naming: &Naming| matches!(naming, Naming::Link(_, n) if *n == number);
        let named = self.names.values().any(|&n| n == number)
            || self.durable.values().any(|&n| n == number)
            || self.journal.iter().any(in_journal);
        if !named
            && self.inodes.get(&number).is_some_and(|i| i.opens.is_empty())
            && let Some(inode) = self.inodes.remove(&number)
        {
            *self.used(inode.on_disk) -= (inode.pages.len() * PAGE) as u64;
        }
    }

    fn used(&mut self, on_disk: bool) -> &mut u64 {
        if on_disk { &mut self.disk_used } else { &mut self.live_used }
    }

    /// Allocates the pages of a range.
    pub(crate) fn allocate(&mut self, number: u64, at: u64, len: u64) -> io::Result<()> {
        let end = at + len;
        if end > FILE_BYTES_MAX {
            return Err(error(libc::EFBIG));
        }
        let inode = self.inode(number)?;
        let on_disk = inode.on_disk;
        let wanted = (at / PAGE as u64) as u32..end.div_ceil(PAGE as u64) as u32;
        let new: Vec<u32> = wanted.filter(|page| !inode.pages.contains(page)).collect();
        let limit = if on_disk { self.disk_bytes } else { self.live_bytes };
        let bytes = (new.len() * PAGE) as u64;
        if bytes > 0 && *self.used(on_disk) + bytes > limit {
            return Err(error(libc::ENOSPC));
        }
        *self.used(on_disk) += bytes;
        self.inode(number)?.pages.extend(new);
        Ok(())
    }

    pub(crate) fn set_len(&mut self, number: u64, len: u64) -> io::Result<()> {
        if len > FILE_BYTES_MAX {
            return Err(error(libc::EFBIG));
        }
        let inode = self.inode(number)?;
        if len < inode.len {
            inode.memory.zero(len as usize, inode.len as usize);
            inode.pages.retain(|&page| u64::from(page) * (PAGE as u64) < len);
            let on_disk = inode.on_disk;
            inode.len = len;
            inode.dirty.extend(0..len.div_ceil(PAGE as u64) as u32);
            self.recount(on_disk);
            return Ok(());
        }
        inode.len = len;
        Ok(())
    }

    fn recount(&mut self, on_disk: bool) {
        let pages: usize = self.inodes.values().filter(|i| i.on_disk == on_disk).map(|i| i.pages.len()).sum();
        *self.used(on_disk) = (pages * PAGE) as u64;
    }

    pub(crate) fn write(&mut self, number: u64, bytes: &[u8], at: u64) -> io::Result<()> {
        if fails(&mut self.write_fails_after) {
            return Err(error(libc::EIO));
        }
        self.allocate(number, at, bytes.len() as u64)?;
        let end = at + bytes.len() as u64;
        // Writing to a bad sector repairs it.
        let whole = at.div_ceil(PAGE as u64) as u32..(end / PAGE as u64) as u32;
        self.bad.retain(|&(file, page)| file != number || !whole.contains(&page));
        let inode = self.inode(number)?;
        inode.memory.write(at as usize, bytes);
        inode.len = inode.len.max(end);
        if inode.on_disk {
            inode.dirty.extend((at / PAGE as u64) as u32..end.div_ceil(PAGE as u64) as u32);
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self, number: u64, name: &str) -> io::Result<()> {
        // A disk that takes long would keep every other reader from opening.
        let is_locked = name == "pins" && self.locks.keys().any(|path| path.ends_with("pins"));
        assert!(!is_locked, "`pins` is synced while its lock is held");
        if self.ignore.is_some_and(|ignore| ignore(name, false)) {
            return Ok(());
        }
        let fails = fails(&mut self.sync_fails_after);
        let Some(inode) = self.inodes.get_mut(&number) else { return Err(error(libc::ESTALE)) };
        if !inode.on_disk {
            return Ok(());
        }
        if fails {
            // What ext4 does: some pages reached the medium, and all of them are called clean.
            let dice = &mut self.dice;
            inode.write_out(|| dice.one_in(2));
            return Err(error(libc::EIO));
        }
        inode.write_out(|| true);
        inode.image.resize(inode.len as usize, 0);
        Ok(())
    }

    pub(crate) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        if self.ignore.is_some_and(|ignore| ignore(&dir.to_string_lossy(), true)) {
            return Ok(());
        }
        if fails(&mut self.sync_fails_after) {
            return Err(error(libc::EIO));
        }
        let (now, later) = std::mem::take(&mut self.journal).into_iter().partition(|n| n.folder() == Some(dir));
        self.journal = later;
        let now: Vec<Naming> = now;
        now.iter().for_each(|naming| naming.apply(&mut self.durable));
        self.sweep();
        Ok(())
    }

    /// Releases every file that only the old names on the medium kept.
    fn sweep(&mut self) {
        let numbers: Vec<u64> = self.inodes.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.release(number));
    }

    /// A process dies: its descriptors, maps and locks go, memory stays as it is.
    pub(crate) fn kill(&mut self, process: u32) {
        self.alive.remove(&process);
        self.maps.retain(|_, map| map.0 != process);
        self.locks.retain(|_, lock| lock.0 != process);
        self.byte_locks.retain(|_, lock| lock.0 != process);
        for inode in self.inodes.values_mut() {
            inode.opens.remove(&process);
        }
        self.sweep();
    }

    /// Counts a step of a process; true for the one at which it is killed.
    pub(crate) fn step(&mut self, process: u32) -> bool {
        match &mut self.killed_after {
            Some((pid, 0)) if *pid == process => {}
            Some((pid, left)) if *pid == process => {
                *left -= 1;
                return false;
            }
            _ => return false,
        }
        self.killed_after = None;
        let pins = self.names.iter().filter(|(path, _)| path.ends_with("pins"));
        let files = pins.filter_map(|(_, number)| self.inodes.get(number)).map(|inode| {
            let mut bytes = vec![0; inode.len as usize];
            inode.memory.read(0, &mut bytes);
            (inode.memory.clone(), bytes)
        });
        self.killed_files = files.collect();
        self.kill(process);
        true
    }

    /// Undoes what a process that was killed in a step has written while it unwound.
    pub(crate) fn restore_killed(&mut self) {
        self.killed_after = None;
        std::mem::take(&mut self.killed_files).iter().for_each(|(memory, bytes)| memory.write(0, bytes));
    }

    /// The power goes: what is left is the medium and a random part of what was on its way.
    pub(crate) fn power_cut(&mut self) {
        for process in std::mem::take(&mut self.alive) {
            self.kill(process);
        }
        let journal = std::mem::take(&mut self.journal);
        if self.dice.one_in(2) {
            let kept = self.dice.below(journal.len() as u64 + 1) as usize;
            journal[..kept].iter().for_each(|naming| naming.apply(&mut self.durable));
        } else {
            for naming in &journal {
                if self.dice.one_in(2) {
                    naming.apply(&mut self.durable);
                }
            }
        }
        let mut old = std::mem::take(&mut self.inodes);
        // In one cut nearly everything was written back already, in another nothing.
        let luck = self.dice.below(5);
        let names = self.durable.clone();
        for number in names.values().collect::<BTreeSet<_>>() {
            let Some(mut was) = old.remove(number) else { continue };
            let dice = &mut self.dice;
            was.write_out(|| dice.below(4) < luck);
            // The length is metadata: it may be ahead of the data (zeroes) or behind.
            let len = if dice.one_in(2) { was.len.max(was.image.len() as u64) } else { was.image.len() as u64 };
            was.image.resize(len as usize, 0);
            let mut inode = Inode::new(true, was.grain);
            inode.len = len;
            inode.memory.write(0, &was.image);
            inode.pages = (0..len.div_ceil(PAGE as u64) as u32).collect();
            inode.image = was.image;
            self.inodes.insert(*number, inode);
        }
        self.durable.retain(|_, number| self.inodes.contains_key(number));
        self.names = self.durable.clone();
        self.recount(true);
        self.recount(false);
        self.boot += 1;
        self.stops_after = None;
        self.sync_fails_after = None;
        self.write_fails_after = None;
        self.look_fails_after = None;
    }

    /// The first page that was written through a map without having been allocated: on a full disk a SIGBUS.
    pub(crate) fn unallocated_write(&self) -> Option<(PathBuf, u64)> {
        self.names.iter().find_map(|(path, number)| {
            let inode = self.inodes.get(number)?;
            let page = (0..inode.len.div_ceil(PAGE as u64) as u32)
                .find(|&page| !inode.pages.contains(&page) && !inode.memory.page_is(page as usize, &[]))?;
            Some((path.clone(), u64::from(page) * PAGE as u64))
        })
    }

    /// Forgets everything: the test is over.
    pub(crate) fn end(&mut self) {
        self.names.clear();
        self.durable.clear();
        self.inodes.clear();
    }
}
