//! The views of the page: a file each, and a line in [`VIEWS`]. The page has its part of each in `page/views`.

mod alarm;
mod by_number;
mod curve;
mod events;
mod gap;
mod groups;
mod image;
mod message;
mod spectrum;
#[cfg(test)]
mod tests;
mod times;
mod trend;

use super::view::ViewKind;

pub(super) use message::MESSAGE;

/// In the order in which `auto` asks them.
pub(super) static VIEWS: [&ViewKind; 11] = [
    &curve::CURVE,
    &image::IMAGE,
    &spectrum::SPECTRUM,
    &events::EVENTS,
    &by_number::BY_NUMBER,
    &trend::TREND,
    &groups::GROUPS,
    &MESSAGE,
    &times::TIMES,
    &gap::GAP,
    &alarm::ALARM,
];
