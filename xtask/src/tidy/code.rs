//! Rust as far as the rules need it: code without comments and strings, its functions, its tests. It relies on rustfmt:
//! what opens at an indentation closes at the same one.

use std::path::Path;

/// Words that may stand before `fn`, beside `pub` and its likes.
const BEFORE_FN: [&str; 5] = ["const", "async", "unsafe", "extern", "default"];

/// A function: the line of its header from 1, its name, and its lines up to the closing brace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function<'a> {
    pub(super) line: usize,
    pub(super) name: &'a str,
    pub(super) lines: usize,
}

/// The source with comments, strings and characters blanked; every line keeps its number.
pub(super) fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_end(bytes, at) {
            Some(end) => end.min(bytes.len()),
            None => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The comments and strings alone, with all else blanked; every line keeps its number.
pub(super) fn prose(text: &str) -> String {
    let plain = plain(text);
    let keep = |(all, code): (u8, u8)| if all == b'\n' || all != code { all } else { b' ' };
    let bytes: Vec<u8> = text.bytes().zip(plain.bytes()).map(keep).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The end of the comment, string or character that begins at `at`; none where code goes on.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let find = |from: usize, what: &[u8]| {
        let found = rest.get(from..)?.windows(what.len()).position(|piece| piece == what);
        found.map(|place| at + from + place)
    };
    match rest[0] {
        b'/' if rest.starts_with(b"//") => find(0, b"\n").or(Some(bytes.len())),
        b'/' if rest.starts_with(b"/*") => Some(find(2, b"*/").map_or(bytes.len(), |end| end + 2)),
        b'"' => Some(at + string_length(rest)),
        b'r' => {
            let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
            let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let is_raw = rest.get(1 + hashes) == Some(&b'"');
            is_raw.then(|| find(2 + hashes, &closing).map_or(bytes.len(), |end| end + closing.len()))
        }
        b'\'' if rest.get(1) == Some(&b'\\') => find(3, b"'").map(|end| end + 1),
        b'\'' => {
            // A character of one to four bytes, or the name of a lifetime.
            let width = 1 + rest.iter().skip(2).take_while(|&&byte| byte & 0xc0 == 0x80).count();
            (rest.get(1 + width) == Some(&b'\'')).then_some(at + width + 2)
        }
        _ => None,
    }
}

/// Bytes of a string with both its quotes.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The functions of plain source, those inside of others too.
pub(super) fn functions(plain: &str) -> Vec<Function<'_>> {
    let lines: Vec<&str> = plain.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = indent_of(line);
        let last = lines[index..].iter().position(|line| {
            let text = line.trim_end();
            indent_of(line) <= indent && (text.ends_with('}') || text.ends_with(';'))
        });
        if let Some(last) = last {
            found.push(Function { line: index + 1, name, lines: last + 1 });
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("fn ")?;
    let is_header = before
        .split_whitespace()
        .all(|word| word.starts_with("pub") || word.ends_with(')') || BEFORE_FN.contains(&word));
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_header && !name.is_empty()).then_some(name)
}

/// Columns before the text of a line; a line without text is inside of whatever is around it.
fn indent_of(line: &str) -> usize {
    line.find(|c: char| c != ' ').unwrap_or(usize::MAX)
}

/// The plain source of what is shipped: modules for tests are blanked.
pub(super) fn without_tests(plain: &str) -> String {
    let mut out = String::with_capacity(plain.len());
    let mut lines = plain.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let closing = format!("{}}}", " ".repeat(indent_of(line)));
            // An item ends in its own line, or with the brace that closes it.
            let mut item = lines.next();
            out.push('\n');
            while let Some(inner) = item {
                out.push('\n');
                if inner.trim_end() == closing || inner.trim_end().ends_with(';') && indent_of(inner) == indent_of(line)
                {
                    break;
                }
                item = lines.next();
            }
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Whether a file holds tests alone.
pub(super) fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests") || path.file_stem().is_some_and(|stem| stem == "tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<(String, usize)> {
        functions(&plain(text)).into_iter().map(|function| (function.name.to_owned(), function.lines)).collect()
    }

    #[test]
    fn the_length_of_a_function_is_from_its_header_to_its_brace() {
        let text = "impl A {\n    pub(crate) const unsafe fn f(\n        a: u8,\n    ) -> u8 {\n        if a {\n        }\n    }\n\n\
                    \x20   fn g() {}\n}\n";
        assert_eq!(lengths(text), [("f".to_owned(), 6), ("g".to_owned(), 1)]);
    }

    #[test]
    fn a_function_without_a_body_has_the_lines_of_its_header() {
        let text =
            "trait A {\n    fn f();\n    fn g(\n        a: u8,\n    ) -> u8;\n    fn h() {\n        g()\n    }\n}\n";
        assert_eq!(lengths(text), [("f".to_owned(), 1), ("g".to_owned(), 3), ("h".to_owned(), 3)]);
    }

    #[test]
    fn braces_in_strings_and_comments_end_nothing() {
        for inside in [
            "let s = r#\"\n}\nfn no() {\n\"#;",
            "let s = \"\n}\nfn no() {\n\\\"\n}\n\";",
            "/*\n}\nfn no() {\n*/",
            "// }",
            "let c = ['\\'', '\"', '}', 'ä'];\n    let s: &'a str = \"\n}\n\";",
        ] {
            let text = format!("fn f() {{\n    {inside}\n    g();\n}}\nfn g() {{\n}}\n");
            let lines = text.lines().count() - 2;
            assert_eq!(lengths(&text), [("f".to_owned(), lines), ("g".to_owned(), 2)], "{text}");
        }
    }

    #[test]
    fn a_line_keeps_its_number() {
        let text = "// a\n\"b\n\";\nfn f() {\n}\n";
        assert_eq!(plain(text).lines().count(), text.lines().count());
        assert_eq!(functions(&plain(text))[0].line, 4);
    }

    #[test]
    fn modules_for_tests_are_blanked() {
        let text = "const A: u8 = 1;\n#[cfg(test)]\nmod tests {\n    const B: u8 = 1;\n}\n#[cfg(test)]\n\
                    mod other;\nconst C: u8 = 1;\n";
        let left = without_tests(text);
        assert_eq!(left.lines().count(), text.lines().count());
        assert_eq!(left.split_whitespace().filter(|word| word.ends_with(':')).collect::<Vec<_>>(), ["A:", "C:"]);
    }
}
