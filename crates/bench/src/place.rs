//! Folders that a measurement uses and removes, and the machine it ran on.

use crate::ports::free_port;
use flow::Fault;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use store::{Media, Os};

/// Says what could not be done, with the cause.
pub(crate) fn wrong<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Fault + '_ {
    move |error| Fault::new(format!("bench: {what}"), error)
}

/// Runs a program and returns its stdout; if it fails, a fault with the last line of its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String, Fault> {
    let name = command.get_program().to_string_lossy().into_owned();
    let answer = command.output().map_err(wrong("a program does not start"))?;
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&answer.stderr);
    let last = words.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(Fault::new(format!("bench: {name} failed ({})", answer.status), last))
}

/// A Python that has a package: that of the active environment, of `.venv` here, or the one on the path.
pub(crate) fn python_with(package: &str, install: &str) -> Result<PathBuf, Fault> {
    let active = std::env::var_os("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("bin/python"));
    let here = std::path::absolute(".venv/bin/python").ok();
    let found = active.into_iter().chain(here).chain(["python3".into()]).find(|program| {
        let mut command = Command::new(program);
        command.arg("-c").arg(format!("import {package}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    found.ok_or_else(|| {
        Fault::new("bench: a side of the comparison is missing", format!("no Python with {package} is found"))
            .hint(format!("`{install}`, or `beamport-bench store` alone"))
    })
}

/// A program of beamport that is built beside this one.
pub(crate) fn program(name: &str) -> Result<PathBuf, Fault> {
    let me = std::env::current_exe().map_err(wrong("this program does not know its own file"))?;
    let beside = me.with_file_name(name);
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Fault::new(format!("bench: `{name}` is missing"), format!("it is not beside {}", me.display()))
        .hint("start it with `cargo xtask bench`, which builds all programs"))
}

/// Ports of TCP and UDP that are this process's.
pub(crate) fn free_ports<const COUNT: usize>() -> std::io::Result<[u16; COUNT]> {
    let mut ports = [0; COUNT];
    for port in &mut ports {
        *port = free_port()?;
    }
    Ok(ports)
}

/// A folder of this measurement; removed with all it holds.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// In shared memory.
    pub(crate) fn in_memory() -> Result<Self, Fault> {
        Self::make(Path::new("/dev/shm"))
    }

    /// In the current folder, which must be on a disk.
    pub(crate) fn on_disk() -> Result<Self, Fault> {
        let here = std::env::current_dir().map_err(wrong("the current folder"))?;
        if Os.in_memory(&here) {
            let fault = Fault::new("bench: there is no disk to measure", format!("{} lies in memory", here.display()));
            return Err(fault.hint("start it in a folder on the disk that streams will use"));
        }
        Self::make(&here)
    }

    fn make(parent: &Path) -> Result<Self, Fault> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("beamport-bench-{}-{number}", std::process::id()));
        Os.create_dir(&path).map_err(|e| Fault::new(format!("bench: cannot make {}", path.display()), e))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove_live(&self.0, 2);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The live places of the streams below a folder lie elsewhere; each stream's header says where.
fn remove_live(folder: &Path, depth: u32) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if !path.is_dir() {
            continue;
        }
        if depth > 0 {
            remove_live(&path, depth - 1);
        }
        if let Ok(header) = store::Header::read(&Os, &path)
            && header.live.starts_with(Os.live_root())
        {
            let _ = fs::remove_dir_all(&header.live);
        }
    }
}

/// The machine of the figures.
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory_bytes: u64,
    cache_bytes: u64,
    kernel: String,
}

impl Machine {
    pub(crate) fn detect() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or_else(String::new, |(_, value)| value.trim().to_string())
        };
        let memory = after(&text("/proc/meminfo"), "MemTotal");
        Self {
            processor: after(&text("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) << 10,
            cache_bytes: last_cache_bytes(),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_string(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        format!(
            "machine: {}, {} cores, {gib:.1} GiB, last cache {} MiB, Linux {}",
            self.processor,
            self.cores,
            self.cache_bytes >> 20,
            self.kernel
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "processor": self.processor, "cores": self.cores, "memory_bytes": self.memory_bytes,
            "last_cache_bytes": self.cache_bytes, "kernel": self.kernel,
        })
    }
}

/// Bytes of the largest cache of the first processor; 32 MiB where the system does not say.
pub(crate) fn last_cache_bytes() -> u64 {
    let size = |index: u32| {
        let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|k| k << 10)
    };
    (0..8).filter_map(size).max().unwrap_or(32 << 20)
}

/// Bytes of memory that are free now, files in `/dev/shm` not counted.
pub(crate) fn free_memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("MemAvailable:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).map_or(1 << 30, |k| k << 10)
}
