//! Slots of a worker on the pretend machine, each in a process of its own.

use crate::{Machine, PretendMedia};
use flow::{Data, Fault, Share, Slot, SlotOptions, Stepped, Work, WorkOptions, Worker};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Drain, Level, Writer};

struct Running<W> {
    process: Arc<PretendMedia>,
    slot: Slot,
    worker: W,
}

/// The slots of a worker that live.
pub struct Slots<W> {
    folder: PathBuf,
    stage: String,
    inputs: Vec<String>,
    running: BTreeMap<u32, Running<W>>,
}

impl<W: Worker> Slots<W> {
    /// No slot of worker `stage` lives in this data folder.
    pub fn new(folder: impl Into<PathBuf>, stage: &str, inputs: &[&str]) -> Self {
        let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
        Self { folder: folder.into(), stage: stage.to_owned(), inputs, running: BTreeMap::new() }
    }

    /// Says to the runner that those come which do not live: number and first task of each.
    pub fn send_parameters(&self, work: &mut Work) -> Result<Vec<(u32, u64)>, Fault> {
        let missing = (0..work.slots()).filter(|number| !self.running.contains_key(number));
        let send_parameters = |number: u32| {
            let from = work.ready(number, 0);
            work.send_parameters(number).map(|()| (number, from))
        };
        missing.map(send_parameters).collect()
    }

    /// Starts one that was greeted, with its code.
    pub fn start(
        &mut self,
        machine: &Machine,
        (number, from): (u32, u64),
        options: &WorkOptions,
        code: impl FnOnce(&Data) -> Result<W, Fault>,
    ) -> Result<(), Fault> {
        let process = machine.start();
        let data = Data { media: process.clone(), folder: self.folder.clone(), drain: Drain::Caller };
        let (inputs, stream) = (self.inputs.clone(), options.slot_options());
        let asked = SlotOptions { number, inputs, stream, from, by_key: options.share == Share::Key };
        let slot = Slot::open(&data, &self.stage, asked)?;
        let worker = code(&data)?;
        self.running.insert(number, Running { process, slot, worker });
        Ok(())
    }

    /// Numbers of those that live.
    pub fn numbers(&self) -> Vec<u32> {
        self.running.keys().copied().collect()
    }

    /// The code of one.
    pub fn worker(&mut self, number: u32) -> Option<&mut W> {
        self.running.get_mut(&number).map(|running| &mut running.worker)
    }

    /// Steps one; `wait` as of [`Slot::step`]. At level `disk`, its output is drained.
    pub fn step(&mut self, number: u32, wait: &mut dyn FnMut(&Writer) -> bool) -> Result<Stepped, Fault> {
        let Some(Running { slot, worker, .. }) = self.running.get_mut(&number) else { return Ok(Stepped::Idle) };
        let stepped = slot.step(worker, wait);
        if slot.writer().header().level == Level::Disk {
            let _ = slot.writer().drain();
        }
        stepped
    }

    /// Kills one.
    pub fn kill(&mut self, machine: &Machine, number: u32) {
        if let Some(Running { process, slot, worker }) = self.running.remove(&number) {
            // SAFETY: all maps of this process are in the slot and its code.
            unsafe { machine.kill(&process, (slot, worker)) };
        }
    }

    /// Kills all.
    pub fn kill_all(&mut self, machine: &Machine) {
        self.numbers().into_iter().for_each(|number| self.kill(machine, number));
    }

    /// All that holds maps of them, for a power cut.
    pub fn take(&mut self) -> Vec<(Slot, W)> {
        std::mem::take(&mut self.running).into_values().map(|running| (running.slot, running.worker)).collect()
    }
}
