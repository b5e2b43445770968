//! Opening a stream, and finding the writer that writes it now.

use crate::error::{Error, Result};
use crate::format::entry::salt_seed;
use crate::format::header::{Header, Level};
use crate::format::names::Names;
use crate::live::pins::{Held, Kind, Pins};
use crate::outside::media::Media;
use crate::read::attach::{Control, attach, bounds_of};
use crate::read::options::{ReadOptions, Start};
use crate::read::reader::Reader;
use crate::read::reader::view::Parents;
use crate::read::shown::Shown;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

impl Reader {
    /// Opens a stream for reading. A named reader begins where it committed last; others at the oldest message.
    pub fn open(media: &Arc<dyn Media>, folder: &Path, options: ReadOptions) -> Result<Self> {
        let m = media.as_ref();
        let (header, control) = attach(m, folder, None)?;
        let named = options.kind != Kind::Anonymous;
        let pins = if named { Pins::open(m, folder)? } else { Pins::open_for_reading(m, folder)? };
        let bounds = bounds_of(&control);
        let mut at = match options.start {
            Start::Committed => bounds.first,
            Start::New(at) | Start::Here(at) => at,
        };
        let (mut epoch, mut held) = (header.epoch_of(at.saturating_sub(1)), None);
        if let Some(taken) = place_of(m, folder, &pins, &options, (at, epoch))? {
            // Not under the lock of the file: a disk may take long.
            if taken.new && options.kind == Kind::Counted && header.level == Level::Disk {
                pins.sync(m, folder)?;
            }
            match options.start {
                Start::Here(_) => taken.commit(m, at, epoch),
                _ if options.strict && taken.cut() > 0 => {
                    let end = taken.committed().0;
                    let epoch = header.epoch_of(end.saturating_sub(1));
                    let first = header.epochs.iter().find(|e| e.0 == epoch).map_or(0, |e| e.1);
                    return Err(Error::Rewound { epoch, first, end });
                }
                _ => (at, epoch) = taken.committed(),
            }
            held = Some(Arc::new(taken));
        }
        let mut next = if named || options.start != Start::Committed { at } else { bounds.first };
        match header.check_identity(epoch, next) {
            Err(e) if options.strict => return Err(e),
            Err(_) => {
                // What it had read was cut by a recovery: it goes on where its epoch ended.
                let row = header.epochs.iter().position(|e| e.0 == epoch);
                next = row.and_then(|r| header.epochs.get(r + 1)).map_or(bounds.first, |e| e.1);
            }
            Ok(()) => {}
        }
        let mut reader = Self {
            media: media.clone(),
            folder: folder.to_path_buf(),
            seeds: Vec::new(),
            header,
            control,
            pins,
            held,
            options,
            next,
            index: None,
            payload: None,
            seen: 0,
            parents: Parents::default(),
            shown: Shown::default(),
            depth: 0,
            placed: (0, 0),
            placed_bytes: 0,
            maps: Mutex::new(HashMap::new()),
            origins: Names::default(),
            looked: Instant::now(),
        };
        reader.learn_epochs();
        Ok(reader)
    }

    /// Another reader that sees what this one sees. It holds no place in `pins`: it is for waiting alone.
    pub(in crate::read) fn lookout(&self) -> Self {
        let control = match &self.control {
            Control::Live(map) => Control::Live(map.clone()),
            &Control::Cold { commit, count, disk } => Control::Cold { commit, count, disk },
        };
        Self {
            media: self.media.clone(),
            folder: self.folder.clone(),
            header: self.header.clone(),
            control,
            pins: self.pins.clone(),
            held: None,
            options: ReadOptions { spin: Duration::ZERO, ..self.options.clone() },
            next: self.next,
            seeds: self.seeds.clone(),
            index: None,
            payload: None,
            seen: 0,
            parents: Parents::default(),
            shown: Shown::default(),
            depth: self.depth,
            placed: (0, 0),
            placed_bytes: 0,
            maps: Mutex::new(HashMap::new()),
            origins: Names::default(),
            looked: self.looked,
        }
    }

    /// Looks for a writer that started anew: another live place, another epoch. Cheap; at most every 200 ms.
    pub fn refresh(&mut self) -> Result<()> {
        if self.end() > self.next || self.looked.elapsed() < Duration::from_millis(200) {
            return Ok(());
        }
        self.reattach()
    }

    /// Looks for a writer that started anew: one read of the header.
    pub fn reattach(&mut self) -> Result<()> {
        self.looked = Instant::now();
        let header = Header::read(self.media.as_ref(), &self.folder)?;
        if header.uuid != self.header.uuid {
            let what = "another stream is here now: reopen it".into();
            return Err(Error::Format { path: self.folder.clone(), what });
        }
        let moved = header.live != self.header.live || header.boot != self.header.boot;
        if moved || header.epochs != self.header.epochs || self.is_unwritten() {
            let (header, control) = attach(self.media.as_ref(), &self.folder, Some(&self.control))?;
            (self.header, self.control) = (header, control);
            self.learn_epochs();
            (self.index, self.payload, self.seen) = (None, None, 0);
        }
        Ok(())
    }

    fn learn_epochs(&mut self) {
        self.seeds = self.header.epochs.iter().map(|e| (e.1, e.0, salt_seed(&self.header.uuid, e.0))).collect();
    }
}

/// Takes the place of a reader. None where it reads by copying: `pins` may not be written, or the reader is anonymous
/// and only places for named readers are free.
fn place_of(
    m: &dyn Media,
    folder: &Path,
    pins: &Pins,
    options: &ReadOptions,
    (at, epoch): (u64, u32),
) -> Result<Option<Held>> {
    if !pins.writable() {
        return Ok(None);
    }
    let named = options.kind != Kind::Anonymous;
    let _alone = if named { Some(pins.lock(m, folder)?) } else { None };
    match pins.take(m, (&options.name, options.kind, options.strict), at, epoch) {
        Err(Error::ReadersFull) if !named => Ok(None),
        answer => answer.map(Some),
    }
}
