//! Whether the brokers of a section answer, and its topics can be used: for `beamport doctor FILE`.

use crate::client::{Pairs, owned};
use crate::librdkafka::{Client, Content, Mark, Queue, Wrong};
use crate::limits::{PROBE_PATIENCE_MS, PROPERTIES};
use crate::trouble::Side;
use flow::Fault;
use std::time::{Duration, Instant};

/// Asks for the brokers and for these topics, and waits for the answer. `wrong`: the error of a topic, if it is one for
/// this section.
pub(crate) fn probe(
    side: &Side<'_>,
    topics: &[String],
    wrong: &dyn Fn(&str, &Wrong) -> Option<Fault>,
) -> Result<String, Fault> {
    let brokers = [("bootstrap.servers", side.brokers.value.as_str())];
    let pairs: Pairs = owned(&PROPERTIES).chain(side.pairs()?).chain(owned(&brokers)).collect();
    let client = Client::new(&pairs).map_err(|(name, text)| side.refused(&name, text))?;
    let (answers, errors) = (Queue::polled(&client), Queue::main(&client));
    let mut said = None;
    let mut error = || {
        said = errors.newest_error().or(said.take());
        said.clone()
    };
    let until = Instant::now() + Duration::from_millis(PROBE_PATIENCE_MS as u64);
    let brokers = client.brokers(PROBE_PATIENCE_MS);
    let brokers = brokers.map_err(|wrong| side.away(&error().unwrap_or(wrong)))?;
    if topics.is_empty() {
        return Ok(counted(brokers, "broker"));
    }
    client.ask_topics(topics, false, PROBE_PATIENCE_MS, Mark::Topics, &answers).map_err(|wrong| side.away(&wrong))?;
    while Instant::now() < until {
        match answers.event(50).map(|event| event.content()) {
            Some(Content::Topics(answers)) => {
                let first = answers.iter().find_map(|topic| wrong(&topic.name, topic.wrong.as_ref()?));
                let partitions = answers.iter().map(|topic| topic.partitions).sum();
                let found = [(brokers, "broker"), (answers.len(), "topic"), (partitions, "partition")];
                return match first {
                    Some(fault) => Err(fault),
                    None => Ok(found.map(|(count, what)| counted(count, what)).join(", ")),
                };
            }
            Some(Content::Unanswered(_, wrong)) => return Err(side.away(&error().unwrap_or(wrong))),
            _ => {}
        }
    }
    Err(side.away(&error().unwrap_or_else(Wrong::timed_out)))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
