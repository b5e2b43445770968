//! The text of an instrument file: its bytes read within limits, its lines, and the TOML in it.
//!
//! A TOML parser stops at the first mistake of syntax. Here the wrong line (after a wrong header: its
//! whole section) is blanked out and the rest parsed again, so that every mistake is reported at once;
//! what was blanked is remembered as holes, because a key missing from a holed section may stand in the hole.

use crate::limits;
use crate::mistake::{Mistake, Severity};
use crate::units::shortened;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use toml_edit::Document;

/// Lines taken out of one file before giving up; each costs one more pass over at most 1 MiB.
const HOLES_MAX: usize = 20;

/// A file's name and where its lines begin.
pub struct Page {
    /// The file as the user named it.
    pub file: String,
    starts: Vec<usize>,
}

impl Page {
    /// The lines of a text that would stand in `file`.
    #[must_use]
    pub fn new(file: String, text: &str) -> Self {
        let starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1))
            .collect();
        Self { file, starts }
    }

    /// The line, from 1, of a byte.
    pub fn line(&self, at: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= at)).unwrap_or(u32::MAX)
    }

    /// The bytes of the lines that `at..end` touches, line ends left out.
    fn lines(&self, span: &Range<usize>, len: usize) -> Range<usize> {
        let first = self.starts[(self.line(span.start) as usize).saturating_sub(1).min(self.starts.len() - 1)];
        let last = self.line(span.end.saturating_sub(1).max(span.start)) as usize;
        first..self.starts.get(last).map_or(len, |next| next - 1)
    }

    /// A mistake in a line of this file; 0: in the whole file.
    pub fn mistake(
        &self,
        line: u32,
        what: impl Into<String>,
        cause: impl Into<String>,
        hint: impl Into<String>,
    ) -> Mistake {
        Mistake {
            level: Severity::Error,
            file: self.file.clone(),
            line,
            pointer: String::new(),
            what: what.into(),
            cause: cause.into(),
            hint: hint.into(),
        }
    }
}

/// Reads the text of an instrument file: a plain file, at most 1 MiB, UTF-8.
pub fn text_of(path: &Path) -> Result<String, Box<Mistake>> {
    let file = path.display().to_string();
    let whole = |what: &str, cause: String, hint: &str| {
        let (what, hint) = (what.into(), hint.into());
        Box::new(Mistake {
            level: Severity::Error,
            file: file.clone(),
            line: 0,
            pointer: String::new(),
            what,
            cause,
            hint,
        })
    };
    let failed = |error: std::io::Error| {
        whole("cannot read the instrument file", error.to_string(), "an example to start from is examples/amor.toml")
    };
    // Asked before opening: opening a pipe that nobody writes would wait for ever.
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        return Err(whole("this is not an instrument file", "not a plain file".into(), "name a .toml file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|f| f.take(limits::FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(failed)?;
    if bytes.len() as u64 > limits::FILE_BYTES_MAX {
        return Err(whole(
            "the instrument file is too long",
            format!("more than {} bytes", limits::FILE_BYTES_MAX),
            "name a .toml file",
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|b| **b == b'\n').count();
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        Box::new(Mistake { line, ..*whole("the file is not text", "not UTF-8".into(), "save the file as UTF-8") })
    })
}

/// The TOML of a text, what had to be blanked out, and the mistakes of syntax.
pub struct Parsed {
    /// The parts that could be read; none where nothing could.
    pub document: Option<Document<String>>,
    /// Lines were left out: what seems to be missing may stand in one of them.
    pub has_holes: bool,
    /// The mistakes of syntax.
    pub mistakes: Vec<Mistake>,
}

/// Parses all of `text` that can be parsed.
pub fn parse(page: &Page, text: &str) -> Parsed {
    let mut mistakes = Vec::new();
    let mut rest = text.to_owned();
    loop {
        let error = match Document::parse(rest.clone()) {
            Ok(document) => {
                return Parsed { document: Some(document), has_holes: !mistakes.is_empty(), mistakes };
            }
            Err(error) => error,
        };
        let at = error.span().map_or(text.len(), |span| span.start).min(text.len());
        mistakes.push(syntax(page, text, at, error.message()));
        let hole = hole(page, &rest, at);
        if hole.is_empty() || rest[hole.clone()].trim().is_empty() || mistakes.len() >= HOLES_MAX {
            return Parsed { document: None, has_holes: true, mistakes };
        }
        // Spaces keep every other byte in its place, so that spans still mean lines of the user's file.
        let blank: String = rest[hole.clone()].bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }).collect();
        rest.replace_range(hole, &blank);
    }
}

/// What to blank out for a mistake at `at`: its line, or from a wrong header to the next header.
fn hole(page: &Page, text: &str, at: usize) -> Range<usize> {
    let line = page.lines(&(at..at), text.len());
    if !text[line.clone()].trim_start().starts_with('[') {
        return line;
    }
    let after = text[line.end..].find("\n[").map_or(text.len(), |next| line.end + next);
    line.start..after
}

/// The mistake of syntax that the parser saw at byte `at`.
fn syntax(page: &Page, text: &str, at: usize, message: &str) -> Mistake {
    let line = page.line(at);
    let content = text[page.lines(&(at..at), text.len())].trim();
    if message.starts_with("duplicate key") {
        // The parser names the second place; the first is what the reader has to look for.
        let header = content.starts_with('[');
        let word = if header { content } else { content.split('=').next().unwrap_or(content).trim_end() };
        let same = |other: &str| {
            if header { other.trim() == word } else { other.split('=').next().is_some_and(|key| key.trim() == word) }
        };
        let mut first = None;
        for (n, other) in (1u32..line).zip(text.lines()) {
            match other.trim_start().starts_with('[') {
                // A key is the same only within its section: a header between forgets the key seen before it.
                true if !header => first = None,
                _ if same(other) && first.is_none() => first = Some(n),
                _ => {}
            }
        }
        let cause =
            first.map_or_else(|| "it was given before".into(), |first| format!("it is already at line {first}"));
        let noun = if header { "section" } else { "key" };
        return page.mistake(
            line,
            format!("{noun} `{}` is given twice", shortened(word)),
            cause,
            "rename or remove one of them",
        );
    }
    let hint = match content {
        _ if message.contains("recurse") || message.contains("recursion") => {
            "no value of an instrument file needs tables within tables"
        }
        _ if message.starts_with("missing comma") && begins_value(&text[at..]) => "put a comma between the values",
        text if text.starts_with('[') && !text.contains(']') => "close the header with `]`",
        text if text.contains('=') && text.matches('"').count() % 2 == 1 => "close the text with `\"`",
        text if text.contains('=') && text.matches('[').count() != text.matches(']').count() => {
            "close the list with `]`"
        }
        text if text.contains('=') => "write texts, units and times in quotes: `flush = \"1 s\"`",
        text if text.contains(':') => "write `key = value`",
        _ => "write `[section.NAME]`, `key = value` or `# remark`",
    };
    page.mistake(line, format!("invalid `{}`", shortened(content)), message.trim(), hint)
}

/// True where another value or `key =` begins: after a text without quotes (`64 MiB`) no comma is missing.
fn begins_value(text: &str) -> bool {
    let text = text.trim_start();
    let is_key = |c: char| c.is_alphanumeric() || "_-.\"'".contains(c);
    let is_pair = text.trim_start_matches(is_key).trim_start().starts_with('=');
    is_pair || text.starts_with(|c: char| c.is_ascii_digit() || "\"'[{-+".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<(u32, String, String)> {
        let parsed = parse(&Page::new("a.toml".into(), text), text);
        parsed.mistakes.into_iter().map(|m| (m.line, m.what, m.hint)).collect()
    }

    #[test]
    fn every_mistake_of_syntax_is_found() {
        let mut found = mistakes(
            "instrument = \"a\n[source.x]\nkind sim\nlevel = \"disk\"\n[source.y\nkind = \"sim\"\n[source.z]\nlive = 64 MiB\n",
        );
        // Mistakes of values come behind those of structure; `parse` of the file sorts them.
        found.sort();
        assert_eq!(found.iter().map(|m| m.0).collect::<Vec<_>>(), [1, 3, 5, 8], "{found:#?}");
        assert_eq!(found[0].2, "close the text with `\"`");
        assert_eq!(found[3].2, "write texts, units and times in quotes: `flush = \"1 s\"`");
    }

    #[test]
    fn a_missing_comma_is_named() {
        for text in [
            "source.cam = { kind = \"sim\" model = \"camera\" }\n",
            "inputs = [\"a\" \"b\"]\n",
            "inputs = [\n    \"a\"\n    \"b\"\n]\n",
        ] {
            let found = mistakes(text);
            assert_eq!(found[0].2, "put a comma between the values", "{text}: {found:?}");
        }
        for text in ["source.cam = { live = 64 MiB }\n", "sizes = [64 MiB]\n"] {
            assert!(mistakes(text)[0].2.starts_with("write texts, units and times in quotes"), "{text}");
        }
    }

    #[test]
    fn a_second_section_of_the_same_name_names_the_first() {
        let text = "[source.x]\nkind = \"sim\"\n[source.x]\nkind = \"sim\"\nkind = \"sim\"\n";
        let parsed = parse(&Page::new("a.toml".into(), text), text);
        assert_eq!(parsed.mistakes.len(), 1, "{:#?}", parsed.mistakes);
        assert_eq!(
            parsed.mistakes[0].to_string(),
            "error: a.toml:3: section `[source.x]` is given twice\ncause: it is already at line 1\nhint:  rename or remove one of them"
        );
    }

    #[test]
    fn deep_nesting_ends_in_a_mistake_and_not_in_a_full_stack() {
        let deep = [
            format!("a = {}", "[".repeat(200_000)),
            format!("a = {}", "{b=".repeat(200_000)),
            format!("{}a = 1", "a.".repeat(200_000)),
            format!("[{}a]", "a.".repeat(200_000)),
            format!("a = [{}]", "{b.c.d.e = [".repeat(50_000)),
        ];
        for text in deep {
            assert!(!mistakes(&text).is_empty(), "{}", &text[..20]);
        }
    }
}
