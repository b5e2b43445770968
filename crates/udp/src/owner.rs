//! Whose port it is: a source of numbered messages takes those of one sender, because two that count on their own would
//! hide each other's losses.
//!
//! The port is that of the first who sends. Another one may have it when that one has been silent for a while: a board
//! was replaced.

use crate::limits::OWNER_PATIENCE;
use flow::Fault;
use std::fmt;
use std::net::IpAddr;

/// The sender. Not its port: a board may take another one each time that it is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) address: Option<IpAddr>,
    /// The number of the detector in the header; 0 where the framing has none.
    pub(crate) stream: u16,
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => address.fmt(f)?,
            None => f.write_str("an unknown address")?,
        }
        if self.stream > 0 { write!(f, " with stream {}", self.stream) } else { Ok(()) }
    }
}

/// The sender of a port, and another one that sends to it.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    known: Option<(Sender, i64)>,
    stranger: Option<(Sender, i64)>,
}

impl Owner {
    /// Whether the port is that of this sender, at `now`, ns.
    pub(crate) fn accepts(&mut self, sender: Sender, now: i64) -> bool {
        // The clock of the machine may have been set back.
        let is_silent = |since: i64| !(0..OWNER_PATIENCE).contains(&now.saturating_sub(since));
        let is_owner = self.known.is_none_or(|(known, since)| known == sender || is_silent(since));
        *(if is_owner { &mut self.known } else { &mut self.stranger }) = Some((sender, now));
        is_owner
    }

    /// Whether what is damaged may have been a message of the owner.
    pub(crate) fn is_at(&self, address: Option<IpAddr>) -> bool {
        self.known.is_some_and(|(known, _)| known.address == address)
    }

    /// The fault while two send. `title`: the place to which they send.
    pub(crate) fn fault(&self, title: &str, now: i64) -> Option<Fault> {
        let (known, _) = self.known?;
        let (stranger, _) = self.stranger.filter(|(_, at)| now.saturating_sub(*at) < OWNER_PATIENCE)?;
        let hint = match (known.address, stranger.address) {
            (Some(known), other) if other != Some(known) => {
                format!("correct where the other one sends to, or write which is right: `allow = [\"{known}\"]`")
            }
            _ => "correct where one of them sends to".to_owned(),
        };
        let what = format!("{title} has two senders: {known} and {stranger}");
        Some(Fault::new(what, "only what the first one sends is stored").hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(last: u8, stream: u16) -> Sender {
        Sender { address: Some(IpAddr::from([10, 0, 0, last])), stream }
    }

    #[test]
    fn a_port_is_of_one_sender_until_that_is_silent() {
        let mut owner = Owner::default();
        assert!(owner.accepts(sender(1, 0), 0) && owner.fault("d", 0).is_none());
        assert!(!owner.accepts(sender(2, 0), 1) && !owner.accepts(sender(1, 7), 2));
        assert!(owner.accepts(sender(1, 0), 3) && owner.is_at(sender(1, 0).address));
        let fault = owner.fault("d", 4).unwrap();
        assert!(fault.what.contains("10.0.0.1 and 10.0.0.1 with stream 7"), "{fault}");
        assert!(owner.fault("d", 4 + OWNER_PATIENCE).is_none());
        assert!(!owner.accepts(sender(2, 0), 2 + OWNER_PATIENCE));
        assert!(owner.fault("d", 2 + OWNER_PATIENCE).unwrap().hint.contains("10.0.0.1"));
        assert!(owner.accepts(sender(2, 0), 3 + OWNER_PATIENCE));
        // A clock that was set back.
        assert!(owner.accepts(sender(3, 0), 0));
    }
}
