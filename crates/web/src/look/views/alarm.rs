//! The alarm, or lost connection, that begins next.

use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use flow::Fault;

pub(super) static ALARM: ViewKind =
    ViewKind { suits: None, is_of_time: true, ..ViewKind::new("alarm", |_| true, || Box::new(Alarm)) };

struct Alarm;

impl View for Alarm {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, _answer: &mut Answer) -> Result<(), Fault> {
        let stream = scene.streams.opened(&scene.panel.stream)?;
        scene.trends.alarm(stream, scene.panel, scene.at, object)
    }
}
