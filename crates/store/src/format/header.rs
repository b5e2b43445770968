//! The header of a stream: what it is, where it lives, its epochs.

use crate::error::{Error, Result};
use crate::format::bit_repair::mended;
use crate::format::commit::COMMIT_BYTES;
use crate::format::control_page::HEAD_MAGIC;
use crate::format::crc::crc32c;
use crate::format::entry::ENTRY_BYTES;
use crate::format::names::{ORIGINS, PARENTS};
use crate::format::segments::{segment_number, table_bytes};
use crate::limits::{FORMAT, FORMAT_OLDEST, HEADER_BYTES_MAX};
use crate::outside::files::{keep_copy, replace};
use crate::outside::media::{Media, Open, read_again};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

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

/// The meaning of the source times of a stream.
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
    pub fn time_of(self, entry: &crate::format::entry::Entry) -> i64 {
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
    /// The meaning of its source times.
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
    /// Of a mirror: the streams that it repeats, by its own sequences, rising; of any other stream there are none.
    pub near: Vec<Near>,
}

/// Names one message permanently: no other has the same three values, even after recoveries that cut messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Identity of the stream.
    pub uuid: [u8; 16],
    /// Epoch of the message.
    pub epoch: u32,
    /// Its sequence.
    pub sequence: u64,
}

/// The stream whose messages a mirror repeats from one of its own sequences on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// The sequence in the mirror.
    pub from: u64,
    /// Identity of the near stream.
    pub uuid: [u8; 16],
    /// Epoch of the near messages.
    pub epoch: u32,
}

impl Near {
    /// The value of a line `near`.
    fn parse(value: &str) -> Option<Self> {
        let mut words = value.split(' ');
        let near = Self {
            from: words.next()?.parse().ok()?,
            uuid: unhex16(words.next()?)?,
            epoch: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(near)
    }
}

/// Hexadecimal text of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

/// The 16 bytes of 32 hexadecimal digits.
pub fn unhex16(text: &str) -> Option<[u8; 16]> {
    let mut out = [0; 16];
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
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

    /// The stream whose message a mirror repeats at a sequence; none where it repeats none.
    pub fn near_of(&self, sequence: u64) -> Option<Near> {
        self.near.iter().rev().find(|near| near.from <= sequence).copied()
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
        for Near { from, uuid, epoch } in &self.near {
            let _ = writeln!(text, "near {from} {} {epoch}", hex(uuid));
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
        let (mut epochs, mut near) = (Vec::new(), Vec::new());
        for line in text[..end].lines() {
            let (key, value) = line.split_once(' ').ok_or_else(|| format!("line `{line}`"))?;
            if key == "epoch" {
                let (epoch, first) = value.split_once(' ').ok_or("an epoch without its first sequence")?;
                epochs.push((
                    epoch.parse().map_err(|_| "an epoch that is not a number")?,
                    first.parse().map_err(|_| "a sequence that is not a number")?,
                ));
            } else if key == "near" {
                near.push(Near::parse(value).ok_or("a near stream without its sequence, identity and epoch")?);
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
            near,
        };
        if !header.index_entries.is_power_of_two()
            || !(crate::limits::INDEX_ENTRIES_MIN..=crate::limits::INDEX_ENTRIES_MAX).contains(&header.index_entries)
        {
            return Err("`index_entries` is out of range".into());
        }
        if header.epochs.is_empty() || !header.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return Err("its epochs do not rise".into());
        }
        if !header.near.is_sorted_by(|a, b| a.from < b.from) {
            return Err("the sequences of its near streams do not rise".into());
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
        let (body, crc) = mended(body, stored)?;
        if crc == stored { with(&body, last) } else { None }
    }

    /// Writes the header over one that is damaged, which stays beside.
    pub(crate) fn write_over(&self, media: &dyn Media, folder: &Path) -> Result<PathBuf> {
        let copy = keep_copy(media, folder, "stream")?;
        self.write(media, folder).map(|()| copy)
    }

    /// Writes the header over the old one.
    pub fn write(&self, media: &dyn Media, folder: &Path) -> Result<()> {
        replace(media, folder, "stream", self.to_text().as_bytes())
    }
}

/// Name of the header of a stream while its files are removed.
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
