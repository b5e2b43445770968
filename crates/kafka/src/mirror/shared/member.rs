//! The source that fills the input of a worker on one of its hosts with blocks: a member of the group that shares the
//! partitions of `INSTRUMENT.WORKER.in`.
//!
//! It joins the group once it is asked to begin: before, the worker may have other parameters than on the other hosts.
//!
//! It commits nothing: results and offsets are committed together ([`super::transaction`]). A partition is released
//! once no transaction has its offsets any more.
//!
//! Constraints: a payload is copied once, into stream memory. Where that is full, nothing more is fetched, and the
//! member still answers the group, so that hosts that come and go do not wait for it.
//!
//! Failure behaviour: brokers that are away are its trouble. A record that is no block, and messages that do not
//! verify, are set aside; the results count them as lost.

use super::ends::Ends;
use super::table::Entry;
use super::{Names, Opened};
use crate::client::{merged, owned};
use crate::librdkafka::{Group, GroupEvent, Kind, Taken, Wake, Wrong};
use crate::limits::{
    ANSWER_PATIENCE, FULL_REST, MEMBER_ALWAYS, MEMBER_PROPERTIES, REST, START_PATIENCE_MS, STEP_BYTES,
    WAITING_BLOCKS_MAX,
};
use crate::plan::Plan;
use flow::mirror::BlockOrigins;
use flow::{Fault, Identity, Outlet, Passes, Pushed, Resume, Source, Step};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Block, flags};

/// The source.
pub(crate) struct Member {
    ends: Arc<Ends>,
    open: Option<Open>,
    away: Option<Fault>,
}

impl Member {
    pub(crate) fn new(ends: Arc<Ends>) -> Self {
        Self { ends, open: None, away: None }
    }
}

impl Member {
    /// Joins the group.
    fn open(&mut self) -> Result<(), Fault> {
        match Open::start(&self.ends) {
            Ok(open) => self.open = Some(open),
            Err(fault) if fault.passes == Passes::Soon => self.away = Some(fault),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }
}

impl Source for Member {
    fn start(&mut self, _now: i64, _: &Resume) -> Result<(), Fault> {
        if self.ends.has_begun() { self.open() } else { Ok(()) }
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        if self.open.is_none() && self.away.is_none() && self.ends.has_begun() {
            self.open()?;
        }
        if let Some(fault) = self.away.take() {
            return Err(fault);
        }
        self.open.as_mut().map_or(Ok(Step::At(now + REST)), |open| open.step(now, out))
    }

    /// `{"begin": true}`: the worker is as it is on the other hosts.
    fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        if request["begin"] == true {
            self.ends.begin();
        }
        Ok(Value::Null)
    }

    /// Times of blocks are in the order, which the readers of the results follow.
    fn frontier(&self, _now: i64) -> i64 {
        i64::MIN
    }

    /// Blocks that are handed out while it is away go to other hosts, or wait.
    fn misses(&self) -> bool {
        false
    }

    fn trouble(&self) -> Option<Fault> {
        self.open.as_ref()?.trouble.clone()
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, Open::status)
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.wake.descriptor())
    }
}

/// The block that is being appended.
struct Present {
    taken: Taken,
    /// The stay of its partition.
    stay: u64,
    /// Messages that are done.
    done: usize,
    /// Where its first message is in the input.
    begun: Option<u64>,
    /// Messages that did not verify.
    damaged: u64,
}

/// State after a start. Fields are dropped from above: messages before the group.
struct Open {
    present: Option<Present>,
    /// It has had a first step.
    has_begun: bool,
    /// Blocks that came before the group was asked to pause.
    waiting: VecDeque<Taken>,
    /// Partitions that go to others once no transaction has them.
    leaving: Vec<i32>,
    is_paused: bool,
    group: Group,
    wake: Arc<Wake>,
    ends: Arc<Ends>,
    reads: Plan,
    origins: BlockOrigins,
    messages: u64,
    doubt: Option<(i64, Wrong)>,
    trouble: Option<Fault>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.ends.set_member(None);
        // A group that waits for this answer cannot be left.
        if !self.leaving.is_empty() {
            let _ = self.group.release(&self.leaving);
        }
        let mut table = self.ends.table();
        table.revoke_all();
        if let Some(first) = self.present.as_ref().and_then(|present| present.begun) {
            table.leave_begun(first);
        }
        drop(table);
        self.present = None;
        self.waiting.clear();
    }
}

impl Open {
    fn start(ends: &Arc<Ends>) -> Result<Self, Fault> {
        let name = format!("{}.in", ends.shared.name);
        let opened = Opened::new(&ends.carrier, &ends.shared, (&name, "source"), &[])?;
        let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64);
        opened.ensure(until)?;
        let Opened { reads, .. } = opened;
        let group = ends.group();
        let ours = [("bootstrap.servers", ends.carrier.brokers.as_str()), ("group.id", &group)];
        let all = owned(&MEMBER_PROPERTIES).chain(reads.side().pairs()?).chain(owned(&MEMBER_ALWAYS));
        let properties = merged(all.chain(owned(&ours)));
        let topic = Names::of(&ends.shared).blocks;
        let group = Group::new(&properties, &topic).map_err(|(name, text)| reads.side().refused(&name, text));
        let mut group = group?;
        let wake = Wake::new().map_err(|e| Fault::io(format!("source `{name}` cannot start"), &e))?;
        let wake = Arc::new(wake);
        group.wake_by(&wake);
        group.join().map_err(|wrong| reads.side().away(&wrong))?;
        ends.set_member(Some(group.client().clone()));
        Ok(Self {
            present: None,
            has_begun: false,
            waiting: VecDeque::new(),
            leaving: Vec::new(),
            is_paused: false,
            group,
            wake,
            ends: ends.clone(),
            reads,
            origins: BlockOrigins::default(),
            messages: 0,
            doubt: None,
            trouble: None,
        })
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.wake.drain();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.ends.table().begin(out.next_sequence());
        }
        if self.ends.table().is_broken() {
            let what = format!("source `{}` restarts", self.reads.name);
            let fault = Fault::new(what, "the results of a block could not be told from those of the next one");
            return Err(Fault { passes: Passes::Soon, ..fault });
        }
        self.release()?;
        let mut bytes = 0;
        let is_full = loop {
            if self.present.is_none() {
                self.present = self.next_block();
            }
            if let Some(Present { taken, .. }) = &self.present {
                bytes += taken.payload().len();
                if self.append(now, out)? == Pushed::Full {
                    break true;
                }
                self.present = None;
                if bytes > STEP_BYTES {
                    return Ok(Step::Again);
                }
                continue;
            }
            match self.group.poll(0) {
                Some(event) => self.see(event, now)?,
                None => break false,
            }
        };
        // The group is answered also while there is no room.
        if is_full {
            self.pause(true)?;
            while self.waiting.len() < WAITING_BLOCKS_MAX
                && let Some(event) = self.group.poll(0)
            {
                self.see(event, now)?;
            }
        } else {
            self.pause(false)?;
        }
        let late = self.doubt.as_ref().filter(|(since, _)| now.saturating_sub(*since) > ANSWER_PATIENCE);
        self.trouble = late.map(|(_, wrong)| self.reads.side().away(wrong));
        let rest = if is_full || !self.leaving.is_empty() { FULL_REST } else { REST };
        Ok(Step::At(now + rest))
    }

    /// The oldest block that waits, of a partition that is here.
    fn next_block(&mut self) -> Option<Present> {
        let table = self.ends.table();
        while let Some(taken) = self.waiting.pop_front() {
            if let Some(stay) = table.stay(taken.partition) {
                return Some(Present { taken, stay, done: 0, begun: None, damaged: 0 });
            }
        }
        None
    }

    fn see(&mut self, event: GroupEvent, now: i64) -> Result<(), Fault> {
        match event {
            GroupEvent::Message(taken) => {
                self.doubt = None;
                self.waiting.push_back(taken);
            }
            GroupEvent::Assigned(partitions) => {
                self.doubt = None;
                self.ends.table().assign(&partitions);
                let added = self.group.add(&partitions);
                // One that was here before may be paused still.
                let added = added.and_then(|()| match partitions.is_empty() {
                    true => Ok(()),
                    false => self.group.pause(&partitions, self.is_paused),
                });
                added.map_err(|wrong| self.group_fault(&wrong))?;
            }
            GroupEvent::Revoked(partitions) => {
                self.ends.table().revoke(&partitions);
                self.waiting.retain(|taken| !partitions.contains(&taken.partition));
                self.leaving.extend(partitions);
                self.release()?;
            }
            GroupEvent::Wrong(wrong) if wrong.kind == Kind::AllDown => {}
            GroupEvent::Wrong(wrong) => drop(self.doubt.get_or_insert((now, wrong))),
        }
        Ok(())
    }

    /// Releases partitions that are to go, once no transaction has them.
    fn release(&mut self) -> Result<(), Fault> {
        if self.leaving.is_empty() || self.ends.table().is_under_way(&self.leaving) {
            return Ok(());
        }
        let leaving = std::mem::take(&mut self.leaving);
        self.group.release(&leaving).map_err(|wrong| self.group_fault(&wrong))
    }

    fn group_fault(&self, wrong: &Wrong) -> Fault {
        let what = format!("source `{}` cannot change its partitions", self.reads.name);
        Fault { passes: Passes::Soon, ..Fault::new(what, &wrong.text) }
    }

    fn pause(&mut self, is_paused: bool) -> Result<(), Fault> {
        // Room comes and goes with each block: what librdkafka has fetched would be fetched again.
        let is_short = is_paused && self.waiting.len() < WAITING_BLOCKS_MAX / 2;
        if self.is_paused == is_paused || is_short {
            return Ok(());
        }
        let partitions = self.ends.table().partitions();
        if !partitions.is_empty() {
            self.group.pause(&partitions, is_paused).map_err(|wrong| self.group_fault(&wrong))?;
        }
        self.is_paused = is_paused;
        Ok(())
    }

    /// Appends the messages of the present block.
    fn append(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Pushed, Fault> {
        let Some(present) = &mut self.present else { return Ok(Pushed::Taken) };
        let (partition, offset) = (present.taken.partition, present.taken.offset);
        let block = match Block::read(present.taken.payload()) {
            Ok(block) => block,
            Err(text) => {
                // Nobody has a record of it: it is no block of the order.
                let text = format!("record {offset} of partition {partition} is no block: {text}");
                out.aside("damaged", &text, now, present.taken.payload());
                return Ok(Pushed::Taken);
            }
        };
        self.origins.learn(&block, out)?;
        while present.done < block.len() {
            let Some(message) = block.message(present.done) else {
                out.aside("damaged", &format!("a message of record {offset} does not verify"), now, &[]);
                (present.done, present.damaged) = (present.done + 1, present.damaged + 1);
                continue;
            };
            let at = out.next_sequence();
            // The table knows which messages these are.
            let near = Identity { uuid: [0; 16], epoch: 0, sequence: at };
            let mut mirrored = self.origins.mirrored(&message, near);
            let begins = if present.begun.is_none() { flags::BLOCK } else { 0 };
            mirrored.meta.flags = mirrored.meta.flags & !flags::BLOCK | begins;
            if out.push_mirrored(&mirrored, message.payload)? == Pushed::Full {
                return Ok(Pushed::Full);
            }
            present.begun.get_or_insert(at);
            present.done += 1;
            self.messages += 1;
        }
        let next = out.next_sequence();
        let (first, stay, damaged) = (present.begun.unwrap_or(next), present.stay, present.damaged);
        let life = present.taken.key().try_into().map_or(0, u64::from_le_bytes);
        self.ends.table().push(Entry { partition, offset, stay, life, head: block.head, first, next, damaged });
        Ok(Pushed::Taken)
    }

    fn status(&self) -> Value {
        let table = self.ends.table();
        json!({
            "partitions": table.partitions().len(),
            "messages": self.messages,
            "blocks": table.len(),
            "returned": table.returned,
            "dropped": table.dropped,
        })
    }
}
