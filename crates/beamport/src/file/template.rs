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
}
