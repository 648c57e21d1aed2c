//! kubectl as the hand of every scenario.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::interruption::INTERRUPTION;
use crate::process::Process;
use crate::wait::eventually;

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
        run(self.command()?.args(words.split_whitespace()), "")
    }

    /// Runs it with arguments that hold spaces themselves.
    pub(crate) fn args(&self, args: &[&str]) -> Result<String> {
        run(self.command()?.args(args), "")
    }

    /// Runs it with a document on its standard input.
    pub(crate) fn with_input(&self, words: &str, document: &str) -> Result<String> {
        run(self.command()?.args(words.split_whitespace()), document)
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

    /// What `diff` of this document with the cluster says; nothing where they are the same.
    pub(crate) fn diff(&self, document: &str) -> Result<String> {
        let output = output(self.command()?.args(["diff", "-f", "-"]), document)?;
        // Its exit status is that of diff: 1 says that there is a difference, and is no failure.
        if !matches!(output.status.code(), Some(0 | 1)) {
            bail!("kubectl diff: {}", complaint(&output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a watch beside the scenario that says `fields` of every event.
    pub(crate) fn watch(&self, name: &str, words: &str, fields: &str) -> Result<Watching> {
        let mut command = self.command()?;
        command
            .args(["get", "--output-watch-events"])
            .args(words.split_whitespace())
            .arg(format!("-o=jsonpath={fields}{{\"\\n\"}}"));
        let process = Process::start(name, &self.home, &mut command)?;
        Ok(Watching { process })
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
    pub(crate) fn command(&self) -> Result<Command> {
        INTERRUPTION.check()?;
        let mut command = Command::new(&self.program);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .envs(self.settings.iter().copied());
        Ok(command)
    }
}

/// A watch that runs beside the scenario.
pub(crate) struct Watching {
    process: Process,
}

impl Watching {
    /// Waits until it has said exactly these lines.
    pub(crate) fn says(&mut self, wanted: &[&str]) -> Result<()> {
        eventually("a watch has said what happened", || {
            self.process.check()?;
            let said = self.process.said();
            ensure!(
                said.lines().eq(wanted.iter().copied()),
                "it said {said:?}, not {wanted:?}"
            );
            Ok(())
        })
    }
}

/// Runs a program to its end with this input; what it printed, or an error with what it complained of.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String> {
    let output = output(command, input)?;
    if !output.status.success() {
        bail!("{}: {}", shown(command), complaint(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Runs a program to its end with this input, whatever comes of it.
pub(crate) fn output(command: &mut Command, input: &str) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let _waited = INTERRUPTION.wait_for(&child);
    // A program that does not read its input closes the pipe early; that is its right.
    let _ = child
        .stdin
        .take()
        .expect("piped above")
        .write_all(input.as_bytes());
    Ok(child.wait_with_output()?)
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
