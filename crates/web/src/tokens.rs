//! Tokens: who may view, and who may also control.
//!
//! A token is 32 hexadecimal digits in a file of the data folder with mode 0600: `web.view.token`, `web.control.token`.
//! It is made once, at the first start; whoever deletes the file has another made at the next start. In a folder that
//! cannot be written, tokens last as long as the process.

use flow::Fault;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use store::hex;

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Sees everything.
    View,
    /// Also gives commands.
    Control,
}

impl Role {
    /// Its word in the status.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Control => "control",
        }
    }
}

/// The tokens of a data folder.
#[derive(Clone, Debug)]
pub struct Tokens {
    view: String,
    pub(crate) control: String,
}

impl Tokens {
    /// Those of a data folder, which are made where they are missing.
    pub fn of(folder: &Path) -> Result<Self, Fault> {
        let token = |role: &str| {
            let path = path_of(folder, role);
            token(&path).map_err(|e| Fault::io(format!("cannot read or make the token `{}`", path.display()), &e))
        };
        Ok(Self { view: token("view")?, control: token("control")? })
    }

    /// The role of a token.
    pub(crate) fn role(&self, token: &str) -> Option<Role> {
        match () {
            () if is_same(token, &self.control) => Some(Role::Control),
            () if is_same(token, &self.view) => Some(Role::View),
            () => None,
        }
    }
}

/// Where the page is: for a terminal the URL that opens it, for a log, which others read, without a token.
#[must_use]
pub fn location(address: SocketAddr, tokens: &Tokens, folder: &Path, is_terminal: bool) -> String {
    match is_terminal {
        true => format!("page: http://{address}/#token={}", tokens.control),
        false => format!(
            "page: http://{address}/ (behind it `#token=` and what is in `{}`)",
            path_of(folder, "control").display()
        ),
    }
}

fn path_of(folder: &Path, role: &str) -> PathBuf {
    folder.join(format!("web.{role}.token"))
}

/// In a time that does not depend on where they differ.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn token(path: &Path) -> std::io::Result<String> {
    let made = fresh()?;
    let part = path.with_extension(format!("token.{}", std::process::id()));
    // Whole or not there: two processes may start at once.
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part);
    let linked = written.and_then(|mut file| {
        let linked = file
            .write_all(format!("{made}\n").as_bytes())
            // A power cut would leave an empty file, which is no token.
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::hard_link(&part, path));
        std::fs::remove_file(&part).and(linked)
    });
    match linked {
        Ok(()) => Ok(made),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => read(path),
        Err(e) => match read(path) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => match e.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Ok(made),
                _ => Err(e),
            },
            found => found,
        },
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "not a file; delete it, and a token is made"));
    }
    File::open(path)?.take(1024).read_to_string(&mut text)?;
    match text.trim() {
        token if token.len() >= 32 && token.bytes().all(|b| b.is_ascii_alphanumeric()) => Ok(token.to_owned()),
        _ => Err(std::io::Error::new(ErrorKind::InvalidData, "not a token; delete it, and another one is made")),
    }
}

fn fresh() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn tokens_are_made_once_and_are_secret() {
        let folder = std::env::temp_dir().join(format!("beamport-tokens-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let tokens = Tokens::of(&folder).unwrap();
        assert_eq!(Tokens::of(&folder).unwrap().control, tokens.control);
        assert_eq!(tokens.role(&tokens.control), Some(Role::Control));
        assert_eq!(tokens.role(&tokens.view), Some(Role::View));
        assert_eq!(tokens.role(""), None);
        assert_ne!(tokens.view, tokens.control);
        let path = folder.join("web.control.token");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "x").unwrap();
        assert!(Tokens::of(&folder).unwrap_err().cause.contains("delete it"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
