//! Names and links that want to lead out of the folder: whatever a template says, and whatever lies in the folder already,
//! nothing outside is made or changed; and what the check takes is written.

use crate::messages;
use beamport_nexus::Nexus;
use beamport_nexus::template::Template;
use flow::Sink;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Names that somebody may hope for, and some that are odd and good.
const NAMES: &[&str] = &[
    "..",
    ".",
    "",
    "/",
    "//",
    "a/b",
    "../x",
    "/etc/passwd",
    "a\0b",
    "\0",
    "..\0",
    "a\\b",
    "..\\x",
    "C:\\x",
    "file:///etc/x",
    "other.nxs:/entry",
    "~",
    "~/x",
    "$(touch x)",
    "`x`",
    "-rf",
    "%2e%2e%2f",
    "a\nb",
    "\u{202e}sxn",
    "．．",
    "‥",
    "a\u{301}",
    "á",
    "é",
    "CON",
    "nul",
    "a b",
    " ",
    "beamport",
    "NX_class",
    "\u{feff}",
    "😀",
    ".hidden",
    "...",
    "a.b",
    "\u{1b}[2J",
    "../../../../../../tmp/x",
    "secret.txt",
    "out/x",
    "out.h5",
    "run.nxs",
    ".run.nxs.new",
];

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn name(&mut self) -> String {
        match self.below(8) {
            0..4 => ["a", "b", "c", "entry"][self.below(4)].to_owned(),
            4 => "n".repeat([255, 256, 4096][self.below(3)]),
            _ => NAMES[self.below(NAMES.len())].to_owned(),
        }
    }

    /// A path of names, and of steps up.
    fn path(&mut self) -> String {
        let steps: Vec<String> =
            (0..1 + self.below(3)).map(|_| if self.below(3) == 0 { "..".into() } else { self.name() }).collect();
        format!("{}{}", ["", "/"][self.below(2)], steps.join("/"))
    }

    fn file(&mut self) -> String {
        match self.below(4) {
            0 => ["out.h5", "out/other.h5", "nowhere.h5", "run.nxs", "good.h5"][self.below(5)].to_owned(),
            _ => self.path(),
        }
    }

    fn node(&mut self, depth: usize) -> Value {
        let attributes = if self.below(4) == 0 { json!({(self.name()): self.name()}) } else { json!({}) };
        match self.below(6) {
            0 | 1 if depth < 3 => {
                let children: Vec<Value> = (0..1 + self.below(3)).map(|_| self.node(depth + 1)).collect();
                json!({"type": "group", "name": self.name(), "attributes": attributes, "children": children})
            }
            2 => json!({"module": "link", "config": {"name": self.name(), "source": self.path()}}),
            3 => {
                let config = json!({"name": self.name(), "source": self.path(), "file": self.file()});
                json!({"module": "link", "config": config})
            }
            4 => {
                json!({"module": "f144", "config": {"stream": "devices", "source": self.name(), "value_units": self.name()}})
            }
            _ => {
                json!({"module": "dataset", "attributes": attributes, "config": {"name": self.name(), "values": self.name()}})
            }
        }
    }
}

/// Everything in a folder but `inner`: path, length, what is in it or where it leads, and when it changed.
fn outside(folder: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("inner") {
            continue;
        }
        let about = std::fs::symlink_metadata(&path).unwrap();
        let bytes = if about.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        out.push((path.clone(), bytes, about.modified().unwrap()));
        if about.is_dir() {
            out.extend(outside(&path));
        }
    }
    out.sort();
    out
}

/// A folder with files that are nobody's business, and `inner` in it.
fn prepared(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("elsewhere")).unwrap();
    std::fs::write(folder.join("secret.txt"), "not yours").unwrap();
    for file in ["other.h5", "elsewhere/other.h5"] {
        hdf5_metno::File::create(folder.join(file)).unwrap().create_group("entry").unwrap();
    }
    folder
}

/// What somebody left in the folder of the files: links to what lies outside, under names that the writer uses.
fn leave_links(inner: &Path, dice: &mut Dice) {
    let _ = std::fs::remove_dir_all(inner);
    std::fs::create_dir(inner).unwrap();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, inner.join(name)).unwrap();
    link("../elsewhere", "out");
    link("../other.h5", "out.h5");
    link("../made-by-nobody.h5", "nowhere.h5");
    link(["../secret.txt", "../other.h5", "../made-by-nobody.h5"][dice.below(3)], ".run.nxs.new");
    if dice.below(4) == 0 {
        link(["../other.h5", "../made-by-nobody.h5"][dice.below(2)], "run.nxs");
    }
}

fn hostile(name: &str, templates: u64, seed: u64) {
    let folder = prepared(name);
    let inner = folder.join("inner");
    let before = outside(&folder);
    let (mut refused, mut written) = (0, 0);
    for number in 0..templates {
        let mut dice = Dice(seed.wrapping_add(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        leave_links(&inner, &mut dice);
        let children: Vec<Value> = (0..1 + dice.below(4)).map(|_| dice.node(0)).collect();
        let text = json!({ "children": children }).to_string();
        match Template::parse(text.as_bytes()) {
            Err(mistakes) => {
                refused += 1;
                assert!(mistakes.iter().all(|m| !m.cause.is_empty()), "{text}");
            }
            Ok(template) => {
                written += 1;
                let job = beamport_nexus::Job { template, ..messages::job(&inner.join("run.nxs")) };
                let mut nexus = Nexus::begin(job, true).unwrap_or_else(|fault| panic!("{number}: {fault}: {text}"));
                messages::give(&mut nexus, 2, 0, &[messages::value(0), messages::value(1)]).unwrap();
                nexus.finish("{}").unwrap_or_else(|fault| panic!("{number}: {fault}: {text}"));
                let file = std::fs::symlink_metadata(inner.join("run.nxs")).unwrap();
                assert!(file.is_file() && file.len() > 0, "{number}: {text}");
            }
        }
        if number % 50 == 0 || number + 1 == templates {
            assert_eq!(outside(&folder), before, "{number}: {text}");
        }
    }
    println!(
        "hostile names and links: injected {templates} templates, {refused} refused with their mistakes, {written} \
         written, 0 bytes outside the folder"
    );
    assert!(refused > templates / 10 && written > templates / 50, "{refused} refused, {written} written");
    let _ = std::fs::remove_dir_all(&folder);
}

fn seed() -> u64 {
    std::env::var("BEAMPORT_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

#[test]
fn hostile_names_and_links_stay_in_the_folder() {
    hostile("some", 200, seed());
}

#[test]
#[ignore = "minutes"]
fn soak_hostile_names_and_links_stay_in_the_folder() {
    hostile("all", 10_000, seed());
}
