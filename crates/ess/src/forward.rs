//! Commands to the forwarder: `fc00`, and its predecessor `rf5k`, change the set of streams that are forwarded.
//!
//! Whatever the bytes are, [`read_change`] returns. A stream of a command that is wrong is skipped and named; the
//! others of the command hold.

#[cfg(any(feature = "client", test))]
mod entries;
#[cfg(feature = "client")]
mod kept;
#[cfg(feature = "client")]
mod service;
#[cfg(any(feature = "client", test))]
mod status;
#[cfg(feature = "client")]
mod topics;

use crate::command::Mistake;
use crate::limits::{CHANNEL_BYTES_MAX, STREAMS_MAX};
use kafka::wrong_topic;
use settings::{Word, shortened};
use std::collections::BTreeSet;
use wire::fc00::{self, UpdateType};
use wire::rf5k;

#[cfg(feature = "client")]
pub(crate) use service::run;
pub use wire::fc00::Protocol;

/// What the values of a PV are sent as: the words of the ESS forwarder, and `ad00` and `un00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Schema {
    /// Values.
    F144,
    /// Values with their alarm, the predecessor of `f144`.
    F142,
    /// A table as an array of values in time.
    NttableSe00,
    /// The same, the predecessor of `se00`.
    NttableSenv,
    /// Times of a chopper.
    Tdct,
    /// Frames.
    Ad00,
    /// Alarms.
    Al00,
    /// Connections.
    Ep01,
    /// Units.
    Un00,
    /// Nothing but what is sent beside each stream.
    NoOp,
}

impl Word for Schema {
    const ALL: &'static [(&'static str, Self)] = &[
        ("f144", Self::F144),
        ("f142", Self::F142),
        ("nttable_se00", Self::NttableSe00),
        ("nttable_senv", Self::NttableSenv),
        ("tdct", Self::Tdct),
        ("ad00", Self::Ad00),
        ("al00", Self::Al00),
        ("ep01", Self::Ep01),
        ("un00", Self::Un00),
        ("no_op", Self::NoOp),
    ];
}

impl Schema {
    /// Channel Access has no structures.
    fn needs_structures(self) -> bool {
        matches!(self, Self::NttableSe00 | Self::NttableSenv | Self::Ad00)
    }
}

/// One stream that is forwarded. The order is that of PV and topic, so that those of one PV and topic are neighbours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// How the PV is reached.
    pub protocol: Protocol,
    /// The PV.
    pub channel: String,
    /// The topic.
    pub topic: String,
    /// Its schema.
    pub schema: Schema,
    /// Whether the last value is sent again.
    pub is_periodic: bool,
}

/// Chooses streams to be removed; a text that is empty matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Of the PV, with wildcards.
    pub channel: String,
    /// The schema, literally.
    pub schema: String,
    /// Of the topic, with wildcards.
    pub topic: String,
}

/// The change of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These streams are forwarded too.
    Add(Vec<Stream>),
    /// Streams that one of these matches are no longer forwarded.
    Remove(Vec<Pattern>),
    /// No stream is forwarded.
    RemoveAll,
    /// These streams are forwarded and no others.
    Replace(Vec<Stream>),
}

/// A stream in the words of a command.
struct Given<'a> {
    channel: &'a str,
    schema: &'a str,
    topic: &'a str,
    protocol: Protocol,
    is_periodic: bool,
}

/// Reads a command; with it what was skipped. `None`: a message of another schema, which is not for the forwarder.
///
/// # Errors
/// Why the message is no command.
pub fn read_change(payload: &[u8]) -> Result<Option<(Change, Vec<Mistake>)>, Mistake> {
    let Some((kind, streams)) = given(payload)? else { return Ok(None) };
    let mut skipped = Vec::new();
    let change = match kind {
        UpdateType::Add => Change::Add(valid(&streams, &mut skipped, Given::stream)),
        UpdateType::Replace => Change::Replace(valid(&streams, &mut skipped, Given::stream)),
        UpdateType::Remove => Change::Remove(valid(&streams, &mut skipped, Given::pattern)),
        UpdateType::RemoveAll => Change::RemoveAll,
    };
    Ok(Some((change, skipped)))
}

/// The streams of a command as they came. `None`: a message of another schema.
fn given(payload: &[u8]) -> Result<Option<(UpdateType, Vec<Given<'_>>)>, Mistake> {
    let damaged = |error: wire::Error| {
        Mistake::new("message", format!("it is damaged: {error}"), "send a valid FlatBuffers message")
    };
    Ok(Some(match wire::schema_id(payload) {
        Some(fc00::ID) => {
            let update = fc00::read(payload).map_err(damaged)?;
            let given = |&fc00::Stream { channel, schema, topic, protocol, periodic }| Given {
                channel,
                schema,
                topic,
                protocol,
                is_periodic: periodic != 0,
            };
            (update.config_change, update.streams.iter().map(given).collect())
        }
        Some(rf5k::ID) => {
            let update = rf5k::read(payload).map_err(damaged)?;
            let kind = match update.config_change {
                rf5k::UpdateType::Add => UpdateType::Add,
                rf5k::UpdateType::Remove => UpdateType::Remove,
                rf5k::UpdateType::RemoveAll => UpdateType::RemoveAll,
            };
            let given = |&rf5k::Stream { channel, schema, topic, protocol }| Given {
                channel,
                schema,
                topic,
                protocol,
                is_periodic: false,
            };
            (kind, update.streams.iter().map(given).collect())
        }
        _ => return Ok(None),
    }))
}

/// The streams that can be made; the mistakes of the others.
fn valid<'a, T>(
    streams: &[Given<'a>],
    skipped: &mut Vec<Mistake>,
    make: fn(&Given<'a>) -> Result<T, Mistake>,
) -> Vec<T> {
    let mut made = Vec::new();
    for (at, stream) in streams.iter().enumerate() {
        match make(stream) {
            Ok(one) => made.push(one),
            Err(mistake) => skipped.push(mistake_of(stream, at, mistake)),
        }
    }
    made
}

/// The mistake of stream `at` of a command.
fn mistake_of(stream: &Given<'_>, at: usize, Mistake { pointer, what, hint }: Mistake) -> Mistake {
    let what = if stream.channel.is_empty() { what } else { format!("`{}`: {what}", shortened(stream.channel)) };
    Mistake { pointer: format!("streams/{at}/{pointer}"), what, hint }
}

/// Why a name cannot be that of a PV: that of the source, and a name with wildcards could not be removed alone.
fn wrong_channel(channel: &str) -> Option<Mistake> {
    let life = channel.rsplit_once('#').map(|(_, number)| number);
    let cause = if channel.is_empty() {
        "it is empty".to_owned()
    } else if channel.len() > CHANNEL_BYTES_MAX {
        format!("it has more than {CHANNEL_BYTES_MAX} bytes")
    } else if channel.chars().any(|c| c.is_control() || c.is_whitespace() || ['*', '?'].contains(&c)) {
        "it has a space, a control character or a wildcard".to_owned()
    } else if life.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit())) {
        "it ends in `#` and a number".to_owned()
    } else {
        return None;
    };
    Some(Mistake::new("channel", cause, "write the name of a PV"))
}

impl Given<'_> {
    fn stream(&self) -> Result<Stream, Mistake> {
        if let Some(mistake) = wrong_channel(self.channel) {
            return Err(mistake);
        }
        if self.topic.is_empty() {
            return Err(Mistake::new("topic", "it is empty", "name the topic of the stream"));
        }
        if let Some(refused) = wrong_topic(self.topic) {
            return Err(Mistake::new("topic", refused.cause, refused.hint));
        }
        let is_ca = self.protocol == Protocol::Ca;
        let known = Schema::of(self.schema).filter(|schema| !(is_ca && schema.needs_structures()));
        let schema = known.ok_or_else(|| {
            let words = Schema::ALL.iter().filter(|(_, schema)| !(is_ca && schema.needs_structures()));
            let refused = settings::unknown_word(self.schema, words.map(|(word, _)| *word));
            Mistake::new("schema", refused.cause, refused.hint)
        })?;
        Ok(Stream {
            protocol: self.protocol,
            channel: self.channel.to_owned(),
            topic: self.topic.to_owned(),
            schema,
            is_periodic: self.is_periodic,
        })
    }

    fn pattern(&self) -> Result<Pattern, Mistake> {
        if [self.channel, self.schema, self.topic].iter().all(|text| text.is_empty()) {
            let what = "channel, schema and topic are empty";
            return Err(Mistake::new("channel", what, "name one of them, or send REMOVEALL"));
        }
        let [channel, schema, topic] = [self.channel, self.schema, self.topic].map(str::to_owned);
        Ok(Pattern { channel, schema, topic })
    }
}

/// A stream of the storage topic that is not forwarded here, because of its name or schema, as it came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Foreign {
    /// How the PV is reached.
    pub protocol: Protocol,
    /// The PV.
    pub channel: String,
    /// The topic.
    pub topic: String,
    /// Its schema.
    pub schema: String,
    /// Whether the last value is sent again.
    pub is_periodic: bool,
}

/// The list of streams, each once. Commands alone change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Those that are forwarded while their topics exist.
    pub forwarded: BTreeSet<Stream>,
    /// Those of another forwarder: they stay in the storage topic until a command removes them.
    pub foreign: BTreeSet<Foreign>,
}

impl Streams {
    /// Applies a command. Streams beyond the most are skipped and named.
    pub fn apply(&mut self, change: Change) -> Vec<Mistake> {
        let added = match change {
            Change::RemoveAll => {
                *self = Self::default();
                return Vec::new();
            }
            Change::Remove(patterns) => {
                let patterns: Vec<_> = patterns.iter().map(Matcher::new).collect();
                let stays = |channel: &str, schema: &str, topic: &str| {
                    !patterns.iter().any(|pattern| pattern.matches(channel, schema, topic))
                };
                self.forwarded.retain(|one| stays(&one.channel, one.schema.word(), &one.topic));
                self.foreign.retain(|one| stays(&one.channel, &one.schema, &one.topic));
                return Vec::new();
            }
            Change::Add(streams) => streams,
            Change::Replace(streams) => {
                *self = Self::default();
                streams
            }
        };
        let mut skipped = Vec::new();
        for stream in added {
            if self.has_room() || self.forwarded.contains(&stream) {
                self.forwarded.insert(stream);
            } else {
                skipped.push(beyond(&stream.channel));
            }
        }
        skipped
    }

    fn has_room(&self) -> bool {
        self.forwarded.len() < STREAMS_MAX
    }

    /// All streams, in the words of a command.
    fn rows(&self) -> impl Iterator<Item = Given<'_>> {
        let forwarded = self.forwarded.iter().map(|stream| Given {
            channel: &stream.channel,
            schema: stream.schema.word(),
            topic: &stream.topic,
            protocol: stream.protocol,
            is_periodic: stream.is_periodic,
        });
        forwarded.chain(self.foreign.iter().map(|stream| Given {
            channel: &stream.channel,
            schema: &stream.schema,
            topic: &stream.topic,
            protocol: stream.protocol,
            is_periodic: stream.is_periodic,
        }))
    }

    /// The message of the storage topic: an `fc00` that adds all, or removes all where there is none.
    #[must_use]
    pub fn stored(&self) -> Vec<u8> {
        let row = |Given { channel, schema, topic, protocol, is_periodic }| fc00::Stream {
            channel,
            schema,
            topic,
            protocol,
            periodic: i32::from(is_periodic),
        };
        let streams: Vec<fc00::Stream<'_>> = self.rows().map(row).collect();
        let config_change = if streams.is_empty() { UpdateType::RemoveAll } else { UpdateType::Add };
        let mut out = Vec::new();
        // Texts of these lengths always fit.
        let _ = fc00::write(&mut out, &fc00::ConfigUpdate { config_change, streams: (&streams).into() });
        out
    }

    /// The streams of a message of the storage topic, and why some are not forwarded. `None`: it is not one of them.
    #[must_use]
    pub fn of_stored(payload: &[u8]) -> Option<(Self, Vec<Mistake>)> {
        let (kind, rows) = given(payload).ok()??;
        if kind == UpdateType::Remove {
            return None;
        }
        let (mut streams, mut skipped) = (Self::default(), Vec::new());
        for (at, row) in rows.iter().enumerate().filter(|_| kind != UpdateType::RemoveAll) {
            if let Some(mistake) = streams.add(row) {
                skipped.push(mistake_of(row, at, mistake));
            }
        }
        Some((streams, skipped))
    }

    /// Adds a stream that was stored, and says why it is not forwarded.
    fn add(&mut self, row: &Given<'_>) -> Option<Mistake> {
        let mistake = match row.stream() {
            Ok(stream) if self.has_room() => {
                self.forwarded.insert(stream);
                return None;
            }
            Ok(stream) => beyond(&stream.channel),
            Err(mistake) => mistake,
        };
        self.foreign.insert(Foreign {
            protocol: row.protocol,
            channel: row.channel.to_owned(),
            topic: row.topic.to_owned(),
            schema: row.schema.to_owned(),
            is_periodic: row.is_periodic,
        });
        Some(mistake)
    }
}

/// The mistake of a stream for which there is no room.
fn beyond(channel: &str) -> Mistake {
    let what = format!("`{}` is one more than {STREAMS_MAX} streams", shortened(channel));
    Mistake::new("streams", what, "remove others before")
}

/// A pattern that was read once, for many streams.
struct Matcher<'a> {
    channel: Vec<Token>,
    topic: Vec<Token>,
    schema: &'a str,
}

impl<'a> Matcher<'a> {
    fn new(pattern: &'a Pattern) -> Self {
        let of = |text: &str| if text.is_empty() { vec![Token::Star] } else { tokens(text) };
        Self { channel: of(&pattern.channel), topic: of(&pattern.topic), schema: &pattern.schema }
    }

    fn matches(&self, channel: &str, schema: &str, topic: &str) -> bool {
        (self.schema.is_empty() || self.schema == schema)
            && matches(&self.channel, channel)
            && matches(&self.topic, topic)
    }
}

/// Part of a pattern as Python's `fnmatch` reads it.
enum Token {
    /// Any characters.
    Star,
    /// One character.
    Any,
    One(char),
    /// One character in these ranges, or in none of them.
    Set(Vec<(char, char)>, bool),
}

fn tokens(pattern: &str) -> Vec<Token> {
    let letters: Vec<char> = pattern.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(letter) = letters.get(at) {
        at += 1;
        tokens.push(match letter {
            '*' => Token::Star,
            '?' => Token::Any,
            '[' => match set(&letters[at..]) {
                Some((token, len)) => {
                    at += len;
                    token
                }
                None => Token::One('['),
            },
            other => Token::One(*other),
        });
    }
    tokens
}

/// A set behind its `[`, and how many characters it has with its `]`; none where that is missing.
fn set(letters: &[char]) -> Option<(Token, usize)> {
    let is_not = letters.first() == Some(&'!');
    let begin = usize::from(is_not);
    // A `]` at the very beginning is one of the characters.
    let end = begin + 1 + letters.get(begin + 1..)?.iter().position(|letter| *letter == ']')?;
    let (mut ranges, mut rest) = (Vec::new(), &letters[begin..end]);
    while let Some((first, tail)) = rest.split_first() {
        match tail {
            ['-', last, tail @ ..] => {
                ranges.push((*first, *last));
                rest = tail;
            }
            _ => {
                ranges.push((*first, *first));
                rest = tail;
            }
        }
    }
    Some((Token::Set(ranges, is_not), end + 1))
}

/// Whether a text has the form of a pattern, in at most as many steps as both have characters, multiplied.
fn matches(pattern: &[Token], text: &str) -> bool {
    let is_one = |token: &Token, letter: char| match token {
        Token::Star => false,
        Token::Any => true,
        Token::One(one) => *one == letter,
        Token::Set(ranges, is_not) => ranges.iter().any(|(a, b)| (*a..=*b).contains(&letter)) != *is_not,
    };
    let mut rest = text.chars();
    let mut at = 0;
    // Behind the newest star, and the text that it has not taken.
    let mut star = None;
    loop {
        if let Some(Token::Star) = pattern.get(at) {
            at += 1;
            star = Some((at, rest.clone()));
            continue;
        }
        let mut ahead = rest.clone();
        match (pattern.get(at), ahead.next()) {
            (None, None) => return true,
            (Some(token), Some(letter)) if is_one(token, letter) => {
                at += 1;
                rest = ahead;
            }
            _ => match &mut star {
                Some((behind, taken)) => {
                    // The star takes one more.
                    if taken.next().is_none() {
                        return false;
                    }
                    at = *behind;
                    rest = taken.clone();
                }
                None => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests;
