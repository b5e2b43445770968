//! One port of a source: its socket, the board that sends to it, and what is known of the board's messages.

use crate::account::{Fate, HeldMessage, NumberAccount, known_numberings};
use crate::framing::{Cut, Framing, Number, Read};
use crate::limits::{BATCH as DATAGRAMS, DEAF, FOREIGN_BYTES, FOREIGN_DATAGRAMS, LIVES_MAX, NUMBERINGS_MAX};
use crate::numbers::Sign;
use crate::owner::{Owner, Sender};
use crate::plan::{Address, Plan};
use crate::socket::{self, Batch};
use crate::stamped::Stamped;
use flow::{Fault, Outlet, Pushed, Resume};
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, RawFd};
use store::Meta;

/// The state that the ports of a source share in one step.
pub(crate) struct Turn<'a> {
    pub(crate) plan: &'a Plan,
    /// ns since 1970 UTC.
    pub(crate) now: i64,
    pub(crate) out: &'a mut dyn Outlet,
    pub(crate) foreign: &'a mut ForeignDatagrams,
    /// Messages of one datagram.
    pub(crate) cuts: &'a mut Vec<Cut>,
    /// A message found no room.
    pub(crate) is_full: bool,
}

/// Datagrams in a row of which no message was made.
#[derive(Default)]
struct Deaf {
    /// There was a message, or a sign of life of the board.
    is_begun: bool,
    datagrams: u64,
    /// When the first of them came, ns.
    since: i64,
}

impl Deaf {
    fn see(&mut self, has_message: bool, now: i64) {
        match (has_message, self.datagrams) {
            (true, _) => (self.is_begun, self.datagrams) = (true, 0),
            (false, 0) => (self.datagrams, self.since) = (1, now),
            (false, _) => self.datagrams += 1,
        }
    }
}

/// Foreign datagrams to be set aside at the end of the step, and how many were of each reason.
#[derive(Default)]
pub(crate) struct ForeignDatagrams {
    pub(crate) kept: Vec<(&'static str, String, Vec<u8>)>,
    counts: BTreeMap<&'static str, usize>,
    /// Bytes of all that were set aside.
    bytes: usize,
}

impl ForeignDatagrams {
    /// Keeps a datagram, if it is one of the first of its reason.
    fn keep(&mut self, reason: &'static str, sender: Option<IpAddr>, datagram: &[u8]) {
        let count = self.counts.entry(reason).or_default();
        if *count >= FOREIGN_DATAGRAMS || self.bytes + datagram.len() > FOREIGN_BYTES {
            return;
        }
        *count += 1;
        self.bytes += datagram.len();
        let from = sender.map_or(String::new(), |sender| format!(" from {sender}"));
        self.kept.push((reason, format!("a datagram of {} bytes{from}", datagram.len()), datagram.to_vec()));
    }
}

/// The counter of the kernel.
struct Counter {
    known: u32,
}

impl Counter {
    /// Adds what the kernel has dropped since the last look.
    fn read(&mut self, socket: &UdpSocket, all: &mut [NumberAccount]) {
        // It cannot fail on a socket of ours; then drops are counted as lost in the network.
        if let Ok(drops) = socket::drops(socket) {
            let new = u64::from(drops.wrapping_sub(self.known));
            all.iter_mut().for_each(|account| account.numbers.drop_in_kernel(new));
            self.known = drops;
        }
    }
}

/// A port that listens.
pub(crate) struct Port {
    address: Address,
    /// Name of the source, and how faults name the port.
    source: String,
    title: String,
    socket: UdpSocket,
    counter: Counter,
    /// One for each numbering of the board, by their numbers; the first is always there.
    accounts: Vec<NumberAccount>,
    stamped: Stamped,
    framing: Box<dyn Framing>,
    /// Datagrams that the next call asks for.
    asked: usize,
    owner: Owner,
    /// A message was made of the datagram at hand.
    has_message: bool,
    deaf: Deaf,
}

impl Port {
    /// Listens. The second answer: the bytes of the socket's buffer.
    pub(crate) fn listen(plan: &Plan, address: &Address, now: i64, resume: &Resume) -> Result<(Self, u64), Fault> {
        let cannot = |error: std::io::Error| cannot_listen(plan, address, &error);
        let socket = socket::listen(address.at, plan.interface.as_deref(), plan.gro).map_err(cannot)?;
        let got = socket::set_buffer(&socket, plan.buffer).map_err(cannot)?;
        let framing = plan.framing.build(&address.origin)?;
        let known = known_numberings(&address.origin, framing.numbering_word(), resume);
        let of = (&*address.origin, plan.reorder, framing.as_ref());
        let accounts = known.into_iter().map(|numbering| NumberAccount::new(of, numbering, now, resume)).collect();
        let known = resume.origins.iter().find(|origin| origin.name == address.origin);
        let title = match plan.ports.len() {
            1 => format!("source `{}`", plan.name),
            _ => format!("port {} of source `{}`", address.at.port(), plan.name),
        };
        let port = Self {
            source: plan.name.clone(),
            title,
            counter: Counter { known: socket::drops(&socket).map_err(cannot)? },
            address: address.clone(),
            socket,
            accounts,
            stamped: Stamped(known.map(|known| known.last_time)),
            framing,
            asked: 2,
            owner: Owner::default(),
            has_message: false,
            deaf: Deaf::default(),
        };
        Ok((port, got))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The number of the detector in the newest datagram; 0 where the framing has none.
    pub(crate) fn stream(&self) -> u16 {
        self.framing.stream()
    }

    pub(crate) fn accounts(&self) -> &[NumberAccount] {
        &self.accounts
    }

    /// When a missing number is lost, and the time up to which no number is missing; none: none is.
    pub(crate) fn missing(&self) -> Option<(i64, i64)> {
        let of = |account: &NumberAccount| Some((account.numbers.due()?, account.numbers.complete_to()?));
        self.accounts.iter().filter_map(of).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)))
    }

    /// Datagrams came, and nothing of them was a message.
    pub(crate) fn absent(&self) -> Option<Fault> {
        if self.deaf.is_begun { None } else { self.deaf_fault() }
    }

    /// Takes what the socket has, about `most` datagrams; how many. Messages are copied into the stream while they
    /// are in the cache, with stores that bypass it: received into stream memory, each would wait for that.
    pub(crate) fn receive(&mut self, batch: &mut Batch, most: usize, turn: &mut Turn<'_>) -> Result<usize, Fault> {
        let mut taken = 0;
        while taken < most {
            let count = batch.receive(&self.socket, self.asked, turn.plan.gro);
            let count = count.map_err(|error| Fault::io(format!("cannot read from {}", self.address.at), &error))?;
            for at in 0..count {
                for part in batch.datagrams(at) {
                    taken += 1;
                    self.read_datagram(batch, (at, part), turn)?;
                }
            }
            if !batch.was_full(count) {
                // One more than comes: a second, empty call would cost as much as the first.
                self.asked = (count + 1).clamp(2, DATAGRAMS);
                break;
            }
            self.asked = (2 * self.asked).min(DATAGRAMS);
        }
        Ok(taken)
    }

    /// Reads the counter of the kernel, and files what is missing for too long. `is_drained`: the socket had no more.
    pub(crate) fn report_missing(&mut self, is_drained: bool, turn: &mut Turn<'_>) -> Result<(), Fault> {
        if let Some(name) = &turn.plan.interface {
            let has = socket::has_interface(&self.socket, name);
            has.map_err(|error| cannot_listen(turn.plan, &self.address, &error))?;
        }
        self.counter.read(&self.socket, &mut self.accounts);
        for at in 0..self.accounts.len() {
            let account = &mut self.accounts[at];
            account.numbers.find_lost(turn.now, is_drained, &mut account.lost);
            self.report_lost(at, turn.out)?;
        }
        Ok(())
    }

    /// Puts all that is missing into the account.
    pub(crate) fn close(&mut self, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.counter.read(&self.socket, &mut self.accounts);
        for at in 0..self.accounts.len() {
            let account = &mut self.accounts[at];
            if account.numbers.dismiss() {
                account.refuse("number", out)?;
            }
            account.numbers.find_lost(i64::MAX, false, &mut account.lost);
            self.report_lost(at, out)?;
        }
        Ok(())
    }

    /// The fault of the datagrams that come, at `now`.
    pub(crate) fn fault(&self, now: i64) -> Option<Fault> {
        let (most, patience) = DEAF;
        let is_deaf = self.deaf.datagrams >= most && now.saturating_sub(self.deaf.since) >= patience;
        let counted = self.accounts.iter().find(|account| account.is_counted_here).map(|account| {
            let what = format!("the losses of `{}` are not known any more", account.name);
            let cause = format!("it has begun to count again {LIVES_MAX} times");
            Fault::new(what, cause).hint("begin another data folder")
        });
        let deaf = is_deaf.then(|| self.deaf_fault()).flatten();
        deaf.or_else(|| self.owner.fault(&self.title, now)).or(counted)
    }

    /// Nothing of what comes is a message; none where nothing came.
    fn deaf_fault(&self) -> Option<Fault> {
        if self.deaf.datagrams == 0 {
            return None;
        }
        let counts = &self.accounts.first()?.counts;
        let words: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let what = format!("{} has refused the last {} datagrams", self.title, self.deaf.datagrams);
        let hint =
            format!("check `framing` and who sends; `beamport cat {}.aside --json` shows some of them", self.source);
        Some(Fault::new(what, format!("so far {}", words.join(", "))).hint(hint))
    }

    /// Makes messages of the datagram in this part of place `at`.
    fn read_datagram(
        &mut self,
        batch: &Batch,
        (at, part): (usize, Range<usize>),
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        let datagram = &batch.bytes(at)[part];
        if !may_send(batch, at, turn.plan) {
            turn.foreign.keep("sender", batch.sender(at), datagram);
            return self.accounts[0].refuse("sender", turn.out);
        }
        self.accounts[0].datagrams += 1;
        self.accounts[0].bytes += datagram.len() as u64;
        let mut cuts = std::mem::take(turn.cuts);
        cuts.clear();
        let read = self.framing.cut(datagram, &mut cuts);
        let is_numbered = cuts.iter().any(|cut| matches!(cut.number, Number::Board { .. }));
        let sender = Sender { address: batch.sender(at), stream: self.framing.stream() };
        if (is_numbered || matches!(read, Read::Next(..))) && !self.owner.accepts(sender, turn.now) {
            *turn.cuts = cuts;
            turn.foreign.keep("stranger", sender.address, datagram);
            return self.accounts[0].refuse("stranger", turn.out);
        }
        if let Read::Refused { reason, .. } = read {
            turn.foreign.keep(reason, sender.address, datagram);
        }
        let is_sign_of_life = cuts.is_empty() && !matches!(read, Read::Refused { .. });
        self.has_message = false;
        for cut in &cuts {
            self.message(cut, datagram, turn)?;
        }
        *turn.cuts = cuts;
        self.end_datagram(read, sender.address, turn)?;
        self.deaf.see(self.has_message || is_sign_of_life, turn.now);
        Ok(())
    }

    /// Accounts for what a datagram is beside the messages in it.
    fn end_datagram(&mut self, read: Read, address: Option<IpAddr>, turn: &mut Turn<'_>) -> Result<(), Fault> {
        let account = &mut self.accounts[0];
        match read {
            Read::Whole => {}
            Read::Refused { reason, is_damaged } => {
                account.refuse(reason, turn.out)?;
                // Datagrams of others explain no loss.
                if is_damaged && self.owner.is_at(address) {
                    self.accounts.iter_mut().for_each(|account| account.numbers.damage());
                }
            }
            Read::Next(number, stamp) => match self.stamped.time_of(stamp, turn.plan, turn.now)? {
                None => account.refuse("time", turn.out)?,
                Some(time) => match account.numbers.announce(number, time, turn.now) {
                    Sign::Restart => {
                        if account.restart(turn.out)? {
                            account.numbers.announce(number, time, turn.now);
                        }
                    }
                    Sign::Doubt => account.refuse("number", turn.out)?,
                    Sign::New | Sign::Duplicate | Sign::Late => {}
                },
            },
        }
        self.accounts[0].settle();
        self.release(0, turn)
    }

    /// Takes a message of a datagram.
    fn message(&mut self, cut: &Cut, datagram: &[u8], turn: &mut Turn<'_>) -> Result<(), Fault> {
        let Some(at) = self.numbering(cut.numbering, turn) else {
            turn.foreign.keep("origin", None, datagram);
            return self.accounts[0].refuse("origin", turn.out);
        };
        match self.stamped.time_of(cut.stamp, turn.plan, turn.now)? {
            Some(time) => self.timed(at, cut, (time, datagram), turn)?,
            None => return self.accounts[at].refuse("time", turn.out),
        }
        self.release(at, turn)
    }

    /// Takes or refuses the message whose number was not believed, once the next one has said which.
    fn release(&mut self, at: usize, turn: &mut Turn<'_>) -> Result<(), Fault> {
        let Some((held, is_believed)) = self.accounts[at].settled.take() else { return Ok(()) };
        let HeldMessage { cut, time, datagram } = held;
        if is_believed {
            return self.timed(at, &cut, (time, &datagram), turn);
        }
        turn.foreign.keep("number", None, &datagram);
        self.accounts[at].refuse("number", turn.out)
    }

    /// Takes a message of this source time.
    fn timed(
        &mut self,
        at: usize,
        cut: &Cut,
        (time, datagram): (i64, &[u8]),
        turn: &mut Turn<'_>,
    ) -> Result<(), Fault> {
        let account = &mut self.accounts[at];
        let number = match account.fate(cut.number, self.framing.as_ref(), (time, turn.now), turn.out)? {
            Fate::Number(number) => number,
            Fate::Held => {
                account.held = Some(HeldMessage { cut: cut.clone(), time, datagram: datagram.to_vec() });
                return Ok(());
            }
            Fate::Refused(reason) => return account.refuse(reason, turn.out),
        };
        if account.numbers.closes() {
            self.counter.read(&self.socket, &mut self.accounts);
            let account = &mut self.accounts[at];
            account.numbers.close(&mut account.lost);
            self.report_lost(at, turn.out)?;
        }
        let origin = self.accounts[at].row(turn.out)?;
        let meta = Meta { source_time: time, origin, origin_seq: number, schema: cut.schema, flags: cut.flags };
        let payload = &datagram[cut.payload.clone()];
        self.has_message = true;
        let head = self.framing.head(number, payload.len());
        let pushed = if head.is_empty() {
            // Its checksum is computed while it is in the cache: the copy then bypasses that.
            let crc = cut.crc.unwrap_or_else(|| store::crc32c(payload));
            turn.out.push_checked(&meta, payload, crc)?
        } else {
            turn.out.push_parts(&meta, &[head, payload])?
        };
        if pushed != Pushed::Taken {
            // The board does not wait: the next datagram would be lost in its place.
            turn.is_full = true;
            turn.out.missing(origin, number..=number, time..=time, "full")?;
            self.accounts[at].count("full", 1);
        }
        Ok(())
    }

    /// The place of the account of a numbering, which is made on first use. None: there are too many.
    fn numbering(&mut self, numbering: u32, turn: &Turn<'_>) -> Option<usize> {
        if numbering == 0 {
            return Some(0);
        }
        let place = self.accounts.binary_search_by_key(&numbering, |account| account.numbering);
        if let Err(at) = place
            && self.accounts.len() < NUMBERINGS_MAX
        {
            let of = (&*self.address.origin, turn.plan.reorder, self.framing.as_ref());
            self.accounts.insert(at, NumberAccount::new(of, numbering, turn.now, &Resume::default()));
            return Some(at);
        }
        place.ok()
    }

    /// Puts lost numbers into the account. A loss that the counts of the port have explained explains nothing in
    /// another numbering.
    fn report_lost(&mut self, at: usize, out: &mut dyn Outlet) -> Result<(), Fault> {
        let spent = self.accounts[at].numbers.spent();
        let others = self.accounts.iter_mut().enumerate().filter(|(other, _)| *other != at);
        others.for_each(|(_, account)| account.numbers.spend(spent));
        self.accounts[at].report_lost(out)
    }
}

fn cannot_listen(plan: &Plan, address: &Address, error: &std::io::Error) -> Fault {
    let on = plan.interface.as_ref().map_or(String::new(), |name| format!(" on interface `{name}`"));
    let fault = Fault::io(format!("source `{}` cannot listen at {}{on}", plan.name, address.at), error);
    match error.kind() {
        _ if error.raw_os_error() == Some(libc::ENODEV) => fault.hint("`ip link` lists the interfaces"),
        std::io::ErrorKind::AddrInUse => fault.hint("each source needs a port of its own; `ss -ulpn` lists them"),
        std::io::ErrorKind::AddrNotAvailable => fault.hint("`ip address` lists the addresses of this machine"),
        _ => fault,
    }
}

/// Whether the sender of a datagram may send.
fn may_send(batch: &Batch, at: usize, plan: &Plan) -> bool {
    plan.allow.is_empty() || batch.sender(at).is_some_and(|sender| plan.allow.iter().any(|network| network.has(sender)))
}
