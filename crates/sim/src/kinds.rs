//! The kind `sim`: its keys and those of the models, and how a section is read.

use crate::Kind;
use crate::plan::{Config, Plan, Recording};
use flow::edge::{Host, MoreKeys, Provenance, Sends, SourceKind, SourcePlan};
use flow::{Fault, Source};
use serde_json::Value as Json;
use settings::units::{self, Refused, shortened};
use settings::{Key, Origin, Section, Setting, key, nearest, required};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use toml_edit::{Item, Value};

static MODEL: Key =
    required("model", "name of a model", "What is simulated. Each model has more keys: the table below.");
static FROM: Key = key(
    "from",
    "path of a NeXus file",
    "",
    "For model `histogram`: events are drawn from the histogram measured in this file.",
);
static FILES: Key = key(
    "files",
    "list of paths",
    "",
    "For model `camera`: files whose frames it sends in turn, numpy arrays (`.npy`) or plain numbers.",
);

/// The kind `sim`.
pub static SOURCE: SourceKind = SourceKind {
    name: "sim",
    about: "A simulated instrument.",
    keys: &[&MODEL, &FROM, &FILES],
    read,
    more: Some(&MoreKeys { reference, owner }),
};

impl SourcePlan for Plan {
    fn prepare(&self, host: &dyn Host) -> Result<(), Fault> {
        let mut config = self.config.clone();
        if let Some(from) = &self.from {
            config.histogram = Some(host.histogram(from)?);
        }
        for path in self.files.iter().flatten() {
            let name = path.display().to_string();
            config.files.push(Recording { name, bytes: Arc::new(host.map(path)?) });
        }
        // A second call would load the same.
        self.loaded.get_or_init(|| config);
        Ok(())
    }

    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        crate::build(self.config())
    }

    fn sends(&self) -> Option<Sends> {
        let model = crate::model(&self.config.model).ok()?;
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Some(Sends {
            maker: format!("the model `{}`", model.name),
            schemas: texts(model.schemas()),
            variables: texts(model.variables()),
            origins: crate::origins(&self.config),
            units: model.devices().map(|(name, unit)| (name.to_owned(), unit.to_owned())).collect(),
        })
    }

    fn message_bytes(&self) -> Option<u64> {
        // Files say how large their frames are, and they are not loaded yet.
        crate::message_bytes(&self.config).filter(|_| self.files.is_none())
    }

    fn bytes_per_second(&self) -> Option<f64> {
        self.files.is_none().then(|| crate::bytes_per_second(&self.config)).flatten()
    }

    fn provenance(&self) -> Result<Option<Provenance>, Fault> {
        let value = crate::truth(self.config())?;
        Ok(Some(Provenance { group: "simulated", value }))
    }
}

/// Reads a section. Nothing can be built of an unknown model.
fn read(_: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let model: Setting<String> = section.need(&MODEL);
    let config = configure(section, &model);
    if config.is_none() {
        if !model.is_empty() {
            section.refuse(&MODEL, wrong_model(&model));
        }
        // Which keys belong to the model is not known.
        section.allow(models().iter().flat_map(|model| keys_of(model)).map(|key| key.name));
    }
    let (from, files) = (section.path(&FROM), section.get::<Vec<String>>(&FILES));
    let config = config?;
    check_from(section, &model, from.as_ref());
    let files = files.and_then(|files| frames(section, &files, &model));
    let from = from.map(|from| from.value);
    Some(Arc::new(Plan { config, from, files, loaded: OnceLock::new() }))
}

fn check_from(section: &mut Section<'_>, model: &str, from: Option<&Setting<PathBuf>>) {
    let needs_from = model == "histogram";
    match from {
        Some(from) if !from.is_file() => section.refuse(
            &FROM,
            Refused::new(format!("no file {}", from.display()), "write a path relative to the instrument file"),
        ),
        Some(_) if !needs_from => section.refuse(
            &FROM,
            Refused::new(format!("model `{model}` reads no file"), "write model = \"histogram\", or remove `from`"),
        ),
        None if needs_from && !section.has(&FROM) => {
            let line = section.line;
            section.mistake(
                line,
                format!("`from` is missing in {}", section.title),
                "model `histogram` draws events from a measured file",
                "add `from = \"FILE.nxs\"`",
            );
        }
        _ => {}
    }
}

/// The files of a camera; what is in them is looked at when they are mapped.
fn frames(section: &mut Section<'_>, files: &[String], model: &str) -> Option<Vec<PathBuf>> {
    let files: Vec<PathBuf> = files.iter().map(|file| section.folder.join(file)).collect();
    let missing = files.iter().find(|file| !file.is_file()).map(|file| file.display().to_string());
    let refused = if model != "camera" {
        Refused::new(format!("model `{model}` has no frames"), "write model = \"camera\", or remove `files`")
    } else if files.is_empty() {
        Refused::new("the list is empty", "remove it to generate frames")
    } else if let Some(missing) = missing {
        Refused::new(format!("no file {missing}"), "write a path relative to the instrument file")
    } else {
        return Some(files);
    };
    section.refuse(&FILES, refused);
    None
}

/// The models that have a key, in words.
fn owner(name: &str) -> Option<String> {
    let with = models_with(name);
    (!with.is_empty()).then(|| format!("the models {}", with.join(", ")))
}

/// Names of the models.
fn models() -> Vec<&'static str> {
    crate::models().iter().map(|model| model.name).collect()
}

/// The keys of one model; none for a name that is no model.
fn keys_of(model: &str) -> Vec<&'static crate::Key> {
    crate::models().iter().find(|other| other.name == model).map(|model| model.keys().collect()).unwrap_or_default()
}

/// The models that have a key.
fn models_with(key: &str) -> Vec<&'static str> {
    crate::models().iter().filter(|model| model.keys().any(|other| other.name == key)).map(|model| model.name).collect()
}

/// The values of a key of a model, in the words of the reference page.
fn takes(key: &crate::Key) -> String {
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
fn configure(section: &mut Section<'_>, model: &str) -> Option<Config> {
    let mut config = Config::new(model).ok()?;
    for key in keys_of(model) {
        section.allow([key.name]);
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
                        format!("remove it for `{default}`")
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
    let (rate, most) = (config.events_per_second(), crate::limits::RATE_MAX);
    if rate > most {
        let cause = format!("`rate` times `scale` is {rate:e} events per second, the maximum is {most:e}");
        section.refuse_named("scale", "number", Refused::new(cause, "lower one of them"));
    }
    Some(config)
}

/// The model that was probably meant.
fn wrong_model(model: &str) -> Refused {
    let models = models();
    let hint = nearest(model, models.iter().copied())
        .map_or_else(|| format!("write one of {}", models.join(", ")), |near| format!("did you mean `{near}`?"));
    Refused::new(format!("unknown model `{}`", shortened(model)), hint)
}

/// A TOML value as JSON. Times must have a unit; numbers may stand in quotes, as in `"1e6"`.
fn plain(item: &Item, key: &crate::Key) -> Result<Json, Refused> {
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
                .map_err(|_| Refused::new(format!("`{}` is not a number", shortened(text.value())), ""))?;
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
fn reference() -> String {
    let all = models();
    let mut rows: Vec<(&'static crate::Key, Vec<&'static str>)> = Vec::new();
    for model in crate::models() {
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
    for model in crate::models() {
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
