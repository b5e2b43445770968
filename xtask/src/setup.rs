//! `.venv`: the pinned Python packages that build and test beamport, and nothing installed by hand.

use std::fs;
use std::process::{Command, Stdio};

use crate::step::Step;
use crate::{Done, tree};

/// The one list of what is installed.
const REQUIREMENTS: &str = "python/requirements-dev.txt";
/// In it begins a line with a package that is installed without what it asks for.
const ALONE: &str = "# alone: ";
/// And here one that goes into a folder of its own, `.venv/aside`, also where it asks for a newer Python: its modules
/// have the names of another package's, and a test puts the folder on its path.
const ASIDE: &str = "# aside: ";

/// A venv is made with the first of these that is 3.11 or newer.
const PYTHONS: [&str; 6] = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"];

/// Makes `.venv` or brings it up to date; does nothing when the list is the one installed.
pub(crate) fn run() -> Done {
    let wanted = fs::read_to_string(tree::root().join(REQUIREMENTS)).map_err(|e| format!("{REQUIREMENTS}: {e}"))?;
    // The stamp is the list itself: written last, so a setup that was cut short runs again.
    let stamp = tree::root().join(".venv/requirements.stamp");
    let works = is_new_enough(&tree::venv("python").to_string_lossy());
    if works && fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }

    if !works {
        let python = PYTHONS.into_iter().find(|name| is_new_enough(name)).ok_or(
            "no Python 3.11 or newer is on the PATH\nhint:  install one; it may be called python3.11, python3 or python",
        )?;
        Step::new(python)
            .args(["-m", "venv", "--clear", ".venv"])
            .run()
            .map_err(|e| format!("{e}\nhint:  some systems pack it apart: `apt install python3-venv`"))?;
    }
    Step::new(tree::venv("python")).args(["-m", "pip", "install", "--quiet", "-r", REQUIREMENTS]).run()?;
    let alone = wanted.lines().filter_map(|line| line.strip_prefix(ALONE));
    Step::new(tree::venv("python")).args(["-m", "pip", "install", "--quiet", "--no-deps"]).args(alone).run()?;
    let aside = wanted.lines().filter_map(|line| line.strip_prefix(ASIDE));
    Step::new(tree::venv("python"))
        .args(["-m", "pip", "install", "--quiet", "--no-deps", "--ignore-requires-python", "--upgrade"])
        .args(["--target", ".venv/aside"])
        .args(aside)
        .run()?;
    fs::write(&stamp, wanted).map_err(|e| format!("{}: {e}", stamp.display()))
}

fn is_new_enough(python: &str) -> bool {
    Command::new(python)
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 11))"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
