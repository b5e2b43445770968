//! Files of a stream's folder and of its live place, byte for byte; `docs/reference/stream-format.md` has the same for
//! a second implementation. Change both together.
//!
//! ```text
//! STREAM/   stream   header: text, one `key value` a line, last line `crc32c HEX` over all before it
//!           origins  origin table: a line a row, `HEX name` (CRC-32C of the name), row = line number
//!           parents  the same for the streams that a view points into: `UUID EPOCH NAME`, row = line number from 1
//!           pins     readers: 256 B of words, then places of 256 B (mapped by readers for writing)
//!           lock     held by the one writer
//!           commit   two commit records of 64 B at 0 and 4096 (disk streams)
//!           p-XXXXXXXX i-XXXXXXXX   payload and index segments (hexadecimal number)
//! live/     head     control page of 4096 B (mapped by readers read-only)
//!           p-XXXXXXXX i-XXXXXXXX   the same segments while they are in shared memory
//! ```

use crate::crc::crc32c;
use crate::entry::{ENTRY_BYTES, salt};
use crate::error::{Error, Result};
use crate::limits::{FORMAT, FORMAT_OLDEST, HEADER_BYTES_MAX, KEPT_MIN, TIME_BLOCK};
use crate::media::{Map, Media, Open, read_again};
use crate::names::{ORIGINS, PARENTS};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How far a stream's messages are kept safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Survives the death of any process.
    Memory,
    /// Survives a power cut.
    Disk,
}

impl Level {
    /// The word used in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// What source times of a stream mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Nanoseconds since 1970 UTC.
    Epoch,
    /// Ticks of the source's own clock.
    Ticks,
    /// Nothing: arrival is all there is.
    None,
}

impl Clock {
    /// The word used in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Epoch => "epoch",
            Self::Ticks => "ticks",
            Self::None => "none",
        }
    }

    /// The time by which a message belongs to a run, ns since 1970 UTC: its source's, or arrival where the source's
    /// clock does not say that.
    #[inline]
    pub fn time_of(self, entry: &crate::entry::Entry) -> i64 {
        if self == Self::Epoch { entry.source_time } else { entry.arrival_time }
    }
}

/// The header of a stream: what does not change while it is written, and the table of epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`FORMAT`], or the version before.
    pub format: u32,
    /// Identity of the stream.
    pub uuid: [u8; 16],
    /// Its name.
    pub name: String,
    /// How safe its messages are.
    pub level: Level,
    /// What its source times mean.
    pub clock: Clock,
    /// Entries of an index segment (a power of two).
    pub index_entries: u64,
    /// Bytes of an ordinary payload segment.
    pub segment_bytes: u64,
    /// When it was made, ns since 1970 UTC.
    pub created: i64,
    /// The start of the machine during which `live` was made.
    pub boot: [u8; 16],
    /// Where the live place is.
    pub live: PathBuf,
    /// Identity of the `lock` file, 16 hexadecimal digits, and id of the machine, where it was last opened for writing;
    /// none where an earlier version wrote it.
    pub home: Option<String>,
    /// [`Media::shared_memory`] of `live`; none where that is the folder, or an earlier version wrote it.
    pub shared_memory: Option<u64>,
    /// (epoch, first sequence), rising.
    pub epochs: Vec<(u32, u64)>,
}

/// Hexadecimal text of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

pub(crate) fn unhex16(text: &str) -> Option<[u8; 16]> {
    let mut out = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

impl Header {
    /// The epoch that is written now.
    pub fn epoch(&self) -> u32 {
        self.epochs.last().map_or(0, |e| e.0)
    }

    /// The epoch of a sequence.
    pub fn epoch_of(&self, sequence: u64) -> u32 {
        self.epochs.iter().rev().find(|e| e.1 <= sequence).map_or(0, |e| e.0)
    }

    /// Refuses an identity that was cut by a recovery.
    pub fn check_identity(&self, epoch: u32, sequence: u64) -> Result<()> {
        let Some(row) = self.epochs.iter().position(|e| e.0 == epoch) else {
            return Err(Error::Rewound { epoch, first: 0, end: 0 });
        };
        let first = self.epochs[row].1;
        let end = self.epochs.get(row + 1).map_or(u64::MAX, |next| next.1);
        // `end` itself is a good place to stand: everything before it was kept.
        if sequence < first || sequence > end {
            return Err(Error::Rewound { epoch, first, end });
        }
        Ok(())
    }

    /// Bytes of an index segment: the time table, then entries.
    pub fn index_bytes(&self) -> u64 {
        table_bytes(self.index_entries) + self.index_entries * ENTRY_BYTES as u64
    }

    /// Number of the index segment of a message; a stream ends where these do (2^40 messages and more).
    pub(crate) fn index_number(&self, sequence: u64) -> Result<u32> {
        let number = u32::try_from(sequence / self.index_entries);
        number.map_err(|_| {
            Error::Limit(format!("a stream of this index has at most {} messages", self.index_entries << 32))
        })
    }

    /// Byte of a message's entry in its index segment.
    pub(crate) fn entry_at(&self, sequence: u64) -> u64 {
        table_bytes(self.index_entries) + sequence % self.index_entries * ENTRY_BYTES as u64
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "beamport-stream {}\nuuid {}\nname {}\nlevel {}\nclock {}\nindex_entries {}\nsegment_bytes {}\ncreated {}\n\
             boot {}\nlive {}\n",
            self.format,
            hex(&self.uuid),
            self.name,
            self.level.as_str(),
            self.clock.as_str(),
            self.index_entries,
            self.segment_bytes,
            self.created,
            hex(&self.boot),
            self.live.display(),
        );
        text += &self.home.as_ref().map_or_else(String::new, |home| format!("home {home}\n"));
        text += &self.shared_memory.map_or_else(String::new, |number| format!("shared_memory {number:x}\n"));
        for (epoch, first) in &self.epochs {
            let _ = writeln!(text, "epoch {epoch} {first}");
        }
        let crc = crc32c(text.as_bytes());
        let _ = writeln!(text, "crc32c {crc:08x}");
        text
    }

    fn from_text(text: &str) -> std::result::Result<Self, String> {
        let end = text.rfind("crc32c ").ok_or("no checksum line")?;
        let crc = u32::from_str_radix(text[end + 7..].trim_end(), 16).map_err(|_| "no checksum")?;
        if crc32c(&text.as_bytes()[..end]) != crc {
            return Err("its checksum does not hold".into());
        }
        let mut fields = std::collections::HashMap::new();
        let mut epochs = Vec::new();
        for line in text[..end].lines() {
            let (key, value) = line.split_once(' ').ok_or_else(|| format!("line `{line}`"))?;
            if key == "epoch" {
                let (epoch, first) = value.split_once(' ').ok_or("an epoch without its first sequence")?;
                epochs.push((
                    epoch.parse().map_err(|_| "an epoch that is not a number")?,
                    first.parse().map_err(|_| "a sequence that is not a number")?,
                ));
            } else {
                fields.insert(key, value);
            }
        }
        let get = |key: &str| fields.get(key).copied().ok_or_else(|| format!("no `{key}`"));
        let number = |key: &str| get(key)?.parse::<u64>().map_err(|_| format!("`{key}` is not a number"));
        let wanted = number("beamport-stream")?;
        let format = (FORMAT_OLDEST..=FORMAT).find(|format| u64::from(*format) == wanted);
        let unknown = || format!("format {wanted}; this program reads formats {FORMAT_OLDEST} to {FORMAT}");
        let header = Self {
            format: format.ok_or_else(unknown)?,
            uuid: unhex16(get("uuid")?).ok_or("`uuid` is not 32 digits")?,
            name: get("name")?.to_string(),
            level: match get("level")? {
                "memory" => Level::Memory,
                "disk" => Level::Disk,
                other => return Err(format!("level `{other}`")),
            },
            clock: match get("clock")? {
                "epoch" => Clock::Epoch,
                "ticks" => Clock::Ticks,
                "none" => Clock::None,
                other => return Err(format!("clock `{other}`")),
            },
            index_entries: number("index_entries")?,
            segment_bytes: number("segment_bytes")?,
            created: get("created")?.parse().map_err(|_| "`created` is not a number")?,
            boot: unhex16(get("boot")?).ok_or("`boot` is not 32 digits")?,
            live: PathBuf::from(get("live")?),
            home: fields.get("home").map(|home| home.to_string()),
            shared_memory: fields.get("shared_memory").and_then(|number| u64::from_str_radix(number, 16).ok()),
            epochs,
        };
        if !header.index_entries.is_power_of_two()
            || !(crate::limits::INDEX_ENTRIES_MIN..=crate::limits::INDEX_ENTRIES_MAX).contains(&header.index_entries)
        {
            return Err("`index_entries` is out of range".into());
        }
        if header.epochs.is_empty() || !header.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return Err("its epochs do not rise".into());
        }
        Ok(header)
    }

    /// Reads the header of a folder. A memory stream whose control page lies in its folder is its own live place, under
    /// whatever path: the folder may have been moved.
    pub fn read(media: &dyn Media, folder: &Path) -> Result<Self> {
        let header = Self::read_stored(media, folder)?;
        if header.level == Level::Memory && header.live != folder {
            let moved = Self { live: folder.to_path_buf(), ..header.clone() };
            if crate::recover::live_head(media, &moved, folder)?.is_some() {
                return Ok(moved);
            }
        }
        Ok(header)
    }

    /// Reads the header as it is stored.
    pub(crate) fn read_stored(media: &dyn Media, folder: &Path) -> Result<Self> {
        let path = folder.join("stream");
        let file = match media.open(&path, Open::Read) {
            Ok(file) => file,
            // The second opening: a writer may have made the stream between the first and the look at its files.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => match holds_messages(media, folder)? {
                false => return Err(Error::Missing(folder.to_path_buf())),
                true => media.open(&path, Open::Read).map_err(|_| Error::Headless(folder.to_path_buf()))?,
            },
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        let len = file.len().map_err(Error::io("read", &path))?;
        if len > HEADER_BYTES_MAX {
            return Err(Error::Format { path, what: format!("{len} bytes are too many for a header") });
        }
        let mut bytes = vec![0; len as usize];
        let n = file.read_at(&mut bytes, 0).map_err(Error::io("read", &path))?;
        let text = std::str::from_utf8(&bytes[..n]).map_err(|_| "not text".to_string());
        text.and_then(Self::from_text).map_err(|what| Error::Format { path, what })
    }

    /// The header that was written where one or two bits of it are wrong.
    pub(crate) fn mended(bytes: &[u8]) -> Option<Self> {
        const LAST: usize = "crc32c 01234567\n".len();
        let (body, last) = bytes.split_at_checked(bytes.len().checked_sub(LAST)?)?;
        let with = |body: &[u8], last: &[u8]| Self::from_text(std::str::from_utf8(&[body, last].concat()).ok()?).ok();
        // Damage of the last line: the body says what it was, and few bits may differ from that.
        let right = format!("crc32c {:08x}\n", crc32c(body));
        let differ: u32 = right.bytes().zip(last).map(|(a, b)| (a ^ b).count_ones()).sum();
        if differ <= 2 {
            return with(body, right.as_bytes());
        }
        let stored = u32::from_str_radix(std::str::from_utf8(&last[7..15]).ok()?, 16).ok()?;
        let (body, crc) = crate::mend::mended(body, stored)?;
        if crc == stored { with(&body, last) } else { None }
    }

    /// Writes the header over one that is damaged, which stays beside.
    pub(crate) fn write_over(&self, media: &dyn Media, folder: &Path) -> Result<PathBuf> {
        let copy = crate::recover::keep_copy(media, folder, "stream")?;
        self.write(media, folder).map(|()| copy)
    }

    /// Writes the header over the old one.
    pub fn write(&self, media: &dyn Media, folder: &Path) -> Result<()> {
        replace(media, folder, "stream", self.to_text().as_bytes())
    }
}

/// Writes a file as a whole: a new file beside, synced, then renamed over the old.
pub(crate) fn replace(media: &dyn Media, folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
    let file = media.open(&new, Open::Create).map_err(Error::io("create", &new))?;
    file.set_len(0).map_err(Error::io("write", &new))?;
    file.write_at(bytes, 0).map_err(Error::io("write", &new))?;
    file.sync().map_err(Error::io("sync", &new))?;
    media.rename(&new, &path).map_err(Error::io("rename", &path))?;
    media.sync_dir(folder).map_err(Error::io("sync", folder))
}

/// One commit record: what is on the medium.
///
/// ```text
///  0 u64 generation   8 u64 count   16 u64 first   24 u32 epoch   28 u32 payload segment
/// 32 u64 bytes used in it   40 u32 first payload segment   44 u32 1 = closed cleanly
/// 48 [u8;12] zero   60 u32 CRC-32C of 0..60 xor salt(uuid, epoch 0, generation)
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Grows by one with each record.
    pub generation: u64,
    /// Messages below this sequence are on the medium.
    pub count: u64,
    /// Lowest sequence kept.
    pub first: u64,
    /// Epoch of the newest message.
    pub epoch: u32,
    /// Payload segment written last.
    pub segment: u32,
    /// Bytes used in it.
    pub used: u64,
    /// Lowest payload segment kept.
    pub first_segment: u32,
    /// The writer ended here on purpose: nothing came after.
    pub clean: bool,
}

/// Bytes of a commit record.
pub(crate) const COMMIT_BYTES: usize = 64;

impl Commit {
    /// Where a record of this generation stands: alternating, a block apart.
    pub(crate) fn place(generation: u64) -> u64 {
        (generation % 2) * 4096
    }

    /// Its bytes. `seed` is the stream's salt seed of epoch 0.
    pub(crate) fn to_bytes(self, seed: u64) -> [u8; COMMIT_BYTES] {
        let mut b = [0; COMMIT_BYTES];
        b[0..8].copy_from_slice(&self.generation.to_le_bytes());
        b[8..16].copy_from_slice(&self.count.to_le_bytes());
        b[16..24].copy_from_slice(&self.first.to_le_bytes());
        b[24..28].copy_from_slice(&self.epoch.to_le_bytes());
        b[28..32].copy_from_slice(&self.segment.to_le_bytes());
        b[32..40].copy_from_slice(&self.used.to_le_bytes());
        b[40..44].copy_from_slice(&self.first_segment.to_le_bytes());
        b[44..48].copy_from_slice(&u32::from(self.clean).to_le_bytes());
        let crc = crc32c(&b[..60]) ^ salt(seed, self.generation);
        b[60..64].copy_from_slice(&crc.to_le_bytes());
        b
    }

    fn from_bytes(b: &[u8; COMMIT_BYTES], seed: u64) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let commit = Self {
            generation: u64_at(0),
            count: u64_at(8),
            first: u64_at(16),
            epoch: u32_at(24),
            segment: u32_at(28),
            used: u64_at(32),
            first_segment: u32_at(40),
            clean: u32_at(44) == 1,
        };
        let holds = crc32c(&b[..60]) ^ salt(seed, commit.generation) == u32_at(60);
        (holds && commit.first <= commit.count).then_some(commit)
    }

    /// The newest record that holds, for who writes: nothing may be cut for a record that the medium does not give. A header without one is damage: reading on from the first message would cut the stream.
    pub(crate) fn must_read(media: &dyn Media, folder: &Path, seed: u64) -> Result<Self> {
        match Self::read(media, folder, seed)? {
            (_, Some(e)) => Err(e),
            (newest, None) => newest.ok_or_else(|| Error::Format {
                path: folder.join("commit"),
                what: "neither of its two records is valid, so the mark is unknown; nothing was changed".into(),
            }),
        }
    }

    /// The place of a record that was written and does not verify. The first record of a stream is the one at 4096: a
    /// shorter file was cut off.
    pub(crate) fn damaged(media: &dyn Media, folder: &Path, seed: u64) -> Result<Option<u64>> {
        let path = folder.join("commit");
        let file = media.open(&path, Open::Read).map_err(Error::io("open", &path))?;
        if file.len().map_err(Error::io("read", &path))? < 4096 + COMMIT_BYTES as u64 {
            return Ok(Some(4096));
        }
        let (mut newest, mut empty) = (0, None);
        for place in [0, 4096] {
            let mut bytes = [0; COMMIT_BYTES];
            let lost = read_again(file.as_ref(), &mut bytes, place).is_err();
            match Self::from_bytes(&bytes, seed) {
                Some(commit) => newest = newest.max(commit.generation),
                None if lost || bytes != [0; COMMIT_BYTES] => return Ok(Some(place)),
                None => empty = Some(place),
            }
        }
        // Only the first record of a stream stands alone: each later one is written beside the one before it.
        Ok(empty.filter(|_| newest > 1))
    }

    /// The newest record that holds, or none, and why the medium does not give one. Who reads or repairs goes on with
    /// the other: what was marked since then proves itself.
    pub(crate) fn read(media: &dyn Media, folder: &Path, seed: u64) -> Result<(Option<Self>, Option<Error>)> {
        let path = folder.join("commit");
        let file = match media.open(&path, Open::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((None, None)),
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        let (mut newest, mut lost): (Option<Self>, _) = (None, None);
        for place in [0, 4096] {
            let mut bytes = [0; COMMIT_BYTES];
            let n = read_again(file.as_ref(), &mut bytes, place).unwrap_or_else(|e| {
                lost = Some(Error::io("read", &path)(e));
                0
            });
            if n == COMMIT_BYTES
                && let Some(commit) = Self::from_bytes(&bytes, seed)
                && newest.is_none_or(|known| known.generation < commit.generation)
            {
                newest = Some(commit);
            }
        }
        Ok((newest, lost))
    }
}

/// What the header of a stream is renamed to while its files are removed.
pub(crate) const REMOVED: &str = "removed";

/// True if a folder without a header had one: files that a first opening makes before the header do not count, nor does
/// what an interrupted removal left.
fn holds_messages(media: &dyn Media, folder: &Path) -> Result<bool> {
    let names = match media.list(folder) {
        Ok(names) => names,
        // A file has no streams in it.
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => return Ok(false),
        Err(e) => return Err(Error::io("list", folder)(e)),
    };
    let has = |name: &str| names.iter().any(|known| known == name);
    let read = |name: &str, bytes: &mut [u8], at: u64| {
        let path = folder.join(name);
        let file = media.open(&path, Open::Read).map_err(Error::io("open", &path))?;
        read_again(file.as_ref(), bytes, at).map_err(Error::io("read", &path))
    };
    if has(REMOVED) {
        return Ok(false);
    }
    if has(ORIGINS) || has(PARENTS) {
        return Ok(true);
    }
    if has("commit") {
        for place in [0, 4096] {
            let mut record = [0; COMMIT_BYTES];
            read("commit", &mut record, place)?;
            if record[8..16] != [0; 8] {
                return Ok(true);
            }
        }
    }
    if !names.iter().any(|name| segment_number('p', name).or(segment_number('i', name)).is_some()) {
        return Ok(false);
    }
    // A memory stream on tmpfs has segments before its header; its control page counts from the header on.
    let mut magic = [0; 8];
    Ok(!has("head") || read("head", &mut magic, 0)? == 8 && u64::from_le_bytes(magic) == HEAD_MAGIC)
}

/// Name of a payload (`p`) or index (`i`) segment file.
pub(crate) fn segment_name(kind: char, number: u32) -> String {
    format!("{kind}-{number:08x}")
}

/// The number of a segment file of this kind, or none.
pub(crate) fn segment_number(kind: char, name: &str) -> Option<u32> {
    let digits = name.strip_prefix(kind)?.strip_prefix('-')?;
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// The numbers of the segment files of this kind in a folder. Who goes through a stream goes by them: a count or a number
/// that lies costs no more time than the files do.
pub(crate) fn segment_numbers(media: &dyn Media, folder: &Path, kind: char) -> Result<BTreeSet<u32>> {
    let names = media.list(folder).map_err(Error::io("list", folder))?;
    Ok(names.iter().filter_map(|name| segment_number(kind, name)).collect())
}

/// Bytes of a row of the time table: minimum i64, maximum i64, entries u32, CRC u32, zero u64.
pub(crate) const TIME_ROW_BYTES: u64 = 32;

/// Bytes of the time table of an index segment. It stands before the entries, so that a file that is allocated from its
/// start costs no more than its entries do.
pub(crate) fn table_bytes(index_entries: u64) -> u64 {
    (index_entries / TIME_BLOCK * TIME_ROW_BYTES).next_multiple_of(4096)
}

/// Bytes of the control page.
pub(crate) const HEAD_BYTES: usize = 4096;
/// First eight bytes of a control page.
pub(crate) const HEAD_MAGIC: u64 = u64::from_le_bytes(*b"BEAMHEAD");

/// The control page: written by the writer alone, mapped read-only by readers.
#[repr(C)]
pub(crate) struct Head {
    /// [`HEAD_MAGIC`], stored last when the page is made.
    pub magic: AtomicU64,
    /// [`FORMAT`].
    pub format: AtomicU32,
    /// Epoch that is written now.
    pub epoch: AtomicU32,
    /// The stream's identity.
    pub uuid: [AtomicU64; 2],
    _pad0: [u64; 4],
    /// Mark `memory`: messages below are published.
    pub count: AtomicU64,
    /// Changes with each publish: readers sleep on it.
    pub count_word: AtomicU32,
    _pad1: [u32; 13],
    /// Mark `disk`: messages below are on the medium.
    pub disk: AtomicU64,
    /// Changes with each commit: readers sleep on it.
    pub disk_word: AtomicU32,
    _pad2: [u32; 13],
    /// Lowest sequence that is still there.
    pub first: AtomicU64,
    /// Lowest payload segment that is still there, in any place.
    pub first_payload: AtomicU32,
    /// Lowest index segment that is still there, in any place.
    pub first_index: AtomicU32,
    /// Lowest payload segment in the live place.
    pub live_payload: AtomicU32,
    /// Lowest index segment in the live place.
    pub live_index: AtomicU32,
    _pad3: [u64; 5],
    /// The writer: 0 none (it ended, or gave this place up), 1 writing, 2 stopped by a failed sync.
    pub state: AtomicU32,
    /// Process of the writer.
    pub pid: AtomicU32,
    /// Its start time.
    pub pid_start: AtomicU64,
    /// Grows with each opening for writing: segments mapped before may be other files now.
    pub opened: AtomicU64,
    /// Messages dropped by `drop-newest` since the writer opened (a cache for `top`; the truth is in the gaps).
    pub dropped: AtomicU64,
    /// Identity of the stream's `lock` file: a copied folder must not take the live place of its original for its own.
    pub home: AtomicU64,
    /// Processes with this number (`Media::mounts`) find the stream under `folder`.
    pub mounts: AtomicU64,
    /// Bytes of stream memory that one reader may keep pinned, where messages are small.
    pub quota: AtomicU64,
    /// Bytes of the largest payload segment that one message fills: a reader may keep four of them. 0: there was none.
    pub largest: AtomicU64,
    _pad4: [u64; 24],
    /// Path of the stream's folder, zero-filled; a longer one is left out, and the live place is then not told from one that is used.
    pub folder: [AtomicU64; FOLDER_WORDS],
}

/// Words of `Head::folder`.
const FOLDER_WORDS: usize = 448;

/// `Head::state`: nobody writes.
pub(crate) const STATE_CLOSED: u32 = 0;
/// `Head::state`: a writer is there (or was killed).
pub(crate) const STATE_WRITING: u32 = 1;
/// `Head::state`: an fdatasync failed.
pub(crate) const STATE_FAILED: u32 = 2;

const _: () = assert!(std::mem::size_of::<Head>() == HEAD_BYTES);

impl Head {
    /// The control page that a map holds.
    pub(crate) fn of(map: &Map) -> &Self {
        assert!(map.len() >= HEAD_BYTES);
        // SAFETY: the map is page-aligned and large enough, and the type is all atomics and padding.
        unsafe { &*map.ptr().cast::<Self>() }
    }

    /// Bytes of stream memory that one reader may keep pinned: code that reads message after message holds the last one
    /// while it takes the next, however large they are.
    pub(crate) fn keeps(&self) -> u64 {
        let largest = self.largest.load(Ordering::Acquire).saturating_mul(KEPT_MIN);
        self.quota.load(Ordering::Relaxed).max(largest)
    }

    /// The path in `folder`; none where it was too long.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let words = self.folder.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let bytes: Vec<u8> = words.take_while(|&b| b != 0).collect();
        (!bytes.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&bytes)))
    }

    /// Sets `folder`.
    pub(crate) fn set_folder(&self, path: &Path) {
        let mut bytes = [0; FOLDER_WORDS * 8];
        if let Some(to) = bytes.get_mut(..path.as_os_str().len()) {
            to.copy_from_slice(path.as_os_str().as_bytes());
        }
        for (word, chunk) in self.folder.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
    }
}
