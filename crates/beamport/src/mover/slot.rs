//! A slot of a ready-made worker: `beamport slot JSON`, a process that the mover starts as it does `python -m
//! beamport._slot`, so that it is bound to a processor, killed and started again in the same way.

use crate::edges::Registry;
use crate::peer;
use flow::edge::WorkerPlace;
use flow::{Data, Fault, Native, Slot, SlotOptions, Stepped};
use serde_json::Value;
use std::time::Duration;
use store::{Level, Options, WhenFull};

/// Longest sleep without a look at whether it is to end.
const NAP: Duration = Duration::from_millis(250);

/// Works until asked to end. `asked`: the JSON text that `workers.rs` passes to a slot.
pub fn run(asked: &str, registry: &Registry) -> Result<(), Fault> {
    let asked: Value = serde_json::from_str(asked).map_err(|e| Fault::new("only `beamport up` starts slots", e))?;
    let text = |key: &str| asked[key].as_str().unwrap_or_default();
    let number = |key: &str| asked[key].as_u64().unwrap_or_default();
    die_with(number("parent"))?;
    if let Some(cpu) = asked["cpu"].as_u64() {
        bind(cpu)?;
    }
    let data = Data::on_disk(text("data"));
    let slot = u32::try_from(number("number")).unwrap_or(u32::MAX);
    let names = asked["inputs"].as_array().into_iter().flatten();
    let inputs: Vec<String> = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let level = if text("level") == "disk" { Level::Disk } else { Level::Memory };
    let options = SlotOptions {
        number: slot,
        inputs: inputs.clone(),
        stream: Options { level, when_full: WhenFull::Wait, ..Options::memory(number("live")) },
        from: number("from"),
        by_key: asked["by_key"].as_bool().unwrap_or(false),
    };
    let stage = text("stage");
    let mut running = Slot::open(&data, stage, options)?;
    let call = text("call");
    let kind = registry.workers().iter().find(|kind| kind.name == call).ok_or_else(|| {
        Fault::new(format!("worker `{stage}` cannot run"), format!("this program has no ready-made worker `{call}`"))
            .hint("run `beamport up` of the program that has it")
    })?;
    let place = WorkerPlace { data, stage: stage.to_owned(), slot, inputs };
    let mut worker = Native::new(kind, place, &asked["parameters"])?;
    loop {
        // Without room the message is begun again instead of waiting: the slot itself may hold what is in the way.
        let stepped = running.step(&mut worker, &mut |writer| {
            writer.wait_room(NAP);
            false
        })?;
        match stepped {
            Stepped::Idle => running.wait(NAP).map(drop)?,
            Stepped::Full => running.wait_room(NAP),
            Stepped::Worked => {}
            Stepped::Ended => return Ok(()),
        }
    }
}

/// Dies with the mover. Ctrl-C is for the mover: it lets slots finish what they have.
fn die_with(parent: u64) -> Result<(), Fault> {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    peer::die_with(u32::try_from(parent).unwrap_or(0))
}

/// Binds this process to a processor.
fn bind(cpu: u64) -> Result<(), Fault> {
    // SAFETY: zero is a valid value of this plain structure, and the number is inside it.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if (cpu as usize) < 8 * size_of::<libc::cpu_set_t>() {
            libc::CPU_SET(cpu as usize, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if answer == 0 {
        return Ok(());
    }
    let why = std::io::Error::last_os_error();
    Err(Fault::new(format!("cannot bind a slot to CPU {cpu}"), why).hint("write CPUs of this machine in `cpus`"))
}
