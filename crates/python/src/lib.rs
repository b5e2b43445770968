//! The Python module beamport._core.
