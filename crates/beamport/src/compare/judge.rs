//! Whether two messages say the same, and what differs where they do not.

use store::Entry;
use wire::{DType, Number as _, Numbers, Scalar, da00, f144};

/// The result for two messages.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// They say the same.
    Same,
    /// Only values differ, by so much at most; none where that is no number.
    Values(Option<f64>),
    /// This differs.
    Differs(&'static str),
}

/// Compares two messages: the worker that made each, its entry and its bytes. That each names its own worker is no
/// difference.
pub(super) fn judge(old: (&str, &Entry, &[u8]), new: (&str, &Entry, &[u8])) -> Verdict {
    if old.1.schema != new.1.schema {
        return Verdict::Differs("schema");
    }
    if old.1.source_time != new.1.source_time {
        return Verdict::Differs("time");
    }
    if old.2 == new.2 {
        return Verdict::Same;
    }
    let names = |first: &str, second: &str| first == second || (first, second) == (old.0, new.0);
    values(old.2, new.2, &names).unwrap_or(Verdict::Differs("bytes"))
}

/// The same of the content; none where it is of no schema with values, or cannot be read.
fn values(old: &[u8], new: &[u8], names: &dyn Fn(&str, &str) -> bool) -> Option<Verdict> {
    let mut most = Most::default();
    let schema = wire::schema_id(old).filter(|id| wire::schema_id(new) == Some(*id))?;
    match schema {
        f144::ID => {
            let (a, b) = (f144::read(old).ok()?, f144::read(new).ok()?);
            if !names(a.source_name, b.source_name) {
                return Some(Verdict::Differs("name"));
            }
            if a.timestamp != b.timestamp {
                return Some(Verdict::Differs("time"));
            }
            match (a.value, b.value) {
                (f144::Value::Scalar(a), f144::Value::Scalar(b)) if a.dtype() == b.dtype() => most.see(a, b),
                (f144::Value::Array(a), f144::Value::Array(b)) => most.all(&a, &b)?,
                _ => return Some(Verdict::Differs("type")),
            }
        }
        wire::ad00::ID => {
            let (a, b) = (wire::ad00::read(old).ok()?, wire::ad00::read(new).ok()?);
            let attributes = |frame: &wire::ad00::Ad00<'_>| -> Vec<_> {
                frame.attributes.iter().map(|a| (a.name.to_owned(), a.data.dtype(), a.data.bytes().to_vec())).collect()
            };
            if !names(a.source_name, b.source_name) {
                return Some(Verdict::Differs("name"));
            }
            if a.id != b.id || a.timestamp != b.timestamp {
                return Some(Verdict::Differs(if a.id != b.id { "id" } else { "time" }));
            }
            if a.dimensions != b.dimensions {
                return Some(Verdict::Differs("shape"));
            }
            if attributes(&a) != attributes(&b) {
                return Some(Verdict::Differs("attributes"));
            }
            most.all(&a.data, &b.data)?;
        }
        da00::ID => {
            let (a, b) = (da00::read(old).ok()?, da00::read(new).ok()?);
            if !names(a.source_name, b.source_name) {
                return Some(Verdict::Differs("name"));
            }
            if a.timestamp != b.timestamp {
                return Some(Verdict::Differs("time"));
            }
            let said = |v: &da00::Variable<'_>| {
                let axes: Vec<String> = v.axes.iter().map(ToString::to_string).collect();
                let text = |text: Option<&str>| text.map(str::to_owned);
                (v.name.to_owned(), text(v.unit), text(v.label), text(v.source), axes)
            };
            if !a.data.iter().map(&said).eq(b.data.iter().map(said)) {
                return Some(Verdict::Differs("variables"));
            }
            for (a, b) in a.data.iter().zip(b.data.iter()) {
                if a.shape != b.shape {
                    return Some(Verdict::Differs("shape"));
                }
                most.all(&a.data, &b.data)?;
            }
        }
        wire::ev44::ID => {
            let (a, b) = (wire::ev44::read(old).ok()?, wire::ev44::read(new).ok()?);
            if !names(a.source_name, b.source_name) {
                return Some(Verdict::Differs("name"));
            }
            if a.message_id != b.message_id {
                return Some(Verdict::Differs("id"));
            }
            if a.reference_time != b.reference_time || a.reference_time_index != b.reference_time_index {
                return Some(Verdict::Differs("time"));
            }
            if a.time_of_flight.len() != b.time_of_flight.len() || a.pixel_id.len() != b.pixel_id.len() {
                return Some(Verdict::Differs("events"));
            }
            a.time_of_flight.iter().zip(b.time_of_flight.iter()).for_each(|(a, b)| most.see(a.scalar(), b.scalar()));
            a.pixel_id.iter().zip(b.pixel_id.iter()).for_each(|(a, b)| most.see(a.scalar(), b.scalar()));
        }
        _ => return None,
    }
    Some(most.verdict())
}

/// The largest difference so far.
#[derive(Default)]
struct Most {
    by: f64,
    /// Values differ.
    differs: bool,
    /// Values differ, and by no finite number: NaN in one of them, for example.
    is_no_number: bool,
    /// Types, lengths or text differ.
    what: Option<&'static str>,
}

impl Most {
    fn see(&mut self, a: Scalar, b: Scalar) {
        if a == b {
            return;
        }
        let (a, b) = (a.to_f64(), b.to_f64());
        match (a - b).abs() {
            by if by.is_finite() => (self.by, self.differs) = (self.by.max(by), true),
            // NaN in both is the same here.
            _ if a.is_nan() && b.is_nan() => {}
            _ => self.is_no_number = true,
        }
    }

    /// None where nobody can tell.
    fn all(&mut self, a: &Numbers<'_>, b: &Numbers<'_>) -> Option<()> {
        if a.dtype() != b.dtype() {
            self.what = self.what.or(Some("type"));
        } else if a.len() != b.len() {
            self.what = self.what.or(Some("shape"));
        } else if a.bytes() != b.bytes() {
            if a.dtype() == DType::Text {
                self.what = self.what.or(Some("text"));
                return Some(());
            }
            for at in 0..a.len() {
                self.see(a.get(at)?, b.get(at)?);
            }
        }
        Some(())
    }

    fn verdict(self) -> Verdict {
        match self {
            Self { what: Some(what), .. } => Verdict::Differs(what),
            Self { is_no_number: true, .. } => Verdict::Values(None),
            Self { by, differs: true, .. } => Verdict::Values(Some(by)),
            _ => Verdict::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, time: i64, value: f64) -> Vec<u8> {
        let mut bytes = Vec::new();
        f144::write(&mut bytes, &f144::F144 { source_name: name, timestamp: time, value: value.into() }).unwrap();
        bytes
    }

    fn told(old: &[u8], new: &[u8]) -> Verdict {
        let names = |a: &str, b: &str| a == b || (a, b) == ("old", "new");
        values(old, new, &names).unwrap()
    }

    #[test]
    fn values_differ_by_how_much_and_other_things_by_name() {
        assert_eq!(told(&value("a", 1, 2.0), &value("a", 1, 2.5)), Verdict::Values(Some(0.5)));
        assert_eq!(told(&value("old", 1, 2.0), &value("new", 1, 2.0)), Verdict::Same);
        assert_eq!(told(&value("new", 1, 2.0), &value("old", 1, 2.0)), Verdict::Differs("name"));
        assert_eq!(told(&value("a", 1, 2.0), &value("a", 2, 2.0)), Verdict::Differs("time"));
        assert_eq!(told(&value("a", 1, 2.0), &value("a", 1, f64::NAN)), Verdict::Values(None));
        assert_eq!(told(&value("a", 1, f64::NAN), &value("a", 1, -f64::NAN)), Verdict::Same);
        let mut whole = Vec::new();
        f144::write(&mut whole, &f144::F144 { source_name: "a", timestamp: 1, value: 2_i32.into() }).unwrap();
        assert_eq!(told(&value("a", 1, 2.0), &whole), Verdict::Differs("type"));
    }

    #[test]
    fn frames_differ_in_shape_or_in_pixels() {
        let frame = |pixels: &[u16], dimensions: &[i64]| {
            let mut bytes = Vec::new();
            let frame = wire::ad00::Ad00 {
                source_name: "camera",
                id: 3,
                timestamp: 1,
                dimensions: dimensions.into(),
                data: pixels.into(),
                attributes: (&[]).into(),
            };
            wire::ad00::write(&mut bytes, &frame).unwrap();
            bytes
        };
        let plain = frame(&[1, 2, 3, 4], &[2, 2]);
        assert_eq!(told(&plain, &frame(&[1, 2, 3, 900], &[2, 2])), Verdict::Values(Some(896.0)));
        assert_eq!(told(&plain, &frame(&[1, 2, 3, 4], &[4, 1])), Verdict::Differs("shape"));
    }
}
