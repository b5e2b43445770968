//! Groups (`bpgr`): how many have how many messages, and whose messages are missing.

use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use crate::books::{SETTINGS, text};
use crate::limits::{EVENTS_BYTES_MAX, MEMBERS_MAX, MULTIPLICITY_MAX, SLICE, TREND_TIME};
use flow::{Data, Fault, tasks_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use toml_edit::{DocumentMut, Item};

pub(super) static GROUPS: ViewKind = ViewKind::new("groups", is_group, || Box::new(Groups));

struct Groups;

fn is_group(schema: [u8; 4]) -> bool {
    schema == *b"bpgr"
}

impl View for Groups {
    /// Adds the groups of the window that ends with the newest one.
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let (panel, data) = (scene.panel, scene.data);
        let (stream, found) = scene.message()?;
        let to = stream.time(&found.entry);
        let from = to.saturating_sub(panel.window.unwrap_or(TREND_TIME));
        let messages = stream.window(panel, &is_group, (from, to), (found.sequence + 1, EVENTS_BYTES_MAX))?;
        let numbers: Vec<u64> = messages.iter().map(|(sequence, _)| *sequence).collect();
        let (mut counts, mut missing, mut incomplete) = (vec![0.0_f64; 2], BTreeMap::<u32, u64>::new(), 0_u64);
        stream.each(&numbers, &mut |message| {
            let Ok(group) = wire::bpgr::read(message.payload) else { return };
            let messages = (group.count as usize).min(MULTIPLICITY_MAX);
            if counts.len() <= messages {
                counts.resize(messages + 1, 0.0);
            }
            counts[messages] += 1.0;
            incomplete += u64::from(!group.missing.is_empty());
            group.missing.iter().for_each(|member| *missing.entry(member).or_default() += 1);
        })?;
        let names = if missing.is_empty() { Vec::new() } else { members(data, &panel.stream) };
        let name = |at: u32| names.get(at as usize).cloned().unwrap_or_else(|| format!("member {at}"));
        let mut missing: Vec<(u64, u32)> = missing.into_iter().map(|(member, count)| (count, member)).collect();
        missing.sort_unstable_by_key(|(count, member)| (std::cmp::Reverse(*count), *member));
        let more = missing.len().saturating_sub(MEMBERS_MAX);
        missing.truncate(MEMBERS_MAX);
        let named: Vec<Value> =
            missing.iter().map(|(count, at)| json!({"member": name(*at), "count": count})).collect();
        let facts = json!({
            "from": messages.iter().map(|(_, time)| *time).min().unwrap_or(from),
            "to": to,
            "groups": counts.iter().sum::<f64>() as u64,
            "incomplete": incomplete,
            "missing": named,
            "more": more,
            "arrays": {"multiplicity": answer.array(&[counts.len()], &counts)},
        });
        if let Value::Object(facts) = facts {
            object.extend(facts);
        }
        Ok(())
    }
}

/// The names of the members: from the parameters that the worker of the stream got last; where its stream of tasks does
/// not hold these any more, from the instrument file.
fn members(data: &Data, worker: &str) -> Vec<String> {
    let of = |texts: &mut dyn Iterator<Item = &str>| -> Vec<String> {
        texts.flat_map(|text| settings::expanded(text, 1 << 16).unwrap_or_default()).collect()
    };
    if let Some(parameters) = parameters(data, worker) {
        return of(&mut parameters["members"].as_array().into_iter().flatten().filter_map(Value::as_str));
    }
    let file = text(&data.folder.join(SETTINGS)).ok().and_then(|text| text.parse::<DocumentMut>().ok());
    let path = ["worker", worker, "parameters", "members"];
    let members = file.as_ref().and_then(|file| path.iter().try_fold(file.as_item(), |item, key| item.get(key)));
    of(&mut members.and_then(Item::as_array).into_iter().flatten().filter_map(toml_edit::Value::as_str))
}

/// The parameters that a worker got last.
fn parameters(data: &Data, worker: &str) -> Option<Value> {
    let mut reader = data.reader_early(&tasks_of(worker)).ok()?;
    let (first, end) = (reader.bounds().first, reader.end());
    let newest = end.saturating_sub(SLICE).max(first)..end;
    // A slot gets its parameters before its first task.
    let oldest = first..newest.start.min(first + SLICE);
    for sequence in newest.rev().chain(oldest.rev()) {
        let Ok(Some((_, bytes))) = reader.get(sequence) else { continue };
        let Ok(task) = wire::bptk::read(&bytes) else { continue };
        if task.command == "configure" {
            return serde_json::from_str(task.arguments).ok();
        }
    }
    None
}
