//! `answ`: the ESS file writer's answer to a command.

message!(b"answ", Answ);

table! {
    /// An answer.
    pub struct Answ<'a> {
        /// Which writer.
        0 service_id: &'a str [required];
        /// Id of the writing job.
        1 job_id: &'a str [required];
        /// The requested action.
        2 action: ActionType;
        /// Its outcome.
        3 outcome: ActionOutcome;
        /// As HTTP counts: 201 done, 400 refused, 500 failed.
        4 status_code: i32;
        /// When the job stops, **milliseconds** since 1970 UTC.
        5 stop_time: u64;
        /// Text for people.
        6 message: &'a str;
        /// Id of the command that is answered.
        7 command_id: &'a str;
    }
}

words! {
    /// An action requested of a writer.
    pub enum ActionType: i8 { StartJob = "StartJob", SetStopTime = "SetStopTime" }
}

words! {
    /// How it went.
    pub enum ActionOutcome: i8 { Success = "Success", Failure = "Failure" }
}
