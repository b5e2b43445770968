//! Events by time of flight: how many came at each, as a curve, in a window that ends with the newest message.

use super::super::view::{Object, Scene, View, ViewKind};
use super::events::{Field, add, gather, has_events};
use crate::answer::Answer;
use flow::Fault;
use serde_json::{Value, json};

pub(super) static SPECTRUM: ViewKind = ViewKind {
    suits: Some(|stream, found| stream.payload(found.sequence, &mut |bytes| Ok(is_without_pixels(bytes)))),
    ..ViewKind::new("spectrum", has_events, || Box::new(Spectrum))
};

struct Spectrum;

impl View for Spectrum {
    /// Adds the number of events at each time of flight. The panel has a bin for each column.
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let panel = scene.panel;
        let (stream, found) = scene.message()?;
        let times = gather(stream, panel, &found, Field::Times, object)?;
        let largest = i64::from(times.iter().copied().max().unwrap_or(0)).max(1);
        let (from, to) = match panel.region {
            Some([from, _, to, _]) if from < to => (i64::from(from), i64::from(to)),
            Some(_) => return Err(Fault::new("the region of the spectrum is empty", "x1 is not larger than x0")),
            None => (0, rounded(largest + 1)),
        };
        let width = panel.size().0.min((to - from) as usize);
        let (mut counts, mut outside) = (vec![0.0_f64; width], 0_u64);
        let scale = width as f64 / (to - from) as f64;
        for time in times {
            let at = i64::from(time) - from;
            match usize::try_from(at).ok().and_then(|at| counts.get_mut((at as f64 * scale) as usize)) {
                Some(count) => *count += 1.0,
                None => outside += 1,
            }
        }
        let edges: Vec<f64> = (0..=width).map(|at| from as f64 + at as f64 / scale).collect();
        answer.room(2 * width + 1, 8)?;
        let facts = json!({
            "outside": outside,
            "region": [from, 0, to, 0],
            "name": "events",
            "unit": "counts",
            "axis": {"name": "time_of_flight", "unit": "ns", "edges": true},
            "low": counts.iter().copied().reduce(f64::min),
            "high": counts.iter().copied().reduce(f64::max),
            "arrays": {"x": answer.array(&[width + 1], &edges), "y": answer.array(&[width], &counts)},
        });
        if let Value::Object(facts) = facts {
            object.extend(facts);
        }
        Ok(())
    }
}

/// Whether a message has times alone: it comes from a monitor without pixels.
fn is_without_pixels(bytes: &[u8]) -> bool {
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    let is_read = add(bytes, Field::Pixels, &mut ids) && add(bytes, Field::Times, &mut times);
    is_read && ids.is_empty() && !times.is_empty()
}

/// The next number with two digits that count, so that an axis is the same from look to look.
fn rounded(value: i64) -> i64 {
    let step = 10_i64.pow((value.max(1).ilog10()).saturating_sub(1));
    (value + step - 1) / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_ends_at_a_number_of_two_digits() {
        let ends = [1, 9, 10, 99, 100, 101, 71_400_001].map(rounded);
        assert_eq!(ends, [1, 9, 10, 99, 100, 110, 72_000_000]);
    }
}
