//! Checked reading. Failure is always `Err`, whatever the bytes.

use std::cell::Cell;

use crate::error::Error;
use crate::limits::{DEPTH_MAX, LIST_LENGTH_MAX, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, VISITS_PER_BYTE_MAX};
use crate::{Array, DType, Number, Numbers};

/// A buffer whose size and identifier were checked.
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    /// Bytes that may still be visited or allocated.
    budget: Cell<u64>,
}

/// A table whose vtable and extent lie inside the buffer.
#[derive(Clone, Copy)]
pub(crate) struct Table<'m, 'a> {
    message: &'m Message<'a>,
    at: usize,
    vtable: &'a [u8],
    /// Bytes of the table, from `at`; fields outside are refused.
    length: usize,
    depth: u8,
}

impl<'a> Message<'a> {
    /// Checks size and identifier.
    pub(crate) fn open(bytes: &'a [u8], id: [u8; 4]) -> Result<Self, Error> {
        let length = bytes.len();
        if length < MESSAGE_BYTES_MIN {
            return Err(Error::TooShort { length });
        }
        if length > MESSAGE_BYTES_MAX {
            return Err(Error::TooLong { length });
        }
        let found = [bytes[4], bytes[5], bytes[6], bytes[7]];
        if found != id {
            return Err(Error::WrongSchema { wanted: id, found });
        }
        Ok(Message { bytes, budget: Cell::new(length as u64 * VISITS_PER_BYTE_MAX) })
    }

    /// The root table.
    pub(crate) fn root(&self) -> Result<Table<'_, 'a>, Error> {
        let at = self.u32_at(0, "root")? as usize;
        self.table(at, 0, "root")
    }

    fn charge(&self, bytes: usize) -> Result<(), Error> {
        let left = self.budget.get().checked_sub(bytes as u64).ok_or(Error::Entangled)?;
        self.budget.set(left);
        Ok(())
    }

    /// `length` bytes at `at`, or an error; no sum of the two can overflow.
    #[inline]
    fn slice(&self, at: usize, length: usize, field: &'static str) -> Result<&'a [u8], Error> {
        self.bytes.get(at..).and_then(|rest| rest.get(..length)).ok_or(Error::OutOfBounds { field })
    }

    #[inline]
    fn u32_at(&self, at: usize, field: &'static str) -> Result<u32, Error> {
        let bytes = self.slice(at, 4, field)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Where the offset at `at` points to. It points forward and cannot be 0, so no structure contains itself
    /// by way of forward offsets alone; what it points at is checked by whoever reads there.
    #[inline]
    fn follow(&self, at: usize, field: &'static str) -> Result<usize, Error> {
        let distance = self.u32_at(at, field)? as usize;
        if distance == 0 {
            return Err(Error::OutOfBounds { field });
        }
        let target = at.checked_add(distance).filter(|target| *target < self.bytes.len());
        target.ok_or(Error::OutOfBounds { field })
    }

    fn table(&self, at: usize, depth: u8, field: &'static str) -> Result<Table<'_, 'a>, Error> {
        if depth >= DEPTH_MAX {
            return Err(Error::TooDeep { field });
        }
        // The distance is signed: a shared vtable may lie behind its table.
        let back = self.u32_at(at, field)? as i32;
        let place = (at as i64) - i64::from(back);
        let place = usize::try_from(place).map_err(|_| Error::OutOfBounds { field })?;
        let head = self.slice(place, 4, field)?;
        let vtable_bytes = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let length = usize::from(u16::from_le_bytes([head[2], head[3]]));
        if vtable_bytes < 4 || length < 4 {
            return Err(Error::OutOfBounds { field });
        }
        let vtable = self.slice(place, vtable_bytes, field)?;
        self.slice(at, length, field)?;
        self.charge(vtable_bytes + length)?;
        Ok(Table { message: self, at, vtable, length, depth })
    }

    fn text(&self, at: usize, field: &'static str) -> Result<&'a str, Error> {
        let length = self.u32_at(at, field)? as usize;
        let bytes = self.slice(at + 4, length, field)?;
        self.charge(length + 4)?;
        std::str::from_utf8(bytes).map_err(|_| Error::NotText { field })
    }

    /// Place of the first offset and number of offsets of a vector of tables or strings.
    fn list(&self, at: usize, field: &'static str) -> Result<(usize, usize), Error> {
        let count = self.u32_at(at, field)? as usize;
        if count > LIST_LENGTH_MAX {
            return Err(Error::TooMany { field, count });
        }
        self.slice(at + 4, count * 4, field)?;
        self.charge(count * 4 + 4)?;
        Ok((at + 4, count))
    }
}

impl<'m, 'a> Table<'m, 'a> {
    /// Position of field `id` of `size` bytes; `None` if absent.
    #[inline]
    fn place(&self, id: usize, size: usize, field: &'static str) -> Result<Option<usize>, Error> {
        let Some(slot) = self.vtable.get(4 + 2 * id..6 + 2 * id) else {
            return Ok(None); // written by an older schema
        };
        match usize::from(u16::from_le_bytes([slot[0], slot[1]])) {
            0 => Ok(None),
            // A field over the distance to the vtable or past the table is no field.
            place if place < 4 || place + size > self.length => Err(Error::OutOfBounds { field }),
            place => Ok(Some(self.at + place)),
        }
    }

    fn target(&self, id: usize, field: &'static str) -> Result<Option<usize>, Error> {
        match self.place(id, 4, field)? {
            None => Ok(None),
            Some(at) => self.message.follow(at, field).map(Some),
        }
    }

    /// A number or `default` if absent.
    #[inline]
    pub(crate) fn number<T: Number>(&self, id: usize, default: T, field: &'static str) -> Result<T, Error> {
        Ok(self.number_if(id, field)?.unwrap_or(default))
    }

    /// A number, if present.
    #[inline]
    pub(crate) fn number_if<T: Number>(&self, id: usize, field: &'static str) -> Result<Option<T>, Error> {
        let Some(at) = self.place(id, size_of::<T>(), field)? else { return Ok(None) };
        Ok(Some(bytemuck::pod_read_unaligned(self.message.slice(at, size_of::<T>(), field)?)))
    }

    /// A bool: any byte but 0 is true.
    pub(crate) fn flag(&self, id: usize, field: &'static str) -> Result<bool, Error> {
        Ok(self.number(id, 0u8, field)? != 0)
    }

    /// A string, if present.
    pub(crate) fn text(&self, id: usize, field: &'static str) -> Result<Option<&'a str>, Error> {
        match self.target(id, field)? {
            None => Ok(None),
            Some(at) => self.message.text(at, field).map(Some),
        }
    }

    /// A string; absent reads as empty.
    pub(crate) fn text_or_empty(&self, id: usize, field: &'static str) -> Result<&'a str, Error> {
        Ok(self.text(id, field)?.unwrap_or(""))
    }

    /// A string that must be there.
    pub(crate) fn text_required(&self, id: usize, field: &'static str) -> Result<&'a str, Error> {
        self.text(id, field)?.ok_or(Error::Missing { field })
    }

    /// A numeric vector, if present.
    pub(crate) fn array<T: Number>(&self, id: usize, field: &'static str) -> Result<Option<Array<'a, T>>, Error> {
        let Some(at) = self.target(id, field)? else {
            return Ok(None);
        };
        let count = self.message.u32_at(at, field)? as usize;
        let length = count.checked_mul(size_of::<T>()).ok_or(Error::OutOfBounds { field })?;
        Ok(Some(Array::over(self.message.slice(at + 4, length, field)?)))
    }

    /// A numeric vector; absent reads as empty.
    pub(crate) fn array_or_empty<T: Number>(&self, id: usize, field: &'static str) -> Result<Array<'a, T>, Error> {
        Ok(self.array(id, field)?.unwrap_or_default())
    }

    /// A numeric vector that must be there.
    pub(crate) fn array_required<T: Number>(&self, id: usize, field: &'static str) -> Result<Array<'a, T>, Error> {
        self.array(id, field)?.ok_or(Error::Missing { field })
    }

    /// A numeric vector whose type is known only now, if present.
    pub(crate) fn numbers(&self, id: usize, dtype: DType, field: &'static str) -> Result<Option<Numbers<'a>>, Error> {
        let Some(at) = self.target(id, field)? else {
            return Ok(None);
        };
        let count = self.message.u32_at(at, field)? as usize;
        let length = count.checked_mul(dtype.size()).ok_or(Error::OutOfBounds { field })?;
        let bytes = self.message.slice(at + 4, length, field)?;
        Numbers::new(dtype, bytes).map(Some).ok_or(Error::NotText { field })
    }

    /// A uuid: a vector of exactly 16 bytes that must be there.
    pub(crate) fn uuid(&self, id: usize, field: &'static str) -> Result<[u8; 16], Error> {
        let bytes = self.array_required::<u8>(id, field)?.bytes();
        bytes.try_into().map_err(|_| Error::Inconsistent { what: "a uuid that is not 16 bytes" })
    }

    /// A nested table (also the value of a union), if present.
    pub(crate) fn table(&self, id: usize, field: &'static str) -> Result<Option<Table<'m, 'a>>, Error> {
        match self.target(id, field)? {
            None => Ok(None),
            Some(at) => self.message.table(at, self.depth + 1, field).map(Some),
        }
    }

    /// A vector of tables, each made into a `T`; `None` if absent. Memory grows only with entries that were
    /// checked, never with a count that the buffer claims.
    pub(crate) fn tables<T>(
        &self,
        id: usize,
        field: &'static str,
        each: impl Fn(Table<'m, 'a>) -> Result<T, Error>,
    ) -> Result<Option<Vec<T>>, Error> {
        let Some(at) = self.target(id, field)? else {
            return Ok(None);
        };
        let (first, count) = self.message.list(at, field)?;
        let mut entries = Vec::new();
        for slot in (first..).step_by(4).take(count) {
            let at = self.message.follow(slot, field)?;
            self.message.charge(size_of::<T>())?;
            entries.push(each(self.message.table(at, self.depth + 1, field)?)?);
        }
        Ok(Some(entries))
    }

    /// A vector of strings; absent reads as empty.
    pub(crate) fn texts(&self, id: usize, field: &'static str) -> Result<Vec<&'a str>, Error> {
        let Some(at) = self.target(id, field)? else {
            return Ok(Vec::new());
        };
        let (first, count) = self.message.list(at, field)?;
        let mut entries = Vec::new();
        for slot in (first..).step_by(4).take(count) {
            entries.push(self.message.text(self.message.follow(slot, field)?, field)?);
        }
        Ok(entries)
    }
}
