//! The topics of streams: made where they are missing, by whichever side comes first.

use super::plan::Carrier;
use crate::asking::{Asking, Offsets};
use crate::librdkafka::{Content, Kind, Spec, TopicAnswer, Wrong};
use crate::limits::{CARRIED_BYTES_MAX, START_PATIENCE_MS, TOPIC_PAUSE};
use flow::{Fault, RUNS};
use std::time::Instant;

/// Settings of a topic. The broker's clock decides what is old: source times may be those of a replay. Runs are kept:
/// one may be open for longer than messages are.
fn settings(carrier: &Carrier, is_book: bool) -> Vec<(&'static str, String)> {
    let in_sync = (carrier.replication - 1).clamp(1, 2);
    let keep = if is_book { "-1".into() } else { carrier.keep.as_millis().to_string() };
    vec![
        ("retention.ms", keep),
        ("retention.bytes", "-1".into()),
        ("cleanup.policy", "delete".into()),
        ("message.timestamp.type", "LogAppendTime".into()),
        ("max.message.bytes", CARRIED_BYTES_MAX.to_string()),
        ("min.insync.replicas", in_sync.to_string()),
    ]
}

/// The topics that were asked for; those that are missing are made.
pub(super) fn ensure(asking: &Asking<'_>, carrier: &Carrier) -> Result<Vec<TopicAnswer>, Fault> {
    loop {
        let found = asking.topics()?;
        let mut missing = Vec::new();
        for topic in &found {
            match &topic.wrong {
                Some(wrong) if wrong.kind == Kind::NoTopic => missing.push(topic.name.clone()),
                Some(wrong) => return Err(refused(asking, &topic.name, wrong)),
                None if topic.partitions == 0 => missing.push(topic.name.clone()),
                None => {}
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let (books, streams): (Vec<String>, Vec<String>) =
            missing.into_iter().partition(|topic| topic.ends_with(&format!(".{RUNS}")));
        create(asking, carrier, &books, true)?;
        create(asking, carrier, &streams, false)?;
        if Instant::now() >= asking.until {
            return Err(asking.away(&Wrong::timed_out()));
        }
        // Brokers learn of a new topic one after the other.
        std::thread::sleep(TOPIC_PAUSE);
    }
}

/// Makes topics. One that another host has made meanwhile is right too.
fn create(asking: &Asking<'_>, carrier: &Carrier, topics: &[String], is_book: bool) -> Result<(), Fault> {
    if topics.is_empty() {
        return Ok(());
    }
    let (client, size) = (asking.claim.client(), (1, carrier.replication));
    let settings = settings(carrier, is_book);
    let asked = client.ask_create(topics, size, &settings, START_PATIENCE_MS, asking.answers);
    asked.map_err(|wrong| asking.away(&wrong))?;
    let Content::Created(results) = asking.answer()? else { return Ok(()) };
    for (name, wrong) in topics.iter().zip(results) {
        if let Some(wrong) = wrong.filter(|wrong| wrong.kind != Kind::Exists) {
            return Err(refused(asking, name, &wrong));
        }
    }
    Ok(())
}

/// Where each topic begins and ends, in the order of `topics`.
pub(super) fn bounds(asking: &Asking<'_>, topics: &[TopicAnswer]) -> Result<Vec<(u64, u64)>, Fault> {
    let all: Vec<(String, i32)> = topics.iter().map(|topic| (topic.name.clone(), 0)).collect();
    let (first, end) = (asking.offsets(&all, Spec::First)?, asking.offsets(&all, Spec::End)?);
    let of = |offsets: &Offsets, place: &(String, i32)| offsets.get(place).copied().flatten().unwrap_or(0);
    Ok(all.iter().map(|place| (of(&first, place), of(&end, place))).collect())
}

fn refused(asking: &Asking<'_>, topic: &str, wrong: &Wrong) -> Fault {
    let fault = Fault::new(format!("topic `{topic}` cannot be used"), &wrong.text);
    let hint = format!(
        "make it with one partition, or allow the user of {} to make, write and read topics of its name",
        asking.plan.brokers.as_str()
    );
    Fault { passes: flow::Passes::Soon, ..fault.hint(hint) }
}
