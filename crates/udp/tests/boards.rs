//! Simulated boards and the source, over real sockets: the ledger of the stream is what the boards did.
#![allow(missing_docs)]

mod lab;
#[path = "boards/own.rs"]
mod own;
#[path = "boards/ports.rs"]
mod ports;

use flow::{Intake, Resume, ledger};
use lab::{GUARD, Lab, account_of, datagram, datagram_of, now, run, sum};
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::{Kind, Options, ReadOptions, Reader, Start, WhenFull, crc32c};
use wire::datagram::{Flag, Header, Type};

#[test]
fn the_ledger_is_what_the_boards_did() {
    // All of it fits in the buffer of the socket, so that the kernel drops nothing however slow this test is.
    let boards = json!({"rate": 25000, "size": "100 B", "loss": 0.02, "duplicate": 0.05, "reorder": 0.05, "depth": 40,
                        "corrupt": 0.01, "seed": 7});
    let lab = Lab::new(&boards);
    let mut intake = lab.start();
    let truth = lab.send(Duration::from_millis(200));
    let count = |name: &str| truth["boards"]["d001"][name].as_u64().unwrap();
    assert!(["lost", "duplicate", "reordered", "corrupt"].iter().all(|name| count(name) > 20), "{truth}");
    let accounts = account_of(&lab, &mut intake, 5000);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert!(account.closed && account.origin == "d001", "{account:#?}");
    assert_eq!((account.sent, account.duplicate), (count("sent"), 0));
    assert_eq!(account.appended, count("sent") - count("lost") - count("corrupt"));
    let lost = [("damaged", count("corrupt")), ("network", count("lost"))].map(|(word, n)| (word.to_owned(), n));
    assert_eq!(account.lost, lost.into());
    assert_eq!(account.refused["duplicate"], count("duplicate"));
    assert_eq!(sum(&account.refused), count("duplicate") + count("corrupt"));
}

#[test]
fn a_run_does_not_seal_before_numbers_that_may_still_come() {
    let lab = Lab::with(&json!({"reorder": "60 s"}));
    let mut intake = lab.start();
    lab.send_numbers(0..10);
    run(&mut intake, |intake| intake.status()["next"] == 10);
    let before = now();
    lab.send_numbers(12..14);
    run(&mut intake, |intake| intake.status()["next"] == 14);
    run(&mut intake, |_| now() > before + 300_000_000);
    assert!(intake.frontier() < before, "10 and 11 may still come");
    lab.send_numbers(10..12);
    run(&mut intake, |intake| intake.frontier() > before);
    drop((intake, lab));

    // Datagrams that do not come are in the account once the run can seal.
    let lab = Lab::with(&json!({"reorder": "300 ms"}));
    let mut intake = lab.start();
    lab.send_numbers(0..10);
    run(&mut intake, |intake| intake.status()["next"] == 10);
    lab.send_numbers(12..14);
    let sent = now();
    run(&mut intake, |intake| intake.status()["next"] == 14);
    run(&mut intake, |intake| intake.frontier() > sent);
    assert_eq!(intake.status()["network"], 2, "{}", intake.status());
    let (entries, _) = ledger::entries(&lab.data, "d001").unwrap();
    assert_eq!(entries[0].lost, [("network".to_owned(), 2)].into(), "{entries:#?}");
}

#[test]
fn a_board_that_restarts_is_another_origin() {
    let lab = Lab::new(&json!({"rate": 10000, "size": "10 B"}));
    let mut intake = lab.start();
    for _ in 0..3 {
        lab.send(Duration::from_millis(30));
        run(&mut intake, |intake| intake.status()["next"] == 300);
    }
    let accounts = account_of(&lab, &mut intake, 300);
    let all: Vec<_> =
        accounts.iter().map(|one| (one.origin.as_str(), one.sent, one.appended, sum(&one.lost))).collect();
    assert_eq!(all, [("d001", 300, 300, 0), ("d001#2", 300, 300, 0), ("d001#3", 300, 300, 0)]);
}

#[test]
fn what_the_kernel_drops_is_counted_as_that() {
    let lab = Lab::new(&json!({"rate": 100000, "size": "1000 B"}));
    let mut intake = lab.start();
    // Nobody reads meanwhile: 50 MB do not fit.
    let truth = lab.send(Duration::from_millis(500));
    run(&mut intake, |intake| intake.status()["next"].as_u64().is_some_and(|next| next > 100));
    lab.send_bytes(&datagram(Type::End, 50_000));
    let accounts = account_of(&lab, &mut intake, 50_000);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!(account.sent, truth["sent"].as_u64().unwrap());
    assert!(account.lost["kernel"] > 10_000, "{account:#?}");
    assert_eq!(account.lost["kernel"], account.sent - account.appended, "{account:#?}");
}

#[test]
fn numbers_that_came_while_no_receiver_ran_are_absent() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    lab.send_numbers(0..10);
    run(&mut intake, |intake| intake.status()["next"] == 10);
    lab.stop(&mut intake);
    drop(intake);
    lab.send_numbers(10..15);
    let mut intake = lab.start();
    lab.send_numbers(15..17);
    lab.send_numbers(18..20);
    let accounts = account_of(&lab, &mut intake, 20);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, account.closed), (20, 14, true));
    assert_eq!(account.lost, [("absent".to_owned(), 5), ("network".to_owned(), 1)].into());
}

#[test]
fn what_is_missing_when_the_receiver_is_stopped_has_its_reason() {
    let lab = Lab::with(&json!({"reorder": "1 h"}));
    let mut intake = lab.start();
    lab.send_numbers(0..5);
    let mut damaged = datagram(Type::Data, 5);
    damaged[70] ^= 1;
    lab.send_bytes(&damaged);
    lab.send_numbers(8..10);
    run(&mut intake, |intake| intake.status()["next"] == 10);
    lab.stop(&mut intake);
    let accounts = ledger::entries(&lab.data, "d001").unwrap().0;
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, account.closed), (10, 7, true));
    assert_eq!(account.lost, [("damaged".to_owned(), 1), ("network".to_owned(), 2)].into());
}

#[test]
fn a_wide_hole_keeps_its_reason_when_the_receiver_was_killed() {
    let lab = Lab::new(&json!({"rate": 1}));
    for (life, first) in [0_u64, 20_000, 24_200].into_iter().enumerate() {
        let mut intake = lab.start();
        lab.send_numbers(first..first + 100);
        // The last numbers of a hole are filed after the reorder time.
        run(&mut intake, |intake| intake.status()["next"] == first + 100);
        lab.send_numbers(first + 100..first + 200);
        run(&mut intake, |intake| {
            let absent = intake.status()["absent"].as_u64().unwrap_or(0);
            intake.status()["next"] == first + 200 && absent == [0, 19_800, 4_000][life]
        });
        // Nothing more is committed.
        drop(intake);
    }
    let accounts = ledger::entries(&lab.data, "d001").unwrap().0;
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended), (24_400, 600));
    assert_eq!(account.lost, [("absent".to_owned(), 23_800)].into());
}

#[test]
fn a_board_that_restarts_while_no_receiver_runs_is_another_origin() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    lab.send_numbers(0..100);
    run(&mut intake, |intake| intake.status()["next"] == 100);
    lab.stop(&mut intake);
    drop(intake);
    let mut intake = lab.start();
    lab.send_numbers(3..5);
    let accounts = account_of(&lab, &mut intake, 5);
    let all: Vec<_> = accounts.iter().map(|one| (one.origin.as_str(), one.sent, one.appended)).collect();
    assert_eq!(all, [("d001", 100, 100), ("d001#2", 2, 2)]);
}

#[test]
fn foreign_datagrams_are_counted_and_change_nothing() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    lab.send_numbers(0..5);
    for bytes in [b"".as_slice(), b"hello", &[0; 64], &[255; 3000]] {
        lab.send_bytes(bytes);
    }
    lab.send_numbers(5..6);
    let accounts = account_of(&lab, &mut intake, 6);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, sum(&account.lost)), (6, 6, 0));
    assert_eq!(account.refused, [("length".to_owned(), 2), ("magic".to_owned(), 2)].into());
}

#[test]
fn the_first_foreign_datagrams_of_each_reason_are_kept() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    for number in 0..20 {
        lab.send_numbers(number..number + 1);
        lab.send_bytes(format!("hello {number}").as_bytes());
        lab.send_bytes(&[number as u8; 100]);
    }
    let accounts = account_of(&lab, &mut intake, 20);
    assert_eq!(accounts[0].refused, [("length".to_owned(), 20), ("magic".to_owned(), 20)].into());
    let mut reader = lab.data.reader_early("d001.aside").unwrap();
    let batch = reader.read(1000).unwrap();
    let mut kept = vec![Vec::new(); 2];
    for message in batch.iter() {
        let aside = wire::bpas::read(message.payload).unwrap();
        assert_eq!((aside.stage, message.entry.schema.as_text().as_str()), ("d001", "bpas"));
        assert!(aside.text.ends_with("bytes from 127.0.0.1"), "{}", aside.text);
        kept[usize::from(aside.reason == "magic")].push(aside.payload.to_vec());
    }
    let expected: Vec<Vec<u8>> = (0..16).map(|number| format!("hello {number}").into_bytes()).collect();
    assert_eq!(kept[0], expected);
    assert_eq!(kept[1], (0..16).map(|number| vec![number; 100]).collect::<Vec<_>>());
}

#[test]
fn large_foreign_datagrams_are_kept_up_to_a_mebibyte() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    for number in 0..20 {
        lab.send_bytes(&[7; 60_000]);
        lab.send_bytes(b"BPRT\x01\x40 and no header");
        // The socket holds a few.
        lab.send_numbers(number..number + 1);
        run(&mut intake, |intake| intake.status()["next"] == number + 1);
    }
    account_of(&lab, &mut intake, 20);
    let mut reader = lab.data.reader_early("d001.aside").unwrap();
    let mut bytes = 0;
    loop {
        let batch = reader.read(1).unwrap();
        let Some(message) = batch.iter().next() else { break };
        bytes += message.payload.len();
    }
    assert!((900_000..1 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn a_number_far_ahead_is_held_until_the_next_one_continues_it() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    let far = 1 << 40;
    lab.send_numbers(0..5);
    lab.send_numbers(far..far + 1);
    lab.send_numbers(5..10);
    let is_refused = |intake: &mut Intake| intake.status()["number"] == 1 && intake.status()["next"] == 10;
    run(&mut intake, is_refused);
    // The board has lost contact for long.
    lab.send_numbers(far..far + 4);
    let accounts = account_of(&lab, &mut intake, far + 4);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, account.closed), (far + 4, 14, true));
    assert_eq!(account.refused, [("number".to_owned(), 1)].into());
    assert_eq!(sum(&account.lost), far + 4 - 14);
    assert!(account.lost["damaged"] <= 1, "{account:#?}");
}

#[test]
fn datagrams_that_the_kernel_passes_at_once_are_messages_of_their_own() {
    let lab = Lab::with(&json!({"gro": true, "boards": {"rate": 1}}));
    let mut intake = lab.start();
    // One send of four datagrams of the same size, and a shorter one.
    let all: Vec<u8> = (0..4).flat_map(|number| datagram(Type::Data, number)).chain(datagram(Type::Beat, 4)).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let size = i32::try_from(datagram(Type::Data, 0).len()).unwrap();
    // SAFETY: the value lives until the call returns, and has this length.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), 4) };
    assert_eq!(set, 0);
    socket.send_to(&all, lab.address).unwrap();
    let accounts = account_of(&lab, &mut intake, 4);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, account.refused.len()), (4, 4, 0));
    assert_eq!(intake.status()["datagrams"], 5);
}

#[test]
fn units_of_geb_and_raw_datagrams_are_numbered_on_arrival() {
    let unit = |ticks: u64| [1_u64 | 8 << 32, ticks, 7].map(u64::to_le_bytes).concat();
    let lab = Lab::with(&json!({"framing": "geb", "zero": "2026-03-01T00:00:00Z"}));
    let mut intake = lab.start();
    lab.send_bytes(&[unit(100), unit(200)].concat());
    lab.send_bytes(&unit(300));
    lab.send_bytes(b"foreign");
    let accounts = account_of(&lab, &mut intake, 3);
    assert_eq!((accounts[0].sent, accounts[0].appended, accounts[0].refused["size"]), (3, 3, 1));
    let zero = 1_772_323_200_000_000_000;
    // Of the turns of its counter the one nearest to the arrival.
    let (turn, now) = (10_i64 << 48, SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64);
    for ((time, bytes), ticks) in lab.messages().into_iter().zip([100, 200, 300]) {
        assert_eq!(((time - zero) % turn, bytes), (10 * ticks as i64, unit(ticks)));
        assert!((now - time).abs() <= turn / 2, "{time}");
    }

    let lab = Lab::with(&json!({"framing": "raw", "schema": "abcd"}));
    let mut intake = lab.start();
    lab.send_bytes(b"any bytes");
    lab.send_bytes(b"");
    let accounts = account_of(&lab, &mut intake, 2);
    assert_eq!((accounts[0].sent, accounts[0].appended, accounts[0].closed), (2, 2, true));
    assert_eq!(
        lab.messages().into_iter().map(|message| message.1).collect::<Vec<_>>(),
        [b"any bytes".to_vec(), vec![]]
    );
}

/// Sends datagrams in one call, as segments of this many bytes.
fn send_segments(address: SocketAddr, bytes: &[u8], size: usize) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let size = i32::try_from(size).unwrap();
    // SAFETY: the value lives until the call returns, and has this length.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), 4) };
    assert_eq!(set, 0);
    socket.send_to(bytes, address).unwrap();
}

/// Sizes for which datagrams are received into stream memory, then others, in turn.
#[test]
fn datagrams_of_any_size_arrive_whole() {
    for gro in [false, true] {
        let lab = Lab::with(&json!({"framing": "raw", "gro": gro}));
        let mut intake = lab.start();
        let mut sent = 0_u64;
        for round in 0..3_usize {
            let steady = [1000, 64, 3001][round];
            let odd = [9000, 3, 0, 1001, 60_000, 64, 65, 1].into_iter().cycle().take(24);
            let sizes: Vec<usize> = vec![steady; 150].into_iter().chain(odd).chain(vec![steady; 100]).collect();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let payload = |at: usize, size: usize| (0..size).map(|i| (i * 7 + at) as u8).collect::<Vec<u8>>();
            // The receiver has many at once, and few.
            for (part, sizes) in sizes.chunks([40, 7, 100][round]).enumerate() {
                for (at, size) in sizes.iter().enumerate() {
                    socket.send_to(&payload(part + at, *size), lab.address).unwrap();
                }
                sent += sizes.len() as u64;
                run(&mut intake, |intake| intake.status()["next"] == sent);
                let mut reader = lab.data.reader_early("d001").unwrap();
                reader.seek(sent - sizes.len() as u64);
                let batch = reader.read(1000).unwrap();
                // A message that does not begin where stream memory allows it comes behind the others.
                let mut came: Vec<(u64, Vec<u8>)> =
                    batch.iter().map(|message| (message.entry.origin_seq, message.payload.to_vec())).collect();
                came.sort();
                let expected = sizes.iter().enumerate().map(|(at, size)| payload(part + at, *size));
                assert!(came.into_iter().map(|one| one.1).eq(expected), "round {round}, part {part}");
            }
        }
        let accounts = account_of(&lab, &mut intake, sent);
        let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
        assert_eq!((account.sent, account.appended, account.refused.len()), (sent, sent, 0));
        assert!(account.closed, "{account:#?}");
    }
}

/// Pieces that the kernel passes at once: of a multiple of 8 bytes, and of others.
#[test]
fn pieces_of_any_size_arrive_whole() {
    for size in [64 + 8, 64 + 13, 64 + 800] {
        let lab = Lab::with(&json!({"gro": true, "boards": {"rate": 1}}));
        let mut intake = lab.start();
        let payload = |number: u64| -> Vec<u8> { (0..size - 64).map(|i| i as u8 ^ number as u8).collect() };
        let mut next = 0;
        for _ in 0..100 {
            let all: Vec<u8> =
                (next..next + 10).flat_map(|number| datagram_of(Type::Data, number, &payload(number))).collect();
            send_segments(lab.address, &all, size);
            next += 10;
            if next % 50 == 0 {
                run(&mut intake, |intake| intake.status()["next"] == next);
            }
        }
        let accounts = account_of(&lab, &mut intake, next);
        let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
        assert_eq!((account.sent, account.appended, account.closed), (next, next, true));
        let mut reader = lab.data.reader_early("d001").unwrap();
        let batch = reader.read(2000).unwrap();
        assert_eq!(batch.iter().count() as u64, next);
        batch.iter().for_each(|message| assert!(message.payload == payload(message.entry.origin_seq), "{size}"));
    }
}

/// A reader keeps the stream full: what comes is read, and counted by its number.
#[test]
fn messages_without_room_are_counted_by_their_numbers() {
    for when_full in [WhenFull::Wait, WhenFull::DropNewest] {
        let lab = Lab::new(&json!({"rate": 40000, "size": "1000 B"}));
        let mut intake = lab.start_with(Options { when_full, ..Options::memory(1 << 20) });
        let start = Start::New(0);
        let kept = ReadOptions { name: "slow".to_owned(), kind: Kind::Counted, start, ..ReadOptions::default() };
        let reader = lab.data.reader("d001", kept).unwrap();
        // It fits in the buffer of the socket: nothing is lost before.
        let truth = lab.send(Duration::from_millis(100));
        assert_eq!(truth["sent"], 4000);
        let accounts = account_of(&lab, &mut intake, 4000);
        let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
        assert_eq!((account.sent, account.closed, account.refused.len()), (4000, true, 0), "{when_full:?}");
        assert!(account.appended > 100, "{account:#?}");
        assert_eq!(account.lost, [("full".to_owned(), 4000 - account.appended)].into(), "{when_full:?}");
        // Once there is room again, messages are appended again.
        let count = reader.bounds().count;
        reader.commit(count);
        lab.send_numbers(4000..4010);
        run(&mut intake, |intake| intake.writer().next_sequence() == count + 10);
    }
}

#[test]
fn a_second_board_on_a_port_is_refused_and_named() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    lab.send_numbers(1000..1003);
    let other = UdpSocket::bind("127.0.0.2:0").unwrap();
    for number in 0..700 {
        other.send_to(&datagram(Type::Data, number), lab.address).unwrap();
    }
    lab.send_numbers(1003..1010);
    // It looks at what is wrong now and then.
    run(&mut intake, |intake| intake.trouble().is_some());
    let fault = intake.trouble().unwrap();
    let names = "has two senders: 127.0.0.1 with stream 1 and 127.0.0.2 with stream 1";
    assert!(fault.what.contains(names) && fault.hint.contains("127.0.0.1"), "{fault}");
    let accounts = account_of(&lab, &mut intake, 1010);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, sum(&account.lost), account.closed), (10, 10, 0, true));
    assert_eq!(account.refused, [("stranger".to_owned(), 700)].into());
    // After a restart of the receiver the board is the same.
    drop(intake);
    let mut intake = lab.start();
    lab.send_numbers(1010..1020);
    let accounts = account_of(&lab, &mut intake, 1020);
    assert_eq!((accounts.len(), accounts[0].appended), (1, 20));
}

#[test]
fn junk_explains_no_loss_and_a_source_that_has_nothing_else_is_absent() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    for _ in 0..20 {
        lab.send_bytes(&[7; 100]);
    }
    run(&mut intake, |intake| intake.status()["magic"] == 20);
    let fault = intake.absent().unwrap();
    assert!(fault.what.contains("refused the last 20 datagrams") && fault.cause.contains("20 magic"), "{fault}");
    lab.send_numbers(0..5);
    lab.send_numbers(7..9);
    let accounts = account_of(&lab, &mut intake, 9);
    assert_eq!(accounts[0].lost, [("network".to_owned(), 2)].into());
    assert!(intake.absent().is_none());
}

#[test]
fn behind_the_last_life_of_a_board_its_messages_are_stored_still() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    // Each is the beginning of a life: the same number, another header.
    for sent in 1..=1010_u64 {
        lab.send_numbers(5..6);
        run(&mut intake, |intake| intake.writer().next_sequence() == sent);
    }
    run(&mut intake, |intake| intake.trouble().is_some_and(|fault| fault.cause.contains("1000 times")));
    drop(intake);
    // Switched on and off once more while nobody received.
    let mut intake = lab.start();
    lab.send_numbers(0..10);
    run(&mut intake, |intake| intake.writer().next_sequence() == 1020);
    lab.stop(&mut intake);
    let (accounts, _) = ledger::entries(&lab.data, "d001").unwrap();
    assert_eq!(accounts.len(), 1000);
    assert_eq!(
        accounts.iter().map(|one| (one.appended, sum(&one.lost))).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (1020, 0)
    );
    assert!(accounts.iter().all(|account| account.closed && account.refused.is_empty()));
}

#[test]
fn a_wrong_trigger_word_is_no_loss_of_thousands() {
    /// A unit of framing `hadaq` with one sub-event: little endian.
    fn unit(word: u32, data: u32) -> Vec<u8> {
        let sub: Vec<u8> = [24_u32, 0x2_0001, 0x8000, word, data, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
        let head: Vec<u8> = [32_u32, 0x2_0001].iter().flat_map(|n| n.to_le_bytes()).collect();
        let unit = [head, sub].concat();
        [unit.clone(), unit[..32].to_vec()].concat()
    }
    for bit in 0..24 {
        let lab = Lab::with(&json!({"framing": "hadaq"}));
        let mut intake = lab.start();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 100_000..106_000_u32 {
            let shown = if number == 103_000 { number ^ 1 << bit } else { number };
            socket.send_to(&unit(shown << 8, number), lab.address).unwrap();
            if number % 200 == 0 {
                let sent = u64::from(number) - 99_999;
                run(&mut intake, |intake| intake.status()["datagrams"] == sent);
            }
        }
        let accounts = account_of(&lab, &mut intake, 106_000);
        let [account] = accounts.as_slice() else { panic!("bit {bit}: {accounts:#?}") };
        // Its own number is lost. Where it took that of another, that one is refused in its place.
        let all = (account.sent, account.appended, sum(&account.lost), sum(&account.refused), account.closed);
        assert_eq!(all, (6000, 5999, 1, 1, true), "bit {bit}: {account:#?}");
    }
}

#[test]
fn datagrams_of_other_senders_are_counted() {
    let lab = Lab::with(&json!({"allow": ["127.0.0.1", "10.0.0.0/8"], "boards": {"rate": 1}}));
    let mut intake = lab.start();
    let other = UdpSocket::bind("127.0.0.2:0").unwrap();
    lab.send_numbers(0..3);
    for number in 3..5 {
        other.send_to(&datagram(Type::Data, number), lab.address).unwrap();
    }
    lab.send_numbers(3..6);
    let accounts = account_of(&lab, &mut intake, 6);
    let [account] = accounts.as_slice() else { panic!("{accounts:#?}") };
    assert_eq!((account.sent, account.appended, sum(&account.lost)), (6, 6, 0));
    assert_eq!(account.refused, [("sender".to_owned(), 2)].into());
}

#[test]
fn datagrams_are_taken_from_one_interface() {
    let lab = Lab::with(&json!({"interface": "lo", "boards": {"rate": 1}}));
    let mut intake = lab.start();
    lab.send_numbers(0..3);
    let accounts = account_of(&lab, &mut intake, 3);
    assert_eq!(accounts[0].appended, 3);

    let lab = Lab::with(&json!({"interface": "beamport-none"}));
    let mut source = lab.plan.build().unwrap();
    let fault = source.start(now(), &Resume::default()).unwrap_err();
    assert!(fault.to_string().contains("`ip link` lists the interfaces"), "{fault}");
}

/// The thread of a user without rights gets the buffer that the kernel allows everybody.
#[test]
fn a_buffer_that_the_kernel_does_not_give_is_a_warning_with_the_setting() {
    let lab = Lab::with(&json!({"buffer": "1 GiB"}));
    let plan = lab.plan.clone();
    let thread = std::thread::spawn(move || {
        // SAFETY: the calls take no pointer. They change this thread alone, unlike those of the C library.
        unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) };
        let mut source = plan.build().unwrap();
        source.start(now(), &Resume::default()).unwrap();
        source.trouble()
    });
    let trouble = thread.join().unwrap().expect("a warning").to_string();
    assert!(trouble.contains("source `d001` has a socket buffer of"), "{trouble}");
    assert!(trouble.contains("sysctl -w net.core.rmem_max=1073741824"), "{trouble}");
}

#[test]
fn datagrams_that_the_kernel_cuts_are_those_of_the_board() {
    let boards = json!({"rate": 20000, "size": "900 B", "loss": 0.1, "duplicate": 0.1, "gso": true});
    for gro in [false, true] {
        let lab = Lab::with(&json!({"gro": gro, "boards": boards}));
        let mut intake = lab.start();
        let truth = lab.send(Duration::from_millis(100));
        let accounts = account_of(&lab, &mut intake, 2000);
        assert_eq!(accounts[0].lost, [("network".to_owned(), truth["lost"].as_u64().unwrap())].into());
        assert_eq!(accounts[0].refused["duplicate"], truth["duplicate"]);
    }
}

#[test]
fn boards_of_two_receivers_send_coincidences() {
    let keys = json!({"boards": {"rate": 1000, "size": "10 B", "imbalance": 3, "multiplicity": 2, "clock_fault": 0.01,
                                 "duration": "1 s"}});
    let (left, right) = (Lab::with(&keys), Lab::with(&keys));
    let mut intakes = [left.start(), right.start()];
    let plans = [("one", left.plan()), ("two", right.plan())];
    let truth = beamport_udp::send(&plans, &left.data, None, &|| false).unwrap();
    // Both sources have the same name, so the last of the two is reported.
    assert_eq!(truth["boards"]["d001"]["sent"], 1000);
    assert_eq!(truth["sent"], 2000);
    for intake in &mut intakes {
        run(intake, |intake| intake.status()["next"] == 1000);
    }
    let pairs = left.messages().into_iter().zip(right.messages());
    let apart: Vec<u64> = pairs.map(|((left, _), (right, _))| left.abs_diff(right)).collect();
    let wrong = apart.iter().filter(|apart| **apart > 50).count() as u64;
    assert_eq!(apart.len(), 1000);
    assert!(wrong > 0 && wrong <= truth["clock_fault"].as_u64().unwrap(), "{wrong}, {truth}");
}

#[test]
fn rates_have_the_ratio_of_the_imbalance() {
    let keys = json!({"boards": {"rate": 100, "imbalance": 4}});
    let (left, right) = (Lab::with(&keys), Lab::with(&keys));
    let plans = [("udp", left.plan()), ("udp", right.plan())];
    let truth = beamport_udp::send(&plans, &left.data, Some(Duration::from_millis(500)), &|| false).unwrap();
    // 40 and 160 a second.
    assert_eq!((truth["sent"].as_u64(), truth["boards"]["d001"]["sent"].as_u64()), (Some(100), Some(80)));
}

#[test]
fn the_messages_of_a_stream_are_sent_again_and_again() {
    let lab = Lab::new(&json!({"rate": 1}));
    let mut intake = lab.start();
    lab.send_numbers(0..3);
    run(&mut intake, |intake| intake.status()["next"] == 3);
    let again = Lab::new(&json!({"rate": 100, "payload": "d001"}));
    let mut intake = again.start();
    let send = |data| beamport_udp::send(&[("udp", again.plan())], data, Some(Duration::from_millis(50)), &|| false);
    send(&lab.data).unwrap();
    run(&mut intake, |intake| intake.status()["next"] == 5);
    let payloads: Vec<_> = again.messages().into_iter().map(|message| message.1).collect();
    assert_eq!(payloads, [0_u64, 1, 2, 0, 1].map(|number| number.to_le_bytes().to_vec()));
    let none = Lab::new(&json!({"rate": 100, "payload": "nothing"}));
    assert!(beamport_udp::send(&[("udp", none.plan())], &lab.data, None, &|| false).is_err());
}

/// Reads all that is there, and says so.
fn drain(reader: &mut Reader) {
    while !reader.read(1000).unwrap().is_empty() {}
    reader.commit(reader.position());
}

/// A board that obeys loses nothing while the reader of its stream is stopped; both sides agree on the dead time.
#[test]
fn a_board_pauses_before_memory_is_full() {
    for (scheme, framing) in [("udp", "beamport"), ("tcp", "beamport"), ("udp", "hadaq"), ("tcp", "ess")] {
        let to = SocketAddr::from(([127, 0, 0, 1], testkit::free_port().unwrap()));
        let keys = json!({"framing": framing, "throttle": {"to": format!("{scheme}://{to}"), "high": 0.5},
                          "boards": {"rate": 2000, "size": "1000 B"}});
        let lab = Lab::with(&keys);
        let mut intake = lab.start_with(Options::memory(2 << 20));
        let mut reader = lab.counted();
        let dead = |intake: &Intake| intake.status()["dead_time"].as_f64().unwrap();
        let ended = AtomicU32::new(0);
        // Also where this test has failed and waits for the thread of the boards.
        let guard = Instant::now() + 2 * GUARD;
        let stop = || ended.load(Ordering::Relaxed) > 0 || Instant::now() > guard;
        let plans = [("udp", lab.plan())];
        let truth = std::thread::scope(|scope| {
            let boards = scope.spawn(|| beamport_udp::send(&plans, &lab.data, None, &stop).unwrap());
            // Two megabytes would be full after one second.
            let frames = |intake: &Intake| intake.status()["throttle_frames"].as_u64().unwrap();
            run(&mut intake, |intake| dead(intake) > 2.0 && frames(intake) > 15);
            let next = intake.status()["next"].as_u64();
            run(&mut intake, |intake| {
                drain(&mut reader);
                intake.status()["next"].as_u64() > next
            });
            ended.store(1, Ordering::Relaxed);
            boards.join().unwrap()
        });
        let did = &truth["boards"]["d001"];
        let sent = did["sent"].as_u64().unwrap();
        let accounts = account_of(&lab, &mut intake, sent);
        assert_eq!(
            (accounts[0].appended, sum(&accounts[0].lost), accounts[0].closed),
            (sent, 0, true),
            "{accounts:#?}"
        );
        assert!(did["inhibited"].as_u64().unwrap() > 1000, "{did}");
        let gaps = ledger::absences(&lab.data, "d001").unwrap();
        assert!(!gaps.is_empty() && gaps.iter().all(|gap| gap.reason == "throttled"), "{gaps:#?}");
        let recorded = gaps.iter().map(|gap| gap.to - gap.from).sum::<i64>() as f64 / 1e9;
        // One hundredth, and the steps of timers and of a busy machine for each interval.
        let steps = 0.2 * gaps.len() as f64;
        for other in [dead(&intake), did["dead_time"].as_f64().unwrap()] {
            assert!((recorded - other).abs() < 0.01 * recorded + steps, "{recorded} {other} {gaps:#?}");
        }
    }
}

#[test]
fn frames_of_a_throttle_name_the_detector_and_the_fill() {
    let control = UdpSocket::bind("127.0.0.1:0").unwrap();
    control.set_nonblocking(true).unwrap();
    let to = format!("udp://{}", control.local_addr().unwrap());
    let lab = Lab::with(&json!({"throttle": {"to": to, "high": 0.5, "low": 0.25}}));
    let mut intake = lab.start_with(Options::memory(1 << 20));
    let mut reader = lab.counted();
    let mut frames = Vec::new();
    let hear = |frames: &mut Vec<(u16, u64, u32)>| {
        let mut bytes = [0; 100];
        while let Ok(n) = control.recv(&mut bytes) {
            let header = Header::read(&bytes[..n], crc32c).unwrap();
            assert_eq!((n, header.kind, header.payload_bytes, &bytes[68..72]), (72, Type::Throttle, 8, &[0; 4][..]));
            assert_eq!(header.payload_crc, crc32c(&bytes[64..72]));
            let fill = u32::from_le_bytes(bytes[64..68].try_into().unwrap());
            frames.push((header.stream, header.sequence, fill));
        }
    };
    let mut number = 0;
    run(&mut intake, |_| {
        let payload = [7; 8192];
        let header = Header {
            stream: 42,
            flags: Flag::Epoch as u32,
            timestamp: now() as u64,
            sequence: number,
            payload_bytes: payload.len() as u32,
            payload_crc: crc32c(&payload),
            ..Header::default()
        };
        if frames.is_empty() {
            lab.send_bytes(&[header.to_bytes(crc32c).as_slice(), &payload].concat());
            number += 1;
        }
        hear(&mut frames);
        frames.len() >= 3
    });
    assert!(frames.iter().all(|(stream, _, fill)| *stream == 42 && (500..=1000).contains(fill)), "{frames:?}");
    assert_eq!(frames.iter().map(|frame| frame.1).collect::<Vec<_>>(), (0..frames.len() as u64).collect::<Vec<_>>());
    frames.clear();
    run(&mut intake, |_| {
        drain(&mut reader);
        hear(&mut frames);
        frames.iter().filter(|(_, _, fill)| *fill == 0).count() == 3
    });
    let accounts = account_of(&lab, &mut intake, number);
    assert_eq!((accounts[0].appended, sum(&accounts[0].lost)), (number, 0));
}

#[test]
fn the_dead_time_of_a_receiver_that_is_stopped_is_filed() {
    let control = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = format!("udp://{}", control.local_addr().unwrap());
    let lab = Lab::with(&json!({"throttle": {"to": to, "high": 0.5}}));
    let mut intake = lab.start_with(Options::memory(1 << 20));
    let _reader = lab.counted();
    let mut number = 0;
    let dead = |intake: &Intake| intake.status()["dead_time"].as_f64().unwrap();
    run(&mut intake, |intake| {
        if dead(intake) == 0.0 {
            lab.send_bytes(&datagram_of(Type::Data, number, &[7; 8192]));
            number += 1;
        }
        dead(intake) > 0.1
    });
    let last = (dead(&intake) * 1e9) as i64;
    lab.stop(&mut intake);
    let gaps = ledger::absences(&lab.data, "d001").unwrap();
    assert!(gaps.iter().all(|gap| gap.reason == "throttled"), "{gaps:#?}");
    assert!(gaps.iter().map(|gap| gap.to - gap.from).sum::<i64>() >= last, "{last} {gaps:#?}");
}

#[test]
fn boards_send_in_the_framing_of_their_source() {
    let boards =
        json!({"rate": 10000, "size": "100 B", "loss": 0.1, "corrupt": 0.1, "lag": "50 ms", "multiplicity": 2});
    for framing in ["geb", "hadaq", "raw"] {
        let lab = Lab::with(&json!({"framing": framing, "boards": boards, "zero": "2026-03-01T00:00:00Z"}));
        let mut intake = lab.start();
        let before = now();
        let truth = lab.send(Duration::from_millis(50));
        let count = |name: &str| truth[name].as_u64().unwrap();
        assert!(count("lost") > 10 && count("corrupt") > 10, "{truth}");
        let broken = if framing == "raw" { 0 } else { count("corrupt") };
        let arrived = count("sent") - count("lost") - broken;
        let is_numbered = framing == "hadaq";
        run(&mut intake, |intake| intake.status()["datagrams"] == arrived + broken);
        let next = intake.status()["next"].as_u64().unwrap();
        let accounts = account_of(&lab, &mut intake, next);
        assert_eq!(accounts[0].appended, arrived);
        let missing = accounts[0].sent - arrived;
        // Nothing tells what was lost before the first and behind the last one.
        assert!(
            if is_numbered { missing > 50 && missing <= count("lost") + broken } else { missing == 0 },
            "{missing}"
        );
        assert_eq!(sum(&accounts[0].refused), broken);
        let size = [("geb", 116), ("hadaq", 116), ("raw", 100)].iter().find(|one| one.0 == framing).unwrap().1;
        let messages = lab.messages();
        assert!(messages.iter().all(|(_, payload)| payload.len() == size));
        // Units have the time of the board, 50 ms before they are sent.
        let is_early = messages.iter().all(|(time, _)| (before..before + 60_000_000).contains(time));
        assert!(framing != "geb" || is_early, "{before} {:?}", messages.first());
    }
}

#[test]
fn readouts_of_boards_are_accounted_for() {
    let boards = json!({"rate": 10000, "size": "100 B", "duplicate": 0.1, "corrupt": 0.1});
    let lab = Lab::with(&json!({"framing": "ess", "boards": boards}));
    let mut intake = lab.start();
    let (before, truth) = (now(), lab.send(Duration::from_millis(50)));
    let count = |name: &str| truth[name].as_u64().unwrap();
    run(&mut intake, |intake| intake.status()["datagrams"] == truth["datagrams"]);
    let next = intake.status()["next"].as_u64().unwrap();
    let accounts = account_of(&lab, &mut intake, next);
    let account = &accounts[0];
    assert_eq!(account.appended, count("sent") - count("corrupt"), "{account:#?}");
    assert_eq!(account.refused["duplicate"], count("duplicate"));
    assert_eq!(sum(&account.refused), count("duplicate") + count("corrupt"));
    assert!(account.closed && account.lost.keys().eq(["damaged"]), "{account:#?}");
    let messages = lab.messages();
    assert!(messages.iter().all(|(_, payload)| wire::ar51::read(payload).unwrap().raw_data.len() == 132));
    assert!(messages.iter().all(|(time, _)| (before - 1_000..now()).contains(time)));
}
