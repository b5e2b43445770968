//! What is made of groups that were found: which of them go on, and as what.

use super::finder::part_of;
use super::frames::{DTYPE, Layout, SHAPE};
use crate::limits::{MEMBERS_MAX, PARTS_MAX, PENDING_MAX};
use settings::{Key, Refused, Section, key, shortened};
use store::Entry;

pub(super) static MEMBERS: Key = key(
    "members",
    "names of origins; `d{001..120}` is short for 120 of them",
    "",
    "Origins of groups, required with `pieces`. Messages of other origins are ignored; a group without a message \
     of a member is incomplete and lists it. Default: all origins, and none counts as missing.",
);
pub(super) static MULTIPLICITY: Key =
    key("multiplicity", "number, 1 to 65536", "1", "Least number of different members in a group.");
pub(super) static COMPLETE: Key =
    key("complete", "`true` or `false`", "false", "Whether to pass on only groups with all members.");
pub(super) static PRESCALE: Key =
    key("prescale", "number", "1", "Of each N groups that satisfy `multiplicity` and `complete`, pass on the first.");
pub(super) static MAKE: Key = key(
    "make",
    "`rows`, `messages` or `frames`",
    "rows",
    "A row per group; or copies of its messages, with their own time, origin and number, group by group: a \
     subset for prompt views; or an image per group, of the payloads of its messages.",
);
pub(super) static PENDING: Key = key(
    "pending",
    "number, 2 to 1048576",
    "65536",
    "Most messages that wait for their group to close; beyond it groups are closed as they are, and counted as \
     `cut` (as `full` if they would keep half of the memory of an input that is not on disk).",
);

/// The output for a group.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Make {
    /// A row.
    Rows,
    /// Its messages, as they are.
    Messages,
    /// A frame of the payloads of its messages.
    Frames(Layout),
}

/// The parameters that all finders share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rules {
    /// Names of the origins that belong; none: all do.
    pub(super) members: Vec<String>,
    /// Different members that a group has at least.
    pub(super) multiplicity: u32,
    /// Of the groups that pass, one in so many goes on.
    pub(super) prescale: u64,
    /// Only groups that miss no member go on.
    pub(super) complete: bool,
    pub(super) make: Make,
    /// Messages that a member has in a group: its numbers count these.
    pub(super) pieces: u64,
    /// Messages that are pending at most.
    pub(super) most: usize,
}

impl Rules {
    /// Members of a group, each with its pieces; 0: any.
    pub(super) fn parts(&self) -> usize {
        self.members.len() * self.pieces as usize
    }

    /// Whether the payload of a message of this member has the length of its place in a frame.
    pub(super) fn fits(&self, entry: &Entry, member: u32) -> bool {
        let Make::Frames(layout) = &self.make else { return true };
        let part = part_of(member, entry.origin_seq, self.pieces);
        layout.place(part as usize).len() == entry.length as usize
    }

    /// From the section of a worker, in which a member has `pieces` messages in a group.
    pub(super) fn read(section: &mut Section<'_>, pieces: u64) -> Self {
        let members = members(section);
        let parts = members.len() as u64 * pieces;
        if pieces > 1 && !(1..=PARTS_MAX).contains(&parts) {
            let cause =
                format!("{} members with {pieces} pieces each are not 1 to {PARTS_MAX} messages", members.len());
            section.refuse(&MEMBERS, Refused::new(cause, "name the origins of the pieces: `members = [\"module\"]`"));
        }
        let multiplicity = section.within(&MULTIPLICITY, 1..=MEMBERS_MAX as i64).map_or(1, |n| n.value as u32);
        if !members.is_empty() && u64::from(multiplicity) > parts {
            let cause = format!("it is {multiplicity}, and there are {parts} members");
            let hint = "write how many different members a group has at least";
            section.refuse(&MULTIPLICITY, Refused::new(cause, hint));
        }
        let prescale = section.within(&PRESCALE, 1..=1 << 40).map_or(1, |n| n.value as u64);
        let complete = section.get(&COMPLETE).is_some_and(|complete| complete.value);
        if complete && !section.has(&MEMBERS) {
            let hint = "name the origins that a group should have: `members = [\"a\", \"b\"]`";
            section.refuse(&COMPLETE, Refused::new("without `members` nothing is missing", hint));
        }
        let word = section.word(&MAKE, &["rows", "messages", "frames"].map(|word| (word, word)));
        let word = word.map_or("rows", |word| word.value);
        if word != "frames" {
            for key in [&SHAPE, &DTYPE] {
                if section.has(key) {
                    section.refuse(key, Refused::new("it is of frames", "write `make = \"frames\"`, or remove it"));
                }
            }
        }
        let make = match word {
            "frames" => Layout::read(section, members.len(), pieces as usize).map_or(Make::Rows, Make::Frames),
            "messages" => Make::Messages,
            _ => Make::Rows,
        };
        let most = section.within(&PENDING, 2..=PENDING_MAX).map_or(2, |n| n.value as usize);
        Self { members, multiplicity, prescale, complete, make, pieces, most }
    }
}

/// The parameter `members`: names, and `name{001..120}` for many of them.
fn members(section: &mut Section<'_>) -> Vec<String> {
    let hint = "write names of origins, like `[\"left\", \"right\"]`, or `[\"d{001..120}\"]` for d001 to d120";
    let Some(texts) = section.get::<Vec<String>>(&MEMBERS) else { return Vec::new() };
    if texts.is_empty() {
        section.refuse(&MEMBERS, Refused::new("the list is empty", hint));
    }
    let mut names: Vec<String> = Vec::new();
    for text in texts.iter() {
        match settings::expanded(text, MEMBERS_MAX) {
            Ok(more) if !text.is_empty() && names.len() + more.len() <= MEMBERS_MAX => names.extend(more),
            _ => {
                let cause = format!("`{}` is not a name or a row of names", shortened(text));
                section.refuse(&MEMBERS, Refused::new(cause, hint));
            }
        }
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()) {
        let cause = format!("`{}` is there twice", shortened(&twice));
        section.refuse(&MEMBERS, Refused::new(cause, "name each once"));
    }
    names
}
