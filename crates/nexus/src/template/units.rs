//! Units as far as a template can be wrong about them: of places and angles, which readers turn into geometry.
//!
//! The words are those of UDUNITS, which NeXus asks for. A unit that is not known here is refused only where a length or an
//! angle must stand; everywhere else it is the user's.

/// The quantity that a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Length,
    Angle,
    Other,
}

use Quantity::{Angle, Length, Other};
use settings::nearest;

/// Symbols that take a prefix (`mm`).
const SYMBOLS: [(&str, Quantity); 18] = [
    ("m", Length),
    ("rad", Angle),
    ("s", Other),
    ("K", Other),
    ("g", Other),
    ("A", Other),
    ("V", Other),
    ("T", Other),
    ("G", Other),
    ("Hz", Other),
    ("J", Other),
    ("eV", Other),
    ("W", Other),
    ("Pa", Other),
    ("N", Other),
    ("bar", Other),
    ("C", Other),
    ("ohm", Other),
];
/// Words that take a prefix (`millimetre`), in the singular.
const WORDS: [(&str, Quantity); 13] = [
    ("meter", Length),
    ("metre", Length),
    ("radian", Angle),
    ("second", Other),
    ("kelvin", Other),
    ("tesla", Other),
    ("ampere", Other),
    ("volt", Other),
    ("hertz", Other),
    ("joule", Other),
    ("watt", Other),
    ("pascal", Other),
    ("gram", Other),
];
/// Units without a prefix or another plural.
const PLAIN: [(&str, Quantity); 28] = [
    ("angstrom", Length),
    ("angstroms", Length),
    ("Angstrom", Length),
    ("Å", Length),
    ("\u{212b}", Length),
    ("micron", Length),
    ("in", Length),
    ("inch", Length),
    ("ft", Length),
    ("deg", Angle),
    ("degree", Angle),
    ("degrees", Angle),
    ("°", Angle),
    ("arcmin", Angle),
    ("arcsec", Angle),
    ("degC", Other),
    ("celsius", Other),
    ("min", Other),
    ("minute", Other),
    ("h", Other),
    ("hour", Other),
    ("day", Other),
    ("d", Other),
    ("counts", Other),
    ("count", Other),
    ("dimensionless", Other),
    ("1", Other),
    ("", Other),
];
const PREFIXES: [&str; 17] = ["da", "y", "z", "a", "f", "p", "n", "u", "µ", "μ", "m", "c", "d", "h", "k", "M", "G"];
const PREFIX_WORDS: [&str; 11] =
    ["femto", "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "mega"];

/// The quantity that a unit measures; nothing for a unit that is not known.
fn measures(unit: &str) -> Option<Quantity> {
    let of = |table: &[(&str, Quantity)], word: &str| table.iter().find(|(known, _)| *known == word).map(|(_, q)| *q);
    let word = |word: &str| of(&WORDS, word).or_else(|| of(&WORDS, word.strip_suffix('s')?));
    let symbol = |prefix: &str| unit.strip_prefix(prefix).and_then(|rest| of(&SYMBOLS, rest));
    let long = |prefix: &str| unit.strip_prefix(prefix).and_then(word);
    of(&PLAIN, unit)
        .or_else(|| of(&SYMBOLS, unit))
        .or_else(|| word(unit))
        .or_else(|| PREFIXES.iter().find_map(|prefix| symbol(prefix)))
        .or_else(|| PREFIX_WORDS.iter().find_map(|prefix| long(prefix)))
}

/// The quantity that a dataset of this name must have.
pub(super) fn wanted_of_name(name: &str) -> Option<Quantity> {
    Some(match name {
        "x_pixel_offset" | "y_pixel_offset" | "z_pixel_offset" | "x_pixel_size" | "y_pixel_size" => Length,
        "polar_angle" | "azimuthal_angle" => Angle,
        _ => return None,
    })
}

/// The quantity that a transformation of this type (`transformation_type`) must have.
pub(super) fn wanted_of_transformation(kind: &str) -> Option<Quantity> {
    match kind {
        "translation" => Some(Length),
        "rotation" => Some(Angle),
        _ => None,
    }
}

/// Why a unit does not measure what is wanted, and what does.
pub(super) fn refused(unit: &str, wanted: Quantity) -> Option<(String, String)> {
    let found = measures(unit);
    if found == Some(wanted) {
        return None;
    }
    let (noun, usual) = match wanted {
        Angle => ("an angle", &["deg", "rad", "mrad"][..]),
        _ => ("a length", &["m", "cm", "mm", "um", "nm", "angstrom"][..]),
    };
    let cause = match found {
        Some(_) => format!("`{unit}` is not a unit of {noun}"),
        None => format!("`{}` is not a known unit of {noun}", crate::hdf::names::short(unit)),
    };
    let hint = match nearest(unit, usual.iter().copied()).filter(|_| found.is_none()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("such as {}", usual.join(", ")),
    };
    Some((cause, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_known_by_what_they_measure() {
        for unit in
            ["m", "mm", "um", "µm", "μm", "nm", "cm", "km", "metre", "meters", "millimetres", "Å", "angstrom", "inch"]
        {
            assert_eq!(measures(unit), Some(Length), "{unit}");
        }
        for unit in ["deg", "degrees", "°", "rad", "mrad", "radians", "microradian"] {
            assert_eq!(measures(unit), Some(Angle), "{unit}");
        }
        for unit in ["s", "ns", "K", "mT", "meV", "kHz", "counts", ""] {
            assert_eq!(measures(unit), Some(Other), "{unit}");
        }
        for unit in ["mmm", "grad", "meterss", "x", "m/s", "Meters"] {
            assert_eq!(measures(unit), None, "{unit}");
        }
    }
}
