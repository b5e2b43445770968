//! `df12`: which detectors make up which spectra, at ISIS. Also a part of `pl72`.

use crate::Array;

message!(b"df12", SpectrumMap);

table! {
    /// Which detectors make up which spectra.
    #[derive(Copy)]
    pub struct SpectrumMap<'a> {
        /// Spectrum of each entry.
        0 spectrum: Array<'a, i32>;
        /// Detector of each entry.
        1 detector_id: Array<'a, i32>;
        /// Number of spectra.
        2 n_spectra: i32;
    }
}
