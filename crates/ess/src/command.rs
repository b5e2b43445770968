//! Commands to the file writer: `pl72` starts a job, `6s4t` moves its stop.

use serde_json::Value;
use wire::answ::ActionType;

/// What somebody wants of the writer.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Write a file.
    Start(Box<StartJob>),
    /// End the file that is being written.
    Stop(StopJob),
}

/// A job, as its `pl72` says.
#[derive(Clone, Debug, PartialEq)]
pub struct StartJob {
    /// Id of the job, a UUID.
    pub job_id: String,
    /// Name of the file below the output prefix: relative, without `..`.
    pub file_name: String,
    /// The `nexus_structure`, the template of the file.
    pub structure: Value,
    /// Topic on which the writer answers and takes stops.
    pub control_topic: String,
    /// Name of the instrument; where it is not empty, its static file comes first.
    pub instrument: String,
    /// Start, ms since 1970 UTC.
    pub start_ms: i64,
    /// Stop, ms since 1970 UTC, inclusive; `None`: open end.
    pub stop_ms: Option<i64>,
    /// What `wrdn` repeats, to the letter.
    pub metadata: String,
    /// The `pl72` as it came.
    pub raw: Vec<u8>,
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
    /// What was asked for.
    pub action: ActionType,
    /// Id of the job as the command gives it, perhaps empty.
    pub job_id: String,
    /// Id of the command as it gives it, perhaps empty; of a start that of the job.
    pub command_id: String,
    /// Every mistake.
    pub mistakes: Vec<Mistake>,
}

/// One mistake of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The field, or a JSON pointer into `nexus_structure`.
    pub pointer: String,
    /// What is wrong.
    pub what: String,
    /// What to write instead; empty where nothing is known.
    pub hint: String,
}
