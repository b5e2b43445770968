//! `ar51`: raw readout of a detector, as it came over the wire.

use crate::flat::Writer;
use crate::{Array, Error};

message!(b"ar51", Ar51);

table! {
    /// Some raw data.
    pub struct Ar51<'a> {
        /// Detector it came from.
        0 source_name: &'a str [required];
        /// Number given by the sender, consecutive per source.
        1 message_id: i64;
        /// The bytes.
        2 raw_data: Array<'a, u8>;
    }
}

/// Writes a message without its raw data into `out`, replacing what was there. With `bytes` bytes of raw data behind
/// it, it is a message.
pub fn head(out: &mut Vec<u8>, source_name: &str, message_id: i64, bytes: usize) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [name, id, data] = writer.root([4, 8, 4]);
    writer.put(id, message_id);
    writer.text(name, source_name);
    writer.vector(data, bytes, 8);
    writer.finish_before(bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_and_raw_data_are_a_message() {
        let mut out = Vec::new();
        for length in 0..100 {
            let raw_data: Vec<u8> = (0..length).collect();
            head(&mut out, "detector", -7, raw_data.len()).unwrap();
            out.extend_from_slice(&raw_data);
            let expected = Ar51 { source_name: "detector", message_id: -7, raw_data: raw_data.as_slice().into() };
            assert_eq!(read(&out), Ok(expected));
        }
        assert!(head(&mut out, "detector", 0, usize::MAX).is_err());
    }
}
