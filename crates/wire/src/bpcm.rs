//! `bpcm`: a commit of a stage: what it has read, what it has written, what it knows to be lost.
//!
//! Messages of the streams `STAGE.commits` and `SINK.RUN.commits`. Counts are totals since the stage (or its run) began, so the last
//! commit alone is the account.

use crate::bpgp::{self, Gap};
use crate::flat::{Message, Table, Writer};
use crate::{Array, Error, List};

/// The schema id.
pub const ID: [u8; 4] = *b"bpcm";

/// One commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit<'a> {
    /// Name of the stage.
    pub stage: &'a str,
    /// Run it belongs to; empty where the stage knows no runs.
    pub run: &'a str,
    /// Number of the block, consecutive per stage and run.
    pub block: u64,
    /// When, ns since 1970 UTC.
    pub time: i64,
    /// The inputs, each with its place and account.
    pub inputs: List<'a, CommitInput<'a>>,
    /// Gaps: of a sink all since the work began, of a source those found in this block.
    pub gaps: List<'a, Gap<'a>>,
    /// First sequence of the output of this block.
    pub output_first: u64,
    /// Sequence after the last of the output of this block.
    pub output_next: u64,
    /// What the stage needs to go on, in its own words (for the NeXus sink: rows of each dataset).
    pub state: &'a str,
    /// Whether nothing more will come.
    pub finished: bool,
    /// Accounts of origins over the messages below `output_next`: of those that changed since the totals before, or of
    /// all.
    pub totals: List<'a, Total<'a>>,
    /// Totals may take several commits, one behind the other: which part this one has, from 0.
    pub part: u32,
    /// How many parts there are; 0: this commit has no totals.
    pub parts: u32,
    /// Whether the totals are of all origins.
    pub is_table: bool,
}

/// The account of an origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Total<'a> {
    /// The maker of the messages.
    pub origin: &'a str,
    /// Lowest number that came or is missing.
    pub first: u64,
    /// One past the highest; `first` where there is none.
    pub next: u64,
    /// Source time of the newest message, ns since 1970 UTC.
    pub last_time: i64,
    /// Messages in the stream, those that retention took since counted.
    pub appended: u64,
    /// Numbers that came more than once.
    pub duplicate: u64,
    /// Missing numbers by `lost.WORD` and `skipped.WORD`, messages without a number by `refused.WORD`.
    pub counts: List<'a, Count<'a>>,
    /// Numbers that may still come.
    pub open: List<'a, Open<'a>>,
}

/// Numbers of an origin that are missing for one reason, and that may still come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Open<'a> {
    /// As in [`Count`]; `lost.unexplained` where nothing says why.
    pub reason: &'a str,
    /// Bit 0 of byte 0: number `next - 1` of the origin, bit 1: `next - 2`, and so on.
    pub bits: Array<'a, u8>,
}

/// Place and account of one input of a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct CommitInput<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// Its uuid.
    pub uuid: [u8; 16],
    /// Its epoch.
    pub epoch: u32,
    /// First sequence that was read.
    pub first: u64,
    /// Next sequence to read.
    pub next: u64,
    /// Messages done.
    pub done: u64,
    /// Messages not done, by `kind.reason`: `aside.schema`, `skipped.outside`, `lost.full`...
    pub counts: List<'a, Count<'a>>,
}

/// A named number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count<'a> {
    /// `kind.reason`.
    pub name: &'a str,
    /// How many messages.
    pub value: u64,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Commit<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let inputs = table.tables(4, "inputs", |input| {
        let counts = input.tables(6, "inputs.counts", read_count)?;
        Ok(CommitInput {
            stream: input.text_or_empty(0, "inputs.stream")?,
            uuid: input.uuid(1, "inputs.uuid")?,
            epoch: input.number(2, 0, "inputs.epoch")?,
            first: input.number(3, 0, "inputs.first")?,
            next: input.number(4, 0, "inputs.next")?,
            done: input.number(5, 0, "inputs.done")?,
            counts: counts.unwrap_or_default().into(),
        })
    })?;
    let gaps = table.tables(5, "gaps", bpgp::read_table)?;
    let totals = table.tables(10, "totals", read_total)?;
    Ok(Commit {
        stage: table.text_required(0, "stage")?,
        run: table.text_or_empty(1, "run")?,
        block: table.number(2, 0, "block")?,
        time: table.number(3, 0, "time")?,
        inputs: inputs.unwrap_or_default().into(),
        gaps: gaps.unwrap_or_default().into(),
        output_first: table.number(6, 0, "output_first")?,
        output_next: table.number(7, 0, "output_next")?,
        state: table.text_or_empty(8, "state")?,
        finished: table.flag(9, "finished")?,
        totals: totals.unwrap_or_default().into(),
        part: table.number(11, 0, "part")?,
        parts: table.number(12, 0, "parts")?,
        is_table: table.flag(13, "is_table")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Commit<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [stage, run, block, time, inputs, gaps, output_first, output_next, state, finished, totals, part, count, table] =
        writer.root([4, 4, 8, 8, 4, 4, 8, 8, 4, 1, 4, 4, 4, 1]);
    writer.put(block, parts.block);
    writer.put(time, parts.time);
    writer.put(output_first, parts.output_first);
    writer.put(output_next, parts.output_next);
    writer.put(finished, u8::from(parts.finished));
    writer.put(part, parts.part);
    writer.put(count, parts.parts);
    writer.put(table, u8::from(parts.is_table));
    writer.text(stage, parts.stage);
    writer.text(run, parts.run);
    let slots = writer.list(inputs, parts.inputs.len(), "inputs");
    for (at, input) in parts.inputs.iter().enumerate() {
        write_input(&mut writer, slots + 4 * at, input);
    }
    let slots = writer.list(gaps, parts.gaps.len(), "gaps");
    for (at, gap) in parts.gaps.iter().enumerate() {
        bpgp::write_table(&mut writer, slots + 4 * at, gap);
    }
    writer.text(state, parts.state);
    let slots = writer.list(totals, parts.totals.len(), "totals");
    for (at, total) in parts.totals.iter().enumerate() {
        write_total(&mut writer, slots + 4 * at, total);
    }
    writer.finish()
}

fn read_total<'a>(total: Table<'_, 'a>) -> Result<Total<'a>, Error> {
    let counts = total.tables(6, "totals.counts", read_count)?;
    let open = total.tables(7, "totals.open", |open| {
        let bits = open.array_or_empty(1, "totals.open.bits")?;
        Ok(Open { reason: open.text_or_empty(0, "totals.open.reason")?, bits })
    })?;
    Ok(Total {
        origin: total.text_or_empty(0, "totals.origin")?,
        first: total.number(1, 0, "totals.first")?,
        next: total.number(2, 0, "totals.next")?,
        last_time: total.number(3, 0, "totals.last_time")?,
        appended: total.number(4, 0, "totals.appended")?,
        duplicate: total.number(5, 0, "totals.duplicate")?,
        counts: counts.unwrap_or_default().into(),
        open: open.unwrap_or_default().into(),
    })
}

fn write_total(writer: &mut Writer<'_>, slot: usize, total: &Total<'_>) {
    let [origin, first, next, last_time, appended, duplicate, counts, open] =
        writer.table(slot, [4, 8, 8, 8, 8, 8, 4, 4]);
    writer.put(first, total.first);
    writer.put(next, total.next);
    writer.put(last_time, total.last_time);
    writer.put(appended, total.appended);
    writer.put(duplicate, total.duplicate);
    writer.text(origin, total.origin);
    write_counts(writer, counts, &total.counts);
    let slots = writer.list(open, total.open.len(), "totals.open");
    for (at, open) in total.open.iter().enumerate() {
        let [reason, bits] = writer.table(slots + 4 * at, [4, 4]);
        writer.text(reason, open.reason);
        writer.array(bits, open.bits);
    }
}

fn write_input(writer: &mut Writer<'_>, slot: usize, input: &CommitInput<'_>) {
    let [stream, uuid, epoch, first, next, done, counts] = writer.table(slot, [4, 4, 4, 8, 8, 8, 4]);
    writer.put(epoch, input.epoch);
    writer.put(first, input.first);
    writer.put(next, input.next);
    writer.put(done, input.done);
    writer.text(stream, input.stream);
    writer.array(uuid, Array::from(&input.uuid));
    write_counts(writer, counts, &input.counts);
}

fn read_count<'a>(count: Table<'_, 'a>) -> Result<Count<'a>, Error> {
    Ok(Count { name: count.text_or_empty(0, "counts.name")?, value: count.number(1, 0, "counts.value")? })
}

fn write_counts(writer: &mut Writer<'_>, slot: usize, counts: &List<'_, Count<'_>>) {
    let slots = writer.list(slot, counts.len(), "counts");
    for (at, count) in counts.iter().enumerate() {
        let [name, value] = writer.table(slots + 4 * at, [4, 8]);
        writer.put(value, count.value);
        writer.text(name, count.name);
    }
}
