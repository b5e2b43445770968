//! The results of the code of a slot: messages appended to the slot's stream, and how each message of the input ended.

use super::account::{ASIDE_ROW_MAX, Account, AsideRow, pushed};
use super::input::NOWHERE;
use super::task::{COPY, FILTERED, MORE, SAME, STATE, Task, WAITS};
use crate::aside::Unhandled;
use crate::data::stream_fault;
use crate::limits::OF_WORKER;
use crate::worker::{Ended, Made, Stop, Waiting};
use crate::{Fault, Pushed};
use store::{Batch, Entry, Error, Message, Meta, Reader, SchemaId, Writer};

/// Bytes of a reason's text: a traceback of a deep recursion is of no more use.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// Offers a message to the writer; `None`: it offers none after all.
type Offer<'o> = dyn FnMut(&mut Writer, &Meta) -> Result<Option<Pushed>, Stop> + 'o;

/// Where user code puts what it makes of a message.
pub struct Outputs<'a> {
    pub(super) stage: &'a str,
    /// Origin of what was made of several messages.
    pub(super) maker: &'a str,
    pub(super) writer: &'a mut Writer,
    pub(super) account: &'a mut Account,
    /// None where what the code keeps must not be lost with the slot.
    pub(super) row: Option<&'a mut AsideRow>,
    pub(super) stand: &'a Reader,
    pub(super) tasks: &'a Reader,
    pub(super) task: &'a Task,
    pub(super) source: &'a str,
    pub(super) origins: &'a mut Vec<u32>,
    pub(super) names: &'a [String],
    /// Only messages of this origin hash are this part's.
    pub(super) key: Option<(u32, u32)>,
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) media: &'a dyn store::Media,
    pub(super) wait: &'a mut dyn FnMut(&Writer) -> bool,
    /// First message that is to be done.
    pub(super) from: u64,
    /// Of the slot's stream.
    pub(super) live_bytes: u64,
}

impl Outputs<'_> {
    /// True if a message is for this slot; the others are passed over without a call of `begin`.
    pub fn wants(&self, message: &Message<'_>) -> bool {
        message.sequence >= self.from && self.is_ours(message.entry)
    }

    fn is_ours(&self, entry: &Entry) -> bool {
        self.key.is_none_or(|(part, parts)| {
            let name = self.names.get(entry.origin as usize).map_or("", String::as_str);
            store::crc32c(name.as_bytes()) % parts == part
        })
    }

    /// The first message of the block that the task is of: batches are counted from there, however it was divided.
    pub fn block_first(&self) -> u64 {
        self.task.block.0
    }

    /// User code begins with a message. One store, from which the runner learns which message killed a slot.
    pub fn begin(&mut self, message: &Message<'_>) {
        self.stand.commit(message.sequence);
        if let Some(row) = &mut self.row {
            row.begun = Some(message.sequence);
        }
    }

    /// Messages below have an end: they were of other slots, or done together with one behind them.
    pub(super) fn pass(&mut self, sequence: u64) {
        let account = &mut *self.account;
        if account.next < sequence {
            account.uneven = true;
            account.outputs.resize((sequence - account.first) as usize, 0);
            account.next = sequence;
        }
    }

    /// The pushed messages were made because time has passed, and from no message.
    pub(super) fn end_time(&mut self) {
        self.account.outputs = vec![std::mem::take(&mut self.account.open)];
        self.account.uneven = true;
    }

    /// Name of the worker in the instrument file: the source of its messages. On event builders, each part of the
    /// worker fills a stream of another name.
    #[must_use]
    pub fn maker(&self) -> &str {
        self.maker
    }

    /// Appends a message made of `of`, whose origin it has; with [`OF_WORKER`] as its row, the worker.
    /// `parts` are its payload, one behind the other.
    pub fn push(&mut self, of: &Entry, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        if of.origin == OF_WORKER {
            return self.push_own(made, parts);
        }
        let origin = self.origin(of.origin)?;
        self.append(origin, made, parts)
    }

    /// Appends a message that was made of several: its origin is the worker.
    pub fn push_own(&mut self, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        self.push_of(self.maker, made, parts)
    }

    /// Appends a message of an origin that the code names.
    pub fn push_of(&mut self, origin: &str, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        let origin = self.writer.origin(origin).map_err(|e| Stop::Fault(stream_fault(self.stage, e)))?;
        self.append(origin, made, parts)
    }

    /// As [`Outputs::push_own`]: a message of `len` bytes that `write` puts into stream memory itself, whose content
    /// before is unknown. If `write` returns false, no message is appended; it may be called again after a wait for
    /// room.
    pub fn push_own_written(
        &mut self,
        made: &Made,
        len: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let origin = self.writer.origin(self.maker).map_err(|e| Stop::Fault(stream_fault(self.stage, e)))?;
        let mut is_written = false;
        self.append_by(origin, made, |writer, meta| {
            let answer = match writer.reserve(len) {
                Ok(mut room) => {
                    let (at, bytes) = room.rest();
                    is_written = write(bytes)?;
                    if !is_written {
                        return Ok(None);
                    }
                    room.commit(meta, at..at + len)
                }
                Err(e) => Err(e),
            };
            Ok(Some(pushed(answer, writer)?))
        })?;
        Ok(is_written)
    }

    fn append(&mut self, origin: u32, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        self.account.bytes += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.append_by(origin, made, |writer, meta| Ok(Some(pushed(writer.push(meta, parts), writer)?)))
    }

    /// Calls `offer` until there is room. `None`: it offers no message after all.
    fn append_by(
        &mut self,
        origin: u32,
        made: &Made,
        mut offer: impl FnMut(&mut Writer, &Meta) -> Result<Option<Pushed>, Stop>,
    ) -> Result<(), Stop> {
        let Made { source_time, schema, origin_seq, flags } = *made;
        if schema.0 == wire::bpdn::ID {
            return Err(Fault::new("a worker cannot make messages of schema bpdn", "slots answer with them").into());
        }
        let meta = Meta { source_time, origin, origin_seq, schema, flags };
        if self.account.ends_row {
            self.answer()?;
        }
        if self.offer(&meta, &mut offer)? {
            self.account.open += 1;
        }
        Ok(())
    }

    /// Appends the state of the code behind all messages that have their end, and says so to the runner: the output
    /// does not show it, and [`Outputs::keep`] names its place. Returns that place. Call it where nothing was pushed
    /// since the last message ended. `spent`: the time that saving took, ns, which is not that of messages.
    pub fn push_state(&mut self, bytes: &[u8], spent: i64) -> Result<u64, Stop> {
        self.account.began += spent;
        let origin = self.writer.origin(self.maker).map_err(|e| Stop::Fault(stream_fault(self.stage, e)))?;
        let schema = SchemaId(STATE);
        let meta = Meta { source_time: self.media.now(), origin, origin_seq: self.account.next, schema, flags: 0 };
        let place = self.writer.next_sequence();
        self.offer(&meta, &mut |writer, meta| Ok(Some(pushed(writer.push(meta, &[bytes]), writer)?)))?;
        self.account.ends_row = true;
        Ok(place)
    }

    /// From now on the slot answers where [`Outputs::answer`] is called, and at the end of a task: what the code keeps
    /// goes with each answer.
    pub fn answers_with_state(&mut self) {
        self.account.has_state = true;
    }

    /// Answers for all messages that have their end. Without room for the answer it waits.
    pub fn answer(&mut self) -> Result<(), Stop> {
        while !self.account.answer(self.writer, self.task, self.media, self.bytes, MORE, "")? {
            if !self.wait_for_room() {
                return Err(Stop::Full);
            }
        }
        Ok(())
    }

    /// Bytes that were pushed since the last answer.
    #[must_use]
    pub fn unanswered_bytes(&self) -> u64 {
        self.account.bytes
    }

    /// Calls `offer` until there is room. False: it offers no message after all.
    fn offer(&mut self, meta: &Meta, offer: &mut Offer<'_>) -> Result<bool, Stop> {
        loop {
            let Some(pushed) = offer(self.writer, meta)? else { return Ok(false) };
            match pushed {
                Pushed::Taken => return Ok(true),
                // A reader of the runner must see the new messages, or the view never releases those before them.
                Pushed::Full => {
                    self.writer.publish();
                    if self.account.next > self.account.first && !self.account.has_state {
                        // An answer shows the runner what is done, so that its room can be freed.
                        self.account.answer(self.writer, self.task, self.media, self.bytes, MORE, "")?;
                    }
                    if !self.wait_for_room() {
                        return Err(Stop::Full);
                    }
                }
            }
        }
    }

    fn origin(&mut self, row: u32) -> Result<u32, Stop> {
        let at = row as usize;
        match self.origins.get(at) {
            Some(&known) if known != u32::MAX => Ok(known),
            _ => {
                let name = self.names.get(at).map_or("", String::as_str);
                let known = self.writer.origin(name).map_err(|e| Stop::Fault(stream_fault(self.stage, e)))?;
                if self.origins.len() <= at {
                    self.origins.resize(at + 1, u32::MAX);
                }
                self.origins[at] = known;
                Ok(known)
            }
        }
    }

    /// Discards results pushed since the last message ended, and started messages, which are started again.
    pub fn undo(&mut self) -> Result<(), Stop> {
        if std::mem::take(&mut self.account.open) == 0 {
            return Ok(());
        }
        // Outputs stand in a row behind the last answer: this one ends the row.
        self.answer()
    }

    /// While it waits no time is counted against the user code. False: do not try again.
    fn wait_for_room(&mut self) -> bool {
        self.tasks.commit(self.task.number | WAITS);
        let goes_on = (self.wait)(self.writer);
        self.tasks.commit(self.task.number);
        goes_on
    }

    /// The message has its end: what was pushed since the last that had is what was made of it, and of those between,
    /// which were done together with it or are of other slots.
    pub fn done(&mut self, message: &Message<'_>) {
        if let Some(row) = &mut self.row {
            row.end();
        }
        self.finish(message);
    }

    fn finish(&mut self, message: &Message<'_>) {
        self.pass(message.sequence);
        let account = &mut *self.account;
        account.uneven |= account.open != 1;
        account.outputs.push(account.open);
        account.open = 0;
        account.next += 1;
    }

    /// Ends messages that were done together, in their order, each with the number of its results. The results pushed
    /// since the last message that ended are in the order of these messages.
    pub fn done_each(&mut self, ended: &[(u64, Ended)]) {
        if let Some(row) = &mut self.row {
            row.end();
        }
        for (sequence, end) in ended {
            self.pass(*sequence);
            let made = match end {
                Ended::Made(count) => *count,
                Ended::Same => SAME,
            };
            self.account.uneven |= made != 1;
            self.account.outputs.push(made);
            self.account.next += 1;
        }
        self.account.open = 0;
    }

    /// Whether a message that passes unchanged is to be pushed as a copy, and cannot end as [`Ended::Same`].
    #[must_use]
    pub fn copies(&self) -> bool {
        self.task.arguments == COPY
    }

    /// The message ends, and passes unchanged: the output points to it in the input, and nothing is copied unless
    /// the output is to survive what the input does not. To be called before anything was pushed.
    pub fn same(&mut self, message: &Message<'_>) -> Result<(), Stop> {
        if self.copies() {
            return self.copy(message);
        }
        self.done(message);
        self.end_as(SAME);
        Ok(())
    }

    /// The message ends, and passes as a copy. Call it before any push.
    pub fn copy(&mut self, message: &Message<'_>) -> Result<(), Stop> {
        let Entry { source_time, schema, origin_seq, flags, .. } = *message.entry;
        self.push(message.entry, &Made { source_time, schema, origin_seq, flags }, &[message.payload])?;
        self.done(message);
        Ok(())
    }

    fn end_as(&mut self, what: u32) {
        self.account.uneven = true;
        if let Some(last) = self.account.outputs.last_mut() {
            *last = what;
        }
    }

    /// The message has its end, and nothing is made of it because it is not wanted: it is counted as `filtered`. To be called before
    /// anything was pushed.
    pub fn filtered(&mut self, message: &Message<'_>) {
        self.done(message);
        self.end_as(FILTERED);
    }

    /// The message could not be handled. Its pushed results are discarded; its bytes are set aside with the reason, one
    /// word, and a text for people.
    pub fn aside(&mut self, message: &Message<'_>, reason: &str, text: &str) -> Result<(), Stop> {
        if self.row.as_mut().is_some_and(|row| !row.add()) {
            self.stand.commit(NOWHERE);
            let what = format!("a slot of worker `{}` ends", self.stage);
            let cause =
                format!("{ASIDE_ROW_MAX} messages in a row were set aside, the last as {reason}: {}", cut(text));
            return Err(Fault::new(what, cause).hint("a fresh slot tries the next message").into());
        }
        let entry = message.entry;
        let kind = entry.schema.as_text();
        let unhandled = Unhandled {
            stage: self.stage,
            reason,
            text: cut(text),
            stream: self.source,
            uuid: self.task.uuid,
            epoch: self.task.epoch,
            sequence: message.sequence,
            origin: self.names.get(entry.origin as usize).map_or("", String::as_str),
        };
        let mut bytes = std::mem::take(self.bytes);
        let written = unhandled.encode(&mut bytes, &kind, entry.source_time, message.payload);
        let made = Made::of(entry, wire::bpas::ID);
        let answer = match written {
            Ok(()) => self.origin(entry.origin).and_then(|origin| self.append(origin, &made, &[&bytes])),
            Err(fault) => Err(fault.into()),
        };
        *self.bytes = bytes;
        answer?;
        self.pass(message.sequence);
        self.account.aside.push((message.sequence - self.account.first) as u32);
        self.account.uneven = true;
        self.finish(message);
        Ok(())
    }

    /// Sets these messages aside: the code keeps so much of the stream's memory that they cannot be mapped.
    pub(super) fn refuse(&mut self, batch: &Batch<'_>, cause: Error) -> Result<(), Stop> {
        let what = format!("cannot give a message of `{}` to the code of worker `{}`", self.source, self.stage);
        let hint = format!("keep copies, `m.array.copy()`, or raise `live` of `{}`", self.source);
        let text = Fault::new(what, cause).hint(hint).to_string();
        for message in batch.iter().filter(|message| self.wants(message)).collect::<Vec<_>>() {
            self.begin(&message);
            self.aside(&message, "quota", &text)?;
        }
        Ok(())
    }

    /// Sets the state of the code, numbers of its own, among them the message that it follows: all later answers and
    /// their commits have it ([`crate::kept`]), so that the next slot resumes from it.
    pub fn keep(&mut self, words: &[u64]) {
        self.account.kept.clear();
        self.account.kept.extend_from_slice(words);
    }

    /// Sets which messages wait for others behind the last that has its end: they are in the account of the input as
    /// held, and the output is complete up to the oldest of them only.
    pub fn wait(&mut self, waiting: Waiting) {
        self.account.waiting = waiting;
    }

    /// True if all ended messages are answered.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.account.first == self.account.next
    }

    /// Bytes that the slot's stream has in memory.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The first message that is to be done: all before have their end.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.from
    }

    /// The name of the input.
    #[must_use]
    pub fn input_name(&self) -> &str {
        self.source
    }

    /// Behind the last message that has its end.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.account.next
    }

    /// The uuid of the input.
    #[must_use]
    pub fn input(&self) -> [u8; 16] {
        self.task.uuid
    }

    /// Where in the slot's stream the next message comes to stand, or behind it.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.writer.next_sequence()
    }

    /// Names of the origins of the input, by row.
    pub fn origin_names(&self) -> &[String] {
        self.names
    }
}

/// The beginning of a text that is not too long.
pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
