//! The life of runs, on the pretend machine.

use beamport_testkit::{Machine, PretendMedia};
use flow::{Data, RunKeeper, StreamView};
use std::sync::Arc;
use std::time::Duration;
use store::Drain;

const SECOND: i64 = 1_000_000_000;

fn keeper(process: &Arc<PretendMedia>) -> RunKeeper {
    let data = Data { media: process.clone(), folder: "/disk/data".into(), drain: Drain::Caller };
    RunKeeper::open(&data).unwrap()
}

fn begun(keeper: &mut RunKeeper, start: i64, stop: Option<i64>, now: i64) {
    keeper.begin("r", start, stop, Duration::from_secs(2), "{}", now).unwrap();
}

#[test]
fn a_second_end_at_another_time_is_refused() {
    let machine = Machine::new(1);
    let (process, now) = (machine.start(), machine.now());
    let mut keeper = keeper(&process);
    begun(&mut keeper, now, None, now);
    let run = keeper.end("r", now + SECOND, "asked", now + SECOND).unwrap();
    assert_eq!(run.stop, now + SECOND);
    let fault = keeper.end("r", now + 2 * SECOND, "asked", now + 2 * SECOND).unwrap_err();
    assert!(fault.cause.contains("another time") && !fault.hint.is_empty(), "{fault}");
    // Asked again, the answer is the run as it ended.
    assert_eq!(keeper.end("r", now + SECOND, "asked", now + 3 * SECOND).unwrap(), run);
    assert_eq!(keeper.end("r", None, "asked", now + 3 * SECOND).unwrap(), run);
}

#[test]
fn a_run_does_not_end_later_than_it_was_to() {
    let machine = Machine::new(1);
    let (process, now) = (machine.start(), machine.now());
    let mut keeper = keeper(&process);
    begun(&mut keeper, now, Some(now + SECOND), now);
    let fault = keeper.end("r", now + 2 * SECOND, "asked", now).unwrap_err();
    assert!(fault.cause.contains("before that"), "{fault}");
    // Ended late without a time: its stop is what it was to be.
    assert_eq!(keeper.end("r", None, "asked", now + 5 * SECOND).unwrap().stop, now + SECOND);
}

#[test]
fn a_run_that_has_not_begun_ends_empty_and_at_once() {
    for all in [false, true] {
        let machine = Machine::new(1);
        let (process, now) = (machine.start(), machine.now());
        let mut keeper = keeper(&process);
        begun(&mut keeper, now + 3600 * SECOND, None, now);
        if all {
            assert!(keeper.end_all("interrupted", now).unwrap());
        } else {
            keeper.end("r", None, "asked", now).unwrap();
        }
        let run = keeper.runs()[0].clone();
        assert_eq!((run.stop, run.holds(run.start)), (run.start, false));
        keeper.step(now + SECOND, &[] as &[StreamView]).unwrap();
        assert_eq!(keeper.runs()[0].state.name(), "sealed");
    }
}

#[test]
fn a_book_of_newest_messages_stays_small_and_keeps_the_last() {
    let machine = Machine::new(1);
    for folder in ["/disk/data", "/live/data"] {
        let data = Data { media: machine.start(), folder: folder.into(), drain: Drain::Caller };
        let mut book = data.book_of_newest("file.7.commits", 1 << 20).unwrap();
        for n in 0..4000_u64 {
            let schema = store::SchemaId(*b"bpcm");
            let meta = store::Meta { source_time: 0, origin: 0, origin_seq: n, schema, flags: 0 };
            book.append(&meta, &[n as u8; 1000]).unwrap();
            assert!(book.wait(n + 1, book.header().level, Duration::ZERO).unwrap());
        }
        let kept = data.book_messages("file.7.commits").unwrap();
        assert!((500..1200).contains(&kept.len()), "{folder}: {}", kept.len());
        assert_eq!(kept.last().unwrap(), &vec![(3999 % 256) as u8; 1000]);
    }
}
