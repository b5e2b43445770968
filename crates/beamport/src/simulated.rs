//! The simulated boards of an instrument that `up` starts: `beamport boards` as a child, from the first run on until
//! the instrument ends.

use crate::figures::thousands;
use crate::limits::{BOARDS_END_MAX, BOARDS_NAP};
use crate::peer;
use flow::Fault;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// The child; it is killed when this is dropped.
pub(crate) struct Simulated {
    child: Child,
    output: File,
    ended: Option<ExitStatus>,
    is_asked: bool,
}

impl Simulated {
    /// Starts the boards of an instrument file, or of one host of it, whose sources listen. `data`: the data folder.
    pub(crate) fn start(file: &Path, host: Option<&str>, data: &Path) -> Result<Self, Fault> {
        let cannot = |e: io::Error| Fault::io("cannot start the simulated boards", &e);
        let output = crate::mover::tempfile_in(data)?;
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        command.arg("boards").arg(file).arg("--parent").arg(std::process::id().to_string());
        command.args(host.into_iter().flat_map(|host| ["--host", host]));
        command.stdin(Stdio::null()).stdout(output.try_clone().map_err(cannot)?);
        peer::block_stop_signals(&mut command);
        let child = store::printed::spawn(command, "boards", false).map_err(cannot)?;
        Ok(Self { child, output, ended: None, is_asked: false })
    }

    /// Whether they have sent all that they are to send.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_some()
    }

    /// Asks them to end; true once they have.
    pub(crate) fn end(&mut self) -> bool {
        if !self.has_ended() && !std::mem::replace(&mut self.is_asked, true) {
            peer::ask_to_end(self.child.id());
        }
        self.has_ended()
    }

    /// Ends them; what they did.
    pub(crate) fn truth(mut self) -> Result<Value, Fault> {
        let since = Instant::now();
        while !self.end() {
            if since.elapsed() > BOARDS_END_MAX {
                return Err(Fault::new("the simulated boards did not end", "timeout after 10 s"));
            }
            std::thread::sleep(BOARDS_NAP);
        }
        let cannot = |e: io::Error| Fault::io("cannot read what the simulated boards did", &e);
        let mut text = String::new();
        self.output.seek(SeekFrom::Start(0)).and_then(|_| self.output.read_to_string(&mut text)).map_err(cannot)?;
        serde_json::from_str(&text).map_err(|_| {
            let status = self.ended.map_or_else(String::new, |status| status.to_string());
            Fault::new("the simulated boards do not say what they did", status).hint("their messages are above")
        })
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill().and_then(|()| self.child.wait());
        }
    }
}

/// The counts of the boards, in one line.
pub(crate) fn line(truth: &Value) -> String {
    let count = |name: &str| truth[name].as_u64().unwrap_or(0);
    let words = ["lost", "duplicate", "reordered", "corrupt", "clock_fault", "inhibited"];
    let some = words.iter().filter(|word| count(word) > 0);
    let parts: Vec<String> =
        some.map(|word| format!(", {} {}", thousands(count(word)), word.replace('_', " "))).collect();
    let boards = truth["boards"].as_object().map_or(0, serde_json::Map::len) as u64;
    format!("boards  {} sent by {}{}", thousands(count("sent")), thousands(boards), parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_boards_did_is_a_line() {
        let truth =
            json!({"sent": 16000, "lost": 1234, "duplicate": 0, "clock_fault": 2, "boards": {"a": {}, "b": {}}});
        assert_eq!(line(&truth), "boards  16,000 sent by 2, 1,234 lost, 2 clock fault");
    }
}
