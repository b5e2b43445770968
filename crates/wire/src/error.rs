//! Why a buffer was refused.

use std::fmt;

/// Why bytes are not the message they should be, or a message cannot be written.
///
/// `field` and `what` name fields as the schema does, so the text says where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Fewer bytes than the smallest message of any schema.
    TooShort {
        /// Bytes given.
        length: usize,
    },
    /// More bytes than FlatBuffers can address ([`crate::limits::MESSAGE_BYTES_MAX`]).
    TooLong {
        /// Bytes given.
        length: usize,
    },
    /// A message of another schema than the one asked for.
    WrongSchema {
        /// Identifier asked for.
        wanted: [u8; 4],
        /// Identifier found at bytes 4..8.
        found: [u8; 4],
    },
    /// A schema that beamport does not read.
    UnknownSchema {
        /// Identifier found at bytes 4..8.
        found: [u8; 4],
    },
    /// A position, offset or length that points outside the buffer or its table.
    OutOfBounds {
        /// Field whose position or content it is.
        field: &'static str,
    },
    /// A required field is absent.
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A string that is not UTF-8.
    NotText {
        /// The field.
        field: &'static str,
    },
    /// A vector of tables or strings longer than [`crate::limits::LIST_LENGTH_MAX`].
    TooMany {
        /// The field.
        field: &'static str,
        /// Entries it claims.
        count: usize,
    },
    /// Tables nested deeper than [`crate::limits::DEPTH_MAX`].
    TooDeep {
        /// The field.
        field: &'static str,
    },
    /// The same bytes are referred to from too many places ([`crate::limits::VISITS_PER_BYTE_MAX`]).
    Entangled,
    /// An enum or union value that this version does not know.
    UnknownKind {
        /// The field.
        field: &'static str,
        /// Value found.
        value: i64,
    },
    /// A value that a field cannot hold: of another type, or out of its range.
    Unfit {
        /// The field.
        field: &'static str,
    },
    /// Fields that are well formed but contradict each other.
    Inconsistent {
        /// The contradiction.
        what: &'static str,
    },
}

/// An identifier as text: `ev44`, or escaped where it is not printable.
fn name(id: &[u8; 4]) -> impl fmt::Display {
    id.escape_ascii().to_string()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooShort { length } => write!(f, "{length} bytes are too few for a message"),
            Error::TooLong { length } => {
                write!(f, "{length} bytes are more than a message can have (2 GiB)")
            }
            Error::WrongSchema { wanted, found } => {
                write!(f, "schema `{}` where `{}` was expected", name(found), name(wanted))
            }
            Error::UnknownSchema { found } => write!(f, "unknown schema `{}`", name(found)),
            Error::OutOfBounds { field } => write!(f, "`{field}` points outside the message"),
            Error::Missing { field } => write!(f, "required field `{field}` is missing"),
            Error::NotText { field } => write!(f, "`{field}` is not UTF-8"),
            Error::TooMany { field, count } => {
                write!(f, "`{field}` has too many entries ({count})")
            }
            Error::TooDeep { field } => write!(f, "`{field}` is nested too deep"),
            Error::Entangled => write!(f, "the same bytes are referred to too often"),
            Error::UnknownKind { field, value } => {
                write!(f, "`{field}` has the unknown value {value}")
            }
            Error::Unfit { field } => write!(f, "`{field}` cannot hold the value given"),
            Error::Inconsistent { what } => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {}
