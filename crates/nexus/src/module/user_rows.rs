//! A module from outside as one of ours: its columns, and what became of each message that it was given.

use super::user::{Cell, Dataset, Filler, Given, Rows, Wrong, names, wrong_datasets};
use super::{Fixed, Module, ModuleKind, Plan, Settings, Target, UNFIT, user};
use crate::hdf::column::{Column, Design};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use flow::Fault;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use store::Entry;
use wire::Message;

/// The kind of a user's module.
pub(crate) fn kind_of(module: &'static dyn user::Module) -> ModuleKind {
    ModuleKind { user: Some(module), ..ModuleKind::new(module.word(), module.schemas(), module.class(), read) }
}

fn read(settings: &mut dyn Settings) -> Option<Arc<dyn Plan>> {
    let module = settings.kind().user?;
    let members = settings.members(module.keys());
    match module.filler(&members) {
        Err(wrongs) => {
            let keys = || format!("`{}` has: {}", module.word(), module.keys().join(", "));
            for Wrong { key, cause, hint } in wrongs {
                settings.wrong(&key, cause, if hint.is_empty() { keys() } else { hint });
            }
            None
        }
        Ok(filler) => match names(filler.as_ref()) {
            Err(cause) => {
                settings.wrong("", cause, format!("fix the code of `{}`", module.word()));
                None
            }
            Ok(datasets) => Some(Arc::new(UserPlan { module, settings: members, datasets })),
        },
    }
}

/// A user's module with its settings.
struct UserPlan {
    module: &'static dyn user::Module,
    settings: Map<String, Value>,
    /// Names of the datasets that it makes.
    datasets: Vec<String>,
}

impl std::fmt::Debug for UserPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.module.word(), self.settings)
    }
}

impl Plan for UserPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        self.datasets.iter().map(String::as_str).collect()
    }

    fn begin(&self, path: &str, _module: &Module) -> (Vec<Design>, Box<dyn super::Rows>) {
        let (designs, rows) = Outside::begin(path, self);
        (designs, Box::new(rows))
    }
}

/// A filler at work.
struct Outside {
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
    /// Makes the filler of a group, and its columns.
    fn begin(path: &str, from: &UserPlan) -> (Vec<Design>, Self) {
        let filler = from.module.filler(&from.settings);
        let datasets = filler.as_ref().map(|filler| filler.datasets()).unwrap_or_default();
        let design = |dataset: &Dataset| Design {
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

impl super::Rows for Outside {
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
        // A name that was not given at the beginning may be that of another object.
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
