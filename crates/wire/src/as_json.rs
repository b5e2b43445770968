//! Messages as JSON, for `cat --json`, and JSON as messages, for `append`. `append` accepts all that `cat --json`
//! prints in full.
//!
//! A message is an object with `schema` and its fields by name. Numbers, lists, text and words stand for themselves, `null`
//! and a key that is not there for an absent field, uuids as hexadecimal text, `"NaN"`, `"inf"` and `"-inf"` for what JSON
//! has no number for. An array of several dimensions is `{"dtype", "shape", "values"}` or, when it is given, nested lists;
//! an array of more than [`JSON_VALUES_MAX`] values, or of as many as the caller says, is printed as
//! `{"dtype", "shape", "first"}`, which cannot be taken back.
//!
//! Where a schema leaves the type of a field `x` open, whole numbers are `int64` (`uint64` where they are too large for
//! that) and others `float64`; the key `x_type`, which the schemas have for it too, names any other type.
//!
//! Constraints: which fields there are and what they hold is the table of [`crate::columns`]; no schema has code here.
//! Failure: any JSON is a message or a [`JsonError`]; the memory is bounded by the text.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Number, Value as Json, json};

use crate::limits::{DIMENSIONS_MAX, JSON_VALUES_MAX};
use crate::*;

/// Why JSON is no message: the cause, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError(String);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

fn wrong<T>(what: impl Into<String>) -> Result<T, JsonError> {
    Err(JsonError(what.into()))
}

/// The message as JSON: see the module.
pub fn to_json(bytes: &[u8]) -> Result<Json, Error> {
    to_json_within(bytes, JSON_VALUES_MAX)
}

/// The same; arrays of up to `most` values are printed whole, and of others the first [`JSON_VALUES_MAX`].
pub fn to_json_within(bytes: &[u8], most: usize) -> Result<Json, Error> {
    let message = read(bytes)?;
    let id = schema_id(bytes).unwrap_or_default();
    let mut object = Map::new();
    // A schema that was read has an identifier of ASCII letters.
    object.insert("schema".into(), id.escape_ascii().to_string().into());
    let fields = message.fields();
    insert_fields(&mut object, &fields, columns(id).unwrap_or(&[]), most);
    // A plain number does not carry its type.
    let dtype = match &message {
        Message::F144(m) => Some(m.value.dtype()),
        Message::F142(f142::F142 { value: f142::Value::Number(value), .. }) => Some(value.dtype()),
        _ => None,
    };
    if let Some(dtype) = dtype {
        insert_type(&mut object, "value", dtype);
    }
    Ok(Json::Object(object))
}

fn insert_fields(object: &mut Map<String, Json>, fields: &Fields<'_>, columns: &[Column], most: usize) {
    for (at, (name, field)) in fields.iter().enumerate() {
        let kind = columns.get(at).map(|column| column.kind);
        object.insert((*name).into(), field_json(field, kind, most));
        if let (Some(Kind::Numbers | Kind::Value), Field::Array { dtype, .. }) = (kind, field) {
            insert_type(object, name, *dtype);
        }
    }
}

/// Adds the type of an open field where its JSON does not say it.
fn insert_type(object: &mut Map<String, Json>, name: &str, dtype: DType) {
    if object.get(name).is_some_and(|value| !value.is_object() && meant(value) != Some(dtype)) {
        object.insert(type_key(name), dtype.name().into());
    }
}

fn type_key(name: &str) -> String {
    format!("{name}_type")
}

fn table_json(fields: &Fields<'_>, columns: &[Column], most: usize) -> Json {
    let mut object = Map::new();
    insert_fields(&mut object, fields, columns, most);
    Json::Object(object)
}

fn field_json(field: &Field<'_>, kind: Option<Kind>, most: usize) -> Json {
    let columns = match kind {
        Some(Kind::List(columns)) => columns,
        // Of the forms that differ in their fields it is the one that has as many.
        Some(Kind::Table(forms)) => match field {
            Field::Table(fields) => forms.iter().find(|form| form.len() == fields.len()).copied().unwrap_or(&[]),
            _ => &[],
        },
        _ => &[],
    };
    match field {
        Field::None => Json::Null,
        Field::Bool(value) => (*value).into(),
        Field::Int(value) => (*value).into(),
        Field::UInt(value) => (*value).into(),
        Field::Float(value) => float_json(*value),
        Field::Text(text) => (*text).into(),
        Field::Uuid(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        Field::Array { dtype, bytes, shape } => array_json(*dtype, bytes, shape, most),
        Field::Texts(texts) => texts.iter().copied().map(Json::from).collect(),
        Field::List(tables) => tables.iter().map(|fields| table_json(fields, columns, most)).collect(),
        Field::Table(fields) => table_json(fields, columns, most),
    }
}

fn float_json(value: f64) -> Json {
    match Number::from_f64(value) {
        Some(number) => Json::Number(number),
        None => value.to_string().into(),
    }
}

fn array_json(dtype: DType, bytes: &[u8], shape: &[usize], most: usize) -> Json {
    let numbers = crate::Numbers::new(dtype, bytes).unwrap_or(crate::Numbers::empty(dtype));
    let is_whole = numbers.len() <= most;
    let count = if is_whole { numbers.len() } else { JSON_VALUES_MAX };
    let first: Vec<Json> = numbers.iter().take(count).map(|value| field_json(&value.into(), None, most)).collect();
    match is_whole {
        true if shape.len() == 1 => first.into(),
        true => json!({ "dtype": dtype.name(), "shape": shape, "values": first }),
        false => json!({ "dtype": dtype.name(), "shape": shape, "first": first }),
    }
}

/// What [`to_json`] prints, as a message: its bytes, written into `out` in place of what was there.
///
/// Takes the schemas of the facility, as [`message_of`] does; beamport's own books (`bp..`) are not made from outside.
pub fn of_json(message: &Json, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let Some(object) = message.as_object() else { return wrong("a message is a JSON object") };
    let Some(schema) = object.get("schema") else { return wrong("it has no `schema`") };
    let id = schema.as_str().and_then(|text| <[u8; 4]>::try_from(text.as_bytes()).ok());
    let Some(id) = id else { return wrong(format!("`schema` is not an id of four letters: {schema}")) };
    let Some(columns) = columns(id) else {
        let why = if KNOWN.contains(&id) { "reserved" } else { "unknown" };
        return wrong(format!("{why} schema `{}`", id.escape_ascii()));
    };
    let values = table(object, columns, "")?;
    let fields = values.iter().map(Given::field).collect();
    let refused = |error: Error| match error {
        // Absent values that no sender leaves out.
        Error::Unfit { field } if object.get(field).is_none_or(Json::is_null) => {
            JsonError(Error::Missing { field }.to_string())
        }
        error => JsonError(error.to_string()),
    };
    message_of(id, fields).and_then(|message| message.write(out)).map_err(refused)
}

/// A value as it was given, with the bytes of its arrays.
enum Given<'j> {
    None,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Text(&'j str),
    Array {
        dtype: DType,
        bytes: Vec<u8>,
        shape: Vec<usize>,
    },
    /// A number with its type, of a field that leaves it open.
    Scalar(Box<Given<'j>>),
    Texts(Vec<&'j str>),
    List(Vec<Vec<Given<'j>>>),
    Table(Vec<Given<'j>>),
}

impl Given<'_> {
    fn field(&self) -> Field<'_> {
        // Names are not looked at.
        fn nameless<'a>(values: &'a [Given<'_>]) -> Fields<'a> {
            values.iter().map(|value| ("", value.field())).collect()
        }
        match self {
            Given::None => Field::None,
            Given::Bool(value) => Field::Bool(*value),
            Given::Int(value) => Field::Int(*value),
            Given::UInt(value) => Field::UInt(*value),
            Given::Float(value) => Field::Float(*value),
            Given::Text(text) => Field::Text(text),
            Given::Array { dtype, bytes, shape } => Field::Array { dtype: *dtype, bytes, shape: shape.clone() },
            Given::Scalar(array) => Field::Table(vec![("", array.field())]),
            Given::Texts(texts) => Field::Texts(texts.clone()),
            Given::List(tables) => Field::List(tables.iter().map(|values| nameless(values)).collect()),
            Given::Table(values) => Field::Table(nameless(values)),
        }
    }
}

/// The values of a table in the order of its columns. `place` is in front of their names in errors.
fn table<'j>(object: &'j Map<String, Json>, columns: &[Column], place: &str) -> Result<Vec<Given<'j>>, JsonError> {
    let is_type = |key: &str| {
        let open = |column: &Column| matches!(column.kind, Kind::Numbers | Kind::Value);
        columns.iter().any(|column| open(column) && key.strip_suffix("_type") == Some(column.name))
    };
    let known = |key: &str| columns.iter().any(|column| column.name == key) || is_type(key);
    let is_root = place.is_empty();
    if let Some(key) = object.keys().find(|key| !(known(key) || is_root && *key == "schema")) {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        return wrong(format!("unknown field `{place}{key}`; known fields: {}", names.join(", ")));
    }
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        let value = object.get(column.name).unwrap_or(&Json::Null);
        let dtype = object.get(&type_key(column.name)).filter(|_| matches!(column.kind, Kind::Numbers | Kind::Value));
        let dtype = dtype.map(|word| dtype_of(word, &type_key(column.name))).transpose()?;
        values.push(given(value, column.kind, dtype, &format!("{place}{}", column.name))?);
    }
    for (at, column) in columns.iter().enumerate() {
        let (Kind::Shape(of), Given::None) = (column.kind, &values[at]) else { continue };
        let measured = columns.iter().position(|other| other.name == of).map(|other| &values[other]);
        let lengths: Vec<i64> = match measured {
            Some(Given::Array { shape, .. }) => shape.iter().map(|length| *length as i64).collect(),
            Some(Given::Text(text)) => vec![text.len() as i64],
            _ => continue,
        };
        let bytes = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        values[at] = Given::Array { dtype: DType::Int64, bytes, shape: vec![lengths.len()] };
    }
    Ok(values)
}

/// One value, for a field of this kind. `dtype`: the type that was named for an open one.
fn given<'j>(value: &'j Json, kind: Kind, dtype: Option<DType>, place: &str) -> Result<Given<'j>, JsonError> {
    fn refused<T>(place: &str, wanted: &str) -> Result<T, JsonError> {
        wrong(format!("`{place}` is not {wanted}"))
    }
    let unfit = |wanted: &str| refused(place, wanted);
    if value.is_null() {
        return Ok(if kind == Kind::Texts { Given::Texts(Vec::new()) } else { Given::None });
    }
    match kind {
        Kind::Bool => value.as_bool().map_or_else(|| unfit("true or false"), |value| Ok(Given::Bool(value))),
        Kind::Number(dtype) => match scalar(value, dtype) {
            Some(_) => Ok(plain(value)),
            None => unfit(&format!("a number of type {}", dtype.name())),
        },
        Kind::Text => value.as_str().map_or_else(|| unfit("text"), |text| Ok(Given::Text(text))),
        Kind::Words(words) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(Given::Text(word)),
            None if value.as_u64().is_some_and(|at| at < words.len() as u64) => Ok(plain(value)),
            _ => unfit(&format!("one of {}", words.join(", "))),
        },
        Kind::Array(dtype) => match array(value, Some(dtype), place)? {
            Given::Array { shape, .. } if shape.len() != 1 => unfit("an array of one dimension"),
            array => Ok(array),
        },
        Kind::Shape(_) => array(value, Some(DType::Int64), place),
        Kind::Numbers => match value {
            Json::String(text) => Ok(Given::Text(text)),
            value => array(value, dtype, place),
        },
        Kind::Value => open(value, dtype, place),
        Kind::Texts => texts(value).map_or_else(|| unfit("a list of texts"), |texts| Ok(Given::Texts(texts))),
        Kind::List(columns) => {
            let Some(entries) = value.as_array() else { return unfit("a list of objects") };
            let entries = entries.iter().enumerate().map(|(at, entry)| match entry.as_object() {
                Some(object) => table(object, columns, &format!("{place}[{at}].")),
                None => refused(place, "a list of objects"),
            });
            entries.collect::<Result<_, _>>().map(Given::List)
        }
        Kind::Table(forms) => {
            let Some(object) = value.as_object() else { return unfit("an object") };
            let has = |form: &[Column], key: &str| form.iter().any(|column| column.name == key);
            let form = forms.iter().find(|form| object.keys().all(|key| has(form, key)));
            // Where no form has all keys, the error is that of the first.
            let Some(form) = form.or(forms.first()) else { return unfit("an object") };
            table(object, form, &format!("{place}.")).map(Given::Table)
        }
    }
}

/// The value of `f144` and `f142`.
fn open<'j>(value: &'j Json, dtype: Option<DType>, place: &str) -> Result<Given<'j>, JsonError> {
    match (value, dtype) {
        (Json::String(text), None) => Ok(Given::Text(text)),
        (Json::Number(_) | Json::String(_), _) => array(value, dtype, place).map(|one| Given::Scalar(Box::new(one))),
        (Json::Array(entries), None) if !entries.is_empty() && entries.iter().all(Json::is_string) => {
            Ok(Given::Texts(texts(value).unwrap_or_default()))
        }
        _ => array(value, dtype, place),
    }
}

fn texts(value: &Json) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Json::as_str).collect()
}

/// Numbers: plain ones, a list, lists in lists, or an object with type and shape. A type that neither the schema nor the
/// sender names is that of [`meant`].
fn array<'j>(value: &Json, dtype: Option<DType>, place: &str) -> Result<Given<'j>, JsonError> {
    let (values, named, shape) = match value {
        Json::Object(object) => {
            if object.contains_key("first") {
                let all = object.get("shape").map(Json::to_string).unwrap_or_default();
                return wrong(format!("`{place}` was cut when it was printed: give all values of {all} as `values`"));
            }
            let named = object.get("dtype").map(|word| dtype_of(word, &format!("{place}.dtype"))).transpose()?;
            let shape = object.get("shape").map(|lengths| {
                let lengths = lengths.as_array()?.iter().map(|length| usize::try_from(length.as_u64()?).ok());
                lengths.collect::<Option<Vec<usize>>>()
            });
            let Some(values) = object.get("values") else { return wrong(format!("`{place}` has no `values`")) };
            match shape {
                Some(None) => return wrong(format!("`{place}.shape` is not a list of lengths")),
                shape => (values, named, shape.flatten()),
            }
        }
        value => (value, None, None),
    };
    if let (Some(dtype), Some(named)) = (dtype, named)
        && dtype != named
    {
        return wrong(format!("`{place}` is of type {}, not {}", dtype.name(), named.name()));
    }
    let dtype = dtype.or(named).or_else(|| meant(values));
    let Some(dtype) = dtype.filter(|dtype| *dtype != DType::Text) else {
        return wrong(format!("`{place}` is not numbers, nor lists of numbers"));
    };
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    flatten(values, dtype, 0, &mut found, &mut bytes).map_err(|why| JsonError(format!("`{place}` {why}")))?;
    // A plain number is an array of one.
    let found = if found.is_empty() { vec![1] } else { found };
    let shape = match shape {
        Some(shape) => {
            let elements = shape.iter().try_fold(1usize, |all, length| all.checked_mul(*length));
            if elements != Some(bytes.len() / dtype.size()) {
                return wrong(format!("`{place}.shape` does not fit its `values`"));
            }
            shape
        }
        None => found,
    };
    Ok(Given::Array { dtype, bytes, shape })
}

/// Appends the numbers of nested lists to `bytes`, and the lengths of the lists to `shape` as far as they are not there.
fn flatten(
    value: &Json,
    dtype: DType,
    depth: usize,
    shape: &mut Vec<usize>,
    bytes: &mut Vec<u8>,
) -> Result<(), Cow<'static, str>> {
    let Json::Array(entries) = value else {
        let Some(number) = scalar(value, dtype).filter(|_| depth == shape.len()) else {
            return Err(match value {
                Json::Number(_) if depth == shape.len() => {
                    format!("holds {value}, which does not fit type {}", dtype.name()).into()
                }
                Json::Number(_) => "has lists of different depth".into(),
                _ => "holds something that is not a number".into(),
            });
        };
        bytes.extend_from_slice(&number.bytes()[..dtype.size()]);
        return Ok(());
    };
    match shape.get(depth) {
        None if depth >= DIMENSIONS_MAX => return Err("has too many dimensions".into()),
        // Numbers were there where lists come now.
        None if !bytes.is_empty() => return Err("has lists of different depth".into()),
        None => shape.push(entries.len()),
        Some(length) if *length != entries.len() => return Err("has lists of different length".into()),
        Some(_) => {}
    }
    entries.iter().try_for_each(|entry| flatten(entry, dtype, depth + 1, shape, bytes))
}

/// The type of numbers that do not name it; `None` for other things. Text is text.
fn meant(value: &Json) -> Option<DType> {
    match value {
        Json::String(_) => Some(DType::Text),
        Json::Number(number) if number.is_i64() => Some(DType::Int64),
        Json::Number(number) if number.is_u64() => Some(DType::UInt64),
        Json::Number(_) => Some(DType::Float64),
        Json::Array(entries) => {
            // Text among numbers is what JSON has no number for.
            let wider = |one: DType, other: DType| match (one, other) {
                (one, other) if one == other => one,
                (DType::Int64, DType::UInt64) | (DType::UInt64, DType::Int64) => DType::UInt64,
                _ => DType::Float64,
            };
            let mut types = entries.iter().map(meant);
            let first = types.next().unwrap_or(Some(DType::Float64));
            types.fold(first, |known, next| Some(wider(known?, next?)))
        }
        _ => None,
    }
}

fn dtype_of(word: &Json, place: &str) -> Result<DType, JsonError> {
    let found = DType::ALL.into_iter().find(|dtype| Some(dtype.name()) == word.as_str());
    found.filter(|dtype| *dtype != DType::Text).ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).filter(|name| *name != "text").collect();
        JsonError(format!("`{place}` is not one of {}", names.join(", ")))
    })
}

/// A number as this type; `None` where it is none, or does not fit.
fn scalar(value: &Json, dtype: DType) -> Option<Scalar> {
    match plain(value) {
        Given::Int(value) => Scalar::of_whole(dtype, value.into()),
        Given::UInt(value) => Scalar::of_whole(dtype, value.into()),
        Given::Float(value) => Scalar::of_real(dtype, value),
        _ => None,
    }
}

/// A number, also one that JSON has none for.
fn plain<'j>(value: &Json) -> Given<'j> {
    let number = match value {
        Json::Number(number) => number,
        Json::String(text) => {
            let named = ["NaN", "inf", "-inf"].contains(&text.as_str()).then(|| text.parse().ok()).flatten();
            return named.map_or(Given::None, Given::Float);
        }
        _ => return Given::None,
    };
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(value), _, _) => Given::Int(value),
        (_, Some(value), _) => Given::UInt(value),
        (_, _, Some(value)) => Given::Float(value),
        _ => Given::None,
    }
}
