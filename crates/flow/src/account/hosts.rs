//! Accounts of the other hosts of an instrument: the account of a run is that of all of them.
//!
//! Each host sends the account of a run when it has sealed the run, and again when it has nothing left to do for it.
//! The others keep these in a book, `hosts.accounts`, so that whoever reads a data folder finds them. A mirror of a
//! stream has no entries of its own: it is compared with the messages that the host of the stream has counted.
//!
//! The hosts of a run are those of the file of the host that leads, when it has sealed the run. Each host records its
//! layout of then, and the host that leads sends its own with its account: a host that is added to the file later has
//! no part in the run, and its account does not wait for it.
//!
//! Constraints: a message of the book is found by its index entry, whose source time is the start of its run, so that
//! runs of years cost 64 B each.
//!
//! Failure behaviour: a host whose account is missing keeps that of the run from closing. A record that does not verify
//! is one that is missing.

use super::ledger::{self, Account};
use crate::book::{Book, Record};
use crate::data::{Data, stream_fault};
use crate::limits::{HOST_GAPS_MAX, LAYOUT_TIME};
use crate::records::Run;
use crate::{Fault, Keeps, runs};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use store::{Entry, ReadOptions, SchemaId, Stretch};
use wire::bprn::State;

/// The book with the hosts and their accounts.
const ACCOUNTS: &str = "hosts.accounts";

/// The hosts of an instrument, as one of them sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsLayout {
    /// The host of the data folder.
    pub host: String,
    /// All hosts; the first leads.
    pub hosts: Vec<String>,
    /// The host of each stream that is mirrored here, by name of the stream.
    pub mirrors: BTreeMap<String, String>,
    /// Hosts that share the work of workers: they have no accounts, and are in none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,
    /// Outputs of such workers that are gathered here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gathered: Vec<String>,
}

impl HostsLayout {
    /// Whether the messages of a stream entered the instrument on another host.
    #[must_use]
    pub fn is_from_others(&self, stream: &str) -> bool {
        self.mirrors.contains_key(stream) || self.is_gathered(stream)
    }

    /// Whether a stream is the output of a worker on other hosts.
    #[must_use]
    pub fn is_gathered(&self, stream: &str) -> bool {
        self.gathered.iter().any(|known| known == stream)
    }
}

/// How far a host has come with a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// Nothing is known of it.
    Missing,
    /// The run was sealed without it.
    Absent,
    /// It has sealed the run.
    Sealed,
    /// It has sealed the run, and finished its files.
    Done,
}

/// The account of a run on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAccount {
    /// Run.
    pub run: String,
    /// Its start, ns since 1970 UTC.
    pub start: i64,
    /// Host.
    pub host: String,
    /// How far the host has come.
    pub state: HostState,
    /// Messages of the run in each of its streams.
    pub streams: BTreeMap<String, u64>,
    /// Its account, without those of other hosts.
    pub account: Option<Account>,
    /// The layout in which it has sealed the run; none in what [`ledger`] returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<HostsLayout>,
}

impl HostAccount {
    /// The state of a host that has sent no account.
    #[must_use]
    pub fn without_account(run: &Run, host: &str, state: HostState) -> Self {
        Self {
            run: run.name.clone(),
            start: run.start,
            host: host.to_owned(),
            state,
            streams: BTreeMap::new(),
            account: None,
            layout: None,
        }
    }
}

/// The account of a mirror: `sent = received + missing`. A mirror that keeps its messages for longer than the original
/// may have more of a run that begins in the past.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirrored {
    /// Stream.
    pub stream: String,
    /// The host that fills it.
    pub host: String,
    /// Messages of the run in the stream; none where that host has not said so.
    pub sent: Option<u64>,
    /// Messages of the run that came into the mirror.
    pub received: u64,
    /// Those of them that it still had when they were counted.
    #[serde(default)]
    pub kept: u64,
    /// Messages that the mirror lacks.
    pub missing: u64,
}

struct Text<'a>(i64, &'a str);

impl Record for Text<'_> {
    const SCHEMA: SchemaId = SchemaId(*b"json");

    fn time(&self) -> i64 {
        self.0
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let parts = wire::json::JsonData { json: self.1 };
        wire::json::write(out, &parts).map_err(|e| Fault::new("an account cannot be coded", e))
    }
}

/// The book of one host, open for writing.
pub struct AccountBook {
    data: Data,
    book: Book,
}

impl AccountBook {
    /// Opens the book of a data folder, in which the hosts are those of `layout` from now on. Runs that are sealed keep
    /// the layout of before.
    pub fn open(data: &Data, layout: &HostsLayout) -> Result<Self, Fault> {
        let book = Book::open_settled(data, ACCOUNTS, Keeps::All)?;
        let mut accounts = Self { data: data.clone(), book };
        let former = self::layout(data)?;
        if former.as_ref() != Some(layout) {
            // Before the first layout, the instrument was on this host alone.
            let alone = || HostsLayout { hosts: vec![layout.host.clone()], ..HostsLayout::default() };
            let former = HostsLayout { host: layout.host.clone(), ..former.unwrap_or_else(alone) };
            accounts.record_sealed(&former)?;
            accounts.append(LAYOUT_TIME, layout)?;
            accounts.book.settle()?;
        }
        Ok(accounts)
    }

    /// Records the hosts of a run that this host has just sealed: those of the present layout. Once: a later layout
    /// changes nothing.
    pub fn seal(&mut self, run: &Run) -> Result<(), Fault> {
        let Some(layout) = layout(&self.data)? else { return Ok(()) };
        let known = host_accounts(&self.data, run)?;
        if known.iter().any(|known| known.host == layout.host && known.layout.is_some()) {
            return Ok(());
        }
        self.record(run, &layout)
    }

    fn record(&mut self, run: &Run, layout: &HostsLayout) -> Result<(), Fault> {
        let of = HostAccount::without_account(run, &layout.host, HostState::Sealed);
        self.append(run.start, &HostAccount { layout: Some(layout.clone()), ..of })
    }

    /// Records this layout for the sealed runs that have none: the process was killed before it recorded theirs, or an
    /// earlier version sealed them.
    fn record_sealed(&mut self, layout: &HostsLayout) -> Result<(), Fault> {
        let mut known = HashSet::new();
        newest(&self.data, None, &mut |text| {
            let of_run = serde_json::from_str::<HostAccount>(text).ok().filter(|of| of.host == layout.host);
            known.extend(of_run.map(|of| (of.run, of.start)));
            false
        })?;
        let runs = runs::runs(&self.data)?;
        let is_recorded = |run: &&Run| known.contains(&(run.name.clone(), run.start));
        for run in runs.iter().filter(|run| run.state == State::Sealed && !is_recorded(run)) {
            self.record(run, layout)?;
        }
        Ok(())
    }

    /// When the book was made, ns since 1970 UTC: the instrument has had several hosts since then.
    pub fn created(&self) -> i64 {
        self.book.writer().header().created
    }

    /// Keeps the account of a host. True if it is new: one that says no more than what is there is not kept.
    pub fn keep(&mut self, account: &HostAccount) -> Result<bool, Fault> {
        let known = accounts_of(&self.data, &account.run, account.start)?;
        let known = known.into_iter().find(|known| known.host == account.host);
        let is_new = known.is_none_or(|known| known != *account && known.state <= account.state);
        if is_new {
            self.append(account.start, account)?;
        }
        Ok(is_new)
    }

    fn append(&mut self, time: i64, record: &impl Serialize) -> Result<(), Fault> {
        let text = serde_json::to_string(record).map_err(|e| Fault::new("an account cannot be coded", e))?;
        self.book.append(&Text(time, &text)).map(drop)
    }
}

/// Reads the messages of a source time (none: all), newest first, until `see` has seen enough.
fn newest(data: &Data, time: Option<i64>, see: &mut dyn FnMut(&str) -> bool) -> Result<(), Fault> {
    if !data.has(ACCOUNTS)? {
        return Ok(());
    }
    let fault = |e| stream_fault(ACCOUNTS, e);
    let mut reader = data.reader(ACCOUNTS, ReadOptions { early: true, ..ReadOptions::default() })?;
    let mut found: Vec<u64> = Vec::new();
    let (first, end) = (reader.bounds().first, reader.end());
    let mut at = first;
    while at < end {
        match reader.next_entries(at, (end - at) as usize).map_err(fault)? {
            Stretch::Messages([]) => break,
            Stretch::Messages(entries) => {
                let is_wanted = |(_, entry): &(usize, &Entry)| time.is_none_or(|time| entry.source_time == time);
                found.extend(entries.iter().enumerate().filter(is_wanted).map(|(offset, _)| at + offset as u64));
                at += entries.len() as u64;
            }
            Stretch::Missing(missing) => at = missing.next.max(at + 1),
        }
    }
    for sequence in found.into_iter().rev() {
        reader.seek(sequence);
        let Stretch::Messages(batch) = reader.next(1).map_err(fault)? else { continue };
        let Some(message) = batch.get(sequence) else { continue };
        if let Ok(text) = wire::json::read(message.payload)
            && see(text.json)
        {
            break;
        }
    }
    Ok(())
}

/// The hosts of the instrument of a data folder; none where it runs on one machine.
pub fn layout(data: &Data) -> Result<Option<HostsLayout>, Fault> {
    let mut layout = None;
    newest(data, Some(LAYOUT_TIME), &mut |text| {
        layout = serde_json::from_str(text).ok();
        layout.is_some()
    })?;
    Ok(layout)
}

/// The newest accounts of a run that other hosts have sent, by host; of this host its layout of the run.
fn host_accounts(data: &Data, run: &Run) -> Result<Vec<HostAccount>, Fault> {
    accounts_of(data, &run.name, run.start)
}

fn accounts_of(data: &Data, run: &str, start: i64) -> Result<Vec<HostAccount>, Fault> {
    let mut found: BTreeMap<String, HostAccount> = BTreeMap::new();
    newest(data, Some(start), &mut |text| {
        if let Ok(account) = serde_json::from_str::<HostAccount>(text)
            && account.run == run
        {
            found.entry(account.host.clone()).or_insert(account);
        }
        false
    })?;
    Ok(found.into_values().collect())
}

/// The layout that this host has for a run, in which the hosts are those of the run: until the run is sealed, those of
/// the file.
fn layout_by(present: HostsLayout, known: &[HostAccount]) -> HostsLayout {
    let of = |host: &str| known.iter().find(|account| account.host == host).and_then(|of| of.layout.clone());
    let own = of(&present.host).unwrap_or(present);
    // Hosts may have had different files: that of the host that leads counts.
    match own.hosts.first().and_then(|lead| of(lead)) {
        Some(HostsLayout { hosts, workers, .. }) => HostsLayout { hosts, workers, ..own },
        None => own,
    }
}

/// The layout of a run: see [`layout_by`]; none where the instrument runs on one machine.
pub fn layout_of(data: &Data, run: &Run) -> Result<Option<HostsLayout>, Fault> {
    let Some(present) = layout(data)? else { return Ok(None) };
    Ok(Some(layout_by(present, &host_accounts(data, run)?)))
}

/// The layout of a run, and its accounts on all other hosts, in the order of the file: one that has sent none is
/// [`HostState::Missing`]. None where the instrument runs on one machine.
fn others(data: &Data, run: &Run) -> Result<Option<(HostsLayout, Vec<HostAccount>)>, Fault> {
    let Some(present) = layout(data)? else { return Ok(None) };
    let known = host_accounts(data, run)?;
    let layout = layout_by(present, &known);
    let of = |host: &String| match known.iter().find(|account| account.host == *host) {
        Some(account) => HostAccount { layout: None, ..account.clone() },
        None => HostAccount::without_account(run, host, HostState::Missing),
    };
    let others = layout.hosts.iter().filter(|host| **host != layout.host).map(of).collect();
    Ok(Some((layout, others)))
}

/// The hosts that have not come as far as `state` with a run, in the order of the file.
pub fn waits_for(data: &Data, run: &Run, state: HostState) -> Result<Vec<String>, Fault> {
    let Some((_, others)) = others(data, run)? else { return Ok(Vec::new()) };
    let is_behind = |account: &HostAccount| account.state < state && account.state != HostState::Absent;
    Ok(others.into_iter().filter(is_behind).map(|account| account.host).collect())
}

/// The account of a run on this host, to be sent to the others. `sinks`: those that have finished it.
pub fn own(data: &Data, run: &Run, sinks: &[String], state: HostState) -> Result<HostAccount, Fault> {
    let commits = ledger::last_commits(data, run, sinks)?;
    let mut account = ledger::local_account(data, run, &commits, sinks)?;
    account.gaps.truncate(HOST_GAPS_MAX);
    let mut streams = BTreeMap::new();
    for range in &run.streams {
        if !streams.contains_key(&range.stream) {
            streams.insert(range.stream.clone(), ledger::count(data, run, &range.stream)?.0);
        }
    }
    let host = layout(data)?.unwrap_or_default().host;
    let layout = host_accounts(data, run)?.into_iter().find(|of| of.host == host).and_then(|of| of.layout);
    let of = HostAccount::without_account(run, &host, state);
    Ok(HostAccount { streams, account: Some(account), layout, ..of })
}

/// Adds the accounts of the other hosts to that of this one.
pub(super) fn with_others(data: &Data, run: &Run, mut account: Account) -> Result<Account, Fault> {
    let Some((layout, others)) = others(data, run)? else { return Ok(account) };
    account.hosts = others;
    let counts = |host: &HostAccount| {
        let of = |(stream, n): (&String, &u64)| ((host.host.clone(), stream.clone()), *n);
        host.streams.iter().map(of).collect::<Vec<_>>()
    };
    let mut sent: BTreeMap<(String, String), u64> = account.hosts.iter().flat_map(counts).collect();
    let others = account.hosts.iter_mut().filter_map(|other| other.account.as_mut()).flat_map(|of| &mut of.mirrors);
    for mirror in account.mirrors.iter_mut().chain(others) {
        let place = (mirror.host.clone(), mirror.stream.clone());
        if mirror.host == layout.host && !sent.contains_key(&place) && data.has(&mirror.stream)? {
            sent.insert(place.clone(), ledger::count(data, run, &mirror.stream)?.0);
        }
        mirror.sent = sent.get(&place).copied();
        // Where a short ring has replaced them, messages of just before the run are counted with it.
        mirror.received = mirror.sent.map_or(mirror.received, |sent| mirror.received.min(sent.max(mirror.kept)));
        mirror.missing = mirror.sent.unwrap_or(0).saturating_sub(mirror.received);
    }
    account.add_hosts();
    Ok(account)
}

/// One past the sequence in the near stream up to which a mirror repeats it; none where it has nothing yet.
pub fn mirrored_to(data: &Data, stream: &str) -> Result<Option<u64>, Fault> {
    let mut reader = data.reader_early(stream)?;
    let Some(last) = reader.bounds().count.checked_sub(1) else { return Ok(None) };
    let entries = reader.entries(last, 1).map_err(|e| stream_fault(stream, e))?;
    Ok(entries.first().map(|entry| entry.parent_sequence + 1))
}

impl Account {
    /// Adds what the other hosts have lost, and whether their accounts close.
    fn add_hosts(&mut self) {
        let missing = |mirrors: &[Mirrored]| ledger::total(mirrors.iter().map(|mirror| &mirror.missing));
        let is_known = |mirrors: &[Mirrored]| mirrors.iter().all(|mirror| mirror.sent.is_some());
        self.lost = self.lost.saturating_add(missing(&self.mirrors));
        self.closed &= is_known(&self.mirrors);
        for other in &self.hosts {
            match &other.account {
                Some(account) => {
                    self.lost = self.lost.saturating_add(account.lost).saturating_add(missing(&account.mirrors));
                    // Its files may still be written.
                    self.closed &= account.closed && is_known(&account.mirrors) && other.state == HostState::Done;
                }
                None => self.closed = false,
            }
        }
    }

    /// The hosts without which the run was sealed, and those that have not sent their accounts.
    pub fn hosts_missing(&self) -> impl Iterator<Item = &HostAccount> {
        self.hosts.iter().filter(|host| host.account.is_none())
    }
}
