//! `6s4t`: stop of a run, for the ESS file writer. Absent strings read as empty.
//!
//! Every string is written: the Python library fails on an absent `command_id`, and so does the file writer.

message!(b"6s4t", RunStop);

table! {
    /// Stop of a run.
    #[derive(Copy)]
    pub struct RunStop<'a> {
        /// Stop, **milliseconds** since 1970 UTC; 0 = now.
        0 stop_time: u64;
        /// Name of the run.
        1 run_name: &'a str;
        /// Id of the writing job that is to stop.
        2 job_id: &'a str;
        /// Which writer is meant; empty = any.
        3 service_id: &'a str;
        /// Id that the answer repeats.
        4 command_id: &'a str;
    }
}
