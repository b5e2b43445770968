//! The gap of the ledger that begins next.

use super::super::gaps::next;
use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use flow::Fault;
use serde_json::json;

pub(super) static GAP: ViewKind =
    ViewKind { suits: None, is_of_time: true, ..ViewKind::new("gap", |_| true, || Box::new(Gap)) };

struct Gap;

impl View for Gap {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, _answer: &mut Answer) -> Result<(), Fault> {
        let stream = scene.streams.opened(&scene.panel.stream)?;
        stream.refresh_times()?;
        let (gaps, _) = scene.books.gaps(scene.data, &scene.panel.stream, &stream.times)?;
        object.insert("found".into(), json!(next(gaps, scene.at, scene.panel.step >= 0)));
        Ok(())
    }
}
