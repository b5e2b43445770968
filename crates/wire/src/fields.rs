//! The fields of any message by name: for `cat --json`, for Python, for whoever does not care which schema.

use std::ops::Range;

use crate::flat::{Count, Out, Room};
use crate::part::{self, Column, Kind, Part, Tabled, numbers_of};
use crate::*;

/// Names and values of a message, in the order of the schema.
pub fn fields(bytes: &[u8]) -> Result<Fields<'_>, Error> {
    Ok(read(bytes)?.fields())
}

/// Where `part` lies in `whole`, in bytes; `None` if it does not lie there. For views without copies.
pub fn range_in(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let first = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = first.checked_add(part.len())?;
    (end <= whole.len()).then_some(first..end)
}

impl<'a> Message<'a> {
    /// Bytes of the message when it is written; for the schemas of [`message_of`].
    pub fn written_len(&self) -> Result<usize, Error> {
        let mut count = Count::default();
        write_to(self, &mut count).map(|()| count.len())
    }

    /// Writes the message into room of at least [`Message::written_len`] bytes, each array with one copy; returns its bytes.
    pub fn write_into(&self, room: &mut [u8]) -> Result<usize, Error> {
        let size = room.len();
        let mut room = Room::new(room);
        write_to(self, &mut room)?;
        match room.len() {
            length if length <= size => Ok(length),
            length => Err(Error::TooLong { length }),
        }
    }

    /// Who made the message: `source_name`, or what its schema has in place of it.
    pub fn maker(&self) -> Option<&'a str> {
        const MAKERS: [&str; 5] = ["source_name", "name", "Name", "source", "key"];
        let fields = self.fields();
        MAKERS.iter().find_map(|maker| match fields.iter().find(|(name, _)| name == maker) {
            Some((_, Field::Text(name))) => Some(*name),
            _ => None,
        })
    }

    /// Names and values, in the order of the schema.
    pub fn fields(&self) -> Fields<'a> {
        use Field::{Int, Text, UInt, Uuid};
        match self {
            Message::Ad00(m) | Message::Adar(m) => vec![
                ("source_name", Text(m.source_name)),
                ("id", Int(m.id.into())),
                ("timestamp", Int(m.timestamp)),
                ("dimensions", m.dimensions.into()),
                ("data", shaped(m.data, m.shape())),
                ("attributes", Field::List(m.attributes.iter().map(attribute).collect())),
            ],
            Message::Da00(m) => vec![
                ("source_name", Text(m.source_name)),
                ("timestamp", Int(m.timestamp)),
                ("data", Field::List(m.data.iter().map(variable).collect())),
            ],
            Message::F144(m) => {
                vec![("source_name", Text(m.source_name)), ("timestamp", Int(m.timestamp)), ("value", m.value.into())]
            }
            Message::Hs00(m) => histogram::shaped(m.fields(), |numbers| m.extent(numbers)),
            Message::Hs01(m) => histogram::shaped(m.fields(), |numbers| m.extent(numbers)),
            Message::Al00(m) => m.fields(),
            Message::An44(m) => m.fields(),
            Message::Answ(m) => m.fields(),
            Message::Ar51(m) => m.fields(),
            Message::Df12(m) => m.fields(),
            Message::Ep00(m) => m.fields(),
            Message::Ep01(m) => m.fields(),
            Message::Ev42(m) => m.fields(),
            Message::Ev43(m) => m.fields(),
            Message::Ev44(m) => m.fields(),
            Message::Ndar(m) => m.fields(),
            Message::Vc00(m) => m.fields(),
            Message::F142(m) => m.fields(),
            Message::Fc00(m) => m.fields(),
            Message::Json(m) => m.fields(),
            Message::Ns10(m) => m.fields(),
            Message::Pl72(m) => m.fields(),
            Message::Pu00(m) => m.fields(),
            Message::Rf5k(m) => m.fields(),
            Message::S6s4t(m) => m.fields(),
            Message::Se00(m) => m.fields(),
            Message::Senv(m) => m.fields(),
            Message::Tdct(m) => m.fields(),
            Message::Un00(m) => m.fields(),
            Message::Wrdn(m) => m.fields(),
            Message::X5f2(m) => m.fields(),
            Message::Bppv(m) => m.fields(),
            Message::Bprn(m) => vec![
                ("name", Text(m.name)),
                ("id", Uuid(m.id)),
                ("state", Text(m.state.name())),
                ("start", Int(m.start)),
                ("stop", if m.stop == bprn::STOP_UNKNOWN { Field::None } else { Int(m.stop) }),
                ("settle", Int(m.settle)),
                ("time", Int(m.time)),
                ("metadata", Text(m.metadata)),
                ("streams", Field::List(m.streams.iter().map(run_stream).collect())),
                ("reason", Text(m.reason)),
                ("inclusive", Field::Bool(m.inclusive)),
                ("clock_step", Int(m.clock_step)),
                ("instrument", Text(m.instrument)),
                ("instrument_back", UInt(m.instrument_back.into())),
            ],
            Message::Bpas(m) => vec![
                ("stage", Text(m.stage)),
                ("reason", Text(m.reason)),
                ("text", Text(m.text)),
                ("stream", Text(m.stream)),
                ("uuid", Uuid(m.uuid)),
                ("epoch", UInt(m.epoch.into())),
                ("sequence", UInt(m.sequence)),
                ("kind", Text(m.kind)),
                ("time", Int(m.time)),
                ("payload", m.payload.into()),
                ("origin", Text(m.origin)),
            ],
            Message::Bpcm(m) => vec![
                ("stage", Text(m.stage)),
                ("run", Text(m.run)),
                ("block", UInt(m.block)),
                ("time", Int(m.time)),
                ("inputs", Field::List(m.inputs.iter().map(commit_input).collect())),
                ("gaps", Field::List(m.gaps.iter().map(gap).collect())),
                ("output_first", UInt(m.output_first)),
                ("output_next", UInt(m.output_next)),
                ("state", Text(m.state)),
                ("finished", Field::Bool(m.finished)),
                ("totals", Field::List(m.totals.iter().map(total).collect())),
                ("part", UInt(m.part.into())),
                ("parts", UInt(m.parts.into())),
                ("is_table", Field::Bool(m.is_table)),
            ],
            Message::Bpdn(m) => vec![
                ("task", Field::Table(task(&m.task))),
                ("output_first", UInt(m.output_first)),
                ("outputs", m.outputs.into()),
                ("aside", m.aside.into()),
                ("gaps", Field::List(m.gaps.iter().map(gap).collect())),
                ("busy", UInt(m.busy)),
                ("state", Text(m.state)),
                ("kept", m.kept.into()),
                ("waits", UInt(m.waits)),
                ("oldest", Int(m.oldest)),
                ("due", Int(m.due)),
            ],
            Message::Bptk(m) => task(m),
            Message::Bpgp(m) => gap(m),
            Message::Bpct(m) => vec![
                ("command", Text(m.command)),
                ("arguments", Text(m.arguments)),
                ("from", Text(m.from)),
                ("time", Int(m.time)),
                ("answer", Text(m.answer)),
            ],
            Message::Bpst(m) => {
                vec![("stage", Text(m.stage)), ("time", Int(m.time)), ("json", Text(m.json))]
            }
            Message::Bpgr(m) => vec![
                ("first", UInt(m.first)),
                ("count", UInt(m.count.into())),
                ("missing", m.missing.into()),
                ("time", Int(m.time)),
                ("members", m.members.into()),
            ],
        }
    }
}

/// Makes what goes through every schema of the facility that `table!` declares, and through the four that are declared by
/// hand.
macro_rules! facility {
    ($($variant:ident = $module:ident::$part:ident;)*) => {
        /// The message of a schema that has these values: what [`Message::fields`] gives, the other way round and without the
        /// names. Values that are not said are as absent ones are read, and so is `Field::None` unless it stands for a number
        /// or a text that no sender leaves out; words of enums may be numbers, and the value of `f142` and `f144`, when it is
        /// one number, is the table around it, with an array of one. Only for schemas of the facility.
        ///
        /// Fails with [`Error::Unfit`] where a field cannot hold its value.
        pub fn message_of(schema: [u8; 4], values: Vec<Field<'_>>) -> Result<Message<'_>, Error> {
            match schema {
                $( $module::ID => Tabled::of_fields(values).map(Message::$variant), )*
                ad00::ID => frame_of(values).map(Message::Ad00),
                adar::ID => frame_of(values).map(Message::Adar),
                da00::ID => array_of(values).map(Message::Da00),
                f144::ID => value_of(values).map(Message::F144),
                found => Err(Error::UnknownSchema { found }),
            }
        }

        /// Writes a message of these schemas to wherever it goes.
        fn write_to<O: Out>(message: &Message<'_>, out: &mut O) -> Result<(), Error> {
            match message {
                $( Message::$variant(message) => $module::write_to(out, message), )*
                Message::Ad00(message) => ad00::write_to(out, message),
                Message::Adar(message) => adar::write_to(out, message),
                Message::Da00(message) => da00::write_to(out, message),
                Message::F144(message) => f144::write_to(out, message),
                // beamport's own are written by those who keep them.
                _ => Err(Error::UnknownSchema { found: *b"bp.." }),
            }
        }

        /// The fields of a schema, in the order of [`message_of`]; `None` where that does not make the schema.
        pub fn columns(schema: [u8; 4]) -> Option<&'static [Column]> {
            match schema {
                $( $module::ID => Some(<$module::$part<'_> as Tabled<'_>>::COLUMNS), )*
                ad00::ID | adar::ID => Some(FRAME),
                da00::ID => Some(ARRAY),
                f144::ID => Some(VALUE),
                _ => None,
            }
        }
    };
}

facility! {
    Al00 = al00::Al00;
    An44 = an44::An44;
    Answ = answ::Answ;
    Ar51 = ar51::Ar51;
    Df12 = df12::SpectrumMap;
    Ep00 = ep00::Ep00;
    Ep01 = ep01::Ep01;
    Ev42 = ev42::Ev42;
    Ev43 = ev43::Ev43;
    Ndar = ndar::Ndar;
    Vc00 = vc00::Vc00;
    Ev44 = ev44::Ev44;
    F142 = f142::F142;
    Fc00 = fc00::ConfigUpdate;
    Hs00 = hs00::Histogram;
    Hs01 = hs01::Histogram;
    Json = json::JsonData;
    Ns10 = ns10::CacheEntry;
    Pl72 = pl72::Pl72;
    Pu00 = pu00::Pu00;
    Rf5k = rf5k::ConfigUpdate;
    S6s4t = s6s4t::RunStop;
    Se00 = se00::Se00;
    Senv = senv::Senv;
    Tdct = tdct::Tdct;
    Un00 = un00::Un00;
    Wrdn = wrdn::Wrdn;
    X5f2 = x5f2::X5f2;
}

/// Makes columns of names and kinds.
const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

const FRAME: &[Column] = &[
    column("source_name", Kind::Text),
    column("id", Kind::Number(DType::Int32)),
    column("timestamp", Kind::Number(DType::Int64)),
    column("dimensions", Kind::Shape("data")),
    column("data", Kind::Numbers),
    column("attributes", Kind::List(ATTRIBUTE)),
];
const ATTRIBUTE: &[Column] = &[
    column("name", Kind::Text),
    column("description", Kind::Text),
    column("source", Kind::Text),
    column("data", Kind::Numbers),
];
const ARRAY: &[Column] = &[
    column("source_name", Kind::Text),
    column("timestamp", Kind::Number(DType::Int64)),
    column("data", Kind::List(VARIABLE)),
];
const VARIABLE: &[Column] = &[
    column("name", Kind::Text),
    column("unit", Kind::Text),
    column("label", Kind::Text),
    column("source", Kind::Text),
    column("axes", Kind::Texts),
    column("shape", Kind::Shape("data")),
    column("data", Kind::Numbers),
];
const VALUE: &[Column] =
    &[column("source_name", Kind::Text), column("timestamp", Kind::Number(DType::Int64)), column("value", Kind::Value)];

/// The next value, as what the field is.
fn next<'a, P: Part<'a>>(values: &mut impl Iterator<Item = Field<'a>>, field: &'static str) -> Result<P, Error> {
    values.next().and_then(P::of_field).ok_or(Error::Unfit { field })
}

/// The same, where it may be absent.
fn next_if<'a, P: Part<'a>>(
    values: &mut impl Iterator<Item = Field<'a>>,
    field: &'static str,
) -> Result<Option<P>, Error> {
    match values.next() {
        None | Some(Field::None) => Ok(None),
        Some(value) => P::of_field(value).map(Some).ok_or(Error::Unfit { field }),
    }
}

/// The next value, as numbers or text.
fn next_numbers<'a>(values: &mut impl Iterator<Item = Field<'a>>, field: &'static str) -> Result<Numbers<'a>, Error> {
    let numbers = match values.next() {
        Some(Field::Text(text)) => Some(Numbers::text(text)),
        other => other.and_then(numbers_of),
    };
    numbers.ok_or(Error::Unfit { field })
}

/// The next value, a list of tables.
fn next_list<'a, T>(
    values: &mut impl Iterator<Item = Field<'a>>,
    field: &'static str,
    each: impl Fn(Vec<Field<'a>>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    match values.next() {
        None | Some(Field::None) => Ok(Vec::new()),
        Some(Field::List(tables)) => tables.into_iter().map(|table| each(part::values(table))).collect(),
        Some(_) => Err(Error::Unfit { field }),
    }
}

fn frame_of(values: Vec<Field<'_>>) -> Result<ad00::Ad00<'_>, Error> {
    let mut values = values.into_iter();
    Ok(ad00::Ad00 {
        source_name: next(&mut values, "source_name")?,
        id: next(&mut values, "id")?,
        timestamp: next(&mut values, "timestamp")?,
        dimensions: next(&mut values, "dimensions")?,
        data: next_numbers(&mut values, "data")?,
        attributes: next_list(&mut values, "attributes", |values| {
            let mut values = values.into_iter();
            Ok(ad00::Attribute {
                name: next(&mut values, "name")?,
                description: next_if(&mut values, "description")?,
                source: next_if(&mut values, "source")?,
                data: next_numbers(&mut values, "data")?,
            })
        })?
        .into(),
    })
}

fn array_of(values: Vec<Field<'_>>) -> Result<da00::Da00<'_>, Error> {
    let mut values = values.into_iter();
    Ok(da00::Da00 {
        source_name: next(&mut values, "source_name")?,
        timestamp: next(&mut values, "timestamp")?,
        data: next_list(&mut values, "data", |values| {
            let mut values = values.into_iter();
            Ok(da00::Variable {
                name: next(&mut values, "name")?,
                unit: next_if(&mut values, "unit")?,
                label: next_if(&mut values, "label")?,
                source: next_if(&mut values, "source")?,
                axes: match values.next() {
                    Some(Field::Texts(axes)) => axes.into(),
                    _ => return Err(Error::Unfit { field: "axes" }),
                },
                shape: next(&mut values, "shape")?,
                data: next_numbers(&mut values, "data")?,
            })
        })?
        .into(),
    })
}

fn value_of(values: Vec<Field<'_>>) -> Result<f144::F144<'_>, Error> {
    let mut values = values.into_iter();
    Ok(f144::F144 {
        source_name: next(&mut values, "source_name")?,
        timestamp: next(&mut values, "timestamp")?,
        value: match next(&mut values, "value")? {
            f142::Value::Number(value) => value,
            _ => return Err(Error::Unfit { field: "value" }),
        },
    })
}

fn variable<'a>(v: &da00::Variable<'a>) -> Fields<'a> {
    let text = |text: Option<&'a str>| text.map_or(Field::None, Field::Text);
    vec![
        ("name", Field::Text(v.name)),
        ("unit", text(v.unit)),
        ("label", text(v.label)),
        ("source", text(v.source)),
        ("axes", Field::Texts(v.axes.to_vec())),
        ("shape", v.shape.into()),
        ("data", shaped(v.data, v.extent())),
    ]
}

fn attribute<'a>(a: &ad00::Attribute<'a>) -> Fields<'a> {
    let text = |text: Option<&'a str>| text.map_or(Field::None, Field::Text);
    vec![
        ("name", Field::Text(a.name)),
        ("description", text(a.description)),
        ("source", text(a.source)),
        ("data", shaped(a.data, vec![a.data.len()])),
    ]
}

/// Numbers with a shape, or text.
fn shaped(numbers: Numbers<'_>, shape: Vec<usize>) -> Field<'_> {
    match numbers.as_text() {
        Some(text) => Field::Text(text),
        None => Field::Array { dtype: numbers.dtype(), bytes: numbers.bytes(), shape },
    }
}

fn run_stream<'a>(s: &bprn::RunStream<'a>) -> Fields<'a> {
    vec![
        ("name", Field::Text(s.name)),
        ("uuid", Field::Uuid(s.uuid)),
        ("epoch", Field::UInt(s.epoch.into())),
        ("first", Field::UInt(s.first)),
        ("next", Field::UInt(s.next)),
        ("clock", Field::Text(s.clock)),
        ("ended", Field::Bool(s.ended)),
    ]
}

fn commit_input<'a>(input: &bpcm::CommitInput<'a>) -> Fields<'a> {
    vec![
        ("stream", Field::Text(input.stream)),
        ("uuid", Field::Uuid(input.uuid)),
        ("epoch", Field::UInt(input.epoch.into())),
        ("first", Field::UInt(input.first)),
        ("next", Field::UInt(input.next)),
        ("done", Field::UInt(input.done)),
        ("counts", Field::List(input.counts.iter().map(count).collect())),
    ]
}

fn count<'a>(count: &bpcm::Count<'a>) -> Fields<'a> {
    vec![("name", Field::Text(count.name)), ("value", Field::UInt(count.value))]
}

fn total<'a>(total: &bpcm::Total<'a>) -> Fields<'a> {
    let open = |open: &bpcm::Open<'a>| vec![("reason", Field::Text(open.reason)), ("bits", open.bits.into())];
    vec![
        ("origin", Field::Text(total.origin)),
        ("first", Field::UInt(total.first)),
        ("next", Field::UInt(total.next)),
        ("last_time", Field::Int(total.last_time)),
        ("appended", Field::UInt(total.appended)),
        ("duplicate", Field::UInt(total.duplicate)),
        ("counts", Field::List(total.counts.iter().map(count).collect())),
        ("open", Field::List(total.open.iter().map(open).collect())),
    ]
}

fn task<'a>(task: &bptk::Task<'a>) -> Fields<'a> {
    vec![
        ("command", Field::Text(task.command)),
        ("number", Field::UInt(task.number)),
        ("slot", Field::UInt(task.slot.into())),
        ("input", Field::UInt(task.input.into())),
        ("uuid", Field::Uuid(task.uuid)),
        ("epoch", Field::UInt(task.epoch.into())),
        ("block_first", Field::UInt(task.block_first)),
        ("block_next", Field::UInt(task.block_next)),
        ("first", Field::UInt(task.first)),
        ("next", Field::UInt(task.next)),
        ("part", Field::UInt(task.part.into())),
        ("parts", Field::UInt(task.parts.into())),
        ("arguments", Field::Text(task.arguments)),
    ]
}

fn gap<'a>(gap: &bpgp::Gap<'a>) -> Fields<'a> {
    vec![
        ("stream", Field::Text(gap.stream)),
        ("origin", Field::Text(gap.origin)),
        ("first", Field::UInt(gap.first)),
        ("last", Field::UInt(gap.last)),
        ("from", Field::Int(gap.from)),
        ("to", Field::Int(gap.to)),
        ("reason", Field::Text(gap.reason)),
        ("by_sequence", Field::Bool(gap.by_sequence)),
        ("count", Field::UInt(gap.count)),
    ]
}
