//! Messages from values by name: what `Writer.append` takes. The columns of the schema say what each value has to be.
//!
//! Constraints: an array that has the type of its field, in C order, is read where it lies. Others are converted first.
//! A time and a maker that are not given are those that the message is appended with.
//!
//! Failure behaviour: a name that the schema does not have, and a value that a field cannot hold, is an
//! `UnfitValueException` with the name.

use crate::codec::{Raw, WireValue, dimensions, unfit, unfit_value};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString};
use wire::{Column, DType, Error, Kind, Message};

/// Fields for the time of a message, in `int64` or `uint64`.
const TIMES: [&str; 4] = ["timestamp", "reference_time", "pulse_time", "packet_timestamp"];
/// Fields for the name of who made it.
const MAKERS: [&str; 2] = ["source_name", "name"];

/// The arguments beside the fields of a message, for fields that are not given.
pub(crate) struct Beside<'a> {
    /// Source time, ns since 1970 UTC.
    pub(crate) time: i64,
    /// Name of the origin.
    pub(crate) origin: Option<&'a str>,
}

/// The values of a message, kept while it borrows from them.
pub(crate) struct Named<'py> {
    py: Python<'py>,
    schema: String,
    id: [u8; 4],
    held: Vec<WireValue<'py>>,
    /// Fields that stand for nothing, because they were not given.
    absent: Vec<&'static str>,
}

impl<'py> Named<'py> {
    /// The values for the fields of a schema.
    pub(crate) fn of(schema: &str, fields: &Bound<'py, PyMapping>, beside: &Beside<'_>) -> PyResult<Self> {
        let py = fields.py();
        let id: Option<[u8; 4]> = schema.as_bytes().try_into().ok();
        let Some((id, columns)) = id.and_then(|id| Some((id, wire::columns(id)?))) else {
            let what = format!("schema `{schema}` is not one that is made of fields");
            return Err(unfit_value(py, what, "append its bytes: `append(payload)`".into()));
        };
        let fields = completed(fields, columns, beside)?;
        let absent = columns.iter().map(|column| column.name);
        let absent = absent.filter(|name| !fields.contains(*name).unwrap_or(false)).collect();
        Ok(Self { py, schema: schema.to_owned(), id, held: table(&fields, columns, "")?, absent })
    }

    /// Gives the message to `use_it`.
    pub(crate) fn with<T>(&self, use_it: impl FnOnce(&Message<'_>) -> PyResult<T>) -> PyResult<T> {
        let values = self.held.iter().map(|value| value.field(self.py)).collect::<PyResult<Vec<_>>>()?;
        let message = wire::message_of(self.id, values).map_err(|error| self.unfit(&error))?;
        use_it(&message)
    }

    /// The exception of a value that the schema cannot hold.
    pub(crate) fn unfit(&self, error: &Error) -> PyErr {
        match error {
            Error::Unfit { field } | Error::Missing { field } if self.absent.contains(field) => {
                let what = format!("not a message of schema {}: `{field}` is not given", self.schema);
                unfit_value(self.py, what, format!("a message of schema {} has it always", self.schema))
            }
            _ => unfit(self.py, &self.schema, error),
        }
    }

    /// The schema id.
    pub(crate) fn id(&self) -> [u8; 4] {
        self.id
    }
}

/// The fields with the time and the maker that stand beside the message, where they are not given.
fn completed<'py>(
    fields: &Bound<'py, PyMapping>,
    columns: &[Column],
    beside: &Beside<'_>,
) -> PyResult<Bound<'py, PyMapping>> {
    let mut completed: Option<Bound<'py, PyDict>> = None;
    for column in columns {
        let is_time = TIMES.contains(&column.name) && matches!(column.kind, Kind::Number(DType::Int64 | DType::UInt64));
        let is_maker = MAKERS.contains(&column.name) && column.kind == Kind::Text && beside.origin.is_some();
        if !(is_time || is_maker) || fields.contains(column.name)? {
            continue;
        }
        let completed = match &completed {
            Some(completed) => completed,
            None => {
                let copy = PyDict::new(fields.py());
                copy.update(fields)?;
                completed.insert(copy)
            }
        };
        match beside.origin {
            Some(origin) if is_maker => completed.set_item(column.name, origin)?,
            _ => completed.set_item(column.name, beside.time)?,
        }
    }
    match completed {
        Some(completed) => Ok(completed.into_any().cast_into()?),
        None => Ok(fields.clone()),
    }
}

/// The values of a table in the order of its columns. `place` is in front of their names in errors.
fn table<'py>(fields: &Bound<'py, PyMapping>, columns: &[Column], place: &str) -> PyResult<Vec<WireValue<'py>>> {
    let py = fields.py();
    for name in fields.keys()?.iter() {
        let is_known = name.cast::<PyString>().is_ok_and(|name| columns.iter().any(|column| name == column.name));
        if !is_known {
            let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
            let cause = format!("the fields are {}", names.join(", "));
            return Err(unfit_value(py, format!("there is no field `{place}{name}`"), cause));
        }
    }
    let value = |column: &Column| match fields.contains(column.name)? {
        true => fields.get_item(column.name),
        false => Ok(py.None().into_bound(py)),
    };
    let mut values = Vec::with_capacity(columns.len());
    for column in columns {
        values.push(given(&value(column)?, column.kind, &format!("{place}{}", column.name))?);
    }
    for (at, column) in columns.iter().enumerate() {
        let (Kind::Shape(of), WireValue::One(_)) = (column.kind, &values[at]) else { continue };
        let measured = columns.iter().position(|other| other.name == of).map(|other| &values[other]);
        let shape = match measured {
            Some(WireValue::Array(raw)) => raw.shape().to_vec(),
            Some(WireValue::One(text)) if text.is_instance_of::<PyString>() => vec![text.extract::<&str>()?.len()],
            _ => continue,
        };
        values[at] = WireValue::Array(exact(PyList::new(py, shape)?.as_any(), DType::Int64, column.name)?);
    }
    Ok(values)
}

/// One value, for a field of this kind.
fn given<'py>(value: &Bound<'py, PyAny>, kind: Kind, place: &str) -> PyResult<WireValue<'py>> {
    let py = value.py();
    let refused = |wanted: &str| unfit_value(py, format!("`{place}` is not {wanted}"), String::new());
    if value.is_none() {
        // A list of texts that is not there is an empty one.
        let none = WireValue::One(value.clone());
        return Ok(if kind == Kind::Texts { WireValue::List(Vec::new()) } else { none });
    }
    let is_text = value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>();
    match kind {
        Kind::Bool | Kind::Number(_) | Kind::Text | Kind::Words(_) => WireValue::of(value.clone()),
        Kind::Array(dtype) => exact(value, dtype, place).map(WireValue::Array),
        Kind::Shape(_) => exact(value, DType::Int64, place).map(WireValue::Array),
        Kind::Numbers | Kind::Value if is_text => WireValue::of(value.clone()),
        Kind::Numbers => numbers(value, place).map(WireValue::Array),
        Kind::Value => {
            let texts = value
                .cast::<PyList>()
                .is_ok_and(|list| !list.is_empty() && list.iter().all(|entry| entry.is_instance_of::<PyString>()));
            match dimensions(value) {
                _ if texts => WireValue::of(value.clone()),
                // A plain number with its type is a table of it, as it is in the message.
                Ok(0) => Ok(WireValue::Table(vec![WireValue::Array(numbers(value, place)?)])),
                _ => numbers(value, place).map(WireValue::Array),
            }
        }
        Kind::Texts => {
            let texts = value.try_iter()?.collect::<PyResult<Vec<_>>>()?;
            match !is_text && texts.iter().all(|text| text.is_instance_of::<PyString>()) {
                true => Ok(WireValue::List(texts.into_iter().map(WireValue::One).collect())),
                false => Err(refused("a list of texts")),
            }
        }
        Kind::List(columns) => {
            let mut tables = Vec::new();
            for (at, entry) in value.try_iter()?.enumerate() {
                let entry = entry?;
                let fields = entry.cast::<PyMapping>().map_err(|_| refused("a list of dictionaries"))?;
                tables.push(WireValue::Table(table(fields, columns, &format!("{place}[{at}]."))?));
            }
            // An empty list is one that is not there.
            Ok(if tables.is_empty() { WireValue::One(py.None().into_bound(py)) } else { WireValue::List(tables) })
        }
        Kind::Table(forms) => {
            let fields = value.cast::<PyMapping>().map_err(|_| refused("a dictionary"))?;
            let has_all = |form: &&&[Column]| form.iter().all(|column| fields.contains(column.name).unwrap_or(false));
            let Some(form) = forms.iter().find(has_all).or(forms.first()) else { return Err(refused("a dictionary")) };
            table(fields, form, &format!("{place}.")).map(WireValue::Table)
        }
    }
}

/// An array of one dimension and of this type: the one that was given where it is one, else a conversion that changes no
/// whole number.
fn exact(value: &Bound<'_, PyAny>, dtype: DType, place: &str) -> PyResult<Raw> {
    static EXACT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = EXACT.import(value.py(), "beamport.wire._arrays", "exact")?.call1((value, dtype.name(), place))?;
    Raw::of(&made).ok_or_else(|| not_numbers(value.py(), place))
}

/// An array of the type that it has; a plain number is an array of one. Truth values become `uint8`, and numbers in
/// another order of bytes or in half precision are converted, as results of workers are.
fn numbers(value: &Bound<'_, PyAny>, place: &str) -> PyResult<Raw> {
    if let Some(raw) = Raw::of(value) {
        return Ok(raw);
    }
    static NUMBERS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let made = NUMBERS.import(value.py(), "beamport.wire._arrays", "numbers")?.call1((value, place))?;
    Raw::of(&made).ok_or_else(|| not_numbers(value.py(), place))
}

fn not_numbers(py: Python<'_>, place: &str) -> PyErr {
    unfit_value(py, format!("`{place}` is not numbers of a type that a message can hold"), String::new())
}
