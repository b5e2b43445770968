//! An end, with a reason, where libhdf5 does not come back from a file of others: damaged, it can send it round in circles.
//!
//! The limit is processor time of the reading thread: a slow disk or a busy machine is not damage. A thread supervises
//! reads while there are any; it reports the reason by the program's function ([`report_by`]) and ends the process
//! without destructors, because libhdf5 holds its lock.

use flow::Fault;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Time between two looks: small beside the time that is given.
const LOOK: Duration = Duration::from_millis(200);

/// Work under supervision.
struct Work {
    number: u64,
    /// The clock of its thread.
    clock: libc::clockid_t,
    /// Time on that clock at which it must have ended.
    end: Duration,
    fault: Fault,
}

struct Watch {
    works: Vec<Work>,
    next: u64,
    /// A thread looks on.
    is_looked_at: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { works: Vec::new(), next: 0, is_looked_at: false });

type Report = Box<dyn Fn(&Fault) -> u8 + Send + Sync>;
static REPORT: OnceLock<Report> = OnceLock::new();

/// Sets the function that reports the last fault of this process and returns the exit status.
pub(crate) fn report_by(how: impl Fn(&Fault) -> u8 + Send + Sync + 'static) {
    let _ = REPORT.set(Box::new(how));
}

/// Ends this process with the fault if the work takes more time of the processor.
pub(crate) fn within<T>(time: Duration, fault: impl FnOnce() -> Fault, work: impl FnOnce() -> T) -> T {
    let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
    // SAFETY: of this thread, which is there; a place for the answer.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    let mut watch = lock();
    if !watch.is_looked_at {
        let thread = std::thread::Builder::new().name("watch".into()).spawn(supervise);
        if thread.is_err() {
            drop(watch);
            // Without the reason.
            return crate::read::cat::guarded(work);
        }
        watch.is_looked_at = true;
    }
    let number = watch.next;
    watch.next += 1;
    watch.works.push(Work { number, clock, end: now(clock) + time, fault: fault() });
    drop(watch);
    let _watched = Watched(number);
    work()
}

struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        lock().works.retain(|work| work.number != self.0);
    }
}

fn lock() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Looks until there is nothing to look at.
fn supervise() {
    loop {
        std::thread::sleep(LOOK);
        let mut watch = lock();
        if watch.works.is_empty() {
            watch.is_looked_at = false;
            return;
        }
        if let Some(late) = watch.works.iter().find(|work| now(work.clock) >= work.end) {
            let status = match REPORT.get() {
                Some(report_by) => report_by(&late.fault),
                None => {
                    eprintln!("{}", late.fault);
                    2
                }
            };
            // SAFETY: ends the process as it is.
            unsafe { libc::_exit(i32::from(status)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_was_called_damage() {
        let (time, wait) = (Duration::from_millis(100), 3 * LOOK);
        let fault = || Fault::new("it waits, and does nothing", "");
        // It would end this process.
        within(time, fault, || within(time, fault, || std::thread::sleep(wait)));
        assert_eq!(within(time, fault, || 7), 7);
    }
}
