//! What `beamport-bench epics` runs beside beamport: servers of EPICS on ports of their own, and the bare clients.

use super::broker::{named, target};
use super::place::{Folder, free_ports, output, wrong};
use flow::Fault;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Servers and clients; its first comment says what it does.
const PEER: &str = include_str!("../../../bench/epics_peer.cpp");
/// Libraries of EPICS, as they are named in the target folder.
const LIBRARIES: [&str; 5] = ["libpvxs.so", "libCom.so", "libca.so", "libevent_core.so", "libevent_pthread.so"];

/// How long a program has for its end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Variables for the ports, which servers and clients share.
const PORTS: [(&str, usize); 8] = [
    ("EPICS_PVA_BROADCAST_PORT", 0),
    ("EPICS_PVAS_BROADCAST_PORT", 0),
    ("EPICS_PVA_SERVER_PORT", 1),
    ("EPICS_PVAS_SERVER_PORT", 1),
    ("EPICS_CA_SERVER_PORT", 2),
    ("EPICS_CAS_SERVER_PORT", 2),
    ("EPICS_CA_REPEATER_PORT", 3),
    ("EPICS_CAS_BEACON_PORT", 3),
];
/// Variables for addresses: this machine.
const ADDRESSES: [&str; 6] = [
    "EPICS_PVA_ADDR_LIST",
    "EPICS_CA_ADDR_LIST",
    "EPICS_PVAS_INTF_ADDR_LIST",
    "EPICS_CAS_INTF_ADDR_LIST",
    "EPICS_PVAS_BEACON_ADDR_LIST",
    "EPICS_CAS_BEACON_ADDR_LIST",
];
/// Variables that would add others.
const AUTOMATIC: [&str; 4] = [
    "EPICS_PVA_AUTO_ADDR_LIST",
    "EPICS_CA_AUTO_ADDR_LIST",
    "EPICS_PVAS_AUTO_BEACON_ADDR_LIST",
    "EPICS_CAS_AUTO_BEACON_ADDR_LIST",
];

/// The compiled program, and the environment with which servers and clients meet each other and nobody else.
pub(crate) struct Peers {
    program: PathBuf,
    environment: Vec<(&'static str, String)>,
    folder: Folder,
}

impl Peers {
    /// Compiles it.
    pub(crate) fn build() -> Result<Self, Fault> {
        // Not in memory: /dev/shm may forbid programs.
        let folder = Folder::on_disk()?;
        let program = compile(folder.path(), "epics_peer", PEER, &[])?;
        Ok(Self { program, environment: environment()?, folder })
    }

    /// A folder on the disk for files of the measurement.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Gives a program the environment.
    pub(crate) fn meet<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)))
    }

    fn command(&self, verb: &str, numbers: &[u64]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(verb).args(numbers.iter().map(u64::to_string));
        self.meet(&mut command);
        command
    }

    /// Starts a server, which keeps a pace.
    pub(crate) fn serve(&self, verb: &str, numbers: &[u64]) -> Result<Talk, Fault> {
        let mut server = Talk::start(&mut self.command(verb, numbers))?;
        server.until("serving")?;
        Ok(server)
    }

    /// Starts an IOC with records; clients wait for it.
    pub(crate) fn ioc(&self, python: &Path, records: &str) -> Result<Talk, Fault> {
        let path = self.folder().join("records.db");
        fs::write(&path, records).map_err(wrong("the records cannot be written"))?;
        let mut command = Command::new(python);
        command.args(["-m", "pvxslibs.ioc", "-d"]).arg(path).stderr(Stdio::null());
        Talk::start(self.meet(&mut command))
    }

    /// Starts a bare client.
    pub(crate) fn client(&self, verb: &str, pvs: u64) -> Result<Talk, Fault> {
        Talk::start(&mut self.command(verb, &[pvs]))
    }
}

/// Compiles a program of C++ against the libraries that `beamport` loads.
pub(crate) fn compile(folder: &Path, name: &str, text: &str, more: &[&str]) -> Result<PathBuf, Fault> {
    let (target, hint) =
        (target()?, "`cargo xtask bench` provides the libraries of EPICS, where there are wheels of them");
    let libraries = target.join("lib/beamport");
    let (source, program) = (folder.join(format!("{name}.cpp")), folder.join(name));
    fs::write(&source, text).map_err(wrong("a source cannot be written"))?;
    let mut compiler = Command::new("c++");
    // The wheels are compiled with the strings of before C++11.
    compiler.args(["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-O2", "-pthread", "-isystem"]);
    compiler.arg(target.join("epics/include")).arg("-o").arg(&program).arg(source);
    for library in LIBRARIES.iter().chain(more) {
        compiler.arg(named(&libraries, library, hint)?);
    }
    output(compiler.arg(format!("-Wl,-rpath,{}", libraries.display())))?;
    Ok(program)
}

fn environment() -> Result<Vec<(&'static str, String)>, Fault> {
    let ports: [u16; 4] = free_ports().map_err(wrong("no free port"))?;
    let ports = PORTS.iter().map(|(name, at)| (*name, ports[*at].to_string()));
    let here = ADDRESSES.iter().map(|name| (*name, "127.0.0.1".to_owned()));
    Ok(ports.chain(here).chain(AUTOMATIC.iter().map(|name| (*name, "NO".to_owned()))).collect())
}

/// A program that is talked to by lines; it ends with this value.
pub(crate) struct Talk {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Talk {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Result<Self, Fault> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(wrong("a program does not start"))?;
        let to = child.stdin.take();
        match child.stdout.take() {
            Some(from) => Ok(Self { child, to, from: BufReader::new(from) }),
            None => Err(Fault::new("bench: a program has no output", name)),
        }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> Result<String, Fault> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line).map_err(wrong("a program does not answer"))?;
        if read > 0 { Ok(line) } else { Err(Fault::new("bench: a program of the comparison ended", self.pid())) }
    }

    /// Reads until a line has the word.
    fn until(&mut self, word: &str) -> Result<(), Fault> {
        while !self.line()?.contains(word) {}
        Ok(())
    }

    /// The number with which it answers a line.
    pub(crate) fn ask(&mut self, line: &str) -> Result<u64, Fault> {
        let told = self.to.as_mut().map_or(Ok(()), |to| writeln!(to, "{line}"));
        told.map_err(wrong("a program of the comparison ended"))?;
        let answer = self.line()?;
        answer.trim().parse().map_err(|_| Fault::new("bench: a program answers something else", answer.trim()))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.to = None;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
