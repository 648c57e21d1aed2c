//! `provision` on nodes that still carry the scripts: starts them, and sees to it that there is a result.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use ::steps::engine::{Failure, Stop};
use ::steps::host::{Host, wait_or_end};

use super::handover::{forget_last_result, leave, lock_or_refuse};
use super::log::{Level, Log};
use super::paths;
use super::provision::{Ended, read_config};
use crate::codes::AKS_NODE_CONTROLLER_ERROR;
use crate::config::REDACTED;
use crate::environment::containerd::Layout;
use crate::environment::gpu::DriverImages;
use crate::environment::{self, Scripts, Variable};

/// What to start.
#[derive(Debug, Clone)]
pub enum Script {
    /// This file, with bash, as the service sent it.
    File(PathBuf),
    /// The scripts of the node image, with the environment that this configuration gives them.
    Config(PathBuf),
}

/// Runs the scripts with our own standard output and error, and passes their exit code on.
pub fn run_script(
    host: &dyn Host,
    script: &Script,
    dry_run: bool,
    stop: &Stop,
    log: &Log<'_>,
) -> Ended {
    let lock = match lock_or_refuse(host, log) {
        Ok(lock) => lock,
        Err(ended) => return ended,
    };
    let prepared = match script {
        Script::File(file) => nbc_command(file),
        Script::Config(file) => script_command(file),
    };
    if dry_run {
        return dry(prepared, log);
    }
    forget_last_result(host, log);
    let (ended, failure) = match prepared {
        Err(failure) => failed(1, AKS_NODE_CONTROLLER_ERROR, failure),
        Ok((mut command, line)) => {
            log.line(Level::Info, "starting the scripts", &[("command", &line)]);
            outcome(run(&mut command, stop))
        }
    };
    // The scripts leave a result themselves, unless they could not begin or were killed.
    if let Some((code, failure)) = failure
        && !host.files().exists(paths::COMPLETE)
    {
        let json =
            serde_json::json!({"ExitCode": code.to_string(), "Error": failure.cause, "Output": ""});
        if let Err(lost) = leave(host, log, &json.to_string(), paths::COMPLETE) {
            log.line(Level::Error, &lost.cause, &[]);
        }
    }
    drop(lock);
    ended
}

/// Says what would be run.
fn dry(prepared: Result<(Command, String), Failure>, log: &Log<'_>) -> Ended {
    match prepared {
        Ok((_, line)) => {
            log.line(Level::Info, "dry run", &[("command", &line)]);
            Ended {
                exit: 0,
                failure: None,
            }
        }
        Err(failure) => {
            log.line(Level::Error, &failure.cause, &[("remedy", &failure.remedy)]);
            failed(1, AKS_NODE_CONTROLLER_ERROR, failure).0
        }
    }
}

type Judged = (Ended, Option<(u8, Failure)>);

fn failed(exit: u8, code: u8, failure: Failure) -> Judged {
    let ended = Ended {
        exit,
        failure: Some(failure.clone()),
    };
    (ended, Some((code, failure)))
}

fn run(command: &mut Command, stop: &Stop) -> std::io::Result<Option<ExitStatus>> {
    wait_or_end(&mut command.process_group(0).spawn()?, stop)
}

fn outcome(status: std::io::Result<Option<ExitStatus>>) -> Judged {
    let remedy = |code: u8| {
        let log = paths::TRANSCRIPT;
        format!("see {log} and `aks-node-controller explain {code}`")
    };
    match status {
        Ok(Some(status)) if status.success() => {
            let ended = Ended {
                exit: 0,
                failure: None,
            };
            (ended, None)
        }
        Ok(Some(status)) => {
            // Killed by a signal: 255, as upstream has it.
            let code = status.code().and_then(|c| u8::try_from(c).ok());
            let code = code.unwrap_or(255);
            let cause = format!("the scripts ended with {status}");
            failed(code, code, Failure::permanent(cause, remedy(code)))
        }
        Ok(None) => {
            let cause = "the run was cancelled, and the scripts were stopped";
            failed(255, 255, Failure::permanent(cause, remedy(255)))
        }
        Err(e) => {
            let failure = Failure::file("run", Path::new("/bin/bash"), &e);
            failed(1, AKS_NODE_CONTROLLER_ERROR, failure)
        }
    }
}

fn nbc_command(file: &Path) -> Result<(Command, String), Failure> {
    let wrong = |cause: String| {
        Failure::permanent(
            format!("open nbc-cmd file {}: {cause}", file.display()),
            "check that custom data wrote it: see /var/log/cloud-init.log",
        )
    };
    let metadata = std::fs::metadata(file).map_err(|e| wrong(e.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("it is not a regular file".to_owned()));
    }
    let mut command = Command::new("/bin/bash");
    command.arg("--").arg(file);
    Ok((command, format!("/bin/bash -- {}", file.display())))
}

fn script_command(file: &Path) -> Result<(Command, String), Failure> {
    let config = read_config(file)?.configuration;
    let host = environment::Host {
        containerd: Layout::of(&containerd_version()),
        // Unlike upstream, nodes without GPUs do without the list of drivers.
        drivers: std::fs::read("/opt/azure/components.json")
            .ok()
            .and_then(|text| DriverImages::parse(&text).ok())
            .unwrap_or_default(),
    };
    let line = environment::command(&config, Scripts::Current);
    let variables = environment::variables(&config, &host);
    let shown = |v: &Variable| match v.is_secret && !v.value.is_empty() {
        true => format!("{}={REDACTED}", v.name),
        false => format!("{}={}", v.name, v.value),
    };
    let shown: Vec<_> = variables.iter().map(shown).collect();
    let mut command = Command::new("/bin/bash");
    command.arg("-c").arg(&line);
    command.envs(variables.into_iter().map(|v| (v.name, v.value)));
    Ok((
        command,
        format!("{} /bin/bash -c '{line}'", shown.join(" ")),
    ))
}

fn containerd_version() -> String {
    let output = Command::new("containerd").arg("--version").output();
    output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default()
}
