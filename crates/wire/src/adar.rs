//! `ADAr`: a frame, the predecessor of `ad00`. It differs in its id, and in that time and dimensions are unsigned;
//! they are read as signed numbers, which is the same up to the year 2262.

use crate::flat::Out;
use crate::{Error, ad00};

/// The schema id.
pub const ID: [u8; 4] = *b"ADAr";

/// One frame.
pub type Adar<'a> = ad00::Ad00<'a>;

/// Verifies and reads a message, also that its dimensions fit its pixels.
pub fn read(bytes: &[u8]) -> Result<Adar<'_>, Error> {
    ad00::read_as(bytes, ID)
}

/// Writes a message into `out`, replacing what was there. Refuses dimensions that do not fit.
pub fn write(out: &mut Vec<u8>, frame: &Adar<'_>) -> Result<(), Error> {
    write_to(out, frame)
}

/// The same, to wherever it goes.
pub(crate) fn write_to<O: Out>(out: &mut O, frame: &Adar<'_>) -> Result<(), Error> {
    ad00::write_to(out, frame)?;
    out.set(4, &ID);
    Ok(())
}
