//! A module from outside as one of ours: its columns, and what became of each message that it was given.

use super::{Cell, Filler, Given, Rows, Wrong, wrong_datasets};
use crate::column::{Column, Design};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use crate::module::{Fixed, Target, UNFIT};
use crate::template::FromOutside;
use flow::Fault;
use serde_json::Value;
use std::collections::VecDeque;
use store::Entry;
use wire::Message;

/// A filler at work.
pub(crate) struct Outside {
    filler: Result<Box<dyn Filler>, Vec<Wrong>>,
    /// Of messages that it was given, and that nobody asked for yet.
    answers: VecDeque<Result<(), &'static str>>,
    /// The types of its datasets, as the filler says them.
    cells: Vec<Cell>,
    /// Used again.
    new: Vec<Vec<u8>>,
    /// Of what it writes last, as the template was checked with them.
    names: Vec<String>,
}

impl Outside {
    /// What fills a group, and its columns.
    pub(crate) fn begin(path: &str, from: &FromOutside) -> (Vec<Design>, Self) {
        let filler = from.module.filler(&from.settings);
        let datasets = filler.as_ref().map(|filler| filler.datasets()).unwrap_or_default();
        let design = |dataset: &super::Dataset| Design {
            path: format!("{path}/{}", dataset.name),
            cell: dataset.cell,
            row: dataset.row.clone(),
            attributes: dataset.attributes.clone(),
            least: CHUNK_BYTES_MIN,
            most: CHUNK_BYTES_MAX,
            filter: None,
        };
        // The same as when the template was checked, or nothing fits into anything.
        let designs: Vec<Design> =
            if wrong_datasets(&datasets).is_none() { datasets.iter().map(design).collect() } else { Vec::new() };
        let (cells, new) = (designs.iter().map(|design| design.cell).collect(), vec![Vec::new(); designs.len()]);
        let is_last = |name: &&String| datasets.iter().all(|dataset| dataset.name != **name);
        let names = from.datasets.iter().filter(is_last).cloned().collect();
        (designs, Self { filler, answers: VecDeque::new(), cells, new, names })
    }
}

impl crate::module::Rows for Outside {
    fn take(&mut self, _: &mut Target<'_>, _: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        Err(UNFIT)
    }

    fn take_all(&mut self, columns: &mut [Column], messages: &[Given<'_>]) -> Result<usize, Fault> {
        let filler = self.filler.as_mut().map_err(|wrongs| {
            let cause = wrongs.first().map(|wrong| wrong.cause.clone()).unwrap_or_default();
            Fault::new("a module has failed", cause)
        })?;
        let known = self.answers.len();
        let (answers, new) = (&mut self.answers, &mut self.new);
        let mut rows = Rows { columns, cells: &self.cells, answers, new, unfit: false, taken_bytes: 0 };
        let taken = filler.take_all(messages, &mut rows)?;
        // One answer for each, whatever it said.
        let taken = taken.clamp(1, messages.len().max(1));
        self.new.iter_mut().for_each(Vec::clear);
        self.answers.resize(known + taken, Err(UNFIT));
        Ok(taken)
    }

    fn answered(&mut self) -> Option<Result<(), &'static str>> {
        Some(self.answers.pop_front().unwrap_or(Err(UNFIT)))
    }

    fn last_words(&self, path: &str) -> Vec<Fixed> {
        let last = self.filler.as_ref().map(|filler| filler.last()).unwrap_or_default();
        // What it did not name at the beginning may be the name of something else.
        let (right, wrong): (Vec<_>, Vec<_>) = last.into_iter().partition(|last| self.names.contains(&last.name));
        wrong.iter().for_each(|last| tracing::warn!("{path}: the dataset `{}` was not named before", last.name));
        right.into_iter().map(|last| (format!("{path}/{}", last.name), last.value, last.attributes)).collect()
    }

    fn state(&self) -> Value {
        self.filler.as_ref().map_or(Value::Null, |filler| filler.state())
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.filler.as_mut().ok()?.resume(state)
    }
}
