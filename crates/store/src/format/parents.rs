//! The table of the streams that a view points into.

use crate::error::{Error, Result};
use crate::format::header::{hex, unhex16};
use crate::format::names::{Names, PARENTS};
use crate::outside::media::{Media, Open};
use std::path::{Path, PathBuf};

/// One row of a view's table of parents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentRow {
    /// Identity of the stream.
    pub uuid: [u8; 16],
    /// Epoch of the messages that entries with this row point to.
    pub epoch: u32,
    /// Its folder, beside the view's.
    pub name: String,
}

impl ParentRow {
    pub(crate) fn to_text(&self) -> String {
        format!("{} {} {}", hex(&self.uuid), self.epoch, self.name)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (uuid, rest) = text.split_once(' ')?;
        let (epoch, name) = rest.split_once(' ')?;
        let row = Self { uuid: unhex16(uuid)?, epoch: epoch.parse().ok()?, name: name.to_owned() };
        is_beside(name).then_some(row)
    }
}

/// True for a name that leads to a folder beside, and nowhere else.
pub(crate) fn is_beside(name: &str) -> bool {
    !name.is_empty() && ![".", ".."].contains(&name) && !name.contains(['/', '\n', '\0'])
}

pub(crate) fn beside(folder: &Path, name: &str) -> PathBuf {
    folder.parent().unwrap_or(Path::new("")).join(name)
}

/// The table of parents; empty for a stream that is no view.
pub(crate) fn rows_of(media: &dyn Media, folder: &Path) -> Result<Vec<ParentRow>> {
    let table = Names::read(media, folder, PARENTS)?;
    let rows = table.names.iter().map(|text| ParentRow::from_text(text));
    rows.collect::<Option<_>>().ok_or_else(|| Error::Format {
        path: folder.join(PARENTS),
        what: "a row is not `UUID EPOCH NAME` with the name of a folder beside".into(),
    })
}

/// Brings what was written of the table of parents to the medium.
pub(crate) fn sync_rows(m: &dyn Media, folder: &Path) -> Result<()> {
    let path = folder.join(PARENTS);
    let file = m.open(&path, Open::Write).map_err(Error::io("open", &path))?;
    file.sync().map_err(Error::io("sync", &path))?;
    m.sync_dir(folder).map_err(Error::io("sync", folder))
}
