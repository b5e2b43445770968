//! The chain: datagrams of boards into streams, a merge by time, groups, and a reader of their rows; and its parts,
//! each alone.

use super::super::measure::{Sample, timed};
use super::super::place::wrong;
use super::{Load, PATIENCE, PAUSE, STILL, Taker, Up, name};
use flow::edge::WorkerPlace;
use flow::{
    Data, Fault, Merge, MergeBy, MergeInput, MergeOptions, Native, Slot, SlotOptions, Step, Stepped, UpstreamState,
    Work, WorkOptions,
};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use store::{Kind, Options, ReadOptions};
use wire::bpgr;

/// The merge and the worker.
const MERGE: &str = "all";
const GROUPS: &str = "groups";
/// How long a board is waited for, ns.
const WAIT: i64 = 300_000_000;
/// Length of a group.
const WINDOW: &str = "2 us";
/// Shortest interval that is merged together, ns: the default of the instrument file.
const SLICE: i64 = 10_000_000;
/// Shared memory for the order of all messages that the streams hold.
const ORDER_BYTES: u64 = 256 << 20;

/// `beamport up` of the whole chain, and the reader.
pub(super) struct Chain {
    pub(super) up: Up,
    shared: Arc<Shared>,
    reader: Option<JoinHandle<Result<(), Fault>>>,
}

#[derive(Default)]
struct Shared {
    /// Messages of the rows.
    count: AtomicU64,
    stop: AtomicBool,
}

impl Chain {
    pub(super) fn start(program: &Path, load: &Load, ports: usize) -> Result<Self, Fault> {
        let boards: Vec<String> = (0..ports).map(name).collect();
        let stages = format!(
            "\n[merge.{MERGE}]\nkind = \"time\"\ninputs = {boards:?}\nwait = \"{} ms\"\n\n\
             [worker.{GROUPS}]\ncall = \"groups\"\ninputs = [\"{MERGE}\"]\n\n\
             [worker.{GROUPS}.parameters]\nfind = \"window\"\nwindow = \"{WINDOW}\"\n",
            WAIT / 1_000_000,
        );
        let up = Up::start(program, load, ports, &stages)?;
        let shared = Arc::<Shared>::default();
        let (data, with) = (up.data.clone(), shared.clone());
        let reader = std::thread::Builder::new().name("reader".to_owned());
        let reader = reader.spawn(move || read(&data, &with)).map_err(wrong("no thread"))?;
        Ok(Self { up, shared, reader: Some(reader) })
    }

    /// Ends it, once the merge has come to its end: each account must be right. How many messages were lost, and how
    /// many are not in the merged stream.
    pub(super) fn end(&mut self, truth: &[u64]) -> Result<[u64; 2], Fault> {
        let (reader, begin) = (self.up.data.reader_early(MERGE)?, Instant::now());
        let (mut merged, mut since) = (0, begin);
        while since.elapsed() < 2 * STILL && begin.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
            let count = reader.bounds().count;
            if count != merged {
                (merged, since) = (count, Instant::now());
            }
        }
        let lost = self.up.end(truth)?;
        Ok([lost, truth.iter().sum::<u64>().saturating_sub(merged + lost)])
    }
}

/// Counts the messages of the rows.
fn read(data: &Data, shared: &Shared) -> Result<(), Fault> {
    let (mut reader, begin) = (None, Instant::now());
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(reader) = &mut reader else {
            // Counted: the worker waits for it.
            let options = ReadOptions { name: "bench".into(), kind: Kind::Counted, ..ReadOptions::default() };
            match data.reader(GROUPS, options) {
                Err(fault) if begin.elapsed() > PATIENCE => return Err(fault),
                answer => reader = answer.ok(),
            }
            std::thread::sleep(PAUSE);
            continue;
        };
        let batch = reader.read(usize::MAX).map_err(wrong("the rows cannot be read"))?;
        let mut count = 0;
        for message in batch.iter() {
            count += u64::from(bpgr::read(message.payload).map_err(wrong("a row cannot be read"))?.count);
        }
        let (next, is_empty) = (batch.next(), batch.is_empty());
        shared.count.fetch_add(count, Ordering::Relaxed);
        reader.commit(next);
        if is_empty {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

impl Taker for Chain {
    fn ports(&self) -> &[u16] {
        self.up.ports()
    }

    fn count(&mut self) -> Result<u64, Fault> {
        self.up.is_alive()?;
        if self.reader.as_ref().is_some_and(JoinHandle::is_finished) {
            let end = self.reader.take().map(JoinHandle::join);
            return Err(end
                .and_then(Result::ok)
                .and_then(Result::err)
                .unwrap_or_else(|| Fault::new("bench", "no reader")));
        }
        Ok(self.shared.count.load(Ordering::Relaxed))
    }

    fn cpu_seconds(&self) -> Result<f64, Fault> {
        self.up.cpu_seconds()
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

/// Merges the streams of all boards in one thread. `ports`: number of boards.
pub(super) fn merge(data: &Data, ports: usize, bytes: usize) -> Result<Sample, Fault> {
    let inputs: Vec<MergeInput> =
        (0..ports).map(|board| MergeInput { stream: name(board), wait: WAIT, ..MergeInput::default() }).collect();
    let by = MergeBy::Time { slice: SLICE, ahead_max: 600_000_000_000 };
    let mut merge = Merge::open(data, MERGE, &inputs, &MergeOptions { stream: Options::memory(ORDER_BYTES), by })?;
    let ended = vec![UpstreamState { frontier: i64::MAX, ended: true, ..UpstreamState::NOTHING }; ports];
    let begin = Instant::now();
    let work = || {
        while !merge.ended() {
            let (now, clock) = (data.media.now(), begin.elapsed().as_nanos() as i64);
            if let (Step::At(_), false) = (merge.step(now, clock, &ended)?, merge.ended()) {
                std::thread::sleep(PAUSE);
            }
            if let Some(fault) = merge.trouble() {
                return Err(fault);
            }
            if begin.elapsed() > PATIENCE {
                return Err(Fault::new("bench: the merge does not end", format!("in {} s", PATIENCE.as_secs())));
            }
        }
        Ok(())
    };
    let sample = timed(0, 0, work)?;
    let messages = merge.writer().next_sequence();
    Ok(Sample { messages, bytes: messages * bytes as u64, ..sample })
}

/// Finds the groups of what is merged, in one thread.
pub(super) fn groups(data: &Data, bytes: usize) -> Result<Sample, Fault> {
    let inputs = vec![MERGE.to_owned()];
    let parameters = json!({"find": "window", "window": WINDOW});
    let options = WorkOptions { parameters: parameters.to_string(), ..WorkOptions::memory(1, ORDER_BYTES) };
    let mut work = Work::open(data, GROUPS, &inputs, &options)?;
    let from = work.ready(0, 0);
    work.send_parameters(0)?;
    let asked = SlotOptions { number: 0, inputs: inputs.clone(), stream: options.slot_options(), from, by_key: false };
    let mut slot = Slot::open(data, GROUPS, asked)?;
    let place = WorkerPlace { data: data.clone(), stage: GROUPS.to_owned(), slot: 0, inputs };
    let mut native = Native::new(&workers::GROUPS, place, &parameters)?;
    let ended = [UpstreamState { frontier: i64::MAX, ended: true, ..UpstreamState::NOTHING }];
    let messages = data.reader_early(MERGE)?.bounds();
    let (messages, begin) = (messages.count - messages.first, Instant::now());
    let work = || {
        loop {
            work.step(data.media.now(), &ended)?;
            while slot.step(&mut native, &mut |_| false)? == Stepped::Worked {
                work.step(data.media.now(), &ended)?;
            }
            if work.is_idle() {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(Fault::new("bench: the groups do not end", format!("in {} s", PATIENCE.as_secs())));
            }
        }
    };
    let sample = timed(messages * bytes as u64, messages, work)?;
    // A group that is open at the end has no row.
    let rows = data.reader_early(GROUPS)?.bounds().count;
    if rows == 0 {
        return Err(Fault::new("bench: there are no groups", format!("in {messages} messages")));
    }
    Ok(sample)
}
