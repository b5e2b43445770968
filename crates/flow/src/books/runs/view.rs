//! The runs of a data folder as a reader follows them.

use crate::Fault;
use crate::data::{Data, RUNS, each_batch, stream_fault};
use crate::records::Run;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use store::{ReadOptions, Reader};
use wire::bprn::State;

/// The runs of a data folder, followed: each look reads only what is new.
pub struct RunsView {
    data: Data,
    /// The stream that holds them.
    stream: String,
    reader: Option<Reader>,
    /// Also reads steps that a power cut can take back.
    early: bool,
    pub(super) runs: Vec<Run>,
    /// Where each of them stands, by name.
    places: HashMap<String, usize>,
    /// Sequence of the newest step of each run.
    steps: BTreeMap<String, u64>,
    /// Steps that do not verify.
    lost: Vec<std::ops::Range<u64>>,
    /// Metadata of the instrument by the sequence of the step that has them.
    instruments: BTreeMap<u64, Arc<str>>,
}

impl RunsView {
    /// Opens the stream of runs, or waits for it to be there.
    pub fn new(data: &Data) -> Self {
        Self::of(data, RUNS)
    }

    /// The same of a stream of another name: the mirror of the runs of another host.
    pub fn of(data: &Data, stream: &str) -> Self {
        let (runs, places, steps, lost, instruments) = Default::default();
        let (stream, reader, early) = (stream.to_owned(), None, false);
        Self { data: data.clone(), stream, reader, early, runs, places, steps, lost, instruments }
    }

    /// The same, with the steps that are not safe on the disk yet.
    pub fn early(data: &Data) -> Self {
        let mut view = Self::new(data);
        view.early = true;
        view
    }

    /// All runs, oldest first, each as its newest message says. A message that does not verify is passed over: the run
    /// stands as those before and after it say.
    pub fn refresh(&mut self) -> Result<&[Run], Fault> {
        if self.reader.is_none() {
            // Up to the mark: a step of a run that a power cut can take back has not happened.
            let options = ReadOptions { early: self.early, ..ReadOptions::default() };
            match Reader::open(&self.data.media, &self.data.stream(&self.stream), options) {
                Ok(reader) => self.reader = Some(reader),
                Err(store::Error::Missing(_)) => return Ok(&self.runs),
                Err(e) => return Err(stream_fault(&self.stream, e)),
            }
        }
        let Some(reader) = &mut self.reader else { return Ok(&self.runs) };
        reader.refresh().map_err(|e| stream_fault(&self.stream, e))?;
        let mut read = Vec::new();
        let lost = each_batch(reader, u64::MAX, &mut |batch| {
            read.extend(batch.iter().map(|message| (message.sequence, Run::read(message.payload))));
            Ok(true)
        })?;
        self.lost.extend(lost);
        for (sequence, run) in read {
            let (run, back) = run?;
            self.see_step(sequence, run, back);
        }
        Ok(&self.runs)
    }

    fn see_step(&mut self, sequence: u64, mut run: Run, back: u32) {
        let place = self.places.get(&run.name).copied();
        if back > 0 {
            let at = sequence.saturating_sub(back.into());
            // Steps of one run have the same.
            let earlier = || place.map(|at| &self.runs[at].instrument).filter(|text| !text.is_empty());
            match self.instruments.get(&at).or_else(earlier) {
                Some(text) => run.instrument = text.clone(),
                None => run.undescribed = Some(at),
            }
        } else if !run.instrument.is_empty() {
            // It is written again from time to time, and kept once.
            let newest = self.instruments.last_key_value().map(|(_, text)| text);
            if let Some(text) = newest.filter(|text| **text == run.instrument) {
                run.instrument = text.clone();
            }
            self.instruments.insert(sequence, run.instrument.clone());
        }
        self.steps.insert(run.name.clone(), sequence);
        match place {
            Some(at) => self.runs[at] = run,
            None => {
                self.places.insert(run.name.clone(), self.runs.len());
                self.runs.push(run);
            }
        }
    }

    /// Whether the stream of runs was there at the last look.
    pub fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    /// Number of steps that were read so far.
    pub fn steps(&self) -> u64 {
        self.reader.as_ref().map_or(0, Reader::position)
    }

    /// What [`RunsView::refresh`] gave last.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The same, of a mirror only the runs whose newest step is a message of this near stream.
    pub fn runs_of(&self, near: Option<&[u8; 16]>) -> Result<Vec<&Run>, Fault> {
        let (Some(near), Some(_)) = (near, &self.reader) else { return Ok(self.runs.iter().collect()) };
        // The reader has the near streams that there were when it was opened.
        let header = self.data.reader_early(&self.stream)?.header().clone();
        let is_of = |run: &&Run| {
            let of_step = self.steps.get(&run.name).and_then(|step| header.near_of(*step));
            of_step.is_none_or(|of_step| of_step.uuid == *near)
        };
        Ok(self.runs.iter().filter(is_of).collect())
    }

    /// Why a run may not be as it is shown: a message that does not verify may be a later step of it, where one can
    /// come, or had the metadata of its instrument.
    pub fn doubt(&self, run: &Run) -> Option<String> {
        if let Some(Fault { what, cause, .. }) = run.description_fault() {
            return Some(format!("{what}: {cause}"));
        }
        let step = self.steps.get(&run.name).filter(|_| run.state != State::Sealed)?;
        let at = self.lost.iter().map(|l| l.start).find(|at| at > step)?;
        Some(format!("its newest step may be message {at} of `{RUNS}`, which does not verify"))
    }
}

impl Run {
    /// Why sinks and workers of its instrument are not known, if they are not.
    pub fn description_fault(&self) -> Option<Fault> {
        let at = self.undescribed?;
        let cause = format!("they were in message {at} of `{RUNS}`, which does not verify");
        Some(Fault::new(format!("the sinks of run `{}` are not known", self.name), cause))
    }
}
