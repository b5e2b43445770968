//! What an instrument logs of its machine: a disk that writes nothing, and a clock that was set.

use crate::limits::{CLOCK_STEP_LOGGED, STALL, STALLS_LOOK};
use flow::Data;
use flow::runs::StreamView;
use std::collections::HashMap;
use std::time::Instant;

/// Streams whose messages are not written, and how the clocks differ.
#[derive(Default)]
pub(super) struct Stalls {
    looked: Option<Instant>,
    /// The wall clock less the clock that nobody sets, ns, at the last look.
    offset: Option<i64>,
    unwritten: HashMap<String, Unwritten>,
}

struct Unwritten {
    /// Messages below were written.
    safe: u64,
    since: Instant,
    is_logged: bool,
}

impl Stalls {
    /// Looks at the streams and the clock, if it is time to.
    pub(super) fn refresh(&mut self, data: &Data, views: impl Iterator<Item = StreamView>) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + STALLS_LOOK) {
            return;
        }
        self.looked = Some(now);
        self.see_clock(data.media.now().saturating_sub(data.media.clock()));
        self.see_streams(now, views);
    }

    fn see_clock(&mut self, offset: i64) {
        let Some(before) = self.offset.replace(offset) else { return };
        let step = offset.saturating_sub(before);
        if step.unsigned_abs() >= CLOCK_STEP_LOGGED {
            tracing::warn!(step_s = step as f64 / 1e9, "the clock of this machine was set");
        }
    }

    fn see_streams(&mut self, now: Instant, views: impl Iterator<Item = StreamView>) {
        for StreamView { name, marked, safe, .. } in views {
            let before = self.unwritten.get_mut(&name).filter(|before| !marked && before.safe == safe);
            match before {
                Some(stream) if !stream.is_logged && now - stream.since >= STALL => {
                    stream.is_logged = true;
                    let seconds = STALL.as_secs();
                    tracing::warn!(stream = name, safe, seconds, "the disk of a stream writes nothing");
                }
                Some(_) => {}
                None => {
                    let ended = self.unwritten.remove(&name).filter(|before| before.is_logged);
                    if let Some(before) = ended {
                        let seconds = (now - before.since).as_secs();
                        tracing::info!(stream = name, seconds, "the disk of a stream writes again");
                    }
                    if !marked {
                        self.unwritten.insert(name, Unwritten { safe, since: now, is_logged: false });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::lines_of;
    use std::time::Duration;

    #[test]
    fn a_disk_that_writes_nothing_is_logged_once_and_again_when_it_writes() {
        let begin = Instant::now();
        let mut stalls = Stalls::default();
        let mut look = |second: u64, safe: u64, marked: bool| {
            let view = StreamView { name: "s".into(), safe, marked, ..StreamView::default() };
            let lines = lines_of(false, || stalls.see_streams(begin + Duration::from_secs(second), [view].into_iter()));
            lines.into_iter().map(|line| line.split_once(' ').unwrap().1.trim().to_owned()).collect::<Vec<_>>()
        };
        assert!(look(0, 7, false).is_empty() && look(4, 8, false).is_empty() && look(8, 8, false).is_empty());
        assert_eq!(look(9, 8, false), ["WARN the disk of a stream writes nothing stream=\"s\" safe=8 seconds=5"]);
        assert!(look(20, 8, false).is_empty());
        assert_eq!(look(41, 9, false), ["INFO the disk of a stream writes again stream=\"s\" seconds=37"]);
        assert!(look(42, 9, true).is_empty() && look(60, 9, true).is_empty());
    }

    #[test]
    fn a_clock_that_was_set_is_logged_with_its_step() {
        let mut stalls = Stalls::default();
        let mut see = |offset: i64| lines_of(true, || stalls.see_clock(offset));
        assert!(see(5_000_000_000).is_empty() && see(5_000_100_000).is_empty());
        let event: serde_json::Value = serde_json::from_str(&see(-24_999_900_000)[0]).unwrap();
        assert_eq!(
            (&event["short_message"], &event["level"]),
            (&"the clock of this machine was set".into(), &4.into())
        );
        assert_eq!(event["_step_s"], -30.0);
        assert!(see(-24_999_900_000).is_empty());
    }
}
