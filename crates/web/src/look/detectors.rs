//! The detectors of an instrument, as the templates of its NeXus files have them: a group with events (`ev44`) in it
//! and a dataset `detector_number`. Their orientation and axes follow from the attribute `axes` and from the datasets
//! `x_pixel_offset` and `y_pixel_offset`; `pixel_mask` says which pixels are not to be trusted.
//!
//! `up` keeps a copy of each template in the data folder: a recording has its detectors wherever it lies, and whatever
//! the working folder of the server is.
//!
//! Failure behaviour: a template that is not there, too large or unusual gives no detectors; the page then counts
//! events by pixel number.

use super::grid::{Axis, Grid};
use crate::books::{SETTINGS, TEMPLATE_END, TEMPLATE_START, text};
use crate::limits::DETECTOR_PIXELS_MAX;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use toml_edit::DocumentMut;

/// Datasets that say where pixels lie, where `axes` does not name others.
const OFFSETS: [&str; 3] = ["x_pixel_offset", "y_pixel_offset", "z_pixel_offset"];

/// The detectors of an instrument.
#[derive(Default)]
pub(super) struct Detectors {
    /// When the settings were written that were read.
    written: Option<SystemTime>,
    known: Vec<Detector>,
}

/// A detector, and whose events it has.
struct Detector {
    stream: Option<String>,
    source: Option<String>,
    grid: Arc<Grid>,
}

impl Detectors {
    /// The pixels of the detector whose events a stream has. `origin`: who made them.
    pub(super) fn find(&mut self, folder: &Path, stream: &str, origin: &str) -> Option<Arc<Grid>> {
        let path = folder.join(SETTINGS);
        let written = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
        if written != self.written {
            self.written = written;
            self.known = text(&path).map(|settings| of_settings(folder, &settings)).unwrap_or_default();
        }
        let fits = |given: &Option<String>, name: &str| given.as_deref().is_none_or(|given| given == name);
        let named = self.known.iter().find(|one| fits(&one.source, origin) && fits(&one.stream, stream));
        // In templates of a facility, a stream has the name of a topic.
        let found = named.or_else(|| self.known.iter().find(|one| one.source.as_deref() == Some(origin)));
        found.map(|one| one.grid.clone())
    }
}

/// Those in the templates of the sinks of a resolved instrument file.
fn of_settings(folder: &Path, settings: &str) -> Vec<Detector> {
    let Ok(settings) = settings.parse::<DocumentMut>() else { return Vec::new() };
    let sinks = settings.get("sink").and_then(|sinks| sinks.as_table_like());
    let sinks = sinks.into_iter().flat_map(|sinks| sinks.iter());
    let templates = sinks.filter_map(|(name, sink)| {
        let kept = folder.join(format!("{TEMPLATE_START}{name}{TEMPLATE_END}"));
        let given = Path::new(sink.get("template")?.as_str()?);
        // A relative path was one of the working folder of `up`, which is not recorded.
        text(&kept).ok().or_else(|| given.is_absolute().then(|| text(given).ok())?)
    });
    let trees = templates.filter_map(|text| serde_json::from_str(&text).ok());
    trees.flat_map(|tree: Value| of_group(&tree).1).collect()
}

/// Stream and source of events.
type Events = (Option<String>, Option<String>);

/// The events in a group that have no shape yet, and the detectors.
fn of_group(group: &Value) -> (Vec<Events>, Vec<Detector>) {
    let (mut sources, mut all) = (Vec::new(), Vec::new());
    for child in group["children"].as_array().into_iter().flatten() {
        let config = &child["config"];
        match child["module"].as_str() {
            Some("ev44" | "ev42" | "ev43") => {
                let text = |key: &str| config[key].as_str().map(str::to_owned);
                sources.push((text("stream").or_else(|| text("topic")), text("source")));
            }
            _ => {
                let (more, detectors) = of_group(child);
                sources.extend(more);
                all.extend(detectors);
            }
        }
    }
    if let Some(grid) = grid_of(group).map(Arc::new) {
        all.extend(sources.drain(..).map(|(stream, source)| Detector { stream, source, grid: grid.clone() }));
    }
    (sources, all)
}

/// The dataset of a name in a group.
fn dataset<'a>(group: &'a Value, name: &str) -> Option<&'a Value> {
    let children = group["children"].as_array()?;
    children.iter().find(|child| child["module"] == "dataset" && child["config"]["name"] == name)
}

/// The value of an attribute, in either form that a template may have.
fn attribute<'a>(of: &'a Value, name: &str) -> Option<&'a Value> {
    match &of["attributes"] {
        Value::Array(all) => all.iter().find(|one| one["name"] == name).map(|one| &one["values"]),
        all => all.get(name),
    }
}

/// The pixels of a group with `detector_number`. Of more than two dimensions all but the last one are rows.
fn grid_of(group: &Value) -> Option<Grid> {
    let numbers = Numbers::of(&dataset(group, "detector_number")?["config"])?;
    let whole = numbers.values.iter().map(|value| Some(*value as i32).filter(|id| f64::from(*id) == *value));
    let ids: Vec<i32> = whole.collect::<Option<_>>()?;
    let (columns, rows) = numbers.shape.split_last()?;
    let shape = [rows.iter().product(), *columns];
    let mut grid = Grid::of_numbers(shape, ids)?;
    if let Some(mask) = dataset(group, "pixel_mask").and_then(|mask| Numbers::of(&mask["config"])) {
        grid.set_mask(mask.values.iter().map(|value| *value != 0.0).collect());
    }
    if let [rows, columns] = numbers.shape[..] {
        let axes = [0, 1].map(|dimension| axis_of(group, dimension, [rows, columns]));
        // `x` runs to the right and `y` up, however they lie in the array.
        let is = |axis: &Axis, letter: char| axis.name.starts_with(letter);
        let is_turned = is(&axes[0], 'x') && !is(&axes[1], 'x') || is(&axes[1], 'y') && !is(&axes[0], 'y');
        grid.set_axes(axes);
        if is_turned {
            grid.transpose();
        }
        grid.raise_up();
    }
    Some(grid)
}

/// The axis of a dimension of `detector_number`: named by `axes` of the group, else by the pixel offsets that it has.
fn axis_of(group: &Value, dimension: usize, shape: [usize; 2]) -> Axis {
    let names = attribute(group, "axes").and_then(Value::as_array);
    let places = attribute(group, "detector_number_indices").and_then(Value::as_array);
    // Of more names than dimensions, the last ones are those of a pixel: before them are those of time, for example.
    let before = names.map_or(0, |names| names.len().saturating_sub(shape.len()));
    let place = places.and_then(|places| places.get(dimension)?.as_u64());
    let place = place.map_or(before + dimension, |place| place as usize);
    let named = names.and_then(|names| names.get(place)?.as_str()).filter(|name| *name != ".");
    let candidates = named.map_or(OFFSETS.to_vec(), |name| vec![name]);
    let read = |name: &str| Some((name.to_owned(), along(group, name, dimension, shape, named.is_some())?));
    let (name, values) = candidates.into_iter().find_map(read).unwrap_or_else(|| {
        // The name alone says how the picture stands.
        (named.unwrap_or_default().to_owned(), Vec::new())
    });
    let unit = dataset(group, &name).and_then(|dataset| attribute(dataset, "units")?.as_str()).map(str::to_owned);
    Axis { name, unit, values }
}

/// The values of a dataset along a dimension of a plane; none where they lie along the other one, or change with both.
fn along(group: &Value, name: &str, dimension: usize, shape: [usize; 2], is_named: bool) -> Option<Vec<f64>> {
    let Numbers { shape: lengths, values } = Numbers::of(&dataset(group, name)?["config"])?;
    if lengths == [shape[dimension]] {
        let indices = attribute(group, &format!("{name}_indices"));
        let own = indices.and_then(|own| own.as_u64().or_else(|| own.as_array()?.first()?.as_u64()));
        // Of a square, either side has this length.
        let is_along = own.map_or(shape[0] != shape[1], |own| own == dimension as u64);
        return (is_named || is_along).then_some(values);
    }
    let at = |row: usize, column: usize| values[row * shape[1] + column];
    let of = |place: usize| if dimension == 0 { at(place, 0) } else { at(0, place) };
    if lengths != shape || shape[dimension] > 1 && of(0) == of(shape[dimension] - 1) {
        return None;
    }
    let is_close = |row: usize, column: usize| {
        let value = of(if dimension == 0 { row } else { column });
        (at(row, column) - value).abs() <= 1e-9 * value.abs()
    };
    let is_axis = (0..shape[0]).all(|row| (0..shape[1]).all(|column| is_close(row, column)));
    is_axis.then(|| (0..shape[dimension]).map(of).collect())
}

/// The numbers of a dataset in C order.
struct Numbers {
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Numbers {
    /// Of `values`, `range` or `linspace`; none of more than a detector has.
    fn of(config: &Value) -> Option<Self> {
        for (key, is_range) in [("range", true), ("linspace", false)] {
            let made = &config[key];
            if !made.is_object() {
                continue;
            }
            let lengths = made["shape"].as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()?;
            let all = lengths.iter().try_fold(1_u64, |all, length| all.checked_mul(*length))?;
            let is_fit = all > 0 && all <= DETECTOR_PIXELS_MAX as u64;
            let shape = is_fit.then(|| lengths.iter().map(|length| *length as usize).collect())?;
            let first = made["first"].as_f64()?;
            let step = match is_range {
                true => made["step"].as_f64().unwrap_or(1.0),
                false => (made["last"].as_f64()? - first) / all.saturating_sub(1).max(1) as f64,
            };
            return Some(Self { shape, values: (0..all).map(|at| first + at as f64 * step).collect() });
        }
        let (mut shape, mut values) = (Vec::new(), Vec::new());
        flatten(&config["values"], 0, &mut shape, &mut values)?;
        let is_whole = !values.is_empty() && shape.iter().product::<usize>() == values.len();
        (is_whole && values.len() <= DETECTOR_PIXELS_MAX as usize).then_some(Self { shape, values })
    }
}

/// The numbers in nested lists, and the length of the first list of each depth.
fn flatten(value: &Value, depth: usize, shape: &mut Vec<usize>, numbers: &mut Vec<f64>) -> Option<()> {
    let Some(list) = value.as_array() else {
        numbers.push(value.as_f64()?);
        return Some(());
    };
    if shape.len() == depth {
        shape.push(list.len());
    }
    // A list of another length is no row of this array.
    (shape[depth] == list.len()).then_some(())?;
    list.iter().try_for_each(|value| flatten(value, depth + 1, shape, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(detector: Value) -> Value {
        json!({"children": [{"type": "group", "name": "detector", "children": detector["children"],
            "attributes": detector["attributes"]}]})
    }

    fn grid(detector: Value) -> Option<Arc<Grid>> {
        of_group(&template(detector)).1.pop().map(|one| one.grid)
    }

    fn data(name: &str, values: Value) -> Value {
        json!({"module": "dataset", "config": {"name": name, "dtype": "double", "values": values}})
    }

    fn events() -> Value {
        json!({"type": "group", "name": "events", "children": [{"module": "ev44", "config": {"source": "d"}}]})
    }

    /// The pixel numbers of a picture, row by row.
    fn ids(grid: &Grid) -> Vec<i64> {
        let ([rows, columns], [down, right]) = (grid.shape(), grid.steps().unwrap());
        let id = |row: usize, column: usize| i64::from(grid.first()) + row as i64 * down + column as i64 * right;
        (0..rows).flat_map(|row| (0..columns).map(move |column| id(row, column))).collect()
    }

    #[test]
    fn the_detector_of_the_reflectometer_stands_upright_with_its_axes() {
        let folder = std::env::temp_dir().join(format!("beamport-detectors-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/amor.nexus.json");
        // The instrument file is elsewhere, and so is the server.
        std::fs::write(folder.join(SETTINGS), "[sink.file]\ntemplate = \"elsewhere/amor.nexus.json\"\n").unwrap();
        let mut detectors = Detectors::default();
        assert_eq!(detectors.find(&folder, "detector", "amor_detector"), None);
        std::fs::copy(template, folder.join(format!("{TEMPLATE_START}file{TEMPLATE_END}"))).unwrap();
        let mut detectors = Detectors::default();
        let found = detectors.find(&folder, "detector", "amor_detector").unwrap();
        // Pixel = 1 + x * 256 + y: the largest y is at the top.
        assert_eq!((found.shape(), found.first(), found.steps()), ([256, 128], 256, Some([-1, 256])));
        let [rows, columns] = found.axes().unwrap();
        assert_eq!((&*rows.name, &*columns.name), ("y_pixel_offset", "x_pixel_offset"));
        assert_eq!((rows.unit.as_deref(), columns.unit.as_deref()), (Some("m"), Some("m")));
        assert_eq!((rows.values[0], columns.values[0]), (0.094_628_906_25, -0.085_328_125));
        assert!(detectors.find(&folder, "detector", "another").is_none());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(detectors.find(&folder, "detector", "amor_detector").is_none());
    }

    #[test]
    fn a_template_with_an_absolute_path_needs_no_copy() {
        let folder = std::env::temp_dir().join(format!("beamport-absolute-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/amor.nexus.json");
        std::fs::write(folder.join(SETTINGS), format!("[sink.file]\ntemplate = \"{template}\"\n")).unwrap();
        assert!(Detectors::default().find(&folder, "detector", "amor_detector").is_some());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn numbers_rule_the_shape_whatever_their_order() {
        let of = |values: Value| grid(json!({"children": [data("detector_number", values), events()]}));
        let shape = |values: Value| of(values).map(|grid| (grid.shape(), grid.first()));
        assert_eq!(shape(json!([[5, 6, 7], [8, 9, 10]])), Some(([2, 3], 5)));
        assert_eq!(shape(json!([1, 2, 3])), Some(([1, 3], 1)));
        assert_eq!(shape(json!([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])), Some(([4, 2], 1)));
        assert_eq!(shape(json!([[1, 2], [4, 5]])), Some(([2, 2], 1)));
        for values in [json!([[1, 2], [3]]), json!([]), json!([[]]), json!(7.5), json!([[1, "x"]]), json!(null)] {
            assert_eq!(shape(values.clone()), None, "{values}");
        }
        assert_eq!(of(json!([[4, 2], [3, 1]])).map(|grid| ids(&grid)), Some(vec![4, 2, 3, 1]));
        // Without a rule of steps a pixel still has its events.
        let grid = of(json!([[9, 2], [7, 100]])).unwrap();
        assert_eq!(grid.steps(), None);
        assert_eq!(grid.count(&[100, 100, 9, 8]), ([1_u32, 0, 0, 2].map(u32::to_le_bytes).concat(), 1));
    }

    #[test]
    fn a_picture_stands_as_its_offsets_say() {
        let numbers = data("detector_number", json!([[1, 2, 3], [4, 5, 6]]));
        let of = |attributes: Value, x: Value, y: Value| {
            let children = json!([numbers, data("x_pixel_offset", x), data("y_pixel_offset", y), events()]);
            ids(&grid(json!({"attributes": attributes, "children": children})).unwrap())
        };
        // Rows are y: the larger one is above.
        assert_eq!(of(json!({}), json!([0, 1, 2]), json!([0, 1])), [4, 5, 6, 1, 2, 3]);
        assert_eq!(of(json!({}), json!([0, 1, 2]), json!([1, 0])), [1, 2, 3, 4, 5, 6]);
        assert_eq!(of(json!({}), json!([2, 1, 0]), json!([1, 0])), [3, 2, 1, 6, 5, 4]);
        // Rows are x.
        assert_eq!(of(json!({}), json!([0, 1]), json!([0, 1, 2])), [3, 6, 2, 5, 1, 4]);
        let plane = json!([[0, 0, 0], [1, 1, 1]]);
        let other = json!([[0, 1, 2], [0, 1, 2]]);
        assert_eq!(of(json!({}), plane.clone(), other.clone()), [3, 6, 2, 5, 1, 4]);
        assert_eq!(of(json!({}), other, plane), [4, 5, 6, 1, 2, 3]);
        // `axes` rules, also as a list of attributes; its names alone say how the picture stands.
        let axes = json!([{"name": "axes", "values": ["x", "y"]}]);
        assert_eq!(of(axes, json!(null), json!(null)), [1, 4, 2, 5, 3, 6]);
        // The axes of data of each time: the last two are those of the pixels.
        let axes = json!({"axes": ["time", "x", "y"]});
        assert_eq!(of(axes, json!(null), json!(null)), [1, 4, 2, 5, 3, 6]);
        // Offsets that change with both dimensions are no axes: the picture has the order of the array.
        let [x, y] = [json!([[0, 1, 2], [1, 2, 3]]), json!([[0, 0.5, 1], [1, 1.5, 2]])];
        assert_eq!(of(json!({}), x, y), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_masked_pixel_has_no_count_and_its_events_are_in_the_detector() {
        let numbers = data("detector_number", json!([[1, 2], [3, 4]]));
        let mask = data("pixel_mask", json!([[0, 1], [0, 0]]));
        let grid = grid(json!({"children": [numbers, mask, events()]})).unwrap();
        let (bytes, outside) = grid.count(&[2, 2, 3, 5]);
        let counts: Vec<f32> = bytes.chunks(4).map(|one| f32::from_le_bytes(one.try_into().unwrap())).collect();
        assert_eq!((counts[0], counts[1].is_nan(), counts[2], counts[3], outside), (0.0, true, 1.0, 0.0, 1));
    }
}
