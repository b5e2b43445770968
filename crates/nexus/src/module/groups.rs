//! `bpgr` as tables of groups: one row a group, and two lists that rows begin in.
//!
//! `missing` and `member` hold the entries of all groups, one after the other; those of a group begin at its
//! `missing_index` and `member_index`, and end where those of the next begin.

use super::kind::{Module, ModuleKind, Plan};
use super::{Order, Rows, SCHEMA, Target, design, ns_since};
use crate::hdf::column::{Column, Design};
use std::sync::Arc;
use store::Entry;
use wire::bpgr::Group;
use wire::{DType, Message};

const MISSING: usize = 5;
const MEMBER: usize = 7;

pub(super) static BPGR: ModuleKind =
    ModuleKind::new("bpgr", &[wire::bpgr::ID], "NXcollection", |_| Some(Arc::new(GroupsPlan)));

#[derive(Debug)]
struct GroupsPlan;

impl Plan for GroupsPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["number", "time", "first", "count", "missing_index", "missing", "member_index", "member"]
    }

    fn begin(&self, path: &str, _module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        (designs(path), Box::new(Groups))
    }
}

fn designs(path: &str) -> Vec<Design> {
    vec![
        design(path, "number", DType::UInt64, Vec::new()),
        design(path, "time", DType::Int64, ns_since("start")),
        design(path, "first", DType::UInt64, Vec::new()),
        design(path, "count", DType::UInt32, Vec::new()),
        design(path, "missing_index", DType::UInt64, Vec::new()),
        design(path, "missing", DType::UInt32, Vec::new()),
        design(path, "member_index", DType::UInt64, Vec::new()),
        design(path, "member", DType::UInt64, Vec::new()),
    ]
}

struct Groups;

impl Rows for Groups {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, entry: &Entry) -> Result<(), &'static str> {
        let Message::Bpgr(group) = message else { return Err(SCHEMA) };
        add(place.columns, group, entry.origin_seq);
        Ok(())
    }

    fn order(&self) -> Option<Order> {
        Some(Order { time: 1, lists: &[(4, &[MISSING]), (6, &[MEMBER])], cues: None })
    }
}

/// Adds the row of a group. `number`: of its message.
fn add(columns: &mut [Column], group: &Group<'_>, number: u64) {
    let (missing, member) = (columns[MISSING].rows(), columns[MEMBER].rows());
    columns[0].extend(&number.to_le_bytes());
    columns[1].extend(&group.time.to_le_bytes());
    columns[2].extend(&group.first.to_le_bytes());
    columns[3].extend(&group.count.to_le_bytes());
    columns[4].extend(&missing.to_le_bytes());
    columns[MISSING].extend(group.missing.bytes());
    columns[6].extend(&member.to_le_bytes());
    columns[MEMBER].extend(group.members.bytes());
}
