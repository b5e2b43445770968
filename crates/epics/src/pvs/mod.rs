//! The PVs of a source: from their updates to messages with numbers.
//!
//! An update becomes its messages at once: the connection, the units, the alarm, the value. Messages for which the
//! stream has no room for waits in `pending`, and no update is taken until that is empty.

use crate::channel::{Channel, Fate, Kept, Role};
use crate::entry::{Entry, Identity, Pattern, Schema};
use crate::fake::{self, Fakes};
use crate::frames::{Arrival, Frames, Hole, Sign};
use crate::limits::{CONNECT_PATIENCE, LOOK_PAUSE, LOOK_PVS, REMOVED_MAX};
use crate::message::{Made, Maker, schema_of};
use crate::origin::Origin;
use crate::pending::Pending;
use crate::plan::Plan;
use crate::state::State;
use crate::value::{Update, What, text};
use flow::{Fault, Outlet, Resume, ResumeOrigin};
use std::collections::{HashMap, HashSet};
use store::{Meta, SchemaId, flags};
use wire::ep01::ConnectionInfo;

/// A place for a PV. Its number is the lower half of the id of the subscription.
#[derive(Default)]
struct Slot {
    /// The upper half: updates of a PV that was there before have another one.
    generation: u32,
    channel: Option<Channel>,
}

/// The PVs.
#[derive(Default)]
pub(crate) struct Pvs {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_identity: HashMap<Identity, u32>,
    origins: Vec<Origin>,
    /// Places of origins with frames.
    cameras: Vec<usize>,
    by_origin: HashMap<String, usize>,
    /// Where the stream stood at the start, by origin.
    resume: HashMap<String, ResumeOrigin>,
    /// Origins with frames, of before the start.
    had_frames: HashSet<String>,
    /// How long a frame may be late, ns.
    reorder: i64,
    /// Times of the newest values of PVs that are not there, by `Identity::key`.
    times: HashMap<String, i64>,
    maker: Maker,
    pub(crate) pending: Pending,
    fakes: Fakes,
    /// Connections of removed PVs that are not sent yet: the origin and the name.
    removed: Vec<(usize, String)>,
    /// Subscriptions that are to be made again: name, id, and whether their values are not sent.
    pub(crate) ended: Vec<(String, u64, bool)>,
    /// The next place that is looked at.
    cursor: usize,
    /// Values and alarms that came.
    pub(crate) updates: u64,
    /// Something changed that the state should soon have.
    pub(crate) is_urgent: bool,
}

/// A message and its account.
struct Message<'p> {
    origin: usize,
    number: u64,
    schema: [u8; 4],
    time: i64,
    flags: u16,
    parts: &'p [&'p [u8]],
}

/// Gives a message to the stream.
fn give(
    origins: &mut [Origin],
    pending: &mut Pending,
    message: &Message<'_>,
    out: &mut dyn Outlet,
) -> Result<(), Fault> {
    let meta = Meta {
        source_time: message.time,
        origin: origins[message.origin].row(out)?,
        origin_seq: message.number,
        schema: SchemaId(message.schema),
        flags: message.flags,
    };
    pending.give(&meta, message.parts, out)
}

impl Pvs {
    pub(crate) fn new(resume: &Resume, state: State, plan: &Plan, now: i64) -> Self {
        let origins = resume.origins.iter().map(|origin| (origin.name.clone(), origin.clone()));
        let had_frames = state.frames.iter().cloned().collect();
        Self {
            resume: origins.collect(),
            had_frames,
            times: state.times,
            reorder: plan.reorder,
            maker: Maker::new(plan.decode),
            fakes: Fakes::new(plan.fake_period, now),
            ..Self::default()
        }
    }

    /// The place of the origin with this name.
    fn origin(&mut self, name: &str) -> usize {
        if let Some(at) = self.by_origin.get(name) {
            return *at;
        }
        let reorder = self.had_frames.contains(name).then_some(self.reorder);
        self.origins.push(Origin::new(name.to_owned(), self.resume.get(name), reorder));
        let at = self.origins.len() - 1;
        self.cameras.extend(reorder.map(|_| at));
        self.by_origin.insert(name.to_owned(), at);
        at
    }

    pub(crate) fn len(&self) -> usize {
        self.by_identity.len()
    }

    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.by_identity.contains_key(identity)
    }

    /// Adds a PV that is not there; the answer is the id for its subscription.
    pub(crate) fn add(&mut self, entry: Entry, plan: &Plan, now: i64) -> u64 {
        let identity = entry.identity.clone();
        let name = identity.origin();
        let mut channel = Channel::new(entry, plan, now);
        channel.origin = self.origin(&name);
        let is_camera = self.origins[channel.origin].frames.is_some() || identity.schema == Schema::Ad00;
        channel.beside = channel.origin;
        if is_camera {
            channel.be_camera();
            channel.beside = self.origin(&beside(&name));
        }
        let newest = self.resume.get(&name).map(|known| known.last_time);
        channel.resume(self.times.remove(&identity.key()), newest);
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[at as usize];
        channel.id = u64::from(slot.generation) << 32 | u64::from(at);
        if channel.is_fake() {
            channel.set_link(ConnectionInfo::Connected, now);
            self.fakes.places.insert(at as usize);
        }
        let id = channel.id;
        slot.channel = Some(channel);
        self.by_identity.insert(identity, at);
        id
    }

    /// Removes the PVs that one of the patterns chooses; the answer is their names and ids.
    pub(crate) fn remove(&mut self, chosen: impl Fn(&Identity) -> bool) -> Vec<(Identity, u64)> {
        let mut removed = Vec::new();
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let Some(channel) = slot.channel.take_if(|channel| chosen(&channel.entry.identity)) else { continue };
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(at as u32);
            self.fakes.places.remove(&at);
            self.by_identity.remove(&channel.entry.identity);
            if channel.wants.connections && self.removed.len() < REMOVED_MAX {
                self.removed.push((channel.beside, channel.entry.identity.pv.clone()));
            }
            // A PV that is added again keeps the time of its last update.
            if let Some(time) = channel.time {
                self.times.insert(channel.entry.identity.key(), time);
            }
            removed.push((channel.entry.identity, channel.id));
        }
        removed
    }

    /// As [`Self::remove`], for patterns.
    pub(crate) fn remove_matching(&mut self, patterns: &[Pattern]) -> Vec<(Identity, u64)> {
        if patterns.is_empty() {
            return Vec::new();
        }
        // Of thousands of patterns most are names.
        let mut names: HashMap<&str, Vec<&Pattern>> = HashMap::new();
        let mut wild = Vec::new();
        for pattern in patterns {
            pattern.exact().map_or(&mut wild, |name| names.entry(name).or_default()).push(pattern);
        }
        self.remove(|identity| {
            let named = names.get(identity.pv.as_str()).into_iter().flatten();
            named.chain(&wild).any(|pattern| pattern.matches(identity))
        })
    }

    /// Makes the choices of these entries, of PVs that are there. How many were others.
    pub(crate) fn choose(&mut self, entries: Vec<Entry>, plan: &Plan, now: i64) -> usize {
        let mut changed = 0;
        for entry in entries {
            let Some(at) = self.by_identity.get(&entry.identity) else { continue };
            let channel = self.slots[*at as usize].channel.as_mut();
            if let Some(channel) = channel.filter(|channel| channel.entry != entry) {
                channel.choose(entry, plan, now);
                changed += 1;
            }
        }
        changed
    }

    pub(crate) fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.slots.iter().filter_map(|slot| slot.channel.as_ref())
    }

    /// Names of origins that hold frames.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &str> {
        self.cameras.iter().map(|at| self.origins[*at].base.as_str())
    }

    /// The PV of an id, unless it was removed.
    fn place(&self, id: u64) -> Option<usize> {
        let at = (id & u64::from(u32::MAX)) as usize;
        let slot = self.slots.get(at)?;
        (u64::from(slot.generation) == id >> 32 && slot.channel.is_some()).then_some(at)
    }

    /// The subscription of a PV could not be made.
    pub(crate) fn refuse(&mut self, id: u64, why: String) {
        if let Some(channel) = self.place(id).and_then(|at| self.slots[at].channel.as_mut()) {
            channel.trouble = Some(why);
        }
    }

    /// Takes an update.
    pub(crate) fn take(&mut self, update: &Update<'_>, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let Some(at) = self.place(update.id) else { return Ok(()) };
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        let link = match update.what {
            What::Value => return self.value(at, update, now, out),
            What::Squashed => return self.squashed(at, update.count, now, out),
            What::Connected => ConnectionInfo::Connected,
            What::Disconnected => ConnectionInfo::Disconnected,
            What::Finished => ConnectionInfo::Finished,
            What::Refused => ConnectionInfo::RemoteError,
            // A source writes nothing.
            What::Written { .. } => return Ok(()),
        };
        channel.trouble = match update.what {
            What::Refused => Some(text(update.text).into_owned()),
            _ => None,
        };
        channel.set_link(link, now);
        // A connection is reported with its first value, so that it is known what its messages are numbered by.
        if link != ConnectionInfo::Connected { self.say(at, false, now, out) } else { Ok(()) }
    }

    /// Sends the connection of a PV, if it changed. `has_value`: a value comes with it.
    fn say(&mut self, at: usize, has_value: bool, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        let origin = &self.origins[channel.origin];
        // Before the first value it is not known whether the PV is a camera, whose frames have their own numbers.
        let is_unknown = channel.entry.identity.schema == Schema::Auto && origin.next == 0 && origin.frames.is_none();
        if channel.said == channel.link || is_unknown && !has_value {
            return Ok(());
        }
        channel.said = channel.link;
        self.is_urgent = true;
        if !channel.wants.connections {
            return Ok(());
        }
        let since = channel.since;
        let made = self.maker.connection(&channel.entry.identity.pv, since, channel.link);
        let schema = made.map_err(|e| Fault::new("a connection cannot be written", e))?;
        self.beside(at, Role::Connection, schema, (since, now), out)
    }

    /// Sends the message in the maker, which stands beside the value.
    fn beside(
        &mut self,
        at: usize,
        role: Role,
        schema: [u8; 4],
        (time, now): (i64, i64),
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        channel.keep(role, schema, time, &self.maker.bytes, now);
        let (origin, number) = (channel.beside, self.origins[channel.beside].count());
        let message = Message { origin, number, schema, time, flags: 0, parts: &[&self.maker.bytes] };
        give(&mut self.origins, &mut self.pending, &message, out)
    }

    /// Counts what the client's queue overwrote. Of frames the numbers are known when the next one comes.
    fn squashed(&mut self, at: usize, count: u64, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        channel.squashed += count;
        if !channel.wants.values || count == 0 {
            return Ok(());
        }
        let origin = &mut self.origins[channel.origin];
        if origin.frames.is_some() {
            channel.overwritten += count;
            return Ok(());
        }
        channel.lost += count;
        let first = origin.next;
        origin.next = origin.next.saturating_add(count);
        let from = channel.time.unwrap_or(now);
        origin.missing(first..=origin.next.saturating_sub(1), (from, now), "lost.squashed", out)
    }

    /// Takes a value or a change of alarm.
    fn value(&mut self, at: usize, update: &Update<'_>, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        if !channel.is_connected() {
            channel.set_link(ConnectionInfo::Connected, now);
        }
        let is_frame = channel.wants.values && schema_of(channel.entry.identity.schema, update) == Schema::Ad00;
        if is_frame && channel.beside == channel.origin && update.frame.unique_id.is_some() {
            let name = beside(&self.origins[channel.origin].base);
            let beside = self.origin(&name);
            if let Some(channel) = &mut self.slots[at].channel {
                channel.be_camera();
                channel.beside = beside;
            }
        }
        self.say(at, true, now, out)?;
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        // A camera that has taken no frame yet sends one without pixels.
        if is_frame && update.value.bytes.is_empty() || !(update.has_value || update.has_alarm || update.has_units) {
            return Ok(());
        }
        self.updates += 1;
        let newest = self.origins[channel.origin].frames.as_ref().map(|frames| frames.next);
        let is_newest = |id: i32| newest == Some(u64::from(id as u32).saturating_add(1));
        let is_again = channel.is_fresh && update.frame.unique_id.is_some_and(is_newest);
        channel.is_cut |= channel.is_fresh;
        let fate = match channel.judge(update.time, is_frame, now) {
            // Its time is not in the stream; its number is.
            Fate::Untimed if is_again => Fate::Known,
            fate => fate,
        };
        if let Fate::Skipped(reason) = fate {
            return self.skip(at, update, reason, now, out);
        }
        channel.values += u64::from(update.has_value);
        let own = update.time.filter(|_| fate != Fate::Untimed);
        let time = own.unwrap_or(now);
        // A time of arrival says nothing of the times of the PV.
        channel.time = own.or(channel.time);
        let (alarm, units) = (channel.changes_alarm(update), channel.changes_units(update));
        let wrong = |e| Fault::new("what stands beside a value cannot be written", e);
        if units {
            let schema = self.maker.units(&channel.entry.identity.pv, time, update.units).map_err(wrong)?;
            self.beside(at, Role::Units, schema, (time, now), out)?;
        }
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        if alarm {
            let pv = &channel.entry.identity.pv;
            let schema = self.maker.alarm(pv, time, update.severity, update.alarm).map_err(wrong)?;
            self.beside(at, Role::Alarm, schema, (time, now), out)?;
        }
        match fate {
            Fate::New | Fate::Untimed if update.has_value => {
                self.store(at, update, (time, fate == Fate::Untimed), now, out)
            }
            _ => Ok(()),
        }
    }

    /// Counts a value that is left out; frames never are.
    fn skip(
        &mut self,
        at: usize,
        update: &Update<'_>,
        reason: &'static str,
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        if !channel.wants.values || !update.has_value {
            return Ok(());
        }
        channel.skipped += 1;
        channel.skip = Some(reason);
        let origin = &mut self.origins[channel.origin];
        let number = origin.count();
        origin.missing(number..=number, (now, now), reason, out)
    }

    /// Stores a value. `is_untimed`: its time is that of its arrival.
    fn store(
        &mut self,
        at: usize,
        update: &Update<'_>,
        (time, is_untimed): (i64, bool),
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        let identity = &channel.entry.identity;
        let origin = &mut self.origins[channel.origin];
        let made = self.maker.value(&identity.pv, identity.schema, update, time, origin.next);
        let (schema, time) = match made {
            Made::Message { schema, time } => (schema, time),
            Made::Frame { pixels, codec } => {
                channel.codec(codec, update.frame.codec);
                return self.frame(at, update, pixels, (time, is_untimed, now), out);
            }
            Made::Nothing => return Ok(()),
            Made::Unfit(why) => {
                channel.trouble = Some(why.to_owned());
                let row = origin.row(out)?;
                return out.count(row, "refused.type", 1);
            }
        };
        channel.trouble = None;
        channel.keep(Role::Value, schema, time, &self.maker.bytes, now);
        let (origin, number) = (channel.origin, origin.count());
        let flags = if is_untimed { flags::SUSPECT } else { 0 };
        let message = Message { origin, number, schema, time, flags, parts: &[&self.maker.bytes] };
        give(&mut self.origins, &mut self.pending, &message, out)
    }

    /// Stores the frame whose head is in the maker.
    fn frame(
        &mut self,
        at: usize,
        update: &Update<'_>,
        pixels: Option<&[u8]>,
        (time, is_untimed, now): (i64, bool, i64),
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        channel.trouble = None;
        channel.forget(Role::Value);
        channel.dropped += u64::from(update.frame.dropped);
        let place = channel.origin;
        let origin = &mut self.origins[place];
        let is_cut = std::mem::take(&mut channel.is_cut);
        let number = match update.frame.unique_id {
            None => origin.count(),
            Some(id) => {
                let own = (!is_untimed).then_some(time);
                let arrival = Arrival { number: u64::from(id as u32), own, time, now, is_cut };
                channel.overruns.0 = channel.overruns.0.max(update.count);
                if origin.frames.is_none() {
                    self.is_urgent = true;
                    if !self.cameras.contains(&place) {
                        self.cameras.push(place);
                    }
                }
                let mut sign = origin.receive(&arrival, self.reorder);
                if sign == Sign::Restart {
                    self.file_holes(at, Frames::close, out)?;
                    let origin = &mut self.origins[place];
                    if origin.begin_life(self.reorder) {
                        sign = origin.receive(&arrival, self.reorder);
                    }
                }
                if sign == Sign::Duplicate {
                    let row = self.origins[place].row(out)?;
                    return if is_cut { Ok(()) } else { out.count(row, "refused.duplicate", 1) };
                }
                self.file_holes(at, |frames| frames.due(now), out)?;
                arrival.number
            }
        };
        let Some(parts) = self.maker.head.parts(pixels.unwrap_or(&self.maker.pixels)) else { return Ok(()) };
        let flags = if is_untimed { flags::SUSPECT } else { 0 };
        let message = Message { origin: place, number, schema: wire::ad00::ID, time, flags, parts: &parts };
        give(&mut self.origins, &mut self.pending, &message, out)
    }

    /// Counts the frames that are missing in holes as lost: as many as the client's queue overwrote and all others that
    /// came while the server overwrote some as `squashed`. `next` takes the next hole that is due.
    fn file_holes(
        &mut self,
        at: usize,
        mut next: impl FnMut(&mut Frames) -> Option<Hole>,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        let origin = &mut self.origins[channel.origin];
        while let Some(hole) = origin.frames.as_mut().and_then(&mut next) {
            let Hole { numbers, times, is_absent, .. } = hole;
            channel.lost += numbers.end - numbers.start;
            let squashed = channel.overwritten.min(numbers.end - numbers.start);
            channel.overwritten -= squashed;
            let middle = numbers.start + squashed;
            let reason = match (is_absent, channel.overruns.0 > channel.overruns.1) {
                (true, _) => "lost.absent",
                (_, true) => "lost.squashed",
                _ => "lost.unsent",
            };
            for (part, reason) in [(numbers.start..middle, "lost.squashed"), (middle..numbers.end, reason)] {
                if !part.is_empty() {
                    origin.missing(part.start..=part.end - 1, times, reason, out)?;
                }
            }
        }
        // An overwritten update that no hole has followed was no frame.
        if origin.frames.as_ref().is_none_or(|frames| frames.complete_to().is_none()) {
            (channel.overwritten, channel.overruns.1) = (0, channel.overruns.0);
        }
        Ok(())
    }

    /// Counts the frames that are missing in all holes, before the source ends.
    pub(crate) fn close(&mut self, out: &mut dyn Outlet) -> Result<(), Fault> {
        (0..self.slots.len()).try_for_each(|at| self.file_holes(at, Frames::close, out))
    }

    /// The time up to which no frame is missing that may still come, ns since 1970 UTC; `now` where none is missing.
    pub(crate) fn complete_to(&self, now: i64) -> i64 {
        let frames = self.cameras.iter().filter_map(|at| self.origins[*at].frames.as_ref());
        frames.filter_map(Frames::complete_to).fold(now, i64::min)
    }

    /// Gives simulated PVs their values, at most [`LOOK_PVS`] of them in one step. Returns when it is to be called
    /// again, ns since 1970 UTC.
    pub(crate) fn simulate(&mut self, now: i64, out: &mut dyn Outlet) -> Result<i64, Fault> {
        for _ in 0..LOOK_PVS {
            let Some(at) = self.fakes.next(now) else { return Ok(self.fakes.due()) };
            let Some(id) = self.slots[at].channel.as_ref().map(|channel| channel.id) else { continue };
            let value = self.fakes.draw().to_ne_bytes();
            self.take(&fake::update(id, now, &value), now, out)?;
            if !self.pending.is_empty() {
                break;
            }
        }
        Ok(now)
    }

    /// Checks connections and repeats, of at most [`LOOK_PVS`] PVs in one step. True when all PVs were checked.
    pub(crate) fn look(&mut self, now: i64, out: &mut dyn Outlet) -> Result<bool, Fault> {
        while let Some((origin, pv)) = self.removed.pop() {
            let made = self.maker.connection(&pv, now, ConnectionInfo::Cancelled);
            let schema = made.map_err(|e| Fault::new("a connection cannot be written", e))?;
            let number = self.origins[origin].count();
            let message = Message { origin, number, schema, time: now, flags: 0, parts: &[&self.maker.bytes] };
            give(&mut self.origins, &mut self.pending, &message, out)?;
            if !self.pending.is_empty() {
                return Ok(false);
            }
        }
        for _ in 0..LOOK_PVS {
            if self.cursor >= self.slots.len() {
                self.cursor = 0;
                return Ok(true);
            }
            self.look_at(self.cursor, now, out)?;
            self.cursor += 1;
            if !self.pending.is_empty() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn look_at(&mut self, at: usize, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let Some(channel) = &mut self.slots[at].channel else { return Ok(()) };
        if channel.retry.take_if(|retry| *retry <= now).is_some() {
            self.ended.push((channel.entry.identity.pv.clone(), channel.id, !channel.wants.values));
        }
        if channel.said != channel.link && now.saturating_sub(channel.since) > CONNECT_PATIENCE {
            self.say(at, false, now, out)?;
        }
        self.file_holes(at, |frames| frames.due(now), out)?;
        let Some(channel) = &self.slots[at].channel else { return Ok(()) };
        let is_due = channel.due <= now || channel.due.saturating_sub(now) > channel.wants.repeat + LOOK_PAUSE;
        if channel.wants.repeat == 0 || channel.is_fake() || channel.due == i64::MAX || !is_due {
            return Ok(());
        }
        for role in Role::ALL {
            let Some(channel) = &self.slots[at].channel else { break };
            let place = if matches!(role, Role::Value) { channel.origin } else { channel.beside };
            let Some(Kept { schema, time, bytes }) = channel.repeated(role) else { continue };
            let number = self.origins[place].count();
            let parts: &[&[u8]] = &[bytes];
            let message = Message { origin: place, number, schema: *schema, time: *time, flags: flags::REPEAT, parts };
            give(&mut self.origins, &mut self.pending, &message, out)?;
        }
        if let Some(channel) = &mut self.slots[at].channel {
            channel.due = now.saturating_add(channel.wants.repeat);
        }
        Ok(())
    }
}

/// The origin of what is sent beside frames.
fn beside(origin: &str) -> String {
    format!("{origin}/state")
}

#[cfg(test)]
mod tests;
