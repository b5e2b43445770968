//! The topics of streams and of bulletins: made where they are missing, by whichever side comes first.

use super::plan::Carrier;
use crate::asking::{Asking, Offsets};
use crate::librdkafka::{Content, Kind, Spec, TopicAnswer, Wrong};
use crate::limits::{BULLETIN_TOPIC, START_PATIENCE_MS, TOPIC_PAUSE};
use crate::plan::Plan;
use flow::limits::CARRIED_BYTES_MAX;
use flow::{Fault, RUNS};
use std::time::Instant;

/// The use of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Blocks of a stream: they are held for the time of the key `keep`.
    Stream,
    /// Runs. They are kept: one may be open for longer than messages are held.
    Runs,
    /// Posts of all hosts, of which the newest of each key is kept.
    Bulletin,
}

/// Settings of a topic. The broker's clock decides what is old: source times may be those of a replay.
fn settings(carrier: &Carrier, of: Use) -> Vec<(&'static str, String)> {
    let in_sync = (carrier.replication - 1).clamp(1, 2);
    let mut all = vec![
        ("message.timestamp.type", "LogAppendTime".into()),
        ("max.message.bytes", CARRIED_BYTES_MAX.to_string()),
        ("min.insync.replicas", in_sync.to_string()),
    ];
    let deleted =
        |keep: String| [("cleanup.policy", "delete".into()), ("retention.bytes", "-1".into()), ("retention.ms", keep)];
    match of {
        Use::Stream => all.extend(deleted(carrier.keep.as_millis().to_string())),
        Use::Runs => all.extend(deleted("-1".into())),
        Use::Bulletin => all.extend(BULLETIN_TOPIC.map(|(name, value)| (name, value.to_owned()))),
    }
    all
}

/// The topics of streams that were asked for; those that are missing are made.
pub(super) fn ensure(asking: &Asking<'_>, carrier: &Carrier) -> Result<Vec<TopicAnswer>, Fault> {
    let use_of = |topic: &str| if topic.ends_with(&format!(".{RUNS}")) { Use::Runs } else { Use::Stream };
    ensure_as(asking, carrier, &use_of, 1)
}

/// The same for topics of a worker on several hosts, which have this number of partitions each.
pub(super) fn ensure_shared(
    asking: &Asking<'_>,
    carrier: &Carrier,
    partitions: i32,
) -> Result<Vec<TopicAnswer>, Fault> {
    ensure_as(asking, carrier, &|_| Use::Stream, partitions)
}

/// The same for the topics of bulletins.
pub(super) fn ensure_bulletins(asking: &Asking<'_>, carrier: &Carrier) -> Result<Vec<TopicAnswer>, Fault> {
    ensure_as(asking, carrier, &|_| Use::Bulletin, 1)
}

fn ensure_as(
    asking: &Asking<'_>,
    carrier: &Carrier,
    use_of: &dyn Fn(&str) -> Use,
    partitions: i32,
) -> Result<Vec<TopicAnswer>, Fault> {
    loop {
        let found = asking.topics()?;
        let mut missing = Vec::new();
        for topic in &found {
            match &topic.wrong {
                Some(wrong) if wrong.kind == Kind::NoTopic => missing.push(topic.name.clone()),
                Some(wrong) => return Err(refused(asking.plan, &topic.name, wrong)),
                None if topic.partitions == 0 => missing.push(topic.name.clone()),
                None => {}
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        for of in [Use::Runs, Use::Stream, Use::Bulletin] {
            let topics: Vec<String> = missing.iter().filter(|topic| use_of(topic) == of).cloned().collect();
            create(asking, carrier, &topics, (of, partitions))?;
        }
        if Instant::now() >= asking.until {
            return Err(asking.away(&Wrong::timed_out()));
        }
        // Brokers learn of a new topic one after the other.
        std::thread::sleep(TOPIC_PAUSE);
    }
}

/// Makes topics. One that another host has made meanwhile is right too.
fn create(asking: &Asking<'_>, carrier: &Carrier, topics: &[String], (of, count): (Use, i32)) -> Result<(), Fault> {
    if topics.is_empty() {
        return Ok(());
    }
    let (client, size) = (asking.claim.client(), (count, carrier.replication));
    let settings = settings(carrier, of);
    let asked = client.ask_create(topics, size, &settings, START_PATIENCE_MS, asking.answers);
    asked.map_err(|wrong| asking.away(&wrong))?;
    let Content::Created(results) = asking.answer()? else { return Ok(()) };
    for (name, wrong) in topics.iter().zip(results) {
        if let Some(wrong) = wrong.filter(|wrong| wrong.kind != Kind::Exists) {
            return Err(refused(asking.plan, name, &wrong));
        }
    }
    Ok(())
}

/// Where each topic begins and ends, in the order of `topics`.
pub(super) fn bounds(asking: &Asking<'_>, topics: &[TopicAnswer]) -> Result<Vec<(u64, u64)>, Fault> {
    let all: Vec<(String, i32)> = topics.iter().map(|topic| (topic.name.clone(), 0)).collect();
    bounds_of(asking, &all)
}

/// The same for these partitions.
pub(super) fn bounds_of(asking: &Asking<'_>, all: &[(String, i32)]) -> Result<Vec<(u64, u64)>, Fault> {
    let (first, end) = (asking.offsets(all, Spec::First)?, asking.offsets(all, Spec::End)?);
    let of = |offsets: &Offsets, place: &(String, i32)| offsets.get(place).copied().flatten().unwrap_or(0);
    Ok(all.iter().map(|place| (of(&first, place), of(&end, place))).collect())
}

/// A topic that this user cannot make, read or write.
pub(super) fn refused(plan: &Plan, topic: &str, wrong: &Wrong) -> Fault {
    let fault = Fault::new(format!("topic `{topic}` cannot be used"), &wrong.text);
    let hint = match wrong.kind {
        Kind::Replication => "`replication` of `[hosts]` is above the number of brokers".to_owned(),
        _ => format!(
            "make it, or allow the user of {} to make, write and read topics of its name",
            plan.brokers.as_str()
        ),
    };
    Fault { passes: flow::Passes::Soon, ..fault.hint(hint) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Setting;
    use std::time::Duration;

    #[test]
    fn streams_are_held_for_a_time_runs_for_ever_and_bulletins_by_key() {
        let carrier = Carrier {
            brokers: Setting::by_default("one".to_owned()),
            replication: 3,
            keep: Duration::from_secs(60),
            properties: Vec::new(),
        };
        let of = |of: Use, name: &str| {
            let found = settings(&carrier, of).into_iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value).unwrap_or_default()
        };
        assert_eq!([Use::Stream, Use::Runs, Use::Bulletin].map(|one| of(one, "retention.ms")), ["60000", "-1", ""]);
        let policies = [Use::Stream, Use::Runs, Use::Bulletin].map(|one| of(one, "cleanup.policy"));
        assert_eq!(policies, ["delete", "delete", "compact"]);
        for one in [Use::Stream, Use::Runs, Use::Bulletin] {
            assert_eq!([of(one, "min.insync.replicas"), of(one, "message.timestamp.type")], ["2", "LogAppendTime"]);
        }
    }
}
