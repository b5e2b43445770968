//! What tests marked `services` need: programs of Debian packages, and pinned, in `target`, the servers they start and
//! what checks the page.
//!
//! `check` and `soak` need them and install what is missing; `test` needs none of them, no Java, no browser and no npm.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::step::Step;
use crate::{Done, tree};

/// Programs that tests of `check` and `soak` start, and the Debian package of each. `maven` brings a Java.
const PROGRAMS: [(&str, &str); 11] = [
    ("chromium", "chromium"),
    ("ip", "iproute2"),
    ("iptables", "iptables"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mvn", "maven"),
    ("java", "default-jre-headless"),
    ("mount", "mount"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("prometheus", "prometheus"),
    ("unshare", "util-linux"),
];

/// Which Apache Kafka; tests/kafka_node.py reads its version here too.
const POM: &str = "tests/services/kafka/pom.xml";

/// Which packages of npm, with their hashes.
const WEB: &str = "tests/web";

/// Says what `word` needs, as its first line, and installs what is missing.
pub(crate) fn need(word: &str) -> Done {
    let packages: Vec<&str> = PROGRAMS.iter().map(|(_, package)| *package).collect();
    eprintln!("{word} needs root and the Debian packages {}", packages.join(", "));
    tree::need_root(word)?;
    let missing = missing(&env::var_os("PATH").unwrap_or_default());
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let hint =
        |e: String| format!("{e}\nhint:  install the Debian packages {list}, or what has their programs elsewhere");
    let apt =
        |args: &[&str]| Step::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(args).run().map_err(hint);
    // A fresh system has no lists of packages.
    apt(&["update", "--quiet=2"])?;
    apt(&[&["install", "--quiet=2", "--yes", "--no-install-recommends"], &missing[..]].concat())
}

/// Packages of the programs that are in no folder of `path`.
fn missing(path: &std::ffi::OsStr) -> Vec<&'static str> {
    let there = |program: &str| env::split_paths(path).any(|folder| folder.join(program).is_file());
    PROGRAMS.iter().filter(|(program, _)| !there(program)).map(|(_, package)| *package).collect()
}

/// Apache Kafka in `target/kafka-VERSION`: its jars, and the archive of classes with which its tests start it.
pub(crate) fn fetch_kafka() -> Done {
    let jars = fetch_jars()?;
    if jars.join("classes.jsa").is_file() {
        return Ok(());
    }
    Step::new(tree::venv("python")).args(["tests/kafka_node.py"]).run()
}

/// The folder of the jars: fetched once, then reused.
fn fetch_jars() -> Done<PathBuf> {
    let text = fs::read_to_string(tree::root().join(POM)).map_err(|e| format!("{POM}: {e}"))?;
    let version = version_of(&text).ok_or_else(|| format!("{POM}: it names no <kafka.version>"))?;
    let jars = tree::target().join(format!("kafka-{version}"));
    if jars.is_dir() {
        return Ok(jars);
    }
    let partial = tree::target().join(format!("kafka-{version}.partial"));
    Step::new("mvn")
        .args(["--batch-mode", "--quiet", "--strict-checksums", "--file", POM])
        // A repository of its own: the user may have no home folder.
        .args([define("maven.repo.local", &tree::target().join("maven")), define("outputDirectory", &partial)])
        .args(["dependency:copy-dependencies"])
        .run()?;
    // A fetch that was cut short is none.
    fs::rename(&partial, &jars).map_err(|e| format!("{}: {e}", partial.display()))?;
    Ok(jars)
}

/// What checks the page, in `target/web`: fetched once for each lock file, then reused.
pub(crate) fn fetch_web() -> Done {
    let [package, lock] = ["package.json", "package-lock.json"];
    let read = |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let wanted = tree::root().join(WEB);
    let fetched = tree::target().join("web");
    let wanted_lock = read(&wanted.join(lock))?;
    if fs::read_to_string(fetched.join(lock)).is_ok_and(|lock| lock == wanted_lock) {
        return Ok(());
    }
    let partial = tree::target().join("web.partial");
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial)
        .and_then(|()| fs::copy(wanted.join(package), partial.join(package)))
        .and_then(|_| fs::copy(wanted.join(lock), partial.join(lock)))
        .map_err(|e| format!("{}: {e}", partial.display()))?;
    Step::new("npm")
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
        .args([&partial])
        // A cache of its own: the user may have no home folder.
        .args(["--cache".into(), tree::target().join("npm")])
        .run()?;
    // A fetch that was cut short is none.
    let _ = fs::remove_dir_all(&fetched);
    fs::rename(&partial, &fetched).map_err(|e| format!("{}: {e}", partial.display()))
}

fn define(name: &str, path: &Path) -> PathBuf {
    PathBuf::from(format!("-D{name}={}", path.display()))
}

fn version_of(pom: &str) -> Option<&str> {
    let (_, rest) = pom.split_once("<kafka.version>")?;
    rest.split_once("</kafka.version>").map(|(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_missing_where_path_is_empty() {
        let all: Vec<&str> = PROGRAMS.iter().map(|(_, package)| *package).collect();
        assert_eq!(missing("".as_ref()), all);
        assert_eq!(missing("/no/such/folder".as_ref()), all);
    }

    #[test]
    fn version_of_kafka_is_read_from_the_pom() {
        let pom = fs::read_to_string(tree::root().join(POM)).expect("the pom");
        assert!(version_of(&pom).is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit())));
        assert_eq!(version_of("<project/>"), None);
    }
}
