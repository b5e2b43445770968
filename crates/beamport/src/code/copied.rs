//! Python code of the user as it was when its stage started: copies of its files in the data folder, by their hash.
//!
//! Purpose: a process that starts later runs the bytes that the first one ran, although the user edits the files
//! meanwhile. A copy has the file of `call` and the files that it imports from its folder, and those that these import.
//! Packages installed elsewhere are not copied.
//!
//! Constraints: code is neither run nor parsed. A file belongs to the copy if its name stands in an import statement
//! (or beside `importlib.import_module` on one line) of another that does, so the copy may have a file too many.
//!
//! Failure behaviour: a copy is written beside its place and renamed, so it is there whole or not at all; a process
//! compares it with its hash before it loads anything.

use crate::limits::{CODE_BYTES_MAX, CODE_DEPTH_MAX, CODE_FILES_MAX, CODE_FOLDER_MAX};
use flow::Fault;
use flow::job::CodeCopy;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Folder of a data folder in which copies are. No stream has such a name.
const FOLDER: &str = ".code";

/// Files of Python code as they were when the stage started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// SHA-256 of what `sha256sum` says of them, in hexadecimal digits: the name of the folder with the copy.
    pub hash: String,
    /// The folder in which they were.
    pub root: PathBuf,
}

impl Copied {
    /// Where the copy is.
    fn place(&self, data: &Path) -> PathBuf {
        data.join(FOLDER).join(&self.hash)
    }

    /// As a process gets it.
    pub(crate) fn in_job(&self, data: &Path) -> CodeCopy {
        CodeCopy { folder: self.place(data), root: self.root.clone(), hash: self.hash.clone() }
    }
}

/// The files of which a copy was made, to see whether they were edited.
#[derive(Debug, Default)]
pub(crate) struct Originals {
    root: PathBuf,
    /// Path below the root, bytes, and time of the last change that was looked at.
    files: Vec<(String, Vec<u8>, Option<SystemTime>)>,
    is_told: bool,
}

impl Originals {
    /// The files that have other bytes than the copy, the first time that there are any.
    pub(crate) fn changed(&mut self) -> Vec<String> {
        let mut changed = Vec::new();
        for (name, bytes, seen) in self.files.iter_mut().filter(|_| !self.is_told) {
            let path = self.root.join(&*name);
            let time = std::fs::metadata(&path).and_then(|m| m.modified()).ok();
            if time != *seen {
                *seen = time;
                // One that an editor is about to write anew says so later.
                let is_other = std::fs::read(&path).is_ok_and(|now| now != *bytes);
                changed.extend(is_other.then(|| name.clone()));
            }
        }
        self.is_told |= !changed.is_empty();
        changed
    }
}

/// Copies the code behind `call` into a data folder. None where nothing of it lies in the instrument's `folder`.
/// `whose`: the stage, for people.
pub(crate) fn copy(data: &Path, whose: &str, call: &str, folder: &Path) -> Result<Option<(Copied, Originals)>, Fault> {
    let what = || format!("cannot copy the code of {whose}");
    let Some((module, _)) = call.rsplit_once(':') else { return Ok(None) };
    let fault = |e: io::Error| Fault::io(what(), &e);
    let (root, mut gathered) = match module.ends_with(".py") {
        true => {
            let file = folder.join(module).canonicalize().map_err(fault)?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let mut gathered = Gathered::default();
            gathered.add(name, std::fs::read(&file).map_err(fault)?);
            (file.parent().unwrap_or(folder).to_owned(), gathered)
        }
        false => {
            let package = module.split('.').next().unwrap_or_default();
            let root = folder;
            if !root.join(package).is_dir() && !root.join(format!("{package}.py")).is_file() {
                return Ok(None);
            }
            let words = module.split('.').map(str::to_owned).collect();
            (root.canonicalize().map_err(fault)?, Gathered { words, ..Gathered::default() })
        }
    };
    gathered.follow(&root).map_err(fault)?;
    if gathered.files.is_empty() {
        return Ok(None);
    }
    let copied = Copied { hash: hash_of(&gathered.files), root };
    write(data, &copied, &gathered.files).map_err(fault)?;
    let stamp = |name: &str| std::fs::metadata(copied.root.join(name)).and_then(|m| m.modified()).ok();
    let files = gathered.files.into_iter().map(|(name, bytes)| (stamp(&name), name, bytes));
    let files = files.map(|(time, name, bytes)| (name, bytes, time)).collect();
    let originals = Originals { root: copied.root.clone(), files, is_told: false };
    Ok(Some((copied, originals)))
}

/// The SHA-256 of the lines that `sha256sum` prints for the files in the order of their names.
fn hash_of(files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut all = Sha256::new();
    for (name, bytes) in files {
        all.update(format!("{}  {name}\n", store::hex(&Sha256::digest(bytes))));
    }
    store::hex(&all.finalize())
}

fn write(data: &Path, copied: &Copied, files: &BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    let place = copied.place(data);
    if place.is_dir() {
        return Ok(());
    }
    // One name for each that writes at the same time: two workers of one file.
    let new = place.with_extension(format!("{:?}", std::thread::current().id()));
    let _ = std::fs::remove_dir_all(&new);
    for (name, bytes) in files {
        let path = new.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&new))?;
        std::fs::write(path, bytes)?;
    }
    match std::fs::rename(&new, &place) {
        Err(_) if place.is_dir() => std::fs::remove_dir_all(&new),
        answer => answer,
    }
}

/// Files by their path below the root.
#[derive(Default)]
struct Gathered {
    files: BTreeMap<String, Vec<u8>>,
    /// Words of import statements.
    words: HashSet<String>,
}

impl Gathered {
    fn add(&mut self, name: String, bytes: Vec<u8>) {
        imported(&String::from_utf8_lossy(&bytes), &mut self.words);
        self.files.insert(name, bytes);
    }

    /// Adds files below a folder that are imported, until there are no more.
    fn follow(&mut self, root: &Path) -> io::Result<()> {
        let mut folders = vec![(String::new(), entries(root)?)];
        loop {
            let before = (self.files.len(), folders.len());
            for at in 0..folders.len() {
                for (name, is_folder) in folders[at].1.clone() {
                    let path = format!("{}{name}", folders[at].0);
                    let is_known = || folders.iter().any(|(known, _)| *known == format!("{path}/"));
                    let depth = path.split('/').count();
                    if is_folder && self.words.contains(&name) && depth <= CODE_DEPTH_MAX && !is_known() {
                        folders.push((format!("{path}/"), entries(&root.join(&path))?));
                    } else if !is_folder && !self.files.contains_key(&path) && self.is_wanted(&name, at > 0) {
                        let bytes = std::fs::read(root.join(&path))?;
                        self.add(path, bytes);
                    }
                }
                let bytes: usize = self.files.values().map(Vec::len).sum();
                if self.files.len() > CODE_FILES_MAX || bytes > CODE_BYTES_MAX {
                    let limit = format!("it has more than {CODE_FILES_MAX} files or {} MiB", CODE_BYTES_MAX >> 20);
                    return Err(io::Error::other(limit));
                }
            }
            if before == (self.files.len(), folders.len()) {
                return Ok(());
            }
        }
    }

    fn is_wanted(&self, name: &str, is_package: bool) -> bool {
        let module = name.strip_suffix(".py");
        module.is_some_and(|module| is_package && module == "__init__" || self.words.contains(module))
    }
}

/// Python files and folders of a folder, with whether each is one. Of one with very many entries nothing is imported.
fn entries(folder: &Path) -> io::Result<Vec<(String, bool)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)?.take(CODE_FOLDER_MAX) {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.ends_with(".py") && path.is_file() {
            found.push((name.to_owned(), false));
        } else if !name.contains('.') && path.is_dir() {
            found.push((name.to_owned(), true));
        }
    }
    found.sort();
    Ok(found)
}

/// Words of import statements, and of lines that call a function with such a name.
fn imported(source: &str, words: &mut HashSet<String>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    // `import (a,` and `import a, \` go on in the next line.
    let (mut in_brackets, mut goes_on) = (false, false);
    for line in source.lines() {
        let of_line = || line.split(|c| !is_word(c)).filter(|word| !word.is_empty());
        let is_import = of_line().any(|word| word == "import" || word == "import_module" || word == "__import__");
        if is_import || in_brackets || goes_on {
            words.extend(of_line().map(str::to_owned));
            in_brackets = (in_brackets || line.contains('(')) && !line.contains(')');
            goes_on = line.ends_with('\\');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_imports_are_those_of_the_statements_alone() {
        let words = |source: &str| {
            let mut words = HashSet::new();
            imported(source, &mut words);
            let mut words: Vec<String> = words.into_iter().filter(|word| word.len() == 1).collect();
            words.sort();
            words.concat()
        };
        assert_eq!(words("import a, b.c as d\nx = 1\n"), "abcd");
        assert_eq!(words("from .a import (\n    b,  # why\n    c,\n)\nd = 2\n"), "abc");
        assert_eq!(words("def f():\n    from a import b, \\\n        c\n    e(1)\n"), "abc");
        assert_eq!(words("m = importlib.import_module(\"a.b\")\nc = 1\n"), "abm");
        assert_eq!(words("a = \"important\"\n"), "");
    }

    #[test]
    fn what_is_imported_from_the_folder_is_in_the_copy_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("beamport-code-{}", std::process::id()));
        let put = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("mine.py", "import numpy as np\nimport tools.fit\nfrom lib import (\n    one,\n)\n");
        put("tools/__init__.py", "");
        put("tools/fit.py", "from . import helper\n");
        put("tools/helper.py", "from ..other import x\n");
        put("tools/unused.py", "");
        put("lib/one.py", "");
        put("other.py", "");
        put("unused.py", "");
        put("data/mine.py", "");
        let mut gathered = Gathered::default();
        gathered.add("mine.py".into(), std::fs::read(folder.join("mine.py")).unwrap());
        gathered.follow(&folder).unwrap();
        let names: Vec<&str> = gathered.files.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["lib/one.py", "mine.py", "other.py", "tools/__init__.py", "tools/fit.py", "tools/helper.py"]
        );
        let one = BTreeMap::from([("mine.py".to_owned(), b"x".to_vec())]);
        // `printf x > mine.py; sha256sum mine.py | sha256sum`
        assert_eq!(hash_of(&one), "6436c57ff9fd7ba06af6c91edf22b6c372f566063ee8a988d1726b719b301e43");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
