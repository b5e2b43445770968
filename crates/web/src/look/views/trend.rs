//! A trend: numbers over time.

use super::super::trends::has_values;
use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use flow::Fault;

pub(super) static TREND: ViewKind =
    ViewKind { is_of_time: true, options: &["search"], ..ViewKind::new("trend", has_values, || Box::new(Trend)) };

struct Trend;

impl View for Trend {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let Scene { panel, at, .. } = scene;
        let stream = scene.streams.opened(&panel.stream)?;
        scene.trends.show(stream, panel, panel.times(at), object, answer)
    }
}
