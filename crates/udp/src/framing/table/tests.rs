//! Tables, and the built-in framings as such.

use super::super::ess::Ess;
use super::super::{cut, ess, vectors};
use super::*;
use serde_json::json;
use testkit::Dice;

fn table_of(keys: &serde_json::Value, has_ticks: bool) -> Result<Table, Vec<String>> {
    let read = |section: &mut settings::Section<'_>| Table::read(section, (SchemaId(*b"raw0"), has_ticks));
    let mistakes =
        |all: Vec<settings::Mistake>| all.into_iter().map(|m| format!("{}; {}; {}", m.what, m.cause, m.hint));
    settings::read_json(keys, read).map_err(|all| mistakes(all).collect())
}

fn by(keys: &serde_json::Value, has_ticks: bool) -> ByTable {
    ByTable::new(Arc::new(table_of(keys, has_ticks).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))))
}

/// Units of GRETINA and GRETA, as a table.
fn geb() -> serde_json::Value {
    json!({"header": 16, "message": "unit", "length": "u32 at 4", "length_adds": 16, "time": "u64 at 8"})
}

#[test]
fn the_built_in_tables_are_what_their_keys_say() {
    let same = |built: Table, keys: serde_json::Value, has_ticks| {
        let read = Table { schema: built.schema, ..table_of(&keys, has_ticks).unwrap() };
        assert_eq!(format!("{built:?}"), format!("{read:?}"));
    };
    same(Table::geb(), geb(), true);
    same(Table::raw(SchemaId(*b"raw0")), json!({}), false);
}

#[test]
fn a_raw_datagram_is_an_empty_table() {
    let (read, cuts) = cut(&mut by(&json!({}), false), b"anything");
    let [Cut { number: Number::Arrival, stamp: Stamp::Arrival, payload, schema, .. }] = &cuts[..] else {
        panic!("{cuts:?}")
    };
    assert_eq!((read, payload.clone(), schema.0), (Read::Whole, 0..8, *b"raw0"));
    assert_eq!(cut(&mut by(&json!({}), false), b"").1.len(), 1);
}

/// The header of a detector of an X-ray laser, in words: big endian, a constant, a frame and a packet of 128, the
/// time in seconds and ticks, the module, and a checksum behind the payload.
fn laser() -> serde_json::Value {
    json!({
        "order": "big", "header": 32, "trailer": 4,
        "constants": {"u16 at 0": 0xcafe, "u8 at 2": [1, 2]},
        "number": "u32 at 4", "packet": "u8 at 3", "packets": 128,
        "seconds": "u32 at 8", "ticks": "u32 at 12", "rate": 88_052_500.0,
        "origin": "u16 at 16", "stream": "u16 at 16",
        "type": "u8 at 18", "schemas": {"1": "im00", "0x2": "sum0"},
        "suspect": "u8 at 19 bit 7", "tag": "u8 at 19 bits 0..3",
        "checksum": "crc32", "checksum_at": "u32 at -4", "checksum_to": -4,
    })
}

#[test]
fn a_header_is_read_as_its_table_says() {
    let mut bytes = vec![0xca, 0xfe, 2, 7, 0, 0, 1, 0];
    bytes.extend(1_772_366_400_u32.to_be_bytes());
    bytes.extend((88_052_500_u32 / 4).to_be_bytes());
    bytes.extend([0, 5, 2, 0x83]);
    bytes.resize(32, 0);
    bytes.extend(b"pixels");
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &bytes) as u32;
    bytes.extend(sum.to_be_bytes());
    let mut framing = by(&laser(), false);
    let (read, cuts) = cut(&mut framing, &bytes);
    assert_eq!((read, cuts.len(), framing.stream()), (Read::Whole, 1, 5));
    let one = &cuts[0];
    assert!(matches!(one.number, Number::Board { shown, .. } if shown == 256 * 128 + 7), "{one:?}");
    assert_eq!(one.stamp, Stamp::Epoch(1_772_366_400_250_000_000));
    assert_eq!((one.numbering, one.schema.0, one.payload.clone()), (5, *b"sum0", 32..38));
    assert_eq!(one.flags, flags::SUSPECT | flags::of_source(3));
    // Numbers begin again behind the last packet of the last frame.
    assert_eq!(framing.number(Some((1 << 39) - 1), 0), Some(1 << 39));
    let wrong = |at: usize, byte: u8, framing: &mut ByTable| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        cut(framing, &bytes).0
    };
    assert_eq!(wrong(0, 0, &mut framing), foreign("constant"));
    assert_eq!(wrong(2, 3, &mut framing), foreign("constant"));
    assert_eq!(wrong(33, 0, &mut framing), damaged("checksum"));
    assert_eq!(cut(&mut framing, &bytes[..35]).0, foreign("size"));
    let table = table_of(&laser(), false).unwrap();
    let mut broken = bytes.clone();
    (broken[1], broken[18]) = (0, 9);
    let shown = table.explain(&broken);
    let of = |key: &str| {
        shown.iter().filter(|shown| shown.key == key).map(|s| (s.value, s.wrong.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of("constants")[0], (Some(0xca00), Some("it should be 0xcafe".into())));
    assert_eq!((of("constants")[1].clone(), of("number")), ((Some(2), None), vec![(Some(256), None)]));
    assert!(of("type")[0].1.is_some() && of("checksum")[0].1.is_some(), "{shown:#?}");
}

#[test]
fn what_a_simulated_board_makes_is_read_as_it_was_made() {
    let of = |number, payload: &[u8], table: &Table| {
        table.datagram(number, (1_772_366_400_250_000_000, 77), *b"sum0", payload)
    };
    let mut dice = Dice::new(9);
    for keys in [laser(), geb(), json!({"header": 8, "number": "u16be at 2", "length": "u16 at 0", "align": 8})] {
        let has_ticks = keys.get("time").is_some();
        let (table, mut framing) = (table_of(&keys, has_ticks).unwrap(), by(&keys, has_ticks));
        for _ in 0..200 {
            let payload: Vec<u8> = (0..dice.range(1, 60)).map(|_| dice.word() as u8).collect();
            let number = dice.below(60_000);
            let bytes = of(number, &payload, &table);
            let (read, cuts) = cut(&mut framing, &bytes);
            assert_eq!((read, cuts.len()), (Read::Whole, 1), "{keys} {bytes:x?}");
            let found = &bytes[cuts[0].payload.clone()];
            assert!(found.ends_with(&payload), "{keys}");
            if let Number::Board { shown, .. } = cuts[0].number {
                assert_eq!(shown, number);
            }
            if keys.get("seconds").is_some() {
                assert_eq!((cuts[0].stamp, cuts[0].schema.0), (Stamp::Epoch(1_772_366_400_250_000_000), *b"sum0"));
            }
        }
    }
}

#[test]
fn a_datagram_has_several_units_by_their_length_and_padding() {
    let keys = json!({"header": 4, "length": "u16 at 0", "number": "u16 at 2", "align": 4});
    let unit = |number: u16, payload: &[u8]| {
        let head = [(4 + payload.len() as u16).to_le_bytes(), number.to_le_bytes()].concat();
        [head.as_slice(), payload].concat()
    };
    let bytes = [unit(1, b"abc"), vec![0], unit(2, b""), unit(3, b"x")].concat();
    let (read, cuts) = cut(&mut by(&keys, false), &bytes);
    let parts: Vec<_> = cuts.iter().map(|cut| bytes[cut.payload.clone()].to_vec()).collect();
    assert_eq!((read, parts), (Read::Whole, vec![b"abc".to_vec(), Vec::new(), b"x".to_vec()]));
    // Lengths that no unit has; with 0 the loop over units would never end.
    for length in [0, 3, 200] {
        let mut bytes = bytes.clone();
        bytes[8] = length;
        assert_eq!(cut(&mut by(&keys, false), &bytes), (damaged("length"), Vec::new()));
    }
}

#[test]
fn mistakes_in_tables_are_reported_with_what_to_write() {
    let wrong = |keys: serde_json::Value| table_of(&keys, false).unwrap_err();
    assert!(wrong(json!({"number": "u32 8"}))[0].contains("`u32 8` is not a field; write it like `u32 at 8`"));
    assert!(wrong(json!({"constants": {"u8 at 0": 300}}))[0].contains("has 8 bits"));
    assert!(wrong(json!({"constants": {"u8 at 0": "x"}}))[0].contains("is not a number"));
    assert!(wrong(json!({"packet": "u8 at 0", "number": "u8 at 1"}))[0].contains("`packets` is missing"));
    assert!(wrong(json!({"packet": "u8 at 0", "packets": 2}))[0].contains("`number` is missing"));
    assert!(wrong(json!({"time": "u64 at 0", "seconds": "u32 at 8"}))[0].contains("`time` is there too"));
    assert!(wrong(json!({"ticks": "u32 at 8"}))[0].contains("`seconds` is missing"));
    assert!(wrong(json!({"type": "u8 at 0"}))[0].contains("`schemas` is missing"));
    assert!(wrong(json!({"schemas": {"1": "toolong"}}))[0].contains("no schema id"));
    assert!(wrong(json!({"checksum": "crc32"}))[0].contains("`checksum_at` is missing"));
    assert!(wrong(json!({"checksum": "md5", "checksum_at": "u8 at 0"}))[0].contains("unknown word"));
    assert!(wrong(json!({"length_adds": 4}))[0].contains("`length` is missing"));
    assert!(wrong(json!({"nummer": "u8 at 0"}))[0].contains("nummer"));
}

/// Readouts of detectors of ESS, version 1: the framing `ess` has version 0 too, and makes an `ar51` of each.
#[test]
fn a_table_reads_a_readout_of_ess_as_its_framing_does() {
    let keys = json!({
        "header": 32, "message": "unit", "length": "u16 at 6",
        "constants": {"u8 at 0": 0, "u8 at 1": 1, "u24be at 2": 0x45_5353, "u8 at 8": (0..12).collect::<Vec<_>>()},
        "number": "u32 at 26", "origin": "u8 at 8", "seconds": "u32 at 10", "ticks": "u32 at 14", "rate": 88_052_500,
    });
    let (mut table, mut code) = (by(&keys, false), Ess::new("d001"));
    let mut read = 0;
    let mut dice = Dice::new(5);
    let made = |n: u64| {
        let (number, time, bytes) = (dice.word(), 1_772_366_400_000_000_000 + dice.below(1 << 60), 20 * n as usize);
        let mut bytes = [&ess::header(number, time, bytes)[..], &vec![7; bytes]].concat();
        bytes[8] = dice.below(13) as u8;
        bytes
    };
    let all = vectors("ess").into_iter().map(|(bytes, _)| bytes).chain((0..200).map(made));
    for bytes in all.filter(|bytes| bytes.get(1) == Some(&1)) {
        let ((_, by_table), (_, by_code)) = (cut(&mut table, &bytes), cut(&mut code, &bytes));
        // The code knows how many ticks there are in a second; that is no constant.
        if by_code.is_empty() && !by_table.is_empty() {
            assert!(u32::from_le_bytes(bytes[14..18].try_into().unwrap()) >= 88_052_500, "{bytes:x?}");
            continue;
        }
        assert_eq!(by_table.len(), by_code.len(), "{bytes:x?}");
        for (one, other) in by_table.iter().zip(&by_code) {
            let shown = |cut: &Cut| match cut.number {
                Number::Board { shown, .. } => Some(shown),
                Number::Arrival => None,
            };
            let (Stamp::Epoch(time), Stamp::Epoch(exact)) = (one.stamp, other.stamp) else { panic!("{one:?}") };
            // Rounded, and cut off.
            assert!((0..=1).contains(&(time - exact)));
            assert_eq!((shown(one), one.numbering, &one.payload), (shown(other), other.numbering, &other.payload));
            read += 1;
        }
    }
    assert!(read > 150, "{read}");
}

#[test]
fn any_datagram_of_any_table_is_cut_or_refused() {
    cut_any(21, 5_000);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_any_datagram_of_any_table_is_cut_or_refused() {
    cut_any(22, 500_000);
}

/// Reads 200 random datagrams by each of `tables` random tables: nothing panics, and no message is outside of its
/// datagram.
fn cut_any(seed: u64, tables: u32) {
    let mut dice = Dice::new(seed);
    let (mut read, mut refused) = (0_u64, 0_u64);
    for _ in 0..tables {
        let field = |dice: &mut Dice| {
            let width = dice.range(1, 8);
            let order = dice.pick(&["", "be", "le"]);
            match dice.one_in(4) {
                true => format!("u{}{order} at -{}", 8 * width, width + dice.below(20)),
                false => format!("u{}{order} at {}", 8 * width, dice.below(40)),
            }
        };
        let mut keys = json!({"header": dice.below(40), "trailer": dice.below(8)});
        for key in ["number", "time", "origin", "stream", "length", "suspect", "tag"] {
            if dice.one_in(2) {
                keys[key] = field(&mut dice).into();
            }
        }
        if keys.get("length").is_some() {
            (keys["length_adds"], keys["align"]) = ((dice.below(60) as i64 - 20).into(), dice.range(1, 16).into());
        }
        if dice.one_in(3) {
            (keys["checksum"], keys["checksum_at"]) =
                (dice.pick(&["crc32c", "crc16", "sum"]).into(), field(&mut dice).into());
            (keys["checksum_from"], keys["checksum_to"]) =
                ((dice.below(9) as i64 - 4).into(), (-(dice.below(9) as i64)).into());
        }
        if dice.one_in(3) {
            keys["message"] = "unit".into();
        }
        let table = table_of(&keys, true).unwrap_or_else(|mistakes| panic!("{keys}: {mistakes:?}"));
        let mut framing = by(&keys, true);
        for round in 0..200 {
            let mut bytes: Vec<u8> = match round % 3 {
                0 => (0..dice.below(120)).map(|_| dice.word() as u8).collect(),
                1 => vec![0; dice.below(120) as usize],
                _ => table.datagram(dice.word(), (dice.word() as i64, dice.word()), *b"raw0", &[7; 30]),
            };
            if dice.one_in(4) && !bytes.is_empty() {
                let at = dice.below(bytes.len() as u64) as usize;
                bytes[at] = dice.word() as u8;
            }
            let (what, cuts) = cut(&mut framing, &bytes);
            match what {
                Read::Whole => read += 1,
                _ => refused += 1,
            }
            assert!(what == Read::Whole || cuts.is_empty(), "{keys}");
            assert!(
                cuts.iter().all(|cut| cut.payload.start <= cut.payload.end && cut.payload.end <= bytes.len()),
                "{keys}"
            );
            table.explain(&bytes);
        }
    }
    let all = read + refused;
    println!("{tables} tables, {all} datagrams: {read} read, {refused} refused");
    assert!(read > all / 12 && refused > all / 12, "{read} read, {refused} refused");
}
