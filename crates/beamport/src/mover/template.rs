//! Questions about a template to `beamport-nexus check`, which alone reads templates.

use super::writer;
use crate::edges::TemplateAnswer;
use crate::file::Mistake;
use flow::Fault;
use flow::checked::{self, Checked};
use flow::job::{Layout, Word as _, Writer};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Mistakes and modules of a template; where the program cannot answer, that is the mistake.
pub fn template_check(path: &Path, by: &Writer) -> TemplateAnswer {
    let file = path.display().to_string();
    match checked(path, by) {
        Ok(Checked { mistakes, modules }) => {
            TemplateAnswer { mistakes: mistakes.into_iter().map(|one| in_file(&file, one)).collect(), modules }
        }
        Err(fault) => {
            let Fault { what, cause, hint, .. } = fault;
            let mistake = Mistake { file, what, cause, hint, ..Mistake::default() };
            TemplateAnswer { mistakes: vec![mistake], ..TemplateAnswer::default() }
        }
    }
}

/// The answer of the program.
fn checked(path: &Path, by: &Writer) -> Result<Checked, Fault> {
    let mut command = Command::new(writer(by)?);
    command.arg("check").arg(path).arg("--json");
    if by.layout != Layout::default() {
        command.args(["--layout", by.layout.word()]);
    }
    if let Some(path) = &by.static_file {
        command.arg("--static").arg(path);
    }
    if !by.modules.is_empty() {
        let python = by.python.clone().unwrap_or_else(crate::code::python);
        command.arg("--folder").arg(&by.folder).arg("--python").arg(python);
        command.args(["--time-max-ms", &by.time_max.as_millis().to_string()]);
        for module in &by.modules {
            command.args(["--module", module]);
        }
    }
    let answer = store::printed::without_secrets(&mut command).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    answer.map_err(|e| e.to_string()).and_then(|output| read(&output)).map_err(|cause| {
        let hint = match &by.static_file {
            Some(path) => format!("check whether {} is damaged", path.display()),
            None => "run `beamport-nexus check TEMPLATE`".to_owned(),
        };
        Fault::new("cannot check the template", cause).hint(hint)
    })
}

fn read(output: &Output) -> Result<Checked, String> {
    // A damaged static file may crash libhdf5.
    if output.status.code().is_none() {
        return Err(format!("`beamport-nexus` ended with {}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("the answer of `beamport-nexus` is not valid: {e}"))
}

fn in_file(file: &str, mistake: checked::Mistake) -> Mistake {
    let checked::Mistake { level, line, pointer, cause, hint } = mistake;
    let what = match level {
        checked::Level::Error => "the template has a mistake",
        checked::Level::Warning => "the template is not followed exactly",
    };
    Mistake { level, file: file.to_owned(), line, pointer, what: what.to_owned(), cause, hint }
}
