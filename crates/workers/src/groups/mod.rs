//! `groups`: messages that belong together become groups, normally of a merge by time. Decision 0013.
//!
//! ```toml
//! call = "groups"
//! inputs = ["all"]
//! parameters = { find = "gap", gap = "1 us", multiplicity = 3, members = ["d{001..120}"] }
//! ```
//! `find = "mine.py:pairs"` names a finder of the user, which receives `arguments` and runs in a slot of Python.
//!
//! A [`Finder`] says which messages belong together; what it finds is judged here (multiplicity, prescale, what is
//! missing) and becomes a row (`bpgr`), the messages themselves (`make = "messages"`), or a frame of their payloads
//! (`frames.rs`).
//!
//! Constraints: a group is made of the message that closed it, or where none comes, when the input is complete up to
//! a time ([`Finder::pass_time`]): the groups follow from the messages of the input and nothing else. For rows no
//! payload is looked at. Nothing is allocated for a message, but where rows grow.
//!
//! **State**: the messages of groups that are not closed are read from the input again (`again.rs`); the number of
//! earlier groups, and the state of the finder, are words in each answer and commit (`Outputs::keep`). No message may
//! be left out of that, so a message at which slots die is retried ([`Needs::whole`]).
//!
//! Failure behaviour: a group that would not fit into the slot's stream is not given, and counted as `large`. More pending
//! messages than `pending` are closed as they are, and counted as `cut`; so are those that keep too much of an input in
//! memory (`held.rs`), counted as `full`.

mod finder;
mod frames;
mod give;
mod held;
mod peak;
mod rules;
#[cfg(test)]
mod tests;
mod trigger;
mod windows;

pub use finder::{Finder, Found, Pending};
use held::Held;
use rules::{Make, Rules};

use crate::limits::KIND_BITS;

use super::again::{self, Again};
use super::said;
use super::span::Span;
use flow::edge::{Needs, Sends, WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Data, Fault, Outputs, Stop, Worker, device_of, misfit};
use serde_json::{Map, Value};
use settings::{Key, Refused, Section, Setting, key, shortened};
use std::sync::Arc;
use store::{Batch, Check, Entry, Message, flags};

/// Beyond this number of released rows, the pending rows are moved to the beginning.
const GONE: usize = 4096;
/// Of a slot's stream, what one group may take of it: others are on their way.
const SHARE: u64 = 4;
/// No member: the origin is none of those that belong.
const STRANGE: u32 = u32::MAX;

static FIND: Key = key(
    "find",
    "`gap`, `window`, `grid`, `peak`, `trigger` or `FILE.py:NAME`",
    "gap",
    "How groups are found: the table below.",
);
static GAP: Key = key("gap", "time", "", "Of `gap`, required: longest pause within a group.");
static LONGEST: Key = key("longest", "time", "", "Of `gap`: longest duration of a group. Default: any.");
static WINDOW: Key = key("window", "time", "", "Of `window`, `grid` and `peak`, required: length of a group.");
static WRAP: Key =
    key("wrap", "number, 2 or more", "", "Of `trigger`: numbers restart from 0 at this value. Default: never.");
static PIECES: Key = key(
    "pieces",
    "number, 1 to 65536",
    "1",
    "Of `trigger`: how many messages each member has in a group. Their numbers count pieces, as those of `packets` of \
     a [framing](udp.md): number / `pieces` is that of the group, and the rest is the piece.",
);
static OPEN: Key = key("open", "number, 1 to 65536", "1024", "Of `trigger`: most groups that wait for members.");
static WAIT: Key = key("wait", "time", "1 s", "Of `trigger`: how long a group waits for members.");
static SAME: Key = key(
    "same",
    "`tag`",
    "",
    "Of `trigger`: what messages of a group have in common beside the number: the tag, bits 8 to 15 of their flags. \
     Others belong to no group and are counted as `tag`. Default: nothing.",
);
static ARGUMENTS: Key = key("arguments", "table", "{}", "Keyword arguments of your own finder.");

/// `groups`
pub static GROUPS: WorkerKind = WorkerKind {
    name: "groups",
    about: "Groups messages that belong together: coincidences of detectors, fragments of a trigger, messages within a time window.",
    keys: &[
        &FIND,
        &ARGUMENTS,
        &GAP,
        &LONGEST,
        &WINDOW,
        &WRAP,
        &PIECES,
        &OPEN,
        &WAIT,
        &SAME,
        &rules::MEMBERS,
        &rules::MULTIPLICITY,
        &rules::COMPLETE,
        &rules::PRESCALE,
        &rules::MAKE,
        &frames::SHAPE,
        &frames::DTYPE,
        &rules::PENDING,
    ],
    read: |section| Some(Arc::new(Plan::read(section)?)),
    notes: include_str!("../../pages/groups.md"),
};

/// How groups are found.
#[derive(Clone, Debug, PartialEq)]
enum Find {
    Gap {
        gap: i64,
        longest: i64,
    },
    Window {
        window: i64,
        on_grid: bool,
    },
    Peak {
        window: i64,
    },
    Trigger {
        wrap: u64,
        pieces: u64,
        open: usize,
        wait: i64,
        same_tag: bool,
    },
    /// Code of the user.
    User {
        call: String,
    },
}

impl Find {
    /// The words, and the parameters that belong to each.
    const WORDS: [(&'static str, &'static [&'static Key]); 5] = [
        ("gap", &[&GAP, &LONGEST]),
        ("window", &[&WINDOW]),
        ("grid", &[&WINDOW]),
        ("peak", &[&WINDOW]),
        ("trigger", &[&WRAP, &PIECES, &OPEN, &WAIT, &SAME]),
    ];

    /// The parameters of all of them.
    const KEYS: [&'static Key; 9] = [&ARGUMENTS, &GAP, &LONGEST, &WINDOW, &WRAP, &PIECES, &OPEN, &WAIT, &SAME];

    fn read(section: &mut Section<'_>) -> Option<Self> {
        let find: Option<Setting<String>> = section.get(&FIND);
        let find = find.map(|find| find.value).unwrap_or_default();
        let known = Self::WORDS.iter().find(|(word, _)| *word == find);
        let own: &[&Key] = match known {
            Some((_, keys)) => keys,
            None if find.contains(':') => &[&ARGUMENTS],
            None => {
                // Whatever was meant.
                section.allow(Self::KEYS.map(|key| key.name));
                if !find.is_empty() {
                    let words = Self::WORDS.iter().map(|(word, _)| *word);
                    section.refuse(&FIND, settings::unknown_word(&find, words));
                }
                return None;
            }
        };
        for key in Self::KEYS {
            if section.has(key) && !own.contains(&key) {
                let cause = format!("`find = \"{}\"` does not take it", shortened(&find));
                section.refuse(key, Refused::new(cause, "remove it, or write another `find`"));
            }
        }
        Some(match find.as_str() {
            "gap" => {
                let gap = length(section, &GAP);
                let longest = if section.has(&LONGEST) { length(section, &LONGEST) } else { None };
                Self::Gap { gap: gap?, longest: longest.unwrap_or(i64::MAX) }
            }
            "peak" => Self::Peak { window: length(section, &WINDOW)? },
            "trigger" => {
                let wrap = section.within(&WRAP, 2..=1 << 62).map_or(0, |wrap| wrap.value as u64);
                let pieces = section.within(&PIECES, 1..=65_536).map_or(1, |pieces| pieces.value as u64);
                if !wrap.is_multiple_of(pieces) {
                    let cause = format!("{wrap} is not a multiple of `pieces`, {pieces}");
                    section.refuse(&WRAP, Refused::new(cause, "write at which number of pieces they restart"));
                }
                let open = section.within(&OPEN, 1..=65_536).map(|open| open.value as usize);
                let wait = length(section, &WAIT);
                let same = section.word(&SAME, &[("tag", ())]);
                Self::Trigger { wrap, pieces, open: open?, wait: wait?, same_tag: same.is_some() }
            }
            "window" | "grid" => Self::Window { window: length(section, &WINDOW)?, on_grid: find == "grid" },
            _ => {
                section.get::<Map<String, Value>>(&ARGUMENTS)?;
                Self::User { call: find }
            }
        })
    }
}

/// A time above zero, which must be there.
fn length(section: &mut Section<'_>, key: &'static Key) -> Option<i64> {
    if key.default.is_empty() && !section.has(key) {
        section.missing(key, format!("add a time, like `{} = \"1 us\"`", key.name));
        return None;
    }
    let time = Span::ns(section, key)?;
    if time <= 0 {
        section.refuse(key, Refused::new("it is not above zero", "write a time, like `\"1 us\"`"));
    }
    (time > 0).then_some(time)
}

/// The groups to find, and the output for them.
#[derive(Clone, Debug)]
struct Plan {
    find: Find,
    rules: Rules,
}

impl Plan {
    fn read(section: &mut Section<'_>) -> Option<Self> {
        let find = Find::read(section);
        let pieces = if let Some(Find::Trigger { pieces, .. }) = find { pieces } else { 1 };
        let rules = Rules::read(section, pieces);
        find.map(|find| Self { find, rules })
    }

    /// The finder, and a word for which it is. None: it is the user's.
    fn finder(&self) -> Option<(u64, Box<dyn Finder>)> {
        let whole = Some(self.rules.parts()).filter(|n| *n > 0);
        Some(match self.find {
            Find::Gap { gap, longest } => (1, Box::new(windows::Gap::new(gap, longest))),
            Find::Window { window, on_grid } => (2, Box::new(windows::Window::new(window, on_grid))),
            Find::Peak { window } => (3, Box::new(peak::Peak::new(window, self.rules.multiplicity))),
            Find::Trigger { wrap, pieces, open, wait, same_tag } => {
                (5, Box::new(trigger::Trigger::new((wrap, open, wait), whole, same_tag).of_pieces(pieces)))
            }
            Find::User { .. } => return None,
        })
    }
}

impl WorkerPlan for Plan {
    fn needs(&self) -> Needs {
        let alone = Some("groups have members from everywhere, so that one slot must see all");
        let code = match &self.find {
            Find::User { call } => Some(call.clone()),
            _ => None,
        };
        let bytes = match &self.rules.make {
            Make::Frames(layout) => layout.bytes() as u64 * SHARE,
            _ => 0,
        };
        let around = match self.find {
            Find::Gap { gap, .. } => gap,
            Find::Window { window, .. } | Find::Peak { window } => window,
            Find::Trigger { .. } | Find::User { .. } => 0,
        };
        Needs { alone, holds_back: true, bytes, whole: true, code, around, ..Needs::default() }
    }

    fn sends(&self, stage: &str) -> Option<Sends> {
        let maker = format!("worker `{stage}`");
        let of = |schema: &str| Some(Sends { maker, schemas: vec![schema.into()], ..Sends::default() });
        match self.rules.make {
            Make::Rows => of("bpgr"),
            Make::Frames(_) => of("ad00"),
            // They are those of the input.
            Make::Messages => None,
        }
    }

    fn build(&self, place: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        let WorkerPlace { data, stage, .. } = place;
        let Some(finder) = self.finder() else {
            let what = format!("worker `{stage}` finds no groups");
            return Err(Fault::new(what, "its finder is code of the user, which another program runs"));
        };
        Ok(Box::new(Grouping::of(data, stage, place.input(), finder, self.rules.clone())))
    }
}

/// Rows of what is pending.
#[derive(Default)]
struct Rows {
    times: Vec<i64>,
    members: Vec<u32>,
    numbers: Vec<u64>,
    tags: Vec<u8>,
    sequences: Vec<u64>,
    lengths: Vec<u32>,
    /// Released rows at the beginning.
    gone: usize,
}

impl Rows {
    fn push(&mut self, entry: &Entry, sequence: u64, member: u32) {
        self.times.push(entry.source_time);
        self.members.push(member);
        self.numbers.push(entry.origin_seq);
        self.tags.push(flags::byte_of_source(entry.flags));
        self.sequences.push(sequence);
        self.lengths.push(entry.length);
    }

    fn pending(&self) -> Pending<'_> {
        Pending {
            times: self.times.get(self.gone..).unwrap_or_default(),
            members: self.members.get(self.gone..).unwrap_or_default(),
            numbers: self.numbers.get(self.gone..).unwrap_or_default(),
            tags: self.tags.get(self.gone..).unwrap_or_default(),
        }
    }

    fn len(&self) -> usize {
        self.times.len() - self.gone
    }

    fn length(&self, place: u32) -> Option<u32> {
        self.lengths.get(self.gone + place as usize).copied()
    }

    fn sequence(&self, place: u32) -> Option<u64> {
        self.sequences.get(self.gone + place as usize).copied()
    }

    fn release(&mut self, count: usize) {
        self.gone = (self.gone + count).min(self.times.len());
        if self.gone > GONE && self.gone * 2 > self.times.len() {
            self.times.drain(..self.gone);
            self.members.drain(..self.gone);
            self.numbers.drain(..self.gone);
            self.tags.drain(..self.gone);
            self.sequences.drain(..self.gone);
            self.lengths.drain(..self.gone);
            self.gone = 0;
        }
    }
}

/// The verdict on a group.
struct Judged {
    number: u64,
    /// It goes on.
    goes_on: bool,
    time: i64,
    first: u64,
    /// Its messages lie in a row.
    in_a_row: bool,
}

/// The counts that the worker reports.
#[derive(Clone, Copy, Default)]
struct Said {
    groups: u64,
    incomplete: u64,
    few: u64,
    prescaled: u64,
    large: u64,
    late: u64,
    alone: u64,
    tag: u64,
    strange: u64,
    cut: u64,
    full: u64,
    unreadable: u64,
    misfit: u64,
    /// Members of which no message was in any group.
    absent: u64,
}

impl Said {
    /// The first four always, the others where they happened.
    fn to_json(self) -> String {
        let Self {
            groups,
            incomplete,
            few,
            prescaled,
            large,
            late,
            alone,
            tag,
            strange,
            cut,
            full,
            unreadable,
            misfit,
            absent,
        } = self;
        let always = [("groups", groups), ("incomplete", incomplete), ("few", few), ("prescaled", prescaled)];
        let rare = [
            ("large", large),
            ("late", late),
            ("alone", alone),
            ("tag", tag),
            ("strange", strange),
            ("cut", cut),
            ("full", full),
            ("unreadable", unreadable),
            ("misfit", misfit),
            ("absent", absent),
        ];
        said(&always.into_iter().chain(rare.into_iter().filter(|(_, count)| *count > 0)).collect())
    }
}

/// Groups at work: a finder, and what is made of what it finds.
pub struct Grouping {
    data: Data,
    stage: String,
    input: String,
    rules: Rules,
    kind: u64,
    finder: Box<dyn Finder>,
    rows: Rows,
    held: Held,
    found: Found,
    /// Of each row of the origins, the member; as far as the names are known.
    members: Vec<u32>,
    /// The first origin, by its row, of which no message was seen.
    origins: u64,
    /// The group in which a member was seen last, counted; and those of the group at hand.
    seen: Vec<u64>,
    judged: u64,
    missing: Vec<u32>,
    sequences: Vec<u64>,
    /// Groups so far, and those that passed.
    groups: u64,
    passed: u64,
    again: Again,
    former: give::Former,
    head: frames::Head,
    next: Option<u64>,
    /// What was kept last: the message that it is for, and the first that is needed there.
    kept: Option<(u64, u64)>,
    words: Vec<u64>,
    bytes: Vec<u8>,
    said: Said,
    /// The message at hand belongs to no group.
    is_left_out: bool,
    /// A message for whose groups there was no room (or none: time that has passed), and how many were needed no more
    /// behind it.
    stopped: Option<(Option<u64>, usize)>,
}

impl Grouping {
    /// Groups that a finder of the user finds in the stream `input`, for the slot of worker `stage` with `parameters` (a
    /// JSON object), of which `find` and `arguments` are for the finder.
    pub fn with(
        data: &Data,
        stage: &str,
        input: &str,
        parameters: &Value,
        finder: Box<dyn Finder>,
    ) -> Result<Self, Fault> {
        let what = || format!("worker `{stage}` rejects its parameters");
        let plan = settings::read_json(parameters, Plan::read).map_err(|mistakes| misfit(what(), mistakes))?;
        Ok(Self::of(data, stage, input, (0, finder), plan.rules))
    }

    fn of(data: &Data, stage: &str, input: &str, (kind, finder): (u64, Box<dyn Finder>), rules: Rules) -> Self {
        Self {
            data: data.clone(),
            stage: stage.to_owned(),
            input: input.to_owned(),
            seen: vec![0; rules.parts()],
            rules,
            kind,
            finder,
            rows: Rows::default(),
            held: Held::default(),
            found: Found::default(),
            members: Vec::new(),
            origins: 0,
            judged: 0,
            missing: Vec::new(),
            sequences: Vec::new(),
            groups: 0,
            passed: 0,
            again: Again::new(data, stage, input),
            former: give::Former::default(),
            head: frames::Head::default(),
            next: None,
            kept: None,
            words: Vec::new(),
            bytes: Vec::new(),
            said: Said::default(),
            is_left_out: false,
            stopped: None,
        }
    }

    /// The member that an origin is.
    fn member(&mut self, origin: u32, names: &[String]) -> u32 {
        if self.rules.members.is_empty() {
            return origin;
        }
        if let Some(member) = self.members.get(origin as usize) {
            return *member;
        }
        let members = &self.rules.members;
        let of = |name: &str| members.iter().position(|member| member == name);
        // A board that was restarted is another origin, and the same member.
        let place = |name: &String| of(name).or_else(|| of(device_of(name))).map_or(STRANGE, |at| at as u32);
        self.members = names.iter().map(place).collect();
        self.members.get(origin as usize).copied().unwrap_or(STRANGE)
    }

    /// Shows a message to the finder: what it closes is in `found`. The answer is how many are needed no more.
    /// `is_pending`: it was shown before, and is pending still.
    fn see(&mut self, message: &Message<'_>, names: &[String], is_pending: bool) -> Result<usize, Fault> {
        let (entry, sequence) = (message.entry, message.sequence);
        self.found.clear();
        let member = self.member(entry.origin, names);
        let is_new = !is_pending && u64::from(entry.origin) >= self.origins;
        if is_new {
            self.origins = u64::from(entry.origin) + 1;
        }
        let mut done = 0;
        let (is_strange, is_misfit) = (member == STRANGE, member != STRANGE && !self.rules.fits(entry, member));
        self.said.strange += u64::from(is_strange);
        self.said.misfit += u64::from(is_misfit);
        self.is_left_out = is_strange || is_misfit;
        if !self.is_left_out {
            // A later life of a board is another origin.
            if is_new && self.members.iter().take(entry.origin as usize).any(|known| *known == member) {
                self.finder.restart(member, self.rows.pending(), &mut self.found);
            }
            self.rows.push(entry, sequence, member);
            if (sequence + 1).is_multiple_of(self.finder.every().max(1)) {
                done = self.finder.find(self.rows.pending(), &mut self.found)?;
            }
            // One that closes groups is counted as what they were made of.
            self.is_left_out = self.found.late > 0 && self.found.is_empty();
        }
        if self.found.is_empty() {
            self.rows.release(std::mem::take(&mut done));
        }
        // Of all messages, as what lies between the pending ones is kept with them.
        let first = self.first(sequence);
        let is_full = self.held.see(&self.data, &self.input, entry, sequence, first);
        let is_cut = self.rows.len() > self.rules.most;
        // More than may be may have been pending where one closed a group.
        if self.found.is_empty() && !is_pending && (is_cut || is_full && first < sequence) {
            done = self.finder.cut(self.rows.pending(), &mut self.found).max(1);
            *(if is_cut { &mut self.said.cut } else { &mut self.said.full }) += 1;
        }
        Ok(done)
    }

    /// Judges a group that was found. None where there is no such.
    fn judge(&mut self, at: usize) -> Option<Judged> {
        let (number, places) = self.found.get(at)?;
        let pending = self.rows.pending();
        let (first, last) = (*places.first()?, *places.last()?);
        let (first_sequence, last_sequence) = (self.rows.sequence(first)?, self.rows.sequence(last)?);
        let time = *pending.times.get(first as usize)?;
        self.judged += 1;
        let mut different = 0;
        for place in places {
            let part = pending.part(*place as usize, self.rules.pieces)?;
            if self.seen.len() <= part {
                self.seen.resize(part + 1, 0);
            }
            different += u32::from(self.seen[part] != self.judged);
            self.seen[part] = self.judged;
        }
        let in_a_row = last_sequence - first_sequence == places.len() as u64 - 1;
        let number = number.unwrap_or(self.groups);
        self.groups += 1;
        let is_few = different < self.rules.multiplicity;
        let is_incomplete = (different as usize) < self.rules.parts();
        self.said.groups += 1;
        self.said.incomplete += u64::from(is_incomplete);
        self.said.few += u64::from(is_few);
        let passes = !(is_few || self.rules.complete && is_incomplete);
        let goes_on = passes && self.passed.is_multiple_of(self.rules.prescale);
        self.passed += u64::from(passes);
        self.said.prescaled += u64::from(passes && !goes_on);
        Some(Judged { number, goes_on, time, first: first_sequence, in_a_row })
    }

    /// Finds again what was pending before a message, and how many groups there were.
    fn find(&mut self, uuid: &[u8; 16], before: u64) -> Result<(), Fault> {
        let kept = flow::kept(&self.data, &self.stage, &self.input, uuid)?;
        let held = self.again.begin(before)?;
        let kept = kept.map(|kept| kept.1);
        let is_kind = |word: u64| word % (1 << KIND_BITS) == self.kind;
        let is_ours = |words: &&[u64]| matches!(words, [next, kind, _, _, _, ..] if *next <= before && is_kind(*kind));
        let kept = kept.as_deref().filter(is_ours);
        let said = self.said;
        (self.rows, self.held) = (Rows::default(), Held::default());
        (self.groups, self.passed) = (0, 0);
        // Of another stream of this name nothing is known.
        (self.former, self.members, self.stopped) = (give::Former::default(), Vec::new(), None);
        self.finder.resume(&[]);
        let (mut first, mut judged_from) = (held, held);
        self.origins = 0;
        if let Some([next, kind, needed, groups, passed, words @ ..]) = kept {
            self.origins = kind >> KIND_BITS;
            (first, judged_from) = ((*needed).max(held), *next);
            (self.groups, self.passed) = (*groups, *passed);
            self.finder.resume(words);
        }
        let (data, input) = (self.data.clone(), self.input.clone());
        let check = if self.looks_at_payloads() { Check::All } else { Check::Entries };
        again::read(&data, &input, first..before, check, &mut |names, message| {
            let is_pending = message.sequence < judged_from;
            let done = self.see(message, names, is_pending)?;
            if !is_pending {
                for at in 0..self.found.len() {
                    self.judge(at);
                }
            }
            self.rows.release(done);
            Ok(())
        })?;
        // They were counted when they came.
        (self.said, self.next, self.kept) = (said, Some(before), None);
        Ok(())
    }

    /// Stands before message `from`, as its messages before it were shown to the finder.
    fn begin(&mut self, from: u64, out: &Outputs<'_>) -> Result<(), Fault> {
        if self.next.is_none_or(|next| next > from) {
            self.find(&out.input(), from)?;
        }
        // Of what was kept last an answer speaks, and so will the commit of it.
        if let Some((next, first)) = self.kept.filter(|_| out.is_fresh()) {
            self.again.need(next, first);
        }
        // Until a message has its end, it is not known whether it stays.
        self.next = None;
        Ok(())
    }

    /// Gives the groups in `found`, which a message of a batch closed, or time that has passed. `done`: pending
    /// messages that are needed no more behind it.
    fn close(&mut self, of: Option<(&Batch<'_>, u64)>, done: usize, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let (batch, sequence) = of.unzip();
        if !self.found.is_empty() {
            let before = (self.groups, self.passed, self.said);
            if let Err(stop) = self.give(batch, out) {
                // Keeps the closed groups for when there is room: finding them again would cost more.
                (self.groups, self.passed, self.said) = before;
                (self.stopped, self.next) = (Some((sequence, done)), sequence.or_else(|| Some(out.next())));
                return Err(stop);
            }
        }
        self.said.late += self.found.late;
        self.said.alone += self.found.alone;
        self.said.tag += self.found.tag;
        self.rows.release(done);
        Ok(())
    }

    /// The first message that is needed from `next` on.
    fn first(&self, next: u64) -> u64 {
        self.rows.sequence(0).unwrap_or(next)
    }

    /// Sets the state in the answers from here on, to resume behind the message before `next`.
    fn keep(&mut self, next: u64, out: &mut Outputs<'_>) {
        let first = self.first(next);
        self.words.clear();
        self.words.extend([next, self.kind | self.origins << KIND_BITS, first, self.groups, self.passed]);
        self.finder.keep(&mut self.words);
        out.keep(&self.words);
        out.wait(self.finder.waiting(self.rows.pending()));
        self.kept = Some((next, first));
    }
}

impl Worker for Grouping {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let from = out.next().max(batch.first);
        self.begin(from, out)?;
        for message in batch.iter().filter(|message| message.sequence >= from) {
            out.begin(&message);
            let done = match self.stopped.take().filter(|stopped| stopped.0 == Some(message.sequence)) {
                Some((_, done)) => done,
                None => self.see(&message, out.origin_names(), false)?,
            };
            self.close(Some((batch, message.sequence)), done, out)?;
            match std::mem::take(&mut self.is_left_out) {
                true => out.filtered(&message),
                false => out.done(&message),
            }
        }
        self.keep(batch.next(), out);
        self.next = Some(batch.next());
        Ok(())
    }

    fn pass_time(&mut self, time: i64, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let next = out.next();
        self.begin(next, out)?;
        let done = match self.stopped.take().filter(|stopped| stopped.0.is_none()) {
            Some((_, done)) => done,
            None => {
                self.found.clear();
                match self.rows.len() {
                    0 => 0,
                    _ => self.finder.pass_time(time, self.rows.pending(), &mut self.found)?,
                }
            }
        };
        self.close(None, done, out)?;
        self.keep(next, out);
        self.next = Some(next);
        Ok(())
    }

    fn rest(&mut self) {
        if let Some((next, first)) = self.kept {
            self.again.need(next, first);
        }
    }

    fn looks_at_payloads(&self) -> bool {
        self.rules.make != Make::Rows
    }

    fn keeps(&self) -> bool {
        true
    }

    fn statistics(&mut self) -> String {
        let of_members = self.seen.chunks(self.rules.pieces as usize).take(self.rules.members.len());
        let absent = of_members.filter(|pieces| pieces.iter().all(|seen| *seen == 0)).count() as u64;
        Said { absent: if self.said.groups > 0 { absent } else { 0 }, ..self.said }.to_json()
    }
}
