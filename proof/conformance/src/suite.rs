//! Running the suite: upstream's `e2e.test` under its runner, one slice after the other.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::plan;
use crate::report::{self, Report};
use crate::specs::Spec;

/// The suite and its runner.
#[derive(Debug)]
pub(crate) struct Suite {
    /// Directory of `ginkgo`, `e2e.test` and `kubectl`.
    programs: PathBuf,
    kubectl: PathBuf,
    /// Where the report and the runner's output go.
    dir: PathBuf,
    /// Specs at the same time.
    pub(crate) workers: usize,
}

/// How a slice ended.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) report: Report,
    pub(crate) interrupted: bool,
}

impl Suite {
    /// Finds the programs; the error says what is not there and how to get it.
    pub(crate) fn find(
        programs: &Path,
        kubectl: Option<PathBuf>,
        dir: &Path,
        workers: usize,
    ) -> Result<Suite> {
        for program in ["e2e.test", "ginkgo", "agnhost"] {
            if !programs.join(program).is_file() {
                bail!("upstream's {program} is not built here (make upstream)");
            }
        }
        let kubectl = kubectl.unwrap_or_else(|| programs.join("kubectl"));
        if !kubectl.is_file() {
            bail!(
                "the suite needs kubectl, and {} is not there (make upstream)",
                kubectl.display()
            );
        }
        Ok(Suite {
            programs: programs.to_owned(),
            kubectl,
            dir: dir.to_owned(),
            workers,
        })
    }

    /// Runs these specs against the cluster of `kubeconfig` and reads the report. An interrupt is passed
    /// on once; what the runner knows by then is in its report.
    pub(crate) async fn run(
        &self,
        specs: &[&Spec],
        kubeconfig: &Path,
        limit: Duration,
    ) -> Result<Slice> {
        let report = self.dir.join("report.json");
        let _ = fs::remove_file(&report);
        let log = self.dir.join("suite.log");
        let mut runner = self.spawn(specs, kubeconfig, limit, &log)?;
        let (status, interrupted) = tokio::select! {
            status = runner.wait() => (status?, false),
            () = told_to_stop() => (interrupt(&mut runner).await?, true),
        };
        let read = fs::read(&report).with_context(|| no_report(status, &log))?;
        Ok(Slice {
            report: report::read(&read).context("the runner's report is not understood")?,
            interrupted,
        })
    }

    fn spawn(
        &self,
        specs: &[&Spec],
        kubeconfig: &Path,
        limit: Duration,
        log: &Path,
    ) -> Result<Child> {
        let output = File::create(log)?;
        let mut command = Command::new(self.programs.join("ginkgo"));
        command.arg("run").arg(format!("--procs={}", self.workers));
        command.args(["--silence-skips", "--no-color", "--json-report=report.json"]);
        command.arg("--output-dir").arg(&self.dir);
        command.arg(format!("--timeout={}s", limit.as_secs()));
        command.arg(format!("--focus={}", plan::focus(specs)));
        command.arg(self.programs.join("e2e.test")).arg("--");
        command.arg("--kubeconfig").arg(kubeconfig);
        command.arg("--kubectl-path").arg(&self.kubectl);
        // No cloud that the suite would know.
        command.args(["--provider=skeleton", "--disable-log-dump"]);
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        command
            .current_dir(&self.dir)
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().context("cannot run ginkgo")
    }
}

/// Completes when somebody wants us to end.
pub(crate) async fn told_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime has signals");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

async fn interrupt(runner: &mut Child) -> Result<ExitStatus> {
    if let Some(group) = runner.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process_group(group, Signal::INT)?;
    }
    Ok(runner.wait().await?)
}

fn no_report(status: ExitStatus, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let last: Vec<&str> = text.lines().rev().take(10).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    format!(
        "the runner left no report ({status}); it said last:\n{}",
        last.join("\n")
    )
}
