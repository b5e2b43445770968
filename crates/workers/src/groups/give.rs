//! What goes on of a group: a row, its messages, or a frame.

use super::finder::Found;
use super::rules::Make;
use super::{Grouping, Judged, Rows, SHARE};
use flow::{Data, Fault, Made, Outputs, Stop};
use store::{Batch, Entry, Message, ReadOptions, Reader, SchemaId, flags};
use wire::ad00;

/// Reads messages of groups again that came before the batch at hand.
#[derive(Default)]
pub(super) struct Former {
    reader: Option<Reader>,
}

impl Former {
    /// Shows the message of each of these sequences, which rise: from the batch at hand, or read again. `None`: it cannot
    /// be read.
    fn each(
        &mut self,
        (data, input): (&Data, &str),
        batch: Option<&Batch<'_>>,
        sequences: impl Iterator<Item = u64>,
        show: &mut dyn FnMut(Option<&Message<'_>>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut left = sequences.peekable();
        while let Some(first) = left.next() {
            if let Some(message) = batch.and_then(|batch| batch.get(first)) {
                show(Some(&message))?;
                continue;
            }
            // As many as lie in a row.
            let mut next = first + 1;
            let is_before = |next: u64| batch.is_none_or(|batch| next < batch.first);
            while left.next_if(|&following| following == next && is_before(next)).is_some() {
                next += 1;
            }
            let reader = match &mut self.reader {
                Some(reader) => reader,
                none => {
                    let options = ReadOptions { early: true, ..ReadOptions::default() };
                    none.insert(data.reader(input, options)?)
                }
            };
            let mut at = first;
            while at < next {
                reader.seek(at);
                at = match reader.read((next - at) as usize) {
                    Ok(batch) if !batch.is_empty() => {
                        (at..batch.next()).try_for_each(|sequence| show(batch.get(sequence).as_ref()))?;
                        batch.next()
                    }
                    // It was there when it was shown to the finder.
                    _ => {
                        show(None)?;
                        at + 1
                    }
                };
            }
        }
        Ok(())
    }
}

impl Grouping {
    /// Gives what goes on of the groups that a message of a batch closed, or time that has passed.
    pub(super) fn give(&mut self, batch: Option<&Batch<'_>>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for at in 0..self.found.len() {
            match self.judge(at) {
                Some(judged) if judged.goes_on => match self.rules.make {
                    Make::Rows => self.give_row(at, &judged, out)?,
                    Make::Messages => self.give_messages(at, batch, out)?,
                    Make::Frames(_) => self.give_frame((at, &judged), batch, out)?,
                },
                _ => {}
            }
        }
        Ok(())
    }

    /// Which parts the group at hand has no message of.
    fn find_missing(&mut self) {
        self.missing.clear();
        let parts = self.seen.iter().take(self.rules.parts()).zip(0..);
        self.missing.extend(parts.filter(|(seen, _)| **seen != self.judged).map(|(_, part)| part));
    }

    fn give_row(&mut self, at: usize, judged: &Judged, out: &mut Outputs<'_>) -> Result<(), Stop> {
        self.find_missing();
        let Some((_, places)) = self.found.get(at) else { return Ok(()) };
        self.sequences.clear();
        if !judged.in_a_row {
            self.sequences.extend(places.iter().filter_map(|place| self.rows.sequence(*place)));
        }
        let group = wire::bpgr::Group {
            first: judged.first,
            count: places.len() as u32,
            missing: self.missing.as_slice().into(),
            time: judged.time,
            members: self.sequences.as_slice().into(),
        };
        wire::bpgr::write(&mut self.bytes, &group).map_err(|e| Fault::new("cannot encode a group", e))?;
        let schema = SchemaId(wire::bpgr::ID);
        let made = Made { source_time: judged.time, schema, origin_seq: judged.number, flags: 0 };
        out.push_own(&made, &[&self.bytes])
    }

    /// Gives the messages of a group as they are: from the batch at hand, or read again where they came before it.
    fn give_messages(&mut self, at: usize, batch: Option<&Batch<'_>>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let Some((_, places)) = self.found.get(at) else { return Ok(()) };
        let bytes: u64 = places.iter().filter_map(|at| self.rows.length(*at)).map(u64::from).sum();
        if bytes > out.live_bytes() / SHARE {
            self.said.large += 1;
            return Ok(());
        }
        let mut unreadable = 0;
        let Self { former, data, input, rows, found, .. } = self;
        let given = former.each((data, input), batch, sequences(rows, found, at), &mut |message| {
            let Some(message) = message else {
                unreadable += 1;
                return Ok(());
            };
            let Entry { source_time, schema, origin_seq, flags, .. } = *message.entry;
            out.push(message.entry, &Made { source_time, schema, origin_seq, flags }, &[message.payload])
        });
        self.said.unreadable += unreadable;
        given
    }

    /// Gives the frame of a group: its payloads are copied to their places in stream memory.
    fn give_frame(
        &mut self,
        group: (usize, &Judged),
        batch: Option<&Batch<'_>>,
        out: &mut Outputs<'_>,
    ) -> Result<(), Stop> {
        let Make::Frames(layout) = &self.rules.make else { return Ok(()) };
        if layout.bytes() as u64 > out.live_bytes() / SHARE {
            self.said.large += 1;
            return Ok(());
        }
        self.find_missing();
        // Again, where pieces cannot be read: they are missing then.
        loop {
            let unreadable = self.give_pieces(group, batch, out)?;
            if unreadable.is_empty() {
                return Ok(());
            }
            self.said.unreadable += unreadable.len() as u64;
            if self.rules.complete {
                self.said.incomplete += 1;
                return Ok(());
            }
            self.missing.extend(unreadable);
            self.missing.sort_unstable();
        }
    }

    /// Gives the frame of a group without its missing parts; or else answers those that could not be read.
    fn give_pieces(
        &mut self,
        (at, judged): (usize, &Judged),
        batch: Option<&Batch<'_>>,
        out: &mut Outputs<'_>,
    ) -> Result<Vec<u32>, Stop> {
        let Self { former, data, input, rows, found, missing, rules, head, .. } = self;
        let Make::Frames(layout) = &rules.make else { return Ok(Vec::new()) };
        head.write(out.maker(), judged.number, judged.time, (layout, missing))?;
        let Some([front, pixels, end]) = head.parts() else { return Ok(Vec::new()) };
        let len = front.len() + pixels.len() + end.len();
        let flags = if missing.is_empty() { 0 } else { flags::SUSPECT };
        let made = Made { source_time: judged.time, schema: SchemaId(ad00::ID), origin_seq: judged.number, flags };
        let mut unreadable = Vec::new();
        out.push_own_written(&made, len, |room| {
            let (before, room) = room.split_at_mut(front.len());
            let (room, behind) = room.split_at_mut(pixels.len());
            before.copy_from_slice(front);
            behind.copy_from_slice(end);
            missing.iter().for_each(|part| room[layout.place(*part as usize)].fill(0));
            let mut places = found.get(at).map_or(&[][..], |group| group.1).iter();
            former.each((data, input), batch, sequences(rows, found, at), &mut |message| {
                let part = places.next().and_then(|place| rows.pending().part(*place as usize, rules.pieces));
                let Some(part) = part.filter(|part| missing.binary_search(&(*part as u32)).is_err()) else {
                    return Ok(());
                };
                let place = layout.place(part);
                match message {
                    Some(message) if message.payload.len() == place.len() => {
                        room[place].copy_from_slice(message.payload);
                    }
                    _ => unreadable.push(part as u32),
                }
                Ok(())
            })?;
            Ok(unreadable.is_empty())
        })?;
        Ok(unreadable)
    }
}

/// The sequences of the messages of a group, which rise.
fn sequences(rows: &Rows, found: &Found, at: usize) -> impl Iterator<Item = u64> {
    let places = found.get(at).map_or(&[][..], |group| group.1);
    places.iter().filter_map(|place| rows.sequence(*place))
}
