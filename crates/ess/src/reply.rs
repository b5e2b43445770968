//! Messages of the writer: `answ` to a command, `x5f2` at intervals, `wrdn` when a file is finished.
//!
//! The fields are those of `kafka-to-nexus`, so that its clients read them; what is new stands in JSON beside the old
//! keys, and in texts. Every text is bounded.

use crate::command::{Mistake, Refusal};
use crate::limits::{LOST_MAX, MESSAGE_BYTES_MAX, REST_LINE_BYTES};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::answ::{self, ActionOutcome, ActionType, Answ};
use wire::wrdn::{self, Wrdn};
use wire::x5f2::{self, X5f2};

/// Name of the program whose place the writer takes; clients look for it.
const SOFTWARE: &str = "kafka-to-nexus";

/// An answer to a command.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Which writer.
    pub service_id: &'a str,
    /// The command.
    pub action: ActionType,
    /// 201 done, 400 refused, 500 failed.
    pub code: u16,
    /// Id of the job.
    pub job_id: &'a str,
    /// Id of the command; of a start that of the job.
    pub command_id: &'a str,
    /// When the job stops; `None`: open end.
    pub stop_ms: Option<i64>,
    /// Text for people.
    pub message: &'a str,
}

/// The `answ` of an answer.
#[must_use]
pub fn answer(answer: &Answer<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = Answ {
        service_id: answer.service_id,
        job_id: answer.job_id,
        action: answer.action,
        outcome: if answer.code < 400 { ActionOutcome::Success } else { ActionOutcome::Failure },
        status_code: answer.code.into(),
        stop_time: unsigned(answer.stop_ms),
        message: cut(answer.message),
        command_id: answer.command_id,
    };
    // Texts of these lengths always fit.
    let _ = answ::write(&mut out, &fields);
    out
}

/// The `answ` of a refusal, with its mistakes one a line.
#[must_use]
pub fn refused(service_id: &str, refusal: &Refusal) -> Vec<u8> {
    answer(&Answer {
        service_id,
        action: refusal.action,
        code: refusal.code,
        job_id: &refusal.job_id,
        command_id: &refusal.command_id,
        stop_ms: None,
        message: &lines(&refusal.mistakes),
    })
}

/// Mistakes as lines, as many as fit; the rest is counted.
fn lines(mistakes: &[Mistake]) -> String {
    let mut text = String::new();
    for (at, mistake) in mistakes.iter().enumerate() {
        let line = mistake.to_string();
        if text.len() + line.len() + REST_LINE_BYTES > MESSAGE_BYTES_MAX {
            return format!("{text}and {} more mistakes", mistakes.len() - at);
        }
        text.push_str(&line);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

/// The service that speaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Its id.
    pub id: String,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// Time between two status messages.
    pub interval: Duration,
}

/// Commands refused and messages ignored since the service started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dismissed {
    /// Commands that it refused.
    pub refused: u64,
    /// Messages that were no commands for it.
    pub ignored: u64,
}

/// A job that is being written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writing {
    /// Its id.
    pub job_id: String,
    /// Its file, as its command names it.
    pub file_name: String,
    /// Its start, ms since 1970 UTC.
    pub start_ms: i64,
    /// Its stop; `None`: open end.
    pub stop_ms: Option<i64>,
    /// What keeps it from going on: a full disk, brokers that are away.
    pub trouble: Option<String>,
    /// How each topic goes.
    pub topics: BTreeMap<String, Topic>,
}

/// How a topic of a job goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Topic {
    /// Messages read.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages per second.
    pub rate: f64,
    /// Messages that the topic has and the job has not read.
    pub lag: u64,
    /// Messages set aside.
    pub aside: u64,
    /// Messages lost.
    pub lost: u64,
}

/// The `x5f2` of a service that writes a job, or none.
#[must_use]
pub fn status(service: &Service, dismissed: Dismissed, job: Option<&Writing>) -> Vec<u8> {
    let idle = Writing::default();
    let shown = job.unwrap_or(&idle);
    let mut json = json!({
        "state": if job.is_some() { "writing" } else { "idle" },
        "job_id": shown.job_id,
        "file_being_written": shown.file_name,
        "start_time": shown.start_ms,
        "stop_time": shown.stop_ms.unwrap_or_default(),
        "refused": dismissed.refused,
        "ignored": dismissed.ignored,
    });
    if job.is_some() {
        json["topics"] = json!(shown.topics);
        json["trouble"] = json!(shown.trouble);
    }
    x5f2(service, SOFTWARE, &json.to_string())
}

/// The `x5f2` of a service that has the name of the program whose place it takes.
pub(crate) fn x5f2(service: &Service, software: &str, status_json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = X5f2 {
        software_name: software,
        software_version: concat!("beamport ", env!("CARGO_PKG_VERSION")),
        service_id: &service.id,
        host_name: &service.host,
        process_id: service.pid,
        update_interval: u32::try_from(service.interval.as_millis()).unwrap_or(u32::MAX),
        status_json,
    };
    let _ = x5f2::write(&mut out, &fields);
    out
}

/// A job that is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its id.
    pub job_id: String,
    /// Its file with the prefix.
    pub file_name: String,
    /// That of its `pl72`, to the letter.
    pub metadata: String,
    /// Why there is no file, or not a whole one; loss alone needs no text.
    pub error: Option<String>,
    /// Messages and bytes by topic.
    pub topics: BTreeMap<String, (u64, u64)>,
    /// Messages set aside, by reason.
    pub aside: BTreeMap<String, u64>,
    /// Messages of the job that came after its end, by topic: they are not in the file.
    pub late: BTreeMap<String, u64>,
    /// Offsets that are not in the file.
    pub lost: Vec<Lost>,
    /// Partitions of which retention took messages before the job was accepted, perhaps some of the job's time.
    pub begins: Vec<Begin>,
    /// Hash of the file.
    pub blake3: Option<String>,
    /// Hash of the messages that the file was written from: equal for two jobs of one interval.
    pub content: Option<String>,
}

/// The oldest message of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
}

/// Offsets of a partition that were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: u32,
    /// First offset.
    pub first: u64,
    /// Last offset.
    pub last: u64,
    /// Why, `lost.WORD`.
    pub reason: String,
}

/// The text of a `wrdn`, in this order.
#[derive(Serialize)]
struct Account<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    topics: BTreeMap<&'a str, Counts>,
    aside: &'a BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    late: &'a BTreeMap<String, u64>,
    lost: &'a [Lost],
    #[serde(skip_serializing_if = "is_zero")]
    more_lost: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    blake3: &'a Option<String>,
    content: &'a Option<String>,
}

#[derive(Serialize)]
struct Counts {
    messages: u64,
    bytes: u64,
}

fn warning(Begin { topic, partition, offset }: &Begin) -> String {
    format!(
        "`{topic}/{partition}` began at offset {offset} when the job was accepted: retention has taken what was \
         before, perhaps messages of the job"
    )
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The `wrdn` of a job. Loss is an error even where there is a file.
#[must_use]
pub fn written(service_id: &str, job: &Written) -> Vec<u8> {
    let count: u64 =
        job.lost.iter().map(|lost| lost.last.saturating_sub(lost.first).saturating_add(1)).fold(0, u64::saturating_add);
    let loss = || (count > 0).then(|| format!("{count} messages are lost"));
    let account = Account {
        error: job.error.as_deref().map(|error| cut(error).to_owned()).or_else(loss),
        topics: job
            .topics
            .iter()
            .map(|(t, (messages, bytes))| (t.as_str(), Counts { messages: *messages, bytes: *bytes }))
            .collect(),
        aside: &job.aside,
        late: &job.late,
        lost: &job.lost[..job.lost.len().min(LOST_MAX)],
        more_lost: job.lost.len().saturating_sub(LOST_MAX),
        warnings: job.begins.iter().take(LOST_MAX).map(warning).collect(),
        blake3: &job.blake3,
        content: &job.content,
    };
    let mut out = Vec::new();
    let fields = Wrdn {
        service_id,
        job_id: &job.job_id,
        error_encountered: account.error.is_some(),
        file_name: &job.file_name,
        metadata: Some(&job.metadata),
        message: Some(&serde_json::to_string(&account).unwrap_or_default()),
    };
    let _ = wrdn::write(&mut out, &fields);
    out
}

/// A `wrdn` without its metadata, for brokers that do not take the whole message.
#[must_use]
pub fn without_metadata(outcome: &[u8]) -> Option<Vec<u8>> {
    let whole = wrdn::read(outcome).ok()?;
    let mut account: serde_json::Value = serde_json::from_str(whole.message.unwrap_or_default()).ok()?;
    account["metadata"] = json!("left out: the message with it is too large for the brokers");
    let mut out = Vec::new();
    wrdn::write(&mut out, &Wrdn { metadata: None, message: Some(&account.to_string()), ..whole }).ok()?;
    Some(out)
}

fn unsigned(ms: Option<i64>) -> u64 {
    ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or_default()
}

/// A text up to the longest that an answer has.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
