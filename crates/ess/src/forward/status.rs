//! The `x5f2` of the forwarder: what it forwards, and how each stream is.

use super::Streams;
use super::entries::Identity;
use crate::reply::{Service, x5f2};
use serde::Serialize;
use serde_json::Value;
use settings::Word;
use std::collections::BTreeMap;

/// Name of the program whose place the forwarder takes; clients look for it.
const SOFTWARE: &str = "Forwarder";

/// How a PV is, by its protocol, name and topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures(BTreeMap<Identity, (bool, u64)>);

impl Figures {
    /// From the status of the source.
    pub(crate) fn of_status(status: &Value) -> Self {
        let mut figures: BTreeMap<Identity, (bool, u64)> = BTreeMap::new();
        for row in status["streams"].as_array().into_iter().flatten() {
            let Some(identity) = Identity::of_status(row) else { continue };
            let figure = figures.entry(Identity { schema: String::new(), ..identity }).or_default();
            figure.0 |= row["connected"].as_bool().unwrap_or(false);
            figure.1 = figure.1.max(row["lost"].as_u64().unwrap_or(0));
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
    connected: bool,
    lost: u64,
}

#[derive(Serialize)]
struct Status<'a> {
    streams: Vec<Row<'a>>,
    trouble: Option<&'a str>,
}

/// The `x5f2` of these streams. `trouble`: what keeps the forwarder from its work.
pub(crate) fn status(service: &Service, streams: &Streams, figures: &Figures, trouble: Option<&str>) -> Vec<u8> {
    let rows = streams.forwarded.iter().map(|stream| {
        let (protocol, pv, topic) = (stream.protocol, stream.channel.clone(), stream.topic.clone());
        let known = figures.0.get(&Identity { protocol, pv, topic, schema: String::new() });
        let (connected, lost) = known.copied().unwrap_or_default();
        Row {
            channel_name: &stream.channel,
            protocol: stream.protocol.name(),
            output_topic: &stream.topic,
            schema: stream.schema.word(),
            connected,
            lost,
        }
    });
    let status = Status { streams: rows.collect(), trouble };
    x5f2(service, SOFTWARE, &serde_json::to_string(&status).unwrap_or_default())
}
