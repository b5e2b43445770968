//! The source: takes the datagrams of a port, and makes messages of them.

use crate::framing::{Beamport, Cut, Ess, Framing, Geb, Hadaq, Number, Raw, Read, Stamp, nearest};
use crate::limits::{
    BATCH as DATAGRAMS, DEAF, ESS_QUEUES, FILE_PAUSE, FULL_PAUSE, IDLE_PAUSE, LIVES_MAX, STEP_DATAGRAMS, STRANGERS,
    STRANGERS_BYTES,
};
use crate::numbers::{Lost, Numbers, Sign};
use crate::owner::{Owner, Sender};
use crate::section::{FramingWord, Plan};
use crate::socket::{self, Batch};
use crate::throttle::Control;
use crate::zero::ZeroWord;
use flow::{Fault, Outlet, Pushed, Resume, Source, Step};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;
use store::Meta;

thread_local! {
    /// Sources of one thread use it in turns.
    static BATCH: RefCell<Batch> = RefCell::new(Batch::new());
}

/// A source of kind `udp`.
pub(crate) struct Udp {
    plan: Plan,
    open: Option<Open>,
    /// What the next step fails with: the one before has still put into the account what was missing.
    fault: Option<Fault>,
}

impl Udp {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { plan, open: None, fault: None }
    }
}

impl Source for Udp {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.open = Some(Open::start(&self.plan, now, resume)?);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let Some(open) = &mut self.open else { return Ok(Step::Ended) };
        open.step(&self.plan, now, out).or_else(|fault| {
            // The socket is given up: nothing fills its holes any more.
            open.close(now, out)?;
            self.fault = Some(fault);
            Ok(Step::Again)
        })
    }

    fn stop(&mut self, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.open.as_mut().map_or(Ok(()), |open| open.close(now, out))
    }

    fn frontier(&self, now: i64) -> i64 {
        let books = self.open.iter().flat_map(|open| &open.books);
        books.filter_map(|books| books.numbers.complete_to()).fold(now, i64::min)
    }

    fn trouble(&self) -> Option<Fault> {
        let open = self.open.as_ref()?;
        let throttle = open.throttle.as_ref().and_then(Control::fault);
        open.wrong.as_ref().or(throttle).or(open.trouble.as_ref()).cloned()
    }

    fn absent(&self) -> Option<Fault> {
        let open = self.open.as_ref()?;
        if open.deaf.is_begun { None } else { open.deaf_fault(&self.plan.name) }
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, Open::status)
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.socket.as_raw_fd())
    }

    fn pause(&self) -> Duration {
        Duration::from_nanos(self.plan.drain.unsigned_abs())
    }
}

/// What there is after a start.
struct Open {
    socket: UdpSocket,
    counter: Counter,
    /// One for each numbering of the board; the first is always there.
    books: Vec<Books>,
    stamped: Stamped,
    trouble: Option<Fault>,
    framing: Box<dyn Framing>,
    throttle: Option<Control>,
    /// How full the memory of the stream was lately, 0 to 1, and when it was read, ns.
    fill: (f64, i64),
    /// Messages of one datagram.
    cuts: Vec<Cut>,
    /// Datagrams that the next call asks for.
    asked: usize,
    /// A message found no room in this step.
    is_full: bool,
    strangers: Strangers,
    owner: Owner,
    /// A message was made of the datagram at hand.
    has_message: bool,
    deaf: Deaf,
    /// What is wrong with what comes.
    wrong: Option<Fault>,
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
struct Strangers {
    kept: Vec<(&'static str, String, Vec<u8>)>,
    counts: BTreeMap<&'static str, usize>,
    /// Bytes of all that were set aside.
    bytes: usize,
}

impl Strangers {
    /// Keeps a datagram, if it is one of the first of its reason.
    fn keep(&mut self, reason: &'static str, sender: Option<IpAddr>, datagram: &[u8]) {
        let count = self.counts.entry(reason).or_default();
        if *count >= STRANGERS || self.bytes + datagram.len() > STRANGERS_BYTES {
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
    /// When it was read, ns.
    read: i64,
}

impl Counter {
    /// Adds what the kernel has dropped since the last look.
    fn read(&mut self, socket: &UdpSocket, now: i64, all: &mut [Books]) {
        // It cannot fail on a socket of ours; then drops are counted as lost in the network.
        if let Ok(drops) = socket::drops(socket) {
            let new = u64::from(drops.wrapping_sub(self.known));
            all.iter_mut().for_each(|books| books.numbers.drop_in_kernel(new));
            self.known = drops;
        }
        self.read = now;
    }
}

/// What is known of the messages of the board.
struct Books {
    name: String,
    /// Number of the numbering.
    queue: u8,
    numbers: Numbers,
    /// From 1.
    life: u32,
    /// The origin of this life in the stream.
    row: Option<u32>,
    /// There are no more lives: the receiver counts.
    is_counted_here: bool,
    /// The message whose number is not believed yet.
    held: Option<HeldMessage>,
    /// One of which the next has said whether it is.
    settled: Option<(HeldMessage, bool)>,
    /// Numbers that are lost and not in the account yet: empty between two messages.
    lost: Vec<Lost>,
    datagrams: u64,
    bytes: u64,
    counts: BTreeMap<&'static str, u64>,
}

/// What becomes of a message.
enum Fate {
    /// It has this number in the stream.
    Number(u64),
    /// Its number is not believed yet.
    Held,
    /// It is refused for this reason.
    Refused(&'static str),
}

/// A message whose number is not believed yet, and its datagram.
struct HeldMessage {
    cut: Cut,
    time: i64,
    datagram: Vec<u8>,
}

impl Open {
    fn start(plan: &Plan, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let cannot = |error: std::io::Error| cannot_listen(plan, &error);
        let socket = socket::listen(plan.listen, plan.interface.as_deref(), plan.gro).map_err(cannot)?;
        let got = socket::set_buffer(&socket, plan.buffer).map_err(cannot)?;
        let trouble = (got < plan.buffer).then(|| {
            let what = format!("source `{}` has a socket buffer of {got} bytes, not {}", plan.name, plan.buffer);
            Fault::new(what, "the kernel allows no larger one")
                .hint(format!("sysctl -w net.core.rmem_max={}", plan.buffer))
        });
        let framing: Box<dyn Framing> = match plan.framing {
            FramingWord::Beamport => Box::<Beamport>::default(),
            FramingWord::Ess => Box::new(Ess::new(&plan.name)),
            FramingWord::Geb => Box::new(Geb),
            FramingWord::Hadaq => Box::new(Hadaq),
            FramingWord::Raw => Box::new(Raw(plan.schema)),
        };
        let is_known = |queue: &u8| {
            let name = origin_of(&plan.name, *queue);
            *queue == 0 || resume.origins.iter().any(|origin| origin.name == name)
        };
        let new = |queue| Books::new((plan, framing.as_ref()), queue, now, resume);
        let books: Vec<Books> = (0..ESS_QUEUES as u8).filter(is_known).map(new).collect();
        let known = resume.origins.iter().find(|origin| origin.name == plan.name);
        let stamped = Stamped(known.map(|known| known.last_time));
        let counter = Counter { known: socket::drops(&socket).map_err(cannot)?, read: now };
        let throttle = plan.throttle.map(|throttle| Control::open(&plan.name, throttle)).transpose()?;
        let (cuts, strangers) = Default::default();
        Ok(Self {
            socket,
            counter,
            books,
            stamped,
            trouble,
            framing,
            throttle,
            fill: (0.0, i64::MIN),
            cuts,
            asked: 2,
            is_full: false,
            strangers,
            owner: Owner::default(),
            has_message: false,
            deaf: Deaf::default(),
            wrong: None,
        })
    }

    fn step(&mut self, plan: &Plan, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let taken = BATCH.with_borrow_mut(|batch| self.receive(batch, plan, now, out))?;
        for (reason, text, datagram) in self.strangers.kept.drain(..) {
            out.aside(reason, &text, now, &datagram);
        }
        let stream = self.framing.stream();
        let held = self.throttle.as_mut().and_then(|throttle| throttle.step(stream, now, out));
        let since = now.saturating_sub(self.counter.read);
        // The clock of the machine may have been set.
        if !(0..FILE_PAUSE).contains(&since) {
            if let Some(name) = &plan.interface {
                socket::has_interface(&self.socket, name).map_err(|error| cannot_listen(plan, &error))?;
            }
            self.counter.read(&self.socket, now, &mut self.books);
            if !(0..IDLE_PAUSE).contains(&now.saturating_sub(self.fill.1)) {
                self.fill = (out.fill(), now);
            }
            self.wrong = self.fault(plan, now);
            for at in 0..self.books.len() {
                let books = &mut self.books[at];
                books.numbers.file(now, taken < STEP_DATAGRAMS, &mut books.lost);
                self.file(at, out)?;
            }
        }
        if taken >= STEP_DATAGRAMS {
            return Ok(Step::Again);
        }
        let pause = match self.books.iter().filter_map(|books| books.numbers.due()).min() {
            // No descriptor wakes it then.
            _ if self.is_full => FULL_PAUSE,
            Some(due) => due.saturating_sub(now).clamp(FILE_PAUSE, IDLE_PAUSE),
            None => IDLE_PAUSE,
        };
        let pause = held.map_or(pause, |held| pause.min(held));
        Ok(Step::At(now.saturating_add(pause)))
    }

    /// Puts all that is missing into the account, and the dead time so far.
    fn close(&mut self, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.counter.read(&self.socket, now, &mut self.books);
        if let Some(throttle) = &mut self.throttle {
            throttle.file(now, out);
        }
        for at in 0..self.books.len() {
            let books = &mut self.books[at];
            if books.numbers.dismiss() {
                books.refuse("number", out)?;
            }
            books.numbers.file(i64::MAX, false, &mut books.lost);
            self.file(at, out)?;
        }
        Ok(())
    }

    /// What is wrong with what comes, at `now`.
    fn fault(&self, plan: &Plan, now: i64) -> Option<Fault> {
        let (most, patience) = DEAF;
        let is_deaf = self.deaf.datagrams >= most && now.saturating_sub(self.deaf.since) >= patience;
        let counted = self.books.iter().find(|books| books.is_counted_here).map(|books| {
            let what = format!("the losses of `{}` are not known any more", books.name);
            let cause = format!("it has begun to count again {LIVES_MAX} times");
            Fault::new(what, cause).hint("begin another data folder")
        });
        let deaf = is_deaf.then(|| self.deaf_fault(&plan.name)).flatten();
        deaf.or_else(|| self.owner.fault(&plan.name, now)).or(counted)
    }

    /// Nothing of what comes is a message; none where nothing came.
    fn deaf_fault(&self, source: &str) -> Option<Fault> {
        if self.deaf.datagrams == 0 {
            return None;
        }
        let counts = &self.books.first()?.counts;
        let words: Vec<String> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let what = format!("source `{source}` has refused the last {} datagrams", self.deaf.datagrams);
        let hint = format!("check `framing` and who sends; `beamport cat {source}.aside --json` shows some of them");
        Some(Fault::new(what, format!("so far {}", words.join(", "))).hint(hint))
    }

    fn status(&self) -> Value {
        let mut status = status_of(&self.books);
        if let Some(status) = status.as_object_mut() {
            status.insert("fill".into(), json!(self.fill.0));
        }
        if let (Some(throttle), Some(status)) = (&self.throttle, status.as_object_mut()) {
            status.insert("dead_time".into(), json!(throttle.dead() as f64 / 1e9));
            status.insert("throttle_frames".into(), json!(throttle.frames()));
        }
        status
    }

    /// Takes what the socket has; how many datagrams. Messages are copied into the stream while they are in the cache,
    /// with stores that bypass it: received into stream memory, each would wait for that.
    fn receive(&mut self, batch: &mut Batch, plan: &Plan, now: i64, out: &mut dyn Outlet) -> Result<usize, Fault> {
        let mut taken = 0;
        self.is_full = false;
        while taken < STEP_DATAGRAMS {
            let count = batch.receive(&self.socket, self.asked, plan.gro);
            let count = count.map_err(|error| Fault::io(format!("cannot read from {}", plan.listen), &error))?;
            for at in 0..count {
                for part in batch.datagrams(at) {
                    taken += 1;
                    self.take(batch, (at, part), plan, now, out)?;
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

    /// Takes the datagram in this part of place `at`.
    fn take(
        &mut self,
        batch: &Batch,
        (at, part): (usize, Range<usize>),
        plan: &Plan,
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let datagram = &batch.bytes(at)[part];
        if !may_send(batch, at, plan) {
            self.strangers.keep("sender", batch.sender(at), datagram);
            return self.books[0].refuse("sender", out);
        }
        self.books[0].datagrams += 1;
        self.books[0].bytes += datagram.len() as u64;
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.clear();
        let read = self.framing.cut(datagram, &mut cuts);
        let is_numbered = cuts.iter().any(|cut| matches!(cut.number, Number::Board { .. }));
        let sender = Sender { address: batch.sender(at), stream: self.framing.stream() };
        if (is_numbered || matches!(read, Read::Next(..))) && !self.owner.accepts(sender, now) {
            self.cuts = cuts;
            self.strangers.keep("stranger", sender.address, datagram);
            return self.books[0].refuse("stranger", out);
        }
        if let Read::Refused { reason, .. } = read {
            self.strangers.keep(reason, sender.address, datagram);
        }
        let is_sign_of_life = cuts.is_empty() && !matches!(read, Read::Refused { .. });
        self.has_message = false;
        for cut in &cuts {
            self.message(cut, datagram, plan, now, out)?;
        }
        self.cuts = cuts;
        self.note(read, sender.address, plan, now, out)?;
        self.deaf.see(self.has_message || is_sign_of_life, now);
        Ok(())
    }

    /// Notes what a datagram is beside the messages in it.
    fn note(
        &mut self,
        read: Read,
        address: Option<IpAddr>,
        plan: &Plan,
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let books = &mut self.books[0];
        match read {
            Read::Whole => {}
            Read::Refused { reason, is_damaged } => {
                books.refuse(reason, out)?;
                // What others send explains no loss.
                if is_damaged && self.owner.is_at(address) {
                    self.books.iter_mut().for_each(|books| books.numbers.damage());
                }
            }
            Read::Next(number, stamp) => match self.stamped.time_of(stamp, plan, now)? {
                None => books.refuse("time", out)?,
                Some(time) => match books.numbers.announce(number, time, now) {
                    Sign::Restart => {
                        if books.restart(out)? {
                            books.numbers.announce(number, time, now);
                        }
                    }
                    Sign::Doubt => books.refuse("number", out)?,
                    Sign::New | Sign::Duplicate | Sign::Late => {}
                },
            },
        }
        self.books[0].settle();
        self.release(0, now, out)
    }

    /// Takes a message of a datagram.
    fn message(
        &mut self,
        cut: &Cut,
        datagram: &[u8],
        plan: &Plan,
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let at = self.numbering(cut.queue, plan, now);
        match self.stamped.time_of(cut.stamp, plan, now)? {
            Some(time) => self.timed(at, cut, (time, datagram), now, out)?,
            None => return self.books[at].refuse("time", out),
        }
        self.release(at, now, out)
    }

    /// Takes or refuses the message whose number was not believed, once the next one has said which.
    fn release(&mut self, at: usize, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let Some((held, is_believed)) = self.books[at].settled.take() else { return Ok(()) };
        let HeldMessage { cut, time, datagram } = held;
        if is_believed {
            return self.timed(at, &cut, (time, &datagram), now, out);
        }
        self.strangers.keep("number", None, &datagram);
        self.books[at].refuse("number", out)
    }

    /// Takes a message of this source time.
    fn timed(
        &mut self,
        at: usize,
        cut: &Cut,
        (time, datagram): (i64, &[u8]),
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<(), Fault> {
        let books = &mut self.books[at];
        let number = match books.fate(cut.number, self.framing.as_ref(), (time, now), out)? {
            Fate::Number(number) => number,
            Fate::Held => {
                books.held = Some(HeldMessage { cut: cut.clone(), time, datagram: datagram.to_vec() });
                return Ok(());
            }
            Fate::Refused(reason) => return books.refuse(reason, out),
        };
        if books.numbers.closes() {
            self.counter.read(&self.socket, now, &mut self.books);
            let books = &mut self.books[at];
            books.numbers.close(&mut books.lost);
            self.file(at, out)?;
        }
        let origin = self.books[at].row(out)?;
        let meta = Meta { source_time: time, origin, origin_seq: number, schema: cut.schema, flags: cut.flags };
        let payload = &datagram[cut.payload.clone()];
        self.has_message = true;
        let head = self.framing.head(number, payload.len());
        let pushed = match cut.crc {
            Some(crc) if head.is_empty() => out.push_checked(&meta, payload, crc)?,
            _ if head.is_empty() => out.push(&meta, payload)?,
            _ => out.push_parts(&meta, &[head, payload])?,
        };
        self.look(cut.queue, pushed, &meta, out)
    }

    /// Counts a message for which there was no room.
    fn look(&mut self, queue: u8, pushed: Pushed, meta: &Meta, out: &mut dyn Outlet) -> Result<(), Fault> {
        if pushed == Pushed::Taken {
            return Ok(());
        }
        // The board does not wait: the next datagram would be lost in its place.
        self.is_full = true;
        let (number, time) = (meta.origin_seq, meta.source_time);
        out.missing(meta.origin, number..=number, time..=time, "full")?;
        if let Some(books) = self.books.iter_mut().find(|books| books.queue == queue) {
            books.count("full", 1);
        }
        Ok(())
    }

    /// The place of the books of a numbering, which are made on first use.
    fn numbering(&mut self, queue: u8, plan: &Plan, now: i64) -> usize {
        self.books.iter().position(|books| books.queue == queue).unwrap_or_else(|| {
            self.books.push(Books::new((plan, self.framing.as_ref()), queue, now, &Resume::default()));
            self.books.len() - 1
        })
    }

    /// Puts lost numbers into the account. What the counts of the port have explained explains nothing in another
    /// numbering.
    fn file(&mut self, at: usize, out: &mut dyn Outlet) -> Result<(), Fault> {
        let spent = self.books[at].numbers.spent();
        let others = self.books.iter_mut().enumerate().filter(|(other, _)| *other != at);
        others.for_each(|(_, books)| books.numbers.spend(spent));
        self.books[at].file(out)
    }
}

fn cannot_listen(plan: &Plan, error: &std::io::Error) -> Fault {
    let at = plan.interface.as_ref().map_or(String::new(), |name| format!(" on interface `{name}`"));
    let fault = Fault::io(format!("source `{}` cannot listen at {}{at}", plan.name, plan.listen), error);
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

/// The name of the origin of a numbering: that of the source, and the number of the queue where it is not the first.
fn origin_of(source: &str, queue: u8) -> String {
    if queue == 0 { source.to_owned() } else { format!("{source}.q{queue}") }
}

impl Books {
    /// Of a numbering of the board.
    fn new((plan, framing): (&Plan, &dyn Framing), queue: u8, now: i64, resume: &Resume) -> Self {
        let name = origin_of(&plan.name, queue);
        let known = resume.origins.iter().find(|origin| origin.name == name);
        let (next, time) = known.map_or((None, now), |known| (Some(known.next_seq), known.last_time));
        Self {
            name,
            queue,
            numbers: Numbers::new(next, time, plan.reorder, framing.counter()),
            life: known.map_or(1, |known| known.life),
            row: None,
            is_counted_here: false,
            held: None,
            settled: None,
            lost: Vec::new(),
            datagrams: 0,
            bytes: 0,
            counts: BTreeMap::new(),
        }
    }

    /// The row of the origin.
    fn row(&mut self, out: &mut dyn Outlet) -> Result<u32, Fault> {
        if let Some(row) = self.row {
            return Ok(row);
        }
        let row = match self.life {
            1 => out.origin(&self.name)?,
            life => out.origin(&format!("{}#{life}", self.name))?,
        };
        Ok(*self.row.insert(row))
    }

    /// What becomes of a message, by its number. `times`: its source time, and now.
    fn fate(
        &mut self,
        number: Number,
        framing: &dyn Framing,
        (time, now): (i64, i64),
        out: &mut dyn Outlet,
    ) -> Result<Fate, Fault> {
        let (shown, mark) = match number {
            Number::Board { shown, mark } if !self.is_counted_here => (shown, mark),
            _ => return Ok(Fate::Number(self.numbers.count())),
        };
        let Some(mut number) = framing.number(self.numbers.last(), shown) else { return Ok(Fate::Refused("late")) };
        let mut sign = self.numbers.take(number, mark, time, now);
        self.settle();
        if sign == Sign::Restart {
            if !self.restart(out)? {
                // The data is worth more than the account.
                self.is_counted_here = true;
                return Ok(Fate::Number(self.numbers.count()));
            }
            number = shown;
            sign = self.numbers.take(number, mark, time, now);
        }
        Ok(match sign {
            Sign::New => Fate::Number(number),
            Sign::Doubt => Fate::Held,
            Sign::Duplicate => Fate::Refused("duplicate"),
            Sign::Late => Fate::Refused("late"),
            Sign::Restart => Fate::Refused("restart"),
        })
    }

    /// The number before, if it was not believed, is or is not: its message can be taken or refused.
    fn settle(&mut self) {
        if let Some(is_believed) = self.numbers.verdict() {
            self.settled = self.held.take().map(|held| (held, is_believed));
        }
    }

    /// Begins another life, whose numbers have another origin. False if there were too many.
    fn restart(&mut self, out: &mut dyn Outlet) -> Result<bool, Fault> {
        if self.life >= LIVES_MAX {
            return Ok(false);
        }
        // Nothing of the ended life comes any more.
        self.numbers.file(i64::MAX, false, &mut self.lost);
        self.file(out)?;
        self.numbers.restart();
        (self.life, self.row) = (self.life + 1, None);
        self.count("restarts", 1);
        Ok(true)
    }

    /// Puts lost numbers into the account.
    fn file(&mut self, out: &mut dyn Outlet) -> Result<(), Fault> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let row = self.row(out)?;
        for Lost { numbers, times: (from, to), cause } in std::mem::take(&mut self.lost) {
            self.count(cause.word(), numbers.end - numbers.start);
            out.missing(row, numbers.start..=numbers.end - 1, from.min(to)..=from.max(to), cause.word())?;
        }
        Ok(())
    }

    /// Counts a datagram that becomes no message.
    fn refuse(&mut self, reason: &'static str, out: &mut dyn Outlet) -> Result<(), Fault> {
        let row = self.row(out)?;
        self.count(reason, 1);
        out.count(row, &format!("refused.{reason}"), 1)
    }

    fn count(&mut self, word: &'static str, n: u64) {
        let count = self.counts.entry(word).or_default();
        *count = count.saturating_add(n);
    }
}

/// Figures of all numberings together; `next` of each.
fn status_of(all: &[Books]) -> Value {
    let sum = |of: fn(&Books) -> u64| all.iter().map(of).sum::<u64>();
    let mut status = json!({"datagrams": sum(|books| books.datagrams), "bytes": sum(|books| books.bytes)});
    let mut counts = BTreeMap::<&str, u64>::new();
    if let Some(status) = status.as_object_mut() {
        for books in all {
            let next = if books.queue == 0 { "next".to_owned() } else { format!("next.q{}", books.queue) };
            status.insert(next, books.numbers.next().into());
            books.counts.iter().for_each(|(word, n)| *counts.entry(word).or_default() += n);
        }
        status.extend(counts.iter().map(|(word, n)| ((*word).to_owned(), json!(n))));
    }
    status
}

/// The time of the message before, ns since 1970 UTC, from which a counter that begins again is continued.
struct Stamped(Option<i64>);

impl Stamped {
    /// The source time of a stamp, ns since 1970 UTC; `None` where it is outside of what can be stored, or the unit of
    /// ticks is unknown.
    fn time_of(&mut self, stamp: Stamp, plan: &Plan, now: i64) -> Result<Option<i64>, Fault> {
        let (ticks, tick) = match (stamp, plan.tick) {
            (Stamp::Epoch(time), _) => return Ok(Some(time)),
            (Stamp::Arrival, _) => return Ok(Some(now)),
            (Stamp::Ticks(_), None) => return Ok(None),
            (Stamp::Ticks(ticks), Some(tick)) => (ticks, tick),
        };
        let zero = match (plan.zero, plan.first.get()) {
            (ZeroWord::At(time), _) => time.0,
            (ZeroWord::First, Some(first)) => first.time(now)?,
            (ZeroWord::First, None) => return Err(Fault::new("the zero of timestamps is unknown", "no data folder")),
        };
        let time = self.time_from((zero, tick), ticks, (plan.wrap, now));
        self.0 = time.or(self.0);
        Ok(time)
    }

    /// The time of a timestamp, from that at which it was zero and the length of a tick, ns. Of a counter that begins
    /// again after `wrap` ticks it is the one nearest to the message before, or to `now`.
    fn time_from(&self, (zero, tick): (i64, i64), ticks: u64, (wrap, now): (Option<u64>, i64)) -> Option<i64> {
        let ticks = match (wrap.filter(|wrap| ticks < *wrap), self.0) {
            (Some(wrap), last) => {
                // Of the first one it is the turn nearest to its arrival.
                let last = last.unwrap_or(now);
                let since = u64::try_from(i128::from(last) - i128::from(zero)).unwrap_or(0) / tick.unsigned_abs();
                nearest(since, ticks, wrap).unwrap_or(ticks)
            }
            _ => ticks,
        };
        zero.checked_add(tick.checked_mul(i64::try_from(ticks).ok()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_continue_where_their_counter_begins_again() {
        let (wrap, period, zero) = (Some(1 << 48), 10 << 48, 1_772_366_400_000_000_000);
        let time = |ticks, last: Option<i64>| {
            let now = zero + 3 * period + 100;
            let time = Stamped(last.map(|last| zero + last)).time_from((zero, 10), ticks, (wrap, now));
            time.map(|time| time - zero)
        };
        // The first one is of the turn of its arrival, or the one before or behind it.
        let end = (1 << 48) - 1;
        assert_eq!([time(7, None), time(end, None)], [3 * period + 70, 3 * period - 10].map(Some));
        // From the first turn of the counter to the third, and back where a message is late.
        assert_eq!([time(0, Some(period - 10)), time(5, Some(period))], [period, period + 50].map(Some));
        assert_eq!(time(end, Some(period)), Some(10 * end as i64));
        assert_eq!(time(3, Some(2 * period - 70)), Some(2 * period + 30));
        // Before the zero there is no turn.
        assert_eq!([time(end, Some(0)), time(end, Some(-5))], [Some(10 * end as i64); 2]);
        // One that is no value of such a counter is taken as it is.
        assert_eq!(time(1 << 48, Some(5)), Some(period));
        let of = |zero, tick, ticks, wrap| Stamped(Some(0)).time_from((zero, tick), ticks, (wrap, 0));
        assert_eq!(of(0, 1, 1 << 62, None), Some(1 << 62));
        assert_eq!([of(0, 1, u64::MAX, None), of(i64::MAX, 1, 1, wrap), of(0, i64::MAX, 2, wrap)], [None; 3]);
    }
}
