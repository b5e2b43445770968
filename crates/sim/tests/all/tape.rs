//! An outlet that keeps what it is given, and the runner around it.

use beamport_sim as sim;
use flow::{Fault, OriginAccounts, Outlet, Pushed, Resume, ResumeOrigin, Silence, Step};
use sim::Config;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use store::Meta;

/// When the tapes begin: between two pulses, 0.3 s after a whole second.
pub(crate) const START: i64 = 1_790_000_000_300_000_000;

/// The messages of one origin: number, time, payload.
pub(crate) type Numbered = Vec<(u64, i64, Vec<u8>)>;

/// Keeps every message.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) names: Vec<String>,
    pub(crate) messages: Vec<(Meta, Vec<u8>)>,
    /// Messages that it still takes; None takes all.
    pub(crate) room: Option<usize>,
}

impl OriginAccounts for Recorder {
    fn origin(&mut self, name: &str) -> Result<u32, Fault> {
        let known = self.names.iter().position(|n| n == name);
        let row = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        Ok(row as u32)
    }

    fn missing(&mut self, _: u32, _: RangeInclusive<u64>, _: RangeInclusive<i64>, reason: &str) -> Result<(), Fault> {
        panic!("a simulated source says that messages are missing: {reason}")
    }

    fn count(&mut self, _: u32, what: &str, _: u64) -> Result<(), Fault> {
        panic!("a simulated source counts what has no number: {what}")
    }
}

impl Outlet for Recorder {
    fn push_parts(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<Pushed, Fault> {
        let payload = parts.concat();
        if let Some(room) = &mut self.room {
            if *room == 0 {
                return Ok(Pushed::Full);
            }
            *room -= 1;
        }
        assert_eq!(wire::schema_id(&payload), Some(meta.schema.0));
        self.messages.push((*meta, payload));
        Ok(Pushed::Taken)
    }

    fn next_sequence(&self) -> u64 {
        self.messages.len() as u64
    }

    fn silent(&mut self, times: RangeInclusive<i64>, _: Silence) {
        panic!("a simulated source was silent: {times:?}")
    }

    fn fill(&self) -> f64 {
        0.0
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The messages of a schema.
    pub(crate) fn of<'a>(&'a self, schema: &'a [u8; 4]) -> impl Iterator<Item = (&'a Meta, &'a [u8])> {
        self.messages.iter().filter(move |(m, _)| m.schema.0 == *schema).map(|(m, p)| (m, p.as_slice()))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.messages.iter().map(|(_, p)| p.len()).sum()
    }

    /// The resume state that a stream with this content gives a source that restarts.
    pub(crate) fn resume(&self) -> Resume {
        let mut resume = Resume::default();
        for (row, name) in self.names.iter().enumerate() {
            let mine = || self.messages.iter().filter(|(m, _)| m.origin as usize == row);
            let next_seq = mine().map(|(m, _)| m.origin_seq + 1).max().unwrap_or(0);
            let last_time = mine().next_back().map_or(0, |(m, _)| m.source_time);
            resume.origins.push(ResumeOrigin { name: name.clone(), next_seq, last_time, life: 1 });
        }
        resume
    }

    /// Appends a tape that has its own table of origins.
    pub(crate) fn append(&mut self, other: Recorder) {
        for (mut meta, payload) in other.messages {
            meta.origin = self.origin(&other.names[meta.origin as usize]).unwrap();
            self.messages.push((meta, payload));
        }
    }

    /// Number, time and payload of each origin.
    pub(crate) fn by_name(&self) -> BTreeMap<&str, Numbered> {
        let mut all: BTreeMap<&str, Numbered> = BTreeMap::new();
        for (meta, payload) in &self.messages {
            let name = self.names[meta.origin as usize].as_str();
            all.entry(name).or_default().push((meta.origin_seq, meta.source_time, payload.clone()));
        }
        all
    }
}

/// Runs a source for some seconds of pretended time, called exactly when it asks to be.
pub(crate) fn record(config: &Config, seconds: i64) -> Recorder {
    record_from(config, START, seconds, &Resume::default())
}

/// The same from another time and with a stream that holds messages already.
pub(crate) fn record_from(config: &Config, start: i64, seconds: i64, resume: &Resume) -> Recorder {
    let mut source = sim::build(config).unwrap();
    source.start(start, resume).unwrap();
    let mut tape = Recorder::new();
    let mut now = start;
    while now <= start + seconds * 1_000_000_000 {
        match source.step(now, &mut tape).unwrap() {
            Step::Again => (),
            Step::At(at) => {
                assert!(at > now);
                now = at;
            }
            Step::Ended => break,
        }
    }
    tape
}

/// The defaults of a model with some keys set.
pub(crate) fn config(model: &str, keys: &[(&str, serde_json::Value)]) -> Config {
    let mut config = Config::new(model).unwrap();
    for (name, value) in keys {
        config.set(name, value).unwrap();
    }
    config
}
