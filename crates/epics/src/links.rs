//! The clients of a source: one for each protocol that its PVs need.

use crate::entry::Protocol;
use crate::library::{Client, Several, Speaks};
use crate::limits::BATCH_UPDATES;
use crate::section::Plan;
use flow::Fault;
use std::os::fd::RawFd;

/// The clients, and one descriptor for both.
pub(crate) struct Links {
    clients: [Option<Client>; 2],
    /// The client whose updates are taken.
    turn: usize,
    several: Several,
}

fn place(protocol: Protocol) -> Option<usize> {
    match protocol {
        Protocol::Pva => Some(0),
        Protocol::Ca => Some(1),
        Protocol::Fake => None,
    }
}

impl Links {
    pub(crate) fn new(plan: &Plan) -> Result<Self, Fault> {
        let several = Several::new().map_err(|e| Fault::io(format!("source `{}` cannot start", plan.name), &e))?;
        Ok(Self { clients: [None, None], turn: 0, several })
    }

    /// The client of a protocol, opened where it is needed first. Addresses of the section are those of its own kind.
    fn client(&mut self, plan: &Plan, protocol: Protocol) -> Result<Option<&mut Client>, Fault> {
        let Some(at) = place(protocol) else { return Ok(None) };
        if self.clients[at].is_none() {
            let is_own = protocol == plan.protocol;
            let text = |text: &'_ Option<String>| text.clone().filter(|_| is_own);
            let speaks = if at == 0 { Speaks::Pva } else { Speaks::Ca };
            let client = Client::open(speaks, text(&plan.addresses).as_deref(), text(&plan.name_servers).as_deref())?;
            let added = self.several.add(client.descriptor());
            added.map_err(|e| Fault::io(format!("source `{}` cannot wait for updates", plan.name), &e))?;
            self.clients[at] = Some(client);
        }
        Ok(self.clients[at].as_mut())
    }

    /// Subscribes to a PV; the inner error is that of this PV.
    pub(crate) fn add(
        &mut self,
        plan: &Plan,
        protocol: Protocol,
        id: u64,
        pv: &str,
    ) -> Result<Result<(), String>, Fault> {
        let client = self.client(plan, protocol)?;
        Ok(client.map_or(Ok(()), |client| client.add(id, pv, plan.queue, plan.pipeline)))
    }

    pub(crate) fn remove(&mut self, protocol: Protocol, id: u64) {
        if let Some(client) = place(protocol).and_then(|at| self.clients[at].as_mut()) {
            client.remove(id);
        }
    }

    /// A client with an update; polls where none is left.
    pub(crate) fn ready(&mut self) -> Option<&mut Client> {
        for step in 0..2 {
            let at = (self.turn + step) % 2;
            let Some(client) = &mut self.clients[at] else { continue };
            // Of the other one only when this one's batch is done, so that both have their turn.
            if client.front().is_some() || client.poll(BATCH_UPDATES) > 0 {
                self.turn = at;
                return self.clients[at].as_mut();
            }
        }
        None
    }

    /// Lets the other client have its turn, where the batch of this one is done.
    pub(crate) fn pass(&mut self) {
        if self.clients[self.turn].as_ref().is_none_or(|client| client.front().is_none()) {
            self.turn = (self.turn + 1) % 2;
        }
    }

    /// How often servers have reported that they overwrote updates of a PV.
    pub(crate) fn server_squash(&self, protocol: Protocol, id: u64) -> u64 {
        place(protocol).and_then(|at| self.clients[at].as_ref()).map_or(0, |client| client.server_squash(id))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.several.descriptor()
    }
}
