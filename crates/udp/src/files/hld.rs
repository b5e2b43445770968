//! The format `hld` of HADES: events, each a header of 32 bytes and sub-events as in framing `hadaq`.
//!
//! Header, u32 words: size, decoding, id, sequence, date (year - 1900, month - 1, day), time (hour, minute, second),
//! run, padding; events are padded to 8 bytes. The first event of a file says that a run starts, the last one that it
//! stops. Source of the format: DABC, `plugins/hadaq`.

use super::Piece;
use crate::framing::Stamp;
use crate::framing::hadaq::{SubEvent, words};
use crate::limits::{HADAQ_ALIGN, HLD_DECODING, HLD_HEADER, HLD_RUNS_BEGIN, HLD_START, HLD_STOP};
use settings::Time;
use settings::units::{time, time_text};

/// Bytes of the event that begins here: what it has, and what it takes with padding.
pub(super) fn size(bytes: &[u8]) -> Option<Result<(usize, usize), &'static str>> {
    let [size, _] = words(bytes)?;
    let size = size as usize;
    let takes = size.checked_next_multiple_of(HADAQ_ALIGN).filter(|_| size >= HLD_HEADER);
    Some(takes.map(|takes| (size, takes)).ok_or("an event is shorter than its header"))
}

/// Adds the sub-events of an event to `pieces`.
pub(super) fn cut(event: &[u8], pieces: &mut Vec<Piece>) -> Result<(), &'static str> {
    let [_, _, id, _, date, clock, ..] = words::<8>(event).ok_or("an event is shorter than its header")?;
    if id == HLD_START || id == HLD_STOP {
        return Ok(());
    }
    let stamp = Stamp::Epoch(time_of(date, clock).ok_or("the date of an event is none")?);
    let mut at = HLD_HEADER;
    while at < event.len() {
        let sub = SubEvent::read(&event[at..]).ok_or("a sub-event does not fit its event")?;
        let payload = at..at + sub.size;
        at += sub.size.next_multiple_of(HADAQ_ALIGN);
        pieces.push(Piece { payload, hub: sub.hub(), trigger: Some(sub.trigger()), flags: sub.flags(), stamp });
    }
    Ok(())
}

/// The header of an event of `size` bytes. `at` and `start` (of the run): ns since 1970 UTC.
pub(super) fn header(size: usize, id: u32, sequence: u32, at: i64, start: i64) -> Vec<u8> {
    let run = (start.div_euclid(1_000_000_000) - HLD_RUNS_BEGIN) as u32;
    let (date, clock) = words_of(at);
    [size as u32, HLD_DECODING, id, sequence, date, clock, run, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The words for date and time, UTC.
fn words_of(at: i64) -> (u32, u32) {
    // YYYY-MM-DDTHH:MM:SS
    let text = time_text(Time(at));
    let number = |range: std::ops::Range<usize>| text.get(range).and_then(|text| text.parse().ok()).unwrap_or(0_u32);
    let year = number(0..4).saturating_sub(1900);
    let date = year << 16 | number(5..7).saturating_sub(1) << 8 | number(8..10);
    (date, number(11..13) << 16 | number(14..16) << 8 | number(17..19))
}

/// ns since 1970 UTC, whole seconds.
fn time_of(date: u32, clock: u32) -> Option<i64> {
    let part = |word: u32, shift: u32| word >> shift & 0xff;
    let text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        1900 + (date >> 16),
        part(date, 8) + 1,
        part(date, 0),
        part(clock, 16),
        part(clock, 8),
        part(clock, 0)
    );
    time(&text).ok().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_two_words_and_back() {
        let second = 1_000_000_000;
        for at in [0, 1_772_366_400, 951_782_399, 4_102_444_799] {
            let (date, clock) = words_of(at * second + 999_999_999);
            assert_eq!(time_of(date, clock), Some(at * second), "{at}");
        }
        assert_eq!(words_of(1_772_366_461 * second), (126 << 16 | 2 << 8 | 1, 12 << 16 | 1 << 8 | 1));
        assert_eq!([time_of(0, 0), time_of(u32::MAX, u32::MAX), time_of(126 << 16 | 12 << 8 | 1, 0)], [None; 3]);
    }
}
