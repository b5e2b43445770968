//! Tables of texts in a stream's folder: `origins` and `parents`, a line a row: CRC-32C of the text, a blank, the text.
//!
//! Constraints: rows are added behind those that hold, and a row is not lost with one that is added. A row of `parents`
//! that no entry names may get another text, in a new file.
//!
//! Failure behaviour: a row that does not verify ends the table, as all later rows have lost their numbers.

use crate::error::{Error, Result};
use crate::format::crc::crc32c;
use crate::limits::TABLE_BYTES_MAX;
use crate::outside::files::replace;
use crate::outside::media::{Media, Open, read_again};
use std::path::Path;

/// File of the table of origins: who made messages.
pub(crate) const ORIGINS: &str = "origins";
/// File of the table of parents: which streams a view points into.
pub(crate) const PARENTS: &str = "parents";

/// A table of texts, one a row.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    /// Texts, by row.
    pub names: Vec<String>,
    /// Bytes of the file that hold.
    pub bytes: u64,
    /// A whole row behind them does not hold, and is lost with all that follow it.
    pub damaged: bool,
    /// Bytes without the end of a row are behind them: an append that was cut short, or damage.
    pub torn: bool,
}

impl Names {
    /// One line of the table.
    fn line(name: &str) -> String {
        format!("{:08x} {}\n", crc32c(name.as_bytes()), name.escape_default())
    }

    /// Reads what holds of a table; a torn last line ends it.
    pub(crate) fn read(media: &dyn Media, folder: &Path, table: &str) -> Result<Self> {
        let bytes = Self::bytes_of(media, folder, table)?;
        let mut table = Self::default();
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            let Some(name) = parse_line(line) else {
                table.damaged = line.ends_with(b"\n");
                table.torn = !table.damaged;
                break;
            };
            table.names.push(name);
            table.bytes += line.len() as u64;
        }
        Ok(table)
    }

    /// The bytes of a table; none where there is none.
    pub(crate) fn bytes_of(media: &dyn Media, folder: &Path, table: &str) -> Result<Vec<u8>> {
        let path = folder.join(table);
        let file = match media.open(&path, Open::Read) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        let len = file.len().map_err(Error::io("read", &path))?;
        if len > TABLE_BYTES_MAX {
            return Err(Error::Format { path, what: format!("{len} bytes are too many for a table") });
        }
        let mut bytes = vec![0; len as usize];
        let n = read_again(file.as_ref(), &mut bytes, 0).map_err(Error::io("read", &path))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// The bytes of a table whose damaged rows have one wrong bit each, repaired, and how many rows that were. None if
    /// a row does not hold with any one of its bits turned, or with more than one.
    pub(crate) fn mended(bytes: &[u8]) -> Option<(Vec<u8>, u64)> {
        let (mut bytes, mut at, mut rows) = (bytes.to_vec(), 0, 0);
        while at < bytes.len() {
            let end = |bytes: &[u8]| bytes[at..].iter().position(|&b| b == b'\n').map(|n| at + n + 1);
            let holds = |bytes: &[u8]| {
                let line = &bytes[at..end(bytes)?];
                parse_line(line).filter(|name| Self::line(name).as_bytes() == line)
            };
            // A torn last row was never promised.
            let Some(last) = end(&bytes) else { break };
            if parse_line(&bytes[at..last]).is_none() {
                if last - at > ROW_MENDED_MAX {
                    return None;
                }
                let mut turned = bytes.clone();
                let mut good = (at * 8..last * 8).filter(|bit| {
                    turned[bit / 8] ^= 1 << (bit % 8);
                    let good = holds(&turned).is_some();
                    turned[bit / 8] ^= 1 << (bit % 8);
                    good
                });
                let bit = good.next()?;
                if good.next().is_some() {
                    return None;
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
                rows += 1;
            }
            at = end(&bytes)?;
        }
        Some((bytes, rows))
    }

    /// Adds a row behind those that hold.
    pub(crate) fn add(&mut self, media: &dyn Media, folder: &Path, table: &str, name: &str) -> Result<()> {
        let path = folder.join(table);
        let line = Self::line(name);
        if self.bytes + line.len() as u64 > TABLE_BYTES_MAX {
            return Err(Error::Limit(format!("{} has at most {TABLE_BYTES_MAX} bytes", path.display())));
        }
        let file = media.open(&path, Open::Create).map_err(Error::io("open", &path))?;
        file.write_at(line.as_bytes(), self.bytes).map_err(Error::io("write", &path))?;
        self.bytes += line.len() as u64;
        self.names.push(name.to_string());
        Ok(())
    }

    /// Gives a row another text, in a new file.
    pub(crate) fn replace(
        &mut self,
        media: &dyn Media,
        folder: &Path,
        table: &str,
        row: usize,
        name: &str,
    ) -> Result<()> {
        let mut changed = self.clone();
        changed.names[row] = name.to_string();
        let text = changed.text();
        replace(media, folder, table, text.as_bytes())?;
        changed.bytes = text.len() as u64;
        *self = changed;
        Ok(())
    }

    fn text(&self) -> String {
        self.names.iter().map(|name| Self::line(name)).collect()
    }

    /// Writes the rows that hold over themselves.
    pub(crate) fn write_again(&self, media: &dyn Media, folder: &Path, table: &str) -> Result<()> {
        let path = folder.join(table);
        let file = media.open(&path, Open::Write).map_err(Error::io("open", &path))?;
        file.write_at(self.text().as_bytes(), 0).map_err(Error::io("write", &path))
    }

    /// The row of a name.
    pub(crate) fn row(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|n| n == name).map(|row| row as u32)
    }
}

/// Bytes of a row, or of two that ran together, in which a wrong bit is looked for: each bit costs a checksum of them.
const ROW_MENDED_MAX: usize = 2048;

fn parse_line(line: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (crc, escaped) = text.split_once(' ')?;
    let name = unescape(escaped)?;
    (u32::from_str_radix(crc, 16).ok()? == crc32c(name.as_bytes())).then_some(name)
}

/// Undoes `str::escape_default`.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'n' => out.push('\n'),
            'u' => {
                let code: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                out.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
            }
            other => out.push(other),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_reader_would_refuse_were_written() {
        let m = crate::Os::shared();
        let folder = std::env::temp_dir().join(format!("beamport-names-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let line = Names::line("a").len() as u64;
        let mut table = Names { bytes: TABLE_BYTES_MAX - line, ..Names::default() };
        assert!(matches!(table.add(m.as_ref(), &folder, ORIGINS, "aa"), Err(Error::Limit(_))));
        assert!(!folder.join(ORIGINS).exists());
        table.add(m.as_ref(), &folder, ORIGINS, "a").unwrap();
        assert!(Names::read(m.as_ref(), &folder, ORIGINS).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
