//! Tasks of slots, and the words and numbers that tasks and answers are made of.

use store::Message;

/// Command of an answer behind which more of the same task comes.
pub(crate) const MORE: &str = "more";
/// Command of a task: the slot is to end. Its answer has the last statistics.
pub(crate) const STOP: &str = "stop";
/// Command of a task: the code resets its statistics.
pub(crate) const RESET: &str = "reset";
/// In its position in the tasks: it waits for room.
pub(crate) const WAITS: u64 = 1 << 63;
/// In the place of how many messages were made of one: it was filtered.
pub(crate) const FILTERED: u32 = u32::MAX;
/// The same: it was not there.
pub(crate) const LOST: u32 = u32::MAX - 1;
/// The same: what was made is the message itself.
pub(crate) const SAME: u32 = u32::MAX - 2;
/// In the arguments of a task: the output cannot point into the input.
pub(crate) const COPY: &str = "copy";
/// Schema of the state of code, in the stream of its slot.
pub(crate) const STATE: [u8; 4] = *b"bpst";
/// Command of a task: the input is complete up to a time.
pub(crate) const TIME: &str = "time";

/// A task as it is worked on.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) command: String,
    pub(super) number: u64,
    pub(super) slot: u32,
    pub(super) input: u32,
    pub(super) uuid: [u8; 16],
    pub(super) epoch: u32,
    pub(super) block: (u64, u64),
    pub(super) first: u64,
    pub(super) next: u64,
    pub(super) part: u32,
    pub(super) parts: u32,
    pub(super) arguments: String,
    /// Of the command `time`.
    pub(super) time: Option<i64>,
}

impl Task {
    /// The task in a message of the stream of tasks, if it is for this slot.
    pub(super) fn of(message: &Message<'_>, slot: u32) -> Option<Self> {
        let task = wire::bptk::read(message.payload).ok().filter(|task| task.slot == slot)?;
        Some(Self {
            slot,
            command: task.command.to_owned(),
            number: message.sequence,
            input: task.input,
            uuid: task.uuid,
            epoch: task.epoch,
            block: (task.block_first, task.block_next),
            first: task.first,
            next: task.next,
            part: task.part,
            parts: task.parts,
            arguments: task.arguments.to_owned(),
            time: (task.command == TIME).then(|| task.arguments.parse().unwrap_or(i64::MIN)),
        })
    }
}
