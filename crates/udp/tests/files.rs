//! Files of units as sources: each message once and in order, whenever the source ends and starts again.
#![allow(missing_docs)]

use flow::{Data, Intake, IntakeOptions, Step};
use serde_json::json;
use std::path::PathBuf;
use store::{Options, flags};
use testkit::Dice;

const NOW: i64 = 1_772_366_400_000_000_000;

/// Number, source time, flags, origin, payload.
type Known = (u64, i64, u16, String, Vec<u8>);

/// A folder with a file, removed at the end.
struct Lab(Data);

impl Lab {
    fn new(name: &str, file: &[u8]) -> Self {
        let folder: PathBuf = std::env::temp_dir().join(format!("beamport-files-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("units.file"), file).unwrap();
        Self(Data::on_disk(folder))
    }

    fn start(&self, format: &str) -> Intake {
        let section =
            json!({"path": self.0.folder.join("units.file"), "format": format, "zero": "2026-03-01T00:00:00Z"});
        let read = |section: &mut settings::Section<'_>| (beamport_udp::FILE.read)("units", section);
        let plan = settings::read_json(&section, read).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let options = IntakeOptions { stream: Options::memory(16 << 20), ahead_max: i64::MAX };
        Intake::start(&self.0, "units", plan.build().unwrap(), &options, NOW).unwrap()
    }

    fn messages(&self) -> Vec<Known> {
        let mut reader = self.0.reader_early("units").unwrap();
        let names = reader.origins().unwrap().to_vec();
        let mut all = Vec::new();
        loop {
            let batch = reader.read(100).unwrap();
            if batch.is_empty() {
                return all;
            }
            all.extend(batch.iter().map(|message| {
                let store::Entry { origin_seq, source_time, flags, origin, .. } = *message.entry;
                (origin_seq, source_time, flags, names[origin as usize].clone(), message.payload.to_vec())
            }));
        }
    }

    /// Reads the file with a source that ends after a few steps and starts again.
    fn read(&self, format: &str, seed: u64) -> Vec<Known> {
        let mut dice = Dice::new(seed);
        for _ in 0..10_000 {
            let mut intake = self.start(format);
            for _ in 0..dice.range(1, 4) {
                if intake.step(NOW).unwrap() == Step::Ended {
                    return self.messages();
                }
            }
            // Killed, or ended from outside.
            if dice.one_in(2) {
                intake.stop(NOW).unwrap();
            }
        }
        panic!("it does not end");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.0.streams(true).unwrap_or_default() {
            let _ = store::remove(&self.0.media, &self.0.stream(&name));
        }
        let _ = std::fs::remove_dir_all(&self.0.folder);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn units_of_a_geb_file_are_messages_once_and_in_order() {
    let (mut file, mut expected) = (Vec::new(), Vec::new());
    for at in 0..5000_u32 {
        let payload = vec![at as u8; at as usize % 900];
        let unit = [words(&[1, payload.len() as u32, 7 * at, 0]), payload].concat();
        file.extend_from_slice(&unit);
        expected.push((u64::from(at), 1_772_323_200_000_000_000 + 70 * i64::from(at), 0, "units".to_owned(), unit));
    }
    for seed in 0..4 {
        let lab = Lab::new(&format!("geb-{seed}"), &file);
        assert!(lab.read("geb", seed) == expected, "seed {seed}");
    }
}

#[test]
fn sub_events_of_an_hld_file_are_messages_once_and_in_order() {
    let header =
        |size: usize, id: u32| words(&[size as u32, 0x0003_0001, id, 0, 126 << 16 | 2 << 8 | 1, 12 << 16, 0, 0]);
    let (mut file, mut expected) = (header(32, 0x0001_0002), Vec::new());
    for at in 0..2000_u32 {
        // Numbers begin again on the way.
        let (number, tag) = (0xff_fe00 + at, at & 0xff);
        let subs: Vec<Vec<u8>> = (0..at % 4)
            .map(|hub| {
                let data = vec![at as u8; at as usize % 70];
                [words(&[16 + data.len() as u32, 0x0002_0001, 0x8000 + hub, number << 8 | tag]), data].concat()
            })
            .collect();
        let body: Vec<u8> = subs
            .iter()
            .flat_map(|sub| [sub.clone(), vec![0; sub.len().next_multiple_of(8) - sub.len()]].concat())
            .collect();
        file.extend([header(32 + body.len(), 0x2001), body].concat());
        expected.extend(
            subs.into_iter().zip(0..).map(|(sub, hub)| {
                (u64::from(number), NOW, flags::of_source(tag as u8), format!("units.800{hub}"), sub)
            }),
        );
    }
    file.extend(header(32, 0x0001_0003));
    for seed in 0..4 {
        let lab = Lab::new(&format!("hld-{seed}"), &file);
        assert!(lab.read("hld", seed) == expected, "seed {seed}");
    }
}
