//! The files of the page, which are compiled in.

/// A file of the page.
pub(crate) struct File {
    /// Path of its URL.
    path: &'static str,
    /// Its type.
    pub(crate) mime: &'static str,
    /// Its content.
    pub(crate) bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal $name:literal $mime:ident;)*) => {
        [$( File { path: $path, mime: $mime, bytes: include_bytes!(concat!("../page/", $name)) } ),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static FILES: &[File] = &files! {
    "/" "index.html" HTML;
    "/account.js" "account.js" SCRIPT;
    "/api.js" "api.js" SCRIPT;
    "/app.js" "app.js" SCRIPT;
    "/axes.js" "axes.js" SCRIPT;
    "/control.js" "control.js" SCRIPT;
    "/curve.js" "curve.js" SCRIPT;
    "/dom.js" "dom.js" SCRIPT;
    "/events.js" "events.js" SCRIPT;
    "/format.js" "format.js" SCRIPT;
    "/groups.js" "groups.js" SCRIPT;
    "/icon.svg" "icon.svg" IMAGE;
    "/image.js" "image.js" SCRIPT;
    "/message.js" "message.js" SCRIPT;
    "/overview.js" "overview.js" SCRIPT;
    "/palette.js" "palette.js" SCRIPT;
    "/panel.js" "panel.js" SCRIPT;
    "/state.js" "state.js" SCRIPT;
    "/streams.js" "streams.js" SCRIPT;
    "/style.css" "style.css" CSS;
    "/timebar.js" "timebar.js" SCRIPT;
    "/trend.js" "trend.js" SCRIPT;
    "/uPlot.LICENSE" "uPlot.LICENSE" TEXT;
    "/uPlot.iife.min.js" "uPlot.iife.min.js" SCRIPT;
    "/uPlot.min.css" "uPlot.min.css" CSS;
};

/// The file at a path.
pub(crate) fn at(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}
