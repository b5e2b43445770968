//! Times that may be negative, as parameters give them: `"-3 ms"`.

use serde_json::Value as Json;
use settings::units::duration_text;
use settings::{Refused, Section, Take};
use std::time::Duration;
use toml_edit::Item;

/// A signed time, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span(pub(super) i64);

impl Span {
    /// The value of a key, ns.
    pub(super) fn ns(section: &mut Section<'_>, key: &'static settings::Key) -> Option<i64> {
        section.get::<Self>(key).map(|span| span.value.0)
    }
}

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl Take for Span {
    fn take(item: &Item) -> Result<Self, Refused> {
        match item.as_str().and_then(|text| text.trim().strip_prefix('-')) {
            Some(rest) => settings::units::duration(rest).map(|duration| Self(-ns(duration))),
            None => Duration::take(item).map(|duration| Self(ns(duration))),
        }
    }
    fn default_of(text: &str) -> Option<Self> {
        Duration::default_of(text).map(|duration| Self(ns(duration)))
    }
    fn show(&self) -> Json {
        let sign = if self.0 < 0 { "-" } else { "" };
        format!("{sign}{}", duration_text(Duration::from_nanos(self.0.unsigned_abs()))).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_may_be_negative() {
        let span = |text: &str| Span::take(&Item::Value(text.into()));
        for (text, ns) in [("71 ms", 71_000_000), ("-2.5us", -2500), ("0 s", 0), ("- 1 min", -60_000_000_000)] {
            assert_eq!(span(text).unwrap(), Span(ns));
            assert_eq!(span(span(text).unwrap().show().as_str().unwrap()).unwrap(), Span(ns), "{text}");
        }
        for wrong in ["71", "71 furlongs", "", "ms", "--1 s", "nan s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Span::take(&Item::Value(3.into())).unwrap_err().hint, "write a text with a unit, like `\"3 s\"`");
    }
}
