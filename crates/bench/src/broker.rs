//! What `beamport-bench kafka` runs beside beamport: one node of Apache Kafka, and the bare client of librdkafka.

use super::place::{Folder, free_ports, output, wrong};
use flow::Fault;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The bare client; its first comment says what it does.
const CLIENT: &str = include_str!("../../../bench/kafka_client.c");
/// Broker and controller in one process. What is deleted is removed at once: each round writes a topic. A group has its
/// first member at once, so that a writer that was just started takes jobs.
const PROPERTIES: &str = "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=100
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
";
/// Any identity of a cluster.
const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";
/// Longest wait for a node that starts.
const PATIENCE: Duration = Duration::from_secs(120);

/// The target folder of cargo: this program lies in `release` below it.
pub(crate) fn target() -> Result<PathBuf, Fault> {
    let me = std::env::current_exe().map_err(wrong("this program does not know its own file"))?;
    Ok(me.ancestors().nth(2).unwrap_or(Path::new("target")).to_path_buf())
}

/// A file of a folder whose name begins with a word.
pub(crate) fn named(folder: &Path, begins: &str, hint: &str) -> Result<PathBuf, Fault> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = files.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(begins))).max();
    found.ok_or_else(|| {
        let cause = format!("{} has no `{begins}...`", folder.display());
        Fault::new("bench: a part of the comparison is missing", cause).hint(hint)
    })
}

/// One node of Apache Kafka; it ends with this value, or with the thread that started it.
pub(crate) struct Node {
    process: Child,
    pub(crate) address: String,
    folder: Folder,
}

impl Node {
    /// Starts it from the jars in the target folder, with its data on the disk; [`Client::make`] waits until it is
    /// ready.
    pub(crate) fn start() -> Result<Self, Fault> {
        let jars =
            named(&target()?, "kafka-", "`cargo xtask check` fetches Apache Kafka, or name a cluster: --brokers")?;
        let folder = Folder::on_disk()?;
        let [broker, controller] = free_ports().map_err(wrong("no free port"))?;
        let path = folder.path();
        let text = PROPERTIES.replace("{broker}", &broker.to_string());
        let text = text.replace("{controller}", &controller.to_string());
        let text = text.replace("{folder}", &path.to_string_lossy());
        fs::write(path.join("server.properties"), text).map_err(wrong("the properties of Kafka cannot be written"))?;
        let java = |class: &str| {
            let mut command = Command::new("java");
            command.args(["-Xms1g", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"]);
            command.arg(format!("{}/*", jars.display())).arg(class).current_dir(path).stdin(Stdio::null());
            command
        };
        let mut format = java("kafka.tools.StorageTool");
        output(format.args(["format", "-t", CLUSTER, "-c", "server.properties"]))?;
        let log = fs::File::create(path.join("said")).map_err(wrong("the log of Kafka cannot be written"))?;
        let other = log.try_clone().map_err(wrong("the log of Kafka cannot be written"))?;
        let mut command = java("kafka.Kafka");
        command.arg("server.properties").stdout(log).stderr(other);
        // SAFETY: between fork and exec, one system call without memory.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let process = command.spawn().map_err(wrong("java does not start"))?;
        Ok(Self { process, address: format!("127.0.0.1:{broker}"), folder })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The end of what it printed.
    pub(crate) fn last_words(&self) -> String {
        let said = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The cluster that was named, or a node that is started, and the bare client for it.
pub(crate) fn open(brokers: Option<&str>) -> Result<(Option<Node>, Client), Fault> {
    let node = if brokers.is_none() { Some(Node::start()?) } else { None };
    let brokers = node.as_ref().map_or_else(|| brokers.unwrap_or_default().to_owned(), |node| node.address.clone());
    let client = Client::build(&brokers)?;
    Ok((node, client))
}

/// The same, once a node that is started answers: it has its first topic then.
pub(crate) fn ready(brokers: Option<&str>) -> Result<(Option<Node>, Client), Fault> {
    let (mut node, client) = open(brokers)?;
    let first = format!("beamport-bench-{}-first", std::process::id());
    client.make(&first, node.as_mut())?;
    client.remove(&first)?;
    Ok((node, client))
}

/// The bare client, compiled against the library that `beamport` loads.
pub(crate) struct Client {
    program: PathBuf,
    pub(crate) brokers: String,
    _folder: Folder,
}

impl Client {
    /// Compiles it.
    pub(crate) fn build(brokers: &str) -> Result<Self, Fault> {
        let libraries = target()?.join("lib/beamport");
        let hint = "`cargo xtask bench` provides librdkafka; where it is compiled from source there is no library";
        let library = named(&libraries, "librdkafka", hint)?;
        // Not in memory: /dev/shm may forbid programs.
        let folder = Folder::on_disk()?;
        let (source, program) = (folder.path().join("kafka_client.c"), folder.path().join("kafka_client"));
        fs::write(&source, CLIENT).map_err(wrong("the client cannot be written"))?;
        let mut cc = Command::new("cc");
        cc.arg("-O2").arg("-o").arg(&program).arg(&source).arg(library);
        output(cc.arg(format!("-Wl,-rpath,{}", libraries.display())))?;
        Ok(Self { program, brokers: brokers.to_owned(), _folder: folder })
    }

    /// Its command line, for a verb and a topic.
    pub(crate) fn command(&self, verb: &str, topic: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([verb, &self.brokers, topic]).stdin(Stdio::null());
        command
    }

    /// Creates a topic; waits for a node that starts.
    pub(crate) fn make(&self, topic: &str, node: Option<&mut Node>) -> Result<(), Fault> {
        let begin = Instant::now();
        let mut node = node;
        loop {
            let Err(fault) = output(&mut self.command("make", topic)) else { return Ok(()) };
            let ended = node.as_mut().and_then(|node| node.process.try_wait().ok().flatten());
            if node.is_none() || ended.is_some() || begin.elapsed() > PATIENCE {
                return Err(fault.hint(node.map_or_else(String::new, |node| node.last_words())));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub(crate) fn remove(&self, topic: &str) -> Result<(), Fault> {
        output(&mut self.command("remove", topic)).map(drop)
    }
}

/// Seconds that the client printed.
pub(crate) fn seconds(answer: &str) -> Result<f64, Fault> {
    answer.trim().parse().map_err(|_| Fault::new("bench: the client of librdkafka does not answer", answer.trim()))
}
