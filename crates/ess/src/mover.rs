//! The `beamport up` of a job: its process, its commands, its figures, its report.

use crate::limits::{ASK_PATIENCE, REPORT_BYTES_MAX, SAID_BYTES};
use crate::plan::{JOB_FILE, STREAMS_FOLDER};
use crate::reply::{Lost, Topic, Written};
use flow::{Data, Fault, control};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Its stdout: the report of the run.
const REPORT: &str = "report.json";
/// Its stderr.
const SAID: &str = "up.log";
/// Variable that chooses how much `beamport` logs, and how.
const LOG: &str = "BEAMPORT_LOG";

/// A running `beamport up`. It is killed when dropped, and when the thread that started it dies.
pub(crate) struct Mover {
    child: Child,
    folder: PathBuf,
}

/// How one ended.
pub(crate) enum Ended {
    /// With a report of the run.
    Reported(Value),
    /// Somebody killed it.
    Killed,
    /// By itself and without a report.
    Failed {
        /// Its output.
        said: String,
        /// A device or the shared memory is full.
        is_full: bool,
    },
}

impl Mover {
    /// Starts it for the job in a folder.
    pub(crate) fn start(program: &Path, environment: &[(String, String)], folder: &Path) -> Result<Self, Fault> {
        let fault = |e: io::Error| Fault::io(format!("cannot start `beamport up` in `{}`", folder.display()), &e);
        let report = File::create(folder.join(REPORT)).map_err(fault)?;
        let said = File::create(folder.join(SAID)).map_err(fault)?;
        let mut command = command(program, environment, &folder.join(JOB_FILE));
        // What it says stands in the answer to the facility: no more than its faults, as text.
        command.env(LOG, "warn").arg("--json").stdout(report).stderr(said);
        Ok(Self { child: command.spawn().map_err(fault)?, folder: folder.to_owned() })
    }

    /// Starts it for a file without runs, whose faults go to the log of the service.
    pub(crate) fn serve(program: &Path, environment: &[(String, String)], file: &Path) -> Result<Self, Fault> {
        let fault = |e: io::Error| Fault::io(format!("cannot start `beamport up {}`", file.display()), &e);
        let mut command = command(program, environment, file);
        if std::env::var_os(LOG).is_none() {
            command.env(LOG, "warn");
        }
        let child = command.stdout(Stdio::null()).spawn().map_err(fault)?;
        Ok(Self { child, folder: PathBuf::new() })
    }

    /// Its exit status, if it has ended.
    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>, Fault> {
        self.child.try_wait().map_err(|e| Fault::io("cannot wait for `beamport up`", &e))
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self, run: &str) -> Result<Option<Ended>, Fault> {
        Ok(self.exited()?.map(|status| judged(&self.folder, run, status)))
    }
}

/// `beamport up` of a file. It ends with this process.
fn command(program: &Path, environment: &[(String, String)], file: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("up").arg(file).args(["--parent", &std::process::id().to_string()]);
    command.envs(environment.iter().map(|(name, value)| (name, value))).env_remove("BEAMPORT_DATA");
    // Ctrl-C in the terminal of the service is not meant for it.
    command.stdin(Stdio::null()).process_group(0);
    command
}

impl Drop for Mover {
    /// kill -9: nothing is lost, and the next one resumes.
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn judged(folder: &Path, run: &str, status: ExitStatus) -> Ended {
    match report(folder, run) {
        Some(report) => Ended::Reported(report),
        None if status.signal().is_some() => Ended::Killed,
        None => Ended::Failed { said: said(folder), is_full: printed(folder).any(|line| line["is_full"] == true) },
    }
}

/// The report of a run that an earlier process has printed whole.
pub(crate) fn report(folder: &Path, run: &str) -> Option<Value> {
    printed(folder).rfind(|line| line["run"] == run)
}

/// What it has printed: reports of runs, or the fault that ended it.
fn printed(folder: &Path) -> impl DoubleEndedIterator<Item = Value> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        File::open(folder.join(REPORT))?.take(REPORT_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let lines: Vec<Value> =
        read().unwrap_or_default().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    lines.into_iter()
}

/// The end of what it said.
pub(crate) fn said(folder: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(folder.join(SAID))?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(SAID_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(SAID_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
}

/// Removes all streams of a job, those in shared memory too.
pub(crate) fn remove_streams(folder: &Path) -> Result<(), Fault> {
    let streams = folder.join(STREAMS_FOLDER);
    if !streams.exists() {
        return Ok(());
    }
    let data = Data::on_disk(&streams);
    for name in data.streams(true)? {
        let what = || format!("cannot remove stream `{name}` of a job");
        store::remove(&data.media, &data.stream(&name)).map_err(|e| Fault::new(what(), e))?;
    }
    fs::remove_dir_all(&streams).map_err(|e| Fault::io("cannot remove the streams of a job", &e))
}

/// Asks the mover of a job.
pub(crate) fn ask(folder: &Path, request: &Value, patience: Duration) -> Result<Value, Fault> {
    control::ask(&folder.join(STREAMS_FOLDER), request, patience)
}

/// Figures of a job that runs.
pub(crate) struct Figures {
    data: Data,
    watch: flow::status::Watch,
    run: String,
    topics: Vec<String>,
    folder: PathBuf,
}

impl Figures {
    /// Of a job with these topics, in the order of their streams.
    pub(crate) fn new(folder: &Path, run: &str, topics: &[String]) -> Self {
        let data = Data::on_disk(folder.join(STREAMS_FOLDER));
        let (watch, run) = (flow::status::Watch::new(&data), run.to_owned());
        Self { data, watch, run, topics: topics.to_vec(), folder: folder.to_owned() }
    }

    /// The figures of each topic, and what keeps the job from going on.
    pub(crate) fn read(&mut self, now: i64) -> (BTreeMap<String, Topic>, Option<String>) {
        let mut figures: BTreeMap<String, Topic> =
            self.topics.iter().map(|topic| (topic.clone(), Topic::default())).collect();
        let streams = self.watch.status(now, false).map(|status| status.streams).unwrap_or_default();
        for stream in streams {
            let Some(figure) = self.topic(&stream.name).and_then(|topic| figures.get_mut(topic)) else { continue };
            figure.messages = stream.count;
            figure.rate = stream.messages_per_s.unwrap_or(0.0);
            figure.bytes = stream.bytes;
            figure.lost = stream.lost;
        }
        // `file` is the only sink of a job.
        let commit = flow::last_commit(&self.data, "file", &self.run).ok().flatten();
        for input in commit.iter().flat_map(|commit| &commit.inputs) {
            let Some(figure) = self.topic(&input.stream).and_then(|topic| figures.get_mut(topic)) else { continue };
            for (kind, count) in &input.counts {
                match kind.split('.').next() {
                    Some("aside") => figure.aside += count,
                    Some("lost") => figure.lost += count,
                    // The stream has released most of them.
                    Some(flow::BYTES) => figure.bytes = figure.bytes.max(*count),
                    _ => {}
                }
            }
        }
        let answer = ask(&self.folder, &json!({"command": "status"}), ASK_PATIENCE).unwrap_or_default();
        for stage in answer["running"].as_object().into_iter().flat_map(|running| running.values()) {
            for (topic, status) in stage["status"]["topics"].as_object().into_iter().flatten() {
                if let Some(figure) = figures.get_mut(topic) {
                    figure.lag = status["behind"].as_u64().unwrap_or(0);
                }
            }
        }
        let troubles: Vec<&str> =
            answer["troubles"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        (figures, (!troubles.is_empty()).then(|| troubles.join("\n")))
    }

    fn topic(&self, stream: &str) -> Option<&String> {
        topic_of(&self.topics, stream)
    }
}

/// The topic of a stream: `t1` holds the first one.
fn topic_of<'a>(topics: &'a [String], stream: &str) -> Option<&'a String> {
    let number: usize = stream.strip_prefix('t')?.parse().ok()?;
    topics.get(number.checked_sub(1)?)
}

/// Why the file of a report is not there: it was given up.
pub(crate) fn given_up(report: &Value) -> Option<String> {
    let failed = report["failed"].as_array().into_iter().flatten().next();
    let text = |key: &str| failed.and_then(|failed| failed[key].as_str()).unwrap_or_default();
    match failed {
        Some(_) => Some([text("what"), text("cause")].join(": ")),
        None if report["file"].as_str().is_none() => Some("no file was written".into()),
        None => None,
    }
}

/// The part of a report about a job, for its `wrdn`.
pub(crate) fn account(report: &Value, topics: &[String], written: &mut Written) {
    let rows = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let mut lost_count = 0;
    for stream in rows("streams") {
        if let Some(topic) = stream["name"].as_str().and_then(|name| topic_of(topics, name)) {
            let number = |key: &str| stream[key].as_u64().unwrap_or(0);
            written.topics.insert(topic.clone(), (number("messages"), number("bytes")));
            lost_count += number("lost");
            if number("late") > 0 {
                written.late.insert(topic.clone(), number("late"));
            }
        }
    }
    for row in rows("ledger").iter().filter(|row| row["account"] == "reader") {
        for (reason, count) in row["aside"].as_object().into_iter().flatten() {
            *written.aside.entry(reason.clone()).or_default() += count.as_u64().unwrap_or(0);
        }
    }
    for gap in rows("gaps") {
        let reason = gap["reason"].as_str().unwrap_or_default();
        if reason.starts_with("skipped.") || reason == flow::records::ABSENT {
            continue;
        }
        let number = |key: &str| gap[key].as_u64().unwrap_or(0);
        let place = gap["origin"].as_str().and_then(|origin| origin.rsplit_once('/'));
        let (topic, partition) = match place {
            Some((topic, partition)) => (topic.to_owned(), partition.split('#').next().and_then(|p| p.parse().ok())),
            None => (topic_of(topics, gap["stream"].as_str().unwrap_or_default()).cloned().unwrap_or_default(), None),
        };
        written.lost.push(Lost {
            topic,
            partition: partition.unwrap_or(0),
            first: number("first"),
            last: number("last"),
            reason: reason.to_owned(),
        });
    }
    written.blake3 = report["blake3"].as_str().map(str::to_owned);
    written.content = report["content"].as_str().map(str::to_owned);
    written.error = given_up(report).or_else(|| match () {
        () if report["closed"] != true => Some("the account of the job is not closed".into()),
        () if lost_count > 0 && written.lost.is_empty() => Some(format!("{lost_count} messages are lost")),
        () => None,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_a_full_disk_hid_a_fault_that_does_not_pass() {
        use std::os::unix::process::ExitStatusExt as _;
        let folder = std::env::temp_dir().join(format!("beamport-ess-mover-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(SAID), "WARN No space left on device; free space on the device\nerror: no such key")
            .unwrap();
        let ended = |line: &Value| {
            fs::write(folder.join(REPORT), format!("{line}\n")).unwrap();
            match judged(&folder, "r", ExitStatus::from_raw(2 << 8)) {
                Ended::Failed { is_full, said } if said.ends_with("no such key") => is_full,
                _ => panic!("it has failed"),
            }
        };
        assert!(!ended(&json!({"fault": {"what": "w"}, "is_full": false})));
        assert!(ended(&json!({"fault": {"what": "w"}, "is_full": true})));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn loss_is_told_by_topic_partition_and_offsets() {
        let report = json!({
            "run": "r", "file": "/f", "blake3": "ab", "content": "cd", "closed": true, "failed": [],
            "streams": [{"name": "t2", "messages": 5, "bytes": 50, "lost": 2, "late": 4}],
            "ledger": [{"account": "reader", "aside": {"aside.unmatched": 3}}, {"account": "entry"}],
            "gaps": [
                {"stream": "t2", "origin": "b/1", "first": 7, "last": 8, "reason": "lost.retention"},
                {"stream": "t2", "origin": "b/1", "first": 9, "last": 9, "reason": "skipped.kafka"},
            ],
        });
        let mut written = Written::default();
        account(&report, &["a".into(), "b".into()], &mut written);
        assert_eq!((written.topics["b"], written.late["b"]), ((5, 50), 4));
        assert_eq!(written.aside["aside.unmatched"], 3);
        let lost = Lost { topic: "b".into(), partition: 1, first: 7, last: 8, reason: "lost.retention".into() };
        assert_eq!((written.lost, written.error), (vec![lost], None));
        assert_eq!((written.blake3.as_deref(), written.content.as_deref()), (Some("ab"), Some("cd")));
    }

    #[test]
    fn a_file_that_was_given_up_is_an_error_with_its_cause() {
        let report = json!({"run": "r", "file": null, "closed": true,
                            "failed": [{"what": "cannot write x", "cause": "it exists", "hint": ""}]});
        let mut written = Written::default();
        account(&report, &[], &mut written);
        assert_eq!(written.error.as_deref(), Some("cannot write x: it exists"));
    }
}
