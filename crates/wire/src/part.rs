//! What most schemas need to say only once: the fields of a table, each with its id, its name and its type.
//!
//! `table!` makes of them a struct with reading, writing and names; `words!` makes an enum; `message!` makes the
//! table that a message begins with. A field is a [`Part`]. Unions of numeric vectors, of which the facility has
//! four with four orders of types, are said with the list of their types.
//!
//! Failure: as everywhere in this crate, any bytes are an error or a message.

use crate::flat::{Out, Table, Writer};
use crate::{Array, DType, Error, Field, Fields, List, Number, Numbers};

/// A field of a table, as its schema declares it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// The kind of its contents.
    pub kind: Kind,
}

/// The contents of a field. Code that makes messages from values with names but no types depends on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Yes or no.
    Bool,
    /// A number of this type.
    Number(DType),
    /// A string.
    Text,
    /// One of these words.
    Words(&'static [&'static str]),
    /// Numbers of this type, in one dimension.
    Array(DType),
    /// Lengths of the dimensions of the field of this name, in `int64`.
    Shape(&'static str),
    /// Numbers of any type in any number of dimensions, or text: the message says which.
    Numbers,
    /// A number, numbers in one dimension, text or texts: the message says which.
    Value,
    /// Strings.
    Texts,
    /// Tables.
    List(&'static [Column]),
    /// One table, of one of these forms.
    Table(&'static [&'static [Column]]),
}

/// The type of a field.
pub(crate) trait Part<'a>: Sized {
    /// The kind of its contents.
    const KIND: Kind;

    /// Reads field `id`; `None` if it is absent.
    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error>;

    /// Says which bytes it takes in its table: `sizes[id]`, and of a union that of its tag too.
    fn size(&self, sizes: &mut [u8], id: usize);

    /// Writes it; `places` are those of all fields of the table.
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize);

    /// For `cat` and Python.
    fn field(&self) -> Field<'a>;

    /// The other way round; `None` where it cannot hold the value.
    fn of_field(field: Field<'a>) -> Option<Self>;

    /// What stands for `Field::None`; `None` where a sender must give a value: a number or a text that was forgotten is
    /// neither 0 nor empty.
    fn of_none() -> Option<Self> {
        None
    }
}

/// A table.
pub(crate) trait Tabled<'a>: Sized {
    /// Its fields, in the order of the schema.
    const COLUMNS: &'static [Column];

    /// Reads all fields.
    fn read(table: &Table<'_, 'a>) -> Result<Self, Error>;
    /// Writes it for the slot at `slot`.
    fn write<O: Out>(&self, writer: &mut Writer<'_, O>, slot: usize);
    /// Names and values, in the order of the schema.
    fn fields(&self) -> Fields<'a>;
    /// The other way round, without the names; what is not said is as what is absent in reading.
    fn of_fields(values: Vec<Field<'a>>) -> Result<Self, Error>;
}

impl<'a, T: Number> Part<'a> for T {
    const KIND: Kind = Kind::Number(T::DTYPE);

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        table.number_if(id, field)
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        sizes[id] = size_of::<T>() as u8;
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        writer.put(places[id], *self);
    }
    fn field(&self) -> Field<'a> {
        self.scalar().into()
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        match field {
            Field::Int(value) => T::from_whole(value.into()),
            Field::UInt(value) => T::from_whole(value.into()),
            Field::Float(value) => T::from_real(value),
            Field::Bool(value) => T::from_whole(value.into()),
            _ => None,
        }
    }
}

impl<'a> Part<'a> for bool {
    const KIND: Kind = Kind::Bool;

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        table.flag(id, field).map(Some)
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        sizes[id] = 1;
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        writer.put(places[id], u8::from(*self));
    }
    fn field(&self) -> Field<'a> {
        Field::Bool(*self)
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        match field {
            Field::Bool(value) => Some(value),
            Field::Int(value) => Some(value != 0),
            _ => None,
        }
    }
}

impl<'a> Part<'a> for &'a str {
    const KIND: Kind = Kind::Text;

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        table.text(id, field)
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        sizes[id] = 4;
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        writer.text(places[id], self);
    }
    fn field(&self) -> Field<'a> {
        Field::Text(self)
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        match field {
            Field::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'a, T: Number> Part<'a> for Array<'a, T> {
    const KIND: Kind = Kind::Array(T::DTYPE);

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        table.array(id, field)
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        sizes[id] = 4;
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        writer.array(places[id], *self);
    }
    fn field(&self) -> Field<'a> {
        (*self).into()
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        numbers_of(field)?.typed()
    }
    fn of_none() -> Option<Self> {
        Some(Self::default())
    }
}

/// A field that may be absent, and is not written then.
impl<'a, P: Part<'a>> Part<'a> for Option<P> {
    const KIND: Kind = P::KIND;

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        P::read(table, id, field).map(Some)
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        if let Some(part) = self {
            part.size(sizes, id);
        }
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        if let Some(part) = self {
            part.put(writer, places, id);
        }
    }
    fn field(&self) -> Field<'a> {
        self.as_ref().map_or(Field::None, P::field)
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        P::of_field(field).map(Some)
    }
    fn of_none() -> Option<Self> {
        Some(None)
    }
}

/// A vector of tables.
impl<'a, T: Tabled<'a>> Part<'a> for List<'a, T> {
    const KIND: Kind = Kind::List(T::COLUMNS);

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        Ok(table.tables(id, field, |entry| T::read(&entry))?.map(List::Owned))
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        sizes[id] = 4;
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        let first = writer.list(places[id], self.len(), "a list");
        for (at, entry) in self.iter().enumerate() {
            entry.write(writer, first + 4 * at);
        }
    }
    fn field(&self) -> Field<'a> {
        Field::List(self.iter().map(T::fields).collect())
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        let Field::List(entries) = field else { return None };
        let entries = entries.into_iter().map(|entry| T::of_fields(values(entry)).ok());
        entries.collect::<Option<Vec<T>>>().map(List::Owned)
    }
    fn of_none() -> Option<Self> {
        Some(Self::default())
    }
}

/// A vector of strings.
impl<'a> Part<'a> for List<'a, &'a str> {
    const KIND: Kind = Kind::Texts;

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        table.texts(id, field).map(|texts| Some(texts.into()))
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        sizes[id] = 4;
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        writer.texts(places[id], self, "a list");
    }
    fn field(&self) -> Field<'a> {
        Field::Texts(self.to_vec())
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        match field {
            Field::Texts(texts) => Some(texts.into()),
            _ => None,
        }
    }
    fn of_none() -> Option<Self> {
        Some(Self::default())
    }
}

/// Values without their names.
pub(crate) fn values(fields: Fields<'_>) -> Vec<Field<'_>> {
    fields.into_iter().map(|(_, value)| value).collect()
}

/// The numbers of a field, if it is an array.
pub(crate) fn numbers_of(field: Field<'_>) -> Option<Numbers<'_>> {
    match field {
        Field::Array { dtype, bytes, .. } => Numbers::new(dtype, bytes),
        _ => None,
    }
}

/// The numbers of a union of boxes with one numeric vector each; the tag is field `id` - 1 and counts `types` from 1.
/// A box without its vector holds no numbers.
pub(crate) fn union_in<'a>(
    table: &Table<'_, 'a>,
    id: usize,
    field: &'static str,
    tag_field: &'static str,
    types: &[DType],
) -> Result<Option<Numbers<'a>>, Error> {
    let tag = table.number(id - 1, 0u8, tag_field)?;
    let Some(boxed) = table.table(id, field)? else { return Ok(None) };
    let dtype = usize::from(tag).checked_sub(1).and_then(|at| types.get(at)).copied();
    let dtype = dtype.ok_or(Error::UnknownKind { field: tag_field, value: tag.into() })?;
    Ok(Some(boxed.numbers(0, dtype, field)?.unwrap_or(Numbers::empty(dtype))))
}

/// Says which bytes such a union takes in its table.
pub(crate) fn union_size(numbers: Option<Numbers<'_>>, sizes: &mut [u8], id: usize) {
    if numbers.is_some() {
        (sizes[id - 1], sizes[id]) = (1, 4);
    }
}

/// Writes such a union.
pub(crate) fn union_put<O: Out>(
    numbers: Option<Numbers<'_>>,
    writer: &mut Writer<'_, O>,
    places: &[usize],
    id: usize,
    types: &[DType],
) {
    let Some(numbers) = numbers else { return };
    match types.iter().position(|dtype| *dtype == numbers.dtype()) {
        Some(at) => writer.put(places[id - 1], at as u8 + 1),
        None => writer.refuse(Error::Inconsistent { what: "this schema has no array of numbers of this type" }),
    }
    let [vector] = writer.table(places[id], [4]);
    writer.bytes(vector, numbers.len(), numbers.bytes());
}

/// A table: `ID name: type`, then `{TYPES}` of a union of numeric vectors, then `[required]` or `= default` (0, no and
/// empty where none is given). `as "Name"` where Rust cannot use the name of the schema.
macro_rules! table {
    (
        $(#[$about:meta])*
        pub struct $name:ident $(<$life:lifetime>)? {
            $(
                $(#[$doc:meta])*
                $id:literal $part:ident $(as $word:literal)? : $kind:ty
                    $({$types:expr})? $([$required:ident])? $(= $absent:expr)? ;
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name $(<$life>)? {
            $( $(#[$doc])* pub $part: $kind, )*
        }

        impl<'a> $crate::part::Tabled<'a> for $name $(<$life>)? {
            const COLUMNS: &'static [$crate::part::Column] = &[$(
                $crate::part::Column {
                    name: table!(@word $part $($word)?),
                    kind: table!(@kind $kind $(, by $types)?),
                }
            ),*];

            fn read(table: &$crate::flat::Table<'_, 'a>) -> Result<Self, $crate::Error> {
                $(
                    let $part = match table!(@read table, $id, table!(@word $part $($word)?), $kind $(, by $types)?)? {
                        Some(part) => part,
                        None => table!(@absent table!(@word $part $($word)?) $(, $required)? $(, or $absent)?),
                    };
                )*
                Ok($name { $($part),* })
            }

            fn write<O: $crate::flat::Out>(&self, writer: &mut $crate::flat::Writer<'_, O>, slot: usize) {
                const SLOTS: usize = {
                    let mut slots = 0;
                    $( if $id >= slots { slots = $id + 1; } )*
                    slots
                };
                let mut sizes = [0; SLOTS];
                $( table!(@size self.$part, &mut sizes, $id $(, by $types)?); )*
                let places = writer.table(slot, sizes);
                $( table!(@put self.$part, writer, &places, $id $(, by $types)?); )*
            }

            fn fields(&self) -> $crate::Fields<'a> {
                vec![$( (table!(@word $part $($word)?), table!(@field self.$part $(, by $types)?)) ),*]
            }

            fn of_fields(values: Vec<$crate::Field<'a>>) -> Result<Self, $crate::Error> {
                let mut values = values.into_iter();
                $(
                    let $part = match values.next() {
                        None => table!(@absent table!(@word $part $($word)?) $(, $required)? $(, or $absent)?),
                        Some(value) => match value {
                            $crate::Field::None => {
                                table!(@none $kind $(, by $types)? $(, $required)? $(, or $absent)?)
                            }
                            value => table!(@of value, $kind $(, by $types)?),
                        }
                        .ok_or($crate::Error::Unfit { field: table!(@word $part $($word)?) })?,
                    };
                )*
                Ok($name { $($part),* })
            }
        }

        // As a field of another table.
        impl<'a> $crate::part::Part<'a> for $name $(<$life>)? {
            const KIND: $crate::part::Kind =
                $crate::part::Kind::Table(&[<Self as $crate::part::Tabled<'a>>::COLUMNS]);

            fn read(
                table: &$crate::flat::Table<'_, 'a>,
                id: usize,
                field: &'static str,
            ) -> Result<Option<Self>, $crate::Error> {
                table.table(id, field)?.map(|table| $crate::part::Tabled::read(&table)).transpose()
            }
            fn size(&self, sizes: &mut [u8], id: usize) {
                sizes[id] = 4;
            }
            fn put<O: $crate::flat::Out>(&self, writer: &mut $crate::flat::Writer<'_, O>, places: &[usize], id: usize) {
                $crate::part::Tabled::write(self, writer, places[id]);
            }
            fn field(&self) -> $crate::Field<'a> {
                $crate::Field::Table($crate::part::Tabled::fields(self))
            }
            fn of_field(field: $crate::Field<'a>) -> Option<Self> {
                match field {
                    $crate::Field::Table(fields) => $crate::part::Tabled::of_fields($crate::part::values(fields)).ok(),
                    _ => None,
                }
            }
        }
    };

    (@word $part:ident) => { stringify!($part) };
    (@word $part:ident $word:literal) => { $word };

    (@kind $kind:ty) => { <$kind as $crate::part::Part<'a>>::KIND };
    (@kind $kind:ty, by $types:expr) => { $crate::part::Kind::Numbers };

    (@absent $word:expr) => { Default::default() };
    (@absent $word:expr, required) => { return Err($crate::Error::Missing { field: $word }) };
    (@absent $word:expr, or $absent:expr) => { $absent };

    (@read $table:ident, $id:literal, $word:expr, $kind:ty) => {
        <$kind as $crate::part::Part<'a>>::read($table, $id, $word)
    };
    (@read $table:ident, $id:literal, $word:expr, $kind:ty, by $types:expr) => {
        $crate::part::union_in($table, $id, $word, concat!($word, "_type"), &$types).map(|found| found.map(<$kind>::from))
    };

    (@size $part:expr, $sizes:expr, $id:literal) => { $crate::part::Part::size(&$part, $sizes, $id) };
    (@size $part:expr, $sizes:expr, $id:literal, by $types:expr) => {
        $crate::part::union_size($part.into(), $sizes, $id)
    };

    (@put $part:expr, $writer:ident, $places:expr, $id:literal) => {
        $crate::part::Part::put(&$part, $writer, $places, $id)
    };
    (@put $part:expr, $writer:ident, $places:expr, $id:literal, by $types:expr) => {
        $crate::part::union_put($part.into(), $writer, $places, $id, &$types)
    };

    (@none $kind:ty) => { <$kind as $crate::part::Part<'a>>::of_none() };
    (@none $kind:ty, by $types:expr) => { Some(Default::default()) };
    (@none $kind:ty, by $types:expr, required) => { None::<$kind> };
    (@none $kind:ty, required) => { None::<$kind> };
    (@none $kind:ty, or $absent:expr) => { Some($absent) };

    (@of $value:ident, $kind:ty) => { <$kind as $crate::part::Part<'a>>::of_field($value) };
    (@of $value:ident, $kind:ty, by $types:expr) => { $crate::part::numbers_of($value).map(<$kind>::from) };

    (@field $part:expr) => { $crate::part::Part::field(&$part) };
    (@field $part:expr, by $types:expr) => {
        Option::<$crate::Numbers<'_>>::from($part).map_or($crate::Field::None, $crate::Field::from)
    };
}

/// The table that a message begins with, and the schema id: makes `ID`, `read` and `write`.
macro_rules! message {
    ($id:literal, $name:ident) => {
        /// The schema id.
        pub const ID: [u8; 4] = *$id;

        /// Verifies and reads a message.
        pub fn read(bytes: &[u8]) -> Result<$name<'_>, $crate::Error> {
            let message = $crate::flat::Message::open(bytes, ID)?;
            $crate::part::Tabled::read(&message.root()?)
        }

        /// Writes a message into `out`, replacing what was there.
        pub fn write(out: &mut Vec<u8>, parts: &$name<'_>) -> Result<(), $crate::Error> {
            write_to(out, parts)
        }

        /// The same, to wherever it goes.
        pub(crate) fn write_to<O: $crate::flat::Out>(out: &mut O, parts: &$name<'_>) -> Result<(), $crate::Error> {
            let mut writer = $crate::flat::Writer::begin(out, ID);
            // The slot of the root is at the start of the message.
            $crate::part::Tabled::write(parts, &mut writer, 0);
            writer.finish()
        }
    };
}

/// An enum that counts from 0, with the words of the schema.
macro_rules! words {
    (
        $(#[$about:meta])*
        pub enum $name:ident: $kind:ty { $first:ident = $first_word:literal $(, $other:ident = $other_word:literal)* $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[allow(missing_docs, reason = "the words say it")]
        pub enum $name { #[default] $first $(, $other)* }

        impl $name {
            /// All, in the order of their numbers, from 0.
            pub const ALL: &[$name] = &[$name::$first $(, $name::$other)*];

            /// The word of the schema.
            pub fn name(self) -> &'static str {
                match self { $name::$first => $first_word $(, $name::$other => $other_word)* }
            }
        }

        impl<'a> $crate::part::Part<'a> for $name {
            const KIND: $crate::part::Kind = $crate::part::Kind::Words(&[$first_word $(, $other_word)*]);

            fn read(
                table: &$crate::flat::Table<'_, 'a>,
                id: usize,
                field: &'static str,
            ) -> Result<Option<Self>, $crate::Error> {
                let Some(value) = table.number_if::<$kind>(id, field)? else { return Ok(None) };
                let value = i64::from(value);
                let found = usize::try_from(value).ok().and_then(|at| $name::ALL.get(at)).copied();
                found.map(Some).ok_or($crate::Error::UnknownKind { field, value })
            }
            fn size(&self, sizes: &mut [u8], id: usize) {
                sizes[id] = size_of::<$kind>() as u8;
            }
            fn put<O: $crate::flat::Out>(&self, writer: &mut $crate::flat::Writer<'_, O>, places: &[usize], id: usize) {
                writer.put(places[id], *self as $kind);
            }
            fn field(&self) -> $crate::Field<'a> {
                $crate::Field::Text(self.name())
            }
            fn of_field(field: $crate::Field<'a>) -> Option<Self> {
                match field {
                    $crate::Field::Text(word) => $name::ALL.iter().find(|one| one.name() == word).copied(),
                    $crate::Field::Int(at) => usize::try_from(at).ok().and_then(|at| $name::ALL.get(at)).copied(),
                    $crate::Field::Bool(at) => $name::ALL.get(usize::from(at)).copied(),
                    _ => None,
                }
            }
        }
    };
}
