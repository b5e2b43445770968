//! Everything a hostile buffer could reach, as one function: the stable seeded test and the libFuzzer target
//! call the same.

use crate::Message;

/// Reads `bytes` as a message and uses all that comes out; what was read must survive writing.
///
/// # Panics
///
/// If a message that was read cannot be written and read again as the same bytes: a bug.
pub fn fuzz(bytes: &[u8]) {
    let _ = crate::schema_id(bytes);
    if let Ok(json) = crate::to_json(bytes) {
        let _ = crate::of_json(&json, &mut Vec::new());
    }
    let Ok(message) = crate::read(bytes) else {
        return;
    };
    let _ = message.time();
    let _ = message.fields();
    if let Message::Ev44(events) = &message {
        let fits = events.check().is_ok();
        let mut last = None;
        for (_, range) in events.pulses() {
            assert!(range.start <= range.end && range.end <= events.events());
            assert!(!fits || last.is_none_or(|end| end == range.start), "a hole between pulses");
            last = Some(range.end);
        }
        let pixels = events.pixel_id;
        assert_eq!(pixels.iter().count(), pixels.len());
        assert!(pixels.get(pixels.len()).is_none());
        if let Some(slice) = pixels.as_slice() {
            assert!(pixels.iter().eq(slice.iter().copied()));
        }
    }
    if let Message::Ad00(frame) = &message {
        assert_eq!(frame.shape().iter().product::<usize>(), frame.data.len());
        let (mut whole, mut head) = (Vec::new(), crate::ad00::Head::default());
        crate::ad00::write(&mut whole, frame).expect("a frame that was read can be written");
        head.write(frame).expect("a frame that was read has a head");
        let parts = head.parts(frame.data.bytes()).expect("its own pixels");
        assert!(parts.concat() == whole && head.len().is_multiple_of(crate::ad00::PIXELS_ALIGN));
    }
    // The other way round from its values: refused where they do not say all, never anything worse.
    let values = message.fields().into_iter().map(|(_, value)| value).collect();
    if let Ok(made) = crate::message_of(crate::schema_id(bytes).unwrap_or_default(), values) {
        let _ = made.write(&mut Vec::new());
    }
    // A message that was read can be written, and reading and writing the result gives the same bytes. Values are not
    // compared: a NaN differs from itself.
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    message.write(&mut once).expect("a message that was read can be written");
    let again = crate::read(&once).expect("what was written can be read");
    again.write(&mut twice).expect("a message that was read can be written");
    assert!(once == twice, "writing is not stable");
}
