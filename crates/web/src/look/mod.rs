//! Panels: what streams hold at a moment, reduced to the pixels that are asked for.
//!
//! A [`Request`] names panels, each of a stream. The [`Looker`] keeps the streams open from one request to the next.
//! `docs/reference/web.md` has the keys of requests and answers.
//!
//! Failure behaviour: a panel that cannot be shown has a fault in the answer, and the others are shown.

mod cache;
mod detectors;
mod gaps;
mod grid;
mod labelled;
mod lanes;
mod panel;
mod pixels;
mod stream;
mod times;
mod trends;
mod view;
mod views;

use crate::answer::Answer;
use flow::{Data, Fault};
use lanes::Books;
use panel::{AUTO, Panel, wrong};
use serde_json::{Value, json};
use store::hex;
use stream::{Found, Stream, Streams};
use trends::Trends;
use view::{Object, Scene, View, ViewKind};
use views::{MESSAGE, VIEWS};

pub(crate) use panel::Request;

/// Answers requests.
pub(crate) struct Looker {
    data: Data,
    streams: Streams,
    /// One for each of [`VIEWS`].
    views: Vec<Box<dyn View>>,
    trends: Trends,
    books: Books,
    cache: cache::Cache,
}

impl Looker {
    /// `readers`: streams that it may keep open.
    pub(crate) fn new(data: &Data, readers: usize) -> Self {
        Self {
            data: data.clone(),
            streams: Streams::new(readers),
            views: VIEWS.iter().map(|kind| (kind.build)()).collect(),
            trends: Trends::default(),
            books: Books::new(data),
            cache: cache::Cache::default(),
        }
    }

    /// The body of the answer.
    pub(crate) fn look(&mut self, request: &Request) -> Result<Vec<u8>, Fault> {
        let now = self.data.media.now();
        let mut answer = Answer::default();
        for asked in &request.panels {
            let mut object = Object::new();
            object.insert("stream".into(), asked["stream"].as_str().unwrap_or_default().into());
            let shown =
                Panel::read(asked).and_then(|panel| self.panel(&panel, request.at, now, &mut object, &mut answer));
            if let Err(fault) = shown {
                object.insert("fault".into(), fault.to_json());
            }
            answer.panel(object);
        }
        self.streams.release();
        Ok(answer.body(now))
    }

    fn panel(
        &mut self,
        panel: &Panel,
        at: Option<i64>,
        now: i64,
        object: &mut Object,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        let asked = asked_view(panel)?;
        let stream = self.streams.open(&self.data, &panel.stream)?;
        let (view, found) = match asked {
            Some(view) if VIEWS[view].is_of_time => (view, None),
            _ => {
                let found = stream.find(panel, &|schema| is_shown(asked, schema), at)?;
                (asked.map_or_else(|| chosen(stream, &found), Ok)?, Some(found))
            }
        };
        object.insert("view".into(), VIEWS[view].word.into());
        match found.filter(|_| !VIEWS[view].is_of_time) {
            None => self.draw(view, (panel, at.unwrap_or(now), None), object, answer),
            Some(found) => self.message(view, (panel, at.unwrap_or(now), found), object, answer),
        }
    }

    /// Draws what is of a message, or shows again what was drawn of it.
    fn message(
        &mut self,
        view: usize,
        (panel, at, found): (&Panel, i64, Found),
        object: &mut Object,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        let stream = self.streams.opened(&panel.stream)?;
        let identity = format!("{}/{}/{}", hex(&stream.uuid()), found.epoch, found.sequence);
        object.insert("identity".into(), identity.clone().into());
        if panel.known.as_ref() == Some(&identity) {
            object.insert("same".into(), true.into());
            return Ok(());
        }
        let key = format!("{identity} {} {}", VIEWS[view].word, panel.drawn_by());
        if let Some(drawn) = self.cache.show(&key, answer) {
            *object = drawn;
            return Ok(());
        }
        let mark = answer.mark();
        let facts = json!({
            "schema": found.entry.schema.as_text(),
            "sequence": found.sequence,
            "epoch": found.epoch,
            "source_time": found.entry.source_time,
            "arrival_time": found.entry.arrival_time,
            "origin": stream.origin(found.entry.origin),
        });
        if let Value::Object(facts) = facts {
            object.extend(facts);
        }
        self.draw(view, (panel, at, Some(found)), object, answer)?;
        let lost = self.streams.opened(&panel.stream)?.lost.fault();
        object.extend(lost.map(|fault| ("unreadable".to_owned(), fault.to_json())));
        self.cache.keep(key, answer.drawn(mark, object));
        Ok(())
    }

    fn draw(
        &mut self,
        view: usize,
        (panel, at, found): (&Panel, i64, Option<Found>),
        object: &mut Object,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        let Self { data, streams, views, trends, books, .. } = self;
        views[view].show(Scene { panel, at, found, data, streams, trends, books }, object, answer)
    }
}

/// The place in [`VIEWS`] of the view that a panel asks for; none where the newest message chooses it. Fails for keys
/// that no view has.
fn asked_view(panel: &Panel) -> Result<Option<usize>, Fault> {
    let is_known = |key: &String| VIEWS.iter().any(|kind| kind.options.contains(&key.as_str()));
    if let Some(key) = panel.options.keys().find(|key| !is_known(key)) {
        return Err(wrong("panel", format!("unknown key `{key}`")));
    }
    if panel.is_auto() {
        return Ok(None);
    }
    let place = VIEWS.iter().position(|kind| kind.word == panel.view);
    let words = || VIEWS.map(|kind| kind.word).join(", ");
    place.map(Some).ok_or_else(|| wrong("panel", format!("`{}` is no view: {AUTO}, {}", panel.view, words())))
}

/// Whether messages of a schema can be drawn as a panel asks: without a view, as more than their fields.
fn is_shown(asked: Option<usize>, schema: [u8; 4]) -> bool {
    match asked {
        Some(view) => (VIEWS[view].of)(schema),
        None => VIEWS.iter().find(|kind| (kind.of)(schema)).is_some_and(|kind| kind.word != MESSAGE.word),
    }
}

/// The place in [`VIEWS`] of the view of a message.
fn chosen(stream: &mut Stream, found: &Found) -> Result<usize, Fault> {
    for (place, ViewKind { of, suits, .. }) in VIEWS.iter().enumerate() {
        let Some(suits) = suits.filter(|_| of(found.entry.schema.0)) else { continue };
        if suits(stream, found)? {
            return Ok(place);
        }
    }
    Err(Fault::new("the message has no view", "its schema has none"))
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
