//! Expressions over a message: `events > 100 and abs(phase - 12.5) < 1`.
//!
//! ```text
//! or    := and ("or" and)*            sum   := term (("+" | "-") term)*
//! and   := not ("and" not)*           term  := sign (("*" | "/" | "%") sign)*
//! not   := "not" not | chain          sign  := "-" sign | leaf
//! chain := sum (comparison sum)*      leaf  := NUMBER | 'TEXT' | "TEXT" | true | false | NAME | NAME(or, ...) | (or)
//! ```
//! A chain is true if each of its comparisons is: `1 < x <= 3`. Numbers are doubles, text is compared with `==` and
//! `!=` alone.
//!
//! Constraints: of bounded length and depth; what can be known without a message is checked when it is read, with the
//! place. Failure: evaluation reports a name that a message has no value for.

/// Bytes of an expression: a line that somebody writes.
const BYTES_MAX: usize = 4096;
/// Nesting: each level is a call, and the stack ends.
const DEPTH_MAX: usize = 64;

/// The type of a part of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number,
    Text,
    Truth,
    /// It is known with the message alone.
    Any,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Text => "text",
            Self::Truth => "true or false",
            Self::Any => "a value",
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Text(String),
    Truth(bool),
}

impl Value {
    fn kind(&self) -> Kind {
        match self {
            Self::Number(_) => Kind::Number,
            Self::Text(_) => Kind::Text,
            Self::Truth(_) => Kind::Truth,
        }
    }
}

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Characters before the place.
    pub at: usize,
    pub cause: String,
    pub hint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

const COMPARISONS: [(&str, Operator); 6] = [
    ("<=", Operator::LessEqual),
    (">=", Operator::GreaterEqual),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Abs,
    Floor,
    Sqrt,
    Min,
    Max,
}

const FUNCTIONS: [(&str, Function, usize); 5] = [
    ("abs", Function::Abs, 1),
    ("floor", Function::Floor, 1),
    ("sqrt", Function::Sqrt, 1),
    ("min", Function::Min, 2),
    ("max", Function::Max, 2),
];

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Value(Value),
    Name(String),
    Attribute(String),
    Not(Box<Self>),
    Negative(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Arithmetic(Operator, Box<Self>, Box<Self>),
    Chain(Box<Self>, Vec<(Operator, Self)>),
    Call(Function, Vec<Self>),
}

/// A value that an expression needs of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    Name(&'a str),
    Attribute(&'a str),
}

/// An expression that says yes or no.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expression {
    root: Node,
}

impl Expression {
    /// Reads one. `names` are those that it may use, with what they are.
    pub(super) fn read(text: &str, names: &[(String, Kind)]) -> Result<Self, Wrong> {
        if text.len() > BYTES_MAX {
            let cause = format!("it is longer than {BYTES_MAX} bytes");
            return Err(Wrong { at: 0, cause, hint: "split it over two filters".into() });
        }
        let mut parser = Parser { text, at: 0, depth: 0, names };
        let (root, kind) = parser.or()?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.wrong(parser.at, "here it should end", "join parts with `and` or `or`"));
        }
        parser.must(0, kind, Kind::Truth)?;
        Ok(Self { root })
    }

    /// Whether it is true. `lookup` gives the value of a name, or why there is none.
    pub(super) fn is_true(&self, lookup: &mut dyn FnMut(Asked<'_>) -> Result<Value, String>) -> Result<bool, String> {
        truth(evaluate(&self.root, lookup)?)
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    names: &'a [(String, Kind)],
}

type Parsed = Result<(Node, Kind), Wrong>;

impl<'a> Parser<'a> {
    fn wrong(&self, at: usize, cause: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong { at: self.text[..at].chars().count(), cause: cause.into(), hint: hint.into() }
    }

    fn must(&self, at: usize, is: Kind, wanted: Kind) -> Result<(), Wrong> {
        if is == wanted || is == Kind::Any {
            return Ok(());
        }
        let hint = match wanted {
            Kind::Truth => "compare it, as in `events > 100`",
            Kind::Number => "calculate with numbers alone",
            _ => "compare like with like",
        };
        Err(self.wrong(at, format!("it is {}, not {}", is.name(), wanted.name()), hint))
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Takes a sign.
    fn sign(&mut self, sign: &str) -> bool {
        self.space();
        let is_there = self.text[self.at..].starts_with(sign);
        self.at += if is_there { sign.len() } else { 0 };
        is_there
    }

    /// The word that comes next.
    fn peek(&mut self) -> &'a str {
        self.space();
        let rest = &self.text[self.at..];
        if !rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return "";
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    }

    fn word(&mut self, word: &str) -> bool {
        let is_there = self.peek() == word;
        self.at += if is_there { word.len() } else { 0 };
        is_there
    }

    fn or(&mut self) -> Parsed {
        self.space();
        let start = self.at;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.wrong(start, "it is nested too deep", "take some brackets away"));
        }
        let (mut left, mut kind) = self.and()?;
        while self.word("or") {
            self.must(start, kind, Kind::Truth)?;
            self.space();
            let at = self.at;
            let (right, of) = self.and()?;
            self.must(at, of, Kind::Truth)?;
            (left, kind) = (Node::Or(left.into(), right.into()), Kind::Truth);
        }
        self.depth -= 1;
        Ok((left, kind))
    }

    fn and(&mut self) -> Parsed {
        self.space();
        let start = self.at;
        let (mut left, mut kind) = self.not()?;
        while self.word("and") {
            self.must(start, kind, Kind::Truth)?;
            self.space();
            let at = self.at;
            let (right, of) = self.not()?;
            self.must(at, of, Kind::Truth)?;
            (left, kind) = (Node::And(left.into(), right.into()), Kind::Truth);
        }
        Ok((left, kind))
    }

    fn not(&mut self) -> Parsed {
        let mut count = 0;
        while self.word("not") {
            count += 1;
        }
        if count == 0 {
            return self.chain();
        }
        self.space();
        let at = self.at;
        let (node, kind) = self.chain()?;
        self.must(at, kind, Kind::Truth)?;
        // Two make none.
        Ok((if count % 2 == 1 { Node::Not(node.into()) } else { node }, Kind::Truth))
    }

    fn chain(&mut self) -> Parsed {
        self.space();
        let start = self.at;
        let (first, mut before) = self.sum()?;
        let kind = before;
        let mut links = Vec::new();
        loop {
            self.space();
            let at = self.at;
            let Some(operator) = COMPARISONS.iter().find(|(sign, _)| self.sign(sign)).map(|c| c.1) else { break };
            self.space();
            let right_at = self.at;
            let (right, of) = self.sum()?;
            if matches!(operator, Operator::Equal | Operator::NotEqual) {
                if before != of && before != Kind::Any && of != Kind::Any {
                    let cause = format!("{} is compared with {}", before.name(), of.name());
                    return Err(self.wrong(at, cause, "compare like with like"));
                }
            } else {
                self.must(start, before, Kind::Number)?;
                self.must(right_at, of, Kind::Number)?;
            }
            links.push((operator, right));
            before = of;
        }
        self.space();
        if links.is_empty() && self.text[self.at..].starts_with('=') {
            return Err(self.wrong(self.at, "`=` compares nothing", "write `==`"));
        }
        Ok(if links.is_empty() { (first, kind) } else { (Node::Chain(first.into(), links), Kind::Truth) })
    }

    fn sum(&mut self) -> Parsed {
        self.arithmetic(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::term)
    }

    fn term(&mut self) -> Parsed {
        let signs = [("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)];
        self.arithmetic(&signs, Self::negative)
    }

    fn arithmetic(&mut self, signs: &[(&str, Operator)], below: fn(&mut Self) -> Parsed) -> Parsed {
        self.space();
        let start = self.at;
        let (mut left, mut kind) = below(self)?;
        while let Some(operator) = signs.iter().find(|(sign, _)| self.sign(sign)).map(|s| s.1) {
            self.must(start, kind, Kind::Number)?;
            self.space();
            let at = self.at;
            let (right, of) = below(self)?;
            self.must(at, of, Kind::Number)?;
            (left, kind) = (Node::Arithmetic(operator, left.into(), right.into()), Kind::Number);
        }
        Ok((left, kind))
    }

    fn negative(&mut self) -> Parsed {
        let mut count = 0;
        while self.sign("-") {
            count += 1;
        }
        self.space();
        let at = self.at;
        let (node, kind) = self.leaf()?;
        if count == 0 {
            return Ok((node, kind));
        }
        self.must(at, kind, Kind::Number)?;
        Ok((if count % 2 == 1 { Node::Negative(node.into()) } else { node }, Kind::Number))
    }

    fn leaf(&mut self) -> Parsed {
        let word = self.peek();
        let start = self.at;
        if !word.is_empty() {
            self.at += word.len();
            return self.named(start, word);
        }
        if self.sign("(") {
            let inner = self.or()?;
            return if self.sign(")") {
                Ok(inner)
            } else {
                Err(self.wrong(start, "this bracket is never closed", "add a `)`"))
            };
        }
        if let Some(text) = self.quoted()? {
            return Ok((Node::Value(Value::Text(text)), Kind::Text));
        }
        let rest = &self.text[start..];
        let mut end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        if rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            let digits = &rest[end + 1 + sign..];
            end += 1 + sign + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        }
        match rest[..end].parse() {
            Ok(number) if end > 0 => {
                self.at += end;
                Ok((Node::Value(Value::Number(number)), Kind::Number))
            }
            _ if rest.is_empty() => Err(self.wrong(start, "it ends too early", "write a value or a name here")),
            _ => Err(self.wrong(start, "here is neither a value nor a name", "check the character here")),
        }
    }

    fn named(&mut self, start: usize, word: &str) -> Parsed {
        match word {
            "true" | "false" => return Ok((Node::Value(Value::Truth(word == "true")), Kind::Truth)),
            "and" | "or" | "not" => {
                let cause = format!("expected a value, found `{word}`");
                return Err(self.wrong(start, cause, "write a value or a comparison on both sides"));
            }
            _ => {}
        }
        if word == "attribute" && self.sign("(") {
            self.space();
            let at = self.at;
            let Some(name) = self.quoted()? else {
                return Err(self.wrong(at, "write the name of an attribute in quotes", "as in `attribute('gain')`"));
            };
            return if self.sign(")") {
                Ok((Node::Attribute(name), Kind::Any))
            } else {
                Err(self.wrong(start, "this bracket is never closed", "add a `)`"))
            };
        }
        if self.sign("(") {
            return self.call(start, word);
        }
        match self.names.iter().find(|(name, _)| name == word) {
            Some((name, kind)) => Ok((Node::Name(name.clone()), *kind)),
            None => {
                let all: Vec<&str> = self.names.iter().map(|(name, _)| name.as_str()).collect();
                let hint = format!("known keys: {}, attribute('NAME')", all.join(", "));
                Err(self.wrong(start, format!("there is no `{word}`"), hint))
            }
        }
    }

    fn call(&mut self, start: usize, word: &str) -> Parsed {
        let Some((_, function, count)) = FUNCTIONS.iter().find(|f| f.0 == word) else {
            let hint = "functions are abs, floor, sqrt, min, max and attribute";
            return Err(self.wrong(start, format!("there is no function `{word}`"), hint));
        };
        let mut given = Vec::new();
        loop {
            self.space();
            let at = self.at;
            let (node, kind) = self.or()?;
            self.must(at, kind, Kind::Number)?;
            given.push(node);
            if !self.sign(",") {
                break;
            }
        }
        if !self.sign(")") {
            return Err(self.wrong(start, "this bracket is never closed", "add a `)`"));
        }
        if given.len() != *count {
            let cause = format!("`{word}` is given {} values", given.len());
            return Err(self.wrong(start, cause, format!("give it {count}")));
        }
        Ok((Node::Call(*function, given), Kind::Number))
    }

    /// A text in quotes, as it stands between them.
    fn quoted(&mut self) -> Result<Option<String>, Wrong> {
        let start = self.at;
        let rest = &self.text[start..];
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else { return Ok(None) };
        match rest[1..].find(quote) {
            Some(length) => {
                self.at += length + 2;
                Ok(Some(rest[1..=length].to_owned()))
            }
            None => Err(self.wrong(start, "this text never ends", format!("add a {quote}"))),
        }
    }
}

fn truth(value: Value) -> Result<bool, String> {
    match value {
        Value::Truth(is_true) => Ok(is_true),
        other => Err(format!("expected true or false, found {}", other.kind().name())),
    }
}

fn number(value: Value) -> Result<f64, String> {
    match value {
        Value::Number(number) => Ok(number),
        other => Err(format!("expected a number, found {}", other.kind().name())),
    }
}

fn evaluate(node: &Node, lookup: &mut dyn FnMut(Asked<'_>) -> Result<Value, String>) -> Result<Value, String> {
    Ok(match node {
        Node::Value(value) => value.clone(),
        Node::Name(name) => lookup(Asked::Name(name))?,
        Node::Attribute(name) => lookup(Asked::Attribute(name))?,
        Node::Not(inner) => Value::Truth(!truth(evaluate(inner, lookup)?)?),
        Node::Negative(inner) => Value::Number(-number(evaluate(inner, lookup)?)?),
        Node::And(left, right) => Value::Truth(truth(evaluate(left, lookup)?)? && truth(evaluate(right, lookup)?)?),
        Node::Or(left, right) => Value::Truth(truth(evaluate(left, lookup)?)? || truth(evaluate(right, lookup)?)?),
        Node::Arithmetic(operator, left, right) => {
            let (left, right) = (number(evaluate(left, lookup)?)?, number(evaluate(right, lookup)?)?);
            Value::Number(match operator {
                Operator::Add => left + right,
                Operator::Subtract => left - right,
                Operator::Multiply => left * right,
                Operator::Divide => left / right,
                // The sign of the divisor, as in Python.
                _ => left - right * (left / right).floor(),
            })
        }
        Node::Chain(first, links) => {
            let mut left = evaluate(first, lookup)?;
            for (operator, right) in links {
                let right = evaluate(right, lookup)?;
                let is_so = match operator {
                    Operator::Equal => left == right,
                    Operator::NotEqual => left != right,
                    _ => {
                        let (left, right) = (number(left)?, number(right.clone())?);
                        match operator {
                            Operator::Less => left < right,
                            Operator::LessEqual => left <= right,
                            Operator::Greater => left > right,
                            _ => left >= right,
                        }
                    }
                };
                if !is_so {
                    return Ok(Value::Truth(false));
                }
                left = right;
            }
            Value::Truth(true)
        }
        Node::Call(function, given) => {
            let mut values = Vec::new();
            for node in given {
                values.push(number(evaluate(node, lookup)?)?);
            }
            Value::Number(match (function, values.as_slice()) {
                (Function::Abs, [x]) => x.abs(),
                (Function::Floor, [x]) => x.floor(),
                (Function::Sqrt, [x]) => x.sqrt(),
                (Function::Min, [x, y]) => x.min(*y),
                (Function::Max, [x, y]) => x.max(*y),
                _ => return Err("a function is given too few values".into()),
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<(String, Kind)> {
        let all = [("events", Kind::Number), ("source", Kind::Text), ("phase", Kind::Number)];
        all.map(|(name, kind)| (name.to_owned(), kind)).to_vec()
    }

    fn is_true(text: &str) -> Result<bool, String> {
        let expression = Expression::read(text, &names()).map_err(|w| format!("{}: {}; {}", w.at, w.cause, w.hint))?;
        expression.is_true(&mut |asked| match asked {
            Asked::Name("events") => Ok(Value::Number(120.0)),
            Asked::Name("source") => Ok(Value::Text("bank0".into())),
            Asked::Attribute("gain") => Ok(Value::Number(2.0)),
            Asked::Attribute("mode") => Ok(Value::Text("fast".into())),
            other => Err(format!("no {other:?}")),
        })
    }

    #[test]
    fn comparisons_arithmetic_and_words_mean_what_they_say() {
        for (text, wanted) in [
            ("events > 100", true),
            ("events >= 120 and events <= 120", true),
            ("100 < events < 110", false),
            ("100<events<=120", true),
            ("not events > 100 or source == 'bank0'", true),
            ("not (events > 100 or source == 'bank0')", false),
            ("not not true", true),
            ("abs(events - 130) == 10", true),
            ("2 + 3 * 4 == 14 and (2 + 3) * 4 == 20", true),
            ("-3 % 7 == 4", true),
            ("8 / 2 / 2 == 2 and 8 - 2 - 2 == 4", true),
            ("min(events, 3) + max(1, 2) == 5", true),
            ("sqrt(floor(16.9)) == 4", true),
            ("1.5e2 > events and 1e-3 < 1", true),
            ("source != \"bank1\"", true),
            ("attribute('gain') * 2 == 4 and attribute('mode') == 'fast'", true),
            // A value that is not needed may be missing.
            ("events > 1 or phase > 0", true),
            ("events < 1 and phase > 0", false),
        ] {
            assert_eq!(is_true(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, wanted) in [
            ("", "0: it ends too early"),
            ("events", "0: it is a number, not true or false"),
            ("evnts > 1", "0: there is no `evnts`"),
            ("events > ", "9: it ends too early"),
            ("events = 3", "7: `=` compares nothing"),
            ("events > 1 events", "11: here it should end"),
            ("(events > 1", "0: this bracket is never closed"),
            ("events > 1 and source", "15: it is text, not true or false"),
            ("source > 3", "0: it is text, not a number"),
            ("source == 3", "7: text is compared with a number"),
            ("events + 'a' > 3", "9: it is text, not a number"),
            ("abs(1, 2) > 0", "0: `abs` is given 2 values"),
            ("sinus(1) > 0", "0: there is no function `sinus`"),
            ("events > 'abc", "9: this text never ends"),
            ("attribute(gain) > 1", "10: write the name of an attribute in quotes"),
            ("events > 1 and", "14: it ends too early"),
            ("and events", "0: expected a value, found `and`"),
            ("events > é", "9: there is no `é`"),
            ("events > $", "9: here is neither a value nor a name"),
            ("events > 1.2.3", "9: here is neither a value nor a name"),
        ] {
            let wrong = is_true(text).unwrap_err();
            assert!(wrong.starts_with(wanted), "{text}: {wrong}");
        }
        assert!(is_true("phase > 1").unwrap_err().starts_with("no "), "what is not there is said");
        assert!(is_true("attribute('mode') > 1").unwrap_err().starts_with("expected a number, found text"));
    }

    #[test]
    fn whatever_text_comes_it_ends() {
        let deep = "(".repeat(3000);
        assert!(is_true(&deep).unwrap_err().contains("too deep"));
        assert!(is_true(&"-".repeat(4000)).unwrap_err().contains("ends too early"));
        assert!(is_true(&"not ".repeat(1000)).unwrap_err().contains("ends too early"));
        assert!(is_true(&"a".repeat(5000)).unwrap_err().contains("longer"));
        let mut dice = 12345_u64;
        let pieces =
            ["events", "(", ")", "and", "not", " ", "<", "==", "'", "é", "1e", ".", "-", "attribute(", ",", "\0"];
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..(dice >> 60) {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text += pieces[(dice >> 40) as usize % pieces.len()];
            }
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let _ = is_true(&text);
        }
    }
}
