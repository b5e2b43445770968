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
const SCRIPT: &str = "text/javascript; charset=utf-8";

static FILES: &[File] = &files! {
    "/" "index.html" HTML;
};

/// The file at a path.
pub(crate) fn at(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}
