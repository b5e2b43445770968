//! Structures as large as they come: every pixel written out, and a million nodes.

use beamport_nexus::template::{Data, Node, Template};
use beamport_nexus::{Job, Nexus};
use flow::Sink;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Pixels of a bank.
const PIXELS: usize = 100_000;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nexus-large-{}", name.replace(' ', "-")));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Where pixel `at` of bank `bank` lies along `axis`: 16 or 17 digits, as programs write them.
fn offset(bank: usize, axis: usize, at: usize) -> f64 {
    ((bank * 7 + axis * 3) as f64 + at as f64 / 3.0).sin() * 0.7
}

/// A structure with every pixel of `banks` banks written out, and `logs` groups of a log.
fn pixels(path: &Path, banks: usize, logs: usize) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let entry = r#"{"children":[{"type":"group","name":"entry","attributes":[{"name":"NX_class","dtype":"string","values":"NXentry"}],"children":["#;
    file.write_all(entry.as_bytes()).unwrap();
    for bank in 0..banks {
        let mut text = String::new();
        let comma = if bank == 0 { "" } else { "," };
        let class = r#"[{"name":"NX_class","dtype":"string","values":"NXdetector"}]"#;
        write!(text, r#"{comma}{{"type":"group","name":"bank{bank}","attributes":{class},"children":["#).unwrap();
        write!(text, r#"{{"module":"dataset","config":{{"name":"detector_number","values":["#).unwrap();
        let numbers = (0..PIXELS).map(|at| (bank * PIXELS + at + 1).to_string()).collect::<Vec<_>>().join(", ");
        write!(text, r#"{numbers}],"dtype":"int32"}}}}"#).unwrap();
        for (axis, name) in ["x", "y", "z"].into_iter().enumerate() {
            write!(
                text,
                r#",{{"module":"dataset","config":{{"name":"{name}_pixel_offset","dtype":"double","values":["#
            )
            .unwrap();
            for at in 0..PIXELS {
                write!(text, "{}{:?}", if at == 0 { "" } else { ", " }, offset(bank, axis, at)).unwrap();
            }
            text += r#"]},"attributes":[{"name":"units","dtype":"string","values":"m"}]}"#;
        }
        text += "]}";
        file.write_all(text.as_bytes()).unwrap();
    }
    for log in 0..logs {
        let module =
            format!(r#"{{"module":"f144","config":{{"topic":"devices","source":"D:{log}","value_units":"K"}}}}"#);
        let comma = if banks + log == 0 { "" } else { "," };
        write!(file, r#"{comma}{{"type":"group","name":"log{log}","children":[{module}]}}"#).unwrap();
    }
    file.write_all(b"]}]}").unwrap();
    file.flush().unwrap();
}

/// A structure of `groups` groups with ten nodes each: datasets with an attribute, and a link.
fn nodes(groups: usize) -> String {
    let mut text = String::from(r#"{"children":[{"type":"group","name":"entry","children":["#);
    for group in 0..groups {
        let comma = if group == 0 { "" } else { "," };
        write!(text, r#"{comma}{{"type":"group","name":"g{group}","children":["#).unwrap();
        for name in ["a", "b", "c", "d"] {
            let config = format!(r#"{{"name":"{name}","values":{group}}}"#);
            write!(text, r#"{{"module":"dataset","config":{config},"attributes":{{"units":"m"}}}},"#).unwrap();
        }
        write!(text, r#"{{"module":"link","config":{{"name":"l","source":"../g{}/a"}}}}]}}"#, groups - 1 - group)
            .unwrap();
    }
    text + "]}]}"
}

fn job(file: PathBuf, template: Template) -> Job {
    Job {
        file,
        template,
        inputs: vec!["devices".into()],
        run: "first".into(),
        run_id: "00112233445566778899aabbccddeeff".into(),
        start: 1_767_225_600_000_000_000,
        metadata: "{}".into(),
    }
}

fn numbers(template: &Template, bank: usize, name: &str) -> Vec<u8> {
    let Node::Group(entry) = &template.root.children[0] else { panic!() };
    let Node::Group(group) = &entry.children[bank] else { panic!() };
    let is_it = |node: &&Node| matches!(node, Node::Dataset { name: known, .. } if known == name);
    let Some(Node::Dataset { value, .. }) = group.children.iter().find(is_it) else { panic!("{name}") };
    Data::bytes(value).unwrap().into_owned()
}

/// Most memory of this process since it was asked last, MiB.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    kib / 1024
}

/// Reads, checks and lays out; prints what it took.
fn begins(name: &str, path: &Path, folder: &Path) -> (Template, PathBuf) {
    let before = memory_mib();
    let bytes = std::fs::metadata(path).unwrap().len();
    let clock = Instant::now();
    let template = Template::open(path, None, &[], beamport_nexus::template::Layout::Nexus)
        .map_err(|m| format!("{m:#?}"))
        .unwrap();
    let (read, parsed) = (clock.elapsed(), memory_mib());
    let file = folder.join("run.nxs");
    let clock = Instant::now();
    let mut nexus = Nexus::begin(job(file.clone(), template.clone()), false).unwrap();
    nexus.flush().unwrap();
    let (laid, most) = (clock.elapsed(), memory_mib());
    println!(
        "{name}: {} MB of text read and checked in {:.1} s ({parsed} MiB, {before} before), file of {} MB made in {:.1} s ({most} MiB)",
        bytes / 1_000_000,
        read.as_secs_f64(),
        std::fs::metadata(&file).unwrap().len() / 1_000_000,
        laid.as_secs_f64(),
    );
    nexus.finish("{}").unwrap();
    (template, file)
}

fn written_out(name: &str, banks: usize, logs: usize) {
    let folder = Folder::new(name);
    let text = folder.0.join("large.nexus.json");
    pixels(&text, banks, logs);
    let (template, file) = begins(name, &text, &folder.0);
    assert_eq!(template.modules().len(), logs);
    let file = hdf5_metno::File::open(&file).unwrap();
    for bank in [0, banks - 1] {
        for (axis, name) in ["x_pixel_offset", "y_pixel_offset", "z_pixel_offset"].into_iter().enumerate() {
            // To the last bit: what a program wrote is what a program reads.
            let wanted: Vec<f64> = (0..PIXELS).map(|at| offset(bank, axis, at)).collect();
            let bytes: Vec<u8> = wanted.iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(numbers(&template, bank, name), bytes, "{name}");
            let found = file.dataset(&format!("/entry/bank{bank}/{name}")).unwrap().read_raw::<f64>().unwrap();
            assert_eq!(found, wanted, "{name}");
        }
        let found = file.dataset(&format!("/entry/bank{bank}/detector_number")).unwrap().read_raw::<i32>().unwrap();
        assert!(found.iter().zip(1..).all(|(found, at)| *found == bank as i32 * PIXELS as i32 + at));
    }
}

fn many_nodes(name: &str, groups: usize) {
    let folder = Folder::new(name);
    let text = folder.0.join("many.nexus.json");
    std::fs::write(&text, nodes(groups)).unwrap();
    let (_, file) = begins(name, &text, &folder.0);
    let file = hdf5_metno::File::open(&file).unwrap();
    for group in [0, groups / 2, groups - 1] {
        let at = |path: &str| file.dataset(&format!("/entry/g{group}/{path}")).unwrap().read_scalar::<f64>().unwrap();
        assert_eq!((at("a"), at("l")), (group as f64, (groups - 1 - group) as f64));
    }
}

#[test]
fn pixels_that_are_written_out_are_in_the_file_to_the_last_bit() {
    written_out("pixels", 2, 50);
}

#[test]
fn many_nodes_are_in_the_file() {
    many_nodes("nodes", 2_000);
}

/// As large as the largest structure that is known, and as many nodes as a structure may have.
#[test]
#[ignore = "minutes"]
fn soak_the_largest_structures() {
    written_out("all pixels", 100, 3_000);
    many_nodes("all nodes", 99_999);
    println!("structures: injected one of 700 MB and one of a million nodes, all in the file");
}
