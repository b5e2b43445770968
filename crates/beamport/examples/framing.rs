//! A program of its own: `beamport` with one more framing of UDP datagrams, a number of two bytes before the payload.

use beamport::Registry;
use flow::edge::SourceKind;
use settings::{Key, key};
use std::process::ExitCode;
use std::sync::Arc;
use store::crc32c;
use udp::framing::{Counter, Cut, Framing, FramingKind, Number, Read, Stamp};

static LEAST: Key = key("least", "number", "0", "Datagrams of fewer bytes are refused.");

static SHORT: FramingKind = FramingKind {
    keys: &[&LEAST],
    ..FramingKind::new("short", "a number of two bytes and a payload", |section, schema| {
        let least = section.need::<i64>(&LEAST).value;
        Arc::new(move |_origin| Box::new(Short { schema: schema.0, least: usize::try_from(least).unwrap_or(0) }))
    })
};

static UDP: SourceKind = udp::source(|name, section| udp::read(name, section, &[&SHORT]));

/// The framing of one port.
struct Short {
    schema: [u8; 4],
    /// Bytes of a datagram.
    least: usize,
}

impl Framing for Short {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        if datagram.len() < self.least {
            return Read::foreign("size");
        }
        let Some((head, payload)) = datagram.split_first_chunk::<2>() else { return Read::foreign("size") };
        // The mark tells a repeat of a datagram from another one of its number.
        let number = Number::Board { shown: u16::from_be_bytes(*head).into(), mark: crc32c(datagram) };
        cuts.push(Cut::new(number, Stamp::Arrival, self.schema, 2..2 + payload.len()));
        Read::Whole
    }

    /// 65,535 is followed by 0.
    fn counter(&self) -> Counter {
        Counter { wrap: Some(1 << 16), is_checked: false }
    }
}

fn main() -> ExitCode {
    beamport::run(&Registry::builtin().source(&UDP))
}
