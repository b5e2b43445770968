//! The framing `raw`: a datagram is a message, as it came.

use super::{Cut, Framing, Number, Read, Stamp};
use store::SchemaId;

/// The framing; the schema id of the messages.
pub(crate) struct Raw(pub(crate) SchemaId);

impl Framing for Raw {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let (number, stamp) = (Number::Arrival, Stamp::Arrival);
        cuts.push(Cut { number, queue: 0, stamp, schema: self.0, flags: 0, crc: None, payload: 0..datagram.len() });
        Read::Whole
    }
}
