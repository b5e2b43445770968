//! Requests to stages that have not been answered yet: the mover works on meanwhile.
//!
//! A stage answers between two of its steps, and carries out each request that it has. One that answers too late is
//! reported as pending ([`Passes::Pending`]): it is carried out, and a repeated request says the result.

use super::control::Command;
use super::stage::StageHandle;
use crate::limits::ASK_PATIENCE;
use flow::{Fault, Passes};
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

/// A request to a stage.
pub(super) struct Request {
    /// Its kind and name: "source `pvs`".
    pub(super) stage: String,
    /// The stage, for its trouble.
    pub(super) handle: StageHandle,
    /// Brings the answer.
    pub(super) answered: Receiver<Result<Value, Fault>>,
    /// The key of the answer; none where the answer is the whole.
    pub(super) key: Option<&'static str>,
}

/// Requests under way, each with its command.
#[derive(Default)]
pub(super) struct Asks(Vec<(Command, Request, Instant)>);

impl Asks {
    pub(super) fn push(&mut self, command: Command, request: Request) {
        self.0.push((command, request, Instant::now()));
    }

    /// Takes the commands that are answered now, or are answered too late.
    pub(super) fn answered(&mut self) -> Vec<(Command, Result<Value, Fault>)> {
        let mut answered = Vec::new();
        let mut at = 0;
        while let Some((_, request, since)) = self.0.get(at) {
            match request.result(since.elapsed() > ASK_PATIENCE) {
                Some(answer) => answered.push((self.0.remove(at).0, answer)),
                None => at += 1,
            }
        }
        answered
    }
}

impl Request {
    /// The answer; none while it may still come.
    fn result(&self, is_late: bool) -> Option<Result<Value, Fault>> {
        let stage = &self.stage;
        let cause = |why: &str| self.handle.trouble().map_or_else(|| why.to_owned(), |fault| fault.to_string());
        match self.answered.try_recv() {
            Ok(answer) => Some(answer.map(|answer| self.key.map_or(answer.clone(), |key| json!({key: answer})))),
            Err(TryRecvError::Disconnected) => {
                Some(Err(Fault::new(format!("{stage} has not answered"), cause("it has ended"))))
            }
            Err(TryRecvError::Empty) if is_late => {
                let fault = Fault::new(format!("{stage} has not answered yet"), cause("it is busy"));
                let hint = "the request is pending: repeat it to see the result, nothing is done twice";
                Some(Err(Fault { passes: Passes::Pending, ..fault.hint(hint) }))
            }
            Err(TryRecvError::Empty) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_request_to_a_busy_stage_is_pending_and_not_refused() {
        let (answer, answered) = channel();
        let handle = StageHandle::default();
        let request = Request { stage: "source `pvs`".into(), handle, answered, key: Some("answer") };
        assert_eq!(request.result(false), None);
        let fault = request.result(true).unwrap().unwrap_err();
        assert_eq!((fault.what.as_str(), fault.passes), ("source `pvs` has not answered yet", Passes::Pending));
        assert_eq!(Fault::of_json(&fault.to_json()).passes, Passes::Pending);
        answer.send(Ok(json!({"added": 1}))).unwrap();
        // An answer is reported however late it is.
        assert_eq!(request.result(true).unwrap().unwrap(), json!({"answer": {"added": 1}}));
        drop(answer);
        let fault = request.result(false).unwrap().unwrap_err();
        assert_eq!((fault.cause.as_str(), fault.passes), ("it has ended", Passes::Never));
    }
}
