//! The account of the messages of the code that the stream has already.
//!
//! A restart repeats two kinds of messages: those of the stream `NAME.yielded`, and those that code with a
//! state yields again, because its state was saved before them. Both are known by origin and number.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use store::hex;

/// Numbers of origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers(BTreeMap<String, Vec<(u64, u64)>>);

impl Numbers {
    fn add(&mut self, origin: &str, number: u64) {
        if !self.0.contains_key(origin) {
            self.0.insert(origin.to_owned(), Vec::new());
        }
        let Some(spans) = self.0.get_mut(origin) else { return };
        match spans.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(number) => last.1 = number,
            _ => spans.push((number, number)),
        }
    }

    fn of(all: &BTreeMap<String, BTreeSet<u64>>) -> Self {
        let mut numbers = Self::default();
        for (origin, each) in all {
            each.iter().for_each(|number| numbers.add(origin, *number));
        }
        numbers
    }

    fn each(&self) -> BTreeMap<String, BTreeSet<u64>> {
        let numbers = |spans: &[(u64, u64)]| spans.iter().flat_map(|(first, last)| *first..=*last).collect();
        self.0.iter().map(|(origin, spans)| (origin.clone(), numbers(spans))).collect()
    }
}

/// The messages that the stream has, and the state of the code.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// The newest state of the code.
    pub(super) saved: Option<String>,
    /// Messages of the stream behind that state.
    behind: Numbers,
    /// Those of them that a code which was started again has not yielded yet.
    again: BTreeMap<String, BTreeSet<u64>>,
    /// Messages of the stream that are newer than the account was when the program ended.
    tail: BTreeMap<String, Vec<u64>>,
    /// A state came since the program began.
    is_tail_old: bool,
    /// The next number of each origin.
    next: HashMap<String, u64>,
}

/// Where the source goes on in the stream of what the code yields: the stream, and the sequence in it.
pub(super) type Place = ([u8; 16], u64);

impl Account {
    /// From the state of the source and the tail of its stream; and the place in the stream `NAME.yielded`.
    pub(super) fn read(resume: &flow::Resume) -> (Self, Option<Place>) {
        let state: Value = serde_json::from_str(&resume.state).unwrap_or_default();
        let numbers = |word: &str| Numbers(serde_json::from_value(state[word].clone()).unwrap_or_default());
        let mut tail: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (origin, spans) in numbers("tail").0 {
            tail.entry(origin).or_default().extend(spans.into_iter().flat_map(|(first, last)| first..=last));
        }
        for (origin, numbers) in &resume.tail {
            tail.entry(flow::device_of(origin).to_owned()).or_default().extend(numbers);
        }
        let account = Self {
            saved: state["saved"].as_str().map(str::to_owned),
            behind: numbers("behind"),
            again: numbers("again").each(),
            tail,
            is_tail_old: state["old"].as_bool().unwrap_or(false),
            next: resume.origins.iter().map(|origin| (origin.name.clone(), origin.next_seq)).collect(),
        };
        let uuid = state["stream"].as_str().and_then(store::unhex16);
        (account, uuid.zip(state["next"].as_u64()))
    }

    /// As [`Account::read`] reads it.
    pub(super) fn state(&self, place: Place) -> String {
        let mut state = json!({"stream": hex(&place.0), "next": place.1});
        if self.saved.is_some() {
            (state["saved"], state["behind"]) = (json!(self.saved), json!(self.behind.0));
            // They stand in the stream of what the code yields behind this place.
            state["again"] = json!(Numbers::of(&self.again).0);
        }
        // A commit counts the messages of the stream, whether the source has looked at them again or not.
        let mut tail = Numbers::default();
        self.tail.iter().for_each(|(origin, numbers)| numbers.iter().for_each(|number| tail.add(origin, *number)));
        if !tail.0.is_empty() {
            (state["tail"], state["old"]) = (json!(tail.0), self.is_tail_old.into());
        }
        state.to_string()
    }

    /// The next number of each origin.
    pub(super) fn numbers(&self) -> BTreeMap<String, u64> {
        self.next.iter().map(|(origin, next)| (origin.clone(), *next)).collect()
    }

    /// The stream `NAME.yielded` is read to its end. Messages that it no longer had stand behind the state, unless it
    /// had a later state.
    pub(super) fn settle(&mut self) {
        let is_old = self.is_tail_old;
        for (origin, numbers) in std::mem::take(&mut self.tail).into_iter().filter(|_| !is_old) {
            numbers.into_iter().for_each(|number| self.note(&origin, number));
        }
    }

    /// The code has begun at the state: what the stream has behind it may come once more.
    pub(super) fn begin(&mut self) {
        self.again = if self.saved.is_some() { self.behind.each() } else { BTreeMap::new() };
    }

    /// Whether the stream has a message. Such a message comes once more, and no second time.
    pub(super) fn has(&mut self, origin: &str, number: u64) -> bool {
        if let Some(numbers) = self.tail.get_mut(origin)
            && let Some(at) = numbers.iter().position(|known| *known == number)
        {
            numbers.remove(at);
            self.note(origin, number);
            return true;
        }
        self.again.get_mut(origin).is_some_and(|numbers| numbers.remove(&number))
    }

    /// A message is in the stream now.
    pub(super) fn note(&mut self, origin: &str, number: u64) {
        if self.saved.is_some() {
            self.behind.add(origin, number);
        }
        let next = number.saturating_add(1);
        match self.next.get_mut(origin) {
            Some(known) => *known = next.max(*known),
            None => drop(self.next.insert(origin.to_owned(), next)),
        }
    }

    /// The code has saved a state, with which all messages before agree; without text it has none any more. Messages
    /// that it has not yielded once more yet stay behind the state.
    pub(super) fn save(&mut self, text: &str) {
        self.saved = (!text.is_empty()).then(|| text.to_owned());
        if self.saved.is_none() {
            self.again.clear();
        }
        self.behind = Numbers::of(&self.again);
        self.is_tail_old = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(state: String, tail: &[(&str, &[u64])]) -> Account {
        let tail = tail.iter().map(|(origin, numbers)| ((*origin).to_owned(), numbers.to_vec())).collect();
        Account::read(&flow::Resume { state, tail, ..flow::Resume::default() }).0
    }

    #[test]
    fn what_stands_behind_the_state_is_known_once_when_the_code_begins_again() {
        let mut account = Account::default();
        account.save("7");
        (7..10).for_each(|number| account.note("a", number));
        account.begin();
        assert!((7..10).all(|number| account.has("a", number)));
        assert!(!account.has("a", 9) && !account.has("a", 10) && !account.has("b", 7));
        account.note("a", 10);
        account.save("11");
        account.begin();
        assert!(!account.has("a", 10), "the state is behind it");
    }

    #[test]
    fn what_is_newer_than_the_account_is_known_from_the_tail() {
        let mut account = Account::default();
        account.save("0");
        account.note("a", 0);
        let state = account.state(([3; 16], 5));
        // The stream of what the code yields is there: its messages come first, then the code begins.
        let mut account = resumed(state.clone(), &[("a", &[1, 2]), ("b#2", &[4])]);
        assert!(account.has("a", 1) && account.has("b", 4) && account.has("a", 2) && !account.has("a", 3));
        account.note("a", 3);
        account.begin();
        assert!([0, 1, 2, 3].into_iter().all(|number| account.has("a", number)));
        // Killed before it has looked at them.
        let again = resumed(state.clone(), &[("a", &[1, 2])]).state(([3; 16], 5));
        let mut account = resumed(again, &[("a", &[3])]);
        assert!((1..4).all(|number| account.has("a", number)) && !account.has("a", 4));
        // It is lost: the code yields all of them once more.
        let mut account = resumed(state, &[("a", &[1, 2])]);
        account.settle();
        account.begin();
        assert!([0, 1, 2].into_iter().all(|number| account.has("a", number)) && !account.has("a", 3));
    }

    #[test]
    fn a_state_amid_what_comes_once_more_leaves_the_rest_of_it_behind() {
        let mut account = Account::default();
        account.save("0");
        (0..6).for_each(|number| account.note("a", number));
        account.begin();
        assert!(account.has("a", 0) && account.has("a", 1));
        account.save("2");
        account.begin();
        assert!((2..6).all(|number| account.has("a", number)) && !account.has("a", 1));
    }

    #[test]
    fn what_was_yielded_once_more_is_known_after_a_kill_of_the_program_too() {
        let mut account = Account::default();
        account.save("0");
        (0..4).for_each(|number| account.note("a", number));
        account.begin();
        assert!(account.has("a", 0));
        // 1, 2 and 3 come behind the place at which the state was written.
        let mut account = resumed(account.state(([3; 16], 5)), &[("a", &[4])]);
        assert!((1..5).all(|number| account.has("a", number)));
        account.begin();
        assert!((0..5).all(|number| account.has("a", number)) && !account.has("a", 5));
    }

    #[test]
    fn code_without_state_yields_nothing_once_more() {
        let mut account = Account::default();
        account.note("a", 0);
        account.begin();
        assert!(!account.has("a", 0));
        assert_eq!(account.numbers(), BTreeMap::from([("a".to_owned(), 1)]));
        assert!(account.behind.0.is_empty(), "it is not kept either");
    }
}
