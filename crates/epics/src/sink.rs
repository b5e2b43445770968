//! `[sink.NAME] kind = "pva-put"`: the newest values of streams to PVs, for live feedback.
//!
//! Constraints: of each origin only the newest value is kept, and at most one write of its PV is under way; the next
//! one begins `every` after the last. Nothing waits: answers are updates of the client, which wake the sink.
//!
//! Accounts: a message whose value was written is done, one that a newer value replaced is `skipped.newer`, one that
//! the server refused is set aside. A value that waits for longer than [`PUT_HOLD`] is in the state of the sink, and
//! its message is counted as done: a server that is away does not hold back the stream. The state, in the commits of
//! the sink, is also the record of its writes: `{"pvs": {ORIGIN: {"pv", "puts", "refused", "value", "time", "error",
//! "next"}}}`, with the newest value that was answered, when, and the bytes of a value that is still to be written.
//!
//! Failure behaviour: a server that is away is a fault in `top`, and the newest value is written once it is back.

use crate::limits::{ANSWER_PATIENCE, LOOK_PAUSE, PUT_BYTES_MAX, PUT_HOLD};
use crate::links::Links;
use crate::plan::{FeedbackPlan, Subscription, Target};
use crate::put::hint;
use crate::put_value::PutValue;
use crate::value::{Failed, What, text};
use flow::{Aside, Confirmed, Fault, LiveBatch, LiveSink, Refused as RefusedMessage};
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};
use wire::f144;

/// A value on its way to a PV.
#[derive(Clone, Debug, PartialEq)]
struct Pending {
    /// The message, and when it was taken, ns since 1970 UTC; `None` where it comes from the state or is counted.
    message: Option<(usize, u64, i64)>,
    /// The message's bytes.
    payload: Vec<u8>,
}

impl Pending {
    fn put(&self) -> Option<PutValue> {
        Some(PutValue::of_f144(&f144::read(&self.payload).ok()?.value))
    }

    /// A number, or what there is instead of it.
    fn shown(&self) -> Json {
        match f144::read(&self.payload).map(|message| message.value) {
            Ok(f144::Value::Scalar(scalar)) => json!(scalar.to_f64()),
            Ok(f144::Value::Array(numbers)) => format!("{} numbers", numbers.len()).into(),
            Err(_) => Json::Null,
        }
    }
}

/// A write that is under way.
#[derive(Debug)]
struct Under {
    tag: i32,
    since: i64,
    value: Pending,
}

/// A PV at work.
#[derive(Debug)]
struct Writing {
    target: Target,
    is_connected: bool,
    /// Since when it is as it is, ns since 1970 UTC.
    since: i64,
    next: Option<Pending>,
    under: Option<Under>,
    /// Not before this time, ns since 1970 UTC.
    due: i64,
    puts: u64,
    refused: u64,
    /// The newest value that was answered, and when.
    answered: Option<(Json, i64)>,
    /// Why the newest write failed.
    error: Option<(Failed, String)>,
}

impl Writing {
    /// Waits for a write, or for its answer.
    fn is_busy(&self) -> bool {
        self.next.is_some() || self.under.is_some()
    }

    /// Its part of the state.
    fn state(&self) -> Json {
        let next = self.next.as_ref().or(self.under.as_ref().map(|under| &under.value));
        json!({
            "pv": self.target.name(),
            "puts": self.puts,
            "refused": self.refused,
            "value": self.answered.as_ref().map(|answered| &answered.0),
            "time": self.answered.as_ref().map(|answered| answered.1),
            "error": self.error.as_ref().map(|error| &error.1),
            "next": next.map(|value| store::hex(&value.payload)),
        })
    }

    /// Goes on from a state of the same PV.
    fn resume(&mut self, state: &Json) {
        if state["pv"].as_str() != Some(&self.target.name()) {
            return;
        }
        self.puts = state["puts"].as_u64().unwrap_or(0);
        self.refused = state["refused"].as_u64().unwrap_or(0);
        self.answered = state["time"].as_i64().map(|time| (state["value"].clone(), time));
        let payload = state["next"].as_str().and_then(bytes_of_hex);
        self.next = payload.map(|payload| Pending { message: None, payload });
    }
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The sink.
pub(crate) struct Feedback {
    plan: FeedbackPlan,
    links: Option<Links>,
    pvs: Vec<Writing>,
    by_origin: HashMap<String, usize>,
    /// By input: one past the newest message that was taken.
    taken: Vec<u64>,
    /// By input: what was confirmed last.
    confirmed: Vec<u64>,
    refused: Vec<RefusedMessage>,
    replaced: u64,
    tag: i32,
    /// Time of the last step.
    now: i64,
}

impl Feedback {
    pub(crate) fn new(plan: FeedbackPlan, inputs: usize) -> Self {
        let by_origin = plan.targets.iter().enumerate().map(|(at, target)| (target.origin.clone(), at)).collect();
        Self {
            plan,
            links: None,
            pvs: Vec::new(),
            by_origin,
            taken: vec![0; inputs],
            confirmed: vec![0; inputs],
            refused: Vec::new(),
            replaced: 0,
            tag: 0,
            now: 0,
        }
    }

    /// Counts a value that is not written. After its message was counted, only the figures of the sink have it.
    fn leave(&mut self, value: &Pending, reason: &'static str) {
        if let Some((input, sequence, _)) = value.message
            && sequence >= self.confirmed[input]
        {
            self.refused.push(RefusedMessage { input, sequence, reason });
        }
    }

    /// Takes the answer to a write, or its end without one.
    fn answered(&mut self, at: usize, failed: Option<(Failed, String)>) {
        let Some(Under { value, .. }) = self.pvs[at].under.take() else { return };
        let pv = &mut self.pvs[at];
        pv.error = failed;
        match pv.error.as_ref().map(|error| error.0) {
            None => {
                pv.puts += 1;
                pv.answered = Some((value.shown(), self.now));
            }
            Some(Failed::Refused) => {
                pv.refused += 1;
                pv.answered = Some((value.shown(), self.now));
                self.leave(&value, "refused");
            }
            Some(Failed::NoServer | Failed::NoAnswer) if pv.next.is_none() => pv.next = Some(value),
            Some(Failed::NoServer | Failed::NoAnswer) => {
                self.replaced += 1;
                self.leave(&value, "skipped.newer");
            }
        }
    }

    /// Takes what the clients have received.
    fn hear(&mut self) {
        loop {
            let Some(client) = self.links.as_mut().and_then(Links::ready) else { return };
            let Some(update) = client.front() else { return };
            let (at, what, why) = (update.id as usize, update.what, text(update.text).into_owned());
            client.pop();
            let Some(pv) = self.pvs.get_mut(at) else { continue };
            match what {
                What::Connected | What::Disconnected => {
                    let is_connected = what == What::Connected;
                    if pv.is_connected != is_connected {
                        (pv.is_connected, pv.since) = (is_connected, self.now);
                    }
                    if !is_connected {
                        // Its answer does not come any more.
                        self.answered(at, Some((Failed::NoServer, "the connection to the server was lost".into())));
                    }
                }
                What::Written { tag, failed } if pv.under.as_ref().is_some_and(|under| under.tag == tag) => {
                    self.answered(at, failed.map(|failed| (failed, why)));
                }
                _ => {}
            }
        }
    }

    /// Begins the writes that are due; `pause`: least time since the last write of a PV, ns.
    fn begin(&mut self, pause: i64) {
        for at in 0..self.pvs.len() {
            let pv = &mut self.pvs[at];
            if pv.under.as_ref().is_some_and(|under| self.now.saturating_sub(under.since) >= ANSWER_PATIENCE) {
                let why = "no answer for 5 s; it is unknown whether the value was written";
                self.answered(at, Some((Failed::NoAnswer, why.into())));
            }
            let pv = &mut self.pvs[at];
            // The clock of the machine may have been set back.
            let is_due = self.now >= pv.due || pv.due.saturating_sub(self.now) > pause;
            if !pv.is_connected || pv.under.is_some() || !is_due {
                continue;
            }
            let Some(value) = pv.next.take() else { continue };
            pv.due = self.now.saturating_add(pause);
            self.tag = self.tag.wrapping_add(1);
            pv.under = Some(Under { tag: self.tag, since: self.now, value });
            let begun = match (pv.under.as_ref().and_then(|under| under.value.put()), &mut self.links) {
                (Some(put), Some(links)) => links.put_start(pv.target.protocol, at as u64, &put, self.tag),
                _ => Err((Failed::Refused, "its message cannot be read".into())),
            };
            if let Err(failed) = begun {
                self.answered(at, Some(failed));
            }
        }
    }

    fn pause(&self) -> i64 {
        i64::try_from(self.plan.every.as_nanos()).unwrap_or(i64::MAX)
    }
}

impl LiveSink for Feedback {
    fn start(&mut self, now: i64, state: &str) -> Result<(), Fault> {
        let state: Json = serde_json::from_str(state).unwrap_or_default();
        self.replaced = state["replaced"].as_u64().unwrap_or(0);
        self.now = now;
        let mut links = Links::new()?;
        for (at, target) in self.plan.targets.iter().enumerate() {
            // Its values are of no interest.
            let added =
                links.add(&self.plan.network, target.protocol, at as u64, &target.pv, Subscription::default())?;
            added.map_err(|why| Fault::new(format!("cannot write `{}`", target.name()), why))?;
            let mut pv = Writing {
                target: target.clone(),
                is_connected: false,
                since: now,
                next: None,
                under: None,
                due: now,
                puts: 0,
                refused: 0,
                answered: None,
                error: None,
            };
            pv.resume(&state["pvs"][&target.origin]);
            self.pvs.push(pv);
        }
        self.links = Some(links);
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        for message in batch.iter() {
            let sequence = message.sequence;
            self.taken[input] = sequence + 1;
            let mut apart = |reason| aside.push(Aside { sequence, reason });
            let Some(&at) = self.by_origin.get(batch.origin(&message)) else {
                apart("skipped.origin");
                continue;
            };
            if message.entry.schema.0 != f144::ID {
                apart("skipped.schema");
                continue;
            }
            if message.payload.len() > PUT_BYTES_MAX {
                apart("large");
                continue;
            }
            if f144::read(message.payload).is_err() {
                apart("broken");
                continue;
            }
            let value = Pending { message: Some((input, sequence, self.now)), payload: message.payload.to_vec() };
            if let Some(older) = self.pvs[at].next.replace(value) {
                self.replaced += 1;
                self.leave(&older, "skipped.newer");
            }
        }
        Ok(batch.len())
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.now = now;
        self.hear();
        self.begin(self.pause());
        let next = self.pvs.iter().filter_map(|pv| match &pv.under {
            Some(under) => Some(under.since.saturating_add(ANSWER_PATIENCE)),
            None => (pv.is_connected && pv.next.is_some()).then_some(pv.due),
        });
        // The clients look after their connections when they are polled.
        Ok(next.min().unwrap_or(i64::MAX).min(now.saturating_add(LOOK_PAUSE)))
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        let mut below = self.taken.clone();
        for pv in &mut self.pvs {
            for value in pv.next.iter_mut().chain(pv.under.as_mut().map(|under| &mut under.value)) {
                match value.message {
                    Some((_, _, since)) if self.now.saturating_sub(since) >= PUT_HOLD => value.message = None,
                    Some((input, sequence, _)) => below[input] = below[input].min(sequence),
                    None => {}
                }
            }
        }
        let pvs: Map<String, Json> = self.pvs.iter().map(|pv| (pv.target.origin.clone(), pv.state())).collect();
        let state = json!({"replaced": self.replaced, "pvs": pvs}).to_string();
        self.confirmed.clone_from(&below);
        Ok(Confirmed { below, refused: std::mem::take(&mut self.refused), state })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.links.as_ref().map(Links::descriptor)
    }

    fn status(&self) -> Json {
        let sum = |of: fn(&Writing) -> u64| self.pvs.iter().map(of).sum::<u64>();
        json!({
            "pvs": self.pvs.len(),
            "connected": self.pvs.iter().filter(|pv| pv.is_connected).count(),
            "puts": sum(|pv| pv.puts),
            "refused": sum(|pv| pv.refused),
            "replaced": self.replaced,
        })
    }

    fn trouble(&self) -> Option<Fault> {
        let what = |pv: &Writing| format!("sink `{}` cannot write `{}`", self.plan.name, pv.target.name());
        let failed = self.pvs.iter().find_map(|pv| Some((pv, pv.error.as_ref()?)));
        let away = || {
            let is_away = |pv: &&Writing| !pv.is_connected && self.now.saturating_sub(pv.since) >= PUT_HOLD;
            let pv = self.pvs.iter().find(is_away)?;
            Some(Fault::new(what(pv), "no server has this PV").hint(hint(Failed::NoServer, pv.target.protocol)))
        };
        let fault = |(pv, (failed, why)): (&Writing, &(Failed, String))| {
            Fault::new(what(pv), why).hint(hint(*failed, pv.target.protocol))
        };
        failed.map(fault).or_else(away)
    }

    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        let begin = Instant::now();
        let end = |pv: &Writing| !pv.is_connected || !pv.is_busy();
        while begin.elapsed() < patience {
            self.hear();
            // The last values are not kept back.
            self.begin(0);
            if self.pvs.iter().all(end) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Protocol;

    fn writing(pv: &str) -> Writing {
        Writing {
            target: Target { origin: "a".into(), protocol: Protocol::Ca, pv: pv.into() },
            is_connected: false,
            since: 0,
            next: None,
            under: None,
            due: 0,
            puts: 0,
            refused: 0,
            answered: None,
            error: None,
        }
    }

    #[test]
    fn a_value_that_waits_survives_a_restart() {
        let mut payload = Vec::new();
        let message = f144::F144 { source_name: "a", timestamp: 5, value: f64::NAN.into() };
        f144::write(&mut payload, &message).unwrap();
        let value = Pending { message: Some((0, 7, 5)), payload };
        let waits = Writing { next: Some(value.clone()), puts: 3, answered: Some((json!(2.5), 9)), ..writing("A") };
        let under = Under { tag: 1, since: 0, value: value.clone() };
        let sent = Writing { under: Some(under), next: None, puts: 3, answered: Some((json!(2.5), 9)), ..writing("A") };
        for before in [waits, sent] {
            let state: Json = serde_json::from_str(&before.state().to_string()).unwrap();
            let mut after = writing("A");
            after.resume(&state);
            assert_eq!(after.next, Some(Pending { message: None, ..value.clone() }));
            assert_eq!((after.puts, after.answered), (3, Some((json!(2.5), 9))));
            // Another PV of the same origin starts over.
            let mut other = writing("B");
            other.resume(&state);
            assert_eq!((other.next, other.puts), (None, 0));
        }
        let mut broken = writing("A");
        for next in ["4", "xy", "é1"] {
            broken.resume(&json!({"pv": "ca:A", "next": next}));
            assert!(broken.next.is_none_or(|value| value.put().is_none()), "{next}");
            broken.next = None;
        }
    }
}
