//! Commands to the file writer: `pl72` starts a job, `6s4t` moves its stop.
//!
//! Whatever the bytes are, [`read`] returns; the texts of a refusal quote foreign text shortened.

use crate::limits::{FILE_NAME_BYTES_MAX, FOLDER_NAME_BYTES_MAX, PATH_BYTES_MAX, STRUCTURE_BYTES_MAX, TIME_MS_MAX};
use kafka::wrong_topic;
use settings::shortened;
use wire::answ::ActionType;
use wire::{pl72, s6s4t};

/// A command to the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Write a file.
    Start(Box<StartJob>),
    /// End the file that is being written.
    Stop(StopJob),
}

/// A job, as its `pl72` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartJob {
    /// Id of the job, a UUID.
    pub job_id: String,
    /// Name of the file below the output prefix: relative, without `.` and `..`.
    pub file_name: String,
    /// Topic on which the writer answers and takes stops.
    pub control_topic: String,
    /// Name of the instrument; where it is not empty, the file begins with its static file.
    pub instrument: String,
    /// Start, ms since 1970 UTC.
    pub start_ms: i64,
    /// Stop, ms since 1970 UTC, inclusive; `None`: open end.
    pub stop_ms: Option<i64>,
    /// The text that `wrdn` repeats, to the letter.
    pub metadata: String,
    /// The `pl72` as it came.
    pub raw: Vec<u8>,
}

impl StartJob {
    /// The `nexus_structure` as it came, the template of the file. Only `beamport-nexus` reads it. It may be nearly all
    /// of the message, so there is no copy of it.
    #[must_use]
    pub fn structure(&self) -> &str {
        pl72::read(&self.raw).map(|fields| fields.nexus_structure).unwrap_or_default()
    }

    /// A job of whose command nothing is left but where its outcome goes; `None` where not even that is known.
    #[cfg(feature = "client")]
    pub(crate) fn of_damaged(job_id: &str, control_topic: &str) -> Option<Self> {
        (!control_topic.is_empty()).then(|| Self {
            job_id: job_id.to_owned(),
            file_name: String::new(),
            control_topic: control_topic.to_owned(),
            instrument: String::new(),
            start_ms: 0,
            stop_ms: None,
            metadata: String::new(),
            raw: Vec::new(),
        })
    }

    /// The file's name as it came, which the status repeats.
    #[must_use]
    pub fn given_name(&self) -> &str {
        pl72::read(&self.raw).map(|fields| fields.filename).unwrap_or_default()
    }
}

/// A new stop of a job, as a `6s4t` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopJob {
    /// Id of the job.
    pub job_id: String,
    /// Id of the command, which the answer repeats.
    pub command_id: String,
    /// Stop, ms since 1970 UTC, inclusive; `None`: now.
    pub stop_ms: Option<i64>,
}

/// Why a command is not obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 400: the command is wrong; 500: the writer cannot obey.
    pub code: u16,
    /// The command.
    pub action: ActionType,
    /// Id of the job as the command gives it, perhaps empty.
    pub job_id: String,
    /// Id of the command as it gives it, perhaps empty; of a start that of the job.
    pub command_id: String,
    /// Topic on which the sender waits for the answer; empty where a start names no valid one.
    pub control_topic: String,
    /// Every mistake.
    pub mistakes: Vec<Mistake>,
}

/// One mistake of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistake {
    /// The field, or a JSON pointer into `nexus_structure`.
    pub pointer: String,
    /// The cause.
    pub what: String,
    /// The hint; empty where nothing is known.
    pub hint: String,
}

impl Mistake {
    /// A mistake with its place.
    pub fn new(pointer: impl Into<String>, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), what: what.into(), hint: hint.into() }
    }
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.pointer, self.what)?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

/// Reads a message of the job pool or of a control topic, which Kafka got at `kafka_time_ms`. `None`: a message of
/// another schema, which is not for the writer.
///
/// # Errors
/// Every mistake of the command.
pub fn read(payload: &[u8], kafka_time_ms: i64) -> Result<Option<Command>, Refusal> {
    match wire::schema_id(payload) {
        Some(pl72::ID) => start(payload, kafka_time_ms).map(|job| Some(Command::Start(Box::new(job)))),
        Some(s6s4t::ID) => stop(payload).map(|stop| Some(Command::Stop(stop))),
        _ => Ok(None),
    }
}

/// A message that cannot be read: nothing is known of it.
fn unreadable(action: ActionType, error: wire::Error) -> Refusal {
    Refusal {
        code: 400,
        action,
        job_id: String::new(),
        command_id: String::new(),
        control_topic: String::new(),
        mistakes: vec![Mistake::new("message", format!("it is damaged: {error}"), "send a valid FlatBuffers message")],
    }
}

fn start(payload: &[u8], kafka_time_ms: i64) -> Result<StartJob, Refusal> {
    let fields = pl72::read(payload).map_err(|error| unreadable(ActionType::StartJob, error))?;
    let mut mistakes = Vec::new();
    mistakes.extend(wrong_id("job_id", fields.job_id));
    let file_name = file_name(fields.filename).map_err(|mistake| mistakes.push(mistake)).unwrap_or_default();
    if fields.control_topic.is_empty() {
        mistakes.push(Mistake::new("control_topic", "it is empty", "name the topic of the answers"));
    } else if let Some(refused) = wrong_topic(fields.control_topic) {
        mistakes.push(Mistake::new("control_topic", refused.cause, refused.hint));
    }
    mistakes.extend(wrong_instrument(fields.instrument_name));
    let (start_ms, stop_ms) = times(&fields, kafka_time_ms, &mut mistakes);
    mistakes.extend(wrong_structure(fields.nexus_structure));
    if mistakes.is_empty() {
        return Ok(StartJob {
            job_id: fields.job_id.to_owned(),
            file_name,
            control_topic: fields.control_topic.to_owned(),
            instrument: fields.instrument_name.to_owned(),
            start_ms,
            stop_ms,
            metadata: fields.metadata.to_owned(),
            raw: payload.to_vec(),
        });
    }
    let topic = Some(fields.control_topic).filter(|topic| wrong_topic(topic).is_none());
    Err(Refusal {
        code: 400,
        action: ActionType::StartJob,
        job_id: quotable(fields.job_id),
        command_id: quotable(fields.job_id),
        control_topic: topic.unwrap_or_default().to_owned(),
        mistakes,
    })
}

fn stop(payload: &[u8]) -> Result<StopJob, Refusal> {
    let fields = s6s4t::read(payload).map_err(|error| unreadable(ActionType::SetStopTime, error))?;
    let mut mistakes = Vec::new();
    mistakes.extend(wrong_id("job_id", fields.job_id));
    mistakes.extend(wrong_id("command_id", fields.command_id));
    let stop_ms = match fields.stop_time {
        0 => None,
        time => ms("stop_time", time).map_err(|mistake| mistakes.push(mistake)).ok(),
    };
    if mistakes.is_empty() {
        return Ok(StopJob { job_id: fields.job_id.to_owned(), command_id: fields.command_id.to_owned(), stop_ms });
    }
    Err(Refusal {
        code: 400,
        action: ActionType::SetStopTime,
        job_id: quotable(fields.job_id),
        command_id: quotable(fields.command_id),
        control_topic: String::new(),
        mistakes,
    })
}

/// An id as an answer repeats it: whole, unless it is much longer than any id.
fn quotable(id: &str) -> String {
    if id.len() <= FOLDER_NAME_BYTES_MAX { id.to_owned() } else { shortened(id) }
}

/// An id must be a UUID of RFC 9562 with a version.
fn wrong_id(field: &str, id: &str) -> Option<Mistake> {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let hint = "write a UUID, like that of Python's `uuid.uuid4()`";
    let is_place = |(at, b): (usize, u8)| if DASHES.contains(&at) { b == b'-' } else { b.is_ascii_hexdigit() };
    let bytes = id.as_bytes();
    let cause = if id.is_empty() {
        "it is missing".to_owned()
    } else if bytes.len() != 36 || !bytes.iter().copied().enumerate().all(is_place) {
        format!("`{}` is not a UUID", shortened(id))
    } else if !(b'1'..=b'8').contains(&bytes[14]) || !b"89abAB".contains(&bytes[19]) {
        format!("`{}` is not a UUID of RFC 9562 with a version", shortened(id))
    } else {
        return None;
    };
    Some(Mistake::new(field, cause, hint))
}

/// The file's name, relative to the prefix.
fn file_name(given: &str) -> Result<String, Mistake> {
    let wrong = |cause: String, hint: &str| Mistake::new("filename", cause, hint);
    let parts: Vec<&str> = given.split('/').filter(|part| !["", "."].contains(part)).collect();
    let Some((file, folders)) = parts.split_last() else {
        return Err(wrong("it is empty".into(), "name the file, relative to the output prefix"));
    };
    let quoted = shortened(given);
    if given.ends_with(['/']) || given.ends_with("/.") {
        return Err(wrong(format!("`{quoted}` names a folder"), "name a file"));
    }
    if parts.contains(&"..") {
        return Err(wrong(format!("`{quoted}` leaves the output prefix"), "write a path without `..`"));
    }
    if given.contains(char::is_control) {
        return Err(wrong(format!("`{quoted}` holds a control character"), "write printable characters only"));
    }
    if file.starts_with('.') || file.contains(['{', '}', '\\']) {
        return Err(wrong(
            format!("`{}` is not an accepted file name", shortened(file)),
            "write a name without `{`, `}` and `\\` that does not begin with a dot",
        ));
    }
    if file.len() > FILE_NAME_BYTES_MAX || folders.iter().any(|folder| folder.len() > FOLDER_NAME_BYTES_MAX) {
        let cause = format!("a part of `{quoted}` is too long");
        return Err(wrong(cause, &format!("at most {FILE_NAME_BYTES_MAX} bytes between two `/`")));
    }
    let name = parts.join("/");
    match name.len() <= PATH_BYTES_MAX {
        true => Ok(name),
        false => Err(wrong(format!("`{quoted}` is too long"), &format!("at most {PATH_BYTES_MAX} bytes"))),
    }
}

/// The name of an instrument is one of a folder and of the file in it.
fn wrong_instrument(name: &str) -> Option<Mistake> {
    let is_wrong = name.starts_with('.')
        || name.contains(['/', '\\'])
        || name.contains(char::is_control)
        || name.len() > FILE_NAME_BYTES_MAX;
    let cause = || format!("`{}` is not an instrument name", shortened(name));
    is_wrong.then(|| Mistake::new("instrument_name", cause(), "write the name of a folder in the template prefix"))
}

/// The mistakes that the text of the structure alone shows; its content is for [`crate::check`].
fn wrong_structure(structure: &str) -> Option<Mistake> {
    let length = structure.len();
    if structure.trim().is_empty() {
        return Some(Mistake::new("nexus_structure", "it is empty", "write the structure of the file as JSON"));
    }
    (length > STRUCTURE_BYTES_MAX).then(|| {
        let hint = "move what does not change into the static file of the instrument";
        Mistake::new("nexus_structure", format!("{length} bytes, at most {STRUCTURE_BYTES_MAX}"), hint)
    })
}

/// Start and stop. A stop later than any clock means: open end.
fn times(fields: &pl72::Pl72<'_>, kafka_time_ms: i64, mistakes: &mut Vec<Mistake>) -> (i64, Option<i64>) {
    let start = match fields.start_time {
        0 if kafka_time_ms <= 0 => {
            Err(Mistake::new("start_time", "neither it nor the time of the message is given", "give the start in ms"))
        }
        0 => Ok(kafka_time_ms),
        time => ms("start_time", time),
    };
    let stop = match fields.stop_time {
        0 => Ok(None),
        time if i64::try_from(time).is_ok_and(|time| time > TIME_MS_MAX) => Ok(None),
        time => ms("stop_time", time).map(Some),
    };
    if let (Ok(start), Ok(Some(stop))) = (&start, &stop)
        && stop < start
    {
        let cause = format!("the stop {stop} is before the start {start}");
        mistakes.push(Mistake::new("stop_time", cause, "give both in ms since 1970 UTC"));
    }
    let mut noted = |mistake: Mistake| mistakes.push(mistake);
    (start.map_err(&mut noted).unwrap_or_default(), stop.map_err(&mut noted).unwrap_or_default())
}

fn ms(field: &str, time: u64) -> Result<i64, Mistake> {
    let ms = i64::try_from(time).ok().filter(|ms| *ms <= TIME_MS_MAX);
    ms.ok_or_else(|| Mistake::new(field, format!("{time} ms is after the year 2200"), "give it in ms since 1970 UTC"))
}

#[cfg(test)]
mod tests;
