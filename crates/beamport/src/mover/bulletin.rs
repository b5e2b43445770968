//! The thread that posts on the bulletin of the hosts, and reads it: a beat each second, and all that the mover has to
//! post between.
//!
//! Constraints: the mover never waits for it. Posts that the carrier has not confirmed are posted again: a post has a
//! key, so that one posted twice is one. Posts that the mover has not collected are bounded; then nothing is read.
//!
//! Failure behaviour: a carrier that is away is its trouble, and posts wait. A newer process of the same host ends it:
//! nothing is posted any more.

use crate::limits::{BEAT_PAUSE, BULLETIN_PATIENCE, FENCED_READ, INBOX_MAX, POSTS_MAX};
use flow::Fault;
use flow::edge::{Bulletin, CarrierPlan, Post, Posted};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A key and a text.
pub(super) type KeyText = (String, String);

#[derive(Default)]
struct State {
    /// The next beat, to which the time is added.
    beat: Option<(String, Value)>,
    /// Posts that wait, and those that are being posted.
    outbox: Vec<KeyText>,
    posting: usize,
    inbox: Vec<Post>,
    trouble: Option<Fault>,
    is_fenced: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread.
pub(super) struct BulletinThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BulletinThread {
    /// Starts it for one host of an instrument. `now`: the clock of the host, ns since 1970 UTC.
    pub(super) fn start(plan: Arc<dyn CarrierPlan>, instrument: &str, host: &str, now: Now) -> Result<Self, Fault> {
        let shared = Arc::new(Shared::default());
        let (instrument, host, of_thread) = (instrument.to_owned(), host.to_owned(), shared.clone());
        let open = move || plan.bulletin(&instrument, Some(&host));
        let thread = std::thread::Builder::new().name("bulletin".into()).spawn(move || work(&open, &now, &of_thread));
        let thread = thread.map_err(|e| Fault::io("the bulletin of the hosts cannot start", &e))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the key and the object of the next beat, which is posted within a second, and again and again.
    pub(super) fn set_beat(&self, key: String, beat: Value) {
        self.shared.lock().beat = Some((key, beat));
    }

    /// Posts a text; an empty one removes its key.
    pub(super) fn post(&self, key: String, text: String) {
        self.shared.lock().outbox.push((key, text));
    }

    /// Posts a last beat, behind which no other is posted.
    pub(super) fn post_last_beat(&self, key: String, text: String) {
        let mut state = self.shared.lock();
        state.beat = None;
        state.outbox.push((key, text));
    }

    /// The posts that have come since the last call.
    pub(super) fn posts(&self) -> Vec<Post> {
        std::mem::take(&mut self.shared.lock().inbox)
    }

    /// Whether the carrier has confirmed all posts.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.shared.lock();
        state.outbox.is_empty() && state.posting == 0
    }

    /// The present error.
    pub(super) fn trouble(&self) -> Option<Fault> {
        self.shared.lock().trouble.clone()
    }

    /// Whether a newer process of this host has taken its place.
    pub(super) fn is_fenced(&self) -> bool {
        self.shared.lock().is_fenced
    }
}

impl Drop for BulletinThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Open<'a> = dyn Fn() -> Result<Box<dyn Bulletin>, Fault> + 'a;
/// A clock, ns since 1970 UTC.
pub(super) type Now = Box<dyn Fn() -> i64 + Send>;

fn work(open: &Open<'_>, now: &Now, shared: &Shared) {
    let (mut bulletin, mut beat_at, mut until) = (None, Instant::now(), None);
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            let until = *until.get_or_insert_with(|| Instant::now() + BULLETIN_PATIENCE);
            if shared.lock().outbox.is_empty() || Instant::now() > until {
                return;
            }
        }
        let stepped = match &mut bulletin {
            None => open().map(|opened| bulletin = Some(opened)),
            Some(bulletin) => match post(bulletin.as_mut(), now, shared, &mut beat_at) {
                Ok(Posted::Fenced) => {
                    shared.lock().is_fenced = true;
                    // The beat of the other process says which one it is.
                    let until = Instant::now() + FENCED_READ;
                    while Instant::now() < until && read(bulletin.as_mut(), shared).is_ok() {}
                    return;
                }
                Ok(Posted::Kept) => read(bulletin.as_mut(), shared),
                Err(fault) => Err(fault),
            },
        };
        let has_failed = stepped.is_err();
        shared.lock().trouble = stepped.err();
        if has_failed {
            // It goes on by itself: a new one would claim the name of the host again, and shut out a later process.
            let pause = Instant::now() + Duration::from_secs(1);
            while Instant::now() < pause && !shared.stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Posts what waits, with the beat where it is time.
fn post(bulletin: &mut dyn Bulletin, now: &Now, shared: &Shared, beat_at: &mut Instant) -> Result<Posted, Fault> {
    let mut state = shared.lock();
    let some = state.outbox.len().min(POSTS_MAX);
    let waiting: Vec<KeyText> = state.outbox.drain(..some).collect();
    state.posting = waiting.len();
    let mut posts = waiting.clone();
    if Instant::now() >= *beat_at {
        posts.extend(state.beat.as_mut().map(|(key, beat)| {
            beat["time"] = now().into();
            (key.clone(), beat.to_string())
        }));
        *beat_at = Instant::now() + BEAT_PAUSE;
    }
    drop(state);
    let posted = if posts.is_empty() { Ok(Posted::Kept) } else { bulletin.post(&posts) };
    let mut state = shared.lock();
    state.posting = 0;
    if !matches!(posted, Ok(Posted::Kept)) {
        state.outbox.splice(0..0, waiting);
    }
    posted
}

fn read(bulletin: &mut dyn Bulletin, shared: &Shared) -> Result<(), Fault> {
    if shared.lock().inbox.len() >= INBOX_MAX {
        std::thread::sleep(Duration::from_millis(20));
        return Ok(());
    }
    let posts = bulletin.read(Duration::from_millis(50))?;
    shared.lock().inbox.extend(posts);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A bulletin in memory that fails each third time and fences after `posts`.
    struct Paper {
        posts: Vec<KeyText>,
        read: usize,
        calls: usize,
        fences: bool,
    }

    struct Sheet(Arc<Mutex<Paper>>);

    impl Bulletin for Sheet {
        fn post(&mut self, posts: &[KeyText]) -> Result<Posted, Fault> {
            let mut paper = self.0.lock().unwrap();
            paper.calls += 1;
            if paper.fences {
                return Ok(Posted::Fenced);
            }
            if paper.calls.is_multiple_of(3) {
                return Err(Fault::new("no ink", ""));
            }
            paper.posts.extend(posts.iter().cloned());
            Ok(Posted::Kept)
        }

        fn read(&mut self, patience: Duration) -> Result<Vec<Post>, Fault> {
            let mut paper = self.0.lock().unwrap();
            let posts = paper.posts[paper.read..].iter();
            let posts: Vec<Post> =
                posts.map(|(key, text)| Post { key: key.clone(), text: text.clone(), time: 0 }).collect();
            paper.read = paper.posts.len();
            drop(paper);
            std::thread::sleep(patience.min(Duration::from_millis(1)));
            Ok(posts)
        }
    }

    #[test]
    fn a_post_that_failed_is_posted_again_in_order_and_a_fenced_host_posts_no_more() {
        let paper = Arc::new(Mutex::new(Paper { posts: Vec::new(), read: 0, calls: 0, fences: false }));
        let opened = AtomicUsize::new(0);
        let shared = Arc::new(Shared::default());
        let open = || {
            opened.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(Sheet(paper.clone())) as Box<dyn Bulletin>)
        };
        let bulletin = BulletinThread { shared: shared.clone(), thread: None };
        std::thread::scope(|scope| {
            let now: Now = Box::new(|| 7);
            let (open, shared) = (&open, &shared);
            scope.spawn(move || work(open, &now, shared));
            let wait = |is_done: &dyn Fn() -> bool| {
                while !is_done() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            for n in 0..6 {
                bulletin.post(format!("key {n}"), n.to_string());
                wait(&|| bulletin.is_idle());
            }
            let posts: Vec<String> = paper.lock().unwrap().posts.iter().map(|(_, text)| text.clone()).collect();
            assert_eq!(posts, ["0", "1", "2", "3", "4", "5"]);
            assert_eq!(opened.load(Ordering::Relaxed), 1, "it was opened again");
            assert!(paper.lock().unwrap().calls > 6, "nothing failed");
            assert!(!bulletin.is_fenced());
            paper.lock().unwrap().fences = true;
            bulletin.post("key".into(), "6".into());
            wait(&|| bulletin.is_fenced());
            assert!(!bulletin.is_idle());
        });
        assert_eq!(paper.lock().unwrap().posts.len(), 6);
    }
}
