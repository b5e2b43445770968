//! The clients of a source or a sink: one for each protocol that its PVs need.

use crate::entry::Protocol;
use crate::library::{Client, Several, Speaks};
use crate::limits::{BATCH_UPDATES, CHANGES_A_STEP};
use crate::plan::{Network, Subscription};
use crate::put_value::PutValue;
use crate::value::Failed;
use flow::Fault;
use std::collections::VecDeque;
use std::os::fd::RawFd;

/// Opens a client of a protocol; `None` where PVs of it need none.
pub(crate) fn open(network: &Network, protocol: Protocol) -> Result<Option<Client>, Fault> {
    let speaks = match protocol {
        Protocol::Pva => Speaks::Pva,
        Protocol::Ca => Speaks::Ca,
        Protocol::Fake => return Ok(None),
    };
    let own = |text: &Option<String>| text.clone().filter(|_| protocol == network.protocol);
    Client::open(speaks, own(&network.addresses).as_deref(), own(&network.name_servers).as_deref()).map(Some)
}

/// A change of subscriptions that waits for a step.
enum Change {
    Add { protocol: Protocol, id: u64, pv: String, how: Subscription },
    Remove { protocol: Protocol, id: u64 },
}

/// The clients, and one descriptor for both.
pub(crate) struct Links {
    /// In order: thousands of them are spread over steps, so that updates are taken meanwhile.
    changes: VecDeque<Change>,
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
    pub(crate) fn new() -> Result<Self, Fault> {
        let several = Several::new().map_err(|e| Fault::io("the EPICS clients have no descriptor", &e))?;
        Ok(Self { changes: VecDeque::new(), clients: [None, None], turn: 0, several })
    }

    /// The client of a protocol, opened where it is needed first.
    fn client(&mut self, network: &Network, protocol: Protocol) -> Result<Option<&mut Client>, Fault> {
        let Some(at) = place(protocol) else { return Ok(None) };
        if self.clients[at].is_none() {
            let Some(client) = open(network, protocol)? else { return Ok(None) };
            let added = self.several.add(client.descriptor());
            added.map_err(|e| Fault::io("cannot wait for updates of EPICS", &e))?;
            self.clients[at] = Some(client);
        }
        Ok(self.clients[at].as_mut())
    }

    /// Subscribes to a PV with one of the next calls of [`Self::change`]. A fault where its client cannot be opened.
    pub(crate) fn add_later(
        &mut self,
        network: &Network,
        protocol: Protocol,
        id: u64,
        pv: String,
        how: Subscription,
    ) -> Result<(), Fault> {
        if self.client(network, protocol)?.is_some() {
            self.changes.push_back(Change::Add { protocol, id, pv, how });
        }
        Ok(())
    }

    /// Ends a subscription with one of the next calls of [`Self::change`].
    pub(crate) fn remove_later(&mut self, protocol: Protocol, id: u64) {
        self.changes.push_back(Change::Remove { protocol, id });
    }

    /// Makes the next changes of subscriptions: those that could not be made, with the reason. `None` where no more
    /// wait.
    pub(crate) fn change(&mut self, network: &Network) -> Result<Option<Vec<(u64, String)>>, Fault> {
        let mut refused = Vec::new();
        for _ in 0..CHANGES_A_STEP {
            match self.changes.pop_front() {
                None => break,
                Some(Change::Remove { protocol, id }) => self.remove(protocol, id),
                Some(Change::Add { protocol, id, pv, how }) => {
                    let added = self.add(network, protocol, id, &pv, how)?;
                    refused.extend(added.err().map(|why| (id, why)));
                }
            }
        }
        Ok((!self.changes.is_empty() || !refused.is_empty()).then_some(refused))
    }

    /// Subscribes to a PV, as [`Client::add`] does; the inner error is that of this PV.
    pub(crate) fn add(
        &mut self,
        network: &Network,
        protocol: Protocol,
        id: u64,
        pv: &str,
        how: Subscription,
    ) -> Result<Result<(), String>, Fault> {
        let client = self.client(network, protocol)?;
        Ok(client.map_or(Ok(()), |client| client.add(id, pv, how)))
    }

    /// Begins to write, as [`Client::put_start`] does.
    pub(crate) fn put_start(
        &mut self,
        protocol: Protocol,
        id: u64,
        value: &PutValue,
        tag: i32,
    ) -> Result<(), (Failed, String)> {
        match place(protocol).and_then(|at| self.clients[at].as_mut()) {
            Some(client) => client.put_start(id, value, tag),
            None => Err((Failed::NoServer, "no client of EPICS is open".into())),
        }
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
