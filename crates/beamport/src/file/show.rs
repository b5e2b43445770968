//! The resolved file as `check --show` prints it: every value with its origin.

use super::{
    HOSTS, HostSection, Instrument, MIRROR, MirrorSection, PAGE, RunSection, SinkSection, Stage, is_hosts_sink,
};
use serde_json::{Value as Json, json};
use settings::{Origin, Shown};
use std::collections::HashSet;
use std::fmt::Write as _;

/// One section on the way out.
struct Part<'a> {
    kind: &'static str,
    name: &'a str,
    line: u32,
    shown: &'a [Shown],
}

impl Instrument {
    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        // A merge whose output is a copy is two stages and one section.
        let copies: HashSet<&str> = self.merges().filter_map(|merge| merge.copied.as_deref()).collect();
        let is_added = |stage: &Stage| stage.source().is_some_and(|source| source.kind == MIRROR);
        let is_written = move |stage: &&Stage| stage.merge().is_some() || !copies.contains(stage.name());
        // The part of a host has stages that no section names.
        let written =
            self.stages.iter().filter(move |stage| !is_added(stage) && !is_hosts_sink(stage.name())).filter(is_written);
        let stages = written.map(|stage| Part {
            kind: stage.kind(),
            name: stage.merge().and_then(|merge| merge.copied.as_deref()).unwrap_or(stage.name()),
            line: stage.line(),
            shown: stage.shown(),
        });
        let sinks = self
            .sinks
            .iter()
            .filter(|sink| sink.is_first())
            .map(|SinkSection { name, line, shown, .. }| Part { kind: "sink", name, line: *line, shown });
        let runs =
            self.runs.iter().map(|RunSection { name, line, shown, .. }| Part { kind: "run", name, line: *line, shown });
        let hosts = self.hosts.iter().flat_map(|hosts| &hosts.all);
        let hosts = hosts.map(|HostSection { name, line, shown, .. }| Part { kind: "host", name, line: *line, shown });
        let mirrors = self.hosts.iter().flat_map(|hosts| &hosts.mirrors);
        let mirrors =
            mirrors.map(|MirrorSection { name, line, shown, .. }| Part { kind: "mirror", name, line: *line, shown });
        hosts.chain(mirrors).chain(stages).chain(sinks).chain(runs)
    }

    /// The resolved file as TOML, each line with `# default` or `# FILE:LINE`. It reads back to the same instrument.
    #[must_use]
    pub fn show(&self) -> String {
        let file = self.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mut lines = rows(&self.shown, &file);
        if let Some(hosts) = &self.hosts {
            lines.push((String::new(), String::new()));
            lines.push((format!("[{HOSTS}]"), format!("{file}:{}", hosts.line)));
            lines.extend(rows(&hosts.shown, &file));
        }
        for part in self.parts() {
            lines.push((String::new(), String::new()));
            lines.push((format!("[{}.{}]", part.kind, part.name), format!("{file}:{}", part.line)));
            lines.extend(rows(part.shown, &file));
        }
        if let Some((line, shown)) = &self.shown_page {
            lines.push((String::new(), String::new()));
            lines.push((format!("[{PAGE}]"), format!("{file}:{line}")));
            lines.extend(rows(shown, &file));
        }
        // Remarks in one column, but a long path does not push all others off the screen.
        let width = lines.iter().map(|(text, _)| text.chars().count()).filter(|width| *width <= 48).max().unwrap_or(0);
        let mut out = String::new();
        for (text, origin) in lines {
            let _ = if text.is_empty() { writeln!(out) } else { writeln!(out, "{text:width$}  # {origin}") };
        }
        out
    }

    /// The same as JSON: `{"instrument":NAME,"settings":{KEY:{"value":..,"line":N or null}},"sections":[{"kind","name","line","settings"}]}`.
    #[must_use]
    pub fn show_json(&self) -> Json {
        let section = |kind: &str, name: Option<&str>, line: u32, shown: &[Shown]| {
            let settings = settings(shown);
            json!({"kind": kind, "name": name, "line": line, "settings": settings})
        };
        let named = self.parts().map(|part| section(part.kind, Some(part.name), part.line, part.shown));
        let page = self.shown_page.iter().map(|(line, shown)| section(PAGE, None, *line, shown));
        let hosts = self.hosts.iter().map(|hosts| section(HOSTS, None, hosts.line, &hosts.shown));
        let sections: Vec<Json> = hosts.chain(named).chain(page).collect();
        json!({"instrument": *self.name, "settings": settings(&self.shown), "sections": sections})
    }
}

fn rows(shown: &[Shown], file: &str) -> Vec<(String, String)> {
    let origin = |shown: &Shown| match shown.origin {
        Origin::Default => "default".to_owned(),
        Origin::Line(line) => format!("{file}:{line}"),
    };
    shown.iter().map(|shown| (format!("{} = {}", shown.key, toml_text(&shown.value)), origin(shown))).collect()
}

fn settings(shown: &[Shown]) -> Json {
    let line = |shown: &Shown| match shown.origin {
        Origin::Default => Json::Null,
        Origin::Line(line) => line.into(),
    };
    Json::Object(
        shown.iter().map(|shown| (shown.key.to_string(), json!({"value": shown.value, "line": line(shown)}))).collect(),
    )
}

pub(crate) fn toml_text(value: &Json) -> String {
    match value {
        Json::String(text) => toml_edit::Value::from(text.as_str()).to_string(),
        Json::Object(map) => {
            let rows = map.iter().map(|(key, value)| format!("{} = {}", toml_edit::Key::new(key), toml_text(value)));
            format!("{{ {} }}", rows.collect::<Vec<_>>().join(", "))
        }
        Json::Array(list) => format!("[{}]", list.iter().map(toml_text).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
