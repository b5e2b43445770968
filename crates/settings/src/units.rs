//! Values with units as people write them: durations (`2 s`), sizes (`64 MiB`) and times (`2026-03-01T12:00:00Z`).
//!
//! A number without its unit is refused: whoever reads `flush = 10` next year must not have to guess.
//! All arithmetic is on integers, so `0.1 s` is 100,000,000 ns exactly. Every function accepts any text and never panics.

use crate::limits;
use std::fmt;
use std::time::Duration;

/// Why a value was refused, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The cause, for example "`2` has no unit".
    pub cause: String,
    /// A hint: what to write. Empty where nothing sensible can be proposed.
    pub hint: String,
}

impl Refused {
    /// The fault of a value, and what to write instead; empty: what the key takes.
    pub fn new(cause: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { cause: cause.into(), hint: hint.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A point in time: ns since 1970 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub i64);

/// A point in time as a command takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// `now`.
    Now,
    /// An RFC 3339 time.
    At(Time),
    /// `-10 s`: so long before now.
    Ago(Duration),
}

const DURATIONS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];
// What people write and what we take: ambiguous ones (`m`, `K`) are refused with the likely word.
const MISSPELT: [(&str, &str); 24] = [
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("m", "min"),
    ("mins", "min"),
    ("minute", "min"),
    ("minutes", "min"),
    ("hour", "h"),
    ("hours", "h"),
    ("hr", "h"),
    ("day", "d"),
    ("days", "d"),
    ("msec", "ms"),
    ("µs", "us"),
    ("μs", "us"),
    ("usec", "us"),
    ("K", "KiB"),
    ("KB", "kB"),
    ("M", "MiB"),
    ("G", "GiB"),
    ("T", "TiB"),
    ("Mb", "MB"),
    ("bytes", "B"),
];

/// Splits `1.5 s` into its number and its unit.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// `number` times `factor`, exactly; `None` where it is no number, has a rest, or does not fit 64 bits.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || fraction.contains('.')
        || (fraction.is_empty() && number.contains('.'))
        || fraction.len() > 18
    {
        return None;
    }
    let digits = |text: &str| {
        text.bytes()
            .filter(|b| *b != b'_')
            .try_fold(0u64, |sum, b| sum.checked_mul(10)?.checked_add(u64::from(b.wrapping_sub(b'0'))))
    };
    let (whole, part) = (digits(whole)?, digits(fraction)?);
    let tenths = 10u128.pow(fraction.len() as u32);
    let part = u128::from(part) * u128::from(factor);
    if part % tenths != 0 {
        return None;
    }
    whole.checked_mul(factor)?.checked_add(u64::try_from(part / tenths).ok()?)
}

/// The value of `text` in the smallest unit of `table`.
fn measured(text: &str, table: &[(&str, u64)], noun: &str, example: &str) -> Result<u64, Refused> {
    let (number, unit) = split(text);
    if number.is_empty() {
        return Err(Refused::new(
            format!("`{}` is not a {noun}", shortened(text)),
            format!("write a number and a unit, like `{example}`"),
        ));
    }
    let units = || table.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    if unit.is_empty() {
        let likely = example.split_once(' ').map_or("", |(_, unit)| unit);
        return Err(Refused::new(
            format!("`{}` has no unit", shortened(text)),
            format!("write `{number} {likely}`; units are {}", units()),
        ));
    }
    let Some((_, factor)) = table.iter().find(|(word, _)| *word == unit) else {
        let near = MISSPELT
            .iter()
            .find(|(wrong, right)| *wrong == unit && table.iter().any(|(word, _)| word == right))
            .map(|(_, right)| *right);
        let hint = near.map_or_else(
            || format!("units are {}", units()),
            |near| format!("write `{number} {near}`; units are {}", units()),
        );
        return Err(Refused::new(format!("unknown unit `{}`", shortened(unit)), hint));
    };
    scaled(number, *factor).ok_or_else(|| {
        Refused::new(
            format!("`{}` is too large or too precise", shortened(text)),
            format!("write a number and a unit, like `{example}`"),
        )
    })
}

/// A duration such as `2 s`, `500 ms`, `10 min`, `1 h`, `250 us`.
pub fn duration(text: &str) -> Result<Duration, Refused> {
    let value = Duration::from_nanos(measured(text, &DURATIONS, "duration", "2 s")?);
    if value > limits::DURATION_MAX {
        return Err(Refused::new(
            format!("`{}` is too long", shortened(text)),
            format!("at most {}", duration_text(limits::DURATION_MAX)),
        ));
    }
    Ok(value)
}

/// A size such as `64 MiB`, `1 GB`, `4 kB`.
pub fn size(text: &str) -> Result<Size, Refused> {
    measured(text, &SIZES, "size", "64 MiB").map(Size)
}

/// A duration in the largest unit that holds it without a fraction.
#[must_use]
pub fn duration_text(value: Duration) -> String {
    let ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
    // Days are for people who write them; 24 h says the same and is never mistaken for a date.
    let (unit, factor) = DURATIONS[..6]
        .iter()
        .rev()
        .find(|(_, factor)| ns >= *factor && ns.is_multiple_of(*factor))
        .unwrap_or(&("s", 1_000_000_000));
    format!("{} {unit}", ns / factor)
}

/// A size in the largest unit that holds it without a fraction.
#[must_use]
pub fn size_text(value: Size) -> String {
    let fits = |(_, factor): &&(&str, u64)| value.0 >= *factor && value.0.is_multiple_of(*factor);
    let (unit, factor) = SIZES.iter().rev().find(fits).unwrap_or(&("B", 1));
    format!("{} {unit}", value.0 / factor)
}

/// A time by RFC 3339, with `Z` or an offset: `2026-03-01T12:00:00Z`, `2026-03-01 13:00:00.5+01:00`. Years 1970 to 2200.
pub fn time(text: &str) -> Result<Time, Refused> {
    const EXAMPLE: &str = "write a time like `2026-03-01T12:00:00Z`";
    let refuse = |cause: &str| Refused::new(format!("`{}` {cause}", shortened(text)), EXAMPLE);
    let t = text.trim().as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = t.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then(|| digits.iter().fold(0, |sum, b| sum * 10 + i64::from(b - b'0')))
    };
    let marks = [(4, b"-"), (7, b"-"), (13, b":"), (16, b":")];
    let is_shaped =
        marks.iter().all(|(at, mark)| t.get(*at) == mark.first()) && matches!(t.get(10), Some(b'T' | b't' | b' '));
    let fields = (number(0, 4), number(5, 7), number(8, 10), number(11, 13), number(14, 16), number(17, 19));
    let (Some(year), Some(month), Some(day), Some(hour), Some(minute), Some(second)) = fields else {
        return Err(refuse("is not a time"));
    };
    if !is_shaped {
        return Err(refuse("is not a time"));
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1970..=2200).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=days).contains(&day)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return Err(refuse("is not a date from 1970 to 2200"));
    }
    let mut rest = &t[19..];
    let mut ns = 0;
    if let [b'.', digits @ ..] = rest {
        let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        if count == 0 || count > 9 {
            return Err(refuse("needs one to nine digits after the point"));
        }
        ns = (0..9).fold(0, |sum, i| sum * 10 + if i < count { i64::from(digits[i] - b'0') } else { 0 });
        rest = &digits[count..];
    }
    let offset_s = match rest {
        [b'Z' | b'z'] => 0,
        [] => {
            return Err(Refused::new(
                format!("`{}` has no time zone", shortened(text)),
                format!("write `{}Z` for UTC", text.trim()),
            ));
        }
        [sign @ (b'+' | b'-'), a, b, b':', c, d] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => {
            let hours = i64::from(a - b'0') * 10 + i64::from(b - b'0');
            let minutes = i64::from(c - b'0') * 10 + i64::from(d - b'0');
            if hours > 23 || minutes > 59 {
                return Err(refuse("has an invalid UTC offset"));
            }
            (hours * 3600 + minutes * 60) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return Err(refuse("has no valid UTC offset after the time")),
    };
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset_s;
    if seconds < 0 {
        return Err(refuse("is before 1970"));
    }
    Ok(Time(seconds * 1_000_000_000 + ns))
}

/// Days from 1970-01-01 to a civil date (proleptic Gregorian; H. Hinnant, "chrono-compatible low-level date algorithms",
/// `days_from_civil`).
#[must_use]
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The civil date (year, month, day) of days since 1970-01-01 (the same source, `civil_from_days`).
#[must_use]
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// A time as RFC 3339 in UTC, with as many digits behind the second as it needs.
#[must_use]
pub fn time_text(value: Time) -> String {
    let text = nanoseconds_text(value.0);
    // The point stops the zeros.
    let digits = text.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
    format!("{digits}Z")
}

/// A time, ns since 1970 UTC, as RFC 3339 in UTC with all nine digits behind the second.
#[must_use]
pub fn nanoseconds_text(ns: i64) -> String {
    let (seconds, fraction) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (year, month, day) = date_of(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z")
}

/// `now`, an RFC 3339 time, or `-10 s` for 10 s ago.
pub fn when(text: &str) -> Result<When, Refused> {
    match text.trim() {
        "now" => Ok(When::Now),
        ago if ago.starts_with('-') => duration(&ago[1..]).map(When::Ago),
        other => time(other)
            .map(When::At)
            .map_err(|refused| Refused::new(refused.cause, format!("{}, `now`, or `-10 s`", refused.hint))),
    }
}

/// Foreign text made safe for a message: control characters escaped, at most `QUOTE_CHARS_MAX` characters.
#[must_use]
pub fn shortened(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(limits::QUOTE_CHARS_MAX) {
        match c {
            '\'' | '"' => out.push(c),
            _ => out.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(limits::QUOTE_CHARS_MAX).is_some() {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, ns) in [
            ("2 s", 2_000_000_000),
            ("500 ms", 500_000_000),
            ("10min", 600_000_000_000),
            ("1 h", 3_600_000_000_000),
            ("250 us", 250_000),
            ("0.1 s", 100_000_000),
            ("1_000 ns", 1000),
        ] {
            assert_eq!(duration(text).unwrap(), Duration::from_nanos(ns), "{text}");
        }
        for text in [
            "",
            "2",
            "s",
            "-2 s",
            "1.5 ns",
            "1e3 s",
            "2 S",
            "1..5 s",
            "1. s",
            ".5 s",
            "99999999999999999999 s",
            "1000000 d",
            "2 s 3 ms",
            "٣ s",
        ] {
            assert!(duration(text).is_err(), "{text} was taken");
        }
        assert_eq!(duration("2").unwrap_err().hint, "write `2 s`; units are ns, us, ms, s, min, h, d");
        assert_eq!(duration("5 m").unwrap_err().hint, "write `5 min`; units are ns, us, ms, s, min, h, d");
    }

    #[test]
    fn sizes_are_exact() {
        for (text, bytes) in
            [("64 MiB", 64 << 20), ("1 GB", 1_000_000_000), ("4 kB", 4000), ("1.5 KiB", 1536), ("0 B", 0)]
        {
            assert_eq!(size(text).unwrap(), Size(bytes), "{text}");
        }
        for text in ["64", "64 M", "1.5 B", "17179869184 TiB", "64 mib"] {
            assert!(size(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn what_is_printed_reads_back() {
        for ns in [0, 1, 999, 1_500_000_000, 60_000_000_000, 86_400_000_000_000, 1_234_567_890_123] {
            let value = Duration::from_nanos(ns);
            assert_eq!(duration(&duration_text(value)).unwrap(), value);
        }
        for bytes in [0, 1, 1000, 1024, 64 << 20, 1_000_000_000, (1 << 40) + 1, u64::MAX] {
            assert_eq!(size(&size_text(Size(bytes))).unwrap(), Size(bytes));
        }
    }

    #[test]
    fn every_day_from_1970_to_2200_reads_back() {
        for day in 0..84_000i64 {
            let value = Time(day * 86_400_000_000_000 + day * 1_000_003);
            assert_eq!(time(&time_text(value)).unwrap(), value);
        }
        // Independent fixed points (`date -u -d @N`).
        assert_eq!(time("2026-03-01T12:00:00Z").unwrap(), Time(1_772_366_400_000_000_000));
        assert_eq!(time("2000-02-29T23:59:59.5Z").unwrap(), Time(951_868_799_500_000_000));
        assert_eq!(time("2026-03-01T13:00:00+01:00"), time("2026-03-01T12:00:00Z"));
    }

    #[test]
    fn wrong_times_are_refused() {
        for text in [
            "",
            "now",
            "2026-03-01",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-03-01T24:00:00Z",
            "1969-12-31T00:00:00Z",
            "1970-01-01T00:00:00+02:00",
            "2026-03-01T12:00:00.Z",
            "2026-03-01T12:00:00Zx",
            "2026_03_01T12:00:00Z",
        ] {
            assert!(time(text).is_err(), "{text} was taken");
        }
        assert_eq!(time("2026-03-01T12:00:00").unwrap_err().hint, "write `2026-03-01T12:00:00Z` for UTC");
    }

    #[test]
    fn commands_take_now_and_ago() {
        assert_eq!(when("now"), Ok(When::Now));
        assert_eq!(when("-10 s"), Ok(When::Ago(Duration::from_secs(10))));
        assert_eq!(when("1970-01-01T00:00:01Z"), Ok(When::At(Time(1_000_000_000))));
        assert!(when("10 s").is_err());
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(shortened("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shortened("it's"), "it's");
        assert!(shortened(&"x".repeat(10_000)).len() < 100);
    }
}
