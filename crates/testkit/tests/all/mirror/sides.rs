//! The near and the far side with a pretend topic in place of a client.

use super::topic::{Shared, lock};
use flow::edge::Mirror;
use flow::mirror::{Packer, Place, Post, Sizes, Unpacker};
use flow::{Aside, Confirmed, Fault, LiveBatch, LiveSink, Outlet, Pushed, Resume, Source, Step};
use serde_json::{Value, json};
use std::time::Duration;
use store::Block;

/// Records of a step of the far side.
const RECORDS_MAX: usize = 3;

/// The sink.
pub(super) struct Sending {
    topic: Wire,
    inputs: Vec<String>,
    sizes: Sizes,
    packer: Option<Packer>,
}

/// Puts blocks into the requests of the topic.
struct Wire {
    topic: Shared,
    /// Requests for which there is room.
    room: usize,
}

impl Post for Wire {
    fn post(&mut self, input: usize, bytes: Vec<u8>, mark: usize) -> Result<Option<Vec<u8>>, Fault> {
        assert_eq!(input, 0);
        let mut topic = lock(&self.topic);
        if topic.requests.len() >= self.room {
            return Ok(Some(bytes));
        }
        topic.requests.push_back((bytes, mark));
        Ok(None)
    }
}

impl Sending {
    pub(super) fn new(topic: &Shared, input: &str, sizes: Sizes, room: usize) -> Self {
        let topic = Wire { topic: topic.clone(), room };
        Self { topic, inputs: vec![input.to_owned()], sizes, packer: None }
    }
}

impl LiveSink for Sending {
    fn start(&mut self, now: i64, state: &str) -> Result<(), Fault> {
        let topic = lock(&self.topic.topic);
        let newest = topic.records.back().and_then(|record| Block::read(record).ok());
        let ends = [newest.map(|block| block.head)];
        self.packer = Some(Packer::new(&self.inputs, &ends, state, self.sizes, now)?);
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        self.packer.as_mut().unwrap().write(input, batch, aside, &mut self.topic)
    }

    fn follows_frontiers(&self) -> bool {
        true
    }

    fn reach(&mut self, input: usize, frontier: i64, next: u64) {
        self.packer.as_mut().unwrap().reach(input, frontier, next);
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        let packer = self.packer.as_mut().unwrap();
        let mut topic = lock(&self.topic.topic);
        if std::mem::take(&mut topic.refuses) {
            return Err(Fault::new("the topic refuses a block", ""));
        }
        let answers = topic.answers();
        drop(topic);
        answers.into_iter().for_each(|(bytes, mark)| packer.acknowledged(mark, Some(bytes)));
        packer.step(now, &mut self.topic)
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        let packer = self.packer.as_ref().unwrap();
        Ok(Confirmed { below: packer.below(), state: packer.state(&self.inputs), ..Confirmed::default() })
    }

    fn status(&self) -> Value {
        let (blocks, messages) = self.packer.as_ref().map(Packer::counts).unwrap_or_default();
        json!({"blocks": blocks, "messages": messages})
    }

    fn stop(&mut self, _: Duration) -> Result<(), Fault> {
        let packer = self.packer.as_mut().unwrap();
        packer.close(true, &mut self.topic)?;
        lock(&self.topic.topic).pass(20);
        let answers = lock(&self.topic.topic).answers();
        answers.into_iter().for_each(|(bytes, mark)| packer.acknowledged(mark, Some(bytes)));
        packer.close(false, &mut self.topic).map(drop)
    }
}

/// The source.
pub(super) struct Receiving {
    topic: Shared,
    mirror: Mirror,
    id: String,
    offset: u64,
    unpacker: Option<Unpacker>,
}

impl Receiving {
    pub(super) fn new(topic: &Shared, name: &str) -> Self {
        let mirror = Mirror { name: name.to_owned(), stream: name.to_owned(), host: "near".to_owned() };
        Self { topic: topic.clone(), mirror, id: String::new(), offset: 0, unpacker: None }
    }
}

impl Source for Receiving {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        let topic = lock(&self.topic);
        let place = Place::read(&resume.state)?;
        self.id = format!("topic-{}", topic.id);
        self.offset = Place::begin(place.as_ref(), &self.id, topic.first, topic.end());
        self.unpacker = Some(Unpacker::new(resume, place.as_ref()));
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let topic = lock(&self.topic);
        if self.id != format!("topic-{}", topic.id) || self.offset < topic.first {
            return Err(Fault::new("the topic is another, or has lost its oldest messages", ""));
        }
        for _ in 0..RECORDS_MAX {
            let Some(record) = topic.records.get((self.offset - topic.first) as usize) else { break };
            let unpacker = self.unpacker.as_mut().unwrap();
            if unpacker.append_record(record, self.offset, &self.mirror, now, out)? == Pushed::Full {
                return Ok(Step::At(now + 1));
            }
            self.offset += 1;
        }
        Ok(if self.offset < topic.end() { Step::Again } else { Step::At(now + 1) })
    }

    fn frontier(&self, _: i64) -> i64 {
        self.reached()
    }

    fn reached(&self) -> i64 {
        self.unpacker.as_ref().map_or(i64::MIN, Unpacker::frontier)
    }

    fn state(&self) -> String {
        let kept = self.unpacker.as_ref().map(Unpacker::kept).unwrap_or_default();
        Place { id: self.id.clone(), offset: self.offset, kept }.text()
    }

    fn status(&self) -> Value {
        let (messages, missing) = self.unpacker.as_ref().map(Unpacker::counts).unwrap_or_default();
        json!({"messages": messages, "missing": missing})
    }

    fn misses(&self) -> bool {
        false
    }
}
