//! The layers inside of a crate: which of its modules may use which, so that a reader can begin at the bottom. A module
//! uses those of lower layers alone, and no other of its own layer. `lib.rs` is above all of them; tests are free.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::code;

/// A crate and its modules from the lowest layer up.
struct Layers {
    krate: &'static str,
    layers: &'static [&'static [&'static str]],
}

/// A new module gets its place here.
const CRATES: [Layers; 17] = [
    Layers {
        krate: "wire",
        layers: &[
            &[
                "al00", "answ", "array", "ep00", "ep01", "error", "field", "json", "limits", "message", "ns10", "pu00",
                "s6s4t", "un00", "wrdn", "x5f2",
            ],
            &[
                "an44",
                "as_json",
                "bitshuffle",
                "bppv",
                "datagram",
                "df12",
                "ev43",
                "ev44",
                "fc00",
                "flat",
                "histogram",
                "se00",
                "tdct",
                "vc00",
            ],
            &[
                "ad00", "ar51", "bpas", "bpct", "bpgp", "bpgr", "bprn", "bpst", "bptk", "da00", "f144", "hs00", "hs01",
                "part", "pl72", "rf5k", "senv",
            ],
            &["adar", "bpcm", "bpdn", "ev42", "f142", "fields", "ndar"],
            &["fuzz"],
        ],
    },
    Layers {
        krate: "settings",
        layers: &[&["key", "limits"], &["mistake", "units"], &["family", "name", "page"], &["section"], &["json"]],
    },
    Layers {
        krate: "store",
        layers: &[
            &["limits"],
            &["error", "printed"],
            &["outside"],
            &["format"],
            &["live"],
            &["read"],
            &["write"],
            &["open"],
            &["check"],
            &["fuzz"],
        ],
    },
    Layers {
        krate: "flow",
        layers: &[
            &["checked", "content", "job", "limits"],
            &["fault"],
            &["books", "control"],
            &["account"],
            &["contract"],
            &["mirror", "runner"],
            &["status"],
        ],
    },
    Layers {
        krate: "workers",
        layers: &[
            &["again", "copy", "expression", "limits", "places", "span"],
            &["beside", "groups", "histogram", "sum", "tiles"],
            &["attach", "filter"],
        ],
    },
    Layers {
        krate: "sim",
        layers: &[
            &["limits", "pulse", "random", "reflectivity"],
            &["alias", "keys"],
            &["plan"],
            &["kinds", "train"],
            &["camera", "detector", "events", "field"],
            &["amor", "ess", "histogram", "written"],
        ],
    },
    Layers {
        krate: "udp",
        layers: &[
            &["limits", "network"],
            &["boards_plan", "capture", "numbers", "owner", "socket", "zero"],
            &["framing", "throttle"],
            &["account", "files", "plan"],
            &["boards", "fuzz", "stamped"],
            &["inspect", "port"],
            &["source"],
            &["kinds"],
        ],
    },
    Layers {
        krate: "kafka",
        layers: &[
            &["limits"],
            &["header", "librdkafka", "state"],
            &["client", "origins", "property", "seen"],
            &["partition", "plan", "producer"],
            &["group", "trouble"],
            &["asking"],
            &["probe", "sink", "source"],
            &["kinds"],
            &["mirror"],
        ],
    },
    Layers {
        krate: "epics",
        layers: &[
            &["limits"],
            &["codec", "entry", "frames", "pending", "value"],
            &["command", "fake", "message", "origin", "plan", "put_value", "state"],
            &["channel", "library"],
            &["get", "links", "pvs"],
            &["put", "source"],
            &["sink"],
            &["kinds"],
        ],
    },
    Layers {
        krate: "ess",
        layers: &[
            &["limits", "signals"],
            &["command", "options"],
            &["plan", "reply"],
            &["journal", "mover"],
            &["forward", "job"],
            &["service"],
        ],
    },
    Layers {
        krate: "nexus",
        layers: &[
            &["clock", "limits"],
            &["hdf"],
            &["read", "sort"],
            &["module"],
            &["node"],
            &["static_file"],
            &["template"],
            &["file"],
            &["pace"],
            &["program"],
        ],
    },
    Layers {
        krate: "web",
        layers: &[
            &["limits", "metrics", "page", "tokens"],
            &["answer", "books", "desk", "doors", "section"],
            &["look"],
            &["server"],
        ],
    },
    Layers {
        krate: "https",
        layers: &[
            &["limits", "section"],
            &["framing", "hub", "tls"],
            &["client", "lane"],
            &["server"],
            &["link"],
            &["bulletin", "far", "near"],
            &["kinds"],
        ],
    },
    Layers {
        krate: "testkit",
        layers: &[&["dice", "histories", "memory", "ports", "sums"], &["world"], &["media"], &["slots"], &["flows"]],
    },
    Layers {
        krate: "beamport",
        layers: &[
            &["beats", "limits", "peer", "figures", "compare"],
            &["log"],
            &["code"],
            &["edges"],
            &["file"],
            &["arguments", "mover", "room"],
            &["page", "report", "retention", "simulated"],
            &["verbs"],
            &["up"],
            &["demo"],
            &["cli"],
        ],
    },
    Layers {
        krate: "python",
        layers: &[
            &["fault", "limits", "time"],
            &["books", "exclusive", "finder", "owned", "position", "trial"],
            &["block", "reader_pool", "writer"],
            &["memory"],
            &["numpy"],
            &["codec", "message"],
            &["batch", "named", "results"],
            &["cursor", "hooks", "members"],
            &["worker"],
            &["iteration"],
            &["stream"],
            &["append", "yielded"],
        ],
    },
    Layers {
        krate: "bench",
        layers: &[
            &["cli", "limit", "measure", "ports"],
            &["place"],
            &["broker", "frames", "reading", "served", "sizes", "sweep", "wire", "writers"],
            &["kafka", "marks", "merge", "peers", "pixels", "view", "waiting"],
            &["epics", "store", "web"],
            &["nexus", "udp"],
            &["jobs"],
            &["forwarder", "hosts"],
        ],
    },
];

/// Where [`CRATES`] is.
const HERE: &str = "xtask/src/tidy/layers.rs";

/// A use of another module: file and line.
type Uses = BTreeMap<(String, String), (PathBuf, usize)>;

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let mut complaints = Vec::new();
    for one in &CRATES {
        let src = Path::new("crates").join(one.krate).join("src");
        let read = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
        let library = src.join("lib.rs");
        let root_file = if root.join(&library).is_file() { library } else { src.join("main.rs") };
        let top = Top::of(&code::without_tests(&code::plain(&read(&root_file))));
        let mut uses = Uses::new();
        for path in files.iter().filter(|path| path.extension().is_some_and(|ext| ext == "rs")) {
            let Ok(inner) = path.strip_prefix(&src) else { continue };
            let module = module_of(inner);
            if !module.is_empty() && !code::is_test(inner) {
                let plain = code::without_tests(&code::plain(&read(path)));
                uses_in(&plain, &module, path, &top, &mut uses);
            }
        }
        compare(one, &top.modules, &uses, &mut complaints);
    }
    complaints
}

/// The path of the module in a file; that of `lib.rs` and `main.rs` is empty.
fn module_of(inner: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        inner.with_extension("").components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// The declarations of `lib.rs`.
#[derive(Debug, Default)]
struct Top {
    modules: BTreeSet<String>,
    /// Names that it takes from its modules, with the module.
    names: BTreeMap<String, String>,
}

impl Top {
    fn of(plain: &str) -> Self {
        let mut top = Self::default();
        for statement in plain.split(';') {
            let statement = statement.rsplit('}').next().filter(|_| !statement.contains(" use ")).unwrap_or(statement);
            // One with a body is a part of the root.
            if let Some((_, name)) = statement.rsplit_once("mod ").filter(|(_, name)| !name.contains('{')) {
                top.modules.insert(name.trim().to_owned());
            }
        }
        for statement in plain.split(';') {
            let Some((_, path)) = statement.rsplit_once("use ") else { continue };
            for (first, last) in leaves(path.trim()) {
                if top.modules.contains(&first) {
                    top.names.insert(last, first);
                }
            }
        }
        top
    }

    /// The module behind the first name of a path from the root; none if the root itself defines it.
    fn module(&self, name: &str) -> Option<&str> {
        self.modules.get(name).or_else(|| self.names.get(name)).map(String::as_str)
    }
}

/// The first and the last name of each path in a tree of paths: `a::{b, c::d as e}` has (a, b) and (a, e).
fn leaves(tree: &str) -> Vec<(String, String)> {
    let tree = tree.trim();
    let tree = tree.strip_prefix("crate::").unwrap_or(tree);
    let word = |text: &str| text.trim().to_owned();
    match tree.split_once('{') {
        None => {
            let first = tree.split("::").next().unwrap_or_default();
            let last = tree.rsplit("::").next().unwrap_or_default();
            let last = last.rsplit_once(" as ").map_or(last, |(_, name)| name);
            vec![(word(first.split(" as ").next().unwrap_or_default()), word(last))]
        }
        Some((before, inside)) => {
            let first = before.split("::").next().unwrap_or_default().trim();
            let inner = branches(inside).into_iter().flat_map(leaves);
            inner.map(|(name, last)| if first.is_empty() { (name, last) } else { (first.to_owned(), last) }).collect()
        }
    }
}

/// The parts between the commas of a list in braces, up to the brace that closes it.
fn branches(inside: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0_u32, 0, Vec::new());
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[from..at]);
                from = at + 1;
            }
            '}' => {
                parts.push(&inside[from..at]);
                break;
            }
            _ => {}
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Adds the modules that one file uses, by `crate::` or by as many `super::` as lead to the root.
fn uses_in(plain: &str, module: &[String], path: &Path, top: &Top, uses: &mut Uses) {
    for root in ["crate::".to_owned(), "super::".repeat(module.len())] {
        for (at, _) in plain.match_indices(&root) {
            let is_inside = plain[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            let after = &plain[at + root.len()..];
            if is_inside || after.starts_with("super::") {
                continue;
            }
            let names = match after.strip_prefix('{') {
                Some(inside) => branches(inside).into_iter().flat_map(leaves).map(|(first, _)| first).collect(),
                None => vec![after.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_owned()],
            };
            for other in names.iter().filter_map(|name| top.module(name)).filter(|other| *other != module[0]) {
                let line = plain[..at].lines().count().max(1);
                uses.entry((module[0].clone(), other.to_owned())).or_insert_with(|| (path.to_owned(), line));
            }
        }
    }
}

fn compare(one: &Layers, modules: &BTreeSet<String>, uses: &Uses, complaints: &mut Vec<String>) {
    let layer = |module: &str| one.layers.iter().position(|layer| layer.contains(&module));
    for module in modules.iter().filter(|module| layer(module).is_none()) {
        complaints.push(format!("crates/{}: module `{module}` has no layer; give it one in {HERE}", one.krate));
    }
    for module in one.layers.iter().copied().flatten().filter(|module| !modules.contains(**module)) {
        complaints.push(format!("{HERE}: crate `{}` has no module `{module}`", one.krate));
    }
    for ((from, to), (path, line)) in uses {
        if let (Some(own), Some(other)) = (layer(from), layer(to))
            && other >= own
        {
            complaints.push(format!(
                "{}:{line}: `{from}` must not use `{to}`, which is no lower layer: move what it needs down ({HERE})",
                path.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Layers = Layers { krate: "x", layers: &[&["low", "same"], &["high"]] };
    const LIB: &str = "mod high;\npub mod low;\nmod same;\npub use high::{High, deep::{Deep, self as other}};\n\
                       pub use low::Low as Renamed;\npub fn run() {\n    high::go();\n}\n";

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let top = Top::of(LIB);
        let (mut uses, mut complaints) = (Uses::new(), Vec::new());
        for (path, text) in files {
            let plain = code::without_tests(&code::plain(text));
            uses_in(&plain, &module_of(Path::new(path)), Path::new(path), &top, &mut uses);
        }
        compare(&ONE, &top.modules, &uses, &mut complaints);
        complaints
    }

    #[test]
    fn the_root_is_read() {
        let top = Top::of(LIB);
        assert_eq!(top.modules.iter().collect::<Vec<_>>(), ["high", "low", "same"]);
        let names: Vec<_> = top.names.iter().map(|(name, module)| format!("{name} {module}")).collect();
        assert_eq!(names, ["Deep high", "High high", "Renamed low", "other high"]);
    }

    #[test]
    fn a_use_of_a_lower_layer_is_right() {
        let high = ("high/mod.rs", "use crate::{low, same::{A, B}};\nuse super::low::C;\n// crate::none\n");
        assert_eq!(complaints(&[high]), [""; 0]);
    }

    #[test]
    fn a_use_of_the_own_or_a_higher_layer_is_named_with_its_line() {
        for text in ["\nuse crate::high::A;\n", "\nuse crate::{Deep, low};\n", "\nfn f() { super::super::high::f() }\n"]
        {
            let found = complaints(&[("same/part.rs", text)]);
            assert!(
                found[0].starts_with("same/part.rs:2: `same` must not use `high`") || found[0].contains("`low`"),
                "{found:?}"
            );
        }
        assert!(complaints(&[("same.rs", "use crate::Renamed;\n")])[0].contains("must not use `low`"));
    }

    #[test]
    fn tests_and_what_lies_in_the_same_module_are_free() {
        let text = "use super::other;\nuse crate::same::part;\n#[cfg(test)]\nmod tests {\n    use crate::high::A;\n}\n";
        assert_eq!(complaints(&[("same/part.rs", text)]), [""; 0]);
    }

    #[test]
    fn the_list_has_the_modules_that_there_are() {
        let mut found = Vec::new();
        compare(
            &ONE,
            &BTreeSet::from(["low".to_owned(), "high".to_owned(), "new".to_owned()]),
            &Uses::new(),
            &mut found,
        );
        assert!(found[0].contains("module `new` has no layer") && found[1].contains("no module `same`"), "{found:?}");
    }
}
