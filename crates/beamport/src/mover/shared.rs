//! Changes of a worker on several hosts. The host that leads posts what the worker is to be (`configure/WORKER`), and
//! each host of the worker follows the newest post: one that starts later reads no block before it has.
//!
//! The parts of a worker on builders follow in the same way; they keep the change, as a worker on one host does, and do
//! not wait for it.
//!
//! A post is for the parameters and slots that the file has; where these are edited, the file counts again, as it does
//! for a worker on one host.

use super::Mover;
use super::commands::valid_slots;
use super::control::{Command, number};
use super::hosts::Hosts;
use crate::file::HostPart;
use crate::limits::ASK_PATIENCE;
use flow::{Fault, Passes};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use settings::shortened;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The parameters and slots that a worker on several hosts is to have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Change {
    /// Names the change: answers bear it.
    id: String,
    /// The host that posts it, to which answers go.
    asker: String,
    /// The client that gave the command, as the stream `control` records it.
    from: String,
    /// Parameters and slots of the file for which it is.
    file: Value,
    /// Parameters beside those of the file; `null` takes one away.
    parameters: Map<String, Value>,
    /// Slots on each host, where they are other than in the file.
    slots: Option<u32>,
}

impl Change {
    /// All parameters with it.
    fn parameters(&self, file: &Value) -> Map<String, Value> {
        let mut all = file["parameters"].as_object().cloned().unwrap_or_default();
        all.extend(self.parameters.clone());
        all.retain(|_, value| !value.is_null());
        all
    }
}

/// The parameters that differ in `wanted`; `null` for one that it does not have.
fn difference(now: &Map<String, Value>, wanted: &Map<String, Value>) -> Map<String, Value> {
    let gone = now.keys().filter(|name| !wanted.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let new = wanted.iter().filter(|(name, value)| now.get(*name) != Some(value));
    gone.chain(new.map(|(name, value)| (name.clone(), value.clone()))).collect()
}

/// A change that hosts are to follow, and their answers.
struct PendingChange {
    command: Command,
    worker: String,
    /// The change before it, which is posted again where a host refuses this one.
    before: Change,
    waits: BTreeSet<String>,
    away: Vec<String>,
    answers: Map<String, Value>,
    refused: Option<Fault>,
    since: Instant,
}

/// The changes of workers on several hosts, as a host sees them.
#[derive(Default)]
pub(super) struct Changes {
    /// The newest of each worker.
    newest: BTreeMap<String, Change>,
    /// Of the host that leads, by the names of changes.
    asked: BTreeMap<String, PendingChange>,
    /// The parameters that each worker of this host has.
    parameters: BTreeMap<String, Map<String, Value>>,
    /// Workers of this host with a change that they have not followed.
    to_follow: BTreeSet<String>,
    /// Workers of this host that read no blocks yet.
    held: BTreeSet<String>,
}

impl Changes {
    pub(super) fn new(part: &HostPart) -> Self {
        Self { held: part.shared().cloned().collect(), ..Self::default() }
    }
}

impl Hosts {
    /// The worker on several hosts that a command changes, where this host leads.
    fn changed_worker(&self, request: &Value) -> Option<String> {
        let leads = self.part.layout.hosts.first() == Some(&self.part.name);
        let name = self.part.shared_worker(request).filter(|_| leads)?;
        Some(name.to_owned())
    }

    /// Posts a change of a worker on several hosts, if the command is one; gives back another command, or one that is
    /// wrong.
    pub(super) fn post_change(
        &mut self,
        command: Command,
        since: Instant,
        id: &str,
    ) -> Option<(Command, Option<Fault>)> {
        let Some(worker) = self.changed_worker(&command.request) else { return Some((command, None)) };
        if self.caught_up.is_none() {
            if since.elapsed() < ASK_PATIENCE {
                self.waiting.push((command, since));
                return None;
            }
            let fault = Fault::new(format!("cannot configure worker `{worker}`"), self.unread());
            return Some((command, Some(fault)));
        }
        let file = self.part.workers.get(&worker).map_or(Value::Null, |of| of.file.clone());
        let known = self.changes.newest.get(&worker).filter(|change| change.file == file).cloned();
        let before = Change { file, ..known.unwrap_or_default() };
        let mut change = match asked_change(&before, &worker, &command.request) {
            Ok(change) => change,
            Err(fault) => return Some((command, Some(fault))),
        };
        (change.from, change.asker) = (command.from.clone(), self.part.name.clone());
        change.id = id.to_owned();
        let all = self.part.workers.get(&worker).map(|of| of.hosts.clone()).unwrap_or_default();
        let (away, waits): (Vec<String>, Vec<String>) = all.into_iter().partition(|host| self.is_away(host));
        self.set_change(&worker, change);
        let (waits, answers) = (waits.into_iter().collect(), Map::new());
        let asked =
            PendingChange { command, worker, before, waits, away, answers, refused: None, since: Instant::now() };
        self.changes.asked.insert(id.to_owned(), asked);
        None
    }

    fn set_change(&mut self, worker: &str, change: Change) {
        let text = serde_json::to_string(&change).unwrap_or_default();
        self.bulletin.post(format!("configure/{worker}"), text);
        self.changes.newest.insert(worker.to_owned(), change);
    }

    /// Takes in the post of a change.
    pub(super) fn see_change(&mut self, worker: &str, text: &str) {
        let Ok(change) = serde_json::from_str::<Change>(text) else { return };
        let leads = self.part.layout.hosts.first() == Some(&self.part.name);
        // It knows its own posts.
        if leads && self.caught_up.is_some() || !self.part.workers.contains_key(worker) {
            return;
        }
        if self.part.stage_of(worker).is_some() {
            self.changes.to_follow.insert(worker.to_owned());
        }
        self.changes.newest.insert(worker.to_owned(), change);
    }

    /// Takes in the answer of a host to a change; false where it is to another command.
    pub(super) fn see_followed(&mut self, id: &str, answer: &Value) -> bool {
        let Some((id, host)) = id.rsplit_once('/') else { return false };
        let Some(asked) = self.changes.asked.get_mut(id) else { return false };
        if asked.waits.remove(host) {
            match answer["fault"].is_null() {
                true => drop(asked.answers.insert(host.to_owned(), answer["ok"].clone())),
                false => {
                    let fault = Fault::of_json(&answer["fault"]);
                    let what = format!("host `{host}`: {}", fault.what);
                    asked.refused.get_or_insert(Fault { what, ..fault });
                }
            }
        }
        true
    }

    /// The changes that all hosts have answered, with what the asker gets.
    fn answered_changes(&mut self) -> Vec<(Command, Result<Value, Fault>)> {
        let is_over = |asked: &PendingChange| asked.waits.is_empty() || asked.since.elapsed() > ASK_PATIENCE;
        let over: Vec<String> =
            self.changes.asked.iter().filter(|(_, asked)| is_over(asked)).map(|(id, _)| id.clone()).collect();
        let mut all = Vec::new();
        for id in over {
            let Some(PendingChange { command, worker, before, waits, away, answers, refused, .. }) =
                self.changes.asked.remove(&id)
            else {
                continue;
            };
            let answer = if let Some(fault) = refused {
                // Those that have followed go back; a later change stands.
                if self.changes.newest.get(&worker).is_some_and(|newest| newest.id == id) {
                    self.set_change(&worker, before);
                }
                Err(fault)
            } else if waits.is_empty() {
                Ok(json!({"worker": worker, "hosts": answers, "away": away}))
            } else {
                let silent: Vec<&str> = waits.iter().map(String::as_str).collect();
                let what = format!("`{}` has not answered", shortened(&silent.join("`, `")));
                let fault = Fault::new(what, "the change is posted, and each host follows it when it goes on");
                let hint = format!("look whether it has: `beamport configure {worker}`");
                Err(Fault { passes: Passes::Pending, ..fault.hint(hint) })
            };
            all.push((command, answer));
        }
        all
    }
}

/// The change that a request asks for, after those before it.
fn asked_change(before: &Change, worker: &str, request: &Value) -> Result<Change, Fault> {
    let what = || format!("cannot configure worker `{worker}`");
    let mut change = before.clone();
    match &request["parameters"] {
        Value::Null => {}
        Value::Object(parameters) => change.parameters.extend(parameters.clone()),
        _ => return Err(Fault::new(what(), "`parameters` is not a JSON object")),
    }
    if let Some(slots) = number(request, "slots")? {
        let valid = valid_slots(slots);
        let refused = || {
            let hint = format!("a worker has 1 to {} slots on each host", flow::SLOTS_MAX);
            Fault::new(what(), format!("{slots} slots")).hint(hint)
        };
        change.slots = Some(valid.ok_or_else(refused)?);
    }
    Ok(change)
}

impl Mover {
    /// Answers changes of workers, and has the workers of this host follow them.
    pub(super) fn keep_changes(&mut self, now: i64) {
        let Some(hosts) = &mut self.hosts else { return };
        for (command, answer) in hosts.answered_changes() {
            self.answer(&command, answer, now);
        }
        let Some(hosts) = &mut self.hosts else { return };
        if hosts.caught_up.is_none() {
            return;
        }
        let workers: Vec<String> = hosts.changes.to_follow.iter().cloned().collect();
        for worker in workers {
            self.follow_change(&worker, now);
        }
        self.release_workers();
    }

    /// Has a worker of this host follow the newest change, once it runs.
    fn follow_change(&mut self, worker: &str, now: i64) {
        let stage = self.hosts.as_ref().and_then(|hosts| hosts.part.stage_of(worker));
        let Some(stage) = stage.filter(|stage| self.running_workers().any(|(section, _)| section.name == *stage))
        else {
            return;
        };
        let Some(hosts) = &mut self.hosts else { return };
        hosts.changes.to_follow.remove(worker);
        let (Some(change), Some(of)) = (hosts.changes.newest.get(worker).cloned(), hosts.part.workers.get(worker))
        else {
            return;
        };
        let own = hosts.part.name.clone();
        let key = format!("answer/{}/{}/{own}", change.asker, change.id);
        if change.file != of.file {
            let fault = Fault::new(format!("cannot configure worker `{worker}`"), "it runs another instrument file");
            let answer = json!({"fault": fault.hint("start all hosts with the same file").to_json()});
            hosts.bulletin.post(key, answer.to_string());
            return;
        }
        let of_file = || of.file["parameters"].as_object().cloned().unwrap_or_default();
        // A part may have a change of before this start: all parameters are set.
        let at_start = || if of.is_on_parts { Map::new() } else { of_file() };
        let (now_set, wanted) =
            (hosts.changes.parameters.get(worker).cloned().unwrap_or_else(at_start), change.parameters(&of.file));
        let slots = change.slots.map_or_else(|| of.file["slots"][&own].clone(), Value::from);
        let parameters = difference(&now_set, &wanted);
        hosts.changes.parameters.insert(worker.to_owned(), wanted);
        let request = json!({"command": "configure", "stage": stage, "parameters": parameters, "slots": slots});
        let (command, answered) = Command::of_host(request, change.from);
        hosts.obeying.push((key, answered));
        self.begin_command(command, now);
    }

    /// Has the workers of this host read blocks, once they have followed the changes that there were at the start.
    fn release_workers(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        if hosts.changes.held.is_empty() || !hosts.changes.to_follow.is_empty() || !hosts.obeying.is_empty() {
            return;
        }
        for worker in std::mem::take(&mut hosts.changes.held) {
            let source = format!("{worker}.in");
            match self.ask_source(&source, json!({"begin": true})) {
                Some(request) => drop(request),
                None => {
                    if let Some(hosts) = &mut self.hosts {
                        hosts.changes.held.insert(worker);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_change_adds_to_those_before_it_and_a_host_follows_the_difference() {
        let file = json!({"parameters": {"gain": 1, "mode": "fast"}, "slots": {"n1": 2}});
        let none = Change { file: file.clone(), ..Change::default() };
        let ask = |before: &Change, request: Value| asked_change(before, "w", &request).unwrap();
        let one = ask(&none, json!({"parameters": {"gain": 2, "mode": null}}));
        let two = ask(&one, json!({"parameters": {"offset": 3}, "slots": 4}));
        assert_eq!(two.parameters(&file), map(json!({"gain": 2, "offset": 3})));
        assert_eq!(two.slots, Some(4));
        let of_file = none.parameters(&file);
        assert_eq!(difference(&of_file, &of_file), Map::new());
        assert_eq!(difference(&of_file, &two.parameters(&file)), map(json!({"gain": 2, "mode": null, "offset": 3})));
        assert_eq!(
            difference(&two.parameters(&file), &of_file),
            map(json!({"gain": 1, "mode": "fast", "offset": null}))
        );
        let text = serde_json::to_string(&two).unwrap();
        assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), two);
    }

    #[test]
    fn a_change_that_is_none_is_refused() {
        for request in [json!({"slots": 0}), json!({"slots": 1 << 20}), json!({"slots": "x"}), json!({"parameters": 1})]
        {
            assert!(asked_change(&Change::default(), "w", &request).is_err(), "{request}");
        }
    }
}
