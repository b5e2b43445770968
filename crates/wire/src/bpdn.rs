//! `bpdn`: an answer: what a slot did, behind what it made (stream `WORKER.slotK`, decision 0008).

use crate::bpgp::{self, Gap};
use crate::bptk::{self, Task};
use crate::flat::{Message, Writer};
use crate::{Array, Error, List};

/// The schema id.
pub const ID: [u8; 4] = *b"bpdn";

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer<'a> {
    /// The task, with what of it was done: `next` may be less than what was asked.
    pub task: Task<'a>,
    /// Sequence in the slot's stream of the first message that it made.
    pub output_first: u64,
    /// How many were made of each message from `task.first` to `task.next`; empty: one of each. 2^32-1: it was filtered,
    /// 2^32-2: it was not there, 2^32-3: it is the message itself. Of the command `time` one number: how many were made
    /// because time has passed; empty: there was no room for them.
    pub outputs: Array<'a, u32>,
    /// Messages, counted from `task.first`, that were set aside: the last output of each is a `bpas`, those before it
    /// are void.
    pub aside: Array<'a, u32>,
    /// Messages that were not there.
    pub gaps: List<'a, Gap<'a>>,
    /// Time in the user's code, ns.
    pub busy: u64,
    /// The user's own statistics, a JSON object; empty where there are none.
    pub state: &'a str,
    /// State that the code keeps from the messages below `task.next` to those behind them, in its own format; empty:
    /// none.
    pub kept: Array<'a, u64>,
    /// Messages below `task.next` that wait for others; with `kept` only.
    pub waits: u64,
    /// Source time of the oldest of them, ns since 1970 UTC.
    pub oldest: i64,
    /// When the input is complete up to this time, something is made of them without another message; 2^63-1: never.
    pub due: i64,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Answer<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let Some(task) = table.table(0, "task")? else { return Err(Error::Missing { field: "task" }) };
    let gaps = table.tables(4, "gaps", bpgp::read_table)?;
    Ok(Answer {
        task: bptk::read_table(task)?,
        output_first: table.number(1, 0, "output_first")?,
        outputs: table.array_or_empty(2, "outputs")?,
        aside: table.array_or_empty(3, "aside")?,
        gaps: gaps.unwrap_or_default().into(),
        busy: table.number(5, 0, "busy")?,
        state: table.text_or_empty(6, "state")?,
        kept: table.array_or_empty(7, "kept")?,
        waits: table.number(8, 0, "waits")?,
        oldest: table.number(9, 0, "oldest")?,
        due: table.number(10, i64::MAX, "due")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Answer<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    // Most code keeps nothing.
    let keeps = if parts.kept.is_empty() { 0 } else { 4 };
    let waiting = if keeps == 0 || parts.waits == 0 { 0 } else { 8 };
    let [task, output_first, outputs, aside, gaps, busy, state, kept, waits, oldest, due] =
        writer.root([4, 8, 4, 4, 4, 8, 4, keeps, waiting, waiting, waiting]);
    writer.put(output_first, parts.output_first);
    writer.put(busy, parts.busy);
    bptk::write_table(&mut writer, task, &parts.task);
    writer.array(outputs, parts.outputs);
    writer.array(aside, parts.aside);
    let slots = writer.list(gaps, parts.gaps.len(), "gaps");
    for (at, gap) in parts.gaps.iter().enumerate() {
        bpgp::write_table(&mut writer, slots + 4 * at, gap);
    }
    writer.text(state, parts.state);
    if keeps > 0 {
        writer.array(kept, parts.kept);
    }
    if waiting > 0 {
        writer.put(waits, parts.waits);
        writer.put(oldest, parts.oldest);
        writer.put(due, parts.due);
    }
    writer.finish()
}
