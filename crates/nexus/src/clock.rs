//! The machine's clock, and times as text.

use settings::units::days_since_1970;
/// A time as ISO 8601 in UTC with all its digits: `2026-11-21T13:04:32.000000001Z`.
pub use settings::units::nanoseconds_text as iso8601;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, ns since 1970 UTC.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A time as ISO 8601 in UTC with milliseconds: `2026-11-21T13:04:32.000Z`.
pub fn iso8601_ms(ns: i64) -> String {
    let end = "2026-11-21T13:04:32.000".len();
    iso8601(ns)[..end].to_owned() + "Z"
}

/// A time as ISO 8601, as ns since 1970 UTC; none where it is not a time, or does not fit. One without a zone is taken as UTC,
/// as NeXus files of before 2010 mean it.
pub fn of_iso8601(text: &str) -> Option<i64> {
    let text = text.trim();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fits = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60;
    if !fits
        || !matches!(text.as_bytes(), [_, _, _, _, b'-', _, _, b'-', _, _, b'T' | b' ', _, _, b':', _, _, b':', ..])
    {
        return None;
    }
    let (mut fraction, mut zone) = (0, &text[19..]);
    if let Some(rest) = zone.strip_prefix('.') {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        fraction = format!("{:0<9}", &rest[..digits]).get(..9)?.parse().ok()?;
        zone = &rest[digits..];
    }
    let at = text.len() - zone.len();
    let east = match zone.as_bytes() {
        [] | [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let minutes = number(at + 1, at + 3)? * 60 + number(at + 4, at + 6)?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    let days = days_since_1970(year, month, day);
    let seconds = days * 86_400 + hour * 3600 + (minute - east) * 60 + second;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_of_other_writers_are_read() {
        for ns in [0, 951_782_400_000_000_000, 1_795_266_272_000_000_001, -86_400_000_000_001] {
            assert_eq!(super::of_iso8601(&super::iso8601(ns)), Some(ns));
        }
        let known = [
            ("2026-11-21T13:04:32", 1_795_266_272_000_000_000),
            ("2026-11-21 14:04:32.5+01:00", 1_795_266_272_500_000_000),
            ("2026-11-21T12:34:32.1234567899-00:30", 1_795_266_272_123_456_789),
        ];
        known.iter().for_each(|(text, ns)| assert_eq!(super::of_iso8601(text), Some(*ns), "{text}"));
        for wrong in [
            "",
            "now",
            "2026-13-01T00:00:00Z",
            "9999-01-01T00:00:00Z",
            "2026-11-21T13:04:32+1",
            "2026-11-21T13:04:32.ß",
        ] {
            assert_eq!(super::of_iso8601(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(super::iso8601(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(super::iso8601(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(super::iso8601(951_782_400_000_000_000), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(super::iso8601(1_795_266_272_000_000_001), "2026-11-21T13:04:32.000000001Z");
        assert_eq!(super::iso8601(i64::MAX), "2262-04-11T23:47:16.854775807Z");
        assert_eq!(super::iso8601(i64::MIN), "1677-09-21T00:12:43.145224192Z");
        assert_eq!(super::iso8601_ms(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(super::iso8601_ms(1_795_266_272_000_999_999), "2026-11-21T13:04:32.000Z");
    }
}
