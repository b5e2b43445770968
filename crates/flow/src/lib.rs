//! Stages, credit, runs and the ledger.
