//! The state that the two ends of a worker on one of its hosts share: the blocks that the host has, and the member of
//! the group whose offsets go with the results.

use super::super::plan::Carrier;
#[cfg(feature = "client")]
use super::Table;
#[cfg(feature = "client")]
use crate::librdkafka::Client;
use flow::edge::SharedWorker;
#[cfg(feature = "client")]
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The two ends of a worker on one of its hosts share this.
pub(crate) struct Ends {
    pub(crate) shared: SharedWorker,
    pub(crate) carrier: Carrier,
    pub(crate) host: String,
    #[cfg(feature = "client")]
    table: Mutex<Table>,
    /// The client of the member, while there is one.
    #[cfg(feature = "client")]
    member: Mutex<Option<Arc<Client>>>,
    /// The member may join the group: the worker is as it is on all other hosts.
    #[cfg(feature = "client")]
    has_begun: AtomicBool,
}

impl std::fmt::Debug for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shared, carrier, host, .. } = self;
        f.debug_struct("Ends")
            .field("shared", shared)
            .field("carrier", carrier)
            .field("host", host)
            .finish_non_exhaustive()
    }
}

impl Ends {
    pub(crate) fn new(shared: SharedWorker, carrier: Carrier, host: &str) -> Self {
        Self {
            shared,
            carrier,
            host: host.to_owned(),
            #[cfg(feature = "client")]
            table: Mutex::default(),
            #[cfg(feature = "client")]
            member: Mutex::default(),
            #[cfg(feature = "client")]
            has_begun: AtomicBool::new(false),
        }
    }
}

#[cfg(feature = "client")]
impl Ends {
    /// The blocks that the host has.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of the member; none while it has none.
    pub(crate) fn member(&self) -> Option<Arc<Client>> {
        self.member.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The member that there is now.
    pub(crate) fn set_member(&self, client: Option<Arc<Client>>) {
        *self.member.lock().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// Lets the member join the group.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Whether the member may join the group.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// The group of the hosts.
    pub(crate) fn group(&self) -> String {
        format!("beamport.{}.{}", self.shared.instrument, self.shared.name)
    }
}
