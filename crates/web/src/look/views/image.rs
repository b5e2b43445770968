//! An image: the pixels of a frame, or the numbers of an array in two dimensions.

use super::super::labelled::{self, dimensions, is_labelled};
use super::super::panel::Panel;
use super::super::pixels::{self, Pixels};
use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use flow::Fault;
use wire::Message;

pub(super) static IMAGE: ViewKind = ViewKind {
    suits: Some(|stream, found| {
        let has_plane = |bytes: &[u8]| Ok(dimensions(bytes).is_some_and(|count| count > 1));
        Ok(!is_labelled(found.entry.schema.0) || stream.payload(found.sequence, &mut |bytes| has_plane(bytes))?)
    }),
    ..ViewKind::new("image", |schema| is_labelled(schema) || matches!(&schema, b"ad00" | b"ADAr"), || Box::new(Image))
};

struct Image;

impl View for Image {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let panel = scene.panel;
        let (stream, found) = scene.message()?;
        stream.payload(found.sequence, &mut |bytes| draw(bytes, panel, object, answer))
    }
}

fn draw(bytes: &[u8], panel: &Panel, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
    let unreadable = |cause: String| Fault::new(format!("no image of stream `{}`", panel.stream), cause);
    match wire::read(bytes).map_err(|e| unreadable(e.to_string()))? {
        Message::Ad00(frame) | Message::Adar(frame) => {
            let pixels = Pixels::new(frame.data.dtype(), frame.data.bytes(), &frame.shape())?;
            pixels::put(&pixels, panel, panel.size(), object, answer).map(drop)
        }
        _ => labelled::image(bytes, panel, object, answer),
    }
}
