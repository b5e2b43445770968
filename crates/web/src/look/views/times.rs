//! How many messages there are, over time, and which are missing.

use super::super::gaps::{loss, overlaps};
use super::super::lanes::{self, Seals};
use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use crate::limits::GAPS_MAX;
use flow::records::Gap;
use flow::{Fault, aside_of};
use serde_json::{Map, Value, json};

pub(super) static TIMES: ViewKind =
    ViewKind { suits: None, is_of_time: true, ..ViewKind::new("times", |_| true, || Box::new(Times)) };

struct Times;

impl View for Times {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let Scene { panel, at, data, streams, books, .. } = scene;
        let ((from, to), (width, _)) = (panel.times(at), panel.size());
        answer.room(width * 5, 4)?;
        let stream = streams.opened(&panel.stream)?;
        let seals = Seals::of(books.runs.refresh()?, &stream.reader);
        let lane = lanes::lane(stream, &seals, (from, to), width, true)?;
        let arrived = stream.newest().map(|entry| entry.arrival_time);
        let (gaps, known_to) = books.gaps(data, &panel.stream, &stream.times)?;
        let gaps: Vec<&Gap> = gaps.iter().filter(|gap| overlaps(gap, (from, to))).collect();
        let earliest = stream.times.spans.iter().map(|span| span.times.earliest).min();
        let mut arrays = Map::new();
        let mut put = |name: &str, values: &[f64]| {
            let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            arrays.insert(name.into(), answer.array(&[width], &values));
        };
        put("counts", &lane.counts);
        if let Some(lateness) = &lane.lateness {
            put("lateness", lateness);
        }
        if lane.late.iter().any(|count| *count > 0.0) {
            put("late", &lane.late);
        }
        put("lost", &loss(&gaps, (from, to), width));
        if let Ok(stream) = streams.open_book(data, &aside_of(&panel.stream)) {
            put("aside", &lanes::lane(stream, &Seals::default(), (from, to), width, false)?.counts);
        }
        let more = gaps.len().saturating_sub(GAPS_MAX);
        let facts = json!({
            "from": from,
            "to": to,
            "earliest": earliest,
            "arrived": arrived,
            "gaps": gaps[more..],
            "more": more,
            "known_to": known_to,
            "arrays": arrays,
        });
        if let Value::Object(facts) = facts {
            object.extend(facts);
        }
        Ok(())
    }
}
