//! Variables and constants of a module with arrays.

use super::Check;
use super::keys::kind_of;
use crate::hdf::names::join;
use crate::hdf::value::DataType;
use crate::limits::ROW_BYTES_MAX;
use crate::template::json::{Object, Value};
use crate::template::{Variable, words};

impl Check {
    /// The variables or constants of a module, a list under `key`.
    pub(super) fn variables(&mut self, at: &str, config: &Object, key: &str) -> Vec<Variable> {
        let at = join(at, key);
        let list = match config.get(key) {
            None => return Vec::new(),
            Some(Value::List(list)) => list,
            Some(other) => {
                let cause = format!("`{key}` is a list, this is {}", kind_of(other));
                self.wrong(&at, cause, format!("write \"{key}\": [{{\"name\": \"signal\"}}]"));
                self.lost.insert(self.here.clone());
                return Vec::new();
            }
        };
        let mut out = Vec::new();
        for (i, one) in list.iter().enumerate() {
            let at = join(&at, i);
            if !self.count(&at) {
                break;
            }
            let Some(one) = self.object(&at, one, "a variable", words::VARIABLE, words::OBSOLETE) else {
                continue;
            };
            out.push(self.variable(&at, one, key));
        }
        out
    }

    /// One of the list under `key`.
    fn variable(&mut self, at: &str, one: &Object, key: &str) -> Variable {
        let name = self.name_or_any(at, one);
        let dtype = self.data_type(at, one, ["data_type", "data_type"]);
        if dtype == Some(DataType::Text) && key == "variables" {
            let hint = "write a type of numbers, such as \"double\", or make it one of `constants`";
            self.wrong(&join(at, "data_type"), "a growing dataset holds numbers", hint);
        }
        let axes = one.get("axes").map(|axes| {
            let list: Option<Vec<String>> = axes
                .as_list()
                .and_then(|l| l.iter().map(|a| a.as_str().filter(|a| !a.contains('\0')).map(str::to_owned)).collect());
            list.unwrap_or_else(|| {
                self.wrong(&join(at, "axes"), "`axes` is a list of texts", "write \"axes\": [\"x\", \"tof\"]");
                Vec::new()
            })
        });
        let shape = one.get("shape").and_then(|s| self.shape(&join(at, "shape"), Some(s), 1, ROW_BYTES_MAX / 8));
        if let (Some(axes), Some(shape)) = (&axes, &shape)
            && axes.len() != shape.len()
        {
            self.wrong(at, format!("{} axes and {} lengths", axes.len(), shape.len()), "one name for each dimension");
        }
        let data = one.get("data").and_then(|data| {
            if key == "variables" {
                self.wrong(&join(at, "data"), "a variable has its values from messages", "constants may have `data`");
                return None;
            }
            self.constant(&join(at, "data"), data, dtype, shape.as_ref())
        });
        let (unit, label) = (self.text(at, one, ["unit", "unit"]), self.text(at, one, ["label", "label"]));
        self.text(at, one, ["source", "source"]);
        Variable { name, unit: unit.map(str::to_owned), label: label.map(str::to_owned), dtype, axes, shape, data }
    }
}
