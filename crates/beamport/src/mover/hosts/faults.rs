//! Faults of a host: streams that moved, clocks that differ, a second process.

use crate::figures::instant;
use crate::file::{Instrument, Stage, is_hosts_sink};
use flow::{Data, Fault};
use serde_json::Value;

/// Refuses a stream to be sent whose first messages were made on another host: there they would come twice.
pub(super) fn refuse_moved(data: &Data, instrument: &Instrument) -> Result<(), Fault> {
    let sinks = instrument.stages.iter().filter(|stage| is_hosts_sink(stage.name()));
    for stream in sinks.flat_map(Stage::inputs) {
        if data.has(stream)? && !data.reader_early(stream)?.header().near.is_empty() {
            let what = format!("stream `{stream}` cannot be sent to other hosts");
            let fault = Fault::new(what, "its stage was on another host, which would have the messages of then twice");
            let folder = data.folder.join(stream);
            return Err(fault.hint(format!("give its stage another name, or remove `{}`", folder.display())));
        }
    }
    Ok(())
}

/// The fault of a host whose clock is wrong by `ahead` ns. `other`: the host with the clock of the bulletin, which may
/// be the wrong one; none where a broker has that clock.
pub(super) fn wrong_clock(host: &str, ahead: i64, other: Option<&str>) -> Option<Fault> {
    if ahead == 0 {
        return None;
    }
    let (word, by) = (if ahead < 0 { "behind" } else { "ahead of" }, ahead.unsigned_abs() as f64 / 1e9);
    let (what, of) = match other {
        Some(other) => (format!("the clocks of hosts `{host}` and `{other}` differ"), format!("that of `{other}`")),
        None => (format!("the clock of host `{host}` is wrong"), "that of the broker".to_owned()),
    };
    let fault = Fault::new(what, format!("that of `{host}` is {by:.1} s {word} {of}"));
    Some(fault.hint("synchronise the clocks of all machines (NTP, PTP): messages belong to runs by their times"))
}

/// The fault of a process in whose place another one runs.
pub(super) fn fenced(host: &str, other: Option<&Value>) -> Fault {
    let cause = match other {
        Some(process) => format!(
            "it is process {} with boot {}, started {}",
            process["pid"],
            process["boot"].as_str().unwrap_or("unknown"),
            instant(process["since"].as_i64().unwrap_or(0))
        ),
        None => "it has given no sign of itself yet".to_owned(),
    };
    Fault::new(format!("another process runs host `{host}`"), cause)
        .hint("run each host once: stop one of the two, or give it the name of another host")
}
