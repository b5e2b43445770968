//! When timestamps in ticks are zero: a time, or when the first such timestamp came.
//!
//! The first one is recorded in a file of the data folder before any message has a time from it, and is used again
//! after a restart. All sources of an instrument share it, whatever their threads are.

use crate::limits::{ZERO_BYTES_MAX, ZERO_FILE};
use flow::Fault;
use settings::Take;
use settings::units::{Refused, Time, time, time_text};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The value of key `zero`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZeroWord {
    At(Time),
    First,
}

impl Default for ZeroWord {
    fn default() -> Self {
        Self::At(Time(0))
    }
}

impl Take for ZeroWord {
    fn take(item: &toml_edit::Item) -> Result<Self, Refused> {
        match item.as_str() {
            Some("first") => Ok(Self::First),
            _ => Time::take(item).map(Self::At),
        }
    }
    fn default_of(text: &str) -> Option<Self> {
        Time::default_of(text).map(Self::At)
    }
    fn show(&self) -> serde_json::Value {
        match self {
            Self::At(time) => time.show(),
            Self::First => "first".into(),
        }
    }
}

/// Those of the instruments of this process, by their files.
static ALL: Mutex<BTreeMap<PathBuf, Weak<First>>> = Mutex::new(BTreeMap::new());

/// When the first timestamp in ticks came.
#[derive(Debug)]
pub(crate) struct First {
    file: PathBuf,
    /// ns since 1970 UTC; `i64::MIN`: not known yet.
    time: AtomicI64,
    /// Held by the source that records it.
    records: Mutex<()>,
}

impl First {
    /// The one of an instrument with this data folder.
    pub(crate) fn of(folder: &Path) -> Arc<Self> {
        let file = folder.join(ZERO_FILE);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, first| first.strong_count() > 0);
        if let Some(known) = all.get(&file).and_then(Weak::upgrade) {
            return known;
        }
        let first = Self { file: file.clone(), time: AtomicI64::new(i64::MIN), records: Mutex::new(()) };
        let first = Arc::new(first);
        all.insert(file, Arc::downgrade(&first));
        first
    }

    /// The recorded time, ns since 1970 UTC; where there is none, `now` is recorded.
    pub(crate) fn time(&self, now: i64) -> Result<i64, Fault> {
        let known = || Some(self.time.load(Ordering::Acquire)).filter(|time| *time != i64::MIN);
        if let Some(time) = known() {
            return Ok(time);
        }
        let _guard = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(time) = known() {
            return Ok(time);
        }
        let time = match self.read()? {
            Some(time) => time,
            None => self.write(now)?,
        };
        self.time.store(time, Ordering::Release);
        Ok(time)
    }

    fn read(&self) -> Result<Option<i64>, Fault> {
        let cannot = |e: &std::io::Error| Fault::io(format!("cannot read {}", self.file.display()), e);
        let mut text = String::new();
        match File::open(&self.file) {
            Ok(file) => file.take(ZERO_BYTES_MAX).read_to_string(&mut text).map_err(|e| cannot(&e))?,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(cannot(&e)),
        };
        let time = time(text.trim_end()).map_err(|refused| {
            let what = format!("{} does not hold the zero of the sources with `zero = \"first\"`", self.file.display());
            Fault::new(what, refused.cause).hint("remove it, or write the time that it had")
        })?;
        Ok(Some(time.0))
    }

    fn write(&self, now: i64) -> Result<i64, Fault> {
        let cannot = |e: std::io::Error| Fault::io(format!("cannot write {}", self.file.display()), &e);
        let part = self.file.with_extension("part");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&part).map_err(cannot)?;
        writeln!(file, "{}", time_text(Time(now))).map_err(cannot)?;
        file.sync_all().map_err(cannot)?;
        std::fs::rename(&part, &self.file).map_err(cannot)?;
        let folder = self.file.parent().unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot)?;
        Ok(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_time_is_recorded_and_used_again() {
        let folder = std::env::temp_dir().join(format!("beamport-zero-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (one, other) = (First::of(&folder), First::of(&folder));
        let time = 1_772_366_400_123_456_789;
        assert_eq!([one.time(time), other.time(time + 5)].map(Result::unwrap), [time; 2]);
        drop((one, other));
        // Another process.
        let again = First::of(&folder);
        assert_eq!(again.time(time + 7).unwrap(), time);
        drop(again);
        for text in ["", "soon", "\u{0}"] {
            std::fs::write(folder.join(ZERO_FILE), text).unwrap();
            let fault = First::of(&folder).time(1).unwrap_err();
            assert!(fault.hint.contains("remove it"), "{text}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(First::of(&folder).time(1).is_err());
    }
}
