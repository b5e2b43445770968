//! Values of flags. An error says what to type instead.

use crate::file::{Word as _, is_run_name, nearest};
use crate::limits::DAY;
use flow::job::Layout;
use settings::{When, units};
use std::time::{Duration, SystemTime};

fn number(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| "not a number".to_owned())?;
    if (low..=high).contains(&number) { Ok(number) } else { Err(format!("write a number from {low:e} to {high:e}")) }
}

pub(crate) fn rate(text: &str) -> Result<f64, String> {
    number(text, 1.0, sim::limits::RATE_MAX)
}

pub(crate) fn factor(text: &str) -> Result<f64, String> {
    number(text, 1e-6, sim::limits::SCALE_MAX)
}

pub(crate) fn profile(text: &str) -> Result<String, String> {
    let known = || std::iter::once("amor").chain(sim::ess::PROFILES.iter().map(|profile| profile.name));
    if known().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    Err(match nearest(text, known()) {
        Some(near) => format!("unknown profile; did you mean `{near}`?"),
        None => format!("unknown profile; write one of {}", known().collect::<Vec<_>>().join(", ")),
    })
}

/// A duration above zero.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    match units::duration(text) {
        Ok(Duration::ZERO) => Err("must be more than 0; write a length like `10 s`".to_owned()),
        other => other.map_err(|refused| refused.to_string()),
    }
}

pub(crate) fn layout(text: &str) -> Result<Layout, String> {
    let words = || Layout::ALL.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
    Layout::of(text).ok_or_else(|| format!("write {}", words()))
}

pub(crate) fn run_name(text: &str) -> Result<String, String> {
    if is_run_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a run's name is up to 64 letters, digits, `_` and `-`".to_owned())
    }
}

pub(crate) fn json_object(text: &str) -> Result<serde_json::Map<String, serde_json::Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

/// `NAME=VALUE`: the value is JSON, or text as it stands.
pub(crate) fn parameter(text: &str) -> Result<(String, serde_json::Value), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            Ok((name.trim().to_owned(), value))
        }
        _ => Err("write `NAME=VALUE`, like `threshold=3`".to_owned()),
    }
}

/// `NAME=NUMBER`.
pub(crate) fn slots(text: &str) -> Result<(String, u32), String> {
    let wrong = || "write `NAME=NUMBER`, like `mean=4`".to_owned();
    let (name, number) = text.split_once('=').ok_or_else(wrong)?;
    Ok((name.trim().to_owned(), number.trim().parse().map_err(|_| wrong())?))
}

/// A time as `settings::units::when` reads it, or as people write it, in UTC: `14:03`, `14:03:10.250`, the newest one
/// that is not in the future; `2026-11-26 14:03`, or a date alone.
pub(crate) fn moment(text: &str) -> Result<When, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    moment_at(text, i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

fn moment_at(text: &str, now: i64) -> Result<When, String> {
    let how = "write `14:03` or `2026-03-01 14:03` (UTC), a time like `2026-03-01T12:00:00Z`, `now`, or `-10 s`";
    let refused = |refused: units::Refused| match text.trim().starts_with('-') {
        true => refused.to_string(),
        false => format!("{}; {how}", refused.cause),
    };
    let words = text.trim().trim_end_matches("UTC").trim_end_matches(['Z', 'z']).trim_end();
    let (date, clock) = match words.split_once([' ', 'T', 't']) {
        Some((date, clock)) => (Some(date), clock.trim_start()),
        None if words.contains(':') => (None, words),
        None => (Some(words), "00:00"),
    };
    let is_date = |date: &str| date.len() == 10 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let Some(clock) = clock_of(clock).filter(|_| date.is_none_or(is_date)) else {
        return units::when(text).map_err(refused);
    };
    let date_or_first = date.unwrap_or("1970-01-01");
    let time = units::time(&format!("{date_or_first}T{clock}Z")).map_err(refused)?;
    if date.is_some() {
        return Ok(When::At(time));
    }
    let today = now - now.rem_euclid(DAY) + time.0;
    Ok(When::At(settings::Time(if today > now { today - DAY } else { today })))
}

/// A time of day with all its digits: `9:03` is `09:03:00`. None where it is not one.
fn clock_of(text: &str) -> Option<String> {
    let (clock, rest) = text.split_once(['.', ',']).map_or((text, None), |(clock, rest)| (clock, Some(rest)));
    let parts: Vec<&str> = clock.split(':').collect();
    let is_number = |part: &&str| (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let is_fraction = |rest: &str| parts.len() == 3 && rest.bytes().all(|b| b.is_ascii_digit());
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(is_number) || !rest.is_none_or(is_fraction) {
        return None;
    }
    let seconds = parts.get(2).copied().unwrap_or("00");
    let rest = rest.map(|rest| format!(".{rest}")).unwrap_or_default();
    Some(format!("{:0>2}:{:0>2}:{:0>2}{rest}", parts[0], parts[1], seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_on_the_page() {
        // 2026-03-01 12:00 UTC.
        let now = 1_772_366_400_000_000_000;
        let hour = 3_600_000_000_000;
        for (text, ns) in [
            ("11:00", now - hour),
            ("11:00Z", now - hour),
            ("9:00:30.5", now - 3 * hour + 30_500_000_000),
            ("12:00", now),
            // That of yesterday.
            ("14:03", now - 22 * hour + 180_000_000_000),
            ("2026-03-01", now - 12 * hour),
            ("2030-01-01", 1_893_456_000_000_000_000),
            ("2026-03-01 11:00", now - hour),
            ("2026-03-01T11:00 UTC", now - hour),
            ("2026-03-01T13:00:00+01:00", now),
            ("2026-03-01T12:00:00.000001+00:00", now + 1000),
            ("2026-03-01T12:00:00.5Z", now + 500_000_000),
        ] {
            assert_eq!(moment_at(text, now), Ok(When::At(settings::Time(ns))), "{text}");
        }
        assert_eq!(moment_at("-10 s", now), Ok(When::Ago(Duration::from_secs(10))));
        assert_eq!(moment_at("now", now), Ok(When::Now));
    }

    #[test]
    fn what_is_no_moment_is_refused_with_what_to_write() {
        for text in ["", "25:00", "14:3x", "14", "14:03.5", "2026-13-01", "2026-02-30", "yesterday", "2026-3-1", "10 s"]
        {
            let refused = moment_at(text, 0).unwrap_err();
            assert!(refused.contains("`14:03`"), "{text}: {refused}");
        }
    }
}
