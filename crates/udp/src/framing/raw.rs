//! The framing `raw`: a datagram is a message, as it came.

use super::{ByTable, FramingKind, Table};
use std::sync::Arc;

/// The kind.
pub(crate) static RAW: FramingKind = FramingKind {
    head: Some(|_| 0),
    ..FramingKind::new("raw", "a message", |_, schema| {
        let table = Arc::new(Table::raw(schema));
        Arc::new(move |_| Box::new(ByTable::new(table.clone())))
    })
};
