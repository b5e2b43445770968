//! The one writer of a stream.
//!
//! Constraints: one message costs a copy with its checksum and 64 bytes of index; no lock, no system call, no
//! allocation. Everything pushed since the last `publish` becomes visible at once with one release store. The order of
//! stores is payload, entry, mark, then a check for sleepers (`protocol`). Only a change to the next segment takes a
//! lock or can run out of space.
//!
//! Failure behaviour: lack of space is an `Error::Full` before any change; messages pushed before stay and are
//! published. Dropping the writer publishes and ends the drainer with a clean commit record; a killed writer loses only
//! unpublished messages.

use crate::error::{Error, Result, Trouble};
use crate::format::control_page::{Head, STATE_CLOSED, STATE_FAILED};
use crate::format::header::{Header, Identity, Level};
use crate::format::names::{Names, ORIGINS};
use crate::format::recovery::Recovery;
use crate::limits::{ORIGIN_NAME_MAX, ORIGINS_MAX};
use crate::live::pins::Pins;
use crate::live::place::remove_live;
use crate::outside::media::{Map, Media};
use crate::outside::steady::Steady;
use crate::write::chain::Chain;
use crate::write::committer::Job;
use crate::write::cursor::{Cursor, IndexEnd, PayloadEnd};
use crate::write::drain::{Drainer, Ring};
use crate::write::options::Options;
use crate::write::view::View;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

/// The one writer of a stream.
pub struct Writer {
    pub(crate) media: Arc<dyn Media>,
    pub(crate) folder: PathBuf,
    pub(crate) live: PathBuf,
    pub(crate) header: Header,
    pub(crate) options: Options,
    pub(crate) head: Arc<Map>,
    pub(crate) pins: Pins,
    pub(crate) ring: Arc<Ring>,
    pub(crate) origins: Names,
    /// Salt seed of the epoch that is written.
    pub(crate) seed: u64,
    pub(crate) cursor: Cursor,
    pub(crate) payload: PayloadEnd,
    pub(crate) index: IndexEnd,
    pub(crate) chain: Chain,
    /// The credit word before it was last looked for room.
    pub(crate) credit: u32,
    /// The time by which messages become old.
    pub(crate) steady: Steady,
    /// When to look for messages that are too old.
    pub(crate) look_at: i64,
    /// The streams that this one points into, if it is a view.
    pub(crate) view: View,
    /// Of a mirror: the newest message of each near stream, as it was at opening.
    pub(crate) mirrored: Vec<Identity>,
    pub(crate) recovery: Recovery,
    pub(crate) drainer: Option<Arc<Mutex<Drainer>>>,
    pub(crate) job: Option<Arc<Job>>,
    pub(crate) _locks: [Box<dyn Any + Send + Sync>; 2],
}

impl Writer {
    /// The result of the recovery at opening.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The header: identity, level, epochs.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The stream's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn head(&self) -> &Head {
        Head::of(&self.head)
    }

    /// Next sequence.
    pub fn next_sequence(&self) -> u64 {
        self.cursor.next()
    }

    /// Lowest sequence still kept.
    pub fn first_sequence(&self) -> u64 {
        self.head().first.load(Ordering::Relaxed)
    }

    /// The readers of this stream.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The row of an origin, made if it is new. A new row costs a small write; call once per origin.
    pub fn origin(&mut self, name: &str) -> Result<u32> {
        if let Some(row) = self.origins.row(name) {
            return Ok(row);
        }
        if name.len() > ORIGIN_NAME_MAX {
            return Err(Error::Limit(format!("the name of an origin has at most {ORIGIN_NAME_MAX} bytes")));
        }
        if self.origins.names.len() >= ORIGINS_MAX {
            return Err(Error::Limit(format!("a stream has at most {ORIGINS_MAX} origins")));
        }
        self.origins.add(self.media.as_ref(), &self.folder, ORIGINS, name)?;
        self.ring.lock().origins_dirty = true;
        fence(Ordering::SeqCst);
        self.ring.announce();
        Ok(self.origins.names.len() as u32 - 1)
    }

    /// Names of the origins, by row.
    pub fn origins(&self) -> &[String] {
        &self.origins.names
    }

    #[inline]
    pub(super) fn check_failed(&self) -> Result<()> {
        if self.head().state.load(Ordering::Acquire) == STATE_FAILED {
            let why = self.ring.lock().trouble.clone();
            return Err(Error::Failed(why.map_or_else(|| "a sync failed".into(), |why| why.text)));
        }
        Ok(())
    }

    /// Why the mark `disk` does not move, if it does not.
    pub fn trouble(&self) -> Option<Trouble> {
        // Nothing else sets it, and a source asks after each step.
        self.drainer.as_ref().and_then(|_| self.ring.lock().trouble.clone())
    }

    /// One group commit (for `Drain::Caller`).
    pub fn drain(&mut self) -> Result<bool> {
        self.publish();
        self.drainer().map_or(Ok(false), |mut drainer| drainer.step(false, None))
    }

    fn drainer(&self) -> Option<MutexGuard<'_, Drainer>> {
        self.drainer.as_ref().map(|drainer| drainer.lock().unwrap_or_else(|p| p.into_inner()))
    }

    /// Puts what is left on the medium, if it is little and no commit runs. False: a committer has to.
    pub(super) fn drain_little(&self) -> bool {
        let Some(Ok(mut drainer)) = self.drainer.as_ref().map(|drainer| drainer.try_lock()) else { return false };
        // The record follows: what is published is announced.
        drainer.little(self.cursor.published()) && drainer.step(false, Some(self.origins.names.len())).is_ok()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.publish();
        if let Some(job) = self.job.take() {
            job.end();
        }
        if let Some(mut drainer) = self.drainer() {
            let _ = drainer.step(true, None);
        }
        // The mark alone is no proof that a record says so.
        let clean = self.drainer().is_some_and(|drainer| drainer.done.clean);
        let head = self.head();
        if self.header.level == Level::Disk
            && clean
            && head.state.load(Ordering::Acquire) != STATE_FAILED
            && head.disk.load(Ordering::Acquire) == self.cursor.published()
        {
            // All is on the medium: the live place goes. A process that has the control page mapped sees that nothing
            // is here.
            head.live_payload.store(u32::MAX, Ordering::SeqCst);
            head.live_index.store(u32::MAX, Ordering::SeqCst);
            head.state.store(STATE_CLOSED, Ordering::Release);
            remove_live(self.media.as_ref(), &self.live, &self.folder);
        } else if head.state.load(Ordering::Acquire) != STATE_FAILED {
            head.state.store(STATE_CLOSED, Ordering::Release);
        }
    }
}
