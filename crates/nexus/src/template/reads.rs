//! The modules of a template that read streams, before anything is checked: the instrument file is compared with them, also
//! where the template has mistakes.

use super::json::{Object, Value, first_of};
use super::words::WITHOUT_STREAM;
use crate::hdf::names::join;
use crate::limits::{MODULES_MAX, NODES_MAX, STREAMS_MAX};
use flow::checked::{ConfigText, StreamModule};

/// The modules in the order of the text. A list that is longer than a template may have ends there: the check refuses it.
pub(super) fn modules(root: &Value) -> Vec<StreamModule> {
    let mut list = List { modules: Vec::new(), variables: 0 };
    list.collect(root, "");
    list.modules
}

struct List {
    modules: Vec<StreamModule>,
    variables: usize,
}

impl List {
    /// JSON nests at most 128 deep, and this as deep.
    fn collect(&mut self, node: &Value, at: &str) {
        let Some(node) = node.as_object() else { return };
        if self.modules.len() < MODULES_MAX
            && let (Some(module), Some(config)) = (text(node, "module"), node.get("config").and_then(Value::as_object))
            && !WITHOUT_STREAM.contains(&module)
            && let Some((key, streams)) = first_of(config, ["stream", "topic"])
        {
            let pointer = join(at, "config");
            let module = StreamModule {
                pointer,
                module: module.to_owned(),
                key: key.to_owned(),
                streams: texts(streams),
                source: text(config, "source").map(str::to_owned),
                units: first_of(config, ["value_units", "unit"]).and_then(|(key, value)| config_text(key, value)),
                variables: [self.variables(config, "variables"), self.variables(config, "constants")].concat(),
            };
            self.modules.push(module);
        }
        let children = node.get("children").and_then(Value::as_list).unwrap_or_default();
        let at = join(at, "children");
        for (i, child) in children.iter().enumerate() {
            self.collect(child, &join(&at, i));
        }
    }

    /// Those whose values come from messages: constants may have theirs in the template.
    fn variables(&mut self, config: &Object, key: &str) -> Vec<ConfigText> {
        let list = config.get(key).and_then(Value::as_list).unwrap_or_default();
        let named = list.iter().enumerate().filter_map(|(i, one)| {
            let one = one.as_object().filter(|one| !one.has("data"))?;
            config_text(&format!("{key}/{i}/name"), one.get("name")?)
        });
        let names: Vec<ConfigText> = named.take(NODES_MAX.saturating_sub(self.variables)).collect();
        self.variables += names.len();
        names
    }
}

fn config_text(key: &str, value: &Value) -> Option<ConfigText> {
    Some(ConfigText { key: key.to_owned(), text: value.as_str()?.to_owned() })
}

fn text<'v>(map: &'v Object, key: &str) -> Option<&'v str> {
    map.get(key).and_then(Value::as_str)
}

/// One text, or the texts of a list.
fn texts(value: &Value) -> Vec<String> {
    let list = value.as_list().unwrap_or(std::slice::from_ref(value));
    list.iter().filter_map(Value::as_str).take(STREAMS_MAX).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<StreamModule> {
        let (value, _) = super::super::json::read(text.as_bytes()).unwrap_or_else(|_| panic!("{text}"));
        modules(&value)
    }

    #[test]
    fn streams_are_found_only_where_a_module_reads_one() {
        let text = r#"{"children": [
  {"type": "group", "name": "entry", "attributes": {"stream": "no"}, "children": [
    {"module": "mdat", "config": {"items": ["start_time"], "topic": "unread"}},
    {"module": "dataset", "config": {"name": "topic", "values": "stream"}},
    {"type": "group", "name": "a", "children": [{"module": "ev44", "config": {
      "topic": "passed over",
      "stream" : "detector"}}]},
    {"module": "f144", "config": {"topic": "d\u0065vices", "source": "T", "unit": "K"}},
    {"module": "mine", "config": {"stream": ["detector",
       "monitor"], "source": 7}}]}]}"#;
        let of = |text: &str| {
            let shown = |one: StreamModule| format!("{} {} {}", one.pointer, one.key, one.streams.join(" "));
            found(text).into_iter().map(shown).collect::<Vec<_>>()
        };
        let at = "/children/0/children";
        let others = [format!("{at}/3/config topic devices"), format!("{at}/4/config stream detector monitor")];
        let detector = |streams: &str| format!("{at}/2/children/0/config stream{streams}");
        assert_eq!(of(text), [&[detector(" detector")], &others[..]].concat());
        // The check tells of another form, which hides no other stream.
        let other = text.replace("\"stream\" : \"detector\"", "\"stream\" : {}, \"stream\": 7");
        assert_eq!(of(&other), [&[detector(" ")], &others[..]].concat());
        let devices = &found(text)[1];
        let units = ConfigText { key: "unit".into(), text: "K".into() };
        assert_eq!((devices.source.as_deref(), &devices.units), (Some("T"), &Some(units)));
        assert_eq!((found(text)[2].source.clone(), found(text)[2].units.clone()), (None, None));
    }

    #[test]
    fn variables_of_messages_are_found_and_constants_of_the_template_are_not() {
        let text = r#"{"children": [{"module": "da00", "config": {"stream": "m",
            "variables": [{"name": "signal"}, {"name": 7}],
            "constants": [{"name": "tof"}, {"name": "x", "data": [1, 2]}]}}]}"#;
        let all: Vec<(String, String)> =
            found(text).remove(0).variables.into_iter().map(|one| (one.key, one.text)).collect();
        let is = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        assert_eq!(all, [is("variables/0/name", "signal"), is("constants/0/name", "tof")]);
    }

    #[test]
    fn a_list_of_modules_ends_where_the_check_refuses_the_template() {
        let module = r#"{"module": "ev44", "config": {"stream": "d"}}"#;
        let text = format!(r#"{{"children": [{module}{}]}}"#, format!(",{module}").repeat(MODULES_MAX));
        assert_eq!(found(&text).len(), MODULES_MAX);
    }
}
