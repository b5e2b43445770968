//! A sink's template as far as the instrument file goes: that it is there, that it is JSON, and which streams it names.
//!
//! What its modules mean is checked by who knows NeXus (`beamport-nexus check`). A template of another form than the one
//! read here names no streams: its own mistakes come first.

use super::mistake::Mistake;
use crate::limits;
use crate::units::Refused;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Modules that fill themselves from no stream.
const WITHOUT_STREAM: [&str; 3] = ["dataset", "link", "mdat"];

/// Why a template cannot be used.
pub(super) enum Wrong {
    /// The key names no readable file.
    Path(Refused),
    /// The file is there and is no JSON.
    Content(Mistake),
}

/// A node of any kind; what is no part of the question is passed over without being kept.
#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    module: Option<String>,
    #[serde(default)]
    config: Option<Config>,
    #[serde(default)]
    children: Option<Vec<Node>>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    stream: Option<Streams>,
    /// The word of ESS templates, read where there is no `stream`.
    #[serde(default)]
    topic: Option<Streams>,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    value_units: Option<String>,
}

/// A module that reads streams, as far as a source can be asked whether it sends that.
#[derive(Clone, Debug)]
pub(super) struct Reads {
    /// Where it stands, a JSON pointer.
    pub(super) pointer: String,
    /// Its word.
    pub(super) module: String,
    pub(super) streams: Vec<String>,
    /// The origin that it wants.
    pub(super) source: Option<String>,
    /// The unit that it gives the values.
    pub(super) units: Option<String>,
}

/// One name or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Streams {
    One(String),
    Several(Vec<String>),
}

/// What a template reads: streams, each with the line of its first appearance (0 where it is not found), and modules.
pub(super) type Found = (BTreeMap<String, u32>, Vec<Reads>);

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
    if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
        let cause = error.to_string();
        // The line stands in front of the message already.
        let cause = cause.split(" at line ").next().unwrap_or_default();
        return Err(Wrong::Content(Mistake {
            file: path.display().to_string(),
            line: u32::try_from(error.line()).unwrap_or(0),
            what: "the template is no JSON".into(),
            cause: format!("{cause}, at column {}", error.column()),
            hint: "correct the line; remarks and commas before a closing bracket are not allowed in JSON".into(),
        }));
    }
    let (mut streams, mut modules) = (BTreeMap::new(), Vec::new());
    if let Ok(root) = serde_json::from_slice::<Node>(&bytes) {
        collect(root, "", &mut modules);
        streams.extend(modules.iter().flat_map(|module| &module.streams).map(|stream| (stream.clone(), 0)));
        find_lines(&String::from_utf8_lossy(&bytes), &mut streams);
    }
    Ok((streams, modules))
}

/// JSON nests at most 128 deep here, so this does too.
fn collect(node: Node, at: &str, into: &mut Vec<Reads>) {
    if let (Some(module), Some(config)) = (node.module, node.config)
        && !WITHOUT_STREAM.contains(&module.as_str())
        && let Some(streams) = config.stream.or(config.topic)
    {
        let streams = match streams {
            Streams::One(stream) => vec![stream],
            Streams::Several(streams) => streams,
        };
        let (source, units) = (config.source, config.value_units);
        into.push(Reads { pointer: format!("{at}/config"), module, streams, source, units });
    }
    for (i, child) in node.children.into_iter().flatten().enumerate() {
        collect(child, &format!("{at}/children/{i}"), into);
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

/// Texts of hundreds of MB come here: each is looked through once for a key, and its lines are counted on the way.
fn find_lines(text: &str, streams: &mut BTreeMap<String, u32>) {
    for key in ["\"stream\"", "\"topic\""] {
        let (mut line, mut counted) = (1, 0);
        for (at, _) in text.match_indices(key) {
            let value = text[at + key.len()..].trim_start().strip_prefix(':').unwrap_or_default();
            let names = match serde_json::Deserializer::from_str(value).into_iter::<Streams>().next() {
                Some(Ok(Streams::One(name))) => vec![name],
                Some(Ok(Streams::Several(names))) => names,
                _ => continue,
            };
            for name in names {
                if let Some(found) = streams.get_mut(&name).filter(|line| **line == 0) {
                    line += text.as_bytes()[counted..at].iter().filter(|byte| **byte == b'\n').count();
                    counted = at;
                    *found = u32::try_from(line).unwrap_or(0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_with_their_lines_and_only_where_a_module_reads_one() {
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
        std::fs::write(&path, text).unwrap();
        let found = streams(&path).unwrap_or_default().0;
        // Another form is for the checker of templates to tell.
        std::fs::write(&path, text.replace("\"detector\"", "7")).unwrap();
        let other = streams(&path).unwrap_or_else(|_| panic!("refused"));
        std::fs::remove_file(&path).unwrap();
        let found: Vec<(String, u32)> = found.into_iter().collect();
        assert_eq!(found, [("detector".to_owned(), 7), ("devices".to_owned(), 8), ("monitor".to_owned(), 9)]);
        assert!(other.0.is_empty());
    }

    #[test]
    fn streams_are_shared_out_and_what_belongs_together_stays_so() {
        let at = |pointer: &str, module: &str, streams: &[&str]| Reads {
            pointer: format!("{pointer}/config"),
            module: module.to_owned(),
            streams: streams.iter().map(|s| (*s).to_owned()).collect(),
            source: None,
            units: None,
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
