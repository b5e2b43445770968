//! Compares the outputs of two workers for the same messages. Decision 0014.
//!
//! Purpose: whether new code may replace old code. The comparison is derived each time from the two streams and the
//! commits of their workers. Messages with the same origin and number belong together, the n-th with it to the n-th.
//!
//! Constraints: the streams are read once, in step. A message without a counterpart is kept until both workers have
//! passed it, so that memory is bounded by the blocks that they work on. Messages that one has not reached are not
//! judged.
//!
//! Failure behaviour: a message that does not verify is a fault with its name, as for any reader.

mod judge;
mod steps;

use self::judge::{Verdict, judge};
use self::steps::{Position, Steps};
use flow::{Data, Fault, stream_fault};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use store::{ReadOptions, Reader};

/// Differences that are named.
const NAMED: usize = 10;
/// Messages of one stream without a counterpart that are kept at most: 100 B each.
const OPEN_MAX: usize = 1 << 20;
/// Entries looked at in one go.
const ENTRIES: u64 = 1024;

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Comparison {
    /// The one worker.
    pub old: String,
    /// The other.
    pub new: String,
    /// Messages that both made, and alike.
    pub same: u64,
    /// Messages that both made, and not alike.
    pub different: u64,
    /// Messages that only the first made.
    pub only_old: u64,
    /// Messages that only the second made.
    pub only_new: u64,
    /// Messages of the first, made of what the second was too slow for, or of the same block.
    pub skipped: u64,
    /// Messages that are not judged: the other has not come to them.
    pub waiting: u64,
    /// Largest absolute difference of values, where only values differ.
    pub difference_max: Option<f64>,
    /// The first differences.
    pub first: Vec<Difference>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Difference {
    /// Origin of the message that both were given.
    pub origin: String,
    /// Its number.
    pub number: u64,
    /// Its place in the first stream; none: it is not there.
    pub old: Option<u64>,
    /// In the second.
    pub new: Option<u64>,
    /// What differs: `values`, `shape`, `time`; `only`.
    pub what: String,
    /// By how much at most, where only values differ.
    pub by: Option<f64>,
}

impl Comparison {
    /// True if nothing differs, as far as both have come.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.different == 0 && self.only_old == 0 && self.only_new == 0
    }

    fn note(&mut self, difference: Difference) {
        if self.first.len() < NAMED {
            self.first.push(difference);
        }
    }
}

/// What a message is made of: an origin, by its row among those of both streams, and a number.
type Key = (u32, u64);

/// A stream as it is compared.
struct Side {
    name: String,
    reader: Reader,
    /// Next entry to be looked at.
    at: u64,
    /// Rows of its origins among those of both.
    rows: Vec<u32>,
    /// Those without a counterpart so far, by place and by what they are made of.
    open: BTreeMap<u64, Key>,
    of: HashMap<Key, VecDeque<u64>>,
}

impl Side {
    fn open(data: &Data, name: &str) -> Result<Self, Fault> {
        let reader = data.reader(name, ReadOptions::default())?;
        Ok(Self { name: name.to_owned(), reader, at: 0, rows: Vec::new(), open: BTreeMap::new(), of: HashMap::new() })
    }

    /// The next entries below `end`: place and key.
    fn next(&mut self, end: u64, origins: &mut Vec<String>) -> Result<Vec<(u64, Key)>, Fault> {
        let fault = |e| stream_fault(&self.name, e);
        let most = end.saturating_sub(self.at).min(ENTRIES) as usize;
        let entries: Vec<(u64, u32, u64)> = match self.reader.entries(self.at, most) {
            Ok(entries) => (self.at..).zip(entries).map(|(at, entry)| (at, entry.origin, entry.origin_seq)).collect(),
            // Retention was faster.
            Err(store::Error::Gone { first }) => {
                self.at = first;
                return Ok(Vec::new());
            }
            Err(e) => return Err(fault(e)),
        };
        let row = entries.iter().map(|entry| entry.1 as usize + 1).max().unwrap_or(0);
        if row > self.rows.len() {
            let names = self.reader.origins().map_err(fault)?;
            for at in self.rows.len()..row {
                let name = names.get(at).map_or("", String::as_str);
                let known = origins.iter().position(|known| known == name).unwrap_or_else(|| {
                    origins.push(name.to_owned());
                    origins.len() - 1
                });
                self.rows.push(known as u32);
            }
        }
        self.at += entries.len() as u64;
        Ok(entries.into_iter().map(|(at, origin, number)| (at, (self.rows[origin as usize], number))).collect())
    }

    /// Messages that nobody has judged.
    fn left(&self) -> u64 {
        self.open.len() as u64 + self.reader.end().saturating_sub(self.at)
    }

    fn keep(&mut self, at: u64, key: Key) -> Result<(), Fault> {
        if self.open.len() >= OPEN_MAX {
            let cause = format!("more than {OPEN_MAX} messages of `{}` in a row have no counterpart", self.name);
            return Err(Fault::new("cannot compare the streams", cause)
                .hint("inspect them with `beamport cat`, or add `--last 1000` to compare the newest"));
        }
        self.open.insert(at, key);
        self.of.entry(key).or_default().push_back(at);
        Ok(())
    }

    /// Takes the oldest that is made of the same.
    fn take(&mut self, key: Key) -> Option<u64> {
        let queue = self.of.get_mut(&key)?;
        let at = queue.pop_front()?;
        if queue.is_empty() {
            self.of.remove(&key);
        }
        self.open.remove(&at);
        Some(at)
    }

    /// Takes those below `end`: they have no counterpart.
    fn settle(&mut self, end: u64) -> Vec<(u64, Key)> {
        let later = self.open.split_off(&end);
        let settled = std::mem::replace(&mut self.open, later);
        for (at, key) in &settled {
            if let Some(queue) = self.of.get_mut(key) {
                queue.retain(|known| known != at);
                if queue.is_empty() {
                    self.of.remove(key);
                }
            }
        }
        settled.into_iter().collect()
    }
}

/// Compares the outputs of two workers: all that is there of both, or the newest `last` of the first. `goes_on` is asked
/// meanwhile.
pub fn compare(
    data: &Data,
    (old, new): (&str, &str),
    last: Option<u64>,
    goes_on: &dyn Fn() -> bool,
) -> Result<Comparison, Fault> {
    let mut all = Comparison { old: old.to_owned(), new: new.to_owned(), ..Comparison::default() };
    let (steps_old, steps_new) = (Steps::of(data, old)?, Steps::of(data, new)?);
    if let (Some(a), Some(b)) = (steps_old.end(), steps_new.end())
        && !a.meets(b)
    {
        let what = format!("cannot compare `{old}` and `{new}`");
        return Err(Fault::new(what, "no stream is an input of both").hint("`beamport ls` lists the streams"));
    }
    let (mut a, mut b) = (Side::open(data, old)?, Side::open(data, new)?);
    let first = last.map_or(0, |last| a.reader.end().saturating_sub(last)).max(a.reader.bounds().first);
    let (steps_old, steps_new) = (steps_old.from(first), steps_new.from(b.reader.bounds().first));
    (a.at, b.at) = (first, b.reader.bounds().first);
    let Some(Begins { old: at_old, new: at_new, judged, begin }) = Begins::of(&steps_old, &steps_new) else {
        all.waiting = a.left() + b.left();
        return Ok(all);
    };
    (a.at, b.at) = (at_old, at_new);
    let mut origins = Vec::new();
    for (end_new, position) in steps_new.all().filter(|step| step.1.reaches(&begin)) {
        let Some((end_old, _)) = steps_old.first_at(position) else { break };
        while a.at < end_old || b.at < end_new {
            if !goes_on() {
                return Err(Fault::new(format!("`{old}` and `{new}` were not compared"), "interrupted"));
            }
            let before = (a.at, b.at);
            for (at, key) in a.next(end_old, &mut origins)? {
                match b.take(key) {
                    Some(other) => both(&mut all, (&mut a, at), (&mut b, other), (&origins, key))?,
                    None => a.keep(at, key)?,
                }
            }
            for (at, key) in b.next(end_new, &mut origins)? {
                match a.take(key) {
                    Some(other) => both(&mut all, (&mut a, other), (&mut b, at), (&origins, key))?,
                    None => b.keep(at, key)?,
                }
            }
            if (a.at, b.at) == before {
                // A stream ends before its commits say: it is being recreated.
                all.waiting = a.left() + b.left();
                return Ok(all);
            }
        }
        let told = |(row, number): Key, old, new| Difference {
            origin: origins.get(row as usize).cloned().unwrap_or_default(),
            number,
            old,
            new,
            what: "only".to_owned(),
            by: None,
        };
        for (at, key) in b.settle(end_new).into_iter().filter(|(at, _)| *at >= judged) {
            all.only_new += 1;
            all.note(told(key, None, Some(at)));
        }
        for (at, key) in a.settle(steps_old.last_at(position).map_or(0, |step| step.0)) {
            if steps_new.was_slow(steps_old.around(at)) {
                all.skipped += 1;
                continue;
            }
            all.only_old += 1;
            all.note(told(key, Some(at), None));
        }
    }
    all.waiting = a.left() + b.left();
    Ok(all)
}

/// Where the comparison begins.
struct Begins {
    /// In the first stream: all from there on is judged.
    old: u64,
    /// In the second.
    new: u64,
    /// From where on it is judged there.
    judged: u64,
    /// Messages before this position in the inputs are not judged.
    begin: Position,
}

impl Begins {
    /// From where on the outputs of both are there; none where they never are.
    fn of(old: &Steps, new: &Steps) -> Option<Self> {
        let (at_old, begin) = old.first_at(&old.begin()?.max(new.begin()?))?;
        let judged = new.first_at(begin).map_or(u64::MAX, |step| step.0);
        Some(Self { old: at_old, new: new.last_at(begin)?.0, judged, begin: begin.clone() })
    }
}

/// Enters two messages that belong together.
fn both(
    all: &mut Comparison,
    (a, old): (&mut Side, u64),
    (b, new): (&mut Side, u64),
    (origins, (row, number)): (&[String], Key),
) -> Result<(), Fault> {
    let get = |side: &mut Side, at| side.reader.get(at).map_err(|e| stream_fault(&side.name, e));
    let (first, second) = match (get(a, old), get(b, new)) {
        (Ok(Some(first)), Ok(Some(second))) => (first, second),
        (Err(fault), _) | (_, Err(fault)) => return Err(fault),
        _ => return Ok(()),
    };
    let (what, by) = match judge((&a.name, &first.0, &first.1), (&b.name, &second.0, &second.1)) {
        Verdict::Same => {
            all.same += 1;
            return Ok(());
        }
        Verdict::Values(by) => ("values", by),
        Verdict::Differs(what) => (what, None),
    };
    all.different += 1;
    if let Some(by) = by {
        all.difference_max = Some(all.difference_max.map_or(by, |most| most.max(by)));
    }
    let origin = origins.get(row as usize).cloned().unwrap_or_default();
    all.note(Difference { origin, number, old: Some(old), new: Some(new), what: what.to_owned(), by });
    Ok(())
}
