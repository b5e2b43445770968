//! One section being read: typed values with their origin, unknown keys, and everything noted for `check --show`.

use crate::key::Key;
use crate::limits;
use crate::mistake::{Mistakes, nearest};
use crate::page::Page;
use crate::units::{self, Refused, Size, Time, shortened};
use serde_json::Value as Json;
use std::borrow::Cow;
use std::ops::{Deref, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml_edit::{InlineTable, Item, TableLike};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nobody wrote it.
    #[default]
    Default,
    /// This line of the instrument file, from 1.
    Line(u32),
}

/// A value and its origin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// A value that nobody wrote.
    #[must_use]
    pub fn by_default(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// The same with another value.
    #[must_use]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Setting<U> {
        Setting { value: f(self.value), origin: self.origin }
    }

    /// The line it stands in, or the given one (its section's) where it is a default.
    #[must_use]
    pub fn line_or(&self, section: u32) -> u32 {
        match self.origin {
            Origin::Default => section,
            Origin::Line(line) => line,
        }
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// One resolved key as `check --show` prints it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The key; with that of its table before it where it stands in one, like `parameters.bins`.
    pub key: Cow<'static, str>,
    /// Its value, units as text.
    pub value: Json,
    /// Where it comes from.
    pub origin: Origin,
}

/// A type of values of a key.
pub trait Take: Sized {
    /// From a value in the file.
    fn take(item: &Item) -> Result<Self, Refused>;
    /// From the text of a default.
    fn default_of(text: &str) -> Option<Self>;
    /// For `check --show`.
    fn show(&self) -> Json;
}

/// A section while it is read.
pub struct Section<'a> {
    /// The file.
    pub page: &'a Page,
    /// The folder of the file: paths in it are relative to it.
    pub folder: &'a Path,
    /// Where a key belongs that is unknown in this section; none for a key that is unknown everywhere.
    pub elsewhere: &'a dyn Fn(&str) -> Option<String>,
    /// As in the file: `[source.detector]`; empty above the first section.
    pub title: String,
    /// Its line; 1 above the first section.
    pub line: u32,
    /// Its keys and values.
    pub table: &'a dyn TableLike,
    /// Where mistakes are noted.
    pub mistakes: &'a mut Mistakes,
    /// Lines of the file could not be read, so what seems to be missing may stand in one of them.
    pub has_holes: bool,
    /// The values read so far, for `check --show`.
    pub shown: Vec<Shown>,
    /// Names of the keys that were asked for.
    pub asked: Vec<&'static str>,
}

impl Section<'_> {
    /// " in [source.detector]", or nothing above the first section.
    fn place(&self) -> String {
        if self.title.is_empty() { String::new() } else { format!(" in {}", self.title) }
    }

    /// Notes a mistake in a line of the file.
    pub fn mistake(&mut self, line: u32, what: impl Into<String>, cause: impl Into<String>, hint: impl Into<String>) {
        let mistake = self.page.mistake(line, what, cause, hint);
        self.mistakes.push(mistake);
    }

    /// The line of a key; the section's where it is absent.
    pub fn line_of(&self, name: &str) -> u32 {
        self.table
            .get_key_value(name)
            .and_then(|(key, item)| key.span().or_else(|| item.span()))
            .map_or(self.line, |span| self.page.line(span.start))
    }

    /// Whether the file gives a value of a key, whatever it is.
    pub fn has(&mut self, key: &'static Key) -> bool {
        self.ask(key.name);
        self.table.contains_key(key.name)
    }

    fn ask(&mut self, name: &'static str) {
        if !self.asked.contains(&name) {
            self.asked.push(name);
        }
    }

    /// The value of a key, or its default; `None` where there is neither, or the value is a mistake (which is noted).
    pub fn get<T: Take>(&mut self, key: &'static Key) -> Option<Setting<T>> {
        self.ask(key.name);
        let Some(item) = self.table.get(key.name) else {
            if key.is_required {
                self.missing(key, format!("add `{} = ...` ({})", key.name, bare(key.takes)));
            }
            let value = T::default_of(key.default).filter(|_| !key.default.is_empty())?;
            return Some(self.note(key, Setting::by_default(value)));
        };
        let line = self.line_of(key.name);
        match T::take(item) {
            Ok(value) => Some(self.note(key, Setting { value, origin: Origin::Line(line) })),
            Err(refused) => {
                self.refuse(key, refused);
                None
            }
        }
    }

    /// Notes that a key is missing, unless lines of the file could not be read or another key was probably meant to be it.
    pub fn missing(&mut self, key: &'static Key, hint: impl Into<String>) {
        if !self.has_holes && !self.is_misspelt(key) {
            self.mistake(self.line, format!("`{}` is missing{}", key.name, self.place()), "", hint);
        }
    }

    /// A whole number in a range, or the default of the key; `None` as for [`Self::get`].
    pub fn within(&mut self, key: &'static Key, range: RangeInclusive<i64>) -> Option<Setting<i64>> {
        let number: Setting<i64> = self.get(key)?;
        if range.contains(&number.value) {
            return Some(number);
        }
        let hint = format!("write {} to {}", range.start(), range.end());
        self.refuse(key, Refused::new(format!("{} is out of range", number.value), hint));
        None
    }

    /// A value that `read` makes of that of a key; where it refuses, the value is a mistake and the result `None`.
    pub fn read<T: Take, U>(&mut self, key: &'static Key, read: impl FnOnce(&T) -> Result<U, Refused>) -> Option<U> {
        let setting: Setting<T> = self.get(key)?;
        read(&setting).map_err(|refused| self.refuse(key, refused)).ok()
    }

    /// One of some words, or the default of the key; `None` as for [`Self::get`].
    pub fn word<T: Copy>(&mut self, key: &'static Key, words: &[(&'static str, T)]) -> Option<Setting<T>> {
        let text: Setting<String> = self.get(key)?;
        let known = words.iter().find(|(word, _)| *word == *text);
        if known.is_none() {
            self.refuse(key, unknown_word(&text, words.iter().map(|(word, _)| *word)));
        }
        known.map(|(_, value)| text.map(|_| *value))
    }

    /// Reads the table that a key gives as a section of its own, an empty one where there is none.
    pub fn table<T>(&mut self, name: &str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let none = InlineTable::new();
        let title = match self.title.strip_suffix(']') {
            Some(open) => format!("{open}.{}]", shortened(name)),
            None if self.title.is_empty() => shortened(name),
            None => format!("{}.{}", self.title, shortened(name)),
        };
        let mut section = Section {
            page: self.page,
            folder: self.folder,
            elsewhere: self.elsewhere,
            title,
            line: self.line_of(name),
            table: self.table.get(name).and_then(Item::as_table_like).unwrap_or(&none),
            mistakes: &mut *self.mistakes,
            has_holes: self.has_holes,
            shown: Vec::new(),
            asked: Vec::new(),
        };
        read(&mut section)
    }

    /// The path that a key gives, relative to the folder of the file; `None` as for [`Self::get`].
    pub fn path(&mut self, key: &'static Key) -> Option<Setting<PathBuf>> {
        let folder = self.folder;
        self.get::<String>(key).map(|path| path.map(|path| folder.join(path)))
    }

    /// The same for keys with a default and required ones: after a mistake any value will do, the file is refused anyway.
    pub fn need<T: Take + Default>(&mut self, key: &'static Key) -> Setting<T> {
        self.get(key).unwrap_or_default()
    }

    /// Whether a key of the section was probably meant to be this one: it is reported as unknown, and once is enough.
    fn is_misspelt(&self, key: &Key) -> bool {
        !self.mistakes.is_full()
            && self
                .table
                .iter()
                .any(|(name, _)| nearest(name, [key.name]).is_some() && (self.elsewhere)(name).is_none())
    }

    /// Notes a mistake in the value of a key.
    pub fn refuse(&mut self, key: &'static Key, refused: Refused) {
        self.refuse_named(key.name, key.takes, refused);
    }

    /// The same for a key that another crate's table describes.
    pub fn refuse_named(&mut self, name: &str, takes: &str, refused: Refused) {
        let hint = if refused.hint.is_empty() { format!("`{name}` takes: {}", bare(takes)) } else { refused.hint };
        self.mistake(self.line_of(name), format!("wrong value of `{name}`{}", self.place()), refused.cause, hint);
    }

    /// Notes a resolved value of such a key for `check --show`.
    pub fn show(&mut self, key: &'static str, value: Json, origin: Origin) {
        self.shown.push(Shown { key: key.into(), value, origin });
    }

    /// Notes a resolved value for `check --show`.
    pub fn note<T: Take>(&mut self, key: &'static Key, setting: Setting<T>) -> Setting<T> {
        self.shown.push(Shown { key: key.name.into(), value: setting.show(), origin: setting.origin });
        setting
    }

    /// Allows keys that a reader cannot ask for because another mistake hides which of them belong here.
    pub fn allow(&mut self, names: impl IntoIterator<Item = &'static str>) {
        names.into_iter().for_each(|name| self.ask(name));
    }

    /// Ends the section: every key in it that nothing asked for is a mistake. Returns what was read.
    pub fn end(&mut self) -> Vec<Shown> {
        self.refuse_unknown();
        std::mem::take(&mut self.shown)
    }

    fn refuse_unknown(&mut self) {
        let known = std::mem::take(&mut self.asked);
        let unknown: Vec<String> =
            self.table.iter().map(|(name, _)| name.to_owned()).filter(|name| !known.contains(&name.as_str())).collect();
        for name in unknown {
            // Past the limit only the fact counts; looking for near words would take minutes on a hostile file.
            if self.mistakes.is_full() {
                self.mistakes.has_more = true;
                return;
            }
            let hint = match (nearest(&name, known.iter().copied()), (self.elsewhere)(&name)) {
                (_, Some(place)) => format!("`{name}` belongs to {place}"),
                (Some(near), None) => format!("did you mean `{near}`?"),
                (None, None) => format!("known keys: {}", known.join(", ")),
            };
            self.mistake(self.line_of(&name), format!("unknown key `{}`{}", shortened(&name), self.place()), "", hint);
        }
    }
}

/// Words without their quotes, for use inside quotes or in running text.
fn bare(text: &str) -> String {
    text.replace('`', "\"")
}

/// What stands there instead: "a number", "a list".
pub fn noun(item: &Item) -> &'static str {
    match item.type_name() {
        "integer" | "float" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "datetime" => "a time",
        "string" => "a text",
        _ => "a table",
    }
}

fn text_of(item: &Item) -> Result<&str, Refused> {
    let text = item.as_str().ok_or_else(|| Refused::new(format!("it is {}", noun(item)), ""))?;
    if text.len() > limits::TEXT_BYTES_MAX {
        return Err(Refused::new(format!("longer than {} bytes", limits::TEXT_BYTES_MAX), ""));
    }
    if text.chars().any(char::is_control) {
        return Err(Refused::new("it contains a control character", "write printable characters only"));
    }
    Ok(text)
}

/// A value that needs a unit: a bare number is answered with what to write instead.
fn with_unit<T>(item: &Item, example: &str, read: impl Fn(&str) -> Result<T, Refused>) -> Result<T, Refused> {
    match item.as_integer().map(|n| n.to_string()).or_else(|| item.as_float().map(|n| n.to_string())) {
        Some(number) => Err(Refused::new(
            format!("`{number}` has no unit"),
            format!("write a text with a unit, like `\"{number} {example}\"`"),
        )),
        None => read(text_of(item)?),
    }
}

impl Take for String {
    fn take(item: &Item) -> Result<Self, Refused> {
        match text_of(item)? {
            "" => Err(Refused::new("it is empty", "")),
            text => Ok(text.to_owned()),
        }
    }
    fn default_of(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn show(&self) -> Json {
        self.as_str().into()
    }
}

impl Take for Duration {
    fn take(item: &Item) -> Result<Self, Refused> {
        with_unit(item, "s", units::duration)
    }
    fn default_of(text: &str) -> Option<Self> {
        units::duration(text).ok()
    }
    fn show(&self) -> Json {
        units::duration_text(*self).into()
    }
}

impl Take for Size {
    fn take(item: &Item) -> Result<Self, Refused> {
        with_unit(item, "MiB", units::size)
    }
    fn default_of(text: &str) -> Option<Self> {
        units::size(text).ok()
    }
    fn show(&self) -> Json {
        units::size_text(*self).into()
    }
}

impl Take for Time {
    /// A TOML time or the same in quotes.
    fn take(item: &Item) -> Result<Self, Refused> {
        match item.as_datetime() {
            Some(time) => units::time(&time.to_string()),
            None => units::time(text_of(item)?),
        }
    }
    fn default_of(text: &str) -> Option<Self> {
        units::time(text).ok()
    }
    fn show(&self) -> Json {
        units::time_text(*self).into()
    }
}

impl Take for f64 {
    /// A finite number, also in quotes (`"1e6"`), as rates are often written.
    fn take(item: &Item) -> Result<Self, Refused> {
        let number = match (item.as_float(), item.as_integer()) {
            (Some(number), _) => number,
            (None, Some(number)) => number as f64,
            (None, None) => {
                let text = text_of(item)?;
                text.trim().parse().map_err(|_| Refused::new(format!("`{}` is not a number", shortened(text)), ""))?
            }
        };
        if number.is_finite() { Ok(number) } else { Err(Refused::new("it is not a finite number", "")) }
    }
    fn default_of(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> Json {
        (*self).into()
    }
}

impl Take for bool {
    fn take(item: &Item) -> Result<Self, Refused> {
        item.as_bool().ok_or_else(|| Refused::new(format!("expected `true` or `false`, found {}", noun(item)), ""))
    }
    fn default_of(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> Json {
        (*self).into()
    }
}

impl Take for i64 {
    /// A whole number, also in quotes: an item of a range is one.
    fn take(item: &Item) -> Result<Self, Refused> {
        let digits = |text: &&str| !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
        let quoted = item.as_str().filter(digits).and_then(|text| text.parse().ok());
        let refused = || Refused::new(format!("expected a whole number, found {}", noun(item)), "");
        quoted.or_else(|| item.as_integer()).ok_or_else(refused)
    }
    fn default_of(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> Json {
        (*self).into()
    }
}

impl Take for u64 {
    /// The same, not negative.
    fn take(item: &Item) -> Result<Self, Refused> {
        let number = i64::take(item)?;
        Self::try_from(number).map_err(|_| Refused::new(format!("`{number}` is negative"), ""))
    }
    fn default_of(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> Json {
        (*self).into()
    }
}

impl Take for Vec<String> {
    fn take(item: &Item) -> Result<Self, Refused> {
        let list = item.as_array().ok_or_else(|| {
            let hint = match item.as_str() {
                Some(text) => format!("write a list: `[\"{}\"]`", shortened(text)),
                None => "write a list, like `[\"detector\", \"monitor\"]`".to_owned(),
            };
            Refused::new(format!("expected a list, found {}", noun(item)), hint)
        })?;
        list.iter()
            .map(|value| {
                value.as_str().map(str::to_owned).ok_or_else(|| {
                    Refused::new("not every entry is a text", "write a list, like `[\"detector\", \"monitor\"]`")
                })
            })
            .collect()
    }
    fn default_of(_: &str) -> Option<Self> {
        None
    }
    fn show(&self) -> Json {
        self.as_slice().into()
    }
}

impl Take for Vec<u64> {
    fn take(item: &Item) -> Result<Self, Refused> {
        let refused = || Refused::new(format!("expected a list of whole numbers, found {}", noun(item)), "");
        let list = item.as_array().ok_or_else(refused)?;
        list.iter().map(|value| u64::take(&Item::Value(value.clone()))).collect()
    }
    fn default_of(_: &str) -> Option<Self> {
        None
    }
    fn show(&self) -> Json {
        self.as_slice().into()
    }
}

/// A value that is one of a few words.
pub trait Word: Copy + PartialEq + 'static {
    /// The words and what they mean.
    const ALL: &'static [(&'static str, Self)];

    /// The meaning of a word.
    #[must_use]
    fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
    }

    /// Its word.
    #[must_use]
    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// The error for a word that is not in the list.
#[must_use]
pub fn unknown_word<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Refused {
    let words: Vec<&str> = words.into_iter().collect();
    let hint = nearest(word, words.iter().copied()).map_or_else(
        || format!("write one of {}", words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    Refused::new(format!("unknown word `{}`", shortened(word)), hint)
}

impl<T: Word> Take for T {
    fn take(item: &Item) -> Result<Self, Refused> {
        let text = text_of(item)?;
        if let Some(value) = Self::of(text) {
            return Ok(value);
        }
        Err(unknown_word(text, Self::ALL.iter().map(|(word, _)| *word)))
    }
    fn default_of(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
    }
    fn show(&self) -> Json {
        Self::ALL.iter().find(|(_, value)| value == self).map_or(Json::Null, |(word, _)| (*word).into())
    }
}
