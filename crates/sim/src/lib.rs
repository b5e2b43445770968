//! Instruments that do not exist.
pub mod alias;
pub mod limits;
pub mod pulse;
pub mod random;
pub mod reflectivity;
#[cfg(test)]
pub(crate) mod statistics;
