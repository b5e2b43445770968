//! A framing of a program of its own.

use super::lab::{Lab, account_of, run};
use beamport_udp::framing::{Counter, Cut, Framing, FramingKind, Number, Read, Stamp};
use flow::edge::SourceKind;
use flow::{Intake, IntakeOptions};
use serde_json::json;
use settings::{Key, key};
use std::sync::Arc;
use store::{Options, crc32c};

/// A number of two bytes, and the payload.
struct Short {
    /// Bytes of a datagram.
    least: usize,
}

impl Framing for Short {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let whole = Some(datagram).filter(|datagram| datagram.len() >= self.least);
        let Some((head, payload)) = whole.and_then(|datagram| datagram.split_first_chunk::<2>()) else {
            return Read::foreign("size");
        };
        let number = Number::Board { shown: u16::from_be_bytes(*head).into(), mark: crc32c(datagram) };
        cuts.push(Cut::new(number, Stamp::Arrival, *b"shrt", 2..2 + payload.len()));
        Read::Whole
    }

    fn counter(&self) -> Counter {
        Counter { wrap: Some(1 << 16), is_checked: false }
    }
}

static LEAST: Key = key("least", "number", "0", "Datagrams of fewer bytes are refused.");

static SHORT: FramingKind = FramingKind {
    keys: &[&LEAST],
    ..FramingKind::new("short", "a number of two bytes and a payload", |section, _| {
        let least = section.need::<i64>(&LEAST).value;
        Arc::new(move |_| Box::new(Short { least: usize::try_from(least).unwrap_or(0) }))
    })
};
static UDP: SourceKind = beamport_udp::source(|name, section| beamport_udp::read(name, section, &[&SHORT]));

#[test]
fn a_framing_of_a_program_has_losses_and_counters_as_the_built_in_ones() {
    let lab = Lab::with(&json!({}));
    let section = json!({"listen": lab.address.to_string(), "framing": "short", "least": 5});
    let plan = settings::read_json(&section, |section| (UDP.read)("d001", section)).unwrap();
    let options = IntakeOptions { stream: Options::memory(1 << 20), ahead_max: i64::MAX };
    let mut intake = Intake::start(&lab.data, "d001", plan.build().unwrap(), &options, super::now()).unwrap();
    // 65,535 is followed by 0; 3 and 4 are missing.
    for number in (65_530..=65_535).chain(0..3).chain(5..10) {
        lab.send_bytes(&[&u16::to_be_bytes(number)[..], b"payload"].concat());
    }
    lab.send_bytes(b"x");
    lab.send_bytes(b"four");
    run(&mut intake, |intake| intake.status()["next"] == 65_546);
    let accounts = account_of(&lab, &mut intake, 65_546);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, account.lost["network"]), (16, 14, 2), "{account:#?}");
    assert_eq!(account.refused["size"], 2);
    // Boards cannot write a header that is code.
    let boards = json!({"listen": lab.address.to_string(), "framing": "short", "boards": {"rate": 10}});
    let plan = settings::read_json(&boards, |section| (UDP.read)("d001", section)).unwrap();
    let plan = (&*plan as &dyn std::any::Any).downcast_ref().unwrap();
    let fault = beamport_udp::send(&[("udp", plan)], &lab.data, None, &|| true).unwrap_err();
    assert!(fault.to_string().contains("reads headers and does not write them"), "{fault}");
}
