//! Requests: the panels that are asked for, and at which moment. `docs/reference/web.md` has their keys.

use crate::limits::{PANELS_MAX, PIXELS_MAX, TREND_TIME};
use flow::Fault;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The view that the newest message chooses.
pub(super) const AUTO: &str = "auto";

/// Panels at one moment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// ns since 1970 UTC; none: now.
    #[serde(default)]
    pub(super) at: Option<i64>,
    /// As JSON: one that is wrong is a fault of that panel alone.
    pub(super) panels: Vec<Value>,
}

/// One panel.
#[derive(Debug, Deserialize)]
pub(super) struct Panel {
    pub(super) stream: String,
    /// Word of a view, or [`AUTO`].
    #[serde(default = "auto")]
    pub(super) view: String,
    #[serde(default = "pixels")]
    width: u32,
    #[serde(default = "pixels")]
    height: u32,
    /// x0, y0, x1, y1.
    pub(super) region: Option<[u32; 4]>,
    #[serde(default)]
    pub(super) reduce: Reduce,
    /// ns.
    pub(super) window: Option<i64>,
    pub(super) origin: Option<String>,
    pub(super) sequence: Option<u64>,
    #[serde(default)]
    pub(super) step: i8,
    /// The identity of what the client shows already.
    pub(super) known: Option<String>,
    /// Keys of single views.
    #[serde(flatten)]
    pub(super) options: Map<String, Value>,
}

/// The value for the pixels of an image, or the values of a curve, that fall on one pixel of the panel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reduce {
    /// Their mean: the pixels of a panel stand for unequal numbers of others, and their sums would show stripes.
    #[default]
    Mean,
    /// The largest.
    Max,
    /// Their sum.
    Sum,
}

fn auto() -> String {
    AUTO.into()
}

fn pixels() -> u32 {
    512
}

impl Request {
    /// Reads a request.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let request: Self = serde_json::from_slice(bytes).map_err(|e| wrong("request", e.to_string()))?;
        if request.panels.len() > PANELS_MAX {
            let cause = format!("it names {} panels, more than {PANELS_MAX}", request.panels.len());
            return Err(wrong("request", cause));
        }
        Ok(request)
    }
}

impl Panel {
    pub(super) fn read(value: &Value) -> Result<Self, Fault> {
        let panel = Self::deserialize(value).map_err(|e| wrong("panel", e.to_string()))?;
        if panel.window.is_some_and(|window| window <= 0) {
            return Err(wrong("panel", "`window` is not positive".into()));
        }
        Ok(panel)
    }

    /// Columns and rows that are drawn.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.width.clamp(1, PIXELS_MAX) as usize, self.height.clamp(1, PIXELS_MAX) as usize)
    }

    /// Whether the newest message chooses the view.
    pub(super) fn is_auto(&self) -> bool {
        self.view == AUTO
    }

    /// From when to when a panel shows values, up to a moment.
    pub(super) fn times(&self, to: i64) -> (i64, i64) {
        (to.saturating_sub(self.window.unwrap_or(TREND_TIME)), to)
    }

    /// The value of a key that a view has in its `options`; none where the request does not have it, or has null.
    pub(super) fn option<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Fault> {
        let Some(value) = self.options.get(key) else { return Ok(None) };
        Option::deserialize(value).map_err(|e| wrong("panel", format!("`{key}`: {e}")))
    }

    /// All that a drawing of a message depends on, beside the message and the view.
    pub(super) fn drawn_by(&self) -> String {
        let Self { region, reduce, window, origin, options, .. } = self;
        format!("{:?} {region:?} {reduce:?} {window:?} {origin:?} {options:?}", self.size())
    }
}

/// A request, or a panel, that cannot be understood.
pub(super) fn wrong(part: &str, cause: String) -> Fault {
    Fault::new(format!("the {part} is wrong"), cause).hint("docs/reference/web.md lists the keys of a request")
}
