//! Events by the number of their pixel, as a curve, in a window that ends with the newest message: for a detector
//! without a known shape.

use super::super::panel::Panel;
use super::super::stream::Stream;
use super::super::view::{Object, Scene, View, ViewKind};
use super::events::{Field, gather, has_events};
use crate::answer::Answer;
use crate::limits::RANGES_MAX;
use flow::Fault;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) static BY_NUMBER: ViewKind = ViewKind {
    // `events` is shown so where it has no picture.
    suits: Some(|_, _| Ok(false)),
    ..ViewKind::new("pixels", has_events, || Box::new(ByNumber::default()))
};

#[derive(Default)]
struct ByNumber {
    known: Known,
}

impl View for ByNumber {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let panel = scene.panel;
        let (stream, found) = scene.message()?;
        let ids = gather(stream, panel, &found, Field::Pixels, object)?;
        let range = self.known.range(stream, panel, &ids);
        draw(range, &ids, panel, object, answer)
    }
}

/// The lowest and the highest pixel of streams so far, by identity and origin: the axis does not change with each look.
#[derive(Default)]
pub(super) struct Known(BTreeMap<([u8; 16], Option<String>), (i32, i32)>);

impl Known {
    /// Those of a stream, of which these pixels are new.
    pub(super) fn range(&mut self, stream: &Stream, panel: &Panel, ids: &[i32]) -> (i32, i32) {
        if self.0.len() >= RANGES_MAX {
            self.0.clear();
        }
        let known = self.0.entry((stream.uuid(), panel.origin.clone())).or_insert((i32::MAX, i32::MIN));
        // A negative number is no pixel.
        for id in ids.iter().filter(|id| **id >= 0) {
            *known = (known.0.min(*id), known.1.max(*id));
        }
        if known.0 > known.1 { (1, 1) } else { *known }
    }
}

/// Adds the number of events of each pixel, or of as many pixels in a row as fall on a column of the panel: each bin
/// has equally many, so that the curve has no steps of its own.
pub(super) fn draw(
    (low, high): (i32, i32),
    ids: &[i32],
    panel: &Panel,
    object: &mut Object,
    answer: &mut Answer,
) -> Result<(), Fault> {
    let (from, to) = match panel.region {
        Some([from, _, to, _]) if from < to => (i64::from(from), i64::from(to)),
        Some(_) => return Err(Fault::new("the region of the pixels is empty", "x1 is not larger than x0")),
        None => (i64::from(low), i64::from(high) + 1),
    };
    let together = (to - from + panel.size().0 as i64 - 1) / panel.size().0 as i64;
    let bins = (to - from + together - 1) / together;
    let (mut counts, mut outside) = (vec![0.0_f64; bins as usize], 0_u64);
    for id in ids {
        let at = i64::from(*id) - from;
        match usize::try_from(at).ok().and_then(|at| counts.get_mut(at / together as usize)) {
            Some(count) => *count += 1.0,
            None => outside += 1,
        }
    }
    let edges: Vec<f64> = (0..=bins).map(|at| (from + at * together) as f64).collect();
    answer.room(2 * counts.len() + 1, 8)?;
    let facts = json!({
        "view": BY_NUMBER.word,
        "outside": outside,
        "region": [from, 0, to, 0],
        "name": "events",
        "unit": "counts",
        "axis": {"name": "pixel number", "unit": null, "edges": true},
        "low": counts.iter().copied().reduce(f64::min),
        "high": counts.iter().copied().reduce(f64::max),
        "arrays": {"x": answer.array(&[edges.len()], &edges), "y": answer.array(&[counts.len()], &counts)},
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Ok(())
}
