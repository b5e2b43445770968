//! Messages of the facility as `beamport.wire` gives and takes them: a tuple of values in the order of the schema.
//! The Python half has names, defaults and enums; here is what takes time.
//!
//! Constraints: arrays that were read are views of the buffer, read-only whatever the buffer is. Arrays that are
//! written are copied twice, into a buffer that is kept and from there into the `bytes`.
//!
//! Failure behaviour: what cannot be read is a `WrongSchemaException`, a `ShortBufferException` or a
//! `BrokenBufferException`; a value that a field cannot hold is an `UnfitValueException`.

use crate::limits::SCRATCH_BYTES_KEPT_MAX;
use crate::memory::Exported;
use crate::numpy;
use pyo3::IntoPyObjectExt;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use std::cell::RefCell;
use std::marker::PhantomData;
use wire::{Array, DType, Error, Field, Fields, Number, Numbers};

/// A message of the schema as a tuple: a table is a tuple, a list of tables a list of them, an enum its word.
#[pyfunction]
pub(crate) fn _wire_read<'py>(schema: &str, buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let exported;
    let bytes = match buffer.cast::<PyBytes>() {
        Ok(bytes) => bytes.as_bytes(),
        Err(_) => {
            exported = Exported::of(buffer)?;
            exported.bytes()
        }
    };
    let found = wire::schema_id(bytes).filter(|found| *found == schema.as_bytes());
    if found.is_none() {
        return Err(other_schema(buffer.py(), schema, bytes));
    }
    let fields = wire::fields(bytes).map_err(|error| broken(buffer.py(), schema, &error))?;
    Reading { py: buffer.py(), buffer, bytes }.table(&fields)
}

struct Reading<'a, 'py> {
    py: Python<'py>,
    buffer: &'a Bound<'py, PyAny>,
    bytes: &'a [u8],
}

impl<'py> Reading<'_, 'py> {
    fn table(&self, fields: &Fields<'_>) -> PyResult<Bound<'py, PyTuple>> {
        let values = fields.iter().map(|(_, field)| self.value(field)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(self.py, values)
    }

    fn value(&self, field: &Field<'_>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        match field {
            Field::None => Ok(py.None().into_bound(py)),
            Field::Bool(value) => value.into_bound_py_any(py),
            Field::Int(value) => value.into_bound_py_any(py),
            Field::UInt(value) => value.into_bound_py_any(py),
            Field::Float(value) => value.into_bound_py_any(py),
            Field::Text(text) => text.into_bound_py_any(py),
            // No schema of the facility has one.
            Field::Uuid(bytes) => bytes.as_slice().into_bound_py_any(py),
            Field::Array { dtype, bytes, shape } => self.array(*dtype, bytes, shape),
            Field::Texts(texts) => Ok(PyList::new(py, texts)?.into_any()),
            Field::List(tables) => {
                let tables = tables.iter().map(|table| self.table(table)).collect::<PyResult<Vec<_>>>()?;
                Ok(PyList::new(py, tables)?.into_any())
            }
            Field::Table(fields) => Ok(self.table(fields)?.into_any()),
        }
    }

    /// A read-only array over bytes of the buffer.
    fn array(&self, dtype: DType, bytes: &[u8], shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
        static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = self.py;
        let ndarray = NDARRAY.import(py, "numpy", "ndarray")?;
        let at = wire::range_in(self.bytes, bytes).map_or(0, |range| range.start);
        let array = ndarray.call1((PyTuple::new(py, shape)?, numpy::dtype(py, dtype)?, self.buffer, at))?;
        if !self.buffer.is_instance_of::<PyBytes>() {
            let words = PyDict::new(py);
            words.set_item("write", false)?;
            array.call_method("setflags", (), Some(&words))?;
        }
        Ok(array)
    }
}

/// The exception of a buffer of another schema, or too short to have one.
fn other_schema(py: Python<'_>, wanted: &str, bytes: &[u8]) -> PyErr {
    match wire::schema_id(bytes).map(|found| found.escape_ascii().to_string()) {
        None => {
            exception(py, "ShortBufferException", ("Could not retrieve schema as buffer too short".into(), "".into()))
        }
        Some(found) => {
            let what = format!("Incorrect schema: expected {wanted} but got {found}");
            exception(py, "WrongSchemaException", (what, String::new()))
        }
    }
}

/// The exception of bytes that are no message.
fn broken(py: Python<'_>, schema: &str, error: &Error) -> PyErr {
    exception(py, "BrokenBufferException", (format!("not a message of schema {schema}"), error.to_string()))
}

/// An exception of `beamport.wire`, with what failed and its cause.
fn exception(py: Python<'_>, name: &str, texts: (String, String)) -> PyErr {
    let class = py.import("beamport.wire.exceptions").and_then(|module| module.getattr(name));
    match class.and_then(|class| class.call1(texts)) {
        Ok(value) => PyErr::from_value(value),
        Err(broken) => broken,
    }
}

/// A message of the schema from its values in order, as `bytes`: a tuple is a table, a list holds texts or tables,
/// numpy arrays in C order are arrays, `bytes` are text.
#[pyfunction]
pub(crate) fn _wire_write<'py>(schema: &str, values: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyBytes>> {
    let py = values.py();
    let id = *schema.as_bytes().first_chunk().ok_or_else(|| PyTypeError::new_err("a schema has four letters"))?;
    let held = WireValue::all(values.iter())?;
    let values = held.iter().map(|value| value.field(py)).collect::<PyResult<Vec<_>>>()?;
    let message = wire::message_of(id, values).map_err(|error| unfit(py, schema, &error))?;
    written(py, schema, |out| message.write(out))
}

/// A value and what it is made of, kept while the message borrows from it.
pub(crate) enum WireValue<'py> {
    One(Bound<'py, PyAny>),
    Array(Raw),
    Table(Vec<WireValue<'py>>),
    List(Vec<WireValue<'py>>),
}

impl<'py> WireValue<'py> {
    fn all(values: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<Vec<Self>> {
        values.map(Self::of).collect()
    }

    /// All that may run Python code.
    pub(crate) fn of(value: Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(table) = value.cast::<PyTuple>() {
            return Self::all(table.iter()).map(Self::Table);
        }
        if let Ok(list) = value.cast::<PyList>() {
            return Self::all(list.iter()).map(Self::List);
        }
        let is_plain = value.is_none()
            || value.is_instance_of::<PyString>()
            || value.is_instance_of::<PyInt>()
            || value.is_instance_of::<PyFloat>();
        if is_plain {
            return Ok(Self::One(value));
        }
        if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
            return text(&value).map(|text| Self::One(text.into_any()));
        }
        if let Some(raw) = Raw::of(&value) {
            return Ok(Self::Array(raw));
        }
        // Numpy's plain numbers are none of Python's.
        let number = value.call_method0("__index__").or_else(|_| value.call_method0("__float__"));
        number.map(Self::One).map_err(|_| {
            let what = format!("neither a number, nor text, nor an array of numbers: {value}");
            unfit_value(value.py(), what, String::new())
        })
    }

    pub(crate) fn field(&self, py: Python<'_>) -> PyResult<Field<'_>> {
        match self {
            Self::One(value) => plain(value),
            Self::Array(raw) => {
                let shape = raw.exported.buffer().shape().to_vec();
                Ok(Field::Array { dtype: raw.dtype, bytes: raw.exported.bytes(), shape })
            }
            Self::Table(values) => Self::table(py, values).map(Field::Table),
            Self::List(entries) if entries.iter().any(|entry| matches!(entry, Self::Table(_))) => {
                let tables = entries.iter().map(|entry| match entry {
                    Self::Table(values) => Self::table(py, values),
                    _ => Err(unfit_value(py, "a list of tables and other things".into(), String::new())),
                });
                tables.collect::<PyResult<_>>().map(Field::List)
            }
            Self::List(entries) => {
                let texts = entries.iter().map(|entry| match entry.field(py)? {
                    Field::Text(text) => Ok(text),
                    _ => Err(unfit_value(py, "a list of something else than texts".into(), String::new())),
                });
                texts.collect::<PyResult<_>>().map(Field::Texts)
            }
        }
    }

    /// The values of a table; names are not looked at.
    fn table<'a>(py: Python<'_>, values: &'a [Self]) -> PyResult<Fields<'a>> {
        values.iter().map(|value| Ok(("", value.field(py)?))).collect()
    }
}

/// Nothing, text or a number.
fn plain<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<Field<'a>> {
    if value.is_none() {
        return Ok(Field::None);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_str().map(Field::Text);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Field::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyFloat>() {
        return value.extract().map(Field::Float);
    }
    // One that is larger still may be for a double.
    let whole = value.extract().map(Field::Int).or_else(|_| value.extract().map(Field::UInt));
    whole.or_else(|_| value.extract().map(Field::Float)).map_err(|_| {
        let what = format!("more digits than any field can hold: {value}");
        unfit_value(value.py(), what, String::new())
    })
}

/// A text, which may be given as the `bytes` of one.
fn text<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.clone());
    }
    let bytes = match value.cast::<PyByteArray>() {
        Ok(array) => array.to_vec(),
        Err(_) => value.cast::<PyBytes>().map(|bytes| bytes.as_bytes().to_vec()).map_err(|_| {
            let what = format!("a text is wanted, not {value}");
            unfit_value(value.py(), what, String::new())
        })?,
    };
    let broken = |error: std::str::Utf8Error| unfit_value(value.py(), "not text in UTF-8".into(), error.to_string());
    Ok(PyString::new(value.py(), std::str::from_utf8(&bytes).map_err(broken)?))
}

/// An array of numbers in C order, and their type.
pub(crate) struct Raw {
    exported: Exported,
    dtype: DType,
}

impl Raw {
    /// `None` where it is something else.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> Option<Self> {
        let exported = Exported::of(value).ok()?;
        let dtype = dtype_of(exported.buffer())?;
        Some(Raw { exported, dtype })
    }

    fn numbers(&self) -> Numbers<'_> {
        Numbers::new(self.dtype, self.exported.bytes()).unwrap_or(Numbers::empty(self.dtype))
    }

    /// Lengths of the dimensions.
    pub(crate) fn shape(&self) -> &[usize] {
        self.exported.buffer().shape()
    }

    fn dimensions(&self) -> usize {
        self.exported.buffer().dimensions()
    }
}

/// The type of the elements, by the letters of the module `struct`; `None` for other bytes orders and other things.
fn dtype_of(buffer: &PyUntypedBuffer) -> Option<DType> {
    let letter = match buffer.format().to_bytes() {
        [letter] | [b'=' | b'<' | b'@', letter] => letter,
        _ => return None,
    };
    Some(match (letter, buffer.item_size()) {
        (b'b', 1) => DType::Int8,
        (b'B', 1) => DType::UInt8,
        (b'h', 2) => DType::Int16,
        (b'H', 2) => DType::UInt16,
        (b'i' | b'l' | b'q', 4) => DType::Int32,
        (b'I' | b'L' | b'Q', 4) => DType::UInt32,
        (b'i' | b'l' | b'q', 8) => DType::Int64,
        (b'I' | b'L' | b'Q', 8) => DType::UInt64,
        (b'f', 4) => DType::Float32,
        (b'd', 8) => DType::Float64,
        _ => return None,
    })
}

/// The output of `write` as `bytes`. The buffer in between is kept from call to call: large fresh memory costs more
/// than the copy.
fn written<'py>(
    py: Python<'py>,
    schema: &str,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> PyResult<Bound<'py, PyBytes>> {
    thread_local!(static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    SCRATCH.with_borrow_mut(|out| {
        write(out).map_err(|error| unfit(py, schema, &error))?;
        let bytes = PyBytes::new(py, out);
        if out.capacity() > SCRATCH_BYTES_KEPT_MAX {
            *out = Vec::new();
        }
        Ok(bytes)
    })
}

/// The exception of a value that the schema cannot hold.
pub(crate) fn unfit(py: Python<'_>, schema: &str, error: &Error) -> PyErr {
    unfit_value(py, format!("not a message of schema {schema}: {error}"), String::new())
}

/// The exception of a value that no field can hold.
pub(crate) fn unfit_value(py: Python<'_>, what: String, cause: String) -> PyErr {
    exception(py, "UnfitValueException", (what, cause))
}

/// Serialises one value of a process variable as `f144`: a number, or an array of numbers of one dimension.
///
/// A Python `int` becomes 64 bits, a `float` a double; numpy numbers and arrays keep their type.
#[pyfunction]
#[pyo3(
    signature = (source_name, value, timestamp_unix_ns=Whole(0)),
    text_signature = "(source_name, value, timestamp_unix_ns=0)"
)]
pub(crate) fn serialise_f144<'py>(
    source_name: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
    timestamp_unix_ns: Whole,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = value.py();
    let source_name = text(source_name)?;
    let source_name = source_name.to_str()?;
    let write = |value: wire::f144::Value<'_>| {
        let parts = wire::f144::F144 { source_name, timestamp: timestamp_unix_ns.0, value };
        written(py, "f144", |out| wire::f144::write(out, &parts))
    };
    if value.is_exact_instance_of::<PyFloat>() {
        return write(value.extract::<f64>()?.into());
    }
    if value.is_exact_instance_of::<PyInt>()
        && let Ok(whole) = value.extract::<i64>()
    {
        return write(whole.into());
    }
    static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let array = ASARRAY.import(py, "numpy", "ascontiguousarray")?.call1((value,))?;
    let Some(raw) = Raw::of(&array) else {
        let dtype = array.getattr("dtype")?;
        let text = format!("f144 flatbuffer does not support values of type {dtype}.");
        return Err(PyNotImplementedError::new_err(text));
    };
    let dimensions = match raw.dimensions() {
        // `ascontiguousarray` gives a plain number one dimension.
        1 if raw.numbers().len() == 1 => dimensions(value)?,
        dimensions => dimensions,
    };
    match (dimensions, raw.numbers().get(0)) {
        (0, Some(scalar)) => write(wire::f144::Value::Scalar(scalar)),
        (1, _) => write(wire::f144::Value::Array(raw.numbers())),
        _ => Err(PyNotImplementedError::new_err("f144 only supports scalars or 1D array values")),
    }
}

/// As numpy counts: 0 of a number, 1 of a list of numbers.
pub(crate) fn dimensions(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    static NDIM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    NDIM.import(value.py(), "numpy", "ndim")?.call1((value,))?.extract()
}

/// Serialises neutron events as `ev44`. Arrays of other types, lists and numbers are made `int64` (reference times)
/// and `int32` (all else).
#[pyfunction]
pub(crate) fn serialise_ev44<'py>(
    py: Python<'py>,
    source_name: &Bound<'py, PyAny>,
    message_id: Whole,
    reference_time: &Bound<'py, PyAny>,
    reference_time_index: &Bound<'py, PyAny>,
    time_of_flight: &Bound<'py, PyAny>,
    pixel_id: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let source_name = text(source_name)?;
    let reference_time = Column::<i64>::of(reference_time)?;
    let reference_time_index = Column::<i32>::of(reference_time_index)?;
    let time_of_flight = Column::<i32>::of(time_of_flight)?;
    let pixel_id = Column::<i32>::of(pixel_id)?;
    let parts = wire::ev44::Ev44 {
        source_name: source_name.to_str()?,
        message_id: message_id.0,
        reference_time: reference_time.array(),
        reference_time_index: reference_time_index.array(),
        time_of_flight: time_of_flight.array(),
        pixel_id: pixel_id.array(),
    };
    written(py, "ev44", |out| wire::ev44::write(out, &parts))
}

/// A number of 64 bits.
pub(crate) struct Whole(i64);

impl<'py> FromPyObject<'_, 'py> for Whole {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        value.extract().map(Whole).map_err(|_| {
            let what = format!("expected a 64-bit integer, found {}", value.to_owned());
            unfit_value(value.py(), what, String::new())
        })
    }
}

/// An array of one dimension with elements of one type, in C order.
struct Column<T> {
    raw: Raw,
    element: PhantomData<T>,
}

impl<T: Number> Column<T> {
    /// The array itself where it is one already; else a converted copy, as numpy's `astype` makes it.
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let fits = |raw: &Raw| raw.dtype == T::DTYPE && raw.dimensions() == 1;
        let raw = match Raw::of(value).filter(fits) {
            Some(raw) => raw,
            None => {
                static COLUMN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let column = COLUMN.import(value.py(), "beamport.wire._arrays", "column")?;
                let made = column.call1((value, T::DTYPE.name()))?;
                Raw::of(&made).filter(fits).ok_or_else(|| PyTypeError::new_err("not an array of one dimension"))?
            }
        };
        Ok(Column { raw, element: PhantomData })
    }

    fn array(&self) -> Array<'_, T> {
        self.raw.numbers().typed().unwrap_or_default()
    }
}
