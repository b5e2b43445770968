//! A sink's template as far as the instrument file goes: that it is there, that it is JSON, and which streams it names.
//!
//! What its modules mean is checked by who knows NeXus (`beamport-nexus check`). What stands here in another form than it
//! should is passed over, and hides nothing: that one tells it.

use super::mistake::{Mistake, Severity};
use crate::limits;
use crate::units::Refused;
use flow::Fault;
use serde::de::{Deserialize, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Modules that fill themselves from no stream.
const WITHOUT_STREAM: [&str; 3] = ["dataset", "link", "mdat"];

/// Why a template cannot be used.
pub(super) enum Wrong {
    /// The key names no readable file.
    Path(Refused),
    /// The file is there and is no JSON.
    Content(Box<Mistake>),
}

/// A module that reads streams, as far as a source can be asked whether it sends that.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// Where its `config` stands, a JSON pointer.
    pub(super) pointer: String,
    /// Its word.
    pub(super) module: String,
    /// The key that names its streams.
    pub(super) key: &'static str,
    pub(super) streams: Vec<String>,
    /// The origin that it wants.
    pub(super) source: Option<String>,
    /// The unit that it gives the values, and the key that says so.
    pub(super) units: Option<(&'static str, String)>,
    /// The variables that it wants of messages: their places below the config, and their names.
    pub(super) variables: Vec<(String, String)>,
}

/// Where a template asks for a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The first place, a JSON pointer.
    pub(super) pointer: String,
    /// How many there are.
    pub(super) places: usize,
}

/// What a template reads: streams, and modules.
pub(super) type Found = (BTreeMap<String, Asked>, Vec<Reads>);

/// What the modules of a template read.
pub(super) fn streams(path: &Path) -> Result<Found, Wrong> {
    let refused = |cause: String| {
        let hint = "paths are relative to the instrument file; an example is examples/amor.nexus.json";
        Wrong::Path(Refused::new(cause, hint))
    };
    let failed = |error| refused(format!("{}: {error}", path.display()));
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() || about.len() > limits::TEMPLATE_BYTES_MAX {
        let most = limits::TEMPLATE_BYTES_MAX;
        return Err(refused(format!("{} is not a plain file of at most {most} bytes", path.display())));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    let left = Cell::new(limits::TEMPLATE_VALUES_MAX);
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let root = Seed { left: &left, is_config: false }.deserialize(&mut reader);
    let root = root.and_then(|root| reader.end().map(|()| root));
    let (mut streams, mut modules) = (BTreeMap::<String, Asked>::new(), Vec::new());
    match root {
        Ok(root) => collect(&root, "", &mut modules),
        // JSON that nests too deep is JSON, and its own mistake.
        Err(_) => serde_json::from_slice::<IgnoredAny>(&bytes).map(drop).map_err(|error| no_json(path, &error))?,
    }
    for module in &modules {
        for stream in &module.streams {
            let asked = streams
                .entry(stream.clone())
                .or_insert_with(|| Asked { pointer: format!("{}/{}", module.pointer, module.key), places: 0 });
            asked.places += 1;
        }
    }
    Ok((streams, modules))
}

/// The names of the streams that a template reads.
pub(crate) fn named_streams(path: &Path) -> Result<Vec<String>, Fault> {
    match streams(path) {
        Ok((streams, _)) => Ok(streams.into_keys().collect()),
        Err(Wrong::Path(refused)) => {
            Err(Fault::new(format!("cannot read template `{}`", path.display()), refused.cause))
        }
        Err(Wrong::Content(mistake)) => {
            let what = format!("{}:{}: {}", mistake.file, mistake.line, mistake.what);
            Err(Fault::new(what, mistake.cause).hint(mistake.hint))
        }
    }
}

fn no_json(path: &Path, error: &serde_json::Error) -> Wrong {
    let cause = error.to_string();
    // The line stands in front of the message already.
    let cause = cause.split(" at line ").next().unwrap_or_default();
    Wrong::Content(Box::new(Mistake {
        level: Severity::Error,
        file: path.display().to_string(),
        line: u32::try_from(error.line()).unwrap_or(0),
        pointer: String::new(),
        what: "the template is no JSON".into(),
        cause: format!("{cause}, at column {}", error.column()),
        hint: "correct the line; remarks and commas before a closing bracket are not allowed in JSON".into(),
    }))
}

/// JSON nests at most 128 deep here, so this does too.
fn collect(node: &Seen, at: &str, into: &mut Vec<Reads>) {
    if let (Some(module), Some(config)) = (node.text(Key::Module), node.get(Key::Config))
        && !WITHOUT_STREAM.contains(&module)
        && let Some((key, streams)) = config.first_of([(Key::Stream, "stream"), (Key::Topic, "topic")])
    {
        let units = config.first_of([(Key::ValueUnits, "value_units"), (Key::Unit, "unit")]);
        // Constants that have their data in the template come from no message.
        let named = |key: Key, word: &'static str| {
            let list = config.get(key).map_or(&[][..], |list| &list.list).iter().enumerate();
            let sent = list.filter(|(_, one)| one.get(Key::Data).is_none());
            sent.filter_map(move |(i, one)| Some((format!("{word}/{i}/name"), one.text(Key::Name)?.to_owned())))
        };
        into.push(Reads {
            pointer: format!("{at}/config"),
            module: module.to_owned(),
            key,
            streams: streams.texts(),
            source: config.text(Key::Source).map(str::to_owned),
            units: units.and_then(|(key, units)| Some((key, units.text.clone()?))),
            variables: named(Key::Variables, "variables").chain(named(Key::Constants, "constants")).collect(),
        });
    }
    for (i, child) in node.get(Key::Children).iter().flat_map(|children| &children.list).enumerate() {
        collect(child, &format!("{at}/children/{i}"), into);
    }
}

/// A value of any form, as far as it is asked for.
#[derive(Debug, Default)]
struct Seen {
    text: Option<String>,
    list: Vec<Seen>,
    members: Vec<(Key, Seen)>,
}

/// The members that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Module,
    Config,
    Children,
    Stream,
    Topic,
    Source,
    ValueUnits,
    Unit,
    Variables,
    Constants,
    Data,
    Name,
    #[serde(other)]
    Other,
}

impl Key {
    /// Whether it belongs to a `config`; the others to a node.
    fn is_of_config(self) -> bool {
        !matches!(self, Key::Module | Key::Config | Key::Children)
    }
}

impl Seen {
    fn get(&self, key: Key) -> Option<&Seen> {
        self.members.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    fn text(&self, key: Key) -> Option<&str> {
        self.get(key)?.text.as_deref()
    }

    fn first_of(&self, keys: [(Key, &'static str); 2]) -> Option<(&'static str, &Seen)> {
        keys.into_iter().find_map(|(key, word)| Some((word, self.get(key)?)))
    }

    /// One text, or the texts of a list.
    fn texts(&self) -> Vec<String> {
        self.text.iter().chain(self.list.iter().filter_map(|one| one.text.as_ref())).cloned().collect()
    }
}

/// How a value is read: how many more may be kept, and whether it is one of a `config`.
#[derive(Clone, Copy)]
struct Seed<'l> {
    left: &'l Cell<u64>,
    is_config: bool,
}

impl Seed<'_> {
    fn may_keep(self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Seen;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Seen, D::Error> {
        if self.may_keep() {
            from.deserialize_any(self)
        } else {
            IgnoredAny::deserialize(from).map(|_| Seen::default())
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Seen, E> {
        Ok(Seen::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Seen, E> {
        Ok(Seen::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<Seen, E> {
        Ok(Seen { text: Some(text.to_owned()), ..Seen::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Seen, A::Error> {
        let mut seen = Seen::default();
        while let Some(value) = from.next_element_seed(self)? {
            if self.left.get() > 0 {
                seen.list.push(value);
            }
        }
        Ok(seen)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Seen, A::Error> {
        let mut seen = Seen::default();
        while let Some(key) = from.next_key::<Key>()? {
            if key == Key::Other || key.is_of_config() != self.is_config {
                from.next_value::<IgnoredAny>()?;
                continue;
            }
            if key == Key::Data {
                // Large, and only asked whether it is there.
                from.next_value::<IgnoredAny>()?;
                seen.members.push((key, Seen::default()));
                continue;
            }
            let value = from.next_value_seed(Seed { is_config: self.is_config || key == Key::Config, ..self })?;
            seen.members.push((key, value));
        }
        Ok(seen)
    }
}

/// Modules whose groups another writer may have: what they take is large. Logs stay in the run's file, where paths in
/// attributes (`depends_on`) find them.
const SHARED: [&str; 7] = ["ev44", "ev42", "ad00", "ar51", "da00", "hs01", "hs00"];

/// Shares the inputs of a sink out to at most so many writers, about the same number of modules to each; the first has
/// what cannot be shared. Streams stay together that one module reads, or the modules of one group and of groups in it.
pub(super) fn shared_out(inputs: &[String], modules: &[Reads], writers: usize) -> Vec<Vec<String>> {
    let mut sets = Sets((0..=inputs.len()).collect());
    let place = |stream: &String| inputs.iter().position(|input| input == stream);
    // Below the file itself and its entries.
    let is_below = |group: &str| group.matches("/children/").count() > 1;
    let mut groups: Vec<(&str, bool, Vec<usize>)> = modules
        .iter()
        .map(|module| {
            let group = module.pointer.rsplitn(4, '/').nth(3).unwrap_or_default();
            let goes = SHARED.contains(&module.module.as_str()) && is_below(group);
            (group, goes, module.streams.iter().filter_map(place).collect())
        })
        .collect();
    // What a group is in comes before it.
    groups.sort_by_key(|group| group.0);
    // One place more, for what stays with the first.
    let stays = inputs.len();
    let mut above: Vec<(&str, usize)> = Vec::new();
    for (group, goes, streams) in &groups {
        let Some(&first) = streams.first() else { continue };
        streams.iter().for_each(|stream| sets.join(first, *stream));
        if !goes {
            sets.join(first, stays);
        }
        above.retain(|(outer, _)| {
            group.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        above.iter().for_each(|(_, stream)| sets.join(first, *stream));
        if is_below(group) {
            above.push((group, first));
        }
    }
    let mut load: Vec<usize> = vec![0; inputs.len() + 1];
    groups.iter().filter_map(|(.., streams)| streams.first()).for_each(|stream| load[sets.of(*stream)] += 1);
    let is_read: Vec<bool> = (0..inputs.len()).map(|stream| load[sets.of(stream)] > 0).collect();
    let (first, mut shares) = (sets.of(stays), vec![(0, Vec::<usize>::new()); writers.max(1)]);
    shares[0] = (load[first], vec![first]);
    let mut roots: Vec<usize> =
        (0..inputs.len()).filter(|at| sets.of(*at) == *at && is_read[*at] && *at != first).collect();
    roots.sort_by_key(|root| std::cmp::Reverse(load[*root]));
    for root in roots {
        if let Some(share) = shares.iter_mut().min_by_key(|share| share.0) {
            share.0 += load[root];
            share.1.push(root);
        }
    }
    let of = |(number, share): (usize, &(usize, Vec<usize>))| -> Vec<String> {
        let is_here = |at: usize| share.1.contains(&sets.of(at)) || number == 0 && !is_read[at];
        (0..inputs.len()).filter(|at| is_here(*at)).map(|at| inputs[at].clone()).collect()
    };
    let all: Vec<Vec<String>> = shares.iter().enumerate().map(of).collect();
    // A writer without a stream has nothing to wait for.
    all.into_iter().filter(|streams| !streams.is_empty()).collect()
}

/// Which places belong together.
struct Sets(Vec<usize>);

impl Sets {
    fn of(&self, mut at: usize) -> usize {
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        self.0[one.max(other)] = one.min(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_with_their_places_and_only_where_a_module_reads_one() {
        let text = r#"{"children": [
  {"type": "group", "name": "entry", "attributes": {"stream": "no"}, "children": [
    {"module": "mdat", "config": {"items": ["start_time"], "topic": "unread"}},
    {"module": "dataset", "config": {"name": "topic", "values": "stream"}},
    {"type": "group", "name": "a", "children": [{"module": "ev44", "config": {
      "topic": "passed over",
      "stream" : "detector"}}]},
    {"module": "f144", "config": {"topic": "d\u0065vices"}},
    {"module": "f144", "config": {"stream": ["detector",
       "monitor"]}}]}]}"#;
        let path = std::env::temp_dir().join(format!("beamport-template-{}", std::process::id()));
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let found = streams(&path).unwrap_or_else(|_| panic!("refused"));
            found.0.into_iter().map(|(name, asked)| (name, asked.pointer, asked.places)).collect::<Vec<_>>()
        };
        let found = of(text);
        // Another form is for the checker of templates to tell, and hides no other stream.
        let other = of(&text.replace("\"stream\" : \"detector\"", "\"stream\" : 7, \"stream\": {}"));
        std::fs::remove_file(&path).unwrap();
        let at =
            |name: &str, pointer: &str, places| (name.to_owned(), format!("/children/0/children/{pointer}"), places);
        let (devices, monitor) = (at("devices", "3/config/topic", 1), at("monitor", "4/config/stream", 1));
        assert_eq!(found, [at("detector", "2/children/0/config/stream", 2), devices.clone(), monitor.clone()]);
        assert_eq!(other, [at("detector", "4/config/stream", 1), devices, monitor]);
    }

    #[test]
    fn streams_are_shared_out_and_what_belongs_together_stays_so() {
        let at = |pointer: &str, module: &str, streams: &[&str]| Reads {
            pointer: format!("{pointer}/config"),
            module: module.to_owned(),
            streams: streams.iter().map(|s| (*s).to_owned()).collect(),
            ..Reads::default()
        };
        let inputs = |names: &str| names.chars().map(|c| c.to_string()).collect::<Vec<_>>();
        let shared = |names: &str, modules: &[Reads], writers: usize| {
            shared_out(&inputs(names), modules, writers).iter().map(|s| s.concat()).collect::<Vec<_>>().join(" ")
        };
        let bank = |n: usize, stream: &str| at(&format!("/children/0/children/{n}/children/0"), "ev44", &[stream]);
        let banks: Vec<Reads> = ["a", "b", "c", "d"].iter().enumerate().map(|(n, s)| bank(n, s)).collect();
        assert_eq!(shared("abcd", &banks, 1), "abcd");
        assert_eq!(shared("abcd", &banks, 2), "ac bd");
        assert_eq!(shared("abcd", &banks, 4), "a b c d");
        assert_eq!(shared("abcd", &banks, 16), "a b c d");
        // Logs stay, with all of their stream; and what no module reads.
        let mut with_logs = banks.clone();
        with_logs.push(at("/children/0/children/9/children/0", "f144", &["b"]));
        assert_eq!(shared("abcdx", &with_logs, 2), "bdx ac");
        // So does what stands in the entry.
        with_logs.push(at("/children/0/children/11", "ev44", &["c"]));
        assert_eq!(shared("abcdx", &with_logs, 3), "bcx a d");
        // One module of two streams; a group in a group, wherever it stands in the text.
        let mut tied = banks.clone();
        tied.push(at("/children/0/children/10/children/0", "ev44", &["a", "d"]));
        tied.push(at("/children/0/children/1/children/4/children/0", "da00", &["c"]));
        tied.rotate_right(1);
        assert_eq!(shared("abcd", &tied, 4), "ad bc");
        assert_eq!(shared("", &[], 4), "");
    }
}
