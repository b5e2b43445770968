//! Names: those that HDF5 cannot have, and long ones as messages show them.

use crate::limits::NAME_BYTES_MAX;

/// Why a name cannot be one.
pub(crate) fn bad_name(name: &str) -> Option<String> {
    Some(match name {
        "" => "an empty name".into(),
        "." | ".." => format!("`{name}` is not a name"),
        _ if name.contains('/') => format!("`{}` holds a `/`", short(name)),
        _ if name.contains('\0') => "a name with a NUL byte".into(),
        _ if name.len() > NAME_BYTES_MAX => format!("a name of {} bytes; the limit is {NAME_BYTES_MAX}", name.len()),
        _ => return None,
    })
}

/// A JSON pointer with one more step.
pub(crate) fn join(at: &str, step: impl std::fmt::Display) -> String {
    let step = step.to_string().replace('~', "~0").replace('/', "~1");
    format!("{at}/{}", short(&step))
}

/// A word from outside, cut to what fits into a line.
pub(crate) fn short(text: &str) -> String {
    if text.len() <= 80 {
        return text.to_owned();
    }
    text.chars().take(77).chain("...".chars()).collect()
}

/// Returns the mistakes of a link to a path in another file: key, cause and hint of each. Missing values are not
/// judged.
pub(crate) fn file_beside(file: Option<&str>, source: Option<&str>) -> Vec<(&'static str, String, &'static str)> {
    let is_step = |step: &str| !matches!(step, "" | "." | "..");
    let is_beside =
        |file: &&str| file.split('/').all(is_step) && !file.contains(['\0', ':', '\\']) && file.len() <= NAME_BYTES_MAX;
    let is_path =
        |source: &&str| source.strip_prefix('/').is_some_and(|t| t.split('/').all(is_step) && !t.contains('\0'));
    let mut wrong = Vec::new();
    if let Some(file) = file.filter(|file| !is_beside(file)) {
        let cause = format!("`{}` is not a path to a file beside this one", short(file));
        wrong.push(("file", cause, "a path from the folder of the file, without `..`"));
    }
    if let Some(source) = source.filter(|source| !is_path(source)) {
        let cause = format!("`{}` is not a path from the root of `{}`", short(source), short(file.unwrap_or_default()));
        wrong.push(("source", cause, "in another file a path begins with `/`"));
    }
    wrong
}
