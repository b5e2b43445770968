//! Workers that are ready-made: `call = "histogram"`, a name without a colon.
//!
//! They run in slots as Python code does, each slot a process of the program itself. Their parameters are checked when the
//! instrument file is read, all mistakes at once.
//!
//! Failure behaviour: a message that one cannot handle goes aside with a reason of one word and a text. What a worker
//! keeps between messages stands in streams: a slot that is killed finds it again (`histogram.rs`, `again.rs`).

mod again;
mod attach;
mod beside;
mod copy;
mod expression;
mod filter;
mod groups;
mod histogram;
mod parameters;
mod tiles;

pub use groups::{Finder, Found, Grouping, Pending};

use flow::Data;
use flow::Fault;
use flow::{Outputs, Stop, Worker};
use parameters::Parameters;
use serde_json::Value;
use std::collections::BTreeMap;
use store::Batch;

/// Their names.
pub const NATIVE: [&str; 7] = ["attach", "copy", "filter", "groups", "histogram", "split", "stitch"];

/// A mistake in the parameters of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The parameter.
    pub key: String,
    /// What is wrong with it.
    pub cause: String,
    /// What to write instead.
    pub hint: String,
}

/// What a worker asks of whoever runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// One slot and one input: it keeps something from one message to the next. Why.
    pub alone: Option<&'static str>,
    /// It keeps messages of its input, or of streams beside it, from being let go.
    pub holds_back: bool,
    /// Streams that it looks at beside its inputs, each with the parameter that names it.
    pub streams: Vec<(String, String)>,
    /// Bytes of a slot's stream that it cannot do without; 0 = as large as its messages.
    pub bytes: u64,
    /// No message may be left out of what it keeps: one at which slots die is tried again and again, and never aside.
    pub whole: bool,
    /// Code of the user that it runs, and what that is told: its slots are of Python.
    pub code: Option<(String, Value)>,
}

/// What a worker of this name is to do.
enum Plan {
    Attach(attach::Plan),
    Copy,
    Filter(filter::Plan),
    Groups(groups::Plan),
    Histogram(histogram::Plan),
    Split(tiles::Split),
    Stitch(tiles::Stitch),
}

fn plan(name: &str, parameters: &Value) -> Result<Plan, Vec<Misfit>> {
    let empty = serde_json::Map::new();
    let mut given = Parameters::new(parameters.as_object().unwrap_or(&empty));
    let plan = match name {
        "attach" => attach::Plan::read(&mut given).map(Plan::Attach),
        "copy" => Some(Plan::Copy),
        "filter" => filter::Plan::read(&mut given).map(Plan::Filter),
        "groups" => groups::Plan::read(&mut given).map(Plan::Groups),
        "histogram" => histogram::Plan::read(&mut given).map(Plan::Histogram),
        "split" => tiles::Split::read(&mut given).map(Plan::Split),
        "stitch" => tiles::Stitch::read(&mut given).map(Plan::Stitch),
        _ => {
            let hint = format!("ready-made are {}; code of your own is `FILE.py:NAME`", NATIVE.join(", "));
            given.mistake("call", format!("there is no worker `{name}`"), hint);
            None
        }
    };
    let mistakes = given.end();
    plan.filter(|_| mistakes.is_empty()).ok_or(mistakes)
}

/// Checks the parameters of a ready-made worker, a JSON object.
pub fn check_native(name: &str, parameters: &Value) -> Result<Needs, Vec<Misfit>> {
    Ok(match plan(name, parameters)? {
        Plan::Attach(plan) => plan.needs(),
        Plan::Filter(plan) => plan.needs(),
        Plan::Groups(plan) => plan.needs(),
        Plan::Histogram(plan) => plan.needs(),
        Plan::Copy | Plan::Split(_) => Needs::default(),
        Plan::Stitch(_) => {
            Needs { alone: Some("it keeps tiles until their frame is whole"), holds_back: true, ..Needs::default() }
        }
    })
}

/// The first mistake, as what is wrong with a worker.
fn misfit(stage: &str, mistakes: Vec<Misfit>) -> Fault {
    let first = mistakes.into_iter().next();
    let Misfit { key, cause, hint } =
        first.unwrap_or(Misfit { key: String::new(), cause: String::new(), hint: String::new() });
    Fault::new(format!("worker `{stage}` does not take its parameters"), format!("`{key}`: {cause}")).hint(hint)
}

/// A ready-made worker at work.
pub struct Native {
    data: Data,
    stage: String,
    slot: u32,
    inputs: Vec<String>,
    name: String,
    parameters: Value,
    code: Box<dyn Worker + Send>,
}

impl Native {
    /// Worker `name` as slot `slot` of `stage`, with parameters that are a JSON object.
    pub fn new(
        data: &Data,
        stage: &str,
        slot: u32,
        inputs: &[String],
        name: &str,
        parameters: &Value,
    ) -> Result<Self, Fault> {
        let plan = plan(name, parameters).map_err(|mistakes| misfit(stage, mistakes))?;
        let input = inputs.first().map_or("", String::as_str);
        let code: Box<dyn Worker + Send> = match plan {
            Plan::Attach(plan) => Box::new(attach::Attaching::new(data, stage, input, plan)?),
            Plan::Copy => Box::new(copy::Copying::default()),
            Plan::Filter(plan) => Box::new(filter::Filter::new(data, plan)?),
            Plan::Groups(plan) => Box::new(groups::Grouping::new(data, stage, input, plan)?),
            Plan::Histogram(plan) => Box::new(histogram::Histogram::new(data, stage, slot, input, plan)?),
            Plan::Split(split) => Box::new(split),
            Plan::Stitch(plan) => Box::new(tiles::Stitching::new(data, stage, input, plan)?),
        };
        Ok(Self {
            data: data.clone(),
            stage: stage.to_owned(),
            slot,
            inputs: inputs.to_vec(),
            name: name.to_owned(),
            parameters: parameters.clone(),
            code,
        })
    }
}

impl Worker for Native {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        self.code.work(batch, out)
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
        // The first are those that it was made with.
        if parameters != self.parameters {
            *self = Self::new(&self.data, &self.stage, self.slot, &self.inputs, &self.name, &parameters)?;
        }
        Ok(())
    }

    fn statistics(&mut self) -> String {
        self.code.statistics()
    }
}

/// Numbers of a worker as it says them.
fn said(numbers: &BTreeMap<&'static str, u64>) -> String {
    serde_json::to_string(numbers).unwrap_or_default()
}

/// The text of a message that cannot be read.
fn unreadable(error: wire::Error) -> String {
    format!("it cannot be read: {error}")
}
