//! Questions to the brokers at a start, each answered before the next.

use crate::client::Claim;
use crate::librdkafka::{Content, Kind, Mark, OffsetAnswer, Queue, Spec, TopicAnswer, Wrong};
use crate::limits::{START_PATIENCE_MS, TOPIC_PAUSE};
use crate::plan::Plan;
use crate::trouble::Trouble;
use flow::Fault;
use std::collections::HashMap;
use std::time::Instant;

/// Where partitions are, as brokers have answered: by topic and number.
pub(crate) type Offsets = HashMap<(String, i32), Option<u64>>;

/// Questions of a start, each answered before the next.
pub(crate) struct Asking<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) claim: &'a Claim,
    pub(crate) answers: &'a Queue,
    pub(crate) until: Instant,
}

impl Asking<'_> {
    /// Waits for the next answer.
    pub(crate) fn answer(&self) -> Result<Content, Fault> {
        loop {
            let event = self.answers.event(100);
            self.claim.take_errors();
            match event.map(|event| event.content()) {
                Some(Content::Unanswered(mark, wrong)) if wrong.kind == Kind::Unsupported => {
                    return Ok(Content::Offsets(mark, Vec::new()));
                }
                Some(Content::Unanswered(_, wrong)) => return Err(self.away(&wrong)),
                Some(answers @ (Content::Topics(_) | Content::Offsets(..) | Content::Created(_))) => {
                    self.claim.answered();
                    return Ok(answers);
                }
                _ if Instant::now() >= self.until => return Err(self.away(&Wrong::timed_out())),
                _ => {}
            }
        }
    }

    pub(crate) fn away(&self, wrong: &Wrong) -> Fault {
        self.plan.side().away(&self.claim.said().unwrap_or_else(|| wrong.clone()))
    }

    pub(crate) fn topics(&self) -> Result<Vec<TopicAnswer>, Fault> {
        let asked =
            self.claim.client().ask_topics(&self.plan.topics, false, START_PATIENCE_MS, Mark::Start, self.answers);
        asked.map_err(|wrong| self.away(&wrong))?;
        match self.answer()? {
            Content::Topics(topics) => Ok(topics),
            _ => Err(self.away(&Wrong::timed_out())),
        }
    }

    /// A partition of a topic that was just made, or whose leader has just ended, has no leader for a moment: it is
    /// asked again.
    pub(crate) fn offsets(&self, partitions: &[(String, i32)], spec: Spec) -> Result<Offsets, Fault> {
        let (mut offsets, mut rest) = (Offsets::new(), partitions.to_vec());
        loop {
            let mut failed = None;
            for OffsetAnswer { topic, partition, offset, .. } in self.ask(&rest, spec)? {
                match offset {
                    Ok(offset) => drop(offsets.insert((topic, partition), offset)),
                    Err(wrong) => failed = Some((topic, partition, wrong)),
                }
            }
            rest.retain(|partition| !offsets.contains_key(partition));
            let Some((topic, number)) = rest.first() else { return Ok(offsets) };
            let (topic, number, wrong) = failed.unwrap_or_else(|| (topic.clone(), *number, Wrong::timed_out()));
            if wrong.kind != Kind::Other || Instant::now() >= self.until {
                return Err(self.plan.wrong(&topic, Some(number), &wrong));
            }
            std::thread::sleep(TOPIC_PAUSE);
        }
    }

    /// Offsets from which on a partition has messages from this time on, ms; none where it has none. A partition of
    /// which the search says so, and whose latest message is not older, is read from its first: see [`crate::group`].
    pub(crate) fn since_time(
        &self,
        all: &[(String, i32)],
        time: i64,
        first: &Offsets,
        end: &Offsets,
    ) -> Result<Offsets, Fault> {
        let mut found = self.offsets(all, Spec::Time(time))?;
        let is_missing = |partition: &&(String, i32)| found.get(*partition).is_some_and(Option::is_none);
        let missing: Vec<_> = all.iter().filter(is_missing).cloned().collect();
        // Brokers before Kafka 3.0 have no answer: then the search has the last word.
        for OffsetAnswer { topic, partition, offset, time_ms } in self.ask(&missing, Spec::Latest)? {
            let latest = match offset {
                Err(wrong) if wrong.kind == Kind::Unsupported => continue,
                offset => offset.map_err(|wrong| self.plan.wrong(&topic, Some(partition), &wrong))?,
            };
            let place = (topic, partition);
            let of = |offsets: &Offsets| offsets.get(&place).copied().flatten();
            let is_before_end = latest.is_some_and(|latest| of(end).is_some_and(|end| latest < end));
            if time_ms >= time && is_before_end {
                let begin = of(first);
                found.insert(place, begin);
            }
        }
        Ok(found)
    }

    pub(crate) fn ask(&self, partitions: &[(String, i32)], spec: Spec) -> Result<Vec<OffsetAnswer>, Fault> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let asked: Vec<_> = partitions.iter().map(|(topic, number)| (topic.as_str(), *number, spec)).collect();
        let (client, is_committed) = (self.claim.client(), self.claim.is_committed());
        let asked = client.ask_offsets(&asked, is_committed, START_PATIENCE_MS, Mark::Start, self.answers);
        asked.map_err(|wrong| self.away(&wrong))?;
        match self.answer()? {
            Content::Offsets(_, rows) => Ok(rows),
            _ => Err(self.away(&Wrong::timed_out())),
        }
    }
}
