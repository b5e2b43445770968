//! Where every message went: numbers, totals, origins, the ledger.

pub(crate) mod cuts;
pub mod hosts;
pub mod ledger;
pub(crate) mod numbers;
pub(crate) mod origins;
pub(crate) mod totals;
