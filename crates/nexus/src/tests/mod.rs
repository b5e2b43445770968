//! Files as a whole.

mod many;
mod sealed;
pub(crate) mod whole;
