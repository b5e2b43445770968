//! A file of a run, or several: laid out by its template, filled from streams, ended with its account.

pub(crate) mod account;
pub mod files;
pub(crate) mod job;
pub(crate) mod layout;
pub(crate) mod product;
mod resumed;
pub(crate) mod sink;
