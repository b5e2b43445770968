//! `beamport hosts`: the hosts of an instrument, by their beats on the bulletin. It works on every machine that reaches
//! the carrier.

use super::{Answer, Verb, ended, json_line};
use crate::arguments::Form;
use crate::beats;
use crate::edges::Registry;
use crate::figures::{moment, thousands};
use crate::file;
use crate::limits::AWAY;
use crate::mover::template_check;
use clap::Args;
use flow::Fault;
use flow::edge::{Bulletin, Post};
use serde_json::{Value, json};
use settings::shortened;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// `beamport hosts`
#[derive(Debug, Args)]
#[command(
    about = "List the hosts of an instrument: up or away since when, streams, lag, loss, difference of clocks",
    after_help = "Examples:\n  beamport hosts greta.toml\n  beamport hosts greta.toml --json"
)]
pub struct Hosts {
    /// The instrument file
    pub file: PathBuf,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

impl Verb for Hosts {
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
        ended(listed(self, registry, out, err), err)
    }
}

/// The newest beat of a host.
struct Beat {
    beat: Value,
    /// When the carrier got it, by its clock, ns since 1970 UTC.
    time: i64,
    /// It came while this program listened.
    is_live: bool,
}

fn listed(asked: &Hosts, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> Answer {
    let instrument = match file::read(&asked.file, registry, &template_check) {
        Ok(instrument) => instrument,
        Err(mistakes) => {
            for mistake in &mistakes {
                writeln!(err, "{mistake}")?;
            }
            return Ok(ExitCode::from(2));
        }
    };
    let Some(hosts) = &instrument.hosts else {
        let what = format!("{} has no hosts", asked.file.display());
        return Err(Fault::new(what, "it has no section `[hosts]`").hint("see the page on several machines").into());
    };
    let names: Vec<&str> = hosts.all.iter().map(|host| host.name.as_str()).collect();
    let mut bulletin = hosts.carrier.bulletin(&instrument.name, None)?;
    let beats = heard(bulletin.as_mut(), &names)?;
    let rows: Vec<Value> = names.iter().map(|name| row(name, &beats, &instrument.sha256)).collect();
    for row in &rows {
        match asked.form.json {
            true => json_line(out, row)?,
            false => write!(out, "{}", text(row))?,
        }
    }
    let is_whole = rows.iter().all(|row| row["state"] == "up" && row["same_file"] == true && row["lost"] == 0);
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// Listens until every host has given a sign, or for as long as one that gives none is away.
fn heard(bulletin: &mut dyn Bulletin, names: &[&str]) -> Result<BTreeMap<String, Beat>, Fault> {
    let mut beats: BTreeMap<String, Beat> = BTreeMap::new();
    let (begun, mut is_caught_up) = (Instant::now(), false);
    while begun.elapsed() < AWAY && !names.iter().all(|name| beats.get(*name).is_some_and(|beat| beat.is_live)) {
        let posts = bulletin.read(Duration::from_millis(200))?;
        // Old beats come first, as fast as they can be read; then there is a pause, until the next beat of a host.
        is_caught_up |= posts.is_empty();
        for Post { key, text, time } in posts {
            let Some(host) = key.strip_prefix("beat/") else { continue };
            let Ok(beat) = serde_json::from_str::<Value>(&text) else { continue };
            let is_live = is_caught_up && beat["ended"] != true;
            beats.insert(host.to_owned(), Beat { beat, time, is_live });
        }
    }
    Ok(beats)
}

/// The row of a host.
fn row(name: &str, beats: &BTreeMap<String, Beat>, file: &str) -> Value {
    let Some(Beat { beat, time, is_live }) = beats.get(name) else {
        return json!({"host": name, "state": "unknown"});
    };
    let streams = beat["streams"].as_object().into_iter().flatten();
    let since = if *is_live { beat["since"].as_i64().unwrap_or(*time) } else { *time };
    json!({
        "host": name,
        "state": beats::state(*is_live, beat),
        "since": since,
        "pid": beat["pid"],
        "boot": beat["boot"],
        "version": beat["version"],
        "same_file": beat["file"] == *file,
        "streams": streams.map(|(stream, _)| stream).collect::<Vec<_>>(),
        "mirrors": beats::mirrors(beat, |host| beats.get(host).map(|near| &near.beat)),
        "workers": beat["workers"],
        "lost": beat["lost"],
        "clock_ns": beat["time"].as_i64().map(|own| own.saturating_sub(*time)),
        "troubles": beat["troubles"],
    })
}

/// A host as lines: its state, and its mirrors and troubles below.
fn text(row: &Value) -> String {
    let word = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
    let Some(since) = row["since"].as_i64() else {
        return format!("{:<12} has not started yet\n", word("host"));
    };
    let list = |key: &str| row[key].as_array().cloned().unwrap_or_default();
    let names = |key: &str| {
        let names: Vec<String> = list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let clock = row["clock_ns"].as_i64().unwrap_or(0) as f64 / 1e9;
    let mut lines = format!(
        "{:<12} {:<5} since {}   beamport {}   sends {}   {} lost   clock {clock:+.3} s\n",
        word("host"),
        word("state"),
        moment(since),
        word("version"),
        names("streams"),
        thousands(row["lost"].as_u64().unwrap_or(0)),
    );
    for mirror in list("mirrors") {
        let lag = mirror["lag"].as_u64().map_or_else(|| "unknown".to_owned(), thousands);
        let (stream, of) = (mirror["stream"].as_str().unwrap_or("-"), mirror["of"].as_str().unwrap_or("-"));
        lines += &format!("{:<12}   mirrors {stream} of {of}, {lag} messages behind\n", "");
    }
    for (worker, state) in row["workers"].as_object().into_iter().flatten() {
        let number = |name: &str| thousands(state["numbers"][name].as_u64().unwrap_or(0));
        lines += &format!(
            "{:<12}   worker {}: {} of {} slots, {} messages, {} aside, {} restarts\n",
            "",
            shortened(worker),
            number("living"),
            number("slots"),
            number("messages"),
            number("aside"),
            number("restarts"),
        );
    }
    if row["same_file"] == false {
        lines += &format!("{:<12}   runs another instrument file\n", "");
    }
    for trouble in list("troubles") {
        lines += &format!("{:<12}   ! {}\n", "", trouble.as_str().unwrap_or("-"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    struct Sheets(VecDeque<Vec<Post>>);

    impl Bulletin for Sheets {
        fn post(&mut self, _: &[(String, String)]) -> Result<flow::edge::Posted, Fault> {
            Ok(flow::edge::Posted::Kept)
        }

        fn read(&mut self, _: Duration) -> Result<Vec<Post>, Fault> {
            Ok(self.0.pop_front().unwrap_or_default())
        }
    }

    #[test]
    fn a_host_is_up_that_gives_a_sign_now_and_away_since_its_last_one() {
        let beat = |host: &str, time: i64, more: Value| {
            let mut text = json!({"since": 1_000_000_000, "time": time + 20_000_000, "file": "f", "version": "0.1",
                                  "lost": 2, "streams": {}, "mirrors": {}});
            text.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Post { key: format!("beat/{host}"), text: text.to_string(), time }
        };
        let numbers = json!({"slots": 2, "living": 1, "messages": 1200, "restarts": 3});
        let near = json!({"streams": {"x": {"next": 110}}, "workers": {"w": {"numbers": numbers}}});
        let far = json!({"mirrors": {"x": {"host": "a", "next": 100}}, "troubles": ["no room"]});
        let old = vec![
            beat("a", 2_000_000_000, near.clone()),
            beat("b", 3_000_000_000, far.clone()),
            beat("c", 4_000_000_000, json!({"ended": true})),
            Post { key: "account/1/a".into(), text: "{}".into(), time: 0 },
            Post { key: "beat/d".into(), text: "no json".into(), time: 0 },
        ];
        let mut sheets = Sheets([old, vec![], vec![beat("a", 9_000_000_000, near)]].into());
        let beats = heard(&mut sheets, &["a"]).unwrap();
        let text: String = ["a", "b", "c", "d"].iter().map(|name| text(&row(name, &beats, "f"))).collect();
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "a up since 1970-01-01T00:00:01.000Z beamport 0.1 sends x 2 lost clock +0.020 s",
                "worker w: 1 of 2 slots, 1,200 messages, 0 aside, 3 restarts",
                "b away since 1970-01-01T00:00:03.000Z beamport 0.1 sends nothing 2 lost clock +0.020 s",
                "mirrors x of a, 10 messages behind",
                "! no room",
                "c ended since 1970-01-01T00:00:04.000Z beamport 0.1 sends nothing 2 lost clock +0.020 s",
                "d has not started yet",
            ]
        );
        assert_eq!(row("a", &beats, "g")["same_file"], false);
    }
}
