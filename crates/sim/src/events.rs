//! A detector that counts: a Poisson number of events at each pulse, dealt out to `ev44` messages.
//!
//! Where the events fall is the business of a [`Drawing`]; number, packing and bytes are the same for all.

use crate::limits;
use crate::plan::Config;
use crate::pulse::PULSES_PER_SECOND;
use crate::random::Generator;
use crate::train::{Instrument, Pulse};
use store::SchemaId;
use wire::ev44::{self, Ev44};

/// Which of the independent random streams of a seed the detectors use.
const RANDOM_STREAM: u64 = 1;

/// Where events fall.
pub(crate) trait Drawing: Send {
    /// Turns to a pulse.
    fn aim(&mut self, pulse: Pulse);
    /// Draws `count` events: appends times of flight in ns and pixel numbers.
    fn draw(&self, generator: &mut Generator, count: usize, times: &mut Vec<i32>, pixels: &mut Vec<i32>);
}

/// How the events of a pulse are dealt out to messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    events_max: usize,
    left: usize,
    first: bool,
}

impl Packing {
    pub(crate) fn new(config: &Config) -> Self {
        Self { events_max: config.events_per_message() as usize, left: 0, first: false }
    }

    /// The same with no message above so many events.
    pub(crate) fn at_most(self, events: usize) -> Self {
        Self { events_max: self.events_max.min(events), ..self }
    }

    /// A pulse with so many events.
    pub(crate) fn begin(&mut self, events: u64) {
        (self.left, self.first) = (events as usize, true);
    }

    /// Events of the next message. A pulse without events still has one message, which says so.
    pub(crate) fn next(&mut self) -> Option<usize> {
        if self.left == 0 && !self.first {
            return None;
        }
        let count = self.left.min(self.events_max);
        (self.left, self.first) = (self.left - count, false);
        Some(count)
    }
}

/// A counting detector.
pub(crate) struct Counter<D> {
    drawing: D,
    origins: Vec<String>,
    /// Events of a mean pulse.
    mean: f64,
    seed: u64,
    generator: Generator,
    packing: Packing,
    count: usize,
    times: Vec<i32>,
    pixels: Vec<i32>,
}

impl<D: Drawing> Counter<D> {
    pub(crate) fn new(drawing: D, config: &Config) -> Self {
        let mean = config.events_per_second() / PULSES_PER_SECOND as f64;
        let room = (mean * 1.1).min(f64::from(limits::EVENTS_PER_MESSAGE_MAX)) as usize;
        Self {
            drawing,
            origins: crate::origins(config),
            mean,
            seed: config.seed,
            generator: Generator::new(0),
            packing: Packing::new(config),
            count: 0,
            times: Vec::with_capacity(room),
            pixels: Vec::with_capacity(room),
        }
    }
}

impl<D: Drawing> Instrument for Counter<D> {
    fn origins(&self) -> &[String] {
        &self.origins
    }

    fn begin(&mut self, pulse: Pulse) {
        self.generator = Generator::at(self.seed, RANDOM_STREAM, pulse.number);
        self.drawing.aim(pulse);
        let events = self.generator.poisson(self.mean);
        self.packing.begin(events);
    }

    fn next(&mut self) -> Option<usize> {
        self.count = self.packing.next()?;
        Some(0)
    }

    fn write(&mut self, number: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        self.times.clear();
        self.pixels.clear();
        self.drawing.draw(&mut self.generator, self.count, &mut self.times, &mut self.pixels);
        write_events(payload, &self.origins[0], number, time, &self.times, &self.pixels)?;
        Ok((SchemaId(ev44::ID), self.count))
    }
}

/// One `ev44` message of one pulse.
pub(crate) fn write_events(
    out: &mut Vec<u8>,
    origin: &str,
    number: u64,
    time: i64,
    times: &[i32],
    pixels: &[i32],
) -> Result<(), wire::Error> {
    let (reference_time, reference_time_index) = ([time], [0]);
    let parts = Ev44 {
        source_name: origin,
        message_id: number as i64,
        reference_time: (&reference_time).into(),
        reference_time_index: (&reference_time_index).into(),
        time_of_flight: times.into(),
        pixel_id: pixels.into(),
    };
    ev44::write(out, &parts)
}
