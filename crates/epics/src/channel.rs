//! One PV of a source: what is known of it, and whether an update says something new.

use crate::entry::{Entry, Protocol, Schema};
use crate::limits::{AGE_MAX, AHEAD_MAX, REPEAT_BYTES_MAX, RETRY_PAUSE};
use crate::section::Plan;
use crate::value::Update;
use wire::ep01::ConnectionInfo;

/// What is sent of a PV.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    pub(crate) values: bool,
    pub(crate) alarms: bool,
    pub(crate) connections: bool,
    pub(crate) units: bool,
    /// Pause of repeats, ns; 0 for none.
    pub(crate) repeat: i64,
}

/// A kind of message that is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Connection = 0,
    Units = 1,
    Alarm = 2,
    Value = 3,
}

impl Role {
    pub(crate) const ALL: [Self; 4] = [Self::Connection, Self::Units, Self::Alarm, Self::Value];
}

/// A message that is kept to be sent again; without bytes there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) schema: [u8; 4],
    pub(crate) time: i64,
    pub(crate) bytes: Vec<u8>,
}

/// How an update relates to what the stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    New,
    /// The first of a connection, which the stream has.
    Known,
    /// A frame with a time that cannot be: it is stored with the time of its arrival.
    Untimed,
    /// It is left out, for this reason.
    Skipped(&'static str),
}

/// One PV.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) entry: Entry,
    pub(crate) wants: Wants,
    /// Of its subscription.
    pub(crate) id: u64,
    /// The origin of its values.
    pub(crate) origin: usize,
    /// The origin of all else.
    pub(crate) beside: usize,
    pub(crate) link: ConnectionInfo,
    /// Since when.
    pub(crate) since: i64,
    /// When it is subscribed again, where its server ended the subscription.
    pub(crate) retry: Option<i64>,
    /// The connection that was sent last.
    pub(crate) said: ConnectionInfo,
    /// The time of the newest value, where one is known.
    pub(crate) time: Option<i64>,
    /// The time of the newest message of the origin in the stream at the start.
    resumed: Option<i64>,
    /// No update of this connection has come.
    pub(crate) is_fresh: bool,
    alarm: Option<(i16, Vec<u8>)>,
    units: Option<Vec<u8>>,
    /// The connection changed since the last frame.
    pub(crate) is_cut: bool,
    /// Frames overwritten in the client's queue that no filed hole explains yet.
    pub(crate) overwritten: u64,
    /// How often the server has reported that it overwrote frames, and how often when holes were filed last.
    pub(crate) overruns: (u64, u64),
    /// The same of all time, and frames that are missing.
    pub(crate) lost: u64,
    pub(crate) squashed: u64,
    /// Frames whose time could not be.
    pub(crate) untimed: u64,
    /// Such a time, ns since 1970 UTC, if the newest frame has one.
    pub(crate) wrong_time: Option<i64>,
    kept: Option<Box<[Kept; 4]>>,
    /// When the next repeat is due.
    pub(crate) due: i64,
    /// Why nothing of it is stored.
    pub(crate) trouble: Option<String>,
}

impl Channel {
    /// `time`: of its newest value; `resumed`: of the newest message of its origin.
    pub(crate) fn new(entry: Entry, plan: &Plan, now: i64) -> Self {
        let repeat = plan.repeat.filter(|_| entry.repeat.unwrap_or(true));
        let wants = Wants {
            values: entry.identity.schema != Schema::None,
            alarms: entry.alarms.unwrap_or(plan.alarms),
            connections: entry.connections.unwrap_or(plan.connections),
            units: entry.units.unwrap_or(plan.units),
            repeat: repeat.map_or(0, |pause| i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX)),
        };
        Self {
            entry,
            wants,
            id: 0,
            origin: 0,
            beside: 0,
            link: ConnectionInfo::NeverConnected,
            since: now,
            retry: None,
            said: ConnectionInfo::Unknown,
            time: None,
            resumed: None,
            is_fresh: true,
            alarm: None,
            units: None,
            is_cut: true,
            overwritten: 0,
            overruns: (0, 0),
            lost: 0,
            squashed: 0,
            untimed: 0,
            wrong_time: None,
            kept: (wants.repeat > 0).then(Box::default),
            due: i64::MAX,
            trouble: None,
        }
    }

    /// Goes on where the stream stands.
    pub(crate) fn resume(&mut self, time: Option<i64>, newest: Option<i64>) {
        (self.time, self.resumed) = (time, newest);
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link == ConnectionInfo::Connected
    }

    pub(crate) fn is_fake(&self) -> bool {
        self.entry.identity.protocol == Protocol::Fake
    }

    pub(crate) fn set_link(&mut self, link: ConnectionInfo, now: i64) {
        if link == ConnectionInfo::Connected {
            self.is_fresh = true;
        }
        let is_over = matches!(link, ConnectionInfo::RemoteError | ConnectionInfo::Finished);
        let is_pva = self.entry.identity.protocol == Protocol::Pva;
        self.retry = (is_over && is_pva).then(|| now.saturating_add(RETRY_PAUSE));
        if self.link != link {
            (self.link, self.since) = (link, now);
        }
    }

    /// Whether an update is stored. `is_frame`: whatever the clock of a camera says, its frames are data.
    pub(crate) fn judge(&mut self, time: Option<i64>, is_frame: bool, now: i64) -> Fate {
        let is_fresh = std::mem::take(&mut self.is_fresh);
        self.wrong_time = None;
        let Some(time) = time else { return Fate::New };
        let resumed = self.resumed.take();
        if is_fresh && (self.time == Some(time) || resumed == Some(time)) {
            return Fate::Known;
        }
        let fault = if now.saturating_sub(time) > AGE_MAX {
            Some("skipped.old")
        } else if time.saturating_sub(now) > AHEAD_MAX {
            Some("skipped.ahead")
        } else {
            None
        };
        if is_frame {
            self.wrong_time = fault.map(|_| time);
            self.untimed += u64::from(fault.is_some());
            return if fault.is_some() { Fate::Untimed } else { Fate::New };
        }
        if let Some(reason) = fault {
            return Fate::Skipped(reason);
        }
        if self.time.is_some_and(|last| time < last) {
            return Fate::Skipped("skipped.backward");
        }
        Fate::New
    }

    /// Whether the alarm of an update is another one than before.
    pub(crate) fn changes_alarm(&mut self, update: &Update<'_>) -> bool {
        if !self.wants.alarms || !update.has_alarm {
            return false;
        }
        match &mut self.alarm {
            Some((severity, message)) if *severity == update.severity && message == update.alarm => false,
            alarm => {
                *alarm = Some((update.severity, update.alarm.to_owned()));
                true
            }
        }
    }

    /// Whether the units of an update are others than before. A PV without units has none to report.
    pub(crate) fn changes_units(&mut self, update: &Update<'_>) -> bool {
        if !self.wants.units || !update.has_units {
            return false;
        }
        let is_same = self.units.as_ref().map_or(update.units.is_empty(), |units| units == update.units);
        if !is_same {
            self.units = Some(update.units.to_owned());
        }
        !is_same
    }

    /// Keeps a message for repeats.
    pub(crate) fn keep(&mut self, role: Role, schema: [u8; 4], time: i64, bytes: &[u8], now: i64) {
        let Some(kept) = &mut self.kept else { return };
        let kept = &mut kept[role as usize];
        kept.bytes.clear();
        if bytes.len() <= REPEAT_BYTES_MAX {
            kept.bytes.extend_from_slice(bytes);
            (kept.schema, kept.time) = (schema, time);
        }
        self.due = now.saturating_add(self.wants.repeat);
    }

    /// Forgets a message: a frame took its place.
    pub(crate) fn forget(&mut self, role: Role) {
        if let Some(kept) = &mut self.kept {
            kept[role as usize].bytes.clear();
        }
    }

    /// The message that is sent again now: of a PV that is not connected only that it is not.
    pub(crate) fn repeated(&self, role: Role) -> Option<&Kept> {
        let kept = &self.kept.as_ref()?[role as usize];
        let is_live = self.is_connected() || matches!(role, Role::Connection);
        (is_live && !kept.bytes.is_empty()).then_some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::tests::plan;
    use crate::value::What;
    use serde_json::json;

    const NOW: i64 = 1_700_000_000_000_000_000;
    const SECOND: i64 = 1_000_000_000;

    fn channel() -> Channel {
        let entry = Entry::of_json(&json!("A"), Protocol::Pva).unwrap();
        Channel::new(entry, &plan(&[]), NOW)
    }

    #[test]
    fn old_backward_and_early_updates_are_left_out() {
        let mut one = channel();
        assert_eq!(one.judge(Some(NOW), false, NOW), Fate::New);
        one.time = Some(NOW);
        assert_eq!(one.judge(Some(NOW), false, NOW), Fate::New);
        assert_eq!(one.judge(Some(NOW - 1), false, NOW), Fate::Skipped("skipped.backward"));
        assert_eq!(one.judge(Some(0), false, NOW), Fate::Skipped("skipped.old"));
        assert_eq!(one.judge(Some(NOW - 31_557_600 * SECOND - 1), false, NOW), Fate::Skipped("skipped.old"));
        assert_eq!(one.judge(Some(NOW + 600 * SECOND), false, NOW), Fate::New);
        assert_eq!(one.judge(Some(NOW + 600 * SECOND + 1), false, NOW), Fate::Skipped("skipped.ahead"));
        assert_eq!(one.judge(None, false, NOW), Fate::New);
    }

    #[test]
    fn frames_are_stored_whatever_their_clock_says() {
        let mut one = channel();
        one.time = Some(NOW);
        assert_eq!(one.judge(Some(NOW + 1), true, NOW), Fate::New);
        for time in [NOW, NOW - 1, NOW - 3600 * SECOND, NOW + 600 * SECOND] {
            assert_eq!(one.judge(Some(time), true, NOW), Fate::New);
        }
        let epoch_of_epics = 631_152_000 * SECOND;
        for time in [0, epoch_of_epics, NOW + 3600 * SECOND, i64::MIN, i64::MAX] {
            assert_eq!(one.judge(Some(time), true, NOW), Fate::Untimed);
            assert_eq!(one.wrong_time, Some(time));
        }
        assert_eq!(one.untimed, 5);
        // The clock was set meanwhile.
        assert_eq!((one.judge(Some(NOW), true, NOW), one.wrong_time), (Fate::New, None));
    }

    #[test]
    fn the_first_update_of_a_connection_may_be_in_the_stream() {
        let mut one = channel();
        one.resume(Some(NOW - 5), Some(NOW));
        // Its value of NOW - 5, and a message beside it of NOW.
        assert_eq!(one.judge(Some(NOW - 5), false, NOW), Fate::Known);
        assert_eq!(one.judge(Some(NOW - 5), false, NOW), Fate::New);
        one.set_link(ConnectionInfo::Disconnected, NOW);
        one.set_link(ConnectionInfo::Connected, NOW);
        assert_eq!(one.judge(Some(NOW - 5), false, NOW), Fate::Known);
        let mut other = channel();
        other.resume(None, Some(NOW - 7));
        assert_eq!(other.judge(Some(NOW - 7), false, NOW), Fate::Known);
    }

    #[test]
    fn alarms_and_units_are_compared() {
        let mut one = channel();
        let mut update = Update { has_alarm: true, has_units: true, ..Update::of(0, What::Value) };
        // No alarm is a state too; no units are nothing to report.
        assert!(one.changes_alarm(&update) && !one.changes_units(&update));
        assert!(!one.changes_alarm(&update));
        (update.alarm, update.units) = (b"HIGH", b"mm");
        assert!(one.changes_alarm(&update) && one.changes_units(&update));
        assert!(!one.changes_alarm(&update) && !one.changes_units(&update));
        (update.severity, update.units) = (2, b"");
        assert!(one.changes_alarm(&update) && one.changes_units(&update));
    }
}
