//! The `x5f2` of the forwarder: what it forwards, and how each stream is.
//!
//! Clients of the program whose place it takes compare the rows of `streams` as they are. New facts are in an
//! object of its own, `beamport`: `trouble`, and `streams` with a row for each of theirs, in the same order.

use super::Streams;
use super::entries::Identity;
use crate::reply::{Service, x5f2};
use serde::Serialize;
use serde_json::Value;
use settings::Word;
use std::collections::BTreeMap;

/// Name of the program whose place the forwarder takes; clients look for it.
const SOFTWARE: &str = "Forwarder";

/// How a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Figure {
    connected: bool,
    lost: u64,
    /// Left out for their times.
    skipped: u64,
}

/// How a PV is, by its protocol, name and topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures(BTreeMap<Identity, Figure>);

impl Figures {
    /// From the status of the source.
    pub(crate) fn of_status(status: &Value) -> Self {
        let mut figures: BTreeMap<Identity, Figure> = BTreeMap::new();
        for row in status["streams"].as_array().into_iter().flatten() {
            let Some(identity) = Identity::of_status(row) else { continue };
            let figure = figures.entry(Identity { schema: String::new(), ..identity }).or_default();
            figure.connected |= row["connected"].as_bool().unwrap_or(false);
            figure.lost = figure.lost.max(row["lost"].as_u64().unwrap_or(0));
            figure.skipped = figure.skipped.max(row["skipped"].as_u64().unwrap_or(0));
        }
        Self(figures)
    }
}

#[derive(Serialize)]
struct Row<'a> {
    channel_name: &'a str,
    protocol: &'static str,
    output_topic: &'a str,
    schema: &'static str,
}

#[derive(Serialize)]
struct Own<'a> {
    trouble: Option<&'a str>,
    streams: Vec<Figure>,
}

#[derive(Serialize)]
struct Status<'a> {
    streams: Vec<Row<'a>>,
    beamport: Own<'a>,
}

/// The `x5f2` of these streams. `trouble`: what keeps the forwarder from its work.
pub(crate) fn status(service: &Service, streams: &Streams, figures: &Figures, trouble: Option<&str>) -> Vec<u8> {
    let rows = streams.forwarded.iter().map(|stream| Row {
        channel_name: &stream.channel,
        protocol: stream.protocol.name(),
        output_topic: &stream.topic,
        schema: stream.schema.word(),
    });
    let of_streams = streams.forwarded.iter().map(|stream| {
        let (protocol, pv, topic) = (stream.protocol, stream.channel.clone(), stream.topic.clone());
        figures.0.get(&Identity { protocol, pv, topic, schema: String::new() }).copied().unwrap_or_default()
    });
    let own = Own { trouble, streams: of_streams.collect() };
    let status = Status { streams: rows.collect(), beamport: own };
    x5f2(service, SOFTWARE, &serde_json::to_string(&status).unwrap_or_default())
}
