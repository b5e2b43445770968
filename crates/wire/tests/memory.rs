//! What reading and writing allocate, counted by an allocator of the test's own: nothing in the data path, and
//! never more than in proportion to the buffer.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use beamport_wire::limits::VISITS_PER_BYTE_MAX;
use beamport_wire::{Error, ad00, al00, bpcm, da00, ev44, f144, read};

struct Counting;

thread_local! {
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that is going away has no counter any more; nobody asks it either.
    let _ = BYTES.try_with(|all| all.set(all.get() + bytes as u64));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the ones `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: `place` came from `System` by `alloc` or `realloc` above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: `place` came from `System` by `alloc` or `realloc` above.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes asked for by `work` on this thread, each growth counted in full.
fn allocated(work: impl FnOnce()) -> u64 {
    let before = BYTES.get();
    work();
    BYTES.get() - before
}

#[test]
fn the_data_path_allocates_nothing() {
    let events: Vec<i32> = (0..10_000).collect();
    let parts = ev44::Ev44 {
        source_name: "multiblade",
        message_id: 1,
        reference_time: (&[1i64, 2]).into(),
        reference_time_index: (&[0i32, 5000]).into(),
        time_of_flight: (&events).into(),
        pixel_id: (&events).into(),
    };
    let value = f144::F144 { source_name: "t", timestamp: 1, value: 1.5.into() };
    let alarm = al00::Al00 { source_name: "t", timestamp: 1, severity: al00::Severity::Major, message: "hot" };
    let variables = [da00::Variable {
        name: "signal",
        unit: Some("counts"),
        label: None,
        source: None,
        axes: (&["x"]).into(),
        shape: (&[10_000i64]).into(),
        data: (&events).into(),
    }];
    let array = da00::Da00 { source_name: "m", timestamp: 1, data: (&variables).into() };

    let attributes = [ad00::Attribute { name: "Gain", description: None, source: None, data: (&[1.5f64]).into() }];
    let frame = ad00::Ad00 {
        source_name: "camera",
        id: 1,
        timestamp: 1,
        dimensions: (&[100i64, 100]).into(),
        data: (&events).into(),
        attributes: (&attributes).into(),
    };
    let mut head = ad00::Head::default();

    let mut out = Vec::new();
    let mut write_all = || {
        head.write(&frame).expect("written");
        head.set(2, 2);
        assert!(head.parts(frame.data.bytes()).is_some());
        ad00::write(&mut out, &frame).expect("written");
        ev44::write(&mut out, &parts).expect("written");
        da00::write(&mut out, &array).expect("written");
        al00::write(&mut out, &alarm).expect("written");
        f144::write(&mut out, &value).expect("written");
    };
    assert!(allocated(&mut write_all) > 40_000, "the counter counts");
    assert_eq!(allocated(&mut write_all), 0, "writing into a warm buffer");

    ev44::write(&mut out, &parts).expect("written");
    let sum = |message: &ev44::Ev44<'_>| message.pixel_id.iter().map(i64::from).sum::<i64>();
    assert_eq!(allocated(|| assert_eq!(sum(&ev44::read(&out).expect("read")), 49_995_000)), 0);
    ad00::write(&mut out, &ad00::Ad00 { attributes: Default::default(), ..frame }).expect("written");
    assert_eq!(allocated(|| assert_eq!(ad00::read(&out).expect("read").data.len(), 10_000)), 0);
    f144::write(&mut out, &value).expect("written");
    assert_eq!(allocated(|| assert_eq!(f144::read(&out).expect("read").timestamp, 1)), 0);
}

/// A list in a list, where all entries of the outer share one inner: 4 million entries in 288 kB.
#[test]
fn what_is_allocated_stays_in_proportion_to_the_buffer() {
    let counts = vec![bpcm::Count { name: "", value: 0 }; 2000];
    let mut inputs = vec![
        bpcm::CommitInput {
            stream: "",
            uuid: [0; 16],
            epoch: 0,
            first: 0,
            next: 0,
            done: 0,
            counts: Default::default(),
        };
        2000
    ];
    inputs[1999].counts = (&counts).into();
    let commit = bpcm::Commit {
        stage: "file",
        run: "",
        block: 0,
        time: 0,
        inputs: (&inputs).into(),
        gaps: Default::default(),
        output_first: 0,
        output_next: 0,
        state: "",
        finished: false,
        totals: Default::default(),
        part: 0,
        parts: 0,
        is_table: false,
    };
    let mut out = Vec::new();
    bpcm::write(&mut out, &commit).expect("written");
    bounded(&out, Ok(()));

    // Offsets point forward only, so all point at the last table, which lies behind every slot.
    let slots = inputs_of(&out);
    let shared = slots[slots.len() - 1].1;
    for (slot, _) in &slots[..20] {
        out[*slot..slot + 4].copy_from_slice(&((shared - slot) as u32).to_le_bytes());
    }
    bounded(&out, Ok(()));
    for (slot, _) in &slots {
        out[*slot..slot + 4].copy_from_slice(&((shared - slot) as u32).to_le_bytes());
    }
    bounded(&out, Err(Error::Entangled));
}

/// Position and target of every offset in the list of inputs of a commit that we wrote.
fn inputs_of(bytes: &[u8]) -> Vec<(usize, usize)> {
    let word = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("inside")) as usize;
    let half = |at: usize| u16::from_le_bytes(*bytes[at..].first_chunk().expect("inside")) as usize;
    let root = word(0);
    let slot = root + half(root - word(root) + 4 + 2 * 4);
    let list = slot + word(slot);
    (0..word(list)).map(|at| list + 4 + 4 * at).map(|slot| (slot, slot + word(slot))).collect()
}

fn bounded(bytes: &[u8], expected: Result<(), Error>) {
    let mut found = Ok(());
    let used = allocated(|| found = read(bytes).map(drop));
    assert_eq!(found, expected);
    // A vector that grows by doubling asks for up to twice its final size and, counted in full each time, twice
    // that again.
    let most = bytes.len() as u64 * VISITS_PER_BYTE_MAX * 4;
    assert!(used <= most, "{used} bytes for a message of {}", bytes.len());
}
