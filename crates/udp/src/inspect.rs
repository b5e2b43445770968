//! What a source would make of recorded datagrams, in words: for someone who describes a header.

use crate::capture::{self, Recorded};
use crate::framing::{Cut, Framing, Number, Read, Stamp};
use crate::limits::{INSPECTED, INSPECTED_BYTES};
use crate::numbers::{Numbers, Sign};
use crate::plan::{FramingPlan, Plan};
use crate::stamped::Stamped;
use flow::Fault;
use flow::edge::Inspected;
use settings::units::{Time, time_text};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

/// The account of one origin.
struct Origin {
    numbers: Numbers,
    messages: u64,
    /// Lowest and highest number, and source time.
    range: Option<(u64, u64)>,
    times: Option<(i64, i64)>,
    signs: BTreeMap<&'static str, u64>,
    schemas: BTreeSet<String>,
}

/// Reads a file as the source would.
struct Inspection<'a> {
    plan: &'a Plan,
    framings: Vec<Box<dyn Framing>>,
    stamped: Vec<Stamped>,
    origins: BTreeMap<String, Origin>,
    text: String,
    datagrams: u64,
    elsewhere: u64,
    shown: u64,
    refused: BTreeMap<&'static str, u64>,
}

/// The messages that the source makes of the datagrams in a file.
pub(crate) fn inspect(plan: &Plan, path: &Path) -> Result<Inspected, Fault> {
    let mut all = Inspection {
        plan,
        framings: plan.ports.iter().map(|port| plan.framing.build(&port.origin)).collect::<Result<_, Fault>>()?,
        stamped: plan.ports.iter().map(|_| Stamped(None)).collect(),
        origins: BTreeMap::new(),
        text: String::new(),
        datagrams: 0,
        elsewhere: 0,
        shown: 0,
        refused: BTreeMap::new(),
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let others = capture::read(path, &mut |recorded| all.see(recorded, now))?;
    Ok(all.end(path, others))
}

impl Inspection<'_> {
    fn see(&mut self, recorded: &Recorded<'_>, now: i64) {
        let place = match recorded.port {
            None => Some(0),
            Some(port) => self.plan.ports.iter().position(|known| known.at.port() == port),
        };
        let Some(at) = place else {
            self.elsewhere += 1;
            return;
        };
        self.datagrams += 1;
        let mut cuts = Vec::new();
        let read = self.framings[at].cut(recorded.bytes, &mut cuts);
        let (is_shown, reason) = match read {
            Read::Refused { reason, .. } => {
                let count = self.refused.entry(reason).or_default();
                *count += 1;
                (*count <= INSPECTED, Some(reason))
            }
            Read::Whole | Read::Next(..) => {
                self.shown += 1;
                (self.shown <= INSPECTED, None)
            }
        };
        if is_shown {
            self.show(recorded, reason, cuts.len());
        }
        for (number, cut) in cuts.iter().enumerate() {
            self.message(at, cut, (number, is_shown), now);
        }
    }

    /// Writes a datagram down, field by field.
    fn show(&mut self, recorded: &Recorded<'_>, reason: Option<&str>, messages: usize) {
        let from = recorded.sender.map_or(String::new(), |sender| format!(" from {sender}"));
        let to = recorded.port.map_or(String::new(), |port| format!(" to port {port}"));
        let made = match reason {
            Some(reason) => format!("refused as `{reason}`"),
            None if messages == 1 => "1 message".to_owned(),
            None => format!("{messages} messages"),
        };
        let bytes = recorded.bytes;
        let _ = writeln!(self.text, "datagram {}{from}{to}, {} bytes: {made}", self.datagrams, bytes.len());
        if let FramingPlan::Table(table) = &self.plan.framing {
            for shown in table.explain(bytes) {
                let value = shown.value.map_or("-".to_owned(), |value| format!("{value} ({value:#x})"));
                let wrong = shown.wrong.map_or(String::new(), |wrong| format!("   << {wrong}"));
                let _ = writeln!(self.text, "  {:<10} {:<24} {value}{wrong}", shown.key, shown.field);
            }
        }
        if reason.is_some() {
            let first: Vec<String> = bytes.iter().take(INSPECTED_BYTES).map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(self.text, "  bytes      {}", first.join(" "));
        }
    }

    /// Follows the numbers and times of an origin.
    fn message(&mut self, at: usize, cut: &Cut, (place, is_shown): (usize, bool), now: i64) {
        let framing = &self.framings[at];
        let name = match cut.numbering {
            0 => self.plan.ports[at].origin.clone(),
            numbering => format!("{}.{}{numbering}", self.plan.ports[at].origin, framing.numbering_word()),
        };
        let origin = self.origins.entry(name.clone()).or_insert_with(|| Origin {
            numbers: Numbers::new(None, 0, self.plan.reorder, framing.counter()),
            messages: 0,
            range: None,
            times: None,
            signs: BTreeMap::new(),
            schemas: BTreeSet::new(),
        });
        let time = match (cut.stamp, self.stamped[at].time_of(cut.stamp, self.plan, now)) {
            // That of a file is not known.
            (Stamp::Arrival, _) => None,
            (_, time) => time.ok().flatten(),
        };
        let number = match cut.number {
            Number::Arrival => None,
            Number::Board { shown, mark } => {
                let number = framing.number(origin.numbers.last(), shown).unwrap_or(shown);
                let word = match origin.numbers.take(number, mark, 0, 0) {
                    Sign::New => None,
                    Sign::Duplicate => Some("duplicate"),
                    Sign::Late => Some("late"),
                    Sign::Doubt => Some("doubtful"),
                    Sign::Restart => {
                        origin.numbers.restart();
                        origin.numbers.take(shown, mark, 0, 0);
                        Some("restart")
                    }
                };
                word.into_iter().for_each(|word| *origin.signs.entry(word).or_default() += 1);
                Some(number)
            }
        };
        origin.messages += 1;
        origin.schemas.insert(cut.schema.as_text());
        if let Some(number) = number {
            let (low, high) = origin.range.unwrap_or((number, number));
            origin.range = Some((low.min(number), high.max(number)));
        }
        if let Some(time) = time {
            let (first, last) = origin.times.unwrap_or((time, time));
            origin.times = Some((first.min(time), last.max(time)));
        }
        if is_shown {
            let number = number.map_or("counted on arrival".to_owned(), |number| number.to_string());
            let time = match (cut.stamp, time) {
                (Stamp::Arrival, _) => "of arrival".to_owned(),
                (_, Some(time)) => time_text(Time(time)),
                (_, None) => "unknown: `tick` or `zero` is missing, or it cannot be stored".to_owned(),
            };
            let _ = writeln!(
                self.text,
                "  message {}: origin {name}, number {number}, time {time}, schema {}, bytes {} to {}",
                place + 1,
                cut.schema.as_text(),
                cut.payload.start,
                cut.payload.end,
            );
        }
    }

    /// The sums.
    fn end(mut self, path: &Path, others: u64) -> Inspected {
        let refused: u64 = self.refused.values().sum();
        let of = |n: u64, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
        let reasons: Vec<String> = self.refused.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        let _ = writeln!(
            self.text,
            "{} datagrams of {} are for source `{}`: {} read, {refused} refused{reasons}{}{}",
            self.datagrams,
            path.display(),
            self.plan.name,
            self.datagrams - refused,
            of(self.elsewhere, "to other ports"),
            of(others, "packets without a whole datagram"),
        );
        let mut is_clean = refused == 0 && self.datagrams > 0;
        for (name, origin) in &mut self.origins {
            let mut lost = Vec::new();
            origin.numbers.find_lost(i64::MAX, true, &mut lost);
            let lost: u64 = lost.iter().map(|lost| lost.numbers.end - lost.numbers.start).sum();
            let numbers =
                origin.range.map_or(String::new(), |(low, high)| format!(", numbers {low} to {high}, {lost} missing"));
            let signs: String = origin.signs.iter().map(|(word, n)| format!(", {n} {word}")).collect();
            let times = origin.times.map_or(String::new(), |(first, last)| {
                format!(", times {} to {}", time_text(Time(first)), time_text(Time(last)))
            });
            let schemas: Vec<&str> = origin.schemas.iter().map(String::as_str).collect();
            let _ = writeln!(
                self.text,
                "origin {name}: {} messages of {}{numbers}{signs}{times}",
                origin.messages,
                schemas.join(", "),
            );
            is_clean &= origin.messages > 0;
        }
        Inspected { text: self.text, messages: self.origins.values().map(|origin| origin.messages).sum(), is_clean }
    }
}
