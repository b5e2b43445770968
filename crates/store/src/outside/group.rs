//! A data folder that is shared with a group of users: the group of its files, and what the group may write.
//!
//! Constraints: the file `.group` in a data folder holds the number of the group. Files inherit the group from their
//! folders, which have the setgid bit. The group may write `pins`, and nothing else of a stream.
//!
//! Failure behaviour: a folder whose `.group` cannot be read is not shared.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// File of a data folder: the number of the group that it is shared with.
pub(crate) const MARK: &str = ".group";

/// The number of a group: that of its name, or the number that is written. `None` if there is no such group.
pub fn group_number(name: &str) -> io::Result<Option<u32>> {
    let text = CString::new(name)?;
    let mut buffer = vec![0 as libc::c_char; 1 << 10];
    loop {
        // SAFETY: zero is a valid value of this plain structure.
        let mut group: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: name, structure and buffer outlive the call, and the length is that of the buffer.
        let answer =
            unsafe { libc::getgrnam_r(text.as_ptr(), &mut group, buffer.as_mut_ptr(), buffer.len(), &mut found) };
        match answer {
            libc::ERANGE if buffer.len() < 1 << 24 => buffer.resize(buffer.len() * 4, 0),
            0 if !found.is_null() => return Ok(Some(group.gr_gid)),
            // Systems differ in how they say that there is none.
            0 | libc::ENOENT | libc::ESRCH => return Ok(name.parse().ok()),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The group that a data folder is shared with.
pub fn shared_with(data: &Path) -> Option<u32> {
    fs::read_to_string(data.join(MARK)).ok()?.trim().parse().ok()
}

/// Writes down with which group a data folder is shared.
pub(crate) fn mark(data: &Path, group: Option<u32>) -> io::Result<()> {
    let (path, part) = (data.join(MARK), data.join(".group.new"));
    match group {
        Some(group) => {
            fs::write(&part, format!("{group}\n"))?;
            fs::set_permissions(&part, Permissions::from_mode(0o640))?;
            fs::rename(&part, &path)
        }
        None => fs::remove_file(&path),
    }
}

/// Makes a file or folder one of the group, or of the group of this process. Anything else is passed over.
pub(crate) fn hand_over(path: &Path, group: Option<u32>) -> io::Result<()> {
    let flags = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_file() && !meta.is_dir() {
        return Ok(());
    }
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    // SAFETY: cannot fail.
    let number = group.unwrap_or_else(|| unsafe { libc::getegid() });
    if meta.gid() != number {
        std::os::unix::fs::fchown(&file, None, Some(number))?;
    }
    let mode = meta.mode() & 0o7777;
    let wanted = match group {
        _ if meta.is_file() && path.file_name().is_some_and(|name| name == "pins") => pins_mode(group.is_some()),
        // New files and folders get the group of their folder.
        Some(_) if meta.is_dir() => mode | libc::S_ISGID,
        None if meta.is_dir() => mode & !libc::S_ISGID,
        _ => mode,
    };
    set_mode(&file, &file.metadata()?, wanted)
}

/// Lets the group enter a folder and list it.
pub(crate) fn open_to_group(folder: &Path) -> io::Result<()> {
    let meta = fs::metadata(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(meta.mode() & 0o7777 | 0o050))
}

/// Gives the live place of a stream to the group with which its data folder is shared.
pub(crate) fn share_live(live: &Path, folder: &Path, root: &Path) -> io::Result<()> {
    let Some(group) = folder.parent().and_then(shared_with) else { return Ok(()) };
    match hand_over(live, Some(group)) {
        // A copy of another user's folder, who is not in the group.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        answer => answer?,
    }
    let meta = fs::metadata(root)?;
    // Others may go through to a place whose name they know, and not see which there are.
    set_mode(&File::open(root)?, &meta, meta.mode() & 0o7777 | 0o001)
}

/// Lets the group of a shared data folder write `pins` that were just opened.
pub(crate) fn share_pins(file: &File, path: &Path) -> io::Result<()> {
    let data = path.parent().and_then(Path::parent);
    if path.file_name().is_none_or(|name| name != "pins") || data.and_then(shared_with).is_none() {
        return Ok(());
    }
    let meta = file.metadata()?;
    // SAFETY: cannot fail.
    if meta.uid() == unsafe { libc::geteuid() } { set_mode(file, &meta, pins_mode(true)) } else { Ok(()) }
}

/// Makes a data folder.
pub(crate) fn make(data: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(data)
}

/// The mode of `pins`.
fn pins_mode(is_shared: bool) -> u32 {
    if is_shared { 0o660 } else { 0o640 }
}

/// Sets a mode that is another one now.
fn set_mode(file: &File, meta: &Metadata, mode: u32) -> io::Result<()> {
    if meta.mode() & 0o7777 == mode { Ok(()) } else { file.set_permissions(Permissions::from_mode(mode)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name_and_by_its_number() {
        assert_eq!(group_number("root").unwrap(), Some(0));
        assert_eq!(group_number("54321").unwrap(), Some(54321));
        for none in ["no-such-group", "", "-1", "4294967296"] {
            assert_eq!(group_number(none).unwrap(), None, "{none}");
        }
        assert!(group_number("a\0b").is_err());
    }
}
