//! Streams on one machine: append, marks, cursors, recovery, verify.
