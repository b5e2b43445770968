//! `pl72`: start of a run, as the ESS file writer is told. Absent strings read as empty.

use crate::flat::{Message, Writer};
use crate::{Array, Error};

/// The schema id.
pub const ID: [u8; 4] = *b"pl72";

/// Start of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pl72<'a> {
    /// Start, **milliseconds** since 1970 UTC.
    pub start_time: u64,
    /// Stop, **milliseconds** since 1970 UTC; 0 = not known.
    pub stop_time: u64,
    /// Name of the run.
    pub run_name: &'a str,
    /// Name of the instrument.
    pub instrument_name: &'a str,
    /// The `nexus_structure` template, JSON.
    pub nexus_structure: &'a str,
    /// Id of the writing job, usually a uuid as text.
    pub job_id: &'a str,
    /// Where the data is, `host:port` of a Kafka broker.
    pub broker: &'a str,
    /// Which writer is meant; empty = any.
    pub service_id: &'a str,
    /// File to write.
    pub filename: &'a str,
    /// Number of periods (ISIS).
    pub n_periods: u32,
    /// Which detectors make up which spectra (ISIS).
    pub detector_spectrum_map: Option<SpectrumMap<'a>>,
    /// More about the run, JSON.
    pub metadata: &'a str,
    /// Topic on which the writer answers.
    pub control_topic: &'a str,
}

/// Which detectors make up which spectra.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpectrumMap<'a> {
    /// Spectrum of each entry.
    pub spectrum: Array<'a, i32>,
    /// Detector of each entry.
    pub detector_id: Array<'a, i32>,
    /// Number of spectra.
    pub n_spectra: i32,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Pl72<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let detector_spectrum_map = match table.table(10, "detector_spectrum_map")? {
        None => None,
        Some(map) => Some(SpectrumMap {
            spectrum: map.array_or_empty(0, "spectrum")?,
            detector_id: map.array_or_empty(1, "detector_id")?,
            n_spectra: map.number(2, 0, "n_spectra")?,
        }),
    };
    Ok(Pl72 {
        start_time: table.number(0, 0, "start_time")?,
        stop_time: table.number(1, 0, "stop_time")?,
        run_name: table.text_or_empty(2, "run_name")?,
        instrument_name: table.text_or_empty(3, "instrument_name")?,
        nexus_structure: table.text_or_empty(4, "nexus_structure")?,
        job_id: table.text_or_empty(5, "job_id")?,
        broker: table.text_or_empty(6, "broker")?,
        service_id: table.text_or_empty(7, "service_id")?,
        filename: table.text_or_empty(8, "filename")?,
        n_periods: table.number(9, 1, "n_periods")?,
        detector_spectrum_map,
        metadata: table.text_or_empty(11, "metadata")?,
        control_topic: table.text_or_empty(12, "control_topic")?,
    })
}

/// Writes a message into `out`, replacing what was there. Every string is written, as the Python library does.
pub fn write(out: &mut Vec<u8>, parts: &Pl72<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let map = if parts.detector_spectrum_map.is_some() { 4 } else { 0 };
    let at = writer.root([8, 8, 4, 4, 4, 4, 4, 4, 4, 4, map, 4, 4]);
    writer.put(at[0], parts.start_time);
    writer.put(at[1], parts.stop_time);
    writer.put(at[9], parts.n_periods);
    writer.text(at[2], parts.run_name);
    writer.text(at[3], parts.instrument_name);
    writer.text(at[4], parts.nexus_structure);
    writer.text(at[5], parts.job_id);
    writer.text(at[6], parts.broker);
    writer.text(at[7], parts.service_id);
    writer.text(at[8], parts.filename);
    if let Some(map) = parts.detector_spectrum_map {
        let [spectrum, detector_id, n_spectra] = writer.table(at[10], [4, 4, 4]);
        writer.put(n_spectra, map.n_spectra);
        writer.array(spectrum, map.spectrum);
        writer.array(detector_id, map.detector_id);
    }
    writer.text(at[11], parts.metadata);
    writer.text(at[12], parts.control_topic);
    writer.finish()
}
