//! `beamport cat FILE`: rows of a NeXus file whose times lie in an interval.
//!
//! A group is a table where it has times: `time`, or `event_time_zero` with `event_index`; alarms and states of a
//! connection are tables of their own beside the values. Its columns are the datasets with a row each. Where there are
//! cues, only what lies between the cues around the interval is read; else the times are, in pieces. Cues of beamport
//! are never further than [`CUE_EVERY_NS`], or the seconds of their attribute, from the rows behind them, in either
//! direction, and rows may be late by as much: so much more is read on both sides, and each row is judged by its own
//! time.
//!
//! Events are printed as their number in each pulse; or one by one on request.
//!
//! A group that is a link to one of a plain file in the same folder is shown as if it stood here: so are the files of a run
//! by several writers. Of any other link to a file one line says that it is not followed.
//!
//! The file may be one that grows: a column has the rows that all columns of its table have. It may be from anywhere:
//! see [`dataset`], and `search` for what is not followed. Unreadable data is a [`Fault`].

mod dataset;

use crate::clock::iso8601;
use crate::hdf::h5::File;
use crate::limits::{
    CUE_EVERY_NS, READ_BYTES, READ_COLUMNS_MAX, READ_CUES_MAX, READ_FILES_MAX, READ_MEMORY_MAX, READ_ROWS,
    READ_TRIES_MAX,
};
use crate::read::search::{Link, groups, links};
use dataset::{Dataset, names};
pub(crate) use dataset::{guarded, know_bitshuffle};
use flow::{Fault, Interruption};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Values of a list that are shown in a line.
const LIST_VALUES: usize = 4;
/// Characters of a text in a line.
const TEXT_CHARS: usize = 80;

/// The rows to print.
#[derive(Clone, Debug, clap::Args)]
pub struct Asked {
    /// NeXus or HDF5 file
    pub file: PathBuf,
    /// First time, ns since 1970
    #[arg(long, default_value_t = i64::MIN, allow_negative_numbers = true)]
    pub from: i64,
    /// End of the times, itself left out
    #[arg(long, default_value_t = i64::MAX, allow_negative_numbers = true)]
    pub to: i64,
    /// A group, with what is in it; once for each [default: all]
    #[arg(long = "path")]
    pub paths: Vec<String>,
    /// Rows at most
    #[arg(long, default_value_t = u64::MAX)]
    pub count: u64,
    /// Each event, not only how many a pulse has
    #[arg(long)]
    pub events: bool,
    /// An object a row, not a line
    #[arg(long)]
    pub json: bool,
}

/// Prints rows to stdout, within a limit of memory. A damaged file may end this process.
pub fn run(asked: &Asked) -> Result<(), Fault> {
    bound_memory();
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let answer = cat(asked, &mut out);
    // Rows printed before a fault are seen before it.
    match out.flush() {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Fault::new("cannot print the answer", e)),
        _ => answer,
    }
}

/// Limits the memory of a process that reads a file from outside, and ends it with its parent.
pub(crate) fn bound_memory() {
    let limit = libc::rlimit { rlim_cur: READ_MEMORY_MAX, rlim_max: READ_MEMORY_MAX };
    // SAFETY: limits of this process.
    unsafe {
        libc::setrlimit(libc::RLIMIT_AS, &raw const limit);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// Prints the rows, group by group.
pub fn cat(asked: &Asked, out: &mut dyn Write) -> Result<(), Fault> {
    let path = &asked.file;
    let mut at = At { left: asked.count, table: 0, row: 0, event: 0, told: false };
    let mut tries = 0;
    loop {
        let (before, place) = (changed(path), (at.table, at.row, at.event));
        let answer = guarded(|| File::open(path, false)).map_err(Interruption::Fault).and_then(|file| {
            let answer = print(&file, path, asked, &mut at, out);
            // Read only: closing writes nothing.
            let _ = guarded(|| file.close());
            answer
        });
        match answer {
            Ok(_) => return Ok(()),
            // The writer went on, and what libhdf5 knows of the file is of before. Times of files are coarse: a second look is
            // due in any case.
            Err(Interruption::Fault(_)) if tries < if changed(path) == before { 1 } else { READ_TRIES_MAX } => {
                tries = if (at.table, at.row, at.event) == place { tries + 1 } else { 0 };
            }
            Err(Interruption::Fault(fault)) => return Err(fault),
            Err(Interruption::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(Interruption::Output(e)) => return Err(Fault::new("cannot print the answer", e)),
        }
    }
}

/// When a file was written last, and its bytes.
fn changed(path: &Path) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// How far it is shown, and how many rows are still wanted.
struct At {
    left: u64,
    table: usize,
    row: u64,
    event: u64,
    /// It was said that a link is not followed.
    told: bool,
}

/// Break: as many rows as were asked for are printed.
type Answer = Result<ControlFlow<()>, Interruption>;

/// A group that may have tables: which of the files has it, where, and how it is shown.
struct TableGroup {
    file: usize,
    group: String,
    shown: String,
}

/// The files of a run by several writers, and their groups as the run's file shows them.
struct Whole {
    /// The file itself, and those beside it to which it leads.
    others: Vec<(String, File)>,
    places: Vec<TableGroup>,
    /// Links that are not followed.
    left: Vec<Link>,
}

impl Whole {
    /// Follows links of the file to groups of plain files beside it, and of these no further. Nothing else is opened: a name
    /// in a file from anywhere may be that of anything.
    fn open(file: &File, path: &Path) -> Result<Self, Fault> {
        let of = |group: String| TableGroup { file: 0, shown: group.clone(), group };
        let mut whole = Self {
            others: Vec::new(),
            places: guarded(|| groups(file))?.into_iter().map(of).collect(),
            left: Vec::new(),
        };
        for link in guarded(|| links(file))? {
            if !whole.follow(&link, path) {
                whole.left.push(link);
            }
        }
        whole.places.sort_by(|one, other| one.shown.cmp(&other.shown));
        Ok(whole)
    }

    /// Whether a link leads to a group that can be shown.
    fn follow(&mut self, link: &Link, path: &Path) -> bool {
        let is_plain = |beside: &Path| std::fs::symlink_metadata(beside).is_ok_and(|found| found.is_file());
        let known = self.others.iter().position(|(name, _)| *name == link.file);
        let at = match known {
            Some(at) => at,
            None => {
                let beside = path.with_file_name(&link.file);
                let is_name = !link.file.contains('/') && beside.file_name().is_some_and(|name| name == &*link.file);
                if !is_name || !is_plain(&beside) || self.others.len() >= READ_FILES_MAX {
                    return false;
                }
                let Ok(other) = guarded(|| File::open(&beside, false)) else { return false };
                self.others.push((link.file.clone(), other));
                self.others.len() - 1
            }
        };
        let Ok(groups) = guarded(|| groups(&self.others[at].1)) else { return false };
        let before = self.places.len();
        for group in groups {
            let Some(rest) = group.strip_prefix(&*link.target).filter(|rest| rest.is_empty() || rest.starts_with('/'))
            else {
                continue;
            };
            self.places.push(TableGroup { file: at + 1, shown: format!("{}{rest}", link.path), group });
        }
        self.places.len() > before
    }
}

fn print(file: &File, path: &Path, asked: &Asked, at: &mut At, out: &mut dyn Write) -> Answer {
    let mut whole = Whole::open(file, path)?;
    let answer = print_whole(file, &whole, path, asked, at, out);
    for (_, other) in whole.others.drain(..) {
        // Read only: closing writes nothing.
        let _ = guarded(|| other.close());
    }
    answer
}

fn print_whole(file: &File, whole: &Whole, path: &Path, asked: &Asked, at: &mut At, out: &mut dyn Write) -> Answer {
    let wanted: Vec<&str> = asked.paths.iter().map(|path| path.trim_matches('/')).collect();
    let is_in = |group: &str, wanted: &str| {
        let rest = group.trim_start_matches('/').strip_prefix(wanted);
        wanted.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_wanted = |shown: &str| wanted.is_empty() || wanted.iter().any(|wanted| is_in(shown, wanted));
    if let Some(nowhere) = wanted.iter().find(|wanted| !whole.places.iter().any(|place| is_in(&place.shown, wanted))) {
        let what = format!("cannot show {} with these options", path.display());
        let nowhere = nowhere.trim_matches('/');
        let link = whole.left.iter().find(|link| is_in(&format!("/{nowhere}"), link.path.trim_start_matches('/')));
        if let Some(link) = link {
            let cause = format!("`{}` leads to `{}`, which is not followed", shown(&link.path), shown(&link.file));
            return Err(Fault::new(what, cause).hint(NOT_FOLLOWED).into());
        }
        let cause = format!("it has no group `/{}`", nowhere.escape_debug());
        let hint = "omit `--path` to list all groups with times";
        return Err(Fault::new(what, cause).hint(hint).into());
    }
    if at.table == 0 && at.row == 0 && !at.told {
        at.told = true;
        if let Some(link) = whole.left.iter().find(|link| is_wanted(&link.path)) {
            let more = whole.left.iter().filter(|link| is_wanted(&link.path)).count() - 1;
            let more = if more > 0 { format!(" (and {more} more links)") } else { String::new() };
            tracing::warn!(
                "`{}` leads to `{}`, which is not followed{more}: {NOT_FOLLOWED}",
                shown(&link.path),
                shown(&link.file)
            );
        }
    }
    let mut number = 0;
    for place in whole.places.iter().filter(|place| is_wanted(&place.shown)) {
        let file = if place.file == 0 { file } else { &whole.others[place.file - 1].1 };
        for mut table in guarded(|| tables(file, &place.group))? {
            table.path.clone_from(&place.shown);
            number += 1;
            if at.table >= number {
                continue;
            }
            let mut printer = Printer { asked, table: &table, at, out };
            if printer.all()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            (at.table, at.row, at.event) = (number, 0, 0);
        }
    }
    if number == 0 {
        let hint = "name a file with NXevent_data, NXlog, or groups with `time`";
        let fault = Fault::new(format!("cannot show {}", path.display()), "no group has known times");
        return Err(fault.hint(hint).into());
    }
    Ok(ControlFlow::Continue(()))
}

/// Which links are.
const NOT_FOLLOWED: &str = "only groups of plain files in the same folder are";

/// A name of a file from anywhere.
fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(TEXT_CHARS).collect();
    if text.len() < name.len() {
        text.push_str("...");
    }
    text.escape_debug().to_string()
}

/// Rows with times.
struct Table {
    /// Path of the group.
    path: String,
    time: Dataset,
    clock: (f64, i64),
    rows: u64,
    /// Where which time begins.
    cues: Option<(Dataset, Dataset, (f64, i64))>,
    /// How far a row may be from its cue, ns.
    around: i64,
    columns: Vec<(String, Dataset)>,
    /// First events of the pulses, and how many events there are.
    events: Option<(Dataset, u64)>,
}

/// The tables of a group.
fn tables(file: &File, group: &str) -> Result<Vec<Table>, Fault> {
    let names = names(file, group)?;
    let inside = |name: &str| if group == "/" { format!("/{name}") } else { format!("{group}/{name}") };
    let has = |name: &str| names.iter().any(|known| known == name);
    let open = |name: &str| -> Result<Option<Dataset>, Fault> {
        // A group of that name is none of ours.
        if has(name) {
            Dataset::open(file, &inside(name)).or_else(|fault| other(file, &inside(name), fault))
        } else {
            Ok(None)
        }
    };
    let mut tables = Vec::new();
    for (time_name, prefix) in TIMES {
        let Some(time) = open(time_name)?.filter(Dataset::is_scalar) else { continue };
        let Some(clock) = time.clock() else { continue };
        let mut table = Table {
            path: group.to_owned(),
            rows: time.rows,
            time,
            clock,
            cues: None,
            around: CUE_EVERY_NS as i64,
            columns: Vec::new(),
            events: None,
        };
        if prefix.is_empty() {
            let cues = (open("cue_index")?, open("cue_timestamp_zero")?);
            table.cues = match cues {
                (Some(index), Some(zero)) if index.is_scalar() && zero.is_scalar() => {
                    table.around = table.around.max(zero.cue_every().unwrap_or(0));
                    zero.clock().map(|clock| (index, zero, clock))
                }
                _ => None,
            };
        }
        if time_name == EVENTS {
            let Some(index) = open("event_index")?.filter(Dataset::is_scalar) else { continue };
            table.rows = table.rows.min(index.rows);
            let mut events = u64::MAX;
            for name in ["event_id", "event_time_offset"] {
                if let Some(column) = open(name)?.filter(Dataset::is_scalar) {
                    events = events.min(column.rows);
                    table.columns.push((name.to_owned(), column));
                }
            }
            if table.columns.is_empty() {
                continue;
            }
            table.events = Some((index, events));
        } else {
            for name in names.iter().filter(|name| is_column(name, time_name, prefix)) {
                // A list whose parts begin where `NAME_index` says has rows of its own.
                if table.columns.len() < READ_COLUMNS_MAX
                    && !has(&format!("{name}_index"))
                    && let Some(column) = open(name)?
                    && table.is_beside(&column)
                {
                    table.rows = table.rows.min(column.rows);
                    table.columns.push((name.clone(), column));
                }
            }
        }
        tables.push(table);
    }
    Ok(tables)
}

const EVENTS: &str = "event_time_zero";
/// Datasets of times, and what the names begin with that belong to them alone.
const TIMES: [(&str, &str); 4] =
    [(EVENTS, ""), ("time", ""), ("alarm_time", "alarm_"), ("connection_status_time", "connection_status")];

fn is_column(name: &str, time: &str, prefix: &str) -> bool {
    let of_another = TIMES.iter().any(|(_, other)| !other.is_empty() && *other != prefix && name.starts_with(other));
    name != time && !name.starts_with("cue_") && !of_another && name.starts_with(prefix)
}

/// Nothing, where a thing is no dataset.
fn other(file: &File, path: &str, fault: Fault) -> Result<Option<Dataset>, Fault> {
    if names(file, path).is_ok() { Ok(None) } else { Err(fault) }
}

impl Table {
    /// Whether a dataset has a row for each time. Datasets of a file that grows may differ by one flush; those whose length
    /// is fixed may not, and one that grows beside times that do not is of something else.
    fn is_beside(&self, column: &Dataset) -> bool {
        column.rows == self.time.rows
            || (self.time.grows
                && column.grows
                && self.time.rows.abs_diff(column.rows) < READ_ROWS as u64
                && column.rows > 0)
    }

    /// Rows that the interval can be in.
    fn spans(&self, from: i64, to: i64) -> Result<Vec<Range<u64>>, Fault> {
        let whole = 0..self.rows;
        let Some((index, zero, clock)) = &self.cues else { return Ok(vec![whole]) };
        let count = index.rows.min(zero.rows);
        if !(1..=READ_CUES_MAX).contains(&count) || (from == i64::MIN && to == i64::MAX) {
            return Ok(vec![whole]);
        }
        let (mut rows, mut times) = (Vec::new(), Vec::new());
        while (rows.len() as u64) < count {
            let (first, count) = (rows.len() as u64, READ_ROWS.min((count - rows.len() as u64) as usize));
            rows.extend(index.places(first, count)?);
            times.extend(zero.times(*clock, first, count)?);
        }
        between(&times, &rows, from, to, self.around)
            .into_iter()
            .map(|span| match &self.events {
                // Cues of events say the event: its pulse is looked for.
                Some((first, _)) => {
                    let begin = self.pulse(first, |event| event < span.start)?;
                    Ok(begin..if span.end == u64::MAX {
                        self.rows
                    } else {
                        self.pulse(first, |event| event <= span.end)?
                    })
                }
                None => Ok(span.start.min(self.rows)..span.end.min(self.rows)),
            })
            .collect()
    }

    /// The first pulse whose first event is no such one.
    fn pulse(&self, first: &Dataset, is_before: impl Fn(u64) -> bool) -> Result<u64, Fault> {
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = low + (high - low) / 2;
            let event = first.places(middle, 1)?.first().copied().unwrap_or_default();
            if is_before(event) { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

/// What lies between cues and can be in the interval: pieces in order that do not touch. The last one has no end. Rows are
/// at most `around` from their cue.
fn between(times: &[i64], rows: &[u64], from: i64, to: i64, around: i64) -> Vec<Range<u64>> {
    let mut spans: Vec<Range<u64>> = Vec::new();
    // Rows before the first cue are older, or as late as other rows.
    let before = (i64::MIN, 0);
    let cues = std::iter::once(before).chain(times.iter().copied().zip(rows.iter().copied()));
    let mut cues = cues.peekable();
    while let Some((time, row)) = cues.next() {
        let (next, end) = cues.peek().copied().unwrap_or((i64::MAX, u64::MAX));
        let is_in = time.saturating_sub(around) < to && time.max(next).saturating_add(around) >= from;
        if !is_in || row >= end {
            continue;
        }
        match spans.last_mut() {
            Some(last) if last.end >= row => last.end = last.end.max(end),
            _ => spans.push(row..end),
        }
    }
    spans
}

/// Prints the rows of a table.
struct Printer<'a> {
    asked: &'a Asked,
    table: &'a Table,
    at: &'a mut At,
    out: &'a mut dyn Write,
}

impl Printer<'_> {
    fn all(&mut self) -> Answer {
        let table = self.table;
        let width: usize = table.columns.iter().map(|(_, column)| column.row_bytes()).sum();
        let most = (READ_BYTES / width.max(1)).clamp(1, READ_ROWS) as u64;
        let mut printed = 0;
        for span in table.spans(self.asked.from, self.asked.to)? {
            // Pieces of cues may overlap where pulses have no events.
            let mut at = span.start.max(printed).max(self.at.row);
            while at < span.end {
                let end = span.end.min(at + most);
                if self.piece(at..end)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                (at, self.at.row) = (end, end);
            }
            printed = printed.max(span.end);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Prints those of some rows that are in the interval.
    fn piece(&mut self, rows: Range<u64>) -> Answer {
        let table = self.table;
        let times = table.time.times(table.clock, rows.start, (rows.end - rows.start) as usize)?;
        let is_in = |time: &i64| {
            (self.asked.from..self.asked.to).contains(time) || (*time == i64::MAX && self.asked.to == i64::MAX)
        };
        let Some(first) = times.iter().position(is_in) else { return Ok(ControlFlow::Continue(())) };
        let last = times.iter().rposition(is_in).unwrap_or(first);
        let count = (last + 1 - first).min(usize::try_from(self.at.left).unwrap_or(usize::MAX).max(1));
        let begin = rows.start + first as u64;
        // As many as are wanted may lie further on, between others that are not.
        let count = if times[first..first + count].iter().all(is_in) { count } else { last + 1 - first };
        let shown = &times[first..first + count];
        if let Some((index, events)) = &table.events {
            return self.pulses(index, *events, begin, shown, &|time| is_in(&time));
        }
        let mut columns = Vec::with_capacity(table.columns.len());
        for (name, column) in &table.columns {
            columns.push((name.as_str(), column.values(begin, count)?.into_iter()));
        }
        for (row, time) in (begin..).zip(shown) {
            let cells: Vec<(&str, Value)> =
                columns.iter_mut().map(|(name, values)| (*name, values.next().unwrap_or_default())).collect();
            if is_in(time) && self.row(row, *time, cells)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.at.row = row + 1;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Prints pulses, with how many events each has, or the events.
    fn pulses(
        &mut self,
        index: &Dataset,
        events: u64,
        begin: u64,
        times: &[i64],
        is_in: &dyn Fn(i64) -> bool,
    ) -> Answer {
        let count = times.len() as u64;
        let mut firsts = index.places(begin, (count + 1).min(self.table.rows - begin) as usize)?;
        firsts.push(events);
        for (pulse, time) in times.iter().enumerate().filter(|(_, time)| is_in(**time)) {
            let first = firsts[pulse].min(events);
            let end = firsts[pulse + 1].clamp(first, events);
            self.at.row = begin + pulse as u64;
            if !self.asked.events {
                if self.row(begin + pulse as u64, *time, vec![("events", json!(end - first))])?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let mut at = first.max(self.at.event);
            while at < end {
                let piece = (end - at).min(READ_ROWS as u64) as usize;
                let mut columns = Vec::new();
                for (name, column) in &self.table.columns {
                    columns.push((name.as_str(), column.values(at, piece)?.into_iter()));
                }
                for row in at..at + piece as u64 {
                    let cells =
                        columns.iter_mut().map(|(name, values)| (*name, values.next().unwrap_or_default())).collect();
                    if self.row(row, *time, cells)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                at += piece as u64;
                self.at.event = at;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn row(&mut self, row: u64, time: i64, cells: Vec<(&str, Value)>) -> Answer {
        if self.at.left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        self.at.left -= 1;
        let (path, moment) = (&self.table.path, iso8601(time));
        if self.asked.json {
            let content: serde_json::Map<String, Value> =
                cells.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            let object = json!({"path": path, "row": row, "source_time": time, "time": moment, "content": content});
            writeln!(self.out, "{object}")?;
        } else {
            let cells: Vec<String> =
                cells.iter().map(|(name, value)| format!("{}={}", name.escape_debug(), brief(value))).collect();
            writeln!(self.out, "{row:>8}  {moment}  {}  {}", path.escape_debug(), cells.join(" "))?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// A value in few characters, none of which can steer a terminal.
fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let cut: String = text.chars().take(TEXT_CHARS).collect();
            format!("\"{}{}\"", cut.escape_debug(), if cut.len() < text.len() { "..." } else { "" })
        }
        Value::Array(values) => {
            let first: Vec<String> = values.iter().take(LIST_VALUES).map(brief).collect();
            let rest = if values.len() > LIST_VALUES { format!(", ...] of {}", values.len()) } else { "]".into() };
            format!("[{}{rest}", first.join(", "))
        }
        Value::Object(array) => {
            let shape: Vec<String> = array["shape"].as_array().into_iter().flatten().map(Value::to_string).collect();
            format!("{}[{}]", array["dtype"].as_str().unwrap_or_default(), shape.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn only_what_lies_between_the_cues_around_is_looked_at() {
        let times: Vec<i64> = (0..10).map(|n| 1000 * S + n * 100 * S).collect();
        let rows: Vec<u64> = (0..10).map(|n| n * 50).collect();
        let said = |spans: Vec<Range<u64>>| spans.into_iter().map(|span| (span.start, span.end)).collect::<Vec<_>>();
        let looked = |from: i64, to: i64| said(between(&times, &rows, from * S, to * S, 10 * S));
        assert_eq!(looked(1320, 1330), [(150, 200)]);
        assert_eq!(looked(1395, 1405), [(150, 250)], "a row may be as much older than the cue before it");
        assert_eq!(looked(1300, 1301), [(100, 200)], "and lie before the next one");
        assert_eq!(looked(0, 100), []);
        assert_eq!(looked(5000, 6000), [(450, u64::MAX)], "nobody says when the last rows are");
        assert_eq!(looked(0, 9999), [(0, u64::MAX)]);
        // A clock that steps back: both pieces, and not what lies between.
        let times = [100 * S, 200 * S, 300 * S, 100 * S, 200 * S];
        assert_eq!(said(between(&times, &[0, 10, 20, 30, 40], 140 * S, 150 * S, 10 * S)), [(0, 10), (30, 40)]);
        // Rows before the first cue.
        assert_eq!(said(between(&[100 * S], &[7], 0, S, 10 * S)), [(0, 7)]);
    }

    #[test]
    fn names_and_texts_of_a_file_cannot_steer_a_terminal() {
        assert_eq!(brief(&json!("\u{1b}[2J\u{9b}")), "\"\\u{1b}[2J\\u{9b}\"");
        assert_eq!(brief(&json!([1, 2, 3, 4, 5])), "[1, 2, 3, 4, ...] of 5");
        assert_eq!(brief(&json!({"dtype": "int32", "shape": [5, 100], "first": [0]})), "int32[5, 100]");
    }
}
