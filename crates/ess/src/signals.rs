//! What a service gets from the system: its signals, and the time.

use flow::Fault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Time, ms since 1970 UTC.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Signals that the service has received.
#[derive(Default)]
pub(crate) struct Signals {
    end: Arc<AtomicBool>,
    after_job: Arc<AtomicBool>,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Fault> {
        let signals = Self::default();
        let listen = || {
            for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
                // The second one does not wait for an answer of a broker.
                signal_hook::flag::register_conditional_shutdown(signal, 1, signals.end.clone())?;
                signal_hook::flag::register(signal, signals.end.clone())?;
            }
            signal_hook::flag::register(signal_hook::consts::SIGHUP, signals.after_job.clone())
        };
        listen().map_err(|e| Fault::io("cannot catch signals", &e))?;
        Ok(signals)
    }

    /// SIGTERM or Ctrl-C: the service ends, and its job resumes when it starts again.
    pub(crate) fn is_ending(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// The same, or SIGHUP: the service takes no other job.
    pub(crate) fn takes_none(&self) -> bool {
        self.is_ending() || self.after_job.load(Ordering::Relaxed)
    }
}
