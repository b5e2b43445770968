//! Group commits of the disk streams of a process, by a few threads for each disk.
//!
//! A stream is due once something of it is new: 50 ms after its last commit began, or at once where somebody waits. The
//! threads commit what is due, the earliest first, and sleep where nothing is: a stream that is idle costs nothing. One
//! thread would let all streams wait for the flush of one; a thread for each stream would be a thousand of them.
//!
//! Constraints: streams of one disk share threads, those of another disk have their own: one that hangs stops no other.
//! A fork has no threads: what it has of its parent's streams commits nothing, and streams that it opens itself find
//! threads of its own. No lock is held while this is found out.

use crate::error::{Error, Result};
use crate::limits::{COMMIT_PAUSE, COMMIT_RETRY, COMMIT_THREADS_MAX};
use crate::outside::os::process_id;
use crate::write::drain::{Drainer, Ring};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The committers of all disks that this process has opened a stream on, newest first. They are never removed.
static ALL: AtomicPtr<Committer> = AtomicPtr::new(std::ptr::null_mut());

/// The threads of one disk.
pub(crate) struct Committer {
    /// The process that has the threads.
    pid: u32,
    /// The disk: the device of the folders on it.
    device: u64,
    queue: Mutex<Queue>,
    /// Wakes the thread that sleeps until the next stream is due.
    timer: Condvar,
    /// Wakes another one.
    changed: Condvar,
    next: *mut Committer,
}

// SAFETY: `next` is written before the committer is shared, and what it points to is never removed.
unsafe impl Sync for Committer {}

#[derive(Default)]
struct Queue {
    /// Streams that are due, by when, and by the number of the stream.
    due: BTreeMap<(Instant, u64), Arc<Job>>,
    numbers: u64,
    threads: usize,
    /// Threads that have nothing to do.
    idle: usize,
    /// One of them sleeps until the next stream is due, the others until they are woken.
    has_timer: bool,
}

/// The entry of a stream in the queue.
pub(crate) struct Job {
    committer: &'static Committer,
    number: u64,
    drainer: Arc<Mutex<Drainer>>,
    ring: Arc<Ring>,
    /// Changed under the lock of the queue.
    state: Mutex<State>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Nothing is new. When its last commit began.
    Idle(Option<Instant>),
    /// It stands in the queue.
    Due(Instant),
    /// A thread commits, since then; when it is due again.
    Running(Instant, Option<Instant>),
    /// The writer commits itself, or a sync has failed.
    Ended,
}

impl Committer {
    /// That of the disk of a folder.
    fn of(folder: &Path) -> &'static Self {
        let device = std::fs::metadata(folder).map_or(0, |found| found.dev());
        let pid = process_id();
        let mut new: *mut Self = std::ptr::null_mut();
        loop {
            let first = ALL.load(Ordering::Acquire);
            let mut at = first;
            // SAFETY: committers are leaked, and read only through shared references.
            while let Some(one) = unsafe { at.as_ref() } {
                if (one.pid, one.device) == (pid, device) {
                    if !new.is_null() {
                        // SAFETY: made below, and seen by nobody.
                        drop(unsafe { Box::from_raw(new) });
                    }
                    return one;
                }
                at = one.next;
            }
            if new.is_null() {
                let (queue, timer, changed) = Default::default();
                new = Box::into_raw(Box::new(Self { pid, device, queue, timer, changed, next: first }));
            }
            // SAFETY: nobody else has seen it yet.
            unsafe { (*new).next = first };
            if ALL.compare_exchange(first, new, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // SAFETY: it is never removed.
                return unsafe { &*new };
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Puts a job into the queue.
    fn put(&'static self, queue: &mut Queue, job: &Arc<Job>, at: Instant) {
        let is_first = queue.due.first_key_value().is_none_or(|((first, _), _)| at < *first);
        queue.due.insert((at, job.number), job.clone());
        *job.state() = State::Due(at);
        if is_first && queue.has_timer {
            self.timer.notify_one();
        }
        self.watch(queue);
    }

    /// Makes sure that a thread waits for the next stream that is due, however long those that commit take.
    fn watch(&'static self, queue: &mut Queue) {
        if queue.due.is_empty() || queue.has_timer {
            return;
        }
        if queue.idle > 0 {
            self.changed.notify_one();
        } else if queue.threads < COMMIT_THREADS_MAX {
            // If the system gives no more threads, those that are there do it later.
            let _ = self.start_thread(queue);
        }
    }

    fn start_thread(&'static self, queue: &mut Queue) -> std::io::Result<()> {
        std::thread::Builder::new().name("commit".into()).spawn(|| self.run())?;
        queue.threads += 1;
        Ok(())
    }

    /// A thread: commits what is due.
    fn run(&'static self) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            match queue.due.first_key_value().map(|((at, _), _)| *at) {
                Some(at) if at <= now => {
                    let Some((_, job)) = queue.due.pop_first() else { continue };
                    *job.state() = State::Running(now, None);
                    self.watch(&mut queue);
                    drop(queue);
                    let again = job.commit(now);
                    queue = self.lock();
                    self.settle(&mut queue, &job, again);
                }
                at => queue = self.sleep(queue, at.map(|at| at - now)),
            }
        }
    }

    /// Sleeps until something is due, or until it is woken.
    fn sleep<'q>(&self, mut queue: MutexGuard<'q, Queue>, left: Option<Duration>) -> MutexGuard<'q, Queue> {
        queue.idle += 1;
        let mut queue = match left.filter(|_| !queue.has_timer) {
            Some(left) => {
                queue.has_timer = true;
                let mut queue = self.timer.wait_timeout(queue, left).unwrap_or_else(|p| p.into_inner()).0;
                queue.has_timer = false;
                queue
            }
            None => self.changed.wait(queue).unwrap_or_else(|p| p.into_inner()),
        };
        queue.idle -= 1;
        queue
    }

    /// The next step of a job after a commit. `again`: when it is to be tried again; an error: never.
    fn settle(&'static self, queue: &mut Queue, job: &Arc<Job>, again: Result<Option<Instant>>) {
        let State::Running(began, asked) = *job.state() else { return };
        let Ok(again) = again else {
            *job.state() = State::Ended;
            return;
        };
        match asked.into_iter().chain(again).min() {
            None => *job.state() = State::Idle(Some(began)),
            Some(at) => self.put(queue, job, at),
        }
    }
}

impl Job {
    /// Commits a stream from now on, whenever something of it is new. An error if there is no thread for it.
    pub(crate) fn start(folder: &Path, drainer: &Arc<Mutex<Drainer>>) -> Result<Arc<Self>> {
        let committer = Committer::of(folder);
        let ring = drainer.lock().unwrap_or_else(|p| p.into_inner()).ring.clone();
        let mut queue = committer.lock();
        if queue.threads == 0 {
            committer.start_thread(&mut queue).map_err(Error::io("start a thread that commits", folder))?;
        }
        queue.numbers += 1;
        let (number, state) = (queue.numbers, Mutex::new(State::Idle(None)));
        let job = Arc::new(Self { committer, number, drainer: drainer.clone(), ring, state });
        job.ring.set_job(&job);
        // What a recovery left: names, or messages behind the record.
        committer.put(&mut queue, &job, Instant::now());
        Ok(job)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Something is new: it is due once the pause behind its last commit is over.
    pub(crate) fn announce(self: &Arc<Self>) {
        self.ask(|last, now| last.map_or(now, |last| now.max(last + COMMIT_PAUSE)));
    }

    /// Somebody waits: it is due now.
    pub(crate) fn hurry(self: &Arc<Self>) {
        self.ask(|_, now| now);
    }

    /// `when`: of the last commit and of now, when the next one is wanted.
    fn ask(self: &Arc<Self>, when: impl Fn(Option<Instant>, Instant) -> Instant) {
        if self.committer.pid != process_id() {
            return;
        }
        let now = Instant::now();
        let mut queue = self.committer.lock();
        let state = *self.state();
        match state {
            State::Idle(last) => self.committer.put(&mut queue, self, when(last, now)),
            State::Due(at) => {
                let wanted = when(Some(at), now);
                if wanted < at {
                    queue.due.remove(&(at, self.number));
                    self.committer.put(&mut queue, self, wanted);
                }
            }
            // Messages that it no longer sees come with the next commit.
            State::Running(began, asked) => {
                let wanted = when(Some(began), now);
                *self.state() = State::Running(began, Some(asked.map_or(wanted, |at| at.min(wanted))));
            }
            State::Ended => {}
        }
    }

    /// One commit; when it is to be tried again. An error: never.
    fn commit(&self, began: Instant) -> Result<Option<Instant>> {
        self.ring.see();
        let step = || {
            let mut drainer = self.drainer.lock().unwrap_or_else(|p| p.into_inner());
            // The writer may have ended since the job was due, and the stream may have another one.
            if *self.state() == State::Ended { Ok(false) } else { drainer.step(false, None) }
        };
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(Ok(_)) => Ok(None),
            Ok(Err(Error::Failed(why))) => Err(Error::Failed(why)),
            Ok(Err(_)) => Ok(Some(began + COMMIT_RETRY)),
            Err(_) => {
                self.drainer.lock().unwrap_or_else(|p| p.into_inner()).fail();
                Err(Error::Failed("a commit has panicked".into()))
            }
        }
    }

    /// No thread commits it from now on: a commit that runs is over.
    pub(crate) fn end(&self) {
        if self.committer.pid == process_id() {
            let mut queue = self.committer.lock();
            let before = std::mem::replace(&mut *self.state(), State::Ended);
            if let State::Due(at) = before {
                queue.due.remove(&(at, self.number));
            }
        }
        // One that runs has this lock.
        drop(self.drainer.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, Meta, Options, Os, Writer};
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("beamport-committer-{name}-{}", std::process::id())))
        }

        fn writer(&self, number: usize) -> Writer {
            let folder = self.0.join(number.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            Writer::open(&Os::shared(), &folder, "s", &Options::disk(1 << 20)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn append(writer: &mut Writer) {
        let meta = Meta { source_time: 0, origin: 0, origin_seq: 0, schema: crate::SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &[7; 100]).unwrap();
        writer.publish();
    }

    /// Nobody waits for the mark, and it comes all the same.
    fn is_on_disk(writer: &Writer) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while writer.mark(Level::Disk) < writer.next_sequence() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        writer.mark(Level::Disk) == writer.next_sequence()
    }

    /// A thread each, that looked every 50 ms.
    #[test]
    fn streams_share_a_few_threads_and_idle_ones_are_never_due() {
        let folder = Folder::new("many");
        let mut writers: Vec<Writer> = (0..60).map(|number| folder.writer(number)).collect();
        for _ in 0..3 {
            writers.iter_mut().for_each(append);
            assert!(writers.iter().all(is_on_disk));
        }
        let committer = Committer::of(&folder.0);
        assert!(committer.lock().threads <= COMMIT_THREADS_MAX);
        // Those that announced something meanwhile are due once more.
        std::thread::sleep(4 * COMMIT_PAUSE);
        let is_ours = |job: &&Arc<Job>| writers.iter().any(|w| w.job.as_ref().is_some_and(|own| Arc::ptr_eq(own, job)));
        assert_eq!(committer.lock().due.values().filter(is_ours).count(), 0);
    }

    #[test]
    fn streams_are_committed_while_commits_of_others_take_long() {
        let folder = Folder::new("slow");
        let mut slow: Vec<Writer> = (0..4).map(|number| folder.writer(number)).collect();
        let mut other = folder.writer(9);
        assert!(slow.iter().all(is_on_disk));
        let held: Vec<_> = slow.iter().map(|writer| writer.drainer.clone().unwrap()).collect();
        let held: Vec<_> = held.iter().map(|drainer| drainer.lock().unwrap()).collect();
        slow.iter_mut().for_each(append);
        for _ in 0..20 {
            append(&mut other);
            assert!(is_on_disk(&other));
        }
        assert!(slow.iter().all(|writer| writer.mark(Level::Disk) == 0));
        drop(held);
        assert!(slow.iter().all(is_on_disk));
    }
}
