//! One PV of a source: what is known of it, and whether an update says something new.

use crate::entry::{Entry, Protocol, Schema};
use crate::limits::{AGE_MAX, AHEAD_MAX, REPEAT_BYTES_MAX, RETRY_PAUSE};
use crate::message::Codec;
use crate::plan::Plan;
use crate::value::{Update, text};
use wire::ep01::ConnectionInfo;

/// The messages that are sent of a PV.
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
    /// It has no time, or a frame one that cannot be: it is stored with the time of its arrival.
    Untimed,
    /// It is left out, for this reason.
    Skipped(&'static str),
}

/// Why nothing of a PV has come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Absence {
    /// No server has it.
    NoServer,
    /// It is connected, and has sent no value.
    NoValue,
    /// All its values were skipped, for this reason.
    Skipped(&'static str),
    /// Its values cannot be stored, for this reason.
    Refused(String),
}

impl Absence {
    /// As people read it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::NoServer => "no server has".into(),
            Self::NoValue => "without a value, though connected:".into(),
            Self::Skipped("skipped.old") => "all values skipped, more than a year old:".into(),
            Self::Skipped("skipped.ahead") => "all values skipped, more than 10 minutes ahead of the clock:".into(),
            Self::Skipped(reason) => format!("all values {reason}:"),
            Self::Refused(why) => format!("{why}:"),
        }
    }
}

/// One PV.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) entry: Entry,
    pub(crate) wants: Wants,
    /// Alarms, connections and units, where the section or the entry makes a choice.
    asked: [Option<bool>; 3],
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
    /// Values that were stored, or that the stream has.
    pub(crate) values: u64,
    /// Values that were left out for their time, and why the newest one.
    pub(crate) skipped: u64,
    pub(crate) skip: Option<&'static str>,
    /// When it was added.
    pub(crate) added: i64,
    /// Frames whose time could not be, and values without one.
    pub(crate) untimed: u64,
    /// Parts of its frames' attributes that have no place in a message.
    pub(crate) dropped: u64,
    /// Frames that stay compressed because their codec is unknown or their bytes are not of it.
    pub(crate) undecoded: u64,
    /// The codec of the newest frame, if it is one of them.
    pub(crate) wrong_codec: Option<String>,
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
        let asked = [entry.alarms.or(plan.alarms), entry.connections.or(plan.connections), entry.units.or(plan.units)];
        let [alarms, connections, units] = asked.map(|choice| choice.unwrap_or(true));
        let wants = Wants {
            values: entry.identity.schema != Schema::None,
            alarms,
            connections,
            units,
            repeat: repeat.map_or(0, |pause| i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX)),
        };
        Self {
            entry,
            wants,
            asked,
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
            values: 0,
            skipped: 0,
            skip: None,
            added: now,
            untimed: 0,
            dropped: 0,
            undecoded: 0,
            wrong_codec: None,
            wrong_time: None,
            kept: (wants.repeat > 0).then(Box::default),
            due: i64::MAX,
            trouble: None,
        }
    }

    /// Its values are frames with numbers of their own.
    pub(crate) fn is_camera(&self) -> bool {
        self.beside != self.origin
    }

    /// The PV is a camera: what stands beside its frames is sent only where the section or the entry says so, because
    /// workers and files expect frames.
    pub(crate) fn be_camera(&mut self) {
        let [alarms, connections, units] = self.asked.map(|choice| choice.unwrap_or(false));
        self.wants = Wants { alarms, connections, units, ..self.wants };
    }

    /// Makes the choices of another entry of the same identity.
    pub(crate) fn choose(&mut self, entry: Entry, plan: &Plan, now: i64) {
        let Self { entry, asked, wants, .. } = Self::new(entry, plan, now);
        let before = std::mem::replace(&mut self.wants, wants);
        (self.entry, self.asked) = (entry, asked);
        if self.is_camera() {
            self.be_camera();
        }
        // Messages that are requested from now on are sent with the next update.
        self.alarm.take_if(|_| !before.alarms);
        self.units.take_if(|_| !before.units);
        if self.wants.repeat == 0 {
            (self.kept, self.due) = (None, i64::MAX);
        } else if self.kept.is_none() {
            self.kept = Some(Box::default());
        }
    }

    /// Notes what became of the compression of a frame.
    pub(crate) fn codec(&mut self, codec: Codec, name: &[u8]) {
        let is_wrong = codec == Codec::Unknown;
        self.undecoded += u64::from(is_wrong);
        if self.wrong_codec.is_some() != is_wrong {
            self.wrong_codec = is_wrong.then(|| text(name).into_owned());
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

    /// Whether an update is stored. `is_frame`: whatever the clock of a camera says, its frames are data. So is the
    /// first value of a connection, however old.
    pub(crate) fn judge(&mut self, time: Option<i64>, is_frame: bool, now: i64) -> Fate {
        let is_fresh = std::mem::take(&mut self.is_fresh);
        self.wrong_time = None;
        let Some(time) = time else { return Fate::Untimed };
        let resumed = self.resumed.take();
        if is_fresh && time != 0 && (self.time == Some(time) || resumed == Some(time)) {
            return Fate::Known;
        }
        let fault = if now.saturating_sub(time) > AGE_MAX {
            Some("skipped.old")
        } else if time.saturating_sub(now) > AHEAD_MAX {
            Some("skipped.ahead")
        } else {
            None
        };
        // A time of 0 was never set.
        if fault.is_some() && (is_frame || time == 0) {
            self.wrong_time = Some(time);
            self.untimed += 1;
            return Fate::Untimed;
        }
        let is_kept = is_frame || is_fresh && time < now;
        match fault {
            Some(reason) if !is_kept => Fate::Skipped(reason),
            None if !is_kept && self.time.is_some_and(|last| time < last) => Fate::Skipped("skipped.backward"),
            _ => Fate::New,
        }
    }

    /// Why nothing of it has come; `None` where something has, or nobody misses it.
    pub(crate) fn absence(&self) -> Option<Absence> {
        let is_there = match self.wants.values {
            true => self.values > 0,
            false => self.link != ConnectionInfo::NeverConnected,
        };
        if is_there || self.entry.optional || self.is_fake() {
            return None;
        }
        Some(match (&self.trouble, self.skip, self.link) {
            (Some(why), ..) => Absence::Refused(why.clone()),
            (_, Some(reason), _) => Absence::Skipped(reason),
            (.., ConnectionInfo::NeverConnected) => Absence::NoServer,
            _ => Absence::NoValue,
        })
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
    use crate::plan::tests::plan;
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
        assert_eq!(one.judge(Some(NOW - 31_557_600 * SECOND - 1), false, NOW), Fate::Skipped("skipped.old"));
        assert_eq!(one.judge(Some(NOW + 600 * SECOND), false, NOW), Fate::New);
        assert_eq!(one.judge(Some(NOW + 600 * SECOND + 1), false, NOW), Fate::Skipped("skipped.ahead"));
    }

    #[test]
    fn the_first_value_of_a_connection_is_kept_however_old() {
        let mut one = channel();
        one.time = Some(NOW);
        let old = NOW - 100_000_000 * SECOND;
        assert_eq!(one.judge(Some(old), false, NOW), Fate::New);
        assert_eq!(one.judge(Some(old), false, NOW), Fate::Skipped("skipped.old"));
        one.set_link(ConnectionInfo::Connected, NOW);
        assert_eq!(one.judge(Some(NOW + 3600 * SECOND), false, NOW), Fate::Skipped("skipped.ahead"));
    }

    #[test]
    fn values_without_a_time_have_that_of_their_arrival() {
        let mut one = channel();
        assert_eq!((one.judge(None, false, NOW), one.wrong_time), (Fate::Untimed, None));
        assert_eq!((one.judge(Some(0), false, NOW), one.wrong_time), (Fate::Untimed, Some(0)));
        // The same again may be another value.
        one.set_link(ConnectionInfo::Connected, NOW);
        assert_eq!((one.judge(Some(0), false, NOW), one.untimed), (Fate::Untimed, 2));
    }

    #[test]
    fn what_has_not_come_is_named() {
        let mut one = channel();
        assert_eq!(one.absence(), Some(Absence::NoServer));
        one.set_link(ConnectionInfo::Connected, NOW);
        assert_eq!(one.absence(), Some(Absence::NoValue));
        one.skip = Some("skipped.ahead");
        assert_eq!(one.absence(), Some(Absence::Skipped("skipped.ahead")));
        one.trouble = Some("no".into());
        assert_eq!(one.absence(), Some(Absence::Refused("no".into())));
        one.entry.optional = true;
        assert_eq!(one.absence(), None);
        one.entry.optional = false;
        one.values = 1;
        assert_eq!(one.absence(), None);
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
