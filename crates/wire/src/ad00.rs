//! `ad00`: a frame, that is an array of numbers of any dimensions with attributes, as cameras give it.
//!
//! The pixels are written last and start on [`PIXELS_ALIGN`] bytes within the message, so that in a stream, where a
//! message of some size starts on 64 bytes too, numpy and vector instructions read them where they lie. Others put
//! them anywhere; they are read all the same.
//!
//! [`Head`] is all of a message but its pixels: who has these in memory of their own (a driver, a mapped file) gives
//! [`Head::parts`] to the stream, and the one copy is the one into it.

use crate::flat::{Message, Out, Table, Writer};
use crate::limits::DIMENSIONS_MAX;
use crate::{Array, DType, Error, List, Numbers};

/// The schema id.
pub const ID: [u8; 4] = *b"ad00";

/// Where the pixels start within a message that we write: on a multiple of so many bytes, a line of the cache.
pub const PIXELS_ALIGN: usize = 64;

/// The end of a message, so that the next one behind it stays aligned.
const END: [u8; 8] = [0; 8];

/// One frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Ad00<'a> {
    /// Camera or plugin that made it.
    pub source_name: &'a str,
    /// Its number, from the camera.
    pub id: i32,
    /// When it was taken, ns since 1970 UTC.
    pub timestamp: i64,
    /// Lengths of the dimensions, slowest first; none for a single number.
    pub dimensions: Array<'a, i64>,
    /// The pixels, in C order.
    pub data: Numbers<'a>,
    /// Further properties, by name.
    pub attributes: List<'a, Attribute<'a>>,
}

/// Something known of a frame: a number, numbers or text with a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute<'a> {
    /// Its name within the frame, for example `ColorMode`.
    pub name: &'a str,
    /// Its meaning.
    pub description: Option<&'a str>,
    /// Where the value comes from, for example a process variable.
    pub source: Option<&'a str>,
    /// The value; a plain number is an array of one.
    pub data: Numbers<'a>,
}

impl Ad00<'_> {
    /// Lengths of the dimensions as sizes, slowest first.
    pub fn shape(&self) -> Vec<usize> {
        // Checked when it was read: none is negative.
        self.dimensions.iter().map(|length| length as usize).collect()
    }

    /// Whether dimensions and pixels fit together.
    fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Inconsistent { what });
        if self.dimensions.len() > DIMENSIONS_MAX {
            return wrong("an ad00 has more than 32 `dimensions`");
        }
        match self.dimensions.product() {
            None => wrong("one of the `dimensions` of an ad00 is negative, or all are too large"),
            Some(elements) if elements != self.data.len() => wrong("the `dimensions` of an ad00 do not fit its `data`"),
            Some(_) => Ok(()),
        }
    }
}

/// Verifies and reads a message, also that its dimensions fit its pixels.
pub fn read(bytes: &[u8]) -> Result<Ad00<'_>, Error> {
    read_as(bytes, ID)
}

/// Reads it under another schema id.
pub(crate) fn read_as(bytes: &[u8], id: [u8; 4]) -> Result<Ad00<'_>, Error> {
    let message = Message::open(bytes, id)?;
    let table = message.root()?;
    let frame = Ad00 {
        source_name: table.text_required(0, "source_name")?,
        id: table.number(1, 0, "id")?,
        timestamp: table.number(2, 0, "timestamp")?,
        dimensions: table.array_required(3, "dimensions")?,
        data: numbers(&table, 4, "ad00 `data` is not of its `data_type`")?,
        attributes: table.tables(6, "attributes", attribute)?.unwrap_or_default().into(),
    };
    frame.check()?;
    Ok(frame)
}

fn attribute<'a>(table: Table<'_, 'a>) -> Result<Attribute<'a>, Error> {
    Ok(Attribute {
        name: table.text_required(0, "name")?,
        description: table.text(1, "description")?,
        source: table.text(2, "source")?,
        data: numbers(&table, 3, "the `data` of an ad00 attribute is not of its `data_type`")?,
    })
}

/// The numbers of field `id` + 1, whose type is in field `id`: 0..=10 in the order of [`DType`].
fn numbers<'a>(table: &Table<'_, 'a>, id: usize, unfit: &'static str) -> Result<Numbers<'a>, Error> {
    let tag = table.number(id, 0i8, "data_type")?;
    let dtype = usize::try_from(tag).ok().and_then(|at| DType::ALL.get(at)).copied();
    let dtype = dtype.ok_or(Error::UnknownKind { field: "data_type", value: tag.into() })?;
    let bytes = table.array_required::<u8>(id + 1, "data")?.bytes();
    Numbers::new(dtype, bytes).ok_or(Error::Inconsistent { what: unfit })
}

/// Writes a message into `out`, replacing what was there. Refuses dimensions that do not fit.
pub fn write(out: &mut Vec<u8>, frame: &Ad00<'_>) -> Result<(), Error> {
    write_to(out, frame)
}

/// The same, to wherever it goes.
pub(crate) fn write_to<O: Out>(out: &mut O, frame: &Ad00<'_>) -> Result<(), Error> {
    let places = write_head(out, frame)?;
    out.extend(frame.data.bytes());
    out.extend(&END[..places.end]);
    Ok(())
}

/// All of a message but its pixels, kept from frame to frame.
///
/// ```
/// use beamport_wire::ad00::{self, Ad00, Head};
///
/// let mut pixels = vec![0u16; 512 * 512];
/// let mut head = Head::default();
/// head.write(&Ad00 {
///     source_name: "camera",
///     id: 0,
///     timestamp: 0,
///     dimensions: (&[512i64, 512]).into(),
///     data: (&pixels).into(),
///     attributes: Default::default(),
/// })?;
/// for id in 0..3 {
///     pixels[0] = id; // the camera takes the next frame
///     head.set(i32::from(id), 1_000_000 * i64::from(id));
///     let pixels: &[u8] = bytemuck::cast_slice(&pixels);
///     let message = head.parts(pixels).expect("as many bytes as before").concat(); // or a stream's `push(meta, &parts)`
///     assert_eq!(ad00::read(&message)?.id, i32::from(id));
/// }
/// # Ok::<(), beamport_wire::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Head {
    bytes: Vec<u8>,
    places: Places,
}

/// Offsets and lengths in a written head.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    id: usize,
    timestamp: usize,
    /// Bytes of the pixels.
    pixels: usize,
    /// Zeros behind them.
    end: usize,
}

impl Head {
    /// Writes the head for a frame, replacing what was there; of its pixels only type and number count.
    /// On failure it is empty and fits no pixels but none.
    pub fn write(&mut self, frame: &Ad00<'_>) -> Result<(), Error> {
        self.places = Places::default();
        self.places = write_head(&mut self.bytes, frame)?;
        Ok(())
    }

    /// Gives it the number and time of another frame.
    pub fn set(&mut self, id: i32, timestamp: i64) {
        let mut put = |at: usize, value: &[u8]| {
            // Nothing to set before it was written.
            if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        put(self.places.id, &id.to_le_bytes());
        put(self.places.timestamp, &timestamp.to_le_bytes());
    }

    /// The message, as parts to be put one behind the other; `None` where the pixels are not as many bytes as the
    /// frame had that the head was written for.
    pub fn parts<'p>(&'p self, pixels: &'p [u8]) -> Option<[&'p [u8]; 3]> {
        (pixels.len() == self.places.pixels).then(|| [&self.bytes[..], pixels, &END[..self.places.end]])
    }

    /// Bytes before the pixels, a multiple of [`PIXELS_ALIGN`].
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it was never written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Writes all up to the pixels.
fn write_head<O: Out>(out: &mut O, frame: &Ad00<'_>) -> Result<Places, Error> {
    let mut writer = Writer::begin(out, ID);
    if let Err(fault) = frame.check() {
        writer.refuse(fault);
    }
    let [source_name, id, timestamp, dimensions, data_type, data, attributes] = writer.root([4, 4, 8, 4, 1, 4, 4]);
    writer.put(id, frame.id);
    writer.put(timestamp, frame.timestamp);
    writer.put(data_type, frame.data.dtype() as i8);
    writer.text(source_name, frame.source_name);
    writer.array(dimensions, frame.dimensions);
    let first = writer.list(attributes, frame.attributes.len(), "attributes");
    for (at, attribute) in frame.attributes.iter().enumerate() {
        write_attribute(&mut writer, first + 4 * at, attribute);
    }
    let pixels = frame.data.bytes().len();
    writer.vector(data, pixels, PIXELS_ALIGN);
    let end = writer.finish_before(pixels)?;
    Ok(Places { id, timestamp, pixels, end })
}

fn write_attribute<O: Out>(writer: &mut Writer<'_, O>, slot: usize, attribute: &Attribute<'_>) {
    let optional = |text: Option<&str>| if text.is_some() { 4 } else { 0 };
    let [name, description, source, data_type, data] =
        writer.table(slot, [4, optional(attribute.description), optional(attribute.source), 1, 4]);
    writer.put(data_type, attribute.data.dtype() as i8);
    writer.text(name, attribute.name);
    for (slot, text) in [(description, attribute.description), (source, attribute.source)] {
        if let Some(text) = text {
            writer.text(slot, text);
        }
    }
    writer.bytes(data, attribute.data.bytes().len(), attribute.data.bytes());
}
