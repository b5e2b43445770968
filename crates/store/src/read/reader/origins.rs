//! The names of origins.

use crate::error::{Error, Result};
use crate::format::names::{Names, ORIGINS};
use crate::read::reader::Reader;

impl Reader {
    /// The name of an origin.
    pub fn origin(&mut self, row: u32) -> &str {
        if row as usize >= self.origins.names.len()
            && let Ok(table) = Names::read(self.media.as_ref(), &self.folder, ORIGINS)
        {
            self.origins = table;
        }
        self.origins.names.get(row as usize).map_or("", String::as_str)
    }

    /// Names of all origins.
    pub fn origins(&mut self) -> Result<&[String]> {
        self.origins = Names::read(self.media.as_ref(), &self.folder, ORIGINS)?;
        Ok(&self.origins.names)
    }

    /// Why the table of origins, as it was read last, has no name for a row; none where it has one. A stream without a
    /// table has only messages of row 0, which has no name.
    pub fn origin_damage(&self, row: u32) -> Option<Error> {
        let (known, damaged) = (self.origins.names.len(), self.origins.damaged);
        if (row as usize) < known || (known == 0 && row == 0 && !damaged && !self.origins.torn) {
            return None;
        }
        let state = if damaged || self.origins.torn { "does not verify" } else { "is missing" };
        let what = format!("row {known} {state}: the origins of its messages and of all later rows are unknown");
        Some(Error::Format { path: self.folder.join(ORIGINS), what })
    }

    /// The same for the table as a whole: a row of it was damaged.
    pub fn origins_damage(&self) -> Option<Error> {
        self.origins.damaged.then(|| self.origin_damage(self.origins.names.len() as u32)).flatten()
    }
}
