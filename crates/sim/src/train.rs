//! The pulse train: makes a `flow::Source` of an instrument that knows what one pulse brings. (A camera has its own
//! grid; its frames are pulses here.)
//!
//! Constraints: no clock of its own; every message is a function of (configuration, pulse number) but for its number, which goes on
//! from the stream's, per origin without a hole (or, where that is asked for, is that of the pulse). One message is built at a time, so that a pulse of hundreds of
//! megabytes needs the memory of one message.
//!
//! Failure: where the stream has no room, the built message is kept as it is and offered again 1 ms later. Steps that come late make up
//! for the pulses missed, a bounded amount at a time; only the first step, if it is 2 s late, begins at its own time.

use crate::limits;
use crate::plan::{ClockFault, Config};
use crate::pulse::Grid;
use flow::{Fault, Outlet, Pushed, Resume, Source, Step};
use store::mix;
use store::{Meta, SchemaId};

/// One pulse of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    /// Its number since 1970.
    pub(crate) number: i64,
    /// Its time, ns since 1970 UTC.
    pub(crate) time: i64,
    /// Pulses since the source began.
    pub(crate) since: i64,
}

/// A simulated instrument at each pulse.
pub(crate) trait Instrument: Send {
    /// Its pulses.
    fn grid(&self) -> Grid {
        Grid::PULSES
    }
    /// Names of its origins.
    fn origins(&self) -> &[String];
    /// A new pulse; what the one before has not given is forgotten.
    fn begin(&mut self, pulse: Pulse);
    /// The origin of the next message of this pulse, by its place in `origins`; None at the end of the pulse.
    fn next(&mut self) -> Option<usize>;
    /// How far from its pulse the message lies that `next` announced, ns.
    fn shift(&self) -> i64 {
        0
    }
    /// How long before now what it brings may lie, ns: what is brought at a pulse may have happened before.
    fn lag(&self) -> i64 {
        0
    }
    /// The message that was written, in parts: what is large need not go through `written`, where `write` wrote.
    fn parts<'p>(&'p self, written: &'p [u8]) -> Result<[&'p [u8]; 3], Fault> {
        Ok([written, &[], &[]])
    }
    /// Writes the message that `next` announced, with its number and time. Says its schema and its events (or values).
    fn write(&mut self, number: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error>;
}

/// One origin as the train counts it.
struct Origin {
    /// Row of the stream's table, once asked for.
    row: Option<u32>,
    /// Number of the next message.
    next_seq: u64,
    /// Time of the newest message, as it was sent.
    last_time: Option<i64>,
}

/// An instrument on the grid of pulses.
pub(crate) struct Train<I> {
    instrument: I,
    grid: Grid,
    name: String,
    by_pulse: bool,
    fault: ClockFault,
    fault_every: u64,
    fault_phase: u64,
    duration: Option<i64>,
    origins: Vec<Origin>,
    /// The pulse that comes next, or is being given.
    pulse: i64,
    /// The pulse that the source began with; None before `start`.
    first: Option<i64>,
    stepped: bool,
    /// True while `pulse` has messages left.
    open: bool,
    /// The message that waits for room.
    pending: Option<(Meta, usize)>,
    payload: Vec<u8>,
}

impl<I: Instrument> Train<I> {
    pub(crate) fn new(instrument: I, config: &Config) -> Self {
        let every = u64::from(config.clock_fault_every.max(1));
        Self {
            grid: instrument.grid(),
            instrument,
            name: config.model.clone(),
            by_pulse: config.by_pulse,
            fault: config.clock_fault,
            fault_every: every,
            fault_phase: mix(config.seed) % every,
            duration: config.duration_ns,
            origins: Vec::new(),
            pulse: 0,
            first: None,
            stepped: false,
            open: false,
            pending: None,
            payload: Vec::new(),
        }
    }

    /// The source time of a message: the pulse's, or a wrong one where the configuration asks for faults.
    fn time_of(&self, origin: usize, seq: u64, time: i64) -> i64 {
        if self.fault == ClockFault::None || seq % self.fault_every != self.fault_phase {
            return time;
        }
        let last = self.origins[origin].last_time.unwrap_or(time);
        match self.fault {
            ClockFault::None => time,
            ClockFault::Backward => last.saturating_sub(500_000_000),
            ClockFault::Repeat => last,
            ClockFault::Future => 1 << 62,
        }
    }

    /// Builds the next message of the pulse, if it has one.
    fn build(&mut self, out: &mut dyn Outlet) -> Result<bool, Fault> {
        let Some(index) = self.instrument.next() else {
            return Ok(false);
        };
        let row = match self.origins[index].row {
            Some(row) => row,
            None => out.origin(&self.instrument.origins()[index])?,
        };
        // A pulse of 1970 or later, as all that are made.
        let seq = if self.by_pulse { self.pulse.max(0) as u64 } else { self.origins[index].next_seq };
        let time = self.time_of(index, seq, self.grid.time(self.pulse).saturating_add(self.instrument.shift()));
        let (schema, events) = self
            .instrument
            .write(seq, time, &mut self.payload)
            .map_err(|e| Fault::new(format!("source `{}` cannot build its message", self.name), e))?;
        let origin = &mut self.origins[index];
        origin.row = Some(row);
        origin.next_seq = seq + 1;
        // A far-future time is not what the next backward or repeated one is measured from.
        if time != 1 << 62 {
            origin.last_time = Some(time);
        }
        let meta = Meta { source_time: time, origin: row, origin_seq: seq, schema, flags: 0 };
        self.pending = Some((meta, events));
        Ok(true)
    }
}

impl<I: Instrument> Source for Train<I> {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.origins = self
            .instrument
            .origins()
            .iter()
            .map(|name| Origin { row: None, next_seq: resume.next_seq(name), last_time: None })
            .collect();
        self.pulse = self.grid.at(now) + 1;
        self.first = Some(self.pulse);
        (self.stepped, self.open, self.pending) = (false, false, None);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let Some(mut first) = self.first else {
            return Err(Fault::new(format!("source `{}` cannot step", self.name), "it was not started"));
        };
        if !self.stepped && now.saturating_sub(self.grid.time(self.pulse)) > limits::LATE_AT_START_NS {
            self.pulse = self.grid.at(now);
            first = self.pulse;
            self.first = Some(first);
        }
        self.stepped = true;
        let (mut messages, mut events, mut bytes) = (0, 0, 0);
        loop {
            if let Some((meta, count)) = &self.pending {
                let parts = self.instrument.parts(&self.payload)?;
                match out.push_parts(meta, &parts)? {
                    Pushed::Full => {
                        return Ok(Step::At(now.saturating_add(limits::OFFER_AGAIN_NS)));
                    }
                    Pushed::Taken => {
                        (messages, events, bytes) =
                            (messages + 1, events + count, bytes + parts.iter().map(|part| part.len()).sum::<usize>());
                        self.pending = None;
                    }
                }
                let done = messages >= limits::MESSAGES_PER_STEP
                    || events >= limits::EVENTS_PER_STEP
                    || bytes >= limits::BYTES_PER_STEP;
                if done {
                    return Ok(Step::Again);
                }
            }
            if self.open {
                if !self.build(out)? {
                    self.open = false;
                    self.pulse += 1;
                }
                continue;
            }
            let time = self.grid.time(self.pulse);
            if self.duration.is_some_and(|d| time.saturating_sub(self.grid.time(first)) >= d) {
                return Ok(Step::Ended);
            }
            if time > now {
                return Ok(Step::At(time));
            }
            self.instrument.begin(Pulse { number: self.pulse, time, since: self.pulse - first });
            self.open = true;
        }
    }

    fn frontier(&self, now: i64) -> i64 {
        now.saturating_sub(self.instrument.lag())
    }

    /// Behind the pulses that are done: a source that cannot keep up never rests, and its runs are sealed all the same.
    fn reached(&self) -> i64 {
        let due = self.first.map_or(i64::MIN, |_| self.grid.time(self.pulse));
        due.saturating_sub(1).saturating_sub(self.instrument.lag())
    }
}
