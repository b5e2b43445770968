//! The wire format of beamport: bytes to types and back.
