//! `pl72`: start of a run, for the ESS file writer. Absent strings read as empty.
//!
//! Every string is written, as the Python library does.

pub use crate::df12::SpectrumMap;

message!(b"pl72", Pl72);

table! {
    /// Start of a run.
    #[derive(Copy)]
    pub struct Pl72<'a> {
        /// Start, **milliseconds** since 1970 UTC.
        0 start_time: u64;
        /// Stop, **milliseconds** since 1970 UTC; 0 = not known.
        1 stop_time: u64;
        /// Name of the run.
        2 run_name: &'a str;
        /// Name of the instrument.
        3 instrument_name: &'a str;
        /// The `nexus_structure` template, JSON.
        4 nexus_structure: &'a str;
        /// Id of the writing job, usually a uuid as text.
        5 job_id: &'a str;
        /// Where the data is, `host:port` of a Kafka broker.
        6 broker: &'a str;
        /// Which writer is meant; empty = any.
        7 service_id: &'a str;
        /// File to write.
        8 filename: &'a str;
        /// Number of periods (ISIS).
        9 n_periods: u32 = 1;
        /// Which detectors make up which spectra (ISIS).
        10 detector_spectrum_map: Option<SpectrumMap<'a>>;
        /// More about the run, JSON.
        11 metadata: &'a str;
        /// Topic on which the writer answers.
        12 control_topic: &'a str;
    }
}
