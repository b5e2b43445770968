//! One stream and one far host on the near side: how far the sink has offered it, how far the far host has it, and the
//! blocks that are made of it.
//!
//! A block is made of the stream itself, by a reader that nobody waits for: the relay's counted reader stands behind
//! what the far host has acknowledged, so what it needs is there. A host that has lost its folder gets what the stream
//! still has.
//!
//! Constraints: no waiting. A payload is copied once, into its block.
//!
//! Failure behaviour: messages that can no longer be read are a hole in the sequences of the blocks, which the mirror
//! enters into its account.

use crate::framing::Position;
use crate::limits::{BATCH_MESSAGES, PAYLOAD_MAX};
use flow::limits::BLOCK_BYTES;
use flow::mirror::add_message;
use flow::{Data, Fault};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{BlockBuilder, BlockHead, ReadOptions, Reader, Stretch, beat};
use tokio::sync::watch;

/// A descriptor that another thread makes readable.
#[derive(Debug)]
pub(crate) struct Wake {
    raise: UnixStream,
    wait: UnixStream,
}

impl Wake {
    pub(crate) fn new() -> std::io::Result<Self> {
        let (raise, wait) = UnixStream::pair()?;
        raise.set_nonblocking(true)?;
        wait.set_nonblocking(true)?;
        Ok(Self { raise, wait })
    }

    /// Makes it readable; one that is full is already.
    pub(crate) fn raise(&self) {
        let _ = (&self.raise).write(&[1]);
    }

    /// Makes it unreadable.
    pub(crate) fn drain(&self) {
        let mut bytes = [0; 64];
        while (&self.wait).read(&mut bytes).is_ok_and(|count| count == bytes.len()) {}
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.wait.as_raw_fd()
    }
}

#[derive(Debug, Default)]
struct State {
    /// One past the newest message that the sink was offered.
    offered: u64,
    /// All messages up to this source time were offered: those below `passed`.
    frontier: Option<i64>,
    passed: u64,
    /// The identity of the stream and its epochs, with the first sequence of each.
    uuid: [u8; 16],
    epochs: Vec<(u32, u64)>,
    /// The position that the far host has sent, and its frontier.
    safe: Option<(Position, i64)>,
    /// Number of the newest connection that reads it, and whether that is open.
    connection: u64,
    is_open: bool,
    /// The sink has ended, or another one is in its place.
    is_ended: bool,
}

/// A stream for a far host.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) stream: String,
    state: Mutex<State>,
    news: watch::Sender<()>,
}

impl Lane {
    pub(crate) fn new(stream: &str) -> Self {
        Self { stream: stream.to_owned(), state: Mutex::default(), news: watch::Sender::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sink was offered the messages below a sequence.
    pub(crate) fn offer(&self, next: u64) {
        self.lock().offered = next;
        self.news.send_replace(());
    }

    /// All messages up to a source time were offered: those below `next`.
    pub(crate) fn reach(&self, frontier: i64, next: u64) {
        {
            let mut state = self.lock();
            (state.frontier, state.passed) = (state.frontier.max(Some(frontier)), state.passed.max(next));
        }
        self.news.send_replace(());
    }

    /// Changes wake its reader.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// The frontier, and one past the messages that it needs.
    pub(crate) fn frontier(&self) -> (Option<i64>, u64) {
        let state = self.lock();
        (state.frontier, state.passed)
    }

    /// A connection of the far host begins to read; its number. That of an earlier one is void.
    pub(crate) fn open(&self, feeder: &Feeder) -> u64 {
        let mut state = self.lock();
        let header = feeder.reader.header();
        (state.uuid, state.epochs) = (header.uuid, header.epochs.clone());
        state.connection += 1;
        state.is_open = true;
        drop(state);
        self.news.send_replace(());
        self.lock().connection
    }

    /// Whether a connection is the newest, or one of a monitor, and the sink still offers the stream.
    pub(crate) fn is_valid(&self, connection: Option<u64>) -> bool {
        let state = self.lock();
        !state.is_ended && connection.is_none_or(|connection| connection == state.connection)
    }

    /// Ends all connections that read it.
    pub(crate) fn end(&self) {
        {
            let mut state = self.lock();
            (state.is_ended, state.is_open) = (true, false);
        }
        self.news.send_replace(());
    }

    /// A connection has ended.
    pub(crate) fn close(&self, connection: u64) {
        let mut state = self.lock();
        state.is_open &= state.connection != connection;
    }

    /// Whether the far host reads.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_open
    }

    /// The far host has all before a position safe, and its mirror has come to a frontier. False where the position is
    /// of another stream, or of messages that this one has no more.
    pub(crate) fn acknowledge(&self, position: Position, frontier: i64) -> bool {
        let mut state = self.lock();
        let epoch = epoch_of(&state.epochs, position.next.saturating_sub(1));
        if position.uuid != state.uuid || position.next > 0 && epoch != position.epoch {
            return false;
        }
        let known = state.safe.filter(|(known, _)| known.uuid == position.uuid && known.epoch == position.epoch);
        let known = known.filter(|(known, _)| known.next > position.next);
        state.safe = Some((known.map_or(position, |(known, _)| known), frontier));
        true
    }

    /// All offered messages below are safe at the far host.
    pub(crate) fn below(&self) -> u64 {
        let state = self.lock();
        state.safe.map_or(0, |(position, _)| position.next.min(state.offered))
    }

    /// Whether the far host has all that was offered, and the frontier.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.lock();
        let Some((position, frontier)) = state.safe else { return state.offered == 0 && state.frontier.is_none() };
        position.next >= state.offered && state.frontier.is_none_or(|own| frontier >= own)
    }
}

/// The epoch of a sequence.
fn epoch_of(epochs: &[(u32, u64)], sequence: u64) -> u32 {
    epochs.iter().rev().find(|epoch| epoch.1 <= sequence).map_or(0, |epoch| epoch.0)
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// At the oldest message.
    Begin,
    /// The same for a host, at the oldest that arrived at this time or later, ns since 1970 UTC.
    Since(i64),
    /// With the next message.
    End,
    /// At a position.
    At(Position),
}

/// Makes blocks of a stream from a position on.
pub(crate) struct Feeder {
    reader: Reader,
    builder: BlockBuilder,
    /// Bytes of the newest block, which the next one has room for at once: one that grows is copied.
    room: usize,
    origins: Vec<String>,
    rows: usize,
    /// The next message.
    at: u64,
    /// One past the newest message that the other side has, and its epoch.
    put: (u32, u64),
    /// The frontier that was sent.
    frontier: Option<i64>,
}

impl Feeder {
    /// Begins where the other side is. `sink`: the name of the sink that offers the stream.
    pub(crate) fn open(data: &Data, stream: &str, sink: &str, from: From) -> Result<Self, Fault> {
        // One batch fills a block: what is read is verified.
        let options = ReadOptions { batch_bytes: BLOCK_BYTES as u64 / 8 * 7, ..ReadOptions::default() };
        let mut reader = data.reader(stream, options)?;
        reader.refresh().map_err(|e| of_stream(stream, e))?;
        let at = match from {
            From::At(position) if position.uuid == reader.header().uuid => begin(&reader.header().epochs, position),
            From::At(_) => 0,
            From::Begin => reader.bounds().first,
            From::Since(time) => oldest(&mut reader, sink, time),
            From::End => reader.end(),
        };
        let epoch = match from {
            From::At(position) => position.epoch,
            _ => epoch_of(&reader.header().epochs, at),
        };
        let put = if at == 0 { (0, 0) } else { (epoch, at) };
        let (origins, builder) = Default::default();
        Ok(Self { reader, builder, room: 0, origins, rows: 0, at, put, frontier: None })
    }

    /// The next block, and whether it is full; none where there is no message. `frontier`: as [`Lane::frontier`].
    pub(crate) fn block(
        &mut self,
        stream: &str,
        frontier: (Option<i64>, u64),
    ) -> Result<Option<(Vec<u8>, bool)>, Fault> {
        let is_full = self.fill().map_err(|e| of_stream(stream, e))?;
        if self.builder.is_empty() {
            return Ok(None);
        }
        let (first, epoch) = (self.builder.first(), self.builder.of().1);
        let previous = self.put.1.min(first);
        let known = self.known(frontier);
        let (head, bytes) = self.builder.end(previous, known.unwrap_or(i64::MIN));
        (self.put, self.frontier) = ((epoch, head.next()), known);
        self.room = bytes.len().min(BLOCK_BYTES);
        Ok(Some((bytes, is_full)))
    }

    /// The frontier that the messages up to here bring.
    fn known(&self, (frontier, passed): (Option<i64>, u64)) -> Option<i64> {
        if self.at >= passed { frontier.max(self.frontier) } else { self.frontier }
    }

    /// Whether the other side lacks the frontier.
    pub(crate) fn has_news(&self, frontier: (Option<i64>, u64)) -> bool {
        self.known(frontier) > self.frontier || self.at != self.put.1
    }

    /// A block without messages: the next message, and the frontier.
    pub(crate) fn beat(&mut self, frontier: (Option<i64>, u64)) -> Vec<u8> {
        self.frontier = self.known(frontier);
        let header = self.reader.header();
        let epoch = epoch_of(&header.epochs, self.at.saturating_sub(1)).max(self.put.0);
        let head = BlockHead {
            uuid: header.uuid,
            epoch,
            count: 0,
            first: self.at,
            previous: self.put.1.min(self.at),
            frontier: self.frontier.unwrap_or(i64::MIN),
        };
        self.put = (epoch, self.at);
        beat(&head)
    }

    /// Fills the block with the next messages. True where there is no room for more.
    fn fill(&mut self) -> store::Result<bool> {
        loop {
            let Self { reader, builder, room, origins, rows, at, .. } = self;
            reader.seek(*at);
            let (uuid, epoch, until) = {
                let header = reader.header();
                let until = header.epochs.iter().find(|epoch| epoch.1 > *at).map_or(u64::MAX, |epoch| epoch.1);
                (header.uuid, epoch_of(&header.epochs, *at), until)
            };
            let batch = match reader.next(BATCH_MESSAGES)? {
                Stretch::Missing(missing) => {
                    if !builder.is_empty() {
                        return Ok(false);
                    }
                    *at = missing.next;
                    continue;
                }
                Stretch::Messages(batch) if batch.is_empty() => {
                    reader.refresh()?;
                    return Ok(false);
                }
                Stretch::Messages(batch) => batch,
            };
            let row = batch.entries.iter().map(|entry| entry.origin as usize).max().unwrap_or(0);
            if row >= *rows {
                *origins = reader.origins()?.to_vec();
                *rows = origins.len().max(row + 1);
                continue;
            }
            for message in batch.iter() {
                let (sequence, origin) = (message.sequence, origins.get(message.entry.origin as usize));
                let origin = origin.map_or("", String::as_str);
                let continues = builder.of() == (uuid, epoch) && builder.next() == sequence;
                let is_large = message.payload.len() > PAYLOAD_MAX;
                let has_room = continues && builder.has_room(message.payload.len(), origin, BLOCK_BYTES);
                if !builder.is_empty() && (is_large || !has_room) {
                    return Ok(true);
                }
                if sequence >= until {
                    break;
                }
                *at = sequence + 1;
                if is_large {
                    continue;
                }
                if builder.is_empty() {
                    builder.begin(uuid, epoch, sequence, Vec::with_capacity(message.payload.len().max(*room)));
                }
                add_message(builder, (uuid, epoch), &message, origin);
            }
            if self.builder.bytes() > BLOCK_BYTES / 2 {
                return Ok(true);
            }
        }
    }
}

/// The first message that a host without a mirror gets: the oldest that arrived at `since`, ns since 1970 UTC, or
/// later, and none behind those that it has not acknowledged as the reader `name` of the stream.
fn oldest(reader: &mut Reader, name: &str, since: i64) -> u64 {
    let (mut low, mut high) = (reader.bounds().first, reader.end());
    while low < high {
        let middle = low + (high - low) / 2;
        let arrival = reader.entries(middle, 1).ok().and_then(|entries| Some(entries.first()?.arrival_time));
        if arrival.is_none_or(|arrival| arrival < since) { low = middle + 1 } else { high = middle }
    }
    let readers = reader.pins().readers();
    let own = readers.iter().find(|reader| reader.name == name).map_or(low, |reader| reader.committed);
    low.min(own)
}

/// The sequence at which a reader begins whose next message is at a position: a later epoch may have used sequences
/// again that it has.
fn begin(epochs: &[(u32, u64)], position: Position) -> u64 {
    let later = epochs.iter().filter(|epoch| epoch.0 > position.epoch).map(|epoch| epoch.1).min();
    later.map_or(position.next, |first| first.min(position.next))
}

fn of_stream(stream: &str, e: store::Error) -> Fault {
    flow::stream_fault(stream, e)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 16] = [1; 16];

    fn at(epoch: u32, next: u64) -> Position {
        Position { uuid: A, epoch, next }
    }

    #[test]
    fn a_reader_begins_where_a_later_epoch_has_used_its_sequences_again() {
        let epochs = [(1, 0), (2, 90), (3, 200)];
        assert_eq!(begin(&epochs, at(1, 50)), 50);
        assert_eq!(begin(&epochs, at(1, 100)), 90);
        assert_eq!(begin(&epochs, at(2, 100)), 100);
        assert_eq!(begin(&epochs, at(2, 250)), 200);
        assert_eq!(begin(&epochs, at(3, 250)), 250);
    }

    #[test]
    fn a_position_of_another_stream_or_of_messages_that_were_cut_acknowledges_nothing() {
        let lane = Lane::new("x");
        {
            let mut state = lane.lock();
            (state.uuid, state.epochs) = (A, vec![(1, 0), (2, 90)]);
        }
        lane.offer(120);
        assert!(lane.acknowledge(at(1, 80), 5) && lane.below() == 80);
        assert!(!lane.acknowledge(at(1, 100), 5) && lane.below() == 80);
        assert!(!lane.acknowledge(Position { uuid: [2; 16], ..at(2, 100) }, 5) && lane.below() == 80);
        assert!(lane.acknowledge(at(2, 100), 5) && lane.below() == 100);
        // A late request, and a far host that is ahead of the sink.
        assert!(lane.acknowledge(at(2, 95), 6) && lane.below() == 100);
        assert!(lane.acknowledge(at(2, 130), 6) && lane.below() == 120);
        assert!(lane.is_done());
        lane.reach(7, 120);
        assert!(!lane.is_done());
        lane.acknowledge(at(2, 130), 7);
        assert!(lane.is_done());
    }
}
