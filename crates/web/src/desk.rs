//! The threads that read: each takes one request after another from a short queue.

use crate::limits::QUEUE_MAX;
use flow::Fault;
use tokio::sync::{mpsc, oneshot};

/// A request and where its answer goes.
type Job<Q, A> = (Q, oneshot::Sender<A>);

/// A thread with its queue.
pub(crate) struct Desk<Q, A>(mpsc::Sender<Job<Q, A>>);

impl<Q: Send + 'static, A: Send + 'static> Desk<Q, A> {
    /// Starts a thread that answers with `work`. A panic of it ends the process: the program starts another.
    pub(crate) fn open(name: &str, mut work: impl FnMut(Q) -> A + Send + 'static) -> Result<Self, Fault> {
        let (sender, mut jobs) = mpsc::channel::<Job<Q, A>>(QUEUE_MAX);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let guard = Abort;
            while let Some((request, answer)) = jobs.blocking_recv() {
                // Nobody waits any more where the connection was closed.
                if !answer.is_closed() {
                    let _ = answer.send(work(request));
                }
            }
            std::mem::forget(guard);
        });
        thread.map(|_| Self(sender)).map_err(|e| Fault::io(format!("cannot start the thread `{name}`"), &e))
    }

    /// Asks it; `None` where its queue is full.
    pub(crate) async fn ask(&self, request: Q) -> Option<A> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send((request, answer)).ok()?;
        answered.await.ok()
    }
}

struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}
