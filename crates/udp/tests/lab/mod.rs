//! A source of a port of its own with boards, and what is asked of both.

use flow::edge::SourcePlan;
use flow::{Data, Intake, IntakeOptions, Step, ledger};
use serde_json::{Value, json};
use std::any::Any;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use store::{Kind, Options, ReadOptions, Reader, crc32c};
use wire::datagram::{Flag, Header, Type};

/// A guard against hanging: nothing here takes ten seconds.
pub(crate) const GUARD: Duration = Duration::from_secs(120);

pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

/// A source of a port of its own, with boards, and its stream in a folder that is removed at the end.
pub(crate) struct Lab {
    pub(crate) data: Data,
    pub(crate) plan: Arc<dyn SourcePlan>,
    pub(crate) address: SocketAddr,
}

/// A datagram of a board, with a payload if it is data.
pub(crate) fn datagram(kind: Type, number: u64) -> Vec<u8> {
    let payload = if kind == Type::Data { number.to_le_bytes().to_vec() } else { Vec::new() };
    datagram_of(kind, number, &payload)
}

/// A datagram of a board with this payload.
pub(crate) fn datagram_of(kind: Type, number: u64, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        kind,
        stream: 1,
        flags: Flag::Epoch as u32,
        timestamp: now() as u64,
        sequence: number,
        payload_bytes: payload.len() as u32,
        payload_crc: crc32c(payload),
        schema: *b"test",
        ..Header::default()
    };
    [header.to_bytes(crc32c).as_slice(), payload].concat()
}

impl Lab {
    pub(crate) fn new(boards: &Value) -> Self {
        Self::with(&json!({"boards": boards}))
    }

    /// A source with these keys.
    pub(crate) fn with(keys: &Value) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("beamport-udp-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder: PathBuf = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port().unwrap()));
        let mut section = json!({"listen": address.to_string(), "framing": "beamport"});
        let keys = keys.as_object().unwrap().clone();
        section.as_object_mut().unwrap().extend(keys);
        let read = |section: &mut settings::Section<'_>| (beamport_udp::SOURCE.read)("d001", section);
        let plan = settings::read_json(&section, read).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        Self { data: Data::on_disk(folder), plan, address }
    }

    pub(crate) fn start(&self) -> Intake {
        self.start_with(Options::memory(64 << 20))
    }

    pub(crate) fn start_with(&self, stream: Options) -> Intake {
        let options = IntakeOptions { stream, ahead_max: i64::MAX };
        Intake::start(&self.data, "d001", self.plan.build().unwrap(), &options, now()).unwrap()
    }

    pub(crate) fn plan(&self) -> &beamport_udp::Plan {
        (&*self.plan as &dyn Any).downcast_ref().unwrap()
    }

    /// The true counts of the boards.
    pub(crate) fn send(&self, duration: Duration) -> Value {
        beamport_udp::send(&[("udp", self.plan())], &self.data, Some(duration), &|| false).unwrap()
    }

    /// A source of a range of ports with these keys; the first of them.
    pub(crate) fn of_ports(count: u16, keys: &Value) -> (Self, u16) {
        let first = testkit::free_ports(count).unwrap();
        let mut keys = keys.clone();
        keys["listen"] = format!("127.0.0.1:{{{first}..{}}}", first + count - 1).into();
        (Self::with(&keys), first)
    }

    pub(crate) fn send_bytes(&self, datagram: &[u8]) {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(datagram, self.address).unwrap();
    }

    /// Source times and payloads of all messages.
    pub(crate) fn messages(&self) -> Vec<(i64, Vec<u8>)> {
        let mut reader = self.data.reader_early("d001").unwrap();
        let batch = reader.read(1000).unwrap();
        batch.iter().map(|message| (message.entry.source_time, message.payload.to_vec())).collect()
    }

    /// A counted reader of the stream, at its beginning.
    pub(crate) fn counted(&self) -> Reader {
        let options = ReadOptions { name: "slow".into(), kind: Kind::Counted, early: true, ..ReadOptions::default() };
        self.data.reader("d001", options).unwrap()
    }

    /// Stops a source; what it has committed can be read.
    pub(crate) fn stop(&self, intake: &mut Intake) {
        intake.stop(now()).unwrap();
        // Another thread writes the book.
        let is_there = |bounds: store::Bounds| bounds.disk >= bounds.count;
        let until = Instant::now() + GUARD;
        while self.data.reader_early("d001.commits").is_ok_and(|reader| !is_there(reader.bounds())) {
            assert!(Instant::now() < until, "the book is not written");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Messages of a board with these numbers.
    pub(crate) fn send_numbers(&self, numbers: Range<u64>) {
        numbers.for_each(|number| self.send_bytes(&datagram(Type::Data, number)));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.data.streams(true).unwrap_or_default() {
            let _ = store::remove(&self.data.media, &self.data.stream(&name));
        }
        let _ = std::fs::remove_dir_all(&self.data.folder);
    }
}

/// Steps until something is so.
pub(crate) fn run(intake: &mut Intake, mut is_so: impl FnMut(&mut Intake) -> bool) {
    let until = Instant::now() + GUARD;
    while !is_so(intake) {
        assert!(Instant::now() < until, "it hangs: {}", intake.status());
        if intake.step(now()).unwrap() != Step::Again {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Runs a source until the boards have ended and the reorder time is over; its account.
pub(crate) fn account_of(lab: &Lab, intake: &mut Intake, sent: u64) -> Vec<ledger::Entry> {
    run(intake, |intake| intake.status()["next"] == sent);
    let end = Instant::now() + Duration::from_millis(200);
    run(intake, |_| Instant::now() > end);
    lab.stop(intake);
    ledger::entries(&lab.data, "d001").unwrap().0
}

pub(crate) fn sum(counts: &std::collections::BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}
