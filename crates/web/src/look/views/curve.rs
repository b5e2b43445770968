//! A curve: the numbers of an array in one dimension.

use super::super::labelled::{self, dimensions, is_labelled};
use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use flow::Fault;

pub(super) static CURVE: ViewKind = ViewKind {
    suits: Some(|stream, found| Ok(stream.payload(found.sequence, &mut |bytes| Ok(dimensions(bytes)))? == Some(1))),
    ..ViewKind::new("curve", is_labelled, || Box::new(Curve))
};

struct Curve;

impl View for Curve {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let panel = scene.panel;
        let (stream, found) = scene.message()?;
        stream.payload(found.sequence, &mut |bytes| labelled::curve(bytes, panel, object, answer))
    }
}
