//! `tdct` as NXlog: times without values, one row each.

use super::keys::CUE_SECONDS;
use super::kind::{About, Module, ModuleKind, Plan, When};
use super::{Cues, Order, Rows, SCHEMA, Target, UNFIT, convert, design, ns_since};
use crate::hdf::column::Design;
use serde_json::Value;
use std::sync::Arc;
use store::Entry;
use wire::{Array, DType, Message};

const TIME: usize = 0;
const CUE: usize = 1;

pub(super) static TDCT: ModuleKind = ModuleKind {
    origin: Some(|message| match message {
        Message::Tdct(m) => Some(m.name),
        _ => None,
    }),
    keys: &[&CUE_SECONDS],
    holds_on: When::InEss,
    repeats: When::Always,
    has_neighbours: true,
    about: About {
        rules: &["Name the group `top_dead_center`: chexus requires a `value` in an `NXlog` with another name."],
        ..About::NONE
    },
    ..ModuleKind::new("tdct", &[wire::tdct::ID], "NXlog", |_| Some(Arc::new(TimesPlan)))
};

#[derive(Debug)]
struct TimesPlan;

impl Plan for TimesPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["time", "cue_index", "cue_timestamp_zero"]
    }

    fn begin(&self, path: &str, _module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        (designs(path), Box::new(Times::default()))
    }
}

fn designs(path: &str) -> Vec<Design> {
    vec![
        design(path, "time", DType::Int64, ns_since("start")),
        design(path, "cue_index", DType::UInt64, Vec::new()),
        design(path, "cue_timestamp_zero", DType::Int64, ns_since("start")),
    ]
}

#[derive(Default)]
struct Times {
    cues: Cues,
}

impl Rows for Times {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        let Message::Tdct(message) = message else { return Err(SCHEMA) };
        let times: Array<'_, i64> = convert::signed(message.timestamps).ok_or(UNFIT)?;
        if let Some(first) = times.first() {
            let row = place.columns[TIME].rows();
            self.cues.see(place.columns, CUE, first, row);
        }
        place.columns[TIME].extend(times.bytes());
        Ok(())
    }

    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(TIME, Some(CUE)))
    }

    fn cues(&mut self) -> Option<&mut Cues> {
        Some(&mut self.cues)
    }

    fn state(&self) -> Value {
        self.cues.state()
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.cues.resume(state)
    }
}
