//! The log: events on stderr, one a line, as text or as JSON with the fields of GELF 1.1 (Graylog, journald).
//!
//! `BEAMPORT_LOG` has words with commas between: `json` or `text`, and `error`, `warn`, `info` or `debug`. An event has
//! a short sentence that stays the same, and fields. Lines of child processes are events too.
//!
//! Failure behaviour: a place in the code writes at most [`LOG_LINES_MAX`] lines in [`LOG_WINDOW`], and says later how
//! many it left out. A log that cannot be written stops nothing.

use crate::limits::{LOG_LINES_MAX, LOG_WINDOW};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, callsite};
use tracing_subscriber::fmt::format::{DefaultFields, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::time::FormatTime as _;
use tracing_subscriber::fmt::{FmtContext, format, time};
use tracing_subscriber::registry::LookupSpan;

/// Names the form of the log, and how much there is.
const VARIABLE: &str = "BEAMPORT_LOG";

/// Whether events are JSON; unset as long as there is no log.
static IS_JSON: OnceLock<bool> = OnceLock::new();

/// The settings in `BEAMPORT_LOG`.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    is_json: bool,
    level: LevelFilter,
}

impl Wanted {
    /// # Errors
    /// A word that is neither a form nor a level.
    fn read(text: &str, level: LevelFilter) -> Result<Self, String> {
        let mut wanted = Self { is_json: false, level };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "json" => wanted.is_json = true,
                "text" => wanted.is_json = false,
                "error" | "warn" | "info" | "debug" => wanted.level = word.parse().unwrap_or(level),
                other => return Err(other.to_owned()),
            }
        }
        Ok(wanted)
    }
}

/// Begins the log of this process. `level`: what is logged where `BEAMPORT_LOG` says nothing of it; `file`: instead of
/// stderr.
pub(crate) fn begin(level: LevelFilter, file: Option<File>) {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    let (wanted, wrong) = match Wanted::read(&text, level) {
        Ok(wanted) => (wanted, None),
        Err(word) => (Wanted { is_json: false, level }, Some(word)),
    };
    let is_json = *IS_JSON.get_or_init(|| wanted.is_json);
    let colours = file.is_none()
        && !is_json
        && io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt().with_max_level(wanted.level).with_ansi(colours).log_internal_errors(false);
    let log = log.event_format(Lines::new(is_json));
    // A log that cannot be written is no reason to stop.
    let _ = match file {
        Some(file) => log.with_writer(Mutex::new(file)).try_init(),
        None => log.with_writer(io::stderr).try_init(),
    };
    if is_json {
        store::printed::shape_lines(of_child);
        std::panic::set_hook(Box::new(|panic| tracing::error!("panic: {panic}")));
    }
    if let Some(word) = wrong {
        tracing::warn!("`{VARIABLE}` has the word `{word}`, which is none of json, text, error, warn, info, debug");
    }
}

/// What is logged of an instrument: a person at a terminal sees the line that moves, a service has a log.
pub(crate) fn level_of_service() -> LevelFilter {
    if io::stderr().is_terminal() { LevelFilter::WARN } else { LevelFilter::INFO }
}

/// Prints what is wrong for a person: as it is, or as an event where events are JSON.
pub(crate) fn print_warning(text: impl fmt::Display) {
    match IS_JSON.get() {
        Some(true) => tracing::warn!("{text}"),
        _ => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Prints what is not wrong in the same way.
pub(crate) fn print_notice(text: impl fmt::Display) {
    match IS_JSON.get() {
        Some(true) => tracing::info!("{text}"),
        _ => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// A line of a child process as an event; one that is an event already stays as it is.
fn of_child(name: &str, line: &[u8]) -> Vec<u8> {
    let line = String::from_utf8_lossy(line);
    let mut event = match serde_json::from_str(&line) {
        Ok(Value::Object(event)) if event.contains_key("short_message") => event,
        _ => {
            let words = [("ERROR ", Level::ERROR), ("WARN ", Level::WARN), ("INFO ", Level::INFO)];
            let text = line.trim_start();
            let found = words.into_iter().find_map(|(word, level)| Some((text.strip_prefix(word)?, level)));
            let (text, level) = found.unwrap_or((&line, Level::INFO));
            gelf(level, text)
        }
    };
    event.entry("_process").or_insert_with(|| name.into());
    format!("{}\n", Value::Object(event)).into_bytes()
}

/// The members that an event of GELF has in any case.
fn gelf(level: Level, text: &str) -> Map<String, Value> {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "-".into(), |name| name.trim().to_owned())
    });
    // Numbers of syslog.
    let number = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = (time.as_secs_f64() * 1e6).round() / 1e6;
    let short = text.lines().next().unwrap_or_default();
    let mut event = Map::new();
    event.insert("version".into(), "1.1".into());
    event.insert("host".into(), host.as_str().into());
    event.insert("short_message".into(), short.into());
    event.insert("timestamp".into(), timestamp.into());
    event.insert("level".into(), number.into());
    if short.len() < text.len() {
        event.insert("full_message".into(), text.into());
    }
    event
}

/// Collects the text and the fields of an event: GELF has strings and numbers, and a name begins with `_`.
#[derive(Default)]
struct Collected {
    text: String,
    fields: Map<String, Value>,
}

impl Collected {
    fn put(&mut self, field: &Field, value: Value) {
        self.fields.insert(format!("_{}", field.name()), value);
    }
}

impl Visit for Collected {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}").into()),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.text = value.into(),
            _ => self.put(field, value.into()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

/// Makes the line of an event.
struct Lines {
    is_json: bool,
    text: tracing_subscriber::fmt::format::Format<Full, time::SystemTime>,
    sites: Sites,
}

impl Lines {
    fn new(is_json: bool) -> Self {
        Self { is_json, text: format().with_target(false), sites: Sites::default() }
    }

    /// A line without an event of its own.
    fn line(&self, writer: &mut Writer<'_>, level: Level, text: &str) -> fmt::Result {
        if self.is_json {
            return writeln!(writer, "{}", Value::Object(gelf(level, text)));
        }
        time::SystemTime.format_time(writer)?;
        writeln!(writer, " {level:>5} {text}")
    }
}

impl<S> FormatEvent<S, DefaultFields> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    DefaultFields: for<'a> FormatFields<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(left_out) = self.sites.admit(event.metadata(), Instant::now()) else { return Ok(()) };
        let level = *event.metadata().level();
        if left_out > 0 {
            self.line(&mut writer, level, &format!("{left_out} lines like the next one were left out"))?;
        }
        if !self.is_json {
            return self.text.format_event(context, writer, event);
        }
        let mut collected = Collected::default();
        event.record(&mut collected);
        let mut members = gelf(level, &collected.text);
        members.extend(collected.fields);
        writeln!(writer, "{}", Value::Object(members))
    }
}

/// How many lines each place in the code has written lately.
#[derive(Default)]
struct Sites(Mutex<HashMap<callsite::Identifier, Site>>);

struct Site {
    since: Instant,
    lines: u64,
    left_out: u64,
}

impl Sites {
    /// Whether a place may write a line now: how many it has left out before.
    fn admit(&self, of: &Metadata<'_>, now: Instant) -> Option<u64> {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let site = sites.entry(of.callsite()).or_insert(Site { since: now, lines: 0, left_out: 0 });
        let mut left_out = 0;
        if now.saturating_duration_since(site.since) >= LOG_WINDOW {
            left_out = std::mem::take(&mut site.left_out);
            (site.since, site.lines) = (now, 0);
        }
        site.lines += 1;
        if site.lines > LOG_LINES_MAX {
            site.left_out += 1;
            return None;
        }
        Some(left_out)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Buffer {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// The lines of the events that `work` logs.
    pub(crate) fn lines_of(is_json: bool, work: impl FnOnce()) -> Vec<String> {
        let buffer = Buffer::default();
        let log = tracing_subscriber::fmt().with_writer(buffer.clone()).with_ansi(false);
        tracing::subscriber::with_default(log.event_format(Lines::new(is_json)).finish(), work);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn words_of_the_variable_are_a_form_and_a_level() {
        let read = |text: &str| Wanted::read(text, LevelFilter::WARN);
        assert_eq!(read(""), Ok(Wanted { is_json: false, level: LevelFilter::WARN }));
        assert_eq!(read("json, debug"), Ok(Wanted { is_json: true, level: LevelFilter::DEBUG }));
        assert_eq!(read("info,text"), Ok(Wanted { is_json: false, level: LevelFilter::INFO }));
        assert_eq!(read("json,loud"), Err("loud".into()));
    }

    #[test]
    fn an_event_is_a_line_of_gelf() {
        let lines = lines_of(true, || {
            tracing::warn!(run = "1", lost = 3_u64, ratio = 0.5, whole = true, "run is done");
            tracing::error!("cannot write\n  cause: no space\n  hint: remove \"files\"");
        });
        let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events.len(), 2);
        let first = &events[0];
        assert_eq!((&first["version"], &first["level"]), (&json!("1.1"), &json!(4)));
        assert_eq!((&first["short_message"], first.get("full_message")), (&json!("run is done"), None));
        assert_eq!((&first["_run"], &first["_lost"], &first["_ratio"]), (&json!("1"), &json!(3), &json!(0.5)));
        assert_eq!(first["_whole"], json!("true"));
        assert!(first["timestamp"].as_f64().unwrap() > 1.7e9 && !first["host"].as_str().unwrap().is_empty());
        assert_eq!((&events[1]["short_message"], &events[1]["level"]), (&json!("cannot write"), &json!(3)));
        assert!(events[1]["full_message"].as_str().unwrap().ends_with("\"files\""));
    }

    #[test]
    fn a_line_of_a_child_is_an_event_of_its_level() {
        let event = |line: &[u8]| serde_json::from_slice::<Value>(&of_child("web", line)).unwrap();
        let warned = event(b" WARN x.nxs: no space");
        assert_eq!((&warned["short_message"], &warned["level"]), (&json!("x.nxs: no space"), &json!(4)));
        assert_eq!(warned["_process"], "web");
        assert_eq!(event(b"\xff said")["short_message"], "\u{fffd} said");
        let whole = of_child("web", &of_child("slot 1", b"said"));
        assert_eq!(serde_json::from_slice::<Value>(&whole).unwrap()["_process"], "slot 1");
    }

    #[test]
    fn a_place_without_an_end_of_lines_is_limited_and_no_other() {
        let lines = lines_of(false, || {
            for n in 0..3 * LOG_LINES_MAX {
                tracing::warn!("stream {n}");
            }
            tracing::warn!("another place");
        });
        assert_eq!(lines.len() as u64, LOG_LINES_MAX + 1);
        assert!(lines.last().unwrap().ends_with("WARN another place"));
    }

    #[test]
    fn what_was_left_out_is_counted() {
        static SITE: OnceLock<&'static Metadata<'static>> = OnceLock::new();
        let sites = Sites::default();
        struct SiteLayer;
        impl tracing_subscriber::Layer<tracing_subscriber::Registry> for SiteLayer {
            fn on_event(
                &self,
                event: &Event<'_>,
                _: tracing_subscriber::layer::Context<'_, tracing_subscriber::Registry>,
            ) {
                let _ = SITE.set(event.metadata());
            }
        }
        use tracing_subscriber::layer::SubscriberExt as _;
        tracing::subscriber::with_default(tracing_subscriber::registry().with(SiteLayer), || tracing::warn!("x"));
        let site = SITE.get().unwrap();
        let begin = Instant::now();
        let admitted = (0..LOG_LINES_MAX + 5).filter(|_| sites.admit(site, begin).is_some()).count();
        assert_eq!(admitted as u64, LOG_LINES_MAX);
        assert_eq!(sites.admit(site, begin + LOG_WINDOW), Some(5));
        assert_eq!(sites.admit(site, begin + LOG_WINDOW), Some(0));
    }
}
