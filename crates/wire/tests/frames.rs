//! Frames (`ad00`): heads and pixels apart, pixels where vector instructions want them, and shapes that lie.

use beamport_wire::ad00::{self, Ad00, Attribute, Head, PIXELS_ALIGN};
use beamport_wire::limits::{DIMENSIONS_MAX, MESSAGE_BYTES_MAX};
use beamport_wire::{DType, Error, Numbers, range_in};

fn frame<'a>(dimensions: &'a [i64], data: Numbers<'a>) -> Ad00<'a> {
    Ad00 {
        source_name: "camera",
        id: 5,
        timestamp: 7,
        dimensions: dimensions.into(),
        data,
        attributes: Default::default(),
    }
}

#[test]
fn pixels_start_on_a_line_of_the_cache_whatever_stands_before_them() {
    let pixels: Vec<u16> = (0..35).collect();
    let mut out = Vec::new();
    for letters in 0..130 {
        let name = "n".repeat(letters);
        let attribute = Attribute { name: &name, description: None, source: None, data: (&[1.5f64]).into() };
        let attributes = vec![attribute; letters % 3];
        let parts = Ad00 { source_name: &name, attributes: (&attributes).into(), ..frame(&[5, 7], (&pixels).into()) };
        ad00::write(&mut out, &parts).expect("a good frame");
        assert_eq!(out.len() % 8, 0);
        let found = ad00::read(&out).expect("what was written");
        assert_eq!(found, parts);
        assert_eq!(range_in(&out, found.data.bytes()).expect("inside").start % PIXELS_ALIGN, 0);
    }
}

#[test]
fn a_head_serves_frame_after_frame() {
    let mut head = Head::default();
    assert!(head.is_empty() && head.parts(&[1]).is_none());
    head.set(1, 1); // nothing there yet, nothing happens
    let mut out = Vec::new();
    for dtype in DType::ALL {
        let bytes: Vec<u8> = (0..3 * 5 * dtype.size() as u8).collect();
        let parts = frame(&[3, 5], Numbers::new(dtype, &bytes).expect("whole elements"));
        head.write(&parts).expect("a good frame");
        assert!(head.parts(&bytes[1..]).is_none());
        for (id, timestamp) in [(i32::MAX, i64::MIN), (-1, i64::MAX), (0, 0)] {
            head.set(id, timestamp);
            ad00::write(&mut out, &Ad00 { id, timestamp, ..parts.clone() }).expect("a good frame");
            let found = head.parts(&bytes).expect("as many bytes");
            assert_eq!(found.concat(), out, "{}", dtype.name());
            assert_eq!(found[0].len(), head.len());
            assert_eq!(head.len() % PIXELS_ALIGN, 0);
        }
    }
    // A head that was refused is none.
    assert!(head.write(&frame(&[2], Numbers::empty(DType::Int8))).is_err());
    assert!(head.is_empty() && head.parts(&[1]).is_none());
}

#[test]
fn dimensions_that_do_not_fit_are_refused_for_reading_and_writing() {
    let pixels = [1u16, 2, 3, 4];
    let deep = [1i64; DIMENSIONS_MAX + 1];
    let mut out = Vec::new();
    for dimensions in [&[3i64][..], &[-4], &[-2, -2], &[i64::MAX, i64::MAX], &[4, 0], &[1 << 62, 4], &deep] {
        let refused = ad00::write(&mut out, &frame(dimensions, (&pixels).into()));
        assert!(matches!(refused, Err(Error::Inconsistent { .. })), "{dimensions:?}");
        assert!(out.is_empty());
    }
    ad00::write(&mut out, &frame(&deep[1..], (&[9u16]).into())).expect("32 dimensions");
    ad00::write(&mut out, &frame(&[2, 2], (&pixels).into())).expect("a good frame");
    // The same lies in a buffer: every value of the first length, and of the type.
    let at = range_in(&out, ad00::read(&out).expect("good").dimensions.bytes()).expect("inside").start;
    for length in [0, 1, 3, -2, i64::MIN, i64::MAX] {
        let mut bent = out.clone();
        bent[at..at + 8].copy_from_slice(&i64::to_le_bytes(length));
        assert!(matches!(ad00::read(&bent), Err(Error::Inconsistent { .. })), "{length}");
    }
    let mut others = 0;
    for at in 0..head_bytes(&out) {
        let mut bent = out.clone();
        bent[at] = 11; // one more than there are types
        others += u32::from(ad00::read(&bent) == Err(Error::UnknownKind { field: "data_type", value: 11 }));
    }
    assert_eq!(others, 1, "one byte is the type");
}

fn head_bytes(message: &[u8]) -> usize {
    range_in(message, ad00::read(message).expect("good").data.bytes()).expect("inside").start
}

#[test]
fn text_is_a_frame_of_letters_and_has_to_be_utf_8() {
    let mut out = Vec::new();
    ad00::write(&mut out, &frame(&[7], Numbers::text("grüezi"))).expect("7 bytes");
    let at = head_bytes(&out);
    out[at + 2] = 0xFF;
    assert!(matches!(ad00::read(&out), Err(Error::Inconsistent { .. })));
}

/// A frame of 2 GiB needs no 2 GiB to be refused: zeroed memory that is never touched.
#[test]
fn a_frame_larger_than_a_message_is_refused() {
    let pixels = vec![0u8; MESSAGE_BYTES_MAX];
    let mut head = Head::default();
    let refused = head.write(&frame(&[MESSAGE_BYTES_MAX as i64], (&pixels).into()));
    assert!(matches!(refused, Err(Error::TooLong { .. })));
}
