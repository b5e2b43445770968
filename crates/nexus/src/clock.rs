//! The machine's clock, and times as text.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, ns since 1970 UTC.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A time as ISO 8601 in UTC with all its digits: `2026-11-21T13:04:32.000000001Z`.
pub fn iso8601(ns: i64) -> String {
    let (seconds, fraction) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to a date: H. Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z")
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(super::iso8601(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(super::iso8601(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(super::iso8601(951_782_400_000_000_000), "2000-02-29T00:00:00.000000000Z");
        assert_eq!(super::iso8601(1_795_266_272_000_000_001), "2026-11-21T13:04:32.000000001Z");
        assert_eq!(super::iso8601(i64::MAX), "2262-04-11T23:47:16.854775807Z");
        assert_eq!(super::iso8601(i64::MIN), "1677-09-21T00:12:43.145224192Z");
    }
}
