//! Work of a host for an instrument on several: accounts, beats, and commands that were given on another host.
//!
//! Hosts post on a bulletin: each its process as it starts (`process/HOST`), a beat a second (`beat/HOST`), its account
//! of each sealed run (`account/RUN/HOST`), commands and their answers (`ask/HOST/ID`, `answer/HOST/ID`), what a worker
//! on several hosts is to be (`configure/WORKER`), and that a run is sealed without a host (`absent/RUN/HOST`). A
//! command is carried out by the process that it was meant for, or not at all: it names the boot of that process.

mod faults;

use self::faults::{fenced, refuse_moved, wrong_clock};
use super::Mover;
use super::asks::Request;
use super::bulletin::BulletinThread;
use super::control::Command;
use super::shared::Changes;
use crate::beats;
use crate::figures::instant;
use crate::file::{HostPart, Instrument, LEAD_RUNS, Stage, is_hosts_sink};
use crate::limits::{
    ACCOUNTS_PAUSE, ASK_PATIENCE, AWAY, BEAT_PAUSE, BEAT_TROUBLES_MAX, BEAT_WORKERS_BYTES_MAX, CLOCK_AHEAD_MAX,
    FENCED_READ, OBEYED_MAX,
};
use flow::edge::Post;
use flow::hosts::{AccountBook, HostAccount, HostState, HostsLayout};
use flow::records::Run;
use flow::{Data, Fault, Passes, RunsView};
use serde_json::{Map, Value, json};
use settings::shortened;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;
use wire::bprn::State;

/// The newest beat of a host, and when it came.
struct Heard {
    beat: Value,
    at: Instant,
    /// How far the clock of the host was ahead of that of the bulletin, ns: here and at the beat before.
    ahead: [i64; 2],
}

impl Heard {
    /// A beat that came now, after `before`.
    fn new(beat: Value, post: &Post, before: Option<&Self>) -> Self {
        let ahead = beat["time"].as_i64().map_or(0, |time| time.saturating_sub(post.time));
        Self { beat, at: Instant::now(), ahead: [ahead, before.map_or(0, |before| before.ahead[0])] }
    }

    /// When it was posted, by the clock of the bulletin, ns since 1970 UTC.
    fn posted(&self) -> Option<i64> {
        Some(self.beat["time"].as_i64()?.saturating_sub(self.ahead[0]))
    }

    /// How far its clock is ahead, ns; 0 where it is right. One late post tells nothing.
    fn wrong_clock(&self) -> i64 {
        let [now, before] = self.ahead;
        let is_wrong = |ahead: i64| ahead.unsigned_abs() > CLOCK_AHEAD_MAX.as_nanos() as u64;
        if is_wrong(now) && is_wrong(before) { now } else { 0 }
    }
}

/// The stream of the runs of the host that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeadRuns {
    /// Its identity; none where that host does not say so.
    pub(super) uuid: Option<[u8; 16]>,
    /// That host has said so since this process has started.
    pub(super) is_live: bool,
}

/// A command that was sent to another host.
struct Sent {
    command: Command,
    host: String,
    since: Instant,
}

/// The state of a host beside the others.
pub(super) struct Hosts {
    pub(super) part: HostPart,
    /// Names this process.
    boot: String,
    pub(super) bulletin: BulletinThread,
    accounts: AccountBook,
    beats: BTreeMap<String, Heard>,
    /// The newest beat of this process.
    own: Option<Heard>,
    /// The post of this process has come, and behind it that of a later process of this host.
    has_own_post: bool,
    later: Option<Value>,
    /// When the bulletin was read up to the first beat of this process.
    pub(super) caught_up: Option<Instant>,
    /// How far hosts have come, by run, its start and host: an earlier run of that name may have posts.
    known: BTreeMap<(String, i64, String), HostState>,
    /// The hosts of runs that the host that leads has sealed, by run and its start.
    of_runs: BTreeMap<(String, i64), Vec<String>>,
    /// Runs of which this host has nothing more to post.
    posted: BTreeSet<String>,
    sent: BTreeMap<String, Sent>,
    /// Commands that wait until it is known which hosts are up, and when they were given.
    pub(super) waiting: Vec<(Command, Instant)>,
    /// Identities of commands of other hosts that were carried out, the newest last.
    obeyed: VecDeque<String>,
    /// Commands of other hosts that are carried out: their keys, and what brings the answers.
    pub(super) obeying: Vec<(String, Receiver<Result<Value, Fault>>)>,
    /// The changes of workers on several hosts.
    pub(super) changes: Changes,
    fault: Option<Fault>,
    /// The troubles with other hosts that the log has.
    logged: Vec<String>,
    fenced: Option<Instant>,
    beat_at: Instant,
    accounts_at: Instant,
    /// When the process started, ns since 1970 UTC.
    since: i64,
    /// The runs of the host that leads, where this one adopts them.
    pub(super) lead: Option<RunsView>,
    /// The steps of those runs that this host has followed, and the stream of which.
    pub(super) lead_steps: u64,
    pub(super) lead_runs: Option<LeadRuns>,
    /// The question whether these runs are read to their end, that they are, and that those are adopted.
    pub(super) asked_lead: Option<Request>,
    pub(super) has_read_lead: bool,
    pub(super) has_adopted: bool,
    /// Streams that the carrier does not have up to these sequences, since this host has nothing else to do.
    pub(super) to_carry: Option<Vec<(String, u64)>>,
}

impl Hosts {
    /// Starts it; none where the instrument runs on one machine.
    pub(super) fn start(data: &Data, instrument: &Instrument) -> Result<Option<Self>, Fault> {
        let (Some(part), Some(hosts)) = (&instrument.part, &instrument.hosts) else { return Ok(None) };
        refuse_moved(data, instrument)?;
        let now = Instant::now();
        let media = data.media.clone();
        let clock = Box::new(move || media.now());
        let (boot, since) = (store::hex(&data.media.random()), data.media.now());
        let accounts = AccountBook::open(data, &part.layout)?;
        let bulletin = BulletinThread::start(hosts.carrier.clone(), &instrument.name, &part.name, clock)?;
        // An earlier process of this host ends now, and names this one. The first beat comes after the start.
        let process = json!({"boot": boot, "pid": std::process::id(), "since": since});
        bulletin.post(format!("process/{}", part.name), process.to_string());
        Ok(Some(Self {
            boot,
            accounts,
            bulletin,
            beats: BTreeMap::new(),
            own: None,
            has_own_post: false,
            later: None,
            caught_up: None,
            known: BTreeMap::new(),
            of_runs: BTreeMap::new(),
            posted: BTreeSet::new(),
            sent: BTreeMap::new(),
            waiting: Vec::new(),
            obeyed: VecDeque::new(),
            obeying: Vec::new(),
            changes: Changes::new(part),
            fault: None,
            logged: Vec::new(),
            fenced: None,
            beat_at: now,
            accounts_at: now,
            since,
            lead: part.lead.as_ref().map(|_| RunsView::of(data, LEAD_RUNS)),
            lead_steps: 0,
            lead_runs: None,
            asked_lead: None,
            has_read_lead: false,
            has_adopted: false,
            to_carry: None,
            part: part.clone(),
        }))
    }

    fn others(&self) -> impl Iterator<Item = &String> {
        self.part.layout.hosts.iter().filter(|host| **host != self.part.name)
    }

    fn state_of(&self, run: &Run, host: &str) -> HostState {
        self.known.get(&(run.name.clone(), run.start, host.to_owned())).copied().unwrap_or(HostState::Missing)
    }

    fn learn(&mut self, run: &str, start: i64, host: &str, state: HostState) {
        let known = self.known.entry((run.to_owned(), start, host.to_owned())).or_insert(HostState::Missing);
        *known = state.max(*known);
    }

    /// Whether a host has a part in a run: it was in the file when the host that leads sealed that.
    fn has_part(&self, run: &Run, host: &str) -> bool {
        let of_run = self.of_runs.get(&(run.name.clone(), run.start));
        of_run.is_none_or(|hosts| hosts.iter().any(|known| known == host))
    }

    /// Whether a host has given no sign for some seconds; false while that is not known.
    pub(super) fn is_away(&self, host: &str) -> bool {
        let Some(caught_up) = self.caught_up else { return false };
        match self.beats.get(host) {
            Some(heard) => heard.at.elapsed() > AWAY || heard.beat["ended"] == true,
            None => caught_up.elapsed() > AWAY,
        }
    }

    /// Whether the host that leads has ended since this process has started, and this one ends with it. By the clock of
    /// the bulletin: the host may have ended before the bulletin was read.
    pub(super) fn ends_with_lead(&self) -> bool {
        let lead = self.part.layout.hosts.first().and_then(|lead| self.beats.get(lead));
        let (Some(lead), Some(own)) = (lead, &self.own) else { return false };
        let ended = lead.posted().filter(|_| lead.beat["ended"] == true);
        self.part.ends_with_lead && ended > Some(self.since.saturating_sub(own.ahead[0]))
    }

    /// The stream of the runs of the host that leads; none while it is not known whether that host is up. A topic may
    /// still have runs of an earlier instrument of the same name, whose folders were removed.
    pub(super) fn lead_runs_now(&self) -> Option<LeadRuns> {
        let (lead, caught_up) = (self.part.lead.as_ref()?, self.caught_up?);
        let heard = self.beats.get(lead);
        let is_live = heard.is_some_and(|heard| heard.at > caught_up);
        let uuid = || heard.and_then(|heard| store::unhex16(heard.beat["runs"].as_str()?));
        (is_live || self.is_away(lead)).then(|| LeadRuns { uuid: uuid(), is_live })
    }

    /// Reads the runs of the host that leads; true where there is something new in `of` since they were adopted. Their
    /// number grows for years, and this is called a hundred times a second.
    pub(super) fn refresh_lead(&mut self, of: &LeadRuns) -> Result<bool, Fault> {
        let Some(lead) = &mut self.lead else { return Ok(false) };
        lead.refresh().map_err(|fault| fault.leads_to("the runs of the host that leads cannot be read"))?;
        Ok(lead.steps() != self.lead_steps || self.lead_runs.as_ref() != Some(of))
    }

    /// The host that carries out a command, where it is another one.
    fn host_of(&self, request: &Value) -> Option<String> {
        let named = |key: &str| request[key].as_str();
        let host = match request["command"].as_str()? {
            "begin" | "end" => self.part.layout.hosts.first(),
            "configure" if self.part.shared_worker(request).is_some() => self.part.layout.hosts.first(),
            "configure" | "ask" | "worker" => {
                let stage = named("stage").or_else(|| named("worker")).or_else(|| named("source"))?;
                self.part.stages.get(stage)
            }
            "cutover" => self.part.stages.get(named("shadow")?),
            _ => None,
        };
        host.filter(|host| **host != self.part.name).cloned()
    }

    /// Sends a command to the host that carries it out, once that is known to be up; gives it back where that is this
    /// one, or where it cannot be sent. `since`: when it was given. `id` names it.
    pub(super) fn forward(&mut self, command: Command, since: Instant, id: String) -> Option<(Command, Option<Fault>)> {
        let Some(host) = self.host_of(&command.request).filter(|_| command.is_local()) else {
            return self.post_change(command, since, &id);
        };
        let is_away = self.is_away(&host);
        let boot = self.beats.get(&host).and_then(|heard| heard.beat["boot"].as_str()).filter(|_| !is_away);
        let Some(boot) = boot.filter(|_| self.caught_up.is_some()) else {
            if !is_away && since.elapsed() < ASK_PATIENCE {
                self.waiting.push((command, since));
                return None;
            }
            let cause = match self.caught_up {
                None => self.unread(),
                Some(_) => format!("it carries out this command, and {}", self.silence(&host)),
            };
            let hint = format!("start it with `beamport up FILE --host {host}`");
            return Some((command, Some(Fault::new(format!("host `{host}` does not answer"), cause).hint(hint))));
        };
        let from = format!("host {}: {}", self.part.name, command.from);
        let ask = json!({"asker": self.part.name, "boot": boot, "from": from, "request": command.request});
        self.bulletin.post(format!("ask/{host}/{id}"), ask.to_string());
        self.sent.insert(id, Sent { command, host, since });
        None
    }

    /// A process of this host has started. The bulletin may still have the post of an earlier one than this.
    fn see_process(&mut self, text: &str) {
        let Ok(process @ Value::Object(_)) = serde_json::from_str(text) else { return };
        if process["boot"] == *self.boot {
            self.has_own_post = true;
        } else if self.has_own_post || self.bulletin.is_fenced() {
            self.later = Some(process);
        }
    }

    /// Why nothing is known of other hosts.
    pub(super) fn unread(&self) -> String {
        match self.bulletin.trouble() {
            Some(fault) => format!("the bulletin of the hosts cannot be read: {}", fault.what),
            None => "the bulletin of the hosts has not been read yet".to_owned(),
        }
    }

    /// Since when there is no sign of a host.
    fn silence(&self, host: &str) -> String {
        match self.beats.get(host) {
            Some(heard) => {
                let time = heard.beat["time"].as_i64().unwrap_or(0);
                let word = if heard.beat["ended"] == true { "it has ended at" } else { "there is no sign of it since" };
                format!("{word} {}", instant(time))
            }
            None => "it has not started yet".into(),
        }
    }
}

impl Mover {
    /// Reads and posts on the bulletin: an error ends the mover. True where a run may have changed.
    pub(super) fn keep_hosts(&mut self, now: i64) -> Result<bool, Fault> {
        let Some(hosts) = &mut self.hosts else { return Ok(false) };
        let mut changed = false;
        for post in hosts.bulletin.posts() {
            changed |= self.see_post(&post, now);
        }
        self.answer_hosts();
        for (command, since) in self.hosts.as_mut().map(|hosts| std::mem::take(&mut hosts.waiting)).unwrap_or_default()
        {
            self.forward(command, since, now);
        }
        self.keep_changes(now);
        self.post_accounts();
        self.beat(now);
        let Some(hosts) = &mut self.hosts else { return Ok(changed) };
        if hosts.bulletin.is_fenced() {
            let since = *hosts.fenced.get_or_insert_with(Instant::now);
            if hosts.later.is_some() || since.elapsed() > FENCED_READ {
                return Err(fenced(&hosts.part.name, hosts.later.as_ref()));
            }
        }
        Ok(changed)
    }

    /// Gives a command to the host that carries it out; back where that is this one.
    pub(super) fn forward(&mut self, command: Command, since: Instant, now: i64) -> Option<Command> {
        let Some(hosts) = &mut self.hosts else { return Some(command) };
        match hosts.forward(command, since, store::hex(&self.data.media.random())) {
            None => None,
            Some((command, None)) => Some(command),
            Some((command, Some(fault))) => {
                self.answer(&command, Err(fault), now);
                None
            }
        }
    }

    /// Takes in one post; true where a run may have changed.
    fn see_post(&mut self, post: &Post, now: i64) -> bool {
        let Some(hosts) = &mut self.hosts else { return false };
        let own = hosts.part.name.clone();
        let parts: Vec<&str> = post.key.splitn(3, '/').collect();
        match parts[..] {
            ["beat", host] => {
                // Others may write into the topic.
                let HostsLayout { hosts: known, workers, .. } = &hosts.part.layout;
                let is_host = known.iter().chain(workers).any(|known| known == host);
                let Ok(beat @ Value::Object(_)) = serde_json::from_str(&post.text) else { return false };
                if !is_host {
                    return false;
                }
                if host != own {
                    let heard = Heard::new(beat, post, hosts.beats.get(host));
                    hosts.beats.insert(host.to_owned(), heard);
                } else if beat["boot"] == *hosts.boot {
                    hosts.own = Some(Heard::new(beat, post, hosts.own.as_ref()));
                    hosts.caught_up.get_or_insert_with(Instant::now);
                }
            }
            ["process", host] if host == own => hosts.see_process(&post.text),
            ["account" | "absent", run, host] => {
                let Ok(account) = serde_json::from_str::<HostAccount>(&post.text) else { return false };
                if account.run != run || account.host != host || !hosts.part.layout.hosts.contains(&account.host) {
                    return false;
                }
                hosts.learn(run, account.start, host, account.state);
                if let Some(layout) =
                    account.layout.as_ref().filter(|_| hosts.part.layout.hosts.first() == Some(&account.host))
                {
                    hosts.of_runs.insert((run.to_owned(), account.start), layout.hosts.clone());
                }
                if host != own {
                    self.keep_account(&account);
                }
            }
            ["configure", worker] => hosts.see_change(worker, &post.text),
            ["ask", host, id] if host == own && !post.text.is_empty() => return self.obey_host(id, &post.text, now),
            ["answer", host, id] if host == own && !post.text.is_empty() => self.pass_answer(id, &post.text, now),
            _ => {}
        }
        false
    }

    /// Keeps the account of another host, which may change the losses of the run.
    fn keep_account(&mut self, account: &HostAccount) {
        let Some(hosts) = &mut self.hosts else { return };
        match hosts.accounts.keep(account) {
            Ok(false) => {}
            Ok(true) => {
                let run = self.keeper.runs().iter().find(|run| run.name == account.run).cloned();
                let of_all = run.and_then(|run| flow::ledger::account_of(&self.data, &run, &self.sinks()).ok());
                if let (Some(of_all), Some(done)) = (of_all, self.done.get_mut(&account.run)) {
                    done.lost = Some(of_all.lost);
                }
            }
            Err(fault) => {
                let what = format!("the account of run `{}` on host `{}` is not kept", account.run, account.host);
                hosts.fault = Some(fault.leads_to(what));
            }
        }
    }

    /// Carries out a command that was given on another host; true where it may have changed a run.
    fn obey_host(&mut self, id: &str, text: &str, now: i64) -> bool {
        let Some(hosts) = &mut self.hosts else { return false };
        let Ok(ask) = serde_json::from_str::<Value>(text) else { return false };
        // That of an earlier process died with it: the asker learns of the restart by the beat.
        if ask["boot"] != *hosts.boot || hosts.obeyed.iter().any(|known| known == id) {
            return false;
        }
        hosts.obeyed.push_back(id.to_owned());
        if hosts.obeyed.len() > OBEYED_MAX {
            hosts.obeyed.pop_front();
        }
        let from = ask["from"].as_str().unwrap_or_default().chars().take(300).collect();
        let (command, answered) = Command::of_host(by_clock(ask["request"].clone(), now), from);
        let asker = ask["asker"].as_str().unwrap_or_default();
        hosts.obeying.push((format!("answer/{asker}/{id}"), answered));
        self.begin_command(command, now)
    }

    /// Passes the answer of another host on to the client that has asked.
    fn pass_answer(&mut self, id: &str, text: &str, now: i64) {
        let Some(hosts) = &mut self.hosts else { return };
        let own = &hosts.part.name;
        hosts.bulletin.post(format!("answer/{own}/{id}"), String::new());
        if serde_json::from_str(text).is_ok_and(|answer| hosts.see_followed(id, &answer)) {
            return;
        }
        let Some(Sent { command, host, .. }) = hosts.sent.remove(id) else { return };
        hosts.bulletin.post(format!("ask/{host}/{id}"), String::new());
        let answer = match serde_json::from_str::<Value>(text) {
            Ok(mut answer) if answer["fault"].is_null() => Ok(answer["ok"].take()),
            Ok(answer) => Err(Fault::of_json(&answer["fault"])),
            Err(e) => Err(Fault::new(format!("the answer of host `{host}` cannot be read"), e)),
        };
        self.answer(&command, answer, now);
    }

    /// Posts the answers of commands that other hosts sent, and gives up those that other hosts do not answer.
    fn answer_hosts(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        let mut at = 0;
        while let Some((key, answered)) = hosts.obeying.get(at) {
            let answer = match answered.try_recv() {
                Err(TryRecvError::Empty) => {
                    at += 1;
                    continue;
                }
                Ok(Ok(answer)) => json!({"ok": answer}),
                Ok(Err(fault)) => json!({"fault": fault.to_json()}),
                Err(TryRecvError::Disconnected) => {
                    json!({"fault": Fault::new("the command was refused", "the host is being shut down").to_json()})
                }
            };
            hosts.bulletin.post(key.clone(), answer.to_string());
            hosts.obeying.remove(at);
        }
        let late: Vec<String> = hosts
            .sent
            .iter()
            .filter(|(_, sent)| sent.since.elapsed() > ASK_PATIENCE)
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            let Some(Sent { command, host, .. }) = hosts.sent.remove(&id) else { continue };
            hosts.bulletin.post(format!("ask/{host}/{id}"), String::new());
            let fault = Fault::new(format!("host `{host}` has not answered"), hosts.silence(&host));
            let hint = "look whether it was carried out: `beamport ls`, or `beamport top` on that host";
            let _ = command.answer.send(Err(Fault { passes: Passes::Pending, ..fault.hint(hint) }));
        }
    }

    /// Posts the accounts of runs that this host has sealed, and of those that it has finished.
    fn post_accounts(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        if hosts.caught_up.is_none() || Instant::now() < hosts.accounts_at {
            return;
        }
        hosts.accounts_at = Instant::now() + ACCOUNTS_PAUSE;
        hosts.fault = None;
        let own = hosts.part.name.clone();
        let since = hosts.accounts.created();
        let sinks: Vec<String> = self.instrument.sinks.iter().map(|sink| sink.name.clone()).collect();
        for run in self.keeper.runs().iter().filter(|run| run.state == State::Sealed && run.time >= since) {
            if hosts.posted.contains(&run.name) {
                continue;
            }
            let is_done = self.done.contains_key(&run.name) || self.done_before.contains(&run.name);
            let (state, sinks) = if is_done { (HostState::Done, &sinks[..]) } else { (HostState::Sealed, &[][..]) };
            if hosts.state_of(run, &own) < state {
                let posted = hosts.accounts.seal(run).and_then(|()| {
                    let account = flow::hosts::own(&self.data, run, sinks, state)?;
                    serde_json::to_string(&account).map_err(|e| Fault::new("an account cannot be coded", e))
                });
                match posted {
                    Ok(text) => hosts.bulletin.post(format!("account/{}/{own}", run.name), text),
                    Err(fault) => {
                        let what = format!("the account of run `{}` is not sent to the other hosts", run.name);
                        hosts.fault = Some(fault.leads_to(what));
                        continue;
                    }
                }
                hosts.learn(&run.name, run.start, &own, state);
            }
            if is_done {
                hosts.posted.insert(run.name.clone());
            }
        }
        self.be_absent();
    }

    /// Has the mirrors of hosts that a run is sealed without come to its end.
    fn be_absent(&self) {
        let Some(hosts) = &self.hosts else { return };
        for run in self.keeper.unsealed().filter(|run| run.state == State::Settling) {
            let until = run.stop.saturating_add(run.settle).saturating_add(1);
            let is_absent = |host: &String| hosts.state_of(run, host) == HostState::Absent;
            let ask = |stream: &String, request: Value| drop(self.ask_source(stream, request));
            for (stream, _) in hosts.part.layout.mirrors.iter().filter(|(_, host)| is_absent(host)) {
                ask(stream, json!({"absent": until}));
            }
            for (worker, inputs) in &hosts.part.dealt {
                let absent: Vec<&String> =
                    inputs.iter().filter(|(_, host)| is_absent(host)).map(|(input, _)| input).collect();
                if !absent.is_empty() {
                    ask(worker, json!({"absent": until, "inputs": absent}));
                }
            }
        }
    }

    /// Has a run sealed without these hosts, which are away.
    pub(super) fn leave_out(&mut self, run: &Run, without: &Value) -> Result<(), Fault> {
        let names: Vec<&str> = match without {
            Value::Null => return Ok(()),
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => return Err(Fault::new("the command was refused", "`without` is not a list of hosts")),
        };
        let refused = |cause: String| Fault::new(format!("run `{}` cannot be sealed without a host", run.name), cause);
        let Some(hosts) = &mut self.hosts else {
            return Err(refused("the instrument runs on one machine".into()).hint("omit `--without`"));
        };
        for name in &names {
            if !hosts.others().any(|host| host == name) {
                let all: Vec<&str> = hosts.others().map(String::as_str).collect();
                let hint = format!("the other hosts are {}", shortened(&all.join(", ")));
                return Err(refused(format!("`{}` is none of the other hosts", shortened(name))).hint(hint));
            }
            if !hosts.is_away(name) {
                let hint = format!("stop it first, or wait: it is away after {} s without a sign", AWAY.as_secs());
                return Err(refused(format!("host `{name}` is up, and sends its account")).hint(hint));
            }
        }
        for name in names {
            let absent = HostAccount::without_account(run, name, HostState::Absent);
            let text = serde_json::to_string(&absent).map_err(|e| Fault::new("an account cannot be coded", e))?;
            hosts.bulletin.post(format!("absent/{}/{name}", run.name), text);
        }
        Ok(())
    }

    /// Sets the beat of this host, once a second.
    fn beat(&mut self, now: i64) {
        let Some(hosts) = &self.hosts else { return };
        if Instant::now() < hosts.beat_at {
            return;
        }
        self.log_hosts();
        let beat = self.beat_of(now, false);
        let Some(hosts) = &mut self.hosts else { return };
        hosts.beat_at = Instant::now() + BEAT_PAUSE;
        hosts.bulletin.set_beat(format!("beat/{}", hosts.part.name), beat);
    }

    /// Logs the troubles with other hosts that are new, and those that have passed.
    fn log_hosts(&mut self) {
        let troubles = self.host_troubles();
        let Some(hosts) = &mut self.hosts else { return };
        let names: Vec<String> = troubles.iter().map(|trouble| trouble.what.clone()).collect();
        troubles.iter().filter(|new| !hosts.logged.contains(&new.what)).for_each(|new| tracing::warn!("{new}"));
        hosts.logged.iter().filter(|old| !names.contains(old)).for_each(|old| tracing::info!("passed: {old}"));
        hosts.logged = names;
    }

    fn beat_of(&self, now: i64, has_ended: bool) -> Value {
        let Some(hosts) = &self.hosts else { return Value::Null };
        let frontier = |stream: &str| self.handle(stream).and_then(|handle| handle.view()).map(|view| view.frontier);
        let (mut streams, mut mirrors) = (Map::new(), Map::new());
        let sent = self.instrument.stages.iter().filter(|stage| is_hosts_sink(stage.name())).flat_map(Stage::inputs);
        for stream in sent {
            let next = self.data.reader_early(stream).map(|reader| reader.bounds().count).ok();
            streams.insert(stream.clone(), json!({"next": next, "frontier": frontier(stream)}));
        }
        for (stream, host) in &hosts.part.layout.mirrors {
            let next = flow::hosts::mirrored_to(&self.data, stream).ok().flatten();
            mirrors.insert(stream.clone(), json!({"host": host, "next": next, "frontier": frontier(stream)}));
        }
        let own = self.instrument.sources().filter(|source| !hosts.part.layout.is_from_others(&source.name));
        let entries = own
            .filter(|source| !Data::is_book(&source.name))
            .filter_map(|source| flow::ledger::entries(&self.data, &source.name).ok());
        let lost = entries
            .flat_map(|(entries, _)| entries)
            .flat_map(|entry| entry.lost.into_values())
            .fold(0, u64::saturating_add);
        let troubles: Vec<String> =
            self.troubles().iter().take(BEAT_TROUBLES_MAX).map(|fault| fault.what.clone()).collect();
        json!({
            "host": hosts.part.name,
            "boot": hosts.boot,
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "file": self.instrument.sha256,
            "runs": hosts.lead.is_none().then(|| store::hex(&self.keeper.stream())),
            "since": hosts.since,
            "time": now,
            "ended": has_ended,
            "streams": streams,
            "mirrors": mirrors,
            "lost": lost,
            "troubles": troubles,
            "workers": bounded(self.worker_states()),
        })
    }

    /// All hosts, as their newest beats say: whether each is up, how far its mirrors are behind, its workers, losses
    /// and troubles.
    pub(super) fn host_states(&self) -> Map<String, Value> {
        let Some(hosts) = &self.hosts else { return Map::new() };
        let HostsLayout { hosts: all, workers, .. } = &hosts.part.layout;
        let heard = |host: &str| if host == hosts.part.name { hosts.own.as_ref() } else { hosts.beats.get(host) };
        let newest = |host: &str| heard(host).map(|heard| &heard.beat);
        let state = |host: &String| {
            let beat = newest(host).unwrap_or(&Value::Null);
            let is_up = *host == hosts.part.name || beat["ended"] != true && !hosts.is_away(host);
            let state = json!({
                "state": beats::state(is_up, beat),
                "is_here": *host == hosts.part.name,
                "mirrors": beats::mirrors(beat, newest),
                "workers": beat["workers"],
                "lost": beat["lost"],
                "clock_ns": heard(host).map(|heard| heard.ahead[0]),
                "troubles": beat["troubles"],
            });
            (host.clone(), state)
        };
        all.iter().chain(workers).map(state).collect()
    }

    /// Posts that this host has ended in order.
    pub(super) fn say_ended(&mut self) {
        let beat = self.beat_of(self.data.media.now(), true);
        if let Some(hosts) = &self.hosts {
            hosts.bulletin.post_last_beat(format!("beat/{}", hosts.part.name), beat.to_string());
        }
    }

    /// The troubles with other hosts: those that are away, with the runs that wait for them, and other files.
    pub(super) fn host_troubles(&self) -> Vec<Fault> {
        let Some(hosts) = &self.hosts else { return Vec::new() };
        let mut troubles: Vec<Fault> = hosts.bulletin.trouble().into_iter().chain(hosts.fault.clone()).collect();
        let clock_of = self.instrument.hosts.as_ref().and_then(|hosts| hosts.carrier.clock_of());
        let wrong_clock = |host: &str, heard: &Heard| wrong_clock(host, heard.wrong_clock(), clock_of.as_deref());
        troubles.extend(hosts.own.as_ref().and_then(|own| wrong_clock(&hosts.part.name, own)));
        // Without the bulletin nobody hears of another host.
        let is_cut_off = hosts.bulletin.trouble().is_some();
        for host in hosts.others().filter(|_| !is_cut_off) {
            let heard = hosts.beats.get(host).filter(|_| !hosts.is_away(host));
            troubles.extend(heard.and_then(|heard| wrong_clock(host, heard)));
            let beat = hosts.beats.get(host).map(|heard| &heard.beat);
            if !hosts.is_away(host) {
                if let Some(beat) =
                    beat.filter(|beat| beat["file"].is_string() && beat["file"] != *self.instrument.sha256)
                {
                    let what = format!("host `{host}` runs another instrument file");
                    let cause =
                        format!("the sums of the files differ: {} and {}", beat["file"], self.instrument.sha256);
                    troubles.push(Fault::new(what, cause).hint("start all hosts with the same file"));
                }
                continue;
            }
            let waits: Vec<&str> = self.runs_waiting(host).map(|run| run.name.as_str()).collect();
            if waits.is_empty() && beat.is_some_and(|beat| beat["ended"] == true) {
                continue;
            }
            let (mut cause, mut hint) =
                (hosts.silence(host), format!("start it with `beamport up FILE --host {host}`"));
            if let Some(run) = waits.first() {
                cause += &format!("; run `{}` waits for it", shortened(&waits.join("`, `")));
                hint += &format!(", or seal without it: `beamport end {run} --without {host}`");
            }
            troubles
                .push(Fault { passes: Passes::Soon, ..Fault::new(format!("host `{host}` is away"), cause).hint(hint) });
        }
        troubles
    }

    /// Why the bulletin cannot be asked.
    pub(super) fn hosts_trouble(&self) -> Option<Fault> {
        self.hosts.as_ref().and_then(|hosts| hosts.bulletin.trouble())
    }

    /// The other hosts that are away, of those that a run is not sealed without.
    pub(super) fn hosts_away(&self, without: &Value) -> Vec<String> {
        let is_left_out = |host: &str| without.as_array().is_some_and(|names| names.iter().any(|name| name == host));
        let Some(hosts) = &self.hosts else { return Vec::new() };
        hosts.others().filter(|host| hosts.is_away(host) && !is_left_out(host)).cloned().collect()
    }

    /// The runs that were not done before this start and are not done on another host.
    fn runs_waiting<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Run> {
        let hosts = self.hosts.as_ref();
        let is_behind = move |run: &&Run| {
            hosts.is_some_and(|hosts| {
                let state = hosts.state_of(run, host);
                state < HostState::Done && state != HostState::Absent && hosts.has_part(run, host)
            })
        };
        self.keeper.runs().iter().filter(|run| !self.done_before.contains(&run.name)).filter(is_behind)
    }

    /// Whether every host has come to the end of every run of this start, and the carrier has all posts.
    pub(super) fn hosts_are_done(&self) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let all = &hosts.part.layout.hosts;
        hosts.bulletin.is_idle() && all.iter().all(|host| self.runs_waiting(host).next().is_none())
    }
}

/// The states of workers as a beat has them: those of the slots only where there is room.
fn bounded(mut workers: Map<String, Value>) -> Map<String, Value> {
    let mut bytes = 0;
    for worker in workers.values_mut() {
        bytes += worker.to_string().len();
        if bytes > BEAT_WORKERS_BYTES_MAX {
            worker["statistics"] = json!({});
        }
    }
    workers
}

/// A request of another host, whose times before now are by the clock of this one.
fn by_clock(mut request: Value, now: i64) -> Value {
    if let Some(ago) = request["start_ago"].as_i64() {
        let (start, stop) = (now.saturating_sub(ago), request["stop"].as_i64());
        let shift = start.saturating_sub(request["start"].as_i64().unwrap_or(start));
        request["start"] = start.into();
        request["stop"] = stop.map(|stop| stop.saturating_add(shift)).into();
    }
    if let Some(ago) = request["stop_ago"].as_i64() {
        request["stop"] = now.saturating_sub(ago).into();
    }
    request
}
