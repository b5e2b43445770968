//! Cut-over to other code at an exact message, and the shadow's start beside its worker (decision 0014).
//!
//! Sequence, by the process that runs the slots: [`Work::hold`], steps until [`Work::is_quiet`], [`Work::cut_over`],
//! steps until its commit is safe ([`Work::is_safe`] of [`Work::change`]), all slots ended and reaped, new ones
//! started, hold released. If the old code fails, its slots are not restarted and [`Work::give_back`] returns their
//! tasks.
//!
//! Constraints: the commit with the new code is made while no block is under way, so its input positions are the
//! boundary: all messages before it were processed by the old code and are shown, none after it was assigned.
//!
//! Failure behaviour: before that commit is safe, a restarted runner has the old code and no message behind the
//! boundary; afterwards the new code. A surviving slot of the old code has no task of the new.

use super::{Piece, Source, Work};
use crate::Fault;
use crate::book::newest_commit;
use crate::commits::commits_of;
use crate::data::{Data, stream_fault};
use crate::records::Commit;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Why messages are skipped that a shadow was too slow for.
pub(super) const SLOW: &str = "slow";

/// The first message of an input that other code is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Boundary {
    /// The input.
    pub stream: String,
    /// Epoch of that message.
    pub epoch: u32,
    /// Its sequence.
    pub sequence: u64,
}

/// How a worker runs, as its newest commit says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerNow {
    /// The code, as the process that starts its slots wrote it.
    pub code: Value,
    /// With which parameters.
    pub parameters: Value,
    /// From which messages on, where it was cut over: a list of [`Boundary`]; else null.
    pub since: Value,
    /// The worker beside which it runs as a shadow.
    pub shadow: Option<String>,
}

impl WorkerNow {
    /// Of a worker; none for another stream, or before its first commit.
    pub fn newest(data: &Data, stage: &str) -> Result<Option<Self>, Fault> {
        Ok(commit_of(data, stage)?.map(|commit| {
            let state: Value = serde_json::from_str(&commit.state).unwrap_or_default();
            Self {
                code: state["now"]["code"].clone(),
                parameters: state["now"]["parameters"].clone(),
                since: state["since"].clone(),
                shadow: state["shadow"].as_str().map(str::to_owned),
            }
        }))
    }
}

/// The newest commit of a stage that fills a stream.
fn commit_of(data: &Data, stage: &str) -> Result<Option<Commit>, Fault> {
    newest_commit(data, &commits_of(stage), &mut |_| true)
}

/// The positions of a worker, at which its shadow begins.
pub(super) struct Beside(BTreeMap<String, ([u8; 16], u64)>);

impl Beside {
    /// The next message of an input that it has not done.
    pub(super) fn position(&self, stream: &str, uuid: &[u8; 16]) -> Option<u64> {
        self.0.get(stream).filter(|(known, _)| known == uuid).map(|(_, next)| *next)
    }
}

/// The positions of a worker; none if there is no such worker.
pub(super) fn beside(data: &Data, name: Option<&str>) -> Result<Option<Beside>, Fault> {
    let Some(name) = name else { return Ok(None) };
    let inputs = commit_of(data, name)?.map(|commit| commit.inputs).unwrap_or_default();
    Ok(Some(Beside(inputs.into_iter().map(|input| (input.stream, (input.uuid, input.next))).collect())))
}

/// Code as options have it.
pub(super) fn code_of(state: &Value) -> String {
    if state.is_null() { String::new() } else { state.to_string() }
}

impl Work {
    /// From now on no block is cut, or they are again.
    pub fn hold(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// While it is paused it cuts no block; messages that a slot has are done to their end.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// True while no block is cut.
    pub(super) fn rests(&self) -> bool {
        self.holds || self.is_paused
    }

    /// Nothing is under way: all that was cut is shown and committed.
    pub fn is_quiet(&self) -> bool {
        let is_done = |source: &Source| source.ahead.is_empty() && source.cut <= source.account.next;
        self.pieces.is_empty() && self.pending.is_empty() && !self.is_changed && self.sources.iter().all(is_done)
    }

    /// Where no slot lives, nor will: gives the cut messages that are not shown back to the inputs, as if they had not
    /// been cut, even if they are answered behind an unanswered message. The next steps first show all that can be
    /// shown; where something behind such a message is shown or set aside, only a slot can fill that hole.
    pub fn give_back(&mut self) -> Result<(), Fault> {
        let can_show = if self.options.keep_order { 1 } else { usize::MAX };
        let is_answered = |piece: &Piece| piece.answered() > piece.first;
        let is_begun = |piece: &Piece| {
            let stream = &self.sources[piece.input].account.stream;
            let mut asides = self.known_aside.keys().filter(|(of, _)| of == stream);
            let has_aside = asides.any(|(_, sequence)| (piece.first..piece.next).contains(sequence));
            piece.pushed > 0 || piece.set_aside > 0 || has_aside
        };
        let lives = self.places.iter().any(|place| place.ready);
        let pieces = || self.pieces.values();
        if !self.holds || lives || pieces().take(can_show).any(is_answered) || pieces().any(is_begun) {
            return Ok(());
        }
        for piece in std::mem::take(&mut self.pieces).into_values() {
            let cut = &mut self.sources[piece.input].cut;
            *cut = piece.first.min(*cut);
        }
        self.given.clear();
        // What slots answered last may not be safe yet: whoever starts anew must not find it behind the boundary.
        for place in &mut self.places {
            place.reader.reattach().map_err(|e| stream_fault(&place.stream, e))?;
            place.at = place.reader.bounds().count.max(place.at);
            place.answered = place.at;
        }
        Ok(())
    }

    /// From which messages on they run it, where that was changed while it ran: a list of [`Boundary`]; else null.
    pub fn since(&self) -> &Value {
        &self.since
    }

    /// Says of the code that it runs already what was not known before (JSON), with the next commit.
    pub fn set_code(&mut self, code: &str) {
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        if json(&self.options.code) != json(code) {
            self.options.code = code.to_owned();
            self.is_changed = true;
        }
    }

    /// Which code its slots run now.
    pub fn code(&self) -> &str {
        &self.options.code
    }

    /// Other code, other parameters (both JSON) and as many slots, from the messages on that are answered. To be called
    /// where it is held and quiet; it counts once its commit is safe.
    pub fn cut_over(&mut self, code: &str, parameters: &str, slots: u32) -> Result<Vec<Boundary>, Fault> {
        if !self.holds || !self.is_quiet() {
            return Err(Fault::new(format!("cannot cut worker `{}` over", self.stage), "blocks are under way"));
        }
        self.set_slots(slots)?;
        (self.options.code, self.options.parameters) = (code.to_owned(), parameters.to_owned());
        // How long messages take is not known of the new code.
        self.message_ns = 0;
        let boundary = |source: &Source| Boundary {
            stream: source.account.stream.clone(),
            epoch: source.reader.header().epoch_of(source.account.next),
            sequence: source.account.next,
        };
        let from: Vec<Boundary> = self.sources.iter().map(boundary).collect();
        self.since = json!(from);
        self.is_changed = true;
        Ok(from)
    }

    /// Releases what earlier code kept, under a name of its own, of the inputs, the streams `side_inputs` and the slots'
    /// streams.
    pub fn release_earlier(&self, side_inputs: &[String]) -> Result<(), Fault> {
        let inputs = self.sources.iter().map(|source| source.account.stream.as_str());
        let slots = self.places.iter().map(|place| place.stream.as_str());
        inputs
            .chain(side_inputs.iter().map(String::as_str))
            .chain(slots)
            .try_for_each(|stream| self.data.release(stream, &format!("keeps {}", self.stage)))
    }
}
