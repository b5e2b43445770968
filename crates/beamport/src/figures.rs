//! Figures as people read them: thousands separated, SI units, times by RFC 3339.

use settings::units::{self, Time};

/// 1234567 as `1,234,567`.
#[must_use]
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits and an SI prefix: 1234567 `B` as `1.23 MB`; below 1000 as it is.
#[must_use]
pub fn si(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (mut value, mut at) = (value.max(0.0), 0);
    // From 999.5 on, three digits would be four.
    while value >= 999.5 && at + 1 < PREFIXES.len() {
        (value, at) = (value / 1000.0, at + 1);
    }
    let digits = match (at, value) {
        (0, v) if v.fract() == 0.0 => 0,
        (_, v) if v >= 99.95 => 0,
        (_, v) if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {}{unit}", PREFIXES[at])
}

/// Names in quotes; three or more in a row as the family that an instrument file writes: `` `d{001..120}` ``.
#[must_use]
pub fn families(names: &[&str]) -> Vec<String> {
    let mut folded = Vec::new();
    let mut rest = names;
    while let Some((first, others)) = rest.split_first() {
        let mut count = 1;
        while others.get(count - 1).is_some_and(|other| follows(rest[count - 1], other)) {
            count += 1;
        }
        let (prefix, from) = split_number(first);
        match rest[count - 1].get(prefix.len()..).filter(|_| count > 2) {
            Some(to) => folded.push(format!("`{prefix}{{{from}..{to}}}`")),
            None => {
                count = 1;
                folded.push(format!("`{first}`"));
            }
        }
        rest = &rest[count..];
    }
    folded
}

/// A name without the digits at its end, and these.
fn split_number(name: &str) -> (&str, &str) {
    name.split_at(name.trim_end_matches(|c: char| c.is_ascii_digit()).len())
}

/// Whether a name has the number behind that of another one.
fn follows(name: &str, other: &str) -> bool {
    let (prefix, digits) = split_number(name);
    let width = if digits.starts_with('0') { digits.len() } else { 1 };
    let next = digits.parse::<u64>().ok().and_then(|number| number.checked_add(1));
    next.is_some_and(|next| other.strip_prefix(prefix).is_some_and(|other| other == format!("{next:0width$}")))
}

/// Bytes with an SI prefix.
#[must_use]
pub fn bytes(value: u64) -> String {
    si(value as f64, "B")
}

/// A share from 0 to 1 as `12 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 1.0 { "<1 %".into() } else { format!("{percent:.0} %") }
}

/// A span of ns: `12.3 s`, `250 ms`, `1 h 02 min`.
#[must_use]
pub fn span(ns: i64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds.abs() {
        s if s < 0.9995 => format!("{:.0} ms", seconds * 1e3),
        s if s < 99.95 => format!("{seconds:.1} s"),
        s if s < 3570.0 => {
            format!("{:.0} min {:02} s", (seconds / 60.0).trunc(), (seconds.trunc() as i64).rem_euclid(60))
        }
        _ => format!("{} h {:02} min", seconds.round() as i64 / 3600, seconds.round() as i64 / 60 % 60),
    }
}

/// A time by RFC 3339 with exactly nine digits behind the second, so that columns stay in place.
#[must_use]
pub fn instant(ns: i64) -> String {
    let fraction = ns.rem_euclid(1_000_000_000);
    let whole = units::time_text(Time(ns.saturating_sub(fraction)));
    format!("{}.{fraction:09}Z", whole.split(['.', 'Z']).next().unwrap_or_default())
}

/// A time by RFC 3339 to the millisecond: enough to know a run by.
#[must_use]
pub fn moment(ns: i64) -> String {
    let text = instant(ns);
    format!("{}Z", text.get(..text.len().saturating_sub(7)).unwrap_or_default())
}

/// `detector: messages 364 to 1,815 were marked, and a recovery cut them`.
#[must_use]
pub fn cut(gap: &flow::records::Gap) -> String {
    let (first, last) = (thousands(gap.first), thousands(gap.last));
    format!("{}: messages {first} to {last} were marked, and a recovery cut them", gap.stream)
}

/// A time in which a stream had no source.
#[must_use]
pub fn absent(gap: &flow::records::Gap) -> String {
    let (from, to) = (moment(gap.from), moment(gap.to));
    format!("the source of `{}` was absent from {from} to {to} ({})", gap.stream, span(gap.to.saturating_sub(gap.from)))
}

/// A count, or `-` where it is not known.
#[must_use]
pub fn known(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), thousands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_numbers_in_a_row_are_a_family() {
        let boards: Vec<String> = (1..=120).map(|at| format!("d{at:03}")).collect();
        let names: Vec<&str> =
            boards.iter().map(String::as_str).chain(["aux", "b8", "b9", "b10", "b12", "c1"]).collect();
        assert_eq!(families(&names), ["`d{001..120}`", "`aux`", "`b{8..10}`", "`b12`", "`c1`"]);
        assert_eq!(families(&["a1", "a2", "7", "8", "9", ""]), ["`a1`", "`a2`", "`{7..9}`", "``"]);
        assert!(families(&[]).is_empty());
    }

    #[test]
    fn thousands_are_separated() {
        let told: Vec<String> = [0, 999, 1000, 123_456, 1_234_567, u64::MAX].map(thousands).into();
        assert_eq!(told, ["0", "999", "1,000", "123,456", "1,234,567", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn units_have_three_digits() {
        let told: Vec<String> =
            [0.0, 7.0, 999.0, 999.6, 1234.0, 12_340.0, 123_400.0, 999_600.0, 1.5e9].map(|v| si(v, "B")).into();
        assert_eq!(told, ["0 B", "7 B", "999 B", "1.00 kB", "1.23 kB", "12.3 kB", "123 kB", "1.00 MB", "1.50 GB"]);
        assert_eq!(si(0.25, "/s"), "0.25 /s");
        assert_eq!(si(1e30, "B"), "1000000000000 EB");
    }

    #[test]
    fn spans_change_their_unit() {
        let told: Vec<String> = [250_000_000, 12_345_000_000, 125_000_000_000, 3_725_000_000_000].map(span).into();
        assert_eq!(told, ["250 ms", "12.3 s", "2 min 05 s", "1 h 02 min"]);
    }

    #[test]
    fn times_keep_their_columns() {
        assert_eq!(instant(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(instant(1_772_366_400_000_000_007), "2026-03-01T12:00:00.000000007Z");
        assert_eq!(moment(1_772_366_400_120_000_007), "2026-03-01T12:00:00.120Z");
        // Sources may send any number: nothing overflows.
        assert!(instant(i64::MAX).starts_with("2262-04-11T"));
        assert!(instant(i64::MIN).ends_with('Z'));
    }

    #[test]
    fn little_is_not_nothing() {
        assert_eq!([percent(0.0), percent(0.001), percent(0.5), percent(1.0)], ["0 %", "<1 %", "50 %", "100 %"]);
    }
}
