//! The models that a `sim` source can name, and their keys: the only place where the instrument file knows the crate `sim`.
//!
//! The crate has a table of keys for each model; here they become keys of `[source.NAME]` like any other.

use flow::checked::{ConfigText, StreamModule};
use serde_json::Value as Json;
use settings::nearest;
use settings::units::{self, Refused, shortened};
use settings::{Origin, Section};
use sim::Kind;
use toml_edit::{Item, Value};

/// Names of the models.
#[must_use]
pub fn models() -> Vec<&'static str> {
    sim::models().iter().map(|model| model.name).collect()
}

/// The keys of one model; none for a name that is no model.
pub(super) fn keys_of(model: &str) -> Vec<&'static sim::Key> {
    sim::models().iter().find(|other| other.name == model).map(|model| model.keys().collect()).unwrap_or_default()
}

/// The models that have a key.
pub(super) fn models_with(key: &str) -> Vec<&'static str> {
    sim::models().iter().filter(|model| model.keys().any(|other| other.name == key)).map(|model| model.name).collect()
}

/// What a key of a model takes, in the words of the reference page.
fn takes(key: &sim::Key) -> String {
    let noun = match key.kind {
        Kind::Number => "number".to_owned(),
        Kind::Whole => "whole number".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Time => "duration".to_owned(),
        Kind::Numbers => "list of numbers".to_owned(),
        Kind::Choice(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
    };
    if key.unit.is_empty() { noun } else { format!("{noun}, {}", key.unit) }
}

/// Sets the keys of a model from a section, noting mistakes; what nobody wrote keeps the model's default.
pub(super) fn configure(section: &mut Section<'_>, model: &str) -> Option<sim::Config> {
    let mut config = sim::Config::new(model).ok()?;
    for key in keys_of(model) {
        let Some(item) = section.table.get(key.name) else {
            let shown = match key.default {
                "" => continue,
                text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            };
            section.show(key.name, shown, Origin::Default);
            continue;
        };
        let line = section.line_of(key.name);
        let result = plain(item, key).and_then(|value| match config.set(key.name, &value) {
            Ok(()) => Ok(value),
            Err(fault) => {
                let hint = match (fault.hint.is_empty(), key.default) {
                    (true, default) if !default.is_empty() => {
                        format!("without the line it is `{default}`")
                    }
                    _ => fault.hint,
                };
                Err(Refused::new(if fault.cause.is_empty() { fault.what } else { fault.cause }, hint))
            }
        });
        match result {
            Ok(value) => section.show(key.name, value, Origin::Line(line)),
            Err(refused) => section.refuse_named(key.name, &takes(key), refused),
        }
    }
    let (rate, most) = (config.events_per_second(), sim::limits::RATE_MAX);
    if rate > most {
        let cause = format!("`rate` times `scale` is {rate:e} events a second, at most {most:e} can be made");
        section.refuse_named("scale", "number", Refused::new(cause, "write a smaller one of the two"));
    }
    Some(config)
}

/// What a module of a template wants and no source makes.
pub(super) struct Missing {
    /// The key of its `config` that asks for it, a JSON pointer without the first `/`.
    pub(super) key: String,
    pub(super) what: String,
    pub(super) cause: String,
    pub(super) hint: String,
}

/// What the source of a stream cannot give to a module of a template, where the source is simulated, so that it is known.
/// `sources` are those of all streams of the module.
pub(super) fn never_comes(reads: &StreamModule, sources: &[&sim::Config]) -> Vec<Missing> {
    // Schemas that mean the same as the one that a model makes.
    const ALIKE: [(&str, &str); 4] = [("ev42", "ev44"), ("f142", "f144"), ("senv", "se00"), ("hs00", "hs01")];
    let models: Vec<&str> = sources.iter().map(|source| source.model.as_str()).collect();
    let all: Vec<&sim::Model> = models.iter().filter_map(|name| sim::model(name).ok()).collect();
    let schema: Option<[u8; 4]> = reads.module.as_bytes().try_into().ok();
    // A module of somebody else takes what it says itself.
    if all.is_empty() || all.len() != reads.streams.len() || !schema.is_some_and(|schema| wire::KNOWN.contains(&schema))
    {
        return Vec::new();
    }
    let word = ALIKE.iter().find(|(old, _)| *old == reads.module).map_or(reads.module.as_str(), |(_, new)| new);
    let makes: Vec<&str> = all.iter().flat_map(|model| model.schemas()).copied().collect();
    let streams = shortened(&reads.streams.join(", "));
    let said = || format!("the model `{}` makes {}", models.join("`, `"), makes.join(", "));
    if !makes.contains(&word) {
        let what = format!("stream `{streams}` has nothing for the module `{}`", reads.module);
        let hint = "name another stream or another module, or remove it".into();
        return vec![Missing { key: reads.key.clone(), what, cause: said(), hint }];
    }
    let mut out = Vec::new();
    let sent: Vec<&str> = all.iter().flat_map(|model| model.variables()).copied().collect();
    for ConfigText { key, text: name } in &reads.variables {
        if word != "da00" || sent.contains(&name.as_str()) {
            continue;
        }
        let what = format!("messages of stream `{streams}` have no variable `{}`", shortened(name));
        let hint = match nearest(name, sent.iter().copied()) {
            Some(near) => format!("write `{near}`"),
            None => "it would never come: remove it".to_owned(),
        };
        let cause = format!("the model `{}` sends {}", models.join("`, `"), sent.join(", "));
        out.push(Missing { key: key.clone(), what, cause, hint });
    }
    if let Some(source) = reads.source.as_deref() {
        let origins: Vec<String> = sources.iter().flat_map(|source| sim::origins(source)).collect();
        if !origins.iter().any(|name| name == source) {
            let what = format!("stream `{streams}` has no origin `{}`", shortened(source));
            // Small letters: how words are compared.
            let small: Vec<String> = origins.iter().map(|name| name.to_lowercase()).collect();
            let near = nearest(source, small.iter().map(String::as_str));
            let meant = small.iter().position(|name| Some(name.as_str()) == near).map(|at| &origins[at]);
            let hint = match (meant, origins.as_slice()) {
                (Some(name), _) | (None, [name]) => format!("write `{name}`"),
                _ => format!("origins are {}", shortened(&origins.join(", "))),
            };
            out.push(Missing { key: "source".into(), what, cause: said(), hint });
        }
        let mut devices = all.iter().flat_map(|model| model.devices());
        if let (Some((_, unit)), Some(ConfigText { key, text: other })) =
            (devices.find(|(name, _)| *name == source), &reads.units)
            && other != unit
        {
            let what = format!("the values of `{source}` are not in `{}`", shortened(other));
            let hint = format!("write \"{key}\": \"{unit}\"");
            out.push(Missing { key: key.clone(), what, cause: format!("its source says `{unit}`"), hint });
        }
    }
    out
}

/// The model that was probably meant.
pub(super) fn wrong_model(model: &str) -> Refused {
    let models = models();
    let hint = nearest(model, models.iter().copied())
        .map_or_else(|| format!("write one of {}", models.join(", ")), |near| format!("write \"{near}\""));
    Refused::new(format!("unknown model `{}`", shortened(model)), hint)
}

/// A TOML value as JSON. Times must have a unit; numbers may stand in quotes, as in `"1e6"`.
fn plain(item: &Item, key: &sim::Key) -> Result<Json, Refused> {
    let value = item.as_value().ok_or_else(|| Refused::new("it is a table", ""))?;
    match (key.kind, value) {
        (Kind::Time, Value::Integer(n)) => Err(Refused::new(
            format!("`{}` has no unit", n.value()),
            format!("write a text with a unit, like `\"{} s\"`", n.value()),
        )),
        (Kind::Time, Value::String(text)) => {
            units::duration(text.value()).map(|duration| units::duration_text(duration).into())
        }
        (Kind::Number | Kind::Whole, Value::String(text)) => {
            let number: f64 = text
                .value()
                .trim()
                .parse()
                .map_err(|_| Refused::new(format!("`{}` is no number", shortened(text.value())), ""))?;
            // A whole number in the form `1e6` is a whole number.
            let whole = number.fract() == 0.0 && (0.0..=9e15).contains(&number);
            Ok(if whole && key.kind == Kind::Whole { (number as u64).into() } else { number.into() })
        }
        (_, value) => json_of(value),
    }
}

fn json_of(value: &Value) -> Result<Json, Refused> {
    Ok(match value {
        Value::String(text) => text.value().as_str().into(),
        Value::Integer(n) => (*n.value()).into(),
        Value::Float(n) => (*n.value()).into(),
        Value::Boolean(b) => (*b.value()).into(),
        // One level is all that any key takes; deeper lists become a mistake and never a deep recursion.
        Value::Array(list) if list.iter().all(|value| !value.is_array()) => {
            list.iter().map(json_of).collect::<Result<_, _>>()?
        }
        Value::Array(_) => return Err(Refused::new("it is a list of lists", "")),
        Value::Datetime(_) => return Err(Refused::new("it is a time", "")),
        Value::InlineTable(_) => return Err(Refused::new("it is a table", "")),
    })
}

/// The reference tables of the models and of their keys, as they stand in `docs/reference/instrument-file.md`.
#[must_use]
pub(super) fn reference() -> String {
    let all = models();
    let mut rows: Vec<(&'static sim::Key, Vec<&'static str>)> = Vec::new();
    for model in sim::models() {
        for key in model.keys() {
            match rows
                .iter_mut()
                .find(|(other, _)| other.name == key.name && other.default == key.default && other.about == key.about)
            {
                Some((_, models)) => models.push(model.name),
                // The same name with another default or meaning stands below its namesake.
                None => {
                    let at = rows.iter().rposition(|(other, _)| other.name == key.name).map_or(rows.len(), |at| at + 1);
                    rows.insert(at, (key, vec![model.name]));
                }
            }
        }
    }
    let mut page = String::from("## Models\n\n| model | what it is |\n|---|---|\n");
    for model in sim::models() {
        page.push_str(&format!("| {} | {} |\n", model.name, model.about));
    }
    page.push_str("\n## Keys of the models\n\n| key | takes | default | models | meaning |\n|---|---|---|---|---|\n");
    for (key, models) in rows {
        let default = if key.default.is_empty() { "-".to_owned() } else { format!("`{}`", key.default) };
        let models = if models.len() == all.len() { "all".to_owned() } else { models.join(", ") };
        page.push_str(&format!("| `{}` | {} | {default} | {models} | {} |\n", key.name, takes(key), key.about));
    }
    page
}
