//! A million gaps from one source: exact, and resident memory stays flat. Alone in its process, whose memory it
//! measures.

use flow::{Data, Fault, Intake, IntakeOptions, Outlet, Pushed, Resume, Source, Step, ledger};
use std::path::PathBuf;
use store::{Meta, Options, SchemaId, WhenFull};

/// Half of all numbers are missing.
struct Half(u64);

impl Source for Half {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("board")?;
        for n in self.0..self.0 + 10_000 {
            let schema = SchemaId(*b"test");
            let meta = Meta { source_time: now, origin, origin_seq: 2 * n, schema, flags: 0 };
            assert_eq!(out.push(&meta, b"12345678")?, Pushed::Taken);
            out.missing(origin, 2 * n + 1..=2 * n + 1, now..=now, "network")?;
        }
        self.0 += 10_000;
        Ok(Step::Again)
    }
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_million_gaps_of_one_source_are_exact_in_flat_memory() {
    let folder = PathBuf::from(format!("/dev/shm/beamport-test-gaps-{}", std::process::id()));
    let data = Data::on_disk(&folder);
    let stream = Options { when_full: WhenFull::DropOldest, ..Options::memory(4 << 20) };
    let options = IntakeOptions { stream, ahead_max: i64::MAX };
    let mut intake = Intake::start(&data, "s", Box::new(Half(0)), &options, data.media.now()).unwrap();
    let mut early = 0;
    for step in 0..100 {
        intake.step(data.media.now()).unwrap();
        if step == 20 {
            early = resident();
        }
    }
    let grown = resident().saturating_sub(early);
    intake.stop(data.media.now()).unwrap();
    drop(intake);
    let (entries, _) = ledger::entries(&data, "s").unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.sent, entry.appended, entry.closed), (2_000_000, 1_000_000, true));
    assert_eq!(entry.lost, [("network".to_owned(), 1_000_000)].into());
    assert!(grown < 2 << 20, "{grown} bytes more");
}
