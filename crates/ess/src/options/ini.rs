//! The ini file of `kafka-to-nexus`: a line `name=value`, values with blanks in quotes, or several in brackets; and
//! that of the ESS forwarder, whose lines are `name = value`, `name: value`, `name value`, or a name alone.

use crate::limits::{CONFIG_BYTES_MAX, CONFIG_MISTAKES_MAX};
use settings::shortened;
use std::io::Read as _;
use std::path::Path;

/// Line, name and values.
pub(super) type Entry = (usize, String, Vec<String>);

/// The text of a file; otherwise why there is none.
pub(super) fn text_of(path: &Path) -> Result<String, String> {
    // Asked before opening: opening a pipe that nobody writes would wait for ever.
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is not a plain file".into());
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > CONFIG_BYTES_MAX {
        return Err(format!("it has more than {CONFIG_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into())
}

/// The entries of a text, and its mistakes.
pub(super) fn read(text: &str) -> (Vec<Entry>, Vec<String>) {
    let (mut entries, mut mistakes) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let (number, line) = (at + 1, line.trim());
        if line.is_empty() || line.starts_with(['#', ';']) || line.eq_ignore_ascii_case("[default]") {
            continue;
        }
        match entry(line) {
            Ok((name, values)) => entries.push((number, name, values)),
            Err(cause) if mistakes.len() < CONFIG_MISTAKES_MAX => mistakes.push(format!("line {number}: {cause}")),
            Err(_) => {}
        }
    }
    (entries, mistakes)
}

fn entry(line: &str) -> Result<(String, Vec<String>), String> {
    if line.starts_with('[') {
        return Err(format!("section `{}` is not known; write `name=value` without sections", shortened(line)));
    }
    let Some((name, rest)) = line.split_once('=') else {
        return Err(format!("`{}` has no `=`; write `name=value`", shortened(line)));
    };
    let name = name.trim().trim_matches(['"', '\'']).trim_start_matches('-').to_owned();
    words(rest).map(|values| (name, values))
}

/// The entries of a text of the forwarder. Sections do not matter, and there are no mistakes.
pub(super) fn read_loose(text: &str) -> (Vec<Entry>, Vec<String>) {
    let lines = text.lines().map(str::trim).zip(1..);
    let entries = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with(['#', ';', '[']));
    (entries.map(|(line, number)| loose(line, number)).collect(), Vec::new())
}

fn loose(line: &str, number: usize) -> Entry {
    let between = |c: char| c.is_whitespace() || c == '=' || c == ':';
    let end = line.find(between);
    let (name, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start();
    let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|start| rest.find(start)).min();
    let quoted = rest.chars().next().filter(|c| ['"', '\''].contains(c)).and_then(|quote| rest[1..].split_once(quote));
    let value = match quoted {
        Some((value, _)) => value,
        None => rest[..comment.unwrap_or(rest.len())].trim_end(),
    };
    let values = match (end, value) {
        (None, _) => vec!["true".to_owned()],
        (_, "") => Vec::new(),
        (_, value) => vec![value.to_owned()],
    };
    (number, name.trim_start_matches('-').to_owned(), values)
}

/// Words with blanks between, inside of brackets also commas; quotes hold a word together.
fn words(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim();
    let listed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let (mut words, mut letters) = (Vec::new(), listed.unwrap_or(text).chars().peekable());
    let is_between = |c: char| c.is_whitespace() || (listed.is_some() && c == ',');
    loop {
        while letters.next_if(|c| is_between(*c)).is_some() {}
        match letters.peek().copied() {
            None | Some('#' | ';') => return Ok(words),
            Some(quote @ ('"' | '\'')) => {
                letters.next();
                let mut word = String::new();
                loop {
                    match letters.next() {
                        None => return Err(format!("a {quote} is not closed")),
                        Some(c) if c == quote => break,
                        Some(c) => word.push(c),
                    }
                }
                words.push(word);
            }
            Some(_) => {
                let mut word = String::new();
                while let Some(c) = letters.next_if(|c| !is_between(*c)) {
                    word.push(c);
                }
                words.push(word);
            }
        }
    }
}
