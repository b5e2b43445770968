//! Messages given as JSON: what `beamport cat --json` prints, for `append` and `make`.
//!
//! A file holds an array of messages or one message after the other, on a line each or not. A message is an object with its
//! `content`, or is the content itself: an object with `schema` and the fields. All of a file is read before anything is
//! done with it, and the first message that is wrong is named with its line.

use crate::limits::MESSAGES_BYTES_MAX;
use flow::Fault;
use serde_json::{Map, Value};
use settings::units::{self, shortened};
use std::io::Read as _;
use std::path::Path;

/// The keys of an object that has the content of a message under `content`.
const KEYS: [&str; 7] = ["stream", "schema", "source_time", "time", "origin", "origin_seq", "content"];
/// Fields that `cat` prints and `append` ignores: they follow from the rest, or the appended message gets its own.
const PASSED_OVER: [&str; 6] = ["sequence", "arrival_time", "flags", "bytes", "hex", "unread"];

/// One message.
pub(super) struct Given {
    /// The stream that it names.
    pub(super) stream: Option<String>,
    /// Source time, ns since 1970 UTC: as given, else that in the message, else now.
    pub(super) time: i64,
    pub(super) origin: String,
    pub(super) number: Option<u64>,
    pub(super) schema: [u8; 4],
    pub(super) payload: Vec<u8>,
}

/// Reads all messages of a file, or of stdin for `-`; `check` may refuse one. `now` in ns since 1970 UTC.
pub(super) fn read(file: &Path, now: i64, check: impl Fn(&Given) -> Result<(), String>) -> Result<Vec<Given>, Fault> {
    let name = if file == Path::new("-") { "stdin".into() } else { file.display().to_string() };
    parse(&text(file, &name)?, &name, now, check)
}

fn parse(text: &[u8], name: &str, now: i64, check: impl Fn(&Given) -> Result<(), String>) -> Result<Vec<Given>, Fault> {
    let mut given = Vec::new();
    for message in (Messages { text, at: 0, is_array: None }) {
        let line = |at: usize| 1 + text[..at].iter().filter(|byte| **byte == b'\n').count();
        let wrong = |at: usize, cause: String| {
            Fault::new(format!("cannot read the message at line {} of {name}", line(at)), cause)
                .hint("write it as `beamport cat STREAM --json` prints messages")
        };
        let (at, value) = message.map_err(|(at, cause)| wrong(at, cause))?;
        let message = of_json(&value, now).and_then(|message| check(&message).map(|()| message));
        given.push(message.map_err(|cause| wrong(at, cause))?);
    }
    Ok(given)
}

fn text(file: &Path, name: &str) -> Result<Vec<u8>, Fault> {
    let fault = |e: std::io::Error| Fault::io(format!("cannot read {name}"), &e);
    let mut text = Vec::new();
    let most = MESSAGES_BYTES_MAX + 1;
    let read = match name {
        "stdin" => std::io::stdin().lock().take(most).read_to_end(&mut text),
        _ => std::fs::File::open(file).map_err(fault)?.take(most).read_to_end(&mut text),
    };
    read.map_err(fault)?;
    if text.len() as u64 > MESSAGES_BYTES_MAX {
        let cause = format!("it has more than {MESSAGES_BYTES_MAX} bytes");
        return Err(Fault::new(format!("cannot read {name}"), cause).hint("append it in parts"));
    }
    Ok(text)
}

/// The JSON values of a text, each with the byte at which it begins.
struct Messages<'t> {
    text: &'t [u8],
    at: usize,
    /// Whether they stand in an array; unknown before the first.
    is_array: Option<bool>,
}

impl Messages<'_> {
    fn skip_space(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.get(self.at).copied()
    }

    /// Goes to the next value; `None` at the end.
    fn seek(&mut self) -> Result<Option<()>, String> {
        let Some(first) = self.is_array else {
            let is_array = self.skip_space() == Some(b'[');
            self.at += usize::from(is_array);
            self.is_array = Some(is_array);
            return match (is_array, self.skip_space()) {
                (true, Some(b']')) => self.end(),
                (true, None) => Err("the array has no end".into()),
                (_, found) => Ok(found.map(drop)),
            };
        };
        match (first, self.skip_space()) {
            (false, found) => Ok(found.map(drop)),
            (true, Some(b',')) => {
                self.at += 1;
                self.skip_space().map(drop).map(Some).ok_or_else(|| "the array has no end".into())
            }
            (true, Some(b']')) => self.end(),
            (true, Some(_)) => Err("a comma is missing before it".into()),
            (true, None) => Err("the array has no end".into()),
        }
    }

    /// Behind the closing bracket nothing follows.
    fn end(&mut self) -> Result<Option<()>, String> {
        self.at += 1;
        match self.skip_space() {
            Some(_) => Err("text follows the array".into()),
            None => Ok(None),
        }
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<(usize, Value), (usize, String)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.seek() {
            Ok(None) => return None,
            Err(cause) => return Some(Err((self.at, cause))),
            Ok(Some(())) => {}
        }
        let at = self.at;
        let mut values = serde_json::Deserializer::from_slice(&self.text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                self.at += values.byte_offset();
                Some(Ok((at, value)))
            }
            Some(Err(error)) => {
                // Its line and column count from the message on.
                let cause = error.to_string();
                let cause = cause.split(" at line ").next().unwrap_or_default();
                let behind = self.text[at..].split(|byte| *byte == b'\n').take(error.line().saturating_sub(1));
                let place = at + behind.map(|line| line.len() + 1).sum::<usize>();
                Some(Err((place.min(self.text.len()), format!("it is not valid JSON: {cause}"))))
            }
            None => None,
        }
    }
}

fn of_json(value: &Value, now: i64) -> Result<Given, String> {
    let object = value.as_object().ok_or("a message is a JSON object")?;
    let is_wrapped = object.contains_key("content") || object.contains_key("hex");
    let mut payload = Vec::new();
    if !is_wrapped {
        // The content itself, with the stream beside it.
        let mut content = object.clone();
        let stream = content.remove("stream");
        wire::of_json(&Value::Object(content), &mut payload).map_err(|error| error.to_string())?;
        return given(payload, &Map::from_iter(stream.map(|stream| ("stream".to_owned(), stream))), now);
    }
    if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str()) && !PASSED_OVER.contains(&key.as_str())) {
        return Err(format!("unknown key `{}` beside `content`; known keys: {}", shortened(key), KEYS.join(", ")));
    }
    match object.get("content") {
        Some(content) => {
            let mut content = content.clone();
            if let (Some(fields), Some(schema)) = (content.as_object_mut(), object.get("schema")) {
                let inner = fields.entry("schema").or_insert_with(|| schema.clone());
                if inner != schema {
                    return Err(format!("`schema` is {schema}, and that of its `content` {inner}"));
                }
            }
            wire::of_json(&content, &mut payload).map_err(|error| error.to_string())?;
        }
        None => payload = of_hex(object)?,
    }
    given(payload, object, now)
}

/// Bytes of a schema that is not known here.
fn of_hex(object: &Map<String, Value>) -> Result<Vec<u8>, String> {
    let text = object.get("hex").and_then(Value::as_str).unwrap_or_default().as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
    let bytes: Option<Vec<u8>> = text.chunks(2).map(pair).collect();
    let bytes = bytes.ok_or("`hex` is not two hexadecimal digits for each byte")?;
    match object.get("bytes").and_then(Value::as_u64) {
        Some(all) if all != bytes.len() as u64 => {
            Err(format!("`hex` was shortened by printing: it has {} of {all} bytes", bytes.len()))
        }
        _ => Ok(bytes),
    }
}

/// A message with the keys that stand beside its content.
fn given(payload: Vec<u8>, beside: &Map<String, Value>, now: i64) -> Result<Given, String> {
    let text = |key: &str| match beside.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!("`{key}` is not text: {other}")),
    };
    let given = |key: &str| beside.get(key).filter(|value| !value.is_null());
    let message = wire::read(&payload).ok();
    let time = match given("source_time").or_else(|| given("time")) {
        None => message.as_ref().and_then(wire::Message::time).unwrap_or(now),
        Some(Value::String(text)) => {
            let when = units::when(text).map_err(|refused| format!("{}; {}", refused.cause, refused.hint))?;
            super::nanoseconds(when, now)
        }
        Some(value) => value.as_i64().ok_or_else(|| format!("{value} is not a time in ns since 1970"))?,
    };
    let number = match given("origin_seq") {
        None => None,
        Some(value) => Some(value.as_u64().ok_or_else(|| format!("`origin_seq` is not a whole number: {value}"))?),
    };
    let maker = || message.as_ref().and_then(wire::Message::maker).map(str::to_owned);
    let origin = text("origin")?.or_else(maker);
    // Bytes that are not a message of a known schema have the schema that stands beside them.
    let named = text("schema")?.and_then(|schema| schema.as_bytes().try_into().ok());
    let schema =
        message.and_then(|_| wire::schema_id(&payload)).or(named).ok_or("it has no `schema` of four letters")?;
    Ok(Given { stream: text("stream")?, time, origin: origin.unwrap_or_default(), number, schema, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> Result<Vec<(usize, Value)>, (usize, String)> {
        Messages { text: text.as_bytes(), at: 0, is_array: None }.collect()
    }

    /// Mutations as they occur in unchecked files, and in checked ones after a typing error.
    #[test]
    fn mutated_messages_are_read_or_refused_at_their_line() {
        let good = [
            r#"{"schema": "f144", "source_name": "T", "value": [1.5, 2], "timestamp": 1772366400000000000}"#,
            r#"{"content": {"source_name": "det", "message_id": 7, "reference_time": [1], "reference_time_index": [0],
                "time_of_flight": [5, 6], "pixel_id": [1, 2]}, "schema": "ev44", "origin": "a", "origin_seq": 3}"#,
            r#"{"schema": "ad00", "source_name": "cam", "id": 1, "timestamp": 5, "dimensions": [2, 3],
                "data": [1, 2, 3, 4, 5, 6], "data_type": "uint16", "source_time": "2026-11-29T01:02:03Z"}"#,
            r#"{"hex": "00ff", "schema": "test", "bytes": 2, "stream": "s", "time": 5}"#,
        ];
        let pieces =
            ["18446744073709551616", "-1", "1e400", "null", "[]", "{}", r#""\u0000""#, "9007199254740993", "[[["];
        let (mut dice, mut read, mut refused) = (testkit::Dice::new(7), 0, 0);
        let mut roll = |below: usize| dice.below(below as u64) as usize;
        for _ in 0..20_000 {
            let mut text = good[roll(good.len())].as_bytes().to_vec();
            for _ in 0..=roll(4) {
                let at = roll(text.len());
                match roll(5) {
                    0 => text[at] ^= 1 << roll(8),
                    1 => drop(text.drain(at..(at + 1 + roll(20)).min(text.len()))),
                    2 => {
                        let piece = good[roll(good.len())].as_bytes();
                        let from = roll(piece.len());
                        let piece = &piece[from..(from + roll(40)).min(piece.len())];
                        drop(text.splice(at..at, piece.iter().copied()));
                    }
                    // A value in the place of a value.
                    _ => {
                        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || br#".-+""#.contains(byte);
                        let end = at + text[at..].iter().take_while(|byte| is_part(byte)).count();
                        drop(text.splice(at..end, pieces[roll(pieces.len())].bytes()));
                    }
                }
                if text.is_empty() {
                    break;
                }
            }
            match parse(&text, "mutated", 5, |_| Ok(())) {
                Ok(_) => read += 1,
                Err(fault) => {
                    let lines = 1 + text.iter().filter(|byte| **byte == b'\n').count();
                    let line = fault.what.split(" line ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
                    assert!(line.is_some_and(|line: usize| (1..=lines).contains(&line)), "{fault}");
                    assert!(!fault.cause.is_empty(), "{fault}");
                    refused += 1;
                }
            }
        }
        assert!(read > 100 && refused > 10_000, "{read} read, {refused} refused");
    }

    #[test]
    fn an_array_and_one_message_after_the_other_are_read() {
        let three = [Value::from(1), Value::from("x"), Value::Null];
        for text in ["[1, \"x\",null]", " [\n1\n,\"x\", null ]\n", "1\n\"x\"\n\nnull\n", "1 \"x\" null"] {
            let values: Vec<Value> = read_all(text).unwrap().into_iter().map(|(_, value)| value).collect();
            assert_eq!(values, three, "{text}");
        }
        for text in ["", " \n", "[]", "[ ]\n"] {
            assert_eq!(read_all(text), Ok(Vec::new()), "{text}");
        }
        let wrong = [
            ("[", "has no end"),
            ("[1", "has no end"),
            ("[1,", "has no end"),
            ("[1 2]", "a comma"),
            ("[] 1", "text follows"),
            ("[1,]", "not valid JSON"),
            ("{\"a\"\n:}", "not valid JSON"),
        ];
        for (text, why) in wrong {
            assert!(read_all(text).unwrap_err().1.contains(why), "{text}");
        }
        assert_eq!(read_all("1\n{\n\"a\": 1,\n}").unwrap_err().0, 12);
    }
}
