//! The files of the page, which are compiled in.

/// Paths below `page`, and what the files hold; the build script lists them.
static FILES: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The file at the path of a URL: its type and its content.
pub(crate) fn at(path: &str) -> Option<(&'static str, &'static [u8])> {
    let path = path.strip_prefix('/')?;
    let path = if path.is_empty() { "index.html" } else { path };
    FILES.iter().find(|(name, _)| *name == path).map(|(name, bytes)| (mime(name), *bytes))
}

fn mime(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}
