//! Sections of an instrument file while they are read: keys, values with units, and every mistake with its line.
//!
//! An edge reads its own section: it asks a [`Section`] for the values of its [`Key`]s, notes what is wrong with them,
//! and keeps what it needs. Defaults, near words, the reference pages and `check --show` are made from the same keys.

mod family;
mod json;
mod key;
pub mod limits;
mod mistake;
mod name;
mod page;
mod section;
pub mod units;

pub use family::{Family, expanded, is_family};
pub use json::{json_of, read_json};
pub use key::{Key, Table, key, reference, required};
pub use mistake::{Mistake, Mistakes, Severity, nearest};
pub use name::{is_run_name, is_stream_name, plain, wrong_name, wrong_run_name};
pub use page::{Page, Parsed, parse, text_of};
pub use section::{Origin, Section, Setting, Shown, Take, Word, noun, unknown_word};
pub use units::{Refused, Size, Time, When, shortened};
