//! The beamport program: instrument file, command line, error text.
