//! The change to the next segment, warm or new.

use crate::error::{Error, Result};
use crate::format::header::Level;
use crate::format::segments::segment_name;
use crate::limits::{ASK_EARLY, PAYLOAD_BYTES_MAX};
use crate::live::segment::Segment;
use crate::write::chain::KeptSegment;
use crate::write::cursor::PayloadEnd;
use crate::write::writer::Writer;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Writer {
    #[cold]
    pub(super) fn roll_payload(&mut self, len: u64) -> Result<()> {
        if len > PAYLOAD_BYTES_MAX {
            return Err(Error::Limit(format!("a message has at most {PAYLOAD_BYTES_MAX} bytes, not {len}")));
        }
        self.check_failed()?;
        let bytes = self.header.segment_bytes.max(len.next_multiple_of(4096));
        self.make_room(bytes)?;
        if len > self.header.segment_bytes / 2 {
            // Each such message is alone in its segment. Stored before the message is published, so that no reader of
            // it has the smaller quota.
            self.head().largest.fetch_max(bytes, Ordering::AcqRel);
        }
        if self.payload.first == self.cursor.next() && self.payload.used == 0 {
            // Nothing is in the segment: it becomes larger, so that numbers rise by one and recovery can tell what
            // follows.
            let segment = match Segment::open(self.media.as_ref(), &self.payload.segment.path, bytes) {
                Err(why) => {
                    self.retry_with_room(why, |w| Segment::open(w.media.as_ref(), &w.payload.segment.path, bytes))?
                }
                Ok(segment) => segment,
            };
            let segment = Arc::new(segment);
            let mut ring = self.ring.lock();
            ring.payload.pop_back();
            ring.payload.push_back((self.payload.number, segment.clone()));
            self.payload.segment = segment;
            return Ok(());
        }
        let number = self.payload.number + 1;
        let segment = match self.take_segment('p', number, bytes) {
            Err(why) => self.retry_with_room(why, |writer| writer.take_segment('p', number, bytes))?,
            Ok(segment) => segment,
        };
        debug_assert!(self.payload.used <= self.payload.segment.bytes(), "a segment is closed within its file");
        self.payload.segment.closed_at.store(self.payload.used, Ordering::Release);
        self.ring.lock().payload.push_back((number, segment.clone()));
        if self.header.level == Level::Disk {
            let behind = u64::from(number.saturating_sub(self.ring.drained_payload.load(Ordering::Acquire)));
            // A quarter of the live place waits for the medium: no pause between commits.
            if behind * self.header.segment_bytes * 4 >= self.options.live_bytes {
                self.ring.hurry();
            }
        }
        let closed_bytes = self.payload.used.next_multiple_of(4096);
        self.payload = PayloadEnd { segment, number, used: 0, first: self.cursor.next() };
        // Never too early: a message that either clock calls young is kept.
        let arrived = self.steady.now(self.media.as_ref()).max(self.media.now());
        self.chain.roll(closed_bytes, KeptSegment { number, first: self.cursor.next(), arrived, bytes: 0 });
        if self.header.level == Level::Memory && self.chain.len() >= ASK_EARLY {
            // While this segment fills: what views keep takes some steps of theirs to come free. It is hardly counted
            // yet.
            let (used, spare) = self.live_bytes(self.header.segment_bytes);
            if !spare && used + 2 * self.header.segment_bytes > self.options.live_bytes {
                self.ask_views();
            }
        }
        Ok(())
    }

    #[cold]
    pub(super) fn roll_index(&mut self) -> Result<()> {
        self.check_failed()?;
        let number = self.header.index_number(self.cursor.next())?;
        self.view.index_closed(self.index.number, self.cursor.next(), self.header.index_entries);
        self.release_live_index();
        let bytes = self.header.index_bytes();
        let segment = match self.take_segment('i', number, bytes) {
            Err(why) => self.retry_with_room(why, |writer| writer.take_segment('i', number, bytes))?,
            Ok(segment) => segment,
        };
        self.ring.lock().index.push_back((number, segment.clone()));
        (self.index.segment, self.index.number) = (segment, number);
        self.index.block = (i64::MAX, i64::MIN);
        Ok(())
    }

    /// A warm segment of this size, or a new one.
    fn take_segment(&mut self, kind: char, number: u32, bytes: u64) -> Result<Arc<Segment>> {
        let path = self.live.join(segment_name(kind, number));
        let spare = {
            let mut ring = self.ring.lock();
            let spares = if kind == 'p' { &mut ring.spare_payload } else { &mut ring.spare_index };
            spares.iter().position(|s| s.bytes() == bytes).map(|at| spares.swap_remove(at))
        };
        // A spare that an earlier roll left with other owners cannot be renamed in place: start a new file then.
        match spare.map(Arc::try_unwrap) {
            Some(Ok(mut segment)) => {
                self.media.rename(&segment.path, &path).map_err(Error::io("rename", &path))?;
                segment.path = path;
                segment.closed_at.store(u64::MAX, Ordering::Relaxed);
                return Ok(Arc::new(segment));
            }
            Some(Err(shared)) => drop(self.media.unlink(&shared.path)),
            None => {}
        }
        Ok(Arc::new(Segment::open(self.media.as_ref(), &path, bytes)?))
    }
}
