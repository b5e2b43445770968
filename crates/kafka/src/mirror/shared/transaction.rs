//! The thread that returns results: those of some blocks, and the offsets of these blocks, in one transaction.
//!
//! Constraints: a transaction waits for the brokers, so it has a thread; results come to it in the order of the input,
//! and are done in this order.
//!
//! Failure behaviour: results of a partition that has gone to another host are dropped. The brokers refuse the offsets
//! of a host whose session has ended, with all that is in the transaction. A transaction that failed is tried again
//! with what still belongs to this host, for as long as brokers are away.

use super::ends::Ends;
use super::table::Entry;
use super::{Names, Opened};
use crate::client::{merged, owned};
use crate::librdkafka::{Client, Failed, Outgoing, Queue, Spare, Topic, Unsent, Wake, Wrong};
use crate::limits::{
    BULLETIN_ALWAYS, BULLETIN_PATIENCE_MS, OFFSETS_PATIENCE, OFFSETS_PATIENCE_MS, START_PATIENCE_MS, TOPIC_PAUSE,
    TRANSACTION_BLOCKS_MAX, TRANSACTION_BYTES_MAX, TRANSACTION_PATIENCE, TRANSACTION_PAUSE, TRANSACTION_TIMEOUT_MS,
};
use crate::plan::Plan;
use crate::producer::pairs;
use flow::Fault;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The results of a block: keys and values of records.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) entry: Entry,
    pub(crate) records: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Finished {
    pub(crate) fn bytes(&self) -> usize {
        self.records.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

/// The thread, as the sink sees it.
pub(crate) struct Returns {
    to: Option<mpsc::Sender<Finished>>,
    /// The number of blocks that are done, and their bytes, since the last look.
    done: Receiver<usize>,
    trouble: Arc<Mutex<Option<Fault>>>,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Returns {
    /// Starts the thread; its client gets its name with the first transaction.
    pub(crate) fn start(ends: &Arc<Ends>, name: &str) -> Result<Self, Fault> {
        let opened = Opened::new(&ends.carrier, &ends.shared, (name, "sink"), &[])?;
        opened.ensure(Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64))?;
        let cannot = |e: std::io::Error| Fault::io(format!("sink `{name}` cannot start"), &e);
        let wake = Arc::new(Wake::new().map_err(cannot)?);
        let (to, from) = channel();
        let (say, done) = channel();
        let (trouble, stop) = (Arc::default(), Arc::default());
        let worker = Worker {
            ends: ends.clone(),
            reads: opened.reads,
            from,
            say,
            trouble: Arc::clone(&trouble),
            stop: Arc::clone(&stop),
            wake: wake.clone(),
            sender: None,
        };
        let thread = std::thread::Builder::new().name("results".into()).spawn(move || worker.run()).map_err(cannot)?;
        Ok(Self { to: Some(to), done, trouble, wake, stop, thread: Some(thread) })
    }

    /// Hands over the results of a block.
    pub(crate) fn give(&self, finished: Finished) -> Result<(), Fault> {
        let gone = || Fault::new("results cannot be returned", "the thread that does so has ended");
        self.to.as_ref().and_then(|to| to.send(finished).ok()).ok_or_else(gone)
    }

    /// Bytes of each block that is done since the last call, in their order.
    pub(crate) fn done(&self) -> impl Iterator<Item = usize> {
        self.wake.drain();
        self.done.try_iter()
    }

    pub(crate) fn trouble(&self) -> Option<Fault> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Becomes readable when blocks are done.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.wake.descriptor()
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.to = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The client of transactions. Fields are dropped from above: all before the client.
struct Sends {
    topic: Topic,
    errors: Queue,
    client: Arc<Client>,
}

impl Drop for Sends {
    fn drop(&mut self) {
        self.client.give_up();
    }
}

/// A transaction to be done.
struct Job {
    member: Arc<Client>,
    /// The topic of the blocks.
    topic: String,
    blocks: Arc<Vec<Finished>>,
    /// Those of `blocks` that belong to this host.
    here: Vec<usize>,
}

/// The news of a transaction.
enum News {
    /// The brokers are asked to take the offsets.
    Offsets,
    /// They are asked to commit all.
    Commits,
    /// It is done, or it failed for this reason; `true`: the client is of no use any more.
    Ended(Result<(), (Wrong, bool)>),
}

/// A client with a thread of its own: librdkafka may not return from sending offsets after a broker was away
/// (librdkafka issue 5456), whatever its timeout. Then both are left behind, and the next client shuts this one out.
struct Sender {
    jobs: SyncSender<Job>,
    news: Receiver<News>,
}

impl Sender {
    fn start(sends: Sends) -> Result<Self, Fault> {
        let (jobs, to_do) = sync_channel::<Job>(1);
        let (say, news) = channel();
        let run = move || {
            // It ends where nobody listens any more.
            while let Ok(job) = to_do.recv() {
                let answer = sends.transact(&job, &say);
                let is_over = answer.as_ref().is_err_and(|(_, is_over)| *is_over);
                if say.send(News::Ended(answer)).is_err() || is_over {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("transactions".into()).spawn(run);
        thread.map_err(|e| Fault::io("results cannot be returned", &e))?;
        Ok(Self { jobs, news })
    }

    /// Does a transaction; an error says why it was not done, and whether the client is of no use any more.
    fn transact(&self, job: Job) -> Result<(), (Wrong, bool)> {
        let gone = || (Wrong::timed_out(), true);
        self.jobs.send(job).map_err(|_| gone())?;
        let mut patience = TRANSACTION_PATIENCE;
        loop {
            match self.news.recv_timeout(patience) {
                Ok(News::Offsets) => patience = OFFSETS_PATIENCE,
                Ok(News::Commits) => patience = TRANSACTION_PATIENCE,
                Ok(News::Ended(answer)) => return answer,
                Err(_) => return Err(gone()),
            }
        }
    }
}

impl Sends {
    fn transact(&self, job: &Job, say: &mpsc::Sender<News>) -> Result<(), (Wrong, bool)> {
        let answer = self.steps(job, say);
        let said = self.errors.newest_error();
        answer.map_err(|failed| match failed {
            Failed::NeedsAbort(wrong) => {
                let is_over = self.client.abort(BULLETIN_PATIENCE_MS).is_err();
                (said.unwrap_or(wrong), is_over)
            }
            // Another client of the name ends what this one has left open.
            Failed::Unfinished(wrong) => (said.unwrap_or(wrong), true),
            Failed::Fenced(wrong) | Failed::Ended(wrong) => (wrong, true),
        })
    }

    fn steps(&self, job: &Job, say: &mpsc::Sender<News>) -> Result<(), Failed> {
        self.client.begin()?;
        let mut offsets = BTreeMap::<i32, u64>::new();
        for block in job.here.iter().filter_map(|at| job.blocks.get(*at)) {
            let next = block.entry.offset + 1;
            let end = offsets.entry(block.entry.partition).or_insert(next);
            *end = next.max(*end);
            for (key, value) in &block.records {
                let (partition, key) = (Some(block.entry.partition), Some(key.as_slice()));
                let message = Outgoing { partition, key, payload: Some(value), ..Outgoing::default() };
                self.topic.send(&message, &mut Spare::default()).map_err(|unsent| match unsent {
                    Unsent::Full => Failed::NeedsAbort(Wrong::full()),
                    Unsent::Wrong(wrong) => Failed::NeedsAbort(wrong),
                })?;
            }
        }
        let offsets: Vec<_> = offsets.into_iter().map(|(partition, next)| (partition, Some(next))).collect();
        let gone = |_| Failed::Ended(Wrong::timed_out());
        say.send(News::Offsets).map_err(gone)?;
        self.client.send_offsets(&job.member, &job.topic, &offsets, OFFSETS_PATIENCE_MS)?;
        say.send(News::Commits).map_err(gone)?;
        self.client.commit(TRANSACTION_TIMEOUT_MS)
    }
}

struct Worker {
    ends: Arc<Ends>,
    reads: Plan,
    from: Receiver<Finished>,
    say: mpsc::Sender<usize>,
    trouble: Arc<Mutex<Option<Fault>>>,
    stop: Arc<AtomicBool>,
    wake: Arc<Wake>,
    sender: Option<Sender>,
}

impl Worker {
    fn run(mut self) {
        let mut last = Instant::now().checked_sub(TRANSACTION_PAUSE);
        while let Ok(first) = self.from.recv() {
            let mut bytes = first.bytes();
            let mut blocks = vec![first];
            let until = last.map_or_else(Instant::now, |last| last + TRANSACTION_PAUSE);
            while blocks.len() < TRANSACTION_BLOCKS_MAX && bytes < TRANSACTION_BYTES_MAX {
                match self.from.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(more) => {
                        bytes += more.bytes();
                        blocks.push(more);
                    }
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            last = Some(Instant::now());
            if !self.finish(&Arc::new(blocks)) {
                return;
            }
        }
    }

    /// Returns the results of some blocks, however long it takes. False where the sink has ended.
    fn finish(&mut self, blocks: &Arc<Vec<Finished>>) -> bool {
        loop {
            let here: Vec<usize> = {
                let mut table = self.ends.table();
                let here = (0..blocks.len()).filter(|at| table.is_here(&blocks[*at].entry)).collect::<Vec<_>>();
                table.set_under_way(here.iter().map(|at| blocks[*at].entry.partition).collect());
                here
            };
            let answer = if here.is_empty() { Ok(()) } else { self.transact(blocks, &here) };
            let mut table = self.ends.table();
            table.set_under_way(Default::default());
            let Err(failed) = answer else {
                for (at, block) in blocks.iter().enumerate() {
                    table.finish(here.contains(&at));
                    let _ = self.say.send(block.bytes());
                }
                drop(table);
                self.set_trouble(None);
                self.wake.raise();
                return true;
            };
            drop(table);
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            self.set_trouble(Some(failed));
            std::thread::sleep(TOPIC_PAUSE);
        }
    }

    fn set_trouble(&self, fault: Option<Fault>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn transact(&mut self, blocks: &Arc<Vec<Finished>>, here: &[usize]) -> Result<(), Fault> {
        let Some(member) = self.ends.member() else {
            return Err(Fault::new("results cannot be returned now", "this host is no member of the group"));
        };
        let sender = match self.sender.take() {
            Some(sender) => sender,
            None => Sender::start(self.claim()?)?,
        };
        let topic = Names::of(&self.ends.shared).blocks;
        let answer = sender.transact(Job { member, topic, blocks: blocks.clone(), here: here.to_vec() });
        match answer {
            Ok(()) | Err((_, false)) => self.sender = Some(sender),
            Err((_, true)) => {}
        }
        answer.map_err(|(wrong, _)| self.reads.side().away(&wrong))
    }

    /// A client that has the name of this host: one that had it before is shut out.
    fn claim(&self) -> Result<Sends, Fault> {
        let (shared, timeout) = (&self.ends.shared, TRANSACTION_TIMEOUT_MS.to_string());
        let name = format!("beamport.{}.{}.{}", shared.instrument, self.ends.host, shared.name);
        let ours = [
            ("transactional.id", name.as_str()),
            ("transaction.timeout.ms", &timeout),
            ("message.timeout.ms", "9000"),
            ("linger.ms", "0"),
        ];
        let all = pairs(self.reads.brokers.as_str(), self.reads.side().pairs()?);
        let all = merged(all.into_iter().chain(owned(&BULLETIN_ALWAYS)).chain(owned(&ours)));
        let client = Client::transacts(&all).map_err(|(name, text)| self.reads.side().refused(&name, text))?;
        let errors = Queue::main(&client);
        let topic = Topic::new(&client, &Names::of(shared).results).map_err(|wrong| self.reads.side().away(&wrong))?;
        let sends = Sends { topic, errors, client };
        match sends.client.claim_name(BULLETIN_PATIENCE_MS) {
            Ok(()) => Ok(sends),
            Err(
                Failed::Unfinished(wrong) | Failed::NeedsAbort(wrong) | Failed::Fenced(wrong) | Failed::Ended(wrong),
            ) => {
                let wrong = sends.errors.newest_error().unwrap_or(wrong);
                Err(self.reads.side().away(&wrong))
            }
        }
    }
}
