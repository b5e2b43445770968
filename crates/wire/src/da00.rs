//! `da00`: a labelled array with its axes, as variables with names, units and dimensions.

use crate::flat::{Message, Out, Table, Writer};
use crate::{Array, DType, Error, List, Numbers};

/// The schema id.
pub const ID: [u8; 4] = *b"da00";

/// A data array: usually one variable `signal`, its errors and its axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Da00<'a> {
    /// Monitor, detector or worker that made it.
    pub source_name: &'a str,
    /// Time of the data, ns since 1970 UTC.
    pub timestamp: i64,
    /// The variables.
    pub data: List<'a, Variable<'a>>,
}

/// One variable of a data array.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable<'a> {
    /// Its name within the array, for example `signal` or `time_of_flight`.
    pub name: &'a str,
    /// Unit of the values.
    pub unit: Option<&'a str>,
    /// Text for a plot.
    pub label: Option<&'a str>,
    /// Where the values come from.
    pub source: Option<&'a str>,
    /// Names of the dimensions, slowest first; senders are found that name more or fewer than there are.
    pub axes: List<'a, &'a str>,
    /// Lengths of the dimensions as sent, slowest first; [`Variable::extent`] is what the values have.
    pub shape: Array<'a, i64>,
    /// The values, in C order.
    pub data: Numbers<'a>,
}

impl Variable<'_> {
    /// Lengths of the dimensions that the values have.
    ///
    /// Same as `shape`, but for variables without axes: there the Python library sends the number of *bytes*
    /// as shape, and the values are one dimension.
    pub fn extent(&self) -> Vec<usize> {
        match self.shape.product() {
            Some(elements) if elements == self.data.len() => self.shape.iter().map(|length| length as usize).collect(),
            _ => vec![self.data.len()],
        }
    }

    /// Whether shape and values fit together.
    fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Inconsistent { what });
        let Some(elements) = self.shape.product() else {
            return wrong("a da00 `shape` is negative or too large");
        };
        let as_bytes = self.axes.is_empty() && elements == self.data.bytes().len();
        if elements != self.data.len() && !as_bytes {
            return wrong("a da00 `shape` does not fit its `data`");
        }
        Ok(())
    }
}

/// Verifies and reads a message, also that every shape fits its data.
pub fn read(bytes: &[u8]) -> Result<Da00<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let data = table.tables(2, "data", variable)?.ok_or(Error::Missing { field: "data" })?;
    Ok(Da00 {
        source_name: table.text_required(0, "source_name")?,
        timestamp: table.number(1, 0, "timestamp")?,
        data: data.into(),
    })
}

fn variable<'a>(table: Table<'_, 'a>) -> Result<Variable<'a>, Error> {
    // 1..=11 are the types in the order of `DType`; 0 is "none", which says nothing about the bytes.
    let tag = table.number(4, 0i8, "data_type")?;
    let dtype = usize::try_from(i64::from(tag) - 1).ok().and_then(|at| DType::ALL.get(at)).copied();
    let dtype = dtype.ok_or(Error::UnknownKind { field: "data_type", value: tag.into() })?;
    let bytes = table.array_required::<u8>(7, "data")?.bytes();
    let data =
        Numbers::new(dtype, bytes).ok_or(Error::Inconsistent { what: "da00 `data` is not of its `data_type`" })?;
    let variable = Variable {
        name: table.text_required(0, "name")?,
        unit: table.text(1, "unit")?,
        label: table.text(2, "label")?,
        source: table.text(3, "source")?,
        axes: table.texts(5, "axes")?.into(),
        shape: table.array_required(6, "shape")?,
        data,
    };
    variable.check()?;
    Ok(variable)
}

/// Writes a message into `out`, replacing what was there. Refuses shapes that do not fit.
pub fn write(out: &mut Vec<u8>, parts: &Da00<'_>) -> Result<(), Error> {
    write_to(out, parts)
}

/// The same, to wherever it goes.
pub(crate) fn write_to<O: Out>(out: &mut O, parts: &Da00<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [source_name, timestamp, data] = writer.root([4, 8, 4]);
    writer.put(timestamp, parts.timestamp);
    writer.text(source_name, parts.source_name);
    let first = writer.list(data, parts.data.len(), "data");
    for (at, variable) in parts.data.iter().enumerate() {
        if let Err(fault) = variable.check() {
            writer.refuse(fault);
        }
        write_variable(&mut writer, first + 4 * at, variable);
    }
    writer.finish()
}

fn write_variable<O: Out>(writer: &mut Writer<'_, O>, slot: usize, variable: &Variable<'_>) {
    let optional = |text: Option<&str>| if text.is_some() { 4 } else { 0 };
    let [name, unit, label, source, data_type, axes, shape, data] = writer
        .table(slot, [4, optional(variable.unit), optional(variable.label), optional(variable.source), 1, 4, 4, 4]);
    writer.put(data_type, variable.data.dtype() as i8 + 1);
    writer.text(name, variable.name);
    for (slot, text) in [(unit, variable.unit), (label, variable.label), (source, variable.source)] {
        if let Some(text) = text {
            writer.text(slot, text);
        }
    }
    writer.texts(axes, &variable.axes, "axes");
    writer.array(shape, variable.shape);
    writer.bytes(data, variable.data.bytes().len(), variable.data.bytes());
}
