//! One message: what its index entry says, and its fields by name.

use crate::fault;
use crate::memory::{View, unpicklable};
use crate::numpy;
use crate::owned::{MessageBytes, Ours, Pinned, bytes_of};
use flow::Fault;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyIterator, PyList, PyString};
use std::sync::Arc;
use store::Entry;
use wire::ad00::{self, Ad00};
use wire::{DType, Field, da00};

/// One time-stamped, numbered, typed piece of data, as it lies in stream memory.
///
/// A message is a mapping of the field names of its schema to values: `m["pixel_id"]` is a read-only numpy array
/// that points into stream memory, nothing is copied. Such an array keeps its memory in place for as long as it
/// lives, and its values never change, even if the stream has advanced far. Keep only arrays that you need: an array
/// holds its whole segment (up to 64 MiB of memory). `m["pixel_id"].copy()` does not.
///
/// Numbers become `int` or `float`, text `str`, a uuid 32 hexadecimal digits, tables `dict`, an absent field `None`.
///
/// A frame (schema `ad00`) has its pixels in `m.array`, its number in `m.id` and its attributes in `m.metadata` besides.
///
/// Raises `Error` for a name that the schema does not have, and where the bytes are no message of their schema.
#[pyclass(frozen, module = "beamport")]
pub(crate) struct Message {
    /// Position in the stream: 0, 1, 2...
    #[pyo3(get)]
    pub(crate) sequence: u64,
    entry: Entry,
    pinned: Pinned,
    /// First byte of the payload in the segment.
    place: u64,
    origin: Arc<str>,
    /// False where its number was left to the one who appends it.
    pub(crate) is_numbered: bool,
}

impl Message {
    pub(crate) fn new(sequence: u64, entry: Entry, (pinned, place): (Pinned, u64), origin: Arc<str>) -> Self {
        Self { sequence, entry, pinned, place, origin, is_numbered: true }
    }

    fn bytes(&self) -> &[u8] {
        bytes_of(&self.pinned, self.place, u64::from(self.entry.length))
    }

    /// Its entry and its bytes.
    pub(crate) fn raw(&self, py: Python<'_>) -> PyResult<(&Entry, &[u8])> {
        self.check(py)?;
        Ok((&self.entry, self.bytes()))
    }

    /// The name of its origin.
    pub(crate) fn origin_name(&self) -> &str {
        &self.origin
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.pinned.check(py, "a message")
    }

    fn parsed(&self, py: Python<'_>) -> PyResult<wire::Fields<'_>> {
        self.check(py)?;
        wire::fields(self.bytes()).map_err(|e| unreadable(py, self.sequence, &self.entry, &e))
    }

    fn value_of<'py>(&self, py: Python<'py>, field: &Field<'_>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match field {
            Field::None => py.None().into_bound(py),
            Field::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Field::Int(value) => value.into_pyobject(py)?.into_any(),
            Field::UInt(value) => value.into_pyobject(py)?.into_any(),
            Field::Float(value) => value.into_pyobject(py)?.into_any(),
            Field::Text(text) => PyString::new(py, text).into_any(),
            Field::Uuid(bytes) => PyString::new(py, &store::hex(bytes)).into_any(),
            Field::Array { dtype, bytes, shape } => self.view(py, *dtype, bytes, shape)?,
            Field::Texts(texts) => PyList::new(py, texts)?.into_any(),
            Field::List(tables) => {
                let list = PyList::empty(py);
                for table in tables {
                    list.append(self.table(py, table)?)?;
                }
                list.into_any()
            }
            Field::Table(fields) => self.table(py, fields)?.into_any(),
        })
    }

    /// A read-only array over bytes of the message, which has as many elements as they hold.
    fn view<'py>(&self, py: Python<'py>, dtype: DType, bytes: &[u8], shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
        // An empty array need not lie anywhere.
        let range = wire::range_in(self.bytes(), bytes).unwrap_or(0..0);
        let view = View::of_segment(&self.pinned, self.place + range.start as u64, range.len() as u64);
        numpy::array(py, view, shape, numpy::dtype(py, dtype)?)
    }

    /// A number, text, or a view of several numbers.
    fn attribute<'py>(&self, py: Python<'py>, data: wire::Numbers<'_>) -> PyResult<Bound<'py, PyAny>> {
        match (data.as_text(), data.get(0)) {
            (Some(text), _) => Ok(PyString::new(py, text).into_any()),
            (None, Some(number)) if data.len() == 1 => self.value_of(py, &Field::from(number)),
            _ => self.view(py, data.dtype(), data.bytes(), &[data.len()]),
        }
    }

    /// The error for a message that has no `value`.
    fn no_value(&self, py: Python<'_>) -> PyErr {
        let what = format!("message {} has no `value`", self.sequence);
        let cause = format!("it is of schema {}, which has several things that are measured", self.entry.schema);
        fault::error(py, Fault::new(what, cause).hint("name one: `m[\"pixel_id\"]`; `m.keys()` lists them"))
    }

    /// The message as a frame; `asked` is what only frames have.
    fn frame(&self, py: Python<'_>, asked: &str) -> PyResult<Ad00<'_>> {
        self.check(py)?;
        if self.entry.schema.0 != ad00::ID {
            let what = format!("message {} has no `{asked}`", self.sequence);
            let cause = format!("it is of schema {}, and only a frame, ad00, has one", self.entry.schema);
            let hint = "use `m.fields()`, or `read(schema=\"ad00\")` for frames only";
            return Err(fault::error(py, Fault::new(what, cause).hint(hint)));
        }
        ad00::read(self.bytes()).map_err(|e| unreadable(py, self.sequence, &self.entry, &e))
    }

    fn table<'py>(&self, py: Python<'py>, fields: &wire::Fields<'_>) -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        for (name, field) in fields {
            table.set_item(name, self.value_of(py, field)?)?;
        }
        Ok(table)
    }
}

/// Why the fields of a message cannot be had.
pub(crate) fn unreadable(py: Python<'_>, sequence: u64, entry: &Entry, cause: &wire::Error) -> PyErr {
    let what = format!("message {sequence} ({}) has no fields that can be read", entry.schema);
    fault::error(py, Fault::new(what, cause).hint("use its bytes, `m.payload`"))
}

/// The error for a field that a schema does not have.
pub(crate) fn no_field(py: Python<'_>, entry: &Entry, name: &str, fields: &wire::Fields<'_>) -> PyErr {
    let names = fields.iter().map(|f| f.0.to_owned()).collect();
    fault::missing(py, &format!("a message of schema {} has no field", entry.schema), name, names)
}

/// A message of its bytes, which are copied, for `beamport.nexus` alone.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "all that an entry says")]
pub(crate) fn _message(
    payload: &[u8],
    sequence: u64,
    source_time: i64,
    arrival_time: i64,
    origin: &str,
    origin_seq: u64,
    schema: &[u8],
    flags: u32,
) -> PyResult<Message> {
    of_bytes(payload, (sequence, source_time, arrival_time), (origin, origin_seq), (schema, flags as u16))
}

/// A message of its bytes, which are copied.
pub(crate) fn of_bytes(
    payload: &[u8],
    (sequence, source_time, arrival_time): (u64, i64, i64),
    (origin, origin_seq): (&str, u64),
    (schema, flags): (&[u8], u16),
) -> PyResult<Message> {
    let mut entry: Entry = bytemuck::Zeroable::zeroed();
    (entry.source_time, entry.arrival_time, entry.origin_seq) = (source_time, arrival_time, origin_seq);
    entry.flags = flags;
    let too_long = |_| PyValueError::new_err("a message of 4 GiB or more");
    entry.length = u32::try_from(payload.len()).map_err(too_long)?;
    schema.iter().zip(&mut entry.schema.0).for_each(|(letter, place)| *place = *letter);
    let held = Arc::new(Ours::new(Some(MessageBytes::Bytes(payload.into()))));
    Ok(Message::new(sequence, entry, (held, 0), origin.into()))
}

#[pymethods]
impl Message {
    /// Time of the data by its source's clock, ns since 1970 UTC (`int`).
    #[getter]
    fn source_time(&self) -> i64 {
        self.entry.source_time
    }

    /// Time at which it was appended, ns since 1970 UTC (`int`); never falls within a stream.
    #[getter]
    fn arrival_time(&self) -> i64 {
        self.entry.arrival_time
    }

    /// Who made it: a PV, a bank, a board.
    #[getter]
    fn origin(&self) -> &str {
        &self.origin
    }

    /// The number its maker gave it; a gap in the numbers of one origin is loss.
    #[getter]
    fn origin_seq(&self) -> u64 {
        self.entry.origin_seq
    }

    /// Schema id, four letters: `"ev44"`.
    #[getter]
    fn schema(&self) -> String {
        self.entry.schema.as_text()
    }

    /// Names of its quality flags, of `"ahead"` (source time far beyond arrival), `"suspect"` (its source says so),
    /// `"clock"` (the machine's clock was set back: the arrival time is that of an earlier message) and `"repeat"` (its
    /// source sends its last value again).
    #[getter]
    fn flags(&self) -> Vec<&'static str> {
        store::flags::words(self.entry.flags)
    }

    /// Its bytes as a read-only numpy array of uint8, shape `(bytes,)`, in stream memory; `bytes(m.payload)` copies.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.check(py)?;
        let len = self.entry.length;
        let view = View::of_segment(&self.pinned, self.place, len.into());
        numpy::array(py, view, &[len as usize], numpy::dtype(py, wire::DType::UInt8)?)
    }

    /// The pixels of a frame: a read-only numpy array with its shape and type, in stream memory.
    ///
    /// Raises `Error` where the message is no frame (schema `ad00`). Text in the place of pixels is its bytes.
    #[getter]
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let frame = self.frame(py, "array")?;
        self.view(py, frame.data.dtype(), frame.data.bytes(), &frame.shape())
    }

    /// The measured value: the number, text or array of a value (`f144`, `f142`), the pixels of a frame (`ad00`),
    /// the `signal` of a data array (`da00`), the counts of a histogram (`hs00`, `hs01`), the content of a `json`.
    /// Arrays are read-only views in stream memory.
    ///
    /// Raises `Error` for messages that have several such things, such as events.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.entry.schema.0 {
            b"ad00" => self.array(py),
            b"da00" => {
                self.check(py)?;
                let read = da00::read(self.bytes()).map_err(|e| unreadable(py, self.sequence, &self.entry, &e))?;
                let signal = read.data.iter().find(|one| one.name == "signal").ok_or_else(|| self.no_value(py))?;
                match signal.axes.is_empty() && signal.data.len() == 1 {
                    true => self.attribute(py, signal.data),
                    false => self.view(py, signal.data.dtype(), signal.data.bytes(), &signal.extent()),
                }
            }
            b"json" => py.import("json")?.call_method1("loads", (self.__getitem__(py, "json")?,)),
            _ => {
                let fields = self.parsed(py)?;
                let value = fields.iter().find(|(name, _)| matches!(*name, "value" | "data"));
                self.value_of(py, &value.ok_or_else(|| self.no_value(py))?.1)
            }
        }
    }

    /// `value` as an array, of no dimensions for one number; `np.asarray(m)` is the same.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.call_method1("asarray", (self.value(py)?,))
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let values = self.values(py)?;
        let is_same = match &dtype {
            Some(dtype) => values.getattr("dtype")?.eq(dtype)?,
            None => true,
        };
        match (is_same, copy) {
            (true, Some(true)) => values.call_method0("copy"),
            (true, _) => Ok(values),
            (false, Some(false)) => Err(PyValueError::new_err("another type needs a copy")),
            (false, _) => values.call_method1("astype", (dtype,)),
        }
    }

    /// Time of the data (`source_time`) as `numpy.datetime64`, to the ns, in UTC.
    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("numpy")?.call_method1("datetime64", (self.entry.source_time, "ns"))
    }

    /// The number that a camera gave its frame (`int`); `origin_seq` is what loss is counted by.
    ///
    /// Raises `Error` where the message is no frame (schema `ad00`).
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.frame(py, "id")?.id)
    }

    /// The attributes of a frame (`ad00`) or a data array (`da00`), `{name: value}`: `str`, `int`, `float`, or a view
    /// where there is not just one number. Of a data array these are the variables without dimensions beside `signal`.
    ///
    /// It cannot be changed: a worker returns `m, {"name": value}` to add some. Of a name that comes twice the last
    /// counts. Descriptions and sources are in `m["attributes"]`. Raises `Error` for messages of other schemas.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let metadata = PyDict::new(py);
        if self.entry.schema.0 == da00::ID {
            self.check(py)?;
            let read = da00::read(self.bytes()).map_err(|e| unreadable(py, self.sequence, &self.entry, &e))?;
            for variable in read.data.iter().filter(|one| one.axes.is_empty() && one.name != "signal") {
                metadata.set_item(variable.name, self.attribute(py, variable.data)?)?;
            }
        } else {
            for attribute in self.frame(py, "metadata")?.attributes.iter() {
                metadata.set_item(attribute.name, self.attribute(py, attribute.data)?)?;
            }
        }
        static METADATA: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        METADATA.import(py, "beamport._result", "Metadata")?.call1((metadata,))
    }

    /// Value of a field: a read-only numpy view for arrays, see the class.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let fields = self.parsed(py)?;
        match fields.iter().find(|field| field.0 == name) {
            Some((_, field)) => self.value_of(py, field),
            None => Err(no_field(py, &self.entry, name, &fields)),
        }
    }

    /// All fields, `{name: value}`, in the order of the schema; arrays are views.
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.table(py, &self.parsed(py)?)
    }

    /// Names of the fields, in the order of the schema.
    fn keys(&self, py: Python<'_>) -> PyResult<Vec<&'static str>> {
        Ok(self.parsed(py)?.into_iter().map(|field| field.0).collect())
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        Ok(self.parsed(py)?.iter().any(|field| field.0 == name))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.parsed(py)?.len())
    }

    /// A message is there, whatever its fields.
    fn __bool__(&self) -> bool {
        true
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys(py)?)?.try_iter()
    }

    fn __repr__(&self) -> String {
        let Entry { schema, length, source_time, .. } = self.entry;
        format!(
            "<beamport.Message {} {schema} from `{}`, source_time {source_time}, {length} bytes>",
            self.sequence, self.origin
        )
    }

    /// For notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("beamport._html")?.call_method1("message", (slf,))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, "a message"))
    }
}
