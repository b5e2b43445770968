//! Values of flags. An error says what to type instead.

use crate::file::{Word as _, is_run_name, nearest};
use flow::job::Layout;
use settings::units;
use std::time::Duration;

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
