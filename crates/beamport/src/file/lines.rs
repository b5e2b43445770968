//! The lines of places in a JSON text, which are named by pointers (RFC 6901).
//!
//! Texts of hundreds of MB come here, and few pointers: what none of them leads through is skipped byte by byte.

use std::collections::{HashMap, HashSet};

/// The line, from 1, of each place; of a place that is not there, that of what should hold it.
pub(super) fn lines(text: &[u8], pointers: &[&str]) -> Vec<u32> {
    let above = |pointer: &&'_ str| {
        let ends = pointer.match_indices('/').map(|(at, _)| at).chain([pointer.len()]).collect::<Vec<_>>();
        ends.into_iter()
    };
    let mut wanted = HashSet::new();
    for pointer in pointers {
        wanted.extend(above(pointer).map(|end| &pointer[..end]));
    }
    let mut walk = Walk { text, at: 0, line: 1, wanted, found: HashMap::new() };
    walk.value("", 1);
    let line = |pointer: &&str| above(pointer).rev().find_map(|end| walk.found.get(&pointer[..end]).copied());
    pointers.iter().map(|pointer| line(pointer).unwrap_or(1)).collect()
}

struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    /// Pointers that are asked for, and those of all that holds them.
    wanted: HashSet<&'a str>,
    found: HashMap<String, u32>,
}

impl Walk<'_> {
    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at).filter(|byte| byte.is_ascii_whitespace()) {
            self.line += u32::from(*byte == b'\n');
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// A value at a place that begins in this line.
    fn value(&mut self, pointer: &str, line: u32) {
        self.found.entry(pointer.to_owned()).or_insert(line);
        let is_object = match self.peek() {
            Some(b'{') => true,
            Some(b'[') => false,
            _ => return self.skip(),
        };
        self.at += 1;
        for index in 0_usize.. {
            match self.peek() {
                Some(b'}' | b']') => {
                    self.at += 1;
                    break;
                }
                Some(b',') => self.at += 1,
                Some(_) => (),
                None => break,
            }
            self.peek();
            let (line, before) = (self.line, self.at);
            let step = if is_object {
                let key = self.at;
                self.skip();
                let step = serde_json::from_slice::<String>(self.text.get(key..self.at).unwrap_or_default())
                    .unwrap_or_default();
                if self.peek() == Some(b':') {
                    self.at += 1;
                }
                step.replace('~', "~0").replace('/', "~1")
            } else {
                index.to_string()
            };
            let inside = format!("{pointer}/{step}");
            if self.wanted.contains(inside.as_str()) {
                self.value(&inside, line)
            } else {
                self.skip()
            }
            // Text that is not JSON, or no longer is: there is nothing to find.
            if self.at == before {
                break;
            }
        }
    }

    /// To the end of a value, or of a key.
    fn skip(&mut self) {
        self.peek();
        let mut depth = 0_usize;
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'"' => self.string(),
                b'{' | b'[' => depth += 1,
                b'}' | b']' | b',' | b':' if depth == 0 => return,
                b'}' | b']' => depth -= 1,
                b'\n' => self.line += 1,
                _ => (),
            }
            self.at += 1;
        }
    }

    /// From a quote to the next one.
    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.text.get(self.at).filter(|byte| **byte != b'"') {
            self.at += if *byte == b'\\' { 2 } else { 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "{\"a\": [1, 2,\n {\"b\": \"x\\\"]\",\n\n  \"c/~d\"\n: {}, \"e\": []}],\n\"\\u0066\" : null\n}\n";

    #[test]
    fn a_place_is_found_by_its_pointer() {
        let of = |pointer: &str| lines(TEXT.as_bytes(), &[pointer])[0];
        let all =
            [("", 1), ("/a", 1), ("/a/1", 1), ("/a/2", 2), ("/a/2/b", 2), ("/a/2/c~1~0d", 4), ("/a/2/e", 5), ("/f", 6)];
        for (pointer, line) in all {
            assert_eq!(of(pointer), line, "{pointer}");
        }
        let (pointers, wanted): (Vec<&str>, Vec<u32>) = all.into_iter().unzip();
        assert_eq!(lines(TEXT.as_bytes(), &pointers), wanted);
    }

    #[test]
    fn of_a_place_that_is_not_there_the_line_of_what_should_hold_it() {
        assert_eq!(lines(TEXT.as_bytes(), &["/a/2/e/7/x", "/a/9", "/nothing", "nothing"]), [5, 1, 1, 1]);
    }

    #[test]
    fn text_that_ends_early_or_is_no_json_ends_the_search() {
        for end in 0..TEXT.len() {
            let _ = lines(&TEXT.as_bytes()[..end], &["/a/2/e", "/f"]);
        }
        for text in ["", "}", "[}", "{]", "[[[", "{:", "{,,", "{\"a\" 1}", "[:::", "\"", "{\"a\\"] {
            let _ = lines(text.as_bytes(), &["/a/0/0", "/0/0/0", "//"]);
        }
    }
}
