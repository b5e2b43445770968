//! `wrdn`: the ESS file writer has finished a file.

message!(b"wrdn", Wrdn);

table! {
    /// A file is finished.
    pub struct Wrdn<'a> {
        /// Which writer.
        0 service_id: &'a str [required];
        /// Id of the writing job.
        1 job_id: &'a str [required];
        /// Whether something went wrong.
        2 error_encountered: bool;
        /// The file.
        3 file_name: &'a str [required];
        /// Metadata from the start of the run, JSON.
        4 metadata: Option<&'a str>;
        /// The error.
        5 message: Option<&'a str>;
    }
}
