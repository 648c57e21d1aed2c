//! A program that runs beside the scenario, logs to a file, and ends with it.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::pause;

const STOP_LIMIT: Duration = Duration::from_secs(20);
const STOP_PAUSE: Duration = Duration::from_millis(20);

/// A running program; asked to end when dropped, and made to if it does not.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it with its output appended to `<dir>/<name>.log`.
    pub(crate) fn start(name: &str, dir: &Path, command: &mut Command) -> Result<Process> {
        let log = dir.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", command.get_program().display()))?;
        Ok(Process {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// An error with its last words when it has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}): {}", self.name, self.last_words()),
        }
    }

    /// All that it has said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn last_words(&self) -> String {
        let text = self.said();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }

    // A child that is gone already answers the signal with an error, which is as good.
    fn ask_to_end(&mut self) -> bool {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return true;
            }
            pause(STOP_PAUSE);
        }
        false
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.ask_to_end() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
