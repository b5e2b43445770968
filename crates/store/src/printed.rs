//! What child processes print: read by us, and printed line by line with the name of the child.
//!
//! A child that shares our stderr writes into the middle of our lines, and nobody sees whose line it is. Each child
//! gets a pipe instead, and a thread that reads it. A line is printed at once; one without an end within
//! [`LINE_BYTES_MAX`] is broken, and of a second with more than [`LINES_MAX`] lines the rest is counted. The pipe is
//! always read: a child never waits for a person. Output that cannot be printed is dropped.

use crate::limits::{LINE_BYTES_MAX, LINES_MAX, PRINTED_PATIENCE};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How many pipes are read.
static OPEN: Mutex<usize> = Mutex::new(0);
static CLOSED: Condvar = Condvar::new();

/// Makes what is printed of the name of a child and a line of it without its end.
pub type Shape = fn(&str, &[u8]) -> Vec<u8>;
static SHAPE: OnceLock<Shape> = OnceLock::new();

/// Gives all lines of children another shape than the name, a colon and the line; the first call counts.
pub fn shape_lines(shape: Shape) {
    let _ = SHAPE.set(shape);
}

/// Variables of our environment that hold secrets.
static SECRETS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// From now on children do not get these variables of our environment, which hold secrets.
pub fn hide_variables(names: impl IntoIterator<Item = String>) {
    SECRETS.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
}

/// Takes the variables that hold secrets from the environment of a child.
pub fn without_secrets(command: &mut Command) -> &mut Command {
    for name in &*SECRETS.lock().unwrap_or_else(PoisonError::into_inner) {
        command.env_remove(name);
    }
    command
}

fn behind_name(name: &str, line: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b": ", line, b"\n"].concat()
}

/// Starts a child whose stderr is printed on ours, each line behind the name; `with_stdout`: its stdout too.
///
/// # Errors
/// The child, its pipe or the thread cannot be made.
pub fn spawn(mut command: Command, name: &str, with_stdout: bool) -> io::Result<Child> {
    let (reader, writer) = io::pipe()?;
    if with_stdout {
        command.stdout(writer.try_clone()?);
    }
    without_secrets(&mut command).stderr(writer);
    let name = name.to_owned();
    *OPEN.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    let thread = std::thread::Builder::new().name("printed".into()).spawn(move || {
        let shape = SHAPE.get().copied().unwrap_or(behind_name);
        pass_on(reader, |line| drop(io::stderr().write_all(&shape(&name, line))));
        closed();
    });
    thread.inspect_err(|_| closed())?;
    // The pipe ends with the child: the command, which holds our end of it, is dropped here.
    command.spawn()
}

/// Waits until all that children printed before they ended is printed. Processes that a child has left behind may hold
/// its pipe: the wait is short.
pub fn settle() {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    drop(CLOSED.wait_timeout_while(open, PRINTED_PATIENCE, |open| *open > 0));
}

fn closed() {
    *OPEN.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    CLOSED.notify_all();
}

/// Reads lines until the end, and prints each in one piece.
fn pass_on(pipe: impl Read, mut print: impl FnMut(&[u8])) {
    let mut pipe = BufReader::new(pipe);
    let (mut second, mut lines, mut left_out) = (Instant::now(), 0_u64, 0_u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = pipe.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let is_over = !matches!(read, Ok(bytes) if bytes > 0);
        if is_over || second.elapsed() >= Duration::from_secs(1) {
            if left_out > 0 {
                print(format!("{left_out} lines left out, more than {LINES_MAX} in a second").as_bytes());
            }
            (second, lines, left_out) = (Instant::now(), 0, 0);
        }
        if is_over {
            return;
        }
        lines += 1;
        if lines > LINES_MAX {
            left_out += 1;
            continue;
        }
        print(line.strip_suffix(b"\n").unwrap_or(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that is printed for these bytes.
    fn printed(bytes: &[u8]) -> Vec<String> {
        let mut pieces = Vec::new();
        pass_on(bytes, |line| pieces.push(String::from_utf8_lossy(&behind_name("slot 1", line)).into_owned()));
        pieces
    }

    #[test]
    fn each_line_of_a_child_is_printed_whole_and_behind_its_name() {
        let (reader, mut writer) = io::pipe().unwrap();
        let child = std::thread::spawn(move || {
            for piece in ["Fatal ", "error", ": x\n\nle", "ft"] {
                writer.write_all(piece.as_bytes()).unwrap();
            }
        });
        let mut pieces = Vec::new();
        pass_on(reader, |line| pieces.push(String::from_utf8_lossy(&behind_name("slot 1", line)).into_owned()));
        child.join().unwrap();
        assert_eq!(pieces, ["slot 1: Fatal error: x\n", "slot 1: \n", "slot 1: left\n"]);
    }

    #[test]
    fn a_line_without_an_end_is_broken() {
        let pieces = printed(&vec![b'x'; 2 * LINE_BYTES_MAX as usize + 1]);
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[2], "slot 1: x\n");
    }

    #[test]
    fn lines_without_number_are_counted_and_not_printed() {
        let pieces = printed(&b"x\n".repeat(3 * LINES_MAX as usize));
        assert!(pieces.len() < 3 * LINES_MAX as usize);
        let left_out: u64 =
            pieces.iter().filter_map(|p| p.split(": ").nth(1)?.split_once(" lines")?.0.parse::<u64>().ok()).sum();
        let whole = pieces.iter().filter(|piece| *piece == "slot 1: x\n").count();
        assert_eq!(whole as u64 + left_out, 3 * LINES_MAX);
    }

    #[test]
    fn all_that_an_ended_child_printed_is_printed() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2"]);
        spawn(command, "sh", true).unwrap().wait().unwrap();
        settle();
        assert_eq!(*OPEN.lock().unwrap(), 0);
    }
}
