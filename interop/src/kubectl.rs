//! kubectl as the hand of every scenario.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// kubectl with one kubeconfig.
#[derive(Clone)]
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
    settings: Vec<(&'static str, &'static str)>,
}

impl Kubectl {
    pub(crate) fn new(program: PathBuf, kubeconfig: PathBuf, home: &Path) -> Kubectl {
        Kubectl {
            program,
            kubeconfig,
            home: home.to_owned(),
            settings: Vec::new(),
        }
    }

    /// Runs it with these words, split at spaces; gives what it printed.
    pub(crate) fn run(&self, words: &str) -> Result<String> {
        run(self.command().args(words.split_whitespace()), "")
    }

    /// Runs it with arguments that hold spaces themselves.
    pub(crate) fn args(&self, args: &[&str]) -> Result<String> {
        run(self.command().args(args), "")
    }

    /// Runs it with a document on its standard input.
    pub(crate) fn with_input(&self, words: &str, document: &str) -> Result<String> {
        run(self.command().args(words.split_whitespace()), document)
    }

    /// An object or a list, as JSON.
    pub(crate) fn json(&self, words: &str) -> Result<Value> {
        let text = self.run(&format!("{words} -o json"))?;
        serde_json::from_str(&text).with_context(|| format!("kubectl {words}: not JSON"))
    }

    /// One field: `expect("get cm a", "{.data.k}", "v")`.
    pub(crate) fn expect(&self, words: &str, path: &str, wanted: &str) -> Result<()> {
        let found = self.run(&format!("{words} -o jsonpath={path}"))?;
        ensure!(
            found == wanted,
            "kubectl {words}: {path} is {found:?}, not {wanted:?}"
        );
        Ok(())
    }

    /// Runs it and wants it to fail with this on its standard error.
    pub(crate) fn refused(&self, words: &str, complaint: &str) -> Result<()> {
        match self.run(words) {
            Ok(said) => bail!("kubectl {words}: should have been refused, said {said:?}"),
            Err(error) => {
                let said = format!("{error:#}");
                ensure!(
                    said.contains(complaint),
                    "kubectl {words}: no {complaint:?} in: {said}"
                );
                Ok(())
            }
        }
    }

    /// The same kubectl with another kubeconfig.
    pub(crate) fn as_user(&self, kubeconfig: PathBuf) -> Kubectl {
        Kubectl {
            kubeconfig,
            ..self.clone()
        }
    }

    /// The same kubectl with these variables in its environment.
    pub(crate) fn with_settings(&self, settings: &[(&'static str, &'static str)]) -> Kubectl {
        Kubectl {
            settings: settings.to_vec(),
            ..self.clone()
        }
    }

    /// A command that the caller runs.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .envs(self.settings.iter().copied());
        command
    }
}

/// Runs a program to its end with this input; what it printed, or an error with what it complained of.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String> {
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    // A program that does not read its input closes the pipe early; that is its right.
    let _ = child
        .stdin
        .take()
        .expect("piped above")
        .write_all(input.as_bytes());
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{shown}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

// The program's name without its directory: the report is read on other machines too.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
