//! What systemd removes from /dev/shm, where streams have their newest messages: at the last logout of a user, and at
//! the stop of a service with `DynamicUser` or `RemoveIPC`.

use super::{Finding, Verdict};
use crate::limits::FIRST_USER_ID;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders of units, from the weakest up.
const UNITS: [&str; 4] =
    ["/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/system", "/etc/systemd/system"];

/// Whether systemd removes this user's shared memory at his last logout: `RemoveIPC` of logind.conf(5), on by default
/// for users that are no system users and do not linger.
pub(super) fn at_logout() -> Option<Finding> {
    // SAFETY: cannot fail.
    let user = unsafe { libc::geteuid() };
    if user < FIRST_USER_ID || !Path::new("/run/systemd/users").is_dir() {
        return None;
    }
    let folders = ["/etc/systemd/logind.conf.d", "/run/systemd/logind.conf.d", "/usr/lib/systemd/logind.conf.d"];
    let inside = folders.iter().flat_map(|folder| files(Path::new(folder)));
    let all = inside.chain([PathBuf::from("/etc/systemd/logind.conf")]);
    if all.filter_map(|file| std::fs::read_to_string(file).ok()).any(|text| keeps_ipc(&text)) {
        return None;
    }
    let found = "when this user logs out for the last time, systemd removes the live ends in /dev/shm";
    let hint = "set `RemoveIPC=no` in /etc/systemd/logind.conf, or run `beamport up` as a system user";
    Some(Finding::new("shared memory", Verdict::Note, found).hint(hint))
}

/// True if a logind.conf turns `RemoveIPC` off.
fn keeps_ipc(text: &str) -> bool {
    text.lines().filter_map(|line| value(line, "RemoveIPC")).any(|value| ["no", "false", "off", "0"].contains(&value))
}

/// Services that run beamport, and whose stop removes its streams in shared memory.
pub(super) fn services() -> Vec<Finding> {
    removed(&UNITS.map(PathBuf::from))
        .into_iter()
        .map(|(unit, key)| {
            let found = format!("at each stop of {unit}, systemd removes its streams in /dev/shm (`{key}`)");
            let hint =
                format!("`systemctl edit {unit}`: `DynamicUser=no`, `RemoveIPC=no`, and `User=` with a system user");
            Finding::new("service", Verdict::Wrong, found).hint(hint)
        })
        .collect()
}

/// Units of these folders, with the line that removes shared memory. A unit of a later folder replaces one of an
/// earlier folder; what `UNIT.d` has is added to both.
fn removed(folders: &[PathBuf]) -> Vec<(String, &'static str)> {
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    for path in folders.iter().flat_map(|folder| files(folder)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".service") && path.is_file() {
            units.insert(name, std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
    for folder in folders {
        for (name, text) in &mut units {
            for more in files(&folder.join(format!("{name}.d"))) {
                *text += &format!("\n{}", std::fs::read_to_string(more).unwrap_or_default());
            }
        }
    }
    units.into_iter().filter_map(|(name, text)| Some((name, removes(&text)?))).collect()
}

/// The line of a unit that runs beamport, by which its stop removes shared memory.
fn removes(text: &str) -> Option<&'static str> {
    let mut words = text.lines().filter_map(|line| value(line, "ExecStart")).flat_map(str::split_whitespace);
    if !words.any(|word| word.rsplit('/').next() == Some("beamport")) {
        return None;
    }
    let last = |key| text.lines().filter_map(|line| value(line, key)).next_back();
    let is_on = |key| last(key).is_some_and(|value| ["yes", "true", "on", "1"].contains(&value));
    // A dynamic user implies the other.
    [("DynamicUser", "DynamicUser=yes"), ("RemoveIPC", "RemoveIPC=yes")]
        .into_iter()
        .find_map(|(key, line)| is_on(key).then_some(line))
}

/// The value of a line `KEY=VALUE`.
fn value<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    Some(line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim())
}

/// The paths in a folder, sorted by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_that_systemd_removes_is_told_from_what_it_keeps() {
        assert!(keeps_ipc("[Login]\nRemoveIPC = no\n") && keeps_ipc("RemoveIPC=0"));
        assert!(!keeps_ipc("#RemoveIPC=no\nRemoveIPC=yes\n") && !keeps_ipc(""));
    }

    #[test]
    fn units_that_remove_streams_at_their_stop_are_found() {
        let root = std::env::temp_dir().join(format!("beamport-units-{}", std::process::id()));
        let folders = ["usr", "etc"].map(|name| root.join(name));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let start = "[Service]\nExecStart=/opt/beamport/bin/beamport ess writer -c writer.ini\n";
        write("usr/dynamic.service", &format!("{start}DynamicUser=yes\n"));
        write("usr/static.service", &format!("{start}User=beamport\n"));
        write("usr/mended.service", &format!("{start}DynamicUser=yes\n"));
        write("etc/mended.service.d/a.conf", "[Service]\nDynamicUser=no\n");
        write("usr/ipc.service", start);
        write("etc/ipc.service.d/a.conf", "[Service]\nRemoveIPC = true\n");
        write("usr/replaced.service", &format!("{start}RemoveIPC=yes\n"));
        write("etc/replaced.service", start);
        write("etc/other.service", "[Service]\nExecStart=/bin/cat /opt/beamport/x\nDynamicUser=yes\n");
        let found = removed(&folders);
        std::fs::remove_dir_all(&root).unwrap();
        let expected = [("dynamic.service", "DynamicUser=yes"), ("ipc.service", "RemoveIPC=yes")];
        assert_eq!(found, expected.map(|(unit, line)| (unit.to_owned(), line)));
    }
    #[test]
    fn the_unit_of_the_how_to_keeps_its_streams() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/replace-the-file-writer.md");
        let page = std::fs::read_to_string(page).unwrap();
        let unit = page.split("```ini\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert_eq!(removes(unit), None);
        assert_eq!(removes(&format!("{unit}[Service]\nDynamicUser=yes\n")), Some("DynamicUser=yes"));
    }
}
