//! Arguments that verbs share: the output format, the data folder, and the values of flags.

pub(crate) mod values;

use clap::Args;
use flow::Fault;
use std::path::{Path, PathBuf};

/// The output format.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// The data folder.
#[derive(Clone, Debug, Args)]
pub struct DataFolder {
    /// Data folder of the instrument [default: BEAMPORT_DATA, else the only folder in ./beamport-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl DataFolder {
    /// The folder to use. The caller checks that it holds streams.
    pub fn resolve(&self) -> Result<PathBuf, Fault> {
        match (&self.data, std::env::var_os("BEAMPORT_DATA").filter(|value| !value.is_empty())) {
            (Some(folder), _) => Ok(folder.clone()),
            (None, Some(folder)) => Ok(folder.into()),
            (None, None) => only_folder(Path::new("beamport-data")),
        }
    }
}

impl DataFolder {
    /// Where nobody names a data folder: the one in which a file lies, if it lies in one.
    pub fn or_above(&self, file: &Path, is_data: &dyn Fn(&Path) -> bool) -> Self {
        if self.data.is_some() || std::env::var_os("BEAMPORT_DATA").is_some_and(|value| !value.is_empty()) {
            return self.clone();
        }
        // As it is named, and where links lead.
        let places = [std::path::absolute(file), file.canonicalize()].into_iter().flatten();
        let above = |place: PathBuf| place.ancestors().skip(1).find(|folder| is_data(folder)).map(Path::to_path_buf);
        Self { data: places.filter_map(above).next() }
    }
}

/// The only folder in `parent`.
fn only_folder(parent: &Path) -> Result<PathBuf, Fault> {
    let mut folders: Vec<PathBuf> = match std::fs::read_dir(parent) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect(),
        Err(_) => Vec::new(),
    };
    folders.sort();
    match folders.as_slice() {
        [folder] => Ok(folder.clone()),
        [] => Err(Fault::new("no data folder", format!("./{} holds none", parent.display()))
            .hint("add `--data DIR`, or make one with `beamport demo`")),
        [first, ..] => {
            let names: Vec<_> =
                folders.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy()).collect();
            let cause = format!("./{} holds {}", parent.display(), names.join(", "));
            Err(Fault::new("more than one data folder", cause).hint(format!("add `--data {}`", first.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_data_folder_is_found() {
        let parent = std::env::temp_dir().join(format!("beamport-only-{}", std::process::id()));
        assert!(only_folder(&parent).is_err());
        std::fs::create_dir_all(parent.join("amor")).unwrap();
        assert_eq!(only_folder(&parent), Ok(parent.join("amor")));
        std::fs::create_dir_all(parent.join("loki")).unwrap();
        let fault = only_folder(&parent).unwrap_err();
        assert!(fault.cause.ends_with("holds amor, loki"), "{fault}");
        std::fs::remove_dir_all(&parent).unwrap();
    }
}
