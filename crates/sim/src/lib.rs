//! Instruments that do not exist.
