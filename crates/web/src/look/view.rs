//! The views: what of a stream is drawn, and of which schemas.

use serde::Deserialize;

/// What is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum View {
    /// By the newest message.
    #[default]
    Auto,
    /// Numbers in two dimensions.
    Image,
    /// Events by pixel.
    Events,
    /// Events by time of flight.
    Spectrum,
    /// Numbers in one dimension.
    Curve,
    /// Numbers over time.
    Trend,
    /// Groups by the number of their messages.
    Groups,
    /// The fields of one message.
    Message,
    /// How many messages there are, over time.
    Times,
    /// The gap that begins next.
    Gap,
    /// The alarm that begins next.
    Alarm,
}

impl View {
    /// The view of a schema; that of a message may be another one of [`View::shows`].
    pub(super) fn of(schema: [u8; 4]) -> Self {
        match &schema {
            b"ad00" | b"ADAr" | b"da00" | b"hs00" | b"hs01" => View::Image,
            b"ev44" | b"ev43" | b"ev42" | b"an44" => View::Events,
            b"f144" | b"f142" | b"se00" | b"senv" | b"tdct" => View::Trend,
            b"bpgr" => View::Groups,
            _ => View::Message,
        }
    }

    /// Whether messages of a schema can be drawn so.
    pub(super) fn shows(self, schema: [u8; 4]) -> bool {
        match self {
            View::Message | View::Times | View::Gap | View::Alarm => true,
            View::Auto => View::of(schema) != View::Message,
            View::Curve => matches!(&schema, b"da00" | b"hs00" | b"hs01"),
            View::Spectrum => View::of(schema) == View::Events,
            view => View::of(schema) == view,
        }
    }

    /// The word of a request and of an answer.
    pub(super) fn word(self) -> &'static str {
        match self {
            View::Auto => "auto",
            View::Image => "image",
            View::Events => "events",
            View::Spectrum => "spectrum",
            View::Curve => "curve",
            View::Trend => "trend",
            View::Groups => "groups",
            View::Message => "message",
            View::Times => "times",
            View::Gap => "gap",
            View::Alarm => "alarm",
        }
    }
}
