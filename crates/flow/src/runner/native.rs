//! A ready-made worker in a slot, built from its kind and parameters; `configure` builds it again from new ones.
//!
//! Failure behaviour: parameters that the kind refuses are a fault with the first mistake, and the old worker stays.

use crate::edge::{WorkerKind, WorkerPlace};
use crate::fault::Fault;
use crate::slot::Outputs;
use crate::worker::{Stop, Worker};
use serde_json::Value;
use settings::Mistake;
use store::Batch;

/// A ready-made worker at work.
pub struct Native {
    kind: &'static WorkerKind,
    place: WorkerPlace,
    parameters: Value,
    code: Box<dyn Worker + Send>,
}

impl Native {
    /// Builds the worker of a kind in a slot. `parameters` are a JSON object.
    pub fn new(kind: &'static WorkerKind, place: WorkerPlace, parameters: &Value) -> Result<Self, Fault> {
        let what = || format!("worker `{}` rejects its parameters", place.stage);
        let plan = kind.plan(parameters).map_err(|mistakes| misfit(what(), mistakes))?;
        Ok(Self { kind, code: plan.build(&place)?, place, parameters: parameters.clone() })
    }
}

/// The first mistake in parameters as the cause of a fault.
#[must_use]
pub fn misfit(what: String, mistakes: Vec<Mistake>) -> Fault {
    let Some(Mistake { what: wrong, cause, hint, .. }) = mistakes.into_iter().next() else {
        return Fault::new(what, "they are invalid");
    };
    let cause = if cause.is_empty() { wrong } else { format!("{wrong}: {cause}") };
    Fault::new(what, cause).hint(hint)
}

impl Worker for Native {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        self.code.work(batch, out)
    }

    fn pass_time(&mut self, time: i64, out: &mut Outputs<'_>) -> Result<(), Stop> {
        self.code.pass_time(time, out)
    }

    fn looks_at_payloads(&self) -> bool {
        self.code.looks_at_payloads()
    }

    fn keeps(&self) -> bool {
        self.code.keeps()
    }

    fn rest(&mut self) {
        self.code.rest();
    }

    fn configure(&mut self, parameters: &str) -> Result<(), Fault> {
        let parameters: Value = serde_json::from_str(parameters).unwrap_or_default();
        // The first ones are those that it was built with.
        if parameters != self.parameters {
            *self = Self::new(self.kind, self.place.clone(), &parameters)?;
        }
        Ok(())
    }

    fn statistics(&mut self) -> String {
        self.code.statistics()
    }
}
