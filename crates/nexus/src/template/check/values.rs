//! Values in a template: lists and rules, their types, shapes and limits.

use super::Check;
use super::keys::kind_of;
use crate::hdf::names::join;
use crate::hdf::value::{Data, DataType, Values, bounds, put_real, put_whole};
use crate::limits::{DATASET_BYTES_MAX, FIXED_BYTES_MAX, RANK_MAX, TEXTS_MAX};
use crate::template::json::{Numbers, Object, Value};
use serde_json::Number;
use wire::DType;

/// The hint where the file would hold too much from the beginning.
const TOO_LARGE: &str = "put it into a file beside this one, and link to that: \"file\" of a `link`";
/// The hint where a text is required.
const NO_TEXT: &str = "write texts in quotes, or give `dtype` a type of numbers";

impl Check {
    /// Values of a type: one, or nested lists of one shape.
    pub(super) fn data(&mut self, at: &str, value: &Value, dtype: DataType) -> Option<Data> {
        let mut shape = Vec::new();
        let mut level = value;
        while let Value::List(list) = level {
            shape.push(list.len() as u64);
            let Some(first) = list.first() else { break };
            level = first;
        }
        if let Value::Numbers(numbers) = level {
            shape.extend_from_slice(&numbers.borrow().shape);
        }
        if shape.len() > RANK_MAX {
            self.wrong(
                at,
                format!("lists nest deeper than {RANK_MAX}"),
                "HDF5 arrays have at most that many dimensions",
            );
            return None;
        }
        if let (Value::Numbers(numbers), DataType::Number(number)) = (value, dtype) {
            return match typed(numbers.take(), number) {
                Ok(bytes) => Some(Data { dtype, shape, values: Values::Bytes(bytes) }),
                Err((cause, hint)) => {
                    self.wrong(at, cause, hint);
                    None
                }
            };
        }
        let mut out = match dtype {
            DataType::Text => Values::Texts(Vec::new()),
            DataType::Number(_) => Values::Bytes(Vec::new()),
        };
        if let Err((cause, hint)) = flatten(value, &shape, dtype, &mut out) {
            self.wrong(at, cause, hint);
            return None;
        }
        Some(Data { dtype, shape, values: out })
    }

    /// The values of a `dataset`, written in one of three ways.
    pub(super) fn dataset(&mut self, at: &str, config: &Object) -> Option<Data> {
        // With an unknown type it is checked as if it had none.
        let dtype = self.data_type(at, config, ["dtype", "type"]);
        let ways: Vec<&str> = ["values", "value", "range", "linspace"].into_iter().filter(|k| config.has(k)).collect();
        let [way] = ways[..] else {
            let cause =
                if ways.is_empty() { "no values".to_owned() } else { format!("{} at once", ways.join(" and ")) };
            self.wrong(at, cause, "write one of `values`, `range` and `linspace`");
            return None;
        };
        let at = &join(at, way);
        let value = config.get(way)?;
        let data = match way {
            "range" => self.range(at, value, dtype.unwrap_or(DataType::Number(DType::Float64)))?,
            "linspace" => self.linspace(at, value, dtype.unwrap_or(DataType::Number(DType::Float64)))?,
            _ => self.values(at, value, dtype)?,
        };
        self.fits(at, &data).then_some(data)
    }

    /// Values that a template writes out. With the layout of ESS a number of the type `string` is a text, as in samples
    /// of NICOS, and a text of a type of numbers is the number.
    fn values(&mut self, at: &str, value: &Value, dtype: Option<DataType>) -> Option<Data> {
        if let (true, Some(DataType::Text), Some(texts)) = (self.is_lenient(), dtype, numbers_as_texts(value)) {
            self.warn(at, "a dataset has numbers of the type `string`".into(), "they are written as texts");
            return Some(texts);
        }
        let (numbers, dtype) = self.numbers_of(at, value, dtype, "a dataset");
        let numbers = numbers.or_else(|| self.truths_as_numbers(at, value, dtype, "a dataset"));
        let value = numbers.as_ref().unwrap_or(value);
        self.data(at, value, dtype.unwrap_or_else(|| usual(value)))
    }

    /// With the layout of ESS: the type of numbers that are said to be texts (`vector` in ESS templates), and the
    /// numbers of a type of numbers that are given as texts.
    pub(super) fn numbers_of(
        &mut self,
        at: &str,
        value: &Value,
        dtype: Option<DataType>,
        what: &str,
    ) -> (Option<Value>, Option<DataType>) {
        const MADE: &str = "numbers are written";
        match dtype {
            Some(DataType::Text) if self.is_lenient() && are_numbers(value) => {
                self.warn(at, format!("{what} has numbers of the type `string`"), MADE);
                (None, Some(infer(value)))
            }
            Some(DataType::Number(_)) if self.is_lenient() => {
                let numbers = numbers_in(value);
                if numbers.is_some() {
                    self.warn(at, format!("{what} has numbers given as texts"), MADE);
                }
                (numbers, dtype)
            }
            _ => (None, dtype),
        }
    }

    /// With the layout of ESS: true and false as the numbers that its file writer makes of them, unless they are said
    /// to be texts.
    pub(super) fn truths_as_numbers(
        &mut self,
        at: &str,
        value: &Value,
        dtype: Option<DataType>,
        what: &str,
    ) -> Option<Value> {
        let numbers = truths_in(value).filter(|_| self.is_lenient() && dtype != Some(DataType::Text))?;
        self.warn(at, format!("{what} has values `true` or `false`"), "1 and 0 are written");
        Some(numbers)
    }

    /// With the layout of ESS: the number of a setting that is given as a text, or the numbers of a list of such.
    pub(super) fn number_in_text(&mut self, at: &str, value: &Value) -> Option<Value> {
        let number = numbers_in(value).filter(|_| self.is_lenient())?;
        self.warn(at, "a setting has a number given as a text".into(), "the number is used");
        Some(number)
    }

    /// Adds a fixed dataset to what the file holds from the beginning.
    fn fits(&mut self, at: &str, data: &Data) -> bool {
        let bytes = match (&data.values, data.dtype) {
            (Values::Texts(texts), _) => texts.iter().map(|t| t.len() as u64 + 32).sum(),
            (_, DataType::Number(dtype)) => data.count().saturating_mul(dtype.size() as u64),
            (_, DataType::Text) => 0,
        };
        if bytes > DATASET_BYTES_MAX {
            let cause = format!("a dataset of {bytes} bytes; the limit is {DATASET_BYTES_MAX}");
            self.wrong(at, cause, TOO_LARGE);
            return false;
        }
        let before = self.fixed_bytes;
        self.fixed_bytes += bytes;
        if before <= FIXED_BYTES_MAX && self.fixed_bytes > FIXED_BYTES_MAX {
            self.wrong(at, format!("all datasets together have more than {FIXED_BYTES_MAX} bytes"), TOO_LARGE);
        }
        self.fixed_bytes <= FIXED_BYTES_MAX
    }

    /// Lengths of dimensions with their product within the limit of a dataset.
    pub(super) fn shape(&mut self, at: &str, value: Option<&Value>, least: u64, limit: u64) -> Option<Vec<u64>> {
        let numbers = value.and_then(|value| self.number_in_text(at, value));
        let lengths: Option<Vec<u64>> =
            numbers.as_ref().or(value).and_then(Value::as_list).and_then(|l| l.iter().map(Value::as_u64).collect());
        let Some(shape) = lengths.filter(|s| s.len() <= RANK_MAX) else {
            self.wrong(at, "`shape` is a list of whole numbers", "\"shape\": [128, 256]");
            return None;
        };
        let count = shape.iter().try_fold(1_u64, |n, l| n.checked_mul(*l));
        match count {
            Some(n) if (least..=limit).contains(&n) => Some(shape),
            Some(n) if n < least => {
                let hint =
                    if n == 0 { "write lengths of 1 or more" } else { "add values, or write a single one as `values`" };
                self.wrong(at, format!("a shape of {n} values; at least {least} are needed"), hint);
                None
            }
            _ => {
                self.wrong(at, format!("a shape of more than {limit} values"), TOO_LARGE);
                None
            }
        }
    }

    fn range(&mut self, at: &str, value: &Value, dtype: DataType) -> Option<Data> {
        let map = self.object(at, value, "a `range`", &["first", "step", "shape"], &[])?;
        let shape = self.shape(at, map.get("shape"), 1, DATASET_BYTES_MAX);
        let mut whole = |key: &str, default: Option<i128>| match map.get(key) {
            None if default.is_some() => default,
            found => {
                let number = found.and_then(Value::as_number).and_then(whole_of);
                if number.is_none() {
                    let at = if map.has(key) { join(at, key) } else { at.to_owned() };
                    self.wrong(&at, format!("`{key}` is a whole number"), format!("write \"{key}\": 1"));
                }
                number
            }
        };
        let (first, step) = (whole("first", None), whole("step", Some(1)));
        let DataType::Number(number) = dtype else {
            self.wrong(at, "a `range` of texts", "give `dtype` a type of numbers, such as \"int32\"");
            return None;
        };
        let (first, step, shape) = (first?, step?, shape?);
        let data = Data { dtype, shape, values: Values::Range { first, step } };
        // |first|, |step| < 2^64 and the count < 2^28: no overflow in 128 bits.
        let last = first + step * i128::from(data.count() - 1);
        let (least, most) = bounds(number).unwrap_or((-(1 << 53), 1 << 53));
        if [first, last].iter().any(|v| !(least..=most).contains(v)) {
            self.wrong(
                at,
                format!("it goes from {first} to {last}, and {} holds {least} to {most}", number.name()),
                "choose a larger `dtype`",
            );
            return None;
        }
        Some(data)
    }

    fn linspace(&mut self, at: &str, value: &Value, dtype: DataType) -> Option<Data> {
        let map = self.object(at, value, "a `linspace`", &["first", "last", "shape"], &[])?;
        let shape = self.shape(at, map.get("shape"), 2, DATASET_BYTES_MAX);
        let mut real = |key: &str| {
            let number = map.get(key).and_then(Value::as_f64).filter(|v| v.is_finite());
            if number.is_none() {
                let at = if map.has(key) { join(at, key) } else { at.to_owned() };
                self.wrong(&at, format!("`{key}` is a number"), format!("write \"{key}\": 0.5"));
            }
            number
        };
        let (first, last) = (real("first"), real("last"));
        if !matches!(dtype, DataType::Number(DType::Float32 | DType::Float64)) {
            self.wrong(at, "`linspace` makes real numbers", "\"dtype\": \"double\", or use `range`");
            return None;
        }
        Some(Data { dtype, shape: shape?, values: Values::Linspace { first: first?, last: last? } })
    }

    /// Values of a constant: a list, or ESS's `{"first", "last", "size"}`.
    pub(super) fn constant(
        &mut self,
        at: &str,
        value: &Value,
        dtype: Option<DataType>,
        shape: Option<&Vec<u64>>,
    ) -> Option<Data> {
        let dtype = dtype.unwrap_or_else(|| usual(value));
        let data = if value.as_object().is_some() {
            let map = self.object(at, value, "`data`", &["first", "last", "size"], &[])?;
            let numbers = ["first", "last", "size"]
                .map(|key| map.get(key).and_then(|value| self.number_in_text(&join(at, key), value)));
            let setting = |at: usize, key| numbers[at].as_ref().or(map.get(key));
            let size = setting(2, "size").and_then(Value::as_u64);
            let size = size.filter(|n| (2..=DATASET_BYTES_MAX / 8).contains(n));
            let ends = (setting(0, "first").and_then(Value::as_f64), setting(1, "last").and_then(Value::as_f64));
            let (Some(size), (Some(first), Some(last))) = (size, ends) else {
                let hint = "write it like {\"first\": 0, \"last\": 71, \"size\": 72}";
                self.wrong(at, "`data` is a list, or `first`, `last` and `size` (2 or more)", hint);
                return None;
            };
            let DataType::Number(number) = dtype else {
                self.wrong(at, "evenly spaced texts", "give `data_type` a type of numbers, such as \"double\"");
                return None;
            };
            let exact = Data {
                dtype: DataType::Number(DType::Float64),
                shape: vec![size],
                values: Values::Linspace { first, last },
            };
            // Whole types are rounded here, where they are made once.
            match bounds(number) {
                None => Data { dtype, ..exact },
                Some((least, most)) => {
                    let mut bytes = Vec::new();
                    for value in exact.bytes()?.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)) {
                        let whole = value.round() as i128;
                        if !(least..=most).contains(&whole) {
                            let (cause, hint) = misfit(value, Some(whole), number);
                            self.wrong(at, cause, hint);
                            return None;
                        }
                        put_whole(&mut bytes, number, whole);
                    }
                    Data::numbers(number, bytes)
                }
            }
        } else {
            self.data(at, value, dtype)?
        };
        if shape.is_some_and(|shape| *shape != data.shape) {
            self.wrong(
                at,
                format!("its shape is {:?}, and `shape` says {:?}", data.shape, shape.map_or(&[][..], |s| s)),
                "make both the same, or remove `shape`",
            );
            return None;
        }
        self.fits(at, &data).then_some(data)
    }
}

/// Whether it is a number, or a list of nothing else.
fn are_numbers(value: &Value) -> bool {
    match value {
        Value::List(list) => !list.is_empty() && list.iter().all(are_numbers),
        value => matches!(value, Value::Number(_) | Value::Numbers(_)),
    }
}

/// The numbers that texts say; none where one of them says something else.
fn numbers_in(value: &Value) -> Option<Value> {
    match value {
        Value::Text(text) => serde_json::from_str(text.trim()).ok().map(Value::Number),
        Value::List(list) if !list.is_empty() => list.iter().map(numbers_in).collect::<Option<_>>().map(Value::List),
        _ => None,
    }
}

/// 1 and 0 for true and false; none where there is anything else.
fn truths_in(value: &Value) -> Option<Value> {
    match value {
        Value::Bool(is) => Some(Value::Number(u8::from(*is).into())),
        Value::List(list) if !list.is_empty() => list.iter().map(truths_in).collect::<Option<_>>().map(Value::List),
        _ => None,
    }
}

/// Numbers as the texts that say them, where they are not many.
fn numbers_as_texts(value: &Value) -> Option<Data> {
    match value {
        Value::Number(number) => Some(Data::text(number.to_string())),
        Value::Numbers(numbers) => {
            let numbers = numbers.borrow();
            let texts: Vec<String> = numbers.iter().take(TEXTS_MAX + 1).map(|number| number.to_string()).collect();
            let shape = numbers.shape.clone();
            (texts.len() <= TEXTS_MAX).then_some(Data { dtype: DataType::Text, shape, values: Values::Texts(texts) })
        }
        _ => None,
    }
}

/// Why a value cannot be, and what to do.
type Refused = (String, String);

fn refused(cause: impl Into<String>, hint: &str) -> Result<(), Refused> {
    Err((cause.into(), hint.to_owned()))
}

/// Appends all values below `value`, which must have the shape.
fn flatten(value: &Value, shape: &[u64], dtype: DataType, out: &mut Values) -> Result<(), Refused> {
    let ragged = |one: u64, other: u64| {
        let cause = format!("rows of {one} and of {other} values");
        refused(cause, "make all rows the same length, or write several datasets")
    };
    let mixed = || refused("values and lists side by side", "close the brackets of each row");
    match (value, shape) {
        (Value::List(list), [length, inner @ ..]) => {
            if list.len() as u64 != *length {
                return ragged(*length, list.len() as u64);
            }
            list.iter().try_for_each(|one| flatten(one, inner, dtype, out))
        }
        (Value::Numbers(numbers), [length, ..]) => match (&*numbers.borrow(), dtype, out) {
            (numbers, ..) if numbers.shape.len() != shape.len() => mixed(),
            (numbers, ..) if numbers.shape != shape => ragged(*length, numbers.shape[0]),
            (numbers, DataType::Number(dtype), Values::Bytes(bytes)) => {
                numbers.iter().try_for_each(|number| put(&number, dtype, bytes))
            }
            _ => refused("a number where a text is expected", NO_TEXT),
        },
        (Value::List(_) | Value::Numbers(_), []) | (_, [_, ..]) => mixed(),
        (value, []) => match (dtype, out) {
            (DataType::Text, Values::Texts(texts)) => match value {
                Value::Text(text) if text.contains('\0') => {
                    refused("a text with a NUL byte, where HDF5 would cut it", "remove it")
                }
                Value::Text(text) => {
                    texts.push(text.to_string());
                    Ok(())
                }
                other => refused(format!("{} where a text is expected", kind_of(other)), NO_TEXT),
            },
            (DataType::Number(dtype), Values::Bytes(bytes)) => match value {
                Value::Number(number) => put(number, dtype, bytes),
                Value::Text(_) => refused(
                    "a text where a number is expected",
                    "write numbers without quotes, or \"dtype\": \"string\"",
                ),
                other => refused(
                    format!("{} where a number is expected", kind_of(other)),
                    "write a number, or omit the value",
                ),
            },
            _ => refused("a type that cannot be written", "give `dtype` a type of numbers, or \"string\""),
        },
    }
}

/// The numbers of a list in the type of the file.
fn typed(numbers: Numbers, dtype: DType) -> Result<Vec<u8>, Refused> {
    match (dtype, numbers.real) {
        (DType::Float64, true) | (DType::Int64, false) => Ok(numbers.into_bytes()),
        _ => numbers.typed(|number, bytes| put(number, dtype, bytes)),
    }
}

fn whole_of(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or(number.as_u64().map(i128::from))
}

/// That a type cannot hold a number, and which one can.
fn misfit(number: impl std::fmt::Display, whole: Option<i128>, dtype: DType) -> Refused {
    const WHOLE: [DType; 8] = [
        DType::Int8,
        DType::UInt8,
        DType::Int16,
        DType::UInt16,
        DType::Int32,
        DType::UInt32,
        DType::Int64,
        DType::UInt64,
    ];
    let holds = |dtype: &&DType| {
        bounds(**dtype).zip(whole).is_some_and(|((least, most), whole)| (least..=most).contains(&whole))
    };
    let fits = WHOLE.iter().find(holds).map_or("double", |dtype| dtype.name());
    (format!("{number} does not fit {}", dtype.name()), format!("choose a type that holds it, such as \"{fits}\""))
}

fn put(number: &Number, dtype: DType, bytes: &mut Vec<u8>) -> Result<(), Refused> {
    let misfit = || Err(misfit(number, whole_of(number), dtype));
    match (bounds(dtype), whole_of(number), number.as_f64()) {
        (Some((least, most)), Some(whole), _) => {
            if !(least..=most).contains(&whole) {
                return misfit();
            }
            put_whole(bytes, dtype, whole);
        }
        (Some((least, most)), None, Some(real)) => {
            if real.fract() != 0.0 || !(least..=most).contains(&(real as i128)) {
                return misfit();
            }
            put_whole(bytes, dtype, real as i128);
        }
        (None, _, Some(real)) if real.is_finite() && (dtype == DType::Float64 || (real as f32).is_finite()) => {
            put_real(bytes, dtype, real);
        }
        _ => return misfit(),
    }
    Ok(())
}

/// The type of a dataset that does not name one: `double`, or text.
fn usual(value: &Value) -> DataType {
    match infer(value) {
        DataType::Text => DataType::Text,
        DataType::Number(_) => DataType::Number(DType::Float64),
    }
}

/// The type that a value has by itself.
pub(super) fn infer(value: &Value) -> DataType {
    let mut level = value;
    let mut numbers: Vec<&Number> = Vec::new();
    while let Value::List(list) = level {
        numbers = list.iter().filter_map(Value::as_number).collect();
        match list.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    numbers.extend(level.as_number());
    match level {
        Value::Text(_) => DataType::Text,
        Value::Numbers(packed) if packed.borrow().real => DataType::Number(DType::Float64),
        _ if numbers.iter().any(|n| n.is_f64()) => DataType::Number(DType::Float64),
        _ if numbers.iter().any(|n| n.is_u64() && !n.is_i64()) => DataType::Number(DType::UInt64),
        _ => DataType::Number(DType::Int64),
    }
}
