//! Simulated boards: they send what the boards of an instrument file would send, with faults from a seed, and say what
//! they did.
//!
//! Constraints: one thread for the boards of each receiver. How many messages a board sends, which of them are lost,
//! repeated, late or damaged, and what is in them follow from the keys and the seed alone; only the times are those of
//! the clock.

mod array;
mod board;
mod control;
mod dice;

use crate::limits::{BATCH, BEAT, END_PAUSE, ENDS, GSO_NAP, NAP};
use crate::plan::Plan;
use crate::socket::{Outbox, Target};
use array::Array;
use board::{Board, Slot, Truth};
use control::{Holds, Listener};
use flow::{Data, Fault};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use wire::datagram::Type;

/// Sends what the boards of these sources would send: for `duration`, or for as long as their sections say, or until
/// `stop` says so. `plans`: with the receiver of each. `data`: where the streams are whose messages are sent. Returns
/// what the boards did, of all and of each.
pub fn send(
    plans: &[(&str, &Plan)],
    data: &Data,
    duration: Option<Duration>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Value, Fault> {
    let (groups, array) = boards_of(plans, data, duration)?;
    if groups.is_empty() {
        let fault = Fault::new("there is no board to simulate", "no source of kind `udp` has a table `boards`");
        return Err(fault.hint("add `boards = { rate = 1000 }` to one"));
    }
    let mut all: Vec<&Board> = groups.values().flatten().collect();
    all.sort_by_key(|board| board.place);
    let listener = Listener::open(all.iter().copied())?;
    let (holds, ended) = (Holds::new(all.len()), AtomicBool::new(false));
    let started = Instant::now();
    let (done, dead): (Vec<Result<Vec<Board>, Fault>>, Vec<u64>) = std::thread::scope(|scope| {
        let (holds, ended) = (&holds, &ended);
        let heard = scope.spawn(move || listener.run(holds, started, ended));
        let start = |boards: Vec<Board>| {
            let array = array.clone();
            scope.spawn(move || Group::new(boards, array, started)?.run(holds, stop))
        };
        let threads: Vec<_> = groups.into_values().map(start).collect();
        let broke = |_| Err(Fault::new("a thread of simulated boards ended", "it panicked"));
        let done = threads.into_iter().map(|thread| thread.join().unwrap_or_else(broke)).collect();
        ended.store(true, Ordering::Relaxed);
        (done, heard.join().unwrap_or_default())
    });
    let (mut all, mut each) = (Truth::default(), Map::new());
    for boards in done {
        for mut board in boards? {
            board.truth.dead = dead.get(board.place).copied().unwrap_or(0);
            all.add(&board.truth);
            each.insert(board.name.clone(), board.truth.to_json().into());
        }
    }
    let mut answer = all.to_json();
    answer.insert("boards".into(), each.into());
    Ok(answer.into())
}

/// The boards of each receiver, and the coincidences of those that send in such.
#[allow(clippy::type_complexity)]
fn boards_of<'a>(
    plans: &[(&'a str, &Plan)],
    data: &Data,
    duration: Option<Duration>,
) -> Result<(BTreeMap<&'a str, Vec<Board>>, Option<Array>), Fault> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let begin = now.as_nanos() as u64;
    let with_boards = plans.iter().filter_map(|(receiver, plan)| Some((*receiver, *plan, plan.boards.as_ref()?)));
    let unknown = plans.iter().find(|(_, plan)| plan.boards.is_some() && !plan.framing.is_written());
    if let Some((_, plan)) = unknown {
        let fault = Fault::new(
            format!("the boards of source `{}` cannot be simulated", plan.name),
            "its framing is code, which reads headers and does not write them",
        );
        return Err(fault.hint("remove `boards`, and send with a program of your own"));
    }
    // Each port has one.
    let simulated: Vec<_> = with_boards
        .flat_map(|(receiver, plan, keys)| plan.ports.iter().map(move |address| (receiver, plan, address, keys)))
        .collect();
    let steps = simulated.len().saturating_sub(1).max(1) as f64;
    // The mean of these weights is 1.
    let weight = |at: usize, imbalance: f64| imbalance.powf(at as f64 / steps);
    let (mut groups, mut together) = (BTreeMap::<_, Vec<Board>>::new(), Vec::new());
    for (at, (receiver, plan, address, keys)) in simulated.iter().enumerate() {
        let sum: f64 = (0..simulated.len()).map(|other| weight(other, keys.imbalance)).sum();
        let rate = keys.rate * weight(at, keys.imbalance) * simulated.len() as f64 / sum;
        if keys.multiplicity > 1 {
            together.push((at, rate));
        }
        let board = Board::new((at, plan, address, keys), rate, duration.or(keys.duration), begin, data)?;
        groups.entry(*receiver).or_default().push(board);
    }
    let first = simulated.iter().find(|(.., keys)| keys.multiplicity > 1);
    Ok((groups, first.map(|(.., keys)| Array::new(keys.seed, keys.multiplicity, &together))))
}

/// The boards of one thread.
struct Group {
    boards: Vec<Board>,
    array: Option<Array>,
    sockets: Sockets,
    started: Instant,
}

impl Group {
    fn new(boards: Vec<Board>, array: Option<Array>, started: Instant) -> Result<Self, Fault> {
        let sockets = Sockets::open(&boards)?;
        let array = array.filter(|_| boards.iter().any(|board| board.keys.multiplicity > 1));
        Ok(Self { boards, array, sockets, started })
    }

    /// Sends until all is sent, or `stop` says so.
    fn run(mut self, holds: &Holds, stop: &dyn Fn() -> bool) -> Result<Vec<Board>, Fault> {
        let nap = if self.boards.iter().any(|board| board.keys.gso) { GSO_NAP } else { NAP };
        let (mut slots, mut beat) = (Vec::new(), Duration::ZERO);
        while !stop() && self.boards.iter().any(|board| !board.is_done()) {
            let elapsed = self.started.elapsed();
            if elapsed >= beat {
                beat = elapsed + BEAT;
                self.sign(Type::Beat)?;
            }
            if !self.step(elapsed.as_nanos() as u64, holds, &mut slots)? {
                std::thread::sleep(nap);
            }
        }
        for board in &mut self.boards {
            board.release(u64::MAX, &mut slots);
            self.sockets.send(board.target, &slots, board.keys.gso)?;
            board.truth.datagrams += slots.len() as u64;
            slots.clear();
        }
        for again in 0..ENDS {
            if again > 0 {
                std::thread::sleep(END_PAUSE);
            }
            self.sign(Type::End)?;
        }
        Ok(self.boards)
    }

    /// Sends what is due, `elapsed` ns after the start. True if more may be.
    fn step(&mut self, elapsed: u64, holds: &Holds, slots: &mut Vec<Slot>) -> Result<bool, Fault> {
        let Self { boards, array, sockets, .. } = self;
        let mut has_more = false;
        // What is known is sent first: the boards take a batch at a time.
        if let Some(array) = array.as_mut().filter(|_| boards.iter().all(Board::has_room)) {
            // In the order of the file, which is that of their places.
            let of = |place, boards: &[Board]| boards.binary_search_by_key(&place, |board| board.place);
            has_more = !array.advance(elapsed, |place, time| {
                if let Ok(at) = of(place, boards) {
                    boards[at].fires(time);
                }
            });
            if !has_more {
                boards.iter_mut().for_each(|board| board.knows(elapsed));
            }
        }
        for board in boards {
            board.make(elapsed, holds.holds(board.place, elapsed), slots);
            has_more |= slots.len() >= BATCH;
            sockets.send(board.target, slots, board.keys.gso)?;
            board.truth.datagrams += slots.len() as u64;
            board.take_back(slots);
        }
        Ok(has_more)
    }

    /// Sends a sign of life, or of the end, of each board.
    fn sign(&mut self, kind: Type) -> Result<(), Fault> {
        let elapsed = self.started.elapsed().as_nanos() as u64;
        let mut send = |board: &Board| self.sockets.send(board.target, &[board.sign(kind, elapsed)], false);
        self.boards.iter().filter(|board| board.signs()).try_for_each(&mut send)
    }
}

/// The sockets that the boards of a thread send from, one for each family of addresses. They are not connected: a board
/// does not notice that nobody listens.
struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Sockets {
    fn open(boards: &[Board]) -> Result<Self, Fault> {
        let open = |is_v6: bool, any: IpAddr| match boards.iter().any(|board| board.target.is_ipv6() == is_v6) {
            true => UdpSocket::bind((any, 0)).map(Some).map_err(|e| Fault::io("cannot open a socket", &e)),
            false => Ok(None),
        };
        Ok(Self { v4: open(false, Ipv4Addr::UNSPECIFIED.into())?, v6: open(true, Ipv6Addr::UNSPECIFIED.into())? })
    }

    /// `gso`: several datagrams of the same size at once.
    fn send(&mut self, to: SocketAddr, slots: &[Slot], gso: bool) -> Result<(), Fault> {
        let Some(socket) = (if to.is_ipv6() { &self.v6 } else { &self.v4 }) else { return Ok(()) };
        let cannot = |e: std::io::Error| Fault::io(format!("cannot send to {to}"), &e);
        let target = Target::from(to);
        for slots in slots.chunks(BATCH) {
            let mut outbox = Outbox::new(gso);
            slots.iter().for_each(|slot| outbox.add(slot.head(), &slot.payload, target));
            outbox.send(socket).map_err(cannot)?;
        }
        Ok(())
    }
}
