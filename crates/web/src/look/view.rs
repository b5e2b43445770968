//! What a view is: a way to draw what a stream holds. Those of the page are in [`views`](super::views), a file each.

use super::lanes::Books;
use super::panel::Panel;
use super::stream::{Found, Stream, Streams};
use super::trends::Trends;
use crate::answer::Answer;
use flow::{Data, Fault};
use serde_json::{Map, Value};

/// Whether a view suits a message.
type Suits = fn(&mut Stream, &Found) -> Result<bool, Fault>;

/// A kind of view.
pub(super) struct ViewKind {
    /// The word of a request and of an answer.
    pub(super) word: &'static str,
    /// Whether messages of a schema can be drawn so.
    pub(super) of: fn([u8; 4]) -> bool,
    /// Whether `auto` chooses it for a message that can be drawn so; the first kind of the list that says so is shown.
    /// None: `auto` never does, and the page has no part for it.
    pub(super) suits: Option<Suits>,
    /// Keys of a panel that are of this view alone, for [`Panel::option`].
    pub(super) options: &'static [&'static str],
    /// It shows a time of the stream up to the moment, and not the message of the moment.
    pub(super) is_of_time: bool,
    /// Makes a view; it lives as long as the server.
    pub(super) build: fn() -> Box<dyn View>,
}

impl ViewKind {
    /// A view of single messages, which `auto` chooses for each one of its schemas.
    pub(super) const fn new(word: &'static str, of: fn([u8; 4]) -> bool, build: fn() -> Box<dyn View>) -> Self {
        Self { word, of, suits: Some(|_, _| Ok(true)), options: &[], is_of_time: false, build }
    }
}

/// The keys of a panel in an answer.
pub(super) type Object = Map<String, Value>;

/// Draws panels of one kind.
pub(super) trait View: Send {
    /// Adds to `object` the keys of the answer, and to `answer` its arrays.
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault>;
}

/// The subject of a drawing.
pub(super) struct Scene<'a> {
    pub(super) panel: &'a Panel,
    /// The moment that is shown, ns since 1970 UTC.
    pub(super) at: i64,
    /// The message of the moment; none for a view of a time.
    pub(super) found: Option<Found>,
    pub(super) data: &'a Data,
    pub(super) streams: &'a mut Streams,
    /// The values that views over time share.
    pub(super) trends: &'a mut Trends,
    /// The losses and runs that views share.
    pub(super) books: &'a mut Books,
}

impl<'a> Scene<'a> {
    /// The stream of the panel, and the message of the moment.
    pub(super) fn message(self) -> Result<(&'a mut Stream, Found), Fault> {
        let stream = self.streams.opened(&self.panel.stream)?;
        let none = || Fault::new(format!("stream `{}` has no such message", self.panel.stream), "a time is shown");
        Ok((stream, self.found.ok_or_else(none)?))
    }
}
