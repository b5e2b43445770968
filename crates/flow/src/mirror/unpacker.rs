//! The far side without its carrier: which messages of a block a mirror gets, and which are entered into the account as
//! missing.
//!
//! Each hole is in the account once, whatever is killed and whenever the power goes. A hole is entered when all
//! messages before it are safe, and the next message is appended when the entry is safe too; the commit with the entry
//! keeps the end of the hole ([`Place`]). So no message follows a hole that the account lacks, and a hole that is in
//! the account is known, though no message follows it.
//!
//! Constraints: no carrier and no clock. A hole costs two syncs, during which the mirror waits.
//!
//! Failure behaviour: a record that is no block, or has messages that do not verify, is set aside; its messages are a
//! hole.

use super::follow::{Follow, identity_of, value_of};
use crate::edge::Mirror;
use crate::{Fault, Identity, Outlet, Pushed, Resume};
use serde_json::{Value, json};
use std::ops::Range;
use store::{Block, BlockMessage, Meta, Mirrored};

/// Where a mirror is: the state of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The identity of the topic.
    pub id: String,
    /// The offset of the next record.
    pub offset: u64,
    /// See [`Follow::kept`].
    pub kept: Vec<Identity>,
}

impl Place {
    /// Reads a state; `None`: there is none yet.
    pub fn read(text: &str) -> Result<Option<Self>, Fault> {
        if text.is_empty() {
            return Ok(None);
        }
        let read = |value: Value| {
            let kept = match value.get("kept") {
                Some(kept) => kept.as_array()?.iter().map(identity_of).collect::<Option<_>>()?,
                // Of an earlier version.
                None => Vec::new(),
            };
            Some(Self { id: value["id"].as_str()?.to_owned(), offset: value["offset"].as_u64()?, kept })
        };
        let place = serde_json::from_str(text).ok().and_then(read);
        place.map(Some).ok_or_else(|| Fault::new("the state that was kept beside the mirror cannot be read", text))
    }

    /// The state.
    pub fn text(&self) -> String {
        let kept: Vec<Value> = self.kept.iter().map(value_of).collect();
        json!({"id": self.id, "offset": self.offset, "kept": kept}).to_string()
    }

    /// The offset of the first record to read from a topic that has those from `first` to `end`. Another topic than
    /// before, or one that has lost its end, is read from its beginning: messages that the mirror has are dropped.
    pub fn begin(place: Option<&Self>, id: &str, first: u64, end: u64) -> u64 {
        match place {
            Some(place) if place.id != id && !place.id.is_empty() && !id.is_empty() => first,
            Some(place) if place.offset > end => first,
            Some(place) => place.offset.max(first),
            None => first,
        }
    }
}

/// The origins of the newest block, with their rows in the stream that its messages are appended to.
#[derive(Default)]
pub struct BlockOrigins {
    names: Vec<String>,
    rows: Vec<u32>,
}

impl BlockOrigins {
    /// Gives the origins of a block rows in the stream.
    pub fn learn(&mut self, block: &Block<'_>, out: &mut dyn Outlet) -> Result<(), Fault> {
        if self.names.iter().map(String::as_str).ne(block.origins.iter().copied()) {
            self.rows = block.origins.iter().map(|name| out.origin(name)).collect::<Result<_, _>>()?;
            self.names = block.origins.iter().map(|name| (*name).to_owned()).collect();
        }
        Ok(())
    }

    /// A message of that block as a mirror appends it.
    pub fn mirrored(&self, message: &BlockMessage<'_>, near: Identity) -> Mirrored {
        let entry = &message.entry;
        let meta = Meta {
            source_time: entry.source_time,
            origin: self.rows[entry.origin as usize],
            origin_seq: entry.origin_seq,
            schema: entry.schema,
            flags: entry.flags,
        };
        Mirrored { meta, arrival_time: entry.arrival_time, near, crc: message.sum }
    }
}

/// The mirror as a state machine over the records of its topic.
pub struct Unpacker {
    follow: Follow,
    /// Messages of the present block that are done, once it was compared with what the mirror has.
    done: Option<usize>,
    /// Messages are missing since the last message that was appended: none is, before the account has them.
    holds: bool,
    origins: BlockOrigins,
    frontier: i64,
    missing: u64,
    messages: u64,
}

impl Unpacker {
    /// Goes on where the mirror is. `place`: that of the newest commit.
    pub fn new(resume: &Resume, place: Option<&Place>) -> Self {
        let kept = place.map_or(&[][..], |place| &place.kept);
        Self {
            follow: Follow::resume(&resume.mirrored, kept),
            done: None,
            holds: false,
            origins: BlockOrigins::default(),
            frontier: i64::MIN,
            missing: 0,
            messages: 0,
        }
    }

    /// All messages of the near stream up to this source time are in the mirror or in its account.
    pub fn frontier(&self) -> i64 {
        self.frontier
    }

    /// The newest message of the near stream that is in the mirror or in its account; none where it has none.
    pub fn newest(&self) -> Option<Identity> {
        self.follow.newest()
    }

    /// For [`Place`].
    pub fn kept(&self) -> Vec<Identity> {
        self.follow.kept()
    }

    /// Messages that were appended, and those that are missing.
    pub fn counts(&self) -> (u64, u64) {
        (self.messages, self.missing)
    }

    /// Appends the messages of a record that the mirror has not. Full: the same record again, in a later step. `now` in
    /// ns since 1970 UTC.
    pub fn append_record(
        &mut self,
        record: &[u8],
        offset: u64,
        mirror: &Mirror,
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<Pushed, Fault> {
        match Block::read(record) {
            Ok(block) => {
                if self.append(&block, mirror, now, out)? == Pushed::Full {
                    return Ok(Pushed::Full);
                }
                self.frontier = self.frontier.max(block.head.frontier);
            }
            Err(text) => {
                let text = format!("record {offset} of the carrier is no block: {text}");
                out.aside("damaged", &text, now, record);
            }
        }
        self.done = None;
        Ok(Pushed::Taken)
    }

    fn append(&mut self, block: &Block<'_>, mirror: &Mirror, now: i64, out: &mut dyn Outlet) -> Result<Pushed, Fault> {
        let head = &block.head;
        let of_account = |sequences: Range<u64>, reason| Hole { of: (head.uuid, head.epoch), sequences, reason };
        if self.holds && !out.is_settled() {
            return Ok(Pushed::Full);
        }
        self.holds = false;
        if block.is_empty() && head.uuid == [0; 16] {
            return Ok(Pushed::Taken);
        }
        let mut done = match self.done {
            Some(done) => done,
            None => {
                let new = self.follow.admit(head);
                let holes = [of_account(new.gone, "retention"), of_account(new.unsent, "near")];
                if holes.iter().any(|hole| !hole.sequences.is_empty()) {
                    self.miss(&holes, mirror, now, out);
                    // Then there is nothing missing before it.
                    return Ok(Pushed::Full);
                }
                self.follow.begin(head);
                new.doubles
            }
        };
        self.origins.learn(block, out)?;
        while done < block.len() {
            self.done = Some(done);
            let Some(message) = block.message(done) else {
                let is_damaged = |at: &usize| block.message(*at).is_none();
                let end = done + (done..block.len()).take_while(is_damaged).count();
                let hole = of_account(head.first + done as u64..head.first + end as u64, "damaged");
                if self.miss(&[hole], mirror, now, out) {
                    self.done = Some(end);
                }
                return Ok(Pushed::Full);
            };
            let near = Identity { uuid: head.uuid, epoch: head.epoch, sequence: message.sequence };
            let mirrored = self.origins.mirrored(&message, near);
            if out.push_mirrored(&mirrored, message.payload)? == Pushed::Full {
                return Ok(Pushed::Full);
            }
            done += 1;
            self.messages += 1;
            self.follow.append(near);
        }
        Ok(Pushed::Taken)
    }

    /// Enters messages that are missing into the account. False: not now, because messages before them are not safe.
    fn miss(&mut self, holes: &[Hole], mirror: &Mirror, now: i64, out: &mut dyn Outlet) -> bool {
        if !out.is_settled() {
            return false;
        }
        for Hole { of: (uuid, epoch), sequences, reason } in holes.iter().filter(|hole| !hole.sequences.is_empty()) {
            let (first, last) = (sequences.start, sequences.end - 1);
            let Mirror { stream, host, .. } = mirror;
            let text =
                format!("messages {first} to {last} of stream `{stream}` of host `{host}` are missing: {reason}");
            out.aside("hole", &text, now, &[]);
            out.missing_near(first..=last, reason);
            self.missing = self.missing.saturating_add(sequences.end - sequences.start);
            self.follow.miss(Identity { uuid: *uuid, epoch: *epoch, sequence: last });
        }
        self.holds = true;
        true
    }
}

/// Messages of a near stream and epoch that are missing.
struct Hole {
    of: ([u8; 16], u32),
    sequences: Range<u64>,
    reason: &'static str,
}
