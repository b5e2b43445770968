//! Mapping a segment: pinned, or copied where `pins` cannot be written.

use crate::error::{Error, Result};
use crate::format::control_page::Head;
use crate::format::header::Level;
use crate::format::segments::segment_name;
use crate::limits::READER_MAPS_MAX;
use crate::live::pins::Kind;
use crate::live::protocol::is_kept;
use crate::outside::media::{Map, Open};
use crate::read::attach::{Control, seen_head};
use crate::read::mapped::{Brought, Copied, Hold, KeptBy, Mapped, Record};
use crate::read::reader::{KeptMap, Reader};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

impl Reader {
    pub(super) fn map_segment(&mut self, payload: bool, number: u32) -> Result<Arc<Mapped>> {
        let name = segment_name(if payload { 'p' } else { 'i' }, number);
        let opened = self.opened();
        let Some(held) = &mut self.held else {
            let (map, path, copied) = self.copied(payload, number, &name)?;
            let hold = Hold::Copy(copied);
            return Ok(Arc::new(Mapped { map, path, number, payload, opened, hold, brought: None }));
        };
        if !held.mine() {
            let (at, epoch) = held.committed();
            *held = Arc::new(self.pins.take(self.media.as_ref(), ("", Kind::Anonymous, false), at, epoch)?);
        }
        let held = held.clone();
        held.pin(payload, number)?;
        let answer = self.map_pinned(payload, number, &name).and_then(|((map, file), path, live)| {
            if let (true, true, Control::Live(head)) = (payload, live, &self.control) {
                held.weigh(number, map.len() as u64, Head::of(head).keeps())?;
            }
            let brought = (!live).then(|| Brought::new(file, map.len()));
            Ok((map, path, brought))
        });
        match answer {
            Ok((map, path, brought)) => {
                let hold = Hold::Pin(held);
                Ok(Arc::new(Mapped { map, path, number, payload, opened, hold, brought }))
            }
            Err(e) => {
                held.unpin(payload, number);
                Err(e)
            }
        }
    }

    /// Maps a segment whose pin stands: from the live place (true), else from the folder; then looks whether it is
    /// still there.
    fn map_pinned(&self, payload: bool, number: u32, name: &str) -> Result<(KeptMap, PathBuf, bool)> {
        if let Control::Live(head) = &self.control {
            let head = Head::of(head);
            let low = if payload { &head.live_payload } else { &head.live_index };
            if is_kept(low, number) {
                let path = self.header.live.join(name);
                if let Some(map) = self.map_file(&path)?
                    && is_kept(low, number)
                {
                    return Ok((map, path, true));
                }
            }
        }
        let path = self.folder.join(name);
        let map = if self.header.level == Level::Disk { self.map_file(&path)? } else { None };
        let control = self.control_now()?;
        self.must_keep(control.as_deref(), payload, number)?;
        map.map(|map| (map, path.clone(), false)).ok_or(Error::Missing(path))
    }

    fn map_file(&self, path: &Path) -> Result<Option<KeptMap>> {
        let file = match self.media.open(path, Open::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", path)(e)),
        };
        let len = file.len().map_err(Error::io("read", path))? as usize;
        let identity = file.identity();
        let mut maps = self.maps.lock().unwrap_or_else(|p| p.into_inner());
        if let Some(known) = maps.get(&identity)
            && known.0.len() == len
        {
            return Ok(Some(known.clone()));
        }
        if len == 0 {
            return Ok(None);
        }
        let map = Arc::new(file.map(len, false).map_err(Error::io("map", path))?);
        // Memory of an unlinked file is held by our map alone.
        let crowded = maps.len() >= READER_MAPS_MAX;
        maps.retain(|_, (map, file)| Arc::strong_count(map) > 1 || (!crowded && file.linked()));
        // Kept by identity: if the writer renames the file and writes it again, the pages are mapped already.
        maps.insert(identity, (map.clone(), file.clone()));
        Ok(Some((map, file)))
    }

    /// Finds a segment that is to be copied: in the live place, else in the folder.
    fn copied(&self, payload: bool, number: u32, name: &str) -> Result<(Arc<Map>, PathBuf, Copied)> {
        let open = |path: &Path| match self.media.open(path, Open::Read) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("open", path)(e)),
        };
        let control = self.control_now()?;
        let mut found = (self.header.live.join(name), None, true);
        if let Some(head) = &control {
            let low = if payload { &Head::of(head).live_payload } else { &Head::of(head).live_index };
            found.1 = if is_kept(low, number) { open(&found.0)? } else { None };
        }
        if found.1.is_none() && self.header.level == Level::Disk {
            found = (self.folder.join(name), open(&self.folder.join(name))?, false);
        }
        self.must_keep(control.as_deref(), payload, number)?;
        let (path, Some(file), live) = found else { return Err(Error::Missing(found.0)) };
        let len = file.len().map_err(Error::io("read", &path))?;
        let kept_by = control.map_or_else(|| KeptBy::Record(self.record()), |head| KeptBy::Page(head, live));
        Ok((Arc::new(Map::zeroed(len as usize)), path, Copied { file, filled: Mutex::new(0), kept_by }))
    }

    /// Releases copies of segments that the writer has given up, where nothing more can be copied. True if there was
    /// one.
    pub(super) fn drop_given_up(&mut self) -> bool {
        let given_up = |mapped: &Option<Arc<Mapped>>| mapped.as_ref().is_some_and(|m| !m.is_kept());
        let any = given_up(&self.index) || given_up(&self.payload);
        if any {
            (self.index, self.payload, self.seen) = (None, None, 0);
        }
        any
    }

    /// True for an index segment mapped before a writer took the stream up again: its new entries are in another file.
    #[inline]
    pub(super) fn outlived(&self, index: &Mapped) -> bool {
        index.opened != self.opened()
    }

    /// The control page of the present writer, which may have opened the stream since this reader did.
    fn control_now(&self) -> Result<Option<Arc<Map>>> {
        let came = if self.is_unwritten() { seen_head(self.media.as_ref(), &self.header, &self.folder)? } else { None };
        Ok(match (came, &self.control) {
            (Some(head), _) => Some(Arc::new(head)),
            (None, Control::Live(head)) => Some(head.clone()),
            (None, Control::Cold { .. }) => None,
        })
    }

    /// An error where the stream keeps a segment no more, by its control page or, where there is none, by its record.
    fn must_keep(&self, page: Option<&Map>, payload: bool, number: u32) -> Result<()> {
        let Some(head) = page.map(Head::of) else { return self.record().must_keep(payload, number) };
        let low = if payload { &head.first_payload } else { &head.first_index };
        if is_kept(low, number) { Ok(()) } else { Err(Error::Gone { first: head.first.load(Ordering::Acquire) }) }
    }

    fn record(&self) -> Record {
        Record {
            media: self.media.clone(),
            folder: self.folder.clone(),
            uuid: self.header.uuid,
            index_entries: self.header.index_entries,
        }
    }
}
