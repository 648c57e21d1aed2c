//! `kyanite down`: stop, and leave nothing behind.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::up::site;
use crate::cli::Down;
use crate::datadir::{DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::kubeconfig;
use crate::printer::Printer;

/// How long a server may take to finish open requests before it is ended.
const PATIENCE: Duration = Duration::from_secs(15);

/// Stops the server of a data directory.
pub(super) fn run(down: &Down, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(&down.place)?;
    if down.purge {
        dir.check()?;
    }
    let state = dir.running()?;
    if let Some(state) = &state {
        stop(&dir, state)?;
    }
    // Also after a server that was killed: its context is still in the user's kubeconfig.
    if let Some(state) = state.clone().or_else(|| dir.left_behind()) {
        // Without its own kubeconfig nobody can say which entries are this cluster's.
        if let Some(ours) = kubeconfig::of(&dir) {
            kubeconfig::unmerge(&state.kubeconfig, &ours, state.previous_context.as_deref())?;
        }
        dir.clear_state();
    }
    // What the cloud made goes with the cloud.
    for cluster in dir.clusters() {
        if let Some(state) = cluster.running()? {
            stop(&cluster, &state)?;
        }
        site::shut_down(&cluster)?;
    }
    let machines = site::shut_down(&dir)?;
    let purged = down.purge && dir.path().exists();
    if purged {
        for cluster in dir.clusters() {
            site::remove_all(&cluster)?;
        }
        site::remove_all(&dir)?;
        std::fs::remove_dir_all(dir.path()).map_err(|e| Failure::file("remove", dir.path(), &e))?;
    }
    let text = match (&state, purged) {
        (Some(_), true) => format!(
            "kyanite is down and its data in {} is gone",
            dir.path().display()
        ),
        (Some(_), false) => format!(
            "kyanite is down; its data stays in {}",
            dir.path().display()
        ),
        (None, true) => format!(
            "kyanite was not running; its data in {} is gone",
            dir.path().display()
        ),
        (None, false) => "kyanite was not running".to_owned(),
    };
    printer.result(
        &text,
        &json!({"stopped": state.is_some(), "machines": machines, "purged": purged}),
    );
    Ok(())
}

fn stop(dir: &DataDir, state: &State) -> Result<()> {
    let pid = i32::try_from(state.pid).ok().and_then(Pid::from_raw);
    let pid = pid
        .ok_or_else(|| Failure::new(Code::Failure, format!("{} is not a process id", state.pid)))?;
    signal(pid, Signal::TERM)?;
    if !released(dir, state.pid, PATIENCE)? {
        signal(pid, Signal::KILL)?;
        if !released(dir, state.pid, PATIENCE)? {
            return Err(Failure::new(
                Code::Failure,
                format!("process {} does not end", state.pid),
            ));
        }
    }
    Ok(())
}

fn signal(pid: Pid, signal: Signal) -> Result<()> {
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(Failure::new(
            Code::Permission,
            format!("cannot signal process {pid:?}: {errno}"),
        )),
    }
}

// A server gives the lock back as one of the last things it does, so the process is asked for too.
#[expect(
    clippy::disallowed_methods,
    reason = "a command line tool that waits for another process"
)]
fn released(dir: &DataDir, pid: u32, patience: Duration) -> Result<bool> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if dir.lock()?.is_some() && has_ended(pid) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(false)
}

// One whose parent has not asked about it yet (Z) has ended as well.
fn has_ended(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    matches!(state, Some('Z' | 'X') | None)
}
