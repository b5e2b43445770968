//! The source: takes what the clients of EPICS have received, and makes messages of it.

use crate::channel::Absence;
use crate::command::Change;
use crate::entry::{Entry, Identity, Protocol, Schema};
use crate::limits::{
    ABSENT_NAMES, ABSENT_PATIENCE, FULL_REST, LOOK_PAUSE, STATE_BYTES_PER_SECOND, STATUS_DISCONNECTED,
    STATUS_STREAMS_MAX, STEP_BYTES, STEP_UPDATES,
};
use crate::links::Links;
use crate::plan::{Plan, wrong_list};
use crate::pvs::Pvs;
use crate::state;
use flow::{Fault, Outlet, Resume, Source, Step};
use serde_json::{Value, json};
use settings::Word;
use settings::units::duration_text;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// A source of kind `pva` or `ca`.
pub(crate) struct Epics {
    plan: Arc<Plan>,
    open: Option<Open>,
}

impl Epics {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { plan: Arc::new(plan), open: None }
    }
}

impl Source for Epics {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.open = Some(Open::start(self.plan.clone(), now, resume)?);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.open.as_mut().map_or(Ok(Step::Ended), |open| open.step(now, out))
    }

    fn stop(&mut self, _: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.open.as_mut().map_or(Ok(()), |open| open.pvs.close(out))
    }

    fn frontier(&self, now: i64) -> i64 {
        self.open.as_ref().map_or(now, |open| open.pvs.complete_to(now))
    }

    fn absent(&self) -> Option<Fault> {
        self.open.as_ref().and_then(|open| open.absent(i64::MAX))
    }

    fn state(&self) -> String {
        self.open.as_ref().map_or_else(String::new, |open| open.text.clone())
    }

    fn trouble(&self) -> Option<Fault> {
        self.open.as_ref().and_then(|open| open.trouble.clone())
    }

    fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        let open = self.open.as_mut().ok_or_else(|| Fault::new("the source has not started", ""))?;
        open.configure(Change::of_json(request, self.plan.network.protocol)?)
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, Open::status)
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.links.descriptor())
    }
}

/// The state after a start.
struct Open {
    plan: Arc<Plan>,
    links: Links,
    pvs: Pvs,
    /// The list was changed since the file was read.
    is_changed: bool,
    /// The state, as it was written last.
    text: String,
    /// When.
    written: i64,
    /// When connections and repeats are looked at next.
    look: i64,
    /// When that was last done, and the updates until then.
    looked: (i64, u64),
    updates_per_second: f64,
    /// Time of the last step.
    now: i64,
    trouble: Option<Fault>,
}

impl Open {
    fn start(plan: Arc<Plan>, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let state = state::read(&resume.state)?;
        let entries = state.entries(&plan.entries);
        let mut open = Self {
            links: Links::new()?,
            is_changed: entries != plan.entries,
            pvs: Pvs::new(resume, state, &plan, now),
            plan,
            text: String::new(),
            written: now,
            look: now,
            looked: (now, 0),
            updates_per_second: 0.0,
            now,
            trouble: None,
        };
        entries.into_iter().try_for_each(|entry| open.add(entry))?;
        open.write_state();
        Ok(open)
    }

    fn add(&mut self, entry: Entry) -> Result<(), Fault> {
        let Identity { protocol, pv, schema, .. } = entry.identity.clone();
        let id = self.pvs.add(entry, &self.plan, self.now);
        let how = self.plan.subscription(schema == Schema::None);
        self.links.add_later(&self.plan.network, protocol, id, pv, how)
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.now = now;
        if !self.pvs.pending.drain(out)? {
            return Ok(Step::At(now + FULL_REST));
        }
        let changes = self.links.change(&self.plan.network)?;
        let is_changing = changes.is_some();
        changes.into_iter().flatten().for_each(|(id, why)| self.pvs.refuse(id, why));
        // The clock of the machine may have been set back.
        if now >= self.look || self.look.saturating_sub(now) > LOOK_PAUSE {
            let is_done = self.pvs.look(now, out)?;
            for (pv, id, is_beside) in std::mem::take(&mut self.pvs.ended) {
                let how = self.plan.subscription(is_beside);
                self.links.remove_later(Protocol::Pva, id);
                self.links.add_later(&self.plan.network, Protocol::Pva, id, pv, how)?;
            }
            if !self.pvs.pending.is_empty() {
                return Ok(Step::At(now + FULL_REST));
            }
            if !is_done {
                return Ok(Step::Again);
            }
            self.look = now + LOOK_PAUSE;
            self.refresh();
        }
        let simulate = self.pvs.simulate(now, out)?;
        if !self.pvs.pending.is_empty() {
            return Ok(Step::At(now + FULL_REST));
        }
        let (mut updates, mut bytes) = (0, 0);
        while let Some(client) = self.links.ready() {
            while let Some(update) = client.front() {
                self.pvs.take(&update, now, out)?;
                updates += 1;
                bytes += update.value.bytes.len();
                client.pop();
                if !self.pvs.pending.is_empty() {
                    return Ok(Step::At(now + FULL_REST));
                }
                if updates >= STEP_UPDATES || bytes >= STEP_BYTES {
                    self.links.pass();
                    return Ok(Step::Again);
                }
            }
            self.links.pass();
        }
        Ok(if is_changing { Step::Again } else { Step::At(self.look.min(simulate).max(now + 1)) })
    }

    /// Renews what is shown and kept.
    fn refresh(&mut self) {
        let (since, updates) = std::mem::replace(&mut self.looked, (self.now, self.pvs.updates));
        let seconds = (self.now - since) as f64 / 1e9;
        if seconds > 0.0 {
            self.updates_per_second = ((self.pvs.updates - updates) as f64 / seconds * 10.0).round() / 10.0;
        }
        let mut wrong = self.pvs.channels().filter_map(|channel| Some((channel, channel.trouble.as_ref()?)));
        let first = wrong.next();
        let more = wrong.count();
        self.trouble = first.map(|(channel, why)| {
            let name = channel.entry.identity.name();
            let more = if more > 0 { format!(", and {more} more PVs") } else { String::new() };
            Fault::new(format!("source `{}` cannot store `{name}`{more}", self.plan.name), why)
                .hint("correct the entry of this PV, or remove it")
        });
        self.trouble = self.trouble.take().or_else(|| self.trouble_of_cameras());
        self.trouble = self.trouble.take().or_else(|| self.absent(self.now.saturating_sub(ABSENT_PATIENCE)));
        let pause = (self.text.len() as i64).saturating_mul(1_000_000_000) / STATE_BYTES_PER_SECOND;
        let is_due = self.now.saturating_sub(self.written).unsigned_abs() >= pause.unsigned_abs();
        if is_due || std::mem::take(&mut self.pvs.is_urgent) {
            self.write_state();
        }
    }

    /// The PVs of which nothing has come, of those that were added by then, ns since 1970 UTC.
    fn absent(&self, added: i64) -> Option<Fault> {
        let mut absent: BTreeMap<Absence, Vec<String>> = BTreeMap::new();
        for channel in self.pvs.channels().filter(|channel| channel.added <= added) {
            if let Some(absence) = channel.absence() {
                absent.entry(absence).or_default().push(channel.entry.identity.name());
            }
        }
        let count: usize = absent.values().map(Vec::len).sum();
        if count == 0 {
            return None;
        }
        let group = |(why, names): (&Absence, &Vec<String>)| {
            let first: Vec<String> = names.iter().take(ABSENT_NAMES).map(|name| format!("`{name}`")).collect();
            let more = names.len() - first.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} {}{more}", why.text(), first.join(", "))
        };
        let groups: Vec<String> = absent.iter().take(ABSENT_NAMES).map(group).collect();
        let what = format!("source `{}` has no value of {count} of {} PVs", self.plan.name, self.pvs.len());
        let hint =
            "check the names, `addresses` and the EPICS environment; a PV that may be missing is `optional = true`";
        Some(Fault::new(what, groups.join("; ")).hint(hint))
    }

    /// The fault of the frames of a camera.
    fn trouble_of_cameras(&self) -> Option<Fault> {
        let mut cameras = self.pvs.channels().filter(|channel| channel.is_camera());
        let clock = cameras.find_map(|channel| Some((channel, channel.wrong_time?)));
        if let Some((channel, time)) = clock {
            let (name, by) = (channel.entry.identity.name(), time.saturating_sub(self.now));
            let apart = duration_text(Duration::from_secs(by.unsigned_abs() / 1_000_000_000));
            let side = if by < 0 { "behind" } else { "ahead" };
            let what = format!("the clock of camera `{name}` is {apart} {side}");
            let cause = format!("{} of its frames have the time of their arrival", channel.untimed);
            return Some(Fault::new(what, cause).hint("set the clock of the camera, or let its driver do so"));
        }
        let (channel, codec) =
            self.pvs.channels().find_map(|channel| Some((channel, channel.wrong_codec.as_ref()?)))?;
        let what = format!("frames of camera `{}` cannot be decoded", channel.entry.identity.name());
        let cause = format!("{} have the codec `{codec}` and stay as they came", channel.undecoded);
        Some(Fault::new(what, cause).hint("choose `lz4`, `bslz4`, `blosc` or `jpeg` at the camera, or none"))
    }

    fn write_state(&mut self) {
        let list = self.pvs.channels().map(|channel| channel.entry.to_json());
        let list = self.is_changed.then(|| list.collect());
        let times = self.pvs.channels().filter_map(|one| Some((one.entry.identity.key(), one.time?)));
        self.text = state::write(&state::number_of(&self.plan.entries), list, times, self.pvs.frames());
        self.written = self.now;
    }

    /// Adds and removes PVs. Others stay as they are; `replace` makes the whole list, with all choices. The same
    /// request again changes nothing.
    fn configure(&mut self, change: Change) -> Result<Value, Fault> {
        if let Some(refused) = wrong_list(&change.add) {
            return Err(Fault::new("the list of PVs cannot be changed", refused.cause).hint(refused.hint));
        }
        let mut removed = self.pvs.remove_matching(&change.remove);
        if change.replace {
            let kept: HashSet<&Identity> = change.add.iter().map(|entry| &entry.identity).collect();
            removed.extend(self.pvs.remove(|identity| !kept.contains(identity)));
        }
        for (identity, id) in &removed {
            self.links.remove_later(identity.protocol, *id);
        }
        let (there, new): (Vec<_>, Vec<_>) = change.add.into_iter().partition(|entry| self.pvs.has(&entry.identity));
        let changed = if change.replace { self.pvs.choose(there, &self.plan, self.now) } else { 0 };
        let added = new.len();
        new.into_iter().try_for_each(|entry| self.add(entry))?;
        if added > 0 || changed > 0 || !removed.is_empty() {
            self.is_changed = true;
            self.write_state();
            // Messages of removed PVs are due.
            self.look = self.now;
        }
        let mut answer = json!({"added": added, "removed": removed.len(), "pvs": self.pvs.len()});
        if change.replace {
            answer["changed"] = changed.into();
        }
        Ok(answer)
    }

    fn status(&self) -> Value {
        let mut apart: Vec<_> = self.pvs.channels().filter(|channel| !channel.is_connected()).collect();
        let connected = self.pvs.len() - apart.len();
        apart.sort_by_key(|channel| channel.since);
        let disconnected = apart.iter().take(STATUS_DISCONNECTED).map(|channel| {
            let seconds = self.now.saturating_sub(channel.since).max(0) / 1_000_000_000;
            json!({"pv": channel.entry.identity.name(), "seconds": seconds})
        });
        let disconnected: Vec<Value> = disconnected.collect();
        let overwritten = |protocol: Protocol, id| self.links.server_squash(protocol, id);
        let streams = self.pvs.channels().take(STATUS_STREAMS_MAX).map(|channel| {
            let Identity { protocol, pv, schema, topic } = &channel.entry.identity;
            json!({
                "pv": pv,
                "protocol": protocol.word(),
                "schema": schema.word(),
                "topic": topic,
                "connected": channel.is_connected(),
                "lost": channel.lost,
                "skipped": channel.skipped,
            })
        });
        let server: u64 = self.pvs.channels().map(|one| overwritten(one.entry.identity.protocol, one.id)).sum();
        json!({
            "pvs": self.pvs.len(),
            "connected": connected,
            "updates_per_second": self.updates_per_second,
            "squashed": self.pvs.channels().map(|channel| channel.squashed).sum::<u64>(),
            "server_squashed": server,
            "dropped_attributes": self.pvs.channels().map(|channel| channel.dropped).sum::<u64>(),
            "undecoded": self.pvs.channels().map(|channel| channel.undecoded).sum::<u64>(),
            "wrong_times": self.pvs.channels().map(|channel| channel.untimed).sum::<u64>(),
            "skipped": self.pvs.channels().map(|channel| channel.skipped).sum::<u64>(),
            "absent": self.pvs.channels().filter(|channel| channel.absence().is_some()).count(),
            "disconnected": disconnected,
            "streams": streams.collect::<Vec<_>>(),
        })
    }
}
