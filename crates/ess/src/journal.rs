//! What a service knows of its jobs, on disk: `DATA/jobs/JOB_ID` with the command as it came (`command.pl72`) and
//! `job.json`. A job is there from its acceptance until its last answer is delivered.
//!
//! Several services of one host may share a folder. Whoever holds the kernel's lock on `JOB_ID/lock` owns the job; the
//! kernel frees it when its owner dies, and then an idle service takes the job.
//!
//! Constraints: a record is replaced by rename, and on disk when a function returns. Folders of other origin are
//! left alone.

use crate::limits::{COMMAND_BYTES_MAX, RECORD_BYTES_MAX};
use crate::reply::Begin;
use flow::Fault;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// The command, as it came.
const COMMAND: &str = "command.pl72";
/// The record.
const RECORD: &str = "job.json";
/// The `wrdn` of the outcome, once it is known.
const OUTCOME: &str = "outcome.wrdn";
/// The lock of the owner of a job.
const LOCK: &str = "lock";
/// Before the names of folders that are being made or removed.
const UNFINISHED: char = '.';

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// It is on disk; no answer has been delivered.
    Accepted,
    /// Its acceptance is delivered.
    Running,
    /// It has ended, and its outcome is on disk.
    Finished,
    /// Its outcome is delivered.
    Delivered,
}

/// Where the command of a job lies in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolPlace {
    pub(crate) partition: i32,
    pub(crate) offset: u64,
}

/// A job on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) job_id: String,
    pub(crate) step: Step,
    /// Its place in the pool.
    pub(crate) pool: PoolPlace,
    /// Kafka's time of its command, ms since 1970 UTC.
    pub(crate) command_ms: i64,
    /// Topic of its answers: its outcome has a place where its command is damaged.
    #[serde(default)]
    pub(crate) control_topic: String,
    /// Where its topics are read from, by partition.
    pub(crate) pins: BTreeMap<String, Vec<u64>>,
    /// Partitions that may have held older messages of its time.
    #[serde(default)]
    pub(crate) begins: Vec<Begin>,
    /// Where its control topic is read from, by partition.
    pub(crate) control: Vec<u64>,
    /// Where its control topic ended when it was accepted.
    pub(crate) control_end: Vec<u64>,
    /// Its stop, ms since 1970 UTC; `None`: open.
    pub(crate) stop_ms: Option<i64>,
    /// Boot of the machine that its streams in memory belong to.
    pub(crate) boot: String,
    /// How often it was restarted from its pins.
    pub(crate) restarts: u32,
    /// Device and inode of its file, once that is there: a restart removes no other.
    #[serde(default)]
    pub(crate) file: Option<(u64, u64)>,
}

impl Record {
    /// The record of a job that only its outcome is left of.
    fn of_damaged(job_id: &str) -> Self {
        Self {
            job_id: job_id.to_owned(),
            step: Step::Finished,
            pool: PoolPlace { partition: 0, offset: 0 },
            command_ms: 1,
            control_topic: String::new(),
            pins: BTreeMap::new(),
            begins: Vec::new(),
            control: Vec::new(),
            control_end: Vec::new(),
            stop_ms: None,
            boot: String::new(),
            restarts: 0,
            file: None,
        }
    }
}

/// Offsets by topic and partition.
type Offsets = BTreeMap<String, Vec<u64>>;

/// Partitions whose oldest message is the first of a job, though they had older ones: what retention took may belong to
/// the job. One without messages says that only of a job of the past.
pub(crate) fn late_begins(pins: &Offsets, first: &Offsets, end: &Offsets, is_past: bool) -> Vec<Begin> {
    let of = |offsets: &Offsets, topic: &str, partition: usize| offsets.get(topic)?.get(partition).copied();
    let rows = pins.iter().flat_map(|(topic, row)| row.iter().enumerate().map(move |(at, pin)| (topic, at, *pin)));
    let is_late = |(topic, partition, pin): &(&String, usize, u64)| {
        let is_empty = of(end, topic, *partition) == Some(*pin);
        *pin > 0 && of(first, topic, *partition) == Some(*pin) && (is_past || !is_empty)
    };
    let begin = |(topic, partition, offset): (&String, usize, u64)| Begin {
        topic: topic.clone(),
        partition: u32::try_from(partition).unwrap_or(u32::MAX),
        offset,
    };
    rows.filter(is_late).map(begin).collect()
}

/// The folder of all jobs.
pub(crate) struct Journal {
    folder: PathBuf,
}

/// A job that this service owns.
pub(crate) struct Entry {
    /// Its folder.
    pub(crate) folder: PathBuf,
    /// Its command as it came.
    pub(crate) command: Vec<u8>,
    pub(crate) record: Record,
    /// Why it cannot be worked at: its outcome is an error.
    pub(crate) damage: Option<String>,
    _lock: File,
}

/// The boot of this machine.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// Forces what was renamed or made in a folder to disk.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Puts a file in place, whole or not at all.
pub(crate) fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    sync(folder)
}

/// Reads a plain file of bounded size. Pipes and devices are refused: opening one may wait for ever.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let kind = fs::symlink_metadata(path)?;
    if !kind.is_file() || kind.len() > most {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is not a regular file of this size"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The lock of a folder of a job; none where another process holds it.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join(LOCK);
    if !fs::symlink_metadata(&path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "its lock is not a regular file"));
    }
    let file = File::open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

impl Journal {
    /// The folder `jobs` of a data folder, made where it is missing.
    pub(crate) fn open(data: &Path) -> Result<Self, Fault> {
        let folder = data.join("jobs");
        fs::create_dir_all(&folder)
            .map_err(|e| Fault::io(format!("cannot create the folder of jobs `{}`", folder.display()), &e))?;
        Ok(Self { folder })
    }

    /// Whether a job of this id exists, with any owner.
    pub(crate) fn knows(&self, job_id: &str) -> bool {
        fs::symlink_metadata(self.folder.join(job_id)).is_ok()
    }

    /// How far a job of this id is, with any owner, and its place in the pool; none where there is none.
    pub(crate) fn state(&self, job_id: &str) -> Option<(Step, PoolPlace)> {
        let bytes = read(&self.folder.join(job_id).join(RECORD), RECORD_BYTES_MAX).ok()?;
        serde_json::from_slice::<Record>(&bytes).ok().map(|record| (record.step, record.pool))
    }

    /// Records a new job. It is on disk then, and ours. None where a job of this id is there.
    pub(crate) fn accept(&self, record: Record, command: &[u8]) -> Result<Option<Entry>, Fault> {
        let fault = |e: io::Error| Fault::io(format!("cannot record job `{}`", record.job_id), &e);
        let folder = self.folder.join(&record.job_id);
        let new = self.folder.join(format!("{UNFINISHED}{}.{}", record.job_id, std::process::id()));
        let made = (|| {
            let _ = fs::remove_dir_all(&new);
            fs::create_dir(&new)?;
            let file = File::create(new.join(LOCK))?;
            file.try_lock().map_err(|e| io::Error::other(e.to_string()))?;
            put(&new, COMMAND, command)?;
            put(&new, RECORD, &serde_json::to_vec(&record)?)?;
            Ok(file)
        })();
        // A folder that holds a job is not empty, so that no rename replaces it.
        let placed = made.and_then(|file| fs::rename(&new, &folder).map(|()| file));
        let file = match placed {
            Ok(file) => file,
            Err(e) => {
                let _ = fs::remove_dir_all(&new);
                if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) {
                    return Ok(None);
                }
                return Err(fault(e));
            }
        };
        sync(&self.folder).map_err(fault)?;
        Ok(Some(Entry { folder, command: command.to_vec(), record, damage: None, _lock: file }))
    }

    /// Names of what is in the folder, sorted.
    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Ids of all jobs, with any owner.
    pub(crate) fn ids(&self) -> BTreeSet<String> {
        let mut names = self.names();
        names.retain(|name| !name.starts_with(UNFINISHED));
        names
    }

    /// The first job without an owner, in the order of the ids; and folders that cannot be read, with the reason.
    /// Folders in `skip` are left out.
    pub(crate) fn take(&self, skip: &BTreeSet<PathBuf>) -> (Option<Entry>, Vec<(PathBuf, String)>) {
        let mut strange = Vec::new();
        for name in self.names() {
            let folder = self.folder.join(&name);
            if skip.contains(&folder) || !fs::symlink_metadata(&folder).is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if name.starts_with(UNFINISHED) {
                sweep(&folder);
                continue;
            }
            match Entry::open(&folder, &name) {
                Ok(Some(entry)) => return (Some(entry), strange),
                Ok(None) => {}
                // Its owner has just removed it.
                Err(e) if e.kind() == ErrorKind::NotFound && !folder.exists() => {}
                Err(e) => strange.push((folder, e.to_string())),
            }
        }
        (None, strange)
    }
}

/// Removes a folder that was being made or removed when its owner died.
fn sweep(folder: &Path) {
    let is_free = match lock(folder) {
        Ok(held) => held.is_some(),
        Err(e) => e.kind() == ErrorKind::NotFound && is_old(folder),
    };
    if is_free {
        let _ = fs::remove_dir_all(folder);
    }
}

/// Whether the outcome of a job is there, and can be read.
fn has_outcome(folder: &Path) -> bool {
    read(&folder.join(OUTCOME), COMMAND_BYTES_MAX).is_ok_and(|bytes| wire::wrdn::read(&bytes).is_ok())
}

/// Whether a folder without a lock is not being made just now.
fn is_old(folder: &Path) -> bool {
    let changed = fs::symlink_metadata(folder).and_then(|kind| kind.modified());
    changed.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > crate::limits::SWEEP_AGE))
}

impl Entry {
    /// A job without an owner.
    fn open(folder: &Path, name: &str) -> io::Result<Option<Self>> {
        let Some(lock) = lock(folder)? else { return Ok(None) };
        // Its owner may have renamed it between our look and the lock: then neither is there.
        let record = read(&folder.join(RECORD), RECORD_BYTES_MAX)
            .and_then(|bytes| serde_json::from_slice::<Record>(&bytes).map_err(io::Error::from));
        let command = read(&folder.join(COMMAND), COMMAND_BYTES_MAX);
        let (record, command, damage) = match (record, command) {
            (Ok(record), _) if record.job_id != name => {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    format!("its record is of job `{}`", record.job_id),
                ));
            }
            (Ok(record), Ok(command)) => {
                let is_damaged = record.step == Step::Finished && !has_outcome(folder);
                (record, command, is_damaged.then(|| "its outcome cannot be read".to_owned()))
            }
            (Ok(record), Err(e)) => (record, Vec::new(), Some(format!("its command cannot be read: {e}"))),
            (Err(e), Ok(command)) => {
                (Record::of_damaged(name), command, Some(format!("its record `{RECORD}` cannot be read: {e}")))
            }
            (Err(e), Err(_)) => return Err(e),
        };
        Ok(Some(Self { folder: folder.to_owned(), command, record, damage, _lock: lock }))
    }

    /// Puts a file into the folder of the job.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let what = || format!("cannot write `{name}` of job `{}`", self.record.job_id);
        put(&self.folder, name, bytes).map_err(|e| Fault::io(what(), &e))
    }

    /// Puts the message that tells the outcome on disk.
    pub(crate) fn set_outcome(&self, wrdn: &[u8]) -> Result<(), Fault> {
        self.put(OUTCOME, wrdn)
    }

    /// Ends a job that cannot be worked at: its outcome is this message, unless another is known.
    pub(crate) fn end_damaged(&mut self, wrdn: &[u8]) -> Result<(), Fault> {
        if !has_outcome(&self.folder) {
            self.set_outcome(wrdn)?;
        }
        self.record.step = self.record.step.max(Step::Finished);
        self.save()
    }

    /// The message that tells the outcome.
    pub(crate) fn outcome(&self) -> Result<Vec<u8>, Fault> {
        let what = || format!("the outcome of job `{}` cannot be read", self.record.job_id);
        read(&self.folder.join(OUTCOME), COMMAND_BYTES_MAX).map_err(|e| Fault::io(what(), &e))
    }

    /// Puts the record on disk.
    pub(crate) fn save(&self) -> Result<(), Fault> {
        let bytes = serde_json::to_vec(&self.record).map_err(io::Error::from);
        bytes
            .and_then(|bytes| put(&self.folder, RECORD, &bytes))
            .map_err(|e| Fault::io(format!("cannot record job `{}`", self.record.job_id), &e))
    }

    /// Removes the job and everything in its folder.
    pub(crate) fn remove(self) -> Result<(), Fault> {
        let fault = |e: io::Error| Fault::io(format!("cannot remove job `{}`", self.record.job_id), &e);
        let above = self.folder.parent().unwrap_or(Path::new("."));
        let gone = above.join(format!("{UNFINISHED}{}.{}", self.record.job_id, std::process::id()));
        let _ = fs::remove_dir_all(&gone);
        // Renamed first: no process finds half of a job.
        fs::rename(&self.folder, &gone).and_then(|()| sync(above)).map_err(fault)?;
        fs::remove_dir_all(&gone).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("beamport-journal-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn record(job_id: &str) -> Record {
        Record {
            job_id: job_id.into(),
            step: Step::Accepted,
            pool: PoolPlace { partition: 0, offset: 7 },
            command_ms: 5,
            control_topic: "control".into(),
            pins: BTreeMap::from([("detector".into(), vec![3, 4])]),
            begins: Vec::new(),
            control: vec![1],
            control_end: vec![2],
            stop_ms: None,
            boot: boot(),
            restarts: 0,
            file: None,
        }
    }

    #[test]
    fn a_job_is_owned_once_and_taken_when_its_owner_is_gone() {
        let folder = Folder::new("owned");
        let (one, two) = (Journal::open(&folder.0).unwrap(), Journal::open(&folder.0).unwrap());
        let mut entry = one.accept(record("a"), b"pl72").unwrap().unwrap();
        assert!(two.knows("a") && two.accept(record("a"), b"other").unwrap().is_none());
        assert!(two.take(&BTreeSet::new()).0.is_none(), "its owner lives");
        entry.record.step = Step::Running;
        entry.record.stop_ms = Some(9);
        entry.save().unwrap();
        let kept = entry.record.clone();
        drop(entry);
        let taken = two.take(&BTreeSet::new()).0.unwrap();
        assert_eq!((&taken.record, taken.command.as_slice()), (&kept, b"pl72".as_slice()));
        assert!(one.take(&BTreeSet::new()).0.is_none());
        taken.remove().unwrap();
        assert!(!one.knows("a") && one.take(&BTreeSet::new()).0.is_none());
        assert_eq!(fs::read_dir(folder.0.join("jobs")).unwrap().count(), 0);
    }

    #[test]
    fn folders_that_are_no_jobs_are_named_and_stop_nothing() {
        let folder = Folder::new("hostile");
        let journal = Journal::open(&folder.0).unwrap();
        drop(journal.accept(record("z"), b"pl72").unwrap());
        let jobs = folder.0.join("jobs");
        for name in ["empty", "garbage", "link", "moved"] {
            fs::create_dir(jobs.join(name)).unwrap();
        }
        for (name, text) in [("garbage", "{"), ("moved", &serde_json::to_string(&record("else")).unwrap())] {
            fs::write(jobs.join(name).join(LOCK), "").unwrap();
            fs::write(jobs.join(name).join(RECORD), text).unwrap();
        }
        symlink("/dev/zero", jobs.join("link").join(LOCK)).unwrap();
        symlink("/", jobs.join("root")).unwrap();
        fs::write(jobs.join("file"), "x").unwrap();
        let (entry, strange) = journal.take(&BTreeSet::new());
        assert_eq!(entry.unwrap().record.job_id, "z");
        let names: Vec<_> = strange.iter().map(|(path, _)| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["empty", "garbage", "link", "moved"]);
        assert!(jobs.join("garbage").exists(), "what is not ours stays");
    }

    #[test]
    fn a_job_whose_record_or_command_is_damaged_still_has_an_outcome() {
        let folder = Folder::new("damaged");
        let journal = Journal::open(&folder.0).unwrap();
        let jobs = folder.0.join("jobs");
        let outcome = crate::reply::written("service", &crate::reply::Written::default());
        let table = [
            ("a", RECORD, Some(""), "its record"),
            ("b", RECORD, Some("{\"job_id\":"), "its record"),
            ("c", COMMAND, None, "its command"),
            ("d", OUTCOME, Some(""), "its outcome"),
        ];
        for (name, file, text, damage) in table {
            let mut entry = journal.accept(record(name), b"pl72").unwrap().unwrap();
            if file == OUTCOME {
                entry.record.step = Step::Finished;
                entry.save().unwrap();
            }
            drop(entry);
            let path = jobs.join(name).join(file);
            text.map_or_else(|| fs::remove_file(&path), |text| fs::write(&path, text)).unwrap();
            let mut entry = journal.take(&BTreeSet::new()).0.unwrap();
            assert_eq!((entry.record.job_id.as_str(), entry.record.control_topic.is_empty()), (name, file == RECORD));
            assert!(entry.damage.as_ref().unwrap().starts_with(damage), "{:?}", entry.damage);
            entry.end_damaged(&outcome).unwrap();
            // The outcome stays what it was when it was first known.
            entry.end_damaged(b"other").unwrap();
            drop(entry);
            let entry = journal.take(&BTreeSet::new()).0.unwrap();
            assert_eq!((entry.outcome().unwrap(), entry.record.step), (outcome.clone(), Step::Finished));
            assert_eq!(entry.damage.is_some(), file == COMMAND);
            entry.remove().unwrap();
        }
    }

    #[test]
    fn what_retention_took_before_the_acceptance_was_not_said() {
        let offsets = |row: &[u64]| Offsets::from([("t".to_owned(), row.to_vec())]);
        // New; begins later; has older messages; is empty since all of it went.
        let (pins, first, end) = (offsets(&[0, 5, 9, 7]), offsets(&[0, 5, 3, 7]), offsets(&[4, 8, 12, 7]));
        let partitions = |is_past| -> Vec<(u32, u64)> {
            let begins = late_begins(&pins, &first, &end, is_past);
            begins.iter().map(|begin| (begin.partition, begin.offset)).collect()
        };
        assert_eq!(partitions(false), [(1, 5)]);
        assert_eq!(partitions(true), [(1, 5), (3, 7)]);
    }

    #[test]
    fn what_was_being_made_or_removed_is_swept() {
        let folder = Folder::new("swept");
        let journal = Journal::open(&folder.0).unwrap();
        let entry = journal.accept(record("a"), b"pl72").unwrap().unwrap();
        let half = folder.0.join("jobs/.a.1");
        fs::rename(&entry.folder, &half).unwrap();
        assert!(journal.take(&BTreeSet::new()).0.is_none());
        assert!(half.exists(), "its owner lives");
        drop(entry);
        assert!(journal.take(&BTreeSet::new()).0.is_none());
        assert!(!half.exists());
    }
}
