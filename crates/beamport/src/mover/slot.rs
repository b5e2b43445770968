//! A slot of a ready-made worker: `beamport slot JSON`, a process that the mover starts as it does `python -m
//! beamport._slot`, so that it is bound to a processor, killed and started again in the same way.

use crate::edges::Registry;
use crate::peer;
use flow::edge::WorkerPlace;
use flow::{Data, Fault, Native, Slot, SlotJob, Stepped};
use std::time::Duration;

/// Longest sleep without a look at whether it is to end.
const NAP: Duration = Duration::from_millis(250);

/// Works until asked to end. `asked`: the JSON text of the job.
pub fn run(asked: &str, registry: &Registry) -> Result<(), Fault> {
    let job: SlotJob = serde_json::from_str(asked).map_err(|e| Fault::new("only `beamport up` starts slots", e))?;
    die_with(job.parent)?;
    if let Some(cpu) = job.cpu {
        bind(cpu)?;
    }
    let data = Data::on_disk(&job.data);
    let mut running = Slot::of_job(&data, &job)?;
    let SlotJob { stage, number, inputs, code, .. } = job;
    let kind = registry.workers().iter().find(|kind| kind.name == code.call).ok_or_else(|| {
        let cause = format!("this program has no ready-made worker `{}`", code.call);
        Fault::new(format!("worker `{stage}` cannot run"), cause).hint("run `beamport up` of the program that has it")
    })?;
    let mut worker = Native::new(kind, WorkerPlace { data, stage, slot: number, inputs }, &code.parameters)?;
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
fn die_with(parent: u32) -> Result<(), Fault> {
    // SAFETY: the call takes plain numbers.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    peer::die_with(parent)
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
