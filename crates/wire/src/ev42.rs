//! `ev42`: neutron events of one pulse, the predecessor of `ev44`; ISIS and detectors under test add to it.

use crate::flat::{Out, Table, Writer};
use crate::part::{Kind, Part, Tabled};
use crate::{Array, Error, Field};

message!(b"ev42", Ev42);

table! {
    /// The events of one pulse. Event `i` has `time_of_flight[i]` and `detector_id[i]`.
    pub struct Ev42<'a> {
        /// Detector that made the events; empty if the sender left it out.
        0 source_name: &'a str;
        /// Number given by the sender, consecutive per source.
        1 message_id: u64;
        /// Time of the pulse, ns since 1970 UTC.
        2 pulse_time: u64;
        /// Time of each event after the pulse, ns.
        3 time_of_flight: Array<'a, u32>;
        /// Pixel of each event.
        4 detector_id: Array<'a, u32>;
        /// Data that the facility adds.
        6 facility_specific_data: Option<Facility<'a>>;
    }
}

/// Data that a facility adds to the events.
#[derive(Debug, Clone, PartialEq)]
pub enum Facility<'a> {
    /// ISIS: state of the run.
    Isis(IsisData),
    /// Detectors under test: what was measured of each pulse of charge.
    Adc(AdcPulseDebug<'a>),
}

table! {
    /// State of a run at ISIS.
    pub struct IsisData {
        /// Period that the pulse belongs to.
        0 period_number: u32;
        /// Whether the run counts.
        1 run_state: RunState;
        /// Protons of the pulse, uAh.
        2 proton_charge: f32;
    }
}

words! {
    /// Whether a run counts.
    pub enum RunState: i8 { Setup = "SETUP", Running = "RUNNING" }
}

table! {
    /// Measurements of each pulse of charge, one entry for each event.
    pub struct AdcPulseDebug<'a> {
        /// Height, in units of the digitiser.
        0 amplitude: Array<'a, u32>;
        /// Area, in units of the digitiser.
        1 peak_area: Array<'a, u32>;
        /// Level without a pulse, in units of the digitiser.
        2 background: Array<'a, u32>;
        /// When the threshold was crossed, ns since 1970 UTC.
        3 threshold_time: Array<'a, u64>;
        /// When it was highest, ns since 1970 UTC.
        4 peak_time: Array<'a, u64>;
    }
}

impl<'a> Part<'a> for Facility<'a> {
    const KIND: Kind = Kind::Table(&[IsisData::COLUMNS, AdcPulseDebug::COLUMNS]);

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        let tag_field = "facility_specific_data_type";
        match table.number(id - 1, 0u8, tag_field)? {
            0 => Ok(None),
            1 => Ok(Part::read(table, id, field)?.map(Facility::Isis)),
            2 => Ok(Part::read(table, id, field)?.map(Facility::Adc)),
            tag => Err(Error::UnknownKind { field: tag_field, value: tag.into() }),
        }
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        (sizes[id - 1], sizes[id]) = (1, 4);
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        let tag = match self {
            Facility::Isis(_) => 1u8,
            Facility::Adc(_) => 2,
        };
        writer.put(places[id - 1], tag);
        match self {
            Facility::Isis(data) => data.put(writer, places, id),
            Facility::Adc(data) => data.put(writer, places, id),
        }
    }
    fn field(&self) -> Field<'a> {
        match self {
            Facility::Isis(data) => data.field(),
            Facility::Adc(data) => data.field(),
        }
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        // The two differ in how many fields they have.
        match &field {
            Field::Table(fields) if fields.len() == 3 => IsisData::of_field(field).map(Facility::Isis),
            _ => AdcPulseDebug::of_field(field).map(Facility::Adc),
        }
    }
}
