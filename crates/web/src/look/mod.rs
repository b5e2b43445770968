//! Panels: what streams hold at a moment, reduced to the pixels that are asked for.
//!
//! A [`Request`] names panels, each of a stream. The [`Looker`] keeps the streams open from one request to the next.
//! `docs/reference/web.md` has the keys of requests and answers.
//!
//! Failure behaviour: a panel that cannot be shown has a fault in the answer, and the others are shown.

mod cache;
mod detectors;
mod events;
mod gaps;
mod groups;
mod image;
mod labelled;
mod message;
mod stream;
mod times;
mod trend;
mod view;

use crate::answer::Answer;
use crate::limits::{PANELS_MAX, PIXELS_MAX, TREND_TIME};
use flow::{Data, Fault};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::hex;
use stream::{Found, Stream, Streams};
use view::View;

/// Panels at one moment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// ns since 1970 UTC; none: now.
    #[serde(default)]
    at: Option<i64>,
    /// As JSON: one that is wrong is a fault of that panel alone.
    panels: Vec<Value>,
}

/// One panel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    stream: String,
    #[serde(default)]
    view: View,
    #[serde(default = "pixels")]
    width: u32,
    #[serde(default = "pixels")]
    height: u32,
    region: Option<[u32; 4]>,
    #[serde(default)]
    reduce: image::Reduce,
    window: Option<i64>,
    shape: Option<[u32; 2]>,
    #[serde(default = "first_pixel")]
    first_pixel: i32,
    origin: Option<String>,
    sequence: Option<u64>,
    #[serde(default)]
    step: i8,
    known: Option<String>,
}

fn pixels() -> u32 {
    512
}

/// As of the worker `histogram`.
fn first_pixel() -> i32 {
    1
}

impl Request {
    /// Reads a request.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let request: Self = serde_json::from_slice(bytes).map_err(|e| wrong("request", e.to_string()))?;
        if request.panels.len() > PANELS_MAX {
            let cause = format!("it names {} panels, more than {PANELS_MAX}", request.panels.len());
            return Err(wrong("request", cause));
        }
        Ok(request)
    }
}

impl Panel {
    fn read(value: &Value) -> Result<Self, Fault> {
        let panel = Self::deserialize(value).map_err(|e| wrong("panel", e.to_string()))?;
        if panel.window.is_some_and(|window| window <= 0) {
            return Err(wrong("panel", "`window` is not positive".into()));
        }
        Ok(panel)
    }
}

fn wrong(part: &str, cause: String) -> Fault {
    Fault::new(format!("the {part} is wrong"), cause).hint("docs/reference/web.md lists the keys of a request")
}

/// Answers requests.
pub(crate) struct Looker {
    data: Data,
    streams: Streams,
    trends: trend::Trends,
    shapes: events::Shapes,
    books: times::Books,
    cache: cache::Cache,
}

impl Looker {
    /// `readers`: streams that it may keep open.
    pub(crate) fn new(data: &Data, readers: usize) -> Self {
        Self {
            data: data.clone(),
            streams: Streams::new(readers),
            trends: trend::Trends::default(),
            shapes: events::Shapes::default(),
            books: times::Books::new(data),
            cache: cache::Cache::default(),
        }
    }

    /// The body of the answer.
    pub(crate) fn look(&mut self, request: &Request) -> Result<Vec<u8>, Fault> {
        let now = self.data.media.now();
        let mut answer = Answer::default();
        for asked in &request.panels {
            let mut object = Map::new();
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

    /// Shows what is not of one message.
    fn over_time(
        &mut self,
        panel: &Panel,
        at: i64,
        width: usize,
        object: &mut Map<String, Value>,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        object.insert("view".into(), panel.view.word().into());
        let times = trend_times(panel, at);
        let from = (&self.data, &mut self.streams, &mut self.books);
        match panel.view {
            View::Times => return times::show(from, panel, times, width, object, answer),
            View::Gap => return times::next_gap(from, panel, at, object),
            _ => {}
        }
        let stream = self.streams.open(&self.data, &panel.stream)?;
        match panel.view {
            View::Alarm => self.trends.alarm(stream, panel, at, object),
            _ => self.trends.show(stream, panel, times, width, object, answer),
        }
    }

    fn panel(
        &mut self,
        panel: &Panel,
        at: Option<i64>,
        now: i64,
        object: &mut Map<String, Value>,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        let size = (panel.width.clamp(1, PIXELS_MAX) as usize, panel.height.clamp(1, PIXELS_MAX) as usize);
        if matches!(panel.view, View::Times | View::Gap | View::Alarm)
            || panel.view == View::Trend && panel.sequence.is_none()
        {
            return self.over_time(panel, at.unwrap_or(now), size.0, object, answer);
        }
        let stream = self.streams.open(&self.data, &panel.stream)?;
        let found = stream.find(panel, at)?;
        let view = if panel.view == View::Auto { auto(stream, &found)? } else { panel.view };
        object.insert("view".into(), view.word().into());
        let identity = format!("{}/{}/{}", hex(&stream.uuid()), found.epoch, found.sequence);
        if view == View::Trend {
            return self.trends.show(stream, panel, trend_times(panel, at.unwrap_or(now)), size.0, object, answer);
        }
        object.insert("identity".into(), identity.clone().into());
        if panel.known.as_ref() == Some(&identity) {
            object.insert("same".into(), true.into());
            return Ok(());
        }
        let how = (size, panel.region, panel.reduce, panel.window, panel.shape, panel.first_pixel, &panel.origin);
        let key = format!("{identity} {view:?} {how:?}");
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
        match view {
            View::Events => self.shapes.show((&self.data.folder, &mut *stream), panel, &found, size, object, answer),
            View::Spectrum => events::spectrum(stream, panel, &found, size.0, object, answer),
            View::Groups => groups::show(&self.data, stream, panel, &found, object, answer),
            View::Curve => {
                stream.payload(found.sequence, &mut |bytes| labelled::curve(bytes, panel, size.0, object, answer))
            }
            View::Image => stream.payload(found.sequence, &mut |bytes| image::show(bytes, panel, size, object, answer)),
            _ => stream.payload(found.sequence, &mut |bytes| {
                message::show(bytes, object);
                Ok(())
            }),
        }?;
        object.extend(stream.lost.fault().map(|fault| ("unreadable".to_owned(), fault.to_json())));
        self.cache.keep(key, answer.drawn(mark, object));
        Ok(())
    }
}

/// The times of a trend.
fn trend_times(panel: &Panel, to: i64) -> (i64, i64) {
    (to.saturating_sub(panel.window.unwrap_or(TREND_TIME)), to)
}

/// The view of a message. Some schemas hold what is drawn in several ways.
fn auto(stream: &mut Stream, found: &Found) -> Result<View, Fault> {
    let schema = found.entry.schema.0;
    let mut view = View::of(schema);
    let inside = match view {
        View::Events => events::view,
        View::Image if View::Curve.shows(schema) => labelled::view,
        _ => return Ok(view),
    };
    stream.payload(found.sequence, &mut |bytes| {
        view = inside(bytes);
        Ok(())
    })?;
    Ok(view)
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
